//! A typed copy of one Sync node: its hosts and deployments.

use std::collections::BTreeMap;

use sparkplug::replication::{Contract, Devices, Replica};
use sparkplug::typed::FieldError;
use sparkplug::{DeviceId, Metric, TypedMetrics};
use uuid::Uuid;

use crate::device::{DeploymentDevice, HostDevice};
use crate::names::SyncDevice;
use crate::node::SyncNode;

/// A copy of a Sync node; see [`Replica`].
pub type SyncReplica = Replica<SyncContract>;

/// What a Sync node publishes.
#[derive(Debug)]
pub enum SyncContract {}

impl Contract for SyncContract {
    type Node = SyncNode;
    type Key = SyncDevice;
    type Devices = SyncDevices;

    fn key(device: &DeviceId) -> Option<SyncDevice> {
        SyncDevice::parse(device)
    }

    fn devices_total(node: &SyncNode) -> Option<u64> {
        Some(u64::from(node.hosts_total) + u64::from(node.deployments_total))
    }

    fn has_all(node: &SyncNode, devices: &SyncDevices) -> bool {
        let counted = |total: u32, known: usize| usize::try_from(total) == Ok(known);
        counted(node.hosts_total, devices.hosts.len()) && counted(node.deployments_total, devices.deployments.len())
    }
}

/// The Devices of a Sync node.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SyncDevices {
    /// Hosts by name.
    pub hosts: BTreeMap<String, HostDevice>,
    /// Deployments.
    pub deployments: BTreeMap<Uuid, DeploymentDevice>,
    /// Of which deployment a Device is, as its birth said.
    ids: BTreeMap<DeviceId, Uuid>,
}

impl SyncDevices {
    /// The deployment that a Device is of; None: there is no such Device.
    #[must_use]
    pub fn deployment(&self, device: &DeviceId) -> Option<Uuid> {
        self.ids.get(device).copied()
    }

    /// The Device of a deployment; None: it has none.
    #[must_use]
    pub fn device_of(&self, deployment: Uuid) -> Option<&DeviceId> {
        self.ids.iter().find(|(_, uuid)| **uuid == deployment).map(|(device, _)| device)
    }
}

impl Devices<SyncDevice> for SyncDevices {
    fn count(&self) -> usize {
        self.hosts.len() + self.ids.len()
    }

    fn contains(&self, key: &SyncDevice) -> bool {
        match key {
            SyncDevice::Host(name) => self.hosts.contains_key(name),
            SyncDevice::Deployment(device) => self.ids.contains_key(device),
        }
    }

    fn birth(&mut self, key: &SyncDevice, metrics: &[Metric], timestamp: u64) -> Result<(), FieldError> {
        match key {
            SyncDevice::Host(name) => self.hosts.birth(name, metrics, timestamp),
            SyncDevice::Deployment(device) => {
                let deployment = DeploymentDevice::from_metrics(metrics)?;
                if self.ids.get(device).is_some_and(|before| *before != deployment.uuid) {
                    self.death(key);
                }
                self.ids.insert(device.clone(), deployment.uuid);
                self.deployments.insert(deployment.uuid, deployment);
                Ok(())
            }
        }
    }

    fn data(&mut self, key: &SyncDevice, metrics: &[Metric], timestamp: u64) -> Result<(), FieldError> {
        match key {
            SyncDevice::Host(name) => self.hosts.data(name, metrics, timestamp),
            SyncDevice::Deployment(device) => {
                let Some(uuid) = self.ids.get(device) else { return Ok(()) };
                self.deployments.data(uuid, metrics, timestamp)
            }
        }
    }

    fn death(&mut self, key: &SyncDevice) -> bool {
        match key {
            SyncDevice::Host(name) => self.hosts.death(name),
            SyncDevice::Deployment(device) => {
                let Some(uuid) = self.ids.remove(device) else { return false };
                if !self.ids.values().any(|other| *other == uuid) {
                    self.deployments.remove(&uuid);
                }
                true
            }
        }
    }

    fn keys(&self) -> Vec<SyncDevice> {
        let hosts = self.hosts.keys().cloned().map(SyncDevice::Host);
        hosts.chain(self.ids.keys().cloned().map(SyncDevice::Deployment)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::DeploymentState;
    use crate::names;
    use sparkplug::host::HostEvent;
    use sparkplug::replication::ReplicaChange;
    use sparkplug::{BdSeq, EdgeNodeDescriptor, GroupId};

    fn sync() -> EdgeNodeDescriptor {
        names::sync_node(GroupId::new("ACME-Cell").unwrap())
    }

    fn birth(timestamp: u64, node: &SyncNode) -> HostEvent {
        birth_of(BdSeq::ZERO, timestamp, node)
    }

    fn birth_of(bd_seq: BdSeq, timestamp: u64, node: &SyncNode) -> HostEvent {
        HostEvent::NodeBirth { node: sync(), bd_seq, timestamp, uuid: None, metrics: node.to_metrics().into() }
    }

    fn device_birth(device: &SyncDevice, metrics: Vec<Metric>) -> HostEvent {
        HostEvent::DeviceBirth { node: sync(), device: device.id().unwrap(), timestamp: 0, metrics: metrics.into() }
    }

    const UUID: Uuid = Uuid::from_u128(5);

    fn deployment(device: &SyncDevice, uuid: Uuid) -> HostEvent {
        device_birth(device, DeploymentDevice { uuid, ..DeploymentDevice::default() }.to_metrics())
    }

    fn oven() -> SyncDevice {
        SyncDevice::Deployment(oven_id())
    }

    fn oven_id() -> DeviceId {
        SyncDevice::deployment_id(UUID, "Oven_1")
    }

    fn complete() -> SyncReplica {
        let mut replica = SyncReplica::new(sync());
        let node = SyncNode { hosts_total: 1, deployments_total: 1, ..SyncNode::default() };
        assert_eq!(replica.on_event(&birth(10, &node)), Some(ReplicaChange::Born));
        let missing = "of ACME-Cell/Sync the births of 0 of its 2 devices have arrived";
        assert_eq!(replica.missing_births().as_deref(), Some(missing));
        assert!(!replica.is_complete());
        let host = HostDevice { hostname: "a".to_owned(), ..HostDevice::default() };
        let event = device_birth(&SyncDevice::Host("a".to_owned()), host.to_metrics());
        assert_eq!(replica.on_event(&event), Some(ReplicaChange::Device(SyncDevice::Host("a".to_owned()))));
        assert!(!replica.is_complete());
        assert_eq!(replica.on_event(&deployment(&oven(), UUID)), Some(ReplicaChange::Device(oven())));
        assert_eq!(replica.devices().device_of(UUID), Some(&oven_id()));
        assert!(replica.is_complete() && replica.missing_births().is_none());
        replica
    }

    #[test]
    fn data_and_deaths_of_devices_are_followed() {
        let mut replica = complete();
        let metrics = vec![Metric::new(names::deployment::STATE, "applied")];
        let data = HostEvent::DeviceData { node: sync(), device: oven_id(), timestamp: 0, metrics };
        assert_eq!(replica.on_event(&data), Some(ReplicaChange::Device(oven())));
        assert_eq!(replica.devices().deployments[&UUID].state, DeploymentState::Applied);
        let death = HostEvent::DeviceDeath { node: sync(), device: oven_id(), timestamp: 0 };
        assert_eq!(replica.on_event(&death), Some(ReplicaChange::Device(oven())));
        assert_eq!(replica.on_event(&death), None);
        assert!(!replica.is_complete(), "the node has not said yet that there is one less");
        let metrics = vec![Metric::new(names::DEPLOYMENTS_TOTAL, 0_u32)];
        let data = HostEvent::NodeData { node: sync(), timestamp: 0, metrics };
        assert_eq!(replica.on_event(&data), Some(ReplicaChange::Node));
        assert!(replica.is_complete());
    }

    #[test]
    fn a_device_that_is_born_for_another_deployment_is_that_one_and_two_devices_of_one_are_not_complete() {
        let mut replica = complete();
        let other = Uuid::from_u128(6);
        replica.on_event(&deployment(&oven(), other));
        assert_eq!(replica.devices().deployments.keys().copied().collect::<Vec<_>>(), [other]);
        assert_eq!((replica.devices().device_of(UUID), replica.is_complete()), (None, true));
        let second = SyncDevice::unnamed_deployment(other);
        replica.on_event(&deployment(&SyncDevice::Deployment(second.clone()), other));
        let metrics = vec![Metric::new(names::DEPLOYMENTS_TOTAL, 2_u32)];
        replica.on_event(&HostEvent::NodeData { node: sync(), timestamp: 0, metrics });
        assert!(!replica.is_complete(), "two devices are not two deployments");
        replica.on_event(&HostEvent::DeviceDeath { node: sync(), device: second, timestamp: 0 });
        assert_eq!(replica.devices().deployments.keys().copied().collect::<Vec<_>>(), [other]);
    }

    #[test]
    fn a_dead_or_stale_node_is_not_complete_until_it_is_born_with_all_devices() {
        let mut replica = complete();
        assert_eq!(replica.on_event(&HostEvent::Offline { reason: "x".to_owned() }), Some(ReplicaChange::Stale));
        assert!(replica.is_alive() && !replica.is_complete());
        assert_eq!(replica.on_event(&HostEvent::NodeDeath { node: sync(), timestamp: 20 }), Some(ReplicaChange::Dead));
        assert_eq!(replica.on_event(&HostEvent::NodeDeath { node: sync(), timestamp: 21 }), None);
        assert!(!replica.is_alive() && replica.devices().deployments.len() == 1, "the last values are kept");
        let node = SyncNode { deployments_total: 1, ..SyncNode::default() };
        replica.on_event(&birth(30, &node));
        assert_eq!((replica.alive_since(), replica.is_complete()), (Some(30), false));
        assert!(replica.devices().deployments.is_empty());
    }

    #[test]
    fn a_rebirth_continues_the_life_and_a_birth_of_another_session_begins_one() {
        let mut replica = complete();
        replica.on_event(&birth(99, &SyncNode::default()));
        assert_eq!((replica.alive_since(), replica.is_complete()), (Some(10), true));
        replica.on_event(&birth_of(BdSeq::ZERO.next(), 100, &SyncNode::default()));
        assert_eq!(replica.alive_since(), Some(100));
    }

    #[test]
    fn what_cannot_be_read_is_a_problem_and_the_replica_is_not_complete() {
        let mut replica = complete();
        let device = SyncDevice::Host("a".to_owned());
        let metrics = vec![Metric::new(names::host::STATE, 1_u64)];
        let data = HostEvent::DeviceData { node: sync(), device: device.id().unwrap(), timestamp: 0, metrics };
        assert_eq!(replica.on_event(&data), Some(ReplicaChange::Device(SyncDevice::Host("a".to_owned()))));
        assert_eq!(replica.problems()["host-a"].to_string(), "metric \"Status/State\" must be ready or not-ready");
        assert!(!replica.is_complete());
        let host = HostDevice { hostname: "a".to_owned(), ..HostDevice::default() };
        replica.on_event(&device_birth(&device, host.to_metrics()));
        assert!(replica.is_complete());
    }

    #[test]
    fn other_nodes_are_not_looked_at() {
        let mut replica = complete();
        let before = replica.clone();
        let other = EdgeNodeDescriptor::parse("ACME-Other", "Sync").unwrap();
        assert_eq!(replica.on_event(&HostEvent::NodeDeath { node: other.clone(), timestamp: 0 }), None);
        assert_eq!(replica.on_event(&HostEvent::NodeStale { node: other, reason: String::new() }), None);
        assert_eq!(replica.on_event(&HostEvent::Online), None);
        assert_eq!(replica, before);
    }
}
