//! What the tests stand on: a cluster, a Mosquitto, and someone who listens to Sync and commands it.

#![allow(dead_code, reason = "each test file uses its part")]

pub mod cluster;
#[path = "../../../../sparkplug/mqtt/tests/support/mosquitto.rs"]
pub mod mosquitto;

use std::future::Future;
use std::time::Duration;

/// Longer than any step takes; only a failing test waits for it.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The future's value, or a failure that says what was waited for.
pub async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(value) => value,
        Err(_) => panic!("waited too long for {what}"),
    }
}
