//! A typed copy of the git server: the Devices of its repositories and of the pushes under way.

use std::collections::BTreeMap;

use sparkplug::replication::{Contract, Devices, Replica};
use sparkplug::typed::FieldError;
use sparkplug::{DeviceId, Metric, TypedMetrics};
use uuid::Uuid;

use crate::names::{push_of, repository_of};
use crate::node::GitNode;
use crate::push::PushDevice;
use crate::repository::RepositoryCopy;

/// Pushes that are kept at the same time; of more the copy is never complete.
pub const PUSHES_MAX: usize = 64;

/// A copy of the git server; see [`Replica`].
pub type GitReplica = Replica<GitContract>;

/// What the git server publishes.
#[derive(Debug)]
pub enum GitContract {}

/// A Device of the git server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum GitDevice {
    /// Of a repository.
    Repository(Uuid),
    /// Of a push under way.
    Push(Uuid),
}

impl Contract for GitContract {
    type Node = GitNode;
    type Key = GitDevice;
    type Devices = GitDevices;

    fn key(device: &DeviceId) -> Option<GitDevice> {
        repository_of(device).map(GitDevice::Repository).or_else(|| push_of(device).map(GitDevice::Push))
    }

    fn devices_total(node: &GitNode) -> Option<u64> {
        Some(u64::from(node.repositories) + u64::from(node.pushes))
    }
}

/// The Devices of the git server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GitDevices {
    /// The copies.
    pub repositories: BTreeMap<Uuid, RepositoryCopy>,
    /// The pushes under way.
    pub pushes: BTreeMap<Uuid, PushDevice>,
}

impl Devices<GitDevice> for GitDevices {
    fn count(&self) -> usize {
        self.repositories.len() + self.pushes.len()
    }

    fn contains(&self, key: &GitDevice) -> bool {
        match key {
            GitDevice::Repository(repository) => self.repositories.contains_key(repository),
            GitDevice::Push(push) => self.pushes.contains_key(push),
        }
    }

    fn birth(&mut self, key: &GitDevice, metrics: &[Metric], _: u64) -> Result<(), FieldError> {
        match key {
            GitDevice::Repository(repository) => {
                self.repositories.insert(*repository, RepositoryCopy::from_metrics(metrics)?);
            }
            GitDevice::Push(push) if self.pushes.len() < PUSHES_MAX || self.pushes.contains_key(push) => {
                self.pushes.insert(*push, PushDevice::from_metrics(metrics)?);
            }
            GitDevice::Push(_) => {}
        }
        Ok(())
    }

    fn data(&mut self, key: &GitDevice, metrics: &[Metric], _: u64) -> Result<(), FieldError> {
        match key {
            GitDevice::Repository(repository) => {
                self.repositories.get_mut(repository).map_or(Ok(()), |copy| copy.merge(metrics))
            }
            GitDevice::Push(push) => self.pushes.get_mut(push).map_or(Ok(()), |push| push.merge(metrics)),
        }
    }

    fn death(&mut self, key: &GitDevice) -> bool {
        match key {
            GitDevice::Repository(repository) => self.repositories.remove(repository).is_some(),
            GitDevice::Push(push) => self.pushes.remove(push).is_some(),
        }
    }

    fn keys(&self) -> Vec<GitDevice> {
        let repositories = self.repositories.keys().copied().map(GitDevice::Repository);
        repositories.chain(self.pushes.keys().copied().map(GitDevice::Push)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names;
    use sparkplug::host::HostEvent;
    use sparkplug::{BdSeq, EdgeNodeDescriptor};

    fn node() -> EdgeNodeDescriptor {
        names::node("ACME").unwrap()
    }

    fn birth(repositories: u32, pushes: u32) -> HostEvent {
        let metrics = GitNode { repositories, pushes, ..GitNode::default() }.to_metrics().into();
        HostEvent::NodeBirth { node: node(), bd_seq: BdSeq::ZERO, timestamp: 0, uuid: None, metrics }
    }

    #[test]
    fn it_is_complete_when_all_repositories_and_pushes_are_born() {
        let mut replica = GitReplica::new(node());
        replica.on_event(&birth(1, 1));
        let one = Uuid::from_u128(1);
        let metrics = RepositoryCopy { version: 3, ..RepositoryCopy::default() }.to_metrics();
        let device = names::repository_device(one);
        replica.on_event(&HostEvent::DeviceBirth { node: node(), device, timestamp: 0, metrics: metrics.into() });
        assert!(!replica.is_complete());
        let metrics = PushDevice { repository: one, ..PushDevice::default() }.to_metrics();
        let device = names::push_device(one);
        replica.on_event(&HostEvent::DeviceBirth {
            node: node(),
            device: device.clone(),
            timestamp: 0,
            metrics: metrics.into(),
        });
        assert!(replica.is_complete());
        let metrics = PushDevice { offset: 7, ..PushDevice::default() }.to_metrics();
        replica.on_event(&HostEvent::DeviceData { node: node(), device: device.clone(), timestamp: 0, metrics });
        assert_eq!((replica.devices().repositories[&one].version, replica.devices().pushes[&one].offset), (3, 7));
        replica.on_event(&HostEvent::DeviceDeath { node: node(), device, timestamp: 0 });
        assert!(replica.devices().pushes.is_empty());
    }

    #[test]
    fn more_pushes_than_can_be_kept_take_no_memory() {
        let mut replica = GitReplica::new(node());
        replica.on_event(&birth(0, 0));
        for number in 0..PUSHES_MAX + 3 {
            let device = names::push_device(Uuid::from_u128(number as u128));
            let metrics = PushDevice::default().to_metrics().into();
            replica.on_event(&HostEvent::DeviceBirth { node: node(), device, timestamp: 0, metrics });
        }
        assert_eq!(replica.devices().pushes.len(), PUSHES_MAX);
    }
}
