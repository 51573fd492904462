//! Store and forward: what is kept, in which order it goes out, what is dropped, what a later process finds.

use proptest::prelude::{Just, ProptestConfig, Strategy, any, prop_oneof, proptest};
use proptest::prop_assert_eq;

use super::*;

fn with(store: StoreConfig) -> EdgeNodeConfig {
    EdgeNodeConfig { store: Some(store), ..config() }
}

fn temperature(value: f64, timestamp: u64) -> Vec<Metric> {
    vec![Metric::new("Temperature", value).at(timestamp)]
}

/// `NDATA` and so on with the timestamps of the metrics.
fn stamped(outputs: &[NodeOutput]) -> Vec<(String, Vec<u64>)> {
    let publish = |output: &NodeOutput| match output {
        NodeOutput::Transport(TransportAction::Publish(p)) => {
            let stamps = read(p).metrics.iter().filter_map(|m| m.timestamp).collect();
            Some((publish_line(p), stamps))
        }
        _ => None,
    };
    outputs.iter().filter_map(publish).collect()
}

impl Bench {
    fn received_all(&mut self) {
        self.on(TransportEvent::Received { publishes: self.machine.outputs.published() });
    }

    fn actions(&mut self) -> Vec<StoreAction> {
        std::iter::from_fn(|| self.machine.poll_store()).collect()
    }

    /// The session ends, the next one is up, what went out in it is returned.
    fn return_with(&mut self, said_meanwhile: impl FnOnce(&mut Self)) -> Vec<String> {
        self.lose(true);
        said_meanwhile(self);
        self.pass(Duration::from_secs(1));
        self.go_online();
        self.pass(Duration::from_secs(1));
        self.lines()
    }
}

/// tck-id-operational-behavior-data-publish-nbirth-order, tck-id-payloads-ndata-order: history is marked, stamped as it was, and comes after the births.
#[test]
fn what_changed_while_offline_follows_the_births_in_order_with_its_own_time() {
    let mut bench = Bench::born(with(StoreConfig::default()));
    bench.birth("D", vec![Metric::new("x", 1u8).at(5)]);
    bench.received_all();
    bench.outputs();
    bench.lose(true);
    bench.set(None, temperature(21.0, 11));
    bench.set(Some("D"), vec![Metric::new("x", 2u8).at(12)]);
    bench.set(None, temperature(21.0, 13));
    bench.set(None, temperature(22.0, 14));
    assert_eq!(bench.machine.store_status().expect("it has a store").records, 3);
    bench.pass(Duration::from_secs(1));
    bench.go_online();
    let outputs = bench.outputs();
    let sent = stamped(&outputs);
    let lines: Vec<&str> = sent.iter().map(|(line, _)| line.as_str()).collect();
    assert_eq!(
        lines,
        [
            "NBIRTH E 0 bdSeq=Int64(1) Node Control/Rebirth=Boolean(false) Temperature=Double(22.0)",
            "DBIRTH E/D 1 x=UInt8(2)",
            "NDATA E 2 ~Temperature=Double(21.0)",
            "DDATA E/D 3 ~x=Int32(2)",
            "NDATA E 4 ~Temperature=Double(22.0)",
        ]
    );
    let stamps: Vec<&Vec<u64>> = sent.iter().skip(2).map(|(_, stamps)| stamps).collect();
    assert_eq!(stamps, [&vec![11], &vec![12], &vec![14]]);
    // It is kept until the server is known to have it.
    assert_eq!(bench.machine.store_status().expect("it has a store").records, 3);
    bench.on(TransportEvent::Received { publishes: 4 });
    bench.expect(&[]);
    bench.on(TransportEvent::Received { publishes: 5 });
    bench.expect(&["forwarded 3 dropped 0"]);
    assert_eq!(bench.machine.store_status(), Some(StoreStatus::default()));
}

#[test]
fn without_a_store_nothing_is_kept() {
    let mut bench = Bench::born(config());
    let lines = bench.return_with(|bench| bench.set(None, temperature(21.0, 11)));
    assert!(!lines.iter().any(|line| line.contains('~')), "{lines:?}");
    assert_eq!(bench.machine.store_status(), None);
}

#[test]
fn live_data_that_may_have_been_lost_with_the_session_is_sent_again() {
    let mut bench = Bench::born(with(StoreConfig::default()));
    bench.set(None, temperature(21.0, 11));
    bench.received_all();
    bench.set(None, temperature(22.0, 12));
    bench.outputs();
    let lines = bench.return_with(|bench| bench.set(None, temperature(23.0, 13)));
    assert_eq!(
        &lines[3..],
        [
            "NBIRTH E 0 bdSeq=Int64(1) Node Control/Rebirth=Boolean(false) Temperature=Double(23.0)",
            "born 1 false",
            "NDATA E 1 ~Temperature=Double(22.0)",
            "NDATA E 2 ~Temperature=Double(23.0)",
        ]
    );
    // The session ends before it is known that they arrived: the same again.
    let lines = bench.return_with(|_| {});
    assert_eq!(&lines[5..], ["NDATA E 1 ~Temperature=Double(22.0)", "NDATA E 2 ~Temperature=Double(23.0)"]);
}

/// tck-id-operational-behavior-edge-node-termination-host-offline
#[test]
fn while_the_primary_host_is_offline_data_is_kept_and_what_it_may_have_missed_before_as_well() {
    let primary_host = Some(HostId::new("H").expect("valid"));
    let store = StoreConfig { hindsight: Duration::from_secs(30), ..StoreConfig::default() };
    let mut bench = Bench::new(EdgeNodeConfig { primary_host, ..with(store) }, temperature(20.0, 1));
    let state = |bench: &mut Bench, online, timestamp| {
        bench.receive("spBv1.0/STATE/H", HostState { online, timestamp }.encode());
    };
    bench.go_online();
    state(&mut bench, true, 10);
    bench.set(None, temperature(21.0, 11));
    bench.pass(Duration::from_secs(31));
    bench.set(None, temperature(22.0, 12));
    bench.received_all();
    bench.outputs();
    state(&mut bench, false, 10);
    // DISCONNECT is on its way.
    bench.set(None, temperature(23.0, 13));
    bench.expect(&["NDEATH E - qos1 bdSeq=Int64(0)", "disconnect"]);
    bench.received_all();
    bench.lose(true);
    bench.pass(Duration::from_secs(1));
    bench.go_online();
    bench.set(None, temperature(24.0, 14));
    bench.outputs();
    state(&mut bench, true, 20);
    assert_eq!(
        bench.lines(),
        [
            "NBIRTH E 0 bdSeq=Int64(1) Node Control/Rebirth=Boolean(false) Temperature=Double(24.0)",
            "born 1 false",
            "NDATA E 1 ~Temperature=Double(22.0)",
            "NDATA E 2 ~Temperature=Double(23.0)",
            "NDATA E 3 ~Temperature=Double(24.0)",
        ]
    );
}

#[test]
fn live_data_does_not_wait_for_history() {
    let mut bench = Bench::born(EdgeNodeConfig { birth_burst: 2, ..with(StoreConfig::default()) });
    bench.lose(true);
    for n in 0..5u32 {
        bench.set(None, temperature(f64::from(n), u64::from(n)));
    }
    bench.pass(Duration::from_secs(1));
    bench.go_online();
    bench.outputs();
    bench.set(None, temperature(50.0, 50));
    bench.expect(&["NDATA E 3 Temperature=Double(50.0)"]);
    bench.pass(Duration::from_secs(1));
    bench.expect(&[
        "NDATA E 4 ~Temperature=Double(2.0)",
        "NDATA E 5 ~Temperature=Double(3.0)",
        "NDATA E 6 ~Temperature=Double(4.0)",
    ]);
}

#[test]
fn a_full_store_drops_the_oldest_or_the_newest_as_configured_and_says_so() {
    let rejected = "rejected spBv1.0/G/NDATA/E: stored values are dropped: the store is full, or nothing that is known has their names";
    for (when_full, kept) in [(WhenFull::DropOldest, [7, 8, 9]), (WhenFull::DropNewest, [0, 1, 2])] {
        // One such record takes about 90 bytes.
        let mut bench = Bench::born(with(StoreConfig { bytes_max: 330, when_full, ..StoreConfig::default() }));
        bench.lose(true);
        bench.outputs();
        for n in 0..10u32 {
            bench.set(None, temperature(f64::from(n), u64::from(n)));
        }
        bench.expect(&[rejected]);
        let status = bench.machine.store_status().expect("it has a store");
        assert_eq!((status.records, status.dropped), (3, 7));
        bench.pass(Duration::from_secs(1));
        bench.go_online();
        let sent = stamped(&bench.outputs());
        let stamps: Vec<u64> = sent.into_iter().skip(1).map(|(_, stamps)| stamps[0]).collect();
        assert_eq!(stamps, kept);
        bench.received_all();
        bench.expect(&["forwarded 3 dropped 7"]);
    }
}

#[test]
fn values_between_two_births_are_kept_also_when_the_births_were_never_sent() {
    let mut bench = Bench::new(with(StoreConfig::default()), temperature(1.0, 1));
    // Declared and changed before the first session; transient values are not for history.
    bench.set(None, temperature(2.0, 2));
    bench.set(None, vec![Metric { is_transient: true, ..Metric::new("Temperature", 3.0f64).at(3) }]);
    bench.set(None, temperature(4.0, 4));
    bench.go_online();
    assert_eq!(
        &bench.lines()[2..],
        [
            "NBIRTH E 0 bdSeq=Int64(0) Node Control/Rebirth=Boolean(false) Temperature=Double(4.0)",
            "born 0 false",
            "NDATA E 1 ~Temperature=Double(1.0)",
            "NDATA E 2 ~Temperature=Double(2.0)",
            "NDATA E 3 ~Temperature=Double(4.0)",
        ]
    );
}

#[test]
fn a_mirror_gives_the_records_back_to_a_later_process_which_waits_for_its_devices() {
    let store = StoreConfig { mirrored: true, ..StoreConfig::default() };
    let mut bench = Bench::born(with(store.clone()));
    bench.birth("D", vec![Metric::new("x", 1u8)]);
    bench.birth("gone", vec![Metric::new("x", 1u8)]);
    bench.received_all();
    bench.lose(true);
    let engine_unit = Properties::new().with("engUnit", "K");
    bench.set(None, vec![Metric::new("Temperature", 21.0).at(11).with_properties(engine_unit)]);
    bench.set(Some("gone"), vec![Metric::new("x", 9u8).at(12)]);
    bench.set(Some("D"), vec![Metric::new("x", 2u8).at(13)]);
    let mirror: Vec<(u64, bytes::Bytes)> = bench
        .actions()
        .into_iter()
        .map(|action| match action {
            StoreAction::Append { number, record } => (number, record),
            StoreAction::Forget { .. } => panic!("nothing is to be forgotten yet"),
        })
        .collect();
    assert_eq!(mirror.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [0, 1, 2]);

    let mut later = Bench::new(with(store), temperature(30.0, 30));
    later.machine.restore(mirror);
    later.go_online();
    later.pass(Duration::from_secs(1));
    assert_eq!(later.lines().last().expect("it speaks"), "NDATA E 1 ~Temperature=Double(21.0){engUnit}");
    // The devices are declared late; one never.
    later.birth("D", vec![Metric::new("x", 3u8)]);
    later.expect(&["DBIRTH E/D 2 x=UInt8(3)"]);
    later.pass(Duration::from_secs(20));
    later.expect(&["DDATA E/D 3 ~x=Int32(2)"]);
    later.received_all();
    let lines = later.lines();
    assert!(lines[0].starts_with("rejected spBv1.0/G/NDATA/E: stored values are dropped"), "{lines:?}");
    assert_eq!(lines[1..], ["forwarded 2 dropped 1"]);
    assert_eq!(later.actions(), [StoreAction::Forget { below: 3 }]);
    // Numbers go on where they were.
    later.lose(true);
    later.set(None, temperature(31.0, 31));
    assert!(matches!(later.actions()[..], [StoreAction::Append { number: 3, .. }]));
}

#[test]
fn records_that_cannot_be_read_are_dropped_like_those_of_things_that_are_gone() {
    let mut bench = Bench::new(with(StoreConfig { mirrored: true, ..StoreConfig::default() }), temperature(1.0, 1));
    let torn = [(4, bytes::Bytes::from_static(b"\xff\xff")), (5, bytes::Bytes::new()), (3, bytes::Bytes::new())];
    bench.machine.restore(torn);
    bench.go_online();
    bench.pass(Duration::from_secs(20));
    bench.received_all();
    let lines = bench.lines();
    assert_eq!(lines.last().expect("it speaks"), "forwarded 0 dropped 2");
    assert_eq!(bench.actions(), [StoreAction::Forget { below: 6 }]);
}

#[test]
fn what_the_application_calls_historical_goes_through_the_store_while_offline() {
    let mut bench = Bench::born(with(StoreConfig { mirrored: true, ..StoreConfig::default() }));
    bench.lose(true);
    bench.update(NodeUpdate::Historical { device: None, metrics: temperature(5.0, 5) });
    assert!(matches!(bench.actions()[..], [StoreAction::Append { number: 0, .. }]));
    bench.pass(Duration::from_secs(1));
    bench.go_online();
    assert_eq!(bench.lines().last().expect("it speaks"), "NDATA E 1 ~Temperature=Double(5.0)");
}

/// What happens to a node that counts, and to its link.
#[derive(Debug, Clone)]
enum Step {
    Count(u8),
    /// The session ends; so many unconfirmed publishes had arrived.
    Lose(u8),
    Received(u8),
    Return,
    Pass(u16),
    Rebirth,
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever happens to the link, the server receives every value: live, in a birth, or as history.
    #[test]
    fn no_value_is_lost(
        steps in proptest::collection::vec(prop_oneof![
            4 => (1..9u8).prop_map(Step::Count),
            2 => any::<u8>().prop_map(Step::Lose),
            2 => any::<u8>().prop_map(Step::Received),
            3 => Just(Step::Return),
            2 => (0..3_000u16).prop_map(Step::Pass),
            1 => Just(Step::Rebirth),
        ], 0..60),
        waiting in 0..4usize,
    ) {
        let reconnect = (Duration::from_millis(500), Duration::from_secs(1));
        let config = EdgeNodeConfig { data_waiting_max: waiting, birth_burst: 2, reconnect, ..with(StoreConfig::default()) };
        let mut bench = Bench::born(config);
        bench.birth("D", vec![Metric::new("n", 0u32)]);
        bench.outputs();
        let mut counter = 0;
        let mut arrived = std::collections::BTreeSet::from([0]);
        // What went out in this session, and how much of it is known to have arrived.
        let (mut session, mut known) = (Vec::new(), bench.machine.outputs.published());
        let mut before = known;
        for step in steps.into_iter().chain([Step::Return, Step::Pass(3_000)]) {
            match step {
                Step::Count(times) => for _ in 0..times {
                    counter += 1;
                    bench.set(Some("D"), vec![Metric::new("n", counter)]);
                }
                Step::Received(some) => {
                    let open = bench.machine.outputs.published() - known;
                    known += u64::from(some) % (open + 1);
                    bench.on(TransportEvent::Received { publishes: known });
                }
                Step::Lose(some) => {
                    collect(&mut bench, &mut session);
                    let arrives = usize::try_from(known - before).expect("few");
                    let lost = session.len().saturating_sub(arrives);
                    session.truncate(arrives + usize::from(some) % (lost + 1));
                    arrived.extend(session.drain(..).flatten());
                    bench.lose(true);
                    bench.pass(Duration::from_secs(2));
                    (known, before) = (0, 0);
                }
                Step::Return => bench.go_online(),
                Step::Pass(ms) => bench.pass(Duration::from_millis(ms.into())),
                Step::Rebirth => bench.update(NodeUpdate::Rebirth),
            }
            collect(&mut bench, &mut session);
        }
        arrived.extend(session.into_iter().flatten());
        prop_assert_eq!(arrived, (0..=counter).collect());
    }
}

/// The counter's values in each publish.
fn collect(bench: &mut Bench, session: &mut Vec<Vec<u32>>) {
    for output in bench.outputs() {
        if let NodeOutput::Transport(TransportAction::Publish(p)) = output {
            let payload = crate::payload::decode(&p.payload, &Limits::default()).expect("readable");
            let counter = payload.metrics.into_iter().filter(|m| m.name.as_deref() == Some("n"));
            let value = |m: crate::payload::RawMetric| match m.resolve("n".into(), DataType::UInt32, None) {
                Ok(Metric { value: Some(Value::UInt32(n)), .. }) => n,
                other => panic!("{other:?}"),
            };
            session.push(counter.map(value).collect());
        }
    }
}
