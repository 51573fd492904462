//! A typed copy of one Edge Node, fed with the events of a Host Application. It knows whether it is complete: who derives anything from what is absent must ask.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::fmt;
use std::marker::PhantomData;

use crate::host::HostEvent;
use crate::metric::Metric;
use crate::name::{DeviceId, EdgeNodeDescriptor};
use crate::seq::BdSeq;
use crate::typed::{FieldError, TypedMetrics};

/// What a reader knows of the Edge Nodes of one kind: the types of their metrics and Devices.
pub trait Contract {
    /// The metrics of the Edge Node itself.
    type Node: TypedMetrics + Default;
    /// Which Device it is.
    type Key: Clone + Ord + fmt::Debug;
    /// All Devices that can be read.
    type Devices: Devices<Self::Key>;

    /// Devices that are kept; of an Edge Node with more the copy is never complete. It bounds the memory that one Edge Node can take.
    const DEVICES_MAX: usize = usize::MAX;
    /// Devices of before a birth are kept until as many are born as that birth counts. For readers that show the last known values meanwhile.
    const KEEPS_DEVICES: bool = false;

    /// The Device with that id; None: it is of no kind that the contract knows.
    fn key(device: &DeviceId) -> Option<Self::Key>;

    /// The Devices that the Edge Node says it has; None: it has not said so yet.
    fn devices_total(node: &Self::Node) -> Option<u64>;

    /// Whether as many Devices are known as the Edge Node says it has.
    fn has_all(node: &Self::Node, devices: &Self::Devices) -> bool {
        let known = u64::try_from(devices.count()).ok();
        Self::devices_total(node).is_some_and(|total| known == Some(total))
    }
}

/// The contract of an Edge Node without Devices, of which `N` is all that is published. Devices that are born in its name are not kept.
#[derive(Debug)]
pub struct NodeOnly<N>(PhantomData<N>);

impl<N: TypedMetrics + Default> Contract for NodeOnly<N> {
    type Node = N;
    type Key = Infallible;
    type Devices = BTreeMap<Infallible, N>;

    fn key(_: &DeviceId) -> Option<Infallible> {
        None
    }

    fn devices_total(_: &N) -> Option<u64> {
        Some(0)
    }
}

/// The Devices of one Edge Node. A map from keys to typed structs is one.
pub trait Devices<K>: Default {
    /// How many there are.
    fn count(&self) -> usize;

    /// Whether that one is there.
    fn contains(&self, key: &K) -> bool;

    /// Takes a DBIRTH over. `timestamp` is that of its payload, UTC ms.
    ///
    /// # Errors
    /// A metric cannot be read; what was known of the Device stays.
    fn birth(&mut self, key: &K, metrics: &[Metric], timestamp: u64) -> Result<(), FieldError>;

    /// Takes a DDATA over. `timestamp` is that of its payload, UTC ms. Nothing happens to a Device that is not there.
    ///
    /// # Errors
    /// A metric cannot be read; what was known of the Device stays.
    fn data(&mut self, key: &K, metrics: &[Metric], timestamp: u64) -> Result<(), FieldError>;

    /// The Device is gone; false: it was not there.
    fn death(&mut self, key: &K) -> bool;

    /// The keys of all of them.
    fn keys(&self) -> Vec<K>;
}

impl<K: Ord + Clone, D: TypedMetrics + Default> Devices<K> for BTreeMap<K, D> {
    fn count(&self) -> usize {
        self.len()
    }

    fn contains(&self, key: &K) -> bool {
        self.contains_key(key)
    }

    fn birth(&mut self, key: &K, metrics: &[Metric], _: u64) -> Result<(), FieldError> {
        self.insert(key.clone(), D::from_metrics(metrics)?);
        Ok(())
    }

    fn data(&mut self, key: &K, metrics: &[Metric], _: u64) -> Result<(), FieldError> {
        self.get_mut(key).map_or(Ok(()), |device| device.merge(metrics))
    }

    fn death(&mut self, key: &K) -> bool {
        self.remove(key).is_some()
    }

    fn keys(&self) -> Vec<K> {
        Self::keys(self).cloned().collect()
    }
}

/// What an event changed in a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplicaChange<K> {
    /// NBIRTH: the Edge Node is alive, its Devices are to come.
    Born,
    /// NDEATH: it is dead; what it said last is kept.
    Dead,
    /// Something was missed: what is kept may be old.
    Stale,
    /// Metrics of the Edge Node itself.
    Node,
    /// The Device came, changed or went.
    Device(K),
    /// A Device of no known kind, or a birth or data that cannot be read; see [`Replica::problems`].
    Other(DeviceId),
}

/// How far what an Edge Node published can be believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// Born and in order.
    Alive,
    /// Something was missed; values are the last known ones.
    Stale,
    /// Its death was received; values are the last known ones.
    Dead,
}

/// The copy. After a death or a loss of messages the last values stay readable; [`Replica::is_current`] and [`Replica::is_complete`] say which.
pub struct Replica<C: Contract> {
    address: EdgeNodeDescriptor,
    in_sync: bool,
    alive_since: Option<u64>,
    /// Session of the last birth: the same again is a rebirth, another one is another process.
    bd_seq: Option<BdSeq>,
    node: Option<C::Node>,
    devices: C::Devices,
    /// Of `devices` those that the last birth has not confirmed yet.
    unconfirmed: BTreeSet<C::Key>,
    problems: BTreeMap<String, FieldError>,
}

impl<C: Contract> Replica<C> {
    /// An empty copy of the Edge Node at `address`.
    #[must_use]
    pub fn new(address: EdgeNodeDescriptor) -> Self {
        Self {
            address,
            in_sync: false,
            alive_since: None,
            bd_seq: None,
            node: None,
            devices: C::Devices::default(),
            unconfirmed: BTreeSet::new(),
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

    /// Nothing was missed since the last birth. An Edge Node that is alive and not in sync may have died meanwhile.
    #[must_use]
    pub const fn in_sync(&self) -> bool {
        self.in_sync
    }

    /// Alive and in sync.
    #[must_use]
    pub const fn is_current(&self) -> bool {
        self.is_alive() && self.in_sync
    }

    /// How far its values can be believed.
    #[must_use]
    pub const fn presence(&self) -> Presence {
        match (self.is_alive(), self.in_sync) {
            (true, true) => Presence::Alive,
            (true, false) => Presence::Stale,
            (false, _) => Presence::Dead,
        }
    }

    /// Timestamp of the birth that the present session began with, UTC ms.
    #[must_use]
    pub const fn alive_since(&self) -> Option<u64> {
        self.alive_since
    }

    /// Current, everything readable, and as many Devices as the Edge Node says there are.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.is_current()
            && self.problems.is_empty()
            && self.unconfirmed.is_empty()
            && self.node.as_ref().is_some_and(|node| C::has_all(node, &self.devices))
    }

    /// For people: which births of a living Edge Node have not arrived. None: all have, or nothing is known.
    #[must_use]
    pub fn missing_births(&self) -> Option<String> {
        let total = C::devices_total(self.node.as_ref().filter(|_| self.is_alive())?)?;
        let known = self.devices.count() - self.unconfirmed.len();
        (u64::try_from(known).is_ok_and(|known| known < total))
            .then(|| format!("of {} the births of {known} of its {total} devices have arrived", self.address))
    }

    /// What the Edge Node says of itself; None before the first birth that could be read.
    #[must_use]
    pub const fn node(&self) -> Option<&C::Node> {
        self.node.as_ref()
    }

    /// Its Devices.
    #[must_use]
    pub const fn devices(&self) -> &C::Devices {
        &self.devices
    }

    /// What could not be read: by device id, or `""` for the Edge Node itself.
    #[must_use]
    pub const fn problems(&self) -> &BTreeMap<String, FieldError> {
        &self.problems
    }

    /// Takes an event over. None: it is about another Edge Node, or says nothing that is kept.
    pub fn on_event(&mut self, event: &HostEvent) -> Option<ReplicaChange<C::Key>> {
        let change = match event {
            HostEvent::Offline { .. } => return self.mark_stale(),
            HostEvent::NodeStale { node, .. } if *node == self.address => return self.mark_stale(),
            HostEvent::NodeDeath { node, .. } if *node == self.address => {
                self.in_sync = false;
                return self.alive_since.take().map(|_| ReplicaChange::Dead);
            }
            HostEvent::NodeBirth { node, bd_seq, timestamp, metrics, .. } if *node == self.address => {
                self.node_birth(*bd_seq, *timestamp, metrics);
                ReplicaChange::Born
            }
            HostEvent::NodeData { node, metrics, .. } if *node == self.address => {
                if let Some(Err(error)) = self.node.as_mut().map(|known| known.merge(metrics)) {
                    self.note("", error);
                }
                ReplicaChange::Node
            }
            HostEvent::DeviceBirth { node, device, metrics, timestamp } if *node == self.address => {
                self.device_birth(device, metrics, *timestamp)
            }
            HostEvent::DeviceData { node, device, metrics, timestamp } if *node == self.address => {
                self.device_data(device, metrics, *timestamp)
            }
            HostEvent::DeviceDeath { node, device, .. } if *node == self.address => return self.device_death(device),
            _ => return None,
        };
        self.drop_unconfirmed();
        Some(change)
    }

    fn mark_stale(&mut self) -> Option<ReplicaChange<C::Key>> {
        std::mem::take(&mut self.in_sync).then_some(ReplicaChange::Stale)
    }

    fn node_birth(&mut self, bd_seq: BdSeq, timestamp: u64, metrics: &[Metric]) {
        if self.bd_seq.replace(bd_seq) != Some(bd_seq) || self.alive_since.is_none() {
            self.alive_since = Some(timestamp);
        }
        self.in_sync = true;
        self.problems.clear();
        if C::KEEPS_DEVICES {
            self.unconfirmed = self.devices.keys().into_iter().collect();
        } else {
            self.devices = C::Devices::default();
        }
        match C::Node::from_metrics(metrics) {
            Ok(node) => self.node = Some(node),
            Err(error) => self.note("", error),
        }
    }

    fn device_birth(&mut self, device: &DeviceId, metrics: &[Metric], timestamp: u64) -> ReplicaChange<C::Key> {
        self.problems.remove(device.as_str());
        let Some(key) = C::key(device) else { return ReplicaChange::Other(device.clone()) };
        if self.devices.count() >= C::DEVICES_MAX && !self.devices.contains(&key) {
            self.note(
                "",
                FieldError::new(device.as_str(), format!("is beyond the {} devices that are kept", C::DEVICES_MAX)),
            );
            return ReplicaChange::Other(device.clone());
        }
        match self.devices.birth(&key, metrics, timestamp) {
            Ok(()) => {
                self.unconfirmed.remove(&key);
                ReplicaChange::Device(key)
            }
            Err(error) => {
                self.note(device.as_str(), error);
                ReplicaChange::Other(device.clone())
            }
        }
    }

    fn device_data(&mut self, device: &DeviceId, metrics: &[Metric], timestamp: u64) -> ReplicaChange<C::Key> {
        let key = C::key(device).filter(|key| self.devices.contains(key));
        let Some(key) = key else { return ReplicaChange::Other(device.clone()) };
        if let Err(error) = self.devices.data(&key, metrics, timestamp) {
            self.note(device.as_str(), error);
        }
        ReplicaChange::Device(key)
    }

    fn device_death(&mut self, device: &DeviceId) -> Option<ReplicaChange<C::Key>> {
        let was_unreadable = self.problems.remove(device.as_str()).is_some();
        let key = C::key(device).filter(|key| self.devices.death(key));
        if let Some(key) = &key {
            self.unconfirmed.remove(key);
        }
        key.map(ReplicaChange::Device).or_else(|| was_unreadable.then(|| ReplicaChange::Other(device.clone())))
    }

    /// Once as many Devices are born as the birth counts, the others did not survive the absence of the Edge Node.
    fn drop_unconfirmed(&mut self) {
        if self.unconfirmed.is_empty() || !self.is_current() || self.missing_births().is_some() {
            return;
        }
        for key in std::mem::take(&mut self.unconfirmed) {
            self.devices.death(&key);
        }
    }

    fn note(&mut self, device: &str, error: FieldError) {
        // Of what is too much one problem says enough.
        if self.problems.len() < C::DEVICES_MAX {
            self.problems.insert(device.to_owned(), error);
        }
    }
}

impl<C: Contract> Clone for Replica<C>
where
    C::Node: Clone,
    C::Devices: Clone,
{
    fn clone(&self) -> Self {
        Self {
            address: self.address.clone(),
            in_sync: self.in_sync,
            alive_since: self.alive_since,
            bd_seq: self.bd_seq,
            node: self.node.clone(),
            devices: self.devices.clone(),
            unconfirmed: self.unconfirmed.clone(),
            problems: self.problems.clone(),
        }
    }
}

impl<C: Contract> PartialEq for Replica<C>
where
    C::Node: PartialEq,
    C::Devices: PartialEq,
{
    fn eq(&self, other: &Self) -> bool {
        self.address == other.address
            && (self.in_sync, self.alive_since, self.bd_seq) == (other.in_sync, other.alive_since, other.bd_seq)
            && self.node == other.node
            && self.devices == other.devices
            && self.unconfirmed == other.unconfirmed
            && self.problems == other.problems
    }
}

impl<C: Contract> fmt::Debug for Replica<C>
where
    C::Node: fmt::Debug,
    C::Devices: fmt::Debug,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replica")
            .field("address", &self.address)
            .field("in_sync", &self.in_sync)
            .field("alive_since", &self.alive_since)
            .field("node", &self.node)
            .field("devices", &self.devices)
            .field("problems", &self.problems)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
