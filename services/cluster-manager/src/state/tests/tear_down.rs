//! The life of a cluster to its end, with the manager killed after each effect; tear-downs, and clusters that are created again.

use super::*;

#[test]
fn a_manager_that_starts_again_changes_nothing() {
    let mut world = running();
    let (db, disk, edges) = (world.db.objects.clone(), world.disk.clone(), world.edges.clone());
    let revision = world.db.revision;
    world.kills += 1;
    world.start();
    world.settle();
    assert_eq!((world.db.objects.clone(), world.disk.clone(), world.edges.clone()), (db, disk, edges));
    assert_eq!(world.db.revision, revision);
    assert_eq!(world.state(), SetupState::Ready);
}

/// Everything that can happen to a cluster, in a row.
pub(super) fn life(kill: Kill) -> World {
    let mut world = World::new(kill);
    world.put_cluster(CLUSTER, "Paint_Shop");
    world.put_deployment(DEPLOYMENT, "Robot_Cell_3");
    world.settle();
    world.bootstrap(CLUSTER, "Paint_Shop");
    world.settle();
    world.put(CLUSTER, "EdgeCluster", json!({"name": "Paint_Shop", "namespace": "other", "values": {"x": 1}}));
    world.put_deployment(Uuid::from_u128(0xD2), "Robot_Cell_4");
    world.settle();
    world.delete(DEPLOYMENT, "EdgeDeployment");
    world.settle();
    world
}

pub(super) fn death(kill: Kill) -> World {
    let mut world = running();
    world.kill = kill;
    world.effects = 0;
    world.delete(CLUSTER, "EdgeCluster");
    world.settle();
    world
}

fn assert_same_end(world: &World, reference: &World, kill: Kill) {
    assert_eq!(world.db.objects, reference.db.objects, "{kill:?}");
    assert_eq!(world.disk.repositories, reference.disk.repositories, "{kill:?}");
    assert_eq!(world.disk.open, reference.disk.open, "{kill:?}");
    assert_eq!(world.kdc, reference.kdc, "{kill:?}");
    let deployments = |world: &World| -> Vec<(Uuid, Option<Digest>, DeploymentState)> {
        let edges = world.edges.values().flat_map(|edge| &edge.deployments);
        edges.map(|(uuid, device)| (*uuid, device.digest, device.state)).collect()
    };
    assert_eq!(deployments(world), deployments(reference), "{kill:?}");
    let states = |world: &World| -> Vec<(Uuid, SetupState, bool)> {
        let devices = world.devices.iter();
        devices.map(|(uuid, device)| (*uuid, device.setup.state, device.desired.agreed)).collect()
    };
    assert_eq!(states(world), states(reference), "{kill:?}");
    // The edge runs on after the tear-down, and a manager that has received its birth since then has it among the unknown ones.
    let node = |world: &World| NodeMetrics { clusters_unknown: BTreeMap::new(), ..world.node.clone() };
    assert_eq!(node(world), node(reference), "{kill:?}");
}

#[test]
fn a_life_ends_the_same_wherever_the_manager_is_killed() {
    let reference = life(Kill::Never);
    assert!(reference.effects > 30, "{}", reference.effects);
    for kill in (1..=reference.effects).map(Kill::After).chain([Kill::AfterEach]) {
        let world = life(kill);
        assert_same_end(&world, &reference, kill);
        assert!(world.kills > 0);
    }
}

#[test]
fn a_tear_down_ends_the_same_wherever_the_manager_is_killed() {
    let reference = death(Kill::Never);
    assert!(reference.devices.is_empty());
    for kill in (1..=reference.effects).map(Kill::After).chain([Kill::AfterEach]) {
        assert_same_end(&death(kill), &reference, kill);
    }
}

#[test]
fn a_tear_down_removes_everything_but_the_storage_and_the_history() {
    let world = death(Kill::Never);
    let cluster = &world.db.objects[&CLUSTER];
    assert!(cluster.entries.is_empty(), "{:?}", cluster.entries);
    assert!(!cluster.member_of.contains(&known::class::REPO_GROUP_CLUSTER));
    assert!(!world.db.objects.contains_key(&World::account("flux")));
    assert!(!world.db.objects.contains_key(&World::account("krbkeys")));
    assert!(world.disk.open.is_empty() && world.disk.repositories.contains_key(&CLUSTER));
    assert!(world.edges["Paint_Shop"].deployments.is_empty());
    assert!(world.db.json(DEPLOYMENT, "EdgeDeployment").is_some(), "deployments stay configured");
    assert_eq!(
        world.expected.iter().collect::<Vec<_>>(),
        ["ACME-Central/ConfigDB", "ACME-Central/Git", "ACME-Central/Identity"]
    );
    let [git_url, git_key, bootstrap_script] = ["http://git", "KEY", "shipped"].map(str::to_owned);
    let nothing = NodeMetrics {
        git_url,
        git_key,
        bootstrap_script,
        deployments_values: "{}".to_owned(),
        version: "0".to_owned(),
        ..NodeMetrics::default()
    };
    assert_eq!(world.node, nothing);
}

#[test]
fn a_tear_down_waits_for_an_edge_that_is_there_and_not_for_one_that_is_away() {
    let mut world = running();
    world.edges.get_mut("Paint_Shop").unwrap().deaf = true;
    world.delete(CLUSTER, "EdgeCluster");
    world.run(Duration::from_secs(300));
    assert_eq!(world.state(), SetupState::Deleting);
    assert_eq!(world.device().setup.reason.as_deref(), Some("waiting for the edge to remove 1 deployments"));
    assert!(world.db.objects.contains_key(&World::account("flux")));
    let node = world.edges["Paint_Shop"].address();
    world.feed(vec![HostEvent::NodeDeath { node, timestamp: 0 }]);
    world.run(Duration::from_secs(29));
    assert_eq!(world.state(), SetupState::Deleting);
    world.settle();
    assert!(world.devices.is_empty());
}

#[test]
fn an_edge_that_died_unheard_is_given_up_and_a_tear_down_does_not_wait_for_it_for_ever() {
    let mut world = running();
    assert!(world.device().sync_alive);
    // Its death falls into an outage of the own session: afterwards it is neither born nor dead.
    let node = world.edges["Paint_Shop"].address();
    world.edges.get_mut("Paint_Shop").unwrap().deaf = true;
    let reason = "x".to_owned();
    world.feed(vec![HostEvent::NodeStale { node: node.clone(), reason: reason.clone() }]);
    world.run(Duration::from_secs(300));
    assert!(world.device().sync_alive, "it was not asked");
    world.feed(vec![HostEvent::RebirthRequested { node: node.clone(), reason: reason.clone() }]);
    world.run(Duration::from_secs(20));
    world.feed(vec![HostEvent::RebirthRequested { node, reason }]);
    world.run(Duration::from_secs(9));
    assert!(world.device().sync_alive, "it may still answer");
    world.run(Duration::from_secs(2));
    assert!(!world.device().sync_alive);
    world.delete(CLUSTER, "EdgeCluster");
    world.settle();
    assert!(world.devices.is_empty());
}

#[test]
fn a_tear_down_waits_until_an_edge_that_runs_something_was_asked_in_a_session() {
    let mut world = running();
    let (node, reason) = (world.edges["Paint_Shop"].address(), "x".to_owned());
    world.edges.get_mut("Paint_Shop").unwrap().deaf = true;
    world.delete(CLUSTER, "EdgeCluster");
    // Each session ends before the edge is asked again, because it was asked not long ago.
    for _ in 0..4 {
        world.feed(vec![
            HostEvent::RebirthRequested { node: node.clone(), reason: reason.clone() },
            HostEvent::NodeStale { node: node.clone(), reason: reason.clone() },
            HostEvent::Offline { reason: reason.clone() },
            HostEvent::Online,
        ]);
        let births = world.db.birth();
        world.feed(births);
        world.run(Duration::from_secs(60));
        assert_eq!(world.state(), SetupState::Deleting, "it may run its deployments");
    }
    world.feed(vec![HostEvent::RebirthRequested { node, reason }]);
    world.run(Duration::from_secs(31));
    assert!(world.devices.is_empty());
}

#[test]
fn a_cluster_created_again_too_early_waits_for_the_end_of_its_tear_down() {
    let mut world = running();
    world.edges.get_mut("Paint_Shop").unwrap().deaf = true;
    world.delete(CLUSTER, "EdgeCluster");
    world.settle();
    world.put(CLUSTER, "EdgeCluster", json!({"name": "Paint_Shop_2", "namespace": "fplus-edge"}));
    world.settle();
    assert_eq!(world.state(), SetupState::Waiting);
    assert_eq!(world.device().name, "Paint_Shop");
    world.edges.get_mut("Paint_Shop").unwrap().deaf = false;
    world.run(Duration::from_secs(120));
    assert_eq!((world.state(), world.device().name.as_str()), (SetupState::Ready, "Paint_Shop_2"));
    assert!(world.edges["Paint_Shop"].deployments.is_empty());
    assert_eq!(world.disk.open[&CLUSTER], "cluster/Paint_Shop_2");
}

#[test]
fn a_cluster_that_is_created_again_finds_its_edge_again() {
    let mut world = running();
    world.delete(CLUSTER, "EdgeCluster");
    world.settle();
    assert!(world.devices.is_empty() && world.edges["Paint_Shop"].deployments.is_empty());
    let version = world.edges["Paint_Shop"].node.desired_version;
    world.put_cluster(CLUSTER, "Paint_Shop");
    world.settle();
    assert_eq!(world.state(), SetupState::Ready);
    assert!(world.device().sync_alive && world.device().desired.agreed);
    let edge = &world.edges["Paint_Shop"];
    assert_eq!(edge.deployments[&DEPLOYMENT].state, DeploymentState::Applied);
    assert!(edge.node.desired_version > version);
}

#[test]
fn a_deleted_object_is_torn_down_also_when_no_manager_saw_it_go() {
    for seen in [true, false] {
        let mut world = running();
        let request = WriteRequest::put("", CLUSTER).delete_object();
        let events = world.db.write(&request);
        if seen {
            world.feed(events);
        } else {
            world.kills += 1;
            world.start();
        }
        world.settle();
        assert!(world.devices.is_empty(), "seen: {seen}");
        assert!(world.disk.open.is_empty());
        assert!(!world.db.objects.contains_key(&World::account("flux")));
        assert!(!world.db.objects.contains_key(&CLUSTER));
        assert!(world.edges["Paint_Shop"].deployments.is_empty());
    }
}
