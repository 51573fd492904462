//! The public face of a joining host beside the messages of the join protocol. It covers how far the host's attempt is, how an administrator asks for its kubeconfig, and the
//! parameters of an `init`.
//!
//! | module | knows |
//! |---|---|
//! | [`names`] | every metric name |
//! | [`node`] | the readable metrics of a host ([`HostNode`]) |
//! | [`parameters`] | what an administrator gives to the first member ([`InitParameters`]) |
//!
//! The messages (`Join/...`) are in the package `join-protocol`. A host is the Edge Node `<disk uuid>` of the quarantine group of its cluster.
#![warn(missing_docs, unreachable_pub)]

pub mod names;
pub mod node;
pub mod parameters;

pub use node::HostNode;
pub use parameters::{InitComponent, InitParameters, Manifests, ParametersError};
