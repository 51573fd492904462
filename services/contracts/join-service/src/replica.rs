//! A typed copy of one Join node: the hosts that join.

use std::collections::BTreeMap;

use sparkplug::DeviceId;
use sparkplug::replication::{Contract, Replica};
use uuid::Uuid;

use crate::host::JoinHost;
use crate::names::host_of;
use crate::node::JoinNode;

/// A copy of a Join node; see [`Replica`]. Its Devices are hosts by the id of their device: the state disk, or that of a [`crate::names::keyed_host`].
pub type JoinReplica = Replica<JoinContract>;

/// What a Join node publishes.
#[derive(Debug)]
pub enum JoinContract {}

impl Contract for JoinContract {
    type Node = JoinNode;
    type Key = Uuid;
    type Devices = BTreeMap<Uuid, JoinHost>;

    fn key(device: &DeviceId) -> Option<Uuid> {
        host_of(device)
    }

    fn devices_total(node: &JoinNode) -> Option<u64> {
        Some(node.hosts_total.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::HostState;
    use crate::names::{self, host_device};
    use sparkplug::host::HostEvent;
    use sparkplug::replication::ReplicaChange;
    use sparkplug::{BdSeq, EdgeNodeDescriptor, GroupId, Metric, TypedMetrics};

    const DISK: Uuid = Uuid::from_u128(5);

    fn join() -> EdgeNodeDescriptor {
        names::join_node(GroupId::new("ACME-Cell").unwrap())
    }

    fn birth(bd_seq: BdSeq, timestamp: u64, node: &JoinNode) -> HostEvent {
        let metrics = node.to_metrics();
        HostEvent::NodeBirth { node: join(), bd_seq, timestamp, uuid: None, metrics: metrics.into() }
    }

    fn host_birth(metrics: Vec<Metric>) -> HostEvent {
        HostEvent::DeviceBirth { node: join(), device: host_device(DISK), timestamp: 0, metrics: metrics.into() }
    }

    fn complete() -> JoinReplica {
        let mut replica = JoinReplica::new(join());
        let node = JoinNode { hosts_total: 1, ..JoinNode::default() };
        assert_eq!(replica.on_event(&birth(BdSeq::ZERO, 10, &node)), Some(ReplicaChange::Born));
        assert!(!replica.is_complete());
        assert_eq!(replica.on_event(&host_birth(JoinHost::default().to_metrics())), Some(ReplicaChange::Device(DISK)));
        assert!(replica.is_complete());
        replica
    }

    #[test]
    fn data_and_deaths_of_hosts_are_followed() {
        let mut replica = complete();
        let metrics = vec![Metric::new(names::host::STATE, "member")];
        let data = HostEvent::DeviceData { node: join(), device: host_device(DISK), timestamp: 0, metrics };
        assert_eq!(replica.on_event(&data), Some(ReplicaChange::Device(DISK)));
        assert_eq!(replica.devices()[&DISK].state, HostState::Member);
        let metrics = vec![Metric::new(names::HOSTS_PENDING, 1_u32)];
        let data = HostEvent::NodeData { node: join(), timestamp: 0, metrics };
        assert_eq!(replica.on_event(&data), Some(ReplicaChange::Node));
        assert_eq!(replica.node().unwrap().hosts_pending, 1);
        let death = HostEvent::DeviceDeath { node: join(), device: host_device(DISK), timestamp: 0 };
        assert_eq!(replica.on_event(&death), Some(ReplicaChange::Device(DISK)));
        assert_eq!(replica.on_event(&death), None);
        assert!(!replica.is_complete(), "the node has not said yet that there is one less");
    }

    #[test]
    fn a_dead_or_stale_node_is_not_complete_until_it_is_born_with_all_hosts() {
        let mut replica = complete();
        assert_eq!(replica.on_event(&HostEvent::Offline { reason: "x".to_owned() }), Some(ReplicaChange::Stale));
        assert!(replica.is_alive() && !replica.is_complete() && !replica.in_sync());
        assert_eq!(replica.on_event(&HostEvent::NodeDeath { node: join(), timestamp: 20 }), Some(ReplicaChange::Dead));
        assert!(!replica.is_alive() && replica.devices().len() == 1, "the last values are kept");
        replica.on_event(&birth(BdSeq::ZERO.next(), 30, &JoinNode::default()));
        assert_eq!((replica.alive_since(), replica.is_complete()), (Some(30), true));
    }

    #[test]
    fn what_cannot_be_read_is_a_problem_and_other_nodes_are_not_looked_at() {
        let mut replica = complete();
        assert!(matches!(replica.on_event(&host_birth(Vec::new())), Some(ReplicaChange::Other(_))));
        assert!(!replica.is_complete());
        assert_eq!(
            replica.problems()[host_device(DISK).as_str()].to_string(),
            "metric \"Status/State\" is missing in the birth"
        );
        let before = replica.clone();
        let other = EdgeNodeDescriptor::parse("ACME-Other", "Join").unwrap();
        assert_eq!(replica.on_event(&HostEvent::NodeDeath { node: other, timestamp: 0 }), None);
        assert_eq!(replica, before);
    }
}
