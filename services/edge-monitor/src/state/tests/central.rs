//! The control plane: clusters from ConfigDB, monitors from their births.

use super::*;
use configdb_contract::names as config_names;
use configdb_contract::{Entry, configdb_node, entry};
use configdb_schema::document::EdgeCluster;
use configdb_schema::{Document, Organisation};

const CLUSTER: Uuid = Uuid::from_u128(0xc);

fn organisation() -> Organisation {
    Organisation::new("ACME").unwrap()
}

fn monitor_of(cluster: &str) -> EdgeNodeDescriptor {
    EdgeNodeDescriptor::parse(&format!("ACME-{cluster}"), "Monitor").unwrap()
}

struct Central(Monitor);

impl Central {
    fn new() -> Self {
        Self(Monitor::new(Scope::Central { organisation: organisation() }))
    }

    /// ConfigDB is born and says that it has so many objects.
    fn configdb_born(&mut self, objects: u64) {
        let metrics = vec![
            Metric::new(config_names::CONFIG_STORE, Uuid::from_u128(9).to_string()),
            Metric::new(config_names::CONFIG_REVISION, 1_u64),
            Metric::new(config_names::CONFIG_OBJECTS, objects),
        ];
        let node = configdb_node(&organisation());
        self.0.host(HostEvent::NodeBirth {
            node,
            bd_seq: BdSeq::ZERO,
            timestamp: 0,
            uuid: None,
            metrics: metrics.into(),
        });
    }

    fn cluster(&mut self, uuid: Uuid, name: &str) {
        let application = EdgeCluster::application().uuid;
        let json = format!(r#"{{"name":"{name}","namespace":"fplus-edge"}}"#).into();
        let entry = Entry { application, json, etag: Uuid::from_u128(1), revision: 1 };
        let metric = entry::to_metric(&EdgeCluster::slug().into(), application, Some(&entry));
        self.0.host(HostEvent::DeviceBirth {
            node: configdb_node(&organisation()),
            device: DeviceId::new(uuid.to_string()).unwrap(),
            timestamp: 0,
            metrics: Arc::from([metric]),
        });
    }

    fn cluster_gone(&mut self, uuid: Uuid, objects: u64) {
        let device = DeviceId::new(uuid.to_string()).unwrap();
        let node = configdb_node(&organisation());
        self.0.host(HostEvent::DeviceDeath { node: node.clone(), device, timestamp: 0 });
        let metrics =
            vec![Metric::new(config_names::CONFIG_REVISION, 2_u64), Metric::new(config_names::CONFIG_OBJECTS, objects)];
        self.0.host(HostEvent::NodeData { node, timestamp: 0, metrics });
    }
}

#[test]
fn a_cluster_whose_monitor_was_never_born_is_shown_and_becomes_an_alert() {
    let mut central = Central::new();
    central.configdb_born(1);
    central.cluster(CLUSTER, "Paint");
    assert_eq!(central.0.condition("ACME-Paint"), (NodeState::Unknown, false));
    let instance = identity::monitor_of_cluster(CLUSTER);
    assert_eq!(central.0.device("ACME-Paint").node, Some(instance));
    let expected = HostRequest::Expect { node: monitor_of("Paint") };
    assert!(central.0.take_requests().contains(&expected));
    central.0.until(100);
    assert_eq!(central.0.condition("ACME-Paint"), (NodeState::Unknown, true));
    central.0.born(&monitor_of("Paint"), instance, None);
    assert_eq!(central.0.condition("ACME-Paint"), (NodeState::Online, false));
    assert_eq!(central.0.deaths, Vec::<String>::new());
    central.0.died(&monitor_of("Paint"));
    assert_eq!(central.0.condition("ACME-Paint"), (NodeState::Offline, true));
}

#[test]
fn a_monitor_with_an_identity_of_its_own_is_shown_under_that() {
    let mut central = Central::new();
    central.configdb_born(1);
    central.cluster(CLUSTER, "Paint");
    central.0.born(&monitor_of("Paint"), OTHER, None);
    assert_eq!(central.0.device("ACME-Paint").identity, identity::device(OTHER));
    assert_eq!(central.0.deaths, ["ACME-Paint"]);
}

#[test]
fn a_monitor_that_configdb_does_not_know_is_shown_with_a_problem_while_it_speaks() {
    let mut central = Central::new();
    central.0.born(&monitor_of("Paint"), OTHER, None);
    assert_eq!(central.0.condition("ACME-Paint"), (NodeState::Online, false));
    assert_eq!(central.0.problem("ACME-Paint"), None, "ConfigDB was not received yet");
    central.configdb_born(0);
    assert!(central.0.problem("ACME-Paint").unwrap().contains("ConfigDB has no cluster"));
    central.0.died(&monitor_of("Paint"));
    assert_eq!(central.0.deaths, ["ACME-Paint"]);
    assert_eq!(central.0.problem("ACME-Paint"), None);
}

#[test]
fn a_deleted_cluster_goes_when_its_monitor_is_dead() {
    let mut central = Central::new();
    central.configdb_born(1);
    central.cluster(CLUSTER, "Paint");
    central.0.born(&monitor_of("Paint"), identity::monitor_of_cluster(CLUSTER), None);
    central.cluster_gone(CLUSTER, 0);
    assert_eq!(central.0.condition("ACME-Paint"), (NodeState::Online, false));
    central.0.died(&monitor_of("Paint"));
    assert!(central.0.devices.is_empty());
}

#[test]
fn nothing_is_dropped_while_the_replica_of_configdb_is_incomplete() {
    let mut central = Central::new();
    central.configdb_born(1);
    central.cluster(CLUSTER, "Paint");
    central.configdb_born(2);
    central.0.until(1_000);
    assert_eq!(central.0.condition("ACME-Paint"), (NodeState::Unknown, true));
    assert_eq!(central.0.deaths, Vec::<String>::new());
}

#[test]
fn monitors_of_other_groups_and_other_nodes_are_none_of_its_business() {
    let mut central = Central::new();
    for (group, id) in
        [("ACME-Central", "Monitor"), ("ACME-Paint-Join", "Monitor"), ("EMCA-Paint", "Monitor"), ("ACME-Paint", "Sync")]
    {
        central.0.born(&EdgeNodeDescriptor::parse(group, id).unwrap(), OTHER, None);
    }
    assert!(central.0.devices.is_empty());
}

#[test]
fn a_cluster_that_cannot_have_a_group_is_a_problem_with_its_rule() {
    let mut central = Central::new();
    central.configdb_born(2);
    central.cluster(CLUSTER, "Central");
    central.cluster(OTHER, "Paint");
    assert!(central.0.problem(&CLUSTER.to_string()).unwrap().contains("reserved"));
    assert_eq!(central.0.devices.len(), 1);
}

/// A cluster's own monitor may not command edge sync, whose birth publishes the names of edge agents.
#[test]
fn edge_sync_is_asked_for_its_birth_when_the_monitor_of_its_cluster_has_started_again() {
    let mut central = Central::new();
    let mut asked = |node: &EdgeNodeDescriptor, bd_seq: i64| {
        central.0.requests.clear();
        central.0.host(HostEvent::NodeBirth {
            node: node.clone(),
            bd_seq: BdSeq::from_wire(bd_seq).unwrap(),
            timestamp: 0,
            uuid: None,
            metrics: Arc::from([]),
        });
        let asked = central.0.requests.iter().filter_map(|request| match request {
            HostRequest::Rebirth { node } => Some(node.to_string()),
            _ => None,
        });
        asked.collect::<Vec<_>>()
    };
    let (monitor, other) = (monitor_of("Paint"), monitor_of("Weld"));
    assert_eq!(
        asked(&monitor, 0),
        [""; 0],
        "a monitor that was not known causes no request: a control plane that starts would ask all"
    );
    assert_eq!(asked(&monitor, 0), [""; 0], "the same session");
    assert_eq!(asked(&other, 1), [""; 0]);
    assert_eq!(asked(&monitor, 1), ["ACME-Paint/Sync"]);
    assert_eq!(asked(&monitor, 1), [""; 0]);
}
