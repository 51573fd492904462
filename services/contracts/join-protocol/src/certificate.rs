//! Who may issue: certificates from the pinned root to the key that signs challenges and tickets. Ed25519; one fixed form, a few hundred bytes, nothing to negotiate.

use std::fmt;

use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use prost::Message;
use proto::join as wire;
use uuid::Uuid;

use crate::limits::{HASH_BYTES, ISSUER_CERTIFICATE_BYTES_MAX, ISSUER_CERTIFICATES_MAX, SIGNATURE_BYTES, VERSION};
use crate::message::{Fields, WireError, decode, decode_versioned};
use crate::secret::Secret;
use crate::terms::{HostClock, Purpose};
use crate::transcript::{Hash, certificate_signed};

/// An Ed25519 public key.
pub type PublicKey = [u8; HASH_BYTES];
/// An Ed25519 signature.
pub type Signature = [u8; SIGNATURE_BYTES];

/// A private key that signs. Its signatures depend on key and message alone.
pub struct SigningKey(Ed25519KeyPair);

impl SigningKey {
    /// From its seed.
    #[must_use]
    pub fn from_seed(seed: &Secret) -> Option<Self> {
        Ed25519KeyPair::from_seed_unchecked(seed.expose()).ok().map(Self)
    }

    /// Its public key.
    #[must_use]
    pub fn public_key(&self) -> PublicKey {
        let mut key = [0; HASH_BYTES];
        key.copy_from_slice(self.0.public_key().as_ref());
        key
    }

    /// Signs a hash.
    #[must_use]
    pub fn sign(&self, hash: &Hash) -> Signature {
        let mut signature = [0; SIGNATURE_BYTES];
        signature.copy_from_slice(self.0.sign(hash).as_ref());
        signature
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningKey(..)")
    }
}

/// True if `signature` is that of `hash` under `key`.
#[must_use]
pub fn is_signed(key: &PublicKey, hash: &Hash, signature: &Signature) -> bool {
    UnparsedPublicKey::new(&ED25519, key).verify(hash, signature).is_ok()
}

/// What a certificate says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuerCertificate {
    /// The key that is certified.
    pub public_key: PublicKey,
    /// What it may do.
    pub purpose: Purpose,
    /// For which cluster.
    pub cluster: Uuid,
    /// Not before, UTC ms.
    pub not_before_ms: u64,
    /// Not after, UTC ms.
    pub not_after_ms: u64,
    /// Certificates of an epoch below the pinned one are revoked: so keys are revoked for hosts without a clock.
    pub epoch: u32,
}

impl IssuerCertificate {
    const NAME: &'static str = "issuer certificate";

    /// Signs it with the key of the next higher link, or of the root. The result is what travels.
    #[must_use]
    pub fn sign(&self, by: &SigningKey) -> Vec<u8> {
        let body = wire::IssuerCertificateBody {
            version: VERSION,
            public_key: self.public_key.to_vec(),
            purpose: self.purpose.to_wire(),
            cluster: self.cluster.as_bytes().to_vec(),
            not_before_ms: self.not_before_ms,
            not_after_ms: self.not_after_ms,
            epoch: self.epoch,
        };
        let body = body.encode_to_vec();
        let signature = by.sign(&certificate_signed(&body)).to_vec();
        wire::IssuerCertificate { body, signature }.encode_to_vec()
    }

    /// The content of a certificate, without a check of its signature: for an issuer that reads its own.
    ///
    /// # Errors
    /// The [`WireError`] names the field and the rule.
    pub fn read_unverified(bytes: &[u8]) -> Result<Self, WireError> {
        Self::decode(bytes).map(|(certificate, _, _)| certificate)
    }

    /// Reads one and returns its signed hash and signature beside it.
    fn decode(bytes: &[u8]) -> Result<(Self, Hash, Signature), WireError> {
        let fields = Fields(Self::NAME);
        let outer: wire::IssuerCertificate = decode(Self::NAME, bytes, ISSUER_CERTIFICATE_BYTES_MAX)?;
        let signature = fields.array("signature", &outer.signature)?;
        let version = |body: &wire::IssuerCertificateBody| body.version;
        let body: wire::IssuerCertificateBody =
            decode_versioned(Self::NAME, &outer.body, ISSUER_CERTIFICATE_BYTES_MAX, version)?;
        let purpose = Purpose::from_wire(body.purpose).ok_or_else(|| fields.error("purpose", "is not known"))?;
        let certificate = Self {
            public_key: fields.hash("public_key", &body.public_key)?,
            purpose,
            cluster: fields.uuid("cluster", &body.cluster)?,
            not_before_ms: body.not_before_ms,
            not_after_ms: body.not_after_ms,
            epoch: body.epoch,
        };
        Ok((certificate, certificate_signed(&outer.body), signature))
    }
}

/// What a host is provisioned with: whom it believes, and to which cluster it will join.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustAnchor {
    /// Public key of the organisation's root.
    pub root: PublicKey,
    /// The only cluster that this host may join.
    pub cluster: Uuid,
    /// Lowest epoch of certificates that is believed.
    pub epoch_min: u32,
}

/// A chain of certificates is not believed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChainError {
    /// Nothing there.
    #[error("there is no issuer certificate")]
    Empty,
    /// More than a chain may have.
    #[error("there are {0} issuer certificates; at most {ISSUER_CERTIFICATES_MAX} are allowed")]
    TooLong(usize),
    /// One cannot be read.
    #[error(transparent)]
    Malformed(#[from] WireError),
    /// For another cluster: the message comes from another site.
    #[error("the issuer is certified for cluster {found}, not for {wanted}")]
    Cluster {
        /// The cluster of the certificate.
        found: Uuid,
        /// The pinned one.
        wanted: Uuid,
    },
    /// For something else.
    #[error("a certificate is for {found}, but must be for {wanted}")]
    Purpose {
        /// What it is for.
        found: Purpose,
        /// What it must be for.
        wanted: Purpose,
    },
    /// Revoked.
    #[error("a certificate is of epoch {found}; epochs below {epoch_min} are revoked")]
    Epoch {
        /// Epoch of the certificate.
        found: u32,
        /// The pinned lowest one.
        epoch_min: u32,
    },
    /// Too early or too late.
    #[error("a certificate is not valid at this time")]
    Time,
    /// Not signed by the next link, or the last not by the pinned root.
    #[error("the chain of issuer certificates does not lead to the pinned root")]
    Signature,
}

impl TrustAnchor {
    /// Follows the chain from the issuer (first) up to the root. Returns the issuer's key.
    ///
    /// # Errors
    /// The first rule that is broken; signatures are looked at last.
    pub fn check(&self, chain: &[Vec<u8>], purpose: Purpose, clock: HostClock) -> Result<PublicKey, ChainError> {
        if chain.len() > ISSUER_CERTIFICATES_MAX {
            return Err(ChainError::TooLong(chain.len()));
        }
        let links = chain.iter().map(|bytes| IssuerCertificate::decode(bytes)).collect::<Result<Vec<_>, _>>()?;
        let mut wanted = purpose;
        for (certificate, _, _) in &links {
            self.check_link(certificate, wanted, clock)?;
            wanted = Purpose::Authority;
        }
        let signers = links.iter().skip(1).map(|(certificate, _, _)| &certificate.public_key).chain([&self.root]);
        for ((_, signed, signature), signer) in links.iter().zip(signers) {
            if !is_signed(signer, signed, signature) {
                return Err(ChainError::Signature);
            }
        }
        links.first().map(|(issuer, _, _)| issuer.public_key).ok_or(ChainError::Empty)
    }

    fn check_link(&self, link: &IssuerCertificate, purpose: Purpose, clock: HostClock) -> Result<(), ChainError> {
        if link.cluster != self.cluster {
            return Err(ChainError::Cluster { found: link.cluster, wanted: self.cluster });
        }
        if link.purpose != purpose {
            return Err(ChainError::Purpose { found: link.purpose, wanted: purpose });
        }
        if link.epoch < self.epoch_min {
            return Err(ChainError::Epoch { found: link.epoch, epoch_min: self.epoch_min });
        }
        match clock {
            HostClock::Trusted(now) if now < link.not_before_ms || now > link.not_after_ms => Err(ChainError::Time),
            HostClock::Trusted(_) | HostClock::Unset => Ok(()),
        }
    }
}

/// The key of the first certificate, without a check of its signature.
pub(crate) fn leaf_public_key(chain: &[Vec<u8>]) -> Option<PublicKey> {
    IssuerCertificate::decode(chain.first()?).ok().map(|(leaf, _, _)| leaf.public_key)
}

#[cfg(test)]
mod tests;
