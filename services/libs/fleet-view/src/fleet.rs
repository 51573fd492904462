//! The replicas of ConfigDB, cluster manager, Identity, every Sync, every Join and every monitor, joined into rows for people.
//! Pure: fed with [`HostEvent`]s. It must not know how the events arrive or how rows are printed.

use std::collections::{BTreeMap, BTreeSet};

use cluster_manager_contract::{ClusterDevice, ManagerReplica, SetupState};
use configdb_contract::{Change, ConfigReplica};
use configdb_schema::Document;
use configdb_schema::address::{self, Organisation};
use configdb_schema::document::{
    AgentConfig, EdgeCluster, EdgeClusterStatus, EdgeDeployment, HelmChartTemplate, Host, Info, SealedSecret,
};
use edge_monitor_contract::{MonitorReplica, MonitorView, NodeState, Presence};
use edge_sync_contract::{DeploymentDevice, DeploymentState, SyncDevice, SyncReplica};
use identity_contract::IdentityReplica;
use join_service_contract::{HostState, JoinHost, JoinReplica};
use serde::{Deserialize, Serialize};
use sparkplug::edge_node::CONTESTED;
use sparkplug::host::HostEvent;
use sparkplug::replication::ReplicaChange;
use sparkplug::{DeviceId, EdgeNodeDescriptor, GroupId, Metric, NameError};
use uuid::Uuid;

use crate::deltas::Table;
use crate::intent::Intents;

/// So many nodes are listed whose births are missing.
const MISSING_LISTED_MAX: usize = 5;

/// Edge Nodes of services: there is one of each in a group, and its births name its process and say how much room its disk has.
const SINGLE_NODES: [&str; 9] = [
    address::CONFIGDB_NODE,
    address::CLUSTER_MANAGER_NODE,
    address::IDENTITY_NODE,
    address::GIT_NODE,
    address::CONSOLE_NODE,
    address::MONITOR_NODE,
    address::SYNC_NODE,
    address::JOIN_NODE,
    address::KEYS_NODE,
];

/// Metric of a service's node, String: what an operator has to do about the disk of its state directory; null: nothing. Its timestamp is the moment since when.
pub const DISK_ALERT: &str = "Disk/Alert";
/// A service that is not one of ours could say anything.
const DISK_ALERT_CHARS_MAX: usize = 200;

/// State of a deployment that no one wants any more, and that its edge has not reported gone.
pub const REMOVING: &str = "removing";
/// State of a deployment that an operator has suspended, and whose edge says so.
pub const SUSPENDED: &str = "suspended";
/// Why a deployment is not judged whose release is suspended at its edge by another writer.
const SUSPENDED_AT_EDGE: &str = "its release is suspended at the edge, and its entry does not ask for that; `flux resume helmrelease` there resumes it";
/// State of a deployment whose edge waits for an operator's decision.
const HELD: &str = "held";
/// Why a cluster is [`NOT_DESIRED`].
const UNDESIRED: &str = "this ConfigDB does not have this cluster; its edge keeps what it runs until an operator decides: `sparkfleet recover status`";
/// Set-up of a cluster that only its edge knows.
pub const NOT_DESIRED: &str = "not desired";

/// The fleet as far as it was received.
#[derive(Debug)]
pub struct Fleet {
    organisation: Organisation,
    /// ConfigDB.
    pub config: ConfigReplica,
    /// Cluster manager.
    pub manager: ManagerReplica,
    /// Identity.
    pub identity: IdentityReplica,
    /// Sync of each cluster that was received, by address.
    pub syncs: BTreeMap<EdgeNodeDescriptor, SyncReplica>,
    /// Every monitor that was received.
    pub monitors: MonitorReplica,
    /// Join node of each cluster that was received, by address.
    pub joins: BTreeMap<EdgeNodeDescriptor, JoinReplica>,
    /// Services whose births say that another process was born under their id: what they say, and since when, UTC ms.
    pub(crate) contested: BTreeMap<EdgeNodeDescriptor, (String, u64)>,
    /// Nodes whose disk has little room: what an operator has to do, and since when (UTC ms).
    pub(crate) disks: BTreeMap<EdgeNodeDescriptor, (String, u64)>,
    intents: Intents,
    /// UTC ms, as last given.
    wall: u64,
}

/// An edge cluster as it stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterRow {
    /// UUID.
    pub uuid: Uuid,
    /// Name.
    pub name: String,
    /// Sparkplug group.
    pub group: String,
    /// Setup state as the cluster manager says, `unknown` while it is not received, [`NOT_DESIRED`] if only its living edge knows it and not this ConfigDB.
    pub setup: String,
    /// Why it is in that state.
    pub reason: Option<String>,
    /// Since when it is in that state, UTC ms.
    pub since: Option<u64>,
    /// Its edge sync was born at some time, as far as is known.
    pub seen: bool,
    /// The edge sync is alive.
    pub alive: bool,
    /// Since when, UTC ms.
    pub alive_since: Option<u64>,
    /// The cluster manager says that the edge sync is alive, and its birth is not received here: how the edge stands is not known.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unborn: bool,
    /// The edge monitor is alive.
    pub monitored: bool,
    /// What Flux says of the edge's own release and Kustomization; None: edge sync, which reports it, was not received.
    pub flux: Option<FluxRow>,
    /// The edge has taken over what is wanted of it.
    pub agreed: bool,
    /// Why the edge holds what it is sent, until an operator decides; None: it does not.
    pub held: Option<String>,
    /// Hosts that are ready, and all: those of the last report while the edge is not alive.
    pub hosts: Count,
    /// Deployments that are ready, and all that are wanted.
    pub deployments: Count,
    /// Active alerts about it: as many as [`Fleet::alerts`] has of this cluster.
    pub alerts: usize,
    /// What shows here comes from a simulator.
    pub simulated: bool,
    /// By which people choose among clusters; `location` is that of its general information.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

impl ClusterRow {
    /// Its status, for people.
    #[must_use]
    pub fn described(&self) -> String {
        let reason = self.reason.as_ref().map_or_else(String::new, |reason| format!(" ({reason})"));
        let flux = self.flux.as_ref().filter(|flux| flux.ready == Some(false));
        let flux = flux.map_or_else(String::new, |flux| format!(", {}", flux.described()));
        format!("setup {}{reason}, edge {}{flux}, hosts {} ready", self.setup, self.edge(), self.hosts)
    }

    /// How its edge stands: `alive`, `unmonitored` (its monitor is not alive), `away`, or `not yet` before its first birth; `?` while that is not known.
    #[must_use]
    pub const fn edge(&self) -> &'static str {
        if self.unborn {
            return "?";
        }
        match (self.alive, self.monitored, self.seen) {
            (true, true, _) => "alive",
            (true, false, _) => "unmonitored",
            (false, _, true) => "away",
            (false, _, false) => "not yet",
        }
    }
}

/// What Flux says of what it applies from a cluster's own repository: the Kustomization and the releases in it, that of edge sync and edge monitor among them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FluxRow {
    /// Everything is ready; None: Flux has not looked at all of it.
    pub ready: Option<bool>,
    /// What is not ready, and why.
    pub message: Option<String>,
    /// Commit of the cluster's repository that was applied last.
    pub commit: Option<String>,
}

impl FluxRow {
    /// In a word: `ready`, `failed` or `pending`.
    #[must_use]
    pub const fn state(&self) -> &'static str {
        match self.ready {
            Some(true) => "ready",
            Some(false) => "failed",
            None => "pending",
        }
    }

    /// For people.
    #[must_use]
    pub fn described(&self) -> String {
        let message = self.message.as_ref().map_or_else(String::new, |message| format!(": {message}"));
        format!("Flux {}{message}", self.state())
    }
}

/// How many of how many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Count {
    /// Those that are ready.
    pub ready: usize,
    /// All.
    pub total: usize,
}

impl std::fmt::Display for Count {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.ready, self.total)
    }
}

/// A host of an edge cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HostRow {
    /// Cluster name.
    pub cluster: String,
    /// Host name.
    pub hostname: String,
    /// Whether Kubernetes finds it ready.
    pub ready: bool,
    /// `control-plane` or `worker`.
    pub role: &'static str,
    /// Processor architecture.
    pub architecture: String,
    /// Operating system.
    pub operating_system: String,
    /// Kubernetes version.
    pub kubernetes_version: String,
    /// Value of the taint that keeps ordinary workloads away.
    pub specialised: Option<String>,
    /// How it stands with the join service, and by which evidence; None: it did not join by attestation.
    pub joined: Option<String>,
}

/// A host that has proven its TPM to the join service of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoiningHostRow {
    /// Cluster name.
    pub cluster: String,
    /// Id of its device: its state disk, or that of its endorsement key while it has the state disk of another host.
    pub id: Uuid,
    /// UUID of the state disk that it has.
    pub disk: Uuid,
    /// The state disk is that of another host.
    pub has_foreign_disk: bool,
    /// Name that it has or wants; empty if it leaves that to the service.
    pub name: String,
    /// How far it is.
    #[serde(serialize_with = "as_text", deserialize_with = "of_text")]
    pub state: HostState,
    /// `worker` or `control-plane`.
    pub role: String,
    /// `tpm2`, or `simulated`, which proves nothing.
    pub variant: String,
    /// What it asked for last.
    pub kind: String,
    /// Stage of its last progress.
    pub stage: Option<String>,
    /// Name of the reason of its last refusal.
    pub verdict: Option<String>,
    /// The same for people.
    pub detail: Option<String>,
    /// Deviations that the policy lets pass.
    pub warnings: Option<String>,
    /// As in the policy's lists.
    pub endorsement_key: String,
    /// Revision of the policy that it was judged by.
    pub policy_revision: u64,
    /// PCRs of its last quote, hexadecimal, by index.
    #[serde(rename = "registers")]
    pub pcrs: BTreeMap<u8, String>,
    /// When it was first seen, UTC ms.
    pub first_seen: u64,
    /// When it was last judged, UTC ms.
    pub last_seen: u64,
}

impl JoiningHostRow {
    fn new(cluster: &str, id: Uuid, host: &JoinHost) -> Self {
        Self {
            cluster: cluster.to_owned(),
            id,
            disk: host.foreign_disk.unwrap_or(id),
            has_foreign_disk: host.foreign_disk.is_some(),
            name: host.name.clone(),
            state: host.state,
            role: host.role.clone(),
            variant: host.variant.clone(),
            kind: host.kind.clone(),
            stage: host.stage.clone(),
            verdict: host.verdict.clone(),
            detail: host.detail.clone(),
            warnings: host.warnings.clone(),
            endorsement_key: host.endorsement_key.clone(),
            policy_revision: host.policy_revision,
            pcrs: host.pcrs.clone().unwrap_or_default(),
            first_seen: host.first_seen,
            last_seen: host.last_seen,
        }
    }

    /// What people call it: its name, or its id as long as it has none.
    #[must_use]
    pub fn title(&self) -> String {
        if self.name.is_empty() { self.id.to_string() } else { self.name.clone() }
    }
}

fn as_text<S: serde::Serializer>(state: &HostState, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(state.as_str())
}

fn of_text<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<HostState, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map_err(|_| serde::de::Error::custom(format!("{text:?} is not a state of a host")))
}

/// A deployment: what is wanted, and what the edge says of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeploymentRow {
    /// UUID.
    pub uuid: Uuid,
    /// Name.
    pub name: String,
    /// Cluster name, or its UUID when there is no such cluster.
    pub cluster: String,
    /// Name of the chart template, or its UUID.
    pub chart: String,
    /// Host that it is pinned to.
    pub host: Option<String>,
    /// `refused` by the cluster manager, `sending`, `held` by the edge until an operator decides, [`REMOVING`], [`SUSPENDED`], or what the edge says: pending, applied, refused, failed, deleting.
    pub state: String,
    /// Ready as Flux says; None while it says nothing.
    pub ready: Option<bool>,
    /// Why it is in this state: of a refusal, a failure, or of what keeps it from being removed.
    pub reason: Option<String>,
    /// The reason, or else Flux' message.
    pub message: Option<String>,
    /// When the edge applied it, UTC ms.
    pub applied_at: Option<u64>,
    /// Version of the desired state that it was applied with.
    pub version: Option<u64>,
    /// By which people choose among deployments; `location` is that of its general information.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

impl DeploymentRow {
    /// Its status, for people.
    #[must_use]
    pub fn described(&self) -> String {
        let ready = self.ready.map_or("", |ready| if ready { ", ready" } else { ", not ready" });
        let message = self.fault().map_or_else(String::new, |text| format!(" ({text})"));
        format!("{}{ready}{message}", self.state)
    }

    /// What a person has to know: the reason, whatever runs meanwhile, else Flux' message unless all is well.
    #[must_use]
    pub fn fault(&self) -> Option<&str> {
        let message = self.message.as_deref().filter(|_| self.ready != Some(true));
        self.reason.as_deref().or(message)
    }

    /// No one wants it any more; its edge has not reported it gone.
    #[must_use]
    pub fn is_being_removed(&self) -> bool {
        self.state == REMOVING
    }
}

impl Fleet {
    /// Nothing received yet.
    ///
    /// # Errors
    /// The organisation makes no Sparkplug group; an [`Organisation`] always does.
    pub fn new(organisation: Organisation) -> Result<Self, NameError> {
        let central = organisation.central_group();
        let configdb = EdgeNodeDescriptor::parse(&central, address::CONFIGDB_NODE)?;
        let manager = EdgeNodeDescriptor::parse(&central, address::CLUSTER_MANAGER_NODE)?;
        let identity = EdgeNodeDescriptor::parse(&central, address::IDENTITY_NODE)?;
        Ok(Self {
            organisation,
            config: ConfigReplica::new(configdb),
            manager: ManagerReplica::new(manager),
            identity: IdentityReplica::new(identity),
            syncs: BTreeMap::new(),
            monitors: MonitorReplica::new(),
            joins: BTreeMap::new(),
            contested: BTreeMap::new(),
            disks: BTreeMap::new(),
            intents: Intents::default(),
            wall: 0,
        })
    }

    /// The time, UTC ms, by which silences end.
    pub const fn set_time(&mut self, wall: u64) {
        self.wall = wall;
    }

    /// The time as it was last given, UTC ms; 0: it never was.
    pub(crate) const fn wall(&self) -> u64 {
        self.wall
    }

    /// The organisation whose fleet it is.
    #[must_use]
    pub const fn organisation(&self) -> &Organisation {
        &self.organisation
    }

    /// Takes one event; returns what it changed in the ConfigDB.
    pub fn on_event(&mut self, event: &HostEvent) -> Vec<Change> {
        self.intents.begin(event, self.manager.node());
        let at = timestamp(event);
        if let Some(ReplicaChange::Device(device)) = self.manager.on_event(event)
            && let (Some((uuid, cluster)), Some(at)) = (self.manager.cluster_of(&device), at)
        {
            self.intents.on_acknowledged(uuid, cluster.desired.version, at);
        }
        self.identity.on_event(event);
        self.monitors.on_event(event);
        if let HostEvent::NodeData { node, metrics, .. } = event
            && metrics.iter().any(|metric| &*metric.name == DISK_ALERT)
        {
            self.note_disk(node, metrics);
        }
        if let HostEvent::NodeBirth { node, metrics, .. } = event {
            self.note_contest(node, metrics);
            self.note_disk(node, metrics);
            match node.edge_node.as_str() {
                address::SYNC_NODE => {
                    self.syncs.entry(node.clone()).or_insert_with(|| SyncReplica::new(node.clone()));
                }
                address::JOIN_NODE => {
                    self.joins.entry(node.clone()).or_insert_with(|| JoinReplica::new(node.clone()));
                }
                _ => {}
            }
        }
        match event.node() {
            // One of ten thousand is found, not asked for among them.
            Some(node) => {
                if let Some(join) = self.joins.get_mut(node) {
                    join.on_event(event);
                }
                if let Some(sync) = self.syncs.get_mut(node) {
                    follow(sync, event, at, &mut self.intents);
                }
            }
            None => {
                self.joins.values_mut().for_each(|join| drop(join.on_event(event)));
                self.syncs.values_mut().for_each(|sync| drop(sync.on_event(event)));
            }
        }
        // Of births that follow one another the timestamps say nothing of when an entry was written.
        let at = at.filter(|_| self.config.is_complete());
        self.config.on_event(event);
        let changes: Vec<Change> = std::iter::from_fn(|| self.config.poll_change()).collect();
        changes.iter().for_each(|change| self.intents.on_change(change, at));
        changes
    }

    /// When each step of an intent was reported.
    #[must_use]
    pub const fn intents(&self) -> &Intents {
        &self.intents
    }

    /// Takes over the times of intents that were recorded before this process began. `deployments`: the table of that name.
    pub fn recall_intents(&mut self, deployments: &Table) {
        self.intents.recall(deployments);
    }

    /// Highest revision among the entries that a deployment with this entry is made of; None: it has none.
    #[must_use]
    pub fn revision_of_deployment(&self, deployment: Uuid, entry: &EdgeDeployment) -> Option<u64> {
        let own = [EdgeDeployment::slug(), AgentConfig::slug()].map(|slug| self.config.entry(deployment, slug));
        let templates = entry.chart_templates().iter();
        let templates = templates.map(|chart| self.config.entry(*chart, HelmChartTemplate::slug()));
        own.into_iter().chain(templates).flatten().map(|entry| entry.revision).max()
    }

    fn note_disk(&mut self, node: &EdgeNodeDescriptor, metrics: &[Metric]) {
        let is_service = SINGLE_NODES.contains(&node.edge_node.as_str());
        let alert = metrics.iter().find(|metric| is_service && &*metric.name == DISK_ALERT);
        match alert.and_then(|metric| Some((metric.as_str()?, metric.timestamp?))) {
            Some((text, since)) => {
                let text = text.chars().take(DISK_ALERT_CHARS_MAX).collect();
                self.disks.insert(node.clone(), (text, since));
            }
            None => drop(self.disks.remove(node)),
        }
    }

    fn note_contest(&mut self, node: &EdgeNodeDescriptor, metrics: &[Metric]) {
        let is_service = SINGLE_NODES.contains(&node.edge_node.as_str());
        let contested = metrics.iter().find(|metric| is_service && &*metric.name == CONTESTED);
        match contested.and_then(|metric| Some((metric.as_str()?.to_owned(), metric.timestamp?))) {
            Some(contested) => drop(self.contested.insert(node.clone(), contested)),
            None => drop(self.contested.remove(node)),
        }
    }

    /// The Sync of the cluster of that name, if it was received.
    #[must_use]
    pub fn sync(&self, cluster: &str) -> Option<&SyncReplica> {
        let name = address::ClusterName::new(cluster).ok()?;
        let node = EdgeNodeDescriptor::parse(&self.organisation.cluster_group(&name), address::SYNC_NODE).ok()?;
        self.syncs.get(&node)
    }

    /// The Join node of the cluster of that name, if it was received.
    #[must_use]
    pub fn join(&self, cluster: &str) -> Option<&JoinReplica> {
        let name = address::ClusterName::new(cluster).ok()?;
        let node = EdgeNodeDescriptor::parse(&self.organisation.cluster_group(&name), address::JOIN_NODE).ok()?;
        self.joins.get(&node)
    }

    /// Hosts that have proven their TPM to a join service, of all clusters or of the one of that name; by cluster, name and state disk.
    #[must_use]
    pub fn joining_hosts(&self, cluster: Option<&str>) -> Vec<JoiningHostRow> {
        let counts = self.counts();
        let counted = self.joins.values().filter(|join| counts(join.address(), join.presence()));
        let wanted = counted.filter_map(|join| {
            let name = self.organisation.cluster_of_group(join.address().group.as_str())?;
            cluster.is_none_or(|wanted| wanted == name.as_str()).then_some((name, join))
        });
        let rows = wanted.flat_map(|(name, join)| {
            join.devices().iter().map(move |(id, host)| JoiningHostRow::new(name.as_str(), *id, host))
        });
        let mut rows: Vec<JoiningHostRow> = rows.collect();
        rows.sort_by(|a, b| (&a.cluster, &a.name, a.id).cmp(&(&b.cluster, &b.name, b.id)));
        rows
    }

    /// All `EdgeCluster` entries that can be read, by UUID.
    pub fn cluster_entries(&self) -> impl Iterator<Item = (Uuid, EdgeCluster)> {
        self.documents()
    }

    /// For people: whose births have not arrived, although their node is alive.
    #[must_use]
    pub fn missing_births(&self) -> Option<String> {
        let syncs = self.syncs.values().filter_map(SyncReplica::missing_births);
        let missing: Vec<String> =
            self.config.missing_births().into_iter().chain(syncs).take(MISSING_LISTED_MAX).collect();
        (!missing.is_empty()).then(|| {
            format!("{}; if they never do, the MQTT server may alter topics or drop messages", missing.join(", "))
        })
    }

    /// All `EdgeDeployment` entries that can be read, by UUID.
    pub fn deployment_entries(&self) -> impl Iterator<Item = (Uuid, EdgeDeployment)> {
        self.documents()
    }

    /// All `SealedSecret` entries that can be read, by UUID.
    pub fn secret_entries(&self) -> impl Iterator<Item = (Uuid, SealedSecret)> {
        self.documents()
    }

    /// All entries of an application that can be read as its type, by UUID; ConfigDB has checked each against its schema.
    fn documents<T: Document>(&self) -> impl Iterator<Item = (Uuid, T)> {
        self.config.entries(T::slug()).filter_map(|(uuid, entry)| Some((uuid, entry.parse().ok()?)))
    }

    /// Clusters: those of ConfigDB, those that the manager is still tearing down, and those that only their living edges know, by name.
    #[must_use]
    pub fn clusters(&self) -> Vec<ClusterRow> {
        let mut names: BTreeMap<Uuid, String> =
            self.manager.clusters().map(|(uuid, c)| (uuid, c.name.clone())).collect();
        names.extend(self.cluster_entries().map(|(uuid, entry)| (uuid, entry.name)));
        let alerts = self.alerts();
        let deployments = self.deployments();
        let mut counts: BTreeMap<&str, (usize, Count)> = BTreeMap::new();
        for cluster in alerts.iter().filter_map(|alert| alert.cluster.as_deref()) {
            counts.entry(cluster).or_default().0 += 1;
        }
        for row in deployments.iter().filter(|row| !row.is_being_removed()) {
            let count = &mut counts.entry(&row.cluster).or_default().1;
            count.ready += usize::from(row.ready == Some(true));
            count.total += 1;
        }
        let undesired = self.undesired().map(|(uuid, name, _)| (uuid, name));
        let mut rows: Vec<ClusterRow> =
            names.into_iter().chain(undesired).map(|(uuid, name)| self.cluster_row(uuid, name, &counts)).collect();
        rows.sort_by(|a, b| (&a.name, a.uuid).cmp(&(&b.name, b.uuid)));
        rows
    }

    /// Clusters whose living edge reports, while a ConfigDB that is known completely does not have them: it was started with a new store, or lost them. With the UUID that the edge
    /// knows, and its name.
    pub fn undesired(&self) -> impl Iterator<Item = (Uuid, String, &SyncReplica)> {
        let is_known = self.config.is_complete() && self.manager.is_complete();
        let mut names: BTreeSet<String> = self.manager.clusters().map(|(_, cluster)| cluster.name.clone()).collect();
        names.extend(self.cluster_entries().map(|(_, entry)| entry.name));
        self.syncs.values().filter(move |sync| is_known && sync.is_alive()).filter_map(move |sync| {
            let name = self.organisation.cluster_of_group(sync.address().group.as_str())?.as_str().to_owned();
            let uuid = sync.node()?.cluster_uuid;
            // An edge that says the UUID of another cluster is not that cluster.
            let is_taken = names.contains(&name) || self.config.object(uuid).is_some();
            (!is_taken).then_some((uuid, name, sync))
        })
    }

    /// The edge syncs of clusters that are there, and those that are alive.
    fn wanted_syncs(&self) -> impl Iterator<Item = &SyncReplica> {
        let counts = self.counts();
        self.syncs.values().filter(move |sync| counts(sync.address(), sync.presence()))
    }

    /// Whether what a node said last counts. Of a cluster that is gone the dead do not. Of one that was deleted, whose object ConfigDB still has, those do not either whose death
    /// may have been missed. A cluster whose object ConfigDB has never had may have lost its store, and its edge may be alive.
    pub(crate) fn counts(&self) -> impl Fn(&EdgeNodeDescriptor, Presence) -> bool {
        let is_gone = self.gone();
        let deleted = self.syncs.values().filter(|sync| {
            is_gone(sync.address()) && sync.node().is_some_and(|node| self.config.object(node.cluster_uuid).is_some())
        });
        let deleted: BTreeSet<GroupId> = deleted.map(|sync| sync.address().group.clone()).collect();
        move |node, presence| match presence {
            Presence::Alive => true,
            Presence::Stale => !deleted.contains(&node.group),
            Presence::Dead => !is_gone(node),
        }
    }

    /// Whether a node is of a cluster that neither ConfigDB nor the cluster manager has any more. What such a node said last is of no use once it is not alive.
    pub(crate) fn gone(&self) -> impl Fn(&EdgeNodeDescriptor) -> bool {
        let is_known = self.config.is_complete() && self.manager.is_complete();
        let names = self.manager.clusters().map(|(_, cluster)| cluster.name.clone());
        let names: BTreeSet<String> = names.chain(self.cluster_entries().map(|(_, entry)| entry.name)).collect();
        move |node| {
            let cluster = self.organisation.cluster_of_group(node.group.as_str());
            is_known && cluster.is_some_and(|name| !names.contains(name.as_str()))
        }
    }

    /// `counts`: by name of the cluster, its active alerts and its deployments.
    fn cluster_row(&self, uuid: Uuid, name: String, counts: &BTreeMap<&str, (usize, Count)>) -> ClusterRow {
        let managed = self.manager.cluster(uuid);
        let refused = managed.is_some_and(|cluster| cluster.setup.state == SetupState::Refused);
        let group = address::ClusterName::new(name.clone())
            .map(|name| self.organisation.cluster_group(&name))
            .unwrap_or_default();
        // A refused cluster has the name of another one: what is received under that name is not its own.
        let sync = if refused { None } else { self.sync(&name) };
        let monitor = EdgeNodeDescriptor::parse(&group, address::MONITOR_NODE).ok();
        let presence = monitor.and_then(|node| self.monitors.monitor(&node)).map(|view| view.presence());
        let (alerts, deployments) = counts.get(name.as_str()).filter(|_| !refused).copied().unwrap_or_default();
        let is_desired =
            managed.is_some() || self.config.entry(uuid, EdgeCluster::slug()).is_some() || !self.config.is_complete();
        let foreign = sync.filter(|_| !is_desired).and_then(SyncReplica::node);
        ClusterRow {
            uuid,
            setup: managed.map_or_else(
                || if is_desired { "unknown" } else { NOT_DESIRED }.to_owned(),
                |cluster| cluster.setup.state.to_string(),
            ),
            reason: managed
                .and_then(|cluster| cluster.setup.reason.clone().or_else(|| cluster.rollout.reason.clone()))
                .or_else(|| foreign.map(|_| UNDESIRED.to_owned()))
                .or_else(|| sync?.node()?.desired_error.clone()),
            held: match foreign {
                Some(node) => node.desired_hold_reason.clone().filter(|_| node.desired_held == Some(true)),
                None => managed.and_then(|cluster| cluster.held().map(str::to_owned)),
            },
            since: managed.map(|cluster| cluster.setup.since),
            seen: sync.is_some() || self.was_seen(uuid, managed),
            alive: sync.is_some_and(SyncReplica::is_alive),
            // The birth that answered this program's own request is younger than the edge's life.
            alive_since: managed
                .and_then(|cluster| cluster.sync_since)
                .or_else(|| sync.and_then(SyncReplica::alive_since)),
            unborn: !refused && sync.is_none() && managed.is_some_and(|cluster| cluster.sync_alive),
            monitored: presence == Some(Presence::Alive) && !refused,
            flux: sync.and_then(SyncReplica::node).map(|node| FluxRow {
                ready: node.source_ready,
                message: node.source_message.clone(),
                commit: node.source_applied.map(|commit| commit.to_string()),
            }),
            agreed: managed.is_some_and(|cluster| cluster.desired.agreed),
            hosts: match sync {
                Some(sync) => count(sync.devices().hosts.values().map(|host| host.ready)),
                None if refused => Count::default(),
                None => count(self.last_hosts(uuid).iter().map(|host| host.ready)),
            },
            deployments,
            alerts,
            simulated: sync.and_then(SyncReplica::node).is_some_and(|node| node.simulated),
            labels: self.labels_of(uuid),
            name,
            group,
        }
    }

    /// Whether the edge sync of a cluster was born at some time: the cluster manager has received it, or has written down what it reported.
    pub(crate) fn was_seen(&self, uuid: Uuid, managed: Option<&ClusterDevice>) -> bool {
        managed.is_some_and(|cluster| cluster.sync_since.is_some())
            || self.config.entry(uuid, EdgeClusterStatus::slug()).is_some()
    }

    /// Hosts that a cluster reported last, as the cluster manager has written them down.
    fn last_hosts(&self, cluster: Uuid) -> Vec<Host> {
        let status: Option<EdgeClusterStatus> = self.config.document(cluster).ok().flatten();
        status.and_then(|status| status.hosts).unwrap_or_default()
    }

    /// Hosts of clusters whose edge sync was not received: those of the last report.
    fn hosts_of_silent(&self, cluster: Option<&str>) -> Vec<HostRow> {
        let is_refused =
            |uuid| self.manager.cluster(uuid).is_some_and(|cluster| cluster.setup.state == SetupState::Refused);
        let silent = self.cluster_entries().filter(|(uuid, entry)| {
            let is_wanted = cluster.is_none_or(|wanted| wanted == entry.name);
            is_wanted && self.sync(&entry.name).is_none() && !is_refused(*uuid)
        });
        let rows = silent.flat_map(|(uuid, entry)| {
            self.last_hosts(uuid).into_iter().map(move |host| HostRow {
                joined: None,
                cluster: entry.name.clone(),
                hostname: host.hostname,
                ready: host.ready,
                role: role(host.control_plane),
                architecture: host.arch,
                operating_system: host.os_version,
                kubernetes_version: host.k8s_version,
                specialised: host.specialised,
            })
        });
        rows.collect()
    }

    /// Hosts of all clusters, or of the one of that name; those of the last report where edge sync was not received.
    #[must_use]
    pub fn hosts(&self, cluster: Option<&str>) -> Vec<HostRow> {
        let wanted = self.wanted_syncs().filter_map(|sync| {
            let name = self.organisation.cluster_of_group(sync.address().group.as_str())?;
            cluster.is_none_or(|wanted| wanted == name.as_str()).then_some((name, sync))
        });
        let joined = |cluster: &str, hostname: &str| {
            let join = self.join(cluster)?;
            let host =
                join.devices().values().filter(|host| host.name == hostname).max_by_key(|host| host.last_seen)?;
            Some(format!("{} ({})", host.state, host.variant))
        };
        wanted
            .flat_map(|(name, sync)| {
                sync.devices().hosts.values().map(move |host| HostRow {
                    joined: joined(name.as_str(), &host.hostname),
                    cluster: name.as_str().to_owned(),
                    hostname: host.hostname.clone(),
                    ready: host.ready,
                    role: role(host.control_plane),
                    architecture: host.architecture.clone(),
                    operating_system: host.operating_system.clone(),
                    kubernetes_version: host.kubernetes_version.clone(),
                    specialised: host.specialised.clone(),
                })
            })
            .chain(self.hosts_of_silent(cluster))
            .collect()
    }

    /// Deployments by cluster and name: those that are wanted, and those that are still being removed.
    #[must_use]
    pub fn deployments(&self) -> Vec<DeploymentRow> {
        let clusters: BTreeMap<Uuid, String> = self.cluster_entries().map(|(uuid, entry)| (uuid, entry.name)).collect();
        let mut rows: Vec<DeploymentRow> =
            self.deployment_entries().map(|(uuid, entry)| self.deployment_row(uuid, entry, &clusters)).collect();
        rows.extend(self.removing(&rows));
        rows.sort_by(|a, b| (&a.cluster, &a.name, a.uuid).cmp(&(&b.cluster, &b.name, b.uuid)));
        rows
    }

    /// Deployments that an edge reports and that are not wanted there. While the edge holds what it is sent, nothing of it is removed.
    fn removing(&self, wanted: &[DeploymentRow]) -> Vec<DeploymentRow> {
        let mut rows = Vec::new();
        let undesired: BTreeSet<String> = self.undesired().map(|(_, name, _)| name).collect();
        let wanted: BTreeSet<(&str, Uuid)> = wanted.iter().map(|row| (row.cluster.as_str(), row.uuid)).collect();
        for sync in self.wanted_syncs() {
            let Some(cluster) = self.organisation.cluster_of_group(sync.address().group.as_str()) else { continue };
            let is_wanted = |uuid: &Uuid| wanted.contains(&(cluster.as_str(), *uuid));
            let held = sync.node().filter(|node| node.desired_held == Some(true));
            let held = held.map(|node| {
                let reason = node.desired_hold_reason.as_deref().unwrap_or_default();
                format!("ConfigDB does not have it, and the edge keeps it until an operator decides: {reason}")
            });
            // No one removes anything of a cluster that no one manages.
            let kept =
                || "ConfigDB does not have its cluster, and the edge keeps it until an operator decides".to_owned();
            let held = held.or_else(|| undesired.contains(cluster.as_str()).then(kept));
            for (uuid, device) in sync.devices().deployments.iter().filter(|(uuid, _)| !is_wanted(uuid)) {
                let name = if device.name.is_empty() { uuid.to_string() } else { device.name.clone() };
                rows.push(DeploymentRow {
                    uuid: *uuid,
                    name,
                    cluster: cluster.as_str().to_owned(),
                    chart: String::new(),
                    host: None,
                    state: held.as_ref().map_or(REMOVING, |_| HELD).to_owned(),
                    ready: device.ready,
                    reason: held.clone().or_else(|| device.reason.clone()),
                    message: message_of(device),
                    applied_at: device.applied_at,
                    version: Some(device.version),
                    labels: BTreeMap::new(),
                });
            }
        }
        rows
    }

    fn deployment_row(&self, uuid: Uuid, entry: EdgeDeployment, clusters: &BTreeMap<Uuid, String>) -> DeploymentRow {
        let cluster = clusters.get(&entry.cluster);
        let refused = self.manager.cluster(entry.cluster).and_then(|c| c.deployments_refused.0.get(&uuid));
        let device = cluster.and_then(|name| self.sync(name)).and_then(|sync| sync.devices().deployments.get(&uuid));
        let (state, reason) = match (refused, device) {
            (Some(reason), _) => ("refused".to_owned(), Some(reason.clone())),
            (None, Some(device)) if device.suspended && device.state == DeploymentState::Applied => match entry.suspend
            {
                true => (SUSPENDED.to_owned(), device.reason.clone()),
                false => (device.state.to_string(), Some(SUSPENDED_AT_EDGE.to_owned())),
            },
            (None, Some(device)) => (device.state.to_string(), device.reason.clone()),
            (None, None) if cluster.is_none() => {
                ("refused".to_owned(), Some(format!("there is no cluster {}", entry.cluster)))
            }
            (None, None) => {
                match self.manager.cluster(entry.cluster).and_then(|cluster| cluster.desired.held.clone()) {
                    Some(held) => (HELD.to_owned(), Some(held)),
                    None => ("sending".to_owned(), None),
                }
            }
        };
        DeploymentRow {
            uuid,
            cluster: cluster.cloned().unwrap_or_else(|| entry.cluster.to_string()),
            chart: entry.chart_templates().first().map_or_else(String::new, |chart| self.name_of(*chart)),
            host: entry.hostname.clone(),
            state,
            ready: device.and_then(|device| device.ready),
            message: reason.clone().or_else(|| device.and_then(message_of)),
            reason,
            applied_at: device.and_then(|device| device.applied_at),
            version: device.map(|device| device.version),
            labels: self.labels_of(uuid),
            name: entry.name,
        }
    }

    /// Labels of an object, and its location as one.
    #[must_use]
    pub fn labels_of(&self, object: Uuid) -> BTreeMap<String, String> {
        let entry = self.config.entry(object, Info::slug());
        // Most objects have neither, and all of them are looked at whenever rows are made.
        let entry = entry.filter(|entry| entry.json.contains("\"labels\"") || entry.json.contains("\"location\""));
        let Some(info) = entry.and_then(|entry| entry.parse::<Info>().ok()) else { return BTreeMap::new() };
        let location = info.location.map(|location| ("location".to_owned(), location));
        location.into_iter().chain(info.labels).collect()
    }

    /// Name of an object as its Info says, else its UUID.
    #[must_use]
    pub fn name_of(&self, object: Uuid) -> String {
        let info: Option<Info> = self.config.document(object).ok().flatten();
        info.map_or_else(|| object.to_string(), |info| info.name)
    }

    /// Names of all objects that have one, deleted ones left out.
    pub fn object_names(&self) -> impl Iterator<Item = String> {
        self.documents::<Info>().filter(|(uuid, _)| self.is_live(*uuid)).map(|(_, info)| info.name)
    }

    /// Whether the object is not marked deleted.
    fn is_live(&self, object: Uuid) -> bool {
        let registration = self.config.object(object).and_then(|object| object.registration.as_ref());
        registration.is_none_or(|registration| !registration.deleted)
    }

    /// Objects whose Info has that name, deleted ones left out.
    pub fn named(&self, name: &str) -> impl Iterator<Item = Uuid> {
        let named = self.documents::<Info>().filter(move |(_, info)| info.name == name).map(|(uuid, _)| uuid);
        named.filter(|uuid| self.is_live(*uuid))
    }

    /// How many edge monitors are alive and have published all that they watch; the central one does not count.
    #[must_use]
    pub fn edge_monitors_complete(&self) -> usize {
        let central = self.organisation.central_group();
        let edge = self.monitors.monitors().filter(|(node, _)| node.group.as_str() != central);
        edge.filter(|(_, view)| is_complete(view)).count()
    }

    /// Whether the central monitor is alive and has published all that it watches.
    #[must_use]
    pub fn is_central_monitor_complete(&self) -> bool {
        self.central_monitor().is_some_and(is_complete)
    }

    /// Names of the clusters whose monitor is online, as the central monitor reports: also of those whose edge sync is away.
    #[must_use]
    pub fn edge_monitors_online(&self) -> BTreeSet<String> {
        let central = self.central_monitor().filter(|view| view.presence() == Presence::Alive);
        let devices = central.into_iter().flat_map(MonitorView::devices);
        let online = devices.filter(|(_, device)| device.state == NodeState::Online);
        let cluster = |id: &DeviceId| self.organisation.cluster_of_group(id.as_str());
        online.filter_map(|(id, _)| Some(cluster(id)?.as_str().to_owned())).collect()
    }
}

/// How many there are, and are ready.
fn count(hosts: impl Iterator<Item = bool>) -> Count {
    hosts.fold(Count::default(), |count, ready| Count {
        ready: count.ready + usize::from(ready),
        total: count.total + 1,
    })
}

/// `control-plane` or `worker`.
pub(crate) const fn role(control_plane: bool) -> &'static str {
    if control_plane { "control-plane" } else { "worker" }
}

/// Whether a monitor is alive, and as many nodes are known as its birth counts.
fn is_complete(view: &MonitorView) -> bool {
    let total = view.node().map_or(0, |node| node.nodes_total);
    view.presence() == Presence::Alive && view.devices().count() >= usize::try_from(total).unwrap_or(usize::MAX)
}

/// Takes an event of a Sync, and notes what it says of intents.
fn follow(sync: &mut SyncReplica, event: &HostEvent, at: Option<u64>, intents: &mut Intents) {
    let dead = match event {
        HostEvent::DeviceDeath { device, .. } => sync.devices().deployment(device),
        _ => None,
    };
    let (change, Some(at)) = (sync.on_event(event), at) else { return };
    match change {
        Some(ReplicaChange::Born | ReplicaChange::Node) => {
            if let Some(node) = sync.node() {
                intents.on_received(sync.address(), node, at);
            }
        }
        Some(ReplicaChange::Device(SyncDevice::Deployment(device))) => {
            let Some(uuid) = sync.devices().deployment(&device).or(dead) else { return };
            let device = sync.devices().deployments.get(&uuid);
            intents.on_deployment(sync.address(), uuid, device, at);
        }
        _ => {}
    }
}

/// UTC ms, of the payload of a message that has data or births.
const fn timestamp(event: &HostEvent) -> Option<u64> {
    match event {
        HostEvent::NodeBirth { timestamp, .. }
        | HostEvent::NodeData { timestamp, .. }
        | HostEvent::DeviceBirth { timestamp, .. }
        | HostEvent::DeviceData { timestamp, .. }
        | HostEvent::DeviceDeath { timestamp, .. } => Some(*timestamp),
        _ => None,
    }
}

fn message_of(device: &DeploymentDevice) -> Option<String> {
    device.reason.clone().or_else(|| device.message.clone())
}

#[cfg(test)]
mod tests;
