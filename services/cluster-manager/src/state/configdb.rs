//! ConfigDB's changes -> which clusters and deployments they concern. Keeps the indexes that make one cluster's change work for that cluster alone.

use std::collections::BTreeSet;
use std::collections::btree_map::Entry::Vacant;

use cluster_manager_contract::SetupStep;
use configdb_contract::{Change, Entry, Writer, WriterConfig};
use configdb_schema::document::{
    AgentConfig, ApiToken, BootstrapScript, EdgeAccount, EdgeCluster, EdgeClusterIdentity, EdgeClusterRollout,
    EdgeClusterSetup, EdgeClusterStatus, EdgeDeployment, JsonObject,
};
use configdb_schema::{Document, known};
use serde_json::Value;
use sparkplug::Now;
use sparkplug::edge_node::NodeUpdate;
use uuid::Uuid;

use super::ClusterManager;
use super::cluster::Cluster;
use crate::catalog::Affected;
use crate::event::Effect;
use crate::reconcile::DeploymentIntent;
use crate::setup;
use access::Operation;

/// A deployment that some cluster shall have.
#[derive(Debug, Clone)]
pub struct Deployment {
    /// Its entry; Err: what is wrong with it.
    pub entry: Result<EdgeDeployment, String>,
    /// Its name in Kubernetes, unique on its cluster.
    pub k8s_name: String,
    /// Why it stands back behind another deployment.
    pub conflict: Option<String>,
    /// What it comes to.
    pub intent: DeploymentIntent,
    /// Objects that it was rendered from.
    pub rendered_from: BTreeSet<Uuid>,
}

impl ClusterManager {
    /// Takes one change of the replica.
    pub(super) fn on_change(&mut self, change: Change, now: Now) {
        match change {
            Change::StoreReplaced { old, new } => {
                tracing::warn!(%old, %new, "another ConfigDB answers; nothing is concluded until it is known completely");
                self.known = false;
                // What was asked of the other one is not meant for this one.
                self.writer = Writer::new(WriterConfig::new(self.replica.node().clone()), self.seed);
            }
            Change::BecameComplete { .. } => {
                if !self.known {
                    self.rebuild();
                    self.known = true;
                }
                self.mark_all_shared();
                self.dirty.extend(self.clusters.keys());
            }
            Change::BecameIncomplete { reason } => {
                tracing::info!(reason, "ConfigDB is not known completely any more");
            }
            Change::Malformed { reason } => tracing::warn!(reason, "something of ConfigDB cannot be read"),
            _ if !self.known => {}
            Change::ObjectBorn { object } | Change::ObjectChanged { object } | Change::ObjectGone { object } => {
                self.mark_owner(object);
            }
            Change::Entry { object, slug, old, new } => {
                if *slug == *ApiToken::slug() {
                    self.record_token(object, old.as_ref(), new.as_ref(), now);
                } else if ![EdgeClusterStatus::slug(), EdgeClusterSetup::slug()].contains(&&*slug) {
                    // Of these two the cluster manager is the author, and writes them often.
                    self.record_entry(object, &slug, new.as_ref(), now);
                }
                self.on_entry(object, &slug, old.as_ref(), new.as_ref());
            }
            Change::Result(_) | Change::History(_) => {}
        }
    }

    /// Records a change of an entry, whoever made it. Whom its writer named is in ConfigDB's history, under this revision.
    fn record_entry(&mut self, object: Uuid, slug: &str, new: Option<&Entry>, now: Now) {
        let revision = new.map(|entry| format!(" revision {}", entry.revision)).unwrap_or_default();
        let operation = if new.is_some() { Operation::PutEntry } else { Operation::DeleteEntry };
        self.record_of_broker("not told".to_owned(), operation, format!("{object}/{slug}{revision}"), now);
    }

    /// Learns everything from a replica that is complete for the first time.
    fn rebuild(&mut self) {
        let before = std::mem::take(&mut self.clusters);
        self.catalog = crate::catalog::Catalog::default();
        self.people.tokens = access::token::Tokens::default();
        self.revocations.forget_entries();
        self.rollout = crate::rollout::Rollout::default();
        self.repositories = crate::rollout::Rollout::default();
        self.on_script(None);
        self.deployments.clear();
        self.placed.clear();
        self.unattributed.clear();
        self.dependents.clear();
        self.claims.clear();
        self.accounts.clear();
        self.edge_accounts.forget_entries();
        self.requests.clear();
        self.deadlines.clear();
        let entries: Vec<(Uuid, String, Entry)> = self
            .replica
            .objects()
            .flat_map(|(uuid, object)| {
                object.entries().map(move |(slug, entry)| (uuid, slug.to_owned(), entry.clone()))
            })
            .collect();
        for (object, slug, entry) in &entries {
            self.on_entry(*object, slug, None, Some(entry));
        }
        self.adopt_left_repositories();
        self.rebuild_shared();
        for (uuid, cluster) in before {
            let share = cluster.share.clone();
            let device = cluster.device_id.clone();
            if let Some(share) = &share {
                self.count(share, false);
            }
            match self.clusters.get_mut(&uuid) {
                // Its Device is not born again: it is told what differs.
                Some(known) => known.take_over(cluster),
                None => {
                    self.forget_edges(&cluster.claims);
                    for node in cluster.expected() {
                        self.forget(node);
                    }
                    if let Some(device) = device {
                        self.device_ids.remove(&device);
                        self.effects.push(Effect::Node(NodeUpdate::DeviceDeath { device }));
                    }
                }
            }
        }
    }

    /// Repositories that are open although ConfigDB knows nothing of their cluster: its object was deleted while nobody looked.
    fn adopt_left_repositories(&mut self) {
        let store = self.replica.store();
        for left in std::mem::take(&mut self.left) {
            if Some(left.store) == store && !self.clusters.contains_key(&left.cluster) {
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
        setup::mark_deleting(&mut record);
        self.cluster_mut(cluster).orphan = Some(record);
        self.claim(cluster);
    }

    fn on_entry(&mut self, object: Uuid, slug: &str, old: Option<&Entry>, new: Option<&Entry>) {
        self.newest_revision = self.newest_revision.max(new.map_or(0, |entry| entry.revision));
        if let Some(touched) = self.catalog.set(object, slug, new.map(|entry| &*entry.json)) {
            self.on_touched(touched);
        }
        if slug == BootstrapScript::slug() && object == known::application::BOOTSTRAP_SCRIPT {
            self.on_script(new.map(|entry| &*entry.json));
        } else if slug == ApiToken::slug() {
            self.on_token(object, new.map(|entry| &*entry.json));
        } else if slug == EdgeDeployment::slug() {
            self.place(object, new);
        } else if slug == EdgeClusterIdentity::slug() {
            self.on_identity_entry(object, old, new);
        } else if slug == EdgeClusterRollout::slug() {
            self.read_rollout(object);
        } else if slug == EdgeAccount::slug() {
            self.on_account_entry(object, new);
        } else if slug == AgentConfig::slug() {
            self.mark_stale(object);
        } else if slug == EdgeCluster::slug() || slug == EdgeClusterSetup::slug() {
            if slug == EdgeClusterSetup::slug()
                && let (Some(old), None) = (old, new)
                && self.replica.object(object).is_none()
                && let Ok(record) = old.parse::<EdgeClusterSetup>()
            {
                self.orphan(object, record);
            }
            self.cluster_mut(object).writes.forgive();
            self.claim(object);
        }
        self.mark_owner(object);
    }

    /// The cluster of that UUID; from here on there is one.
    fn cluster_mut(&mut self, uuid: Uuid) -> &mut Cluster {
        let (retry, seed) = (self.settings.retry, self.seed ^ uuid.as_u64_pair().1);
        let fresh = || Cluster::new(retry, seed);
        if let Vacant(place) = self.clusters.entry(uuid) {
            place.insert(fresh());
            self.read_rollout(uuid);
            self.allow_enrolment(uuid, true);
        }
        self.clusters.entry(uuid).or_insert_with(fresh)
    }

    /// Marks the cluster that an object is, or is an account of.
    fn mark_owner(&mut self, object: Uuid) {
        self.shared.mark(object);
        self.mark_dependent_accounts(object);
        if self.clusters.contains_key(&object) {
            self.dirty.insert(object);
        }
        if let Some(cluster) = self.accounts.get(&object) {
            self.dirty.insert(*cluster);
        }
    }

    /// Brings up to date which names a cluster has or wants, and marks who may have waited for one.
    fn claim(&mut self, uuid: Uuid) {
        let config = self.replica.entry(uuid, EdgeCluster::slug()).and_then(|entry| entry.parse::<EdgeCluster>().ok());
        let record = self.replica.entry(uuid, EdgeClusterSetup::slug());
        let record = record.and_then(|entry| entry.parse::<EdgeClusterSetup>().ok());
        let orphan = self.clusters.get(&uuid).and_then(|cluster| cluster.orphan.clone());
        let specs = record.into_iter().chain(orphan).filter_map(|record| record.spec);
        let names: BTreeSet<String> = specs.chain(config).map(|spec| spec.name).collect();
        self.set_claims(uuid, names);
    }

    pub(super) fn set_claims(&mut self, uuid: Uuid, names: BTreeSet<String>) {
        let Some(cluster) = self.clusters.get_mut(&uuid) else { return };
        let before = std::mem::replace(&mut cluster.claims, names.clone());
        for name in before.symmetric_difference(&names) {
            let claimants = self.claims.entry(name.clone()).or_default();
            self.dirty.extend(claimants.iter().copied());
            if names.contains(name) {
                claimants.insert(uuid);
            } else {
                claimants.remove(&uuid);
            }
            if claimants.is_empty() {
                self.claims.remove(name);
            }
        }
    }

    /// Who has the right to a name: whoever is set up under it, else whose configuration is older.
    pub(super) fn name_taken_by(&self, uuid: Uuid, name: &str) -> Option<Uuid> {
        let rank = |claimant: &Uuid| {
            let record = self.replica.entry(*claimant, EdgeClusterSetup::slug());
            let record = record.and_then(|entry| entry.parse::<EdgeClusterSetup>().ok());
            let record = record.or_else(|| self.clusters.get(claimant)?.orphan.clone());
            let is_set_up = record.and_then(|record| record.spec).is_some_and(|spec| spec.name == name);
            let revision = self.replica.entry(*claimant, EdgeCluster::slug()).map_or(u64::MAX, |entry| entry.revision);
            (!is_set_up, revision, *claimant)
        };
        let first = self.claims.get(name)?.iter().copied().min_by_key(rank)?;
        (first != uuid).then_some(first)
    }

    /// Puts a deployment on its cluster.
    fn place(&mut self, uuid: Uuid, entry: Option<&Entry>) {
        let parsed = entry.map(|entry| (entry.parse::<EdgeDeployment>().map_err(|error| error.to_string()), entry));
        if self.unattributed.remove(&uuid).is_some() {
            self.dirty.extend(self.clusters.keys());
        }
        let cluster = match &parsed {
            Some((Ok(deployment), _)) => Some(deployment.cluster),
            // What can be read of it decides whose workload it is, so that it is not taken for deleted.
            Some((Err(reason), entry)) => {
                let named = serde_json::from_str::<JsonObject>(&entry.json).ok();
                let named = named.and_then(|object| object.get("cluster").and_then(Value::as_str)?.parse().ok());
                let cluster = named.or_else(|| self.placed.get(&uuid).copied());
                if cluster.is_none() {
                    self.unattributed.insert(uuid, reason.clone());
                    self.dirty.extend(self.clusters.keys());
                }
                cluster
            }
            None => None,
        };
        if let Some(before) = self.placed.get(&uuid).copied().filter(|before| Some(*before) != cluster) {
            self.remove_deployment(before, uuid);
        }
        let (Some(cluster), Some((entry, _))) = (cluster, parsed) else { return };
        self.placed.insert(uuid, cluster);
        let deployment = self.deployments.entry(cluster).or_default().entry(uuid).or_insert_with(|| Deployment {
            entry: Err(String::new()),
            k8s_name: String::new(),
            conflict: None,
            intent: DeploymentIntent::Unrenderable(String::new()),
            rendered_from: BTreeSet::new(),
        });
        deployment.entry = entry;
        self.stale(cluster, uuid);
        if let Some(cluster) = self.clusters.get_mut(&cluster) {
            cluster.edge.names_stale = true;
        }
    }

    fn remove_deployment(&mut self, cluster: Uuid, uuid: Uuid) {
        self.placed.remove(&uuid);
        let Some(on_cluster) = self.deployments.get_mut(&cluster) else { return };
        if let Some(deployment) = on_cluster.remove(&uuid) {
            for object in &deployment.rendered_from {
                depend(&mut self.dependents, *object, (cluster, Some(uuid)), false);
            }
        }
        if on_cluster.is_empty() {
            self.deployments.remove(&cluster);
        }
        if let Some(known) = self.clusters.get_mut(&cluster) {
            known.edge.stale.remove(&uuid);
            known.edge.names_stale = true;
            self.dirty.insert(cluster);
        }
    }

    fn mark_stale(&mut self, deployment: Uuid) {
        if let Some(cluster) = self.placed.get(&deployment).copied() {
            self.stale(cluster, deployment);
        }
    }

    fn stale(&mut self, cluster: Uuid, deployment: Uuid) {
        if let Some(known) = self.clusters.get_mut(&cluster) {
            known.edge.stale.insert(deployment);
            self.dirty.insert(cluster);
        }
    }

    fn on_touched(&mut self, touched: Affected) {
        let object = match touched {
            Affected::Chart(object) | Affected::Repository(object) => object,
            Affected::Repositories | Affected::Everything => {
                for (uuid, cluster) in &mut self.clusters {
                    cluster.rendered = None;
                    self.repositories.unknown(*uuid);
                    if touched == Affected::Everything {
                        cluster.edge.all_stale = true;
                        self.rollout.unknown(*uuid);
                    }
                    self.dirty.insert(*uuid);
                }
                return;
            }
        };
        for (cluster, deployment) in self.dependents.get(&object).cloned().unwrap_or_default() {
            match deployment {
                Some(deployment) => {
                    self.rollout.unknown(cluster);
                    self.stale(cluster, deployment);
                }
                None => {
                    self.repositories.unknown(cluster);
                    if let Some(known) = self.clusters.get_mut(&cluster) {
                        known.rendered = None;
                        self.dirty.insert(cluster);
                    }
                }
            }
        }
    }

    /// Notes from which objects a deployment (or a cluster's repository) is rendered.
    pub(super) fn set_dependencies(
        &mut self,
        dependent: (Uuid, Option<Uuid>),
        before: &BTreeSet<Uuid>,
        after: &BTreeSet<Uuid>,
    ) {
        for object in before.symmetric_difference(after) {
            depend(&mut self.dependents, *object, dependent, after.contains(object));
        }
    }
}

fn depend(
    dependents: &mut std::collections::BTreeMap<Uuid, BTreeSet<(Uuid, Option<Uuid>)>>,
    object: Uuid,
    dependent: (Uuid, Option<Uuid>),
    add: bool,
) {
    let of_object = dependents.entry(object).or_default();
    if add {
        of_object.insert(dependent);
    } else {
        of_object.remove(&dependent);
    }
    if of_object.is_empty() {
        dependents.remove(&object);
    }
}
