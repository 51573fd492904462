//! The Host Application machine, fed with any messages, events of the session, requests and times. It does not panic or run in a busy loop. Its events
//! name nodes and devices only between their births and deaths.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use sparkplug::host::{HostApplication, HostConfig, HostEvent, HostOutput, HostRequest, Liveness};
use sparkplug::metric::Metric;
use sparkplug::payload::{Compression, CompressionAlgorithm, Dialect, EncodeOptions, Form, Payload, encode};
use sparkplug::session::{QoS, TransportAction, TransportEvent};
use sparkplug::state::HostState;
use sparkplug::{DeviceId, EdgeNodeDescriptor, HostId, Now};

use super::reader::Reader;

/// More steps than that say nothing more.
const STEPS_MAX: usize = 2_000;
/// Calls of one passing of time; more would be a busy loop.
const TURNS_MAX: usize = 20_000;

/// See the module.
pub fn host(bytes: &[u8]) {
    let mut reader = Reader::new(bytes);
    let mut now = Now::new(Duration::from_secs(100), 1_700_000_000_000);
    let mut machine = HostApplication::new(config(&mut reader), now);
    let mut believer = Believer::default();
    let mut is_stopping = false;
    for _ in 0..STEPS_MAX {
        while let Some(output) = machine.poll_output() {
            believer.output(&output);
        }
        believer.compare(&machine);
        if reader.is_empty() {
            break;
        }
        if let Some(forgotten) = step(&mut machine, &mut reader, &mut now, &mut is_stopping) {
            // What was said of it before stands before the end.
            while let Some(output) = machine.poll_output() {
                believer.output(&output);
            }
            believer.alive.remove(&forgotten);
        }
    }
}

fn config(reader: &mut Reader<'_>) -> HostConfig {
    let host_id = (reader.below(4) != 3).then(|| HostId::new("H").expect("valid"));
    HostConfig {
        servers: 1 + usize::from(reader.below(2)),
        reorder_timeout: Duration::from_secs(u64::from(reader.below(3))),
        reorder_messages_max: usize::from(reader.below(4)),
        rebirth_requests: reader.below(4) != 3,
        nodes_max: usize::from(1 + reader.below(3)),
        devices_max: usize::from(1 + reader.below(2)),
        metrics_max: usize::from(2 + reader.below(4)),
        message_bytes_max: 2_000,
        report_aliases: true,
        ..HostConfig::new(host_id)
    }
}

/// Yields the node that was to be forgotten: not after a stop, from which on nothing is taken.
fn step(
    machine: &mut HostApplication,
    reader: &mut Reader<'_>,
    now: &mut Now,
    is_stopping: &mut bool,
) -> Option<EdgeNodeDescriptor> {
    match reader.below(16) {
        0 => pass(machine, now, Duration::from_millis(u64::from(reader.byte()) * 100)),
        1 => machine.on_transport(TransportEvent::Connected, *now),
        2 => machine.on_transport(TransportEvent::Subscribed, *now),
        3 if reader.below(4) == 3 => {
            let reached = reader.flag();
            machine.on_transport(TransportEvent::Disconnected { reason: "cut".to_owned(), reached }, *now);
        }
        4 => {
            let topic = format!("spBv1.0/G/NDATA/E{}", reader.below(4));
            machine.on_transport(TransportEvent::Lost { topic }, *now);
        }
        5 => {
            let node = node(reader);
            let request = match reader.below(8) {
                0 | 1 => HostRequest::Expect { node },
                2 => {
                    machine.request(HostRequest::Forget { node: node.clone() }, *now);
                    return (!*is_stopping).then_some(node);
                }
                3 | 4 => HostRequest::Rebirth { node },
                // Rarely, because it ends everything.
                7 if reader.byte() == 255 => {
                    *is_stopping = true;
                    HostRequest::Stop
                }
                _ => HostRequest::Command { node, device: None, metrics: metrics(reader) },
            };
            machine.request(request, *now);
        }
        _ => {
            let event = message(reader);
            machine.on_transport(event, *now);
        }
    }
    None
}

/// Lets time pass to each deadline until `by` is over.
fn pass(machine: &mut HostApplication, now: &mut Now, by: Duration) {
    let end = now.mono + by;
    for turn in 0.. {
        let Some(due) = machine.next_deadline().filter(|due| *due <= end) else { break };
        assert!(turn < TURNS_MAX, "a busy loop");
        advance(now, due);
        machine.handle_timeout(*now);
    }
    advance(now, end);
}

fn advance(now: &mut Now, to: Duration) {
    let by = to.saturating_sub(now.mono);
    now.mono += by;
    now.wall = now.wall.wrapping_add(u64::try_from(by.as_millis()).expect("short"));
}

fn node(reader: &mut Reader<'_>) -> EdgeNodeDescriptor {
    EdgeNodeDescriptor::parse("G", &format!("E{}", reader.below(4))).expect("valid")
}

fn metrics(reader: &mut Reader<'_>) -> Vec<Metric> {
    let metric = |reader: &mut Reader<'_>| match (format!("m{}", reader.below(5)), reader.byte()) {
        // Long enough to be worth compressing.
        (name, value @ 192..) => Metric::new(name, "x".repeat(usize::from(value))),
        (name, value) => Metric::new(name, value),
    };
    (0..reader.below(4)).map(|_| metric(reader)).collect()
}

fn message(reader: &mut Reader<'_>) -> TransportEvent {
    let (topic, payload) = match reader.below(16) {
        0 => {
            let state = HostState { online: reader.flag(), timestamp: u64::from(reader.below(9)) };
            ("spBv1.0/STATE/H".to_owned(), state.encode())
        }
        1 => (String::from_utf8_lossy(reader.bytes()).into_owned(), reader.bytes().to_vec().into()),
        2 => (format!("spBv1.0/G/NDATA/E{}", reader.below(4)), reader.bytes().to_vec().into()),
        choice => sparkplug(choice, reader),
    };
    TransportEvent::Message { topic, payload, qos: QoS::AtMostOnce, retain: reader.below(16) == 15 }
}

/// A message that is well made, in whatever order it may come.
fn sparkplug(choice: u8, reader: &mut Reader<'_>) -> (String, Bytes) {
    let kind = match choice {
        3..=5 => "NBIRTH",
        6..=8 => "NDATA",
        9 => "NDEATH",
        10 | 11 => "DBIRTH",
        12 | 13 => "DDATA",
        14 => "DDEATH",
        _ => "NCMD",
    };
    let node = reader.below(4);
    let mut metrics = metrics(reader);
    let topic = if kind.starts_with('D') {
        format!("spBv1.0/G/{kind}/E{node}/d{}", reader.below(3))
    } else {
        format!("spBv1.0/G/{kind}/E{node}")
    };
    if matches!(kind, "NBIRTH" | "NDEATH") {
        metrics.push(Metric::new("bdSeq", i64::from(reader.below(3))));
    }
    let seq = match kind {
        "NBIRTH" => Some(0),
        "NDEATH" | "NCMD" => None,
        _ => Some(u64::from(reader.below(5))),
    };
    let (timestamp, shape) = (u64::from(reader.below(9)), reader.byte());
    let form = if kind.ends_with("DATA") { Form::Data } else { Form::Birth };
    let alias = |name: &str| name.strip_prefix('m').and_then(|n| n.parse().ok());
    let aliases: Option<sparkplug::payload::AliasOf<'_>> = if shape % 2 == 1 { Some(&alias) } else { None };
    let payload = Payload { timestamp: Some(timestamp), seq, metrics, ..Payload::default() };
    let bytes = encode(&payload, &EncodeOptions { form, aliases, dialect: Dialect::Strict });
    let compression = Compression { algorithm: CompressionAlgorithm::Deflate, bytes_min: 0 };
    let compressed = (shape % 8 == 7).then(|| compression.apply(&bytes, timestamp, seq)).flatten();
    (topic, compressed.unwrap_or(bytes))
}

/// What an application believes from the events alone.
#[derive(Default)]
struct Believer {
    alive: BTreeMap<EdgeNodeDescriptor, BTreeSet<DeviceId>>,
    /// The will of this session's CONNECT; a listener has none.
    with_state: bool,
    published: bool,
}

impl Believer {
    fn output(&mut self, output: &HostOutput) {
        match output {
            HostOutput::Event(event) => self.event(event),
            HostOutput::Transport(TransportAction::Publish(publish)) => {
                let is_state = publish.topic == "spBv1.0/STATE/H";
                assert!(self.published || !self.with_state || is_state, "{} before STATE", publish.topic);
                self.published = true;
            }
            HostOutput::Transport(TransportAction::Connect(connect)) => {
                self.with_state = connect.will.is_some();
                self.published = false;
            }
            HostOutput::Transport(_) => {}
        }
    }

    fn event(&mut self, event: &HostEvent) {
        match event {
            HostEvent::NodeBirth { node, .. } => {
                self.alive.insert(node.clone(), BTreeSet::new());
            }
            HostEvent::NodeDeath { node, .. } | HostEvent::NodeStale { node, .. } => {
                self.alive.remove(node);
            }
            HostEvent::Offline { .. } | HostEvent::Stopped => self.alive.clear(),
            HostEvent::NodeData { node, .. } => {
                assert!(self.alive.contains_key(node), "data of a node that is not alive");
            }
            HostEvent::DeviceBirth { node, device, .. } => {
                self.alive.get_mut(node).expect("a device of a node that is alive").insert(device.clone());
            }
            HostEvent::DeviceData { node, device, .. } => {
                assert!(self.alive.get(node).is_some_and(|d| d.contains(device)), "data of a device that is not alive");
            }
            HostEvent::DeviceDeath { node, device, .. } => {
                let died = self.alive.get_mut(node).is_some_and(|d| d.remove(device));
                assert!(died, "death of a device that is not alive");
            }
            _ => {}
        }
    }

    /// The replicas say the same as the events.
    fn compare(&self, machine: &HostApplication) {
        let is_alive = |(_, view): &(_, sparkplug::host::NodeView<'_>)| view.liveness() == Liveness::Alive;
        let alive: BTreeMap<_, BTreeSet<DeviceId>> = machine
            .nodes()
            .filter(is_alive)
            .map(|(node, view)| {
                let devices = view.devices().filter(|(_, d)| d.is_alive()).map(|(id, _)| id.clone()).collect();
                (node.clone(), devices)
            })
            .collect();
        assert_eq!(alive, self.alive);
    }
}
