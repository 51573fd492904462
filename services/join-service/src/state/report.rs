//! What has been said on Sparkplug, and what of it changed. Devices are told before the counters of the node, so whoever sees a counter has seen what it counts.

use std::collections::{BTreeMap, BTreeSet};

use join_service_contract::names::{POLICY_DIGEST, POLICY_ERROR, POLICY_STATE, POLICY_VERSION};
use join_service_contract::{HostState, JoinCounters, JoinHost, JoinNode, host_device};
use sparkplug::edge_node::NodeUpdate;
use sparkplug::{Metric, TypedMetrics};
use uuid::Uuid;

use super::policy::PolicyKeeper;
use super::seen::{Seen, SeenHosts};
use crate::cache::Cache;
use crate::document::HostRecord;

/// The last report.
#[derive(Debug, Default)]
pub struct Reports {
    node: Option<(JoinNode, JoinCounters)>,
    hosts: BTreeMap<Uuid, JoinHost>,
    basis: Option<Basis>,
}

/// What the report of the hosts follows from: as long as it is the same, so is the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Basis {
    records: u64,
    seen: u64,
    policy: u64,
}

impl Basis {
    /// As it is.
    pub fn of(cache: &Cache, seen: &SeenHosts, policy: &PolicyKeeper) -> Self {
        Self { records: cache.host_changes(), seen: seen.changes(), policy: policy.version() }
    }
}

impl Reports {
    /// The node as it was told last.
    pub fn node(&self) -> Option<&JoinNode> {
        self.node.as_ref().map(|(node, _)| node)
    }

    /// The hosts as they were told last.
    pub const fn hosts(&self) -> &BTreeMap<Uuid, JoinHost> {
        &self.hosts
    }

    /// Whether the hosts were told from this basis.
    pub fn follows(&self, basis: Basis) -> bool {
        self.basis == Some(basis)
    }

    /// The first report: metrics of the node, then its devices.
    pub fn begin(
        &mut self,
        node: JoinNode,
        counters: &JoinCounters,
        hosts: BTreeMap<Uuid, JoinHost>,
    ) -> (Vec<Metric>, Vec<NodeUpdate>) {
        let mut metrics = node.to_metrics();
        metrics.extend(counters.to_metrics());
        let updates = hosts.iter().map(|(disk, host)| host.to_update(*disk)).collect();
        self.node = Some((node, counters.clone()));
        self.hosts = hosts;
        self.basis = None;
        (metrics, updates)
    }

    /// What has to be told so that these hosts are known.
    pub fn update_hosts(&mut self, hosts: BTreeMap<Uuid, JoinHost>, basis: Basis) -> Vec<NodeUpdate> {
        let gone = self.hosts.keys().filter(|disk| !hosts.contains_key(*disk));
        let mut updates: Vec<NodeUpdate> =
            gone.map(|disk| NodeUpdate::DeviceDeath { device: host_device(*disk) }).collect();
        for (disk, host) in &hosts {
            if self.hosts.get(disk) != Some(host) {
                updates.push(host.to_update(*disk));
            }
        }
        self.hosts = hosts;
        self.basis = Some(basis);
        updates
    }

    /// What has to be told so that this is known of the node.
    pub fn update_node(&mut self, node: JoinNode, counters: &JoinCounters) -> Option<NodeUpdate> {
        let metrics = match &self.node {
            Some((known, counted)) => {
                let mut metrics = node.changes_since(known);
                metrics.extend(counters.changes_since(counted));
                metrics
            }
            None => node.to_metrics(),
        };
        if metrics.is_empty() {
            return None;
        }
        self.node = Some((node, counters.clone()));
        Some(NodeUpdate::Set { device: None, metrics })
    }

    /// Says again what answers a policy, as historical values: values that did not change would otherwise not be sent. Who missed the data before sees the gap in `seq`.
    pub fn repeat_policy(&self, now: u64) -> Option<NodeUpdate> {
        let names: BTreeSet<&str> = [POLICY_VERSION, POLICY_DIGEST, POLICY_STATE, POLICY_ERROR].into();
        let named = self.node()?.to_metrics().into_iter().filter(|metric| names.contains(&*metric.name));
        let metrics = named.map(|metric| metric.at(now).historical()).collect();
        Some(NodeUpdate::Historical { device: None, metrics })
    }
}

/// The hosts as devices: those that have a record, and those that were refused. A refused host never stands in the place of the host whose disk it names.
pub fn hosts(cache: &Cache, seen: &SeenHosts, policy: &PolicyKeeper) -> BTreeMap<Uuid, JoinHost> {
    let is_revoked = |ek| policy.verifier().policy().is_revoked(ek);
    let mut hosts = BTreeMap::new();
    for (ek, entry) in cache.hosts() {
        let mut host = recorded(hex::encode(ek), &entry.is);
        if let Some(seen) = seen.get(ek).filter(|seen| seen.disk == entry.is.disk) {
            refused(&mut host, seen, entry.is.bound);
        }
        if is_revoked(ek) {
            host.state = HostState::Revoked;
        }
        hosts.insert(entry.is.disk, host);
    }
    for (ek, seen) in seen.iter() {
        let has_record = cache.host(ek).is_some_and(|entry| entry.is.disk == seen.disk);
        if has_record || cache.disk_owner(seen.disk).is_some_and(|owner| owner != *ek) {
            continue;
        }
        let mut host = JoinHost {
            name: seen.name.clone(),
            role: seen.role.to_owned(),
            variant: seen.variant.to_owned(),
            endorsement_key: hex::encode(ek),
            first_seen: seen.first_seen,
            ..JoinHost::default()
        };
        refused(&mut host, seen, false);
        if is_revoked(ek) {
            host.state = HostState::Revoked;
        }
        hosts.entry(seen.disk).or_insert(host);
    }
    hosts
}

fn recorded(endorsement_key: String, record: &HostRecord) -> JoinHost {
    JoinHost {
        name: record.name.clone(),
        role: record.role.clone(),
        variant: record.variant.clone(),
        endorsement_key,
        state: record.state.parse().unwrap_or_default(),
        verdict: None,
        detail: record.detail.clone(),
        kind: record.kind.clone(),
        stage: record.stage.clone(),
        policy_revision: record.policy_revision,
        registers: record.registers.clone(),
        warnings: record.warnings.clone(),
        first_seen: record.first_seen,
        last_seen: record.last_seen,
    }
}

/// A member that is refused a rejoin stays what it is; what was refused is told beside it.
fn refused(host: &mut JoinHost, seen: &Seen, is_bound: bool) {
    if !is_bound {
        host.state = seen.state;
    }
    host.verdict = Some(seen.verdict.to_owned());
    host.detail = Some(seen.detail.clone());
    host.kind = seen.kind.to_owned();
    host.policy_revision = seen.policy_revision;
    host.last_seen = seen.last_seen;
    if seen.registers.is_some() {
        host.registers.clone_from(&seen.registers);
    }
}
