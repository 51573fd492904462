//! Flux as its export is: definitions, rights and controllers, for the script to install.

use serde_json::{Value, json};

use crate::programs::Programs;

const NAMESPACE: &str = "flux-system";

/// Of the controllers that are built.
const VERSION: &str = "v2.7.5";

/// What `flux install --export` writes of the controllers that edge clusters need, with the definitions of those that are built. What runs for source-controller is [`Sources`](crate::sources::Sources).
///
/// # Panics
/// The definitions are not there.
#[must_use]
pub fn manifests(programs: &Programs) -> String {
    let entries = std::fs::read_dir(programs.definitions()).expect("the definitions can be listed");
    let mut files: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.retain(|file| file.to_string_lossy().contains(".toolkit.fluxcd.io_"));
    files.sort();
    assert!(files.len() > 3, "definitions of Flux: {files:?}");
    let mut documents: Vec<String> =
        files.iter().map(|file| std::fs::read_to_string(file).expect("a definition can be read")).collect();
    let controllers = ["source-controller", "kustomize-controller", "helm-controller"];
    let subjects: Vec<Value> = controllers
        .iter()
        .map(|name| json!({ "kind": "ServiceAccount", "name": name, "namespace": NAMESPACE }))
        .collect();
    let mut objects = vec![
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": { "name": "cluster-reconciler-flux-system" },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin" }, "subjects": subjects
        }),
    ];
    objects.extend(controllers.into_iter().flat_map(controller));
    // JSON is YAML.
    documents.extend(objects.iter().map(Value::to_string));
    documents.join("\n---\n")
}

fn controller(name: &str) -> [Value; 2] {
    let labels = json!({ "app.kubernetes.io/part-of": "flux", "app.kubernetes.io/version": VERSION });
    let port = |name: &str, port: u16| json!({ "name": name, "containerPort": port });
    let container = json!({
        "name": "manager", "image": format!("ghcr.io/fluxcd/{name}:test"),
        "args": ["--watch-all-namespaces=true", "--log-level=info", "--log-encoding=json", "--enable-leader-election"],
        "env": [{ "name": "RUNTIME_NAMESPACE", "valueFrom": { "fieldRef": { "fieldPath": "metadata.namespace" } } }],
        "ports": [port("http-prom", 8080), port("healthz", 9440)],
        "livenessProbe": { "httpGet": { "path": "/healthz", "port": "healthz" } },
        "readinessProbe": { "httpGet": { "path": "/readyz", "port": "healthz" } }
    });
    let account =
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": name, "namespace": NAMESPACE } });
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "name": name, "namespace": NAMESPACE, "labels": labels },
        "spec": {
            "replicas": 1, "selector": { "matchLabels": { "app": name } },
            "template": {
                "metadata": { "labels": { "app": name } },
                "spec": { "serviceAccountName": name, "terminationGracePeriodSeconds": 10, "containers": [container] }
            }
        }
    });
    [account, deployment]
}
