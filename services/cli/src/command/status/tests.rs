//! The page of a fleet that is well, and of one that is not.

use cluster_manager_contract::SetupState;
use edge_sync_contract::{DeploymentState, SyncNode};
use join_service_contract::JoinHost;
use uuid::Uuid;

use super::*;
use fleet_view::bench::{Bench, CLUSTER, NAME, reported};

const OVEN: Uuid = Uuid::from_u128(0x0E);

fn page(bench: &Bench) -> Vec<String> {
    lines(&status(&bench.fleet, "mqtt://broker:1883"), 65_000)
}

#[test]
fn a_fleet_that_is_well_waits_for_nothing() {
    let mut bench = Bench::with_cluster();
    bench.deployment(OVEN, "Oven", None);
    let node = SyncNode { source_ready: Some(true), ..SyncNode::default() };
    bench.sync(NAME, &node, &[(OVEN, reported("Oven", DeploymentState::Applied, Some(true)))]);
    let expected = [
        "broker        mqtt://broker:1883 reached, organisation ACME",
        "clusters      1: 1 setup ready, edge alive",
        "hosts         1/1 ready",
        "deployments   1/1 ready",
        "alerts        0",
        "",
        "SERVICE          STATE  VERSION",
        "ConfigDB         alive",
        "Cluster-Manager  alive  1.2.3",
        "Identity         alive  1.2.3",
        "Git              alive  1.2.3",
        "Monitor          alive  1.2.3",
    ];
    assert_eq!(page(&bench), expected);
}

#[test]
fn what_waits_says_why_and_what_to_do() {
    let mut bench = Bench::with_cluster();
    bench.cluster(Uuid::from_u128(0xD), "Body_Shop", |_| {});
    bench.cluster(Uuid::from_u128(0xE), "Press", |device| {
        device.setup.state = SetupState::Refused;
        device.setup.reason = Some("its name is taken".to_owned());
    });
    bench.cluster(CLUSTER, NAME, |device| device.desired.agreed = false);
    bench.deployment(OVEN, "Oven", None);
    let waiting = status(&bench.fleet, "").waiting;
    let expected = [
        "cluster Body_Shop: its edge was never born; `sparkfleet cluster bootstrap Body_Shop` prints the line that installs it",
        "cluster Paint_Shop: its edge has not taken over the latest changes",
        "cluster Press: setup refused (its name is taken)",
        "deployment Paint_Shop/Oven: sending",
    ];
    assert_eq!(waiting, expected);
}

#[test]
fn a_service_that_is_away_has_no_version_and_the_central_monitor_is_an_alert() {
    let fleet = Fleet::new(configdb_schema::address::Organisation::new("ACME").unwrap()).unwrap();
    let status = status(&fleet, "");
    assert!(status.services.iter().all(|row| !row.alive && row.version.is_none()), "{status:?}");
    assert_eq!((status.alerts.len(), status.clusters.len()), (1, 0));
    let page = lines(&status, 0);
    assert!(page.contains(&"Cluster-Manager  away".to_owned()), "{page:?}");
}

/// What the console's tables say of a bench, whose central services are these.
fn of_tables(bench: &Bench, services: &[Value]) -> Status {
    let tables = fleet_view::tables::Rows::of(&bench.fleet);
    let rows = |table: &str| -> Vec<Value> {
        match table {
            "console" => vec![json!({ "broker": "mqtt://broker:1883", "organisation": "ACME" })],
            "services" => services.to_vec(),
            "clusters" => tables.clusters().into_values().collect(),
            "deployments" => tables.deployments().into_values().collect(),
            "hosts" => fleet_view::tables::hosts(&bench.fleet).into_values().collect(),
            "alerts" => tables.alerts().into_values().collect(),
            other => panic!("{other}"),
        }
    };
    Status::of(Parts::of_tables(rows, "Other", "http://c").unwrap())
}

fn central(service: &str, alive: bool) -> Value {
    let version = if service == CONFIGDB_NODE { "" } else { "1.2.3" };
    json!({ "key": format!("ACME-Central/{service}"), "alive": alive, "version": version })
}

#[test]
fn the_page_of_the_console_is_that_of_the_broker() {
    let mut bench = Bench::with_cluster();
    bench.cluster(Uuid::from_u128(0xD), "Body_Shop", |_| {});
    bench.cluster(CLUSTER, NAME, |device| {
        device.desired.agreed = false;
        device.rollout.repository = Some("it waits for Body_Shop of wave 1".to_owned());
    });
    bench.deployment(OVEN, "Oven", None);
    let pending = |name: &str| JoinHost { name: name.to_owned(), state: HostState::Pending, ..JoinHost::default() };
    bench.join(NAME, &[(Uuid::from_u128(7), pending("press-1")), (Uuid::from_u128(8), pending("a; reboot"))]);
    bench.monitor(NAME, &["Oven_1"]);
    let of_console = of_tables(&bench, &SERVICES.map(|service| central(service, true)));
    assert_eq!(
        lines(&of_console, 0)[0],
        "broker        mqtt://broker:1883 reached by the console at http://c, organisation ACME"
    );
    let of_broker = status(&bench.fleet, "mqtt://broker:1883");
    assert_eq!(Status { console: None, ..of_console.clone() }, of_broker);
    assert!(of_console.waiting.iter().any(|text| text.contains("Body_Shop of wave 1")), "{of_console:#?}");
    assert!(of_console.waiting.iter().any(|text| text.contains("host approve Paint_Shop/press-1")), "{of_console:#?}");
    let is_quoted = |text: &String| text.ends_with("`sparkfleet host approve 'Paint_Shop/a; reboot'`");
    assert!(of_console.waiting.iter().any(is_quoted), "{of_console:#?}");
}

#[test]
fn a_central_monitor_that_the_console_does_not_receive_is_an_alert_and_a_user_of_some_clusters_sees_no_central_service()
{
    let bench = Bench::with_cluster();
    let services = SERVICES.map(|service| central(service, service != MONITOR_NODE));
    let away = of_tables(&bench, &services);
    assert_eq!(away.alerts, [AlertRow::of_central_monitor()]);
    let monitor = away.services.iter().find(|row| row.service == MONITOR_NODE).unwrap();
    assert_eq!((monitor.alive, &monitor.version), (false, &None));
    let limited = of_tables(&bench, &[json!({ "key": "ACME-Paint_Shop/Sync", "alive": true })]);
    assert!(limited.services.is_empty() && limited.alerts.is_empty(), "{limited:#?}");
    assert!(!lines(&limited, 0).iter().any(|line| line.starts_with("SERVICE")), "no table without rows");
}
