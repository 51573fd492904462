//! The integration tests of this package, in one program.
#![allow(clippy::unwrap_used, reason = "the lint exempts test functions, not their helpers")]

mod copies;
#[path = "../../../sparkplug/mqtt/tests/support/mosquitto.rs"]
#[expect(dead_code, reason = "other tests need more of it")]
mod mosquitto;
mod pushes;
mod site;
