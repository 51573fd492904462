//! Edge Node and Host Application in MQTT 5 on a real Mosquitto, beside others that speak 3.1.1.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::support;

use std::time::Duration;

use sparkplug::edge_node::{EdgeNodeConfig, NodeEvent, NodeUpdate};
use sparkplug::host::{HostConfig, HostEvent, HostRequest};
use sparkplug::state::HostState;
use sparkplug::{EdgeNodeDescriptor, HostId, Metric};
use sparkplug_mqtt::{BdSeqStore, Clock, EdgeNodeHandle, MqttConfig, Protocol, spawn_edge_node, spawn_host};
use support::mosquitto::{Mosquitto, Settings};
use support::proxy::Proxy;
use support::tap::Tap;
use support::{mqtt, soon};

fn mqtt5(url: &str) -> MqttConfig {
    MqttConfig { protocol: Protocol::V5, keep_alive_s: 5, ..mqtt(url) }
}

fn descriptor() -> EdgeNodeDescriptor {
    EdgeNodeDescriptor::parse("Plant", "Press").unwrap()
}

fn node(mqtt: &MqttConfig) -> EdgeNodeHandle {
    let reconnect = (Duration::from_millis(200), Duration::from_secs(1));
    let config = EdgeNodeConfig { reconnect, ..EdgeNodeConfig::new(descriptor()) };
    let metrics = vec![Metric::new("Counter", 0_u64)];
    spawn_edge_node(config, metrics, mqtt, BdSeqStore::Memory, Clock::new()).unwrap()
}

async fn born(node: &mut EdgeNodeHandle) {
    soon("a birth", async { while !matches!(node.recv().await.expect("it runs"), NodeEvent::Born { .. }) {} }).await;
}

#[tokio::test]
async fn births_data_commands_and_state_are_the_same_as_in_3_1_1() {
    let server = Mosquitto::start();
    let mut tap = Tap::start(server.address().port()).await;
    let config = HostConfig::new(Some(HostId::new("Office").unwrap()));
    let mut host = spawn_host(config, &mqtt5(&server.url()), Clock::new()).unwrap();
    let online = tap.expect("STATE").await;
    assert!(HostState::decode(&online.payload).unwrap().online);
    let mut node = node(&mqtt5(&server.url()));
    born(&mut node).await;
    assert_eq!(tap.until("NBIRTH").await.seq(), 0);
    let wanted = vec![Metric::new("Counter", 7_u64)];
    host.request(HostRequest::Command { node: descriptor(), device: None, metrics: wanted }).await.unwrap();
    let command = soon("the command", node.recv()).await.unwrap();
    let NodeEvent::Command { metrics, .. } = command else { panic!("{command:?}") };
    node.update(NodeUpdate::Set { device: None, metrics }).await.unwrap();
    soon("the answer", async {
        while !matches!(host.recv().await.expect("it runs"), HostEvent::NodeData { metrics, .. } if metrics[0].as_u64() == Some(7)) {}
    })
    .await;
    soon("the stop", host.stop()).await;
    let offline = HostState::decode(&tap.until("STATE").await.payload).unwrap();
    assert!(!offline.online);
    // DISCONNECT came, so the will of the host is silent.
    tap.publish("marker/x/MARKER", vec![]).await;
    tap.expect("MARKER").await;
    node.stop().await;
}

/// tck-id-payloads-ndeath-will-message-publisher-disconnect-mqtt50: the server publishes the will after the farewell, as with reason 0x04.
#[tokio::test]
async fn a_node_that_stops_has_its_will_published_after_its_own_death() {
    let server = Mosquitto::start();
    let mut tap = Tap::start(server.address().port()).await;
    let mut node = node(&mqtt5(&server.url()));
    born(&mut node).await;
    tap.expect("NBIRTH").await;
    soon("the stop", node.stop()).await;
    for _ in 0..2 {
        assert_eq!(tap.expect("NDEATH").await.bd_seq(), 0);
    }
}

#[tokio::test]
async fn a_cut_connection_brings_the_will_at_once_and_the_next_session_its_own_birth() {
    let server = Mosquitto::start();
    let proxy = Proxy::start(server.address()).await;
    let mut tap = Tap::start(server.address().port()).await;
    let mut node = node(&mqtt5(&proxy.url()));
    for session in 0..2 {
        born(&mut node).await;
        assert_eq!(tap.expect("NBIRTH").await.bd_seq(), session);
        proxy.cut();
        assert_eq!(tap.expect("NDEATH").await.bd_seq(), session);
    }
    born(&mut node).await;
    node.stop().await;
}

#[tokio::test]
async fn a_server_that_knows_no_user_says_so() {
    let server = Mosquitto::with(Settings { lines: &["allow_anonymous false"], tls: false, prepare: &|_| {} });
    let mut node = node(&mqtt5(&server.url()));
    let event = soon("a refusal", node.recv()).await.unwrap();
    let NodeEvent::Offline { reason } = event else { panic!("{event:?}") };
    assert!(reason.contains("refuses the credentials") && reason.contains("NotAuthorized"), "{reason}");
    node.stop().await;
}

/// What was published is acknowledged by the answer to a ping, so that a store is emptied without a further message.
#[tokio::test]
async fn history_is_forwarded_in_mqtt_5_as_well() {
    let server = Mosquitto::start();
    let proxy = Proxy::start(server.address()).await;
    let store = MqttConfig { store: sparkplug_mqtt::Store::Memory, ..mqtt5(&proxy.url()) };
    let mut node = node(&store);
    born(&mut node).await;
    proxy.stall();
    node.update(NodeUpdate::Set { device: None, metrics: vec![Metric::new("Counter", 1_u64)] }).await.unwrap();
    soon("the loss", async { while !matches!(node.recv().await, Some(NodeEvent::Offline { .. })) {} }).await;
    proxy.cut();
    proxy.resume();
    soon("the end of it", async {
        loop {
            if let Some(NodeEvent::Forwarded { sent, dropped }) = node.recv().await {
                return assert_eq!((sent, dropped), (1, 0));
            }
        }
    })
    .await;
    node.stop().await;
}
