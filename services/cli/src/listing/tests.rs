//! Where a list is read, and what of it.

use super::*;
use crate::options::ConsoleAccess;
use fleet_view::bench::{Bench, CLUSTER, NAME};

fn reading(from: Option<Source>, console: Option<&str>) -> Reading {
    Reading { watch: false, from, console: console.map(str::to_owned), access: ConsoleAccess::default() }
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
        let rows = chosen(bench.fleet.clusters(), cluster);
        rows.into_iter().map(|row| row.name).collect::<Vec<_>>()
    };
    assert_eq!(names(None), ["Body_Shop", NAME]);
    assert_eq!(names(Some(NAME)), [NAME]);
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
