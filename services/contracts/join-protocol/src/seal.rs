//! Sealing: HPKE (RFC 9180) in the suites of the protocol. Randomness comes in as an argument.

use std::fmt;

use hpke::aead::AesGcm256;
use hpke::kdf::HkdfSha256;
use hpke::kem::{X25519HkdfSha256, XWing};
use hpke::rand_core::{Infallible, TryCryptoRng, TryRng};
use hpke::{
    Deserializable, HpkeError, Kem, OpModeR, OpModeS, PskBundle, Serializable, setup_receiver, setup_sender_with_rng,
};
use zeroize::{Zeroize, Zeroizing};

use crate::secret::Secret;
use crate::terms::Suite;
use crate::transcript::Hash;

/// A sealed message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sealed {
    /// What the receiver finds the shared secret by.
    pub encapsulated_key: Vec<u8>,
    /// The text, 16 bytes longer than it was.
    pub ciphertext: Vec<u8>,
}

/// It could not be opened, or the bytes are not a public key. The error does not say which: HPKE gives no more away, and neither does this.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SealError;

impl From<HpkeError> for SealError {
    fn from(_: HpkeError) -> Self {
        Self
    }
}

/// What a sealed message is bound to.
#[derive(Debug, Clone, Copy)]
pub struct Binding<'a> {
    /// What both sides know of the exchange.
    pub info: Hash,
    /// What goes along unsealed.
    pub additional_data: Hash,
    /// Psk and its id; None is HPKE's base mode.
    pub psk: Option<(&'a Secret, &'a [u8])>,
}

/// A key pair to receive sealed messages with.
#[derive(Clone)]
pub struct KeyPair {
    /// The suite it belongs to.
    pub suite: Suite,
    private: Zeroizing<Vec<u8>>,
    /// Its public key, as it travels.
    pub public: Vec<u8>,
}

impl fmt::Debug for KeyPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyPair(..)")
    }
}

impl KeyPair {
    /// Derived from `seed` alone.
    #[must_use]
    pub fn derive(suite: Suite, seed: &Secret) -> Self {
        match suite {
            Suite::XWing => Self::derive_in::<XWing>(suite, seed),
            Suite::X25519 => Self::derive_in::<X25519HkdfSha256>(suite, seed),
        }
    }

    fn derive_in<K: Kem>(suite: Suite, seed: &Secret) -> Self {
        let (private, public) = K::derive_keypair(seed.expose());
        let mut bytes = private.to_bytes();
        let pair = Self { suite, private: Zeroizing::new(bytes.to_vec()), public: public.to_bytes().to_vec() };
        bytes.zeroize();
        pair
    }

    /// Opens what was sealed to this pair with the same binding.
    ///
    /// # Errors
    /// [`SealError`]: it was sealed otherwise, or changed on its way.
    pub fn open(
        &self,
        encapsulated_key: &[u8],
        ciphertext: &[u8],
        binding: &Binding<'_>,
    ) -> Result<Zeroizing<Vec<u8>>, SealError> {
        match self.suite {
            Suite::XWing => self.open_in::<XWing>(encapsulated_key, ciphertext, binding),
            Suite::X25519 => self.open_in::<X25519HkdfSha256>(encapsulated_key, ciphertext, binding),
        }
    }

    fn open_in<K: Kem>(
        &self,
        encapsulated_key: &[u8],
        ciphertext: &[u8],
        binding: &Binding<'_>,
    ) -> Result<Zeroizing<Vec<u8>>, SealError> {
        let private = K::PrivateKey::from_bytes(&self.private)?;
        let encapsulated_key = K::EncappedKey::from_bytes(encapsulated_key)?;
        let mode = match binding.psk {
            Some((psk, id)) => OpModeR::Psk(PskBundle::new(psk.expose(), id)?),
            None => OpModeR::Base,
        };
        let mut context =
            setup_receiver::<AesGcm256, HkdfSha256, K>(&mode, &private, &encapsulated_key, &binding.info)?;
        Ok(Zeroizing::new(context.open(ciphertext, &binding.additional_data)?))
    }
}

/// True if the bytes can be a public key of the suite.
#[must_use]
pub fn is_public_key(suite: Suite, bytes: &[u8]) -> bool {
    match suite {
        Suite::XWing => <XWing as Kem>::PublicKey::from_bytes(bytes).is_ok(),
        Suite::X25519 => <X25519HkdfSha256 as Kem>::PublicKey::from_bytes(bytes).is_ok(),
    }
}

/// Seals to a public key. The same `randomness` must never seal two texts or to two keys: the caller derives it from all that goes in.
///
/// # Errors
/// [`SealError`]: the bytes are not a public key.
pub fn seal(
    suite: Suite,
    public: &[u8],
    plaintext: &[u8],
    binding: &Binding<'_>,
    randomness: Secret,
) -> Result<Sealed, SealError> {
    match suite {
        Suite::XWing => seal_in::<XWing>(public, plaintext, binding, randomness),
        Suite::X25519 => seal_in::<X25519HkdfSha256>(public, plaintext, binding, randomness),
    }
}

fn seal_in<K: Kem>(
    public: &[u8],
    plaintext: &[u8],
    binding: &Binding<'_>,
    randomness: Secret,
) -> Result<Sealed, SealError> {
    let public = K::PublicKey::from_bytes(public)?;
    let mode = match binding.psk {
        Some((psk, id)) => OpModeS::Psk(PskBundle::new(psk.expose(), id)?),
        None => OpModeS::Base,
    };
    let mut stream = Stream { key: randomness, blocks: 0 };
    let (encapsulated_key, mut context) =
        setup_sender_with_rng::<AesGcm256, HkdfSha256, K>(&mode, &public, &binding.info, &mut stream)?;
    let ciphertext = context.seal(plaintext, &binding.additional_data)?;
    Ok(Sealed { encapsulated_key: encapsulated_key.to_bytes().to_vec(), ciphertext })
}

/// Gives the randomness that came in as an argument to a library that asks for a generator.
struct Stream {
    key: Secret,
    blocks: u64,
}

impl Stream {
    fn next<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.fill(&mut bytes);
        bytes
    }

    fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(1024) {
            self.key.fill("ajp1 stream", &self.blocks.to_be_bytes(), chunk);
            self.blocks += 1;
        }
    }
}

impl TryRng for Stream {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok(u32::from_le_bytes(self.next()))
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(u64::from_le_bytes(self.next()))
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        self.fill(bytes);
        Ok(())
    }
}

impl TryCryptoRng for Stream {}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(byte: u8) -> Secret {
        Secret::new([byte; 32])
    }

    #[test]
    fn only_key_binding_and_psk_together_open() {
        for &suite in Suite::ALL {
            let (pair, other) = (KeyPair::derive(suite, &secret(1)), KeyPair::derive(suite, &secret(2)));
            let psk = secret(3);
            let binding = |info: u8, data: u8, psk| Binding { info: [info; 32], additional_data: [data; 32], psk };
            let with_psk = || Some((&psk, b"id".as_slice()));
            let sealed = seal(suite, &pair.public, b"text", &binding(1, 2, with_psk()), secret(4)).unwrap();
            let open = |pair: &KeyPair, binding: Binding<'_>| {
                pair.open(&sealed.encapsulated_key, &sealed.ciphertext, &binding).map(|text| text.to_vec())
            };
            assert_eq!(open(&pair, binding(1, 2, with_psk())), Ok(b"text".to_vec()), "{suite}");
            let wrong = secret(9);
            assert_eq!(open(&other, binding(1, 2, with_psk())), Err(SealError), "{suite}: another key");
            assert_eq!(open(&pair, binding(9, 2, with_psk())), Err(SealError), "{suite}: another info");
            assert_eq!(open(&pair, binding(1, 9, with_psk())), Err(SealError), "{suite}: other data");
            assert_eq!(open(&pair, binding(1, 2, None)), Err(SealError), "{suite}: no psk");
            assert_eq!(open(&pair, binding(1, 2, Some((&wrong, b"id")))), Err(SealError), "{suite}: another psk");
            assert_eq!(open(&pair, binding(1, 2, Some((&psk, b"di")))), Err(SealError), "{suite}: another psk id");
        }
    }

    #[test]
    fn the_same_randomness_gives_the_same_bytes_and_other_randomness_others() {
        for &suite in Suite::ALL {
            let pair = KeyPair::derive(suite, &secret(1));
            let binding = Binding { info: [0; 32], additional_data: [0; 32], psk: None };
            let once = |byte| seal(suite, &pair.public, b"text", &binding, secret(byte)).unwrap();
            assert_eq!(once(5), once(5), "{suite}");
            assert_ne!(once(5).encapsulated_key, once(6).encapsulated_key, "{suite}");
        }
    }

    #[test]
    fn bytes_that_are_not_a_key_are_refused() {
        let binding = Binding { info: [0; 32], additional_data: [0; 32], psk: None };
        for (suite, bytes) in [(Suite::X25519, 32), (Suite::XWing, 1216)] {
            assert!(is_public_key(suite, &KeyPair::derive(suite, &secret(1)).public));
            assert_eq!(KeyPair::derive(suite, &secret(1)).public.len(), bytes);
            assert!(!is_public_key(suite, &[1; 31]));
            assert_eq!(seal(suite, &[1; 31], b"", &binding, secret(1)), Err(SealError));
            // The neutral element would give a shared secret that is public.
            if suite == Suite::X25519 {
                assert_eq!(seal(suite, &[0; 32], b"", &binding, secret(1)), Err(SealError));
            }
        }
    }
}
