//! A cluster is bootstrapped by the line that the command prints: a real shell, kubectl and curl in a directory that has nothing else, against the simulated Kubernetes API.

use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use e2e::central_services::{CentralServices, free_port};
use e2e::cli::Cli;
use e2e::edge::Edge;
use e2e::mosquitto::Mosquitto;
use e2e::recorder::Recorder;
use e2e::shell::Shell;
use e2e::wait;
use serde_json::{Value, json};
use simulator::jobs::{Hook, Job};
use simulator::kubernetes::access::Denied;
use simulator::kubernetes::faults::Fault;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;
use uuid::Uuid;

use crate::factory::uuid;
use crate::lifecycle::wait_for;

const NAME: &str = "Paint_Shop";
const NAMESPACE: &str = "fplus-edge";

/// Central services, a Kubernetes cluster that is not connected to them, and a user's shell.
struct BootstrapSite {
    recorder: Recorder,
    central: CentralServices,
    cli: Cli,
    edge: Edge,
    cluster: Uuid,
    shell: Shell,
    _server: Mosquitto,
}

impl BootstrapSite {
    async fn new() -> Self {
        Self::with("", "", None).await
    }

    async fn with(edge: &str, bootstrap: &str, jobs: Option<Hook>) -> Self {
        let server = Mosquitto::start();
        let recorder = Recorder::start(server.address()).await;
        let central = CentralServices::start_with(server.address(), free_port(), edge, bootstrap);
        let cli = Cli::new(&server.url());
        let cluster = uuid(&cli.json(&["cluster", "create", NAME]).await);
        let edge = Edge::bare(NAME, server.address(), jobs).await;
        let shell = Shell::new(&edge.cluster.kube_config());
        Self { recorder, central, cli, edge, cluster, shell, _server: server }
    }

    /// What the command prints, as JSON.
    async fn link(&self) -> Value {
        self.cli.json(&["cluster", "bootstrap", NAME]).await
    }

    /// The script that the line fetches.
    async fn script(&self) -> String {
        let link = self.link().await;
        let line = link["line"].as_str().unwrap().strip_suffix(" | sh").unwrap();
        let fetched = self.shell.shell(&["-c", line], "", &[]).await;
        assert_eq!(fetched.code, Some(0), "{fetched:#?}");
        fetched.output
    }

    fn has_namespace(&self) -> bool {
        self.edge.cluster.kubernetes().get("v1", "Namespace", "", NAMESPACE).is_ok()
    }

    async fn stop(self) {
        self.edge.stop().await;
        self.central.processes.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_line_makes_a_cluster_alive_and_nothing_secret_is_shown() {
    let place = BootstrapSite::new().await;
    let log = place.shell.path().join("arguments");
    place.shell.record_arguments("kubectl", &log);
    place.shell.record_arguments("curl", &log);
    let link = place.link().await;
    let line = link["line"].as_str().unwrap();
    assert!(line.ends_with(" | sh"), "{line}");

    let unasked = place.shell.shell(&["-c", line], "", &[]).await;
    unasked.failed(2, &["There is no terminal to ask on", "--yes", "Nothing was changed."]);
    assert!(!place.has_namespace());

    let done = place.shell.shell(&["-c", line], "", &[("SPARKFLEET_YES", "1")]).await;
    done.alive();
    let shown = [NAME, "sparkfleet-simulated-Paint_Shop", &place.edge.cluster.url(), "Flux is not there", "[7/7]"];
    done.failed(0, &shown);
    let uuid = place.cluster.to_string();
    assert!(done.output.contains(&uuid), "{done:#?}");
    wait_for(&place.recorder, "edge sync and edge monitor to be born", |reader| {
        ["Sync", "Monitor"].iter().all(|node| reader.node("ACME-Paint_Shop", node).is_some_and(|node| node.is_alive))
    })
    .await;

    let again = place.shell.shell(&["-c", &format!("{line} -s -- --yes")], "", &[]).await;
    again.alive();
    again.failed(0, &["Flux v2.7.5 is there (namespace flux-system) and fits; it stays as it is."]);

    let password = place.central.git_password(place.cluster).await;
    let token = &line[line.find("sft_").unwrap()..][..47];
    let arguments = std::fs::read_to_string(&log).unwrap();
    assert!(arguments.contains("curl -fsS") && arguments.contains("kubectl --context"), "{arguments}");
    for secret in [token, &password] {
        for text in [&done.output, &again.output, &unasked.output, &arguments, &place.central.processes.logs()] {
            assert!(!text.contains(secret), "a secret is in {text}");
        }
        for message in place.recorder.messages() {
            let holds = message.payload.windows(secret.len()).any(|window| window == secret.as_bytes());
            assert!(!holds, "a secret is in a message on {}", message.topic);
        }
    }

    let revoked = place.cli.json(&["cluster", "bootstrap", NAME, "--revoke"]).await;
    assert_eq!(revoked["revoked"], 1);
    let refused = place.shell.shell(&["-c", line.strip_suffix(" | sh").unwrap()], "", &[]).await;
    refused.failed(22, &["404"]);
    place.stop().await;
}

// long: one failure after the other on one cluster; each next run is the second run of the last
#[tokio::test(flavor = "multi_thread")]
async fn a_failure_in_each_step_is_named_and_the_next_run_gets_over_it() {
    let place = BootstrapSite::new().await;
    let kubernetes = place.edge.cluster.kubernetes();
    let script = place.script().await;
    let once = |method: &str, path: &str| Fault::next(1, 500).method(method).path(path);
    // Edge sync may run by then, and reads the same: one failure would be its own instead of the script's.
    let all = |path: &str| Fault::next(u32::MAX, 500).method("GET").path(path);
    let steps = [
        (
            once("GET", "/namespaces/kube-system"),
            "FAILED in step 1 of 7 (look at the cluster)",
            "a Kubernetes API that answers",
        ),
        (
            once("PATCH", "/namespaces/fplus-edge"),
            "FAILED in step 2 of 7 (namespace fplus-edge)",
            "What to do: look at what kubectl says",
        ),
        (once("PATCH", "/secrets/flux-secrets"), "FAILED in step 3 of 7 (credentials)", "rights on Secrets"),
        (
            once("PATCH", "/deployments/kustomize-controller"),
            "FAILED in step 5 of 7 (Flux)",
            "a mirror or a file: --flux",
        ),
        (
            once("PATCH", "/gitrepositories/self-link"),
            "FAILED in step 6 of 7 (the cluster's repository)",
            "What to do: look at",
        ),
        (
            all("/kustomizations/self-link"),
            "FAILED in step 6 of 7 (the cluster's repository): waited",
            "the repository cannot be cloned",
        ),
        (
            all("/deployments/sparkfleet-edge"),
            "FAILED in step 7 of 7 (edge sync and edge monitor): waited",
            "kubectl logs -n fplus-edge",
        ),
    ];
    for (fault, step, advice) in steps {
        kubernetes.inject(fault);
        // One answer that fails counts as much as a long wait.
        let failed = place.shell.run(&script, &["--yes", "--limit", "15"]).await;
        failed.failed(1, &[step, advice, "run the same line again"]);
        kubernetes.heal();
    }
    place.shell.asked(&script, "y\n").await.alive();
    place.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_whose_own_release_fails_is_not_called_alive() {
    let place = BootstrapSite::new().await;
    let script = place.script().await;
    place.shell.run(&script, &["--yes"]).await.alive();

    // Its pods run on, as those of a real release do that fails after Helm has installed them.
    let values = place.shell.path().join("values.json");
    let set = async |fails: Value| {
        std::fs::write(&values, json!({ "values": { "simulated": { "fails": fails } } }).to_string()).unwrap();
        place.cli.json(&["config", "patch", NAME, "EdgeCluster", values.to_str().unwrap()]).await;
    };
    set(json!("namespaces \"sealed-secrets\" not found")).await;
    let release = || {
        let releases = place.edge.cluster.kubernetes().list("helm.toolkit.fluxcd.io/v2", "HelmRelease", None);
        releases.into_iter().find(|release| release["metadata"]["namespace"] == NAMESPACE).expect("the edge's release")
    };
    let fails = || release()["status"]["conditions"].to_string().contains("sealed-secrets");
    wait::until("Flux to fail", || fails().then_some(()), || release().to_string()).await;
    let failed = place.shell.run(&script, &["--yes", "--limit", "4"]).await;
    let reported = [
        "FAILED in step 7 of 7 (edge sync and edge monitor): waited for 4 seconds until Flux says that their release is ready",
        "Ready=False UpgradeFailed Helm upgrade failed",
        "namespaces \"sealed-secrets\" not found",
        "sparkfleet config get Paint_Shop EdgeCluster",
    ];
    failed.failed(1, &reported);
    assert!(!failed.output.contains("is alive"), "{failed:#?}");

    // What the operator sees in the end says the same.
    let row = place.cli.json(&["cluster", "show", NAME]).await["cluster"].clone();
    assert_eq!((&row["alive"], &row["flux"]["ready"]), (&json!(true), &json!(false)), "{row}");
    assert!(row["flux"]["message"].as_str().is_some_and(|message| message.contains("sealed-secrets")), "{row}");

    set(Value::Null).await;
    place.shell.run(&script, &["--yes"]).await.alive();
    place.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_missing_is_listed_before_anything_is_changed() {
    let place = BootstrapSite::new().await;
    let kubernetes = place.edge.cluster.kubernetes();
    let script = place.script().await;
    let denied = |verb: &str, resource: &str| Denied { verb: verb.to_owned(), resource: resource.to_owned() };
    kubernetes.deny(vec![denied("create", "secrets"), denied("create", "customresourcedefinitions")]);
    let refused = place.shell.run(&script, &["--yes"]).await;
    let rights = [
        "FAILED in step 1 of 7",
        "- the right to create secrets in namespace fplus-edge",
        "- the right to create customresourcedefinitions",
        "Nothing was changed",
    ];
    refused.failed(1, &rights);
    assert!(!refused.output.contains("right to create namespaces"), "{refused:#?}");
    kubernetes.deny(Vec::new());
    let refused = place.shell.asked(&script, "n\n").await;
    refused.failed(1, &["Make this Kubernetes cluster the edge cluster Paint_Shop? [y/N]", "Nothing was changed."]);

    for (arguments, texts) in [
        (&["--context", "elsewhere"][..], &["a Kubernetes API that answers", "elsewhere"][..]),
        (&["--limit", "soon"], &["--limit must be a number"]),
        (&["--force"], &["unknown argument --force", "usage:"]),
    ] {
        let refused = place.shell.run(&script, arguments).await;
        assert_ne!(refused.code, Some(0));
        refused.failed(refused.code.unwrap(), texts);
    }

    let old = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "helmreleases.helm.toolkit.fluxcd.io" },
        "spec": {
            "group": "helm.toolkit.fluxcd.io", "scope": "Namespaced",
            "names": { "kind": "HelmRelease", "plural": "helmreleases", "singular": "helmrelease" },
            "versions": [{ "name": "v2beta1", "served": true, "storage": true, "schema": { "openAPIV3Schema": { "type": "object" } } }]
        }
    });
    kubernetes.apply("flux", old).unwrap();
    let refused = place.shell.run(&script, &["--yes"]).await;
    let flux =
        ["a Flux that fits", "helmreleases.helm.toolkit.fluxcd.io has v2beta1, needed is v2", "Flux 2.7 or newer"];
    refused.failed(1, &flux);

    let annotations = json!({ "sparkfleet.io/cluster": Uuid::nil() });
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE, "annotations": annotations } });
    assert!(!place.has_namespace());
    kubernetes.apply("other", namespace).unwrap();
    let refused = place.shell.run(&script, &["--yes"]).await;
    refused.failed(
        1,
        &["another Kubernetes cluster: this one is edge cluster 00000000-0000-0000-0000-000000000000 already"],
    );
    place.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupted_in_any_step_it_continues_when_it_is_run_again() {
    let place = BootstrapSite::new().await;
    let script = place.script().await;
    let mut interrupted = 0;
    for step in 1..=7 {
        let mut child = place.shell.command(&["-s", "--", "--yes"], &[]).spawn().unwrap();
        // At Ctrl-C a terminal sends SIGINT to the whole foreground group. `kill` may fail, because the group may have ended.
        // It runs before it is needed: a process that is started late is slower than a step.
        let mut killer = Command::new("sh");
        let group = format!("-{}", child.id().unwrap());
        killer
            .args(["-c", "read -r _; kill -s INT -- \"$1\"", "sh", &group])
            .stdin(Stdio::piped())
            .stderr(Stdio::null());
        let mut killer = killer.spawn().unwrap();
        child.stdin.take().unwrap().write_all(script.as_bytes()).await.unwrap();
        let (mut stdout, mut stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let mut output = Vec::new();
        let mark = format!("[{step}/7]");
        let mut buffer = [0; 4096];
        while !String::from_utf8_lossy(&output).contains(&mark) {
            let read = tokio::time::timeout(wait::PATIENCE, stdout.read(&mut buffer)).await.expect("in time").unwrap();
            assert_ne!(read, 0, "it ended before step {step}: {}", String::from_utf8_lossy(&output));
            output.extend_from_slice(&buffer[..read]);
        }
        killer.stdin.take().unwrap().write_all(b"\n").await.unwrap();
        killer.wait().await.unwrap();
        let status = tokio::time::timeout(wait::PATIENCE, child.wait()).await.expect("in time").unwrap();
        let mut said = String::new();
        stderr.read_to_string(&mut said).await.unwrap();
        match status.code() {
            Some(130) => {
                assert!(said.contains("Interrupted in step"), "{said}");
                interrupted += 1;
            }
            // It was quicker than the signal.
            code => assert_eq!(code, Some(0), "{said}"),
        }
    }
    assert!(interrupted > 0, "it was never interrupted");
    place.shell.run(&script, &["--yes"]).await.alive();
    place.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_with_an_image_enrols_by_a_job_that_has_the_token() {
    let may_enrol = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&may_enrol);
    let identity_key = Arc::new(OnceLock::new());
    let expected = Arc::clone(&identity_key);
    // Stands for the program in the image: it shows that it has what it needs, and stores what it would get.
    let enrol = move |job: Job| -> Result<(), String> {
        let variables = job.environment();
        let secret =
            job.kubernetes.get("v1", "Secret", &job.namespace, "sparkfleet-enrolment").map_err(|e| e.to_string())?;
        let has_all = job.arguments() == ["enrol"]
            && variables["SPARKFLEET_ENROL_NAME"] == NAME
            && Some(&variables["SPARKFLEET_ENROL_IDENTITY_KEY"]) == expected.get()
            && variables["SPARKFLEET_MQTT_SERVERS"] == "mqtts://broker.example:8883"
            && secret["data"]["token"].is_string();
        if !has_all {
            return Err(format!("it lacks something: {variables:?}"));
        }
        if asked.load(Ordering::SeqCst) { Ok(()) } else { Err("the token was used by another process".to_owned()) }
    };
    let hook: Hook = Arc::new(move |job| {
        let enrolled = enrol(job);
        Box::pin(std::future::ready(enrolled))
    });
    let edge = "mqtt_servers = [\"mqtts://broker.example:8883\"]";
    let authorities = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(authorities.path(), authority()).unwrap();
    let bootstrap = format!("image = \"sparkfleet:test\"\nmqtt_ca_file = \"{}\"", authorities.path().display());
    let place = BootstrapSite::with(edge, &bootstrap, Some(hook)).await;
    let script = place.script().await;
    let identity = place.cli.json(&["config", "get", NAME, "EdgeClusterIdentity"]).await;
    identity_key.set(identity["key"].as_str().unwrap().to_owned()).unwrap();
    let token = &script[script.find("sft_").unwrap()..][..47];

    let failed = place.shell.run(&script, &["--yes", "--limit", "60"]).await;
    failed.failed(
        1,
        &[
            "FAILED in step 4 of 7 (enrolment)",
            "the token was used by another process",
            "sparkfleet cluster bootstrap Paint_Shop",
        ],
    );
    assert!(!failed.output.contains(token), "{failed:#?}");

    may_enrol.store(true, Ordering::SeqCst);
    let password = place.central.git_password(place.cluster).await;
    place.edge.cluster.set_git_credentials(NAME, &password).unwrap();
    let done = place.shell.run(&script, &["--yes"]).await;
    done.alive();
    assert!(!done.output.contains(token) && !done.output.contains(&password), "{done:#?}");
    place.stop().await;
}

/// The certificate of an authority, PEM.
fn authority() -> String {
    let arguments =
        ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=test"];
    let made = std::process::Command::new("openssl").args(arguments).args(["-keyout", "/dev/null"]).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    String::from_utf8(made.stdout).unwrap()
}
