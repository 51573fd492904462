//! All watched nodes by key, and what is shown of them. Which nodes are watched is decided elsewhere: by resources on an edge cluster, by ConfigDB and births at the
//! control plane. This module must not know why a node is in it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use edge_monitor_contract::{AlertKind, MonitoredNodeDevice, NodeState, names};
use sparkplug::edge_node::NodeUpdate;
use sparkplug::host::{HostEvent, HostRequest};
use sparkplug::{DeviceId, EdgeNodeDescriptor, MessageKind, Metric, Now, Topic, TypedMetrics};
use uuid::Uuid;

use crate::config_freshness::{ConfigFreshness, ReloadPolicy};
use crate::event::Effect;
use crate::jitter::Jitter;
use crate::spec::NodeSpec;
use crate::watch::Watched;

/// How many nodes are watched, and how they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Counts {
    pub total: u32,
    pub online: u32,
    pub alerts: u32,
}

#[derive(Debug)]
pub(crate) struct WatchedNodes {
    nodes: BTreeMap<String, Watched>,
    by_address: BTreeMap<EdgeNodeDescriptor, String>,
    /// What was sent to the own Edge Node, by key and by device.
    shown: BTreeMap<String, (DeviceId, MonitoredNodeDevice)>,
    owners: BTreeMap<DeviceId, String>,
    /// Keys whose device may differ from what is shown.
    touched: BTreeSet<String>,
    /// Nodes whose birth the Host Application has to expect.
    expected: BTreeSet<EdgeNodeDescriptor>,
    is_listening: bool,
    /// Not after the earliest deadline of any node: an early timer costs one pass, a late one would cost an alert.
    deadline: Option<Duration>,
    policy: ReloadPolicy,
    jitter: Jitter,
    seed: u64,
    device_id: fn(&Watched) -> DeviceId,
}

/// What happened to a node in [`WatchedNodes::on_timer`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NodeTimedOut {
    pub address: EdgeNodeDescriptor,
}

impl WatchedNodes {
    /// No one is watched. `device_id` names the device of a node.
    pub(crate) fn new(policy: ReloadPolicy, seed: u64, device_id: fn(&Watched) -> DeviceId) -> Self {
        Self {
            nodes: BTreeMap::new(),
            by_address: BTreeMap::new(),
            shown: BTreeMap::new(),
            owners: BTreeMap::new(),
            touched: BTreeSet::new(),
            expected: BTreeSet::new(),
            is_listening: false,
            deadline: None,
            policy,
            jitter: Jitter::new(seed),
            seed,
            device_id,
        }
    }

    /// All watched nodes, by key.
    pub(crate) const fn nodes(&self) -> &BTreeMap<String, Watched> {
        &self.nodes
    }

    /// Key of the node at an address.
    pub(crate) fn key_at(&self, address: &EdgeNodeDescriptor) -> Option<&String> {
        self.by_address.get(address)
    }

    /// Begins to watch. A node with an address that is watched under another key already is refused.
    pub(crate) fn add(&mut self, key: String, spec: NodeSpec, now: Now) {
        self.seed = self.seed.wrapping_add(1);
        let watched = Watched::new(spec, self.policy, self.is_listening, self.seed, now);
        if let Some(address) = watched.address() {
            self.by_address.entry(address.clone()).or_insert_with(|| key.clone());
        }
        self.nodes.insert(key.clone(), watched);
        self.touch(&key);
    }

    pub(crate) fn remove(&mut self, key: &str) {
        self.nodes.remove(key);
        self.by_address.retain(|_, owner| owner != key);
        self.touched.insert(key.to_owned());
    }

    /// Changes what is to be watched of the same node.
    pub(crate) fn change(&mut self, key: &str, spec: NodeSpec, now: Now) {
        self.seed = self.seed.wrapping_add(1);
        if let Some(watched) = self.nodes.get_mut(key) {
            watched.change(spec, self.policy, self.seed, &mut self.jitter, now);
            self.touch(key);
        }
    }

    /// Says where a node is (not). False: another key has that address.
    pub(crate) fn bind(&mut self, key: &str, address: Option<EdgeNodeDescriptor>) -> bool {
        let Some(watched) = self.nodes.get_mut(key) else { return false };
        if address.as_ref().and_then(|address| self.by_address.get(address)).is_some_and(|owner| owner != key) {
            return false;
        }
        self.by_address.retain(|_, owner| owner != key);
        if let Some(address) = &address {
            self.by_address.insert(address.clone(), key.to_owned());
        }
        watched.bind(address);
        self.touch(key);
        true
    }

    /// The node was born.
    pub(crate) fn born(&mut self, key: &str, uuid: Option<Uuid>, revision: Option<String>, now: Now) {
        self.with(key, |watched, jitter| watched.born(uuid, revision, now, jitter));
    }

    pub(crate) fn died(&mut self, key: &str, now: Now) {
        self.with(key, |watched, jitter| watched.died(now, jitter));
    }

    /// Does something with the freshness of an edge agent.
    pub(crate) fn freshness(&mut self, key: &str, change: impl FnOnce(&mut ConfigFreshness, &mut Jitter)) {
        self.with(key, |watched, jitter| {
            if let Some(freshness) = watched.freshness_mut() {
                change(freshness, jitter);
            }
        });
    }

    /// Takes what concerns the own session and the packets of watched nodes, but births and deaths of nodes.
    pub(crate) fn on_host(&mut self, event: &HostEvent, now: Now) {
        match event {
            HostEvent::Online | HostEvent::Offline { .. } => {
                self.set_listening(matches!(event, HostEvent::Online), now)
            }
            HostEvent::NodeData { node, metrics, .. } => {
                let reported = metrics.iter().find(|metric| &*metric.name == names::AGENT_CONFIG_REVISION);
                let revision = reported.map(revision_of);
                self.at(node, |watched, jitter| {
                    watched.data_received(now, jitter);
                    if let Some(revision) = revision {
                        watched.reported(revision, now, jitter);
                    }
                });
            }
            HostEvent::Rejected { topic, reason } => {
                let refused = match Topic::parse(topic) {
                    Ok(Topic::Node { node, kind: MessageKind::NBirth }) => Some((node, None)),
                    Ok(Topic::Device { node, kind: MessageKind::DBirth, device }) => Some((node, Some(device))),
                    _ => None,
                };
                if let Some((node, device)) = refused {
                    self.at(&node, |watched, _| watched.birth_refused(device, reason));
                }
            }
            HostEvent::DeviceBirth { node, device, .. } | HostEvent::DeviceDeath { node, device, .. } => {
                self.at(node, |watched, jitter| {
                    watched.device_received(device);
                    watched.received(now, jitter);
                })
            }
            HostEvent::DeviceData { node, .. } => self.at(node, |watched, jitter| watched.data_received(now, jitter)),
            _ => {}
        }
    }

    /// When [`WatchedNodes::on_timer`] has something to do.
    pub(crate) const fn next_deadline(&self) -> Option<Duration> {
        self.deadline
    }

    /// Does what is due; returns the nodes that timed out.
    pub(crate) fn on_timer(&mut self, effects: &mut Vec<Effect>, now: Now) -> Vec<NodeTimedOut> {
        if self.deadline.is_none_or(|deadline| deadline > now.mono) {
            return Vec::new();
        }
        let mut timed_out = Vec::new();
        for (key, watched) in &mut self.nodes {
            if watched.next_deadline().is_none_or(|deadline| deadline > now.mono) {
                continue;
            }
            let before = watched.state();
            let due = watched.on_timer(now, &mut self.jitter);
            self.touched.insert(key.clone());
            let Some(address) = watched.address() else { continue };
            if before != NodeState::Silent && watched.state() == NodeState::Silent {
                timed_out.push(NodeTimedOut { address: address.clone() });
            }
            if due.rebirth {
                tracing::debug!(group_id = %address.group, edge_node_id = %address.edge_node, "asking a silent node for rebirth");
                effects.push(Effect::Host(HostRequest::Rebirth { node: address.clone() }));
            }
            if due.reload {
                tracing::info!(group_id = %address.group, edge_node_id = %address.edge_node, "asking an edge agent to reload its configuration");
                effects.push(Effect::Host(HostRequest::Command {
                    node: address.clone(),
                    device: None,
                    metrics: vec![Metric::new(names::AGENT_RELOAD, true)],
                }));
            }
        }
        self.deadline = self.nodes.values().filter_map(Watched::next_deadline).min();
        timed_out
    }

    /// Sets the nodes whose birth the Host Application has to get: every node with an address, and `others`.
    pub(crate) fn expect(&mut self, others: BTreeSet<EdgeNodeDescriptor>, effects: &mut Vec<Effect>) {
        let mut wanted = others;
        wanted.extend(self.by_address.keys().cloned());
        for node in self.expected.difference(&wanted) {
            effects.push(Effect::Host(HostRequest::Forget { node: node.clone() }));
        }
        for node in wanted.difference(&self.expected) {
            effects.push(Effect::Host(HostRequest::Expect { node: node.clone() }));
        }
        self.expected = wanted;
    }

    /// Sends the own Edge Node what changed. True if anything did.
    pub(crate) fn show(&mut self, effects: &mut Vec<Effect>) -> bool {
        let touched = std::mem::take(&mut self.touched);
        let mut freed = false;
        for key in &touched {
            freed |= self.hide_if_moved(key, effects);
        }
        // An id that became free may be what another node waits for.
        let waiting = |key: &&String| freed && !self.shown.contains_key(*key);
        let keys: BTreeSet<String> = self.nodes.keys().filter(waiting).chain(&touched).cloned().collect();
        let mut changed = freed;
        for key in keys {
            changed |= self.show_one(&key, effects);
        }
        changed
    }

    /// Keys that are not shown because another node has their device id.
    pub(crate) fn not_shown(&self) -> impl Iterator<Item = &String> {
        self.nodes.keys().filter(|key| !self.shown.contains_key(*key))
    }

    /// How many nodes there are, and how they are.
    pub(crate) fn counts(&self) -> Counts {
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let devices = || self.nodes.values().map(Watched::device);
        let alerts =
            devices().flat_map(|device| AlertKind::ALL.map(|kind| device.alert(kind))).filter(|alert| alert.active);
        Counts {
            total: count(self.nodes.len()),
            online: count(devices().filter(|device| device.state == NodeState::Online).count()),
            alerts: count(alerts.count()),
        }
    }

    fn set_listening(&mut self, is_listening: bool, now: Now) {
        self.is_listening = is_listening;
        let keys: Vec<String> = self.nodes.keys().cloned().collect();
        for key in keys {
            self.with(&key, |watched, jitter| watched.set_listening(is_listening, now, jitter));
        }
    }

    fn at(&mut self, address: &EdgeNodeDescriptor, change: impl FnOnce(&mut Watched, &mut Jitter)) {
        if let Some(key) = self.by_address.get(address).cloned() {
            self.with(&key, change);
        }
    }

    fn with(&mut self, key: &str, change: impl FnOnce(&mut Watched, &mut Jitter)) {
        if let Some(watched) = self.nodes.get_mut(key) {
            change(watched, &mut self.jitter);
            self.touch(key);
        }
    }

    fn touch(&mut self, key: &str) {
        self.touched.insert(key.to_owned());
        let deadline = self.nodes.get(key).and_then(Watched::next_deadline);
        self.deadline = [self.deadline, deadline].into_iter().flatten().min();
    }

    /// Ends the device of a node that is gone, has another identity or another device id. True if a device id became free.
    fn hide_if_moved(&mut self, key: &str, effects: &mut Vec<Effect>) -> bool {
        let wanted = self.nodes.get(key).map(|watched| ((self.device_id)(watched), watched.device().identity));
        let moved = |(id, device): &mut (DeviceId, MonitoredNodeDevice)| {
            wanted.as_ref().is_none_or(|(wanted_id, identity)| wanted_id != id || *identity != device.identity)
        };
        if !self.shown.get_mut(key).is_some_and(moved) {
            return false;
        }
        if let Some((device, _)) = self.shown.remove(key) {
            self.owners.remove(&device);
            effects.push(Effect::Node(NodeUpdate::DeviceDeath { device }));
        }
        true
    }

    fn show_one(&mut self, key: &str, effects: &mut Vec<Effect>) -> bool {
        let Some(watched) = self.nodes.get(key) else { return false };
        let (id, device) = ((self.device_id)(watched), watched.device());
        if self.owners.get(&id).is_some_and(|owner| owner != key) {
            return false;
        }
        let update = match self.shown.get(key) {
            Some((_, before)) if *before == device => return false,
            Some((_, before)) => {
                log_changes(key, before, &device);
                NodeUpdate::Set { device: Some(id.clone()), metrics: device.changes_since(before) }
            }
            None => NodeUpdate::DeviceBirth { device: id.clone(), metrics: device.to_metrics() },
        };
        self.owners.insert(id.clone(), key.to_owned());
        self.shown.insert(key.to_owned(), (id, device));
        effects.push(Effect::Node(update));
        true
    }
}

fn log_changes(key: &str, before: &MonitoredNodeDevice, device: &MonitoredNodeDevice) {
    if before.state != device.state {
        tracing::info!(node = key, from = %before.state, to = %device.state, "node changed state");
    }
    for kind in AlertKind::ALL {
        if before.alert(kind).active != device.alert(kind).active {
            tracing::info!(node = key, alert = kind.folder(), active = device.alert(kind).active, "alert changed");
        }
    }
}

/// The revision that a `Config_Revision` metric reports; the Null UUID and null are none.
pub(crate) fn revision_of(metric: &Metric) -> Option<String> {
    metric.as_str().and_then(revision_text)
}

/// A revision in the form in which revisions are compared; None for an empty text and the Null UUID.
pub(crate) fn revision_text(text: &str) -> Option<String> {
    let text = text.trim();
    match Uuid::try_parse(text) {
        Ok(uuid) => (!uuid.is_nil()).then(|| uuid.to_string()),
        Err(_) => (!text.is_empty()).then(|| text.to_owned()),
    }
}
