//! Edge sync against an API server, simulated or real. What holds of one holds of the other.
#![allow(clippy::unwrap_used, reason = "the lint exempts test functions, not their helpers")]

#[path = "../support/mod.rs"]
mod support;

mod adapters;
mod service;
