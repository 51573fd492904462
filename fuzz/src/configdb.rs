//! Requests to ConfigDB: no JSON makes the reader of commands or of dumps panic, and a second read gives the same answer.
//!
//! Apart from the other targets, because a test of `configdb-contract` includes this file by its path.

use configdb_contract::{Command, Dump};
use serde_json::Value;
use sparkplug::{DeviceId, Metric};

/// A fuzz target: its name, which is that of its folder of seeds, too, and what it does with bytes.
pub type Target = (&'static str, fn(&[u8]));

/// All of them.
pub const TARGETS: [Target; 1] = [("configdb_request", request)];

/// A line with the id of a device, then a JSON object: its members are the metrics of a command. The whole text is a dump, too.
pub fn request(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let _ = Dump::parse(text);
    let (device, members) = text.split_once('\n').unwrap_or(("", text));
    let Ok(Value::Object(members)) = serde_json::from_str::<Value>(members) else { return };
    let metrics: Vec<Metric> = members
        .iter()
        .map(|(name, value)| match value {
            Value::Bool(value) => Metric::new(name.as_str(), *value),
            Value::Number(value) => Metric::new(name.as_str(), value.as_u64().unwrap_or(u64::MAX)),
            Value::String(value) => Metric::new(name.as_str(), value.as_str()),
            other => Metric::new(name.as_str(), other.to_string()),
        })
        .collect();
    let device = DeviceId::new(device).ok();
    let read = Command::parse(device.as_ref(), &metrics);
    assert_eq!(Command::parse(device.as_ref(), &metrics), read);
    if let Err(error) = read {
        assert!(!error.field.is_empty() && !error.reason.is_empty(), "an error names field and rule");
    }
}
