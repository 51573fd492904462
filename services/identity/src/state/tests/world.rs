//! A ConfigDB, a cluster manager and a disk around the state, with Identity killed wherever it can be.

use cluster_manager_contract::{ClusterDevice, NodeMetrics, SealedLogin};
use configdb_contract::command::device_id;
use configdb_contract::result::{Outcome, RequestResult};
use configdb_contract::{Command, Mode, entry, names};
use configdb_schema::application::{MEMBERSHIP_SLUG, REGISTRATION_SLUG};
use configdb_schema::document::{CertificateState, IssuedCertificate, Membership, Registration};
use configdb_schema::{APPLICATIONS, known};
use enrolment_protocol::refusal::Refusal;
use serde_json::{Value, json};
use sparkplug::BdSeq;
use sparkplug::replication::Timelines;

use super::*;
use crate::event::RevocationsReport;

pub(super) const CLUSTER: Uuid = Uuid::from_u128(0xC1);
const STORE: Uuid = Uuid::from_u128(0x57);

pub(super) fn organisation() -> Organisation {
    Organisation::new("ACME").unwrap()
}

pub(super) fn key_pair() -> IdentityKeyPair {
    IdentityKeyPair::new([3; 32])
}

/// One object, that of the cluster.
#[derive(Debug, Clone)]
pub(super) struct ConfigDb {
    timelines: Timelines,
    entries: Option<BTreeMap<String, configdb_contract::Entry>>,
    revision: u64,
    etags: u128,
    answered: BTreeMap<String, RequestResult>,
}

impl ConfigDb {
    fn new() -> Self {
        let mut timelines = Timelines::default();
        timelines.begin(1, 0);
        Self { timelines, entries: None, revision: 10, etags: 0, answered: BTreeMap::new() }
    }

    pub(super) fn json(&self, slug: &str) -> Option<Value> {
        Some(self.entries.as_ref()?.get(slug)?.value().unwrap())
    }

    fn write(&mut self, request: &WriteRequest) -> Vec<HostEvent> {
        if let Some(result) = self.answered.get(&request.id).filter(|_| !request.id.is_empty()) {
            return vec![self.node_data(Some(result))];
        }
        let found = |slug: &String| self.entries.as_ref().and_then(|all| all.get(slug)).map(|entry| entry.etag);
        let refused = request.if_match.iter().any(|(slug, etag)| found(slug) != *etag);
        let mut events = Vec::new();
        if !refused {
            assert_eq!(request.mode, Mode::Put);
            self.revision += 1;
            let is_born = self.entries.is_none();
            let entries = self.entries.get_or_insert_default();
            for (slug, value) in &request.entries {
                self.etags += 1;
                match value {
                    Some(value) => {
                        let application = configdb_schema::by_slug(slug).unwrap().uuid;
                        let (json, etag) = (value.to_string().into(), Uuid::from_u128(self.etags));
                        let entry = configdb_contract::Entry { application, json, etag, revision: self.revision };
                        entries.insert(slug.clone(), entry);
                    }
                    None => drop(entries.remove(slug)),
                }
            }
            events.push(self.object(is_born));
        }
        let result = RequestResult {
            id: request.id.clone(),
            object: request.object,
            outcome: if refused { Outcome::Refused } else { Outcome::Applied },
            revision: self.revision,
            etags: BTreeMap::new(),
            reason: refused.then(|| "does not match".to_owned()),
            field: None,
            store: None,
            at: 0,
        };
        self.answered.insert(request.id.clone(), result.clone());
        events.push(self.node_data(Some(&result)));
        events
    }

    fn object(&self, is_born: bool) -> HostEvent {
        let (node, device) = (configdb_node(&organisation()), device_id(CLUSTER));
        let class = known::class::DEVICE;
        let owner = known::special::UNOWNED;
        let registration = Registration { uuid: CLUSTER, rank: 0, class, owner, deleted: false, strict: true };
        let membership = Membership { member_of: [class].into(), subclass_of: BTreeSet::new() };
        let mut metrics = vec![
            Metric::new(REGISTRATION_SLUG, serde_json::to_string(&registration).unwrap()),
            Metric::new(MEMBERSHIP_SLUG, serde_json::to_string(&membership).unwrap()),
        ];
        for application in APPLICATIONS {
            let slug: Arc<str> = application.slug.into();
            let entry = self.entries.as_ref().and_then(|all| all.get(application.slug));
            metrics.push(entry::to_metric(&slug, application.uuid, entry));
        }
        if is_born {
            HostEvent::DeviceBirth { node, device, timestamp: 0, metrics: metrics.into() }
        } else {
            HostEvent::DeviceData { node, device, timestamp: 0, metrics }
        }
    }

    fn node_metrics(&self) -> Vec<Metric> {
        vec![
            Metric::new(names::CONFIG_STORE, STORE.to_string()),
            Metric::new(names::CONFIG_TIMELINES, self.timelines.to_string()),
            Metric::new(names::CONFIG_REVISION, self.revision),
            Metric::new(names::CONFIG_OBJECTS, u64::from(self.entries.is_some())),
        ]
    }

    fn node_data(&self, result: Option<&RequestResult>) -> HostEvent {
        let mut metrics = self.node_metrics();
        metrics.extend(result.map(RequestResult::to_metric));
        HostEvent::NodeData { node: configdb_node(&organisation()), timestamp: 0, metrics }
    }

    fn birth(&self) -> Vec<HostEvent> {
        let (node, metrics) = (configdb_node(&organisation()), self.node_metrics().into());
        let born = HostEvent::NodeBirth { node, bd_seq: BdSeq::ZERO, timestamp: 0, uuid: None, metrics };
        std::iter::once(born).chain(self.entries.is_some().then(|| self.object(true))).collect()
    }
}

/// A kill of Identity.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Kill {
    Never,
    AfterEach,
}

#[derive(Debug)]
pub(super) struct World {
    pub now: Now,
    state: State,
    pub db: ConfigDb,
    /// The cluster manager shows the sealed login of the cluster's repository.
    pub has_login: bool,
    pub replaces_keys: bool,
    /// What is on the disk.
    pub ledger: BTreeMap<Uuid, Issued>,
    /// Nodes of the quarantine group that the session may take in.
    pub allowed: BTreeSet<String>,
    kill: Kill,
    kills: u64,
    /// A cluster that is asked for its birth again after a kill.
    pub enrolling: Option<HostEvent>,
    pub orders: Vec<IssueCertificate>,
    pub revoked: Option<BTreeMap<String, String>>,
    pub lists: Vec<Result<RevocationList, String>>,
    /// The disk takes no list.
    pub is_full: bool,
    pub node: IdentityNode,
}

fn settings(replaces_keys: bool) -> Settings {
    let key_pair = Arc::new(key_pair());
    let terms = Terms {
        key: key_pair.public().to_string(),
        authority: "-----BEGIN CERTIFICATE-----".to_owned(),
        authority_ends_ms: 4_000_000_000_000,
        lifetime: Duration::from_secs(3600),
    };
    Settings {
        organisation: organisation(),
        version: "0".to_owned(),
        key_pair,
        terms: Arc::new(terms),
        replaces_keys,
        retry: (Duration::from_secs(1), Duration::from_secs(60)),
    }
}

impl World {
    pub(super) fn new(kill: Kill) -> Self {
        let now = Now::new(Duration::from_secs(1), 1_000);
        let mut world = Self {
            now,
            state: State::new(settings(false), BTreeMap::new(), 1, now),
            db: ConfigDb::new(),
            has_login: true,
            replaces_keys: false,
            ledger: BTreeMap::new(),
            allowed: BTreeSet::new(),
            kill,
            kills: 0,
            enrolling: None,
            orders: Vec::new(),
            revoked: None,
            lists: Vec::new(),
            is_full: false,
            node: IdentityNode::default(),
        };
        world.start();
        world
    }

    /// A state that knows what is on the disk, and the births that it gets when it asks.
    pub(super) fn start(&mut self) {
        self.state = State::new(settings(self.replaces_keys), self.ledger.clone(), 100 + self.kills, self.now);
        self.allowed.clear();
        self.node = IdentityNode::from_metrics(&self.state.node_metrics()).unwrap();
        self.state.on_event(Event::Host(HostEvent::Online), self.now);
        let births = self.db.birth().into_iter().chain(self.manager_births()).chain(self.enrolling.clone()).collect();
        self.feed(births);
    }

    /// ConfigDB is replaced by a copy of an older state, which continues in a timeline of its own. `restarts`: so is Identity.
    pub(super) fn restore(&mut self, db: ConfigDb, restarts: bool) {
        self.db = db;
        self.kills += 1;
        self.db.timelines.begin(1_000 + self.kills, self.db.revision);
        self.enrolling = None;
        if restarts {
            return self.start();
        }
        let dead = HostEvent::NodeDeath { node: configdb_node(&organisation()), timestamp: 0 };
        let births = std::iter::once(dead).chain(self.db.birth()).collect();
        self.feed(births);
    }

    pub(super) fn manager_births(&self) -> Vec<HostEvent> {
        let node = manager_node(&organisation());
        let metrics = NodeMetrics { clusters_total: 1, ..NodeMetrics::default() }.to_metrics().into();
        let login = self.has_login.then(|| SealedLogin(b"sealed".as_slice().into()));
        let device = ClusterDevice { uuid: CLUSTER, name: "Paint_Shop".to_owned(), login, ..ClusterDevice::default() };
        let id = cluster_manager_contract::names::device(CLUSTER, "Paint_Shop");
        let birth = HostEvent::NodeBirth { node: node.clone(), bd_seq: BdSeq::ZERO, timestamp: 0, uuid: None, metrics };
        let metrics = device.to_metrics().into();
        vec![birth, HostEvent::DeviceBirth { node, device: id, timestamp: 0, metrics }]
    }

    pub(super) fn feed(&mut self, events: Vec<HostEvent>) {
        for event in events {
            self.state.on_event(Event::Host(event), self.now);
        }
    }

    pub(super) fn put(&mut self, slug: &str, value: Value) {
        let events = self.db.write(&WriteRequest::put("", CLUSTER).entry(slug, value));
        self.feed(events);
    }

    pub(super) fn delete(&mut self, slug: &str) {
        let events = self.db.write(&WriteRequest::put("", CLUSTER).delete(slug));
        self.feed(events);
    }

    /// Identity receives nothing of it.
    pub(super) fn delete_object(&mut self) {
        self.db.entries = None;
        self.db.revision += 1;
    }

    pub(super) fn put_cluster(&mut self, name: &str) {
        let spec = json!({"name": name, "namespace": "fplus-edge"});
        self.put("EdgeCluster", spec.clone());
        self.put("EdgeClusterSetup", json!({"spec": spec, "self_link": "link", "ready": true}));
    }

    fn execute(&mut self, effect: Effect) {
        match effect {
            Effect::Node(NodeUpdate::Set { device: None, metrics }) => self.node.merge(&metrics).unwrap(),
            Effect::Remember(issued) => self.ledger.extend(issued),
            Effect::Answer(order) => {
                if let Ok((certificate, login)) = &order.answer {
                    assert!(self.ledger[&CLUSTER].certificates.contains(certificate), "it is not remembered");
                    assert_eq!(&**login, b"sealed");
                }
                self.orders.push(*order);
            }
            Effect::Host(HostRequest::Command { node, device, metrics }) if node == configdb_node(&organisation()) => {
                let Command::Write(request) = Command::parse(device.as_ref(), &metrics).unwrap() else { panic!() };
                assert_eq!((request.object, request.entries.len()), (CLUSTER, 1));
                let events = self.db.write(&request);
                self.feed(events);
            }
            Effect::Host(HostRequest::Allow { node }) => drop(self.allowed.insert(node.to_string())),
            Effect::Host(HostRequest::Forget { node }) => drop(self.allowed.remove(&node.to_string())),
            Effect::Host(HostRequest::Expect { .. }) => {}
            Effect::Revocations { revoked, .. } => {
                let written = if self.is_full { Err("no space left".to_owned()) } else { Ok(()) };
                if !self.is_full {
                    self.revoked = Some(revoked);
                }
                let report = RevocationsReport { written: Some(written), lists: self.lists.clone() };
                self.state.on_event(Event::Revocations(report), self.now);
            }
            Effect::ReadRevocations => {
                let report = RevocationsReport { written: None, lists: self.lists.clone() };
                self.state.on_event(Event::Revocations(report), self.now);
            }
            Effect::Node(_) | Effect::Host(_) => panic!("{effect:?}"),
        }
    }

    /// Runs until nothing more happens within `span`.
    pub(super) fn run(&mut self, span: Duration) {
        let end = self.now.mono + span;
        for _ in 0..20_000 {
            for effect in self.state.poll_effects() {
                self.execute(effect);
                if self.kill == Kill::AfterEach && self.kills < 200 {
                    self.kills += 1;
                    self.start();
                    break;
                }
            }
            if !self.state.effects.is_empty() {
                continue;
            }
            let next = self.state.next_deadline().filter(|at| *at <= end);
            let at = next.unwrap_or(end).max(self.now.mono);
            self.now.wall += u64::try_from((at - self.now.mono).as_millis()).unwrap();
            self.now.mono = at;
            if next.is_none() {
                return;
            }
            self.state.on_event(Event::DeadlineReached, self.now);
        }
        panic!("it does not come to rest");
    }

    pub(super) fn settle(&mut self) {
        self.run(Duration::from_secs(20));
    }

    /// What was answered, in order.
    pub(super) fn answers(&self) -> impl Iterator<Item = Result<IssuedCertificate, Refusal>> {
        let certificate = |order: &IssueCertificate| order.answer.clone().map(|(certificate, _)| certificate);
        self.orders.iter().map(certificate)
    }

    pub(super) fn answer(&self) -> Result<IssuedCertificate, Refusal> {
        self.answers().last().unwrap()
    }

    fn identity(&self) -> EdgeClusterIdentity {
        serde_json::from_value(self.db.json("EdgeClusterIdentity").unwrap()).unwrap()
    }

    /// Serial number of the newest certificate that counts.
    pub(super) fn serial(&self) -> Option<String> {
        let counts = |one: &IssuedCertificate| one.state == CertificateState::Valid;
        self.identity().certificates.into_iter().rfind(counts).map(|one| one.serial)
    }

    pub(super) fn alert(&self) -> Option<String> {
        self.identity().alerts.pop().map(|alert| alert.text)
    }
}
