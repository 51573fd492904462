//! One cluster: which of its nodes are asked for their births, how its next step is carried out, and its Device. Everything here costs work for this cluster only.

use std::collections::{BTreeMap, BTreeSet};

use cluster_manager_contract::{BootstrapReport, ClusterDevice, JoinReport, RolloutReport, Setup, SetupState};
use configdb_contract::WriteRequest;
use configdb_schema::known;
use manifests::git_address::HELM_PATH;
use sparkplug::host::HostRequest;
use sparkplug::{EdgeNodeDescriptor, Now};
use uuid::Uuid;

use super::ClusterManager;
use crate::cluster_repo;
use crate::controllers::Forgotten;
use crate::controllers::deployments::Outcome;
use crate::controllers::setups::ClusterEntries;
use crate::event::Effect;
use crate::setup::{Action, Decision};

/// What a cluster contributes to the totals of the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Share {
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
#[derive(Debug, Default)]
pub(super) struct Cluster {
    /// Names that it has or wants.
    pub claims: BTreeSet<String>,
    /// Its Sync, if that was asked to be born.
    pub expecting: Option<EdgeNodeDescriptor>,
    /// Its Join node, if that was asked to be born.
    pub expecting_join: Option<EdgeNodeDescriptor>,
    /// Its Keys node, if that was asked to be born.
    pub expecting_keys: Option<EdgeNodeDescriptor>,
    /// What it contributes to the totals.
    pub share: Option<Share>,
}

impl Cluster {
    /// Keeps what an earlier copy of the same cluster has published.
    pub(super) fn take_over(&mut self, before: Self) {
        self.expecting = before.expecting;
        self.expecting_join = before.expecting_join;
        self.expecting_keys = before.expecting_keys;
    }

    /// Every node that was asked to be born.
    pub(super) fn expected(self) -> impl Iterator<Item = EdgeNodeDescriptor> {
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

impl ClusterManager {
    /// Makes sure that the Sync of a cluster is asked for its birth as long as the cluster may have one. Its Join and Keys nodes are asked as long as there is something to bring to them.
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
        read: &ClusterEntries,
        (name, must_wait): (Option<&str>, bool),
        now: Now,
    ) {
        // What is still being written for accounts must not outlive the cluster.
        let is_ending = matches!(decision.state, Some(SetupState::Deleting | SetupState::Waiting));
        if self.setups.is_writing(uuid) || is_ending && self.accounts.is_writing(uuid) {
            return;
        }
        match &decision.action {
            Some(Action::Write(_)) | None if !self.setups.is_due(uuid, now) => {}
            Some(Action::Write(writes)) => self.submit(uuid, writes.clone(), now),
            // A mixture of two states of ConfigDB is none that a repository could be of.
            Some(Action::WriteRepository) if !self.fleet.config().is_one_state() => {}
            Some(Action::WriteRepository) => {
                self.effects.extend(self.repositories.write(&self.fleet, uuid, must_wait, now));
            }
            Some(Action::CloseRepository) => self.effects.extend(self.repositories.close(uuid)),
            Some(Action::AllowPrincipals(allowed)) => {
                let recorded = read.recorded().and_then(|record| record.spec.as_ref());
                let work = recorded.and_then(|spec| self.principals.allow(uuid, &spec.name, *allowed));
                self.effects.extend(work);
            }
            None => {
                let status = self.setups.status(&self.fleet, (uuid, name), decision, read, now);
                self.submit(uuid, status.into_iter().collect(), now);
            }
        }
    }

    pub(super) fn submit(&mut self, uuid: Uuid, writes: Vec<WriteRequest>, now: Now) {
        self.setups.submit(&mut self.requests, uuid, writes, now);
        self.take_writer_outputs(now);
    }

    /// What keeps Flux from installing the edge's own services, as far as it is to be seen from here: their chart is not where it is taken from. None: it is, or that is not known.
    fn missing_chart(&self, uuid: Uuid, read: &ClusterEntries) -> Option<String> {
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
    pub(super) fn publish(&mut self, uuid: Uuid, read: &ClusterEntries, published: Published, now: Now) {
        let Published { state, decision, deployments: compared, join, bootstrap } = published;
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
        let reason = decision.reason.or_else(|| self.setups.reason(uuid).map(str::to_owned)).or(foreign).or(chart);
        let (desired, deployments_refused) = (compared.desired, compared.refused);
        let mut device = ClusterDevice {
            uuid,
            group: format!("{}-{name}", self.settings.organisation),
            namespace: spec.map(|spec| spec.namespace.clone()).unwrap_or_default(),
            setup: Setup { state, step: decision.step, reason, since },
            git_url: (published && self.settings.cluster.git.is_known())
                .then(|| cluster_repo::url(&self.settings.cluster, &name)),
            login: self.logins.get(uuid).cloned(),
            git_commit: self.repositories.commit(uuid).map(str::to_owned),
            sync_alive,
            sync_since,
            desired,
            deployments_refused,
            join,
            bootstrap,
            identity: read.identity.report(),
            secrets: self.repositories.secrets(uuid),
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
        let forgotten = self.controllers().map(|controller| controller.forget(uuid));
        for Forgotten { effects, released } in forgotten {
            self.effects.extend(effects);
            self.dirty.extend(released);
        }
        self.copies.mark(uuid);
        self.fleet.set_pins(uuid, BTreeMap::new());
        self.fleet.remove_accounts(uuid);
        self.deadlines.set(uuid, None);
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
