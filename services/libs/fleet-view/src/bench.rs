//! A fleet in miniature for tests: the births and deaths that a Host Application would report.
#![allow(clippy::unwrap_used, reason = "test code: what cannot be built is a wrong test")]

use std::collections::BTreeMap;

use cluster_manager_contract::{ClusterDevice, NodeMetrics, SetupState};
use configdb_contract::{Entry, WriteRequest, entry, names};
use configdb_schema::address::{self, ClusterName, Organisation};
use configdb_schema::application::{MEMBERSHIP_SLUG, REGISTRATION_SLUG};
use configdb_schema::document::{EdgeCluster, EdgeDeployment, Membership, Registration};
use configdb_schema::{Application, Document};
use edge_monitor_contract::{Alert, MonitorNode, MonitoredNodeDevice, NodeState, identity};
use edge_sync_contract::names::SyncDevice;
use edge_sync_contract::{DeploymentDevice, DeploymentState, HostDevice, SyncNode};
use identity_contract::IdentityNode;
use join_service_contract::{JoinHost, JoinNode};
use sparkplug::host::HostEvent;
use sparkplug::{BdSeq, DeviceId, EdgeNodeDescriptor, Metric, TypedMetrics};
use uuid::Uuid;

use crate::Fleet;

/// UUID of the cluster.
pub const CLUSTER: Uuid = Uuid::from_u128(0xC);
/// Its name.
pub const NAME: &str = "Paint_Shop";

/// See the module.
#[derive(Debug)]
pub struct Bench {
    /// What was made of it.
    pub fleet: Fleet,
    /// Everything that was published, in order, for tests that have a fleet of their own.
    pub events: Vec<HostEvent>,
    objects: BTreeMap<Uuid, Vec<Metric>>,
    clusters: BTreeMap<Uuid, ClusterDevice>,
    revision: u64,
    revocations_alert: Option<String>,
    manager: NodeMetrics,
}

impl Default for Bench {
    fn default() -> Self {
        Self::new()
    }
}

impl Bench {
    /// ConfigDB and cluster manager are alive; there is no cluster.
    #[must_use]
    pub fn new() -> Self {
        let fleet = Fleet::new(Organisation::new("ACME").unwrap()).unwrap();
        let mut bench = Self {
            fleet,
            events: Vec::new(),
            objects: BTreeMap::new(),
            clusters: BTreeMap::new(),
            revision: 1,
            revocations_alert: None,
            manager: NodeMetrics::default(),
        };
        bench.publish();
        bench
    }

    /// The same with one cluster that is set up and alive, with host `paint-1`, and with both monitors.
    #[must_use]
    pub fn with_cluster() -> Self {
        let mut bench = Self::new();
        bench.cluster(CLUSTER, NAME, |_| {});
        bench.sync(NAME, &SyncNode { source_ready: Some(true), ..SyncNode::default() }, &[]);
        bench.monitor(NAME, &[]);
        bench.central_monitor(&[]);
        bench
    }

    /// Writes an entry.
    pub fn entry<T: Document>(&mut self, object: Uuid, document: &T) {
        self.write(object, T::application(), serde_json::to_string(document).unwrap());
    }

    /// Writes the JSON Schema of an application.
    pub fn schema(&mut self, application: Uuid, schema: &serde_json::Value) {
        self.write(application, &configdb_schema::application::CONFIG_SCHEMA, schema.to_string());
    }

    /// Writes an entry with a revision that is higher than all before.
    pub fn entry_of_revision<T: Document>(&mut self, object: Uuid, document: &T, revision: u64) {
        self.revision = revision - 1;
        self.entry(object, document);
    }

    /// ConfigDB carries out a request: every entry of it is written or deleted.
    pub fn apply(&mut self, request: &WriteRequest) {
        for (slug, value) in &request.entries {
            let application = configdb_schema::application::by_slug(slug).unwrap();
            match value {
                Some(value) => self.write(request.object, application, value.to_string()),
                None => {
                    let metrics = self.objects.entry(request.object).or_default();
                    metrics.retain(|known| &*known.name != slug.as_str());
                    self.publish();
                }
            }
        }
    }

    fn write(&mut self, object: Uuid, application: &Application, json: String) {
        self.revision += 1;
        let entry = Entry {
            application: application.uuid,
            json: json.into(),
            etag: Uuid::from_u128(self.revision.into()),
            revision: self.revision,
        };
        let metric = entry::to_metric(&application.slug.into(), entry.application, Some(&entry));
        let metrics = self.objects.entry(object).or_default();
        metrics.retain(|known| known.name != metric.name);
        metrics.push(metric);
        self.publish();
    }

    /// Takes an object away.
    pub fn forget(&mut self, object: Uuid) {
        self.objects.remove(&object);
        self.publish();
    }

    /// Takes a cluster away, of ConfigDB and of the cluster manager.
    pub fn remove(&mut self, cluster: Uuid) {
        self.clusters.remove(&cluster);
        self.forget(cluster);
    }

    /// What Identity says of revocation lists.
    pub fn revocations(&mut self, alert: Option<&str>) {
        self.revocations_alert = alert.map(str::to_owned);
        self.publish();
    }

    /// The manager is born again with these metrics, beside those that it has here always.
    pub fn manager(&mut self, metrics: &NodeMetrics) {
        self.manager = metrics.clone();
        self.publish();
    }

    /// The manager says whether the git server is alive.
    pub fn git_server(&mut self, alive: bool) {
        let metrics = vec![Metric::new(cluster_manager_contract::names::GIT_ALIVE, alive)];
        let node = central(address::CLUSTER_MANAGER_NODE);
        self.publish_event(HostEvent::NodeData { node, timestamp: 2, metrics });
    }

    /// The manager says that this cluster's edge is alive, and that ConfigDB does not have it; None: that there is none.
    pub fn unknown_cluster(&mut self, cluster: Option<(&str, Uuid)>) {
        let unknown = cluster.map(|(name, uuid)| (name.to_owned(), uuid));
        let clusters_unknown = unknown.into_iter().collect();
        let now = NodeMetrics { clusters_unknown, ..NodeMetrics::default() };
        let clusters_unknown = [(String::new(), Uuid::nil())].into();
        self.manager_reports(&now, &NodeMetrics { clusters_unknown, ..NodeMetrics::default() });
    }

    /// The manager says why the git server has not everything of this repository; None: it has everything of each.
    pub fn repository_not_served(&mut self, repository: Option<(&str, &str)>) {
        let now = repository.map(|(path, reason)| (path.to_owned(), reason.to_owned()));
        let now = NodeMetrics { repositories_not_served: now.into_iter().collect(), ..NodeMetrics::default() };
        let repositories_not_served = [(String::new(), String::new())].into();
        self.manager_reports(&now, &NodeMetrics { repositories_not_served, ..NodeMetrics::default() });
    }

    fn manager_reports(&mut self, now: &NodeMetrics, before: &NodeMetrics) {
        let node = central(address::CLUSTER_MANAGER_NODE);
        self.publish_event(HostEvent::NodeData { node, timestamp: 2, metrics: now.changes_since(before) });
    }

    /// A cluster that is set up, as the manager reports it.
    pub fn cluster(&mut self, uuid: Uuid, name: &str, change: impl FnOnce(&mut ClusterDevice)) {
        let entry = EdgeCluster { name: name.to_owned(), namespace: "fplus-edge".to_owned(), ..EdgeCluster::default() };
        if !self.objects.contains_key(&uuid) {
            self.entry(uuid, &entry);
        }
        let mut device = ClusterDevice {
            name: name.to_owned(),
            group: format!("ACME-{name}"),
            namespace: "fplus-edge".to_owned(),
            ..ClusterDevice::default()
        };
        device.setup.state = SetupState::Ready;
        device.desired.agreed = true;
        change(&mut device);
        self.clusters.insert(uuid, device);
        self.publish();
    }

    /// A deployment that is wanted on [`CLUSTER`].
    pub fn deployment(&mut self, uuid: Uuid, name: &str, host: Option<&str>) {
        let entry = EdgeDeployment {
            cluster: CLUSTER,
            name: name.to_owned(),
            hostname: host.map(str::to_owned),
            ..EdgeDeployment::default()
        };
        self.entry(uuid, &entry);
    }

    /// Sync of a cluster is born with host `paint-1` and these deployments.
    pub fn sync(&mut self, name: &str, node: &SyncNode, deployments: &[(Uuid, DeploymentDevice)]) {
        let address = at(name, address::SYNC_NODE);
        let count = u32::try_from(deployments.len()).unwrap();
        let node = SyncNode { hosts_total: 1, hosts_ready: 1, deployments_total: count, ..node.clone() };
        self.born(&address, node.to_metrics());
        let host = HostDevice { hostname: "paint-1".to_owned(), ready: true, ..HostDevice::default() };
        self.device(&address, SyncDevice::Host(host.hostname.clone()).id().unwrap(), host.to_metrics());
        for (uuid, device) in deployments {
            let device = DeploymentDevice { uuid: *uuid, ..device.clone() };
            self.device(&address, SyncDevice::deployment_id(*uuid, &device.name), device.to_metrics());
        }
    }

    /// The edge sync of a cluster is born with more metrics than its own.
    pub fn sync_with(&mut self, name: &str, node: &SyncNode, more: &[Metric]) {
        self.born(&at(name, address::SYNC_NODE), [&node.to_metrics(), more].concat());
    }

    /// The monitor of a cluster is born; each of these nodes is offline.
    pub fn monitor(&mut self, name: &str, offline: &[&str]) {
        self.monitor_at(&at(name, address::MONITOR_NODE), offline);
    }

    /// The central monitor is born; the monitors of these groups are offline.
    pub fn central_monitor(&mut self, offline: &[&str]) {
        self.monitor_at(&central(address::MONITOR_NODE), offline);
    }

    /// The central monitor is born; the monitors of these groups are in these states.
    pub fn central_monitor_of(&mut self, groups: &[(&str, NodeState)]) {
        let address = central(address::MONITOR_NODE);
        let nodes_total = u32::try_from(groups.len()).unwrap();
        self.born(&address, MonitorNode { nodes_total, ..MonitorNode::default() }.to_metrics());
        for (n, (group, state)) in groups.iter().enumerate() {
            let uuid = Uuid::from_u128(n as u128 + 1);
            let device = MonitoredNodeDevice {
                identity: identity::device(uuid),
                node: Some(uuid),
                state: *state,
                ..MonitoredNodeDevice::default()
            };
            self.device(&address, DeviceId::new(*group).unwrap(), device.to_metrics());
        }
    }

    /// The join service of a cluster is born with these hosts, by the ids of their devices.
    pub fn join(&mut self, name: &str, hosts: &[(Uuid, JoinHost)]) {
        let address = at(name, address::JOIN_NODE);
        let hosts_total = u32::try_from(hosts.len()).unwrap();
        self.born(&address, JoinNode { hosts_total, ..JoinNode::default() }.to_metrics());
        for (id, host) in hosts {
            self.device(&address, join_service_contract::host_device(*id), host.to_metrics());
        }
    }

    /// ConfigDB publishes an entry that was written with revision `revision`, `at` UTC ms.
    pub fn written<T: Document>(&mut self, object: Uuid, document: &T, revision: u64, at: u64) {
        let application = T::application();
        let entry = Entry {
            application: application.uuid,
            json: serde_json::to_string(document).unwrap().into(),
            etag: Uuid::from_u128(revision.into()),
            revision,
        };
        let metrics = vec![entry::to_metric(&application.slug.into(), application.uuid, Some(&entry))];
        let device = configdb_contract::command::device_id(object);
        self.data(&central(address::CONFIGDB_NODE), Some(device), metrics, at);
    }

    /// The cluster manager publishes metrics of a cluster, `at` UTC ms.
    pub fn managed(&mut self, cluster: Uuid, metrics: Vec<Metric>, at: u64) {
        let device = cluster_manager_contract::names::unnamed_device(cluster);
        self.data(&central(address::CLUSTER_MANAGER_NODE), Some(device), metrics, at);
    }

    /// Sync of a cluster publishes metrics of a deployment, or its own, `at` UTC ms.
    pub fn reports(&mut self, name: &str, deployment: Option<Uuid>, metrics: Vec<Metric>, at: u64) {
        let device = |uuid: Uuid| {
            let known = self.fleet.sync(name).and_then(|sync| sync.devices().device_of(uuid)).cloned();
            known.unwrap_or_else(|| SyncDevice::unnamed_deployment(uuid))
        };
        self.data(&self::at(name, address::SYNC_NODE), deployment.map(device), metrics, at);
    }

    fn data(&mut self, node: &EdgeNodeDescriptor, device: Option<DeviceId>, metrics: Vec<Metric>, timestamp: u64) {
        let node = node.clone();
        self.publish_event(match device {
            Some(device) => HostEvent::DeviceData { node, device, timestamp, metrics },
            None => HostEvent::NodeData { node, timestamp, metrics },
        });
    }

    /// Something that a node of a cluster published is missed.
    pub fn misses(&mut self, name: &str, node: &str) {
        self.publish_event(HostEvent::NodeStale { node: at(name, node), reason: "a gap".to_owned() });
    }

    /// A node of a cluster dies.
    pub fn dies(&mut self, name: &str, node: &str) {
        self.publish_event(HostEvent::NodeDeath { node: at(name, node), timestamp: 9 });
    }

    fn monitor_at(&mut self, address: &EdgeNodeDescriptor, offline: &[&str]) {
        let node = MonitorNode { version: "1.2.3".to_owned(), ..MonitorNode::default() };
        self.born(address, node.to_metrics());
        for (n, id) in offline.iter().enumerate() {
            let uuid = Uuid::from_u128(n as u128 + 1);
            let device = MonitoredNodeDevice {
                identity: identity::device(uuid),
                node: Some(uuid),
                state: NodeState::Offline,
                since: 5,
                offline: Alert { active: true, since: 5 },
                ..MonitoredNodeDevice::default()
            };
            self.device(address, DeviceId::new(*id).unwrap(), device.to_metrics());
        }
    }

    /// ConfigDB and the cluster manager are born again with all that they have.
    fn publish(&mut self) {
        self.revision += 1;
        let config = central(address::CONFIGDB_NODE);
        let metrics = vec![
            Metric::new(names::CONFIG_STORE, Uuid::from_u128(5).to_string()),
            Metric::new(names::CONFIG_TIMELINES, "00000000000000aa/0"),
            Metric::new(names::CONFIG_REVISION, self.revision),
            Metric::new(names::CONFIG_MESSAGE_BYTES_MAX, 262_144_u64),
            Metric::new(names::CONFIG_OBJECTS, self.objects.len() as u64),
            Metric::string(names::REQUEST_RESULT, None),
        ];
        self.born(&config, metrics);
        for (uuid, entries) in self.objects.clone() {
            let class = Uuid::from_u128(0xAA);
            let registration = Registration { uuid, rank: 0, class, owner: class, deleted: false, strict: true };
            let membership = Membership { member_of: [class].into(), ..Membership::default() };
            let mut metrics = vec![
                Metric::new(REGISTRATION_SLUG, serde_json::to_string(&registration).unwrap()),
                Metric::new(MEMBERSHIP_SLUG, serde_json::to_string(&membership).unwrap()),
            ];
            metrics.extend(entries);
            self.device(&config, configdb_contract::command::device_id(uuid), metrics);
        }
        let manager = central(address::CLUSTER_MANAGER_NODE);
        let clusters_total = u32::try_from(self.clusters.len()).unwrap();
        let node = NodeMetrics {
            clusters_total,
            version: "1.2.3".to_owned(),
            git_alive: Some(true),
            git_version: Some("1.2.3".to_owned()),
            ..self.manager.clone()
        };
        self.born(&manager, node.to_metrics());
        let identity = IdentityNode {
            version: "1.2.3".to_owned(),
            revocations_alert: self.revocations_alert.clone(),
            ..IdentityNode::default()
        };
        self.born(&central(address::IDENTITY_NODE), identity.to_metrics());
        for (uuid, device) in self.clusters.clone() {
            let device = ClusterDevice { uuid, ..device };
            let id = cluster_manager_contract::names::unnamed_device(uuid);
            self.device(&manager, id, device.to_metrics());
        }
    }

    fn publish_event(&mut self, event: HostEvent) {
        self.fleet.on_event(&event);
        self.events.push(event);
    }

    fn born(&mut self, node: &EdgeNodeDescriptor, metrics: Vec<Metric>) {
        let birth = HostEvent::NodeBirth {
            node: node.clone(),
            bd_seq: BdSeq::ZERO,
            timestamp: 1,
            uuid: None,
            metrics: metrics.into(),
        };
        self.publish_event(birth);
    }

    fn device(&mut self, node: &EdgeNodeDescriptor, device: DeviceId, metrics: Vec<Metric>) {
        let birth = HostEvent::DeviceBirth { node: node.clone(), device, timestamp: 1, metrics: metrics.into() };
        self.publish_event(birth);
    }
}

/// A deployment as its edge reports it.
#[must_use]
pub fn reported(name: &str, state: DeploymentState, ready: Option<bool>) -> DeploymentDevice {
    DeploymentDevice { name: name.to_owned(), state, ready, version: 1, ..DeploymentDevice::default() }
}

fn at(cluster: &str, node: &str) -> EdgeNodeDescriptor {
    let organisation = Organisation::new("ACME").unwrap();
    EdgeNodeDescriptor::parse(&organisation.cluster_group(&ClusterName::new(cluster).unwrap()), node).unwrap()
}

fn central(node: &str) -> EdgeNodeDescriptor {
    EdgeNodeDescriptor::parse(&Organisation::new("ACME").unwrap().central_group(), node).unwrap()
}
