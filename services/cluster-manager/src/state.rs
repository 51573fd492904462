//! The state of the cluster manager: replicas of ConfigDB and of every Sync, and per cluster what is under way.
//!
//! An event changes the replicas and marks the clusters that it concerns; then each marked cluster is evaluated alone: the set-up takes its next
//! step, the desired state is compared with the reported one, the Device is brought up to date. Nothing here must survive a restart: what is wanted and how far it is stands
//! in ConfigDB, what the edge has is reported by it.
//!
//! | module | knows |
//! |---|---|
//! | `accounts` | one cluster's Keys: the accounts that it wants, and the answers to it |
//! | `configdb` | ConfigDB's changes -> which clusters and deployments they concern |
//! | `cluster` | one cluster's set-up, status entry, Device and deadlines |
//! | `edge` | one cluster's Sync: what it reports, what is sent to it |
//! | `identity` | requests of clusters that enrol, the record of what was issued |
//! | `offer` | one cluster's bootstrap: to which tokens its script is offered |
//! | `join` | one cluster's Join: the attestation policy on its way to it |
//! | `line` | a bootstrap line that somebody asks for over HTTP |
//! | `people` | who asks over HTTP, and what they are told |
//! | `shared_repositories` | shared repositories: opened, pulled from elsewhere |
//! | `source` | one cluster's repositories: their commits on the way to Flux |
//! | `rollout` | waves: what of one cluster waits, and whom it holds up |
//! | `repeat` | a command that is sent until it is answered |

mod accounts;
mod cluster;
mod configdb;
mod edge;
mod identity;
mod join;
mod line;
mod offer;
mod people;
mod principals;
mod repeat;
mod rollout;
mod shared_repositories;
mod source;
mod token;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use cluster_manager_contract::{NodeMetrics, SetupState, names, repository};
use configdb_contract::{ConfigReplica, Writer, WriterConfig, WriterOutput, configdb_node};
use configdb_schema::Organisation;
use join_service_contract::JoinReplica;
use sparkplug::edge_node::{NodeEvent, NodeUpdate};
use sparkplug::host::{HostEvent, HostRequest};
use sparkplug::{DeviceId, Metric, Now, TypedMetrics};
use uuid::Uuid;

use crate::bootstrap::site::SiteScript;
use crate::catalog::Catalog;
use crate::event::{Effect, Event, GitOutcome, GitResult};
use crate::rollout::{Rollout, WholeRepository};
use crate::setup::Repository;
use crate::{cluster_repo, render};
use access::rate::{Limiter, Rate};
use accounts::AccountIndex;
use cluster::Cluster;
use configdb::Deployment;
use edge::Sync;
use identity::{Asking, Revocations};
use people::People;
use shared_repositories::SharedRepositories;

pub use identity::Identity;

/// What the state goes by.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Prefix of all groups.
    pub organisation: Organisation,
    /// Version of the program.
    pub version: String,
    /// How repositories of clusters are rendered.
    pub cluster: cluster_repo::Settings,
    /// How deployments are rendered.
    pub deployment: render::Settings,
    /// How long a Sync must be away before a tear-down no longer waits for it.
    pub away: Duration,
    /// How long neither Sync nor Flux of a cluster must be heard before no other repository waits for it.
    pub flux_away: Duration,
    /// How often one credential may ask over HTTP.
    pub rate: Rate,
    /// First and longest wait before something that failed or was not answered is tried again.
    pub retry: (Duration, Duration),
    /// What clusters are enrolled with; None: none is.
    pub identity: Option<Identity>,
    /// Realm of the site's KDC; None: it has none, or keeps principals by itself.
    pub realm: Option<String>,
    /// Commit that the repository of shared charts is at, hexadecimal; None: not known.
    pub charts_commit: Option<String>,
    /// Directories of that commit which hold a chart; None: what clusters follow may be another commit.
    pub charts: Option<BTreeSet<String>>,
    /// The manager brings that repository to a directory at each start: nobody else writes it.
    pub charts_written: bool,
}

/// An open repository that an earlier life of the manager left on the disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PersistedRepository {
    /// The cluster.
    pub cluster: Uuid,
    /// Name of the cluster.
    pub name: String,
    /// The ConfigDB that wanted it.
    pub store: Uuid,
}

/// What an earlier life of the manager left open on the disk.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PersistedRepositories {
    /// Repositories of clusters.
    pub clusters: Vec<PersistedRepository>,
    /// Shared ones, with the ConfigDB that wanted each.
    pub shared: Vec<(Uuid, Uuid)>,
}

/// How often the status entry of one cluster is written. Each is kept in the history.
const STATUSES: Rate = Rate { per_minute: 6, burst: 20 };
/// Clusters whose entries are counted; more than any organisation has.
const STATUSES_CLUSTERS_MAX: usize = 20_000;

/// The state.
#[derive(Debug)]
pub struct ClusterManager {
    settings: Settings,
    replica: ConfigReplica,
    /// Newest revision of an entry seen. It runs ahead of the replica's revision within a turn of ConfigDB, whose data come before its revision.
    newest_revision: u64,
    writer: Writer,
    /// The replica was complete once, with this store.
    known: bool,
    catalog: Catalog,
    clusters: BTreeMap<Uuid, Cluster>,
    /// Deployments by cluster, also of clusters that do not exist.
    deployments: BTreeMap<Uuid, BTreeMap<Uuid, Deployment>>,
    /// On which cluster a deployment is.
    placed: BTreeMap<Uuid, Uuid>,
    /// Deployments whose entry does not say on which cluster they are, and why.
    unattributed: BTreeMap<Uuid, String>,
    /// Who is rendered from an object: cluster, and deployment or the cluster's repository.
    dependents: BTreeMap<Uuid, BTreeSet<(Uuid, Option<Uuid>)>>,
    /// Clusters that are or want to be called so.
    claims: BTreeMap<String, BTreeSet<Uuid>>,
    /// Cluster of an account.
    accounts: BTreeMap<Uuid, Uuid>,
    /// Accounts of principals of all clusters.
    edge_accounts: AccountIndex,
    /// Every Sync that was heard, by the name of its cluster.
    syncs: BTreeMap<String, Sync>,
    /// Every Join node that was heard, by the name of its cluster.
    joins: BTreeMap<String, JoinReplica>,
    /// Clusters that ask to be enrolled.
    asking: BTreeMap<Uuid, Asking>,
    revocations: Revocations,
    /// Which deployments a changed chart template may reach.
    rollout: Rollout<Uuid>,
    /// Which clusters' own repositories a changed template may reach.
    repositories: Rollout<WholeRepository>,
    /// Cluster that waits for the answer to a request.
    requests: BTreeMap<String, Uuid>,
    /// Clusters to be evaluated in this turn.
    dirty: BTreeSet<Uuid>,
    /// Deadlines of clusters, in order.
    deadlines: BTreeSet<(Duration, Uuid)>,
    /// Whose Device it is.
    device_ids: BTreeMap<DeviceId, Uuid>,
    /// How often the status entry of a cluster is written: what it says comes from the cluster.
    statuses: Limiter<Uuid>,
    left: Vec<PersistedRepository>,
    shared: SharedRepositories,
    /// The site's own bootstrap script.
    script: Option<Arc<SiteScript>>,
    people: People,
    totals: NodeMetrics,
    told: NodeMetrics,
    /// The Host Application's session is up since then.
    online_since: Option<Duration>,
    /// Makes ids of requests differ between two lives.
    life: String,
    requests_made: u64,
    seed: u64,
    effects: Vec<Effect>,
}

impl ClusterManager {
    /// A manager that knows nothing yet. `left` is what is open on the disk; `seed` is random.
    #[must_use]
    pub fn new(settings: Settings, left: PersistedRepositories, seed: u64, now: Now) -> Self {
        let configdb = configdb_node(&settings.organisation);
        let totals = NodeMetrics {
            version: settings.version.clone(),
            git_url: settings.cluster.git.own.clone(),
            bootstrap_script: names::SCRIPT_SHIPPED.to_owned(),
            ..NodeMetrics::default()
        };
        let mut effects = Vec::new();
        effects.push(Effect::Host(HostRequest::Expect { node: configdb.clone() }));
        Self {
            replica: ConfigReplica::new(configdb.clone()),
            newest_revision: 0,
            writer: Writer::new(WriterConfig::new(configdb), seed),
            known: false,
            catalog: Catalog::default(),
            clusters: BTreeMap::new(),
            deployments: BTreeMap::new(),
            placed: BTreeMap::new(),
            unattributed: BTreeMap::new(),
            dependents: BTreeMap::new(),
            claims: BTreeMap::new(),
            accounts: BTreeMap::new(),
            edge_accounts: AccountIndex::default(),
            syncs: BTreeMap::new(),
            joins: BTreeMap::new(),
            asking: BTreeMap::new(),
            revocations: Revocations::default(),
            rollout: Rollout::default(),
            repositories: Rollout::default(),
            requests: BTreeMap::new(),
            dirty: BTreeSet::new(),
            deadlines: BTreeSet::new(),
            device_ids: BTreeMap::new(),
            statuses: Limiter::new(STATUSES, STATUSES_CLUSTERS_MAX),
            shared: SharedRepositories::new(left.shared, &settings, seed),
            left: left.clusters,
            script: None,
            people: People::new(settings.rate),
            told: totals.clone(),
            totals,
            online_since: None,
            life: format!("cluster-manager-{}-{seed:016x}", now.wall),
            requests_made: 0,
            seed,
            effects,
            settings,
        }
    }

    /// Metrics that the node is born with.
    #[must_use]
    pub fn node_metrics(&self) -> Vec<Metric> {
        self.told.to_metrics()
    }

    /// What the node says of all clusters together.
    #[must_use]
    pub const fn totals(&self) -> &NodeMetrics {
        &self.totals
    }

    /// Everything about ConfigDB is known; what the manager shows is true.
    #[must_use]
    pub const fn is_ready(&self) -> bool {
        self.known && self.replica.is_complete()
    }

    /// Takes one event.
    pub fn on_event(&mut self, event: Event, now: Now) {
        match event {
            Event::Host(event) => self.on_host_event(&event, now),
            Event::Node(event) => self.on_node_event(&event, now),
            Event::Git(result) => self.on_git_result(result, now),
            Event::Asked(asked) => self.on_asked(asked, now),
            Event::Secret(result) => self.on_secret_result(result, now),
            Event::Polled(cluster) => {
                if let Some(cluster) = self.clusters.get_mut(&cluster) {
                    cluster.git.polled_at = Some(now.mono);
                }
            }
            Event::Principals(result) => self.on_principals_result(result, now),
            Event::Shared(result) => self.on_shared_result(result, now),
            Event::DeadlineReached => {
                self.writer.handle_timeout(now);
                self.take_writer_outputs(now);
                while let Some(&(deadline, cluster)) = self.deadlines.first().filter(|(at, _)| *at <= now.mono) {
                    self.deadlines.remove(&(deadline, cluster));
                    self.dirty.insert(cluster);
                }
            }
        }
        self.evaluate_shared(now);
        self.evaluate_marked(now);
        self.tell_revocations(now);
        self.tell_totals();
    }

    /// `Now::mono` at which [`Event::DeadlineReached`] has something to do.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Duration> {
        let cluster = self.deadlines.first().map(|(at, _)| *at);
        let own = [self.writer.next_deadline(), self.revocations.due, self.shared_deadline()];
        cluster.into_iter().chain(own.into_iter().flatten()).min()
    }

    /// What is to be done, in order. Nothing of it rests on anything that would have to be stored first.
    pub fn poll_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    fn on_host_event(&mut self, event: &HostEvent, now: Now) {
        match event {
            HostEvent::Online => {
                self.online_since = Some(now.mono);
                self.dirty.extend(self.clusters.keys());
            }
            HostEvent::Offline { .. } => {
                self.online_since = None;
                for sync in self.syncs.values_mut() {
                    sync.on_event(event, now);
                }
                for join in self.joins.values_mut() {
                    join.on_event(event);
                }
                self.lose_keys(event);
                self.dirty.extend(self.clusters.keys());
            }
            HostEvent::HostServed { .. } => self.effects.push(Effect::Node(NodeUpdate::Rebirth)),
            HostEvent::Rejected { topic, reason } => {
                tracing::debug!(topic, reason, "a message could not be used");
            }
            _ => {}
        }
        self.replica.on_event(event);
        while let Some(change) = self.replica.poll_change() {
            self.writer.on_change(&change, now);
            self.on_change(change, now);
            self.answer_tokens(now);
        }
        self.take_writer_outputs(now);
        if let Some(node) = event.node() {
            match node.edge_node.as_str() {
                edge_sync_contract::names::EDGE_NODE_ID => self.on_sync_event(node, event, now),
                join_service_contract::names::EDGE_NODE_ID => self.on_join_event(node, event),
                krb_keys_contract::names::EDGE_NODE_ID => self.on_keys_event(node, event),
                enrolment_protocol::metrics::RENEWAL_NODE => self.on_renewal_event(node, event),
                _ => {
                    if let Some(uuid) = enrolment_protocol::metrics::cluster_of(&self.settings.organisation, node) {
                        self.on_enrol_event(uuid, node, event);
                    }
                }
            }
        }
    }

    fn on_node_event(&mut self, event: &NodeEvent, now: Now) {
        let NodeEvent::Command { device: Some(device), metrics, .. } = event else { return };
        if let Some(repository) = repository::repository(device).filter(|_| names::is_pull(metrics)) {
            return self.pull_now(repository, now);
        }
        let Some(uuid) = self.device_ids.get(device).copied().filter(|_| names::is_retry(metrics)) else { return };
        if let Some(cluster) = self.clusters.get_mut(&uuid) {
            tracing::info!(cluster_id = %uuid, "retry asked for");
            cluster.retry();
            self.dirty.insert(uuid);
        }
    }

    fn on_git_result(&mut self, result: GitResult, now: Now) {
        let Some(cluster) = self.clusters.get_mut(&result.cluster) else { return };
        let asked = cluster.git.under_way.take();
        match result.outcome {
            GitOutcome::Written { commit } => {
                cluster.git.wait.succeeded();
                cluster.git.written = asked.flatten();
                cluster.git.state = Repository::Written;
                cluster.git.set_commit(commit);
            }
            GitOutcome::Held { commit } => {
                cluster.git.wait.succeeded();
                cluster.git.written = asked.flatten();
                cluster.git.state = Repository::Held;
                cluster.git.set_commit(commit);
            }
            GitOutcome::Closed => {
                cluster.git.wait.succeeded();
                cluster.git.written = None;
                cluster.git.state = Repository::Closed;
                cluster.git.commit = None;
            }
            GitOutcome::Failed { reason } => {
                tracing::warn!(cluster_id = %result.cluster, error = reason, "work on a repository failed");
                cluster.git.state = Repository::Failed(reason.clone());
                cluster.git.wait.failed(reason, now);
            }
        }
        self.dirty.insert(result.cluster);
    }

    fn take_writer_outputs(&mut self, now: Now) {
        while let Some(output) = self.writer.poll_output() {
            match output {
                WriterOutput::Send(request) => self.effects.push(Effect::Host(request)),
                WriterOutput::Answered(result) => {
                    let refusal = (!result.is_applied()).then(|| {
                        let reason = result.reason.unwrap_or_else(|| "no reason given".to_owned());
                        match result.field {
                            Some(field) => format!("ConfigDB refused {field}: {reason}"),
                            None => format!("ConfigDB refused a step: {reason}"),
                        }
                    });
                    self.on_answer(&result.id, refusal, now);
                }
                WriterOutput::GaveUp { id, attempts, .. } => {
                    self.on_answer(&id, Some(format!("ConfigDB did not answer {attempts} requests")), now);
                }
            }
        }
    }

    fn on_answer(&mut self, id: &str, refusal: Option<String>, now: Now) {
        if self.on_token_written(id, refusal.as_deref(), now) {
            return;
        }
        if refusal.as_deref().is_some_and(|reason| self.on_token_entry_refused(id, reason, now)) {
            return;
        }
        if self.on_account_written(id, refusal.as_deref(), now) {
            return;
        }
        let Some(uuid) = self.requests.remove(id) else { return };
        let Some(cluster) = self.clusters.get_mut(&uuid) else { return };
        cluster.requests.remove(id);
        match refusal {
            None => cluster.writes.succeeded(),
            Some(reason) => {
                tracing::warn!(cluster_id = %uuid, error = reason, "a step was refused");
                cluster.writes.failed(reason, now);
            }
        }
        self.dirty.insert(uuid);
    }

    fn evaluate_marked(&mut self, now: Now) {
        // Without knowing everything nothing may be concluded.
        if !self.known {
            self.dirty.clear();
            return;
        }
        while let Some(uuid) = self.dirty.pop_first() {
            self.evaluate(uuid, now);
        }
    }

    fn tell_totals(&mut self) {
        if self.totals != self.told {
            self.told = self.totals.clone();
            let metrics = self.told.to_metrics();
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

#[cfg(test)]
mod tests;
