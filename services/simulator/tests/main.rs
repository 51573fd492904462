//! The integration tests of this package, in one program.
#![allow(clippy::unwrap_used, reason = "the lint exempts test functions, not their helpers")]

mod edge_agent;
mod flux;
mod jobs;
mod kubectl;
mod kubernetes_api;
#[path = "../../../sparkplug/mqtt/tests/support/mosquitto.rs"]
#[allow(dead_code, reason = "the Mosquitto of all services' tests can do more")]
mod mosquitto;
