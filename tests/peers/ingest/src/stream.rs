//! The prepared stream: what a fleet of our own Edge Node machines says, as MQTT packets.

use std::io::Write;
use std::time::Duration;

use sparkplug::edge_node::{EdgeNode, EdgeNodeConfig, NodeOutput, NodeUpdate};
use sparkplug::session::{Publish, TransportAction, TransportEvent};
use sparkplug::{EdgeNodeDescriptor, Metric, Now};

use crate::Fleet;

const WALL: u64 = 1_700_000_000_000;
/// Metrics of a data message.
pub const CHANGED: usize = 10;

/// How metrics are called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Names {
    /// Nodes of one kind have the same names.
    OfKind,
    /// No name occurs twice in the fleet.
    OfNode,
}

impl Names {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OfKind => "the same names on every node",
            Self::OfNode => "names that no other node has",
        }
    }

    fn name(self, node: usize, metric: usize) -> String {
        match self {
            Self::OfKind => format!("Line 4/Press/Drive {metric:03}/Velocity"),
            Self::OfNode => format!("Line 4/{node:05}/Drive {metric:03}/Velocity"),
        }
    }
}

/// Births of all nodes, and 256 data messages of each, which can be sent again and again: `seq` goes round.
pub struct Stream {
    pub births: Vec<u8>,
    pub cycle: Vec<u8>,
    data: usize,
    cycles: usize,
}

impl Stream {
    pub fn new(fleet: Fleet, is_v5: bool) -> Self {
        let mut births = Vec::new();
        let mut nodes: Vec<EdgeNode> = (0..fleet.nodes)
            .map(|number| {
                let mut node = edge_node(fleet, number);
                for publish in published(&mut node) {
                    packet(&publish, is_v5, &mut births);
                }
                node
            })
            .collect();
        let mut cycle = Vec::new();
        let messages = if fleet.cycles == 0 { 0 } else { 256 };
        for message in 0..messages {
            for (number, node) in nodes.iter_mut().enumerate() {
                let changed = (0..CHANGED).map(|n| {
                    let metric = (message + number + n * 3) % fleet.metrics;
                    Metric::new(fleet.names.name(number, metric), (message * 100 + n) as f64 + 0.5)
                });
                let update = NodeUpdate::Set { device: None, metrics: changed.collect() };
                node.update(update, now(1)).expect("the values fit");
                for publish in published(node) {
                    packet(&publish, is_v5, &mut cycle);
                }
            }
        }
        Self { births, cycle, data: messages * fleet.nodes, cycles: fleet.cycles }
    }

    pub const fn data_messages(&self) -> usize {
        self.data * self.cycles
    }

    /// Everything, for a contender without a connection.
    pub fn write_to(&self, out: &mut impl Write) {
        for part in [&self.births, &self.cycle] {
            out.write_all(&(part.len() as u64).to_le_bytes()).expect("the contender listens");
            out.write_all(part).expect("the contender listens");
        }
    }
}

fn now(seconds: u64) -> Now {
    Now::new(Duration::from_secs(100 + seconds), WALL + seconds * 1_000)
}

fn edge_node(fleet: Fleet, number: usize) -> EdgeNode {
    let name = EdgeNodeDescriptor::parse("Plant", &format!("Press_{number:05}")).expect("valid ids");
    let metrics = (0..fleet.metrics).map(|n| Metric::new(fleet.names.name(number, n), n as f64)).collect();
    let config = EdgeNodeConfig { aliases: true, ..EdgeNodeConfig::new(name) };
    let mut node = EdgeNode::new(config, metrics, now(0)).expect("the birth fits");
    node.on_transport(TransportEvent::Connected, now(0));
    node.on_transport(TransportEvent::Subscribed, now(0));
    node
}

fn published(node: &mut EdgeNode) -> Vec<Publish> {
    std::iter::from_fn(|| node.poll_output())
        .filter_map(|output| match output {
            NodeOutput::Transport(TransportAction::Publish(publish)) => Some(publish),
            _ => None,
        })
        .collect()
}

/// A PUBLISH of QoS 0.
fn packet(publish: &Publish, is_v5: bool, out: &mut Vec<u8>) {
    let topic = publish.topic.as_bytes();
    let mut rest = 2 + topic.len() + usize::from(is_v5) + publish.payload.len();
    out.push(0x30);
    while rest >= 0x80 {
        out.push(0x80 | (rest & 0x7f) as u8);
        rest >>= 7;
    }
    out.push(rest as u8);
    out.extend((topic.len() as u16).to_be_bytes());
    out.extend(topic);
    if is_v5 {
        out.push(0);
    }
    out.extend(&publish.payload[..]);
}

/// Topic and payload of each PUBLISH of 3.1.1 in `bytes`.
pub fn packets(bytes: &[u8]) -> impl Iterator<Item = (&str, &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let (_, mut tail) = rest.split_first()?;
        let (mut length, mut shift) = (0, 0);
        loop {
            let (byte, after) = tail.split_first()?;
            tail = after;
            length |= usize::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                break;
            }
        }
        let (body, after) = tail.split_at_checked(length)?;
        rest = after;
        let (size, body) = body.split_first_chunk::<2>()?;
        let (topic, payload) = body.split_at_checked(u16::from_be_bytes(*size).into())?;
        Some((std::str::from_utf8(topic).ok()?, payload))
    })
}
