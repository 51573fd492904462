//! A typed copy of one Join node, fed with the events of a Host Application. It knows whether it is complete; who derives anything from what is absent must ask.

use std::collections::BTreeMap;

use sparkplug::host::HostEvent;
use sparkplug::{BdSeq, DeviceId, EdgeNodeDescriptor, Metric, TypedMetrics};
use uuid::Uuid;

use crate::counters::JoinCounters;
use crate::host::JoinHost;
use crate::names::host_of;
use crate::node::JoinNode;

/// What an event changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JoinChange {
    /// NBIRTH: the node is alive, its devices are to come.
    Born,
    /// NDEATH: the node is dead; what it said last is kept.
    Dead,
    /// Lost track: what is kept may be old.
    Stale,
    /// Metrics of the node itself.
    Node,
    /// The host with that id, which is its state disk or that of a [`crate::names::keyed_host`], came, changed or went.
    Host(Uuid),
    /// A device that is no host, or a birth or data that cannot be read; see [`JoinReplica::problems`].
    Other(DeviceId),
}

/// The copy. After a death or a loss of track the last values stay readable; `is_alive` and `is_complete` tell.
#[derive(Debug, Clone, PartialEq)]
pub struct JoinReplica {
    address: EdgeNodeDescriptor,
    in_track: bool,
    alive_since: Option<u64>,
    /// Session of the last birth: the same again is a rebirth, another one is another life.
    bd_seq: Option<BdSeq>,
    node: Option<JoinNode>,
    counters: JoinCounters,
    hosts: BTreeMap<Uuid, JoinHost>,
    problems: BTreeMap<String, String>,
}

impl JoinReplica {
    /// An empty copy of the Join node at `address`.
    #[must_use]
    pub const fn new(address: EdgeNodeDescriptor) -> Self {
        Self {
            address,
            in_track: false,
            alive_since: None,
            bd_seq: None,
            node: None,
            counters: JoinCounters { requests: BTreeMap::new(), refusals: BTreeMap::new(), ignored: BTreeMap::new() },
            hosts: BTreeMap::new(),
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

    /// Nothing was missed since the last birth.
    #[must_use]
    pub const fn is_in_track(&self) -> bool {
        self.in_track
    }

    /// Timestamp of the birth of the present life, UTC ms.
    #[must_use]
    pub const fn alive_since(&self) -> Option<u64> {
        self.alive_since
    }

    /// Alive, nothing missed since the birth, everything readable, and as many hosts as the node says there are.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        let counted = |node: &JoinNode| usize::try_from(node.hosts_total) == Ok(self.hosts.len());
        self.is_alive() && self.in_track && self.problems.is_empty() && self.node.as_ref().is_some_and(counted)
    }

    /// What the node says of itself; None before the first birth that could be read.
    #[must_use]
    pub const fn node(&self) -> Option<&JoinNode> {
        self.node.as_ref()
    }

    /// What it counts.
    #[must_use]
    pub const fn counters(&self) -> &JoinCounters {
        &self.counters
    }

    /// Hosts by the id of their device: the state disk, or that of a [`crate::names::keyed_host`].
    #[must_use]
    pub const fn hosts(&self) -> &BTreeMap<Uuid, JoinHost> {
        &self.hosts
    }

    /// What could not be read: by device id, or `""` for the node itself.
    #[must_use]
    pub const fn problems(&self) -> &BTreeMap<String, String> {
        &self.problems
    }

    /// Takes an event over. None: it is about another node, or says nothing that is kept.
    pub fn on_event(&mut self, event: &HostEvent) -> Option<JoinChange> {
        match event {
            HostEvent::Offline { .. } => self.lose_track(),
            HostEvent::NodeStale { node, .. } if *node == self.address => self.lose_track(),
            HostEvent::NodeDeath { node, .. } if *node == self.address => {
                self.in_track = false;
                self.alive_since.take().map(|_| JoinChange::Dead)
            }
            HostEvent::NodeBirth { node, bd_seq, timestamp, metrics, .. } if *node == self.address => {
                if self.bd_seq.replace(*bd_seq) != Some(*bd_seq) || self.alive_since.is_none() {
                    self.alive_since = Some(*timestamp);
                }
                self.in_track = true;
                self.hosts.clear();
                self.problems.clear();
                self.counters = JoinCounters::default();
                self.counters.merge(metrics.iter());
                match JoinNode::from_metrics(metrics.iter()) {
                    Ok(node) => self.node = Some(node),
                    Err(error) => self.note("", &error),
                }
                Some(JoinChange::Born)
            }
            HostEvent::NodeData { node, metrics, .. } if *node == self.address => {
                self.counters.merge(metrics);
                let merged = self.node.as_mut().map(|known| known.merge(metrics));
                if let Some(Err(error)) = merged {
                    self.note("", &error);
                }
                Some(JoinChange::Node)
            }
            HostEvent::DeviceBirth { node, device, metrics, .. } if *node == self.address => {
                Some(self.device_birth(device, metrics))
            }
            HostEvent::DeviceData { node, device, metrics, .. } if *node == self.address => {
                Some(self.device_data(device, metrics))
            }
            HostEvent::DeviceDeath { node, device, .. } if *node == self.address => {
                self.problems.remove(device.as_str());
                let id = host_of(device).filter(|id| self.hosts.remove(id).is_some())?;
                Some(JoinChange::Host(id))
            }
            _ => None,
        }
    }

    fn lose_track(&mut self) -> Option<JoinChange> {
        std::mem::take(&mut self.in_track).then_some(JoinChange::Stale)
    }

    fn note(&mut self, device: &str, error: &dyn std::error::Error) {
        self.problems.insert(device.to_owned(), error.to_string());
    }

    fn device_birth(&mut self, device: &DeviceId, metrics: &[Metric]) -> JoinChange {
        self.problems.remove(device.as_str());
        let other = JoinChange::Other(device.clone());
        let Some(id) = host_of(device) else { return other };
        match JoinHost::from_metrics(metrics) {
            Ok(host) => {
                self.hosts.insert(id, host);
                JoinChange::Host(id)
            }
            Err(error) => {
                self.note(device.as_str(), &error);
                other
            }
        }
    }

    fn device_data(&mut self, device: &DeviceId, metrics: &[Metric]) -> JoinChange {
        let other = JoinChange::Other(device.clone());
        let Some(id) = host_of(device) else { return other };
        let Some(host) = self.hosts.get_mut(&id) else { return other };
        if let Err(error) = host.merge(metrics) {
            self.note(device.as_str(), &error);
        }
        JoinChange::Host(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::HostState;
    use crate::names::{self, host_device};
    use sparkplug::GroupId;

    const DISK: Uuid = Uuid::from_u128(5);

    fn join() -> EdgeNodeDescriptor {
        names::join_node(GroupId::new("ACME-Cell").unwrap())
    }

    fn birth(bd_seq: BdSeq, timestamp: u64, node: &JoinNode) -> HostEvent {
        let mut metrics = node.to_metrics();
        metrics.extend(JoinCounters::zero(["join"], ["lock"], []).to_metrics());
        HostEvent::NodeBirth { node: join(), bd_seq, timestamp, uuid: None, metrics: metrics.into() }
    }

    fn host_birth(metrics: Vec<Metric>) -> HostEvent {
        HostEvent::DeviceBirth { node: join(), device: host_device(DISK), timestamp: 0, metrics: metrics.into() }
    }

    fn complete() -> JoinReplica {
        let mut replica = JoinReplica::new(join());
        let node = JoinNode { hosts_total: 1, ..JoinNode::default() };
        assert_eq!(replica.on_event(&birth(BdSeq::ZERO, 10, &node)), Some(JoinChange::Born));
        assert!(!replica.is_complete());
        assert_eq!(replica.on_event(&host_birth(JoinHost::default().to_metrics())), Some(JoinChange::Host(DISK)));
        assert!(replica.is_complete());
        replica
    }

    #[test]
    fn data_and_deaths_of_hosts_are_followed() {
        let mut replica = complete();
        let metrics = vec![Metric::new(names::host::STATE, "member")];
        let data = HostEvent::DeviceData { node: join(), device: host_device(DISK), timestamp: 0, metrics };
        assert_eq!(replica.on_event(&data), Some(JoinChange::Host(DISK)));
        assert_eq!(replica.hosts()[&DISK].state, HostState::Member);
        let metrics = vec![Metric::new("Refusals/lock", 2_u64), Metric::new(names::HOSTS_PENDING, 1_u32)];
        let data = HostEvent::NodeData { node: join(), timestamp: 0, metrics };
        assert_eq!(replica.on_event(&data), Some(JoinChange::Node));
        assert_eq!((replica.counters().refusals["lock"], replica.node().unwrap().hosts_pending), (2, 1));
        let death = HostEvent::DeviceDeath { node: join(), device: host_device(DISK), timestamp: 0 };
        assert_eq!(replica.on_event(&death), Some(JoinChange::Host(DISK)));
        assert_eq!(replica.on_event(&death), None);
        assert!(!replica.is_complete(), "the node has not said yet that there is one less");
    }

    #[test]
    fn a_dead_or_stale_node_is_not_complete_until_it_is_born_with_all_hosts() {
        let mut replica = complete();
        assert_eq!(replica.on_event(&HostEvent::Offline { reason: "x".to_owned() }), Some(JoinChange::Stale));
        assert!(replica.is_alive() && !replica.is_complete() && !replica.is_in_track());
        assert_eq!(replica.on_event(&HostEvent::NodeDeath { node: join(), timestamp: 20 }), Some(JoinChange::Dead));
        assert!(!replica.is_alive() && replica.hosts().len() == 1, "the last values are kept");
        replica.on_event(&birth(BdSeq::ZERO.next(), 30, &JoinNode::default()));
        assert_eq!((replica.alive_since(), replica.is_complete()), (Some(30), true));
    }

    #[test]
    fn what_cannot_be_read_is_a_problem_and_other_nodes_are_not_looked_at() {
        let mut replica = complete();
        assert!(matches!(replica.on_event(&host_birth(Vec::new())), Some(JoinChange::Other(_))));
        assert!(!replica.is_complete());
        assert_eq!(replica.problems()[host_device(DISK).as_str()], "metric \"Status/State\" is missing in the birth");
        let before = replica.clone();
        let other = EdgeNodeDescriptor::parse("ACME-Other", "Join").unwrap();
        assert_eq!(replica.on_event(&HostEvent::NodeDeath { node: other, timestamp: 0 }), None);
        assert_eq!(replica, before);
    }
}
