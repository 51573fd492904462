//! A look at what a Host Application knows, for applications that would otherwise keep a second store of it.

use std::collections::BTreeMap;

use sparkplug::host::{Liveness, NodeView};
use sparkplug::{BdSeq, DeviceId, Metric};

/// The replica of an Edge Node, as it was when [`crate::HostHandle::node`] asked for it.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeSnapshot {
    /// Its condition.
    pub liveness: Liveness,
    /// bdSeq of its last birth.
    pub bd_seq: Option<BdSeq>,
    /// Payload timestamp of its last birth, UTC ms.
    pub born_at: Option<u64>,
    /// Since when it is stale or dead, UTC ms of the host's clock; None while it is alive. Values may be old since then.
    pub stale_at: Option<u64>,
    /// Its own metrics, in the order of the birth, with their present values.
    pub metrics: Vec<Metric>,
    /// Its devices, the dead ones included until the next NBIRTH.
    pub devices: BTreeMap<DeviceId, DeviceSnapshot>,
}

/// The replica of a device.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceSnapshot {
    /// Since when it is stale or dead, UTC ms: the payload's time of a DDEATH, the host's of everything else; None while it is alive.
    pub stale_at: Option<u64>,
    /// Its metrics, in the order of the birth, with their present values.
    pub metrics: Vec<Metric>,
}

impl NodeSnapshot {
    pub(crate) fn of(node: NodeView<'_>) -> Self {
        let devices = node.devices().map(|(id, device)| {
            let metrics = device.metrics().map(|view| view.metric).collect();
            (id.clone(), DeviceSnapshot { stale_at: device.stale_at(), metrics })
        });
        Self {
            liveness: node.liveness(),
            bd_seq: node.bd_seq(),
            born_at: node.born_at(),
            stale_at: node.stale_at(),
            metrics: node.metrics().map(|view| view.metric).collect(),
            devices: devices.collect(),
        }
    }

    /// Between a birth and its death, in order.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.liveness == Liveness::Alive
    }

    /// One of its own metrics.
    #[must_use]
    pub fn metric(&self, name: &str) -> Option<&Metric> {
        self.metrics.iter().find(|metric| &*metric.name == name)
    }

    /// Of two servers' replicas of one node the better: the living one, else that of the later birth.
    pub(crate) fn or_better(self, other: Option<Self>) -> Self {
        let rank = |of: &Self| (of.is_alive(), of.born_at);
        match other {
            Some(other) if rank(&other) > rank(&self) => other,
            _ => self,
        }
    }
}

impl DeviceSnapshot {
    /// Whether it is between its birth and its death, and so is its node.
    #[must_use]
    pub const fn is_alive(&self) -> bool {
        self.stale_at.is_none()
    }

    /// One of its metrics.
    #[must_use]
    pub fn metric(&self, name: &str) -> Option<&Metric> {
        self.metrics.iter().find(|metric| &*metric.name == name)
    }
}
