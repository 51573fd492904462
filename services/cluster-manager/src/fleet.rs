//! What the cluster manager knows of the fleet, and does not decide. It has replicas of ConfigDB, Identity, the git server, and every cluster's Sync, Join and Keys. It also knows
//! who claims which name.
//!
//! Events change it ([`FleetView::on_host_event`], [`FleetView::poll_change`]) and say whom they concern; controllers read it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use configdb_contract::Entry;
use configdb_contract::{Change, ConfigReplica, configdb_node};
use configdb_schema::address::{GIT_NODE, IDENTITY_NODE};
use configdb_schema::document::{
    EdgeClusterRecovery, EdgeClusterStatus, EdgeDeployment, GitRef, JsonObject, SealedSecret,
};
use configdb_schema::{ClusterName, Organisation};
use edge_sync_contract::{DesiredIndex, Digest, SyncReplica};
use git_server_contract::names::repository_of;
use git_server_contract::{GitDevice, GitReplica};
use identity_contract::IdentityReplica;
use join_service_contract::JoinReplica;
use krb_keys_contract::KeysReplica;
use krb_keys_contract::names::account::REQUEST;
use manifests::catalog::{self, Catalog};
use serde_json::Value;
use sparkplug::host::HostEvent;
use sparkplug::replication::{Origin, ReplicaChange};
use sparkplug::{EdgeNodeDescriptor, EdgeNodeId, GroupId, Now};
use uuid::Uuid;

use crate::setup::Edge;

/// Most nodes of each kind that are listened to; more than any organisation has clusters.
const NODES_MAX: usize = 20_000;

/// A Sync that was ever born.
#[derive(Debug, Clone)]
pub struct Sync {
    /// What it says.
    pub replica: SyncReplica,
    /// UTC ms since when it is alive, or not.
    pub since: Option<u64>,
    /// `Now::mono` at which it died, or at which something of it was missed: it may have died since.
    lost_at: Option<Duration>,
    /// `Now::mono` of the first request for its birth since then, in this session of the host: only who was asked can be said not to answer.
    asked_at: Option<Duration>,
    /// Something of it was missed, and it was not born again in time.
    is_given_up: bool,
}

impl Sync {
    fn new(address: EdgeNodeDescriptor) -> Self {
        Self { replica: SyncReplica::new(address), since: None, lost_at: None, asked_at: None, is_given_up: false }
    }

    /// Born, not dead as far as is known, and not away for so long that it must be.
    pub const fn is_alive(&self) -> bool {
        self.replica.is_alive() && !self.is_given_up
    }

    /// Alive, and nothing of it was missed.
    pub const fn is_current(&self) -> bool {
        self.replica.is_current()
    }

    /// Takes an event over; true if something was about it.
    fn on_event(&mut self, event: &HostEvent, now: Now) -> bool {
        let (was_alive, was_current) = (self.is_alive(), self.is_current());
        let change = self.replica.on_event(event);
        let asked_at = self.asked_at;
        if self.is_current() {
            self.lost_at = None;
            self.asked_at = None;
            self.is_given_up = false;
        } else if was_current || was_alive && !self.replica.is_alive() {
            self.lost_at = Some(now.mono);
            self.asked_at = None;
        }
        match event {
            HostEvent::Offline { .. } => self.asked_at = None,
            HostEvent::RebirthRequested { .. } if !self.is_current() => {
                self.asked_at = self.asked_at.or(Some(now.mono));
            }
            _ => {}
        }
        if self.is_alive() != was_alive {
            self.since = Some(now.wall);
        }
        if let Some(ReplicaChange::Other(device)) = &change {
            tracing::debug!(node = %self.replica.address(), device_id = %device, "a device of Sync cannot be used");
        }
        change.is_some() || self.asked_at != asked_at
    }

    /// `Now::mono` since when nothing was received of it though it should have been, in a session of the host that began then. None: it is current, or was not asked yet.
    fn silent_since(&self, online_since: Duration) -> Option<Duration> {
        if self.is_current() {
            return None;
        }
        let lost_at = self.lost_at.unwrap_or_default();
        let died_in_this_session = !self.replica.is_alive() && lost_at >= online_since;
        if died_in_this_session { Some(lost_at) } else { self.asked_at }
    }
}

/// Whom an event of a cluster's own nodes concerns.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Affected {
    /// Clusters that have something to do.
    pub clusters: BTreeSet<Uuid>,
    /// Clusters whose Sync is being born: what is to be done for them shows when the births of its Devices are there.
    pub incomplete: BTreeSet<Uuid>,
    /// Of them those whose Keys node wants other accounts than before.
    pub accounts: BTreeSet<Uuid>,
}

/// On which cluster a deployment was and is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placement {
    /// Before its entry changed.
    pub before: Option<Uuid>,
    /// As far as its entry says.
    pub now: Option<Uuid>,
}

/// See the module.
#[derive(Debug)]
pub struct FleetView {
    organisation: Organisation,
    /// How long a Sync must be away before it counts as gone.
    away: Duration,
    config: ConfigReplica,
    /// Newest revision of an entry seen. It runs ahead of the replica's revision within a turn of ConfigDB, whose data come before its revision.
    newest_revision: u64,
    /// The replica was complete once, with this store.
    is_known: bool,
    catalog: Catalog,
    /// Clusters that are or want to be called so.
    claims: BTreeMap<String, BTreeSet<Uuid>>,
    /// On which cluster a deployment is.
    deployments: BTreeMap<Uuid, Uuid>,
    /// Sealed secrets, by their cluster and their object.
    secrets: BTreeMap<(Uuid, Uuid), Arc<SealedSecret>>,
    /// Of which cluster a sealed secret is.
    cluster_of_secret: BTreeMap<Uuid, Uuid>,
    /// Of which cluster an account of the set-up is.
    accounts: BTreeMap<Uuid, Uuid>,
    /// Where clusters stay in git repositories; of those that stay anywhere.
    pins: BTreeMap<Uuid, BTreeMap<Uuid, GitRef>>,
    no_pins: BTreeMap<Uuid, GitRef>,
    /// By the name of the cluster.
    syncs: BTreeMap<String, Sync>,
    joins: BTreeMap<String, JoinReplica>,
    keys: BTreeMap<String, KeysReplica>,
    /// Clusters whose Sync is alive, and which nothing in ConfigDB claims; by name.
    unknown: BTreeMap<String, Uuid>,
    identity: IdentityReplica,
    git: GitReplica,
    /// The Host Application's session is up since then.
    online_since: Option<Duration>,
}

impl FleetView {
    /// Nothing is known. `away`: how long a Sync must be away before it counts as gone.
    pub fn new(organisation: Organisation, away: Duration) -> Self {
        let config = ConfigReplica::new(configdb_node(&organisation));
        let [identity, git] = [IDENTITY_NODE, GIT_NODE].map(|id| {
            let edge_node = EdgeNodeId::new(id).expect("a constant without forbidden characters is an id");
            EdgeNodeDescriptor { edge_node, ..config.node().clone() }
        });
        let (identity, git) = (IdentityReplica::new(identity), GitReplica::new(git));
        Self {
            organisation,
            away,
            config,
            newest_revision: 0,
            is_known: false,
            catalog: Catalog::default(),
            claims: BTreeMap::new(),
            deployments: BTreeMap::new(),
            secrets: BTreeMap::new(),
            cluster_of_secret: BTreeMap::new(),
            accounts: BTreeMap::new(),
            pins: BTreeMap::new(),
            no_pins: BTreeMap::new(),
            syncs: BTreeMap::new(),
            joins: BTreeMap::new(),
            keys: BTreeMap::new(),
            unknown: BTreeMap::new(),
            identity,
            git,
            online_since: None,
        }
    }

    /// Prefix of all groups.
    pub const fn organisation(&self) -> &Organisation {
        &self.organisation
    }

    /// ConfigDB's objects and entries.
    pub const fn config(&self) -> &ConfigReplica {
        &self.config
    }

    /// Identity, as last known.
    pub const fn identity(&self) -> &IdentityReplica {
        &self.identity
    }

    /// Takes an event of Identity over; true if logins have to be sealed to another key from here on.
    pub fn on_identity_event(&mut self, event: &HostEvent) -> bool {
        let before = self.identity.key().map(str::to_owned);
        self.identity.on_event(event);
        self.identity.key().map(str::to_owned) != before
    }

    /// The git server, as last known.
    pub const fn git(&self) -> &GitReplica {
        &self.git
    }

    /// Takes an event of the git server over. True: branch `main` of the copy that it is about has moved.
    pub fn on_git_event(&mut self, event: &HostEvent) -> Option<(ReplicaChange<GitDevice>, bool)> {
        let repository = match event {
            HostEvent::DeviceBirth { device, .. } | HostEvent::DeviceData { device, .. } => repository_of(device),
            _ => None,
        };
        let main = |git: &GitReplica| git.devices().repositories.get(&repository?)?.commit.clone();
        let before = main(&self.git);
        let change = self.git.on_event(event)?;
        Some((change, main(&self.git) != before))
    }

    /// Whether clusters can fetch that commit of a repository from the git server, as far as it was received. One that is away may come back with an older disk, or an empty one.
    pub fn is_served(&self, repository: Uuid, commit: &str) -> bool {
        let copy = self.git.devices().repositories.get(&repository).filter(|_| self.git.is_current());
        copy.is_some_and(|copy| copy.commit.as_deref() == Some(commit))
    }

    /// Templates and repositories, read.
    pub const fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// ConfigDB was known completely once, with this store. Without that nothing may be concluded.
    pub const fn is_known(&self) -> bool {
        self.is_known
    }

    /// ConfigDB is known completely now.
    pub const fn is_ready(&self) -> bool {
        self.is_known && self.config.is_complete()
    }

    /// The newest revision of the store that was seen.
    pub fn revision(&self) -> u64 {
        self.config.revision().max(self.newest_revision)
    }

    /// Takes an event over. What it changed in ConfigDB is to be taken by [`Self::poll_change`] first.
    pub fn on_host_event(&mut self, event: &HostEvent, now: Now) {
        match event {
            HostEvent::Online => self.online_since = Some(now.mono),
            HostEvent::Offline { .. } => {
                self.online_since = None;
                for sync in self.syncs.values_mut() {
                    sync.on_event(event, now);
                }
                self.look_for_all_unknown();
                for join in self.joins.values_mut() {
                    join.on_event(event);
                }
                for keys in self.keys.values_mut() {
                    keys.on_event(event);
                }
            }
            _ => {}
        }
        self.config.on_event(event);
    }

    /// The next change of ConfigDB.
    pub fn poll_change(&mut self) -> Option<Change> {
        let change = self.config.poll_change();
        if matches!(change, Some(Change::StoreReplaced { .. })) {
            self.is_known = false;
        }
        change
    }

    /// Everything is learnt again: from here on ConfigDB is known completely, and its entries are given one by one.
    pub fn rebuild(&mut self) {
        self.is_known = true;
        self.catalog = Catalog::default();
        self.claims.clear();
        self.deployments.clear();
        self.secrets.clear();
        self.cluster_of_secret.clear();
        self.accounts.clear();
        self.pins.clear();
    }

    /// Takes an entry over; None: there is none. Says what the templates among them affect.
    pub fn on_entry(&mut self, object: Uuid, slug: &str, new: Option<&Entry>) -> Option<catalog::Affected> {
        self.newest_revision = self.newest_revision.max(new.map_or(0, |entry| entry.revision));
        self.catalog.set(object, slug, new.map(|entry| &*entry.json))
    }

    /// Takes the entry of a sealed secret over. Says of which clusters it was and is; one that cannot be read changes nothing.
    pub fn on_secret(&mut self, object: Uuid, new: Option<&Entry>) -> BTreeSet<Uuid> {
        let secret = match new.map(Entry::parse::<SealedSecret>).transpose() {
            Ok(secret) => secret,
            Err(error) => {
                tracing::warn!(object_id = %object, error = %error, "SealedSecret cannot be read; what was written of it stays");
                return BTreeSet::new();
            }
        };
        let before = self.cluster_of_secret.remove(&object);
        if let Some(cluster) = before {
            self.secrets.remove(&(cluster, object));
        }
        let after = secret.as_ref().map(|secret| secret.cluster);
        self.cluster_of_secret.extend(after.map(|cluster| (object, cluster)));
        self.secrets.extend(secret.map(|secret| ((secret.cluster, object), Arc::new(secret))));
        before.into_iter().chain(after).collect()
    }

    /// What ConfigDB has of a cluster's secrets.
    pub fn secrets(&self, cluster: Uuid) -> Vec<Arc<SealedSecret>> {
        let of_cluster = self.secrets.range((cluster, Uuid::nil())..=(cluster, Uuid::max()));
        of_cluster.map(|(_, secret)| Arc::clone(secret)).collect()
    }

    /// Takes an event of a cluster's Sync over.
    pub fn on_sync_event(&mut self, node: &EdgeNodeDescriptor, event: &HostEvent, now: Now) -> Affected {
        let Some(name) = self.organisation.cluster_of_group(node.group.as_str()).map(String::from) else {
            return Affected::default();
        };
        let fresh = || Sync::new(node.clone());
        let Some(sync) = admitted(&mut self.syncs, &name, event, fresh) else { return Affected::default() };
        let has_changed = sync.on_event(event, now);
        let is_incomplete = sync.is_current() && !sync.replica.is_complete();
        let claimants = if has_changed { self.claimants(&name) } else { BTreeSet::new() };
        self.look_for_unknown(&name);
        if is_incomplete {
            Affected { incomplete: claimants, ..Affected::default() }
        } else {
            Affected { clusters: claimants, ..Affected::default() }
        }
    }

    /// Clusters whose Sync is alive, and which ConfigDB does not have, by name. After a loss of ConfigDB these are the ones that can be adopted.
    pub const fn unknown(&self) -> &BTreeMap<String, Uuid> {
        &self.unknown
    }

    /// Everything was learnt again: looks which Syncs are of clusters that ConfigDB does not have.
    pub fn look_for_all_unknown(&mut self) {
        let names: Vec<String> = self.syncs.keys().cloned().collect();
        names.iter().for_each(|name| self.look_for_unknown(name));
    }

    fn look_for_unknown(&mut self, name: &str) {
        let sync = self.syncs.get(name).filter(|sync| sync.is_alive() && self.is_known);
        let uuid = sync.and_then(|sync| sync.replica.node()).map(|node| node.cluster_uuid);
        let is_claimed = |uuid: &Uuid| self.claims.get(name).is_some_and(|claimants| claimants.contains(uuid));
        match uuid.filter(|uuid| !is_claimed(uuid)) {
            Some(uuid) => drop(self.unknown.insert(name.to_owned(), uuid)),
            None => drop(self.unknown.remove(name)),
        }
    }

    /// Takes an event of a cluster's Join over.
    pub fn on_join_event(&mut self, node: &EdgeNodeDescriptor, event: &HostEvent) -> Affected {
        let Some(name) = self.organisation.cluster_of_group(node.group.as_str()).map(String::from) else {
            return Affected::default();
        };
        let fresh = || JoinReplica::new(node.clone());
        let Some(join) = admitted(&mut self.joins, &name, event, fresh) else { return Affected::default() };
        let clusters = if join.on_event(event).is_some() { self.claimants(&name) } else { BTreeSet::new() };
        Affected { clusters, ..Affected::default() }
    }

    /// Takes an event of a cluster's Keys node over.
    pub fn on_keys_event(&mut self, node: &EdgeNodeDescriptor, event: &HostEvent) -> Affected {
        let Some(name) = self.organisation.cluster_of_group(node.group.as_str()).map(String::from) else {
            return Affected::default();
        };
        let fresh = || KeysReplica::new(node.clone());
        let Some(keys) = admitted(&mut self.keys, &name, event, fresh) else { return Affected::default() };
        let was_complete = keys.is_complete();
        keys.on_event(event);
        // That it shows an answer changes nothing of what it wants.
        let wants_other = match event {
            HostEvent::DeviceData { metrics, .. } => metrics.iter().any(|metric| &*metric.name == REQUEST),
            HostEvent::NodeData { .. } => keys.is_complete() != was_complete,
            _ => true,
        };
        let clusters = self.claimants(&name);
        let accounts = if wants_other { clusters.clone() } else { BTreeSet::new() };
        Affected { clusters, accounts, ..Affected::default() }
    }

    /// On which cluster a deployment is, as far as its entry says.
    pub fn cluster_of_deployment(&self, deployment: Uuid) -> Option<Uuid> {
        self.deployments.get(&deployment).copied()
    }

    /// The entry of a deployment changed.
    pub fn place(&mut self, deployment: Uuid, entry: Option<&Entry>) -> Placement {
        let before = self.cluster_of_deployment(deployment);
        let now = entry.and_then(|entry| match entry.parse::<EdgeDeployment>() {
            Ok(deployment) => Some(deployment.cluster),
            // What can be read of it decides whose workload it is, so that it is not taken for deleted.
            Err(_) => {
                let object = serde_json::from_str::<JsonObject>(&entry.json).ok();
                object.and_then(|object| object.get("cluster").and_then(Value::as_str)?.parse().ok()).or(before)
            }
        });
        match now {
            Some(cluster) => self.deployments.insert(deployment, cluster),
            None => self.deployments.remove(&deployment),
        };
        Placement { before, now }
    }

    /// Where a cluster stays in git repositories.
    pub fn pins(&self, uuid: Uuid) -> &BTreeMap<Uuid, GitRef> {
        self.pins.get(&uuid).unwrap_or(&self.no_pins)
    }

    /// Where a cluster stays in git repositories has changed.
    pub fn set_pins(&mut self, uuid: Uuid, pins: BTreeMap<Uuid, GitRef>) {
        if pins.is_empty() {
            self.pins.remove(&uuid);
        } else {
            self.pins.insert(uuid, pins);
        }
    }

    /// The cluster whose set-up made an account.
    pub fn cluster_of_account(&self, account: Uuid) -> Option<Uuid> {
        self.accounts.get(&account).copied()
    }

    /// The set-up of a cluster makes that account.
    pub fn add_account(&mut self, account: Uuid, cluster: Uuid) {
        self.accounts.insert(account, cluster);
    }

    /// Nothing is left of a cluster.
    pub fn remove_accounts(&mut self, cluster: Uuid) {
        self.accounts.retain(|_, of| *of != cluster);
    }

    /// Clusters that are or want to be called so.
    pub fn claimants(&self, name: &str) -> BTreeSet<Uuid> {
        self.claims.get(name).cloned().unwrap_or_default()
    }

    /// A cluster is or wants to be called otherwise than before. Says who has or had one of the names, and may have waited for one.
    pub fn set_claims(&mut self, uuid: Uuid, before: &BTreeSet<String>, names: &BTreeSet<String>) -> BTreeSet<Uuid> {
        let mut affected = BTreeSet::new();
        for name in before.symmetric_difference(names) {
            let claimants = self.claims.entry(name.clone()).or_default();
            affected.extend(claimants.iter().copied());
            if names.contains(name) {
                claimants.insert(uuid);
            } else {
                claimants.remove(&uuid);
            }
            if claimants.is_empty() {
                self.claims.remove(name);
            }
            self.look_for_unknown(name);
        }
        affected
    }

    /// Of a cluster that nothing claims any more, what its nodes say is dropped: a later reader has to receive their births. Says which nodes that are.
    pub fn forget_unclaimed(&mut self, name: &str) -> Vec<EdgeNodeDescriptor> {
        if self.claims.contains_key(name) {
            return Vec::new();
        }
        self.joins.remove(name);
        self.keys.remove(name);
        let nodes = [self.sync_node(name), self.join_node(name), self.keys_node(name)];
        nodes.into_iter().flatten().collect()
    }

    /// A node is not asked for its birth any more. The death of a Sync may go unheard from here on, so what is known of it is dropped.
    pub fn forget(&mut self, node: &EdgeNodeDescriptor) {
        // A Join without a policy is not waited for, but still gets the message that there is none.
        if node.edge_node.as_str() == edge_sync_contract::names::EDGE_NODE_ID
            && let Some(name) = self.organisation.cluster_of_group(node.group.as_str())
        {
            self.syncs.remove(name.as_str());
            self.unknown.remove(name.as_str());
        }
    }

    fn group(&self, cluster: &str) -> Option<GroupId> {
        GroupId::new(self.organisation.cluster_group(&ClusterName::new(cluster).ok()?)).ok()
    }

    /// The Sync node of a cluster of that name.
    pub fn sync_node(&self, cluster: &str) -> Option<EdgeNodeDescriptor> {
        self.group(cluster).map(edge_sync_contract::names::sync_node)
    }

    /// The Join node of a cluster of that name.
    pub fn join_node(&self, cluster: &str) -> Option<EdgeNodeDescriptor> {
        self.group(cluster).map(join_service_contract::join_node)
    }

    /// The Keys node of a cluster of that name.
    pub fn keys_node(&self, cluster: &str) -> Option<EdgeNodeDescriptor> {
        self.group(cluster).map(krb_keys_contract::names::keys_node)
    }

    /// The Sync of a cluster, if it says that it is that cluster's.
    pub fn sync_of(&self, uuid: Uuid, name: &str) -> Option<&Sync> {
        self.syncs.get(name).filter(|sync| sync.replica.node().is_some_and(|node| node.cluster_uuid == uuid))
    }

    /// The Join node of a cluster, if it says that it is that cluster's.
    pub fn join_of(&self, uuid: Uuid, name: &str) -> Option<&JoinReplica> {
        self.joins.get(name).filter(|join| join.node().is_some_and(|node| node.cluster_uuid == uuid))
    }

    /// The Keys node of a cluster, if it says that it is that cluster's and is known completely.
    pub fn keys_of(&self, uuid: Uuid, name: &str) -> Option<&KeysReplica> {
        let keys = self.keys.get(name).filter(|keys| keys.node().is_some_and(|node| node.cluster == uuid));
        keys.filter(|keys| keys.is_complete())
    }

    /// What is wrong if another cluster's Sync speaks in this cluster's group.
    pub fn foreign_sync(&self, uuid: Uuid, name: &str) -> Option<String> {
        let sync = self.syncs.get(name).filter(|sync| sync.is_alive())?;
        let other = sync.replica.node()?.cluster_uuid;
        (other != uuid).then(|| {
            format!("the Sync in this cluster's group says that it is of cluster {other}; bootstrap the edge again")
        })
    }

    /// The certificate that a cluster's Sync reports; of one that is away the last that it did.
    pub fn sealing_certificate(&self, uuid: Uuid, name: &str) -> Option<String> {
        let reported = self.sync_of(uuid, name).and_then(|sync| sync.replica.node()?.sealing_certificate.clone());
        reported.or_else(|| self.config.document::<EdgeClusterStatus>(uuid).ok().flatten()?.kubeseal_cert)
    }

    /// What is left of a cluster at its edge.
    pub fn edge_left(&self, uuid: Uuid, name: Option<&str>, now: Now) -> Edge {
        let Some(name) = name else { return Edge::Away };
        match self.syncs.get(name).filter(|sync| sync.is_current()) {
            Some(sync) if self.sync_of(uuid, name).is_none() => {
                // Of another cluster: nothing of this one is there.
                if sync.replica.node().is_some() { Edge::Away } else { Edge::Unknown }
            }
            Some(sync) if !sync.replica.is_complete() => Edge::Unknown,
            Some(sync) => {
                let left = sync.replica.devices().deployments.len();
                let deployments = BTreeMap::new();
                let empty = DesiredIndex {
                    version: 0,
                    deployments,
                    origin: None,
                    follows: None,
                    decided_for: None,
                    entries: None,
                    names: BTreeMap::new(),
                };
                let accepted = sync.replica.node().is_some_and(|node| node.desired_digest == Some(empty.digest()));
                if left == 0 && accepted { Edge::Empty } else { Edge::Busy(left) }
            }
            None if self.is_away(name, now) => Edge::Away,
            None => Edge::Unknown,
        }
    }

    /// Since when a Sync is not current; None: it is, the own session is down, or it has not been asked for its birth since.
    pub fn lost_at(&self, name: &str) -> Option<Duration> {
        let online_since = self.online_since?;
        self.syncs.get(name).map_or(Some(online_since), |sync| sync.silent_since(online_since))
    }

    /// When a Sync that is not current counts as away. None: see [`Self::lost_at`].
    pub fn away_at(&self, name: &str) -> Option<Duration> {
        Some(self.lost_at(name)? + self.away)
    }

    /// Whether a Sync counts as away.
    pub fn is_away(&self, name: &str, now: Now) -> bool {
        self.away_at(name).is_some_and(|at| at <= now.mono)
    }

    /// When a Sync of which something was missed is given up, unless it is born before. None: there is nothing to give up.
    pub fn give_up_at(&self, name: &str) -> Option<Duration> {
        self.syncs.get(name).filter(|sync| sync.is_alive() && !sync.is_current())?;
        self.away_at(name)
    }

    /// Gives a Sync up of which something was missed and that was not born in time: it died unheard, while the own session was down.
    pub fn give_up(&mut self, name: &str, now: Now) {
        if self.give_up_at(name).is_some_and(|at| at <= now.mono)
            && let Some(sync) = self.syncs.get_mut(name)
        {
            sync.is_given_up = true;
            sync.since = Some(now.wall);
        }
    }

    /// Where that comes from which a cluster is sent: this store, at the epoch that an operator released the cluster to.
    pub fn origin(&self, uuid: Uuid) -> Option<Origin> {
        self.config.origin(self.released(uuid).map_or(0, |recovery| recovery.epoch))
    }

    /// Digest of the index that the cluster's edge had accepted when an operator decided that it follows this store.
    pub fn decided_for(&self, uuid: Uuid) -> Option<Digest> {
        self.released(uuid)?.accepted?.parse().ok()
    }

    fn released(&self, uuid: Uuid) -> Option<EdgeClusterRecovery> {
        let recovery = self.config.document::<EdgeClusterRecovery>(uuid).unwrap_or_else(|error| {
            tracing::warn!(cluster_id = %uuid, error = %error, "EdgeClusterRecovery cannot be read; the cluster is not released");
            None
        });
        recovery.filter(|recovery| Some(recovery.store) == self.config.store())
    }
}

/// The copy of a cluster's node. The first birth makes one, as long as there are not too many.
fn admitted<'a, T>(
    nodes: &'a mut BTreeMap<String, T>,
    name: &str,
    event: &HostEvent,
    fresh: impl FnOnce() -> T,
) -> Option<&'a mut T> {
    if !nodes.contains_key(name) && nodes.len() < NODES_MAX && matches!(event, HostEvent::NodeBirth { .. }) {
        nodes.insert(name.to_owned(), fresh());
    }
    nodes.get_mut(name)
}
