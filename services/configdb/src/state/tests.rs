//! The state on a simulated disk: every test sees all that a turn publishes, and may lose a turn before or after its commit.

use configdb_contract::command::device_id;
use configdb_contract::{Change, ConfigReplica, WriteRequest, configdb_node, names};
use configdb_schema::Organisation;
use configdb_schema::known::class;
use serde_json::json;
use sparkplug::DeviceId;
use sparkplug::edge_node::{EdgeNode, EdgeNodeConfig, NodeOutput};
use sparkplug::host::{HostApplication, HostConfig, HostOutput};
use sparkplug::session::{TransportAction, TransportEvent};

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

    fn create(&mut self, id: &str, object: Uuid) {
        self.request(&cluster(id, object));
    }

    /// Commits; tells what would be published.
    fn turn(&mut self) -> Vec<Effect> {
        let turn = self.state.take_turn();
        self.disk.commit_now(&turn.commit);
        turn.effects.nothing_to_save().into_iter().collect()
    }

    fn lines(&mut self) -> Vec<String> {
        self.turn().iter().map(line).collect()
    }
}

fn cluster(id: &str, object: Uuid) -> WriteRequest {
    let document = json!({"name": "Paint_Shop", "namespace": "edge"});
    WriteRequest::put(id, object).create_object(class::EDGE_CLUSTER, None).entry("EdgeCluster", document)
}

fn line(effect: &Effect) -> String {
    let number = |metrics: &[Metric], name: &str| metrics.iter().find(|m| &*m.name == name).and_then(Metric::as_u64);
    match effect {
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
        Effect::Node(NodeUpdate::Reshape { devices }) => format!("reshape {}", devices.len()),
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
        format!("data {CLUSTER} Info"),
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

#[test]
fn a_command_that_is_no_request_is_answered_if_it_has_an_id() {
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
fn a_new_application_reshapes_every_object_after_announcing_itself() {
    let mut bench = Bench::new();
    let objects = bench.state.model().object_count();
    bench.request(&WriteRequest::put("a", OTHER).create_object(class::APPLICATION, None));
    let lines = bench.lines();
    assert_eq!(lines[0], format!("revision None objects Some({})", objects + 1));
    assert_eq!(lines[1], format!("reshape {}", objects + 1));
    assert_eq!(lines.len(), 4);
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
        let configdb = configdb_node(&Organisation::new("ACME").unwrap());
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
            let Effect::Node(update) = effect else { panic!("no reads") };
            self.node.update(update, time).unwrap();
        }
        self.node.handle_timeout(time);
        while let Some(output) = self.node.poll_output() {
            if let NodeOutput::Transport(TransportAction::Publish(publish)) = output {
                let event = TransportEvent::Message { topic: publish.topic, payload: publish.payload, retain: false };
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
