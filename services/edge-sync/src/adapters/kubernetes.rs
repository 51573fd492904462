//! The Kubernetes API of the cluster. Reading is in [`observe`], writing in [`apply`]; both answer with events.

pub mod apply;
pub mod observe;

use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use kubernetes_client::error;

use crate::event::{Effect, ErrorClass, Event, KubernetesError};
use crate::object::{Kind, WatchedObject};

/// No single request takes longer, whatever the API server does; after it the answer is that there was none.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Nor the question whether it answers, which is asked where another request had no answer.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// Where the sealed secrets controller is.
#[derive(Debug, Clone)]
pub struct SealingService {
    /// Namespace of its Service.
    pub namespace: String,
    /// Name of its Service.
    pub service: String,
}

/// A client of the cluster's API, limited to one namespace (but for nodes and the sealing certificate).
#[derive(Clone)]
pub struct Kubernetes {
    client: Client,
    namespace: String,
    resources: BTreeMap<Kind, ApiResource>,
    sealing: SealingService,
}

impl std::fmt::Debug for Kubernetes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kubernetes").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

impl Kubernetes {
    /// For objects of these kinds in `namespace`.
    #[must_use]
    pub fn new(client: Client, namespace: &str, kinds: &[Kind], sealing: SealingService) -> Self {
        let resource =
            |kind: &Kind| ApiResource::from_gvk(&GroupVersionKind::gvk(kind.group(), kind.version(), &kind.kind));
        let resources = kinds.iter().map(|kind| (kind.clone(), resource(kind))).collect();
        Self { client, namespace: namespace.to_owned(), resources, sealing }
    }

    /// Executes an effect that concerns Kubernetes; the answer is an event. None: it does not.
    pub fn execute(&self, effect: Effect) -> Option<impl Future<Output = Event> + Send + use<>> {
        let is_ours = !matches!(effect, Effect::Birth(_) | Effect::Node(_) | Effect::Ready { .. });
        let kubernetes = self.clone();
        is_ours.then_some(async move { kubernetes.answer(effect).await })
    }

    async fn answer(&self, effect: Effect) -> Event {
        match effect {
            Effect::LoadIndex => Event::IndexLoaded(self.load_index().await),
            Effect::SaveIndex { record, replaces, then } => self.save_index(&record, replaces, then).await,
            Effect::Apply { deployment, objects, .. } => self.apply(deployment, objects).await,
            Effect::Delete { key, uid, resource_version } => self.delete(key, uid, resource_version).await,
            Effect::Annotate(sources) => Event::Annotated(self.annotate_sources(sources).await),
            Effect::LookAtWorkloads { release } => {
                Event::WorkloadsSeen { seen: self.look_at_workloads(&release).await, release }
            }
            Effect::LookAtFlux => Event::FluxSeen(self.look_at_flux().await),
            Effect::FetchCertificate => Event::Certificate(self.certificate().await),
            Effect::Probe | Effect::Birth(_) | Effect::Node(_) | Effect::Ready { .. } => {
                Event::Probed(self.probe().await)
            }
        }
    }

    fn api(&self, kind: &Kind) -> Result<Api<WatchedObject>, KubernetesError> {
        let resource = self.resources.get(kind).ok_or_else(|| KubernetesError {
            class: ErrorClass::Refused,
            message: format!("{kind} is not among sync.kinds"),
        })?;
        Ok(Api::namespaced_with(self.client.clone(), &self.namespace, resource))
    }
}

/// One request, or the error that it took too long.
async fn within_time<T>(request: impl Future<Output = Result<T, kube::Error>>) -> Result<T, KubernetesError> {
    error::within(REQUEST_TIMEOUT, request).await
}
