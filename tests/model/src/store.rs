//! ConfigDB's store as far as the protocol depends on it: a log of transactions, an identity, and the timelines of the runs that wrote it.

use std::collections::BTreeSet;

use edge_sync_contract::Digest;
use sparkplug::replication::{Origin, Point, Timelines};
use uuid::Uuid;

/// A deployment: the first is 0.
pub type Deployment = u8;

/// What a transaction does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Change {
    /// An operator writes a deployment.
    Put(Deployment),
    /// An operator deletes a deployment.
    Delete(Deployment),
    /// Something that changes no desired state, for example a status entry of the cluster manager.
    Status,
    /// An operator's decision that the cluster follows this store.
    Release {
        /// The store that it was made for.
        store: Uuid,
        /// The epoch that the cluster is released to.
        epoch: u64,
        /// The state of the store that was compared with the edge.
        seen: Point,
        /// Deployments that the operator saw at the edge alone and lets it delete, a bit each; none where they were written back before.
        discards: u8,
        /// Digest of the index that the edge had accepted then.
        accepted: Option<Digest>,
    },
}

/// A transaction. No two have the same id, whatever store they are in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Transaction {
    /// Unique.
    pub id: u8,
    /// What it does.
    pub change: Change,
}

/// A store.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Store {
    /// Its identity.
    pub identity: Uuid,
    /// The runs that wrote it.
    pub timelines: Timelines,
    /// What was written.
    pub log: Vec<Transaction>,
}

impl Store {
    /// An empty store, written by its first run.
    #[must_use]
    pub fn new(identity: u8, timeline: u64) -> Self {
        let mut timelines = Timelines::default();
        timelines.begin(timeline, 0);
        Self { identity: Uuid::from_u128(identity.into()), timelines, log: Vec::new() }
    }

    /// Number of the last transaction.
    #[must_use]
    pub const fn revision(&self) -> u64 {
        self.log.len() as u64
    }

    /// The store as it was at a revision, and started again: what a restored backup is.
    #[must_use]
    pub fn restored(&self, revision: usize, timeline: u64) -> Self {
        let mut store = self.clone();
        store.log.truncate(revision);
        store.timelines.begin(timeline, store.revision());
        store
    }

    /// What is desired.
    #[must_use]
    pub fn deployments(&self) -> BTreeSet<Deployment> {
        let mut deployments = BTreeSet::new();
        for transaction in &self.log {
            match transaction.change {
                Change::Put(deployment) => drop(deployments.insert(deployment)),
                Change::Delete(deployment) => drop(deployments.remove(&deployment)),
                Change::Status | Change::Release { .. } => {}
            }
        }
        deployments
    }

    /// Digest of what the edge had accepted at the last decision for this store.
    #[must_use]
    pub fn decided_for(&self) -> Option<Digest> {
        self.log.iter().rev().find_map(|transaction| match transaction.change {
            Change::Release { store, accepted, .. } if store == self.identity => Some(accepted),
            _ => None,
        })?
    }

    /// Epoch of the last decision for this store.
    #[must_use]
    pub fn release(&self) -> Option<u64> {
        self.log.iter().rev().find_map(|transaction| match transaction.change {
            Change::Release { store, epoch, .. } if store == self.identity => Some(epoch),
            _ => None,
        })
    }

    /// Where a desired state comes from that is derived from this store.
    #[must_use]
    pub fn origin(&self) -> Option<Origin> {
        let epoch = self.release().unwrap_or(0);
        Some(Origin { store: self.identity, epoch, point: self.timelines.at(self.revision())? })
    }

    /// The state that it is in.
    #[must_use]
    pub fn state(&self) -> Option<Point> {
        self.timelines.at(self.revision())
    }

    /// Whether it contains a state, so that a request may be judged that was made for it.
    #[must_use]
    pub fn contains(&self, state: Point) -> bool {
        self.timelines.contain(state, self.revision())
    }

    /// The last state in this store of the timeline of a state that an edge accepted.
    #[must_use]
    pub fn follows(&self, accepted: Origin) -> Option<Point> {
        (self.identity == accepted.store)
            .then(|| self.timelines.last_of(accepted.point.timeline, self.revision()))
            .flatten()
    }
}
