//! Rebirths for hosts that may not ask for them.

use super::*;

const ASKED: &str = "E asked: host Reader came online";

fn for_hosts() -> HostConfig {
    HostConfig { rebirths_for_hosts: Some(RebirthsForHosts::but_for(vec!["Own-".to_owned()])), ..config() }
}

/// With a node that can be asked.
fn with_node(config: HostConfig) -> Bench {
    let mut bench = Bench::online(config);
    bench.nbirth(0, 1000, vec![Metric::new(NODE_REBIRTH, false), Metric::new("T", 20.0f64)]);
    bench.outputs();
    bench
}

fn comes(bench: &mut Bench, host: &str, online: bool, timestamp: u64) {
    bench.receive(&format!("spBv1.0/STATE/{host}"), HostState { online, timestamp }.encode());
}

fn asked(bench: &mut Bench) -> usize {
    bench.lines().iter().filter(|line| line.as_str() == ASK).count()
}

#[test]
fn a_host_that_comes_online_has_every_living_node_reborn() {
    let mut bench = with_node(for_hosts());
    comes(&mut bench, "Reader", true, 1);
    bench.expect(&["state Reader true 1", "served Reader", ASK, ASKED]);
}

#[test]
fn the_session_subscribes_to_every_state_only_where_it_serves() {
    let subscription = |config| {
        let mut bench = Bench::new(config);
        bench.on(TransportEvent::Connected);
        bench.lines().into_iter().find(|line| line.starts_with("subscribe ")).expect("subscribed")
    };
    assert!(subscription(for_hosts()).contains("spBv1.0/STATE/+ 1"));
    assert!(!subscription(config()).contains("spBv1.0/STATE/+ 1"));
    let mut bench = with_node(config());
    comes(&mut bench, "Reader", true, 1);
    bench.expect(&["state Reader true 1"]);
}

#[test]
fn a_host_that_asks_itself_or_that_was_online_before_is_not_served() {
    let mut bench = with_node(for_hosts());
    comes(&mut bench, "Own-Monitor", true, 1);
    comes(&mut bench, "H", true, 1);
    comes(&mut bench, "Reader", false, 1);
    assert_eq!(asked(&mut bench), 0);
    comes(&mut bench, "Reader", true, 2);
    assert_eq!(asked(&mut bench), 1);
    // The retained message comes again with each session of the host that serves.
    bench.pass(Duration::from_secs(300));
    comes(&mut bench, "Reader", true, 2);
    assert_eq!(asked(&mut bench), 0);
    comes(&mut bench, "Reader", false, 2);
    comes(&mut bench, "Reader", true, 3);
    assert_eq!(asked(&mut bench), 1);
}

#[test]
fn hosts_that_come_and_go_share_one_round_a_minute() {
    let mut bench = with_node(for_hosts());
    let mut count = 0;
    for timestamp in 0..590 {
        comes(&mut bench, &format!("Reader{timestamp}"), true, timestamp);
        bench.pass(Duration::from_secs(1));
        count += asked(&mut bench);
    }
    assert_eq!(count, 10);
    // The last ones wait for no more than a minute.
    bench.pass(Duration::from_secs(60));
    assert_eq!(asked(&mut bench), 1);
    bench.pass(Duration::from_secs(600));
    assert_eq!(asked(&mut bench), 0);
}

#[test]
fn a_node_that_was_born_since_is_not_asked_and_a_dead_one_neither() {
    let mut bench = with_node(for_hosts());
    comes(&mut bench, "Reader", true, 1);
    assert_eq!(asked(&mut bench), 1);
    bench.pass(Duration::from_secs(10));
    comes(&mut bench, "Other", true, 1);
    bench.pass(Duration::from_secs(10));
    bench.nbirth(0, bench.now.wall, vec![Metric::new("T", 20.0f64)]);
    bench.outputs();
    bench.pass(Duration::from_secs(60));
    assert_eq!(asked(&mut bench), 0);
    bench.ndeath(0);
    bench.outputs();
    comes(&mut bench, "Third", true, 1);
    bench.pass(Duration::from_secs(60));
    bench.expect(&["state Third true 1", "served Third"]);
}

#[test]
fn only_the_named_nodes_are_asked() {
    let rule =
        RebirthsForHosts { nodes: |node| node.edge_node.as_str() == "F", ..RebirthsForHosts::but_for(Vec::new()) };
    let mut bench = with_node(HostConfig { rebirths_for_hosts: Some(rule), ..config() });
    comes(&mut bench, "Reader", true, 1);
    bench.expect(&["state Reader true 1", "served Reader"]);
}

#[test]
fn no_number_of_hosts_takes_memory() {
    let mut bench = with_node(for_hosts());
    for n in 0..5_000 {
        comes(&mut bench, &format!("Reader{n}"), true, 1);
    }
    assert_eq!(asked(&mut bench), 1);
    assert!(format!("{:?}", bench.machine.new_hosts).matches("Reader").count() <= 1_001);
}
