//! What one group does takes nothing from another.

use proptest::prelude::*;

use super::*;

fn of(kind: &str, group: &str, node: &str) -> String {
    format!("spBv1.0/{group}/{kind}/{node}")
}

fn data() -> Bytes {
    message("NDATA", Some(1), 1, vec![Metric::new("x", 1u8)], None)
}

fn birth(timestamp: u64, text_bytes: usize) -> Bytes {
    let metrics = vec![Metric::new("bdSeq", 0i64), Metric::new("text", "x".repeat(text_bytes).as_str())];
    message("NBIRTH", Some(0), timestamp, metrics, None)
}

fn node(group: &str, name: &str) -> EdgeNodeDescriptor {
    EdgeNodeDescriptor::parse(group, name).expect("valid")
}

/// Groups in the order in which their nodes were asked.
fn asked(bench: &mut Bench) -> Vec<String> {
    let outputs = bench.outputs();
    let groups = outputs.iter().filter_map(|output| match output {
        HostOutput::Event(HostEvent::RebirthRequested { node, .. }) => Some(node.group.to_string()),
        _ => None,
    });
    groups.collect()
}

fn rejections(bench: &mut Bench) -> Vec<String> {
    bench.lines().into_iter().filter(|line| line.starts_with("rejected")).collect()
}

#[test]
fn a_flood_of_unborn_nodes_of_one_group_delays_nobody_else() {
    let mut bench = Bench::online(HostConfig { rebirths_per_second_max: 10, ..config() });
    for n in 0..5_000 {
        bench.receive(&of("NDATA", "Flood", &format!("n{n}")), data());
    }
    bench.pass(Duration::from_secs(1));
    bench.outputs();
    bench.receive(&of("NDATA", "Calm", "E"), data());
    bench.pass(Duration::from_millis(250));
    let groups = asked(&mut bench);
    assert!(groups.iter().position(|group| group == "Calm").is_some_and(|turn| turn <= 1), "{groups:?}");
    // Those that flood have their turns, too.
    assert!(groups.iter().any(|group| group == "Flood"), "{groups:?}");
}

#[test]
fn a_group_has_so_many_nodes_and_those_that_are_expected() {
    let own_group = Some(GroupId::new("Own").expect("valid"));
    let mut bench = Bench::online(HostConfig { group_nodes_max: 2, own_group, rebirth_requests: false, ..config() });
    for n in 0..5 {
        bench.receive(&of("NBIRTH", "G", &format!("n{n}")), birth(1, 1));
        bench.receive(&of("NBIRTH", "Own", &format!("n{n}")), birth(1, 1));
    }
    let refusal = "rejected spBv1.0/G/NBIRTH/n2: more than 2 edge nodes in group G; further ones are not kept";
    assert_eq!(rejections(&mut bench), [refusal]);
    assert_eq!(bench.machine.nodes().filter(|(name, _)| name.group.as_str() == "Own").count(), 5);
    bench.receive(&of("NBIRTH", "H", "n0"), birth(1, 1));
    assert_eq!(bench.machine.liveness(&node("H", "n0")), Some(Liveness::Alive));
    bench.request(HostRequest::Expect { node: node("G", "n4") });
    bench.receive(&of("NBIRTH", "G", "n4"), birth(1, 1));
    assert_eq!(bench.machine.liveness(&node("G", "n4")), Some(Liveness::Alive));
    // Room is made by what is forgotten, and what is refused then is said again.
    bench.request(HostRequest::Forget { node: node("G", "n4") });
    bench.request(HostRequest::Forget { node: node("G", "n0") });
    bench.receive(&of("NBIRTH", "G", "n3"), birth(1, 1));
    assert_eq!(bench.machine.liveness(&node("G", "n3")), Some(Liveness::Alive));
    bench.outputs();
    bench.receive(&of("NBIRTH", "G", "n0"), birth(1, 1));
    assert_eq!(rejections(&mut bench).len(), 1);
}

#[test]
fn a_name_that_was_heard_and_never_born_is_forgotten_when_it_does_not_answer() {
    let mut bench = Bench::online(HostConfig { group_nodes_max: 1, ..config() });
    bench.receive(&of("NDATA", "G", "ghost"), data());
    bench.request(HostRequest::Expect { node: node("G", "expected") });
    assert_eq!(bench.machine.liveness(&node("G", "ghost")), Some(Liveness::Stale));
    bench.pass(Duration::from_secs(600));
    assert_eq!(bench.machine.liveness(&node("G", "ghost")), None);
    let names: Vec<_> = bench.machine.nodes.iter().map(|(name, _)| name.edge_node.to_string()).collect();
    assert_eq!(names, ["expected"]);
    // A node that was born stays, however long it is silent.
    bench.receive(&of("NBIRTH", "H", "E"), birth(1, 1));
    bench.receive(&of("NDATA", "H", "E"), message("NDATA", Some(7), 1, vec![], None));
    bench.pass(Duration::from_secs(3_600));
    assert_eq!(bench.machine.liveness(&node("H", "E")), Some(Liveness::Stale));
}

#[test]
fn births_of_a_group_take_so_many_bytes() {
    let own_group = Some(GroupId::new("Own").expect("valid"));
    let mut bench = Bench::online(HostConfig { group_bytes_max: 2_000, own_group, ..config() });
    for group in ["G", "Own", "H"] {
        bench.receive(&of("NBIRTH", group, "a"), birth(1, 1_200));
    }
    assert!(rejections(&mut bench).is_empty());
    bench.receive(&of("NBIRTH", "G", "b"), birth(1, 1_200));
    bench.receive(&of("NBIRTH", "Own", "b"), birth(1, 1_200));
    let refusal = "rejected spBv1.0/G/NBIRTH/b: births of group G would take more than 2000 bytes";
    assert_eq!(rejections(&mut bench), [refusal]);
    assert_eq!(bench.machine.liveness(&node("Own", "b")), Some(Liveness::Alive));
    // The same node again is no more than before; a smaller one makes room.
    bench.receive(&of("NBIRTH", "G", "a"), birth(2, 1_300));
    bench.receive(&of("NBIRTH", "G", "a"), birth(3, 100));
    bench.receive(&of("NBIRTH", "G", "b"), birth(2, 1_200));
    assert_eq!(bench.machine.liveness(&node("G", "b")), Some(Liveness::Alive));
    bench.outputs();
    // A device counts once, however often it is born.
    let device = |seq: u64, bytes: usize| {
        message("DBIRTH", Some(seq), 5, vec![Metric::new("text", "x".repeat(bytes).as_str())], None)
    };
    for seq in 1..20 {
        bench.receive(&format!("{}/D", of("DBIRTH", "G", "a")), device(seq, 300));
    }
    assert!(rejections(&mut bench).is_empty());
    bench.receive(&format!("{}/D", of("DBIRTH", "G", "a")), device(20, 3_000));
    let refusal = "rejected spBv1.0/G/DBIRTH/a/D: births of group G would take more than 2000 bytes";
    assert_eq!(rejections(&mut bench), [refusal]);
    bench.request(HostRequest::Forget { node: node("G", "b") });
    bench.receive(&of("NBIRTH", "G", "c"), birth(1, 1_500));
    assert_eq!(bench.machine.liveness(&node("G", "c")), Some(Liveness::Alive));
}

proptest! {
    /// Whatever nodes are to be asked: between two turns of a group that waits, no other group has more than one and those that came with it one more.
    #[test]
    fn groups_take_turns(floods in prop::collection::vec((0usize..6, 1usize..40), 1..12)) {
        let mut bench = Bench::online(HostConfig { rebirths_per_second_max: 100, ..config() });
        for (at, (group, nodes)) in floods.iter().enumerate() {
            for n in 0..*nodes {
                bench.receive(&of("NDATA", &format!("g{group}"), &format!("n{at}-{n}")), data());
            }
        }
        bench.outputs();
        bench.receive(&of("NDATA", "Calm", "E"), data());
        bench.pass(Duration::from_secs(5));
        let groups = asked(&mut bench);
        let turn = groups.iter().position(|group| group == "Calm");
        let others: std::collections::BTreeSet<_> = floods.iter().map(|(group, _)| group).collect();
        prop_assert!(turn.is_some_and(|turn| turn <= others.len()), "{groups:?}");
    }
}
