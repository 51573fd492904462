//! The console's history: how fast it records, and how long an answer takes when it holds many events.

use std::io::{self, Write as _};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{bail, ensure};
use console::adapters::history::{EventQuery, History, Reader};
use console::record::{Record, Retention, StoreEvent, Tables};
use fleet_view::deltas::Table as Rows;
use fleet_view::history::{Transition, View, transitions};
use serde_json::json;
use sparkplug_mqtt::Clock;

use crate::figures::{self, Distribution, HEADS, Table, ms};

/// Clusters whose rows change.
const CLUSTERS: u64 = 1_000;
/// Transitions of a record: what a fleet that changes all the time has in a quarter of a second.
const RECORD: u64 = 500;
/// Transitions between two snapshots, as the console decides for so many rows.
const SNAPSHOT: u64 = 4_000;
/// Answers of each kind.
const ANSWERS: u64 = 100;

/// Runs the measurement.
///
/// # Errors
/// The store cannot be written or read.
pub async fn run(events: u64) -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let keep = Retention { days: 36_500, bytes: u64::MAX };
    let mut history = History::start(directory.path(), Some(keep), Clock::new());
    let StoreEvent::Opened(_) = history.recv().await else { bail!("the history cannot be opened") };
    let (start, tenth) = (Instant::now(), (events / RECORD / 10).max(1));
    let mut tables: Tables = View::ALL.map(|view| (view, Arc::new(Rows::new()))).into();
    let mut rows = Rows::new();
    let mut since_snapshot = SNAPSHOT;
    for number in 0..events / RECORD {
        let mut found = Vec::new();
        for change in 0..RECORD {
            found.extend(changed(&mut rows, number * RECORD + change));
        }
        let is_due = since_snapshot >= SNAPSHOT;
        let snapshot = is_due.then(|| {
            tables.insert(View::Clusters, Arc::new(rows.clone()));
            tables.clone()
        });
        since_snapshot = if is_due { RECORD } else { since_snapshot + RECORD };
        let record = Record { transitions: found, snapshot, ..Record::of_time(time_of(number)) };
        history.record(Arc::new(record));
        ensure!(matches!(history.recv().await, StoreEvent::Stored { .. }), "a record is not stored");
        if (number + 1) % tenth == 0 {
            writeln!(
                io::stderr(),
                "history: {} of {events} events after {:.0?}",
                (number + 1) * RECORD,
                start.elapsed()
            )?;
        }
    }
    let took = start.elapsed();
    let reader = history.reader();
    let (states, pages, of_cluster) = answers(&reader, events).await?;
    history.stop().await;
    let bytes = std::fs::metadata(directory.path().join("history/history.sqlite"))?.len();
    let (per_second, per_event) = (events as f64 / took.as_secs_f64(), bytes / events);
    let about = format!(
        "{CLUSTERS} clusters, {events} transitions that are events; {per_second:.0} a second are stored, {per_event} bytes each ({}).",
        figures::profile()
    );
    let heads: Vec<&str> = ["answer"].into_iter().chain(HEADS).collect();
    let table = Table::begin("history", &about, &heads);
    for (name, times) in [
        ("all clusters at a time", states),
        ("100 events before a time", pages),
        ("100 events of one cluster", of_cluster),
    ] {
        table.row(&[vec![name.to_owned()], times.quantiles().map(ms).to_vec()].concat());
    }
    Ok(())
}

fn time_of(number: u64) -> u64 {
    1_700_000_000_000 + number * 250
}

/// The next change of one cluster.
fn changed(rows: &mut Rows, number: u64) -> Vec<Transition> {
    let key = format!("{:036}", number * 7_919 % CLUSTERS);
    let health = ["good", "working", "attention", "away"][usize::try_from(number / CLUSTERS % 4).unwrap_or_default()];
    let steps = ["Spec", "Address", "Flux", "Git", "Repository", "Ready"]
        .map(|name| json!({ "name": name, "state": "done", "since": null }));
    let row = json!({
        "key": key, "name": format!("Cluster_{key}"), "group": format!("ACME-Cluster_{key}"), "setup": "ready", "edge": "alive",
        "health": health, "reasons": ["edge sync is not alive"], "since": number, "hosts": { "ready": 3, "total": 3 },
        "steps": steps,
        "git": { "wanted": "0123456789012345678901234567890123456789", "applied": "0123456789012345678901234567890123456789" },
    });
    let of = |row: &serde_json::Value| Rows::from([(key.clone(), row.clone())]);
    let old = rows.get(&key).map(of).unwrap_or_default();
    let found = transitions(View::Clusters, &old, &of(&row));
    rows.insert(key.clone(), row);
    found
}

async fn answers(reader: &Reader, events: u64) -> anyhow::Result<(Distribution, Distribution, Distribution)> {
    let (mut states, mut pages, mut of_cluster) =
        (Distribution::default(), Distribution::default(), Distribution::default());
    let records = events / RECORD;
    for n in 0..ANSWERS {
        let at = time_of((n * 7_919 + 1) % records);
        let start = Instant::now();
        let past = reader.at(View::Clusters, at).await?;
        states.push(start.elapsed());
        ensure!(!past.rows.is_empty(), "there were clusters");
        let query = EventQuery { since: 0, until: at, clusters: None, subject: None, before: None, limit: 100 };
        let start = Instant::now();
        ensure!(!reader.events(&query).await?.events.is_empty(), "there were events");
        pages.push(start.elapsed());
        let cluster = format!("Cluster_{:036}", n % CLUSTERS);
        let start = Instant::now();
        reader.events(&EventQuery { clusters: Some(vec![cluster]), ..query }).await?;
        of_cluster.push(start.elapsed());
    }
    Ok((states, pages, of_cluster))
}
