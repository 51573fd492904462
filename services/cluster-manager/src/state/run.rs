//! The turn of the cluster manager: each affected cluster goes through all controllers, in this order.
//!
//! Set-up comes first, because the others go by what it decides; the cluster's Device comes last, because it shows what they have found.

use cluster_manager_contract::{SetupState, names};
use configdb_contract::WriteRequest;
use configdb_schema::known;
use edge_sync_contract::source::{OTHERS_MAX, OtherCommits};
use sparkplug::Now;
use uuid::Uuid;

use super::ClusterManager;
use super::cluster::Published;
use crate::controllers::Controller;
use crate::controllers::cluster_repositories::Evaluated;
use crate::controllers::deployments::{Outcome, Target};
use crate::controllers::flux_sources::Commits;
use crate::controllers::setups::{ClusterEntries, Surroundings};
use crate::rollout::Blocker;
use crate::setup::{self, Account, Repository};

impl ClusterManager {
    /// All controllers of clusters. What is asked of each in the same way goes through this list.
    pub(super) fn controllers(&mut self) -> [&mut dyn Controller; 9] {
        [
            &mut self.setups,
            &mut self.repositories,
            &mut self.accounts,
            &mut self.deployments,
            &mut self.attestation_policy,
            &mut self.flux_sources,
            &mut self.principals,
            &mut self.logins,
            &mut self.bootstrap_grants,
        ]
    }

    /// Runs the controllers for each cluster that something has changed for. Without knowing ConfigDB completely nothing may be concluded.
    pub(super) fn run_controllers(&mut self, now: Now) {
        if !self.fleet.is_known() {
            return self.dirty.clear();
        }
        while let Some(uuid) = self.dirty.pop_first() {
            self.evaluate(uuid, now);
        }
    }

    /// Brings one cluster a step forward: its set-up decides the next step, and each controller compares what shall be with what is.
    fn evaluate(&mut self, uuid: Uuid, now: Now) {
        if !self.clusters.contains_key(&uuid) {
            return;
        }
        let read = self.setups.read(&self.fleet, uuid);
        let is_known = read.config.is_some() || read.recorded().is_some() || self.fleet.config().object(uuid).is_some();
        let hold = self.repositories.hold(&self.fleet, uuid);
        if let Some(hold) = hold.filter(|_| !is_known) {
            tracing::warn!(cluster_id = %uuid, reason = %hold, "ConfigDB does not have the cluster of an open repository; it stays as it is");
            return self.remove(uuid);
        }
        let name = read.recorded().and_then(|record| record.spec.as_ref()).map(|spec| spec.name.clone());
        for account in Account::ALL {
            self.fleet.add_account(account.uuid(uuid, read.recorded()), uuid);
        }
        let is_git_known = self.settings.cluster.git.is_known();
        if let Some(Ok(config)) = read.config.as_ref().filter(|_| is_git_known) {
            self.repositories.render(&self.fleet, uuid, config);
        }
        if let Some(name) = &name {
            self.fleet.give_up(name, now);
        }
        let blocker = self.repository_blocker(uuid, &read);
        let must_wait = blocker.is_some() || hold.is_some() || self.edge_holds(uuid, name.as_deref());
        let repository = self.repositories.state(&self.fleet, uuid, must_wait, now);
        let surroundings = Surroundings {
            account_removals: self.accounts.removals(&self.fleet, uuid),
            wanted: self.repositories.wanted(uuid),
            repository: repository.clone(),
            is_served: self.is_served(uuid, self.repositories.commit(uuid)),
            principals: self.principals.state(uuid, now),
            is_git_known,
        };
        let decision = self.setups.decide(&self.fleet, (uuid, name.as_deref()), &read, surroundings, now);
        let Some(state) = decision.state else {
            self.remove(uuid);
            return;
        };
        let published = read.recorded().is_some_and(|record| record.self_link.is_some());
        self.expect(uuid, name.as_deref().filter(|_| published));
        let deleting = matches!(state, SetupState::Deleting | SetupState::Waiting);
        self.effects.extend(self.logins.reconcile(&self.fleet, uuid, published && !deleting));
        if self.fleet.config().is_complete() {
            self.act(uuid, &decision, &read, (name.as_deref(), must_wait), now);
        }
        self.serve_accounts(uuid, name.as_deref().filter(|_| published && !deleting), now);
        let mut deployments = self.reconcile_deployments(uuid, name.as_deref(), deleting, now);
        // A mixture of two states of ConfigDB is none that a decision could be about.
        if let Some(hold) = hold.filter(|_| repository == Repository::Held && self.fleet.config().is_one_state()) {
            deployments.desired.held.get_or_insert_with(|| format!("the repository keeps what it holds: {hold}"));
        }
        if let Some(name) = name.as_ref().filter(|_| !deleting) {
            self.send_commits(uuid, name, now);
        }
        let has_status = read.status.is_some();
        let evaluated = Evaluated { repository, reason: decision.reason.as_deref(), blocker, has_status };
        let target = (uuid, name.as_deref().filter(|_| !deleting));
        self.dirty.extend(self.repositories.settle(&self.fleet, &self.devices, target, &evaluated, now));
        let policy =
            name.as_ref().map(|name| self.attestation_policy.reconcile(&self.fleet, (uuid, name), deleting, now));
        let (join, policy) = policy.unwrap_or_default();
        let is_ready = state == SetupState::Ready;
        let record = read.recorded().filter(|_| is_ready);
        let (bootstrap, grant) = self.bootstrap_grants.reconcile(&self.fleet, (uuid, deleting), record, &read.identity);
        self.effects.extend(policy.into_iter().chain(grant));
        let published = Published { state, decision, deployments, join, bootstrap };
        self.publish(uuid, &read, published, now);
        self.set_deadline(uuid, name.as_deref(), deleting, now);
    }

    /// What a cluster's repository would have to wait for if it shall hold something else. What is set up waits; what is new, and what was changed itself, does not: an operator
    /// wants that on this cluster.
    fn repository_blocker(&self, uuid: Uuid, read: &ClusterEntries) -> Option<Blocker> {
        let (Some(record), Some(Ok(config))) = (read.recorded(), &read.config) else { return None };
        let is_set_up = setup::is_set_up_for(record, config, self.fleet.pins(uuid));
        self.repositories.blocker(uuid).filter(|_| is_set_up)
    }

    /// Whether the edge holds what it is sent. Flux must not get it from the repository then.
    fn edge_holds(&self, uuid: Uuid, name: Option<&str>) -> bool {
        let node = name.and_then(|name| self.fleet.sync_of(uuid, name)?.replica.node());
        node.is_some_and(|node| node.desired_held == Some(true))
    }

    fn serve_accounts(&mut self, uuid: Uuid, name: Option<&str>, now: Now) {
        let outcome = self.accounts.reconcile(&self.fleet, uuid, name, now);
        for write in outcome.writes {
            let object = write.object;
            let id = self.requests.next_id();
            let write = WriteRequest { id: id.clone(), ..write }.by(names::SERVICE);
            let submitted = self.requests.submit(write, now).map(|()| id).map_err(|error| error.to_string());
            self.accounts.on_submitted(uuid, object, submitted, now);
        }
        self.take_writer_outputs(now);
        self.effects.extend(outcome.answers);
    }

    fn reconcile_deployments(&mut self, uuid: Uuid, name: Option<&str>, deleting: bool, now: Now) -> Outcome {
        let is_paused = !deleting && !self.settings.cluster.git.is_known();
        let mut outcome = match name {
            // What is rendered would name an address that is not known.
            Some(_) if is_paused => self.deployments.unchanged(uuid),
            Some(name) => {
                let node = self.clusters.get(&uuid).and_then(|cluster| cluster.expecting.as_ref());
                let names = |cluster| self.devices.name_of(cluster);
                let target = Target { uuid, name, deleting, node };
                self.deployments.reconcile(&self.fleet, target, &names, now)
            }
            None => self.deployments.without_edge(uuid),
        };
        self.effects.append(&mut outcome.commands);
        self.dirty.extend(outcome.released.drain(..));
        outcome
    }

    fn send_commits(&mut self, uuid: Uuid, name: &str, now: Now) {
        if !self.settings.cluster.git.is_known() {
            return;
        }
        let Some(cluster) = self.clusters.get(&uuid) else { return };
        let charts = self.shared.commit(known::repository::HELM_CHARTS);
        let repository = self.repositories.commit(uuid);
        let are_served = self.is_served(uuid, repository) && self.is_served(known::repository::HELM_CHARTS, charts);
        let others = self.other_sources(uuid).filter(|_| are_served);
        // Flux that is asked before the copy has the commit fetches the one before, and looks again only at its interval.
        let (repository, others) =
            others.map_or_else(|| (None, OtherCommits::default()), |others| (repository, others));
        let commits = Commits { repository, charts, others };
        let node = cluster.expecting.as_ref();
        let command = self.flux_sources.reconcile(&self.fleet, (uuid, name), node, commits, now);
        self.effects.extend(command);
    }

    /// Whether clusters can fetch this commit; the site's own server is not asked.
    fn is_served(&self, repository: Uuid, commit: Option<&str>) -> bool {
        let is_asked = self.settings.cluster.git.external.is_none()
            && (self.settings.awaits_git || self.fleet.git().node().is_some());
        !is_asked || commit.is_none_or(|commit| self.fleet.is_served(repository, commit))
    }

    /// Commits of the shared repositories beside the charts that the cluster, or a deployment on it, is rendered from. None: the git server does not have one of them yet.
    fn other_sources(&self, uuid: Uuid) -> Option<OtherCommits> {
        let mut objects = self.deployments.rendered_from(uuid);
        objects.extend(self.repositories.rendered_from(uuid));
        let commits = objects
            .into_iter()
            .filter(|object| *object != known::repository::HELM_CHARTS)
            .filter_map(|object| Some((object, self.shared.commit(object)?)))
            .take(OTHERS_MAX);
        let mut others = OtherCommits::default();
        for (object, commit) in commits {
            if !self.is_served(object, Some(commit)) {
                return None;
            }
            if let Ok(commit) = commit.parse() {
                others.0.insert(self.settings.deployment.git.shared(object), commit);
            }
        }
        Some(others)
    }

    /// When the cluster has to be looked at without an event.
    fn set_deadline(&mut self, uuid: Uuid, name: Option<&str>, deleting: bool, now: Now) {
        let away =
            name.filter(|_| deleting || self.deployments.blocks_others(uuid)).and_then(|name| self.fleet.away_at(name));
        let given_up = name.and_then(|name| self.fleet.give_up_at(name));
        let settles = name.and_then(|name| self.repositories.settles_at(&self.fleet, uuid, name));
        if !self.clusters.contains_key(&uuid) {
            return;
        }
        let own = self.controllers().into_iter().filter_map(|controller| controller.next_deadline(uuid, now));
        let waits = own.chain([away, given_up, settles].into_iter().flatten()).filter(|at| *at > now.mono);
        let first = waits.min();
        self.deadlines.set(uuid, first);
    }
}
