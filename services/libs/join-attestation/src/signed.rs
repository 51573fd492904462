//! The signature of a policy: which keys decide by which rules the hosts of a cluster are admitted.
//!
//! A policy travels by ConfigDB, the cluster manager and the broker, and none of them is believed. What is signed is its canonical form (the entry without its signature, written by the
//! one type that it is read into), the cluster, a serial number and an end. The key is certified for that cluster by the organisation's root.

use configdb_schema::document::{AttestationPolicy, PolicySignature};
use join_protocol::certificate::{ChainError, Signature, SigningKey, TrustAnchor, is_signed};
use join_protocol::terms::{HostClock, Purpose};
use join_protocol::transcript::{Hash, hash};
use uuid::Uuid;

/// How far a serial number may be above the last one. A signer who could raise it without bound could raise it to the last, after which there is no other.
pub const SERIAL_JUMP_MAX: u64 = 1 << 20;

/// What a signature says beside the rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claims {
    /// The only cluster that the policy is for.
    pub cluster: Uuid,
    /// Grows with every policy of the cluster; at least 1.
    pub serial: u64,
    /// UTC ms after which the policy is not taken over any more.
    pub not_after_ms: u64,
}

/// Why a policy is not believed, or not taken over.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// It has no signature.
    #[error("the policy is not signed; sign it with `sparkfleet policy set`")]
    Missing,
    /// A field of the signature is no such thing.
    #[error("signature.{field} {rule}")]
    Malformed {
        /// Name of the field.
        field: &'static str,
        /// The rule that it breaks.
        rule: &'static str,
    },
    /// It is for another cluster.
    #[error("the policy is signed for cluster {found}, not for {wanted}")]
    Cluster {
        /// The cluster of the signature.
        found: Uuid,
        /// The cluster that it was sent to.
        wanted: Uuid,
    },
    /// The key is not one that may sign.
    #[error("the key that signed the policy is not believed: {0}")]
    Signer(#[from] ChainError),
    /// Something else was signed.
    #[error("the signature is not that of this policy")]
    Value,
    /// Too late.
    #[error("the policy ended before it was taken over (signature.notAfterMs); sign it again")]
    Ended,
    /// Older than what was taken over.
    #[error(
        "signature.serial is {found}, and {last} was taken over before; sign it again with a greater one (`--serial`)"
    )]
    Old {
        /// Of the policy.
        found: u64,
        /// The greatest that was taken over.
        last: u64,
    },
    /// Two policies have one number.
    #[error("signature.serial {0} was taken over with another policy; sign it again with a greater one (`--serial`)")]
    Conflict(u64),
    /// Too far above what was taken over.
    #[error(
        "signature.serial is {found}, more than {SERIAL_JUMP_MAX} above {last}; sign it again with a smaller one (`--serial`)"
    )]
    Jump {
        /// Of the policy.
        found: u64,
        /// The greatest that was taken over.
        last: u64,
    },
}

/// What is signed: two policies with the same digest say the same, whatever their texts and certificates are.
#[must_use]
pub fn digest(policy: &AttestationPolicy, claims: &Claims) -> Hash {
    let bare = AttestationPolicy { signature: None, ..policy.clone() };
    // Texts, numbers, lists and maps with texts as keys have a JSON form.
    let canonical = serde_json::to_vec(&bare).unwrap_or_default();
    let (serial, not_after) = (claims.serial.to_be_bytes(), claims.not_after_ms.to_be_bytes());
    hash("sparkfleet attestation policy/1", &[claims.cluster.as_bytes(), &serial, &not_after, &canonical])
}

/// The policy with its signature; one that it has is replaced. `certificates`: the chain of the key, its own first.
#[must_use]
pub fn sign(
    policy: &AttestationPolicy,
    claims: &Claims,
    key: &SigningKey,
    certificates: &[Vec<u8>],
) -> AttestationPolicy {
    let signature = PolicySignature {
        cluster: claims.cluster,
        serial: claims.serial,
        not_after_ms: claims.not_after_ms,
        certificates: certificates.iter().map(hex::encode).collect(),
        value: hex::encode(key.sign(&digest(policy, claims))),
    };
    AttestationPolicy { signature: Some(signature), ..policy.clone() }
}

/// What the signature of a policy says, if an authorised operator signed it. `clock`: when it is taken over; [`HostClock::Unset`] for one that was taken over before.
///
/// # Errors
/// [`SignatureError`]
pub fn verify(policy: &AttestationPolicy, anchor: &TrustAnchor, clock: HostClock) -> Result<Claims, SignatureError> {
    let signature = policy.signature.as_ref().ok_or(SignatureError::Missing)?;
    let malformed = |field, rule| SignatureError::Malformed { field, rule };
    let claims = Claims { cluster: signature.cluster, serial: signature.serial, not_after_ms: signature.not_after_ms };
    if claims.cluster != anchor.cluster {
        return Err(SignatureError::Cluster { found: claims.cluster, wanted: anchor.cluster });
    }
    if claims.serial == 0 {
        return Err(malformed("serial", "must be at least 1"));
    }
    let chain = signature.certificates.iter().map(hex::decode).collect::<Result<Vec<_>, _>>();
    let chain = chain.map_err(|_| malformed("certificates", "must be hexadecimal digits"))?;
    let mut value: Signature = [0; 64];
    hex::decode_to_slice(&signature.value, &mut value)
        .map_err(|_| malformed("value", "must be 128 hexadecimal digits"))?;
    let key = anchor.check(&chain, Purpose::PolicySigner, clock)?;
    if !is_signed(&key, &digest(policy, &claims), &value) {
        return Err(SignatureError::Value);
    }
    match clock {
        HostClock::Trusted(now) if now > claims.not_after_ms => Err(SignatureError::Ended),
        HostClock::Trusted(_) | HostClock::Unset => Ok(claims),
    }
}

/// Whether a policy with this serial number follows one with number `last` (0: there was none).
///
/// # Errors
/// [`SignatureError::Old`] or [`SignatureError::Jump`].
pub const fn follows(found: u64, last: u64) -> Result<(), SignatureError> {
    if found <= last {
        return Err(SignatureError::Old { found, last });
    }
    if found - last > SERIAL_JUMP_MAX {
        return Err(SignatureError::Jump { found, last });
    }
    Ok(())
}
