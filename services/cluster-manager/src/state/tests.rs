//! The whole state against a ConfigDB, a disk and Syncs that live in this file, with the manager killed wherever it can be.

use std::collections::BTreeMap;

use cluster_manager_contract::{ClusterDevice, SealedLogin, SetupStep};
use configdb_contract::command::{device_id, object_of};
use configdb_contract::result::{Outcome, RequestResult};
use configdb_contract::{Command, Mode, RegistrationChange, WriteRequest, entry};
use configdb_schema::application::{MEMBERSHIP_SLUG, REGISTRATION_SLUG};
use configdb_schema::document::{Membership, Registration};
use configdb_schema::{APPLICATIONS, known};
use edge_sync_contract::{
    DeploymentDevice, DeploymentState, DesiredIndex, Digest, HostDevice, SyncCommand, SyncDevice, SyncNode,
};
use serde_json::{Value, json};
use sparkplug::replication::{DesiredReceiver, Outcome as Judgement, Timelines};
use sparkplug::{BdSeq, DeviceId, EdgeNodeDescriptor, TypedMetrics};
use std::sync::Arc;

mod accounts;
mod git_copies;
mod git_users;
mod logins;
mod policy;
mod principals;
mod recovery;
mod repositories;
mod rollout;
mod secrets;
mod shared_repositories;

use super::*;
use crate::bootstrap::{BootstrapGrant, OfferedToken};
use crate::event::{GitAction, GitOutcome, GitResult, GitWork, LoginResult, PrincipalsResult, PrincipalsWork};
use crate::git_address::GitAddress;
use crate::wanted_by::WantedBy;
use access::rate::Rate;
use git_hosting::repositories::RepositoryFiles;

const CLUSTER: Uuid = Uuid::from_u128(0xC1);
const OTHER: Uuid = Uuid::from_u128(0xC2);
const DEPLOYMENT: Uuid = Uuid::from_u128(0xD1);
const STORE: Uuid = Uuid::from_u128(0x57);

fn organisation() -> Organisation {
    Organisation::new("ACME").unwrap()
}

const CHARTS: &str = "c0ffee0000000000000000000000000000000000";

fn settings() -> Settings {
    let git = GitAddress { own: "http://git".to_owned(), external: None };
    Settings {
        organisation: organisation(),
        version: "0".to_owned(),
        cluster: cluster_repo::Settings {
            organisation: "ACME".to_owned(),
            git: git.clone(),
            mqtt_servers: vec!["mqtt://broker:1883".to_owned()],
            mqtt_secret: None,
            quarantine: None,
            realm: Some("ACME.EXAMPLE".to_owned()),
        },
        scripts_url: "http://api".to_owned(),
        git_key: "KEY".to_owned(),
        is_git_fixed: true,
        awaits_git: false,
        deployment: render::Settings { git, base_values: serde_json::Map::new(), manifests_bytes_max: 100_000 },
        away: Duration::from_secs(30),
        flux_away: Duration::from_secs(300),
        rate: Rate::per_minute(300),
        retry: (Duration::from_secs(1), Duration::from_secs(60)),
        realm: Some("ACME.EXAMPLE".to_owned()),
        charts_commit: Some(CHARTS.to_owned()),
        charts: Some(["edge-cluster".to_owned()].into()),
        charts_written: false,
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
struct Object {
    class: Uuid,
    member_of: BTreeSet<Uuid>,
    entries: BTreeMap<String, entry_of::Entry>,
}

/// Entries compare by their JSON: ETags and revisions differ between runs.
mod entry_of {
    #[derive(Debug, Clone)]
    pub(super) struct Entry(pub configdb_contract::Entry);
    impl PartialEq for Entry {
        fn eq(&self, other: &Self) -> bool {
            let value = |entry: &Self| entry.0.value().unwrap();
            value(self) == value(other)
        }
    }
}

#[derive(Debug, Clone)]
struct ConfigDb {
    store: Uuid,
    timelines: Timelines,
    objects: BTreeMap<Uuid, Object>,
    revision: u64,
    etags: u128,
    answered: BTreeMap<String, RequestResult>,
    refuse: Option<&'static str>,
}

impl ConfigDb {
    fn new() -> Self {
        let mut timelines = Timelines::default();
        timelines.begin(1, 0);
        let mut db = Self {
            store: STORE,
            timelines,
            objects: BTreeMap::new(),
            revision: 10,
            etags: 0,
            answered: BTreeMap::new(),
            refuse: None,
        };
        let chart = json!({"chart": "edge-cluster", "values": {"cluster": {"name": "{{name}}", "uuid": "{{uuid}}"}}});
        db.put(known::chart::CLUSTER, "HelmChartTemplate", chart);
        let agent = json!({"chart": "edge-agent", "values": {"name": "{{name}}", "uuid": "{{uuid}}", "hostname": "{{hostname}}"}});
        db.put(known::chart::EDGE_AGENT, "HelmChartTemplate", agent);
        let release = json!({"resources": [], "template": {"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease",
            "metadata": {"name": "{{name}}"}, "spec": {"chart": "{{chart}}", "values": "{{values}}"}}});
        db.put(known::class::KIND_HELM_RELEASE, "K8sTemplate", release);
        let flux = json!({"self-link.yaml": [{"apiVersion": "v1", "kind": "GitRepository",
            "metadata": {"name": "self-link"}, "spec": {"url": "{{url.self}}"}}], "edge-cluster.yaml": ["{{helm}}"]});
        db.put(known::application::FLUX_TEMPLATE, "FluxTemplate", flux);
        db
    }

    fn put(&mut self, object: Uuid, slug: &str, value: Value) -> Vec<HostEvent> {
        self.write(&WriteRequest::put("", object).create_object(known::class::DEVICE, None).entry(slug, value))
    }

    fn delete(&mut self, object: Uuid, slug: &str) -> Vec<HostEvent> {
        self.write(&WriteRequest::put("", object).delete(slug))
    }

    fn json(&self, object: Uuid, slug: &str) -> Option<Value> {
        Some(self.objects.get(&object)?.entries.get(slug)?.0.value().unwrap())
    }

    fn write(&mut self, request: &WriteRequest) -> Vec<HostEvent> {
        let node = configdb_node(&organisation());
        let device = device_id(request.object);
        if let Some(result) = self.answered.get(&request.id).filter(|_| !request.id.is_empty()) {
            return vec![self.node_data(Some(result))];
        }
        let mismatch = request.if_match.iter().any(|(slug, etag)| {
            let found = self.objects.get(&request.object).and_then(|object| object.entries.get(slug));
            found.map(|entry| entry.0.etag) != *etag
        });
        let creates = matches!(request.registration, Some(RegistrationChange::Register { .. }));
        let missing = !self.objects.contains_key(&request.object) && !creates;
        let refused = !request.id.is_empty() && (mismatch || missing || self.refuse.is_some());
        let mut events = Vec::new();
        if !refused {
            self.revision += 1;
            events.extend(self.apply(request, &node, &device));
        }
        let result = RequestResult {
            id: request.id.clone(),
            object: request.object,
            outcome: if refused { Outcome::Refused } else { Outcome::Applied },
            revision: self.revision,
            etags: BTreeMap::new(),
            reason: refused.then(|| self.refuse.unwrap_or("does not match").to_owned()),
            field: None,
            store: None,
            at: 0,
        };
        self.answered.insert(request.id.clone(), result.clone());
        events.push(self.node_data(Some(&result)));
        events
    }

    fn apply(&mut self, request: &WriteRequest, node: &EdgeNodeDescriptor, device: &DeviceId) -> Vec<HostEvent> {
        let (node, device) = (node.clone(), device.clone());
        if request.registration == Some(RegistrationChange::Delete) {
            self.objects.remove(&request.object);
            return vec![HostEvent::DeviceDeath { node, device, timestamp: 0 }];
        }
        assert_eq!(request.mode, Mode::Put);
        let born = !self.objects.contains_key(&request.object);
        let object = self.objects.entry(request.object).or_default();
        if let (true, Some(RegistrationChange::Register { class, .. })) = (born, &request.registration) {
            object.class = *class;
            object.member_of.insert(*class);
        }
        if let Some(classes) = request.membership.as_ref().and_then(|change| change.member_of.clone()) {
            object.member_of = classes.into_iter().chain([object.class]).collect();
        }
        for (slug, value) in &request.entries {
            self.etags += 1;
            match value {
                Some(value) => {
                    let application = configdb_schema::by_slug(slug).unwrap().uuid;
                    let etag = Uuid::from_u128(self.etags);
                    let json = value.to_string().into();
                    let entry = configdb_contract::Entry { application, json, etag, revision: self.revision };
                    object.entries.insert(slug.clone(), entry_of::Entry(entry));
                }
                None => drop(object.entries.remove(slug)),
            }
        }
        let metrics = self.metrics(request.object);
        if born {
            vec![HostEvent::DeviceBirth { node, device, timestamp: 0, metrics: metrics.into() }]
        } else {
            vec![HostEvent::DeviceData { node, device, timestamp: 0, metrics }]
        }
    }

    fn metrics(&self, uuid: Uuid) -> Vec<Metric> {
        let object = &self.objects[&uuid];
        let registration = Registration {
            uuid,
            rank: 0,
            class: object.class,
            owner: known::special::UNOWNED,
            deleted: false,
            strict: true,
        };
        let membership = Membership { member_of: object.member_of.clone(), subclass_of: BTreeSet::new() };
        let mut metrics = vec![
            Metric::new(REGISTRATION_SLUG, serde_json::to_string(&registration).unwrap()),
            Metric::new(MEMBERSHIP_SLUG, serde_json::to_string(&membership).unwrap()),
        ];
        for application in APPLICATIONS {
            let slug: Arc<str> = application.slug.into();
            let entry = object.entries.get(application.slug).map(|entry| &entry.0);
            metrics.push(entry::to_metric(&slug, application.uuid, entry));
        }
        metrics
    }

    fn node_metrics(&self) -> Vec<Metric> {
        vec![
            Metric::new(configdb_contract::names::CONFIG_STORE, self.store.to_string()),
            Metric::new(configdb_contract::names::CONFIG_TIMELINES, self.timelines.to_string()),
            Metric::new(configdb_contract::names::CONFIG_REVISION, self.revision),
            Metric::new(configdb_contract::names::CONFIG_OBJECTS, self.objects.len() as u64),
        ]
    }

    fn node_data(&self, result: Option<&RequestResult>) -> HostEvent {
        let mut metrics = self.node_metrics();
        metrics.extend(result.map(RequestResult::to_metric));
        HostEvent::NodeData { node: configdb_node(&organisation()), timestamp: 0, metrics }
    }

    fn birth(&self) -> Vec<HostEvent> {
        let node = configdb_node(&organisation());
        let metrics = self.node_metrics().into();
        let mut events =
            vec![HostEvent::NodeBirth { node: node.clone(), bd_seq: BdSeq::ZERO, timestamp: 0, uuid: None, metrics }];
        events.extend(self.objects.keys().map(|uuid| HostEvent::DeviceBirth {
            node: node.clone(),
            device: device_id(*uuid),
            timestamp: 0,
            metrics: self.metrics(*uuid).into(),
        }));
        events
    }
}

/// An edge that accepts, applies and reports at once, as edge sync does.
#[derive(Debug, Clone, PartialEq)]
struct Edge {
    node: SyncNode,
    hosts: Vec<HostDevice>,
    index: Option<DesiredIndex>,
    deployments: BTreeMap<Uuid, DeploymentDevice>,
    refuses: bool,
    deaf: bool,
    /// What it applies does not become ready.
    unready: bool,
    /// It judges where an index comes from.
    judge: Option<DesiredReceiver<Digest>>,
    /// Its Flux fails with the commits that it gets.
    flux_fails: bool,
    commands: usize,
    /// Deployments that it removed.
    removals: usize,
}

impl Edge {
    fn new(cluster: Uuid, name: &str) -> Self {
        let host = |hostname: &str| HostDevice { hostname: hostname.to_owned(), ..HostDevice::default() };
        let node = SyncNode { cluster_uuid: cluster, cluster_name: name.to_owned(), ..SyncNode::default() };
        Self {
            node,
            hosts: vec![host("b"), host("a")],
            index: None,
            deployments: BTreeMap::new(),
            refuses: false,
            deaf: false,
            unready: false,
            judge: None,
            flux_fails: false,
            commands: 0,
            removals: 0,
        }
    }

    fn address(&self) -> EdgeNodeDescriptor {
        EdgeNodeDescriptor::parse(&format!("ACME-{}", self.node.cluster_name), "Sync").unwrap()
    }

    fn node_metrics(&mut self) -> Vec<Metric> {
        self.node.hosts_total = self.hosts.len() as u32;
        self.node.deployments_total = self.deployments.len() as u32;
        self.node.to_metrics()
    }

    fn birth(&mut self) -> Vec<HostEvent> {
        let metrics = self.node_metrics().into();
        let node = self.address();
        let mut events =
            vec![HostEvent::NodeBirth { node: node.clone(), bd_seq: BdSeq::ZERO, timestamp: 0, uuid: None, metrics }];
        for host in &self.hosts {
            let device = SyncDevice::Host(host.hostname.clone()).id().unwrap();
            let metrics = host.to_metrics().into();
            events.push(HostEvent::DeviceBirth { node: node.clone(), device, timestamp: 0, metrics });
        }
        events.extend(self.deployments.keys().map(|uuid| self.deployment_birth(*uuid)));
        events
    }

    fn flux_applies(&mut self, commit: edge_sync_contract::Commit) {
        self.node.source_applied = Some(commit);
        self.node.source_ready = Some(!self.flux_fails);
        self.node.source_message = self.flux_fails.then(|| "HelmRelease edge: no".to_owned());
    }

    /// As Sync names it: of two with one name, the one that runs has it.
    fn device_of(&self, uuid: Uuid) -> DeviceId {
        let own = &self.deployments[&uuid];
        let is_taken = self.deployments.values().any(|other| {
            let runs_before = (other.version, own.uuid) > (own.version, other.uuid);
            other.uuid != uuid && other.name == own.name && runs_before
        });
        if is_taken { SyncDevice::unnamed_deployment(uuid) } else { SyncDevice::deployment_id(uuid, &own.name) }
    }

    fn deployment_birth(&self, uuid: Uuid) -> HostEvent {
        HostEvent::DeviceBirth {
            node: self.address(),
            device: self.device_of(uuid),
            timestamp: 0,
            metrics: self.deployments[&uuid].to_metrics().into(),
        }
    }

    /// What runs as an index lists it counts as applied, whatever was refused meanwhile.
    fn listed_again(&mut self, index: &DesiredIndex) -> Vec<HostEvent> {
        let mut again = Vec::new();
        for (uuid, device) in &mut self.deployments {
            let is_listed = device.digest.is_some_and(|digest| index.deployments[uuid].digest == digest);
            if is_listed && device.state != DeploymentState::Applied {
                (device.state, device.reason, device.refused_digest) = (DeploymentState::Applied, None, None);
                again.push(*uuid);
            }
        }
        let data = |uuid: Uuid| {
            let (device, metrics) = (self.device_of(uuid), self.deployments[&uuid].to_metrics());
            HostEvent::DeviceData { node: self.address(), device, timestamp: 0, metrics }
        };
        again.into_iter().map(data).collect()
    }

    /// Reports what is held.
    fn judged(&mut self) -> HostEvent {
        let held = self.judge.as_ref().and_then(DesiredReceiver::held);
        self.node.desired_held = Some(held.is_some());
        self.node.desired_hold_reason = held.map(|hold| hold.to_string());
        let metrics = self.node_metrics();
        HostEvent::NodeData { node: self.address(), timestamp: 0, metrics }
    }

    // long: each command that an edge takes
    fn command(&mut self, device: Option<&DeviceId>, metrics: &[Metric]) -> Vec<HostEvent> {
        self.commands += 1;
        if self.deaf {
            return Vec::new();
        }
        let mut events = Vec::new();
        match SyncCommand::from_event(device, metrics).unwrap().unwrap() {
            SyncCommand::Index(index) => {
                match self.judge.as_mut().map(|judge| judge.receive(&index.stamp())) {
                    None if index.version <= self.node.desired_version => return Vec::new(),
                    None | Some(Judgement::Accepted) => {}
                    Some(_) => return vec![self.judged()],
                }
                for uuid in index
                    .deployments
                    .keys()
                    .filter(|uuid| !self.deployments.contains_key(uuid))
                    .copied()
                    .collect::<Vec<_>>()
                {
                    let name = index.names.get(&uuid).cloned().unwrap_or_default();
                    self.deployments.insert(uuid, DeploymentDevice { uuid, name, ..DeploymentDevice::default() });
                    events.push(self.deployment_birth(uuid));
                }
                for uuid in self
                    .deployments
                    .keys()
                    .filter(|uuid| !index.deployments.contains_key(uuid))
                    .copied()
                    .collect::<Vec<_>>()
                {
                    let device = self.device_of(uuid);
                    self.deployments.remove(&uuid);
                    self.removals += 1;
                    events.push(HostEvent::DeviceDeath { node: self.address(), device, timestamp: 0 });
                }
                self.node.desired_version = index.version;
                self.node.desired_digest = Some(index.digest());
                if let Some(judge) = &mut self.judge {
                    judge.set_accepted(Some(index.stamp()));
                    self.node.desired_origin = index.origin;
                    events.push(self.judged());
                }
                events.extend(self.listed_again(&index));
                self.index = Some(index);
            }
            SyncCommand::GiveEntries(_) => panic!("the manager does not ask for entries"),
            SyncCommand::Source(desired) => {
                assert!(self.node.source_version.is_some_and(|version| version < desired.version), "{desired:?}");
                self.node.source_version = Some(desired.version);
                self.node.source_commit = Some(desired.sources.repository);
                self.node.source_charts = desired.sources.charts;
                self.node.source_others = desired.sources.others;
                self.flux_applies(desired.sources.repository);
            }
            SyncCommand::Manifests { deployment, desired } => {
                let listed = self.index.as_ref().and_then(|index| index.deployments.get(&deployment));
                if listed != Some(&desired.entry()) {
                    return Vec::new();
                }
                let device = self.deployments.get_mut(&deployment).unwrap();
                device.name.clone_from(&desired.name);
                if self.refuses {
                    device.state = DeploymentState::Refused;
                    device.reason = Some("not here".to_owned());
                    device.refused_digest = Some(desired.digest());
                } else {
                    device.state = DeploymentState::Applied;
                    device.version = desired.version;
                    device.digest = Some(desired.digest());
                    device.ready = Some(!self.unready);
                }
                let metrics = device.to_metrics();
                let device = self.device_of(deployment);
                events.push(HostEvent::DeviceData { node: self.address(), device, timestamp: 0, metrics });
            }
        }
        let metrics = self.node_metrics();
        events.push(HostEvent::NodeData { node: self.address(), timestamp: 0, metrics });
        events
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
struct Disk {
    repositories: BTreeMap<Uuid, RepositoryFiles>,
    open: BTreeMap<Uuid, String>,
    /// The state of ConfigDB that each was brought to.
    wanted_by: BTreeMap<Uuid, WantedBy>,
    /// The commit that each repository is at.
    at: BTreeMap<Uuid, u32>,
    /// Files below `edo/secrets` of every repository together.
    secrets: BTreeMap<String, Vec<u8>>,
    commits: u32,
    broken: bool,
}

impl Disk {
    /// A user commits to a repository.
    fn push(&mut self, cluster: Uuid) {
        self.commits += 1;
        self.at.insert(cluster, self.commits);
    }

    fn commit(&self, cluster: Uuid) -> String {
        format!("{:040x}", self.at.get(&cluster).copied().unwrap_or_default())
    }

    fn carry_out(&mut self, work: GitWork) -> GitResult {
        let outcome = match work.action {
            _ if self.broken => GitOutcome::Failed { reason: "disk full".to_owned() },
            GitAction::Write { path, origin, renews, files, hold, secrets } => {
                assert!([STORE, recovery::OTHER_STORE].contains(&origin.store));
                self.open.insert(work.cluster, path);
                let secrets = self.bring_secrets(work.cluster, &secrets);
                let found = self.repositories.get(&work.cluster);
                let wanted_by = *self.wanted_by.entry(work.cluster).or_insert_with(|| origin.into());
                if found.is_some_and(|found| hold && *found != files) {
                    let commit = self.commit(work.cluster);
                    return GitResult {
                        cluster: work.cluster,
                        outcome: GitOutcome::Held { commit, wanted_by, secrets },
                    };
                }
                let is_of = wanted_by.origin.is_some_and(|recorded| recorded.is_of(origin));
                if found != Some(&files) || !is_of || renews {
                    self.wanted_by.insert(work.cluster, origin.into());
                }
                if found != Some(&files) {
                    self.repositories.insert(work.cluster, files);
                    self.push(work.cluster);
                }
                GitOutcome::Written {
                    commit: self.commit(work.cluster),
                    wanted_by: self.wanted_by[&work.cluster],
                    secrets,
                }
            }
            GitAction::Close => {
                self.open.remove(&work.cluster);
                self.wanted_by.remove(&work.cluster);
                GitOutcome::Closed
            }
        };
        GitResult { cluster: work.cluster, outcome }
    }
}

/// A kill of the manager: after so many effects, counted over the whole run.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kill {
    Never,
    After(usize),
    AfterEach,
}

#[derive(Debug)]
struct World {
    now: Now,
    manager: ClusterManager,
    db: ConfigDb,
    disk: Disk,
    edges: BTreeMap<String, Edge>,
    joins: BTreeMap<String, policy::Join>,
    keys: BTreeMap<String, accounts::Keys>,
    answers: Vec<crate::git_users::Answer>,
    records: Vec<access::audit::AuditRecord>,
    devices: BTreeMap<Uuid, ClusterDevice>,
    device_ids: BTreeMap<DeviceId, Uuid>,
    node: NodeMetrics,
    /// What the HTTP server offers; gone when the manager is killed.
    offers: BTreeMap<Uuid, BootstrapGrant>,
    script: Option<Arc<crate::bootstrap::site::SiteScript>>,
    expected: BTreeSet<String>,
    forgotten: BTreeSet<String>,
    effects: usize,
    kill: Kill,
    kills: u64,
    /// Logins that were asked for: the cluster, and the key that they were to be sealed to.
    sealed: Vec<(Uuid, String)>,
    /// Principals, and whether they get tickets.
    kdc: BTreeMap<String, bool>,
    kdc_is_away: bool,
    /// Shared repositories, and what they are pulled from.
    shared: shared_repositories::SharedDisk,
    /// None: there is none.
    git: Option<git_copies::Git>,
    packs: git_copies::Packs,
}

impl World {
    fn new(kill: Kill) -> Self {
        let now = Now::new(Duration::from_secs(1), 1_000);
        let mut world = Self {
            now,
            manager: ClusterManager::new(settings(), PersistedRepositories::default(), 1, now),
            db: ConfigDb::new(),
            disk: Disk::default(),
            edges: BTreeMap::new(),
            joins: BTreeMap::new(),
            keys: BTreeMap::new(),
            answers: Vec::new(),
            records: Vec::new(),
            devices: BTreeMap::new(),
            device_ids: BTreeMap::new(),
            node: NodeMetrics::default(),
            offers: BTreeMap::new(),
            script: None,
            expected: BTreeSet::new(),
            forgotten: BTreeSet::new(),
            effects: 0,
            kill,
            kills: 0,
            sealed: Vec::new(),
            kdc: BTreeMap::new(),
            kdc_is_away: false,
            shared: shared_repositories::SharedDisk::default(),
            git: None,
            packs: git_copies::Packs::default(),
        };
        world.start();
        world
    }

    /// A manager that knows nothing, and the births that it gets when it asks.
    fn start(&mut self) {
        let left = self.disk.open.iter().map(|(cluster, path)| {
            let name = path.strip_prefix("cluster/").unwrap().to_owned();
            PersistedRepository { cluster: *cluster, name, wanted_by: self.disk.wanted_by[cluster] }
        });
        let left = PersistedRepositories { clusters: left.collect(), shared: self.shared.left() };
        self.manager = ClusterManager::new(settings(), left, 100 + self.kills, self.now);
        self.devices.clear();
        self.device_ids.clear();
        self.shared.devices.clear();
        self.offers.clear();
        self.script = None;
        self.expected.clear();
        self.forgotten.clear();
        self.node = NodeMetrics::default();
        self.node.merge(&self.manager.node_metrics()).unwrap();
        self.manager.on_event(Event::Host(HostEvent::Online), self.now);
        let edges: Vec<HostEvent> = self.edges.values_mut().flat_map(Edge::birth).collect();
        self.feed(edges);
        let joins: Vec<HostEvent> = self.joins.values().flat_map(policy::Join::birth).collect();
        self.feed(joins);
        let keys: Vec<HostEvent> = self.keys.values().flat_map(accounts::Keys::birth).collect();
        self.feed(keys);
        let git = self.git.as_ref().map(git_copies::Git::birth);
        self.feed(git.unwrap_or_default());
        let births = self.db.birth();
        self.feed(births);
    }

    fn feed(&mut self, events: Vec<HostEvent>) {
        for event in events {
            self.manager.on_event(Event::Host(event), self.now);
        }
    }

    /// The Sync of an edge passes commits to Flux; an edge that is not there yet is born so.
    fn follow_sources(&mut self, cluster: Uuid, name: &str) {
        let mut edge = self.edges.remove(name).unwrap_or_else(|| Edge::new(cluster, name));
        edge.node.source_version = Some(0);
        let events = edge.birth();
        self.edges.insert(name.to_owned(), edge);
        self.feed(events);
    }

    fn put(&mut self, object: Uuid, slug: &str, value: Value) {
        let events = self.db.put(object, slug, value);
        self.feed(events);
    }

    fn delete(&mut self, object: Uuid, slug: &str) {
        let events = self.db.delete(object, slug);
        self.feed(events);
    }

    fn put_cluster(&mut self, uuid: Uuid, name: &str) {
        self.put(uuid, "EdgeCluster", json!({"name": name, "namespace": "fplus-edge"}));
    }

    fn put_deployment(&mut self, uuid: Uuid, name: &str) {
        let chart = known::chart::EDGE_AGENT;
        self.put(
            uuid,
            "EdgeDeployment",
            json!({"cluster": CLUSTER, "name": name, "chart": chart, "createdAt": "2026-01-01"}),
        );
    }

    fn bootstrap(&mut self, cluster: Uuid, name: &str) {
        let mut edge = Edge::new(cluster, name);
        let events = edge.birth();
        self.edges.insert(name.to_owned(), edge);
        self.feed(events);
    }

    fn work_on_principals(&mut self, work: PrincipalsWork) {
        let PrincipalsWork { cluster, principals, allowed } = work;
        let result = if self.kdc_is_away { Err("the KDC is not reachable".to_owned()) } else { Ok(()) };
        for principal in principals.into_iter().filter(|_| result.is_ok()) {
            match self.kdc.get_mut(&principal) {
                Some(known) => *known = allowed,
                // What is not there needs not be disabled.
                None if allowed => drop(self.kdc.insert(principal, true)),
                None => {}
            }
        }
        self.manager.on_event(Event::Principals(PrincipalsResult { cluster, allowed, result }), self.now);
    }

    // long: an arm for each kind of effect.
    fn execute(&mut self, effect: Effect) {
        match effect {
            Effect::Node(NodeUpdate::Set { device: None, metrics }) => self.node.merge(&metrics).unwrap(),
            Effect::Node(NodeUpdate::DeviceBirth { device, metrics }) if repository::repository(&device).is_some() => {
                self.shared.devices.insert(repository::repository(&device).unwrap(), metrics);
            }
            Effect::Node(NodeUpdate::DeviceDeath { device }) if repository::repository(&device).is_some() => {
                self.shared.devices.remove(&repository::repository(&device).unwrap()).expect("a Device that was born");
            }
            Effect::Shared(work) => {
                if let Some(result) = self.shared.carry_out(work, self.now) {
                    self.manager.on_event(Event::Shared(result), self.now);
                }
            }
            Effect::Node(NodeUpdate::DeviceBirth { device, metrics }) => {
                let device_metrics = ClusterDevice::from_metrics(&metrics).unwrap();
                let owner = *self.device_ids.entry(device).or_insert(device_metrics.uuid);
                assert_eq!(owner, device_metrics.uuid, "a Device has one cluster");
                self.devices.insert(device_metrics.uuid, device_metrics);
            }
            Effect::Node(NodeUpdate::DeviceDeath { device }) => {
                let uuid = self.device_ids.remove(&device).expect("a Device that was born");
                self.devices.remove(&uuid).expect("a cluster that was published");
            }
            Effect::Node(other) => panic!("{other:?}"),
            Effect::Git(work) => {
                let result = self.disk.carry_out(work);
                self.manager.on_event(Event::Git(result), self.now);
            }
            Effect::Principals(work) => self.work_on_principals(work),
            Effect::Answer(answer) => self.answers.push(*answer),
            Effect::Record(record) => self.records.push(*record),
            Effect::Script(script) => self.script = script,
            Effect::BootstrapGrant { cluster, offer } => {
                match offer {
                    Some(offer) => self.offers.insert(cluster, offer),
                    None => self.offers.remove(&cluster),
                };
            }
            Effect::Host(HostRequest::Command { node, device, metrics }) if node == configdb_node(&organisation()) => {
                let Command::Write(request) = Command::parse(device.as_ref(), &metrics).unwrap() else {
                    panic!("the manager replays nothing")
                };
                assert_eq!(object_of(device.as_ref().unwrap()), Some(request.object));
                let events = self.db.write(&request);
                self.feed(events);
            }
            Effect::Host(HostRequest::Command { node, metrics, .. }) if node.edge_node.as_str() == "Join" => {
                let join = self.joins.values_mut().find(|join| join.address() == node).expect("it was born");
                let events = join.command(&metrics);
                self.feed(events);
            }
            Effect::Host(HostRequest::Command { node, device, metrics }) if node.edge_node.as_str() == "Keys" => {
                let keys = self.keys.values_mut().find(|keys| keys.address() == node).expect("it was born");
                let events = keys.command(&device.expect("the Device of an account"), &metrics);
                self.feed(events);
            }
            Effect::Host(HostRequest::Command { node, device, metrics }) if node.edge_node.as_str() == "Git" => {
                let events = self.git.as_mut().map(|git| git.command(device.as_ref(), &metrics));
                self.feed(events.unwrap_or_default());
            }
            Effect::Copy(work) => self.work_on_copy(work),
            Effect::Push(work) => self.packs.pushed.push(*work),
            Effect::Host(HostRequest::Command { node, device, metrics }) => {
                let edge = self.edges.values_mut().find(|edge| edge.address() == node);
                let events = edge.map(|edge| edge.command(device.as_ref(), &metrics)).unwrap_or_default();
                self.feed(events);
            }
            Effect::Host(HostRequest::Expect { node }) => {
                self.expected.insert(node.to_string());
                // A node that was forgotten is asked for its birth.
                let forgotten = self.forgotten.remove(&node.to_string());
                let edge = self.edges.values_mut().find(|edge| forgotten && edge.address() == node);
                let events = edge.map(Edge::birth).unwrap_or_default();
                self.feed(events);
            }
            Effect::Host(HostRequest::Forget { node }) => {
                self.expected.remove(&node.to_string());
                self.forgotten.insert(node.to_string());
            }
            Effect::Host(other) => panic!("{other:?}"),
            Effect::SealLogin { cluster, key } => {
                self.sealed.push((cluster, key.clone()));
                let sealed = Ok(SealedLogin(key.as_bytes().into()));
                self.manager.on_event(Event::LoginSealed(LoginResult { cluster, key, sealed }), self.now);
            }
        }
    }

    /// Runs until nothing more happens within `span`.
    fn run(&mut self, span: Duration) {
        let end = self.now.mono + span;
        for _ in 0..200_000 {
            for effect in self.manager.poll_effects() {
                self.execute(effect);
                self.effects += 1;
                if self.kill == Kill::AfterEach && self.kills < 400 || self.kill == Kill::After(self.effects) {
                    self.kills += 1;
                    self.start();
                    break;
                }
            }
            if !self.manager.effects.is_empty() {
                continue;
            }
            match self.manager.next_deadline().filter(|at| *at <= end) {
                Some(at) => {
                    assert!(at >= self.now.mono || self.manager.next_deadline().is_some());
                    let at = at.max(self.now.mono);
                    self.now.wall += u64::try_from((at - self.now.mono).as_millis()).unwrap();
                    self.now.mono = at;
                    self.manager.on_event(Event::DeadlineReached, self.now);
                }
                None => {
                    self.now.wall += u64::try_from((end - self.now.mono).as_millis()).unwrap();
                    self.now.mono = end;
                    return;
                }
            }
        }
        panic!("the manager does not come to rest");
    }

    fn settle(&mut self) {
        self.run(Duration::from_secs(20));
    }

    fn device(&self) -> &ClusterDevice {
        &self.devices[&CLUSTER]
    }

    fn state(&self) -> SetupState {
        self.device().setup.state
    }

    fn account(word: &str) -> Uuid {
        configdb_schema::address::v5(&["Account", &CLUSTER.to_string(), word])
    }
}

/// A cluster that is set up, bootstrapped and runs one deployment.
fn running() -> World {
    let mut world = World::new(Kill::Never);
    world.put_cluster(CLUSTER, "Paint_Shop");
    world.put_deployment(DEPLOYMENT, "Robot_Cell_3");
    world.settle();
    world.bootstrap(CLUSTER, "Paint_Shop");
    world.settle();
    assert_eq!(world.state(), SetupState::Ready);
    world
}

#[test]
fn a_cluster_is_set_up_step_by_step_and_recorded() {
    let mut world = World::new(Kill::Never);
    world.put_cluster(CLUSTER, "Paint_Shop");
    world.settle();
    let device = world.device();
    assert_eq!((device.setup.state, device.setup.step), (SetupState::Ready, SetupStep::Ready));
    assert_eq!(device.group, "ACME-Paint_Shop");
    assert_eq!(device.git_url.as_deref(), Some("http://git/git/cluster/Paint_Shop"));
    assert!(device.git_commit.is_some() && device.setup.reason.is_none());
    let (flux, krbkeys) = (World::account("flux"), World::account("krbkeys"));
    let setup = world.db.json(CLUSTER, "EdgeClusterSetup").unwrap();
    assert_eq!(setup["spec"], json!({"name": "Paint_Shop", "namespace": "fplus-edge"}));
    assert_eq!(setup["flux"], json!({"uuid": flux, "done": true}));
    assert_eq!(setup["krbkeys"], json!({"uuid": krbkeys, "done": true}));
    assert_eq!(
        (&setup["ready"], &setup["fluxVersion"], &setup["error"]),
        (&json!(true), &json!("2.7.5"), &Value::Null)
    );
    assert!(setup["self_link"].as_str().unwrap().contains("http://git/git/cluster/Paint_Shop"));
    assert_eq!(world.db.json(CLUSTER, "SparkplugAddress").unwrap(), json!({"group_id": "ACME-Paint_Shop"}));
    assert_eq!(world.db.json(CLUSTER, "GitConfig").unwrap(), json!({"path": "cluster/Paint_Shop"}));
    assert!(world.db.objects[&CLUSTER].member_of.contains(&known::class::REPO_GROUP_CLUSTER));
    assert_eq!(world.db.json(flux, "Info").unwrap(), json!({"name": "Edge flux: Paint_Shop"}));
    assert_eq!(world.db.objects[&krbkeys].class, known::class::EDGE_SERVICE_ACCOUNT);
    assert_eq!(world.disk.open, [(CLUSTER, "cluster/Paint_Shop".to_owned())].into());
    assert!(world.expected.contains("ACME-Paint_Shop/Sync"));
    assert_eq!((world.node.clusters_total, world.node.clusters_ready), (1, 1));
}

#[test]
fn a_commit_is_sent_to_the_edge_until_the_edge_reports_it() {
    let mut world = running();
    assert_eq!(world.edges["Paint_Shop"].node.source_version, None, "a Sync that cannot do it gets nothing");
    let mut edge = world.edges.remove("Paint_Shop").unwrap();
    edge.node.source_version = Some(0);
    edge.deaf = true;
    let events = edge.birth();
    world.edges.insert("Paint_Shop".to_owned(), edge);
    world.feed(events);
    world.settle();
    let edge = world.edges.get_mut("Paint_Shop").unwrap();
    assert!(edge.commands > 1, "it is said again");
    edge.deaf = false;
    world.run(Duration::from_secs(120));
    let commit = |world: &World| world.device().git_commit.clone().expect("the repository is written");
    let reported = |world: &World| world.edges["Paint_Shop"].node.source_commit.map(|commit| commit.to_string());
    assert_eq!(reported(&world), Some(commit(&world)));
    assert_eq!(world.edges["Paint_Shop"].node.source_charts, CHARTS.parse().ok(), "that of the charts as well");

    let (before, commands) = (commit(&world), world.edges["Paint_Shop"].commands);
    world.put(CLUSTER, "EdgeCluster", json!({"name": "Paint_Shop", "namespace": "fplus-edge", "values": {"a": 1}}));
    world.settle();
    assert_ne!(commit(&world), before);
    assert_eq!(reported(&world), Some(commit(&world)));
    assert_eq!(world.edges["Paint_Shop"].commands, commands + 1, "once, at once");
}

#[test]
fn a_cluster_offers_its_script_to_its_tokens_as_long_as_it_is_set_up() {
    let token = |hash: &str| json!({"hash": hash, "issued": "2026-01-01T00:00:00Z", "expires": "2026-01-02T00:00:00Z", "by": "me"});
    for kill in [Kill::Never, Kill::AfterEach] {
        let mut world = World::new(kill);
        world.put(CLUSTER, "EdgeClusterEnrolment", json!({"tokens": [token("aa")]}));
        world.settle();
        assert!(world.offers.values().all(|grant| grant.values.is_none()), "a token alone does not make a cluster");
        world.put_cluster(CLUSTER, "Paint_Shop");
        world.settle();
        let offer = world.offers[&CLUSTER].values.as_ref().unwrap();
        assert_eq!((offer.name.as_str(), offer.namespace.as_str(), offer.bare), ("Paint_Shop", "fplus-edge", false));
        assert!(offer.self_link.contains("http://git/git/cluster/Paint_Shop") && offer.identity_key.is_none());
        assert_eq!(world.offers[&CLUSTER].tokens, [OfferedToken { hash: "aa".to_owned(), expires: 1_767_312_000_000 }]);
        let url = format!("http://api/bootstrap/{CLUSTER}");
        assert_eq!(world.device().bootstrap.url.as_deref(), Some(url.as_str()));
        let before = world.device().bootstrap.enrolment.clone().expect("the entry that it goes by");

        world.put(CLUSTER, "EdgeClusterIdentity", json!({"key": "k", "authority": ""}));
        world.put(CLUSTER, "EdgeClusterEnrolment", json!({"tokens": [token("bb")], "fence": 1}));
        world.settle();
        assert_eq!(world.offers[&CLUSTER].tokens[0].hash, "bb");
        assert_eq!(world.offers[&CLUSTER].values.as_ref().unwrap().identity_key.as_deref(), Some("k"));
        assert_ne!(world.device().bootstrap.enrolment, Some(before));

        world.put(CLUSTER, "EdgeClusterEnrolment", json!({"tokens": []}));
        world.settle();
        assert!(world.offers.is_empty(), "revoked");
        world.put(CLUSTER, "EdgeClusterEnrolment", json!({"tokens": [token("cc")]}));
        world.delete(CLUSTER, "EdgeCluster");
        world.settle();
        assert!(world.offers.is_empty(), "torn down");
    }
}

#[test]
fn a_sites_own_script_is_used_if_it_can_be_and_else_the_shipped_one_visibly() {
    let mut world = running();
    let object = known::application::BOOTSTRAP_SCRIPT;
    assert_eq!((world.node.bootstrap_script.as_str(), &world.node.bootstrap_error), ("shipped", &None));
    world.put(object, "BootstrapScript", json!({"files": {}, "wrapper": "echo \"$cluster_name\""}));
    // An upgrade of the manager is another life of it: it takes what the site wants.
    for _ in 0..2 {
        world.settle();
        assert_eq!((world.node.bootstrap_script.as_str(), &world.node.bootstrap_error), ("site", &None));
        assert_eq!(world.script.as_ref().unwrap().text(), "echo \"$cluster_name\"");
        world.start();
    }
    world.put(object, "BootstrapScript", json!({"files": {}, "wrapper": "echo '{{realm}}'"}));
    world.settle();
    let error = world.node.bootstrap_error.clone().unwrap();
    assert!(error.starts_with("BootstrapScript: wrapper, line 1: nothing is put in"), "{error}");
    assert_eq!((world.node.bootstrap_script.as_str(), &world.script), ("shipped", &None));
    world.delete(object, "BootstrapScript");
    world.settle();
    assert_eq!((world.node.bootstrap_script.as_str(), &world.node.bootstrap_error), ("shipped", &None));
}

#[test]
fn a_deployment_reaches_the_edge_and_what_the_edge_reports_reaches_the_status() {
    let world = running();
    let edge = &world.edges["Paint_Shop"];
    assert_eq!(edge.deployments[&DEPLOYMENT].state, DeploymentState::Applied);
    assert_eq!(edge.commands, 2, "one index, one set of manifests");
    assert!(world.device().desired.agreed && world.device().sync_alive);
    let status = world.db.json(CLUSTER, "EdgeClusterStatus").unwrap();
    let hosts: Vec<_> = status["hosts"].as_array().unwrap().iter().map(|host| host["hostname"].clone()).collect();
    assert_eq!(hosts, ["a", "b"]);
    assert_eq!((world.node.deployments_total, world.node.deployments_refused), (1, 0));
}

#[test]
fn a_manager_that_starts_again_changes_nothing() {
    let mut world = running();
    let (db, disk, edges) = (world.db.objects.clone(), world.disk.clone(), world.edges.clone());
    let revision = world.db.revision;
    world.kills += 1;
    world.start();
    world.settle();
    assert_eq!((world.db.objects.clone(), world.disk.clone(), world.edges.clone()), (db, disk, edges));
    assert_eq!(world.db.revision, revision);
    assert_eq!(world.state(), SetupState::Ready);
}

/// Everything that can happen to a cluster, in a row.
fn life(kill: Kill) -> World {
    let mut world = World::new(kill);
    world.put_cluster(CLUSTER, "Paint_Shop");
    world.put_deployment(DEPLOYMENT, "Robot_Cell_3");
    world.settle();
    world.bootstrap(CLUSTER, "Paint_Shop");
    world.settle();
    world.put(CLUSTER, "EdgeCluster", json!({"name": "Paint_Shop", "namespace": "other", "values": {"x": 1}}));
    world.put_deployment(Uuid::from_u128(0xD2), "Robot_Cell_4");
    world.settle();
    world.delete(DEPLOYMENT, "EdgeDeployment");
    world.settle();
    world
}

fn death(kill: Kill) -> World {
    let mut world = running();
    world.kill = kill;
    world.effects = 0;
    world.delete(CLUSTER, "EdgeCluster");
    world.settle();
    world
}

fn assert_same_end(world: &World, reference: &World, kill: Kill) {
    assert_eq!(world.db.objects, reference.db.objects, "{kill:?}");
    assert_eq!(world.disk.repositories, reference.disk.repositories, "{kill:?}");
    assert_eq!(world.disk.open, reference.disk.open, "{kill:?}");
    assert_eq!(world.kdc, reference.kdc, "{kill:?}");
    let deployments = |world: &World| -> Vec<(Uuid, Option<Digest>, DeploymentState)> {
        let edges = world.edges.values().flat_map(|edge| &edge.deployments);
        edges.map(|(uuid, device)| (*uuid, device.digest, device.state)).collect()
    };
    assert_eq!(deployments(world), deployments(reference), "{kill:?}");
    let states = |world: &World| -> Vec<(Uuid, SetupState, bool)> {
        let devices = world.devices.iter();
        devices.map(|(uuid, device)| (*uuid, device.setup.state, device.desired.agreed)).collect()
    };
    assert_eq!(states(world), states(reference), "{kill:?}");
    // The edge runs on after the tear-down, and a manager that has received its birth since then has it among the unknown ones.
    let node = |world: &World| NodeMetrics { clusters_unknown: BTreeMap::new(), ..world.node.clone() };
    assert_eq!(node(world), node(reference), "{kill:?}");
}

#[test]
fn a_life_ends_the_same_wherever_the_manager_is_killed() {
    let reference = life(Kill::Never);
    assert!(reference.effects > 30, "{}", reference.effects);
    for kill in (1..=reference.effects).map(Kill::After).chain([Kill::AfterEach]) {
        let world = life(kill);
        assert_same_end(&world, &reference, kill);
        assert!(world.kills > 0);
    }
}

#[test]
fn a_tear_down_ends_the_same_wherever_the_manager_is_killed() {
    let reference = death(Kill::Never);
    assert!(reference.devices.is_empty());
    for kill in (1..=reference.effects).map(Kill::After).chain([Kill::AfterEach]) {
        assert_same_end(&death(kill), &reference, kill);
    }
}

#[test]
fn a_tear_down_removes_everything_but_the_storage_and_the_history() {
    let world = death(Kill::Never);
    let cluster = &world.db.objects[&CLUSTER];
    assert!(cluster.entries.is_empty(), "{:?}", cluster.entries);
    assert!(!cluster.member_of.contains(&known::class::REPO_GROUP_CLUSTER));
    assert!(!world.db.objects.contains_key(&World::account("flux")));
    assert!(!world.db.objects.contains_key(&World::account("krbkeys")));
    assert!(world.disk.open.is_empty() && world.disk.repositories.contains_key(&CLUSTER));
    assert!(world.edges["Paint_Shop"].deployments.is_empty());
    assert!(world.db.json(DEPLOYMENT, "EdgeDeployment").is_some(), "deployments stay configured");
    assert_eq!(
        world.expected.iter().collect::<Vec<_>>(),
        ["ACME-Central/ConfigDB", "ACME-Central/Git", "ACME-Central/Identity"]
    );
    let [git_url, git_key, bootstrap_script] = ["http://git", "KEY", "shipped"].map(str::to_owned);
    let nothing = NodeMetrics { git_url, git_key, bootstrap_script, version: "0".to_owned(), ..NodeMetrics::default() };
    assert_eq!(world.node, nothing);
}

#[test]
fn a_tear_down_waits_for_an_edge_that_is_there_and_not_for_one_that_is_away() {
    let mut world = running();
    world.edges.get_mut("Paint_Shop").unwrap().deaf = true;
    world.delete(CLUSTER, "EdgeCluster");
    world.run(Duration::from_secs(300));
    assert_eq!(world.state(), SetupState::Deleting);
    assert_eq!(world.device().setup.reason.as_deref(), Some("waiting for the edge to remove 1 deployments"));
    assert!(world.db.objects.contains_key(&World::account("flux")));
    let node = world.edges["Paint_Shop"].address();
    world.feed(vec![HostEvent::NodeDeath { node, timestamp: 0 }]);
    world.run(Duration::from_secs(29));
    assert_eq!(world.state(), SetupState::Deleting);
    world.settle();
    assert!(world.devices.is_empty());
}

#[test]
fn an_edge_that_died_unheard_is_given_up_and_a_tear_down_does_not_wait_for_it_for_ever() {
    let mut world = running();
    assert!(world.device().sync_alive);
    // Its death falls into an outage of the own session: afterwards it is neither born nor dead.
    let node = world.edges["Paint_Shop"].address();
    world.edges.get_mut("Paint_Shop").unwrap().deaf = true;
    let reason = "x".to_owned();
    world.feed(vec![HostEvent::NodeStale { node: node.clone(), reason: reason.clone() }]);
    world.run(Duration::from_secs(300));
    assert!(world.device().sync_alive, "it was not asked");
    world.feed(vec![HostEvent::RebirthRequested { node: node.clone(), reason: reason.clone() }]);
    world.run(Duration::from_secs(20));
    world.feed(vec![HostEvent::RebirthRequested { node, reason }]);
    world.run(Duration::from_secs(9));
    assert!(world.device().sync_alive, "it may still answer");
    world.run(Duration::from_secs(2));
    assert!(!world.device().sync_alive);
    world.delete(CLUSTER, "EdgeCluster");
    world.settle();
    assert!(world.devices.is_empty());
}

#[test]
fn a_tear_down_waits_until_an_edge_that_runs_something_was_asked_in_a_session() {
    let mut world = running();
    let (node, reason) = (world.edges["Paint_Shop"].address(), "x".to_owned());
    world.edges.get_mut("Paint_Shop").unwrap().deaf = true;
    world.delete(CLUSTER, "EdgeCluster");
    // Each session ends before the edge is asked again, because it was asked not long ago.
    for _ in 0..4 {
        world.feed(vec![
            HostEvent::RebirthRequested { node: node.clone(), reason: reason.clone() },
            HostEvent::NodeStale { node: node.clone(), reason: reason.clone() },
            HostEvent::Offline { reason: reason.clone() },
            HostEvent::Online,
        ]);
        let births = world.db.birth();
        world.feed(births);
        world.run(Duration::from_secs(60));
        assert_eq!(world.state(), SetupState::Deleting, "it may run its deployments");
    }
    world.feed(vec![HostEvent::RebirthRequested { node, reason }]);
    world.run(Duration::from_secs(31));
    assert!(world.devices.is_empty());
}

#[test]
fn a_cluster_created_again_too_early_waits_for_the_end_of_its_tear_down() {
    let mut world = running();
    world.edges.get_mut("Paint_Shop").unwrap().deaf = true;
    world.delete(CLUSTER, "EdgeCluster");
    world.settle();
    world.put(CLUSTER, "EdgeCluster", json!({"name": "Paint_Shop_2", "namespace": "fplus-edge"}));
    world.settle();
    assert_eq!(world.state(), SetupState::Waiting);
    assert_eq!(world.device().name, "Paint_Shop");
    world.edges.get_mut("Paint_Shop").unwrap().deaf = false;
    world.run(Duration::from_secs(120));
    assert_eq!((world.state(), world.device().name.as_str()), (SetupState::Ready, "Paint_Shop_2"));
    assert!(world.edges["Paint_Shop"].deployments.is_empty());
    assert_eq!(world.disk.open[&CLUSTER], "cluster/Paint_Shop_2");
}

#[test]
fn a_cluster_that_is_created_again_finds_its_edge_again() {
    let mut world = running();
    world.delete(CLUSTER, "EdgeCluster");
    world.settle();
    assert!(world.devices.is_empty() && world.edges["Paint_Shop"].deployments.is_empty());
    let version = world.edges["Paint_Shop"].node.desired_version;
    world.put_cluster(CLUSTER, "Paint_Shop");
    world.settle();
    assert_eq!(world.state(), SetupState::Ready);
    assert!(world.device().sync_alive && world.device().desired.agreed);
    let edge = &world.edges["Paint_Shop"];
    assert_eq!(edge.deployments[&DEPLOYMENT].state, DeploymentState::Applied);
    assert!(edge.node.desired_version > version);
}

#[test]
fn a_deleted_object_is_torn_down_also_when_no_manager_saw_it_go() {
    for seen in [true, false] {
        let mut world = running();
        let request = WriteRequest::put("", CLUSTER).delete_object();
        let events = world.db.write(&request);
        if seen {
            world.feed(events);
        } else {
            world.kills += 1;
            world.start();
        }
        world.settle();
        assert!(world.devices.is_empty(), "seen: {seen}");
        assert!(world.disk.open.is_empty());
        assert!(!world.db.objects.contains_key(&World::account("flux")));
        assert!(!world.db.objects.contains_key(&CLUSTER));
        assert!(world.edges["Paint_Shop"].deployments.is_empty());
    }
}

#[test]
fn a_changed_configuration_is_followed_and_a_changed_name_is_refused() {
    let mut world = running();
    world.put(CLUSTER, "EdgeCluster", json!({"name": "Paint_Shop", "namespace": "edge-2"}));
    world.settle();
    assert_eq!((world.state(), world.device().namespace.as_str()), (SetupState::Ready, "edge-2"));
    let release = world.disk.repositories[&CLUSTER].owned["edge-cluster.yaml"].clone();
    assert!(String::from_utf8(release).unwrap().contains("namespace: edge-2"));
    world.put(CLUSTER, "EdgeCluster", json!({"name": "Welding", "namespace": "edge-2"}));
    world.settle();
    assert_eq!((world.state(), world.device().name.as_str()), (SetupState::Refused, "Paint_Shop"));
    let reason = world.device().setup.reason.clone().unwrap();
    assert!(reason.contains("cannot be renamed"), "{reason}");
    assert_eq!(world.db.json(CLUSTER, "EdgeClusterSetup").unwrap()["error"], json!(reason));
    assert!(world.device().desired.agreed, "the cluster keeps its name");
    world.put(CLUSTER, "EdgeCluster", json!({"name": "Paint_Shop", "namespace": "edge-2"}));
    world.settle();
    assert_eq!(world.state(), SetupState::Ready);
    assert_eq!(world.db.json(CLUSTER, "EdgeClusterSetup").unwrap().get("error"), None);
}

#[test]
fn a_changed_template_reaches_existing_clusters_and_only_those_it_concerns() {
    let mut world = running();
    world.put_cluster(OTHER, "Welding");
    world.settle();
    let mine = Uuid::from_u128(0xAB);
    world.put(mine, "HelmChartTemplate", json!({"chart": "mine", "values": {"a": 1}}));
    world.put(OTHER, "EdgeCluster", json!({"name": "Welding", "namespace": "fplus-edge", "chart": mine}));
    world.settle();
    let before = world.disk.repositories.clone();
    world.put(mine, "HelmChartTemplate", json!({"chart": "mine", "values": {"a": 2}}));
    world.settle();
    assert_eq!(world.disk.repositories[&CLUSTER], before[&CLUSTER]);
    assert_ne!(world.disk.repositories[&OTHER], before[&OTHER]);
    assert_eq!(world.devices[&OTHER].setup.state, SetupState::Ready);
    let agent = json!({"chart": "edge-agent", "values": {"name": "{{name}}", "new": true}});
    let version = world.edges["Paint_Shop"].deployments[&DEPLOYMENT].version;
    world.put(known::chart::EDGE_AGENT, "HelmChartTemplate", agent);
    world.settle();
    assert!(world.edges["Paint_Shop"].deployments[&DEPLOYMENT].version > version);
    assert!(world.device().desired.agreed);
}

#[test]
fn bad_configurations_are_refused_with_a_reason_and_recover_by_themselves() {
    let cases = [
        (json!({"name": "Paint-Shop", "namespace": "x"}), "only A-Z, a-z, 0-9 and _"),
        (json!({"name": "Central", "namespace": "x"}), "reserved"),
        (json!({"name": "Paint_Shop", "namespace": "No_Namespace"}), "namespace \"No_Namespace\""),
        (json!({"name": "Paint_Shop", "namespace": "x", "chart": OTHER}), "has no HelmChartTemplate entry"),
        (json!({"name": 5, "namespace": "x"}), "EdgeCluster cannot be read"),
        (json!({"name": "Paint_Shop", "namespace": "x", "values": {"cluster": {"uuid": 1}}}), "values.cluster.uuid"),
    ];
    for (config, expected) in cases {
        let mut world = World::new(Kill::Never);
        world.put(CLUSTER, "EdgeCluster", config.clone());
        world.settle();
        assert_eq!(world.state(), SetupState::Refused, "{config}");
        let reason = world.device().setup.reason.clone().unwrap();
        assert!(reason.contains(expected), "{reason}");
        let record = json!({"error": reason});
        assert_eq!(world.db.json(CLUSTER, "EdgeClusterSetup"), Some(record), "nothing but the reason is recorded");
        assert_eq!(world.node.clusters_refused, 1);
        world.put_cluster(CLUSTER, "Paint_Shop");
        world.settle();
        assert_eq!(world.state(), SetupState::Ready, "{config}");
        assert_eq!((world.node.clusters_refused, world.node.clusters_ready), (0, 1));
    }
}

#[test]
fn a_missing_chart_that_appears_ends_the_refusal() {
    let mut world = World::new(Kill::Never);
    world.put(CLUSTER, "EdgeCluster", json!({"name": "A", "namespace": "x", "chart": OTHER}));
    world.settle();
    assert_eq!(world.state(), SetupState::Refused);
    world.put(OTHER, "HelmChartTemplate", json!({"chart": "c", "values": {}}));
    world.settle();
    assert_eq!(world.state(), SetupState::Ready);
}

#[test]
fn the_first_cluster_keeps_a_name_and_the_second_gets_it_when_it_is_free() {
    let mut world = World::new(Kill::Never);
    // The one with the greater UUID is first.
    world.put_cluster(OTHER, "A");
    world.put_cluster(CLUSTER, "A");
    world.settle();
    assert_eq!((world.devices[&OTHER].setup.state, world.state()), (SetupState::Ready, SetupState::Refused));
    assert!(world.device().setup.reason.as_ref().unwrap().contains("is taken by cluster"));
    // Editing the first does not cost it the name, nor does a restart.
    world.put(OTHER, "EdgeCluster", json!({"name": "A", "namespace": "y"}));
    world.start();
    world.settle();
    assert_eq!((world.devices[&OTHER].setup.state, world.state()), (SetupState::Ready, SetupState::Refused));
    world.delete(OTHER, "EdgeCluster");
    world.run(Duration::from_secs(120));
    assert!(!world.devices.contains_key(&OTHER));
    assert_eq!(world.state(), SetupState::Ready);
    assert_eq!(world.disk.open, [(CLUSTER, "cluster/A".to_owned())].into());
}

#[test]
fn a_deployment_whose_template_is_gone_keeps_running_and_is_reported() {
    for restart in [false, true] {
        let mut world = running();
        let digest = world.edges["Paint_Shop"].deployments[&DEPLOYMENT].digest;
        world.delete(known::chart::EDGE_AGENT, "HelmChartTemplate");
        if restart {
            world.start();
        }
        world.settle();
        let edge = &world.edges["Paint_Shop"];
        assert_eq!((edge.deployments[&DEPLOYMENT].digest, edge.commands), (digest, 2));
        assert!(world.device().desired.agreed);
        let reason = &world.device().deployments_refused.0[&DEPLOYMENT];
        assert!(reason.contains("has no HelmChartTemplate entry"), "{reason}");
        assert_eq!(world.node.deployments_refused, 1);
    }
}

#[test]
fn a_malformed_deployment_keeps_running_and_a_deleted_one_goes() {
    for malformed in [json!({"cluster": CLUSTER, "name": 7}), json!("nonsense")] {
        for restart in [false, true] {
            let mut world = running();
            world.put(DEPLOYMENT, "EdgeDeployment", malformed.clone());
            if restart {
                world.start();
            }
            world.settle();
            assert!(world.edges["Paint_Shop"].deployments.contains_key(&DEPLOYMENT), "{malformed} {restart}");
            assert!(world.device().deployments_refused.0.contains_key(&DEPLOYMENT));
            world.delete(DEPLOYMENT, "EdgeDeployment");
            world.settle();
            assert!(world.edges["Paint_Shop"].deployments.is_empty());
            assert!(world.device().deployments_refused.0.is_empty());
        }
    }
}

#[test]
fn nothing_is_concluded_from_a_configdb_that_is_not_known_completely() {
    let mut world = running();
    let before = world.edges.clone();
    let mut births = world.db.birth();
    births.truncate(2);
    world.feed(births);
    world.settle();
    assert_eq!(world.edges, before);
    assert_eq!(world.state(), SetupState::Ready);
    // And a manager that has only seen a part of it does nothing at all.
    world.manager = ClusterManager::new(settings(), PersistedRepositories::default(), 5, world.now);
    let mut births = world.db.birth();
    births.pop();
    world.feed(births);
    let effects: Vec<Effect> = world.manager.poll_effects();
    let identity = identity_contract::names::node("ACME").unwrap();
    let git = git_server_contract::names::node("ACME").unwrap();
    let expected = [configdb_node(&organisation()), identity, git];
    assert_eq!(effects, expected.map(|node| Effect::Host(HostRequest::Expect { node })));
}

#[test]
fn the_status_stays_when_sync_goes_away() {
    let mut world = running();
    let status = world.db.json(CLUSTER, "EdgeClusterStatus");
    let node = world.edges["Paint_Shop"].address();
    world.feed(vec![HostEvent::NodeDeath { node, timestamp: 0 }]);
    world.settle();
    assert_eq!(world.db.json(CLUSTER, "EdgeClusterStatus"), status);
    assert!(!world.device().sync_alive && !world.device().desired.agreed);
    world.edges.get_mut("Paint_Shop").unwrap().hosts.pop();
    let events = world.edges.get_mut("Paint_Shop").unwrap().birth();
    world.feed(events);
    world.settle();
    let hosts = world.db.json(CLUSTER, "EdgeClusterStatus").unwrap()["hosts"].as_array().unwrap().len();
    assert_eq!(hosts, 1);
}

/// The n-th of some certificates.
fn certificate(n: usize) -> String {
    rcgen::generate_simple_self_signed(vec![format!("sealing-{n}")]).unwrap().cert.pem()
}

#[test]
fn a_status_that_changes_all_the_time_is_written_now_and_then_and_the_last_one_at_last() {
    let mut world = running();
    let before = world.db.revision;
    let certificates: Vec<String> = (0..200).map(certificate).collect();
    for sealing in &certificates {
        let edge = world.edges.get_mut("Paint_Shop").unwrap();
        edge.node.sealing_certificate = Some(sealing.clone());
        let events = edge.birth();
        world.feed(events);
        world.run(Duration::ZERO);
    }
    let written = world.db.revision - before;
    assert!((1..=25).contains(&written), "{written} entries");
    world.run(Duration::from_secs(60));
    let status = world.db.json(CLUSTER, "EdgeClusterStatus").unwrap();
    assert_eq!(status["kubeseal_cert"], certificates[199].as_str());
}

#[test]
fn a_large_status_that_changes_all_the_time_does_not_displace_the_history_of_others() {
    const KIB: usize = 150;
    let mut world = running();
    let mut written = 0;
    // Half an hour, in which six a minute would be allowed by their number.
    for n in 0..30 {
        let edge = world.edges.get_mut("Paint_Shop").unwrap();
        edge.hosts = (0..400)
            .map(|host| HostDevice {
                hostname: format!("host-{host}"),
                operating_system: format!("{n} {}", "x".repeat(200)),
                ..HostDevice::default()
            })
            .collect();
        let events = edge.birth();
        let before = world.db.revision;
        world.feed(events);
        world.run(Duration::from_secs(60));
        written += usize::try_from(world.db.revision - before).unwrap();
    }
    let size = world.db.json(CLUSTER, "EdgeClusterStatus").unwrap().to_string().len() / 1024;
    assert!((KIB / 2..KIB * 2).contains(&size), "{size} KiB");
    assert!(written * size < 3 * 1024, "{written} entries of {size} KiB");
}

#[test]
fn unanswered_commands_are_repeated_with_growing_pauses() {
    let mut world = running();
    world.edges.get_mut("Paint_Shop").unwrap().deaf = true;
    world.put_deployment(Uuid::from_u128(0xD2), "Second");
    world.run(Duration::from_secs(60));
    let edge = world.edges.get_mut("Paint_Shop").unwrap();
    let sent = edge.commands - 2;
    assert!((5..=12).contains(&sent), "{sent}");
    edge.deaf = false;
    world.run(Duration::from_secs(120));
    assert!(world.device().desired.agreed);
    assert_eq!(world.edges["Paint_Shop"].deployments.len(), 2);
}

#[test]
fn a_repetition_that_falls_due_amid_other_news_is_not_forgotten() {
    let mut world = running();
    world.edges.get_mut("Paint_Shop").unwrap().deaf = true;
    world.put_deployment(Uuid::from_u128(0xD2), "Second");
    world.run(Duration::from_millis(100));
    let repetition = world.manager.next_deadline().unwrap();
    // News shortly before it: the comparison at the moment of the repetition is put off.
    for before in [20, 10] {
        world.run(repetition - Duration::from_millis(before) - world.now.mono);
        let edge = world.edges.get_mut("Paint_Shop").unwrap();
        let metrics = edge.node_metrics();
        let news = HostEvent::NodeData { node: edge.address(), timestamp: 0, metrics };
        world.feed(vec![news]);
    }
    world.edges.get_mut("Paint_Shop").unwrap().deaf = false;
    world.run(Duration::from_secs(120));
    assert!(world.device().desired.agreed);
    assert_eq!(world.edges["Paint_Shop"].deployments.len(), 2);
}

#[test]
fn a_refusal_at_the_edge_is_reported_and_retried_when_asked() {
    let mut world = running();
    world.edges.get_mut("Paint_Shop").unwrap().refuses = true;
    world.put(
        DEPLOYMENT,
        "EdgeDeployment",
        json!({"cluster": CLUSTER, "name": "Robot_Cell_3", "chart": known::chart::EDGE_AGENT, "hostname": "gw"}),
    );
    world.run(Duration::from_secs(300));
    let edge = world.edges.get_mut("Paint_Shop").unwrap();
    assert_eq!(edge.commands, 4, "an index and manifests, once each");
    assert_eq!(edge.deployments[&DEPLOYMENT].state, DeploymentState::Refused);
    edge.refuses = false;
    assert_eq!(world.device().deployments_refused.0[&DEPLOYMENT], "refused by the edge: not here");
    let command = NodeEvent::Command {
        device: Some(names::device(CLUSTER, "Paint_Shop")),
        metrics: names::retry_command(),
        timestamp: None,
    };
    world.manager.on_event(Event::Node(command), world.now);
    world.settle();
    assert_eq!(world.edges["Paint_Shop"].deployments[&DEPLOYMENT].state, DeploymentState::Applied);
    let device = &world.edges["Paint_Shop"].deployments[&DEPLOYMENT];
    assert!(device.version > 0);
}

#[test]
fn a_broken_disk_is_reported_and_tried_again() {
    let mut world = World::new(Kill::Never);
    world.disk.broken = true;
    world.put_cluster(CLUSTER, "A");
    world.settle();
    assert_eq!((world.state(), world.device().setup.step), (SetupState::SettingUp, SetupStep::GitConfig));
    assert_eq!(world.device().setup.reason.as_deref(), Some("disk full"));
    world.disk.broken = false;
    world.run(Duration::from_secs(60));
    assert_eq!((world.state(), &world.device().setup.reason), (SetupState::Ready, &None));
}

#[test]
fn a_refusing_configdb_is_reported_and_tried_again() {
    let mut world = World::new(Kill::Never);
    world.db.refuse = Some("read-only");
    world.put_cluster(CLUSTER, "A");
    world.settle();
    assert_eq!(world.state(), SetupState::SettingUp);
    assert_eq!(world.device().setup.reason.as_deref(), Some("ConfigDB refused a step: read-only"));
    world.db.refuse = None;
    world.run(Duration::from_secs(60));
    assert_eq!((world.state(), &world.device().setup.reason), (SetupState::Ready, &None));
}

#[test]
fn a_sync_of_another_cluster_is_sent_nothing() {
    let mut world = World::new(Kill::Never);
    world.put_cluster(CLUSTER, "A");
    world.put_deployment(DEPLOYMENT, "D");
    world.settle();
    world.bootstrap(OTHER, "A");
    world.settle();
    assert_eq!(world.edges["A"].commands, 0);
    assert!(!world.device().sync_alive);
    assert!(world.device().setup.reason.as_ref().unwrap().contains("says that it is of cluster"));
    assert_eq!(world.db.json(CLUSTER, "EdgeClusterStatus"), None);
}

#[test]
fn a_deployment_that_moves_to_another_cluster_leaves_the_first() {
    let mut world = running();
    world.put_cluster(OTHER, "Welding");
    world.settle();
    world.bootstrap(OTHER, "Welding");
    world.put(
        DEPLOYMENT,
        "EdgeDeployment",
        json!({"cluster": OTHER, "name": "Robot_Cell_3", "chart": known::chart::EDGE_AGENT}),
    );
    world.settle();
    assert!(world.edges["Paint_Shop"].deployments.is_empty());
    assert_eq!(world.edges["Welding"].deployments[&DEPLOYMENT].state, DeploymentState::Applied);
    assert_eq!(world.node.deployments_total, 1);
}

#[test]
fn a_name_stays_with_the_deployment_that_runs_at_the_edge_also_against_an_older_one_and_after_a_restart() {
    let mut world = running();
    let older = Uuid::from_u128(1);
    let entry = json!({"cluster": CLUSTER, "name": "Robot_Cell_3", "chart": known::chart::EDGE_AGENT, "createdAt": "1999-01-01"});
    world.put(older, "EdgeDeployment", entry);
    world.settle();
    world.start();
    world.settle();
    assert_eq!(world.edges["Paint_Shop"].deployments.keys().collect::<Vec<_>>(), [&DEPLOYMENT]);
    assert!(world.device().deployments_refused.0[&older].contains("is taken by deployment"));
}

#[test]
fn of_two_deployments_with_one_name_the_older_keeps_it() {
    let mut world = running();
    let second = Uuid::from_u128(1);
    world.put(second, "EdgeDeployment", json!({"cluster": CLUSTER, "name": "Robot_Cell_3", "chart": known::chart::EDGE_AGENT, "createdAt": "2026-02-02"}));
    world.settle();
    assert_eq!(world.edges["Paint_Shop"].deployments.keys().collect::<Vec<_>>(), [&DEPLOYMENT]);
    assert!(world.device().deployments_refused.0[&second].contains("is taken by deployment"));
    world.delete(DEPLOYMENT, "EdgeDeployment");
    world.settle();
    assert_eq!(world.edges["Paint_Shop"].deployments.keys().collect::<Vec<_>>(), [&second]);
}

#[test]
fn an_agent_configuration_travels_with_its_deployment_and_a_change_of_it_is_sent() {
    let mut world = running();
    let before = world.edges["Paint_Shop"].deployments[&DEPLOYMENT].digest;
    world.put(DEPLOYMENT, "AgentConfig", json!({"deviceConnections": []}));
    world.settle();
    let with = world.edges["Paint_Shop"].deployments[&DEPLOYMENT].digest;
    assert_ne!(with, before);
    world.delete(DEPLOYMENT, "AgentConfig");
    world.settle();
    assert_eq!(world.edges["Paint_Shop"].deployments[&DEPLOYMENT].digest, before);
}

#[test]
fn a_burst_of_deployments_is_a_few_indexes() {
    let mut world = running();
    for n in 0..200_u128 {
        world.put_deployment(Uuid::from_u128(0x1_0000 + n), &format!("D{n}"));
    }
    world.settle();
    let edge = &world.edges["Paint_Shop"];
    assert_eq!(edge.deployments.values().filter(|device| device.state == DeploymentState::Applied).count(), 201);
    assert!(edge.commands < 2 + 200 + 10, "{}", edge.commands);
    assert!(world.device().desired.agreed);
}

#[test]
fn another_store_is_learnt_from_nothing_and_tears_nothing_down() {
    let mut world = running();
    let (disk, edges) = (world.disk.clone(), world.edges.clone());
    let mut other = ConfigDb::new();
    let mut births = other.birth();
    let HostEvent::NodeBirth { metrics, .. } = &mut births[0] else { panic!() };
    let mut changed: Vec<Metric> = metrics.to_vec();
    changed[0] = Metric::new(configdb_contract::names::CONFIG_STORE, OTHER.to_string());
    *metrics = changed.into();
    world.feed(births);
    std::mem::swap(&mut world.db, &mut other);
    world.settle();
    assert_eq!((world.disk, world.edges), (disk, edges));
    assert!(world.devices.is_empty());
    assert_eq!(world.node.clusters_total, 0);
}
