//! The manifests of a deployment, rendered from what ConfigDB and the cluster manager publish, and compared by their digest with what the edge has applied.
//!
//! They are the same by construction as long as this program and the cluster manager are of one version. What may differ is the name in Kubernetes, where two names of
//! a cluster are the same in lower case: then the digests say so.

use std::collections::BTreeMap;

use configdb_schema::Document;
use configdb_schema::document::{
    AgentConfig, EdgeClusterRollout, EdgeDeployment, GitConfig, HelmChartTemplate, K8sTemplate,
};
use edge_sync_contract::{DeploymentDevice, Digest};
use manifests::catalog::Catalog;
use manifests::git_address::GitAddress;
use manifests::names::{Claim, LABEL_CHARACTERS_MAX, unique};
use manifests::render::{self, Input, Rendered, Settings};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::Fleet;
use crate::deltas::Table;

/// Key of the row that says what the manifests are compared with. It comes before all others.
pub const SUMMARY: &str = "000";

/// Renders a deployment with this entry; or says, for people, why that cannot be done, or not here.
fn manifests(fleet: &Fleet, deployment: Uuid, entry: &EdgeDeployment) -> Result<Rendered, String> {
    let cluster_name = fleet.manager.cluster(entry.cluster).map(|cluster| &*cluster.name);
    let cluster_name = cluster_name.ok_or("the cluster manager does not have its cluster")?;
    let values = fleet.manager.deployments_values().and_then(|json| serde_json::from_str(json).ok());
    let base_values = values.ok_or("the cluster manager does not say with which values deployments begin")?;
    let own = fleet.manager.git_url().ok_or("it is not known yet where clusters reach git")?.to_owned();
    let git = GitAddress { own, external: fleet.manager.git_external_url().map(str::to_owned) };
    // What is too large for a message is refused by the cluster manager, and shown nevertheless.
    let settings = Settings { git, base_values, manifests_bytes_max: usize::MAX };
    let names = names_on(fleet, entry.cluster);
    let k8s_name = names.get(&entry.name).ok_or("its name cannot be read")?;
    let rollout: Option<EdgeClusterRollout> = document(fleet, entry.cluster)?;
    let pins = rollout.unwrap_or_default().pins;
    let agent_config = fleet.config.entry(deployment, AgentConfig::slug());
    let agent_config = agent_config.map(|entry| (&*entry.json, entry.etag));
    let input = Input { uuid: deployment, deployment: entry, k8s_name, agent_config, cluster_name, pins: &pins };
    render::deployment(input, &catalog(fleet, entry), &settings).map_err(|error| error.to_string())
}

/// Digest of the manifests that the edge has applied; None: it reports none.
fn applied(fleet: &Fleet, deployment: Uuid, entry: &EdgeDeployment) -> Option<Digest> {
    let sync = fleet.sync(&fleet.manager.cluster(entry.cluster)?.name)?;
    sync.devices().deployments.get(&deployment)?.digest
}

/// Table `manifests:UUID` of a deployment: a row with both digests, or with why it cannot be rendered, then the manifests in the order in which they are applied.
/// Nothing of a manifest is cut, because people copy it.
#[must_use]
pub fn table(fleet: &Fleet, deployment: Uuid) -> Table {
    let entry = document(fleet, deployment);
    let entry = entry.and_then(|entry| entry.ok_or_else(|| "ConfigDB does not have this deployment".to_owned()));
    let applied = entry.as_ref().ok().and_then(|entry| applied(fleet, deployment, entry));
    let applied = applied.map(|digest| digest.to_string());
    let rendered = entry.and_then(|entry| manifests(fleet, deployment, &entry));
    let (digest, reason) = match &rendered {
        Ok(rendered) => (Some(rendered.digest.to_string()), None),
        Err(reason) => (None, Some(reason)),
    };
    let summary = json!({ "key": SUMMARY, "digest": digest, "applied": applied, "reason": reason });
    let manifests = rendered.map(|rendered| rendered.manifests).unwrap_or_default();
    let rows = (1..).zip(manifests).map(|(place, manifest): (usize, Value)| {
        let text = |pointer: &str| manifest.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let key = format!("{place:03}");
        let row =
            json!({ "key": key, "kind": text("/kind"), "name": text("/metadata/name"), "json": manifest.to_string() });
        (key, row)
    });
    [(SUMMARY.to_owned(), summary)].into_iter().chain(rows).collect()
}

fn document<T: Document>(fleet: &Fleet, object: Uuid) -> Result<Option<T>, String> {
    let read = fleet.config.document(object);
    read.map_err(|error| format!("its {} entry cannot be read: {error}", T::slug()))
}

/// The names in Kubernetes of the deployments of a cluster, by their own names.
fn names_on(fleet: &Fleet, cluster: Uuid) -> BTreeMap<String, String> {
    let sync = fleet.manager.cluster(cluster).and_then(|cluster| fleet.sync(&cluster.name));
    let reported = |uuid: Uuid| sync.and_then(|sync| sync.devices().deployments.get(&uuid));
    let on_cluster = fleet.deployment_entries().filter(|(_, entry)| entry.cluster == cluster);
    let mut order: Vec<Claim> = on_cluster
        .map(|(uuid, entry)| {
            let device = reported(uuid);
            Claim::new(uuid, &entry, device.is_some_and(DeploymentDevice::runs), device.is_some())
        })
        .collect();
    order.sort();
    let names = unique(order.iter().map(|claim| claim.name.as_str()), LABEL_CHARACTERS_MAX);
    names.into_iter().map(|(name, k8s_name)| (name.to_owned(), k8s_name)).collect()
}

/// The templates and repositories that a deployment is rendered from.
fn catalog(fleet: &Fleet, deployment: &EdgeDeployment) -> Catalog {
    let mut catalog = Catalog::default();
    let mut take = |object: Uuid, slug: &str| {
        let entry = fleet.config.entry(object, slug);
        catalog.set(object, slug, entry.map(|entry| &*entry.json));
    };
    for kind in manifests::catalog::KIND_OBJECTS {
        take(kind, K8sTemplate::slug());
    }
    let mut sources: Vec<Uuid> = deployment.source.into_iter().collect();
    for chart in deployment.chart_templates() {
        take(*chart, HelmChartTemplate::slug());
        let template: Option<HelmChartTemplate> = document(fleet, *chart).ok().flatten();
        sources.extend(template.and_then(|template| template.source));
    }
    for source in sources {
        take(source, GitConfig::slug());
    }
    catalog
}

#[cfg(test)]
mod tests;
