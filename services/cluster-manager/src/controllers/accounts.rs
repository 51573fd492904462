//! The accounts of clusters: what each Keys node wants, what ConfigDB has, and the answers until the Keys node shows them.
//!
//! Nothing is removed because a Keys node is dead, was missed in part, or because ConfigDB is not known completely.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use configdb_contract::{Entry, WriteRequest};
use configdb_schema::Document;
use configdb_schema::document::{EdgeAccount, Info, SparkplugAddress};
use krb_keys_contract::names::account_device;
use krb_keys_contract::{AccountDecision, KeysReplica};
use sparkplug::Now;
use sparkplug::host::HostRequest;
use sparkplug::replication::{Pace, Repetition};
use uuid::Uuid;

use super::{Controller, Forgotten, Pacing, Wait};
use crate::accounts::{self, AccountInputs, Object, Plan};
use crate::event::Effect;
use crate::fleet::FleetView;

/// Accounts of one cluster that are written at the same time.
const WRITES_MAX: usize = 16;

/// The accounts of all clusters.
#[derive(Debug)]
pub(crate) struct AccountsController {
    /// Of the site's KDC; None: it has none, or keeps principals by itself.
    realm: Option<String>,
    pacing: Pacing,
    clusters: BTreeMap<Uuid, Accounts>,
    /// Accounts by cluster, as their entries say.
    recorded: BTreeMap<Uuid, BTreeSet<Uuid>>,
    /// The cluster of an account, as its entry says.
    cluster_of: BTreeMap<Uuid, Uuid>,
    /// Clusters whose plan depends on an object.
    dependents: BTreeMap<Uuid, BTreeSet<Uuid>>,
    /// Requests to ConfigDB without an answer: the cluster and the object.
    requests: BTreeMap<String, (Uuid, Uuid)>,
}

/// What is under way for the accounts of one cluster.
#[derive(Debug)]
struct Accounts {
    /// Something that the plan depends on has changed.
    is_stale: bool,
    /// It was served when it was looked at last.
    is_served: bool,
    /// Requests to ConfigDB without an answer.
    writing: usize,
    plan: Plan,
    /// Why ConfigDB refused an object.
    refused: BTreeMap<Uuid, String>,
    wait: Wait,
    /// Answers that the edge does not show yet.
    sent: BTreeMap<String, Repetition<AccountDecision>>,
    pace: Pace,
}

/// What is to be done for the accounts of one cluster.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// Accounts to be written to ConfigDB; each is reported to [`AccountsController::on_submitted`].
    pub writes: Vec<WriteRequest>,
    /// Answers to the Keys node.
    pub answers: Vec<Effect>,
}

impl Accounts {
    fn new(pace: Pace) -> Self {
        Self {
            is_stale: true,
            is_served: false,
            writing: 0,
            plan: Plan::default(),
            refused: BTreeMap::new(),
            wait: Wait::new((pace.first, pace.longest), pace.seed),
            sent: BTreeMap::new(),
            pace,
        }
    }

    fn failed(&mut self, object: Uuid, reason: String, now: Now) {
        if self.wait.until().is_none() {
            self.wait.failed(reason.clone(), now);
        }
        self.refused.insert(object, reason);
    }
}

impl Controller for AccountsController {
    fn retry(&mut self, uuid: Uuid) {
        if let Some(accounts) = self.clusters.get_mut(&uuid) {
            accounts.is_stale = true;
            accounts.wait.retry_now();
            accounts.sent.clear();
        }
    }

    fn next_deadline(&self, uuid: Uuid, now: Now) -> Option<Duration> {
        let accounts = self.clusters.get(&uuid)?;
        accounts
            .wait
            .until()
            .into_iter()
            .chain(accounts.sent.values().map(Repetition::next))
            .filter(|at| *at > now.mono)
            .min()
    }

    fn clear(&mut self) {
        *self = Self::new(self.realm.take(), self.pacing);
    }

    fn forget(&mut self, uuid: Uuid) -> Forgotten {
        if let Some(accounts) = self.clusters.remove(&uuid) {
            self.depend(uuid, &accounts.plan.depends_on, &BTreeSet::new());
        }
        self.requests.retain(|_, (cluster, _)| *cluster != uuid);
        Forgotten::default()
    }
}

impl AccountsController {
    /// Nothing is known. `realm`: of the site's KDC; None: it has none, or keeps principals by itself.
    pub(crate) const fn new(realm: Option<String>, pacing: Pacing) -> Self {
        Self {
            realm,
            pacing,
            clusters: BTreeMap::new(),
            recorded: BTreeMap::new(),
            cluster_of: BTreeMap::new(),
            dependents: BTreeMap::new(),
            requests: BTreeMap::new(),
        }
    }

    fn of(&mut self, uuid: Uuid) -> &mut Accounts {
        let pace = self.pacing.of(uuid, 43);
        self.clusters.entry(uuid).or_insert_with(|| Accounts::new(pace))
    }

    /// An `EdgeAccount` entry changed. Says whose accounts are concerned.
    pub(crate) fn on_entry(&mut self, object: Uuid, new: Option<&Entry>) -> Vec<Uuid> {
        let cluster = new.and_then(|entry| entry.parse::<EdgeAccount>().ok()).map(|account| account.cluster);
        let before = match cluster {
            Some(cluster) => self.cluster_of.insert(object, cluster),
            None => self.cluster_of.remove(&object),
        };
        if let Some(before) = before.filter(|before| Some(*before) != cluster) {
            let of = self.recorded.entry(before).or_default();
            of.remove(&object);
            if of.is_empty() {
                self.recorded.remove(&before);
            }
        }
        if let Some(cluster) = cluster {
            self.recorded.entry(cluster).or_default().insert(object);
        }
        let concerned: Vec<Uuid> = before.into_iter().chain(cluster).collect();
        concerned.iter().for_each(|cluster| self.mark(*cluster));
        concerned
    }

    /// An object changed. Says whose accounts depend on it.
    pub(crate) fn on_object(&mut self, object: Uuid) -> BTreeSet<Uuid> {
        let dependents = self.dependents.get(&object).cloned().unwrap_or_default();
        dependents.iter().for_each(|cluster| self.mark(*cluster));
        dependents
    }

    /// Something that the accounts of the cluster depend on has changed.
    pub(crate) fn mark(&mut self, uuid: Uuid) {
        if let Some(accounts) = self.clusters.get_mut(&uuid) {
            accounts.is_stale = true;
        }
    }

    /// Whether the Keys node of a cluster is to be asked for its birth: one that has accounts is waited for.
    pub(crate) fn waits_for_keys(&self, uuid: Uuid) -> bool {
        self.recorded.contains_key(&uuid)
    }

    /// Something is being written for a cluster.
    pub(crate) fn is_writing(&self, uuid: Uuid) -> bool {
        self.clusters.get(&uuid).is_some_and(|accounts| accounts.writing > 0)
    }

    /// What a tear-down has to do to the accounts of a cluster, some at a time.
    pub(crate) fn removals(&self, fleet: &FleetView, uuid: Uuid) -> Vec<WriteRequest> {
        let accounts = self.recorded.get(&uuid).into_iter().flatten();
        let removal = |account: &Uuid| accounts::removal(uuid, *account, &account_object(fleet, *account)?);
        accounts.filter_map(removal).take(WRITES_MAX).collect()
    }

    /// Manages the accounts of a cluster, and answers its Keys node. `name`: of a cluster that is set up.
    pub(crate) fn reconcile(&mut self, fleet: &FleetView, uuid: Uuid, name: Option<&str>, now: Now) -> Outcome {
        let accounts = self.of(uuid);
        if accounts.is_served != name.is_some() {
            (accounts.is_served, accounts.is_stale) = (name.is_some(), true);
        }
        let served = name.and_then(|name| Some((name, fleet.keys_of(uuid, name)?)));
        let Some((name, keys)) = served.filter(|_| fleet.config().is_complete()) else {
            accounts.sent.clear();
            return Outcome::default();
        };
        if accounts.wait.until().is_some() && accounts.wait.is_over(now) {
            accounts.wait.retry_now();
            accounts.refused.clear();
            accounts.is_stale = true;
        }
        let mut writes = Vec::new();
        if accounts.is_stale && accounts.writing == 0 {
            accounts.is_stale = false;
            writes = self.plan(fleet, uuid, name, keys);
        }
        Outcome { writes, answers: self.answer(uuid, keys, now) }
    }

    /// Plans, and says what to write. What ConfigDB has refused waits, with its reason for an answer.
    fn plan(&mut self, fleet: &FleetView, uuid: Uuid, name: &str, keys: &KeysReplica) -> Vec<WriteRequest> {
        let plan = accounts::plan(&AccountInputs {
            cluster: uuid,
            name,
            group: keys.address().group.as_str(),
            realm: self.realm.as_deref(),
            requests: keys.devices().iter().map(|(resource, device)| (resource.as_str(), &device.request)).collect(),
            recorded: self.recorded.get(&uuid).cloned().unwrap_or_default(),
            object: &|object| account_object(fleet, object),
        });
        let after = plan.depends_on.clone();
        let accounts = self.of(uuid);
        let before = std::mem::replace(&mut accounts.plan, plan).depends_on;
        let Accounts { plan, refused, .. } = accounts;
        for (object, reason) in refused.iter() {
            if let Some(resource) = plan.written_for.get(object) {
                plan.answers.insert(resource.clone(), Err(reason.clone()));
            }
        }
        let writes = plan.writes.iter().filter(|(object, _)| !refused.contains_key(object));
        let writes = writes.map(|(_, write)| write.clone()).take(WRITES_MAX).collect();
        self.depend(uuid, &before, &after);
        writes
    }

    fn answer(&mut self, uuid: Uuid, keys: &KeysReplica, now: Now) -> Vec<Effect> {
        let Accounts { plan, sent, pace, .. } = self.of(uuid);
        let (mut waiting, mut answers) = (BTreeMap::new(), Vec::new());
        for (resource, result) in &plan.answers {
            let Some(device) = keys.devices().get(resource) else { continue };
            let Some(id) = account_device(resource).filter(|_| !device.shows(result)) else { continue };
            let answer = AccountDecision::new(&device.request, result);
            let mut slot = sent.remove(resource);
            if Repetition::send(&mut slot, answer.clone(), *pace, now) {
                let (node, metrics) = (keys.address().clone(), answer.to_metrics());
                answers.push(Effect::Host(HostRequest::Command { node, device: Some(id), metrics }));
            }
            waiting.extend(slot.map(|repetition| (resource.clone(), repetition)));
        }
        *sent = waiting;
        answers
    }

    /// A write of [`Outcome::writes`] was submitted under an id, or could not be.
    pub(crate) fn on_submitted(&mut self, uuid: Uuid, object: Uuid, submitted: Result<String, String>, now: Now) {
        match submitted {
            Ok(id) => {
                tracing::info!(cluster_id = %uuid, object_id = %object, "an account is written");
                self.requests.insert(id, (uuid, object));
                self.of(uuid).writing += 1;
            }
            Err(reason) => self.of(uuid).failed(object, reason, now),
        }
    }

    /// ConfigDB has answered a request. Says whose account it was about; None: it was not about an account.
    pub(crate) fn on_written(&mut self, id: &str, refusal: Option<&str>, now: Now) -> Option<Uuid> {
        let (uuid, object) = self.requests.remove(id)?;
        let accounts = self.of(uuid);
        accounts.writing = accounts.writing.saturating_sub(1);
        match refusal {
            None => drop(accounts.refused.remove(&object)),
            Some(reason) => {
                tracing::warn!(cluster_id = %uuid, object_id = %object, error = reason, "an account was refused");
                accounts.failed(object, reason.to_owned(), now);
            }
        }
        if accounts.refused.is_empty() {
            accounts.wait.succeeded();
        }
        accounts.is_stale = true;
        Some(uuid)
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

fn account_object(fleet: &FleetView, uuid: Uuid) -> Option<Object> {
    let object = fleet.config().object(uuid)?;
    let account = object.entry(EdgeAccount::slug());
    let mut member_of = object.membership.member_of.clone();
    member_of.extend(object.registration.as_ref().map(|registration| registration.class));
    Some(Object {
        member_of,
        info: object.entry(Info::slug()).and_then(|entry| entry.value().ok()),
        address: fleet.config().document::<SparkplugAddress>(uuid).ok().flatten(),
        account: account.map(|entry| entry.parse().map_err(|error| error.to_string())),
        etag: account.map(|entry| entry.etag),
        deployment_of: fleet.cluster_of_deployment(uuid),
        set_up_for: fleet.cluster_of_account(uuid),
    })
}
