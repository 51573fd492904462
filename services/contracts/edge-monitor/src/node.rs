//! The metrics of the monitor itself.

use std::collections::BTreeMap;

use sparkplug::typed::form;
use uuid::Uuid;

use crate::device::uuid;
use crate::{identity, names};

/// What a monitor says about itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MonitorNode {
    /// Its own identity.
    pub instance: Uuid,
    /// The cluster that it watches; None for the central monitor.
    pub cluster: Option<Uuid>,
    /// Its version.
    pub version: String,
    /// What it watches is a simulation.
    pub simulated: bool,
    /// Nodes that are watched.
    pub nodes_total: u32,
    /// Those of them that are online.
    pub nodes_online: u32,
    /// Alerts that are active.
    pub alerts_active: u32,
    /// What should be watched and cannot, and why.
    pub problems: BTreeMap<String, String>,
}

/// Columns of [`MonitorNode::problems`].
struct Problems;

impl form::Columns for Problems {
    const KEY: &'static str = "Node";
    const VALUE: &'static str = "Reason";
}

sparkplug::typed_metrics! {
    MonitorNode {
        /// Schema of the node, as Factory+ has it.
        (|_| uuid(identity::SCHEMA_EDGE_MONITOR)) => names::SCHEMA_UUID,
        /// Identity of the monitor.
        instance as form::Uuid => names::INSTANCE_UUID,
        /// Which service the node is.
        (|_| names::SERVICE.into()) => names::PROPERTIES_SERVICE,
        /// Version of the software.
        #[optional]
        version => names::PROPERTIES_VERSION,
        /// The cluster behind it is a simulation.
        #[optional]
        simulated => names::PROPERTIES_SIMULATED,
        /// Schema of the link to the cluster.
        #[only_if(|monitor| monitor.cluster.is_some())]
        (|_| uuid(identity::SCHEMA_LINK)) => names::LINK_CLUSTER_SCHEMA,
        /// Identity of the link to the cluster.
        #[only_if(|monitor| monitor.cluster.is_some())]
        (|monitor| uuid(identity::metric(monitor.instance, "Links/Cluster"))) => names::LINK_CLUSTER_INSTANCE,
        /// The cluster that it watches.
        #[omit_null]
        cluster as form::Nullable<form::Uuid> => names::LINK_CLUSTER_TARGET,
        /// Relation to the cluster: monitored cluster.
        #[only_if(|monitor| monitor.cluster.is_some())]
        (|_| uuid(identity::RELATION_CLUSTER)) => names::LINK_CLUSTER_RELATION,
        /// Nodes that are watched.
        nodes_total as form::Count => names::NODES_TOTAL,
        /// Nodes that are online.
        nodes_online as form::Count => names::NODES_ONLINE,
        /// Alerts that are active.
        alerts_active as form::Count => names::ALERTS_ACTIVE,
        /// What should be watched and cannot, and why; absent: nothing.
        #[omit_null]
        problems as form::Table<Problems> => names::NODES_PROBLEMS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sparkplug::TypedMetrics;

    fn monitor() -> MonitorNode {
        MonitorNode {
            instance: Uuid::from_u128(1),
            cluster: Some(Uuid::from_u128(2)),
            version: "0.1.0".into(),
            simulated: true,
            nodes_total: 3,
            nodes_online: 2,
            alerts_active: 1,
            problems: BTreeMap::from([("x".into(), "neither uuid nor address".into())]),
        }
    }

    #[test]
    fn what_was_written_is_read() {
        assert_eq!(MonitorNode::from_metrics(&monitor().to_metrics()), Ok(monitor()));
    }

    #[test]
    fn the_central_monitor_has_no_link_to_a_cluster() {
        let central = MonitorNode { cluster: None, ..monitor() };
        let metrics = central.to_metrics();
        assert!(metrics.iter().all(|metric| !metric.name.starts_with("Links/")));
        assert_eq!(MonitorNode::from_metrics(&metrics), Ok(central));
    }

    #[test]
    fn a_birth_without_instance_is_not_a_monitor() {
        let mut metrics = monitor().to_metrics();
        metrics.retain(|metric| &*metric.name != names::INSTANCE_UUID);
        let error = MonitorNode::from_metrics(&metrics).unwrap_err();
        assert_eq!(error.to_string(), "metric \"Instance_UUID\" is missing in the birth");
    }
}
