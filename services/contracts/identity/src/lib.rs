//! The public face of Identity on the wire: Edge Node `<ORG>-Central/Identity`, without Devices and without commands.
//!
//! | module | knows |
//! |---|---|
//! | [`names`] | node id, metric names |
//! | [`node`] | the metrics of the node: the enrolment key, how many certificates count, the revocation lists |
//! | [`replica`] | a typed copy of it, fed with events of a Host Application |
//!
//! What Identity wants from the outside it reads: who may enrol from ConfigDB, requests from clusters that enrol or renew, the sealed login of a cluster's repository from the cluster
//! manager's Devices. What it has done about a cluster's identities is in the cluster's `EdgeClusterIdentity` entry.
//!
//! The package is pure: no clock, no sockets, no async. It must not know X.509 or how requests are sealed.
#![warn(missing_docs, unreachable_pub)]

pub mod names;
pub mod node;
pub mod replica;

pub use node::IdentityNode;
pub use replica::{IdentityContract, IdentityReplica};
