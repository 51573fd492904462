//! The metrics of the monitor itself.

use std::collections::BTreeMap;

use sparkplug::{Metric, Value};
use uuid::Uuid;

use crate::device::{text, uuid_metric};
use crate::{identity, names};

/// What a monitor says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
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

/// Why metrics are not those of a monitor.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NodeError {
    /// A metric that every monitor has is missing or has another type.
    #[error("metric {name:?} of a monitor is missing, null or not {expected}")]
    Metric {
        /// Which.
        name: &'static str,
        /// What it should be.
        expected: &'static str,
    },
    /// [`names::NODES_PROBLEMS`] is no JSON map of texts.
    #[error("metric \"Nodes/Problems\" is not a JSON object of strings: {reason}")]
    Problems {
        /// Of the parser.
        reason: String,
    },
}

impl MonitorNode {
    /// All metrics of the node's birth, without those that every Edge Node has.
    #[must_use]
    pub fn to_metrics(&self) -> Vec<Metric> {
        let mut metrics = vec![
            uuid_metric(names::SCHEMA_UUID, identity::SCHEMA_EDGE_MONITOR),
            uuid_metric(names::INSTANCE_UUID, self.instance),
            Metric::new(names::PROPERTIES_SERVICE, names::SERVICE),
            Metric::new(names::PROPERTIES_VERSION, self.version.as_str()),
            Metric::new(names::PROPERTIES_SIMULATED, self.simulated),
        ];
        if let Some(cluster) = self.cluster {
            let link = identity::metric(self.instance, "Links/Cluster");
            metrics.extend([
                uuid_metric(names::LINK_CLUSTER_SCHEMA, identity::SCHEMA_LINK),
                uuid_metric(names::LINK_CLUSTER_INSTANCE, link),
                uuid_metric(names::LINK_CLUSTER_TARGET, cluster),
                uuid_metric(names::LINK_CLUSTER_RELATION, identity::RELATION_CLUSTER),
            ]);
        }
        metrics.extend(self.counters());
        metrics
    }

    /// The metrics that change: counters and problems.
    #[must_use]
    pub fn counters(&self) -> Vec<Metric> {
        let problems = serde_json::to_string(&self.problems).expect("a map of strings is JSON");
        vec![
            Metric::new(names::NODES_TOTAL, Value::UInt32(self.nodes_total)),
            Metric::new(names::NODES_ONLINE, Value::UInt32(self.nodes_online)),
            Metric::new(names::ALERTS_ACTIVE, Value::UInt32(self.alerts_active)),
            Metric::new(names::NODES_PROBLEMS, problems),
        ]
    }

    /// From the metrics of an NBIRTH, with the NDATA since folded in.
    ///
    /// # Errors
    /// A metric that every monitor has is missing or unreadable.
    pub fn from_metrics<'a>(metrics: impl IntoIterator<Item = &'a Metric>) -> Result<Self, NodeError> {
        let by_name: BTreeMap<&str, &Metric> = metrics.into_iter().map(|metric| (&*metric.name, metric)).collect();
        let need = |name: &'static str, expected| NodeError::Metric { name, expected };
        let number = |name: &'static str| {
            let value = by_name.get(name).and_then(|metric| metric.as_u64());
            value.and_then(|n| u32::try_from(n).ok()).ok_or_else(|| need(name, "a UInt32"))
        };
        let uuid = |name: &str| {
            by_name.get(name).and_then(|metric| metric.as_str()).and_then(|text| Uuid::parse_str(text).ok())
        };
        let problems = text(&by_name, names::NODES_PROBLEMS).unwrap_or("{}");
        Ok(Self {
            instance: uuid(names::INSTANCE_UUID).ok_or_else(|| need(names::INSTANCE_UUID, "a UUID"))?,
            cluster: uuid(names::LINK_CLUSTER_TARGET),
            version: text(&by_name, names::PROPERTIES_VERSION).unwrap_or_default().to_owned(),
            simulated: by_name.get(names::PROPERTIES_SIMULATED).and_then(|metric| metric.as_bool()).unwrap_or(false),
            nodes_total: number(names::NODES_TOTAL)?,
            nodes_online: number(names::NODES_ONLINE)?,
            alerts_active: number(names::ALERTS_ACTIVE)?,
            problems: serde_json::from_str(problems)
                .map_err(|error| NodeError::Problems { reason: error.to_string() })?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(error, NodeError::Metric { name: names::INSTANCE_UUID, expected: "a UUID" });
    }
}
