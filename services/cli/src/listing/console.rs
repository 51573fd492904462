//! Lists of the web console: a table, and the stream of what changes in it.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use fleet_view::deltas::Table as Rows;
use http_body_util::BodyExt as _;
use hyper::body::{Bytes, Incoming};
use serde::Deserialize;
use serde_json::Value;
use service_runtime::exit;
use service_runtime::shutdown::Shutdown;
use sparkplug_mqtt::Clock;
use tokio::time::Instant;

use super::screen::Screen;
use super::{Filter, InConsole, REDRAW, is_away};
use crate::console_api::ConsoleApi;
use crate::look_up;
use crate::options::{ListOptions, Options};
use crate::output::remark;

/// A console sends something every 15 s; one that does not is gone.
const SILENCE_MAX: Duration = Duration::from_secs(45);

/// How long a console that has gone is left alone.
const AGAIN: Duration = Duration::from_secs(2);

/// Largest frame: some rows, of which a single one can be large.
const FRAME_BYTES_MAX: usize = 16 * 1024 * 1024;

#[derive(Debug, Deserialize)]
struct Page {
    rows: Vec<Value>,
}

/// Prints the list, and follows it if that is asked for.
pub(super) async fn run<L: InConsole>(
    address: &str,
    filter: Filter<'_>,
    reading: &ListOptions,
    options: &Options,
    screen: &mut Screen<L>,
) -> anyhow::Result<()> {
    let api = ConsoleApi::open(address, &reading.source.access, options.presentation.timeout)?;
    let clock = Clock::new();
    let table = L::TABLE;
    complete(&api).await?;
    let name = match filter.cluster {
        Some(wanted) => Some(look_up::cluster_among(rows(&api).await?, wanted)?.name),
        None => None,
    };
    let rows = rows(&api).await?;
    if !screen.show(filter.chosen(rows, name.as_deref()), clock.now().wall)? || !reading.watch {
        return Ok(());
    }
    again_and_again(async || follow(&api, table, (filter, name.as_deref()), clock, screen).await).await
}

/// Refuses to read from a console that does not know everything.
pub(super) async fn complete(api: &ConsoleApi) -> anyhow::Result<()> {
    check_complete(&table(api, "console").await?, api.address())
}

/// The rows of a table as this program knows them, sorted as those of the broker.
pub(super) async fn rows<L: InConsole>(api: &ConsoleApi) -> anyhow::Result<Vec<L>> {
    read(table(api, L::TABLE).await?.iter(), api.address())
}

/// The rows of a table.
pub(super) async fn table(api: &ConsoleApi, name: &str) -> anyhow::Result<Vec<Value>> {
    let page: Page = api.get(&format!("/api/v1/{name}"), &[]).await?;
    Ok(page.rows)
}

/// Refuses to show what a console knows that does not know everything.
fn check_complete(rows: &[Value], address: &str) -> anyhow::Result<()> {
    let row = rows.first().unwrap_or(&Value::Null);
    if row.get("complete") == Some(&Value::Bool(true)) {
        return Ok(());
    }
    let reason = row.pointer("/reasons/0").and_then(Value::as_str).unwrap_or("births are on their way");
    let error = anyhow!("the console at {address} does not know everything at present: {reason}");
    Err(exit::with_code(exit::UNAVAILABLE, error))
}

/// Rows of the console as this program knows them, by cluster and name.
pub(super) fn read<'a, L: InConsole>(rows: impl Iterator<Item = &'a Value>, address: &str) -> anyhow::Result<Vec<L>> {
    let rows = rows.filter(|row| L::has(row));
    let rows = rows.map(|row| L::of_row(row).ok_or_else(|| of_another_version(address)));
    let mut rows = rows.collect::<anyhow::Result<Vec<L>>>()?;
    L::sort(&mut rows);
    Ok(rows)
}

/// A row of the console cannot be read.
pub(super) fn of_another_version(address: &str) -> anyhow::Error {
    let error = anyhow!("the console at {address} is of another version, whose rows this program does not know");
    exit::with_code(exit::UNAVAILABLE, error)
}

/// Shows what changes until the reader of standard output has gone.
async fn follow<L: InConsole>(
    api: &ConsoleApi,
    table: &str,
    (filter, cluster): (Filter<'_>, Option<&str>),
    clock: Clock,
    screen: &mut Screen<L>,
) -> anyhow::Result<()> {
    follow_tables(api, &[table], |tables| {
        let rows = read(tables.rows(table), api.address())?;
        screen.show(filter.chosen(rows, cluster), clock.now().wall)
    })
    .await
}

/// Gives `show` the tables whenever one of them has changed, and every [`REDRAW`], because ages grow while nothing changes; until it returns false. A console that does not know everything shows nothing.
pub(super) async fn follow_tables(
    api: &ConsoleApi,
    names: &[&str],
    mut show: impl FnMut(&ConsoleTables) -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let query = [&["console"], names].concat().join(",");
    let body = api.open_stream("/api/v1/stream", &[("tables", query)]).await?;
    let mut stream =
        Stream { body, frames: Frames::default(), address: api.address().to_owned(), received: Instant::now() };
    let mut tables = ConsoleTables::default();
    let (mut was_complete, mut is_whole) = (true, false);
    loop {
        // Waiting for a frame is given up between its parts, none of which is lost.
        let Ok(frame) = tokio::time::timeout(REDRAW, stream.next()).await else {
            if is_whole && was_complete && !show(&tables)? {
                return Ok(());
            }
            continue;
        };
        is_whole = tables.take(&frame?)?;
        if !is_whole {
            continue;
        }
        let is_complete = check_complete(&tables.rows("console").cloned().collect::<Vec<_>>(), api.address());
        if let (Err(error), true) = (&is_complete, was_complete) {
            remark(&format!("{error}; what is shown is older"));
        }
        was_complete = is_complete.is_ok();
        if was_complete && !show(&tables)? {
            return Ok(());
        }
    }
}

/// Calls `follow` again when a console that has gone is there again, until it ends or a signal comes.
pub(super) async fn again_and_again(mut follow: impl AsyncFnMut() -> anyhow::Result<()>) -> anyhow::Result<()> {
    let shutdown = Shutdown::on_signals()?;
    let mut said = String::new();
    loop {
        let followed = tokio::select! {
            followed = follow() => followed,
            () = shutdown.wait() => return Ok(()),
        };
        match followed {
            Ok(()) => return Ok(()),
            Err(error) if is_away(&error) => {
                let text = format!("{error:#}; trying again");
                if text != said {
                    remark(&text);
                    said = text;
                }
            }
            Err(error) => return Err(error),
        }
        tokio::select! {
            () = tokio::time::sleep(AGAIN) => {}
            () = shutdown.wait() => return Ok(()),
        }
    }
}

/// A frame of the stream.
#[derive(Debug, Default, PartialEq)]
struct Frame {
    /// With this one all tables are as they were at one revision.
    is_whole: bool,
    data: String,
}

#[derive(Debug, Deserialize)]
struct Delta {
    table: String,
    full: bool,
    set: Vec<Value>,
    del: Vec<String>,
}

/// Tables as far as they have arrived.
#[derive(Debug, Default)]
pub(crate) struct ConsoleTables {
    /// By their names.
    tables: BTreeMap<String, Rows>,
}

impl ConsoleTables {
    /// The rows of a table; none of one that is not followed.
    pub(crate) fn rows(&self, table: &str) -> impl Iterator<Item = &Value> {
        self.tables.get(table).into_iter().flat_map(Rows::values)
    }

    /// Takes a frame over; true when all tables are whole.
    fn take(&mut self, frame: &Frame) -> anyhow::Result<bool> {
        if !frame.data.is_empty() {
            let delta: Delta = serde_json::from_str(&frame.data).context("a frame of the console cannot be read")?;
            let rows = self.tables.entry(delta.table).or_default();
            if delta.full {
                rows.clear();
            }
            for row in delta.set {
                let key = row.get("key").and_then(Value::as_str).context("a row of the console has no key")?;
                rows.insert(key.to_owned(), row);
            }
            rows.retain(|key, _| !delta.del.contains(key));
        }
        Ok(frame.is_whole)
    }
}

/// Server-sent events as they arrive.
struct Stream {
    body: Incoming,
    frames: Frames,
    address: String,
    /// When its last part arrived.
    received: Instant,
}

impl Stream {
    async fn next(&mut self) -> anyhow::Result<Frame> {
        let away =
            |reason: &str| exit::with_code(exit::UNAVAILABLE, anyhow!("the console at {} {reason}", self.address));
        loop {
            if let Some(frame) = self.frames.next() {
                return Ok(frame);
            }
            let part = tokio::time::timeout_at(self.received + SILENCE_MAX, self.body.frame()).await;
            match part.map_err(|_| away("has fallen silent"))? {
                Some(Ok(part)) => {
                    self.received = Instant::now();
                    self.frames.take(&part.into_data().unwrap_or_default())?;
                }
                Some(Err(_)) | None => return Err(away("has ended the stream")),
            }
        }
    }
}

/// What has arrived of a stream and is not a frame yet.
#[derive(Debug, Default)]
struct Frames {
    bytes: Vec<u8>,
}

impl Frames {
    fn take(&mut self, bytes: &Bytes) -> anyhow::Result<()> {
        self.bytes.extend_from_slice(bytes);
        if self.bytes.len() > FRAME_BYTES_MAX {
            return Err(anyhow!("a frame of the console is larger than {FRAME_BYTES_MAX} bytes"));
        }
        Ok(())
    }

    /// The next frame that is whole. Comments, of which the heartbeat is one, and hints when to come again are none.
    fn next(&mut self) -> Option<Frame> {
        loop {
            let end = self.bytes.windows(2).position(|pair| pair == b"\n\n")?;
            let text: Vec<u8> = self.bytes.drain(..end + 2).collect();
            let text = String::from_utf8_lossy(&text);
            let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim_start);
            if let Some(data) = field("data:") {
                return Some(Frame { is_whole: field("id:").is_some(), data: data.to_owned() });
            }
        }
    }
}

#[cfg(test)]
mod tests;
