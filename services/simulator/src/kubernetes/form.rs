//! In which form an object is given: as it is, its metadata alone, or a table.

use axum::http::{HeaderMap, header};
use serde_json::{Value, json};

use super::kinds::Kind;
use super::table::table;

/// The representation that a client accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Plain,
    Metadata,
    /// A table for kubectl.
    Table,
}

impl Form {
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let accept = headers.get(header::ACCEPT).and_then(|v| v.to_str().ok()).unwrap_or_default();
        let first = accept.split(',').next().unwrap_or_default();
        let parameters: Vec<&str> = first.split(';').map(str::trim).collect();
        let is_v1 = parameters.contains(&"v=v1");
        match parameters.iter().find_map(|p| p.strip_prefix("as=")).filter(|_| is_v1) {
            Some("Table") => Form::Table,
            Some("PartialObjectMetadata" | "PartialObjectMetadataList") => Form::Metadata,
            _ => Form::Plain,
        }
    }

    /// One object, in the version that was asked for.
    pub fn single(self, kind: &Kind, object: &Value) -> Value {
        if self == Form::Metadata {
            return json!({ "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"] });
        }
        let mut object = object.clone();
        object["apiVersion"] = json!(kind.api_version());
        object
    }

    pub(super) fn list(self, kind: &Kind, items: Vec<Value>, metadata: Value, now_ms: u64) -> Value {
        match self {
            Form::Table => table(kind, &items, metadata, now_ms),
            Form::Metadata => {
                json!({ "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "items": items })
            }
            Form::Plain => {
                json!({ "kind": format!("{}List", kind.kind), "apiVersion": kind.api_version(), "metadata": metadata, "items": items })
            }
        }
    }
}
