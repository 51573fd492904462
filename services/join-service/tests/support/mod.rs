//! What the tests use: a site with a root and a master secret, and a world in virtual time with replicas, a store and hosts.
#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, reason = "the lint exempts test functions, not their helpers")]

pub mod host;
#[path = "../../../../sparkplug/mqtt/tests/support/mosquitto.rs"]
pub mod mosquitto;
pub mod scene;
pub mod site;
pub mod store;
pub mod wire;
pub mod world;
