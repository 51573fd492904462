//! Kubernetes manifests from entries of ConfigDB: the one place where a deployment is rendered.
//!
//! ```text
//! EdgeDeployment + AgentConfig + catalog of templates -> HelmRelease, GitRepository, ConfigMap, and the digest of them
//! ```
//!
//! The cluster manager sends what is rendered here to an edge, which reports the digest that it has applied. The console and the command line have the same entries.
//! So they can show what runs there, and see by the digest whether that is it.
//!
//! Pure. This package must not know versions, nor who is sent what.

#![warn(missing_docs, unreachable_pub)]

pub mod catalog;
pub mod git_address;
pub mod merge;
pub mod names;
pub mod render;
pub mod template;
