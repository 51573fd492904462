//! Kubernetes: SparkplugNode, SealedSecret and ConfigMap resources of the own namespace, watched and translated.
//!
//! Nothing is written to Kubernetes. Of ConfigMaps only the metadata are read.

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::core::{DeserializeGuard, PartialObjectMeta};
use kube::runtime::watcher::Config as WatchConfig;
use kube::{Api, Client, CustomResource, CustomResourceExt, KubeSchema, Resource, ResourceExt};
use kubernetes_client::watch::{WatchEvent, Watches};
use serde::{Deserialize, Serialize};
use service_runtime::health::Health;
use tokio::sync::mpsc;

use crate::config_freshness::SealedSecret;
use crate::event::{AGENT_CONFIG_PREFIX, AgentConfig, Event, REVISION_ANNOTATION, Watch};
use crate::spec::NodeResource;

/// Health component: the watch of SparkplugNode resources.
const KUBERNETES: &str = "kubernetes";

/// An edge node that the edge monitor of its cluster watches.
#[expect(clippy::duplicated_attributes, reason = "two columns of one type")]
#[derive(Debug, Clone, PartialEq, Eq, Default, CustomResource, KubeSchema, Serialize, Deserialize)]
#[kube(
    group = "factoryplus.app.amrc.co.uk",
    version = "v1",
    kind = "SparkplugNode",
    plural = "sparkplugnodes",
    shortname = "spnode",
    namespaced,
    doc = "An edge node that the edge monitor of its cluster watches.",
    printcolumn(json_path = ".spec.uuid", name = "UUID", type_ = "string"),
    printcolumn(json_path = ".spec.address", name = "Address", type_ = "string"),
    printcolumn(json_path = ".spec.edgeAgent", name = "Agent", type_ = "boolean")
)]
#[x_kube(validation = Rule::new("has(self.uuid) != has(self.address)").message("set exactly one of uuid and address"))]
#[x_kube(validation = Rule::new("!(has(self.edgeAgent) && self.edgeAgent) || has(self.uuid)").message("edgeAgent needs uuid"))]
#[x_kube(validation = Rule::new("!has(self.secrets) || (has(self.edgeAgent) && self.edgeAgent)").message("secrets need edgeAgent"))]
#[serde(rename_all = "camelCase")]
pub(crate) struct SparkplugNodeSpec {
    /// Instance_UUID of the node; it is found wherever it is born in the cluster's group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"))]
    pub uuid: Option<String>,
    /// Sparkplug address of the node, `group/edge node`; the group is the cluster's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[^/+#]+/[^/+#]+$"))]
    pub address: Option<String>,
    /// It is an edge agent: it reports the revision of its configuration and reloads when asked. Needs uuid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edge_agent: Option<bool>,
    /// How long it may be silent before it is asked for its birth, such as 90s or 3m; three times that is an alert. Default: the monitor's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<String>,
    /// Names of the SealedSecrets that the edge agent reads; it is asked to reload when one changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secrets: Option<Vec<String>>,
}

/// A SealedSecret of Bitnami's controller, as far as it matters here.
#[derive(Debug, Clone, Deserialize, Serialize, CustomResource)]
#[kube(
    group = "bitnami.com",
    version = "v1alpha1",
    kind = "SealedSecretResource",
    plural = "sealedsecrets",
    namespaced
)]
#[kube(schema = "disabled", status = "SealedSecretStatus")]
struct SealedSecretSpec {}

#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct SealedSecretStatus {
    #[serde(default)]
    observed_generation: Option<i64>,
    #[serde(default)]
    conditions: Vec<SealedSecretCondition>,
}

#[derive(Debug, Clone, Deserialize, Serialize)]
struct SealedSecretCondition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
}

/// The definition of SparkplugNode, as it is installed in clusters.
#[must_use]
pub fn custom_resource_definition() -> CustomResourceDefinition {
    SparkplugNode::crd()
}

/// Watches all three kinds until the inbox is gone or the result is dropped.
pub fn watch(client: &Client, namespace: &str, inbox: &mpsc::Sender<Event>, health: Health) -> Watches {
    let mut watches = Watches::default();
    let all = WatchConfig::default;
    let nodes = Api::<DeserializeGuard<SparkplugNode>>::namespaced(client.clone(), namespace);
    let node_event = move |event: WatchEvent<(String, NodeResource)>| {
        report(&health, &event);
        watch_of(event).map(Event::Nodes)
    };
    watches.follow(nodes, all(), node, inbox.clone(), node_event);
    // Sealed Secrets need not be installed: then no one names one.
    let secrets = Api::<DeserializeGuard<SealedSecretResource>>::namespaced(client.clone(), namespace);
    watches.follow(secrets, all(), secret, inbox.clone(), |event| secret_watch_of(event).map(Event::Secrets));
    let configs = Api::<PartialObjectMeta<ConfigMap>>::namespaced(client.clone(), namespace);
    watches.follow(configs, all(), config, inbox.clone(), |event| watch_of(event).map(Event::AgentConfigs));
    watches
}

fn report(health: &Health, event: &WatchEvent<(String, NodeResource)>) {
    match event {
        WatchEvent::NotInstalled => {
            health.component(KUBERNETES, false, "the cluster does not know SparkplugNode resources")
        }
        WatchEvent::Interrupted(error) => {
            health.component(KUBERNETES, false, format!("cannot watch SparkplugNode resources: {error}"));
        }
        WatchEvent::Listed(_) | WatchEvent::Changed(_) | WatchEvent::Gone(_) => {
            health.component(KUBERNETES, true, "watching SparkplugNode resources");
        }
    }
}

/// The change that a watch reports. None: it reports none.
fn watch_of<T>(event: WatchEvent<(String, T)>) -> Option<Watch<T>> {
    match event {
        WatchEvent::Listed(all) => Some(Watch::Listed(all.into_iter().collect())),
        WatchEvent::Changed((name, value)) => Some(Watch::Applied(name, value)),
        WatchEvent::Gone((name, _)) => Some(Watch::Deleted(name)),
        WatchEvent::NotInstalled | WatchEvent::Interrupted(_) => None,
    }
}

/// As [`watch_of`]. One that cannot be read counts as it was, until it is gone.
fn secret_watch_of(event: WatchEvent<(String, Option<SealedSecret>)>) -> Option<Watch<SealedSecret>> {
    match event {
        WatchEvent::Listed(all) => {
            Some(Watch::Listed(all.into_iter().filter_map(|(name, secret)| Some((name, secret?))).collect()))
        }
        WatchEvent::Changed((name, secret)) => Some(Watch::Applied(name, secret?)),
        WatchEvent::Gone((name, _)) => Some(Watch::Deleted(name)),
        WatchEvent::NotInstalled | WatchEvent::Interrupted(_) => None,
    }
}

fn node(DeserializeGuard(object): DeserializeGuard<SparkplugNode>) -> Option<(String, NodeResource)> {
    match object {
        Ok(object) => {
            let SparkplugNodeSpec { uuid, address, edge_agent, interval, secrets } = object.spec.clone();
            let resource = NodeResource {
                uuid,
                address,
                edge_agent: edge_agent.unwrap_or(false),
                interval,
                secrets: secrets.unwrap_or_default(),
                unreadable: None,
            };
            Some((object.name_any(), resource))
        }
        Err(invalid) => {
            let name = invalid.metadata.name.clone()?;
            Some((name, NodeResource { unreadable: Some(invalid.error), ..NodeResource::default() }))
        }
    }
}

fn secret(DeserializeGuard(object): DeserializeGuard<SealedSecretResource>) -> Option<(String, Option<SealedSecret>)> {
    let object = match object {
        Ok(object) => object,
        Err(invalid) => {
            let name = invalid.metadata.name?;
            tracing::warn!(name, error = invalid.error, "SealedSecret is not readable");
            return Some((name, None));
        }
    };
    let status = object.status.clone().unwrap_or_default();
    let secret = SealedSecret {
        uid: object.uid()?,
        generation: object.meta().generation.unwrap_or_default(),
        observed_generation: status.observed_generation,
        is_synced: status.conditions.iter().any(|condition| condition.kind == "Synced" && condition.status == "True"),
    };
    Some((object.name_any(), Some(secret)))
}

fn config(object: PartialObjectMeta<ConfigMap>) -> Option<(String, AgentConfig)> {
    let name = object.name_any();
    let revision = object.annotations().get(REVISION_ANNOTATION).cloned();
    name.starts_with(AGENT_CONFIG_PREFIX).then_some((name, AgentConfig { revision }))
}
