//! The state of the cluster manager: replicas of ConfigDB and of every Sync, and per cluster what is under way.
//!
//! An event changes the replicas and marks the clusters that it concerns. Then each marked cluster is evaluated alone: the set-up takes its next
//! step, the desired state is compared with the reported one, the Device is brought up to date. Nothing here must survive a restart: what is wanted and how far it is are
//! in ConfigDB, what the edge has is reported by it.
//!
//! | module | knows |
//! |---|---|
//! | `configdb` | ConfigDB's changes -> which clusters and deployments they concern |
//! | `cluster` | one cluster's nodes, the execution of its next step, and its Device |
//! | `run` | the controllers that an affected cluster goes through, in order |
//!
//! What needs no more than the fleet's replicas is a controller (`controllers`).

mod cluster;
mod configdb;
mod run;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cluster_manager_contract::node::{NOT_SERVED_MAX, UNKNOWN_MAX};
use cluster_manager_contract::{NodeMetrics, SetupState, names, repository};
use configdb_contract::configdb_node;
use configdb_schema::{Organisation, known};
use git_hosting::repositories::Kind;
use git_server_contract::GitDevice;
use manifests::catalog;
use manifests::git_address::GitAddress;
use sparkplug::edge_node::{NodeEvent, NodeUpdate};
use sparkplug::host::{HostEvent, HostRequest};
use sparkplug::replication::ReplicaChange;
use sparkplug::{Metric, Now, TypedMetrics};
use uuid::Uuid;

use crate::controllers::accounts::AccountsController;
use crate::controllers::attestation_policy::AttestationPolicyController;
use crate::controllers::bootstrap_grants::BootstrapGrantsController;
use crate::controllers::cluster_repositories::{self, ClusterRepositoriesController};
use crate::controllers::deployments::DeploymentsController;
use crate::controllers::flux_sources::FluxSourcesController;
use crate::controllers::git_copies::{GitCopiesController, PushRules, Surroundings};
use crate::controllers::git_pushes::GitPushesController;
use crate::controllers::git_users::{self, GitUsersController, Moved};
use crate::controllers::logins::LoginsController;
use crate::controllers::principals::PrincipalsController;
use crate::controllers::setups::SetupsController;
use crate::controllers::shared_repositories::{self, SharedRepositoriesController};
use crate::controllers::{Deadlines, Pacing};
use crate::devices::ClusterDevices;
use crate::event::{CopyResult, Effect, Event, GitOutcome, Original, SharedResult};
use crate::fleet::{Affected, FleetView};
use crate::requests::{Output, Requests};
use crate::shared_repository::{CHARTS_WRITTEN, ELSEWHERE};
use crate::wanted_by::WantedBy;
use crate::{cluster_repo, render};
use access::rate::Rate;
use cluster::Cluster;

/// What the state goes by.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Prefix of all groups.
    pub organisation: Organisation,
    /// Version of the program.
    pub version: String,
    /// How repositories of clusters are rendered.
    pub cluster: cluster_repo::Settings,
    /// Base URL of the scripts that bootstrap clusters.
    pub scripts_url: String,
    /// Public key that credentials of users who push are sealed to, base64url.
    pub git_key: String,
    /// The base URL of the git server is what the configuration says, whatever it reports itself.
    pub is_git_fixed: bool,
    /// What a git server has is not known before it was received. Without it, as where none is simulated, all that is written counts as served until one is.
    pub awaits_git: bool,
    /// How deployments are rendered.
    pub deployment: render::Settings,
    /// How long a Sync must be away before a tear-down no longer waits for it.
    pub away: Duration,
    /// How long neither Sync nor Flux of a cluster must be received before other repositories no longer wait for it.
    pub flux_away: Duration,
    /// How often one credential may ask over git.
    pub rate: Rate,
    /// First and longest wait before something that failed or was not answered is tried again.
    pub retry: (Duration, Duration),
    /// Realm of the site's KDC; None: it has none, or keeps principals by itself.
    pub realm: Option<String>,
    /// Commit that the repository of shared charts is at, hexadecimal; None: not known.
    pub charts_commit: Option<String>,
    /// Directories of that commit which hold a chart; None: what clusters follow may be another commit.
    pub charts: Option<BTreeSet<String>>,
    /// The manager brings that repository to a directory at each start: no other program writes it.
    pub charts_written: bool,
}

/// An open repository that an earlier process of the manager left on the disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PersistedRepository {
    /// The cluster.
    pub cluster: Uuid,
    /// Name of the cluster.
    pub name: String,
    /// State of ConfigDB that it was brought to.
    pub wanted_by: WantedBy,
}

/// What an earlier process of the manager left open on the disk.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PersistedRepositories {
    /// Repositories of clusters.
    pub clusters: Vec<PersistedRepository>,
    /// Shared ones, with the state of ConfigDB that wanted each.
    pub shared: Vec<(Uuid, WantedBy)>,
}

/// How long the births of a Sync's Devices are waited for before its cluster is evaluated without them. They follow its own birth at once, and each of them would be evaluated alone.
const BIRTHS_PAUSE: Duration = Duration::from_secs(1);

/// The state.
#[derive(Debug)]
pub struct ClusterManager {
    settings: Settings,
    fleet: FleetView,
    accounts: AccountsController,
    attestation_policy: AttestationPolicyController,
    bootstrap_grants: BootstrapGrantsController,
    deployments: DeploymentsController,
    copies: GitCopiesController,
    flux_sources: FluxSourcesController,
    git_users: GitUsersController,
    logins: LoginsController,
    principals: PrincipalsController,
    pushes: GitPushesController,
    setups: SetupsController,
    shared: SharedRepositoriesController,
    clusters: BTreeMap<Uuid, Cluster>,
    repositories: ClusterRepositoriesController,
    requests: Requests,
    /// Clusters to be evaluated in this turn.
    dirty: BTreeSet<Uuid>,
    /// Deadlines of clusters, in order.
    deadlines: Deadlines,
    devices: ClusterDevices,
    left: Vec<PersistedRepository>,
    totals: NodeMetrics,
    published_totals: NodeMetrics,
    /// The time of the last event, if no turn followed it yet.
    turn: Option<Now>,
    effects: Vec<Effect>,
}

impl ClusterManager {
    /// A manager that knows nothing yet. `left` is what is open on the disk; `seed` is random.
    #[must_use]
    pub fn new(settings: Settings, left: PersistedRepositories, seed: u64, now: Now) -> Self {
        let configdb = configdb_node(&settings.organisation);
        let totals = NodeMetrics {
            version: settings.version.clone(),
            deployments_values: serde_json::Value::Object(settings.deployment.base_values.clone()).to_string(),
            git_url: settings.cluster.git.own.clone(),
            git_external_url: settings.cluster.git.external.clone(),
            git_key: settings.git_key.clone(),
            bootstrap_script: names::SCRIPT_SHIPPED.to_owned(),
            ..NodeMetrics::default()
        };
        let fleet = FleetView::new(settings.organisation.clone(), settings.away);
        let expected = [configdb.clone(), fleet.identity().node().clone(), fleet.git().address().clone()];
        let effects = expected.map(|node| Effect::Host(HostRequest::Expect { node })).into();
        let pacing = Pacing { retry: settings.retry, seed };
        let shared = shared_repositories::Settings {
            git_url: settings.cluster.git.own.clone(),
            charts_commit: settings.charts_commit.clone(),
            charts_written: settings.charts_written,
            pacing,
        };
        let git_users = git_users::Settings { charts_written: settings.charts_written, rate: settings.rate };
        let repositories =
            cluster_repositories::Settings { cluster: settings.cluster.clone(), flux_away: settings.flux_away, pacing };
        let open = left.clusters.iter().map(|left| left.cluster).chain(left.shared.iter().map(|(uuid, _)| *uuid));
        let copies = GitCopiesController::new(pacing, open);
        Self {
            fleet,
            accounts: AccountsController::new(settings.realm.clone(), pacing),
            attestation_policy: AttestationPolicyController::new(pacing),
            bootstrap_grants: BootstrapGrantsController::new(settings.scripts_url.clone()),
            deployments: DeploymentsController::new(settings.deployment.clone(), pacing),
            copies,
            flux_sources: FluxSourcesController::new(pacing),
            git_users: GitUsersController::new(git_users),
            logins: LoginsController::default(),
            principals: PrincipalsController::new(settings.realm.clone(), pacing),
            pushes: GitPushesController::default(),
            setups: SetupsController::new(pacing),
            shared: SharedRepositoriesController::new(shared, left.shared),
            clusters: BTreeMap::new(),
            repositories: ClusterRepositoriesController::new(
                repositories,
                left.clusters.iter().map(|left| (left.cluster, left.wanted_by)).collect(),
            ),
            requests: Requests::new(configdb, seed, now),
            dirty: BTreeSet::new(),
            deadlines: Deadlines::default(),
            devices: ClusterDevices::default(),
            left: left.clusters,
            published_totals: totals.clone(),
            totals,
            turn: None,
            effects,
            settings,
        }
    }

    /// Metrics that the node is born with.
    #[must_use]
    pub fn node_metrics(&self) -> Vec<Metric> {
        self.published_totals.to_metrics()
    }

    /// What the node says of all clusters together.
    #[must_use]
    pub const fn totals(&self) -> &NodeMetrics {
        &self.totals
    }

    /// Everything about ConfigDB is known; what the manager shows is true.
    #[must_use]
    pub const fn is_ready(&self) -> bool {
        self.fleet.is_ready()
    }

    /// Takes one event. What follows from it is decided in the next turn, together with all that is known until then.
    pub fn on_event(&mut self, event: Event, now: Now) {
        self.turn = Some(now);
        match event {
            Event::Host(event) => self.on_host_event(&event, now),
            Event::Node(event) => self.on_node_event(&event, now),
            Event::Git(result) => {
                self.dirty.insert(result.cluster);
                // A start compares thousands of repositories, and hardly one of them changes: the disk is not asked once more.
                if !(result.is_as_before && self.copies.is_at(result.cluster, result.outcome.commit())) {
                    self.copies.set_closed(result.cluster, result.outcome == GitOutcome::Closed);
                }
                self.repositories.on_result(result, now);
            }
            Event::GitRequest(asked) => {
                let git_users::Outcome { answer, moved } =
                    self.git_users.on_asked(asked, &self.fleet, &self.shared, now);
                self.effects.push(answer);
                if let Some(moved) = moved {
                    self.on_push(moved);
                }
            }
            Event::Copy(CopyResult { repository, outcome }) => {
                self.effects.extend(self.copies.on_result(repository, outcome, now));
                self.on_found(repository);
            }
            Event::PushTaken(result) => {
                self.copies.changed(result.repository);
                self.effects.extend(self.pushes.on_result(&self.fleet, result));
            }
            Event::Principals(result) => {
                self.dirty.insert(result.cluster);
                self.principals.on_result(result, now);
            }
            Event::Shared(result) => self.on_shared_result(result, now),
            Event::LoginSealed(result) => {
                let cluster = result.cluster;
                self.logins.on_result(result);
                // Nothing else depends on it. A start seals the logins of thousands while it compares their repositories, and one message says both.
                if !self.repositories.is_under_way(cluster) {
                    self.effects.extend(self.devices.publish_login(cluster, self.logins.get(cluster)));
                }
            }
            Event::DeadlineReached => {
                self.requests.on_deadline(now);
                self.take_writer_outputs(now);
                while let Some(cluster) = self.deadlines.pop_due(now) {
                    self.dirty.insert(cluster);
                }
            }
        }
    }

    /// Brings everything a step forward that the events since the last turn were about.
    fn turn(&mut self, now: Now) {
        self.effects.extend(self.shared.reconcile(&self.fleet, now));
        self.run_controllers(now);
        let around = Repositories {
            clusters: &self.clusters,
            shared: &self.shared,
            git: &self.settings.cluster.git,
            charts_written: self.settings.charts_written,
        };
        self.effects.extend(self.copies.reconcile(&self.fleet, &around, now));
        self.publish_totals();
    }

    /// `Now::mono` at which [`Event::DeadlineReached`] has something to do.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Duration> {
        let cluster = self.deadlines.first();
        let shared = self.shared.next_deadline(&self.fleet);
        let own = [self.requests.next_deadline(), shared, self.copies.next_deadline()];
        cluster.into_iter().chain(own.into_iter().flatten()).min()
    }

    /// What is to be done, in order. Nothing of it rests on anything that would have to be stored first.
    pub fn poll_effects(&mut self) -> Vec<Effect> {
        if let Some(now) = self.turn.take() {
            self.turn(now);
        }
        std::mem::take(&mut self.effects)
    }

    fn on_host_event(&mut self, event: &HostEvent, now: Now) {
        match event {
            HostEvent::Online | HostEvent::Offline { .. } => self.dirty.extend(self.clusters.keys()),
            HostEvent::HostServed { .. } => self.effects.push(Effect::Node(NodeUpdate::Rebirth)),
            HostEvent::Rejected { topic, reason } => {
                tracing::debug!(topic, reason, "a message could not be used");
            }
            _ => {}
        }
        self.fleet.on_host_event(event, now);
        while let Some(change) = self.fleet.poll_change() {
            self.requests.on_change(&change, now);
            self.on_change(change);
        }
        self.take_writer_outputs(now);
        if self.fleet.on_identity_event(event) {
            self.dirty.extend(self.clusters.keys());
        }
        if let Some((change, has_moved)) = self.fleet.on_git_event(event) {
            self.on_git_change(&change, has_moved, now);
        }
        if let Some(node) = event.node() {
            match node.edge_node.as_str() {
                edge_sync_contract::names::EDGE_NODE_ID => {
                    let affected = self.fleet.on_sync_event(node, event, now);
                    self.on_affected(affected, now);
                }
                join_service_contract::names::EDGE_NODE_ID => {
                    let affected = self.fleet.on_join_event(node, event);
                    self.on_affected(affected, now);
                }
                krb_keys_contract::names::EDGE_NODE_ID => {
                    let affected = self.fleet.on_keys_event(node, event);
                    self.on_affected(affected, now);
                }
                _ => {}
            }
        }
    }

    /// The git server has said something: where it is, that a cluster has asked for a repository, how far a copy or a push is.
    fn on_git_change(&mut self, change: &ReplicaChange<GitDevice>, has_moved: bool, now: Now) {
        if let ReplicaChange::Device(GitDevice::Repository(repository)) = change
            && has_moved
        {
            // Clusters that follow it are sent the commit only now that they can fetch it.
            self.dirty.insert(*repository);
            self.mark_followers(*repository);
        }
        let url = self.fleet.git().node().map(|node| node.url.trim_end_matches('/')).unwrap_or_default();
        if !url.is_empty() && !self.settings.is_git_fixed && url != self.settings.cluster.git.own {
            let url = url.to_owned();
            self.set_git_url(url);
        }
        if let ReplicaChange::Device(GitDevice::Repository(repository)) = change
            && let Some(polled) = self.fleet.git().devices().repositories.get(repository).and_then(|copy| copy.polled)
        {
            let ago = Duration::from_millis(now.wall.saturating_sub(polled));
            self.repositories.polled(*repository, now.mono.saturating_sub(ago));
        }
        self.copies.on_git_change(&self.fleet, change);
        self.effects.extend(self.pushes.on_git_change(&self.fleet, change));
    }

    /// Clusters reach the git server there from now on: everything that names it is made again.
    fn set_git_url(&mut self, url: String) {
        tracing::info!(url, "the git server is there");
        self.totals.git_url.clone_from(&url);
        self.shared.set_git_url(url.clone());
        let git = &mut self.settings.cluster.git;
        git.own = url;
        self.settings.deployment.git.clone_from(git);
        self.deployments.set_git(git.clone());
        self.repositories.set_git(git.clone());
        self.on_template(catalog::Affected::Everything);
    }

    fn on_node_event(&mut self, event: &NodeEvent, now: Now) {
        let NodeEvent::Command { device: Some(device), metrics, .. } = event else { return };
        if let Some(repository) = repository::repository(device).filter(|_| names::is_pull(metrics)) {
            return self.shared.pull_now(repository, now);
        }
        let Some(uuid) = self.devices.cluster_of(device).filter(|_| names::is_retry(metrics)) else { return };
        if self.clusters.contains_key(&uuid) {
            tracing::info!(cluster_id = %uuid, "retry asked for");
            self.controllers().into_iter().for_each(|controller| controller.retry(uuid));
            self.dirty.insert(uuid);
        }
    }

    fn on_affected(&mut self, affected: Affected, now: Now) {
        affected.accounts.iter().for_each(|cluster| self.accounts.mark(*cluster));
        for cluster in affected.incomplete {
            self.deadlines.set_at_latest(cluster, now.mono + BIRTHS_PAUSE);
        }
        self.dirty.extend(affected.clusters);
    }

    /// Takes the site's own bootstrap script over; the node says which one is in use, and why.
    fn on_script(&mut self, json: Option<&str>) {
        let (result, effect) = self.bootstrap_grants.on_script(json);
        let script = if self.bootstrap_grants.is_site_script() { names::SCRIPT_SITE } else { names::SCRIPT_SHIPPED };
        self.totals.bootstrap_script = script.to_owned();
        self.totals.bootstrap_error = result.err().map(|error| format!("BootstrapScript: {error}"));
        self.effects.extend(effect);
    }

    /// A user has moved branch `main` of a repository.
    fn on_push(&mut self, moved: Moved) {
        self.copies.changed(moved.repository);
        self.on_moved(moved);
    }

    /// The disk has answered what a repository is. What was done before a push may be answered after it, so this decides which commit branch `main` is at.
    fn on_found(&mut self, repository: Uuid) {
        let Some((kind, found)) = self.copies.main(repository) else { return };
        let shared = kind == Kind::Shared;
        let known = if shared { self.shared.commit(repository) } else { self.repositories.commit(repository) };
        if known.is_some_and(|known| known != found) {
            let commit = Some(found.to_owned());
            self.on_moved(Moved { repository, shared, commit });
        }
    }

    fn on_moved(&mut self, Moved { repository, shared, commit }: Moved) {
        if shared {
            self.on_shared_commit(repository, commit);
        } else {
            self.repositories.moved(repository, commit);
            self.dirty.insert(repository);
        }
    }

    fn on_shared_result(&mut self, result: SharedResult, now: Now) {
        let repository = result.repository;
        self.copies.changed(repository);
        if self.shared.on_result(result, now) {
            self.mark_followers(repository);
        }
    }

    /// Branch `main` of a shared repository is at a commit.
    fn on_shared_commit(&mut self, repository: Uuid, main: Option<String>) {
        if self.shared.moved(repository, main) {
            self.mark_followers(repository);
        }
    }

    /// Clusters that follow a shared repository are sent its commit.
    fn mark_followers(&mut self, repository: Uuid) {
        if repository == known::repository::HELM_CHARTS {
            self.dirty.extend(self.clusters.keys());
        } else {
            self.dirty.extend(self.deployments.followers(repository));
            self.dirty.extend(self.repositories.dependents(repository));
        }
    }

    fn take_writer_outputs(&mut self, now: Now) {
        while let Some(output) = self.requests.poll() {
            match output {
                Output::Send(request) => self.effects.push(Effect::Host(request)),
                Output::Answered { id, refusal } => self.on_answer(&id, refusal, now),
            }
        }
    }

    fn on_answer(&mut self, id: &str, refusal: Option<String>, now: Now) {
        if let Some(cluster) = self.accounts.on_written(id, refusal.as_deref(), now) {
            self.dirty.insert(cluster);
            return;
        }
        let Some(uuid) = self.requests.cluster_of(id) else { return };
        self.setups.on_written(uuid, id, refusal, now);
        self.dirty.insert(uuid);
    }

    fn publish_totals(&mut self) {
        let git = self.fleet.git();
        // Before its first birth it may only not have been received yet.
        self.totals.git_alive = git.node().map(|_| git.is_alive());
        let version = git.node().map(|node| &node.version);
        if version != self.totals.git_version.as_ref() {
            self.totals.git_version = version.cloned();
        }
        let unknown = self.fleet.unknown();
        if !unknown.iter().take(UNKNOWN_MAX).eq(&self.totals.clusters_unknown) {
            let shown = unknown.iter().take(UNKNOWN_MAX).map(|(name, uuid)| (name.clone(), *uuid));
            self.totals.clusters_unknown = shown.collect();
        }
        self.totals.repositories_not_served = self.copies.problems().take(NOT_SERVED_MAX).collect();
        if self.totals != self.published_totals {
            let metrics = self.totals.changes_since(&self.published_totals);
            self.published_totals = self.totals.clone();
            self.effects.push(Effect::Node(NodeUpdate::Set { device: None, metrics }));
        }
    }

    /// Adds what a cluster contributes to the totals, or takes it away again.
    fn count(&mut self, cluster: &cluster::Share, add: bool) {
        let step = |total: &mut u32, by: u32| {
            *total = if add { total.saturating_add(by) } else { total.saturating_sub(by) };
        };
        let totals = &mut self.totals;
        step(&mut totals.clusters_total, 1);
        step(&mut totals.clusters_ready, u32::from(cluster.state == SetupState::Ready));
        step(&mut totals.clusters_refused, u32::from(cluster.state == SetupState::Refused));
        let deleting = matches!(cluster.state, SetupState::Deleting | SetupState::Waiting);
        step(&mut totals.clusters_deleting, u32::from(deleting));
        step(&mut totals.clusters_held, u32::from(cluster.held));
        step(&mut totals.deployments_total, cluster.deployments);
        step(&mut totals.deployments_refused, cluster.refused);
    }
}

/// What the state says of repositories of which the git server has copies.
struct Repositories<'a> {
    clusters: &'a BTreeMap<Uuid, Cluster>,
    shared: &'a SharedRepositoriesController,
    git: &'a GitAddress,
    charts_written: bool,
}

impl Surroundings for Repositories<'_> {
    fn is_wanted(&self, repository: Uuid) -> bool {
        self.clusters.contains_key(&repository) || self.shared.is_wanted(repository)
    }

    fn push_rules(&self, repository: Uuid, original: &Original) -> PushRules {
        let is_charts = repository == known::repository::HELM_CHARTS;
        let is_elsewhere = self.git.external.is_some() && (original.kind == Kind::Cluster || is_charts);
        let no_push = match () {
            () if is_elsewhere => Some(ELSEWHERE.to_owned()),
            () if is_charts && self.charts_written => Some(CHARTS_WRITTEN.to_owned()),
            () => None,
        };
        PushRules { pulled: self.shared.pulled_branches(repository), no_push }
    }
}

#[cfg(test)]
mod tests;
