//! What a commit is known to hold, so that a start need not read thousands of repositories to find that nothing has changed.
//!
//! ```text
//! <state_dir>/git/<uuid>.compared    one commit of branch main, and what was found in it
//! ```
//!
//! A commit never changes, so what was found in one stays true. Objects are not synced one by one, though: a loss of power may take some of them. So it counts only until the
//! machine starts again. Whatever is wrong with the file, the repository is read.

use std::fs;
use std::path::PathBuf;

use aws_lc_rs::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{Repositories, RepositoryFiles};

/// Linux names each start of the machine here.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// What was found in a commit.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Compared {
    /// When, as a start of the machine.
    boot: String,
    /// The commit, hexadecimal.
    commit: String,
    /// Digest of the [`RepositoryFiles`] that it holds.
    files: Option<String>,
    /// A directory that it does not have.
    absent: Option<String>,
}

/// The present start of the machine. None: it is not known, and nothing is noted.
pub(super) fn boot() -> Option<String> {
    let boot = fs::read_to_string(BOOT_ID).ok()?;
    Some(boot.trim().to_owned()).filter(|boot| !boot.is_empty())
}

impl Compared {
    /// It holds the files of that digest.
    pub(super) fn holds(&self, digest: &str) -> bool {
        self.files.as_deref() == Some(digest)
    }

    /// It does not have that directory.
    pub(super) fn lacks(&self, directory: &str) -> bool {
        self.absent.as_deref() == Some(directory)
    }
}

impl Repositories {
    /// What was found in a commit since the machine started. Blocks.
    pub(super) fn compared(&self, uuid: Uuid, commit: &str) -> Option<Compared> {
        let boot = self.boot.as_deref()?;
        let compared: Compared = serde_json::from_slice(&fs::read(self.compared_file(uuid)).ok()?).ok()?;
        (compared.boot == boot && compared.commit == commit).then_some(compared)
    }

    /// Notes that a commit of branch `main` holds these files. Blocks.
    pub(super) fn note_files(&self, uuid: Uuid, commit: &str, digest: String) {
        self.note(uuid, commit, |compared| compared.files = Some(digest));
    }

    /// Notes that a commit of branch `main` does not have a directory. Blocks.
    pub(super) fn note_absent(&self, uuid: Uuid, commit: &str, directory: &str) {
        self.note(uuid, commit, |compared| compared.absent = Some(directory.to_owned()));
    }

    fn note(&self, uuid: Uuid, commit: &str, found: impl FnOnce(&mut Compared)) {
        let Some(boot) = self.boot.as_deref() else { return };
        let mut compared = self.compared(uuid, commit).unwrap_or_default();
        compared.boot = boot.to_owned();
        compared.commit = commit.to_owned();
        found(&mut compared);
        let text = serde_json::to_vec(&compared).expect("texts are JSON");
        let path = self.compared_file(uuid);
        if let Err(error) = fs::write(&path, text) {
            tracing::debug!(path = %path.display(), %error, "a repository will be read again at the next start");
        }
    }

    fn compared_file(&self, uuid: Uuid) -> PathBuf {
        self.git.join(format!("{uuid}.compared"))
    }
}

impl RepositoryFiles {
    /// SHA-256 of all that a commit is compared with, hexadecimal: all but `initial` and `message`.
    #[must_use]
    pub fn digest(&self) -> String {
        let mut context = Context::new(&SHA256);
        let mut part = |bytes: &[u8]| {
            context.update(&(bytes.len() as u64).to_be_bytes());
            context.update(bytes);
        };
        // With a directory the number of parts is odd, without one it is even.
        self.directory.iter().for_each(|directory| part(directory.as_bytes()));
        for (path, content) in &self.owned {
            part(path.as_bytes());
            part(content);
        }
        hex::encode(context.finish().as_ref())
    }
}
