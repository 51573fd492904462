//! A simulated cluster with Flux: from a git repository to installed releases and back.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use simulator::cluster::{ClusterSpec, HostSpec, SEALING_CERTIFICATE, SPECIALISED, SimulatedCluster};
use simulator::flux::FluxOptions;
use simulator::flux::chart::{Charts, FailingChart, HookChart};
use simulator::flux::git::write_charts;
use simulator::kubernetes::{Kubernetes, ObjectRef};

const HELM: &str = "helm.toolkit.fluxcd.io/v2";
const GIT: &str = "source.toolkit.fluxcd.io/v1";

async fn cluster(charts: Charts) -> SimulatedCluster {
    let flux_options = FluxOptions { retry: Duration::from_millis(50), tick: Duration::from_millis(20) };
    SimulatedCluster::start(ClusterSpec { flux_options, ..ClusterSpec::new("Paint_Shop") }, charts).await.unwrap()
}

/// Waits until the object looks as wanted.
async fn until(
    kubernetes: &Kubernetes,
    api_version: &str,
    kind: &str,
    name: &str,
    wanted: impl Fn(Option<&Value>) -> bool,
) {
    let mut changes = kubernetes.changes();
    let all = async {
        loop {
            changes.mark_unchanged();
            let object = kubernetes.get(api_version, kind, "fplus-edge", name).ok();
            if wanted(object.as_deref()) {
                return;
            }
            changes.changed().await.unwrap();
        }
    };
    if tokio::time::timeout(Duration::from_secs(120), all).await.is_err() {
        let object = kubernetes.get(api_version, kind, "fplus-edge", name);
        panic!("{kind} {name} did not become as wanted: {object:#?}");
    }
}

fn ready(object: Option<&Value>) -> Option<(bool, String)> {
    let condition = object?.pointer("/status/conditions/0")?;
    Some((condition["status"] == "True", condition["message"].as_str()?.to_string()))
}

fn release(name: &str, chart: &str, values: Value) -> Value {
    json!({
        "apiVersion": HELM, "kind": "HelmRelease", "metadata": {"name": name, "namespace": "fplus-edge"},
        "spec": {"interval": "2m0s", "chart": {"spec": {"chart": chart, "sourceRef": {"kind": "GitRepository", "name": "helm-charts"}}}, "values": values}
    })
}

fn charts_repository(directory: &Path, reference: Value) -> Value {
    json!({
        "apiVersion": GIT, "kind": "GitRepository", "metadata": {"name": "helm-charts", "namespace": "fplus-edge"},
        "spec": {"interval": "3m", "url": format!("file://{}", directory.display()), "ref": reference}
    })
}

/// A repository with charts at these paths, on branch `main`.
fn charts(paths: &[&str]) -> tempfile::TempDir {
    let repository = tempfile::tempdir().unwrap();
    write_charts(repository.path(), paths).unwrap();
    repository
}

fn write_chart(repository: &Path, path: &str, text: &str) {
    std::fs::create_dir_all(repository.join(path)).unwrap();
    std::fs::write(repository.join(path).join("Chart.yaml"), text).unwrap();
}

fn main_branch() -> Value {
    json!({"branch": "main"})
}

/// Asks for a reconciliation at once.
fn ask(api: &Kubernetes, kind: &str, name: &str, at: &str) {
    let request = json!({"metadata": {"annotations": {"reconcile.fluxcd.io/requestedAt": at}}});
    api.merge("test", &place(kind, name), request).unwrap();
}

fn place<'a>(kind: &'a str, name: &'a str) -> ObjectRef<'a> {
    let api_version = match kind {
        "HelmRelease" => HELM,
        "Kustomization" => "kustomize.toolkit.fluxcd.io/v1",
        "GitRepository" => GIT,
        _ => "v1",
    };
    ObjectRef { api_version, kind, namespace: "fplus-edge", name }
}

#[tokio::test]
async fn a_release_waits_for_its_source_is_installed_upgraded_and_uninstalled() {
    let calls: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = |verb: &'static str| {
        let calls = calls.clone();
        move |release: simulator::flux::chart::Release| -> futures::future::BoxFuture<'static, _> {
            calls.lock().unwrap().push(format!("{verb} {} {}", release.name, release.values["size"]));
            Box::pin(async { Ok(()) })
        }
    };
    let cluster = cluster(Charts::new().with("edge-cluster", HookChart::new(log("install"), log("uninstall")))).await;
    let api = cluster.kubernetes();
    api.apply("sync", release("r", "edge-cluster", json!({"size": 1}))).unwrap();
    until(api, HELM, "HelmRelease", "r", |o| {
        ready(o).is_some_and(|(ok, m)| !ok && m.contains("'fplus-edge/helm-charts' not found"))
    })
    .await;
    assert!(calls.lock().unwrap().is_empty());

    let repository = charts(&[]);
    api.apply("sync", charts_repository(repository.path(), main_branch())).unwrap();
    until(api, HELM, "HelmRelease", "r", |o| ready(o).is_some_and(|(ok, _)| ok)).await;
    let object = api.get(HELM, "HelmRelease", "fplus-edge", "r").unwrap();
    assert_eq!(object["metadata"]["finalizers"], json!(["finalizers.fluxcd.io"]));
    assert_eq!(object["status"]["observedGeneration"], object["metadata"]["generation"]);

    api.apply("sync", release("r", "edge-cluster", json!({"size": 2}))).unwrap();
    until(api, HELM, "HelmRelease", "r", |o| ready(o).is_some_and(|(_, m)| m.contains(".v2 "))).await;
    api.delete(&place("HelmRelease", "r")).unwrap();
    until(api, HELM, "HelmRelease", "r", |o| o.is_none()).await;
    assert_eq!(*calls.lock().unwrap(), ["install r 1", "install r 2", "uninstall r 2"]);
    cluster.stop().await;
}

#[tokio::test]
async fn a_chart_that_fails_says_so_and_an_unknown_one_is_a_plain_deployment() {
    let cluster = cluster(Charts::new().with("bad", FailingChart { message: "image not found".into() })).await;
    let api = cluster.kubernetes();
    let repository = charts(&["charts/barcode-reader"]);
    api.apply("sync", charts_repository(repository.path(), main_branch())).unwrap();
    api.apply("sync", release("bad-1", "charts/bad", json!({}))).unwrap();
    api.apply(
        "sync",
        release("barcode-1", "charts/barcode-reader", json!({"name": "Gate_2", "hostname": "paint-shop-1"})),
    )
    .unwrap();
    until(api, HELM, "HelmRelease", "bad-1", |o| ready(o).is_some_and(|(ok, m)| !ok && m.contains("image not found")))
        .await;
    until(api, HELM, "HelmRelease", "barcode-1", |o| ready(o).is_some_and(|(ok, _)| ok)).await;
    let deployment = api.get("apps/v1", "Deployment", "fplus-edge", "barcode-reader-gate-2").unwrap();
    assert_eq!(deployment["status"]["availableReplicas"], 1);
    assert_eq!(deployment["spec"]["template"]["spec"]["nodeSelector"]["kubernetes.io/hostname"], "paint-shop-1");

    // Another name means another Deployment; the old one goes.
    api.apply("sync", release("barcode-1", "charts/barcode-reader", json!({"name": "Gate_3"}))).unwrap();
    until(api, "apps/v1", "Deployment", "barcode-reader-gate-2", |o| o.is_none()).await;
    until(api, "apps/v1", "Deployment", "barcode-reader-gate-3", |o| o.is_some()).await;
    api.delete(&place("HelmRelease", "barcode-1")).unwrap();
    until(api, "apps/v1", "Deployment", "barcode-reader-gate-3", |o| o.is_none()).await;
    cluster.stop().await;
}

#[tokio::test]
async fn a_release_that_is_set_to_fail_fails_as_an_upgrade_is_tried_again_on_request_and_recovers() {
    let cluster = cluster(Charts::new()).await;
    let api = cluster.kubernetes();
    let repository = charts(&["charts/reader"]);
    api.apply("sync", charts_repository(repository.path(), main_branch())).unwrap();
    let put = |values: Value| drop(api.apply("sync", release("reader", "charts/reader", values)).unwrap());
    put(json!({"name": "Gate"}));
    until(api, HELM, "HelmRelease", "reader", |o| ready(o).is_some_and(|(ok, _)| ok)).await;
    put(json!({"name": "Gate", "simulated": {"fails": "values do not fit"}}));
    let reason =
        |o: Option<&Value>| o.and_then(|o| o.pointer("/status/conditions/0/reason")?.as_str().map(str::to_owned));
    until(api, HELM, "HelmRelease", "reader", |o| reason(o).as_deref() == Some("UpgradeFailed")).await;
    let message = ready(api.get(HELM, "HelmRelease", "fplus-edge", "reader").ok().as_deref()).unwrap().1;
    assert!(message.contains("Helm upgrade failed") && message.ends_with("values do not fit"), "{message}");
    assert!(api.get("apps/v1", "Deployment", "fplus-edge", "reader-gate").is_ok(), "what was installed stays");
    ask(api, "HelmRelease", "reader", "again");
    let handled =
        |o: Option<&Value>| o.is_some_and(|o| o.pointer("/status/lastHandledReconcileAt") == Some(&json!("again")));
    until(api, HELM, "HelmRelease", "reader", handled).await;
    put(json!({"name": "Gate", "simulated": {"fails": ""}}));
    until(api, HELM, "HelmRelease", "reader", |o| ready(o).is_some_and(|(ok, _)| ok)).await;
    cluster.stop().await;
}

fn with_strategy(mut release: Value, strategy: &Value) -> Value {
    for action in ["install", "upgrade"] {
        release["spec"][action] = json!({ "strategy": strategy });
    }
    release
}

fn stalled(object: Option<&Value>) -> Option<String> {
    let conditions = object?.pointer("/status/conditions")?.as_array()?;
    conditions.iter().find(|c| c["type"] == "Stalled").map(|c| format!("{}: {}", c["reason"], c["message"]))
}

#[tokio::test]
async fn a_failed_release_stays_failed_unless_its_strategy_says_otherwise_and_its_deployment_is_there() {
    let cluster = cluster(Charts::new()).await;
    let api = cluster.kubernetes();
    let repository = charts(&["charts/reader"]);
    api.apply("sync", charts_repository(repository.path(), main_branch())).unwrap();
    let failing = || release("reader", "charts/reader", json!({"name": "Gate", "simulated": {"fails": "no"}}));
    api.apply("sync", failing()).unwrap();
    until(api, HELM, "HelmRelease", "reader", |o| stalled(o).is_some()).await;
    let object = api.get(HELM, "HelmRelease", "fplus-edge", "reader").unwrap();
    assert_eq!(stalled(Some(&object)).unwrap(), "\"RetriesExceeded\": \"Failed to install after 1 attempt(s)\"");
    assert!(api.get("apps/v1", "Deployment", "fplus-edge", "reader-gate").is_ok(), "what it has made is there");
    // Asked to reconcile, it is not tried again; asked to begin again, it is.
    let counted = |o: Option<&Value>| o.and_then(|o| stalled(Some(o)));
    ask(api, "HelmRelease", "reader", "again");
    let handled =
        |o: Option<&Value>| o.is_some_and(|o| o.pointer("/status/lastHandledReconcileAt") == Some(&json!("again")));
    until(api, HELM, "HelmRelease", "reader", handled).await;
    assert!(counted(Some(&api.get(HELM, "HelmRelease", "fplus-edge", "reader").unwrap())).unwrap().contains("after 1"));
    let reset = json!({"metadata": {"annotations": {"reconcile.fluxcd.io/requestedAt": "reset", "reconcile.fluxcd.io/resetAt": "reset"}}});
    api.merge("test", &place("HelmRelease", "reader"), reset).unwrap();
    until(api, HELM, "HelmRelease", "reader", |o| counted(o).is_some_and(|why| why.contains("after 2"))).await;

    api.apply("sync", with_strategy(failing(), &json!({"name": "RetryOnFailure", "retryInterval": "20ms"}))).unwrap();
    let failed_again =
        |o: Option<&Value>| ready(o).is_some_and(|(ok, m)| !ok && m.contains("install failed")) && stalled(o).is_none();
    until(api, HELM, "HelmRelease", "reader", failed_again).await;
    cluster.stop().await;
}

#[tokio::test]
async fn helm_waits_for_a_pod_that_has_no_host_unless_it_is_set_not_to() {
    let cluster = cluster(Charts::new()).await;
    let api = cluster.kubernetes();
    let repository = charts(&["charts/reader"]);
    api.apply("sync", charts_repository(repository.path(), main_branch())).unwrap();
    let on = |host: &str| release("reader", "charts/reader", json!({"name": "Gate", "hostname": host}));
    api.apply("sync", on("nohost")).unwrap();
    let progressing =
        |o: Option<&Value>| o.and_then(|o| o.pointer("/status/conditions/0/reason")) == Some(&json!("Progressing"));
    until(api, HELM, "HelmRelease", "reader", progressing).await;
    let deployment = || api.get("apps/v1", "Deployment", "fplus-edge", "reader-gate").unwrap();
    assert_eq!(deployment()["status"]["availableReplicas"], 0);
    cluster.add_host(&HostSpec::worker("nohost")).unwrap();
    until(api, HELM, "HelmRelease", "reader", |o| ready(o).is_some_and(|(ok, _)| ok)).await;
    assert_eq!(deployment()["status"]["availableReplicas"], 1);

    let mut without = on("elsewhere");
    without["spec"]["timeout"] = json!("100ms");
    api.apply("sync", without.clone()).unwrap();
    until(api, HELM, "HelmRelease", "reader", |o| {
        ready(o).is_some_and(|(_, m)| m.contains("context deadline exceeded"))
    })
    .await;
    without["spec"]["upgrade"] = json!({"disableWait": true});
    api.apply("sync", without).unwrap();
    until(api, HELM, "HelmRelease", "reader", |o| ready(o).is_some_and(|(ok, _)| ok)).await;
    assert_eq!(deployment()["status"]["availableReplicas"], 0, "ready says nothing of the pod");
    cluster.stop().await;
}

fn git(directory: &Path, arguments: &[&str]) {
    let identity = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main"];
    let output = Command::new("git").current_dir(directory).args(identity).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn commit(directory: &Path) {
    git(directory, &["add", "--all"]);
    git(directory, &["commit", "--quiet", "-m", "change"]);
}

fn self_link(url: &str) -> String {
    format!(
        "
apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata: {{ name: self-link }}
spec: {{ interval: 3m, url: {url}, ref: {{ branch: main }}, secretRef: {{ name: flux-secrets }} }}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {{ name: self-link }}
spec: {{ interval: 3m, path: ./, prune: true, sourceRef: {{ kind: GitRepository, name: self-link }} }}
"
    )
}

fn config_map(name: &str, value: &str) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{ name: {name}, namespace: fplus-edge }}\ndata: {{ k: \"{value}\" }}\n"
    )
}

#[tokio::test]
async fn a_repository_is_applied_pruned_and_reconciled_on_request() {
    let repository = tempfile::tempdir().unwrap();
    let root = repository.path();
    git(root, &["init", "--quiet"]);
    std::fs::create_dir_all(root.join("edo/cluster")).unwrap();
    std::fs::write(root.join("README.md"), "by hand").unwrap();
    std::fs::write(root.join("edo/cluster/one.yaml"), config_map("one", "1")).unwrap();
    std::fs::write(root.join("edo/cluster/two.yaml"), config_map("two", "1")).unwrap();
    commit(root);

    let cluster = cluster(Charts::new()).await;
    let api = cluster.kubernetes();
    cluster.apply_manifests(&self_link(&format!("file://{}", root.display()))).unwrap();
    until(api, GIT, "GitRepository", "self-link", |o| {
        ready(o).is_some_and(|(ok, m)| !ok && m.contains("flux-secrets"))
    })
    .await;
    cluster.set_git_credentials("op1flux", "secret").unwrap();
    let kustomization = "kustomize.toolkit.fluxcd.io/v1";
    until(api, kustomization, "Kustomization", "self-link", |o| ready(o).is_some_and(|(ok, _)| ok)).await;
    let two = api.get("v1", "ConfigMap", "fplus-edge", "two").unwrap();
    assert_eq!(two["metadata"]["labels"]["kustomize.toolkit.fluxcd.io/name"], "self-link");
    assert_eq!(two["metadata"]["managedFields"][0]["manager"], "kustomize-controller");

    std::fs::remove_file(root.join("edo/cluster/two.yaml")).unwrap();
    std::fs::write(root.join("edo/cluster/one.yaml"), config_map("one", "2")).unwrap();
    commit(root);
    ask(api, "GitRepository", "self-link", "now");
    until(api, "v1", "ConfigMap", "two", |o| o.is_none()).await;
    until(api, "v1", "ConfigMap", "one", |o| o.is_some_and(|o| o["data"]["k"] == "2")).await;

    // A fault applies nothing further and prunes nothing.
    std::fs::remove_file(root.join("edo/cluster/one.yaml")).unwrap();
    std::fs::write(
        root.join("edo/cluster/bad.yaml"),
        "apiVersion: example.org/v1\nkind: Unknown\nmetadata: { name: x }\n",
    )
    .unwrap();
    commit(root);
    ask(api, "GitRepository", "self-link", "again");
    until(api, kustomization, "Kustomization", "self-link", |o| {
        ready(o).is_some_and(|(ok, m)| !ok && m.contains("no matches for kind \"Unknown\""))
    })
    .await;
    assert!(api.get("v1", "ConfigMap", "fplus-edge", "one").is_ok());

    api.delete(&place("Kustomization", "self-link")).unwrap();
    until(api, kustomization, "Kustomization", "self-link", |o| o.is_none()).await;
    assert!(api.get("v1", "ConfigMap", "fplus-edge", "one").is_err(), "a deleted Kustomization prunes what it applied");
    cluster.stop().await;
}

#[tokio::test]
async fn a_repository_that_cannot_be_fetched_is_not_ready_and_says_why() {
    let cluster = cluster(Charts::new()).await;
    cluster.set_git_credentials("op1flux", "very-secret").unwrap();
    cluster.apply_manifests(&self_link("file:///nowhere/at/all")).unwrap();
    let api = cluster.kubernetes();
    until(api, GIT, "GitRepository", "self-link", |o| {
        ready(o).is_some_and(|(ok, m)| !ok && m.contains("git fetch") && !m.contains("very-secret"))
    })
    .await;
    until(api, "kustomize.toolkit.fluxcd.io/v1", "Kustomization", "self-link", |o| ready(o).is_some_and(|(ok, _)| !ok))
        .await;
    cluster.stop().await;
}

#[tokio::test]
async fn a_chart_that_its_repository_lacks_is_waited_for_and_what_is_installed_stays() {
    let repository = charts(&["charts/broken"]);
    let root = repository.path();
    write_chart(root, "charts/broken", "name: broken\n");
    commit(root);
    let cluster = cluster(Charts::new()).await;
    let api = cluster.kubernetes();
    let says = async |name: &str, part: &str| {
        until(api, HELM, "HelmRelease", name, |o| ready(o).is_some_and(|(ok, m)| !ok && m.contains(part))).await;
    };
    api.apply("sync", charts_repository(root, json!({"branch": "gone"}))).unwrap();
    api.apply("sync", release("late", "charts/late", json!({}))).unwrap();
    says("late", "GitRepository 'fplus-edge/helm-charts' has not been fetched").await;
    api.apply("sync", charts_repository(root, main_branch())).unwrap();
    says("late", "chart 'charts/late' not found: no Chart.yaml").await;
    for (name, path, rule) in [
        ("broken", "charts/broken", "without name or version"),
        ("outside", "../charts/broken", "must stay within the repository"),
    ] {
        api.apply("sync", release(name, path, json!({}))).unwrap();
        says(name, rule).await;
    }

    write_chart(root, "charts/late", "name: late\nversion: 0.1.0\n");
    commit(root);
    ask(api, "GitRepository", "helm-charts", "pushed");
    until(api, HELM, "HelmRelease", "late", |o| ready(o).is_some_and(|(ok, _)| ok)).await;

    // The repository goes: it says so, and the release has its chart still.
    std::fs::rename(root.join(".git"), root.join("away")).unwrap();
    ask(api, "GitRepository", "helm-charts", "away");
    until(api, GIT, "GitRepository", "helm-charts", |o| ready(o).is_some_and(|(ok, _)| !ok)).await;
    ask(api, "HelmRelease", "late", "away");
    let handled =
        |o: Option<&Value>| o.is_some_and(|o| o.pointer("/status/lastHandledReconcileAt") == Some(&json!("away")));
    until(api, HELM, "HelmRelease", "late", |o| handled(o) && ready(o).is_some_and(|(ok, _)| ok)).await;
    cluster.stop().await;
}

#[tokio::test]
async fn a_repository_is_fetched_at_the_commit_tag_or_version_that_its_reference_says() {
    let repository = charts(&["charts/one"]);
    let root = repository.path();
    let head = || {
        let output = Command::new("git").current_dir(root).args(["rev-parse", "HEAD"]).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    let first = head();
    git(root, &["tag", "v1.2.0"]);
    write_chart(root, "charts/two", "name: two\nversion: 1.0.0\n");
    commit(root);
    let second = head();
    git(root, &["tag", "--annotate", "-m", "second", "v1.10.0"]);
    git(root, &["tag", "nightly"]);
    git(root, &["tag", "v2.0.0"]);
    let cluster = cluster(Charts::new()).await;
    let api = cluster.kubernetes();
    for (reference, revision) in [
        (json!({"branch": "main"}), format!("main@sha1:{second}")),
        (json!({"commit": first}), format!("sha1:{first}")),
        (json!({"tag": "v1.2.0"}), format!("v1.2.0@sha1:{first}")),
        (json!({"semver": ">=1.0 <2"}), format!("v1.10.0@sha1:{second}")),
        (json!({"commit": second, "branch": "main"}), format!("sha1:{second}")),
    ] {
        api.apply("sync", charts_repository(root, reference)).unwrap();
        let is_there = |o: &Value| o.pointer("/status/artifact/revision") == Some(&json!(revision));
        until(api, GIT, "GitRepository", "helm-charts", |o| o.is_some_and(is_there)).await;
    }
    for (reference, part) in [
        (json!({"branch": "gone"}), "refs/heads/gone"),
        (json!({"tag": "v9"}), "refs/tags/v9"),
        (json!({"commit": "0".repeat(40)}), "no branch has the commit 000"),
        (json!({"commit": "--upload-pack=x"}), "is not a commit"),
        (json!({"semver": ">=3"}), "no tag has a version in '>=3'"),
        (json!({"semver": "newest"}), "is not a range of versions"),
    ] {
        api.apply("sync", charts_repository(root, reference)).unwrap();
        until(api, GIT, "GitRepository", "helm-charts", |o| ready(o).is_some_and(|(ok, m)| !ok && m.contains(part)))
            .await;
    }
    let artifact = api.get(GIT, "GitRepository", "fplus-edge", "helm-charts").unwrap();
    assert_eq!(artifact.pointer("/status/artifact/revision"), Some(&json!(format!("sha1:{second}"))));
    cluster.stop().await;
}

#[tokio::test]
async fn an_idle_flux_writes_nothing() {
    let cluster = cluster(Charts::new()).await;
    let api = cluster.kubernetes();
    let repository = charts(&["plain"]);
    api.apply("sync", charts_repository(repository.path(), main_branch())).unwrap();
    api.apply("sync", release("r", "plain", json!({}))).unwrap();
    until(api, HELM, "HelmRelease", "r", |o| ready(o).is_some_and(|(ok, _)| ok)).await;
    until(api, GIT, "GitRepository", "helm-charts", |o| ready(o).is_some_and(|(ok, _)| ok)).await;
    let version = api.store().version();
    // Several ticks of the controllers.
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(api.store().version(), version);
    cluster.stop().await;
}

#[tokio::test]
async fn hosts_are_what_tests_say_they_are() {
    let cluster = cluster(Charts::new()).await;
    let api = cluster.kubernetes();
    let worker = HostSpec::worker("paint-shop-2").specialised("vision");
    cluster.add_host(&worker).unwrap();
    let node = |name: &str| api.get("v1", "Node", "", name).unwrap();
    let made = node("paint-shop-2");
    assert_eq!(made["spec"]["taints"][0], json!({"key": SPECIALISED, "value": "vision", "effect": "NoExecute"}));
    assert_eq!(made["metadata"]["labels"]["sparkfleet.simulated"], "true");
    assert!(made["status"]["nodeInfo"]["osImage"].as_str().unwrap().contains("simulated"));
    assert_eq!(node("paint-shop-1")["metadata"]["labels"]["node-role.kubernetes.io/control-plane"], "true");

    cluster.set_host_ready("paint-shop-2", false).unwrap();
    assert_eq!(node("paint-shop-2")["status"]["conditions"][0]["status"], "Unknown");
    cluster.set_host_ready("paint-shop-2", true).unwrap();
    cluster.taint("paint-shop-2", None).unwrap();
    assert_eq!(node("paint-shop-2")["spec"].get("taints"), None);
    let before = node("paint-shop-2");
    cluster.heartbeat("paint-shop-2").unwrap();
    let after = node("paint-shop-2");
    assert_ne!(before["metadata"]["resourceVersion"], after["metadata"]["resourceVersion"]);
    assert_eq!(before["status"]["nodeInfo"], after["status"]["nodeInfo"]);
    cluster.remove_host("paint-shop-2").unwrap();
    assert!(api.get("v1", "Node", "", "paint-shop-2").is_err());
    cluster.stop().await;
}

#[tokio::test]
async fn the_sealing_certificate_comes_through_the_services_proxy() {
    let cluster = cluster(Charts::new()).await;
    let mut config = kube::Config::new(cluster.url().parse().unwrap());
    // By default the client repeats a request answered 503 for minutes.
    config.default_retry = false;
    let client = kube::Client::try_from(config).unwrap();
    let fetch = || async {
        let path = "/api/v1/namespaces/sealed-secrets/services/http:sealed-secrets:/proxy/v1/cert.pem";
        client.request_text(axum::http::Request::get(path).body(Vec::new()).unwrap()).await
    };
    assert_eq!(fetch().await.unwrap(), SEALING_CERTIFICATE);
    cluster.set_sealed_secrets(false).await.unwrap();
    let kube::Error::Api(status) = fetch().await.unwrap_err() else { panic!("no API error") };
    assert_eq!(status.code, 503);
    cluster.set_sealed_secrets(true).await.unwrap();
    assert!(fetch().await.is_ok());
    assert!(cluster.kube_config().contains("sparkfleet-simulated-Paint_Shop"));
    cluster.stop().await;
}
