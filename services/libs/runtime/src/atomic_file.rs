//! Replace a file completely or not at all, whenever the machine stops.
//!
//! Written beside the target, synced, renamed over it, and the directory synced: a reader sees the old content or the
//! whole of the other one. This module must not know what is in the file.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Mode of a file that only its owner may read: keys, tokens.
pub const OWNER_ONLY: u32 = 0o600;

/// Which step failed at which path.
#[derive(Debug, thiserror::Error)]
#[error("cannot {step} {}", path.display())]
pub struct AtomicFileError {
    step: &'static str,
    path: PathBuf,
    #[source]
    source: io::Error,
}

impl AtomicFileError {
    fn at(step: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self { step, path: path.to_owned(), source }
    }

    /// Something is at the path already.
    #[must_use]
    pub fn is_taken(&self) -> bool {
        self.source.kind() == io::ErrorKind::AlreadyExists
    }
}

/// Makes `bytes` the content of `path`. The directory must exist.
///
/// With `mode` the file gets exactly these permissions, before it has content; without, what the umask leaves of 0666.
/// Blocks on the disk: call it from a blocking task where the caller must not wait.
///
/// # Errors
/// A step failed; the file at `path` is then as it was, unless only the last sync of the directory failed.
pub fn write(path: &Path, bytes: &[u8], mode: Option<u32>) -> Result<(), AtomicFileError> {
    place(path, bytes, mode, |temporary| fs::rename(temporary, path).map_err(AtomicFileError::at("replace", path)))
}

/// As [`write()`], but only where nothing is: a file that is there stays, and the error [`AtomicFileError::is_taken`]. Of several that create the same file, one succeeds.
///
/// # Errors
/// A step failed, or there is something at `path`.
pub fn create(path: &Path, bytes: &[u8], mode: Option<u32>) -> Result<(), AtomicFileError> {
    place(path, bytes, mode, |temporary| {
        fs::hard_link(temporary, path).map_err(AtomicFileError::at("create", path))?;
        fs::remove_file(temporary).map_err(AtomicFileError::at("remove", temporary))
    })
}

fn place(
    path: &Path,
    bytes: &[u8],
    mode: Option<u32>,
    publish: impl FnOnce(&Path) -> Result<(), AtomicFileError>,
) -> Result<(), AtomicFileError> {
    let directory = directory_of(path);
    let Some(name) = path.file_name() else {
        return Err(AtomicFileError::at("write a file at", path)(io::ErrorKind::InvalidInput.into()));
    };
    let temporary = directory.join(temporary_name(&name.to_string_lossy()));
    if let Err(error) = write_new(&temporary, bytes, mode).and_then(|()| publish(&temporary)) {
        // Best effort: the error above is the one worth telling.
        let _ = fs::remove_file(&temporary);
        return Err(error);
    }
    sync_directory(directory)
}

/// The directory that a path's file is in.
#[must_use]
pub fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Makes what was created, renamed and removed in a directory outlive a loss of power. Blocks.
///
/// # Errors
/// It cannot be opened or synced.
pub fn sync_directory(directory: &Path) -> Result<(), AtomicFileError> {
    File::open(directory).and_then(|directory| directory.sync_all()).map_err(AtomicFileError::at("sync", directory))
}

fn write_new(path: &Path, bytes: &[u8], mode: Option<u32>) -> Result<(), AtomicFileError> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    if let Some(mode) = mode {
        options.mode(mode);
    }
    let opened = match options.open(path) {
        // No living thread of this process has this name, so it was left by a killed one with the same process id (in a
        // container that is always 1).
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            fs::remove_file(path).and_then(|()| options.open(path))
        }
        other => other,
    };
    let mut file = opened.map_err(AtomicFileError::at("create", path))?;
    if let Some(mode) = mode {
        // The umask may have taken bits away at creation.
        file.set_permissions(fs::Permissions::from_mode(mode)).map_err(AtomicFileError::at("set the mode of", path))?;
    }
    file.write_all(bytes).map_err(AtomicFileError::at("write", path))?;
    file.sync_all().map_err(AtomicFileError::at("sync", path))
}

/// Unique among the threads of this process and among living processes.
fn temporary_name(name: &str) -> String {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let number = COUNTER.fetch_add(1, Ordering::Relaxed);
    format!(".{name}.{}.{number}.tmp", std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn content_and_mode_are_replaced_and_nothing_else_is_left() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("bd_seq");
        write(&path, b"old", None).unwrap();
        write(&path, b"seven", Some(OWNER_ONLY)).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"seven");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(names(directory.path()), ["bd_seq"]);
    }

    #[test]
    fn what_is_created_replaces_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("root.key");
        create(&path, b"first", Some(OWNER_ONLY)).unwrap();
        let error = create(&path, b"second", Some(OWNER_ONLY)).unwrap_err();
        assert!(error.is_taken() && error.to_string().starts_with("cannot create "), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"first");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(names(directory.path()), ["root.key"]);
        let elsewhere = create(Path::new("/nonexistent-sparkfleet/file"), b"x", None).unwrap_err();
        assert!(!elsewhere.is_taken());
    }

    #[test]
    fn a_failed_replacement_leaves_the_target_and_no_temporary_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("taken");
        fs::create_dir(&path).unwrap();
        let error = write(&path, b"x", None).unwrap_err();
        assert!(error.to_string().starts_with("cannot replace "), "{error}");
        assert!(path.is_dir());
        assert_eq!(names(directory.path()), ["taken"]);
    }

    #[test]
    fn a_temporary_file_left_by_a_killed_process_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let left = directory.path().join(".state.1.0.tmp");
        fs::write(&left, b"half of a very long sta").unwrap();
        write_new(&left, b"whole", None).unwrap();
        assert_eq!(fs::read(&left).unwrap(), b"whole");
    }

    #[test]
    fn a_missing_directory_is_named() {
        let error = write(Path::new("/nonexistent-sparkfleet/file"), b"x", None).unwrap_err();
        assert!(error.to_string().contains("/nonexistent-sparkfleet"), "{error}");
        assert!(write(Path::new("/"), b"x", None).is_err());
    }
}
