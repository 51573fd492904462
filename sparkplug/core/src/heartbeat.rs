//! The sign of life of a quiet Edge Node, as it is written and as it is read.
//!
//! It is an NDATA with `Node Control/Rebirth` = false, which says nothing new. Its `seq` shows what was lost before it.
//! A birth that was lost with a number of messages that makes `seq` fit again shows by the property [`BIRTH_TIMESTAMP`]. Readers that do not know the property pass over it.

use crate::metric::{Metric, Properties, Value};
use crate::payload::{MetricRef, PayloadRef};

/// The metric that asks an Edge Node for its births (tck-id-operational-behavior-data-commands-ncmd-rebirth-name).
pub(crate) const NODE_REBIRTH: &str = "Node Control/Rebirth";

/// Property of the metric in a heartbeat: payload timestamp of the NBIRTH that it follows. UInt64, UTC ms.
const BIRTH_TIMESTAMP: &str = "birthTimestamp";

/// The metric of a heartbeat. `birth_timestamp`: payload timestamp of the last NBIRTH. `wall`: now. Both are UTC ms.
pub(crate) fn metric(birth_timestamp: u64, wall: u64) -> Metric {
    let properties = Properties::new().with(BIRTH_TIMESTAMP, birth_timestamp);
    Metric::new(NODE_REBIRTH, false).at(wall).with_properties(properties)
}

/// What a host takes from a heartbeat.
pub(crate) struct Heartbeat<'a> {
    /// Payload timestamp of the NBIRTH that it follows. UTC ms.
    pub birth_timestamp: u64,
    /// The metric without that property, which would have to be kept for each Edge Node and says nothing of its metrics.
    pub metric: MetricRef<'a>,
}

impl<'a> Heartbeat<'a> {
    /// None: other data, or the heartbeat of an Edge Node that does not say its birth.
    pub(crate) fn of(payload: &PayloadRef<'a>) -> Option<Self> {
        let [metric] = payload.metrics.as_slice() else { return None };
        let properties = metric.properties.filter(|_| metric.name == Some(NODE_REBIRTH))?;
        let Some(Value::UInt64(birth_timestamp)) = properties.decode().get(BIRTH_TIMESTAMP).cloned() else {
            return None;
        };
        Some(Self { birth_timestamp, metric: MetricRef { properties: None, ..*metric } })
    }
}
