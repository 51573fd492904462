//! Hosts that join a cluster: what its join service keeps in Kubernetes, and machines that may be in, and such that may not.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use join_protocol::terms::{Address, Kind, Role as JoinRole};
use join_service::event::Effect;
use uuid::Uuid;

use crate::join_site::host::SimHost;
use crate::join_site::store::MemoryStore;
use crate::model::ids::ProcessId;
use crate::model::names::group;

/// Replicas of a join service.
pub const REPLICAS: u8 = 2;

/// What a machine is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// May be in.
    Worker,
    /// May be in as a control plane.
    ControlPlane,
    /// No one enrolled it.
    Unknown,
    /// Enrolled, with another boot chain.
    Changed,
    /// Enrolled, and revoked in every policy.
    Barred,
}

/// The machines of a cluster.
pub(crate) const PARTS: [Part; 6] =
    [Part::Worker, Part::Worker, Part::ControlPlane, Part::Unknown, Part::Changed, Part::Barred];

/// A machine, and what survives its resets.
#[derive(Debug, Clone)]
pub struct HostMachine(Arc<Mutex<SimHost>>);

impl fmt::Debug for SimHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimHost").field("number", &self.number).finish_non_exhaustive()
    }
}

impl HostMachine {
    /// It, for a moment.
    pub fn lock(&self) -> MutexGuard<'_, SimHost> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Joining in one cluster.
#[derive(Debug, Default)]
pub struct JoinSite {
    /// The part of the Kubernetes API that the join service uses.
    pub store: MemoryStore,
    /// Its machines by number, with what they are.
    pub hosts: BTreeMap<u64, (Part, HostMachine)>,
    /// Numbers of the workers that the last policy revokes.
    pub revoked: BTreeSet<u64>,
    /// A policy was signed.
    pub has_policy: bool,
    /// Changes of the store that the checks have seen.
    pub checked: u64,
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").field("changes", &self.changes).finish_non_exhaustive()
    }
}

/// What the Kubernetes API has to do for a replica.
#[derive(Debug)]
pub struct JoinWork {
    pub(crate) replica: ProcessId,
    pub(crate) life: u64,
    pub(crate) effect: Effect,
}

/// Quarantine group of a cluster.
#[must_use]
pub fn join_group(name: &str) -> String {
    format!("{}-Join", group(name))
}

/// A machine of a cluster.
pub(crate) fn machine(part: Part, number: u64, cluster: Uuid, name: &str) -> HostMachine {
    let role = if part == Part::ControlPlane { JoinRole::ControlPlane } else { JoinRole::Worker };
    let mut host = SimHost::new(number, role);
    host.settings.address = Address::of_disk(join_group(name), host.disk);
    host.settings.anchor.cluster = cluster;
    HostMachine(Arc::new(Mutex::new(host)))
}

/// A machine starts: its PCRs are those of a fresh boot, and it remembers nothing but that it has been in.
pub fn power_on(part: Part, host: &mut SimHost) {
    host.reboot(if host.disk_keys.is_empty() { Kind::Join } else { Kind::Rejoin });
    if part == Part::Changed {
        host.tpm.extend(4, &[3; 32]);
    }
}
