//! Store and forward on a real Mosquitto: values that could not be delivered arrive as history, after broken links, killed servers and killed processes.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::support;

use std::time::Duration;

use sparkplug::edge_node::{EdgeNodeConfig, NodeEvent, NodeUpdate};
use sparkplug::{EdgeNodeDescriptor, HostId, Metric, Value};
use sparkplug_mqtt::{BdSeqStore, Clock, EdgeNodeHandle, MqttConfig, Store, StoreWhenFull, spawn_edge_node};
use support::mosquitto::Mosquitto;
use support::proxy::Proxy;
use support::tap::{Seen, Tap};
use support::{mqtt, soon};

fn config() -> EdgeNodeConfig {
    EdgeNodeConfig {
        reconnect: (Duration::from_millis(200), Duration::from_secs(1)),
        ..EdgeNodeConfig::new(EdgeNodeDescriptor::parse("ACME-Plant", "Sync").unwrap())
    }
}

fn started(mqtt: &MqttConfig) -> EdgeNodeHandle {
    let metrics = vec![Metric::new("Counter", 0_u64).at(1)];
    spawn_edge_node(config(), metrics, mqtt, BdSeqStore::Memory, Clock::new()).unwrap()
}

fn in_memory(url: &str) -> MqttConfig {
    MqttConfig { store: Store::Memory, keep_alive_s: 1, ..mqtt(url) }
}

/// The timestamp is as far from now as the value is small.
async fn count(node: &EdgeNodeHandle, value: u64) {
    let metrics = vec![Metric::new("Counter", value).at(1_000 + value)];
    node.update(NodeUpdate::Set { device: None, metrics }).await.unwrap();
}

async fn until(node: &mut EdgeNodeHandle, what: &str, wanted: impl Fn(&NodeEvent) -> bool) -> NodeEvent {
    soon(what, async {
        loop {
            let event = node.recv().await.expect("the node runs");
            if wanted(&event) {
                return event;
            }
        }
    })
    .await
}

async fn born(node: &mut EdgeNodeHandle) {
    until(node, "a birth", |event| matches!(event, NodeEvent::Born { .. })).await;
}

/// Values of the counter and timestamps; all of the message must be historical.
fn history(seen: &Seen) -> (u64, u64) {
    let payload = seen.sparkplug();
    let [metric] = &payload.metrics[..] else { panic!("{payload:?}") };
    assert!(metric.is_historical, "{payload:?}");
    (metric.value.as_ref().and_then(Value::as_u64).unwrap(), metric.timestamp.unwrap())
}

#[tokio::test]
async fn what_changed_while_the_link_was_down_comes_after_the_birth_in_order_with_its_own_time() {
    let server = Mosquitto::start();
    let proxy = Proxy::start(server.address()).await;
    let mut tap = Tap::start(server.address().port()).await;
    let mut node = started(&in_memory(&proxy.url()));
    born(&mut node).await;
    tap.expect("NBIRTH").await;
    proxy.cut();
    tap.expect("NDEATH").await;
    until(&mut node, "the loss", |event| matches!(event, NodeEvent::Offline { .. })).await;
    proxy.stall();
    for value in 1..=50 {
        count(&node, value).await;
    }
    proxy.resume();
    assert_eq!(tap.until("NBIRTH").await.seq(), 0);
    for value in 1..=50 {
        let seen = tap.expect("NDATA").await;
        assert_eq!(history(&seen), (value, 1_000 + value));
        assert_eq!(seen.seq(), value);
    }
    let event = until(&mut node, "the end of it", |event| matches!(event, NodeEvent::Forwarded { .. })).await;
    assert_eq!(event, NodeEvent::Forwarded { sent: 50, dropped: 0 });
    // From here on it is live again.
    count(&node, 99).await;
    assert!(!tap.expect("NDATA").await.sparkplug().metrics[0].is_historical);
    node.stop().await;
}

#[tokio::test]
async fn what_was_sent_into_a_dead_link_is_sent_again() {
    let server = Mosquitto::start();
    let proxy = Proxy::start(server.address()).await;
    let mut tap = Tap::start(server.address().port()).await;
    let mut node = started(&in_memory(&proxy.url()));
    born(&mut node).await;
    tap.expect("NBIRTH").await;
    proxy.stall();
    // The node takes itself for online; these are lost in the network.
    for value in 1..=3 {
        count(&node, value).await;
    }
    until(&mut node, "the loss", |event| matches!(event, NodeEvent::Offline { .. })).await;
    proxy.cut();
    proxy.resume();
    tap.until("NBIRTH").await;
    for value in 1..=3 {
        assert_eq!(history(&tap.expect("NDATA").await), (value, 1_000 + value));
    }
    node.stop().await;
}

#[tokio::test]
async fn a_full_store_drops_what_it_is_configured_to_drop_and_counts_it() {
    for (store_when_full, last) in [(StoreWhenFull::Oldest, true), (StoreWhenFull::Newest, false)] {
        let server = Mosquitto::start();
        let proxy = Proxy::start(server.address()).await;
        let mut tap = Tap::start(server.address().port()).await;
        let small = MqttConfig { store_bytes_max: 64 * 1024, store_when_full, ..in_memory(&proxy.url()) };
        let mut node = started(&small);
        born(&mut node).await;
        proxy.stall();
        proxy.cut();
        until(&mut node, "the loss", |event| matches!(event, NodeEvent::Offline { .. })).await;
        let values = 2_000;
        for value in 1..=values {
            count(&node, value).await;
        }
        proxy.resume();
        let event = until(&mut node, "the end of it", |event| matches!(event, NodeEvent::Forwarded { .. })).await;
        let NodeEvent::Forwarded { sent, dropped } = event else { unreachable!() };
        assert!(sent > 100 && dropped > 100 && sent + dropped == values, "{sent} + {dropped}");
        tap.until("NDEATH").await;
        tap.until("NBIRTH").await;
        let kept = if last { values - sent + 1..=values } else { 1..=sent };
        for value in kept {
            assert_eq!(history(&tap.expect("NDATA").await).0, value);
        }
        node.stop().await;
    }
}

/// tck-id-operational-behavior-edge-node-termination-host-offline: what happens while the Primary Host is away reaches it when it is back.
#[tokio::test]
async fn data_is_kept_while_the_primary_host_is_offline() {
    let server = Mosquitto::start();
    let mut tap = Tap::start(server.address().port()).await;
    let state = |online: bool, timestamp: u64| sparkplug::state::HostState { online, timestamp }.encode().to_vec();
    let config = EdgeNodeConfig { primary_host: Some(HostId::new("Office").unwrap()), ..config() };
    let metrics = vec![Metric::new("Counter", 0_u64).at(1)];
    let mqtt = in_memory(&server.url());
    let mut node = spawn_edge_node(config, metrics, &mqtt, BdSeqStore::Memory, Clock::new()).unwrap();
    tap.publish_retained("spBv1.0/STATE/Office", state(true, 10)).await;
    born(&mut node).await;
    count(&node, 1).await;
    tap.until("NDATA").await;
    tap.publish_retained("spBv1.0/STATE/Office", state(false, 10)).await;
    until(&mut node, "the loss", |event| matches!(event, NodeEvent::Offline { .. })).await;
    count(&node, 2).await;
    tap.publish_retained("spBv1.0/STATE/Office", state(true, 20)).await;
    tap.until("NBIRTH").await;
    // The one before it may have been sent when the host was gone already.
    assert_eq!(history(&tap.expect("NDATA").await).0, 1);
    assert_eq!(history(&tap.expect("NDATA").await).0, 2);
    node.stop().await;
}
