//! What is reported and repeated, and neighbours that fail. The tests cover the status of a cluster, commands without an answer, a broken disk, and a ConfigDB that is unknown,
//! refuses or is another one.

use super::*;

#[test]
fn nothing_is_concluded_from_a_configdb_that_is_not_known_completely() {
    let mut world = running();
    let before = world.edges.clone();
    let mut births = world.db.birth();
    births.truncate(2);
    world.feed(births);
    world.settle();
    assert_eq!(world.edges, before);
    assert_eq!(world.state(), SetupState::Ready);
    // And a manager that has only seen a part of it does nothing at all.
    world.manager = ClusterManager::new(settings(), PersistedRepositories::default(), 5, world.now);
    let mut births = world.db.birth();
    births.pop();
    world.feed(births);
    let effects: Vec<Effect> = world.manager.poll_effects();
    let identity = identity_contract::names::node("ACME").unwrap();
    let git = git_server_contract::names::node("ACME").unwrap();
    let expected = [configdb_node(&organisation()), identity, git];
    assert_eq!(effects, expected.map(|node| Effect::Host(HostRequest::Expect { node })));
}

#[test]
fn the_status_stays_when_sync_goes_away() {
    let mut world = running();
    let status = world.db.json(CLUSTER, "EdgeClusterStatus");
    let node = world.edges["Paint_Shop"].address();
    world.feed(vec![HostEvent::NodeDeath { node, timestamp: 0 }]);
    world.settle();
    assert_eq!(world.db.json(CLUSTER, "EdgeClusterStatus"), status);
    assert!(!world.device().sync_alive && !world.device().desired.agreed);
    world.edges.get_mut("Paint_Shop").unwrap().hosts.pop();
    let events = world.edges.get_mut("Paint_Shop").unwrap().birth();
    world.feed(events);
    world.settle();
    let hosts = world.db.json(CLUSTER, "EdgeClusterStatus").unwrap()["hosts"].as_array().unwrap().len();
    assert_eq!(hosts, 1);
}

/// Its Devices are born at once after it. A cluster is evaluated when they are all there, or after a while without them.
#[test]
fn the_births_of_a_sync_are_one_message_and_births_that_do_not_come_are_not_waited_for_long() {
    let mut world = running();
    let node = world.edges["Paint_Shop"].address();
    for is_complete in [true, false] {
        world.feed(vec![HostEvent::NodeDeath { node: node.clone(), timestamp: 0 }]);
        world.settle();
        assert!(!world.device().sync_alive);
        let mut births = world.edges.get_mut("Paint_Shop").unwrap().birth();
        let last = births.pop().expect("a deployment");
        for birth in births {
            world.feed(vec![birth]);
            assert_eq!(world.manager.poll_effects(), []);
        }
        if is_complete {
            world.feed(vec![last]);
            world.run(Duration::ZERO);
            assert!(world.device().sync_alive && world.device().desired.agreed);
        } else {
            world.run(Duration::from_millis(900));
            assert!(!world.device().sync_alive);
            world.run(Duration::from_millis(200));
            assert!(world.device().sync_alive && !world.device().desired.agreed);
        }
    }
}

/// The n-th of some certificates.
fn certificate(n: usize) -> String {
    rcgen::generate_simple_self_signed(vec![format!("sealing-{n}")]).unwrap().cert.pem()
}

#[test]
fn a_status_that_changes_all_the_time_is_written_now_and_then_and_the_last_one_at_last() {
    let mut world = running();
    let before = world.db.revision;
    let certificates: Vec<String> = (0..200).map(certificate).collect();
    for sealing in &certificates {
        let edge = world.edges.get_mut("Paint_Shop").unwrap();
        edge.node.sealing_certificate = Some(sealing.clone());
        let events = edge.birth();
        world.feed(events);
        world.run(Duration::ZERO);
    }
    let written = world.db.revision - before;
    assert!((1..=25).contains(&written), "{written} entries");
    world.run(Duration::from_secs(60));
    let status = world.db.json(CLUSTER, "EdgeClusterStatus").unwrap();
    assert_eq!(status["kubeseal_cert"], certificates[199].as_str());
}

#[test]
fn a_large_status_that_changes_all_the_time_does_not_displace_the_history_of_others() {
    const KIB: usize = 150;
    let mut world = running();
    let mut written = 0;
    // Half an hour, in which six a minute would be allowed by their number.
    for n in 0..30 {
        let edge = world.edges.get_mut("Paint_Shop").unwrap();
        edge.hosts = (0..400)
            .map(|host| HostDevice {
                hostname: format!("host-{host}"),
                operating_system: format!("{n} {}", "x".repeat(200)),
                ..HostDevice::default()
            })
            .collect();
        let events = edge.birth();
        let before = world.db.revision;
        world.feed(events);
        world.run(Duration::from_secs(60));
        written += usize::try_from(world.db.revision - before).unwrap();
    }
    let size = world.db.json(CLUSTER, "EdgeClusterStatus").unwrap().to_string().len() / 1024;
    assert!((KIB / 2..KIB * 2).contains(&size), "{size} KiB");
    assert!(written * size < 3 * 1024, "{written} entries of {size} KiB");
}

#[test]
fn unanswered_commands_are_repeated_with_growing_pauses() {
    let mut world = running();
    world.edges.get_mut("Paint_Shop").unwrap().deaf = true;
    world.put_deployment(Uuid::from_u128(0xD2), "Second");
    world.run(Duration::from_secs(60));
    let edge = world.edges.get_mut("Paint_Shop").unwrap();
    let sent = edge.commands - 2;
    assert!((5..=12).contains(&sent), "{sent}");
    edge.deaf = false;
    world.run(Duration::from_secs(120));
    assert!(world.device().desired.agreed);
    assert_eq!(world.edges["Paint_Shop"].deployments.len(), 2);
}

#[test]
fn a_repetition_that_falls_due_amid_other_changes_is_not_forgotten() {
    let mut world = running();
    world.edges.get_mut("Paint_Shop").unwrap().deaf = true;
    world.put_deployment(Uuid::from_u128(0xD2), "Second");
    world.run(Duration::from_millis(100));
    let repetition = world.manager.next_deadline().unwrap();
    // A change shortly before it: the comparison at the moment of the repetition is put off.
    for before in [20, 10] {
        world.run(repetition - Duration::from_millis(before) - world.now.mono);
        let edge = world.edges.get_mut("Paint_Shop").unwrap();
        let metrics = edge.node_metrics();
        let event = HostEvent::NodeData { node: edge.address(), timestamp: 0, metrics };
        world.feed(vec![event]);
    }
    world.edges.get_mut("Paint_Shop").unwrap().deaf = false;
    world.run(Duration::from_secs(120));
    assert!(world.device().desired.agreed);
    assert_eq!(world.edges["Paint_Shop"].deployments.len(), 2);
}

#[test]
fn a_broken_disk_is_reported_and_tried_again() {
    let mut world = World::new(Kill::Never);
    world.disk.broken = true;
    world.put_cluster(CLUSTER, "A");
    world.settle();
    assert_eq!((world.state(), world.device().setup.step), (SetupState::SettingUp, SetupStep::GitConfig));
    assert_eq!(world.device().setup.reason.as_deref(), Some("disk full"));
    world.disk.broken = false;
    world.run(Duration::from_secs(60));
    assert_eq!((world.state(), &world.device().setup.reason), (SetupState::Ready, &None));
}

#[test]
fn a_refusing_configdb_is_reported_and_tried_again() {
    let mut world = World::new(Kill::Never);
    world.db.refuse = Some("read-only");
    world.put_cluster(CLUSTER, "A");
    world.settle();
    assert_eq!(world.state(), SetupState::SettingUp);
    assert_eq!(world.device().setup.reason.as_deref(), Some("ConfigDB refused a step: read-only"));
    world.db.refuse = None;
    world.run(Duration::from_secs(60));
    assert_eq!((world.state(), &world.device().setup.reason), (SetupState::Ready, &None));
}

#[test]
fn another_store_is_learnt_from_nothing_and_tears_nothing_down() {
    let mut world = running();
    let (disk, edges) = (world.disk.clone(), world.edges.clone());
    let mut other = ConfigDb::new();
    let mut births = other.birth();
    let HostEvent::NodeBirth { metrics, .. } = &mut births[0] else { panic!() };
    let mut changed: Vec<Metric> = metrics.to_vec();
    changed[0] = Metric::new(configdb_contract::names::CONFIG_STORE, OTHER.to_string());
    *metrics = changed.into();
    world.feed(births);
    std::mem::swap(&mut world.db, &mut other);
    world.settle();
    assert_eq!((world.disk, world.edges), (disk, edges));
    assert!(world.devices.is_empty());
    assert_eq!(world.node.clusters_total, 0);
}
