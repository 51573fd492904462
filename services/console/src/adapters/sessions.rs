//! The file of sessions. It is replaced as a whole, and at once where one has ended: a machine that loses power after a sign-out does not revive it.
//!
//! An old copy that is put back does not revive one either. Each writing of the file has an id of its own, and a second file holds the id of the last one. A copy of an earlier
//! writing has another id, and none of its sessions count. The file of sessions is written first and names the id before its own, so that a machine that stops between the two
//! writes loses no session. A copy of the whole state directory has both files of one time, and is accepted.

use std::io;
use std::path::{Path, PathBuf};

use service_runtime::atomic_file::{self, OWNER_ONLY};
use service_runtime::state_dir::StateDir;
use uuid::Uuid;

use crate::kept::{self, KeptSession, Writing};

/// Name of the file in the state directory.
const FILE: &str = "sessions.json";

/// Name of the file with the id of the last writing.
const LAST: &str = "sessions.last";

/// Largest file that is read: more than a thousand sessions of users with many clusters.
const BYTES_MAX: u64 = 16 * 1024 * 1024;

/// See the module.
#[derive(Debug)]
pub struct SessionFile {
    path: PathBuf,
    rules: String,
    /// The last writing; None: there is none that is known.
    last: Option<Uuid>,
}

impl SessionFile {
    /// The file of a state directory, and what it holds. `rules`: those by which claims count.
    #[must_use]
    pub fn open(state_dir: &Path, rules: &str) -> (Self, Vec<KeptSession>) {
        let mut file = Self { path: state_dir.join(FILE), rules: rules.to_owned(), last: None };
        let path = file.path.display().to_string();
        let sessions = match file.read() {
            Ok(Some(sessions)) => sessions,
            Ok(None) => {
                tracing::warn!(file = %path, "the sessions are not those that were written last: the file was put back; users sign in again");
                Vec::new()
            }
            Err(error) => {
                tracing::warn!(file = %path, error = %error, "the sessions of before cannot be read; users sign in again");
                Vec::new()
            }
        };
        (file, sessions)
    }

    /// The sessions of the last writing; None: the file is of an earlier one.
    fn read(&mut self) -> io::Result<Option<Vec<KeptSession>>> {
        match std::fs::metadata(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Some(Vec::new())),
            Ok(metadata) if metadata.len() > BYTES_MAX => return Err(io::Error::other("it is too large")),
            _ => {}
        }
        let (writing, sessions) = kept::from_bytes(&std::fs::read(&self.path)?, &self.rules)?;
        let last = match std::fs::read_to_string(self.path.with_file_name(LAST)) {
            Ok(text) => text.trim().parse::<Uuid>().ok(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        // Of a machine that stopped between the two files the second one still has the id before.
        if !writing.follows(last) {
            return Ok(None);
        }
        self.last = Some(writing.id);
        Ok(Some(sessions))
    }

    /// Replaces what the file holds; returns when that is on the disk. What cannot be written is logged, and the sessions of this process continue.
    pub async fn write(&mut self, sessions: &[KeptSession]) {
        let writing = Writing { id: Uuid::new_v4(), after: self.last };
        self.last = Some(writing.id);
        let (path, bytes) = (self.path.clone(), kept::to_bytes(writing, sessions, &self.rules));
        let written = tokio::task::spawn_blocking(move || {
            if let Some(directory) = path.parent() {
                StateDir::from(directory).create()?;
            }
            let last = path.with_file_name(LAST);
            let written = atomic_file::write(&path, &bytes, Some(OWNER_ONLY))
                .and_then(|()| atomic_file::write(&last, writing.id.to_string().as_bytes(), Some(OWNER_ONLY)));
            if written.is_err() {
                // Better none than one that has ended.
                let _ = std::fs::remove_file(&path);
            }
            written.map_err(io::Error::other)
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
    use crate::api::SessionHash;
    use crate::kept::KeptHolder;
    use access::Principal;

    fn sessions() -> Vec<KeptSession> {
        let holder = KeptHolder::Person(Principal { name: "oidc:ben".to_owned(), grants: Vec::new() });
        vec![KeptSession { hash: SessionHash::of("s"), holder, began: 1, used: 2 }]
    }

    #[tokio::test]
    async fn an_earlier_writing_that_is_put_back_revives_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let read = || SessionFile::open(directory.path(), "rules").1;
        let (mut file, _) = SessionFile::open(directory.path(), "rules");
        file.write(&sessions()).await;
        let (old, last) = (std::fs::read(path(FILE)).unwrap(), std::fs::read(path(LAST)).unwrap());
        file.write(&[]).await;
        std::fs::write(path(FILE), &old).unwrap();
        assert!(read().is_empty(), "a session that was signed out");
        // The next process writes on, and refuses that copy all the same.
        let (mut next, _) = SessionFile::open(directory.path(), "rules");
        next.write(&sessions()).await;
        assert_eq!(read(), sessions());
        std::fs::write(path(FILE), &old).unwrap();
        assert!(read().is_empty());
        // Without the second file it is not known whether the first one is the last.
        std::fs::remove_file(path(LAST)).unwrap();
        assert!(read().is_empty());
        // Both files of one time, as a copy of the whole directory has them.
        std::fs::write(path(LAST), last).unwrap();
        assert_eq!(read(), sessions());
    }

    #[tokio::test]
    async fn a_machine_that_stops_between_the_two_files_loses_no_session() {
        let directory = tempfile::tempdir().unwrap();
        let (mut file, _) = SessionFile::open(directory.path(), "rules");
        file.write(&[]).await;
        let last = directory.path().join(LAST);
        let before = std::fs::read(&last).unwrap();
        file.write(&sessions()).await;
        std::fs::write(last, before).unwrap();
        assert_eq!(SessionFile::open(directory.path(), "rules").1, sessions());
    }

    #[tokio::test]
    async fn what_is_written_is_read_by_the_next_process_and_by_its_owner_alone() {
        let directory = tempfile::tempdir().unwrap();
        let (mut file, none) = SessionFile::open(directory.path(), "rules");
        assert!(none.is_empty());
        let kept = sessions();
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
