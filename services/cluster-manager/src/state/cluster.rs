//! One cluster: what is under way for its set-up, its status entry and its Device. Everything here costs work for this cluster only.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cluster_manager_contract::{BootstrapReport, ClusterDevice, JoinReport, RolloutReport, Setup, SetupState};
use configdb_contract::WriteRequest;
use configdb_schema::document::{
    EdgeCluster, EdgeClusterRecovery, EdgeClusterSetup, EdgeClusterStatus, GitConfig, Info, SparkplugAddress,
};
use configdb_schema::{Document, known};
use sparkplug::host::HostRequest;
use sparkplug::{EdgeNodeDescriptor, Now};
use uuid::Uuid;

use super::ClusterManager;
use crate::cluster_repo;
use crate::controllers::Wait;
use crate::controllers::deployments::Outcome;
use crate::controllers::enrolment::IdentityEntries;
use crate::event::Effect;
use crate::setup::{Account, AccountObject, Action, Decision, Facts, Repository};
use crate::shared_repository::HELM_PATH;
use crate::status;

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
    pub status_at: Option<Duration>,
    /// Its Sync, if that was asked to be born.
    pub expecting: Option<EdgeNodeDescriptor>,
    /// Its Join node, if that was asked to be born.
    pub expecting_join: Option<EdgeNodeDescriptor>,
    /// Its Keys node, if that was asked to be born.
    pub expecting_keys: Option<EdgeNodeDescriptor>,
    /// What it contributes to the totals.
    pub share: Option<Share>,
    /// When it is evaluated next.
    pub deadline: Option<Duration>,
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
            expecting: None,
            expecting_join: None,
            expecting_keys: None,
            share: None,
            deadline: None,
        }
    }

    /// Keeps what the outside was told by an earlier copy of the same cluster.
    pub fn take_over(&mut self, before: Self) {
        self.expecting = before.expecting;
        self.expecting_join = before.expecting_join;
        self.expecting_keys = before.expecting_keys;
    }

    /// Nothing is being written, and no failure is waited for.
    pub fn may_write(&self, now: Now) -> bool {
        self.requests.is_empty() && self.writes.is_over(now)
    }

    /// Every node that was asked to be born.
    pub fn expected(self) -> impl Iterator<Item = EdgeNodeDescriptor> {
        self.expecting.into_iter().chain(self.expecting_join).chain(self.expecting_keys)
    }
}

/// What an evaluation has come to.
pub(super) struct Published {
    pub(super) state: SetupState,
    pub(super) decision: Decision,
    pub(super) deployments: Outcome,
    pub(super) join: JoinReport,
    pub(super) bootstrap: BootstrapReport,
}

/// What an evaluation has read of ConfigDB.
pub(super) struct Read {
    pub(super) config: Option<Result<EdgeCluster, String>>,
    record: Option<Result<EdgeClusterSetup, String>>,
    pub(super) status: Option<EdgeClusterStatus>,
    pub(super) identity: IdentityEntries,
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
    pub(super) fn read(&mut self, uuid: Uuid) -> Read {
        let replica = self.fleet.config();
        let text = |error: configdb_contract::EntryError| error.to_string();
        let config = replica.entry(uuid, EdgeCluster::slug()).map(|entry| entry.parse().map_err(text));
        let record = replica.entry(uuid, EdgeClusterSetup::slug()).map(|entry| entry.parse().map_err(text));
        let status = replica.document(uuid).ok().flatten();
        let recovery = replica.document::<EdgeClusterRecovery>(uuid).ok().flatten();
        // Its object was missing because the store came back older. It has its entry again, and its edge was released to this store.
        let is_recovered = config.is_some() && recovery.is_some_and(|recovery| Some(recovery.store) == replica.store());
        let identity = IdentityEntries::of(&self.fleet, uuid);
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

    pub(super) fn facts<'a>(&'a self, uuid: Uuid, read: &Read, name: Option<&str>, now: Now) -> Facts<'a> {
        let replica = self.fleet.config();
        let object = replica.object(uuid);
        let record = read.recorded();
        let account = |account: Account| {
            let uuid = account.uuid(uuid, record);
            let object = replica.object(uuid)?;
            let name = replica.document::<Info>(uuid).ok().flatten().map(|info| info.name);
            Some(AccountObject { is_account: object.is_member_of(known::class::EDGE_SERVICE_ACCOUNT), name })
        };
        let configured = read.config.as_ref().and_then(|config| config.as_ref().ok());
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
            account_removals: self.accounts.removals(&self.fleet, uuid),
            name_taken_by: configured.and_then(|config| self.name_taken_by(uuid, &config.name)),
            pins: self.fleet.pins(uuid),
            wanted: self.repositories.wanted(uuid),
            repository: Repository::Behind,
            principals: self.principals.state(uuid, now),
            edge: self.fleet.edge_left(uuid, name, now),
        }
    }

    /// Sees that the Sync of a cluster is asked for its birth as long as the cluster may have one, and its Join and Keys nodes as long as there is something to bring to them.
    pub(super) fn expect(&mut self, uuid: Uuid, name: Option<&str>) {
        let Some(cluster) = self.clusters.get_mut(&uuid) else { return };
        let waits_for_join = self.attestation_policy.waits_for_join(&self.fleet, uuid);
        let waits_for_keys = cluster.expecting_keys.is_some() || self.accounts.waits_for_keys(uuid);
        let sync = name.and_then(|name| self.fleet.sync_node(name));
        let join = name.filter(|_| waits_for_join).and_then(|name| self.fleet.join_node(name));
        let keys = name.filter(|_| waits_for_keys).and_then(|name| self.fleet.keys_node(name));
        let mut forgotten = Vec::new();
        let Cluster { expecting, expecting_join, expecting_keys, .. } = cluster;
        for (expecting, node) in [(expecting, sync), (expecting_join, join), (expecting_keys, keys)] {
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

    /// A node is not asked for its birth any more.
    pub(super) fn forget(&mut self, node: EdgeNodeDescriptor) {
        self.fleet.forget(&node);
        self.effects.push(Effect::Host(HostRequest::Forget { node }));
    }

    /// Carries out the next step, or else brings the status entry up to date. One thing at a time.
    pub(super) fn act(
        &mut self,
        uuid: Uuid,
        decision: &Decision,
        read: &Read,
        (name, must_wait): (Option<&str>, bool),
        now: Now,
    ) {
        let cluster = &self.clusters[&uuid];
        // What is still being written for accounts must not outlive the cluster.
        let is_ending = matches!(decision.state, Some(SetupState::Deleting | SetupState::Waiting));
        if !cluster.requests.is_empty() || is_ending && self.accounts.is_writing(uuid) {
            return;
        }
        match &decision.action {
            Some(Action::Write(_)) if !cluster.writes.is_over(now) => {}
            Some(Action::Write(writes)) => self.submit(uuid, writes.clone(), now),
            Some(Action::WriteRepository) => {
                self.effects.extend(self.repositories.write(&self.fleet, uuid, must_wait, now));
            }
            Some(Action::CloseRepository) => self.effects.extend(self.repositories.close(uuid)),
            Some(Action::AllowPrincipals(allowed)) => {
                let recorded = read.recorded().and_then(|record| record.spec.as_ref());
                let work = recorded.and_then(|spec| self.principals.allow(uuid, &spec.name, *allowed));
                self.effects.extend(work);
            }
            None if !cluster.writes.is_over(now) => {}
            None => self.report_status(uuid, decision, read, name, now),
        }
    }

    fn report_status(&mut self, uuid: Uuid, decision: &Decision, read: &Read, name: Option<&str>, now: Now) {
        let deleting = matches!(decision.state, Some(SetupState::Deleting | SetupState::Waiting) | None);
        let Some(sync) = name.filter(|_| !deleting).and_then(|name| self.fleet.sync_of(uuid, name)) else { return };
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

    pub(super) fn submit(&mut self, uuid: Uuid, writes: Vec<WriteRequest>, now: Now) {
        for write in writes {
            let id = self.requests.next_id();
            let write = WriteRequest { id: id.clone(), ..write }.by(cluster_manager_contract::names::SERVICE);
            let submitted = self.requests.submit(write, now);
            let Some(cluster) = self.clusters.get_mut(&uuid) else { return };
            match submitted {
                Ok(()) => {
                    cluster.requests.insert(id.clone());
                    self.requests.expect(id, uuid);
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
            || self.fleet.pins(uuid).contains_key(&helm)
        {
            return None;
        }
        let config = read.config.as_ref()?.as_ref().ok()?;
        let template = self.fleet.catalog().chart(cluster_repo::chart(config, self.fleet.catalog())).ok()?;
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

    /// Brings Device and totals up to date.
    pub(super) fn tell(&mut self, uuid: Uuid, read: &Read, told: Published, now: Now) {
        let Published { state, decision, deployments: compared, join, bootstrap } = told;
        let spec = read.spec();
        let name = spec.map(|spec| spec.name.clone()).unwrap_or_default();
        let known_sync = self.fleet.sync_of(uuid, &name);
        let (sync_alive, sync_since) = known_sync.map_or((false, None), |sync| (sync.is_alive(), sync.since));
        let foreign = self.fleet.foreign_sync(uuid, &name);
        let chart = if known_sync.is_none() { self.missing_chart(uuid, read) } else { None };
        let (wave, waiting) = (self.deployments.wave(uuid).into(), self.deployments.rollout_report(uuid));
        let deployments = self.deployments.count(uuid);
        let repository = self.repositories.report(uuid);
        let Some(cluster) = self.clusters.get_mut(&uuid) else { return };
        let before = self.devices.get(uuid);
        let since = before.filter(|device| device.setup.state == state).map_or(now.wall, |device| device.setup.since);
        let published = read.recorded().is_some_and(|record| record.self_link.is_some());
        let reason = decision.reason.or_else(|| cluster.writes.reason().map(str::to_owned)).or(foreign).or(chart);
        let (desired, deployments_refused) = (compared.desired, compared.refused);
        let mut device = ClusterDevice {
            uuid,
            group: format!("{}-{name}", self.settings.organisation),
            namespace: spec.map(|spec| spec.namespace.clone()).unwrap_or_default(),
            setup: Setup { state, step: decision.step, reason, since },
            git_url: published.then(|| cluster_repo::url(&self.settings.cluster, &name)),
            git_commit: self.repositories.commit(uuid).map(str::to_owned),
            sync_alive,
            sync_since,
            desired,
            deployments_refused,
            join,
            bootstrap,
            identity: read.identity.report(),
            rollout: RolloutReport { wave, repository: repository.waits, unsettled: repository.unsettled, ..waiting },
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
        self.effects.extend(self.devices.publish(device));
        if shared.as_ref() != Some(&share) {
            if let Some(shared) = shared {
                self.count(&shared, false);
            }
            self.count(&share, true);
        }
    }

    /// Of clusters that nothing claims any more, nothing is known of what their nodes say, neither here nor in the session.
    pub(super) fn forget_edges(&mut self, names: &BTreeSet<String>) {
        let nodes: Vec<_> = names.iter().flat_map(|name| self.fleet.forget_unclaimed(name)).collect();
        nodes.into_iter().for_each(|node| self.forget(node));
    }

    /// The cluster has no configuration and no record: nothing of it is left.
    pub(super) fn remove(&mut self, uuid: Uuid) {
        let names = self.clusters.get(&uuid).map(|cluster| cluster.claims.clone()).unwrap_or_default();
        self.set_claims(uuid, BTreeSet::new());
        self.forget_edges(&names);
        let Some(cluster) = self.clusters.remove(&uuid) else { return };
        self.effects.extend(self.enrolment.allow(&self.fleet, uuid, false));
        self.dirty.extend(self.deployments.forget(uuid));
        self.fleet.set_pins(uuid, BTreeMap::new());
        let released = self.repositories.remove(uuid);
        self.dirty.extend(released);
        self.effects.extend(self.bootstrap_grants.forget(uuid));
        self.attestation_policy.retain(|other| *other != uuid);
        self.flux_sources.forget(uuid);
        self.principals.forget(uuid);
        self.accounts.forget(uuid);
        self.fleet.remove_accounts(uuid);
        if let Some(deadline) = cluster.deadline {
            self.deadlines.remove(&(deadline, uuid));
        }
        if let Some(death) = self.devices.remove(uuid) {
            tracing::info!(cluster_id = %uuid, "cluster is gone");
            self.effects.push(death);
        }
        if let Some(share) = &cluster.share {
            self.count(share, false);
        }
        for node in cluster.expected() {
            self.forget(node);
        }
    }
}
