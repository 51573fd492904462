//! The clusters' identities: requests of clusters that enrol, the record of what was issued, and the list of what is revoked.
//!
//! Nothing is answered that is not recorded: an answer is an effect of a turn that has read the record in ConfigDB.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cluster_manager_contract::IdentityReport;
use configdb_contract::{Entry, EntryError, WriteRequest};
use configdb_schema::Document;
use configdb_schema::document::{CertificateState, EdgeClusterEnrolment, EdgeClusterIdentity, IssuedCertificate};
use enrolment_protocol::manager::{Manager, Opened};
use enrolment_protocol::metrics::{self, REQUEST};
use sparkplug::host::{HostEvent, HostRequest};
use sparkplug::{EdgeNodeDescriptor, Now};
use uuid::Uuid;

use crate::authority::{self, Asked, Terms, Verdict};
use crate::event::{Effect, IssueCertificate};
use crate::fleet::FleetView;

/// Most clusters that enrol at the same time; an operator sets fewer up in a day.
const ASKING_MAX: usize = 1024;
/// How often the list of revoked certificates is made again, so that it never gets old.
const REVOCATIONS_EVERY: Duration = Duration::from_secs(24 * 3600);
/// How long after a failure it is tried again: until then a revoked certificate counts.
const REVOCATIONS_RETRY: Duration = Duration::from_secs(60);

/// What the manager enrols with.
#[derive(Debug, Clone)]
pub struct Identity {
    /// Its private enrolment key.
    pub manager: Arc<Manager>,
    /// What the authority goes by.
    pub terms: Arc<Terms>,
}

/// What ConfigDB says of a cluster's identities, or why it cannot be read.
#[derive(Debug)]
pub struct IdentityEntries {
    /// What was done.
    pub recorded: Result<Option<EdgeClusterIdentity>, EntryError>,
    /// What an operator wants.
    pub wanted: Result<EdgeClusterEnrolment, EntryError>,
}

impl IdentityEntries {
    /// Reads them.
    pub fn of(fleet: &FleetView, uuid: Uuid) -> Self {
        let wanted = fleet.config().document(uuid).map(Option::unwrap_or_default);
        Self { recorded: fleet.config().document(uuid), wanted }
    }

    /// What was done, if it can be read.
    pub fn identity(&self) -> Option<&EdgeClusterIdentity> {
        self.recorded.as_ref().ok()?.as_ref()
    }

    /// What the cluster's Device says of its identities.
    pub fn report(&self) -> IdentityReport {
        let Some(identity) = self.identity() else { return IdentityReport::default() };
        let is_valid = |certificate: &&IssuedCertificate| certificate.state == CertificateState::Valid;
        let newest = identity.certificates.iter().rev().find(is_valid);
        IdentityReport {
            serial: newest.map(|certificate| certificate.serial.clone()),
            expires: newest.and_then(|certificate| authority::from_text(&certificate.expires)),
            alert: identity.alerts.last().map(|alert| alert.text.clone()),
        }
    }
}

/// A cluster that asks.
#[derive(Debug, Clone)]
struct Asking {
    node: EdgeNodeDescriptor,
    opened: Arc<Opened>,
    /// It asked since it was answered.
    due: bool,
}

/// What is revoked, and since when that was published.
#[derive(Debug, Default)]
struct Revocations {
    /// Serial numbers that the clusters' entries call revoked, with their ends.
    by_cluster: BTreeMap<Uuid, BTreeMap<String, String>>,
    /// Serial numbers of clusters whose object is gone, with their ends.
    orphans: BTreeMap<String, String>,
    published: Option<BTreeMap<String, String>>,
    stale: bool,
    /// `Now::mono` at which it is published again.
    due: Option<Duration>,
}

impl Revocations {
    /// Takes over what an entry calls revoked; nothing if there is none. Only a change causes a new list, whatever else happens to the entries.
    fn set(&mut self, cluster: Uuid, revoked: BTreeMap<String, String>) {
        let before = if revoked.is_empty() {
            self.by_cluster.remove(&cluster)
        } else {
            self.by_cluster.insert(cluster, revoked)
        };
        self.stale |= before.as_ref() != self.by_cluster.get(&cluster);
    }

    fn all(&self) -> BTreeMap<String, String> {
        let revoked = self.by_cluster.values().flatten();
        self.orphans.iter().chain(revoked).map(|(serial, ends)| (serial.clone(), ends.clone())).collect()
    }
}

/// A cluster may ask by two nodes, in the quarantine group and in its own; the end of one says nothing of the other.
fn forget(asking: &mut BTreeMap<Uuid, Asking>, uuid: Uuid, node: &EdgeNodeDescriptor) {
    if asking.get(&uuid).is_some_and(|asking| asking.node == *node) {
        asking.remove(&uuid);
    }
}

/// What serving a cluster has come to.
#[derive(Debug)]
pub enum Served {
    /// There is nothing to do.
    Idle,
    /// This is to be recorded first.
    Record(Box<WriteRequest>),
    /// It is answered.
    Answered(Effect),
}

/// The identities of all clusters.
#[derive(Debug)]
pub struct EnrolmentController {
    /// What clusters are enrolled with; None: none is.
    identity: Option<Identity>,
    asking: BTreeMap<Uuid, Asking>,
    revocations: Revocations,
}

impl EnrolmentController {
    /// No cluster has asked yet.
    pub fn new(identity: Option<Identity>) -> Self {
        Self { identity, asking: BTreeMap::new(), revocations: Revocations::default() }
    }

    /// Every entry will be given again.
    pub fn forget_entries(&mut self) {
        self.revocations.by_cluster.clear();
        self.revocations.stale = true;
    }

    /// Takes an event of a node by which that cluster asks to be certified. `is_known`: there is such a cluster. True: it has to be served.
    pub fn on_event(
        &mut self,
        uuid: Uuid,
        is_known: bool,
        node: &EdgeNodeDescriptor,
        event: &HostEvent,
    ) -> (bool, Option<Effect>) {
        let Some(identity) = &self.identity else { return (false, None) };
        match event {
            HostEvent::NodeBirth { metrics, .. } => {
                forget(&mut self.asking, uuid, node);
                let request = metrics::bytes_of(metrics, REQUEST);
                // Strangers cost nothing: only who could be enrolled is read.
                let Some(request) = request.filter(|_| is_known) else { return (false, None) };
                match identity.manager.open(uuid, &request) {
                    Ok(opened) if self.asking.len() < ASKING_MAX => {
                        let asking = Asking { node: node.clone(), opened: Arc::new(opened), due: true };
                        self.asking.insert(uuid, asking);
                        return (true, None);
                    }
                    Ok(_) => tracing::warn!(cluster_id = %uuid, "too many clusters enrol at the same time"),
                    Err(error) => {
                        tracing::warn!(cluster_id = %uuid, error = %error, "a request for enrolment cannot be used");
                    }
                }
            }
            HostEvent::NodeData { .. } => match self.asking.get_mut(&uuid).filter(|asking| asking.node == *node) {
                Some(asking) => {
                    asking.due = true;
                    return (true, None);
                }
                // Its birth came too early to be understood.
                None if is_known => return (false, Some(Effect::Host(HostRequest::Rebirth { node: node.clone() }))),
                None => {}
            },
            HostEvent::NodeDeath { .. } | HostEvent::NodeStale { .. } => forget(&mut self.asking, uuid, node),
            _ => {}
        }
        (false, None)
    }

    /// In the quarantine group only clusters that are known become nodes.
    pub fn allow(&self, fleet: &FleetView, uuid: Uuid, is_known: bool) -> Option<Effect> {
        let node = self.identity.as_ref().and_then(|_| metrics::node(fleet.organisation(), uuid).ok())?;
        Some(Effect::Host(if is_known { HostRequest::Allow { node } } else { HostRequest::Forget { node } }))
    }

    /// An entry about what was issued has changed.
    pub fn on_entry(&mut self, uuid: Uuid, old: Option<&Entry>, new: Option<&Entry>) {
        let identity = new.and_then(|entry| entry.parse::<EdgeClusterIdentity>().ok()).unwrap_or_default();
        let revoked = identity.certificates.into_iter().filter(|one| one.state == CertificateState::Revoked);
        self.revocations.set(uuid, revoked.map(|one| (one.serial, one.expires)).collect());
        // Deleting the object of a cluster does not leave its certificates valid.
        if let (Some(old), None) = (old, new)
            && let Ok(identity) = old.parse::<EdgeClusterIdentity>()
        {
            let orphans =
                identity.certificates.into_iter().map(|certificate| (certificate.serial, certificate.expires));
            self.revocations.orphans.extend(orphans);
            self.revocations.stale = true;
        }
    }

    /// Says what to record of a cluster's identities, or answers it if it asks and everything is recorded. `may_write`: nothing else is being written of the cluster.
    pub fn serve(
        &mut self,
        fleet: &FleetView,
        uuid: Uuid,
        entries: &IdentityEntries,
        group: &str,
        (gone, may_write): (bool, bool),
        now: Now,
    ) -> Served {
        let Some(Identity { manager, terms }) = self.identity.clone() else { return Served::Idle };
        let (recorded, wanted) = match (&entries.recorded, &entries.wanted) {
            (Ok(recorded), Ok(wanted)) => (recorded.as_ref(), wanted),
            (Err(error), _) | (_, Err(error)) => {
                tracing::warn!(cluster_id = %uuid, error = %error, "the cluster's identities cannot be read; it cannot enrol");
                return Served::Idle;
            }
        };
        if !may_write || (gone && recorded.is_none()) {
            return Served::Idle;
        }
        let current = authority::up_to_date(recorded, wanted, &terms, gone, now.wall);
        if recorded != Some(&current) {
            return record(fleet, uuid, &current);
        }
        let Some(asking) = self.asking.get_mut(&uuid).filter(|asking| asking.due && !gone) else { return Served::Idle };
        let (node, opened) = (asking.node.clone(), Arc::clone(&asking.opened));
        let key = opened.key_hash();
        let count = u32::try_from(current.certificates.len()).unwrap_or(u32::MAX);
        let asked = Asked { by: &opened.by, key: &key, serial: manager.serial(uuid, &key, wanted.fence, count) };
        let answer = match authority::judge(&current, wanted, &terms, asked, now.wall) {
            Verdict::Record(identity) => return record(fleet, uuid, &identity),
            Verdict::Refuse { record: Some(identity), .. } => return record(fleet, uuid, &identity),
            Verdict::Grant(certificate) => {
                tracing::info!(cluster_id = %uuid, serial = certificate.serial, "the cluster is certified");
                Ok(certificate)
            }
            Verdict::Refuse { refusal, record: None } => {
                tracing::warn!(cluster_id = %uuid, reason = %refusal, "the cluster is not certified");
                Err(refusal)
            }
        };
        asking.due = false;
        let order = IssueCertificate { node, group: group.to_owned(), opened, answer };
        Served::Answered(Effect::Enrol(Box::new(order)))
    }

    /// Publishes what is revoked, when that has changed or was published long ago.
    pub fn publish_revocations(&mut self, fleet: &FleetView, now: Now) -> Option<Effect> {
        let revocations = &mut self.revocations;
        let is_due = revocations.due.is_none_or(|due| due <= now.mono);
        if self.identity.is_none() || !fleet.is_ready() || !(revocations.stale || is_due) {
            return None;
        }
        revocations.stale = false;
        let void = revocations.all();
        if !is_due && revocations.published.as_ref() == Some(&void) {
            return None;
        }
        revocations.due = Some(now.mono + REVOCATIONS_EVERY);
        revocations.published = Some(void.clone());
        Some(Effect::Revocations { void, at: now.wall })
    }

    /// The list of what is revoked could not be written.
    pub fn on_not_written(&mut self, now: Now) {
        let retry = now.mono + REVOCATIONS_RETRY;
        self.revocations.due = Some(self.revocations.due.map_or(retry, |due| due.min(retry)));
    }

    /// `Now::mono` at which what is revoked is published again.
    pub const fn next_deadline(&self) -> Option<Duration> {
        self.revocations.due
    }
}

fn record(fleet: &FleetView, uuid: Uuid, identity: &EdgeClusterIdentity) -> Served {
    let etag = fleet.config().entry(uuid, EdgeClusterIdentity::slug()).map(|entry| entry.etag);
    match WriteRequest::put("", uuid).document(identity) {
        Ok(write) => Served::Record(Box::new(write.if_match(EdgeClusterIdentity::slug(), etag))),
        Err(error) => {
            tracing::warn!(cluster_id = %uuid, error = %error, "identities have no JSON form");
            Served::Idle
        }
    }
}
