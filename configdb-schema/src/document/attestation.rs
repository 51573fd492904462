//! The policy by which a cluster's join service judges the TPM evidence of a host.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::is_false;

/// Attestation policy of a cluster. Closed. A policy without rules admits no host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct AttestationPolicy {
    /// The forms of evidence that are accepted, the preferred first.
    #[serde(default = "only_tpm2", skip_serializing_if = "is_only_tpm2")]
    pub variants: Vec<EvidenceVariant>,
    /// The bank of PCRs that is quoted.
    pub bank: PcrBank,
    /// What PCRs are to hold, by their index in decimal. May be empty beside `boot`.
    pub pcrs: BTreeMap<String, PcrRule>,
    /// What firmware and boot loader may have loaded, by the events of the host's event log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot: Option<BootRules>,
    /// The PCR that a host extends when it takes its ticket.
    pub lock: PcrLock,
    /// Members may open their disk by their TPM when no member answers. None: they may not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_unlock: Option<LocalUnlock>,
    /// Which TPMs are trusted.
    pub endorsement: EndorsementRules,
    /// Who vouches for all that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<PolicySignature>,
}

/// The signature over the rest of a policy, the cluster that it is for, its serial number and its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct PolicySignature {
    /// The only cluster that the policy is for.
    pub cluster: Uuid,
    /// Grows with every policy of the cluster; at least 1.
    pub serial: u64,
    /// UTC ms after which the policy is not taken over any more. One that was taken over before stays in force.
    pub not_after_ms: u64,
    /// Certificates of the signing key, hexadecimal: its own first, then those that lead to the organisation's root.
    pub certificates: Vec<String>,
    /// Ed25519 signature, 128 hexadecimal digits.
    pub value: String,
}

/// A form of evidence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EvidenceVariant {
    /// Of a TPM 2.0.
    Tpm2,
    /// Of a software stand-in: proves nothing about a machine. For simulated hosts and tests.
    Simulated,
}

fn only_tpm2() -> Vec<EvidenceVariant> {
    vec![EvidenceVariant::Tpm2]
}

fn is_only_tpm2(variants: &[EvidenceVariant]) -> bool {
    variants == [EvidenceVariant::Tpm2]
}

/// A bank of PCRs, by its hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PcrBank {
    /// SHA-256.
    Sha256,
    /// SHA-384.
    Sha384,
}

/// What one PCR is to hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct PcrRule {
    /// The allowed values, hexadecimal, as long as a digest of the bank. One is enough. None: the PCR is only observed, which takes `warn_only`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub expected: Vec<String>,
    /// A different value is reported and not refused.
    #[serde(default, skip_serializing_if = "is_false")]
    pub warn_only: bool,
}

/// What firmware and boot loader may have loaded. Digests are hexadecimal and of the bank.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct BootRules {
    /// Secure Boot must be on.
    #[serde(default, skip_serializing_if = "is_false")]
    pub secure_boot: bool,
    /// SHA-256 of the certificates (DER) by which Secure Boot may admit what it loads. Of what is not a certificate: the digest of the event. Empty: any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signers: Vec<String>,
    /// Authenticode digests of the PE images that may be loaded. Empty: any that a signer vouches for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<String>,
    /// Digests of the kernel's command line in UTF-16LE with its NUL. Empty: PCR 9 is not judged by events.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command_lines: Vec<String>,
    /// Digests of the initrds that the kernel may take.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub initrds: Vec<String>,
    /// Digests of what is measured into PCR 2: drivers that devices bring.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drivers: Vec<String>,
    /// Which of the listed digests belong together, so that members may open their disk by their TPM with another release than their last one. Judges nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub releases: Vec<BootRelease>,
}

/// What one unified kernel image measures. Every digest is in the list of its kind, too.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct BootRelease {
    /// That of the image, and of what it loads, in this order.
    pub images: Vec<String>,
    /// Of the kernel's command line, in each form that a stub may make of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command_lines: Vec<String>,
    /// Of its initrds, in the order in which the kernel measures them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub initrds: Vec<String>,
}

/// The lock PCR.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct PcrLock {
    /// Its index, 0 to 15: a PCR that only a reset of the machine clears.
    pub pcr: u8,
    /// Its value before a host has joined, hexadecimal; None: zeros.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// Its value once a host has joined, hexadecimal; None: `before`, extended with the cluster's id as an event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

/// A second key for a member's disk, which its TPM gives out without a request from another host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct LocalUnlock {
    /// PCRs, 0 to 15, that must be as they were when the host was given its last ticket, beside those that the policy judges.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pcrs: Vec<u8>,
}

/// Which TPMs are trusted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct EndorsementRules {
    /// What has to vouch for an endorsement key.
    pub require: EndorsementProof,
    /// Certificates of manufacturers' authorities, PEM; one text may hold several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub manufacturers: Vec<String>,
    /// Certificates of authorities of makers of machines, PEM. Their certificate of an initial attestation key (IAK) counts as that of a manufacturer for a host that is enrolled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub device_manufacturers: Vec<String>,
    /// The hosts that are known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub enrolled: Vec<EnrolledHost>,
    /// Hashes of endorsement keys (as in [`EnrolledHost::ek`]) that are refused whatever else holds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub revoked: Vec<String>,
}

/// What has to vouch for an endorsement key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EndorsementProof {
    /// A manufacturer's certificate.
    Certificate,
    /// The list of enrolled hosts.
    Enrolment,
    /// Both.
    Both,
    /// One of them.
    Either,
}

/// A host that is known by its endorsement key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct EnrolledHost {
    /// SHA-256 of the endorsement key's DER SubjectPublicKeyInfo, 64 hexadecimal digits. Of a simulated host: the id that the join protocol gives its key.
    pub ek: String,
    /// The name that it has to join with; None: that of its first join.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// UUID of the state disk that it has to join with; None: that of its first join.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<Uuid>,
    /// SHA-256 of the DER SubjectPublicKeyInfo of the initial attestation key (IAK) that has to vouch for it; None: any or none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iak: Option<String>,
    /// It may join the control plane.
    #[serde(default, skip_serializing_if = "is_false")]
    pub control_plane: bool,
}
