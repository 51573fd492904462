//! A typed, ordered copy of ConfigDB, made from the events of a Host Application.
//!
//! It knows whether it is complete: NBIRTH seen, as many objects born since as the node says there are, nothing missed. While it is not, the
//! last known content stays readable, but what is absent in it may exist: derive deletions only from a complete replica.
//! A DDEATH counts when the revision that it belongs to arrives: an object that dies and is born again in between (because its birth got another shape) is not gone.
//! A rebirth at the very state of the store that is here already changes nothing: the replica stays complete, or is so again.
//! After any other rebirth, objects that were not born again are gone when (and only when) the replica is complete again. A birth with another `Config/Store` is another database:
//! the replica drops everything at once and reports it as [`Change::StoreReplaced`], without a deletion of each object.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use configdb_schema::Document;
use configdb_schema::application::{MEMBERSHIP_SLUG, REGISTRATION_SLUG};
use configdb_schema::document::{Membership, Registration};
use serde::de::DeserializeOwned;
use sparkplug::host::HostEvent;
use sparkplug::replication::{Origin, Point};
use sparkplug::{DeviceId, EdgeNodeDescriptor, Metric, TypedMetrics};
use uuid::Uuid;

use crate::command::object_of;
use crate::entry::{self, Entry, EntryError, HistoryEntry};
use crate::names;
use crate::node::ConfigNode;
use crate::result::RequestResult;

/// An object, as far as it has been seen.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ObjectReplica {
    /// Its registration; None if ConfigDB did not send a readable one.
    pub registration: Option<Registration>,
    /// Its direct relations.
    pub membership: Membership,
    entries: BTreeMap<Arc<str>, Entry>,
    /// Born since the last NBIRTH.
    confirmed: bool,
}

impl ObjectReplica {
    fn has_content_of(&self, other: &Self) -> bool {
        (&self.registration, &self.membership, &self.entries)
            == (&other.registration, &other.membership, &other.entries)
    }

    /// From a message of the object's Device that has everything: its birth, or what answers `Device Control/Rebirth`. None: it has only a part of it, or something unreadable.
    #[must_use]
    pub fn from_message(metrics: &[Metric]) -> Option<Self> {
        let present = |name: &str| metrics.iter().find(|metric| &*metric.name == name && !metric.is_historical);
        let mut object = Self {
            registration: Some(parse_json(present(REGISTRATION_SLUG)?).ok()?),
            membership: parse_json(present(MEMBERSHIP_SLUG)?).ok()?,
            ..Self::default()
        };
        for metric in metrics.iter().filter(|metric| entry::application_of(metric).is_some()) {
            if let Some(entry) = entry::from_metric(metric).ok()? {
                object.entries.insert(metric.name.clone(), entry);
            }
        }
        Some(object)
    }

    /// Its entry under the application with that slug.
    #[must_use]
    pub fn entry(&self, slug: &str) -> Option<&Entry> {
        self.entries.get(slug)
    }

    /// All its entries in the order of the slugs.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &Entry)> {
        self.entries.iter().map(|(slug, entry)| (&**slug, entry))
    }

    /// Whether it is a direct member of the class; the primary class counts.
    #[must_use]
    pub fn is_member_of(&self, class: Uuid) -> bool {
        self.membership.member_of.contains(&class) || self.registration.as_ref().is_some_and(|r| r.class == class)
    }
}

/// What an event changed in the replica, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Another database answers: everything known is dropped.
    StoreReplaced {
        /// The store that was known.
        old: Uuid,
        /// The store that is born.
        new: Uuid,
    },
    /// An object that was not known is born; its entries follow.
    ObjectBorn {
        /// Which.
        object: Uuid,
    },
    /// The registration or the relations of an object are other than before.
    ObjectChanged {
        /// Which.
        object: Uuid,
    },
    /// An object is gone; the deletions of its entries were reported before.
    ObjectGone {
        /// Which.
        object: Uuid,
    },
    /// An entry is other than before.
    Entry {
        /// Its object.
        object: Uuid,
        /// Under which application.
        slug: Arc<str>,
        /// Before; None: there was none.
        old: Option<Entry>,
        /// Now; None: deleted.
        new: Option<Entry>,
    },
    /// From here on, what is absent does not exist.
    BecameComplete {
        /// Identity of the store.
        store: Option<Uuid>,
    },
    /// From here on, what is absent may exist.
    BecameIncomplete {
        /// For people.
        reason: String,
    },
    /// ConfigDB answered a request of any client. Reported once for each time it is seen, a birth included.
    Result(RequestResult),
    /// A replay brought a change of the past.
    History(HistoryEntry),
    /// What came cannot be of the ConfigDB that was born last: another process speaks for the same Edge Node. Nothing is believed until ConfigDB is born again, for which the consumer asks.
    Contradicted {
        /// For people.
        reason: String,
    },
    /// Something that ConfigDB sent cannot be read; it was left out.
    Malformed {
        /// What and why, for people.
        reason: String,
    },
}

/// The replica.
#[derive(Debug)]
pub struct ConfigReplica {
    node: EdgeNodeDescriptor,
    alive: bool,
    complete: bool,
    store: Option<Uuid>,
    /// What the node has published since its birth.
    published: Box<ConfigNode>,
    confirmed: u64,
    /// Of its last NBIRTH, UTC ms; nothing of the session is older.
    born_at: u64,
    /// The content is a state of the store at this revision or a later one; None: it is a mixture of two states.
    basis: Option<u64>,
    /// Died, but the revision that says so has not arrived.
    dying: BTreeSet<Uuid>,
    objects: BTreeMap<Uuid, ObjectReplica>,
    applications: BTreeMap<Arc<str>, Uuid>,
    changes: VecDeque<Change>,
}

impl ConfigReplica {
    /// An empty, incomplete replica of the ConfigDB that is this edge node.
    #[must_use]
    pub fn new(node: EdgeNodeDescriptor) -> Self {
        Self {
            node,
            alive: false,
            complete: false,
            store: None,
            published: Box::default(),
            confirmed: 0,
            born_at: 0,
            basis: None,
            dying: BTreeSet::new(),
            objects: BTreeMap::new(),
            applications: BTreeMap::new(),
            changes: VecDeque::new(),
        }
    }

    /// Takes an event of the Host Application; those of other nodes are ignored. Drain [`ConfigReplica::poll_change`] afterwards.
    pub fn on_event(&mut self, event: &HostEvent) {
        if let HostEvent::NodeData { node, timestamp, .. }
        | HostEvent::DeviceBirth { node, timestamp, .. }
        | HostEvent::DeviceData { node, timestamp, .. }
        | HostEvent::DeviceDeath { node, timestamp, .. } = event
            && self.replicates(node)
            && *timestamp < self.born_at
        {
            return self.contradict("a message is older than the birth before it".to_owned());
        }
        match event {
            HostEvent::NodeBirth { node, metrics, timestamp, .. } if *node == self.node => {
                self.born_at = *timestamp;
                self.on_node_birth(metrics);
            }
            HostEvent::NodeData { node, metrics, .. } if self.replicates(node) => {
                let results = self.read_node_metrics(metrics);
                self.changes.extend(results);
                if metrics.iter().any(|m| &*m.name == names::CONFIG_REVISION) {
                    for object in std::mem::take(&mut self.dying) {
                        self.remove(object);
                    }
                    self.basis = self.basis.map(|_| self.published.revision);
                }
                self.check_complete();
            }
            HostEvent::DeviceBirth { node, device, metrics, .. } if self.replicates(node) => {
                if let Some(object) = self.object_of_device(device) {
                    self.on_object_birth(object, metrics);
                    self.check_complete();
                }
            }
            HostEvent::DeviceData { node, device, metrics, .. } if self.replicates(node) => {
                if let Some(object) = self.object_of_device(device) {
                    self.on_object_data(object, metrics);
                }
            }
            HostEvent::DeviceDeath { node, device, .. } if self.replicates(node) => {
                let object = self.object_of_device(device);
                if let Some(known) = object.and_then(|object| self.objects.get_mut(&object)) {
                    self.confirmed -= u64::from(std::mem::take(&mut known.confirmed));
                    self.dying.extend(object);
                }
            }
            HostEvent::NodeDeath { node, .. } if *node == self.node => self.lose("ConfigDB is dead"),
            HostEvent::NodeStale { node, reason } if *node == self.node => self.lose(reason),
            HostEvent::Offline { reason } => self.lose(reason),
            _ => {}
        }
    }

    /// The next change, in order.
    pub fn poll_change(&mut self) -> Option<Change> {
        self.changes.pop_front()
    }

    /// Whether everything that exists is in here.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.complete
    }

    /// The edge node that is followed.
    #[must_use]
    pub const fn node(&self) -> &EdgeNodeDescriptor {
        &self.node
    }

    /// Identity of the store; None before the first birth.
    #[must_use]
    pub const fn store(&self) -> Option<Uuid> {
        self.store
    }

    /// Revision up to which everything has been seen.
    #[must_use]
    pub const fn revision(&self) -> u64 {
        self.published.revision
    }

    /// What an operator has to do something about.
    #[must_use]
    pub fn alert(&self) -> Option<&str> {
        self.published.alert.as_deref().filter(|_| self.alive)
    }

    /// Version of the program; empty before the first birth.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.published.version
    }

    /// Highest epoch that an operator has raised in the store.
    #[must_use]
    pub const fn epoch(&self) -> u64 {
        self.published.epoch
    }

    /// The origin of what is derived from this content, for a consumer that was released to `epoch`. None while the content is not a state of the store, but a mixture of two.
    #[must_use]
    pub fn origin(&self, epoch: u64) -> Option<Origin> {
        Some(Origin { store: self.store?, epoch, point: self.state()? })
    }

    /// The state of the store that the content is; None while it is not one, but a mixture of two.
    #[must_use]
    pub fn state(&self) -> Option<Point> {
        self.published.timelines.at(self.basis?)
    }

    /// Whether the content is a state of the store, and not a mixture of two, as it is while another state than the one that is here is being born.
    #[must_use]
    pub const fn is_one_state(&self) -> bool {
        self.basis.is_some()
    }

    /// The last state in this store of the timeline of which a consumer accepted a state; None: the store does not know that timeline.
    #[must_use]
    pub fn follows(&self, accepted: Origin) -> Option<Point> {
        let revision = self.basis.filter(|_| self.store == Some(accepted.store))?;
        self.published.timelines.last_of(accepted.point.timeline, revision)
    }

    /// Whether the store will forget the timeline of which a consumer accepted a state.
    #[must_use]
    pub fn is_ageing(&self, accepted: Origin) -> bool {
        self.store == Some(accepted.store) && self.published.timelines.is_ageing(accepted.point.timeline)
    }

    /// Size that no message of ConfigDB exceeds.
    #[must_use]
    pub const fn message_bytes_max(&self) -> Option<u64> {
        self.published.message_bytes_max
    }

    /// An object.
    #[must_use]
    pub fn object(&self, object: Uuid) -> Option<&ObjectReplica> {
        self.objects.get(&object)
    }

    /// All objects in the order of their UUIDs.
    pub fn objects(&self) -> impl Iterator<Item = (Uuid, &ObjectReplica)> {
        self.objects.iter().map(|(uuid, object)| (*uuid, object))
    }

    /// An entry.
    #[must_use]
    pub fn entry(&self, object: Uuid, slug: &str) -> Option<&Entry> {
        self.objects.get(&object)?.entry(slug)
    }

    /// All entries of an application in the order of the objects' UUIDs.
    pub fn entries<'a>(&'a self, slug: &'a str) -> impl Iterator<Item = (Uuid, &'a Entry)> {
        self.objects.iter().filter_map(move |(uuid, object)| Some((*uuid, object.entry(slug)?)))
    }

    /// A typed document, if the object has one.
    ///
    /// # Errors
    /// [`EntryError`], if the entry is not a `T`.
    pub fn document<T: Document>(&self, object: Uuid) -> Result<Option<T>, EntryError> {
        self.entry(object, T::slug()).map(Entry::parse).transpose()
    }

    /// The applications that objects can have entries under: slug and UUID.
    pub fn applications(&self) -> impl Iterator<Item = (&str, Uuid)> {
        self.applications.iter().map(|(slug, uuid)| (&**slug, *uuid))
    }

    /// The slug of an application.
    #[must_use]
    pub fn slug_of(&self, application: Uuid) -> Option<&str> {
        self.applications().find_map(|(slug, uuid)| (uuid == application).then_some(slug))
    }

    fn replicates(&self, node: &EdgeNodeDescriptor) -> bool {
        self.alive && *node == self.node
    }

    fn object_of_device(&mut self, device: &DeviceId) -> Option<Uuid> {
        let object = object_of(device);
        if object.is_none() {
            self.malformed(format!("device {device}: the device id is not a UUID"));
        }
        object
    }

    fn on_node_birth(&mut self, metrics: &[Metric]) {
        if self.is_at(metrics) {
            self.alive = true;
            let results = self.read_node_metrics(metrics);
            self.changes.extend(results);
            if !std::mem::replace(&mut self.complete, true) {
                self.changes.push_back(Change::BecameComplete { store: self.store });
            }
            return;
        }
        self.lose("ConfigDB is born again; its objects follow");
        self.alive = true;
        self.basis = None;
        self.confirmed = 0;
        self.dying.clear();
        *self.published = ConfigNode { revision: self.published.revision, ..ConfigNode::default() };
        self.applications.clear();
        let results = self.read_node_metrics(metrics);
        for object in self.objects.values_mut() {
            object.confirmed = false;
        }
        match (self.published.store, self.store) {
            (None, _) => {
                self.malformed(format!("NBIRTH: {} is missing or not a UUID", names::CONFIG_STORE));
                self.alive = false;
                return;
            }
            (Some(new), Some(old)) if new != old => {
                self.objects.clear();
                self.store = Some(new);
                self.changes.push_back(Change::StoreReplaced { old, new });
            }
            (new, _) => self.store = new,
        }
        self.changes.extend(results);
        self.check_complete();
    }

    /// Whether a birth is that of the very state of the store that is here, with nothing of a later one.
    fn is_at(&self, birth: &[Metric]) -> bool {
        let mut born = ConfigNode::default();
        for metric in birth.iter().filter(|metric| !metric.is_historical) {
            if born.merge([metric]).is_err() {
                return false;
            }
        }
        let point = |node: &ConfigNode| node.timelines.at(node.revision);
        let counted = usize::try_from(self.confirmed) == Ok(self.objects.len()) && born.objects == Some(self.confirmed);
        let is_settled = self.basis == Some(self.published.revision) && self.dying.is_empty() && counted;
        is_settled
            && born.store.is_some()
            && born.store == self.store
            && point(&born).is_some()
            && point(&born) == point(&self.published)
    }

    /// Yields the results of requests, and what cannot be read. One unreadable metric does not spoil the others.
    fn read_node_metrics(&mut self, metrics: &[Metric]) -> Vec<Change> {
        let mut changes = Vec::new();
        for metric in metrics.iter().filter(|m| !m.is_historical) {
            match self.published.merge([metric]) {
                Ok(()) if &*metric.name == names::REQUEST_RESULT => {
                    changes.extend(self.published.last_request.clone().map(Change::Result));
                }
                Ok(()) if &*metric.name == names::CONFIG_APPLICATIONS => {
                    self.applications.clone_from(&self.published.applications.0);
                }
                Ok(()) => {}
                Err(error) => changes.push(Change::Malformed { reason: error.to_string() }),
            }
        }
        changes
    }

    fn on_object_birth(&mut self, uuid: Uuid, metrics: &[Metric]) {
        let mut born = ObjectReplica { confirmed: true, ..ObjectReplica::default() };
        for metric in metrics {
            self.read_object_metric(uuid, &mut born, metric);
        }
        let known = self.objects.get(&uuid);
        let is_same = known.map_or(born.entries.is_empty(), |known| known.has_content_of(&born));
        // What was deleted and created in one turn can be as new without an entry.
        if !is_same && !self.dying.contains(&uuid) && !self.is_later(born.entries.values()) {
            return self.contradict(format!("object {uuid} is born with what it had in no state of this store"));
        }
        match known {
            None => {
                self.confirmed += 1;
                self.moved_on(None);
                self.changes.push_back(Change::ObjectBorn { object: uuid });
            }
            Some(known) => {
                self.confirmed += u64::from(!known.confirmed);
                if (&known.registration, &known.membership) != (&born.registration, &born.membership) {
                    self.moved_on(None);
                    self.changes.push_back(Change::ObjectChanged { object: uuid });
                }
            }
        }
        self.dying.remove(&uuid);
        let known = self.objects.remove(&uuid).unwrap_or_default();
        for (slug, old) in &known.entries {
            if !born.entries.contains_key(slug) {
                self.entry_changed(uuid, slug, Some(old.clone()), None);
            }
        }
        for (slug, new) in &born.entries {
            let old = known.entries.get(slug);
            if old != Some(new) {
                self.entry_changed(uuid, slug, old.cloned(), Some(new.clone()));
            }
        }
        self.objects.insert(uuid, born);
    }

    fn on_object_data(&mut self, uuid: Uuid, metrics: &[Metric]) {
        let Some(known) = self.objects.get(&uuid).filter(|object| object.confirmed).cloned() else {
            return self.malformed(format!("data of object {uuid} before its birth"));
        };
        let mut object = known.clone();
        for metric in metrics {
            if metric.is_historical {
                match HistoryEntry::from_metric(uuid, metric) {
                    Ok(history) => self.changes.push_back(Change::History(history)),
                    Err(reason) => self.malformed(format!("object {uuid}: {reason}")),
                }
                continue;
            }
            let old = object.entries.get(&metric.name).cloned();
            self.read_object_metric(uuid, &mut object, metric);
            let new = object.entries.get(&metric.name);
            // A deletion has no revision.
            if new.is_some() && old.as_ref() != new && !self.is_later(new) {
                let slug = &metric.name;
                return self.contradict(format!("{slug} of object {uuid} is sent as it was in no state of this store"));
            }
            if old.as_ref() != new {
                self.entry_changed(uuid, &metric.name, old, new.cloned());
            }
        }
        if (&known.registration, &known.membership) != (&object.registration, &object.membership) {
            self.moved_on(None);
            self.changes.push_back(Change::ObjectChanged { object: uuid });
        }
        self.objects.insert(uuid, object);
    }

    /// Puts what a metric says into `object`; an unreadable one leaves it as it is.
    fn read_object_metric(&mut self, uuid: Uuid, object: &mut ObjectReplica, metric: &Metric) {
        match &*metric.name {
            REGISTRATION_SLUG => match parse_json::<Registration>(metric) {
                Ok(registration) => object.registration = Some(registration),
                Err(reason) => self.malformed(format!("object {uuid}: {reason}")),
            },
            MEMBERSHIP_SLUG => match parse_json(metric) {
                Ok(membership) => object.membership = membership,
                Err(reason) => self.malformed(format!("object {uuid}: {reason}")),
            },
            // The registration and the entry Info have them.
            names::OBJECT_CLASS | names::OBJECT_NAME => {}
            _ => {
                if let Some(application) = entry::application_of(metric) {
                    self.applications.entry(metric.name.clone()).or_insert(application);
                }
                match entry::from_metric(metric) {
                    Ok(Some(entry)) => drop(object.entries.insert(metric.name.clone(), entry)),
                    Ok(None) => drop(object.entries.remove(&metric.name)),
                    Err(reason) => self.malformed(format!("object {uuid}: {reason}")),
                }
            }
        }
    }

    fn remove(&mut self, uuid: Uuid) {
        let Some(object) = self.objects.remove(&uuid) else { return };
        self.confirmed -= u64::from(object.confirmed);
        for (slug, old) in object.entries {
            self.entry_changed(uuid, &slug, Some(old), None);
        }
        self.changes.push_back(Change::ObjectGone { object: uuid });
    }

    /// For people: which births of a living ConfigDB have not arrived. None: all have, or nothing is known.
    #[must_use]
    pub fn missing_births(&self) -> Option<String> {
        let announced = self.published.objects.filter(|announced| self.alive && self.confirmed < *announced)?;
        Some(format!("of {} the births of {} of its {announced} devices have arrived", self.node, self.confirmed))
    }

    fn check_complete(&mut self) {
        let announced = self.published.objects.filter(|_| self.alive && !self.complete);
        if announced.is_some_and(|announced| self.confirmed >= announced) {
            let gone: Vec<Uuid> = self.objects.iter().filter(|(_, o)| !o.confirmed).map(|(uuid, _)| *uuid).collect();
            for uuid in gone {
                self.remove(uuid);
            }
            self.complete = true;
            self.basis = Some(self.published.revision);
            self.changes.push_back(Change::BecameComplete { store: self.store });
        }
    }

    /// Whether one of these entries is of a later transaction than the state that is here; every change of a state that is known has one.
    fn is_later<'a>(&self, entries: impl IntoIterator<Item = &'a Entry>) -> bool {
        let at = self.published.revision;
        !self.complete || self.basis.is_none() || entries.into_iter().any(|entry| entry.revision > at)
    }

    fn contradict(&mut self, reason: String) {
        self.basis = None;
        self.lose("another process speaks for ConfigDB");
        self.changes.push_back(Change::Contradicted { reason });
    }

    fn lose(&mut self, reason: &str) {
        self.alive = false;
        if std::mem::take(&mut self.complete) {
            self.changes.push_back(Change::BecameIncomplete { reason: reason.to_owned() });
        }
    }

    /// Something of a later transaction than the last received revision has come.
    fn moved_on(&mut self, revision: Option<u64>) {
        let at_least = revision.unwrap_or(0).max(self.published.revision.saturating_add(1));
        if self.complete {
            self.basis = self.basis.map(|basis| basis.max(at_least));
        }
    }

    fn entry_changed(&mut self, object: Uuid, slug: &Arc<str>, old: Option<Entry>, new: Option<Entry>) {
        self.moved_on(new.as_ref().map(|entry| entry.revision));
        self.changes.push_back(Change::Entry { object, slug: slug.clone(), old, new });
    }

    fn malformed(&mut self, reason: String) {
        self.changes.push_back(Change::Malformed { reason });
    }
}

fn parse_json<T: DeserializeOwned>(metric: &Metric) -> Result<T, String> {
    let text = metric.as_str().ok_or_else(|| format!("metric {} is not a String", metric.name))?;
    serde_json::from_str(text).map_err(|error| format!("metric {}: {error}", metric.name))
}

#[cfg(test)]
pub(crate) mod tests;
