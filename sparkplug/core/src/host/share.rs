//! Who is kept where not all can be: a group that floods takes nothing from another.

use super::groups::Group;
use super::node_table::{Node, NodeIndex};
use super::{EXCESSES_MAX, HostApplication, HostEvent, Liveness, TOO_MANY_HELD, interest};
use crate::name::{EdgeNodeDescriptor, GroupId};
use crate::time::Now;

impl HostApplication {
    /// The place of the node in the table, unless there is none for it.
    pub(super) fn admit(
        &mut self,
        node: &EdgeNodeDescriptor,
        topic: &str,
        is_named: bool,
        now: Now,
    ) -> Option<NodeIndex> {
        if let Some(at) = self.nodes.find(node) {
            return Some(at);
        }
        if !is_named && !interest::keeps_node(&self.config.interests, node) {
            return None;
        }
        if self.nodes.len() >= self.config.nodes_max && !self.make_room(&node.group, is_named, now) {
            if !self.nodes_refused {
                self.nodes_refused = true;
                self.reject(
                    topic,
                    format!("more than {} edge nodes; further ones are not kept", self.config.nodes_max),
                );
            }
            return None;
        }
        let (group, name) = self.groups.enter(&node.group);
        let at = self.nodes.insert(EdgeNodeDescriptor { group: name, edge_node: node.edge_node.clone() }, group);
        if let Some(known) = self.nodes.get_mut(at) {
            let expires = now.mono + self.config.unborn_kept;
            known.expires = Some(expires);
            self.unborn.insert((expires, at));
        }
        Some(at)
    }

    /// The group with the most nodes that the application did not name gives one up, if that makes shares more equal or the application named the new one. Equal shares do not change: two groups do not take places from
    /// each other in turn.
    fn make_room(&mut self, group: &GroupId, is_named: bool, now: Now) -> bool {
        let Some((largest, nodes)) = self.groups.largest(Group::unnamed) else { return false };
        if !is_named && self.groups.unnamed_of(group) + 2 > nodes {
            return false;
        }
        let is_of = |at: &NodeIndex| self.nodes.get(*at).is_some_and(|known| known.group == largest);
        let unborn = self.unborn.iter().map(|(_, at)| *at).find(is_of);
        let victim = unborn.or_else(|| {
            let nodes = self.nodes.of_group(largest).filter(|(_, known)| !known.is_named());
            nodes.min_by_key(|(_, known)| known.liveness == Liveness::Alive).map(|(at, _)| at)
        });
        let Some(at) = victim else { return false };
        self.lose_alive(at, "its group has more edge nodes than its share", now);
        self.drop_node(at);
        true
    }

    /// An application that has it alive gets a report that it is not any more.
    fn lose_alive(&mut self, at: NodeIndex, reason: &str, now: Now) {
        if let Some((node, known)) = self.nodes.entry_mut(at)
            && known.liveness == Liveness::Alive
        {
            known.liveness = Liveness::Stale;
            known.stale_at = Some(now.wall);
            let node = node.clone();
            self.event(HostEvent::NodeStale { node, reason: reason.to_owned() });
        }
    }

    /// The node and all that is known of it.
    pub(super) fn drop_node(&mut self, at: NodeIndex) {
        self.close_gap(at);
        self.keep(at);
        if let Some(known) = self.nodes.get_mut(at) {
            self.rebirths.cancel(at, known);
        }
        if let Some(known) = self.nodes.remove(at) {
            self.groups.replica(known.group, known.replica_bytes, 0);
            self.groups.leave(known.group, known.is_named());
            self.nodes_refused = false;
        }
    }

    /// The node was born, is expected or goes: it does not expire.
    pub(super) fn keep(&mut self, at: NodeIndex) {
        if let Some(expires) = self.nodes.get_mut(at).and_then(|known: &mut Node| known.expires.take()) {
            self.unborn.remove(&(expires, at));
        }
    }

    /// Forgets nodes that were never born.
    pub(super) fn expire(&mut self, now: Now) {
        while let Some((_, at)) = self.unborn.first().filter(|(due, _)| *due <= now.mono).copied() {
            self.drop_node(at);
        }
    }

    /// Where too much waits for missing messages, the node that has been waiting longest, in the group that holds most, becomes stale.
    pub(super) fn relieve_held(&mut self, now: Now) {
        while self.groups.held_bytes() > self.config.held_bytes_max
            && let Some((largest, _)) = self.groups.largest(|group: &Group| group.held_bytes)
        {
            let is_of = |at: &NodeIndex| self.nodes.get(*at).is_some_and(|known| known.group == largest);
            let Some(at) = self.gaps.iter().map(|(_, at)| *at).find(is_of) else { return };
            self.mark_stale(at, TOO_MANY_HELD, now);
        }
    }

    /// Where the replicas of all nodes take too much, the group that takes most loses its largest node, until there is room. False: that was this node.
    pub(super) fn weigh(&mut self, at: NodeIndex, topic: &str, now: Now) -> bool {
        while self.groups.replica_bytes() > self.config.replica_bytes_max
            && let Some((largest, _)) = self.groups.largest(|group: &Group| group.replica_bytes)
        {
            let nodes = self.nodes.of_group(largest).filter(|(_, known)| known.replica_bytes > 0);
            let Some(victim) =
                nodes.max_by_key(|(_, known)| (!known.is_named(), known.replica_bytes)).map(|(at, _)| at)
            else {
                return true;
            };
            self.unload(victim, topic, now);
            if victim == at {
                return false;
            }
        }
        true
    }

    /// The replicas of the node are dropped, and it is not asked for new ones: they would be as large.
    fn unload(&mut self, at: NodeIndex, topic: &str, now: Now) {
        let Some((node, known)) = self.nodes.entry_mut(at) else { return };
        let reason = format!(
            "the replicas of all nodes take more than {} bytes, and those of group {} most: {} of edge node {} are not kept",
            self.config.replica_bytes_max, node.group, known.replica_bytes, node.edge_node
        );
        known.excesses = EXCESSES_MAX;
        known.exceeded_at = now.mono;
        self.lose_alive(at, "its group has more bytes of replicas than its share", now);
        self.close_gap(at);
        if let Some(known) = self.nodes.get_mut(at) {
            self.rebirths.cancel(at, known);
            known.birth = None;
            known.devices.clear();
            self.groups.replica(known.group, std::mem::take(&mut known.replica_bytes), 0);
        }
        self.reject(topic, reason);
    }
}
