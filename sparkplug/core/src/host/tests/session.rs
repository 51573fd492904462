//! STATE, subscriptions, commands, stop, and the loss of the own session.

use super::*;

const WILL: &str = r#"spBv1.0/STATE/H qos1 retained {"online":false,"timestamp":1700000000000}"#;
const BIRTH: &str = r#"spBv1.0/STATE/H qos1 retained {"online":true,"timestamp":1700000000000}"#;

/// tck-id-intro-sparkplug-host-state, tck-id-components-ph-state, tck-id-principles-birth-certificates-order,
/// tck-id-host-topic-phid-death-qos, tck-id-host-topic-phid-death-retain, tck-id-host-topic-phid-death-topic,
/// tck-id-host-topic-phid-death-required, tck-id-host-topic-phid-death-payload, tck-id-host-topic-phid-death-payload-timestamp-connect,
/// tck-id-host-topic-phid-birth-message, tck-id-host-topic-phid-birth-qos, tck-id-host-topic-phid-birth-retain,
/// tck-id-host-topic-phid-birth-topic, tck-id-host-topic-phid-birth-sub-required, tck-id-host-topic-phid-birth-required,
/// tck-id-host-topic-phid-birth-payload, tck-id-host-topic-phid-birth-payload-timestamp, tck-id-conformance-primary-host
///
/// tck-id-message-flow-phid-sparkplug-subscription, tck-id-message-flow-phid-sparkplug-state-publish,
/// tck-id-message-flow-phid-sparkplug-state-publish-payload, tck-id-message-flow-phid-sparkplug-state-publish-payload-timestamp
///
/// tck-id-operational-behavior-primary-application-state-with-multiple-servers-state,
/// tck-id-operational-behavior-host-application-connect-will, tck-id-operational-behavior-host-application-connect-will-topic,
/// tck-id-operational-behavior-host-application-connect-will-payload, tck-id-operational-behavior-host-application-connect-will-qos,
/// tck-id-operational-behavior-host-application-connect-will-retained, tck-id-operational-behavior-host-application-connect-birth,
/// tck-id-operational-behavior-host-application-connect-birth-topic, tck-id-operational-behavior-host-application-connect-birth-payload,
/// tck-id-operational-behavior-host-application-connect-birth-qos, tck-id-operational-behavior-host-application-connect-birth-retained
///
/// tck-id-payloads-state-will-message, tck-id-payloads-state-will-message-qos, tck-id-payloads-state-will-message-retain,
/// tck-id-payloads-state-will-message-payload, tck-id-payloads-state-subscribe, tck-id-payloads-state-birth,
/// tck-id-payloads-state-birth-payload
#[test]
fn a_session_begins_with_will_subscriptions_and_birth_of_one_timestamp() {
    let mut bench = Bench::new(config());
    bench.expect(&[&format!("connect 0 will [{WILL}]")]);
    bench.pass(Duration::from_secs(5));
    bench.on(TransportEvent::Connected);
    bench.expect(&["subscribe spBv1.0/STATE/H 1, spBv1.0/# 1"]);
    bench.pass(Duration::from_secs(5));
    bench.expect(&[]);
    bench.on(TransportEvent::Subscribed);
    bench.expect(&[BIRTH, "online"]);
    bench.pass(Duration::from_secs(100));
    bench.expect(&[]);
}

#[test]
fn a_listener_has_neither_will_nor_state() {
    let mut bench = Bench::new(HostConfig::new(None));
    bench.go_online();
    bench.expect(&["connect 0 will [-]", "subscribe spBv1.0/# 1", "online"]);
    bench.request(HostRequest::Stop);
    bench.expect(&["disconnect"]);
}

/// tck-id-message-flow-hid-sparkplug-state-message-delivered
#[test]
fn an_own_offline_is_answered_with_the_birth_of_this_session() {
    let mut bench = Bench::new(config());
    bench.on(TransportEvent::Connected);
    bench.outputs();
    // Before the own birth it is the end of the last session.
    bench.receive("spBv1.0/STATE/H", r#"{"online":false,"timestamp":5}"#);
    bench.expect(&["state H false 5"]);
    bench.on(TransportEvent::Subscribed);
    bench.expect(&[BIRTH, "online"]);
    bench.receive("spBv1.0/STATE/H", r#"{"online":false,"timestamp":6}"#);
    bench.expect(&["state H false 6", BIRTH]);
    bench.receive("spBv1.0/STATE/H", r#"{"online":true,"timestamp":6}"#);
    bench.receive("spBv1.0/STATE/other", r#"{"online":false,"timestamp":6}"#);
    bench.expect(&["state H true 6", "state other false 6"]);
}

/// A server may deliver the retained end of the last session after SUBACK; it cannot be distinguished from a present one that is passed on with the retain flag.
#[test]
fn a_retained_own_offline_after_the_birth_is_answered_with_the_same_birth() {
    let mut bench = Bench::new(config());
    bench.go_online();
    bench.outputs();
    bench.on(TransportEvent::Message {
        topic: "spBv1.0/STATE/H".to_owned(),
        payload: HostState { online: false, timestamp: 5 }.encode(),
        qos: QoS::AtMostOnce,
        retain: true,
    });
    bench.expect(&["state H false 5", BIRTH]);
}

/// tck-id-message-flow-hid-sparkplug-state-message-delivered: of each of two filters that fit, a server may deliver one; a later one is answered again.
#[test]
fn an_own_offline_that_is_delivered_twice_is_answered_once() {
    let offline = |timestamp: u64| format!(r#"{{"online":false,"timestamp":{timestamp}}}"#);
    let mut bench = Bench::online(config());
    for _ in 0..3 {
        bench.receive("spBv1.0/STATE/H", offline(5));
    }
    bench.expect(&["state H false 5", BIRTH, "state H false 5", "state H false 5"]);
    // That of another session is not the answer.
    bench.receive("spBv1.0/STATE/H", r#"{"online":true,"timestamp":6}"#);
    bench.receive("spBv1.0/STATE/H", offline(7));
    bench.expect(&["state H true 6", "state H false 7"]);
    bench.receive("spBv1.0/STATE/H", r#"{"online":true,"timestamp":1700000000000}"#);
    bench.receive("spBv1.0/STATE/H", offline(7));
    bench.expect(&["state H true 1700000000000", "state H false 7", BIRTH]);
    // A session that is lost takes its answer with it.
    bench.lose();
    bench.outputs();
    bench.pass(Duration::from_secs(60));
    bench.on(TransportEvent::Connected);
    bench.on(TransportEvent::Subscribed);
    bench.outputs();
    bench.receive("spBv1.0/STATE/H", offline(8));
    let lines = bench.lines();
    assert!(lines.len() == 2 && lines[1].contains(r#""online":true"#), "{lines:?}");
}

/// tck-id-host-topic-phid-death-payload-timestamp-disconnect-clean,
/// tck-id-host-topic-phid-death-payload-timestamp-disconnect-with-no-disconnect-packet,
/// tck-id-operational-behavior-host-application-termination, tck-id-operational-behavior-host-application-death-topic,
/// tck-id-operational-behavior-host-application-death-payload, tck-id-operational-behavior-host-application-death-qos,
/// tck-id-operational-behavior-host-application-death-retained,
/// tck-id-operational-behavior-host-application-disconnect-intentional
#[test]
fn stop_publishes_offline_with_the_present_time_and_does_not_answer_it() {
    let mut bench = Bench::online(config());
    bench.pass(Duration::from_secs(3));
    bench.request(HostRequest::Stop);
    bench.expect(&[r#"spBv1.0/STATE/H qos1 retained {"online":false,"timestamp":1700000003000}"#, "disconnect"]);
    bench.receive("spBv1.0/STATE/H", r#"{"online":false,"timestamp":1700000003000}"#);
    bench.request(HostRequest::Expect { node: e() });
    bench.expect(&[]);
    bench.lose();
    bench.expect(&["stopped"]);
    assert_eq!(bench.machine.next_deadline(), None);
}

/// tck-id-operational-behavior-host-application-termination
#[test]
fn an_outdated_session_ends_with_state_offline_and_is_followed_by_one_on_the_same_server() {
    let mut bench = Bench::online(HostConfig { servers: 2, ..config() });
    bench.on(TransportEvent::Outdated);
    bench.expect(&[WILL, "disconnect"]);
    bench.on(TransportEvent::Outdated);
    bench.expect(&[]);
    bench.lose();
    let due = bench.machine.next_deadline().expect("connects again");
    bench.now = Now::new(due, bench.now.wall);
    bench.machine.handle_timeout(bench.now);
    let lines = bench.lines();
    assert!(lines.iter().any(|line| line.starts_with("connect 0 ")), "{lines:?}");
    bench.on(TransportEvent::Outdated);
    bench.expect(&[]);
}

/// tck-id-operational-behavior-host-application-multi-server-timestamp
#[test]
fn timestamps_grow_on_each_server_whatever_the_clock_does() {
    let mut bench = Bench::new(HostConfig { servers: 2, ..config() });
    bench.outputs();
    let mut fail = |wall: u64| {
        bench.lose();
        bench.outputs();
        let due = bench.machine.next_deadline().expect("tries again");
        bench.now = Now::new(due, wall);
        bench.machine.handle_timeout(bench.now);
        bench.lines()
    };
    // Not opened: the next server takes its turn.
    assert_eq!(fail(500), [r#"connect 1 will [spBv1.0/STATE/H qos1 retained {"online":false,"timestamp":500}]"#]);
    assert_eq!(
        fail(500),
        [r#"connect 0 will [spBv1.0/STATE/H qos1 retained {"online":false,"timestamp":1700000000001}]"#]
    );
    assert_eq!(fail(400), [r#"connect 1 will [spBv1.0/STATE/H qos1 retained {"online":false,"timestamp":501}]"#]);
}

#[test]
fn the_own_session_lost_makes_every_replica_stale_and_asks_for_rebirth_on_return() {
    let mut bench = Bench::with_node(config());
    let f = EdgeNodeDescriptor::parse("G", "F").expect("valid");
    bench.request(HostRequest::Expect { node: f.clone() });
    bench.outputs();
    bench.lose();
    bench.expect(&["offline cut"]);
    assert_eq!(bench.machine.liveness(&e()), Some(Liveness::Stale));
    assert_eq!(bench.machine.node(&e()).and_then(|n| n.metric("T")).and_then(|m| m.stale_at), Some(WALL));
    // It does not connect again at once.
    bench.pass(Duration::from_millis(100));
    bench.expect(&[]);
    bench.pass(Duration::from_millis(400));
    bench.go_online();
    bench.pass(Duration::from_millis(100));
    let lines = bench.lines();
    assert_eq!(lines[3..5], ["online", ASK]);
    assert_eq!(&lines[5..], ["E asked: the host came online"]);
    // F was asked a moment before the session was lost; it has to wait for its interval.
    bench.pass(Duration::from_millis(1500));
    bench.expect(&["spBv1.0/G/NCMD/F Node Control/Rebirth=Some(Boolean(true))", "F asked: the host came online"]);
    bench.nbirth(0, 3000, vec![]);
    bench.expect(&["E born 0 at 3000 bdSeq=Int64(0)"]);
    bench.request(HostRequest::Forget { node: f });
    bench.pass(Duration::from_secs(300));
    bench.expect(&[]);
}

#[test]
fn a_node_that_answers_is_asked_at_the_begin_of_each_session_however_many_there_are() {
    let mut bench = Bench::with_node(config());
    for bd_seq in 0..8u32 {
        bench.lose();
        bench.pass(Duration::from_millis(500));
        bench.go_online();
        // Not sooner than the shortest interval after it was asked in the session before.
        bench.pass(Duration::from_millis(2100));
        assert!(bench.lines().contains(&"E asked: the host came online".to_owned()), "session {bd_seq}");
        bench.nbirth(i64::from(bd_seq), 3000 + u64::from(bd_seq), vec![]);
        bench.outputs();
    }
}

#[test]
fn a_birth_that_comes_first_saves_the_request() {
    let mut bench = Bench::with_node(HostConfig { rebirth_jitter: Duration::from_secs(5), ..config() });
    bench.lose();
    bench.pass(Duration::from_millis(500));
    bench.go_online();
    bench.outputs();
    bench.nbirth(1, 3000, vec![]);
    bench.expect(&["E born 1 at 3000 bdSeq=Int64(1)"]);
    bench.pass(Duration::from_secs(300));
    bench.expect(&[]);
}

/// tck-id-topics-ncmd-topic, tck-id-topics-ncmd-payload, tck-id-topics-dcmd-topic, tck-id-topics-dcmd-mqtt, tck-id-topics-dcmd-timestamp,
/// tck-id-topics-dcmd-payload, tck-id-payloads-dcmd-seq, tck-id-payloads-dcmd-qos, tck-id-payloads-dcmd-retain,
/// tck-id-operational-behavior-data-commands-ncmd-verb, tck-id-operational-behavior-data-commands-dcmd-verb
#[test]
fn commands_carry_time_names_and_types_and_need_a_session() {
    let mut bench = Bench::online(config());
    let command = |device: Option<&str>| HostRequest::Command {
        node: e(),
        device: device.map(super::device),
        metrics: vec![Metric::new("a", 5u32), Metric::null("b", DataType::String)],
    };
    bench.request(command(None));
    bench.request(command(Some("D")));
    bench.expect(&["spBv1.0/G/NCMD/E a=Some(UInt32(5)) b=None", "spBv1.0/G/DCMD/E/D a=Some(UInt32(5)) b=None"]);
    bench.lose();
    bench.outputs();
    bench.request(command(None));
    bench.request(HostRequest::Rebirth { node: e() });
    bench.expect(&[]);
}

/// tck-id-payloads-ncmd-timestamp, tck-id-payloads-dcmd-timestamp
#[test]
fn commands_are_stamped_when_they_are_sent() {
    let mut bench = Bench::online(config());
    let mut stamps = Vec::new();
    for device in [None, Some(super::device("D"))] {
        bench.pass(Duration::from_millis(1234));
        bench.request(HostRequest::Command { node: e(), device, metrics: vec![Metric::new("a", 5u32).at(7)] });
        for output in bench.outputs() {
            let HostOutput::Transport(TransportAction::Publish(p)) = output else { panic!("{output:?}") };
            let payload = payload::decode(&p.payload, &Limits::default()).expect("readable");
            stamps.push((payload.timestamp, payload.metrics[0].timestamp));
        }
    }
    assert_eq!(stamps, [(Some(WALL + 1234), Some(7)), (Some(WALL + 2468), Some(7))]);
}

/// tck-id-operational-behavior-data-commands-ncmd-metric-name, tck-id-operational-behavior-data-commands-ncmd-metric-value,
/// tck-id-operational-behavior-data-commands-dcmd-metric-name, tck-id-operational-behavior-data-commands-dcmd-metric-value
#[test]
fn a_command_fits_the_birth_of_a_living_node() {
    let mut bench = Bench::online(config());
    let command = |device: Option<&str>, metric: Metric| HostRequest::Command {
        node: e(),
        device: device.map(super::device),
        metrics: vec![metric],
    };
    // What it will be born with is unknown yet.
    bench.request(command(None, Metric::new("anything", 1u8)));
    bench.expect(&["spBv1.0/G/NCMD/E anything=Some(UInt8(1))"]);
    bench.nbirth(0, WALL, vec![Metric::new("a", 1u32)]);
    bench.send("DBIRTH", Some("D"), Some(1), WALL, vec![Metric::new("d", 1.0)]);
    bench.outputs();
    bench.request(command(None, Metric::new("a", 5u32)));
    bench.request(command(Some("D"), Metric::null("d", DataType::Double)));
    bench.expect(&["spBv1.0/G/NCMD/E a=Some(UInt32(5))", "spBv1.0/G/DCMD/E/D d=None"]);
    bench.request(command(None, Metric::new("b", 5u32)));
    bench.request(command(None, Metric::new("a", 5u64)));
    bench.request(command(Some("D"), Metric::new("a", 5u32)));
    bench.request(command(Some("D"), Metric::new("d", 5.0f32)));
    bench.request(command(Some("F"), Metric::new("d", 5.0)));
    bench.expect(&[
        "rejected spBv1.0/G/NCMD/E: metric \"b\" is not in the birth",
        "rejected spBv1.0/G/NCMD/E: metric \"a\" is UInt32 in the birth, but UInt64 in the command",
        "rejected spBv1.0/G/DCMD/E/D: metric \"a\" is not in the birth",
        "rejected spBv1.0/G/DCMD/E/D: metric \"d\" is Double in the birth, but Float in the command",
        "rejected spBv1.0/G/DCMD/E/F: device F is not born",
    ]);
    bench.ndeath(0);
    bench.outputs();
    bench.request(command(None, Metric::new("b", 5u32)));
    bench.expect(&["spBv1.0/G/NCMD/E b=Some(UInt32(5))"]);
}

#[test]
fn a_contract_may_take_more_than_the_birth_has_but_no_other_types() {
    let mut bench = Bench::online(HostConfig { commands_beyond_births: true, ..config() });
    bench.nbirth(0, WALL, vec![Metric::new("a", 1u32)]);
    bench.outputs();
    let command = |device: Option<&str>, metric: Metric| HostRequest::Command {
        node: e(),
        device: device.map(super::device),
        metrics: vec![metric],
    };
    bench.request(command(None, Metric::new("b", 5u32)));
    bench.request(command(Some("D"), Metric::new("b", 5u32)));
    bench.request(command(None, Metric::new("a", "text")));
    bench.expect(&[
        "spBv1.0/G/NCMD/E b=Some(UInt32(5))",
        "spBv1.0/G/DCMD/E/D b=Some(UInt32(5))",
        "rejected spBv1.0/G/NCMD/E: metric \"a\" is UInt32 in the birth, but String in the command",
    ]);
}

#[test]
fn what_is_not_a_sparkplug_message_is_rejected() {
    let mut bench = Bench::online(config());
    bench.receive("spBv1.0/G/NBIRTH", "");
    bench.receive("spBv1.0/STATE/x", "ONLINE");
    bench.receive("spBv1.0/G/NCMD/E", "anything");
    bench.on(TransportEvent::Message {
        topic: "spBv1.0/G/NBIRTH/E".to_owned(),
        payload: Bytes::new(),
        qos: QoS::AtMostOnce,
        retain: true,
    });
    let lines = bench.lines();
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert!(lines.iter().all(|l| l.starts_with("rejected ")), "{lines:?}");
    assert_eq!(bench.machine.nodes().count(), 0);
}
