//! What has been published on Sparkplug, and what of it changed. Devices are published before the counters of the node, so a reader that sees a counter has seen what it counts.

use std::collections::{BTreeMap, BTreeSet};

use join_attestation::EkHash;
use join_service_contract::names::{
    POLICY_DIGEST, POLICY_HELD, POLICY_ORIGIN, POLICY_REASON, POLICY_STATE, POLICY_VERSION,
};
use join_service_contract::{HostState, JoinCounters, JoinHost, JoinNode, host_device, names};
use sparkplug::edge_node::NodeUpdate;
use sparkplug::{Metric, Properties, TypedMetrics};
use uuid::Uuid;

use super::policy::ActivePolicy;
use super::seen::{Seen, SeenHosts};
use crate::cache::Cache;
use crate::document::HostRecord;

/// The last report.
#[derive(Debug, Default)]
pub(super) struct Reports {
    node: Option<(JoinNode, JoinCounters)>,
    hosts: BTreeMap<Uuid, JoinHost>,
    counts: HostCounts,
    /// Epoch of the policy by which the hosts were published.
    policy: Option<u64>,
}

/// How many hosts were published.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct HostCounts {
    /// All.
    pub total: u32,
    /// Those that wait for approval.
    pub pending: u32,
    /// Members.
    pub members: u32,
    /// Members that were refused their keys.
    pub locked_out: u32,
}

impl HostCounts {
    fn of(hosts: &BTreeMap<Uuid, JoinHost>) -> Self {
        let mut counts = Self::default();
        hosts.values().for_each(|host| counts.add(host.state));
        counts
    }

    fn add(&mut self, state: HostState) {
        self.total += 1;
        self.pending += u32::from(state == HostState::Pending);
        self.members += u32::from(state == HostState::Member);
        self.locked_out += u32::from(state == HostState::LockedOut);
    }

    fn remove(&mut self, state: HostState) {
        self.total -= 1;
        self.pending -= u32::from(state == HostState::Pending);
        self.members -= u32::from(state == HostState::Member);
        self.locked_out -= u32::from(state == HostState::LockedOut);
    }
}

impl Reports {
    /// The node as it was published last.
    pub(super) fn node(&self) -> Option<&JoinNode> {
        self.node.as_ref().map(|(node, _)| node)
    }

    /// How many hosts were published last.
    pub(super) const fn counts(&self) -> HostCounts {
        self.counts
    }

    /// Takes the hosts over that the first report has, as they are under the policy of this epoch.
    pub(super) fn begin_hosts(&mut self, mut hosts: BTreeMap<Uuid, JoinHost>, policy: u64, now: u64) {
        hosts.values_mut().for_each(|host| host.since = now);
        self.counts = HostCounts::of(&hosts);
        self.hosts = hosts;
        self.policy = Some(policy);
    }

    /// The first report: metrics of the node, then its devices.
    pub(super) fn begin(&mut self, node: JoinNode, counters: &JoinCounters) -> (Vec<Metric>, Vec<NodeUpdate>) {
        let mut metrics = node.to_metrics();
        metrics.extend(counters.to_metrics());
        let updates = self.hosts.iter().map(|(id, host)| host.to_update(*id)).collect();
        self.node = Some((node, counters.clone()));
        (metrics, updates)
    }

    /// Ids of hosts that have to be looked at: those that changed, and all if the policy did.
    pub(super) fn take_changed(&mut self, cache: &mut Cache, seen: &mut SeenHosts, policy: u64) -> BTreeSet<Uuid> {
        let mut disks = cache.take_changed_disks();
        disks.append(&mut seen.take_changed_disks());
        if self.policy.replace(policy) != Some(policy) {
            disks.extend(self.hosts.keys());
            disks.extend(all_disks(cache, seen));
        }
        // The reports of other hosts that name a disk depend on its owner.
        let others: Vec<Uuid> =
            disks.iter().flat_map(|disk| seen.of_disk(*disk)).map(|(ek, _)| names::keyed_host(ek)).collect();
        disks.extend(others);
        disks.append(&mut seen.take_changed_ids());
        disks
    }

    /// What has to be published so that the host with this id is known, in its state since `now` (UTC ms) if that is another one; None: there is none.
    pub(super) fn update_host(&mut self, id: Uuid, mut host: Option<JoinHost>, now: u64) -> Option<NodeUpdate> {
        let known = self.hosts.get(&id);
        if let Some(host) = &mut host {
            host.since = known.filter(|known| known.state == host.state).map_or(now, |known| known.since);
        }
        if known == host.as_ref() {
            return None;
        }
        if let Some(known) = known {
            self.counts.remove(known.state);
        }
        let Some(host) = host else {
            self.hosts.remove(&id);
            return Some(NodeUpdate::DeviceDeath { device: host_device(id) });
        };
        self.counts.add(host.state);
        let update = host.to_update(id);
        self.hosts.insert(id, host);
        Some(update)
    }

    /// What has to be published so that this is known of the node.
    pub(super) fn update_node(&mut self, node: JoinNode, counters: &JoinCounters) -> Option<NodeUpdate> {
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

    /// Says again what answers a policy, as historical values: values that did not change would otherwise not be sent. A reader that missed the data before sees the gap in `seq`.
    pub(super) fn repeat_policy(&self, now: u64) -> Option<NodeUpdate> {
        let names: BTreeSet<&str> =
            [POLICY_VERSION, POLICY_DIGEST, POLICY_ORIGIN, POLICY_HELD, POLICY_STATE, POLICY_REASON].into();
        let named = self.node()?.to_metrics().into_iter().filter(|metric| names.contains(&*metric.name));
        // Births alone describe metrics.
        let metrics = named.map(|metric| metric.with_properties(Properties::new()).at(now).historical()).collect();
        Some(NodeUpdate::Historical { device: None, metrics })
    }
}

fn all_disks(cache: &Cache, seen: &SeenHosts) -> BTreeSet<Uuid> {
    let recorded = cache.hosts().values().map(|entry| entry.is.disk);
    recorded.chain(seen.iter().map(|(_, seen)| seen.disk)).collect()
}

/// The hosts as devices: those that have a record, and those that were refused.
pub(super) fn hosts(cache: &Cache, seen: &SeenHosts, policy: &ActivePolicy) -> BTreeMap<Uuid, JoinHost> {
    let ids = all_disks(cache, seen).into_iter().chain(seen.iter().map(|(ek, _)| names::keyed_host(ek)));
    ids.filter_map(|id| Some((id, host(id, cache, seen, policy)?))).collect()
}

/// The host with this id, if there is one. A refused host never takes the place of the host whose disk it names: it has the id of its endorsement key.
pub(super) fn host(id: Uuid, cache: &Cache, seen: &SeenHosts, policy: &ActivePolicy) -> Option<JoinHost> {
    let is_revoked = |ek| policy.verifier().policy().is_revoked(ek);
    if let Some((ek, entry)) = cache.hosts_of_disk(id).next_back() {
        let mut host = recorded(hex::encode(ek), &entry.is);
        if let Some(seen) = seen.get(ek).filter(|seen| seen.disk == id) {
            refused(&mut host, seen, entry.is.bound);
        }
        if is_revoked(ek) {
            host.state = HostState::Revoked;
        }
        return Some(host);
    }
    let (ek, seen, foreign_disk) = match of_disk(id, cache, seen) {
        Some((ek, seen)) => (ek, seen, None),
        None => {
            let (ek, other) = seen.of_id(id)?;
            let is_shown = has_record(cache, other.disk, ek)
                || of_disk(other.disk, cache, seen).is_some_and(|(shown, _)| shown == ek);
            if is_shown {
                return None;
            }
            (ek, other, Some(other.disk))
        }
    };
    let mut host = JoinHost {
        name: seen.name.clone(),
        role: seen.role.to_owned(),
        variant: seen.variant.to_owned(),
        endorsement_key: hex::encode(ek),
        foreign_disk,
        first_seen: seen.first_seen,
        ..JoinHost::default()
    };
    refused(&mut host, seen, false);
    if let Some(disk) = foreign_disk {
        // Whatever the answer was: no operator should approve it before it has a disk of its own.
        host.state = HostState::Refused;
        host.detail = Some(format!("it has the state disk {disk} of another host: {}", seen.detail));
    }
    if is_revoked(ek) {
        host.state = HostState::Revoked;
    }
    Some(host)
}

/// The host of a disk among those that have no record: its owner, or the first if it has none.
fn of_disk<'a>(disk: Uuid, cache: &Cache, seen: &'a SeenHosts) -> Option<(&'a EkHash, &'a Seen)> {
    let owner = cache.disk_owner(disk);
    let is_others = |ek: &EkHash| owner.is_some_and(|owner| owner != *ek);
    if cache.hosts_of_disk(disk).next().is_some() {
        return None;
    }
    seen.of_disk(disk).find(|(ek, _)| !is_others(ek))
}

/// True if the record of this disk is that host's.
fn has_record(cache: &Cache, disk: Uuid, ek: &EkHash) -> bool {
    cache.hosts_of_disk(disk).next_back().is_some_and(|(owner, _)| owner == ek)
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
        since: 0,
        kind: record.kind.clone(),
        stage: record.stage.clone(),
        policy_revision: record.policy_revision,
        pcrs: record.pcrs.as_deref().and_then(pcrs),
        warnings: record.warnings.clone(),
        foreign_disk: None,
        first_seen: record.first_seen,
        last_seen: record.last_seen,
    }
}

/// As they are recorded: a JSON object of hexadecimal values by decimal index.
fn pcrs(json: &str) -> Option<BTreeMap<u8, String>> {
    serde_json::from_str(json).ok()
}

/// A member that is refused its keys is locked out; one that is refused new certificates stays what it is, and the refusal is published beside it.
fn refused(host: &mut JoinHost, seen: &Seen, is_bound: bool) {
    if !is_bound {
        host.state = seen.state();
    } else if seen.locks_out() {
        host.state = HostState::LockedOut;
    }
    host.verdict = Some(seen.verdict.name().to_owned());
    host.detail = Some(seen.detail.clone());
    host.kind = seen.kind.name().to_owned();
    host.policy_revision = seen.policy_revision;
    host.last_seen = seen.last_seen;
    if let Some(json) = &seen.pcrs {
        host.pcrs = pcrs(json);
    }
}
