//! Replicas, a store and hosts in virtual time. What is between them may be lost, doubled and delayed; a replica may be killed after any write. After every event the invariants hold.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use join_protocol::host::Event as HostInput;
use join_protocol::issuer::Phase;
use join_protocol::metrics::{HostMessage, IssuerMessage};
use join_protocol::terms::{RequestId, Role};
use join_service::State;
use join_service::document::{Document, Key, Store};
use join_service::event::{Effect, Event, Observation, Operation, Transaction, Written};
use join_service_contract::{DesiredPolicy, JoinNode, names};
use join_trust::keys::KeyProvider as _;
use join_trust::replica::cluster_keys;
use service_runtime::Effects;
use sparkplug::edge_node::{NodeEvent, NodeUpdate};
use sparkplug::host::{HostEvent, HostRequest};
use sparkplug::{EdgeNodeDescriptor, Metric, Now, TypedMetrics};
use uuid::Uuid;

use super::host::SimHost;
use super::site::{self, numbered};
use super::store::MemoryStore;
use super::wire::Wire;

/// How often in a hundred something happens to a message.
#[derive(Debug, Clone, Copy, Default)]
pub struct Faults {
    pub lost: u64,
    pub doubled: u64,
    pub delay_ms_max: u64,
    /// In ten thousand writes.
    pub crashes: u64,
}

enum Mail {
    Replica(usize, u64, Event),
    ToHost(usize, IssuerMessage),
    FromHost(usize, HostMessage),
    Birth(usize, u64, usize),
    Restart(usize),
}

pub struct Replica {
    pub state: Option<State>,
    generation: u64,
    /// When the last event of a watch arrives: watches keep their order.
    watched_until: Duration,
    pub speaks: bool,
    /// What the Join node says, as a host application would see it.
    pub node: BTreeMap<String, Metric>,
    pub devices: BTreeMap<String, Vec<Metric>>,
}

pub struct World {
    pub now: Now,
    pub store: MemoryStore,
    pub replicas: Vec<Replica>,
    pub hosts: Vec<SimHost>,
    pub faults: Faults,
    pub kubernetes_nodes: Vec<String>,
    queue: BTreeMap<(Duration, u64), Mail>,
    sequence: u64,
    random: u64,
    /// Kill the replica that makes this write, counted without renewals of the leader's lease.
    pub crash_at: Option<u64>,
    pub writes: u64,
    pub crashes: u64,
    /// The ticket of each request, as it was sent first.
    pub tickets: BTreeMap<RequestId, Vec<u8>>,
    pub tickets_sent: u64,
    /// How many hosts were asked to try again.
    pub asked_again: u64,
    /// What the broker carried, lost or not.
    pub wire: Wire,
    /// Changes of the store that the invariants were looked at for.
    checked: u64,
}

pub const START: Duration = Duration::from_secs(1_000);
pub const WALL: u64 = 1_800_000_000_000;

impl World {
    pub fn new(replicas: usize, seed: u64) -> Self {
        let replica = |_| Replica {
            state: None,
            generation: 0,
            watched_until: START,
            speaks: false,
            node: BTreeMap::new(),
            devices: BTreeMap::new(),
        };
        let mut world = Self {
            now: Now::new(START, WALL),
            store: MemoryStore::default(),
            replicas: (0..replicas).map(replica).collect(),
            hosts: Vec::new(),
            faults: Faults::default(),
            kubernetes_nodes: Vec::new(),
            queue: BTreeMap::new(),
            sequence: 0,
            random: seed,
            crash_at: None,
            writes: 0,
            crashes: 0,
            tickets: BTreeMap::new(),
            tickets_sent: 0,
            asked_again: 0,
            wire: Wire::default(),
            checked: 0,
        };
        (0..replicas).for_each(|at| world.start(at));
        world
    }

    /// SplitMix64.
    pub fn dice(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.random ^ (self.random >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn start(&mut self, at: usize) {
        let number = u8::try_from(at).unwrap();
        let state = State::new(site::settings(&format!("join-{at}")), site::trust(number), self.now);
        self.replicas[at].state = Some(state);
        for store in [Store::ConfigMaps, Store::Leases] {
            let listed = Observation::Listed(self.store.list(store));
            self.feed(at, Event::Documents(store, listed));
        }
        self.feed(at, Event::Nodes(Observation::Listed(self.kubernetes_nodes.clone())));
    }

    /// Kills a replica; it comes back after a second.
    pub fn kill(&mut self, at: usize) {
        self.crashes += 1;
        let replica = &mut self.replicas[at];
        replica.state = None;
        replica.generation += 1;
        replica.speaks = false;
        self.post(1_000, Mail::Restart(at));
    }

    pub fn feed(&mut self, at: usize, event: Event) {
        let random = self.dice();
        let Some(state) = &mut self.replicas[at].state else { return };
        state.on_event(event, self.now, numbered(random));
        let effects = state.poll_effects();
        for effect in effects {
            self.execute(at, effect);
            if self.replicas[at].state.is_none() {
                return;
            }
        }
    }

    fn post(&mut self, delay_ms: u64, mail: Mail) {
        self.sequence += 1;
        self.queue.insert((self.now.mono + Duration::from_millis(delay_ms), self.sequence), mail);
    }

    /// Over the broker: QoS 0. False: it is lost.
    fn post_by_broker(&mut self, mail: impl Fn() -> Mail) -> bool {
        let copies = if self.dice() % 100 < self.faults.doubled { 2 } else { 1 };
        let mut arrives = false;
        for _ in 0..copies {
            if self.dice() % 100 >= self.faults.lost {
                let delay = 1 + self.dice() % (self.faults.delay_ms_max + 1);
                self.post(delay, mail());
                arrives = true;
            }
        }
        arrives
    }

    fn execute(&mut self, at: usize, effect: Effect) {
        match effect {
            Effect::Run(transaction) => self.run(at, transaction),
            Effect::Read(key) => {
                let result = self.store.read(&key);
                let generation = self.replicas[at].generation;
                self.post(1, Mail::Replica(at, generation, Event::Read { key, result }));
            }
            Effect::BecomeLeader(metrics) => {
                self.wire.carry(&metrics);
                let replica = &mut self.replicas[at];
                replica.speaks = true;
                replica.devices.clear();
                replica.node = metrics.into_iter().map(|metric| (metric.name.to_string(), metric)).collect();
                for host in 0..self.hosts.len() {
                    self.birth(at, host);
                }
            }
            Effect::StepDown => self.replicas[at].speaks = false,
            Effect::Node(NodeUpdate::DeviceBirth { device, metrics }) => {
                self.wire.carry(&metrics);
                self.replicas[at].devices.insert(device.to_string(), metrics);
            }
            Effect::Node(NodeUpdate::DeviceDeath { device }) => {
                self.replicas[at].devices.remove(device.as_str());
            }
            Effect::Node(NodeUpdate::Set { device: None, metrics }) => {
                self.wire.carry(&metrics);
                let named = metrics.into_iter().map(|metric| (metric.name.to_string(), metric));
                self.replicas[at].node.extend(named);
            }
            Effect::Node(_) | Effect::Ready { .. } => {}
            Effect::Host(request) => self.request(at, request),
        }
    }

    fn request(&mut self, at: usize, request: HostRequest) {
        match request {
            HostRequest::Command { node, metrics, .. } => {
                self.wire.carry(&metrics);
                let message = IssuerMessage::from_metric(&metrics[0]).unwrap().unwrap();
                self.note_ticket(&message);
                self.asked_again += u64::from(message == IssuerMessage::AskAgain);
                // The broker may give a message to any subscriber of that topic: all hosts with that disk.
                for host in 0..self.hosts.len() {
                    if self.hosts[host].settings.address.node == node.edge_node.as_str() {
                        self.post_by_broker(|| Mail::ToHost(host, message.clone()));
                    }
                }
            }
            HostRequest::Rebirth { node } => {
                let of_node = |host: &SimHost| host.settings.address.node == node.edge_node.as_str();
                if let Some(host) = self.hosts.iter().position(of_node) {
                    self.birth(at, host);
                }
            }
            _ => {}
        }
    }

    /// What is sent for one request is the same, whichever replica sends it.
    fn note_ticket(&mut self, message: &IssuerMessage) {
        let IssuerMessage::Ticket(bytes) = message else { return };
        let sealed = join_protocol::message::ticket::Ticket::decode(bytes).unwrap();
        let body = join_protocol::message::ticket::TicketBody::decode(&sealed.body).unwrap();
        let granted = self.store.requests().into_iter().any(|request| {
            request.record.request == body.request
                && matches!(&request.record.phase, Phase::Granted { ticket, .. } if ticket == bytes)
        });
        if !granted {
            // A refusal; from outside it looks the same.
            return;
        }
        self.tickets_sent += 1;
        let first = self.tickets.entry(body.request).or_insert_with(|| bytes.clone());
        assert_eq!(first, bytes, "a request has one answer");
    }

    fn birth(&mut self, at: usize, host: usize) {
        let metrics = HostMessage::birth_metrics(&self.hosts[host].machine.current_messages());
        self.wire.carry(&metrics);
        let event = HostEvent::NodeMessages { node: self.node_of(host), metrics };
        let generation = self.replicas[at].generation;
        self.post(5, Mail::Replica(at, generation, Event::Host(event)));
    }

    fn node_of(&self, host: usize) -> EdgeNodeDescriptor {
        let address = &self.hosts[host].settings.address;
        EdgeNodeDescriptor::parse(&address.group, &address.node).unwrap()
    }

    fn run(&mut self, at: usize, transaction: Transaction) {
        let Transaction { id, operations, then } = transaction;
        let mut written: Vec<Written> = Vec::new();
        let mut failed = None;
        for operation in operations {
            let counts = !matches!(
                &operation,
                Operation::Create { key: Key::Leader, .. }
                    | Operation::Replace { key: Key::Leader, .. }
                    | Operation::Delete { key: Key::Leader, .. }
            );
            if let Operation::DeleteNode { name } = &operation
                && !self.store.is_away
            {
                self.remove_node(&name.clone());
            }
            match self.store.apply(operation, &written) {
                Ok(one) => {
                    if let Some(one) = one {
                        self.notify(&one);
                        written.push(one);
                    }
                }
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
            if counts {
                self.writes += 1;
                let crash = self.faults.crashes > 0 && self.dice() % 10_000 < self.faults.crashes;
                if self.crash_at == Some(self.writes) || crash {
                    return self.kill(at);
                }
            }
        }
        let committed: Result<((), Effects<_, _>), _> = then.commit(|| failed.map_or(Ok(()), Err));
        let result = committed.map(|((), saved)| saved).map_err(|(error, _)| error);
        let generation = self.replicas[at].generation;
        self.post(2, Mail::Replica(at, generation, Event::Written { transaction: id, written, result }));
    }

    /// A kubelet registers itself.
    pub fn add_node(&mut self, name: &str) {
        self.kubernetes_nodes.push(name.to_owned());
        self.notify_of_node(&Observation::Changed(name.to_owned()));
    }

    fn remove_node(&mut self, name: &str) {
        self.kubernetes_nodes.retain(|node| node != name);
        self.notify_of_node(&Observation::Gone(name.to_owned()));
    }

    fn notify_of_node(&mut self, observation: &Observation<String>) {
        for at in 0..self.replicas.len() {
            let generation = self.replicas[at].generation;
            self.post(1, Mail::Replica(at, generation, Event::Nodes(observation.clone())));
        }
    }

    /// Watches notify every replica, later.
    fn notify(&mut self, written: &Written) {
        let Written { key, document } = written;
        for at in 0..self.replicas.len() {
            let observation = match document.clone() {
                Some((version, text)) => Observation::Changed(Document { key: key.clone(), version, text }),
                None => Observation::Gone(Document { key: key.clone(), version: String::new(), text: String::new() }),
            };
            let delay = Duration::from_millis(1 + self.dice() % 20);
            let replica = &mut self.replicas[at];
            replica.watched_until = replica.watched_until.max(self.now.mono + delay);
            let (generation, arrives) = (replica.generation, replica.watched_until);
            self.sequence += 1;
            let mail = Mail::Replica(at, generation, Event::Documents(key.store(), observation));
            self.queue.insert((arrives, self.sequence), mail);
        }
    }

    /// Runs for so long; after each event the invariants hold.
    pub fn run_for(&mut self, time: Duration) {
        let end = self.now.mono + time;
        self.run_until(end, |_| false);
    }

    /// Runs until it is so, at most for so long. False: it never was.
    pub fn run_until_so(&mut self, time: Duration, is_so: impl Fn(&Self) -> bool) -> bool {
        let end = self.now.mono + time;
        self.run_until(end, &is_so);
        is_so(self)
    }

    fn run_until(&mut self, end: Duration, is_so: impl Fn(&Self) -> bool) {
        while !is_so(self) {
            let mail = self.queue.keys().next().map(|(at, _)| *at);
            let hosts = self.hosts.iter().filter_map(SimHost::next_deadline).min();
            let states = self.replicas.iter().filter_map(|replica| replica.state.as_ref()?.next_deadline()).min();
            let Some(at) = [mail, hosts, states].into_iter().flatten().min().filter(|at| *at <= end) else {
                let passed = end.saturating_sub(self.now.mono);
                self.pass(passed);
                return;
            };
            self.pass(at.saturating_sub(self.now.mono));
            match self.queue.first_key_value().map(|(key, _)| *key).filter(|(due, _)| *due <= at) {
                Some(key) => {
                    let mail = self.queue.remove(&key).unwrap();
                    self.deliver(mail);
                }
                None => self.timers(),
            }
            self.check();
        }
    }

    fn pass(&mut self, time: Duration) {
        self.now = Now::new(self.now.mono + time, self.now.wall + u64::try_from(time.as_millis()).unwrap());
    }

    fn timers(&mut self) {
        let now = self.now;
        let due = |deadline: Option<Duration>| deadline.is_some_and(|at| at <= now.mono);
        for host in 0..self.hosts.len() {
            if due(self.hosts[host].next_deadline()) {
                let published = self.hosts[host].on_event(HostInput::Timer, now);
                self.published(host, published);
            }
        }
        for at in 0..self.replicas.len() {
            if due(self.replicas[at].state.as_ref().and_then(State::next_deadline)) {
                self.feed(at, Event::DeadlineReached);
            }
        }
    }

    fn deliver(&mut self, mail: Mail) {
        match mail {
            Mail::Replica(at, generation, event) if self.replicas[at].generation == generation => self.feed(at, event),
            Mail::Birth(at, generation, host) => {
                if self.replicas[at].generation == generation && self.replicas[at].speaks {
                    self.birth(at, host);
                }
            }
            Mail::Replica(..) => {}
            Mail::Restart(at) => self.start(at),
            Mail::ToHost(host, message) => {
                let published = self.hosts[host].on_message(&message, self.now);
                self.published(host, published);
            }
            Mail::FromHost(host, message) => {
                let node = self.node_of(host);
                for at in 0..self.replicas.len() {
                    if self.replicas[at].speaks {
                        let metrics = vec![message.to_metric()];
                        let event = HostEvent::NodeMessages { node: node.clone(), metrics };
                        self.feed(at, Event::Host(event));
                    }
                }
            }
        }
    }

    pub fn published(&mut self, host: usize, messages: Vec<HostMessage>) {
        for message in messages {
            self.wire.carry([&message.to_metric()]);
            if self.post_by_broker(|| Mail::FromHost(host, message.clone())) {
                continue;
            }
            // The gap in `seq` makes a Host Application ask for a birth, which has the messages that stand.
            for at in 0..self.replicas.len() {
                let generation = self.replicas[at].generation;
                self.post(3_000, Mail::Birth(at, generation, host));
            }
        }
    }

    /// A host says hello.
    pub fn begin(&mut self, host: usize) {
        let published = self.hosts[host].on_event(HostInput::Start, self.now);
        self.published(host, published);
    }

    pub fn add(&mut self, host: SimHost) -> usize {
        self.hosts.push(host);
        self.hosts.len() - 1
    }

    /// The cluster manager sends a policy to the node.
    pub fn send_policy(&mut self, policy: &DesiredPolicy) {
        let join = names::join_node(sparkplug::GroupId::new("ACME-Cell").unwrap());
        let HostRequest::Command { metrics, .. } = policy.to_request(join) else { panic!("a command") };
        let speaks: Vec<usize> = (0..self.replicas.len()).filter(|at| self.replicas[*at].speaks).collect();
        for at in speaks {
            let event = NodeEvent::Command { device: None, metrics: metrics.clone(), timestamp: None };
            self.feed(at, Event::Node(event));
        }
    }

    /// The replica that speaks, and what its node says.
    pub fn node(&self) -> Option<JoinNode> {
        let speaking = self.replicas.iter().find(|replica| replica.speaks)?;
        JoinNode::from_metrics(speaking.node.values()).ok()
    }

    pub fn count(&self, metric: &str) -> u64 {
        let speaking = self.replicas.iter().find(|replica| replica.speaks).unwrap();
        speaking.node[metric].value.as_ref().unwrap().as_u64().unwrap()
    }

    pub fn device(&self, host: usize) -> Option<join_service_contract::JoinHost> {
        self.device_with_id(self.hosts[host].disk)
    }

    /// The device with an id.
    pub fn device_with_id(&self, id: Uuid) -> Option<join_service_contract::JoinHost> {
        let speaking = self.replicas.iter().find(|replica| replica.speaks)?;
        let metrics = speaking.devices.get(&id.to_string())?;
        join_service_contract::JoinHost::from_metrics(metrics).ok()
    }

    /// What no message may hold: what the cluster's keys derive, and every token that was made for a host.
    pub fn secrets(&self) -> Vec<(String, Vec<u8>)> {
        let keys = cluster_keys(&site::files(0), site::CLUSTER).unwrap();
        let mut secrets = vec![("measurement secret".to_owned(), keys.measurement().0.expose().to_vec())];
        for host in &self.hosts {
            secrets
                .push((format!("disk key of {}", host.disk), keys.state_disk_key(host.disk, None).expose().to_vec()));
            let own = host.tokens.iter().map(|token| {
                // The id of a join token is not a secret; that of a server has none.
                let secret = token.rsplit_once('.').map_or(token.as_str(), |(_, secret)| secret);
                (format!("token of {}", host.disk), secret.as_bytes().to_vec())
            });
            secrets.extend(own);
        }
        secrets
    }

    pub fn is_member(&self, host: usize) -> bool {
        self.store.hosts().get(&self.hosts[host].ek_bytes()).is_some_and(|record| record.state == "member")
    }

    /// `token-once`, `no orphan`, one control plane at a time: at every moment, whatever was killed.
    fn check(&mut self) {
        if std::mem::replace(&mut self.checked, self.store.changes) == self.store.changes {
            return;
        }
        let requests = self.store.requests();
        let mut owners = BTreeSet::new();
        for (token, id) in &self.store.tokens {
            let owner = requests.iter().find(|request| request.record.request == *id);
            let owner = owner.unwrap_or_else(|| panic!("token {token} is without a record"));
            assert!(owner.is_live(), "token {token} outlives its attempt");
            assert_eq!(owner.token.as_ref(), Some(token), "a record names its token");
            assert!(owners.insert(owner.ek), "a host has two live tokens");
        }
        let joining = requests.iter().filter(|request| {
            let granted = matches!(request.record.phase, Phase::Granted { .. } | Phase::Acknowledged { .. });
            granted && request.record.role == Role::ControlPlane
        });
        assert!(joining.count() <= 1, "two control planes join at once");
    }
}
