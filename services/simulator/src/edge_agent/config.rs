//! What a simulated edge agent understands of an Edge Agent configuration: the devices of its connections, their tags and intervals. Everything else in the document is
//! for real agents. Pure.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::Deserialize;
use sparkplug::{DataType, DeviceId};

use crate::machine::{Tag, is_supported};

/// Beyond this a configuration is refused; a real agent serves a few dozen.
const DEVICES_MAX: usize = 1000;

/// Beyond this a device's birth would not fit a message.
const TAGS_MAX: usize = 1000;

/// How often a device is read when its configuration does not say.
const INTERVAL_DEFAULT_MS: u64 = 1000;

/// A device is not read more often than this.
const INTERVAL_MIN_MS: u64 = 50;

/// The devices of an agent.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct AgentConfig {
    /// In the order of the document.
    pub devices: Vec<DeviceConfig>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct DeviceConfig {
    pub id: DeviceId,
    pub tags: Vec<Tag>,
    /// How often it is read.
    pub interval: Duration,
}

/// Why a configuration is invalid.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// No JSON of the expected shape.
    #[error("config.json is not an Edge Agent configuration")]
    Json(#[from] serde_json::Error),
    /// A field breaks a rule.
    #[error("{field}: {rule}")]
    Field { field: String, rule: String },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    #[serde(default)]
    device_connections: Vec<Connection>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Connection {
    #[serde(default)]
    poll_int: Option<u64>,
    #[serde(default)]
    devices: Vec<Device>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Device {
    device_id: String,
    #[serde(default)]
    pub_interval: Option<u64>,
    #[serde(default)]
    tags: Vec<TagEntry>,
}

#[derive(Deserialize)]
struct TagEntry {
    #[serde(rename = "Name")]
    name: String,
    #[serde(rename = "type", default)]
    datatype: Option<String>,
}

/// Reads the text of `config.json`.
pub fn parse(text: &str) -> Result<AgentConfig, ConfigError> {
    // Through a map, because a struct would also be read from an array.
    let document: serde_json::Map<String, serde_json::Value> = serde_json::from_str(text)?;
    let document: Document = serde_json::from_value(document.into())?;
    let mut config = AgentConfig::default();
    let mut seen = BTreeSet::new();
    for (c, connection) in document.device_connections.iter().enumerate() {
        for (d, device) in connection.devices.iter().enumerate() {
            let field = format!("deviceConnections[{c}].devices[{d}]");
            let fault = |part: &str, rule: String| ConfigError::Field { field: format!("{field}.{part}"), rule };
            let id = DeviceId::new(&device.device_id).map_err(|error| fault("deviceId", error.to_string()))?;
            if id.as_str().contains('.') {
                return Err(fault(
                    "deviceId",
                    format!("{id} has a dot, which some MQTT servers take for a level of the topic"),
                ));
            }
            if !seen.insert(id.as_str().to_owned()) {
                return Err(fault("deviceId", format!("{id} occurs twice")));
            }
            if seen.len() > DEVICES_MAX || device.tags.len() > TAGS_MAX {
                return Err(fault("tags", format!("more than {DEVICES_MAX} devices or {TAGS_MAX} tags of one")));
            }
            let interval =
                device.pub_interval.filter(|ms| *ms > 0).or(connection.poll_int).unwrap_or(INTERVAL_DEFAULT_MS);
            config.devices.push(DeviceConfig {
                id,
                tags: tags(&device.tags).map_err(|(number, rule)| fault(&format!("tags[{number}]"), rule))?,
                interval: Duration::from_millis(interval.max(INTERVAL_MIN_MS)),
            });
        }
    }
    Ok(config)
}

fn tags(entries: &[TagEntry]) -> Result<Vec<Tag>, (usize, String)> {
    if entries.is_empty() {
        return Ok(Tag::defaults());
    }
    let mut names = BTreeSet::new();
    let mut tags = Vec::new();
    for (number, entry) in entries.iter().enumerate() {
        if entry.name.is_empty() || !names.insert(&entry.name) {
            return Err((number, format!("Name {:?} is empty or occurs twice", entry.name)));
        }
        let text = entry.datatype.as_deref().unwrap_or("Double");
        let datatype = datatype(text).ok_or_else(|| (number, format!("type {text:?} cannot be simulated")))?;
        tags.push(Tag::named(&entry.name, datatype, number));
    }
    Ok(tags)
}

/// Names of types as drivers write them: `Float`, `floatBE`, `UInt16LE`, `boolean`.
fn datatype(text: &str) -> Option<DataType> {
    let lower = text.to_lowercase();
    let plain = lower.strip_suffix("be").or_else(|| lower.strip_suffix("le")).unwrap_or(&lower);
    // "double" ends like a little-endian type.
    let plain = if lower == "double" { "double" } else { plain };
    (1..=14)
        .filter_map(DataType::from_wire)
        .filter(|t| is_supported(*t))
        .find(|t| format!("{t:?}").to_lowercase() == plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_have_their_tags_and_the_interval_that_is_nearest() {
        let config = parse(
            r#"{"sparkplug": {}, "deviceConnections": [
                {"name": "PLC", "pollInt": 500, "devices": [
                    {"deviceId": "Press_1", "tags": [{"Name": "Force", "type": "Float", "method": "GET"}, {"Name": "n", "type": "UInt16LE"}]},
                    {"deviceId": "Press_2", "pubInterval": 2000}]},
                {"name": "other", "devices": [{"deviceId": "C", "pubInterval": 1}]}]}"#,
        )
        .unwrap();
        let summary: Vec<_> =
            config.devices.iter().map(|d| (d.id.as_str(), d.tags.len(), d.interval.as_millis())).collect();
        assert_eq!(
            summary,
            [("Press_1", 2, 500), ("Press_2", Tag::defaults().len(), 2000), ("C", Tag::defaults().len(), 50)]
        );
        assert_eq!(config.devices[0].tags[1].datatype, DataType::UInt16);
    }

    #[test]
    fn nothing_configured_makes_no_devices() {
        assert_eq!(parse("{}").unwrap(), AgentConfig::default());
    }

    #[test]
    fn what_cannot_be_understood_is_named() {
        let device =
            |device: &str| format!(r#"{{"deviceConnections": [{{"devices": [{{"deviceId": "A"}}, {device}]}}]}}"#);
        for (text, expected) in [
            ("[]".to_string(), "config.json"),
            ("{\"deviceConnections\": 1}".to_string(), "config.json"),
            (device(r#"{"deviceId": "a/b"}"#), "deviceConnections[0].devices[1].deviceId"),
            (device(r#"{"deviceId": "A"}"#), "occurs twice"),
            (device(r#"{"deviceId": "B", "tags": [{"Name": "x", "type": "Blob"}]}"#), "tags[0]: type \"Blob\""),
            (device(r#"{"deviceId": "B", "tags": [{"Name": ""}]}"#), "tags[0]: Name"),
        ] {
            let error = parse(&text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn types_are_known_by_their_drivers_names() {
        for (text, expected) in [
            ("Float", Some(DataType::Float)),
            ("doubleBE", Some(DataType::Double)),
            ("double", Some(DataType::Double)),
            ("boolean", Some(DataType::Boolean)),
            ("uint32le", Some(DataType::UInt32)),
            ("DataSet", None),
        ] {
            assert_eq!(datatype(text), expected, "{text}");
        }
    }
}
