//! From hello to challenge: the cheap part, which any client can make an issuer do. It costs one wrapping for a TPM and one signature, and leaves nothing behind.

use super::{Ignored, Issuer, RefusedInClear};
use crate::attestation::Verifier;
use crate::limits::CHALLENGE_LIFETIME_MS;
use crate::message::WireError;
use crate::message::challenge::{Challenge, ChallengeBody, ClearRefusal, ClearRefusalBody};
use crate::message::hello::Hello;
use crate::refusal::{Refusal, RefusalCode};
use crate::secret::Entropy;
use crate::terms::{Address, RequestId};
use crate::transcript::{self, Hash};

/// Answer to a hello.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HelloAnswer {
    /// Send this challenge.
    Challenge {
        /// Id of the attempt.
        request: RequestId,
        /// The message.
        message: Vec<u8>,
    },
    /// Send this refusal.
    Refused(RefusedInClear),
    /// Send nothing.
    Ignored(Ignored),
}

impl Issuer {
    /// Answers a hello that came from `address`. `now_ms`: the issuer's clock, UTC ms.
    #[must_use]
    pub fn on_hello(
        &self,
        address: &Address,
        message: &[u8],
        now_ms: u64,
        entropy: Entropy,
        verifier: &dyn Verifier,
    ) -> HelloAnswer {
        let th1 = transcript::after_hello(message);
        let hello = match Hello::decode(message) {
            Ok(hello) => hello,
            Err(error) => return self.on_unreadable_hello(address, message, &th1, error),
        };
        if address.group != self.policy.group || !address.is_of_disk(hello.disk) {
            return HelloAnswer::Ignored(Ignored::Address);
        }
        match self.challenge(&hello, &th1, now_ms, &entropy, verifier) {
            Ok(message) => HelloAnswer::Challenge { request: hello.request, message },
            Err(refusal) => HelloAnswer::Refused(self.refuse_in_clear(hello.request, &th1, refusal)),
        }
    }

    /// A host of another release is sent what is wrong; noise is not answered.
    fn on_unreadable_hello(&self, address: &Address, message: &[u8], th1: &Hash, error: WireError) -> HelloAnswer {
        let code = match &error {
            WireError::Version { .. } => RefusalCode::VersionUnsupported,
            WireError::Field { .. } => RefusalCode::HelloInvalid,
            _ => return HelloAnswer::Ignored(Ignored::Wire(error)),
        };
        match Hello::request_of(message) {
            Some(request) if address.group == self.policy.group => {
                HelloAnswer::Refused(self.refuse_in_clear(request, th1, Refusal::new(code, error.to_string())))
            }
            _ => HelloAnswer::Ignored(Ignored::Wire(error)),
        }
    }

    fn challenge(
        &self,
        hello: &Hello,
        th1: &Hash,
        now_ms: u64,
        entropy: &Entropy,
        verifier: &dyn Verifier,
    ) -> Result<Vec<u8>, Refusal> {
        let refused = |code, detail: &str| Refusal::new(code, detail);
        if !self.policy.kinds.contains(&hello.kind) {
            return Err(refused(RefusalCode::KindUnsupported, "this issuer does not answer requests of this kind"));
        }
        let suite = self.policy.suites.iter().copied().find(|suite| hello.suites.contains(suite));
        let suite = suite.ok_or_else(|| refused(RefusalCode::SuiteUnsupported, "none of the suites is allowed"))?;
        let variant = self.policy.variants.iter().copied().find(|variant| hello.variants.contains(variant));
        let variant =
            variant.ok_or_else(|| refused(RefusalCode::VariantUnsupported, "none of the variants is allowed"))?;
        let keys = self.keys.current();
        let pair = keys.pair(suite).ok_or_else(|| refused(RefusalCode::SuiteUnsupported, "no key of this suite"))?;
        let issuer_nonce = entropy.bytes("issuer nonce");
        let secret = keys.credential_secret(th1, &issuer_nonce);
        let credential = verifier
            .make_credential(&hello.keys(variant), &secret, &keys.credential_randomness(th1, &issuer_nonce))
            .map_err(|error| refused(RefusalCode::KeyInvalid, &error.0))?;
        let body = ChallengeBody {
            request: hello.request,
            issuer_nonce,
            expires_ms: now_ms.saturating_add(CHALLENGE_LIFETIME_MS),
            key_epoch: keys.epoch,
            suite,
            variant,
            policy_epoch: self.policy.policy_epoch,
            cluster: self.policy.cluster,
            issuer_key: pair.public.clone(),
            credential,
            issuer_certificates: self.certificates.clone(),
            selection: verifier.selection(variant),
        };
        let body = body.encode();
        let cookie = keys.cookie(th1, &body);
        let signature = self.signing_key.sign(&transcript::challenge_signed(th1, &body, &cookie));
        Ok(Challenge { body, cookie, signature }.encode())
    }

    /// Signs a refusal that may be sent in clear, for the hello with this transcript.
    pub(super) fn refuse_in_clear(&self, request: RequestId, th1: &Hash, refusal: Refusal) -> RefusedInClear {
        let body =
            ClearRefusalBody { request, issuer_certificates: self.certificates.clone(), refusal: refusal.clone() };
        let body = body.encode();
        let signature = self.signing_key.sign(&transcript::clear_refusal_signed(th1, &body));
        RefusedInClear { request, refusal, message: ClearRefusal { body, signature }.encode() }
    }

    /// Refuses a hello because there is too much to do. The caller decides that, before [`Self::on_hello`].
    ///
    /// # Errors
    /// The hello cannot be read; send nothing.
    pub fn refuse_busy(&self, message: &[u8], retry_after_ms: u64) -> Result<RefusedInClear, WireError> {
        let hello = Hello::decode(message)?;
        let refusal = Refusal::new(RefusalCode::Busy, "too many requests").retry_after_ms(retry_after_ms);
        Ok(self.refuse_in_clear(hello.request, &transcript::after_hello(message), refusal))
    }
}
