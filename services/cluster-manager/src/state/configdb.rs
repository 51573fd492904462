//! ConfigDB's changes -> which clusters and deployments they concern. Keeps the indexes that make one cluster's change work for that cluster alone.

use std::collections::BTreeSet;
use std::collections::btree_map::Entry::Vacant;

use cluster_manager_contract::SetupStep;
use configdb_contract::{Change, Entry};
use configdb_schema::document::{
    AgentConfig, ApiToken, BootstrapScript, ChartRollout, EdgeAccount, EdgeCluster, EdgeClusterRollout,
    EdgeClusterSetup, EdgeDeployment, HelmChartTemplate, SealedSecret,
};
use configdb_schema::{Document, known};
use manifests::catalog::Affected;
use sparkplug::host::HostRequest;
use uuid::Uuid;

use super::ClusterManager;
use super::cluster::Cluster;
use crate::controllers::Controller as _;
use crate::event::Effect;
use crate::setup;

impl ClusterManager {
    /// Takes one change of the replica.
    pub(super) fn on_change(&mut self, change: Change) {
        match change {
            Change::StoreReplaced { old, new } => {
                tracing::warn!(%old, %new, "another ConfigDB answers; nothing is concluded until it is known completely");
                // What was asked of the other one is not meant for this one.
                self.requests.start_again();
            }
            Change::BecameComplete { .. } => {
                if !self.fleet.is_known() {
                    self.rebuild();
                }
                self.shared.mark_all();
                self.copies.mark_all();
                self.dirty.extend(self.clusters.keys());
            }
            Change::BecameIncomplete { reason } => {
                tracing::info!(reason, "ConfigDB is not known completely any more");
            }
            Change::Contradicted { reason } => {
                tracing::warn!(reason, "another process speaks for ConfigDB; its births are asked for");
                let node = self.fleet.config().node().clone();
                self.effects.push(Effect::Host(HostRequest::Rebirth { node }));
            }
            Change::Malformed { reason } => tracing::warn!(reason, "something of ConfigDB cannot be read"),
            _ if !self.fleet.is_known() => {}
            Change::ObjectBorn { object } | Change::ObjectChanged { object } | Change::ObjectGone { object } => {
                self.mark_owner(object);
            }
            Change::Entry { object, slug, old, new } => {
                self.on_entry(object, &slug, old.as_ref(), new.as_ref());
            }
            Change::Result(_) | Change::History(_) => {}
        }
    }

    /// Learns everything from a replica that is complete for the first time.
    fn rebuild(&mut self) {
        let before = std::mem::take(&mut self.clusters);
        self.fleet.rebuild();
        self.git_users.forget_tokens();
        self.controllers().into_iter().for_each(|controller| controller.clear());
        self.on_script(None);
        self.requests.forget_clusters();
        self.deadlines.clear();
        let entries: Vec<(Uuid, String, Entry)> = self
            .fleet
            .config()
            .objects()
            .flat_map(|(uuid, object)| {
                object.entries().map(move |(slug, entry)| (uuid, slug.to_owned(), entry.clone()))
            })
            .collect();
        for (object, slug, entry) in &entries {
            self.on_entry(*object, slug, None, Some(entry));
        }
        self.adopt_left_repositories();
        self.fleet.look_for_all_unknown();
        self.shared.rebuild(&self.fleet);
        let clusters = std::mem::take(&mut self.clusters);
        let effects = self.controllers().map(|controller| controller.retain(&|uuid| clusters.contains_key(uuid)));
        self.clusters = clusters;
        self.effects.extend(effects.into_iter().flatten());
        for (uuid, cluster) in before {
            let share = cluster.share.clone();
            if let Some(share) = &share {
                self.count(share, false);
            }
            match self.clusters.get_mut(&uuid) {
                // Its Device is not born again: only the differences are published.
                Some(known) => known.take_over(cluster),
                None => {
                    self.forget_edges(&cluster.claims);
                    for node in cluster.expected() {
                        self.forget(node);
                    }
                    self.effects.extend(self.devices.remove(uuid));
                }
            }
        }
    }

    /// Repositories that are open although ConfigDB knows nothing of their cluster: its object was deleted while no manager ran.
    fn adopt_left_repositories(&mut self) {
        let store = self.fleet.config().store();
        for left in std::mem::take(&mut self.left) {
            if Some(left.wanted_by.store) == store && !self.clusters.contains_key(&left.cluster) {
                tracing::info!(cluster_id = %left.cluster, "the cluster's object is gone; tearing down what is left of it");
                let spec = EdgeCluster { name: left.name, ..EdgeCluster::default() };
                let record = EdgeClusterSetup {
                    spec: Some(spec),
                    self_link: Some(String::new()),
                    ..EdgeClusterSetup::default()
                };
                self.orphan(left.cluster, record);
            }
        }
    }

    /// Remembers the record of a cluster whose object is gone, for its tear-down.
    fn orphan(&mut self, cluster: Uuid, mut record: EdgeClusterSetup) {
        if setup::step(&record) == SetupStep::RepositoryClosed {
            return;
        }
        if self.repositories.hold(&self.fleet, cluster).is_some() {
            return;
        }
        record.mark_deleting();
        self.add_cluster(cluster);
        self.setups.set_orphan(cluster, record);
        self.claim(cluster);
    }

    fn on_entry(&mut self, object: Uuid, slug: &str, old: Option<&Entry>, new: Option<&Entry>) {
        if let Some(affected) = self.fleet.on_entry(object, slug, new) {
            self.on_template(affected);
        }
        if slug == ChartRollout::slug() || slug == HelmChartTemplate::slug() {
            self.read_chart_rollout(object);
        }
        if slug == BootstrapScript::slug() && object == known::application::BOOTSTRAP_SCRIPT {
            self.on_script(new.map(|entry| &*entry.json));
        } else if slug == ApiToken::slug() {
            self.git_users.on_token(object, new.map(|entry| &*entry.json));
        } else if slug == EdgeDeployment::slug() {
            let placement = self.fleet.place(object, new);
            match self.deployments.on_entry(object, placement, new) {
                Some(clusters) => self.dirty.extend(clusters),
                None => self.dirty.extend(self.clusters.keys()),
            }
        } else if slug == SealedSecret::slug() {
            for cluster in self.fleet.on_secret(object, new) {
                self.repositories.secrets_changed(cluster);
                self.dirty.insert(cluster);
            }
        } else if slug == EdgeClusterRollout::slug() {
            self.read_rollout(object);
        } else if slug == EdgeAccount::slug() {
            self.dirty.extend(self.accounts.on_entry(object, new));
        } else if slug == AgentConfig::slug() {
            if let Some(cluster) = self.fleet.cluster_of_deployment(object) {
                self.deployments.mark(cluster, object);
                self.dirty.insert(cluster);
            }
        } else if slug == EdgeCluster::slug() || slug == EdgeClusterSetup::slug() {
            if slug == EdgeClusterSetup::slug()
                && let (Some(old), None) = (old, new)
                && self.fleet.config().object(object).is_none()
                && let Ok(record) = old.parse::<EdgeClusterSetup>()
            {
                self.orphan(object, record);
            }
            self.add_cluster(object);
            self.setups.retry(object);
            self.claim(object);
        }
        self.mark_owner(object);
    }

    /// From here on there is a cluster of that UUID.
    fn add_cluster(&mut self, uuid: Uuid) {
        if let Vacant(place) = self.clusters.entry(uuid) {
            place.insert(Cluster::default());
            self.setups.add(uuid);
            self.repositories.add(uuid);
            self.read_rollout(uuid);
        }
    }

    /// Marks the cluster that an object is, or is an account of.
    fn mark_owner(&mut self, object: Uuid) {
        self.shared.mark(object);
        self.copies.mark(object);
        self.dirty.extend(self.accounts.on_object(object));
        if self.clusters.contains_key(&object) {
            self.dirty.insert(object);
        }
        self.dirty.extend(self.fleet.cluster_of_account(object));
    }

    /// Brings up to date which names a cluster has or wants, and marks who may have waited for one.
    fn claim(&mut self, uuid: Uuid) {
        let config =
            self.fleet.config().entry(uuid, EdgeCluster::slug()).and_then(|entry| entry.parse::<EdgeCluster>().ok());
        let record = self.fleet.config().entry(uuid, EdgeClusterSetup::slug());
        let record = record.and_then(|entry| entry.parse::<EdgeClusterSetup>().ok());
        let orphan = self.setups.orphan(uuid).cloned();
        let specs = record.into_iter().chain(orphan).filter_map(|record| record.spec);
        let names: BTreeSet<String> = specs.chain(config).map(|spec| spec.name).collect();
        self.set_claims(uuid, names);
    }

    pub(super) fn set_claims(&mut self, uuid: Uuid, names: BTreeSet<String>) {
        let Some(cluster) = self.clusters.get_mut(&uuid) else { return };
        let before = std::mem::replace(&mut cluster.claims, names);
        self.dirty.extend(self.fleet.set_claims(uuid, &before, &cluster.claims));
    }

    pub(super) fn on_template(&mut self, affected: Affected) {
        match affected {
            Affected::Chart(object) | Affected::Repository(object) => {
                self.dirty.extend(self.deployments.on_template(object));
                for cluster in self.repositories.dependents(object) {
                    self.mark_repository(cluster);
                }
            }
            Affected::Repositories | Affected::Everything => {
                if affected == Affected::Everything {
                    self.deployments.mark_all();
                }
                let clusters: Vec<Uuid> = self.clusters.keys().copied().collect();
                clusters.into_iter().for_each(|cluster| self.mark_repository(cluster));
            }
        }
    }

    /// The repository of a cluster is to be rendered again.
    fn mark_repository(&mut self, cluster: Uuid) {
        self.repositories.mark(cluster);
        self.dirty.insert(cluster);
    }

    /// Takes over what operators have decided about the rollout of a chart template; an entry that cannot be read changes nothing.
    fn read_chart_rollout(&mut self, chart: Uuid) {
        let decided = match self.fleet.config().document::<ChartRollout>(chart) {
            Ok(decided) => decided.unwrap_or_default(),
            Err(error) => {
                return tracing::warn!(object_id = %chart, error = %error, "ChartRollout cannot be read; the decision before it stays");
            }
        };
        let template = self.fleet.config().entry(chart, HelmChartTemplate::slug()).map(|entry| entry.etag);
        self.dirty.extend(self.deployments.decide_rollout(chart, &decided, template));
        // What waits says why.
        self.dirty.extend(self.deployments.followers(chart));
    }

    /// Takes over what ConfigDB says of a cluster's rollout; what cannot be read says nothing. Of what is not a cluster nothing could ever settle, so it has no wave.
    fn read_rollout(&mut self, uuid: Uuid) {
        if !self.clusters.contains_key(&uuid) {
            return;
        }
        let entry = self.fleet.config().document::<EdgeClusterRollout>(uuid).unwrap_or_else(|error| {
            tracing::warn!(cluster_id = %uuid, error = %error, "EdgeClusterRollout cannot be read; the cluster is in the last wave");
            None
        });
        let EdgeClusterRollout { wave, pins } = entry.unwrap_or_default();
        self.fleet.set_pins(uuid, pins);
        self.dirty.insert(uuid);
        self.dirty.extend(self.deployments.set_wave(uuid, wave));
        self.dirty.extend(self.repositories.set_wave(uuid, wave));
    }
}
