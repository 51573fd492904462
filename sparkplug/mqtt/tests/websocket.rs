//! MQTT over WebSocket, plain and with TLS, through a gateway in front of a real Mosquitto: Debian builds its Mosquitto without WebSocket.
#![cfg(feature = "websocket")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::support;

use std::time::Duration;

use sparkplug::edge_node::{EdgeNodeConfig, NodeEvent, NodeUpdate};
use sparkplug::host::{HostConfig, HostEvent};
use sparkplug::{EdgeNodeDescriptor, HostId, Metric};
use sparkplug_mqtt::{BdSeqStore, Clock, EdgeNodeHandle, MqttConfig, Protocol, spawn_edge_node, spawn_host};
use support::gateway::Gateway;
use support::mosquitto::Mosquitto;
use support::{certificates, mqtt, soon};

fn node(mqtt: &MqttConfig) -> EdgeNodeHandle {
    let reconnect = (Duration::from_millis(200), Duration::from_secs(1));
    let config =
        EdgeNodeConfig { reconnect, ..EdgeNodeConfig::new(EdgeNodeDescriptor::parse("Plant", "Press").unwrap()) };
    let metrics = vec![Metric::new("Text", "")];
    spawn_edge_node(config, metrics, mqtt, BdSeqStore::Memory, Clock::new()).unwrap()
}

async fn offline(mqtt: &MqttConfig) -> String {
    let mut node = node(mqtt);
    let event = soon("an event", node.recv()).await.unwrap();
    node.stop().await;
    match event {
        NodeEvent::Offline { reason } => reason,
        other => panic!("{other:?}"),
    }
}

/// A node that is born, publishes something large, and is received by a host: all over WebSocket.
async fn node_and_host(mqtt: &MqttConfig) {
    let mut host = spawn_host(HostConfig::new(Some(HostId::new("Office").unwrap())), mqtt, Clock::new()).unwrap();
    soon("online", async { while !matches!(host.recv().await.expect("it runs"), HostEvent::Online) {} }).await;
    let mut node = node(mqtt);
    let event = soon("a birth", node.recv()).await;
    assert!(matches!(event, Some(NodeEvent::Born { .. })), "{event:?}");
    let text = "x".repeat(200_000);
    node.update(NodeUpdate::Set { device: None, metrics: vec![Metric::new("Text", text.as_str())] }).await.unwrap();
    soon("the data", async {
        loop {
            if let HostEvent::NodeData { metrics, .. } = host.recv().await.expect("it runs") {
                return assert_eq!(metrics[0].as_str(), Some(text.as_str()));
            }
        }
    })
    .await;
    node.stop().await;
    soon("the death", async { while !matches!(host.recv().await.expect("it runs"), HostEvent::NodeDeath { .. }) {} })
        .await;
    host.stop().await;
}

#[tokio::test]
async fn nodes_and_hosts_speak_over_a_websocket() {
    let server = Mosquitto::start();
    let gateway = Gateway::plain(server.address()).await;
    for protocol in [Protocol::V311, Protocol::V5] {
        node_and_host(&MqttConfig { protocol, keep_alive_s: 5, ..mqtt(&format!("ws://{}/mqtt", gateway.address())) })
            .await;
    }
}

#[tokio::test]
async fn nodes_and_hosts_speak_over_a_websocket_with_tls() {
    let server = Mosquitto::start();
    let directory = tempfile::tempdir().unwrap();
    certificates::write(directory.path());
    let gateway = Gateway::tls(server.address(), directory.path()).await;
    let url = format!("wss://localhost:{}/mqtt", gateway.address().port());
    let trusting = MqttConfig { ca_file: Some(directory.path().join("ca.pem")), ..mqtt(&url) };
    node_and_host(&trusting).await;
    let other = tempfile::tempdir().unwrap();
    certificates::write(other.path());
    let reason = offline(&MqttConfig { ca_file: Some(other.path().join("ca.pem")), ..trusting }).await;
    assert!(reason.starts_with(&format!("TLS with {url} failed: ")), "{reason}");
    assert!(
        reason.ends_with("; the authority that signed the server's certificate is not in mqtt.ca_file"),
        "{reason}"
    );
}

#[tokio::test]
async fn a_server_that_speaks_no_websocket_is_named() {
    let server = Mosquitto::start();
    let url = format!("ws://{}", server.address());
    let reason = offline(&mqtt(&url)).await;
    assert!(reason.contains("opens no WebSocket for MQTT") && reason.contains("mqtt.servers"), "{reason}");
}
