//! The key of a cluster, and the request that it signs.

use anyhow::{Context as _, anyhow};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use enrolment_protocol::cluster::{Draft, Request, Seed};
use enrolment_protocol::manager::{ManagerKey, PUBLIC_KEY_BYTES};
use enrolment_protocol::token::Token;
use uuid::Uuid;
use zeroize::Zeroizing;

/// A private key and what a request is made of.
pub struct Keys {
    pair: EcdsaKeyPair,
    pkcs8: Zeroizing<Vec<u8>>,
    seed: Zeroizing<[u8; 32]>,
}

impl Keys {
    /// Fresh ones.
    ///
    /// # Errors
    /// The system yields no random numbers.
    pub fn generate() -> anyhow::Result<Self> {
        let random = || anyhow!("the system yields no random numbers for a key");
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).map_err(|_| random())?;
        let pkcs8 = pair.to_pkcs8v1().map_err(|_| random())?;
        let mut seed = Zeroizing::new([0; 32]);
        aws_lc_rs::rand::fill(seed.as_mut()).map_err(|_| random())?;
        Self::read(pkcs8.as_ref(), seed.as_ref())
    }

    /// From what was kept.
    ///
    /// # Errors
    /// It holds no key.
    pub fn read(pkcs8: &[u8], seed: &[u8]) -> anyhow::Result<Self> {
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8);
        let pair = pair.map_err(|_| anyhow!("no key of P-256 in PKCS#8"))?;
        let seed = seed.try_into().map_err(|_| anyhow!("the seed has not 32 bytes"))?;
        Ok(Self { pair, pkcs8: Zeroizing::new(pkcs8.to_vec()), seed: Zeroizing::new(seed) })
    }

    /// The private key, DER.
    pub fn pkcs8(&self) -> &[u8] {
        &self.pkcs8
    }

    /// The seed of the request.
    pub fn seed(&self) -> &[u8] {
        self.seed.as_ref()
    }

    /// The private key, PEM.
    pub fn pem(&self) -> Zeroizing<String> {
        Zeroizing::new(to_pem("PRIVATE KEY", &self.pkcs8))
    }

    /// The request that these keys make with that token.
    ///
    /// # Errors
    /// The key cannot sign.
    pub fn request(&self, cluster: Uuid, token: &Token, manager_key: &ManagerKey) -> anyhow::Result<Request> {
        let public: [u8; PUBLIC_KEY_BYTES] =
            self.pair.public_key().as_ref().try_into().context("the key has not the length of one of P-256")?;
        let seed = Seed::new(*self.seed);
        let draft = Draft::new(cluster, token, public, manager_key, &seed);
        let signed = self.pair.sign(&SystemRandom::new(), &draft.to_sign());
        let signature = signed.map_err(|_| anyhow!("the key cannot sign"))?;
        Ok(draft.seal(signature.as_ref().try_into().context("the signature has not 64 bytes")?)?)
    }

    /// Whether a certificate, DER, is for this key. The answer that it came in is authentic; this only finds a mix-up.
    pub fn are_certified_by(&self, certificate: &[u8]) -> bool {
        let public = self.pair.public_key().as_ref();
        certificate.windows(public.len()).any(|part| part == public)
    }
}

/// PEM (RFC 7468).
pub fn to_pem(label: &str, der: &[u8]) -> String {
    let text = Zeroizing::new(BASE64_STANDARD.encode(der));
    let mut pem = format!("-----BEGIN {label}-----\n");
    for line in text.as_bytes().chunks(64) {
        pem.extend(line.iter().map(|byte| char::from(*byte)));
        pem.push('\n');
    }
    pem.push_str(&format!("-----END {label}-----\n"));
    pem
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_keys_make_a_request_for_the_same_key() {
        let manager = enrolment_protocol::manager::Manager::new([1; 32]);
        let (cluster, token) = (Uuid::from_u128(7), Token::new([2; 32]));
        let keys = Keys::generate().unwrap();
        let again = Keys::read(keys.pkcs8(), keys.seed()).unwrap();
        let opened = [keys, again].map(|keys| {
            let request = keys.request(cluster, &token, &manager.public()).unwrap();
            manager.open(cluster, &request.bytes).unwrap().key_hash()
        });
        assert_eq!(opened[0], opened[1]);
    }
}
