//! Which replica answers a request, and that a request has one answer. The store that the replicas share creates atomically and compares versions when it replaces; this module
//! decides what to do with what is there.

use uuid::Uuid;

use super::{IssuerResponse, Verified};
use crate::attestation::HostKeys;
use crate::limits::ID_BYTES;
use crate::terms::{Address, Kind, RequestId, Role, Variant};
use crate::transcript::{Hash, endorsement_key_id, hash};

/// What the replicas remember of a request. It holds no secret: a ticket in it is sealed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Id of the attempt; the key of the record.
    pub request: RequestId,
    /// Hash of the evidence message.
    pub evidence_hash: Hash,
    /// Transcript after the evidence.
    pub th3: Hash,
    /// Keys of the issuers that the acknowledgement is under.
    pub key_epoch: u32,
    /// Where the host speaks.
    pub address: Address,
    /// What it wants.
    pub kind: Kind,
    /// What it wants to be.
    pub role: Role,
    /// Its state disk.
    pub disk: Uuid,
    /// Form of its keys.
    pub variant: Variant,
    /// Its public attestation key.
    pub attestation_key: Vec<u8>,
    /// Its public endorsement key.
    pub endorsement_key: Vec<u8>,
    /// Certificates of it.
    pub endorsement_certificates: Vec<Vec<u8>>,
    /// The name that it asked for.
    pub node_name: String,
    /// Its boot.
    pub boot: [u8; ID_BYTES],
    /// Sequence of the last progress.
    pub sequence: u32,
    /// How far the request is.
    pub phase: Phase,
}

/// How far a request is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase {
    /// A replica is making the ticket.
    Claimed {
        /// Which one.
        holder: String,
        /// Until when it may, UTC ms; then another takes over.
        until_ms: u64,
    },
    /// The ticket is sealed; these bytes and no others answer the request.
    Granted {
        /// The message.
        ticket: Vec<u8>,
        /// Transcript after it.
        th4: Hash,
    },
    /// The host is locked to the cluster; the ticket is not kept any longer.
    Acknowledged {
        /// Transcript after the ticket.
        th4: Hash,
    },
    /// The host is a member, failed, or another attempt took its place.
    Done,
}

/// What a replica does about a verified request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claim {
    /// Create this record, atomically; if that fails, read what is there and ask again. Side effects only after it.
    Create(Record),
    /// Replace what is there by this record, if it is still the same; if that fails, read and ask again. Side effects only after it.
    TakeOver(Record),
    /// Send this ticket again.
    Resend(Vec<u8>),
    /// Another replica is at it.
    Wait {
        /// Until when it may, UTC ms.
        until_ms: u64,
    },
    /// The request was answered and is over.
    Over,
    /// The request belongs to other evidence. Only the host can make evidence for it, so it is a fault of the host: refuse, and raise an alarm.
    Conflict,
}

impl Record {
    /// Hash of an evidence message, which distinguishes repeats from others.
    #[must_use]
    pub fn evidence_hash(message: &[u8]) -> Hash {
        hash("ajp1/3h", &[message])
    }

    /// The ticket that answers this evidence message already, if there is one. Needs neither verification nor a challenge that is still good.
    #[must_use]
    pub fn answer_to(&self, evidence_message: &[u8]) -> Option<&[u8]> {
        match &self.phase {
            Phase::Granted { ticket, .. } if Self::evidence_hash(evidence_message) == self.evidence_hash => {
                Some(ticket)
            }
            _ => None,
        }
    }

    /// Id of the host's endorsement key.
    #[must_use]
    pub fn endorsement_key_id(&self) -> Hash {
        endorsement_key_id(&self.endorsement_key)
    }

    /// The phase after this answer was sealed.
    #[must_use]
    pub fn granted(self, answer: &IssuerResponse) -> Self {
        Self { phase: Phase::Granted { ticket: answer.message.clone(), th4: answer.th4 }, ..self }
    }

    /// The phase after a valid acknowledgement.
    #[must_use]
    pub fn acknowledged(self) -> Self {
        match self.phase {
            Phase::Granted { th4, .. } => Self { phase: Phase::Acknowledged { th4 }, ..self },
            _ => self,
        }
    }

    /// The keys of the host.
    #[must_use]
    pub fn keys(&self) -> HostKeys<'_> {
        HostKeys {
            variant: self.variant,
            attestation_key: &self.attestation_key,
            endorsement_key: &self.endorsement_key,
            endorsement_certificates: &self.endorsement_certificates,
        }
    }
}

/// Decides what a replica called `holder` does about a verified request. `existing`: the record of this request, as it was just read.
///
/// A claim holds for `lease_ms`; a replica that crashed in between is followed by another.
#[must_use]
pub fn claim(existing: Option<&Record>, verified: &Verified, holder: &str, now_ms: u64, lease_ms: u64) -> Claim {
    let phase = Phase::Claimed { holder: holder.to_owned(), until_ms: now_ms.saturating_add(lease_ms) };
    let record = Record { phase, ..verified.record() };
    let Some(existing) = existing else {
        return Claim::Create(record);
    };
    if existing.evidence_hash != record.evidence_hash {
        return Claim::Conflict;
    }
    match &existing.phase {
        Phase::Granted { ticket, .. } => Claim::Resend(ticket.clone()),
        Phase::Claimed { holder: other, until_ms } if other != holder && now_ms <= *until_ms => {
            Claim::Wait { until_ms: *until_ms }
        }
        Phase::Claimed { .. } => Claim::TakeOver(record),
        Phase::Acknowledged { .. } | Phase::Done => Claim::Over,
    }
}
