//! The sign of life of a quiet node.

use super::*;
use crate::host::{HostApplication, HostConfig, HostEvent, HostOutput, Liveness};

const BEAT: &str = "Node Control/Rebirth=Boolean(false){birthTimestamp}";

fn quiet() -> EdgeNodeConfig {
    EdgeNodeConfig { heartbeat: Some(Duration::from_secs(30)), ..config() }
}

#[test]
fn a_quiet_node_says_after_each_interval_that_nothing_changed() {
    let mut bench = Bench::born(quiet());
    bench.pass(Duration::from_millis(29_999));
    bench.expect(&[]);
    bench.pass(Duration::from_millis(60_001));
    let beats: Vec<String> = (1..=3).map(|seq| format!("NDATA E {seq} {BEAT}")).collect();
    assert_eq!(bench.lines(), beats);
}

#[test]
fn every_message_begins_the_quiet_time_again() {
    let mut bench = Bench::born(quiet());
    bench.pass(Duration::from_secs(20));
    bench.set(None, vec![Metric::new("Temperature", 21.0f64)]);
    bench.pass(Duration::from_secs(20));
    bench.expect(&["NDATA E 1 Temperature=Double(21.0)"]);
    bench.pass(Duration::from_secs(10));
    bench.expect(&[&format!("NDATA E 2 {BEAT}")]);
}

#[test]
fn what_sends_nothing_leaves_the_quiet_time_as_it_is() {
    let mut bench = Bench::born(quiet());
    bench.pass(Duration::from_secs(20));
    bench.set(None, vec![Metric::new("Temperature", 20.0f64)]);
    bench.expect(&[]);
    bench.pass(Duration::from_secs(10));
    bench.expect(&[&format!("NDATA E 1 {BEAT}")]);
}

#[test]
fn a_node_that_is_not_born_has_no_heartbeat() {
    let mut bench = Bench::new(quiet(), vec![Metric::new("Temperature", 20.0f64)]);
    bench.outputs();
    bench.pass(Duration::from_secs(300));
    bench.expect(&[]);
    bench.go_online();
    bench.lines();
    bench.update(NodeUpdate::Stop);
    bench.lines();
    bench.pass(Duration::from_secs(300));
    bench.expect(&[]);
}

/// A quiet node, and a host that has received its birth.
fn born_before_a_host() -> (Bench, HostApplication) {
    let mut bench = Bench::new(quiet(), vec![Metric::new("Temperature", 20.0f64)]);
    let mut host = HostApplication::new(HostConfig::new(None), bench.now);
    host.on_transport(TransportEvent::Connected, bench.now);
    host.on_transport(TransportEvent::Subscribed, bench.now);
    bench.go_online();
    let born = bench.outputs();
    deliver(&mut host, born, bench.now);
    (bench, host)
}

fn deliver(host: &mut HostApplication, outputs: Vec<NodeOutput>, now: Now) {
    for output in outputs {
        if let NodeOutput::Transport(TransportAction::Publish(Publish { topic, payload, retain, .. })) = output {
            host.on_transport(TransportEvent::Message { topic, payload, qos: QoS::AtMostOnce, retain }, now);
        }
    }
}

fn reasons_of_stale(host: &mut HostApplication) -> Vec<String> {
    let events = std::iter::from_fn(|| host.poll_output());
    let reasons = events.filter_map(|output| match output {
        HostOutput::Event(HostEvent::NodeStale { reason, .. }) => Some(reason),
        _ => None,
    });
    reasons.collect()
}

#[test]
fn a_host_that_missed_the_last_message_notices_the_gap_by_the_heartbeat() {
    let (mut bench, mut host) = born_before_a_host();
    assert_eq!(host.liveness(&config().descriptor), Some(Liveness::Alive));
    let received = |host: &mut HostApplication| -> Vec<bool> {
        let events = std::iter::from_fn(|| host.poll_output());
        let data = events.filter_map(|output| match output {
            HostOutput::Event(event @ HostEvent::NodeData { .. }) => Some(event.is_heartbeat()),
            _ => None,
        });
        data.collect()
    };
    bench.set(None, vec![Metric::new("Temperature", 20.5f64)]);
    bench.pass(Duration::from_secs(30));
    let outputs = bench.outputs();
    deliver(&mut host, outputs, bench.now);
    assert_eq!(received(&mut host), [false, true]);
    bench.set(None, vec![Metric::new("Temperature", 21.0f64)]);
    drop(bench.outputs());
    bench.pass(Duration::from_secs(30));
    let outputs = bench.outputs();
    deliver(&mut host, outputs, bench.now);
    while let Some(due) = host.next_deadline().filter(|due| *due <= bench.now.mono + Duration::from_secs(5)) {
        bench.advance_to(due);
        host.handle_timeout(bench.now);
        if host.liveness(&config().descriptor) == Some(Liveness::Stale) {
            break;
        }
    }
    assert_eq!(reasons_of_stale(&mut host).len(), 1);
}

#[test]
fn a_birth_that_was_lost_with_what_makes_seq_fit_again_shows_by_the_heartbeat() {
    let (mut bench, mut host) = born_before_a_host();
    bench.pass(Duration::from_secs(30));
    let beat = bench.outputs();
    deliver(&mut host, beat, bench.now);
    assert_eq!(reasons_of_stale(&mut host), [""; 0]);

    // Lost: the next birth, with `seq` 0, and data with 1. The heartbeat has 2, which comes after that of the first birth.
    bench.set(None, vec![Metric::new("Temperature", 21.0f64)]);
    bench.update(NodeUpdate::Rebirth);
    bench.set(None, vec![Metric::new("Temperature", 22.0f64)]);
    let lost = bench.lines();
    assert!(lost.iter().any(|line| line.starts_with("NBIRTH E 0")), "{lost:?}");
    assert!(lost.contains(&"NDATA E 1 Temperature=Double(22.0)".to_owned()), "{lost:?}");
    bench.pass(Duration::from_secs(30));
    let beat = bench.outputs();
    deliver(&mut host, beat, bench.now);
    assert_eq!(reasons_of_stale(&mut host), ["a birth was missed"]);
    assert_eq!(host.liveness(&config().descriptor), Some(Liveness::Stale));

    bench.update(NodeUpdate::Rebirth);
    let born = bench.outputs();
    deliver(&mut host, born, bench.now);
    bench.pass(Duration::from_secs(60));
    let beats = bench.outputs();
    deliver(&mut host, beats, bench.now);
    assert_eq!(reasons_of_stale(&mut host), [""; 0]);
    assert_eq!(host.liveness(&config().descriptor), Some(Liveness::Alive));
}

#[test]
fn a_heartbeat_leaves_nothing_in_a_replica() {
    let (mut bench, mut host) = born_before_a_host();
    bench.pass(Duration::from_secs(30));
    let outputs = bench.outputs();
    deliver(&mut host, outputs, bench.now);
    let node = host.node(&config().descriptor).expect("born");
    let rebirth = node.metric("Node Control/Rebirth").expect("in each NBIRTH").metric;
    assert!(rebirth.properties.is_empty(), "{:?}", rebirth.properties);
    let data: Vec<Metric> = std::iter::from_fn(|| host.poll_output())
        .filter_map(|output| match output {
            HostOutput::Event(HostEvent::NodeData { metrics, .. }) => Some(metrics),
            _ => None,
        })
        .flatten()
        .collect();
    assert_eq!(data.iter().map(|metric| &*metric.name).collect::<Vec<_>>(), ["Node Control/Rebirth"]);
}

/// A node of another make repeats the metric, or a node of an earlier version: nothing says which birth it follows.
#[test]
fn who_does_not_say_its_birth_is_believed() {
    let (bench, mut host) = born_before_a_host();
    let metrics = vec![Metric::new("Node Control/Rebirth", false).at(WALL - 5)];
    let payload = Payload { timestamp: Some(WALL + 7), seq: Some(1), metrics, ..Payload::default() };
    host.on_transport(
        TransportEvent::Message {
            topic: "spBv1.0/G/NDATA/E".to_owned(),
            payload: encode(&payload, &EncodeOptions::new(Form::Data)),
            qos: QoS::AtMostOnce,
            retain: false,
        },
        bench.now,
    );
    assert_eq!(host.liveness(&config().descriptor), Some(Liveness::Alive));
    assert_eq!(reasons_of_stale(&mut host), [""; 0]);
}
