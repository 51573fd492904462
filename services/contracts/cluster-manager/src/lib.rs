//! The public face of the cluster manager on the wire: Edge Node `<ORG>-Central/Cluster-Manager`.
//!
//! | module | knows |
//! |---|---|
//! | [`names`] | node id, metric names, the command |
//! | [`node`] | the metrics of the node: counters and the base URL of the git server |
//! | [`device`] | one Device per edge cluster, typed, to and from metrics |
//! | [`secrets`] | the sealed secrets in a cluster's repository, by their names |
//! | [`repository`] | one Device per shared repository, to metrics |
//! | [`api_token`] | bearer tokens of the HTTP API: text and hash |
//! | [`replica`] | a replica of all of it, fed with events of a Host Application |
//!
//! A cluster's Device is born when the manager first sees an `EdgeCluster` entry or the record of a set-up, and dies when the
//! tear-down is complete. What the manager wants from the outside, it reads from ConfigDB; the only commands are
//! [`names::SETUP_RETRY`] and [`names::PULL_NOW`].
//!
//! The package is pure: no clock, no sockets, no async.
#![warn(missing_docs, unreachable_pub)]

pub mod api_token;
pub mod device;
pub mod names;
pub mod node;
pub mod replica;
pub mod repository;
pub mod secrets;

pub use device::{
    BootstrapReport, ClusterDevice, DesiredState, IdentityReport, JoinReport, RefusedDeployments, RolloutReport,
    SealedLogin, Setup, SetupState, SetupStep, TextError,
};
pub use node::NodeMetrics;
pub use replica::{ManagedClusters, ManagerContract, ManagerReplica};
pub use repository::{PulledBranch, RepositoryDevice};
pub use secrets::{SecretsReport, StoredKey, StoredSecret, StoredSecrets};
