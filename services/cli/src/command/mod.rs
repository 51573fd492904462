//! What each command does: one module a noun.

pub mod acl;
pub mod acl_check;
mod acl_operator;
mod acl_site;
pub mod administrator;
pub mod alert;
pub mod apply;
pub mod attestation_policy;
pub mod audit;
pub mod bootstrap;
pub mod capture;
pub mod chart_rollout;
pub mod check;
pub mod cluster;
pub mod config;
pub mod console;
pub mod context;
pub mod crl;
pub mod deployment;
pub mod edit;
pub mod enrol;
pub mod from_image;
pub mod host;
mod host_move;
pub mod identity;
pub mod join_secret;
#[cfg(test)]
mod json_shapes;
mod label;
pub mod past;
pub mod policy;
pub mod prepare;
#[cfg(test)]
mod printed;
mod reconcile;
pub mod recover;
pub mod replay;
pub mod rollout;
pub mod secret;
pub mod signer;
pub mod status;
pub mod token;
pub mod trust;
mod waiting;
pub mod write;
