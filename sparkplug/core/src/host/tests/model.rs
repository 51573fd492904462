//! Random lives of several nodes against a reference that keeps plain lists of metrics: after every step each replica is what the reference says, and so are the events.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const NODES: usize = 3;
const DEVICES: usize = 2;

/// A metric of a birth: which of a few names, type, value, property.
type BirthMetric = (u8, u8, u8, Option<u8>);

/// A change: which metric of the birth, what value, and how it is sent.
type Change = (u8, u8, How);

#[derive(Debug, Clone, Copy)]
enum How {
    Plain,
    Null,
    Historical,
    Transient,
    Property(u8),
}

#[derive(Debug, Clone)]
enum Step {
    NodeBirth {
        node: usize,
        aliases: bool,
        metrics: Vec<BirthMetric>,
    },
    DeviceBirth {
        node: usize,
        device: usize,
        metrics: Vec<BirthMetric>,
    },
    Data {
        node: usize,
        device: Option<usize>,
        changes: Vec<Change>,
    },
    /// Two data messages that arrive in the wrong order.
    Swapped {
        node: usize,
        device: Option<usize>,
        first: Vec<Change>,
        second: Vec<Change>,
    },
    /// A message that never arrives, then data, then a long time.
    Lost {
        node: usize,
        changes: Vec<Change>,
    },
    /// The last message of the node once more.
    Again {
        node: usize,
    },
    /// Data of a name that no birth has.
    Unknown {
        node: usize,
        device: Option<usize>,
    },
    DeviceDeath {
        node: usize,
        device: usize,
    },
    NodeDeath {
        node: usize,
    },
}

fn metrics() -> impl Strategy<Value = Vec<BirthMetric>> {
    proptest::collection::vec((0..6_u8, 0..5_u8, any::<u8>(), proptest::option::weighted(0.3, 0..3_u8)), 0..6)
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let how = prop_oneof![
        6 => Just(How::Plain),
        1 => Just(How::Null),
        1 => Just(How::Historical),
        1 => Just(How::Transient),
        1 => (0..3_u8).prop_map(How::Property),
    ];
    proptest::collection::vec((any::<u8>(), any::<u8>(), how), 1..5)
}

fn step() -> impl Strategy<Value = Step> {
    let device = || proptest::option::of(0..DEVICES);
    prop_oneof![
        4 => (0..NODES, any::<bool>(), metrics()).prop_map(|(node, aliases, metrics)| Step::NodeBirth { node, aliases, metrics }),
        4 => (0..NODES, 0..DEVICES, metrics()).prop_map(|(node, device, metrics)| Step::DeviceBirth { node, device, metrics }),
        8 => (0..NODES, device(), changes()).prop_map(|(node, device, changes)| Step::Data { node, device, changes }),
        2 => (0..NODES, device(), changes(), changes())
            .prop_map(|(node, device, first, second)| Step::Swapped { node, device, first, second }),
        1 => (0..NODES, changes()).prop_map(|(node, changes)| Step::Lost { node, changes }),
        1 => (0..NODES).prop_map(|node| Step::Again { node }),
        1 => (0..NODES, device()).prop_map(|(node, device)| Step::Unknown { node, device }),
        1 => (0..NODES, 0..DEVICES).prop_map(|(node, device)| Step::DeviceDeath { node, device }),
        1 => (0..NODES).prop_map(|node| Step::NodeDeath { node }),
    ]
}

fn value(datatype: u8, n: u8) -> Value {
    match datatype {
        0 => Value::Double(f64::from(n) / 4.0),
        1 => Value::Int32(i32::from(n) - 128),
        2 => Value::String(format!("text {n}").into()),
        3 => Value::Boolean(n > 127),
        _ => Value::UInt64(u64::from(n) << 40),
    }
}

/// Plain lists of metrics, in the order of the birth.
#[derive(Debug, Default)]
struct Reference {
    bd_seq: i64,
    seq: u64,
    aliases: bool,
    /// None: never born.
    liveness: Option<Liveness>,
    metrics: Vec<Metric>,
    devices: BTreeMap<usize, (Vec<Metric>, bool)>,
    last: Option<(String, Bytes)>,
}

/// What a message was made of and leads to.
struct Sent {
    topic: String,
    payload: Bytes,
    /// Metrics of the event, if there is one.
    event: Option<Vec<Metric>>,
}

struct World {
    bench: Bench,
    nodes: [Reference; NODES],
    time: u64,
}

fn name(of: &str, device: Option<usize>, node: usize) -> String {
    match device {
        Some(device) => format!("spBv1.0/G/D{of}/E{node}/D{device}"),
        None => format!("spBv1.0/G/N{of}/E{node}"),
    }
}

impl World {
    fn new() -> Self {
        Self { bench: Bench::online(config()), nodes: Default::default(), time: WALL }
    }

    fn metrics_of(&self, node: usize, device: Option<usize>) -> Option<&Vec<Metric>> {
        let known = &self.nodes[node];
        match device {
            None => Some(&known.metrics),
            Some(device) => known.devices.get(&device).filter(|(_, alive)| *alive).map(|(metrics, _)| metrics),
        }
    }

    /// Encodes a message with the next `seq`, and numbers as aliases: those of the place in the birth.
    fn encode(&mut self, of: &str, node: usize, device: Option<usize>, metrics: Vec<Metric>) -> (String, Bytes) {
        self.time += 1;
        let known = &mut self.nodes[node];
        let seq = known.seq;
        known.seq = (known.seq + 1) % 256;
        let born =
            if of == "BIRTH" { metrics.clone() } else { self.metrics_of(node, device).cloned().unwrap_or_default() };
        let base = device.map_or(1, |device| 100 * (device as u64 + 1));
        let alias = |name: &str| {
            let place = born.iter().position(|metric| &*metric.name == name)?;
            (name != "bdSeq").then(|| base + place as u64)
        };
        let aliases: Option<payload::AliasOf<'_>> = if self.nodes[node].aliases { Some(&alias) } else { None };
        (name(of, device, node), message(&format!("N{of}"), Some(seq), self.time, metrics, aliases))
    }

    fn birth(&mut self, node: usize, device: Option<usize>, born: &[BirthMetric]) -> Sent {
        let mut metrics = Vec::new();
        if device.is_none() {
            metrics.push(Metric::new("bdSeq", self.nodes[node].bd_seq));
        }
        for (name, datatype, n, property) in born {
            let name = format!("m{name}");
            if metrics.iter().all(|metric: &Metric| *metric.name != *name) {
                let properties = property.map_or_else(Properties::new, |p| Properties::new().with("p", u32::from(p)));
                metrics.push(Metric::new(name, value(*datatype, *n)).with_properties(properties));
            }
        }
        let (topic, payload) = self.encode("BIRTH", node, device, metrics.clone());
        for metric in &mut metrics {
            metric.timestamp = Some(self.time);
        }
        Sent { topic, payload, event: Some(metrics) }
    }

    /// A data message about what the reference holds, and the reference after it.
    fn data(&mut self, node: usize, device: Option<usize>, changes: &[Change]) -> Option<Sent> {
        let born = self.metrics_of(node, device)?.clone();
        let changeable: Vec<&Metric> = born.iter().filter(|metric| &*metric.name != "bdSeq").collect();
        if changeable.is_empty() || self.nodes[node].liveness != Some(Liveness::Alive) {
            return None;
        }
        let mut sent = Vec::new();
        for (which, n, how) in changes {
            let known = changeable[usize::from(*which) % changeable.len()];
            let kind = match known.datatype {
                DataType::Double => 0,
                DataType::Int32 => 1,
                DataType::String => 2,
                DataType::Boolean => 3,
                _ => 4,
            };
            let metric = Metric::new(known.name.clone(), value(kind, *n));
            sent.push(match how {
                How::Plain => metric,
                How::Null => Metric::null(known.name.clone(), known.datatype),
                How::Historical => metric.historical().at(7),
                How::Transient => Metric { is_transient: true, ..metric },
                How::Property(p) => metric.with_properties(Properties::new().with("p", u32::from(*p))),
            });
        }
        let (topic, payload) = self.encode("DATA", node, device, sent.clone());
        let time = self.time;
        let known = &mut self.nodes[node];
        let current = match device {
            None => &mut known.metrics,
            Some(device) => &mut known.devices.get_mut(&device)?.0,
        };
        for metric in &mut sent {
            metric.timestamp.get_or_insert(time);
            let slot = current.iter_mut().find(|known| known.name == metric.name)?;
            if !metric.is_historical {
                if metric.properties.is_empty() {
                    metric.properties = slot.properties.clone();
                }
                *slot = metric.clone();
            }
        }
        Some(Sent { topic, payload, event: Some(sent) })
    }

    fn receive(&mut self, node: usize, sent: Sent) {
        self.bench.receive(&sent.topic, sent.payload.clone());
        let events: Vec<Vec<Metric>> = self.events();
        assert_eq!(events, sent.event.into_iter().collect::<Vec<_>>(), "{}", sent.topic);
        self.nodes[node].last = Some((sent.topic, sent.payload));
    }

    /// Metrics of the births and data that were reported.
    fn events(&mut self) -> Vec<Vec<Metric>> {
        let metrics = |output: HostOutput| match output {
            HostOutput::Event(HostEvent::NodeBirth { metrics, .. } | HostEvent::DeviceBirth { metrics, .. }) => {
                Some(metrics.to_vec())
            }
            HostOutput::Event(HostEvent::NodeData { metrics, .. } | HostEvent::DeviceData { metrics, .. }) => {
                Some(metrics)
            }
            HostOutput::Event(HostEvent::Rejected { topic, reason }) => panic!("{topic} rejected: {reason}"),
            _ => None,
        };
        let mut events = Vec::new();
        while let Some(output) = self.bench.machine.poll_output() {
            events.extend(metrics(output));
        }
        events
    }

    // long: one arm a kind of step
    fn take(&mut self, step: &Step) {
        self.bench.advance_to(self.bench.now.mono + Duration::from_millis(1));
        match step {
            Step::NodeBirth { node, aliases, metrics } => {
                let known = &mut self.nodes[*node];
                (known.seq, known.aliases, known.bd_seq) = (0, *aliases, (known.bd_seq + 1) % 256);
                let sent = self.birth(*node, None, metrics);
                let known = &mut self.nodes[*node];
                (known.liveness, known.metrics) = (Some(Liveness::Alive), sent.event.clone().unwrap_or_default());
                known.devices.clear();
                self.receive(*node, sent);
            }
            Step::DeviceBirth { node, device, metrics } if self.is_alive(*node) => {
                let sent = self.birth(*node, Some(*device), metrics);
                self.nodes[*node].devices.insert(*device, (sent.event.clone().unwrap_or_default(), true));
                self.receive(*node, sent);
            }
            Step::Data { node, device, changes } => {
                if let Some(sent) = self.data(*node, *device, changes) {
                    self.receive(*node, sent);
                }
            }
            Step::Swapped { node, device, first, second } => {
                if let Some(first) = self.data(*node, *device, first)
                    && let Some(second) = self.data(*node, *device, second)
                {
                    self.bench.receive(&second.topic, second.payload.clone());
                    assert_eq!(self.events(), Vec::<Vec<Metric>>::new(), "it waits for the one before it");
                    self.bench.receive(&first.topic, first.payload);
                    assert_eq!(self.events(), [first.event, second.event].into_iter().flatten().collect::<Vec<_>>());
                    self.nodes[*node].last = Some((second.topic, second.payload));
                }
            }
            Step::Lost { node, changes } if self.is_alive(*node) => {
                let before = self.nodes[*node].metrics.clone();
                self.nodes[*node].seq = (self.nodes[*node].seq + 1) % 256;
                if let Some(sent) = self.data(*node, None, changes) {
                    self.bench.receive(&sent.topic, sent.payload);
                    self.bench.advance_to(self.bench.now.mono + Duration::from_secs(3));
                    self.bench.machine.handle_timeout(self.bench.now);
                    assert_eq!(self.events(), Vec::<Vec<Metric>>::new());
                    let known = &mut self.nodes[*node];
                    (known.metrics, known.liveness) = (before, Some(Liveness::Stale));
                } else {
                    self.nodes[*node].seq = (self.nodes[*node].seq + 255) % 256;
                }
            }
            // To a node that was asked for it, a birth that came before is an answer.
            Step::Again { node } if self.is_alive(*node) => {
                if let Some((topic, payload)) = self.nodes[*node].last.clone() {
                    self.bench.receive(&topic, payload);
                    assert_eq!(self.events(), Vec::<Vec<Metric>>::new(), "{topic} again");
                }
            }
            Step::Unknown { node, device } if self.is_alive(*node) => {
                let metrics = vec![Metric::new("not in the birth", true)];
                let (topic, payload) = self.encode("DATA", *node, *device, metrics);
                self.bench.receive(&topic, payload);
                assert_eq!(self.events(), Vec::<Vec<Metric>>::new());
                self.nodes[*node].liveness = Some(Liveness::Stale);
            }
            Step::DeviceDeath { node, device } if self.is_alive(*node) => {
                let (topic, payload) = self.encode("DEATH", *node, Some(*device), Vec::new());
                if let Some((_, alive)) = self.nodes[*node].devices.get_mut(device) {
                    *alive = false;
                }
                self.receive(*node, Sent { topic, payload, event: None });
            }
            Step::NodeDeath { node } if self.nodes[*node].liveness.is_some() => {
                let bd_seq = Metric::new("bdSeq", self.nodes[*node].bd_seq);
                let payload = message("NDEATH", None, self.time, vec![bd_seq], None);
                self.receive(*node, Sent { topic: name("DEATH", None, *node), payload, event: None });
                let known = &mut self.nodes[*node];
                known.liveness = Some(Liveness::Dead);
                known.devices.values_mut().for_each(|(_, alive)| *alive = false);
            }
            _ => {}
        }
    }

    fn is_alive(&self, node: usize) -> bool {
        self.nodes[node].liveness == Some(Liveness::Alive)
    }

    fn compare(&self) {
        for (number, known) in self.nodes.iter().enumerate() {
            let id = EdgeNodeDescriptor::parse("G", &format!("E{number}")).expect("valid");
            assert_eq!(self.bench.machine.liveness(&id), known.liveness);
            let Some(view) = self.bench.machine.node(&id) else { continue };
            assert_eq!(view.metrics().map(|m| m.metric).collect::<Vec<_>>(), known.metrics);
            for metric in &known.metrics {
                assert_eq!(view.metric(&metric.name).map(|m| m.metric).as_ref(), Some(metric));
            }
            let alive = known.liveness == Some(Liveness::Alive);
            let devices: BTreeMap<String, (Vec<Metric>, bool)> = view
                .devices()
                .map(|(id, device)| (id.to_string(), (device.metrics().map(|m| m.metric).collect(), device.is_alive())))
                .collect();
            let expected: BTreeMap<String, (Vec<Metric>, bool)> = known
                .devices
                .iter()
                .map(|(n, (metrics, is))| (format!("D{n}"), (metrics.clone(), *is && alive)))
                .collect();
            assert_eq!(devices, expected);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn replicas_and_events_are_those_of_the_reference(steps in proptest::collection::vec(step(), 1..40)) {
        let mut world = World::new();
        for step in &steps {
            world.take(step);
            world.compare();
        }
    }
}
