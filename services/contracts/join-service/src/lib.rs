//! The public face of an edge cluster's Join node on the wire, pure and typed.
//!
//! | module | knows |
//! |---|---|
//! | [`names`] | the node's id, its device ids, every metric name |
//! | [`policy`] | what Join is sent: the attestation policy of its cluster, as a versioned desired state, and what Join reports of it |
//! | [`node`] | the metrics of the node itself |
//! | [`counters`] | what it counts: requests by kind, refusals by reason, messages that got no answer |
//! | [`host`] | the metrics of a host that has proven its TPM |
//! | [`replica`] | a typed copy of one Join node, kept by its consumers |
//!
//! How the policy travels. Join reads no ConfigDB; the policy of its cluster comes by NCMD [`names::DESIRED_POLICY`] with a version that only grows, the revision of
//! the entry and a digest. A cluster without an entry is sent "no policy". The sender repeats the command until Join reports that version and digest. An older version
//! is ignored, an equal one with the same digest is a repeat, an equal one with another digest is refused. A policy that breaks a rule is taken over as well, and
//! admits no host: the report says [`policy::PolicyState::Invalid`] and why. A sender that finds a reported version at or above its own with another digest has lost
//! its memory and continues above the reported one.
//!
//! The entry is signed ([`configdb_schema::document::PolicySignature`]), and the signature is judged first: of two policies the one with the greater serial number counts, whatever their
//! versions and origins are. The rules above hold where the signed content is the same. What is not signed, and that there is no policy while a signed one is in force, is refused with the
//! reason.
//!
//! How hosts speak with Join is not here but in `join-protocol`. This package must not know Kubernetes, MQTT, TPMs or the clock.
#![warn(missing_docs, unreachable_pub)]

pub mod counters;
pub mod host;
pub mod names;
pub mod node;
pub mod policy;
pub mod replica;

pub use counters::JoinCounters;
pub use host::{HostState, JoinHost};
pub use names::{host_device, join_node};
pub use node::JoinNode;
pub use policy::{DesiredPolicy, PolicyDigest, PolicyError, PolicyState};
pub use replica::{JoinContract, JoinReplica};
