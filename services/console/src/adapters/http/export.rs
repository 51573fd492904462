//! The history as a file: `GET /api/v1/export`. It goes out as it is read, a part at a time, so that a long one takes no more memory than a short one.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use fleet_view::deltas::Table;
use fleet_view::history::export::{Changed, Header, Line, LineError, Replayed, VERSION};
use fleet_view::history::{Change, Transition, View, transitions};
use fleet_view::tables::counters;
use serde_json::Value;
use tokio::sync::mpsc;

use super::acting::RequestContext;
use super::history::{failed, span};
use super::{Site, reading, refused};
use crate::adapters::history::{ExportBase, ReadError, Reader};
use crate::published::TableName;
use crate::record::StoredEvent;
use crate::sight::Sight;

/// Exports at the same time: each keeps the disk busy.
pub(super) const EXPORTS_MAX: usize = 2;

/// Seconds after which a client that found no room should come again.
const RETRY_S: &str = "10";

/// Bytes of a part; the line that exceeds it ends the part.
const PART_BYTES: usize = 64 * 1024;

/// Parts that wait for a client.
const PARTS: usize = 4;

type Parts = mpsc::Sender<Result<Bytes, io::Error>>;

/// `GET /api/v1/export`
pub(super) async fn export(State(site): State<Site>, caller: RequestContext, query: RawQuery) -> Response {
    let (since, until) = match span(&query, site.clock.now().wall) {
        Ok(span) => span,
        Err((field, rule)) => return refused(StatusCode::BAD_REQUEST, field, rule),
    };
    let sight = match reading::sight(&site, &caller).await {
        Ok(sight) => sight,
        Err(response) => return response,
    };
    let Ok(place) = Arc::clone(&site.exports).try_acquire_owned() else {
        let reason = format!("there are {EXPORTS_MAX} exports already; try again");
        let response = refused(StatusCode::SERVICE_UNAVAILABLE, "export", reason);
        return ([(header::RETRY_AFTER, RETRY_S)], response).into_response();
    };
    let base = match site.history.export(since, until).await {
        Ok(base) => base,
        Err(error) => return failed("export", &error),
    };
    let (sender, receiver) = mpsc::channel(PARTS);
    let header = Header {
        version: VERSION,
        organisation: site.organisation.clone(),
        since: base.since,
        until: until.max(base.since),
    };
    let (history, slow_max) = (site.history.clone(), site.slow_max);
    tokio::spawn(async move {
        let narrowed = sight.map(Narrowed::new);
        let mut export = Export { parts: sender, slow_max, text: String::new(), changes: 0, narrowed };
        if let Some(Err(error)) = export.send_all(&header, base, &history).await {
            tracing::warn!(error = %error, "an export of the history has broken off");
            // The client sees that it is not whole: its connection ends before the last part.
            let _ = export.parts.send(Err(io::Error::other("the export has broken off"))).await;
        }
        drop(place);
    });
    let parts =
        futures::stream::unfold(
            receiver,
            |mut receiver| async move { receiver.recv().await.map(|part| (part, receiver)) },
        );
    let headers = [
        (header::CONTENT_TYPE, "application/jsonl"),
        (header::CACHE_CONTROL, "no-store"),
        (header::CONTENT_DISPOSITION, "attachment; filename=\"history.jsonl\""),
    ];
    (headers, Body::from_stream(parts)).into_response()
}

struct Export {
    parts: Parts,
    slow_max: Duration,
    /// What waits for the next part.
    text: String,
    changes: u64,
    /// What the client sees of it; None: everything.
    narrowed: Option<Narrowed>,
}

/// The tables of a user who sees some clusters only, as far as they were exported.
struct Narrowed {
    sight: Sight,
    /// All rows, of which those are made that the user sees.
    all: Replayed,
    shown: BTreeMap<View, Table>,
}

impl Narrowed {
    fn new(sight: Sight) -> Self {
        Self { sight, all: Replayed::default(), shown: BTreeMap::new() }
    }

    /// The tables that the user sees of those at the beginning. All names of clusters are known then, so that no sentence names one.
    fn begin(&mut self, at: u64, tables: BTreeMap<View, Table>) -> Result<BTreeMap<View, Table>, ReadError> {
        for (view, table) in tables {
            for (key, row) in table {
                let change = Change::Row(row);
                let line = Line::Changed(Box::new(Changed { at, view, key, change, event: None }));
                self.all.apply(&line).map_err(|error| ReadError::None(error.to_string()))?;
            }
        }
        let known = View::ALL.map(|view| (table_of(view), self.all.table(view))).into();
        self.shown = View::ALL.map(|view| (view, self.sight.table(&table_of(view), &known))).into();
        Ok(self.shown.clone())
    }

    /// What changes for the user.
    fn take(&mut self, changed: Changed) -> Result<Vec<Changed>, LineError> {
        let Changed { at, view, event, .. } = &changed;
        let (at, view) = (*at, *view);
        let event = event.clone();
        let key = changed.key.clone();
        self.all.apply(&Line::Changed(Box::new(changed)))?;
        // The counts of this user are made of the rows that they see.
        if view == View::Fleet {
            return Ok(Vec::new());
        }
        let clusters = self.all.table(View::Clusters);
        let seen = self.sight.names(&clusters);
        let now = self.all.table(view).get(&key).and_then(|row| seen.row(&table_of(view), &key, row));
        let shown = self.shown.entry(view).or_default();
        let only = |row: Option<Value>| row.map(|row| (key.clone(), row)).into_iter().collect::<Table>();
        let (before, after) = (only(shown.get(&key).cloned()), only(now.clone()));
        match now {
            Some(row) => shown.insert(key.clone(), row),
            None => shown.remove(&key),
        };
        let mut found = transitions(view, &before, &after);
        // The sentence of the time, which the console wrote then.
        if let [only] = &mut found[..] {
            only.event = event.and_then(|event| Some(seen.event(StoredEvent { number: 0, at, event })?.event));
        }
        if !found.is_empty() {
            let of = |view| self.shown.get(&view).cloned().unwrap_or_default();
            let [clusters, hosts, deployments, alerts, rollout] =
                [View::Clusters, View::Hosts, View::Deployments, View::Alerts, View::Rollout].map(of);
            let fleet = counters(&clusters, &hosts, &deployments, &alerts, &rollout);
            found.extend(transitions(View::Fleet, &of(View::Fleet), &fleet));
            self.shown.insert(View::Fleet, fleet);
        }
        let changed = |Transition { view, key, change, event }| Changed { at, view, key, change, event };
        Ok(found.into_iter().map(changed).collect())
    }
}

const fn table_of(view: View) -> TableName {
    match view {
        View::Fleet => TableName::Fleet,
        View::Clusters => TableName::Clusters,
        View::Hosts => TableName::Hosts,
        View::Deployments => TableName::Deployments,
        View::Alerts => TableName::Alerts,
        View::Services => TableName::Services,
        View::Rollout => TableName::Rollout,
    }
}

impl Export {
    /// Sends everything. None: the client is gone, or too slow.
    async fn send_all(&mut self, header: &Header, base: ExportBase, history: &Reader) -> Option<Result<(), ReadError>> {
        // Its fields are texts and numbers, so that it has a JSON form.
        self.text = serde_json::to_string(header).unwrap_or_default() + "\n";
        let ExportBase { since, tables, mut number, gaps } = base;
        for gap in gaps {
            self.line(Line::Gap(gap)).await?;
        }
        let tables = match &mut self.narrowed {
            None => tables,
            Some(narrowed) => match narrowed.begin(since, tables) {
                Ok(seen) => seen,
                Err(error) => return Some(Err(error)),
            },
        };
        for (view, table) in tables {
            for (key, row) in table {
                let change = Change::Row(row);
                self.write(Changed { at: since, view, key, change, event: None }).await?;
            }
        }
        loop {
            let changes = match history.changes(number, header.until).await {
                Ok(changes) => changes,
                Err(error) => return Some(Err(error)),
            };
            let Some((last, _)) = changes.last() else { break };
            number = *last;
            for (_, changed) in changes {
                self.changed(changed).await?;
            }
        }
        self.line(Line::End(self.changes)).await?;
        self.flush().await?;
        Some(Ok(()))
    }

    async fn changed(&mut self, changed: Changed) -> Option<()> {
        let seen = match &mut self.narrowed {
            None => vec![changed],
            Some(narrowed) => match narrowed.take(changed) {
                Ok(seen) => seen,
                Err(error) => {
                    tracing::warn!(error = %error, "a change of the history is not exported");
                    Vec::new()
                }
            },
        };
        for changed in seen {
            self.write(changed).await?;
        }
        Some(())
    }

    async fn write(&mut self, changed: Changed) -> Option<()> {
        self.changes += 1;
        self.line(Line::Changed(Box::new(changed))).await
    }

    async fn line(&mut self, line: Line) -> Option<()> {
        self.text.push_str(&line.to_text());
        if self.text.len() > PART_BYTES { self.flush().await } else { Some(()) }
    }

    async fn flush(&mut self) -> Option<()> {
        let part = Bytes::from(std::mem::take(&mut self.text));
        tokio::time::timeout(self.slow_max, self.parts.send(Ok(part))).await.ok()?.ok()
    }
}
