//! The cluster manager's disk: repositories and whether they are served.

use std::collections::BTreeMap;
use std::time::Duration;

use cluster_manager::event::{GitAction, GitOutcome, GitWork};
use cluster_manager::state::PersistedRepository;
use uuid::Uuid;

/// A repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repository {
    /// Such as `cluster/Paint`.
    pub path: String,
    /// The ConfigDB that wanted it.
    pub store: Uuid,
    /// Served.
    pub is_open: bool,
    /// Number of the last commit, which no other one has.
    pub commits: u32,
    /// Content.
    pub files: BTreeMap<String, Vec<u8>>,
}

/// All repositories.
#[derive(Debug, Default)]
pub struct Git {
    /// By cluster.
    pub repositories: BTreeMap<Uuid, Repository>,
    /// The disk is full until then.
    pub full_until: Option<Duration>,
    /// Until then the disk may carry work out and say that it failed.
    pub torn_until: Option<Duration>,
    /// An older state of the whole disk, which may come back.
    snapshot: Option<BTreeMap<Uuid, Repository>>,
    /// Of each repository, by path, what the manager has written there last, with success.
    acknowledged: BTreeMap<Uuid, BTreeMap<String, Vec<u8>>>,
    /// Commits of all repositories, those that are gone again included: none has the number of another.
    made: u32,
}

impl Git {
    /// What a new life of the manager finds.
    #[must_use]
    pub fn left(&self) -> Vec<PersistedRepository> {
        let open = self.repositories.iter().filter(|(_, repository)| repository.is_open);
        open.map(|(cluster, repository)| PersistedRepository {
            cluster: *cluster,
            name: repository.path.rsplit('/').next().unwrap_or_default().to_owned(),
            store: repository.store,
        })
        .collect()
    }

    /// Repositories that the manager has written with success.
    pub fn acknowledged(&self) -> impl Iterator<Item = Uuid> {
        self.acknowledged.keys().copied()
    }

    /// What a repository does not hold although the manager has written it with success.
    #[must_use]
    pub fn lost(&self, cluster: Uuid) -> Option<String> {
        let acknowledged = self.acknowledged.get(&cluster)?;
        let Some(repository) = self.repositories.get(&cluster).filter(|repository| repository.is_open) else {
            return Some(format!("the repository of {cluster}"));
        };
        let mut lost = acknowledged.iter().filter(|(path, bytes)| repository.files.get(*path) != Some(bytes));
        lost.next().map(|(path, _)| format!("{path} in {}", repository.path))
    }

    /// The first time the disk is copied, the next time the copy takes its place. True: it has.
    pub fn roll_back(&mut self) -> bool {
        match self.snapshot.take() {
            Some(snapshot) => {
                self.repositories = snapshot;
                true
            }
            None => {
                self.snapshot = Some(self.repositories.clone());
                false
            }
        }
    }

    pub(crate) fn perform(&mut self, work: GitWork, now: Duration, loses: bool) -> GitOutcome {
        if self.full_until.is_some_and(|until| until > now) {
            return GitOutcome::Failed { reason: "no space left on device".to_owned() };
        }
        match work.action {
            GitAction::Write { path, store, files, hold } => {
                let repository = self.repositories.entry(work.cluster).or_insert_with(|| Repository {
                    path: path.clone(),
                    store,
                    is_open: false,
                    commits: 0,
                    files: BTreeMap::new(),
                });
                let mut content = repository.files.clone();
                let mut written = BTreeMap::new();
                if repository.commits == 0 {
                    content.extend(files.initial);
                }
                if let Some(directory) = files.directory {
                    let prefix = if directory.is_empty() { String::new() } else { format!("{directory}/") };
                    content.retain(|path, _| !path.starts_with(&prefix));
                    written.extend(files.owned.into_iter().map(|(path, bytes)| (format!("{prefix}{path}"), bytes)));
                    content.extend(written.clone());
                }
                repository.path = path;
                repository.store = store;
                repository.is_open = true;
                let differs = repository.commits == 0 || content != repository.files;
                if differs && hold && repository.commits > 0 {
                    return GitOutcome::Held { commit: commit(repository.commits) };
                }
                if differs && !loses {
                    self.made += 1;
                    repository.commits = self.made;
                    repository.files = content;
                }
                self.acknowledged.insert(work.cluster, written);
                GitOutcome::Written { commit: commit(repository.commits) }
            }
            GitAction::Close => {
                if let Some(repository) = self.repositories.get_mut(&work.cluster) {
                    repository.is_open = false;
                }
                self.acknowledged.remove(&work.cluster);
                GitOutcome::Closed
            }
        }
    }
}

/// The commit of that number.
#[must_use]
pub fn commit(commits: u32) -> String {
    format!("{commits:040x}")
}
