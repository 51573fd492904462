//! The cluster manager's disk: repositories and whether they are served.

use std::collections::BTreeMap;
use std::time::Duration;

use cluster_manager::event::{GitAction, GitOutcome, GitResult, GitWork};
use cluster_manager::state::PersistedRepository;
use uuid::Uuid;

use crate::program::Input;
use crate::world::{Happening, ProcessId, World};

/// A repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repository {
    /// Such as `cluster/Paint`.
    pub path: String,
    /// The ConfigDB that wanted it.
    pub store: Uuid,
    /// Served.
    pub is_open: bool,
    /// Number of commits.
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

    fn perform(&mut self, work: GitWork, now: Duration) -> GitOutcome {
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
                if repository.commits == 0 {
                    content.extend(files.initial);
                }
                if let Some(directory) = files.directory {
                    let prefix = if directory.is_empty() { String::new() } else { format!("{directory}/") };
                    content.retain(|path, _| !path.starts_with(&prefix));
                    content.extend(files.owned.into_iter().map(|(path, bytes)| (format!("{prefix}{path}"), bytes)));
                }
                repository.path = path;
                repository.store = store;
                repository.is_open = true;
                let differs = repository.commits == 0 || content != repository.files;
                if differs && hold && repository.commits > 0 {
                    return GitOutcome::Held { commit: commit(repository.commits) };
                }
                if differs {
                    repository.commits += 1;
                    repository.files = content;
                }
                GitOutcome::Written { commit: commit(repository.commits) }
            }
            GitAction::Close => {
                if let Some(repository) = self.repositories.get_mut(&work.cluster) {
                    repository.is_open = false;
                }
                GitOutcome::Closed
            }
        }
    }
}

/// The commit that a repository with that many commits is at.
#[must_use]
pub fn commit(commits: u32) -> String {
    format!("{commits:040x}")
}

impl World {
    /// Git works for the cluster manager.
    pub fn on_git(&mut self, id: ProcessId, life: u64, work: GitWork) {
        let cluster = work.cluster;
        let outcome = self.git.perform(work, self.mono);
        let lag = self.random.millis(1..100);
        let input = Input::Git(GitResult { cluster, outcome });
        self.after(lag, Happening::Input(id, life, Box::new(input)));
    }
}
