//! Identities of edge clusters: who may enrol, and what was issued. No secret is in either.

use serde::{Deserialize, Serialize};

/// Who may enrol as a cluster, and which of its identities are revoked: what an operator wants. Closed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EdgeClusterEnrolment {
    /// One-time tokens. Taking one out revokes it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tokens: Vec<EnrolmentToken>,
    /// Identities that were issued under a lower fence are revoked.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub fence: u32,
    /// Serial numbers of certificates that are revoked, hexadecimal in lower case.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub revoked: Vec<String>,
    /// Serial numbers of expired certificates that may be renewed all the same.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approved: Vec<String>,
}

/// A one-time token, by its hash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EnrolmentToken {
    /// SHA-256 of the token's text, hexadecimal in lower case.
    pub hash: String,
    /// When it was made, RFC 3339.
    pub issued: String,
    /// When it ends, RFC 3339.
    pub expires: String,
    /// Who made it.
    pub by: String,
}

/// What the service Identity has done about the identities of a cluster. Closed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EdgeClusterIdentity {
    /// Public key that an enrolling cluster seals its request to, base64url without padding.
    pub key: String,
    /// Certificate of the authority that signs, PEM.
    pub authority: String,
    /// Tokens that were used.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tokens: Vec<UsedToken>,
    /// Certificates that were issued, the oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub certificates: Vec<IssuedCertificate>,
    /// What an operator should know, the oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alerts: Vec<IdentityAlert>,
}

/// A token that was used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UsedToken {
    /// As in [`EnrolmentToken::hash`].
    pub hash: String,
    /// When, RFC 3339.
    pub used: String,
    /// SHA-256 of the public key that used it, hexadecimal in lower case.
    pub key: String,
}

/// A certificate that was issued.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IssuedCertificate {
    /// Serial number, hexadecimal in lower case.
    pub serial: String,
    /// What it speaks for within the cluster's group.
    pub node: String,
    /// What it is for.
    pub kind: CertificateKind,
    /// SHA-256 of the certified public key, hexadecimal in lower case.
    pub key: String,
    /// When, RFC 3339.
    pub issued: String,
    /// When it ends, RFC 3339.
    pub expires: String,
    /// The fence that it was issued under.
    pub fence: u32,
    /// Whether it still counts.
    pub state: CertificateState,
}

/// What a certificate is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CertificateKind {
    /// To be known by the MQTT server.
    Mqtt,
    /// To be known by the git server.
    Git,
}

/// Whether a certificate still counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CertificateState {
    /// It does, until it expires.
    Valid,
    /// It does, until it expires, but another one has followed it.
    Renewed,
    /// It does not.
    Revoked,
}

/// What an operator should know about a cluster's identities.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IdentityAlert {
    /// What kind of thing.
    pub kind: IdentityAlertKind,
    /// When it happened, RFC 3339.
    pub at: String,
    /// For people.
    pub text: String,
}

/// A kind of [`IdentityAlert`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IdentityAlertKind {
    /// A token was used by another than its first user.
    TokenReused,
    /// An expired certificate asks for renewal and waits for approval.
    RenewalWaits,
    /// A renewed certificate was shown again by another than its renewer.
    RenewalReused,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}
