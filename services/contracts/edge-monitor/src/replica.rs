//! All monitors as a listener sees them. Fed with the events of a Host Application; knows nothing of sessions or of time.

use std::collections::BTreeMap;

use sparkplug::host::HostEvent;
pub use sparkplug::replication::Presence;
use sparkplug::replication::{Contract, Devices, Replica};
use sparkplug::typed::FieldError;
use sparkplug::{DeviceId, EdgeNodeDescriptor, Metric, TypedMetrics};

use crate::{EDGE_NODE_ID, MonitorNode, MonitoredNodeDevice};

/// What a monitor publishes.
#[derive(Debug)]
pub enum MonitorContract {}

impl Contract for MonitorContract {
    type Node = MonitorNode;
    type Key = DeviceId;
    type Devices = MonitoredNodes;

    fn key(device: &DeviceId) -> Option<DeviceId> {
        Some(device.clone())
    }

    fn devices_total(_: &MonitorNode) -> Option<u64> {
        None
    }
}

/// The Devices of a monitor. An alert without a time of its own has that of its message.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MonitoredNodes(BTreeMap<DeviceId, MonitoredNodeDevice>);

fn stamped(metrics: &[Metric], timestamp: u64) -> Vec<Metric> {
    let stamp = |metric: &Metric| Metric { timestamp: metric.timestamp.or(Some(timestamp)), ..metric.clone() };
    metrics.iter().map(stamp).collect()
}

impl Devices<DeviceId> for MonitoredNodes {
    fn count(&self) -> usize {
        self.0.len()
    }

    fn contains(&self, key: &DeviceId) -> bool {
        self.0.contains_key(key)
    }

    fn birth(&mut self, key: &DeviceId, metrics: &[Metric], timestamp: u64) -> Result<(), FieldError> {
        let device = MonitoredNodeDevice::received(&stamped(metrics, timestamp), timestamp)?;
        self.0.insert(key.clone(), device);
        Ok(())
    }

    fn data(&mut self, key: &DeviceId, metrics: &[Metric], timestamp: u64) -> Result<(), FieldError> {
        self.0.get_mut(key).map_or(Ok(()), |device| device.merge(&stamped(metrics, timestamp)))
    }

    fn death(&mut self, key: &DeviceId) -> bool {
        self.0.remove(key).is_some()
    }

    fn keys(&self) -> Vec<DeviceId> {
        self.0.keys().cloned().collect()
    }
}

/// One monitor with the nodes that it watches.
#[derive(Debug, Clone, PartialEq)]
pub struct MonitorView(Replica<MonitorContract>);

impl MonitorView {
    /// How far this can be believed.
    #[must_use]
    pub const fn presence(&self) -> Presence {
        self.0.presence()
    }

    /// What the monitor says about itself; None if its metrics are not those of a monitor.
    #[must_use]
    pub const fn node(&self) -> Option<&MonitorNode> {
        self.0.node()
    }

    /// The devices that are readable as monitored nodes, by device id.
    pub fn devices(&self) -> impl Iterator<Item = (&DeviceId, &MonitoredNodeDevice)> {
        self.0.devices().0.iter()
    }
}

/// Replica of every monitor that was ever born.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MonitorReplica {
    monitors: BTreeMap<EdgeNodeDescriptor, MonitorView>,
}

impl MonitorReplica {
    /// Nothing received yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes one event; true if it was about a monitor or about the own session.
    pub fn on_event(&mut self, event: &HostEvent) -> bool {
        let node = match event {
            HostEvent::Offline { .. } => {
                self.monitors.values_mut().for_each(|view| drop(view.0.on_event(event)));
                return true;
            }
            HostEvent::NodeBirth { node, .. } if node.edge_node.as_str() == EDGE_NODE_ID => {
                let fresh = || MonitorView(Replica::new(node.clone()));
                self.monitors.entry(node.clone()).or_insert_with(fresh);
                node
            }
            HostEvent::NodeData { node, .. }
            | HostEvent::DeviceBirth { node, .. }
            | HostEvent::DeviceData { node, .. }
            | HostEvent::DeviceDeath { node, .. }
            | HostEvent::NodeDeath { node, .. }
            | HostEvent::NodeStale { node, .. } => node,
            _ => return false,
        };
        let Some(view) = self.monitors.get_mut(node) else { return false };
        view.0.on_event(event);
        true
    }

    /// Every monitor that was ever born.
    pub fn monitors(&self) -> impl Iterator<Item = (&EdgeNodeDescriptor, &MonitorView)> {
        self.monitors.iter()
    }

    /// One monitor.
    #[must_use]
    pub fn monitor(&self, node: &EdgeNodeDescriptor) -> Option<&MonitorView> {
        self.monitors.get(node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Alert, AlertKind, NodeState, identity};
    use sparkplug::BdSeq;
    use std::sync::Arc;
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
