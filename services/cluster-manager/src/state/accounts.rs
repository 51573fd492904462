//! The accounts of clusters: what each Keys node wants, what ConfigDB has, and the answers until the Keys node shows them.
//!
//! Nothing is removed because a Keys node is dead, was missed in part, or because ConfigDB is not known completely.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use configdb_contract::{Entry, WriteRequest};
use configdb_schema::document::{EdgeAccount, Info, SparkplugAddress};
use configdb_schema::{ClusterName, Document, Organisation};
use krb_keys_contract::names::account::WISH;
use krb_keys_contract::names::{account_device, keys_node};
use krb_keys_contract::{Answer, KeysReplica};
use sparkplug::host::{HostEvent, HostRequest};
use sparkplug::{EdgeNodeDescriptor, GroupId, Now};
use uuid::Uuid;

use super::ClusterManager;
use super::cluster::Wait;
use super::repeat::Repeat;
use crate::accounts::{self, Facts, Object, Plan};
use crate::event::Effect;

/// Most Keys nodes that are listened to; more than any organisation has clusters.
const KEYS_MAX: usize = 20_000;

/// Accounts of one cluster that are written at the same time.
const WRITES_MAX: usize = 16;

/// What is under way for the accounts of one cluster.
#[derive(Debug, Clone)]
pub struct AccountsState {
    /// Something that the plan depends on has changed.
    stale: bool,
    /// It was served when it was looked at last.
    served: bool,
    plan: Plan,
    /// Requests to ConfigDB without an answer, by the object.
    requests: BTreeMap<String, Uuid>,
    /// Why ConfigDB refused an object.
    refused: BTreeMap<Uuid, String>,
    wait: Wait,
    /// Answers that the edge does not show yet.
    sent: BTreeMap<String, Repeat<Answer>>,
    /// The Keys node, if that was asked to be born.
    pub expecting: Option<EdgeNodeDescriptor>,
    retry: (Duration, Duration),
    seed: u64,
}

impl AccountsState {
    /// Nothing is known.
    pub fn new(retry: (Duration, Duration), seed: u64) -> Self {
        Self {
            stale: true,
            served: false,
            plan: Plan::default(),
            requests: BTreeMap::new(),
            refused: BTreeMap::new(),
            wait: Wait::new(retry, seed),
            sent: BTreeMap::new(),
            expecting: None,
            retry,
            seed,
        }
    }

    /// Try again what was refused, and send again what is not shown, at once.
    pub fn retry(&mut self) {
        self.stale = true;
        self.wait.forgive();
        self.sent.clear();
    }

    /// Something is being written.
    pub fn is_writing(&self) -> bool {
        !self.requests.is_empty()
    }

    /// When there is something to try or to repeat.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.wait.until().into_iter().chain(self.sent.values().map(|repeat| repeat.next)).min()
    }
}

/// The indexes of all accounts.
#[derive(Debug, Default)]
pub(super) struct AccountIndex {
    /// Accounts by cluster, as their entries say.
    of: BTreeMap<Uuid, BTreeSet<Uuid>>,
    /// The cluster of an account.
    cluster: BTreeMap<Uuid, Uuid>,
    /// Clusters whose plan depends on an object.
    dependents: BTreeMap<Uuid, BTreeSet<Uuid>>,
    /// Every Keys node that was heard, by the name of its cluster.
    keys: BTreeMap<String, KeysReplica>,
}

impl AccountIndex {
    /// Everything is to be learnt anew but what the Keys nodes say.
    pub fn forget_entries(&mut self) {
        self.of.clear();
        self.cluster.clear();
        self.dependents.clear();
    }

    /// Nobody is called so any more.
    pub fn forget_keys(&mut self, name: &str) {
        self.keys.remove(name);
    }

    fn depend(&mut self, cluster: Uuid, before: &BTreeSet<Uuid>, after: &BTreeSet<Uuid>) {
        for object in before.symmetric_difference(after) {
            let dependents = self.dependents.entry(*object).or_default();
            if after.contains(object) {
                dependents.insert(cluster);
            } else {
                dependents.remove(&cluster);
            }
            if dependents.is_empty() {
                self.dependents.remove(object);
            }
        }
    }
}

pub(super) fn node(organisation: &Organisation, cluster: &str) -> Option<EdgeNodeDescriptor> {
    let name = ClusterName::new(cluster).ok()?;
    GroupId::new(organisation.cluster_group(&name)).ok().map(keys_node)
}

impl ClusterManager {
    /// Takes an event of somebody's Keys node over.
    pub(super) fn on_keys_event(&mut self, node: &EdgeNodeDescriptor, event: &HostEvent) {
        let Some(name) = self.settings.organisation.cluster_of_group(node.group.as_str()) else { return };
        let name = String::from(name);
        if !self.edge_accounts.keys.contains_key(&name) {
            if self.edge_accounts.keys.len() >= KEYS_MAX || !matches!(event, HostEvent::NodeBirth { .. }) {
                return;
            }
            self.edge_accounts.keys.insert(name.clone(), KeysReplica::new(node.clone()));
        }
        let Some(keys) = self.edge_accounts.keys.get_mut(&name) else { return };
        let was_complete = keys.is_complete();
        keys.on_event(event);
        // That it shows an answer changes nothing of what it wants.
        let wants_other = match event {
            HostEvent::DeviceData { metrics, .. } => metrics.iter().any(|metric| &*metric.name == WISH),
            HostEvent::NodeData { .. } => keys.is_complete() != was_complete,
            _ => true,
        };
        let clusters: Vec<Uuid> = self.claims.get(&name).into_iter().flatten().copied().collect();
        for cluster in clusters {
            self.dirty.insert(cluster);
            if wants_other {
                self.mark_accounts(cluster);
            }
        }
    }

    /// The own session is down: nothing of any Keys node is known completely.
    pub(super) fn lose_keys(&mut self, event: &HostEvent) {
        for keys in self.edge_accounts.keys.values_mut() {
            keys.on_event(event);
        }
    }

    /// An `EdgeAccount` entry changed.
    pub(super) fn on_account_entry(&mut self, object: Uuid, new: Option<&Entry>) {
        let cluster = new.and_then(|entry| entry.parse::<EdgeAccount>().ok()).map(|account| account.cluster);
        let index = &mut self.edge_accounts;
        let before = match cluster {
            Some(cluster) => index.cluster.insert(object, cluster),
            None => index.cluster.remove(&object),
        };
        if let Some(before) = before.filter(|before| Some(*before) != cluster) {
            let of = index.of.entry(before).or_default();
            of.remove(&object);
            if of.is_empty() {
                index.of.remove(&before);
            }
        }
        if let Some(cluster) = cluster {
            index.of.entry(cluster).or_default().insert(object);
        }
        before.into_iter().chain(cluster).for_each(|cluster| self.mark_accounts(cluster));
    }

    /// Marks the clusters whose accounts depend on an object.
    pub(super) fn mark_dependent_accounts(&mut self, object: Uuid) {
        let dependents = self.edge_accounts.dependents.get(&object).cloned().unwrap_or_default();
        dependents.into_iter().for_each(|cluster| self.mark_accounts(cluster));
    }

    fn mark_accounts(&mut self, cluster: Uuid) {
        if let Some(known) = self.clusters.get_mut(&cluster) {
            known.accounts.stale = true;
            self.dirty.insert(cluster);
        }
    }

    /// The Keys node that is to be asked for its birth: one that has accounts is waited for.
    pub(super) fn expected_keys(&self, uuid: Uuid, name: Option<&str>) -> Option<EdgeNodeDescriptor> {
        let is_expected = self.clusters.get(&uuid)?.accounts.expecting.is_some();
        name.filter(|_| is_expected || self.edge_accounts.of.contains_key(&uuid))
            .and_then(|name| node(&self.settings.organisation, name))
    }

    /// What a tear-down has to do to the accounts of a cluster, some at a time.
    pub(super) fn account_removals(&self, uuid: Uuid) -> Vec<WriteRequest> {
        let accounts = self.edge_accounts.of.get(&uuid).into_iter().flatten();
        let removal = |account: &Uuid| accounts::removal(uuid, *account, &self.account_object(*account)?);
        accounts.filter_map(removal).take(WRITES_MAX).collect()
    }

    /// Nothing of a cluster is left.
    pub(super) fn forget_accounts(&mut self, uuid: Uuid, state: &AccountsState) {
        self.edge_accounts.depend(uuid, &state.plan.depends_on, &BTreeSet::new());
    }

    fn account_object(&self, uuid: Uuid) -> Option<Object> {
        let object = self.replica.object(uuid)?;
        let account = object.entry(EdgeAccount::slug());
        let mut member_of = object.membership.member_of.clone();
        member_of.extend(object.registration.as_ref().map(|registration| registration.class));
        Some(Object {
            member_of,
            info: object.entry(Info::slug()).and_then(|entry| entry.value().ok()),
            address: self.replica.document::<SparkplugAddress>(uuid).ok().flatten(),
            account: account.map(|entry| entry.parse().map_err(|error| error.to_string())),
            etag: account.map(|entry| entry.etag),
            deployment_of: self.placed.get(&uuid).copied(),
            set_up_for: self.accounts.get(&uuid).copied(),
        })
    }

    /// Sees to the accounts of a cluster that is set up, and tells its Keys node of them.
    pub(super) fn serve_accounts(&mut self, uuid: Uuid, name: Option<&str>, now: Now) {
        let Some(cluster) = self.clusters.get_mut(&uuid) else { return };
        let state = &mut cluster.accounts;
        if state.served != name.is_some() {
            (state.served, state.stale) = (name.is_some(), true);
        }
        let keys = name.and_then(|name| self.edge_accounts.keys.get(name));
        let keys = keys.filter(|keys| keys.node().is_some_and(|node| node.cluster == uuid) && keys.is_complete());
        let Some(name) = name.filter(|_| keys.is_some() && self.replica.is_complete()) else {
            state.sent.clear();
            return;
        };
        if state.wait.until().is_some() && state.wait.is_over(now) {
            state.wait.forgive();
            state.refused.clear();
            state.stale = true;
        }
        if state.stale && state.requests.is_empty() {
            state.stale = false;
            self.plan_accounts(uuid, name);
            self.write_accounts(uuid, now);
        }
        self.answer_accounts(uuid, name, now);
    }

    fn plan_accounts(&mut self, uuid: Uuid, name: &str) {
        let Some(keys) = self.edge_accounts.keys.get(name) else { return };
        let plan = accounts::plan(&Facts {
            cluster: uuid,
            name,
            group: keys.address().group.as_str(),
            realm: self.settings.realm.as_deref(),
            wishes: keys.accounts().iter().map(|(resource, device)| (resource.as_str(), &device.wish)).collect(),
            recorded: self.edge_accounts.of.get(&uuid).cloned().unwrap_or_default(),
            object: &|object| self.account_object(object),
        });
        let Some(cluster) = self.clusters.get_mut(&uuid) else { return };
        let before = std::mem::replace(&mut cluster.accounts.plan, plan);
        self.edge_accounts.depend(uuid, &before.depends_on, &cluster.accounts.plan.depends_on);
    }

    /// What ConfigDB has refused waits, with its reason for an answer.
    fn write_accounts(&mut self, uuid: Uuid, now: Now) {
        let Some(cluster) = self.clusters.get_mut(&uuid) else { return };
        let AccountsState { plan, refused, .. } = &mut cluster.accounts;
        for (object, reason) in refused.iter() {
            if let Some(resource) = plan.written_for.get(object) {
                plan.answers.insert(resource.clone(), Err(reason.clone()));
            }
        }
        let writes = plan.writes.iter().filter(|(object, _)| !refused.contains_key(object));
        let writes: Vec<WriteRequest> = writes.map(|(_, write)| write.clone()).take(WRITES_MAX).collect();
        for write in writes {
            let (id, object) = (self.next_request(), write.object);
            let write = WriteRequest { id: id.clone(), ..write }.by(cluster_manager_contract::names::SERVICE);
            let submitted = self.writer.submit(write, now);
            let Some(cluster) = self.clusters.get_mut(&uuid) else { return };
            match submitted {
                Ok(()) => {
                    tracing::info!(cluster_id = %uuid, object_id = %object, "an account is written");
                    cluster.accounts.requests.insert(id.clone(), object);
                    self.requests.insert(id, uuid);
                }
                Err(error) => cluster.accounts.failed(object, error.to_string(), now),
            }
        }
        self.take_writer_outputs(now);
    }

    fn answer_accounts(&mut self, uuid: Uuid, name: &str, now: Now) {
        let Some(keys) = self.edge_accounts.keys.get(name) else { return };
        let Some(cluster) = self.clusters.get_mut(&uuid) else { return };
        let AccountsState { plan, sent, retry, seed, .. } = &mut cluster.accounts;
        let mut waiting = BTreeMap::new();
        for (resource, result) in &plan.answers {
            let Some(device) = keys.accounts().get(resource) else { continue };
            let Some(id) = account_device(resource).filter(|_| !device.shows(result)) else { continue };
            let answer = Answer::new(&device.wish, result);
            let mut slot = sent.remove(resource);
            if Repeat::send(&mut slot, answer.clone(), *retry, *seed, now) {
                let (node, metrics) = (keys.address().clone(), answer.to_metrics());
                self.effects.push(Effect::Host(HostRequest::Command { node, device: Some(id), metrics }));
            }
            waiting.extend(slot.map(|repeat| (resource.clone(), repeat)));
        }
        *sent = waiting;
    }

    /// Whether the answer of ConfigDB was to an account.
    pub(super) fn on_account_written(&mut self, id: &str, refusal: Option<&str>, now: Now) -> bool {
        let Some(uuid) = self.requests.get(id).copied() else { return false };
        let Some(cluster) = self.clusters.get_mut(&uuid) else { return false };
        let Some(object) = cluster.accounts.requests.remove(id) else { return false };
        self.requests.remove(id);
        match refusal {
            None => drop(cluster.accounts.refused.remove(&object)),
            Some(reason) => {
                tracing::warn!(cluster_id = %uuid, object_id = %object, error = reason, "an account was refused");
                cluster.accounts.failed(object, reason.to_owned(), now);
            }
        }
        if cluster.accounts.refused.is_empty() {
            cluster.accounts.wait.succeeded();
        }
        self.mark_accounts(uuid);
        true
    }
}

impl AccountsState {
    fn failed(&mut self, object: Uuid, reason: String, now: Now) {
        if self.wait.until().is_none() {
            self.wait.failed(reason.clone(), now);
        }
        self.refused.insert(object, reason);
    }
}
