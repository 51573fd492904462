//! Several servers that know nothing of each other: an Edge Node that walks along its list, a Host Application that is on all of them at once.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::support;

use std::time::Duration;

use sparkplug::edge_node::{EdgeNodeConfig, NodeEvent};
use sparkplug::host::{HostConfig, HostEvent, HostRequest};
use sparkplug::session::QoS;
use sparkplug::state::HostState;
use sparkplug::{EdgeNodeDescriptor, HostId, Metric};
use sparkplug_mqtt::{BdSeqStore, Clock, EdgeNodeHandle, HostHandle, MqttConfig, spawn_edge_node, spawn_host};
use support::mosquitto::Mosquitto;
use support::soon;
use support::tap::Tap;

const RECONNECT: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));

fn descriptor() -> EdgeNodeDescriptor {
    EdgeNodeDescriptor::parse("Plant", "Press").unwrap()
}

fn on_both(servers: [&Mosquitto; 2]) -> MqttConfig {
    MqttConfig {
        servers: servers.map(Mosquitto::url).to_vec(),
        all_servers: true,
        keep_alive_s: 2,
        ..MqttConfig::default()
    }
}

fn node(mqtt: &MqttConfig, primary_host: Option<&str>) -> EdgeNodeHandle {
    let config = EdgeNodeConfig {
        reconnect: RECONNECT,
        primary_host: primary_host.map(|id| HostId::new(id).unwrap()),
        ..EdgeNodeConfig::new(descriptor())
    };
    let metrics = vec![Metric::new("Counter", 0_u64)];
    spawn_edge_node(config, metrics, mqtt, BdSeqStore::Memory, Clock::new()).unwrap()
}

fn host(mqtt: &MqttConfig) -> HostHandle {
    let config = HostConfig {
        filters: vec![("spBv1.0/Plant/#".to_owned(), QoS::AtLeastOnce)],
        reconnect: RECONNECT,
        ..HostConfig::new(Some(HostId::new("Office").unwrap()))
    };
    spawn_host(config, mqtt, Clock::new()).unwrap()
}

async fn until<T>(host: &mut HostHandle, what: &str, mut wanted: impl FnMut(HostEvent) -> Option<T>) -> T {
    soon(what, async {
        loop {
            if let Some(found) = wanted(host.recv().await.expect("the host runs")) {
                return found;
            }
        }
    })
    .await
}

async fn birth(host: &mut HostHandle) {
    until(host, "a birth", |event| matches!(event, HostEvent::NodeBirth { .. }).then_some(())).await;
}

/// Sends a command until it is there: commands are QoS 0, and one that is sent while a session is renewed is lost. Values grow from call to call.
async fn command_arrives(host: &mut HostHandle, node: &mut EdgeNodeHandle, value: u64) {
    let mut again = tokio::time::interval(Duration::from_secs(2));
    soon("the command", async {
        loop {
            tokio::select! {
                _ = again.tick() => {
                    let metrics = vec![Metric::new("Counter", value)];
                    let command = HostRequest::Command { node: descriptor(), device: None, metrics };
                    host.request(command).await.unwrap();
                }
                event = node.recv() => if let Some(NodeEvent::Command { metrics, .. }) = event {
                    match metrics[0].as_u64() {
                        Some(received) if received == value => return,
                        received => assert!(received < Some(value), "{received:?}"),
                    }
                },
            }
        }
    })
    .await;
}

async fn state(tap: &mut Tap) -> HostState {
    HostState::decode(&tap.until("STATE").await.payload).unwrap()
}

/// tck-id-operational-behavior-primary-application-state-with-multiple-servers-walk: the node goes where it can; the host is there already, and its replica is one.
#[tokio::test]
async fn a_host_on_both_servers_follows_a_node_whose_server_is_killed_and_restarted() {
    let (mut first, second) = (Mosquitto::start(), Mosquitto::start());
    let mqtt = on_both([&first, &second]);
    let (mut tap_1, mut tap_2) = (Tap::start(first.address().port()).await, Tap::start(second.address().port()).await);
    let mut host = host(&mqtt);
    // A server delivers STATE after it took the subscription. Before that on both, the node's first birth could reach no host.
    assert!(state(&mut tap_1).await.online && state(&mut tap_2).await.online);
    let mut node = node(&mqtt, None);
    birth(&mut host).await;
    command_arrives(&mut host, &mut node, 7).await;

    first.kill();
    let reason = until(&mut host, "stale", |event| match event {
        HostEvent::NodeStale { reason, .. } => Some(reason),
        HostEvent::Offline { reason } => panic!("one session is left, but: {reason}"),
        _ => None,
    });
    assert!(reason.await.starts_with("its server is lost: "));
    birth(&mut host).await;
    command_arrives(&mut host, &mut node, 8).await;

    // The first server is back: STATE is there again, and the node's place is still the second.
    first.restart();
    let mut tap = Tap::start(first.address().port()).await;
    assert!(state(&mut tap).await.online);
    command_arrives(&mut host, &mut node, 9).await;
    let known = host.node(&descriptor()).await.unwrap().expect("it was born on both");
    assert!(known.is_alive(), "what the server knows on which it is counts: {known:?}");
    soon("the stop", host.stop()).await;
    assert!(!state(&mut tap).await.online);
    node.stop().await;
}

/// tck-id-operational-behavior-primary-application-state-with-multiple-servers-state, tck-id-operational-behavior-host-application-multi-server-timestamp,
/// tck-id-payloads-state-birth: each server has a birth and a will with a timestamp of its own; what happens on one changes nothing on the other.
#[tokio::test]
async fn each_server_has_its_own_state() {
    let (first, second) = (Mosquitto::start(), Mosquitto::start());
    let proxy = support::proxy::Proxy::start(first.address()).await;
    let (mut tap_1, mut tap_2) = (Tap::start(first.address().port()).await, Tap::start(second.address().port()).await);
    let servers = vec![proxy.url(), second.url()];
    let mqtt = MqttConfig { servers, all_servers: true, keep_alive_s: 2, ..MqttConfig::default() };
    let host = host(&mqtt);
    let (on_1, on_2) = (state(&mut tap_1).await, state(&mut tap_2).await);
    assert!(on_1.online && on_2.online);
    proxy.cut();
    let will = state(&mut tap_1).await;
    assert_eq!((will.online, will.timestamp), (false, on_1.timestamp));
    let again = state(&mut tap_1).await;
    assert!(again.online && again.timestamp > on_1.timestamp, "{again:?}");
    tap_2.publish("marker/x/MARKER", vec![]).await;
    tap_2.expect("MARKER").await;
    soon("the stop", host.stop()).await;
    assert!(!state(&mut tap_2).await.online);
}

/// tck-id-operational-behavior-edge-node-termination-host-offline-reconnect, tck-id-operational-behavior-primary-application-state-with-multiple-servers-walk,
/// tck-id-operational-behavior-primary-application-state-with-multiple-servers-single-server
#[tokio::test]
async fn a_node_walks_to_the_server_on_which_its_primary_host_is_online_and_back() {
    let (first, second) = (Mosquitto::start(), Mosquitto::start());
    let (mut tap_1, mut tap_2) = (Tap::start(first.address().port()).await, Tap::start(second.address().port()).await);
    let mqtt = on_both([&first, &second]);
    let say = |online: bool, timestamp: u64| HostState { online, timestamp }.encode().to_vec();
    tap_1.publish_retained("spBv1.0/STATE/Office", say(true, 10)).await;
    tap_2.publish_retained("spBv1.0/STATE/Office", say(false, 10)).await;
    let node = node(&mqtt, Some("Office"));
    tap_1.until("NBIRTH").await;
    // Offline on the first, online on the second.
    tap_2.publish_retained("spBv1.0/STATE/Office", say(true, 20)).await;
    tap_1.publish_retained("spBv1.0/STATE/Office", say(false, 20)).await;
    tap_1.until("NDEATH").await;
    tap_2.until("NBIRTH").await;
    tap_1.publish_retained("spBv1.0/STATE/Office", say(true, 30)).await;
    tap_2.publish_retained("spBv1.0/STATE/Office", say(false, 30)).await;
    tap_2.until("NDEATH").await;
    tap_1.until("NBIRTH").await;
    node.stop().await;
}

#[tokio::test]
async fn a_node_walks_past_a_server_that_is_gone() {
    let (mut first, second) = (Mosquitto::start(), Mosquitto::start());
    let mut tap = Tap::start(second.address().port()).await;
    let mut node = node(&on_both([&first, &second]), None);
    soon("a birth", async { while !matches!(node.recv().await, Some(NodeEvent::Born { .. })) {} }).await;
    first.kill();
    tap.expect("NBIRTH").await;
    node.stop().await;
    tap.expect("NDEATH").await;
}

#[tokio::test]
async fn a_server_that_takes_nothing_holds_up_neither_the_other_nor_the_stop() {
    let (first, second) = (Mosquitto::start(), Mosquitto::start());
    let proxy = support::proxy::Proxy::start(first.address()).await;
    let mut tap = Tap::start(first.address().port()).await;
    let servers = vec![proxy.url(), second.url()];
    let mqtt = MqttConfig { servers, all_servers: true, keep_alive_s: 2, ..MqttConfig::default() };
    let mut host = host(&mqtt);
    state(&mut tap).await;
    proxy.stall();
    let mut node = node(&MqttConfig { servers: vec![second.url()], ..MqttConfig::default() }, None);
    birth(&mut host).await;
    // Commands to a node whose server is unknown go to both.
    let elsewhere = EdgeNodeDescriptor::parse("Plant", "unknown").unwrap();
    for number in 0..2_000_u64 {
        let metrics = vec![Metric::new("Text", "x".repeat(10_000)), Metric::new("Number", number)];
        let command = HostRequest::Command { node: elsewhere.clone(), device: None, metrics };
        soon("room for a request", host.request(command)).await.unwrap();
    }
    command_arrives(&mut host, &mut node, 5).await;
    soon("the stop", host.stop()).await;
    node.stop().await;
}

#[tokio::test]
async fn one_server_twice_is_refused() {
    let twice = vec!["mqtt://localhost:1883".to_owned(), "mqtt://localhost".to_owned()];
    let mqtt = MqttConfig { servers: twice, all_servers: true, ..MqttConfig::default() };
    assert_eq!(
        mqtt.validate().unwrap_err().to_string(),
        "mqtt.servers names a server twice; with mqtt.all_servers the two sessions would end each other"
    );
}
