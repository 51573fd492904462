//! Deployments on their way to the edge: refused, moved, renamed, removed.

use super::*;

#[test]
fn a_deployment_reaches_the_edge_and_what_the_edge_reports_reaches_the_status() {
    let world = running();
    let edge = &world.edges["Paint_Shop"];
    assert_eq!(edge.deployments[&DEPLOYMENT].state, DeploymentState::Applied);
    assert_eq!(edge.commands, 2, "one index, one set of manifests");
    assert!(world.device().desired.agreed && world.device().sync_alive);
    let status = world.db.json(CLUSTER, "EdgeClusterStatus").unwrap();
    let hosts: Vec<_> = status["hosts"].as_array().unwrap().iter().map(|host| host["hostname"].clone()).collect();
    assert_eq!(hosts, ["a", "b"]);
    assert_eq!((world.node.deployments_total, world.node.deployments_refused), (1, 0));
}

#[test]
fn a_deployment_whose_template_is_gone_keeps_running_and_is_reported() {
    for restart in [false, true] {
        let mut world = running();
        let digest = world.edges["Paint_Shop"].deployments[&DEPLOYMENT].digest;
        world.delete(known::chart::EDGE_AGENT, "HelmChartTemplate");
        if restart {
            world.start();
        }
        world.settle();
        let edge = &world.edges["Paint_Shop"];
        assert_eq!((edge.deployments[&DEPLOYMENT].digest, edge.commands), (digest, 2));
        assert!(world.device().desired.agreed);
        let reason = &world.device().deployments_refused.0[&DEPLOYMENT];
        assert!(reason.contains("has no HelmChartTemplate entry"), "{reason}");
        assert_eq!(world.node.deployments_refused, 1);
    }
}

#[test]
fn a_malformed_deployment_keeps_running_and_a_deleted_one_goes() {
    for malformed in [json!({"cluster": CLUSTER, "name": 7}), json!("nonsense")] {
        for restart in [false, true] {
            let mut world = running();
            world.put(DEPLOYMENT, "EdgeDeployment", malformed.clone());
            if restart {
                world.start();
            }
            world.settle();
            assert!(world.edges["Paint_Shop"].deployments.contains_key(&DEPLOYMENT), "{malformed} {restart}");
            assert!(world.device().deployments_refused.0.contains_key(&DEPLOYMENT));
            world.delete(DEPLOYMENT, "EdgeDeployment");
            world.settle();
            assert!(world.edges["Paint_Shop"].deployments.is_empty());
            assert!(world.device().deployments_refused.0.is_empty());
        }
    }
}

#[test]
fn a_refusal_at_the_edge_is_reported_and_retried_when_asked() {
    let mut world = running();
    world.edges.get_mut("Paint_Shop").unwrap().refuses = true;
    world.put(
        DEPLOYMENT,
        "EdgeDeployment",
        json!({"cluster": CLUSTER, "name": "Robot_Cell_3", "chart": known::chart::EDGE_AGENT, "hostname": "gw"}),
    );
    world.run(Duration::from_secs(300));
    let edge = world.edges.get_mut("Paint_Shop").unwrap();
    assert_eq!(edge.commands, 4, "an index and manifests, once each");
    assert_eq!(edge.deployments[&DEPLOYMENT].state, DeploymentState::Refused);
    edge.refuses = false;
    assert_eq!(world.device().deployments_refused.0[&DEPLOYMENT], "refused by the edge: not here");
    let command = NodeEvent::Command {
        device: Some(names::device(CLUSTER, "Paint_Shop")),
        metrics: names::retry_command(),
        timestamp: None,
    };
    world.manager.on_event(Event::Node(command), world.now);
    world.settle();
    assert_eq!(world.edges["Paint_Shop"].deployments[&DEPLOYMENT].state, DeploymentState::Applied);
    let device = &world.edges["Paint_Shop"].deployments[&DEPLOYMENT];
    assert!(device.version > 0);
}

#[test]
fn a_sync_of_another_cluster_is_sent_nothing() {
    let mut world = World::new(Kill::Never);
    world.put_cluster(CLUSTER, "A");
    world.put_deployment(DEPLOYMENT, "D");
    world.settle();
    world.bootstrap(OTHER, "A");
    world.settle();
    assert_eq!(world.edges["A"].commands, 0);
    assert!(!world.device().sync_alive);
    assert!(world.device().setup.reason.as_ref().unwrap().contains("says that it is of cluster"));
    assert_eq!(world.db.json(CLUSTER, "EdgeClusterStatus"), None);
}

#[test]
fn a_deployment_that_moves_to_another_cluster_leaves_the_first() {
    let mut world = running();
    world.put_cluster(OTHER, "Welding");
    world.settle();
    world.bootstrap(OTHER, "Welding");
    world.put(
        DEPLOYMENT,
        "EdgeDeployment",
        json!({"cluster": OTHER, "name": "Robot_Cell_3", "chart": known::chart::EDGE_AGENT}),
    );
    world.settle();
    assert!(world.edges["Paint_Shop"].deployments.is_empty());
    assert_eq!(world.edges["Welding"].deployments[&DEPLOYMENT].state, DeploymentState::Applied);
    assert_eq!(world.node.deployments_total, 1);
}

#[test]
fn a_name_stays_with_the_deployment_that_runs_at_the_edge_also_against_an_older_one_and_after_a_restart() {
    let mut world = running();
    let older = Uuid::from_u128(1);
    let entry = json!({"cluster": CLUSTER, "name": "Robot_Cell_3", "chart": known::chart::EDGE_AGENT, "createdAt": "1999-01-01"});
    world.put(older, "EdgeDeployment", entry);
    world.settle();
    world.start();
    world.settle();
    assert_eq!(world.edges["Paint_Shop"].deployments.keys().collect::<Vec<_>>(), [&DEPLOYMENT]);
    assert!(world.device().deployments_refused.0[&older].contains("is taken by deployment"));
}

#[test]
fn of_two_deployments_with_one_name_the_older_keeps_it() {
    let mut world = running();
    let second = Uuid::from_u128(1);
    world.put(second, "EdgeDeployment", json!({"cluster": CLUSTER, "name": "Robot_Cell_3", "chart": known::chart::EDGE_AGENT, "createdAt": "2026-02-02"}));
    world.settle();
    assert_eq!(world.edges["Paint_Shop"].deployments.keys().collect::<Vec<_>>(), [&DEPLOYMENT]);
    assert!(world.device().deployments_refused.0[&second].contains("is taken by deployment"));
    world.delete(DEPLOYMENT, "EdgeDeployment");
    world.settle();
    assert_eq!(world.edges["Paint_Shop"].deployments.keys().collect::<Vec<_>>(), [&second]);
}

#[test]
fn an_agent_configuration_travels_with_its_deployment_and_a_change_of_it_is_sent() {
    let mut world = running();
    let before = world.edges["Paint_Shop"].deployments[&DEPLOYMENT].digest;
    world.put(DEPLOYMENT, "AgentConfig", json!({"deviceConnections": []}));
    world.settle();
    let with = world.edges["Paint_Shop"].deployments[&DEPLOYMENT].digest;
    assert_ne!(with, before);
    world.delete(DEPLOYMENT, "AgentConfig");
    world.settle();
    assert_eq!(world.edges["Paint_Shop"].deployments[&DEPLOYMENT].digest, before);
}

#[test]
fn a_burst_of_deployments_is_a_few_indexes() {
    let mut world = running();
    for n in 0..200_u128 {
        world.put_deployment(Uuid::from_u128(0x1_0000 + n), &format!("D{n}"));
    }
    world.settle();
    let edge = &world.edges["Paint_Shop"];
    assert_eq!(edge.deployments.values().filter(|device| device.state == DeploymentState::Applied).count(), 201);
    assert!(edge.commands < 2 + 200 + 10, "{}", edge.commands);
    assert!(world.device().desired.agreed);
}
