//! Shared repositories: opened and closed as ConfigDB has them, their branches pulled from elsewhere when it is time, their commits told to who follows them.
//!
//! A repository is shared if its object has a `GitConfig` entry and is a member of the class of shared repositories. That of the well-known charts always is there. One piece of
//! work at a time for each; a pull takes as long as it takes and holds up nothing but its own repository.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cluster_manager_contract::repository::{self, PulledBranch, RepositoryDevice};
use configdb_schema::Document as _;
use configdb_schema::document::GitConfig;
use configdb_schema::known;
use service_runtime::backoff::Backoff;
use sparkplug::Now;
use sparkplug::edge_node::NodeUpdate;
use uuid::Uuid;

use super::cluster::Wait;
use super::{ClusterManager, Settings};
use crate::event::{Effect, SharedAction, SharedOutcome, SharedResult, SharedWork};
use crate::shared_repository::{self, Pull, Shared};

/// Longest wait before a pull that failed is tried again, where the interval is not shorter.
const PULL_RETRY_MAX: Duration = Duration::from_secs(600);

/// First such wait.
const PULL_RETRY_FIRST: Duration = Duration::from_secs(10);

/// What an interval is longer at most than configured, so that many repositories do not pull in one moment.
const JITTER_MAX: Duration = Duration::from_secs(5);

/// All shared repositories.
#[derive(Debug, Default)]
pub struct SharedRepositories {
    known: BTreeMap<Uuid, SharedRepository>,
    /// Who wants to be served at a path.
    claims: BTreeMap<String, BTreeSet<Uuid>>,
    /// To be looked at in this turn.
    dirty: BTreeSet<Uuid>,
    /// Open on the disk since an earlier life, with the ConfigDB that wanted it.
    left: Vec<(Uuid, Uuid)>,
}

#[derive(Debug)]
struct SharedRepository {
    /// As ConfigDB has it. None: it is not wanted.
    wanted: Option<Result<Shared, String>>,
    /// The path that it is served at.
    open: Option<String>,
    under_way: Option<SharedAction>,
    wait: Wait,
    main: Option<String>,
    branches: BTreeMap<String, Branch>,
    device: Option<RepositoryDevice>,
}

/// A branch that is pulled.
#[derive(Debug)]
struct Branch {
    pull: Pull,
    /// When it is pulled next, mono; None: when something changes.
    due: Option<Duration>,
    retry: Backoff,
    commit: Option<String>,
    at: Option<u64>,
    error: Option<String>,
    diverged: bool,
}

impl SharedRepositories {
    /// `left`: what is open on the disk, with the ConfigDB that wanted it. `charts`: commit of the well-known charts, which are served from the start.
    pub fn new(left: Vec<(Uuid, Uuid)>, settings: &Settings, seed: u64) -> Self {
        let charts = known::repository::HELM_CHARTS;
        let mut own = Self { left, ..Self::default() };
        if let Some(commit) = &settings.charts_commit {
            let repository = own.known.entry(charts).or_insert_with(|| SharedRepository::new(settings, seed));
            repository.open = Some(shared_repository::HELM_PATH.to_owned());
            repository.main = Some(commit.clone());
        }
        own
    }

    /// Commit of branch `main`.
    pub fn commit(&self, repository: Uuid) -> Option<&str> {
        self.known.get(&repository)?.main.as_deref()
    }

    /// The branches that are pulled from elsewhere.
    pub fn pulled_branches(&self, repository: Uuid) -> BTreeSet<String> {
        let wanted = self.known.get(&repository).and_then(|known| known.wanted.as_ref()?.as_ref().ok());
        wanted.map(|wanted| wanted.pulls.keys().cloned().collect()).unwrap_or_default()
    }

    /// When there is something to do.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.known.values().filter_map(SharedRepository::next_deadline).min()
    }

    /// Something about the object has changed.
    pub fn mark(&mut self, object: Uuid) {
        self.dirty.insert(object);
    }
}

impl SharedRepository {
    fn new(settings: &Settings, seed: u64) -> Self {
        Self {
            wanted: None,
            open: None,
            under_way: None,
            wait: Wait::new(settings.retry, seed),
            main: None,
            branches: BTreeMap::new(),
            device: None,
        }
    }

    fn path(&self) -> Option<&str> {
        Some(&self.wanted.as_ref()?.as_ref().ok()?.path)
    }

    fn next_deadline(&self) -> Option<Duration> {
        if self.under_way.is_some() {
            return None;
        }
        let is_open = self.open.is_some() && self.open.as_deref() == self.path();
        let pulls = self.branches.values().filter_map(|branch| branch.due).filter(|_| is_open);
        pulls.chain(self.wait.until()).min()
    }

    /// Takes over which branches are pulled: one that is configured otherwise than before is pulled at once.
    fn set_branches(&mut self, seed: u64, now: Now) {
        let Some(Ok(wanted)) = &self.wanted else { return self.branches.clear() };
        self.branches.retain(|name, _| matches!(wanted.pulls.get(name), Some(Ok(_))));
        for (index, (name, pull)) in (0_u32..).zip(&wanted.pulls) {
            let Ok(pull) = pull else { continue };
            match self.branches.get_mut(name) {
                Some(branch) if branch.pull == *pull => {}
                Some(branch) => {
                    branch.pull = pull.clone();
                    branch.due = Some(now.mono);
                    branch.retry.reset();
                }
                None => {
                    let retry = Backoff::new(PULL_RETRY_FIRST, PULL_RETRY_MAX, seed.rotate_left(index));
                    let due = Some(now.mono);
                    let (pull, diverged) = (pull.clone(), false);
                    let branch = Branch { pull, due, retry, commit: None, at: None, error: None, diverged };
                    self.branches.insert(name.clone(), branch);
                }
            }
        }
    }

    /// What is to be done for it. `refused`: it must not be served.
    fn next_action(&self, refused: bool, store: Uuid, now: Now) -> Option<SharedAction> {
        if self.under_way.is_some() {
            return None;
        }
        let path = self.path().filter(|_| !refused);
        match (path, self.open.as_deref()) {
            (Some(path), open) if open != Some(path) => {
                let path = path.to_owned();
                self.wait.is_over(now).then_some(SharedAction::Open { path, store })
            }
            (None, Some(_)) => self.wait.is_over(now).then_some(SharedAction::Close),
            (None, None) => None,
            _ => {
                let due = self.branches.iter().filter_map(|(name, branch)| Some((branch.due?, name, branch)));
                let (_, name, branch) = due.filter(|(due, ..)| *due <= now.mono).min_by_key(|(due, ..)| *due)?;
                Some(SharedAction::Pull { branch: name.clone(), pull: branch.pull.clone() })
            }
        }
    }

    fn pulled(&self) -> BTreeMap<String, PulledBranch> {
        let Some(Ok(wanted)) = &self.wanted else { return BTreeMap::new() };
        let told = |(name, pull): (&String, &Result<Pull, _>)| {
            let told = match (pull, self.branches.get(name)) {
                (Err(error), _) => PulledBranch { error: Some(ToString::to_string(error)), ..PulledBranch::default() },
                (Ok(pull), branch) => PulledBranch {
                    url: Some(pull.url.clone()),
                    commit: branch.and_then(|branch| branch.commit.clone()),
                    at: branch.and_then(|branch| branch.at),
                    error: branch.and_then(|branch| branch.error.clone()),
                    diverged: branch.is_some_and(|branch| branch.diverged),
                },
            };
            (name.clone(), told)
        };
        wanted.pulls.iter().map(told).collect()
    }
}

impl ClusterManager {
    /// Learns everything again from a replica that is complete for the first time.
    pub(super) fn rebuild_shared(&mut self) {
        let store = self.replica.store();
        for (repository, wanted_by) in std::mem::take(&mut self.shared.left) {
            if Some(wanted_by) == store {
                let seed = self.seed;
                let known = self.shared.known.entry(repository);
                let known = known.or_insert_with(|| SharedRepository::new(&self.settings, seed));
                // Which path it was served at does not matter: it is opened again where it belongs, or closed.
                known.open.get_or_insert_default();
            }
        }
        self.mark_all_shared();
        self.shared.dirty.extend(self.replica.entries(GitConfig::slug()).map(|(object, _)| object));
    }

    /// Everything is to be looked at again.
    pub(super) fn mark_all_shared(&mut self) {
        let shared = &mut self.shared;
        shared.dirty.extend(shared.known.keys().copied());
    }

    /// When there is something to do for a shared repository: nothing while ConfigDB is not known completely.
    pub(super) fn shared_deadline(&self) -> Option<Duration> {
        self.shared.next_deadline().filter(|_| self.is_ready())
    }

    /// Brings every shared repository a step forward of which something has changed, or whose time has come.
    pub(super) fn evaluate_shared(&mut self, now: Now) {
        if !self.known {
            return self.shared.dirty.clear();
        }
        let due = |(uuid, repository): (&Uuid, &SharedRepository)| {
            repository.next_deadline().is_some_and(|at| at <= now.mono).then_some(*uuid)
        };
        let due: Vec<Uuid> = self.shared.known.iter().filter_map(due).collect();
        self.shared.dirty.extend(due);
        while let Some(uuid) = self.shared.dirty.pop_first() {
            self.evaluate_shared_one(uuid, now);
        }
    }

    fn evaluate_shared_one(&mut self, uuid: Uuid, now: Now) {
        let wanted = self.wanted_shared(uuid);
        if wanted.is_none() && !self.shared.known.contains_key(&uuid) {
            return;
        }
        let seed = self.seed ^ uuid.as_u64_pair().1;
        let settings = &self.settings;
        let repository = self.shared.known.entry(uuid).or_insert_with(|| SharedRepository::new(settings, seed));
        if repository.wanted != wanted {
            let before = repository.path().map(str::to_owned);
            repository.wanted = wanted;
            repository.wait.forgive();
            repository.set_branches(seed, now);
            let after = repository.path().map(str::to_owned);
            self.claim_path(uuid, before, after);
        }
        let taken = self.path_taken_by(uuid);
        let store = self.replica.store().filter(|_| self.replica.is_complete());
        let Some(repository) = self.shared.known.get_mut(&uuid) else { return };
        if repository.wait.is_over(now) {
            repository.wait.forgive();
        }
        let action = store.and_then(|store| repository.next_action(taken.is_some(), store, now));
        if let Some(action) = action {
            repository.under_way = Some(action.clone());
            self.effects.push(Effect::Shared(SharedWork { repository: uuid, action }));
        }
        self.tell_shared(uuid, taken, now);
    }

    /// What ConfigDB says of it. None: it is no shared repository.
    fn wanted_shared(&self, uuid: Uuid) -> Option<Result<Shared, String>> {
        let is_charts = uuid == known::repository::HELM_CHARTS;
        let is_shared = || {
            let object = self.replica.object(uuid);
            object.is_some_and(|object| object.is_member_of(known::class::REPO_GROUP_SHARED))
        };
        if !is_charts && !is_shared() {
            return None;
        }
        let entry = self.replica.entry(uuid, GitConfig::slug());
        let wanted = match entry.map(configdb_contract::Entry::parse::<GitConfig>) {
            None if !is_charts => return None,
            None => Ok(GitConfig { path: shared_repository::HELM_PATH.to_owned(), ..GitConfig::default() }),
            Some(parsed) => parsed.map_err(|error| error.to_string()),
        };
        Some(wanted.and_then(|config| shared_repository::read(uuid, &config).map_err(|error| error.to_string())).map(
            |mut shared| {
                if is_charts && self.settings.charts_written {
                    for (branch, pull) in &mut shared.pulls {
                        let field = format!("pull.{branch}");
                        *pull = Err(shared_repository::SharedError {
                            field,
                            rule: "cannot be: git.charts_dir writes this repository",
                        });
                    }
                }
                shared
            },
        ))
    }

    fn claim_path(&mut self, uuid: Uuid, before: Option<String>, after: Option<String>) {
        if before == after {
            return;
        }
        for (path, claims) in [(before, false), (after, true)] {
            let Some(path) = path else { continue };
            let claimants = self.shared.claims.entry(path.clone()).or_default();
            self.shared.dirty.extend(claimants.iter().copied());
            if claims {
                claimants.insert(uuid);
            } else {
                claimants.remove(&uuid);
            }
            if claimants.is_empty() {
                self.shared.claims.remove(&path);
            }
        }
    }

    /// Who is served at the path instead: whoever is there already, else the first.
    fn path_taken_by(&self, uuid: Uuid) -> Option<Uuid> {
        let path = self.shared.known.get(&uuid)?.path()?;
        let rank = |claimant: &Uuid| {
            let known = self.shared.known.get(claimant);
            (known.and_then(|known| known.open.as_deref()) != Some(path), *claimant)
        };
        let first = self.shared.claims.get(path)?.iter().copied().min_by_key(rank)?;
        (first != uuid).then_some(first)
    }

    /// The disk or another git server has answered.
    pub(super) fn on_shared_result(&mut self, result: SharedResult, now: Now) {
        let SharedResult { repository: uuid, branch, outcome } = result;
        let Some(repository) = self.shared.known.get_mut(&uuid) else { return };
        let done = repository.under_way.take();
        self.shared.dirty.insert(uuid);
        if let Some(branch) = branch {
            return self.on_pulled(uuid, &branch, outcome, now);
        }
        match (outcome, done) {
            (Ok(outcome), Some(SharedAction::Open { path, .. })) => {
                repository.wait.succeeded();
                repository.open = Some(path);
                self.moved(uuid, outcome.main);
            }
            (Ok(_), _) => {
                repository.wait.succeeded();
                repository.open = None;
                repository.main = None;
                let path = repository.path().and_then(|path| self.shared.claims.get(path));
                let others: Vec<Uuid> = path.into_iter().flatten().copied().collect();
                self.shared.dirty.extend(others);
            }
            (Err(reason), _) => {
                tracing::warn!(repository = %uuid, error = reason, "work on a shared repository failed");
                repository.wait.failed(reason, now);
            }
        }
    }

    fn on_pulled(&mut self, uuid: Uuid, name: &str, outcome: Result<SharedOutcome, String>, now: Now) {
        let Some(repository) = self.shared.known.get_mut(&uuid) else { return };
        let Some(branch) = repository.branches.get_mut(name) else { return };
        // A part of a second that two repositories do not have in common.
        let jitter = JITTER_MAX.mul_f64(f64::from(u16::try_from(uuid.as_u128() & 0xFFFF).unwrap_or(0)) / 65536.0);
        match outcome {
            Ok(outcome) => {
                let moved = branch.commit != outcome.pulled;
                if moved || branch.error.is_some() {
                    let commit = outcome.pulled.as_deref().unwrap_or_default();
                    tracing::info!(repository = %uuid, branch = name, commit, diverged = outcome.diverged, "pulled");
                }
                branch.retry.reset();
                branch.due = branch.pull.interval.map(|interval| now.mono + interval + jitter);
                branch.commit = outcome.pulled;
                branch.at = Some(now.wall);
                branch.error = None;
                branch.diverged = outcome.diverged;
                self.moved(uuid, outcome.main);
            }
            Err(reason) => {
                tracing::warn!(repository = %uuid, branch = name, error = reason, "a branch could not be pulled");
                branch.due = Some(now.mono + branch.retry.next_delay());
                branch.error = Some(reason);
            }
        }
    }

    /// Branch `main` of a shared repository is at a commit.
    pub(super) fn moved(&mut self, uuid: Uuid, main: Option<String>) {
        let Some(repository) = self.shared.known.get_mut(&uuid).filter(|repository| repository.main != main) else {
            return;
        };
        repository.main = main;
        self.shared.dirty.insert(uuid);
        if uuid == known::repository::HELM_CHARTS {
            self.dirty.extend(self.clusters.keys());
        } else if let Some(dependents) = self.dependents.get(&uuid) {
            self.dirty.extend(dependents.iter().map(|(cluster, _)| *cluster));
        }
    }

    /// Somebody wants it pulled at once.
    pub(super) fn pull_now(&mut self, uuid: Uuid, now: Now) {
        let Some(repository) = self.shared.known.get_mut(&uuid) else { return };
        for branch in repository.branches.values_mut() {
            branch.due = Some(now.mono);
            branch.retry.reset();
        }
        repository.wait.forgive();
        self.shared.dirty.insert(uuid);
    }

    /// Brings the Device up to date; a repository that is neither wanted nor there has none.
    fn tell_shared(&mut self, uuid: Uuid, taken: Option<Uuid>, now: Now) {
        let Some(repository) = self.shared.known.get_mut(&uuid) else { return };
        let Some(wanted) = &repository.wanted else {
            if repository.open.is_none() && repository.under_way.is_none() {
                let told = repository.device.is_some();
                self.shared.known.remove(&uuid);
                if told {
                    self.effects.push(Effect::Node(NodeUpdate::DeviceDeath { device: repository::device(uuid) }));
                }
            }
            return;
        };
        let refused = wanted.as_ref().err().cloned();
        let reason = refused.or_else(|| taken.map(|other| format!("path is that of repository {other} already")));
        let reason = reason.or_else(|| repository.wait.reason().map(str::to_owned));
        let path = repository.path().unwrap_or_default().to_owned();
        let is_open = !path.is_empty() && repository.open.as_deref() == Some(&path);
        let before = repository.device.as_ref().filter(|before| before.git_url.is_some() == is_open);
        let device = RepositoryDevice {
            since: before.map_or(now.wall, |before| before.since),
            git_url: is_open.then(|| format!("{}/git/{path}", self.settings.cluster.git.own)),
            path,
            reason,
            git_commit: repository.main.clone(),
            pulled: repository.pulled(),
        };
        if repository.device.as_ref() != Some(&device) {
            let metrics = device.to_metrics();
            repository.device = Some(device);
            self.effects.push(Effect::Node(NodeUpdate::DeviceBirth { device: repository::device(uuid), metrics }));
        }
    }
}
