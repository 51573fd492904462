//! Charts that simulated clusters can install: the extension point, the registry, and the chart that stands for those that no one wrote code for.
//!
//! A chart is code, not a directory of templates. What `helm install` would create in a real cluster, it creates through the API. What the
//! created pods would do, it starts in this process.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Read as _;
use std::path::{Component, Path};
use std::sync::Arc;

use configdb_schema::address::k8s_name_capped;
use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::schedule;
use crate::kubernetes::error::ApiError;
use crate::kubernetes::{Kubernetes, ObjectRef};

/// Field manager of what charts install.
const MANAGER: &str = "helm-controller";

/// Most bytes of a `Chart.yaml` that are read.
const CHART_BYTES_MAX: u64 = 64 * 1024;

/// Kinds that a chart may own, in the order in which an upgrade prunes them.
const OWNED_KINDS: [(&str, &str); 6] = [
    ("apps/v1", "Deployment"),
    ("factoryplus.app.amrc.co.uk/v1", "SparkplugNode"),
    ("factoryplus.app.amrc.co.uk/v1", "LocalSecret"),
    ("v1", "Service"),
    ("v1", "ConfigMap"),
    ("v1", "Secret"),
];

/// One installation of a chart.
#[derive(Debug, Clone)]
pub struct Release {
    pub kubernetes: Kubernetes,
    /// Namespace of the release.
    pub namespace: String,
    /// Name of the HelmRelease.
    pub name: String,
    /// Last part of the chart's path.
    pub chart: String,
    /// Values, as in the HelmRelease.
    pub values: Value,
}

/// Why a chart cannot be installed; becomes the message of the Ready condition.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ChartError(pub String);

impl From<ApiError> for ChartError {
    fn from(error: ApiError) -> Self {
        Self(error.message)
    }
}

/// Something that can be installed. Both calls are repeated until they succeed, and an installation also when its values change or its interval has passed: they must be idempotent.
pub trait Chart: fmt::Debug + Send + Sync {
    fn install<'a>(&'a self, release: &'a Release) -> BoxFuture<'a, Result<(), ChartError>>;
    /// Takes everything away again.
    fn uninstall<'a>(&'a self, release: &'a Release) -> BoxFuture<'a, Result<(), ChartError>>;
    /// The cluster is switched off: what the chart has started in this process stops, what is installed stays installed.
    fn shutdown(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}

/// The charts of a cluster, by the last part of their path.
#[derive(Debug, Clone, Default)]
pub struct Charts {
    known: BTreeMap<String, Arc<dyn Chart>>,
}

impl Charts {
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a chart, or replaces one.
    #[must_use]
    pub fn with(mut self, name: &str, chart: impl Chart + 'static) -> Self {
        self.known.insert(name.to_string(), Arc::new(chart));
        self
    }

    /// Stops what all charts have started.
    pub async fn shutdown(&self) {
        futures::future::join_all(self.known.values().map(|chart| chart.shutdown())).await;
    }

    /// Whether someone wrote code for the chart at a path of a repository.
    pub fn knows(&self, path: &str) -> bool {
        self.known.contains_key(chart_name(path))
    }

    /// The chart at a path of a repository.
    pub fn find(&self, path: &str) -> Arc<dyn Chart> {
        self.known.get(chart_name(path)).cloned().unwrap_or_else(|| Arc::new(PlainChart))
    }
}

/// Whether there is a chart at a path of a checkout: a directory with a `Chart.yaml` that has the name and the version that Helm asks for.
///
/// # Errors
/// The rule that is broken, to be read after "chart 'path'".
pub fn check_chart(root: &Path, path: &str) -> Result<(), &'static str> {
    let relative = Path::new(path.trim_start_matches("./"));
    if !relative.components().all(|part| matches!(part, Component::Normal(_))) {
        return Err("must stay within the repository");
    }
    let file = std::fs::File::open(root.join(relative).join("Chart.yaml")).map_err(|_| "not found: no Chart.yaml")?;
    let mut text = String::new();
    file.take(CHART_BYTES_MAX).read_to_string(&mut text).map_err(|_| "has a Chart.yaml that is not text")?;
    let chart: Value = serde_saphyr::from_str(&text).map_err(|_| "has a Chart.yaml that is not YAML")?;
    let has = |field: &str| chart[field].as_str().is_some_and(|text| !text.is_empty());
    if has("name") && has("version") { Ok(()) } else { Err("has a Chart.yaml without name or version") }
}

/// Last part of a chart's path.
pub fn chart_name(path: &str) -> &str {
    path.trim_end_matches('/').rsplit('/').next().unwrap_or(path)
}

impl Release {
    /// The `name` value, or the name of the release.
    pub fn display_name(&self) -> &str {
        self.values["name"].as_str().filter(|name| !name.is_empty()).unwrap_or(&self.name)
    }

    /// The `simulated.fails` value: why the installation shall fail, as it would with values that a real chart refuses.
    pub fn failure(&self) -> Option<&str> {
        self.values.pointer("/simulated/fails").and_then(Value::as_str).filter(|reason| !reason.is_empty())
    }

    fn labels(&self) -> Value {
        json!({
            "app.kubernetes.io/managed-by": "Helm",
            "helm.toolkit.fluxcd.io/name": self.name,
            "helm.toolkit.fluxcd.io/namespace": self.namespace,
            "sparkfleet.simulated": "true"
        })
    }

    /// Applies the objects of the release and removes those of an earlier version of it that are not among them.
    pub fn apply(&self, objects: Vec<Value>) -> Result<(), ChartError> {
        let mut wanted = Vec::new();
        for mut object in objects {
            object["metadata"]["namespace"] = json!(self.namespace);
            let mut labels = self.labels();
            for (key, value) in object["metadata"]["labels"].as_object().into_iter().flatten() {
                labels[key] = value.clone();
            }
            object["metadata"]["labels"] = labels;
            wanted.push((object["kind"].clone(), object["metadata"]["name"].clone()));
            self.kubernetes.apply(MANAGER, object)?;
        }
        self.prune(|object| wanted.contains(&(object["kind"].clone(), object["metadata"]["name"].clone())))
    }

    /// Removes all objects of the release.
    pub fn remove(&self) -> Result<(), ChartError> {
        self.prune(|_| false)
    }

    fn prune(&self, keep: impl Fn(&Value) -> bool) -> Result<(), ChartError> {
        for (api_version, kind) in OWNED_KINDS {
            for object in self.kubernetes.list(api_version, kind, Some(&self.namespace)) {
                let is_ours = object["metadata"]["labels"]["helm.toolkit.fluxcd.io/name"].as_str() == Some(&self.name);
                if is_ours && !keep(&object) {
                    match self.kubernetes.delete(&ObjectRef::of(&object)) {
                        Ok(_) => {}
                        Err(error) if error.is_not_found() => {}
                        Err(error) => return Err(error.into()),
                    }
                }
            }
        }
        Ok(())
    }

    /// A Deployment of one pod. No container runs.
    pub fn deployment(&self, name: &str) -> Value {
        let hostname = self.values["hostname"].as_str().filter(|host| !host.is_empty());
        let mut pod =
            json!({ "containers": [{ "name": "main", "image": format!("sparkfleet.simulated/{}", self.chart) }] });
        if let Some(hostname) = hostname {
            pod["nodeSelector"] = json!({ "kubernetes.io/hostname": hostname });
            pod["tolerations"] = json!([{ "key": "factoryplus.app.amrc.co.uk/specialised", "operator": "Exists" }]);
        }
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": name },
            "spec": {
                "replicas": 1, "strategy": { "type": "Recreate" },
                "selector": { "matchLabels": { "app": name } },
                "template": { "metadata": { "labels": { "app": name } }, "spec": pod }
            }
        })
    }

    /// Says how a Deployment stands, as its controller would: available, if there is a host for its pod.
    pub fn set_available(&self, name: &str) -> Result<(), ChartError> {
        Ok(set_available(&self.kubernetes, &self.namespace, name)?)
    }

    /// Whether there is a host for the pod of a Deployment.
    pub fn has_host(&self, deployment: &str) -> bool {
        let object = self.kubernetes.get("apps/v1", "Deployment", &self.namespace, deployment);
        object.is_ok_and(|object| schedule::has_host(&self.kubernetes, &object["spec"]["template"]["spec"]))
    }

    /// Whether all Deployments of the release are available, which Helm waits for.
    pub(super) fn is_available(&self) -> bool {
        let objects = self.kubernetes.list("apps/v1", "Deployment", Some(&self.namespace));
        let own = |object: &&Arc<Value>| {
            object["metadata"]["labels"]["helm.toolkit.fluxcd.io/name"].as_str() == Some(&self.name)
        };
        objects.iter().filter(own).all(|object| {
            let is_seen = object.pointer("/status/observedGeneration") == object.pointer("/metadata/generation");
            is_seen && object.pointer("/status/availableReplicas") == object.pointer("/spec/replicas")
        })
    }
}

/// Says how a Deployment stands, as its controller would: available, if there is a host for its pod.
pub(super) fn set_available(kubernetes: &Kubernetes, namespace: &str, name: &str) -> Result<(), ApiError> {
    let place = ObjectRef { api_version: "apps/v1", kind: "Deployment", namespace, name };
    let object = kubernetes.get(place.api_version, place.kind, place.namespace, place.name)?;
    let available = i32::from(schedule::has_host(kubernetes, &object["spec"]["template"]["spec"]));
    let is_seen = object.pointer("/status/observedGeneration") == object.pointer("/metadata/generation");
    if is_seen && object["status"]["availableReplicas"] == available {
        return Ok(());
    }
    let time = crate::kubernetes::store::timestamp(crate::kubernetes::wall_ms());
    let (status, reason, message) = match available {
        0 => ("False", "MinimumReplicasUnavailable", "no host matches the pod's node selector and tolerations"),
        _ => ("True", "MinimumReplicasAvailable", "simulated: no container runs"),
    };
    let status = json!({
        "observedGeneration": object["metadata"]["generation"],
        "replicas": 1, "readyReplicas": available, "availableReplicas": available, "updatedReplicas": 1,
        "unavailableReplicas": 1 - available,
        "conditions": [{
            "type": "Available", "status": status, "reason": reason, "message": message,
            "lastTransitionTime": time, "lastUpdateTime": time
        }]
    });
    kubernetes.merge_status("kube-controller-manager", &place, status)?;
    Ok(())
}

/// Stands for every chart that the repository has and the registry has not: one Deployment, and nothing behind it.
#[derive(Debug, Clone, Copy)]
pub struct PlainChart;

impl Chart for PlainChart {
    fn install<'a>(&'a self, release: &'a Release) -> BoxFuture<'a, Result<(), ChartError>> {
        Box::pin(async move {
            let name = k8s_name_capped(&[&release.chart, release.display_name()], 53);
            release.apply(vec![release.deployment(&name)])?;
            release.set_available(&name)
        })
    }

    fn uninstall<'a>(&'a self, release: &'a Release) -> BoxFuture<'a, Result<(), ChartError>> {
        Box::pin(async move { release.remove() })
    }
}

type Hook = Box<dyn Fn(Release) -> BoxFuture<'static, Result<(), ChartError>> + Send + Sync>;

/// A chart made of two functions: how a composition puts its own services behind a chart, as with `edge-cluster`.
pub struct HookChart {
    install: Hook,
    uninstall: Hook,
}

impl fmt::Debug for HookChart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HookChart").finish_non_exhaustive()
    }
}

impl HookChart {
    /// A chart that calls these.
    pub fn new<I, U>(install: I, uninstall: U) -> Self
    where
        I: Fn(Release) -> BoxFuture<'static, Result<(), ChartError>> + Send + Sync + 'static,
        U: Fn(Release) -> BoxFuture<'static, Result<(), ChartError>> + Send + Sync + 'static,
    {
        Self { install: Box::new(install), uninstall: Box::new(uninstall) }
    }
}

impl Chart for HookChart {
    fn install<'a>(&'a self, release: &'a Release) -> BoxFuture<'a, Result<(), ChartError>> {
        (self.install)(release.clone())
    }

    fn uninstall<'a>(&'a self, release: &'a Release) -> BoxFuture<'a, Result<(), ChartError>> {
        (self.uninstall)(release.clone())
    }
}

/// A chart that cannot be installed, for tests of what happens then.
#[derive(Debug, Clone)]
pub struct FailingChart {
    /// Message of the Ready condition.
    pub message: String,
}

impl Chart for FailingChart {
    fn install<'a>(&'a self, _: &'a Release) -> BoxFuture<'a, Result<(), ChartError>> {
        Box::pin(async { Err(ChartError(self.message.clone())) })
    }

    fn uninstall<'a>(&'a self, release: &'a Release) -> BoxFuture<'a, Result<(), ChartError>> {
        Box::pin(async move { release.remove() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_is_known_by_the_last_part_of_its_path() {
        assert_eq!(chart_name("edge-agent"), "edge-agent");
        assert_eq!(chart_name("charts/edge-agent/"), "edge-agent");
    }
}
