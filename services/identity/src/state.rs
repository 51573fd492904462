//! The state of Identity: a copy of ConfigDB, who asks, and what was issued.
//!
//! An event says which clusters it concerns. Then each of them is evaluated alone: the record of its identities is brought up to date, and only what is recorded in ConfigDB and
//! remembered here is answered.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use cluster_manager_contract::ManagerReplica;
use configdb_contract::{Change, ConfigReplica, WriteRequest, configdb_node};
use configdb_schema::address::CLUSTER_MANAGER_NODE;
use configdb_schema::document::{EdgeClusterEnrolment, EdgeClusterIdentity};
use configdb_schema::{Document as _, Organisation};
use enrolment_protocol::identity::IdentityKeyPair;
use enrolment_protocol::metrics;
use identity_contract::IdentityNode;
use sparkplug::edge_node::NodeUpdate;
use sparkplug::host::{HostEvent, HostRequest};
use sparkplug::replication::ReplicaChange;
use sparkplug::{EdgeNodeDescriptor, EdgeNodeId, Metric, Now, TypedMetrics as _};
use uuid::Uuid;

use crate::authority::{self, CertificateRequest, Terms, Verdict};
use crate::clusters::{self, Clusters};
use crate::event::{Effect, Event, IssueCertificate};
use crate::issued::Issued;
use crate::requests::{Received, Request, Requests};
use crate::revocations::{OwnList, WatchedLists};
use crate::writes::{Output, Writes};

/// What the state goes by.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Prefix of all groups.
    pub organisation: Organisation,
    /// Version of the program.
    pub version: String,
    /// The private enrolment key.
    pub key_pair: Arc<IdentityKeyPair>,
    /// What the authority goes by.
    pub terms: Arc<Terms>,
    /// Entries that name another enrolment key get this one.
    pub replaces_keys: bool,
    /// First and longest pause after a write that was refused.
    pub retry: (Duration, Duration),
}

/// See the module.
#[derive(Debug)]
pub struct State {
    settings: Settings,
    config: ConfigReplica,
    /// The replica was complete once, with this store. Without that nothing may be concluded.
    is_known: bool,
    manager: ManagerReplica,
    clusters: Clusters,
    requests: Requests,
    issued: BTreeMap<Uuid, Issued>,
    /// Of them those that have a certificate that is not revoked.
    certified: BTreeSet<Uuid>,
    /// What was issued since the last effects.
    unsaved: BTreeMap<Uuid, Issued>,
    /// Clusters whose entry names another enrolment key.
    foreign: BTreeSet<Uuid>,
    own_list: OwnList,
    lists: WatchedLists,
    writes: Writes,
    /// Clusters to be evaluated in this turn.
    dirty: BTreeSet<Uuid>,
    node: IdentityNode,
    published: IdentityNode,
    effects: Vec<Effect>,
}

/// The Edge Node of the cluster manager.
fn manager_node(organisation: &Organisation) -> EdgeNodeDescriptor {
    let edge_node = EdgeNodeId::new(CLUSTER_MANAGER_NODE).expect("a constant without forbidden characters is an id");
    EdgeNodeDescriptor { edge_node, ..configdb_node(organisation) }
}

impl State {
    /// Knows nothing yet but what was issued. `seed` is random.
    #[must_use]
    pub fn new(settings: Settings, issued: BTreeMap<Uuid, Issued>, seed: u64, now: Now) -> Self {
        let configdb = configdb_node(&settings.organisation);
        let manager = manager_node(&settings.organisation);
        let node = IdentityNode {
            version: settings.version.clone(),
            key: settings.terms.key.clone(),
            authority_expires: Some(settings.terms.authority_ends_ms),
            ..IdentityNode::default()
        };
        let expected = [configdb.clone(), manager.clone()];
        let certified = issued.iter().filter(|(_, one)| one.has_valid()).map(|(uuid, _)| *uuid).collect();
        Self {
            config: ConfigReplica::new(configdb.clone()),
            is_known: false,
            manager: ManagerReplica::new(manager),
            clusters: Clusters::default(),
            requests: Requests::default(),
            issued,
            certified,
            unsaved: BTreeMap::new(),
            foreign: BTreeSet::new(),
            own_list: OwnList::default(),
            lists: WatchedLists::default(),
            writes: Writes::new(configdb, settings.retry, seed, now),
            dirty: BTreeSet::new(),
            published: node.clone(),
            node,
            effects: expected.map(|node| Effect::Host(HostRequest::Expect { node })).into(),
            settings,
        }
    }

    /// Metrics that the node is born with.
    #[must_use]
    pub fn node_metrics(&self) -> Vec<Metric> {
        self.published.to_metrics()
    }

    /// What the node says.
    #[must_use]
    pub const fn node(&self) -> &IdentityNode {
        &self.node
    }

    /// Everything about ConfigDB is known.
    #[must_use]
    pub const fn is_ready(&self) -> bool {
        self.is_known && self.config.is_complete()
    }

    /// Takes one event.
    pub fn on_event(&mut self, event: Event, now: Now) {
        match event {
            Event::Host(event) => self.on_host_event(&event, now),
            // It takes no command.
            Event::Node(_) => {}
            Event::Revocations(report) => {
                if matches!(report.written, Some(Err(_))) {
                    self.own_list.on_not_written(now);
                }
                self.lists.on_report(report);
            }
            Event::DeadlineReached => self.dirty.extend(self.writes.on_deadline(now)),
        }
        self.take_writes(now);
        if self.is_ready() {
            while let Some(uuid) = self.dirty.pop_first() {
                self.evaluate(uuid, now);
            }
            // An answer of this turn must not precede what it rests on.
            self.remember_first();
            let revoked = self.issued.values().flat_map(Issued::revoked);
            self.effects.extend(self.own_list.publish(revoked, now));
        }
        self.take_writes(now);
        self.effects.extend(self.lists.reconcile(now));
        self.publish(now);
    }

    /// `Now::mono` at which [`Event::DeadlineReached`] has something to do.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Duration> {
        // Nothing is published before ConfigDB is known.
        let own = self.own_list.next_deadline().filter(|_| self.is_ready());
        let deadlines = [Some(self.lists.next_deadline()), own, self.writes.next_deadline()];
        deadlines.into_iter().flatten().min()
    }

    /// What is to be done, in order.
    pub fn poll_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    fn on_host_event(&mut self, event: &HostEvent, now: Now) {
        match event {
            HostEvent::HostServed { .. } => self.effects.push(Effect::Node(NodeUpdate::Rebirth)),
            HostEvent::Rejected { topic, reason } => tracing::debug!(topic, reason, "a message could not be used"),
            _ => {}
        }
        self.config.on_event(event);
        while let Some(change) = self.config.poll_change() {
            self.writes.on_change(&change, now);
            self.on_change(&change);
        }
        match self.manager.on_event(event) {
            Some(ReplicaChange::Device(device)) => {
                let cluster = self.manager.cluster_of(&device).map(|(uuid, _)| uuid);
                self.dirty.extend(cluster.filter(|uuid| self.requests.due(*uuid).is_some()));
            }
            Some(_) => self.dirty.extend(self.requests.waiting()),
            None => {}
        }
        let Some(node) = event.node() else { return };
        if node.edge_node.as_str() == metrics::RENEWAL_NODE {
            self.on_renewal(node, event);
        } else if let Some(uuid) = metrics::cluster_of(&self.settings.organisation, node) {
            self.on_request(uuid, node, event);
        }
    }

    /// Takes an event of the node by which a cluster in its own group asks for renewal.
    fn on_renewal(&mut self, node: &EdgeNodeDescriptor, event: &HostEvent) {
        let Some(name) = self.settings.organisation.cluster_of_group(node.group.as_str()) else { return };
        // Where two clusters have one name, it is the request that says whose it is.
        let named: Vec<Uuid> = self.clusters.named(name.as_str()).collect();
        named.into_iter().for_each(|uuid| self.on_request(uuid, node, event));
    }

    fn on_request(&mut self, uuid: Uuid, node: &EdgeNodeDescriptor, event: &HostEvent) {
        let is_known = self.clusters.get(uuid).is_some_and(|cluster| cluster.may_enrol);
        match self.requests.on_event(&self.settings.key_pair, (uuid, is_known), node, event) {
            Received::Nothing => {}
            Received::Request => drop(self.dirty.insert(uuid)),
            Received::Unknown(request) => self.effects.push(Effect::Host(request)),
        }
    }

    fn on_change(&mut self, change: &Change) {
        match change {
            Change::StoreReplaced { old, new } => {
                tracing::warn!(%old, %new, "another ConfigDB answers; nothing is concluded until it is known completely");
                self.is_known = false;
                self.writes.start_again();
            }
            Change::BecameComplete { .. } => {
                if !self.is_known {
                    self.is_known = true;
                    self.learn_clusters();
                }
                self.dirty.extend(self.clusters.all());
                // Those that are gone are among them.
                self.dirty.extend(&self.certified);
            }
            Change::BecameIncomplete { reason } => tracing::info!(reason, "ConfigDB is not known completely any more"),
            Change::Contradicted { reason } => {
                tracing::warn!(reason, "another process speaks for ConfigDB; its births are asked for");
                let node = self.config.node().clone();
                self.effects.push(Effect::Host(HostRequest::Rebirth { node }));
            }
            Change::Malformed { reason } => tracing::warn!(reason, "something of ConfigDB cannot be read"),
            Change::Entry { object, slug, .. } if self.is_known && clusters::concerns(slug) => self.read(*object),
            _ => {}
        }
    }

    /// Learns all clusters from a replica that is complete for the first time.
    fn learn_clusters(&mut self) {
        let objects: BTreeSet<Uuid> = self.config.objects().map(|(uuid, _)| uuid).chain(self.clusters.all()).collect();
        objects.into_iter().for_each(|uuid| self.read(uuid));
    }

    fn read(&mut self, uuid: Uuid) {
        self.dirty.insert(uuid);
        let Some(may_enrol) = self.clusters.read(&self.config, uuid) else { return };
        // In the quarantine group only clusters that are known become nodes.
        if let Ok(node) = metrics::node(&self.settings.organisation, uuid) {
            let request = if may_enrol { HostRequest::Allow { node } } else { HostRequest::Forget { node } };
            self.effects.push(Effect::Host(request));
        }
    }

    /// Deleting the object of a cluster does not leave its certificates valid. In a store that never had its record the cluster is not deleted, but unknown.
    fn revoke_deleted(&mut self, uuid: Uuid) {
        let issued = self.issued.get(&uuid).filter(|issued| issued.has_valid() && issued.is_contained_in(&self.config));
        let Some(mut issued) = issued.cloned() else { return };
        tracing::info!(cluster_id = %uuid, "the cluster's object is gone; its certificates are revoked");
        issued.revoke_all();
        self.remember(uuid, issued);
    }

    fn remember(&mut self, uuid: Uuid, issued: Issued) {
        if issued.has_valid() {
            self.certified.insert(uuid);
        } else {
            self.certified.remove(&uuid);
        }
        let is_revoked = |one: Option<&Issued>| -> BTreeSet<String> {
            one.into_iter().flat_map(Issued::revoked).map(|(serial, _)| serial.to_owned()).collect()
        };
        if is_revoked(self.issued.get(&uuid)) != is_revoked(Some(&issued)) {
            self.own_list.mark();
        }
        self.unsaved.insert(uuid, issued.clone());
        self.issued.insert(uuid, issued);
    }

    /// Puts what is to be remembered before everything else that this turn wants done.
    fn remember_first(&mut self) {
        let unsaved = std::mem::take(&mut self.unsaved);
        if !unsaved.is_empty() {
            self.effects.insert(0, Effect::Remember(unsaved));
        }
    }

    /// Brings the record of a cluster's identities up to date, or answers the cluster if it asks and everything is recorded.
    fn evaluate(&mut self, uuid: Uuid, now: Now) {
        let Some(cluster) = self.clusters.get(uuid).cloned() else { return self.revoke_deleted(uuid) };
        let recorded = self.config.document::<EdgeClusterIdentity>(uuid);
        let wanted = self.config.document::<EdgeClusterEnrolment>(uuid).map(Option::unwrap_or_default);
        let (recorded, wanted) = match (recorded, wanted) {
            (Ok(recorded), Ok(wanted)) => (recorded, wanted),
            (Err(error), _) | (_, Err(error)) => {
                tracing::warn!(cluster_id = %uuid, error = %error, "the cluster's identities cannot be read; it cannot enrol");
                return;
            }
        };
        if self.is_foreign(uuid, recorded.as_ref()) || !self.writes.may_write(uuid, now) {
            return;
        }
        if recorded.is_none() && (cluster.is_deleting || !cluster.is_set_up) {
            return;
        }
        let terms = Arc::clone(&self.settings.terms);
        let issued = self.issued.get(&uuid);
        let current = authority::up_to_date(recorded.as_ref(), issued, &wanted, &terms, cluster.is_deleting, now.wall);
        if recorded.as_ref() != Some(&current) {
            return self.record(uuid, &current, now);
        }
        let is_empty = current.tokens.is_empty() && current.certificates.is_empty();
        if !issued.map_or(is_empty, |issued| issued.is_as(&current)) {
            self.remember(uuid, Issued::of(&current, self.config.origin(0)));
        }
        let Some(name) = cluster.name.filter(|_| !cluster.is_deleting) else { return };
        if let Some(request) = self.requests.due(uuid).cloned() {
            self.answer(uuid, &name, &request, (&current, &wanted), now);
        }
    }

    fn answer(
        &mut self,
        uuid: Uuid,
        name: &str,
        request: &Request,
        (current, wanted): (&EdgeClusterIdentity, &EdgeClusterEnrolment),
        now: Now,
    ) {
        let Request { node, opened, .. } = request.clone();
        let key = opened.key_hash();
        let count = u32::try_from(current.certificates.len()).unwrap_or(u32::MAX);
        let serial = self.settings.key_pair.serial(uuid, &key, wanted.fence, count);
        let asked = CertificateRequest { by: &opened.by, key: &key, serial };
        let answer = match authority::judge(current, wanted, &self.settings.terms, asked, now.wall) {
            Verdict::Record(identity) | Verdict::Refuse { record: Some(identity), .. } => {
                return self.record(uuid, &identity, now);
            }
            Verdict::Grant(certificate) => {
                let Some(login) = self.manager.cluster(uuid).and_then(|cluster| cluster.login.clone()) else {
                    // It stays due, and is answered when the cluster manager shows the login.
                    tracing::warn!(cluster_id = %uuid, "the cluster manager has not sealed the login of the cluster's repository yet");
                    return;
                };
                tracing::info!(cluster_id = %uuid, serial = certificate.serial, "the cluster is certified");
                Ok((certificate, login.0))
            }
            Verdict::Refuse { refusal, record: None } => {
                tracing::warn!(cluster_id = %uuid, reason = %refusal, "the cluster is not certified");
                Err(refusal)
            }
        };
        self.requests.answered(uuid);
        let group = format!("{}-{name}", self.settings.organisation);
        self.effects.push(Effect::Answer(Box::new(IssueCertificate { node, group, opened, answer })));
    }

    /// Keys that are not those of ConfigDB's entries are most likely not in their place. To go on would lock every cluster out that trusts the other ones. No one does yet where nothing was issued.
    fn is_foreign(&mut self, uuid: Uuid, recorded: Option<&EdgeClusterIdentity>) -> bool {
        let other = recorded.filter(|recorded| !recorded.key.is_empty() && recorded.key != self.settings.terms.key);
        let has_issued = other.is_some_and(|other| !other.certificates.is_empty() || !other.tokens.is_empty());
        let is_foreign = has_issued && !self.settings.replaces_keys;
        if is_foreign {
            self.foreign.insert(uuid);
        } else {
            self.foreign.remove(&uuid);
        }
        is_foreign
    }

    fn record(&mut self, uuid: Uuid, identity: &EdgeClusterIdentity, now: Now) {
        let etag = self.config.entry(uuid, EdgeClusterIdentity::slug()).map(|entry| entry.etag);
        match WriteRequest::put("", uuid).document(identity) {
            Ok(write) => self.writes.submit(uuid, write.if_match(EdgeClusterIdentity::slug(), etag), now),
            Err(error) => tracing::warn!(cluster_id = %uuid, error = %error, "identities have no JSON form"),
        }
    }

    fn take_writes(&mut self, now: Now) {
        while let Some(output) = self.writes.poll(now) {
            match output {
                Output::Send(request) => self.effects.push(Effect::Host(request)),
                Output::Ended(uuid) => drop(self.dirty.insert(uuid)),
            }
        }
    }

    fn publish(&mut self, now: Now) {
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        self.lists.report(&mut self.node, now);
        self.node.waiting = count(self.requests.waiting().count());
        self.node.clusters = count(self.certified.len());
        self.node.revoked = count(self.own_list.count());
        self.node.authority_alert = self.authority_alert(now);
        if self.node != self.published {
            let metrics = self.node.changes_since(&self.published);
            self.published = self.node.clone();
            self.effects.push(Effect::Node(NodeUpdate::Set { device: None, metrics }));
        }
    }

    /// Why no certificate is issued. The text stays the same while the reason does, so that an alert can be acknowledged.
    fn authority_alert(&self, now: Now) -> Option<String> {
        if self.settings.terms.authority_ends_ms <= now.wall {
            return Some("the authority's certificate has expired; the operator has to replace it".to_owned());
        }
        let first = self.foreign.first()?;
        Some(format!(
            "ConfigDB names another enrolment key for cluster {first}{}: put the directory identity of the former state directory (the cluster manager's, before Identity was a service of its own) \
             into this one; or, if those keys are lost, set replace_keys",
            if self.foreign.len() > 1 { " and others" } else { "" }
        ))
    }
}

#[cfg(test)]
mod tests;
