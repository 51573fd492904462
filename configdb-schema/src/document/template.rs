//! Templates that deployments and clusters are rendered from, and the configuration of git repositories.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::JsonObject;

/// Helm chart template. Closed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HelmChartTemplate {
    /// Path of the chart from the root of its repository.
    pub chart: String,
    /// Values, with placeholders.
    pub values: JsonObject,
    /// First part of release names; needed when `chart` has a `/`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// Git repository that holds the chart; None: the shared one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Uuid>,
}

/// Template of a Kubernetes resource kind. Closed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct K8sTemplate {
    /// A manifest with placeholders.
    pub template: JsonObject,
    /// The kinds that this entry owns when it comes to pruning.
    pub resources: Vec<ResourceKind>,
}

/// A kind of Kubernetes resource.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResourceKind {
    /// Group and version, such as `helm.toolkit.fluxcd.io/v2`.
    #[serde(rename = "apiVersion")]
    pub api_version: String,
    /// Kind, such as `HelmRelease`.
    pub kind: String,
}

/// Files of a cluster's git repository.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FluxTemplate {
    /// `self-link.yaml`: what links the cluster to its repository.
    #[serde(rename = "self-link.yaml")]
    pub self_link: Vec<FluxItem>,
    /// The other files.
    #[serde(flatten)]
    pub files: BTreeMap<String, Vec<FluxItem>>,
}

impl FluxTemplate {
    /// All files with their names, `self-link.yaml` included, in the order of their names.
    #[must_use]
    pub fn all_files(&self) -> BTreeMap<&str, &[FluxItem]> {
        let mut all: BTreeMap<&str, &[FluxItem]> =
            self.files.iter().map(|(n, items)| (n.as_str(), items.as_slice())).collect();
        all.insert("self-link.yaml", &self.self_link);
        all
    }
}

/// One document of a file: a manifest with placeholders, or a placeholder for a whole manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum FluxItem {
    /// A manifest.
    Manifest(JsonObject),
    /// Such as `{{helm}}`.
    Placeholder(String),
}

impl FluxItem {
    /// As JSON, to be expanded.
    #[must_use]
    pub fn to_value(&self) -> Value {
        match self {
            Self::Manifest(manifest) => Value::Object(manifest.clone()),
            Self::Placeholder(text) => Value::String(text.clone()),
        }
    }
}

/// Bootstrap script template. Closed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BootstrapScript {
    /// Files that the wrapper unpacks.
    pub files: BTreeMap<String, String>,
    /// The script itself.
    pub wrapper: String,
}

/// Git repository configuration.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct GitConfig {
    /// Path on the git server.
    pub path: String,
    /// Branches that are copied from elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pull: Option<BTreeMap<String, GitPull>>,
    /// Hook of each branch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hooks: Option<BTreeMap<String, String>>,
    /// Keys that this version does not know.
    #[serde(flatten)]
    pub extra: JsonObject,
}

/// Where a branch is copied from.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct GitPull {
    /// Remote repository.
    pub url: String,
    /// Ref there.
    #[serde(rename = "ref")]
    pub reference: String,
    /// Duration or `never`; None: an hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<String>,
    /// Local branch that it is merged into.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merge: Option<String>,
    /// How to log in there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<GitAuth>,
    /// Keys that this version does not know.
    #[serde(flatten)]
    pub extra: JsonObject,
}

/// How to log in to a remote repository.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct GitAuth {
    /// Name of a secret; never the secret.
    #[serde(rename = "secretRef")]
    pub secret_ref: String,
    /// Keys that this version does not know.
    #[serde(flatten)]
    pub extra: JsonObject,
}
