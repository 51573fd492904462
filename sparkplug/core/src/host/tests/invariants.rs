//! Arbitrary inputs in arbitrary order: no panic, and what comes out obeys the rules of replicas. And the two machines against each other
//! over a channel that loses, repeats and reorders: in the end replica and source are equal.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::backoff::SplitMix64;
use crate::edge_node::{EdgeNode, EdgeNodeConfig, NodeOutput, NodeUpdate};

fn metrics() -> impl Strategy<Value = Vec<Metric>> {
    proptest::collection::vec(
        (0..3u8, any::<u8>()).prop_map(|(name, value)| Metric::new(format!("m{name}"), value)),
        0..3,
    )
}

#[derive(Debug, Clone)]
enum Input {
    Transport(TransportEvent),
    Request(HostRequest),
    Pass(u64),
}

fn transport() -> impl Strategy<Value = TransportEvent> {
    let kind = prop_oneof![
        Just("NBIRTH"),
        Just("NDATA"),
        Just("NDEATH"),
        Just("DBIRTH"),
        Just("DDATA"),
        Just("DDEATH"),
        Just("NCMD")
    ];
    let sparkplug = (kind, 0..2u8, 0..4u64, 0..9u64, 0..3i64, metrics()).prop_map(
        |(kind, node, seq, timestamp, bd_seq, mut metrics)| {
            let of_device = kind.starts_with('D');
            let topic =
                if of_device { format!("spBv1.0/G/{kind}/E{node}/D") } else { format!("spBv1.0/G/{kind}/E{node}") };
            if matches!(kind, "NBIRTH" | "NDEATH") {
                metrics.push(Metric::new("bdSeq", bd_seq));
            }
            let seq = match kind {
                "NBIRTH" => Some(0),
                "NDEATH" | "NCMD" => None,
                _ => Some(seq),
            };
            (topic, message(kind, seq, timestamp, metrics, None))
        },
    );
    let garbage = ("[a-zA-Z/+#.0-9]{0,20}", proptest::collection::vec(any::<u8>(), 0..30).prop_map(Bytes::from));
    let state = (any::<bool>(), 0..9u64)
        .prop_map(|(online, timestamp)| ("spBv1.0/STATE/H".to_owned(), HostState { online, timestamp }.encode()));
    prop_oneof![
        40 => (prop_oneof![9 => sparkplug, 1 => garbage, 1 => state], proptest::bool::weighted(0.05))
            .prop_map(|((topic, payload), retain)| TransportEvent::Message { topic, payload, qos: QoS::AtMostOnce, retain }),
        4 => Just(TransportEvent::Connected),
        4 => Just(TransportEvent::Subscribed),
        1 => Just(TransportEvent::Lost { topic: "spBv1.0/G/NDATA/E0".to_owned() }),
        1 => any::<bool>().prop_map(|reached| TransportEvent::Disconnected { reason: "r".to_owned(), reached }),
    ]
}

fn request() -> impl Strategy<Value = HostRequest> {
    let node = || (0..3u8).prop_map(|n| EdgeNodeDescriptor::parse("G", &format!("E{n}")).expect("valid"));
    prop_oneof![
        node().prop_map(|node| HostRequest::Expect { node }),
        node().prop_map(|node| HostRequest::Allow { node }),
        node().prop_map(|node| HostRequest::Forget { node }),
        node().prop_map(|node| HostRequest::Rebirth { node }),
        (node(), metrics()).prop_map(|(node, metrics)| HostRequest::Command { node, device: None, metrics }),
    ]
}

fn input() -> impl Strategy<Value = Input> {
    prop_oneof![
        8 => transport().prop_map(Input::Transport),
        1 => request().prop_map(Input::Request),
        1 => (0..3_000u64).prop_map(Input::Pass),
    ]
}

/// What an application believes from the events alone.
#[derive(Default)]
struct Believer {
    alive: BTreeMap<EdgeNodeDescriptor, BTreeSet<DeviceId>>,
    online: bool,
}

impl Believer {
    fn output(&mut self, output: &HostOutput) {
        match output {
            HostOutput::Event(event) => self.event(event),
            HostOutput::Transport(TransportAction::Publish(p)) => {
                // tck-id-host-topic-phid-birth-message: STATE is the first publish, and nothing is published without a session.
                assert!(self.online || p.topic == "spBv1.0/STATE/H", "{} before STATE", p.topic);
                self.online = true;
            }
            HostOutput::Transport(TransportAction::Connect(_)) => self.online = false,
            HostOutput::Transport(_) => {}
        }
    }

    fn event(&mut self, event: &HostEvent) {
        match event {
            HostEvent::NodeBirth { node, .. } => {
                self.alive.insert(node.clone(), BTreeSet::new());
            }
            HostEvent::NodeDeath { node, .. } => {
                self.alive.remove(node);
            }
            HostEvent::NodeStale { node, .. } => {
                self.alive.remove(node);
            }
            HostEvent::Offline { .. } | HostEvent::Stopped => self.alive.clear(),
            HostEvent::NodeData { node, .. } => {
                assert!(self.alive.contains_key(node), "data of a node that is not alive")
            }
            HostEvent::DeviceBirth { node, device, .. } => {
                self.alive.get_mut(node).expect("a device of a node that is not alive").insert(device.clone());
            }
            HostEvent::DeviceData { node, device, .. } => {
                assert!(self.alive.get(node).is_some_and(|d| d.contains(device)), "data of a device that is not alive");
            }
            HostEvent::DeviceDeath { node, device, .. } => {
                assert!(
                    self.alive.get_mut(node).is_some_and(|d| d.remove(device)),
                    "death of a device that is not alive"
                );
            }
            _ => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn hold_for_arbitrary_inputs(inputs in proptest::collection::vec(input(), 0..200), reorder in 0..3u64) {
        let mut bench = Bench::online(HostConfig { reorder_timeout: Duration::from_secs(reorder), reorder_messages_max: 2, ..config() });
        let mut believer = Believer { online: true, ..Believer::default() };
        for input in inputs {
            let forgotten = match &input {
                Input::Request(HostRequest::Forget { node }) => Some(node.clone()),
                _ => None,
            };
            match input {
                Input::Transport(event) => bench.on(event),
                Input::Request(request) => bench.request(request),
                Input::Pass(ms) => bench.pass(Duration::from_millis(ms)),
            }
            for output in bench.outputs() {
                believer.output(&output);
            }
            if let Some(node) = forgotten {
                believer.alive.remove(&node);
            }
            let alive: Vec<_> = bench.machine.nodes().filter(|(_, n)| n.liveness() == Liveness::Alive).map(|(n, _)| n.clone()).collect();
            prop_assert_eq!(alive, believer.alive.keys().cloned().collect::<Vec<_>>());
            for (node, devices) in &believer.alive {
                let view = bench.machine.node(node).expect("alive");
                let alive: BTreeSet<DeviceId> = view.devices().filter(|(_, d)| d.is_alive()).map(|(d, _)| d.clone()).collect();
                prop_assert_eq!(&alive, devices);
            }
        }
        prop_assert!(bench.machine.groups.held_bytes() < 10_000);
        // What is counted is what is there.
        let all = || bench.machine.nodes.iter().map(|(_, known)| known);
        let held = all().filter_map(|known| known.birth.as_ref()).map(|birth| birth.order.held().1).sum();
        prop_assert_eq!(bench.machine.groups.held_bytes(), held);
        let replicas = |known: &Node| {
            let birth = known.birth.as_ref().map_or(0, |birth| birth.replica.bytes());
            birth + known.devices.values().map(|device| device.bytes()).sum::<usize>()
        };
        prop_assert_eq!(bench.machine.groups.replica_bytes(), all().map(replicas).sum());
    }

    /// `replica-equals-source`: whatever the channel did to the messages, after it has healed the replica is what the node says.
    #[test]
    fn replica_equals_source_after_losses_repeats_and_reorderings(
        updates in proptest::collection::vec((proptest::option::of(0..3u8), metrics(), 0..8u8), 1..120),
        seed in any::<u64>(),
        aliases in any::<bool>(),
        is_tahu in any::<bool>(),
    ) {
        let mut random = SplitMix64::new(seed);
        let mut bench = Bench::online(config());
        let dialect = if is_tahu { Dialect::Tahu } else { Dialect::Strict };
        let node_config = EdgeNodeConfig { aliases, dialect, birth_burst: 2, ..EdgeNodeConfig::new(e()) };
        let mut node = EdgeNode::new(node_config, vec![Metric::new("last", 0u64)], bench.now).expect("valid");
        let mut line = Line::default();
        for (of, metrics, kind) in updates {
            bench.advance_to(bench.now.mono + Duration::from_millis(random.next() % 400));
            let of = of.map(|d| device(&format!("d{d}")));
            let update = match (kind, of) {
                (0, Some(device)) => NodeUpdate::DeviceDeath { device },
                (1..=3, Some(device)) => NodeUpdate::DeviceBirth { device, metrics },
                (_, device) => NodeUpdate::Set { device, metrics },
            };
            let _ = node.update(update, bench.now);
            if random.next().is_multiple_of(25) {
                node.on_transport(TransportEvent::Disconnected { reason: "cut".to_owned(), reached: true }, bench.now);
                line.in_flight.extend(line.will.take());
            }
            line.turn(&mut node, &mut bench, &mut random, true);
        }
        // The channel heals; within the longest interval of requests everything is put right. One more change shows a loss at the end.
        let _ = node.update(NodeUpdate::Set { device: None, metrics: vec![Metric::new("last", seed | 1)] }, bench.now);
        for _ in 0..2_000 {
            let step = [node.next_deadline(), bench.machine.next_deadline()].into_iter().flatten().min();
            bench.advance_to(step.unwrap_or_default().max(bench.now.mono + Duration::from_millis(1)));
            line.turn(&mut node, &mut bench, &mut random, false);
        }
        let view = bench.machine.node(&e()).expect("a message of it arrived");
        prop_assert_eq!(view.liveness(), Liveness::Alive);
        let own = |m: MetricView| (!matches!(&*m.metric.name, "bdSeq" | "Node Control/Rebirth")).then(|| m.metric.clone());
        prop_assert_eq!(Some(view.metrics().filter_map(own).collect::<Vec<_>>()), node.metrics(None));
        let devices: BTreeMap<_, Vec<Metric>> =
            view.devices().filter(|(_, d)| d.is_alive()).map(|(id, d)| (id.clone(), d.metrics().filter_map(own).collect())).collect();
        let source: BTreeMap<_, Vec<Metric>> = node.devices().map(|id| (id.clone(), node.metrics(Some(id)).expect("exists"))).collect();
        prop_assert_eq!(devices, source);
    }
}

/// The way between an edge node and a host.
#[derive(Default)]
struct Line {
    will: Option<Publish>,
    in_flight: Vec<Publish>,
}

impl Line {
    fn turn(&mut self, node: &mut EdgeNode, bench: &mut Bench, random: &mut SplitMix64, faulty: bool) {
        node.handle_timeout(bench.now);
        while let Some(output) = node.poll_output() {
            match output {
                NodeOutput::Transport(TransportAction::Connect(c)) => {
                    self.will = c.will;
                    node.on_transport(TransportEvent::Connected, bench.now);
                }
                NodeOutput::Transport(TransportAction::Subscribe(_)) => {
                    node.on_transport(TransportEvent::Subscribed, bench.now)
                }
                NodeOutput::Transport(TransportAction::Publish(p)) => match random.next() % 20 {
                    // An NBIRTH is not lost here: when nothing followed the births before it, what follows it carries the expected `seq`,
                    // and no host can notice it (see the module's documentation).
                    0 if faulty && !p.topic.contains("/NBIRTH/") => {}
                    1 if faulty => self.in_flight.extend([p.clone(), p]),
                    2 if faulty => self.in_flight.insert(0, p),
                    _ => self.in_flight.push(p),
                },
                NodeOutput::Transport(TransportAction::Disconnect) | NodeOutput::Event(_) => {}
            }
        }
        bench.machine.handle_timeout(bench.now);
        let late = if faulty { self.in_flight.len() / 2 } else { 0 };
        for p in self.in_flight.drain(..self.in_flight.len() - late).collect::<Vec<_>>() {
            bench.receive(&p.topic, p.payload);
        }
        for output in bench.outputs() {
            if let HostOutput::Transport(TransportAction::Publish(p)) = output
                && p.topic.contains("/NCMD/")
                && !(faulty && random.next().is_multiple_of(4))
            {
                node.on_transport(
                    TransportEvent::Message { topic: p.topic, payload: p.payload, qos: QoS::AtMostOnce, retain: false },
                    bench.now,
                );
            }
        }
    }
}
