//! A replica of the cluster manager: its node metrics and the Device of every cluster, fed with [`HostEvent`]s.
//!
//! It keeps what was last known when the manager is away ([`ManagerReplica::is_alive`] is then false). It must not know what anybody does with it.

use std::collections::{BTreeMap, BTreeSet};

use sparkplug::host::HostEvent;
use sparkplug::typed::FieldError;
use sparkplug::{DeviceId, EdgeNodeDescriptor, Metric, TypedMetrics};
use uuid::Uuid;

use crate::device::ClusterDevice;
use crate::names;
use crate::node::NodeMetrics;

/// What an event changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ManagerChange {
    /// The manager is alive, or no longer.
    Alive(bool),
    /// Node metrics changed.
    Node,
    /// A cluster appeared or changed.
    Cluster(Uuid),
    /// A cluster is gone.
    ClusterGone(Uuid),
    /// The Device of a cluster could not be read; what was known of it stays.
    Unreadable(Uuid, FieldError),
    /// Metrics of the node could not be read; what was known of it stays.
    NodeUnreadable(FieldError),
}

/// The replica.
#[derive(Debug, Clone)]
pub struct ManagerReplica {
    node: EdgeNodeDescriptor,
    alive: bool,
    metrics: NodeMetrics,
    /// Everything that the node said since its birth could be read.
    readable: bool,
    clusters: BTreeMap<Uuid, ClusterDevice>,
    /// Whose Device it is, as the birth said.
    ids: BTreeMap<DeviceId, Uuid>,
    /// Clusters that the last birth has not confirmed yet.
    unconfirmed: BTreeSet<Uuid>,
}

impl ManagerReplica {
    /// An empty replica of that node.
    #[must_use]
    pub fn new(node: EdgeNodeDescriptor) -> Self {
        Self {
            node,
            alive: false,
            metrics: NodeMetrics::default(),
            readable: false,
            clusters: BTreeMap::new(),
            ids: BTreeMap::new(),
            unconfirmed: BTreeSet::new(),
        }
    }

    /// The node that it replicates.
    #[must_use]
    pub const fn node(&self) -> &EdgeNodeDescriptor {
        &self.node
    }

    /// Whether the manager is between a birth and its death, without a gap since.
    #[must_use]
    pub const fn is_alive(&self) -> bool {
        self.alive
    }

    /// Whether it is alive, its counters could be read, and the Devices of all its clusters are born.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.alive
            && self.readable
            && self.clusters.len() - self.unconfirmed.len() >= self.metrics.clusters_total as usize
    }

    /// Node metrics as last known.
    #[must_use]
    pub const fn metrics(&self) -> &NodeMetrics {
        &self.metrics
    }

    /// A cluster as last known.
    #[must_use]
    pub fn cluster(&self, uuid: Uuid) -> Option<&ClusterDevice> {
        self.clusters.get(&uuid)
    }

    /// The cluster of that name. Of several (a refused one has the name of another) the one that is not refused.
    #[must_use]
    pub fn cluster_named(&self, name: &str) -> Option<(Uuid, &ClusterDevice)> {
        let mut named: Vec<_> = self.clusters().filter(|(_, cluster)| cluster.name == name).collect();
        named.sort_by_key(|(_, cluster)| cluster.setup.state == crate::SetupState::Refused);
        named.into_iter().next()
    }

    /// All clusters as last known, by UUID.
    pub fn clusters(&self) -> impl Iterator<Item = (Uuid, &ClusterDevice)> {
        self.clusters.iter().map(|(uuid, cluster)| (*uuid, cluster))
    }

    /// Takes one event; those of other nodes change nothing.
    pub fn on_event(&mut self, event: &HostEvent) -> Vec<ManagerChange> {
        match event {
            HostEvent::NodeBirth { node, metrics, .. } if *node == self.node => {
                let mut changes = self.set_alive(true);
                self.readable = true;
                self.ids.clear();
                changes.push(self.node_changed(NodeMetrics::from_metrics(metrics.iter())));
                self.unconfirmed = self.clusters.keys().copied().collect();
                changes.extend(self.drop_unconfirmed());
                changes
            }
            HostEvent::NodeData { node, metrics, .. } if *node == self.node => {
                let mut next = self.metrics.clone();
                let read = next.merge(metrics).map(|()| next);
                let mut changes = Vec::new();
                if read.as_ref() != Ok(&self.metrics) {
                    changes.push(self.node_changed(read));
                }
                changes.extend(self.drop_unconfirmed());
                changes
            }
            HostEvent::DeviceBirth { node, device, metrics, .. } if *node == self.node => {
                let Some(uuid) = cluster_of(metrics) else { return Vec::new() };
                self.ids.insert(device.clone(), uuid);
                let mut changes = match ClusterDevice::from_metrics(metrics.iter()) {
                    Ok(cluster) => {
                        self.unconfirmed.remove(&uuid);
                        if self.clusters.get(&uuid) == Some(&cluster) {
                            Vec::new()
                        } else {
                            self.clusters.insert(uuid, cluster);
                            vec![ManagerChange::Cluster(uuid)]
                        }
                    }
                    Err(error) => vec![ManagerChange::Unreadable(uuid, error)],
                };
                changes.extend(self.drop_unconfirmed());
                changes
            }
            HostEvent::DeviceData { node, device, metrics, .. } if *node == self.node => {
                let Some(&uuid) = self.ids.get(device) else { return Vec::new() };
                match self.clusters.get_mut(&uuid).map(|cluster| cluster.merge(metrics)) {
                    Some(Ok(())) => vec![ManagerChange::Cluster(uuid)],
                    Some(Err(error)) => vec![ManagerChange::Unreadable(uuid, error)],
                    None => Vec::new(),
                }
            }
            HostEvent::DeviceDeath { node, device, .. } if *node == self.node => {
                let Some(uuid) = self.ids.remove(device) else { return Vec::new() };
                self.unconfirmed.remove(&uuid);
                self.clusters.remove(&uuid).map(|_| ManagerChange::ClusterGone(uuid)).into_iter().collect()
            }
            HostEvent::NodeDeath { node, .. } | HostEvent::NodeStale { node, .. } if *node == self.node => {
                self.set_alive(false)
            }
            HostEvent::Offline { .. } => self.set_alive(false),
            _ => Vec::new(),
        }
    }

    fn node_changed(&mut self, read: Result<NodeMetrics, FieldError>) -> ManagerChange {
        match read {
            Ok(metrics) => {
                self.metrics = metrics;
                ManagerChange::Node
            }
            Err(error) => {
                self.readable = false;
                ManagerChange::NodeUnreadable(error)
            }
        }
    }

    fn set_alive(&mut self, alive: bool) -> Vec<ManagerChange> {
        if self.alive == alive {
            return Vec::new();
        }
        self.alive = alive;
        vec![ManagerChange::Alive(alive)]
    }

    /// Once as many Devices are born as the birth promised, the others did not survive the manager's absence.
    fn drop_unconfirmed(&mut self) -> Vec<ManagerChange> {
        if self.unconfirmed.is_empty() || !self.is_complete() {
            return Vec::new();
        }
        let gone = std::mem::take(&mut self.unconfirmed);
        gone.into_iter()
            .map(|uuid| {
                self.clusters.remove(&uuid);
                ManagerChange::ClusterGone(uuid)
            })
            .collect()
    }
}

/// The cluster that a birth is of; None: it is of something else.
fn cluster_of(metrics: &[Metric]) -> Option<Uuid> {
    metrics.iter().find(|metric| &*metric.name == names::CLUSTER_UUID)?.as_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::SetupState;
    use sparkplug::BdSeq;

    fn node() -> EdgeNodeDescriptor {
        names::node("ACME").unwrap()
    }

    fn birth(clusters_total: u32) -> HostEvent {
        let metrics = NodeMetrics { clusters_total, ..NodeMetrics::default() }.to_metrics().into();
        HostEvent::NodeBirth { node: node(), bd_seq: BdSeq::ZERO, timestamp: 1, uuid: None, metrics }
    }

    fn cluster(name: &str, state: SetupState) -> ClusterDevice {
        let mut device = ClusterDevice { name: name.to_owned(), ..ClusterDevice::default() };
        device.setup.state = state;
        device
    }

    fn device_birth(uuid: u128, device: &ClusterDevice) -> HostEvent {
        HostEvent::DeviceBirth {
            node: node(),
            device: names::unnamed_device(Uuid::from_u128(uuid)),
            timestamp: 1,
            metrics: ClusterDevice { uuid: Uuid::from_u128(uuid), ..device.clone() }.to_metrics().into(),
        }
    }

    #[test]
    fn a_replica_is_complete_when_all_promised_devices_are_born() {
        let mut replica = ManagerReplica::new(node());
        assert_eq!(replica.on_event(&birth(1)), [ManagerChange::Alive(true), ManagerChange::Node]);
        assert!(!replica.is_complete());
        let ready = ClusterDevice { uuid: Uuid::from_u128(1), ..cluster("A", SetupState::Ready) };
        assert_eq!(replica.on_event(&device_birth(1, &ready)), [ManagerChange::Cluster(Uuid::from_u128(1))]);
        assert!(replica.is_complete());
        assert_eq!(replica.cluster(Uuid::from_u128(1)), Some(&ready));
        assert_eq!(replica.on_event(&device_birth(1, &ready)), []);
    }

    #[test]
    fn clusters_are_kept_while_the_manager_is_away_and_dropped_when_its_next_birth_lacks_them() {
        let mut replica = ManagerReplica::new(node());
        let ready = cluster("A", SetupState::Ready);
        replica.on_event(&birth(2));
        replica.on_event(&device_birth(1, &ready));
        replica.on_event(&device_birth(2, &ready));
        let death = HostEvent::NodeDeath { node: node(), timestamp: 2 };
        assert_eq!(replica.on_event(&death), [ManagerChange::Alive(false)]);
        assert!(replica.cluster(Uuid::from_u128(2)).is_some() && !replica.is_complete());
        assert_eq!(replica.on_event(&birth(1)), [ManagerChange::Alive(true), ManagerChange::Node]);
        assert_eq!(replica.on_event(&device_birth(1, &ready)), [ManagerChange::ClusterGone(Uuid::from_u128(2))]);
        assert!(replica.is_complete());
    }

    #[test]
    fn data_changes_a_known_cluster_and_death_removes_it() {
        let mut replica = ManagerReplica::new(node());
        replica.on_event(&birth(1));
        replica.on_event(&device_birth(1, &cluster("A", SetupState::SettingUp)));
        let uuid = Uuid::from_u128(1);
        let data = |state: &str| HostEvent::DeviceData {
            node: node(),
            device: names::unnamed_device(uuid),
            timestamp: 1,
            metrics: vec![sparkplug::Metric::new(names::STATUS_STATE, state)],
        };
        assert_eq!(replica.on_event(&data("ready")), [ManagerChange::Cluster(uuid)]);
        assert_eq!(replica.cluster(uuid).unwrap().setup.state, SetupState::Ready);
        assert!(matches!(&replica.on_event(&data("odd"))[..], [ManagerChange::Unreadable(u, _)] if *u == uuid));
        let death = HostEvent::DeviceDeath { node: node(), device: names::unnamed_device(uuid), timestamp: 1 };
        assert_eq!(replica.on_event(&death), [ManagerChange::ClusterGone(uuid)]);
        assert_eq!(replica.on_event(&death), []);
        assert_eq!(replica.on_event(&data("ready")), []);
    }

    #[test]
    fn counters_that_cannot_be_read_are_told_and_nothing_is_complete() {
        let mut replica = ManagerReplica::new(node());
        replica.on_event(&birth(0));
        assert!(replica.is_complete());
        let metrics = vec![sparkplug::Metric::new(names::CLUSTERS_TOTAL, "many")];
        let data = HostEvent::NodeData { node: node(), timestamp: 1, metrics };
        assert!(matches!(&replica.on_event(&data)[..], [ManagerChange::NodeUnreadable(_)]));
        assert!(!replica.is_complete());
        replica.on_event(&birth(0));
        assert!(replica.is_complete());
    }

    #[test]
    fn events_of_other_nodes_change_nothing() {
        let mut replica = ManagerReplica::new(names::node("OTHER").unwrap());
        assert_eq!(replica.on_event(&birth(0)), []);
        assert_eq!(replica.on_event(&device_birth(1, &ClusterDevice::default())), []);
        assert!(!replica.is_alive() && replica.clusters().next().is_none());
    }

    #[test]
    fn of_two_clusters_with_one_name_the_refused_one_stands_back() {
        let mut replica = ManagerReplica::new(node());
        replica.on_event(&birth(2));
        replica.on_event(&device_birth(1, &cluster("A", SetupState::Refused)));
        replica.on_event(&device_birth(2, &cluster("A", SetupState::Ready)));
        assert_eq!(replica.cluster_named("A").map(|(uuid, _)| uuid), Some(Uuid::from_u128(2)));
        assert!(replica.cluster_named("B").is_none());
    }
}
