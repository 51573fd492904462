//! The state of a simulated cluster's API: its objects, one counter of versions, the log of changes. Knows the rules of every verb; knows no HTTP,
//! clock, task or randomness: the time of a write comes in with it.
//!
//! Garbage collection is immediate: dependents whose owners are all gone, the contents of a namespace, the objects of a definition.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use uuid::Uuid;

use super::admission;
use super::apply::{self, Writer, without_managers};
use super::error::{ApiError, Cause};
use super::kinds::{Kind, Kinds, ResourceId};
use super::merge;
use super::schema;
use super::watch::{Change, Cursor, EventLog, LogEntry, WatchEvent};

mod collect;
mod request;
mod rules;

pub use request::{DeleteOptions, Deleted, ListOptions, Page, Patch, WriteOptions, timestamp};

use request::ContinueToken;
use rules::{
    check_finalizers, check_identity, check_preconditions, has_finalizers, is_definition, is_namespace,
    keep_applicable, restore, specification,
};

type Objects = BTreeMap<(String, String), Arc<Value>>;

/// The objects of one simulated cluster.
#[derive(Debug)]
pub struct Store {
    kinds: Kinds,
    objects: BTreeMap<ResourceId, Objects>,
    version: u64,
    log: EventLog,
    seed: Uuid,
}

impl Store {
    /// An empty store. UIDs are derived from `seed`; versions count from `version`, which must exceed those of an earlier life of the cluster.
    pub fn new(seed: Uuid, log_capacity: usize, version: u64) -> Self {
        Self {
            kinds: Kinds::builtin(),
            objects: BTreeMap::new(),
            version,
            log: EventLog::new(log_capacity, version),
            seed,
        }
    }

    /// The kinds served at the moment.
    pub fn kinds(&self) -> &Kinds {
        &self.kinds
    }

    /// Version of the last write.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Forgets the log, and counts one version further so that every reader is behind.
    pub fn expire_log(&mut self) {
        self.version += 1;
        self.log.expire(self.version);
    }

    /// Forgets the log, as a server does that is started again: who does not know the last write is behind.
    pub fn restart_log(&mut self) {
        self.log.expire(self.version);
    }

    fn find(&self, id: &ResourceId, namespace: &str, name: &str) -> Option<&Arc<Value>> {
        self.objects.get(id)?.get(&(namespace.to_string(), name.to_string()))
    }

    pub fn get(&self, kind: &Kind, namespace: &str, name: &str) -> Result<Arc<Value>, ApiError> {
        let id = kind.id();
        self.find(&id, namespace, name).cloned().ok_or_else(|| ApiError::not_found(&id, name))
    }

    /// Lists objects of one namespace, or of all.
    pub fn list(&self, kind: &Kind, namespace: Option<&str>, options: &ListOptions) -> Result<Page, ApiError> {
        let id = kind.id();
        let token = options.continue_token.as_deref().map(ContinueToken::decode).transpose()?;
        let wanted = token.as_ref().map(|t| t.version).or(options.exact_version);
        if let Some(asked) = wanted.filter(|asked| *asked > self.version) {
            return Err(ApiError::version_too_large(asked, self.version));
        }
        let empty = Objects::new();
        let current = self.objects.get(&id).unwrap_or(&empty);
        let rewound;
        let objects = match wanted.filter(|asked| *asked < self.version) {
            Some(asked) => {
                rewound = self.log.rewind(&id, current, asked).map_err(|_| {
                    ApiError::expired("The provided continue parameter is too old to display a consistent list result. You must start a new list without the continue parameter.")
                })?;
                &rewound
            }
            None => current,
        };
        let mut selected: Vec<(&(String, String), &Arc<Value>)> = objects
            .iter()
            .filter(|((ns, _), _)| namespace.is_none_or(|wanted| wanted == ns))
            .filter(|(key, _)| token.as_ref().is_none_or(|t| (&t.namespace, &t.name) < (&key.0, &key.1)))
            .filter(|(_, object)| options.selector.matches(object))
            .collect();
        let version = wanted.unwrap_or(self.version);
        let mut page = Page { items: Vec::new(), version, continue_token: None, remaining: None };
        if options.limit > 0 && selected.len() > options.limit {
            page.remaining = Some(selected.len() - options.limit);
            selected.truncate(options.limit);
            page.continue_token = selected
                .last()
                .map(|((ns, name), _)| ContinueToken { version, namespace: ns.clone(), name: name.clone() }.encode());
        }
        page.items = selected.into_iter().map(|(_, object)| object.clone()).collect();
        Ok(page)
    }

    /// The next events of a watch; an error ends it.
    pub fn poll(&self, cursor: &mut Cursor) -> Result<Vec<WatchEvent>, ApiError> {
        if cursor.version > self.version {
            // A version from another life of this cluster: the reader must start over.
            return Err(ApiError::expired(format!("resource version {} is not of this cluster", cursor.version)));
        }
        cursor.poll(&self.log, self.version)
    }

    pub fn create(
        &mut self,
        kind: &Kind,
        namespace: &str,
        mut object: Value,
        options: &WriteOptions,
    ) -> Result<Arc<Value>, ApiError> {
        let id = kind.id();
        let mut name = object["metadata"]["name"].as_str().unwrap_or_default().to_string();
        if name.is_empty()
            && let Some(prefix) = object["metadata"]["generateName"].as_str()
        {
            let suffix = Uuid::new_v5(&self.seed, format!("name:{}", self.version).as_bytes()).simple().to_string();
            name = format!("{prefix}{}", &suffix[..5]);
            object["metadata"]["name"] = json!(name);
        }
        check_identity(kind, &mut object, namespace, &name)?;
        if self.find(&id, namespace, &name).is_some() {
            return Err(ApiError::already_exists(&id, &name));
        }
        if object["metadata"]["resourceVersion"].as_str().is_some_and(|v| !v.is_empty()) {
            return Err(ApiError::bad_request("resourceVersion should not be set on objects to be created"));
        }
        self.write(kind, None, object, options, true)
    }

    /// Replaces an object (or its status).
    pub fn update(
        &mut self,
        kind: &Kind,
        namespace: &str,
        name: &str,
        mut object: Value,
        options: &WriteOptions,
    ) -> Result<Arc<Value>, ApiError> {
        let old = self.get(kind, namespace, name)?;
        check_identity(kind, &mut object, namespace, name)?;
        let versionless = object["metadata"]["resourceVersion"].as_str().is_none_or(str::is_empty);
        if kind.custom && versionless {
            let cause = Cause::invalid("metadata.resourceVersion", &json!(0), "must be specified for an update");
            return Err(ApiError::invalid(&kind.group, &kind.kind, name, &[cause]));
        }
        self.write(kind, Some(old), object, options, true)
    }

    /// Patches an object (or its status). The flag says whether it was created, which only an apply can do.
    pub fn patch(
        &mut self,
        kind: &Kind,
        namespace: &str,
        name: &str,
        patch: &Patch,
        options: &WriteOptions,
    ) -> Result<(Arc<Value>, bool), ApiError> {
        if let Patch::Apply(configuration) = patch {
            return self.apply(kind, namespace, name, configuration.clone(), options);
        }
        let old = self.get(kind, namespace, name)?;
        let mut object = old.as_ref().clone();
        if let Some(metadata) = object["metadata"].as_object_mut() {
            // A patch is conditional only if it names a version itself.
            metadata.shift_remove("resourceVersion");
        }
        match patch {
            Patch::Merge(patch) => merge::merge(&mut object, patch),
            Patch::Strategic(_) if kind.custom => {
                return Err(ApiError::unsupported_media_type(
                    "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
                ));
            }
            Patch::Strategic(patch) => merge::merge(&mut object, &merge::without_directives(patch)),
            Patch::Json(patch) => merge::json_patch(&mut object, patch)?,
            Patch::Apply(_) => {}
        }
        check_identity(kind, &mut object, namespace, name)?;
        Ok((self.write(kind, Some(old), object, options, true)?, false))
    }

    fn apply(
        &mut self,
        kind: &Kind,
        namespace: &str,
        name: &str,
        mut configuration: Value,
        options: &WriteOptions,
    ) -> Result<(Arc<Value>, bool), ApiError> {
        if options.manager.is_empty() {
            let cause = Cause::required("fieldManager", "is required for apply patch");
            return Err(ApiError::invalid("meta.k8s.io", "PatchOptions", "", &[cause]));
        }
        if configuration.pointer("/metadata/managedFields").and_then(Value::as_array).is_some_and(|m| !m.is_empty()) {
            return Err(ApiError::bad_request("metadata.managedFields must be nil"));
        }
        if configuration["apiVersion"].as_str() != Some(&kind.api_version())
            || configuration["kind"].as_str() != Some(&kind.kind)
        {
            return Err(ApiError::bad_request(format!(
                "invalid object type: an applied configuration must say apiVersion {} and kind {}",
                kind.api_version(),
                kind.kind
            )));
        }
        admission::check_types(kind, &configuration)?;
        check_identity(kind, &mut configuration, namespace, name)?;
        if kind.group.is_empty() && kind.kind == "Secret" {
            admission::default_object(&Kind { schema: None, ..kind.clone() }, &mut configuration, "");
        }
        if let Some(node) = &kind.schema {
            schema::prune(&mut configuration, node);
        }
        let live = self.find(&kind.id(), namespace, name).cloned();
        let is_status = options.subresource == "status";
        if is_status && live.is_none() {
            return Err(ApiError::not_found(&kind.id(), name));
        }
        keep_applicable(kind, &mut configuration, is_status, live.is_some());
        if live.is_none() && configuration.pointer("/metadata/uid").is_some_and(|uid| !uid.is_null()) {
            return Err(ApiError::conflict(
                &kind.id(),
                name,
                "uid mismatch: the provided object specified a uid, and no object exists",
            ));
        }
        let skeleton = json!({ "apiVersion": kind.api_version(), "kind": kind.kind, "metadata": { "name": name } });
        let mut base = live.as_ref().map_or(skeleton, |live| live.as_ref().clone());
        if let Some(metadata) = base["metadata"].as_object_mut() {
            metadata.shift_remove("resourceVersion");
        }
        let api_version = kind.api_version();
        let time = options.time();
        let writer = Writer {
            manager: &options.manager,
            api_version: &api_version,
            subresource: &options.subresource,
            time: &time,
        };
        let object = apply::apply(&base, &configuration, kind.schema.as_deref(), writer, options.force)?;
        let created = live.is_none();
        Ok((self.write(kind, live, object, options, false)?, created))
    }

    /// The common end of every write: what the writer may not change is restored, the object is completed, checked and stored.
    fn write(
        &mut self,
        kind: &Kind,
        old: Option<Arc<Value>>,
        mut object: Value,
        options: &WriteOptions,
        track: bool,
    ) -> Result<Arc<Value>, ApiError> {
        let id = kind.id();
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_string();
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default().to_string();
        object["apiVersion"] = json!(kind.api_version());
        object["kind"] = json!(kind.kind);
        match &old {
            Some(old) => {
                check_preconditions(&id, &name, old, &object["metadata"])?;
                restore(kind, old, &mut object, &options.subresource, track);
            }
            None => {
                self.check_namespace(kind, &namespace, &name)?;
                self.stamp_creation(kind, &mut object, options);
            }
        }
        if options.subresource.is_empty() {
            admission::default_object(kind, &mut object, &options.time());
        }
        admission::validate(kind, &object)?;
        if let Some(old) = &old {
            check_finalizers(kind, &name, old, &object)?;
            if without_managers(old) == without_managers(&object)
                && (track || old["metadata"]["managedFields"] == object["metadata"]["managedFields"])
            {
                return Ok(old.clone());
            }
            if kind.has_generation && specification(old) != specification(&object) {
                object["metadata"]["generation"] = json!(old["metadata"]["generation"].as_u64().unwrap_or(0) + 1);
            }
        }
        if track {
            let (api_version, time) = (kind.api_version(), options.time());
            let writer = Writer {
                manager: &options.manager,
                api_version: &api_version,
                subresource: &options.subresource,
                time: &time,
            };
            apply::track_update(old.as_deref(), &mut object, kind.schema.as_deref(), writer);
        }
        if options.dry_run {
            return Ok(Arc::new(object));
        }
        let is_finished = object["metadata"]["deletionTimestamp"].is_string() && !has_finalizers(&object);
        if is_finished && !self.holds_contents(&id, &object) {
            return Ok(self.remove(&id, &namespace, &name, false, options.wall_ms).unwrap_or_else(|| Arc::new(object)));
        }
        Ok(self.commit(&id, &namespace, &name, object))
    }

    fn check_namespace(&self, kind: &Kind, namespace: &str, name: &str) -> Result<(), ApiError> {
        if !kind.namespaced {
            return Ok(());
        }
        let namespaces = ResourceId::new("", "namespaces");
        let object =
            self.find(&namespaces, "", namespace).ok_or_else(|| ApiError::not_found(&namespaces, namespace))?;
        if object["metadata"]["deletionTimestamp"].is_string() {
            let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
            return Err(ApiError::forbidden(&kind.id(), name, &why));
        }
        Ok(())
    }

    fn stamp_creation(&self, kind: &Kind, object: &mut Value, options: &WriteOptions) {
        let name = format!("{}:{}:{}", self.version, options.wall_ms, kind.id());
        if let Some(metadata) = object["metadata"].as_object_mut() {
            for field in
                ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "generation", "resourceVersion"]
            {
                metadata.shift_remove(field);
            }
            metadata.insert("uid".to_string(), json!(Uuid::new_v5(&self.seed, name.as_bytes()).to_string()));
            metadata.insert("creationTimestamp".to_string(), json!(options.time()));
            if kind.has_generation {
                metadata.insert("generation".to_string(), json!(1));
            }
        }
        let keeps_status =
            !kind.has_status || matches!(kind.kind.as_str(), "Node" | "Namespace" | "CustomResourceDefinition");
        if !keeps_status && let Some(map) = object.as_object_mut() {
            map.shift_remove("status");
        }
    }

    fn commit(&mut self, id: &ResourceId, namespace: &str, name: &str, mut object: Value) -> Arc<Value> {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let object = Arc::new(object);
        let objects = self.objects.entry(id.clone()).or_default();
        let previous = objects.insert((namespace.to_string(), name.to_string()), object.clone());
        self.log.push(LogEntry {
            version: self.version,
            resource: id.clone(),
            namespace: namespace.to_string(),
            name: name.to_string(),
            change: if previous.is_some() { Change::Modified } else { Change::Added },
            object: object.clone(),
            previous,
        });
        if is_definition(id) {
            self.kinds.define(&object);
        }
        object
    }

    /// Deletes an object, or marks it when finalizers hold it.
    pub fn delete(
        &mut self,
        kind: &Kind,
        namespace: &str,
        name: &str,
        wanted: &DeleteOptions,
        wall_ms: u64,
    ) -> Result<Deleted, ApiError> {
        let id = kind.id();
        let old = self.get(kind, namespace, name)?;
        let expected =
            |given: &Option<String>, field: &str| given.as_ref().is_some_and(|g| old["metadata"][field] != json!(g));
        if expected(&wanted.uid, "uid") {
            let why = format!(
                "Precondition failed: UID in precondition: {}, UID in object meta: {}",
                wanted.uid.as_deref().unwrap_or_default(),
                old["metadata"]["uid"].as_str().unwrap_or_default()
            );
            return Err(ApiError::conflict(&id, name, &why));
        }
        if expected(&wanted.resource_version, "resourceVersion") {
            return Err(ApiError::conflict(
                &id,
                name,
                "Precondition failed: the resourceVersion in the precondition is not that of the object",
            ));
        }
        if wanted.dry_run {
            return Ok(Deleted::Removed(old));
        }
        if is_definition(&id) || is_namespace(&id) {
            self.delete_contents(&id, &old, wall_ms);
        }
        let is_held = has_finalizers(&old) || self.holds_contents(&id, &old);
        if !is_held {
            let removed = self.remove(&id, namespace, name, wanted.orphan, wall_ms).unwrap_or(old);
            return Ok(Deleted::Removed(removed));
        }
        if old["metadata"]["deletionTimestamp"].is_string() {
            return Ok(Deleted::Pending(old));
        }
        let mut marked = old.as_ref().clone();
        marked["metadata"]["deletionTimestamp"] = json!(timestamp(wall_ms));
        marked["metadata"]["deletionGracePeriodSeconds"] = json!(0);
        if kind.has_generation {
            marked["metadata"]["generation"] = json!(marked["metadata"]["generation"].as_u64().unwrap_or(0) + 1);
        }
        if is_namespace(&id) {
            marked["status"] = json!({ "phase": "Terminating" });
        }
        Ok(Deleted::Pending(self.commit(&id, namespace, name, marked)))
    }

    /// Deletes everything a list would return; the objects as they were.
    pub fn delete_collection(
        &mut self,
        kind: &Kind,
        namespace: Option<&str>,
        options: &ListOptions,
        wanted: &DeleteOptions,
        wall_ms: u64,
    ) -> Result<Page, ApiError> {
        let page = self.list(kind, namespace, options)?;
        for object in &page.items {
            let (ns, name) = key_of(object);
            let one = DeleteOptions { uid: None, resource_version: None, ..wanted.clone() };
            match self.delete(kind, &ns, &name, &one, wall_ms) {
                Ok(_) => {}
                // Garbage collection of an earlier one may have taken it along.
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(page)
    }
}

/// Namespace and name of an object.
pub fn key_of(object: &Value) -> (String, String) {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_string();
    (text("namespace"), text("name"))
}

#[cfg(test)]
mod tests;
