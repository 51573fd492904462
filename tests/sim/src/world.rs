//! The whole fleet in one thread and in virtual time: processes, their machines, the network, the broker, clusters and disks; one queue of what happens next.
//!
//! A step takes the earliest thing: a queued happening, or the deadline of a machine or a program. Everything that follows at the same moment follows in the same step.
//! After each step the checks of [`crate::invariants`] are made. Nothing here decides what a service does.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::signature::EcdsaKeyPair;
use sparkplug::edge_node::{EdgeNode, EdgeNodeConfig, NodeEvent, NodeUpdate, OtherSpeaker, Speaker, UpdateError};
use sparkplug::host::{HostApplication, HostConfig, HostRequest};
use sparkplug::{Metric, Now};

use crate::join_site::wire::Wire;
use crate::model::broker::Broker;
use crate::model::checks::{Checks, Violation};
use crate::model::disk::Disk;
use crate::model::endpoint::{Endpoint, EndpointOutput, Machine, Side};
use crate::model::enrolment::{Applicant, Enrolments};
use crate::model::git::Git;
use crate::model::happening::Happening;
use crate::model::ids::{ClusterId, ProcessId};
use crate::model::joins::JoinSite;
use crate::model::kubernetes::Cluster;
use crate::model::mutation::Mutation;
use crate::model::network::Network;
use crate::model::people::People;
use crate::model::process::Process;
use crate::model::program::{Action, Boot, Input};
use crate::model::random::Random;
use crate::model::role::Role;
use crate::model::script::Script;

/// The world.
#[derive(Debug)]
pub struct World {
    /// Monotonic time.
    pub mono: Duration,
    /// UTC ms at `mono` zero, jumps included.
    pub wall_base: u64,
    /// All chance.
    pub random: Random,
    /// Processes.
    pub processes: BTreeMap<ProcessId, Process>,
    /// Clusters.
    pub clusters: BTreeMap<ClusterId, Cluster>,
    /// What of clusters belongs to joining, where hosts join.
    pub joins: BTreeMap<ClusterId, JoinSite>,
    /// What of clusters belongs to Kerberos keys, where there are any.
    pub key_sites: BTreeMap<ClusterId, crate::model::keys::KeySite>,
    /// Clusters have Kerberos keys.
    pub with_keys: bool,
    /// Attestation policies that were signed so far.
    pub policies: u64,
    /// Who asks over HTTP.
    pub people: People,
    /// Clusters that enrol.
    pub enrolments: Enrolments,
    /// Keys of those who ask.
    pub keys: BTreeMap<(ClusterId, Applicant), Arc<EcdsaKeyPair>>,
    /// Clusters enrol, and hosts join them.
    pub with_joins: bool,
    /// What the broker carried for hosts that join.
    pub join_wire: Wire,
    /// Repositories on the cluster manager's disk.
    pub git: Git,
    /// The MQTT server.
    pub broker: Broker,
    /// Connections.
    pub network: Network,
    /// What people want, and what became of it.
    pub script: Script,
    /// Checks and what they remember.
    pub checks: Checks,
    /// What is wrong on purpose.
    pub mutation: Option<Mutation>,
    /// Crashes happen at any point of a turn, so many of a million.
    pub crash_per_million: u64,
    /// Steps taken.
    pub steps: u64,
    /// Lines of the trace, if one is wanted.
    pub trace: Option<Vec<String>>,
    /// Operators adopt deployments also where another one has the name.
    pub adopts_taken_names: bool,
    /// ConfigDB's store is restored, rolled back and replaced.
    pub restores: bool,
    /// Wall clocks of machines are wrong, by so many milliseconds at most.
    pub skew_max: u64,
    /// Clusters whose machines are set up again soon.
    pub(crate) order_bootstrap: Vec<uuid::Uuid>,
    queue: BTreeMap<(Duration, u64), Happening>,
    order: u64,
    next_process: u32,
    digest: u64,
}

/// Adds a line to the trace, and to nothing if there is none.
macro_rules! trace {
    ($world:expr, $($arg:tt)*) => {
        if $world.trace.is_some() {
            let line = format!($($arg)*);
            $world.note(line);
        }
    };
}
pub(crate) use trace;

impl World {
    /// An empty world.
    #[must_use]
    pub fn new(seed: u64, mutation: Option<Mutation>, is_traced: bool) -> Self {
        let mut random = Random::new(seed);
        let wall_base = 1_760_000_000_000 + random.below(1_000_000_000);
        Self {
            mono: Duration::ZERO,
            wall_base,
            random,
            processes: BTreeMap::new(),
            clusters: BTreeMap::new(),
            joins: BTreeMap::new(),
            key_sites: BTreeMap::new(),
            with_keys: false,
            people: People::default(),
            policies: 0,
            enrolments: Enrolments::default(),
            keys: BTreeMap::new(),
            with_joins: false,
            join_wire: Wire::default(),
            git: Git::default(),
            broker: Broker::default(),
            network: Network::default(),
            script: Script::default(),
            checks: Checks::default(),
            mutation,
            crash_per_million: 0,
            steps: 0,
            trace: is_traced.then(Vec::new),
            adopts_taken_names: false,
            restores: false,
            skew_max: 0,
            order_bootstrap: Vec::new(),
            queue: BTreeMap::new(),
            order: 0,
            next_process: 0,
            digest: 0,
        }
    }

    /// Both clocks.
    #[must_use]
    pub fn now(&self) -> Now {
        let elapsed = u64::try_from(self.mono.as_millis()).unwrap_or(u64::MAX);
        Now::new(self.mono, self.wall_base.saturating_add(elapsed))
    }

    /// Both clocks as a process sees them: the wall clock of its machine may be wrong.
    #[must_use]
    pub fn now_of(&self, id: ProcessId) -> Now {
        let now = self.now();
        let skew = self.processes.get(&id).map_or(0, |process| process.skew);
        Now::new(now.mono, now.wall.saturating_add_signed(skew))
    }

    /// Digest of everything that happened: equal for two runs of one seed.
    #[must_use]
    pub const fn digest(&self) -> u64 {
        self.digest
    }

    /// Queues something.
    pub fn at(&mut self, when: Duration, what: Happening) {
        self.order += 1;
        self.queue.insert((when.max(self.mono), self.order), what);
    }

    /// Queues something for later.
    pub fn after(&mut self, delay: Duration, what: Happening) {
        self.at(self.mono + delay, what);
    }

    /// A process that starts at once.
    pub fn add_process(&mut self, role: Role, disk: Disk) -> ProcessId {
        self.next_process += 1;
        let id = ProcessId(self.next_process);
        let skew = self.skew_of_machine(role.cluster());
        let process = Process {
            role,
            life: 0,
            program: None,
            endpoints: BTreeMap::new(),
            disk,
            partitioned_until: None,
            paused_until: None,
            is_second: false,
            skew,
            spins: (Duration::ZERO, 0),
            due: None,
        };
        self.processes.insert(id, process);
        self.after(Duration::ZERO, Happening::Start(id));
        id
    }

    /// The process with a role.
    #[must_use]
    pub fn process_of(&self, wanted: &Role) -> Option<ProcessId> {
        self.processes.iter().find(|(_, process)| process.role == *wanted && !process.is_second).map(|(id, _)| *id)
    }

    /// All processes with a role, second ones included.
    #[must_use]
    pub fn processes_of(&self, wanted: &Role) -> Vec<ProcessId> {
        self.processes.iter().filter(|(_, process)| process.role == *wanted).map(|(id, _)| *id).collect()
    }

    /// Takes one step; false if nothing is left to happen before `until`.
    ///
    /// # Errors
    /// A check failed.
    pub fn step(&mut self, until: Duration) -> Result<bool, Violation> {
        let queued = self.queue.first_key_value().map(|((when, _), _)| *when);
        let due = self.earliest_deadline();
        let when = match (queued, due) {
            (Some(queued), Some((at, ..))) => queued.min(at),
            (Some(queued), None) => queued,
            (None, Some((at, ..))) => at,
            (None, None) => return Ok(false),
        };
        if when > until {
            self.mono = until;
            return Ok(false);
        }
        self.mono = self.mono.max(when);
        self.steps += 1;
        if queued.is_some_and(|queued| queued <= when) {
            if let Some((_, what)) = self.queue.pop_first() {
                self.happen(what);
            }
        } else if let Some((_, process, side)) = due {
            self.deadline(process, side)?;
        }
        Checks::after_step(self)?;
        Ok(true)
    }

    /// Steps until `until`.
    ///
    /// # Errors
    /// A check failed.
    pub fn run_until(&mut self, until: Duration) -> Result<(), Violation> {
        while self.step(until)? {}
        self.mono = self.mono.max(until);
        Ok(())
    }

    /// Adds a line to the trace.
    pub fn note(&mut self, line: String) {
        let stamp = self.mono.as_secs_f64();
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{stamp:12.6} {line}"));
        }
    }

    fn happen(&mut self, what: Happening) {
        match what {
            Happening::Packet(session, packet) => self.on_packet(session, packet),
            Happening::Input(process, life, input) => {
                if let Some(until) = self.processes.get(&process).and_then(|process| process.paused_until) {
                    return self.at(until, Happening::Input(process, life, input));
                }
                if self.processes.get(&process).is_some_and(|process| process.life == life) {
                    self.turn(process, *input);
                }
            }
            Happening::Kubernetes(cluster, work) => self.on_kubernetes(cluster, *work),
            Happening::Git(process, life, work) => self.on_git(process, life, *work),
            Happening::Keys(site, process, life, work) => self.on_keys(site, process, life, *work),
            Happening::Join(site, work) => self.on_join_work(site, *work),
            Happening::Start(process) => self.start(process),
            Happening::Remove(process) => {
                self.stop(process, false);
                if let Some(gone) = self.processes.remove(&process) {
                    self.store_is_gone(&gone.disk);
                }
            }
            Happening::Transition(transition) => self.on_transition(transition),
        }
    }

    /// The earliest deadline of any machine or program: when, whose, and of which machine (None: the program's).
    fn earliest_deadline(&mut self) -> Option<(Duration, ProcessId, Option<Side>)> {
        let mut earliest: Option<(Duration, ProcessId, Option<Side>)> = None;
        for (id, process) in self.processes.iter_mut().filter(|(_, process)| process.paused_until.is_none()) {
            if process.due.is_none() {
                process.due = Some(process.next_deadline());
            }
            if let Some(Some((at, side))) = process.due
                && earliest.as_ref().is_none_or(|(known, ..)| at < *known)
            {
                earliest = Some((at, *id, side));
            }
        }
        earliest
    }

    fn deadline(&mut self, id: ProcessId, side: Option<Side>) -> Result<(), Violation> {
        let now = self.now_of(id);
        let Some(process) = self.processes.get_mut(&id) else { return Ok(()) };
        if process.spins.0 == now.mono {
            process.spins.1 += 1;
            if process.spins.1 > 1_000 {
                let who = format!("{} ({side:?})", process.role);
                return Err(Violation::new("time-advances", format!("{who} is due again and again at the same time")));
            }
        } else {
            process.spins = (now.mono, 0);
        }
        match side {
            None => self.turn(id, Input::Timer),
            Some(side) => {
                if let Some(endpoint) = process.endpoints.get_mut(&side) {
                    endpoint.handle_timeout(now);
                    self.pump(id, side);
                }
            }
        }
        Ok(())
    }

    /// Carries out what a machine gives out.
    pub fn pump(&mut self, id: ProcessId, side: Side) {
        loop {
            let Some(process) = self.processes.get_mut(&id) else { return };
            process.due = None;
            let life = process.life;
            let Some(endpoint) = process.endpoints.get_mut(&side) else { return };
            let Some(output) = endpoint.poll() else { return };
            let input = match output {
                EndpointOutput::Transport(action) => {
                    self.on_action(id, side, action);
                    continue;
                }
                EndpointOutput::Node(NodeEvent::Displaced(other)) => return self.displaced(id, &other),
                EndpointOutput::Node(event) => {
                    let role = process.role.clone();
                    let Some(event) = self.mislead(&role, event) else { continue };
                    Input::Node(event)
                }
                EndpointOutput::Host(event) => {
                    let fault = endpoint.replica.fault.as_deref();
                    self.checks.on_host_event(id, &event, fault, self.mono);
                    Input::Host(event)
                }
            };
            // Events wait a moment in a channel, in order.
            let at = self.mono + self.random.millis(0..3);
            let Some(endpoint) = self.processes.get_mut(&id).and_then(|p| p.endpoints.get_mut(&side)) else { return };
            endpoint.events_at = endpoint.events_at.max(at);
            let at = endpoint.events_at;
            self.at(at, Happening::Input(id, life, Box::new(input)));
        }
    }

    /// Another process of its role stays: this one ends, and its supervisor starts it again.
    fn displaced(&mut self, id: ProcessId, other: &OtherSpeaker) {
        trace!(self, "{} ends: {other}", self.processes[&id].role);
        self.stop(id, true);
        let again = self.random.millis(5_000..20_000);
        self.after(again, Happening::Start(id));
    }

    /// One turn of a program: the state decides and commits, then the actions are carried out; a crash may come before each of them.
    pub fn turn(&mut self, id: ProcessId, input: Input) {
        let now = self.now_of(id);
        let Some(process) = self.processes.get_mut(&id) else { return };
        let Some(mut program) = process.program.take() else { return };
        process.due = None;
        let (life, role) = (process.life, process.role.clone());
        if self.trace.is_some() && !matches!(input, Input::Timer) {
            let text: String = format!("{input:?}").chars().take(400).collect();
            trace!(self, "{role} <- {text}");
        }
        let actions = program.on_input(input, now);
        if let Some(process) = self.processes.get_mut(&id) {
            process.program = Some(program);
        }
        for action in actions {
            if self.is_crash_due(&role) {
                trace!(self, "{role} crashes between commit and execution");
                self.crash(id);
                return;
            }
            self.execute(id, action);
            if self.processes.get(&id).is_none_or(|process| process.life != life || process.program.is_none()) {
                return;
            }
        }
    }

    pub(crate) fn is_crash_due(&mut self, role: &Role) -> bool {
        self.crash_per_million > 0 && role.is_service() && self.random.below(1_000_000) < self.crash_per_million
    }

    pub(crate) fn execute(&mut self, id: ProcessId, action: Action) {
        let now = self.now_of(id);
        if self.trace.is_some() {
            let text: String = format!("{action:?}").chars().take(400).collect();
            let role = self.processes[&id].role.clone();
            trace!(self, "{role} -> {text}");
        }
        let Some(process) = self.processes.get_mut(&id) else { return };
        match action {
            Action::Birth(config, metrics) => self.start_node(id, *config, metrics),
            Action::Node(update) => self.execute_node(id, update),
            Action::Host(request) => {
                let Some(Endpoint { machine: Machine::Host(host), replica, .. }) =
                    process.endpoints.get_mut(&Side::Host)
                else {
                    return;
                };
                match &request {
                    HostRequest::Forget { node } => {
                        replica.forget(node);
                        self.checks.on_forget(id, node);
                    }
                    HostRequest::Expect { node } => replica.expect(node),
                    _ => {}
                }
                host.request(request, now);
                self.pump(id, Side::Host);
            }
            Action::Sync(effect) => self.ask_kubernetes(id, effect),
            Action::Join(effect) => self.execute_join(id, *effect),
            Action::Keys(effect) => self.ask_for_keys(id, *effect),
            Action::Git(work) => {
                let life = process.life;
                let lag = self.random.millis(1..200);
                self.after(lag, Happening::Git(id, life, Box::new(work)));
            }
            Action::Answer(answer) => self.on_answer(&answer),
            Action::Exit { again_after } => {
                self.stop(id, true);
                if let Some(after) = again_after {
                    self.after(after, Happening::Start(id));
                }
            }
        }
    }

    /// Gives the Edge Node of a process an update.
    pub fn execute_node(&mut self, id: ProcessId, update: NodeUpdate) {
        let now = self.now_of(id);
        let Some(process) = self.processes.get_mut(&id) else { return };
        let Some(Endpoint { machine: Machine::Node(node), .. }) = process.endpoints.get_mut(&Side::Node) else {
            return;
        };
        if let Err(error) = node.update(update, now)
            && error != UpdateError::Stopped
        {
            let role = process.role.clone();
            self.checks.refused(&role, &error.to_string());
        }
        self.pump(id, Side::Node);
    }

    pub(crate) fn start(&mut self, id: ProcessId) {
        let now = self.now_of(id);
        let seed = self.random.number();
        let Some(process) = self.processes.get_mut(&id) else { return };
        if process.program.is_some() {
            return;
        }
        process.life += 1;
        process.due = None;
        process.paused_until = None;
        let (role, disk) = (process.role.clone(), process.disk.clone());
        trace!(self, "{role} starts");
        let Boot { program, node, host, actions } = crate::fleet::boot(&role, &disk, self, seed, now);
        let Some(process) = self.processes.get_mut(&id) else { return };
        process.program = Some(program);
        if let Some(config) = host {
            self.start_host(id, config);
        }
        if let Some((config, metrics)) = node {
            self.start_node(id, config, metrics);
        }
        for action in actions {
            self.execute(id, action);
        }
        self.watch_kubernetes(id);
    }

    /// Starts the Host Application of a process.
    pub fn start_host(&mut self, id: ProcessId, config: HostConfig) {
        let now = self.now_of(id);
        let Some(process) = self.processes.get_mut(&id) else { return };
        process.due = None;
        let client_id = format!("{} host {}", process.role, id.0);
        let filters = config.filters.iter().map(|(filter, _)| filter.clone()).collect();
        let machine = Machine::Host(Box::new(HostApplication::new(config, now)));
        process.endpoints.insert(Side::Host, Endpoint { filters, ..Endpoint::new(machine, client_id) });
        self.pump(id, Side::Host);
    }

    /// Starts the Edge Node of a process.
    pub fn start_node(&mut self, id: ProcessId, config: EdgeNodeConfig, metrics: Vec<Metric>) {
        let now = self.now_of(id);
        let Some(process) = self.processes.get_mut(&id) else { return };
        let named = |speaker| Speaker {
            instance: format!("{}-{}", id.0, process.life).into(),
            host: process.role.to_string().into(),
            ..speaker
        };
        let is_nameless = self.mutation == Some(Mutation::NobodyObjects);
        let speaker = config.speaker.filter(|_| !is_nameless).map(named);
        let config = EdgeNodeConfig { bd_seq: process.disk.bd_seq(), speaker, ..config };
        let client_id = format!("{} node {}", config.descriptor, id.0);
        let descriptor = Some(config.descriptor.clone());
        match EdgeNode::new(config, metrics, now) {
            Ok(node) => {
                let endpoint = Endpoint::new(Machine::Node(Box::new(node)), client_id);
                process.endpoints.insert(Side::Node, Endpoint { descriptor, ..endpoint });
                self.pump(id, Side::Node);
            }
            Err(error) => {
                let role = process.role.clone();
                self.checks.refused(&role, &error.to_string());
            }
        }
    }

    /// The process ends: in good order, or killed so that the operating system closes its sockets.
    pub fn stop(&mut self, id: ProcessId, in_good_order: bool) {
        let Some(process) = self.processes.get_mut(&id) else { return };
        process.program = None;
        process.life += 1;
        self.end_sessions(id, in_good_order);
    }

    /// Both sessions of a process end.
    pub(crate) fn end_sessions(&mut self, id: ProcessId, in_good_order: bool) {
        let Some(process) = self.processes.get_mut(&id) else { return };
        process.due = None;
        self.checks.on_end(id);
        let endpoints = std::mem::take(&mut process.endpoints);
        let cut_off = process.partitioned_until.is_some();
        for (_, mut endpoint) in endpoints {
            if in_good_order {
                self.farewell(&mut endpoint);
            }
            if let Some(session) = endpoint.session {
                self.network_gone(session, cut_off);
            }
        }
    }

    /// The process is killed and starts again.
    pub fn crash(&mut self, id: ProcessId) {
        self.checks.crashes += 1;
        self.stop(id, false);
        let down = self.random.millis(200..20_000);
        self.after(down, Happening::Start(id));
    }

    /// Adds to the digest of the run.
    pub fn mix(&mut self, part: u64) {
        self.digest = (self.digest ^ part).wrapping_mul(0x0100_0000_01B3).rotate_left(17);
    }

    /// Processes that run a service.
    pub fn services(&self) -> Vec<ProcessId> {
        self.processes.iter().filter(|(_, process)| process.role.is_service()).map(|(id, _)| *id).collect()
    }

    /// All present clusters.
    pub fn cluster_ids(&self) -> BTreeSet<ClusterId> {
        self.clusters.keys().copied().collect()
    }
}
