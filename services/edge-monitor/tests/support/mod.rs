//! What the tests stand on.
#![allow(dead_code, reason = "the Mosquitto of all services' tests can do more")]
#![allow(clippy::unwrap_used, reason = "the lint exempts test functions, not their helpers")]

#[path = "../../../../sparkplug/mqtt/tests/support/mosquitto.rs"]
pub mod mosquitto;
