//! The public face of an edge cluster's Sync node on the wire, pure and typed.
//!
//! | module | knows |
//! |---|---|
//! | [`names`] | the node's id, its device ids, every metric name |
//! | [`digest`] | canonical JSON and the SHA-256 digests made of it |
//! | [`command`] | what Sync is sent: the index of desired deployments, and the manifests of one |
//! | [`node`] | the metrics of the node itself |
//! | [`source`] | at which commits the repositories are that the cluster follows |
//! | [`device`] | the metrics of a host and of a deployment |
//! | [`replica`] | a typed copy of one Sync node, kept by its consumers |
//!
//! How the desired state travels. The *index* (NCMD) is the complete set of deployments: for each its version and the digest of its
//! manifests. It alone decides what exists; a deployment that a complete index does not list is removed. The *manifests* of one
//! deployment (DCMD to its device) are taken only when the accepted index lists exactly their digest; those that come before their
//! index wait for it. The versions of the index and of each deployment only grow. An older version is ignored. An equal one with
//! the same digest is a repeat, and an equal one with another digest is refused. A sender that finds a reported version at or above
//! its own with another digest has lost its memory and continues above the reported one.
//!
//! This package must not know Kubernetes, MQTT or the clock.
#![warn(missing_docs, unreachable_pub)]

pub mod command;
pub mod device;
pub mod digest;
pub mod entries;
pub mod names;
pub mod node;
mod provenance;
pub mod replica;
pub mod source;

pub use command::{CommandError, DesiredDeployment, DesiredIndex, DesiredManifests, SyncCommand};
pub use device::{DeploymentDevice, DeploymentState, HostDevice};
pub use digest::{Digest, canonical_json};
pub use entries::Entries;
pub use names::SyncDevice;
pub use node::SyncNode;
pub use replica::{SyncContract, SyncDevices, SyncReplica};
pub use source::{Commit, DesiredSource, OtherCommits, Sources};
