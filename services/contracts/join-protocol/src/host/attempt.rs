//! One attempt of a host: a type a state, so that no step can be skipped or taken twice.
//!
//! ```text
//! HelloSent --challenge--> Challenged --activated credential--> Quoting --quote--> EvidenceSent --ticket--> Opened
//!                                                                                       |                     | lock, second quote
//!                                                                                       +--> Refused          v
//!                                                                                                         Committed
//! ```
//!
//! A message that is not believed leaves the state as it was: the broker must not be able to end an attempt. The only way back from [`super::Committed`] is a reboot.

use std::fmt;
use std::sync::Arc;

use zeroize::Zeroizing;

use super::member::{Member, Opened, Renewed};
pub use super::settings::HostSettings;
use crate::certificate::{ChainError, PublicKey, is_signed};
use crate::limits::QUOTE_BYTES_MAX;
use crate::message::challenge::{Challenge, ChallengeBody, ClearRefusal, ClearRefusalBody};
use crate::message::evidence::{Evidence, EvidenceContent};
use crate::message::hello::Hello;
use crate::message::ticket::{Ticket, TicketBody, TicketContent, TicketPayload};
use crate::message::{Fields, WireError};
use crate::refusal::Refusal;
use crate::seal::{Binding, KeyPair, is_public_key, seal};
use crate::secret::{Entropy, Secret};
use crate::selection::{Selection, SelectionError};
use crate::terms::{HostClock, Kind, RequestId, Suite, Variant};
use crate::transcript::{self, Hash};

/// An input was not believed, and the state as it was.
#[derive(Debug)]
pub struct Unauthenticated<S, E> {
    /// The state, unchanged.
    pub state: S,
    /// Why.
    pub error: E,
}

/// A challenge or a clear refusal is not believed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChallengeError {
    /// Cannot be read.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// Not about this attempt: of an older one, or of another host.
    #[error("it is about another attempt")]
    Request,
    /// Not of an issuer of the pinned root and cluster.
    #[error(transparent)]
    Chain(#[from] ChainError),
    /// Everything is as it must be, but for the time: the issuer answered this hello, so what is wrong is this host's clock, or the certificate is over.
    #[error(
        "the issuer's certificate is not valid at the time of this machine's clock: set the clock, or issue the certificate again"
    )]
    Clock,
    /// Certified for the cluster, but speaks for another.
    #[error("it speaks for another cluster than its certificate")]
    Cluster,
    /// Changed on the way, or made for another hello.
    #[error("the signature is not that of the issuer over this hello")]
    Signature,
    /// Chose what was not offered: an attacker wants to weaken the attempt.
    #[error("it chose a suite or a variant that was not offered")]
    NotOffered,
    /// Asks for a quote that would not show what it is for.
    #[error(transparent)]
    Selection(#[from] SelectionError),
}

/// A ticket is not believed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TicketError {
    /// Cannot be read.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// Not about this attempt.
    #[error("it is about another attempt")]
    Request,
    /// Not of an issuer of the pinned root and cluster.
    #[error(transparent)]
    Chain(#[from] ChainError),
    /// Changed on the way, or made for other evidence.
    #[error("the signature is not that of the issuer over this evidence")]
    Signature,
    /// Not sealed to this host and its TPM.
    #[error("it cannot be opened with the keys of this attempt")]
    Seal,
}

/// A hello is sent.
#[derive(Debug)]
pub struct HelloSent {
    settings: Arc<HostSettings>,
    request: RequestId,
    message: Vec<u8>,
    th1: Hash,
}

/// A challenge is accepted; the TPM has to activate its credential.
#[derive(Debug)]
pub struct Challenged {
    settings: Arc<HostSettings>,
    request: RequestId,
    hello: Vec<u8>,
    challenge: Vec<u8>,
    body: ChallengeBody,
    issuer: PublicKey,
    th2: Hash,
}

/// The credential is activated; the TPM has to quote.
pub struct Quoting {
    challenged: Challenged,
    secret: Secret,
    key: KeyPair,
    evidence_body: Vec<u8>,
}

/// Evidence is sent.
pub struct EvidenceSent {
    settings: Arc<HostSettings>,
    request: RequestId,
    suite: Suite,
    selection: Selection,
    secret: Secret,
    key: KeyPair,
    message: Vec<u8>,
    th3: Hash,
}

/// What a ticket turned out to be.
#[derive(Debug)]
pub enum TicketOutcome {
    /// A ticket.
    Opened(Box<Opened>),
    /// Certificates of a member.
    Renewed(Box<Renewed>),
    /// A refusal.
    Refused(Refusal),
}

impl HelloSent {
    /// Begins an attempt.
    ///
    /// # Errors
    /// What the settings ask for breaks a rule of the wire.
    pub fn new(settings: Arc<HostSettings>, entropy: &Entropy) -> Result<Self, WireError> {
        settings.body.check()?;
        let request = RequestId(entropy.bytes("request"));
        let hello = Hello {
            request,
            host_nonce: entropy.bytes("host nonce"),
            kind: settings.kind,
            role: settings.role,
            disk: settings.disk,
            suites: settings.suites.clone(),
            variants: settings.variant.offers().to_vec(),
            attestation_key: settings.attestation_key.clone(),
            endorsement_key: settings.endorsement_key.clone(),
            endorsement_certificates: settings.endorsement_certificates.clone(),
        };
        let message = hello.encode();
        // What an issuer would refuse is an error here already, where the cause is.
        Hello::decode(&message)?;
        let th1 = transcript::after_hello(&message);
        Ok(Self { settings, request, message, th1 })
    }

    /// Id of the attempt.
    #[must_use]
    pub const fn request(&self) -> RequestId {
        self.request
    }

    /// The hello; a repeat is the same bytes.
    #[must_use]
    pub fn message(&self) -> &[u8] {
        &self.message
    }

    /// Checks a challenge before anything is asked of the TPM: chain, audience, signature, and that it chose what was offered.
    ///
    /// # Errors
    /// The first check that fails; the attempt keeps waiting.
    pub fn on_challenge(
        self,
        message: &[u8],
        clock: HostClock,
    ) -> Result<Challenged, Box<Unauthenticated<Self, ChallengeError>>> {
        match self.check_challenge(message, clock) {
            Ok((body, issuer)) => Ok(Challenged {
                th2: transcript::after_challenge(&self.th1, message),
                settings: self.settings,
                request: self.request,
                hello: self.message,
                challenge: message.to_vec(),
                body,
                issuer,
            }),
            Err(error) => Err(Box::new(Unauthenticated { state: self, error })),
        }
    }

    fn check_challenge(&self, message: &[u8], clock: HostClock) -> Result<(ChallengeBody, PublicKey), ChallengeError> {
        match self.check_challenge_at(message, clock) {
            Err(ChallengeError::Chain(ChainError::Time))
                if self.check_challenge_at(message, HostClock::Unset).is_ok() =>
            {
                Err(ChallengeError::Clock)
            }
            checked => checked,
        }
    }

    fn check_challenge_at(
        &self,
        message: &[u8],
        clock: HostClock,
    ) -> Result<(ChallengeBody, PublicKey), ChallengeError> {
        let challenge = Challenge::decode(message)?;
        let body = ChallengeBody::decode(&challenge.body)?;
        if body.request != self.request {
            return Err(ChallengeError::Request);
        }
        let anchor = &self.settings.anchor;
        let issuer = anchor.check(&body.issuer_certificates, self.settings.kind.issuer_purpose(), clock)?;
        if body.cluster != anchor.cluster {
            return Err(ChallengeError::Cluster);
        }
        let signed = transcript::challenge_signed(&self.th1, &challenge.body, &challenge.cookie);
        if !is_signed(&issuer, &signed, &challenge.signature) {
            return Err(ChallengeError::Signature);
        }
        if !self.settings.suites.contains(&body.suite) || !self.settings.variant.offers().contains(&body.variant) {
            return Err(ChallengeError::NotOffered);
        }
        if !is_public_key(body.suite, &body.issuer_key) {
            return Err(Fields("challenge body").error("issuer_key", "is not a public key of the suite").into());
        }
        body.selection.check_for(self.settings.lock_pcr)?;
        Ok((body, issuer))
    }

    /// Checks a refusal in clear. The attempt is over if it is believed.
    ///
    /// # Errors
    /// The first check that fails; the attempt keeps waiting.
    pub fn on_clear_refusal(&self, message: &[u8], clock: HostClock) -> Result<Refusal, ChallengeError> {
        check_clear_refusal(&self.settings, self.request, &self.th1, message, clock)
    }
}

fn check_clear_refusal(
    settings: &HostSettings,
    request: RequestId,
    th1: &Hash,
    message: &[u8],
    clock: HostClock,
) -> Result<Refusal, ChallengeError> {
    let outer = ClearRefusal::decode(message)?;
    let body = ClearRefusalBody::decode(&outer.body)?;
    if body.request != request {
        return Err(ChallengeError::Request);
    }
    let issuer = settings.anchor.check(&body.issuer_certificates, settings.kind.issuer_purpose(), clock)?;
    if !is_signed(&issuer, &transcript::clear_refusal_signed(th1, &outer.body), &outer.signature) {
        return Err(ChallengeError::Signature);
    }
    Ok(body.refusal)
}

impl Challenged {
    /// The credential for the TPM, in the form of the variant.
    #[must_use]
    pub fn credential(&self) -> &[u8] {
        &self.body.credential
    }

    /// Takes what the TPM gave out for the credential, and makes the ephemeral key.
    #[must_use]
    pub fn on_credential_activated(self, secret: Secret, entropy: &Entropy) -> Quoting {
        let key = KeyPair::derive(self.body.suite, &entropy.secret("host key"));
        let evidence_body = self.settings.body.encode();
        Quoting { challenged: self, secret, key, evidence_body }
    }
}

impl Quoting {
    /// What the TPM has to quote over.
    #[must_use]
    pub fn qualifying_data(&self) -> Hash {
        let Challenged { settings, th2, issuer, .. } = &self.challenged;
        transcript::qualifying_data(th2, &self.key.public, &self.evidence_body, issuer, settings.role, settings.kind)
    }

    /// Which PCRs it has to quote.
    #[must_use]
    pub const fn selection(&self) -> &Selection {
        &self.challenged.body.selection
    }

    /// In which form.
    #[must_use]
    pub const fn variant(&self) -> Variant {
        self.challenged.body.variant
    }

    /// Takes the quote and seals the evidence.
    ///
    /// # Errors
    /// The quote is too large, or the evidence as a whole.
    pub fn on_quoted(self, quote: Vec<u8>, entropy: &Entropy) -> Result<EvidenceSent, WireError> {
        let fields = Fields("evidence");
        fields.at_most("quote", &quote, QUOTE_BYTES_MAX)?;
        let Self { challenged, secret, key, evidence_body } = self;
        let Challenged { settings, request, hello, challenge, body, th2, .. } = challenged;
        let proof = secret.mac(&transcript::proof_input(&th2, &key.public, &evidence_body, &quote));
        let content = EvidenceContent { host_key: key.public.clone(), body: evidence_body, quote, proof };
        let binding = Binding {
            info: transcript::evidence_info(&th2),
            additional_data: transcript::additional_data(&settings.address, request),
            psk: None,
        };
        let randomness = entropy.secret("evidence");
        let sealed = seal(body.suite, &body.issuer_key, &content.encode(), &binding, randomness)
            .map_err(|_| fields.error("issuer_key", "cannot be sealed to"))?;
        let (encapsulated_key, ciphertext) = (sealed.encapsulated_key, sealed.ciphertext);
        let message = Evidence { request, hello, challenge, encapsulated_key, ciphertext }.encode();
        Evidence::decode(&message)?;
        let th3 = transcript::after_evidence(&th2, &message);
        let ChallengeBody { suite, selection, .. } = body;
        Ok(EvidenceSent { settings, request, suite, selection, secret, key, message, th3 })
    }
}

impl EvidenceSent {
    /// The evidence; a repeat is the same bytes.
    #[must_use]
    pub fn message(&self) -> &[u8] {
        &self.message
    }

    /// Checks and opens a ticket.
    ///
    /// # Errors
    /// The first check that fails; the attempt keeps waiting.
    pub fn on_ticket(
        self,
        message: &[u8],
        clock: HostClock,
    ) -> Result<TicketOutcome, Box<Unauthenticated<Self, TicketError>>> {
        match self.open(message, clock) {
            Ok((content, th4)) => Ok(match content.verdict {
                Err(refusal) => TicketOutcome::Refused(refusal),
                Ok(TicketPayload::Renewal(renewal)) => {
                    let (request, acknowledgement_key) = (self.request, content.acknowledgement_key);
                    let member = Member { request, acknowledgement_key, th4 };
                    TicketOutcome::Renewed(Box::new(Renewed { renewal, member }))
                }
                Ok(TicketPayload::Grant(grant)) => {
                    let (grant, acknowledgement_key) = (*grant, content.acknowledgement_key);
                    let Self { settings, request, suite, selection, .. } = self;
                    let member = Member { request, acknowledgement_key, th4 };
                    TicketOutcome::Opened(Box::new(Opened { settings, request, suite, selection, grant, member }))
                }
            }),
            Err(error) => Err(Box::new(Unauthenticated { state: self, error })),
        }
    }

    fn open(&self, message: &[u8], clock: HostClock) -> Result<(TicketContent, Hash), TicketError> {
        let ticket = Ticket::decode(message)?;
        let body = TicketBody::decode(&ticket.body)?;
        if body.request != self.request {
            return Err(TicketError::Request);
        }
        let HostSettings { anchor, kind, role, address, .. } = &*self.settings;
        // Any replica of the same cluster may answer, not only the one that made the challenge.
        let issuer = anchor.check(&body.issuer_certificates, kind.issuer_purpose(), clock)?;
        let th4 = transcript::after_ticket(&self.th3, &ticket.body);
        if !is_signed(&issuer, &th4, &ticket.signature) {
            return Err(TicketError::Signature);
        }
        let binding = Binding {
            info: transcript::ticket_info(&self.th3),
            additional_data: transcript::additional_data(address, self.request),
            psk: Some((&self.secret, &self.request.0)),
        };
        let padded: Zeroizing<Vec<u8>> =
            self.key.open(&body.encapsulated_key, &body.ciphertext, &binding).map_err(|_| TicketError::Seal)?;
        let content = TicketContent::decode_padded(&padded, *role)?;
        match &content.verdict {
            Ok(TicketPayload::Grant(grant)) => grant.check_for(*kind, *role)?,
            Ok(TicketPayload::Renewal(_)) if *kind != Kind::Renew => {
                return Err(Fields("renewal").error("node_name", format!("does not belong to {kind}")).into());
            }
            Ok(TicketPayload::Renewal(_)) | Err(_) => {}
        }
        Ok((content, th4))
    }

    /// Checks a refusal in clear. The attempt is over if it is believed.
    ///
    /// # Errors
    /// The first check that fails; the attempt keeps waiting.
    pub fn on_clear_refusal(&self, message: &[u8], clock: HostClock) -> Result<Refusal, ChallengeError> {
        let evidence = Evidence::decode(&self.message)?;
        let th1 = transcript::after_hello(&evidence.hello);
        check_clear_refusal(&self.settings, self.request, &th1, message, clock)
    }
}

impl fmt::Debug for Quoting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Quoting").field("request", &self.challenged.request).finish_non_exhaustive()
    }
}

impl fmt::Debug for EvidenceSent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EvidenceSent").field("request", &self.request).finish_non_exhaustive()
    }
}
