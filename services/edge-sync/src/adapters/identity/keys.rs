//! Keys of a cluster, and the requests that they sign.

use anyhow::{Context as _, anyhow};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use der::Decode as _;
use enrolment_protocol::cluster::{Draft, Predecessor, RenewalDraft, Request, Seed};
use enrolment_protocol::identity::{IdentityKey, PUBLIC_KEY_BYTES, SIGNATURE_BYTES};
use enrolment_protocol::token::Token;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use uuid::Uuid;
use x509_cert::Certificate;
use x509_cert::time::Time;
use zeroize::Zeroizing;

use crate::renewal::ValidityPeriod;

/// A private key and what a request is made of.
pub struct Keys {
    pair: EcdsaKeyPair,
    pkcs8: Zeroizing<Vec<u8>>,
    seed: Zeroizing<[u8; 32]>,
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Keys(..)")
    }
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
    pub fn request(&self, cluster: Uuid, token: &Token, identity_key: &IdentityKey) -> anyhow::Result<Request> {
        let seed = Seed::new(*self.seed);
        let draft = Draft::new(cluster, token, point(&self.pair)?, identity_key, &seed);
        let signature = sign(&self.pair, &draft.to_sign())?;
        Ok(draft.seal(signature)?)
    }

    /// The request that these keys make with the certificate that the cluster has.
    ///
    /// # Errors
    /// A key cannot sign.
    pub fn renewal(
        &self,
        cluster: Uuid,
        held: &HeldCertificate,
        identity_key: &IdentityKey,
    ) -> anyhow::Result<Request> {
        let seed = Seed::new(*self.seed);
        let draft = RenewalDraft::new(cluster, &held.predecessor, point(&self.pair)?, identity_key, &seed);
        let hash = draft.to_sign();
        let (own, predecessor) = (sign(&self.pair, &hash)?, sign(&held.pair, &hash)?);
        Ok(draft.seal(own, predecessor)?)
    }

    /// Whether a certificate, DER, is for this key. The answer that it came in is authentic; this only finds a mix-up.
    pub fn are_certified_by(&self, certificate: &[u8]) -> bool {
        let public = self.pair.public_key().as_ref();
        certificate.windows(public.len()).any(|part| part == public)
    }
}

/// The certificate that the cluster has, with its key.
pub struct HeldCertificate {
    predecessor: Predecessor,
    pair: EcdsaKeyPair,
    /// From when until when it is good.
    pub validity: ValidityPeriod,
}

impl std::fmt::Debug for HeldCertificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HeldCertificate").field("validity", &self.validity).finish_non_exhaustive()
    }
}

impl HeldCertificate {
    /// Of PEM; the first certificate counts.
    ///
    /// # Errors
    /// What it does not hold; nothing of the key.
    pub fn read(certificates: &str, key: &str) -> anyhow::Result<Self> {
        let der =
            CertificateDer::from_pem_slice(certificates.as_bytes()).context("tls.crt holds no certificate in PEM")?;
        let certificate = Certificate::from_der(&der).map_err(|_| anyhow!("tls.crt holds no X.509 certificate"))?;
        let certificate = certificate.tbs_certificate();
        // What the PEM reader says of a private key is not reported.
        let pkcs8 = PrivatePkcs8KeyDer::from_pem_slice(key.as_bytes());
        let pkcs8 = pkcs8.map_err(|_| anyhow!("tls.key holds no private key (PKCS#8) in PEM"))?;
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8.secret_pkcs8_der());
        let pair = pair.map_err(|_| anyhow!("tls.key is not a key of P-256"))?;
        let public_key = point(&pair)?;
        if certificate.subject_public_key_info().subject_public_key.raw_bytes() != public_key {
            return Err(anyhow!("tls.crt is not the certificate of tls.key"));
        }
        let serial = certificate.serial_number().as_bytes().iter().copied().skip_while(|byte| *byte == 0).collect();
        let time = |time: Time| u64::try_from(time.to_unix_duration().as_millis()).unwrap_or(u64::MAX);
        let validity = certificate.validity();
        let validity = ValidityPeriod { begins: time(validity.not_before), ends: time(validity.not_after) };
        Ok(Self { predecessor: Predecessor { serial, public_key }, pair, validity })
    }

    /// Its serial number, hexadecimal in lower case.
    #[must_use]
    pub fn serial(&self) -> String {
        hex::encode(&self.predecessor.serial)
    }
}

fn point(pair: &EcdsaKeyPair) -> anyhow::Result<[u8; PUBLIC_KEY_BYTES]> {
    pair.public_key().as_ref().try_into().context("the key has not the length of one of P-256")
}

fn sign(pair: &EcdsaKeyPair, hash: &[u8]) -> anyhow::Result<[u8; SIGNATURE_BYTES]> {
    let signed = pair.sign(&SystemRandom::new(), hash).map_err(|_| anyhow!("the key cannot sign"))?;
    signed.as_ref().try_into().context("the signature has not 64 bytes")
}

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
        let identity = enrolment_protocol::identity::IdentityKeyPair::new([1; 32]);
        let (cluster, token) = (Uuid::from_u128(7), Token::new([2; 32]));
        let keys = Keys::generate().unwrap();
        let again = Keys::read(keys.pkcs8(), keys.seed()).unwrap();
        let opened = [keys, again].map(|keys| {
            let request = keys.request(cluster, &token, &identity.public()).unwrap();
            identity.open(cluster, &request.bytes).unwrap().key_hash()
        });
        assert_eq!(opened[0], opened[1]);
    }
}
