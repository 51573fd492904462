//! Reads the past, on a connection of its own: who looks at it does not wait for who writes it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use fleet_view::deltas::Table;
use fleet_view::history::View;
use fleet_view::history::export::{Changed, Gap};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{Connection as _, Row as _};
use tokio::sync::{Mutex, watch};

use super::store::{self, HistoryError, number};
use crate::record::{HistoryStatus, StoredEvent};

/// Gaps of an answer: the latest ones.
const GAPS_MAX: i64 = 1_000;

/// Changes that one read of an export brings.
const CHANGES: i64 = 1_000;

/// A cheap handle; clones read one after another.
#[derive(Debug, Clone)]
pub struct Reader {
    file: PathBuf,
    status: watch::Receiver<HistoryStatus>,
    /// None: it was not opened yet, or the last use of it failed.
    connection: Arc<Mutex<Option<SqliteConnection>>>,
}

/// Why the past cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// There is no history now.
    #[error("{0}")]
    None(String),
    /// It begins later.
    #[error("the history begins at {0} (UTC ms)")]
    Before(u64),
    /// It holds nothing yet.
    #[error("the history holds nothing yet")]
    Empty,
    /// What comes next was forgotten while the earlier part was read.
    #[error("the history has forgotten what comes next")]
    Forgotten,
    /// The file.
    #[error("the history cannot be read: {0}")]
    Store(#[from] HistoryError),
}

impl From<sqlx::Error> for ReadError {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(error.into())
    }
}

/// A table as it was.
#[derive(Debug, Clone, PartialEq)]
pub struct Past {
    /// Its rows.
    pub rows: Table,
    /// Number of the last transition in it.
    pub number: u64,
    /// The gap that the time is in: the rows are those of its beginning.
    pub gap: Option<Gap>,
    /// Nothing that is recorded later can change it.
    pub is_final: bool,
}

/// Which events are wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventQuery {
    /// From this time on, UTC ms.
    pub since: u64,
    /// Until this time, UTC ms.
    pub until: u64,
    /// Of the clusters with these names only.
    pub clusters: Option<Vec<String>>,
    /// About this only, as in [`fleet_view::history::Event::subject`].
    pub subject: Option<String>,
    /// Earlier than the one of this number.
    pub before: Option<u64>,
    /// As many at most.
    pub limit: u32,
}

/// Events, the latest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventPage {
    /// The events.
    pub events: Vec<StoredEvent>,
    /// There are earlier ones, before this number; None: these are all.
    pub next: Option<u64>,
    /// Gaps that overlap the time that was asked for, the latest first.
    pub gaps: Vec<Gap>,
    /// When the history begins, UTC ms; None: it holds nothing yet.
    pub begins: Option<u64>,
}

/// How an export begins.
#[derive(Debug, Clone, PartialEq)]
pub struct ExportBase {
    /// The time of the tables, UTC ms: that which was asked for, or the beginning of the history.
    pub since: u64,
    /// The tables then.
    pub tables: BTreeMap<View, Table>,
    /// Number of the last transition in them.
    pub number: u64,
    /// Gaps that overlap the time that was asked for, the earliest first.
    pub gaps: Vec<Gap>,
}

impl Reader {
    pub(super) fn new(file: PathBuf, status: watch::Receiver<HistoryStatus>) -> Self {
        Self { file, status, connection: Arc::default() }
    }

    /// A table as it was at a time, UTC ms.
    ///
    /// # Errors
    /// [`ReadError`]
    pub async fn at(&self, view: View, at: u64) -> Result<Past, ReadError> {
        self.reading(async |connection| past(connection, view, at).await).await
    }

    /// What happened.
    ///
    /// # Errors
    /// [`ReadError`]
    pub async fn events(&self, query: &EventQuery) -> Result<EventPage, ReadError> {
        self.reading(async |connection| page(connection, query).await).await
    }

    /// All tables as they were at a time, or at the beginning of the history.
    ///
    /// # Errors
    /// [`ReadError`]
    pub async fn export(&self, since: u64, until: u64) -> Result<ExportBase, ReadError> {
        self.reading(async |connection| export_base(connection, since, until).await).await
    }

    /// The next changes of an export: those after a number and not after a time, each with its number; none: these were all.
    ///
    /// # Errors
    /// [`ReadError`]; [`ReadError::Forgotten`] if some were forgotten meanwhile.
    pub async fn changes(&self, after: u64, until: u64) -> Result<Vec<(u64, Changed)>, ReadError> {
        self.reading(async |connection| changes(connection, after, until).await).await
    }

    /// Runs a read on one state of the file.
    async fn reading<T>(
        &self,
        read: impl AsyncFnOnce(&mut SqliteConnection) -> Result<T, ReadError>,
    ) -> Result<T, ReadError> {
        if let Some(reason) = self.status.borrow().reason() {
            return Err(ReadError::None(reason));
        }
        let mut place = self.connection.lock().await;
        let mut connection = match place.take() {
            Some(connection) => connection,
            None => {
                let options = SqliteConnectOptions::new().filename(&self.file).pragma("query_only", "ON");
                SqliteConnection::connect_with(&options).await?
            }
        };
        let mut database = connection.begin().await?;
        let result = read(&mut database).await;
        database.rollback().await?;
        // After a failure the file may be another one.
        if !matches!(result, Err(ReadError::Store(_))) {
            *place = Some(connection);
        }
        result
    }
}

async fn past(connection: &mut SqliteConnection, view: View, at: u64) -> Result<Past, ReadError> {
    let Some((base, _)) = store::base_at(connection, at).await? else {
        return Err(begins(connection).await?.map_or(ReadError::Empty, ReadError::Before));
    };
    let mut rows = store::snapshot_table(connection, base, view).await?;
    let (_, number_) = store::fold(connection, base, at, view, &mut rows).await?;
    let gap = "SELECT since, until, reason FROM gap WHERE since <= $1 AND (until IS NULL OR until > $1) ORDER BY since DESC LIMIT 1";
    let gap = sqlx::query(gap).bind(number(at)).fetch_optional(&mut *connection).await?;
    let gap = gap.map(|row| store::gap(&row)).transpose()?;
    let received = sqlx::query("SELECT value FROM meta WHERE key = 'received'").fetch_optional(connection).await?;
    let received: i64 = received.map(|row| row.try_get(0)).transpose()?.unwrap_or_default();
    // Times of records never fall. While a gap lasts, its end is not known.
    let is_final = number(at) < received && gap.as_ref().is_none_or(|gap| gap.until.is_some());
    Ok(Past { rows, number: number_, gap, is_final })
}

async fn export_base(connection: &mut SqliteConnection, since: u64, until: u64) -> Result<ExportBase, ReadError> {
    let begins = begins(connection).await?.ok_or(ReadError::Empty)?;
    let since = since.max(begins);
    let (mut tables, mut number) = (BTreeMap::new(), 0);
    for view in View::ALL {
        let past = past(connection, view, since).await?;
        number = number.max(past.number);
        tables.insert(view, past.rows);
    }
    let mut gaps = gaps(connection, since, until).await?;
    gaps.reverse();
    Ok(ExportBase { since, tables, number, gaps })
}

async fn changes(connection: &mut SqliteConnection, after: u64, until: u64) -> Result<Vec<(u64, Changed)>, ReadError> {
    // What is not later than the first snapshot is forgotten.
    let first = sqlx::query("SELECT COALESCE(MIN(number), 0) FROM snapshot").fetch_one(&mut *connection).await?;
    if first.try_get::<i64, _>(0)? > number(after) {
        return Err(ReadError::Forgotten);
    }
    let statement = "SELECT number, at, view, key, change, event FROM transition WHERE number > $1 AND at <= $2 ORDER BY number LIMIT $3";
    let query = sqlx::query(statement).bind(number(after)).bind(number(until)).bind(CHANGES);
    query.fetch_all(connection).await?.iter().map(|row| Ok(store::stored_change(row)?)).collect()
}

async fn begins(connection: &mut SqliteConnection) -> Result<Option<u64>, ReadError> {
    let row = sqlx::query("SELECT at FROM snapshot ORDER BY number LIMIT 1").fetch_optional(connection).await?;
    Ok(row.map(|row| row.try_get::<i64, _>(0)).transpose()?.and_then(|at| u64::try_from(at).ok()))
}

async fn page(connection: &mut SqliteConnection, query: &EventQuery) -> Result<EventPage, ReadError> {
    // Snapshots bound the numbers of a time.
    let above = sqlx::query("SELECT COALESCE(MAX(number), 0) FROM snapshot WHERE at < $1").bind(number(query.since));
    let above: i64 = above.fetch_one(&mut *connection).await?.try_get(0)?;
    let to = sqlx::query("SELECT COALESCE(MIN(number), $2) FROM snapshot WHERE at > $1")
        .bind(number(query.until))
        .bind(i64::MAX);
    let to: i64 = to.fetch_one(&mut *connection).await?.try_get(0)?;
    let to = query.before.map_or(to, |before| to.min(number(before) - 1));
    let wanted = i64::from(query.limit) + 1;
    let of_all = "SELECT number, at, event FROM transition WHERE event IS NOT NULL AND number > $1 AND number <= $2 \
                  AND at >= $3 AND at <= $4 AND ($7 IS NULL OR json_extract(event, '$.subject') = $7) ORDER BY number DESC LIMIT $5";
    let of_cluster = "SELECT number, at, event FROM transition WHERE event IS NOT NULL AND number > $1 AND number <= $2 \
                      AND at >= $3 AND at <= $4 AND cluster = $6 AND ($7 IS NULL OR json_extract(event, '$.subject') = $7) ORDER BY number DESC LIMIT $5";
    let of_clusters = "SELECT number, at, event FROM transition WHERE event IS NOT NULL AND number > $1 AND number <= $2 \
                       AND at >= $3 AND at <= $4 AND cluster IN (SELECT value FROM json_each($6)) \
                       AND ($7 IS NULL OR json_extract(event, '$.subject') = $7) ORDER BY number DESC LIMIT $5";
    let (statement, names) = match query.clusters.as_deref() {
        None => (of_all, None),
        Some([only]) => (of_cluster, Some(only.clone())),
        Some(several) => (of_clusters, Some(serde_json::Value::from(several).to_string())),
    };
    let found = sqlx::query(statement)
        .bind(above)
        .bind(to)
        .bind(number(query.since))
        .bind(number(query.until))
        .bind(wanted)
        .bind(names)
        .bind(query.subject.as_deref());
    let rows = found.fetch_all(&mut *connection).await?;
    let mut events = rows.iter().map(store::stored_event).collect::<Result<Vec<_>, _>>()?;
    let is_more = events.len() as i64 == wanted;
    events.truncate(query.limit as usize);
    let next = events.last().map(|event| event.number).filter(|_| is_more);
    let gaps = gaps(connection, query.since, query.until).await?;
    Ok(EventPage { events, next, gaps, begins: begins(connection).await? })
}

/// Gaps that overlap a time, the latest first.
async fn gaps(connection: &mut SqliteConnection, since: u64, until: u64) -> Result<Vec<Gap>, ReadError> {
    let gaps = "SELECT since, until, reason FROM gap WHERE since <= $2 AND (until IS NULL OR until >= $1) ORDER BY since DESC LIMIT $3";
    let gaps = sqlx::query(gaps).bind(number(since)).bind(number(until)).bind(GAPS_MAX);
    gaps.fetch_all(connection).await?.iter().map(|row| Ok(store::gap(row)?)).collect()
}
