//! `sparkfleet alert ...`.

use std::time::Duration;

use anyhow::anyhow;
use serde_json::json;
use service_runtime::exit;

use crate::arguments::AlertCommand;
use crate::client::{self, Client, Scope};
use crate::listing::{self, Filter};
use crate::options::Options;
use crate::output;
use crate::usage_error::{not_found, of_request};
use fleet_view::{AlertRow, Fleet, requests};

/// Carries out an alert command.
///
/// # Errors
/// As documented for the exit codes.
pub async fn run(command: AlertCommand) -> anyhow::Result<()> {
    match command {
        AlertCommand::List { cluster, check, mut reading, options } => {
            // What is not known may be an alert.
            reading.complete |= check;
            let active = listing::run::<AlertRow>(Filter::of_cluster(cluster.as_deref()), &reading, &options).await?;
            if check && active > 0 {
                return Err(exit::with_code(exit::FAILURE, anyhow!("{active} active alerts")));
            }
            Ok(())
        }
        AlertCommand::Ack { about, alert, note, withdraw, options } => {
            let change = if withdraw { Change::Withdraw } else { Change::Acknowledge { note, silence: None } };
            acknowledge(&about, alert.as_deref(), &change, &options).await
        }
        AlertCommand::Silence { about, time, alert, note, options } => {
            let change = Change::Acknowledge { note, silence: Some(time) };
            acknowledge(&about, alert.as_deref(), &change, &options).await
        }
    }
}

/// What is to be said of alerts.
enum Change {
    Acknowledge { note: Option<String>, silence: Option<Duration> },
    Withdraw,
}

/// The active alerts about `about`: a cluster, or what an alert's subject is; of the kind `alert`, if one is named.
fn chosen(fleet: &Fleet, about: &str, alert: Option<&str>) -> Vec<AlertRow> {
    let is_about = |row: &AlertRow| row.cluster.as_deref() == Some(about) || row.subject() == about;
    let is_wanted = |row: &AlertRow| is_about(row) && alert.is_none_or(|alert| alert.eq_ignore_ascii_case(row.alert));
    fleet.alerts().into_iter().filter(is_wanted).collect()
}

async fn acknowledge(about: &str, alert: Option<&str>, change: &Change, options: &Options) -> anyhow::Result<()> {
    let mut client = Client::open(options, Scope::Fleet).await?;
    let rows = chosen(&client.fleet, about, alert);
    let chosen: Vec<&AlertRow> = rows.iter().collect();
    if chosen.is_empty() {
        let kind = alert.map_or_else(|| "active alert about".to_owned(), |alert| format!("active alert {alert} about"));
        return Err(not_found(&kind, about, client.fleet.alerts().iter().map(AlertRow::subject)));
    }
    let (wall, author) = (client.wall(), client::author());
    let request = match change {
        Change::Acknowledge { note, silence } => {
            requests::acknowledge_alerts(&client.fleet, &chosen, note.as_deref(), *silence, wall, author)
        }
        Change::Withdraw => requests::withdraw_acknowledgements(&client.fleet, &chosen, wall, author),
    };
    client.write(request.map_err(of_request)?).await?;
    let verb = match change {
        Change::Withdraw => "withdrawn",
        Change::Acknowledge { silence: Some(_), .. } => "silenced",
        Change::Acknowledge { silence: None, .. } => "acknowledged",
    };
    let lines = || rows.iter().map(|row| format!("{verb}: {} of {}", row.alert, row.subject())).collect();
    let keys: Vec<String> = rows.iter().map(AlertRow::key).collect();
    output::print(options.presentation.output, lines, &json!({ verb: keys }))?;
    client.close().await;
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables;
    use fleet_view::Acknowledged;

    #[test]
    fn an_alert_shows_what_it_is_about_since_when_and_why() {
        let row = |cluster: Option<&str>, node: Option<&str>, since| AlertRow {
            cluster: cluster.map(str::to_owned),
            node: node.map(str::to_owned),
            alert: "Offline",
            since,
            reason: "because".to_owned(),
            monitor: "ACME-Central/Monitor".to_owned(),
            acknowledged: None,
        };
        let known =
            Acknowledged { by: "console/ada".to_owned(), at: None, note: Some("on it".to_owned()), until: None };
        let silenced = Acknowledged { until: Some(3_662_000), ..known.clone() };
        let oven =
            |known| AlertRow { acknowledged: Some(known), ..row(Some("Paint_Shop"), Some("Oven_1"), Some(1_000)) };
        let rows = [oven(known), oven(silenced), row(None, None, None)];
        let expected = [
            "CLUSTER     NODE    ALERT    SINCE  REASON   MONITOR               ACKNOWLEDGED",
            "Paint_Shop  Oven_1  Offline  1m01s  because  ACME-Central/Monitor  console/ada: on it",
            "Paint_Shop  Oven_1  Offline  1m01s  because  ACME-Central/Monitor  silenced for 1h00m by console/ada: on it",
            "(central)           Offline         because  ACME-Central/Monitor",
        ];
        assert_eq!(tables::alerts(&rows, 62_000).lines(), expected);
    }
}
