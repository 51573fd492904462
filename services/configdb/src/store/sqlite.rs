//! A store in one SQLite file: write-ahead log, synced at every commit, one writer that holds the lock beside the file. Other processes may read meanwhile, as a backup does.
//!
//! Only TEXT and BIGINT columns and `$1` placeholders, so that the statements mean the same to other databases behind sqlx's Any driver. UUIDs and JSON are text, truth values
//! are 0 and 1. The schema has a version and is brought up to date when the file is opened.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use configdb_contract::{HistoryEntry, ReplayRequest};
use configdb_schema::Document as _;
use configdb_schema::document::ApiToken;
use service_runtime::disk::Room;
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Connection, Row};
use uuid::Uuid;

use super::lock::StoreLock;
use super::{
    Commit, NOT_RECORDED, ObjectRow, RecordedRequest, Retention, Snapshot, Store, StoreError, Transaction, WriteRow,
};
use crate::object::StoredEntry;

/// Bytes of a line of history: its texts of free length, and [`HISTORY_ROW_BYTES`].
macro_rules! line_bytes {
    () => {
        "OCTET_LENGTH(COALESCE(old_json, '')) + OCTET_LENGTH(COALESCE(new_json, '')) + OCTET_LENGTH(writer) + OCTET_LENGTH(request) + 200"
    };
}

/// Statements that lead from one version of the schema to the next; the version is the number of those that have run.
const MIGRATIONS: &[&[&str]] = &[
    &[
        "CREATE TABLE object (uuid TEXT PRIMARY KEY, class TEXT NOT NULL, rank BIGINT NOT NULL, owner TEXT NOT NULL, \
     deleted BIGINT NOT NULL, member_of TEXT NOT NULL, subclass_of TEXT NOT NULL)",
        "CREATE TABLE application (uuid TEXT PRIMARY KEY, slug TEXT NOT NULL UNIQUE)",
        "CREATE TABLE entry (object TEXT NOT NULL, application TEXT NOT NULL, json TEXT NOT NULL, etag TEXT NOT NULL, \
     revision BIGINT NOT NULL, builtin BIGINT NOT NULL, PRIMARY KEY (object, application))",
        "CREATE TABLE history (revision BIGINT NOT NULL, position BIGINT NOT NULL, time BIGINT NOT NULL, object TEXT NOT NULL, \
     slug TEXT NOT NULL, old_json TEXT, new_json TEXT, etag TEXT, writer TEXT NOT NULL, request TEXT NOT NULL, \
     PRIMARY KEY (revision, position))",
        "CREATE INDEX history_of_object ON history (object, revision)",
        "CREATE TABLE request (sequence BIGINT PRIMARY KEY, digest TEXT NOT NULL, result TEXT NOT NULL)",
    ],
    &[
        "DELETE FROM meta WHERE key = 'history_bytes'",
        concat!(
            "INSERT INTO meta (key, value) SELECT 'history_bytes', CAST(COALESCE(SUM(",
            line_bytes!(),
            "), 0) AS TEXT) FROM history"
        ),
    ],
];

/// Version of the schema that this program writes.
const KNOWN_VERSION: i64 = MIGRATIONS.len() as i64;

/// Bytes of a line of history beside its texts of free length: ids, numbers, and the index.
const HISTORY_ROW_BYTES: usize = 200;
/// Lines of history that one pruning looks at: few enough that no write waits for long.
const PRUNE_ROWS: i64 = 500;

/// Why there must have been a store.
const USED: &str = "this ConfigDB has run with one before";

/// Bytes of a probe: several pages.
const PROBE_BYTES: usize = 64 * 1024;
/// A failure with less room than this is a full disk.
const ROOM_MIN: u64 = 1024 * 1024;

/// What a statement sets in `meta`.
const SET_META: &str =
    "INSERT INTO meta (key, value) VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET value = excluded.value";

/// A new revision, and so many bytes of history more. One statement, because each is a way to the database's thread and back before a write is answered.
const SET_REVISION: &str = "INSERT INTO meta (key, value) VALUES ('revision', $1), ('history_bytes', $2) \
                            ON CONFLICT (key) DO UPDATE SET value = CASE meta.key WHEN 'revision' THEN excluded.value \
                            ELSE CAST(CAST(meta.value AS BIGINT) + CAST(excluded.value AS BIGINT) AS TEXT) END";

#[derive(Debug)]
pub struct SqliteStore {
    path: PathBuf,
    /// None: the last one failed in the middle of something; the next use opens another.
    connection: Option<AnyConnection>,
    /// Requests with a smaller sequence are not in it, as far as this process knows.
    forgotten: u64,
    /// Given back after the connection.
    _lock: StoreLock,
}

impl SqliteStore {
    /// Opens the file, or makes it; the directory must exist.
    ///
    /// # Errors
    /// [`StoreError::Open`] if another process holds the store, the file is not a database, or not to be written; [`StoreError::Version`] if a newer program wrote it.
    pub async fn open(path: &Path) -> Result<Self, StoreError> {
        let lock = StoreLock::take(path)?;
        Self::connected(path, lock).await?.migrated().await
    }

    /// Opens the file as [`SqliteStore::open`] does, unless there was a store and what is there now holds nothing. `was_used`: someone else says that there was one.
    ///
    /// # Errors
    /// As [`SqliteStore::open`]; [`StoreError::Lost`].
    pub async fn open_known(path: &Path, was_used: bool) -> Result<Self, StoreError> {
        let lost = |mark| StoreError::Lost { path: PathBuf::from(path), mark };
        let lock = StoreLock::take(path)?;
        if !path.exists() {
            return if was_used { Err(lost(USED)) } else { Self::connected(path, lock).await?.migrated().await };
        }
        let mut store = Self::connected(path, lock).await?;
        if store.meta("schema_version").await?.is_none() {
            store.close().await;
            return Err(lost(if was_used {
                USED
            } else {
                "its file is there without the write-ahead log that filled it"
            }));
        }
        store.migrated().await
    }

    async fn connected(path: &Path, lock: StoreLock) -> Result<Self, StoreError> {
        let connection = Some(connect(path).await?);
        Ok(Self { path: PathBuf::from(path), connection, forgotten: 0, _lock: lock })
    }

    /// The connection; another one if the last one failed.
    async fn connection(&mut self) -> Result<&mut AnyConnection, StoreError> {
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => connect(&self.path).await?,
        };
        Ok(self.connection.insert(connection))
    }

    /// A connection whose transaction failed may be in the middle of it for ever.
    async fn disconnect(&mut self) {
        if let Some(failed) = self.connection.take() {
            // What it did not commit is not stored; a failure to say goodbye changes nothing about that.
            let _ = failed.close().await;
        }
    }

    /// After a failure there is another connection; and the error says so if the disk is full.
    async fn settle(&mut self, stored: Result<(), StoreError>) -> Result<(), StoreError> {
        let Err(error) = stored else { return Ok(()) };
        self.disconnect().await;
        let (StoreError::Io { source, .. } | StoreError::Open { source, .. }) = &error else { return Err(error) };
        let is_full = match primary_code(source) {
            Some(13) => true,
            // Some file systems find out when they sync.
            Some(10) => self.free_bytes().is_some_and(|free| free < ROOM_MIN),
            _ => false,
        };
        Err(if is_full { StoreError::Full { source: Box::new(error) } } else { error })
    }

    fn free_bytes(&self) -> Option<u64> {
        Room::at(self.path.parent()?).map(|room| room.available)
    }

    /// Writes only where something is missing: a store of this version can be opened on a full disk.
    async fn migrated(mut self) -> Result<Self, StoreError> {
        let found = self.meta("schema_version").await?;
        let found = schema_version(found.as_deref())?;
        if found == KNOWN_VERSION && self.meta("identity").await?.is_some() {
            return Ok(self);
        }
        let connection = self.connection().await?;
        let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await.map_err(io("be migrated"))?;
        for statements in MIGRATIONS.iter().skip(usize::try_from(found).unwrap_or(0)) {
            for statement in *statements {
                sqlx::query(*statement).execute(&mut *transaction).await.map_err(io("be migrated"))?;
            }
        }
        set_meta(&mut transaction, "schema_version", KNOWN_VERSION.to_string()).await.map_err(io("be migrated"))?;
        let identity = "INSERT INTO meta (key, value) VALUES ('identity', $1) ON CONFLICT (key) DO NOTHING";
        let fresh = Uuid::new_v4().to_string();
        sqlx::query(identity).bind(fresh).execute(&mut *transaction).await.map_err(io("be migrated"))?;
        transaction.commit().await.map_err(io("be migrated"))?;
        Ok(self)
    }

    async fn meta(&mut self, key: &str) -> Result<Option<String>, StoreError> {
        meta(self.connection().await?, key).await
    }

    async fn rows(&mut self, statement: &'static str) -> Result<Vec<AnyRow>, StoreError> {
        sqlx::query(statement).fetch_all(self.connection().await?).await.map_err(io("be read"))
    }
}

impl Store for SqliteStore {
    async fn load(&mut self) -> Result<Snapshot, StoreError> {
        let identity = self.meta("identity").await?.unwrap_or_default();
        let revision = self.meta("revision").await?.unwrap_or_else(|| "0".to_owned());
        let timelines = self.meta("timelines").await?.unwrap_or_default();
        let objects = "SELECT uuid, class, rank, owner, deleted, member_of, subclass_of FROM object";
        let entries = "SELECT object, application, json, etag, revision, builtin FROM entry";
        let requests = "SELECT sequence, digest, result FROM request ORDER BY sequence";
        Ok(Snapshot {
            identity: parsed("meta.identity", &identity)?,
            timelines: parsed("meta.timelines", &timelines)?,
            revision: parsed("meta.revision", &revision)?,
            objects: self.rows(objects).await?.iter().map(object_row).collect::<Result<_, _>>()?,
            applications: self
                .rows("SELECT uuid, slug FROM application")
                .await?
                .iter()
                .map(application_row)
                .collect::<Result<_, _>>()?,
            entries: self.rows(entries).await?.iter().map(entry_row).collect::<Result<_, _>>()?,
            requests: self.rows(requests).await?.iter().map(request_row).collect::<Result<_, _>>()?,
        })
    }

    async fn commit(&mut self, commit: &Commit) -> Result<(), StoreError> {
        let forget_below = Some(commit.forget_below).filter(|below| *below > self.forgotten);
        let stored = match self.connection().await {
            Ok(connection) => write_commit(connection, commit, forget_below).await.map_err(io("store a transaction")),
            Err(error) => Err(error),
        };
        self.settle(stored).await?;
        self.forgotten = forget_below.unwrap_or(self.forgotten);
        Ok(())
    }

    async fn probe(&mut self) -> Result<(), StoreError> {
        // One that other processes can read beside, if there was no room for that.
        self.disconnect().await;
        let stored = match self.connection().await {
            Ok(connection) => write_probe(connection).await.map_err(io("store a transaction")),
            Err(error) => Err(error),
        };
        self.settle(stored).await
    }

    async fn history(&mut self, request: &ReplayRequest) -> Result<Vec<HistoryEntry>, StoreError> {
        let statement = "SELECT slug, new_json, etag, revision, time, writer, request FROM history \
                         WHERE object = $1 AND revision >= $2 AND ($3 = '' OR slug = $3) ORDER BY revision, position LIMIT $4";
        let rows = sqlx::query(statement)
            .bind(request.object.to_string())
            .bind(number(request.from_revision))
            .bind(request.slug.clone().unwrap_or_default())
            .bind(number(request.limit))
            .fetch_all(self.connection().await?)
            .await
            .map_err(io("be read"))?;
        rows.iter().map(|row| history_row(row, request.object)).collect()
    }

    async fn writes(&mut self, (revision, place): (u64, u64), limit: u64) -> Result<Vec<WriteRow>, StoreError> {
        let statement = "SELECT revision, position, time, object, slug, writer, request, \
                         CASE WHEN new_json IS NULL THEN 1 ELSE 0 END, \
                         CASE WHEN slug = $1 THEN COALESCE(new_json, old_json) END FROM history \
                         WHERE (revision > $2 OR (revision = $2 AND position > $3)) AND slug NOT IN ($4, $5) \
                         ORDER BY revision, position LIMIT $6";
        let rows = sqlx::query(statement)
            .bind(ApiToken::slug())
            .bind(number(revision))
            .bind(number(place))
            .bind(NOT_RECORDED[0])
            .bind(NOT_RECORDED[1])
            .bind(number(limit))
            .fetch_all(self.connection().await?)
            .await
            .map_err(io("be read"))?;
        rows.iter().map(write_row).collect()
    }

    async fn prune(&mut self, keep: &Retention, wall: u64) -> Result<u64, StoreError> {
        // Asked for every few seconds: where all is to be kept, that costs a look at the oldest line, and none at its texts.
        let first = self.rows("SELECT time FROM history ORDER BY revision, position LIMIT 1").await?;
        let total = self.meta("history_bytes").await?.unwrap_or_default();
        let total: u64 = parsed("meta.history_bytes", &total)?;
        let Some(first) = first.first() else { return Ok(0) };
        if !keep.is_beyond(unsigned(first, 0, "history.time")?, wall, total) {
            return Ok(0);
        }
        let statement =
            concat!("SELECT revision, time, ", line_bytes!(), " FROM history ORDER BY revision, position LIMIT $1");
        let query = sqlx::query(statement).bind(PRUNE_ROWS);
        let rows = query.fetch_all(self.connection().await?).await.map_err(io("be read"))?;
        let mut oldest = Vec::with_capacity(rows.len());
        for row in &rows {
            let (revision, time) = (unsigned(row, 0, "history.revision")?, unsigned(row, 1, "history.time")?);
            oldest.push((revision, time, unsigned(row, 2, "history")?));
        }
        // The last revision may go on behind the rows that were read.
        let whole = if rows.len() < PRUNE_ROWS as usize { u64::MAX } else { oldest.last().map_or(0, |last| last.0) };
        let (mut freed, mut pruned, mut below) = (0, 0, 0);
        for (revision, time, bytes) in oldest.into_iter().take_while(|(revision, ..)| *revision < whole) {
            // A revision is kept or forgotten as a whole.
            let is_beyond = revision < below || keep.is_beyond(time, wall, total.saturating_sub(freed));
            if !is_beyond {
                break;
            }
            (freed, pruned, below) = (freed + bytes, pruned + 1, revision + 1);
        }
        if pruned > 0 {
            let stored = match self.connection().await {
                Ok(connection) => forget_history(connection, below, freed).await.map_err(io("forget old history")),
                Err(error) => Err(error),
            };
            self.settle(stored).await?;
        }
        Ok(pruned)
    }

    async fn close(mut self) {
        self.disconnect().await;
    }
}

async fn forget_history(connection: &mut AnyConnection, below: u64, freed: u64) -> Result<(), sqlx::Error> {
    let mut database = connection.begin_with("BEGIN IMMEDIATE").await?;
    let forget = sqlx::query("DELETE FROM history WHERE revision < $1").bind(number(below));
    forget.execute(&mut *database).await?;
    let statement = "UPDATE meta SET value = CAST(CAST(value AS BIGINT) - $1 AS TEXT) WHERE key = 'history_bytes'";
    sqlx::query(statement).bind(number(freed)).execute(&mut *database).await?;
    database.commit().await
}

/// Bytes of the history of a transaction.
fn history_bytes(transaction: &Transaction) -> usize {
    let of_all = transaction.writer.len() + transaction.request.len() + HISTORY_ROW_BYTES;
    let text = |text: &Option<Arc<str>>| text.as_deref().map_or(0, str::len);
    transaction.history.iter().map(|row| text(&row.old) + text(&row.new) + of_all).sum()
}

async fn write_commit(
    connection: &mut AnyConnection,
    commit: &Commit,
    forget_below: Option<u64>,
) -> Result<(), sqlx::Error> {
    let mut database = connection.begin_with("BEGIN IMMEDIATE").await?;
    for transaction in &commit.transactions {
        write_transaction(&mut database, transaction).await?;
    }
    if let Some(last) = commit.transactions.last() {
        let bytes: usize = commit.transactions.iter().map(history_bytes).sum();
        sqlx::query(SET_REVISION)
            .bind(last.revision.to_string())
            .bind(bytes.to_string())
            .execute(&mut *database)
            .await?;
    }
    if let Some(timelines) = &commit.timelines {
        set_meta(&mut database, "timelines", timelines.to_string()).await?;
    }
    for request in &commit.requests {
        let result = serde_json::to_string(&request.result).map_err(|e| sqlx::Error::Encode(e.into()))?;
        sqlx::query("INSERT INTO request (sequence, digest, result) VALUES ($1, $2, $3)")
            .bind(number(request.sequence))
            .bind(request.digest.to_string())
            .bind(result)
            .execute(&mut *database)
            .await?;
    }
    if let Some(below) = forget_below {
        let forget = sqlx::query("DELETE FROM request WHERE sequence < $1").bind(number(below));
        forget.execute(&mut *database).await?;
    }
    database.commit().await
}

/// As large as a small write with its history, so that the first of them does not fail again at once.
async fn write_probe(connection: &mut AnyConnection) -> Result<(), sqlx::Error> {
    for value in [" ".repeat(PROBE_BYTES), String::new()] {
        let mut database = connection.begin_with("BEGIN IMMEDIATE").await?;
        set_meta(&mut database, "probe", value).await?;
        database.commit().await?;
    }
    Ok(())
}

/// A connection that may write.
async fn connect(path: &Path) -> Result<AnyConnection, StoreError> {
    let failed = |source| StoreError::Open { path: PathBuf::from(path), hint: hint(&source), source };
    match connect_with(path, "PRAGMA locking_mode = NORMAL").await {
        // No room for the memory that processes share, or a file system that cannot: one process needs none.
        Err(error) if matches!(primary_code(&error), Some(10 | 13 | 14)) => {
            let alone = connect_with(path, "PRAGMA locking_mode = EXCLUSIVE").await;
            alone.map_err(failed)
        }
        other => other.map_err(failed),
    }
}

async fn connect_with(path: &Path, locking: &'static str) -> Result<AnyConnection, sqlx::Error> {
    sqlx::any::install_default_drivers();
    let mut connection = AnyConnection::connect(&url(path, "rwc")).await?;
    for statement in [
        locking,
        "PRAGMA journal_mode = WAL",
        "PRAGMA synchronous = FULL",
        "CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL)",
    ] {
        sqlx::query(statement).execute(&mut connection).await?;
    }
    Ok(connection)
}

/// A connection that changes nothing; the file must exist.
pub(super) async fn connect_to_read(path: &Path) -> Result<AnyConnection, StoreError> {
    connect_as_is(path, "ro").await
}

/// A connection to a file that no one else has; it must exist.
pub(super) async fn connect_to_change(path: &Path) -> Result<AnyConnection, StoreError> {
    connect_as_is(path, "rw").await
}

async fn connect_as_is(path: &Path, mode: &str) -> Result<AnyConnection, StoreError> {
    sqlx::any::install_default_drivers();
    let opened = AnyConnection::connect(&url(path, mode)).await;
    opened.map_err(|source| StoreError::Open { path: PathBuf::from(path), hint: hint(&source), source })
}

pub(super) async fn meta(connection: &mut AnyConnection, key: &str) -> Result<Option<String>, StoreError> {
    let query = sqlx::query("SELECT value FROM meta WHERE key = $1").bind(key);
    let row = query.fetch_optional(connection).await.map_err(io("be read"))?;
    row.map(|row| text(&row, 0, "meta.value")).transpose()
}

pub(super) async fn set_meta(
    connection: &mut AnyConnection,
    key: &'static str,
    value: String,
) -> Result<(), sqlx::Error> {
    sqlx::query(SET_META).bind(key).bind(value).execute(connection).await.map(|_| ())
}

/// The version of the schema that `meta` says; 0 for a file that holds nothing yet.
///
/// # Errors
/// [`StoreError::Version`] if this program does not know it.
pub(super) fn schema_version(meta: Option<&str>) -> Result<i64, StoreError> {
    let found = meta.map_or(Ok(0), |text| parsed("meta.schema_version", text))?;
    if found > KNOWN_VERSION {
        return Err(StoreError::Version { found, known: KNOWN_VERSION });
    }
    Ok(found)
}

async fn write_transaction(database: &mut AnyConnection, transaction: &Transaction) -> Result<(), sqlx::Error> {
    if let Some(row) = &transaction.object {
        let statement = "INSERT INTO object (uuid, class, rank, owner, deleted, member_of, subclass_of) \
                         VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (uuid) DO UPDATE SET class = excluded.class, \
                         rank = excluded.rank, owner = excluded.owner, deleted = excluded.deleted, \
                         member_of = excluded.member_of, subclass_of = excluded.subclass_of";
        sqlx::query(statement)
            .bind(row.uuid.to_string())
            .bind(row.class.to_string())
            .bind(i64::from(row.rank))
            .bind(row.owner.to_string())
            .bind(i64::from(row.deleted))
            .bind(uuids_text(&row.member_of))
            .bind(uuids_text(&row.subclass_of))
            .execute(&mut *database)
            .await?;
    }
    match &transaction.application {
        Some((uuid, Some(slug))) => {
            let insert = sqlx::query("INSERT INTO application (uuid, slug) VALUES ($1, $2)");
            insert.bind(uuid.to_string()).bind(slug.to_string()).execute(&mut *database).await?;
        }
        Some((uuid, None)) => {
            let delete = sqlx::query("DELETE FROM application WHERE uuid = $1");
            delete.bind(uuid.to_string()).execute(&mut *database).await?;
        }
        None => {}
    }
    for row in &transaction.entries {
        match &row.entry {
            Some(entry) => {
                let statement = "INSERT INTO entry (object, application, json, etag, revision, builtin) \
                                 VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (object, application) DO UPDATE SET \
                                 json = excluded.json, etag = excluded.etag, revision = excluded.revision, \
                                 builtin = excluded.builtin";
                sqlx::query(statement)
                    .bind(row.object.to_string())
                    .bind(row.application.to_string())
                    .bind(entry.json.to_string())
                    .bind(entry.etag.to_string())
                    .bind(number(entry.revision))
                    .bind(i64::from(entry.builtin))
                    .execute(&mut *database)
                    .await?;
            }
            None => {
                let delete = sqlx::query("DELETE FROM entry WHERE object = $1 AND application = $2");
                delete.bind(row.object.to_string()).bind(row.application.to_string()).execute(&mut *database).await?;
            }
        }
    }
    let statement = "INSERT INTO history (revision, position, time, object, slug, old_json, new_json, etag, writer, request) \
                     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";
    for (position, row) in (0_i64..).zip(&transaction.history) {
        sqlx::query(statement)
            .bind(number(transaction.revision))
            .bind(position)
            .bind(number(transaction.time))
            .bind(row.object.to_string())
            .bind(row.slug.to_string())
            .bind(row.old.as_deref().map(str::to_owned))
            .bind(row.new.as_deref().map(str::to_owned))
            .bind(row.etag.map(|etag| etag.to_string()))
            .bind(transaction.writer.to_string())
            .bind(transaction.request.to_string())
            .execute(&mut *database)
            .await?;
    }
    Ok(())
}

fn object_row(row: &AnyRow) -> Result<ObjectRow, StoreError> {
    Ok(ObjectRow {
        uuid: uuid(row, 0, "object.uuid")?,
        class: uuid(row, 1, "object.class")?,
        rank: parsed("object.rank", &integer(row, 2)?.to_string())?,
        owner: uuid(row, 3, "object.owner")?,
        deleted: integer(row, 4)? != 0,
        member_of: uuids(row, 5, "object.member_of")?,
        subclass_of: uuids(row, 6, "object.subclass_of")?,
    })
}

fn application_row(row: &AnyRow) -> Result<(Uuid, Arc<str>), StoreError> {
    Ok((uuid(row, 0, "application.uuid")?, text(row, 1, "application.slug")?.into()))
}

fn entry_row(row: &AnyRow) -> Result<(Uuid, Uuid, StoredEntry), StoreError> {
    let entry = StoredEntry {
        json: text(row, 2, "entry.json")?.into(),
        etag: uuid(row, 3, "entry.etag")?,
        revision: unsigned(row, 4, "entry.revision")?,
        builtin: integer(row, 5)? != 0,
    };
    Ok((uuid(row, 0, "entry.object")?, uuid(row, 1, "entry.application")?, entry))
}

fn request_row(row: &AnyRow) -> Result<RecordedRequest, StoreError> {
    let result = text(row, 2, "request.result")?;
    let malformed = |_| StoreError::Malformed { what: "request.result", value: result.clone() };
    Ok(RecordedRequest {
        sequence: unsigned(row, 0, "request.sequence")?,
        digest: uuid(row, 1, "request.digest")?,
        result: serde_json::from_str(&result).map_err(malformed)?,
    })
}

fn history_row(row: &AnyRow, object: Uuid) -> Result<HistoryEntry, StoreError> {
    let optional = |i: usize| row.try_get::<Option<String>, _>(i).map_err(io("be read"));
    let etag = optional(2)?.map(|text| parsed("history.etag", &text)).transpose()?;
    Ok(HistoryEntry {
        object,
        slug: text(row, 0, "history.slug")?.into(),
        json: optional(1)?.map(Into::into),
        etag,
        revision: unsigned(row, 3, "history.revision")?,
        time: unsigned(row, 4, "history.time")?,
        writer: text(row, 5, "history.writer")?.into(),
        request: text(row, 6, "history.request")?.into(),
    })
}

fn write_row(row: &AnyRow) -> Result<WriteRow, StoreError> {
    let token = row.try_get::<Option<String>, _>(8).map_err(io("be read"))?;
    Ok(WriteRow {
        at: (unsigned(row, 0, "history.revision")?, unsigned(row, 1, "history.position")?),
        time: unsigned(row, 2, "history.time")?,
        object: uuid(row, 3, "history.object")?,
        slug: text(row, 4, "history.slug")?.into(),
        writer: text(row, 5, "history.writer")?.into(),
        request: text(row, 6, "history.request")?.into(),
        is_deletion: integer(row, 7)? != 0,
        token: token.map(Into::into),
    })
}

pub(super) fn text(row: &AnyRow, column: usize, _what: &'static str) -> Result<String, StoreError> {
    row.try_get::<String, _>(column).map_err(io("be read"))
}

pub(super) fn integer(row: &AnyRow, column: usize) -> Result<i64, StoreError> {
    row.try_get::<i64, _>(column).map_err(io("be read"))
}

fn unsigned(row: &AnyRow, column: usize, what: &'static str) -> Result<u64, StoreError> {
    let value = integer(row, column)?;
    u64::try_from(value).map_err(|_| StoreError::Malformed { what, value: value.to_string() })
}

fn uuid(row: &AnyRow, column: usize, what: &'static str) -> Result<Uuid, StoreError> {
    parsed(what, &text(row, column, what)?)
}

fn uuids(row: &AnyRow, column: usize, what: &'static str) -> Result<BTreeSet<Uuid>, StoreError> {
    let text = text(row, column, what)?;
    text.split_whitespace().map(|uuid| parsed(what, uuid)).collect()
}

fn uuids_text(uuids: &BTreeSet<Uuid>) -> String {
    uuids.iter().map(Uuid::to_string).collect::<Vec<_>>().join(" ")
}

pub(super) fn parsed<T: std::str::FromStr>(what: &'static str, value: &str) -> Result<T, StoreError> {
    value.parse().map_err(|_| StoreError::Malformed { what, value: value.to_owned() })
}

/// BIGINT is signed; no revision, time or limit of ours comes near its end.
fn number(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

pub(super) fn io(step: &'static str) -> impl Fn(sqlx::Error) -> StoreError {
    move |source| StoreError::Io { step, source }
}

fn url(path: &Path, mode: &str) -> String {
    let path = path.to_string_lossy().replace('%', "%25").replace('?', "%3F").replace('#', "%23");
    format!("sqlite://{path}?mode={mode}")
}

/// The primary code of an error of SQLite.
pub(super) fn primary_code(error: &sqlx::Error) -> Option<u32> {
    let code = error.as_database_error()?.code()?.parse::<u32>().ok()?;
    Some(code & 0xff)
}

/// What to do about an error of SQLite.
fn hint(error: &sqlx::Error) -> &'static str {
    match primary_code(error) {
        Some(5 | 6) => "another process holds it; stop that one first",
        Some(11 | 26) => "it is damaged or no SQLite database; restore it from a backup or move it away",
        Some(8 | 14 | 23) => "the process may not write there; check path and permissions",
        Some(10 | 13) => "the disk is full or failing",
        _ => "check path and permissions",
    }
}
