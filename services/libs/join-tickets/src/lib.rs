//! What a join service puts into a ticket: keys that are derived, certificates that are issued, tokens.
//!
//! | module | knows |
//! |---|---|
//! | [`keys`] | keys and secrets that follow from the master secret |
//! | [`request`] | certificate requests of kubelets: what they must be |
//! | [`certificate`], [`signer`] | certificates of kubelets, and the authority that issues them |
//! | [`ssh`] | certificates of hosts' SSH keys |
//! | [`unlock`] | what is signed so that a TPM gives out the second key of a disk |
//! | [`kubeadm`] | bootstrap tokens, discovery pins, the files of a control plane |
//!
//! No clock, no randomness, no I/O: times and random bytes are arguments. Secrets show nothing of themselves and are overwritten when they are dropped.
#![warn(missing_docs, unreachable_pub)]

pub mod certificate;
pub mod keys;
pub mod kubeadm;
pub mod request;
pub mod signer;
pub mod ssh;
pub mod unlock;
