//! The cluster manager's disk: repositories and whether they are served. Where there is a git server, the repository of the shared charts is among them, and users push.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use cluster_manager::event::{GitAction, GitOutcome, GitWork, Original};
use cluster_manager::secrets::{self, WantedFile};
use cluster_manager::state::PersistedRepository;
use cluster_manager::wanted_by::WantedBy;
use cluster_manager_contract::{SecretsReport, StoredSecret, StoredSecrets};
use configdb_schema::document::SealedSecret;
use configdb_schema::known::repository::HELM_CHARTS;
use git_hosting::repositories::Kind;
use git_server_contract::pack::Pack;
use git_server_contract::push::RefChange;
use manifests::git_address::HELM_PATH;
use uuid::Uuid;

use crate::model::pack::Content;

/// The branch that clusters follow.
pub const MAIN: &str = "refs/heads/main";

/// A repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repository {
    /// Such as `cluster/Paint`.
    pub path: String,
    /// The state of ConfigDB that it was brought to.
    pub wanted_by: WantedBy,
    /// Served.
    pub is_open: bool,
    /// Number of the last commit, which no other one has.
    pub commits: u32,
    /// Content.
    pub files: BTreeMap<String, Vec<u8>>,
    /// The commits that are there.
    pub objects: BTreeSet<u32>,
}

/// All repositories.
#[derive(Debug, Default)]
pub struct Git {
    /// By cluster.
    pub repositories: BTreeMap<Uuid, Repository>,
    /// The shared charts, where there is a git server.
    pub charts: Option<Repository>,
    /// The disk is full until then.
    pub full_until: Option<Duration>,
    /// Until then the disk may carry work out and say that it failed.
    pub torn_until: Option<Duration>,
    /// An older state of the whole disk, which may come back.
    snapshot: Option<(BTreeMap<Uuid, Repository>, Option<Repository>)>,
    /// Of each repository, by path, what the manager has written there last, with success.
    acknowledged: BTreeMap<Uuid, BTreeMap<String, Vec<u8>>>,
    /// Commits of all repositories, those that are gone again included: none has the number of another.
    made: u32,
    /// The commit that each was made on; 0: none.
    parents: BTreeMap<u32, u32>,
    /// Of each repository the commits of pushes whose users know that they were taken.
    pushed: BTreeMap<Uuid, BTreeSet<u32>>,
    /// Commits that were lost when the disk was rolled back.
    gone: BTreeSet<(Uuid, u32)>,
}

impl Git {
    /// What a new life of the manager finds.
    #[must_use]
    pub fn left(&self) -> Vec<PersistedRepository> {
        let open = self.repositories.iter().filter(|(_, repository)| repository.is_open);
        open.map(|(cluster, repository)| PersistedRepository {
            cluster: *cluster,
            name: repository.path.rsplit('/').next().unwrap_or_default().to_owned(),
            wanted_by: repository.wanted_by,
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
            Some((repositories, charts)) => {
                let before = std::mem::replace(&mut self.repositories, repositories);
                let charts_before = std::mem::replace(&mut self.charts, charts);
                let before = before.into_iter().chain(charts_before.map(|charts| (HELM_CHARTS, charts)));
                for (uuid, Repository { objects, .. }) in before {
                    let kept = self.repository(uuid).map(|repository| repository.objects.clone()).unwrap_or_default();
                    self.gone.extend(objects.difference(&kept).map(|commit| (uuid, *commit)));
                }
                true
            }
            None => {
                self.snapshot = Some((self.repositories.clone(), self.charts.clone()));
                false
            }
        }
    }

    /// There is a git server, and with it the repository of the shared charts.
    pub(crate) fn begin_charts(&mut self) {
        let commits = self.new_commit(0);
        self.charts = Some(Repository {
            path: HELM_PATH.to_owned(),
            wanted_by: WantedBy { store: Uuid::nil(), origin: None },
            is_open: true,
            commits,
            files: BTreeMap::new(),
            objects: [commits].into(),
        });
    }

    /// A repository, that of the charts included.
    #[must_use]
    pub fn repository(&self, uuid: Uuid) -> Option<&Repository> {
        if uuid == HELM_CHARTS { self.charts.as_ref() } else { self.repositories.get(&uuid) }
    }

    /// A commit that was made on another one; 0: on none.
    pub(crate) fn new_commit(&mut self, parent: u32) -> u32 {
        self.made += 1;
        self.parents.insert(self.made, parent);
        self.made
    }

    /// A commit and all before it.
    fn lineage(&self, commit: u32) -> impl Iterator<Item = u32> {
        let at = |commit: u32| (commit != 0).then_some(commit);
        std::iter::successors(at(commit), move |commit| at(self.parents.get(commit).copied().unwrap_or(0)))
    }

    /// What a copy is made of; None: the repository is not open.
    pub(crate) fn original(&self, uuid: Uuid) -> Option<Original> {
        let repository = self.repository(uuid).filter(|repository| repository.is_open)?;
        let kind = if uuid == HELM_CHARTS { Kind::Shared } else { Kind::Cluster };
        let main = (repository.commits > 0).then(|| (MAIN.to_owned(), commit(repository.commits)));
        let password = (kind == Kind::Cluster).then(|| hex::encode([uuid.as_bytes().as_slice(); 2].concat()));
        Some(Original { path: repository.path.clone(), kind, refs: main.into_iter().collect(), password })
    }

    /// What a copy lacks that shall have these refs. None: nothing. Err: why that cannot be said.
    pub(crate) fn pack(
        &self,
        uuid: Uuid,
        refs: &BTreeMap<String, String>,
        has: &BTreeSet<String>,
    ) -> Result<Option<Content>, String> {
        let repository = self.repository(uuid).filter(|repository| repository.is_open);
        let objects = &repository.ok_or("the repository is not open")?.objects;
        let known = |id: &String| number(id).filter(|commit| objects.contains(commit));
        let tips = refs.values().map(|id| known(id).ok_or_else(|| format!("bad object {id}")));
        let tips = tips.collect::<Result<BTreeSet<u32>, String>>()?;
        let base: BTreeSet<u32> = has.iter().filter_map(known).collect();
        let has: BTreeSet<u32> = base.iter().flat_map(|commit| self.lineage(*commit)).collect();
        let all: BTreeSet<u32> = tips.iter().flat_map(|commit| self.lineage(*commit)).collect();
        let new: BTreeMap<u32, u32> =
            all.difference(&has).map(|commit| (*commit, self.parents.get(commit).copied().unwrap_or(0))).collect();
        Ok((!new.is_empty()).then_some(Content { base, commits: new }))
    }

    /// Takes a push over: commit of branch `main` before and after it. Err: why not, for the user. `loses`: what is said to be taken is not.
    pub(crate) fn take(
        &mut self,
        uuid: Uuid,
        refs: &BTreeMap<String, RefChange>,
        pack: Option<&[u8]>,
        (now, loses): (Duration, bool),
    ) -> Result<(Option<String>, Option<String>), String> {
        if self.full_until.is_some_and(|until| until > now) {
            return Err("no space left on device".to_owned());
        }
        let repository = if uuid == HELM_CHARTS { self.charts.as_mut() } else { self.repositories.get_mut(&uuid) };
        let repository = repository.filter(|repository| repository.is_open);
        let repository = repository.ok_or("there is no such repository, or it is not for this user")?;
        let main = (repository.commits > 0).then(|| commit(repository.commits));
        let Some(RefChange { before, after }) = refs.get(MAIN) else { return Err("it changes nothing".to_owned()) };
        if *after == main {
            return Ok((main.clone(), main));
        }
        if *before != main {
            return Err("fetch first".to_owned());
        }
        let content = pack.and_then(|bytes| Content::read(&Pack::new(bytes.into())));
        let content = content.ok_or("the objects cannot be taken")?;
        let after = after.as_deref().and_then(number).ok_or("branch main cannot be deleted")?;
        if !content.commits.contains_key(&after) || !content.base.is_subset(&repository.objects) {
            return Err("the objects cannot be taken".to_owned());
        }
        if !loses {
            repository.objects.extend(content.commits.keys());
            repository.commits = after;
            repository.files.insert(by_hand(after), Vec::new());
        }
        Ok((main, Some(commit(after))))
    }

    /// The user of a push knows that it was taken.
    pub(crate) fn acknowledge(&mut self, uuid: Uuid, commit: u32) {
        self.pushed.entry(uuid).or_default().insert(commit);
    }

    /// A push that is not in its repository although its user knows that it was taken. What is lost with the disk does not count.
    #[must_use]
    pub fn lost_push(&self) -> Option<String> {
        let all = self.pushed.iter().flat_map(|(uuid, commits)| commits.iter().map(|commit| (*uuid, *commit)));
        let mut lost = all.filter(|place| !self.gone.contains(place)).filter(|(uuid, commit)| {
            let repository = self.repository(*uuid);
            !repository.is_some_and(|repository| {
                self.lineage(repository.commits).any(|of| of == *commit)
                    && repository.files.contains_key(&by_hand(*commit))
            })
        });
        lost.next().map(|(uuid, commit)| format!("push {commit} into the repository of {uuid}"))
    }

    /// What copies of a repository have of it: where it is served if it is, and the commit of branch `main`.
    pub(crate) fn place(&self, uuid: Uuid) -> Option<(Option<String>, u32)> {
        let repository = self.repositories.get(&uuid)?;
        Some((repository.is_open.then(|| repository.path.clone()), repository.commits))
    }

    pub(crate) fn perform(&mut self, work: GitWork, now: Duration, (loses, forgets): (bool, bool)) -> GitOutcome {
        if self.full_until.is_some_and(|until| until > now) {
            return GitOutcome::Failed { reason: "no space left on device".to_owned() };
        }
        match work.action {
            GitAction::Write { path, origin, renews, files, hold, secrets } => {
                let repository = self.repositories.entry(work.cluster).or_insert_with(|| Repository {
                    path: path.clone(),
                    wanted_by: origin.into(),
                    is_open: false,
                    commits: 0,
                    files: BTreeMap::new(),
                    objects: BTreeSet::new(),
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
                repository.is_open = true;
                let is_first = repository.commits == 0;
                let is_held = hold && !is_first && content != repository.files;
                if is_held {
                    content.clone_from(&repository.files);
                }
                let is_of = repository.wanted_by.origin.is_some_and(|recorded| recorded.is_of(origin));
                if !is_held && (renews || !is_of || content != repository.files) {
                    repository.wanted_by = origin.into();
                }
                let secrets = bring_secrets(&mut content, &secrets, forgets);
                let wanted_by = repository.wanted_by;
                if (is_first || content != repository.files) && !loses {
                    self.made += 1;
                    self.parents.insert(self.made, repository.commits);
                    repository.objects.insert(self.made);
                    repository.commits = self.made;
                    repository.files = content;
                }
                let commit = commit(repository.commits);
                if is_held {
                    return GitOutcome::Held { commit, wanted_by, secrets };
                }
                self.acknowledged.insert(work.cluster, written);
                GitOutcome::Written { commit, wanted_by, secrets }
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

/// The file that a push adds.
fn by_hand(commit: u32) -> String {
    format!("by-hand/{commit}")
}

/// The number of a commit.
pub(crate) fn number(commit: &str) -> Option<u32> {
    u32::from_str_radix(commit, 16).ok()
}

/// The commit of that number.
#[must_use]
pub fn commit(commits: u32) -> String {
    format!("{commits:040x}")
}
