//! An attacker who has the token of edge sync's account, or controls the central services that edge sync obeys, reaches nothing outside of the cluster's namespace. The tests run Flux' real
//! controllers, limited as the bootstrap script limits them.

use std::time::Duration;

use kubernetes_tests::control_plane::ControlPlane;
use kubernetes_tests::controllers::{Flux, FluxOptions};
use kubernetes_tests::definitions;
use kubernetes_tests::repository::Repository;
use serde_json::{Value, json};

use crate::edge_chart::{Edge, WITH_JOIN, refused, run};
use crate::waiting::{is_ready, until};

const SCRIPT: &str = include_str!("../../../../services/cluster-manager/src/bootstrap.sh");
const RELEASE: (&str, &str) = ("helm.toolkit.fluxcd.io/v2", "HelmRelease");
const KUSTOMIZATION: (&str, &str) = ("kustomize.toolkit.fluxcd.io/v1", "Kustomization");
const AGENTS: &str = "sparkfleet-agents";
const SYNC: &str = "sparkfleet-edge";

/// What the bootstrap script has Flux started with.
fn locks() -> Vec<String> {
    let line = SCRIPT.lines().find_map(|line| line.strip_prefix("flux_locks='")).unwrap();
    let locks: Vec<String> = line.trim_end_matches('\'').split(' ').map(str::to_owned).collect();
    assert!(locks.len() >= 2, "{line}");
    locks
}

/// The control plane with Flux, and a repository that is a source in the edge's namespace and in another.
struct Scene {
    plane: ControlPlane,
    repository: Repository,
    _flux: Flux,
}

impl Scene {
    async fn start() -> Self {
        let repository = Repository::start().await;
        let mut plane = ControlPlane::start().await;
        definitions::apply_those_of_flux(&plane).await;
        let flux = Flux::start(&mut plane, &FluxOptions { arguments: locks() }).await;
        run(&plane, "kubectl", &["create", "namespace", "victim"], "").unwrap();
        run(&plane, "kubectl", &["create", "secret", "generic", "precious", "--namespace", "kube-system"], "").unwrap();
        Self { plane, repository, _flux: flux }
    }

    fn administrator(&self, object: &Value) {
        run(&self.plane, "kubectl", &["create", "-f", "-"], &object.to_string()).unwrap();
    }

    /// The sources, by an administrator.
    fn follow_repository(&self, edge: &Edge<'_>) {
        for namespace in [&edge.namespace, "victim"] {
            let spec = json!({ "url": self.repository.url(), "interval": "1s", "ref": { "branch": "main" } });
            let metadata = json!({ "name": "factory", "namespace": namespace });
            let source = json!({ "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository", "metadata": metadata, "spec": spec });
            self.administrator(&source);
        }
    }

    /// A chart with one template in the repository.
    fn commit_chart(&self, name: &str, file: &str, content: &str) {
        let chart = format!("apiVersion: v2\nname: {name}\nversion: 1.0.0\n");
        let files =
            [(format!("charts/{name}/Chart.yaml"), chart), (format!("charts/{name}/{file}"), content.to_owned())];
        self.repository.commit(&files.each_ref().map(|(path, text)| (path.as_str(), text.as_str())));
    }

    /// Waits until a controller has refused a reference to another namespace. Of some it says so in its log alone.
    async fn blocks(&self, controller: &str, name: &str) {
        let name = format!("\"name\":\"{name}\"");
        let is_blocked = |line: &str| line.contains(&name) && line.contains("cross-namespace references");
        let said = async {
            while !self.plane.log(controller).lines().any(is_blocked) {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        let said = tokio::time::timeout(Duration::from_secs(120), said).await;
        assert!(said.is_ok(), "{controller} does not refuse {name}\n{}", self.plane.log(controller));
    }

    /// Waits until Flux says that an object of it has failed, and why.
    async fn fails(&self, edge: &Edge<'_>, (api_version, kind): (&str, &str), name: &str, part: &str) {
        let api = definitions::api(self.plane.client(), api_version, kind, &edge.namespace);
        let failed = |object: &Value| {
            let conditions = object["status"]["conditions"].as_array();
            let mut said = conditions.into_iter().flatten();
            said.any(|is| {
                is["type"] == "Ready" && is["status"] == "False" && is["message"].as_str().unwrap().contains(part)
            })
        };
        until(&self.plane, &api, name, failed).await;
    }
}

/// A release of a chart in the repository, as edge sync writes it.
fn release(edge: &Edge<'_>, name: &str, chart: &str, changes: &Value) -> Value {
    let source = json!({ "kind": "GitRepository", "name": "factory" });
    let chart = json!({ "spec": { "chart": format!("charts/{chart}"), "reconcileStrategy": "Revision", "interval": "1s", "sourceRef": source } });
    let strategy = json!({ "name": "RetryOnFailure", "retryInterval": "10s" });
    let mut spec =
        json!({ "chart": chart, "install": { "crds": "CreateReplace", "disableWait": true, "strategy": strategy } });
    spec["upgrade"] = spec["install"].clone();
    for (field, value) in changes.as_object().unwrap() {
        spec[field] = value.clone();
    }
    let mut release = edge.release(&spec);
    release["metadata"]["name"] = json!(name);
    release
}

/// A kubeconfig with nothing but a token of an account; its path.
fn with_token(edge: &Edge<'_>, account: &str) -> String {
    let token = edge.kubectl(&["create", "token", account], "").unwrap();
    let plane = edge.plane;
    let authority = plane.directory().join("pki/ca.crt");
    let cluster = json!({ "server": format!("https://{}", plane.api_address()), "certificate-authority": authority });
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "token",
        "clusters": [{ "name": "token", "cluster": cluster }],
        "users": [{ "name": "token", "user": { "token": token.trim() } }],
        "contexts": [{ "name": "token", "context": { "cluster": "token", "user": "token", "namespace": edge.namespace } }]
    });
    let path = plane.directory().join(format!("{account}.conf"));
    std::fs::write(&path, config.to_string()).unwrap();
    path.display().to_string()
}

/// What an account may do in a namespace beyond the rights of every account, one rule a line.
fn rights(edge: &Edge<'_>, kubeconfig: &str, namespace: &str) -> Vec<String> {
    let listed = ["--kubeconfig", kubeconfig, "--namespace", namespace, "auth", "can-i", "--list", "--no-headers"];
    let rules = run(edge.plane, "kubectl", &listed, "").unwrap();
    let everybodys = |line: &&str| line.starts_with("selfsubject") || line.trim_start().starts_with('[');
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut rules: Vec<String> = rules.lines().filter(|line| !everybodys(line)).map(words).collect();
    rules.sort();
    rules
}

const ELSEWHERE: [&str; 4] = ["default", "kube-system", "flux-system", "victim"];

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs real Kubernetes: make kubernetes"]
async fn edge_syncs_token_has_no_rights_outside_of_its_namespace_and_writes_nothing_that_reaches_there() {
    let scene = Scene::start().await;
    let edge = Edge::install(&scene.plane, &WITH_JOIN);
    let kubeconfig = with_token(&edge, SYNC);
    let by_token = |arguments: &[&str], input: &str| {
        run(&scene.plane, "kubectl", &[&["--kubeconfig", &kubeconfig], arguments].concat(), input)
    };
    // It sees the cluster's hosts, and the certificate that values are sealed with.
    let hosts = "nodes [] [] [list watch]";
    let certificate = "services/proxy [] [http:sealed-secrets:http] [get]";
    let releases = format!("{}-releases", edge.namespace);
    for namespace in ELSEWHERE.into_iter().chain([releases.as_str()]) {
        assert_eq!(rights(&edge, &kubeconfig, namespace), [hosts, certificate], "{namespace}");
    }
    refused(by_token(&["get", "secret", "precious", "--namespace", "kube-system"], ""), "forbidden");
    refused(by_token(&["get", "secrets"], ""), "forbidden");
    refused(by_token(&["create", "token", AGENTS], ""), "forbidden");
    refused(by_token(&["get", "pods", "--as", "system:admin"], ""), "cannot impersonate");
    refused(
        by_token(&["delete", "validatingadmissionpolicybinding", &format!("sparkfleet-edge-{}", edge.namespace)], ""),
        "forbidden",
    );
    refused(by_token(&["label", "namespace", &edge.namespace, "pod-security.kubernetes.io/enforce-"], ""), "forbidden");

    let create = ["create", "-f", "-"];
    let other = json!("kube-system");
    let elsewhere = json!({ "kind": "GitRepository", "name": "factory", "namespace": "victim" });
    let patch = json!([{ "kustomize": { "patches": [{ "patch": "[]", "target": { "kind": "ConfigMap" } }] } }]);
    for (number, changes) in [
        json!({ "targetNamespace": other }),
        json!({ "targetNamespace": other, "install": { "createNamespace": true } }),
        json!({ "storageNamespace": other }),
        json!({ "storageNamespace": null }),
        json!({ "serviceAccountName": "sparkfleet-flux" }),
        json!({ "serviceAccountName": SYNC }),
        json!({ "serviceAccountName": null }),
        json!({ "postRenderers": patch }),
        json!({ "kubeConfig": { "secretRef": { "name": "sparkfleet-join" } } }),
        json!({ "kubeConfig": { "configMapRef": { "name": "kube-root-ca.crt" } } }),
        json!({ "valuesFrom": [{ "kind": "Secret", "name": "sparkfleet-join" }] }),
        json!({ "chart": { "spec": { "chart": "charts/good", "sourceRef": elsewhere } } }),
        json!({ "chart": null, "chartRef": { "kind": "HelmChart", "name": "x", "namespace": "victim" } }),
        json!({ "dependsOn": [{ "name": "x", "namespace": "victim" }] }),
    ]
    .into_iter()
    .enumerate()
    {
        let hostile = release(&edge, &format!("hostile-{number}"), "good", &changes);
        refused(by_token(&create, &hostile.to_string()), "ValidatingAdmissionPolicy");
    }
    let source = json!({ "kind": "GitRepository", "name": "factory" });
    for changes in [
        json!({}),
        json!({ "targetNamespace": other }),
        json!({ "serviceAccountName": "sparkfleet-flux" }),
        json!({ "kubeConfig": { "secretRef": { "name": "x" } } }),
        json!({ "patches": [{ "patch": "[]", "target": { "kind": "ConfigMap" } }] }),
        json!({ "sourceRef": elsewhere }),
    ] {
        let mut spec = json!({ "interval": "1m", "prune": true, "sourceRef": source });
        spec.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        let hostile = edge.ours(KUSTOMIZATION.0, KUSTOMIZATION.1, "hostile", "spec", &spec);
        refused(by_token(&create, &hostile.to_string()), "forbidden");
    }
    // In another namespace not even what is harmless here.
    let mut harmless = release(&edge, "harmless", "good", &json!({}));
    by_token(&["create", "--dry-run=server", "-f", "-"], &harmless.to_string()).unwrap();
    harmless["metadata"]["namespace"] = json!("victim");
    refused(by_token(&["--namespace", "victim", "create", "-f", "-"], &harmless.to_string()), "forbidden");
}

const GOOD: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: good\n";

/// Templates of charts, each with what the API server says when Flux installs it for edge sync.
// long: one line for each thing that is tried.
fn hostile_charts(namespace: &str) -> Vec<(&'static str, Value, &'static str)> {
    let role = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin" });
    let subjects = json!([{ "kind": "ServiceAccount", "name": SYNC, "namespace": namespace }]);
    let rbac = "rbac.authorization.k8s.io/v1";
    let admission = "admissionregistration.k8s.io/v1";
    let object = |api_version: &str, kind: &str, content: Value| {
        let mut object = json!({ "apiVersion": api_version, "kind": kind, "metadata": { "name": "hostile" } });
        object.as_object_mut().unwrap().extend(content.as_object().unwrap().clone());
        object
    };
    let pod = |content: Value| {
        let mut spec = json!({ "containers": [{ "name": "a", "image": "a" }] });
        spec.as_object_mut().unwrap().extend(content.as_object().unwrap().clone());
        object("v1", "Pod", json!({ "spec": spec }))
    };
    let host = json!([{ "name": "host", "hostPath": { "path": "/" } }]);
    let privileged = json!([{ "name": "a", "image": "a", "securityContext": { "privileged": true } }]);
    let hook = json!({ "metadata": { "name": "hostile", "annotations": { "helm.sh/hook": "pre-install" } } });
    let source = json!({ "kind": "GitRepository", "name": "factory" });
    let by_flux =
        json!({ "interval": "1m", "prune": true, "sourceRef": source, "serviceAccountName": "sparkfleet-flux" });
    let own_policy =
        json!({ "metadata": { "name": format!("sparkfleet-agents-{namespace}") }, "spec": { "policyName": "none" } });
    let (forbidden, secured) = ("is forbidden: User", "violates PodSecurity");
    let mut hooked = pod(json!({ "hostPID": true }));
    hooked["metadata"] = hook["metadata"].clone();
    vec![
        (
            "administrator",
            object(rbac, "ClusterRoleBinding", json!({ "roleRef": role, "subjects": subjects })),
            forbidden,
        ),
        (
            "administrator-here",
            object(rbac, "RoleBinding", json!({ "roleRef": role, "subjects": subjects })),
            forbidden,
        ),
        (
            "map-of-victim",
            object("v1", "ConfigMap", json!({ "metadata": { "name": "hostile", "namespace": "victim" } })),
            forbidden,
        ),
        (
            "map-of-system",
            object("v1", "ConfigMap", json!({ "metadata": { "name": "hostile", "namespace": "kube-system" } })),
            forbidden,
        ),
        (
            "secret-of-system",
            object("v1", "Secret", json!({ "metadata": { "name": "precious", "namespace": "kube-system" } })),
            forbidden,
        ),
        ("secret", object("v1", "Secret", json!({})), forbidden),
        ("namespace", object("v1", "Namespace", json!({})), forbidden),
        ("volume", object("v1", "PersistentVolume", json!({ "spec": { "hostPath": { "path": "/" } } })), forbidden),
        ("webhook", object(admission, "MutatingWebhookConfiguration", json!({ "webhooks": [] })), forbidden),
        ("policy", object(admission, "ValidatingAdmissionPolicyBinding", own_policy), forbidden),
        ("release", object(RELEASE.0, RELEASE.1, json!({ "spec": by_flux })), forbidden),
        ("kustomization", object(KUSTOMIZATION.0, KUSTOMIZATION.1, json!({ "spec": by_flux })), forbidden),
        ("privileged", pod(json!({ "containers": privileged })), secured),
        ("host-path", pod(json!({ "volumes": host })), secured),
        ("host-network", pod(json!({ "hostNetwork": true })), secured),
        ("hook", hooked, secured),
        ("account", pod(json!({ "serviceAccountName": "sparkfleet-join" })), "the accounts sparkfleet-*"),
        (
            "secrets-of-join",
            pod(json!({ "volumes": [{ "name": "v", "secret": { "secretName": "sparkfleet-join" } }] })),
            "Secrets of the edge's own services",
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs real Kubernetes: make kubernetes"]
async fn a_hostile_chart_that_edge_sync_releases_gets_nothing_outside_of_the_namespace() {
    let scene = Scene::start().await;
    let edge = Edge::install(&scene.plane, &WITH_JOIN);
    let charts = hostile_charts(&edge.namespace);
    scene.commit_chart("good", "templates/good.yaml", GOOD);
    for (name, template, _) in &charts {
        scene.commit_chart(name, "templates/hostile.yaml", &template.to_string());
    }
    // Helm looks things up while it renders.
    let lookup = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: hostile\ndata:\n  secret: {{ lookup \"v1\" \"Secret\" \"kube-system\" \"precious\" | toJson | quote }}\n";
    scene.commit_chart("lookup", "templates/hostile.yaml", lookup);
    let names = json!({ "kind": "Hostile", "plural": "hostiles" });
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": { "name": "hostiles.example.com" },
        "spec": { "group": "example.com", "names": names, "scope": "Cluster",
            "versions": [{ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": { "type": "object" } } }] }
    });
    scene.commit_chart("definition", "crds/hostile.yaml", &definition.to_string());
    // Pods that a controller makes are judged when it makes them.
    let privileged =
        json!({ "containers": [{ "name": "a", "image": "a", "securityContext": { "privileged": true } }] });
    scene.commit_chart("deployment", "templates/hostile.yaml", &edge.deployment("hostile", &privileged).to_string());
    scene.follow_repository(&edge);

    let kubeconfigs = [SYNC, AGENTS].map(|account| with_token(&edge, account));
    let all_rights = || {
        let of = |kubeconfig: &String| ELSEWHERE.map(|namespace| rights(&edge, kubeconfig, namespace));
        kubeconfigs.each_ref().map(of)
    };
    let before = all_rights();
    assert_eq!(before[1], ELSEWHERE.map(|_| Vec::<String>::new()), "the account of releases has rights elsewhere");
    let write = |name: &str| {
        let object = release(&edge, name, name, &json!({}));
        let arguments = ["--kubeconfig", kubeconfigs[0].as_str(), "create", "-f", "-"];
        run(&scene.plane, "kubectl", &arguments, &object.to_string()).unwrap();
    };
    for (name, ..) in &charts {
        write(name);
    }
    ["good", "lookup", "definition", "deployment"].into_iter().for_each(write);
    let user = format!("system:serviceaccount:{}:{AGENTS}", edge.namespace);
    for (name, _, part) in &charts {
        scene.fails(&edge, RELEASE, name, part).await;
    }
    for name in ["lookup", "definition"] {
        scene.fails(&edge, RELEASE, name, &user).await;
    }
    let releases = definitions::api(scene.plane.client(), RELEASE.0, RELEASE.1, &edge.namespace);
    until(&scene.plane, &releases, "good", is_ready).await;
    let deployments = definitions::api(scene.plane.client(), "apps/v1", "Deployment", &edge.namespace);
    let judged = |object: &Value| {
        let conditions = object["status"]["conditions"].as_array();
        conditions.into_iter().flatten().any(|is| {
            is["type"] == "ReplicaFailure" && is["message"].as_str().unwrap().contains("violates PodSecurity")
        })
    };
    until(&scene.plane, &deployments, "hostile", judged).await;

    assert_eq!(all_rights(), before);
    let kinds = "configmaps,secrets,pods,roles,rolebindings,clusterroles,clusterrolebindings,persistentvolumes,mutatingwebhookconfigurations,customresourcedefinitions,namespaces";
    let everything = run(&scene.plane, "kubectl", &["get", kinds, "--all-namespaces", "--output", "name"], "").unwrap();
    assert!(everything.contains("configmap/good") && !everything.contains("hostile"), "{everything}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs real Kubernetes: make kubernetes"]
async fn where_no_policy_refuses_them_flux_gives_releases_and_kustomizations_no_rights_elsewhere() {
    let scene = Scene::start().await;
    let edge = Edge::install(&scene.plane, &WITH_JOIN);
    scene.commit_chart("good", "templates/good.yaml", GOOD);
    scene.repository.commit(&[("by-hand/good.yaml", GOOD)]);
    scene.follow_repository(&edge);
    let of = |account: &str| format!("system:serviceaccount:{}:{account}", edge.namespace);
    let elsewhere = json!({ "kind": "GitRepository", "name": "factory", "namespace": "victim" });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": { "name": "hostile" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin" }
    });
    let become_binding = json!([
        { "op": "replace", "path": "/apiVersion", "value": binding["apiVersion"] },
        { "op": "replace", "path": "/kind", "value": binding["kind"] },
        { "op": "add", "path": "/roleRef", "value": binding["roleRef"] }
    ]);
    let patches = json!([{ "target": { "kind": "ConfigMap" }, "patch": become_binding.to_string() }]);
    // An administrator writes them: the policies of edge sync do not look.
    let releases = [
        ("no-account", json!({ "serviceAccountName": null }), Some("default")),
        ("target", json!({ "targetNamespace": "kube-system" }), Some(AGENTS)),
        ("storage", json!({ "storageNamespace": "kube-system" }), Some(AGENTS)),
        ("rendered", json!({ "postRenderers": [{ "kustomize": { "patches": patches } }] }), Some(AGENTS)),
        ("source", json!({ "chart": { "spec": { "chart": "charts/good", "sourceRef": elsewhere } } }), None),
        (
            "chart",
            json!({ "chart": null, "chartRef": { "kind": "HelmChart", "name": "x", "namespace": "victim" } }),
            None,
        ),
    ];
    for (name, changes, _) in &releases {
        scene.administrator(&release(&edge, name, "good", changes));
    }
    let kustomizations = [
        ("no-account", json!({}), Some("default")),
        ("target", json!({ "targetNamespace": "kube-system", "serviceAccountName": AGENTS }), Some(AGENTS)),
        ("patched", json!({ "patches": patches, "serviceAccountName": AGENTS }), Some(AGENTS)),
        ("source", json!({ "sourceRef": elsewhere, "serviceAccountName": AGENTS }), None),
    ];
    for (name, changes, _) in &kustomizations {
        let source = json!({ "kind": "GitRepository", "name": "factory" });
        let mut spec =
            json!({ "interval": "1m", "retryInterval": "1s", "prune": true, "path": "./by-hand", "sourceRef": source });
        spec.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        scene.administrator(&edge.ours(KUSTOMIZATION.0, KUSTOMIZATION.1, name, "spec", &spec));
    }
    for (name, _, user) in &releases {
        match user {
            Some(user) => scene.fails(&edge, RELEASE, name, &of(user)).await,
            None => scene.blocks("helm-controller", name).await,
        }
    }
    for (name, _, user) in &kustomizations {
        match user {
            Some(user) => scene.fails(&edge, KUSTOMIZATION, name, &of(user)).await,
            None => scene.blocks("kustomize-controller", name).await,
        }
    }
    let made = ["get", "configmaps,clusterrolebindings", "--all-namespaces", "--output", "name"];
    let made = run(&scene.plane, "kubectl", &made, "").unwrap();
    assert!(!made.contains("/good") && !made.contains("hostile"), "{made}");
}
