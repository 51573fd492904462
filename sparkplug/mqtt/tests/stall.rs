//! A server that stops reading: nothing of an application waits for it, and what waits is bounded.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::support;

use std::time::Duration;

use sparkplug::edge_node::{EdgeNodeConfig, NodeEvent, NodeUpdate};
use sparkplug::{EdgeNodeDescriptor, Metric};
use sparkplug_mqtt::{BdSeqStore, Clock, EdgeNodeHandle, MqttConfig, Protocol, TryError, spawn_edge_node};
use support::mosquitto::Mosquitto;
use support::proxy::Proxy;
use support::{mqtt, soon};

fn node(mqtt: &MqttConfig) -> EdgeNodeHandle {
    let reconnect = (Duration::from_millis(200), Duration::from_secs(1));
    let descriptor = EdgeNodeDescriptor::parse("Plant", "Press").unwrap();
    let config = EdgeNodeConfig { reconnect, message_bytes_max: 4 << 20, ..EdgeNodeConfig::new(descriptor) };
    let metrics = vec![Metric::new("Text", "")];
    spawn_edge_node(config, metrics, mqtt, BdSeqStore::Memory, Clock::new()).unwrap()
}

async fn until(node: &mut EdgeNodeHandle, what: &str, wanted: impl Fn(&NodeEvent) -> bool) {
    soon(what, async { while !wanted(&node.recv().await.expect("it runs")) {} }).await;
}

fn large(number: u64) -> NodeUpdate {
    // A value that is the same as before would not be sent.
    let metrics = vec![Metric::new("Text", format!("{number}{}", "x".repeat(1 << 20)))];
    NodeUpdate::Set { device: None, metrics }
}

/// `try_update` gives back what does not fit; `update` waits, but only until the session is given up; then everything continues.
#[tokio::test]
async fn updates_are_refused_or_wait_in_bounds_until_the_session_is_given_up() {
    let server = Mosquitto::start();
    let proxy = Proxy::start(server.address()).await;
    for protocol in [Protocol::V311, Protocol::V5] {
        let impatient = MqttConfig { protocol, keep_alive_s: 5, ..mqtt(&proxy.url()) };
        let mut node = node(&impatient);
        until(&mut node, "a birth", |event| matches!(event, NodeEvent::Born { .. })).await;
        proxy.stall();
        // More than sockets and the outbox hold.
        let refused = soon("a full inbox", async {
            for number in 1.. {
                match node.try_update(large(number)) {
                    Ok(_) => tokio::task::yield_now().await,
                    Err(TryError::Full(_)) => return number,
                    Err(TryError::Stopped) => panic!("it has stopped"),
                }
            }
            0
        })
        .await;
        assert!(refused < 500, "{refused} updates of 1 MiB were taken");
        soon("an update that waits", node.update(large(0))).await.unwrap();
        until(&mut node, "the loss", |event| matches!(event, NodeEvent::Offline { .. })).await;
        proxy.cut();
        proxy.resume();
        until(&mut node, "a birth", |event| matches!(event, NodeEvent::Born { .. })).await;
        node.stop().await;
    }
}

#[tokio::test]
async fn a_stop_does_not_wait_for_a_server_that_reads_nothing() {
    let server = Mosquitto::start();
    let proxy = Proxy::start(server.address()).await;
    for protocol in [Protocol::V311, Protocol::V5] {
        let mut node = node(&MqttConfig { protocol, keep_alive_s: 5, ..mqtt(&proxy.url()) });
        until(&mut node, "a birth", |event| matches!(event, NodeEvent::Born { .. })).await;
        proxy.stall();
        soon("a full inbox", async {
            while node.try_update(large(1)).is_ok() && node.try_update(large(2)).is_ok() {
                tokio::task::yield_now().await;
            }
        })
        .await;
        soon("the stop", node.stop()).await;
        proxy.cut();
        proxy.resume();
    }
}
