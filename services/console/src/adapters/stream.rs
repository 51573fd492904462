//! Server-sent events: one stream a browser, with the tables that it follows.
//!
//! A frame holds what changed since the last one, at most ten a second for a table. A full table comes in parts, the first with `full: true`. Only the last frame of a turn has an `id`:
//! a client that comes again with it has seen all tables as they were at that revision. What a client does not read waits in a queue of [`QUEUE_FRAMES`] frames of
//! [`FRAME_BYTES`] each; one that reads nothing for [`SLOW_MAX`] is cut off.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fleet_view::deltas::Deltas;
use http_body_util::StreamBody;
use hyper::body::Frame;
use serde_json::json;
use service_runtime::shutdown::Shutdown;
use tokio::sync::mpsc;

use super::hub::{Hub, Watching};
use crate::published::{Published, TableName};

/// Bytes of a frame; a row that is larger has a frame of its own.
const FRAME_BYTES: usize = 192 * 1024;

/// Frames that wait for a client: with the one that is written, 1 MiB.
const QUEUE_FRAMES: usize = 4;

/// Time between two frames of a table.
const PACE: Duration = Duration::from_millis(100);

/// How long a client may take for its queue.
const SLOW_MAX: Duration = Duration::from_secs(20);

/// Something is sent so often, so that proxies and clients see that the stream lives.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// The body of an answer.
pub type StreamOfEvents = StreamBody<futures::stream::BoxStream<'static, Result<Frame<Bytes>, Infallible>>>;

/// Starts a stream. `last`: revision that the client has seen. `held`: what the client occupies, given back when it ends.
pub fn start<H: Send + 'static>(
    hub: Hub,
    watching: Watching,
    last: Option<u64>,
    held: H,
    shutdown: Shutdown,
) -> StreamOfEvents {
    let (sender, receiver) = mpsc::channel::<Bytes>(QUEUE_FRAMES);
    tokio::spawn(async move {
        feed(&hub, &watching, last, &sender, &shutdown).await;
        drop(held);
    });
    let frames = futures::stream::unfold(receiver, |mut receiver| async move {
        receiver.recv().await.map(|bytes| (Ok(Frame::data(bytes)), receiver))
    });
    StreamBody::new(Box::pin(frames))
}

async fn feed(hub: &Hub, watching: &Watching, last: Option<u64>, sender: &mpsc::Sender<Bytes>, shutdown: &Shutdown) {
    let mut changes = hub.changes();
    let mut seen: BTreeMap<TableName, u64> = BTreeMap::new();
    let mut first = true;
    loop {
        changes.mark_unchanged();
        let tables = hub.tables(watching.tables());
        let mut frames = Vec::new();
        for table in &tables {
            let from = seen.get(&table.name).copied().or(last);
            frames.extend(Frames::of(table, from));
            seen.insert(table.name.clone(), table.rev);
        }
        // Tables that were not published yet would be skipped by whoever resumes from here.
        let id = tables.iter().map(|table| table.rev).max().filter(|_| seen.len() == watching.tables().len());
        if first {
            first = false;
            if !send(sender, Bytes::from_static(b"retry: 1000\n\n")).await {
                return;
            }
        }
        let mut frames = frames.into_iter().flatten().peekable();
        while let Some(frame) = frames.next() {
            let id = id.filter(|_| frames.peek().is_none());
            if !send(sender, frame.to_bytes(id)).await {
                return;
            }
        }
        tokio::time::sleep(PACE).await;
        tokio::select! {
            changed = changes.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(HEARTBEAT) => if !send(sender, Bytes::from_static(b": alive\n\n")).await { return },
            () = sender.closed() => return,
            () = shutdown.wait() => return,
        }
    }
}

/// False: the client is gone, or too slow.
async fn send(sender: &mpsc::Sender<Bytes>, bytes: Bytes) -> bool {
    matches!(tokio::time::timeout(SLOW_MAX, sender.send(bytes)).await, Ok(Ok(())))
}

/// One frame.
#[derive(Debug)]
struct TableFrame {
    table: String,
    rev: u64,
    full: bool,
    /// Rows, each as JSON.
    set: Vec<String>,
    del: Vec<String>,
}

impl TableFrame {
    fn to_bytes(&self, id: Option<u64>) -> Bytes {
        let id = id.map_or_else(String::new, |id| format!("id: {id}\n"));
        let Self { table, rev, full, set, del } = self;
        let (table, set, del) = (json!(table), set.join(","), json!(del));
        let data = format!(r#"{{"del":{del},"full":{full},"rev":{rev},"set":[{set}],"table":{table}}}"#);
        Bytes::from(format!("event: table\n{id}data: {data}\n\n"))
    }
}

/// What brings a client from a revision to the present one, part by part, made as it is sent.
struct Frames {
    table: Arc<Published>,
    deltas: Option<Deltas>,
    next: Option<String>,
    del: Vec<String>,
    begun: bool,
    done: bool,
}

impl Frames {
    /// None: the client has seen it all.
    fn of(table: &Arc<Published>, from: Option<u64>) -> Option<Self> {
        let deltas = from.and_then(|rev| table.since(rev));
        if deltas.as_ref().is_some_and(Deltas::is_empty) {
            return None;
        }
        let del = deltas.as_ref().map(|deltas| deltas.del.iter().cloned().collect()).unwrap_or_default();
        Some(Self { table: Arc::clone(table), deltas, next: None, del, begun: false, done: false })
    }
}

impl Iterator for Frames {
    type Item = TableFrame;

    fn next(&mut self) -> Option<TableFrame> {
        if self.done {
            return None;
        }
        let rows = self.deltas.as_ref().map_or(&*self.table.rows, |deltas| &deltas.set);
        let full = self.deltas.is_none() && !self.begun;
        self.begun = true;
        let (mut set, mut bytes) = (Vec::new(), 0);
        let from = self.next.take().map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
        self.done = true;
        for (key, row) in rows.range::<String, _>((from, std::ops::Bound::Unbounded)) {
            let row = row.to_string();
            bytes += row.len();
            set.push(row);
            if bytes > FRAME_BYTES {
                self.next = Some(key.clone());
                self.done = false;
                break;
            }
        }
        let del = std::mem::take(&mut self.del);
        // A table ended where a part did.
        if set.is_empty() && del.is_empty() && !full {
            return None;
        }
        Some(TableFrame { table: self.table.name.to_string(), rev: self.table.rev, full, set, del })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fleet_view::deltas::Table;

    fn rows(count: usize, bytes: usize) -> Table {
        (0..count)
            .map(|n| (format!("{n:05}"), json!({ "key": format!("{n:05}"), "text": "x".repeat(bytes) })))
            .collect()
    }

    #[test]
    fn a_large_table_comes_in_parts_of_which_the_first_is_full() {
        let table = Arc::new(Published::first(TableName::Clusters, 7, rows(1_000, 2_000)));
        let frames: Vec<TableFrame> = Frames::of(&table, None).unwrap().collect();
        assert!(frames.len() > 8, "{}", frames.len());
        assert!(frames[0].full && frames[1..].iter().all(|frame| !frame.full));
        assert_eq!(frames.iter().map(|frame| frame.set.len()).sum::<usize>(), 1_000);
        assert!(frames.iter().all(|frame| frame.to_bytes(None).len() < FRAME_BYTES + 4_096));
    }

    #[test]
    fn an_empty_table_is_told_once() {
        let table = Arc::new(Published::first(TableName::Clusters, 7, Table::new()));
        assert_eq!(Frames::of(&table, None).unwrap().count(), 1);
        assert!(Frames::of(&table, Some(7)).is_none());
    }

    #[test]
    fn who_has_seen_a_revision_gets_what_changed_since() {
        let first = Published::first(TableName::Clusters, 7, rows(2, 1));
        let table = Arc::new(first.changed(8, rows(1, 1)).unwrap());
        let frames: Vec<TableFrame> = Frames::of(&table, Some(7)).unwrap().collect();
        assert_eq!((frames.len(), frames[0].full, &frames[0].del), (1, false, &vec!["00001".to_owned()]));
        let text = String::from_utf8(frames[0].to_bytes(Some(8)).to_vec()).unwrap();
        assert!(text.starts_with("event: table\nid: 8\ndata: {") && text.ends_with("}\n\n"), "{text}");
    }
}
