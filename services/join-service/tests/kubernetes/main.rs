//! The join service against a Kubernetes API, simulated or real. What holds of one holds of the other.
#![allow(clippy::unwrap_used, reason = "the lint exempts test functions, not their helpers")]

#[path = "../support/mod.rs"]
mod support;

mod rights;
mod service;
mod spoofing;
