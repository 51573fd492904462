//! A typed copy of one Keys node, fed with the events of a Host Application. It knows whether it is complete; who derives anything from what is absent must ask.

use std::collections::BTreeMap;

use sparkplug::host::HostEvent;
use sparkplug::{DeviceId, EdgeNodeDescriptor, Metric, TypedMetrics};

use crate::account::AccountDevice;
use crate::names::resource_of;
use crate::node::KeysNode;

/// Accounts of one cluster that are kept; of more the copy is never complete. It bounds the memory that a cluster can take, some 20 MiB at most.
pub const ACCOUNTS_MAX: usize = 2_000;

/// The copy. After a death or a loss of track the last values stay readable; `is_complete` tells.
#[derive(Debug, Clone, PartialEq)]
pub struct KeysReplica {
    address: EdgeNodeDescriptor,
    /// Born, and nothing missed since.
    in_track: bool,
    node: Option<KeysNode>,
    accounts: BTreeMap<String, AccountDevice>,
    problems: BTreeMap<String, String>,
}

impl KeysReplica {
    /// An empty copy of the Keys node at `address`.
    #[must_use]
    pub const fn new(address: EdgeNodeDescriptor) -> Self {
        Self { address, in_track: false, node: None, accounts: BTreeMap::new(), problems: BTreeMap::new() }
    }

    /// Whose copy it is.
    #[must_use]
    pub const fn address(&self) -> &EdgeNodeDescriptor {
        &self.address
    }

    /// Alive, nothing missed since the birth, everything readable, and as many accounts as the node says there are.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        let total = self.node.as_ref().and_then(|node| node.accounts);
        self.in_track
            && self.problems.is_empty()
            && total.is_some_and(|total| usize::try_from(total) == Ok(self.accounts.len()))
    }

    /// What the node says of itself; None before the first birth that could be read.
    #[must_use]
    pub const fn node(&self) -> Option<&KeysNode> {
        self.node.as_ref()
    }

    /// Accounts by the name of their KerberosKey.
    #[must_use]
    pub const fn accounts(&self) -> &BTreeMap<String, AccountDevice> {
        &self.accounts
    }

    /// What could not be read: by device id, or `""` for the node itself.
    #[must_use]
    pub const fn problems(&self) -> &BTreeMap<String, String> {
        &self.problems
    }

    /// Takes an event over; false if it is about another node.
    pub fn on_event(&mut self, event: &HostEvent) -> bool {
        match event {
            HostEvent::Offline { .. } => self.in_track = false,
            HostEvent::NodeStale { node, .. } | HostEvent::NodeDeath { node, .. } if *node == self.address => {
                self.in_track = false;
            }
            HostEvent::NodeBirth { node, metrics, .. } if *node == self.address => {
                self.in_track = true;
                self.accounts.clear();
                self.problems.clear();
                match KeysNode::from_metrics(metrics.iter()) {
                    Ok(node) => self.node = Some(node),
                    Err(error) => self.note("", error.to_string()),
                }
            }
            HostEvent::NodeData { node, metrics, .. } if *node == self.address => {
                if let Some(Err(error)) = self.node.as_mut().map(|known| known.merge(metrics)) {
                    self.note("", error.to_string());
                }
            }
            HostEvent::DeviceBirth { node, device, metrics, .. } if *node == self.address => {
                self.device_birth(device, metrics);
            }
            HostEvent::DeviceData { node, device, metrics, .. } if *node == self.address => {
                let known = resource_of(device).and_then(|resource| self.accounts.get_mut(&resource));
                if let Some(Err(error)) = known.map(|known| known.merge(metrics)) {
                    self.note(device.as_str(), error.to_string());
                }
            }
            HostEvent::DeviceDeath { node, device, .. } if *node == self.address => {
                self.problems.remove(device.as_str());
                resource_of(device).map(|resource| self.accounts.remove(&resource));
            }
            _ => return false,
        }
        true
    }

    fn device_birth(&mut self, device: &DeviceId, metrics: &[Metric]) {
        self.problems.remove(device.as_str());
        let Some(resource) = resource_of(device) else { return };
        let is_known = self.accounts.remove(&resource).is_some();
        if !is_known && self.accounts.len() >= ACCOUNTS_MAX {
            return self.note("", format!("there are more than {ACCOUNTS_MAX} accounts"));
        }
        match AccountDevice::from_metrics(metrics) {
            Ok(account) => drop(self.accounts.insert(resource, account)),
            Err(error) => self.note(device.as_str(), error.to_string()),
        }
    }

    fn note(&mut self, device: &str, error: String) {
        // Of what is too much one problem says enough.
        if self.problems.len() < ACCOUNTS_MAX {
            self.problems.insert(device.to_owned(), error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::AccountWish;
    use crate::names::{account_device, keys_node};
    use sparkplug::{BdSeq, GroupId};
    use uuid::Uuid;

    fn keys() -> EdgeNodeDescriptor {
        keys_node(GroupId::new("ACME-Cell").unwrap())
    }

    fn birth(accounts: Option<u32>) -> HostEvent {
        let metrics = KeysNode { accounts, ..KeysNode::default() }.to_metrics().into();
        HostEvent::NodeBirth { node: keys(), bd_seq: BdSeq::ZERO, timestamp: 0, uuid: None, metrics }
    }

    fn account(resource: &str) -> HostEvent {
        let wish = AccountWish { uuid: Some(Uuid::from_u128(1)), ..AccountWish::default() };
        let metrics = AccountDevice { wish, ..AccountDevice::default() }.to_metrics().into();
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
        assert!(replica.is_complete() && replica.accounts().is_empty());
        replica.on_event(&account("a"));
        replica.on_event(&total(Some(1)));
        for end in [
            HostEvent::NodeDeath { node: keys(), timestamp: 0 },
            HostEvent::NodeStale { node: keys(), reason: "gap".into() },
            HostEvent::Offline { reason: "x".to_owned() },
        ] {
            let mut replica = replica.clone();
            replica.on_event(&end);
            assert!(!replica.is_complete() && replica.accounts().len() == 1);
            replica.on_event(&birth(Some(1)));
            assert!(!replica.is_complete() && replica.accounts().is_empty());
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
        assert!(!replica.on_event(&HostEvent::NodeDeath { node: other, timestamp: 0 }));
        for number in 0..ACCOUNTS_MAX {
            replica.on_event(&account(&number.to_string()));
        }
        assert_eq!(replica.accounts().len(), ACCOUNTS_MAX);
        replica.on_event(&total(Some(u32::try_from(ACCOUNTS_MAX).unwrap())));
        assert!(!replica.is_complete(), "one is not kept");
    }
}
