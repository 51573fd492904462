//! What is known of the store: a copy that watches and own writes keep up to date. It may be old; every write names the version that it replaces, so an old copy costs a repeat and
//! never a wrong decision that lasts.

use std::collections::{BTreeMap, BTreeSet};

use join_attestation::EkHash;
use join_protocol::terms::RequestId;
use uuid::Uuid;

use crate::document::{
    Binding, ControlPlaneLease, Document, HostRecord, Key, Leader, PolicyRecord, Request, Store, from_text,
};
use crate::event::{Observation, Written};

/// A document with its version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry<T> {
    /// To be named when it is replaced.
    pub version: String,
    /// What it says.
    pub is: T,
}

/// The copy.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    requests: BTreeMap<RequestId, Entry<Request>>,
    hosts: BTreeMap<EkHash, Entry<HostRecord>>,
    disks: BTreeMap<Uuid, Entry<Binding>>,
    names: BTreeMap<String, Entry<Binding>>,
    policy: Option<Entry<PolicyRecord>>,
    control_plane: Option<Entry<ControlPlaneLease>>,
    leader: Option<Entry<Leader>>,
    nodes: Option<BTreeSet<String>>,
    /// Versions of all, readable or not.
    versions: BTreeMap<Key, String>,
    unreadable: BTreeMap<Key, String>,
    listed: BTreeSet<Store>,
    /// Hosts by the disk that their record names.
    by_disk: BTreeMap<Uuid, BTreeSet<EkHash>>,
    /// Disks whose hosts may have to be reported again.
    changed_disks: BTreeSet<Uuid>,
}

impl Cache {
    /// Everything has been listed once.
    #[must_use]
    pub(crate) fn is_complete(&self) -> bool {
        self.nodes.is_some() && self.listed.len() == 2
    }

    /// Attempts.
    #[must_use]
    pub(crate) const fn requests(&self) -> &BTreeMap<RequestId, Entry<Request>> {
        &self.requests
    }

    /// Hosts.
    #[must_use]
    pub(crate) const fn hosts(&self) -> &BTreeMap<EkHash, Entry<HostRecord>> {
        &self.hosts
    }

    /// Hosts whose record names this disk.
    pub(crate) fn hosts_of_disk(&self, disk: Uuid) -> impl DoubleEndedIterator<Item = (&EkHash, &Entry<HostRecord>)> {
        let keys = self.by_disk.get(&disk).into_iter().flatten();
        keys.filter_map(|ek| self.hosts.get_key_value(ek))
    }

    /// Disks of which a host or the owner changed since this was asked last.
    pub(crate) fn take_changed_disks(&mut self) -> BTreeSet<Uuid> {
        std::mem::take(&mut self.changed_disks)
    }

    /// One attempt.
    #[must_use]
    pub(crate) fn request(&self, id: RequestId) -> Option<&Entry<Request>> {
        self.requests.get(&id)
    }

    /// One host.
    #[must_use]
    pub(crate) fn host(&self, ek: &EkHash) -> Option<&Entry<HostRecord>> {
        self.hosts.get(ek)
    }

    /// Owners of disks.
    #[must_use]
    pub(crate) const fn disks(&self) -> &BTreeMap<Uuid, Entry<Binding>> {
        &self.disks
    }

    /// Owners of names.
    #[must_use]
    pub(crate) const fn names(&self) -> &BTreeMap<String, Entry<Binding>> {
        &self.names
    }

    /// The host that has the disk.
    #[must_use]
    pub(crate) fn disk_owner(&self, disk: Uuid) -> Option<EkHash> {
        self.disks.get(&disk).map(|entry| entry.is.ek)
    }

    /// The host that has the name.
    #[must_use]
    pub(crate) fn name_owner(&self, name: &str) -> Option<EkHash> {
        self.names.get(name).map(|entry| entry.is.ek)
    }

    /// The last policy.
    #[must_use]
    pub(crate) const fn policy(&self) -> Option<&Entry<PolicyRecord>> {
        self.policy.as_ref()
    }

    /// The host that may join the control plane.
    #[must_use]
    pub(crate) const fn control_plane(&self) -> Option<&Entry<ControlPlaneLease>> {
        self.control_plane.as_ref()
    }

    /// The replica that speaks.
    #[must_use]
    pub(crate) const fn leader(&self) -> Option<&Entry<Leader>> {
        self.leader.as_ref()
    }

    /// A node of that name is in the cluster.
    #[must_use]
    pub(crate) fn is_node(&self, name: &str) -> bool {
        self.nodes.as_ref().is_some_and(|nodes| nodes.contains(name))
    }

    /// Version of a document, readable or not.
    #[must_use]
    pub(crate) fn version(&self, key: &Key) -> Option<&String> {
        self.versions.get(key)
    }

    /// A document that cannot be read, for people.
    #[must_use]
    pub(crate) fn unreadable(&self) -> Option<String> {
        self.unreadable.iter().next().map(|(key, reason)| format!("{key} {reason}"))
    }

    /// Takes changes of documents over. Failures are the caller's.
    pub(crate) fn on_documents(&mut self, store: Store, observation: Observation<Document>) {
        match observation {
            Observation::Listed(documents) => {
                let here: BTreeSet<Key> = documents.iter().map(|document| document.key.clone()).collect();
                let gone: Vec<Key> =
                    self.versions.keys().filter(|key| key.store() == store && !here.contains(key)).cloned().collect();
                gone.iter().for_each(|key| self.remove(key));
                documents.into_iter().for_each(|document| self.put(document));
                self.listed.insert(store);
            }
            Observation::Changed(document) => self.put(document),
            Observation::Gone(document) => self.remove(&document.key),
            Observation::Failed(_) => {}
        }
    }

    /// Takes changes of the cluster's nodes over.
    pub(crate) fn on_nodes(&mut self, observation: Observation<String>) {
        match observation {
            Observation::Listed(names) => self.nodes = Some(names.into_iter().collect()),
            Observation::Changed(name) => {
                self.nodes.get_or_insert_default().insert(name);
            }
            Observation::Gone(name) => {
                self.nodes.get_or_insert_default().remove(&name);
            }
            Observation::Failed(_) => {}
        }
    }

    /// What was read.
    pub(crate) fn on_read(&mut self, key: &Key, found: Option<Document>) {
        match found {
            Some(document) => {
                // It was asked for because the copy was wrong: it counts whatever the order of the versions.
                self.versions.remove(key);
                self.put(document);
            }
            None => self.remove(key),
        }
    }

    /// What this replica wrote.
    pub(crate) fn on_written(&mut self, written: Written) {
        match written.document {
            Some((version, text)) => self.put(Document { key: written.key, version, text }),
            None => self.remove(&written.key),
        }
    }

    fn put(&mut self, document: Document) {
        let Document { key, version, text } = document;
        let number = |version: &str| version.parse::<u64>().ok();
        if let Some(known) = self.versions.get(&key)
            && let (Some(known), Some(new)) = (number(known), number(&version))
            && new <= known
        {
            // An event about what this replica has replaced since, or has written itself.
            return;
        }
        self.remove(&key);
        self.versions.insert(key.clone(), version.clone());
        let put = match &key {
            Key::Request(id) => {
                Request::from_text(&text).map(|is| drop(self.requests.insert(*id, Entry { version, is })))
            }
            Key::Host(ek) => from_text(&text).map(|is: HostRecord| {
                self.changed_disks.insert(is.disk);
                self.by_disk.entry(is.disk).or_default().insert(*ek);
                self.hosts.insert(*ek, Entry { version, is });
            }),
            Key::Disk(disk) => from_text(&text).map(|is| {
                self.changed_disks.insert(*disk);
                self.disks.insert(*disk, Entry { version, is });
            }),
            Key::Name(name) => from_text(&text).map(|is| drop(self.names.insert(name.clone(), Entry { version, is }))),
            Key::Policy => from_text(&text).map(|is| self.policy = Some(Entry { version, is })),
            Key::ControlPlane => from_text(&text).map(|is| self.control_plane = Some(Entry { version, is })),
            Key::Leader => from_text(&text).map(|is| self.leader = Some(Entry { version, is })),
        };
        if let Err(reason) = put {
            tracing::warn!(object = %key, reason, "document unreadable");
            self.unreadable.insert(key, reason);
        }
    }

    fn remove(&mut self, key: &Key) {
        self.versions.remove(key);
        self.unreadable.remove(key);
        match key {
            Key::Request(id) => drop(self.requests.remove(id)),
            Key::Host(ek) => self.remove_host(ek),
            Key::Disk(disk) => {
                self.changed_disks.insert(*disk);
                self.disks.remove(disk);
            }
            Key::Name(name) => drop(self.names.remove(name)),
            Key::Policy => self.policy = None,
            Key::ControlPlane => self.control_plane = None,
            Key::Leader => self.leader = None,
        }
    }

    fn remove_host(&mut self, ek: &EkHash) {
        let Some(disk) = self.hosts.remove(ek).map(|entry| entry.is.disk) else { return };
        self.changed_disks.insert(disk);
        if let Some(keys) = self.by_disk.get_mut(&disk) {
            keys.remove(ek);
            if keys.is_empty() {
                self.by_disk.remove(&disk);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::to_text;

    fn document(version: &str, since_ms: u64) -> Document {
        let text = to_text(&Binding { ek: [1; 32], since_ms });
        Document { key: Key::Name("a".to_owned()), version: version.to_owned(), text }
    }

    #[test]
    fn an_old_event_does_not_undo_an_own_write_but_a_read_counts_always() {
        let mut cache = Cache::default();
        let since = |cache: &Cache| cache.names()["a"].is.since_ms;
        cache.on_documents(Store::ConfigMaps, Observation::Changed(document("9", 1)));
        let written =
            Written { key: Key::Name("a".to_owned()), document: Some(("11".to_owned(), document("11", 2).text)) };
        cache.on_written(written);
        cache.on_documents(Store::ConfigMaps, Observation::Changed(document("10", 3)));
        assert_eq!(since(&cache), 2);
        cache.on_read(&Key::Name("a".to_owned()), Some(document("10", 4)));
        assert_eq!(since(&cache), 4);
        cache.on_documents(Store::ConfigMaps, Observation::Listed(Vec::new()));
        assert_eq!(cache.name_owner("a"), None);
    }

    #[test]
    fn a_document_that_cannot_be_read_is_reported_and_has_a_version() {
        let mut cache = Cache::default();
        let key = Key::Host([1; 32]);
        let document = Document { key: key.clone(), version: "1".to_owned(), text: "{}".to_owned() };
        cache.on_documents(Store::ConfigMaps, Observation::Listed(vec![document]));
        assert!(cache.unreadable().unwrap().starts_with("join-host-0101"));
        assert_eq!((cache.host(&[1; 32]), cache.version(&key).map(String::as_str)), (None, Some("1")));
    }
}
