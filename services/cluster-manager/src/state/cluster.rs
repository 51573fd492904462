//! One cluster: what is under way for it, and its evaluation. Everything here costs work for this cluster only.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use cluster_manager_contract::{
    BootstrapReport, ClusterDevice, DesiredState, JoinReport, RefusedDeployments, RolloutReport, Setup, SetupState,
    names,
};
use configdb_contract::WriteRequest;
use configdb_schema::document::{
    EdgeCluster, EdgeClusterRecovery, EdgeClusterSetup, EdgeClusterStatus, GitConfig, GitRef, Info, SparkplugAddress,
};
use configdb_schema::{ClusterName, Document, known};
use service_runtime::backoff::Backoff;
use sparkplug::edge_node::NodeUpdate;
use sparkplug::host::HostRequest;
use sparkplug::{DeviceId, EdgeNodeDescriptor, Now, TypedMetrics};
use uuid::Uuid;

use super::ClusterManager;
use super::accounts::{self, AccountsState};
use super::edge::{self, EdgeState};
use super::identity::IdentityEntries;
use super::join::{self, PolicyForwarding};
use super::principals::Known;
use super::rollout::{Evaluated, RolloutStatus};
use super::source::SourceForwarding;
use crate::bootstrap::BootstrapGrant;
use crate::cluster_repo::{self, ClusterRepo};
use crate::event::{Effect, GitAction, GitWork};
use crate::setup::{self, Account, AccountObject, Action, Decision, Facts, Principals, Repository, WantedRepository};
use crate::shared_repository::HELM_PATH;
use crate::status;

/// Waits after a failure, longer each time.
#[derive(Debug, Clone)]
pub struct Wait {
    backoff: Backoff,
    until: Option<Duration>,
    reason: Option<String>,
}

impl Wait {
    /// No failure yet.
    pub fn new((first, longest): (Duration, Duration), seed: u64) -> Self {
        Self { backoff: Backoff::new(first, longest, seed), until: None, reason: None }
    }

    /// It worked.
    pub fn succeeded(&mut self) {
        self.until = None;
        self.reason = None;
        self.backoff.reset();
    }

    /// It did not work.
    pub fn failed(&mut self, reason: String, now: Now) {
        self.until = Some(now.mono + self.backoff.next_delay());
        self.reason = Some(reason);
    }

    /// Something changed: the next try need not wait.
    pub fn forgive(&mut self) {
        self.until = None;
    }

    /// Until when something is waited for.
    pub const fn until(&self) -> Option<Duration> {
        self.until
    }

    /// Why it did not work last.
    pub fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }

    /// Nothing is waited for.
    pub fn is_over(&self, now: Now) -> bool {
        self.until.is_none_or(|until| until <= now.mono)
    }
}

/// The repository of a cluster.
#[derive(Debug, Clone)]
pub struct Git {
    /// As the disk answered last.
    pub state: Repository,
    /// Work under way; the inner value is what is being written.
    pub under_way: Option<Option<Arc<ClusterRepo>>>,
    /// What was written last, or compared with what is there.
    pub written: Option<Arc<ClusterRepo>>,
    /// Commit of branch `main`.
    pub commit: Option<String>,
    /// Another commit that the branch was looked at for, or was at before.
    pub looked_for: Option<String>,
    /// `Now::mono` at which the cluster's Flux asked for a repository.
    pub polled_at: Option<Duration>,
    /// Waiting after a failure.
    pub wait: Wait,
}

impl Git {
    /// What is there is compared with what shall be once more.
    pub fn look_again(&mut self) {
        self.written = None;
    }

    /// The branch is at this commit.
    pub fn set_commit(&mut self, commit: String) {
        if self.commit.as_ref() != Some(&commit) {
            self.looked_for = self.commit.replace(commit);
        }
    }
}

/// What a cluster contributes to the totals of the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Share {
    /// Its state.
    pub state: SetupState,
    /// Its deployments.
    pub deployments: u32,
    /// Of them refused.
    pub refused: u32,
    /// It holds what it is sent.
    pub held: bool,
}

/// What was rendered, and from what.
#[derive(Debug, Clone)]
pub struct RenderedRepo {
    spec: EdgeCluster,
    repo: Result<Arc<ClusterRepo>, String>,
}

/// One cluster.
#[derive(Debug, Clone)]
pub struct Cluster {
    /// Names that it has or wants.
    pub claims: BTreeSet<String>,
    /// Record of a cluster whose object is gone.
    pub orphan: Option<EdgeClusterSetup>,
    /// Requests to ConfigDB without an answer.
    pub requests: BTreeSet<String>,
    /// Waiting after a refused request.
    pub writes: Wait,
    /// When its status entry, which was written too often, may be written again.
    status_at: Option<Duration>,
    /// Its repository.
    pub git: Git,
    /// Its principals in the KDC.
    pub principals: Known,
    /// What its repository shall hold, until a template changes.
    pub rendered: Option<RenderedRepo>,
    /// Objects that its repository is rendered from.
    pub rendered_from: BTreeSet<Uuid>,
    /// Its Sync, if that was asked to be born.
    pub expecting: Option<EdgeNodeDescriptor>,
    /// Its Join node, if that was asked to be born.
    pub expecting_join: Option<EdgeNodeDescriptor>,
    /// The accounts of its principals.
    pub accounts: AccountsState,
    /// Its desired state.
    pub edge: EdgeState,
    /// Its attestation policy.
    pub policy: PolicyForwarding,
    /// Where it stays in git repositories.
    pub pins: BTreeMap<Uuid, GitRef>,
    /// The commits of its repositories on the way to its Flux.
    pub source: SourceForwarding,
    /// Its repository's part in staged rollouts.
    pub settling: RolloutStatus,
    /// What it contributes to the totals.
    pub share: Option<Share>,
    /// Its bootstrap, as it was offered last.
    pub offer: Option<BootstrapGrant>,
    device: Option<ClusterDevice>,
    /// Id of that Device.
    pub device_id: Option<DeviceId>,
    deadline: Option<Duration>,
}

impl Cluster {
    /// A cluster of which nothing is known yet.
    pub fn new(retry: (Duration, Duration), seed: u64) -> Self {
        Self {
            claims: BTreeSet::new(),
            orphan: None,
            requests: BTreeSet::new(),
            writes: Wait::new(retry, seed),
            status_at: None,
            git: Git {
                state: Repository::Behind,
                under_way: None,
                written: None,
                commit: None,
                looked_for: None,
                polled_at: None,
                wait: Wait::new(retry, seed.rotate_left(17)),
            },
            principals: Known {
                state: Principals::Behind,
                under_way: false,
                wait: Wait::new(retry, seed.rotate_left(29)),
            },
            rendered: None,
            rendered_from: BTreeSet::new(),
            expecting: None,
            expecting_join: None,
            accounts: AccountsState::new(retry, seed.rotate_left(43)),
            edge: EdgeState::new(retry, seed.rotate_left(34)),
            policy: PolicyForwarding::new(retry, seed.rotate_left(51)),
            pins: BTreeMap::new(),
            source: SourceForwarding::new(retry, seed.rotate_left(9)),
            settling: RolloutStatus::default(),
            share: None,
            offer: None,
            device: None,
            device_id: None,
            deadline: None,
        }
    }

    /// Keeps what the outside was told by an earlier copy of the same cluster.
    pub fn take_over(&mut self, before: Self) {
        self.device = before.device;
        self.device_id = before.device_id;
        self.expecting = before.expecting;
        self.expecting_join = before.expecting_join;
        self.accounts.expecting = before.accounts.expecting;
        self.policy = before.policy;
        self.git.under_way = before.git.under_way;
        self.principals.under_way = before.principals.under_way;
        self.edge.assigned = before.edge.assigned;
    }

    /// Nothing is being written, and no failure is waited for.
    pub fn may_write(&self, now: Now) -> bool {
        self.requests.is_empty() && self.writes.is_over(now)
    }

    /// An operator wants everything tried again.
    pub fn retry(&mut self) {
        self.writes.forgive();
        self.git.wait.forgive();
        self.principals.wait.forgive();
        self.git.look_again();
        self.edge.retry();
        self.policy.retry();
        self.accounts.retry();
    }

    /// As the outside was told last.
    pub const fn device(&self) -> Option<&ClusterDevice> {
        self.device.as_ref()
    }

    /// Every node that was asked to be born.
    pub fn expected(self) -> impl Iterator<Item = EdgeNodeDescriptor> {
        self.expecting.into_iter().chain(self.expecting_join).chain(self.accounts.expecting)
    }
}

/// What an evaluation has come to.
struct Published {
    state: SetupState,
    decision: Decision,
    desired: (DesiredState, RefusedDeployments),
    join: JoinReport,
    bootstrap: BootstrapReport,
}

/// What an evaluation has read of ConfigDB.
pub(super) struct Read {
    pub(super) config: Option<Result<EdgeCluster, String>>,
    record: Option<Result<EdgeClusterSetup, String>>,
    pub(super) status: Option<EdgeClusterStatus>,
    identity: IdentityEntries,
}

impl Read {
    /// The name that the cluster goes by: as it is set up, or else as configured.
    fn spec(&self) -> Option<&EdgeCluster> {
        self.recorded().and_then(|record| record.spec.as_ref()).or_else(|| self.config.as_ref()?.as_ref().ok())
    }

    pub(super) fn recorded(&self) -> Option<&EdgeClusterSetup> {
        self.record.as_ref()?.as_ref().ok()
    }
}

impl ClusterManager {
    /// Brings one cluster a step forward.
    pub(super) fn evaluate(&mut self, uuid: Uuid, now: Now) {
        if !self.clusters.contains_key(&uuid) {
            return;
        }
        let read = self.read(uuid);
        let name = read.recorded().and_then(|record| record.spec.as_ref()).map(|spec| spec.name.clone());
        for account in Account::ALL {
            self.accounts.insert(account.uuid(uuid, read.recorded()), uuid);
        }
        self.render_repository(uuid, &read);
        if let Some(name) = &name {
            self.give_up(name, now);
        }
        let blocker = self.repository_blocker(uuid, &read);
        let repository = self.repository(uuid, blocker.is_some(), now);
        let facts = Facts { repository: repository.clone(), ..self.facts(uuid, &read, name.as_deref(), now) };
        let decision = setup::decide(&facts);
        let Some(state) = decision.state else {
            self.remove(uuid);
            return self.answer_lines(uuid, false, now);
        };
        let published = read.recorded().is_some_and(|record| record.self_link.is_some());
        self.expect(uuid, name.as_deref().filter(|_| published));
        let deleting = matches!(state, SetupState::Deleting | SetupState::Waiting);
        // A tear-down first makes the certificates void; otherwise only a cluster that is set up has any.
        let recording = self.replica.is_complete() && (deleting || state == SetupState::Ready) && {
            let group = name.as_ref().map(|name| format!("{}-{name}", self.settings.organisation));
            group.is_some_and(|group| self.serve_identity(uuid, &read.identity, &group, deleting, now))
        };
        if self.replica.is_complete() && !recording {
            self.act(uuid, &decision, &read, (name.as_deref(), blocker.is_some()), now);
        }
        self.serve_accounts(uuid, name.as_deref().filter(|_| published && !deleting), now);
        let desired = match &name {
            Some(name) => self.reconcile(uuid, name, deleting, now),
            None => self.without_edge(uuid),
        };
        if let Some(name) = name.as_ref().filter(|_| !deleting) {
            self.forward_source(uuid, name, now);
        }
        let settling = Evaluated { repository, reason: decision.reason.as_deref(), blocker };
        self.settle_repository(uuid, name.as_deref().filter(|_| !deleting), &read, settling, now);
        let join = name.as_ref().map(|name| self.forward_policy(uuid, name, deleting, now)).unwrap_or_default();
        let is_ready = state == SetupState::Ready;
        let bootstrap = self.offer(uuid, read.recorded().filter(|_| is_ready), &read.identity);
        self.answer_lines(uuid, is_ready, now);
        let told = Published { state, decision, desired, join, bootstrap };
        self.tell(uuid, &read, told, now);
        self.set_deadline(uuid, name.as_deref(), deleting, now);
    }

    fn read(&mut self, uuid: Uuid) -> Read {
        let replica = &self.replica;
        let text = |error: configdb_contract::EntryError| error.to_string();
        let config = replica.entry(uuid, EdgeCluster::slug()).map(|entry| entry.parse().map_err(text));
        let record = replica.entry(uuid, EdgeClusterSetup::slug()).map(|entry| entry.parse().map_err(text));
        let status = replica.document(uuid).ok().flatten();
        let recovery = replica.document::<EdgeClusterRecovery>(uuid).ok().flatten();
        // Its object was missing because the store came back older. It has its entry again, and its edge was released to this store.
        let is_recovered = config.is_some() && recovery.is_some_and(|recovery| Some(recovery.store) == replica.store());
        let identity = self.identity_entries(uuid);
        let cluster = self.clusters.get_mut(&uuid);
        let record = match (record, cluster) {
            (Some(record), Some(cluster)) => {
                cluster.orphan = None;
                Some(record)
            }
            (None, Some(cluster)) if is_recovered => {
                cluster.orphan = None;
                None
            }
            (record, cluster) => record.or_else(|| cluster?.orphan.clone().map(Ok)),
        };
        Read { config, record, status, identity }
    }

    fn facts<'a>(&'a self, uuid: Uuid, read: &Read, name: Option<&str>, now: Now) -> Facts<'a> {
        let replica = &self.replica;
        let cluster = &self.clusters[&uuid];
        let object = replica.object(uuid);
        let record = read.recorded();
        let account = |account: Account| {
            let uuid = account.uuid(uuid, record);
            let object = replica.object(uuid)?;
            let name = replica.document::<Info>(uuid).ok().flatten().map(|info| info.name);
            Some(AccountObject { is_account: object.is_member_of(known::class::EDGE_SERVICE_ACCOUNT), name })
        };
        let configured = read.config.as_ref().and_then(|config| config.as_ref().ok());
        let rendered = cluster.rendered.as_ref().map(|rendered| match &rendered.repo {
            Ok(repo) => Ok(WantedRepository { self_link: repo.self_link.clone() }),
            Err(reason) => Err(reason.clone()),
        });
        Facts {
            cluster: uuid,
            organisation: &self.settings.organisation,
            object_exists: object.is_some(),
            config: read.config.clone(),
            record: read.record.clone(),
            record_etag: replica.entry(uuid, EdgeClusterSetup::slug()).map(|entry| entry.etag),
            address: replica.document::<SparkplugAddress>(uuid).ok().flatten(),
            git_config: replica.document::<GitConfig>(uuid).ok().flatten(),
            member_of: object.map(|object| object.membership.member_of.clone()).unwrap_or_default(),
            has_status: replica.entry(uuid, EdgeClusterStatus::slug()).is_some(),
            accounts: Account::ALL.map(account),
            account_removals: self.account_removals(uuid),
            name_taken_by: configured.and_then(|config| self.name_taken_by(uuid, &config.name)),
            pins: &cluster.pins,
            wanted: rendered,
            repository: Repository::Behind,
            principals: self.principals(uuid, now),
            edge: self.edge_left(uuid, name, now),
        }
    }

    fn repository(&self, uuid: Uuid, must_wait: bool, now: Now) -> Repository {
        let cluster = &self.clusters[&uuid];
        let wanted = cluster.rendered.as_ref().and_then(|rendered| rendered.repo.as_ref().ok());
        match &cluster.git.state {
            Repository::Failed(_) if cluster.git.wait.is_over(now) => Repository::Behind,
            Repository::Written | Repository::Held if cluster.git.written.as_ref() != wanted => Repository::Behind,
            Repository::Held if !must_wait => Repository::Behind,
            other => other.clone(),
        }
    }

    /// Renders what the repository shall hold, unless that is known.
    fn render_repository(&mut self, uuid: Uuid, read: &Read) {
        let Some(Ok(config)) = &read.config else { return };
        let cluster = &self.clusters[&uuid];
        if cluster.rendered.as_ref().is_some_and(|rendered| rendered.spec == *config) {
            return;
        }
        let repo = cluster_repo::render(uuid, config, &self.catalog, &self.settings.cluster, &cluster.pins);
        let repo = repo.map(Arc::new).map_err(|error| error.to_string());
        let chart = cluster_repo::chart(config, &self.catalog);
        let source = self.catalog.chart(chart).ok().and_then(|template| template.source);
        let after: BTreeSet<Uuid> = source.into_iter().chain([chart]).collect();
        let before = self.clusters[&uuid].rendered_from.clone();
        self.set_dependencies((uuid, None), &before, &after);
        if let Some(cluster) = self.clusters.get_mut(&uuid) {
            cluster.rendered_from = after;
            cluster.rendered = Some(RenderedRepo { spec: config.clone(), repo });
        }
    }

    /// Sees that the Sync of a cluster is asked for its birth as long as the cluster may have one, and its Join node as long as there is a policy to bring to it.
    fn expect(&mut self, uuid: Uuid, name: Option<&str>) {
        let name = name.and_then(|name| ClusterName::new(name).ok());
        let sync = name.as_ref().and_then(|name| edge::sync_node(&self.settings.organisation, name));
        let join = name.as_ref().filter(|_| self.has_policy(uuid));
        let join = join.and_then(|name| join::node(&self.settings.organisation, name));
        let keys = self.expected_keys(uuid, name.as_ref().map(ClusterName::as_str));
        let Some(cluster) = self.clusters.get_mut(&uuid) else { return };
        let mut forgotten = Vec::new();
        let Cluster { expecting, expecting_join, accounts, .. } = cluster;
        for (expecting, node) in [(expecting, sync), (expecting_join, join), (&mut accounts.expecting, keys)] {
            if *expecting == node {
                continue;
            }
            if let Some(node) = std::mem::replace(expecting, node.clone()) {
                forgotten.push(node);
            }
            if let Some(node) = node {
                self.effects.push(Effect::Host(HostRequest::Expect { node }));
            }
        }
        forgotten.into_iter().for_each(|node| self.forget(node));
    }

    /// A node is not asked for its birth any more. The death of a Sync may go unheard from here on, so what is known of it is dropped.
    pub(super) fn forget(&mut self, node: EdgeNodeDescriptor) {
        let name = self.settings.organisation.cluster_of_group(node.group.as_str()).map(String::from);
        // A Join without a policy is not waited for, but goes on being told that there is none.
        if let Some(name) = name.filter(|_| node.edge_node.as_str() == edge_sync_contract::names::EDGE_NODE_ID) {
            self.syncs.remove(&name);
        }
        self.effects.push(Effect::Host(HostRequest::Forget { node }));
    }

    /// Carries out the next step, or else brings the status entry up to date. One thing at a time.
    fn act(&mut self, uuid: Uuid, decision: &Decision, read: &Read, (name, must_wait): (Option<&str>, bool), now: Now) {
        let cluster = &self.clusters[&uuid];
        // What is still being written for accounts must not outlive the cluster.
        let is_ending = matches!(decision.state, Some(SetupState::Deleting | SetupState::Waiting));
        if !cluster.requests.is_empty() || is_ending && cluster.accounts.is_writing() {
            return;
        }
        match &decision.action {
            Some(Action::Write(_)) if !cluster.writes.is_over(now) => {}
            Some(Action::Write(writes)) => self.submit(uuid, writes.clone(), now),
            Some(Action::WriteRepository) => self.write_repository(uuid, must_wait, now),
            Some(Action::CloseRepository) => self.git_work(uuid, None, GitAction::Close),
            Some(Action::AllowPrincipals(allowed)) => {
                let recorded = read.recorded().and_then(|record| record.spec.as_ref()).map(|spec| spec.name.clone());
                self.allow_principals(uuid, recorded.as_deref(), *allowed);
            }
            None if !cluster.writes.is_over(now) => {}
            None => self.report_status(uuid, decision, read, name, now),
        }
    }

    fn write_repository(&mut self, uuid: Uuid, hold: bool, now: Now) {
        let cluster = &self.clusters[&uuid];
        let rendered = cluster.rendered.as_ref().filter(|_| cluster.git.wait.is_over(now));
        let (Some(RenderedRepo { spec, repo: Ok(repo) }), Some(store)) = (rendered, self.replica.store()) else {
            return;
        };
        let (path, repo) = (cluster_repo::path(&spec.name), Arc::clone(repo));
        let files = repo.files.clone();
        self.git_work(uuid, Some(repo), GitAction::Write { path, store, files, hold });
    }

    fn git_work(&mut self, uuid: Uuid, repo: Option<Arc<ClusterRepo>>, action: GitAction) {
        let Some(cluster) = self.clusters.get_mut(&uuid).filter(|cluster| cluster.git.under_way.is_none()) else {
            return;
        };
        cluster.git.under_way = Some(repo);
        self.effects.push(Effect::Git(GitWork { cluster: uuid, action }));
    }

    fn report_status(&mut self, uuid: Uuid, decision: &Decision, read: &Read, name: Option<&str>, now: Now) {
        let deleting = matches!(decision.state, Some(SetupState::Deleting | SetupState::Waiting) | None);
        let Some(sync) = name.filter(|_| !deleting).and_then(|name| self.sync_of(uuid, name)) else { return };
        let Some(status) = status::render(&sync.replica, read.status.as_ref()) else { return };
        if read.status.as_ref() == Some(&status) {
            return;
        }
        let waits = self.statuses.take(uuid, now.mono).err().map(|too_often| now.mono + too_often.wait);
        let Some(cluster) = self.clusters.get_mut(&uuid) else { return };
        cluster.status_at = waits;
        if waits.is_some() {
            return;
        }
        match WriteRequest::put("", uuid).document(&status) {
            Ok(write) => self.submit(uuid, vec![write], now),
            Err(error) => tracing::warn!(cluster_id = %uuid, error = %error, "status has no JSON form"),
        }
    }

    /// Id of a request to ConfigDB that no other one has.
    pub(super) fn next_request(&mut self) -> String {
        self.requests_made += 1;
        format!("{}-{}", self.life, self.requests_made)
    }

    pub(super) fn submit(&mut self, uuid: Uuid, writes: Vec<WriteRequest>, now: Now) {
        for write in writes {
            let id = self.next_request();
            let write = WriteRequest { id: id.clone(), ..write }.by(cluster_manager_contract::names::SERVICE);
            let submitted = self.writer.submit(write, now);
            let Some(cluster) = self.clusters.get_mut(&uuid) else { return };
            match submitted {
                Ok(()) => {
                    cluster.requests.insert(id.clone());
                    self.requests.insert(id, uuid);
                }
                Err(error) => cluster.writes.failed(error.to_string(), now),
            }
        }
        self.take_writer_outputs(now);
    }

    /// What keeps Flux from installing the edge's own services, as far as it is to be seen from here: their chart is not where it is taken from. None: it is, or that is not known.
    fn missing_chart(&self, uuid: Uuid, read: &Read) -> Option<String> {
        let helm = known::repository::HELM_CHARTS;
        let charts = self.settings.charts.as_ref()?;
        if self.shared.commit(helm) != self.settings.charts_commit.as_deref()
            || self.clusters[&uuid].pins.contains_key(&helm)
        {
            return None;
        }
        let config = read.config.as_ref()?.as_ref().ok()?;
        let template = self.catalog.chart(cluster_repo::chart(config, &self.catalog)).ok()?;
        let chart = template.chart.trim_start_matches("./").trim_end_matches('/');
        if template.source.is_some_and(|source| source != helm) || charts.contains(chart) {
            return None;
        }
        let url = self.settings.cluster.git.written(HELM_PATH);
        Some(format!(
            "{url} has no chart {chart}, so Flux cannot install edge sync: set git.charts_dir to the directory helm of Sparkfleet, or push it with an operator's token: \
             git clone {url} charts && cp -r helm/. charts && cd charts && git add . && git commit -m charts && git push"
        ))
    }

    /// The id of its Device, which stays as long as that is alive: its name, unless another cluster's Device has it.
    fn device_id(&mut self, uuid: Uuid, name: &str) -> DeviceId {
        let known = self.clusters.get(&uuid).and_then(|cluster| cluster.device_id.clone());
        known.unwrap_or_else(|| {
            let named = names::device(uuid, name);
            let id = if self.device_ids.contains_key(&named) { names::unnamed_device(uuid) } else { named };
            if let Some(cluster) = self.clusters.get_mut(&uuid) {
                cluster.device_id = Some(id.clone());
                self.device_ids.insert(id.clone(), uuid);
            }
            id
        })
    }

    /// Brings Device and totals up to date.
    fn tell(&mut self, uuid: Uuid, read: &Read, told: Published, now: Now) {
        let Published { state, decision, desired, join, bootstrap } = told;
        let spec = read.spec();
        let name = spec.map(|spec| spec.name.clone()).unwrap_or_default();
        let known_sync = self.sync_of(uuid, &name);
        let (sync_alive, sync_since) = known_sync.map_or((false, None), |sync| (sync.is_alive(), sync.since));
        let foreign = self.foreign_sync(uuid, &name);
        let chart = if known_sync.is_none() { self.missing_chart(uuid, read) } else { None };
        let wave = self.rollout.wave(uuid).into();
        let deployments = self.deployments.get(&uuid).map_or(0, std::collections::BTreeMap::len);
        let id = self.device_id(uuid, &name);
        let Some(cluster) = self.clusters.get_mut(&uuid) else { return };
        let before = cluster.device.as_ref();
        let since = before.filter(|device| device.setup.state == state).map_or(now.wall, |device| device.setup.since);
        let published = read.recorded().is_some_and(|record| record.self_link.is_some());
        let reason = decision.reason.or_else(|| cluster.writes.reason.clone()).or(foreign).or(chart);
        let (desired, deployments_refused) = desired;
        let mut device = ClusterDevice {
            uuid,
            group: format!("{}-{name}", self.settings.organisation),
            namespace: spec.map(|spec| spec.namespace.clone()).unwrap_or_default(),
            setup: Setup { state, step: decision.step, reason, since },
            git_url: published.then(|| cluster_repo::url(&self.settings.cluster, &name)),
            git_commit: cluster.git.commit.clone(),
            sync_alive,
            sync_since,
            desired,
            deployments_refused,
            join,
            bootstrap,
            identity: read.identity.report(),
            rollout: RolloutReport {
                wave,
                repository: cluster.settling.waits.clone(),
                unsettled: cluster.settling.unsettled.clone(),
                ..cluster.edge.rollout.clone()
            },
            name,
        };
        if before.map(|device| device.setup.state) != Some(state) {
            let reason = device.setup.reason.as_deref().unwrap_or_default();
            tracing::info!(cluster_id = %uuid, name = device.name, state = %state, reason, "cluster");
        }
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let held = device.held().is_some();
        let share =
            Share { state, deployments: count(deployments), refused: count(device.deployments_refused.0.len()), held };
        let held_since = before.and_then(|device| device.desired.held_since).or(Some(now.wall));
        device.desired.held_since = held_since.filter(|_| device.held().is_some());
        if let (None, Some(reason)) = (before.and_then(|device| device.held()), device.held()) {
            tracing::warn!(cluster_id = %uuid, name = device.name, reason, "the cluster holds what it is sent until an operator decides: sparkfleet recover");
        }
        let shared = cluster.share.replace(share.clone());
        if before != Some(&device) {
            let metrics = device.to_metrics();
            cluster.device = Some(device);
            self.effects.push(Effect::Node(NodeUpdate::DeviceBirth { device: id, metrics }));
        }
        if shared.as_ref() != Some(&share) {
            if let Some(shared) = shared {
                self.count(&shared, false);
            }
            self.count(&share, true);
        }
    }

    /// Of clusters that nothing claims any more, nothing is known of what their nodes say, neither here nor in the session: whoever expects them later has to hear their births.
    pub(super) fn forget_edges(&mut self, names: &BTreeSet<String>) {
        for name in names {
            if self.claims.contains_key(name) {
                continue;
            }
            self.joins.remove(name);
            self.edge_accounts.forget_keys(name);
            let Ok(cluster) = ClusterName::new(name.as_str()) else { continue };
            let organisation = &self.settings.organisation;
            let edge = [edge::sync_node(organisation, &cluster), join::node(organisation, &cluster)];
            let nodes = edge.into_iter().chain([accounts::node(organisation, name)]).flatten();
            nodes.for_each(|node| self.forget(node));
        }
    }

    /// The cluster has no configuration and no record: nothing of it is left.
    fn remove(&mut self, uuid: Uuid) {
        let names = self.clusters.get(&uuid).map(|cluster| cluster.claims.clone()).unwrap_or_default();
        self.set_claims(uuid, BTreeSet::new());
        self.forget_edges(&names);
        let Some(cluster) = self.clusters.remove(&uuid) else { return };
        self.allow_enrolment(uuid, false);
        let released = self.rollout.remove(uuid);
        self.dirty.extend(released);
        let released = self.repositories.remove(uuid);
        self.dirty.extend(released);
        if cluster.offer.is_some() {
            self.effects.push(Effect::BootstrapGrant { cluster: uuid, offer: None });
        }
        self.set_dependencies((uuid, None), &cluster.rendered_from, &BTreeSet::new());
        self.accounts.retain(|_, of| *of != uuid);
        self.forget_accounts(uuid, &cluster.accounts);
        if let Some(deadline) = cluster.deadline {
            self.deadlines.remove(&(deadline, uuid));
        }
        if let Some(device) = cluster.device_id.clone() {
            tracing::info!(cluster_id = %uuid, "cluster is gone");
            self.device_ids.remove(&device);
            self.effects.push(Effect::Node(NodeUpdate::DeviceDeath { device }));
        }
        if let Some(share) = &cluster.share {
            self.count(share, false);
        }
        for node in cluster.expected() {
            self.forget(node);
        }
    }

    fn set_deadline(&mut self, uuid: Uuid, name: Option<&str>, deleting: bool, now: Now) {
        let away = name.filter(|_| deleting || self.rollout.holds_up(uuid)).and_then(|name| self.away_at(name));
        let given_up = name.and_then(|name| self.give_up_at(name));
        let settles = name.filter(|_| self.repositories.holds_up(uuid)).and_then(|name| self.flux_away_at(uuid, name));
        let Some(cluster) = self.clusters.get_mut(&uuid) else { return };
        let (edge, policy, source) =
            (cluster.edge.next_deadline(), cluster.policy.next_deadline(), cluster.source.next_deadline());
        let waits = [
            cluster.writes.until,
            cluster.status_at,
            cluster.git.wait.until,
            cluster.principals.wait.until,
            cluster.accounts.next_deadline(),
            edge,
            policy,
            source,
            away,
            given_up,
            settles,
        ];
        let deadline = waits.into_iter().flatten().filter(|at| *at > now.mono).min();
        let before = std::mem::replace(&mut cluster.deadline, deadline);
        if let Some(before) = before.filter(|before| Some(*before) != deadline) {
            self.deadlines.remove(&(before, uuid));
        }
        if let Some(deadline) = deadline {
            self.deadlines.insert((deadline, uuid));
        }
    }
}
