//! What must survive: the interface to a store, and what is stored. A commit is atomic and durable when it returns.

pub mod backup;
mod lock;
mod memory;
mod sqlite;

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use configdb_contract::{HistoryEntry, ReplayRequest, RequestResult};
use configdb_schema::document::ApiToken;
use configdb_schema::{Document as _, application};
use sparkplug::replication::Timelines;
use uuid::Uuid;

pub use crate::object::ObjectRow;
use crate::object::StoredEntry;

pub use memory::MemoryStore;
pub use sqlite::SqliteStore;

/// Name of the SQLite store in ConfigDB's state directory.
pub const STORE_FILE: &str = "configdb.sqlite";

/// Slugs of entries that [`Store::writes`] leaves out: the cluster manager reports in them what it does and sees, often, and they command nothing.
pub const NOT_RECORDED: [&str; 2] = [application::EDGE_CLUSTER_STATUS.slug, application::EDGE_CLUSTER_SETUP.slug];

/// An entry after a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryRow {
    pub object: Uuid,
    pub application: Uuid,
    /// The entry; None: deleted.
    pub entry: Option<StoredEntry>,
}

/// A line of history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryRow {
    pub object: Uuid,
    /// What: a slug, `Registration` or `Membership`.
    pub slug: Arc<str>,
    /// JSON before; None: there was none.
    pub old: Option<Arc<str>>,
    /// JSON after; None: deleted.
    pub new: Option<Arc<str>>,
    /// ETag after, of an entry.
    pub etag: Option<Uuid>,
}

/// A line of history, for the record of writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteRow {
    /// Revision, and place in its transaction.
    pub at: (u64, u64),
    pub time: u64,
    pub object: Uuid,
    /// What: a slug, `Registration` or `Membership`.
    pub slug: Arc<str>,
    /// It is gone.
    pub is_deletion: bool,
    pub writer: Arc<str>,
    pub request: Arc<str>,
    /// JSON of an `ApiToken` after the write, or before its deletion.
    pub token: Option<Arc<str>>,
}

/// What one request changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transaction {
    /// One more than that of the transaction before.
    pub revision: u64,
    pub time: u64,
    pub writer: Arc<str>,
    pub request: Arc<str>,
    /// The object, if its registration or relations changed.
    pub object: Option<ObjectRow>,
    pub entries: Vec<EntryRow>,
    /// The object became an application with this slug, or (None) stopped being one.
    pub application: Option<(Uuid, Option<Arc<str>>)>,
    pub history: Vec<HistoryRow>,
}

/// An answered request, so that a repetition gets the same answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedRequest {
    /// Counts up; the oldest are forgotten first.
    pub sequence: u64,
    /// Digest of the request's content.
    pub digest: Uuid,
    pub result: RequestResult,
}

impl Transaction {
    /// The lines of its history that [`Store::writes`] gives of it.
    pub(crate) fn writes(&self) -> impl Iterator<Item = WriteRow> {
        let recorded = (0..).zip(&self.history).filter(|(_, row)| !NOT_RECORDED.contains(&&*row.slug));
        recorded.map(|(place, row)| WriteRow {
            at: (self.revision, place),
            time: self.time,
            object: row.object,
            slug: row.slug.clone(),
            is_deletion: row.new.is_none(),
            writer: self.writer.clone(),
            request: self.request.clone(),
            token: row.new.as_ref().or(row.old.as_ref()).filter(|_| *row.slug == *ApiToken::slug()).cloned(),
        })
    }
}

/// All that one turn has to store.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Commit {
    pub transactions: Vec<Transaction>,
    /// The timelines, where one has begun with these transactions.
    pub timelines: Option<Timelines>,
    /// Answers, applied and refused.
    pub requests: Vec<RecordedRequest>,
    /// Recorded requests with a smaller sequence are forgotten.
    pub forget_below: u64,
}

impl Commit {
    /// Whether there is nothing to store.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.transactions.is_empty() && self.requests.is_empty() && self.timelines.is_none()
    }
}

/// The whole store, to start with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Made with the store, and its identity for ever.
    pub identity: Uuid,
    /// Which session of the process wrote which revisions.
    pub timelines: Timelines,
    /// Of the last transaction.
    pub revision: u64,
    /// All objects, deleted ones too.
    pub objects: Vec<ObjectRow>,
    /// Applications and their slugs.
    pub applications: Vec<(Uuid, Arc<str>)>,
    /// Entries: object, application, entry.
    pub entries: Vec<(Uuid, Uuid, StoredEntry)>,
    /// Remembered requests in the order of their sequence.
    pub requests: Vec<RecordedRequest>,
}

/// What a store cannot do.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("the database {} cannot be opened; {hint}", path.display())]
    Open {
        path: PathBuf,
        hint: &'static str,
        /// What the database says.
        #[source]
        source: sqlx::Error,
    },
    /// A newer program wrote it.
    #[error(
        "the database has schema version {found}, this program knows versions up to {known}; use the newer program"
    )]
    Version {
        found: i64,
        /// Newest that is known.
        known: i64,
    },
    /// A row that cannot be read.
    #[error("the database holds a malformed {what}: {value:?}; restore it from a backup")]
    Malformed { what: &'static str, value: String },
    /// There was a store, and what is there now holds nothing.
    #[error(
        "the database {} holds nothing, but {mark}; restore it from a backup (configdb.sqlite and configdb.sqlite-wal belong together), or start with --new-store: clusters that follow the lost store then hold until `sparkfleet recover`",
        path.display()
    )]
    Lost {
        path: PathBuf,
        /// What says that there was one.
        mark: &'static str,
    },
    /// There is no room for what should be stored. Nothing of it is.
    #[error("the disk is full")]
    Full {
        /// What the database says.
        #[source]
        source: Box<StoreError>,
    },
    #[error("the database cannot {step}")]
    Io {
        step: &'static str,
        /// What the database says.
        #[source]
        source: sqlx::Error,
    },
}

/// How much history is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    pub age: Duration,
    /// How many bytes of it.
    pub bytes: u64,
}

impl Default for Retention {
    /// A year, 1 GiB.
    fn default() -> Self {
        Self::new(Self::DAYS, Self::BYTES)
    }
}

impl Retention {
    pub const DAYS: usize = 365;
    pub const BYTES: usize = 1024 * 1024 * 1024;

    /// So many days and bytes.
    #[must_use]
    pub const fn new(days: usize, bytes: usize) -> Self {
        Self { age: Duration::from_secs((days as u64).saturating_mul(24 * 3600)), bytes: bytes as u64 }
    }

    /// Whether a line of that time (UTC ms) is not to be kept, as the oldest of a history of so many bytes.
    fn is_beyond(&self, time: u64, wall: u64, bytes: u64) -> bool {
        bytes > self.bytes || u128::from(wall.saturating_sub(time)) > self.age.as_millis()
    }
}

/// A place where transactions survive. There is one writer.
pub trait Store: Send {
    /// Everything, as after the last commit.
    fn load(&mut self) -> impl Future<Output = Result<Snapshot, StoreError>> + Send;

    /// Stores all of it durably, or nothing. After [`StoreError::Full`] everything can be read as before.
    fn commit(&mut self, commit: &Commit) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Stores something that means nothing: whether [`Store::commit`] works again.
    fn probe(&mut self) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// The history that a request asks for, oldest first.
    fn history(
        &mut self,
        request: &ReplayRequest,
    ) -> impl Future<Output = Result<Vec<HistoryEntry>, StoreError>> + Send;

    /// The history behind that revision and place, oldest first, at most so many lines; without [`NOT_RECORDED`].
    fn writes(
        &mut self,
        after: (u64, u64),
        limit: u64,
    ) -> impl Future<Output = Result<Vec<WriteRow>, StoreError>> + Send;

    /// Forgets history that is not to be kept, the oldest first, in one small transaction; yields how many lines. Call it again while there are any. `wall`: UTC ms.
    fn prune(&mut self, keep: &Retention, wall: u64) -> impl Future<Output = Result<u64, StoreError>> + Send;

    /// Ends the use of it; what is committed stays.
    fn close(self) -> impl Future<Output = ()> + Send;
}
