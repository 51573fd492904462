//! Identities: UUIDs that Factory+ fixes, and those that are derived from them, so that a restarted monitor speaks of the same alerts as before.
//!
//! ```
//! use configdb_schema::{address::v5, known::special::V5_MONITOR};
//! use edge_monitor_contract::identity;
//! use uuid::Uuid;
//!
//! let node = Uuid::parse_str("5b2e0d3c-7c3b-4c51-9a86-0f6a1c1f9a10").unwrap();
//! let device = identity::device(node);
//! assert_eq!(device, v5(&[&V5_MONITOR.to_string(), &node.to_string()]));
//! assert_eq!(identity::metric(device, "Alerts/Offline"), identity::metric(device, "Alerts/Offline"));
//! assert_ne!(identity::metric(device, "Alerts/Offline"), identity::metric(device, "Links/Node"));
//! ```

use configdb_schema::address::v5;
use configdb_schema::known::special::{V5_METRIC, V5_MONITOR};
use sparkplug::EdgeNodeDescriptor;
use uuid::Uuid;

pub use configdb_schema::known::alert::{NODE_OFFLINE as ALERT_OFFLINE, NODE_WILL_NOT_RELOAD as ALERT_WILL_NOT_RELOAD};
pub use configdb_schema::known::link::{MONITORED_CLUSTER as RELATION_CLUSTER, MONITORED_NODE as RELATION_NODE};
pub use configdb_schema::known::schema::{
    ALERT as SCHEMA_ALERT, EDGE_AGENT as SCHEMA_EDGE_AGENT, EDGE_MONITOR as SCHEMA_EDGE_MONITOR,
    EDGE_MONITOR_DEVICE as SCHEMA_EDGE_MONITOR_DEVICE, LINK as SCHEMA_LINK,
};
pub use configdb_schema::known::special::FACTORY_PLUS;

/// The monitor device that stands for `node`.
#[must_use]
pub fn device(node: Uuid) -> Uuid {
    v5(&[&V5_MONITOR.to_string(), &node.to_string()])
}

/// The monitor device that stands for a node of which only the address is known.
#[must_use]
pub fn device_of_address(address: &EdgeNodeDescriptor) -> Uuid {
    v5(&[&V5_MONITOR.to_string(), &address.to_string()])
}

/// The instance of a link or alert that `owner` carries in `folder`.
#[must_use]
pub fn metric(owner: Uuid, folder: &str) -> Uuid {
    v5(&[&V5_METRIC.to_string(), &owner.to_string(), folder])
}

/// The monitor of a cluster, unless its configuration names another identity.
#[must_use]
pub fn monitor_of_cluster(cluster: Uuid) -> Uuid {
    v5(&["Account", &cluster.to_string(), "monitor"])
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::uuid;

    #[test]
    fn derived_instances_are_uuid_v5_of_the_parts_joined_with_colons() {
        let node = uuid!("5b2e0d3c-7c3b-4c51-9a86-0f6a1c1f9a10");
        // Values computed with Python: uuid.uuid5(uuid.UUID("11ad7b32-..."), "87f304b9-...:5b2e0d3c-...").
        let device = device(node);
        assert_eq!(device, uuid!("a005e735-04f3-5dfc-9c3c-a1ec2c610517"));
        assert_eq!(metric(device, "Alerts/Offline"), uuid!("573ac455-fa6c-5de5-9a63-b8e474006ab0"));
        assert_eq!(metric(device, "Alerts/Offline/Links/Node"), uuid!("d8c84104-5de0-5d5e-863a-1f97141f9e16"));
        assert_eq!(device.get_version_num(), 5);
    }
}
