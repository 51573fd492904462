//! What operators decide about the rollout of a chart template.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// What operators have decided about the rollout of a chart template, at the object of that. Closed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChartRollout {
    /// While it is there, a change of the chart template reaches no deployment that runs another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<RolloutDecision>,
    /// Clusters that later waves do not wait for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub without: Option<RolloutWithout>,
}

/// Who decided, and when. Closed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RolloutDecision {
    /// Who.
    pub by: String,
    /// When, RFC 3339.
    pub at: String,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// Clusters that later waves do not wait for, as long as the chart template is the one that the operator has seen. Closed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RolloutWithout {
    /// ETag of the chart template's entry: the decision does not count for another one.
    pub template: Uuid,
    /// By cluster.
    pub clusters: BTreeMap<Uuid, RolloutDecision>,
}

impl RolloutDecision {
    /// Longest `note`, in characters.
    pub const NOTE_CHARS: usize = 1_000;
}

impl ChartRollout {
    /// The decisions that count for the entry of the chart template that has this ETag, by cluster.
    pub fn passed(&self, template: Option<Uuid>) -> impl Iterator<Item = (Uuid, &RolloutDecision)> {
        let counts = self.without.as_ref().filter(|without| Some(without.template) == template);
        counts.into_iter().flat_map(|without| &without.clusters).map(|(cluster, decision)| (*cluster, decision))
    }
}
