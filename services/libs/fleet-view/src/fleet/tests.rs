//! What the rows say of a fleet, event by event.

use edge_sync_contract::{DeploymentState, SyncNode};

use super::*;
use crate::bench::{Bench, CLUSTER, NAME, reported};
use crate::health::Health;

const OVEN: Uuid = Uuid::from_u128(0x0E);
const ELSEWHERE: Uuid = Uuid::from_u128(0xD);

fn cluster(bench: &Bench) -> ClusterRow {
    bench.fleet.clusters().into_iter().find(|row| row.uuid == CLUSTER).unwrap()
}

fn deployments(bench: &Bench) -> Vec<(String, String)> {
    bench.fleet.deployments().into_iter().map(|row| (row.name.clone(), row.described())).collect()
}

#[test]
fn a_cluster_that_was_never_born_is_not_called_away() {
    let mut bench = Bench::new();
    bench.cluster(CLUSTER, NAME, |_| {});
    let row = cluster(&bench);
    assert_eq!((row.edge(), row.seen, row.flux, row.alerts), ("not yet", false, None, 0));
    bench.cluster(CLUSTER, NAME, |device| device.sync_since = Some(7));
    assert_eq!(cluster(&bench).edge(), "away");
}

#[test]
fn an_edge_that_is_alive_and_was_not_received_is_not_called_away() {
    let mut bench = Bench::new();
    bench.cluster(CLUSTER, NAME, |device| (device.sync_alive, device.sync_since) = (true, Some(7)));
    let row = cluster(&bench);
    assert_eq!((row.edge(), row.unborn), ("?", true));
    bench.sync(NAME, &SyncNode::default(), &[]);
    assert_eq!((cluster(&bench).edge(), cluster(&bench).unborn), ("unmonitored", false));
}

#[test]
fn what_was_written_down_of_an_edge_says_that_it_was_born() {
    let mut bench = Bench::new();
    bench.cluster(CLUSTER, NAME, |_| {});
    bench.entry(CLUSTER, &EdgeClusterStatus::default());
    assert_eq!(cluster(&bench).edge(), "away");
}

#[test]
fn an_edge_without_its_monitor_is_unmonitored() {
    let mut bench = Bench::with_cluster();
    assert_eq!(cluster(&bench).edge(), "alive");
    bench.dies(NAME, address::MONITOR_NODE);
    assert_eq!(cluster(&bench).edge(), "unmonitored");
}

#[test]
fn a_cluster_shows_what_flux_says_of_its_own_releases() {
    let mut bench = Bench::with_cluster();
    assert_eq!(cluster(&bench).flux.map(|flux| flux.described()).as_deref(), Some("Flux ready"));
    let failed = SyncNode {
        source_ready: Some(false),
        source_message: Some("HelmRelease edge: namespaces \"x\" not found".to_owned()),
        ..SyncNode::default()
    };
    bench.sync(NAME, &failed, &[]);
    let row = cluster(&bench);
    let shown = "Flux failed: HelmRelease edge: namespaces \"x\" not found";
    assert_eq!(row.flux.as_ref().map(FluxRow::described).as_deref(), Some(shown));
    assert_eq!(row.described(), format!("setup ready, edge alive, {shown}, hosts 1/1 ready"));
    bench.sync(NAME, &SyncNode::default(), &[]);
    assert_eq!(cluster(&bench).flux.map(|flux| flux.state()), Some("pending"));
}

#[test]
fn the_reason_of_a_refusal_is_shown_though_the_old_release_is_ready() {
    let mut bench = Bench::with_cluster();
    bench.deployment(OVEN, "Oven", None);
    let refused = edge_sync_contract::DeploymentDevice {
        reason: Some("kind Namespace is not allowed".to_owned()),
        message: Some("Helm install succeeded".to_owned()),
        ..reported("Oven", DeploymentState::Refused, Some(true))
    };
    bench.sync(NAME, &SyncNode::default(), &[(OVEN, refused)]);
    let row = bench.fleet.deployments().remove(0);
    assert_eq!(row.fault(), Some("kind Namespace is not allowed"));
    assert_eq!(row.described(), "refused, ready (kind Namespace is not allowed)");
}

#[test]
fn the_message_of_what_is_ready_is_not_a_trouble() {
    let mut bench = Bench::with_cluster();
    bench.deployment(OVEN, "Oven", None);
    let message = Some("Helm says this".to_owned());
    for (ready, shown) in [(Some(true), None), (Some(false), Some("Helm says this")), (None, Some("Helm says this"))] {
        let device = edge_sync_contract::DeploymentDevice {
            message: message.clone(),
            ..reported("Oven", DeploymentState::Applied, ready)
        };
        bench.sync(NAME, &SyncNode::default(), &[(OVEN, device)]);
        let row = bench.fleet.deployments().remove(0);
        assert_eq!((row.fault(), &row.message), (shown, &message));
    }
}

#[test]
fn a_deployment_is_suspended_when_its_edge_says_so_and_one_that_another_writer_suspended_says_that() {
    let mut bench = Bench::with_cluster();
    let mut reported_as = |wanted: bool, suspended: bool| {
        let entry = configdb_schema::document::EdgeDeployment {
            cluster: CLUSTER,
            name: "Oven".to_owned(),
            suspend: wanted,
            ..Default::default()
        };
        bench.entry(OVEN, &entry);
        let device = edge_sync_contract::DeploymentDevice {
            suspended,
            ..reported("Oven", DeploymentState::Applied, (!suspended).then_some(true))
        };
        bench.sync(NAME, &SyncNode::default(), &[(OVEN, device)]);
        let row = bench.fleet.deployments().remove(0);
        (row.state.clone(), row.reason.is_some(), crate::health::deployment(&row, true).health)
    };
    assert_eq!(reported_as(false, false), ("applied".to_owned(), false, Health::Good));
    assert_eq!(reported_as(true, false), ("applied".to_owned(), false, Health::Good), "it is on its way");
    assert_eq!(reported_as(true, true), ("suspended".to_owned(), false, Health::Working));
    assert_eq!(reported_as(false, true), ("applied".to_owned(), true, Health::Working));
}

#[test]
fn what_the_manager_refuses_is_refused_whatever_runs() {
    let mut bench = Bench::with_cluster();
    bench.deployment(OVEN, "Oven", None);
    bench.sync(NAME, &SyncNode::default(), &[(OVEN, reported("Oven", DeploymentState::Applied, Some(true)))]);
    bench.cluster(CLUSTER, NAME, |device| {
        device.deployments_refused.0.insert(OVEN, "no such chart".to_owned());
    });
    assert_eq!(deployments(&bench), [("Oven".to_owned(), "refused, ready (no such chart)".to_owned())]);
}

#[test]
fn a_deployment_is_listed_as_being_removed_until_its_edge_reports_it_gone() {
    let mut bench = Bench::with_cluster();
    bench.deployment(OVEN, "Oven", None);
    let applied = reported("Oven", DeploymentState::Applied, Some(true));
    bench.sync(NAME, &SyncNode::default(), &[(OVEN, applied)]);
    assert_eq!(cluster(&bench).deployments, Count { ready: 1, total: 1 });

    bench.forget(OVEN);
    let deleting = edge_sync_contract::DeploymentDevice {
        reason: Some("HelmRelease oven waits for its finalizers".to_owned()),
        ..reported("Oven", DeploymentState::Deleting, Some(false))
    };
    bench.sync(NAME, &SyncNode::default(), &[(OVEN, deleting)]);
    let shown = "removing, not ready (HelmRelease oven waits for its finalizers)";
    assert_eq!(deployments(&bench), [("Oven".to_owned(), shown.to_owned())]);
    assert_eq!(cluster(&bench).deployments, Count::default(), "it is not wanted");

    bench.sync(NAME, &SyncNode::default(), &[]);
    assert_eq!(deployments(&bench), []);
}

#[test]
fn what_only_a_holding_edge_has_is_not_called_removing() {
    let mut bench = Bench::with_cluster();
    let node = SyncNode {
        desired_held: Some(true),
        desired_hold_reason: Some("the control plane is older than this cluster by 2 revisions".to_owned()),
        ..SyncNode::default()
    };
    bench.sync(NAME, &node, &[(OVEN, reported("Oven", DeploymentState::Applied, Some(true)))]);
    let rows = bench.fleet.deployments();
    let reason = "ConfigDB does not have it, and the edge keeps it until an operator decides: the control plane is older than this cluster by 2 revisions";
    assert_eq!((rows[0].state.as_str(), rows[0].reason.as_deref()), (HELD, Some(reason)));
}

#[test]
fn a_deployment_that_moved_to_another_cluster_is_removed_from_the_first() {
    let mut bench = Bench::with_cluster();
    bench.cluster(ELSEWHERE, "Body_Shop", |_| {});
    bench.sync("Body_Shop", &SyncNode::default(), &[(OVEN, reported("Oven", DeploymentState::Applied, Some(true)))]);
    bench.deployment(OVEN, "Oven", None);
    let rows = bench.fleet.deployments();
    let shown: Vec<(&str, &str)> = rows.iter().map(|row| (row.cluster.as_str(), row.state.as_str())).collect();
    assert_eq!(shown, [("Body_Shop", REMOVING), (NAME, "sending")]);
}

#[test]
fn alerts_of_the_central_monitor_count_for_the_cluster_that_they_are_about() {
    let mut bench = Bench::with_cluster();
    bench.central_monitor(&["ACME-Paint_Shop"]);
    bench.monitor(NAME, &["Oven_1"]);
    let shown: Vec<(String, String, Option<u64>)> =
        bench.fleet.alerts().into_iter().map(|row| (row.subject(), row.monitor, row.since)).collect();
    let of = |subject: &str, monitor: &str| (subject.to_owned(), monitor.to_owned(), Some(5));
    let expected =
        [of("Paint_Shop/Monitor", "ACME-Central/Monitor"), of("Paint_Shop/Oven_1", "ACME-Paint_Shop/Monitor")];
    assert_eq!(shown, expected);
    assert_eq!(cluster(&bench).alerts, 2);
}

#[test]
fn a_cluster_that_is_away_has_an_alert_whatever_process_watches() {
    let mut bench = Bench::with_cluster();
    bench.cluster(CLUSTER, NAME, |device| device.sync_since = Some(7));
    bench.dies(NAME, address::SYNC_NODE);
    let row = cluster(&bench);
    assert_eq!((row.edge(), row.alerts), ("away", 1));
    let alert = bench.fleet.alerts().remove(0);
    assert_eq!((alert.subject().as_str(), alert.since), ("Paint_Shop/Sync", Some(7)));
    // Under tear-down its end is wanted.
    bench.cluster(CLUSTER, NAME, |device| {
        device.sync_since = Some(7);
        device.setup.state = SetupState::Deleting;
    });
    assert_eq!(bench.fleet.alerts(), []);
}

#[test]
fn what_an_operator_should_know_of_identities_is_an_alert() {
    let mut bench = Bench::with_cluster();
    bench.cluster(CLUSTER, NAME, |device| device.identity.alert = Some("a token was used twice".to_owned()));
    let alerts = bench.fleet.alerts();
    assert_eq!((alerts[0].alert, alerts[0].reason.as_str()), ("Identity", "a token was used twice"));
    assert_eq!(cluster(&bench).alerts, 1);
}

#[test]
fn alerts_of_a_monitor_that_is_away_are_said_to_be_old() {
    let mut bench = Bench::with_cluster();
    bench.monitor(NAME, &["Oven_1"]);
    bench.dies(NAME, address::MONITOR_NODE);
    let alert = bench.fleet.alerts().remove(0);
    assert_eq!(alert.reason, "its death was received; only a birth ends this; last known, its monitor is away itself");
}

#[test]
fn the_central_monitor_is_missed() {
    let mut bench = Bench::new();
    assert_eq!(bench.fleet.central_monitor_away().map(|alert| alert.subject()).as_deref(), Some("Monitor"));
    bench.central_monitor(&[]);
    assert_eq!((bench.fleet.central_monitor_away(), bench.fleet.alerts().len()), (None, 0));
    let node = EdgeNodeDescriptor::parse("ACME-Central", address::MONITOR_NODE).unwrap();
    bench.fleet.on_event(&HostEvent::NodeDeath { node, timestamp: 9 });
    let alerts = bench.fleet.alerts();
    assert_eq!((alerts.len(), alerts[0].subject().as_str(), alerts[0].alert), (1, "Monitor", "Offline"));
    assert_eq!(bench.fleet.central_monitor_away(), None, "one list has it, not both");
}

#[test]
fn an_edge_that_a_new_store_does_not_know_is_listed_as_not_desired_with_what_it_runs() {
    let mut bench = Bench::with_cluster();
    let lost = Uuid::from_u128(0x7057);
    let node = SyncNode { cluster_uuid: lost, cluster_name: "Weld".to_owned(), ..SyncNode::default() };
    bench.sync("Weld", &node, &[(OVEN, reported("Oven", DeploymentState::Applied, Some(true)))]);
    let row = |bench: &Bench| bench.fleet.clusters().into_iter().find(|row| row.name == "Weld");
    let weld = row(&bench).unwrap();
    assert_eq!((weld.uuid, weld.setup.as_str(), weld.alive, weld.held), (lost, NOT_DESIRED, true, None));
    assert_eq!((weld.hosts.to_string(), weld.deployments.to_string()), ("1/1".to_owned(), "1/1".to_owned()));
    assert!(weld.reason.unwrap().contains("`sparkfleet recover status`"));
    assert!(deployments(&bench)[0].1.starts_with("held, ready (ConfigDB does not have its cluster"));
    // One that it holds what it is sent, says why.
    let held = SyncNode { desired_held: Some(true), desired_hold_reason: Some("older".to_owned()), ..node.clone() };
    bench.sync("Weld", &held, &[]);
    assert_eq!(row(&bench).unwrap().held.as_deref(), Some("older"));
    // Without the cluster manager no service knows whether it is being torn down; a dead edge is not shown.
    bench.dies("Weld", address::SYNC_NODE);
    assert_eq!(row(&bench), None);
    bench.sync("Weld", &node, &[]);
    bench.cluster(lost, "Weld", |_| {});
    assert_eq!(row(&bench).unwrap().setup, "ready");
    assert_eq!(bench.fleet.clusters().len(), 2);
}

#[test]
fn a_service_whose_births_say_that_another_was_born_under_its_id_is_an_alert_until_they_do_not() {
    let mut bench = Bench::with_cluster();
    let born = |bench: &mut Bench, contested: Option<&str>| {
        let contested = contested.map(|text| Metric::new(CONTESTED, text).at(7));
        let node = SyncNode { source_ready: Some(true), ..SyncNode::default() };
        bench.sync_with(NAME, &node, contested.as_slice());
    };
    born(&mut bench, Some("another Sync is on this MQTT server"));
    let alert = bench.fleet.alerts().pop().unwrap();
    assert_eq!((alert.alert, alert.subject(), alert.since), ("Second_Speaker", format!("{NAME}/Sync"), Some(7)));
    assert_eq!(cluster(&bench).alerts, 1);
    born(&mut bench, None);
    assert_eq!(bench.fleet.alerts(), []);
}

#[test]
fn a_service_whose_disk_has_little_room_is_an_alert_until_there_is_more() {
    let mut bench = Bench::with_cluster();
    let sync = SyncNode { source_ready: Some(true), ..SyncNode::default() };
    let text = "less than 1024 MiB are free";
    bench.sync_with(NAME, &sync, &[Metric::new(DISK_ALERT, text).at(7)]);
    let alert = bench.fleet.alerts().pop().unwrap();
    assert_eq!((alert.alert, alert.subject(), alert.since), ("Disk_Space", format!("{NAME}/Sync"), Some(7)));
    assert_eq!((alert.reason.as_str(), cluster(&bench).alerts), (text, 1));

    let node = EdgeNodeDescriptor::parse(&format!("ACME-{NAME}"), "Sync").unwrap();
    let data = |metric: Metric| HostEvent::NodeData { node: node.clone(), timestamp: 8, metrics: vec![metric] };
    bench.fleet.on_event(&data(Metric::new("Disk/Available", 1_u64)));
    assert_eq!(bench.fleet.alerts().len(), 1, "data of something else say nothing of it");
    bench.fleet.on_event(&data(Metric::null(DISK_ALERT, sparkplug::DataType::String).at(8)));
    assert_eq!(bench.fleet.alerts(), []);
    bench.fleet.on_event(&data(Metric::new(DISK_ALERT, "x".repeat(1000)).at(9)));
    assert_eq!(bench.fleet.alerts()[0].reason.len(), 200);
}

#[test]
fn a_git_server_that_is_away_is_an_alert() {
    let mut bench = Bench::with_cluster();
    bench.git_server(false);
    let alert = bench.fleet.alerts().pop().unwrap();
    assert_eq!((alert.alert, alert.subject()), ("Git_Server", "Git".to_owned()));
    bench.git_server(true);
    assert_eq!(bench.fleet.alerts(), []);
}

#[test]
fn an_edge_whose_cluster_configdb_does_not_have_is_an_alert_that_says_how_to_get_it_back() {
    let mut bench = Bench::with_cluster();
    bench.unknown_cluster(Some(("Weld", uuid::Uuid::from_u128(9))));
    let alert = bench.fleet.alerts().pop().unwrap();
    assert_eq!((alert.alert, alert.subject()), ("Unknown_Cluster", "Weld".to_owned()));
    assert!(alert.reason.contains("if it was lost: sparkfleet recover adopt Weld;"), "{}", alert.reason);
    bench.unknown_cluster(None);
    assert_eq!(bench.fleet.alerts(), []);
}

#[test]
fn a_repository_of_which_the_git_server_has_not_everything_is_an_alert() {
    let mut bench = Bench::with_cluster();
    bench.repository_not_served(Some(("cluster/Paint_Shop", "it has more than 268435456 bytes")));
    let alert = bench.fleet.alerts().pop().unwrap();
    assert_eq!((alert.alert, alert.subject()), ("Repository", "cluster/Paint_Shop".to_owned()));
    assert_eq!(alert.reason, "it has more than 268435456 bytes");
    bench.repository_not_served(None);
    assert_eq!(bench.fleet.alerts(), []);
}

#[test]
fn of_an_edge_that_was_not_received_the_hosts_of_its_last_report_are_known() {
    let host = |hostname: &str, ready| Host {
        hostname: hostname.to_owned(),
        arch: "amd64".to_owned(),
        ready,
        control_plane: hostname == "body-1",
        ..Host::default()
    };
    let (silent, taken) = (Uuid::from_u128(0xB), Uuid::from_u128(0xC));
    let mut bench = Bench::with_cluster();
    bench.cluster(silent, "Body_Shop", |_| {});
    let status = EdgeClusterStatus {
        hosts: Some(vec![host("body-1", true), host("body-2", false)]),
        ..EdgeClusterStatus::default()
    };
    bench.entry(silent, &status);
    // A cluster whose name another one has: what it once reported is nothing of that name.
    bench.cluster(taken, "Body_Shop", |device| device.setup.state = SetupState::Refused);
    bench.entry(taken, &status);
    let count = |bench: &Bench, uuid| bench.fleet.clusters().into_iter().find(|row| row.uuid == uuid).unwrap().hosts;
    assert_eq!(count(&bench, silent), Count { ready: 1, total: 2 });
    assert_eq!(count(&bench, taken), Count::default());
    let names = |bench: &Bench| {
        let rows = bench.fleet.hosts(Some("Body_Shop")).into_iter();
        rows.map(|row| format!("{} {} {}", row.hostname, row.role, row.ready)).collect::<Vec<_>>()
    };
    assert_eq!(names(&bench), ["body-1 control-plane true", "body-2 worker false"]);
    assert_eq!(bench.fleet.hosts(None).len(), 3, "with that of the cluster that is alive");
    // Once it is received, it speaks for itself.
    bench.sync("Body_Shop", &SyncNode::default(), &[]);
    assert_eq!(names(&bench).len(), 1);
    assert_eq!(count(&bench, silent), Count { ready: 1, total: 1 });
}

#[test]
fn nothing_is_left_of_a_deleted_cluster_whose_death_was_missed_and_an_unknown_one_stays() {
    let rows = |bench: &Bench| {
        let alerts = bench.fleet.alerts().into_iter().filter(|row| row.monitor.starts_with(&format!("ACME-{NAME}/")));
        (bench.fleet.hosts(None).len(), bench.fleet.joining_hosts(None).len(), alerts.count())
    };
    for cluster_uuid in [CLUSTER, Uuid::from_u128(0xFF)] {
        let mut bench = Bench::with_cluster();
        bench.sync(NAME, &SyncNode { cluster_uuid, ..SyncNode::default() }, &[]);
        let host = join_service_contract::JoinHost { name: "paint-2".to_owned(), ..Default::default() };
        bench.join(NAME, &[(Uuid::from_u128(0xD1), host)]);
        bench.monitor(NAME, &["Oven"]);
        bench.remove(CLUSTER);
        // Its object stays in ConfigDB, without what makes it a cluster.
        bench.entry(CLUSTER, &Info { name: NAME.to_owned(), ..Info::default() });
        assert_eq!(rows(&bench), (1, 1, 1), "its edge is alive");
        for node in [address::SYNC_NODE, address::JOIN_NODE, address::MONITOR_NODE] {
            bench.misses(NAME, node);
        }
        let left = if cluster_uuid == CLUSTER { (0, 0, 0) } else { (1, 1, 1) };
        assert_eq!(rows(&bench), left, "{cluster_uuid}");
    }
}

#[test]
fn nothing_is_left_of_a_cluster_that_was_deleted_once_its_edge_is_not_alive() {
    let mut bench = Bench::with_cluster();
    bench.deployment(OVEN, "Oven", None);
    let device = reported("Oven", DeploymentState::Applied, Some(true));
    bench.sync(NAME, &SyncNode::default(), &[(OVEN, device)]);
    let host = join_service_contract::JoinHost { name: "paint-2".to_owned(), ..Default::default() };
    bench.join(NAME, &[(Uuid::from_u128(0xD1), host)]);
    let left = |bench: &Bench| {
        let of = |cluster: &str| usize::from(cluster == NAME);
        let hosts: usize = bench.fleet.hosts(None).iter().map(|row| of(&row.cluster)).sum();
        let joining: usize = bench.fleet.joining_hosts(None).iter().map(|row| of(&row.cluster)).sum();
        let deployments: usize = bench.fleet.deployments().iter().map(|row| of(&row.cluster)).sum();
        (hosts, joining, deployments)
    };
    bench.dies(NAME, configdb_schema::address::SYNC_NODE);
    bench.dies(NAME, configdb_schema::address::JOIN_NODE);
    assert_eq!(left(&bench), (1, 1, 1), "while it is wanted, it is away");
    bench.forget(OVEN);
    bench.remove(CLUSTER);
    assert_eq!(left(&bench), (0, 0, 0));
}
