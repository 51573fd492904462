//! Which deployment is meant, which hosts may be named, and what the table shows.

use edge_sync_contract::{DeploymentDevice, DeploymentState, SyncNode};

use super::*;
use fleet_view::bench::{Bench, NAME, reported};

const OVEN: Uuid = Uuid::from_u128(0x0E);
const OLD: Uuid = Uuid::from_u128(0x01D);

fn with_oven(device: DeploymentDevice) -> Bench {
    let mut bench = Bench::with_cluster();
    bench.deployment(OVEN, "Oven", Some("paint-1"));
    bench.sync(NAME, &SyncNode::default(), &[(OVEN, device)]);
    bench
}

#[test]
fn the_table_shows_why_a_deployment_is_refused_while_its_old_release_is_ready() {
    let refused = DeploymentDevice {
        reason: Some("kind Namespace is not allowed".to_owned()),
        applied_at: Some(1_000),
        ..reported("Oven", DeploymentState::Refused, Some(true))
    };
    let bench = with_oven(refused);
    let expected = [
        "DEPLOYMENT  CLUSTER     CHART  HOST     STATE    READY  SINCE  MESSAGE",
        "Oven        Paint_Shop         paint-1  refused  yes    1m01s  kind Namespace is not allowed",
    ];
    assert_eq!(tables::deployments(&bench.fleet.deployments(), 62_000).lines(), expected);
}

#[test]
fn a_host_that_the_cluster_does_not_have_is_refused_with_those_that_it_has() {
    let bench = Bench::with_cluster();
    for host in [None, Some("paint-1")] {
        check_host(&bench.fleet, NAME, host).unwrap();
    }
    let error = check_host(&bench.fleet, NAME, Some("paint-2")).unwrap_err();
    assert_eq!(exit::code_of(&error), exit::NOT_FOUND);
    let text = "cluster Paint_Shop: there is no host \"paint-2\"; did you mean \"paint-1\"? there are: paint-1";
    assert_eq!(format!("{error:#}"), text);
}

#[test]
fn the_hosts_of_a_cluster_that_reports_none_are_not_checked() {
    check_host(&Bench::new().fleet, NAME, Some("paint-2")).unwrap();
}

#[test]
fn a_deployment_is_found_by_name_by_cluster_and_by_uuid() {
    let bench = with_oven(reported("Oven", DeploymentState::Applied, Some(true)));
    for wanted in ["Oven", "Paint_Shop/Oven", &OVEN.to_string()] {
        assert_eq!(look_up::deployment(&bench.fleet, wanted).unwrap().uuid, OVEN, "{wanted}");
    }
    let error = look_up::deployment(&bench.fleet, "Ofen").unwrap_err();
    assert_eq!(exit::code_of(&error), exit::NOT_FOUND);
    assert_eq!(
        error.to_string(),
        "there is no deployment \"Ofen\"; did you mean \"Paint_Shop/Oven\"? there are: Paint_Shop/Oven"
    );
    let error = look_up::deployment(&bench.fleet, "Paint_Shop/Ofen").unwrap_err();
    assert!(error.to_string().contains("did you mean \"Paint_Shop/Oven\"?"), "{error}");
}

#[test]
fn of_two_with_one_name_the_one_that_is_being_removed_stands_back() {
    let mut bench = with_oven(reported("Oven", DeploymentState::Applied, Some(true)));
    let old = (OLD, reported("Oven", DeploymentState::Deleting, None));
    bench.sync(NAME, &SyncNode::default(), std::slice::from_ref(&old));
    assert_eq!(look_up::deployment(&bench.fleet, "Oven").unwrap().uuid, OVEN);
    bench.forget(OVEN);
    assert!(look_up::deployment(&bench.fleet, "Oven").unwrap().is_being_removed());
    bench.cluster(Uuid::from_u128(0xD), "Body_Shop", |_| {});
    bench.sync("Body_Shop", &SyncNode::default(), &[old]);
    assert_eq!(exit::code_of(&look_up::deployment(&bench.fleet, "Oven").unwrap_err()), exit::USAGE);
}

#[test]
fn a_deployment_is_gone_when_an_edge_that_is_alive_does_not_report_it() {
    let mut bench = with_oven(reported("Oven", DeploymentState::Applied, Some(true)));
    let row = look_up::deployment(&bench.fleet, "Oven").unwrap();
    bench.forget(OVEN);
    assert!(!is_gone(&bench.fleet, &row));
    assert_eq!(status(&bench.fleet, &row), "removing, ready");
    bench.sync(NAME, &SyncNode::default(), &[]);
    assert!(is_gone(&bench.fleet, &row));
    bench.dies(NAME, configdb_schema::address::SYNC_NODE);
    assert!(!is_gone(&bench.fleet, &row), "silence is not a report");
    assert_eq!(status(&bench.fleet, &row), "removing (its cluster is away)");
}

#[test]
fn nothing_has_reached_an_edge_that_was_never_born() {
    let mut bench = Bench::new();
    bench.cluster(fleet_view::bench::CLUSTER, NAME, |_| {});
    bench.deployment(OVEN, "Oven", None);
    let row = look_up::deployment(&bench.fleet, "Oven").unwrap();
    assert!(is_gone(&bench.fleet, &row));
}

#[test]
fn a_deletion_takes_the_entry_and_the_configuration() {
    let request = deletion(OVEN);
    assert_eq!(request.object, OVEN);
    assert_eq!(request.entries.keys().map(String::as_str).collect::<Vec<_>>(), ["AgentConfig", "EdgeDeployment"]);
}
