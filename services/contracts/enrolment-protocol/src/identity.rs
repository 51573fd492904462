//! The side of the service Identity: its enrolment key, what a request says, and the answer to it.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use join_protocol::secret::Secret;
use join_protocol::transcript::Hash;
use prost::Message;
use proto::enrol as wire;
use uuid::Uuid;
use zeroize::{Zeroize, Zeroizing};

use crate::VERSION;
use crate::grant::Grant;
use crate::message::{MessageError, array, check_version, decode};
use crate::refusal::{Refusal, TEXT_BYTES_MAX};
use crate::seal::{
    KeyPair, Predecessor, Sealed, answer_info, is_public_key, key_pair, open, proof, renewal_proof, request_id,
    request_info, seal,
};
use crate::token::{Token, TokenHash};

/// Bytes of a point of P-256, uncompressed.
pub const PUBLIC_KEY_BYTES: usize = 65;
/// Bytes of an ECDSA signature over P-256 in its fixed form.
pub const SIGNATURE_BYTES: usize = 64;

/// Most bytes of a serial number (RFC 5280, 4.1.2.2).
const SERIAL_BYTES_MAX: usize = 20;

/// Identity's public enrolment key, which a cluster pins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdentityKey(pub(crate) Vec<u8>);

/// A text is not an enrolment key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the enrolment key must be an X-Wing public key in base64url")]
pub struct IdentityKeyError;

impl IdentityKey {
    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for IdentityKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&BASE64_URL_SAFE_NO_PAD.encode(&self.0))
    }
}

impl FromStr for IdentityKey {
    type Err = IdentityKeyError;

    fn from_str(text: &str) -> Result<Self, IdentityKeyError> {
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(text.trim()).map_err(|_| IdentityKeyError)?;
        if is_public_key(&bytes) { Ok(Self(bytes)) } else { Err(IdentityKeyError) }
    }
}

/// Identity's private enrolment key, and all that follows from its seed.
pub struct IdentityKeyPair {
    pub(crate) key: KeyPair,
    seed: Secret,
}

impl fmt::Debug for IdentityKeyPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("IdentityKeyPair(..)")
    }
}

/// What entitles a cluster to ask for a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProofKind {
    /// A token, by its hash.
    Token(TokenHash),
    /// The certificate that it has. The requester has shown that it owns the key; the caller decides whether that certificate exists and counts.
    Certificate {
        /// Serial number, hexadecimal in lower case.
        serial: String,
        /// SHA-256 of its public key, hexadecimal in lower case.
        key: String,
    },
}

/// The content of a request. The requester has shown that it owns the key; the caller decides whether the token or certificate is good.
pub struct Opened {
    /// The cluster.
    pub cluster: Uuid,
    /// By what it asks.
    pub by: ProofKind,
    /// The key that shall be certified: a point of P-256, uncompressed.
    pub public_key: [u8; PUBLIC_KEY_BYTES],
    request: Hash,
    answer_key: Vec<u8>,
    answer_secret: Secret,
}

impl fmt::Debug for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opened").field("cluster", &self.cluster).finish_non_exhaustive()
    }
}

impl PartialEq for Opened {
    fn eq(&self, other: &Self) -> bool {
        self.request == other.request
    }
}

impl Opened {
    /// SHA-256 of the public key, hexadecimal in lower case: what is recorded of it.
    #[must_use]
    pub fn key_hash(&self) -> String {
        key_hash(&self.public_key)
    }
}

fn key_hash(public_key: &[u8]) -> String {
    hex::encode(digest(&SHA256, public_key).as_ref())
}

/// The certificate that a renewal is asked by, if its key has signed.
fn predecessor(
    renewal: &wire::Renewal,
    public_key: &[u8; PUBLIC_KEY_BYTES],
    signed: &Hash,
) -> Result<ProofKind, MessageError> {
    const NAME: &str = "renewal";
    let field = |field, rule| MessageError::Field { message: NAME, field, rule };
    if !(1..=SERIAL_BYTES_MAX).contains(&renewal.serial.len()) {
        return Err(field("serial", "must have 1 to 20 bytes"));
    }
    let old: [u8; PUBLIC_KEY_BYTES] = array(NAME, "public_key", &renewal.public_key)?;
    if old == *public_key {
        return Err(field(
            "public_key",
            "is the one that shall be certified; a renewed certificate is for another key",
        ));
    }
    UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, &old)
        .verify(signed, &array::<SIGNATURE_BYTES>(NAME, "signature", &renewal.signature)?)
        .map_err(|_| field("signature", "is not by the key of the certificate"))?;
    Ok(ProofKind::Certificate { serial: hex::encode(&renewal.serial), key: key_hash(&old) })
}

impl IdentityKeyPair {
    /// From 32 bytes that came from a cryptographic source of randomness, once for all.
    #[must_use]
    pub fn new(seed: [u8; 32]) -> Self {
        let seed = Secret::new(seed);
        Self { key: key_pair(&seed.derive("enrol1 manager key", &[])), seed }
    }

    /// What clusters pin.
    #[must_use]
    pub fn public(&self) -> IdentityKey {
        IdentityKey(self.key.public.clone())
    }

    /// Opens the request of the Edge Node of `cluster`.
    ///
    /// # Errors
    /// It is not a request, it names another cluster, or its key did not sign it.
    pub fn open(&self, cluster: Uuid, request: &[u8]) -> Result<Opened, MessageError> {
        const NAME: &str = "request";
        let field = |field, rule| MessageError::Field { message: NAME, field, rule };
        let outer: wire::Request = decode(NAME, request)?;
        check_version(NAME, outer.version)?;
        let info = request_info(cluster, &self.key.public);
        let opened = open(&self.key, &outer.encapsulated_key, &outer.ciphertext, &info, None);
        let opened = opened.map_err(|_| MessageError::Sealed(NAME))?;
        let mut body: wire::RequestBody = decode(NAME, &opened)?;
        let text = Zeroizing::new(std::mem::take(&mut body.token));
        let secret = Secret::from_slice(&body.answer_secret);
        body.answer_secret.zeroize();
        let secret = secret.ok_or_else(|| field("answer_secret", "must have 32 bytes"))?;
        if body.cluster != cluster.as_bytes() {
            return Err(field("cluster", "is not that of the Edge Node"));
        }
        if !is_public_key(&body.answer_key) {
            return Err(field("answer_key", "is not a public key"));
        }
        let public_key = array(NAME, "public_key", &body.public_key)?;
        let (signed, by) = match body.renewal.take() {
            None => {
                let token = Token::parse(&text).map_err(|_| field("token", "is not a token"))?;
                let signed = proof(cluster, token.expose(), &public_key, &body.answer_key, secret.expose());
                (signed, ProofKind::Token(token.hash()))
            }
            Some(_) if !text.is_empty() => return Err(field("token", "and renewal exclude each other")),
            Some(renewal) => {
                let old = Predecessor { serial: &renewal.serial, public_key: &renewal.public_key };
                let (identity, answer_key) = (&self.key.public, &body.answer_key);
                let signed = renewal_proof(cluster, identity, &old, &public_key, answer_key, secret.expose());
                (signed, predecessor(&renewal, &public_key, &signed)?)
            }
        };
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, &public_key)
            .verify(&signed, &array::<SIGNATURE_BYTES>(NAME, "signature", &body.signature)?)
            .map_err(|_| field("signature", "is not by the key that shall be certified"))?;
        let (request, answer_key) = (request_id(request), body.answer_key);
        Ok(Opened { cluster, by, public_key, request, answer_key, answer_secret: secret })
    }

    /// Answers a request. The same answer to the same request is the same bytes.
    ///
    /// # Errors
    /// None for what [`Self::open`] opened; the library has an error type.
    pub fn answer(&self, opened: &Opened, answer: &Result<Grant, Refusal>) -> Result<Vec<u8>, MessageError> {
        let body = match answer {
            Ok(grant) => wire::AnswerBody {
                grant: Some(wire::Grant {
                    certificate: grant.certificate.clone(),
                    authorities: grant.authorities.clone(),
                    git_username: grant.git_username.clone(),
                    git_password: String::from_utf8_lossy(grant.git_password.expose()).into_owned(),
                }),
                refusal: None,
            },
            Err(Refusal { code, text }) => {
                let end = (0..=TEXT_BYTES_MAX.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
                let text = text[..end.unwrap_or_default()].to_owned();
                wire::AnswerBody { grant: None, refusal: Some(wire::Refusal { code: code.to_wire(), text }) }
            }
        };
        let plaintext = Zeroizing::new(body.encode_to_vec());
        if let Some(grant) = body.grant {
            let _wiped = Zeroizing::new(grant.git_password);
        }
        let (info, psk) = (answer_info(&opened.request), Some(&opened.answer_secret));
        let sealed = seal(&opened.answer_key, &plaintext, &info, psk, &self.seed);
        let Sealed { encapsulated_key, ciphertext } = sealed.map_err(|_| MessageError::Sealed("answer"))?;
        let request = opened.request.to_vec();
        Ok(wire::Answer { version: VERSION, request, encapsulated_key, ciphertext }.encode_to_vec())
    }

    /// A serial number that follows from what a certificate is for: 16 bytes, positive.
    #[must_use]
    pub fn serial(&self, cluster: Uuid, key_hash: &str, fence: u32, count: u32) -> [u8; 16] {
        let context =
            [cluster.as_bytes(), key_hash.as_bytes(), &fence.to_be_bytes()[..], &count.to_be_bytes()].concat();
        let mut serial = [0; 16];
        serial.copy_from_slice(&self.seed.derive("enrol1 serial", &context).expose()[..16]);
        serial[0] = serial[0] & 0x7f | 0x40;
        serial
    }
}
