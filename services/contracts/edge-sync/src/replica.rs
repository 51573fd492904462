//! A typed copy of one Sync node, fed with the events of a Host Application. It knows whether it is complete; who derives deletions
//! from it must ask.

use std::collections::{BTreeMap, BTreeSet};

use sparkplug::host::HostEvent;
use sparkplug::{BdSeq, DeviceId, EdgeNodeDescriptor, Metric, TypedMetrics};
use uuid::Uuid;

use crate::device::{DeploymentDevice, HostDevice};
use crate::names::SyncDevice;
use crate::node::SyncNode;

/// What an event changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// NBIRTH: the node is alive, its devices are to come.
    Born,
    /// NDEATH: the node is dead; what it said last is kept.
    Dead,
    /// Lost track: what is kept may be old.
    Stale,
    /// Metrics of the node itself.
    Node,
    /// The host of that name came, changed or went.
    Host(String),
    /// The deployment came, changed or went.
    Deployment(Uuid),
    /// A device that is neither, or a birth or data that cannot be read; see [`SyncReplica::problems`].
    Other(DeviceId),
}

/// The copy. After a death or a loss of track the last values stay readable; `is_alive` and `is_complete` tell.
#[derive(Debug, Clone, PartialEq)]
pub struct SyncReplica {
    address: EdgeNodeDescriptor,
    in_track: bool,
    alive_since: Option<u64>,
    /// Session of the last birth: the same again is a rebirth, another one is another life.
    bd_seq: Option<BdSeq>,
    node: Option<SyncNode>,
    hosts: BTreeMap<String, HostDevice>,
    deployments: BTreeMap<Uuid, DeploymentDevice>,
    devices: BTreeSet<DeviceId>,
    problems: BTreeMap<String, String>,
}

impl SyncReplica {
    /// An empty copy of the Sync node at `address`.
    #[must_use]
    pub const fn new(address: EdgeNodeDescriptor) -> Self {
        Self {
            address,
            in_track: false,
            alive_since: None,
            bd_seq: None,
            node: None,
            hosts: BTreeMap::new(),
            deployments: BTreeMap::new(),
            devices: BTreeSet::new(),
            problems: BTreeMap::new(),
        }
    }

    /// Whose copy it is.
    #[must_use]
    pub const fn address(&self) -> &EdgeNodeDescriptor {
        &self.address
    }

    /// Between a birth and its death, as far as is known.
    #[must_use]
    pub const fn is_alive(&self) -> bool {
        self.alive_since.is_some()
    }

    /// Nothing was missed since the last birth. An alive node that is not in track may have died meanwhile.
    #[must_use]
    pub const fn is_in_track(&self) -> bool {
        self.in_track
    }

    /// Timestamp of the birth of the present life, UTC ms.
    #[must_use]
    pub const fn alive_since(&self) -> Option<u64> {
        self.alive_since
    }

    /// Alive, nothing missed since the birth, everything readable, and as many hosts and deployments as the node says there are.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        let counted = |total: u32, known: usize| usize::try_from(total) == Ok(known);
        self.is_alive()
            && self.in_track
            && self.problems.is_empty()
            && self.node.as_ref().is_some_and(|node| {
                counted(node.hosts_total, self.hosts.len()) && counted(node.deployments_total, self.deployments.len())
            })
    }

    /// For people: which births of an alive node have not arrived. None: all have, or nothing is known.
    #[must_use]
    pub fn missing_births(&self) -> Option<String> {
        let node = self.node.as_ref().filter(|_| self.is_alive())?;
        let told = u64::from(node.hosts_total) + u64::from(node.deployments_total);
        let known = self.hosts.len() + self.deployments.len();
        (u64::try_from(known).is_ok_and(|known| known < told))
            .then(|| format!("of {} the births of {known} of its {told} devices have arrived", self.address))
    }

    /// What the node says of itself; None before the first birth that could be read.
    #[must_use]
    pub const fn node(&self) -> Option<&SyncNode> {
        self.node.as_ref()
    }

    /// Hosts by name.
    #[must_use]
    pub const fn hosts(&self) -> &BTreeMap<String, HostDevice> {
        &self.hosts
    }

    /// Deployments.
    #[must_use]
    pub const fn deployments(&self) -> &BTreeMap<Uuid, DeploymentDevice> {
        &self.deployments
    }

    /// What could not be read: by device id, or `""` for the node itself.
    #[must_use]
    pub const fn problems(&self) -> &BTreeMap<String, String> {
        &self.problems
    }

    /// Takes an event over. None: it is about another node, or says nothing that is kept.
    pub fn on_event(&mut self, event: &HostEvent) -> Option<Change> {
        match event {
            HostEvent::Offline { .. } => self.lose_track(),
            HostEvent::NodeStale { node, .. } if *node == self.address => self.lose_track(),
            HostEvent::NodeDeath { node, .. } if *node == self.address => {
                self.in_track = false;
                self.alive_since.take().map(|_| Change::Dead)
            }
            HostEvent::NodeBirth { node, bd_seq, timestamp, metrics, .. } if *node == self.address => {
                if self.bd_seq.replace(*bd_seq) != Some(*bd_seq) || self.alive_since.is_none() {
                    self.alive_since = Some(*timestamp);
                }
                self.in_track = true;
                self.hosts.clear();
                self.deployments.clear();
                self.devices.clear();
                self.problems.clear();
                match SyncNode::from_metrics(metrics.iter()) {
                    Ok(node) => self.node = Some(node),
                    Err(error) => self.note("", &error),
                }
                Some(Change::Born)
            }
            HostEvent::NodeData { node, metrics, .. } if *node == self.address => {
                let merged = self.node.as_mut().map(|known| known.merge(metrics));
                if let Some(Err(error)) = merged {
                    self.note("", &error);
                }
                Some(Change::Node)
            }
            HostEvent::DeviceBirth { node, device, metrics, .. } if *node == self.address => {
                Some(self.device_birth(device, metrics))
            }
            HostEvent::DeviceData { node, device, metrics, .. } if *node == self.address => {
                Some(self.device_data(device, metrics))
            }
            HostEvent::DeviceDeath { node, device, .. } if *node == self.address => {
                self.problems.remove(device.as_str());
                self.devices.remove(device).then(|| self.drop_device(device))
            }
            _ => None,
        }
    }

    fn lose_track(&mut self) -> Option<Change> {
        std::mem::take(&mut self.in_track).then_some(Change::Stale)
    }

    fn note(&mut self, device: &str, error: &dyn std::error::Error) {
        self.problems.insert(device.to_owned(), error.to_string());
    }

    fn device_birth(&mut self, device: &DeviceId, metrics: &[Metric]) -> Change {
        self.devices.insert(device.clone());
        self.problems.remove(device.as_str());
        let (change, error) = match SyncDevice::parse(device) {
            None => (Change::Other(device.clone()), None),
            Some(SyncDevice::Host(hostname)) => match HostDevice::from_metrics(metrics) {
                Ok(host) => {
                    self.hosts.insert(hostname.clone(), host);
                    (Change::Host(hostname), None)
                }
                Err(error) => (Change::Other(device.clone()), Some(error)),
            },
            Some(SyncDevice::Deployment(uuid)) => match DeploymentDevice::from_metrics(metrics) {
                Ok(deployment) => {
                    self.deployments.insert(uuid, deployment);
                    (Change::Deployment(uuid), None)
                }
                Err(error) => (Change::Other(device.clone()), Some(error)),
            },
        };
        if let Some(error) = error {
            self.note(device.as_str(), &error);
        }
        change
    }

    fn device_data(&mut self, device: &DeviceId, metrics: &[Metric]) -> Change {
        let other = Change::Other(device.clone());
        let (change, merged) = match SyncDevice::parse(device) {
            None => return other,
            Some(SyncDevice::Host(hostname)) => match self.hosts.get_mut(&hostname) {
                Some(host) => (Change::Host(hostname), host.merge(metrics)),
                None => return other,
            },
            Some(SyncDevice::Deployment(uuid)) => match self.deployments.get_mut(&uuid) {
                Some(deployment) => (Change::Deployment(uuid), deployment.merge(metrics)),
                None => return other,
            },
        };
        if let Err(error) = merged {
            self.note(device.as_str(), &error);
        }
        change
    }

    fn drop_device(&mut self, device: &DeviceId) -> Change {
        match SyncDevice::parse(device) {
            Some(SyncDevice::Host(hostname)) if self.hosts.remove(&hostname).is_some() => Change::Host(hostname),
            Some(SyncDevice::Deployment(uuid)) if self.deployments.remove(&uuid).is_some() => Change::Deployment(uuid),
            _ => Change::Other(device.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::DeploymentState;
    use crate::names;
    use sparkplug::GroupId;

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

    fn complete() -> SyncReplica {
        let mut replica = SyncReplica::new(sync());
        let node = SyncNode { hosts_total: 1, deployments_total: 1, ..SyncNode::default() };
        assert_eq!(replica.on_event(&birth(10, &node)), Some(Change::Born));
        let missing = "of ACME-Cell/Sync the births of 0 of its 2 devices have arrived";
        assert_eq!(replica.missing_births().as_deref(), Some(missing));
        assert!(!replica.is_complete());
        let host = HostDevice { hostname: "a".to_owned(), ..HostDevice::default() };
        let event = device_birth(&SyncDevice::Host("a".to_owned()), host.to_metrics());
        assert_eq!(replica.on_event(&event), Some(Change::Host("a".to_owned())));
        assert!(!replica.is_complete());
        let event = device_birth(&SyncDevice::Deployment(UUID), DeploymentDevice::default().to_metrics());
        assert_eq!(replica.on_event(&event), Some(Change::Deployment(UUID)));
        assert!(replica.is_complete() && replica.missing_births().is_none());
        replica
    }

    #[test]
    fn data_and_deaths_of_devices_are_followed() {
        let mut replica = complete();
        let metrics = vec![Metric::new(names::deployment::STATE, "applied")];
        let data =
            HostEvent::DeviceData { node: sync(), device: SyncDevice::deployment_id(UUID), timestamp: 0, metrics };
        assert_eq!(replica.on_event(&data), Some(Change::Deployment(UUID)));
        assert_eq!(replica.deployments()[&UUID].state, DeploymentState::Applied);
        let death = HostEvent::DeviceDeath { node: sync(), device: SyncDevice::deployment_id(UUID), timestamp: 0 };
        assert_eq!(replica.on_event(&death), Some(Change::Deployment(UUID)));
        assert_eq!(replica.on_event(&death), None);
        assert!(!replica.is_complete(), "the node has not said yet that there is one less");
        let metrics = vec![Metric::new(names::DEPLOYMENTS_TOTAL, 0_u32)];
        let data = HostEvent::NodeData { node: sync(), timestamp: 0, metrics };
        assert_eq!(replica.on_event(&data), Some(Change::Node));
        assert!(replica.is_complete());
    }

    #[test]
    fn a_dead_or_stale_node_is_not_complete_until_it_is_born_with_all_devices() {
        let mut replica = complete();
        assert_eq!(replica.on_event(&HostEvent::Offline { reason: "x".to_owned() }), Some(Change::Stale));
        assert!(replica.is_alive() && !replica.is_complete());
        assert_eq!(replica.on_event(&HostEvent::NodeDeath { node: sync(), timestamp: 20 }), Some(Change::Dead));
        assert_eq!(replica.on_event(&HostEvent::NodeDeath { node: sync(), timestamp: 21 }), None);
        assert!(!replica.is_alive() && replica.deployments().len() == 1, "the last values are kept");
        let node = SyncNode { deployments_total: 1, ..SyncNode::default() };
        replica.on_event(&birth(30, &node));
        assert_eq!((replica.alive_since(), replica.is_complete()), (Some(30), false));
        assert!(replica.deployments().is_empty());
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
        assert_eq!(replica.on_event(&data), Some(Change::Host("a".to_owned())));
        assert_eq!(replica.problems()["host-a"], "metric \"Status/State\" must be ready or not-ready");
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
