//! Waves: a changed chart template goes from cluster to cluster.

use super::*;

const CANARY: Uuid = Uuid::from_u128(0xCA);
const SECOND: Uuid = Uuid::from_u128(0x5E);

const NAMES: [(Uuid, &str); 3] = [(CANARY, "Canary"), (SECOND, "Second"), (CLUSTER, "Paint_Shop")];

/// The deployment of a cluster in these tests.
const fn deployment(cluster: Uuid) -> Uuid {
    Uuid::from_u128(cluster.as_u128() << 16)
}

fn chart(word: &str) -> Value {
    json!({"chart": "edge-agent", "values": {"name": "{{name}}", "uuid": "{{uuid}}", "hostname": "{{hostname}}", "word": word}})
}

fn agent(cluster: Uuid, hostname: &str) -> Value {
    let chart = known::chart::EDGE_AGENT;
    json!({"cluster": cluster, "name": "Agent", "chart": chart, "hostname": hostname, "createdAt": "2026-01-01"})
}

/// Three clusters in three waves that run an agent each.
fn fleet(kill: Kill) -> World {
    let mut world = World::new(kill);
    for (cluster, name) in NAMES {
        world.put_cluster(cluster, name);
        world.put(deployment(cluster), "EdgeDeployment", agent(cluster, "a"));
    }
    world.put(CANARY, "EdgeClusterRollout", json!({"wave": 1}));
    world.put(SECOND, "EdgeClusterRollout", json!({"wave": 2}));
    world.settle();
    for (cluster, name) in NAMES {
        world.bootstrap(cluster, name);
    }
    world.settle();
    assert_eq!(waiting(&world), [0, 0, 0]);
    assert_eq!(NAMES.map(|(cluster, _)| world.devices[&cluster].rollout.wave), [1, 2, 9]);
    world
}

fn waiting(world: &World) -> [u32; 3] {
    NAMES.map(|(cluster, _)| world.devices[&cluster].rollout.waiting)
}

/// Digests of what runs.
fn runs(world: &World) -> [Option<Digest>; 3] {
    NAMES.map(|(cluster, name)| world.edges[name].deployments[&deployment(cluster)].digest)
}

/// Which of the clusters run something else than before.
fn changed(world: &World, before: [Option<Digest>; 3]) -> [bool; 3] {
    let now = runs(world);
    [0, 1, 2].map(|cluster| now[cluster] != before[cluster])
}

fn ready(world: &mut World, name: &str, ready: bool) {
    let edge = world.edges.get_mut(name).unwrap();
    edge.unready = !ready;
    for device in edge.deployments.values_mut() {
        device.ready = Some(ready);
    }
    let births = edge.birth();
    world.feed(births);
}

/// A change reaches the first wave, and its cluster does not become ready.
fn stop_at_canary(world: &mut World) {
    world.edges.get_mut("Canary").unwrap().unready = true;
    world.put(known::chart::EDGE_AGENT, "HelmChartTemplate", chart("one"));
    world.settle();
}

#[test]
fn a_change_continues_when_the_earlier_wave_is_ready_and_stops_where_it_is_not() {
    let mut world = fleet(Kill::Never);
    let before = runs(&world);
    stop_at_canary(&mut world);
    assert_eq!((changed(&world, before), waiting(&world)), ([true, false, false], [0, 1, 1]));
    let report = &world.devices[&CLUSTER].rollout;
    assert_eq!(
        report.reason.as_deref(),
        Some("waits for cluster Canary of wave 1, whose deployments of the same chart are not ready")
    );
    assert!(world.device().deployments_refused.0.is_empty() && world.device().desired.agreed);
    // Neither time nor a restart of the manager lets a cluster overtake.
    world.run(Duration::from_secs(600));
    world.start();
    world.settle();
    assert_eq!((changed(&world, before), waiting(&world)), ([true, false, false], [0, 1, 1]));
    world.edges.get_mut("Second").unwrap().unready = true;
    ready(&mut world, "Canary", true);
    world.settle();
    assert_eq!((changed(&world, before), waiting(&world)), ([true, true, false], [0, 0, 1]));
    ready(&mut world, "Second", true);
    world.settle();
    assert_eq!((changed(&world, before), waiting(&world)), ([true, true, true], [0, 0, 0]));
}

#[test]
fn taking_a_bad_change_back_needs_only_the_clusters_that_have_it() {
    let mut world = fleet(Kill::Never);
    world.put(known::chart::EDGE_AGENT, "HelmChartTemplate", chart("good"));
    world.settle();
    let before = runs(&world);
    world.edges.get_mut("Canary").unwrap().refuses = true;
    world.put(known::chart::EDGE_AGENT, "HelmChartTemplate", chart("bad"));
    world.settle();
    assert_eq!((changed(&world, before), waiting(&world)), ([false; 3], [0, 1, 1]));
    world.edges.get_mut("Canary").unwrap().refuses = false;
    world.put(known::chart::EDGE_AGENT, "HelmChartTemplate", chart("good"));
    world.settle();
    assert_eq!((changed(&world, before), waiting(&world)), ([false; 3], [0, 0, 0]));
}

#[test]
fn an_offline_cluster_blocks_no_other_and_gets_the_change_when_it_is_back() {
    let mut world = fleet(Kill::Never);
    let before = runs(&world);
    let node = world.edges["Canary"].address();
    world.feed(vec![HostEvent::NodeDeath { node, timestamp: 0 }]);
    world.edges.get_mut("Canary").unwrap().deaf = true;
    world.put(known::chart::EDGE_AGENT, "HelmChartTemplate", chart("one"));
    world.run(Duration::from_millis(500));
    assert_eq!((changed(&world, before), waiting(&world)), ([false; 3], [0, 1, 1]), "it may be back at once");
    world.run(settings().away * 2);
    assert_eq!((changed(&world, before), waiting(&world)), ([false, true, true], [0, 0, 0]));
    let edge = world.edges.get_mut("Canary").unwrap();
    edge.deaf = false;
    let births = edge.birth();
    world.feed(births);
    world.settle();
    assert_eq!((changed(&world, before), waiting(&world)), ([true; 3], [0, 0, 0]));
}

#[test]
fn what_an_operator_wants_on_a_waiting_cluster_does_not_wait() {
    let mut world = fleet(Kill::Never);
    let before = runs(&world);
    stop_at_canary(&mut world);
    // Its own deployment is changed, and another is made.
    world.put(deployment(CLUSTER), "EdgeDeployment", agent(CLUSTER, "b"));
    world.put_deployment(DEPLOYMENT, "Robot_Cell_3");
    world.settle();
    assert_eq!((changed(&world, before), waiting(&world)), ([true, false, true], [0, 1, 0]));
    assert!(world.edges["Paint_Shop"].deployments[&DEPLOYMENT].digest.is_some());
}

#[test]
fn a_cluster_that_is_deleted_or_put_into_a_later_wave_blocks_no_other() {
    for act in [
        |world: &mut World| world.put(CANARY, "EdgeClusterRollout", json!({})),
        |world: &mut World| world.delete(CANARY, "EdgeClusterRollout"),
        |world: &mut World| {
            world.delete(deployment(CANARY), "EdgeDeployment");
            world.delete(CANARY, "EdgeCluster");
        },
    ] {
        let mut world = fleet(Kill::Never);
        let before = runs(&world);
        stop_at_canary(&mut world);
        assert_eq!(waiting(&world), [0, 1, 1]);
        act(&mut world);
        world.settle();
        let [_, second, last] = NAMES
            .map(|(cluster, name)| world.edges[name].deployments.get(&deployment(cluster)).map(|device| device.digest));
        assert_ne!((second, last), (Some(before[1]), Some(before[2])));
        assert_eq!(world.devices[&CLUSTER].rollout.waiting + world.devices[&SECOND].rollout.waiting, 0);
        // Nor does what is left of it in ConfigDB, in another instance of the manager.
        let before = world.edges["Paint_Shop"].deployments[&deployment(CLUSTER)].digest;
        world.start();
        world.put(known::chart::EDGE_AGENT, "HelmChartTemplate", chart("two"));
        world.settle();
        assert_ne!(world.edges["Paint_Shop"].deployments[&deployment(CLUSTER)].digest, before);
    }
}

#[test]
fn a_manager_that_is_killed_at_every_step_lets_no_cluster_overtake() {
    let mut world = fleet(Kill::Never);
    let before = runs(&world);
    world.edges.get_mut("Canary").unwrap().unready = true;
    world.kill = Kill::AfterEach;
    world.put(known::chart::EDGE_AGENT, "HelmChartTemplate", chart("one"));
    world.settle();
    assert_eq!((changed(&world, before), waiting(&world)), ([true, false, false], [0, 1, 1]));
    ready(&mut world, "Canary", true);
    world.settle();
    assert_eq!((changed(&world, before), waiting(&world)), ([true; 3], [0; 3]));
}

/// What an operator decided, in the entry of the chart template.
fn decision() -> Value {
    json!({"by": "console/token:ada", "at": "2026-11-25T08:00:00Z"})
}

#[test]
fn a_rollout_that_an_operator_holds_reaches_no_cluster_until_it_is_resumed() {
    let mut world = fleet(Kill::Never);
    let before = runs(&world);
    world.put(known::chart::EDGE_AGENT, "ChartRollout", json!({"hold": decision()}));
    world.put(known::chart::EDGE_AGENT, "HelmChartTemplate", chart("one"));
    world.settle();
    assert_eq!((changed(&world, before), waiting(&world)), ([false; 3], [1, 1, 1]));
    let reason = world.devices[&CANARY].rollout.reason.clone().unwrap();
    assert!(reason.ends_with(" is held by console/token:ada"), "{reason}");
    // Neither a restart nor a new process of the manager ends it, and what an operator wants on one cluster does not wait.
    world.start();
    world.put(deployment(CLUSTER), "EdgeDeployment", agent(CLUSTER, "b"));
    world.settle();
    assert_eq!((changed(&world, before), waiting(&world)), ([false, false, true], [1, 1, 0]));
    world.delete(known::chart::EDGE_AGENT, "ChartRollout");
    world.settle();
    assert_eq!((changed(&world, before), waiting(&world)), ([true; 3], [0; 3]));
}

#[test]
fn a_running_rollout_is_held_where_it_is() {
    let mut world = fleet(Kill::Never);
    let before = runs(&world);
    stop_at_canary(&mut world);
    world.put(known::chart::EDGE_AGENT, "ChartRollout", json!({"hold": decision()}));
    ready(&mut world, "Canary", true);
    world.settle();
    assert_eq!((changed(&world, before), waiting(&world)), ([true, false, false], [0, 1, 1]));
    world.put(known::chart::EDGE_AGENT, "ChartRollout", json!({}));
    world.settle();
    assert_eq!((changed(&world, before), waiting(&world)), ([true; 3], [0; 3]));
}

#[test]
fn a_blocked_rollout_is_freed_for_the_template_that_the_operator_has_seen() {
    let mut world = fleet(Kill::Never);
    let before = runs(&world);
    stop_at_canary(&mut world);
    assert_eq!((changed(&world, before), waiting(&world)), ([true, false, false], [0, 1, 1]));
    let free = |template| json!({"without": {"template": template, "clusters": {CANARY.to_string(): decision()}}});
    world.put(known::chart::EDGE_AGENT, "ChartRollout", free(Uuid::from_u128(1)));
    world.settle();
    assert_eq!(waiting(&world), [0, 1, 1], "the decision was made for another template");
    let template = world.db.objects[&known::chart::EDGE_AGENT].entries["HelmChartTemplate"].0.etag;
    world.put(known::chart::EDGE_AGENT, "ChartRollout", free(template));
    world.settle();
    assert_eq!((changed(&world, before), waiting(&world)), ([true; 3], [0; 3]));
    // The next change waits for the canary again.
    let before = runs(&world);
    world.put(known::chart::EDGE_AGENT, "HelmChartTemplate", chart("two"));
    world.settle();
    assert_eq!((changed(&world, before), waiting(&world)), ([true, false, false], [0, 1, 1]));
}
