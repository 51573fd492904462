//! A cluster's life on real parts, behind an MQTT server that asks for certificates. It is created, bootstrapped by the bootstrap command in a real shell, and enrolled by the Job.
//! It is installed by Flux' controllers, deployed to, and taken down. What runs in its pods are the programs that are shipped.

mod factory;
#[path = "../../../../services/cluster-manager/tests/support/there.rs"]
mod there;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use configdb_schema::known;
use e2e::program;
use kube::api::{ListParams, Patch, PatchParams};
use kubernetes_tests::audit::Right;
use serde_json::{Value, json};

use crate::waiting::is_ready;
use factory::{CHARTS, Factory, memory_mib, took};
use there::{PUSHER, READER, There};

const NAME: &str = "Paint_Shop";
const GROUP: &str = "ACME-Paint_Shop";
/// Its deployment.
const OVEN: &str = "Paint_Shop/Oven_1";
const NAMESPACE: &str = "fplus-edge";
const HOSTS: [&str; 2] = ["paint-shop-1", "paint-shop-2"];

/// How long a certificate lives, in seconds, where no step waits for its end.
const HOUR_S: u32 = 3600;

/// And where one waits for its renewal, at two thirds of that.
const SHORT_S: u32 = 90;

/// Longest wait of the script for each of its steps, in seconds: it then says what it waits for and how that stands.
const LIMIT_S: &str = "60";

const RELEASES: (&str, &str) = ("helm.toolkit.fluxcd.io/v2", "HelmRelease");

/// Rights of the edge's services that a life of a few minutes does not use. Some are to renew the certificate. Others are over kinds that the shipped chart of an agent does not
/// bring, but a site's own templates may.
const UNUSED: [&str; 9] = [
    "create secrets sparkfleet-enrolment-keys",
    "create gitrepositories",
    "delete configmaps",
    "delete gitrepositories",
    "get secrets sparkfleet-enrolment-keys",
    "get gitrepositories",
    "patch configmaps",
    "patch secrets sparkfleet-enrolment-keys",
    "patch secrets sparkfleet-identity",
];

/// Of the rights over Secrets, the one that a renewal does not use: an operator may have deleted the keys to start again.
const UNUSED_TO_RENEW: [&str; 1] = ["create secrets sparkfleet-enrolment-keys"];

/// An edge cluster; two of them can be on one Kubernetes, in namespaces of their own.
#[derive(Debug, Clone, Copy)]
struct Cluster {
    name: &'static str,
    namespace: &'static str,
}

const PAINT: Cluster = Cluster { name: NAME, namespace: NAMESPACE };
const WELD: Cluster = Cluster { name: "Weld_Shop", namespace: "fplus-weld" };

/// Creates the cluster and pastes the line; it is alive when this returns.
async fn alive(factory: &Factory, cluster: Cluster) {
    alive_with(factory, cluster, async {}).await;
}

/// The same, with something that is done while the script runs; what the script said.
async fn alive_with(factory: &Factory, cluster: Cluster, meanwhile: impl Future<Output = ()>) -> String {
    let Cluster { name, namespace } = cluster;
    let (asked, before) = (Instant::now(), factory.received().len());
    factory.does(&["cluster", "create", name, "--namespace", namespace]).await;
    let link = factory.site.cli.json(&["cluster", "bootstrap", name]).await;
    took(&format!("{name} created, line printed"), asked);
    let pasted = Instant::now();
    let line = link["line"].as_str().unwrap();
    let environment = [("SPARKFLEET_YES", "1"), ("SPARKFLEET_LIMIT", LIMIT_S)];
    let arguments = ["-c", line];
    let (done, ()) = tokio::join!(factory.shell.shell(&arguments, "", &environment), meanwhile);
    let is_alive = done.output.contains(&format!("Edge cluster {name} is alive"));
    if !is_alive || done.code != Some(0) {
        panic!("{done:#?}\n{}", factory.diagnosis().await);
    }
    took(&format!("line of {name} pasted to `is alive`"), pasted);
    for node in ["Sync", "Monitor"] {
        factory.receives(&format!("ACME-{name}/NBIRTH/{node}"), before).await;
    }
    let log = std::fs::read_to_string(factory.site.server.directory().join("mosquitto.log")).unwrap();
    assert!(log.contains(&format!("u'ACME-{name}'")), "the edge is known by its certificate");
    let releases = factory.api((RELEASES.0, RELEASES.1, namespace)).list(&ListParams::default()).await.unwrap();
    let releases = serde_json::to_value(releases.items).unwrap();
    let releases = releases.as_array().unwrap();
    assert!(!releases.is_empty() && releases.iter().all(is_ready), "{releases:#?}");
    let is_reported = |said: &Value| {
        let cluster = &said["cluster"];
        cluster["alive"] == true && cluster["flux"]["ready"] == true && cluster["hosts"]["ready"] == HOSTS.len()
    };
    factory.says("Flux and the hosts to be reported", &["cluster", "show", name], is_reported).await;
    took(&format!("line of {name} pasted to all reported"), pasted);
    let edge = factory.processes(&program::named("sparkfleet-edge"));
    let memory = edge.iter().map(|&process| memory_mib(process)).fold(0.0, f64::max);
    assert!(memory > 0.0, "edge sync and edge monitor run");
    eprintln!("journey: memory of an edge process: {memory:.1} MiB");
    done.output
}

/// The shipped chart, from the entry to the agent's own birth.
async fn deployed(factory: &Factory, cluster: Cluster) {
    let (asked, before) = (Instant::now(), factory.processes(&program::edge_agent()).len());
    let create = ["deployment", "create", "Oven_1", "--cluster", cluster.name, "--host", HOSTS[0]];
    factory.does(&[&create[..], &["--wait", "--timeout", "2m"]].concat()).await;
    took("deployment create to ready", asked);
    factory.receives(&format!("ACME-{}/NBIRTH/Oven_1", cluster.name), 0).await;
    factory.receives(&format!("ACME-{}/DBIRTH/Oven_1/host", cluster.name), 0).await;
    assert_eq!(factory.processes(&program::edge_agent()).len(), before + 1);
}

/// Hosts of the agents' pods that are not about to end.
async fn runs_on(factory: &Factory) -> Vec<String> {
    let agents = ListParams::default().labels("app.kubernetes.io/name=edge-agent");
    let pods = factory.api(("v1", "Pod", NAMESPACE)).list(&agents).await.unwrap();
    let stay = pods.items.into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
    stay.map(|pod| pod.data["spec"]["nodeName"].as_str().unwrap_or_default().to_owned()).collect()
}

/// To the other host; then to one that there is not, and back.
async fn moved(factory: &Factory) {
    let before = factory.received().len();
    let asked = Instant::now();
    let to = |host: &'static str| ["deployment", "move", OVEN, "--host", host, "--wait", "--timeout", "1m"];
    factory.does(&to(HOSTS[1])).await;
    took("deployment move to ready", asked);
    assert_eq!(runs_on(factory).await, [HOSTS[1]]);
    factory.receives(&format!("{GROUP}/NDEATH/Oven_1"), before).await;
    factory.receives(&format!("{GROUP}/NBIRTH/Oven_1"), before).await;

    // The command refuses such a host; an entry that was written otherwise does not.
    let entry = json!({ "hostname": "paint-shop-9" }).to_string();
    factory.site.cli.json_with(&["config", "patch", "Oven_1", "EdgeDeployment", "-"], &entry).await;
    let pending = async || {
        let pods = factory.api(("v1", "Pod", NAMESPACE)).list(&ListParams::default()).await.unwrap();
        let pods = serde_json::to_value(pods.items).unwrap();
        let waits = |pod: &Value| {
            pod["spec"]["nodeSelector"]["kubernetes.io/hostname"] == "paint-shop-9"
                && pod["status"]["phase"] == "Pending"
        };
        if pods.as_array().unwrap().iter().any(waits) { Ok(()) } else { Err(pods) }
    };
    factory.until("a pod that finds no host", pending).await;
    let why = "0 of 1 pods run: no Node matches host paint-shop-9";
    let has_failed = |said: &Value| {
        let row = &said["deployment"];
        row["ready"] == false && row["message"].as_str().is_some_and(|message| message.contains(why))
    };
    factory.says("the list to say that there is no such host", &["deployment", "show", OVEN], has_failed).await;
    let corrected = Instant::now();
    factory.does(&to(HOSTS[0])).await;
    took("a wrong host corrected, to ready", corrected);
    assert_eq!(runs_on(factory).await, [HOSTS[0]]);
}

/// A token of a user who pushes.
async fn token(factory: &Factory) -> String {
    let made = factory.site.cli.json(&["token", "create", "press", "--scope", "operator", "--cluster", NAME]).await;
    made["token"].as_str().unwrap().to_owned()
}

/// Sealed on the command line, opened by the controller that the edge's chart brings.
async fn sealed(factory: &Factory) {
    let put = ["secret", "put", NAME, "press-login", "password"];
    let asked = Instant::now();
    let outcome = factory.site.cli.run_with(&put, "correct horse battery staple").await;
    assert_eq!(outcome.code, 0, "{outcome:#?}");
    let encoded = "Y29ycmVjdCBob3JzZSBiYXR0ZXJ5IHN0YXBsZQ==";
    let is_open = |secret: &Value| secret["data"]["password"] == encoded;
    factory.object(("v1", "Secret", NAMESPACE), "press-login", is_open).await;
    took("secret put to opened", asked);
}

/// A clone of the cluster's repository that may be pushed from.
struct Clone {
    directory: PathBuf,
}

impl Clone {
    /// From the cluster manager.
    async fn new(factory: &Factory, token: &str) -> Self {
        Self::from(factory, &format!("http://any:{token}@{}/git/cluster/{NAME}", factory.site.git())).await
    }

    async fn from(factory: &Factory, url: &str) -> Self {
        let directory = factory.shell.path().join("repository");
        let cloned = async || {
            let cloned = git(factory.shell.path(), &["clone", "--quiet", url, "repository"]);
            cloned.map_err(Value::String)
        };
        factory.until("a clone of the cluster's repository", cloned).await;
        Self { directory }
    }

    /// Commits and pushes the file, or its removal.
    fn push(&self, file: &str, content: Option<&str>) {
        let path = self.directory.join(file);
        match content {
            Some(content) => std::fs::write(path, content).unwrap(),
            None => std::fs::remove_file(path).unwrap(),
        }
        let identity = ["-c", "user.name=press", "-c", "user.email=press@sparkfleet.example"];
        let commands = [&["add", "--all"][..], &[&identity[..], &["commit", "--quiet", "--message", file]].concat()];
        for command in [commands[0], commands[1], &["pull", "--quiet", "--rebase"], &["push", "--quiet"]] {
            git(&self.directory, command).unwrap_or_else(|said| panic!("git {command:?}: {said}"));
        }
    }
}

fn git(directory: &Path, arguments: &[&str]) -> Result<(), String> {
    let output = Command::new("git")
        .current_dir(directory)
        .args(arguments)
        .envs([("GIT_TERMINAL_PROMPT", "0"), ("GIT_CONFIG_NOSYSTEM", "1")])
        .env("HOME", directory)
        .output()
        .unwrap();
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

/// ConfigMaps `<prefix>-<number>` as one file.
fn maps(prefix: &str, count: usize) -> String {
    let map = |number| {
        let labels = json!({ "pushed": prefix });
        let metadata = json!({ "name": format!("{prefix}-{number}"), "namespace": NAMESPACE, "labels": labels });
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": { "paper": "a4" } }).to_string()
    };
    (0..count).map(map).collect::<Vec<String>>().join("\n---\n")
}

/// Pushed below by-hand/, applied by Flux; taken out, and pruned.
async fn pushed(factory: &Factory, clone: &Clone, prefix: &str, count: usize) {
    let labelled = ListParams::default().labels(&format!("pushed={prefix}"));
    let api = factory.api(("v1", "ConfigMap", NAMESPACE));
    let are = async |wanted: usize| {
        let there = async || {
            let found = api.list_metadata(&labelled).await.unwrap().items.len();
            if found == wanted { Ok(()) } else { Err(json!({ "ConfigMaps": found })) }
        };
        factory.until(&format!("{wanted} ConfigMaps"), there).await;
    };
    let file = format!("by-hand/{prefix}.yaml");
    let asked = Instant::now();
    clone.push(&file, Some(&maps(prefix, count)));
    are(count).await;
    took(&format!("{count} pushed to applied"), asked);
    let asked = Instant::now();
    clone.push(&file, None);
    are(0).await;
    took(&format!("{count} taken out to pruned"), asked);
}

/// Where the charts go on the site's own git server, for a user who may push.
fn charts_at(there: &There) -> String {
    format!("{}/factory/shared-helm.git", there.url.replace("://", &format!("://{PUSHER}@")))
}

/// Puts the charts there as the script says, once Flux has not found the edge's.
async fn charts_are_put(factory: &Factory, there: &There) {
    let has_none = async || {
        let charts = factory.api(("source.toolkit.fluxcd.io/v1", "HelmChart", NAMESPACE));
        // There is no such kind before Flux is installed.
        let charts = charts.list(&ListParams::default()).await.map_err(|error| json!(error.to_string()))?;
        let charts = serde_json::to_value(charts.items).unwrap();
        if charts.to_string().contains("InvalidChartReference") { Ok(()) } else { Err(charts) }
    };
    factory.until("Flux to find no chart", has_none).await;
    let command = push_charts(&charts_at(there));
    let charts = tempfile::tempdir().unwrap();
    let identity = "export GIT_AUTHOR_NAME=x GIT_AUTHOR_EMAIL=x@x GIT_COMMITTER_NAME=x GIT_COMMITTER_EMAIL=x@x";
    let place = charts.path().display();
    let script = format!("{identity}; cp -r {CHARTS} {place}/helm && cd {place} && {command}");
    let output = tokio::process::Command::new("sh").args(["-ec", &script]).output().await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The command that the script prints.
fn push_charts(url: &str) -> String {
    format!(
        "git clone {url} charts && cp -r helm/. charts && cd charts && git add . && git commit -m charts && git push"
    )
}

/// Pushed to the site's own git server, of which the cluster manager receives nothing: Flux fetches it when it is asked to, or at its interval.
async fn pushed_there(factory: &Factory, there: &There) {
    let url = format!("{}/factory/cluster-{NAME}.git", there.url.replace("://", &format!("://{PUSHER}@")));
    let clone = Clone::from(factory, &url).await;
    let asked = Instant::now();
    clone.push("by-hand/scanner.yaml", Some(&maps("scanner", 1)));
    let source = ("source.toolkit.fluxcd.io/v1", "GitRepository", NAMESPACE);
    let followed = factory.object(source, "self-link", |_| true).await;
    assert_eq!(followed["spec"]["url"], format!("{}/factory/cluster-{NAME}.git", there.url));
    let ask = Patch::Merge(json!({ "metadata": { "annotations": { "reconcile.fluxcd.io/requestedAt": "now" } } }));
    factory.api(source).patch("self-link", &PatchParams::default(), &ask).await.unwrap();
    factory.object(("v1", "ConfigMap", NAMESPACE), "scanner-0", |map| map["data"]["paper"] == "a4").await;
    took("pushed to the site's git server, to applied", asked);
}

/// Every token of a service account becomes invalid at once. Requests wait meanwhile, the edge reports what is wrong, and when the kubelets have renewed the tokens it continues without a restart.
async fn outlives_its_token(factory: &mut Factory) {
    let edge = factory.processes(&program::named("sparkfleet-edge"));
    factory.plane.void_tokens();
    factory.plane.kill_api_server();
    factory.plane.start_api_server().await;
    edge_is(factory, "False").await;
    let why = "it does not take this service's credentials: Unauthorized (401)";
    let says_why = |said: &Value| said.to_string().contains(why);
    factory.says("the edge to say what is wrong", &["cluster", "show", NAME], says_why).await;
    factory.does(&["deployment", "create", "Oven_1", "--cluster", NAME, "--host", HOSTS[0]]).await;
    let waits = |said: &Value| said["deployment"]["state"] == "sending";
    factory.says("the deployment to wait", &["deployment", "show", OVEN], waits).await;

    let renewed = Instant::now();
    factory.kubelet.renew_tokens();
    edge_is(factory, "True").await;
    took("tokens renewed to ready again", renewed);
    let is_applied = |said: &Value| said["deployment"]["state"] == "applied";
    factory.says("it to be applied", &["deployment", "show", OVEN], is_applied).await;
    took("tokens renewed to applied what was asked for meanwhile", renewed);
    assert_eq!(factory.processes(&program::named("sparkfleet-edge")), edge, "the edge process has not ended");
}

/// Waits until the kubelet says so of the readiness of the edge's pod.
async fn edge_is(factory: &Factory, ready: &str) {
    let labelled = ListParams::default().labels("app.kubernetes.io/name=sparkfleet-edge");
    let said = async || {
        let pods =
            factory.api(("v1", "Pod", NAMESPACE)).list(&labelled).await.map_err(|error| json!(error.to_string()))?;
        let pods = serde_json::to_value(pods.items).unwrap();
        let conditions = pods[0]["status"]["conditions"].as_array().into_iter().flatten();
        let is =
            conditions.filter(|condition| condition["type"] == "Ready").any(|condition| condition["status"] == ready);
        if is { Ok(()) } else { Err(pods[0]["status"].clone()) }
    };
    factory.until(&format!("the edge's pod to be Ready: {ready}"), said).await;
}

/// Deleted at the control plane, then at the edge with the command that was printed.
async fn removed(factory: &Factory) {
    let asked = Instant::now();
    let said = factory.does(&["cluster", "delete", NAME, "--with-deployments", "--wait", "--timeout", "2m"]).await;
    took("cluster delete", asked);
    assert_eq!(factory.processes(&program::edge_agent()), [] as [u32; 0], "deployments end with the cluster");
    let command = said.lines().map(str::trim).find(|line| line.starts_with("kubectl delete")).unwrap();
    let asked = Instant::now();
    let done = factory.shell.shell(&["-c", command], "", &[]).await;
    assert_eq!(done.code, Some(0), "{done:#?}");
    took("removal at the edge", asked);
    let left = async || {
        let left = left(factory).await;
        if left.is_empty() { Ok(()) } else { Err(json!(left)) }
    };
    factory.until("nothing to be left", left).await;
}

/// What is there of this project, as `kind namespace/name`, and its processes. Definitions stay, and the namespace with the keys of Sealed Secrets.
async fn left(factory: &Factory) -> Vec<String> {
    let rbac = "rbac.authorization.k8s.io/v1";
    let policy = "admissionregistration.k8s.io/v1";
    let own = "factoryplus.app.amrc.co.uk/v1";
    let kinds = [
        ("v1", "Namespace"),
        (rbac, "ClusterRole"),
        (rbac, "ClusterRoleBinding"),
        (rbac, "Role"),
        (rbac, "RoleBinding"),
        (policy, "ValidatingAdmissionPolicy"),
        (policy, "ValidatingAdmissionPolicyBinding"),
        ("apps/v1", "Deployment"),
        RELEASES,
        ("kustomize.toolkit.fluxcd.io/v1", "Kustomization"),
        ("source.toolkit.fluxcd.io/v1", "GitRepository"),
        ("source.toolkit.fluxcd.io/v1", "HelmChart"),
        ("bitnami.com/v1alpha1", "SealedSecret"),
        (own, "SparkplugNode"),
        (own, "LocalSecret"),
    ];
    let mut left = Vec::new();
    for (version, kind) in kinds {
        let found = factory.api((version, kind, "")).list_metadata(&ListParams::default()).await.unwrap();
        let places = found.items.into_iter().map(|object| {
            format!("{}/{}", object.metadata.namespace.unwrap_or_default(), object.metadata.name.unwrap_or_default())
        });
        let of_fleet = places.filter(|place| ["sparkfleet", "fplus-"].iter().any(|part| place.contains(part)));
        left.extend(of_fleet.map(|place| format!("{kind} {place}")));
    }
    for program in [program::named("sparkfleet-edge"), program::edge_agent()] {
        left.extend(factory.processes(&program).iter().map(|id| format!("process {id} of {}", program.display())));
    }
    left
}

/// Kills the API server and has etcd forget what was before, so that every watch has to begin again; when it is back, edge sync continues without a restart.
async fn outlives_the_api_server(factory: &mut Factory) {
    let edge = factory.processes(&program::named("sparkfleet-edge"));
    factory.plane.kill_api_server();
    factory.plane.compact().await;
    let started = Instant::now();
    factory.plane.start_api_server().await;
    took("API server started again", started);

    // A change by hand is corrected: edge sync sees it by its watch.
    let healthy = Instant::now();
    let place = (RELEASES.0, RELEASES.1, NAMESPACE);
    let name = oven_release(factory).await;
    let by_hand = Patch::Merge(json!({ "spec": { "interval": "7m" } }));
    factory.api(place).patch(&name, &PatchParams::default(), &by_hand).await.unwrap();
    factory.object(place, &name, |release| release["spec"]["interval"] != "7m").await;
    took("API server healthy to edge sync at work again", healthy);
    let asked = Instant::now();
    factory.does(&["deployment", "move", OVEN, "--host", HOSTS[1], "--wait", "--timeout", "1m"]).await;
    took("deployment move after that, to ready", asked);
    assert_eq!(runs_on(factory).await, [HOSTS[1]]);
    assert_eq!(factory.processes(&program::named("sparkfleet-edge")), edge, "the edge process has not ended");
}

/// Name of the release of the deployment.
async fn oven_release(factory: &Factory) -> String {
    let shown = factory.site.cli.json(&["deployment", "show", OVEN]).await;
    let label = format!("factoryplus.app.amrc.co.uk/uuid={}", shown["deployment"]["uuid"].as_str().unwrap());
    let releases = factory.api((RELEASES.0, RELEASES.1, NAMESPACE));
    let found = releases.list_metadata(&ListParams::default().labels(&label)).await.unwrap();
    found.items[0].metadata.name.clone().unwrap()
}

/// A changed chart template that Helm refuses stays in the first wave; one that it takes reaches both.
async fn rolled_out(factory: &Factory) {
    for (cluster, wave) in [(PAINT, "1"), (WELD, "2")] {
        factory.does(&["cluster", "rollout", cluster.name, "--wave", wave]).await;
    }
    let template = known::chart::EDGE_AGENT.to_string();
    let entry = factory.site.cli.json(&["config", "get", &template, "HelmChartTemplate"]).await;
    let put = async |values: Value| {
        let mut entry = entry.clone();
        entry["values"].as_object_mut().unwrap().extend(values.as_object().unwrap().clone());
        let put = ["config", "put", &template, "HelmChartTemplate", "-"];
        factory.site.cli.json_with(&put, &entry.to_string()).await;
    };
    let asked = Instant::now();
    put(json!({ "resources": { "requests": { "memory": "lots" } } })).await;
    let fails =
        |said: &Value| said["deployment"]["ready"] == false && said.to_string().contains("quantities must match");
    factory.says("the first wave to fail", &["deployment", "show", OVEN], fails).await;
    took("a template that Helm refuses, to the reason in the list", asked);
    let waits = |said: &Value| said["waiting"] == 1 && said["reason"].as_str().is_some_and(|why| why.contains(NAME));
    factory.says("the second wave to wait", &["cluster", "rollout", WELD.name], waits).await;
    let second = factory.site.cli.json(&["deployment", "show", "Weld_Shop/Oven_1"]).await;
    assert_eq!(second["deployment"]["ready"], true, "{second:#}");
    assert_eq!(factory.processes(&program::edge_agent()).len(), 2, "running agents are not affected");

    let asked = Instant::now();
    put(json!({ "intervalMs": 5000 })).await;
    let continues = |said: &Value| said["waiting"] == 0 && said["unsettled"].is_null();
    factory.says("the second wave to continue", &["cluster", "rollout", WELD.name], continues).await;
    for cluster in [PAINT, WELD] {
        let name = format!("{}/Oven_1", cluster.name);
        let is_new = async || {
            let releases = factory.api((RELEASES.0, RELEASES.1, cluster.namespace));
            let releases = serde_json::to_value(releases.list(&ListParams::default()).await.unwrap().items).unwrap();
            let has = |release: &Value| release["spec"]["values"]["intervalMs"] == 5000 && is_ready(release);
            if releases.as_array().unwrap().iter().any(has) { Ok(()) } else { Err(releases) }
        };
        factory.until(&format!("{name} to run the new template"), is_new).await;
        factory
            .says("it to be ready", &["deployment", "show", &name], |said| said["deployment"]["ready"] == true)
            .await;
    }
    took("a template that heals, to ready in both waves", asked);
}

/// In time the edge asks for another certificate, and its services continue with it.
async fn renewed(factory: &Factory, from: usize) {
    let edge = factory.processes(&program::named("sparkfleet-edge"));
    let asked = Instant::now();
    let renewed = |identity: &Value| identity["certificates"][0]["state"] == "renewed";
    factory.says("the certificate to be renewed", &["config", "get", NAME, "EdgeClusterIdentity"], renewed).await;
    for node in ["Sync", "Monitor"] {
        factory.receives(&format!("{GROUP}/NBIRTH/{node}"), from).await;
    }
    took("waited for the renewal and births under it", asked);
    assert_eq!(factory.processes(&program::named("sparkfleet-edge")), edge, "the edge process has not ended");
}

/// The operator revokes the certificates, and the MQTT server gets the list of them. The cluster is away until another bootstrap command enrols it again.
async fn revoked(factory: &mut Factory) {
    let identity = factory.site.cli.json(&["config", "get", NAME, "EdgeClusterIdentity"]).await;
    let certificates = identity["certificates"].as_array().unwrap();
    let valid = certificates.iter().find(|certificate| certificate["state"] == "valid").unwrap();
    let serial = valid["serial"].as_str().unwrap().to_uppercase();
    let asked = Instant::now();
    factory.does(&["cluster", "identity", "revoke", NAME]).await;
    let site = &mut factory.site;
    site.until("the list of revoked certificates", async || site.lists(&serial).then_some(())).await;
    let conf = site.server.directory().join("mosquitto.conf");
    let list = format!("crlfile {}\n", site.identity("revoked.pem").display());
    std::fs::write(&conf, std::fs::read_to_string(&conf).unwrap() + &list).unwrap();
    site.server.kill();
    site.server.restart();
    factory.says("the cluster to be away", &["cluster", "show", NAME], |said| said["cluster"]["alive"] == false).await;
    took("identity revoke to away", asked);
    alive(factory, PAINT).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs real Kubernetes: make kubernetes"]
async fn a_cluster_lives_from_the_pasted_line_to_its_removal() {
    let started = Instant::now();
    let factory = Factory::start(&HOSTS, HOUR_S).await;
    took("central services and control plane started", started);
    alive(&factory, PAINT).await;
    deployed(&factory, PAINT).await;
    moved(&factory).await;
    let token = token(&factory).await;
    sealed(&factory).await;
    let clone = Clone::new(&factory, &token).await;
    pushed(&factory, &clone, "printer", 1).await;
    let granted = factory.audit.granted(&factory.plane.client()).await;
    // Before its rights go and it is still there.
    assert_eq!(factory.audit.forbidden(), [""; 0], "no right is missing");
    removed(&factory).await;
    assert_eq!(factory.audit.unused(&granted), UNUSED, "every right is used");
    took("all of it", started);
}

// long: two clusters on one control plane, with one test step after the other
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs real Kubernetes: make kubernetes"]
async fn two_clusters_live_through_a_bad_chart_an_api_server_that_ends_and_a_thousand_objects() {
    let started = Instant::now();
    let mut factory = Factory::start(&HOSTS, HOUR_S).await;
    for cluster in [PAINT, WELD] {
        alive(&factory, cluster).await;
        deployed(&factory, cluster).await;
    }
    rolled_out(&factory).await;
    outlives_the_api_server(&mut factory).await;
    let token = token(&factory).await;
    let clone = Clone::new(&factory, &token).await;
    pushed(&factory, &clone, "many", 1000).await;
    took("all of it", started);
}

// long: one factory, and its credentials, with one test step after the other
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs real Kubernetes: make kubernetes"]
async fn a_cluster_that_follows_the_site_s_git_server_outlives_its_tokens_and_certificates() {
    let started = Instant::now();
    let there = There::start().await;
    let logins = tempfile::tempdir().unwrap();
    let login = |name: &str, text: &str| {
        std::fs::write(logins.path().join(name), text).unwrap();
        logins.path().join(name).display().to_string()
    };
    // The repository of charts is the site's to fill, and has none yet.
    let empty = logins.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    git(&empty, &["init", "--quiet", "--template=", "--initial-branch=main"]).unwrap();
    let commit = ["-c", "user.name=x", "-c", "user.email=x@x", "commit", "--quiet", "--allow-empty", "-m", "x"];
    git(&empty, &commit).unwrap();
    git(&empty, &["push", "--quiet", &charts_at(&there), "main"]).unwrap();
    let external = format!(
        "[git.external]\nurl = \"{}/factory/{{name}}.git\"\ncredentials_file = \"{}\"\ncluster_credentials_file = \"{}\"\n",
        there.url,
        login("pusher", PUSHER),
        login("reader", READER)
    );
    let mut factory = Factory::start_with(&HOSTS, SHORT_S, &external).await;
    let said = alive_with(&factory, PAINT, charts_are_put(&factory, &there)).await;
    let url = format!("{}/factory/shared-helm.git", there.url);
    let parts = [format!("{url} has no chart edge-cluster"), push_charts(&url)];
    assert!(parts.iter().all(|part| said.contains(part)), "{said}");
    let from = factory.received().len();
    pushed_there(&factory, &there).await;
    outlives_its_token(&mut factory).await;
    renewed(&factory, from).await;
    // Flux' controllers look at their token once a minute.
    factory
        .says("the deployment to run", &["deployment", "show", OVEN], |said| said["deployment"]["ready"] == true)
        .await;
    let mut granted = factory.audit.granted(&factory.plane.client()).await;
    granted.retain(Right::is_of_secrets);
    assert_eq!(factory.audit.unused(&granted), UNUSED_TO_RENEW, "every right over Secrets is used");
    revoked(&mut factory).await;
    assert_eq!(factory.audit.forbidden(), [""; 0], "no right is missing");
    took("all of it", started);
}
