//! What a host with a ticket reports: its progress, and that it is locked to the cluster.

use super::{Issuer, Phase, Record};
use crate::attestation::{Claims, Expected, Lock, Step, Verifier};
use crate::message::WireError;
use crate::message::acknowledgement::{Acknowledgement, Authenticated, Progress};
use crate::metrics::HostMessage;
use crate::refusal::Refusal;
use crate::secret::Secret;
use crate::terms::Address;
use crate::transcript::{self, Hash};

/// A host is locked to the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acknowledged {
    /// What its second quote shows.
    pub claims: Claims,
    /// Of an init: encapsulated key and ciphertext of the result, for [`crate::result`].
    pub sealed_result: Option<(Vec<u8>, Vec<u8>)>,
}

/// A progress or an acknowledgement is not believed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MemberError {
    /// Cannot be read.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// From another address or about another request.
    #[error("the message is not of the host of this request")]
    NotOfRequest,
    /// The request has no ticket, so no party can know its key.
    #[error("the request has no ticket")]
    NoTicket,
    /// The keys of the epoch are gone.
    #[error("the keys of the request's epoch are gone")]
    KeysGone,
    /// Not authenticated under the key of the ticket.
    #[error("the message is not of who opened the ticket")]
    Mac,
    /// Not newer than what is known.
    #[error("progress {sequence} is not after {last}")]
    Old {
        /// Its sequence.
        sequence: u32,
        /// The last known one.
        last: u32,
    },
    /// The second quote does not show what it must.
    #[error("the second quote is refused: {0}")]
    Quote(Refusal),
}

/// What the code of a message is computed over: of the transcript and the message's body.
type TranscriptInput = fn(&Hash, &[u8]) -> Hash;

impl Issuer {
    /// Reads a progress of the request of `record`. The caller stores the new sequence.
    ///
    /// # Errors
    /// The [`MemberError`] says why it is not believed; ignore it then.
    pub fn on_progress(&self, record: &Record, address: &Address, message: &[u8]) -> Result<Progress, MemberError> {
        let authenticated = Authenticated::decode_progress(message)?;
        self.authentic(record, address, &authenticated, transcript::progress_input)?;
        let progress = Progress::decode(&authenticated.body)?;
        if progress.request != record.request {
            return Err(MemberError::NotOfRequest);
        }
        if progress.sequence <= record.sequence {
            return Err(MemberError::Old { sequence: progress.sequence, last: record.sequence });
        }
        Ok(progress)
    }

    /// Reads an acknowledgement of the request of `record`; its second quote must show the lock PCR extended with `cluster_id`.
    ///
    /// # Errors
    /// The [`MemberError`] says why it is not believed; ignore it then.
    pub fn on_acknowledgement(
        &self,
        record: &Record,
        address: &Address,
        message: &[u8],
        cluster_id: &Hash,
        verifier: &dyn Verifier,
    ) -> Result<Acknowledged, MemberError> {
        let authenticated = Authenticated::decode_acknowledgement(message)?;
        let th4 = self.authentic(record, address, &authenticated, transcript::acknowledgement_input)?;
        let acknowledgement = Acknowledgement::decode(&authenticated.body)?;
        if acknowledgement.request != record.request {
            return Err(MemberError::NotOfRequest);
        }
        let qualifying_data = transcript::second_qualifying_data(&th4);
        let expected = Expected { qualifying_data, lock: Lock::Extended(*cluster_id), step: Step::Acknowledgement };
        let claims =
            verifier.check_quote(&record.keys(), &acknowledgement.quote, &expected).map_err(MemberError::Quote)?;
        let sealed_result = (!acknowledgement.ciphertext.is_empty())
            .then_some((acknowledgement.encapsulated_key, acknowledgement.ciphertext));
        Ok(Acknowledged { claims, sealed_result })
    }

    /// Whether the sender of a progress or an acknowledgement opened the ticket of the request of `record`. It costs one code; the content of the message is not read.
    #[must_use]
    pub fn is_of_member(&self, record: &Record, address: &Address, message: &HostMessage) -> bool {
        let (authenticated, input): (_, TranscriptInput) = match message {
            HostMessage::Progress(bytes) => (Authenticated::decode_progress(bytes), transcript::progress_input),
            HostMessage::Acknowledgement(bytes) => {
                (Authenticated::decode_acknowledgement(bytes), transcript::acknowledgement_input)
            }
            HostMessage::Hello(_) | HostMessage::Evidence(_) => return false,
        };
        authenticated.is_ok_and(|authenticated| self.authentic(record, address, &authenticated, input).is_ok())
    }

    /// The transcript that the code of a message is bound to, if the code is that of the host that opened the ticket.
    fn authentic(
        &self,
        record: &Record,
        address: &Address,
        authenticated: &Authenticated,
        input: TranscriptInput,
    ) -> Result<Hash, MemberError> {
        let (key, th4) = self.member_key(record, address)?;
        let is_mac = key.is_mac(&input(&th4, &authenticated.body), &authenticated.mac);
        if is_mac { Ok(th4) } else { Err(MemberError::Mac) }
    }

    fn member_key(&self, record: &Record, address: &Address) -> Result<(Secret, Hash), MemberError> {
        if *address != record.address {
            return Err(MemberError::NotOfRequest);
        }
        let (Phase::Granted { th4, .. } | Phase::Acknowledged { th4 }) = record.phase else {
            return Err(MemberError::NoTicket);
        };
        let keys = self.keys.of_epoch(record.key_epoch).ok_or(MemberError::KeysGone)?;
        Ok((keys.acknowledgement_key(&record.th3), th4))
    }
}
