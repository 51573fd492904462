//! The object as a request would make it. Making a draft validates the request against everything but sizes; installing it cannot fail.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use configdb_contract::{Mode, RegistrationChange, WriteRequest};
use configdb_schema::application::{MEMBERSHIP_SLUG, REGISTRATION_SLUG};
use configdb_schema::document::Info;
use configdb_schema::known::{application, special};
use serde_json::Value;
use uuid::Uuid;

use super::schema::{self, Schema};
use super::{Model, Object, Origin, Refusal, StoredEntry};

pub(super) struct Draft {
    pub uuid: Uuid,
    pub before: Option<Object>,
    pub object: Object,
    /// Applications whose entries differ, in order.
    pub changed: Vec<Uuid>,
    /// The object becomes an application with this slug (Some), or stops being one (None).
    pub application: Option<Option<Arc<str>>>,
    /// The object is an application and its entries are to be checked with this from here on.
    pub schema: Option<Schema>,
}

impl Draft {
    pub(super) fn was_live(&self) -> bool {
        self.before.as_ref().is_some_and(|object| !object.deleted)
    }

    pub(super) fn is_born(&self) -> bool {
        !self.was_live() && !self.object.deleted
    }

    pub(super) fn registration_changed(&self) -> bool {
        registration_differs(self.before.as_ref(), &self.object)
    }

    pub(super) fn membership_changed(&self) -> bool {
        self.before
            .as_ref()
            .is_none_or(|b| (&b.member_of, &b.subclass_of) != (&self.object.member_of, &self.object.subclass_of))
    }

    pub(super) fn is_changed(&self) -> bool {
        !self.changed.is_empty() || self.registration_changed() || self.membership_changed()
    }
}

impl Model {
    pub(super) fn draft_of_deletion(&self, request: &WriteRequest) -> Result<Draft, Refusal> {
        let refuse = |reason: String| Err(Refusal::new(REGISTRATION_SLUG, reason));
        let uuid = request.object;
        if !request.entries.is_empty() || request.membership.is_some() {
            return refuse("a deletion cannot be combined with other changes; send two requests".to_owned());
        }
        let Some(before) = self.object(uuid).cloned() else {
            return refuse(format!("object {uuid} does not exist"));
        };
        if Self::is_well_known(uuid) {
            return refuse(format!("object {uuid} belongs to the system and cannot be deleted"));
        }
        let references = self.references_to(uuid);
        if !references.is_empty() {
            return refuse(format!("the object is in use: {}; change these first", references.join(", ")));
        }
        let object = Object {
            deleted: true,
            member_of: [before.class].into(),
            subclass_of: BTreeSet::new(),
            entries: BTreeMap::new(),
            ..before.clone()
        };
        let application = self.applications.contains_key(&uuid).then_some(None);
        let changed = before.entries.keys().copied().collect();
        Ok(Draft { uuid, before: Some(before), object, changed, application, schema: None })
    }

    pub(super) fn draft_of_write(&self, request: &WriteRequest, origin: Origin<'_>) -> Result<Draft, Refusal> {
        let uuid = request.object;
        let before = self.object(uuid).cloned();
        let mut object = self.registered(request, before.as_ref())?;
        self.relate(request, &mut object)?;
        let application = self.application_change(uuid, before.as_ref(), &object, request)?;
        let mut draft = Draft { uuid, before, object, changed: Vec::new(), application, schema: None };
        for (name, value) in &request.entries {
            self.write_entry(&mut draft, name, value.as_ref(), request.mode, origin)?;
        }
        self.change_schema(&mut draft)?;
        Ok(draft)
    }

    /// The object with the registration that the request asks for.
    fn registered(&self, request: &WriteRequest, before: Option<&Object>) -> Result<Object, Refusal> {
        let refuse = |reason: String| Err(Refusal::new(REGISTRATION_SLUG, reason));
        let uuid = request.object;
        let live = before.filter(|object| !object.deleted);
        let Some(RegistrationChange::Register { class, owner }) = request.registration else {
            return match live {
                Some(object) => Ok(object.clone()),
                None => refuse(format!("object {uuid} does not exist; create it with Registration {{\"class\": ...}}")),
            };
        };
        let rank = self.rank_of_members(class).map_err(|reason| Refusal::new(REGISTRATION_SLUG, reason))?;
        if class == uuid && uuid != configdb_schema::known::class::R3_CLASS {
            return refuse(format!("{uuid} cannot be its own class"));
        }
        let owner = owner.or(live.map(|object| object.owner)).unwrap_or(special::UNOWNED);
        if owner != special::UNOWNED && self.live_object(owner).is_none() {
            return refuse(format!("owner {owner} does not exist"));
        }
        let Some(known) = before else {
            let member_of = [class].into();
            let (subclass_of, entries) = (BTreeSet::new(), BTreeMap::new());
            return Ok(Object { class, rank, owner, deleted: false, member_of, subclass_of, entries });
        };
        if known.rank != rank {
            return refuse(format!(
                "{uuid} has rank {}, but members of {class} have rank {rank}; ranks do not change",
                known.rank
            ));
        }
        if known.class != class && Self::is_well_known(uuid) {
            return refuse(format!("object {uuid} belongs to the system and keeps its class {}", known.class));
        }
        let mut object = Object { class, owner, deleted: false, ..known.clone() };
        object.member_of.remove(&known.class);
        object.member_of.insert(class);
        Ok(object)
    }

    fn relate(&self, request: &WriteRequest, object: &mut Object) -> Result<(), Refusal> {
        let refuse = |reason| Refusal::new(MEMBERSHIP_SLUG, reason);
        let Some(change) = &request.membership else { return Ok(()) };
        if let Some(member_of) = &change.member_of {
            object.member_of.clone_from(member_of);
            object.member_of.insert(object.class);
            self.check_member_of(request.object, object.rank, &object.member_of).map_err(refuse)?;
        }
        if let Some(subclass_of) = &change.subclass_of {
            let pruned = self.check_subclass_of(request.object, object.rank, subclass_of).map_err(refuse)?;
            let made_applications =
                |superclasses: &BTreeSet<Uuid>| superclasses.iter().any(|c| self.is_class_of_applications(*c));
            let has_members = || self.live_objects().any(|(_, other)| other.member_of.contains(&request.object));
            let has_subclasses = || self.live_objects().any(|(_, other)| other.subclass_of.contains(&request.object));
            if made_applications(&pruned) != made_applications(&object.subclass_of)
                && (has_members() || has_subclasses())
            {
                let reason =
                    "its members would become or stop being applications; remove its members and subclasses first";
                return Err(refuse(reason.to_owned()));
            }
            object.subclass_of = pruned;
        }
        Ok(())
    }

    fn application_change(
        &self,
        uuid: Uuid,
        before: Option<&Object>,
        object: &Object,
        request: &WriteRequest,
    ) -> Result<Option<Option<Arc<str>>>, Refusal> {
        match (self.applications.contains_key(&uuid), self.is_application(object)) {
            (false, true) => {
                let info = request.entries.get("Info").and_then(Option::as_ref);
                let given = info.and_then(|value| value.get("name")).and_then(Value::as_str).map(str::to_owned);
                let stored = before.and_then(|o| o.entries.get(&application::INFO));
                let known =
                    stored.and_then(|entry| serde_json::from_str::<Info>(&entry.json).ok()).map(|info| info.name);
                Ok(self.slug_for(uuid, given.or(known).as_deref()).map(Some))
            }
            (true, false) => match self.live_objects().find(|(_, other)| other.entries.contains_key(&uuid)) {
                Some((other, _)) => Err(Refusal::new(
                    MEMBERSHIP_SLUG,
                    format!(
                        "{uuid} is an application, and object {other} has an entry under it; delete the entries first"
                    ),
                )),
                None => Ok(Some(None)),
            },
            _ => Ok(None),
        }
    }

    fn write_entry(
        &self,
        draft: &mut Draft,
        name: &str,
        value: Option<&Value>,
        mode: Mode,
        origin: Origin<'_>,
    ) -> Result<(), Refusal> {
        let application = self.application_named(name)?;
        if draft.changed.contains(&application) {
            return Err(Refusal::new(name, "the application is named twice, by slug and by UUID"));
        }
        let old = draft.object.entries.get(&application);
        let Some(value) = value else {
            if draft.object.entries.remove(&application).is_some() {
                draft.changed.push(application);
            }
            return Ok(());
        };
        if application == draft.uuid && draft.application == Some(None) {
            let reason = "stops being an application with this request, so nothing can have an entry under it";
            return Err(Refusal::new(name, reason));
        }
        // What this program stored is JSON; a store that was tampered with must not stop the writes that repair it.
        let old_value: Option<Value> = old.and_then(|entry| serde_json::from_str(&entry.json).ok());
        let value = match mode {
            Mode::Put => value.clone(),
            Mode::Patch => patched(old_value.as_ref(), value).map_err(|reason| Refusal::new(name, reason))?,
        };
        let depth = schema::depth(&value);
        if depth > self.limits.json_depth_max {
            let reason = format!("is nested {depth} levels deep; at most {} are allowed", self.limits.json_depth_max);
            return Err(Refusal::new(name, reason));
        }
        if old_value.as_ref() == Some(&value) {
            return Ok(());
        }
        if let Some(state) = self.applications.get(&application) {
            state.check(&value).map_err(|fault| Refusal::new(format!("{name}{}", fault.path), fault.reason))?;
        }
        let revision = self.revision + 1;
        let etag = etag(self.identity, revision, application, draft.uuid);
        let entry = StoredEntry { json: value.to_string().into(), etag, revision, builtin: origin.builtin };
        draft.object.entries.insert(application, entry);
        draft.changed.push(application);
        Ok(())
    }

    /// If the draft changes the schema of the application that the object is: compile it and check every entry that exists.
    fn change_schema(&self, draft: &mut Draft) -> Result<(), Refusal> {
        let slug = || self.name_of(application::CONFIG_SCHEMA);
        let becomes = matches!(draft.application, Some(Some(_)));
        let touched = draft.changed.contains(&application::CONFIG_SCHEMA);
        let is_application = becomes || (self.applications.contains_key(&draft.uuid) && draft.application.is_none());
        let entry = draft.object.entries.get(&application::CONFIG_SCHEMA);
        if touched && entry.is_some() && !is_application {
            return Err(Refusal::new(
                slug(),
                format!("object {} is not an application; only applications have a schema", draft.uuid),
            ));
        }
        if !is_application || !(touched || becomes) {
            return Ok(());
        }
        let schema = match entry {
            None => Schema::None,
            Some(entry) => Schema::stored(draft.uuid, &entry.json).map_err(|reason| Refusal::new(slug(), reason))?,
        };
        let of_draft = draft.object.entries.get(&draft.uuid).map(|entry| (draft.uuid, entry));
        let others = self.live_objects().filter(|(uuid, _)| *uuid != draft.uuid);
        let existing = others.filter_map(|(uuid, object)| Some((uuid, object.entries.get(&draft.uuid)?)));
        for (uuid, entry) in of_draft.into_iter().chain(existing) {
            let value: Value = serde_json::from_str(&entry.json).unwrap_or(Value::Null);
            if let Err(fault) = schema.check(&value) {
                let reason = format!(
                    "object {uuid} has an entry that it does not allow: {}; change the entry first",
                    fault.reason
                );
                return Err(Refusal::new(slug(), reason));
            }
        }
        draft.schema = Some(schema);
        Ok(())
    }
}

fn patched(old: Option<&Value>, patch: &Value) -> Result<Value, String> {
    let mut value = match old {
        None => Value::Object(serde_json::Map::new()),
        Some(Value::Object(members)) => Value::Object(members.clone()),
        Some(_) => return Err("the entry is not an object and cannot be patched; put it as a whole".to_owned()),
    };
    json_patch::merge(&mut value, patch);
    Ok(value)
}

/// Derived, so that a replayed log of requests gives the same store.
fn etag(store: Uuid, revision: u64, application: Uuid, object: Uuid) -> Uuid {
    Uuid::new_v5(&store, format!("{revision}:{application}:{object}").as_bytes())
}

/// Whether two states of an object differ in what the registration says.
fn registration_differs(before: Option<&Object>, after: &Object) -> bool {
    before
        .is_none_or(|b| (b.class, b.rank, b.owner, b.deleted) != (after.class, after.rank, after.owner, after.deleted))
}
