//! A ConfigDB in miniature: events as its Host Application would emit them.

use std::collections::BTreeSet;

use sparkplug::BdSeq;

use super::*;
use crate::command::device_id;
use crate::result::Outcome;

pub(crate) const STORE: Uuid = Uuid::from_u128(0x5);
const INFO: Uuid = configdb_schema::known::application::INFO;

pub(crate) fn node() -> EdgeNodeDescriptor {
    EdgeNodeDescriptor::parse("ACME-Central", "ConfigDB").unwrap()
}

pub(crate) fn uuid(n: u128) -> Uuid {
    Uuid::from_u128(n)
}

pub(crate) fn node_birth(store: Uuid, revision: u64, objects: u64) -> HostEvent {
    let metrics = [
        Metric::new(names::CONFIG_STORE, store.to_string()),
        Metric::new(names::CONFIG_REVISION, revision),
        Metric::new(names::CONFIG_OBJECTS, objects),
        Metric::string(names::REQUEST_RESULT, None),
    ];
    HostEvent::NodeBirth { node: node(), bd_seq: BdSeq::ZERO, timestamp: 1, uuid: None, metrics: metrics.into() }
}

pub(crate) fn node_data(revision: u64, objects: u64) -> HostEvent {
    let metrics = vec![Metric::new(names::CONFIG_REVISION, revision), Metric::new(names::CONFIG_OBJECTS, objects)];
    HostEvent::NodeData { node: node(), timestamp: 1, metrics }
}

pub(crate) fn registration(object: Uuid, class: Uuid) -> Metric {
    let registration = Registration { uuid: object, rank: 0, class, owner: uuid(0xffff), deleted: false, strict: true };
    Metric::new(REGISTRATION_SLUG, serde_json::to_string(&registration).unwrap())
}

pub(crate) fn membership(classes: &[Uuid]) -> Metric {
    let membership = Membership { member_of: classes.iter().copied().collect(), subclass_of: BTreeSet::new() };
    Metric::new(MEMBERSHIP_SLUG, serde_json::to_string(&membership).unwrap())
}

pub(crate) fn info(revision: u64, json: &str) -> Metric {
    let entry = Entry { application: INFO, json: json.into(), etag: Uuid::from_u128(u128::from(revision)), revision };
    entry::to_metric(&"Info".into(), INFO, Some(&entry))
}

pub(crate) fn no_info() -> Metric {
    entry::to_metric(&"Info".into(), INFO, None)
}

pub(crate) fn object_birth(object: Uuid, info: Metric) -> HostEvent {
    let class = uuid(0xc);
    let metrics = [registration(object, class), membership(&[class]), info];
    HostEvent::DeviceBirth { node: node(), device: device_id(object), timestamp: 1, metrics: metrics.into() }
}

fn object_data(object: Uuid, metrics: Vec<Metric>) -> HostEvent {
    HostEvent::DeviceData { node: node(), device: device_id(object), timestamp: 1, metrics }
}

fn object_death(object: Uuid) -> HostEvent {
    HostEvent::DeviceDeath { node: node(), device: device_id(object), timestamp: 1 }
}

/// Feeds the events and returns what changed, in short.
fn feed(replica: &mut ConfigReplica, events: &[HostEvent]) -> Vec<String> {
    for event in events {
        replica.on_event(event);
    }
    let mut changes = Vec::new();
    while let Some(change) = replica.poll_change() {
        changes.push(match change {
            Change::StoreReplaced { .. } => "store replaced".to_owned(),
            Change::ObjectBorn { object } => format!("born {}", object.as_u128()),
            Change::ObjectChanged { object } => format!("changed {}", object.as_u128()),
            Change::ObjectGone { object } => format!("gone {}", object.as_u128()),
            Change::Entry { object, slug, old, new } => {
                let text = |e: Option<Entry>| e.map_or("-".to_owned(), |e| e.json.to_string());
                format!("{} {slug}: {} -> {}", object.as_u128(), text(old), text(new))
            }
            Change::BecameComplete { .. } => "complete".to_owned(),
            Change::BecameIncomplete { reason } => format!("incomplete: {reason}"),
            Change::Result(result) => format!("result {}", result.id),
            Change::History(history) => format!("history {} {}", history.slug, history.revision),
            Change::Contradicted { .. } => "contradicted".to_owned(),
            Change::Malformed { reason } => format!("malformed: {reason}"),
        });
    }
    changes
}

/// Complete with objects 1 (Info "a") and 2 (no entry).
fn complete() -> ConfigReplica {
    let mut replica = ConfigReplica::new(node());
    let changes = feed(
        &mut replica,
        &[node_birth(STORE, 9, 2), object_birth(uuid(1), info(3, "\"a\"")), object_birth(uuid(2), no_info())],
    );
    assert_eq!(changes, ["born 1", "1 Info: - -> \"a\"", "born 2", "complete"]);
    assert!(replica.is_complete());
    replica
}

#[test]
fn a_replica_is_complete_when_as_many_objects_are_born_as_there_are() {
    let replica = complete();
    assert_eq!((replica.store(), replica.revision()), (Some(STORE), 9));
    assert_eq!(replica.entries("Info").map(|(uuid, _)| uuid).collect::<Vec<_>>(), [uuid(1)]);
    assert_eq!(replica.slug_of(INFO), Some("Info"));
    assert!(replica.object(uuid(2)).unwrap().is_member_of(uuid(0xc)));
    assert_eq!(replica.object(uuid(2)).unwrap().entries().count(), 0);
}

#[test]
fn an_empty_store_is_complete_at_once() {
    let mut replica = ConfigReplica::new(node());
    assert_eq!(feed(&mut replica, &[node_birth(STORE, 0, 0)]), ["complete"]);
}

#[test]
fn objects_before_a_birth_of_the_node_are_not_believed() {
    let mut replica = ConfigReplica::new(node());
    assert!(feed(&mut replica, &[object_birth(uuid(1), no_info()), node_data(1, 0)]).is_empty());
    assert!(!replica.is_complete());
}

#[test]
fn data_changes_entries_and_null_deletes_them() {
    let mut replica = complete();
    let changes = feed(
        &mut replica,
        &[
            object_data(uuid(1), vec![info(10, "\"b\"")]),
            object_data(uuid(2), vec![info(10, "\"c\"")]),
            node_data(10, 2),
            object_data(uuid(1), vec![no_info()]),
            object_data(uuid(1), vec![membership(&[uuid(7)])]),
        ],
    );
    assert_eq!(changes, ["1 Info: \"a\" -> \"b\"", "2 Info: - -> \"c\"", "1 Info: \"b\" -> -", "changed 1"]);
    assert_eq!(replica.revision(), 10);
}

#[test]
fn a_created_and_a_deleted_object_leave_the_replica_complete() {
    let mut replica = complete();
    let created = [object_birth(uuid(3), no_info()), node_data(10, 3)];
    assert_eq!(feed(&mut replica, &created), ["born 3"]);
    let deleted = [object_death(uuid(1)), node_data(11, 2)];
    assert_eq!(feed(&mut replica, &deleted), ["1 Info: \"a\" -> -", "gone 1"]);
    assert!(replica.is_complete());
}

#[test]
fn an_object_that_dies_and_is_born_again_before_the_next_revision_is_not_gone() {
    let mut replica = complete();
    assert!(feed(&mut replica, &[object_death(uuid(1))]).is_empty());
    assert!(replica.entry(uuid(1), "Info").is_some());
    let changes = feed(&mut replica, &[object_birth(uuid(1), info(10, "\"b\"")), node_data(10, 2)]);
    assert_eq!(changes, ["1 Info: \"a\" -> \"b\""]);
    assert!(replica.is_complete());
}

#[test]
fn more_objects_announced_than_born_keep_a_complete_replica_complete_and_an_incomplete_one_incomplete() {
    let mut replica = complete();
    let announced = Metric::new(names::CONFIG_OBJECTS, 3_u64);
    let announcement = HostEvent::NodeData { node: node(), timestamp: 1, metrics: vec![announced] };
    assert!(feed(&mut replica, &[announcement]).is_empty() && replica.is_complete());
    let births = [node_birth(STORE, 9, 3), object_birth(uuid(1), info(3, "\"a\"")), object_birth(uuid(3), no_info())];
    feed(&mut replica, &births);
    assert!(!replica.is_complete() && replica.object(uuid(2)).is_some(), "object 2 is still to come");
}

#[test]
fn a_gap_makes_it_incomplete_but_forgets_nothing() {
    let mut replica = complete();
    let stale = HostEvent::NodeStale { node: node(), reason: "seq 3 is missing".to_owned() };
    assert_eq!(feed(&mut replica, &[stale]), ["incomplete: seq 3 is missing"]);
    assert!(feed(&mut replica, &[object_death(uuid(1)), node_data(10, 1)]).is_empty());
    assert_eq!(replica.objects().count(), 2);
    assert!(!replica.is_complete());
}

#[test]
fn death_and_own_connection_loss_make_it_incomplete_once() {
    let mut replica = complete();
    let death = HostEvent::NodeDeath { node: node(), timestamp: 1 };
    let offline = HostEvent::Offline { reason: "broker away".to_owned() };
    assert_eq!(feed(&mut replica, &[death, offline.clone()]), ["incomplete: ConfigDB is dead"]);
    let mut replica = complete();
    assert_eq!(feed(&mut replica, &[offline]), ["incomplete: broker away"]);
}

#[test]
fn a_rebirth_reports_only_what_differs_and_objects_not_born_again_are_gone_when_it_is_complete() {
    let mut replica = complete();
    let births = [node_birth(STORE, 12, 2), object_birth(uuid(2), no_info())];
    assert_eq!(feed(&mut replica, &births), ["incomplete: ConfigDB is born again; its objects follow"]);
    assert_eq!(replica.objects().count(), 2, "object 1 may still be born");
    let changes = feed(&mut replica, &[object_birth(uuid(3), no_info())]);
    assert_eq!(changes, ["born 3", "1 Info: \"a\" -> -", "gone 1", "complete"]);
}

#[test]
fn a_rebirth_shows_an_entry_that_changed_meanwhile() {
    let mut replica = complete();
    feed(&mut replica, &[node_birth(STORE, 12, 2), object_birth(uuid(2), no_info())]);
    let changes = feed(&mut replica, &[object_birth(uuid(1), info(11, "\"z\""))]);
    assert_eq!(changes, ["1 Info: \"a\" -> \"z\"", "complete"]);
}

#[test]
fn another_store_replaces_everything_without_deletions() {
    let mut replica = complete();
    let changes = feed(&mut replica, &[node_birth(uuid(6), 1, 1)]);
    assert_eq!(changes, ["incomplete: ConfigDB is born again; its objects follow", "store replaced"]);
    assert_eq!(replica.objects().count(), 0);
    assert_eq!(feed(&mut replica, &[object_birth(uuid(9), no_info())]), ["born 9", "complete"]);
}

#[test]
fn a_death_during_births_counts_when_the_node_says_so() {
    let mut replica = ConfigReplica::new(node());
    feed(&mut replica, &[node_birth(STORE, 9, 3), object_birth(uuid(1), no_info()), object_birth(uuid(2), no_info())]);
    assert_eq!(feed(&mut replica, &[node_data(10, 2)]), ["complete"]);
}

#[test]
fn other_nodes_are_ignored() {
    let mut replica = complete();
    let other = EdgeNodeDescriptor::parse("ACME-Central", "Monitor").unwrap();
    let events = [
        HostEvent::NodeStale { node: other.clone(), reason: String::new() },
        HostEvent::NodeDeath { node: other.clone(), timestamp: 1 },
        HostEvent::DeviceDeath { node: other, device: device_id(uuid(1)), timestamp: 1 },
    ];
    assert!(feed(&mut replica, &events).is_empty());
    assert!(replica.is_complete());
}

#[test]
fn what_cannot_be_read_is_reported_and_left_out() {
    let mut replica = complete();
    let mut without_etag = info(4, "1");
    without_etag.properties = sparkplug::Properties::new();
    let pump = DeviceId::new("pump").unwrap();
    let events = [
        object_data(uuid(1), vec![without_etag]),
        object_data(uuid(1), vec![Metric::new(REGISTRATION_SLUG, "{}")]),
        object_data(uuid(8), vec![info(4, "1")]),
        HostEvent::DeviceBirth { node: node(), device: pump, timestamp: 1, metrics: [].into() },
        HostEvent::NodeData { node: node(), timestamp: 1, metrics: vec![Metric::new(names::REQUEST_RESULT, "?")] },
    ];
    let changes = feed(&mut replica, &events);
    assert_eq!(changes.len(), 5);
    assert!(changes.iter().all(|c| c.starts_with("malformed: ")), "{changes:?}");
    assert_eq!(&*replica.entry(uuid(1), "Info").unwrap().json, "\"a\"");
    assert!(replica.is_complete());
}

#[test]
fn results_and_history_come_out_in_order() {
    let mut replica = complete();
    let result = RequestResult {
        id: "r1".to_owned(),
        object: uuid(1),
        outcome: Outcome::Applied,
        revision: 10,
        etags: BTreeMap::new(),
        reason: None,
        field: None,
        store: None,
        at: 0,
    };
    let history = HistoryEntry {
        object: uuid(1),
        slug: "Info".into(),
        json: None,
        etag: None,
        revision: 3,
        time: 5,
        writer: "w".into(),
        request: "r".into(),
    };
    let events = [
        object_data(uuid(1), vec![history.to_metric()]),
        HostEvent::NodeData { node: node(), timestamp: 1, metrics: vec![result.to_metric()] },
    ];
    assert_eq!(feed(&mut replica, &events), ["history Info 3", "result r1"]);
    assert_eq!(&*replica.entry(uuid(1), "Info").unwrap().json, "\"a\"", "history is not the present");
}

#[test]
fn a_typed_document_is_read_from_an_entry() {
    let mut replica = complete();
    feed(&mut replica, &[object_data(uuid(2), vec![info(10, r#"{"name":"pump"}"#)])]);
    use configdb_schema::document::Info;
    assert_eq!(replica.document::<Info>(uuid(2)).unwrap().unwrap().name, "pump");
    assert!(replica.document::<Info>(uuid(1)).is_err());
    assert_eq!(replica.document::<Info>(uuid(3)).unwrap(), None);
}

const TIMELINES: &str = "000000000000000a/0 000000000000000b/8";

fn born_at(store: Uuid, timelines: &str, revision: u64, objects: u64) -> HostEvent {
    let HostEvent::NodeBirth { node, bd_seq, timestamp, uuid, metrics } = node_birth(store, revision, objects) else {
        panic!("a birth")
    };
    let more = Metric::new(names::CONFIG_TIMELINES, timelines);
    let metrics = metrics.iter().cloned().chain([more]).collect();
    HostEvent::NodeBirth { node, bd_seq, timestamp, uuid, metrics }
}

fn settled() -> ConfigReplica {
    let mut replica = ConfigReplica::new(node());
    let births = [object_birth(uuid(1), info(3, "\"a\"")), object_birth(uuid(2), no_info())];
    feed(&mut replica, &[born_at(STORE, TIMELINES, 9, 2)]);
    assert_eq!(replica.origin(0), None, "what is not known completely comes from nowhere");
    feed(&mut replica, &births);
    replica
}

fn revision(replica: &ConfigReplica) -> Option<u64> {
    replica.origin(0).map(|origin| origin.point.revision)
}

#[test]
fn what_is_derived_says_from_which_state_of_the_store_it_comes() {
    let mut replica = settled();
    let origin = replica.origin(7).unwrap();
    assert_eq!((origin.store, origin.epoch, origin.point), (STORE, 7, Point { timeline: 0xb, revision: 9 }));
    // A turn of ConfigDB: its data come before the revision that they add up to.
    feed(&mut replica, &[object_data(uuid(2), vec![info(12, "\"b\"")])]);
    assert_eq!(revision(&replica), Some(12));
    feed(&mut replica, &[object_data(uuid(2), vec![no_info()])]);
    assert_eq!(revision(&replica), Some(12));
    feed(&mut replica, &[node_data(13, 2)]);
    assert_eq!(revision(&replica), Some(13));
    feed(&mut replica, &[object_data(uuid(1), vec![no_info()])]);
    assert_eq!(revision(&replica), Some(14), "a deletion has no revision of its own");
    // What was derived from an earlier run of ConfigDB is part of this store, up to the end of that run.
    let accepted = |store, timeline| Origin { store, epoch: 0, point: Point { timeline, revision: 5 } };
    assert_eq!(replica.follows(accepted(STORE, 0xa)), Some(Point { timeline: 0xa, revision: 7 }));
    assert_eq!(replica.follows(accepted(STORE, 0xc)), None);
    assert_eq!(replica.follows(accepted(uuid(6), 0xa)), None);
}

#[test]
fn a_mixture_of_two_states_comes_from_nowhere() {
    let mut replica = settled();
    // A later state is born; until it is complete, deletions of it are not known.
    let later = "000000000000000a/0 000000000000000b/8 000000000000000c/10";
    feed(&mut replica, &[born_at(STORE, later, 12, 1)]);
    assert_eq!(replica.origin(0), None);
    feed(&mut replica, &[object_birth(uuid(1), info(11, "\"c\""))]);
    assert_eq!(replica.origin(0).unwrap().point, Point { timeline: 0xc, revision: 12 });
    feed(&mut replica, &[born_at(uuid(6), later, 12, 1)]);
    assert_eq!(replica.origin(0), None);
}

#[test]
fn a_rebirth_at_the_same_state_leaves_the_replica_complete_and_reports_nothing() {
    let mut replica = settled();
    let births = [object_birth(uuid(1), info(3, "\"a\"")), object_birth(uuid(2), no_info())];
    assert_eq!(feed(&mut replica, &[born_at(STORE, TIMELINES, 9, 2)]), [""; 0]);
    assert!(replica.is_complete());
    assert_eq!(feed(&mut replica, &births), [""; 0]);
    // Lost and found again: complete at once.
    let lost = HostEvent::Offline { reason: "gone".to_owned() };
    feed(&mut replica, &[lost]);
    assert!(!replica.is_complete() && replica.origin(0).is_some(), "what was known is still a state of the store");
    assert_eq!(feed(&mut replica, &[born_at(STORE, TIMELINES, 9, 2)]), ["complete"]);
    assert_eq!(feed(&mut replica, &[object_data(uuid(2), vec![info(10, "\"b\"")])]).len(), 1);
    // The same revision of another run is another state, and so is one of which something is here already.
    assert_ne!(feed(&mut replica, &[born_at(STORE, TIMELINES, 9, 2)]), [""; 0]);
    let mut other = settled();
    assert_ne!(feed(&mut other, &[born_at(STORE, "000000000000000a/0 000000000000000c/8", 9, 2)]), [""; 0]);
    assert!(!other.is_complete());
}

#[test]
fn births_of_another_store_between_those_of_this_one_are_not_believed() {
    // Two processes under one id: the object is there in both, with another entry, without it, or only in the other one.
    let other = [
        object_birth(uuid(1), info(2, "\"z\"")),
        object_birth(uuid(1), no_info()),
        object_birth(uuid(3), info(9, "\"z\"")),
        object_data(uuid(1), vec![info(9, "\"z\"")]),
    ];
    for message in other {
        let mut replica = settled();
        feed(&mut replica, &[born_at(STORE, TIMELINES, 9, 2)]);
        let changes = feed(&mut replica, &[message]);
        assert_eq!(changes, ["incomplete: another process speaks for ConfigDB", "contradicted"]);
        assert!(!replica.is_complete() && replica.origin(0).is_none());
        assert_eq!(replica.entry(uuid(1), "Info").map(|entry| &*entry.json), Some("\"a\""));
        assert_eq!(feed(&mut replica, &[object_birth(uuid(2), info(8, "\"z\"")), node_data(14, 2)]), [""; 0]);
        let births = [object_birth(uuid(1), info(3, "\"a\"")), object_birth(uuid(2), no_info())];
        feed(&mut replica, &[born_at(STORE, TIMELINES, 9, 2)]);
        assert_eq!(feed(&mut replica, &births), ["complete"]);
        assert_eq!(revision(&replica), Some(9));
    }
}

#[test]
fn what_is_older_than_the_birth_before_it_is_of_another_process() {
    let mut replica = settled();
    let HostEvent::NodeBirth { node, bd_seq, uuid: id, metrics, .. } = born_at(STORE, TIMELINES, 9, 2) else {
        panic!("a birth")
    };
    feed(&mut replica, &[HostEvent::NodeBirth { node, bd_seq, timestamp: 2, uuid: id, metrics }]);
    let changes = feed(&mut replica, &[object_birth(uuid(1), info(11, "\"z\""))]);
    assert_eq!(changes, ["incomplete: another process speaks for ConfigDB", "contradicted"]);
    assert_eq!(replica.origin(0), None);
}

#[test]
fn an_object_is_born_again_with_an_entry_more_or_less() {
    let mut replica = settled();
    assert_eq!(feed(&mut replica, &[object_birth(uuid(2), info(10, "\"b\""))]), ["2 Info: - -> \"b\""]);
    assert_eq!(feed(&mut replica, &[object_birth(uuid(3), info(11, "\"c\""))]).len(), 2);
    assert_eq!(feed(&mut replica, &[node_data(11, 3), object_data(uuid(1), vec![no_info()])]), ["1 Info: \"a\" -> -"]);
    assert!(replica.is_complete());
    assert_eq!(revision(&replica), Some(12));
}
