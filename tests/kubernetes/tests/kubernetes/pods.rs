//! Pods as processes: what a program sees, and what its pod's status says.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use configdb_schema::document::SealingScope;
use kube::api::{Api, DeleteParams, DynamicObject};
use kubernetes_tests::control_plane::{ControlPlane, Options};
use kubernetes_tests::controllers::apply;
use kubernetes_tests::definitions;
use kubernetes_tests::kubelet::{Kubelet, Program};
use sealed_secrets::{Plain, Request, SESSION_KEY_BYTES, SealingCertificate, sealed_secret};
use serde_json::{Value, json};
use zeroize::Zeroizing;

use crate::edge_chart::{chart, run};
use crate::waiting::until;

async fn grant(plane: &ControlPlane, role: &str) {
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": { "name": "test" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role },
        "subjects": [{ "kind": "ServiceAccount", "name": "default", "namespace": "default" }]
    });
    apply(plane, "rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "", &binding).await;
}

/// kubectl itself is the program: it believes in the paths and the environment that every pod has.
async fn kubelet(plane: &ControlPlane, binds: bool) -> Kubelet {
    let (kubectl, controller) = ("kubectl", "sealed-secrets-controller");
    let paths = [kubectl, controller].map(|name| (name, plane.programs().program(name)));
    let images = move |image: &str, address: std::net::IpAddr| {
        let (name, path) = paths.iter().find(|(name, _)| image.starts_with(name))?;
        let mut program = Program::new(path.clone());
        if *name == "sealed-secrets-controller" {
            program.arguments =
                vec![format!("--listen-addr={address}:8080"), format!("--listen-metrics-addr={address}:8081")];
        }
        Some(program)
    };
    Kubelet::start(plane, &["paint-shop-1", "paint-shop-2"], binds, Box::new(images)).await
}

fn pod(name: &str, image: &str, spec: &Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "labels": { "app": name } },
        "spec": { "containers": [{ "name": "main", "image": image }] }
    });
    for (key, value) in spec.as_object().into_iter().flatten() {
        match key.as_str() {
            "volumes" | "restartPolicy" | "nodeSelector" => pod["spec"][key] = value.clone(),
            _ => pod["spec"]["containers"][0][key] = value.clone(),
        }
    }
    pod
}

fn pods(plane: &ControlPlane) -> Api<DynamicObject> {
    definitions::api(plane.client(), "v1", "Pod", "default")
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs real Kubernetes: make kubernetes"]
async fn a_scheduled_pod_has_its_config_map_its_environment_and_a_token_of_its_own() {
    let options = Options { scheduler: true, ..Options::default() };
    let plane = ControlPlane::with(options).await;
    grant(&plane, "cluster-admin").await;
    let _kubelet = kubelet(&plane, false).await;
    let manifest = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "made-by-a-pod" }, "data": { "a": "1" }
    });
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "manifests" },
        "data": { "map.json": manifest.to_string() }
    });
    apply(&plane, "v1", "ConfigMap", "default", &map).await;
    // A pod that has not what it mounts waits; here it comes later.
    let spec = json!({
        "args": ["create", "-f", "/etc/test/map.json"], "restartPolicy": "Never",
        "nodeSelector": { "kubernetes.io/hostname": "paint-shop-2" },
        "volumeMounts": [{ "name": "manifests", "mountPath": "/etc/test/map.json", "subPath": "map.json" }],
        "volumes": [{ "name": "manifests", "configMap": { "name": "manifests" } }]
    });
    apply(&plane, "v1", "Pod", "default", &pod("creator", "kubectl:1", &spec)).await;
    let ended = until(&plane, &pods(&plane), "creator", |pod| pod["status"]["phase"] == "Succeeded").await;
    assert_eq!(ended["spec"]["nodeName"], "paint-shop-2");
    let maps = definitions::api(plane.client(), "v1", "ConfigMap", "default");
    until(&plane, &maps, "made-by-a-pod", |map| map["data"]["a"] == "1").await;

    let spec = json!({ "args": ["auth", "whoami", "-o", "json"], "restartPolicy": "Never" });
    apply(&plane, "v1", "Pod", "default", &pod("who", "kubectl:1", &spec)).await;
    until(&plane, &pods(&plane), "who", |pod| pod["status"]["phase"] == "Succeeded").await;
    let who: Value = serde_json::from_str(&plane.log("pod-default-who-main")).unwrap();
    let who = &who["status"]["userInfo"];
    assert_eq!(who["username"], "system:serviceaccount:default:default");
    assert_eq!(who["extra"]["authentication.kubernetes.io/pod-name"], json!(["who"]), "the token is bound to the pod");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs real Kubernetes: make kubernetes"]
async fn a_program_that_ends_is_started_again_and_one_whose_pod_is_deleted_is_ended() {
    let plane = ControlPlane::start().await;
    let _kubelet = kubelet(&plane, true).await;
    apply(&plane, "v1", "Pod", "default", &pod("failing", "kubectl:1", &json!({ "args": ["no-such-command"] }))).await;
    let restarted = |pod: &Value| pod["status"]["containerStatuses"][0]["restartCount"].as_u64() > Some(0);
    until(&plane, &pods(&plane), "failing", restarted).await;

    grant(&plane, "cluster-admin").await;
    let watching = json!({ "args": ["get", "pods", "--watch"] });
    apply(&plane, "v1", "Pod", "default", &pod("watching", "kubectl:1", &watching)).await;
    let is_ready = |pod: &Value| {
        let conditions = pod["status"]["conditions"].as_array();
        conditions.into_iter().flatten().any(|is| is["type"] == "Ready" && is["status"] == "True")
    };
    until(&plane, &pods(&plane), "watching", is_ready).await;
    let runs = || running(plane.directory());
    // It is started again, if it came before its rights were in force.
    e2e::wait::until("a program of a pod", || (runs() > 0).then_some(()), String::new).await;
    for name in ["watching", "failing"] {
        pods(&plane).delete(name, &DeleteParams::default()).await.unwrap();
        let gone = kube::runtime::wait::await_condition(pods(&plane), name, |pod: Option<&_>| pod.is_none());
        tokio::time::timeout(Duration::from_secs(60), gone).await.expect("the pod goes").unwrap();
    }
    assert_eq!(runs(), 0, "a program outlives its pod");
}

/// How many processes have their root below a directory.
fn running(directory: &std::path::Path) -> usize {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let roots = processes.filter_map(|process| std::fs::read_link(process.path().join("root")).ok());
    roots.filter(|root| root.starts_with(directory)).count()
}

/// The definition of SealedSecret as the chart `edge-cluster` brings it.
async fn bring_definition(plane: &ControlPlane) {
    let chart = chart("edge-cluster").display().to_string();
    let template = [
        "template",
        "edge",
        &chart,
        "--set",
        "cluster.name=Test",
        "--kube-version",
        "1.36",
        "--show-only",
        "templates/sealed-secrets.yaml",
    ];
    let rendered: Vec<Value> = serde_saphyr::from_multiple(&run(plane, "helm", &template, "").unwrap()).unwrap();
    let definition = rendered.iter().find(|object| object["kind"] == "CustomResourceDefinition").unwrap();
    run(plane, "kubectl", &["create", "-f", "-"], &definition.to_string()).unwrap();
    let name = "customresourcedefinition/sealedsecrets.bitnami.com";
    run(plane, "kubectl", &["wait", "--for=condition=Established", name], "").unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs real Kubernetes: make kubernetes"]
async fn the_real_controller_opens_what_our_package_has_sealed() {
    let plane = ControlPlane::start().await;
    bring_definition(&plane).await;
    grant(&plane, "cluster-admin").await;
    let _kubelet = kubelet(&plane, true).await;
    let spec = json!({
        "ports": [{ "name": "http", "containerPort": 8080 }],
        "readinessProbe": { "httpGet": { "path": "/healthz", "port": "http" } }
    });
    apply(&plane, "v1", "Pod", "default", &pod("controller", "sealed-secrets-controller:1", &spec)).await;
    let is_ready = |pod: &Value| pod["status"]["containerStatuses"][0]["ready"] == true;
    until(&plane, &pods(&plane), "controller", is_ready).await;

    let secrets = definitions::api(plane.client(), "v1", "Secret", "default");
    let labelled = kube::api::ListParams::default().labels("sealedsecrets.bitnami.com/sealed-secrets-key=active");
    let keys = secrets.list(&labelled).await.unwrap();
    let encoded = keys.items[0].data["data"]["tls.crt"].as_str().unwrap();
    let pem = base64::Engine::decode(&base64::engine::general_purpose::STANDARD, encoded).unwrap();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let certificate = SealingCertificate::from_pem(&String::from_utf8(pem).unwrap(), now).unwrap();
    let mut session_key = Zeroizing::new([0; SESSION_KEY_BYTES]);
    session_key.iter_mut().for_each(|byte| *byte = uuid::Uuid::new_v4().into_bytes()[0]);
    let plain = Plain { key: "password".to_owned(), value: Zeroizing::new(b"not in git".to_vec()), session_key };
    let request = Request { namespace: "default", name: "robot", scope: SealingScope::Strict, secret_type: "Opaque" };
    let sealed = sealed_secret(&certificate, request, &[plain]).unwrap();
    apply(&plane, "bitnami.com/v1alpha1", "SealedSecret", "default", &sealed).await;
    // Base64 of the value.
    until(&plane, &secrets, "robot", |secret| secret["data"]["password"] == "bm90IGluIGdpdA==").await;
}
