//! Copies of a SQLite store: one made of a live store, and one put in the place of a store that no one holds.
//!
//! A copy is made by SQLite in one read transaction (`VACUUM INTO`): it is one state of the store, and the writer continues meanwhile. Files are made beside their place and renamed, so
//! a process killed at any moment leaves no half of one.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use configdb_schema::document::ApiToken;
use configdb_schema::known::application::{API_TOKEN, EDGE_CLUSTER_RECOVERY};
use serde::Serialize;
use service_runtime::atomic_file::{AtomicFileError, directory_of, sync_directory};
use sqlx::{AnyConnection, Connection as _};
use tempfile::NamedTempFile;
use uuid::Uuid;

use super::lock::{StoreLock, lock_path, with_ending};
use super::sqlite::{
    connect_to_change, connect_to_read, integer, io as sql, meta, parsed, primary_code, schema_version, set_meta, text,
};
use super::{STORE_FILE, StoreError};
use crate::epoch::epoch_of;

/// Key of `meta` that only a backup has: UTC ms at which it was made.
const BACKED_UP: &str = "backed_up";

/// What a store or a backup says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StoreInfo {
    /// Identity of the store.
    pub store: Uuid,
    /// Highest epoch that an operator has raised in it.
    pub epoch: u64,
    /// Revision of its last transaction.
    pub revision: u64,
    /// Objects that are not deleted.
    pub objects: u64,
    /// UTC ms of its last transaction; None: it has none.
    pub written: Option<u64>,
    /// UTC ms at which it was made as a backup; None: it is none.
    pub backed_up: Option<u64>,
    /// Names of the tokens of users, by their objects.
    #[serde(skip)]
    pub tokens: BTreeMap<Uuid, String>,
}

/// Why a backup was not made, or not restored. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// There is no file.
    #[error("there is no file {}", path.display())]
    Missing { path: PathBuf },
    /// Something is where the backup should go.
    #[error("{} exists; choose another name or remove it", path.display())]
    Exists { path: PathBuf },
    /// A file without a store.
    #[error("{} holds no store of ConfigDB: {reason}", path.display())]
    NoStore {
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// See [`StoreError`].
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A directory cannot be synced.
    #[error(transparent)]
    Sync(#[from] AtomicFileError),
    /// A step of the file system.
    #[error("cannot {step} {}", path.display())]
    File {
        step: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl BackupError {
    fn at(step: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::File { step, path: path.to_owned(), source }
    }
}

/// Copies the store of a state directory, live or not, to a new file of mode 0600. `now`: UTC ms.
///
/// # Errors
/// [`BackupError`]; there is no new file then.
pub async fn backup(state: &Path, target: &Path, now: u64) -> Result<StoreInfo, BackupError> {
    let directory = directory_of(target);
    let copy = NamedTempFile::new_in(directory).map_err(BackupError::at("make a file in", directory))?;
    let info = copy_of_store(state, &copy, now).await?;
    copy.persist_noclobber(target).map_err(|error| match error.error.kind() {
        io::ErrorKind::AlreadyExists => BackupError::Exists { path: target.to_owned() },
        _ => BackupError::at("create", target)(error.error),
    })?;
    sync_directory(directory)?;
    Ok(info)
}

/// The same into a file without a name, which is gone when it is closed.
///
/// # Errors
/// As [`backup`].
pub async fn backup_to_unnamed(state: &Path, now: u64) -> Result<(StoreInfo, File), BackupError> {
    let copy = NamedTempFile::new_in(state).map_err(BackupError::at("make a file in", state))?;
    let info = copy_of_store(state, &copy, now).await?;
    Ok((info, copy.reopen().map_err(BackupError::at("read", copy.path()))?))
}

async fn copy_of_store(state: &Path, copy: &NamedTempFile, now: u64) -> Result<StoreInfo, BackupError> {
    copy_into(&state.join(STORE_FILE), copy).await?;
    change(copy, async |connection| set_meta(connection, BACKED_UP, now.to_string()).await).await?;
    copy.as_file().sync_all().map_err(BackupError::at("sync", copy.path()))?;
    describe(copy.path()).await
}

/// A backup that may take the place of a store that no one holds.
#[derive(Debug)]
pub struct Restore {
    path: PathBuf,
    copy: NamedTempFile,
    /// What the backup holds.
    pub backup: StoreInfo,
    /// What it would replace; None: nothing is there. Err: something that cannot be read, and why.
    pub present: Option<Result<StoreInfo, String>>,
    _lock: StoreLock,
}

impl Restore {
    /// Looks at a backup and at the state directory that it is to be restored in, which must exist. The store is locked until the value is dropped.
    ///
    /// # Errors
    /// [`BackupError`]: the file is not a backup, a newer program made it, or a ConfigDB holds the store.
    pub async fn prepare(state: &Path, backup: &Path) -> Result<Self, BackupError> {
        let path = state.join(STORE_FILE);
        let lock = StoreLock::take(&path)?;
        let copy = NamedTempFile::new_in(state).map_err(BackupError::at("make a file in", state))?;
        copy_into(backup, &copy).await?;
        let info = describe(copy.path()).await?;
        let remove = "DELETE FROM meta WHERE key = $1";
        change(&copy, async |connection| sqlx::query(remove).bind(BACKED_UP).execute(connection).await.map(|_| ()))
            .await?;
        copy.as_file().sync_all().map_err(BackupError::at("sync", copy.path()))?;
        let present = if path.exists() { Some(describe(&path).await.map_err(|error| error.to_string())) } else { None };
        Ok(Self { path, copy, backup: info, present, _lock: lock })
    }

    /// Names of the tokens that the backup has and the present store does not: they were revoked since, and count again.
    #[must_use]
    pub fn tokens_that_return(&self) -> Vec<&str> {
        let Some(Ok(present)) = &self.present else { return Vec::new() };
        let returns = self.backup.tokens.iter().filter(|(object, _)| !present.tokens.contains_key(object));
        returns.map(|(_, name)| name.as_str()).collect()
    }

    /// Puts the backup in the place of the store, which is kept beside it under a name with `stamp` in it; yields that name.
    ///
    /// # Errors
    /// [`BackupError::File`]. ConfigDB refuses to start on what a failure halfway leaves, and the same command can be given again.
    pub fn finish(self, stamp: &str) -> Result<Option<PathBuf>, BackupError> {
        let directory = directory_of(&self.path);
        let kept = with_ending(&self.path, &format!(".replaced-{stamp}"));
        // The database goes before its log: a log without its database is not a store, and ConfigDB does not start on it.
        let mut is_kept = false;
        for ending in ["", "-wal"] {
            let from = with_ending(&self.path, ending);
            if from.exists() {
                fs::rename(&from, with_ending(&kept, ending)).map_err(BackupError::at("rename", &from))?;
                is_kept = true;
            }
        }
        let shared = with_ending(&self.path, "-shm");
        if shared.exists() {
            fs::remove_file(&shared).map_err(BackupError::at("remove", &shared))?;
        }
        sync_directory(directory)?;
        self.copy.persist(&self.path).map_err(|error| BackupError::at("replace", &self.path)(error.error))?;
        for file in [self.path.clone(), lock_path(&self.path)] {
            give_to_owner_of(directory, &file)?;
        }
        sync_directory(directory)?;
        Ok(is_kept.then_some(kept))
    }
}

/// What a store or a backup says of itself.
///
/// # Errors
/// [`BackupError`]: it is none.
pub async fn describe(path: &Path) -> Result<StoreInfo, BackupError> {
    let mut connection = opened(path).await?;
    let info = read_info(&mut connection).await;
    // Nothing was written.
    let _ = connection.close().await;
    Ok(info?)
}

async fn read_info(connection: &mut AnyConnection) -> Result<StoreInfo, StoreError> {
    let number = async |connection: &mut AnyConnection, statement: &'static str| {
        let row = sqlx::query(statement).fetch_one(connection).await.map_err(sql("be read"))?;
        let number = integer(&row, 0)?;
        u64::try_from(number).map_err(|_| StoreError::Malformed { what: "number", value: number.to_string() })
    };
    let store: Uuid = parsed("meta.identity", &meta(connection, "identity").await?.unwrap_or_default())?;
    let revision = meta(connection, "revision").await?.unwrap_or_else(|| "0".to_owned());
    let backed_up = meta(connection, BACKED_UP).await?.map(|at| parsed("meta.backed_up", &at)).transpose()?;
    let recoveries =
        sqlx::query("SELECT json FROM entry WHERE application = $1").bind(EDGE_CLUSTER_RECOVERY.to_string());
    let recoveries = recoveries.fetch_all(&mut *connection).await.map_err(sql("be read"))?;
    let mut epoch = 0;
    for row in &recoveries {
        epoch = epoch.max(epoch_of(&text(row, 0, "entry.json")?, store).unwrap_or(0));
    }
    let entries = sqlx::query("SELECT object, json FROM entry WHERE application = $1").bind(API_TOKEN.to_string());
    let mut tokens = BTreeMap::new();
    for row in &entries.fetch_all(&mut *connection).await.map_err(sql("be read"))? {
        // An entry that is none counts for nothing.
        if let Ok(token) = serde_json::from_str::<ApiToken>(&text(row, 1, "entry.json")?) {
            tokens.insert(parsed("entry.object", &text(row, 0, "entry.object")?)?, token.name);
        }
    }
    let written = number(connection, "SELECT COALESCE(MAX(time), 0) FROM history").await?;
    let objects = number(connection, "SELECT COUNT(*) FROM object WHERE deleted = 0").await?;
    Ok(StoreInfo {
        store,
        epoch,
        revision: parsed("meta.revision", &revision)?,
        objects,
        written: (written > 0).then_some(written),
        backed_up,
        tokens,
    })
}

/// Copies the store in one file to another, which is empty, if it is whole and this program knows it.
async fn copy_into(from: &Path, to: &NamedTempFile) -> Result<(), BackupError> {
    let mut connection = opened(from).await?;
    let copied = async {
        let checked = sqlx::query("PRAGMA quick_check").fetch_one(&mut connection).await.map_err(sql("be read"))?;
        let found = text(&checked, 0, "quick_check")?;
        if found != "ok" {
            return Err(no_store(from, format!("it is damaged: {found}")));
        }
        let into = sqlx::query("VACUUM INTO $1").bind(to.path().to_string_lossy().into_owned());
        into.execute(&mut connection).await.map_err(sql("be copied"))?;
        Ok(())
    };
    let copied = copied.await;
    // Nothing was written.
    let _ = connection.close().await;
    copied
}

/// A connection that reads a store of a version that this program knows.
async fn opened(path: &Path) -> Result<AnyConnection, BackupError> {
    if !path.exists() {
        return Err(BackupError::Missing { path: path.to_owned() });
    }
    let mut connection = connect_to_read(path).await?;
    let version = match meta(&mut connection, "schema_version").await {
        Ok(Some(version)) => version,
        Ok(None) => return Err(no_store(path, "it is empty".to_owned())),
        Err(StoreError::Io { source, .. }) => match primary_code(&source) {
            Some(1) => {
                let reason =
                    "it has no tables, as a copy of configdb.sqlite that was made without its configdb.sqlite-wal";
                return Err(no_store(path, reason.to_owned()));
            }
            Some(11 | 26) => return Err(no_store(path, format!("it is damaged or no SQLite database: {source}"))),
            _ => return Err(StoreError::Io { step: "be read", source }.into()),
        },
        Err(error) => return Err(error.into()),
    };
    schema_version(Some(&version))?;
    Ok(connection)
}

async fn change(
    copy: &NamedTempFile,
    statement: impl AsyncFnOnce(&mut AnyConnection) -> Result<(), sqlx::Error>,
) -> Result<(), BackupError> {
    let mut connection = connect_to_change(copy.path()).await?;
    let changed = statement(&mut connection).await.map_err(sql("be changed"));
    // The statement is committed when it returns.
    let _ = connection.close().await;
    Ok(changed?)
}

fn no_store(path: &Path, reason: String) -> BackupError {
    BackupError::NoStore { path: path.to_owned(), reason }
}

/// An administrator restores what the service's user must open.
fn give_to_owner_of(directory: &Path, file: &Path) -> Result<(), BackupError> {
    let failed = |source| BackupError::File { step: "change the owner of", path: file.to_owned(), source };
    let (wanted, found) = (fs::metadata(directory).map_err(failed)?, fs::metadata(file).map_err(failed)?);
    if wanted.uid() == found.uid() {
        return Ok(());
    }
    std::os::unix::fs::chown(file, Some(wanted.uid()), Some(wanted.gid())).map_err(failed)
}
