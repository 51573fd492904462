//! Who may what, what is sent, what is recorded, and what is answered.

use std::time::Duration;

use cluster_manager_contract::BootstrapReport;
use cluster_manager_contract::api_token::{RANDOM_BYTES, TokenHash, text};
use configdb_contract::command::device_id;
use configdb_contract::{HistoryEntry, Outcome, RequestResult, configdb_node};
use configdb_schema::Document as _;
use configdb_schema::document::{ApiToken, EdgeClusterEnrolment, EnrolmentToken, TokenScope};
use fleet_view::bench::{Bench, CLUSTER, NAME};
use serde_json::json;
use service_runtime::config::ExposeSecret as _;
use sparkplug::host::{HostEvent, HostRequest};

use super::*;
use crate::Config;
use crate::api::SessionHash;
use crate::event::Event;

const OTHER: Uuid = Uuid::from_u128(0xD);

fn at(ms: u64) -> Now {
    Now::new(Duration::from_millis(ms), 1_000_000_000_000 + ms)
}

fn hash(seed: u8) -> TokenHash {
    TokenHash::of(text(&[seed; RANDOM_BYTES]).expose_secret()).unwrap()
}

fn token(name: &str, seed: u8, scope: TokenScope, clusters: Option<Vec<Uuid>>) -> ApiToken {
    ApiToken {
        name: name.to_owned(),
        hash: hash(seed).to_hex(),
        scope,
        clusters,
        issued: "2001-01-01T00:00:00Z".to_owned(),
        expires: "2031-01-01T00:00:00Z".to_owned(),
        by: "x".to_owned(),
    }
}

/// What was written to the file of sessions last.
type Kept = Option<Vec<crate::kept::KeptSession>>;

struct World {
    bench: Bench,
    state: State,
    asked: u64,
    sent: Vec<HostRequest>,
    records: Vec<AuditRecord>,
    kept: Kept,
}

impl World {
    /// Two clusters; tokens of an operator (1), a viewer (2), an operator of the first cluster (3) and an administrator (4).
    fn new(config: Config) -> Self {
        let mut bench = Bench::with_cluster();
        bench.cluster(OTHER, "Press_Shop", |_| {});
        let all = [
            token("operator", 1, TokenScope::Operator, None),
            token("viewer", 2, TokenScope::Viewer, None),
            token("of-one", 3, TokenScope::Operator, Some(vec![CLUSTER])),
            token("administrator", 4, TokenScope::Administrator, None),
        ];
        for (n, token) in all.iter().enumerate() {
            bench.entry(Uuid::from_u128(0x100 + n as u128), token);
        }
        let state = State::new(config.validate(1).unwrap(), at(0)).unwrap();
        let mut world = Self { bench, state, asked: 0, sent: Vec::new(), records: Vec::new(), kept: None };
        world.state.on_event(Event::Host(HostEvent::Online), at(0));
        world.follow();
        world
    }

    /// The state receives what the bench has published since.
    fn follow(&mut self) {
        for event in std::mem::take(&mut self.bench.events) {
            self.state.on_event(Event::Host(event), at(1));
        }
    }

    fn effects(&mut self) -> Vec<ApiResponse> {
        let mut answers = Vec::new();
        for effect in self.state.poll_effects() {
            match effect {
                Effect::Host(request @ HostRequest::Command { .. }) => self.sent.push(request),
                Effect::Keep(record) => self.records.push(*record),
                Effect::KeepSessions(sessions) => self.kept = Some(sessions),
                Effect::ApiResponse(mut answer) => {
                    self.records.extend(answer.audit.take());
                    answers.push(*answer);
                }
                _ => {}
            }
        }
        answers
    }

    fn ask(&mut self, credential: Credential, question: ApiOperation) -> Option<Result<ApiOutcome, ApiError>> {
        self.asked += 1;
        let asked = ApiRequest { id: self.asked, from: "192.0.2.1".to_owned(), credential, question };
        self.state.on_event(Event::ApiRequest(Box::new(asked)), at(2));
        self.effects().pop().map(|answer| answer.reply)
    }

    fn act(&mut self, seed: u8, key: &str, name: &str, body: serde_json::Value) -> Result<ApiOutcome, ApiError> {
        let action = Action::parse(name, body.to_string().as_bytes()).unwrap();
        self.ask(Credential::Token(hash(seed)), ApiOperation::Act { key: key.to_owned(), action }).unwrap()
    }

    /// ConfigDB answers the last request.
    fn answer(&mut self, id: String, outcome: Outcome, slug: &str, etag: Uuid) {
        let result = RequestResult {
            id,
            object: CLUSTER,
            outcome,
            store: Some(Uuid::from_u128(5)),
            revision: 99,
            etags: [(slug.to_owned(), etag)].into(),
            reason: Some("no".to_owned()),
            field: Some("EdgeClusterRollout/wave".to_owned()),
            at: 5,
        };
        let node = configdb_node(self.state.fleet.organisation());
        let data = HostEvent::NodeData { node, timestamp: 5, metrics: vec![result.to_metric()] };
        self.state.on_event(Event::Host(data), at(3));
        self.state.on_event(Event::DeadlineReached, at(4));
    }

    fn row(&self, id: &str) -> (String, String) {
        let rows = self.state.actions.rows();
        (rows[id]["state"].as_str().unwrap().to_owned(), rows[id]["text"].as_str().unwrap().to_owned())
    }
}

fn id_of(reply: Result<ApiOutcome, ApiError>) -> String {
    match reply {
        Ok(ApiOutcome::Accepted { id } | ApiOutcome::Repeated { id }) => id,
        other => panic!("{other:?}"),
    }
}

fn wave(cluster: Uuid, wave: u8) -> serde_json::Value {
    json!({ "cluster": cluster, "wave": wave })
}

#[test]
fn an_action_is_recorded_sent_and_followed_to_its_end() {
    let mut world = World::new(Config::default());
    let id = id_of(world.act(1, "k", "cluster.wave", wave(CLUSTER, 2)));
    assert_eq!((world.sent.len(), world.row(&id).0.as_str()), (1, "sent"));
    assert_eq!((&world.records[0].result, world.records[0].who.as_str()), (&AuditResult::Accepted, "token:operator"));
    assert_eq!(world.records[0].request.as_deref(), Some(&*id));
    world.answer(format!("{id}-0"), Outcome::Applied, "EdgeClusterRollout", Uuid::nil());
    world.effects();
    assert_eq!(world.row(&id).0, "done");
    assert_eq!(world.records[1].result, AuditResult::Done { commit: None });
}

#[test]
fn a_plan_says_what_would_be_written_and_nothing_comes_of_it() {
    let mut world = World::new(Config::default());
    let plan = |world: &mut World, seed: u8, name: &str, body: serde_json::Value| {
        let action = Action::parse(name, body.to_string().as_bytes()).unwrap();
        world.ask(Credential::Token(hash(seed)), ApiOperation::Plan(action)).unwrap()
    };
    let Ok(ApiOutcome::Planned(steps)) = plan(&mut world, 1, "cluster.wave", wave(CLUSTER, 2)) else {
        panic!("a plan")
    };
    let step = serde_json::to_value(&steps).unwrap();
    let wanted = json!([{ "change": "write", "subject": CLUSTER, "object": CLUSTER, "name": "EdgeClusterRollout", "before": null, "after": { "wave": 2 } }]);
    assert_eq!(step, wanted);
    assert!(world.sent.is_empty() && world.records.is_empty() && world.state.actions.rows().is_empty());
    // Who may not act gets no plan either, and what cannot be done has none.
    assert!(matches!(plan(&mut world, 2, "cluster.wave", wave(CLUSTER, 2)), Err(ApiError::Forbidden(_))));
    assert!(matches!(plan(&mut world, 3, "cluster.wave", wave(OTHER, 2)), Err(ApiError::Forbidden(_))));
    assert!(matches!(plan(&mut world, 1, "cluster.wave", wave(CLUSTER, 10)), Err(ApiError::Request(_))));
    for n in 0..500_u32 {
        assert!(plan(&mut world, 1, "cluster.wave", wave(CLUSTER, 2)).is_ok(), "plan {n} is not counted as an action");
    }
    assert!(world.act(1, "k", "cluster.wave", wave(CLUSTER, 2)).is_ok());
}

/// A node of another maker, whose motor has a speed.
fn foreign_node() -> sparkplug::EdgeNodeDescriptor {
    sparkplug::EdgeNodeDescriptor::parse("Foreign", "Gateway").unwrap()
}

fn speed(world: &mut World, speed: u32) {
    let (node, device) = (foreign_node(), sparkplug::DeviceId::new("Motor").unwrap());
    let metrics = vec![sparkplug::Metric::new("Speed", speed)];
    world.state.on_event(Event::Host(HostEvent::DeviceData { node, device, timestamp: 6, metrics }), at(6));
}

#[test]
fn a_metric_is_written_by_a_command_and_done_when_the_node_reports_the_value() {
    let mut world = World::new(Config::default());
    let (node, device) = (foreign_node(), sparkplug::DeviceId::new("Motor").unwrap());
    let born = HostEvent::NodeBirth {
        node: node.clone(),
        bd_seq: sparkplug::BdSeq::ZERO,
        timestamp: 5,
        uuid: None,
        metrics: vec![sparkplug::Metric::new("Node Control/Rebirth", false)].into(),
    };
    world.state.on_event(Event::Host(born), at(5));
    let metrics = vec![sparkplug::Metric::new("Speed", 3_u32)].into();
    world.state.on_event(
        Event::Host(HostEvent::DeviceBirth { node: node.clone(), device: device.clone(), timestamp: 5, metrics }),
        at(5),
    );
    let write =
        |value: &str| json!({ "node": "Foreign/Gateway", "device": "Motor", "metric": "Speed", "value": value });
    assert!(matches!(world.act(2, "k", "metric.write", write("4")), Err(ApiError::Forbidden(_))), "a viewer");
    assert!(matches!(world.act(3, "k", "metric.write", write("4")), Err(ApiError::Forbidden(_))), "of one cluster");
    assert!(matches!(world.act(1, "k", "metric.write", write("fast")), Err(ApiError::Request(_))));
    let id = id_of(world.act(1, "k", "metric.write", write("4")));
    let metrics = vec![sparkplug::Metric::new("Speed", 4_u32)];
    assert_eq!(world.sent, [HostRequest::Command { node, device: Some(device), metrics }]);
    assert_eq!(world.row(&id).0, "sent");
    speed(&mut world, 5);
    world.effects();
    assert_eq!(world.row(&id).0, "sent", "another value is not the one that was written");
    speed(&mut world, 4);
    world.effects();
    assert_eq!(world.row(&id).0, "done");
    let last = world.records.last().unwrap();
    assert_eq!((last.operation, last.target.as_str()), (Operation::WriteMetric, "Foreign/Gateway/Motor Speed = 4"));
    // The node that has the value already says nothing more of it.
    let again = id_of(world.act(1, "again", "metric.write", write("4")));
    assert_eq!((world.row(&again).0.as_str(), world.sent.len()), ("done", 2));
    let late = id_of(world.act(1, "late", "metric.write", write("9")));
    world.state.on_event(Event::DeadlineReached, at(61_000));
    world.effects();
    assert_eq!(world.row(&late).0, "failed");
}

#[test]
fn no_metric_of_a_service_of_the_fleet_is_written_past_its_own_rules() {
    let mut world = World::new(Config::default());
    for node in ["ACME-Central/ConfigDB", "ACME-Central/Any", "ACME-Paint_Shop/Sync", "ACME-Paint_Shop-Join/paint-1"] {
        let body = json!({ "node": node, "metric": "Node Control/Rebirth", "value": "true" });
        let refused = world.act(4, node, "metric.write", body).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "node: is a service of this fleet; other actions change what it does",
            "{node}"
        );
    }
    let body = json!({ "node": "ACME-Paint_Shop/Oven", "metric": "Speed", "value": "1" });
    let refused = world.act(3, "k", "metric.write", body).unwrap_err();
    assert_eq!(refused.to_string(), "node: there is no \"ACME-Paint_Shop/Oven\"", "an operator of the cluster may");
    assert!(world.sent.is_empty());
}

#[test]
fn what_configdb_refuses_says_the_field_and_the_rule() {
    let mut world = World::new(Config::default());
    let id = id_of(world.act(1, "k", "cluster.wave", wave(CLUSTER, 2)));
    world.answer(format!("{id}-0"), Outcome::Refused, "EdgeClusterRollout", Uuid::nil());
    world.effects();
    assert_eq!(world.row(&id), ("refused".to_owned(), "EdgeClusterRollout/wave: no".to_owned()));
    assert!(matches!(&world.records[1].result, AuditResult::Refused { reason } if reason.ends_with("no")));
}

#[test]
fn the_same_key_does_nothing_twice_and_is_of_its_user_alone() {
    let mut world = World::new(Config::default());
    let first = id_of(world.act(1, "k", "cluster.wave", wave(CLUSTER, 2)));
    assert_eq!(id_of(world.act(1, "k", "cluster.wave", wave(CLUSTER, 2))), first);
    assert_eq!((world.sent.len(), world.records.len()), (1, 1));
    assert_eq!(world.act(1, "k", "cluster.wave", wave(CLUSTER, 3)), Err(ApiError::KeyReused));
    assert_ne!(id_of(world.act(3, "k", "cluster.wave", wave(CLUSTER, 2))), first);
}

#[test]
fn who_may_not_is_refused_and_recorded_and_nothing_is_sent() {
    let mut world = World::new(Config::default());
    for (seed, cluster) in [(2, CLUSTER), (3, OTHER), (3, Uuid::nil())] {
        let refused = world.act(seed, "k", "cluster.wave", wave(cluster, 2)).unwrap_err();
        assert!(matches!(refused, ApiError::Forbidden(_)), "{seed}: {refused:?}");
    }
    let unknown = world.act(9, "k", "cluster.wave", wave(CLUSTER, 2)).unwrap_err();
    assert!(matches!(unknown, ApiError::Unauthenticated(_)));
    assert!(world.sent.is_empty());
    assert_eq!(world.records.len(), 3, "an unknown caller costs nothing on the disk");
    assert!(world.records.iter().all(|record| matches!(record.result, AuditResult::Refused { .. })));
}

#[test]
fn no_user_acts_where_the_console_is_read_only_or_does_not_know_configdb() {
    let mut config = Config::default();
    config.web.read_only = true;
    let refused = World::new(config).act(1, "k", "cluster.wave", wave(CLUSTER, 2)).unwrap_err();
    assert!(matches!(refused, ApiError::ReadOnly(_)), "{refused:?}");
    let mut world = World::new(Config::default());
    world.state.on_event(Event::Host(HostEvent::Offline { reason: "gone".to_owned() }), at(1));
    let node = configdb_node(world.state.fleet.organisation());
    world.state.on_event(Event::Host(HostEvent::NodeStale { node, reason: "gone".to_owned() }), at(1));
    let refused = world.act(1, "k", "cluster.wave", wave(CLUSTER, 2)).unwrap_err();
    assert!(matches!(refused, ApiError::NotNow(_)), "{refused:?}");
}

#[test]
fn a_session_acts_as_the_holder_of_its_token_until_that_signs_out() {
    let mut world = World::new(Config::default());
    let session = Credential::Session(SessionHash::of("s"));
    assert_eq!(world.ask(session, ApiOperation::Who), Some(Ok(ApiOutcome::Who(None))));
    let signed_in = world.ask(Credential::Token(hash(1)), ApiOperation::SignIn(SessionHash::of("s")));
    assert!(matches!(signed_in, Some(Ok(ApiOutcome::SignedIn(_)))), "{signed_in:?}");
    assert!(matches!(world.ask(session, ApiOperation::Who), Some(Ok(ApiOutcome::Who(Some(_))))));
    world.ask(session, ApiOperation::SignOut);
    assert_eq!(world.ask(session, ApiOperation::Who), Some(Ok(ApiOutcome::Who(None))));
}

#[test]
fn a_session_continues_in_the_next_console_and_one_that_was_signed_out_does_not() {
    let mut world = World::new(Config::default());
    let session = |name: &str| Credential::Session(SessionHash::of(name));
    for name in ["a", "b"] {
        world.ask(Credential::Token(hash(1)), ApiOperation::SignIn(SessionHash::of(name)));
    }
    assert_eq!(world.kept.as_ref().unwrap().len(), 2, "at once");
    let stolen = world.kept.clone().unwrap();
    world.ask(session("b"), ApiOperation::SignOut);
    let kept = world.kept.take().unwrap();
    let mut next = World::new(Config::default());
    next.state.restore_sessions(kept, at(3));
    assert!(matches!(next.ask(session("a"), ApiOperation::Who), Some(Ok(ApiOutcome::Who(Some(_))))));
    assert_eq!(next.ask(session("b"), ApiOperation::Who), Some(Ok(ApiOutcome::Who(None))));
    // The token is revoked: what is kept of its sessions is worth nothing.
    next.bench.forget(Uuid::from_u128(0x100));
    next.follow();
    assert_eq!(next.ask(session("a"), ApiOperation::Who), Some(Ok(ApiOutcome::Who(None))));
    // An old file is put back after the time in which a session may rest.
    let mut later = World::new(Config::default());
    later.state.restore_sessions(stolen, at(31 * 60 * 1_000));
    assert_eq!(later.ask(session("b"), ApiOperation::Who), Some(Ok(ApiOutcome::Who(None))));
}

#[test]
fn who_signs_in_all_the_time_is_stopped_before_the_disk_is_kept_busy() {
    let mut world = World::new(Config::default());
    let sign_in = |world: &mut World, n: u64| {
        world.ask(Credential::Token(hash(1)), ApiOperation::SignIn(SessionHash::of(&n.to_string())))
    };
    let done = (0..200).filter(|n| matches!(sign_in(&mut world, *n), Some(Ok(_)))).count();
    assert_eq!(done, 60);
    assert!(matches!(sign_in(&mut world, 999), Some(Err(ApiError::TooOften(_)))));
}

#[test]
fn a_repeated_key_makes_no_second_token_and_shows_none() {
    let mut world = World::new(Config::default());
    let create = |world: &mut World, name: &str, made: u8| {
        let action = Action::parse("token.create", json!({ "name": name, "scope": "viewer" }).to_string().as_bytes());
        let Ok(Action::CreateToken(mut wanted)) = action else { panic!("{action:?}") };
        wanted.hash = hash(made).to_hex();
        let question = ApiOperation::Act { key: "k".to_owned(), action: Action::CreateToken(wanted) };
        world.ask(Credential::Token(hash(4)), question).unwrap()
    };
    let first = create(&mut world, "ada", 10);
    let Ok(ApiOutcome::Accepted { id }) = first else { panic!("{first:?}") };
    // Each request has a text of its own, which counts for the first one alone.
    assert_eq!(create(&mut world, "ada", 11), Ok(ApiOutcome::Repeated { id }));
    assert_eq!(create(&mut world, "eve", 12), Err(ApiError::KeyReused));
    assert_eq!((world.sent.len(), world.state.actions.rows().len()), (1, 1));
}

/// A world in which the first cluster can be bootstrapped.
fn ready() -> World {
    let mut world = World::new(Config::default());
    reports_enrolment(&mut world, None);
    world
}

/// The cluster manager goes by that state of the cluster's tokens.
fn reports_enrolment(world: &mut World, etag: Option<Uuid>) {
    world.bench.cluster(CLUSTER, NAME, |device| {
        let url = Some("http://git/bootstrap/c".to_owned());
        device.bootstrap = BootstrapReport { url, enrolment: etag.map(|etag| etag.to_string()) };
    });
    world.follow();
}

fn bootstrap(world: &mut World, key: &str, made: &str, lifetime_s: u64) -> Option<Result<ApiOutcome, ApiError>> {
    let (key, hash_text) = (key.to_owned(), made.to_owned());
    let lifetime = Duration::from_secs(lifetime_s);
    let question = ApiOperation::Bootstrap { key, cluster: CLUSTER, hash: hash_text, lifetime };
    world.ask(Credential::Token(hash(1)), question)
}

/// ConfigDB has that bootstrap token of the first cluster.
fn has_token(world: &mut World, made: &str) {
    let (issued, expires) = ("2001-01-01T00:00:00Z".to_owned(), "2031-01-01T00:00:00Z".to_owned());
    let token = EnrolmentToken { hash: made.to_owned(), issued, expires, by: String::new() };
    world.bench.entry(CLUSTER, &EdgeClusterEnrolment { tokens: vec![token], ..EdgeClusterEnrolment::default() });
    world.follow();
}

#[test]
fn a_repeated_key_makes_no_second_bootstrap_command() {
    let mut world = ready();
    assert_eq!(bootstrap(&mut world, "k", "abcd", 60), None);
    let id = world.state.actions.rows().keys().next().unwrap().clone();
    assert_eq!(bootstrap(&mut world, "k", "ef01", 60), Some(Ok(ApiOutcome::Repeated { id: id.clone() })));
    assert_eq!(bootstrap(&mut world, "k", "ef01", 61), Some(Err(ApiError::KeyReused)));
    assert_eq!(world.act(1, "k", "cluster.wave", wave(CLUSTER, 2)), Err(ApiError::KeyReused));
    assert_eq!((world.sent.len(), world.state.actions.rows().len()), (1, 1));
    assert_eq!(bootstrap(&mut world, "another", "ef01", 60), None);
    assert_ne!(world.state.actions.rows().keys().find(|key| **key != id), None);
}

#[test]
fn a_command_whose_token_an_earlier_console_did_not_write_is_never_shown() {
    let mut world = ready();
    let etag = Uuid::from_u128(0xE);
    // The earlier console wrote another token under this key, and ConfigDB answers as it did then.
    has_token(&mut world, "0123");
    assert_eq!(bootstrap(&mut world, "k", "abcd", 60), None);
    let id = world.state.actions.rows().keys().next().unwrap().clone();
    world.answer(format!("{id}-0"), Outcome::Applied, EdgeClusterEnrolment::slug(), etag);
    reports_enrolment(&mut world, Some(etag));
    world.state.on_event(Event::DeadlineReached, at(5));
    assert!(world.effects().is_empty());
    world.state.on_event(Event::DeadlineReached, at(120_000));
    let answers = world.effects();
    let Err(ApiError::NotNow(reason)) = &answers[0].reply else { panic!("{answers:?}") };
    assert!(reason.starts_with("no token was written"), "{reason}");
    assert_eq!(world.row(&id).0, "failed");
}

#[test]
fn a_bootstrap_command_is_answered_when_the_cluster_manager_goes_by_its_token() {
    let mut world = ready();
    assert_eq!(bootstrap(&mut world, "k", "abcd", 60), None, "not before it can be used");
    let id = world.state.actions.rows().keys().next().unwrap().clone();
    let etag = Uuid::from_u128(0xE);
    world.answer(format!("{id}-0"), Outcome::Applied, EdgeClusterEnrolment::slug(), etag);
    assert!(world.effects().is_empty());
    has_token(&mut world, "abcd");
    reports_enrolment(&mut world, Some(etag));
    world.state.on_event(Event::DeadlineReached, at(5));
    let answers = world.effects();
    assert!(matches!(&answers[0].reply, Ok(ApiOutcome::Offered { url, .. }) if url == "http://git/bootstrap/c"));
    assert_eq!(world.row(&id).0, "done");
}

#[test]
fn a_history_comes_by_a_replay_that_an_operator_asked_for() {
    let mut world = World::new(Config::default());
    let body = json!({ "object": CLUSTER, "application": "EdgeCluster" });
    let past = HistoryEntry {
        object: CLUSTER,
        slug: "EdgeCluster".into(),
        json: Some("{}".into()),
        etag: None,
        revision: 3,
        time: 5,
        writer: "ada".into(),
        request: "r".into(),
    };
    let replay = |world: &mut World| {
        let node = configdb_node(world.state.fleet.organisation());
        let (device, metrics) = (device_id(CLUSTER), vec![past.to_metric()]);
        world.state.on_event(Event::Host(HostEvent::DeviceData { node, device, timestamp: 5, metrics }), at(3));
        world.state.read(&TableName::History(CLUSTER), at(4)).rows.len()
    };
    assert!(matches!(world.act(2, "k", "object.history", body.clone()), Err(ApiError::Forbidden(_))));
    assert_eq!((replay(&mut world), world.sent.len()), (0, 0), "another client has asked for that");
    let id = id_of(world.act(1, "k", "object.history", body));
    assert_eq!((replay(&mut world), world.sent.len()), (1, 1));
    world.answer(format!("{id}-0"), Outcome::Applied, "EdgeCluster", Uuid::nil());
    world.effects();
    assert_eq!(world.row(&id).0, "done");
}
