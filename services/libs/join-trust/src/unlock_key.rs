//! The key that signs values of PCRs for one second key of a disk ([`join_tickets::unlock`]).

use std::fmt;

use aws_lc_rs::agreement::{self, PrivateKey};
use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use join_tickets::keys::Secret;
use join_tickets::unlock::{Hash, PublicKey, Selected, Signature, to_sign};

/// Begins an uncompressed point.
const UNCOMPRESSED: u8 = 4;

/// The key cannot be made, or does not sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the key that signs for second keys of disks cannot be made or used")]
pub struct UnlockError;

/// Signs values of PCRs for one second key of a disk.
pub struct UnlockKey {
    pair: EcdsaKeyPair,
    public: PublicKey,
}

impl fmt::Debug for UnlockKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UnlockKey(..)")
    }
}

impl UnlockKey {
    /// The key that follows from a seed.
    ///
    /// # Errors
    /// [`UnlockError`], rarer than once in 2^128.
    pub fn from_seed(seed: &Secret) -> Result<Self, UnlockError> {
        // One of 2^32 strings is not a private key of the curve; then the next one is taken.
        let seed = hmac::Key::new(hmac::HMAC_SHA256, seed.expose());
        (0..4).find_map(|number: u8| Self::from_private(hmac::sign(&seed, &[number]).as_ref())).ok_or(UnlockError)
    }

    fn from_private(private: &[u8]) -> Option<Self> {
        let point = PrivateKey::from_private_key(&agreement::ECDH_P256, private).ok()?.compute_public_key().ok()?;
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let pair = EcdsaKeyPair::from_private_key_and_public_key(algorithm, private, point.as_ref()).ok()?;
        let public = pair.public_key().as_ref().strip_prefix(&[UNCOMPRESSED])?.try_into().ok()?;
        Some(Self { pair, public })
    }

    /// The public key.
    #[must_use]
    pub const fn public(&self) -> &PublicKey {
        &self.public
    }

    /// Signs a value of a PCR: of a policy that is `approved` after it, in a chain of the PCRs `chain`.
    ///
    /// # Errors
    /// [`UnlockError`]
    pub fn sign(&self, approved: &Hash, pcr: u8, chain: Selected) -> Result<Signature, UnlockError> {
        let signature = self.pair.sign(&SystemRandom::new(), &to_sign(approved, pcr, chain));
        signature.ok().and_then(|signature| signature.as_ref().try_into().ok()).ok_or(UnlockError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};
    use join_tickets::unlock::{NOTHING, selected};

    #[test]
    fn a_seed_gives_one_key_and_what_it_signs_is_verified_by_its_public_part() {
        let key = |seed| UnlockKey::from_seed(&Secret::new([seed; 32])).unwrap();
        let (signer, chain) = (key(1), selected([4, 15]));
        assert!(signer.public() == key(1).public() && signer.public() != key(2).public());
        let signature = signer.sign(&NOTHING, 4, chain).unwrap();
        let point = [&[UNCOMPRESSED][..], signer.public()].concat();
        let verified = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, &point);
        assert!(verified.verify(&to_sign(&NOTHING, 4, chain), &signature).is_ok());
        assert!(verified.verify(&to_sign(&NOTHING, 15, chain), &signature).is_err());
        assert_eq!(format!("{signer:?}"), "UnlockKey(..)");
        assert!(UnlockKey::from_private(&[0; 32]).is_none() && UnlockKey::from_private(&[0xff; 32]).is_none());
    }
}
