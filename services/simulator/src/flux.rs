//! Simulated Flux: source-controller for git, kustomize-controller and helm-controller, level-triggered on the simulated API.
//!
//! ```text
//!   GitRepository ── sources.rs + git.rs ──> checkout ──┐
//!   Kustomization ── kustomizations.rs + manifests.rs <─┘ ──> server-side apply, prune, Ready
//!   HelmRelease ──── releases.rs ──> chart.rs (code instead of templates) ──> objects and running services, Ready
//! ```
//!
//! A chart must be in the repository that the release names, at the revision that is fetched, unless there is code for it: that comes with the simulator.
//!
//! A release whose value `simulated.fails` is a text fails with that text, whatever its chart is, after its objects were made. What fails is tried again as `install.strategy` and
//! `upgrade.strategy` of the release say; without them never, until it changes. Helm waits until the Deployments of the release are available, for which their pods need hosts
//! that match, unless `disableWait` says that it does not.
//!
//! What it does not do: OCI and Helm repositories, buckets, kustomize overlays and substitutions, health checks, decryption, dependencies, chart templates and rollback. It
//! also leaves out the seconds that Helm takes between two looks at what it waits for. Repositories are fetched one after another.

pub mod chart;
pub mod condition;
pub mod git;
pub mod install;
pub mod manifests;

mod kustomizations;
mod releases;
mod schedule;
mod sources;

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::kubernetes::store::key_of;
use crate::kubernetes::{Kubernetes, ObjectRef};
use chart::Charts;
use condition::Outcome;

/// Namespace and name of one of Flux's objects.
type Key = (String, String);

const SOURCE: (&str, &str) = ("source.toolkit.fluxcd.io/v1", "GitRepository");
const KUSTOMIZATION: (&str, &str) = ("kustomize.toolkit.fluxcd.io/v1", "Kustomization");
const RELEASE: (&str, &str) = ("helm.toolkit.fluxcd.io/v2", "HelmRelease");

/// How the simulated controllers behave.
#[derive(Debug, Clone)]
pub struct FluxOptions {
    /// How long after a failure it is tried again, at most: sooner if the object says so.
    pub retry: Duration,
    /// How often due times are looked at; changes of objects are seen at once.
    pub tick: Duration,
}

impl Default for FluxOptions {
    fn default() -> Self {
        Self { retry: Duration::from_secs(5), tick: Duration::from_millis(500) }
    }
}

#[derive(Debug)]
pub struct Flux {
    charts: Charts,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Flux {
    /// Starts the controllers on an API.
    pub fn start(kubernetes: Kubernetes, charts: Charts, options: FluxOptions) -> Self {
        Self::spawn(kubernetes, charts, options, false)
    }

    /// Starts them as soon as someone has applied their manifests ([`install::manifests`]).
    pub fn when_installed(kubernetes: Kubernetes, charts: Charts, options: FluxOptions) -> Self {
        Self::spawn(kubernetes, charts, options, true)
    }

    fn spawn(kubernetes: Kubernetes, charts: Charts, options: FluxOptions, wait: bool) -> Self {
        let stop = CancellationToken::new();
        let controllers = Controllers {
            kubernetes,
            charts: charts.clone(),
            options,
            sources: BTreeMap::new(),
            kustomizations: BTreeMap::new(),
            releases: BTreeMap::new(),
        };
        let stopped = stop.clone();
        let task = tokio::spawn(async move {
            if wait {
                tokio::select! {
                    () = stopped.cancelled() => return,
                    () = controllers.kubernetes.stopped() => return,
                    () = install::installed(&controllers.kubernetes) => {}
                }
            }
            controllers.run(stopped).await;
        });
        Self { charts, stop, task }
    }

    /// Stops them and what charts have started in this process; what is installed stays installed.
    pub async fn stop(self) {
        self.stop.cancel();
        // A panic of the controllers has been reported by the panic hook.
        let _ = self.task.await;
        self.charts.shutdown().await;
    }
}

/// The controllers and what they remember of each object; the rest is read from the API each time.
struct Controllers {
    kubernetes: Kubernetes,
    charts: Charts,
    options: FluxOptions,
    sources: BTreeMap<Key, sources::Memory>,
    kustomizations: BTreeMap<Key, kustomizations::Memory>,
    releases: BTreeMap<Key, releases::Memory>,
}

impl Controllers {
    async fn run(mut self, stop: CancellationToken) {
        let mut changes = self.kubernetes.changes();
        loop {
            changes.mark_unchanged();
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.reconcile() => {}
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.kubernetes.stopped() => return,
                changed = changes.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(self.options.tick) => {}
            }
        }
    }

    async fn reconcile(&mut self) {
        self.reconcile_sources().await;
        self.reconcile_kustomizations();
        self.reconcile_releases().await;
    }

    /// The objects of a kind by key; memory of those that are gone is dropped by the caller.
    fn objects(&self, kind: (&str, &str)) -> BTreeMap<Key, Value> {
        self.kubernetes
            .list(kind.0, kind.1, None)
            .iter()
            .map(|object| (key_of(object), object.as_ref().clone()))
            .collect()
    }

    /// Adds or removes Flux's finalizer. False when the object has gone meanwhile.
    fn set_finalizer(&self, manager: &str, object: &Value, present: bool) -> bool {
        let Some(list) = condition::finalizers(object, present) else { return true };
        let patch =
            json!({ "metadata": { "finalizers": list, "resourceVersion": object["metadata"]["resourceVersion"] } });
        match self.kubernetes.merge(manager, &ObjectRef::of(object), patch) {
            Ok(_) => true,
            // Changed or gone: the change has woken this loop already.
            Err(error) if error.is_conflict() || error.is_not_found() => false,
            Err(error) => {
                tracing::warn!(manager, %error, "simulated Flux could not set its finalizer");
                false
            }
        }
    }

    fn report(&self, manager: &str, object: &Value, outcome: &Outcome, extra: Value) {
        let time = crate::kubernetes::store::timestamp(crate::kubernetes::wall_ms());
        let mut status = condition::status(object, outcome, &time);
        for (field, value) in extra.as_object().into_iter().flatten() {
            status[field] = value.clone();
        }
        match self.kubernetes.merge_status(manager, &ObjectRef::of(object), status) {
            Ok(_) => {}
            Err(error) if error.is_not_found() => {}
            Err(error) => tracing::warn!(manager, %error, "simulated Flux could not report"),
        }
    }
}
