//! The second message: the issuer's answer to a hello, and its alternative, a refusal in clear.

use prost::Message;
use proto::join as wire;
use uuid::Uuid;

use super::{Fields, WireError, decode, decode_versioned};
use crate::limits::{
    CHALLENGE_BYTES_MAX, CLEAR_REFUSAL_BYTES_MAX, CREDENTIAL_BYTES_MAX, HASH_BYTES, ISSUER_KEY_BYTES_MAX,
    SIGNATURE_BYTES, VERSION,
};
use crate::refusal::Refusal;
use crate::selection::Selection;
use crate::terms::{RequestId, Suite, Variant};

/// What a challenge says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChallengeBody {
    /// Id of the attempt.
    pub request: RequestId,
    /// Freshness of the issuer.
    pub issuer_nonce: [u8; HASH_BYTES],
    /// End of the challenge by the issuer's clock, UTC ms. A hint for the host.
    pub expires_ms: u64,
    /// Which keys of the issuers it is made with.
    pub key_epoch: u32,
    /// The chosen suite.
    pub suite: Suite,
    /// The chosen variant.
    pub variant: Variant,
    /// Which policy will be applied.
    pub policy_epoch: u64,
    /// The cluster that is asked: the audience.
    pub cluster: Uuid,
    /// Key to seal the evidence to; not yet checked against the suite, because an issuer looks at the cookie first.
    pub issuer_key: Vec<u8>,
    /// Credential that only the TPM of the endorsement key opens, in the form of the variant.
    pub credential: Vec<u8>,
    /// Encoded certificates, the issuer first.
    pub issuer_certificates: Vec<Vec<u8>>,
    /// What the host has to quote.
    pub selection: Selection,
}

impl ChallengeBody {
    const NAME: &'static str = "challenge body";

    /// As in the challenge.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let body = wire::ChallengeBody {
            version: VERSION,
            request: self.request.0.to_vec(),
            issuer_nonce: self.issuer_nonce.to_vec(),
            expires_ms: self.expires_ms,
            key_epoch: self.key_epoch,
            suite: self.suite.to_wire(),
            variant: self.variant.name().to_owned(),
            policy_epoch: self.policy_epoch,
            cluster: self.cluster.as_bytes().to_vec(),
            issuer_key: self.issuer_key.clone(),
            credential: self.credential.clone(),
            issuer_certificates: self.issuer_certificates.clone(),
            bank: self.selection.bank().name().to_owned(),
            pcrs: self.selection.pcrs().iter().copied().map(u32::from).collect(),
        };
        body.encode_to_vec()
    }

    /// From a challenge.
    ///
    /// # Errors
    /// The [`WireError`] names the field and the rule.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let body: wire::ChallengeBody =
            decode_versioned(Self::NAME, bytes, CHALLENGE_BYTES_MAX, |body: &wire::ChallengeBody| body.version)?;
        let fields = Fields(Self::NAME);
        let suite = Suite::from_wire(body.suite).ok_or_else(|| fields.error("suite", "is not known"))?;
        let variant = Variant::from_name(&body.variant).ok_or_else(|| fields.error("variant", "is not known"))?;
        fields.some("credential", &body.credential, CREDENTIAL_BYTES_MAX)?;
        fields.issuer_certificates(&body.issuer_certificates)?;
        fields.some("issuer_key", &body.issuer_key, ISSUER_KEY_BYTES_MAX)?;
        Ok(Self {
            request: fields.request(&body.request)?,
            issuer_nonce: fields.hash("issuer_nonce", &body.issuer_nonce)?,
            expires_ms: body.expires_ms,
            key_epoch: body.key_epoch,
            suite,
            variant,
            policy_epoch: body.policy_epoch,
            cluster: fields.uuid("cluster", &body.cluster)?,
            issuer_key: body.issuer_key,
            credential: body.credential,
            issuer_certificates: body.issuer_certificates,
            selection: Selection::from_wire(&fields, &body.bank, &body.pcrs)?,
        })
    }
}

/// A challenge: its body as bytes, because cookie and signature cover these.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Challenge {
    /// An encoded [`ChallengeBody`].
    pub body: Vec<u8>,
    /// Code of the issuers over transcript and body: they keep no memory of a challenge.
    pub cookie: [u8; HASH_BYTES],
    /// Signature of the issuer.
    pub signature: [u8; SIGNATURE_BYTES],
}

impl Challenge {
    const NAME: &'static str = "challenge";

    /// As on the wire.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let challenge = wire::Challenge {
            body: self.body.clone(),
            cookie: self.cookie.to_vec(),
            signature: self.signature.to_vec(),
        };
        challenge.encode_to_vec()
    }

    /// From the wire; the body is not looked into.
    ///
    /// # Errors
    /// The [`WireError`] names the field and the rule.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let challenge: wire::Challenge = decode(Self::NAME, bytes, CHALLENGE_BYTES_MAX)?;
        let fields = Fields(Self::NAME);
        let cookie = fields.hash("cookie", &challenge.cookie)?;
        let signature = fields.array("signature", &challenge.signature)?;
        Ok(Self { body: challenge.body, cookie, signature })
    }
}

/// What a clear refusal says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClearRefusalBody {
    /// Id of the attempt.
    pub request: RequestId,
    /// Encoded certificates, the issuer first.
    pub issuer_certificates: Vec<Vec<u8>>,
    /// The reason; one that may be sent in clear.
    pub refusal: Refusal,
}

impl ClearRefusalBody {
    const NAME: &'static str = "clear refusal body";

    /// As in the clear refusal.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let body = wire::ClearRefusalBody {
            version: VERSION,
            request: self.request.0.to_vec(),
            issuer_certificates: self.issuer_certificates.clone(),
            refusal: Some(self.refusal.to_wire()),
        };
        body.encode_to_vec()
    }

    /// From a clear refusal.
    ///
    /// # Errors
    /// The [`WireError`] names the field and the rule.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let body: wire::ClearRefusalBody =
            decode_versioned(Self::NAME, bytes, CLEAR_REFUSAL_BYTES_MAX, |body: &wire::ClearRefusalBody| body.version)?;
        let fields = Fields(Self::NAME);
        fields.issuer_certificates(&body.issuer_certificates)?;
        let refusal = body.refusal.ok_or_else(|| fields.error("refusal", "is missing"))?;
        let refusal = Refusal::from_wire(refusal)?;
        if !refusal.code.may_be_clear() {
            return Err(fields.error("refusal", "has a code that is sent only under seal"));
        }
        Ok(Self { request: fields.request(&body.request)?, issuer_certificates: body.issuer_certificates, refusal })
    }
}

/// A refusal before the host has shown that it owns its TPM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClearRefusal {
    /// An encoded [`ClearRefusalBody`].
    pub body: Vec<u8>,
    /// Signature of the issuer.
    pub signature: [u8; SIGNATURE_BYTES],
}

impl ClearRefusal {
    const NAME: &'static str = "clear refusal";

    /// As on the wire.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        wire::ClearRefusal { body: self.body.clone(), signature: self.signature.to_vec() }.encode_to_vec()
    }

    /// From the wire; the body is not looked into.
    ///
    /// # Errors
    /// The [`WireError`] names the field and the rule.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let refusal: wire::ClearRefusal = decode(Self::NAME, bytes, CLEAR_REFUSAL_BYTES_MAX)?;
        let signature = Fields(Self::NAME).array("signature", &refusal.signature)?;
        Ok(Self { body: refusal.body, signature })
    }
}
