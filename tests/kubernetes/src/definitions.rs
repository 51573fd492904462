//! The resource definitions of Flux, Sealed Secrets and our chart, from the modules that are built and from the chart.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams};
use kube::runtime::wait::{await_condition, conditions};
use serde_json::Value;

use crate::control_plane::ControlPlane;

/// The field manager of what a test applies.
const MANAGER: &str = "kubernetes-tests";

/// Longest wait until the API serves the resources of a new definition.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(50);

/// Of the chart `edge-cluster`.
const OURS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../helm/edge-cluster/crds");

/// Applies the definitions of Flux and Sealed Secrets and those of our chart, and waits until the API serves them.
///
/// # Panics
/// One is refused.
pub async fn apply_all(plane: &ControlPlane) {
    apply_those_of_flux(plane).await;
    apply(plane, &files(Path::new(OURS))).await;
}

/// Applies those of Flux and Sealed Secrets alone, for a test that lets a chart bring its own.
///
/// # Panics
/// One is refused.
pub async fn apply_those_of_flux(plane: &ControlPlane) {
    apply(plane, &files(&plane.programs().definitions())).await;
}

async fn apply(plane: &ControlPlane, files: &[PathBuf]) {
    let api = Api::<CustomResourceDefinition>::all(plane.client());
    let mut names = Vec::new();
    for file in files {
        for definition in documents(file) {
            let name = definition["metadata"]["name"].as_str().expect("a definition has a name").to_owned();
            let params = PatchParams::apply(MANAGER).force();
            let applied = api.patch(&name, &params, &Patch::Apply(&definition)).await;
            applied.unwrap_or_else(|error| panic!("{name} is refused: {error}\n{}", plane.tails()));
            names.push((name, served(&definition)));
        }
    }
    for (name, resource) in names {
        let established = await_condition(api.clone(), &name, conditions::is_crd_established());
        established.await.unwrap_or_else(|error| panic!("{name} is not established: {error}"));
        let objects = Api::<DynamicObject>::all_with(plane.client(), &resource);
        let deadline = Instant::now() + PATIENCE;
        // For a moment after that the API answers 404, then 429.
        while let Err(error) = objects.list(&ListParams::default().limit(1)).await {
            assert!(Instant::now() < deadline, "{name} is not served: {error}");
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// What a definition defines, in a version that is served.
fn served(definition: &Value) -> ApiResource {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut versions = definition["spec"]["versions"].as_array().into_iter().flatten();
    let version = versions.find(|version| version["served"] == true).map(|version| text(&version["name"]));
    let (group, names) = (text(&definition["spec"]["group"]), &definition["spec"]["names"]);
    let kind = GroupVersionKind::gvk(&group, &version.unwrap_or_default(), &text(&names["kind"]));
    ApiResource::from_gvk_with_plural(&kind, &text(&names["plural"]))
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let listed = std::fs::read_dir(directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let mut files: Vec<PathBuf> = listed.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    files
}

fn documents(file: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let documents: Vec<Value> =
        serde_saphyr::from_multiple(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    documents.into_iter().filter(|document| !document.is_null()).collect()
}

/// The API of a kind in a namespace, from `apiVersion` and `kind`.
///
/// # Panics
/// `api_version` is not `<group>/<version>` or `v1`.
#[must_use]
pub fn api(client: kube::Client, api_version: &str, kind: &str, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client, namespace, &resource(api_version, kind))
}

/// The same in all namespaces.
#[must_use]
pub fn api_everywhere(client: kube::Client, api_version: &str, kind: &str) -> Api<DynamicObject> {
    Api::all_with(client, &resource(api_version, kind))
}

fn resource(api_version: &str, kind: &str) -> ApiResource {
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}
