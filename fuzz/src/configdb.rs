//! Requests to ConfigDB: no JSON makes the reader of commands or of dumps panic, and a second read gives the same answer.
//!
//! Apart from the other targets, because a test of `configdb-contract` includes this file by its path.

use configdb_contract::command::device_id;
use configdb_contract::dump::LoadOptions;
use configdb_contract::{Command, ConfigReplica, Dump, names};
use serde_json::Value;
use sparkplug::host::HostEvent;
use sparkplug::{BdSeq, DeviceId, EdgeNodeDescriptor, Metric};
use uuid::Uuid;

/// A fuzz target: its name, which is that of its folder of seeds, too, and what it does with bytes.
pub type Target = (&'static str, fn(&[u8]));

/// All of them.
pub const TARGETS: [Target; 2] = [("configdb_dump", dump), ("configdb_request", request)];

const STORE: Uuid = Uuid::from_u128(5);

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

/// What `sparkfleet config load` reads. A dump that can be read is written, and read again as the same dump. ConfigDB's reader of commands judges each request that the dump makes
/// of an empty store.
pub fn dump(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let dump = match Dump::parse(text) {
        Ok(dump) => dump,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let written = dump.to_yaml().expect("what was read can be written");
    let again = Dump::parse(&written).expect("what was written can be read");
    assert_eq!(again.to_value(), dump.to_value(), "a dump of a dump says the same");
    let options = LoadOptions { id_prefix: "load".to_owned(), writer: "fuzz".to_owned() };
    let Ok(phases) = dump.requests(&empty_store(), &options) else { return };
    for request in phases.iter().flatten() {
        assert!(request.id.starts_with("load/"), "it says which loading it is of");
        let read = Command::parse(Some(&device_id(request.object)), &request.to_metrics());
        if let Err(error) = read {
            assert!(!error.field.is_empty() && !error.reason.is_empty(), "an error names field and rule");
        }
    }
}

/// A ConfigDB that is known completely, because it holds nothing.
fn empty_store() -> ConfigReplica {
    let node = EdgeNodeDescriptor::parse("ACME-Central", "ConfigDB").expect("a name");
    let metrics = [
        Metric::new(names::CONFIG_STORE, STORE.to_string()),
        Metric::new(names::CONFIG_REVISION, 0_u64),
        Metric::new(names::CONFIG_OBJECTS, 0_u64),
        Metric::string(names::REQUEST_RESULT, None),
    ];
    let mut replica = ConfigReplica::new(node.clone());
    let metrics = metrics.into();
    replica.on_event(&HostEvent::NodeBirth { node, bd_seq: BdSeq::ZERO, timestamp: 1, uuid: None, metrics });
    replica
}
