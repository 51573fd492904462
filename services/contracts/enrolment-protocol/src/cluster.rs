//! The cluster's side. What it must keep before it asks: its private key and [`Seed`]; with them it asks the same again after it was killed.

use std::fmt;

use join_protocol::secret::{Secret, SecretBytes};
use join_protocol::transcript::Hash;
use prost::Message;
use proto::enrol as wire;
use uuid::Uuid;
use zeroize::Zeroizing;

use crate::VERSION;
pub use crate::grant::Grant;
use crate::identity::{IdentityKey, PUBLIC_KEY_BYTES, SIGNATURE_BYTES};
use crate::message::{MessageError, check_version, decode};
use crate::refusal::{Refusal, RefusalCode};
use crate::seal::{
    self, KeyPair, Sealed, answer_info, key_pair, open, proof, renewal_proof, request_id, request_info, seal,
};
use crate::token::Token;

/// 32 random bytes that one enrolment is made of.
#[derive(Debug, Clone)]
pub struct Seed(Secret);

impl Seed {
    /// From a cryptographic source of randomness.
    #[must_use]
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(Secret::new(bytes))
    }

    /// From what was kept; None unless there are 32 bytes.
    #[must_use]
    pub fn from_slice(bytes: &[u8]) -> Option<Self> {
        Secret::from_slice(bytes).map(Self)
    }
}

/// What every request is made of.
struct Basis<'a> {
    cluster: Uuid,
    public_key: [u8; PUBLIC_KEY_BYTES],
    identity_key: &'a IdentityKey,
    seed: &'a Seed,
    answer_key: KeyPair,
    answer_secret: Secret,
}

/// A request by a token that its own key has not signed yet.
pub struct Draft<'a> {
    basis: Basis<'a>,
    token: &'a Token,
}

/// The certificate that a cluster has, valid or expired.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Predecessor {
    /// Its serial number, without leading zeros.
    pub serial: Vec<u8>,
    /// Its key: a point of P-256, uncompressed.
    pub public_key: [u8; PUBLIC_KEY_BYTES],
}

/// A renewal request before the key of the present certificate has signed it.
pub struct RenewalDraft<'a> {
    basis: Basis<'a>,
    predecessor: &'a Predecessor,
}

/// What is asked, and what opens the answer.
pub struct Request {
    /// As it travels.
    pub bytes: Vec<u8>,
    id: Hash,
    answer_key: KeyPair,
    answer_secret: Secret,
}

impl fmt::Debug for Draft<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Draft").field("cluster", &self.basis.cluster).finish_non_exhaustive()
    }
}

impl fmt::Debug for RenewalDraft<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RenewalDraft").field("cluster", &self.basis.cluster).finish_non_exhaustive()
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Request(..)")
    }
}

impl<'a> Basis<'a> {
    fn new(cluster: Uuid, public_key: [u8; PUBLIC_KEY_BYTES], identity_key: &'a IdentityKey, seed: &'a Seed) -> Self {
        let answer_key = key_pair(&seed.0.derive("enrol1 answer key", &[]));
        let answer_secret = seed.0.derive("enrol1 answer secret", &[]);
        Self { cluster, public_key, identity_key, seed, answer_key, answer_secret }
    }

    fn seal(
        self,
        token: &str,
        signature: [u8; SIGNATURE_BYTES],
        renewal: Option<wire::Renewal>,
    ) -> Result<Request, MessageError> {
        let body = wire::RequestBody {
            cluster: self.cluster.as_bytes().to_vec(),
            token: token.to_owned(),
            public_key: self.public_key.to_vec(),
            answer_key: self.answer_key.public.clone(),
            answer_secret: self.answer_secret.expose().to_vec(),
            signature: signature.to_vec(),
            renewal,
        };
        let body = Zeroizing::new(body.encode_to_vec());
        let (identity, info) = (self.identity_key.as_bytes(), request_info(self.cluster, self.identity_key.as_bytes()));
        let sealed = seal(identity, &body, &info, None, &self.seed.0).map_err(|_| MessageError::Sealed("request"))?;
        let Sealed { encapsulated_key, ciphertext } = sealed;
        let bytes = wire::Request { version: VERSION, encapsulated_key, ciphertext }.encode_to_vec();
        let id = request_id(&bytes);
        Ok(Request { bytes, id, answer_key: self.answer_key, answer_secret: self.answer_secret })
    }
}

impl<'a> Draft<'a> {
    /// `public_key`: a point of P-256, uncompressed.
    #[must_use]
    pub fn new(
        cluster: Uuid,
        token: &'a Token,
        public_key: [u8; PUBLIC_KEY_BYTES],
        identity_key: &'a IdentityKey,
        seed: &'a Seed,
    ) -> Self {
        Self { basis: Basis::new(cluster, public_key, identity_key, seed), token }
    }

    /// What the private key has to sign: ECDSA over P-256 with SHA-256, in the fixed form.
    #[must_use]
    pub fn to_sign(&self) -> Hash {
        let Basis { cluster, public_key, answer_key, answer_secret, .. } = &self.basis;
        proof(*cluster, self.token.expose(), public_key, &answer_key.public, answer_secret.expose())
    }

    /// Seals the request.
    ///
    /// # Errors
    /// Identity's key is not a key.
    pub fn seal(self, signature: [u8; SIGNATURE_BYTES]) -> Result<Request, MessageError> {
        self.basis.seal(self.token.expose(), signature, None)
    }
}

impl<'a> RenewalDraft<'a> {
    /// `public_key`: a point of P-256, uncompressed, other than that of the predecessor.
    #[must_use]
    pub fn new(
        cluster: Uuid,
        predecessor: &'a Predecessor,
        public_key: [u8; PUBLIC_KEY_BYTES],
        identity_key: &'a IdentityKey,
        seed: &'a Seed,
    ) -> Self {
        Self { basis: Basis::new(cluster, public_key, identity_key, seed), predecessor }
    }

    /// What both private keys have to sign: ECDSA over P-256 with SHA-256, in the fixed form.
    #[must_use]
    pub fn to_sign(&self) -> Hash {
        let Basis { cluster, public_key, identity_key, answer_key, answer_secret, .. } = &self.basis;
        let old = seal::Predecessor { serial: &self.predecessor.serial, public_key: &self.predecessor.public_key };
        renewal_proof(*cluster, identity_key.as_bytes(), &old, public_key, &answer_key.public, answer_secret.expose())
    }

    /// Seals the request. `signature`: by the key that shall be certified; `predecessor`: by that of the certificate there is.
    ///
    /// # Errors
    /// Identity's key is not a key.
    pub fn seal(
        self,
        signature: [u8; SIGNATURE_BYTES],
        predecessor: [u8; SIGNATURE_BYTES],
    ) -> Result<Request, MessageError> {
        let renewal = wire::Renewal {
            serial: self.predecessor.serial.clone(),
            public_key: self.predecessor.public_key.to_vec(),
            signature: predecessor.to_vec(),
        };
        self.basis.seal("", signature, Some(renewal))
    }
}

impl Request {
    /// Opens an answer.
    ///
    /// # Errors
    /// It does not answer this request, or Identity did not make it. Then it proves nothing, and the right answer may still come.
    pub fn open(&self, answer: &[u8]) -> Result<Result<Grant, Refusal>, MessageError> {
        const NAME: &str = "answer";
        let outer: wire::Answer = decode(NAME, answer)?;
        check_version(NAME, outer.version)?;
        if outer.request != self.id {
            return Err(MessageError::Foreign(NAME));
        }
        let info = answer_info(&self.id);
        let opened =
            open(&self.answer_key, &outer.encapsulated_key, &outer.ciphertext, &info, Some(&self.answer_secret));
        let opened = opened.map_err(|_| MessageError::Sealed(NAME))?;
        let body: wire::AnswerBody = decode(NAME, &opened)?;
        match (body.grant, body.refusal) {
            (Some(grant), None) => Ok(Ok(Grant {
                certificate: grant.certificate,
                authorities: grant.authorities,
                git_username: grant.git_username,
                git_password: SecretBytes::new(grant.git_password.into_bytes()),
            })),
            (None, Some(refusal)) => {
                Ok(Err(Refusal { code: RefusalCode::from_wire(refusal.code), text: refusal.text }))
            }
            _ => Err(MessageError::Malformed(NAME)),
        }
    }
}
