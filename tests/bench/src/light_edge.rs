//! An edge without a cluster: the real state of edge sync and its real Edge Node session, on an instant model of the Kubernetes API in the same task. There is no Flux: what is
//! applied stays applied and gets no verdict.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use configdb_schema::{ClusterName, Organisation};
use edge_sync::State;
use edge_sync::event::{Deletion, Effect, ErrorClass, Event, KubernetesError, Observation, PreparedObject};
use edge_sync::flux::FluxReport;
use edge_sync::hosts::ObservedNode;
use edge_sync::object::{Kind, ObjectKey, ObservedObject, Readiness, WatchedObject};
use edge_sync::record::{IndexRecord, StoredRecord};
use edge_sync::state::Settings;
use edge_sync::state::prune::PruneLimits;
use edge_sync_contract::{HostDevice, names};
use serde_json::Value;
use service_runtime::shutdown::Shutdown;
use sparkplug::edge_node::EdgeNodeConfig;
use sparkplug::{EdgeNodeDescriptor, GroupId};
use sparkplug_mqtt::{BdSeqStore, Clock, EdgeNodeHandle, MqttConfig};
use tokio::sync::mpsc::UnboundedSender;
use uuid::Uuid;

/// Namespace of deployments.
pub const NAMESPACE: &str = "fplus-edge";

/// The moment at which an edge had a deployment in place.
#[derive(Debug, Clone, Copy)]
pub struct Applied {
    /// Which deployment.
    pub deployment: Uuid,
    /// When.
    pub at: Instant,
}

/// Address of a cluster's Sync.
///
/// # Errors
/// The name makes no group.
pub fn sync_address(organisation: &Organisation, cluster: &ClusterName) -> anyhow::Result<EdgeNodeDescriptor> {
    Ok(names::sync_node(GroupId::new(organisation.cluster_group(cluster))?))
}

/// Runs one edge until `shutdown`; sends every application to `applied`.
///
/// # Errors
/// The session cannot be started or has ended by itself.
pub async fn run(
    (uuid, name): (Uuid, String),
    address: EdgeNodeDescriptor,
    mqtt: MqttConfig,
    applied: UnboundedSender<Applied>,
    shutdown: Shutdown,
) -> anyhow::Result<()> {
    let clock = Clock::new();
    let kinds = kinds()?;
    let settings = settings(uuid, name.clone(), kinds.clone());
    let mut state = State::new(settings, clock.now());
    let mut kubernetes = Kubernetes::default();
    let mut node: Option<EdgeNodeHandle> = None;
    let mut events = first_lists(&name, kinds);
    loop {
        for effect in state.poll_effects() {
            match effect {
                Effect::Birth(metrics) => {
                    // No heartbeat: what is counted is what a change causes.
                    let config = EdgeNodeConfig::new(address.clone());
                    let store = BdSeqStore::Memory;
                    node = Some(sparkplug_mqtt::spawn_edge_node(config, metrics, &mqtt, store, clock)?);
                }
                Effect::Node(update) => {
                    if let Some(node) = &node {
                        node.update(update).await?;
                    }
                }
                Effect::Ready { .. } => {}
                other => kubernetes.execute(other, &mut events),
            }
        }
        let event = match events.pop_front() {
            Some(event) => event,
            None => tokio::select! {
                biased;
                () = shutdown.wait() => break,
                event = received(&mut node) => Event::Node(event.ok_or_else(|| anyhow::anyhow!("the session ended"))?),
                () = clock.sleep_until(state.next_deadline()) => Event::DeadlineReached,
            },
        };
        if let Event::Applied { deployment, failed: None, .. } = &event {
            // No one listens once the measurement is over.
            let _ = applied.send(Applied { deployment: *deployment, at: Instant::now() });
        }
        state.on_event(event, clock.now());
    }
    if let Some(node) = node {
        node.stop().await;
    }
    Ok(())
}

async fn received(node: &mut Option<EdgeNodeHandle>) -> Option<sparkplug::edge_node::NodeEvent> {
    match node {
        Some(node) => node.recv().await,
        None => std::future::pending().await,
    }
}

fn kinds() -> anyhow::Result<Vec<Kind>> {
    let texts = ["helm.toolkit.fluxcd.io/v2/HelmRelease", "source.toolkit.fluxcd.io/v1/GitRepository", "v1/ConfigMap"];
    Ok(texts.into_iter().map(str::parse).collect::<Result<_, _>>()?)
}

fn settings(cluster_uuid: Uuid, cluster_name: String, kinds: Vec<Kind>) -> Settings {
    Settings {
        cluster_uuid,
        cluster_name,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        simulated: true,
        namespace: NAMESPACE.to_owned(),
        kinds,
        applies_max: 4,
        retry: (Duration::from_secs(1), Duration::from_secs(60)),
        prune: PruneLimits {
            max_per_pass: 20,
            interval: Duration::from_secs(10),
            max_percent: 50,
            guard_delay: Duration::from_secs(30),
        },
        sealing: false,
        sealing_refresh: Duration::from_secs(3600),
        sealing_retry: (Duration::from_secs(5), Duration::from_secs(60)),
        seed: cluster_uuid.as_u64_pair().0,
    }
}

/// What the watches of an empty cluster of one host list.
fn first_lists(name: &str, kinds: Vec<Kind>) -> VecDeque<Event> {
    let hostname = format!("{}-1", name.to_lowercase());
    let host = HostDevice {
        hostname: hostname.clone(),
        architecture: "amd64".to_owned(),
        kubernetes_version: "v1.34.1+k3s1".to_owned(),
        operating_system: "simulated".to_owned(),
        control_plane: true,
        ready: true,
        specialised: None,
        ..HostDevice::default()
    };
    let nodes = Event::Nodes(Observation::Listed(vec![ObservedNode { node: hostname, host }]));
    let objects = kinds.into_iter().map(|kind| Event::Objects(kind, Observation::Listed(Vec::new())));
    std::iter::once(nodes).chain(objects).collect()
}

/// The API server: keeps what is applied, answers at once.
#[derive(Debug, Default)]
struct Kubernetes {
    objects: BTreeMap<ObjectKey, Object>,
    record: Option<(IndexRecord, u64)>,
    version: u64,
}

#[derive(Debug)]
struct Object {
    uid: String,
    version: u64,
    generation: i64,
    body: Value,
}

impl Object {
    fn observed(&self, kind: &Kind) -> Option<ObservedObject> {
        let mut body = self.body.clone();
        body["metadata"]["uid"] = self.uid.clone().into();
        body["metadata"]["resourceVersion"] = self.version.to_string().into();
        body["metadata"]["generation"] = self.generation.into();
        let watched: WatchedObject = serde_json::from_value(body).ok()?;
        ObservedObject::read(kind, &watched)
    }
}

impl Kubernetes {
    /// Carries an effect out; the answer and the events of the watches are the next events.
    fn execute(&mut self, effect: Effect, events: &mut VecDeque<Event>) {
        self.version += 1;
        match effect {
            Effect::LoadIndex => {
                let (record, version) = self.record.clone().unzip();
                let resource_version = version.map(|version| version.to_string());
                events.push_back(Event::IndexLoaded(Ok(StoredRecord { record, resource_version, unreadable: None })));
            }
            Effect::SaveIndex { record, then, .. } => {
                let save = || {
                    self.record = Some((record, self.version));
                    Ok::<_, std::convert::Infallible>(())
                };
                let Ok(((), saved)) = then.commit(save);
                events.push_back(Event::IndexSaved { resource_version: self.version.to_string(), saved });
            }
            Effect::Apply { deployment, objects, .. } => {
                let applied: Vec<_> = objects.into_iter().filter_map(|prepared| self.apply(prepared)).collect();
                let changed: Vec<_> = applied.iter().map(|(kind, seen)| (kind.clone(), seen.clone())).collect();
                let applied = applied.into_iter().map(|(_, seen)| seen).collect();
                events.push_back(Event::Applied { deployment, applied, failed: None });
                events.extend(changed.into_iter().map(|(kind, seen)| Event::Objects(kind, Observation::Changed(seen))));
            }
            Effect::Delete { key, uid, .. } => {
                let gone = self.objects.remove(&key);
                let missing = KubernetesError { class: ErrorClass::Conflict, message: "not found".to_owned() };
                let result = gone.as_ref().map(|_| Deletion::Gone).ok_or(missing);
                let last = gone.and_then(|object| object.observed(&key.kind));
                events.push_back(Event::Deleted { key: key.clone(), uid, result });
                events.extend(last.map(|seen| Event::Objects(key.kind, Observation::Gone(seen))));
            }
            Effect::Annotate(_) => events.push_back(Event::Annotated(Ok(()))),
            Effect::Probe => events.push_back(Event::Probed(Ok(()))),
            Effect::LookAtWorkloads { release } => {
                let seen = Ok(Readiness { ready: Some(true), message: None });
                events.push_back(Event::WorkloadsSeen { release, seen });
            }
            Effect::LookAtFlux => events.push_back(Event::FluxSeen(Ok(FluxReport::default()))),
            // There is no sealed secrets controller, and the others are the caller's.
            Effect::FetchCertificate | Effect::Birth(_) | Effect::Node(_) | Effect::Ready { .. } => {}
        }
    }

    fn apply(&mut self, prepared: PreparedObject) -> Option<(Kind, ObservedObject)> {
        let PreparedObject { key, body, .. } = prepared;
        let version = self.version;
        let new = || Object { uid: format!("uid-{version}"), version, generation: 0, body: Value::Null };
        let object = self.objects.entry(key.clone()).or_insert_with(new);
        object.generation += 1;
        object.version = version;
        object.body = body;
        Some((key.kind.clone(), object.observed(&key.kind)?))
    }
}
