//! The fifth kind of message: how far the host is, and that it is locked to the cluster. Both are authenticated under a key that only the ticket holds.

use prost::Message;
use proto::join as wire;

use super::{Fields, WireError, decode, decode_versioned};
use crate::limits::{
    ACKNOWLEDGEMENT_BYTES_MAX, DETAIL_BYTES_MAX, HASH_BYTES, PROGRESS_BYTES_MAX, SECOND_QUOTE_BYTES_MAX, VERSION,
};
use crate::terms::{RequestId, numbered};

numbered! {
    /// How far a host with a ticket is.
    Stage {
        /// The ticket is opened.
        Opened = 1, "opened";
        /// The lock PCR is extended: there is no way back but a reboot.
        Locked = 2, "locked";
        /// The disk has its key.
        DiskReady = 3, "disk-ready";
        /// Components and files are in place.
        Installed = 4, "installed";
        /// The node is a member.
        Member = 5, "member";
        /// It failed; the detail says why. The issuer revokes what it gave.
        Failed = 6, "failed";
    }
}

/// A body and its code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authenticated {
    /// An encoded [`Progress`] or [`Acknowledgement`].
    pub body: Vec<u8>,
    /// Its code.
    pub mac: [u8; HASH_BYTES],
}

impl Authenticated {
    /// As on the wire.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        wire::Authenticated { body: self.body.clone(), mac: self.mac.to_vec() }.encode_to_vec()
    }

    /// A progress from the wire; the body is not looked into.
    ///
    /// # Errors
    /// The [`WireError`] names the field and the rule.
    pub fn decode_progress(bytes: &[u8]) -> Result<Self, WireError> {
        Self::decode("progress", bytes, PROGRESS_BYTES_MAX)
    }

    /// An acknowledgement from the wire; the body is not looked into.
    ///
    /// # Errors
    /// The [`WireError`] names the field and the rule.
    pub fn decode_acknowledgement(bytes: &[u8]) -> Result<Self, WireError> {
        Self::decode("acknowledgement", bytes, ACKNOWLEDGEMENT_BYTES_MAX)
    }

    fn decode(name: &'static str, bytes: &[u8], max: usize) -> Result<Self, WireError> {
        let authenticated: wire::Authenticated = decode(name, bytes, max)?;
        let mac = Fields(name).hash("mac", &authenticated.mac)?;
        Ok(Self { body: authenticated.body, mac })
    }
}

/// How far the host is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// Id of the attempt.
    pub request: RequestId,
    /// Counts from 1 within the request: an issuer ignores what is not above the last.
    pub sequence: u32,
    /// The stage.
    pub stage: Stage,
    /// For people; no secret.
    pub detail: String,
}

impl Progress {
    const NAME: &'static str = "progress body";

    /// As under the code.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let progress = wire::Progress {
            version: VERSION,
            request: self.request.0.to_vec(),
            sequence: self.sequence,
            stage: self.stage.to_wire(),
            detail: self.detail.clone(),
        };
        progress.encode_to_vec()
    }

    /// From under the code.
    ///
    /// # Errors
    /// The [`WireError`] names the field and the rule.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let progress: wire::Progress =
            decode_versioned(Self::NAME, bytes, PROGRESS_BYTES_MAX, |progress: &wire::Progress| progress.version)?;
        let fields = Fields(Self::NAME);
        fields.text("detail", &progress.detail, DETAIL_BYTES_MAX)?;
        let stage = Stage::from_wire(progress.stage).ok_or_else(|| fields.error("stage", "is not known"))?;
        let request = fields.request(&progress.request)?;
        Ok(Self { request, sequence: progress.sequence, stage, detail: progress.detail })
    }
}

/// The host is locked to the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acknowledgement {
    /// Id of the attempt.
    pub request: RequestId,
    /// Second quote, which shows the lock.
    pub quote: Vec<u8>,
    /// Of an init: HPKE encapsulated key of the result.
    pub encapsulated_key: Vec<u8>,
    /// Of an init: HPKE ciphertext of the result.
    pub ciphertext: Vec<u8>,
}

impl Acknowledgement {
    const NAME: &'static str = "acknowledgement body";

    /// As under the code.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let acknowledgement = wire::Acknowledgement {
            version: VERSION,
            request: self.request.0.to_vec(),
            quote: self.quote.clone(),
            encapsulated_key: self.encapsulated_key.clone(),
            ciphertext: self.ciphertext.clone(),
        };
        acknowledgement.encode_to_vec()
    }

    /// From under the code.
    ///
    /// # Errors
    /// The [`WireError`] names the field and the rule.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let version = |acknowledgement: &wire::Acknowledgement| acknowledgement.version;
        let read: wire::Acknowledgement = decode_versioned(Self::NAME, bytes, ACKNOWLEDGEMENT_BYTES_MAX, version)?;
        let fields = Fields(Self::NAME);
        fields.some("quote", &read.quote, SECOND_QUOTE_BYTES_MAX)?;
        let request = fields.request(&read.request)?;
        let (encapsulated_key, ciphertext) = (read.encapsulated_key, read.ciphertext);
        Ok(Self { request, quote: read.quote, encapsulated_key, ciphertext })
    }
}
