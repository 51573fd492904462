//! Secrets of edge clusters, sealed.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A Secret that an edge cluster is to have, by values that only the Sealed Secrets controller of that cluster can open. The cluster manager writes it into the cluster's repository. Closed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SealedSecret {
    /// The cluster.
    pub cluster: Uuid,
    /// Namespace of the Secret.
    pub namespace: String,
    /// Name of the Secret.
    pub name: String,
    /// What its values are bound to.
    #[serde(default, skip_serializing_if = "SealingScope::is_strict")]
    pub scope: SealingScope,
    /// Type of the Secret.
    #[serde(default = "opaque", rename = "type", skip_serializing_if = "is_opaque")]
    pub secret_type: String,
    /// Its keys. A key that is not here is not touched in the repository.
    #[serde(default)]
    pub keys: BTreeMap<String, SealedValue>,
}

/// One key of a Secret. Closed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SealedValue {
    /// The sealed value, base64; None: the key is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// SHA-256 fingerprint of the certificate that it is sealed for, hexadecimal; None: not known.
    #[serde(default, rename = "sealedFor", skip_serializing_if = "Option::is_none")]
    pub sealed_for: Option<String>,
    /// When that was decided, RFC 3339 in UTC with milliseconds, so that the order of texts is that of times. A repository that has a later value keeps it: this one is of a backup.
    pub at: String,
}

/// What sealed values are bound to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SealingScope {
    /// Namespace and name.
    #[default]
    Strict,
    /// Namespace.
    NamespaceWide,
    /// Cluster.
    ClusterWide,
}

impl SealingScope {
    /// It is the default.
    #[must_use]
    pub const fn is_strict(&self) -> bool {
        matches!(self, Self::Strict)
    }

    /// As entries spell it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Strict => "strict",
            Self::NamespaceWide => "namespace-wide",
            Self::ClusterWide => "cluster-wide",
        }
    }
}

impl fmt::Display for SealingScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

fn opaque() -> String {
    "Opaque".to_owned()
}

fn is_opaque(text: &str) -> bool {
    text == "Opaque"
}
