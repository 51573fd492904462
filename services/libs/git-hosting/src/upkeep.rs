//! Keeps repositories from becoming ever more files: each commit leaves some objects of a file each, each larger push a pack. From time to time git makes one pack of them.
//!
//! Readers continue meanwhile, and unreferenced objects stay for two weeks, so nothing is taken away from a writer that has just written it. The library does not
//! freshen the objects that it finds, so nothing is tidied up while it writes. The worker calls this between two pieces of work on the same repository.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use uuid::Uuid;

use crate::client;
use crate::pulls::chain;
use crate::repositories::Repositories;

/// Objects of a file each that a repository may have, about. A commit makes some five.
pub const LOOSE_MAX: usize = 1024;

/// Packs that it may have.
pub const PACKS_MAX: usize = 16;

/// Of the 256 directories of loose objects every eighth is looked into: names are hashes, so these are as full as the others.
const SAMPLED: usize = 8;

/// Longest time for one repository; other work on it waits.
const LIMIT: Duration = Duration::from_secs(120);

/// How long a repository is left alone for which that was not enough, or no use.
const AGAIN: Duration = Duration::from_secs(3600);

/// References stay the files that they are. What has become unreachable is kept apart for two weeks, and then removed.
const GC: [&str; 8] =
    ["-c", "gc.packRefs=false", "-c", "gc.writeCommitGraph=false", "gc", "--quiet", "--cruft", "--prune=2.weeks.ago"];

/// Which repositories are left alone at present. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct Upkeep {
    left_alone: Arc<Mutex<BTreeMap<Uuid, Instant>>>,
}

impl Upkeep {
    /// Tidies a repository up if that is due.
    pub async fn look_after(&self, repositories: &Repositories, repository: Uuid) {
        let Some(directory) = repositories.by_uuid(repository).map(|open| open.directory) else { return };
        if self.is_left_alone(repository) || !due(&directory).await {
            return;
        }
        let began = Instant::now();
        let done = client::run(&directory, None, &GC, "", LIMIT).await;
        let elapsed_ms = began.elapsed().as_millis();
        match &done {
            Ok(_) => tracing::debug!(repository = %repository, elapsed_ms, "repository tidied up"),
            Err(error) => {
                tracing::warn!(repository = %repository, error = chain(error), elapsed_ms, "a repository cannot be tidied up; it keeps growing");
            }
        }
        if done.is_err() || due(&directory).await {
            self.left_alone().insert(repository, Instant::now());
        }
    }

    fn is_left_alone(&self, repository: Uuid) -> bool {
        let mut left_alone = self.left_alone();
        left_alone.retain(|_, since| since.elapsed() < AGAIN);
        left_alone.contains_key(&repository)
    }

    fn left_alone(&self) -> MutexGuard<'_, BTreeMap<Uuid, Instant>> {
        self.left_alone.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn due(directory: &Path) -> bool {
    let directory = directory.to_owned();
    tokio::task::spawn_blocking(move || is_due(&directory)).await.unwrap_or(false)
}

/// Whether a repository has become too many files. Blocks.
#[must_use]
pub fn is_due(directory: &Path) -> bool {
    let files = |below: &str| fs::read_dir(directory.join("objects").join(below)).into_iter().flatten().flatten();
    let sample = (0..256).step_by(SAMPLED).map(|first| files(&format!("{first:02x}")).count());
    if sample.sum::<usize>() * SAMPLED > LOOSE_MAX {
        return true;
    }
    let packs = files("pack").filter(|file| file.path().extension().is_some_and(|extension| extension == "pack"));
    packs.count() > PACKS_MAX
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::bare::text;
    use crate::repositories::{Kind, RepositoryFiles, RepositoryRecord};

    const CLUSTER: Uuid = Uuid::from_u128(0xC1);

    /// A repository with a commit.
    fn repository(state_dir: &Path) -> Repositories {
        let repositories = Repositories::load(state_dir).unwrap();
        let place =
            RepositoryRecord { path: "cluster/A".to_owned(), kind: Kind::Cluster, store: Uuid::nil(), origin: None };
        let files = RepositoryFiles {
            initial: [("a.yaml".to_owned(), b"a: 1\n".to_vec())].into(),
            message: "x".to_owned(),
            ..RepositoryFiles::default()
        };
        repositories.write(CLUSTER, &place, &files, 0).unwrap();
        repositories
    }

    #[tokio::test]
    async fn loose_objects_become_one_pack_and_unreferenced_ones_stay_for_a_while() {
        let state_dir = tempfile::tempdir().unwrap();
        let repositories = repository(state_dir.path());
        let directory = repositories.by_uuid(CLUSTER).unwrap().directory;
        let upkeep = Upkeep::default();
        upkeep.look_after(&repositories, CLUSTER).await;
        let count = || text(&directory, &["count-objects"], b"");
        let before = count();
        assert!(before.starts_with("4 objects"), "a repository of a few files is left as it is: {before}");

        let blobs: String = (0..2 * LOOSE_MAX).map(|n| format!("blob\ndata <<E\n{n}\nE\n")).collect();
        text(&directory, &["-c", "fastimport.unpackLimit=100000", "fast-import", "--quiet"], blobs.as_bytes());
        assert!(is_due(&directory), "{}", count());
        upkeep.look_after(&repositories, CLUSTER).await;
        assert!(!is_due(&directory) && count().starts_with("0 objects"), "{}", count());
        let blob = text(&directory, &["hash-object", "--stdin"], b"7\n");
        text(&directory, &["cat-file", "-e", &blob], b"");
        text(&directory, &["fsck", "--strict"], b"");
        assert!(directory.join("refs/heads/main").is_file(), "references stay where they are");
        assert!(upkeep.left_alone().is_empty());
    }

    #[tokio::test]
    async fn many_packs_become_one_and_a_repository_that_cannot_be_tidied_up_is_left_alone() {
        let state_dir = tempfile::tempdir().unwrap();
        let repositories = repository(state_dir.path());
        let directory = repositories.by_uuid(CLUSTER).unwrap().directory;
        for n in 0..=PACKS_MAX {
            let blob = text(&directory, &["hash-object", "-w", "--stdin"], format!("{n}\n").as_bytes());
            text(
                &directory,
                &["pack-objects", "--quiet", "objects/pack/pack"]
                    .map(|argument| {
                        if argument.starts_with("objects") {
                            directory.join(argument).display().to_string()
                        } else {
                            argument.to_owned()
                        }
                    })
                    .each_ref()
                    .map(String::as_str),
                blob.as_bytes(),
            );
        }
        assert!(is_due(&directory));
        // Another process tidies up, as git sees it.
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        let lock = directory.join("gc.pid");
        std::fs::write(&lock, format!("{} {}", std::process::id(), host.trim())).unwrap();
        let upkeep = Upkeep::default();
        upkeep.look_after(&repositories, CLUSTER).await;
        assert!(is_due(&directory) && upkeep.left_alone().contains_key(&CLUSTER));
        std::fs::remove_file(lock).unwrap();
        upkeep.look_after(&repositories, CLUSTER).await;
        assert!(is_due(&directory), "it is not its turn");
        Upkeep::default().look_after(&repositories, CLUSTER).await;
        assert!(!is_due(&directory));
        text(&directory, &["fsck", "--strict"], b"");
    }
}
