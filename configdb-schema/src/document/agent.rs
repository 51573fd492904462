//! The envelope of an edge agent's configuration. What is inside belongs to the agent.

use serde::{Deserialize, Serialize};

use super::JsonObject;

/// Edge Agent config. No service between ConfigDB and the agent reads more of it than this.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AgentConfig {
    /// Schema that the agent goes by.
    #[serde(default, rename = "$schema", skip_serializing_if = "Option::is_none")]
    pub schema: Option<String>,
    /// Sparkplug settings of the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sparkplug: Option<JsonObject>,
    /// Connections to machines.
    #[serde(rename = "deviceConnections")]
    pub device_connections: Vec<JsonObject>,
    /// Everything else.
    #[serde(flatten)]
    pub extra: JsonObject,
}
