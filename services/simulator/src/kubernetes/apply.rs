//! Server-side apply: merging an applied configuration into the live object under field ownership, and the bookkeeping of ownership for every
//! other kind of write. Pure: objects and names in, an object with `metadata.managedFields` out.
//!
//! Rules, as of Kubernetes' structured merge: a manager owns the fields it applied. Applying a field that another manager owns with another value
//! is a conflict unless forced. A field that a manager owned, no longer sends, and that no one else owns, is removed. Equal values are shared.

use serde_json::{Map, Value, json};

use super::error::{ApiError, Cause};
use super::fields::{Element, FieldSet, ListKind, Path, Shape, item_key, path_text, remove_at, value_at};

/// Who writes, and how the write is recorded in `managedFields`.
#[derive(Debug, Clone, Copy)]
pub struct Writer<'a> {
    pub manager: &'a str,
    /// `apiVersion` of the text written.
    pub api_version: &'a str,
    /// Empty, or `status`.
    pub subresource: &'a str,
    /// RFC 3339 time of the write.
    pub time: &'a str,
}

/// One entry of `metadata.managedFields`.
#[derive(Debug, Clone, PartialEq)]
struct Manager {
    name: String,
    operation: String,
    api_version: String,
    subresource: String,
    time: String,
    fields: FieldSet,
}

fn read_managers(object: &Value) -> Vec<Manager> {
    let entries = object.pointer("/metadata/managedFields").and_then(Value::as_array);
    let text = |entry: &Value, field: &str| entry[field].as_str().unwrap_or_default().to_string();
    entries
        .into_iter()
        .flatten()
        .map(|entry| Manager {
            name: text(entry, "manager"),
            operation: text(entry, "operation"),
            api_version: text(entry, "apiVersion"),
            subresource: text(entry, "subresource"),
            time: text(entry, "time"),
            fields: FieldSet::from_fields_v1(&entry["fieldsV1"]),
        })
        .collect()
}

fn write_managers(object: &mut Value, managers: &[Manager]) {
    let entries: Vec<Value> = managers
        .iter()
        .filter(|manager| !manager.fields.is_empty())
        .map(|manager| {
            let mut entry = json!({
                "manager": manager.name, "operation": manager.operation, "apiVersion": manager.api_version, "time": manager.time,
                "fieldsType": "FieldsV1", "fieldsV1": manager.fields.to_fields_v1()
            });
            if !manager.subresource.is_empty() {
                entry["subresource"] = json!(manager.subresource);
            }
            entry
        })
        .collect();
    object["metadata"]["managedFields"] = Value::Array(entries);
}

/// Fields that the server keeps and no one owns.
fn is_ownable(path: &Path) -> bool {
    let name = |at: usize| match path.get(at) {
        Some(Element::Field(name)) => name.as_str(),
        _ => "",
    };
    match name(0) {
        "apiVersion" | "kind" => false,
        "metadata" => !matches!(
            name(1),
            "" | "name"
                | "namespace"
                | "uid"
                | "resourceVersion"
                | "generation"
                | "creationTimestamp"
                | "deletionTimestamp"
                | "deletionGracePeriodSeconds"
                | "managedFields"
                | "selfLink"
                | "generateName"
        ),
        _ => true,
    }
}

/// Null means "not given" in an applied configuration.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(map) => Value::Object(
            map.iter().filter(|(_, v)| !v.is_null()).map(|(k, v)| (k.clone(), without_nulls(v))).collect(),
        ),
        Value::Array(items) => Value::Array(items.iter().map(without_nulls).collect()),
        other => other.clone(),
    }
}

/// Applies a configuration to the live object (an object with nothing but its identity, if it is created).
pub fn apply(
    live: &Value,
    configuration: &Value,
    schema: Option<&Value>,
    writer: Writer<'_>,
    force: bool,
) -> Result<Value, ApiError> {
    let configuration = without_nulls(configuration);
    let sent = FieldSet::of(&configuration, schema).filtered(is_ownable);
    let mut managers = read_managers(live);
    let is_own =
        |m: &Manager| m.name == writer.manager && m.operation == "Apply" && m.subresource == writer.subresource;

    let contested = conflicts(live, &configuration, &sent, &managers, &is_own);
    if !contested.is_empty() && !force {
        return Err(conflict_error(&contested));
    }
    for manager in managers.iter_mut().filter(|m| !is_own(m)) {
        for (_, path) in &contested {
            manager.fields.remove_tree(path);
            // Who owned a container as one value no longer does once someone else describes its inside.
            manager.fields.0.retain(|own| !path.starts_with(own) || matches!(own.last(), Some(Element::Key(_))));
        }
    }

    let mut merged = live.clone();
    merge_applied(&mut merged, &configuration, Shape::root(schema), true);

    let given_up: Vec<Path> = managers
        .iter()
        .filter(|m| is_own(m))
        .flat_map(|m| m.fields.0.iter())
        .filter(|path| !sent.touches(path) && !managers.iter().filter(|m| !is_own(m)).any(|m| m.fields.touches(path)))
        .cloned()
        .collect();
    managers.retain(|m| !is_own(m));
    managers.push(Manager {
        name: writer.manager.to_string(),
        operation: "Apply".to_string(),
        api_version: writer.api_version.to_string(),
        subresource: writer.subresource.to_string(),
        time: writer.time.to_string(),
        fields: sent,
    });
    let is_owned = |path: &[Element]| managers.iter().any(|m| m.fields.0.contains(path));
    for path in given_up.iter().rev() {
        remove_at(&mut merged, path, &is_owned);
    }
    write_managers(&mut merged, &managers);
    if without_managers(&merged) == without_managers(live) && same_ownership(&read_managers(live), &managers) {
        return Ok(live.clone());
    }
    Ok(merged)
}

/// The fields that other managers own with other values, each with the manager as conflict messages name it.
fn conflicts(
    live: &Value,
    configuration: &Value,
    sent: &FieldSet,
    managers: &[Manager],
    is_own: &dyn Fn(&Manager) -> bool,
) -> Vec<(String, Path)> {
    let mut found = Vec::new();
    for manager in managers.iter().filter(|m| !is_own(m)) {
        for path in &sent.0 {
            let is_item = matches!(path.last(), Some(Element::Key(_)));
            let overlaps = manager.fields.0.iter().any(|own| {
                own == path
                    || (own.starts_with(path) && !is_item)
                    || (path.starts_with(own) && !matches!(own.last(), Some(Element::Key(_))))
            });
            if overlaps && !is_item && value_at(live, path) != value_at(configuration, path) {
                found.push((format!("\"{}\" using {}", manager.name, manager.api_version), path.clone()));
            }
        }
    }
    found
}

fn conflict_error(contested: &[(String, Path)]) -> ApiError {
    let causes = contested
        .iter()
        .map(|(manager, path)| Cause {
            reason: "FieldManagerConflict",
            message: format!("conflict with {manager}"),
            field: path_text(path),
        })
        .collect();
    let message = match contested {
        [(manager, path)] => format!("Apply failed with 1 conflict: conflict with {manager}: {}", path_text(path)),
        many => {
            let lines: Vec<String> =
                many.iter().map(|(manager, path)| format!("- {manager}: {}", path_text(path))).collect();
            format!("Apply failed with {} conflicts:\n{}", many.len(), lines.join("\n"))
        }
    };
    ApiError::apply_conflict(message, causes)
}

fn merge_applied(target: &mut Value, applied: &Value, shape: Shape<'_>, at_root: bool) {
    match applied {
        Value::Object(map) => {
            if !target.is_object() {
                *target = Value::Object(Map::new());
            }
            let Value::Object(target) = target else { return };
            for (name, value) in map {
                merge_applied(
                    target.entry(name.clone()).or_insert(Value::Null),
                    value,
                    shape.field(name, at_root),
                    false,
                );
            }
        }
        Value::Array(items) => {
            let Value::Array(existing) = target else {
                *target = applied.clone();
                return;
            };
            match shape.list() {
                ListKind::Set => {
                    existing.extend(items.iter().filter(|i| !existing.contains(i)).cloned().collect::<Vec<_>>())
                }
                ListKind::Map(keys) if items.iter().all(|i| item_key(i, &keys).is_some()) => {
                    for item in items {
                        let key = item_key(item, &keys);
                        match existing.iter_mut().find(|e| item_key(e, &keys) == key) {
                            Some(present) => merge_applied(present, item, shape.item(), false),
                            None => existing.push(item.clone()),
                        }
                    }
                }
                _ => *target = applied.clone(),
            }
        }
        other => *target = other.clone(),
    }
}

/// Records the ownership of a write that is not an apply: what it changed belongs to its manager, what it removed belongs to no one.
pub fn track_update(old: Option<&Value>, new: &mut Value, schema: Option<&Value>, writer: Writer<'_>) {
    let nothing = Value::Object(Map::new());
    let before = old.unwrap_or(&nothing);
    let old_fields = FieldSet::of(before, schema).filtered(is_ownable);
    let new_fields = FieldSet::of(new, schema).filtered(is_ownable);
    let changed: Vec<Path> = new_fields
        .0
        .iter()
        .filter(|path| {
            let is_old_item = matches!(path.last(), Some(Element::Key(_))) && old_fields.0.contains(*path);
            !is_old_item && value_at(before, path) != value_at(new, path)
        })
        .cloned()
        .collect();
    let removed: Vec<Path> = old_fields.0.iter().filter(|path| value_at(new, path).is_none()).cloned().collect();
    let mut managers = read_managers(before);
    for manager in &mut managers {
        for path in &changed {
            manager.fields.0.remove(path);
        }
        for path in &removed {
            manager.fields.remove_tree(path);
        }
    }
    if !changed.is_empty() {
        let is_own =
            |m: &Manager| m.name == writer.manager && m.operation == "Update" && m.subresource == writer.subresource;
        let mut own = managers.iter().position(is_own).map(|at| managers.remove(at)).unwrap_or_else(|| Manager {
            name: writer.manager.to_string(),
            operation: "Update".to_string(),
            api_version: String::new(),
            subresource: writer.subresource.to_string(),
            time: String::new(),
            fields: FieldSet::default(),
        });
        own.api_version = writer.api_version.to_string();
        own.time = writer.time.to_string();
        own.fields.0.extend(changed);
        managers.push(own);
    }
    write_managers(new, &managers);
}

/// The object without its ownership records, for comparison.
pub fn without_managers(object: &Value) -> Value {
    let mut plain = object.clone();
    if let Some(metadata) = plain.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.shift_remove("managedFields");
    }
    plain
}

fn same_ownership(before: &[Manager], after: &[Manager]) -> bool {
    let strip = |managers: &[Manager]| {
        let mut list: Vec<(String, String, String, FieldSet)> = managers
            .iter()
            .filter(|m| !m.fields.is_empty())
            .map(|m| (m.name.clone(), m.operation.clone(), m.subresource.clone(), m.fields.clone()))
            .collect();
        list.sort_by(|a, b| (&a.0, &a.1, &a.2).cmp(&(&b.0, &b.1, &b.2)));
        list
    };
    strip(before) == strip(after)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writer(manager: &str) -> Writer<'_> {
        Writer { manager, api_version: "v1", subresource: "", time: "2030-01-01T00:00:00Z" }
    }

    fn applied(live: &Value, manager: &str, configuration: Value) -> Value {
        apply(live, &configuration, None, writer(manager), false).expect("no conflict")
    }

    fn plain(object: &Value) -> Value {
        let mut object = without_managers(object);
        if object["metadata"].as_object().is_some_and(Map::is_empty) {
            object.as_object_mut().unwrap().shift_remove("metadata");
        }
        object
    }

    #[test]
    fn a_sequence_of_applies_gives_the_documented_object() {
        // Each case: configurations applied in order by managers, and the object that results.
        let cases = [
            (
                "fields of two managers are united",
                vec![("a", json!({"data": {"x": "1"}})), ("b", json!({"data": {"y": "2"}}))],
                json!({"data": {"x": "1", "y": "2"}}),
            ),
            (
                "a field no longer sent is removed",
                vec![("a", json!({"data": {"x": "1", "y": "2"}})), ("a", json!({"data": {"x": "1"}}))],
                json!({"data": {"x": "1"}}),
            ),
            (
                "a shared field stays",
                vec![
                    ("a", json!({"data": {"x": "1", "y": "2"}})),
                    ("b", json!({"data": {"x": "1"}})),
                    ("a", json!({"data": {"y": "2"}})),
                ],
                json!({"data": {"x": "1", "y": "2"}}),
            ),
            (
                "the emptied container goes too",
                vec![("a", json!({"data": {"x": "1"}, "kind": "K"})), ("a", json!({"kind": "K"}))],
                json!({"kind": "K"}),
            ),
            ("null is not given", vec![("a", json!({"data": {"x": "1", "y": null}}))], json!({"data": {"x": "1"}})),
            (
                "lists merge by key",
                vec![
                    ("a", json!({"spec": {"containers": [{"name": "one", "image": "i"}]}})),
                    ("b", json!({"spec": {"containers": [{"name": "two", "image": "j"}]}})),
                    ("a", json!({"spec": {"containers": [{"name": "one", "image": "k"}]}})),
                ],
                json!({"spec": {"containers": [{"name": "one", "image": "k"}, {"name": "two", "image": "j"}]}}),
            ),
            (
                "an item given up is removed",
                vec![
                    ("a", json!({"spec": {"containers": [{"name": "one", "image": "i"}, {"name": "two"}]}})),
                    ("a", json!({"spec": {"containers": [{"name": "one", "image": "i"}]}})),
                ],
                json!({"spec": {"containers": [{"name": "one", "image": "i"}]}}),
            ),
            (
                "finalizers are a set",
                vec![
                    ("a", json!({"metadata": {"finalizers": ["x"]}})),
                    ("b", json!({"metadata": {"finalizers": ["y"]}})),
                    ("a", json!({"metadata": {}})),
                ],
                json!({"metadata": {"finalizers": ["y"]}}),
            ),
            (
                "an unkeyed list is one value",
                vec![("a", json!({"spec": {"args": [1, 2]}})), ("a", json!({"spec": {"args": [3]}}))],
                json!({"spec": {"args": [3]}}),
            ),
        ];
        for (what, steps, expected) in cases {
            let mut live = json!({"metadata": {}});
            for (manager, configuration) in steps {
                live = applied(&live, manager, configuration);
            }
            assert_eq!(plain(&live), expected, "{what}");
        }
    }

    #[test]
    fn another_managers_field_is_a_conflict_that_names_both() {
        let live = applied(&json!({"metadata": {}}), "kubectl", json!({"spec": {"replicas": 1, "paused": true}}));
        let refused =
            apply(&live, &json!({"spec": {"replicas": 2, "paused": true}}), None, writer("sync"), false).unwrap_err();
        assert_eq!(refused.code, 409);
        assert_eq!(refused.message, "Apply failed with 1 conflict: conflict with \"kubectl\" using v1: .spec.replicas");
        let details = refused.details.unwrap();
        assert_eq!(
            details["causes"],
            json!([{"reason": "FieldManagerConflict", "message": "conflict with \"kubectl\" using v1", "field": ".spec.replicas"}])
        );
    }

    #[test]
    fn force_takes_the_field_and_the_loser_no_longer_owns_it() {
        let live = applied(&json!({"metadata": {}}), "kubectl", json!({"spec": {"replicas": 1}}));
        let forced = apply(&live, &json!({"spec": {"replicas": 2}}), None, writer("sync"), true).unwrap();
        assert_eq!(forced["spec"]["replicas"], 2);
        // The loser applying without the field must not remove what the winner owns.
        let later = applied(&forced, "kubectl", json!({"metadata": {"labels": {"a": "b"}}}));
        assert_eq!(later["spec"]["replicas"], 2);
        let managers: Vec<&str> = later["metadata"]["managedFields"]
            .as_array()
            .unwrap()
            .iter()
            .map(|m| m["manager"].as_str().unwrap())
            .collect();
        assert_eq!(managers, ["sync", "kubectl"]);
    }

    #[test]
    fn applying_the_same_again_changes_nothing_not_even_the_time() {
        let live = applied(&json!({"metadata": {}}), "a", json!({"data": {"x": "1"}}));
        let again = apply(
            &live,
            &json!({"data": {"x": "1"}}),
            None,
            Writer { time: "2031-01-01T00:00:00Z", ..writer("a") },
            false,
        )
        .unwrap();
        assert_eq!(again, live);
    }

    #[test]
    fn an_update_takes_over_what_it_changes_and_frees_what_it_removes() {
        let live = applied(&json!({"metadata": {}}), "a", json!({"data": {"x": "1", "y": "2", "z": "3"}}));
        let mut updated = live.clone();
        updated["data"] = json!({"x": "9", "y": "2"});
        track_update(Some(&live), &mut updated, None, writer("editor"));
        let owners: Vec<(String, Value)> = updated["metadata"]["managedFields"]
            .as_array()
            .unwrap()
            .iter()
            .map(|m| (m["operation"].as_str().unwrap().to_string(), m["fieldsV1"].clone()))
            .collect();
        assert_eq!(
            owners,
            [
                ("Apply".to_string(), json!({"f:data": {"f:y": {}}})),
                ("Update".to_string(), json!({"f:data": {"f:x": {}}}))
            ]
        );
        assert!(apply(&updated, &json!({"data": {"x": "1"}}), None, writer("a"), false).is_err());
    }

    #[test]
    fn the_finalizer_of_a_controller_survives_applies_of_the_owner() {
        let live = applied(&json!({"metadata": {}}), "sync", json!({"spec": {"interval": "2m"}}));
        let mut patched = live.clone();
        patched["metadata"]["finalizers"] = json!(["finalizers.fluxcd.io"]);
        track_update(Some(&live), &mut patched, None, writer("helm-controller"));
        let later = apply(&patched, &json!({"spec": {"interval": "3m"}}), None, writer("sync"), true).unwrap();
        assert_eq!(later["metadata"]["finalizers"], json!(["finalizers.fluxcd.io"]));
        assert_eq!(later["spec"]["interval"], "3m");
    }
}
