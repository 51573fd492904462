//! A ConfigDB that was restored from a backup, or replaced: the edge holds, it shows, and only an operator's decision ends it.

use super::*;

pub(super) const OTHER_STORE: Uuid = Uuid::from_u128(0x58);
const SECOND: Uuid = Uuid::from_u128(0xD2);

impl World {
    /// ConfigDB is started again on this content.
    fn restart_db(&mut self, db: ConfigDb, timeline: u64) {
        self.db = db;
        self.db.timelines.begin(timeline, self.db.revision);
        let births = self.db.birth();
        self.feed(births);
        self.run(Duration::from_secs(300));
    }

    fn decide(&mut self, epoch: u64) {
        let store = self.db.store;
        self.put(CLUSTER, "EdgeClusterRecovery", json!({"store": store, "epoch": epoch, "decision": "discard"}));
        self.settle();
    }

    fn at_edge(&self) -> Vec<Uuid> {
        self.edges["Paint_Shop"].deployments.keys().copied().collect()
    }

    fn held(&self) -> &str {
        self.device().desired.held.as_deref().unwrap_or("nothing")
    }
}

/// As [`running`], with an edge that judges.
fn judging() -> World {
    let mut world = running();
    let edge = world.edges.get_mut("Paint_Shop").unwrap();
    edge.judge = Some(sparkplug::replication::DesiredReceiver::default());
    edge.node.desired_held = Some(false);
    let events = edge.birth();
    world.feed(events);
    world.settle();
    assert!(world.device().desired.agreed, "the first store that is received is followed");
    assert!(world.edges["Paint_Shop"].node.desired_origin.is_some_and(|origin| origin.store == STORE));
    world
}

#[test]
fn a_store_from_a_backup_deletes_nothing_however_far_it_comes_until_an_operator_decides() {
    let mut world = judging();
    let backup = world.db.clone();
    world.put_deployment(SECOND, "Robot_Cell_4");
    world.settle();
    assert_eq!(world.at_edge(), [DEPLOYMENT, SECOND]);
    world.restart_db(backup, 2);
    assert_eq!(world.at_edge(), [DEPLOYMENT, SECOND]);
    assert!(world.held().starts_with("the control plane is older than this cluster by"), "{}", world.held());
    assert_eq!((world.node.clusters_held, world.device().desired.agreed), (1, false));
    // Its revisions come to be greater than what the edge has seen.
    for n in 0..40_u32 {
        world.put(known::chart::EDGE_AGENT, "Info", json!({"name": n.to_string()}));
    }
    world.put_deployment(Uuid::from_u128(0xD3), "Robot_Cell_5");
    world.run(Duration::from_secs(300));
    assert_eq!(world.at_edge(), [DEPLOYMENT, SECOND], "nothing is deleted, and nothing added");
    let commands = world.edges["Paint_Shop"].commands;
    world.run(Duration::from_secs(600));
    assert!(world.edges["Paint_Shop"].commands - commands <= 20, "what is held is not sent in a hot loop");
    world.decide(1);
    assert_eq!(world.at_edge(), [DEPLOYMENT, Uuid::from_u128(0xD3)]);
    assert_eq!((world.held(), world.node.clusters_held), ("nothing", 0));
    assert!(world.device().desired.agreed && world.device().desired.held_since.is_none());
}

/// Flux follows a repository by itself, so what an older store wants must not be in it either.
#[test]
fn a_repository_keeps_what_it_holds_while_the_store_is_older_and_follows_what_an_operator_decides() {
    let mut world = judging();
    let backup = world.db.clone();
    let before = world.disk.repositories[&CLUSTER].clone();
    let values = json!({"name": "Paint_Shop", "namespace": "fplus-edge", "values": {"join": {"enabled": true}}});
    world.put(CLUSTER, "EdgeCluster", values);
    world.settle();
    let (newest, held) = (world.db.clone(), world.disk.repositories[&CLUSTER].clone());
    assert_ne!(held, before);
    world.restart_db(backup.clone(), 2);
    assert_eq!(world.disk.repositories[&CLUSTER], held);
    assert_eq!(world.state(), SetupState::Ready);
    // The edge was sent nothing since the backup, so it holds nothing itself.
    assert_eq!(world.edges["Paint_Shop"].node.desired_held, Some(false));
    assert!(world.held().starts_with("the repository keeps what it holds: the control plane"), "{}", world.held());
    assert_eq!(world.node.clusters_held, 1);
    // Nothing is received from the edge, so only the disk says of which state the repository is.
    let edges = std::mem::take(&mut world.edges);
    world.start();
    world.put(known::chart::EDGE_AGENT, "Info", json!({"name": "x"}));
    world.run(Duration::from_secs(600));
    assert_eq!(world.disk.repositories[&CLUSTER], held);
    // The later store comes back: nothing is held, and nothing was lost.
    world.edges = edges;
    world.start();
    world.restart_db(newest, 3);
    assert_eq!(world.disk.repositories[&CLUSTER], held);
    world.restart_db(backup, 4);
    assert_eq!(world.disk.repositories[&CLUSTER], held);
    world.decide(1);
    assert_eq!(world.disk.repositories[&CLUSTER], before, "an operator has decided");
    assert_eq!((world.held(), world.node.clusters_held), ("nothing", 0));
    assert_eq!(world.state(), SetupState::Ready);
}

/// ConfigDB remembers 1,000 sessions in which it wrote.
#[test]
fn a_cluster_that_is_sent_nothing_for_very_long_is_not_held_by_that() {
    let mut world = judging();
    let chart = known::chart::EDGE_AGENT;
    let accepted = |world: &World| world.edges["Paint_Shop"].node.desired_origin.unwrap().point.timeline;
    assert_eq!(accepted(&world), 1);
    for timeline in 2..1_900 {
        world.db.timelines.begin(timeline, world.db.revision);
        let _ = world.db.put(chart, "Info", json!({"name": timeline.to_string()}));
        if timeline % 200 == 0 {
            let births = world.db.birth();
            world.feed(births);
            world.settle();
        }
    }
    assert!(accepted(&world) > 1_000, "{}", accepted(&world));
    assert_eq!(world.edges["Paint_Shop"].removals, 0);
    let births = world.db.birth();
    world.feed(births);
    world.put_deployment(SECOND, "Robot_Cell_4");
    let before = world.disk.repositories[&CLUSTER].clone();
    let values = json!({"name": "Paint_Shop", "namespace": "fplus-edge", "values": {"join": {"enabled": true}}});
    world.put(CLUSTER, "EdgeCluster", values);
    world.settle();
    assert_eq!((world.at_edge().len(), world.held()), (2, "nothing"));
    assert_ne!(world.disk.repositories[&CLUSTER], before);
}

/// A decision that the edge does not take, because it was made for another state of it.
#[test]
fn a_repository_keeps_what_it_holds_while_its_edge_holds_although_the_store_contains_its_state() {
    let mut world = judging();
    let edge = world.edges.get_mut("Paint_Shop").unwrap();
    edge.node.desired_held = Some(true);
    edge.judge = None;
    let events = edge.birth();
    world.feed(events);
    let held = world.disk.repositories[&CLUSTER].clone();
    let values = json!({"name": "Paint_Shop", "namespace": "fplus-edge", "values": {"join": {"enabled": true}}});
    world.put(CLUSTER, "EdgeCluster", values);
    world.run(Duration::from_secs(300));
    assert_eq!(world.disk.repositories[&CLUSTER], held);
    let edge = world.edges.get_mut("Paint_Shop").unwrap();
    edge.node.desired_held = Some(false);
    let events = edge.birth();
    world.feed(events);
    world.run(Duration::from_secs(300));
    assert_ne!(world.disk.repositories[&CLUSTER], held);
}

#[test]
fn repositories_that_an_older_store_does_not_have_stay_open_and_are_closed_when_they_are_deleted() {
    const SHARED: Uuid = Uuid::from_u128(0x5A);
    for is_restarted in [false, true] {
        // No edge is there that could say what it holds.
        let mut world = World::new(Kill::Never);
        world.settle();
        let backup = world.db.clone();
        world.put_cluster(CLUSTER, "Paint_Shop");
        world.put_repository(SHARED, json!({"path": "shared/charts"}));
        world.settle();
        let newest = world.db.clone();
        let open = (world.disk.open.clone(), world.shared.open.clone());
        assert!(open.0.contains_key(&CLUSTER) && open.1.contains_key(&SHARED));
        world.restart_db(backup, 2);
        if is_restarted {
            world.start();
            world.run(Duration::from_secs(600));
        }
        assert_eq!((&world.disk.open, &world.shared.open), (&open.0, &open.1), "{is_restarted}");
        world.restart_db(newest, 3);
        let events = world.db.write(&WriteRequest::put("", SHARED).delete_object());
        world.feed(events);
        world.delete(CLUSTER, "EdgeCluster");
        world.run(Duration::from_secs(600));
        assert!(world.disk.open.is_empty() && world.shared.open.is_empty(), "what is asked for is done");
    }
}

#[test]
fn a_restart_of_the_same_store_continues_and_the_later_store_coming_back_ends_the_hold() {
    let mut world = judging();
    let backup = world.db.clone();
    world.put_deployment(SECOND, "Robot_Cell_4");
    world.settle();
    let (later, after) = (world.db.clone(), world.db.clone());
    world.restart_db(later, 2);
    world.put_deployment(Uuid::from_u128(0xD3), "Robot_Cell_5");
    world.settle();
    assert_eq!((world.at_edge().len(), world.held()), (3, "nothing"));
    let newest = world.db.clone();
    world.restart_db(after, 3);
    assert_eq!((world.at_edge().len(), world.node.clusters_held), (3, 1), "a copy of the same store, stopped earlier");
    world.restart_db(backup, 4);
    assert_eq!((world.at_edge().len(), world.node.clusters_held), (3, 1));
    world.restart_db(newest, 5);
    assert_eq!((world.at_edge().len(), world.held()), (3, "nothing"));
    world.delete(SECOND, "EdgeDeployment");
    world.settle();
    assert_eq!(world.at_edge().len(), 2, "what is asked for is done");
}

#[test]
fn another_store_with_the_same_cluster_deletes_nothing_and_a_decision_for_one_cluster_is_for_that_one() {
    let mut world = judging();
    let first = world.db.clone();
    let mut empty = ConfigDb { store: OTHER_STORE, ..ConfigDb::new() };
    empty.put(CLUSTER, "EdgeCluster", json!({"name": "Paint_Shop", "namespace": "fplus-edge"}));
    world.restart_db(empty, 7);
    world.settle();
    assert_eq!(world.at_edge(), [DEPLOYMENT]);
    assert!(world.held().contains("another store"), "{}", world.held());
    // A decision that was made for another store, as a loaded dump brings it.
    world.put(CLUSTER, "EdgeClusterRecovery", json!({"store": STORE, "epoch": 5, "decision": "discard"}));
    world.settle();
    assert_eq!(world.at_edge(), [DEPLOYMENT]);
    world.decide(1);
    assert_eq!((world.at_edge().len(), world.held()), (0, "nothing"));
    // What was decided against comes back.
    world.restart_db(first, 8);
    assert_eq!(world.at_edge().len(), 0);
    assert!(world.held().contains("epoch"), "{}", world.held());
}

#[test]
fn a_cluster_that_is_missing_from_an_older_store_is_not_torn_down_after_it_was_adopted() {
    let mut world = judging();
    world.restart_db(ConfigDb::new(), 2);
    assert_eq!(world.at_edge(), [DEPLOYMENT], "the edge holds");
    world.put_cluster(CLUSTER, "Paint_Shop");
    world.put_deployment(DEPLOYMENT, "Robot_Cell_3");
    world.settle();
    assert_eq!(world.at_edge(), [DEPLOYMENT]);
    world.decide(1);
    world.settle();
    assert_eq!((world.at_edge(), world.state()), (vec![DEPLOYMENT], SetupState::Ready));
    assert_eq!(world.edges["Paint_Shop"].removals, 0, "not even for a moment");
    assert!(world.device().desired.agreed);
}

#[test]
fn a_name_belongs_to_what_runs_and_not_to_what_an_edge_that_holds_was_sent() {
    const RIVAL: Uuid = Uuid::from_u128(1);
    let mut world = judging();
    let name = world.edges["Paint_Shop"].deployments[&DEPLOYMENT].name.clone();
    let mut older = ConfigDb::new();
    older.put(CLUSTER, "EdgeCluster", json!({"name": "Paint_Shop", "namespace": "fplus-edge"}));
    world.restart_db(older, 2);
    // The name is free in the older store.
    world.put_deployment(RIVAL, &name);
    world.settle();
    assert_eq!(world.at_edge(), [DEPLOYMENT], "the edge holds");
    world.put_deployment(DEPLOYMENT, &name);
    world.settle();
    world.decide(1);
    // The edge reports a Device for what it is listed, also without manifests: names are compared again with that.
    for restart in [false, true] {
        if restart {
            world.start();
        }
        world.settle();
        let edge = &world.edges["Paint_Shop"];
        assert_eq!(edge.deployments[&DEPLOYMENT].state, DeploymentState::Applied);
        let rival = edge.deployments.get(&RIVAL).map_or(0, |device| device.version);
        assert_eq!(rival, 0, "two of one name would run at once");
        assert!(world.device().deployments_refused.0[&RIVAL].contains("is taken by deployment"), "{restart}");
    }
}

#[test]
fn a_sync_that_dies_while_its_cluster_is_unknown_is_not_alive_when_the_cluster_is_known_again() {
    let mut world = judging();
    let first = world.db.clone();
    world.restart_db(ConfigDb { store: OTHER_STORE, ..ConfigDb::new() }, 7);
    assert!(world.devices.is_empty() && world.forgotten.contains("ACME-Paint_Shop/Sync"));
    // A host asks a node that it has forgotten for its birth when that says something, which each does within half a minute.
    let birth = world.edges.get_mut("Paint_Shop").unwrap().birth();
    world.feed(birth.clone());
    world.settle();
    assert_eq!(world.node.clusters_unknown, [("Paint_Shop".to_owned(), CLUSTER)].into(), "it can be adopted");
    let back = first.clone();
    world.restart_db(back, 8);
    world.settle();
    assert!(world.node.clusters_unknown.is_empty(), "{:?}", world.node);
    assert!(world.device().sync_alive, "{:?}", world.device());
    world.restart_db(ConfigDb { store: OTHER_STORE, ..ConfigDb::new() }, 9);
    // A manager that has forgotten it does not receive its death.
    world.edges.clear();
    world.restart_db(first, 10);
    assert!(!world.device().sync_alive, "{:?}", world.device());
}

#[test]
fn what_a_second_configdb_sends_between_the_births_of_the_first_one_is_not_sent_to_an_edge() {
    let mut world = judging();
    let second = world.db.clone();
    world.put_deployment(DEPLOYMENT, "Robot_Cell_9");
    world.settle();
    let before = world.edges["Paint_Shop"].clone();
    let (births, others) = (world.db.birth(), second.birth());
    world.feed(births[..1].to_vec());
    assert!(world.manager.fleet.config().is_complete(), "nothing happened in between");
    world.feed(others[1..].to_vec());
    assert!(!world.manager.fleet.config().is_one_state(), "who sent what is not known");
    world.follow_sources(CLUSTER, "Paint_Shop");
    world.run(Duration::from_secs(300));
    assert!(world.manager.fleet.config().is_complete(), "its births were asked for");
    let edge = &world.edges["Paint_Shop"];
    assert!(edge.node.source_commit.is_some(), "commits are sent once the state is known that they are of");
    assert_eq!((&edge.deployments, &edge.index), (&before.deployments, &before.index));
}
