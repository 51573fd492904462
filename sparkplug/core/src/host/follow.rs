//! Nodes whose messages the application receives as they arrived, too.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::HostEvent;
use crate::name::{EdgeNodeDescriptor, EdgeNodeId, GroupId};
use crate::session::QoS;
use crate::topic::{Levels, Topic};

/// Found by the levels of a topic, so that a message of another node costs no copy.
#[derive(Debug, Default)]
pub(super) struct Followed {
    nodes: BTreeMap<GroupId, BTreeSet<EdgeNodeId>>,
}

impl Followed {
    pub(super) fn insert(&mut self, node: &EdgeNodeDescriptor) {
        self.nodes.entry(node.group.clone()).or_default().insert(node.edge_node.clone());
    }

    pub(super) fn remove(&mut self, node: &EdgeNodeDescriptor) {
        if let Some(nodes) = self.nodes.get_mut(&node.group) {
            nodes.remove(&node.edge_node);
            if nodes.is_empty() {
                self.nodes.remove(&node.group);
            }
        }
    }

    /// What is reported of a message: nothing, if its node is not followed.
    pub(super) fn seen(&self, topic: &str, payload: &Bytes, (qos, retain): (QoS, bool)) -> Option<HostEvent> {
        if self.nodes.is_empty() {
            return None;
        }
        let levels = Levels::of(topic)?;
        self.nodes.get(levels.group)?.get(levels.edge_node)?;
        let (node, kind, device) = match Topic::parse(topic).ok()? {
            Topic::State { .. } => return None,
            Topic::Node { node, kind } => (node, kind, None),
            Topic::Device { node, kind, device } => (node, kind, Some(device)),
        };
        Some(HostEvent::Message { node, device, kind, qos, retain, payload: payload.clone() })
    }
}
