//! Server-sent events: one stream a browser, with the tables that it follows.
//!
//! A frame holds what changed since the last one, at most ten a second for a table. A full table comes in parts, the first with `full: true`. Only the last frame of a turn has an `id`:
//! a client that comes again with it has seen all tables as they were at that revision.
//!
//! Of a client the console keeps what it has seen of each table, `QUEUE_FRAMES` frames that wait, and the one that is being written: less than 1 MiB. A frame is made of the tables
//! as they are when there is room for it. So a slow client keeps no old tables alive, and skips what has changed twice. One that makes no room for [`SLOW_MAX`] is cut off.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fleet_view::deltas::Table;
use http_body_util::StreamBody;
use hyper::body::Frame;
use serde_json::json;
use service_runtime::shutdown::Shutdown;
use tokio::sync::mpsc;

use super::hub::{Hub, Watching};
use crate::published::{Published, TableName};
use crate::sight::Sight;

/// Bytes of a frame; the row that exceeds it ends the frame.
const FRAME_BYTES: usize = 64 * 1024;

/// Frames that wait for a client.
const QUEUE_FRAMES: usize = 4;

/// Time between two frames of a table.
const PACE: Duration = Duration::from_millis(100);

/// How long a client may take for its queue.
pub const SLOW_MAX: Duration = Duration::from_secs(20);

/// Something is sent so often, so that proxies and clients see that the stream lives.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// The body of an answer.
pub type StreamOfEvents = StreamBody<futures::stream::BoxStream<'static, Result<Frame<Bytes>, Infallible>>>;

/// A stream that begins.
#[derive(Debug)]
pub struct Stream<H> {
    /// Where tables come from.
    pub hub: Hub,
    /// What it follows.
    pub watching: Watching,
    /// What the client sees of it; None: everything.
    pub narrowed: Option<Narrowed>,
    /// Revision that the client has seen.
    pub last: Option<u64>,
    /// What the client occupies, given back when it ends.
    pub held: H,
    /// Usually [`SLOW_MAX`].
    pub slow_max: Duration,
    /// Ends it.
    pub shutdown: Shutdown,
}

/// Starts a stream.
pub fn start<H: Send + 'static>(stream: Stream<H>) -> StreamOfEvents {
    let (sender, receiver) = mpsc::channel::<Bytes>(QUEUE_FRAMES);
    tokio::spawn(async move {
        let Stream { hub, watching, narrowed, last, held, slow_max, shutdown } = stream;
        let queue = Queue { sender, slow_max };
        feed(&hub, &watching, narrowed, last, &queue, &shutdown).await;
        drop(held);
    });
    let frames = futures::stream::unfold(receiver, |mut receiver| async move {
        receiver.recv().await.map(|bytes| (Ok(Frame::data(bytes)), receiver))
    });
    StreamBody::new(Box::pin(frames))
}

/// The tables of a client that sees some clusters only, with revisions of their own: those of the console would show when something changes that the client does not see.
#[derive(Debug)]
pub struct Narrowed {
    sight: Sight,
    /// So many of the tables that are watched are shown; the others are what these are made of.
    shown: usize,
    rev: u64,
    /// Each shown table, with the revisions of those that it was made of.
    made: BTreeMap<TableName, (Vec<u64>, Arc<Published>)>,
}

impl Narrowed {
    /// Nothing is made yet.
    #[must_use]
    pub const fn new(sight: Sight, shown: usize) -> Self {
        Self { sight, shown, rev: 0, made: BTreeMap::new() }
    }

    /// The shown ones of the tables that are watched.
    fn tables(&mut self, names: &[TableName], all: &[Option<Arc<Published>>]) -> Vec<Option<Arc<Published>>> {
        let Some(known): Option<Vec<&Arc<Published>>> = all.iter().map(Option::as_ref).collect() else {
            return vec![None; self.shown];
        };
        let by_name: BTreeMap<&TableName, &Arc<Published>> = names.iter().zip(known).collect();
        names.iter().take(self.shown).map(|name| Some(self.table(name, &by_name))).collect()
    }

    fn table(&mut self, name: &TableName, all: &BTreeMap<&TableName, &Arc<Published>>) -> Arc<Published> {
        let sources = || Sight::needs(name).iter().chain([name]).filter_map(|name| Some((name, *all.get(name)?)));
        let revs: Vec<u64> = sources().map(|(_, table)| table.rev).collect();
        if let Some((made_of, table)) = self.made.get(name)
            && *made_of == revs
        {
            return Arc::clone(table);
        }
        let known = sources().map(|(name, table)| (name.clone(), Arc::clone(&table.rows))).collect();
        let rows = self.sight.table(name, &known);
        let before = self.made.remove(name).map(|(_, table)| table);
        let next = match &before {
            None => Some(Published::first(name.clone(), self.rev + 1, rows)),
            Some(before) => before.changed(self.rev + 1, rows),
        };
        self.rev += u64::from(next.is_some());
        let table = next
            .map(Arc::new)
            .or(before)
            .unwrap_or_else(|| Arc::new(Published::first(name.clone(), self.rev, Table::new())));
        self.made.insert(name.clone(), (revs, Arc::clone(&table)));
        table
    }
}

async fn feed(
    hub: &Hub,
    watching: &Watching,
    mut narrowed: Option<Narrowed>,
    last: Option<u64>,
    queue: &Queue,
    shutdown: &Shutdown,
) {
    let mut current = || {
        let tables = hub.tables(watching.tables());
        match &mut narrowed {
            None => tables,
            Some(narrowed) => narrowed.tables(watching.tables(), &tables),
        }
    };
    let mut changes = hub.changes();
    // A revision that this process has not reached is of another one.
    let last = last.filter(|last| *last <= *changes.borrow());
    let mut cursors = vec![Cursor { seen: last, pass: None }; current().len()];
    if !queue.send(Bytes::from_static(b"retry: 1000\n\n")).await {
        return;
    }
    loop {
        changes.mark_unchanged();
        for at in 0..cursors.len() {
            loop {
                let Some(room) = queue.room().await else { return };
                let tables = current();
                let Some(table) = &tables[at] else { break };
                let Some(frame) = cursors[at].next(table) else { break };
                room.send(frame.to_bytes(seen(&cursors, &tables)));
                if cursors[at].pass.is_none() {
                    break;
                }
            }
        }
        tokio::time::sleep(PACE).await;
        tokio::select! {
            changed = changes.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(HEARTBEAT) => if !queue.send(Bytes::from_static(b": alive\n\n")).await { return },
            () = queue.sender.closed() => return,
            () = shutdown.wait() => return,
        }
    }
}

/// What waits for a client.
struct Queue {
    sender: mpsc::Sender<Bytes>,
    slow_max: Duration,
}

impl Queue {
    /// Room for one frame. None: the client is gone, or too slow.
    async fn room(&self) -> Option<mpsc::Permit<'_, Bytes>> {
        tokio::time::timeout(self.slow_max, self.sender.reserve()).await.ok()?.ok()
    }

    /// False: the client is gone, or too slow.
    async fn send(&self, bytes: Bytes) -> bool {
        self.room().await.map(|room| room.send(bytes)).is_some()
    }
}

/// The revision at which a client has seen all tables; None: of some it has not.
fn seen(cursors: &[Cursor], tables: &[Option<Arc<Published>>]) -> Option<u64> {
    let mut all = cursors.iter().zip(tables);
    let is_current = all.all(|(cursor, table)| table.as_ref().is_some_and(|table| cursor.has_seen(table)));
    tables.iter().flatten().map(|table| table.rev).max().filter(|_| is_current)
}

/// What a client has seen of a table.
#[derive(Debug, Clone)]
struct Cursor {
    /// All up to this revision; None: nothing.
    seen: Option<u64>,
    /// What is on its way beyond that.
    pass: Option<Pass>,
}

/// A table, or what changed of it, that goes out in parts.
#[derive(Debug, Clone)]
struct Pass {
    /// The revision at which it began: what changed after that is for the next one.
    rev: u64,
    /// The last key that was sent.
    after: String,
}

impl Cursor {
    fn has_seen(&self, table: &Published) -> bool {
        self.pass.is_none() && self.seen.is_some_and(|seen| seen >= table.rev)
    }

    /// The next frame; None: the client has seen it all.
    fn next(&mut self, table: &Published) -> Option<TableFrame> {
        if self.has_seen(table) {
            return None;
        }
        let deltas = self.seen.and_then(|seen| table.since(seen));
        // What the client has seen is not known any more: it gets the full table from the beginning.
        if deltas.is_none() && self.seen.take().is_some() {
            self.pass = None;
        }
        let (rev, after) = self.pass.take().map_or((table.rev, None), |pass| (pass.rev, Some(pass.after)));
        let full = deltas.is_none() && after.is_none();
        let nothing = BTreeSet::new();
        let (rows, gone) = deltas.as_ref().map_or((&*table.rows, &nothing), |deltas| (&deltas.set, &deltas.del));
        let part = Part::of(rows, gone, after);
        match part.last {
            Some(after) => self.pass = Some(Pass { rev, after }),
            None => self.seen = Some(rev),
        }
        Some(TableFrame { table: table.name.to_string(), rev: table.rev, full, set: part.set, del: part.del })
    }
}

/// Rows and keys of rows that are gone, as many as a frame takes.
struct Part {
    set: Vec<String>,
    del: Vec<String>,
    /// The last of them, where there are more.
    last: Option<String>,
}

impl Part {
    /// What comes after that key.
    fn of(rows: &Table, gone: &BTreeSet<String>, after: Option<String>) -> Self {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut rows = rows.range((from.clone(), Bound::Unbounded)).peekable();
        let mut gone = gone.range((from, Bound::Unbounded)).peekable();
        let (mut part, mut bytes) = (Self { set: Vec::new(), del: Vec::new(), last: None }, 0);
        loop {
            // In the order of the keys, so that one key says how far it is.
            let is_gone = match (rows.peek(), gone.peek()) {
                (None, None) => return part,
                (Some((key, _)), Some(gone)) => gone < key,
                (row, _) => row.is_none(),
            };
            let key = if is_gone {
                gone.next().inspect(|key| {
                    bytes += key.len();
                    part.del.push((*key).clone());
                })
            } else {
                rows.next().map(|(key, row)| {
                    part.set.push(row.to_string());
                    bytes += part.set.last().map_or(0, String::len);
                    key
                })
            };
            if bytes > FRAME_BYTES && (rows.peek().is_some() || gone.peek().is_some()) {
                part.last = key.cloned();
                return part;
            }
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::published::TableName;
    use std::collections::BTreeMap;

    fn rows(count: usize, bytes: usize) -> Table {
        (0..count)
            .map(|n| (format!("{n:05}"), json!({ "key": format!("{n:05}"), "text": "x".repeat(bytes) })))
            .collect()
    }

    /// All frames that bring a client to the present.
    fn frames(cursor: &mut Cursor, table: &Published) -> Vec<TableFrame> {
        let mut frames = Vec::new();
        while !cursor.has_seen(table) {
            frames.extend(cursor.next(table));
        }
        frames
    }

    const fn new(seen: Option<u64>) -> Cursor {
        Cursor { seen, pass: None }
    }

    /// What a client makes of frames.
    fn take(held: &mut BTreeMap<String, String>, frame: &TableFrame) {
        if frame.full {
            held.clear();
        }
        for row in &frame.set {
            let value: serde_json::Value = serde_json::from_str(row).unwrap();
            held.insert(value["key"].as_str().unwrap().to_owned(), row.clone());
        }
        for key in &frame.del {
            held.remove(key);
        }
    }

    fn as_text(table: &Table) -> BTreeMap<String, String> {
        table.iter().map(|(key, row)| (key.clone(), row.to_string())).collect()
    }

    #[test]
    fn a_large_table_comes_in_parts_of_which_the_first_is_full() {
        let table = Published::first(TableName::Clusters, 7, rows(1_000, 2_000));
        let frames = frames(&mut new(None), &table);
        assert!(frames.len() > 8, "{}", frames.len());
        assert!(frames[0].full && frames[1..].iter().all(|frame| !frame.full));
        assert_eq!(frames.iter().map(|frame| frame.set.len()).sum::<usize>(), 1_000);
        assert!(frames.iter().all(|frame| frame.to_bytes(None).len() < FRAME_BYTES + 4_096));
    }

    #[test]
    fn keys_of_many_rows_that_are_gone_come_in_parts_too() {
        let long = |count: usize| (0..count).map(|n| (format!("{n:0200}"), json!({}))).collect::<Table>();
        let table = Published::first(TableName::Clusters, 7, long(3_000)).changed(8, long(0)).unwrap();
        let frames = frames(&mut new(Some(7)), &table);
        assert!(frames.len() > 3, "{}", frames.len());
        assert_eq!(frames.iter().map(|frame| frame.del.len()).sum::<usize>(), 3_000);
        assert!(frames.iter().all(|frame| !frame.full && frame.to_bytes(None).len() < FRAME_BYTES * 5 / 4));
    }

    /// Each part is made of the table as it is then, and in the end the client has what the table is.
    #[test]
    fn a_table_that_changes_while_its_parts_are_sent_arrives_as_it_is_in_the_end() {
        let mut table = Published::first(TableName::Clusters, 7, rows(300, 2_000));
        let (mut cursor, mut held, mut parts) = (new(None), BTreeMap::new(), 0);
        while !cursor.has_seen(&table) {
            take(&mut held, &cursor.next(&table).unwrap());
            parts += 1;
            if parts < 4 {
                let mut next = (*table.rows).clone();
                next.remove(&format!("{:05}", parts * 3));
                next.remove(&format!("{:05}", 299 - parts));
                let changed = format!("{:05}", 20 + parts);
                next.insert(changed.clone(), json!({ "key": changed, "text": "changed" }));
                next.insert(format!("new {parts}"), json!({ "key": format!("new {parts}") }));
                table = table.changed(7 + parts, next).unwrap();
            }
        }
        assert!(parts > 4, "{parts}");
        assert_eq!(held, as_text(&table.rows));
    }

    #[test]
    fn an_empty_table_is_sent_once() {
        let table = Published::first(TableName::Clusters, 7, Table::new());
        assert_eq!(frames(&mut new(None), &table).len(), 1);
        assert!(new(Some(7)).next(&table).is_none());
    }

    #[test]
    fn who_has_seen_a_revision_gets_what_changed_since() {
        let first = Published::first(TableName::Clusters, 7, rows(2, 1));
        let table = first.changed(8, rows(1, 1)).unwrap();
        let frames = frames(&mut new(Some(7)), &table);
        assert_eq!((frames.len(), frames[0].full, &frames[0].del), (1, false, &vec!["00001".to_owned()]));
        let text = String::from_utf8(frames[0].to_bytes(Some(8)).to_vec()).unwrap();
        assert!(text.starts_with("event: table\nid: 8\ndata: {") && text.ends_with("}\n\n"), "{text}");
    }
}
