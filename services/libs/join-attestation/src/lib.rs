//! Judges the TPM evidence of a host that wants to join, without a TPM: a function of policy, evidence, expectation and time.
//!
//! ```text
//! hello:    keys, certificate ----> judge_keys ----> Keys ----> credential (only the right TPM opens it)
//! evidence: keys, quote, values --> judge ---------> Verdict { policy revision, facts or refusal, warnings }
//! ```
//!
//! | module | knows |
//! |---|---|
//! | [`public`], [`attest`], [`pcr`] | the TPM's structures: public areas and names, quotes and signatures, PCRs |
//! | [`keys`] | what endorsement and attestation keys must be |
//! | [`endorsement`] | certificates of endorsement keys |
//! | [`device`] | initial attestation keys of makers of machines (IAK), and their certificates |
//! | [`credential`] | MakeCredential in software |
//! | [`quote`] | what makes a quote true |
//! | [`event_log`] | what firmware says that it measured, and the PCRs that follow from it |
//! | `boot` | what a policy says about events, and the judgement of a log |
//! | [`image`] | what firmware, stub and kernel will measure of a boot image |
//! | `unlock` | under which values of PCRs a host may open its disk by its TPM |
//! | [`policy`] | what a cluster accepts, fail closed |
//! | [`signed`] | which keys sign a policy, and which of two follows the other |
//! | [`verdict`] | the whole judgement |
//! | [`verifier`] | the same, as the join protocol asks for it |
//! | [`host_verifier`] | the same for every variant that a policy names, and who a host is |
//! | [`refusal`] | the codes and texts of refusals |
//!
//! What a TPM cannot say is not known here: requests, challenges and their lifetimes belong to the join protocol, and which host has which key to the join service.
//! No clock, no randomness, no I/O: the seed of a credential and the time are arguments. Every input is bounded before it is read.
#![warn(missing_docs, unreachable_pub)]

pub mod attest;
pub mod credential;
pub mod device;
pub mod endorsement;
pub mod event_log;
pub mod hash;
pub mod host_verifier;
pub mod image;
pub mod keys;
pub mod pcr;
pub mod policy;
pub mod public;
pub mod quote;
pub mod refusal;
pub mod signed;
pub mod verdict;
pub mod verifier;
pub mod wire;

mod boot;
mod field;
mod kdf;
mod rsa;
mod unlock;

pub use attest::ClockInfo;
pub use credential::{Credential, CredentialError, Seed, make_credential};
pub use event_log::EventLog;
pub use hash::Hash;
pub use host_verifier::{HostVerifier, check_clock, ek_hash};
pub use image::{Image, ImageError};
pub use keys::{check_attestation_key, check_endorsement_key};
pub use policy::{EkHash, Enrolment, IakHash, Policy, PolicyError};
pub use public::Public;
pub use quote::{QuoteEvidence, verify_quote};
pub use refusal::{PcrDifference, Refusal, RefusalCode};
pub use verdict::{AdmittedHost, KeyEvidence, Keys, Phase, Verdict, judge, judge_keys};
pub use verifier::TpmVerifier;
