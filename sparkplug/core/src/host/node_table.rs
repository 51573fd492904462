//! Edge nodes by name: what is known of each, and whether a birth is news.

use std::borrow::Borrow;
use std::collections::{BTreeMap, HashMap};
use std::hash::{Hash, Hasher};
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
    by_name: HashMap<EdgeNodeDescriptor, NodeIndex, Seeded>,
    places: Slab<(EdgeNodeDescriptor, Node)>,
}

impl NodeTable {
    pub(super) fn new(seed: u64) -> Self {
        Self { by_name: HashMap::with_hasher(Seeded(seed)), places: Slab::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.by_name.len()
    }

    pub(super) fn find(&self, name: &EdgeNodeDescriptor) -> Option<NodeIndex> {
        self.by_name.get(name).copied()
    }

    /// The node of those two levels of a topic.
    pub(super) fn find_levels(&self, group: &str, edge_node: &str) -> Option<NodeIndex> {
        let levels: &dyn Levels = &(group, edge_node);
        self.by_name.get(levels).copied()
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
        let at = NodeIndex(self.places.insert((name.clone(), Node::unseen(group))));
        self.by_name.insert(name, at);
        at
    }

    pub(super) fn remove(&mut self, at: NodeIndex) -> Option<Node> {
        let (name, node) = self.places.try_remove(at.0)?;
        self.by_name.remove(&name);
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

/// A descriptor, or the two levels of a topic that are one.
trait Levels {
    fn levels(&self) -> (&str, &str);
}

impl Levels for EdgeNodeDescriptor {
    fn levels(&self) -> (&str, &str) {
        (self.group.as_str(), self.edge_node.as_str())
    }
}

impl Levels for (&str, &str) {
    fn levels(&self) -> (&str, &str) {
        *self
    }
}

impl<'a> Borrow<dyn Levels + 'a> for EdgeNodeDescriptor {
    fn borrow(&self) -> &(dyn Levels + 'a) {
        self
    }
}

/// As a descriptor is hashed: one level after the other.
impl Hash for dyn Levels + '_ {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let (group, edge_node) = self.levels();
        group.hash(state);
        edge_node.hash(state);
    }
}

impl PartialEq for dyn Levels + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.levels() == other.levels()
    }
}

impl Eq for dyn Levels + '_ {}

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
