//! What must be equal after every way that leads to a state: ConfigDB's content, the git trees, the objects in Kubernetes, and what is reported on the wire. Times,
//! revisions, ETags, versions that are made of revisions, and the identities that Kubernetes gives are left out; nothing else is.

use std::path::Path;

use serde_json::{Map, Value, json};
use simulator::cluster::SimulatedCluster;
use sparkplug::DataType;

use crate::cli::Cli;
use crate::wire::Reader;

/// Metrics that hold a time, a revision or a version, or that are drawn at random, as keys and seals are. Also the digest of an index, which is made over versions,
/// and a commit, which is made over times. What the index holds is compared.
const METRICS_LEFT_OUT: [&str; 26] = [
    "bdSeq",
    "Disk/Available",
    "Config/Revision",
    "Config/Store",
    "Request/Result",
    "Deployment/Version",
    "Desired/Version",
    "Desired/Digest",
    "Desired/Origin",
    "Policy/Origin",
    "Config/Timelines",
    "Git/Commit",
    "Git/Login",
    "Git/Key",
    "Git/Refs",
    "Applied/Digest",
    // An edge of a cluster that is gone is known if it was born since.
    "Clusters/Unknown",
    "Cluster/Polled",
    "Enrolment/Key",
    "Source/Version",
    "Source/Commit",
    "Source/Charts",
    "Source/Others",
    "Source/Applied",
    "Deployment/Applied_At",
    "Node Control/Rebirth",
];

/// Annotations that hold a time, a revision, a version or a commit.
const ANNOTATIONS_LEFT_OUT: [&str; 5] = [
    "sparkfleet.io/entries",
    "sparkfleet.io/version",
    "sparkfleet.io/applied-at",
    "factoryplus.app.amrc.co.uk/config-revision",
    "reconcile.fluxcd.io/requestedAt",
];

/// Kinds that are compared.
const KINDS: [(&str, &str); 7] = [
    ("v1", "ConfigMap"),
    ("v1", "Secret"),
    ("apps/v1", "Deployment"),
    ("source.toolkit.fluxcd.io/v1", "GitRepository"),
    ("kustomize.toolkit.fluxcd.io/v1", "Kustomization"),
    ("helm.toolkit.fluxcd.io/v2", "HelmRelease"),
    ("factoryplus.app.amrc.co.uk/v1", "SparkplugNode"),
];

/// The content of ConfigDB as the command line dumps it.
///
/// # Panics
/// The command fails.
pub async fn dump(cli: &Cli) -> Value {
    without_times(&cli.json(&["config", "dump"]).await)
}

/// The content of ConfigDB as it publishes it: what each object holds, by slug.
#[must_use]
pub fn config(reader: &Reader, group: &str) -> Value {
    let Some(configdb) = reader.node(group, "ConfigDB").filter(|node| node.is_alive) else { return Value::Null };
    let objects = configdb.devices.iter().map(|(object, entries)| {
        let entries = entries.iter().filter_map(|(slug, json)| {
            let json = json.as_ref()?.as_str()?;
            let mut entry: Value = serde_json::from_str(json).unwrap_or_else(|_| json.into());
            // Every cluster manager has keys of its own.
            for (_, key) in entry.as_object_mut().into_iter().flatten().filter(|_| slug == "EdgeClusterIdentity") {
                if key.is_string() {
                    *key = Value::from("<key>");
                }
            }
            Some((slug.clone(), entry))
        });
        (object.clone(), without_times(&entries.collect::<Map<_, _>>().into()))
    });
    Value::Object(objects.collect())
}

/// Every repository below the state directory of a cluster manager or a git server: the tree of its branch `main`, by path.
#[must_use]
pub fn git_trees(state_dir: &Path) -> Value {
    let root = state_dir.join("git");
    let mut trees = Map::new();
    let mut directories = vec![root.clone()];
    while let Some(directory) = directories.pop() {
        if directory.join("HEAD").is_file() {
            let name = directory.strip_prefix(&root).unwrap_or(&directory).display().to_string();
            trees.insert(name, git_tree(&directory).map_or(Value::Null, Value::from));
            continue;
        }
        let entries = std::fs::read_dir(&directory).map(|entries| entries.flatten().collect::<Vec<_>>());
        directories
            .extend(entries.unwrap_or_default().into_iter().map(|entry| entry.path()).filter(|path| path.is_dir()));
    }
    trees.sort_keys();
    Value::Object(trees)
}

/// The tree of the branch `main`; None: it does not exist, or the repository is just being made or removed. It is looked at many times a second, so git is not started for it.
fn git_tree(directory: &Path) -> Option<String> {
    let repository = gix::open_opts(directory, gix::open::Options::isolated()).ok()?;
    let commit = repository.find_reference("refs/heads/main").ok()?.peel_to_commit().ok()?;
    Some(commit.tree_id().ok()?.to_string())
}

/// The objects in a simulated cluster.
#[must_use]
pub fn kubernetes(cluster: &SimulatedCluster) -> Value {
    let mut all = Map::new();
    for (api_version, kind) in KINDS {
        for object in cluster.kubernetes().list(api_version, kind, None) {
            let mut object = object.as_ref().clone();
            let name = format!(
                "{kind} {}/{}",
                object["metadata"]["namespace"].as_str().unwrap_or_default(),
                object["metadata"]["name"].as_str().unwrap_or_default()
            );
            if let Some(metadata) = object["metadata"].as_object_mut() {
                for key in ["uid", "resourceVersion", "creationTimestamp", "generation", "managedFields"] {
                    metadata.shift_remove(key);
                }
                if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
                    for key in ANNOTATIONS_LEFT_OUT {
                        annotations.shift_remove(key);
                    }
                }
            }
            let ready = object.pointer("/status/conditions").and_then(Value::as_array).map(|conditions| {
                let readable = |condition: &Value| json!([condition["type"], condition["status"]]);
                conditions.iter().map(readable).collect::<Vec<_>>()
            });
            // The rest of a status says when and how often something was tried.
            if let Some(fields) = object.as_object_mut() {
                fields.shift_remove("status");
            }
            object["conditions"] = json!(ready);
            // Passwords are random.
            for (_, secret) in object["data"].as_object_mut().into_iter().flatten().filter(|_| kind == "Secret") {
                *secret = Value::from("<secret>");
            }
            if object["metadata"]["name"] == "edge-sync-desired" {
                object["data"] = without_versions(&object["data"]);
            }
            all.insert(name, without_times(&object));
        }
    }
    all.sort_keys();
    Value::Object(all)
}

/// Whether Flux has applied everything: every object of its kinds is ready, and every Deployment is available.
#[must_use]
pub fn is_flux_ready(cluster: &SimulatedCluster) -> bool {
    let all = |api_version: &str, kind: &str, wanted: &str| {
        cluster.kubernetes().list(api_version, kind, None).iter().all(|object| {
            let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
            let holds = |condition: &Value| condition["type"] == wanted && condition["status"] == "True";
            conditions.is_some_and(|conditions| conditions.iter().any(holds))
        })
    };
    let of_flux = || KINDS.into_iter().filter(|(api_version, _)| api_version.contains(".fluxcd.io/"));
    of_flux().any(|(api_version, kind)| !cluster.kubernetes().list(api_version, kind, None).is_empty())
        && of_flux().all(|(api_version, kind)| all(api_version, kind, "Ready"))
        && all("apps/v1", "Deployment", "Available")
}

/// What the nodes of the product that are alive say, devices included.
#[must_use]
pub fn reported(reader: &Reader) -> Value {
    let mut all = Map::new();
    for (name, node) in reader.nodes() {
        let mut of_node = Map::new();
        of_node.insert("alive".to_owned(), node.is_alive.into());
        if node.is_alive {
            of_node.insert("metrics".to_owned(), metrics(&node.metrics));
            // ConfigDB's own devices are its content, which is compared as a dump.
            if name.edge_node.as_str() != "ConfigDB" {
                let devices = node.devices.iter().map(|(device, values)| (device.clone(), metrics(values)));
                of_node.insert("devices".to_owned(), Value::Object(devices.collect()));
            }
        }
        all.insert(name.to_string(), of_node.into());
    }
    Value::Object(all)
}

fn metrics(metrics: &crate::wire::Metrics) -> Value {
    let compared = metrics.iter().filter(|(name, value)| {
        let is_time = value.as_ref().is_some_and(|value| value.datatype() == DataType::DateTime);
        // Which process speaks is another one after each start.
        let is_of_process = name.starts_with("Speaker/");
        // A birth leaves out a table without rows.
        let is_empty = matches!(value, Some(sparkplug::Value::DataSet(table)) if table.rows.is_empty());
        !is_time
            && !is_empty
            && !is_of_process
            && !METRICS_LEFT_OUT.contains(&name.as_str())
            && !name.ends_with("/Since")
    });
    let text =
        |value: &Option<sparkplug::Value>| value.as_ref().map_or(Value::Null, |value| format!("{value:?}").into());
    Value::Object(compared.map(|(name, value)| (name.clone(), text(value))).collect())
}

/// The same with every text that is a time replaced, and keys in order.
#[must_use]
pub fn without_times(value: &Value) -> Value {
    match value {
        Value::String(text) if is_time(text) => Value::from("<time>"),
        Value::Array(items) => items.iter().map(without_times).collect(),
        Value::Object(fields) => {
            let mut fields: Map<String, Value> =
                fields.iter().map(|(key, value)| (key.clone(), without_times(value))).collect();
            fields.sort_keys();
            Value::Object(fields)
        }
        other => other.clone(),
    }
}

/// The record of an accepted index without the versions, which are made of revisions, and without the index's own digest, which is made over them.
fn without_versions(value: &Value) -> Value {
    match value {
        Value::String(text) => {
            serde_json::from_str(text).map_or_else(|_| value.clone(), |inner| without_versions(&inner))
        }
        Value::Array(items) => items.iter().map(without_versions).collect(),
        Value::Object(fields) => {
            let is_index = fields.contains_key("deployments");
            // The last index of a cluster that is deleted may be from before its entry went, or from after.
            let is_last = fields.get("deployments").is_some_and(|all| all.as_object().is_some_and(Map::is_empty));
            let left_out = |key: &str| is_index && key == "digest" || is_last && key == "entries";
            let is_kept = |key: &str| !(["version", "origin"].contains(&key) || left_out(key));
            let kept = fields.iter().filter(|(key, _)| is_kept(key));
            kept.map(|(key, value)| (key.clone(), without_versions(value))).collect::<Map<_, _>>().into()
        }
        other => other.clone(),
    }
}

/// `2026-01-31T12:00:00Z`, with or without a fraction.
fn is_time(text: &str) -> bool {
    let shape = |(i, c): (usize, char)| match i {
        4 | 7 => c == '-',
        10 => c == 'T',
        13 | 16 => c == ':',
        _ => c.is_ascii_digit(),
    };
    text.len() >= 20 && text.is_ascii() && text.chars().take(19).enumerate().all(shape) && text.ends_with('Z')
}

/// Where two states differ, one line a place; nothing if they are equal.
#[must_use]
pub fn differences(left: &Value, right: &Value) -> Vec<String> {
    let mut found = Vec::new();
    compare("", left, right, &mut found);
    found
}

fn compare(place: &str, left: &Value, right: &Value, found: &mut Vec<String>) {
    match (left, right) {
        (Value::Object(a), Value::Object(b)) => {
            let keys: std::collections::BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            for key in keys {
                let below = format!("{place}/{key}");
                match (a.get(key), b.get(key)) {
                    (Some(a), Some(b)) => compare(&below, a, b, found),
                    (Some(a), None) => found.push(format!("{below}: only the first has {a}")),
                    (_, b) => found.push(format!("{below}: only the second has {}", b.unwrap_or(&Value::Null))),
                }
            }
        }
        (a, b) if a == b => {}
        (a, b) => found.push(format!("{place}: {a} and {b}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_left_out_and_nothing_else() {
        let value = json!({ "b": "2026-01-31T12:00:00.25Z", "a": ["2026-01-31", 7, { "c": "x" }] });
        assert_eq!(without_times(&value), json!({ "a": ["2026-01-31", 7, { "c": "x" }], "b": "<time>" }));
    }

    #[test]
    fn of_an_accepted_index_only_versions_and_what_is_made_of_them_are_left_out() {
        let index = json!({ "version": 7, "origin": "s/0/t/7", "digest": "of versions", "deployments": { "a": { "version": 6, "digest": "of manifests" } } });
        let record = json!({ "index.json": json!({ "index": index }).to_string() });
        let kept = json!({ "index.json": { "index": { "deployments": { "a": { "digest": "of manifests" } } } } });
        assert_eq!(without_versions(&record), kept);
    }

    #[test]
    fn every_difference_is_reported_with_its_place() {
        let found =
            differences(&json!({ "a": 1, "b": { "c": 2 }, "d": 3 }), &json!({ "a": 1, "b": { "c": 4 }, "e": 5 }));
        assert_eq!(found, ["/b/c: 2 and 4", "/d: only the first has 3", "/e: only the second has 5"]);
    }
}
