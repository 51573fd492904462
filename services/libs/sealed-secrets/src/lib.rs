//! Sealing of Kubernetes Secrets so that only the Sealed Secrets controller of one cluster can open them: what is sealed can be stored in git and be read by anyone.
//!
//! ```text
//!   certificate of the controller ─┐
//!   plain values ──────────────────┴─> seal: session key per value, AES-256-GCM; RSA-OAEP-SHA256 of the session key, labelled with the scope ─> SealedSecret
//! ```
//!
//! The form is that of the controller's own client (`bitnami.com/v1alpha1`).
//! First come 2 bytes length (big endian) and the session key under RSA-OAEP with SHA-256 and the scope as label.
//! Then comes the value under AES-256-GCM with a nonce of zeros, because each session key is used once.
//! Plain values and session keys are overwritten when they are dropped, and no error shows them.
//!
//! Session keys are arguments. The padding of RSA-OAEP takes its randomness inside the cryptography library; no value can be sealed without it.
#![warn(missing_docs, unreachable_pub)]

mod certificate;
mod manifest;
mod seal;

pub use certificate::{CertificateError, SealingCertificate, fingerprint, is_certificate};
pub use manifest::{ManifestError, Plain, Request, check_key, check_names, of_sealed, sealed_object, sealed_secret};
pub use seal::{SESSION_KEY_BYTES, SealError, SealedError, annotation};
