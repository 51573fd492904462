//! Which cluster is meant, and what is said of it.

use cluster_manager_contract::SetupState;
use edge_sync_contract::SyncNode;

use super::*;
use fleet_view::bench::{Bench, CLUSTER, NAME};

const TWIN: Uuid = Uuid::from_u128(0x7);

fn connection(username: Option<&str>) -> Connection {
    let arguments = ["sparkfleet", "cluster", "list"];
    let named = username.iter().flat_map(|name| ["--username", name]);
    let parsed = crate::arguments::parsed(arguments.into_iter().chain(named)).unwrap();
    match parsed {
        crate::arguments::Command::Cluster(ClusterCommand::List { options, .. }) => options.connection,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_table_shows_what_flux_says_and_as_many_alerts_as_there_are() {
    let mut bench = Bench::with_cluster();
    bench.cluster(CLUSTER, NAME, |device| device.sync_since = Some(1_000));
    bench.central_monitor(&["ACME-Paint_Shop"]);
    let failed = SyncNode {
        source_ready: Some(false),
        source_message: Some("HelmRelease edge: no".to_owned()),
        simulated: true,
        ..SyncNode::default()
    };
    bench.sync(NAME, &failed, &[]);
    let expected = [
        "CLUSTER     SETUP  EDGE               SINCE  FLUX    HOSTS  DEPLOYMENTS  ALERTS  REASON",
        "Paint_Shop  ready  alive (simulated)  1m01s  failed  1/1    0/0          1       Flux failed: HelmRelease edge: no",
    ];
    assert_eq!(tables::clusters(&bench.fleet.clusters(), 62_000).lines(), expected);
    assert_eq!(alert::rows(&bench.fleet, Some(NAME)).len(), 1);
}

#[test]
fn a_cluster_that_is_away_shows_its_alert() {
    let mut bench = Bench::with_cluster();
    bench.cluster(CLUSTER, NAME, |device| device.sync_since = Some(1_000));
    bench.dies(NAME, configdb_schema::address::SYNC_NODE);
    let expected = [
        "CLUSTER     SETUP  EDGE  SINCE  FLUX   HOSTS  DEPLOYMENTS  ALERTS  REASON",
        "Paint_Shop  ready  away  1m01s  ready  1/1?   0/0          1",
    ];
    assert_eq!(tables::clusters(&bench.fleet.clusters(), 62_000).lines(), expected);
}

#[test]
fn what_is_known_of_flux_is_shown_and_where_to_look_when_nothing_is() {
    let mut bench = Bench::new();
    bench.cluster(CLUSTER, NAME, |_| {});
    let shown = |bench: &Bench| flux(&look_up::cluster(&bench.fleet, NAME).unwrap(), "fplus-edge");
    let never = shown(&bench);
    assert!(
        never.starts_with("not known: edge sync was never born; `sparkfleet cluster bootstrap Paint_Shop`"),
        "{never}"
    );
    bench.cluster(CLUSTER, NAME, |device| device.sync_since = Some(1));
    let away = shown(&bench);
    assert!(away.starts_with("not known while edge sync is away; at the edge: kubectl get -n fplus-edge "), "{away}");
    let commit = "0123456789abcdef0123456789abcdef01234567";
    let node = SyncNode { source_ready: Some(true), source_applied: commit.parse().ok(), ..SyncNode::default() };
    bench.sync(NAME, &node, &[]);
    assert_eq!(shown(&bench), format!("ready at commit {commit}"));
}

#[test]
fn a_cluster_is_found_by_name_and_uuid_and_a_refused_twin_stands_back() {
    let mut bench = Bench::with_cluster();
    bench.cluster(TWIN, NAME, |device| device.setup.state = SetupState::Refused);
    assert_eq!(look_up::cluster(&bench.fleet, NAME).unwrap().uuid, CLUSTER);
    assert_eq!(look_up::cluster(&bench.fleet, &TWIN.to_string()).unwrap().uuid, TWIN);
    assert_eq!(exit::code_of(&look_up::cluster_entry(&bench.fleet, NAME).unwrap_err()), exit::USAGE);
    assert_eq!(look_up::cluster_entry(&bench.fleet, &TWIN.to_string()).unwrap().0, TWIN);
}

#[test]
fn a_cluster_that_is_not_there_is_not_found_and_the_nearest_is_named() {
    let bench = Bench::with_cluster();
    let errors = [
        look_up::cluster(&bench.fleet, "Paint_Shp").unwrap_err(),
        look_up::cluster_entry(&bench.fleet, "Paint_Shp").unwrap_err(),
    ];
    for error in errors {
        assert_eq!(exit::code_of(&error), exit::NOT_FOUND);
        assert!(error.to_string().contains("did you mean \"Paint_Shop\"?"), "{error}");
    }
}

#[test]
fn a_cluster_that_the_broker_knows_by_a_name_is_shown_with_what_it_needs() {
    assert_eq!(broker_needs(&connection(None), "ACME-Paint_Shop"), None);
    let needed = broker_needs(&connection(Some("operator")), "ACME-Paint_Shop").unwrap();
    assert!(needed.contains("group ACME-Paint_Shop") && needed.contains("sparkfleet acl generate"), "{needed}");
}

#[test]
fn what_a_tear_down_leaves_is_named_with_the_command_that_removes_it() {
    let lines = left_at_the_edge("edge-7");
    assert!(lines[0].contains("namespace edge-7"), "{lines:?}");
    let command = lines[2].trim();
    let parts: Vec<&str> = command.split(" && ").collect();
    assert_eq!(parts.len(), 4, "{command}");
    assert!(parts.iter().all(|part| part.starts_with("kubectl delete ") && part.contains("edge-7")), "{command}");
}
