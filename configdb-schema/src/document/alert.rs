//! Who looks after which alert.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Alerts of a cluster that a user looks after; those of the central services stand at [`crate::known::service::CLUSTER_MANAGER`]. Closed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AlertAcknowledgements {
    /// By the alert: `CLUSTER/NODE/ALERT/MONITOR`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub alerts: BTreeMap<String, AlertAcknowledgement>,
}

/// That a user looks after an alert, as it was when they said so. Closed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AlertAcknowledgement {
    /// Who.
    pub by: String,
    /// When they said so, RFC 3339.
    pub at: String,
    /// What they do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// When the alert became active, UTC ms, if that is known: one that became active at another time is another alert.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<u64>,
    /// The first [`AlertAcknowledgement::REASON_CHARS`] characters of its reason, if `since` is not known: one of another reason is another alert.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Until when the alert is silenced, RFC 3339: it counts until then, also where the alert ends and becomes active again, and not after.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
}

impl AlertAcknowledgement {
    /// Longest `reason`, in characters.
    pub const REASON_CHARS: usize = 1_000;
    /// Longest `note`, in characters.
    pub const NOTE_CHARS: usize = 1_000;
    /// Longest time for which an alert is silenced, in seconds.
    pub const SILENCE_SECONDS: u64 = 30 * 24 * 3_600;
}
