//! Edge deployments.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::JsonObject;

/// A workload that an edge cluster is to run. The object's UUID is the deployment's.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct EdgeDeployment {
    /// The cluster.
    pub cluster: Uuid,
    /// Its name; of an edge agent, its edge node id.
    pub name: String,
    /// Chart template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chart: Option<Uuid>,
    /// Chart templates in the form of old stores; see [`EdgeDeployment::chart_templates`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub charts: Option<Vec<Uuid>>,
    /// The host it is bound to; None: floating.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// Values that go over those of the chart template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub values: Option<JsonObject>,
    /// Flux changes nothing of its releases until it is resumed; what runs continues to run.
    #[serde(default, skip_serializing_if = "super::is_false")]
    pub suspend: bool,
    /// When Flux was last asked to reconcile it at once, RFC 3339: another time asks again.
    #[serde(default, rename = "reconcileRequestedAt", skip_serializing_if = "Option::is_none")]
    pub reconcile_requested_at: Option<String>,
    /// When it was made, ISO 8601.
    #[serde(default, rename = "createdAt", skip_serializing_if = "Option::is_none")]
    pub created_at: Option<String>,
    /// Documented by Factory+ and ignored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Uuid>,
    /// Keys that this version does not know.
    #[serde(flatten)]
    pub extra: JsonObject,
}

impl EdgeDeployment {
    /// The chart templates to render, whichever form names them; the present form wins.
    #[must_use]
    pub fn chart_templates(&self) -> &[Uuid] {
        match (&self.chart, &self.charts) {
            (Some(chart), _) => std::slice::from_ref(chart),
            (None, Some(charts)) => charts,
            (None, None) => &[],
        }
    }
}
