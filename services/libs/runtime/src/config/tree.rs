//! The default configuration as a tree of keys: which exist, of which type, with which value.
//!
//! This module must not know where values come from.

use super::error::ConfigError;
use super::secret::REDACTED;
use serde::Serialize;
use serde_json::Value;

/// A serialised default configuration.
#[derive(Debug, Clone)]
pub(crate) struct Tree(pub(crate) Value);

/// What the defaults say about a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known<'a> {
    /// A table with keys of its own.
    Table,
    /// Any key and any value is allowed here: below an empty table or an absent default.
    Open,
    /// A value.
    Leaf(&'a Value),
    /// Not a key of this configuration.
    Unknown,
}

impl Tree {
    pub(crate) fn of<T: Serialize>(default: &T) -> Result<Self, ConfigError> {
        match serde_json::to_value(default) {
            Ok(value @ Value::Object(_)) => Ok(Self(value)),
            Ok(_) => Err(ConfigError::Defaults { reason: "they are not a table".to_owned() }),
            Err(error) => Err(ConfigError::Defaults { reason: error.to_string() }),
        }
    }

    /// Looks a dotted key up.
    pub(crate) fn get(&self, key: &str) -> Known<'_> {
        let mut value = &self.0;
        let mut open = false;
        for part in key.split('.') {
            match value {
                Value::Object(table) if table.is_empty() => open = true,
                Value::Object(table) => match table.get(part) {
                    Some(found) => value = found,
                    None => return Known::Unknown,
                },
                Value::Null => open = true,
                _ => return Known::Unknown,
            }
            if open {
                return Known::Open;
            }
        }
        match value {
            Value::Object(table) if !table.is_empty() => Known::Table,
            leaf => Known::Leaf(leaf),
        }
    }

    /// True if `key` can also be given as `<key>_file`.
    pub(crate) fn can_come_from_a_file(&self, key: &str) -> bool {
        match self.get(key) {
            Known::Leaf(Value::Null) => true,
            Known::Leaf(Value::String(text)) => text == REDACTED,
            _ => false,
        }
    }

    /// Every key that holds a value, dotted, in the order of the fields, with its default.
    pub(crate) fn leaves(&self) -> Vec<(String, &Value)> {
        fn collect<'a>(prefix: &str, value: &'a Value, leaves: &mut Vec<(String, &'a Value)>) {
            match value {
                Value::Object(table) if !table.is_empty() => {
                    for (name, value) in table {
                        let key = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
                        collect(&key, value, leaves);
                    }
                }
                _ if prefix.is_empty() => {}
                leaf => leaves.push((prefix.to_owned(), leaf)),
            }
        }
        let mut leaves = Vec::new();
        collect("", &self.0, &mut leaves);
        leaves
    }

    /// The known key with the fewest edits to `key`, if there is any key.
    pub(crate) fn nearest(&self, key: &str) -> Option<String> {
        let keys = self.leaves().into_iter().map(|(known, _)| known);
        keys.min_by_key(|known| (strsim::levenshtein(key, known), known.clone()))
    }
}

/// A default as it is written in documentation and in the environment. Secrets and absent values are empty.
pub(crate) fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) if text == REDACTED => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(text_of).collect::<Vec<_>>().join(","),
        Value::Null | Value::Object(_) => String::new(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn tree() -> Tree {
        Tree(json!({"mqtt": {"servers": ["a", "b"], "port": 1883, "user": null}, "labels": {}, "key": "[redacted]"}))
    }

    #[test]
    fn each_kind_of_key_is_distinguished() {
        let tree = tree();
        assert_eq!(tree.get("mqtt"), Known::Table);
        assert_eq!(tree.get("mqtt.port"), Known::Leaf(&json!(1883)));
        assert_eq!(tree.get("mqtt.prot"), Known::Unknown);
        assert_eq!(tree.get("mqtt.port.x"), Known::Unknown);
        assert_eq!(tree.get("mqtt.user"), Known::Leaf(&Value::Null));
        assert_eq!(tree.get("labels.any.thing"), Known::Open);
        assert!(tree.can_come_from_a_file("key") && tree.can_come_from_a_file("mqtt.user"));
        assert!(!tree.can_come_from_a_file("mqtt.port") && !tree.can_come_from_a_file("mqtt"));
    }

    #[test]
    fn the_nearest_key_has_the_fewest_edits() {
        assert_eq!(tree().nearest("mqtt.prot").as_deref(), Some("mqtt.port"));
        assert_eq!(tree().nearest("lables").as_deref(), Some("labels"));
        assert_eq!(Tree(json!({})).nearest("x"), None);
    }

    #[test]
    fn defaults_are_written_as_in_the_environment_and_secrets_are_not() {
        let tree = tree();
        let texts: Vec<_> = tree.leaves().into_iter().map(|(key, value)| (key, text_of(value))).collect();
        let expected = [("mqtt.servers", "a,b"), ("mqtt.port", "1883"), ("mqtt.user", ""), ("labels", ""), ("key", "")];
        assert_eq!(texts, expected.map(|(key, text)| (key.to_owned(), text.to_owned())));
    }
}
