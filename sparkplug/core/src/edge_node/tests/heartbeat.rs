//! The sign of life of a quiet node.

use super::*;

const BEAT: &str = "Node Control/Rebirth=Boolean(false)";

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

#[test]
fn a_host_that_missed_the_last_message_notices_the_gap_by_the_heartbeat() {
    use crate::host::{HostApplication, HostConfig, HostEvent, HostOutput, Liveness};
    let mut bench = Bench::new(quiet(), vec![Metric::new("Temperature", 20.0f64)]);
    let mut host = HostApplication::new(HostConfig::new(None), bench.now);
    host.on_transport(TransportEvent::Connected, bench.now);
    host.on_transport(TransportEvent::Subscribed, bench.now);
    bench.go_online();
    let deliver = |host: &mut HostApplication, outputs: Vec<NodeOutput>, now: Now| {
        for output in outputs {
            if let NodeOutput::Transport(TransportAction::Publish(Publish { topic, payload, retain, .. })) = output {
                host.on_transport(TransportEvent::Message { topic, payload, qos: QoS::AtMostOnce, retain }, now);
            }
        }
    };
    let outputs = bench.outputs();
    deliver(&mut host, outputs, bench.now);
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
    let events = std::iter::from_fn(|| host.poll_output());
    let stale = events.filter(|output| matches!(output, HostOutput::Event(HostEvent::NodeStale { .. })));
    assert_eq!(stale.count(), 1);
}
