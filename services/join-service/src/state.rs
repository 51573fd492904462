//! All decisions of the join service. Time and randomness come in with each event; what is to be done comes out as effects.
//!
//! ```text
//! watches ──> cache ─┬─> leadership ──> BecomeLeader, StepDown
//!                    ├─> policy ──> issuer, verifier
//! hello ────────────────> challenge                        exchange.rs
//! evidence ──> verdict, identity ──> claim, lease, host ──> token, ticket ──> sent      exchange.rs, writes.rs
//! progress, acknowledgement ──> record, end of the attempt                              members.rs
//! time ──> reconcile::due ──> ends, revocations                                         writes.rs
//! another policy ──> refused hosts are asked to try again                               recall.rs
//! ```
//!
//! Nothing is said before everything was listed and this replica leads. The parts of the state have a module each below `state/`.

mod exchange;
mod leadership;
mod members;
mod policy;
mod recall;
mod report;
mod seen;
mod writes;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use join_protocol::issuer::{Issuer, IssuerKeys, IssuerPolicy, Verified};
use join_protocol::metrics::{HostMessage, IssuerMessage};
use join_protocol::refusal::RefusalCode;
use join_protocol::secret::{Entropy, Secret, cluster_id};
use join_protocol::terms::{Address, Kind, RequestId, Suite};
use join_protocol::transcript::Hash;
use join_service_contract::names::RECOVER_ENTRIES;
use join_service_contract::{DesiredPolicy, JoinCounters, JoinNode};
use service_runtime::{Effects, Unsaved};
use sparkplug::edge_node::NodeEvent;
use sparkplug::host::{HostEvent, HostRequest};
use sparkplug::{EdgeNodeDescriptor, Now};

use crate::cache::Cache;
use crate::document::{Key, to_text};
use crate::event::{Effect, Event, Observation, Operation, StoreError, Transaction, Version};
use crate::identity::Admission;
use crate::limits::Limits;
use crate::reconcile::Ending;
use crate::settings::Settings;
use join_trust::keys::KeyProvider;
use join_trust::replica::{KubernetesTrust, Trust};
use leadership::Leadership;
use policy::{ActivePolicy, CommandOutcome};
use recall::Recalls;
use report::Reports;
use seen::SeenHosts;

/// What a join service answers.
const KINDS: [Kind; 3] = [Kind::Join, Kind::Rejoin, Kind::Renew];
/// How long keys of hellos and evidence are used, ms. Those of the epoch before stay good.
const KEY_EPOCH_MS: u64 = 3_600_000;
/// Largest policy that is published on request: it has to fit into a birth.
const ENTRY_BYTES_MAX: usize = 128 * 1024;
/// How often what must end is looked for.
const SWEEP: Duration = Duration::from_secs(10);
/// Attempts that are worked on at the same time; hosts repeat the evidence of others.
const WORK_MAX: usize = 64;
/// Messages of one attempt that wait for a write about it.
const PARKED_MAX: usize = 4;
/// Why messages get no answer, beside the reasons of the protocol.
const IGNORED: [&str; 16] = [
    "too-large",
    "malformed",
    "not-canonical",
    "version",
    "field",
    "address",
    "request",
    "cookie",
    "seal",
    "proof",
    "metric",
    "rate",
    "waiting",
    "over",
    "unknown",
    "not-believed",
];

/// What a transaction is about.
#[derive(Debug)]
enum Work {
    Leader,
    Policy,
    /// The claim, the lease and the host's record are written; then the ticket is made.
    Admitting(Box<Admitting>),
    Granting(RequestId),
    Member(RequestId),
    Ending(RequestId, Ending),
    Housekeeping,
}

#[derive(Debug)]
struct Admitting {
    verified: Box<Verified>,
    admission: Admission,
}

/// What is counted beside requests and refusals.
#[derive(Debug, Default)]
struct Totals {
    issued: u64,
    resent: u64,
    acknowledged: u64,
    revoked: u64,
}

/// The state of one replica.
#[derive(Debug)]
pub struct State {
    settings: Settings,
    kubernetes: KubernetesTrust,
    keys: std::sync::Arc<dyn KeyProvider>,
    not_after_ms: u64,
    issuer: Issuer,
    key_epoch: u64,
    cluster_id: Hash,
    cache: Cache,
    leadership: Leadership,
    policy: ActivePolicy,
    /// A client has asked for the entry of the policy.
    gives_entry: bool,
    /// Which version of the store's document is in force.
    followed: Option<String>,
    limits: Limits,
    seen: SeenHosts,
    recalls: Recalls,
    counters: JoinCounters,
    totals: Totals,
    work: BTreeMap<u64, Work>,
    transactions: u64,
    busy: BTreeSet<RequestId>,
    parked: BTreeMap<RequestId, VecDeque<(Address, HostMessage)>>,
    is_speaking: bool,
    sweep_at: Duration,
    /// Something that must end could not be ended, because a write about it was under way.
    sweep_again: bool,
    reports: Reports,
    store_error: Option<String>,
    ready: Option<(bool, String)>,
    entropy: Secret,
    draws: u32,
    is_stopping: bool,
    effects: Vec<Effect>,
}

impl State {
    /// A replica that knows nothing yet.
    #[must_use]
    pub fn new(settings: Settings, trust: Trust, now: Now) -> Self {
        let Trust { signing_key, certificates, not_after_ms, keys, kubernetes, policy_anchor } = trust;
        let (measurement_secret, measurement_salt) = keys.measurement();
        let policy = ActivePolicy::new(policy_anchor);
        let epoch = now.wall / KEY_EPOCH_MS;
        let cluster_id = cluster_id(&measurement_secret, &measurement_salt);
        let issuer_policy = issuer_policy(&settings, &policy, cluster_id);
        let issuer = Issuer::new(issuer_policy, issuer_keys(&*keys, epoch), signing_key, certificates);
        let counters =
            JoinCounters::zero(KINDS.map(Kind::name), RefusalCode::ALL.iter().map(|code| code.name()), IGNORED);
        Self {
            limits: Limits::new(settings.hellos_per_second_max, settings.evidence_per_second_max, now.mono),
            leadership: Leadership::new(settings.replica.clone()),
            settings,
            kubernetes,
            keys,
            not_after_ms,
            issuer,
            key_epoch: epoch,
            cluster_id,
            cache: Cache::default(),
            policy,
            gives_entry: false,
            followed: None,
            seen: SeenHosts::default(),
            recalls: Recalls::default(),
            counters,
            totals: Totals::default(),
            work: BTreeMap::new(),
            transactions: 0,
            busy: BTreeSet::new(),
            parked: BTreeMap::new(),
            is_speaking: false,
            sweep_at: now.mono,
            sweep_again: false,
            reports: Reports::default(),
            store_error: None,
            ready: None,
            entropy: Secret::new([0; 32]),
            draws: 0,
            is_stopping: false,
            effects: Vec::new(),
        }
    }

    /// Takes one event. `entropy`: 32 fresh random bytes, used for nothing else.
    pub fn on_event(&mut self, event: Event, now: Now, entropy: Secret) {
        if self.is_stopping {
            return;
        }
        (self.entropy, self.draws) = (entropy, 0);
        match event {
            Event::Documents(store, observation) => {
                self.note_store(&observation);
                self.cache.on_documents(store, observation);
            }
            Event::Nodes(observation) => {
                self.note_store(&observation);
                self.cache.on_nodes(observation);
            }
            Event::Read { key, result: Ok(found) } => {
                self.store_error = None;
                self.cache.on_read(&key, found);
            }
            Event::Read { result: Err(error), .. } => self.store_error = Some(error.to_string()),
            Event::Written { transaction, written, result } => self.on_written(transaction, written, result, now),
            Event::Host(event) if self.is_speaking => self.on_host_event(event, now),
            Event::Node(NodeEvent::Command { device: None, metrics, .. }) if self.is_speaking => {
                self.on_command(&metrics, now);
            }
            Event::Host(_) | Event::Node(_) | Event::DeadlineReached => {}
            Event::Stop => return self.stop(),
        }
        self.settle(now);
    }

    /// When [`Event::DeadlineReached`] is due.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Duration> {
        if !self.cache.is_complete() {
            return None;
        }
        let leadership = self.leadership.next_deadline(self.cache.leader().is_some());
        let speaking = self.is_speaking.then_some(self.sweep_at);
        leadership.into_iter().chain(speaking).chain(self.recalls.next_deadline()).min()
    }

    /// What is to be done.
    pub fn poll_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// The node as it was reported last; None while this replica is silent.
    #[must_use]
    pub fn node_report(&self) -> Option<&JoinNode> {
        self.reports.node().filter(|_| self.is_speaking)
    }

    fn note_store<T>(&mut self, observation: &Observation<T>) {
        match observation {
            Observation::Failed(error) => self.store_error = Some(error.to_string()),
            _ => self.store_error = None,
        }
    }

    fn settle(&mut self, now: Now) {
        if !self.cache.is_complete() {
            return self.say_ready(false, "waits until the cluster has been listed");
        }
        if let Some(operation) = self.leadership.due(self.cache.leader(), now.mono) {
            self.run(Work::Leader, vec![operation], Effects::new());
        }
        self.follow_policy();
        self.follow_epoch(now);
        match (self.leadership.leads(now.mono), self.is_speaking) {
            (true, false) => self.speak(now),
            (false, true) => self.fall_silent(),
            (true, true) => {}
            (false, false) => self.say_ready(true, "standing by; another replica speaks"),
        }
        if self.is_speaking {
            if now.mono >= self.sweep_at {
                self.sweep_at = now.mono + SWEEP;
                self.sweep(now);
            }
            self.recall(now);
            self.report(now);
        }
    }

    /// Takes over the policy of the store, whichever replica wrote it.
    fn follow_policy(&mut self) {
        let Some(stored) = self.cache.policy().filter(|stored| self.followed.as_ref() != Some(&stored.version)) else {
            return;
        };
        self.followed = Some(stored.version.clone());
        self.policy.apply(stored.is.clone());
        self.issuer.set_policy(issuer_policy(&self.settings, &self.policy, self.cluster_id));
        // A host that was revoked has its tokens revoked at once.
        self.sweep_at = Duration::ZERO;
        self.begin_recall();
    }

    fn follow_epoch(&mut self, now: Now) {
        let epoch = now.wall / KEY_EPOCH_MS;
        if epoch != self.key_epoch {
            self.key_epoch = epoch;
            self.issuer.set_keys(issuer_keys(&*self.keys, epoch));
        }
    }

    fn speak(&mut self, now: Now) {
        tracing::info!(replica = self.settings.replica, "this replica speaks");
        self.is_speaking = true;
        self.sweep_at = now.mono;
        let hosts = report::hosts(&self.cache, &self.seen, &self.policy);
        self.reports.begin_hosts(hosts, self.policy.epoch(), now.wall);
        let (metrics, updates) = self.reports.begin(self.node(now), &self.counters);
        self.effects.push(Effect::BecomeLeader(metrics));
        self.effects.extend(updates.into_iter().map(Effect::Node));
        self.say_ready(true, "speaks");
    }

    fn fall_silent(&mut self) {
        tracing::warn!(replica = self.settings.replica, "this replica does not speak any more");
        self.is_speaking = false;
        self.parked.clear();
        self.recalls.clear();
        self.leadership.end();
        self.effects.push(Effect::StepDown);
    }

    fn stop(&mut self) {
        self.is_stopping = true;
        if !std::mem::take(&mut self.is_speaking) {
            return;
        }
        self.effects.push(Effect::StepDown);
        // Another replica need not wait for the lease.
        let lease = self.cache.leader().filter(|lease| lease.is.holder == self.settings.replica);
        if let Some(version) = lease.map(|lease| lease.version.clone()) {
            self.run(Work::Leader, vec![Operation::Delete { key: Key::Leader, version }], Effects::new());
        }
    }

    fn say_ready(&mut self, ready: bool, reason: &str) {
        let said = (ready, reason.to_owned());
        if self.ready.as_ref() != Some(&said) {
            self.effects.push(Effect::Ready { ready, reason: said.1.clone() });
            self.ready = Some(said);
        }
    }

    fn report(&mut self, now: Now) {
        for id in self.reports.take_changed(&mut self.cache, &mut self.seen, self.policy.epoch()) {
            let host = report::host(id, &self.cache, &self.seen, &self.policy);
            self.effects.extend(self.reports.update_host(id, host, now.wall).map(Effect::Node));
        }
        let node = self.node(now);
        let update = self.reports.update_node(node, &self.counters);
        self.effects.extend(update.map(Effect::Node));
    }

    fn node(&self, now: Now) -> JoinNode {
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let hosts = self.reports.counts();
        let live = self.cache.requests().values().filter(|entry| entry.is.is_live() && entry.is.token.is_some());
        let lease = self.cache.control_plane().filter(|lease| lease.is.until_ms >= now.wall);
        let desired = self.policy.desired();
        let certificate =
            "the issuer's certificate is over: hosts do not believe this service; issue another".to_owned();
        let is_over = now.wall > self.not_after_ms;
        JoinNode {
            version: self.settings.version.clone(),
            simulated: self.settings.simulated,
            cluster_uuid: self.settings.cluster_uuid,
            cluster_name: self.settings.cluster_name.clone(),
            replica: self.settings.replica.clone(),
            policy_version: self.policy.version(),
            policy_digest: self.policy.digest(),
            policy_revision: desired.map_or(0, |desired| desired.revision),
            policy_origin: desired.and_then(|desired| desired.origin),
            policy_held: Some(self.policy.held().is_some()),
            policy_hold_reason: self.policy.held().map(|hold| hold.to_string()),
            policy_entry: desired
                .and_then(|desired| desired.entry.as_ref())
                .filter(|entry| self.gives_entry && entry.len() <= ENTRY_BYTES_MAX)
                .cloned(),
            policy_state: self.policy.state(),
            policy_error: self.policy.error().cloned(),
            hosts_total: hosts.total,
            hosts_pending: hosts.pending,
            hosts_members: hosts.members,
            hosts_locked_out: hosts.locked_out,
            tickets_issued: self.totals.issued,
            tickets_resent: self.totals.resent,
            tickets_acknowledged: self.totals.acknowledged,
            tokens_live: count(live.count()),
            tokens_revoked: self.totals.revoked,
            control_plane_holder: lease.map(|lease| lease.is.disk),
            control_plane_until: lease.map(|lease| lease.is.until_ms),
            error: self
                .store_error
                .clone()
                .or_else(|| self.cache.unreadable())
                .or_else(|| is_over.then_some(certificate)),
        }
    }

    fn on_command(&mut self, metrics: &[sparkplug::Metric], now: Now) {
        if let Some(give) = metrics.iter().find(|metric| &*metric.name == RECOVER_ENTRIES) {
            self.gives_entry = give.as_bool() == Some(true);
        }
        let desired = match DesiredPolicy::from_metrics(metrics) {
            Ok(Some(desired)) => desired,
            Ok(None) => return,
            Err(error) => return self.policy.refuse(error.to_string()),
        };
        match self.policy.take(desired, now.wall) {
            CommandOutcome::Accepted(record) => {
                let text = to_text(&record);
                let operation = match self.cache.version(&Key::Policy) {
                    None => Operation::Create { key: Key::Policy, text },
                    Some(known) => {
                        Operation::Replace { key: Key::Policy, text, version: Version::Known(known.clone()) }
                    }
                };
                self.run(Work::Policy, vec![operation], Effects::new());
            }
            CommandOutcome::Duplicate | CommandOutcome::Stale | CommandOutcome::Refused | CommandOutcome::Held => {
                self.effects.extend(self.reports.repeat_policy(now.wall).map(Effect::Node));
            }
        }
    }

    fn on_host_event(&mut self, event: HostEvent, now: Now) {
        let HostEvent::NodeMessages { node, metrics } = event else { return };
        let address = Address { group: node.group.to_string(), node: node.edge_node.to_string() };
        for metric in &metrics {
            match HostMessage::from_metric(metric) {
                Ok(Some(message)) => self.on_message(&address, message, now),
                Ok(None) => {}
                Err(_) => self.counters.ignore("metric"),
            }
        }
    }

    fn on_message(&mut self, address: &Address, message: HostMessage, now: Now) {
        match message {
            HostMessage::Hello(hello) => self.on_hello(address, &hello, now),
            HostMessage::Evidence(evidence) => self.on_evidence(address, &evidence, now),
            HostMessage::Progress(progress) => self.on_progress(address, progress, now),
            HostMessage::Acknowledgement(acknowledgement) => self.on_acknowledgement(address, acknowledgement, now),
        }
    }

    fn send(&mut self, address: &Address, message: &IssuerMessage) {
        self.effects.extend(to_host(address, message));
    }

    fn run(&mut self, work: Work, operations: Vec<Operation>, then: Effects<Unsaved, Effect>) {
        self.transactions += 1;
        let id = self.transactions;
        self.work.insert(id, work);
        self.effects.push(Effect::Run(Transaction { id, operations, then }));
    }

    /// Randomness for one step.
    fn draw(&mut self) -> Secret {
        self.draws += 1;
        self.entropy.derive("join-service step", &self.draws.to_be_bytes())
    }

    fn draw_entropy(&mut self) -> Entropy {
        Entropy::new(*self.draw().expose())
    }

    fn note_error(&mut self, error: &StoreError) {
        self.store_error = Some(error.to_string());
    }
}

/// None: the address is not a Sparkplug address, so no client can have spoken from it.
fn to_host(address: &Address, message: &IssuerMessage) -> Option<Effect> {
    let node = EdgeNodeDescriptor::parse(&address.group, &address.node).ok()?;
    let metrics = vec![message.to_metric()];
    Some(Effect::Host(HostRequest::Command { node, device: None, metrics }))
}

/// Asks a host for a birth, which has all its messages. None: as above.
fn rebirth(address: &Address) -> Option<Effect> {
    let node = EdgeNodeDescriptor::parse(&address.group, &address.node).ok()?;
    Some(Effect::Host(HostRequest::Rebirth { node }))
}

fn issuer_policy(settings: &Settings, policy: &ActivePolicy, cluster_id: Hash) -> IssuerPolicy {
    IssuerPolicy {
        cluster: settings.cluster_uuid,
        group: settings.join_group.clone(),
        kinds: KINDS.to_vec(),
        suites: vec![Suite::XWing, Suite::X25519],
        variants: policy.variants(),
        policy_epoch: policy.epoch(),
        locked_to: Some(cluster_id),
    }
}

fn issuer_keys(keys: &dyn KeyProvider, epoch: u64) -> IssuerKeys {
    let number = |epoch: u64| u32::try_from(epoch).unwrap_or(u32::MAX);
    let (current, previous) = (number(epoch), number(epoch.saturating_sub(1)));
    IssuerKeys::new((current, &keys.issuer_epoch(current)), Some((previous, &keys.issuer_epoch(previous))))
}
