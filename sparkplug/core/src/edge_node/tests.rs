//! Every test sees all that comes out: [`Bench::expect`] fails on anything left over.

use super::*;
use crate::metric::{DataType, MetaData, Properties, Template, Value};
use crate::payload::{DisplayMetric, DisplayPayload, EncodeOptions, Form, Limits, Payload, decode_for_display, encode};
use crate::session::{Publish, QoS};
use crate::state::HostState;
use crate::topic::{MessageKind, Topic};

mod commands;
#[cfg(feature = "compression")]
mod compression;
mod forward;
mod heartbeat;
mod invariants;
mod model;
mod primary;
mod reports;
mod session;
mod speaker;

const WALL: u64 = 1_700_000_000_000;

struct Bench {
    machine: EdgeNode,
    now: Now,
}

fn descriptor() -> EdgeNodeDescriptor {
    EdgeNodeDescriptor::parse("G", "E").expect("valid")
}

fn device(id: &str) -> DeviceId {
    DeviceId::new(id).expect("valid")
}

fn config() -> EdgeNodeConfig {
    EdgeNodeConfig::new(descriptor())
}

fn node_metrics() -> Vec<Metric> {
    vec![Metric::new("Temperature", 20.0f64), Metric::string("Name", None)]
}

/// One line for each output, with what matters of it.
fn line(output: &NodeOutput) -> String {
    match output {
        NodeOutput::Transport(TransportAction::Connect(c)) => {
            let will = c.will.as_ref().map_or_else(|| "-".to_owned(), publish_line);
            format!("connect {} will [{will}]", c.server)
        }
        NodeOutput::Transport(TransportAction::Subscribe(filters)) => {
            let filters: Vec<String> = filters.iter().map(|(f, q)| format!("{f} {}", *q as u8)).collect();
            format!("subscribe {}", filters.join(", "))
        }
        NodeOutput::Transport(TransportAction::Publish(p)) => publish_line(p),
        NodeOutput::Transport(TransportAction::Disconnect) => "disconnect".to_owned(),
        NodeOutput::Event(NodeEvent::Born { bd_seq, rebirth }) => format!("born {} {rebirth}", bd_seq.get()),
        NodeOutput::Event(NodeEvent::Offline { reason }) => format!("offline {reason}"),
        NodeOutput::Event(NodeEvent::Command { device, metrics, timestamp }) => {
            let metrics: Vec<String> = metrics
                .iter()
                .map(|m| format!("{}={}", m.name, value_text(m.value.as_ref(), Some(m.datatype))))
                .collect();
            let device = device.as_ref().map_or("-", |d| d.as_str());
            format!("command {device} {} at {timestamp:?}", metrics.join(" "))
        }
        NodeOutput::Event(NodeEvent::Forwarded { sent, dropped }) => format!("forwarded {sent} dropped {dropped}"),
        NodeOutput::Event(NodeEvent::Rejected { topic, reason }) => format!("rejected {topic}: {reason}"),
        NodeOutput::Event(NodeEvent::Displaced(other)) => format!("displaced: {other}"),
        NodeOutput::Event(NodeEvent::Contested(other)) => format!("contested: {other}"),
        NodeOutput::Event(NodeEvent::BirthNotReceived(undelivered)) => format!("not received: {undelivered}"),
        NodeOutput::Event(NodeEvent::BirthReceived) => "received".to_owned(),
        NodeOutput::Event(NodeEvent::Stopped) => "stopped".to_owned(),
    }
}

fn value_text(value: Option<&Value>, datatype: Option<DataType>) -> String {
    match value {
        Some(value) => format!("{value:?}"),
        None => format!("null:{datatype:?}"),
    }
}

fn read(publish: &Publish) -> DisplayPayload {
    decode_for_display(&publish.payload, &Limits::default()).expect("own payloads are readable")
}

fn metric_text(m: &DisplayMetric) -> String {
    let name = match (&m.name, m.alias) {
        (Some(name), None) => name.to_string(),
        (Some(name), Some(alias)) => format!("{name}#{alias}"),
        (None, Some(alias)) => format!("#{alias}"),
        (None, None) => "?".to_owned(),
    };
    let history = if m.is_historical { "~" } else { "" };
    let properties: Vec<String> = m.properties.iter().map(|(k, _)| k.to_owned()).collect();
    let properties = if properties.is_empty() { String::new() } else { format!("{{{}}}", properties.join(",")) };
    format!("{history}{name}={}{properties}", value_text(m.value.as_ref(), m.datatype))
}

/// `NDATA E 3 Temperature=Double(21.0)`; QoS and retain only where they are not 0.
fn publish_line(p: &Publish) -> String {
    let payload = read(p);
    assert!(payload.timestamp.is_some(), "{}: no timestamp", p.topic);
    assert!(payload.metrics.iter().all(|m| m.timestamp.is_some()), "{}: metric without timestamp", p.topic);
    let levels: Vec<&str> = p.topic.split('/').collect();
    assert_eq!(&levels[..2], ["spBv1.0", "G"]);
    let qos = if p.qos == QoS::AtMostOnce { "" } else { " qos1" };
    let retain = if p.retain { " retained" } else { "" };
    let seq = payload.seq.map_or_else(|| "-".to_owned(), |s| s.to_string());
    let metrics: Vec<String> = payload.metrics.iter().map(metric_text).collect();
    let mut line = format!("{} {} {seq}{qos}{retain}", levels[2], levels[3..].join("/"));
    for metric in metrics {
        line.push(' ');
        line.push_str(&metric);
    }
    line
}

impl Bench {
    fn new(config: EdgeNodeConfig, metrics: Vec<Metric>) -> Self {
        let now = Now::new(Duration::from_secs(100), WALL);
        Self { machine: EdgeNode::new(config, metrics, now).expect("valid"), now }
    }

    /// A node with one metric, born; outputs of the way there are dropped.
    fn born(config: EdgeNodeConfig) -> Self {
        let mut bench = Self::new(config, vec![Metric::new("Temperature", 20.0f64)]);
        bench.go_online();
        assert!(bench.machine.is_born());
        bench.outputs();
        bench
    }

    fn go_online(&mut self) {
        self.on(TransportEvent::Connected);
        self.on(TransportEvent::Subscribed);
    }

    fn on(&mut self, event: TransportEvent) {
        self.machine.on_transport(event, self.now);
    }

    fn lose(&mut self, reached: bool) {
        self.on(TransportEvent::Disconnected { reason: "cut".to_owned(), reached });
    }

    fn update(&mut self, update: NodeUpdate) {
        self.machine.update(update, self.now).expect("accepted");
    }

    fn set(&mut self, of: Option<&str>, metrics: Vec<Metric>) {
        self.update(NodeUpdate::Set { device: of.map(device), metrics });
    }

    fn birth(&mut self, of: &str, metrics: Vec<Metric>) {
        self.update(NodeUpdate::DeviceBirth { device: device(of), metrics });
    }

    fn death(&mut self, of: &str) {
        self.update(NodeUpdate::DeviceDeath { device: device(of) });
    }

    fn receive(&mut self, topic: &str, payload: impl Into<bytes::Bytes>) {
        self.on(TransportEvent::Message {
            topic: topic.to_owned(),
            payload: payload.into(),
            qos: QoS::AtMostOnce,
            retain: false,
        });
    }

    fn command(&mut self, topic: &str, metrics: Vec<Metric>) {
        let payload = Payload { timestamp: Some(7), metrics, ..Payload::default() };
        self.receive(topic, encode(&payload, &EncodeOptions::new(Form::Command)));
    }

    /// Lets time pass to each deadline until `by` is over.
    fn pass(&mut self, by: Duration) {
        let end = self.now.mono + by;
        let mut turns = 0;
        while let Some(due) = self.machine.next_deadline().filter(|due| *due <= end) {
            self.advance_to(due);
            self.machine.handle_timeout(self.now);
            turns += 1;
            assert!(turns < 10_000, "a busy loop");
        }
        self.advance_to(end);
    }

    fn advance_to(&mut self, mono: Duration) {
        if mono > self.now.mono {
            self.now.wall += u64::try_from((mono - self.now.mono).as_millis()).expect("short");
            self.now.mono = mono;
        }
    }

    fn outputs(&mut self) -> Vec<NodeOutput> {
        std::iter::from_fn(|| self.machine.poll_output()).collect()
    }

    fn lines(&mut self) -> Vec<String> {
        self.outputs().iter().map(line).collect()
    }

    #[track_caller]
    fn expect(&mut self, lines: &[&str]) {
        assert_eq!(self.lines(), lines);
    }
}
