//! The metrics of the monitor itself.

use std::collections::BTreeMap;

use sparkplug::typed::{Form, form};
use sparkplug::{DataType, Value};
use uuid::Uuid;

use crate::device::uuid;
use crate::{identity, names};

/// What a monitor says about itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MonitorNode {
    /// Its own identity.
    pub instance: Uuid,
    /// The cluster that it watches; None at the centre.
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

/// [`MonitorNode::problems`] as JSON.
struct ProblemsJson;

impl Form<BTreeMap<String, String>> for ProblemsJson {
    const DATATYPE: DataType = DataType::String;

    fn write(field: &BTreeMap<String, String>) -> Option<Value> {
        Some(serde_json::to_string(field).expect("a map of strings is JSON").into())
    }

    fn read(value: Option<&Value>) -> Result<BTreeMap<String, String>, String> {
        let text = value.and_then(Value::as_str).ok_or("must be a String")?;
        serde_json::from_str(text).map_err(|error| format!("must be a JSON object of strings: {error}"))
    }
}

sparkplug::typed_metrics! {
    MonitorNode {
        (|_| uuid(identity::SCHEMA_EDGE_MONITOR)) => names::SCHEMA_UUID,
        instance as form::Uuid => names::INSTANCE_UUID,
        (|_| names::SERVICE.into()) => names::PROPERTIES_SERVICE,
        #[optional]
        version => names::PROPERTIES_VERSION,
        #[optional]
        simulated => names::PROPERTIES_SIMULATED,
        #[only_if(|monitor| monitor.cluster.is_some())]
        (|_| uuid(identity::SCHEMA_LINK)) => names::LINK_CLUSTER_SCHEMA,
        #[only_if(|monitor| monitor.cluster.is_some())]
        (|monitor| uuid(identity::metric(monitor.instance, "Links/Cluster"))) => names::LINK_CLUSTER_INSTANCE,
        #[omit_null]
        cluster as form::Nullable<form::Uuid> => names::LINK_CLUSTER_TARGET,
        #[only_if(|monitor| monitor.cluster.is_some())]
        (|_| uuid(identity::RELATION_CLUSTER)) => names::LINK_CLUSTER_RELATION,
        nodes_total => names::NODES_TOTAL,
        nodes_online => names::NODES_ONLINE,
        alerts_active => names::ALERTS_ACTIVE,
        #[optional]
        problems as ProblemsJson => names::NODES_PROBLEMS,
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
    fn a_birth_without_instance_is_no_monitor() {
        let mut metrics = monitor().to_metrics();
        metrics.retain(|metric| &*metric.name != names::INSTANCE_UUID);
        let error = MonitorNode::from_metrics(&metrics).unwrap_err();
        assert_eq!(error.to_string(), "metric \"Instance_UUID\" is missing in the birth");
    }
}
