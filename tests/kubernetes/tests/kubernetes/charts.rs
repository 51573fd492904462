//! The charts that are shipped, by Helm itself: linted, judged by the API server without being kept, and installed, with every set of values that changes what they make.

use kubernetes_tests::control_plane::ControlPlane;
use kubernetes_tests::definitions;
use serde_json::Value;

use crate::edge_chart::{chart, run};

const CLUSTER: &str = "cluster.name=Test";
const AGENT: [&str; 3] = ["name=Oven_1", "cluster=Test", "uuid=3f0e8f5c-7c67-4b44-9a53-9d6c5a4b2c11"];
const SEALED: &str = "sealedsecrets.bitnami.com";

/// Chart and values.
fn installations() -> Vec<(&'static str, Vec<&'static str>)> {
    let join = ["join.enabled=true", "join.servers={https://10.1.0.1:6443}", "join.networks={10.1.0.0/16}"];
    let hosts = [
        "join.kubernetesVersion=v1.34.1+k3s1",
        "join.components[0].sha256=9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "join.components[0].path=/usr/local/bin/k3s",
        "join.components[0].url=https://files.plant.example/k3s",
        "join.labels={site=press}",
        "join.taints={dedicated=press:NoSchedule}",
    ];
    let kerberos = ["kerberos.enabled=true", "kerberos.realm=TEST", "kerberos.krb5Conf=[libdefaults]"];
    let rule =
        "agents.rules[0].apiGroups={networking.k8s.io},agents.rules[0].resources={ingresses},agents.rules[0].verbs={*}";
    let secret = ["mqtt.servers={mqtts://broker:8883}", "mqtt.secretName=mqtt"];
    vec![
        // The first brings the definition of SealedSecret, and leaves it.
        ("edge-cluster", vec![CLUSTER]),
        ("edge-cluster", vec![CLUSTER]),
        ("edge-cluster", vec![CLUSTER, "sealedSecrets.install=false"]),
        ("edge-cluster", vec![CLUSTER, "sealedSecrets.enabled=false"]),
        ("edge-cluster", [&[CLUSTER][..], &secret].concat()),
        ("edge-cluster", [&[CLUSTER, "mqtt.username=edge"][..], &secret].concat()),
        ("edge-cluster", vec![CLUSTER, "identity.enrolmentSecret=enrolment"]),
        ("edge-cluster", [&[CLUSTER, "join.distribution=kubeadm"][..], &join].concat()),
        ("edge-cluster", [&[CLUSTER, "join.distribution=k3s"][..], &join, &hosts].concat()),
        ("edge-cluster", [&[CLUSTER][..], &kerberos].concat()),
        ("edge-cluster", vec![CLUSTER, rule]),
        ("edge-cluster", [&[CLUSTER, rule][..], &secret, &join, &kerberos].concat()),
        ("edge-agent", AGENT.to_vec()),
        ("edge-agent", [&AGENT[..], &["hostname=oven", "mqtt.username=edge"], &secret].concat()),
        ("sparkfleet", vec![]),
        ("sparkfleet", vec!["console.tlsSecretName=console-tls", "console.networkPolicy.enabled=true"]),
        ("sparkfleet", vec!["console.ingress.host=c.example", "console.ingress.tlsSecretName=console-tls"]),
        ("sparkfleet", [&["mqtt.username=central"][..], &secret].concat()),
    ]
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs real Kubernetes: make kubernetes"]
async fn every_chart_is_accepted_and_installed_with_every_set_of_values() {
    let plane = ControlPlane::start().await;
    definitions::apply_those_of_flux(&plane).await;
    // That of the chart is tried.
    run(&plane, "kubectl", &["delete", "customresourcedefinition", SEALED], "").unwrap();
    for (number, (name, values)) in installations().into_iter().enumerate() {
        let path = chart(name).display().to_string();
        let settings: Vec<&str> = values.iter().flat_map(|value| ["--set", value]).collect();
        let namespace = format!("chart-{number}");
        let helm = |arguments: &[&str]| {
            let all = [arguments, &settings].concat();
            run(&plane, "helm", &all, "").unwrap_or_else(|error| panic!("{arguments:?} {values:?}: {error}"))
        };
        let lint = helm(&["lint", &path, "--strict", "--namespace", &namespace]);
        assert!(lint.contains("0 chart(s) failed"), "{lint}");
        run(&plane, "kubectl", &["create", "namespace", &namespace], "").unwrap();
        let crds = chart(name).join("crds");
        if crds.is_dir() {
            // Helm installs these before it asks for the rest.
            let apply = ["apply", "--server-side", "-f", &crds.display().to_string()];
            run(&plane, "kubectl", &apply, "").unwrap();
        }
        let release = format!("release-{number}");
        helm(&["install", &release, &path, "--namespace", &namespace, "--dry-run=server"]);
        helm(&["install", &release, &path, "--namespace", &namespace]);
        run(&plane, "helm", &["uninstall", &release, "--namespace", &namespace], "").unwrap();
    }
    let definitions = run(&plane, "kubectl", &["get", "customresourcedefinitions", "--output", "json"], "").unwrap();
    let definitions: Value = serde_json::from_str(&definitions).unwrap();
    for definition in definitions["items"].as_array().unwrap() {
        let conditions = definition["status"]["conditions"].as_array().unwrap();
        let is =
            |kind: &str| conditions.iter().any(|condition| condition["type"] == kind && condition["status"] == "True");
        assert!(is("Established") && !is("NonStructuralSchema"), "{}: {conditions:?}", definition["metadata"]["name"]);
    }
    assert!(definitions.to_string().contains(SEALED), "what was sealed went with the release");
}
