//! What the cluster manager plans, a controller each. A controller owns its state. It reads what it needs of the fleet from the
//! [`FleetView`](crate::fleet::FleetView), and is given what it needs of another controller. It returns what it wants done.
//!
//! | controller | decides |
//! |---|---|
//! | [`accounts`] | which accounts ConfigDB has for a cluster's principals, and what its Keys node is answered |
//! | [`attestation_policy`] | which policy each cluster's Join is sent |
//! | [`bootstrap_grants`] | to which tokens each cluster's bootstrap script is offered |
//! | [`cluster_repositories`] | what each cluster's repository shall hold, and whether it may change and has settled |
//! | [`deployments`] | what each cluster shall run: rendered, held by waves, sent to its Sync |
//! | [`flux_sources`] | which commits each cluster's Sync is sent |
//! | [`git_copies`] | what the git server's copies of repositories shall be, and what they lack |
//! | [`git_pushes`] | what the pushes are answered that the git server has received |
//! | [`git_users`] | what users may do over git |
//! | [`logins`] | which logins of repositories are sealed to Identity |
//! | [`principals`] | which principals of the clusters' own accounts the KDC knows |
//! | [`setups`] | which step of its set-up or tear-down each cluster takes next, and its status entry |
//! | [`shared_repositories`] | which shared repositories are served, and pulled from elsewhere |
//!
//! What all of them are asked for in the same way is [`Controller`]. The order in which a cluster goes through them is in `state/run.rs`.

pub(crate) mod accounts;
pub(crate) mod attestation_policy;
pub(crate) mod bootstrap_grants;
pub(crate) mod cluster_repositories;
pub(crate) mod deployments;
pub(crate) mod flux_sources;
pub(crate) mod git_copies;
pub(crate) mod git_pushes;
pub(crate) mod git_users;
pub(crate) mod logins;
pub(crate) mod principals;
pub(crate) mod setups;
pub(crate) mod shared_repositories;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use sparkplug::Now;
use sparkplug::backoff::Backoff;
use sparkplug::replication::Pace;
use uuid::Uuid;

use crate::event::Effect;

/// What all controllers of clusters are asked for in the same way. Their `reconcile` differs, because each is given what it needs.
pub(crate) trait Controller {
    /// An operator wants everything of a cluster tried, and sent, again at once.
    fn retry(&mut self, _uuid: Uuid) {}

    /// The first moment after `now` at which a cluster has to be looked at without an event, `Now::mono`.
    fn next_deadline(&self, _uuid: Uuid, _now: Now) -> Option<Duration> {
        None
    }

    /// Everything about ConfigDB is learnt again. What is under way stays so.
    fn clear(&mut self) {}

    /// Everything has been learnt again, and only these clusters are left.
    fn retain(&mut self, _is_left: &dyn Fn(&Uuid) -> bool) -> Vec<Effect> {
        Vec::new()
    }

    /// The cluster is gone.
    fn forget(&mut self, _uuid: Uuid) -> Forgotten {
        Forgotten::default()
    }
}

/// What follows when a cluster is gone.
#[derive(Debug, Default)]
pub(crate) struct Forgotten {
    /// What is to be done.
    pub effects: Vec<Effect>,
    /// Clusters that may go on by that.
    pub released: Vec<Uuid>,
}

/// When each cluster or repository is looked at without an event, `Now::mono`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Deadlines {
    of: BTreeMap<Uuid, Duration>,
    in_order: BTreeSet<(Duration, Uuid)>,
}

impl Deadlines {
    /// The first of all.
    pub(crate) fn first(&self) -> Option<Duration> {
        self.in_order.first().map(|(at, _)| *at)
    }

    /// The one of that cluster or repository; None: it has none.
    pub(crate) fn set(&mut self, uuid: Uuid, at: Option<Duration>) {
        let before = match at {
            Some(at) => self.of.insert(uuid, at),
            None => self.of.remove(&uuid),
        };
        self.in_order.extend(at.map(|at| (at, uuid)));
        if let Some(before) = before.filter(|before| Some(*before) != at) {
            self.in_order.remove(&(before, uuid));
        }
    }

    /// One that is later, or none, becomes this one.
    pub(crate) fn set_at_latest(&mut self, uuid: Uuid, at: Duration) {
        if self.of.get(&uuid).is_none_or(|before| *before > at) {
            self.set(uuid, Some(at));
        }
    }

    /// Takes one that has passed, the earliest first.
    pub(crate) fn pop_due(&mut self, now: Now) -> Option<Uuid> {
        let (_, uuid) = self.in_order.first().copied().filter(|(at, _)| *at <= now.mono)?;
        self.set(uuid, None);
        Some(uuid)
    }

    /// There are none any more.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

/// How often something is tried or sent again, for any cluster.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pacing {
    /// First and longest wait.
    pub retry: (Duration, Duration),
    /// Of this process.
    pub seed: u64,
}

impl Pacing {
    /// Another seed for each cluster and `purpose`, so that many clusters are not served at the same moment.
    fn seed_of(&self, uuid: Uuid, purpose: u32) -> u64 {
        (self.seed ^ uuid.as_u64_pair().1).rotate_left(purpose)
    }

    /// For what is sent.
    pub(crate) fn of(&self, uuid: Uuid, purpose: u32) -> Pace {
        Pace { first: self.retry.0, longest: self.retry.1, seed: self.seed_of(uuid, purpose) }
    }

    /// For what may fail.
    pub(crate) fn wait(&self, uuid: Uuid, purpose: u32) -> Wait {
        Wait::new(self.retry, self.seed_of(uuid, purpose))
    }
}

/// Waits after a failure, longer each time.
#[derive(Debug, Clone)]
pub(crate) struct Wait {
    backoff: Backoff,
    until: Option<Duration>,
    reason: Option<String>,
}

impl Wait {
    /// No failure yet.
    pub(crate) fn new(retry: (Duration, Duration), seed: u64) -> Self {
        Self { backoff: Backoff::new(retry, seed), until: None, reason: None }
    }

    /// It worked.
    pub(crate) fn succeeded(&mut self) {
        self.until = None;
        self.reason = None;
        self.backoff.reset();
    }

    /// It did not work.
    pub(crate) fn failed(&mut self, reason: String, now: Now) {
        self.until = Some(now.mono + self.backoff.next_delay());
        self.reason = Some(reason);
    }

    /// Something changed: the next try need not wait.
    pub(crate) const fn retry_now(&mut self) {
        self.until = None;
    }

    /// Until when something is waited for.
    pub(crate) const fn until(&self) -> Option<Duration> {
        self.until
    }

    /// Why it did not work last.
    pub(crate) fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }

    /// Nothing is waited for.
    pub(crate) fn is_over(&self, now: Now) -> bool {
        self.until.is_none_or(|until| until <= now.mono)
    }
}
