//! What the nodes of each group hold of what all groups share. While there is room a group may take all of it; where there is none, the group that holds most gives way.

use std::collections::HashMap;

use slab::Slab;

use super::shape::Seeded;
use crate::name::GroupId;

/// Place of a group. It is the group's while it has a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct GroupIndex(usize);

/// What one group holds.
#[derive(Debug, Clone)]
pub(super) struct Group {
    name: GroupId,
    pub nodes: usize,
    /// Of the nodes, those that the application named.
    pub named: usize,
    /// Of births and of values that grew since.
    pub replica_bytes: usize,
    /// Of messages that wait for a missing one.
    pub held_bytes: usize,
}

impl Group {
    /// Nodes that the application did not name.
    pub(super) const fn unnamed(&self) -> usize {
        self.nodes - self.named
    }
}

/// All groups that have a node.
#[derive(Debug)]
pub(super) struct Groups {
    by_name: HashMap<GroupId, GroupIndex, Seeded>,
    places: Slab<Group>,
    replica_bytes: usize,
    held_bytes: usize,
}

impl Groups {
    pub(super) fn new(seed: u64) -> Self {
        Self { by_name: HashMap::with_hasher(Seeded(seed)), places: Slab::new(), replica_bytes: 0, held_bytes: 0 }
    }

    /// A node of the group was taken in. Yields the group's name too: its nodes share the text.
    pub(super) fn enter(&mut self, name: &GroupId) -> (GroupIndex, GroupId) {
        if let Some(at) = self.by_name.get(name).copied()
            && let Some(group) = self.places.get_mut(at.0)
        {
            group.nodes += 1;
            return (at, group.name.clone());
        }
        let group = Group { name: name.clone(), nodes: 1, named: 0, replica_bytes: 0, held_bytes: 0 };
        let at = GroupIndex(self.places.insert(group));
        self.by_name.insert(name.clone(), at);
        (at, name.clone())
    }

    /// The application named one more node of the group.
    pub(super) fn name(&mut self, at: GroupIndex) {
        if let Some(group) = self.places.get_mut(at.0) {
            group.named += 1;
        }
    }

    /// A node of the group is gone, with all that it held.
    pub(super) fn leave(&mut self, at: GroupIndex, was_named: bool) {
        let Some(group) = self.places.get_mut(at.0) else { return };
        group.nodes -= 1;
        group.named -= usize::from(was_named);
        if group.nodes == 0 {
            self.by_name.remove(&group.name);
            self.places.remove(at.0);
        }
    }

    /// Nodes of the group of that name that the application did not name.
    pub(super) fn unnamed_of(&self, name: &GroupId) -> usize {
        let group = self.by_name.get(name).and_then(|at| self.places.get(at.0));
        group.map_or(0, Group::unnamed)
    }

    /// Bytes of replicas of a node of the group were `before`, and are `after`.
    pub(super) fn replica(&mut self, at: GroupIndex, before: usize, after: usize) {
        if let Some(group) = self.places.get_mut(at.0) {
            group.replica_bytes = group.replica_bytes + after - before;
            self.replica_bytes = self.replica_bytes + after - before;
        }
    }

    /// Held bytes of a node of the group were `before`, and are `after`.
    pub(super) fn held(&mut self, at: GroupIndex, before: usize, after: usize) {
        if let Some(group) = self.places.get_mut(at.0) {
            group.held_bytes = group.held_bytes + after - before;
            self.held_bytes = self.held_bytes + after - before;
        }
    }

    /// Nothing is held any more.
    pub(super) fn release_held(&mut self) {
        self.held_bytes = 0;
        self.places.iter_mut().for_each(|(_, group)| group.held_bytes = 0);
    }

    /// Of all groups.
    pub(super) const fn replica_bytes(&self) -> usize {
        self.replica_bytes
    }

    /// Of all groups.
    pub(super) const fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// The group that holds most of something; it is sought only where there is no room.
    pub(super) fn largest(&self, of: impl Fn(&Group) -> usize) -> Option<(GroupIndex, usize)> {
        let groups = self.places.iter().map(|(at, group)| (GroupIndex(at), of(group)));
        groups.max_by_key(|(_, amount)| *amount)
    }
}
