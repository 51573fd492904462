//! Reading: the watches, the record of the accepted index, the sealing certificate.

use std::collections::BTreeSet;

use edge_sync_contract::source::REPOSITORY_KUSTOMIZATION;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{GetParams, ListParams};
use kube::core::{ApiResource, GroupVersionKind, Request};
use kube::runtime::watcher;
use kube::{Api, ResourceExt};
use kubernetes_client::error;
use kubernetes_client::watch::{WatchEvent, Watches};
use tokio::sync::mpsc;

use super::{Kubernetes, PROBE_TIMEOUT, within_time};
use crate::event::{ErrorClass, Event, KubernetesError, Observation};
use crate::flux::{self, FluxReport, LABEL_KUSTOMIZATION};
use crate::hosts::{ObservedNode, WatchedNode};
use crate::object::{LABEL_MANAGED_BY, MANAGER, ObservedObject, Readiness, WatchedObject};
use crate::record::{IndexRecord, RECORD_KEY, RECORD_NAME, StoredRecord};
use crate::workload::{self, LABEL_RELEASE, WatchedWorkload};

impl Kubernetes {
    /// Watches nodes and all kinds until the inbox is gone or the result is dropped.
    #[must_use]
    pub fn watch(&self, inbox: &mpsc::Sender<Event>) -> Watches {
        let mut watches = Watches::default();
        let all = watcher::Config::default;
        let read = |node: WatchedNode| ObservedNode::read(&node);
        watches.follow(self.nodes(), all(), read, inbox.clone(), |watch_event| {
            Some(Event::Nodes(observation(watch_event)))
        });
        for kind in self.resources.keys() {
            let Ok(api) = self.api(kind) else { continue };
            let ours = all().labels(&format!("{LABEL_MANAGED_BY}={MANAGER}"));
            let (read_kind, event_kind) = (kind.clone(), kind.clone());
            let read = move |object| ObservedObject::read(&read_kind, &object);
            let event = move |watch_event| Some(Event::Objects(event_kind.clone(), observation(watch_event)));
            watches.follow(api, ours, read, inbox.clone(), event);
        }
        // A watch says that something has changed; how it stands is read in the right order.
        let changed = |_: WatchEvent<()>| Some(Event::FluxChanged);
        let ours = all().fields(&format!("metadata.name={REPOSITORY_KUSTOMIZATION}"));
        watches.follow(self.kustomizations(), ours, |_| Some(()), inbox.clone(), changed);
        let applied = all().labels(&applied_from_repository());
        watches.follow(self.releases(), applied, |_| Some(()), inbox.clone(), changed);
        for kind in workload::KINDS {
            let read = |object: WatchedWorkload| workload::release_of(&object);
            watches.follow(self.workloads(kind), all().labels(LABEL_RELEASE), read, inbox.clone(), workloads_changed);
        }
        watches
    }

    /// Reads the record of the accepted index.
    ///
    /// # Errors
    /// The API server did not give it. A record that is not there, or not one, is not an error.
    pub async fn load_index(&self) -> Result<StoredRecord, KubernetesError> {
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.namespace);
        let Some(found) = within_time(api.get_opt(RECORD_NAME)).await? else { return Ok(StoredRecord::default()) };
        let resource_version = found.resource_version();
        let text = found.data.and_then(|mut data| data.remove(RECORD_KEY));
        let read = text.ok_or_else(|| format!("in ConfigMap {RECORD_NAME} has no {RECORD_KEY}"));
        let (record, unreadable) = match read.and_then(|text| IndexRecord::from_text(&text)) {
            Ok(record) => (Some(record), None),
            Err(reason) => (None, Some(reason)),
        };
        Ok(StoredRecord { record, resource_version, unreadable })
    }

    /// Reads the sealing certificate from its controller, through the API server.
    ///
    /// # Errors
    /// Neither gave it.
    pub async fn certificate(&self) -> Result<String, KubernetesError> {
        let (namespace, service) = (&self.sealing.namespace, &self.sealing.service);
        let path = format!("/api/v1/namespaces/{namespace}/services/http:{service}:http/proxy/v1");
        let request = Request::new(path).get("cert.pem", &GetParams::default()).map_err(|error| KubernetesError {
            class: ErrorClass::Refused,
            message: format!("sealing.namespace and sealing.service make no address: {error}"),
        })?;
        let answer = within_time(self.client.request_text(request)).await;
        answer.map_err(|error| KubernetesError {
            message: format!("service {service} in namespace {namespace}: {}", error.message),
            ..error
        })
    }

    /// Reads what Flux has made of the cluster's repository.
    ///
    /// # Errors
    /// The API server did not say.
    pub async fn look_at_flux(&self) -> Result<FluxReport, KubernetesError> {
        let of = |what: &str, error: KubernetesError| KubernetesError {
            message: format!("{what}: {}", error.message),
            ..error
        };
        let name = REPOSITORY_KUSTOMIZATION;
        let found = within_time(self.kustomizations().get_opt(name)).await;
        let kustomization = found.map_err(|error| of(&format!("Kustomization {name}"), error))?;
        // After it, so that none is older than what it says is applied.
        let params = ListParams::default().labels(&applied_from_repository());
        let releases = within_time(async {
            match self.releases().list(&params).await {
                Err(kube::Error::Api(status)) if status.code == 404 => Ok(Vec::new()),
                answer => answer.map(|list| list.items),
            }
        });
        let releases = releases.await.map_err(|error| of("HelmReleases", error))?;
        let names: BTreeSet<String> = releases.iter().map(ResourceExt::name_any).collect();
        let mut workloads = Vec::new();
        for (release, readiness) in self.list_workloads(LABEL_RELEASE).await? {
            workloads.extend(release.filter(|release| names.contains(release)).map(|_| readiness));
        }
        Ok(flux::judge(kustomization.as_ref(), name, &releases, workloads))
    }

    /// Reads whether what a release has made runs.
    ///
    /// # Errors
    /// The API server did not say.
    pub async fn look_at_workloads(&self, release: &str) -> Result<Readiness, KubernetesError> {
        let made = self.list_workloads(&format!("{LABEL_RELEASE}={release}")).await?;
        Ok(workload::worst(made.into_iter().map(|(_, readiness)| readiness)))
    }

    /// Workloads with these labels: whose they are, and whether they run.
    async fn list_workloads(&self, labels: &str) -> Result<Vec<(Option<String>, Readiness)>, KubernetesError> {
        let params = ListParams::default().labels(labels);
        let mut all = Vec::new();
        for kind in workload::KINDS {
            let listed = within_time(self.workloads(kind).list(&params)).await;
            let listed =
                listed.map_err(|error| KubernetesError { message: format!("{kind}s: {}", error.message), ..error })?;
            for one in &listed.items {
                let mut verdict = workload::judge(kind, one);
                if verdict.ready != Some(true)
                    && let Some(labels) = workload::node_labels(one)
                    && !self.has_node(&labels).await?
                {
                    verdict = workload::without_node(verdict, one);
                }
                all.push((workload::release_of(one), verdict));
            }
        }
        Ok(all)
    }

    /// Whether there is a Node with these labels.
    async fn has_node(&self, labels: &str) -> Result<bool, KubernetesError> {
        let params = ListParams::default().labels(labels).limit(1);
        let found = within_time(self.nodes().list_metadata(&params)).await;
        let found = found.map_err(|error| KubernetesError { message: format!("Nodes: {}", error.message), ..error })?;
        Ok(!found.items.is_empty())
    }

    fn nodes(&self) -> Api<WatchedNode> {
        Api::all_with(self.client.clone(), &ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Node")))
    }

    fn workloads(&self, kind: &str) -> Api<WatchedWorkload> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("apps", "v1", kind));
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource)
    }

    fn kustomizations(&self) -> Api<WatchedObject> {
        self.of_flux("kustomize.toolkit.fluxcd.io", "v1", "Kustomization")
    }

    fn releases(&self) -> Api<WatchedObject> {
        self.of_flux("helm.toolkit.fluxcd.io", "v2", "HelmRelease")
    }

    fn of_flux(&self, group: &str, version: &str, kind: &str) -> Api<WatchedObject> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource)
    }

    /// Asks the API server for its version.
    ///
    /// # Errors
    /// It did not answer.
    pub async fn probe(&self) -> Result<(), KubernetesError> {
        error::within(PROBE_TIMEOUT, self.client.apiserver_version()).await.map(|_| ())
    }
}

/// A watch that is interrupted begins again with a list, which says it all.
fn workloads_changed(watch_event: WatchEvent<String>) -> Option<Event> {
    match watch_event {
        WatchEvent::Listed(all) => Some(Event::WorkloadsChanged(all)),
        WatchEvent::Changed(one) | WatchEvent::Gone(one) => Some(Event::WorkloadsChanged(vec![one])),
        WatchEvent::NotInstalled | WatchEvent::Interrupted(_) => None,
    }
}

/// Selects what Flux has applied from the cluster's repository.
fn applied_from_repository() -> String {
    format!("{LABEL_KUSTOMIZATION}={REPOSITORY_KUSTOMIZATION}")
}

fn observation<T>(watch_event: WatchEvent<T>) -> Observation<T> {
    match watch_event {
        WatchEvent::Listed(all) => Observation::Listed(all),
        WatchEvent::Changed(one) => Observation::Changed(one),
        WatchEvent::Gone(one) => Observation::Gone(one),
        WatchEvent::NotInstalled => Observation::NotInstalled,
        WatchEvent::Interrupted(error) => Observation::Failed(error),
    }
}
