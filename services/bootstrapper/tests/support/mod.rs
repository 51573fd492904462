//! What the tests use: a Mosquitto, an issuer of tickets over it, and simulated hosts.
#![allow(dead_code, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, reason = "the lint exempts test functions, not their helpers")]

pub mod issuer;
#[path = "../../../../sparkplug/mqtt/tests/support/mosquitto.rs"]
pub mod mosquitto;
pub mod site;
#[path = "../../../libs/join-attestation/tests/swtpm/mod.rs"]
pub mod swtpm;

use std::future::Future;
use std::time::Duration;

/// Longer than any step takes; only a failing test waits for it.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// The future's value, or a failure that says what was waited for.
pub async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(value) => value,
        Err(_) => panic!("waited too long for {what}"),
    }
}
