//! Combining JSON merge patches, and the check that no patch overrides an identity.
//!
//! Helm values are merge patches for the chart's defaults: a null deletes a default, so nulls must survive when several
//! layers of values are combined. This module must not know what the values are for.

use serde_json::{Map, Value};

use crate::template;

/// Names whose place in the values belongs to the system.
pub const IDENTITY: [&str; 3] = ["uuid", "name", "hostname"];

/// Values try to override an identity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("values.{key} may not be set: the chart template puts the {identity} there; remove the key from the values")]
pub struct OverrideError {
    /// Dotted path in the values.
    pub key: String,
    /// `uuid`, `name` or `hostname`.
    pub identity: String,
}

/// One merge patch with the effect of `first` followed by `second` (RFC 7396): objects are merged deeply, all else is replaced, nulls are kept.
#[must_use]
pub fn combine(first: Value, second: &Value) -> Value {
    match (first, second) {
        (Value::Object(mut first), Value::Object(second)) => {
            for (key, value) in second {
                let combined = match first.remove(key) {
                    Some(before) => combine(before, value),
                    None => value.clone(),
                };
                first.insert(key.clone(), combined);
            }
            Value::Object(first)
        }
        (_, second) => second.clone(),
    }
}

/// Checks that `values` do not change what belongs to the system.
/// These are the top-level keys `uuid`, `name` and `hostname`, unless the template uses that key for something else.
/// And every place where the template of the chart's values is exactly one of these placeholders.
///
/// # Errors
/// [`OverrideError`] names the first key at fault.
pub fn check_identity(template: &Map<String, Value>, values: &Map<String, Value>) -> Result<(), OverrideError> {
    for identity in IDENTITY {
        let reserved = vec![identity.to_owned()];
        let used = template::whole_string_uses(&Value::Object(template.clone()), &[identity]);
        let places = if template.contains_key(identity) { used } else { used.into_iter().chain([reserved]).collect() };
        for place in places {
            if let Some(key) = touched(values, &place) {
                return Err(OverrideError { key, identity: identity.to_owned() });
            }
        }
    }
    Ok(())
}

/// The part of `place` at which `values` say something that replaces or deletes it.
fn touched(values: &Map<String, Value>, place: &[String]) -> Option<String> {
    let (first, rest) = place.split_first()?;
    match (values.get(first)?, rest) {
        (Value::Object(inner), [_, ..]) => touched(inner, rest).map(|key| format!("{first}.{key}")),
        _ => Some(first.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn patches_are_combined_with_their_nulls() {
        let cases = [
            (json!({"a": 1}), json!({"b": 2}), json!({"a": 1, "b": 2})),
            (json!({"a": 1}), json!({"a": null}), json!({"a": null})),
            (json!({"a": null}), json!({"a": {"b": null}}), json!({"a": {"b": null}})),
            (json!({"a": {"b": 1, "c": 2}}), json!({"a": {"b": null}}), json!({"a": {"b": null, "c": 2}})),
            (json!({"a": [1, 2]}), json!({"a": [3]}), json!({"a": [3]})),
            (json!({"a": {"b": 1}}), json!({"a": "text"}), json!({"a": "text"})),
            (json!({"a": "text"}), json!({"a": {"b": 1}}), json!({"a": {"b": 1}})),
            (json!({}), json!({}), json!({})),
        ];
        for (first, second, expected) in cases {
            assert_eq!(combine(first.clone(), &second), expected, "{first} then {second}");
        }
    }

    #[test]
    fn combining_then_applying_equals_applying_one_after_the_other() {
        let document = json!({"a": {"b": 1, "c": [1]}, "d": 2, "e": {"f": 3}});
        let patches = [
            json!({"a": {"b": null}}),
            json!({"a": {"x": {"y": 1}}, "d": null}),
            json!({"e": 5}),
            json!({"e": {"g": null}}),
        ];
        for first in &patches {
            for second in &patches {
                let mut apart = document.clone();
                json_patch::merge(&mut apart, first);
                json_patch::merge(&mut apart, second);
                let mut together = document.clone();
                json_patch::merge(&mut together, &combine(first.clone(), second));
                // A combined patch cannot say "delete all but"; a scalar replaced by an object patch is the known exception of RFC 7396.
                if first["e"] != json!(5) || !second["e"].is_object() {
                    assert_eq!(apart, together, "{first} then {second}");
                }
            }
        }
    }

    fn checked(template: &Value, values: &Value) -> Result<(), OverrideError> {
        check_identity(template.as_object().unwrap(), values.as_object().unwrap())
    }

    #[test]
    fn identities_may_not_be_overridden() {
        let template = json!({"id": "{{uuid}}", "label": "Reader {{name}}", "where": {"node": "{{hostname}}"}});
        for (values, key, identity) in [
            (json!({"uuid": "x"}), "uuid", "uuid"),
            (json!({"name": null}), "name", "name"),
            (json!({"hostname": {"deep": 1}}), "hostname", "hostname"),
            (json!({"id": "x"}), "id", "uuid"),
            (json!({"where": {"node": null}}), "where.node", "hostname"),
            (json!({"where": null}), "where", "hostname"),
        ] {
            let error = checked(&template, &values).unwrap_err();
            assert_eq!((error.key.as_str(), error.identity.as_str()), (key, identity), "{values}");
            assert!(error.to_string().contains(&format!("values.{key} ")), "{error}");
        }
        for values in
            [json!({}), json!({"label": "mine"}), json!({"where": {"rack": 3}}), json!({"drivers": {"name": 1}})]
        {
            assert_eq!(checked(&template, &values), Ok(()), "{values}");
        }
    }

    #[test]
    fn a_key_that_the_template_uses_for_something_else_is_free() {
        let template = json!({"uuid": {"class": {"edgeAccount": "x"}}, "cluster": {"uuid": "{{uuid}}"}});
        assert_eq!(checked(&template, &json!({"uuid": {"group": 1}})), Ok(()));
        assert_eq!(checked(&template, &json!({"cluster": {"uuid": 1}})).unwrap_err().key, "cluster.uuid");
    }
}
