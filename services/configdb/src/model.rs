//! The whole store in memory: objects, their classes and entries, and the applications. Pure: time comes in with a request, nothing goes out but what
//! [`Model::apply`] returns.
//!
//! A request is validated as a whole before anything changes; a refused one changes nothing. An applied one yields a [`crate::store::Transaction`] (what must be stored) and a [`Publication`]
//! (what must be published to readers).

mod apply;
mod classes;
mod draft;
pub(crate) mod schema;

use std::collections::BTreeMap;
use std::sync::Arc;

use configdb_schema::application::by_uuid;
use configdb_schema::known;
use sparkplug::replication::Timelines;
use uuid::Uuid;

use crate::epoch::epoch_of;
pub use crate::object::{Object, StoredEntry};
use crate::object_metrics::{birth_bytes, widest_metrics};
use crate::store::{Retention, Snapshot};
use schema::{Schema, SchemaFault};

pub use apply::{Applied, Origin, Publication, Refusal};

/// What keeps the store bounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Objects that are not deleted.
    pub objects_max: usize,
    /// Applications with a metric; each makes the birth of every object larger.
    pub applications_max: usize,
    /// Nesting of an entry.
    pub json_depth_max: usize,
    /// Bytes of a message; no object's birth may be larger.
    pub message_bytes_max: usize,
    /// Results of requests that are remembered, so that a repeated request is answered and not carried out again.
    pub requests_max: usize,
    /// How much history is kept.
    pub history: Retention,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            objects_max: 100_000,
            applications_max: 200,
            json_depth_max: 64,
            message_bytes_max: 256 * 1024,
            requests_max: 10_000,
            history: Retention::default(),
        }
    }
}

/// What a historical value of an entry takes besides the entry: so that every entry that fits its object's birth can also be replayed.
pub(crate) const HISTORY_BYTES: usize = 1024;

/// An application with a metric.
#[derive(Debug, Clone)]
pub(crate) struct ApplicationState {
    pub slug: Arc<str>,
    /// The stored one. It adds to that of the program.
    pub schema: Schema,
    /// That of the program, which other services rely on: no one replaces or deletes it.
    system: Schema,
}

impl ApplicationState {
    pub(crate) fn check(&self, value: &serde_json::Value) -> Result<(), SchemaFault> {
        self.system.check(value)?;
        if self.schema.is(&self.system) { Ok(()) } else { self.schema.check(value) }
    }
}

#[derive(Debug, Clone)]
pub struct Model {
    limits: Limits,
    identity: Uuid,
    timelines: Timelines,
    epoch: u64,
    revision: u64,
    objects: BTreeMap<Uuid, Object>,
    live: usize,
    applications: BTreeMap<Uuid, ApplicationState>,
    /// In the order of the slugs: the order of metrics in births.
    slugs: BTreeMap<Arc<str>, Uuid>,
}

/// A stored state that cannot have come from this program.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the store is inconsistent: {0}; restore it from a backup")]
pub struct Inconsistent(String);

impl Model {
    #[must_use]
    pub fn new(identity: Uuid, limits: Limits) -> Self {
        Self {
            limits,
            identity,
            timelines: Timelines::default(),
            epoch: 0,
            revision: 0,
            objects: BTreeMap::new(),
            live: 0,
            applications: BTreeMap::new(),
            slugs: BTreeMap::new(),
        }
    }

    /// The store as it was saved.
    ///
    /// # Errors
    /// [`Inconsistent`] names the row that fits nothing.
    pub fn from_snapshot(snapshot: &Snapshot, limits: Limits) -> Result<Self, Inconsistent> {
        let mut model = Self {
            revision: snapshot.revision,
            timelines: snapshot.timelines.clone(),
            ..Self::new(snapshot.identity, limits)
        };
        for row in &snapshot.objects {
            model.put_object(row);
        }
        for (application, slug) in &snapshot.applications {
            if !model.objects.contains_key(application) {
                return Err(Inconsistent(format!("application {application} is not an object")));
            }
            model.put_application(*application, slug.clone());
        }
        for (object, application, entry) in &snapshot.entries {
            let Some(owner) = model.objects.get_mut(object) else {
                return Err(Inconsistent(format!("an entry belongs to {object}, which is not an object")));
            };
            if !model.applications.contains_key(application) {
                return Err(Inconsistent(format!(
                    "object {object} has an entry under {application}, which is not an application"
                )));
            }
            owner.entries.insert(*application, entry.clone());
            model.raise_epoch(*application, entry);
        }
        let applications: Vec<Uuid> = model.applications.keys().copied().collect();
        for application in applications {
            let schema = model.stored_schema(application);
            model.set_schema(application, schema);
        }
        Ok(model)
    }

    /// Identity of the store.
    #[must_use]
    pub const fn identity(&self) -> Uuid {
        self.identity
    }

    /// Which session of the process wrote which revisions.
    #[must_use]
    pub const fn timelines(&self) -> &Timelines {
        &self.timelines
    }

    /// This session of the process writes from the transaction on that follows `revision`.
    pub fn begin_timeline(&mut self, timeline: u64, revision: u64) {
        self.timelines.begin(timeline, revision);
    }

    /// Highest epoch that an operator has raised for a cluster in this store.
    #[must_use]
    pub const fn epoch(&self) -> u64 {
        self.epoch
    }

    fn raise_epoch(&mut self, application: Uuid, entry: &StoredEntry) {
        if application == known::application::EDGE_CLUSTER_RECOVERY {
            self.epoch = self.epoch.max(epoch_of(&entry.json, self.identity).unwrap_or(0));
        }
    }

    /// Revision of the last transaction.
    #[must_use]
    pub const fn revision(&self) -> u64 {
        self.revision
    }

    #[must_use]
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Objects that are not deleted.
    #[must_use]
    pub const fn object_count(&self) -> usize {
        self.live
    }

    /// An object, deleted ones too.
    #[must_use]
    pub fn object(&self, uuid: Uuid) -> Option<&Object> {
        self.objects.get(&uuid)
    }

    /// An object that is not deleted.
    #[must_use]
    pub fn live_object(&self, uuid: Uuid) -> Option<&Object> {
        self.objects.get(&uuid).filter(|object| !object.deleted)
    }

    /// All objects that are not deleted.
    pub fn live_objects(&self) -> impl Iterator<Item = (Uuid, &Object)> {
        self.objects.iter().filter(|(_, object)| !object.deleted).map(|(uuid, object)| (*uuid, object))
    }

    /// The applications in the order of their slugs.
    pub fn applications(&self) -> impl Iterator<Item = (&Arc<str>, Uuid)> {
        self.slugs.iter().map(|(slug, uuid)| (slug, *uuid))
    }

    /// The application that a name in a request means: a slug, or a UUID as text.
    #[must_use]
    pub fn application(&self, name: &str) -> Option<Uuid> {
        self.slugs.get(name).copied().or_else(|| name.parse().ok().filter(|uuid| self.applications.contains_key(uuid)))
    }

    /// The slug of an application.
    #[must_use]
    pub fn slug(&self, application: Uuid) -> Option<&Arc<str>> {
        self.applications.get(&application).map(|a| &a.slug)
    }

    /// Whether an object comes with this program: it cannot be deleted or get another class.
    #[must_use]
    pub fn is_well_known(uuid: Uuid) -> bool {
        known::objects().any(|object| object.uuid == uuid)
    }

    /// Everything, as [`crate::store::Store::load`] gives it; the requests apart.
    #[must_use]
    pub fn to_snapshot(&self) -> Snapshot {
        Snapshot {
            identity: self.identity,
            timelines: self.timelines.clone(),
            revision: self.revision,
            objects: self.objects.iter().map(|(uuid, object)| object.row(*uuid)).collect(),
            applications: self.applications.iter().map(|(uuid, a)| (*uuid, a.slug.clone())).collect(),
            entries: self
                .objects
                .iter()
                .flat_map(|(uuid, object)| object.entries.iter().map(|(app, entry)| (*uuid, *app, entry.clone())))
                .collect(),
            requests: Vec::new(),
        }
    }

    fn put_object(&mut self, row: &crate::object::ObjectRow) {
        let known = self.objects.remove(&row.uuid);
        self.live -= usize::from(known.as_ref().is_some_and(|object| !object.deleted));
        self.live += usize::from(!row.deleted);
        let object = Object {
            class: row.class,
            rank: row.rank,
            owner: row.owner,
            deleted: row.deleted,
            member_of: row.member_of.clone(),
            subclass_of: row.subclass_of.clone(),
            entries: known.map(|object| object.entries).unwrap_or_default(),
        };
        self.objects.insert(row.uuid, object);
    }

    fn put_application(&mut self, uuid: Uuid, slug: Arc<str>) {
        self.slugs.insert(slug.clone(), uuid);
        self.applications
            .insert(uuid, ApplicationState { slug, schema: Schema::None, system: Schema::of_system(uuid) });
    }

    fn remove_application(&mut self, uuid: Uuid) {
        if let Some(gone) = self.applications.remove(&uuid) {
            self.slugs.remove(&gone.slug);
        }
    }

    fn set_schema(&mut self, application: Uuid, schema: Schema) {
        if let Some(state) = self.applications.get_mut(&application) {
            state.schema = schema;
        }
    }

    fn stored_schema(&self, application: Uuid) -> Schema {
        let entry = self.objects.get(&application).and_then(|o| o.entries.get(&known::application::CONFIG_SCHEMA));
        let Some(entry) = entry else { return Schema::None };
        Schema::stored(application, &entry.json).unwrap_or_else(|reason| Schema::Unusable(reason.into()))
    }

    /// The slug that an application gets when it becomes one; None for the computed registration, which has no entries.
    fn slug_for(&self, uuid: Uuid, name: Option<&str>) -> Option<Arc<str>> {
        if uuid == known::application::REGISTRATION {
            return None;
        }
        if let Some(known) = by_uuid(uuid) {
            return Some(known.slug.into());
        }
        let taken = |slug: &str| self.slugs.contains_key(slug) || configdb_schema::by_slug(slug).is_some();
        Some(configdb_schema::application::slug(name.unwrap_or_default(), uuid, taken).into())
    }

    fn birth_bytes(&self, uuid: Uuid, object: &Object) -> usize {
        birth_bytes(&widest_metrics(self.applications(), uuid, object)) + HISTORY_BYTES
    }
}

#[cfg(test)]
pub(crate) mod tests;
