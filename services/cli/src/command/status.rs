//! `sparkfleet status`: on one page whether all is well, and what waits.

use std::collections::BTreeMap;

use cluster_manager_contract::ClusterDevice;
use configdb_schema::address::{CENTRAL, CLUSTER_MANAGER_NODE, CONFIGDB_NODE, GIT_NODE, IDENTITY_NODE, MONITOR_NODE};
use join_service_contract::HostState;
use serde::Serialize;
use serde_json::{Value, json};
use sparkplug_mqtt::Clock;
use uuid::Uuid;

use super::alert;
use crate::client::Client;
use crate::console_api::ConsoleApi;
use crate::listing::{self, InConsole as _};
use crate::options::{Options, ReadingSource};
use crate::output::page::{PACE, Page, REDRAW};
use crate::output::{self, Table, shell_argument};
use crate::tables;
use fleet_view::{AlertRow, ClusterRow, Count, DeploymentRow, Fleet, JoiningHostRow};
use service_runtime::shutdown::Shutdown;

/// The central services that every fleet has, by their nodes.
const SERVICES: [&str; 5] = [CONFIGDB_NODE, CLUSTER_MANAGER_NODE, IDENTITY_NODE, GIT_NODE, MONITOR_NODE];

/// A central service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct ServiceRow {
    pub(super) service: &'static str,
    pub(super) alive: bool,
    /// None while nothing is received from it.
    pub(super) version: Option<String>,
}

impl ServiceRow {
    fn new(service: &'static str, alive: bool, version: &str) -> Self {
        let version = Some(version).filter(|version| alive && !version.is_empty()).map(str::to_owned);
        Self { service, alive, version }
    }
}

/// The page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Status {
    broker: String,
    /// Address of the console that says so, and has a session with that broker; None: this program has.
    console: Option<String>,
    organisation: String,
    services: Vec<ServiceRow>,
    /// Clusters by how they stand: `ready, alive` and so on.
    clusters: BTreeMap<String, usize>,
    hosts: Count,
    deployments: Count,
    alerts: Vec<AlertRow>,
    /// What is not as it should be and is not an alert, with what to do where a user has to act.
    waiting: Vec<String>,
}

/// What the page is made of, of console or broker.
struct Parts {
    broker: String,
    console: Option<String>,
    organisation: String,
    services: Vec<ServiceRow>,
    clusters: Vec<ClusterRow>,
    deployments: Vec<DeploymentRow>,
    hosts: Vec<JoiningHostRow>,
    alerts: Vec<AlertRow>,
    /// Why clusters' own repositories keep what they hold, by cluster.
    repositories: BTreeMap<Uuid, String>,
}

/// Tables of the console that the page is made of, besides its own.
const TABLES: [&str; 5] = ["services", ClusterRow::TABLE, DeploymentRow::TABLE, JoiningHostRow::TABLE, AlertRow::TABLE];

/// Prints the page.
///
/// # Errors
/// With [`service_runtime::exit::UNAVAILABLE`] if neither console nor broker is reached.
pub async fn run(watch: bool, source: &ReadingSource, options: &Options) -> anyhow::Result<()> {
    let ask_console = async |api: &ConsoleApi| from_console(api, watch, options).await;
    let ask_broker = async || from_broker(watch, options).await;
    listing::of_either(source, options, ask_console, ask_broker).await
}

async fn from_console(api: &ConsoleApi, watch: bool, options: &Options) -> anyhow::Result<()> {
    let (clock, organisation) = (Clock::new(), &options.connection.organisation);
    let wall = || clock.now().wall;
    if watch {
        let mut page = Page::new(options.presentation.output);
        return listing::follow(api, &TABLES, |tables| {
            let rows = |table: &str| tables.rows(table).cloned().collect();
            let status = Status::of(Parts::of_tables(rows, organisation, api.address())?);
            page.show(&json!(status), || lines(&status, wall()))
        })
        .await;
    }
    let mut tables = BTreeMap::new();
    for name in ["console"].into_iter().chain(TABLES) {
        tables.insert(name, listing::table(api, name).await?);
    }
    let rows = |table: &str| tables.get(table).cloned().unwrap_or_default();
    let status = Status::of(Parts::of_tables(rows, organisation, api.address())?);
    output::print(options.presentation.output, || lines(&status, wall()), &json!(status))
}

async fn from_broker(watch: bool, options: &Options) -> anyhow::Result<()> {
    let mut client = Client::look(options).await?;
    let shown = if watch {
        follow(&mut client, options).await
    } else {
        let status = status(&client.fleet, &options.connection.broker);
        output::print(options.presentation.output, || lines(&status, client.wall()), &json!(status))
    };
    client.close().await;
    shown
}

/// Shows the page again and again, until it has no reader any more or a signal comes.
async fn follow(client: &mut Client, options: &Options) -> anyhow::Result<()> {
    let shutdown = Shutdown::on_signals()?;
    let mut page = Page::new(options.presentation.output);
    loop {
        let status = status(&client.fleet, &options.connection.broker);
        if !page.show(&json!(status), || lines(&status, client.wall()))? {
            return Ok(());
        }
        tokio::select! {
            followed = client.follow(REDRAW, PACE) => followed?,
            () = shutdown.wait() => return Ok(()),
        }
    }
}

/// The page of what the broker says.
pub(super) fn status(fleet: &Fleet, broker: &str) -> Status {
    Status::of(Parts::of_fleet(fleet, broker))
}

impl Parts {
    fn of_fleet(fleet: &Fleet, broker: &str) -> Self {
        let kept = |(uuid, cluster): (Uuid, &ClusterDevice)| Some((uuid, cluster.rollout.repository.clone()?));
        Self {
            broker: broker.to_owned(),
            console: None,
            organisation: fleet.organisation().to_string(),
            services: services(fleet),
            clusters: fleet.clusters(),
            deployments: fleet.deployments(),
            hosts: fleet.joining_hosts(None),
            alerts: alert::rows(fleet, None),
            repositories: fleet.manager.clusters().filter_map(kept).collect(),
        }
    }

    /// Of the tables of the console at `address`. A user who sees some clusters alone has no rows of central services.
    fn of_tables(rows: impl Fn(&str) -> Vec<Value>, organisation: &str, address: &str) -> anyhow::Result<Self> {
        let console = rows("console").pop().unwrap_or_default();
        let text = |field: &str| console[field].as_str().map(str::to_owned);
        let organisation = text("organisation").unwrap_or_else(|| organisation.to_owned());
        let services = services_of_table(&rows("services"), &organisation);
        let clusters = rows(ClusterRow::TABLE);
        let kept = |row: &Value| {
            let reason = row.pointer("/repository/reason")?.as_str()?;
            Some((row["key"].as_str()?.parse().ok()?, reason.to_owned()))
        };
        let mut alerts: Vec<AlertRow> = listing::read(rows(AlertRow::TABLE).iter(), address)?;
        let is_away = services.iter().any(|row| row.service == MONITOR_NODE && !row.alive);
        let offline = AlertRow::of_central_monitor();
        let is_listed = alerts.iter().any(|row| row.key() == offline.key());
        alerts.extend((is_away && !is_listed).then_some(offline));
        Ok(Self {
            broker: text("broker").unwrap_or_default(),
            console: Some(address.to_owned()),
            organisation,
            services,
            repositories: clusters.iter().filter_map(kept).collect(),
            clusters: listing::read(clusters.iter(), address)?,
            deployments: listing::read(rows(DeploymentRow::TABLE).iter(), address)?,
            hosts: listing::read(rows(JoiningHostRow::TABLE).iter(), address)?,
            alerts,
        })
    }
}

impl Status {
    fn of(parts: Parts) -> Self {
        let wanted = || parts.deployments.iter().filter(|row| !row.is_being_removed());
        let mut clusters = BTreeMap::new();
        for row in &parts.clusters {
            *clusters.entry(format!("setup {}, edge {}", row.setup, row.edge())).or_default() += 1;
        }
        let hosts = Count {
            ready: parts.clusters.iter().map(|row| row.hosts.ready).sum(),
            total: parts.clusters.iter().map(|row| row.hosts.total).sum(),
        };
        let ready = wanted().filter(|row| row.ready == Some(true)).count();
        let deployments = Count { ready, total: wanted().count() };
        let waiting = waiting(&parts);
        let Parts { broker, console, organisation, services, alerts, .. } = parts;
        Self { broker, console, organisation, services, clusters, hosts, deployments, alerts, waiting }
    }
}

/// The central services that every fleet has.
pub(super) fn services(fleet: &Fleet) -> Vec<ServiceRow> {
    let monitor = fleet.central_monitor().and_then(edge_monitor_contract::MonitorView::node);
    let versions = [
        (fleet.config.is_complete(), fleet.config.version()),
        (fleet.manager.is_alive(), fleet.manager.version()),
        (fleet.identity.is_alive(), fleet.identity.version()),
        // The manager knows: its Devices are too many to be asked for by who only wants to know that.
        (fleet.manager.git_alive() == Some(true), fleet.manager.git_version()),
        (fleet.is_central_monitor_alive(), monitor.map_or("", |node| &node.version)),
    ];
    SERVICES
        .into_iter()
        .zip(versions)
        .map(|(service, (alive, version))| ServiceRow::new(service, alive, version))
        .collect()
}

/// None, where there is no row of any of them.
fn services_of_table(rows: &[Value], organisation: &str) -> Vec<ServiceRow> {
    let of = |service: &str| {
        let key = format!("{organisation}-{CENTRAL}/{service}");
        rows.iter().find(|row| row["key"] == key)
    };
    if SERVICES.into_iter().all(|service| of(service).is_none()) {
        return Vec::new();
    }
    let row = |service| {
        let found = of(service);
        let alive = found.is_some_and(|row| row["alive"] == true);
        let version = found.and_then(|row| row["version"].as_str()).unwrap_or_default();
        ServiceRow::new(service, alive, version)
    };
    SERVICES.map(row).into()
}

fn waiting(parts: &Parts) -> Vec<String> {
    let mut waiting: Vec<String> = parts.clusters.iter().flat_map(|row| of_cluster(parts, row)).collect();
    let is_well = |row: &&DeploymentRow| row.state == "applied" && row.ready == Some(true) && row.reason.is_none();
    let unwell = parts.deployments.iter().filter(|row| !is_well(row));
    waiting.extend(unwell.map(|row| format!("deployment {}/{}: {}", row.cluster, row.name, row.described())));
    let hosts = parts.hosts.iter().filter(|row| row.state == HostState::Pending);
    waiting.extend(hosts.map(|row| {
        let name = format!("{}/{}", row.cluster, row.title());
        format!("host {name}: waits for approval; `sparkfleet host approve {}`", shell_argument(&name))
    }));
    waiting
}

fn of_cluster(parts: &Parts, row: &ClusterRow) -> Vec<String> {
    let mut waiting = Vec::new();
    if row.setup != "ready" || row.reason.is_some() {
        let reason = row.reason.as_ref().map_or_else(String::new, |reason| format!(" ({reason})"));
        waiting.push(format!("setup {}{reason}", row.setup));
    }
    if row.setup == "ready" && !row.seen {
        let next = format!("sparkfleet cluster bootstrap {}", row.name);
        waiting.push(format!("its edge was never born; `{next}` prints the line that installs it"));
    }
    if row.held.is_some() {
        waiting
            .push("its edge holds what it is sent until an operator decides; `sparkfleet recover status`".to_owned());
    } else if row.alive && !row.agreed {
        waiting.push("its edge has not taken over the latest changes".to_owned());
    }
    waiting.extend(row.flux.as_ref().filter(|flux| flux.ready != Some(true)).map(fleet_view::FluxRow::described));
    waiting.extend(parts.repositories.get(&row.uuid).cloned());
    waiting.into_iter().map(|text| format!("cluster {}: {text}", row.name)).collect()
}

pub(super) fn lines(status: &Status, now: u64) -> Vec<String> {
    let by = status.console.as_ref().map_or_else(String::new, |console| format!(" by the console at {console}"));
    let mut lines = vec![format!("broker        {} reached{by}, organisation {}", status.broker, status.organisation)];
    let mut table = Table::new(&["SERVICE", "STATE", "VERSION"]);
    for row in &status.services {
        let state = if row.alive { "alive" } else { "away" };
        table.row([row.service, state, row.version.as_deref().unwrap_or_default()]);
    }
    let total: usize = status.clusters.values().sum();
    let clusters: Vec<String> = status.clusters.iter().map(|(state, count)| format!("{count} {state}")).collect();
    let clusters = if clusters.is_empty() { String::new() } else { format!(": {}", clusters.join("; ")) };
    lines.push(format!("clusters      {total}{clusters}"));
    lines.push(format!("hosts         {} ready", status.hosts));
    lines.push(format!("deployments   {} ready", status.deployments));
    lines.push(format!("alerts        {}", status.alerts.len()));
    if !status.services.is_empty() {
        lines.push(String::new());
        lines.extend(table.shown());
    }
    if !status.alerts.is_empty() {
        lines.push(String::new());
        lines.extend(tables::alerts(&status.alerts, now).shown());
    }
    if !status.waiting.is_empty() {
        lines.push(String::new());
        lines.push("WAITING".to_owned());
        lines.extend(status.waiting.iter().map(|text| output::visible(text)));
    }
    lines
}

#[cfg(test)]
mod tests;
