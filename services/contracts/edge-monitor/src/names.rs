//! Metric names. Those without a comment are Factory+'s own.

/// Boolean; asks for all births.
pub const NODE_CONTROL_REBIRTH: &str = "Node Control/Rebirth";
/// Boolean; asks for the birth of a device.
pub const DEVICE_CONTROL_REBIRTH: &str = "Device Control/Rebirth";
/// UUID; schema of the node or device.
pub const SCHEMA_UUID: &str = "Schema_UUID";
/// UUID; which one it is.
pub const INSTANCE_UUID: &str = "Instance_UUID";

/// UUID; schema of the link from a monitor to its cluster.
pub const LINK_CLUSTER_SCHEMA: &str = "Links/Cluster/Schema_UUID";
/// UUID; the link itself.
pub const LINK_CLUSTER_INSTANCE: &str = "Links/Cluster/Instance_UUID";
/// UUID; the cluster.
pub const LINK_CLUSTER_TARGET: &str = "Links/Cluster/Target";
/// UUID; "monitored cluster".
pub const LINK_CLUSTER_RELATION: &str = "Links/Cluster/Relation";

/// UUID; schema of the link from a device to the node that it stands for.
pub const LINK_NODE_SCHEMA: &str = "Links/Node/Schema_UUID";
/// UUID; the link itself.
pub const LINK_NODE_INSTANCE: &str = "Links/Node/Instance_UUID";
/// UUID; the monitored node.
pub const LINK_NODE_TARGET: &str = "Links/Node/Target";
/// UUID; "monitored node".
pub const LINK_NODE_RELATION: &str = "Links/Node/Relation";

/// String; `unknown`, `online`, `offline` or `silent`. An addition to Factory+.
pub const STATUS_STATE: &str = "Status/State";
/// String or null; why the node is not online, or has not its configuration. An addition to Factory+.
pub const STATUS_REASON: &str = "Status/Reason";
/// DateTime; since when the node is in that state. An addition to Factory+.
pub const STATUS_SINCE: &str = "Status/Since";
/// String or null; configuration revision that an edge agent should have. An addition to Factory+.
pub const CONFIG_WANTED: &str = "Config/Wanted";
/// String or null; configuration revision that it says it has. An addition to Factory+.
pub const CONFIG_REPORTED: &str = "Config/Reported";

/// String; always [`SERVICE`].
pub const PROPERTIES_SERVICE: &str = "Properties/Service";
/// String; version of the monitor.
pub const PROPERTIES_VERSION: &str = "Properties/Version";
/// Boolean; the cluster behind it is a simulation.
pub const PROPERTIES_SIMULATED: &str = "Properties/Simulated";
/// UInt64; nodes that are watched.
pub const NODES_TOTAL: &str = "Nodes/Total";
/// UInt64; those of them that are online.
pub const NODES_ONLINE: &str = "Nodes/Online";
/// DataSet of `Node` and `Reason`; what should be watched and why it cannot.
pub const NODES_PROBLEMS: &str = "Nodes/Problems";
/// UInt64; alerts that are active.
pub const ALERTS_ACTIVE: &str = "Alerts/Active";

/// Value of [`PROPERTIES_SERVICE`].
pub const SERVICE: &str = "edge-monitor";

/// UUID metric of an Edge Agent: the configuration that it runs; the Null UUID: no configuration. Read, not written, by a monitor.
pub const AGENT_CONFIG_REVISION: &str = "Config_Revision";
/// Boolean command of an Edge Agent: fetch the configuration and the secrets again.
pub const AGENT_RELOAD: &str = "Node Control/Reload Edge Agent Config";
