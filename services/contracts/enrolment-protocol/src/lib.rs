//! Enrolment of edge clusters: how a cluster with a one-time token gets its certificate over an untrusted broker.
//!
//! ```text
//!   cluster                                                        Identity
//!    | request   sealed to the pinned key: token, public key, proof that it has the private one -> |
//!    | <- answer    sealed to a key and a secret out of the request: certificate, authority, git password; or a refusal
//! ```
//!
//! A cluster that is in renews its certificate by the same exchange: in place of a token the key of that certificate signs.
//!
//! Only Identity can open the request, and knowing the secret in it shows that it was opened. So the answer needs no signature, and no other party can make one.
//! Both sides may repeat themselves: the same request has the same answer.
//!
//! | module | knows |
//! |---|---|
//! | [`cluster`] | the cluster's side: draft, request, opening the answer |
//! | [`identity`] | Identity's side: its enrolment key, opening the request, answering |
//! | [`login`] | the login of a cluster's repository, sealed on its way to Identity |
//! | [`token`] | one-time tokens |
//! | [`bootstrap`] | the command that is pasted at the edge |
//! | [`refusal`] | why a cluster is not enrolled |
//! | [`metrics`] | how the messages travel as Sparkplug metrics |
//!
//! Pure: randomness and signatures come in as arguments. What is hashed, the sizes and the threats are in `docs/enrolment.md`.
//!
//! It must not know MQTT, X.509, Kubernetes, or whose token is good.
#![warn(missing_docs, unreachable_pub)]

pub mod bootstrap;
pub mod cluster;
pub mod identity;
pub mod login;
pub mod metrics;
pub mod refusal;
pub mod token;

mod grant;
mod message;
mod seal;

pub use message::MessageError;

/// Version of the protocol.
pub const VERSION: u32 = 1;
