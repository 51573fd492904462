//! What can be had with the token of edge sync, of a chart, and of the join service, on a real Kubernetes API with the chart `edge-cluster` as Helm installs it: roles and admission policies
//! are code of the API server, and nothing else says what they let through.
#![allow(clippy::unwrap_used, reason = "the lint exempts test functions, not their helpers")]

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

const MANAGER: &str = "edge-sync.factoryplus.app.amrc.co.uk";
const PATIENCE: Duration = Duration::from_secs(60);

/// An installed chart, in a namespace of the test's own.
struct Edge {
    namespace: String,
}

/// Runs a program of the search path; its output if it succeeds, else what it says.
fn run(program: &str, arguments: &[&str], input: &str) -> Result<String, String> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{program} is on the path: {error}"));
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}

impl Edge {
    /// Installs the chart, and waits until its policies hold.
    fn install(values: &[&str]) -> Self {
        assert!(std::env::var_os("KUBECONFIG").is_some(), "KUBECONFIG names the cluster");
        let edge = Self { namespace: format!("rights-{}", &uuid::Uuid::new_v4().simple().to_string()[..8]) };
        let chart = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../helm/edge-cluster").display().to_string();
        let mut arguments =
            vec!["install", "edge-cluster", &chart, "--namespace", &edge.namespace, "--create-namespace"];
        for value in ["cluster.name=Test"].iter().chain(values) {
            arguments.extend(["--set", value]);
        }
        run("helm", &arguments, "").unwrap();
        // Policies are compiled a moment after they are made.
        let deadline = Instant::now() + PATIENCE;
        let probe = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "probe"}});
        for account in ["sparkfleet-edge", "sparkfleet-agents"] {
            let mut probe = probe.clone();
            probe["metadata"]["name"] = json!("sparkfleet-probe");
            while edge.apply(account, &probe).is_ok() {
                assert!(Instant::now() < deadline, "the policies do not hold");
                std::thread::sleep(Duration::from_millis(100));
            }
        }
        edge
    }

    fn kubectl(&self, arguments: &[&str], input: &str) -> Result<String, String> {
        let mut all = vec!["--namespace", &self.namespace];
        all.extend(arguments);
        run("kubectl", &all, input)
    }

    /// A kubectl command by a service account of the namespace.
    fn by(&self, account: &str, arguments: &[&str], input: &str) -> Result<String, String> {
        let user = format!("system:serviceaccount:{}:{account}", self.namespace);
        let mut all = vec!["--as", &user];
        all.extend(arguments);
        self.kubectl(&all, input)
    }

    /// Whether the API server would take an object from an account.
    fn apply(&self, account: &str, object: &Value) -> Result<String, String> {
        let arguments = ["apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", "-"];
        self.by(account, &arguments, &object.to_string())
    }

    /// A release as edge sync applies it, with changes to its specification.
    fn release(&self, changes: Value) -> Value {
        let source = json!({"kind": "GitRepository", "name": "g"});
        let mut spec = json!({"interval": "2m", "chart": {"spec": {"chart": "x", "sourceRef": source}},
            "serviceAccountName": "sparkfleet-agents", "storageNamespace": format!("{}-releases", self.namespace)});
        for (field, value) in changes.as_object().unwrap() {
            spec[field] = value.clone();
        }
        spec.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        self.ours("helm.toolkit.fluxcd.io/v2", "HelmRelease", "r", "spec", spec)
    }

    /// An object with the label of edge sync.
    fn ours(&self, api_version: &str, kind: &str, name: &str, field: &str, content: Value) -> Value {
        let metadata =
            json!({"name": name, "namespace": self.namespace, "labels": {"app.kubernetes.io/managed-by": MANAGER}});
        json!({"apiVersion": api_version, "kind": kind, "metadata": metadata, field: content})
    }

    /// A Deployment with changes to the specification of its pods.
    fn deployment(&self, name: &str, changes: Value) -> Value {
        let mut pod = json!({"containers": [{"name": "a", "image": "a"}]});
        for (field, value) in changes.as_object().unwrap() {
            pod[field] = value.clone();
        }
        let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": pod});
        let spec = json!({"selector": {"matchLabels": {"a": "b"}}, "template": template});
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": self.namespace}, "spec": spec})
    }
}

impl Drop for Edge {
    fn drop(&mut self) {
        // A failure has been told before; the namespaces go in the background.
        let _ = run("helm", &["uninstall", "edge-cluster", "--namespace", &self.namespace], "");
        let _ = run("kubectl", &["delete", "namespace", &self.namespace, "--wait=false"], "");
    }
}

/// The refusal must say what is wrong, so that it is not refused for another reason.
fn refused(answer: Result<String, String>, part: &str) {
    let error = answer.unwrap_err();
    assert!(error.contains(part), "{part}: {error}");
}

const NEEDED: [&str; 2] = ["sealedSecrets.install=false", "join.enabled=true"];

#[test]
#[ignore = "needs the programs of make kubernetes"]
fn edge_sync_writes_releases_that_stay_within_its_namespace_and_nothing_else() {
    let edge = Edge::install(&NEEDED);
    let sync = "sparkfleet-edge";
    edge.apply(sync, &edge.release(json!({}))).unwrap();
    edge.apply(sync, &edge.release(json!({"targetNamespace": edge.namespace}))).unwrap();
    edge.apply(sync, &edge.release(json!({"valuesFrom": [{"kind": "ConfigMap", "name": "x"}]}))).unwrap();
    let elsewhere = json!({"kind": "GitRepository", "name": "g", "namespace": "kube-system"});
    for (changes, part) in [
        (json!({"serviceAccountName": "sparkfleet-flux"}), "serviceAccountName sparkfleet-agents"),
        (json!({"serviceAccountName": null}), "serviceAccountName sparkfleet-agents"),
        (json!({"targetNamespace": "kube-system"}), "no other targetNamespace"),
        (json!({"storageNamespace": edge.namespace}), "no other targetNamespace"),
        (json!({"storageNamespace": null}), "no other targetNamespace"),
        (json!({"postRenderers": []}), "neither kubeConfig nor postRenderers"),
        (json!({"kubeConfig": {"secretRef": {"name": "x"}}}), "neither kubeConfig nor postRenderers"),
        (json!({"valuesFrom": [{"kind": "Secret", "name": "sparkfleet-join"}]}), "values from ConfigMaps alone"),
        (json!({"dependsOn": [{"name": "x", "namespace": "kube-system"}]}), "refers to no other namespace"),
        (json!({"chart": {"spec": {"chart": "x", "sourceRef": elsewhere}}}), "refers to no other namespace"),
    ] {
        refused(edge.apply(sync, &edge.release(changes)), part);
    }
    let map = |name: &str| edge.ours("v1", "ConfigMap", name, "data", json!({}));
    edge.apply(sync, &map("agent")).unwrap();
    refused(edge.apply(sync, &map("join-host-00")), "belong to other services");
    refused(
        edge.by(sync, &["delete", "configmap", "sparkfleet-join", "--dry-run=server"], ""),
        "only what has its label",
    );
    let secret = |kind: &str| {
        let notes = json!({"kubernetes.io/service-account.name": "sparkfleet-flux"});
        let metadata = json!({"name": "sparkfleet-identity", "namespace": edge.namespace, "annotations": notes});
        json!({"apiVersion": "v1", "kind": "Secret", "type": kind, "metadata": metadata})
    };
    edge.apply(sync, &secret("Opaque")).unwrap();
    refused(edge.apply(sync, &secret("kubernetes.io/service-account-token")), "only Secrets of type Opaque");
    refused(edge.by(sync, &["create", "token", "sparkfleet-agents"], ""), "is forbidden");
    let kustomization = json!({"interval": "1m", "prune": true, "sourceRef": {"kind": "GitRepository", "name": "g"}});
    let kustomization = edge.ours("kustomize.toolkit.fluxcd.io/v1", "Kustomization", "k", "spec", kustomization);
    refused(edge.apply(sync, &kustomization), "forbidden");
}

#[test]
#[ignore = "needs the programs of make kubernetes"]
fn edge_sync_may_ask_for_a_fetch_and_not_say_what_is_fetched() {
    let edge = Edge::install(&NEEDED);
    let sync = "sparkfleet-edge";
    let spec = json!({"interval": "3m", "url": "https://git.example"});
    let metadata = json!({"name": "self-link", "namespace": edge.namespace});
    let source = json!({"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository", "metadata": metadata, "spec": spec});
    edge.kubectl(&["apply", "-f", "-"], &source.to_string()).unwrap();
    let of = |command: &[&str]| {
        let all = [command, &["--dry-run=server"]].concat();
        edge.by(sync, &all, "")
    };
    of(&["annotate", "gitrepository", "self-link", "reconcile.fluxcd.io/requestedAt=1"]).unwrap();
    let part = "only what has its label";
    refused(
        of(&[
            "patch",
            "gitrepository",
            "self-link",
            "--type=merge",
            "-p",
            r#"{"spec":{"url":"https://evil.example"}}"#,
        ]),
        part,
    );
    refused(of(&["label", "gitrepository", "self-link", &format!("app.kubernetes.io/managed-by={MANAGER}")]), part);
    refused(of(&["delete", "gitrepository", "self-link"]), part);
    let theirs = |spec| edge.ours("source.toolkit.fluxcd.io/v1", "GitRepository", "charts", "spec", spec);
    edge.apply(sync, &theirs(spec.clone())).unwrap();
    let mut sent = spec;
    sent["secretRef"] = json!({"name": "sparkfleet-identity"});
    refused(edge.apply(sync, &theirs(sent)), "are for no git server");
}

#[test]
#[ignore = "needs the programs of make kubernetes"]
fn a_chart_gets_no_further_than_pods_of_its_own() {
    let edge = Edge::install(&NEEDED);
    let agents = "sparkfleet-agents";
    edge.apply(agents, &edge.deployment("agent", json!({}))).unwrap();
    let secret = |name: &str| json!({"volumes": [{"name": "v", "secret": {"secretName": name}}]});
    edge.apply(agents, &edge.deployment("agent", secret("sparkfleet-identity"))).unwrap();
    let projected =
        json!({"volumes": [{"name": "v", "projected": {"sources": [{"secret": {"name": "flux-secrets"}}]}}]});
    let variable =
        json!({"name": "A", "valueFrom": {"secretKeyRef": {"name": "sparkfleet-join", "key": "master.key"}}});
    let variable = json!({"containers": [{"name": "a", "image": "a", "env": [variable]}]});
    let all =
        json!({"containers": [{"name": "a", "image": "a", "envFrom": [{"secretRef": {"name": "flux-secrets"}}]}]});
    for (changes, part) in [
        (json!({"serviceAccountName": "sparkfleet-flux"}), "the accounts sparkfleet-*"),
        (json!({"serviceAccount": "sparkfleet-join"}), "the accounts sparkfleet-*"),
        (secret("sparkfleet-join"), "Secrets of the edge's own services"),
        (secret("krb-keys-keytabs"), "Secrets of the edge's own services"),
        (projected, "Secrets of the edge's own services"),
        (variable, "Secrets of the edge's own services"),
        (all, "Secrets of the edge's own services"),
    ] {
        refused(edge.apply(agents, &edge.deployment("agent", changes)), part);
    }
    refused(edge.apply(agents, &edge.deployment("sparkfleet-agent", json!({}))), "named sparkfleet-*");
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "namespace": edge.namespace},
        "spec": {"externalIPs": ["10.96.0.1"], "ports": [{"port": 443}]}});
    refused(edge.apply(agents, &service), "no externalIPs");
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"});
    for kind in ["ClusterRoleBinding", "RoleBinding"] {
        let metadata =
            json!({"name": "evil", "namespace": if kind == "RoleBinding" { Some(&edge.namespace) } else { None }});
        let binding =
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": metadata, "roleRef": role});
        refused(edge.apply(agents, &binding), "forbidden");
    }
    for denied in [
        "get secrets",
        "create helmreleases.helm.toolkit.fluxcd.io",
        "create serviceaccounts --subresource=token",
        "impersonate users",
    ] {
        let words: Vec<&str> = ["auth", "can-i"].into_iter().chain(denied.split(' ')).collect();
        assert!(edge.by(agents, &words, "").is_err(), "{denied}");
    }
    assert!(edge.by(agents, &["auth", "can-i", "create", "configmaps", "--namespace", "default"], "").is_err());
    let releases = format!("{}-releases", edge.namespace);
    run(
        "kubectl",
        &[
            "--as",
            &format!("system:serviceaccount:{}:{agents}", edge.namespace),
            "--namespace",
            &releases,
            "get",
            "secrets",
        ],
        "",
    )
    .unwrap();
}

#[test]
#[ignore = "needs the programs of make kubernetes"]
fn nobody_gets_a_token_of_the_account_that_may_do_everything() {
    let edge = Edge::install(&NEEDED);
    edge.kubectl(&["create", "serviceaccount", "sparkfleet-flux"], "").unwrap();
    // As the Sealed Secrets controller, whose rights are those of an administrator here.
    let metadata = json!({"name": "token", "annotations": {"kubernetes.io/service-account.name": "sparkfleet-flux"}});
    let token = json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token", "metadata": metadata});
    refused(edge.kubectl(&["create", "--dry-run=server", "-f", "-"], &token.to_string()), "have no tokens in Secrets");
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "a", "image": "a"}]}});
    pod["spec"]["serviceAccountName"] = json!("sparkfleet-flux");
    refused(
        edge.kubectl(&["create", "--dry-run=server", "-f", "-"], &pod.to_string()),
        "no pod runs as sparkfleet-flux",
    );
}

#[test]
#[ignore = "needs the programs of make kubernetes"]
fn the_join_service_makes_and_deletes_its_own_tokens_and_no_other_secret() {
    let edge = Edge::install(&NEEDED);
    let join = |arguments: &[&str], input: &str| {
        let user = format!("system:serviceaccount:{}:sparkfleet-join", edge.namespace);
        let mut all = vec!["--as", &user, "--namespace", "kube-system"];
        all.extend(arguments);
        run("kubectl", &all, input)
    };
    let precious = format!("precious-{}", edge.namespace);
    run("kubectl", &["create", "secret", "generic", &precious, "--namespace", "kube-system"], "").unwrap();
    let part = "only its own bootstrap tokens";
    refused(join(&["delete", "secret", &precious, "--dry-run=server"], ""), part);
    run("kubectl", &["delete", "secret", &precious, "--namespace", "kube-system"], "").unwrap();
    refused(join(&["create", "secret", "generic", "other", "--dry-run=server"], ""), part);
    let token = |labels: Value| {
        let metadata = json!({"name": "bootstrap-token-abcdef", "labels": labels});
        let data = json!({"token-id": "abcdef", "token-secret": "0123456789abcdef"});
        json!({"apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token", "metadata": metadata, "stringData": data}).to_string()
    };
    let create = ["create", "--dry-run=server", "-f", "-"];
    join(&create, &token(json!({"app.kubernetes.io/managed-by": "sparkfleet-join-service"}))).unwrap();
    refused(join(&create, &token(json!({}))), part);
}

#[test]
#[ignore = "needs the programs of make kubernetes"]
fn two_installations_do_not_meet_and_one_can_be_made_again() {
    let first = Edge::install(&[]);
    let second = Edge::install(&[]);
    let controllers = |edge: &Edge| {
        let manifest = run("helm", &["get", "manifest", "edge-cluster", "--namespace", &edge.namespace], "").unwrap();
        manifest.matches("sealed-secrets-controller:").count()
    };
    assert!(controllers(&first) + controllers(&second) <= 1, "at most one brings the controller of Sealed Secrets");
    let chart = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../helm/edge-cluster").display().to_string();
    for edge in [&first, &second] {
        let brought = controllers(edge);
        run("helm", &["upgrade", "edge-cluster", &chart, "--reuse-values", "--namespace", &edge.namespace], "")
            .unwrap();
        assert_eq!(controllers(edge), brought, "an upgrade keeps what was brought");
    }
}
