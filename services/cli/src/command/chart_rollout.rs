//! `sparkfleet rollout ...`: rollouts of chart templates, and what operators decide about them.

use serde_json::{Value, json};

use crate::arguments::RolloutCommand;
use crate::client::{self, Client, Scope};
use crate::console_api::ConsoleApi;
use crate::listing;
use crate::look_up;
use crate::options::{Options, ReadingSource};
use crate::output::{self, Table};
use crate::usage_error::of_request;
use fleet_view::requests::{self, RolloutChange};
use fleet_view::tables::Rows;

/// Carries out a rollout command.
///
/// # Errors
/// As documented for the exit codes.
pub async fn run(command: RolloutCommand) -> anyhow::Result<()> {
    match command {
        RolloutCommand::List { source, options } => list(&source, &options).await,
        RolloutCommand::Hold { chart, note, options } => {
            decide(&chart, None, note, &options, |_| RolloutChange::Hold).await
        }
        RolloutCommand::Resume { chart, options } => {
            decide(&chart, None, None, &options, |_| RolloutChange::Resume).await
        }
        RolloutCommand::Free { chart, cluster, note, withdraw, options } => {
            let change = if withdraw { RolloutChange::WaitFor } else { RolloutChange::Pass };
            decide(&chart, Some(&cluster), note, &options, change).await
        }
    }
}

async fn decide(
    chart: &str,
    cluster: Option<&str>,
    note: Option<String>,
    options: &Options,
    change: impl Fn(uuid::Uuid) -> RolloutChange,
) -> anyhow::Result<()> {
    let mut client = Client::open(options, Scope::Fleet).await?;
    let template = look_up::chart(&client.fleet, chart)?;
    let cluster = cluster.map(|wanted| look_up::cluster_entry(&client.fleet, wanted)).transpose()?;
    let change = change(cluster.as_ref().map(|(uuid, _)| *uuid).unwrap_or_default());
    let (wall, author) = (client.wall(), client::author());
    let request = requests::decide_rollout(&client.fleet, template, change, note.as_deref(), wall, author);
    client.write(request.map_err(of_request)?).await?;
    let name = client.fleet.name_of(template);
    let of = cluster.map(|(_, entry)| entry.name).unwrap_or_default();
    let (done, line) = match change {
        RolloutChange::Hold => ("held", format!("held: rollout of {name}")),
        RolloutChange::Resume => ("resumed", format!("resumed: rollout of {name}")),
        RolloutChange::Pass(_) => ("freed", format!("freed: later waves of {name} do not wait for {of}")),
        RolloutChange::WaitFor(_) => ("withdrawn", format!("withdrawn: later waves of {name} wait for {of}")),
    };
    output::print(options.presentation.output, || vec![line.clone()], &json!({ done: template }))?;
    client.close().await;
    Ok(())
}

async fn list(source: &ReadingSource, options: &Options) -> anyhow::Result<()> {
    let ask_console = async |api: &ConsoleApi| listing::table(api, "rollout").await;
    let ask_broker = async || {
        let client = Client::open(options, Scope::Fleet).await?;
        let rows = Rows::of(&client.fleet).rollout().into_values().collect();
        client.close().await;
        Ok(rows)
    };
    let rows: Vec<Value> = listing::of_either(source, options, ask_console, ask_broker).await?;
    output::print(options.presentation.output, || shown(&rows), &json!(rows))
}

/// For people.
fn shown(rows: &[Value]) -> Vec<String> {
    let mut lines = Table::new(&["CHART", "WAVE", "CLUSTER", "STATE", "REASON"]);
    let text = |value: &Value, field: &str| value[field].as_str().unwrap_or_default().to_owned();
    for row in rows {
        let chart = text(row, "template");
        if let Some(hold) = row.get("hold").filter(|hold| !hold.is_null()) {
            lines.row([chart.clone(), String::new(), String::new(), "held".to_owned(), decided("held", hold)]);
        }
        for wave in row["waves"].as_array().into_iter().flatten() {
            for cluster in wave["clusters"].as_array().into_iter().flatten() {
                let passed = cluster.get("passed").filter(|passed| !passed.is_null());
                let passed = passed.map(|passed| decided("later waves do not wait for it", passed));
                let reasons = [Some(text(cluster, "reason")).filter(|reason| !reason.is_empty()), passed];
                let reasons: Vec<String> = reasons.into_iter().flatten().collect();
                let number = wave["wave"].to_string();
                lines.row([chart.clone(), number, text(cluster, "name"), text(cluster, "state"), reasons.join("; ")]);
            }
        }
    }
    if lines.is_empty() { vec!["no chart template is in use".to_owned()] } else { lines.shown() }
}

/// What an operator decided, with their name and reason.
fn decided(what: &str, decision: &Value) -> String {
    let by = decision["by"].as_str().unwrap_or_default();
    let note = decision["note"].as_str().map_or_else(String::new, |note| format!(": {note}"));
    format!("{what}, says {by}{note}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rollout_shows_its_waves_and_who_decided_what() {
        let decision = json!({ "by": "console/token:ada", "at": 5, "note": "wait for monday" });
        let row = json!({ "template": "Edge agent", "hold": decision, "waves": [
            { "wave": 1, "clusters": [{ "name": "Test_Bay", "state": "blocks", "reason": "not ready", "passed": decision }] },
            { "wave": 9, "clusters": [{ "name": "Paint_Shop", "state": "waits", "reason": null, "passed": null }] },
        ] });
        let expected = [
            "CHART       WAVE  CLUSTER     STATE   REASON",
            "Edge agent                    held    held, says console/token:ada: wait for monday",
            "Edge agent  1     Test_Bay    blocks  not ready; later waves do not wait for it, says console/token:ada: wait for monday",
            "Edge agent  9     Paint_Shop  waits",
        ];
        assert_eq!(shown(&[row]), expected);
    }
}
