//! What an endorsement key and an attestation key must be, by their public areas.

use crate::hash::Hash;
use crate::public::{Attributes, Curve, Key, Public, Scheme};
use crate::refusal::{Refusal, RefusalCode};

/// Handle of the endorsement hierarchy (`TPM_RH_ENDORSEMENT`): the qualified names of its primary keys begin with it.
const ENDORSEMENT_HIERARCHY: [u8; 4] = 0x4000_000b_u32.to_be_bytes();

fn first_broken(rules: &[(bool, &str)]) -> Result<(), String> {
    rules.iter().find(|(holds, _)| !holds).map_or(Ok(()), |(_, text)| Err((*text).to_owned()))
}

/// An endorsement key never leaves its TPM, only decrypts, and is one that a credential can be encrypted to.
///
/// # Errors
/// `ek-unsuitable`, with the first rule that is broken.
pub fn check_endorsement_key(key: &Public) -> Result<(), Refusal> {
    let has = |attribute| key.attributes.has(attribute);
    let suitable_key = match &key.key {
        Key::Rsa { modulus, exponent } => modulus.len() == 256 && *exponent == 65537,
        Key::Ecc { curve: Curve::P256 | Curve::P384, .. } => true,
    };
    first_broken(&[
        (has(Attributes::FIXED_TPM), "it is not fixedTPM"),
        (has(Attributes::FIXED_PARENT), "it is not fixedParent"),
        (has(Attributes::SENSITIVE_DATA_ORIGIN), "it is not sensitiveDataOrigin"),
        (has(Attributes::RESTRICTED), "it is not restricted"),
        (has(Attributes::DECRYPT), "it does not decrypt"),
        (!has(Attributes::SIGN), "it signs"),
        (key.name_hash != Hash::Sha1, "its name algorithm is SHA-1"),
        (key.symmetric_bits.is_some(), "it protects nothing: symmetric is null"),
        (suitable_key, "it is none of RSA-2048 with exponent 65537, P-256 and P-384"),
    ])
    .map_err(|rule| Refusal::new(RefusalCode::EkUnsuitable, format!("endorsement key ({}): {rule}", key.key.kind())))
}

/// An attestation key never leaves its TPM, only signs, and only what its TPM made: so that what it signs is true.
///
/// # Errors
/// `ak-unsuitable`, with the first rule that is broken.
pub fn check_attestation_key(key: &Public) -> Result<(), Refusal> {
    let has = |attribute| key.attributes.has(attribute);
    let scheme_is_right = match &key.key {
        Key::Rsa { .. } => key.scheme == Some(Scheme::RsaSsa(Hash::Sha256)),
        Key::Ecc { .. } => key.scheme == Some(Scheme::Ecdsa(Hash::Sha256)),
    };
    let suitable_key = match &key.key {
        Key::Rsa { exponent, .. } => *exponent == 65537,
        Key::Ecc { curve, .. } => *curve == Curve::P256,
    };
    first_broken(&[
        (has(Attributes::FIXED_TPM), "it is not fixedTPM"),
        (has(Attributes::FIXED_PARENT), "it is not fixedParent"),
        (has(Attributes::SENSITIVE_DATA_ORIGIN), "it is not sensitiveDataOrigin"),
        (has(Attributes::RESTRICTED), "it is not restricted"),
        (has(Attributes::SIGN), "it does not sign"),
        (!has(Attributes::DECRYPT), "it decrypts"),
        (key.name_hash == Hash::Sha256, "its name algorithm is not SHA-256"),
        (scheme_is_right, "its scheme is not ECDSA or RSASSA with SHA-256"),
        (key.symmetric_bits.is_none(), "it has a symmetric algorithm"),
        (suitable_key, "it is neither RSA with exponent 65537 nor P-256"),
    ])
    .map_err(|rule| Refusal::new(RefusalCode::AkUnsuitable, format!("attestation key ({}): {rule}", key.key.kind())))
}

/// The signer of a quote is the attestation key as a child of the endorsement key, or as a primary key of the endorsement hierarchy. In another hierarchy a TPM obscures its counters.
///
/// # Errors
/// `ak-hierarchy`.
pub fn check_hierarchy(endorsement: &Public, attestation: &Public, qualified_signer: &[u8]) -> Result<(), Refusal> {
    let parent = endorsement.qualified_name(&ENDORSEMENT_HIERARCHY);
    let child = attestation.qualified_name(&parent);
    if qualified_signer == child || is_primary_of_endorsement(attestation, qualified_signer) {
        return Ok(());
    }
    Err(Refusal::new(
        RefusalCode::AkHierarchy,
        "the key that signed is neither below this endorsement key nor a primary key of the endorsement hierarchy",
    ))
}

/// True if that is the qualified name of this key as a primary key of the endorsement hierarchy.
pub(crate) fn is_primary_of_endorsement(key: &Public, qualified_name: &[u8]) -> bool {
    qualified_name == key.qualified_name(&ENDORSEMENT_HIERARCHY)
}
