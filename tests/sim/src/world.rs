//! The world of a run: processes, their machines, the network, the broker, clusters and disks; both clocks, chance, the trace, and one queue of what happens next.
//!
//! What happens is not decided here: [`crate::steps`] act on a world, [`crate::invariants`] read it, and [`crate::scheduler`] takes one step after the other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::signature::EcdsaKeyPair;
use sparkplug::Now;

use crate::join_site::wire::Wire;
use crate::model::broker::Broker;
use crate::model::checks::Checks;
use crate::model::disk::Disk;
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
use crate::model::pushing::Pushing;
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
    /// Clusters have sealed secrets.
    pub with_secrets: bool,
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
    /// There is a git server.
    pub with_git: bool,
    /// What is between the cluster manager and the git server.
    pub pushing: Pushing,
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
            with_secrets: false,
            people: People::default(),
            policies: 0,
            enrolments: Enrolments::default(),
            keys: BTreeMap::new(),
            with_joins: false,
            join_wire: Wire::default(),
            git: Git::default(),
            with_git: false,
            pushing: Pushing::default(),
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

    /// When the next thing is due that is queued.
    pub(crate) fn next_queued(&self) -> Option<Duration> {
        self.queue.first_key_value().map(|((when, _), _)| *when)
    }

    /// The next thing that is queued.
    pub(crate) fn take_queued(&mut self) -> Option<Happening> {
        self.queue.pop_first().map(|(_, what)| what)
    }

    /// The processes at a cluster's edge.
    pub fn processes_at(&self, site: ClusterId) -> Vec<ProcessId> {
        let at_site = self.processes.iter().filter(|(_, process)| process.role.cluster() == Some(site));
        at_site.map(|(id, _)| *id).collect()
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

    /// How wrong the wall clock of a machine is: the same for all processes on it.
    pub(crate) fn skew_of_machine(&mut self, site: Option<ClusterId>) -> i64 {
        let neighbour = self.processes.values().find(|process| site.is_some() && process.role.cluster() == site);
        if let Some(neighbour) = neighbour {
            return neighbour.skew;
        }
        let skew = i64::try_from(self.random.below(self.skew_max.saturating_mul(2).max(1))).unwrap_or_default();
        skew - i64::try_from(self.skew_max).unwrap_or_default()
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

    /// Adds a line to the trace.
    pub fn note(&mut self, line: String) {
        let stamp = self.mono.as_secs_f64();
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{stamp:12.6} {line}"));
        }
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
