//! Rows of `manifests:UUID` from a fleet in miniature. Which values a template may have is tried where it is rendered.

use cluster_manager_contract::NodeMetrics;
use configdb_schema::defaults;
use configdb_schema::document::JsonObject;
use edge_sync_contract::{DeploymentState, SyncNode};

use super::*;
use crate::bench::{Bench, CLUSTER, NAME, reported};

const OVEN: Uuid = Uuid::from_u128(0xD1);
const CHART: Uuid = Uuid::from_u128(0xA1);

/// A fleet with the templates of a fresh store, and deployment `Oven` of a chart.
fn bench() -> Bench {
    let mut bench = Bench::with_cluster();
    for entry in defaults::entries().filter(|entry| entry.application.slug == K8sTemplate::slug()) {
        let template: K8sTemplate = serde_json::from_str(entry.json).unwrap();
        bench.entry(entry.object, &template);
    }
    let template = json!({"chart": "oven", "values": {"name": "{{name}}", "k8s": "{{k8sname}}", "heat": 1}});
    bench.entry::<HelmChartTemplate>(CHART, &serde_json::from_value(template).unwrap());
    bench.manager(&NodeMetrics {
        git_url: "https://git.acme.example".to_owned(),
        deployments_values: r#"{"organisation":"ACME"}"#.to_owned(),
        ..NodeMetrics::default()
    });
    bench.entry(OVEN, &oven("Oven"));
    bench
}

fn oven(name: &str) -> EdgeDeployment {
    let values: JsonObject = serde_json::from_value(json!({"heat": 2})).unwrap();
    EdgeDeployment {
        cluster: CLUSTER,
        name: name.to_owned(),
        chart: Some(CHART),
        values: Some(values),
        ..EdgeDeployment::default()
    }
}

#[test]
fn a_deployment_is_rendered_as_the_cluster_manager_does_it_and_its_digest_says_whether_it_runs() {
    let mut bench = bench();
    let rows = table(&bench.fleet, OVEN);
    assert_eq!(rows.keys().collect::<Vec<_>>(), ["000", "001"]);
    let release: Value = serde_json::from_str(rows["001"]["json"].as_str().unwrap()).unwrap();
    assert_eq!((&rows["001"]["kind"], &release["kind"]), (&json!("HelmRelease"), &json!("HelmRelease")));
    let values = json!({"organisation": "ACME", "cluster": NAME, "name": "Oven", "k8s": "oven", "heat": 2});
    assert_eq!(release["spec"]["values"], values);
    let digest = Digest::of_manifests(&[release]);
    assert_eq!(rows[SUMMARY], json!({"key": "000", "digest": digest.to_string(), "applied": null, "reason": null}));

    let device = DeploymentDevice { digest: Some(digest), ..reported("Oven", DeploymentState::Applied, Some(true)) };
    bench.sync(NAME, &SyncNode::default(), &[(OVEN, device)]);
    assert_eq!(table(&bench.fleet, OVEN)[SUMMARY]["applied"], digest.to_string());
    // What is written now does not run yet.
    bench.entry(OVEN, &EdgeDeployment { values: None, ..oven("Oven") });
    let summary = &table(&bench.fleet, OVEN)[SUMMARY];
    assert!(summary["applied"] == digest.to_string() && summary["digest"] != digest.to_string(), "{summary}");
}

#[test]
fn of_two_names_that_are_the_same_in_kubernetes_the_one_that_runs_keeps_the_plain_one() {
    let mut bench = bench();
    let (other, second) = (Uuid::from_u128(0xD0), "OVEN");
    bench.entry(other, &oven(second));
    let name = |bench: &Bench, deployment| {
        let rows = table(&bench.fleet, deployment);
        let release: Value = serde_json::from_str(rows["001"]["json"].as_str().unwrap()).unwrap();
        release["spec"]["values"]["k8s"].as_str().unwrap().to_owned()
    };
    assert_eq!(name(&bench, other), "oven");
    assert!(name(&bench, OVEN).starts_with("oven-"));
    bench.sync(NAME, &SyncNode::default(), &[(OVEN, reported("Oven", DeploymentState::Applied, Some(true)))]);
    assert_eq!(name(&bench, OVEN), "oven");
    assert!(name(&bench, other).starts_with("oven-"));
}

#[test]
fn what_cannot_be_rendered_says_why() {
    let reason =
        |bench: &Bench, deployment| table(&bench.fleet, deployment)[SUMMARY]["reason"].as_str().unwrap().to_owned();
    let mut bench = bench();
    assert_eq!(reason(&bench, Uuid::nil()), "ConfigDB does not have this deployment");
    bench.entry(OVEN, &EdgeDeployment { chart: None, ..oven("Oven") });
    assert!(reason(&bench, OVEN).contains("chart is missing"), "{}", reason(&bench, OVEN));
    bench.entry(OVEN, &EdgeDeployment { cluster: Uuid::nil(), ..oven("Oven") });
    assert_eq!(reason(&bench, OVEN), "the cluster manager does not have its cluster");
    bench.entry(OVEN, &oven("Oven"));
    bench.manager(&NodeMetrics { git_url: "https://git.acme.example".to_owned(), ..NodeMetrics::default() });
    assert!(reason(&bench, OVEN).contains("with which values deployments begin"));
    let rows = table(&bench.fleet, OVEN);
    assert_eq!((rows.len(), &rows[SUMMARY]["digest"]), (1, &Value::Null));
}
