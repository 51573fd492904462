//! Objects as the tables that kubectl prints. Columns of built-in kinds are the few that say something here; those of custom resources come from
//! `additionalPrinterColumns`. Pure.

use serde_json::{Value, json};

use super::kinds::Kind;

struct Column {
    name: String,
    kind: String,
    read: Read,
}

enum Read {
    Name,
    Age,
    Pointer(String),
    Condition(String),
    Roles,
    Count(&'static str),
    Ready,
}

/// A `meta.k8s.io/v1` Table of objects.
pub fn table(kind: &Kind, items: &[Value], metadata: Value, now_ms: u64) -> Value {
    let columns = columns(kind);
    let rows: Vec<Value> = items
        .iter()
        .map(|object| {
            let cells: Vec<Value> = columns.iter().map(|column| cell(&column.read, object, now_ms)).collect();
            let part = json!({ "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"] });
            json!({ "cells": cells, "object": part })
        })
        .collect();
    let definitions: Vec<Value> = columns
        .iter()
        .map(|c| json!({ "name": c.name, "type": c.kind, "format": if c.name == "Name" { "name" } else { "" }, "description": "", "priority": 0 }))
        .collect();
    json!({ "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "columnDefinitions": definitions, "rows": rows })
}

fn columns(kind: &Kind) -> Vec<Column> {
    let column = |name: &str, read: Read| Column { name: name.to_string(), kind: "string".to_string(), read };
    let pointer = |name: &str, path: &str| column(name, Read::Pointer(path.to_string()));
    let mut list = vec![column("Name", Read::Name)];
    match (kind.group.as_str(), kind.kind.as_str()) {
        ("", "Node") => {
            list.push(column("Status", Read::Ready));
            list.push(column("Roles", Read::Roles));
            list.push(pointer("Version", "/status/nodeInfo/kubeletVersion"));
            list.push(pointer("OS-Image", "/status/nodeInfo/osImage"));
        }
        ("", "Namespace" | "Pod") => list.push(pointer("Status", "/status/phase")),
        ("", "Secret") => {
            list.push(pointer("Type", "/type"));
            list.push(column("Data", Read::Count("data")));
        }
        ("", "ConfigMap") => list.push(column("Data", Read::Count("data"))),
        ("apps", "Deployment") => {
            list.push(pointer("Desired", "/spec/replicas"));
            list.push(pointer("Available", "/status/availableReplicas"));
        }
        ("coordination.k8s.io", _) => list.push(pointer("Holder", "/spec/holderIdentity")),
        _ => {}
    }
    for extra in &kind.columns {
        let name = extra["name"].as_str().unwrap_or_default();
        let path = extra["jsonPath"].as_str().unwrap_or_default();
        if name == "Age" {
            continue;
        }
        let read = match path
            .strip_prefix(".status.conditions[?(@.type==\"")
            .and_then(|rest| rest.strip_suffix("\")].status"))
        {
            Some(condition) => Read::Condition(condition.to_string()),
            None => Read::Pointer(path.replace('.', "/")),
        };
        list.push(column(name, read));
    }
    list.push(column("Age", Read::Age));
    list
}

fn condition<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    let list = object.pointer("/status/conditions")?.as_array()?;
    list.iter().find(|c| c["type"] == name)?["status"].as_str()
}

fn cell(read: &Read, object: &Value, now_ms: u64) -> Value {
    match read {
        Read::Name => object["metadata"]["name"].clone(),
        Read::Age => json!(age(object, now_ms)),
        Read::Pointer(path) => object.pointer(path).cloned().unwrap_or_default(),
        Read::Condition(name) => json!(condition(object, name).unwrap_or_default()),
        Read::Count(field) => json!(object[*field].as_object().map_or(0, |map| map.len())),
        Read::Ready => json!(if condition(object, "Ready") == Some("True") { "Ready" } else { "NotReady" }),
        Read::Roles => {
            let labels = object["metadata"]["labels"].as_object();
            let roles =
                labels.into_iter().flatten().filter_map(|(key, _)| key.strip_prefix("node-role.kubernetes.io/"));
            let text = roles.collect::<Vec<_>>().join(",");
            json!(if text.is_empty() { "<none>".to_string() } else { text })
        }
    }
}

fn age(object: &Value, now_ms: u64) -> String {
    let created =
        object["metadata"]["creationTimestamp"].as_str().and_then(|text| text.parse::<jiff::Timestamp>().ok());
    let Some(created) = created else { return "<unknown>".to_string() };
    let now = i64::try_from(now_ms / 1000).unwrap_or(i64::MAX);
    let seconds = now.saturating_sub(created.as_second()).max(0);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubernetes::kinds::Kinds;

    #[test]
    fn a_node_row_shows_readiness_and_role() {
        let kinds = Kinds::builtin();
        let node = json!({
            "metadata": {"name": "h", "creationTimestamp": "1970-01-01T00:00:00Z", "labels": {"node-role.kubernetes.io/control-plane": "true"}},
            "status": {"conditions": [{"type": "Ready", "status": "True"}], "nodeInfo": {"kubeletVersion": "v1", "osImage": "o"}}
        });
        let table = table(kinds.get("", "v1", "nodes").unwrap(), &[node], json!({}), 60_000);
        assert_eq!(table["rows"][0]["cells"], json!(["h", "Ready", "control-plane", "v1", "o", "60s"]));
    }
}
