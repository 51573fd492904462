//! Outside things, one file each: they translate and execute, and never decide.

pub mod bootstrap_http;
pub mod gatekeeper;
pub mod git_copies;
pub mod git_pushes;
pub mod git_work;
pub mod identities;
pub mod kdc;
pub mod passwords;
pub mod quarantine;
pub mod sparkplug;
pub mod state_client;
