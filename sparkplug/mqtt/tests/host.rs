//! A Host Application on a real Mosquitto, with Edge Nodes of this package on the other side.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::support;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use sparkplug::edge_node::{EdgeNodeConfig, NodeEvent, NodeUpdate};
use sparkplug::host::{HostConfig, HostEvent, HostRequest};
use sparkplug::session::QoS;
use sparkplug::state::HostState;
use sparkplug::{DeviceId, EdgeNodeDescriptor, HostId, Metric, Value};
use sparkplug_mqtt::{BdSeqStore, Clock, EdgeNodeHandle, HostHandle, MqttConfig, Stopped, spawn_edge_node, spawn_host};
use support::mosquitto::Mosquitto;
use support::proxy::Proxy;
use support::tap::Tap;
use support::{mqtt, soon};

fn descriptor() -> EdgeNodeDescriptor {
    EdgeNodeDescriptor::parse("ACME-Central", "ConfigDB").unwrap()
}

fn host(mqtt: &MqttConfig) -> HostHandle {
    let config = HostConfig {
        filters: vec![("spBv1.0/ACME-Central/#".to_owned(), QoS::AtMostOnce)],
        reorder_timeout: Duration::from_millis(200),
        rebirth_interval: (Duration::from_millis(500), Duration::from_secs(5)),
        reconnect: (Duration::from_millis(200), Duration::from_secs(1)),
        ..HostConfig::new(Some(HostId::new("manager").unwrap()))
    };
    spawn_host(config, mqtt, Clock::new()).unwrap()
}

fn node(mqtt: &MqttConfig) -> EdgeNodeHandle {
    let config = EdgeNodeConfig {
        reconnect: (Duration::from_millis(200), Duration::from_secs(1)),
        rebirth_interval_min: Duration::from_millis(100),
        ..EdgeNodeConfig::new(descriptor())
    };
    let metrics = vec![Metric::new("Counter", 0_u64)];
    spawn_edge_node(config, metrics, mqtt, BdSeqStore::Memory, Clock::new()).unwrap()
}

async fn until<T>(host: &mut HostHandle, what: &str, mut wanted: impl FnMut(HostEvent) -> Option<T>) -> T {
    soon(what, async {
        loop {
            let event = host.recv().await.expect("the host runs");
            if let Some(found) = wanted(event) {
                return found;
            }
        }
    })
    .await
}

async fn online(host: &mut HostHandle) {
    until(host, "online", |event| matches!(event, HostEvent::Online).then_some(())).await;
}

async fn born(node: &mut EdgeNodeHandle) {
    soon("a birth", async { while !matches!(node.recv().await.expect("the node runs"), NodeEvent::Born { .. }) {} })
        .await;
}

#[tokio::test]
async fn state_is_online_with_the_time_of_the_will_and_offline_after_a_cut_and_after_a_stop() {
    let server = Mosquitto::start();
    let proxy = Proxy::start(server.address()).await;
    let mut tap = Tap::start(server.address().port()).await;
    let mut host = host(&mqtt(&proxy.url()));
    online(&mut host).await;
    let birth = HostState::decode(&tap.expect("STATE").await.payload).unwrap();
    assert!(birth.online);
    proxy.cut();
    let will = HostState::decode(&tap.expect("STATE").await.payload).unwrap();
    assert_eq!((will.online, will.timestamp), (false, birth.timestamp));
    online(&mut host).await;
    let second = HostState::decode(&tap.expect("STATE").await.payload).unwrap();
    assert!(second.online && second.timestamp >= birth.timestamp);
    soon("the stop", host.stop()).await;
    let mut farewell = HostState::decode(&tap.expect("STATE").await.payload).unwrap();
    // The retained will of the first session may have come after the birth of the second; the host answers it by saying the same again.
    while farewell == second {
        farewell = HostState::decode(&tap.expect("STATE").await.payload).unwrap();
    }
    assert!(!farewell.online && farewell.timestamp >= second.timestamp, "{farewell:?}");
    // No will on top of it: the next message is a marker. And the server has kept the farewell.
    tap.publish("marker/x/MARKER", vec![]).await;
    tap.expect("MARKER").await;
    let mut late = Tap::start(server.address().port()).await;
    let kept = late.expect("STATE").await;
    assert!(kept.retain);
    assert_eq!(HostState::decode(&kept.payload).unwrap(), farewell);
}

#[tokio::test]
async fn a_command_reaches_the_node_and_its_answer_the_host() {
    let server = Mosquitto::start();
    let mut node = node(&mqtt(&server.url()));
    born(&mut node).await;
    // A host that comes later asks for the birth that it has missed.
    let mut host = host(&mqtt(&server.url()));
    host.request(HostRequest::Expect { node: descriptor() }).await.unwrap();
    until(&mut host, "the birth", |event| matches!(event, HostEvent::NodeBirth { .. }).then_some(())).await;
    let metrics = vec![Metric::new("Counter", 7_u64)];
    host.request(HostRequest::Command { node: descriptor(), device: None, metrics }).await.unwrap();
    let wanted = soon("the command", async {
        loop {
            if let Some(NodeEvent::Command { metrics, .. }) = node.recv().await {
                return metrics;
            }
        }
    })
    .await;
    assert_eq!((&*wanted[0].name, &wanted[0].value), ("Counter", &Some(Value::UInt64(7))));
    node.update(NodeUpdate::Set { device: None, metrics: wanted }).await.unwrap();
    let reported = until(&mut host, "the data", |event| match event {
        HostEvent::NodeData { metrics, .. } => Some(metrics),
        _ => None,
    })
    .await;
    assert_eq!(reported[0].value, Some(Value::UInt64(7)));
    host.stop().await;
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_devices_are_born_and_replicated_through_mosquitto() {
    let server = Mosquitto::start();
    support::replication::ten_thousand_devices(&mqtt(&server.url())).await;
}

/// The node counts as fast as it can; the host's application sleeps, wakes up, and must end with the node's last value although most messages were dropped.
#[tokio::test(flavor = "multi_thread")]
async fn an_application_that_cannot_keep_up_ends_with_a_complete_replica_and_an_unbroken_link() {
    let server = Mosquitto::start();
    let limited = MqttConfig { keep_alive_s: 1, waiting_events_max: 50, ..mqtt(&server.url()) };
    let mut host = host(&limited);
    online(&mut host).await;
    let mut node = node(&mqtt(&server.url()));
    born(&mut node).await;
    let updates = node.updates();
    let last = 20_000_u64;
    let counting = tokio::spawn(async move {
        for number in 1..=last {
            updates
                .update(NodeUpdate::Set { device: None, metrics: vec![Metric::new("Counter", number)] })
                .await
                .unwrap();
        }
    });
    // Longer than a silent client lives.
    tokio::time::sleep(Duration::from_secs(4)).await;
    counting.await.unwrap();
    let mut stale = false;
    let mut losses = 0;
    let mut counter = None;
    soon("the last value", async {
        while counter != Some(last) {
            match host.recv().await.expect("the host runs") {
                HostEvent::NodeData { metrics, .. } => {
                    assert!(!stale, "no data is reported between the loss and the birth");
                    counter = metrics[0].as_u64();
                }
                HostEvent::NodeBirth { metrics, .. } => {
                    stale = false;
                    counter = metrics.iter().find(|metric| &*metric.name == "Counter").and_then(Metric::as_u64);
                }
                HostEvent::NodeStale { .. } => {
                    stale = true;
                    losses += 1;
                }
                HostEvent::Offline { reason } => panic!("the link broke: {reason}"),
                _ => {}
            }
        }
    })
    .await;
    assert!(losses > 0, "nothing was dropped, so nothing was shown");
    host.stop().await;
    node.stop().await;
}

#[tokio::test]
async fn devices_come_and_go_in_the_order_in_which_the_node_says_so() {
    let server = Mosquitto::start();
    let mut host = host(&mqtt(&server.url()));
    online(&mut host).await;
    let mut node = node(&mqtt(&server.url()));
    born(&mut node).await;
    let device = |number: u32| DeviceId::new(format!("d{number}")).unwrap();
    for number in 0..5 {
        let metrics = vec![Metric::new("Value", number)];
        node.update(NodeUpdate::DeviceBirth { device: device(number), metrics }).await.unwrap();
    }
    node.update(NodeUpdate::DeviceDeath { device: device(2) }).await.unwrap();
    node.update(NodeUpdate::Set { device: Some(device(4)), metrics: vec![Metric::new("Value", 40_u32)] })
        .await
        .unwrap();
    let mut devices = BTreeMap::new();
    let began = Instant::now();
    until(&mut host, "the last change", |event| match event {
        HostEvent::DeviceBirth { device, metrics, .. } => {
            devices.insert(device, metrics[0].as_u64());
            None
        }
        HostEvent::DeviceDeath { device, .. } => {
            devices.remove(&device);
            None
        }
        HostEvent::DeviceData { device, metrics, .. } => {
            devices.insert(device, metrics[0].as_u64());
            Some(())
        }
        _ => None,
    })
    .await;
    let expected = [(0, 0), (1, 1), (3, 3), (4, 40)].map(|(number, value)| (device(number), Some(value)));
    assert_eq!(devices, BTreeMap::from(expected), "after {:?}", began.elapsed());
    host.stop().await;
    node.stop().await;
}

#[tokio::test]
async fn a_snapshot_is_what_the_host_knows_of_a_node() {
    let server = Mosquitto::start();
    let mut host = host(&mqtt(&server.url()));
    online(&mut host).await;
    assert_eq!(host.node(&descriptor()).await.unwrap(), None);
    let node = node(&mqtt(&server.url()));
    let device = DeviceId::new("Oven").unwrap();
    node.update(NodeUpdate::DeviceBirth { device: device.clone(), metrics: vec![Metric::new("Heat", 20.5)] })
        .await
        .unwrap();
    until(&mut host, "a device", |event| matches!(event, HostEvent::DeviceBirth { .. }).then_some(())).await;
    node.set("Counter", 7_u64).await.unwrap();
    until(&mut host, "data", |event| matches!(event, HostEvent::NodeData { .. }).then_some(())).await;
    let known = host.node(&descriptor()).await.unwrap().unwrap();
    assert!(known.is_alive() && known.stale_at.is_none() && known.born_at.is_some(), "{known:?}");
    assert_eq!(known.metric("Counter").and_then(|metric| metric.value.clone()), Some(Value::from(7_u64)));
    let oven = &known.devices[&device];
    assert!(oven.is_alive());
    assert_eq!(oven.metric("Heat").and_then(|metric| metric.value.clone()), Some(Value::from(20.5)));
    node.stop().await;
    until(&mut host, "the death", |event| matches!(event, HostEvent::NodeDeath { .. }).then_some(())).await;
    let known = host.node(&descriptor()).await.unwrap().unwrap();
    assert!(!known.is_alive() && known.stale_at.is_some());
    assert_eq!(known.devices[&device].stale_at, known.stale_at, "a device dies with its node");
    assert!(known.metric("Counter").is_some(), "the last values are kept");
    let requests = host.requests();
    host.stop().await;
    assert_eq!(requests.node(&descriptor()).await, Err(Stopped));
}
