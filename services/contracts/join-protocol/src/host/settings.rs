//! What a host wants of an issuer, and what it has.

use uuid::Uuid;

use crate::certificate::TrustAnchor;
use crate::message::evidence::EvidenceBody;
use crate::terms::{Address, Kind, Role, Suite, Variant};

/// What a host wants and what it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostSettings {
    /// Where it speaks.
    pub address: Address,
    /// UUID of its state disk.
    pub disk: Uuid,
    /// What it wants.
    pub kind: Kind,
    /// What it wants to be.
    pub role: Role,
    /// Suites that it speaks, the preferred first.
    pub suites: Vec<Suite>,
    /// The form of its keys.
    pub variant: Variant,
    /// Public attestation key in the form of the variant.
    pub attestation_key: Vec<u8>,
    /// Public endorsement key in the form of the variant.
    pub endorsement_key: Vec<u8>,
    /// Certificates of the endorsement key, DER, leaf first.
    pub endorsement_certificates: Vec<Vec<u8>>,
    /// PCR that it locks itself with; a quote has to show it.
    pub lock_pcr: u8,
    /// What it asks for.
    pub body: EvidenceBody,
    /// Whom it believes.
    pub anchor: TrustAnchor,
}
