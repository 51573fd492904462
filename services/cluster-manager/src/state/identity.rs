//! Identities: requests of clusters that enrol, the record of what was issued, and the list of what is void.
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

use super::ClusterManager;
use crate::authority::{self, Asked, Terms, Verdict};
use crate::event::{Effect, IssueCertificate};

/// Most clusters that enrol at the same time; an operator sets fewer up in a day.
const ASKING_MAX: usize = 1024;
/// How often the list of what is void is made anew, so that it never gets old.
const REVOCATIONS_EVERY: Duration = Duration::from_secs(24 * 3600);

/// What the manager enrols with.
#[derive(Debug, Clone)]
pub struct Identity {
    /// Its private enrolment key.
    pub manager: Arc<Manager>,
    /// What the authority goes by.
    pub terms: Arc<Terms>,
}

/// What ConfigDB says of a cluster's identities, or why it cannot be read.
pub struct IdentityEntries {
    /// What was done.
    pub recorded: Result<Option<EdgeClusterIdentity>, EntryError>,
    /// What an operator wants.
    pub wanted: Result<EdgeClusterEnrolment, EntryError>,
}

impl IdentityEntries {
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
pub struct Asking {
    node: EdgeNodeDescriptor,
    opened: Arc<Opened>,
    /// It asked since it was answered.
    due: bool,
}

/// What is void, and since when that was told.
#[derive(Debug, Default)]
pub struct Revocations {
    /// Serial numbers that the clusters' entries call revoked, with their ends.
    by_cluster: BTreeMap<Uuid, BTreeMap<String, String>>,
    /// Serial numbers of clusters whose object is gone, with their ends.
    orphans: BTreeMap<String, String>,
    told: Option<BTreeMap<String, String>>,
    stale: bool,
    /// `Now::mono` at which it is told again.
    pub due: Option<Duration>,
}

impl Revocations {
    /// Every entry that there is will be told again.
    pub fn forget_entries(&mut self) {
        self.by_cluster.clear();
        self.stale = true;
    }

    /// Takes over what an entry calls revoked; nothing if there is none. Only a change makes the list anew, whatever else happens to the entries.
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

impl ClusterManager {
    /// Takes an event of a node by which that cluster asks to be certified.
    pub(super) fn on_enrol_event(&mut self, uuid: Uuid, node: &EdgeNodeDescriptor, event: &HostEvent) {
        let Some(identity) = &self.settings.identity else { return };
        match event {
            HostEvent::NodeBirth { metrics, .. } => {
                forget(&mut self.asking, uuid, node);
                let request = metrics::bytes_of(metrics, REQUEST);
                // Strangers cost nothing: only who could be let in is read.
                let Some(request) = request.filter(|_| self.clusters.contains_key(&uuid)) else { return };
                match identity.manager.open(uuid, &request) {
                    Ok(opened) if self.asking.len() < ASKING_MAX => {
                        let asking = Asking { node: node.clone(), opened: Arc::new(opened), due: true };
                        self.asking.insert(uuid, asking);
                        self.dirty.insert(uuid);
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
                    self.dirty.insert(uuid);
                }
                // Its birth came too early to be understood.
                None if self.clusters.contains_key(&uuid) => {
                    self.effects.push(Effect::Host(HostRequest::Rebirth { node: node.clone() }));
                }
                None => {}
            },
            HostEvent::NodeDeath { .. } | HostEvent::NodeStale { .. } => forget(&mut self.asking, uuid, node),
            _ => {}
        }
    }

    /// In the quarantine group only clusters that are known become nodes.
    pub(super) fn allow_enrolment(&mut self, uuid: Uuid, is_known: bool) {
        let node = self.settings.identity.as_ref().and_then(|_| metrics::node(&self.settings.organisation, uuid).ok());
        let Some(node) = node else { return };
        let request = if is_known { HostRequest::Allow { node } } else { HostRequest::Forget { node } };
        self.effects.push(Effect::Host(request));
    }

    /// Takes an event of the node by which a cluster in its own group asks for renewal.
    pub(super) fn on_renewal_event(&mut self, node: &EdgeNodeDescriptor, event: &HostEvent) {
        let Some(name) = self.settings.organisation.cluster_of_group(node.group.as_str()) else { return };
        let claims = self.claims.get(name.as_str()).into_iter().flatten();
        // Where two clusters claim one name, it is the request that says whose it is.
        for uuid in claims.copied().collect::<Vec<_>>() {
            self.on_enrol_event(uuid, node, event);
        }
    }

    /// An entry about what was issued has changed.
    pub(super) fn on_identity_entry(&mut self, uuid: Uuid, old: Option<&Entry>, new: Option<&Entry>) {
        let identity = new.and_then(|entry| entry.parse::<EdgeClusterIdentity>().ok()).unwrap_or_default();
        let revoked = identity.certificates.into_iter().filter(|one| one.state == CertificateState::Revoked);
        self.revocations.set(uuid, revoked.map(|one| (one.serial, one.expires)).collect());
        // Whoever deletes a cluster's object does not mean to leave its certificates good.
        if let (Some(old), None) = (old, new)
            && let Ok(identity) = old.parse::<EdgeClusterIdentity>()
        {
            let orphans =
                identity.certificates.into_iter().map(|certificate| (certificate.serial, certificate.expires));
            self.revocations.orphans.extend(orphans);
            self.revocations.stale = true;
        }
    }

    /// Brings the record of a cluster's identities up to date, and answers it if it asks and everything is recorded. True: something is being recorded.
    pub(super) fn serve_identity(
        &mut self,
        uuid: Uuid,
        entries: &IdentityEntries,
        group: &str,
        gone: bool,
        now: Now,
    ) -> bool {
        let Some(Identity { manager, terms }) = self.settings.identity.clone() else { return false };
        let busy = self.clusters.get(&uuid).is_none_or(|cluster| !cluster.may_write(now));
        let (recorded, wanted) = match (&entries.recorded, &entries.wanted) {
            (Ok(recorded), Ok(wanted)) => (recorded.as_ref(), wanted),
            (Err(error), _) | (_, Err(error)) => {
                tracing::warn!(cluster_id = %uuid, error = %error, "the cluster's identities cannot be read; nobody enrols");
                return false;
            }
        };
        if busy || (gone && recorded.is_none()) {
            return false;
        }
        let current = authority::up_to_date(recorded, wanted, &terms, gone, now.wall);
        if recorded != Some(&current) {
            return self.record_identity(uuid, &current, now);
        }
        let Some(asking) = self.asking.get_mut(&uuid).filter(|asking| asking.due && !gone) else { return false };
        let (node, opened) = (asking.node.clone(), Arc::clone(&asking.opened));
        let key = opened.key_hash();
        let count = u32::try_from(current.certificates.len()).unwrap_or(u32::MAX);
        let asked = Asked { by: &opened.by, key: &key, serial: manager.serial(uuid, &key, wanted.fence, count) };
        let answer = match authority::judge(&current, wanted, &terms, asked, now.wall) {
            Verdict::Record(record) => return self.record_identity(uuid, &record, now),
            Verdict::Refuse { record: Some(record), .. } => return self.record_identity(uuid, &record, now),
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
        self.effects.push(Effect::Enrol(Box::new(order)));
        false
    }

    fn record_identity(&mut self, uuid: Uuid, identity: &EdgeClusterIdentity, now: Now) -> bool {
        let etag = self.replica.entry(uuid, EdgeClusterIdentity::slug()).map(|entry| entry.etag);
        match WriteRequest::put("", uuid).document(identity) {
            Ok(write) => {
                self.submit(uuid, vec![write.if_match(EdgeClusterIdentity::slug(), etag)], now);
                true
            }
            Err(error) => {
                tracing::warn!(cluster_id = %uuid, error = %error, "identities have no JSON form");
                false
            }
        }
    }

    /// Reads the entries about a cluster's identities.
    pub(super) fn identity_entries(&self, uuid: Uuid) -> IdentityEntries {
        let wanted = self.replica.document(uuid).map(Option::unwrap_or_default);
        IdentityEntries { recorded: self.replica.document(uuid), wanted }
    }

    /// Tells what is void, when that has changed or was told long ago.
    pub(super) fn tell_revocations(&mut self, now: Now) {
        let due = self.revocations.due.is_none_or(|due| due <= now.mono);
        if self.settings.identity.is_none() || !self.is_ready() || !(self.revocations.stale || due) {
            return;
        }
        self.revocations.stale = false;
        let void = self.revocations.all();
        if due || self.revocations.told.as_ref() != Some(&void) {
            self.revocations.due = Some(now.mono + REVOCATIONS_EVERY);
            self.revocations.told = Some(void.clone());
            self.effects.push(Effect::Revocations { void, at: now.wall });
        }
    }
}
