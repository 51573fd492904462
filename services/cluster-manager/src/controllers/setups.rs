//! Set-up and tear-down of each cluster, and its status entry: which step is next, which requests to ConfigDB are under way, and what was refused.
//!
//! What the next step is, [`crate::setup`] decides. What it needs of other controllers is given here, and what they have to do for it is returned.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use access::rate::{Limiter, Rate};
use cluster_manager_contract::SetupState;
use configdb_contract::WriteRequest;
use configdb_schema::document::{
    EdgeCluster, EdgeClusterRecovery, EdgeClusterSetup, EdgeClusterStatus, GitConfig, Info, SparkplugAddress,
};
use configdb_schema::{Document, known};
use sparkplug::Now;
use uuid::Uuid;

use super::{Controller, Forgotten, Pacing, Wait};
use crate::fleet::FleetView;
use crate::identity::IdentityEntries;
use crate::requests::Requests;
use crate::setup::{self, Account, AccountObject, Decision, Principals, Repository, SetupInputs, WantedRepository};
use crate::status;

/// How often the status entry of one cluster is written. Each is kept in the history.
const STATUSES: Rate = Rate { per_minute: 6, burst: 20 };
/// KiB of them. The history of all clusters has one size: one that lets its status grow and change would have all else forgotten in hours, and takes weeks so.
const STATUSES_KIB: Rate = Rate { per_minute: 8, burst: 2048 };
/// Clusters whose entries are counted; more than any organisation has.
const STATUSES_CLUSTERS_MAX: usize = 20_000;

/// The set-ups of all clusters.
#[derive(Debug)]
pub(crate) struct SetupsController {
    pacing: Pacing,
    known: BTreeMap<Uuid, ClusterSetup>,
    /// How often the status entry of a cluster is written: what it says comes from the cluster.
    statuses: Limiter<Uuid>,
    statuses_kib: Limiter<Uuid>,
}

#[derive(Debug)]
struct ClusterSetup {
    /// Record of a cluster whose object is gone.
    orphan: Option<EdgeClusterSetup>,
    /// Requests to ConfigDB without an answer.
    requests: BTreeSet<String>,
    /// Waiting after a refused request.
    writes: Wait,
    /// When its status entry, which was written too often, may be written again.
    status_at: Option<Duration>,
}

/// What ConfigDB says of a cluster.
#[derive(Debug)]
pub(crate) struct ClusterEntries {
    /// Its configuration; Err: what is wrong with it.
    pub config: Option<Result<EdgeCluster, String>>,
    /// Its `EdgeClusterStatus` entry.
    pub status: Option<EdgeClusterStatus>,
    /// Its identities.
    pub identity: IdentityEntries,
    record: Option<Result<EdgeClusterSetup, String>>,
}

/// What other controllers say of a cluster.
#[derive(Debug)]
pub(crate) struct Surroundings {
    /// What is to be done to the accounts of its principals when it goes.
    pub account_removals: Vec<WriteRequest>,
    /// What its repository shall hold.
    pub wanted: Option<Result<WantedRepository, String>>,
    /// What its repository is.
    pub repository: Repository,
    /// Where clusters read it, that is there.
    pub is_served: bool,
    /// What its principals are.
    pub principals: Principals,
    /// It is known where clusters reach the git server.
    pub is_git_known: bool,
}

impl ClusterEntries {
    /// What the cluster goes by: as it is set up, or else as configured.
    pub(crate) fn spec(&self) -> Option<&EdgeCluster> {
        self.recorded().and_then(|record| record.spec.as_ref()).or_else(|| self.config.as_ref()?.as_ref().ok())
    }

    /// Its record, if that can be read.
    pub(crate) fn recorded(&self) -> Option<&EdgeClusterSetup> {
        self.record.as_ref()?.as_ref().ok()
    }
}

impl Controller for SetupsController {
    fn retry(&mut self, uuid: Uuid) {
        if let Some(cluster) = self.known.get_mut(&uuid) {
            cluster.writes.retry_now();
        }
    }

    fn next_deadline(&self, uuid: Uuid, now: Now) -> Option<Duration> {
        let cluster = self.known.get(&uuid)?;
        cluster.writes.until().into_iter().chain(cluster.status_at).filter(|at| *at > now.mono).min()
    }

    fn clear(&mut self) {
        self.known.clear();
    }

    fn forget(&mut self, uuid: Uuid) -> Forgotten {
        self.known.remove(&uuid);
        Forgotten::default()
    }
}

impl SetupsController {
    /// No cluster is known.
    pub(crate) fn new(pacing: Pacing) -> Self {
        let statuses = Limiter::new(STATUSES, STATUSES_CLUSTERS_MAX);
        let statuses_kib = Limiter::new(STATUSES_KIB, STATUSES_CLUSTERS_MAX);
        Self { pacing, known: BTreeMap::new(), statuses, statuses_kib }
    }

    /// There is a cluster of that UUID.
    pub(crate) fn add(&mut self, uuid: Uuid) {
        let pacing = self.pacing;
        self.known.entry(uuid).or_insert_with(|| ClusterSetup {
            orphan: None,
            requests: BTreeSet::new(),
            writes: pacing.wait(uuid, 0),
            status_at: None,
        });
    }

    /// Remembers the record of a cluster whose object is gone, for its tear-down.
    pub(crate) fn set_orphan(&mut self, uuid: Uuid, record: EdgeClusterSetup) {
        self.add(uuid);
        if let Some(cluster) = self.known.get_mut(&uuid) {
            cluster.orphan = Some(record);
        }
    }

    /// The record of a cluster whose object is gone.
    pub(crate) fn orphan(&self, uuid: Uuid) -> Option<&EdgeClusterSetup> {
        self.known.get(&uuid)?.orphan.as_ref()
    }

    /// Requests of a cluster are not answered yet.
    pub(crate) fn is_writing(&self, uuid: Uuid) -> bool {
        self.known.get(&uuid).is_some_and(|cluster| !cluster.requests.is_empty())
    }

    /// No failure is waited for.
    pub(crate) fn is_due(&self, uuid: Uuid, now: Now) -> bool {
        self.known.get(&uuid).is_some_and(|cluster| cluster.writes.is_over(now))
    }

    /// Why the last request was refused.
    pub(crate) fn reason(&self, uuid: Uuid) -> Option<&str> {
        self.known.get(&uuid)?.writes.reason()
    }

    /// Reads what ConfigDB says of a cluster.
    pub(crate) fn read(&mut self, fleet: &FleetView, uuid: Uuid) -> ClusterEntries {
        let replica = fleet.config();
        let text = |error: configdb_contract::EntryError| error.to_string();
        let config = replica.entry(uuid, EdgeCluster::slug()).map(|entry| entry.parse().map_err(text));
        let record = replica.entry(uuid, EdgeClusterSetup::slug()).map(|entry| entry.parse().map_err(text));
        let status = replica.document(uuid).ok().flatten();
        let recovery = replica.document::<EdgeClusterRecovery>(uuid).ok().flatten();
        // Its object was missing because the store came back older. It has its entry again, and its edge was released to this store.
        let is_recovered = config.is_some() && recovery.is_some_and(|recovery| Some(recovery.store) == replica.store());
        let identity = IdentityEntries::of(fleet, uuid);
        let cluster = self.known.get_mut(&uuid);
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
        ClusterEntries { config, record, status, identity }
    }

    /// Decides the next step. `name`: as the cluster is set up.
    pub(crate) fn decide(
        &self,
        fleet: &FleetView,
        (uuid, name): (Uuid, Option<&str>),
        entries: &ClusterEntries,
        surroundings: Surroundings,
        now: Now,
    ) -> Decision {
        let replica = fleet.config();
        let object = replica.object(uuid);
        let record = entries.recorded();
        let account = |account: Account| {
            let uuid = account.uuid(uuid, record);
            let object = replica.object(uuid)?;
            let name = replica.document::<Info>(uuid).ok().flatten().map(|info| info.name);
            Some(AccountObject { is_account: object.is_member_of(known::class::EDGE_SERVICE_ACCOUNT), name })
        };
        // What is set up has its name.
        let is_new = record.is_none_or(|record| record.spec.is_none());
        let configured = entries.config.as_ref().filter(|_| is_new).and_then(|config| config.as_ref().ok());
        let Surroundings { account_removals, wanted, repository, is_served, principals, is_git_known } = surroundings;
        setup::decide(&SetupInputs {
            cluster: uuid,
            organisation: fleet.organisation(),
            object_exists: object.is_some(),
            config: entries.config.clone(),
            record: entries.record.clone(),
            record_etag: replica.entry(uuid, EdgeClusterSetup::slug()).map(|entry| entry.etag),
            address: replica.document::<SparkplugAddress>(uuid).ok().flatten(),
            git_config: replica.document::<GitConfig>(uuid).ok().flatten(),
            member_of: object.map(|object| object.membership.member_of.clone()).unwrap_or_default(),
            has_status: replica.entry(uuid, EdgeClusterStatus::slug()).is_some(),
            accounts: Account::ALL.map(account),
            account_removals,
            name_taken_by: configured.and_then(|config| self.name_taken_by(fleet, uuid, &config.name)),
            pins: fleet.pins(uuid),
            is_git_known,
            wanted,
            repository,
            is_served,
            principals,
            has_certificate: entries.identity.has_certificate(),
            edge: fleet.edge_left(uuid, name, now),
        })
    }

    /// Which other cluster has the right to a name: the one that is set up under it, else the one whose configuration is older.
    fn name_taken_by(&self, fleet: &FleetView, uuid: Uuid, name: &str) -> Option<Uuid> {
        let rank = |claimant: &Uuid| {
            let record = fleet.config().entry(*claimant, EdgeClusterSetup::slug());
            let record = record.and_then(|entry| entry.parse::<EdgeClusterSetup>().ok());
            let record = record.or_else(|| self.orphan(*claimant).cloned());
            let is_set_up = record.and_then(|record| record.spec).is_some_and(|spec| spec.name == name);
            let revision =
                fleet.config().entry(*claimant, EdgeCluster::slug()).map_or(u64::MAX, |entry| entry.revision);
            (!is_set_up, revision, *claimant)
        };
        let first = fleet.claimants(name).into_iter().min_by_key(rank)?;
        (first != uuid).then_some(first)
    }

    /// The status entry of a cluster, if that has to be written. `name`: as the cluster is set up.
    pub(crate) fn status(
        &mut self,
        fleet: &FleetView,
        (uuid, name): (Uuid, Option<&str>),
        decision: &Decision,
        entries: &ClusterEntries,
        now: Now,
    ) -> Option<WriteRequest> {
        let deleting = matches!(decision.state, Some(SetupState::Deleting | SetupState::Waiting) | None);
        let sync = name.filter(|_| !deleting).and_then(|name| fleet.sync_of(uuid, name))?;
        let status = status::render(&sync.replica, entries.status.as_ref())?;
        if entries.status.as_ref() == Some(&status) {
            return None;
        }
        let write = WriteRequest::put("", uuid).document(&status);
        let write =
            write.inspect_err(|error| tracing::warn!(cluster_id = %uuid, error = %error, "status has no JSON form"));
        let write = write.ok()?;
        let kib = u32::try_from(serde_json::to_string(&status).map_or(0, |json| json.len()) / 1024).unwrap_or(u32::MAX);
        let taken = self.statuses_kib.take_many(uuid, kib, now.mono).and_then(|()| self.statuses.take(uuid, now.mono));
        let waits = taken.err().map(|too_often| now.mono + too_often.wait);
        let cluster = self.known.get_mut(&uuid)?;
        cluster.status_at = waits;
        waits.is_none().then_some(write)
    }

    /// Sends requests to ConfigDB.
    pub(crate) fn submit(&mut self, requests: &mut Requests, uuid: Uuid, writes: Vec<WriteRequest>, now: Now) {
        for write in writes {
            let id = requests.next_id();
            let write = WriteRequest { id: id.clone(), ..write }.by(cluster_manager_contract::names::SERVICE);
            let submitted = requests.submit(write, now);
            let Some(cluster) = self.known.get_mut(&uuid) else { return };
            match submitted {
                Ok(()) => {
                    cluster.requests.insert(id.clone());
                    requests.expect(id, uuid);
                }
                Err(error) => cluster.writes.failed(error.to_string(), now),
            }
        }
    }

    /// ConfigDB has answered a request.
    pub(crate) fn on_written(&mut self, uuid: Uuid, request: &str, refusal: Option<String>, now: Now) {
        let Some(cluster) = self.known.get_mut(&uuid) else { return };
        cluster.requests.remove(request);
        match refusal {
            None => cluster.writes.succeeded(),
            Some(reason) => {
                tracing::warn!(cluster_id = %uuid, error = reason, "a step was refused");
                cluster.writes.failed(reason, now);
            }
        }
    }
}
