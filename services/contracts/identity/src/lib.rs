//! The public face of Identity on the wire: Edge Node `<ORG>-Central/Identity`, without Devices and without commands.
//!
//! | module | knows |
//! |---|---|
//! | [`names`] | node id, metric names |
//! | [`node`] | the metrics of the node: the enrolment key, how many certificates count, the revocation lists |
//! | [`replica`] | a typed copy of it, fed with events of a Host Application |
//!
//! Identity reads what it wants from the outside. ConfigDB says who may enrol. Clusters that enrol or renew publish their requests. The cluster manager's Devices hold the sealed
//! login of a cluster's repository. What it has done about a cluster's identities is in the cluster's `EdgeClusterIdentity` entry.
//!
//! The package is pure: no clock, no sockets, no async. It must not know X.509 or how requests are sealed.
#![warn(missing_docs, unreachable_pub)]

pub mod names;
pub mod node;
pub mod replica;

pub use node::IdentityNode;
pub use replica::IdentityReplica;
