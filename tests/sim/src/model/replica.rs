//! What the program of a Host Application has received, kept as any reader would: the values of every node and device. At the end it must equal what those nodes have.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sparkplug::host::HostEvent;
use sparkplug::{BdSeq, DeviceId, EdgeNodeDescriptor, Metric, Value};

/// Values by metric name.
pub type Values = BTreeMap<Arc<str>, Option<Value>>;

/// One node as it was received.
#[derive(Debug, Clone, Default)]
pub struct NodeView {
    /// bdSeq of its birth.
    pub bd_seq: Option<BdSeq>,
    /// Born, not dead, not stale.
    pub is_alive: bool,
    /// Its death was received, and no birth since.
    pub is_dead: bool,
    /// Values of the node.
    pub values: Values,
    /// Values of its devices.
    pub devices: BTreeMap<DeviceId, Values>,
}

/// All nodes as they were received.
#[derive(Debug, Default)]
pub struct Replica {
    nodes: BTreeMap<EdgeNodeDescriptor, NodeView>,
    /// Nodes of which the program does not want to know, until they are received again.
    forgotten: BTreeSet<EdgeNodeDescriptor>,
    /// Nodes whose birth the program wants.
    expected: BTreeSet<EdgeNodeDescriptor>,
    /// The first event that cannot be: data of what is not alive.
    pub fault: Option<String>,
}

impl Replica {
    /// Takes an event.
    pub fn on_event(&mut self, event: &HostEvent) {
        match event {
            HostEvent::NodeBirth { node, bd_seq, metrics, .. } => {
                let view = NodeView {
                    bd_seq: Some(*bd_seq),
                    is_alive: true,
                    is_dead: false,
                    values: values(metrics),
                    devices: BTreeMap::new(),
                };
                self.nodes.insert(node.clone(), view);
                self.forgotten.remove(node);
            }
            HostEvent::NodeDeath { node, .. } => {
                let view = self.nodes.entry(node.clone()).or_default();
                (view.is_alive, view.is_dead) = (false, true);
            }
            HostEvent::NodeStale { node, .. } => self.nodes.entry(node.clone()).or_default().is_alive = false,
            HostEvent::Offline { .. } => self.nodes.values_mut().for_each(|view| view.is_alive = false),
            HostEvent::NodeData { node, metrics, .. } => {
                if let Some(view) = self.alive(node, "NDATA") {
                    fold(&mut view.values, metrics);
                }
            }
            HostEvent::DeviceBirth { node, device, metrics, .. } => {
                if let Some(view) = self.alive(node, "DBIRTH") {
                    view.devices.insert(device.clone(), values(metrics));
                }
            }
            HostEvent::DeviceData { node, device, metrics, .. } => {
                let Some(view) = self.alive(node, "DDATA") else { return };
                match view.devices.get_mut(device) {
                    Some(known) => fold(known, metrics),
                    None => self.fault = Some(format!("data of device {device} of {node}, which is not born")),
                }
            }
            HostEvent::DeviceDeath { node, device, .. } => {
                if let Some(view) = self.alive(node, "DDEATH") {
                    view.devices.remove(device);
                }
            }
            _ => {}
        }
    }

    /// The program wants to know of a node.
    pub fn expect(&mut self, node: &EdgeNodeDescriptor) {
        self.expected.insert(node.clone());
        self.forgotten.remove(node);
    }

    /// Whether the program must come to know of a node: it expects it, or has received of it and did not forget it.
    #[must_use]
    pub fn must_know(&self, node: &EdgeNodeDescriptor) -> bool {
        let has_received = self.nodes.contains_key(node) && !self.forgotten.contains(node);
        has_received || self.expected.contains(node)
    }

    /// The program does not want to know of a node any more.
    pub fn forget(&mut self, node: &EdgeNodeDescriptor) {
        self.nodes.remove(node);
        self.expected.remove(node);
        self.forgotten.insert(node.clone());
    }

    /// A node as it was received.
    #[must_use]
    pub fn node(&self, node: &EdgeNodeDescriptor) -> Option<&NodeView> {
        self.nodes.get(node)
    }

    /// All nodes that were received.
    pub fn nodes(&self) -> impl Iterator<Item = (&EdgeNodeDescriptor, &NodeView)> {
        self.nodes.iter()
    }

    fn alive(&mut self, node: &EdgeNodeDescriptor, kind: &str) -> Option<&mut NodeView> {
        let view = self.nodes.entry(node.clone()).or_default();
        if !view.is_alive {
            self.fault = Some(format!("{kind} of {node}, which is not alive"));
            return None;
        }
        Some(view)
    }
}

/// Current values of metrics; `bdSeq` and rebirth belong to the session, not to the values.
#[must_use]
pub fn values(metrics: &[Metric]) -> Values {
    let mut values = Values::new();
    fold(&mut values, metrics);
    values
}

fn fold(values: &mut Values, metrics: &[Metric]) {
    for metric in metrics.iter().filter(|metric| !metric.is_historical) {
        if &*metric.name != "bdSeq" {
            values.insert(metric.name.clone(), metric.value.clone());
        }
    }
}
