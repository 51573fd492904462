//! The API server of each cluster, at the level at which the adapters of edge sync and edge monitor speak to it. Also what lives in a cluster: Flux, and the pods of edge agents.
//!
//! An object is JSON, as Sync applies it; what Sync sees of it is read by Sync's own reader. Flux looks at a HelmRelease after a while and gives its verdict; a release
//! that is there runs an edge agent of the deployment's name, with a SparkplugNode resource.

use std::collections::BTreeMap;
use std::time::Duration;

use edge_monitor::event::{AGENT_CONFIG_PREFIX, REVISION_ANNOTATION};
use edge_monitor::spec::NodeResource;
use edge_sync::event::{Deletion, Effect, ErrorClass, Event, KubernetesError};
use edge_sync::flux::FluxReport;
use edge_sync::object::{
    ANNOTATION_GENERATION, ANNOTATION_NAME, Kind, LABEL_MANAGED_BY, LABEL_UUID, MANAGER, ObjectKey, ObservedObject,
    Readiness, WatchedObject,
};
use edge_sync::record::{IndexRecord, StoredRecord};
use edge_sync_contract::{HostDevice, Sources};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::model::ids::ProcessId;

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
    pub(crate) verdict: Option<(i64, bool, String)>,
    pub(crate) is_deleting: bool,
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
    pub(crate) nodes: BTreeMap<String, HostDevice>,
    pub(crate) sparkplug_nodes: BTreeMap<String, NodeResource>,
    pub(crate) secrets: BTreeMap<String, edge_monitor::config_freshness::SealedSecret>,
    version: u64,
    /// Events reach a watcher in order: not before this time.
    pub(crate) next_event_at: Duration,
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
            next_event_at: Duration::ZERO,
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

    pub(crate) fn next_version(&mut self) -> u64 {
        self.version += 1;
        self.version
    }

    pub(crate) fn observe(key: &ObjectKey, object: &Object) -> Option<ObservedObject> {
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

    pub(crate) fn list(&self, kind: &Kind) -> Vec<ObservedObject> {
        let objects = self.objects.iter().filter(|(key, _)| key.kind == *kind);
        objects.filter_map(|(key, object)| Self::observe(key, object)).collect()
    }
}

pub(crate) fn annotation<'a>(body: &'a Value, name: &str) -> Option<&'a str> {
    body["metadata"]["annotations"][name].as_str()
}

pub(crate) fn deployment(body: &Value) -> Option<Uuid> {
    body["metadata"]["labels"][LABEL_UUID].as_str()?.parse().ok()
}

pub(crate) fn unreachable() -> KubernetesError {
    KubernetesError { class: ErrorClass::Unreachable, message: "connection refused".to_owned() }
}

/// What came of carrying out an effect.
pub(crate) struct Carried {
    pub(crate) answer: Event,
    pub(crate) changed: Vec<(ObjectKey, Option<Object>)>,
}

pub(crate) fn known_has(cluster: Option<&Cluster>, key: &ObjectKey) -> bool {
    cluster.is_some_and(|cluster| cluster.objects.contains_key(key))
}

pub(crate) fn refused_all(effect: Effect) -> Carried {
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
    pub(crate) fn execute(&mut self, effect: Effect, slow_deletion: bool) -> Carried {
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
