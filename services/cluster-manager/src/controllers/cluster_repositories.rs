//! The repository of each cluster: what it shall hold, what the disk has answered, and whether it may change in a staged rollout and has settled.
//!
//! One piece of work at a time for each repository. The disk has one owner: what is written goes out as an effect, and its result comes back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use cluster_manager_contract::SecretsReport;
use configdb_schema::document::{EdgeCluster, SealedSecret, WAVE_MAX};
use git_hosting::repositories::{RepositoryFiles, cluster_path};
use manifests::git_address::GitAddress;
use sparkplug::Now;
use sparkplug::replication::Hold;
use uuid::Uuid;

use super::{Controller, Forgotten, Pacing, Wait};
use crate::cluster_repo::{self, ClusterRepo};
use crate::devices::ClusterDevices;
use crate::event::{Effect, GitAction, GitOutcome, GitResult, GitWork};
use crate::fleet::FleetView;
use crate::rollout::{Blocker, Rollout, WholeRepository};
use crate::setup::{Repository, WantedRepository};
use crate::wanted_by::WantedBy;

/// What the controller goes by.
#[derive(Debug)]
pub(crate) struct Settings {
    /// How repositories are rendered.
    pub cluster: cluster_repo::Settings,
    /// How long neither Sync nor Flux of a cluster must have been received before later waves do not wait for its repository.
    pub flux_away: Duration,
    /// Waits.
    pub pacing: Pacing,
}

/// The repositories of all clusters.
#[derive(Debug)]
pub(crate) struct ClusterRepositoriesController {
    settings: Settings,
    known: BTreeMap<Uuid, ClusterRepository>,
    /// What each repository that is open was brought to last; also of clusters that ConfigDB does not have.
    wanted_by: BTreeMap<Uuid, WantedBy>,
    /// Clusters whose repository is rendered from an object.
    dependents: BTreeMap<Uuid, BTreeSet<Uuid>>,
    /// Which repositories a changed template may reach.
    waves: Rollout<WholeRepository>,
}

#[derive(Debug)]
struct ClusterRepository {
    /// As the disk answered last.
    state: Repository,
    /// Work under way; the inner value is what is being written.
    under_way: Option<Option<Content>>,
    /// What was written last, or compared with what is there.
    written: Option<Content>,
    /// Commit of branch `main`.
    commit: Option<String>,
    /// Another commit that the branch was looked at for, or was at before.
    looked_for: Option<String>,
    /// `Now::mono` at which the cluster's Flux asked for a repository.
    polled_at: Option<Duration>,
    wait: Wait,
    /// What it shall hold, until a template changes.
    rendered: Option<RenderedRepo>,
    /// Objects that it is rendered from.
    rendered_from: BTreeSet<Uuid>,
    report: RepositoryReport,
    /// What the disk has said of its secrets.
    secrets: SecretsReport,
}

/// What was rendered, and from what.
#[derive(Debug)]
struct RenderedRepo {
    spec: EdgeCluster,
    repo: Result<WantedContent, String>,
}

/// What a repository shall hold.
#[derive(Debug)]
struct WantedContent {
    content: Content,
    /// For the bootstrap, see [`ClusterRepo`].
    self_link: String,
    /// Not kept after they are handed to the disk: of thousands of clusters they are more than all else. They are rendered again when they are needed again.
    files: Option<RepositoryFiles>,
}

/// What distinguishes what one repository holds from what another one does.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Content {
    /// Digest of the files.
    files: String,
    /// What ConfigDB has of the cluster's secrets.
    secrets: Vec<Arc<SealedSecret>>,
}

/// A cluster's repository in staged rollouts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct RepositoryReport {
    /// Why it keeps what it holds.
    pub waits: Option<String>,
    /// Why it has not settled, so that later waves wait.
    pub unsettled: Option<String>,
}

/// What an evaluation has found out about a repository.
#[derive(Debug)]
pub(crate) struct Evaluated<'a> {
    /// What it is.
    pub repository: Repository,
    /// Why the set-up does not go on.
    pub reason: Option<&'a str>,
    /// What it has to wait for, if it shall hold something else.
    pub blocker: Option<Blocker>,
    /// The cluster has reported its status at some time.
    pub has_status: bool,
}

/// What can be seen of a cluster's repository.
enum Finding {
    /// It holds what it shall hold, and Flux is ready on it.
    Settled,
    /// It does not, and why.
    Unsettled(String),
    /// Nothing at present.
    NotReceived,
    /// There is no edge, or it is away: later waves do not wait for it.
    NoEdge,
}

impl ClusterRepository {
    fn new(wait: Wait) -> Self {
        Self {
            state: Repository::Behind,
            under_way: None,
            written: None,
            commit: None,
            looked_for: None,
            polled_at: None,
            wait,
            rendered: None,
            rendered_from: BTreeSet::new(),
            report: RepositoryReport::default(),
            secrets: SecretsReport::default(),
        }
    }

    /// The branch is at this commit.
    fn set_commit(&mut self, commit: String) {
        if self.commit.as_ref() != Some(&commit) {
            self.looked_for = self.commit.replace(commit);
        }
    }
}

impl Controller for ClusterRepositoriesController {
    fn retry(&mut self, uuid: Uuid) {
        if let Some(repository) = self.known.get_mut(&uuid) {
            repository.wait.retry_now();
            repository.written = None;
        }
    }

    fn next_deadline(&self, uuid: Uuid, _now: Now) -> Option<Duration> {
        self.known.get(&uuid)?.wait.until()
    }

    fn clear(&mut self) {
        self.dependents.clear();
        self.waves = Rollout::default();
        for (uuid, repository) in &mut self.known {
            let fresh = ClusterRepository::new(self.settings.pacing.wait(*uuid, 17));
            let under_way = repository.under_way.take();
            *repository = ClusterRepository { under_way, ..fresh };
        }
    }

    fn retain(&mut self, is_left: &dyn Fn(&Uuid) -> bool) -> Vec<Effect> {
        self.known.retain(|uuid, _| is_left(uuid));
        Vec::new()
    }

    fn forget(&mut self, uuid: Uuid) -> Forgotten {
        if let Some(repository) = self.known.remove(&uuid) {
            self.set_dependencies(uuid, &repository.rendered_from, &BTreeSet::new());
        }
        Forgotten { effects: Vec::new(), released: self.waves.remove(uuid) }
    }
}

impl ClusterRepositoriesController {
    /// No cluster is known. `wanted_by`: of what is open on the disk.
    pub(crate) fn new(settings: Settings, wanted_by: BTreeMap<Uuid, WantedBy>) -> Self {
        Self { settings, known: BTreeMap::new(), wanted_by, dependents: BTreeMap::new(), waves: Rollout::default() }
    }

    fn is_ageing(&self, fleet: &FleetView, uuid: Uuid) -> bool {
        self.wanted_by.get(&uuid).is_some_and(|wanted_by| wanted_by.is_ageing(fleet))
    }

    /// Why the repository of a cluster keeps what it holds, whatever ConfigDB wants.
    pub(crate) fn hold(&self, fleet: &FleetView, uuid: Uuid) -> Option<Hold> {
        self.wanted_by.get(&uuid)?.hold(fleet, fleet.origin(uuid))
    }

    /// There is a cluster of that UUID.
    pub(crate) fn add(&mut self, uuid: Uuid) {
        let pacing = self.settings.pacing;
        self.known.entry(uuid).or_insert_with(|| ClusterRepository::new(pacing.wait(uuid, 17)));
    }

    /// The disk has still to answer, and the cluster is evaluated then.
    pub(crate) fn is_under_way(&self, uuid: Uuid) -> bool {
        self.known.get(&uuid).is_some_and(|repository| repository.under_way.is_some())
    }

    /// Commit of branch `main`.
    pub(crate) fn commit(&self, uuid: Uuid) -> Option<&str> {
        self.known.get(&uuid)?.commit.as_deref()
    }

    /// Branch `main` is at another commit.
    pub(crate) fn moved(&mut self, uuid: Uuid, commit: Option<String>) {
        if let Some(repository) = self.known.get_mut(&uuid) {
            repository.commit = commit;
        }
    }

    /// The cluster's Flux has asked for a repository; `at`: `Now::mono`.
    pub(crate) fn polled(&mut self, uuid: Uuid, at: Duration) {
        if let Some(repository) = self.known.get_mut(&uuid) {
            repository.polled_at = repository.polled_at.max(Some(at));
        }
    }

    /// Clusters reach repositories elsewhere than before. Each is still to be marked.
    pub(crate) fn set_git(&mut self, git: GitAddress) {
        self.settings.cluster.git = git;
    }

    /// A repository is to be rendered again. Its wave waits until that is done.
    pub(crate) fn mark(&mut self, uuid: Uuid) {
        self.waves.unknown(uuid);
        self.forget_rendered(uuid);
    }

    /// ConfigDB has something else of a cluster's secrets. Its wave waits for nothing: secrets are not held by rollouts.
    pub(crate) fn secrets_changed(&mut self, uuid: Uuid) {
        self.forget_rendered(uuid);
    }

    /// The secrets in a repository.
    pub(crate) fn secrets(&self, uuid: Uuid) -> SecretsReport {
        self.known.get(&uuid).map(|repository| repository.secrets.clone()).unwrap_or_default()
    }

    fn forget_rendered(&mut self, uuid: Uuid) {
        if let Some(repository) = self.known.get_mut(&uuid) {
            repository.rendered = None;
        }
    }

    /// Clusters whose repository is rendered from an object.
    pub(crate) fn dependents(&self, object: Uuid) -> BTreeSet<Uuid> {
        self.dependents.get(&object).cloned().unwrap_or_default()
    }

    /// Objects that the repository of a cluster is rendered from.
    pub(crate) fn rendered_from(&self, uuid: Uuid) -> impl Iterator<Item = Uuid> {
        self.known.get(&uuid).into_iter().flat_map(|repository| &repository.rendered_from).copied()
    }

    /// Its part in staged rollouts.
    pub(crate) fn report(&self, uuid: Uuid) -> RepositoryReport {
        self.known.get(&uuid).map(|repository| repository.report.clone()).unwrap_or_default()
    }

    /// The cluster is in another wave, or stays elsewhere in the repositories of charts. Says which clusters waited for it.
    pub(crate) fn set_wave(&mut self, uuid: Uuid, wave: u8) -> Vec<Uuid> {
        self.forget_rendered(uuid);
        self.waves.set_wave(uuid, wave)
    }

    /// What would have to settle first if the repository shall hold something else.
    pub(crate) fn blocker(&self, uuid: Uuid) -> Option<Blocker> {
        self.waves.blocker(uuid, &BTreeSet::from([WholeRepository]))
    }

    /// What a repository shall hold, as far as the set-up needs it. None: it was not rendered.
    pub(crate) fn wanted(&self, uuid: Uuid) -> Option<Result<WantedRepository, String>> {
        let rendered = self.known.get(&uuid)?.rendered.as_ref()?;
        Some(
            rendered
                .repo
                .as_ref()
                .map_err(Clone::clone)
                .map(|wanted| WantedRepository { self_link: wanted.self_link.clone() }),
        )
    }

    /// What a repository is. `must_wait`: it keeps what it holds.
    pub(crate) fn state(&self, fleet: &FleetView, uuid: Uuid, must_wait: bool, now: Now) -> Repository {
        let Some(repository) = self.known.get(&uuid) else { return Repository::Behind };
        let wanted = repository.rendered.as_ref().and_then(|rendered| rendered.repo.as_ref().ok());
        let wanted = wanted.map(|wanted| &wanted.content);
        match &repository.state {
            Repository::Failed(_) if repository.wait.is_over(now) => Repository::Behind,
            Repository::Written | Repository::Held if repository.written.as_ref() != wanted => Repository::Behind,
            Repository::Held if !must_wait => Repository::Behind,
            Repository::Written if self.is_ageing(fleet, uuid) => Repository::Behind,
            other => other.clone(),
        }
    }

    /// Renders what a repository shall hold, unless that is known.
    pub(crate) fn render(&mut self, fleet: &FleetView, uuid: Uuid, config: &EdgeCluster) {
        let Some(repository) = self.known.get_mut(&uuid) else { return };
        if repository.rendered.as_ref().is_some_and(|rendered| rendered.spec == *config) {
            return;
        }
        let (catalog, pins) = (fleet.catalog(), fleet.pins(uuid));
        let repo = cluster_repo::render(uuid, config, catalog, &self.settings.cluster, pins);
        let wanted = |ClusterRepo { files, self_link }| {
            let content = Content { files: files.digest(), secrets: fleet.secrets(uuid) };
            let files = (repository.written.as_ref() != Some(&content)).then_some(files);
            WantedContent { content, self_link, files }
        };
        let repo = repo.map(wanted).map_err(|error| error.to_string());
        repository.rendered = Some(RenderedRepo { spec: config.clone(), repo });
        let chart = cluster_repo::chart(config, catalog);
        let source = catalog.chart(chart).ok().and_then(|template| template.source);
        let after: BTreeSet<Uuid> = source.into_iter().chain([chart]).collect();
        let before = std::mem::replace(&mut repository.rendered_from, after.clone());
        self.set_dependencies(uuid, &before, &after);
    }

    /// Notes from which objects a cluster's repository is rendered.
    fn set_dependencies(&mut self, uuid: Uuid, before: &BTreeSet<Uuid>, after: &BTreeSet<Uuid>) {
        for object in before.symmetric_difference(after) {
            let of_object = self.dependents.entry(*object).or_default();
            if after.contains(object) {
                of_object.insert(uuid);
            } else {
                of_object.remove(&uuid);
            }
            if of_object.is_empty() {
                self.dependents.remove(object);
            }
        }
    }

    /// Writes what a repository shall hold. `hold`: its files stay, also if they are others. Of Secrets the newer decision counts, whichever ConfigDB has it.
    pub(crate) fn write(&mut self, fleet: &FleetView, uuid: Uuid, hold: bool, now: Now) -> Option<Effect> {
        let origin = fleet.origin(uuid)?;
        let renews = self.is_ageing(fleet, uuid);
        let may_write =
            |repository: &&mut ClusterRepository| repository.under_way.is_none() && repository.wait.is_over(now);
        let repository = self.known.get_mut(&uuid).filter(may_write)?;
        let RenderedRepo { spec, repo: Ok(wanted) } = repository.rendered.as_mut()? else { return None };
        let files = match wanted.files.take() {
            Some(files) => files,
            None => {
                let (catalog, pins) = (fleet.catalog(), fleet.pins(uuid));
                cluster_repo::render(uuid, spec, catalog, &self.settings.cluster, pins).ok()?.files
            }
        };
        let (path, content) = (cluster_path(&spec.name), wanted.content.clone());
        let secrets = content.secrets.clone();
        self.work(uuid, Some(content), GitAction::Write { path, origin, renews, files, hold, secrets })
    }

    /// Closes a repository.
    pub(crate) fn close(&mut self, uuid: Uuid) -> Option<Effect> {
        self.work(uuid, None, GitAction::Close)
    }

    fn work(&mut self, uuid: Uuid, content: Option<Content>, action: GitAction) -> Option<Effect> {
        let repository = self.known.get_mut(&uuid).filter(|repository| repository.under_way.is_none())?;
        repository.under_way = Some(content);
        Some(Effect::Git(GitWork { cluster: uuid, action }))
    }

    /// The disk has answered.
    pub(crate) fn on_result(&mut self, result: GitResult, now: Now) {
        let Some(repository) = self.known.get_mut(&result.cluster) else { return };
        let written = repository.under_way.take().flatten();
        let (state, commit) = match result.outcome {
            GitOutcome::Written { commit, wanted_by, secrets } => {
                self.wanted_by.insert(result.cluster, wanted_by);
                (Repository::Written, Some((commit, secrets)))
            }
            GitOutcome::Held { commit, wanted_by, secrets } => {
                self.wanted_by.insert(result.cluster, wanted_by);
                (Repository::Held, Some((commit, secrets)))
            }
            GitOutcome::Closed => {
                self.wanted_by.remove(&result.cluster);
                (Repository::Closed, None)
            }
            GitOutcome::Failed { reason } => {
                tracing::warn!(cluster_id = %result.cluster, error = reason, "work on a repository failed");
                repository.state = Repository::Failed(reason.clone());
                return repository.wait.failed(reason, now);
            }
        };
        repository.wait.succeeded();
        repository.written = written;
        repository.state = state;
        if let Some(RenderedRepo { repo: Ok(wanted), .. }) = &mut repository.rendered
            && repository.written.as_ref() == Some(&wanted.content)
        {
            wanted.files = None;
        }
        match commit {
            Some((commit, secrets)) => {
                repository.set_commit(commit);
                repository.secrets = secrets;
            }
            None => repository.commit = None,
        }
    }

    /// Notes whether a cluster's repository waits, and whether it has settled. `name` is None while the cluster is torn down or has none. Says which clusters are to be evaluated.
    pub(crate) fn settle(
        &mut self,
        fleet: &FleetView,
        devices: &ClusterDevices,
        (uuid, name): (Uuid, Option<&str>),
        evaluated: &Evaluated<'_>,
        now: Now,
    ) -> Vec<Uuid> {
        let whole = BTreeSet::from([WholeRepository]);
        let blocker = evaluated.blocker.filter(|_| evaluated.repository != Repository::Written);
        self.waves.wait(uuid, if blocker.is_some() { whole.clone() } else { BTreeSet::new() });
        let waits = blocker.map(|Blocker { wave, cluster }| {
            let name = devices.name_of(cluster);
            format!("waits for cluster {name} of wave {wave}, whose own repository has not settled")
        });
        let mut affected = Vec::new();
        let mut unsettled = None;
        if self.waves.wave(uuid) < WAVE_MAX {
            let (finding, again) =
                name.map_or((Finding::NoEdge, None), |name| self.finding(fleet, (uuid, name), evaluated, now));
            affected.extend(again);
            match finding {
                Finding::NoEdge | Finding::Settled => affected.extend(self.waves.compared(uuid, BTreeSet::new())),
                Finding::Unsettled(why) => {
                    unsettled = Some(why);
                    affected.extend(self.waves.compared(uuid, whole));
                }
                Finding::NotReceived => {
                    unsettled = self.waves.blocks_rollout(uuid).then(|| "its edge sync is offline".to_owned());
                }
            }
        }
        if let Some(repository) = self.known.get_mut(&uuid) {
            repository.report = RepositoryReport { waits, unsettled };
        }
        affected
    }

    /// What can be seen of a repository, and the cluster if that is to be evaluated again at once.
    fn finding(
        &mut self,
        fleet: &FleetView,
        (uuid, name): (Uuid, &str),
        evaluated: &Evaluated<'_>,
        now: Now,
    ) -> (Finding, Option<Uuid>) {
        let Some(sync) = fleet.sync_of(uuid, name).filter(|sync| sync.is_current() && sync.replica.is_complete())
        else {
            let is_away = self.flux_away_at(fleet, uuid, name).is_some_and(|at| at <= now.mono);
            // What was never bootstrapped has no status.
            let is_there = evaluated.has_status || fleet.sync_of(uuid, name).is_some();
            return (if is_away || !is_there { Finding::NoEdge } else { Finding::NotReceived }, None);
        };
        let node = sync.replica.node();
        let applied = node.and_then(|node| node.source_applied).map(|commit| commit.to_string());
        let (ready, message) = node.map(|node| (node.source_ready, node.source_message.clone())).unwrap_or_default();
        let Some(repository) = self.known.get_mut(&uuid) else { return (Finding::NoEdge, None) };
        if evaluated.repository != Repository::Written {
            let reason = evaluated.reason.unwrap_or("its repository is not written yet");
            return (Finding::Unsettled(reason.to_owned()), None);
        }
        if applied == repository.commit {
            let why = || message.unwrap_or_else(|| "what Flux has applied is not ready".to_owned());
            return (if ready == Some(true) { Finding::Settled } else { Finding::Unsettled(why()) }, None);
        }
        // The branch may have been moved on the disk: it is looked at once for each commit that is not known.
        let looks = applied.is_some() && applied != repository.looked_for && repository.under_way.is_none();
        if looks {
            repository.looked_for.clone_from(&applied);
            repository.written = None;
        }
        let because = message.map(|message| format!(": {message}")).unwrap_or_default();
        let why = format!("Flux has not applied its repository yet{because}");
        (Finding::Unsettled(why), looks.then_some(uuid))
    }

    /// When later waves do not wait any more for the repository of a cluster. None: nothing waits for it, its Sync is current, or the session is down.
    pub(crate) fn settles_at(&self, fleet: &FleetView, uuid: Uuid, name: &str) -> Option<Duration> {
        if self.waves.blocks_rollout(uuid) { self.flux_away_at(fleet, uuid, name) } else { None }
    }

    /// When a cluster whose Sync is not current counts as away: its Flux asked for nothing either.
    fn flux_away_at(&self, fleet: &FleetView, uuid: Uuid, name: &str) -> Option<Duration> {
        let lost_at = fleet.lost_at(name)?;
        let polled_at = self.known.get(&uuid)?.polled_at.unwrap_or_default();
        Some(lost_at.max(polled_at) + self.settings.flux_away)
    }
}
