//! The cluster manager's disk: repositories and whether they are served.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cluster_manager::event::{GitAction, GitOutcome, GitWork};
use cluster_manager::secrets::{self, WantedFile};
use cluster_manager::state::PersistedRepository;
use cluster_manager_contract::{SecretsReport, StoredSecret, StoredSecrets};
use configdb_schema::document::SealedSecret;
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

    /// When each key of each Secret in a repository was decided, by `namespace/name/key`.
    #[must_use]
    pub fn secrets(&self, cluster: Uuid) -> BTreeMap<String, String> {
        let Some(repository) = self.repositories.get(&cluster) else { return BTreeMap::new() };
        let key = |secret: StoredSecret| {
            let (namespace, name) = (secret.namespace, secret.name);
            secret
                .keys
                .into_iter()
                .filter_map(move |(key, known)| Some((format!("{namespace}/{name}/{key}"), known.at?)))
        };
        secrets::stored(&secrets_of(&repository.files)).into_iter().flat_map(key).collect()
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

    pub(crate) fn perform(&mut self, work: GitWork, now: Duration, (loses, forgets): (bool, bool)) -> GitOutcome {
        if self.full_until.is_some_and(|until| until > now) {
            return GitOutcome::Failed { reason: "no space left on device".to_owned() };
        }
        match work.action {
            GitAction::Write { path, store, files, hold, secrets } => {
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
                let is_first = repository.commits == 0;
                let is_held = hold && !is_first && content != repository.files;
                if is_held {
                    content.clone_from(&repository.files);
                }
                let secrets = bring_secrets(&mut content, &secrets, forgets);
                if (is_first || content != repository.files) && !loses {
                    self.made += 1;
                    repository.commits = self.made;
                    repository.files = content;
                }
                let commit = commit(repository.commits);
                if is_held {
                    return GitOutcome::Held { commit, secrets };
                }
                self.acknowledged.insert(work.cluster, written);
                GitOutcome::Written { commit, secrets }
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

fn secrets_of(files: &BTreeMap<String, Vec<u8>>) -> BTreeMap<String, Vec<u8>> {
    let prefix = format!("{}/", secrets::DIRECTORY);
    let below = files.iter().filter_map(|(path, bytes)| Some((path.strip_prefix(&prefix)?.to_owned(), bytes.clone())));
    below.collect()
}

/// Brings what ConfigDB has of secrets into the files of a repository, as the adapter does it. `forgets`: the files do not say when their keys were decided.
fn bring_secrets(files: &mut BTreeMap<String, Vec<u8>>, wanted: &[Arc<SealedSecret>], forgets: bool) -> SecretsReport {
    let mut faults = Vec::new();
    for secret in wanted {
        let Ok(path) = secrets::path(secret) else { continue };
        let path = format!("{}/{path}", secrets::DIRECTORY);
        let before = files.get(&path).map(|bytes| match std::str::from_utf8(bytes) {
            Ok(text) if forgets => text.replace("sealed-at", "forgotten").into_bytes(),
            _ => bytes.clone(),
        });
        match secrets::bring(secret, before.as_deref()) {
            Ok(WantedFile { content, fault }) => {
                faults.extend(fault.map(|fault| fault.to_string()));
                match content {
                    Some(content) => drop(files.insert(path, content)),
                    None => drop(files.remove(&path)),
                }
            }
            Err(fault) => faults.push(fault.to_string()),
        }
    }
    let (stored, _) = StoredSecrets::bounded(secrets::stored(&secrets_of(files)));
    SecretsReport { stored, reason: (!faults.is_empty()).then(|| faults.join("; ")) }
}

/// A key that has an older value than before.
#[must_use]
pub fn gone_back(before: &BTreeMap<String, String>, after: &BTreeMap<String, String>) -> Option<String> {
    let is_older = |(key, at): &(&String, &String)| after.get(*key).is_some_and(|after| after < *at);
    before.iter().find(is_older).map(|(key, _)| key.clone())
}

/// The commit of that number.
#[must_use]
pub fn commit(commits: u32) -> String {
    format!("{commits:040x}")
}
