//! Metrics that are messages: reported as they come, in whatever condition the node is.

use super::*;

fn with_messages() -> HostConfig {
    HostConfig { messages: BTreeSet::from(["Hello"]), ..config() }
}

fn hello(bytes: &[u8]) -> Metric {
    Metric::new("Hello", Value::Bytes(bytes.into()))
}

fn said(bench: &mut Bench) -> Vec<String> {
    bench.lines().into_iter().filter(|line| line.contains(" says ")).collect()
}

#[test]
fn messages_are_reported_before_a_birth_after_a_death_out_of_order_and_in_births_that_are_not_believed() {
    let mut bench = Bench::online(with_messages());
    let spoken = [r"E says Hello=Bytes([7])".to_owned()];
    // No birth arrived.
    bench.send("NDATA", None, Some(9), 1000, vec![hello(&[7]), Metric::new("T", 1.0f64)]);
    assert_eq!(said(&mut bench), spoken);
    // A birth by another client, from the future, and its death.
    bench.nbirth(5, 9_000_000, vec![Metric::new("Hello", "nothing")]);
    bench.ndeath(5);
    bench.outputs();
    bench.send("NDATA", None, Some(3), 1001, vec![hello(&[7])]);
    assert_eq!(said(&mut bench), spoken);
    // Its own birth is older than that one.
    bench.nbirth(0, 1002, vec![hello(&[7])]);
    assert_eq!(said(&mut bench), spoken);
    // A `seq` that does not fit, and one that is not there.
    for seq in [Some(200), None] {
        bench.send("NDATA", None, seq, 1003, vec![hello(&[7])]);
        assert_eq!(said(&mut bench), spoken);
    }
    // Null, a device's, a death's: no messages.
    bench.nbirth(6, 1004, vec![Metric::null("Hello", DataType::Bytes)]);
    bench.send("DDATA", Some("D"), Some(1), 1005, vec![hello(&[7])]);
    bench.send("NDEATH", None, None, 1006, vec![Metric::new("bdSeq", 6_i64), hello(&[7])]);
    assert_eq!(said(&mut bench), Vec::<String>::new());
}

#[test]
fn a_birth_by_another_client_does_not_decide_which_commands_are_sent() {
    let mut bench = Bench::online(with_messages());
    bench.nbirth(0, 1000, vec![Metric::new("Answer", "text")]);
    bench.outputs();
    bench.request(HostRequest::Command { node: e(), device: None, metrics: vec![Metric::new("Answer", 1u64)] });
    bench.expect(&["spBv1.0/G/NCMD/E Answer=Some(UInt64(1))"]);
}

#[test]
fn messages_are_reported_of_nodes_for_which_there_is_no_room() {
    let mut bench = Bench::online(HostConfig { nodes_max: 1, ..with_messages() });
    bench.nbirth(0, 1000, vec![]);
    bench.outputs();
    let bytes = message("NDATA", Some(1), 1000, vec![hello(&[7])], None);
    bench.receive("spBv1.0/G/NDATA/F", bytes);
    assert_eq!(said(&mut bench), ["F says Hello=Bytes([7])"]);
}

#[test]
fn what_a_server_kept_is_not_reported_as_a_message() {
    let mut bench = Bench::online(with_messages());
    let kept = message("NDATA", Some(1), 1000, vec![hello(&[7])], None);
    bench.on(TransportEvent::Message {
        topic: topic("NDATA", None),
        payload: kept.clone(),
        qos: QoS::AtMostOnce,
        retain: true,
    });
    assert_eq!(said(&mut bench), Vec::<String>::new());
    bench.receive(&topic("NDATA", None), kept);
    assert_eq!(said(&mut bench), [r"E says Hello=Bytes([7])"]);
}

#[test]
fn a_message_has_the_time_of_its_metric() {
    let mut bench = Bench::online(with_messages());
    bench.send("NDATA", None, Some(1), 1000, vec![Metric { timestamp: Some(77), ..hello(&[7]) }]);
    let times = |output: &HostOutput| match output {
        HostOutput::Event(HostEvent::NodeMessages { metrics, .. }) => metrics.iter().map(|m| m.timestamp).collect(),
        _ => Vec::new(),
    };
    assert_eq!(bench.outputs().iter().flat_map(times).collect::<Vec<_>>(), [Some(77)]);
}
