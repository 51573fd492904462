//! What a join service puts into a ticket: keys that are derived, certificates that are issued, tokens.
//!
//! | module | knows |
//! |---|---|
//! | [`keys`] | keys and secrets that follow from the master secret |
//! | [`kubeadm`] | bootstrap tokens, discovery pins, the files of a control plane |
//!
//! No clock, no randomness, no I/O: times and random bytes are arguments. Secrets show nothing of themselves and are overwritten when they are dropped.
#![warn(missing_docs)]

pub mod keys;
pub mod kubeadm;
