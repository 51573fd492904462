//! The whole state against a ConfigDB, a disk and Syncs that live in this file, with the manager killed wherever it can be. The tests are in the folder beside it.

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
use manifests::git_address::GitAddress;
use serde_json::{Value, json};
use sparkplug::replication::{DesiredReceiver, Outcome as Judgement, Timelines};
use sparkplug::{BdSeq, DeviceId, EdgeNodeDescriptor, TypedMetrics};
use std::sync::Arc;

mod accounts;
mod deployments;
mod git_copies;
mod git_users;
mod logins;
mod policy;
mod principals;
mod recovery;
mod repositories;
mod rollout;
mod secrets;
mod set_up;
mod shared_repositories;
mod status;
mod tear_down;

use super::*;
use crate::bootstrap::{BootstrapGrant, OfferedToken};
use crate::event::{GitAction, GitOutcome, GitResult, GitWork, LoginResult, PrincipalsResult, PrincipalsWork};
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
                assert!(
                    desired.origin.is_some(),
                    "Sync refuses what comes from nowhere, and says so for good: {desired:?}"
                );
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
        let before = (self.at.get(&work.cluster).copied(), self.open.get(&work.cluster).cloned());
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
                    let outcome = GitOutcome::Held { commit, wanted_by, secrets };
                    return GitResult { cluster: work.cluster, outcome, is_as_before: false };
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
        let is_as_before = before == (self.at.get(&work.cluster).copied(), self.open.get(&work.cluster).cloned());
        GitResult { cluster: work.cluster, outcome, is_as_before }
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
    answers: Vec<crate::git_users::GitResponse>,
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
            Effect::GitResponse(answer) => self.answers.push(*answer),
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
            Effect::Host(HostRequest::Rebirth { node }) if node == configdb_node(&organisation()) => {
                let births = self.db.birth();
                self.feed(births);
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
            if !self.manager.effects.is_empty() || self.manager.turn.is_some() {
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
