//! What the API server does to an object before it stores it: defaults of built-in kinds, and validation of names, labels and contents. Pure.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::error::{ApiError, Cause};
use super::kinds::Kind;
use super::schema;
use super::selector::{is_dns_label, is_dns_subdomain, is_label_key, is_label_value};

/// Fills in what the server would fill in.
pub fn default_object(kind: &Kind, object: &mut Value, time: &str) {
    if let Some(node) = &kind.schema {
        schema::prune_and_default(object, node);
        return;
    }
    match (kind.group.as_str(), kind.kind.as_str()) {
        ("", "Secret") => {
            merge_string_data(object);
            default_to(object, "type", json!("Opaque"));
        }
        ("", "Namespace") => {
            let name = object["metadata"]["name"].clone();
            default_to(&mut object["metadata"], "labels", json!({}));
            object["metadata"]["labels"]["kubernetes.io/metadata.name"] = name;
            default_to(object, "spec", json!({ "finalizers": ["kubernetes"] }));
            default_to(object, "status", json!({ "phase": "Active" }));
        }
        ("", "Pod") => default_to(object, "status", json!({ "phase": "Pending" })),
        ("", "Service") => {
            default_section(object, "spec", &[("type", json!("ClusterIP")), ("sessionAffinity", json!("None"))])
        }
        ("apps", "Deployment") => {
            default_section(object, "spec", &[("replicas", json!(1)), ("revisionHistoryLimit", json!(10))])
        }
        ("apiextensions.k8s.io", "CustomResourceDefinition") => establish(object, time),
        _ => {}
    }
}

/// Refuses an applied configuration with a value of a wrong type, as the API server does before it looks at anything else. Of built-in kinds it knows the maps of texts, and how many
/// replicas are wanted.
pub fn check_types(kind: &Kind, configuration: &Value) -> Result<(), ApiError> {
    let texts = json!({ "type": "object", "additionalProperties": { "type": "string" } });
    let metadata = json!({ "type": "object", "properties": { "labels": texts, "annotations": texts } });
    let own = match (kind.group.as_str(), kind.kind.as_str()) {
        ("", "ConfigMap" | "Secret") => json!({ "data": texts, "binaryData": texts, "stringData": texts }),
        ("apps", _) => json!({ "spec": { "type": "object", "properties": { "replicas": { "type": "integer" } } } }),
        _ => json!({}),
    };
    let built_in = json!({ "type": "object", "properties": own });
    let schema = kind.schema.as_deref().unwrap_or(&built_in);
    let wrong = schema::wrong_type(&configuration["metadata"], &metadata, "metadata")
        .or_else(|| schema::wrong_type(configuration, schema, ""));
    let Some((field, wanted)) = wrong else { return Ok(()) };
    let text = |field: &str| configuration["metadata"][field].as_str().unwrap_or_default();
    let object = format!("{}/{}; {}, Kind={}", text("namespace"), text("name"), kind.api_version(), kind.kind);
    let pointer = format!("/{}", field.replace(['.', '['], "/").replace(']', ""));
    let value = configuration.pointer(&pointer).unwrap_or(&Value::Null);
    Err(ApiError::untyped(&object, &field, &wanted, value))
}

fn default_to(object: &mut Value, field: &str, value: Value) {
    if object.get(field).is_none_or(Value::is_null) {
        object[field] = value;
    }
}

fn default_section(object: &mut Value, section: &str, fields: &[(&str, Value)]) {
    default_to(object, section, json!({}));
    for (field, value) in fields {
        default_to(&mut object[section], field, value.clone());
    }
}

/// `stringData` is write-only: it goes into `data`, encoded.
fn merge_string_data(object: &mut Value) {
    let Some(plain) = object.as_object_mut().and_then(|o| o.shift_remove("stringData")) else { return };
    let Value::Object(plain) = plain else { return };
    default_to(object, "data", json!({}));
    for (key, value) in plain {
        object["data"][key] = json!(STANDARD.encode(value.as_str().unwrap_or_default()));
    }
}

/// A definition is established as soon as it is stored; its conditions say since when.
fn establish(definition: &mut Value, time: &str) {
    let names = definition.pointer("/spec/names").cloned().unwrap_or_default();
    let kind = names["kind"].as_str().unwrap_or_default().to_string();
    if let Some(spec_names) = definition.pointer_mut("/spec/names").filter(|n| n.is_object()) {
        default_to(spec_names, "singular", json!(kind.to_lowercase()));
        default_to(spec_names, "listKind", json!(format!("{kind}List")));
    }
    if definition.pointer("/status/conditions").is_some() {
        return;
    }
    let condition = |condition_type: &str, reason: &str| json!({ "type": condition_type, "status": "True", "reason": reason, "message": "", "lastTransitionTime": time });
    let versions = definition.pointer("/spec/versions").and_then(Value::as_array);
    let stored: Vec<Value> =
        versions.into_iter().flatten().filter(|v| v["storage"] == true).map(|v| v["name"].clone()).collect();
    definition["status"] = json!({
        "acceptedNames": definition.pointer("/spec/names").cloned().unwrap_or_default(),
        "conditions": [condition("NamesAccepted", "NoConflicts"), condition("Established", "InitialNamesAccepted")],
        "storedVersions": stored
    });
}

/// Refuses an object that the API server would refuse.
pub fn validate(kind: &Kind, object: &Value) -> Result<(), ApiError> {
    let mut causes = Vec::new();
    check_metadata(kind, &object["metadata"], &mut causes);
    match (kind.group.as_str(), kind.kind.as_str()) {
        ("", "Secret") => check_encoded(&object["data"], "data", &mut causes),
        ("", "ConfigMap") => check_config_map(object, &mut causes),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => check_definition(object, &mut causes),
        ("apps", "Deployment" | "DaemonSet" | "StatefulSet") => check_workload(object, &mut causes),
        _ => {}
    }
    if let Some(node) = &kind.schema {
        causes.extend(schema::validate(object, node));
    }
    if causes.is_empty() {
        return Ok(());
    }
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    Err(ApiError::invalid(&kind.group, &kind.kind, name, &causes))
}

const SUBDOMAIN_RULE: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character";
const LABEL_RULE: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character";

fn check_metadata(kind: &Kind, metadata: &Value, causes: &mut Vec<Cause>) {
    let name = metadata["name"].as_str().unwrap_or_default();
    let is_path_segment = kind.group == "rbac.authorization.k8s.io";
    let must_be_label = kind.group.is_empty() && matches!(kind.kind.as_str(), "Namespace" | "Service");
    if name.is_empty() {
        causes.push(Cause::required("metadata.name", "name or generateName is required"));
    } else if is_path_segment {
        if name.contains('/') || name.contains('%') || name == "." || name == ".." {
            causes.push(Cause::invalid("metadata.name", &metadata["name"], "may not contain '/' or '%'"));
        }
    } else if must_be_label && !is_dns_label(name) {
        causes.push(Cause::invalid("metadata.name", &metadata["name"], LABEL_RULE));
    } else if !is_dns_subdomain(name) {
        causes.push(Cause::invalid("metadata.name", &metadata["name"], SUBDOMAIN_RULE));
    }
    for (key, value) in metadata["labels"].as_object().into_iter().flatten() {
        if !is_label_key(key) {
            causes.push(Cause::invalid(
                "metadata.labels",
                &json!(key),
                "name part must consist of alphanumeric characters, '-', '_' or '.'",
            ));
        }
        if !value.as_str().is_some_and(is_label_value) {
            causes.push(Cause::invalid(
                "metadata.labels",
                value,
                "must be a string of no more than 63 characters, alphanumeric at its ends",
            ));
        }
    }
    let mut annotations_bytes = 0;
    for (key, value) in metadata["annotations"].as_object().into_iter().flatten() {
        annotations_bytes += key.len() + value.as_str().map_or(0, str::len);
        if !is_label_key(&key.to_lowercase()) {
            causes.push(Cause::invalid(
                "metadata.annotations",
                &json!(key),
                "name part must consist of alphanumeric characters, '-', '_' or '.'",
            ));
        }
        if !value.is_string() {
            causes.push(Cause::invalid("metadata.annotations", value, "must be a string"));
        }
    }
    if annotations_bytes > 256 * 1024 {
        causes.push(Cause {
            reason: "FieldValueTooLong",
            field: "metadata.annotations".into(),
            message: "Too long: may not be more than 262144 bytes".into(),
        });
    }
}

fn check_encoded(data: &Value, path: &str, causes: &mut Vec<Cause>) {
    for (key, value) in data.as_object().into_iter().flatten() {
        if value.as_str().is_none_or(|text| STANDARD.decode(text).is_err()) {
            causes.push(Cause::invalid(format!("{path}[{key}]"), &json!("..."), "must be base64"));
        }
    }
}

/// Objects of this size are refused by the real server's storage.
const CONFIG_MAP_BYTES_MAX: usize = 1024 * 1024;

fn check_config_map(object: &Value, causes: &mut Vec<Cause>) {
    let empty = Map::new();
    let data = object["data"].as_object().unwrap_or(&empty);
    for (key, value) in data {
        if !value.is_string() {
            causes.push(Cause::invalid(format!("data[{key}]"), value, "must be a string"));
        }
    }
    if data.values().filter_map(Value::as_str).map(str::len).sum::<usize>() > CONFIG_MAP_BYTES_MAX {
        causes.push(Cause {
            reason: "FieldValueTooLong",
            field: "".into(),
            message: "Too long: may not be more than 1048576 bytes".into(),
        });
    }
    check_encoded(&object["binaryData"], "binaryData", causes);
}

fn check_definition(object: &Value, causes: &mut Vec<Cause>) {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    for (pointer, field) in [
        ("/spec/group", "spec.group"),
        ("/spec/names/plural", "spec.names.plural"),
        ("/spec/names/kind", "spec.names.kind"),
    ] {
        if text(pointer).is_empty() {
            causes.push(Cause::required(field, ""));
        }
    }
    let expected = format!("{}.{}", text("/spec/names/plural"), text("/spec/group"));
    if text("/metadata/name") != expected {
        causes.push(Cause::invalid(
            "metadata.name",
            &object["metadata"]["name"],
            "must be spec.names.plural+\".\"+spec.group",
        ));
    }
    if !matches!(text("/spec/scope"), "Namespaced" | "Cluster") {
        causes.push(Cause::required("spec.scope", ""));
    }
    if object.pointer("/spec/versions").and_then(Value::as_array).is_none_or(Vec::is_empty) {
        causes.push(Cause::required("spec.versions", "must have at least one version"));
    }
}

fn check_workload(object: &Value, causes: &mut Vec<Cause>) {
    if !object.pointer("/spec/selector").is_some_and(Value::is_object) {
        causes.push(Cause::required("spec.selector", ""));
    }
    if object.pointer("/spec/template/spec/containers").and_then(Value::as_array).is_none_or(Vec::is_empty) {
        causes.push(Cause::required("spec.template.spec.containers", ""));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubernetes::kinds::Kinds;

    fn fields(group: &str, plural: &str, object: Value) -> Vec<String> {
        let kinds = Kinds::builtin();
        let kind = kinds.get(group, "v1", plural).unwrap();
        match validate(kind, &object) {
            Ok(()) => Vec::new(),
            Err(refused) => {
                assert_eq!(refused.code, 422);
                let details = refused.details.unwrap();
                details["causes"].as_array().unwrap().iter().map(|c| c["field"].as_str().unwrap().to_string()).collect()
            }
        }
    }

    #[test]
    fn what_the_api_server_refuses_is_refused() {
        let none: [&str; 0] = [];
        assert_eq!(fields("", "configmaps", json!({"metadata": {"name": "a.b"}, "data": {"k": "v"}})), none);
        assert_eq!(fields("", "configmaps", json!({"metadata": {"name": "Bad_Name"}})), ["metadata.name"]);
        assert_eq!(fields("", "namespaces", json!({"metadata": {"name": "a.b"}})), ["metadata.name"]);
        assert_eq!(fields("", "configmaps", json!({"metadata": {"name": "a"}, "data": {"k": 1}})), ["data[k]"]);
        assert_eq!(
            fields("", "secrets", json!({"metadata": {"name": "a"}, "data": {"k": "not base64!"}})),
            ["data[k]"]
        );
        assert_eq!(
            fields("", "configmaps", json!({"metadata": {"name": "a", "labels": {"k": "x".repeat(64)}}})),
            ["metadata.labels"]
        );
        assert_eq!(
            fields("", "configmaps", json!({"metadata": {"name": "a", "labels": {"k": "-x"}}})),
            ["metadata.labels"]
        );
        assert_eq!(fields("rbac.authorization.k8s.io", "roles", json!({"metadata": {"name": "system:reader"}})), none);
        assert_eq!(
            fields("apps", "deployments", json!({"metadata": {"name": "a"}, "spec": {}})),
            ["spec.selector", "spec.template.spec.containers"]
        );
    }

    #[test]
    fn string_data_of_a_secret_is_encoded_into_data() {
        let kinds = Kinds::builtin();
        let mut secret = json!({"metadata": {"name": "a"}, "stringData": {"k": "plain"}});
        default_object(kinds.get("", "v1", "secrets").unwrap(), &mut secret, "");
        assert_eq!(secret, json!({"metadata": {"name": "a"}, "data": {"k": "cGxhaW4="}, "type": "Opaque"}));
    }
}
