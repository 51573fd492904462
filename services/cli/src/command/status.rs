//! `sparkfleet status`: on one page whether all is well, and what waits.

use std::collections::BTreeMap;

use join_service_contract::HostState;
use serde::Serialize;
use serde_json::json;

use super::alert;
use crate::client::Client;
use crate::options::Options;
use crate::output::page::{PACE, Page, REDRAW};
use crate::output::{self, Table};
use crate::tables;
use fleet_view::{AlertRow, ClusterRow, Count, DeploymentRow, Fleet};
use service_runtime::shutdown::Shutdown;

/// A central service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct ServiceRow {
    service: &'static str,
    alive: bool,
    /// None while nothing is received from it.
    version: Option<String>,
}

/// The page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Status {
    broker: String,
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

/// Prints the page.
///
/// # Errors
/// With [`service_runtime::exit::UNAVAILABLE`] if the broker is not reached.
pub async fn run(watch: bool, options: &Options) -> anyhow::Result<()> {
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

pub(super) fn status(fleet: &Fleet, broker: &str) -> Status {
    let rows = fleet.clusters();
    let all = fleet.deployments();
    let wanted = || all.iter().filter(|row| !row.is_being_removed());
    let mut clusters = BTreeMap::new();
    for row in &rows {
        *clusters.entry(format!("setup {}, edge {}", row.setup, row.edge())).or_default() += 1;
    }
    Status {
        broker: broker.to_owned(),
        organisation: fleet.organisation().to_string(),
        services: services(fleet),
        clusters,
        hosts: Count {
            ready: rows.iter().map(|row| row.hosts.ready).sum(),
            total: rows.iter().map(|row| row.hosts.total).sum(),
        },
        deployments: Count { ready: wanted().filter(|row| row.ready == Some(true)).count(), total: wanted().count() },
        alerts: alert::rows(fleet, None),
        waiting: waiting(fleet, &rows, &all),
    }
}

fn services(fleet: &Fleet) -> Vec<ServiceRow> {
    let row = |service, alive: bool, version: Option<String>| ServiceRow {
        service,
        alive,
        version: version.filter(|version| alive && !version.is_empty()),
    };
    let monitor = fleet.central_monitor().and_then(edge_monitor_contract::MonitorView::node);
    vec![
        row("ConfigDB", fleet.config.is_complete(), Some(fleet.config.version().to_owned())),
        row("Cluster-Manager", fleet.manager.is_alive(), Some(fleet.manager.version().to_owned())),
        row("Identity", fleet.identity.is_alive(), Some(fleet.identity.version().to_owned())),
        row("Monitor", fleet.is_central_monitor_alive(), monitor.map(|node| node.version.clone())),
    ]
}

fn waiting(fleet: &Fleet, clusters: &[ClusterRow], deployments: &[DeploymentRow]) -> Vec<String> {
    let mut waiting: Vec<String> = clusters.iter().flat_map(|row| of_cluster(fleet, row)).collect();
    let is_well = |row: &&DeploymentRow| row.state == "applied" && row.ready == Some(true) && row.reason.is_none();
    let unwell = deployments.iter().filter(|row| !is_well(row));
    waiting.extend(unwell.map(|row| format!("deployment {}/{}: {}", row.cluster, row.name, row.described())));
    let hosts = fleet.joining_hosts(None).into_iter().filter(|row| row.state == HostState::Pending);
    waiting.extend(hosts.map(|row| {
        let name = format!("{}/{}", row.cluster, row.title());
        format!("host {name}: waits for approval; `sparkfleet host approve {name}`")
    }));
    waiting
}

fn of_cluster(fleet: &Fleet, row: &ClusterRow) -> Vec<String> {
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
    let rollout = fleet.manager.cluster(row.uuid).map(|cluster| &cluster.rollout);
    waiting.extend(rollout.and_then(|rollout| rollout.repository.clone()));
    waiting.into_iter().map(|text| format!("cluster {}: {text}", row.name)).collect()
}

pub(super) fn lines(status: &Status, now: u64) -> Vec<String> {
    let mut lines = vec![format!("broker        {} reached, organisation {}", status.broker, status.organisation)];
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
    lines.push(String::new());
    lines.extend(table.shown());
    if !status.alerts.is_empty() {
        lines.push(String::new());
        lines.extend(tables::alerts(&status.alerts, now).shown());
    }
    if !status.waiting.is_empty() {
        lines.push(String::new());
        lines.push("WAITING".to_owned());
        lines.extend(status.waiting.iter().cloned());
    }
    lines
}

#[cfg(test)]
mod tests;
