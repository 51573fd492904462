//! Edge clusters: what is wanted, how far its set-up is, what it reports.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{JsonObject, is_false};

/// Edge cluster configuration. Closed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EdgeCluster {
    /// Name of the cluster; a [`crate::ClusterName`] makes its group.
    pub name: String,
    /// Kubernetes namespace of the cluster's own services and deployments.
    pub namespace: String,
    /// Chart template of the cluster's own services; None: the cluster manager's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chart: Option<Uuid>,
    /// The site manages Flux itself: the bootstrap script installs none.
    #[serde(default, skip_serializing_if = "is_false")]
    pub bare: bool,
    /// Pod Security Standard that the namespace enforces.
    #[serde(default, skip_serializing_if = "PodSecurity::is_default", rename = "podSecurity")]
    pub pod_security: PodSecurity,
    /// Values that go over those of the chart template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub values: Option<JsonObject>,
}

/// An operator's decision that a cluster follows this store, although it followed another one or a later state of it. Closed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EdgeClusterRecovery {
    /// The store that the decision was made for; in another one the entry means nothing.
    pub store: Uuid,
    /// Part of every desired state of the cluster; at least 1.
    pub epoch: u64,
    /// What was decided.
    pub decision: RecoveryDecision,
    /// Digest of the index that the edge had accepted when it was compared, 64 hexadecimal digits in lower case. An edge that has accepted another one since holds. None: it had accepted none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted: Option<String>,
}

/// What becomes of what runs at the edge and the store does not list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RecoveryDecision {
    /// It was written back before.
    Adopt,
    /// It is deleted.
    Discard,
}

/// A Pod Security Standard of Kubernetes: what pods may ask of their host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PodSecurity {
    /// Everything: directories and devices of the host, its network, all its rights. A user who may write a release controls the host.
    Privileged,
    /// Nothing by which a pod gets at its host.
    #[default]
    Baseline,
    /// Nothing but what a hardened pod needs.
    Restricted,
}

impl PodSecurity {
    /// As the label of a namespace says it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Privileged => "privileged",
            Self::Baseline => "baseline",
            Self::Restricted => "restricted",
        }
    }

    const fn is_default(&self) -> bool {
        matches!(self, Self::Baseline)
    }
}

/// The wave of clusters that name none: the last one.
pub const WAVE_MAX: u8 = 9;

/// When a changed chart template reaches a cluster, and which versions of chart repositories it stays at. Closed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EdgeClusterRollout {
    /// From 1 to [`WAVE_MAX`]. A change goes to a wave when every earlier one has settled.
    #[serde(default = "last_wave", skip_serializing_if = "is_last_wave")]
    pub wave: u8,
    /// By object of a git repository: where Flux stays in it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pins: BTreeMap<Uuid, GitRef>,
}

impl Default for EdgeClusterRollout {
    fn default() -> Self {
        Self { wave: WAVE_MAX, pins: BTreeMap::new() }
    }
}

const fn last_wave() -> u8 {
    WAVE_MAX
}

fn is_last_wave(wave: &u8) -> bool {
    *wave == WAVE_MAX
}

/// A place in a git repository, as the field `ref` of Flux' GitRepository has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GitRef {
    /// Hash of a commit, hexadecimal in lower case.
    Commit(String),
    /// A tag.
    Tag(String),
    /// The newest tag in a range of semantic versions.
    Semver(String),
    /// The newest commit of a branch.
    Branch(String),
}

/// How far the cluster manager is with a cluster. Private to the cluster manager; free for more keys.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct EdgeClusterSetup {
    /// The configuration that the set-up works with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<EdgeCluster>,
    /// Account of Flux.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flux: Option<AccountStep>,
    /// Account of the Kerberos keys operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub krbkeys: Option<AccountStep>,
    /// YAML that links a cluster's Flux to its repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub self_link: Option<String>,
    /// The set-up is complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<bool>,
    /// Version of Flux that the repository was written for.
    #[serde(default, rename = "fluxVersion", skip_serializing_if = "Option::is_none")]
    pub flux_version: Option<String>,
    /// Why the set-up does not go on, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Other recorded steps.
    #[serde(flatten)]
    pub extra: JsonObject,
}

/// Key of [`EdgeClusterSetup::extra`]: the tear-down has begun.
const DELETING: &str = "deleting";

impl EdgeClusterSetup {
    /// Whether the tear-down has begun. Nothing but its end ends it.
    #[must_use]
    pub fn is_deleting(&self) -> bool {
        self.extra.get(DELETING).and_then(serde_json::Value::as_bool) == Some(true)
    }

    /// The tear-down has begun.
    pub fn mark_deleting(&mut self) {
        self.extra.insert(DELETING.to_owned(), serde_json::Value::Bool(true));
    }
}

/// An account made for a cluster, in the present form or as the bare UUID of old stores.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum AccountStep {
    /// Only the UUID: written by an old cluster manager.
    Legacy(Uuid),
    /// The present form.
    Account {
        /// UUID of the account.
        uuid: Uuid,
        /// Everything about it is done.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        done: Option<bool>,
    },
}

impl AccountStep {
    /// UUID of the account.
    #[must_use]
    pub const fn uuid(&self) -> Uuid {
        match *self {
            Self::Legacy(uuid) | Self::Account { uuid, .. } => uuid,
        }
    }

    /// Whether everything about it is done; never for the legacy form.
    #[must_use]
    pub const fn is_done(&self) -> bool {
        matches!(self, Self::Account { done: Some(true), .. })
    }
}

/// What an edge cluster reports.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct EdgeClusterStatus {
    /// Its hosts; None: not reported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hosts: Option<Vec<Host>>,
    /// Certificate that secrets for this cluster are sealed with, PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubeseal_cert: Option<String>,
    /// Keys that this version does not know.
    #[serde(flatten)]
    pub extra: JsonObject,
}

/// A host of an edge cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Host {
    /// Its name in Kubernetes.
    pub hostname: String,
    /// Architecture, as Kubernetes names it.
    pub arch: String,
    /// Version of its kubelet.
    pub k8s_version: String,
    /// Whether the control plane runs on it.
    pub control_plane: bool,
    /// Name and version of its operating system.
    pub os_version: String,
    /// Kubernetes' Ready condition.
    pub ready: bool,
    /// What it is reserved for, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub specialised: Option<String>,
    /// Keys that this version does not know.
    #[serde(flatten)]
    pub extra: JsonObject,
}
