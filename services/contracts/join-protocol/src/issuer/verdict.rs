//! From evidence to verdict. Checks run in the order of their cost; the first that fails decides.
//!
//! Size and encoding; address and request; cookie; expiry; seal; proof under the activated credential. Until here the sender has proven nothing, so the only answer is
//! `challenge-expired`, which the cookie vouches for. Then body, endorsement key, attestation key, quote: each of these refuses under seal.

use super::claim::{Phase, Record};
use super::keys::EpochKeys;
use super::{Ignored, Issuer, RefusedInClear};
use crate::attestation::{Claims, Expected, HostKeys, Lock, Step, Verifier};
use crate::certificate::leaf_public_key;
use crate::message::challenge::{Challenge, ChallengeBody};
use crate::message::evidence::{Evidence, EvidenceBody, EvidenceContent};
use crate::message::hello::Hello;
use crate::refusal::{Refusal, RefusalCode};
use crate::seal::{Binding, is_public_key};
use crate::secret::Secret;
use crate::terms::{Address, Kind, RequestId, Variant};
use crate::transcript::{self, Hash};

/// Answer to evidence.
#[derive(Debug)]
pub enum EvidenceAnswer {
    /// The host is what it says. Claim the request, then grant or refuse.
    Verified(Box<Verified>),
    /// The host owns its TPM, but a check failed. Refuse under seal.
    Rejected(Box<Rejected>),
    /// Send this refusal.
    Refused(RefusedInClear),
    /// Send nothing.
    Ignored(Ignored),
}

/// The recipient of a ticket or a refusal. Only [`Issuer::on_evidence`] makes one, after the proof.
#[derive(Debug)]
pub struct Recipient {
    pub(super) hello: Hello,
    pub(super) challenge: ChallengeBody,
    pub(super) address: Address,
    pub(super) host_key: Vec<u8>,
    pub(super) credential_secret: Secret,
    pub(super) evidence_hash: Hash,
    pub(super) th3: Hash,
    qualifying_data: Hash,
}

/// Evidence that answers a challenge.
struct Answered<'a> {
    evidence: Evidence,
    hello: Hello,
    challenge_body: ChallengeBody,
    keys: &'a EpochKeys,
    th1: Hash,
}

/// In whose name evidence was sent.
#[derive(Debug)]
pub struct Recognised {
    hello: Hello,
    challenge: ChallengeBody,
}

impl Recognised {
    /// The keys of the named host.
    #[must_use]
    pub fn keys(&self) -> HostKeys<'_> {
        self.hello.keys(self.challenge.variant)
    }
}

/// A host whose evidence passed every check.
#[derive(Debug)]
pub struct Verified {
    pub(super) recipient: Recipient,
    body: EvidenceBody,
    claims: Claims,
}

/// A host that owns its TPM, but whose evidence failed a check.
#[derive(Debug)]
pub struct Rejected {
    pub(super) recipient: Recipient,
    /// Why.
    pub refusal: Refusal,
    /// What the host asks for, if that could be read.
    pub body: Option<EvidenceBody>,
    /// What its quote shows, if that is signed and about this request; the values were not judged.
    pub pcrs: Option<Vec<(u32, Hash)>>,
}

impl Recipient {
    /// The hello of the host.
    #[must_use]
    pub const fn hello(&self) -> &Hello {
        &self.hello
    }

    /// Where the host speaks.
    #[must_use]
    pub const fn address(&self) -> &Address {
        &self.address
    }

    /// Form of its keys.
    #[must_use]
    pub const fn variant(&self) -> Variant {
        self.challenge.variant
    }

    /// Id of its endorsement key.
    #[must_use]
    pub fn endorsement_key_id(&self) -> Hash {
        transcript::endorsement_key_id(&self.hello.endorsement_key)
    }

    /// Its keys.
    #[must_use]
    pub fn keys(&self) -> HostKeys<'_> {
        self.hello.keys(self.challenge.variant)
    }
}

impl Verified {
    /// The host that sent the evidence.
    #[must_use]
    pub const fn recipient(&self) -> &Recipient {
        &self.recipient
    }

    /// What the host asks for.
    #[must_use]
    pub const fn body(&self) -> &EvidenceBody {
        &self.body
    }

    /// What its quote shows.
    #[must_use]
    pub const fn claims(&self) -> &Claims {
        &self.claims
    }

    /// What is to be remembered of the request.
    #[must_use]
    pub fn record(&self) -> Record {
        let Recipient { hello, challenge, address, evidence_hash, th3, .. } = &self.recipient;
        Record {
            request: hello.request,
            evidence_hash: *evidence_hash,
            th3: *th3,
            key_epoch: challenge.key_epoch,
            address: address.clone(),
            kind: hello.kind,
            role: hello.role,
            disk: hello.disk,
            variant: challenge.variant,
            attestation_key: hello.attestation_key.clone(),
            endorsement_key: hello.endorsement_key.clone(),
            endorsement_certificates: hello.endorsement_certificates.clone(),
            node_name: self.body.node_name.clone(),
            boot: self.body.boot,
            sequence: 0,
            phase: Phase::Done,
        }
    }
}

impl Rejected {
    /// The host that sent the evidence.
    #[must_use]
    pub const fn recipient(&self) -> &Recipient {
        &self.recipient
    }
}

impl Issuer {
    /// Judges evidence that came from `address`. `now_ms`: the issuer's clock, UTC ms.
    ///
    /// Ask [`Record::answer_to`] first: a request that has its answer gets the same bytes again, also when its challenge is over.
    #[must_use]
    pub fn on_evidence(
        &self,
        address: &Address,
        message: &[u8],
        now_ms: u64,
        verifier: &dyn Verifier,
    ) -> EvidenceAnswer {
        match self.open(address, message, now_ms) {
            Ok((recipient, content)) => match self.judge(&recipient, &content, now_ms, verifier) {
                Ok((body, claims)) => EvidenceAnswer::Verified(Box::new(Verified { recipient, body, claims })),
                Err(refusal) => {
                    let body = EvidenceBody::decode(&content.body).ok();
                    let about = &recipient.qualifying_data;
                    let pcrs = verifier.read_pcrs(&recipient.keys(), &content.quote, about);
                    EvidenceAnswer::Rejected(Box::new(Rejected { recipient, refusal, body, pcrs }))
                }
            },
            Err(Unopened::Ignored(ignored)) => EvidenceAnswer::Ignored(ignored),
            Err(Unopened::Refused(request, th1, refusal)) => {
                EvidenceAnswer::Refused(self.refuse_in_clear(request, &th1, refusal))
            }
        }
    }

    /// In whose name evidence from `address` answers a challenge of this issuer. It costs one code, so call it before the rate of the named host is checked, and before [`Self::on_evidence`]. It does
    /// not show who sent the evidence: a challenge is sent in clear.
    ///
    /// # Errors
    /// It answers none; send nothing.
    pub fn recognise(&self, address: &Address, message: &[u8]) -> Result<Recognised, Ignored> {
        let Answered { hello, challenge_body, .. } = self.answered(address, message)?;
        Ok(Recognised { hello, challenge: challenge_body })
    }

    fn answered(&self, address: &Address, message: &[u8]) -> Result<Answered<'_>, Ignored> {
        let evidence = Evidence::decode(message)?;
        let hello = Hello::decode(&evidence.hello)?;
        let challenge = Challenge::decode(&evidence.challenge)?;
        let challenge_body = ChallengeBody::decode(&challenge.body)?;
        if address.group != self.policy.group || !address.is_of_disk(hello.disk) {
            return Err(Ignored::Address);
        }
        if hello.request != evidence.request || challenge_body.request != evidence.request {
            return Err(Ignored::Request);
        }
        let th1 = transcript::after_hello(&evidence.hello);
        let keys = self.keys.of_epoch(challenge_body.key_epoch).ok_or(Ignored::Cookie)?;
        if !keys.is_cookie(&th1, &challenge.body, &challenge.cookie) {
            return Err(Ignored::Cookie);
        }
        Ok(Answered { evidence, hello, challenge_body, keys, th1 })
    }

    /// The checks up to the proof.
    fn open(&self, address: &Address, message: &[u8], now_ms: u64) -> Result<(Recipient, EvidenceContent), Unopened> {
        let Answered { evidence, hello, challenge_body, keys, th1 } = self.answered(address, message)?;
        self.check_current(evidence.request, &th1, &challenge_body, now_ms)?;
        let th2 = transcript::after_challenge(&th1, &evidence.challenge);
        let content = unseal(keys, &challenge_body, &evidence, address, &th2)?;
        let credential_secret = keys.credential_secret(&th1, &challenge_body.issuer_nonce);
        let proved = transcript::proof_input(&th2, &content.host_key, &content.body, &content.quote);
        if !credential_secret.is_mac(&proved, &content.proof) || !is_public_key(challenge_body.suite, &content.host_key)
        {
            return Err(Ignored::Proof.into());
        }
        // The cookie vouches for the certificates: they are those of the replica that made the challenge.
        let issuer = leaf_public_key(&challenge_body.issuer_certificates).ok_or(Ignored::Cookie)?;
        let (kind, role) = (hello.kind, hello.role);
        let qualifying_data = transcript::qualifying_data(&th2, &content.host_key, &content.body, &issuer, role, kind);
        let recipient = Recipient {
            hello,
            challenge: challenge_body,
            address: address.clone(),
            host_key: content.host_key.clone(),
            credential_secret,
            evidence_hash: Record::evidence_hash(message),
            th3: transcript::after_evidence(&th2, message),
            qualifying_data,
        };
        Ok((recipient, content))
    }

    /// The challenge is ours, but may be over, by time or because the policy changed since.
    fn check_current(
        &self,
        request: RequestId,
        th1: &Hash,
        challenge: &ChallengeBody,
        now_ms: u64,
    ) -> Result<(), Unopened> {
        let policy = &self.policy;
        let detail = if now_ms > challenge.expires_ms {
            "the challenge is over"
        } else if challenge.policy_epoch != policy.policy_epoch || challenge.cluster != policy.cluster {
            "the policy has changed since the challenge"
        } else if !policy.variants.contains(&challenge.variant) || !policy.suites.contains(&challenge.suite) {
            "the policy does not allow the suite or the variant of the challenge any more"
        } else {
            return Ok(());
        };
        Err(Unopened::Refused(request, *th1, Refusal::new(RefusalCode::ChallengeExpired, detail)))
    }

    /// The checks after the proof.
    fn judge(
        &self,
        recipient: &Recipient,
        content: &EvidenceContent,
        now_ms: u64,
        verifier: &dyn Verifier,
    ) -> Result<(EvidenceBody, Claims), Refusal> {
        let Recipient { hello, .. } = recipient;
        let body = EvidenceBody::decode(&content.body)
            .map_err(|error| Refusal::new(RefusalCode::BodyInvalid, error.to_string()))?;
        if content.quote.is_empty() {
            return Err(Refusal::new(RefusalCode::QuoteMissing, "there is no quote"));
        }
        let keys = recipient.keys();
        verifier.check_endorsement(&keys, hello.kind, hello.role, now_ms)?;
        verifier.check_attestation_key(&keys)?;
        let lock = match (hello.kind, self.policy.locked_to) {
            // The opposite of all others: only a host that is locked to this cluster has something to renew.
            (Kind::Renew, Some(cluster_id)) => Lock::Extended(cluster_id),
            (Kind::Renew, None) => {
                let detail = "this issuer does not know what its members are locked to";
                return Err(Refusal::new(RefusalCode::Lock, detail));
            }
            (Kind::Join | Kind::Rejoin | Kind::Recover | Kind::Init, _) => Lock::Open,
        };
        let expected = Expected { qualifying_data: recipient.qualifying_data, lock, step: Step::Evidence };
        let claims = verifier.check_quote(&keys, &content.quote, &expected)?;
        Ok((body, claims))
    }
}

fn unseal(
    keys: &EpochKeys,
    challenge: &ChallengeBody,
    evidence: &Evidence,
    address: &Address,
    th2: &Hash,
) -> Result<EvidenceContent, Unopened> {
    let pair = keys.pair(challenge.suite).ok_or(Ignored::Seal)?;
    let binding = Binding {
        info: transcript::evidence_info(th2),
        additional_data: transcript::additional_data(address, evidence.request),
        psk: None,
    };
    let content = pair.open(&evidence.encapsulated_key, &evidence.ciphertext, &binding).map_err(|_| Ignored::Seal)?;
    Ok(EvidenceContent::decode(&content).map_err(Ignored::Wire)?)
}

/// Evidence that did not get as far as the proof.
enum Unopened {
    Ignored(Ignored),
    Refused(RequestId, Hash, Refusal),
}

impl From<Ignored> for Unopened {
    fn from(ignored: Ignored) -> Self {
        Self::Ignored(ignored)
    }
}
