//! `sparkfleet alert ...`.

use anyhow::anyhow;
use serde_json::json;
use service_runtime::exit;

use crate::arguments::AlertCommand;
use crate::client::{Client, Scope};
use crate::options::Options;
use crate::output;
use crate::{listing, look_up, tables};
use fleet_view::{AlertRow, Fleet};

/// Carries out an alert command.
///
/// # Errors
/// As documented for the exit codes.
pub async fn run(command: AlertCommand) -> anyhow::Result<()> {
    let AlertCommand::List { cluster, check, watch, options } = command;
    if watch {
        return listing::run_on_broker::<AlertRow>(cluster.as_deref(), watch, &options).await;
    }
    list(cluster.as_deref(), check, &options).await
}

/// All alerts, or those of one cluster: as many as its row counts.
pub(super) fn rows(fleet: &Fleet, cluster: Option<&str>) -> Vec<AlertRow> {
    let mut rows = fleet.alerts();
    match cluster {
        Some(name) => rows.retain(|row| row.cluster.as_deref() == Some(name)),
        None => rows.extend(fleet.central_monitor_away()),
    }
    rows
}

async fn list(cluster: Option<&str>, check: bool, options: &Options) -> anyhow::Result<()> {
    let client = Client::open(options, Scope::Fleet).await?;
    let cluster = cluster.map(|wanted| look_up::cluster(&client.fleet, wanted)).transpose()?;
    let rows = rows(&client.fleet, cluster.as_ref().map(|row| row.name.as_str()));
    let now = client.wall();
    let lines =
        || if rows.is_empty() { vec!["no active alerts".to_owned()] } else { tables::alerts(&rows, now).shown() };
    output::print(options.presentation.output, lines, &json!(rows))?;
    client.close().await;
    if check && !rows.is_empty() {
        return Err(exit::with_code(exit::FAILURE, anyhow!("{} active alerts", rows.len())));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alert_shows_what_it_is_about_since_when_and_why() {
        let row = |cluster: Option<&str>, node: Option<&str>, since| AlertRow {
            cluster: cluster.map(str::to_owned),
            node: node.map(str::to_owned),
            alert: "Offline",
            since,
            reason: "because".to_owned(),
            monitor: "ACME-Central/Monitor".to_owned(),
        };
        let rows = [row(Some("Paint_Shop"), Some("Oven_1"), Some(1_000)), row(None, None, None)];
        let expected = [
            "CLUSTER     NODE    ALERT    SINCE  REASON   MONITOR",
            "Paint_Shop  Oven_1  Offline  1m01s  because  ACME-Central/Monitor",
            "(central)           Offline         because  ACME-Central/Monitor",
        ];
        assert_eq!(tables::alerts(&rows, 62_000).lines(), expected);
    }
}
