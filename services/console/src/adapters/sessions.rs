//! The file of sessions. It is replaced as a whole, and at once where one has ended: a machine that loses power after a sign-out does not revive it.

use std::io;
use std::path::{Path, PathBuf};

use service_runtime::atomic_file::{self, OWNER_ONLY};
use service_runtime::state_dir::StateDir;

use crate::kept::{self, KeptSession};

/// Name of the file in the state directory.
const FILE: &str = "sessions.json";

/// Largest file that is read: more than a thousand sessions of users with many clusters.
const BYTES_MAX: u64 = 16 * 1024 * 1024;

/// See the module.
#[derive(Debug)]
pub struct SessionFile {
    path: PathBuf,
    rules: String,
}

impl SessionFile {
    /// The file of a state directory, and what it holds. `rules`: those by which claims count.
    #[must_use]
    pub fn open(state_dir: &Path, rules: &str) -> (Self, Vec<KeptSession>) {
        let file = Self { path: state_dir.join(FILE), rules: rules.to_owned() };
        let sessions = file.read().unwrap_or_else(|error| {
            let path = file.path.display();
            tracing::warn!(file = %path, error = %error, "the sessions of before cannot be read; users sign in again");
            Vec::new()
        });
        (file, sessions)
    }

    fn read(&self) -> io::Result<Vec<KeptSession>> {
        match std::fs::metadata(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Ok(metadata) if metadata.len() > BYTES_MAX => return Err(io::Error::other("it is too large")),
            _ => {}
        }
        kept::from_bytes(&std::fs::read(&self.path)?, &self.rules).map_err(io::Error::from)
    }

    /// Replaces what the file holds; returns when that is on the disk. What cannot be written is said, and the sessions of this process continue.
    pub async fn write(&self, sessions: &[KeptSession]) {
        let (path, bytes) = (self.path.clone(), kept::to_bytes(sessions, &self.rules));
        let written = tokio::task::spawn_blocking(move || {
            if let Some(directory) = path.parent() {
                StateDir::from(directory).create()?;
            }
            let written = atomic_file::write(&path, &bytes, Some(OWNER_ONLY)).map_err(io::Error::other);
            if written.is_err() {
                // Better none than one that has ended.
                let _ = std::fs::remove_file(&path);
            }
            written
        });
        if let Err(error) = written.await.unwrap_or_else(|error| Err(io::Error::other(error))) {
            tracing::error!(file = %self.path.display(), error = %error, "sessions are not kept: users sign in again when the console is restarted");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::kept::KeptHolder;
    use crate::question::SessionHash;
    use access::Principal;

    #[tokio::test]
    async fn what_is_written_is_read_by_the_next_process_and_by_its_owner_alone() {
        let directory = tempfile::tempdir().unwrap();
        let (file, none) = SessionFile::open(directory.path(), "rules");
        assert!(none.is_empty());
        let holder = KeptHolder::Person(Principal { name: "oidc:ben".to_owned(), grants: Vec::new() });
        let kept = vec![KeptSession { hash: SessionHash::of("s"), holder, began: 1, used: 2 }];
        file.write(&kept).await;
        assert_eq!(SessionFile::open(directory.path(), "rules").1, kept);
        let path = directory.path().join(FILE);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        file.write(&[]).await;
        assert!(SessionFile::open(directory.path(), "rules").1.is_empty());
        for damaged in ["", "{", "[]", "{\"version\":1}"] {
            std::fs::write(&path, damaged).unwrap();
            assert!(SessionFile::open(directory.path(), "rules").1.is_empty(), "{damaged}");
        }
    }
}
