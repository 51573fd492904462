//! Read access to replicas, for tools and tests. Applications that need more than a look keep their own state from the events.

use super::Liveness;
use super::node_table::Node;
use super::replica::Replica;
use crate::metric::Metric;
use crate::name::DeviceId;
use crate::seq::BdSeq;

/// The replica of an edge node.
#[derive(Debug, Clone, Copy)]
pub struct NodeView<'a> {
    node: &'a Node,
}

impl<'a> NodeView<'a> {
    pub(super) const fn new(node: &'a Node) -> Self {
        Self { node }
    }

    /// Its condition.
    #[must_use]
    pub const fn liveness(&self) -> Liveness {
        self.node.liveness
    }

    /// bdSeq of its last birth.
    #[must_use]
    pub fn bd_seq(&self) -> Option<BdSeq> {
        self.node.birth.as_ref().map(|birth| birth.bd_seq)
    }

    /// Payload timestamp of its last birth, UTC ms.
    #[must_use]
    pub fn born_at(&self) -> Option<u64> {
        self.node.birth.as_ref().map(|birth| birth.timestamp)
    }

    /// Since when it is stale or dead, UTC ms of this host's clock; None while it is alive.
    #[must_use]
    pub const fn stale_at(&self) -> Option<u64> {
        self.node.stale_at
    }

    /// Its own metrics, in the order of the birth.
    pub fn metrics(&self) -> impl Iterator<Item = MetricView> + use<'a> {
        let stale_at = self.stale_at();
        self.node.birth.iter().flat_map(move |birth| views(&birth.replica, stale_at))
    }

    /// One of its own metrics.
    #[must_use]
    pub fn metric(&self, name: &str) -> Option<MetricView> {
        let metric = self.node.birth.as_ref()?.replica.get(name)?;
        Some(MetricView { metric, stale_at: self.stale_at() })
    }

    /// Its devices, the dead ones included until the next NBIRTH.
    pub fn devices(&self) -> impl Iterator<Item = (&'a DeviceId, DeviceView<'a>)> + use<'a> {
        let node = self.node;
        node.devices.iter().map(move |(id, replica)| (id, DeviceView { replica, node_stale_at: node.stale_at }))
    }

    /// One of its devices.
    #[must_use]
    pub fn device(&self, device: &DeviceId) -> Option<DeviceView<'a>> {
        self.node.devices.get(device).map(|replica| DeviceView { replica, node_stale_at: self.stale_at() })
    }
}

/// The replica of a device.
#[derive(Debug, Clone, Copy)]
pub struct DeviceView<'a> {
    replica: &'a Replica,
    node_stale_at: Option<u64>,
}

impl<'a> DeviceView<'a> {
    /// Whether it is between its birth and its death, and so is its node.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.stale_at().is_none()
    }

    /// Since when it is stale or dead, UTC ms: the payload's time of a DDEATH, the host's of everything else.
    #[must_use]
    pub fn stale_at(&self) -> Option<u64> {
        self.replica.dead_at.or(self.node_stale_at)
    }

    /// Its metrics, in the order of the birth.
    pub fn metrics(&self) -> impl Iterator<Item = MetricView> + use<'a> {
        views(self.replica, self.stale_at())
    }

    /// One of its metrics.
    #[must_use]
    pub fn metric(&self, name: &str) -> Option<MetricView> {
        Some(MetricView { metric: self.replica.get(name)?, stale_at: self.stale_at() })
    }
}

/// A metric of a replica.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricView {
    /// Name, type, current value, its timestamp.
    pub metric: Metric,
    /// Since when the value may be old, UTC ms; None: it is current.
    pub stale_at: Option<u64>,
}

fn views(replica: &Replica, stale_at: Option<u64>) -> impl Iterator<Item = MetricView> {
    replica.metrics().map(move |metric| MetricView { metric, stale_at })
}
