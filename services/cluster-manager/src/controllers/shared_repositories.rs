//! Shared repositories: opened and closed as ConfigDB has them, their branches pulled from elsewhere when it is time, their commits published.
//!
//! A repository is shared if its object has a `GitConfig` entry and is a member of the class of shared repositories. That of the well-known charts always is there. One piece of
//! work at a time for each; a pull takes as long as it takes and blocks only its own repository.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cluster_manager_contract::repository::{self, PulledBranch, RepositoryDevice};
use configdb_schema::Document as _;
use configdb_schema::document::GitConfig;
use configdb_schema::known;
use git_hosting::pulls::Pull;
use manifests::git_address::HELM_PATH;
use sparkplug::Now;
use sparkplug::backoff::Backoff;
use sparkplug::edge_node::NodeUpdate;
use uuid::Uuid;

use super::{Pacing, Wait};
use crate::event::{Effect, SharedAction, SharedOutcome, SharedResult, SharedWork};
use crate::fleet::FleetView;
use crate::shared_repository::{self, Shared};
use crate::wanted_by::WantedBy;

/// Longest wait before a pull that failed is tried again, where the interval is not shorter.
const PULL_RETRY_MAX: Duration = Duration::from_secs(600);

/// First such wait.
const PULL_RETRY_FIRST: Duration = Duration::from_secs(10);

/// What an interval is longer at most than configured, so that many repositories do not pull in one moment.
const JITTER_MAX: Duration = Duration::from_secs(5);

/// What the controller goes by.
#[derive(Debug)]
pub(crate) struct Settings {
    /// Base URL of the own git server; empty: not known yet.
    pub git_url: String,
    /// Commit that the repository of the well-known charts is at, which is served from the start; None: it is not.
    pub charts_commit: Option<String>,
    /// The manager writes the repository of the well-known charts itself.
    pub charts_written: bool,
    /// Waits.
    pub pacing: Pacing,
}

/// All shared repositories.
#[derive(Debug)]
pub(crate) struct SharedRepositoriesController {
    settings: Settings,
    known: BTreeMap<Uuid, SharedRepository>,
    /// Who wants to be served at a path.
    claims: BTreeMap<String, BTreeSet<Uuid>>,
    /// To be looked at in this turn.
    stale: BTreeSet<Uuid>,
    /// Open on the disk since an earlier process, with the ConfigDB that wanted it.
    left: Vec<(Uuid, WantedBy)>,
}

#[derive(Debug)]
struct SharedRepository {
    /// As ConfigDB has it. None: it is not wanted.
    wanted: Option<Result<Shared, String>>,
    /// The path that it is served at.
    open: Option<String>,
    /// State of ConfigDB that wanted it; None: it is not open, or made without ConfigDB.
    wanted_by: Option<WantedBy>,
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

impl SharedRepository {
    fn new(wait: Wait) -> Self {
        Self {
            wanted: None,
            open: None,
            wanted_by: None,
            under_way: None,
            wait,
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
                    let retry = Backoff::new((PULL_RETRY_FIRST, PULL_RETRY_MAX), seed.rotate_left(index));
                    let due = Some(now.mono);
                    let (pull, diverged) = (pull.clone(), false);
                    let branch = Branch { pull, due, retry, commit: None, at: None, error: None, diverged };
                    self.branches.insert(name.clone(), branch);
                }
            }
        }
    }

    /// What is to be done for it. `refused`: it must not be served. A ConfigDB that does not contain the state by which it is open does not close it: edges may still follow it. One that has it takes it
    /// over.
    fn next_action(&self, fleet: &FleetView, refused: bool, now: Now) -> Option<SharedAction> {
        if self.under_way.is_some() {
            return None;
        }
        let origin = fleet.config().origin(0).filter(|_| fleet.config().is_complete())?;
        let is_held = self.wanted_by.is_some_and(|wanted_by| wanted_by.hold(fleet, Some(origin)).is_some());
        let path = self.path().filter(|_| !refused);
        match (path, self.open.as_deref()) {
            (Some(path), open) if open != Some(path) || is_held => {
                let path = path.to_owned();
                self.wait.is_over(now).then_some(SharedAction::Open { path, origin })
            }
            (None, Some(_)) if is_held => None,
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
        let report = |(name, pull): (&String, &Result<Pull, _>)| {
            let reported = match (pull, self.branches.get(name)) {
                (Err(error), _) => PulledBranch { error: Some(ToString::to_string(error)), ..PulledBranch::default() },
                (Ok(pull), branch) => PulledBranch {
                    url: Some(pull.url.clone()),
                    commit: branch.and_then(|branch| branch.commit.clone()),
                    at: branch.and_then(|branch| branch.at),
                    error: branch.and_then(|branch| branch.error.clone()),
                    diverged: branch.is_some_and(|branch| branch.diverged),
                },
            };
            (name.clone(), reported)
        };
        wanted.pulls.iter().map(report).collect()
    }
}

impl SharedRepositoriesController {
    /// `left`: what is open on the disk, with the state of ConfigDB that wanted it.
    pub(crate) fn new(settings: Settings, left: Vec<(Uuid, WantedBy)>) -> Self {
        let charts = known::repository::HELM_CHARTS;
        let mut known = BTreeMap::new();
        if let Some(commit) = &settings.charts_commit {
            let mut repository = SharedRepository::new(settings.pacing.wait(charts, 0));
            repository.open = Some(HELM_PATH.to_owned());
            repository.main = Some(commit.clone());
            known.insert(charts, repository);
        }
        Self { settings, known, claims: BTreeMap::new(), stale: BTreeSet::new(), left }
    }

    /// Commit of branch `main`.
    pub(crate) fn commit(&self, repository: Uuid) -> Option<&str> {
        self.known.get(&repository)?.main.as_deref()
    }

    /// The own git server is reached at another base URL.
    pub(crate) fn set_git_url(&mut self, git_url: String) {
        self.settings.git_url = git_url;
        self.mark_all();
    }

    /// It is open or being opened.
    pub(crate) fn is_wanted(&self, repository: Uuid) -> bool {
        self.known.get(&repository).is_some_and(|known| matches!(known.wanted, Some(Ok(_))) || known.open.is_some())
    }

    /// The branches that are pulled from elsewhere.
    pub(crate) fn pulled_branches(&self, repository: Uuid) -> BTreeSet<String> {
        let wanted = self.known.get(&repository).and_then(|known| known.wanted.as_ref()?.as_ref().ok());
        wanted.map(|wanted| wanted.pulls.keys().cloned().collect()).unwrap_or_default()
    }

    /// Something about the object has changed.
    pub(crate) fn mark(&mut self, object: Uuid) {
        self.stale.insert(object);
    }

    /// Learns everything again from a replica that is complete for the first time.
    pub(crate) fn rebuild(&mut self, fleet: &FleetView) {
        let store = fleet.config().store();
        for (repository, wanted_by) in std::mem::take(&mut self.left) {
            if Some(wanted_by.store) == store {
                let pacing = self.settings.pacing;
                let known =
                    self.known.entry(repository).or_insert_with(|| SharedRepository::new(pacing.wait(repository, 0)));
                // Which path it was served at does not matter: it is opened again where it belongs, or closed.
                known.open.get_or_insert_default();
                known.wanted_by = Some(wanted_by);
            }
        }
        self.mark_all();
        self.stale.extend(fleet.config().entries(GitConfig::slug()).map(|(object, _)| object));
    }

    /// Everything is to be looked at again.
    pub(crate) fn mark_all(&mut self) {
        self.stale.extend(self.known.keys().copied());
    }

    /// When there is something to do: nothing while ConfigDB is not known completely.
    pub(crate) fn next_deadline(&self, fleet: &FleetView) -> Option<Duration> {
        self.known.values().filter_map(SharedRepository::next_deadline).min().filter(|_| fleet.is_ready())
    }

    /// Brings every shared repository a step forward of which something has changed, or whose time has come.
    pub(crate) fn reconcile(&mut self, fleet: &FleetView, now: Now) -> Vec<Effect> {
        let mut effects = Vec::new();
        if !fleet.is_known() {
            self.stale.clear();
            return effects;
        }
        let due = |(uuid, repository): (&Uuid, &SharedRepository)| {
            repository.next_deadline().is_some_and(|at| at <= now.mono).then_some(*uuid)
        };
        let due: Vec<Uuid> = self.known.iter().filter_map(due).collect();
        self.stale.extend(due);
        while let Some(uuid) = self.stale.pop_first() {
            effects.extend(self.reconcile_one(fleet, uuid, now).into_iter().flatten());
        }
        effects
    }

    fn reconcile_one(&mut self, fleet: &FleetView, uuid: Uuid, now: Now) -> [Option<Effect>; 2] {
        let wanted = self.wanted(fleet, uuid);
        if wanted.is_none() && !self.known.contains_key(&uuid) {
            return [None, None];
        }
        let pacing = self.settings.pacing;
        let seed = pacing.seed_of(uuid, 0);
        let repository = self.known.entry(uuid).or_insert_with(|| SharedRepository::new(pacing.wait(uuid, 0)));
        if repository.wanted != wanted {
            let before = repository.path().map(str::to_owned);
            repository.wanted = wanted;
            repository.wait.retry_now();
            repository.set_branches(seed, now);
            let after = repository.path().map(str::to_owned);
            self.claim_path(uuid, before, after);
        }
        let taken = self.path_taken_by(uuid);
        let Some(repository) = self.known.get_mut(&uuid) else { return [None, None] };
        if repository.wait.is_over(now) {
            repository.wait.retry_now();
        }
        let action = repository.next_action(fleet, taken.is_some(), now);
        let work = action.map(|action| {
            repository.under_way = Some(action.clone());
            Effect::Shared(SharedWork { repository: uuid, action })
        });
        [work, self.publish(uuid, taken, now)]
    }

    /// What ConfigDB says of it. None: it is not a shared repository.
    fn wanted(&self, fleet: &FleetView, uuid: Uuid) -> Option<Result<Shared, String>> {
        let is_charts = uuid == known::repository::HELM_CHARTS;
        let is_shared = || {
            let object = fleet.config().object(uuid);
            object.is_some_and(|object| object.is_member_of(known::class::REPO_GROUP_SHARED))
        };
        if !is_charts && !is_shared() {
            return None;
        }
        let entry = fleet.config().entry(uuid, GitConfig::slug());
        let wanted = match entry.map(configdb_contract::Entry::parse::<GitConfig>) {
            None if !is_charts => return None,
            None => Ok(GitConfig { path: HELM_PATH.to_owned(), ..GitConfig::default() }),
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
            let claimants = self.claims.entry(path.clone()).or_default();
            self.stale.extend(claimants.iter().copied());
            if claims {
                claimants.insert(uuid);
            } else {
                claimants.remove(&uuid);
            }
            if claimants.is_empty() {
                self.claims.remove(&path);
            }
        }
    }

    /// Which repository is served at the path instead: the one that is there already, else the first.
    fn path_taken_by(&self, uuid: Uuid) -> Option<Uuid> {
        let path = self.known.get(&uuid)?.path()?;
        let rank = |claimant: &Uuid| {
            let known = self.known.get(claimant);
            (known.and_then(|known| known.open.as_deref()) != Some(path), *claimant)
        };
        let first = self.claims.get(path)?.iter().copied().min_by_key(rank)?;
        (first != uuid).then_some(first)
    }

    /// The disk or another git server has answered. True: branch `main` has moved.
    pub(crate) fn on_result(&mut self, result: SharedResult, now: Now) -> bool {
        let SharedResult { repository: uuid, branch, outcome } = result;
        let Some(repository) = self.known.get_mut(&uuid) else { return false };
        let done = repository.under_way.take();
        self.stale.insert(uuid);
        if let Some(branch) = branch {
            return self.on_pulled(uuid, &branch, outcome, now);
        }
        match (outcome, done) {
            (Ok(outcome), Some(SharedAction::Open { path, origin })) => {
                repository.wait.succeeded();
                repository.open = Some(path);
                repository.wanted_by = Some(origin.into());
                return self.moved(uuid, outcome.main);
            }
            (Ok(_), _) => {
                repository.wait.succeeded();
                repository.open = None;
                repository.wanted_by = None;
                repository.main = None;
                let path = repository.path().and_then(|path| self.claims.get(path));
                let others: Vec<Uuid> = path.into_iter().flatten().copied().collect();
                self.stale.extend(others);
            }
            (Err(reason), _) => {
                tracing::warn!(repository = %uuid, error = reason, "work on a shared repository failed");
                repository.wait.failed(reason, now);
            }
        }
        false
    }

    fn on_pulled(&mut self, uuid: Uuid, name: &str, outcome: Result<SharedOutcome, String>, now: Now) -> bool {
        let Some(repository) = self.known.get_mut(&uuid) else { return false };
        let Some(branch) = repository.branches.get_mut(name) else { return false };
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
                return self.moved(uuid, outcome.main);
            }
            Err(reason) => {
                tracing::warn!(repository = %uuid, branch = name, error = reason, "a branch could not be pulled");
                branch.due = Some(now.mono + branch.retry.next_delay());
                branch.error = Some(reason);
            }
        }
        false
    }

    /// Branch `main` of a shared repository is at a commit. True: it was at another before.
    pub(crate) fn moved(&mut self, uuid: Uuid, main: Option<String>) -> bool {
        let Some(repository) = self.known.get_mut(&uuid).filter(|repository| repository.main != main) else {
            return false;
        };
        repository.main = main;
        self.stale.insert(uuid);
        true
    }

    /// A user wants it pulled at once.
    pub(crate) fn pull_now(&mut self, uuid: Uuid, now: Now) {
        let Some(repository) = self.known.get_mut(&uuid) else { return };
        for branch in repository.branches.values_mut() {
            branch.due = Some(now.mono);
            branch.retry.reset();
        }
        repository.wait.retry_now();
        self.stale.insert(uuid);
    }

    /// Brings the Device up to date; a repository that is neither wanted nor there has none.
    fn publish(&mut self, uuid: Uuid, taken: Option<Uuid>, now: Now) -> Option<Effect> {
        let repository = self.known.get_mut(&uuid)?;
        let Some(wanted) = &repository.wanted else {
            if repository.open.is_none() && repository.under_way.is_none() {
                let is_published = repository.device.is_some();
                self.known.remove(&uuid);
                let death = NodeUpdate::DeviceDeath { device: repository::device(uuid) };
                return is_published.then_some(Effect::Node(death));
            }
            return None;
        };
        let refused = wanted.as_ref().err().cloned();
        let reason = refused.or_else(|| taken.map(|other| format!("path is that of repository {other} already")));
        let reason = reason.or_else(|| repository.wait.reason().map(str::to_owned));
        let path = repository.path().unwrap_or_default().to_owned();
        let is_open = !path.is_empty() && repository.open.as_deref() == Some(&path);
        let is_served = is_open && !self.settings.git_url.is_empty();
        let before = repository.device.as_ref().filter(|before| before.git_url.is_some() == is_served);
        let device = RepositoryDevice {
            since: before.map_or(now.wall, |before| before.since),
            git_url: is_served.then(|| format!("{}/git/{path}", self.settings.git_url)),
            path,
            reason,
            git_commit: repository.main.clone(),
            pulled: repository.pulled(),
        };
        if repository.device.as_ref() == Some(&device) {
            return None;
        }
        let metrics = device.to_metrics();
        repository.device = Some(device);
        Some(Effect::Node(NodeUpdate::DeviceBirth { device: repository::device(uuid), metrics }))
    }
}
