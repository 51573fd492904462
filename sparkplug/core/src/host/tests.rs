//! Every test sees all that comes out: [`Bench::expect`] fails on anything left over.

use super::*;
use bytes::Bytes;

use crate::metric::{DataType, Properties, Value};
use crate::payload::{self, Dialect, EncodeOptions, Form, Payload};
use crate::session::Publish;
use crate::state::HostState;

mod births;
#[cfg(feature = "compression")]
mod compressed;
mod follow;
mod growth;
mod invariants;
mod messages;
mod model;
mod new_hosts;
mod order;
mod rebirths;
mod session;
mod shares;

const WALL: u64 = 1_700_000_000_000;

struct Bench {
    machine: HostApplication,
    now: Now,
}

fn e() -> EdgeNodeDescriptor {
    EdgeNodeDescriptor::parse("G", "E").expect("valid")
}

fn device(id: &str) -> DeviceId {
    DeviceId::new(id).expect("valid")
}

/// Without jitter, so that times are exact.
fn config() -> HostConfig {
    HostConfig { rebirth_jitter: Duration::ZERO, ..HostConfig::new(Some(HostId::new("H").expect("valid"))) }
}

fn values(metrics: &[Metric]) -> String {
    let text = |m: &Metric| {
        let value = m.value.as_ref().map_or_else(|| format!("null:{:?}", m.datatype), |v| format!("{v:?}"));
        format!("{}{}={value}", if m.is_historical { "~" } else { "" }, m.name)
    };
    metrics.iter().map(text).collect::<Vec<_>>().join(" ")
}

/// One line for each output, with what matters of it.
fn line(output: &HostOutput) -> String {
    let own = |node: &EdgeNodeDescriptor| node.edge_node.to_string();
    match output {
        HostOutput::Transport(TransportAction::Connect(c)) => {
            assert_eq!(c.bd_seq, None);
            let will = c.will.as_ref().map_or_else(|| "-".to_owned(), publish_line);
            format!("connect {} will [{will}]", c.server)
        }
        HostOutput::Transport(TransportAction::Subscribe(filters)) => {
            let filters: Vec<String> = filters.iter().map(|(f, q)| format!("{f} {}", *q as u8)).collect();
            format!("subscribe {}", filters.join(", "))
        }
        HostOutput::Transport(TransportAction::Publish(p)) => publish_line(p),
        HostOutput::Transport(TransportAction::Disconnect) => "disconnect".to_owned(),
        HostOutput::Event(event) => match event {
            HostEvent::Online => "online".to_owned(),
            HostEvent::Offline { reason } => format!("offline {reason}"),
            HostEvent::NodeBirth { node, bd_seq, timestamp, metrics, .. } => {
                format!("{} born {} at {timestamp} {}", own(node), bd_seq.get(), values(metrics))
            }
            HostEvent::Aliases { node, device, aliases } => {
                let of = device.as_ref().map_or(String::new(), |device| format!("/{device}"));
                let aliases: Vec<String> = aliases.iter().map(|(name, alias)| format!("{name}={alias}")).collect();
                format!("{}{of} aliases {}", own(node), aliases.join(" "))
            }
            HostEvent::NodeDeath { node, timestamp } => format!("{} dead at {timestamp}", own(node)),
            HostEvent::NodeStale { node, reason } => format!("{} stale: {reason}", own(node)),
            HostEvent::NodeData { node, timestamp, metrics } => {
                format!("{} data at {timestamp} {}", own(node), values(metrics))
            }
            HostEvent::Message { node, device, kind, qos, retain, payload } => {
                let of = device.as_ref().map_or(String::new(), |device| format!("/{device}"));
                let retained = if *retain { " retained" } else { "" };
                let qos = if *qos == QoS::AtMostOnce { "" } else { " at least once" };
                format!("{}{of} sent {kind} of {} bytes{qos}{retained}", own(node), payload.len())
            }
            HostEvent::NodeMessages { node, metrics } => format!("{} says {}", own(node), values(metrics)),
            HostEvent::DeviceBirth { node, device, timestamp, metrics } => {
                format!("{}/{device} born at {timestamp} {}", own(node), values(metrics))
            }
            HostEvent::DeviceData { node, device, timestamp, metrics } => {
                format!("{}/{device} data at {timestamp} {}", own(node), values(metrics))
            }
            HostEvent::DeviceDeath { node, device, timestamp } => format!("{}/{device} dead at {timestamp}", own(node)),
            HostEvent::RebirthRequested { node, reason } => format!("{} asked: {reason}", own(node)),
            HostEvent::HostState { host, state } => format!("state {host} {} {}", state.online, state.timestamp),
            HostEvent::HostServed { host } => format!("served {host}"),
            HostEvent::Rejected { topic, reason } => format!("rejected {topic}: {reason}"),
            HostEvent::Stopped => "stopped".to_owned(),
        },
    }
}

/// QoS and retain only where they are not 0.
fn publish_line(p: &Publish) -> String {
    let qos = if p.qos == QoS::AtMostOnce { "" } else { " qos1" };
    let retain = if p.retain { " retained" } else { "" };
    let content = if p.topic.starts_with("spBv1.0/STATE/") {
        String::from_utf8(p.payload.to_vec()).expect("STATE is text")
    } else {
        let raw = payload::decode(&p.payload, &Limits::default()).expect("own payloads are readable");
        assert!(raw.timestamp.is_some() && raw.seq.is_none(), "a command has a timestamp and no seq");
        let shown = payload::decode_for_display(&p.payload, &Limits::default()).expect("readable");
        let metric = |m: &payload::DisplayMetric| {
            assert!(m.datatype.is_some() && m.alias.is_none());
            format!("{}={:?}", m.name.as_deref().expect("named"), m.value)
        };
        shown.metrics.iter().map(metric).collect::<Vec<_>>().join(" ")
    };
    format!("{}{qos}{retain} {content}", p.topic)
}

const ASK: &str = "spBv1.0/G/NCMD/E Node Control/Rebirth=Some(Boolean(true))";

impl Bench {
    fn new(config: HostConfig) -> Self {
        let now = Now::new(Duration::from_secs(100), WALL);
        Self { machine: HostApplication::new(config, now), now }
    }

    fn online(config: HostConfig) -> Self {
        let mut bench = Self::new(config);
        bench.go_online();
        bench.outputs();
        bench
    }

    /// Online, and E is born with `T`, a device D with `x`.
    fn with_node(config: HostConfig) -> Self {
        let mut bench = Self::online(config);
        bench.nbirth(0, 1000, vec![Metric::new("T", 20.0f64)]);
        bench.send("DBIRTH", Some("D"), Some(1), 1000, vec![Metric::new("x", 1u16)]);
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

    fn lose(&mut self) {
        self.on(TransportEvent::Disconnected { reason: "cut".to_owned(), reached: true });
    }

    fn request(&mut self, request: HostRequest) {
        self.machine.request(request, self.now);
    }

    fn receive(&mut self, topic: &str, payload: impl Into<Bytes>) {
        self.on(TransportEvent::Message {
            topic: topic.to_owned(),
            payload: payload.into(),
            qos: QoS::AtMostOnce,
            retain: false,
        });
    }

    fn nbirth(&mut self, bd_seq: i64, timestamp: u64, metrics: Vec<Metric>) {
        let metrics = std::iter::once(Metric::new("bdSeq", bd_seq)).chain(metrics).collect();
        self.send("NBIRTH", None, Some(0), timestamp, metrics);
    }

    fn ndeath(&mut self, bd_seq: i64) {
        self.send("NDEATH", None, None, 5, vec![Metric::new("bdSeq", bd_seq)]);
    }

    fn ndata(&mut self, seq: u64, value: f64) {
        self.send("NDATA", None, Some(seq), 2000, vec![Metric::new("T", value)]);
    }

    fn ddata(&mut self, seq: u64, value: u16) {
        self.send("DDATA", Some("D"), Some(seq), 2000, vec![Metric::new("x", value)]);
    }

    fn send(&mut self, kind: &str, device: Option<&str>, seq: Option<u64>, timestamp: u64, metrics: Vec<Metric>) {
        let bytes = message(kind, seq, timestamp, metrics, None);
        self.receive(&topic(kind, device), bytes);
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

    /// The program wakes after that time, whatever was due before.
    fn wake_after(&mut self, by: Duration) {
        self.advance_to(self.now.mono + by);
        self.machine.handle_timeout(self.now);
    }

    fn advance_to(&mut self, mono: Duration) {
        if mono > self.now.mono {
            self.now.wall += u64::try_from((mono - self.now.mono).as_millis()).expect("short");
            self.now.mono = mono;
        }
    }

    fn outputs(&mut self) -> Vec<HostOutput> {
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

fn topic(kind: &str, device: Option<&str>) -> String {
    device.map_or_else(|| format!("spBv1.0/G/{kind}/E"), |d| format!("spBv1.0/G/{kind}/E/{d}"))
}

fn message(
    kind: &str,
    seq: Option<u64>,
    timestamp: u64,
    metrics: Vec<Metric>,
    aliases: Option<payload::AliasOf<'_>>,
) -> Bytes {
    let form = if kind.ends_with("DATA") { Form::Data } else { Form::Birth };
    let payload = Payload { timestamp: Some(timestamp), seq, metrics, ..Payload::default() };
    payload::encode(&payload, &EncodeOptions { form, aliases, dialect: Dialect::Strict })
}
