//! Structural schemas of custom resources: defaults, pruning of unknown fields, validation. Pure.
//!
//! Carried out: type, required, properties, additionalProperties, items, enum, minimum, maximum, minLength, maxLength, minItems, maxItems, nullable,
//! int-or-string, oneOf, anyOf, allOf, not. Not carried out: `pattern`, `format` and the expressions of `x-kubernetes-validations`.

use serde_json::{Map, Value};

use super::error::Cause;

/// Fields that every object has, whatever its schema says.
const IMPLICIT: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Removes fields that the schema does not know (unless it says that they are preserved) and fills in defaults.
pub fn prune_and_default(object: &mut Value, schema: &Value) {
    conform(object, schema, true, true);
}

/// Removes fields that the schema does not know.
pub fn prune(object: &mut Value, schema: &Value) {
    conform(object, schema, true, false);
}

fn conform(value: &mut Value, schema: &Value, at_root: bool, fill: bool) {
    match value {
        Value::Object(map) => {
            let preserve = schema["x-kubernetes-preserve-unknown-fields"] == true;
            let empty = Map::new();
            let properties = schema["properties"].as_object().unwrap_or(&empty);
            let additional = &schema["additionalProperties"];
            if !preserve && !additional.is_object() && additional != &Value::Bool(true) {
                map.retain(|name, _| properties.contains_key(name) || (at_root && IMPLICIT.contains(&name.as_str())));
            }
            if fill {
                for (name, property) in properties {
                    if let Some(default) = property.get("default") {
                        let missing = map.get(name).is_none_or(|v| v.is_null() && property["nullable"] != true);
                        if missing {
                            map.insert(name.clone(), default.clone());
                        }
                    }
                }
            }
            for (name, child) in map.iter_mut() {
                let is_implicit = at_root && IMPLICIT.contains(&name.as_str());
                let node = properties.get(name).or_else(|| Some(additional).filter(|a| a.is_object()));
                if let Some(node) = node.filter(|_| !is_implicit) {
                    conform(child, node, false, fill);
                }
            }
        }
        Value::Array(items) => {
            for item in items {
                conform(item, &schema["items"], false, fill);
            }
        }
        _ => {}
    }
}

/// Everything that breaks the schema, with the path of each field.
pub fn validate(object: &Value, schema: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    check(object, schema, "", &mut causes);
    causes
}

/// The first value whose type is another than the schema says: its path, and the type that is wanted. Nulls count as not given.
pub fn wrong_type(value: &Value, schema: &Value, path: &str) -> Option<(String, String)> {
    if value.is_null() {
        return None;
    }
    if !has_type(value, schema) {
        let wanted = match schema["type"].as_str() {
            Some("object") | None => "map",
            Some("array") => "list",
            Some("integer" | "number") => "numeric (int or float)",
            Some(other) => other,
        };
        return Some((path.to_owned(), wanted.to_owned()));
    }
    match value {
        Value::Object(map) => map.iter().find_map(|(name, child)| {
            let known = schema["properties"].get(name);
            let node = known.or_else(|| schema.get("additionalProperties").filter(|node| node.is_object()))?;
            wrong_type(child, node, &join(path, name))
        }),
        Value::Array(items) => {
            let node = schema.get("items")?;
            items.iter().enumerate().find_map(|(at, item)| wrong_type(item, node, &format!("{path}[{at}]")))
        }
        _ => None,
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_string() } else { format!("{path}.{name}") }
}

fn check(value: &Value, schema: &Value, path: &str, causes: &mut Vec<Cause>) {
    if value.is_null() && schema["nullable"] == true {
        return;
    }
    if !has_type(value, schema) {
        let wanted = schema["type"].as_str().unwrap_or("object");
        causes.push(Cause {
            reason: "FieldValueTypeInvalid",
            field: path.to_string(),
            message: format!(
                "Invalid value: \"{}\": {path} in body must be of type {wanted}: \"{}\"",
                type_name(value),
                type_name(value)
            ),
        });
        return;
    }
    check_value_rules(value, schema, path, causes);
    check_combinations(value, schema, path, causes);
    match value {
        Value::Object(map) => {
            for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
                if map.get(name).is_none_or(Value::is_null) {
                    causes.push(Cause::required(join(path, name), ""));
                }
            }
            for (name, child) in map {
                if path.is_empty() && IMPLICIT.contains(&name.as_str()) {
                    continue;
                }
                let known = schema["properties"]
                    .get(name)
                    .or_else(|| schema.get("additionalProperties").filter(|a| a.is_object()));
                if let Some(node) = known {
                    check(child, node, &join(path, name), causes);
                }
            }
        }
        Value::Array(items) => {
            if let Some(node) = schema.get("items") {
                for (index, item) in items.iter().enumerate() {
                    check(item, node, &format!("{path}[{index}]"), causes);
                }
            }
        }
        _ => {}
    }
}

fn check_value_rules(value: &Value, schema: &Value, path: &str, causes: &mut Vec<Cause>) {
    if let Some(allowed) = schema["enum"].as_array().filter(|allowed| !allowed.contains(value)) {
        let list: Vec<String> = allowed.iter().map(Value::to_string).collect();
        causes.push(Cause {
            reason: "FieldValueNotSupported",
            field: path.to_string(),
            message: format!("Unsupported value: {value}: supported values: {}", list.join(", ")),
        });
    }
    let bound = |name: &str| schema[name].as_f64();
    let mut outside = |rule: String| causes.push(Cause::invalid(path, value, &format!("{path} in body should {rule}")));
    let size = match value {
        Value::String(text) => Some(("minLength", "maxLength", text.chars().count(), "chars long")),
        Value::Array(items) => Some(("minItems", "maxItems", items.len(), "items")),
        _ => None,
    };
    if let Some((low, high, size, unit)) = size {
        if let Some(least) = bound(low).filter(|least| (size as f64) < *least) {
            outside(format!("be at least {least} {unit}"));
        }
        if let Some(most) = bound(high).filter(|most| size as f64 > *most) {
            outside(format!("be at most {most} {unit}"));
        }
    }
    if let Some(number) = value.as_f64() {
        if let Some(least) = bound("minimum").filter(|least| number < *least) {
            outside(format!("be greater than or equal to {least}"));
        }
        if let Some(most) = bound("maximum").filter(|most| number > *most) {
            outside(format!("be less than or equal to {most}"));
        }
    }
}

fn check_combinations(value: &Value, schema: &Value, path: &str, causes: &mut Vec<Cause>) {
    let holds = |node: &Value| {
        let mut found = Vec::new();
        check(value, node, path, &mut found);
        found.is_empty()
    };
    let list = |name: &str| schema[name].as_array().filter(|l| !l.is_empty());
    if let Some(nodes) = list("oneOf") {
        match nodes.iter().filter(|node| holds(node)).count() {
            1 => {}
            0 => causes.push(Cause::invalid(
                path,
                value,
                &format!("{path} in body must validate one and only one schema (oneOf). Found none valid"),
            )),
            more => causes.push(Cause::invalid(
                path,
                value,
                &format!(
                    "{path} in body must validate one and only one schema (oneOf). Found {more} valid alternatives"
                ),
            )),
        }
    }
    if list("anyOf").is_some_and(|nodes| !nodes.iter().any(holds)) {
        causes.push(Cause::invalid(path, value, &format!("{path} in body must validate at least one schema (anyOf)")));
    }
    for node in list("allOf").into_iter().flatten() {
        check(value, node, path, causes);
    }
    if schema.get("not").is_some_and(holds) {
        causes.push(Cause::invalid(path, value, &format!("{path} in body must not validate the schema (not)")));
    }
}

fn has_type(value: &Value, schema: &Value) -> bool {
    if schema["x-kubernetes-int-or-string"] == true {
        return value.is_string() || value.is_i64() || value.is_u64();
    }
    match schema["type"].as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|n| n.fract() == 0.0),
        Some("number") => value.is_number(),
        _ => true,
    }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn schema() -> Value {
        json!({"type": "object", "required": ["spec"], "properties": {
            "spec": {"type": "object", "required": ["name"],
                "properties": {
                    "name": {"type": "string", "minLength": 1},
                    "count": {"type": "integer", "minimum": 0, "default": 1},
                    "mode": {"type": "string", "enum": ["on", "off"]},
                    "port": {"x-kubernetes-int-or-string": true},
                    "maybe": {"type": "string", "nullable": true},
                    "tags": {"type": "array", "maxItems": 2, "items": {"type": "string"}},
                    "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                    "map": {"type": "object", "additionalProperties": {"type": "string"}},
                    "a": {"type": "string"}, "b": {"type": "string"}},
                "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}}})
    }

    #[test]
    fn each_broken_rule_names_its_field() {
        let base = json!({"name": "n", "a": "x"});
        let cases = [
            (json!({}), vec![]),
            (json!({"count": "1"}), vec!["spec.count"]),
            (json!({"count": -1}), vec!["spec.count"]),
            (json!({"mode": "dim"}), vec!["spec.mode"]),
            (json!({"name": ""}), vec!["spec.name"]),
            (json!({"name": null}), vec!["spec.name", "spec.name"]),
            (json!({"port": "http"}), vec![]),
            (json!({"port": 80}), vec![]),
            (json!({"port": true}), vec!["spec.port"]),
            (json!({"maybe": null}), vec![]),
            (json!({"tags": ["a", 1]}), vec!["spec.tags[1]"]),
            (json!({"tags": ["a", "b", "c"]}), vec!["spec.tags"]),
            (json!({"map": {"x": 1}}), vec!["spec.map.x"]),
            (json!({"free": {"x": 1}}), vec![]),
            (json!({"b": "y"}), vec!["spec"]),
        ];
        for (change, expected) in cases {
            let mut spec = base.clone();
            for (name, value) in change.as_object().unwrap() {
                spec[name] = value.clone();
            }
            let mut fields: Vec<String> =
                validate(&json!({"spec": spec}), &schema()).into_iter().map(|c| c.field).collect();
            fields.sort();
            assert_eq!(fields, expected, "{change}");
        }
        assert_eq!(validate(&json!({"metadata": {}}), &schema()), [Cause::required("spec", "")]);
        assert_eq!(validate(&json!({"spec": {"name": "n"}}), &schema()).len(), 1);
    }

    #[test]
    fn a_wrong_type_is_found_and_nothing_else_is() {
        for (spec, found) in [
            (json!({"count": "1"}), Some(("spec.count", "numeric (int or float)"))),
            (json!({"tags": ["a", 1]}), Some(("spec.tags[1]", "string"))),
            (json!({"map": {"x": 1}}), Some(("spec.map.x", "string"))),
            (json!({"map": 7}), Some(("spec.map", "map"))),
            (json!({"name": null, "mode": "dim", "free": {"x": 1}}), None),
        ] {
            let wrong = wrong_type(&json!({"spec": spec}), &schema(), "");
            assert_eq!(wrong, found.map(|(path, wanted)| (path.to_owned(), wanted.to_owned())), "{spec}");
        }
    }

    #[test]
    fn unknown_fields_are_pruned_and_defaults_filled() {
        let mut object = json!({"kind": "K", "metadata": {"name": "x"}, "stray": 1,
            "spec": {"name": "n", "a": "x", "stray": 1, "free": {"kept": 1}, "map": {"kept": "1"}}});
        prune_and_default(&mut object, &schema());
        assert_eq!(
            object,
            json!({"kind": "K", "metadata": {"name": "x"},
                "spec": {"name": "n", "a": "x", "free": {"kept": 1}, "map": {"kept": "1"}, "count": 1}})
        );
    }
}
