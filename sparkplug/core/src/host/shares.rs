//! What each group takes of a host, so that one group cannot take what the others need. A server keeps groups apart; within a group its nodes trust each other.

use std::collections::HashMap;

use super::shape::Seeded;
use crate::name::GroupId;

/// Place of a group among the shares. It is the group's as long as one of its nodes is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct GroupIndex(usize);

/// What one group takes.
#[derive(Debug, Default)]
pub(super) struct Share {
    /// Nodes in the table.
    pub nodes: usize,
    /// Bytes of messages held back while gaps are open.
    pub held: usize,
    /// Bytes of the births that are kept.
    pub births: usize,
    /// It was told that there are more nodes than are kept.
    pub nodes_refused: bool,
}

/// The shares of all groups that have nodes.
#[derive(Debug)]
pub(super) struct Shares {
    by_name: HashMap<GroupId, GroupIndex, Seeded>,
    shares: Vec<(GroupId, Share)>,
    free: Vec<GroupIndex>,
}

impl Shares {
    pub(super) fn new(seed: u64) -> Self {
        Self { by_name: HashMap::with_hasher(Seeded(seed)), shares: Vec::new(), free: Vec::new() }
    }

    pub(super) fn find(&self, group: &GroupId) -> Option<GroupIndex> {
        self.by_name.get(group).copied()
    }

    pub(super) fn get_mut(&mut self, at: GroupIndex) -> &mut Share {
        &mut self.shares[at.0].1
    }

    /// The name, as it is shared by the nodes of the group.
    pub(super) fn name(&self, at: GroupIndex) -> &GroupId {
        &self.shares[at.0].0
    }

    /// One more node of the group.
    pub(super) fn enter(&mut self, group: &GroupId) -> GroupIndex {
        let at = self.find(group).unwrap_or_else(|| self.open(group));
        self.get_mut(at).nodes += 1;
        at
    }

    /// One node less, which had births of so many bytes.
    pub(super) fn leave(&mut self, at: GroupIndex, births: usize) {
        let (name, share) = &mut self.shares[at.0];
        share.nodes -= 1;
        share.births -= births;
        share.nodes_refused = false;
        if share.nodes == 0 {
            self.by_name.remove(name);
            self.free.push(at);
        }
    }

    /// No message is held any more.
    pub(super) fn release_all(&mut self) {
        for (_, share) in &mut self.shares {
            share.held = 0;
            share.nodes_refused = false;
        }
    }

    fn open(&mut self, group: &GroupId) -> GroupIndex {
        let entry = (group.clone(), Share::default());
        let at = match self.free.pop() {
            Some(at) => {
                self.shares[at.0] = entry;
                at
            }
            None => {
                self.shares.push(entry);
                GroupIndex(self.shares.len() - 1)
            }
        };
        self.by_name.insert(group.clone(), at);
        at
    }
}
