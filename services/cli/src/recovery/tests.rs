//! What an operator is told before anything is written.

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
    let told = obstacle(&bench.fleet, &comparison).unwrap();
    assert!(told.ends_with("delete that one first: sparkfleet deployment delete Paint_Shop/Oven_1"), "{told}");
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
