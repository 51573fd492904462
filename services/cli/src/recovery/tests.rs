//! What an operator reads before anything is written.

use edge_sync_contract::SyncNode;
use fleet_view::bench::{Bench, CLUSTER, NAME, reported};

use super::*;

const HERE: Uuid = Uuid::from_u128(1);
const AT_EDGE: Uuid = Uuid::from_u128(2);

/// An edge that holds, and runs a deployment of that name which ConfigDB does not have.
fn held(name: &str) -> Bench {
    let mut bench = Bench::with_cluster();
    let node = SyncNode {
        cluster_uuid: CLUSTER,
        desired_held: Some(true),
        desired_hold_reason: Some("another store".to_owned()),
        ..SyncNode::default()
    };
    let mut running = reported(name, DeploymentState::Applied, Some(true));
    running.entries = Some(Entries::default());
    bench.sync(NAME, &node, &[(AT_EDGE, running)]);
    bench
}

#[test]
fn what_only_runs_at_the_edge_can_be_adopted_unless_its_name_is_taken() {
    let mut bench = held("Oven_1");
    bench.deployment(HERE, "Oven_2", None);
    let comparison = compare(&bench.fleet, NAME).unwrap();
    assert!(comparison.is_open());
    assert_eq!(obstacle(&bench.fleet, &comparison), None);
    bench.deployment(HERE, "Oven_1", None);
    let comparison = compare(&bench.fleet, NAME).unwrap();
    let reason = obstacle(&bench.fleet, &comparison).unwrap();
    assert!(reason.ends_with("delete that one first: sparkfleet deployment delete Paint_Shop/Oven_1"), "{reason}");
}

#[test]
fn the_command_that_deletes_a_twin_takes_its_name_as_one_word() {
    let mut bench = held("Oven 1");
    bench.deployment(HERE, "Oven 1", None);
    let reason = obstacle(&bench.fleet, &compare(&bench.fleet, NAME).unwrap()).unwrap();
    assert!(reason.ends_with("sparkfleet deployment delete 'Paint_Shop/Oven 1'"), "{reason}");
}

#[test]
fn what_a_decision_deletes_is_named_in_the_order_of_names() {
    let mut bench = held("Oven_1");
    let (first, second) = (Uuid::from_u128(8), Uuid::from_u128(9));
    let node = SyncNode { cluster_uuid: CLUSTER, ..SyncNode::default() };
    let running = |name| reported(name, DeploymentState::Applied, Some(true));
    let going = reported("Press", DeploymentState::Deleting, None);
    bench.sync(NAME, &node, &[(first, running("Robot")), (second, running("Belt")), (HERE, going)]);
    assert_eq!(names(&compare(&bench.fleet, NAME).unwrap().only_at_edge), "Belt, Robot");
}

/// An edge of the cluster that runs this deployment, and keeps these entries of it and of the cluster.
fn kept(bench: &mut Bench, deployment: Option<Entries>, cluster: Option<Entries>) -> Comparison {
    let node = SyncNode {
        cluster_uuid: CLUSTER,
        desired_held: Some(true),
        desired_hold_reason: Some("another store".to_owned()),
        cluster_entries: cluster,
        ..SyncNode::default()
    };
    let mut running = reported("Oven_1", DeploymentState::Applied, Some(true));
    running.entries = deployment;
    bench.sync(NAME, &node, &[(AT_EDGE, running)]);
    compare(&bench.fleet, NAME).unwrap()
}

fn entries(slug: &str, value: Value) -> Entries {
    Entries([(slug.to_owned(), value)].into())
}

fn adopted(bench: &Bench, comparison: &Comparison) -> [Vec<WriteRequest>; 2] {
    adoption(&bench.fleet, comparison, |object| WriteRequest::put("r", object))
}

#[test]
fn what_runs_at_the_edge_is_written_back_under_its_own_id_and_class() {
    let deployment = serde_json::json!({ "cluster": CLUSTER, "name": "Oven_1", "chart": known::chart::EDGE_AGENT });
    let mut bench = Bench::with_cluster();
    let comparison = kept(&mut bench, Some(entries(EdgeDeployment::slug(), deployment.clone())), None);
    let [cluster, on_it] = adopted(&bench, &comparison);
    assert!(cluster.is_empty(), "ConfigDB knows the cluster");
    assert_eq!((on_it.len(), on_it[0].object), (1, AT_EDGE));
    assert_eq!(on_it[0].entries.get(EdgeDeployment::slug()), Some(&Some(deployment)));
    assert!(on_it[0].registration.is_some(), "the object does not exist any more");
}

#[test]
fn a_deployment_that_differs_gets_the_entries_of_the_edge_and_keeps_its_object() {
    let mut bench = Bench::with_cluster();
    bench.deployment(AT_EDGE, "Oven_1", Some("paint-1"));
    let other = serde_json::json!({ "cluster": CLUSTER, "name": "Oven_1", "hostname": "paint-9" });
    let comparison = kept(&mut bench, Some(entries(EdgeDeployment::slug(), other.clone())), None);
    assert_eq!((names(&comparison.different).as_str(), comparison.only_at_edge.len()), ("Oven_1", 0));
    assert!(!comparison.has_all_of_edge(), "an older value of it is not what was written back");
    let [_, on_it] = adopted(&bench, &comparison);
    assert_eq!(on_it[0].entries.get(EdgeDeployment::slug()), Some(&Some(other)));
    assert!(on_it[0].registration.is_none(), "it is there");
}

#[test]
fn a_cluster_that_configdb_lost_is_written_back_first_or_has_to_be_created() {
    let own = serde_json::json!({ "name": NAME, "namespace": "fplus-edge" });
    let mut bench = Bench::new();
    let comparison = kept(&mut bench, Some(Entries::default()), Some(entries(EdgeCluster::slug(), own.clone())));
    assert!(comparison.is_unknown && comparison.is_open());
    assert_eq!(obstacle(&bench.fleet, &comparison), None);
    let [cluster, _] = adopted(&bench, &comparison);
    assert_eq!((cluster.len(), cluster[0].object), (1, CLUSTER));
    assert_eq!(cluster[0].entries.get(EdgeCluster::slug()), Some(&Some(own)));
    let mut bench = Bench::new();
    let comparison = kept(&mut bench, Some(Entries::default()), None);
    let reason = obstacle(&bench.fleet, &comparison).unwrap();
    assert!(reason.ends_with(&format!("sparkfleet cluster create {NAME} --uuid {CLUSTER}")), "{reason}");
}

#[test]
fn what_the_cluster_itself_was_is_written_back_from_a_later_state_of_the_same_store_only() {
    let own = |join: bool| serde_json::json!({ "name": NAME, "namespace": "fplus-edge", "values": { "join": join } });
    let mut bench = Bench::with_cluster();
    bench.apply(&WriteRequest::put("x", CLUSTER).entry(EdgeCluster::slug(), own(false)));
    let mut node = SyncNode {
        cluster_uuid: CLUSTER,
        desired_held: Some(true),
        desired_hold_reason: Some("older".to_owned()),
        desired_origin: bench.fleet.config.origin(0),
        cluster_entries: Some(entries(EdgeCluster::slug(), own(true))),
        ..SyncNode::default()
    };
    bench.sync(NAME, &node, &[]);
    let comparison = compare(&bench.fleet, NAME).unwrap();
    assert_eq!(comparison.all_different(), "the cluster itself");
    assert!(!comparison.has_all_of_edge());
    let [cluster, _] = adopted(&bench, &comparison);
    assert_eq!(cluster[0].entries.get(EdgeCluster::slug()), Some(&Some(own(true))));
    assert!(cluster[0].registration.is_none(), "the object is there");
    bench.apply(&cluster[0]);
    assert!(compare(&bench.fleet, NAME).unwrap().has_all_of_edge());

    // What an edge keeps is as old as its last index. That of another store says nothing about which is newer.
    bench.apply(&WriteRequest::put("x", CLUSTER).entry(EdgeCluster::slug(), own(false)));
    let origin = node.desired_origin.unwrap();
    node.desired_origin = Some(sparkplug::replication::Origin { store: Uuid::from_u128(0x58), ..origin });
    bench.sync(NAME, &node, &[]);
    let comparison = compare(&bench.fleet, NAME).unwrap();
    assert!(comparison.is_open() && comparison.has_all_of_edge() && comparison.all_different().is_empty());
}

#[test]
fn a_cluster_that_configdb_tears_down_is_not_adopted_also_if_it_was_created_again() {
    let mut bench = held("Oven_1");
    let mut record = EdgeClusterSetup::default();
    let write = |record: &EdgeClusterSetup| WriteRequest::put("x".to_owned(), CLUSTER).document(record).unwrap();
    bench.apply(&write(&record));
    assert_eq!(obstacle(&bench.fleet, &compare(&bench.fleet, NAME).unwrap()), None);
    record.mark_deleting();
    bench.apply(&write(&record));
    let reason = obstacle(&bench.fleet, &compare(&bench.fleet, NAME).unwrap()).unwrap();
    assert!(reason.contains("tears it down") && reason.contains("recover discard Paint_Shop"), "{reason}");
}

#[test]
fn what_the_edge_keeps_no_entries_of_is_an_obstacle_that_is_named() {
    let mut bench = Bench::with_cluster();
    let comparison = kept(&mut bench, None, None);
    assert_eq!(names(&comparison.without_entries), "Oven_1");
    let reason = obstacle(&bench.fleet, &comparison).unwrap();
    assert_eq!(reason, "the edge keeps no entries of Oven_1; write them by hand first");
    let [cluster, on_it] = adopted(&bench, &comparison);
    assert!(cluster.is_empty() && on_it.is_empty(), "nothing is made up");
}

#[test]
fn how_a_cluster_stands_is_said_by_what_weighs_most() {
    let mut bench = Bench::with_cluster();
    bench.sync(NAME, &SyncNode { cluster_uuid: CLUSTER, ..SyncNode::default() }, &[]);
    let follows = compare(&bench.fleet, NAME).unwrap();
    assert_eq!((follows.described().as_str(), follows.is_open()), ("follows", false));
    let another = Comparison { follows_another: true, ..follows.clone() };
    assert_eq!((another.described().as_str(), another.is_open()), ("follows another store", true));
    let unknown = Comparison { is_unknown: true, ..another };
    assert_eq!(unknown.described(), "ConfigDB does not know this cluster");
    let held = Comparison { held: Some("older".to_owned()), ..unknown };
    assert_eq!(held.described(), "held: older");
}
