//! Flux' real helm- and kustomize-controller on what comes out of a git repository.

use kubernetes_tests::control_plane::ControlPlane;
use kubernetes_tests::controllers::{Flux, FluxOptions, apply};
use kubernetes_tests::definitions;
use kubernetes_tests::repository::Repository;
use serde_json::{Value, json};

use crate::waiting::{is_ready, until};

const CHART: &str = "apiVersion: v2\nname: small\nversion: 1.0.0\n";
const TEMPLATE: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}-made\ndata:\n  greeting: {{ .Values.greeting | quote }}\n";
const MANIFEST: &str =
    "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: by-hand\n  namespace: default\ndata:\n  number: \"1\"\n";

async fn start() -> (ControlPlane, Flux, Repository) {
    let repository = Repository::start().await;
    let mut plane = ControlPlane::start().await;
    definitions::apply_those_of_flux(&plane).await;
    let flux = Flux::start(&mut plane, &FluxOptions::default()).await;
    let source = json!({
        "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository", "metadata": { "name": "factory" },
        "spec": { "url": repository.url(), "interval": "1s", "ref": { "branch": "main" } }
    });
    apply(&plane, "source.toolkit.fluxcd.io/v1", "GitRepository", "default", &source).await;
    (plane, flux, repository)
}

fn release(greeting: &str) -> Value {
    let source = json!({ "kind": "GitRepository", "name": "factory" });
    json!({
        "apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "metadata": { "name": "robot" },
        "spec": {
            "interval": "1m", "values": { "greeting": greeting },
            "chart": { "spec": { "chart": "charts/small", "reconcileStrategy": "Revision", "interval": "1s", "sourceRef": source } }
        }
    })
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs real Kubernetes: make kubernetes"]
async fn a_chart_from_git_is_installed_upgraded_and_uninstalled_by_helm_controller() {
    let (plane, _flux, repository) = start().await;
    repository.commit(&[("charts/small/Chart.yaml", CHART), ("charts/small/templates/map.yaml", TEMPLATE)]);
    apply(&plane, "helm.toolkit.fluxcd.io/v2", "HelmRelease", "default", &release("hello")).await;
    let releases = definitions::api(plane.client(), "helm.toolkit.fluxcd.io/v2", "HelmRelease", "default");
    let maps = definitions::api(plane.client(), "v1", "ConfigMap", "default");
    until(&plane, &releases, "robot", is_ready).await;
    until(&plane, &maps, "robot-made", |map| map["data"]["greeting"] == "hello").await;

    apply(&plane, "helm.toolkit.fluxcd.io/v2", "HelmRelease", "default", &release("good morning")).await;
    until(&plane, &maps, "robot-made", |map| map["data"]["greeting"] == "good morning").await;

    // The version of the chart is that of before: the commit makes it another one.
    let changed = TEMPLATE.replace("greeting:", "changed:");
    repository.commit(&[("charts/small/templates/map.yaml", &changed)]);
    until(&plane, &maps, "robot-made", |map| map["data"]["changed"] == "good morning").await;

    releases.delete("robot", &kube::api::DeleteParams::default()).await.unwrap();
    let gone = kube::runtime::wait::await_condition(maps, "robot-made", |map: Option<&_>| map.is_none());
    tokio::time::timeout(std::time::Duration::from_secs(60), gone).await.expect("the release is uninstalled").unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs real Kubernetes: make kubernetes"]
async fn a_directory_of_a_repository_is_applied_and_pruned_by_kustomize_controller() {
    let (plane, _flux, repository) = start().await;
    repository.commit(&[("by-hand/map.yaml", MANIFEST), ("README.md", "Not for Flux.\n")]);
    let kustomization = json!({
        "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "metadata": { "name": "by-hand" },
        "spec": { "interval": "1m", "path": "./by-hand", "prune": true, "sourceRef": { "kind": "GitRepository", "name": "factory" } }
    });
    apply(&plane, "kustomize.toolkit.fluxcd.io/v1", "Kustomization", "default", &kustomization).await;
    let kustomizations = definitions::api(plane.client(), "kustomize.toolkit.fluxcd.io/v1", "Kustomization", "default");
    let maps = definitions::api(plane.client(), "v1", "ConfigMap", "default");
    until(&plane, &kustomizations, "by-hand", is_ready).await;
    until(&plane, &maps, "by-hand", |map| map["data"]["number"] == "1").await;

    let other = MANIFEST.replace("by-hand", "another");
    repository.commit(&[("by-hand/map.yaml", &other)]);
    until(&plane, &maps, "another", |map| map["data"]["number"] == "1").await;
    let gone = kube::runtime::wait::await_condition(maps, "by-hand", |map: Option<&_>| map.is_none());
    tokio::time::timeout(std::time::Duration::from_secs(60), gone).await.expect("what left git is pruned").unwrap();
}
