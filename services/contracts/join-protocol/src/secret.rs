//! Secrets, and what is made from them with HMAC and HKDF. A secret is wiped when it is dropped, compared in constant time and never shown.

use std::fmt;

use aws_lc_rs::{constant_time, hkdf, hmac};
use zeroize::{Zeroize, Zeroizing};

use crate::limits::HASH_BYTES;
use crate::transcript::Hash;

/// 32 secret bytes: a key, a credential or a seed.
#[derive(Clone)]
pub struct Secret(Zeroizing<[u8; HASH_BYTES]>);

impl Secret {
    /// Takes the bytes over.
    #[must_use]
    pub fn new(bytes: [u8; HASH_BYTES]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// None unless there are exactly 32 bytes.
    #[must_use]
    pub fn from_slice(bytes: &[u8]) -> Option<Self> {
        let mut secret = Zeroizing::new([0; HASH_BYTES]);
        if bytes.len() != HASH_BYTES {
            return None;
        }
        secret.copy_from_slice(bytes);
        Some(Self(secret))
    }

    /// The bytes, to be used.
    #[must_use]
    pub fn expose(&self) -> &[u8; HASH_BYTES] {
        &self.0
    }

    /// HMAC-SHA-256 under this key.
    #[must_use]
    pub fn mac(&self, input: &Hash) -> Hash {
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, self.expose()), input);
        let mut mac = [0; HASH_BYTES];
        mac.copy_from_slice(tag.as_ref());
        mac
    }

    /// True if `mac` is the code of `input`; takes the same time wherever they differ.
    #[must_use]
    pub fn is_mac(&self, input: &Hash, mac: &[u8]) -> bool {
        constant_time::verify_slices_are_equal(&self.mac(input), mac).is_ok()
    }

    /// HKDF-SHA-256 with empty salt; the info is the label and `context`.
    #[must_use]
    pub fn derive(&self, label: &str, context: &[u8]) -> Self {
        let mut derived = Zeroizing::new([0; HASH_BYTES]);
        self.fill(label, context, derived.as_mut());
        Self(derived)
    }

    /// As [`Self::derive`], of any length up to 8160 bytes.
    pub(crate) fn fill(&self, label: &str, context: &[u8], output: &mut [u8]) {
        struct Length(usize);
        impl hkdf::KeyType for Length {
            fn len(&self) -> usize {
                self.0
            }
        }
        let key = hkdf::Salt::new(hkdf::HKDF_SHA256, &[]).extract(self.expose());
        let info = [label.as_bytes(), &[0], context];
        // HKDF gives up only beyond 255 blocks; an output that stayed zero would be no secret, so that is an invariant.
        let filled = key.expand(&info, Length(output.len())).and_then(|okm| okm.fill(output));
        assert!(filled.is_ok(), "outputs of this protocol are far shorter than 255 blocks");
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        constant_time::verify_slices_are_equal(self.expose(), other.expose()).is_ok()
    }
}

impl Eq for Secret {}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Secret bytes of any length: a token, a password, a private key in a file.
#[derive(Clone, Default)]
pub struct SecretBytes(Zeroizing<Vec<u8>>);

impl SecretBytes {
    /// Takes the bytes over.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// The bytes, to be used.
    #[must_use]
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl From<&str> for SecretBytes {
    fn from(text: &str) -> Self {
        Self::new(text.as_bytes().to_vec())
    }
}

impl PartialEq for SecretBytes {
    fn eq(&self, other: &Self) -> bool {
        constant_time::verify_slices_are_equal(self.expose(), other.expose()).is_ok()
    }
}

impl Eq for SecretBytes {}

impl fmt::Debug for SecretBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretBytes(..)")
    }
}

/// 32 fresh random bytes that the caller drew for one step. Steps take it by value: it is used once.
pub struct Entropy(Secret);

impl Entropy {
    /// The bytes must come from a cryptographic source of randomness and be used for nothing else.
    #[must_use]
    pub fn new(bytes: [u8; HASH_BYTES]) -> Self {
        Self(Secret::new(bytes))
    }

    /// Independent bytes for one purpose.
    #[must_use]
    pub(crate) fn bytes<const N: usize>(&self, purpose: &str) -> [u8; N] {
        let mut bytes = [0; N];
        self.0.fill("ajp1 entropy", purpose.as_bytes(), &mut bytes);
        bytes
    }

    /// An independent secret for one purpose.
    #[must_use]
    pub(crate) fn secret(&self, purpose: &str) -> Secret {
        self.0.derive("ajp1 entropy", purpose.as_bytes())
    }
}

impl fmt::Debug for Entropy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Entropy(..)")
    }
}

/// The value that locks a host to its cluster: what its lock PCR is extended with.
///
/// HKDF-SHA-256 with the secret as key material, the salt as salt and `key-clusterID` as info. It reveals nothing about the secret.
#[must_use]
pub fn cluster_id(measurement_secret: &Secret, measurement_salt: &Secret) -> Hash {
    let key = hkdf::Salt::new(hkdf::HKDF_SHA256, measurement_salt.expose()).extract(measurement_secret.expose());
    let mut id = [0; HASH_BYTES];
    let filled = key.expand(&[b"key-clusterID"], hkdf::HKDF_SHA256).and_then(|okm| okm.fill(&mut id));
    assert!(filled.is_ok(), "one block can always be expanded");
    id
}

/// Wipes bytes that a decoder left behind.
pub(crate) fn wipe(bytes: &mut Vec<u8>) {
    bytes.zeroize();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ascending(first: u8) -> Secret {
        Secret::new(std::array::from_fn(|at| first + u8::try_from(at).unwrap()))
    }

    #[test]
    fn the_cluster_id_is_the_hkdf_of_secret_and_salt() {
        // Vector computed with another implementation of HKDF.
        let known = "128c164378fe8767f998fbdfe4b4d6463ec5ae1b664ea5999bc27417607ae9b6";
        assert_eq!(hex::encode(cluster_id(&ascending(0), &ascending(0x20))), known);
    }

    #[test]
    fn secrets_are_not_shown() {
        let secret = ascending(0x40);
        let shown = format!("{secret:?} {:?} {:?}", SecretBytes::from("hush"), Entropy::new([7; 32]));
        assert_eq!(shown, "Secret(..) SecretBytes(..) Entropy(..)");
    }

    #[test]
    fn labels_and_contexts_separate_what_is_derived() {
        let secret = ascending(1);
        let derived =
            [secret.derive("a", b"b"), secret.derive("a", b"c"), secret.derive("ab", b""), secret.derive("a", b"")];
        for (at, one) in derived.iter().enumerate() {
            assert!(derived[..at].iter().all(|other| other != one));
        }
        assert!(secret.is_mac(&[1; 32], &secret.mac(&[1; 32])));
        assert!(!secret.is_mac(&[1; 32], &secret.mac(&[2; 32])) && !secret.is_mac(&[1; 32], &[]));
    }
}
