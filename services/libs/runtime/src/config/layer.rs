//! One layer of configuration values: read, checked against the defaults, and given to the `config` crate for merging.
//!
//! Checking is strict on purpose: the `config` crate alone would take `port = 3.7` for 4 and `tls = "on"` for true.

use super::PREFIX;
use super::error::ConfigError;
use super::secret::REDACTED;
use super::tree::{Known, Tree};
use config::{Map, Source, Value, ValueKind};
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;

/// Values as they were read, and from where.
#[derive(Debug)]
pub(super) struct Values {
    pub(super) table: Map<String, Value>,
    /// What messages say after "in": a path, or "the environment".
    pub(super) origin: String,
}

/// Values that passed the checks.
#[derive(Debug, Clone)]
pub(super) struct Layer(Map<String, Value>);

impl Source for Layer {
    fn clone_into_box(&self) -> Box<dyn Source + Send + Sync> {
        Box::new(self.clone())
    }

    fn collect(&self) -> Result<Map<String, Value>, config::ConfigError> {
        Ok(self.0.clone())
    }
}

/// The defaults as the lowest layer. Secrets have no default but "not set".
pub(super) fn defaults(tree: &Tree) -> Layer {
    fn convert(value: &Json) -> Value {
        let kind = match value {
            Json::Null => ValueKind::Nil,
            Json::Bool(flag) => ValueKind::Boolean(*flag),
            Json::Number(number) => match (number.as_i64(), number.as_u64()) {
                (Some(signed), _) => ValueKind::I64(signed),
                (None, Some(unsigned)) => ValueKind::U64(unsigned),
                (None, None) => ValueKind::Float(number.as_f64().unwrap_or_default()),
            },
            Json::String(text) if text == REDACTED => ValueKind::String(String::new()),
            Json::String(text) => ValueKind::String(text.clone()),
            Json::Array(items) => ValueKind::Array(items.iter().map(convert).collect()),
            Json::Object(table) => ValueKind::Table(convert_table(table)),
        };
        Value::new(Some(&"the defaults".to_owned()), kind)
    }
    fn convert_table(table: &serde_json::Map<String, Json>) -> Map<String, Value> {
        table.iter().map(|(name, value)| (name.clone(), convert(value))).collect()
    }
    match &tree.0 {
        Json::Object(table) => Layer(convert_table(table)),
        _ => Layer(Map::new()),
    }
}

/// Checks every key and type, reads the files of `<key>_file`, and notes the origin in every value.
pub(super) fn checked(defaults: &Tree, values: Values) -> Result<Layer, ConfigError> {
    check_table(defaults, "", values.table, &values.origin).map(Layer)
}

fn check_table(
    defaults: &Tree,
    prefix: &str,
    table: Map<String, Value>,
    origin: &str,
) -> Result<Map<String, Value>, ConfigError> {
    // Sorted, so that of several mistakes always the same one is reported.
    let sorted: BTreeMap<String, Value> = table.into_iter().collect();
    let mut checked = Map::new();
    for (name, value) in sorted {
        let key = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
        let origin = value.origin().unwrap_or(origin).to_owned();
        let (name, value) = match file_of(defaults, &key, &name) {
            Some(base) => (base, read_value(&key, value, &origin)?),
            None => (name, check_value(defaults, &key, value, &origin)?),
        };
        if checked.insert(name.clone(), value).is_some() {
            let key = key.strip_suffix("_file").unwrap_or(&key).to_owned();
            return Err(ConfigError::GivenTwice { key, origin });
        }
    }
    Ok(checked)
}

fn check_value(defaults: &Tree, key: &str, value: Value, origin: &str) -> Result<Value, ConfigError> {
    let wrong = |expected| ConfigError::WrongType {
        key: key.to_owned(),
        expected,
        found: name_of(&value.kind),
        origin: origin.to_owned(),
    };
    let expected = match defaults.get(key) {
        Known::Unknown => return Err(unknown(defaults, key, &value, origin)),
        Known::Table => match value.kind {
            ValueKind::Table(table) => {
                let table = check_table(defaults, key, table, origin)?;
                return Ok(Value::new(Some(&origin.to_owned()), table));
            }
            _ => "a table",
        },
        Known::Open => return Ok(with_origin(value, origin)),
        Known::Leaf(default) => match (default, &value.kind) {
            (Json::Null, _)
            | (Json::Bool(_), ValueKind::Boolean(_))
            | (Json::String(_), ValueKind::String(_))
            | (Json::Array(_), ValueKind::Array(_))
            | (Json::Object(_), ValueKind::Table(_)) => return Ok(with_origin(value, origin)),
            (Json::Number(number), ValueKind::I64(_)) if !number.is_f64() => {
                return Ok(with_origin(value, origin));
            }
            (Json::Number(number), ValueKind::I64(_) | ValueKind::Float(_)) if number.is_f64() => {
                return Ok(with_origin(value, origin));
            }
            (Json::Bool(_), _) => "true or false",
            (Json::String(_), _) => "a string",
            (Json::Array(_), _) => "a list",
            (Json::Object(_), _) => "a table",
            (Json::Number(number), _) if number.is_f64() => "a number",
            (Json::Number(_), _) => "an integer",
        },
    };
    Err(wrong(expected))
}

/// Below an unknown table the error is about its first key, because that is what was meant to be set.
fn unknown(defaults: &Tree, key: &str, value: &Value, origin: &str) -> ConfigError {
    let origin = value.origin().unwrap_or(origin);
    if let ValueKind::Table(table) = &value.kind
        && let Some(first) = table.keys().min()
    {
        return unknown(defaults, &format!("{key}.{first}"), &table[first], origin);
    }
    ConfigError::UnknownKey { key: key.to_owned(), origin: origin.to_owned(), nearest: defaults.nearest(key) }
}

fn with_origin(value: Value, origin: &str) -> Value {
    let kind = match value.kind {
        ValueKind::Table(table) => {
            ValueKind::Table(table.into_iter().map(|(name, value)| (name, with_origin(value, origin))).collect())
        }
        ValueKind::Array(items) => {
            ValueKind::Array(items.into_iter().map(|value| with_origin(value, origin)).collect())
        }
        scalar => scalar,
    };
    Value::new(Some(&origin.to_owned()), kind)
}

/// The last part of the key that the file named by `key` holds, if `key` is such a one.
fn file_of(defaults: &Tree, key: &str, name: &str) -> Option<String> {
    let base = key.strip_suffix("_file")?;
    let is_file = defaults.get(key) == Known::Unknown && defaults.can_come_from_a_file(base);
    is_file.then(|| name.strip_suffix("_file").unwrap_or(name).to_owned())
}

fn read_value(key: &str, value: Value, origin: &str) -> Result<Value, ConfigError> {
    let ValueKind::String(path) = value.kind else {
        let (key, found, origin) = (key.to_owned(), name_of(&value.kind), origin.to_owned());
        return Err(ConfigError::WrongType { key, expected: "a path", found, origin });
    };
    match fs::read_to_string(&path) {
        Ok(text) => {
            let text = text.strip_suffix('\n').unwrap_or(&text);
            let text = text.strip_suffix('\r').unwrap_or(text);
            Ok(Value::new(Some(&format!("{path} ({key} in {origin})")), text))
        }
        Err(source) => {
            let (key, origin) = (key.to_owned(), origin.to_owned());
            Err(ConfigError::ValueFile { key, path: path.into(), origin, source })
        }
    }
}

/// The environment as two layers: variables for every service, then those for this one, which win.
pub(super) fn from_environment(
    defaults: &Tree,
    service: &str,
    neighbours: &[&str],
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<[Values; 2], ConfigError> {
    let sorted: BTreeMap<OsString, OsString> = environment.into_iter().collect();
    let layer = || Values { table: Map::new(), origin: "the environment".to_owned() };
    let (mut shared, mut own) = (layer(), layer());
    for (variable, value) in sorted {
        let Ok(variable) = variable.into_string() else {
            continue;
        };
        let Some(rest) = variable.strip_prefix(PREFIX) else {
            continue;
        };
        let parts: Vec<String> = rest.split("__").map(str::to_lowercase).collect();
        let (layer, parts) = match owner(defaults, service, neighbours, &parts[0]) {
            Owner::Everyone => (&mut shared, &parts[..]),
            Owner::This => (&mut own, &parts[1..]),
            Owner::Another => continue,
        };
        let Ok(value) = value.into_string() else {
            return Err(ConfigError::NotUnicode { variable });
        };
        let key = parts.join(".");
        let origin = format!("environment variable {variable}");
        let kind = parse(defaults.get(&key), &value).map_err(|expected| ConfigError::WrongType {
            key: key.clone(),
            expected,
            found: "other text",
            origin: origin.clone(),
        })?;
        insert(&mut layer.table, parts, Value::new(Some(&origin), kind));
    }
    Ok([shared, own])
}

enum Owner {
    Everyone,
    This,
    Another,
}

fn owner(defaults: &Tree, service: &str, neighbours: &[&str], first: &str) -> Owner {
    let names = |service: &str| service.replace('-', "_") == first;
    if defaults.get(first) != Known::Unknown {
        Owner::Everyone
    } else if names(service) {
        Owner::This
    } else if neighbours.iter().any(|neighbour| names(neighbour)) {
        Owner::Another
    } else {
        Owner::Everyone
    }
}

/// Reads text as the type of the default; the error is what was expected.
fn parse(known: Known<'_>, text: &str) -> Result<ValueKind, &'static str> {
    let Known::Leaf(default) = known else {
        return Ok(ValueKind::String(text.to_owned()));
    };
    let trimmed = text.trim();
    match default {
        Json::Bool(_) => trimmed.to_lowercase().parse().map(ValueKind::Boolean).map_err(|_| "true or false"),
        Json::Number(number) if number.is_f64() => trimmed.parse().map(ValueKind::Float).map_err(|_| "a number"),
        Json::Number(_) => trimmed.parse().map(ValueKind::I64).map_err(|_| "an integer"),
        Json::Array(_) if trimmed.is_empty() => Ok(ValueKind::Array(Vec::new())),
        Json::Array(_) => Ok(ValueKind::Array(trimmed.split(',').map(|item| Value::from(item.trim())).collect())),
        Json::String(_) | Json::Null | Json::Object(_) => Ok(ValueKind::String(text.to_owned())),
    }
}

fn insert(table: &mut Map<String, Value>, parts: &[String], value: Value) {
    match parts {
        [] => {}
        [name] => {
            table.insert(name.clone(), value);
        }
        [name, rest @ ..] => {
            let inner = table.entry(name.clone()).or_insert_with(|| Value::from(Map::<String, Value>::new()));
            if !matches!(inner.kind, ValueKind::Table(_)) {
                *inner = Value::from(Map::<String, Value>::new());
            }
            if let ValueKind::Table(inner) = &mut inner.kind {
                insert(inner, rest, value);
            }
        }
    }
}

fn name_of(kind: &ValueKind) -> &'static str {
    match kind {
        ValueKind::Nil => "nothing",
        ValueKind::Boolean(_) => "a boolean",
        ValueKind::I64(_) | ValueKind::I128(_) | ValueKind::U64(_) | ValueKind::U128(_) => "an integer",
        ValueKind::Float(_) => "a number with a fraction",
        ValueKind::String(_) => "a string",
        ValueKind::Table(_) => "a table",
        ValueKind::Array(_) => "a list",
    }
}
