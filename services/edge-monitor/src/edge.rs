//! Whom to watch on an edge cluster: SparkplugNode resources say which nodes, their births say where these are.
//!
//! A node named by UUID is found by a birth in the own group that carries it as Instance_UUID. Of two nodes that claim one UUID the first keeps it while it is alive. A node that
//! was not received since the monitor started cannot be found so. But edge sync of the same cluster knows the names of its deployments, and a deployment's name is its agent's edge
//! node id. So the node with that id is asked for its birth. That is a hint and no more: what counts is the birth.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use edge_monitor_contract::{EDGE_NODE_ID, NodeState, names};
use edge_sync_contract::names::{SyncDevice, deployment, sync_node};
use sparkplug::host::HostEvent;
use sparkplug::{DeviceId, EdgeNodeDescriptor, EdgeNodeId, GroupId, Metric, Now};
use uuid::Uuid;

use crate::config_freshness::SealedSecret;
use crate::event::{AGENT_CONFIG_PREFIX, AgentConfig, Watch};
use crate::reconcile::{self, Plan};
use crate::spec::{NodeResource, NodeSpec, Subject};
use crate::watched_nodes::{NodeTimedOut, WatchedNodes, revision_of, revision_text};

/// A node of the own group between its birth and its death.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    uuid: Option<Uuid>,
    revision: Option<String>,
}

/// What an edge cluster's monitor knows beside the watched nodes.
#[derive(Debug)]
pub(crate) struct Edge {
    group: GroupId,
    interval_default: Duration,
    resources: Option<BTreeMap<String, NodeResource>>,
    secrets: Option<BTreeMap<String, SealedSecret>>,
    configs: Option<BTreeMap<String, AgentConfig>>,
    /// Bounded by the number of nodes that the Host Application keeps.
    seen: BTreeMap<EdgeNodeDescriptor, Seen>,
    hints: BTreeMap<Uuid, EdgeNodeId>,
    spec_problems: BTreeMap<String, Vec<String>>,
}

impl Edge {
    pub(crate) const fn new(group: GroupId, interval_default: Duration) -> Self {
        Self {
            group,
            interval_default,
            resources: None,
            secrets: None,
            configs: None,
            seen: BTreeMap::new(),
            hints: BTreeMap::new(),
            spec_problems: BTreeMap::new(),
        }
    }

    pub(crate) fn on_resources(&mut self, watch: Watch<NodeResource>, watched_nodes: &mut WatchedNodes, now: Now) {
        if !watch.fold_into(&mut self.resources) {
            return;
        }
        let resources = self.resources.as_ref().expect("folding in changed it, so it is there");
        let keys = watched_nodes.nodes().keys().cloned().collect();
        let desired = reconcile::desired(resources, &keys, &self.group, self.interval_default);
        self.spec_problems = desired.problems;
        let watched: BTreeMap<String, NodeSpec> =
            watched_nodes.nodes().iter().map(|(key, watched)| (key.clone(), watched.spec().clone())).collect();
        let Plan { remove, mut add, change } = reconcile::plan(&watched, &desired.nodes);
        for key in &remove {
            tracing::info!(resource = key, "no longer watching a node");
            watched_nodes.remove(key);
        }
        let mut is_address_free = !remove.is_empty();
        for (key, spec) in change {
            let present = &watched_nodes.nodes()[&key];
            let is_same_node = present.spec().subject == spec.subject
                || present.address().is_some_and(|address| spec.subject == Subject::Address(address.clone()));
            if is_same_node {
                watched_nodes.change(&key, spec, now);
                self.inform(&key, watched_nodes, now);
            } else {
                watched_nodes.remove(&key);
                is_address_free = true;
                add.push((key, spec));
            }
        }
        for (key, spec) in add {
            tracing::info!(resource = key, "watching a node");
            watched_nodes.add(key.clone(), spec, now);
            self.inform(&key, watched_nodes, now);
            self.find(&key, watched_nodes, now);
        }
        // Another resource may wait for an address that was held until here.
        if is_address_free {
            self.find_all(watched_nodes, now);
        }
    }

    pub(crate) fn on_secrets(&mut self, watch: Watch<SealedSecret>, watched_nodes: &mut WatchedNodes, now: Now) {
        if watch.fold_into(&mut self.secrets) {
            self.inform_all(watched_nodes, now);
        }
    }

    /// ConfigMaps with agent configurations changed.
    pub(crate) fn on_configs(&mut self, watch: Watch<AgentConfig>, watched_nodes: &mut WatchedNodes, now: Now) {
        if watch.fold_into(&mut self.configs) {
            self.inform_all(watched_nodes, now);
        }
    }

    /// Something happened in the own group.
    pub(crate) fn on_host(&mut self, event: &HostEvent, watched_nodes: &mut WatchedNodes, now: Now) {
        match event {
            HostEvent::NodeBirth { node, metrics, .. } if self.is_watchable(node) => {
                self.on_birth(node, metrics, watched_nodes, now);
            }
            HostEvent::NodeDeath { node, .. } if self.is_watchable(node) => self.on_death(node, watched_nodes, now),
            HostEvent::NodeData { node, metrics, .. } => {
                let reported = metrics.iter().find(|metric| &*metric.name == names::AGENT_CONFIG_REVISION);
                if let (Some(seen), Some(metric)) = (self.seen.get_mut(node), reported) {
                    seen.revision = revision_of(metric);
                }
            }
            HostEvent::DeviceBirth { node, device, metrics, .. } => self.on_hint(node, device, metrics),
            _ => {}
        }
        watched_nodes.on_host(event, now);
    }

    /// Nodes that timed out have no claim on a UUID any more.
    pub(crate) fn on_silent(&mut self, timed_out: &[NodeTimedOut], watched_nodes: &mut WatchedNodes, now: Now) {
        for NodeTimedOut { address } in timed_out {
            if let Some(Seen { uuid: Some(uuid), .. }) = self.seen.remove(address) {
                self.find_uuid(uuid, watched_nodes, now);
            }
        }
    }

    /// Nodes beside the watched ones whose birth is wanted: edge sync for its hints, and where these point to.
    pub(crate) fn expected(&self, watched_nodes: &WatchedNodes) -> BTreeSet<EdgeNodeDescriptor> {
        let unfound = watched_nodes.nodes().values().filter(|watched| watched.address().is_none());
        let hinted = unfound.filter_map(|watched| self.hints.get(&watched.uuid()?));
        let hinted = hinted.map(|edge_node| EdgeNodeDescriptor::new(self.group.clone(), edge_node.clone()));
        // Also while no hint is needed: a node that is expected, forgotten and expected again is asked for its birth each time.
        hinted.chain([sync_node(self.group.clone())]).collect()
    }

    /// What should be watched and cannot, or not as its resource says, by name of the resource.
    pub(crate) fn problems(&self, watched_nodes: &WatchedNodes) -> BTreeMap<String, String> {
        let mut problems = self.spec_problems.clone();
        let mut add = |key: &String, problem: String| problems.entry(key.clone()).or_default().push(problem);
        for (key, watched) in watched_nodes.nodes() {
            let Subject::Uuid(uuid) = watched.spec().subject else { continue };
            let claimants: Vec<&EdgeNodeDescriptor> = self.claimants(uuid).collect();
            match watched.address() {
                Some(address) => {
                    for other in claimants.into_iter().filter(|claimant| *claimant != address) {
                        add(
                            key,
                            format!(
                                "{other} was born with the same Instance_UUID as {address}, which keeps it; stop one of them"
                            ),
                        );
                    }
                }
                None => match claimants.first() {
                    Some(claimant) => add(
                        key,
                        format!(
                            "{claimant} has its Instance_UUID, but is watched by another SparkplugNode; delete one of them"
                        ),
                    ),
                    None => {
                        add(key, format!("no edge node of group {} was born with Instance_UUID {uuid}", self.group))
                    }
                },
            }
        }
        for key in watched_nodes.not_shown() {
            add(key, "its device id is taken by another SparkplugNode".to_owned());
        }
        problems.into_iter().map(|(key, problems)| (key, problems.join("; "))).collect()
    }

    fn is_watchable(&self, node: &EdgeNodeDescriptor) -> bool {
        node.group == self.group && node.edge_node.as_str() != EDGE_NODE_ID
    }

    fn on_birth(&mut self, node: &EdgeNodeDescriptor, metrics: &[Metric], watched_nodes: &mut WatchedNodes, now: Now) {
        let metric = |name: &str| metrics.iter().find(|metric| &*metric.name == name);
        let uuid = metric(names::INSTANCE_UUID).and_then(Metric::as_str).and_then(|text| Uuid::try_parse(text).ok());
        let uuid = uuid.filter(|uuid| !uuid.is_nil());
        let revision = metric(names::AGENT_CONFIG_REVISION).and_then(revision_of);
        let before = self.seen.insert(node.clone(), Seen { uuid, revision: revision.clone() });
        let before = before.and_then(|seen| seen.uuid);
        self.release_if_other(node, uuid, watched_nodes, now);
        let bound = watched_nodes.key_at(node).cloned();
        if let Some(key) = bound {
            watched_nodes.born(&key, uuid, revision, now);
        }
        for uuid in [uuid, before.filter(|before| Some(*before) != uuid)].into_iter().flatten() {
            self.find_uuid(uuid, watched_nodes, now);
        }
    }

    /// A node of another UUID was born where a watched one used to be: that one is gone.
    fn release_if_other(
        &self,
        node: &EdgeNodeDescriptor,
        uuid: Option<Uuid>,
        watched_nodes: &mut WatchedNodes,
        now: Now,
    ) {
        let Some(key) = watched_nodes.key_at(node).cloned() else { return };
        let Subject::Uuid(wanted) = watched_nodes.nodes()[&key].spec().subject else { return };
        if uuid != Some(wanted) {
            watched_nodes.died(&key, now);
            watched_nodes.bind(&key, None);
            self.find(&key, watched_nodes, now);
        }
    }

    fn on_death(&mut self, node: &EdgeNodeDescriptor, watched_nodes: &mut WatchedNodes, now: Now) {
        let gone = self.seen.remove(node);
        if let Some(key) = watched_nodes.key_at(node).cloned() {
            watched_nodes.died(&key, now);
        }
        if let Some(uuid) = gone.and_then(|seen| seen.uuid) {
            self.find_uuid(uuid, watched_nodes, now);
        }
    }

    fn on_hint(&mut self, node: &EdgeNodeDescriptor, device: &DeviceId, metrics: &[Metric]) {
        if *node != sync_node(self.group.clone()) {
            return;
        }
        if !matches!(SyncDevice::parse(device), Some(SyncDevice::Deployment(_))) {
            return;
        }
        let text = |name: &str| metrics.iter().find(|metric| &*metric.name == name).and_then(Metric::as_str);
        let uuid = text(deployment::UUID).and_then(|text| Uuid::try_parse(text).ok());
        if let (Some(uuid), Some(Ok(name))) = (uuid, text(deployment::NAME).map(EdgeNodeId::new)) {
            self.hints.insert(uuid, name);
        }
    }

    fn claimants(&self, uuid: Uuid) -> impl Iterator<Item = &EdgeNodeDescriptor> {
        self.seen.iter().filter(move |(_, seen)| seen.uuid == Some(uuid)).map(|(node, _)| node)
    }

    fn find_all(&self, watched_nodes: &mut WatchedNodes, now: Now) {
        let keys: Vec<String> = watched_nodes.nodes().keys().cloned().collect();
        for key in keys {
            self.find(&key, watched_nodes, now);
        }
    }

    fn find_uuid(&self, uuid: Uuid, watched_nodes: &mut WatchedNodes, now: Now) {
        let named = watched_nodes.nodes().iter().find(|(_, watched)| watched.spec().subject == Subject::Uuid(uuid));
        if let Some(key) = named.map(|(key, _)| key.clone()) {
            self.find(&key, watched_nodes, now);
        }
    }

    /// Binds a watched node to the place where it was born, unless it is alive where it is bound already.
    fn find(&self, key: &str, watched_nodes: &mut WatchedNodes, now: Now) {
        let Some(watched) = watched_nodes.nodes().get(key) else { return };
        let place = match &watched.spec().subject {
            Subject::Address(address) => Some(address.clone()).filter(|address| self.seen.contains_key(address)),
            Subject::Uuid(uuid) => {
                let is_bound_to = |node: &&EdgeNodeDescriptor| watched.address() == Some(*node);
                let bound = self.claimants(*uuid).find(is_bound_to);
                bound.or_else(|| self.claimants(*uuid).find(|node| watched_nodes.key_at(node).is_none())).cloned()
            }
        };
        let Some(place) = place else { return };
        let is_change = watched.address() != Some(&place) || watched.state() == NodeState::Unknown;
        if is_change && watched_nodes.bind(key, Some(place.clone())) {
            let seen = &self.seen[&place];
            watched_nodes.born(key, seen.uuid, seen.revision.clone(), now);
        }
    }

    fn inform_all(&self, watched_nodes: &mut WatchedNodes, now: Now) {
        let keys: Vec<String> = watched_nodes.nodes().keys().cloned().collect();
        for key in keys {
            self.inform(&key, watched_nodes, now);
        }
    }

    /// Gives the freshness of an agent what is known of its configuration and secrets.
    fn inform(&self, key: &str, watched_nodes: &mut WatchedNodes, now: Now) {
        let Some(watched) = watched_nodes.nodes().get(key).filter(|watched| watched.spec().is_edge_agent) else {
            return;
        };
        let Some(uuid) = watched.uuid() else { return };
        let names = watched.spec().secrets.clone();
        let wanted = self.configs.as_ref().map(|configs| {
            let config = configs.get(&format!("{AGENT_CONFIG_PREFIX}{uuid}"));
            config.and_then(|config| config.revision.as_deref()).and_then(revision_text)
        });
        watched_nodes.freshness(key, |freshness, jitter| {
            if let Some(wanted) = wanted {
                freshness.want(wanted, now, jitter);
            }
            if let Some(secrets) = &self.secrets {
                freshness.see_secrets(secrets, &names, now, jitter);
            }
        });
    }
}
