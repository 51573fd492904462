//! Kubernetes: SparkplugNode, SealedSecret and ConfigMap resources of the own namespace, watched and translated.
//!
//! A watch never ends by itself: errors are told once each time they change, and the watch begins again after a growing pause with a complete list. Nothing is
//! written to Kubernetes. Of ConfigMaps only the metadata are read.

use std::collections::BTreeMap;
use std::fmt::Debug;

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::core::{DeserializeGuard, PartialObjectMeta};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Config as WatchConfig, watcher};
use kube::{Api, Client, CustomResource, CustomResourceExt, KubeSchema, Resource, ResourceExt};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use crate::currency::SealedSecret;
use crate::event::{AGENT_CONFIG_PREFIX, AgentConfig, Event, REVISION_ANNOTATION, Watch};
use crate::spec::NodeResource;

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
pub struct SparkplugNodeSpec {
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

/// Watches all three kinds until the inbox is gone or `watches` is dropped.
pub fn watch(
    client: &Client,
    namespace: &str,
    inbox: mpsc::Sender<Event>,
    health: service_runtime::health::Health,
) -> Watches {
    let mut tasks = tokio::task::JoinSet::new();
    let nodes = Api::<DeserializeGuard<SparkplugNode>>::namespaced(client.clone(), namespace);
    let report = move |error: Option<&watcher::Error>| match error {
        None => health.component("kubernetes", true, "watching SparkplugNode resources"),
        Some(error) => health.component("kubernetes", false, format!("cannot watch SparkplugNode resources: {error}")),
    };
    tasks.spawn(run(
        watcher(nodes, WatchConfig::default()),
        "sparkplugnodes",
        inbox.clone(),
        node,
        Event::Nodes,
        report,
    ));
    let secrets = Api::<DeserializeGuard<SealedSecretResource>>::namespaced(client.clone(), namespace);
    // Sealed Secrets need not be installed: then nobody names one.
    tasks.spawn(run(
        watcher(secrets, WatchConfig::default()),
        "sealedsecrets",
        inbox.clone(),
        secret,
        Event::Secrets,
        |_| {},
    ));
    let configs = Api::<PartialObjectMeta<ConfigMap>>::namespaced(client.clone(), namespace);
    tasks.spawn(run(
        watcher(configs, WatchConfig::default()),
        "configmaps",
        inbox,
        config,
        Event::AgentConfigs,
        |_| {},
    ));
    Watches { _tasks: tasks }
}

/// Running watches; they end when this is dropped.
#[derive(Debug)]
pub struct Watches {
    _tasks: tokio::task::JoinSet<()>,
}

async fn run<K, T, S>(
    stream: S,
    kind: &'static str,
    inbox: mpsc::Sender<Event>,
    translate: impl Fn(K) -> Option<(String, T)>,
    event: impl Fn(Watch<T>) -> Event,
    report: impl Fn(Option<&watcher::Error>),
) where
    S: futures::Stream<Item = Result<watcher::Event<K>, watcher::Error>> + Send + 'static,
    K: ResourceExt + Clone + Send + 'static,
{
    let mut stream = std::pin::pin!(stream.default_backoff());
    let mut listing = BTreeMap::new();
    let mut last_error = String::new();
    while let Some(item) = stream.next().await {
        let news = match item {
            Ok(watcher::Event::Init) => {
                listing.clear();
                None
            }
            Ok(watcher::Event::InitApply(object)) => {
                listing.extend(translate(object));
                None
            }
            Ok(watcher::Event::InitDone) => {
                last_error.clear();
                report(None);
                Some(Watch::Listed(std::mem::take(&mut listing)))
            }
            Ok(watcher::Event::Apply(object)) => translate(object).map(|(name, value)| Watch::Applied(name, value)),
            Ok(watcher::Event::Delete(object)) => Some(Watch::Deleted(object.name_any())),
            Err(error) => {
                let text = error.to_string();
                if text != last_error {
                    tracing::warn!(kind, error = %chain(&error), "watch of a kind of resource failed, trying again");
                    last_error = text;
                }
                report(Some(&error));
                None
            }
        };
        let Some(news) = news else { continue };
        if inbox.send(event(news)).await.is_err() {
            return;
        }
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
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

fn secret(DeserializeGuard(object): DeserializeGuard<SealedSecretResource>) -> Option<(String, SealedSecret)> {
    let object = object
        .inspect_err(|invalid| {
            tracing::warn!(name = invalid.metadata.name, error = invalid.error, "SealedSecret is not readable")
        })
        .ok()?;
    let status = object.status.clone().unwrap_or_default();
    let secret = SealedSecret {
        uid: object.uid()?,
        generation: object.meta().generation.unwrap_or_default(),
        observed_generation: status.observed_generation,
        is_synced: status.conditions.iter().any(|condition| condition.kind == "Synced" && condition.status == "True"),
    };
    Some((object.name_any(), secret))
}

fn config(object: PartialObjectMeta<ConfigMap>) -> Option<(String, AgentConfig)> {
    let name = object.name_any();
    let revision = object.annotations().get(REVISION_ANNOTATION).cloned();
    name.starts_with(AGENT_CONFIG_PREFIX).then_some((name, AgentConfig { revision }))
}
