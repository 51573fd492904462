//! Flux as something that is installed: its manifests, and the moment when someone has applied them.

use serde_json::{Value, json};

use super::{KUSTOMIZATION, RELEASE, SOURCE};
use crate::flux::chart;
use crate::kubernetes::error::ApiError;
use crate::kubernetes::{Kubernetes, definitions};

/// Namespace that Flux is installed in.
pub const NAMESPACE: &str = "flux-system";

/// The controllers that edge clusters need.
pub const CONTROLLERS: [&str; 3] = ["source-controller", "kustomize-controller", "helm-controller"];

/// Version that the manifests say.
const VERSION: &str = "v2.7.5";

/// What `flux install --export` writes, as far as it is simulated: namespace, definitions, controllers.
pub fn manifests() -> Vec<Value> {
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } });
    let controllers = CONTROLLERS.map(|name| {
        let labels = json!({ "app.kubernetes.io/part-of": "flux", "app.kubernetes.io/version": VERSION, "sparkfleet.simulated": "true" });
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": name, "namespace": NAMESPACE, "labels": labels },
            "spec": {
                "replicas": 1, "selector": { "matchLabels": { "app": name } },
                "template": {
                    "metadata": { "labels": { "app": name } },
                    "spec": { "containers": [{ "name": "manager", "image": format!("sparkfleet.simulated/{name}"), "args": ["--watch-all-namespaces=true"] }] }
                }
            }
        })
    });
    std::iter::once(namespace).chain(flux_definitions()).chain(controllers).collect()
}

/// The same as YAML.
pub fn manifests_yaml() -> String {
    serde_saphyr::to_string_multiple(&manifests()).expect("texts, numbers and maps can be written as YAML")
}

fn flux_definitions() -> Vec<Value> {
    let of_flux = |definition: &Value| {
        definition.pointer("/spec/group").and_then(Value::as_str).is_some_and(|group| group.ends_with(".fluxcd.io"))
    };
    definitions().into_iter().filter(of_flux).collect()
}

/// Takes Flux' definitions away, so that it can be installed.
pub(crate) fn remove_definitions(kubernetes: &Kubernetes) -> Result<(), ApiError> {
    for definition in flux_definitions() {
        kubernetes.delete(&crate::kubernetes::ObjectRef::of(&definition))?;
    }
    Ok(())
}

/// Returns when all of Flux has been applied; its Deployments are available then.
pub(super) async fn installed(kubernetes: &Kubernetes) {
    let mut changes = kubernetes.changes();
    loop {
        changes.mark_unchanged();
        let defined = [SOURCE, KUSTOMIZATION, RELEASE].iter().all(|kind| kubernetes.kind(kind.0, kind.1).is_ok());
        let there = CONTROLLERS.iter().all(|name| kubernetes.get("apps/v1", "Deployment", NAMESPACE, name).is_ok());
        if defined && there {
            for name in CONTROLLERS {
                if let Err(error) = chart::set_available(kubernetes, NAMESPACE, name) {
                    tracing::warn!(name, %error, "simulated controller could not be marked available");
                }
            }
            return;
        }
        if changes.changed().await.is_err() {
            return;
        }
    }
}
