//! Alerts as an Alertmanager takes them (its API v2, `POST /api/v2/alerts`): the words between the notifier, which decides, and the adapter, which sends.

use std::collections::BTreeMap;

use serde::Serialize;

/// One alert.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Notice {
    /// What it is; the same labels are the same alert.
    pub labels: BTreeMap<&'static str, String>,
    /// What is said of it.
    pub annotations: BTreeMap<&'static str, String>,
    /// Since when, RFC 3339; None: since it is sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub starts_at: Option<String>,
    /// When it ends or has ended, RFC 3339: an Alertmanager that receives nothing more takes it for resolved then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ends_at: Option<String>,
    /// The page of the console that shows it.
    #[serde(rename = "generatorURL", skip_serializing_if = "Option::is_none")]
    pub generator_url: Option<String>,
}
