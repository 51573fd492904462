//! CONNECT to DISCONNECT: will, subscriptions, births, bdSeq, seq, stop.

use super::*;

/// tck-id-message-flow-edge-node-birth-publish-will-message, -topic, -payload, -payload-bdSeq, -qos, -will-retained of the same prefix;
/// tck-id-topics-ndeath-payload, tck-id-topics-ndeath-seq, tck-id-payloads-ndeath-seq, tck-id-payloads-ndeath-will-message,
/// tck-id-payloads-ndeath-will-message-qos, tck-id-payloads-ndeath-will-message-retain,
/// tck-id-message-flow-edge-node-birth-publish-will-message-topic, tck-id-message-flow-edge-node-birth-publish-will-message-payload,
/// tck-id-message-flow-edge-node-birth-publish-will-message-payload-bdSeq, tck-id-message-flow-edge-node-birth-publish-will-message-qos,
/// tck-id-message-flow-edge-node-birth-publish-will-message-will-retained, tck-id-topics-ndeath-topic
#[test]
fn connect_carries_the_ndeath_as_will() {
    let mut bench = Bench::new(config(), node_metrics());
    bench.expect(&["connect 0 will [NDEATH E - qos1 bdSeq=Int64(0)]"]);
    assert_eq!(bench.machine.next_deadline(), None);
}

/// tck-id-message-flow-edge-node-ncmd-subscribe, tck-id-message-flow-device-dcmd-subscribe,
/// tck-id-message-flow-edge-node-birth-publish-connect
#[test]
fn commands_are_subscribed_and_acknowledged_before_birth() {
    let mut bench = Bench::new(config(), node_metrics());
    bench.outputs();
    bench.on(TransportEvent::Connected);
    bench.expect(&["subscribe spBv1.0/G/NCMD/E 1, spBv1.0/G/DCMD/E/+ 1"]);
    bench.pass(Duration::from_secs(60));
    bench.expect(&[]);
}

/// tck-id-principles-birth-certificates-order, tck-id-topics-nbirth-topic, tck-id-topics-nbirth-mqtt, tck-id-topics-nbirth-seq-num,
/// tck-id-topics-nbirth-timestamp, tck-id-topics-nbirth-metrics, tck-id-topics-nbirth-bdseq-included, tck-id-topics-nbirth-bdseq-matching,
/// tck-id-topics-nbirth-rebirth-metric
///
/// tck-id-message-flow-edge-node-birth-publish-nbirth-topic, tck-id-message-flow-edge-node-birth-publish-nbirth-payload,
/// tck-id-message-flow-edge-node-birth-publish-nbirth-payload-bdSeq, tck-id-message-flow-edge-node-birth-publish-nbirth-qos,
/// tck-id-message-flow-edge-node-birth-publish-nbirth-retained, tck-id-message-flow-edge-node-birth-publish-nbirth-payload-seq
///
/// tck-id-operational-behavior-data-commands-rebirth-name, tck-id-operational-behavior-data-commands-rebirth-datatype,
/// tck-id-operational-behavior-data-commands-rebirth-value, tck-id-operational-behavior-data-publish-nbirth,
/// tck-id-operational-behavior-data-publish-nbirth-values
///
/// tck-id-payloads-nbirth-timestamp, tck-id-payloads-nbirth-seq, tck-id-payloads-nbirth-bdseq, tck-id-payloads-nbirth-rebirth-req,
/// tck-id-payloads-nbirth-qos, tck-id-payloads-nbirth-retain, tck-id-payloads-sequence-num-req-nbirth, tck-id-payloads-timestamp-in-UTC,
/// tck-id-payloads-name-birth-data-requirement, tck-id-payloads-metric-datatype-req, tck-id-payloads-metric-timestamp-in-UTC
#[test]
fn nbirth_comes_first_and_holds_everything() {
    let mut bench = Bench::new(config(), node_metrics());
    bench.go_online();
    let outputs = bench.outputs();
    let lines: Vec<String> = outputs.iter().map(line).collect();
    assert_eq!(
        &lines[2..],
        [
            "NBIRTH E 0 bdSeq=Int64(0) Node Control/Rebirth=Boolean(false) Temperature=Double(20.0) Name=null:Some(String)",
            "born 0 false"
        ]
    );
    let NodeOutput::Transport(TransportAction::Publish(nbirth)) = &outputs[2] else { panic!("no publish") };
    let payload = read(nbirth);
    assert_eq!(payload.timestamp, Some(WALL));
    assert!(payload.metrics.iter().all(|m| m.timestamp == Some(WALL)));
}

/// tck-id-message-flow-device-birth-publish-nbirth-wait, tck-id-message-flow-device-birth-publish-dbirth-topic,
/// tck-id-message-flow-device-birth-publish-dbirth-match-edge-node-topic, tck-id-message-flow-device-birth-publish-dbirth-payload,
/// tck-id-message-flow-device-birth-publish-dbirth-qos, tck-id-message-flow-device-birth-publish-dbirth-retained,
/// tck-id-message-flow-device-birth-publish-dbirth-payload-seq, tck-id-topics-dbirth-topic, tck-id-topics-dbirth-mqtt, tck-id-topics-dbirth-seq,
/// tck-id-topics-dbirth-timestamp, tck-id-topics-dbirth-metric-reqs, tck-id-topics-dbirth-metrics, tck-id-payloads-dbirth-timestamp,
/// tck-id-payloads-dbirth-seq, tck-id-payloads-dbirth-seq-inc, tck-id-payloads-dbirth-order, tck-id-payloads-dbirth-qos, tck-id-payloads-dbirth-retain,
/// tck-id-operational-behavior-data-publish-dbirth, tck-id-operational-behavior-data-publish-dbirth-values, tck-id-payloads-ddata-order,
/// tck-id-payloads-ndata-order
#[test]
fn dbirths_follow_the_nbirth_directly_and_data_waits_for_them() {
    let mut bench = Bench::new(EdgeNodeConfig { birth_burst: 2, ..config() }, vec![Metric::new("n", 0u8)]);
    for id in ["A", "B", "C"] {
        bench.birth(id, vec![Metric::new("x", 1u8), Metric::null("y", DataType::Text)]);
    }
    bench.outputs();
    bench.go_online();
    bench.expect(&[
        "subscribe spBv1.0/G/NCMD/E 1, spBv1.0/G/DCMD/E/+ 1",
        "NBIRTH E 0 bdSeq=Int64(0) Node Control/Rebirth=Boolean(false) n=UInt8(0)",
        "DBIRTH E/A 1 x=UInt8(1) y=null:Some(Text)",
        "DBIRTH E/B 2 x=UInt8(1) y=null:Some(Text)",
    ]);
    // A is out: its change waits. C is not: its birth takes the change along.
    bench.set(Some("A"), vec![Metric::new("x", 2u8)]);
    bench.set(Some("C"), vec![Metric::new("x", 3u8)]);
    bench.set(None, vec![Metric::new("n", 1u8)]);
    bench.expect(&[]);
    bench.pass(Duration::from_millis(19));
    bench.expect(&[]);
    bench.pass(Duration::from_millis(1));
    bench.expect(&["DBIRTH E/C 3 x=UInt8(3) y=null:Some(Text)", "born 0 false"]);
    bench.pass(Duration::from_millis(20));
    bench.expect(&["DDATA E/A 4 x=Int32(2)", "NDATA E 5 n=Int32(1)"]);
}

/// tck-id-payloads-sequence-num-incrementing, tck-id-payloads-ndata-seq-inc, tck-id-topics-ndata-seq-num
#[test]
fn seq_runs_to_255_and_begins_at_0_again() {
    let mut bench = Bench::born(config());
    for n in 1..=300u64 {
        #[expect(clippy::cast_precision_loss, reason = "small")]
        bench.set(None, vec![Metric::new("Temperature", n as f64)]);
        let outputs = bench.outputs();
        let [NodeOutput::Transport(TransportAction::Publish(p))] = &outputs[..] else { panic!("{outputs:?}") };
        assert_eq!(read(p).seq, Some(n % 256));
    }
}

/// tck-id-topics-nbirth-bdseq-increment, tck-id-message-flow-edge-node-birth-publish-will-message-payload-bdSeq
#[test]
fn bd_seq_counts_connects_that_reached_a_server_and_no_others() {
    let mut bench = Bench::new(EdgeNodeConfig { bd_seq: BdSeq::from_wire(254).expect("valid"), ..config() }, vec![]);
    bench.expect(&["connect 0 will [NDEATH E - qos1 bdSeq=Int64(254)]"]);
    // No TCP connection: the number is not used.
    bench.lose(false);
    bench.pass(Duration::from_secs(1));
    bench.expect(&["offline cut", "connect 0 will [NDEATH E - qos1 bdSeq=Int64(254)]"]);
    // Refused by the server: used.
    bench.lose(true);
    bench.pass(Duration::from_secs(2));
    bench.expect(&["offline cut", "connect 0 will [NDEATH E - qos1 bdSeq=Int64(255)]"]);
    // Accepted: used, and 0 follows 255.
    bench.on(TransportEvent::Connected);
    bench.lose(false);
    bench.outputs();
    bench.pass(Duration::from_secs(4));
    bench.expect(&["connect 0 will [NDEATH E - qos1 bdSeq=Int64(0)]"]);
}

#[test]
fn nothing_queued_for_a_lost_session_reaches_the_next() {
    let mut bench = Bench::born(config());
    bench.set(None, vec![Metric::new("Temperature", 21.0f64)]);
    bench.lose(true);
    bench.set(None, vec![Metric::new("Temperature", 22.0f64)]);
    bench.expect(&["offline cut"]);
    assert!(!bench.machine.is_born());
    bench.pass(Duration::from_secs(1));
    bench.go_online();
    bench.expect(&[
        "connect 0 will [NDEATH E - qos1 bdSeq=Int64(1)]",
        "subscribe spBv1.0/G/NCMD/E 1, spBv1.0/G/DCMD/E/+ 1",
        "NBIRTH E 0 bdSeq=Int64(1) Node Control/Rebirth=Boolean(false) Temperature=Double(22.0)",
        "born 1 false",
    ]);
}

#[test]
fn waits_between_attempts_grow_and_servers_take_turns() {
    let mut bench = Bench::new(EdgeNodeConfig { servers: 2, ..config() }, vec![]);
    bench.outputs();
    let mut waits = Vec::new();
    for attempt in 1..=10 {
        bench.lose(false);
        let due = bench.machine.next_deadline().expect("tries again");
        waits.push(due - bench.now.mono);
        bench.pass(due - bench.now.mono);
        let server = attempt % 2;
        bench.expect(&["offline cut", &format!("connect {server} will [NDEATH E - qos1 bdSeq=Int64(0)]")]);
    }
    assert!(waits[0] <= Duration::from_millis(500) && waits[9] >= Duration::from_secs(15), "{waits:?}");
}

/// tck-id-operational-behavior-edge-node-intentional-disconnect-ndeath, tck-id-payloads-ndeath-will-message-publisher,
/// tck-id-payloads-ndeath-will-message-publisher-disconnect-mqtt311, tck-id-payloads-ndeath-bdseq,
/// tck-id-operational-behavior-edge-node-intentional-disconnect-packet
#[test]
fn stop_publishes_ndeath_then_disconnects_then_reports_it() {
    let mut bench = Bench::born(config());
    bench.update(NodeUpdate::Stop);
    bench.expect(&["NDEATH E - qos1 bdSeq=Int64(0)", "disconnect"]);
    assert_eq!(bench.machine.update(NodeUpdate::Rebirth, bench.now), Err(UpdateError::Stopped));
    bench.update(NodeUpdate::Stop);
    bench.lose(true);
    bench.expect(&["stopped"]);
    bench.pass(Duration::from_secs(100));
    bench.expect(&[]);
}

/// tck-id-operational-behavior-edge-node-intentional-disconnect-ndeath, tck-id-topics-nbirth-bdseq-increment
#[test]
fn an_outdated_session_ends_with_ndeath_and_is_followed_by_one_on_the_same_server() {
    let mut bench = Bench::born(EdgeNodeConfig { servers: 2, ..config() });
    bench.on(TransportEvent::Outdated);
    bench.expect(&["NDEATH E - qos1 bdSeq=Int64(0)", "disconnect"]);
    bench.on(TransportEvent::Outdated);
    bench.expect(&[]);
    bench.lose(true);
    bench.expect(&["offline the certificates were renewed"]);
    bench.on(TransportEvent::Outdated);
    bench.pass(Duration::from_secs(1));
    bench.expect(&["connect 0 will [NDEATH E - qos1 bdSeq=Int64(1)]"]);
    bench.on(TransportEvent::Outdated);
    bench.expect(&[]);
    bench.on(TransportEvent::Connected);
    bench.on(TransportEvent::Outdated);
    bench.expect(&[
        "subscribe spBv1.0/G/NCMD/E 1, spBv1.0/G/DCMD/E/+ 1",
        "NDEATH E - qos1 bdSeq=Int64(1)",
        "disconnect",
    ]);
    bench.update(NodeUpdate::Stop);
    bench.lose(true);
    bench.expect(&["stopped"]);
}

/// tck-id-operational-behavior-edge-node-intentional-disconnect-ndeath, tck-id-payloads-ndeath-will-message-publisher-disconnect-mqtt311
#[test]
fn ndeath_precedes_disconnect_in_a_session_without_births_too() {
    let mut bench = Bench::new(config(), vec![]);
    bench.outputs();
    bench.on(TransportEvent::Connected);
    bench.outputs();
    bench.update(NodeUpdate::Stop);
    bench.on(TransportEvent::Subscribed);
    bench.expect(&["NDEATH E - qos1 bdSeq=Int64(0)", "disconnect"]);
    bench.lose(true);
    bench.expect(&["stopped"]);
}

#[test]
fn stop_between_sessions_is_immediate() {
    let mut bench = Bench::new(config(), vec![]);
    bench.lose(false);
    bench.outputs();
    bench.update(NodeUpdate::Stop);
    bench.expect(&["stopped"]);
    assert_eq!(bench.machine.next_deadline(), None);
}

fn stamps(bench: &mut Bench) -> Vec<Option<u64>> {
    let publish = |output: &NodeOutput| match output {
        NodeOutput::Transport(TransportAction::Publish(p)) => Some(read(p).timestamp),
        _ => None,
    };
    bench.outputs().iter().filter_map(publish).collect()
}

#[test]
fn an_nbirth_is_stamped_later_than_what_came_before_it_even_in_the_same_millisecond() {
    let mut bench = Bench::born(EdgeNodeConfig { rebirth_interval_min: Duration::ZERO, ..config() });
    bench.set(None, vec![Metric::new("Temperature", 1.0f64)]);
    bench.update(NodeUpdate::Rebirth);
    bench.set(None, vec![Metric::new("Temperature", 2.0f64)]);
    assert_eq!(stamps(&mut bench), [Some(WALL), Some(WALL + 1), Some(WALL + 1)]);
    // A clock that was set back is followed.
    bench.now.wall -= 60_000;
    bench.update(NodeUpdate::Rebirth);
    assert_eq!(stamps(&mut bench), [Some(WALL - 60_000)]);
}
