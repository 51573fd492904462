//! Arbitrary inputs in arbitrary order: no panic, and what comes out obeys the standard.

use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
enum Input {
    Update(NodeUpdate),
    Transport(TransportEvent),
    Pass(u64),
}

fn metrics() -> impl Strategy<Value = Vec<Metric>> {
    let metric = (0..5u8, any::<u8>(), 0..4u8).prop_map(|(name, value, kind)| {
        let name = format!("m{name}");
        match kind {
            0 => Metric::null(name, DataType::UInt8),
            1 => Metric::new(name, u16::from(value)),
            _ => Metric::new(name, value),
        }
    });
    proptest::collection::vec(metric, 0..4)
}

fn device_id() -> impl Strategy<Value = DeviceId> {
    (0..4u8).prop_map(|i| device(&format!("d{i}")))
}

fn update() -> impl Strategy<Value = NodeUpdate> {
    prop_oneof![
        6 => (proptest::option::of(device_id()), metrics()).prop_map(|(device, metrics)| NodeUpdate::Set { device, metrics }),
        4 => (device_id(), metrics()).prop_map(|(device, metrics)| NodeUpdate::DeviceBirth { device, metrics }),
        2 => device_id().prop_map(|device| NodeUpdate::DeviceDeath { device }),
        2 => (proptest::option::of(device_id()), metrics()).prop_map(|(device, metrics)| NodeUpdate::Historical { device, metrics }),
        1 => Just(NodeUpdate::Rebirth),
    ]
}

fn transport() -> impl Strategy<Value = TransportEvent> {
    let topic = prop_oneof![
        3 => Just("spBv1.0/G/NCMD/E".to_owned()),
        2 => Just("spBv1.0/G/DCMD/E/d1".to_owned()),
        3 => Just("spBv1.0/STATE/H".to_owned()),
        1 => "[a-zA-Z/+#]{0,20}",
    ];
    let payload = prop_oneof![
        2 => metrics().prop_map(|metrics| encode(&Payload { metrics, ..Payload::default() }, &EncodeOptions::new(Form::Command))),
        1 => Just(encode(
            &Payload { metrics: vec![Metric::new("Node Control/Rebirth", true), Metric::new("Device Control/Rebirth", true)], ..Payload::default() },
            &EncodeOptions::new(Form::Command)
        )),
        2 => (any::<bool>(), 0..9u64).prop_map(|(online, timestamp)| HostState { online, timestamp }.encode()),
        1 => proptest::collection::vec(any::<u8>(), 0..40).prop_map(Into::into),
    ];
    prop_oneof![
        4 => Just(TransportEvent::Connected),
        4 => Just(TransportEvent::Subscribed),
        4 => (topic, payload, any::<bool>()).prop_map(|(topic, payload, retain)| TransportEvent::Message { topic, payload, qos: QoS::AtMostOnce, retain }),
        1 => (0..9u64).prop_map(|publishes| TransportEvent::Received { publishes }),
        1 => any::<bool>().prop_map(|reached| TransportEvent::Disconnected { reason: "r".to_owned(), reached }),
    ]
}

fn input() -> impl Strategy<Value = Input> {
    prop_oneof![
        4 => update().prop_map(Input::Update),
        3 => transport().prop_map(Input::Transport),
        2 => (0..2_000u64).prop_map(Input::Pass),
    ]
}

/// What a server sees of one session.
#[derive(Default)]
struct Watch {
    will_bd_seq: Option<i64>,
    seq: Option<u64>,
    alive: std::collections::BTreeSet<String>,
    births_done: bool,
    dead: bool,
}

impl Watch {
    fn bd_seq(payload: &DisplayPayload) -> i64 {
        match payload.metrics.iter().find(|m| m.name.as_deref() == Some("bdSeq")).and_then(|m| m.value.as_ref()) {
            Some(Value::Int64(n)) => *n,
            other => panic!("no bdSeq: {other:?}"),
        }
    }

    fn output(&mut self, output: &NodeOutput) {
        match output {
            NodeOutput::Transport(TransportAction::Connect(c)) => {
                let will = read(c.will.as_ref().expect("an edge node has a will"));
                assert_eq!(c.bd_seq.map(BdSeq::get), Some(Self::bd_seq(&will)));
                *self = Self { will_bd_seq: Some(Self::bd_seq(&will)), ..Self::default() };
            }
            NodeOutput::Transport(TransportAction::Publish(p)) => self.publish(p),
            NodeOutput::Transport(TransportAction::Disconnect) => assert!(self.dead, "DISCONNECT without NDEATH"),
            NodeOutput::Event(NodeEvent::Born { bd_seq, .. }) => {
                assert_eq!(Some(bd_seq.get()), self.will_bd_seq);
                self.births_done = true;
            }
            NodeOutput::Transport(_) | NodeOutput::Event(_) => {}
        }
    }

    fn publish(&mut self, p: &Publish) {
        let payload = read(p);
        let Ok(topic) = Topic::parse(&p.topic) else { panic!("{}", p.topic) };
        assert!(!self.dead, "{} after NDEATH", p.topic);
        assert!(p.payload.len() <= 2_000 && !p.retain);
        if topic.kind() == MessageKind::NDeath {
            assert_eq!((payload.seq, Some(Self::bd_seq(&payload))), (None, self.will_bd_seq));
            self.dead = true;
            return;
        }
        let expected =
            if topic.kind() == MessageKind::NBirth { 0 } else { (self.seq.expect("NBIRTH comes first") + 1) % 256 };
        assert_eq!(payload.seq, Some(expected), "{}", p.topic);
        self.seq = payload.seq;
        let device = match &topic {
            Topic::Device { device, .. } => device.to_string(),
            _ => String::new(),
        };
        match topic.kind() {
            MessageKind::NBirth => {
                assert_eq!(Some(Self::bd_seq(&payload)), self.will_bd_seq);
                self.alive.clear();
                self.births_done = false;
            }
            MessageKind::DBirth => assert!(self.alive.insert(device), "{} twice", p.topic),
            MessageKind::DDeath => {
                assert!(self.births_done);
                assert!(self.alive.remove(&device), "{} without birth", p.topic);
            }
            MessageKind::NData => assert!(self.births_done, "data during births"),
            MessageKind::DData => {
                assert!(self.births_done, "data during births");
                assert!(self.alive.contains(&device), "{} without birth", p.topic);
            }
            other => panic!("{other} from an edge node"),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// tck-id-topic-structure-namespace-unique-device-id, tck-id-payloads-ndeath-bdseq, tck-id-payloads-ndeath-will-message-publisher-disconnect-mqtt311, tck-id-payloads-sequence-num-incrementing,
    /// tck-id-payloads-ndata-order, tck-id-payloads-ddata-order
    #[test]
    fn hold_for_arbitrary_inputs(
        inputs in proptest::collection::vec(input(), 0..150),
        (primary, aliases, servers) in any::<(bool, bool, bool)>(),
        (burst, waiting) in (1..3usize, 0..6usize),
        store in proptest::option::of(0..1_000usize),
    ) {
        let config = EdgeNodeConfig {
            primary_host: primary.then(|| HostId::new("H").expect("valid")),
            aliases,
            servers: 1 + usize::from(servers),
            birth_burst: burst,
            data_waiting_max: waiting,
            store: store.map(|bytes_max| StoreConfig { bytes_max, ..StoreConfig::default() }),
            message_bytes_max: 2_000,
            ..config()
        };
        let mut bench = Bench::new(config, vec![]);
        let mut watch = Watch::default();
        for input in inputs {
            match input {
                Input::Update(update) => { let _ = bench.machine.update(update, bench.now); }
                Input::Transport(event) => bench.on(event),
                Input::Pass(ms) => bench.pass(Duration::from_millis(ms)),
            }
            for output in bench.outputs() {
                watch.output(&output);
            }
        }
        // Left alone in a good session it ends up born, with everything published.
        bench.lose(true);
        bench.pass(Duration::from_secs(60));
        bench.go_online();
        bench.receive("spBv1.0/STATE/H", HostState { online: true, timestamp: 100 }.encode());
        bench.pass(Duration::from_secs(60));
        for output in bench.outputs() {
            watch.output(&output);
        }
        prop_assert!(bench.machine.is_born());
        let devices: Vec<String> = bench.machine.devices().map(ToString::to_string).collect();
        prop_assert_eq!(watch.alive.into_iter().collect::<Vec<_>>(), devices);
        prop_assert_eq!(bench.machine.next_deadline(), None);
        bench.on(TransportEvent::Received { publishes: u64::MAX });
        let status = bench.machine.store_status().unwrap_or_default();
        prop_assert_eq!((status.records, status.bytes), (0, 0));
    }
}
