//! Births, data and deaths as a replica.

use super::*;

#[test]
fn a_node_is_born_changes_and_dies() {
    let mut bench = Bench::online(config());
    assert_eq!(bench.machine.liveness(&e()), None);
    bench.nbirth(7, 1000, vec![Metric::new("T", 20.0f64), Metric::null("N", DataType::Text)]);
    bench.send("DBIRTH", Some("D"), Some(1), 1001, vec![Metric::new("x", 1u16)]);
    bench.ndata(2, 21.0);
    bench.ddata(3, 300);
    bench.send("DDEATH", Some("D"), Some(4), 1005, vec![]);
    bench.ndeath(7);
    bench.expect(&[
        "E born 7 at 1000 bdSeq=Int64(7) T=Double(20.0) N=null:Text",
        "E/D born at 1001 x=UInt16(1)",
        "E data at 2000 T=Double(21.0)",
        "E/D data at 2000 x=UInt16(300)",
        "E/D dead at 1005",
        "E dead at 1700000000000",
    ]);
    assert_eq!(bench.machine.liveness(&e()), Some(Liveness::Dead));
    bench.pass(Duration::from_secs(300));
    bench.expect(&[]);
}

/// tck-id-operational-behavior-edge-node-termination-host-action-ndeath-node-offline,
/// tck-id-operational-behavior-edge-node-termination-host-action-ndeath-node-tags-stale,
/// tck-id-operational-behavior-edge-node-termination-host-action-ndeath-devices-offline,
/// tck-id-operational-behavior-edge-node-termination-host-action-ndeath-devices-tags-stale
#[test]
fn ndeath_makes_node_and_devices_stale_at_the_hosts_time() {
    let mut bench = Bench::with_node(config());
    bench.pass(Duration::from_secs(1));
    bench.ndeath(0);
    bench.expect(&["E dead at 1700000001000"]);
    let node = bench.machine.node(&e()).expect("known");
    assert_eq!((node.liveness(), node.stale_at()), (Liveness::Dead, Some(WALL + 1000)));
    assert!(node.metrics().all(|m| m.stale_at == Some(WALL + 1000)) && node.metrics().count() == 2);
    let device = node.device(&device("D")).expect("known");
    assert!(!device.is_alive());
    assert_eq!(device.metric("x").expect("known").stale_at, Some(WALL + 1000));
}

/// tck-id-operational-behavior-edge-node-termination-host-action-ddeath-devices-offline,
/// tck-id-operational-behavior-edge-node-termination-host-action-ddeath-devices-tags-stale
#[test]
fn ddeath_makes_the_device_stale_at_the_payloads_time() {
    let mut bench = Bench::with_node(config());
    bench.send("DDEATH", Some("D"), Some(2), 1234, vec![]);
    bench.expect(&["E/D dead at 1234"]);
    let node = bench.machine.node(&e()).expect("known");
    assert!(node.metrics().all(|m| m.stale_at.is_none()));
    assert_eq!(node.device(&device("D")).and_then(|d| d.metric("x")).and_then(|m| m.stale_at), Some(1234));
    bench.send("DBIRTH", Some("D"), Some(3), 1300, vec![Metric::new("x", 5u16)]);
    bench.expect(&["E/D born at 1300 x=UInt16(5)"]);
    assert!(bench.machine.node(&e()).and_then(|n| n.device(&device("D"))).is_some_and(|d| d.is_alive()));
}

#[test]
fn ndeath_with_old_bd_seq_is_ignored_and_a_second_one_too() {
    let mut bench = Bench::online(config());
    bench.nbirth(7, 1000, vec![]);
    bench.outputs();
    bench.ndeath(6);
    bench.expect(&[]);
    assert_eq!(bench.machine.liveness(&e()), Some(Liveness::Alive));
    bench.ndeath(7);
    bench.ndeath(7);
    bench.expect(&["E dead at 1700000000000"]);
}

#[test]
fn an_ndeath_of_an_unknown_node_leaves_no_trace() {
    let mut bench = Bench::online(config());
    bench.ndeath(3);
    bench.expect(&[]);
    assert_eq!(bench.machine.liveness(&e()), None);
}

#[test]
fn a_birth_without_a_death_before_it_replaces_the_replica() {
    let mut bench = Bench::with_node(config());
    bench.nbirth(1, 1100, vec![Metric::new("U", 1u8)]);
    bench.expect(&["E born 1 at 1100 bdSeq=Int64(1) U=UInt8(1)"]);
    let node = bench.machine.node(&e()).expect("known");
    assert_eq!((node.bd_seq().map(BdSeq::get), node.devices().count()), (Some(1), 0));
    // The late will of the session before.
    bench.ndeath(0);
    bench.expect(&[]);
}

#[test]
fn no_packet_after_a_death_revives_a_node_but_a_birth() {
    let mut bench = Bench::with_node(config());
    bench.ndata(2, 21.0);
    bench.ndeath(0);
    bench.outputs();
    // Late duplicates: of data, of the birth.
    bench.ndata(2, 21.0);
    bench.expect(&[ASK, "E asked: a message came after the death"]);
    let repeated = message("NBIRTH", Some(0), 1000, vec![Metric::new("bdSeq", 0i64), Metric::new("T", 20.0f64)], None);
    bench.receive("spBv1.0/G/NBIRTH/E", repeated);
    bench.expect(&[]);
    assert_eq!(bench.machine.liveness(&e()), Some(Liveness::Dead));
    bench.nbirth(1, 3000, vec![]);
    bench.expect(&["E born 1 at 3000 bdSeq=Int64(1)"]);
}

#[test]
fn a_birth_older_than_the_known_one_is_checked_by_asking() {
    let mut bench = Bench::with_node(config());
    // The clock of the node was set back, or the packet is old: the answer shows which.
    bench.nbirth(1, 500, vec![]);
    bench.expect(&[
        "E stale: an NBIRTH is older than the one before it",
        ASK,
        "E asked: an NBIRTH is older than the one before it",
    ]);
    bench.nbirth(1, 501, vec![]);
    bench.expect(&["E born 1 at 501 bdSeq=Int64(1)"]);
    bench.pass(Duration::from_secs(300));
    bench.expect(&[]);
}

#[test]
fn a_repeated_birth_packet_is_ignored() {
    let mut bench = Bench::online(config());
    for _ in 0..3 {
        bench.nbirth(0, 1000, vec![]);
    }
    bench.expect(&["E born 0 at 1000 bdSeq=Int64(0)"]);
    bench.send("NDATA", None, Some(1), 1001, vec![]);
    bench.nbirth(0, 1000, vec![]);
    bench.expect(&["E data at 1001 "]);
}

/// tck-id-payloads-alias-birth-requirement, tck-id-payloads-alias-data-cmd-requirement
#[test]
fn aliases_and_types_come_from_the_birth() {
    let aliases = |name: &str| match name {
        "T" => Some(4),
        "S" => Some(9),
        _ => None,
    };
    let mut bench = Bench::online(config());
    let metrics =
        vec![Metric::new("bdSeq", 0i64), Metric::new("T", -1i8), Metric::new("S", 1u8), Metric::new("plain", 1i16)];
    bench.receive("spBv1.0/G/NBIRTH/E", message("NBIRTH", Some(0), 1, metrics, Some(&aliases)));
    let metrics = vec![Metric::new("T", -2i8), Metric::new("plain", -3i16), Metric::new("S", 200u8)];
    bench.receive("spBv1.0/G/NDATA/E", message("NDATA", Some(1), 2, metrics, Some(&aliases)));
    bench.expect(&[
        "E born 0 at 1 bdSeq=Int64(0) T=Int8(-1) S=UInt8(1) plain=Int16(1)",
        "E data at 2 T=Int8(-2) plain=Int16(-3) S=UInt8(200)",
    ]);
    let node = bench.machine.node(&e()).expect("known");
    assert_eq!(node.metric("S").and_then(|m| m.metric.value.clone()), Some(Value::UInt8(200)));
    // Alias tables begin again with each birth.
    bench.nbirth(0, 3, vec![Metric::new("T", 1i8)]);
    bench.outputs();
    bench.receive("spBv1.0/G/NDATA/E", message("NDATA", Some(1), 4, vec![Metric::new("T", -2i8)], Some(&aliases)));
    bench.expect(&["E stale: alias 4 is not in the birth", ASK, "E asked: alias 4 is not in the birth"]);
}

#[test]
fn aliases_of_each_birth_are_reported_to_an_application_that_asks_for_them() {
    let aliases = |name: &str| match name {
        "T" => Some(9),
        "S" => Some(u64::MAX),
        _ => None,
    };
    let mut bench = Bench::online(HostConfig { report_aliases: true, ..config() });
    let metrics = vec![Metric::new("bdSeq", 0i64), Metric::new("S", 1u8), Metric::new("T", -1i8)];
    bench.receive("spBv1.0/G/NBIRTH/E", message("NBIRTH", Some(0), 1, metrics, Some(&aliases)));
    let of_device = vec![Metric::new("S", 2u8), Metric::new("plain", 3i16)];
    bench.receive("spBv1.0/G/DBIRTH/E/D", message("DBIRTH", Some(1), 2, of_device, Some(&aliases)));
    bench.receive("spBv1.0/G/NDATA/E", message("NDATA", Some(2), 3, vec![Metric::new("T", -2i8)], Some(&aliases)));
    bench.expect(&[
        "E born 0 at 1 bdSeq=Int64(0) S=UInt8(1) T=Int8(-1)",
        "E aliases T=9 S=18446744073709551615",
        "E/D born at 2 S=UInt8(2) plain=Int16(3)",
        "E/D aliases S=18446744073709551615",
        "E data at 3 T=Int8(-2)",
    ]);
    // A birth without aliases says nothing of them.
    bench.nbirth(0, 4, vec![Metric::new("T", 1i8)]);
    bench.expect(&["E born 0 at 4 bdSeq=Int64(0) T=Int8(1)"]);
}

#[test]
fn historical_values_are_reported_but_do_not_become_current() {
    let mut bench = Bench::with_node(config());
    let metrics = vec![Metric::new("T", 1.0f64).at(1).historical(), Metric::new("T", 2.0f64).at(2).historical()];
    bench.send("NDATA", None, Some(2), 2000, metrics);
    bench.expect(&["E data at 2000 ~T=Double(1.0) ~T=Double(2.0)"]);
    let current = bench.machine.node(&e()).and_then(|n| n.metric("T")).expect("known").metric.clone();
    assert_eq!((current.value, current.timestamp), (Some(Value::Double(20.0)), Some(1000)));
}

#[test]
fn properties_stay_until_a_message_brings_others() {
    let mut bench = Bench::online(config());
    let properties = Properties::new().with("ETag", "a");
    bench.nbirth(0, 1, vec![Metric::new("x", 1u8).with_properties(properties.clone())]);
    bench.send("NDATA", None, Some(1), 2, vec![Metric::new("x", 2u8)]);
    bench.send(
        "NDATA",
        None,
        Some(2),
        3,
        vec![Metric::new("x", 3u8).with_properties(Properties::new().with("ETag", "b"))],
    );
    let etags: Vec<Option<String>> = bench
        .outputs()
        .iter()
        .filter_map(|o| match o {
            HostOutput::Event(HostEvent::NodeData { metrics, .. }) => {
                Some(metrics[0].properties.get("ETag").and_then(Value::as_str).map(str::to_owned))
            }
            _ => None,
        })
        .collect();
    assert_eq!(etags, [Some("a".to_owned()), Some("b".to_owned())]);
}

#[test]
fn a_metric_that_cannot_be_read_costs_only_itself() {
    use proto::sparkplug_b as wire;
    let metric = |name: &str, datatype, value| wire::Metric {
        name: Some(name.to_owned()),
        datatype,
        value: Some(value),
        ..Default::default()
    };
    let encode = |seq, metrics| {
        prost::Message::encode_to_vec(&wire::Payload {
            timestamp: Some(1),
            seq: Some(seq),
            metrics,
            ..Default::default()
        })
    };
    let mut bench = Bench::online(config());
    let birth = vec![
        metric("bdSeq", Some(4), wire::metric::Value::Long(0)),
        metric("odd", Some(99), wire::metric::Value::Int(1)),
        metric("good", Some(3), wire::metric::Value::Int(1)),
    ];
    bench.receive("spBv1.0/G/NBIRTH/E", encode(0, birth));
    let data =
        vec![metric("odd", None, wire::metric::Value::Int(2)), metric("good", None, wire::metric::Value::Int(2))];
    bench.receive("spBv1.0/G/NDATA/E", encode(1, data));
    let data = vec![metric("good", None, wire::metric::Value::String("x".into()))];
    bench.receive("spBv1.0/G/NDATA/E", encode(2, data));
    bench.expect(&[
        "E born 0 at 1 bdSeq=Int64(0) good=Int32(1)",
        "rejected spBv1.0/G/NBIRTH/E: metric \"odd\": datatype 99 is unknown",
        "E data at 1 good=Int32(2)",
        "E data at 1 ",
        "rejected spBv1.0/G/NDATA/E: metric \"good\": a value of datatype Int32 cannot be read from string_value",
    ]);
    assert_eq!(bench.machine.liveness(&e()), Some(Liveness::Alive));
}

#[test]
fn tables_are_bounded_and_say_so_once() {
    let mut bench = Bench::online(HostConfig { nodes_max: 1, devices_max: 1, metrics_max: 3, ..config() });
    bench.nbirth(0, 1, vec![]);
    for n in ["F", "H", "I"] {
        bench.receive(
            &format!("spBv1.0/G/NBIRTH/{n}"),
            message("NBIRTH", Some(0), 1, vec![Metric::new("bdSeq", 0i64)], None),
        );
    }
    bench.send("DBIRTH", Some("A"), Some(1), 1, vec![]);
    bench.send("DBIRTH", Some("B"), Some(2), 1, vec![]);
    bench.send("DBIRTH", Some("C"), Some(3), 1, vec![]);
    bench.send("DDATA", Some("C"), Some(4), 1, vec![Metric::new("x", 1u8)]);
    // A dead device makes room.
    bench.send("DDEATH", Some("A"), Some(5), 1, vec![]);
    bench.send("DBIRTH", Some("C"), Some(6), 1, vec![]);
    // One that is born again needs none.
    bench.send("DBIRTH", Some("C"), Some(7), 2, vec![]);
    bench.expect(&[
        "E born 0 at 1 bdSeq=Int64(0)",
        "rejected spBv1.0/G/NBIRTH/F: more than 1 edge nodes; further ones are not kept",
        "E/A born at 1 ",
        "rejected spBv1.0/G/DBIRTH/E/B: more than 1 devices; further ones are not kept",
        "E/A dead at 1",
        "E/C born at 1 ",
        "E/C born at 2 ",
    ]);
    let many = (0..4).map(|i| Metric::new(format!("m{i}"), 1u8)).collect::<Vec<_>>();
    bench.nbirth(0, 2, many.clone());
    bench.nbirth(0, 3, many);
    bench.expect(&[
        "rejected spBv1.0/G/NBIRTH/E: payload has more than 3 metrics",
        "E stale: a message exceeds the limits",
        ASK,
        "E asked: a message exceeds the limits",
    ]);
}

#[test]
fn a_dead_device_that_gave_way_weighs_nothing() {
    let mut bench = Bench::online(HostConfig { devices_max: 1, ..config() });
    let text = || vec![Metric::new("x", "some text")];
    bench.nbirth(0, 1, vec![]);
    bench.send("DBIRTH", Some("A"), Some(1), 1, text());
    let weight = bench.machine.groups.replica_bytes();
    bench.send("DDEATH", Some("A"), Some(2), 1, vec![]);
    bench.send("DBIRTH", Some("C"), Some(3), 1, text());
    assert!(bench.machine.node(&e()).is_some_and(|node| node.device(&device("A")).is_none()));
    assert_eq!(bench.machine.groups.replica_bytes(), weight);
}

#[test]
fn that_there_are_more_nodes_than_are_kept_is_said_in_each_session() {
    let mut bench = Bench::online(HostConfig { nodes_max: 1, ..config() });
    bench.nbirth(0, 1, vec![]);
    bench.outputs();
    let birth = message("NBIRTH", Some(0), 1, vec![Metric::new("bdSeq", 0i64)], None);
    for _ in 0..2 {
        bench.receive("spBv1.0/G/NBIRTH/F", birth.clone());
        bench.receive("spBv1.0/G/NBIRTH/F", birth.clone());
        bench.expect(&["rejected spBv1.0/G/NBIRTH/F: more than 1 edge nodes; further ones are not kept"]);
        bench.lose();
        bench.pass(Duration::from_secs(60));
        bench.go_online();
        bench.outputs();
    }
}

/// tck-id-topic-structure-namespace-duplicate-device-id-across-edge-node
#[test]
fn two_nodes_may_have_devices_of_one_name() {
    let mut bench = Bench::with_node(config());
    bench.receive("spBv1.0/G/NBIRTH/F", message("NBIRTH", Some(0), 1, vec![Metric::new("bdSeq", 0i64)], None));
    bench.receive("spBv1.0/G/DBIRTH/F/D", message("DBIRTH", Some(1), 1, vec![Metric::new("x", 9u8)], None));
    bench.send("DDEATH", Some("D"), Some(2), 2, vec![]);
    bench.expect(&["F born 0 at 1 bdSeq=Int64(0)", "F/D born at 1 x=UInt8(9)", "E/D dead at 2"]);
    let f = EdgeNodeDescriptor::parse("G", "F").expect("valid");
    assert!(bench.machine.node(&f).and_then(|n| n.device(&device("D"))).is_some_and(|d| d.is_alive()));
}

#[test]
fn forget_drops_the_replica() {
    let mut bench = Bench::with_node(config());
    bench.request(HostRequest::Forget { node: e() });
    assert_eq!(bench.machine.liveness(&e()), None);
    assert_eq!(bench.machine.nodes().count(), 0);
    bench.expect(&[]);
}

#[test]
fn a_bd_seq_in_the_field_of_narrow_integers_is_read() {
    let mut bench = Bench::online(config());
    bench.send("NBIRTH", None, Some(0), 1000, vec![Metric::new("bdSeq", 7u32)]);
    bench.send("NDEATH", None, None, 5, vec![Metric::new("bdSeq", 7u32)]);
    let lines = bench.lines();
    assert!(lines[0].starts_with("E born 7 at 1000"), "{lines:?}");
    assert_eq!(lines.last().map(String::as_str), Some(&*format!("E dead at {WALL}")));
}
