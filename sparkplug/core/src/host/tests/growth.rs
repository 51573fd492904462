//! Work and memory grow with nodes and metrics, no faster: steps are counted, not timed.

use super::super::work;
use super::*;

/// NBIRTH of `metrics` Doubles by alias, named after the node if `own_names`.
fn birth(number: usize, metrics: usize, own_names: bool) -> (String, Bytes) {
    let prefix = if own_names { format!("{number}/") } else { String::new() };
    let mut all = vec![Metric::new("bdSeq", 0_i64)];
    all.extend((0..metrics).map(|n| Metric::new(format!("{prefix}Drive {n}/Speed"), n as f64)));
    (format!("spBv1.0/G/NBIRTH/E{number}"), message("NBIRTH", Some(0), WALL, all, Some(&alias)))
}

/// NDATA of ten metrics from `first` on, by alias.
fn data(number: usize, first: usize) -> (String, Bytes) {
    let all = (first..first + 10).map(|n| Metric::new(format!("Drive {n}/Speed"), 0.5)).collect();
    (format!("spBv1.0/G/NDATA/E{number}"), message("NDATA", Some(1), WALL, all, Some(&alias)))
}

fn alias(name: &str) -> Option<u64> {
    name.split_once("Drive ")?.1.split('/').next()?.parse().ok()
}

/// Steps for the births of a fleet, and for one data message of each node.
fn steps(nodes: usize, metrics: usize, own_names: bool) -> (u64, u64) {
    let mut bench = Bench::online(config());
    let mut count = |messages: Vec<(String, Bytes)>| {
        work::during(|| {
            for (topic, payload) in messages {
                bench.receive(&topic, payload);
                assert_eq!(bench.outputs().len(), 1, "one event for one message");
            }
        })
    };
    let births = count((0..nodes).map(|n| birth(n, metrics, own_names)).collect());
    let data = count((0..nodes).map(|n| data(n, metrics / 2)).collect());
    (births, data)
}

#[test]
fn work_grows_linearly_with_nodes_and_with_metrics() {
    for own_names in [false, true] {
        let (births, data) = steps(50, 20, own_names);
        for (nodes, metrics) in [(100, 20), (200, 20), (50, 40), (50, 80), (200, 80)] {
            let times = (nodes * metrics / (50 * 20)) as u64;
            let more = steps(nodes, metrics, own_names);
            assert!(more.0 <= births * times * 11 / 10, "{nodes} births of {metrics}: {} for {births}", more.0);
            let times = (nodes / 50) as u64;
            assert_eq!(
                more.1,
                data * times,
                "what data costs depends on neither the number of nodes nor that of metrics"
            );
        }
    }
}

/// A payload of metrics that have nothing but a name.
fn bare_names(seq: u8, count: usize) -> Bytes {
    // bdSeq, datatype Int64, 0
    let mut bytes = b"\x12\x0b\x0a\x05bdSeq\x20\x04\x58\x00"[..].to_vec();
    bytes.extend([0x18, seq]);
    for number in 0..count {
        let name = format!("unreadable {number:06}");
        let length = u8::try_from(name.len()).expect("short");
        bytes.extend([0x12, length + 2, 0x0a, length]);
        bytes.extend(name.as_bytes());
    }
    bytes.into()
}

#[test]
fn what_a_birth_could_not_say_is_found_without_a_search_through_all_of_it() {
    let steps = |count| {
        let mut bench = Bench::online(config());
        work::during(|| {
            bench.receive("spBv1.0/G/NBIRTH/E", bare_names(0, count));
            bench.receive("spBv1.0/G/NDATA/E", bare_names(1, count));
            assert_eq!(
                bench.machine.liveness(&EdgeNodeDescriptor::parse("G", "E").expect("valid")),
                Some(Liveness::Alive)
            );
        })
    };
    let (few, many) = (steps(500), steps(4_000));
    assert!(many < few * 8 * 3 / 2, "{many} steps for eight times what took {few}");
}

#[test]
fn nodes_of_one_kind_share_what_they_have_in_common() {
    let mut bench = Bench::online(config());
    for number in 0..100 {
        let (topic, payload) = birth(number, 20, false);
        bench.receive(&topic, payload);
    }
    assert_eq!(bench.machine.shapes.kept(), (1, 0), "one shape, whose names occur in no other");
    let node = bench.machine.node(&EdgeNodeDescriptor::parse("G", "E7").expect("valid")).expect("born");
    assert_eq!(node.metric("Drive 3/Speed").and_then(|m| m.metric.value), Some(Value::Double(3.0)));
}

#[test]
fn what_is_not_used_any_more_is_forgotten() {
    let mut bench = Bench::online(config());
    for session in 0..2_000 {
        // One node, born again and again with other names.
        bench.nbirth(
            session % 256,
            WALL + session.cast_unsigned(),
            vec![Metric::new(format!("Metric of session {session}"), true)],
        );
        bench.outputs();
    }
    let (shapes, names) = bench.machine.shapes.kept();
    assert!(shapes < 600 && names < 600, "{shapes} shapes and {names} names of one node");
}

#[test]
fn a_replica_with_other_properties_than_its_kind_keeps_its_own() {
    let mut bench = Bench::online(config());
    let unit = |unit: &str| Properties::new().with("engUnit", unit);
    let born = |unit_of: Properties| vec![Metric::new("bdSeq", 0_i64), Metric::new("T", 1.0).with_properties(unit_of)];
    let node = |bench: &Bench, id: &str| {
        let view = bench.machine.node(&EdgeNodeDescriptor::parse("G", id).expect("valid")).expect("born");
        view.metric("T").expect("known").metric.properties
    };
    for (id, own) in [("A", "m"), ("B", "km"), ("C", "m")] {
        bench.receive(&format!("spBv1.0/G/NBIRTH/{id}"), message("NBIRTH", Some(0), WALL, born(unit(own)), None));
    }
    assert_eq!(bench.machine.shapes.kept().0, 1);
    assert_eq!((node(&bench, "A"), node(&bench, "B"), node(&bench, "C")), (unit("m"), unit("km"), unit("m")));
    for (id, seq, metric) in [
        ("A", 1, Metric::new("T", 2.0).with_properties(unit("mm"))),
        ("B", 1, Metric::new("T", 2.0)),
        ("C", 1, Metric::new("T", 2.0).with_properties(unit("km"))),
        ("C", 2, Metric::new("T", 3.0).with_properties(unit("m"))),
    ] {
        bench.receive(&format!("spBv1.0/G/NDATA/{id}"), message("NDATA", Some(seq), WALL, vec![metric], None));
    }
    assert_eq!((node(&bench, "A"), node(&bench, "B"), node(&bench, "C")), (unit("mm"), unit("km"), unit("m")));
}
