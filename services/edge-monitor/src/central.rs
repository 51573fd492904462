//! Whom to watch at the control plane: the monitor of every cluster. A cluster is known from ConfigDB, so one whose monitor was never born is shown too. It is also known from
//! the birth of its monitor. So one that ConfigDB does not contain (any more) is shown as long as its monitor publishes. Only a complete replica of ConfigDB can say that a cluster is gone.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use configdb_contract::ConfigReplica;
use configdb_schema::document::{EdgeCluster, SparkplugAddress};
use configdb_schema::{ClusterName, Document, Organisation};
use edge_monitor_contract::{EDGE_NODE_ID, NodeState, identity, names};
use edge_sync_contract::names::sync_node;
use sparkplug::host::HostEvent;
use sparkplug::{BdSeq, DeviceId, EdgeNodeDescriptor, EdgeNodeId, GroupId, Metric, Now};
use uuid::Uuid;

use crate::spec::{NodeSpec, Subject};
use crate::watch::Watched;
use crate::watched_nodes::WatchedNodes;

/// What the central monitor knows beside the watched monitors.
#[derive(Debug)]
pub(crate) struct Central {
    organisation: Organisation,
    interval: Duration,
    replica: ConfigReplica,
    /// Clusters in ConfigDB, by group.
    clusters: BTreeMap<GroupId, Uuid>,
    /// Clusters that cannot be watched, and why.
    problems: BTreeMap<String, String>,
    /// The last session of each monitor. Bounded by the number of nodes that the Host Application keeps.
    sessions: BTreeMap<GroupId, BdSeq>,
}

impl Central {
    /// Nothing known yet. `interval`: how long a monitor may be silent.
    pub(crate) fn new(organisation: Organisation, interval: Duration) -> Self {
        let replica = ConfigReplica::new(configdb_contract::configdb_node(&organisation));
        Self {
            organisation,
            interval,
            replica,
            clusters: BTreeMap::new(),
            problems: BTreeMap::new(),
            sessions: BTreeMap::new(),
        }
    }

    /// Something happened to ConfigDB or to a monitor. Returns the edge sync that is to be asked for its birth: that of a monitor which has started again, and may not ask itself.
    pub(crate) fn on_host(
        &mut self,
        event: &HostEvent,
        watched_nodes: &mut WatchedNodes,
        now: Now,
    ) -> Option<EdgeNodeDescriptor> {
        self.replica.on_event(event);
        let mut is_changed = false;
        while self.replica.poll_change().is_some() {
            is_changed = true;
        }
        if is_changed {
            self.read_clusters(watched_nodes, now);
        }
        let mut asked = None;
        match event {
            HostEvent::NodeBirth { node, metrics, bd_seq, .. } if self.is_monitor(node) => {
                let before = self.sessions.insert(node.group.clone(), *bd_seq);
                asked = before.is_some_and(|before| before != *bd_seq).then(|| sync_node(node.group.clone()));
                self.on_birth(node, metrics, watched_nodes, now);
            }
            HostEvent::NodeDeath { node, .. } => {
                if let Some(key) = watched_nodes.key_at(node).cloned() {
                    watched_nodes.died(&key, now);
                    self.sweep(watched_nodes);
                }
            }
            _ => {}
        }
        watched_nodes.on_host(event, now);
        asked
    }

    /// Ends the watch of monitors that neither ConfigDB knows nor anyone receives.
    pub(crate) fn sweep(&self, watched_nodes: &mut WatchedNodes) {
        if !self.replica.is_complete() {
            return;
        }
        let is_stranger = |key: &str| GroupId::new(key).is_ok_and(|group| !self.clusters.contains_key(&group));
        let nodes = watched_nodes.nodes().iter();
        let gone = nodes.filter(|(key, watched)| watched.state() != NodeState::Online && is_stranger(key));
        let gone: Vec<String> = gone.map(|(key, _)| key.clone()).collect();
        for key in gone {
            tracing::info!(group_id = key, "no longer watching the monitor of a cluster");
            watched_nodes.remove(&key);
        }
    }

    /// Nodes beside the monitors whose birth is wanted.
    pub(crate) fn expected(&self) -> BTreeSet<EdgeNodeDescriptor> {
        BTreeSet::from([self.replica.node().clone()])
    }

    /// What should be watched and cannot, and what is watched and should not be there.
    pub(crate) fn problems(&self, watched_nodes: &WatchedNodes) -> BTreeMap<String, String> {
        let mut problems = self.problems.clone();
        if self.replica.is_complete() {
            for key in watched_nodes.nodes().keys() {
                if GroupId::new(key).is_ok_and(|group| !self.clusters.contains_key(&group)) {
                    let problem = "its monitor is alive, but ConfigDB has no cluster with this group";
                    problems.insert(key.clone(), problem.to_owned());
                }
            }
        }
        problems
    }

    fn is_monitor(&self, node: &EdgeNodeDescriptor) -> bool {
        node.edge_node.as_str() == EDGE_NODE_ID && self.organisation.cluster_of_group(node.group.as_str()).is_some()
    }

    fn on_birth(&self, node: &EdgeNodeDescriptor, metrics: &[Metric], watched_nodes: &mut WatchedNodes, now: Now) {
        let instance = metrics.iter().find(|metric| &*metric.name == names::INSTANCE_UUID).and_then(Metric::as_str);
        let uuid = instance.and_then(|text| Uuid::try_parse(text).ok()).filter(|uuid| !uuid.is_nil());
        let derived = self.clusters.get(&node.group).map(|cluster| identity::monitor_of_cluster(*cluster));
        self.watch(node, uuid.or(derived), watched_nodes, now);
        watched_nodes.born(node.group.as_str(), uuid, None, now);
    }

    /// Reads the clusters of ConfigDB again, begins and ends watches.
    fn read_clusters(&mut self, watched_nodes: &mut WatchedNodes, now: Now) {
        let (mut clusters, mut problems) = (BTreeMap::new(), BTreeMap::new());
        for (uuid, entry) in self.replica.entries(EdgeCluster::slug()) {
            let group = entry.parse::<EdgeCluster>().map_err(|error| error.to_string());
            match group.and_then(|cluster| self.group_of(uuid, &cluster)) {
                Ok(group) => match clusters.get(&group) {
                    None => drop(clusters.insert(group, uuid)),
                    Some(first) => {
                        let problem = format!("has the same group {group} as cluster {first}; rename one of them");
                        problems.insert(uuid.to_string(), problem);
                    }
                },
                Err(problem) => drop(problems.insert(uuid.to_string(), problem)),
            }
        }
        if !self.replica.is_complete() {
            // What is absent may exist: what was known stays known.
            for (group, uuid) in &self.clusters {
                clusters.entry(group.clone()).or_insert(*uuid);
            }
        }
        self.problems = problems;
        self.clusters = clusters;
        for (group, cluster) in &self.clusters {
            let watched = watched_nodes.nodes().get(group.as_str());
            if watched.is_none_or(|watched| watched.state() == NodeState::Unknown) {
                let node = EdgeNodeDescriptor::new(group.clone(), monitor_id());
                self.watch(&node, Some(identity::monitor_of_cluster(*cluster)), watched_nodes, now);
            }
        }
        self.sweep(watched_nodes);
    }

    /// The cluster's registered address, or the group that its name makes.
    fn group_of(&self, cluster: Uuid, config: &EdgeCluster) -> Result<GroupId, String> {
        let registered = self.replica.document::<SparkplugAddress>(cluster).ok().flatten();
        let name = match registered.filter(|address| address.node_id.is_none()) {
            Some(address) => self.organisation.cluster_of_group(&address.group_id).ok_or_else(|| {
                format!(
                    "its Sparkplug address {:?} is not the group of a cluster of {}",
                    address.group_id, self.organisation
                )
            })?,
            None => ClusterName::new(&*config.name).map_err(|error| error.to_string())?,
        };
        GroupId::new(self.organisation.cluster_group(&name)).map_err(|error| error.to_string())
    }

    /// Watches a monitor, under this UUID if one is known.
    fn watch(&self, node: &EdgeNodeDescriptor, uuid: Option<Uuid>, watched_nodes: &mut WatchedNodes, now: Now) {
        let key = node.group.as_str();
        let subject = uuid.map_or_else(|| Subject::Address(node.clone()), Subject::Uuid);
        let spec = NodeSpec { subject, interval: self.interval, is_edge_agent: false, secrets: Vec::new() };
        match watched_nodes.nodes().get(key) {
            Some(watched) if *watched.spec() == spec => {}
            Some(_) => watched_nodes.change(key, spec, now),
            None => {
                tracing::info!(group_id = key, "watching the monitor of a cluster");
                watched_nodes.add(key.to_owned(), spec, now);
            }
        }
        watched_nodes.bind(key, Some(node.clone()));
    }
}

/// Id of the device that stands for the monitor of a cluster: its group id.
pub(crate) fn device_id(watched: &Watched) -> DeviceId {
    let group = watched.address().map(|address| address.group.to_string());
    DeviceId::new(group.unwrap_or_else(|| "unknown".to_owned())).expect("group ids obey the rules of device ids")
}

fn monitor_id() -> EdgeNodeId {
    EdgeNodeId::new(EDGE_NODE_ID).expect("a constant without forbidden characters is an id")
}
