//! The issuer's side: answers hellos with challenges and evidence with tickets. It keeps no memory of a challenge, so any replica that shares the keys can continue where another
//! began. Only the answer to a request must be remembered: it is a [`Record`] in a store that the replicas share.
//!
//! The way to a ticket: [`Issuer::on_evidence`] alone makes a [`Verified`], [`claim`] says whether this replica may answer, and [`Issuer::grant`] takes a [`Verified`]. So there is
//! no ticket without a verdict that is bound to the same nonce, keys and host.
//!
//! The caller bounds what comes in (rate, size of the MQTT packet) and carries answers out; everything here is a function of its arguments.

mod answer;
mod challenge;
mod claim;
mod keys;
mod member;
mod verdict;

#[cfg(test)]
mod tests;

use uuid::Uuid;

pub use answer::{GrantError, IssuerResponse};
pub use challenge::HelloAnswer;
pub use claim::{Claim, Phase, Record, claim};
pub use keys::IssuerKeys;
pub use member::{Acknowledged, MemberError};
pub use verdict::{EvidenceAnswer, Recipient, Recognised, Rejected, Verified};

use crate::certificate::SigningKey;
use crate::message::WireError;
use crate::refusal::Refusal;
use crate::terms::{Kind, RequestId, Suite, Variant};
use crate::transcript::Hash;

/// What an issuer answers. There is no default: what is not named is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuerPolicy {
    /// The cluster.
    pub cluster: Uuid,
    /// Quarantine group in which its hosts speak.
    pub group: String,
    /// Kinds of requests.
    pub kinds: Vec<Kind>,
    /// Suites, the preferred first.
    pub suites: Vec<Suite>,
    /// Attestation variants, the preferred first. [`Variant::Simulated`] is accepted only if it is named here.
    pub variants: Vec<Variant>,
    /// Number of the policy that the verifier applies.
    pub policy_epoch: u64,
    /// Id of the cluster that members are locked to. None: no certificate is renewed.
    pub locked_to: Option<Hash>,
}

/// One replica of an issuer.
#[derive(Debug)]
pub struct Issuer {
    policy: IssuerPolicy,
    keys: IssuerKeys,
    signing_key: SigningKey,
    certificates: Vec<Vec<u8>>,
}

impl Issuer {
    /// `certificates`: encoded, that of `signing_key` first, the root left out.
    #[must_use]
    pub const fn new(
        policy: IssuerPolicy,
        keys: IssuerKeys,
        signing_key: SigningKey,
        certificates: Vec<Vec<u8>>,
    ) -> Self {
        Self { policy, keys, signing_key, certificates }
    }

    /// The policy.
    #[must_use]
    pub const fn policy(&self) -> &IssuerPolicy {
        &self.policy
    }

    /// Takes another policy from here on. Challenges of the old one are no longer accepted.
    pub fn set_policy(&mut self, policy: IssuerPolicy) {
        self.policy = policy;
    }

    /// Takes the keys of another epoch from here on.
    pub fn set_keys(&mut self, keys: IssuerKeys) {
        self.keys = keys;
    }
}

/// Why a message gets no answer at all: nothing shows that it comes from a host, so an answer would only serve an attacker. For logs and metrics.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Ignored {
    /// Too large, malformed or against a rule.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// Not from the group of this cluster, or from another node than that of the disk that it speaks of.
    #[error("the message came from another address than its own")]
    Address,
    /// Hello, challenge and evidence are not of the same request.
    #[error("hello, challenge and evidence are not of one request")]
    Request,
    /// The challenge was made with keys that were replaced, or by another party.
    #[error("the challenge is not ours, or too old")]
    Cookie,
    /// Not sealed to the key of the challenge, or changed on the way.
    #[error("the evidence cannot be opened")]
    Seal,
    /// Its sender did not activate the credential: it has no TPM with this endorsement key and this attestation key.
    #[error("the evidence is not of who activated the credential")]
    Proof,
}

impl Ignored {
    /// A stable name, for metrics.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Wire(WireError::TooLarge { .. }) => "too-large",
            Self::Wire(WireError::Malformed { .. }) => "malformed",
            Self::Wire(WireError::NotCanonical { .. }) => "not-canonical",
            Self::Wire(WireError::Version { .. }) => "version",
            Self::Wire(WireError::Field { .. }) => "field",
            Self::Address => "address",
            Self::Request => "request",
            Self::Cookie => "cookie",
            Self::Seal => "seal",
            Self::Proof => "proof",
        }
    }
}

/// A refusal in clear, ready to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedInClear {
    /// Id of the attempt.
    pub request: RequestId,
    /// The reason.
    pub refusal: Refusal,
    /// The message.
    pub message: Vec<u8>,
}
