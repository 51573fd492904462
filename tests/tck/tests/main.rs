//! The tests of this package, in one program.
#![allow(clippy::unwrap_used, reason = "the lint exempts test functions, not their helpers")]

#[path = "../../../sparkplug/mqtt/tests/support/mosquitto.rs"]
#[allow(dead_code, reason = "the tests of other packages use more of it")]
mod mosquitto;
#[path = "../../../sparkplug/mqtt/tests/support/program.rs"]
#[allow(dead_code, reason = "the tests of other packages use more of it")]
mod program;
mod programs;
mod requirements;
mod store;
#[path = "../../../sparkplug/mqtt/tests/support/tap.rs"]
#[allow(dead_code, reason = "the tests of other packages use more of it")]
mod tap;

use std::future::Future;
use std::time::Duration;

/// Waits for it, and fails with `what` when it does not come; a machine under load is slow.
async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(Duration::from_secs(120), future).await {
        Ok(value) => value,
        Err(_) => panic!("not in time: {what}"),
    }
}
