//! The documents that `-o json` prints: their fields and the types of these are what scripts rely on. A field that is added is added here; one that goes or changes its type breaks scripts, and the
//! changelog says so.

use cluster_manager_contract::SetupState;
use edge_sync_contract::{DeploymentDevice, DeploymentState, SyncNode};
use fleet_view::bench::{Bench, CLUSTER, NAME, reported};
use join_service_contract::{HostState, JoinHost};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::{alert, status};
use crate::recovery;

const OVEN: Uuid = Uuid::from_u128(0x10);

/// A value with the name of its type in place of each text, number and truth; of an array the shape of its first value.
fn shape(value: &Value) -> Value {
    let of_field = |(name, value): (&String, &Value)| (name.clone(), shape(value));
    match value {
        Value::Null => json!("null"),
        Value::Bool(_) => json!("truth"),
        Value::Number(_) => json!("number"),
        Value::String(_) => json!("text"),
        Value::Array(values) => values.iter().take(1).map(shape).collect(),
        Value::Object(fields) => fields.iter().map(of_field).collect::<Map<_, _>>().into(),
    }
}

/// A cluster with everything that a row can say, and a deployment whose release has failed.
fn bench() -> Bench {
    let mut bench = Bench::with_cluster();
    bench.cluster(CLUSTER, NAME, |device| {
        (device.sync_alive, device.sync_since) = (true, Some(5));
        (device.setup.since, device.setup.reason) = (4, Some("the git server is away".to_owned()));
        device.desired.held_since = Some(6);
    });
    let node = SyncNode {
        source_ready: Some(false),
        source_message: Some("no chart".to_owned()),
        source_applied: "0123456789012345678901234567890123456789".parse().ok(),
        ..SyncNode::default()
    };
    bench.deployment(OVEN, "Oven", Some("paint-1"));
    let device = DeploymentDevice {
        reason: Some("the chart is not there".to_owned()),
        message: Some("upgrade failed".to_owned()),
        applied_at: Some(9),
        version: 3,
        ..reported("Oven", DeploymentState::Failed, Some(false))
    };
    bench.sync(NAME, &node, &[(OVEN, device)]);
    bench
}

#[test]
fn a_cluster() {
    let rows = json!(bench().fleet.clusters());
    let count = json!({ "ready": "number", "total": "number" });
    let expected = json!({
        "uuid": "text", "name": "text", "group": "text", "setup": "text", "reason": "text", "since": "number",
        "seen": "truth", "alive": "truth", "alive_since": "number", "monitored": "truth",
        "flux": { "ready": "truth", "message": "text", "commit": "text" }, "agreed": "truth", "held": "null",
        "hosts": count, "deployments": count, "alerts": "number", "simulated": "truth",
    });
    assert_eq!(shape(&rows), json!([expected]));
}

#[test]
fn a_deployment() {
    let expected = json!({
        "uuid": "text", "name": "text", "cluster": "text", "chart": "text", "host": "text", "state": "text",
        "ready": "truth", "reason": "text", "message": "text", "applied_at": "number", "version": "number",
    });
    assert_eq!(shape(&json!(bench().fleet.deployments())), json!([expected]));
}

#[test]
fn an_alert_that_a_user_looks_after() {
    let mut bench = bench();
    bench.monitor(NAME, &["Oven"]);
    let rows = alert::rows(&bench.fleet, Some(NAME));
    let of_oven = rows.iter().filter(|row| row.node.as_deref() == Some("Oven")).collect::<Vec<_>>();
    let author = fleet_view::requests::Author { id: "r".to_owned(), writer: "sparkfleet-cli/ada".to_owned() };
    let request =
        fleet_view::requests::acknowledge_alerts(&bench.fleet, &of_oven, Some("on my way"), None, 7_000, author);
    let document = request.unwrap().entries.into_values().next().flatten().unwrap();
    let document: configdb_schema::document::AlertAcknowledgements = serde_json::from_value(document).unwrap();
    bench.entry(CLUSTER, &document);
    let rows = alert::rows(&bench.fleet, Some(NAME));
    let of_oven: Vec<_> = rows.iter().filter(|row| row.node.as_deref() == Some("Oven")).collect();
    let expected = json!({
        "cluster": "text", "node": "text", "alert": "text", "since": "number", "reason": "text", "monitor": "text",
        "acknowledged": { "by": "text", "at": "number", "note": "text" },
    });
    assert_eq!(shape(&json!(of_oven)), json!([expected]));
    let acknowledged = of_oven[0].acknowledged.clone().unwrap();
    assert_eq!((acknowledged.by.as_str(), acknowledged.at), ("sparkfleet-cli/ada", Some(7_000)));
}

#[test]
fn a_host_that_has_proven_its_tpm() {
    let mut bench = bench();
    let host = JoinHost {
        name: "paint-2".to_owned(),
        role: "worker".to_owned(),
        variant: "tpm2".to_owned(),
        endorsement_key: "ab".repeat(32),
        state: HostState::Refused,
        kind: "join".to_owned(),
        stage: Some("locked".to_owned()),
        verdict: Some("pcr-mismatch".to_owned()),
        detail: Some("PCR 4".to_owned()),
        warnings: Some("PCR 5".to_owned()),
        pcrs: Some([(4, "00".repeat(32))].into()),
        ..JoinHost::default()
    };
    bench.join(NAME, &[(Uuid::from_u128(0xD1), host)]);
    let expected = json!({
        "cluster": "text", "id": "text", "disk": "text", "has_foreign_disk": "truth", "name": "text", "state": "text",
        "role": "text", "variant": "text", "kind": "text", "stage": "text", "verdict": "text", "detail": "text",
        "warnings": "text", "endorsement_key": "text", "policy_revision": "number", "registers": { "4": "text" },
        "first_seen": "number", "last_seen": "number",
    });
    assert_eq!(shape(&json!(bench.fleet.joining_hosts(None))), json!([expected]));
}

#[test]
fn a_host_of_a_cluster() {
    let expected = json!({
        "cluster": "text", "hostname": "text", "ready": "truth", "role": "text", "architecture": "text",
        "operating_system": "text", "kubernetes_version": "text", "specialised": "null", "joined": "null",
    });
    assert_eq!(shape(&json!(bench().fleet.hosts(Some(NAME)))), json!([expected]));
}

#[test]
fn the_page_of_the_status() {
    let status = json!(status::status(&bench().fleet, "mqtt://127.0.0.1:1883"));
    let count = json!({ "ready": "number", "total": "number" });
    let services = status["services"].as_array().unwrap();
    let monitor = services.iter().find(|row| row["service"] == "Monitor").unwrap();
    assert_eq!(shape(&json!([monitor])), json!([{ "service": "text", "alive": "truth", "version": "text" }]));
    let names: Vec<&str> = services.iter().map(|row| row["service"].as_str().unwrap()).collect();
    assert_eq!(names, ["ConfigDB", "Cluster-Manager", "Identity", "Git", "Monitor"]);
    assert_eq!((shape(&status["hosts"]), shape(&status["deployments"])), (count.clone(), count));
    assert_eq!(status["clusters"], json!({ "setup ready, edge alive": 1 }), "{status:#}");
    let fields: Vec<&String> = status.as_object().unwrap().keys().collect();
    assert_eq!(
        fields,
        ["broker", "console", "organisation", "services", "clusters", "hosts", "deployments", "alerts", "waiting"]
    );
}

#[test]
fn a_comparison_of_edge_and_configdb() {
    let bench = bench();
    let compared = json!(recovery::compare(&bench.fleet, NAME).unwrap());
    let expected = json!({
        "cluster": "text", "uuid": "text", "held": "null", "is_unknown": "truth", "follows_another": "truth",
        "only_here": [], "only_at_edge": [{ "name": "text", "uuid": "text" }], "different": [], "cluster_differs": "truth", "without_entries": [{ "name": "text", "uuid": "text" }],
        "next_epoch": "number", "accepted": "null",
    });
    assert_eq!(shape(&compared), expected, "{compared:#}");
    assert_eq!(SetupState::Ready.as_str(), "ready", "a word of the documents, too");
}
