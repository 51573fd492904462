//! Where a list is read, and what of it.

use super::*;
use crate::options::ConsoleAccess;
use fleet_view::bench::{Bench, CLUSTER, NAME};
use join_service_contract::{HostState, JoinHost};

fn reading(from: Option<Source>, console: Option<&str>) -> ReadingSource {
    ReadingSource { from, console: console.map(str::to_owned), access: ConsoleAccess::default() }
}

#[test]
fn a_list_is_read_from_the_console_where_there_is_one_unless_it_is_said() {
    let console = Some("http://c");
    let of = |from, console| console_of(&reading(from, console)).map(|found| found.map(str::to_owned));
    assert_eq!(of(None, console).unwrap().as_deref(), console);
    assert_eq!(of(None, None).unwrap(), None);
    assert_eq!(of(Some(Source::Broker), console).unwrap(), None);
    assert_eq!(of(Some(Source::Console), console).unwrap().as_deref(), console);
    let error = of(Some(Source::Console), None).unwrap_err();
    assert!(exit::code_of(&error) == exit::USAGE && error.to_string().contains("--console"), "{error}");
}

#[test]
fn rows_are_those_of_a_cluster() {
    let mut bench = Bench::with_cluster();
    bench.cluster(Uuid::from_u128(0xB), "Body_Shop", |_| {});
    let names = |cluster| {
        let rows = Filter::default().chosen(bench.fleet.clusters(), cluster);
        rows.into_iter().map(|row| row.name).collect::<Vec<_>>()
    };
    assert_eq!(names(None), ["Body_Shop", NAME]);
    assert_eq!(names(Some(NAME)), [NAME]);
}

#[test]
fn rows_are_those_with_the_labels_and_what_can_have_none_has_none() {
    let mut bench = Bench::with_cluster();
    bench.cluster(Uuid::from_u128(0xB), "Body_Shop", |_| {});
    let labels = [("site".to_owned(), "Graz".to_owned())].into();
    let info = configdb_schema::document::Info { name: NAME.to_owned(), labels, ..Default::default() };
    bench.entry(fleet_view::bench::CLUSTER, &info);
    let names = |selector: &str| {
        let selector = selector.parse().unwrap();
        let filter = Filter { cluster: None, selector: Some(&selector) };
        filter.chosen(bench.fleet.clusters(), None).into_iter().map(|row| row.name).collect::<Vec<_>>()
    };
    assert_eq!(names("site=Graz"), [NAME]);
    assert_eq!(names("!site"), ["Body_Shop"]);
    let mut table = ClusterRow::table(&bench.fleet.clusters(), 0);
    ClusterRow::widen(&bench.fleet.clusters(), &mut table);
    assert!(table.shown().iter().any(|line| line.contains(NAME) && line.contains("site=Graz")), "{:?}", table.shown());
}

#[test]
fn what_the_console_has_is_read_as_what_the_broker_has() {
    let mut bench = Bench::with_cluster();
    bench.deployment(Uuid::from_u128(0x0E), "Oven", None);
    let tables = fleet_view::tables::Rows::of(&bench.fleet);
    let clusters: Vec<ClusterRow> = tables.clusters().values().filter_map(ClusterRow::of_row).collect();
    assert_eq!((clusters[0].uuid, clusters), (CLUSTER, bench.fleet.clusters()));
    let deployments: Vec<DeploymentRow> = tables.deployments().values().filter_map(DeploymentRow::of_row).collect();
    assert_eq!((deployments.len(), deployments), (1, bench.fleet.deployments()));
    bench.cluster(Uuid::from_u128(0xB), "Body_Shop", |device| device.sync_since = Some(7));
    bench.cluster(Uuid::from_u128(0xA), "Assembly", |device| device.sync_since = Some(9));
    let tables = fleet_view::tables::Rows::of(&bench.fleet);
    let mut alerts: Vec<AlertRow> = tables.alerts().values().filter_map(AlertRow::of_row).collect();
    AlertRow::sort(&mut alerts);
    assert_eq!(alerts, bench.fleet.alerts(), "the oldest first");
    assert!(alerts.len() >= 2, "{alerts:#?}");
}

#[test]
fn hosts_of_the_console_are_those_of_the_broker_and_nodes_that_no_join_service_knows_are_left_out() {
    let host = |name: &str, state, change: fn(&mut JoinHost)| {
        let mut host = JoinHost { name: name.to_owned(), role: "worker".to_owned(), state, ..JoinHost::default() };
        (host.variant, host.kind, host.endorsement_key) = ("tpm2".to_owned(), "join".to_owned(), "ab".repeat(32));
        change(&mut host);
        host
    };
    let mut bench = Bench::with_cluster();
    let hosts = [
        (
            Uuid::from_u128(0xD1),
            host("paint-1", HostState::Member, |host| {
                host.pcrs = Some([(4, "0f".repeat(32)), (15, "00".repeat(32))].into())
            }),
        ),
        (Uuid::from_u128(0xD2), host("", HostState::Pending, |_| {})),
        (
            Uuid::from_u128(0xD3),
            host("paint-1", HostState::Refused, |host| {
                (host.foreign_disk, host.verdict) = (Some(Uuid::from_u128(0xD1)), Some("disk-of-another".to_owned()));
                (host.detail, host.warnings, host.stage) =
                    (Some("why".to_owned()), Some("old".to_owned()), Some("locked".to_owned()));
            }),
        ),
    ];
    bench.join(NAME, &hosts);
    bench.cluster(Uuid::from_u128(0xB), "Body_Shop", |_| {});
    bench.sync("Body_Shop", &edge_sync_contract::SyncNode::default(), &[]);
    let rows: Vec<Value> = fleet_view::tables::hosts(&bench.fleet).into_values().collect();
    let joining = rows.iter().filter(|row| JoiningHostRow::has(row)).map(|row| JoiningHostRow::of_row(row).unwrap());
    let mut joining: Vec<JoiningHostRow> = joining.collect();
    JoiningHostRow::sort(&mut joining);
    assert_eq!(joining, bench.fleet.joining_hosts(None));
    assert!(joining.len() == 3 && rows.len() > 3, "{rows:#?}");
    let mut nodes: Vec<_> = rows.iter().filter_map(fleet_view::tables::host_row).collect();
    nodes.sort_by(|a, b| (&a.cluster, &a.hostname).cmp(&(&b.cluster, &b.hostname)));
    let mut known = bench.fleet.hosts(None);
    known.sort_by(|a, b| (&a.cluster, &a.hostname).cmp(&(&b.cluster, &b.hostname)));
    assert_eq!(nodes, known);
    // A console of an earlier version does not say it, and is not taken for one that has no hosts.
    let mut earlier = rows[0].clone();
    earlier.as_object_mut().unwrap().remove("joining");
    assert!(JoiningHostRow::has(&earlier) && JoiningHostRow::of_row(&earlier).is_none());
}
