//! Patches that need no knowledge of field ownership: JSON merge patch (RFC 7396) and JSON patch (RFC 6902).
//!
//! A strategic merge patch is carried out as a merge patch whose directives (`$patch`, `$setElementOrder/..`, `$retainKeys`) are dropped: lists are
//! replaced, not merged by key. For objects without lists, or whose whole list is sent, the result is that of the real API server.

use serde_json::{Map, Value};

use super::error::ApiError;

/// Merges `patch` into `target` after RFC 7396.
pub fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(target) = target else { return };
    for (key, value) in patch {
        if value.is_null() {
            target.shift_remove(key);
        } else {
            merge(target.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}

/// Removes the directives of a strategic merge patch, so that it can be merged.
pub fn without_directives(patch: &Value) -> Value {
    match patch {
        Value::Object(map) => Value::Object(
            map.iter()
                .filter(|(key, _)| !key.starts_with('$'))
                .map(|(k, v)| (k.clone(), without_directives(v)))
                .collect(),
        ),
        Value::Array(items) => Value::Array(items.iter().map(without_directives).collect()),
        other => other.clone(),
    }
}

/// Applies a JSON patch, all of it or nothing.
pub fn json_patch(target: &mut Value, patch: &Value) -> Result<(), ApiError> {
    let patch: json_patch::Patch = serde_json::from_value(patch.clone())
        .map_err(|error| ApiError::bad_request(format!("the body is not a JSON patch: {error}")))?;
    json_patch::patch(target, &patch).map_err(|error| {
        let mut refused =
            ApiError::bad_request(format!("the server rejected our request due to an error in our request: {error}"));
        refused.code = 422;
        refused.reason = "Invalid";
        refused
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn merge_follows_the_table_of_rfc_7396() {
        let cases = [
            (json!({"a":"b"}), json!({"a":"c"}), json!({"a":"c"})),
            (json!({"a":"b"}), json!({"b":"c"}), json!({"a":"b","b":"c"})),
            (json!({"a":"b"}), json!({"a":null}), json!({})),
            (json!({"a":"b","b":"c"}), json!({"a":null}), json!({"b":"c"})),
            (json!({"a":["b"]}), json!({"a":"c"}), json!({"a":"c"})),
            (json!({"a":"c"}), json!({"a":["b"]}), json!({"a":["b"]})),
            (json!({"a":{"b":"c"}}), json!({"a":{"b":"d","c":null}}), json!({"a":{"b":"d"}})),
            (json!({"a":[{"b":"c"}]}), json!({"a":[1]}), json!({"a":[1]})),
            (json!(["a", "b"]), json!(["c", "d"]), json!(["c", "d"])),
            (json!({"a":"b"}), json!(["c"]), json!(["c"])),
            (json!({"e":null}), json!({"a":1}), json!({"e":null,"a":1})),
            (json!([1, 2]), json!({"a":"b","c":null}), json!({"a":"b"})),
            (json!({}), json!({"a":{"bb":{"ccc":null}}}), json!({"a":{"bb":{}}})),
        ];
        for (mut target, patch, expected) in cases {
            let before = target.clone();
            merge(&mut target, &patch);
            assert_eq!(target, expected, "{before} + {patch}");
        }
    }

    #[test]
    fn directives_are_dropped_at_every_depth() {
        let patch =
            json!({"$patch":"merge","spec":{"$setElementOrder/ports":[{"port":1}],"ports":[{"port":1,"$patch":"x"}]}});
        assert_eq!(without_directives(&patch), json!({"spec":{"ports":[{"port":1}]}}));
    }

    #[test]
    fn a_json_patch_that_fails_changes_nothing() {
        let mut target = json!({"a":1});
        let refused = json_patch(
            &mut target,
            &json!([{"op":"replace","path":"/a","value":2},{"op":"test","path":"/a","value":9}]),
        );
        assert_eq!(refused.map_err(|e| e.code), Err(422));
        assert_eq!(target, json!({"a":1}));
        json_patch(&mut target, &json!([{"op":"add","path":"/b","value":[1]}])).unwrap();
        assert_eq!(target, json!({"a":1,"b":[1]}));
    }
}
