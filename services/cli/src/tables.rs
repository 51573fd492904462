//! The rows of the fleet as tables for people.

use fleet_view::{Acknowledged, AlertRow, ClusterRow, DeploymentRow, FluxRow, HostRow, JoiningHostRow};
use join_service_contract::HostState;

use crate::output::{self, Table};

/// Clusters as a table, ages counted from `now` (UTC ms).
#[must_use]
pub fn clusters(rows: &[ClusterRow], now: u64) -> Table {
    let mut table =
        Table::new(&["CLUSTER", "SETUP", "EDGE", "SINCE", "FLUX", "HOSTS", "DEPLOYMENTS", "ALERTS", "REASON"]);
    for row in rows {
        let edge = if row.simulated { format!("{} (simulated)", row.edge()) } else { row.edge().to_owned() };
        let since = row.alive_since.or(row.since).map_or_else(String::new, |since| output::age(since, now));
        let flux = row.flux.as_ref().filter(|flux| flux.ready == Some(false)).map(FluxRow::described);
        let reason = row
            .held
            .as_ref()
            .map(|held| format!("held: {held}"))
            .or_else(|| row.reason.clone())
            .into_iter()
            .chain(flux)
            .collect::<Vec<_>>()
            .join("; ");
        table.row([
            row.name.clone(),
            row.setup.clone(),
            edge,
            since,
            row.flux.as_ref().map_or("", FluxRow::state).to_owned(),
            hosts_of(row),
            row.deployments.to_string(),
            row.alerts.to_string(),
            reason,
        ]);
    }
    table
}

/// Hosts of a cluster that are ready, and all; with a `?` what its edge said last, or that it is not known.
fn hosts_of(row: &ClusterRow) -> String {
    match (row.alive || !row.seen, row.hosts.total) {
        (true, _) => row.hosts.to_string(),
        (false, 0) => "?".to_owned(),
        (false, _) => format!("{}?", row.hosts),
    }
}

/// Hosts as a table.
#[must_use]
pub fn hosts(rows: &[HostRow]) -> Table {
    let mut table = Table::new(&[
        "HOST",
        "CLUSTER",
        "READY",
        "ROLE",
        "JOINED",
        "ARCH",
        "KUBERNETES",
        "OPERATING SYSTEM",
        "SPECIALISED",
    ]);
    for row in rows {
        table.row([
            row.hostname.as_str(),
            &row.cluster,
            if row.ready { "yes" } else { "no" },
            row.role,
            row.joined.as_deref().unwrap_or(""),
            &row.architecture,
            &row.kubernetes_version,
            &row.operating_system,
            row.specialised.as_deref().unwrap_or(""),
        ]);
    }
    table
}

/// Deployments as a table, ages counted from `now` (UTC ms).
#[must_use]
pub fn deployments(rows: &[DeploymentRow], now: u64) -> Table {
    let mut table = Table::new(&["DEPLOYMENT", "CLUSTER", "CHART", "HOST", "STATE", "READY", "SINCE", "MESSAGE"]);
    for row in rows {
        table.row([
            row.name.clone(),
            row.cluster.clone(),
            row.chart.clone(),
            row.host.clone().unwrap_or_else(|| "(floating)".to_owned()),
            row.state.clone(),
            row.ready.map_or("", |ready| if ready { "yes" } else { "no" }).to_owned(),
            row.applied_at.map_or_else(String::new, |at| output::age(at, now)),
            // Flux' message about what is ready only takes room; `--output json` has it.
            row.fault().unwrap_or_default().to_owned(),
        ]);
    }
    table
}

/// Alerts as a table, ages counted from `now` (UTC ms).
#[must_use]
pub fn alerts(rows: &[AlertRow], now: u64) -> Table {
    let mut table = Table::new(&["CLUSTER", "NODE", "ALERT", "SINCE", "REASON", "MONITOR", "ACKNOWLEDGED"]);
    for row in rows {
        table.row([
            row.cluster.as_deref().unwrap_or("(central)"),
            row.node.as_deref().unwrap_or_default(),
            row.alert,
            &row.since.map_or_else(String::new, |since| output::age(since, now)),
            &row.reason,
            &row.monitor,
            &row.acknowledged.as_ref().map_or_else(String::new, |known| acknowledged(known, now)),
        ]);
    }
    table
}

fn acknowledged(known: &Acknowledged, now: u64) -> String {
    let note = known.note.as_ref().map_or_else(String::new, |note| format!(": {note}"));
    match known.until {
        Some(until) => format!("silenced for {} by {}{note}", output::age(now, until), known.by),
        None => format!("{}{note}", known.by),
    }
}

/// Hosts on their way in as a table, ages counted from `now` (UTC ms).
#[must_use]
pub fn joining_hosts(rows: &[JoiningHostRow], now: u64) -> Table {
    let mut table = Table::new(&["HOST", "CLUSTER", "STATE", "ROLE", "EVIDENCE", "SEEN", "DISK", "REASON"]);
    for row in rows {
        table.row([
            if row.name.is_empty() { "(unnamed)" } else { &row.name },
            &row.cluster,
            row.state.as_str(),
            &row.role,
            &row.variant,
            &output::age(row.last_seen, now),
            &row.disk.to_string(),
            &reason(row).unwrap_or_default(),
        ]);
    }
    table
}

/// Why a host is not a member, or was refused something since, as far as there is a reason.
#[must_use]
pub fn reason(row: &JoiningHostRow) -> Option<String> {
    let why = match (&row.verdict, &row.detail) {
        (Some(verdict), Some(detail)) => Some(format!("{verdict}: {detail}")),
        (verdict, detail) => verdict.clone().or_else(|| detail.clone()),
    };
    why.filter(|_| row.state != HostState::Member || row.verdict.is_some()).or_else(|| row.warnings.clone())
}
