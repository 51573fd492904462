//! Our Host Application: over its MQTT session, and its machine alone.

use std::io::Read;
use std::time::Duration;

use sparkplug::host::{HostApplication, HostConfig, HostEvent, HostOutput};
use sparkplug::session::{QoS, TransportEvent};
use sparkplug::{HostId, Now};
use sparkplug_mqtt::{Clock, MqttConfig, Protocol, spawn_host};

use super::Tally;
use crate::stream;

fn config() -> HostConfig {
    HostConfig::new(Some(HostId::new("Office").expect("a valid id")))
}

pub async fn run(port: u16, mut tally: Tally) {
    // The packets are those of 3.1.1.
    let mqtt = MqttConfig {
        servers: vec![format!("mqtt://127.0.0.1:{port}")],
        protocol: Protocol::V311,
        ..MqttConfig::default()
    };
    let mut host = spawn_host(config(), &mqtt, Clock::new()).expect("a configuration that fits");
    while let Some(event) = host.recv().await {
        count(&event, &mut tally);
    }
}

/// Fed with the packets from standard input.
pub fn machine(mut tally: Tally) {
    let now = Now::new(Duration::from_secs(1), 1_700_000_100_000);
    let [births, cycle] = [part(), part()];
    // The packets are not the machine's memory.
    tally.before = super::Snapshot::take();
    let mut machine = HostApplication::new(config(), now);
    machine.on_transport(TransportEvent::Connected, now);
    machine.on_transport(TransportEvent::Subscribed, now);
    for packets in std::iter::once(&births).chain(std::iter::repeat(&cycle)) {
        for (topic, payload) in stream::packets(packets) {
            let payload = bytes(payload);
            machine.on_transport(
                TransportEvent::Message { topic: topic.to_owned(), payload, qos: QoS::AtMostOnce, retain: false },
                now,
            );
            while let Some(output) = machine.poll_output() {
                if let HostOutput::Event(event) = output {
                    count(&event, &mut tally);
                }
            }
        }
    }
}

/// As a client hands it over: a copy of what it read.
fn bytes(payload: &[u8]) -> bytes::Bytes {
    bytes::Bytes::copy_from_slice(payload)
}

fn part() -> Vec<u8> {
    let mut length = [0; 8];
    std::io::stdin().read_exact(&mut length).expect("packets");
    let mut part = vec![0; u64::from_le_bytes(length) as usize];
    std::io::stdin().read_exact(&mut part).expect("packets");
    part
}

fn count(event: &HostEvent, tally: &mut Tally) {
    match event {
        HostEvent::NodeBirth { .. } => tally.birth(),
        HostEvent::NodeData { metrics, .. } => tally.data(metrics.len()),
        HostEvent::NodeStale { .. } | HostEvent::Rejected { .. } | HostEvent::Offline { .. } => {
            panic!("the stream has no fault, but: {event:?}")
        }
        _ => {}
    }
}
