//! A cluster in memory, and effects and reports as short texts, so that a test reads like a table.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use edge_sync_contract::{
    DeploymentDevice, DesiredDeployment, DesiredIndex, DesiredManifests, Digest, HostDevice, SyncDevice, SyncNode,
};
use serde_json::{Value, json};
use sparkplug::edge_node::{NodeEvent, NodeUpdate};
use sparkplug::host::HostRequest;
use sparkplug::{DeviceId, EdgeNodeDescriptor, Metric, Now, TypedMetrics};
use uuid::Uuid;

use crate::event::{Deletion, Effect, ErrorClass, Event, KubernetesError, Observation, PreparedObject};
use crate::flux::FluxReport;
use crate::hosts::ObservedNode;
use crate::object::{ANNOTATION_GENERATION, Kind, LABEL_UUID, ObjectKey, ObservedObject, Readiness};
use crate::record::{IndexRecord, StoredRecord};
use crate::state::prune::PruneLimits;
use crate::state::{Settings, State};

pub(super) const SECOND: Duration = Duration::from_secs(1);

pub(super) fn config_map() -> Kind {
    "v1/ConfigMap".parse().unwrap()
}

pub(super) fn release() -> Kind {
    "helm.toolkit.fluxcd.io/v2/HelmRelease".parse().unwrap()
}

pub(super) fn settings() -> Settings {
    Settings {
        cluster_uuid: Uuid::from_u128(0xC),
        cluster_name: "Cell".to_owned(),
        version: "1".to_owned(),
        simulated: true,
        namespace: "edge".to_owned(),
        kinds: vec![release(), config_map()],
        applies_max: 2,
        retry: (SECOND, 60 * SECOND),
        prune: PruneLimits { max_per_pass: 20, interval: 10 * SECOND, max_percent: 50, guard_delay: 60 * SECOND },
        sealing: false,
        sealing_refresh: 3600 * SECOND,
        sealing_retry: (5 * SECOND, 3600 * SECOND),
        seed: 1,
    }
}

pub(super) fn uuid(n: u128) -> Uuid {
    Uuid::from_u128(n)
}

/// Manifests of ConfigMaps with these names; `content` makes the digest. [`manifests_command`] gives them the name of their deployment.
pub(super) fn manifests(version: u64, content: u64, names: &[&str]) -> DesiredManifests {
    let objects = names.iter().map(|name| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"content": content.to_string()}})
    });
    DesiredManifests::new(version, "Cell 1", objects.collect())
}

pub(super) fn index(version: u64, deployments: &[(u128, &DesiredManifests)]) -> DesiredIndex {
    let entries = deployments.iter().map(|(n, manifests)| (uuid(*n), manifests.entry()));
    DesiredIndex {
        version,
        deployments: entries.collect(),
        origin: None,
        follows: None,
        decided_for: None,
        entries: None,
        names: deployments.iter().map(|(n, _)| (uuid(*n), format!("Cell {n}"))).collect(),
    }
}

pub(super) fn sync() -> EdgeNodeDescriptor {
    EdgeNodeDescriptor::parse("ACME-Cell", "Sync").unwrap()
}

pub(super) fn command(request: HostRequest) -> Event {
    let HostRequest::Command { device, metrics, .. } = request else { panic!("a command") };
    Event::Node(NodeEvent::Command { device, metrics, timestamp: None })
}

pub(super) fn index_command(index: &DesiredIndex) -> Event {
    command(index.to_request(sync()))
}

pub(super) fn manifests_command(n: u128, manifests: &DesiredManifests) -> Event {
    let mut named = manifests.clone();
    named.name = format!("Cell {n}");
    command(named.to_request(sync(), SyncDevice::deployment_id(uuid(n), &named.name), uuid(n)))
}

pub(super) fn key(name: &str) -> ObjectKey {
    ObjectKey { kind: config_map(), name: name.to_owned() }
}

pub(super) fn error(class: ErrorClass, message: &str) -> KubernetesError {
    KubernetesError { class, message: message.to_owned() }
}

pub(super) fn host(name: &str, ready: bool) -> ObservedNode {
    ObservedNode {
        node: name.to_owned(),
        host: HostDevice { hostname: name.to_owned(), ready, ..HostDevice::default() },
    }
}

/// An object of the cluster.
#[derive(Debug, Clone)]
struct Stored {
    body: Value,
    has_finalizer: bool,
}

/// A cluster: applies, deletes and watches like an API server, one step at a time.
#[derive(Debug, Default)]
pub(super) struct Cluster {
    objects: BTreeMap<ObjectKey, Stored>,
    record: Option<(String, u64)>,
    version: u64,
    uids: u64,
    /// What watches have not delivered yet, in order.
    pub watch: VecDeque<Event>,
    /// Objects that were really deleted, with the deployment that they belonged to.
    pub deleted: Vec<(ObjectKey, Option<Uuid>)>,
    /// Objects get a finalizer when they are made.
    pub finalizers: bool,
    pub is_away: bool,
    /// Someone changes each object that is applied.
    pub is_fought: bool,
    /// Applies of these objects fail.
    pub failing: BTreeMap<ObjectKey, KubernetesError>,
    /// What Flux has made of the cluster's repository.
    pub flux: FluxReport,
    /// Whether what releases have made runs; None: it does.
    pub workloads: Option<Readiness>,
}

impl Cluster {
    pub(super) fn observed(&self, key: &ObjectKey) -> Option<ObservedObject> {
        let stored = self.objects.get(key)?;
        ObservedObject::read(&key.kind, &serde_json::from_value(stored.body.clone()).unwrap())
    }

    pub(super) fn keys(&self) -> Vec<String> {
        self.objects.keys().map(|key| key.name.clone()).collect()
    }

    pub(super) fn record(&self) -> Option<IndexRecord> {
        self.record.as_ref().map(|(text, _)| IndexRecord::from_text(text).unwrap())
    }

    pub(super) fn owner(&self, key: &ObjectKey) -> Option<Uuid> {
        self.observed(key).and_then(|object| object.deployment)
    }

    pub(super) fn digest(&self, key: &ObjectKey) -> Option<Digest> {
        self.observed(key).and_then(|object| object.digest)
    }

    /// Someone makes an object of their own.
    pub(super) fn make_foreign(&mut self, name: &str) {
        let body = json!({"metadata": {"name": name, "uid": format!("foreign-{name}"), "resourceVersion": "1"}});
        self.objects.insert(key(name), Stored { body, has_finalizer: false });
    }

    fn next(&mut self) -> String {
        self.version += 1;
        self.version.to_string()
    }

    fn apply(&mut self, object: &PreparedObject) -> Result<ObservedObject, KubernetesError> {
        if let Some(error) = self.failing.get(&object.key) {
            return Err(error.clone());
        }
        let known = self.objects.get(&object.key);
        if !object.is_ours && known.is_some() && self.observed(&object.key).is_none() {
            return Err(error(ErrorClass::Refused, "exists and is not managed by Sync"));
        }
        let uid = known.map(|known| known.body["metadata"]["uid"].clone());
        let deletion = known.map(|known| known.body["metadata"]["deletionTimestamp"].clone());
        let has_finalizer = known.map_or(self.finalizers, |known| known.has_finalizer);
        let mut body = object.body.clone();
        let generation = known.map_or(1, |known| {
            let before = known.body["metadata"]["generation"].as_i64().unwrap_or(1);
            before + i64::from(known.body["data"] != body["data"])
        });
        self.uids += 1;
        body["metadata"]["uid"] = uid.unwrap_or_else(|| json!(format!("uid-{}", self.uids)));
        body["metadata"]["resourceVersion"] = json!(self.next());
        if let Some(deletion) = deletion.filter(|deletion| !deletion.is_null()) {
            body["metadata"]["deletionTimestamp"] = deletion;
        }
        body["metadata"]["generation"] = json!(generation);
        body["metadata"]["annotations"][ANNOTATION_GENERATION] = json!(generation.to_string());
        self.objects.insert(object.key.clone(), Stored { body, has_finalizer });
        let observed = self.observed(&object.key).unwrap();
        self.watch.push_back(Event::Objects(object.key.kind.clone(), Observation::Changed(observed.clone())));
        Ok(observed)
    }

    /// Someone changes what is desired of an object.
    pub(super) fn edit(&mut self, key: &ObjectKey) {
        let version = self.next();
        let stored = self.objects.get_mut(key).unwrap();
        let generation = stored.body["metadata"]["generation"].as_i64().unwrap();
        stored.body["data"] = json!({"by": "someone"});
        stored.body["metadata"]["generation"] = json!(generation + 1);
        stored.body["metadata"]["resourceVersion"] = json!(version);
        let observed = self.observed(key).unwrap();
        self.watch.push_back(Event::Objects(key.kind.clone(), Observation::Changed(observed)));
    }

    /// Deletes, or marks what has a finalizer.
    pub(super) fn delete(&mut self, key: &ObjectKey) -> Option<Deletion> {
        let observed = self.observed(key)?;
        let version = self.next();
        let stored = self.objects.get_mut(key)?;
        if stored.has_finalizer {
            stored.body["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            stored.body["metadata"]["resourceVersion"] = json!(version);
            let observed = self.observed(key)?;
            self.watch.push_back(Event::Objects(key.kind.clone(), Observation::Changed(observed)));
            return Some(Deletion::Waiting);
        }
        self.objects.remove(key);
        self.deleted.push((key.clone(), observed.deployment));
        self.watch.push_back(Event::Objects(key.kind.clone(), Observation::Gone(observed)));
        Some(Deletion::Gone)
    }

    /// Flux takes its finalizers away.
    pub(super) fn finish_deletions(&mut self) {
        let going: Vec<_> = self
            .objects
            .iter()
            .filter(|(_, stored)| !stored.body["metadata"]["deletionTimestamp"].is_null())
            .map(|(key, _)| key.clone())
            .collect();
        for key in going {
            self.objects.get_mut(&key).unwrap().has_finalizer = false;
            self.delete(&key);
        }
    }

    /// All watches list again.
    pub(super) fn list(&self) -> Vec<Event> {
        let mut events = vec![Event::Nodes(Observation::Listed(vec![host("a", true)]))];
        for kind in settings().kinds {
            let of_kind = self.objects.keys().filter(|key| key.kind == kind);
            let observed = of_kind.filter_map(|key| self.observed(key)).collect();
            events.push(Event::Objects(kind, Observation::Listed(observed)));
        }
        events
    }

    /// Executes an effect; yields the answer.
    pub(super) fn execute(&mut self, effect: Effect) -> Option<Event> {
        let away = || error(ErrorClass::Unreachable, "connection refused");
        match effect {
            Effect::LoadIndex if self.is_away => Some(Event::IndexLoaded(Err(away()))),
            Effect::LoadIndex => {
                let record = self.record();
                let resource_version = self.record.as_ref().map(|(_, version)| version.to_string());
                Some(Event::IndexLoaded(Ok(StoredRecord { record, resource_version, unreadable: None })))
            }
            Effect::SaveIndex { .. } if self.is_away => Some(Event::IndexNotSaved(away())),
            Effect::SaveIndex { record, replaces, then } => {
                if replaces != self.record.as_ref().map(|(_, version)| version.to_string()) {
                    return Some(Event::IndexNotSaved(error(ErrorClass::Conflict, "another writer wrote it")));
                }
                let resource_version = self.next();
                let (_, saved) = then
                    .commit(|| {
                        self.record = Some((record.to_text(), self.version));
                        Ok::<_, ()>(())
                    })
                    .unwrap();
                Some(Event::IndexSaved { resource_version, saved })
            }
            Effect::Apply { deployment, objects, .. } => {
                let mut applied = Vec::new();
                for object in objects {
                    match if self.is_away { Err(away()) } else { self.apply(&object) } {
                        Ok(observed) => {
                            applied.push(observed);
                            if self.is_fought {
                                self.edit(&object.key);
                            }
                        }
                        Err(error) => {
                            return Some(Event::Applied { deployment, applied, failed: Some((object.key, error)) });
                        }
                    }
                }
                Some(Event::Applied { deployment, applied, failed: None })
            }
            Effect::Delete { key, uid, resource_version } => {
                let result = match self.observed(&key) {
                    _ if self.is_away => Err(away()),
                    None => Ok(Deletion::Gone),
                    Some(observed) if observed.uid != uid || observed.resource_version != resource_version => {
                        Err(error(ErrorClass::Conflict, "precondition"))
                    }
                    Some(_) => Ok(self.delete(&key).unwrap()),
                };
                Some(Event::Deleted { key, uid, result })
            }
            Effect::Probe => Some(Event::Probed(if self.is_away { Err(away()) } else { Ok(()) })),
            Effect::Annotate(_) => Some(Event::Annotated(if self.is_away { Err(away()) } else { Ok(()) })),
            Effect::LookAtFlux => Some(Event::FluxSeen(if self.is_away { Err(away()) } else { Ok(self.flux.clone()) })),
            Effect::LookAtWorkloads { release } => {
                let runs = self.workloads.clone().unwrap_or(Readiness { ready: Some(true), message: None });
                Some(Event::WorkloadsSeen { release, seen: if self.is_away { Err(away()) } else { Ok(runs) } })
            }
            Effect::FetchCertificate => Some(Event::Certificate(Err(error(ErrorClass::Refused, "503")))),
            Effect::Birth(_) | Effect::Node(_) | Effect::Ready { .. } => None,
        }
    }
}

/// What listeners know from births, data and deaths.
#[derive(Debug, Default)]
pub(super) struct Published {
    pub node: Option<SyncNode>,
    pub devices: BTreeMap<DeviceId, Vec<Metric>>,
}

impl Published {
    pub(super) fn take(&mut self, effect: &Effect) {
        match effect {
            Effect::Birth(metrics) => self.node = Some(SyncNode::from_metrics(metrics).unwrap()),
            Effect::Node(NodeUpdate::Set { device: None, metrics }) => {
                self.node.get_or_insert_default().merge(metrics).unwrap();
            }
            Effect::Node(NodeUpdate::DeviceBirth { device, metrics }) => {
                self.devices.insert(device.clone(), metrics.clone());
            }
            Effect::Node(NodeUpdate::DeviceDeath { device }) => {
                assert!(self.devices.remove(device).is_some(), "death of a device that was never born: {device}");
            }
            _ => {}
        }
    }

    pub(super) fn deployment(&self, n: u128) -> Option<DeploymentDevice> {
        let deployments = self.devices.iter().filter(|(device, _)| device.as_str().starts_with("deployment-"));
        let mut deployments = deployments.map(|(_, metrics)| DeploymentDevice::from_metrics(metrics).unwrap());
        deployments.find(|device| device.uuid == uuid(n))
    }

    pub(super) fn deployments(&self) -> usize {
        self.devices.keys().filter(|device| device.as_str().starts_with("deployment-")).count()
    }
}

/// A state with a clock and a cluster.
#[derive(Debug)]
pub(super) struct Bench {
    pub state: State,
    pub now: Now,
    pub cluster: Cluster,
    pub published: Published,
}

impl Bench {
    pub(super) fn new(settings: Settings, cluster: Cluster) -> Self {
        let now = Now::new(1000 * SECOND, 1_700_000_000_000);
        Self { state: State::new(settings, now), now, cluster, published: Published::default() }
    }

    /// A state that has been born on an empty cluster.
    pub(super) fn born() -> Self {
        let mut bench = Self::new(settings(), Cluster::default());
        bench.start();
        bench
    }

    /// Another process on the same cluster.
    pub(super) fn restarted(self) -> Self {
        let mut bench = Self::new(settings(), Cluster { watch: VecDeque::new(), ..self.cluster });
        bench.start();
        bench
    }

    /// Everything is listed and loaded.
    pub(super) fn start(&mut self) -> Vec<String> {
        let mut shown = self.run();
        for event in self.cluster.list() {
            self.state.on_event(event, self.now);
        }
        shown.extend(self.run());
        shown
    }

    /// Effects of one event, nothing executed.
    pub(super) fn effects(&mut self, event: Event) -> Vec<Effect> {
        self.state.on_event(event, self.now);
        self.take()
    }

    pub(super) fn take(&mut self) -> Vec<Effect> {
        let effects: Vec<_> = self.state.poll_effects();
        effects.iter().for_each(|effect| self.published.take(effect));
        effects
    }

    /// As [`Bench::effects`], as texts.
    pub(super) fn on(&mut self, event: Event) -> Vec<String> {
        let effects = self.effects(event);
        self.texts(&effects)
    }

    /// Effects that were taken last, as texts.
    pub(super) fn texts(&self, effects: &[Effect]) -> Vec<String> {
        effects.iter().map(|effect| show(effect, self.published.node.as_ref())).collect()
    }

    /// Executes all effects and delivers to the watches until nothing is left; the texts of all effects.
    pub(super) fn run(&mut self) -> Vec<String> {
        let mut shown = Vec::new();
        loop {
            let effects = self.take();
            if effects.is_empty() {
                let Some(event) = self.cluster.watch.pop_front() else { return shown };
                self.state.on_event(event, self.now);
                continue;
            }
            for effect in effects {
                shown.push(show(&effect, self.published.node.as_ref()));
                if let Some(answer) = self.cluster.execute(effect) {
                    self.state.on_event(answer, self.now);
                }
            }
        }
    }

    /// One event with all that follows from it.
    pub(super) fn run_on(&mut self, event: Event) -> Vec<String> {
        self.state.on_event(event, self.now);
        self.run()
    }

    /// Lets time pass, up to and including `until`, with all that follows.
    pub(super) fn pass(&mut self, duration: Duration) -> Vec<String> {
        let end = self.now.mono + duration;
        let mut shown = Vec::new();
        while let Some(at) = self.state.next_deadline().filter(|at| *at <= end) {
            assert!(at > self.now.mono, "a deadline of {at:?} that has passed at {:?}", self.now.mono);
            self.advance(at);
            shown.extend(self.run_on(Event::DeadlineReached));
        }
        self.advance(end);
        shown
    }

    fn advance(&mut self, to: Duration) {
        self.now.wall += u64::try_from((to - self.now.mono).as_millis()).unwrap();
        self.now.mono = to;
    }

    /// Applies deployments and expects them in place.
    pub(super) fn deploy(&mut self, version: u64, deployments: &[(u128, &DesiredManifests)]) {
        self.run_on(index_command(&index(version, deployments)));
        for (n, manifests) in deployments {
            self.run_on(manifests_command(*n, manifests));
        }
        for (n, manifests) in deployments {
            assert!(self.published.deployment(*n).unwrap().is_applied(manifests.digest()));
        }
    }
}

/// An effect as a short text; `node` is what listeners know of the node after it.
fn show(effect: &Effect, node: Option<&SyncNode>) -> String {
    match effect {
        Effect::LoadIndex => "load".to_owned(),
        Effect::SaveIndex { record, replaces, .. } => {
            format!("save {} over {}", record.index.version, replaces.as_deref().unwrap_or("nothing"))
        }
        Effect::Apply { deployment, objects, .. } => {
            let names: Vec<_> = objects.iter().map(|object| &*object.key.name).collect();
            let labelled = objects.iter().all(|o| o.body["metadata"]["labels"][LABEL_UUID] == deployment.to_string());
            assert!(labelled, "every object carries the label of its deployment");
            format!("apply {}: {}", deployment.as_u128(), names.join(" "))
        }
        Effect::Delete { key, .. } => format!("delete {}", key.name),
        Effect::LookAtFlux => "look at Flux".to_owned(),
        Effect::LookAtWorkloads { release } => format!("look at what {release} has made"),
        Effect::Annotate(sources) => format!("annotate {}", sources.repository),
        Effect::FetchCertificate => "certificate".to_owned(),
        Effect::Probe => "probe".to_owned(),
        Effect::Birth(_) => format!("birth {}", show_node(node.unwrap())),
        Effect::Ready { ready, reason } => format!("ready {ready}: {reason}"),
        Effect::Node(NodeUpdate::Set { device: None, .. }) => format!("node {}", show_node(node.unwrap())),
        Effect::Node(NodeUpdate::DeviceDeath { device }) => format!("gone {}", short(device)),
        Effect::Node(NodeUpdate::Historical { device: None, .. }) => "again index".to_owned(),
        Effect::Node(NodeUpdate::Historical { device: Some(device), .. }) => format!("again {}", short(device)),
        Effect::Node(NodeUpdate::DeviceBirth { device, metrics }) => match SyncDevice::parse(device).unwrap() {
            SyncDevice::Host(name) => format!("host {name} ready={}", HostDevice::from_metrics(metrics).unwrap().ready),
            SyncDevice::Deployment(_) => {
                let device = DeploymentDevice::from_metrics(metrics).unwrap();
                let reason = device.reason.map(|reason| format!(" ({reason})")).unwrap_or_default();
                format!("{}: {} v{}{reason}", device.uuid.as_u128(), device.state, device.version)
            }
        },
        Effect::Node(NodeUpdate::Stop) => "stop".to_owned(),
        Effect::Node(other) => panic!("unexpected {other:?}"),
    }
}

fn short(device: &DeviceId) -> String {
    match SyncDevice::parse(device).unwrap() {
        SyncDevice::Host(name) => name,
        SyncDevice::Deployment(device) => {
            let name = device.as_str().trim_start_matches("deployment-");
            let number = name.parse::<Uuid>().ok().map(|uuid| uuid.as_u128().to_string());
            number.unwrap_or_else(|| name.trim_start_matches("Cell ").to_owned())
        }
    }
}

fn show_node(node: &SyncNode) -> String {
    let error = node.desired_error.as_ref().map(|error| format!(" ({error})")).unwrap_or_default();
    let SyncNode { desired_version, hosts_ready, hosts_total, deployments_ready, deployments_total, .. } = node;
    format!(
        "v{desired_version} hosts {hosts_ready}/{hosts_total} deployments {deployments_ready}/{deployments_total}{error}"
    )
}

pub(super) fn entry(version: u64, digest: Digest) -> DesiredDeployment {
    DesiredDeployment { version, digest }
}
