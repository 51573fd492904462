//! The API server of each cluster, at the level at which the adapters of edge sync and edge monitor speak to it; and what lives in a cluster: Flux, and the pods of edge agents.
//!
//! An object is JSON, as Sync applies it; what Sync sees of it is read by Sync's own reader. Flux looks at a HelmRelease after a while and gives its verdict; a release
//! that is there runs an edge agent of the deployment's name, with a SparkplugNode resource.

use std::collections::BTreeMap;
use std::time::Duration;

use edge_monitor::event::{AGENT_CONFIG_PREFIX, AgentConfig, Event as MonitorEvent, REVISION_ANNOTATION, Watch};
use edge_monitor::spec::NodeResource;
use edge_sync::event::{Deletion, Effect, ErrorClass, Event, KubernetesError, Observation};
use edge_sync::flux::FluxReport;
use edge_sync::hosts::ObservedNode;
use edge_sync::object::{
    ANNOTATION_GENERATION, ANNOTATION_NAME, Kind, LABEL_MANAGED_BY, LABEL_UUID, MANAGER, ObjectKey, ObservedObject,
    Readiness, WatchedObject,
};
use edge_sync::record::{IndexRecord, StoredRecord};
use edge_sync_contract::{HostDevice, Sources};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::fleet::Role;
use crate::mutation::Mutation;
use crate::program::Input;
use crate::world::{ClusterId, Happening, ProcessId, World, trace};

/// Namespace of a cluster's own services and deployments.
pub const NAMESPACE: &str = "fplus-edge";
/// Kind whose objects run something.
const RELEASE: &str = "helm.toolkit.fluxcd.io/v2/HelmRelease";
/// A certificate as far as Sync looks.
const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n";

/// Kinds that Sync may apply and watches.
#[must_use]
pub fn kinds() -> Vec<Kind> {
    [RELEASE, "source.toolkit.fluxcd.io/v1/GitRepository", "v1/ConfigMap"]
        .map(|text| text.parse().expect("these are kinds"))
        .to_vec()
}

/// Something in the API server.
#[derive(Debug, Clone)]
pub struct Object {
    /// Differs from that of another object of the same name.
    pub uid: String,
    /// Of its last change.
    pub version: u64,
    /// Counts changes of what is wanted.
    pub generation: i64,
    /// As it was applied.
    pub body: Value,
    /// Flux' verdict: generation, ready, message.
    verdict: Option<(i64, bool, String)>,
    is_deleting: bool,
}

/// One cluster.
#[derive(Debug)]
pub struct Cluster {
    /// Its name.
    pub name: String,
    /// Its object in ConfigDB.
    pub uuid: Uuid,
    /// Objects of the kinds that Sync watches.
    pub objects: BTreeMap<ObjectKey, Object>,
    /// ConfigMap of the accepted index, and its version.
    pub record: Option<(String, u64)>,
    /// The API server does not answer until then.
    pub down_until: Option<Duration>,
    /// Its database has no room until then: everything can be read and deleted, nothing can be written.
    pub full_until: Option<Duration>,
    /// The commits that Flux was asked to fetch last.
    pub flux_sources: Option<Sources>,
    nodes: BTreeMap<String, HostDevice>,
    sparkplug_nodes: BTreeMap<String, NodeResource>,
    secrets: BTreeMap<String, edge_monitor::config_freshness::SealedSecret>,
    version: u64,
    /// News reach a watcher in order: not before this time.
    news_at: Duration,
}

/// What the API server or Flux has to do.
#[derive(Debug)]
pub enum Work {
    /// For Sync.
    Sync(ProcessId, u64, Box<Effect>),
    /// Flux looks at a release.
    Flux(ObjectKey, String),
    /// An object with a finalizer goes at last.
    Finalize(ObjectKey, String),
}

/// True if the API server counts the changes of what is desired of such an object: not of ConfigMaps and Secrets.
fn is_counted(kind: &Kind) -> bool {
    !matches!(&*kind.kind, "ConfigMap" | "Secret")
}

impl Cluster {
    /// A cluster of that many hosts with nothing on it.
    #[must_use]
    pub fn new(name: String, uuid: Uuid, hosts: usize) -> Self {
        let host = |n: usize| {
            let hostname = format!("{}-{n}", name.to_lowercase());
            let host = HostDevice {
                hostname: hostname.clone(),
                architecture: "amd64".to_owned(),
                kubernetes_version: "v1.34.1+k3s1".to_owned(),
                operating_system: "simulated".to_owned(),
                control_plane: n == 0,
                ready: true,
                specialised: None,
                ..HostDevice::default()
            };
            (hostname, host)
        };
        Self {
            nodes: (0..hosts).map(host).collect(),
            name,
            uuid,
            objects: BTreeMap::new(),
            record: None,
            down_until: None,
            full_until: None,
            sparkplug_nodes: BTreeMap::new(),
            secrets: BTreeMap::new(),
            flux_sources: None,
            version: 1,
            news_at: Duration::ZERO,
        }
    }

    /// The accepted index as it is stored.
    #[must_use]
    pub fn accepted(&self) -> Option<IndexRecord> {
        self.record.as_ref().and_then(|(text, _)| IndexRecord::from_text(text).ok())
    }

    /// The revision in the ConfigMap of an agent's configuration.
    #[must_use]
    pub fn wanted_revision(&self, agent: Uuid) -> Option<String> {
        let name = format!("{AGENT_CONFIG_PREFIX}{agent}");
        let config = self.objects.iter().find(|(key, _)| key.name == name);
        config.and_then(|(_, object)| annotation(&object.body, REVISION_ANNOTATION)).map(str::to_owned)
    }

    /// Deployments that have a release, with the names of their agents.
    pub fn agents(&self) -> impl Iterator<Item = (Uuid, String)> {
        let releases =
            self.objects.iter().filter(|(key, object)| &*key.kind.kind == "HelmRelease" && !object.is_deleting);
        releases.filter_map(|(_, object)| {
            Some((deployment(&object.body)?, annotation(&object.body, ANNOTATION_NAME)?.to_owned()))
        })
    }

    /// Names of the SealedSecrets that exist.
    #[must_use]
    pub fn secret_names(&self) -> Vec<String> {
        self.secrets.keys().cloned().collect()
    }

    fn next_version(&mut self) -> u64 {
        self.version += 1;
        self.version
    }

    fn observe(key: &ObjectKey, object: &Object) -> Option<ObservedObject> {
        let mut body = object.body.clone();
        body["metadata"]["uid"] = object.uid.clone().into();
        body["metadata"]["resourceVersion"] = object.version.to_string().into();
        if is_counted(&key.kind) {
            body["metadata"]["generation"] = object.generation.into();
        }
        if object.is_deleting {
            body["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        }
        if let Some((generation, ready, message)) = &object.verdict {
            let status = if *ready { "True" } else { "False" };
            body["status"] = json!({"observedGeneration": generation, "conditions": [
                {"type": "Ready", "status": status, "message": message, "observedGeneration": generation}]});
        }
        let watched: WatchedObject = serde_json::from_value(body).expect("an applied object has the form of one");
        ObservedObject::read(&key.kind, &watched)
    }

    fn list(&self, kind: &Kind) -> Vec<ObservedObject> {
        let objects = self.objects.iter().filter(|(key, _)| key.kind == *kind);
        objects.filter_map(|(key, object)| Self::observe(key, object)).collect()
    }
}

fn annotation<'a>(body: &'a Value, name: &str) -> Option<&'a str> {
    body["metadata"]["annotations"][name].as_str()
}

fn deployment(body: &Value) -> Option<Uuid> {
    body["metadata"]["labels"][LABEL_UUID].as_str()?.parse().ok()
}

fn unreachable() -> KubernetesError {
    KubernetesError { class: ErrorClass::Unreachable, message: "connection refused".to_owned() }
}

/// What came of carrying out an effect.
struct Carried {
    answer: Event,
    changed: Vec<(ObjectKey, Option<Object>)>,
}

impl World {
    /// Sync asks something of Kubernetes.
    pub fn ask_kubernetes(&mut self, id: ProcessId, effect: Effect) {
        let Some(process) = self.processes.get(&id) else { return };
        let (life, Some(cluster)) = (process.life, process.role.cluster()) else { return };
        match effect {
            Effect::Birth(metrics) => {
                let config = crate::fleet::sync_node_config(&self.clusters[&cluster].name, self.random.number());
                self.start_node(id, config, metrics);
            }
            Effect::Node(update) => self.execute_node(id, update),
            Effect::Ready { .. } => {}
            effect => {
                let lag = self.random.millis(1..60);
                self.after(lag, Happening::Kubernetes(cluster, Box::new(Work::Sync(id, life, Box::new(effect)))));
            }
        }
    }

    /// The API server or Flux works.
    pub fn on_kubernetes(&mut self, cluster: ClusterId, work: Work) {
        match work {
            Work::Sync(id, life, effect) => self.carry_out(cluster, id, life, *effect),
            Work::Flux(key, uid) => self.flux_looks(cluster, &key, &uid),
            Work::Finalize(key, uid) => {
                let Some(known) = self.clusters.get_mut(&cluster) else { return };
                if known.objects.get(&key).is_some_and(|object| object.uid == uid && object.is_deleting) {
                    let gone = known.objects.remove(&key);
                    self.notify_of_object(cluster, &key, gone, true);
                    self.pods_follow(cluster);
                }
            }
        }
    }

    fn carry_out(&mut self, cluster: ClusterId, id: ProcessId, life: u64, effect: Effect) {
        let stamp = self.mono;
        let slow_deletion = self.random.chance(200);
        let loses_answer = self.crash_per_million > 0 && self.random.chance(5);
        let rolls_back = self.mutation == Some(Mutation::RecordRollsBack) && self.random.chance(200);
        let Some(known) = self.clusters.get_mut(&cluster) else { return };
        let is_down = known.down_until.is_some_and(|until| until > stamp);
        let writes = matches!(effect, Effect::SaveIndex { .. } | Effect::Apply { .. } | Effect::Annotate(_));
        let is_full = writes && known.full_until.is_some_and(|until| until > stamp);
        if let Effect::Delete { key, .. } = &effect
            && !is_down
        {
            let body = known.objects.get(key).map(|object| object.body.clone());
            let owner = body.as_ref().and_then(deployment);
            self.checks.on_deletion(cluster, key, owner, stamp);
        }
        let Some(known) = self.clusters.get_mut(&cluster) else { return };
        let Carried { mut answer, changed } =
            if is_down || is_full { refused_all(effect) } else { known.execute(effect, slow_deletion) };
        if loses_answer && let Event::IndexSaved { .. } = answer {
            answer = Event::IndexNotSaved(unreachable());
        }
        self.checks.is_record_written = true;
        if rolls_back && let Some((text, version)) = known.record.clone() {
            known.record = Some((crate::mutation::older_record(&text), version));
        }
        for (key, object) in changed {
            let is_gone = object.is_none() || !known_has(self.clusters.get(&cluster), &key);
            let object = object.or_else(|| self.clusters.get(&cluster)?.objects.get(&key).cloned());
            if &*key.kind.kind == "HelmRelease"
                && !is_gone
                && let Some(object) = &object
            {
                let lag = self.random.millis(500..8_000);
                let work = Work::Flux(key.clone(), object.uid.clone());
                self.after(lag, Happening::Kubernetes(cluster, Box::new(work)));
            }
            if object.as_ref().is_some_and(|object| object.is_deleting) && !is_gone {
                let lag = self.random.millis(500..8_000);
                let uid = object.as_ref().map(|object| object.uid.clone()).unwrap_or_default();
                self.after(lag, Happening::Kubernetes(cluster, Box::new(Work::Finalize(key.clone(), uid))));
            }
            self.notify_of_object(cluster, &key, object, is_gone);
        }
        self.pods_follow(cluster);
        let lag = self.random.millis(1..60);
        self.after(lag, Happening::Input(id, life, Box::new(Input::Sync(answer))));
    }

    fn flux_looks(&mut self, cluster: ClusterId, key: &ObjectKey, uid: &str) {
        let is_failing = self.random.chance(100);
        let Some(known) = self.clusters.get_mut(&cluster) else { return };
        let version = known.next_version();
        let Some(object) = known.objects.get_mut(key).filter(|object| object.uid == uid) else { return };
        if object.verdict.as_ref().is_some_and(|(generation, ready, _)| *generation == object.generation && *ready) {
            return;
        }
        let message = if is_failing { "install retries exhausted" } else { "Release reconciliation succeeded" };
        object.verdict = Some((object.generation, !is_failing, message.to_owned()));
        object.version = version;
        let object = object.clone();
        if is_failing {
            let lag = self.random.millis(5_000..20_000);
            let work = Work::Flux(key.clone(), uid.to_owned());
            self.after(lag, Happening::Kubernetes(cluster, Box::new(work)));
        }
        self.notify_of_object(cluster, key, Some(object), false);
    }

    /// Notifies the watchers of a cluster that an object changed or is gone.
    fn notify_of_object(&mut self, cluster: ClusterId, key: &ObjectKey, object: Option<Object>, is_gone: bool) {
        let Some(object) = object else { return };
        if let Some(observed) = Cluster::observe(key, &object) {
            let observation = if is_gone { Observation::Gone(observed) } else { Observation::Changed(observed) };
            let news = || Input::Sync(Event::Objects(key.kind.clone(), observation.clone()));
            self.notify(cluster, &Role::Sync(cluster), news);
        }
        if key.name.starts_with(AGENT_CONFIG_PREFIX) {
            let watch = if is_gone {
                Watch::Deleted(key.name.clone())
            } else {
                let revision = annotation(&object.body, REVISION_ANNOTATION).map(str::to_owned);
                Watch::Applied(key.name.clone(), AgentConfig { revision })
            };
            let news = || Input::Monitor(MonitorEvent::AgentConfigs(watch.clone()));
            self.notify(cluster, &Role::Monitor(cluster), news);
        }
    }

    /// News for every process that watches as that role.
    pub(crate) fn notify(&mut self, cluster: ClusterId, role: &Role, news: impl Fn() -> Input) {
        for id in self.processes_of(role) {
            self.notify_process(cluster, id, news());
        }
    }

    /// News for a watcher, in order with all other news of the cluster.
    pub(crate) fn notify_process(&mut self, cluster: ClusterId, id: ProcessId, input: Input) {
        let lag = self.random.millis(1..80);
        let life = self.processes[&id].life;
        let Some(known) = self.clusters.get_mut(&cluster) else { return };
        known.news_at = known.news_at.max(self.mono + lag);
        let at = known.news_at;
        self.at(at, Happening::Input(id, life, Box::new(input)));
    }

    /// A process begins to watch: complete lists first.
    pub fn watch_kubernetes(&mut self, id: ProcessId) {
        let Some(role) = self.processes.get(&id).map(|process| process.role.clone()) else { return };
        let Some(cluster) = role.cluster() else { return };
        let Some(known) = self.clusters.get(&cluster) else { return };
        match role {
            Role::Sync(_) => {
                let hosts =
                    known.nodes.iter().map(|(node, host)| ObservedNode { node: node.clone(), host: host.clone() });
                let mut news = vec![Event::Nodes(Observation::Listed(hosts.collect()))];
                news.extend(kinds().into_iter().map(|kind| {
                    let listed = known.list(&kind);
                    Event::Objects(kind, Observation::Listed(listed))
                }));
                for event in news {
                    self.notify_process(cluster, id, Input::Sync(event));
                }
            }
            Role::Monitor(_) => {
                let configs = known.objects.iter().filter(|(key, _)| key.name.starts_with(AGENT_CONFIG_PREFIX));
                let configs = configs.map(|(key, object)| {
                    let revision = annotation(&object.body, REVISION_ANNOTATION).map(str::to_owned);
                    (key.name.clone(), AgentConfig { revision })
                });
                let news = [
                    MonitorEvent::Nodes(Watch::Listed(known.sparkplug_nodes.clone())),
                    MonitorEvent::Secrets(Watch::Listed(known.secrets.clone())),
                    MonitorEvent::AgentConfigs(Watch::Listed(configs.collect())),
                ];
                for event in news {
                    self.notify_process(cluster, id, Input::Monitor(event));
                }
            }
            Role::Join(..) => self.watch_joins(cluster, id),
            Role::Keys(_) => self.watch_keys(cluster),
            _ => {}
        }
    }

    /// All watches of a cluster are interrupted and list again.
    pub fn relist(&mut self, cluster: ClusterId) {
        let joins = (0..crate::fleet::hosts::REPLICAS).map(|replica| Role::Join(cluster, replica));
        for role in [Role::Sync(cluster), Role::Monitor(cluster)].into_iter().chain(joins) {
            for id in self.processes_of(&role) {
                if self.processes[&id].program.is_some() {
                    self.watch_kubernetes(id);
                }
            }
        }
    }

    /// The API server does not answer for some time; watches fail and list again afterwards.
    pub fn kubernetes_outage(&mut self, cluster: ClusterId, length: Duration) {
        let until = self.mono + length;
        let Some(known) = self.clusters.get_mut(&cluster) else { return };
        known.down_until = Some(until);
        let failed = || Input::Sync(Event::Nodes(Observation::Failed(unreachable())));
        self.notify(cluster, &Role::Sync(cluster), failed);
        for kind in kinds() {
            let failed = || Input::Sync(Event::Objects(kind.clone(), Observation::Failed(unreachable())));
            self.notify(cluster, &Role::Sync(cluster), failed);
        }
        self.at(until, Happening::Transition(crate::transition::Transition::Relist(cluster)));
    }

    /// Someone deletes an object by hand.
    pub fn delete_by_hand(&mut self, cluster: ClusterId) {
        let Some(known) = self.clusters.get(&cluster) else { return };
        let keys: Vec<ObjectKey> = known.objects.keys().cloned().collect();
        let Some(key) = self.random.pick(&keys).cloned() else { return };
        trace!(self, "{key} is deleted by hand");
        let Some(known) = self.clusters.get_mut(&cluster) else { return };
        let gone = known.objects.remove(&key);
        self.notify_of_object(cluster, &key, gone, true);
        self.pods_follow(cluster);
    }

    /// A host comes, goes, or changes.
    pub fn host_changes(&mut self, cluster: ClusterId) {
        let chance = self.random.below(3);
        let number = self.random.below(4);
        let Some(known) = self.clusters.get_mut(&cluster) else { return };
        let node = format!("{}-{number}", known.name.to_lowercase());
        let may_go = chance == 0 && known.nodes.len() > 1;
        let gone = if may_go { known.nodes.remove(&node) } else { None };
        let observation = match (gone, known.nodes.get_mut(&node)) {
            (Some(host), _) => Observation::Gone(ObservedNode { node, host }),
            (None, Some(host)) => {
                host.ready = !host.ready;
                Observation::Changed(ObservedNode { node, host: host.clone() })
            }
            (None, None) => {
                let mut host = known.nodes.values().next().cloned().unwrap_or_default();
                host.hostname.clone_from(&node);
                known.nodes.insert(node.clone(), host.clone());
                Observation::Changed(ObservedNode { node, host })
            }
        };
        let news = || Input::Sync(Event::Nodes(observation.clone()));
        self.notify(cluster, &Role::Sync(cluster), news);
    }

    /// A sealed secret is sealed again.
    pub fn rotate_secret(&mut self, cluster: ClusterId) {
        let Some(known) = self.clusters.get_mut(&cluster) else { return };
        let Some((name, secret)) = known.secrets.iter_mut().next() else { return };
        secret.generation += 1;
        secret.observed_generation = Some(secret.generation);
        let watch = Watch::Applied(name.clone(), secret.clone());
        let news = || Input::Monitor(MonitorEvent::Secrets(watch.clone()));
        self.notify(cluster, &Role::Monitor(cluster), news);
    }

    /// Agents run where there are releases, and nowhere else.
    fn pods_follow(&mut self, cluster: ClusterId) {
        let Some(known) = self.clusters.get(&cluster) else { return };
        let wanted: BTreeMap<Uuid, String> = known.agents().collect();
        let running: Vec<(ProcessId, Uuid, String)> = self
            .processes
            .iter()
            .filter_map(|(id, process)| match &process.role {
                Role::Agent { cluster: of, uuid, name, .. } if *of == cluster => Some((*id, *uuid, name.clone())),
                _ => None,
            })
            .collect();
        for (id, uuid, name) in &running {
            if wanted.get(uuid) != Some(name) {
                self.stop(*id, true);
                self.after(Duration::ZERO, Happening::Remove(*id));
                self.forget_node_resource(cluster, *uuid);
            }
        }
        for (uuid, name) in wanted {
            if !running.iter().any(|(_, known, known_name)| *known == uuid && *known_name == name) {
                let obeys = !self.random.chance(100);
                self.add_process(
                    Role::Agent { cluster, uuid, name: name.clone(), obeys },
                    crate::disk::Disk::default(),
                );
                self.notify_of_node_resource(cluster, uuid, &name);
            }
        }
    }

    fn notify_of_node_resource(&mut self, cluster: ClusterId, uuid: Uuid, name: &str) {
        let Some(known) = self.clusters.get_mut(&cluster) else { return };
        let secret = format!("edge-agent-sensitive-information-{uuid}");
        let resource = NodeResource {
            uuid: Some(uuid.to_string()),
            edge_agent: true,
            interval: Some("30s".to_owned()),
            secrets: vec![secret.clone()],
            ..NodeResource::default()
        };
        let sealed = edge_monitor::config_freshness::SealedSecret {
            uid: format!("{secret}-1"),
            generation: 1,
            observed_generation: Some(1),
            is_synced: true,
        };
        let key = format!("edge-agent.{}.{uuid}", name.to_lowercase());
        known.sparkplug_nodes.insert(key.clone(), resource.clone());
        known.secrets.insert(secret.clone(), sealed.clone());
        let monitor = Role::Monitor(cluster);
        let resource = || Input::Monitor(MonitorEvent::Nodes(Watch::Applied(key.clone(), resource.clone())));
        self.notify(cluster, &monitor, resource);
        let sealed = || Input::Monitor(MonitorEvent::Secrets(Watch::Applied(secret.clone(), sealed.clone())));
        self.notify(cluster, &monitor, sealed);
    }

    fn forget_node_resource(&mut self, cluster: ClusterId, uuid: Uuid) {
        let Some(known) = self.clusters.get_mut(&cluster) else { return };
        let end = uuid.to_string();
        let keys: Vec<String> = known.sparkplug_nodes.keys().filter(|key| key.ends_with(&end)).cloned().collect();
        for key in keys {
            if let Some(known) = self.clusters.get_mut(&cluster) {
                known.sparkplug_nodes.remove(&key);
            }
            let gone = || Input::Monitor(MonitorEvent::Nodes(Watch::Deleted(key.clone())));
            self.notify(cluster, &Role::Monitor(cluster), gone);
        }
    }
}

fn known_has(cluster: Option<&Cluster>, key: &ObjectKey) -> bool {
    cluster.is_some_and(|cluster| cluster.objects.contains_key(key))
}

fn refused_all(effect: Effect) -> Carried {
    let answer = match effect {
        Effect::LoadIndex => Event::IndexLoaded(Err(unreachable())),
        Effect::SaveIndex { .. } => Event::IndexNotSaved(unreachable()),
        Effect::Apply { deployment, objects, .. } => {
            let failed = objects.first().map(|object| (object.key.clone(), unreachable()));
            Event::Applied { deployment, applied: Vec::new(), failed }
        }
        Effect::Delete { key, uid, .. } => Event::Deleted { key, uid, result: Err(unreachable()) },
        Effect::Annotate(_) => Event::Annotated(Err(unreachable())),
        Effect::LookAtFlux => Event::FluxSeen(Err(unreachable())),
        Effect::LookAtWorkloads { release } => Event::WorkloadsSeen { release, seen: Err(unreachable()) },
        Effect::FetchCertificate => Event::Certificate(Err(unreachable())),
        Effect::Probe | Effect::Birth(_) | Effect::Node(_) | Effect::Ready { .. } => Event::Probed(Err(unreachable())),
    };
    Carried { answer, changed: Vec::new() }
}

impl Cluster {
    /// What the API server does with an effect. Changed objects come with their last state if they are gone.
    fn execute(&mut self, effect: Effect, slow_deletion: bool) -> Carried {
        let mut changed = Vec::new();
        let answer = match effect {
            Effect::LoadIndex => Event::IndexLoaded(Ok(StoredRecord {
                record: self.accepted(),
                resource_version: self.record.as_ref().map(|(_, version)| version.to_string()),
                unreadable: None,
            })),
            Effect::SaveIndex { record, replaces, then } => self.save(&record, replaces.as_deref(), then),
            Effect::Apply { deployment, objects, .. } => {
                let (mut applied, mut failed) = (Vec::new(), None);
                for prepared in objects {
                    match self.apply(&prepared.key, prepared.is_ours, prepared.body) {
                        Ok(object) => {
                            applied.extend(Self::observe(&prepared.key, &object));
                            changed.push((prepared.key, Some(object)));
                        }
                        Err(error) => {
                            failed = Some((prepared.key, error));
                            break;
                        }
                    }
                }
                Event::Applied { deployment, applied, failed }
            }
            Effect::Delete { key, uid, resource_version } => {
                let result = self.delete(&key, &uid, &resource_version, slow_deletion);
                if let Ok((_, last)) = &result {
                    changed.push((key.clone(), Some(last.clone())));
                }
                Event::Deleted { key, uid, result: result.map(|(deletion, _)| deletion) }
            }
            Effect::Annotate(sources) => {
                self.flux_sources = Some(sources);
                Event::Annotated(Ok(()))
            }
            Effect::LookAtFlux => Event::FluxSeen(Ok(FluxReport::default())),
            Effect::LookAtWorkloads { release } => {
                Event::WorkloadsSeen { release, seen: Ok(Readiness { ready: Some(true), message: None }) }
            }
            Effect::FetchCertificate => Event::Certificate(Ok(CERTIFICATE.to_owned())),
            Effect::Probe | Effect::Birth(_) | Effect::Node(_) | Effect::Ready { .. } => Event::Probed(Ok(())),
        };
        Carried { answer, changed }
    }

    fn save(
        &mut self,
        record: &IndexRecord,
        replaces: Option<&str>,
        then: service_runtime::Effects<service_runtime::Unsaved, IndexRecord>,
    ) -> Event {
        let present = self.record.as_ref().map(|(_, version)| version.to_string());
        if present.as_deref() != replaces {
            let message = "the object has been modified".to_owned();
            return Event::IndexNotSaved(KubernetesError { class: ErrorClass::Conflict, message });
        }
        let version = self.next_version();
        let stored = then.commit(|| {
            self.record = Some((record.to_text(), version));
            Ok::<_, std::convert::Infallible>(())
        });
        match stored {
            Ok(((), saved)) => Event::IndexSaved { resource_version: version.to_string(), saved },
            Err((never, _)) => match never {},
        }
    }

    /// As the adapter does: where the generation is another than the mark says, a second write corrects the mark.
    fn apply(&mut self, key: &ObjectKey, is_ours: bool, body: Value) -> Result<Object, KubernetesError> {
        let object = self.apply_once(key, is_ours, body)?;
        let mark = object.generation.to_string();
        if !is_counted(&key.kind) || object.body["metadata"]["annotations"][ANNOTATION_GENERATION] == mark {
            return Ok(object);
        }
        let mut body = object.body;
        body["metadata"]["annotations"][ANNOTATION_GENERATION] = mark.into();
        self.apply_once(key, true, body)
    }

    fn apply_once(&mut self, key: &ObjectKey, is_ours: bool, body: Value) -> Result<Object, KubernetesError> {
        let version = self.next_version();
        match self.objects.get_mut(key) {
            Some(object) => {
                let is_marked = object.body["metadata"]["labels"][LABEL_MANAGED_BY] == MANAGER;
                if !is_ours && !is_marked {
                    let message = "object of another manager".to_owned();
                    return Err(KubernetesError { class: ErrorClass::Refused, message });
                }
                if object.body["spec"] != body["spec"] || object.body["data"] != body["data"] {
                    object.generation += 1;
                }
                object.body = body;
                object.version = version;
                Ok(object.clone())
            }
            None => {
                let object = Object {
                    uid: format!("uid-{version}"),
                    version,
                    generation: 1,
                    body,
                    verdict: None,
                    is_deleting: false,
                };
                self.objects.insert(key.clone(), object.clone());
                Ok(object)
            }
        }
    }

    fn delete(
        &mut self,
        key: &ObjectKey,
        uid: &str,
        version: &str,
        slowly: bool,
    ) -> Result<(Deletion, Object), KubernetesError> {
        let next = self.next_version();
        let gone = || KubernetesError { class: ErrorClass::Conflict, message: "not found".to_owned() };
        let Some(object) = self.objects.get_mut(key) else { return Err(gone()) };
        if object.uid != uid || object.version.to_string() != version {
            let message = "precondition failed".to_owned();
            return Err(KubernetesError { class: ErrorClass::Conflict, message });
        }
        if slowly && &*key.kind.kind == "HelmRelease" {
            object.is_deleting = true;
            object.version = next;
            return Ok((Deletion::Waiting, object.clone()));
        }
        let last = self.objects.remove(key).ok_or_else(gone)?;
        Ok((Deletion::Gone, last))
    }
}
