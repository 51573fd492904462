//! MakeCredential in software: a secret that only the TPM which holds both an endorsement key and an attestation key can give back.
//!
//! The result is a function of its arguments. So every replica of a join service, at any time, makes the same bytes from the same seed (TPM 2.0 Library Specification, part 1,
//! "Credential Protection").

use std::fmt;

use aws_lc_rs::cipher::{AES_128, AES_256, EncryptingKey, EncryptionContext, UnboundCipherKey};
use aws_lc_rs::iv::FixedLength;
use aws_lc_rs::{agreement, hkdf};
use zeroize::Zeroizing;

use crate::hash::Hash;
use crate::kdf::{kdfa, kdfe};
use crate::public::{Curve, Key, Public, padded};
use crate::rsa::oaep_encrypt;
use crate::wire::sized;

/// Label of the protected seed, with the zero that ends it, as the specification wants it.
const IDENTITY: &[u8] = b"IDENTITY\0";

/// A credential, as `TPM2_ActivateCredential` takes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credential {
    /// `TPM2B_ID_OBJECT`: the secret, encrypted and bound to the attestation key's name.
    pub id_object: Vec<u8>,
    /// `TPM2B_ENCRYPTED_SECRET`: the seed, encrypted to the endorsement key.
    pub encrypted_secret: Vec<u8>,
}

impl Credential {
    /// As it travels: both structures, one after the other.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        [self.id_object.as_slice(), &self.encrypted_secret].concat()
    }
}

/// Why a credential cannot be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CredentialError {
    /// The secret is empty or longer than a digest of the endorsement key's name algorithm.
    #[error("secret has {found} bytes, and 1 to {max} are allowed")]
    SecretSize {
        /// Bytes of the secret.
        found: usize,
        /// The most that the endorsement key can carry.
        max: usize,
    },
    /// The endorsement key protects nothing, or is not a key that one can encrypt to.
    #[error("nothing can be encrypted to this endorsement key")]
    Key,
}

/// Random input of a credential: 32 secret bytes, one value a credential.
pub struct Seed(Zeroizing<[u8; 32]>);

impl Seed {
    /// From bytes.
    #[must_use]
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// `size` bytes for one purpose.
    fn expand(&self, purpose: &[u8], size: usize) -> Result<Zeroizing<Vec<u8>>, CredentialError> {
        struct Size(usize);
        impl hkdf::KeyType for Size {
            fn len(&self) -> usize {
                self.0
            }
        }
        let key = hkdf::Prk::new_less_safe(hkdf::HKDF_SHA256, self.0.as_slice());
        let mut bytes = Zeroizing::new(vec![0; size]);
        let info = [purpose];
        let expanded = key.expand(&info, Size(size)).and_then(|okm| okm.fill(&mut bytes));
        expanded.map_err(|_| CredentialError::Key)?;
        Ok(bytes)
    }
}

impl fmt::Debug for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seed(..)")
    }
}

/// Makes the credential that carries `secret` to the TPM of `endorsement`, if that TPM holds the key named `attestation_name`, too.
///
/// # Errors
/// A secret of the wrong size, and an endorsement key that is not an RSA-2048, P-256 or P-384 storage key.
pub fn make_credential(
    endorsement: &Public,
    attestation_name: &[u8],
    secret: &[u8],
    seed: &Seed,
) -> Result<Credential, CredentialError> {
    let hash = endorsement.name_hash;
    if secret.is_empty() || secret.len() > hash.size() {
        return Err(CredentialError::SecretSize { found: secret.len(), max: hash.size() });
    }
    let symmetric_bits = endorsement.symmetric_bits.ok_or(CredentialError::Key)?;
    let (shared, encrypted_secret) = match &endorsement.key {
        Key::Rsa { modulus, exponent } => share_by_rsa(modulus, *exponent, hash, seed)?,
        Key::Ecc { curve, x, .. } => {
            share_by_curve(*curve, x, &endorsement.key.point().unwrap_or_default(), hash, seed)?
        }
    };
    let key = kdfa(hash, &shared, b"STORAGE", attestation_name, &[], u32::from(symmetric_bits));
    let mut identity = Zeroizing::new(sized(secret));
    encrypt_cfb(&key, &mut identity)?;
    let integrity_key = kdfa(hash, &shared, b"INTEGRITY", &[], &[], hash.size() as u32 * 8);
    let integrity = hash.hmac(&integrity_key, &[&identity, attestation_name]);
    let id_object = sized(&[sized(&integrity).as_slice(), &identity].concat());
    Ok(Credential { id_object, encrypted_secret: sized(&encrypted_secret) })
}

type Shared = (Zeroizing<Vec<u8>>, Vec<u8>);

fn share_by_rsa(modulus: &[u8], exponent: u32, hash: Hash, seed: &Seed) -> Result<Shared, CredentialError> {
    let shared = seed.expand(b"credential seed", hash.size())?;
    let padding = seed.expand(b"credential padding", hash.size())?;
    let encrypted = oaep_encrypt(modulus, exponent, hash, IDENTITY, &shared, &padding);
    Ok((shared, encrypted.ok_or(CredentialError::Key)?))
}

fn share_by_curve(curve: Curve, x: &[u8], point: &[u8], hash: Hash, seed: &Seed) -> Result<Shared, CredentialError> {
    let algorithm = match curve {
        Curve::P256 => &agreement::ECDH_P256,
        Curve::P384 => &agreement::ECDH_P384,
    };
    let ephemeral = ephemeral_key(algorithm, curve.size(), seed)?;
    let public = ephemeral.compute_public_key().map_err(|_| CredentialError::Key)?;
    let (own_x, own_y) = public
        .as_ref()
        .get(1..)
        .and_then(|numbers| numbers.split_at_checked(curve.size()))
        .ok_or(CredentialError::Key)?;
    let peer = agreement::UnparsedPublicKey::new(algorithm, point);
    let shared = agreement::agree(&ephemeral, peer, CredentialError::Key, |z| {
        let z = Zeroizing::new(padded(z, curve.size()));
        Ok(kdfe(hash, &z, b"IDENTITY", own_x, x, hash.size() as u32 * 8))
    })?;
    Ok((shared, [sized(own_x), sized(own_y)].concat()))
}

/// The private key of one credential. A candidate that is not a number below the curve's order is passed over; for these curves not even the second is ever needed.
fn ephemeral_key(
    algorithm: &'static agreement::Algorithm,
    size: usize,
    seed: &Seed,
) -> Result<agreement::PrivateKey, CredentialError> {
    (0_u8..16)
        .find_map(|attempt| {
            let candidate = seed.expand(&[b"credential key".as_slice(), &[attempt]].concat(), size).ok()?;
            agreement::PrivateKey::from_private_key(algorithm, &candidate).ok()
        })
        .ok_or(CredentialError::Key)
}

/// AES in CFB mode from a zero block: the key is used once.
fn encrypt_cfb(key: &[u8], bytes: &mut [u8]) -> Result<(), CredentialError> {
    let algorithm = if key.len() == 16 { &AES_128 } else { &AES_256 };
    let key = UnboundCipherKey::new(algorithm, key).and_then(EncryptingKey::cfb128);
    let zero = EncryptionContext::Iv128(FixedLength::from([0; 16]));
    key.and_then(|key| key.less_safe_encrypt(bytes, zero)).map_err(|_| CredentialError::Key)?;
    Ok(())
}
