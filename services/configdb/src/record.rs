//! The record of writes, `<state_dir>/audit.jsonl`: who wrote what, and when.
//!
//! It is made of the history, which is committed with each write. A crash, a full disk or a rotation leaves no gap in it: what is missing is added at the next start, or when there is
//! room. A write is recorded before it is answered, but an answer does not wait for a record that cannot be kept, nor for the disk. What a power cut takes of the file is in the history.

use std::io;
use std::path::{Path, PathBuf};

use configdb_contract::names;
use configdb_schema::Document as _;
use configdb_schema::document::ApiToken;
use serde::{Deserialize, Serialize};
use service_runtime::atomic_file;
use service_runtime::record::{self, RecordFile};
use sparkplug::replication::{Point, Timelines};

use crate::builtin;
use crate::store::{Store, Transaction, WriteRow};

/// File that says how far the record is, for the time after `audit.jsonl` was moved away.
const MARK_FILE: &str = "audit.position";
/// Lines that are read and written at a time.
const LINES: u64 = 500;
/// Behind every line of a revision.
const END: u64 = i64::MAX.unsigned_abs();

/// State of a store before its first transaction: all of it is to be recorded.
const NOTHING: Point = Point { timeline: 0, revision: 0 };

/// How far the record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mark {
    /// State of the store that the last line belongs to.
    state: Point,
    /// Its place in the transaction.
    place: u64,
}

/// The members of a line, and all of the mark's file, that say how far the record is.
#[derive(Debug, Serialize, Deserialize)]
struct MarkForm {
    state: String,
    place: u64,
}

impl Mark {
    fn read(json: serde_json::Value) -> Option<Self> {
        let form: MarkForm = serde_json::from_value(json).ok()?;
        Some(Self { state: form.state.parse().ok()?, place: form.place })
    }

    fn form(self) -> MarkForm {
        MarkForm { state: self.state.to_string(), place: self.place }
    }
}

/// A line, without what the chain adds.
#[derive(Debug, Serialize)]
struct Line {
    at: u64,
    who: String,
    from: &'static str,
    operation: &'static str,
    target: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    request: Option<String>,
    result: &'static str,
    #[serde(flatten)]
    mark: MarkForm,
}

/// What the record is compared with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stored<'a> {
    /// Which session wrote which revisions.
    pub timelines: &'a Timelines,
    /// Of the last transaction.
    pub revision: u64,
}

/// Writes the record.
#[derive(Debug)]
pub(crate) struct Recorder {
    file: RecordFile,
    mark_file: PathBuf,
    /// None: it is read.
    mark: Option<Mark>,
    /// As the file has it.
    kept_mark: Option<Mark>,
    /// Behind this there is nothing to record; None: how far the record is could not be found out yet.
    seen: Option<(u64, u64)>,
    /// The last try did not work.
    is_failing: bool,
}

impl Recorder {
    /// The record in a state directory.
    #[must_use]
    pub(crate) fn new(state_dir: &Path) -> Self {
        Self {
            file: RecordFile::new(record::path(state_dir)),
            mark_file: state_dir.join(MARK_FILE),
            mark: None,
            kept_mark: None,
            seen: None,
            is_failing: false,
        }
    }

    /// Whether something is waiting that could not be recorded. It is tried again when there may be room, not at each write.
    #[must_use]
    pub(crate) const fn is_failing(&self) -> bool {
        self.is_failing
    }

    /// Finds out how far the record is, before the store is written to. If it is not of a state that the store contains, the store was replaced or set back: that is a line of its own.
    pub(crate) async fn begin(&mut self, stored: Stored<'_>, wall: u64) {
        let resumed = self.resume(stored, wall).await;
        self.is_failing = resumed.is_err();
        if let Err(error) = resumed {
            tracing::error!(error = %error, "the record of writes cannot be read; it is tried again");
            metrics::counter!("sparkfleet_audit_failures_total").increment(1);
        }
    }

    async fn resume(&mut self, stored: Stored<'_>, wall: u64) -> io::Result<()> {
        let last = self.file.last().await?.and_then(Mark::read);
        let moved = match tokio::fs::read(&self.mark_file).await {
            Ok(bytes) => serde_json::from_slice(&bytes).ok().and_then(Mark::read),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let is_stored = |mark: &Mark| stored.timelines.contain(mark.state, stored.revision);
        let of_store = [last, moved].into_iter().flatten().filter(is_stored);
        let latest = of_store.max_by_key(|mark| (mark.state.revision, mark.place));
        // A new store has no state yet, and everything of it is recorded.
        let present = stored.timelines.at(stored.revision).map(|state| Mark { state, place: END });
        let known = last.or(moved);
        if known.is_some_and(|known| known.state == NOTHING) {
            self.seen = Some((0, 0));
            return Ok(());
        }
        let (operation, target) = match (known, latest, present) {
            (_, Some(latest), _) if known.is_none_or(|known| is_stored(&known)) => {
                self.seen = Some((latest.state.revision, latest.place));
                self.mark = Some(latest);
                return Ok(());
            }
            (None, _, None) => {
                self.seen = Some((0, 0));
                return Ok(());
            }
            (None, _, Some(_)) => {
                ("begin-record", format!("the writes before are in the history, to revision {}", stored.revision))
            }
            (Some(known), ..) => {
                let recorded = known.state;
                tracing::warn!(%recorded, revision = stored.revision, "the store is not the one whose writes were recorded last");
                (
                    "replace-store",
                    format!(
                        "the store is at revision {}; recorded was state {recorded}, which it does not contain",
                        stored.revision
                    ),
                )
            }
        };
        self.note(operation, target, present, wall).await
    }

    /// A line about the store itself.
    async fn note(&mut self, operation: &'static str, target: String, mark: Option<Mark>, wall: u64) -> io::Result<()> {
        let state = mark.unwrap_or(Mark { state: NOTHING, place: 0 });
        let line = Line {
            at: wall,
            who: builtin::WRITER.to_owned(),
            from: "store",
            operation,
            target,
            request: None,
            result: "done",
            mark: state.form(),
        };
        if !self.file.keep_all(&[line]).await {
            return Err(io::Error::other("audit.jsonl cannot be written"));
        }
        self.seen = Some(mark.map_or((0, 0), |mark| (mark.state.revision, mark.place)));
        self.mark = mark;
        Ok(())
    }

    /// Records the writes of the transactions that were stored last. They are not read again, if they are all that is not recorded yet. `wall`: UTC ms.
    pub(crate) async fn add<S: Store>(
        &mut self,
        store: &mut S,
        stored: Stored<'_>,
        transactions: &[Transaction],
        wall: u64,
    ) {
        let Some(first) = transactions.first() else { return };
        if self.seen != Some((first.revision.saturating_sub(1), END)) {
            return self.follow(store, stored, wall).await;
        }
        let rows: Vec<WriteRow> = transactions.iter().flat_map(Transaction::writes).collect();
        self.write(&rows, (stored.revision, END), stored).await;
    }

    /// Records what is stored and not recorded yet. `wall`: UTC ms.
    pub(crate) async fn follow<S: Store>(&mut self, store: &mut S, stored: Stored<'_>, wall: u64) {
        if self.seen.is_none() {
            self.begin(stored, wall).await;
        }
        while let Some(seen) = self.seen.filter(|seen| *seen < (stored.revision, END)) {
            let rows = match store.writes(seen, LINES).await {
                Ok(rows) => rows,
                Err(error) => {
                    self.is_failing = true;
                    return tracing::error!(error = %error, "the history cannot be read for the record of writes");
                }
            };
            let is_last = (rows.len() as u64) < LINES;
            let reached = rows.last().filter(|_| !is_last).map_or((stored.revision, END), |row| row.at);
            self.write(&rows, reached, stored).await;
            if self.is_failing {
                return;
            }
        }
    }

    /// Writes the lines behind `seen` up to `reached`.
    async fn write(&mut self, rows: &[WriteRow], reached: (u64, u64), stored: Stored<'_>) {
        let marked = |row: &WriteRow| Some(Mark { state: stored.timelines.at(row.at.0)?, place: row.at.1 });
        let lines: Vec<Line> = rows.iter().filter_map(|row| Some(line(row, marked(row)?))).collect();
        self.is_failing = !lines.is_empty() && !self.file.write_all(&lines).await;
        if self.is_failing {
            // A part of them may be on the disk.
            let last = self.file.last().await.ok().flatten().and_then(Mark::read);
            let is_stored = |mark: &Mark| stored.timelines.contain(mark.state, stored.revision);
            let kept = last.filter(is_stored).map(|last| (last.state.revision, last.place));
            self.seen = kept.max(self.seen);
            return;
        }
        self.mark = rows.last().and_then(marked).or(self.mark);
        self.seen = Some(reached);
    }

    /// Keeps beside the record how far it is, once the record is on the disk so far: the mark alone would hide what a power cut has taken.
    pub(crate) async fn keep_mark(&mut self) {
        if let Some(mark) = self.mark.filter(|mark| self.kept_mark != Some(*mark)) {
            let kept = self.file.sync().await.and_then(|()| serde_json::to_vec(&mark.form()).map_err(io::Error::other));
            let kept =
                kept.and_then(|json| atomic_file::write(&self.mark_file, &json, Some(0o600)).map_err(io::Error::other));
            match kept {
                Ok(()) => self.kept_mark = Some(mark),
                Err(error) => tracing::warn!(error = %error, "how far the record of writes is could not be kept"),
            }
        }
    }
}

fn line(row: &WriteRow, mark: Mark) -> Line {
    let token = (*row.slug == *ApiToken::slug()).then(|| {
        let token = row.token.as_deref().and_then(|json| serde_json::from_str::<ApiToken>(json).ok());
        token.map_or_else(|| row.object.to_string(), |token| token.name)
    });
    let operation = match (&token, row.is_deletion) {
        (Some(_), false) => "create-token",
        (Some(_), true) => "revoke-token",
        (None, false) => "put-entry",
        (None, true) => "delete-entry",
    };
    Line {
        at: row.time,
        who: who(&row.writer),
        from: "broker",
        operation,
        target: token.unwrap_or_else(|| format!("{}/{} revision {}", row.object, row.slug, row.at.0)),
        request: Some(row.request.to_string()),
        result: "done",
        mark: mark.form(),
    }
}

/// A writer for whom the server vouched, this program itself, or one who gave a name.
fn who(writer: &str) -> String {
    let is_known = writer == builtin::WRITER
        || [names::WRITER_USER, names::WRITER_CLAIMED].iter().any(|prefix| writer.starts_with(prefix));
    if is_known { writer.to_owned() } else { format!("{}{writer}", names::WRITER_CLAIMED) }
}

#[cfg(test)]
mod tests;
