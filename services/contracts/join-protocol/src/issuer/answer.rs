//! Tickets and refusals, sealed to the host and its TPM. From outside they look the same: same size for the same role, same form, same signature.

use super::{Issuer, Recipient, Verified};
use crate::message::grant::Grant;
use crate::message::renewal::Renewal;
use crate::message::ticket::{ContentTooLarge, Ticket, TicketBody, TicketContent, TicketPayload};
use crate::message::{Fields, WireError};
use crate::refusal::Refusal;
use crate::seal::{Binding, seal};
use crate::secret::{Entropy, Secret};
use crate::terms::{Kind, RequestId};
use crate::transcript::{self, Hash};

/// A sealed ticket or refusal, ready to be stored and sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuerResponse {
    /// Id of the attempt.
    pub request: RequestId,
    /// The message. To be sent again as it is.
    pub message: Vec<u8>,
    /// Transcript after it.
    pub th4: Hash,
}

/// A ticket cannot be made of this grant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GrantError {
    /// It is not for this kind of request.
    #[error(transparent)]
    NotFor(#[from] WireError),
    /// It does not fit into the size of all tickets.
    #[error(transparent)]
    TooLarge(#[from] ContentTooLarge),
    /// The keys of the epoch of the challenge are gone; the host has to begin again.
    #[error("the keys of the challenge's epoch are gone")]
    KeysGone,
    /// The host's key cannot be sealed to.
    #[error("the ephemeral key of the host cannot be sealed to")]
    HostKey,
}

impl Issuer {
    /// Seals a ticket. Every call with other `entropy` gives other bytes: store the first answer, and send only what is stored.
    ///
    /// # Errors
    /// The [`GrantError`] says what is wrong with the grant.
    pub fn grant(&self, verified: &Verified, grant: Grant, entropy: Entropy) -> Result<IssuerResponse, GrantError> {
        let recipient = verified.recipient();
        grant.check_for(recipient.hello.kind, recipient.hello.role)?;
        self.seal_answer(recipient, Ok(TicketPayload::Grant(Box::new(grant))), Some(entropy))
    }

    /// Seals a ticket that renews the certificates of a member. As [`Self::grant`]; no key has a place in it.
    ///
    /// # Errors
    /// The host asked for something else; or as [`Self::grant`].
    pub fn renew(&self, verified: &Verified, renewal: Renewal, entropy: Entropy) -> Result<IssuerResponse, GrantError> {
        let recipient = verified.recipient();
        if recipient.hello.kind != Kind::Renew {
            let rule = format!("does not belong to {}", recipient.hello.kind);
            return Err(Fields("renewal").error("node_name", rule).into());
        }
        self.seal_answer(recipient, Ok(TicketPayload::Renewal(renewal)), Some(entropy))
    }

    /// Seals a refusal. The same refusal of the same evidence always gives the same bytes, so none has to be stored.
    ///
    /// # Errors
    /// [`GrantError::KeysGone`] or [`GrantError::HostKey`].
    pub fn refuse(&self, recipient: &Recipient, refusal: Refusal) -> Result<IssuerResponse, GrantError> {
        self.seal_answer(recipient, Err(refusal), None)
    }

    pub(super) fn seal_answer(
        &self,
        recipient: &Recipient,
        verdict: Result<TicketPayload, Refusal>,
        entropy: Option<Entropy>,
    ) -> Result<IssuerResponse, GrantError> {
        let Recipient { hello, challenge, th3, .. } = recipient;
        let keys = self.keys.of_epoch(challenge.key_epoch).ok_or(GrantError::KeysGone)?;
        let content = TicketContent { acknowledgement_key: keys.acknowledgement_key(th3), verdict };
        let padded = content.encode_padded(hello.role)?;
        let randomness: Secret = match &entropy {
            Some(entropy) => entropy.secret("ticket"),
            None => keys.refusal_randomness(th3, &padded),
        };
        let request = hello.request;
        let binding = Binding {
            info: transcript::ticket_info(th3),
            additional_data: transcript::additional_data(&recipient.address, request),
            psk: Some((&recipient.credential_secret, &request.0)),
        };
        let sealed = seal(challenge.suite, &recipient.host_key, &padded, &binding, randomness)
            .map_err(|_| GrantError::HostKey)?;
        let body = TicketBody {
            request,
            issuer_certificates: self.certificates.clone(),
            encapsulated_key: sealed.encapsulated_key,
            ciphertext: sealed.ciphertext,
        };
        let body = body.encode();
        let th4 = transcript::after_ticket(th3, &body);
        let signature = self.signing_key.sign(&th4);
        Ok(IssuerResponse { request, message: Ticket { body, signature }.encode(), th4 })
    }
}
