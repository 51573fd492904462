//! Which nodes and devices an application's contracts know: messages of others cost nothing.

use crate::name::{DeviceId, EdgeNodeDescriptor, EdgeNodeId, GroupId};

/// Nodes that are kept, and which of their devices.
#[derive(Debug, Clone)]
pub struct Interest {
    /// Of that group; None: of any.
    pub group: Option<GroupId>,
    /// Of that id; None: of any.
    pub edge_node: Option<EdgeNodeId>,
    /// Only nodes that the application named by [`super::HostRequest::Expect`] or [`super::HostRequest::Allow`].
    pub allowed_only: bool,
    /// Whether a device is kept. Messages of others count in the order of `seq`, and are not reported.
    pub device: fn(&DeviceId) -> bool,
}

impl Interest {
    /// Every node of that id, whatever its group, with the devices for which `device` is true.
    #[must_use]
    pub const fn in_edge_node(edge_node: EdgeNodeId, device: fn(&DeviceId) -> bool) -> Self {
        Self { group: None, edge_node: Some(edge_node), allowed_only: false, device }
    }

    fn fits(&self, node: &EdgeNodeDescriptor) -> bool {
        self.group.as_ref().is_none_or(|group| *group == node.group)
            && self.edge_node.as_ref().is_none_or(|edge_node| *edge_node == node.edge_node)
    }
}

/// Whether a node that the application did not name is kept.
pub(super) fn keeps_node(interests: &[Interest], node: &EdgeNodeDescriptor) -> bool {
    interests.is_empty() || interests.iter().find(|one| one.fits(node)).is_some_and(|one| !one.allowed_only)
}

/// Whether a device of a node that is kept is kept.
pub(super) fn keeps_device(interests: &[Interest], node: &EdgeNodeDescriptor, device: &DeviceId) -> bool {
    // A node that fits none is kept because the application named it.
    interests.iter().find(|one| one.fits(node)).is_none_or(|one| (one.device)(device))
}
