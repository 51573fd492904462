//! Sealing and every hash. HPKE (RFC 9180) in one suite: X-Wing, HKDF-SHA-256, AES-256-GCM. What a later quantum computer opens is no secret: a git password is among it.

use hpke::aead::AesGcm256;
use hpke::kdf::HkdfSha256;
use hpke::kem::XWing;
use hpke::rand_core::{Infallible, TryCryptoRng, TryRng};
use hpke::{
    Deserializable, HpkeError, Kem, OpModeR, OpModeS, PskBundle, Serializable, setup_receiver, setup_sender_with_rng,
};
use join_protocol::secret::Secret;
use join_protocol::transcript::{Hash, hash};
use uuid::Uuid;
use zeroize::{Zeroize, Zeroizing};

/// It could not be opened, or the public key is none. Why is not told.
pub struct SealError;

impl From<HpkeError> for SealError {
    fn from(_: HpkeError) -> Self {
        Self
    }
}

/// A key pair to receive sealed messages with.
pub struct KeyPair {
    private: Zeroizing<Vec<u8>>,
    pub public: Vec<u8>,
}

impl KeyPair {
    /// Derived from `seed` alone.
    pub fn derive(seed: &Secret) -> Self {
        let (private, public) = XWing::derive_keypair(seed.expose());
        let mut bytes = private.to_bytes();
        let pair = Self { private: Zeroizing::new(bytes.to_vec()), public: public.to_bytes().to_vec() };
        bytes.zeroize();
        pair
    }

    /// Opens what was sealed to this pair with the same info, and with the same secret where there is one.
    pub fn open(
        &self,
        encapsulated_key: &[u8],
        ciphertext: &[u8],
        info: &Hash,
        psk: Option<&Secret>,
    ) -> Result<Zeroizing<Vec<u8>>, SealError> {
        let private = <XWing as Kem>::PrivateKey::from_bytes(&self.private)?;
        let encapsulated_key = <XWing as Kem>::EncappedKey::from_bytes(encapsulated_key)?;
        let mode = match psk {
            Some(psk) => OpModeR::Psk(PskBundle::new(psk.expose(), PSK_ID)?),
            None => OpModeR::Base,
        };
        let mut context = setup_receiver::<AesGcm256, HkdfSha256, XWing>(&mode, &private, &encapsulated_key, info)?;
        Ok(Zeroizing::new(context.open(ciphertext, &[])?))
    }
}

const PSK_ID: &[u8] = b"enrol1 answer";

/// True if the bytes can be a public key.
pub fn is_public_key(bytes: &[u8]) -> bool {
    <XWing as Kem>::PublicKey::from_bytes(bytes).is_ok()
}

/// Seals to a public key: encapsulated key and ciphertext. The randomness is that of the secret and of all that goes in, so that different texts never share a key.
pub fn seal(
    public: &[u8],
    plaintext: &[u8],
    info: &Hash,
    psk: Option<&Secret>,
    secret: &Secret,
) -> Result<(Vec<u8>, Vec<u8>), SealError> {
    let randomness = secret.derive("enrol1 seal", &hash("enrol1/s", &[public, info, plaintext]));
    let public = <XWing as Kem>::PublicKey::from_bytes(public)?;
    let mode = match psk {
        Some(psk) => OpModeS::Psk(PskBundle::new(psk.expose(), PSK_ID)?),
        None => OpModeS::Base,
    };
    let mut stream = Stream { key: randomness, blocks: 0 };
    let (encapsulated_key, mut context) =
        setup_sender_with_rng::<AesGcm256, HkdfSha256, XWing>(&mode, &public, info, &mut stream)?;
    let ciphertext = context.seal(plaintext, &[])?;
    Ok((encapsulated_key.to_bytes().to_vec(), ciphertext))
}

/// HPKE info of a request: which cluster asks, and which key it pins.
pub fn request_info(cluster: Uuid, manager_key: &[u8]) -> Hash {
    hash("enrol1/1", &[cluster.as_bytes(), manager_key])
}

/// What the key that shall be certified signs.
pub fn proof(cluster: Uuid, token: &str, public_key: &[u8], answer_key: &[u8], answer_secret: &[u8]) -> Hash {
    hash("enrol1/p", &[cluster.as_bytes(), token.as_bytes(), public_key, answer_key, answer_secret])
}

/// Id of a request: the hash of its bytes.
pub fn request_id(request: &[u8]) -> Hash {
    hash("enrol1/r", &[request])
}

/// HPKE info of an answer: the request that it answers.
pub fn answer_info(request: &Hash) -> Hash {
    hash("enrol1/2", &[request])
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
        for chunk in bytes.chunks_mut(32) {
            let block = self.key.derive("enrol1 stream", &self.blocks.to_be_bytes());
            chunk.copy_from_slice(&block.expose()[..chunk.len()]);
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
