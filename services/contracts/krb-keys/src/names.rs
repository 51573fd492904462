//! The node's id, its device ids and every metric name. Nothing else may spell them.

use sparkplug::{DeviceId, EdgeNodeDescriptor, EdgeNodeId, GroupId};

/// Edge Node id of Keys in the group of its cluster.
pub const EDGE_NODE_ID: &str = configdb_schema::address::KEYS_NODE;

/// UUID; which one it is.
pub const INSTANCE_UUID: &str = "Instance_UUID";
/// UUID; the cluster that it serves.
pub const LINK_CLUSTER_TARGET: &str = "Links/Cluster/Target";
/// UUID; the relation to it.
pub const LINK_CLUSTER_RELATION: &str = "Links/Cluster/Relation";
/// String; always [`SERVICE`].
pub const PROPERTIES_SERVICE: &str = "Properties/Service";
/// String; version of the service.
pub const PROPERTIES_VERSION: &str = "Properties/Version";
/// String; the realm's administrator that it is.
pub const PROPERTIES_PRINCIPAL: &str = "Properties/Principal";
/// UInt64; KerberosKey and LocalSecret resources.
pub const KEYS_TOTAL: &str = "Keys/Total";
/// UInt64; those that are as they shall be.
pub const KEYS_READY: &str = "Keys/Ready";
/// UInt64; those that are not, for a published reason.
pub const KEYS_FAILED: &str = "Keys/Failed";
/// DataSet of `Resource` (kind and name) and `Reason`; why it is not as it shall be.
pub const KEYS_PROBLEMS: &str = "Keys/Problems";
/// UInt64; Devices of accounts that are alive; null until the resources are known.
pub const ACCOUNTS_TOTAL: &str = "Accounts/Total";
/// Value of [`PROPERTIES_SERVICE`].
pub const SERVICE: &str = "krb-keys";

/// Metrics of the Device of an account.
pub mod account {
    /// String; `pending`, `ready` or `refused`.
    pub const STATE: &str = "Status/State";
    /// String; why the request is refused, null if it is not.
    pub const REASON: &str = "Status/Reason";
    /// DateTime; since when it is in that state.
    pub const SINCE: &str = "Status/Since";
    /// String; JSON of what is wanted.
    pub const REQUEST: &str = "Account/Wish";
    /// UUID; the account, null until it is known.
    pub const UUID: &str = "Account/UUID";
    /// DCMD, String; JSON of an [`crate::AccountDecision`].
    pub const ANSWER: &str = "Account/Answer";
}

const ACCOUNT_PREFIX: &str = "Account-";

/// The Keys node of a group.
#[must_use]
pub fn keys_node(group: GroupId) -> EdgeNodeDescriptor {
    let edge_node = EdgeNodeId::new(EDGE_NODE_ID).expect("a constant without forbidden characters is an id");
    EdgeNodeDescriptor::new(group, edge_node)
}

/// Device of the account that a KerberosKey of that name wants, with `_` for each dot of the name, which has no underscore; None if the name makes no id.
#[must_use]
pub fn account_device(resource: &str) -> Option<DeviceId> {
    DeviceId::new(format!("{ACCOUNT_PREFIX}{}", resource.replace('.', "_"))).ok()
}

/// The KerberosKey of a Device; None if it is not the id of an account.
#[must_use]
pub fn resource_of(device: &DeviceId) -> Option<String> {
    let resource = device.as_str().strip_prefix(ACCOUNT_PREFIX).filter(|resource| !resource.is_empty())?;
    Some(resource.replace('_', "."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_ids_are_read_back_and_foreign_ones_are_not_ours() {
        let device = account_device("robot.cell-3").unwrap();
        assert_eq!((device.as_str(), resource_of(&device)), ("Account-robot_cell-3", Some("robot.cell-3".to_owned())));
        for foreign in ["Account-", "robot"] {
            assert_eq!(resource_of(&DeviceId::new(foreign).unwrap()), None, "{foreign}");
        }
        assert_eq!(account_device("a/b"), None);
    }
}
