//! The state on a simulated disk: every test sees all that a turn publishes, and may lose a turn before or after its commit.

use configdb_contract::command::device_id;
use configdb_contract::{Change, ConfigReplica, Dump, LoadOptions, WriteRequest, configdb_node, names};
use configdb_schema::Organisation;
use configdb_schema::known::{self, class, service, special};
use serde_json::json;
use sparkplug::DeviceId;
use sparkplug::edge_node::{EdgeNode, EdgeNodeConfig, NodeOutput};
use sparkplug::host::{HostApplication, HostConfig, HostOutput, HostRequest};
use sparkplug::replication::{Hold, Origin, Outcome as Judgement, Point, Stamp};
use sparkplug::session::{QoS, TransportAction, TransportEvent};

use super::*;
use crate::store::MemoryStore;

const CLUSTER: Uuid = Uuid::from_u128(0xc1);
const OTHER: Uuid = Uuid::from_u128(0xc2);

fn now(wall: u64) -> Now {
    Now::new(Duration::from_millis(wall), wall)
}

/// A service on a simulated disk: it can be killed between commit and execution.
struct Bench {
    disk: MemoryStore,
    state: State,
    wall: u64,
}

impl Bench {
    fn new() -> Self {
        Self::on(MemoryStore::new(Uuid::from_u128(5)))
    }

    fn on(disk: MemoryStore) -> Self {
        let mut state = State::new(&disk.load_now(), Limits::default()).unwrap();
        state.on_event(Event::Start { timeline: 1 }, now(1));
        let mut bench = Self { disk, state, wall: 1 };
        bench.turn();
        bench
    }

    fn send(&mut self, object: Uuid, metrics: Vec<Metric>) {
        self.wall += 1;
        let event = NodeEvent::Command { device: Some(device_id(object)), metrics, timestamp: None };
        self.state.on_event(Event::Node(event), now(self.wall));
    }

    fn request(&mut self, request: &WriteRequest) {
        self.send(request.object, request.to_metrics());
    }

    /// Stages all, each answered, then asks for the commit.
    fn load(&mut self, id: &str, writes: Vec<WriteRequest>) {
        let parts = writes.len() as u64;
        for (position, write) in (0..).zip(writes) {
            let part = PartRequest { transaction: id.to_owned(), position, write };
            self.part(&part);
            assert_eq!(self.lines(), [format!("{} Staged ", part.write.id)], "nothing is published yet");
        }
        self.commit(id, parts);
    }

    fn part(&mut self, part: &PartRequest) {
        let HostRequest::Command { metrics, .. } = part.to_command(&configdb()) else { panic!("a part is a command") };
        self.send(part.write.object, metrics);
    }

    fn commit(&mut self, id: &str, parts: u64) {
        let commit = CommitRequest { id: format!("commit {id}"), transaction: id.to_owned(), parts };
        let HostRequest::Command { metrics, .. } = commit.to_command(&configdb()) else {
            panic!("a commit is a command")
        };
        self.send(service::CONFIGDB, metrics);
    }

    fn create(&mut self, id: &str, object: Uuid) {
        self.request(&cluster(id, object));
    }

    /// Commits; returns what would be published.
    fn turn(&mut self) -> Vec<Effect> {
        let turn = self.state.take_turn();
        self.disk.commit_now(&turn.commit);
        turn.effects.nothing_to_save().into_iter().collect()
    }

    fn lines(&mut self) -> Vec<String> {
        self.turn().iter().map(line).collect()
    }
}

fn configdb() -> sparkplug::EdgeNodeDescriptor {
    configdb_node(&Organisation::new("ACME").unwrap())
}

fn cluster(id: &str, object: Uuid) -> WriteRequest {
    let document = json!({"name": "Paint_Shop", "namespace": "edge"});
    WriteRequest::put(id, object).create_object(class::EDGE_CLUSTER, None).entry("EdgeCluster", document)
}

fn line(effect: &Effect) -> String {
    let number = |metrics: &[Metric], name: &str| metrics.iter().find(|m| &*m.name == name).and_then(Metric::as_u64);
    match effect {
        Effect::Record => "recorded".to_owned(),
        Effect::ReadHistory(request) => format!("read {} from {}", request.id, request.from_revision),
        Effect::Node(NodeUpdate::Set { device: None, metrics }) => {
            match RequestResult::from_metric(&metrics[0]).unwrap() {
                Some(result) => format!("{} {:?} {}", result.id, result.outcome, result.field.unwrap_or_default()),
                None => format!(
                    "revision {:?} objects {:?}",
                    number(metrics, names::CONFIG_REVISION),
                    number(metrics, names::CONFIG_OBJECTS)
                ),
            }
        }
        Effect::Node(NodeUpdate::Replace { device: Some(device), metrics }) => {
            format!("data {device} {}", metrics.iter().map(|m| &*m.name).collect::<Vec<_>>().join(","))
        }
        Effect::Node(NodeUpdate::DeviceBirth { device, .. }) => format!("birth {device}"),
        Effect::Node(NodeUpdate::DeviceDeath { device }) => format!("death {device}"),
        Effect::Node(NodeUpdate::Historical { metrics, .. }) => {
            format!("history {} {:?}", metrics[0].name, metrics[0].timestamp)
        }
        Effect::Node(NodeUpdate::Set { device: Some(device), metrics }) => {
            assert!(metrics.iter().all(|metric| metric.value.is_none()));
            format!("absent {device} {}", metrics.iter().map(|m| &*m.name).collect::<Vec<_>>().join(","))
        }
        Effect::Node(other) => format!("{other:?}"),
    }
}

#[test]
fn objects_are_announced_before_they_are_born_and_the_revision_and_answers_follow_the_data() {
    let mut bench = Bench::new();
    let (revision, objects) = (bench.state.model().revision(), bench.state.model().object_count() as u64);
    bench.create("a", CLUSTER);
    bench.request(&WriteRequest::put("b", CLUSTER).entry("Info", json!({"name": "x"})));
    let expected = [
        format!("revision None objects Some({})", objects + 1),
        format!("birth {CLUSTER}"),
        format!("data {CLUSTER} Object/Name,Info"),
        "recorded".to_owned(),
        format!("revision Some({}) objects Some({})", revision + 2, objects + 1),
        "a Applied ".to_owned(),
        "b Applied ".to_owned(),
    ];
    assert_eq!(bench.lines(), expected);
    bench.request(&WriteRequest::put("c", CLUSTER).delete_object());
    bench.create("d", OTHER);
    let expected = [
        format!("revision None objects Some({})", objects + 2),
        format!("death {CLUSTER}"),
        format!("birth {OTHER}"),
        "recorded".to_owned(),
        format!("revision Some({}) objects Some({})", revision + 4, objects + 1),
        "c Applied ".to_owned(),
        "d Applied ".to_owned(),
    ];
    assert_eq!(bench.lines(), expected);
}

#[test]
fn a_refused_request_publishes_only_its_answer() {
    let mut bench = Bench::new();
    let revision = bench.state.model().revision();
    bench.request(&WriteRequest::put("a", CLUSTER).entry("Info", json!({"name": "x"})));
    assert_eq!(bench.lines(), ["a Refused Registration"]);
    assert_eq!(bench.state.model().revision(), revision);
    assert_eq!(bench.state.counters(), Counters { applied: 0, refused: 1, repeated: 0 });
}

#[test]
fn a_repeated_request_gets_its_recorded_answer_again_and_changes_nothing() {
    let mut bench = Bench::new();
    bench.create("a", CLUSTER);
    let first = bench.turn();
    bench.request(&WriteRequest::put("b", CLUSTER).delete("EdgeCluster"));
    bench.turn();
    bench.create("a", CLUSTER);
    let again = bench.turn();
    assert_eq!(again.iter().map(line).collect::<Vec<_>>(), ["a Applied "]);
    let answer = |effects: &[Effect]| match effects.last() {
        Some(Effect::Node(NodeUpdate::Set { metrics, .. })) => {
            RequestResult::from_metric(&metrics[0]).unwrap().unwrap()
        }
        other => panic!("{other:?}"),
    };
    let (first, again) = (answer(&first), answer(&again));
    assert!(again.at > first.at, "a later answer is another value, so it is published");
    assert_eq!(RequestResult { at: first.at, ..again }, first);
    bench.request(&WriteRequest::put("a", CLUSTER).delete("Info"));
    assert_eq!(bench.lines(), ["a Refused Request/Id"], "one id, two requests");
    bench.create("a", CLUSTER);
    assert_eq!(bench.lines(), ["a Applied "]);
}

#[test]
fn a_request_for_another_store_is_refused_and_names_both() {
    let mut bench = Bench::new();
    let own = bench.state.model().identity();
    let request = |store: &str| {
        let mut metrics = WriteRequest::put("r", CLUSTER).delete("EdgeCluster").to_metrics();
        metrics.push(Metric::new(names::REQUEST_STORE, store));
        metrics
    };
    let mut answer = |store: &str| {
        let device = Some(device_id(CLUSTER));
        let command = NodeEvent::Command { device, metrics: request(store), timestamp: None };
        bench.state.on_event(Event::Node(command), Now::new(Duration::ZERO, 1));
        let effects: Vec<Effect> = bench.state.take_turn().effects.nothing_to_save().into_iter().collect();
        match effects.last() {
            Some(Effect::Node(NodeUpdate::Set { metrics, .. })) => {
                RequestResult::from_metric(&metrics[0]).unwrap().unwrap()
            }
            other => panic!("{other:?}"),
        }
    };
    let other = Uuid::from_u128(99);
    let refused = answer(&other.to_string());
    assert_eq!((refused.outcome, refused.store), (Outcome::Refused, Some(own)));
    assert_eq!(refused.field.as_deref(), Some("Request/Store"));
    let reason = refused.reason.unwrap();
    assert!(reason.contains(&other.to_string()) && reason.contains(&own.to_string()), "{reason}");
    let malformed = answer("x");
    assert_eq!(malformed.field.as_deref(), Some("Request/Store"));
    assert!(malformed.reason.unwrap().contains("must be the UUID of a store"));
    // Meant for this one, it is judged as any other.
    let judged = answer(&own.to_string());
    assert!(judged.is_refused() && judged.field.as_deref() != Some("Request/Store"), "{judged:?}");
}

#[test]
fn killed_after_the_commit_it_publishes_the_state_when_it_is_back_and_answers_the_repeated_request() {
    let mut bench = Bench::new();
    bench.create("a", CLUSTER);
    let turn = bench.state.take_turn();
    bench.disk.commit_now(&turn.commit);
    drop(turn.effects);
    let mut bench = Bench { wall: 50, ..restarted(&bench.disk) };
    assert!(bench.state.node_metrics().iter().any(|m| m.as_str().is_some_and(|text| text.contains("\"id\":\"a\""))));
    bench.create("a", CLUSTER);
    assert_eq!(bench.lines(), ["a Applied "]);
}

#[test]
fn killed_before_the_commit_nothing_has_happened_and_the_repeated_request_is_carried_out() {
    let mut bench = Bench::new();
    bench.create("a", CLUSTER);
    drop(bench.state.take_turn());
    let mut bench = restarted(&bench.disk);
    assert!(bench.state.model().object(CLUSTER).is_none());
    bench.create("a", CLUSTER);
    assert!(bench.lines().contains(&"a Applied ".to_owned()));
}

/// A fresh process on the disk; checks that it publishes exactly what is stored.
fn restarted(disk: &MemoryStore) -> Bench {
    let mut state = State::new(&disk.load_now(), Limits::default()).unwrap();
    state.on_event(Event::Start { timeline: 2 }, now(40));
    let turn = state.take_turn();
    assert!(turn.commit.is_empty(), "nothing to add");
    let births: Vec<_> = turn.effects.nothing_to_save().into_iter().map(|effect| line(&effect)).collect();
    let live = state.model().live_objects().map(|(uuid, _)| format!("birth {uuid}"));
    let births: Vec<_> = births.into_iter().filter(|line| line.starts_with("birth")).collect();
    assert_eq!(births, live.collect::<Vec<_>>());
    Bench { disk: disk.clone(), state, wall: 40 }
}

fn state_of(bench: &Bench) -> Point {
    let model = bench.state.model();
    model.timelines().at(model.revision()).unwrap()
}

/// A machine continues from a snapshot that has its memory, too: both lives of it were the same process until then.
#[test]
fn a_machine_that_is_set_back_with_its_memory_gives_other_content_another_name_and_edges_hold_it() {
    let until_the_snapshot = || {
        let mut bench = Bench::new();
        bench.create("a", CLUSTER);
        bench.turn();
        bench
    };
    let rename = |bench: &mut Bench, id: &str, name: &str| {
        bench.request(&WriteRequest::put(id, CLUSTER).entry("Info", json!({"name": name})));
        bench.turn();
        state_of(bench)
    };
    let (mut before, mut after) = (until_the_snapshot(), until_the_snapshot());
    let snapshot = state_of(&after);
    assert_eq!(state_of(&before), snapshot);
    rename(&mut before, "b", "b");
    let accepted = rename(&mut before, "c", "c");

    // No command can come before the sessions are over, which the server had with the other instance.
    after.state.on_event(Event::SessionEnded { timeline: 7 }, now(50));
    assert!(after.turn().is_empty());
    assert_eq!(state_of(&after), snapshot, "what is unchanged keeps its name");
    let store = after.state.model().identity();
    let stamp = |point, follows, version, digest| Stamp {
        origin: Some(Origin { store, epoch: 0, point }),
        follows,
        decided_for: None,
        version,
        digest,
    };
    let edge = stamp(accepted, None, 1, 1);
    for (version, id) in (2..).zip(["d", "e", "f"]) {
        let point = rename(&mut after, id, id);
        let model = after.state.model();
        let follows = model.timelines().last_of(accepted.timeline, model.revision());
        let judged = edge.judge(&stamp(point, follows, version, version));
        assert_eq!(judged, Judgement::Held(Hold::Older { revisions: 2 }), "{point}");
    }
}

#[test]
fn a_session_begins_a_timeline_with_its_first_write_and_stores_it_with_that() {
    let mut bench = Bench::new();
    bench.create("a", CLUSTER);
    bench.turn();
    let begun = bench.state.model().timelines().clone();
    for timeline in 11..=13 {
        bench.state.on_event(Event::SessionEnded { timeline }, now(50));
        let turn = bench.state.take_turn();
        assert!(turn.commit.is_empty() && turn.effects.nothing_to_save().into_iter().next().is_none());
        assert_eq!(*bench.state.model().timelines(), begun, "sessions that write nothing are not kept");
    }
    let revision = bench.state.model().revision();
    bench.create("again", OTHER);
    let turn = bench.state.take_turn();
    let expected = format!("{begun} {}", Point { timeline: 13, revision: revision + 1 });
    assert_eq!(turn.commit.timelines.as_ref().map(ToString::to_string), Some(expected));
    bench.disk.commit_now(&turn.commit);
    assert_eq!(bench.disk.load_now().timelines, *bench.state.model().timelines());
    drop(turn);
    bench.request(&WriteRequest::put("b", OTHER).delete("EdgeCluster"));
    assert_eq!(bench.state.take_turn().commit.timelines, None, "once a session");
}

#[test]
fn a_command_that_is_not_a_request_is_answered_if_it_has_an_id() {
    let mut bench = Bench::new();
    bench.send(CLUSTER, vec![Metric::new(names::REQUEST_ID, "a"), Metric::new("Info", "{")]);
    assert_eq!(bench.lines(), ["a Refused Info"]);
    bench.send(CLUSTER, vec![Metric::new("Info", "{}")]);
    assert_eq!(bench.lines(), Vec::<String>::new());
    let pump = Some(DeviceId::new("pump").unwrap());
    let metrics = vec![Metric::new(names::REQUEST_ID, "b"), Metric::new("Info", "{}")];
    let event = NodeEvent::Command { device: pump, metrics, timestamp: None };
    bench.state.on_event(Event::Node(event), now(9));
    assert_eq!(bench.lines(), ["b Refused device id"]);
}

#[test]
fn a_new_application_is_one_more_object_and_changes_no_birth() {
    let mut bench = Bench::new();
    let objects = bench.state.model().object_count();
    bench.request(&WriteRequest::put("a", OTHER).create_object(class::APPLICATION, None));
    let lines = bench.lines();
    assert_eq!(lines[0], format!("revision None objects Some({})", objects + 1));
    assert!(lines[1].starts_with("birth "), "{lines:?}");
    assert_eq!((lines.len(), &*lines[2]), (5, "recorded"), "{lines:?}");
}

#[test]
fn a_writer_is_whom_the_server_vouches_for_and_otherwise_a_claim_that_looks_like_one() {
    let user = DeviceId::new("ACME-Central-Operator-ada").unwrap();
    for (trusts, by_user, claim, stored) in [
        (true, true, Some("bob"), "user:ACME-Central-Operator-ada"),
        (true, true, None, "user:ACME-Central-Operator-ada"),
        (true, false, Some("bob"), "bob"),
        (true, false, Some("user:ACME-Central-Operator-ada"), "claimed:user:ACME-Central-Operator-ada"),
        (true, false, Some("claimed:bob"), "claimed:claimed:bob"),
        (true, false, Some("configdb"), "claimed:configdb"),
        (false, true, Some("bob"), "bob"),
        (false, true, None, "ACME-Central-Operator-ada"),
        (false, true, Some("user:bob"), "claimed:user:bob"),
    ] {
        let mut bench = Bench::new();
        if trusts {
            bench.state.trust_users();
        }
        let request = WriteRequest { writer: claim.map(str::to_owned), ..cluster("a", CLUSTER) };
        let mut metrics = request.to_metrics();
        let device = if by_user { user.clone() } else { device_id(CLUSTER) };
        metrics.extend(by_user.then(|| Metric::new(names::REQUEST_OBJECT, CLUSTER.to_string())));
        let event = NodeEvent::Command { device: Some(device), metrics, timestamp: None };
        bench.state.on_event(Event::Node(event), now(2));
        bench.turn();
        let history = bench.disk.history_now(&ReplayRequest::new("h", CLUSTER, 0));
        assert!(history.iter().all(|line| &*line.writer == stored), "{trusts} {by_user} {claim:?}: {history:?}");
        assert!(!history.is_empty());
    }
}

#[test]
fn a_replay_that_asks_for_values_publishes_the_object_again() {
    let mut bench = Bench::new();
    bench.create("a", CLUSTER);
    bench.turn();
    bench.send(CLUSTER, ReplayRequest { values: true, ..ReplayRequest::new("r", CLUSTER, 0) }.to_metrics());
    let resent = format!("{:?}", NodeUpdate::Resend { device: device_id(CLUSTER) });
    assert_eq!(bench.lines(), [&*resent, "read r from 0"]);
}

#[test]
fn a_replay_reads_the_history_and_answers_after_it() {
    let mut bench = Bench::new();
    bench.create("a", CLUSTER);
    bench.request(&WriteRequest::put("b", CLUSTER).by("me").delete("EdgeCluster"));
    bench.turn();
    let replay = ReplayRequest::new("r", CLUSTER, 0);
    bench.send(CLUSTER, replay.to_metrics());
    assert_eq!(bench.lines(), ["read r from 0"]);
    let history = bench.disk.history_now(&replay);
    assert_eq!((&*history[3].writer, &*history[3].request, &history[3].json), ("me", "b", &None));
    bench.state.on_event(Event::History { request: replay.clone(), history: Ok(history) }, now(9));
    let lines = bench.lines();
    assert_eq!(
        lines,
        [
            &*format!("absent {CLUSTER} EdgeCluster"),
            "history Registration Some(2)",
            "history Membership Some(2)",
            "history EdgeCluster Some(2)",
            "history EdgeCluster Some(3)",
            "r Applied "
        ]
    );
    bench.state.on_event(Event::History { request: replay, history: Err("disk".to_owned()) }, now(9));
    assert_eq!(bench.lines(), ["r Refused History/Replay"]);
}

#[test]
fn a_replay_of_what_is_not_there_is_refused() {
    let mut bench = Bench::new();
    bench.send(CLUSTER, ReplayRequest::new("r", CLUSTER, 0).to_metrics());
    assert_eq!(bench.lines(), ["r Refused device id"]);
    bench.create("a", CLUSTER);
    bench.turn();
    let replay = ReplayRequest { slug: Some("Nothing".to_owned()), ..ReplayRequest::new("s", CLUSTER, 0) };
    bench.send(CLUSTER, replay.to_metrics());
    assert_eq!(bench.lines(), ["s Refused History/Application"]);
}

#[test]
fn long_reasons_are_cut_at_a_character() {
    assert_eq!(cut("ä".repeat(3_000)).len(), REASON_BYTES_MAX + 3);
    assert_eq!(cut("short".to_owned()), "short");
}

/// Edge node, network and reader without a broker.
struct Line {
    node: EdgeNode,
    host: HostApplication,
    replica: ConfigReplica,
    clock: Duration,
}

impl Line {
    /// Both sessions are up; the node is born with what is on the disk.
    fn of(bench: &Bench) -> Self {
        let configdb = configdb();
        let time = now(10);
        let mut node = EdgeNode::new(EdgeNodeConfig::new(configdb.clone()), bench.state.node_metrics(), time).unwrap();
        let mut host = HostApplication::new(HostConfig::of_contracts(None), time);
        for event in [TransportEvent::Connected, TransportEvent::Subscribed] {
            host.on_transport(event, time);
        }
        for effect in restarted_effects(&bench.disk) {
            let Effect::Node(update) = effect else { panic!("only births") };
            node.update(update, time).unwrap();
        }
        for event in [TransportEvent::Connected, TransportEvent::Subscribed] {
            node.on_transport(event, time);
        }
        Self { node, host, replica: ConfigReplica::new(configdb), clock: time.mono }
    }

    /// Publishes a turn; 30 ms pass; what has left the node arrives.
    fn pass(&mut self, turn: Vec<Effect>) {
        self.clock += Duration::from_millis(30);
        let time = Now::new(self.clock, 10);
        for effect in turn {
            match effect {
                Effect::Node(update) => self.node.update(update, time).unwrap(),
                Effect::Record => {}
                Effect::ReadHistory(request) => panic!("no reads: {request:?}"),
            }
        }
        self.node.handle_timeout(time);
        while let Some(output) = self.node.poll_output() {
            if let NodeOutput::Transport(TransportAction::Publish(publish)) = output {
                let event = TransportEvent::Message {
                    topic: publish.topic,
                    payload: publish.payload,
                    qos: QoS::AtMostOnce,
                    retain: false,
                };
                self.host.on_transport(event, time);
            }
        }
        self.host.handle_timeout(time);
        while let Some(output) = self.host.poll_output() {
            if let HostOutput::Event(event) = output {
                self.replica.on_event(&event);
            }
        }
    }
}

#[test]
fn a_replica_fed_by_the_real_machines_equals_the_model_and_loses_only_what_was_deleted() {
    let mut bench = Bench::new();
    let mut line = Line::of(&bench);
    bench.create("a", CLUSTER);
    line.pass(bench.turn());
    let application = WriteRequest::put("app", OTHER).create_object(class::APPLICATION, None);
    bench.request(&application.entry("Info", json!({"name": "Shifts"})));
    bench.request(&WriteRequest::put("b", CLUSTER).entry("Shifts", json!(["early"])));
    line.pass(bench.turn());
    bench.request(&WriteRequest::put("c", CLUSTER).delete_object());
    bench.create("d", Uuid::from_u128(0xc3));
    line.pass(bench.turn());
    for _ in 0..200 {
        line.pass(Vec::new());
    }
    let changes: Vec<Change> = std::iter::from_fn(|| line.replica.poll_change()).collect();
    let gone = changes.iter().filter(|change| matches!(change, Change::ObjectGone { .. })).collect::<Vec<_>>();
    assert_eq!(gone, [&Change::ObjectGone { object: CLUSTER }]);
    assert!(!changes.iter().any(|change| matches!(change, Change::Malformed { .. })), "{changes:?}");
    let (replica, model) = (&line.replica, bench.state.model());
    assert!(replica.is_complete());
    assert_eq!(replica.revision(), model.revision());
    assert_eq!(replica.objects().count(), model.object_count());
    for (uuid, object) in model.live_objects() {
        let copy = replica.object(uuid).unwrap();
        assert_eq!((&copy.registration, &copy.membership), (&Some(object.registration(uuid)), &object.membership()));
        let mut entries: Vec<_> = object.entries.iter().map(|(application, e)| e.published(*application)).collect();
        entries.sort_by_key(|entry| model.slug(entry.application).cloned());
        assert_eq!(copy.entries().map(|(_, entry)| entry.clone()).collect::<Vec<_>>(), entries);
    }
}

fn restarted_effects(disk: &MemoryStore) -> Vec<Effect> {
    let mut state = State::new(&disk.load_now(), Limits::default()).unwrap();
    state.on_event(Event::Start { timeline: 3 }, now(1));
    state.take_turn().effects.nothing_to_save().into_iter().collect()
}

#[test]
fn a_committed_transaction_is_one_commit_and_its_repetition_gets_the_recorded_answer() {
    let mut bench = Bench::new();
    let revision = bench.state.model().revision();
    let objects = bench.state.model().object_count() as u64;
    let info = WriteRequest::put("b", CLUSTER).entry("Info", json!({"name": "x"}));
    bench.load("t", vec![cluster("a", CLUSTER), info]);
    let turn = bench.state.take_turn();
    assert_eq!((turn.commit.transactions.len(), turn.commit.requests.len()), (2, 1));
    bench.disk.commit_now(&turn.commit);
    let lines: Vec<String> = turn.effects.nothing_to_save().into_iter().map(|effect| line(&effect)).collect();
    assert_eq!(
        lines,
        [
            format!("revision None objects Some({})", objects + 1),
            format!("birth {CLUSTER}"),
            format!("data {CLUSTER} Object/Name,Info"),
            "recorded".to_owned(),
            format!("revision Some({}) objects Some({})", revision + 2, objects + 1),
            "commit t Applied ".to_owned(),
        ]
    );
    bench.commit("t", 2);
    assert_eq!(bench.lines(), ["commit t Applied "]);
    let mut bench = restarted(&bench.disk);
    bench.commit("t", 2);
    assert_eq!(bench.lines(), ["commit t Applied "]);
}

#[test]
fn a_transaction_with_one_bad_part_changes_nothing() {
    let mut bench = Bench::new();
    let before = bench.state.model().to_snapshot();
    let application = WriteRequest::put("a", OTHER).create_object(class::APPLICATION, None);
    let bad = WriteRequest::put("c", CLUSTER).entry("EdgeCluster", json!({"name": "a b", "namespace": "edge"}));
    bench.load("t", vec![application, cluster("b", CLUSTER), bad]);
    let turn = bench.state.take_turn();
    assert_eq!((turn.commit.transactions.len(), &turn.commit.timelines), (0, &None));
    assert!(bench.state.model().to_snapshot() == before);
    bench.disk.commit_now(&turn.commit);
    let lines: Vec<String> = turn.effects.nothing_to_save().into_iter().map(|effect| line(&effect)).collect();
    assert_eq!(lines, ["commit t Refused EdgeCluster/name"]);
    // What comes after it is as if it had never been.
    bench.create("d", CLUSTER);
    bench.turn();
    let mut stored = bench.disk.load_now();
    stored.requests.clear();
    assert!(stored == bench.state.model().to_snapshot());
}

#[test]
fn a_restarted_process_refuses_the_commit_of_what_it_does_not_have() {
    let mut bench = Bench::new();
    bench.part(&PartRequest { transaction: "t".to_owned(), position: 0, write: cluster("a", CLUSTER) });
    bench.turn();
    let mut bench = restarted(&bench.disk);
    bench.commit("t", 1);
    assert_eq!(bench.lines(), ["commit t Refused Transaction/Commit"]);
    bench.load("t", vec![cluster("a", CLUSTER)]);
    assert!(bench.lines().contains(&"commit t Applied ".to_owned()), "the refusal was not recorded");
}

/// A store with what a site may have in it, and what old versions and Factory+ wrote.
fn of_every_kind() -> Bench {
    let object = |n: u128| Uuid::from_u128(0xd000 + n);
    let (class_a, class_b, meta, person, shifts, plain) =
        (object(1), object(2), object(3), object(4), object(5), object(6));
    let put = |n: u128| WriteRequest::put(format!("e{n}"), object(n));
    let mut bench = Bench::new();
    for request in [
        // Classes, a class of classes with a member, and one below another.
        WriteRequest::put("c1", class_a).create_object(class::R1_CLASS, None).entry("Info", json!({"name": "Machine"})),
        WriteRequest::put("c2", class_b).create_object(class::R1_CLASS, None).subclass_of([class_a]),
        WriteRequest::put("c3", meta).create_object(class::R2_CLASS, None).entry("Info", json!({"name": "Kinds"})),
        WriteRequest::put("c4", object(7)).create_object(meta, None),
        // A principal, and what it owns.
        WriteRequest::put("p", person).create_object(class::INDIVIDUAL, None).entry("Info", json!({"name": "Ada"})),
        put(10).create_object(class_b, Some(person)).member_of([class_b, class_a]),
        // Applications, with a schema and without; the second has the name of the first.
        WriteRequest::put("a1", shifts)
            .create_object(class::APPLICATION, Some(person))
            .entry("Info", json!({"name": "Shift plan"}))
            .entry("ConfigSchema", json!({"type": ["array", "null"]})),
        WriteRequest::put("a2", plain).create_object(class::APPLICATION, None).entry("Info", json!({"name": "Shift plan"})),
        put(11).create_object(class_a, None).entry(shifts.to_string(), json!(["early", 2, null, {"ä": 1.5}])),
        put(12).create_object(class_a, None).entry(shifts.to_string(), json!(null)).entry(plain.to_string(), json!(null)),
        put(13).create_object(class_a, None).entry(plain.to_string(), json!("")),
        // An Info that is more than a name, and a name that YAML has to quote.
        put(14).create_object(class_a, None).entry("Info", json!({"name": "!u x: #", "deleted": false, "other": [1]})),
        // A cluster and its deployments, in the present form and in that of old stores.
        cluster("k", CLUSTER),
        put(16).create_object(class::EDGE_DEPLOYMENT, None).entry(
            "EdgeDeployment",
            json!({"cluster": CLUSTER, "name": "Oven", "chart": object(20), "values": {"yes": "no", "1e3": 1e300, "null": null}}),
        ),
        put(17).create_object(class::EDGE_DEPLOYMENT, None).entry(
            "EdgeDeployment",
            json!({"cluster": CLUSTER, "name": "Press", "charts": [object(20), object(21)], "source": object(22), "legacy": true}),
        ),
        put(18).create_object(class::EDGE_CLUSTER, None).entry(
            "EdgeClusterRecovery",
            json!({"store": object(30), "epoch": 3, "decision": "adopt"}),
        ),
        // An object of the system that a site has changed, and one that was deleted.
        WriteRequest::put("s", class::EDGE_CLUSTER).entry("Info", json!({"name": "Cluster of ours"})),
        put(19).create_object(class_a, None).entry("Info", json!({"name": "gone"})),
        WriteRequest::put("x", object(19)).delete_object(),
    ] {
        let id = request.id.clone();
        bench.request(&request);
        let lines = bench.lines();
        assert!(lines.contains(&format!("{id} Applied ")), "{id}: {lines:?}");
    }
    bench
}

fn replica_of(bench: &Bench) -> ConfigReplica {
    let mut line = Line::of(bench);
    while !line.replica.is_complete() {
        line.pass(Vec::new());
    }
    line.replica
}

#[test]
fn a_dump_of_every_kind_of_object_loads_back_completely_into_an_empty_store() {
    let source = of_every_kind();
    let text = Dump::from_replica(&replica_of(&source)).unwrap().to_yaml().unwrap();
    let dump = Dump::parse(&text).unwrap();
    let mut target = Bench::on(MemoryStore::new(Uuid::from_u128(6)));
    let options = LoadOptions { id_prefix: "load".to_owned(), writer: "tester".to_owned() };
    let requests: Vec<WriteRequest> = dump.requests(&replica_of(&target), &options).unwrap().concat();
    target.load("t", requests);
    let lines = target.lines();
    assert_eq!(lines.last().map(String::as_str), Some("commit t Applied "), "{lines:?}");
    let content = |bench: &Bench| {
        let model = bench.state.model();
        let objects = model.live_objects().map(|(uuid, object)| {
            let entries: Vec<_> = object.entries.iter().map(|(of, entry)| (*of, entry.json.clone())).collect();
            (uuid, object.registration(uuid), object.membership(), entries)
        });
        let slugs: Vec<_> = model.applications().map(|(slug, of)| (slug.clone(), of)).collect();
        (objects.collect::<Vec<_>>(), slugs)
    };
    let (expected, loaded) = (content(&source), content(&target));
    for (expected, loaded) in expected.0.iter().zip(&loaded.0) {
        assert_eq!(expected, loaded);
    }
    assert_eq!(expected, loaded);
    assert!(expected.0.iter().any(|(_, registration, ..)| registration.owner != special::UNOWNED));
    assert!(dump.requests(&replica_of(&target), &options).unwrap().is_empty(), "there is nothing left to load");
}

#[test]
fn a_turn_that_cannot_be_stored_is_taken_back_and_refused_and_nothing_more_is_written() {
    let disk = MemoryStore::new(Uuid::from_u128(5));
    drop(Bench::on(disk.clone()));
    // The first writes of a run begin its timeline, also the second time.
    let mut bench = restarted(&disk);
    let before = bench.state.model().to_snapshot();
    bench.create("a", CLUSTER);
    bench.request(&WriteRequest::put("b", CLUSTER).delete("GitConfig"));
    let Turn { commit, effects } = bench.state.take_turn();
    assert!(commit.timelines.is_some());
    drop(effects);
    let answers: Vec<RequestResult> = commit.requests.into_iter().map(|request| request.result).collect();
    bench.state.roll_back(&bench.disk.load_now(), &answers, "the disk is full", now(60)).unwrap();
    let refused = ["a Refused Config/Store", "b Refused Config/Store"];
    assert_eq!(bench.lines(), refused);
    bench.create("a", CLUSTER);
    bench.part(&PartRequest { transaction: "t".to_owned(), position: 0, write: cluster("b", OTHER) });
    let turn = bench.state.take_turn();
    assert!(turn.commit.is_empty(), "no refusal is recorded");
    assert_eq!(turn.effects.nothing_to_save().into_iter().map(|e| line(&e)).collect::<Vec<_>>(), refused);
    assert!(bench.state.model().to_snapshot() == before);

    bench.state.set_writable(now(70));
    bench.create("a", CLUSTER);
    let turn = bench.state.take_turn();
    assert!(turn.commit.timelines.is_some());
    bench.disk.commit_now(&turn.commit);
    let lines: Vec<String> = turn.effects.nothing_to_save().into_iter().map(|effect| line(&effect)).collect();
    assert_eq!(lines.last().map(String::as_str), Some("a Applied "), "{lines:?}");
    assert!(lines.contains(&format!("birth {CLUSTER}")));
}

#[test]
fn what_comes_with_the_program_is_written_and_published_when_there_is_room_again() {
    let mut older = Bench::new().disk.load_now();
    // What an older program has written, and no one has changed.
    let is_schema = |of: &Uuid| *of == known::application::CONFIG_SCHEMA;
    let (object, _, entry) = older.entries.iter_mut().find(|(_, of, entry)| entry.builtin && is_schema(of)).unwrap();
    entry.json = json!({"type": "object"}).to_string().into();
    let object = *object;
    let mut state = State::new(&older, Limits::default()).unwrap();
    state.set_read_only("the disk is full".to_owned());
    state.on_event(Event::Start { timeline: 9 }, now(80));
    let turn = state.take_turn();
    assert!(turn.commit.is_empty());
    let births = turn.effects.nothing_to_save().into_iter().filter(|e| line(e).starts_with("birth")).count();
    assert_eq!(births, older.objects.len());
    state.set_writable(now(90));
    let turn = state.take_turn();
    assert_eq!(turn.commit.transactions.len(), 1);
    let lines: Vec<String> = turn.effects.nothing_to_save().into_iter().map(|effect| line(&effect)).collect();
    assert!(lines.contains(&format!("data {object} ConfigSchema")), "{lines:?}");
}
