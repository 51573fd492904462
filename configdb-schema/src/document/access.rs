//! Who may use the HTTP API. No secret is in it.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A token of a person or a program for the HTTP API, by its hash. Deleting the entry revokes the token. Closed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApiToken {
    /// Its name, unique in the organisation; the audit record names it.
    pub name: String,
    /// SHA-256 of the token's text, hexadecimal in lower case.
    pub hash: String,
    /// What its holder may do.
    pub scope: TokenScope,
    /// The clusters that it is for; None: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clusters: Option<Vec<Uuid>>,
    /// When it was made, RFC 3339.
    pub issued: String,
    /// When it ends, RFC 3339.
    pub expires: String,
    /// Who made it.
    pub by: String,
}

/// What the holder of a token may do; each may do what the one before it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TokenScope {
    /// Look.
    Viewer,
    /// Change what runs, such as sealed secrets.
    Operator,
    /// Let others in.
    Administrator,
}

impl TokenScope {
    /// As it is written.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Administrator => "administrator",
        }
    }
}
