//! One process writes a store: the lock file beside it. SQLite's own locks are for its readers and writers of the moment.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use service_runtime::atomic_file::OWNER_ONLY;

use super::StoreError;

/// The right to write a store, until it is dropped or the process ends.
#[derive(Debug)]
pub(super) struct StoreLock {
    _file: File,
}

impl StoreLock {
    /// Takes the lock of the store at `path`.
    ///
    /// # Errors
    /// [`StoreError::Open`] if another process has it, or the lock file can be neither opened nor made.
    pub(super) fn take(path: &Path) -> Result<Self, StoreError> {
        let failed = |hint, source: io::Error| StoreError::Open {
            path: PathBuf::from(path),
            hint,
            source: sqlx::Error::Io(source),
        };
        let file = open(&lock_path(path)).map_err(|error| failed("check path and permissions", error))?;
        match file.try_lock() {
            Ok(()) => Ok(Self { _file: file }),
            Err(TryLockError::WouldBlock) => Err(failed(
                "another process holds it; stop that one first",
                io::Error::new(io::ErrorKind::WouldBlock, "its lock file is locked"),
            )),
            Err(TryLockError::Error(error)) => Err(failed("its lock file cannot be locked", error)),
        }
    }
}

/// The lock file of the store at `path`.
pub(super) fn lock_path(path: &Path) -> PathBuf {
    with_ending(path, ".lock")
}

/// A file beside another, with a longer name.
pub(super) fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

/// A lock file that is there is not written: that works on a full disk.
fn open(path: &Path) -> io::Result<File> {
    match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            OpenOptions::new().write(true).create(true).truncate(false).mode(OWNER_ONLY).open(path)
        }
        opened => opened,
    }
}
