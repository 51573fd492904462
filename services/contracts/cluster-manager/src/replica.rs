//! A typed copy of the cluster manager: its own metrics and the Device of every cluster.
//!
//! It keeps what was last known while the manager is away ([`ManagerReplica::is_alive`] is then false).

use std::collections::BTreeMap;

use sparkplug::host::HostEvent;
use sparkplug::replication::{Contract, Devices, Replica, ReplicaChange};
use sparkplug::typed::FieldError;
use sparkplug::{DeviceId, EdgeNodeDescriptor, Metric, TypedMetrics};
use uuid::Uuid;

use crate::device::ClusterDevice;
use crate::node::NodeMetrics;
use crate::repository;

/// What the cluster manager publishes of clusters.
#[derive(Debug)]
pub enum ManagerContract {}

impl Contract for ManagerContract {
    type Node = NodeMetrics;
    type Key = DeviceId;
    type Devices = ManagedClusters;

    const KEEPS_DEVICES: bool = true;

    fn key(device: &DeviceId) -> Option<DeviceId> {
        repository::repository(device).is_none().then(|| device.clone())
    }

    fn devices_total(node: &NodeMetrics) -> Option<u64> {
        Some(node.clusters_total.into())
    }

    /// A cluster that is just gone may still be counted, and one that came may not be.
    fn has_all(node: &NodeMetrics, devices: &ManagedClusters) -> bool {
        u64::try_from(devices.clusters.len()).is_ok_and(|known| known >= node.clusters_total.into())
    }
}

/// The clusters that the Devices are of. A cluster may have another Device after a birth than before.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ManagedClusters {
    /// The cluster of each Device, as its birth says.
    ids: BTreeMap<DeviceId, Uuid>,
    clusters: BTreeMap<Uuid, ClusterDevice>,
}

impl Devices<DeviceId> for ManagedClusters {
    fn count(&self) -> usize {
        self.ids.len()
    }

    fn contains(&self, key: &DeviceId) -> bool {
        self.ids.contains_key(key)
    }

    fn birth(&mut self, key: &DeviceId, metrics: &[Metric], _: u64) -> Result<(), FieldError> {
        let cluster = ClusterDevice::from_metrics(metrics)?;
        if self.ids.get(key).is_some_and(|before| *before != cluster.uuid) {
            self.death(key);
        }
        self.ids.insert(key.clone(), cluster.uuid);
        self.clusters.insert(cluster.uuid, cluster);
        Ok(())
    }

    fn data(&mut self, key: &DeviceId, metrics: &[Metric], _: u64) -> Result<(), FieldError> {
        let cluster = self.ids.get(key).and_then(|uuid| self.clusters.get_mut(uuid));
        cluster.map_or(Ok(()), |cluster| cluster.merge(metrics))
    }

    fn death(&mut self, key: &DeviceId) -> bool {
        let Some(uuid) = self.ids.remove(key) else { return false };
        if !self.ids.values().any(|other| *other == uuid) {
            self.clusters.remove(&uuid);
        }
        true
    }

    fn keys(&self) -> Vec<DeviceId> {
        self.ids.keys().cloned().collect()
    }
}

/// The copy; see [`Replica`].
#[derive(Debug, Clone)]
pub struct ManagerReplica(Replica<ManagerContract>);

impl ManagerReplica {
    /// An empty copy of that node.
    #[must_use]
    pub fn new(node: EdgeNodeDescriptor) -> Self {
        Self(Replica::new(node))
    }

    /// The node that it replicates.
    #[must_use]
    pub const fn node(&self) -> &EdgeNodeDescriptor {
        self.0.address()
    }

    /// Whether the manager is between a birth and its death, without a gap since.
    #[must_use]
    pub const fn is_alive(&self) -> bool {
        self.0.is_current()
    }

    /// Whether it is alive, everything could be read, and the Devices of all its clusters are born.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.0.is_complete()
    }

    /// Public key that credentials of users who push are sealed to, base64url; None: it is not known.
    #[must_use]
    pub fn git_key(&self) -> Option<&str> {
        self.0.node().map(|node| &*node.git_key).filter(|key| !key.is_empty())
    }

    /// Version of the program; empty before the first birth.
    #[must_use]
    pub fn version(&self) -> &str {
        self.0.node().map_or("", |node| &node.version)
    }

    /// Base URL of the git server; None: it is not known.
    #[must_use]
    pub fn git_url(&self) -> Option<&str> {
        self.0.node().map(|node| &*node.git_url).filter(|url| !url.is_empty())
    }

    /// URL of a repository on the git server of the site, with `{name}` for its name; None: clusters follow ours.
    #[must_use]
    pub fn git_external_url(&self) -> Option<&str> {
        self.0.node()?.git_external_url.as_deref()
    }

    /// JSON object of the values that every deployment's chart gets, below those of its template; None: they are not known.
    #[must_use]
    pub fn deployments_values(&self) -> Option<&str> {
        self.0.node().map(|node| &*node.deployments_values).filter(|json| !json.is_empty())
    }

    /// Whether the git server is alive; None: the manager has received nothing of it yet.
    #[must_use]
    pub fn git_alive(&self) -> Option<bool> {
        self.0.node()?.git_alive
    }

    /// Version of the git server; empty: not known.
    #[must_use]
    pub fn git_version(&self) -> &str {
        self.0.node().and_then(|node| node.git_version.as_deref()).unwrap_or_default()
    }

    /// Clusters whose edge sync is alive, and which ConfigDB does not have, by name.
    pub fn unknown_clusters(&self) -> impl Iterator<Item = (&str, Uuid)> {
        let unknown = self.0.node().map(|node| &node.clusters_unknown);
        unknown.into_iter().flatten().map(|(name, uuid)| (&**name, *uuid))
    }

    /// Why the git server has not everything of a repository, by its path.
    pub fn repositories_not_served(&self) -> impl Iterator<Item = (&str, &str)> {
        let not_served = self.0.node().map(|node| &node.repositories_not_served);
        not_served.into_iter().flatten().map(|(path, reason)| (&**path, &**reason))
    }

    /// A cluster as last known.
    #[must_use]
    pub fn cluster(&self, uuid: Uuid) -> Option<&ClusterDevice> {
        self.0.devices().clusters.get(&uuid)
    }

    /// The cluster that a Device is of.
    #[must_use]
    pub fn cluster_of(&self, device: &DeviceId) -> Option<(Uuid, &ClusterDevice)> {
        let uuid = *self.0.devices().ids.get(device)?;
        self.cluster(uuid).map(|cluster| (uuid, cluster))
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
        self.0.devices().clusters.iter().map(|(uuid, cluster)| (*uuid, cluster))
    }

    /// Takes one event; None: it is about another node.
    pub fn on_event(&mut self, event: &HostEvent) -> Option<ReplicaChange<DeviceId>> {
        self.0.on_event(event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::SetupState;
    use crate::names;
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
    fn it_is_complete_when_all_promised_devices_are_born() {
        let mut replica = ManagerReplica::new(node());
        assert_eq!(replica.on_event(&birth(1)), Some(ReplicaChange::Born));
        assert!(replica.is_alive() && !replica.is_complete());
        let ready = ClusterDevice { uuid: Uuid::from_u128(1), ..cluster("A", SetupState::Ready) };
        let born = ReplicaChange::Device(names::unnamed_device(Uuid::from_u128(1)));
        assert_eq!(replica.on_event(&device_birth(1, &ready)), Some(born));
        assert!(replica.is_complete());
        assert_eq!(replica.cluster(Uuid::from_u128(1)), Some(&ready));
        replica.on_event(&device_birth(2, &ready));
        assert!(replica.is_complete(), "one that is not counted yet");
    }

    #[test]
    fn clusters_are_kept_while_the_manager_is_away_and_dropped_when_its_next_birth_lacks_them() {
        let mut replica = ManagerReplica::new(node());
        let ready = cluster("A", SetupState::Ready);
        replica.on_event(&birth(2));
        replica.on_event(&device_birth(1, &ready));
        replica.on_event(&device_birth(2, &ready));
        let death = HostEvent::NodeDeath { node: node(), timestamp: 2 };
        assert_eq!(replica.on_event(&death), Some(ReplicaChange::Dead));
        assert!(replica.cluster(Uuid::from_u128(2)).is_some() && !replica.is_complete() && !replica.is_alive());
        replica.on_event(&birth(1));
        assert!(replica.cluster(Uuid::from_u128(2)).is_some() && !replica.is_complete());
        replica.on_event(&device_birth(1, &ready));
        assert!(replica.cluster(Uuid::from_u128(2)).is_none() && replica.is_complete());
    }

    #[test]
    fn a_cluster_that_is_born_with_another_device_id_is_one_cluster() {
        let mut replica = ManagerReplica::new(node());
        let ready = cluster("A", SetupState::Ready);
        replica.on_event(&birth(1));
        replica.on_event(&device_birth(1, &ready));
        replica.on_event(&birth(1));
        let uuid = Uuid::from_u128(1);
        let metrics = ClusterDevice { uuid, ..ready }.to_metrics().into();
        let device = names::device(uuid, "A");
        replica.on_event(&HostEvent::DeviceBirth { node: node(), device, timestamp: 1, metrics });
        assert!(replica.is_complete() && replica.cluster(uuid).is_some());
        assert_eq!(replica.clusters().count(), 1);
    }

    #[test]
    fn what_cannot_be_read_changes_nothing_and_it_is_not_complete() {
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
        replica.on_event(&data("ready"));
        assert_eq!(replica.cluster(uuid).unwrap().setup.state, SetupState::Ready);
        replica.on_event(&data("odd"));
        assert!(replica.cluster(uuid).unwrap().setup.state == SetupState::Ready && !replica.is_complete());
        let death = HostEvent::DeviceDeath { node: node(), device: names::unnamed_device(uuid), timestamp: 1 };
        assert_eq!(replica.on_event(&death), Some(ReplicaChange::Device(names::unnamed_device(uuid))));
        assert!(replica.cluster(uuid).is_none());
        replica.on_event(&birth(0));
        assert!(replica.is_complete());
        let metrics = vec![sparkplug::Metric::new(names::CLUSTERS_TOTAL, "many")];
        replica.on_event(&HostEvent::NodeData { node: node(), timestamp: 1, metrics });
        assert!(!replica.is_complete());
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
