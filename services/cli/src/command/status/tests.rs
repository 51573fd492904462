//! The page of a fleet that is well, and of one that is not.

use cluster_manager_contract::SetupState;
use edge_sync_contract::{DeploymentState, SyncNode};
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
