//! The directory of a service's own files.
//!
//! A program that a service starts works in another directory and would take a relative path for another place. So a path is made absolute where it
//! enters the configuration, and nowhere else. This module must not know what is in the directory.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::ops::Deref;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Mode of a directory that only its owner may enter.
pub const OWNER_ONLY: u32 = 0o700;

/// Path of a state directory. It derefs to the absolute path, and serialises as it was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "PathBuf", into = "PathBuf")]
pub struct StateDir {
    written: PathBuf,
    absolute: PathBuf,
}

impl StateDir {
    /// Makes the directory, with mode 0700, and its parents. One that exists keeps what is in it, and is closed to others if it is ours and not where the process works. Blocks.
    ///
    /// # Errors
    /// The path is not absolute because the working directory cannot be read, or the directory cannot be made.
    pub fn create(&self) -> io::Result<()> {
        if !self.absolute.is_absolute() {
            return Err(io::Error::other("the path cannot be made absolute; write it so"));
        }
        let existed = self.absolute.is_dir();
        DirBuilder::new().recursive(true).mode(OWNER_ONLY).create(&self.absolute)?;
        let is_shared = std::env::current_dir().is_ok_and(|directory| directory == self.absolute);
        if existed && !is_shared {
            let mode = fs::metadata(&self.absolute)?.permissions().mode();
            // A volume of Kubernetes belongs to root, and its group is ours: what cannot be changed is not ours to change.
            if mode & 0o077 != 0
                && let Err(error) = fs::set_permissions(&self.absolute, Permissions::from_mode(OWNER_ONLY))
            {
                tracing::debug!(directory = %self.absolute.display(), error = %error, "others may enter the state directory");
            }
        }
        Ok(())
    }
}

impl From<PathBuf> for StateDir {
    fn from(written: PathBuf) -> Self {
        // An empty path stays empty, and the service's check of its configuration names the key.
        let absolute = std::path::absolute(&written).unwrap_or_else(|_| written.clone());
        Self { written, absolute }
    }
}

impl From<&Path> for StateDir {
    fn from(path: &Path) -> Self {
        path.to_owned().into()
    }
}

impl From<&str> for StateDir {
    fn from(path: &str) -> Self {
        PathBuf::from(path).into()
    }
}

impl From<StateDir> for PathBuf {
    fn from(directory: StateDir) -> Self {
        directory.written
    }
}

impl Deref for StateDir {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.absolute
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relative_path_is_used_as_an_absolute_one_and_shown_as_it_was_written() {
        let directory = StateDir::from("var/state");
        assert!(directory.is_absolute() && directory.ends_with("var/state"));
        assert_eq!(serde_json::to_value(&directory).unwrap(), "var/state");
        let read: StateDir = serde_json::from_value("var/state".into()).unwrap();
        assert_eq!(read, directory);
        assert!(StateDir::from("").as_os_str().is_empty());
    }

    #[test]
    fn the_directory_is_closed_to_others_whether_it_was_there_or_not() {
        let root = tempfile::tempdir().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let made = StateDir::from(root.path().join("a/b"));
        made.create().unwrap();
        assert_eq!((mode(&made), mode(&root.path().join("a"))), (0o700, 0o700));
        fs::set_permissions(&*made, Permissions::from_mode(0o755)).unwrap();
        made.create().unwrap();
        assert_eq!(mode(&made), 0o700);
    }
}
