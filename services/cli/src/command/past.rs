//! `sparkfleet events` and `sparkfleet at`: what happened, and what was there at a time. The console keeps it; this asks the console.

mod export;

use anyhow::anyhow;
use fleet_view::deltas::Table as Rows;
use fleet_view::history::{Change, View, transitions};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sparkplug_mqtt::Clock;

use crate::arguments::past::{AtArguments, EventsArguments, PastTable};
use crate::console_api::ConsoleApi;
use crate::output::{self, Table};
use crate::usage_error::usage;

/// Events of one request.
const PAGE: u32 = 1_000;

#[derive(Debug, Deserialize)]
struct Page {
    rows: Vec<EventRow>,
    /// A number, or a text where the credential is for some clusters.
    next: Option<Value>,
    gaps: Vec<Gap>,
    begins: Option<u64>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct EventRow {
    key: String,
    at: u64,
    cluster: Option<String>,
    kind: String,
    subject: String,
    old: Option<String>,
    new: Option<String>,
    text: String,
    request: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Gap {
    since: u64,
    until: Option<u64>,
    reason: String,
}

#[derive(Debug, Deserialize)]
struct Past {
    rows: Vec<Value>,
    gaps: Vec<(u64, Option<u64>)>,
}

/// Prints what happened.
///
/// # Errors
/// As documented for the exit codes.
pub async fn events(arguments: &EventsArguments) -> anyhow::Result<()> {
    let now = Clock::new().now().wall;
    let (since, until) = (arguments.since.at(now), arguments.until.map_or(now, |until| until.at(now)));
    if since > until {
        return Err(usage(anyhow!("--since is later than --until")));
    }
    let api = ConsoleApi::open(&arguments.address.console, &arguments.address.access, arguments.presentation.timeout)?;
    if let Some(file) = &arguments.export {
        let changes = export::write(&api, (since, until), file).await?;
        let value = json!({ "file": file, "changes": changes });
        let lines = || {
            vec![format!(
                "{changes} changes; `sparkfleet up --replay {}` shows them",
                output::shell_argument(&file.to_string_lossy())
            )]
        };
        return output::print(arguments.presentation.output, lines, &value);
    }
    let (mut events, mut before, mut gaps, mut begins) = (Vec::new(), None, Vec::new(), None);
    let is_more = loop {
        let wanted = (arguments.limit as usize).saturating_sub(events.len());
        if wanted == 0 {
            break true;
        }
        let limit = PAGE.min(u32::try_from(wanted).unwrap_or(PAGE));
        let mut query = vec![("since", since.to_string()), ("until", until.to_string()), ("limit", limit.to_string())];
        query.extend(arguments.cluster.clone().map(|cluster| ("cluster", cluster)));
        query.extend(
            before
                .as_ref()
                .map(|before: &Value| ("before", before.as_str().map_or_else(|| before.to_string(), str::to_owned))),
        );
        let page: Page = api.get("/api/v1/events", &query).await?;
        events.extend(page.rows);
        (gaps, begins, before) = (page.gaps, page.begins, page.next);
        if before.is_none() {
            break false;
        }
    };
    events.reverse();
    let value = json!({ "events": events, "gaps": gaps, "begins": begins, "complete": !is_more });
    let lines = || event_lines(&events, &gaps, begins.filter(|begins| *begins > since), is_more);
    output::print(arguments.presentation.output, lines, &value)
}

/// Events and gaps, the earliest first.
fn event_lines(events: &[EventRow], gaps: &[Gap], begins: Option<u64>, is_more: bool) -> Vec<String> {
    // Gaps before the first event that is shown say nothing about it.
    let from = events.first().filter(|_| is_more).map_or(0, |event| event.at);
    let of_gap = |gap: &Gap| {
        let until = gap.until.map_or_else(|| "now".to_owned(), output::moment);
        (gap.since, ["(gap)".to_owned(), format!("nothing was received until {until}: {}", gap.reason)])
    };
    let of_event = |event: &EventRow| {
        let request = event.request.as_ref().map_or_else(String::new, |request| format!(" [request {request}]"));
        (
            event.at,
            [event.cluster.clone().unwrap_or_else(|| "(central)".to_owned()), format!("{}{request}", event.text)],
        )
    };
    let shown = gaps.iter().filter(|gap| gap.until.is_none_or(|until| until >= from));
    let mut rows: Vec<(u64, [String; 2])> = shown.map(of_gap).chain(events.iter().map(of_event)).collect();
    rows.sort_by_key(|(at, _)| *at);
    let mut table = Table::new(&["TIME", "CLUSTER", "EVENT"]);
    for (at, [cluster, text]) in rows {
        table.row([output::moment(at), cluster, text]);
    }
    let mut lines = if table.is_empty() { vec!["no events".to_owned()] } else { table.shown() };
    lines.extend(begins.map(|begins| format!("the history begins at {}", output::moment(begins))));
    lines.extend(is_more.then(|| "there are earlier events: --limit says how many are shown".to_owned()));
    lines
}

/// Prints what was there at a time, or what changed until another.
///
/// # Errors
/// As documented for the exit codes.
pub async fn at(arguments: &AtArguments) -> anyhow::Result<()> {
    let now = Clock::new().now().wall;
    let api = ConsoleApi::open(&arguments.address.console, &arguments.address.access, arguments.presentation.timeout)?;
    let time = arguments.time.at(now);
    let Some(second) = arguments.diff else {
        let table = arguments.table.unwrap_or(PastTable::Clusters);
        let (rows, gap) = read(&api, table.view(), time, arguments.cluster.as_deref()).await?;
        let value = json!({ "at": time, "rows": rows.values().collect::<Vec<_>>(), "gap": gap });
        let lines = || state_lines(table, &rows, gap, time);
        return output::print(arguments.presentation.output, lines, &value);
    };
    let second = second.at(now);
    let tables = arguments.table.map_or_else(|| PastTable::ALL.to_vec(), |table| vec![table]);
    let mut found = Vec::new();
    for view in tables.into_iter().map(PastTable::view) {
        let (old, _) = read(&api, view, time, arguments.cluster.as_deref()).await?;
        let (new, _) = read(&api, view, second, arguments.cluster.as_deref()).await?;
        found.extend(differences(view, &old, &new));
    }
    let lines = || {
        let mut table = Table::new(&["TABLE", "CLUSTER", "DIFFERENCE"]);
        for row in &found {
            table.row([row.table.to_owned(), row.cluster.clone(), row.text.clone()]);
        }
        if table.is_empty() { vec!["nothing is different".to_owned()] } else { table.shown() }
    };
    output::print(arguments.presentation.output, lines, &json!({ "from": time, "to": second, "differences": found }))
}

/// A row that is another one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Difference {
    table: &'static str,
    key: String,
    cluster: String,
    text: String,
    /// Names of the fields that differ; empty where the row came or went.
    fields: Vec<String>,
}

fn differences(view: View, old: &Rows, new: &Rows) -> Vec<Difference> {
    let of = |transition: fleet_view::history::Transition| {
        let row = new.get(&transition.key).or_else(|| old.get(&transition.key));
        let cluster = row.and_then(|row| view.cluster_of(row)).unwrap_or("(central)").to_owned();
        let fields: Vec<String> = match transition.change {
            Change::Fields { set, del } => set.into_iter().map(|(name, _)| name).chain(del).collect(),
            Change::Row(_) | Change::Gone => Vec::new(),
        };
        let name = row.map_or_else(String::new, |row| text(row, "/name"));
        let text = transition.event.map_or_else(|| format!("{name}: {}", fields.join(", ")), |event| event.text);
        Difference { table: view.as_str(), key: transition.key, cluster, text, fields }
    };
    transitions(view, old, new).into_iter().map(of).collect()
}

/// The rows of a table at a time, and the gap that the time is in.
async fn read(
    api: &ConsoleApi,
    view: View,
    at: u64,
    cluster: Option<&str>,
) -> anyhow::Result<(Rows, Option<(u64, Option<u64>)>)> {
    let past: Past = api.get(&format!("/api/v1/{view}"), &[("at", at.to_string())]).await?;
    let is_wanted = |row: &Value| cluster.is_none_or(|wanted| view.cluster_of(row) == Some(wanted));
    let rows = past.rows.into_iter().filter(is_wanted).map(|row| (text(&row, "/key"), row)).collect();
    Ok((rows, past.gaps.first().copied()))
}

type Column = (&'static str, &'static str);

const fn columns(table: PastTable) -> &'static [Column] {
    match table {
        PastTable::Clusters => &[
            ("CLUSTER", "/name"),
            ("HEALTH", "/health"),
            ("SETUP", "/setup"),
            ("EDGE", "/edge"),
            ("HOSTS", "/hosts"),
            ("DEPLOYMENTS", "/deployments"),
            ("ALERTS", "/alerts"),
            ("REASON", "/reasons/0"),
        ],
        PastTable::Hosts => &[
            ("CLUSTER", "/cluster"),
            ("HOST", "/name"),
            ("HEALTH", "/health"),
            ("ROLE", "/role"),
            ("MEMBER", "/member"),
            ("READY", "/ready"),
            ("REASON", "/reasons/0"),
        ],
        PastTable::Deployments => &[
            ("CLUSTER", "/cluster"),
            ("DEPLOYMENT", "/name"),
            ("HEALTH", "/health"),
            ("CHART", "/chart"),
            ("HOST", "/host"),
            ("STATE", "/state"),
            ("READY", "/ready"),
            ("REASON", "/reasons/0"),
        ],
        PastTable::Alerts => &[
            ("CLUSTER", "/cluster"),
            ("NODE", "/node"),
            ("ALERT", "/alert"),
            ("SINCE", "/since"),
            ("REASON", "/reason"),
            ("MONITOR", "/monitor"),
        ],
        PastTable::Services => {
            &[("SERVICE", "/key"), ("ALIVE", "/alive"), ("VERSION", "/version"), ("SINCE", "/since")]
        }
    }
}

fn state_lines(table: PastTable, rows: &Rows, gap: Option<(u64, Option<u64>)>, at: u64) -> Vec<String> {
    let columns = columns(table);
    let mut shown = Table::new(&columns.iter().map(|(title, _)| *title).collect::<Vec<_>>());
    for row in rows.values() {
        shown.row(columns.iter().map(|(title, place)| match (*title, row.pointer(place).and_then(Value::as_u64)) {
            ("SINCE", Some(since)) => output::age(since, at),
            _ => text(row, place),
        }));
    }
    let mut lines = vec![format!("state at {}", output::moment(at))];
    lines.extend(gap.map(|(since, _)| {
        format!("nothing was received from {} on: this is what was known then", output::moment(since))
    }));
    lines.extend(if shown.is_empty() { vec!["nothing was there".to_owned()] } else { shown.shown() });
    lines
}

/// A field for people.
fn text(row: &Value, place: &str) -> String {
    match row.pointer(place) {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Object(count)) if count.contains_key("total") => {
            format!("{}/{}", count.get("ready").unwrap_or(&Value::Null), count.get("total").unwrap_or(&Value::Null))
        }
        Some(other) => other.to_string(),
    }
}

#[cfg(test)]
mod tests;
