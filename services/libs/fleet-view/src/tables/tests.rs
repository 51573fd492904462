//! What the tables say of a fleet in miniature.

use edge_sync_contract::{DeploymentState, SyncNode};
use join_service_contract::{HostState, JoinHost};

use super::*;
use crate::bench::{Bench, CLUSTER, NAME, reported};

const OVEN: Uuid = Uuid::from_u128(0x0E);

fn ready() -> SyncNode {
    SyncNode { source_ready: Some(true), version: "1.2.3".to_owned(), ..SyncNode::default() }
}

#[test]
fn a_cluster_has_its_health_and_its_steps() {
    let mut bench = Bench::with_cluster();
    bench.cluster(CLUSTER, NAME, |device| device.setup.step = SetupStep::Ready);
    bench.sync(NAME, &ready(), &[]);
    let table = Rows::of(&bench.fleet).clusters();
    let row = &table[&CLUSTER.to_string()];
    assert_eq!(row["key"], CLUSTER.to_string());
    assert_eq!((&row["name"], &row["health"], &row["edge"]), (&json!(NAME), &json!("good"), &json!("alive")));
    assert_eq!((&row["version"], &row["wave"], &row["hosts"]["ready"]), (&json!("1.2.3"), &json!(9), &json!(1)));
    let steps = row["steps"].as_array().unwrap();
    assert_eq!((steps.len(), &steps[6]["name"]), (7, &json!("ready")));
    assert!(steps.iter().all(|step| step["state"] == "done"), "{steps:?}");
}

#[test]
fn a_set_up_that_is_refused_fails_at_its_next_step() {
    let mut bench = Bench::new();
    bench.cluster(CLUSTER, NAME, |device| {
        device.setup.state = SetupState::Refused;
        device.setup.step = SetupStep::Spec;
        device.setup.reason = Some("the name is taken".to_owned());
    });
    let table = Rows::of(&bench.fleet).clusters();
    let steps = &table[&CLUSTER.to_string()]["steps"];
    assert_eq!((&steps[0]["state"], &steps[1]["state"]), (&json!("done"), &json!("failed")));
    assert_eq!(steps[1]["detail"], "the name is taken");
}

#[test]
fn the_way_of_an_intent_ends_where_it_hangs() {
    let mut bench = Bench::with_cluster();
    bench.deployment(OVEN, "Oven", None);
    let states = |bench: &Bench| {
        let table = Rows::of(&bench.fleet).deployments();
        let path = table[&OVEN.to_string()]["path"].as_array().unwrap().clone();
        path.iter().map(|leg| format!("{} {}", leg["leg"], leg["state"]).replace('"', "")).collect::<Vec<_>>()
    };
    assert_eq!(states(&bench)[2..4], ["sent done", "accepted active"]);
    bench.sync(NAME, &ready(), &[(OVEN, reported("Oven", DeploymentState::Failed, None))]);
    assert_eq!(states(&bench)[3..], ["accepted done", "applied failed", "ready waiting"]);
    bench.sync(NAME, &ready(), &[(OVEN, reported("Oven", DeploymentState::Applied, Some(true)))]);
    assert!(states(&bench).iter().all(|leg| leg.ends_with("done")));
}

#[test]
fn the_fleet_is_counted_by_health() {
    let mut bench = Bench::with_cluster();
    bench.deployment(OVEN, "Oven", None);
    let table = Rows::of(&bench.fleet).fleet();
    let row = &table["fleet"];
    assert_eq!(row["clusters"], json!({ "good": 0, "working": 1, "attention": 0, "away": 0 }));
    assert_eq!(row["hosts"], json!({ "good": 1, "working": 0, "attention": 0, "away": 0 }));
    assert_eq!((&row["deployments"]["working"], &row["alerts"]), (&json!(1), &json!(0)));
}

#[test]
fn an_alert_and_a_host_have_their_rows() {
    let mut bench = Bench::with_cluster();
    bench.monitor(NAME, &["Oven"]);
    let rows = Rows::of(&bench.fleet);
    let alerts = rows.alerts();
    let (key, alert) = alerts.first_key_value().unwrap();
    assert_eq!(key, "Paint_Shop/Oven/Offline/ACME-Paint_Shop/Monitor");
    assert_eq!((&alert["health"], &alert["since"]), (&json!("attention"), &json!(5)));
    let host = &hosts(&bench.fleet)["Paint_Shop/paint-1"];
    assert_eq!(
        (&host["member"], &host["health"], &host["ready"]),
        (&json!("Kubernetes Node"), &json!("good"), &json!(true))
    );
    bench.dies(NAME, "Sync");
    assert_eq!(hosts(&bench.fleet)["Paint_Shop/paint-1"]["health"], "away");
}

#[test]
fn a_member_that_is_locked_out_and_who_has_its_disk_are_two_rows_and_two_alerts() {
    let mut bench = Bench::with_cluster();
    let (disk, thief) = (Uuid::from_u128(1), Uuid::from_u128(2));
    let host = |state, last_seen| JoinHost {
        name: "press-1".to_owned(),
        role: "worker".to_owned(),
        state,
        verdict: Some("measurement".to_owned()),
        detail: Some("PCR 4: wanted".to_owned()),
        last_seen,
        ..JoinHost::default()
    };
    let foreign = JoinHost { foreign_disk: Some(disk), ..host(HostState::Refused, 9) };
    bench.join(NAME, &[(disk, host(HostState::LockedOut, 5)), (thief, foreign)]);
    let table = hosts(&bench.fleet);
    let member = |key: String| table[&key]["member"].as_str().unwrap().to_owned();
    // Who has the disk asks by the same name, and was seen later.
    assert_eq!(member(format!("{NAME}/press-1")), "locked out");
    assert_eq!(member(format!("{NAME}/{thief}")), "refused");
    assert_eq!(table[&format!("{NAME}/{thief}")]["disk"], disk.to_string());
    let alerts: Vec<_> = bench.fleet.alerts().into_iter().map(|row| (row.alert, row.subject(), row.reason)).collect();
    let told = |alert: &str| {
        alerts.iter().find(|(kind, ..)| *kind == alert).map(|(_, subject, reason)| (&**subject, &**reason))
    };
    let reason = "a member was refused its keys, and its state disk stays closed: PCR 4: wanted";
    assert_eq!(told("Locked_Out"), Some((&*format!("{NAME}/press-1"), reason)));
    let reason = "a machine asks for the keys of a disk that is another host's: PCR 4: wanted";
    assert_eq!(told("Moved_Disk"), Some((&*format!("{NAME}/press-1"), reason)));
}

#[test]
fn a_revocation_list_that_is_not_renewed_is_an_alert_of_the_central_services() {
    let mut bench = Bench::with_cluster();
    assert_eq!(bench.fleet.alerts(), []);
    bench.revocations(Some("past half"));
    let alert = bench.fleet.alerts().pop().unwrap();
    assert_eq!(alert.key(), "/Cluster-Manager/Revocations/ACME-Central/Cluster-Manager");
    assert_eq!((alert.reason.as_str(), alert.cluster), ("past half", None));
    bench.revocations(None);
    assert_eq!(bench.fleet.alerts(), []);
}

#[test]
fn a_text_of_a_hostile_node_stays_data_and_is_cut() {
    let mut bench = Bench::with_cluster();
    let hostile = format!("<img src=x onerror=alert(1)>\u{202e}{}", "ä".repeat(TEXT_BYTES_MAX));
    let node = SyncNode { source_ready: Some(false), source_message: Some(hostile), ..ready() };
    bench.sync(NAME, &node, &[]);
    let table = Rows::of(&bench.fleet).clusters();
    let message = table[&CLUSTER.to_string()]["flux"]["message"].as_str().unwrap();
    assert!(message.starts_with("<img src=x") && message.ends_with('…'), "{message:.40}");
    assert!(message.len() <= TEXT_BYTES_MAX + '…'.len_utf8());
}

#[test]
fn every_refusal_of_the_documentation_has_advice() {
    assert_eq!(hosts::advice("pcr-all-zero"), Some("switch on measured boot in the firmware"));
    assert_eq!(hosts::advice("no-such-code"), None);
}

#[test]
fn rows_of_any_fleet_follow_one_another_by_deltas() {
    use crate::deltas::Deltas;
    let mut bench = Bench::with_cluster();
    let mut table = Rows::of(&bench.fleet).clusters();
    bench.deployment(OVEN, "Oven", None);
    bench.dies(NAME, "Sync");
    let new = Rows::of(&bench.fleet).clusters();
    let deltas = Deltas::between(&table, &new);
    assert!(!deltas.is_empty());
    deltas.apply(&mut table);
    assert_eq!(table, new);
}

#[test]
fn a_row_of_a_table_is_read_back_as_the_row_that_it_was_made_of() {
    let mut bench = Bench::with_cluster();
    let elsewhere = Uuid::from_u128(0xE);
    bench.cluster(elsewhere, "Body_Shop", |device| {
        device.sync_since = Some(7);
        device.setup.state = SetupState::Refused;
        device.setup.reason = Some("the name is taken".to_owned());
    });
    bench.cluster(Uuid::from_u128(0xF), "Press", |_| {});
    bench.deployment(OVEN, "Oven", Some("paint-1"));
    bench.deployment(Uuid::from_u128(0x0F), "Sent", None);
    let applied = edge_sync_contract::DeploymentDevice {
        applied_at: Some(9),
        message: Some("all is well".to_owned()),
        ..reported("Oven", DeploymentState::Applied, Some(true))
    };
    let gone = reported("Gone", DeploymentState::Deleting, None);
    bench.sync(NAME, &ready(), &[(OVEN, applied), (Uuid::from_u128(0x1F), gone)]);
    let check = |bench: &Bench| {
        let (rows, fleet) = (Rows::of(&bench.fleet), &bench.fleet);
        let mut clusters: Vec<ClusterRow> = rows.clusters().values().filter_map(cluster_row).collect();
        clusters.sort_by(|a, b| a.name.cmp(&b.name));
        assert_eq!(clusters, fleet.clusters());
        let mut deployments: Vec<DeploymentRow> = rows.deployments().values().filter_map(deployment_row).collect();
        deployments.sort_by(|a, b| (&a.cluster, &a.name).cmp(&(&b.cluster, &b.name)));
        assert_eq!((deployments.len(), deployments), (3, fleet.deployments()));
    };
    check(&bench);
    bench.dies(NAME, configdb_schema::address::SYNC_NODE);
    check(&bench);
    assert!(cluster_row(&json!({ "key": "x" })).is_none() && deployment_row(&json!([])).is_none());
}
