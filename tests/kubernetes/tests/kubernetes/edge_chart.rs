//! The chart `edge-cluster`, installed by Helm itself into a namespace as the cluster manager makes it.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use kubernetes_tests::control_plane::ControlPlane;
use serde_json::{Value, json};

pub const MANAGER: &str = "edge-sync.factoryplus.app.amrc.co.uk";
const PATIENCE: Duration = Duration::from_secs(60);

/// Without the controller of Sealed Secrets, with the join service.
pub const WITH_JOIN: [&str; 2] = ["sealedSecrets.install=false", "join.enabled=true"];

/// Where our charts are.
pub fn chart(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../helm").join(name)
}

/// Runs kubectl or helm as an administrator; its output if it succeeds, else what it says.
pub fn run(plane: &ControlPlane, program: &str, arguments: &[&str], input: &str) -> Result<String, String> {
    let mut command = Command::new(plane.programs().program(program));
    command.env("KUBECONFIG", plane.kubeconfig()).env("HOME", plane.directory());
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}

/// The refusal must say what is wrong, so that it is not refused for another reason.
pub fn refused(answer: Result<String, String>, part: &str) {
    let error = answer.unwrap_err();
    assert!(error.contains(part), "{part}: {error}");
}

/// An installed chart, in a namespace of its own.
pub struct Edge<'a> {
    pub plane: &'a ControlPlane,
    pub namespace: String,
}

impl<'a> Edge<'a> {
    /// Installs the chart with values (`path=value`), and waits until its policies hold.
    pub fn install(plane: &'a ControlPlane, values: &[&str]) -> Self {
        let edge = Self { plane, namespace: format!("edge-{}", &uuid::Uuid::new_v4().simple().to_string()[..8]) };
        let labels = json!({ "pod-security.kubernetes.io/enforce": "baseline" });
        let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": edge.namespace, "labels": labels } });
        run(plane, "kubectl", &["create", "-f", "-"], &namespace.to_string()).unwrap();
        let chart = chart("edge-cluster").display().to_string();
        let mut arguments = vec!["install", "edge-cluster", &chart, "--namespace", &edge.namespace];
        for value in ["cluster.name=Test"].iter().chain(values) {
            arguments.extend(["--set", value]);
        }
        run(plane, "helm", &arguments, "").unwrap();
        edge.await_policies(values.contains(&"join.enabled=true"));
        edge
    }

    /// Policies are compiled a moment after they are made, each in its time.
    fn await_policies(&self, with_join: bool) {
        let probe = |name: &str| json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name, "namespace": self.namespace } });
        let token = |namespace: &str| {
            let annotations = json!({ "kubernetes.io/service-account.name": "sparkfleet-edge" });
            let metadata = json!({ "name": "probe", "namespace": namespace, "annotations": annotations });
            json!({ "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token", "metadata": metadata })
        };
        let as_flux = self.deployment("probe", &json!({ "serviceAccountName": "sparkfleet-flux" }));
        let administrator = |namespace: &str, object: &Value| {
            let arguments = ["--namespace", namespace, "create", "--dry-run=server", "-f", "-"];
            run(self.plane, "kubectl", &arguments, &object.to_string())
        };
        let join = || {
            let user = format!("system:serviceaccount:{}:sparkfleet-join", self.namespace);
            let arguments = ["--as", &user, "--namespace", "kube-system", "create", "--dry-run=server", "-f", "-"];
            run(self.plane, "kubectl", &arguments, &token("kube-system").to_string())
        };
        let deadline = Instant::now() + PATIENCE;
        let until = |policy: &str, answer: &dyn Fn() -> Result<String, String>| {
            let name = format!("sparkfleet-{policy}-{}", self.namespace);
            while !answer().is_err_and(|error| error.contains(&name)) {
                assert!(Instant::now() < deadline, "{name} does not hold: {:?}\n{}", answer(), self.plane.tails());
                std::thread::sleep(Duration::from_millis(100));
            }
        };
        until("edge", &|| self.apply("sparkfleet-edge", &probe("sparkfleet-probe")));
        until("agents", &|| self.apply("sparkfleet-agents", &probe("sparkfleet-probe")));
        until("agents-pods", &|| self.apply("sparkfleet-agents", &as_flux));
        until("tokens", &|| administrator(&self.namespace, &token(&self.namespace)));
        if with_join {
            until("join", &join);
        }
    }

    /// A kubectl command in the namespace by an administrator.
    pub fn kubectl(&self, arguments: &[&str], input: &str) -> Result<String, String> {
        let mut all = vec!["--namespace", &self.namespace];
        all.extend(arguments);
        run(self.plane, "kubectl", &all, input)
    }

    /// A kubectl command by a service account of the namespace.
    pub fn by(&self, account: &str, arguments: &[&str], input: &str) -> Result<String, String> {
        let user = format!("system:serviceaccount:{}:{account}", self.namespace);
        let mut all = vec!["--as", &user];
        all.extend(arguments);
        self.kubectl(&all, input)
    }

    /// Whether the API server would take an object from an account.
    pub fn apply(&self, account: &str, object: &Value) -> Result<String, String> {
        let arguments = ["apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", "-"];
        self.by(account, &arguments, &object.to_string())
    }

    /// A release as edge sync applies it, with changes to its specification; null takes a field away.
    pub fn release(&self, changes: &Value) -> Value {
        let source = json!({ "kind": "GitRepository", "name": "g" });
        let mut spec = json!({ "interval": "2m", "chart": { "spec": { "chart": "x", "sourceRef": source } },
            "serviceAccountName": "sparkfleet-agents", "storageNamespace": format!("{}-releases", self.namespace) });
        for (field, value) in changes.as_object().unwrap() {
            spec[field] = value.clone();
        }
        spec.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        self.ours("helm.toolkit.fluxcd.io/v2", "HelmRelease", "r", "spec", &spec)
    }

    /// An object with the label of edge sync.
    pub fn ours(&self, api_version: &str, kind: &str, name: &str, field: &str, content: &Value) -> Value {
        let labels = json!({ "app.kubernetes.io/managed-by": MANAGER });
        let metadata = json!({ "name": name, "namespace": self.namespace, "labels": labels });
        json!({ "apiVersion": api_version, "kind": kind, "metadata": metadata, field: content })
    }

    /// A Deployment with changes to the specification of its pods.
    pub fn deployment(&self, name: &str, changes: &Value) -> Value {
        let mut pod = json!({ "containers": [{ "name": "a", "image": "a" }] });
        for (field, value) in changes.as_object().unwrap() {
            pod[field] = value.clone();
        }
        let template = json!({ "metadata": { "labels": { "a": "b" } }, "spec": pod });
        let spec = json!({ "selector": { "matchLabels": { "a": "b" } }, "template": template });
        let metadata = json!({ "name": name, "namespace": self.namespace });
        json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec })
    }
}
