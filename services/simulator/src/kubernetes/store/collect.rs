//! What follows a removal: dependents of the object, contents of a namespace or definition, and the container that only waited for its last object. Immediate, where
//! the real controllers take a moment.

use std::sync::Arc;

use serde_json::{Value, json};

use super::super::kinds::{ResourceId, defined_resource};
use super::super::watch::{Change, LogEntry};
use super::rules::{has_finalizers, is_definition, is_namespace};
use super::{DeleteOptions, Store};

impl Store {
    /// Takes an object out and follows up: dependents, contents' container.
    pub(super) fn remove(
        &mut self,
        id: &ResourceId,
        namespace: &str,
        name: &str,
        orphan: bool,
        wall_ms: u64,
    ) -> Option<Arc<Value>> {
        let previous = self.objects.get_mut(id)?.remove(&(namespace.to_string(), name.to_string()))?;
        self.version += 1;
        let mut last = previous.as_ref().clone();
        last["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let last = Arc::new(last);
        self.log.push(LogEntry {
            version: self.version,
            resource: id.clone(),
            namespace: namespace.to_string(),
            name: name.to_string(),
            change: Change::Deleted,
            object: last.clone(),
            previous: Some(previous),
        });
        if is_definition(id)
            && let Some(defined) = defined_resource(&last)
        {
            self.kinds.undefine(&defined);
            self.objects.remove(&defined);
        }
        let uid = last["metadata"]["uid"].as_str().unwrap_or_default().to_string();
        self.release_dependents(&uid, orphan, wall_ms);
        self.finish_container(id, namespace, wall_ms);
        Some(last)
    }

    fn release_dependents(&mut self, uid: &str, orphan: bool, wall_ms: u64) {
        let owned = |object: &Value| {
            let owners = object["metadata"]["ownerReferences"].as_array();
            owners.is_some_and(|list| list.iter().any(|o| o["uid"].as_str() == Some(uid)))
        };
        let mut dependents = Vec::new();
        for (id, objects) in &self.objects {
            dependents.extend(objects.iter().filter(|(_, o)| owned(o)).map(|(key, _)| (id.clone(), key.clone())));
        }
        for (id, (namespace, name)) in dependents {
            let Some(object) = self.find(&id, &namespace, &name).cloned() else { continue };
            let others = object["metadata"]["ownerReferences"].as_array().is_some_and(|list| list.len() > 1);
            if orphan || others {
                let mut kept = object.as_ref().clone();
                if let Some(list) = kept["metadata"]["ownerReferences"].as_array_mut() {
                    list.retain(|o| o["uid"].as_str() != Some(uid));
                }
                self.commit(&id, &namespace, &name, kept);
            } else if let Some(kind) = self.kinds.by_id(&id) {
                // The dependent exists, and no precondition is given: this cannot be refused.
                let _ = self.delete(&kind, &namespace, &name, &DeleteOptions::default(), wall_ms);
            }
        }
    }

    /// Whether a namespace or a definition still has contents.
    pub(super) fn holds_contents(&self, id: &ResourceId, object: &Value) -> bool {
        if is_namespace(id) {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            return self.objects.values().any(|objects| objects.keys().any(|(ns, _)| ns == name));
        }
        is_definition(id)
            && defined_resource(object).is_some_and(|defined| self.objects.get(&defined).is_some_and(|o| !o.is_empty()))
    }

    pub(super) fn delete_contents(&mut self, id: &ResourceId, container: &Value, wall_ms: u64) {
        let name = container["metadata"]["name"].as_str().unwrap_or_default();
        let defined = defined_resource(container);
        let mut contents = Vec::new();
        for (resource, objects) in &self.objects {
            let all = is_definition(id) && defined.as_ref() == Some(resource);
            let inside = |ns: &String| is_namespace(id) && ns == name;
            contents
                .extend(objects.keys().filter(|(ns, _)| all || inside(ns)).map(|key| (resource.clone(), key.clone())));
        }
        for (resource, (ns, name)) in contents {
            if let Some(kind) = self.kinds.by_id(&resource) {
                // An object that an earlier deletion took along is gone already, which is what was wanted.
                let _ = self.delete(&kind, &ns, &name, &DeleteOptions::default(), wall_ms);
            }
        }
    }

    /// After an object has gone: the namespace or definition that only waited for it goes too.
    fn finish_container(&mut self, id: &ResourceId, namespace: &str, wall_ms: u64) {
        let waits =
            |object: &Arc<Value>| object["metadata"]["deletionTimestamp"].is_string() && !has_finalizers(object);
        let namespaces = ResourceId::new("", "namespaces");
        if let Some(object) = self.find(&namespaces, "", namespace).filter(|o| waits(o)).cloned()
            && !self.holds_contents(&namespaces, &object)
        {
            self.remove(&namespaces, "", namespace, false, wall_ms);
        }
        let definitions = ResourceId::new("apiextensions.k8s.io", "customresourcedefinitions");
        if let Some(object) = self.find(&definitions, "", &id.to_string()).filter(|o| waits(o)).cloned()
            && !self.holds_contents(&definitions, &object)
        {
            self.remove(&definitions, "", &id.to_string(), false, wall_ms);
        }
    }
}
