//! The answer to a request, as the metric `Request/Result` carries it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sparkplug::typed::MetricValue;
use sparkplug::{DataType, Metric, Value};
use uuid::Uuid;

use crate::names;

/// Whether a request was carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// Everything in it.
    Applied,
    /// Kept for the commit of its transaction; nothing is changed yet.
    Staged,
    /// Nothing in it.
    Refused,
}

/// The answer to a request. It follows the data that the request led to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestResult {
    /// `Request/Id` of the request.
    pub id: String,
    /// The addressed object; nil if the device id was not a UUID.
    pub object: Uuid,
    /// Applied, staged or refused.
    pub outcome: Outcome,
    /// The store that answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<Uuid>,
    /// Revision of the store after the request.
    pub revision: u64,
    /// ETags of the entries named in the request that exist after it, by slug.
    #[serde(default)]
    pub etags: BTreeMap<String, Uuid>,
    /// Why it was refused and what to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The metric that was at fault, with the place in it: `EdgeCluster/name`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// UTC ms at which this answer was given. A repeated request gets the recorded answer with a later time, so that it is published again.
    #[serde(default)]
    pub at: u64,
}

impl RequestResult {
    /// Whether the request was carried out.
    #[must_use]
    pub fn is_applied(&self) -> bool {
        self.outcome == Outcome::Applied
    }

    /// Whether it was refused, and nothing in it was carried out.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        self.outcome == Outcome::Refused
    }

    /// The node's metric.
    #[must_use]
    pub fn to_metric(&self) -> Metric {
        Metric::new(names::REQUEST_RESULT, self.json())
    }

    fn json(&self) -> String {
        serde_json::to_string(self).expect("text, numbers and maps with text keys have a JSON form")
    }

    /// From the node's metric; None if it is null (no request yet) or another metric.
    ///
    /// # Errors
    /// What is wrong with the JSON.
    pub fn from_metric(metric: &Metric) -> Result<Option<Self>, serde_json::Error> {
        match metric.as_str() {
            Some(json) if &*metric.name == names::REQUEST_RESULT => serde_json::from_str(json).map(Some),
            _ => Ok(None),
        }
    }
}

impl MetricValue for RequestResult {
    const DATATYPE: DataType = DataType::String;

    fn to_value(&self) -> Option<Value> {
        Some(self.json().into())
    }

    fn from_value(value: &Value) -> Result<Self, String> {
        let text = value.as_str().unwrap_or_default();
        serde_json::from_str(text).map_err(|error| format!("must be the JSON of a result: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_survives_its_metric() {
        let refused = RequestResult {
            id: "r1".to_owned(),
            object: Uuid::from_u128(1),
            outcome: Outcome::Refused,
            store: Some(Uuid::from_u128(9)),
            revision: 4,
            etags: BTreeMap::new(),
            reason: Some("no".to_owned()),
            field: Some("Info/name".to_owned()),
            at: 5,
        };
        assert_eq!(RequestResult::from_metric(&refused.to_metric()).unwrap(), Some(refused.clone()));
        assert!(!refused.is_applied());
        assert!(refused.to_metric().as_str().unwrap().contains(r#""outcome":"refused""#));
        let null = Metric::string(names::REQUEST_RESULT, None);
        assert_eq!(RequestResult::from_metric(&null).unwrap(), None);
        assert_eq!(RequestResult::from_metric(&Metric::new("x", "{")).unwrap(), None);
        assert!(RequestResult::from_metric(&Metric::new(names::REQUEST_RESULT, "{")).is_err());
    }
}
