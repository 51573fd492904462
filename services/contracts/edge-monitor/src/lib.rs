//! The public face of the edge monitor on the wire: the metrics of its birth, what it reports about the nodes that it watches, and a replica for
//! its consumers.
//!
//! | module | knows |
//! |---|---|
//! | [`identity`] | UUIDs of schemas, relations and alert types, and how instances are derived (UUIDv5) |
//! | [`names`] | every metric name |
//! | [`node`] | the metrics of the monitor itself |
//! | [`device`] | the device that stands for one monitored node |
//! | [`replica`] | all monitors as a listener sees them: nodes, alerts, since when |
//!
//! A monitor is born at `<group>/Monitor`: on an edge cluster in the cluster's group, for the control plane in the central group. Its payloads carry the Factory+ marker
//! ([`identity::FACTORY_PLUS`]) and no aliases. It takes no command but Rebirth.
//! This package knows no service, no clock and no Kubernetes.
#![warn(missing_docs, unreachable_pub)]

pub mod device;
pub mod identity;
pub mod names;
pub mod node;
pub mod replica;

pub use device::{Alert, AlertKind, BIRTH_REFUSED, MonitoredNodeDevice, NodeState, UnknownNodeState};
pub use node::MonitorNode;
pub use replica::{MonitorContract, MonitorReplica, MonitorView, MonitoredNodes, Presence};

/// Edge node id of every monitor; its group says of what.
pub const EDGE_NODE_ID: &str = configdb_schema::address::MONITOR_NODE;
