//! The attested join protocol AJP/1: how a host proves what it is and gets into a cluster over an untrusted broker.
//!
//! The broker may read, drop, delay, duplicate, reorder, replay and invent. Five kinds of messages, each hashed into the next:
//!
//! ```text
//!   host                                                          issuer (join service, or an administrator)
//!    | 1 hello      its keys, what it wants                     -> |
//!    | <- 2 challenge   signed; a credential that only the host's TPM opens, a cookie instead of memory
//!    | 3 evidence   sealed to the issuer: a quote over everything so far and the host's ephemeral key -> |
//!    | <- 4 ticket      signed; sealed to the ephemeral key AND the secret from the TPM; a refusal looks the same
//!    | 5 progress, acknowledgement   authenticated by a key out of the ticket; a second quote shows the lock -> |
//! ```
//!
//! | module | knows |
//! |---|---|
//! | [`host`] | the host's side: one type a state, and the machine that repeats and gives up |
//! | [`issuer`] | the issuer's side: challenge, verdict, claim, ticket, acknowledgement |
//! | [`message`], [`limits`], [`terms`], [`refusal`] | what is on the wire, and how large it may be |
//! | [`metrics`] | how messages travel as Sparkplug metrics |
//! | [`transcript`] | every hash |
//! | [`certificate`], [`secret`], [`mod@result`] | who may issue; keys; the result of an init |
//! | [`selection`] | which PCRs a host quotes |
//! | [`attestation`] | the boundary to the code that knows TPM structures |
//! | [`simulated`] | the variant `simulated`, which proves nothing |
//!
//! Pure: time comes in as an argument, randomness as [`secret::Entropy`], 32 fresh bytes a step. What is hashed, the sizes and the threats are in `docs/join-protocol.md`.
//!
//! It must not know MQTT, Kubernetes, TPM structures, or who may join.
#![warn(missing_docs, unreachable_pub)]

pub mod attestation;
pub mod certificate;
mod fields;
pub mod host;
pub mod issuer;
pub mod limits;
pub mod message;
pub mod metrics;
pub mod refusal;
pub mod result;
pub mod seal;
pub mod secret;
pub mod selection;
pub mod simulated;
pub mod terms;
pub mod transcript;
