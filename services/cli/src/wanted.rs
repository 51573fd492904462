//! What files want of the fleet, by name: clusters, deployments, and entries of ConfigDB; and the writes that bring ConfigDB to it. Pure.
//!
//! ```text
//! documents -> plan (of what ConfigDB has now) -> one change an object, each with its write and what differs
//! ```
//!
//! What a document does not name stays as it is, also keys that this version does not know.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, anyhow};
use configdb_contract::WriteRequest;
use configdb_schema::Document;
use configdb_schema::document::{EdgeCluster, EdgeClusterRollout, EdgeDeployment, JsonObject};
use fleet_view::Fleet;
use fleet_view::requests::{self, Author, NewDeployment};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value, json};
use service_runtime::exit;
use uuid::Uuid;

use crate::look_up;
use crate::usage_error::{not_found, of_request, usage};

/// Namespace of a cluster that is created without one.
const NAMESPACE: &str = "fplus-edge";

/// Chart of a deployment that is created without one.
const CHART: &str = "Edge agent";

/// A document of a file.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "kind", deny_unknown_fields)]
pub(crate) enum Wanted {
    /// An edge cluster.
    Cluster {
        /// Its name.
        name: String,
        /// Kubernetes namespace of its edge services.
        namespace: Option<String>,
        /// The site manages Flux itself.
        bare: Option<bool>,
        /// When changes of chart templates reach it, 1 to 9.
        wave: Option<u8>,
        /// Values that go over those of its chart template.
        values: Option<JsonObject>,
    },
    /// A deployment on a cluster.
    Deployment {
        /// Name or UUID of the cluster.
        cluster: String,
        /// Its name.
        name: String,
        /// Chart template: name or UUID.
        chart: Option<String>,
        /// The host that it is bound to; null: floating.
        #[serde(default, deserialize_with = "named")]
        host: Option<Option<String>>,
        /// Helm values.
        values: Option<JsonObject>,
        /// Flux changes nothing of it until it is resumed.
        suspend: Option<bool>,
    },
    /// An entry of an object that there is.
    Entry {
        /// UUID or unique name.
        object: String,
        /// Slug of the application.
        application: String,
        /// The entry.
        value: Value,
    },
}

/// A field that is there, be it null or not.
fn named<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<String>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// The documents of a text in YAML or JSON; empty ones are left out.
///
/// # Errors
/// With [`exit::CONFIG`] and the place: `name` of the file, and the number of the document.
pub(crate) fn read(text: &str, name: &str) -> anyhow::Result<Vec<Wanted>> {
    let config = |error: anyhow::Error| exit::with_code(exit::CONFIG, error);
    let documents: Vec<Value> = serde_saphyr::from_multiple(text)
        .with_context(|| format!("{name} is neither YAML nor JSON"))
        .map_err(config)?;
    let read = |(number, document): (usize, Value)| {
        let wanted = serde_json::from_value(document).with_context(|| format!("{name}: document {number}"));
        wanted.map_err(config)
    };
    (1..).zip(documents).filter(|(_, document)| !document.is_null()).map(read).collect()
}

/// A value that differs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Difference {
    /// Application and place in its entry, such as `EdgeDeployment.values.replicas`.
    pub place: String,
    /// Before; None: there was none.
    pub before: Option<Value>,
    /// After; None: it goes.
    pub after: Option<Value>,
}

/// What becomes of an object.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Change {
    /// `cluster`, `deployment` or `entry`.
    pub kind: &'static str,
    /// As another command names it.
    pub name: String,
    /// Its object.
    pub uuid: Uuid,
    /// `created`, `changed`, `unchanged` or `deleted`.
    pub change: &'static str,
    /// What differs.
    pub differences: Vec<Difference>,
    /// None: nothing is to be written.
    #[serde(skip)]
    pub write: Option<WriteRequest>,
}

/// What ConfigDB has, and who writes when (UTC ms).
struct Planner<'a, A> {
    fleet: &'a Fleet,
    author: A,
    wall: u64,
    /// Clusters by their names: those that there are, and those that documents create.
    clusters: BTreeMap<String, Uuid>,
}

/// Changes in the order of the documents; with `prune`, then the deployments that go: those that clusters of the documents have and no document names.
///
/// # Errors
/// With [`exit::NOT_FOUND`] where something that a document refers to does not exist, with [`exit::USAGE`] where two documents are about the same, or a value breaks a rule.
pub(crate) fn plan(
    fleet: &Fleet,
    wanted: &[Wanted],
    prune: bool,
    wall: u64,
    author: impl Fn() -> Author,
) -> anyhow::Result<Vec<Change>> {
    let (mut clusters, mut ambiguous) = (BTreeMap::new(), BTreeSet::new());
    for (uuid, entry) in fleet.cluster_entries() {
        if clusters.insert(entry.name.clone(), uuid).is_some() {
            ambiguous.insert(entry.name);
        }
    }
    if let Some(name) = wanted.iter().filter_map(Wanted::names_cluster).find(|name| ambiguous.contains(*name)) {
        return Err(usage(anyhow!("{name:?} is the name of several clusters; delete those that were refused")));
    }
    for name in wanted.iter().filter_map(Wanted::cluster) {
        clusters.entry(name.to_owned()).or_insert_with(|| requests::cluster_uuid(fleet.organisation(), name));
    }
    let planner = Planner { fleet, author, wall, clusters };
    let mut changes: Vec<Change> = Vec::new();
    let mut seen = BTreeSet::new();
    for document in wanted {
        let change = planner.change(document)?;
        if !seen.insert((change.kind, change.name.clone())) {
            return Err(usage(anyhow!("two documents are about {} {}", change.kind, change.name)));
        }
        changes.push(change);
    }
    if prune {
        let named: BTreeSet<Uuid> = changes.iter().map(|change| change.uuid).collect();
        let of: Vec<(&str, Uuid)> =
            wanted.iter().filter_map(Wanted::cluster).map(|name| (name, planner.clusters[name])).collect();
        changes.extend(planner.pruned(&of, &named));
    }
    Ok(changes)
}

impl Wanted {
    /// The name of the cluster that it is.
    fn cluster(&self) -> Option<&str> {
        match self {
            Self::Cluster { name, .. } => Some(name),
            _ => None,
        }
    }

    /// The cluster that it is about, as the document has it.
    fn names_cluster(&self) -> Option<&str> {
        match self {
            Self::Cluster { name: cluster, .. } | Self::Deployment { cluster, .. } => Some(cluster),
            Self::Entry { .. } => None,
        }
    }
}

impl<A: Fn() -> Author> Planner<'_, A> {
    fn change(&self, document: &Wanted) -> anyhow::Result<Change> {
        match document {
            Wanted::Cluster { name, namespace, bare, wave, values } => {
                let fields = [
                    ("namespace", namespace.as_ref().map(|namespace| json!(namespace))),
                    ("bare", bare.map(|bare| json!(bare))),
                    ("values", values.as_ref().map(|values| json!(values))),
                ];
                self.cluster(name, fields, *wave)
            }
            Wanted::Deployment { cluster, name, chart, host, values, suspend } => {
                let chart = chart.as_ref().map(|chart| look_up::chart(self.fleet, chart)).transpose()?;
                self.deployment((cluster, name), chart, host.as_ref(), values.as_ref(), *suspend)
            }
            Wanted::Entry { object, application, value } => {
                let uuid = look_up::object(self.fleet, object)?;
                let request = self.put(uuid, [(application.as_str(), value.clone())]);
                Ok(self.compared("entry", format!("{object}/{application}"), request, false))
            }
        }
    }

    fn cluster(&self, name: &str, fields: [(&str, Option<Value>); 3], wave: Option<u8>) -> anyhow::Result<Change> {
        let uuid = self.clusters[name];
        let is_new = self.fleet.config.entry(uuid, EdgeCluster::slug()).is_none();
        let mut request = if is_new {
            let entry =
                EdgeCluster { name: name.to_owned(), namespace: NAMESPACE.to_owned(), ..EdgeCluster::default() };
            requests::put_cluster(self.fleet, &entry, Some(uuid), (self.author)()).map_err(of_request)?
        } else {
            self.put(uuid, [])
        };
        let before = request.entries.get(EdgeCluster::slug()).cloned().flatten();
        let before = before.or_else(|| self.value(uuid, EdgeCluster::slug())).unwrap_or_else(|| json!({}));
        let mut after = before.clone();
        for (field, value) in fields {
            // What is its default in an entry without it is not a difference.
            let is_default = value == Some(json!(false)) && after.get(field).is_none();
            if let (Some(value), Some(object), false) = (value, after.as_object_mut(), is_default) {
                object.insert(field.to_owned(), value);
            }
        }
        request = request.entry(EdgeCluster::slug(), after);
        if let Some(wave) = wave {
            let mut rollout: EdgeClusterRollout = self.fleet.config.document(uuid)?.unwrap_or_default();
            if rollout.wave != wave {
                rollout.wave = wave;
                request = request.document(&rollout)?;
            }
        }
        Ok(self.compared("cluster", name.to_owned(), request, is_new))
    }

    fn deployment(
        &self,
        (cluster, name): (&str, &str),
        chart: Option<Uuid>,
        host: Option<&Option<String>>,
        values: Option<&JsonObject>,
        suspend: Option<bool>,
    ) -> anyhow::Result<Change> {
        let by_uuid = || self.clusters.iter().find(|(_, uuid)| Uuid::try_parse(cluster).ok() == Some(**uuid));
        let found = self.clusters.get_key_value(cluster).or_else(by_uuid);
        let (cluster_name, cluster) = found.ok_or_else(|| not_found("cluster", cluster, self.clusters.keys()))?;
        let title = format!("{cluster_name}/{name}");
        let existing = self.fleet.deployment_entries();
        let existing = existing.filter(|(_, entry)| entry.cluster == *cluster && entry.name == name);
        let Some((uuid, entry)) = existing.into_iter().next() else {
            let chart = chart.map_or_else(|| look_up::chart(self.fleet, CHART), Ok)?;
            let (host, values) = (host.cloned().flatten(), values.cloned());
            let wanted = NewDeployment { cluster: *cluster, name: name.to_owned(), chart, host, values };
            let request = requests::put_deployment(self.fleet, wanted, self.wall, (self.author)()).map_err(of_request);
            let mut request = request.with_context(|| title.clone())?;
            let entry = request.entries.get_mut(EdgeDeployment::slug()).and_then(Option::as_mut);
            if let (Some(true), Some(Value::Object(entry))) = (suspend, entry) {
                entry.insert("suspend".to_owned(), json!(true));
            }
            return Ok(self.compared("deployment", title, request, true));
        };
        let mut after = self.value(uuid, EdgeDeployment::slug()).unwrap_or_default();
        if let Some(object) = after.as_object_mut() {
            if let Some(chart) = chart.filter(|chart| entry.chart_templates() != [*chart]) {
                object.remove("charts");
                object.insert("chart".to_owned(), json!(chart));
            }
            match host {
                Some(Some(host)) if entry.hostname.as_ref() != Some(host) => {
                    check_host(self.fleet, cluster_name, host)?;
                    object.insert("hostname".to_owned(), json!(host));
                }
                Some(None) => drop(object.remove("hostname")),
                Some(Some(_)) | None => {}
            }
            if let Some(values) = values {
                object.insert("values".to_owned(), json!(values));
            }
            match suspend {
                Some(true) => drop(object.insert("suspend".to_owned(), json!(true))),
                Some(false) => drop(object.remove("suspend")),
                None => {}
            }
        }
        let request = self.put(uuid, [(EdgeDeployment::slug(), after)]);
        Ok(self.compared("deployment", title, request, false))
    }

    /// Deployments of these clusters, other than those that are named.
    fn pruned(&self, clusters: &[(&str, Uuid)], named: &BTreeSet<Uuid>) -> Vec<Change> {
        let mut found = Vec::new();
        for (uuid, entry) in self.fleet.deployment_entries() {
            let of = clusters.iter().find(|(_, cluster)| *cluster == entry.cluster);
            let Some((cluster, _)) = of.filter(|_| !named.contains(&uuid)) else { continue };
            let request = requests::delete_deployment(uuid, (self.author)());
            let etag = self.fleet.config.entry(uuid, EdgeDeployment::slug()).map(|entry| entry.etag);
            let write = Some(request.if_match(EdgeDeployment::slug(), etag));
            let name = format!("{cluster}/{}", entry.name);
            found.push(Change { kind: "deployment", name, uuid, change: "deleted", differences: Vec::new(), write });
        }
        found.sort_by(|a, b| a.name.cmp(&b.name));
        found
    }

    fn value(&self, object: Uuid, slug: &str) -> Option<Value> {
        self.fleet.config.entry(object, slug).and_then(|entry| entry.value().ok())
    }

    fn put<const N: usize>(&self, object: Uuid, entries: [(&str, Value); N]) -> WriteRequest {
        let Author { id, writer } = (self.author)();
        let request = WriteRequest::put(id, object).by(writer);
        entries.into_iter().fold(request, |request, (slug, value)| request.entry(slug, value))
    }

    /// The change that a write makes; what stays is not written, and what changes only if it is still what it is compared with.
    fn compared(&self, kind: &'static str, name: String, mut request: WriteRequest, is_new: bool) -> Change {
        let mut differences = Vec::new();
        let entries = std::mem::take(&mut request.entries);
        for (slug, after) in entries {
            let before = self.value(request.object, &slug);
            if before == after {
                continue;
            }
            differences.extend(different(&slug, before.as_ref(), after.as_ref()));
            let etag = self.fleet.config.entry(request.object, &slug).map(|entry| entry.etag);
            request.if_match.insert(slug.clone(), etag);
            request.entries.insert(slug, after);
        }
        let uuid = request.object;
        let is_write = !request.entries.is_empty();
        let change = match (is_write, is_new) {
            (false, _) => "unchanged",
            (true, true) => "created",
            (true, false) => "changed",
        };
        Change { kind, name, uuid, change, differences, write: is_write.then_some(request) }
    }
}

/// Refuses a host that a cluster does not have. Of one that reports no host nothing is known.
fn check_host(fleet: &Fleet, cluster: &str, host: &str) -> anyhow::Result<()> {
    let hosts = fleet.hosts(Some(cluster));
    if hosts.is_empty() || hosts.iter().any(|known| known.hostname == host) {
        return Ok(());
    }
    Err(not_found("host", host, hosts.iter().map(|known| known.hostname.as_str()))
        .context(format!("cluster {cluster}")))
}

/// The values in which two entries differ, each at its place. Lists are compared as a whole.
fn different(place: &str, before: Option<&Value>, after: Option<&Value>) -> Vec<Difference> {
    match (before, after) {
        (before, after) if before == after => Vec::new(),
        // An object without fields differs from none as a whole.
        (before, Some(Value::Object(after))) if before.map_or(!after.is_empty(), Value::is_object) => {
            let none = Map::new();
            let before = before.and_then(Value::as_object).unwrap_or(&none);
            let fields: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
            let below = |field: &String| different(&format!("{place}.{field}"), before.get(field), after.get(field));
            fields.into_iter().flat_map(below).collect()
        }
        (before, after) => vec![Difference { place: place.to_owned(), before: before.cloned(), after: after.cloned() }],
    }
}

#[cfg(test)]
mod tests;
