//! A typed copy of one Keys node: the accounts that it wants.

use std::collections::BTreeMap;

use sparkplug::DeviceId;
use sparkplug::replication::{Contract, Replica};

use crate::account::AccountDevice;
use crate::names::resource_of;
use crate::node::KeysNode;

/// Accounts of one cluster that are kept; of more the copy is never complete. It bounds the memory that a cluster can take, some 20 MiB at most.
pub const ACCOUNTS_MAX: usize = 2_000;

/// A copy of a Keys node; see [`Replica`]. Its Devices are accounts by the name of their KerberosKey.
pub type KeysReplica = Replica<KeysContract>;

/// What a Keys node publishes.
#[derive(Debug)]
pub enum KeysContract {}

impl Contract for KeysContract {
    type Node = KeysNode;
    type Key = String;
    type Devices = BTreeMap<String, AccountDevice>;

    const DEVICES_MAX: usize = ACCOUNTS_MAX;

    fn key(device: &DeviceId) -> Option<String> {
        resource_of(device)
    }

    fn devices_total(node: &KeysNode) -> Option<u64> {
        node.accounts.map(u64::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::AccountRequest;
    use crate::names::{account_device, keys_node};
    use sparkplug::host::HostEvent;
    use sparkplug::{BdSeq, EdgeNodeDescriptor, GroupId, TypedMetrics};
    use uuid::Uuid;

    fn keys() -> EdgeNodeDescriptor {
        keys_node(GroupId::new("ACME-Cell").unwrap())
    }

    fn birth(accounts: Option<u32>) -> HostEvent {
        let metrics = KeysNode { accounts, ..KeysNode::default() }.to_metrics().into();
        HostEvent::NodeBirth { node: keys(), bd_seq: BdSeq::ZERO, timestamp: 0, uuid: None, metrics }
    }

    fn account(resource: &str) -> HostEvent {
        let request = AccountRequest { uuid: Some(Uuid::from_u128(1)), ..AccountRequest::default() };
        let metrics = AccountDevice { request, ..AccountDevice::default() }.to_metrics().into();
        let device = account_device(resource).unwrap();
        HostEvent::DeviceBirth { node: keys(), device, timestamp: 0, metrics }
    }

    fn total(accounts: Option<u32>) -> HostEvent {
        let node = KeysNode { accounts, ..KeysNode::default() };
        HostEvent::NodeData { node: keys(), timestamp: 0, metrics: node.to_metrics() }
    }

    #[test]
    fn it_is_complete_when_as_many_accounts_are_born_as_there_are_and_a_death_ends_that() {
        let mut replica = KeysReplica::new(keys());
        replica.on_event(&birth(None));
        assert!(!replica.is_complete(), "the resources are not listed yet");
        replica.on_event(&account("a"));
        replica.on_event(&total(Some(1)));
        assert!(replica.is_complete());
        let death = HostEvent::DeviceDeath { node: keys(), device: account_device("a").unwrap(), timestamp: 0 };
        replica.on_event(&death);
        assert!(!replica.is_complete(), "the node has not said yet that there is one less");
        replica.on_event(&total(Some(0)));
        assert!(replica.is_complete() && replica.devices().is_empty());
        replica.on_event(&account("a"));
        replica.on_event(&total(Some(1)));
        for end in [
            HostEvent::NodeDeath { node: keys(), timestamp: 0 },
            HostEvent::NodeStale { node: keys(), reason: "gap".into() },
            HostEvent::Offline { reason: "x".to_owned() },
        ] {
            let mut replica = replica.clone();
            replica.on_event(&end);
            assert!(!replica.is_complete() && replica.devices().len() == 1);
            replica.on_event(&birth(Some(1)));
            assert!(!replica.is_complete() && replica.devices().is_empty());
            replica.on_event(&account("a"));
            assert!(replica.is_complete());
        }
    }

    #[test]
    fn what_cannot_be_read_or_is_too_much_is_a_problem_and_other_nodes_are_not_looked_at() {
        let mut replica = KeysReplica::new(keys());
        replica.on_event(&birth(Some(1)));
        let device = account_device("a").unwrap();
        let unreadable = HostEvent::DeviceBirth { node: keys(), device, timestamp: 0, metrics: Vec::new().into() };
        replica.on_event(&unreadable);
        assert!(!replica.is_complete() && replica.problems().len() == 1);
        replica.on_event(&account("a"));
        assert!(replica.is_complete());
        let other = EdgeNodeDescriptor::parse("ACME-Other", "Keys").unwrap();
        assert_eq!(replica.on_event(&HostEvent::NodeDeath { node: other, timestamp: 0 }), None);
        for number in 0..ACCOUNTS_MAX {
            replica.on_event(&account(&number.to_string()));
        }
        assert_eq!(replica.devices().len(), ACCOUNTS_MAX);
        replica.on_event(&total(Some(u32::try_from(ACCOUNTS_MAX).unwrap())));
        assert!(!replica.is_complete(), "one is not kept");
    }
}
