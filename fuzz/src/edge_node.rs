//! The Edge Node machine, fed with any updates, events of the session and times. It does not panic or run in a busy loop. What it publishes obeys the order of births, data and deaths.

use std::collections::BTreeSet;
use std::time::Duration;

use sparkplug::edge_node::{EdgeNode, EdgeNodeConfig, NodeEvent, NodeOutput, NodeUpdate};
use sparkplug::metric::{DataType, Metric, Value};
use sparkplug::payload::{
    Compression, CompressionAlgorithm, DisplayPayload, EncodeOptions, Form, Limits, Payload, decode_for_display, encode,
};
use sparkplug::session::{Publish, QoS, TransportAction, TransportEvent};
use sparkplug::state::HostState;
use sparkplug::{DeviceId, EdgeNodeDescriptor, HostId, MessageKind, Now, Topic};

use super::reader::Reader;

/// More steps than that say nothing more.
const STEPS_MAX: usize = 2_000;
/// Calls of one passing of time; more would be a busy loop.
const TURNS_MAX: usize = 20_000;

/// See the module.
pub fn edge_node(bytes: &[u8]) {
    let mut reader = Reader::new(bytes);
    let mut now = Now::new(Duration::from_secs(100), 1_700_000_000_000);
    let config = config(&mut reader);
    let bytes_max = config.message_bytes_max;
    let mut node = EdgeNode::new(config, vec![Metric::new("m0", 0u8)], now).expect("one small metric");
    let mut watch = Watch { bytes_max, ..Watch::default() };
    for _ in 0..STEPS_MAX {
        while let Some(output) = node.poll_output() {
            watch.output(&output);
        }
        if reader.is_empty() {
            break;
        }
        step(&mut node, &mut reader, &mut now);
    }
}

fn config(reader: &mut Reader<'_>) -> EdgeNodeConfig {
    let primary_host = reader.flag().then(|| HostId::new("H").expect("valid"));
    let algorithm = if reader.flag() { CompressionAlgorithm::Gzip } else { CompressionAlgorithm::Deflate };
    EdgeNodeConfig {
        primary_host,
        aliases: reader.flag(),
        servers: 1 + usize::from(reader.below(2)),
        compression: reader.flag().then_some(Compression { algorithm, bytes_min: 0 }),
        heartbeat: reader.flag().then_some(Duration::from_secs(30)),
        birth_burst: usize::from(1 + reader.below(3)),
        data_waiting_max: usize::from(reader.below(6)),
        message_bytes_max: 2_000,
        ..EdgeNodeConfig::new(EdgeNodeDescriptor::parse("G", "E").expect("valid"))
    }
}

fn step(node: &mut EdgeNode, reader: &mut Reader<'_>, now: &mut Now) {
    match reader.below(8) {
        0 => pass(node, now, Duration::from_millis(u64::from(reader.byte()) * 100)),
        1 => node.on_transport(TransportEvent::Connected, *now),
        2 => node.on_transport(TransportEvent::Subscribed, *now),
        3 => {
            let reached = reader.flag();
            node.on_transport(TransportEvent::Disconnected { reason: "cut".to_owned(), reached }, *now);
        }
        4 | 5 => {
            let event = message(reader);
            node.on_transport(event, *now);
        }
        // A clock that is set does not disturb anything.
        6 if reader.below(8) == 7 => now.wall = now.wall.wrapping_sub(u64::from(reader.byte()) * 1_000),
        _ => {
            let update = update(reader);
            let _ = node.update(update, *now);
        }
    }
}

/// Lets time pass to each deadline until `by` is over.
fn pass(node: &mut EdgeNode, now: &mut Now, by: Duration) {
    let end = now.mono + by;
    for turn in 0.. {
        let Some(due) = node.next_deadline().filter(|due| *due <= end) else { break };
        assert!(turn < TURNS_MAX, "a busy loop");
        advance(now, due);
        node.handle_timeout(*now);
    }
    advance(now, end);
}

fn advance(now: &mut Now, to: Duration) {
    let by = to.saturating_sub(now.mono);
    now.mono += by;
    now.wall = now.wall.wrapping_add(u64::try_from(by.as_millis()).expect("short"));
}

fn metrics(reader: &mut Reader<'_>) -> Vec<Metric> {
    let metric = |reader: &mut Reader<'_>| {
        let name = format!("m{}", reader.below(5));
        match reader.below(4) {
            0 => Metric::null(name, DataType::UInt8),
            1 => Metric::new(name, u16::from(reader.byte())),
            2 => Metric::new(name, "x".repeat(usize::from(reader.byte()) * 4)),
            _ => Metric::new(name, reader.byte()),
        }
    };
    (0..reader.below(4)).map(|_| metric(reader)).collect()
}

fn device(reader: &mut Reader<'_>) -> DeviceId {
    DeviceId::new(format!("d{}", reader.below(4))).expect("valid")
}

fn of(reader: &mut Reader<'_>) -> Option<DeviceId> {
    reader.flag().then(|| device(reader))
}

fn update(reader: &mut Reader<'_>) -> NodeUpdate {
    match reader.below(16) {
        0..=5 => NodeUpdate::Set { device: of(reader), metrics: metrics(reader) },
        6..=9 => NodeUpdate::DeviceBirth { device: device(reader), metrics: metrics(reader) },
        10 | 11 => NodeUpdate::DeviceDeath { device: device(reader) },
        12 => NodeUpdate::Historical { device: of(reader), metrics: metrics(reader) },
        13 | 14 => NodeUpdate::Rebirth,
        // Rarely, because it ends everything.
        _ if reader.byte() == 255 => NodeUpdate::Stop,
        _ => NodeUpdate::Rebirth,
    }
}

fn message(reader: &mut Reader<'_>) -> TransportEvent {
    let command = |metrics| encode(&Payload { metrics, ..Payload::default() }, &EncodeOptions::new(Form::Command));
    let (topic, payload) = match reader.below(8) {
        0 | 1 => {
            let state = HostState { online: reader.flag(), timestamp: u64::from(reader.below(9)) };
            ("spBv1.0/STATE/H".to_owned(), state.encode())
        }
        2 => ("spBv1.0/G/NCMD/E".to_owned(), command(vec![Metric::new("Node Control/Rebirth", true)])),
        3 => {
            (format!("spBv1.0/G/DCMD/E/{}", device(reader)), command(vec![Metric::new("Device Control/Rebirth", true)]))
        }
        4 => ("spBv1.0/G/NCMD/E".to_owned(), command(metrics(reader))),
        5 => (format!("spBv1.0/G/DCMD/E/{}", device(reader)), command(metrics(reader))),
        6 => ("spBv1.0/G/NCMD/E".to_owned(), reader.bytes().to_vec().into()),
        _ => (String::from_utf8_lossy(reader.bytes()).into_owned(), reader.bytes().to_vec().into()),
    };
    TransportEvent::Message { topic, payload, qos: QoS::AtMostOnce, retain: reader.below(8) == 7 }
}

/// What a server sees of one session.
#[derive(Default)]
struct Watch {
    bytes_max: usize,
    will_bd_seq: Option<i64>,
    seq: Option<u64>,
    alive: BTreeSet<DeviceId>,
    births_done: bool,
    dead: bool,
}

impl Watch {
    fn output(&mut self, output: &NodeOutput) {
        match output {
            NodeOutput::Transport(TransportAction::Connect(connect)) => {
                let will = bd_seq(&read(connect.will.as_ref().expect("an edge node has a will")));
                assert_eq!(connect.bd_seq.map(|n| n.get()), Some(will));
                *self = Self { bytes_max: self.bytes_max, will_bd_seq: Some(will), ..Self::default() };
            }
            NodeOutput::Transport(TransportAction::Publish(publish)) => self.publish(publish),
            NodeOutput::Transport(TransportAction::Disconnect) => assert!(self.dead, "DISCONNECT without NDEATH"),
            NodeOutput::Event(NodeEvent::Born { bd_seq, .. }) => {
                assert_eq!(Some(bd_seq.get()), self.will_bd_seq);
                self.births_done = true;
            }
            NodeOutput::Transport(_) | NodeOutput::Event(_) => {}
        }
    }

    fn publish(&mut self, publish: &Publish) {
        let payload = read(publish);
        let topic = Topic::parse(&publish.topic).expect("own topics are valid");
        assert!(!self.dead, "{topic} after NDEATH");
        assert!(publish.payload.len() <= self.bytes_max && !publish.retain);
        if topic.kind() == MessageKind::NDeath {
            assert_eq!((payload.seq, Some(bd_seq(&payload))), (None, self.will_bd_seq));
            self.dead = true;
            return;
        }
        let is_birth = topic.kind() == MessageKind::NBirth;
        let expected = if is_birth { 0 } else { (self.seq.expect("NBIRTH comes first") + 1) % 256 };
        assert_eq!(payload.seq, Some(expected), "{topic}");
        self.seq = payload.seq;
        match &topic {
            Topic::Node { .. } if is_birth => {
                assert_eq!(Some(bd_seq(&payload)), self.will_bd_seq);
                self.alive.clear();
                self.births_done = false;
            }
            Topic::Device { kind: MessageKind::DBirth, device, .. } => {
                assert!(self.alive.insert(device.clone()), "{topic} twice");
            }
            Topic::Device { kind: MessageKind::DDeath, device, .. } => {
                assert!(self.births_done && self.alive.remove(device), "{topic} without birth");
            }
            Topic::Device { kind: MessageKind::DData, device, .. } => {
                assert!(self.births_done && self.alive.contains(device), "{topic} without birth");
            }
            Topic::Node { kind: MessageKind::NData, .. } => assert!(self.births_done, "data during births"),
            _ => panic!("{topic} from an edge node"),
        }
    }
}

fn read(publish: &Publish) -> DisplayPayload {
    decode_for_display(&publish.payload, &Limits::default()).expect("own payloads are readable")
}

fn bd_seq(payload: &DisplayPayload) -> i64 {
    match payload.metrics.iter().find(|m| m.name.as_deref() == Some("bdSeq")).and_then(|m| m.value.as_ref()) {
        Some(Value::Int64(number)) => *number,
        other => panic!("no bdSeq: {other:?}"),
    }
}
