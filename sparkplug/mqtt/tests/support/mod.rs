//! What the tests of this package need around them. Every test has its own server, directory and ports.
#![allow(dead_code, reason = "each test binary uses its part of it")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

pub mod certificates;
#[cfg(feature = "websocket")]
pub mod gateway;
pub mod mosquitto;
pub mod program;
pub mod proxy;
pub mod replication;
pub mod tap;

use std::future::Future;
use std::time::Duration;

use sparkplug_mqtt::MqttConfig;

/// Longest time that anything in a test may take; machines under load are slow, and waiting costs nothing when all is well.
pub const SOON: Duration = Duration::from_secs(120);

/// Waits for it, and fails with `what` when it does not come.
pub async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(SOON, future).await {
        Ok(value) => value,
        Err(_) => panic!("not in time: {what}"),
    }
}

/// A configuration for this server, with short times.
pub fn mqtt(url: &str) -> MqttConfig {
    MqttConfig { servers: vec![url.to_owned()], keep_alive_s: 2, ..MqttConfig::default() }
}
