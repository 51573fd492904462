//! The boundary to an attestation variant: what an issuer asks about keys and quotes, in the order in which it asks. The protocol itself knows no TPM structure.
//!
//! A host needs no trait: activating a credential, quoting and locking are effects of [`crate::host::Machine`], and their results come back as events.

use std::collections::BTreeMap;

use crate::refusal::Refusal;
use crate::secret::Secret;
use crate::selection::{Bank, Selection};
use crate::terms::{Kind, Role, Variant};
use crate::transcript::{Hash, endorsement_key_id};

/// The keys of a host as its hello has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostKeys<'a> {
    /// Form of the keys.
    pub variant: Variant,
    /// Public attestation key (`tpm2`: a TPM2B_PUBLIC, and behind it what an initial attestation key says of it, if there is one).
    pub attestation_key: &'a [u8],
    /// Public endorsement key (`tpm2`: a TPM2B_PUBLIC).
    pub endorsement_key: &'a [u8],
    /// Certificates of the endorsement key, DER, leaf first.
    pub endorsement_certificates: &'a [Vec<u8>],
}

impl HostKeys<'_> {
    /// What records know the host by.
    #[must_use]
    pub fn endorsement_key_id(&self) -> Hash {
        endorsement_key_id(self.endorsement_key)
    }
}

/// What the lock PCR must show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lock {
    /// Not extended in this boot: before a ticket.
    Open,
    /// Extended once, with this cluster id: after it.
    Extended(Hash),
}

/// The message that contains a quote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// In evidence: with what the variant adds to a quote.
    Evidence,
    /// In an acknowledgement: the quote alone.
    Acknowledgement,
}

/// What a quote must show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expected {
    /// What it must be about.
    pub qualifying_data: Hash,
    /// State of the lock PCR.
    pub lock: Lock,
    /// The message that contains the quote.
    pub step: Step,
}

/// What a quote was found to show.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Claims {
    /// PCRs and their values, by index.
    pub pcrs: Vec<(u32, Hash)>,
    /// Counters of the TPM, if the variant has them: they never go back.
    pub counters: Option<Counters>,
    /// The TPM does not vouch for [`Counters::powered_ms`]: power was cut, and it continues from the value that it stored last (TPM 2.0 Library Part 1, 36.3.4).
    pub clock_unsafe: bool,
    /// Deviations that the policy lets pass, for people.
    pub warnings: Vec<String>,
    /// Where the policy allows the host a second key of its disk: what it may be sealed to.
    pub local_unlock: Option<Admitted>,
}

/// The values of PCRs by which a policy admits a host: each PCR has to have one of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admitted {
    /// Bank of the PCRs.
    pub bank: Bank,
    /// PCRs by their index, the lock PCR with its value before a lock among them. After a lock, PCRs of which only a boot itself knows the value have none.
    pub pcrs: BTreeMap<u8, Vec<Vec<u8>>>,
}

/// Counters of a TPM. They distinguish a TPM from a copy of it and from a cleared one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Counters {
    /// Resets of the TPM.
    pub resets: u32,
    /// Restarts since the last reset.
    pub restarts: u32,
    /// Time that it was powered, ms.
    pub powered_ms: u64,
}

/// The endorsement or the attestation key is not a key of its variant. The text is for people and goes over the wire in clear.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct KeyError(pub String);

/// Knows attestation variants, enrolled endorsement keys and reference values. Must not block; everything it needs was read before.
///
/// The issuer calls the checks in the order of this trait, and stops at the first that fails.
pub trait Verifier {
    /// MakeCredential: wraps `secret` so that only the TPM with this endorsement key, and only if it holds this attestation key too, gives it out.
    /// All randomness must be derived from `randomness`: the same arguments give the same bytes.
    ///
    /// # Errors
    /// A key is malformed or of a kind that the variant does not allow.
    fn make_credential(&self, keys: &HostKeys<'_>, secret: &Secret, randomness: &Secret) -> Result<Vec<u8>, KeyError>;

    /// What a host of this variant has to quote. It travels in the challenge.
    fn selection(&self, variant: Variant) -> Selection;

    /// Is the endorsement key enrolled or certified, not revoked, and may it have this role? `now_ms`: UTC ms, for certificates.
    ///
    /// # Errors
    /// `endorsement-unknown`, `endorsement-revoked`, `endorsement-certificate` or `role-not-allowed`.
    fn check_endorsement(&self, keys: &HostKeys<'_>, kind: Kind, role: Role, now_ms: u64) -> Result<(), Refusal>;

    /// Can the attestation key sign only what the TPM made itself? (`tpm2`: restricted, fixedTPM, fixedParent, sensitiveDataOrigin, sign, not decrypt.)
    ///
    /// # Errors
    /// `attestation-key`.
    fn check_attestation_key(&self, keys: &HostKeys<'_>) -> Result<(), Refusal>;

    /// Form, signature, qualifying data, selection, clock, PCRs and lock of a quote, in this order.
    ///
    /// # Errors
    /// `quote-malformed`, `quote-signature`, `quote-qualifying-data`, `quote-selection`, `quote-clock`, `measurement` or `lock`.
    fn check_quote(&self, keys: &HostKeys<'_>, quote: &[u8], expected: &Expected) -> Result<Claims, Refusal>;

    /// The PCRs of a quote that is signed by the attestation key and about `qualifying_data`, whatever a policy says of their values: what people take reference values from.
    /// None: it cannot be read, or the variant does not show them.
    fn read_pcrs(&self, keys: &HostKeys<'_>, quote: &[u8], qualifying_data: &Hash) -> Option<Vec<(u32, Hash)>> {
        let _ = (keys, quote, qualifying_data);
        None
    }
}
