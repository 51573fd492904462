//! All monitors as a listener sees them. Fed with the events of a Host Application; knows nothing of sessions or of time.

use std::collections::BTreeMap;
use std::sync::Arc;

use sparkplug::host::HostEvent;
use sparkplug::{DeviceId, EdgeNodeDescriptor, Metric, TypedMetrics};

use crate::{EDGE_NODE_ID, MonitorNode, MonitoredNodeDevice};

/// How far what a monitor said can be believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// Born and in order.
    Alive,
    /// Lost track of it; values are the last known ones.
    Stale,
    /// Its death was heard; values are the last known ones, and nobody watches.
    Dead,
}

/// One monitor with the nodes that it watches.
#[derive(Debug, Clone, PartialEq)]
pub struct MonitorView {
    presence: Presence,
    node: Metrics,
    devices: BTreeMap<DeviceId, Metrics>,
}

/// Replica of every monitor that was heard.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MonitorReplica {
    monitors: BTreeMap<EdgeNodeDescriptor, MonitorView>,
}

#[derive(Debug, Clone, PartialEq, Default)]
struct Metrics {
    by_name: BTreeMap<Arc<str>, Metric>,
    received: u64,
}

impl Metrics {
    fn fold(&mut self, metrics: &[Metric], received: u64) {
        for metric in metrics.iter().filter(|metric| !metric.is_historical) {
            let mut metric = metric.clone();
            metric.timestamp.get_or_insert(received);
            self.by_name.insert(metric.name.clone(), metric);
        }
        self.received = received;
    }

    fn born(metrics: &[Metric], received: u64) -> Self {
        let mut born = Self::default();
        born.fold(metrics, received);
        born
    }
}

impl MonitorView {
    /// How far this can be believed.
    #[must_use]
    pub const fn presence(&self) -> Presence {
        self.presence
    }

    /// What the monitor says about itself; None if its metrics are not those of a monitor.
    #[must_use]
    pub fn node(&self) -> Option<MonitorNode> {
        MonitorNode::from_metrics(self.node.by_name.values()).ok()
    }

    /// The devices that are readable as monitored nodes, by device id.
    pub fn devices(&self) -> impl Iterator<Item = (&DeviceId, MonitoredNodeDevice)> {
        self.devices.iter().filter_map(|(id, metrics)| {
            MonitoredNodeDevice::received(metrics.by_name.values(), metrics.received).ok().map(|device| (id, device))
        })
    }
}

impl MonitorReplica {
    /// Nothing heard yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes one event; true if it was about a monitor or about the own session.
    pub fn on_event(&mut self, event: &HostEvent) -> bool {
        match event {
            HostEvent::NodeBirth { node, timestamp, metrics, .. } if is_monitor(node) => {
                let view = MonitorView {
                    presence: Presence::Alive,
                    node: Metrics::born(metrics, *timestamp),
                    devices: BTreeMap::new(),
                };
                self.monitors.insert(node.clone(), view);
                true
            }
            HostEvent::NodeData { node, timestamp, metrics } => {
                self.change(node, |view| view.node.fold(metrics, *timestamp))
            }
            HostEvent::DeviceBirth { node, device, timestamp, metrics } => self.change(node, |view| {
                view.devices.insert(device.clone(), Metrics::born(metrics, *timestamp));
            }),
            HostEvent::DeviceData { node, device, timestamp, metrics } => self.change(node, |view| {
                if let Some(known) = view.devices.get_mut(device) {
                    known.fold(metrics, *timestamp);
                }
            }),
            HostEvent::DeviceDeath { node, device, .. } => self.change(node, |view| {
                view.devices.remove(device);
            }),
            HostEvent::NodeDeath { node, .. } => self.change(node, |view| view.presence = Presence::Dead),
            HostEvent::NodeStale { node, .. } => self.change(node, |view| {
                if view.presence == Presence::Alive {
                    view.presence = Presence::Stale;
                }
            }),
            HostEvent::Offline { .. } => {
                for view in self.monitors.values_mut().filter(|view| view.presence == Presence::Alive) {
                    view.presence = Presence::Stale;
                }
                true
            }
            _ => false,
        }
    }

    /// Every monitor that was heard.
    pub fn monitors(&self) -> impl Iterator<Item = (&EdgeNodeDescriptor, &MonitorView)> {
        self.monitors.iter()
    }

    /// One monitor.
    #[must_use]
    pub fn monitor(&self, node: &EdgeNodeDescriptor) -> Option<&MonitorView> {
        self.monitors.get(node)
    }

    fn change(&mut self, node: &EdgeNodeDescriptor, change: impl FnOnce(&mut MonitorView)) -> bool {
        match self.monitors.get_mut(node) {
            Some(view) => {
                change(view);
                true
            }
            None => false,
        }
    }
}

fn is_monitor(node: &EdgeNodeDescriptor) -> bool {
    node.edge_node.as_str() == EDGE_NODE_ID
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Alert, AlertKind, NodeState, identity};
    use sparkplug::BdSeq;
    use uuid::Uuid;

    fn node(id: &str) -> EdgeNodeDescriptor {
        EdgeNodeDescriptor::parse("ACME-Paint", id).unwrap()
    }

    fn device(active: bool) -> MonitoredNodeDevice {
        MonitoredNodeDevice {
            identity: identity::device(Uuid::from_u128(1)),
            node: Some(Uuid::from_u128(1)),
            state: if active { NodeState::Offline } else { NodeState::Online },
            reason: None,
            since: 10,
            offline: Alert { active, since: 10 },
            will_not_reload: Alert::default(),
            config_wanted: None,
            config_reported: None,
        }
    }

    fn born(id: &str) -> HostEvent {
        HostEvent::NodeBirth { node: node(id), bd_seq: BdSeq::ZERO, timestamp: 1, uuid: None, metrics: Arc::from([]) }
    }

    fn device_born(active: bool) -> HostEvent {
        HostEvent::DeviceBirth {
            node: node("Monitor"),
            device: DeviceId::new("Robot").unwrap(),
            timestamp: 2,
            metrics: device(active).to_metrics().into(),
        }
    }

    /// The alert of each device of the monitor.
    fn offline(replica: &MonitorReplica) -> Vec<(String, Alert)> {
        let devices = replica.monitor(&node("Monitor")).unwrap().devices();
        devices.map(|(id, device)| (id.as_str().to_owned(), device.alert(AlertKind::Offline))).collect()
    }

    #[test]
    fn an_alert_is_known_with_its_time_until_data_clears_it() {
        let mut replica = MonitorReplica::new();
        assert!(replica.on_event(&born("Monitor")));
        assert!(replica.on_event(&device_born(true)));
        assert_eq!(offline(&replica), [("Robot".to_owned(), Alert { active: true, since: 10 })]);
        let cleared = MonitoredNodeDevice { offline: Alert { active: false, since: 20 }, ..device(true) };
        let data = HostEvent::DeviceData {
            node: node("Monitor"),
            device: DeviceId::new("Robot").unwrap(),
            timestamp: 20,
            metrics: cleared.changes_since(&device(true)),
        };
        assert!(replica.on_event(&data));
        assert_eq!(offline(&replica), [("Robot".to_owned(), Alert { active: false, since: 20 })]);
    }

    #[test]
    fn a_dead_monitor_keeps_its_last_words_and_is_marked_dead() {
        let mut replica = MonitorReplica::new();
        replica.on_event(&born("Monitor"));
        replica.on_event(&device_born(true));
        replica.on_event(&HostEvent::NodeDeath { node: node("Monitor"), timestamp: 3 });
        replica.on_event(&HostEvent::NodeStale { node: node("Monitor"), reason: "gap".into() });
        assert_eq!(replica.monitor(&node("Monitor")).unwrap().presence(), Presence::Dead);
        assert_eq!(offline(&replica).len(), 1);
    }

    #[test]
    fn a_birth_replaces_every_device() {
        let mut replica = MonitorReplica::new();
        replica.on_event(&born("Monitor"));
        replica.on_event(&device_born(true));
        replica.on_event(&born("Monitor"));
        assert_eq!(replica.monitor(&node("Monitor")).unwrap().devices().count(), 0);
    }

    #[test]
    fn other_nodes_are_none_of_its_business() {
        let mut replica = MonitorReplica::new();
        assert!(!replica.on_event(&born("Sync")));
        assert!(!replica.on_event(&HostEvent::NodeDeath { node: node("Sync"), timestamp: 3 }));
        assert_eq!(replica.monitors().count(), 0);
    }
}
