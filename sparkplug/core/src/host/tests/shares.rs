//! What one group can take from another: nothing.

use proptest::prelude::*;

use super::*;
use crate::name::GroupId;

fn node(group: &str, id: &str) -> EdgeNodeDescriptor {
    EdgeNodeDescriptor::parse(group, id).expect("valid")
}

/// Data of a node that was never born.
fn tiny(bench: &mut Bench, group: &str, id: &str) {
    bench.receive(&format!("spBv1.0/{group}/NDATA/{id}"), message("NDATA", Some(3), 1, vec![], None));
}

fn born(bench: &mut Bench, group: &str, id: &str, metrics: Vec<Metric>) {
    let metrics = std::iter::once(Metric::new("bdSeq", 0_i64)).chain(metrics).collect();
    bench.receive(&format!("spBv1.0/{group}/NBIRTH/{id}"), message("NBIRTH", Some(0), WALL, metrics, None));
}

fn early(bench: &mut Bench, group: &str, id: &str, seq: u64, bytes: usize) {
    let metrics = vec![Metric::new("T", "x".repeat(bytes).as_str())];
    bench.receive(&format!("spBv1.0/{group}/NDATA/{id}"), message("NDATA", Some(seq), WALL, metrics, None));
}

/// Whom the machine asked for rebirth since the last look, in order.
fn asked(bench: &mut Bench) -> Vec<EdgeNodeDescriptor> {
    let outputs = bench.outputs().into_iter().filter_map(|output| match output {
        HostOutput::Event(HostEvent::RebirthRequested { node, .. }) => Some(node),
        _ => None,
    });
    outputs.collect()
}

#[test]
fn a_flood_of_nodes_that_were_never_born_does_not_delay_the_request_to_another_group() {
    let mut bench = Bench::online(HostConfig { rebirths_per_second_max: 10, ..config() });
    for n in 0..10_000 {
        tiny(&mut bench, "Flood", &format!("n{n}"));
    }
    asked(&mut bench);
    tiny(&mut bench, "Good", "E");
    bench.pass(Duration::from_millis(200));
    assert!(asked(&mut bench).contains(&node("Good", "E")), "two turns of 100 ms");
}

#[test]
fn within_a_group_an_expected_node_comes_first() {
    let mut bench = Bench::online(HostConfig { rebirths_per_second_max: 10, ..config() });
    for n in 0..100 {
        tiny(&mut bench, "G", &format!("n{n}"));
    }
    asked(&mut bench);
    // It waits already when it comes to be expected, or it is new.
    bench.request(HostRequest::Expect { node: node("G", "n99") });
    bench.request(HostRequest::Expect { node: node("G", "E") });
    bench.pass(Duration::from_millis(200));
    let mut first = asked(&mut bench);
    first.sort();
    assert_eq!(first, [node("G", "E"), node("G", "n99")]);
}

#[test]
fn a_full_table_is_shared_and_equal_shares_stay() {
    let mut bench = Bench::online(HostConfig { nodes_max: 10, ..config() });
    born(&mut bench, "Flood", "born", vec![]);
    bench.request(HostRequest::Expect { node: node("Flood", "expected") });
    for n in 0..100 {
        tiny(&mut bench, "Flood", &format!("n{n}"));
    }
    for n in 0..8 {
        born(&mut bench, "Good", &format!("n{n}"), vec![]);
    }
    let of =
        |bench: &Bench, group: &str| bench.machine.nodes().filter(|(name, _)| name.group.as_str() == group).count();
    // The expected one never sent a message, but has its place.
    assert_eq!((of(&bench, "Flood"), of(&bench, "Good")), (5, 4));
    assert_eq!(bench.machine.liveness(&node("Flood", "born")), Some(Liveness::Alive));
    for n in 0..100 {
        tiny(&mut bench, "Flood", &format!("m{n}"));
    }
    assert_eq!((of(&bench, "Flood"), of(&bench, "Good")), (5, 4));
    // An expected node has a place in any case.
    bench.outputs();
    for n in 0..8 {
        bench.request(HostRequest::Expect { node: node("Good", &format!("n{n}")) });
    }
    for n in 4..8 {
        born(&mut bench, "Good", &format!("n{n}"), vec![]);
    }
    assert_eq!(of(&bench, "Good"), 8);
    assert_eq!(of(&bench, "Flood"), 1);
}

#[test]
fn commands_deaths_and_what_a_server_kept_take_no_place() {
    let mut bench = Bench::online(HostConfig { nodes_max: 1, ..config() });
    let bytes = message("NDEATH", Some(0), 1000, vec![Metric::new("bdSeq", 0_i64)], None);
    for topic in ["spBv1.0/G/NCMD/F", "spBv1.0/G/DCMD/F/D", "spBv1.0/G/NDEATH/F"] {
        bench.receive(topic, bytes.clone());
    }
    bench.expect(&[]);
    bench.on(TransportEvent::Message {
        topic: "spBv1.0/G/NBIRTH/F".to_owned(),
        payload: bytes,
        qos: QoS::AtMostOnce,
        retain: true,
    });
    assert_eq!(bench.lines().len(), 1, "it is refused, and that is reported");
    bench.nbirth(0, 1000, vec![]);
    bench.expect(&["E born 0 at 1000 bdSeq=Int64(0)"]);
}

#[test]
fn a_living_node_that_gives_way_is_reported_to_the_application() {
    let mut bench = Bench::online(HostConfig { nodes_max: 2, ..config() });
    born(&mut bench, "Flood", "a", vec![]);
    born(&mut bench, "Flood", "b", vec![]);
    bench.outputs();
    born(&mut bench, "Good", "E", vec![]);
    bench
        .expect(&["a stale: its group has more edge nodes than its share", "E born 0 at 1700000000000 bdSeq=Int64(0)"]);
    assert_eq!(bench.machine.liveness(&node("Flood", "a")), None);
}

#[test]
fn a_node_that_was_never_born_is_forgotten_after_a_while_unless_it_is_expected() {
    let mut bench = Bench::online(HostConfig { unborn_kept: Duration::from_secs(10), ..config() });
    tiny(&mut bench, "G", "E");
    tiny(&mut bench, "G", "expected");
    bench.request(HostRequest::Expect { node: node("G", "expected") });
    born(&mut bench, "G", "born", vec![]);
    bench.pass(Duration::from_secs(10));
    assert_eq!(bench.machine.liveness(&node("G", "E")), None);
    assert_eq!(bench.machine.liveness(&node("G", "expected")), Some(Liveness::Stale));
    assert_eq!(bench.machine.liveness(&node("G", "born")), Some(Liveness::Alive));
}

#[test]
fn the_group_that_holds_back_most_loses_first() {
    let mut bench = Bench::online(HostConfig { held_bytes_max: 1_000, ..config() });
    for group in ["Flood", "Good"] {
        born(&mut bench, group, "E", vec![Metric::new("T", "")]);
    }
    bench.outputs();
    for seq in 3..10 {
        early(&mut bench, "Flood", "E", seq, 100);
    }
    early(&mut bench, "Good", "E", 3, 300);
    assert_eq!(bench.machine.liveness(&node("Flood", "E")), Some(Liveness::Stale));
    assert_eq!(bench.machine.liveness(&node("Good", "E")), Some(Liveness::Alive));
}

#[test]
fn large_births_of_one_group_cost_another_nothing() {
    let text = |bytes| vec![Metric::new("T", "x".repeat(bytes).as_str())];
    let mut bench = Bench::online(HostConfig { replica_bytes_max: 100_000, ..config() });
    born(&mut bench, "Good", "E", text(10_000));
    bench.request(HostRequest::Expect { node: node("Flood", "expected") });
    born(&mut bench, "Flood", "expected", text(11_000));
    for n in 0..40 {
        born(&mut bench, "Flood", &format!("n{n}"), text(10_000));
        assert!(bench.machine.groups.replica_bytes() <= 100_000);
    }
    for kept in [node("Good", "E"), node("Flood", "expected")] {
        assert_eq!(bench.machine.liveness(&kept), Some(Liveness::Alive), "{kept}");
    }
    // No node is asked for a birth that there is no room for.
    bench.outputs();
    bench.pass(Duration::from_secs(600));
    assert_eq!(asked(&mut bench), []);
    // What a group has room for by its share, it gets from the one that holds most.
    for n in 0..3 {
        born(&mut bench, "Good", &format!("n{n}"), text(10_000));
        assert_eq!(bench.machine.liveness(&node("Good", &format!("n{n}"))), Some(Liveness::Alive));
    }
}

#[test]
fn a_value_that_grows_after_the_birth_counts_and_one_that_shrinks_frees() {
    let mut bench = Bench::online(HostConfig { replica_bytes_max: 100_000, ..config() });
    born(&mut bench, "Good", "E", vec![Metric::new("T", "")]);
    born(&mut bench, "Flood", "E", vec![Metric::new("T", "")]);
    let before = bench.machine.groups.replica_bytes();
    early(&mut bench, "Flood", "E", 1, 90_000);
    assert_eq!(bench.machine.groups.replica_bytes(), before + 90_000);
    early(&mut bench, "Flood", "E", 2, 10);
    assert_eq!(bench.machine.groups.replica_bytes(), before + 10);
    early(&mut bench, "Flood", "E", 3, 150_000);
    assert_eq!(bench.machine.liveness(&node("Flood", "E")), Some(Liveness::Stale));
    assert_eq!(bench.machine.liveness(&node("Good", "E")), Some(Liveness::Alive));
    for group in ["Flood", "Good"] {
        bench.request(HostRequest::Forget { node: node(group, "E") });
    }
    assert_eq!(bench.machine.groups.replica_bytes(), 0);
}

#[test]
fn what_the_contract_does_not_know_is_not_kept() {
    let only = |group: &str, allowed_only| Interest {
        group: Some(GroupId::new(group).expect("valid")),
        edge_node: None,
        allowed_only,
        device: |device| device.as_str() == "known",
    };
    let mut bench = Bench::online(HostConfig { interests: vec![only("G", false), only("Enrol", true)], ..config() });
    tiny(&mut bench, "Other", "E");
    tiny(&mut bench, "Enrol", "E");
    bench.expect(&[]);
    assert_eq!(bench.machine.nodes.len(), 0);
    // What is not kept counts in the order of seq.
    bench.nbirth(0, WALL, vec![]);
    for (seq, id) in [(1, "known"), (2, "other")] {
        bench.send("DBIRTH", Some(id), Some(seq), WALL, vec![Metric::new("x", 1u16)]);
    }
    for (seq, id) in [(3, "known"), (4, "other")] {
        bench.send("DDATA", Some(id), Some(seq), 2000, vec![Metric::new("x", 2u16)]);
    }
    bench.send("DDEATH", Some("other"), Some(5), 2000, vec![]);
    bench.send("DDEATH", Some("known"), Some(6), 2000, vec![]);
    bench.expect(&[
        "E born 0 at 1700000000000 bdSeq=Int64(0)",
        "E/known born at 1700000000000 x=UInt16(1)",
        "E/known data at 2000 x=UInt16(2)",
        "E/known dead at 2000",
    ]);
    // Who is allowed is asked once, and not again however long it is silent.
    bench.request(HostRequest::Allow { node: node("Enrol", "E") });
    bench.pass(Duration::from_secs(3600));
    assert_eq!(asked(&mut bench), [node("Enrol", "E")]);
    born(&mut bench, "Enrol", "E", vec![]);
    assert_eq!(bench.machine.liveness(&node("Enrol", "E")), Some(Liveness::Alive));
    bench.request(HostRequest::Forget { node: node("Enrol", "E") });
    born(&mut bench, "Enrol", "E", vec![Metric::new("T", 1.0)]);
    assert_eq!(bench.machine.liveness(&node("Enrol", "E")), None);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Whatever other groups send, the k-th node of a group that waits is asked within k rounds of one turn for each group.
    #[test]
    fn however_other_groups_behave_a_group_gets_its_requests_within_its_turns(
        floods in proptest::collection::vec((0..4_u8, 0..200_u16, 0..4_u8, 0..30_u64), 1..300),
        nodes in 1..8_u64,
        nodes_max in 16..200_usize,
    ) {
        let spacing = Duration::from_millis(10);
        let mut bench = Bench::online(HostConfig { rebirths_per_second_max: 100, nodes_max, ..config() });
        let misbehave = |bench: &mut Bench, (group, id, kind, pass): (u8, u16, u8, u64)| {
            let (group, id) = (format!("Flood{group}"), format!("n{id}"));
            match kind {
                0 => born(bench, &group, &id, vec![Metric::new("T", "x".repeat(100).as_str())]),
                1 => early(bench, &group, &id, pass, 100),
                _ => tiny(bench, &group, &id),
            }
            bench.pass(Duration::from_millis(pass));
        };
        let (before, after) = floods.split_at(floods.len() / 2);
        for step in before {
            misbehave(&mut bench, *step);
        }
        bench.outputs();
        for n in 0..nodes.min(nodes_max as u64 / 5) {
            tiny(&mut bench, "Good", &format!("n{n}"));
        }
        let end = bench.now.mono + spacing * 5 * u32::try_from(nodes).expect("few");
        for step in after {
            let (group, id, kind, pass) = *step;
            let left = end.saturating_sub(bench.now.mono).as_millis().try_into().unwrap_or(u64::MAX);
            misbehave(&mut bench, (group, id, kind, pass.min(left)));
        }
        let left = end.saturating_sub(bench.now.mono);
        bench.pass(left);
        let asked = asked(&mut bench);
        for n in 0..nodes.min(nodes_max as u64 / 5) {
            prop_assert!(asked.contains(&node("Good", &format!("n{n}"))), "n{n} of {nodes} was not asked");
        }
    }
}
