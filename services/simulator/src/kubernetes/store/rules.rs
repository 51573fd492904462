//! The rules that every write obeys, whatever its verb: identity, preconditions, what a writer cannot change. Pure functions of objects.

use serde_json::{Value, json};

use super::super::error::{ApiError, Cause};
use super::super::kinds::{Kind, ResourceId};

pub(super) fn is_definition(id: &ResourceId) -> bool {
    id.group == "apiextensions.k8s.io" && id.plural == "customresourcedefinitions"
}

pub(super) fn is_namespace(id: &ResourceId) -> bool {
    id.group.is_empty() && id.plural == "namespaces"
}

pub(super) fn has_finalizers(object: &Value) -> bool {
    object["metadata"]["finalizers"].as_array().is_some_and(|list| !list.is_empty())
}

/// Everything that generation counts.
pub(super) fn specification(object: &Value) -> Value {
    let mut plain = object.clone();
    if let Some(map) = plain.as_object_mut() {
        for field in ["metadata", "status", "apiVersion", "kind"] {
            map.shift_remove(field);
        }
    }
    plain
}

/// The object must be what its URL says; what it leaves out is filled in.
pub(super) fn check_identity(kind: &Kind, object: &mut Value, namespace: &str, name: &str) -> Result<(), ApiError> {
    if !object.is_object() {
        return Err(ApiError::bad_request("the body is not a JSON object"));
    }
    if object["kind"].as_str().is_some_and(|k| k != kind.kind)
        || object["apiVersion"].as_str().is_some_and(|v| v != kind.api_version())
    {
        return Err(ApiError::bad_request(format!(
            "{} in version {} cannot be handled as a {} in version {}",
            object["kind"].as_str().unwrap_or_default(),
            object["apiVersion"].as_str().unwrap_or_default(),
            kind.kind,
            kind.api_version()
        )));
    }
    if !object["metadata"].is_object() {
        object["metadata"] = json!({});
    }
    let metadata = &mut object["metadata"];
    match metadata["name"].as_str().filter(|n| !n.is_empty()) {
        Some(given) if given != name => {
            return Err(ApiError::bad_request(format!(
                "the name of the object ({given}) does not match the name on the URL ({name})"
            )));
        }
        _ if !name.is_empty() => metadata["name"] = json!(name),
        _ => {}
    }
    match metadata["namespace"].as_str().filter(|n| !n.is_empty()) {
        Some(given) if given != namespace => {
            return Err(ApiError::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        _ if kind.namespaced => metadata["namespace"] = json!(namespace),
        _ => {
            if let Some(map) = metadata.as_object_mut() {
                map.shift_remove("namespace");
            }
        }
    }
    Ok(())
}

pub(super) fn check_preconditions(id: &ResourceId, name: &str, old: &Value, metadata: &Value) -> Result<(), ApiError> {
    let given = |field: &str| metadata[field].as_str().filter(|text| !text.is_empty());
    if given("uid").is_some_and(|uid| old["metadata"]["uid"] != json!(uid)) {
        return Err(ApiError::conflict(id, name, "Precondition failed: UID in precondition is not that of the object"));
    }
    if given("resourceVersion").is_some_and(|version| old["metadata"]["resourceVersion"] != json!(version)) {
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        return Err(ApiError::conflict(id, name, why));
    }
    Ok(())
}

/// Puts back what this kind of write cannot change.
pub(super) fn restore(kind: &Kind, old: &Value, object: &mut Value, subresource: &str, restore_managers: bool) {
    let managers = object["metadata"]["managedFields"].clone();
    if subresource == "status" {
        let status = object.get("status").cloned();
        *object = old.clone();
        match status {
            Some(status) => object["status"] = status,
            None => {
                object.as_object_mut().map(|map| map.shift_remove("status"));
            }
        }
        if !restore_managers {
            object["metadata"]["managedFields"] = managers;
        }
    } else if kind.has_status {
        match old.get("status") {
            Some(status) => object["status"] = status.clone(),
            None => {
                object.as_object_mut().map(|map| map.shift_remove("status"));
            }
        }
    }
    let kept = [
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "resourceVersion",
    ];
    let managed = restore_managers.then_some("managedFields");
    if let Some(metadata) = object["metadata"].as_object_mut() {
        for field in kept.into_iter().chain(managed) {
            match old["metadata"].get(field) {
                Some(value) => metadata.insert(field.to_string(), value.clone()),
                None => metadata.shift_remove(field),
            };
        }
    }
}

/// While an object is being deleted, finalizers can only go.
pub(super) fn check_finalizers(kind: &Kind, name: &str, old: &Value, object: &Value) -> Result<(), ApiError> {
    if !old["metadata"]["deletionTimestamp"].is_string() {
        return Ok(());
    }
    let empty = Vec::new();
    let list = |o: &Value| o["metadata"]["finalizers"].as_array().unwrap_or(&empty).clone();
    let before = list(old);
    if list(object).iter().any(|finalizer| !before.contains(finalizer)) {
        let cause =
            Cause::forbidden("metadata.finalizers", "no new finalizers can be added if the object is being deleted");
        return Err(ApiError::invalid(&kind.group, &kind.kind, name, &[cause]));
    }
    Ok(())
}

/// Takes out of an applied configuration what this kind of apply does not concern.
pub(super) fn keep_applicable(kind: &Kind, configuration: &mut Value, is_status: bool, exists: bool) {
    let Some(map) = configuration.as_object_mut() else { return };
    if is_status {
        map.retain(|field, _| matches!(field.as_str(), "apiVersion" | "kind" | "status" | "metadata"));
        if let Some(metadata) = map.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.retain(|field, _| matches!(field.as_str(), "name" | "namespace" | "resourceVersion" | "uid"));
        }
    } else if kind.has_status && exists {
        map.shift_remove("status");
    }
}
