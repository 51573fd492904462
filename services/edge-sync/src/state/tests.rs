//! The decisions of Sync as tables: one event in, exactly these effects out.

mod property;
mod world;

use std::collections::BTreeMap;

use edge_sync_contract::names::{DESIRED_INDEX, DESIRED_MANIFESTS};
use edge_sync_contract::{DeploymentState, DesiredIndex, DesiredManifests, Entries, SyncDevice};
use serde_json::json;
use sparkplug::Metric;
use sparkplug::edge_node::NodeEvent;
use sparkplug::replication::Origin;

use super::*;
use crate::event::ErrorClass;
use crate::object::{ObservedObject, Readiness};
use crate::record::{IndexRecord, StoredRecord};
use world::*;

#[test]
fn nothing_is_said_or_done_before_everything_is_known() {
    let mut bench = Bench::new(settings(), Cluster::default());
    let effects = bench.take();
    let first = bench.texts(&effects);
    assert_eq!(first, ["load", "ready false: the cluster has not been listed yet"]);
    assert_eq!(bench.on(Event::Nodes(Observation::Listed(vec![host("b", true), host("a", false)]))), [""; 0]);
    assert_eq!(bench.on(Event::Objects(release(), Observation::Listed(vec![]))), [""; 0]);
    assert_eq!(bench.on(Event::IndexLoaded(Ok(StoredRecord::default()))), [""; 0]);
    let born = [
        "ready true: the cluster is followed",
        "birth v0 hosts 1/2 deployments 0/0",
        "host a ready=false",
        "host b ready=true",
    ];
    assert_eq!(bench.on(Event::Objects(config_map(), Observation::Listed(vec![]))), born);
    assert_eq!(bench.state.next_deadline(), None);
}

#[test]
fn an_index_is_stored_before_it_is_acted_on_and_reported() {
    let mut bench = Bench::born();
    let set = manifests(1, 1, &["x"]);
    let effects = bench.effects(index_command(&index(1, &[(1, &set)])));
    assert_eq!(bench.texts(&effects), ["save 1 over nothing"]);
    // Its manifests come while the save is under way.
    assert_eq!(bench.on(manifests_command(1, &set)), [""; 0]);
    let saved = bench.cluster.execute(effects.into_iter().next().unwrap()).unwrap();
    let applying = ["apply 1: x", "1: pending v0 (is being applied)", "node v1 hosts 1/1 deployments 0/1"];
    assert_eq!(bench.on(saved), applying);
}

#[test]
fn a_deployment_is_applied_once_and_reported_with_version_and_digest() {
    let mut bench = Bench::born();
    let set = manifests(3, 1, &["x", "y"]);
    let listed = bench.run_on(index_command(&index(3, &[(1, &set)])));
    assert_eq!(
        listed,
        ["save 3 over nothing", "1: pending v0 (waits for its manifests)", "node v3 hosts 1/1 deployments 0/1"]
    );
    let applied = bench.run_on(manifests_command(1, &set));
    assert_eq!(applied, ["apply 1: x y", "1: pending v0 (is being applied)", "1: applied v3"]);
    let device = bench.published.deployment(1).unwrap();
    assert!(device.is_applied(set.digest()));
    assert_eq!((&*device.name, device.applied_at), ("Cell 1", Some(bench.now.wall)));
    assert_eq!(bench.run_on(manifests_command(1, &set)), ["again 1"], "a repeat is answered, not applied");
    assert_eq!(bench.pass(3600 * SECOND), [""; 0]);
}

/// Ids of the deployments' Devices that are alive.
fn ids(bench: &Bench) -> Vec<&str> {
    let ids = bench.published.devices.keys().map(sparkplug::DeviceId::as_str);
    ids.filter_map(|id| id.strip_prefix("deployment-")).collect()
}

/// The same index with these names instead.
fn named(index: DesiredIndex, names: &[(u128, &str)]) -> Event {
    let names = names.iter().map(|(n, name)| (uuid(*n), (*name).to_owned())).collect();
    index_command(&DesiredIndex { names, ..index })
}

#[test]
fn a_device_has_the_name_of_its_deployment_from_the_first_birth_on_also_after_a_restart() {
    let mut bench = Bench::born();
    let (one, two) = (manifests(1, 1, &["x"]), manifests(2, 1, &["y"]));
    bench.run_on(named(index(1, &[(1, &one)]), &[(1, "Oven_1")]));
    assert_eq!(ids(&bench), ["Oven_1"]);
    // The next index names only what is new.
    bench.run_on(named(index(2, &[(1, &one), (2, &two)]), &[(2, "Oven_2")]));
    assert_eq!(ids(&bench), ["Oven_1", "Oven_2"]);
    assert_eq!(bench.published.deployment(2).unwrap().name, "Oven_2");
    let bench = bench.restarted();
    assert_eq!(ids(&bench), ["Oven_1", "Oven_2"]);
}

#[test]
fn a_record_without_names_is_followed_and_the_manifests_name_the_device() {
    let mut bench = Bench::born();
    let set = manifests(1, 1, &["x"]);
    bench.run_on(named(index(1, &[(1, &set)]), &[]));
    assert_eq!(ids(&bench), [uuid(1).to_string()]);
    let effects = bench.run_on(manifests_command(1, &set));
    assert!(
        effects.starts_with(&["apply 1: x".into(), "gone 1".into(), "1: pending v0 (is being applied)".into()]),
        "{effects:?}"
    );
    assert_eq!(ids(&bench), ["Cell 1"]);
    let bench = bench.restarted();
    assert_eq!(ids(&bench), ["Cell 1"], "the marks on the objects say it");
}

#[test]
fn a_name_that_another_deployment_still_has_is_taken_when_that_one_is_gone() {
    let mut bench = Bench::born();
    let (one, two) = (manifests(1, 1, &["x"]), manifests(2, 2, &["y"]));
    bench.cluster.finalizers = true;
    bench.deploy(1, &[(1, &one)]);
    bench.run_on(named(index(2, &[(2, &two)]), &[(2, "Cell 1")]));
    assert_eq!(ids(&bench), [&*uuid(2).to_string(), "Cell 1"]);
    bench.cluster.finish_deletions();
    bench.run();
    assert_eq!(ids(&bench), ["Cell 1"]);
    assert_eq!(bench.published.deployment(2).unwrap().uuid, uuid(2));
}

#[test]
fn a_version_that_grows_without_another_digest_applies_nothing() {
    let mut bench = Bench::born();
    bench.deploy(1, &[(1, &manifests(1, 1, &["x"]))]);
    let same = manifests(2, 1, &["x"]);
    let effects = bench.run_on(index_command(&index(2, &[(1, &same)])));
    assert_eq!(effects, ["save 2 over 1", "1: applied v2", "node v2 hosts 1/1 deployments 0/1"]);
    assert_eq!(bench.run_on(manifests_command(1, &same)), ["again 1"]);
}

#[test]
fn older_equal_and_contradicting_indexes_change_nothing() {
    let mut bench = Bench::born();
    let set = manifests(1, 1, &["x"]);
    bench.deploy(5, &[(1, &set)]);
    assert_eq!(bench.on(index_command(&index(4, &[]))), [""; 0]);
    assert_eq!(bench.on(index_command(&index(5, &[(1, &set)]))), ["again index"]);
    let refused = bench.on(index_command(&index(5, &[])));
    assert!(refused.len() == 1 && refused[0].contains("Desired/Index version 5 was given with digest"), "{refused:?}");
    assert_eq!(bench.on(index_command(&index(5, &[(1, &set)]))), ["node v5 hosts 1/1 deployments 0/1", "again index"]);
    let damaged = vec![Metric::new(DESIRED_INDEX, "{}")];
    let damaged = bench.on(Event::Node(NodeEvent::Command { device: None, metrics: damaged, timestamp: None }));
    assert!(damaged.len() == 1 && damaged[0].contains("(Desired/Index digest must be the 64"), "{damaged:?}");
    assert_eq!(bench.cluster.keys(), ["x"]);
}

#[test]
fn a_bad_deployment_is_refused_and_the_others_go_on() {
    let mut bench = Bench::born();
    let (bad, good) = (manifests(1, 1, &["Bad_Name"]), manifests(1, 1, &["good"]));
    bench.run_on(index_command(&index(1, &[(1, &bad), (2, &good)])));
    let refused = bench.run_on(manifests_command(1, &bad));
    assert!(
        refused.len() == 1 && refused[0].starts_with("1: refused v0 (manifests[0] metadata.name must be"),
        "{refused:?}"
    );
    assert_eq!(bench.published.deployment(1).unwrap().refused_digest, Some(bad.digest()));
    assert_eq!(bench.run_on(manifests_command(1, &bad)), ["again 1"]);
    bench.run_on(manifests_command(2, &good));
    assert!(bench.published.deployment(2).unwrap().is_applied(good.digest()));
    // The corrected one is taken.
    let better = manifests(2, 2, &["better"]);
    bench.deploy(2, &[(1, &better), (2, &good)]);
    assert_eq!(bench.published.deployment(1).unwrap().refused_digest, None);
}

#[test]
fn manifests_that_do_not_match_their_digest_are_refused_and_what_runs_stays() {
    let mut bench = Bench::born();
    let set = manifests(1, 1, &["x"]);
    bench.deploy(1, &[(1, &set)]);
    let next = manifests(2, 2, &["x"]);
    bench.run_on(index_command(&index(2, &[(1, &next)])));
    let mut damaged = next.to_json();
    damaged["deployment"] = json!(uuid(1).to_string());
    let text = damaged.to_string().replace("\"content\":\"2\"", "\"content\":\"3\"");
    let device = Some(SyncDevice::deployment_id(uuid(1), "Cell 1"));
    let metrics = vec![Metric::new(DESIRED_MANIFESTS, text)];
    let effects = bench.run_on(Event::Node(NodeEvent::Command { device, metrics, timestamp: None }));
    assert!(
        effects.len() == 1 && effects[0].starts_with("1: refused v1 (Desired/Manifests digest is not"),
        "{effects:?}"
    );
    let report = bench.published.deployment(1).unwrap();
    assert_eq!((report.digest, report.refused_digest), (Some(set.digest()), Some(next.digest())));
    // Sent again whole, it is taken.
    bench.run_on(manifests_command(1, &next));
    assert!(bench.published.deployment(1).unwrap().is_applied(next.digest()));
}

#[test]
fn manifests_that_come_before_their_index_wait_for_it() {
    let mut bench = Bench::born();
    let (old, new) = (manifests(1, 1, &["x"]), manifests(2, 2, &["x"]));
    assert_eq!(bench.run_on(manifests_command(1, &old)), [""; 0]);
    assert_eq!(bench.run_on(manifests_command(1, &new)), [""; 0]);
    assert_eq!(bench.run_on(manifests_command(1, &old)), [""; 0], "an older one does not replace a later one");
    let effects = bench.run_on(index_command(&index(1, &[(1, &new)])));
    assert_eq!(effects[..2], ["save 1 over nothing", "apply 1: x"]);
    assert!(bench.published.deployment(1).unwrap().is_applied(new.digest()));
}

#[test]
fn manifests_of_the_listed_version_with_another_digest_are_refused() {
    let mut bench = Bench::born();
    let set = manifests(1, 1, &["x"]);
    bench.deploy(1, &[(1, &set)]);
    let other = manifests(1, 2, &["x"]);
    let effects = bench.run_on(manifests_command(1, &other));
    assert!(
        effects.len() == 1 && effects[0].starts_with("1: applied v1 (the index lists version 1 with digest"),
        "{effects:?}"
    );
    assert_eq!(bench.published.deployment(1).unwrap().refused_digest, Some(other.digest()));
}

#[test]
fn what_others_delete_is_repaired_and_nothing_else_is_applied() {
    let mut bench = Bench::born();
    bench.deploy(1, &[(1, &manifests(1, 1, &["x", "y"])), (2, &manifests(1, 1, &["z"]))]);
    bench.pass(60 * SECOND);
    bench.cluster.delete(&key("y"));
    assert_eq!(bench.run(), ["apply 1: y", "1: pending v1 (is being applied)", "1: applied v1"]);
    // Who deletes again and again is answered more and more slowly.
    bench.cluster.delete(&key("y"));
    assert_eq!(bench.run(), ["1: pending v0 (is being applied)"]);
    assert_eq!(bench.pass(2 * SECOND), ["apply 1: y", "1: applied v1"]);
}

#[test]
fn what_another_writer_changes_is_applied_again_ever_more_seldom() {
    let mut bench = Bench::born();
    let set = manifests(1, 1, &["x", "y"]);
    bench.deploy(1, &[(1, &set)]);
    bench.cluster.edit(&key("x"));
    let effects = bench.run();
    assert_eq!(effects, ["1: pending v0 (ConfigMap x was changed by another writer and is applied again)"]);
    let effects = bench.pass(2 * SECOND);
    assert_eq!(effects[0], "apply 1: x");
    assert!(bench.published.deployment(1).unwrap().is_applied(set.digest()));
    assert_eq!(bench.pass(600 * SECOND), [""; 0]);
    // Someone who does not give in.
    bench.cluster.is_fought = true;
    bench.cluster.edit(&key("x"));
    bench.run();
    let applies = |effects: Vec<String>| effects.iter().filter(|effect| effect.starts_with("apply")).count();
    assert!((5..25).contains(&applies(bench.pass(600 * SECOND))));
    assert!((5..25).contains(&applies(bench.pass(600 * SECOND))));
    bench.cluster.is_fought = false;
    bench.pass(60 * SECOND);
    assert!(bench.published.deployment(1).unwrap().is_applied(set.digest()));
}

#[test]
fn what_was_changed_while_sync_was_away_is_asked_for_and_applied() {
    let mut bench = Bench::born();
    let set = manifests(1, 1, &["x"]);
    bench.deploy(1, &[(1, &set)]);
    bench.cluster.edit(&key("x"));
    let mut bench = bench.restarted();
    assert_eq!(bench.published.deployment(1).unwrap().digest, None, "so that the manifests are sent");
    bench.run_on(manifests_command(1, &set));
    assert!(bench.published.deployment(1).unwrap().is_applied(set.digest()));
}

#[test]
fn objects_that_the_new_manifests_lack_are_pruned_after_the_new_ones_are_applied() {
    let mut bench = Bench::born();
    bench.deploy(1, &[(1, &manifests(1, 1, &["x", "y"]))]);
    let next = manifests(2, 2, &["x", "z"]);
    bench.run_on(index_command(&index(2, &[(1, &next)])));
    let effects = bench.run_on(manifests_command(1, &next));
    assert_eq!(effects, ["apply 1: x z", "1: pending v1 (is being applied)", "delete y", "1: applied v2"]);
    assert_eq!(bench.cluster.keys(), ["x", "z"]);
}

#[test]
fn a_deployment_that_is_not_listed_is_deleting_until_its_objects_are_gone() {
    let mut bench = Bench::born();
    bench.cluster.finalizers = true;
    bench.deploy(1, &[(1, &manifests(1, 1, &["x"]))]);
    let effects = bench.run_on(index_command(&index(2, &[])));
    let expected = [
        "save 2 over 1",
        "delete x",
        "1: deleting v1",
        "node v2 hosts 1/1 deployments 0/1",
        "1: deleting v0 (ConfigMap x waits for its finalizers)",
    ];
    assert_eq!(effects, expected);
    assert_eq!(bench.pass(600 * SECOND), [""; 0]);
    bench.cluster.finish_deletions();
    assert_eq!(bench.run(), ["gone 1", "node v2 hosts 1/1 deployments 0/0"]);
}

#[test]
fn objects_of_no_deployment_and_of_others_are_never_deleted() {
    let mut bench = Bench::born();
    bench.cluster.make_foreign("theirs");
    bench.deploy(1, &[(1, &manifests(1, 1, &["x"]))]);
    let mut nobodys = bench.cluster.observed(&key("x")).unwrap();
    nobodys.key = key("nobodys");
    nobodys.deployment = None;
    assert_eq!(bench.on(Event::Objects(config_map(), Observation::Changed(nobodys))), [""; 0]);
    bench.run_on(index_command(&index(2, &[])));
    bench.pass(600 * SECOND);
    assert_eq!(bench.cluster.deleted.len(), 1);
    assert_eq!(bench.cluster.keys(), ["theirs"]);
}

#[test]
fn an_object_that_another_writer_made_is_not_taken_over() {
    let mut bench = Bench::born();
    bench.cluster.make_foreign("theirs");
    let set = manifests(1, 1, &["theirs"]);
    bench.run_on(index_command(&index(1, &[(1, &set)])));
    let effects = bench.run_on(manifests_command(1, &set));
    let failed = "1: failed v0 (ConfigMap theirs: exists and is not managed by Sync)";
    assert_eq!(effects, ["apply 1: theirs", "1: pending v0 (is being applied)", failed]);
    assert_eq!(bench.published.deployment(1).unwrap().refused_digest, Some(set.digest()));
}

#[test]
fn two_deployments_with_one_object_do_not_fight() {
    let mut bench = Bench::born();
    let (first, second) = (manifests(1, 1, &["x"]), manifests(1, 2, &["x"]));
    bench.deploy(1, &[(1, &first)]);
    bench.run_on(index_command(&index(2, &[(1, &first), (2, &second)])));
    let effects = bench.run_on(manifests_command(2, &second));
    assert_eq!(effects, [format!("2: refused v0 (ConfigMap x belongs to deployment {})", uuid(1))]);
    // When the first is gone, the second has it.
    let effects = bench.run_on(index_command(&index(3, &[(2, &second)])));
    assert!(effects.contains(&"apply 2: x".to_owned()), "{effects:?}");
    assert!(bench.published.deployment(2).unwrap().is_applied(second.digest()));
    assert_eq!(bench.published.deployment(1), None);
}

#[test]
fn a_failed_apply_is_reported_and_tried_again_while_others_go_on() {
    let mut bench = Bench::born();
    let (first, second) = (manifests(1, 1, &["x", "y"]), manifests(1, 1, &["z"]));
    bench.run_on(index_command(&index(1, &[(1, &first), (2, &second)])));
    bench.on(manifests_command(1, &first));
    let failed = Some((key("y"), error(ErrorClass::Refused, "quota")));
    let answer = |failed| Event::Applied { deployment: uuid(1), applied: vec![], failed };
    assert_eq!(bench.on(answer(failed.clone())), ["1: failed v0 (ConfigMap y: quota)"]);
    assert_eq!(bench.run_on(manifests_command(2, &second)).len(), 3);
    // Again and again, later and later, without a word while nothing changes.
    let mut waits = Vec::new();
    for _ in 0..8 {
        let at = bench.state.next_deadline().unwrap();
        waits.push(at - bench.now.mono);
        bench.now.mono = at;
        assert_eq!(bench.on(Event::DeadlineReached), ["apply 1: x y"]);
        assert_eq!(bench.on(answer(failed.clone())), [""; 0]);
    }
    assert!(waits[0] <= 2 * SECOND && waits[7] >= 30 * SECOND && waits[7] <= 60 * SECOND, "{waits:?}");
    bench.now.mono += 60 * SECOND;
    assert_eq!(bench.run_on(Event::DeadlineReached), ["apply 1: x y", "1: applied v1"]);
}

#[test]
fn only_so_many_deployments_are_applied_at_the_same_time() {
    let mut bench = Bench::born();
    let sets: Vec<_> = ["a", "b", "c"].iter().map(|name| manifests(1, 1, &[name])).collect();
    bench.run_on(index_command(&index(1, &[(1, &sets[0]), (2, &sets[1]), (3, &sets[2])])));
    for (n, set) in [(1, &sets[0]), (2, &sets[1])] {
        assert_eq!(bench.on(manifests_command(n, set))[0], format!("apply {n}: {}", ["a", "b"][n as usize - 1]));
    }
    assert_eq!(bench.on(manifests_command(3, &sets[2])), ["3: pending v0 (is being applied)"]);
    assert_eq!(bench.state.next_deadline(), None);
    let done = Event::Applied {
        deployment: uuid(1),
        applied: vec![],
        failed: Some((key("a"), error(ErrorClass::Refused, "no"))),
    };
    assert_eq!(bench.on(done), ["apply 3: c", "1: failed v0 (ConfigMap a: no)"]);
}

#[test]
fn after_a_restart_the_marks_on_the_objects_show_what_is_applied() {
    let mut bench = Bench::born();
    let set = manifests(4, 1, &["x", "y"]);
    bench.deploy(7, &[(1, &set)]);
    let mut bench = bench.restarted();
    let report = bench.published.deployment(1).unwrap();
    assert!(report.is_applied(set.digest()));
    assert_eq!((report.version, &*report.name), (4, "Cell 1"));
    assert_eq!(bench.published.node.as_ref().unwrap().desired_version, 7);
    assert_eq!(bench.on(index_command(&index(6, &[]))), [""; 0], "the version does not fall across a restart");
    // Something is missing, and the manifests are not here: the report says so, and the sender sends them.
    bench.cluster.delete(&key("x"));
    assert_eq!(bench.run(), ["1: pending v0 (waits for its manifests)"]);
    assert_eq!(
        bench.run_on(manifests_command(1, &set)),
        ["apply 1: x", "1: pending v0 (is being applied)", "1: applied v4"]
    );
}

#[test]
fn before_the_first_index_nothing_is_deleted() {
    let mut bench = Bench::born();
    bench.deploy(1, &[(1, &manifests(1, 1, &["x"]))]);
    let mut bench = Bench::new(settings(), bench.cluster);
    bench.take();
    bench.on(Event::IndexLoaded(Ok(StoredRecord::default())));
    let mut effects = Vec::new();
    for event in bench.cluster.list() {
        effects.extend(bench.on(event));
    }
    assert!(effects.contains(&"1: pending v1 (no index has been accepted yet)".to_owned()), "{effects:?}");
    assert_eq!(bench.pass(3600 * SECOND), [""; 0]);
}

#[test]
fn a_large_removal_waits_visibly_and_then_goes_at_the_speed_of_the_cap() {
    let mut limits = settings();
    limits.prune.max_per_pass = 4;
    let mut bench = Bench::new(limits, Cluster::default());
    bench.start();
    let names: Vec<_> = (0..10).map(|n| format!("x{n}")).collect();
    let sets: Vec<_> = names.iter().map(|name| manifests(1, 1, &[name])).collect();
    let all: Vec<_> = (1..).zip(&sets).collect();
    bench.deploy(1, &all);
    let effects = bench.run_on(index_command(&index(2, &all[..2])));
    assert!(!effects.iter().any(|effect| effect.starts_with("delete")), "{effects:?}");
    let error = bench.published.node.as_ref().unwrap().desired_error.clone().unwrap();
    assert!(error.starts_with("index version 2 takes away 8 of 10 deployments"), "{error}");
    assert_eq!(bench.published.deployment(9).unwrap().state, DeploymentState::Deleting);
    bench.pass(59 * SECOND);
    assert_eq!(bench.cluster.keys().len(), 10);
    bench.pass(SECOND);
    assert_eq!(bench.cluster.keys().len(), 6);
    bench.pass(10 * SECOND);
    assert_eq!((bench.cluster.keys().len(), bench.published.deployments()), (2, 2));
    assert_eq!(bench.published.node.as_ref().unwrap().desired_error, None);
}

#[test]
fn an_index_that_lists_them_again_stops_a_large_removal() {
    let mut bench = Bench::born();
    let names: Vec<_> = (0..10).map(|n| format!("x{n}")).collect();
    let sets: Vec<_> = names.iter().map(|name| manifests(1, 1, &[name])).collect();
    let all: Vec<_> = (1..).zip(&sets).collect();
    bench.deploy(1, &all);
    bench.run_on(index_command(&index(2, &[])));
    bench.pass(30 * SECOND);
    bench.run_on(index_command(&index(3, &all)));
    bench.pass(600 * SECOND);
    assert!(bench.cluster.deleted.is_empty());
    assert_eq!(bench.published.node.as_ref().unwrap().desired_error, None);
    let report = bench.published.deployment(1).unwrap();
    assert!(report.is_applied(sets[0].digest()), "the objects never went, so the manifests are not needed");
}

#[test]
fn an_api_server_that_is_away_is_said_and_asked_until_it_answers() {
    let mut bench = Bench::born();
    let set = manifests(1, 1, &["x"]);
    bench.run_on(index_command(&index(1, &[(1, &set)])));
    bench.cluster.is_away = true;
    let effects = bench.run_on(manifests_command(1, &set));
    let expected = [
        "apply 1: x",
        "1: pending v0 (is being applied)",
        "probe",
        "1: failed v0 (ConfigMap x: connection refused)",
        "ready false: the Kubernetes API is not reached: connection refused",
        "node v1 hosts 1/1 deployments 0/1 (the Kubernetes API is not reached: connection refused)",
    ];
    assert_eq!(effects, expected);
    let effects = bench.pass(600 * SECOND);
    assert!(
        effects.len() > 20 && effects.iter().all(|effect| effect == "probe" || effect == "apply 1: x"),
        "{effects:?}"
    );
    bench.cluster.is_away = false;
    let effects = bench.pass(30 * SECOND);
    assert!(effects.contains(&"ready true: the cluster is followed".to_owned()), "{effects:?}");
    assert!(bench.published.deployment(1).unwrap().is_applied(set.digest()));
    assert_eq!(bench.published.node.as_ref().unwrap().desired_error, None);
}

#[test]
fn what_the_server_fails_at_has_its_own_pause_and_takes_none_from_others() {
    for class in [ErrorClass::Refused, ErrorClass::Unreachable] {
        let mut bench = Bench::born();
        let sets = ["a", "b", "c"].map(|name| manifests(1, 1, &[name]));
        for name in ["a", "b"] {
            bench.cluster.failing.insert(key(name), error(class, "failed"));
        }
        bench.run_on(index_command(&index(1, &[(1, &sets[0]), (2, &sets[1]), (3, &sets[2])])));
        for (n, set) in (1..).zip(&sets) {
            bench.run_on(manifests_command(n, set));
        }
        assert!(bench.published.deployment(3).unwrap().is_applied(sets[2].digest()));
        let effects = bench.pass(600 * SECOND);
        let applies = effects.iter().filter(|effect| effect.starts_with("apply")).count();
        assert!((20..60).contains(&applies), "{class:?}: {applies} applies in ten minutes");
        assert!(!effects.iter().any(|effect| effect.starts_with("ready")), "{class:?}: {effects:?}");
        // An outage that is over lets try again only what had no answer; how often it failed is not forgotten.
        bench.cluster.is_away = true;
        bench.state.on_event(Event::Probed(Err(error(ErrorClass::Unreachable, "away"))), bench.now);
        bench.run();
        bench.cluster.is_away = false;
        let effects = bench.pass(10 * SECOND);
        let applies = effects.iter().filter(|effect| effect.starts_with("apply")).count();
        assert!(if class == ErrorClass::Unreachable { applies >= 2 } else { applies < 2 }, "{class:?}: {effects:?}");
    }
}

#[test]
fn an_index_that_cannot_be_stored_is_not_followed_until_it_can() {
    let mut bench = Bench::born();
    bench.cluster.is_away = true;
    bench.run_on(index_command(&index(3, &[])));
    let node = bench.published.node.clone().unwrap();
    assert_eq!(node.desired_version, 0);
    assert!(
        node.desired_error
            .unwrap()
            .starts_with("Desired/Index version 3 waits until it can be stored: connection refused")
    );
    // The newest one waits.
    bench.run_on(index_command(&index(5, &[])));
    bench.run_on(index_command(&index(4, &[])));
    bench.cluster.is_away = false;
    bench.pass(60 * SECOND);
    let node = bench.published.node.clone().unwrap();
    assert_eq!((node.desired_version, node.desired_error), (5, None));
    assert_eq!(bench.cluster.record().unwrap().index.version, 5);
}

#[test]
fn a_record_that_another_writer_wrote_is_read_again_and_a_later_one_is_followed() {
    let mut bench = Bench::born();
    let mut other = Bench::born();
    other.run_on(index_command(&index(9, &[])));
    bench.cluster = other.cluster;
    let effects = bench.run_on(index_command(&index(8, &[])));
    assert_eq!(effects[0], "save 8 over nothing");
    bench.pass(SECOND);
    assert_eq!(bench.published.node.as_ref().unwrap().desired_version, 9);
    assert_eq!(bench.cluster.record().unwrap().index.version, 9);
    bench.run_on(index_command(&index(10, &[])));
    assert_eq!(bench.cluster.record().unwrap().index.version, 10);
}

#[test]
fn what_another_process_has_applied_by_a_later_index_is_not_deleted_and_that_index_is_followed() {
    let mut bench = Bench::born();
    let mut other = Bench::born();
    for bench in [&mut bench, &mut other] {
        bench.run_on(index_command(&index(1, &[])));
    }
    other.deploy(2, &[(1, &manifests(2, 1, &["x"]))]);
    let seen = other.cluster.observed(&key("x")).unwrap();
    bench.cluster = other.cluster;
    let effects = bench.run_on(Event::Objects(config_map(), Observation::Changed(seen)));
    assert!(!effects.iter().any(|effect| effect.starts_with("delete")), "{effects:?}");
    assert_eq!(bench.published.node.as_ref().unwrap().desired_version, 2);
    bench.pass(600 * SECOND);
    assert_eq!((bench.cluster.keys(), bench.cluster.deleted.len()), (vec!["x".to_owned()], 0));
}

#[test]
fn a_later_index_that_is_seen_while_the_record_is_read_has_it_read_again() {
    let mut bench = Bench::born();
    let mut other = Bench::born();
    for bench in [&mut bench, &mut other] {
        bench.run_on(index_command(&index(1, &[])));
    }
    other.deploy(2, &[(1, &manifests(2, 1, &["x"]))]);
    let seen = other.cluster.observed(&key("x")).unwrap();
    let marked = |version: u64| ObservedObject {
        version: Some(version),
        resource_version: format!("{version}"),
        ..seen.clone()
    };
    let stored = |version| StoredRecord {
        record: Some(IndexRecord::following(None, index(version, &[]))),
        resource_version: Some(format!("{version}")),
        unreadable: None,
    };
    let changed = |version| Event::Objects(config_map(), Observation::Changed(marked(version)));
    let loads = |effects: &[String]| effects.iter().filter(|effect| *effect == "load").count();
    assert_eq!(loads(&bench.on(changed(2))), 1);
    assert_eq!(loads(&bench.on(changed(3))), 0, "one load at a time");
    assert_eq!(loads(&bench.on(Event::IndexLoaded(Ok(stored(2))))), 1, "the answer may be older than what was seen");
    assert_eq!(loads(&bench.on(Event::IndexLoaded(Ok(stored(3))))), 0);
    assert_eq!(bench.published.node.as_ref().unwrap().desired_version, 3);
    // The record that is read may say it already.
    assert_eq!((loads(&bench.on(changed(4))), loads(&bench.on(changed(5)))), (1, 0));
    assert_eq!(loads(&bench.on(Event::IndexLoaded(Ok(stored(5))))), 0);
}

#[test]
fn manifests_of_a_later_index_are_not_replaced_by_older_ones_unless_the_record_knows_of_none() {
    let mut bench = Bench::born();
    let mut other = Bench::born();
    for bench in [&mut bench, &mut other] {
        bench.deploy(1, &[(1, &manifests(1, 1, &["x"]))]);
    }
    other.deploy(2, &[(1, &manifests(2, 2, &["x"]))]);
    let seen = other.cluster.observed(&key("x")).unwrap();
    bench.cluster = other.cluster;
    let effects = bench.run_on(Event::Objects(config_map(), Observation::Changed(seen.clone())));
    assert!(!effects.iter().any(|effect| effect.starts_with("apply")), "{effects:?}");
    assert_eq!(bench.published.node.as_ref().unwrap().desired_version, 2);
    // A mark that no record explains is wrong: what it is on is put right.
    bench.run_on(manifests_command(1, &manifests(2, 2, &["x"])));
    let forged = ObservedObject { version: Some(99), digest: None, resource_version: "9999".to_owned(), ..seen };
    let effects = bench.run_on(Event::Objects(config_map(), Observation::Changed(forged)));
    let at = |what: &str| effects.iter().position(|effect| effect.starts_with(what));
    assert!(at("load").is_some() && at("load") < at("apply"), "{effects:?}");
}

#[test]
fn a_record_that_cannot_be_read_is_said_and_replaced_by_the_next_index() {
    let mut bench = Bench::new(settings(), Cluster::default());
    bench.take();
    for event in bench.cluster.list() {
        bench.on(event);
    }
    let stored = StoredRecord {
        record: None,
        resource_version: Some("7".to_owned()),
        unreadable: Some("is not JSON".to_owned()),
    };
    let effects = bench.on(Event::IndexLoaded(Ok(stored)));
    assert!(effects[1].contains("(the stored index is not JSON; versions start again"), "{effects:?}");
    assert_eq!(bench.on(index_command(&index(1, &[]))), ["save 1 over 7"]);
}

#[test]
fn a_deployment_whose_version_fell_is_refused_and_what_runs_is_kept() {
    let mut bench = Bench::born();
    let set = manifests(5, 1, &["x"]);
    bench.deploy(1, &[(1, &set)]);
    let old = manifests(4, 2, &["x"]);
    bench.run_on(index_command(&index(2, &[(1, &old)])));
    let report = bench.published.deployment(1).unwrap();
    assert!(report.is_applied(set.digest()));
    assert_eq!((report.version, report.refused_digest), (5, Some(old.digest())));
    assert!(report.reason.unwrap().starts_with("version 4 of the index is not above version 5"));
    assert_eq!(bench.run_on(manifests_command(1, &old)), ["again 1"]);
    let mut bench = bench.restarted();
    assert_eq!(bench.published.deployment(1).unwrap().refused_digest, Some(old.digest()));
    let newer = manifests(6, 2, &["x"]);
    bench.deploy(3, &[(1, &newer)]);
    assert_eq!(bench.published.deployment(1).unwrap().refused_digest, None);
}

#[test]
fn flux_readiness_follows_the_releases_of_a_deployment() {
    let mut bench = Bench::born();
    let manifest = |name: &str| json!({"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "metadata": {"name": name}, "spec": {}});
    bench.deploy(1, &[(1, &DesiredManifests::new(1, "Cell 1", vec![manifest("a"), manifest("b")]))]);
    let (good, bad) = (Some((Some(true), "released")), Some((Some(false), "install failed")));
    for (first, second, ready, message) in [
        (good, None, None, None),
        (good, good, Some(true), Some("released")),
        (good, bad, Some(false), Some("install failed")),
        (Some((None, "reconciling")), good, None, Some("reconciling")),
        (None, None, None, None),
    ] {
        for (name, readiness) in [("a", first), ("b", second)] {
            let mut object = bench.cluster.observed(&ObjectKey { kind: release(), name: name.to_owned() }).unwrap();
            object.readiness = readiness.map(|(ready, message)| Readiness { ready, message: Some(message.to_owned()) });
            for shown in bench.run_on(Event::Objects(release(), Observation::Changed(object))) {
                let is_report = shown.starts_with("1: applied v1") || shown.starts_with("node v1 hosts 1/1");
                assert!(is_report || shown.starts_with("look at what "), "{shown}");
            }
        }
        let device = bench.published.deployment(1).unwrap();
        assert_eq!((device.ready, device.message.as_deref()), (ready, message));
        let node = bench.published.node.clone().unwrap();
        assert_eq!(node.deployments_ready, u32::from(ready == Some(true)));
    }
}

#[test]
fn a_suspended_release_is_reported_and_flux_last_verdict_is_not() {
    let mut bench = Bench::born();
    let manifest = json!({"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "metadata": {"name": "a"}, "spec": {}});
    bench.deploy(1, &[(1, &DesiredManifests::new(1, "Cell 1", vec![manifest]))]);
    let mut object = bench.cluster.observed(&ObjectKey { kind: release(), name: "a".to_owned() }).unwrap();
    object.readiness = Some(Readiness { ready: Some(false), message: Some("install failed".to_owned()) });
    let mut reported = |is_suspended| {
        object.is_suspended = is_suspended;
        bench.run_on(Event::Objects(release(), Observation::Changed(object.clone())));
        let device = bench.published.deployment(1).unwrap();
        (device.suspended, device.ready, device.message.unwrap())
    };
    assert_eq!(reported(false), (false, Some(false), "install failed".to_owned()));
    let (suspended, ready, message) = reported(true);
    assert!(suspended && ready.is_none() && message.starts_with("suspended: "), "{message}");
    assert_eq!(reported(false).1, Some(false));
}

#[test]
fn a_deployment_is_ready_when_what_its_release_has_made_runs() {
    let mut bench = Bench::born();
    let manifest = json!({"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "metadata": {"name": "a"}, "spec": {}});
    bench.deploy(1, &[(1, &DesiredManifests::new(1, "Cell 1", vec![manifest]))]);
    let said = |bench: &Bench| {
        let device = bench.published.deployment(1).unwrap();
        (device.ready, device.message)
    };
    let starting = |ready| Readiness { ready, message: Some("Deployment a: 0 of 1 pods run".to_owned()) };
    bench.cluster.workloads = Some(starting(None));
    let mut object = bench.cluster.observed(&ObjectKey { kind: release(), name: "a".to_owned() }).unwrap();
    object.readiness = Some(Readiness { ready: Some(true), message: Some("released".to_owned()) });
    // Before anyone has looked it is not said to be ready.
    let shown = bench.on(Event::Objects(release(), Observation::Changed(object)));
    assert_eq!((shown.last().map(String::as_str), said(&bench).0), (Some("look at what a has made"), None));
    let changed = || Event::WorkloadsChanged(vec!["a".to_owned()]);
    bench.run_on(Event::WorkloadsSeen { release: "a".to_owned(), seen: Ok(starting(None)) });
    assert_eq!(said(&bench), (None, starting(None).message));
    bench.cluster.workloads = Some(starting(Some(false)));
    bench.run_on(changed());
    assert_eq!(said(&bench), (Some(false), starting(None).message));
    bench.cluster.workloads = None;
    bench.run_on(changed());
    assert_eq!(said(&bench), (Some(true), Some("released".to_owned())));
    // Of what others have installed the cluster's repository may be what it is about.
    assert_eq!(bench.run_on(Event::WorkloadsChanged(vec!["edge-cluster".to_owned()]))[0], "look at Flux");
}

#[test]
fn hosts_come_change_and_go() {
    let mut bench = Bench::born();
    let changed = |name: &str, ready| Event::Nodes(Observation::Changed(host(name, ready)));
    assert_eq!(bench.on(changed("a", true)), [""; 0]);
    assert_eq!(bench.on(changed("a", false)), ["host a ready=false", "node v0 hosts 0/1 deployments 0/0"]);
    assert_eq!(bench.on(changed("b", true)), ["host b ready=true", "node v0 hosts 1/2 deployments 0/0"]);
    let gone = Event::Nodes(Observation::Gone(host("a", false)));
    assert_eq!(bench.on(gone), ["gone a", "node v0 hosts 1/1 deployments 0/0"]);
    let listed = Event::Nodes(Observation::Listed(vec![]));
    assert_eq!(bench.on(listed), ["gone b", "node v0 hosts 0/0 deployments 0/0"]);
}

#[test]
fn a_kind_that_is_not_installed_is_said_and_does_not_keep_sync_from_being_born() {
    let mut bench = Bench::new(settings(), Cluster::default());
    bench.run();
    bench.on(Event::Nodes(Observation::Listed(vec![])));
    bench.on(Event::Objects(config_map(), Observation::Listed(vec![])));
    let effects = bench.on(Event::Objects(release(), Observation::NotInstalled));
    assert!(
        effects[1].contains("(the cluster does not know the kind helm.toolkit.fluxcd.io/v2/HelmRelease; install it)"),
        "{effects:?}"
    );
    let effects = bench.on(Event::Objects(release(), Observation::Listed(vec![])));
    assert_eq!(effects, ["node v0 hosts 0/0 deployments 0/0"]);
}

#[test]
fn a_watch_that_is_refused_makes_sync_unready_until_it_is_not() {
    let mut bench = Bench::born();
    let refused = Event::Nodes(Observation::Failed(error(ErrorClass::Refused, "nodes is forbidden")));
    assert_eq!(bench.on(refused)[0], "ready false: the Kubernetes API refuses a watch: nodes is forbidden");
    let effects = bench.on(Event::Nodes(Observation::Changed(host("a", true))));
    assert_eq!(effects, ["ready true: the cluster is followed", "node v0 hosts 1/1 deployments 0/0"]);
}

#[test]
fn the_certificate_is_published_when_it_changes_and_only_then() {
    let mut with_sealing = settings();
    with_sealing.sealing = true;
    let mut bench = Bench::new(with_sealing, Cluster::default());
    let effects = bench.start();
    assert_eq!(effects[..2], ["load", "certificate"]);
    let published = |bench: &Bench| {
        let node = bench.published.node.as_ref().unwrap();
        (node.sealing_certificate.clone(), node.sealing_error.clone())
    };
    assert_eq!(published(&bench), (None, Some("503".to_owned())));
    let pem = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n";
    assert_eq!(bench.on(Event::Certificate(Ok(pem.to_owned()))).len(), 1);
    assert_eq!(published(&bench), (Some(pem.to_owned()), None));
    assert_eq!(bench.on(Event::Certificate(Ok(pem.to_owned()))), [""; 0]);
    assert_eq!(bench.on(Event::Certificate(Ok("<html>".to_owned()))).len(), 1);
    assert_eq!(published(&bench).0, Some(pem.to_owned()), "the last good one is kept");
}

#[test]
fn a_stop_is_passed_on_and_nothing_follows() {
    let mut bench = Bench::born();
    assert_eq!(bench.on(Event::Stop), ["stop"]);
    assert_eq!(bench.on(Event::Nodes(Observation::Listed(vec![]))), [""; 0]);
    assert_eq!(bench.state.next_deadline(), None);
    let mut unborn = Bench::new(settings(), Cluster::default());
    unborn.take();
    assert_eq!(unborn.on(Event::Stop), [""; 0]);
}

#[test]
fn early_manifests_and_kept_manifests_are_bounded() {
    let mut bench = Bench::born();
    for n in 0..1000 {
        bench.on(manifests_command(n, &manifests(1, 1, &["x"])));
    }
    assert_eq!(bench.state.early.len(), EARLY_MAX);
    let large = |n: u128| {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("x{n}")}, "data": {"d": "x".repeat(200_000)}});
        DesiredManifests::new(2, "large", vec![object])
    };
    let all: Vec<_> = (0..100).map(|n| (n, large(n))).collect();
    let listed: BTreeMap<_, _> = all.iter().map(|(n, set)| (uuid(*n), set.entry())).collect();
    bench.run_on(index_command(&edge_sync_contract::DesiredIndex {
        version: 1,
        deployments: listed,
        origin: None,
        follows: None,
        decided_for: None,
        entries: None,
        names: BTreeMap::new(),
    }));
    for (n, set) in &all {
        bench.run_on(manifests_command(*n, set));
        assert!(bench.published.deployment(*n).unwrap().is_applied(set.digest()));
        let kept: usize = bench.state.deployments.values().map(Deployment::bytes).sum();
        assert!(kept <= MANIFESTS_BYTES_MAX, "{kept}");
    }
}

#[test]
fn the_record_of_an_index_is_what_the_next_process_follows() {
    let mut bench = Bench::born();
    let set = manifests(1, 1, &["x"]);
    bench.run_on(index_command(&index(1, &[(1, &set)])));
    let stored = bench.cluster.record().unwrap();
    assert_eq!(stored, IndexRecord::following(None, index(1, &[(1, &set)])));
    assert_eq!(stored.entry(uuid(1)), Some(entry(1, set.digest())));
}

#[test]
fn how_far_flux_is_is_reported_when_it_changes() {
    let mut bench = Bench::born();
    let commit = "0123456789abcdef0123456789abcdef01234567".parse().ok();
    bench.cluster.flux =
        crate::flux::FluxReport { applied: commit, ready: Some(false), message: Some("no".to_owned()) };
    assert_eq!(bench.published.node.as_ref().unwrap().source_ready, None, "nothing has changed yet");
    bench.run_on(Event::FluxChanged);
    let node = bench.state.node_report().unwrap();
    assert_eq!(
        (node.source_applied, node.source_ready, node.source_message.as_deref()),
        (commit, Some(false), Some("no"))
    );
}

/// An index that was derived from that state of a store.
fn from(index: DesiredIndex, origin: &str) -> DesiredIndex {
    DesiredIndex { origin: Some(format!("{}/{origin}", uuid(7)).parse().unwrap()), ..index }
}

fn held(bench: &Bench) -> Option<String> {
    let node = bench.state.node_report().unwrap();
    assert_eq!(node.desired_held, Some(node.desired_hold_reason.is_some()));
    node.desired_hold_reason.clone()
}

#[test]
fn an_index_of_an_older_or_another_store_changes_nothing_until_an_operator_raises_the_epoch() {
    let mut bench = Bench::born();
    let (first, second, third) = (manifests(1, 1, &["x"]), manifests(1, 2, &["y"]), manifests(1, 3, &["z"]));
    bench.run_on(index_command(&from(index(5, &[(1, &first), (2, &second)]), "0/00000000000000aa/20")));
    bench.run_on(manifests_command(1, &first));
    bench.run_on(manifests_command(2, &second));
    assert_eq!((bench.cluster.keys(), held(&bench)), (vec!["x".to_owned(), "y".to_owned()], None));
    let without = |version| index(version, &[(1, &first), (3, &third)]);
    let mut other = from(without(7), "0/00000000000000bb/90");
    other.origin = other.origin.map(|origin| Origin { store: uuid(8), ..origin });
    let older = from(without(6), "0/00000000000000aa/18");
    for (held_back, reason) in [(older, "older than this cluster by 2 revisions"), (other, "another store")] {
        let effects = bench.run_on(index_command(&held_back));
        assert!(!effects.iter().any(|effect| effect.starts_with("save")), "{effects:?}");
        assert!(held(&bench).unwrap().contains(reason));
        bench.run_on(manifests_command(3, &third));
        bench.pass(3600 * SECOND);
        assert_eq!(bench.cluster.keys(), ["x", "y"]);
    }
    // Nor are commits followed that come from there.
    let sources = edge_sync_contract::Sources {
        repository: "0123456789abcdef0123456789abcdef01234567".parse().unwrap(),
        charts: None,
        others: edge_sync_contract::OtherCommits::default(),
    };
    let source = edge_sync_contract::DesiredSource { version: 3, sources, origin: None, follows: None };
    bench.run_on(command(source.to_request(sync())));
    assert!(bench.state.node_report().unwrap().source_error.is_some());
    // The record has the origin, so a restart forgets nothing of it.
    let mut again = bench.restarted();
    again.run_on(index_command(&from(without(8), "0/00000000000000aa/19")));
    assert!(held(&again).unwrap().contains("by 1 revisions"));
    again.run_on(index_command(&from(without(8), "1/00000000000000bb/3")));
    assert_eq!(held(&again), None);
    again.run_on(manifests_command(3, &third));
    again.pass(3600 * SECOND);
    assert_eq!(again.cluster.keys(), ["x", "z"]);
    assert_eq!(again.state.node_report().unwrap().desired_origin.map(|origin| origin.epoch), Some(1));
}

#[test]
fn the_entries_that_a_deployment_was_made_from_are_published_on_request() {
    let mut bench = Bench::born();
    let entries = |name: &str| Some(Entries([("Info".to_owned(), json!({"name": name}))].into()));
    let mut set = manifests(1, 1, &["x", "y"]);
    set.entries = entries("Oven");
    bench.run_on(index_command(&DesiredIndex { entries: entries("Alpha"), ..index(1, &[(1, &set)]) }));
    bench.run_on(manifests_command(1, &set));
    assert_eq!(bench.published.deployment(1).unwrap().entries, None);
    let mut again = bench.restarted();
    let ask = |give: bool| {
        let metrics = vec![Metric::new(edge_sync_contract::names::RECOVER_ENTRIES, give)];
        Event::Node(NodeEvent::Command { device: None, metrics, timestamp: None })
    };
    again.run_on(ask(true));
    assert_eq!(again.published.deployment(1).unwrap().entries, entries("Oven"));
    assert_eq!(again.state.node_report().unwrap().cluster_entries, entries("Alpha"));
    again.run_on(ask(false));
    assert_eq!(again.published.deployment(1).unwrap().entries, None);
}
