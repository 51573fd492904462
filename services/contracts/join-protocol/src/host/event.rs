//! Everything that happens to a joining host and everything that it does. Begin here.

use crate::message::acknowledgement::Stage;
use crate::metrics::HostMessage;
use crate::refusal::Refusal;
use crate::secret::Secret;
use crate::selection::Selection;
use crate::terms::{RequestId, Variant};
use crate::transcript::Hash;

/// What happens to a host.
#[derive(Debug)]
pub enum Event<'a> {
    /// Begin.
    Start,
    /// A challenge came.
    Challenge(&'a [u8]),
    /// A refusal in clear came.
    ClearRefusal(&'a [u8]),
    /// A ticket came.
    Ticket(&'a [u8]),
    /// What was refused may be granted now. Any client of the broker can send this.
    AskAgain,
    /// The TPM gave out the secret of the credential.
    CredentialActivated(RequestId, Secret),
    /// The TPM quoted.
    Quoted(RequestId, Vec<u8>),
    /// The TPM refused to activate or to quote.
    TpmFailed(RequestId, String),
    /// The lock PCR is extended; the second quote, and of an init the result.
    Locked {
        /// Id of the attempt.
        request: RequestId,
        /// Second quote.
        quote: Vec<u8>,
        /// Result of an init.
        result: Option<Vec<u8>>,
    },
    /// The host got further, or failed; text for people.
    Stage(Stage, String),
    /// A deadline may have passed.
    Timer,
}

/// What a host does.
#[derive(Debug, PartialEq, Eq)]
pub enum Effect {
    /// Publish this.
    Publish(HostMessage),
    /// Ask the TPM to activate a credential.
    ActivateCredential {
        /// Id of the attempt.
        request: RequestId,
        /// In the form of the variant.
        credential: Vec<u8>,
    },
    /// Ask the TPM for a quote.
    Quote {
        /// Id of the attempt.
        request: RequestId,
        /// In which form the issuer wants it.
        variant: Variant,
        /// What it is to be about.
        qualifying_data: Hash,
        /// Which PCRs it is to show.
        selection: Selection,
    },
    /// There is a ticket: extend the lock PCR with the cluster id, then quote over the qualifying data. There is no way back.
    Lock {
        /// Id of the attempt.
        request: RequestId,
        /// What the PCR is extended with.
        cluster_id: Hash,
        /// What the second quote is to be about.
        qualifying_data: Hash,
        /// Which PCRs it is to show.
        selection: Selection,
    },
    /// There are certificates: put them in place, and report the stage `member`.
    Renew {
        /// Id of the attempt.
        request: RequestId,
    },
    /// The attempt was refused. For logs; another begins by itself unless the refusal is fatal.
    Refused(Refusal),
    /// The issuer's answer cannot be used for a reason that needs an operator; the attempt continues. For logs and status.
    Hindered {
        /// Why.
        reason: String,
    },
    /// A message was not believed. For logs.
    Ignored {
        /// Which message.
        message: &'static str,
        /// Why.
        reason: String,
    },
}

/// How far a host is, without secrets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// Not started, or stopped for good in this boot.
    Stopped,
    /// Waits for a challenge.
    AwaitsChallenge,
    /// Waits for its TPM.
    AwaitsTpm,
    /// Waits for a ticket.
    AwaitsTicket,
    /// Has a ticket and must lock itself.
    Opened,
    /// Locked to the cluster; of a renewal: has its certificates.
    Committed,
    /// Was refused, waits until the next attempt.
    Resting,
}

impl Condition {
    /// A stable name, for the metric that people look at.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stopped => "stopped",
            Self::AwaitsChallenge => "awaits-challenge",
            Self::AwaitsTpm => "awaits-tpm",
            Self::AwaitsTicket => "awaits-ticket",
            Self::Opened => "opened",
            Self::Committed => "committed",
            Self::Resting => "resting",
        }
    }
}
