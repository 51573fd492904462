//! The load of a large ConfigDB: one node, ten thousand devices, a host that replicates them all, and another that comes late.

use std::collections::BTreeMap;
use std::time::Instant;

use sparkplug::edge_node::{EdgeNodeConfig, NodeEvent, NodeUpdate};
use sparkplug::host::{HostConfig, HostEvent, HostRequest};
use sparkplug::{DeviceId, EdgeNodeDescriptor, HostId, Metric};
use sparkplug_mqtt::{BdSeqStore, Clock, HostHandle, MqttConfig, spawn_edge_node, spawn_host};

use super::soon;

const DEVICES: usize = 10_000;

pub async fn ten_thousand_devices(mqtt: &MqttConfig) {
    let descriptor = EdgeNodeDescriptor::parse("ACME-Central", "ConfigDB").unwrap();
    let clock = Clock::new();
    let start_host = |id: &str| {
        let host = spawn_host(HostConfig::new(Some(HostId::new(id).unwrap())), mqtt, clock).unwrap();
        let expect = HostRequest::Expect { node: descriptor.clone() };
        async { (host.request(expect).await, host).1 }
    };
    let mut first = start_host("first").await;
    let began = Instant::now();
    let metrics = vec![Metric::new("Config/Objects", DEVICES as u64)];
    let config = EdgeNodeConfig::new(descriptor.clone());
    let mut node = spawn_edge_node(config, metrics, mqtt, BdSeqStore::Memory, clock).unwrap();
    // The document of an object, 300 bytes of it.
    let document = format!("{{\"name\": \"{}\"}}", "x".repeat(290));
    for number in 0..DEVICES {
        let device = DeviceId::new(format!("object-{number:05}")).unwrap();
        let metrics = vec![Metric::new("Info", document.as_str()), Metric::new("Number", number as u64)];
        node.update(NodeUpdate::DeviceBirth { device, metrics }).await.unwrap();
    }
    eprintln!("given to the node after {:?}", began.elapsed());
    soon("the births", async { while !matches!(node.recv().await, Some(NodeEvent::Born { .. })) {} }).await;
    eprintln!("born after {:?}", began.elapsed());
    complete(&mut first).await;
    eprintln!("replicated after {:?}", began.elapsed());

    // All of it again in one go, for a host that comes late; the first host takes it as well.
    let late = Instant::now();
    let mut second = start_host("second").await;
    tokio::join!(complete(&mut second), complete(&mut first));
    eprintln!("rebirth replicated after {:?}", late.elapsed());
    tokio::join!(first.stop(), second.stop(), node.stop());
}

/// Until every device is born in one session, each with its own value. A gap on the way costs a further rebirth, but no wrong value.
async fn complete(host: &mut HostHandle) {
    soon("all devices", async {
        let mut devices = BTreeMap::new();
        while devices.len() < DEVICES {
            match host.recv().await.expect("the host runs") {
                HostEvent::NodeBirth { .. } => devices.clear(),
                HostEvent::DeviceBirth { device, metrics, .. } => {
                    let number = metrics.iter().find(|metric| &*metric.name == "Number").and_then(Metric::as_u64);
                    assert_eq!(format!("object-{:05}", number.unwrap()), device.as_str());
                    devices.insert(device, ());
                }
                HostEvent::NodeStale { reason, .. } => eprintln!("stale: {reason}"),
                HostEvent::Offline { reason } => eprintln!("offline: {reason}"),
                HostEvent::Rejected { topic, reason } => panic!("{topic}: {reason}"),
                _ => {}
            }
        }
    })
    .await;
}
