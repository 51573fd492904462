//! The store: one SQLite file, write-ahead log, one transaction a record.
//!
//! | table | holds |
//! |---|---|
//! | `transition` | what changed, in order; its number is never used again |
//! | `snapshot`, `snapshot_table` | the tables after the transition of that number |
//! | `gap` | spans in which nothing was received; without an end, it lasts |
//! | `meta` | version of the schema, time of the last record |
//!
//! Numbers and times grow together. So the snapshots bound where a time is looked for, and no index by time is needed. What is forgotten ends at a snapshot: before the first one nothing is known.
//! The commit is not synced: after a power failure the last moments are missing, and that is a gap.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fleet_view::deltas::Table;
use fleet_view::history::export::{Changed, Gap};
use fleet_view::history::{Change, View};
use serde::de::DeserializeOwned;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqliteRow, SqliteSynchronous};
use sqlx::{Connection as _, Row as _};

use crate::record::{Known, Record, Retention, StoredEvent};

/// Name of the file in its directory.
const FILE: &str = "history.sqlite";

/// Files that belong to it.
const ENDINGS: [&str; 3] = ["", "-wal", "-shm"];

/// Version of the schema.
const VERSION: i64 = 1;

const SCHEMA: [&str; 6] = [
    "CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL)",
    "CREATE TABLE IF NOT EXISTS transition (number INTEGER PRIMARY KEY, at INTEGER NOT NULL, view TEXT NOT NULL, key TEXT NOT NULL, \
     change TEXT NOT NULL, cluster TEXT, event TEXT)",
    "CREATE INDEX IF NOT EXISTS event_of_cluster ON transition (cluster, number) WHERE event IS NOT NULL",
    "CREATE TABLE IF NOT EXISTS snapshot (number INTEGER PRIMARY KEY, at INTEGER NOT NULL)",
    "CREATE TABLE IF NOT EXISTS snapshot_table (number INTEGER NOT NULL, view TEXT NOT NULL, rows TEXT NOT NULL, PRIMARY KEY (number, view))",
    "CREATE TABLE IF NOT EXISTS gap (since INTEGER NOT NULL, until INTEGER, reason TEXT NOT NULL)",
];

/// Events that a store gives when it is opened.
const EVENTS: i64 = 500;

/// Transitions that one step forgets: few enough that no record waits for long.
const STEP: i64 = 5_000;

/// What can go wrong with the store.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// Its directory.
    #[error("the directory of the history cannot be used: {0}")]
    Directory(#[source] io::Error),
    /// There is no room.
    #[error("the disk is full")]
    Full,
    /// A newer program wrote it.
    #[error(
        "its file has schema version {0}, this program knows version {VERSION}; use the newer program, or move the file away"
    )]
    Newer(i64),
    /// A row cannot be read.
    #[error("its file holds a malformed {0}")]
    Malformed(&'static str),
    /// SQLite.
    #[error("its file cannot be used: {0}")]
    Database(#[source] sqlx::Error),
}

impl From<sqlx::Error> for HistoryError {
    fn from(error: sqlx::Error) -> Self {
        if primary_code(&error) == Some(13) { Self::Full } else { Self::Database(error) }
    }
}

impl HistoryError {
    /// Whether the file holds what no store wrote.
    #[must_use]
    pub fn is_damaged(&self) -> bool {
        match self {
            Self::Malformed(_) => true,
            Self::Database(error) => matches!(primary_code(error), Some(11 | 26)),
            Self::Directory(_) | Self::Full | Self::Newer(_) => false,
        }
    }
}

fn primary_code(error: &sqlx::Error) -> Option<u32> {
    let code = error.as_database_error()?.code()?.parse::<u32>().ok()?;
    Some(code & 0xff)
}

/// The store's file in its directory.
pub(super) fn file(directory: &Path) -> PathBuf {
    directory.join(FILE)
}

/// Moves a store away, in place of the one that was moved away before.
///
/// # Errors
/// The files cannot be moved.
pub(super) fn set_aside(directory: &Path) -> io::Result<PathBuf> {
    for ending in ENDINGS {
        let path = directory.join(format!("{FILE}{ending}"));
        match std::fs::rename(&path, directory.join(format!("damaged-{FILE}{ending}"))) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(directory.join(format!("damaged-{FILE}")))
}

/// The writer's connection.
#[derive(Debug)]
pub struct Store {
    connection: SqliteConnection,
    /// Number of the last transition.
    last: u64,
}

impl Store {
    /// Opens the file of a directory, or makes it. A gap lasts from its last record on, for the reason `gap`.
    ///
    /// # Errors
    /// [`HistoryError`]
    pub async fn open(directory: &Path, gap: &str) -> Result<(Self, Known), HistoryError> {
        let options = SqliteConnectOptions::new()
            .filename(file(directory))
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Normal);
        let mut connection = SqliteConnection::connect_with(&options).await?;
        let mut database = connection.begin().await?;
        for statement in SCHEMA {
            sqlx::query(statement).execute(&mut *database).await?;
        }
        let version = meta(&mut database, "version").await?;
        if let Some(version) = version.filter(|version| *version != VERSION) {
            return Err(HistoryError::Newer(version));
        }
        set_meta(&mut database, "version", VERSION).await?;
        let received = meta(&mut database, "received").await?;
        let lasting = sqlx::query("SELECT 1 FROM gap WHERE until IS NULL").fetch_optional(&mut *database).await?;
        if lasting.is_none() {
            // In a store that holds nothing, nothing is missing.
            if let Some(received) = received {
                let insert = sqlx::query("INSERT INTO gap (since, until, reason) VALUES ($1, NULL, $2)");
                insert.bind(received).bind(gap).execute(&mut *database).await?;
            }
        }
        database.commit().await?;
        let last = last_number(&mut connection).await?;
        let known = known(&mut connection, unsigned(received.unwrap_or_default())).await?;
        Ok((Self { connection, last }, known))
    }

    /// Stores a record; returns the number of its first transition.
    ///
    /// # Errors
    /// [`HistoryError`]; nothing of it is stored then, and the store has to be opened again.
    pub async fn write(&mut self, record: &Record) -> Result<u64, HistoryError> {
        let first = self.last + 1;
        let snapshot = match &record.snapshot {
            Some(tables) => snapshot_texts(tables.clone()).await?,
            None => Vec::new(),
        };
        let mut database = self.connection.begin_with("BEGIN IMMEDIATE").await?;
        if record.ends_gap {
            let end = sqlx::query("UPDATE gap SET until = $1 WHERE until IS NULL");
            end.bind(number(record.at)).execute(&mut *database).await?;
        }
        let insert = "INSERT INTO transition (number, at, view, key, change, cluster, event) VALUES ($1, $2, $3, $4, $5, $6, $7)";
        let mut last = self.last;
        for transition in &record.transitions {
            last += 1;
            let event = transition.event.as_ref();
            sqlx::query(insert)
                .bind(number(last))
                .bind(number(record.at))
                .bind(transition.view.as_str())
                .bind(&transition.key)
                .bind(json(&transition.change)?)
                .bind(event.and_then(|event| event.cluster.as_deref()))
                .bind(event.map(json).transpose()?)
                .execute(&mut *database)
                .await?;
        }
        if record.snapshot.is_some() {
            let mark = sqlx::query("INSERT OR REPLACE INTO snapshot (number, at) VALUES ($1, $2)");
            mark.bind(number(last)).bind(number(record.at)).execute(&mut *database).await?;
        }
        for (view, rows) in snapshot {
            let table = sqlx::query("INSERT OR REPLACE INTO snapshot_table (number, view, rows) VALUES ($1, $2, $3)");
            table.bind(number(last)).bind(view.as_str()).bind(rows).execute(&mut *database).await?;
        }
        if let Some(reason) = &record.begins_gap {
            let insert = sqlx::query("INSERT INTO gap (since, until, reason) VALUES ($1, NULL, $2)");
            insert.bind(number(record.at)).bind(reason).execute(&mut *database).await?;
        }
        set_meta(&mut database, "received", number(record.at)).await?;
        set_meta(&mut database, "last", number(last)).await?;
        database.commit().await?;
        self.last = last;
        Ok(first)
    }

    /// Forgets a part of what is too old or too much; true: there is no more of that.
    ///
    /// # Errors
    /// [`HistoryError`]
    pub async fn forget(&mut self, keep: &Retention, now: u64) -> Result<bool, HistoryError> {
        // What an earlier step has begun comes first.
        if self.forget_below_snapshots().await? {
            return Ok(false);
        }
        let oldest = number(now.saturating_sub(keep.days.saturating_mul(24 * 3_600 * 1_000)));
        let aged = "SELECT number, at FROM snapshot WHERE at <= $1 AND number > (SELECT MIN(number) FROM snapshot) ORDER BY number DESC LIMIT 1";
        let aged = sqlx::query(aged).bind(oldest).fetch_optional(&mut self.connection).await?;
        let base = match aged {
            Some(base) => Some(base),
            None if self.bytes().await? > keep.bytes => {
                let second = "SELECT number, at FROM snapshot ORDER BY number LIMIT 1 OFFSET 1";
                sqlx::query(second).fetch_optional(&mut self.connection).await?
            }
            None => None,
        };
        let Some(base) = base else { return Ok(true) };
        let (base, at): (i64, i64) = (base.try_get(0)?, base.try_get(1)?);
        let mut database = self.connection.begin_with("BEGIN IMMEDIATE").await?;
        for statement in ["DELETE FROM snapshot_table WHERE number < $1", "DELETE FROM snapshot WHERE number < $1"] {
            sqlx::query(statement).bind(base).execute(&mut *database).await?;
        }
        sqlx::query("DELETE FROM gap WHERE until < $1").bind(at).execute(&mut *database).await?;
        database.commit().await?;
        Ok(false)
    }

    /// Forgets some transitions that no state is made of any more; false: there are none.
    async fn forget_below_snapshots(&mut self) -> Result<bool, HistoryError> {
        let forget = "DELETE FROM transition WHERE number IN (SELECT number FROM transition \
                      WHERE number <= (SELECT MIN(number) FROM snapshot) ORDER BY number LIMIT $1)";
        let gone = sqlx::query(forget).bind(STEP).execute(&mut self.connection).await?.rows_affected();
        metrics::counter!("console_history_forgotten_total").increment(gone);
        Ok(gone > 0)
    }

    /// Bytes of the file that are in use.
    ///
    /// # Errors
    /// [`HistoryError`]
    pub async fn bytes(&mut self) -> Result<u64, HistoryError> {
        let mut value = async |statement: &'static str| -> Result<u64, HistoryError> {
            Ok(unsigned(sqlx::query(statement).fetch_one(&mut self.connection).await?.try_get(0)?))
        };
        let pages = value("PRAGMA page_count").await?.saturating_sub(value("PRAGMA freelist_count").await?);
        Ok(pages * value("PRAGMA page_size").await?)
    }

    /// Closes the file.
    pub async fn close(self) {
        // What is committed is in the log, which the next process reads.
        let _ = self.connection.close().await;
    }
}

#[cfg(test)]
impl Store {
    /// From now on the file cannot grow by more than a few pages.
    pub(super) async fn limit_pages(&mut self) {
        let pages: i64 = sqlx::query("PRAGMA page_count").fetch_one(&mut self.connection).await.unwrap().get(0);
        let limit = format!("PRAGMA max_page_count = {}", pages + 8);
        sqlx::query(sqlx::AssertSqlSafe(limit)).fetch_one(&mut self.connection).await.unwrap();
    }

    /// Writes what cannot be read.
    pub(super) async fn spoil(&mut self) {
        sqlx::query("UPDATE snapshot_table SET rows = '[1'").execute(&mut self.connection).await.unwrap();
    }
}

async fn known(connection: &mut SqliteConnection, at: u64) -> Result<Known, HistoryError> {
    let Some((base, snapshot_at)) = base_at(connection, u64::MAX).await? else {
        return Ok(Known { at, ..Known::default() });
    };
    let mut tables = BTreeMap::new();
    let mut since_snapshot = 0;
    for view in View::ALL {
        let mut table = snapshot_table(connection, base, view).await?;
        since_snapshot += fold(connection, base, u64::MAX, view, &mut table).await?.0;
        tables.insert(view, table);
    }
    let newest = "SELECT number, at, event FROM transition WHERE event IS NOT NULL ORDER BY number DESC LIMIT $1";
    let rows = sqlx::query(newest).bind(EVENTS).fetch_all(&mut *connection).await?;
    let events = rows.iter().rev().map(stored_event).collect::<Result<_, _>>()?;
    Ok(Known { at, tables, since_snapshot, snapshot_at: Some(snapshot_at), events })
}

/// The last snapshot at or before a time: its number and time.
pub(super) async fn base_at(connection: &mut SqliteConnection, at: u64) -> Result<Option<(u64, u64)>, HistoryError> {
    let query = sqlx::query("SELECT number, at FROM snapshot WHERE at <= $1 ORDER BY number DESC LIMIT 1");
    let row = query.bind(number(at)).fetch_optional(connection).await?;
    row.map(|row| Ok((unsigned(row.try_get(0)?), unsigned(row.try_get(1)?)))).transpose()
}

/// A table of a snapshot.
pub(super) async fn snapshot_table(
    connection: &mut SqliteConnection,
    base: u64,
    view: View,
) -> Result<Table, HistoryError> {
    let query = sqlx::query("SELECT rows FROM snapshot_table WHERE number = $1 AND view = $2");
    let row = query.bind(number(base)).bind(view.as_str()).fetch_optional(connection).await?;
    row.map_or_else(|| Ok(Table::new()), |row| parsed("snapshot", row.try_get(0)?))
}

/// Applies the transitions after a snapshot up to a time; returns how many there were, and the number of the last.
pub(super) async fn fold(
    connection: &mut SqliteConnection,
    base: u64,
    at: u64,
    view: View,
    table: &mut Table,
) -> Result<(u64, u64), HistoryError> {
    // Later ones are behind the next snapshot.
    let statement = "SELECT number, key, change FROM transition WHERE number > $1 \
                     AND number <= COALESCE((SELECT MIN(number) FROM snapshot WHERE number > $1), $2) AND view = $3 AND at <= $4 ORDER BY number";
    let query = sqlx::query(statement).bind(number(base)).bind(i64::MAX).bind(view.as_str()).bind(number(at));
    let rows = query.fetch_all(connection).await?;
    let (mut count, mut last) = (0, base);
    for row in &rows {
        let change: Change = parsed("change", row.try_get(2)?)?;
        change.apply(row.try_get(1)?, table);
        (count, last) = (count + 1, unsigned(row.try_get(0)?));
    }
    Ok((count, last))
}

pub(super) fn stored_event(row: &SqliteRow) -> Result<StoredEvent, HistoryError> {
    let event = parsed("event", row.try_get(2)?)?;
    Ok(StoredEvent { number: unsigned(row.try_get(0)?), at: unsigned(row.try_get(1)?), event })
}

/// A transition with its number.
pub(super) fn stored_change(row: &SqliteRow) -> Result<(u64, Changed), HistoryError> {
    let view = row.try_get::<&str, _>(2)?.parse().map_err(|_| HistoryError::Malformed("view"))?;
    let event: Option<&str> = row.try_get(5)?;
    let changed = Changed {
        at: unsigned(row.try_get(1)?),
        view,
        key: row.try_get(3)?,
        change: parsed("change", row.try_get(4)?)?,
        event: event.map(|event| parsed("event", event)).transpose()?,
    };
    Ok((unsigned(row.try_get(0)?), changed))
}

pub(super) fn gap(row: &SqliteRow) -> Result<Gap, HistoryError> {
    let until: Option<i64> = row.try_get(1)?;
    Ok(Gap { since: unsigned(row.try_get(0)?), until: until.map(unsigned), reason: row.try_get(2)? })
}

/// Numbers are not used again, although their transitions are forgotten.
async fn last_number(connection: &mut SqliteConnection) -> Result<u64, HistoryError> {
    Ok(unsigned(meta(connection, "last").await?.unwrap_or_default()))
}

async fn snapshot_texts(tables: BTreeMap<View, Arc<Table>>) -> Result<Vec<(View, String)>, HistoryError> {
    let texts = move || tables.iter().map(|(view, table)| Ok((*view, json(&**table)?))).collect();
    tokio::task::spawn_blocking(texts).await.unwrap_or(Err(HistoryError::Malformed("snapshot")))
}

async fn meta(connection: &mut SqliteConnection, key: &str) -> Result<Option<i64>, HistoryError> {
    let row = sqlx::query("SELECT value FROM meta WHERE key = $1").bind(key).fetch_optional(connection).await?;
    Ok(row.map(|row| row.try_get(0)).transpose()?)
}

async fn set_meta(connection: &mut SqliteConnection, key: &str, value: i64) -> Result<(), HistoryError> {
    let set = "INSERT INTO meta (key, value) VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET value = excluded.value";
    sqlx::query(set).bind(key).bind(value).execute(connection).await?;
    Ok(())
}

fn json(value: &impl serde::Serialize) -> Result<String, HistoryError> {
    serde_json::to_string(value).map_err(|_| HistoryError::Malformed("change"))
}

fn parsed<T: DeserializeOwned>(what: &'static str, text: &str) -> Result<T, HistoryError> {
    serde_json::from_str(text).map_err(|_| HistoryError::Malformed(what))
}

/// INTEGER is signed; no number or time of ours comes near its end.
pub(super) fn number(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

fn unsigned(n: i64) -> u64 {
    u64::try_from(n).unwrap_or_default()
}
