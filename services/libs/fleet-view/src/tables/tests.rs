//! What the tables say of a fleet in miniature.

use configdb_schema::document::EdgeDeployment;
use edge_sync_contract::{DeploymentDevice, DeploymentState, SyncNode};
use join_service_contract::{HostState, JoinHost};
use sparkplug::host::HostEvent;
use sparkplug::{Metric, TypedMetrics as _};

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

/// The steps of the oven's way: name, state, time and milliseconds since the step before.
fn way(bench: &Bench) -> Vec<(String, String, Option<u64>, Option<i64>)> {
    let table = Rows::of(&bench.fleet).deployments();
    let legs = table[&OVEN.to_string()]["path"].as_array().unwrap().clone();
    let text = |leg: &Value, field: &str| leg[field].as_str().unwrap().to_owned();
    legs.iter().map(|leg| (text(leg, "leg"), text(leg, "state"), leg["at"].as_u64(), leg["ms"].as_i64())).collect()
}

fn states(bench: &Bench) -> Vec<String> {
    way(bench).into_iter().map(|(leg, state, ..)| format!("{leg} {state}")).collect()
}

fn times(bench: &Bench) -> Vec<Option<u64>> {
    way(bench).into_iter().map(|(_, _, at, _)| at).collect()
}

/// The oven runs a first version.
fn with_oven() -> Bench {
    let mut bench = Bench::with_cluster();
    bench.deployment(OVEN, "Oven", None);
    bench.sync(NAME, &ready(), &[(OVEN, reported("Oven", DeploymentState::Applied, Some(true)))]);
    bench
}

fn oven(host: &str) -> EdgeDeployment {
    let name = "Oven".to_owned();
    EdgeDeployment { cluster: CLUSTER, name, hostname: Some(host.to_owned()), ..EdgeDeployment::default() }
}

/// The edge accepts, applies, and is ready with what was written with revision 100.
fn carry_out(bench: &mut Bench) {
    let names = |name: &str, value: u64| vec![Metric::new(name, value)];
    bench.managed(CLUSTER, names(cluster_manager_contract::names::DESIRED_VERSION, 100), 1_010);
    bench.reports(NAME, None, names(edge_sync_contract::names::DESIRED_VERSION, 100), 1_030);
    let applied =
        DeploymentDevice { version: 100, applied_at: Some(1_100), ..reported("Oven", DeploymentState::Applied, None) };
    bench.reports(NAME, Some(OVEN), applied.to_metrics(), 1_110);
    bench.reports(NAME, Some(OVEN), vec![Metric::new(edge_sync_contract::names::deployment::READY, true)], 1_500);
}

#[test]
fn the_way_of_an_intent_ends_where_it_hangs() {
    let mut bench = Bench::with_cluster();
    bench.deployment(OVEN, "Oven", None);
    assert_eq!(states(&bench)[..3], ["desired done", "acknowledged active", "received waiting"]);
    bench.cluster(CLUSTER, NAME, |device| device.desired.version = 1_000);
    assert_eq!(states(&bench)[1..4], ["acknowledged done", "received active", "applied waiting"]);
    bench.sync(NAME, &ready(), &[(OVEN, reported("Oven", DeploymentState::Failed, None))]);
    assert_eq!(states(&bench)[2..], ["received done", "applied failed", "ready waiting"]);
    bench.sync(NAME, &ready(), &[(OVEN, reported("Oven", DeploymentState::Applied, Some(true)))]);
    bench.cluster(CLUSTER, NAME, |device| device.desired.version = 0);
    assert!(states(&bench).iter().all(|leg| leg.ends_with("done")), "{:?}", states(&bench));
}

#[test]
fn each_step_of_an_intent_has_the_time_of_the_message_that_reported_it_first() {
    let mut bench = with_oven();
    assert_eq!(times(&bench), [None; 5], "births do not say since when");
    bench.written(OVEN, &oven("paint-1"), 100, 1_000);
    assert_eq!(way(&bench)[0].2, Some(1_000));
    carry_out(&mut bench);
    let taken: Vec<Option<i64>> = way(&bench).into_iter().map(|(.., ms)| ms).collect();
    assert_eq!(times(&bench), [1_000, 1_010, 1_030, 1_100, 1_500].map(Some));
    assert_eq!(taken, [None, Some(10), Some(20), Some(70), Some(400)]);
    // A rebirth in between moves no time.
    let again = DeploymentDevice {
        version: 100,
        applied_at: Some(1_100),
        ..reported("Oven", DeploymentState::Applied, Some(true))
    };
    bench.sync(NAME, &SyncNode { desired_version: 100, ..ready() }, &[(OVEN, again)]);
    assert_eq!(times(&bench), [1_000, 1_010, 1_030, 1_100, 1_500].map(Some));
    // A later write starts again.
    bench.written(OVEN, &oven("paint-2"), 101, 2_000);
    assert_eq!(times(&bench), [Some(2_000), None, None, Some(1_100), None]);
}

#[test]
fn what_was_missed_has_no_time_and_clocks_that_differ_are_seen() {
    let mut bench = with_oven();
    bench.written(OVEN, &oven("paint-1"), 100, 1_020);
    bench.misses(NAME, "Sync");
    carry_out(&mut bench);
    let found = way(&bench);
    assert_eq!((found[1].2, found[1].3), (Some(1_010), Some(-10)), "the clock of the manager is behind");
    assert_eq!((found[2].2, found[2].3, found[3].3), (None, None, None), "{found:?}");
    assert!(states(&bench).iter().all(|leg| leg.ends_with("done")));
}

#[test]
fn versions_that_were_reported_before_a_write_say_nothing_of_it() {
    let mut bench = with_oven();
    carry_out(&mut bench);
    // A store that was restored counts its revisions again.
    bench.written(OVEN, &oven("paint-1"), 90, 2_000);
    assert_eq!(times(&bench), [Some(2_000), None, None, Some(1_100), None]);
}

#[test]
fn times_that_were_recorded_hold_for_the_same_revision() {
    let mut bench = with_oven();
    bench.written(OVEN, &oven("paint-1"), 100, 1_000);
    carry_out(&mut bench);
    let recorded = Rows::of(&bench.fleet).deployments();
    let now = DeploymentDevice {
        version: 100,
        applied_at: Some(1_100),
        ..reported("Oven", DeploymentState::Applied, Some(true))
    };
    let mut again = Bench::with_cluster();
    again.fleet.on_event(&HostEvent::Offline { reason: "the console was stopped".to_owned() });
    again.cluster(CLUSTER, NAME, |device| device.desired.version = 100);
    again.entry_of_revision(OVEN, &oven("paint-1"), 100);
    again.sync(NAME, &SyncNode { desired_version: 100, ..ready() }, &[(OVEN, now)]);
    assert_eq!(times(&again), [None, None, None, Some(1_100), None]);
    again.fleet.recall_intents(&recorded);
    assert_eq!(times(&again), [1_000, 1_010, 1_030, 1_100, 1_500].map(Some));
    again.entry_of_revision(OVEN, &oven("paint-2"), 101);
    assert_eq!(times(&again)[..3], [None; 3]);
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
    assert_eq!(host["joined"], true);
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
    let alert_of = |alert: &str| {
        alerts.iter().find(|(kind, ..)| *kind == alert).map(|(_, subject, reason)| (&**subject, &**reason))
    };
    let reason = "a member was refused its keys, and its state disk stays closed: PCR 4: wanted";
    assert_eq!(alert_of("Locked_Out"), Some((&*format!("{NAME}/press-1"), reason)));
    let reason = "a machine asks for the keys of a disk that is another host's: PCR 4: wanted";
    assert_eq!(alert_of("Moved_Disk"), Some((&*format!("{NAME}/press-1"), reason)));
}

#[test]
fn a_revocation_list_that_is_not_renewed_is_an_alert_of_the_central_services() {
    let mut bench = Bench::with_cluster();
    assert_eq!(bench.fleet.alerts(), []);
    bench.revocations(Some("past half"));
    let alert = bench.fleet.alerts().pop().unwrap();
    assert_eq!(alert.key(), "/Identity/Revocations/ACME-Central/Identity");
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
        let mut alerts: Vec<AlertRow> = rows.alerts().values().filter_map(alert_row).collect();
        alerts.sort_by(AlertRow::by_age);
        assert_eq!(alerts, fleet.alerts());
        alerts.len()
    };
    check(&bench);
    bench.dies(NAME, configdb_schema::address::SYNC_NODE);
    check(&bench);
    bench.monitor(NAME, &["Oven_1"]);
    assert_ne!(check(&bench), 0);
    assert!(cluster_row(&json!({ "key": "x" })).is_none() && deployment_row(&json!([])).is_none());
    let alert = |alert: &str| json!({ "alert": alert, "reason": "because", "monitor": "ACME-Central/Monitor" });
    assert!(alert_row(&alert("Offline")).is_some() && alert_row(&alert("Of_A_Later_Version")).is_none());
}
