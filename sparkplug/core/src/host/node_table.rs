//! Edge nodes by name: what is known of each, and whether a birth is new.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasher;
use std::time::Duration;

use slab::Slab;

use super::Liveness;
use super::asking::Asking;
use super::groups::GroupIndex;
use super::replica::Replica;
use super::resequencer::Resequencer;
use super::shape::Seeded;
use crate::name::{DeviceId, EdgeNodeDescriptor};
use crate::seq::BdSeq;

/// Place of a node in the table. It is the node's until the node is forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NodeIndex(usize);

impl NodeIndex {
    /// None comes before it.
    pub(super) const FIRST: Self = Self(0);
}

/// All nodes. A message finds its node by the levels of its topic, without a copy of them.
#[derive(Debug)]
pub(super) struct NodeTable {
    seed: Seeded,
    /// By the hashes of their names. The names themselves are compared at the place, which a message needs anyway: so the table is small enough to stay near the processor.
    by_hash: HashMap<u64, NodeIndex, Seeded>,
    /// Nodes whose hash another node had before them.
    collided: Vec<NodeIndex>,
    places: Slab<(EdgeNodeDescriptor, Node)>,
}

impl NodeTable {
    pub(super) fn new(seed: u64) -> Self {
        let seed = Seeded(seed);
        Self { seed, by_hash: HashMap::with_hasher(seed), collided: Vec::new(), places: Slab::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    pub(super) fn find(&self, name: &EdgeNodeDescriptor) -> Option<NodeIndex> {
        self.find_levels(name.group.as_str(), name.edge_node.as_str())
    }

    /// The node of those two levels of a topic.
    pub(super) fn find_levels(&self, group: &str, edge_node: &str) -> Option<NodeIndex> {
        self.find_hashed(self.hash(group, edge_node), group, edge_node)
    }

    fn hash(&self, group: &str, edge_node: &str) -> u64 {
        self.seed.hash_one((group, edge_node))
    }

    fn find_hashed(&self, hash: u64, group: &str, edge_node: &str) -> Option<NodeIndex> {
        let has_name = |at: &NodeIndex| {
            let name = self.places.get(at.0).map(|(name, _)| name);
            name.is_some_and(|name| name.edge_node.as_str() == edge_node && name.group.as_str() == group)
        };
        let first = self.by_hash.get(&hash).copied();
        first.filter(has_name).or_else(|| self.collided.iter().copied().find(has_name))
    }

    pub(super) fn get(&self, at: NodeIndex) -> Option<&Node> {
        self.places.get(at.0).map(|(_, node)| node)
    }

    pub(super) fn get_mut(&mut self, at: NodeIndex) -> Option<&mut Node> {
        self.places.get_mut(at.0).map(|(_, node)| node)
    }

    /// Name and node.
    pub(super) fn entry_mut(&mut self, at: NodeIndex) -> Option<(&EdgeNodeDescriptor, &mut Node)> {
        self.places.get_mut(at.0).map(|(name, node)| (&*name, node))
    }

    /// A place for a node that has none.
    pub(super) fn insert(&mut self, name: EdgeNodeDescriptor, group: GroupIndex) -> NodeIndex {
        let hash = self.hash(name.group.as_str(), name.edge_node.as_str());
        self.insert_hashed(hash, name, group)
    }

    fn insert_hashed(&mut self, hash: u64, name: EdgeNodeDescriptor, group: GroupIndex) -> NodeIndex {
        let at = NodeIndex(self.places.insert((name, Node::unseen(group))));
        match self.by_hash.entry(hash) {
            Entry::Vacant(first) => {
                first.insert(at);
            }
            Entry::Occupied(_) => self.collided.push(at),
        }
        at
    }

    pub(super) fn remove(&mut self, at: NodeIndex) -> Option<Node> {
        let (name, _) = self.places.get(at.0)?;
        let hash = self.hash(name.group.as_str(), name.edge_node.as_str());
        self.remove_hashed(hash, at)
    }

    fn remove_hashed(&mut self, hash: u64, at: NodeIndex) -> Option<Node> {
        let (_, node) = self.places.try_remove(at.0)?;
        match self.by_hash.entry(hash) {
            Entry::Occupied(first) if *first.get() == at => {
                first.remove();
            }
            _ => self.collided.retain(|other| *other != at),
        }
        Some(node)
    }

    /// In the order of their places.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (NodeIndex, &mut Node)> {
        self.places.iter_mut().map(|(at, (_, node))| (NodeIndex(at), node))
    }

    /// Of a group, in the order of their places.
    pub(super) fn of_group(&self, group: GroupIndex) -> impl Iterator<Item = (NodeIndex, &Node)> {
        let nodes = self.places.iter().map(|(at, (_, node))| (NodeIndex(at), node));
        nodes.filter(move |(_, node)| node.group == group)
    }

    /// In the order of their places.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&EdgeNodeDescriptor, &Node)> {
        self.places.iter().map(|(_, (name, node))| (name, node))
    }
}

/// The birth of a node, with what followed it.
#[derive(Debug)]
pub(super) struct Birth {
    pub bd_seq: BdSeq,
    /// Payload timestamp.
    pub timestamp: u64,
    /// Of the NBIRTH.
    pub digest: u64,
    /// When it arrived.
    pub received: Duration,
    pub replica: Replica,
    pub order: Resequencer,
}

/// One edge node.
#[derive(Debug)]
pub(super) struct Node {
    pub group: GroupIndex,
    pub liveness: Liveness,
    /// A message of it arrived.
    pub is_seen: bool,
    /// The application counts on it.
    pub expected: bool,
    /// The application named it without counting on it.
    pub allowed: bool,
    /// When it is forgotten, because the application does not count on it and it was never born.
    pub expires: Option<Duration>,
    pub birth: Option<Birth>,
    pub devices: BTreeMap<DeviceId, Replica>,
    /// Of all its replicas, as its group has them counted.
    pub replica_bytes: usize,
    /// Since when it is stale or dead, UTC ms of this host.
    pub stale_at: Option<u64>,
    /// When the gap in `seq` becomes a loss.
    pub gap_due: Option<Duration>,
    pub asking: Asking,
    /// It was reported that there are more devices than are kept.
    pub devices_refused: bool,
    /// How many of its messages exceeded the limits, and when the last did. Forgotten at a birth after a quiet time.
    pub excesses: u32,
    pub exceeded_at: Duration,
}

impl Node {
    pub(super) fn unseen(group: GroupIndex) -> Self {
        Self {
            group,
            liveness: Liveness::Dead,
            is_seen: false,
            expected: false,
            allowed: false,
            expires: None,
            birth: None,
            devices: BTreeMap::new(),
            replica_bytes: 0,
            stale_at: None,
            gap_due: None,
            asking: Asking::default(),
            devices_refused: false,
            excesses: 0,
            exceeded_at: Duration::ZERO,
        }
    }

    /// The application named it.
    pub(super) const fn is_named(&self) -> bool {
        self.expected || self.allowed
    }

    /// Whether an NBIRTH is one that arrived before, late or twice, or is older than what is known.
    pub(super) fn judge_birth(&self, bd_seq: BdSeq, timestamp: Option<u64>, digest: u64) -> BirthVerdict {
        let Some(known) = &self.birth else { return BirthVerdict::Take };
        let asked = self.asking.last().is_some_and(|at| at >= known.received);
        let dead = self.liveness == Liveness::Dead;
        if digest == known.digest && (!asked || dead && timestamp.is_some()) {
            return BirthVerdict::Duplicate;
        }
        match timestamp {
            Some(t) if t < known.timestamp && !asked => BirthVerdict::Doubt,
            Some(t) if t == known.timestamp && dead && bd_seq == known.bd_seq && !asked => BirthVerdict::Doubt,
            _ => BirthVerdict::Take,
        }
    }
}

/// What to do with an NBIRTH.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BirthVerdict {
    Take,
    /// Those very bytes were taken before.
    Duplicate,
    /// Older than the known birth: a late packet, or a clock that was set back. The answer to a rebirth request shows which.
    Doubt,
}

#[cfg(test)]
mod tests {
    use super::super::groups::Groups;
    use super::*;

    /// Where many names have one hash, each is found, and none after it was removed, in whatever order.
    #[test]
    fn nodes_of_one_hash_are_found_by_their_names() {
        let names: Vec<_> = (0..4).map(|n| EdgeNodeDescriptor::parse("G", &format!("E{n}")).expect("valid")).collect();
        for start in 0..names.len() {
            let mut nodes = NodeTable::new(0);
            let (group, _) = Groups::new(0).enter(&names[0].group);
            let mut places: Vec<_> =
                names.iter().map(|name| Some(nodes.insert_hashed(7, name.clone(), group))).collect();
            for step in 0..=names.len() {
                for (name, place) in names.iter().zip(&places) {
                    assert_eq!(nodes.find_hashed(7, "G", name.edge_node.as_str()), *place);
                    assert_eq!(nodes.find_hashed(7, "H", name.edge_node.as_str()), None);
                }
                assert_eq!(nodes.len(), names.len() - step);
                if let Some(place) = places[(start + step) % names.len()].take() {
                    assert!(nodes.remove_hashed(7, place).is_some());
                }
            }
        }
    }
}
