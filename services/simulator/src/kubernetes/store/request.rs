//! What requests ask of the store, and what lists answer. Data.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value, json};

use super::super::error::ApiError;
use super::super::selector::Selector;

/// Circumstances of a write.
#[derive(Debug, Clone)]
pub struct WriteOptions {
    pub manager: String,
    /// Take fields from other managers (apply only).
    pub force: bool,
    /// Check everything, store nothing.
    pub dry_run: bool,
    /// `status`, or empty for the object itself.
    pub subresource: String,
    pub wall_ms: u64,
}

impl WriteOptions {
    /// A plain write by a manager.
    pub fn by(manager: &str, wall_ms: u64) -> Self {
        Self { manager: manager.to_string(), force: false, dry_run: false, subresource: String::new(), wall_ms }
    }

    /// The same for the status subresource.
    pub fn status(mut self) -> Self {
        self.subresource = "status".to_string();
        self
    }

    /// The same, taking fields from other managers.
    pub fn forced(mut self) -> Self {
        self.force = true;
        self
    }

    pub(super) fn time(&self) -> String {
        timestamp(self.wall_ms)
    }
}

/// RFC 3339 in whole seconds, as Kubernetes writes times.
pub fn timestamp(wall_ms: u64) -> String {
    let seconds = i64::try_from(wall_ms / 1000).unwrap_or(i64::MAX);
    jiff::Timestamp::from_second(seconds).unwrap_or(jiff::Timestamp::UNIX_EPOCH).to_string()
}

/// A patch and how to understand it.
#[derive(Debug, Clone)]
pub enum Patch {
    Merge(Value),
    Json(Value),
    /// Strategic merge patch, carried out as a merge patch.
    Strategic(Value),
    Apply(Value),
}

/// What a deletion asks for.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DeleteOptions {
    /// Only if the object has this UID.
    pub uid: Option<String>,
    /// Only if the object has this version.
    pub resource_version: Option<String>,
    /// `propagationPolicy: Orphan`: dependents stay.
    pub orphan: bool,
    pub dry_run: bool,
}

/// What became of a deletion.
#[derive(Debug, Clone, PartialEq)]
pub enum Deleted {
    Removed(Arc<Value>),
    /// Waits for its finalizers.
    Pending(Arc<Value>),
}

/// What a list asks for.
#[derive(Debug, Clone, Default)]
pub struct ListOptions {
    pub selector: Selector,
    /// At most so many; 0 for all.
    pub limit: usize,
    /// Where the page before ended.
    pub continue_token: Option<String>,
    pub exact_version: Option<u64>,
}

/// One page of a list.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    /// The objects, ordered by namespace and name.
    pub items: Vec<Arc<Value>>,
    /// Version of the whole list.
    pub version: u64,
    /// Token of the next page.
    pub continue_token: Option<String>,
    pub remaining: Option<usize>,
}

/// Where a list continues, readable by no one but the server.
pub(super) struct ContinueToken {
    pub(super) version: u64,
    pub(super) namespace: String,
    pub(super) name: String,
}

impl ContinueToken {
    pub(super) fn encode(&self) -> String {
        URL_SAFE_NO_PAD.encode(json!({ "rv": self.version, "ns": self.namespace, "n": self.name }).to_string())
    }

    pub(super) fn decode(text: &str) -> Result<Self, ApiError> {
        let refuse = || ApiError::bad_request("continue key is not valid: it was not returned by this server");
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| refuse())?;
        let map: Map<String, Value> = serde_json::from_slice(&bytes).map_err(|_| refuse())?;
        let part = |field: &str| map.get(field).and_then(Value::as_str).map(str::to_string).ok_or_else(refuse);
        Ok(Self {
            version: map.get("rv").and_then(Value::as_u64).ok_or_else(refuse)?,
            namespace: part("ns")?,
            name: part("n")?,
        })
    }
}
