//! Factory+ dump files (versions 1 and 2): reading them into write requests, and writing a replica as version 2.
//!
//! Loading has the meaning that it has there: what is listed is written, what is not listed stays. Requests come in phases, because a class must exist before its members: submit a
//! phase when the one before it is answered. Loading a file twice writes nothing the second time.
//!
//! Plain YAML and JSON are read, several documents in one file too. The tags `!u` and `!acs` are resolved by Factory+'s installer and cannot be resolved here; a file with tags is
//! refused as a whole.

use std::collections::{BTreeMap, BTreeSet};

use configdb_schema::application::{self, by_uuid};
use configdb_schema::document::Info;
use configdb_schema::known::{self, class, service, special};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::command::WriteRequest;
use crate::replica::ConfigReplica;

/// Why a file cannot be loaded, or a replica not be dumped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DumpError {
    /// Not YAML or JSON, or YAML with tags.
    #[error("the dump is not plain YAML or JSON: {reason}{hint}")]
    Text {
        /// What the parser says.
        reason: String,
        /// What to do about it.
        hint: &'static str,
    },
    /// A document that is not a ConfigDB dump.
    #[error("document {document} of the dump: {reason}")]
    Document {
        /// Which, from 1.
        document: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// The file lists an object under two classes.
    #[error("object {object} is listed under class {first} and under class {second}; an object has one primary class")]
    TwoClasses {
        /// Which.
        object: Uuid,
        /// One.
        first: Uuid,
        /// The other.
        second: Uuid,
    },
    /// Classes of the file are members of each other.
    #[error(
        "object {object} needs its class first, and that class needs the object first; the dump has no order in which it can be loaded"
    )]
    Cycle {
        /// One of them.
        object: Uuid,
    },
    /// A dump of what is not known completely would be no dump.
    #[error("the replica of ConfigDB is not complete; wait until it is")]
    Incomplete,
}

/// The content of a dump file.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Dump {
    objects: BTreeMap<Uuid, DumpObject>,
    members: BTreeMap<Uuid, BTreeSet<Uuid>>,
    /// By application, then by object.
    configs: BTreeMap<Uuid, BTreeMap<Uuid, DumpConfig>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct DumpObject {
    class: Uuid,
    name: Option<String>,
    /// A principal; None: as it is.
    owner: Option<Uuid>,
    member_of: BTreeSet<Uuid>,
    subclass_of: BTreeSet<Uuid>,
}

#[derive(Debug, Clone, PartialEq)]
struct DumpConfig {
    value: Value,
    overwrite: bool,
}

/// How [`Dump::requests`] makes its requests.
#[derive(Debug, Clone)]
pub struct LoadOptions {
    /// First part of the request ids; of each loading its own.
    pub id_prefix: String,
    /// Who writes.
    pub writer: String,
}

#[derive(Deserialize)]
struct Header {
    service: Uuid,
    version: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Version1 {
    #[serde(rename = "service")]
    _service: Uuid,
    #[serde(rename = "version")]
    _version: u64,
    overwrite: Option<bool>,
    #[serde(default)]
    classes: Vec<Uuid>,
    #[serde(default)]
    objects: BTreeMap<Uuid, Vec<Uuid>>,
    #[serde(default)]
    configs: BTreeMap<Uuid, BTreeMap<Uuid, Value>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Version2 {
    #[serde(rename = "service")]
    _service: Uuid,
    #[serde(rename = "version")]
    _version: u64,
    #[serde(default)]
    objects: BTreeMap<Uuid, BTreeMap<Uuid, Version2Object>>,
    #[serde(default)]
    configs: BTreeMap<Uuid, BTreeMap<Uuid, Value>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Version2Object {
    name: Option<String>,
    owner: Option<Uuid>,
    #[serde(default, rename = "memberOf")]
    member_of: BTreeSet<Uuid>,
    #[serde(default, rename = "subclassOf")]
    subclass_of: BTreeSet<Uuid>,
    #[serde(default, rename = "enum")]
    members: BTreeSet<Uuid>,
}

impl Dump {
    /// Reads a file: one or more documents, which are loaded as one.
    ///
    /// # Errors
    /// [`DumpError`] names the document and what is wrong.
    pub fn parse(text: &str) -> Result<Self, DumpError> {
        let options = serde_saphyr::options! { reject_unsupported_tags: true };
        let documents: Vec<Value> = serde_saphyr::from_multiple_with_options(text, options).map_err(|error| {
            let reason = error.to_string().lines().next().unwrap_or_default().to_owned();
            let tags = text.contains("!u ") || text.contains("!acs ");
            let hint =
                if tags { "; the tags !u and !acs must be replaced by what they stand for before loading" } else { "" };
            DumpError::Text { reason, hint }
        })?;
        let mut dump = Self::default();
        for (i, document) in documents.into_iter().enumerate() {
            dump.add(document, i + 1)?;
        }
        Ok(dump)
    }

    fn add(&mut self, document: Value, number: usize) -> Result<(), DumpError> {
        let wrong = |reason: String| DumpError::Document { document: number, reason };
        let header = Header::deserialize(&document).map_err(|e| wrong(e.to_string()))?;
        if header.service != service::CONFIGDB {
            return Err(wrong(format!(
                "is a dump of service {}, not of ConfigDB ({}); leave it out",
                header.service,
                service::CONFIGDB
            )));
        }
        let (configs, overwrite) = match header.version {
            1 => {
                let v1: Version1 = serde_json::from_value(document).map_err(|e| wrong(e.to_string()))?;
                for uuid in v1.classes {
                    self.add_object(uuid, DumpObject::of_class(class::R1_CLASS))?;
                }
                for (class, objects) in v1.objects {
                    for uuid in objects {
                        self.add_object(uuid, DumpObject::of_class(class))?;
                    }
                }
                (v1.configs, v1.overwrite.unwrap_or(true))
            }
            2 => {
                let v2: Version2 = serde_json::from_value(document).map_err(|e| wrong(e.to_string()))?;
                for (class, objects) in v2.objects {
                    for (uuid, Version2Object { name, owner, member_of, subclass_of, members }) in objects {
                        self.add_object(uuid, DumpObject { class, name, owner, member_of, subclass_of })?;
                        for member in members {
                            self.members.entry(member).or_default().insert(uuid);
                        }
                    }
                }
                (v2.configs, true)
            }
            other => return Err(wrong(format!("has version {other}; versions 1 and 2 can be loaded"))),
        };
        for (application, entries) in configs {
            if application == known::application::REGISTRATION {
                return Err(wrong(format!(
                    "configs: {application} (Object registration) is computed; list objects instead"
                )));
            }
            let known = self.configs.entry(application).or_default();
            known.extend(entries.into_iter().map(|(object, value)| (object, DumpConfig { value, overwrite })));
        }
        Ok(())
    }

    fn add_object(&mut self, uuid: Uuid, object: DumpObject) -> Result<(), DumpError> {
        let Some(known) = self.objects.get_mut(&uuid) else {
            self.objects.insert(uuid, object);
            return Ok(());
        };
        if known.class != object.class {
            return Err(DumpError::TwoClasses { object: uuid, first: known.class, second: object.class });
        }
        known.name = object.name.or(known.name.take());
        known.owner = object.owner.or(known.owner);
        known.member_of.extend(object.member_of);
        known.subclass_of.extend(object.subclass_of);
        Ok(())
    }

    /// The requests that bring a ConfigDB, of which `replica` is known, to what the file lists: phases, each to be submitted when the one before it has been answered. Empty if
    /// there is nothing to do.
    ///
    /// # Errors
    /// [`DumpError::Incomplete`]; [`DumpError::Cycle`].
    pub fn requests(
        &self,
        replica: &ConfigReplica,
        options: &LoadOptions,
    ) -> Result<Vec<Vec<WriteRequest>>, DumpError> {
        if !replica.is_complete() {
            return Err(DumpError::Incomplete);
        }
        let mut phases: Vec<Vec<WriteRequest>> = Vec::new();
        for depth in self.by_depth()? {
            phases.push(depth.into_iter().filter_map(|(uuid, object)| registration(replica, uuid, object)).collect());
        }
        phases.push(self.owners(replica));
        phases.push(self.memberships(replica));
        let schemas: BTreeSet<Uuid> = [known::application::CONFIG_SCHEMA].into();
        phases.push(self.entries(replica, |application| schemas.contains(&application)));
        phases.push(self.entries(replica, |application| !schemas.contains(&application)));
        phases.retain(|requests| !requests.is_empty());
        for (i, phase) in phases.iter_mut().enumerate() {
            for request in phase {
                request.id = format!("{}/{i}/{}", options.id_prefix, request.object);
                request.writer = Some(options.writer.clone());
            }
        }
        Ok(phases)
    }

    /// The objects, first those whose class is not in the file, then those whose class is among the former, and so on.
    fn by_depth(&self) -> Result<Vec<Vec<(Uuid, &DumpObject)>>, DumpError> {
        let mut done: BTreeSet<Uuid> = BTreeSet::new();
        let mut left: BTreeMap<Uuid, &DumpObject> = self.objects.iter().map(|(uuid, object)| (*uuid, object)).collect();
        let mut depths = Vec::new();
        while let Some(first) = left.keys().next().copied() {
            let ready: Vec<(Uuid, &DumpObject)> = left
                .iter()
                .filter(|(uuid, o)| {
                    o.class == **uuid || done.contains(&o.class) || !self.objects.contains_key(&o.class)
                })
                .map(|(uuid, object)| (*uuid, *object))
                .collect();
            if ready.is_empty() {
                return Err(DumpError::Cycle { object: first });
            }
            for (uuid, _) in &ready {
                left.remove(uuid);
                done.insert(*uuid);
            }
            depths.push(ready);
        }
        Ok(depths)
    }

    fn owners(&self, replica: &ConfigReplica) -> Vec<WriteRequest> {
        let owned = self.objects.iter().filter_map(|(uuid, object)| Some((*uuid, object.class, object.owner?)));
        let known = |uuid| replica.object(uuid).and_then(|o| o.registration.as_ref()).map(|r| r.owner);
        let other = owned.filter(|(uuid, _, owner)| known(*uuid) != Some(*owner));
        other.map(|(uuid, class, owner)| WriteRequest::put("", uuid).create_object(class, Some(owner))).collect()
    }

    fn memberships(&self, replica: &ConfigReplica) -> Vec<WriteRequest> {
        let none = BTreeSet::new();
        let objects: BTreeSet<Uuid> = self.objects.keys().chain(self.members.keys()).copied().collect();
        let mut requests = Vec::new();
        for uuid in objects {
            let listed = self.objects.get(&uuid);
            let known = replica.object(uuid).map(|o| o.membership.clone()).unwrap_or_default();
            let mut member_of = known.member_of.clone();
            member_of.extend(listed.map_or(&none, |o| &o.member_of));
            member_of.extend(self.members.get(&uuid).unwrap_or(&none));
            let mut subclass_of = known.subclass_of.clone();
            subclass_of.extend(listed.map_or(&none, |o| &o.subclass_of));
            let mut request = WriteRequest::put("", uuid);
            if member_of != known.member_of {
                request = request.member_of(member_of);
            }
            if subclass_of != known.subclass_of {
                request = request.subclass_of(subclass_of);
            }
            if request.membership.is_some() {
                requests.push(request);
            }
        }
        requests
    }

    fn entries(&self, replica: &ConfigReplica, wanted: impl Fn(Uuid) -> bool) -> Vec<WriteRequest> {
        let mut requests: BTreeMap<Uuid, WriteRequest> = BTreeMap::new();
        for (application, configs) in self.configs.iter().filter(|(application, _)| wanted(**application)) {
            let slug = replica.slug_of(*application).or_else(|| by_uuid(*application).map(|a| a.slug));
            let slug = slug.map_or_else(|| application.to_string(), str::to_owned);
            for (object, config) in configs {
                let entry = replica.entry(*object, &slug);
                let same = entry.is_some_and(|entry| entry.value().is_ok_and(|value| value == config.value));
                if same || (entry.is_some() && !config.overwrite) {
                    continue;
                }
                let request = requests.entry(*object).or_insert_with(|| WriteRequest::put("", *object));
                request.entries.insert(slug.clone(), Some(config.value.clone()));
                // What edges delete by is written only over what was looked at.
                if *application == known::application::EDGE_DEPLOYMENT {
                    request.if_match.insert(slug.clone(), entry.map(|entry| entry.etag));
                }
            }
        }
        requests.into_values().collect()
    }

    /// Everything that a complete replica holds.
    ///
    /// # Errors
    /// [`DumpError::Incomplete`].
    pub fn from_replica(replica: &ConfigReplica) -> Result<Self, DumpError> {
        if !replica.is_complete() {
            return Err(DumpError::Incomplete);
        }
        let mut dump = Self::default();
        for (uuid, object) in replica.objects() {
            let Some(registration) = &object.registration else { continue };
            let mut listed = DumpObject::of_class(registration.class);
            listed.owner = Some(registration.owner).filter(|owner| *owner != special::UNOWNED);
            listed.member_of = object.membership.member_of.clone();
            listed.member_of.remove(&registration.class);
            listed.subclass_of = object.membership.subclass_of.clone();
            for (slug, entry) in object.entries() {
                let Ok(value) = entry.value() else { continue };
                let only_a_name = entry.parse::<Info>().ok().filter(|info| *info == Info::named(info.name.clone()));
                match only_a_name {
                    Some(info) if slug == application::INFO.slug => listed.name = Some(info.name),
                    _ => {
                        let configs = dump.configs.entry(entry.application).or_default();
                        configs.insert(uuid, DumpConfig { value, overwrite: true });
                    }
                }
            }
            dump.objects.insert(uuid, listed);
        }
        Ok(dump)
    }

    /// As a document of version 2, in a stable order.
    #[must_use]
    pub fn to_value(&self) -> Value {
        let mut objects: BTreeMap<Uuid, BTreeMap<Uuid, Value>> = BTreeMap::new();
        for (uuid, object) in &self.objects {
            let mut fields = Map::new();
            fields.extend(object.name.as_ref().map(|name| ("name".to_owned(), json!(name))));
            fields.extend(object.owner.map(|owner| ("owner".to_owned(), json!(owner))));
            let mut relation = |key: &str, classes: &BTreeSet<Uuid>| {
                if !classes.is_empty() {
                    fields.insert(key.to_owned(), json!(classes));
                }
            };
            relation("memberOf", &object.member_of);
            relation("subclassOf", &object.subclass_of);
            let members = self.members.iter().filter(|(_, classes)| classes.contains(uuid)).map(|(member, _)| *member);
            relation("enum", &members.collect());
            objects.entry(object.class).or_default().insert(*uuid, Value::Object(fields));
        }
        let configs: BTreeMap<Uuid, BTreeMap<Uuid, &Value>> = self
            .configs
            .iter()
            .map(|(application, configs)| (*application, configs.iter().map(|(uuid, c)| (*uuid, &c.value)).collect()))
            .collect();
        json!({"service": service::CONFIGDB, "version": 2, "objects": objects, "configs": configs})
    }

    /// As YAML of version 2.
    ///
    /// # Errors
    /// If a value has no YAML form.
    pub fn to_yaml(&self) -> Result<String, DumpError> {
        serde_saphyr::to_string(&self.to_value())
            .map_err(|error| DumpError::Text { reason: error.to_string(), hint: "" })
    }
}

impl DumpObject {
    const fn of_class(class: Uuid) -> Self {
        Self { class, name: None, owner: None, member_of: BTreeSet::new(), subclass_of: BTreeSet::new() }
    }
}

/// What registers the object and names it; None if it is as listed.
fn registration(replica: &ConfigReplica, uuid: Uuid, object: &DumpObject) -> Option<WriteRequest> {
    let known = replica.object(uuid);
    let class = known.and_then(|o| o.registration.as_ref()).map(|r| r.class);
    let mut request = WriteRequest::patch("", uuid);
    if class != Some(object.class) {
        request = request.create_object(object.class, None);
    }
    if let Some(name) = &object.name {
        let known_name = known.and_then(|o| o.entry(application::INFO.slug)).and_then(|e| e.parse::<Info>().ok());
        if known_name.is_none_or(|info| info.name != *name) {
            request = request.entry(application::INFO.slug, json!({ "name": name }));
        }
    }
    (request.registration.is_some() || !request.entries.is_empty()).then_some(request)
}

#[cfg(test)]
mod tests;
