//! The first message: a host wants in.

use prost::Message;
use proto::join as wire;
use uuid::Uuid;

use super::{Fields, WireError, decode_versioned};
use crate::attestation::HostKeys;
use crate::limits::{
    ENDORSEMENT_CERTIFICATE_BYTES_MAX, ENDORSEMENT_CERTIFICATES_MAX, HASH_BYTES, HELLO_BYTES_MAX, OFFERS_MAX,
    PUBLIC_KEY_BYTES_MAX, VARIANT_BYTES_MAX, VERSION,
};
use crate::terms::{Kind, RequestId, Role, Suite, Variant};

/// A hello.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// Id of the attempt.
    pub request: RequestId,
    /// Freshness of the host.
    pub host_nonce: [u8; HASH_BYTES],
    /// What it wants.
    pub kind: Kind,
    /// What it wants to be.
    pub role: Role,
    /// UUID of its state disk.
    pub disk: Uuid,
    /// Suites that it speaks, the preferred first. When read: only those that are known.
    pub suites: Vec<Suite>,
    /// Variants that it can do, the preferred first. When read: only those that are known.
    pub variants: Vec<Variant>,
    /// Public attestation key in the form of the variant.
    pub attestation_key: Vec<u8>,
    /// Public endorsement key in the form of the variant.
    pub endorsement_key: Vec<u8>,
    /// Certificates of the endorsement key, DER, leaf first; none if the key is enrolled.
    pub endorsement_certificates: Vec<Vec<u8>>,
}

impl Hello {
    const NAME: &'static str = "hello";

    /// As on the wire.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let hello = wire::Hello {
            version: VERSION,
            request: self.request.0.to_vec(),
            host_nonce: self.host_nonce.to_vec(),
            kind: self.kind.to_wire(),
            role: self.role.to_wire(),
            disk: self.disk.as_bytes().to_vec(),
            suites: self.suites.iter().map(|suite| suite.to_wire()).collect(),
            variants: self.variants.iter().map(|variant| variant.name().to_owned()).collect(),
            attestation_key: self.attestation_key.clone(),
            endorsement_key: self.endorsement_key.clone(),
            endorsement_certificates: self.endorsement_certificates.clone(),
        };
        hello.encode_to_vec()
    }

    /// Its keys, in the form of a variant.
    #[must_use]
    pub fn keys(&self, variant: Variant) -> HostKeys<'_> {
        HostKeys {
            variant,
            attestation_key: &self.attestation_key,
            endorsement_key: &self.endorsement_key,
            endorsement_certificates: &self.endorsement_certificates,
        }
    }

    /// The request of a hello that may be of another version or break a rule.
    #[must_use]
    pub fn request_of(bytes: &[u8]) -> Option<RequestId> {
        let hello = (bytes.len() <= HELLO_BYTES_MAX).then(|| wire::Hello::decode(bytes).ok()).flatten()?;
        Fields(Self::NAME).request(&hello.request).ok()
    }

    /// From the wire. Suites and variants that are not known are left out; the list may end up empty.
    ///
    /// # Errors
    /// The [`WireError`] names the field and the rule.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let hello: wire::Hello =
            decode_versioned(Self::NAME, bytes, HELLO_BYTES_MAX, |hello: &wire::Hello| hello.version)?;
        let fields = Fields(Self::NAME);
        fields.count("suites", hello.suites.len(), OFFERS_MAX)?;
        fields.count("variants", hello.variants.len(), OFFERS_MAX)?;
        for variant in &hello.variants {
            fields.at_most("variants", variant.as_bytes(), VARIANT_BYTES_MAX)?;
        }
        fields.some("attestation_key", &hello.attestation_key, PUBLIC_KEY_BYTES_MAX)?;
        fields.some("endorsement_key", &hello.endorsement_key, PUBLIC_KEY_BYTES_MAX)?;
        let certificates = &hello.endorsement_certificates;
        fields.count("endorsement_certificates", certificates.len(), ENDORSEMENT_CERTIFICATES_MAX)?;
        for certificate in certificates {
            fields.some("endorsement_certificates", certificate, ENDORSEMENT_CERTIFICATE_BYTES_MAX)?;
        }
        let kind = Kind::from_wire(hello.kind).ok_or_else(|| fields.error("kind", "is none of 1 to 5"))?;
        let role = Role::from_wire(hello.role).ok_or_else(|| fields.error("role", "is neither 1 nor 2"))?;
        Ok(Self {
            request: fields.request(&hello.request)?,
            host_nonce: fields.hash("host_nonce", &hello.host_nonce)?,
            kind,
            role,
            disk: fields.uuid("disk", &hello.disk)?,
            suites: hello.suites.into_iter().filter_map(Suite::from_wire).collect(),
            variants: hello.variants.iter().filter_map(|name| Variant::from_name(name)).collect(),
            attestation_key: hello.attestation_key,
            endorsement_key: hello.endorsement_key,
            endorsement_certificates: hello.endorsement_certificates,
        })
    }
}
