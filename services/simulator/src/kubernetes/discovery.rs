//! What the API says of itself: versions, groups, resources. Pure.

use serde_json::{Value, json};

use super::kinds::{Kind, Kinds};

/// Said wherever a version of the cluster is shown, so that no one takes it for a real one.
pub const GIT_VERSION: &str = "v1.33.0+sparkfleet-simulated";

/// `GET /version`.
pub fn version(arch: &str) -> Value {
    json!({
        "major": "1", "minor": "33", "gitVersion": GIT_VERSION, "gitCommit": "simulated", "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z", "goVersion": "simulated", "compiler": "simulated", "platform": format!("linux/{arch}")
    })
}

/// `GET /api`.
pub fn core_versions() -> Value {
    json!({ "kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": [] })
}

/// `GET /apis`.
pub fn groups(kinds: &Kinds) -> Value {
    let groups: Vec<Value> = kinds
        .groups()
        .iter()
        .filter(|(name, _)| !name.is_empty())
        .map(|(name, versions)| group_entry(name, versions))
        .collect();
    json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups })
}

/// `GET /apis/<group>`.
pub fn group(kinds: &Kinds, name: &str) -> Option<Value> {
    let versions = kinds.groups().remove(name)?;
    let mut entry = group_entry(name, &versions);
    entry["kind"] = json!("APIGroup");
    entry["apiVersion"] = json!("v1");
    Some(entry)
}

fn group_entry(name: &str, versions: &[String]) -> Value {
    let version = |v: &String| json!({ "groupVersion": format!("{name}/{v}"), "version": v });
    json!({
        "name": name,
        "versions": versions.iter().map(version).collect::<Vec<_>>(),
        "preferredVersion": versions.first().map(version)
    })
}

/// `GET /api/v1` and `GET /apis/<group>/<version>`.
pub fn resources(kinds: &Kinds, group: &str, version: &str) -> Option<Value> {
    let list: Vec<Value> =
        kinds.iter().filter(|k| k.group == group && k.version == version).flat_map(|k| entries(k)).collect();
    if list.is_empty() {
        return None;
    }
    let group_version = if group.is_empty() { version.to_string() } else { format!("{group}/{version}") };
    Some(json!({ "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": list }))
}

fn entries(kind: &Kind) -> Vec<Value> {
    let mut main = json!({
        "name": kind.plural, "singularName": kind.singular, "namespaced": kind.namespaced, "kind": kind.kind,
        "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
    });
    if !kind.short_names.is_empty() {
        main["shortNames"] = json!(kind.short_names);
    }
    let mut list = vec![main];
    if kind.has_status {
        list.push(json!({
            "name": format!("{}/status", kind.plural), "singularName": "", "namespaced": kind.namespaced, "kind": kind.kind,
            "verbs": ["get", "patch", "update"]
        }));
    }
    list
}
