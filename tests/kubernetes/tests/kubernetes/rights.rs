//! What the tokens of edge sync, of a chart and of the join service can access, with the chart `edge-cluster` as Helm installs it. Roles and admission policies
//! are evaluated by the API server, so only a real one shows what they allow.

use kubernetes_tests::control_plane::ControlPlane;
use kubernetes_tests::definitions;
use serde_json::{Value, json};

use crate::edge_chart::{Edge, MANAGER, WITH_JOIN, chart, refused, run};

async fn start() -> ControlPlane {
    let plane = ControlPlane::start().await;
    definitions::apply_those_of_flux(&plane).await;
    plane
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs real Kubernetes: make kubernetes"]
async fn edge_sync_writes_releases_that_stay_within_its_namespace_and_nothing_else() {
    let plane = start().await;
    let edge = Edge::install(&plane, &WITH_JOIN);
    let sync = "sparkfleet-edge";
    edge.apply(sync, &edge.release(&json!({}))).unwrap();
    edge.apply(sync, &edge.release(&json!({"targetNamespace": edge.namespace}))).unwrap();
    edge.apply(sync, &edge.release(&json!({"valuesFrom": [{"kind": "ConfigMap", "name": "x"}]}))).unwrap();
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
        refused(edge.apply(sync, &edge.release(&changes)), part);
    }
    let map = |name: &str| edge.ours("v1", "ConfigMap", name, "data", &json!({}));
    edge.apply(sync, &map("agent")).unwrap();
    refused(edge.apply(sync, &map("join-host-00")), "belong to other services");
    refused(
        edge.by(sync, &["delete", "configmap", "sparkfleet-join", "--dry-run=server"], ""),
        "only what has its label",
    );
    let secret = |name: &str, kind: &str| {
        let notes = json!({"kubernetes.io/service-account.name": "default"});
        let metadata = json!({"name": name, "namespace": edge.namespace, "annotations": notes});
        json!({"apiVersion": "v1", "kind": "Secret", "type": kind, "metadata": metadata})
    };
    let keys = "sparkfleet-enrolment-keys";
    edge.apply(sync, &secret(keys, "Opaque")).unwrap();
    refused(edge.apply(sync, &secret(keys, "kubernetes.io/service-account-token")), "only Secrets of type Opaque");
    refused(edge.apply(sync, &secret("sparkfleet-identity", "Opaque")), "cannot create resource");
    refused(edge.by(sync, &["create", "token", "sparkfleet-agents"], ""), "is forbidden");
    let kustomization = json!({"interval": "1m", "prune": true, "sourceRef": {"kind": "GitRepository", "name": "g"}});
    let kustomization = edge.ours("kustomize.toolkit.fluxcd.io/v1", "Kustomization", "k", "spec", &kustomization);
    refused(edge.apply(sync, &kustomization), "forbidden");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs real Kubernetes: make kubernetes"]
async fn edge_sync_may_ask_for_a_fetch_and_not_say_what_is_fetched() {
    let plane = start().await;
    let edge = Edge::install(&plane, &WITH_JOIN);
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
    let theirs = |spec| edge.ours("source.toolkit.fluxcd.io/v1", "GitRepository", "charts", "spec", &spec);
    edge.apply(sync, &theirs(spec.clone())).unwrap();
    let mut sent = spec;
    sent["secretRef"] = json!({"name": "sparkfleet-identity"});
    refused(edge.apply(sync, &theirs(sent)), "are for no git server");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs real Kubernetes: make kubernetes"]
async fn a_chart_gets_no_further_than_pods_of_its_own() {
    let plane = start().await;
    let edge = Edge::install(&plane, &WITH_JOIN);
    let agents = "sparkfleet-agents";
    edge.apply(agents, &edge.deployment("agent", &json!({}))).unwrap();
    let secret = |name: &str| json!({"volumes": [{"name": "v", "secret": {"secretName": name}}]});
    edge.apply(agents, &edge.deployment("agent", &secret("sparkfleet-identity"))).unwrap();
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
        refused(edge.apply(agents, &edge.deployment("agent", &changes)), part);
    }
    refused(edge.apply(agents, &edge.deployment("sparkfleet-agent", &json!({}))), "named sparkfleet-*");
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
        &plane,
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

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs real Kubernetes: make kubernetes"]
async fn no_account_gets_a_token_of_the_account_that_may_do_everything() {
    let plane = start().await;
    let edge = Edge::install(&plane, &WITH_JOIN);
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

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs real Kubernetes: make kubernetes"]
async fn the_join_service_makes_and_deletes_its_own_tokens_and_no_other_secret() {
    let plane = start().await;
    let edge = Edge::install(&plane, &WITH_JOIN);
    let join = |arguments: &[&str], input: &str| {
        let user = format!("system:serviceaccount:{}:sparkfleet-join", edge.namespace);
        let mut all = vec!["--as", &user, "--namespace", "kube-system"];
        all.extend(arguments);
        run(&plane, "kubectl", &all, input)
    };
    let precious = format!("precious-{}", edge.namespace);
    run(&plane, "kubectl", &["create", "secret", "generic", &precious, "--namespace", "kube-system"], "").unwrap();
    let part = "only its own bootstrap tokens";
    refused(join(&["delete", "secret", &precious, "--dry-run=server"], ""), part);
    run(&plane, "kubectl", &["delete", "secret", &precious, "--namespace", "kube-system"], "").unwrap();
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

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs real Kubernetes: make kubernetes"]
async fn two_installations_do_not_meet_and_one_can_be_made_again() {
    let plane = start().await;
    let (first, second) = (Edge::install(&plane, &[]), Edge::install(&plane, &[]));
    let controllers = |edge: &Edge| {
        let manifest =
            run(&plane, "helm", &["get", "manifest", "edge-cluster", "--namespace", &edge.namespace], "").unwrap();
        manifest.matches("sealed-secrets-controller:").count()
    };
    assert!(controllers(&first) + controllers(&second) <= 1, "at most one brings the controller of Sealed Secrets");
    let path = chart("edge-cluster").display().to_string();
    for edge in [&first, &second] {
        let brought = controllers(edge);
        run(&plane, "helm", &["upgrade", "edge-cluster", &path, "--reuse-values", "--namespace", &edge.namespace], "")
            .unwrap();
        assert_eq!(controllers(edge), brought, "an upgrade keeps what was brought");
    }
}
