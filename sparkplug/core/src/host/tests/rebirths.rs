//! Who is asked for rebirth, why, and how often.

use super::*;

#[test]
fn a_node_whose_births_are_too_large_is_asked_so_often_and_no_more() {
    let limited = HostConfig { message_bytes_max: 200, ..config() };
    let large = || vec![Metric::new("text", "x".repeat(300).as_str())];
    let mut bench = Bench::online(limited.clone());
    let answer = |bench: &mut Bench, send: &dyn Fn(&mut Bench)| {
        let mut asked = 0;
        send(bench);
        for _ in 0..600 {
            bench.pass(Duration::from_secs(1));
            for _ in bench.lines().iter().filter(|line| line.as_str() == ASK) {
                asked += 1;
                send(bench);
            }
        }
        asked
    };
    assert_eq!(answer(&mut bench, &|bench| bench.nbirth(0, 1000, large())), 2);
    // Its data say nothing without a birth; they are not a reason to ask again.
    bench.ndata(1, 1.0);
    bench.pass(Duration::from_secs(600));
    bench.expect(&[]);
    // One that can be taken is.
    bench.nbirth(0, 2000, vec![Metric::new("T", 1.0)]);
    bench.expect(&["E born 0 at 2000 bdSeq=Int64(0) T=Double(1.0)"]);
    assert_eq!(bench.machine.liveness(&e()), Some(Liveness::Alive));
    // It is reported twice: when it begins, and when asking ends.
    let mut bench = Bench::online(limited);
    for timestamp in 1..6 {
        bench.nbirth(0, timestamp, large());
    }
    let rejected = bench.lines().into_iter().filter(|line| line.starts_with("rejected ")).collect::<Vec<_>>();
    assert_eq!(rejected.len(), 2, "{rejected:?}");
    assert!(rejected[1].ends_with("so the node is not asked for rebirth any more"), "{rejected:?}");
    // A device that is too large is not a way round it, although the birth of its node can be taken each time.
    let mut bench = Bench::online(HostConfig { message_bytes_max: 200, ..config() });
    let both = |bench: &mut Bench| {
        bench.nbirth(0, bench.now.wall, vec![Metric::new("T", 1.0)]);
        bench.send("DBIRTH", Some("D"), Some(1), 1000, vec![Metric::new("text", "x".repeat(300).as_str())]);
    };
    assert_eq!(answer(&mut bench, &both), 2);
    // The driver may have skipped what it could not take.
    let mut bench = Bench::online(config());
    let skipped = |bench: &mut Bench| {
        let topic = "spBv1.0/G/NBIRTH/E".to_owned();
        bench.on(TransportEvent::Oversized { topic, bytes: 20_000_000, max: 4_194_304, retain: false });
    };
    assert_eq!(answer(&mut bench, &skipped), 2);
    // Of what a server kept, no node becomes known.
    for topic in ["spBv1.0/x", "spBv1.0/G/NBIRTH/F"] {
        bench.on(TransportEvent::Oversized {
            topic: topic.to_owned(),
            bytes: 20_000_000,
            max: 4_194_304,
            retain: true,
        });
        bench.expect(&[&format!(
            "rejected {topic}: its payload of 20000000 bytes is too large: packets of at most 4194304 bytes are taken"
        )]);
    }
}

#[test]
fn data_before_birth_asks_for_rebirth_until_it_comes_with_growing_intervals() {
    let mut bench = Bench::online(config());
    bench.ndata(5, 1.0);
    bench.expect(&["E stale: a message came before the birth", ASK, "E asked: a message came before the birth"]);
    assert_eq!(bench.machine.liveness(&e()), Some(Liveness::Stale));
    let mut at = Vec::new();
    for second in 1..=100 {
        bench.pass(Duration::from_secs(1));
        bench.ndata(5, 1.0);
        for line in bench.lines() {
            if line == ASK {
                at.push(second);
            }
        }
    }
    assert_eq!(at, [2, 6, 14, 30, 62]);
}

#[test]
fn a_node_that_never_answers_and_that_the_application_does_not_expect_is_left_alone() {
    let mut bench = Bench::online(config());
    bench.ndata(5, 1.0);
    bench.pass(Duration::from_secs(3600));
    assert_eq!(bench.lines().iter().filter(|l| *l == ASK).count(), 8);
    assert_eq!(bench.machine.next_deadline(), None);
    // It was forgotten meanwhile.
    bench.ndata(5, 1.0);
    bench.expect(&["E stale: a message came before the birth", ASK, "E asked: a message came before the birth"]);
}

#[test]
fn a_request_waits_a_random_time_that_has_a_bound() {
    let mut bench = Bench::online(HostConfig { rebirth_jitter: Duration::from_secs(5), ..config() });
    bench.ndata(5, 1.0);
    bench.expect(&["E stale: a message came before the birth"]);
    bench.pass(Duration::from_secs(5));
    bench.expect(&[ASK, "E asked: a message came before the birth"]);
}

#[test]
fn data_of_a_node_that_was_asked_in_vain_have_it_asked_after_its_interval() {
    let mut bench = Bench::with_node(config());
    let unknown = |bench: &mut Bench, seq| bench.send("NDATA", None, Some(seq), 2000, vec![Metric::new("new", 1u8)]);
    unknown(&mut bench, 1);
    let mut asked = bench.lines().iter().filter(|line| *line == ASK).count();
    while asked < 8 {
        bench.pass(Duration::from_secs(1));
        asked += bench.lines().iter().filter(|line| *line == ASK).count();
    }
    // Sooner than the longest interval, 60 s, after the last request.
    bench.pass(Duration::from_secs(40));
    unknown(&mut bench, 2);
    bench.pass(Duration::from_secs(15));
    bench.expect(&[]);
    bench.pass(Duration::from_secs(6));
    assert!(bench.lines().iter().any(|line| line == ASK));
}

#[test]
fn an_expected_node_is_asked_until_it_is_born() {
    let mut bench = Bench::online(config());
    bench.request(HostRequest::Expect { node: e() });
    bench.expect(&[ASK, "E asked: expected"]);
    assert_eq!(bench.machine.liveness(&e()), None);
    bench.pass(Duration::from_secs(3600));
    assert!(bench.lines().len() > 100);
    bench.nbirth(0, 1, vec![]);
    bench.expect(&["E born 0 at 1 bdSeq=Int64(0)"]);
    bench.pass(Duration::from_secs(3600));
    bench.expect(&[]);
    // Its own death is an answer, too.
    bench.ndeath(0);
    bench.outputs();
    bench.pass(Duration::from_secs(3600));
    bench.expect(&[]);
}

#[test]
fn unknown_names_devices_and_unreadable_messages_are_reasons() {
    for (send, reason) in [
        (("NDATA", None, vec![Metric::new("new", 1u8)]), "metric \"new\" is not in the birth"),
        (("DDATA", Some("Z"), vec![]), "device Z has data but is not born"),
    ] {
        let mut bench = Bench::with_node(config());
        let (kind, device, metrics) = send;
        bench.send(kind, device, Some(2), 2000, metrics);
        bench.expect(&[&format!("E stale: {reason}"), ASK, &format!("E asked: {reason}")]);
    }
    let mut bench = Bench::with_node(config());
    bench.receive("spBv1.0/G/DDATA/E/D", vec![0xff; 3]);
    bench.expect(&[
        "rejected spBv1.0/G/DDATA/E/D: payload is not a Sparkplug B protobuf message: it ends in the middle of a field",
        "E stale: a message could not be read",
        ASK,
        "E asked: a message could not be read",
    ]);
    let mut bench = Bench::with_node(config());
    bench.send("NDATA", None, None, 2000, vec![]);
    assert_eq!(bench.lines()[0], "rejected spBv1.0/G/NDATA/E: it has no seq");
}

#[test]
fn data_with_an_unknown_name_changes_nothing_at_all() {
    let mut bench = Bench::with_node(config());
    bench.send("NDATA", None, Some(2), 2000, vec![Metric::new("T", 99.0f64), Metric::new("new", 1u8)]);
    bench.outputs();
    let value = bench.machine.node(&e()).and_then(|n| n.metric("T")).and_then(|m| m.metric.value.clone());
    assert_eq!(value, Some(Value::Double(20.0)));
}

#[test]
fn dropped_messages_make_stale() {
    let mut bench = Bench::with_node(config());
    bench.on(TransportEvent::Lost { topic: "spBv1.0/G/DDATA/E/D".to_owned() });
    let reason = "messages were dropped because the application did not keep up";
    bench.expect(&[&format!("E stale: {reason}"), ASK, &format!("E asked: {reason}")]);
}

#[test]
fn a_node_that_fails_again_soon_is_asked_later() {
    let mut bench = Bench::with_node(config());
    let lose = |bench: &mut Bench| bench.on(TransportEvent::Lost { topic: "spBv1.0/G/NDATA/E".to_owned() });
    lose(&mut bench);
    bench.nbirth(0, 3000, vec![]);
    bench.outputs();
    lose(&mut bench);
    assert_eq!(bench.lines().len(), 1);
    bench.pass(Duration::from_millis(1999));
    bench.expect(&[]);
    bench.pass(Duration::from_millis(1));
    assert_eq!(bench.lines().len(), 2);
    bench.nbirth(0, 4000, vec![]);
    bench.pass(Duration::from_secs(120));
    bench.outputs();
    lose(&mut bench);
    assert_eq!(bench.lines().len(), 3);
}

#[test]
fn the_rate_over_all_nodes_is_bounded() {
    let mut bench = Bench::online(HostConfig { rebirths_per_second_max: 10, ..config() });
    for n in 0..30 {
        bench.receive(&format!("spBv1.0/G/NDATA/n{n}"), message("NDATA", Some(3), 1, vec![], None));
    }
    let asked = |lines: Vec<String>| lines.iter().filter(|l| l.contains("Rebirth=")).count();
    assert_eq!(asked(bench.lines()), 1);
    bench.pass(Duration::from_millis(999));
    assert_eq!(asked(bench.lines()), 9);
    bench.pass(Duration::from_millis(1));
    assert_eq!(asked(bench.lines()), 1);
}

#[test]
fn a_program_that_wakes_late_asks_at_the_same_rate_and_one_that_slept_catches_nothing_up() {
    let mut bench = Bench::online(HostConfig { rebirths_per_second_max: 1_000, ..config() });
    let asked = |bench: &mut Bench| bench.lines().iter().filter(|l| l.contains("Rebirth=")).count();
    for n in 0..200 {
        bench.receive(&format!("spBv1.0/G/NDATA/n{n}"), message("NDATA", Some(3), 1, vec![], None));
    }
    let mut total = asked(&mut bench);
    for _ in 0..25 {
        bench.wake_after(Duration::from_millis(2));
        total += asked(&mut bench);
    }
    assert_eq!(total, 51, "one at once, then one each millisecond");
    bench.wake_after(Duration::from_millis(100));
    assert_eq!(asked(&mut bench), 1);
}

#[test]
fn a_listener_that_does_not_ask_stays_silent_but_obeys() {
    let mut bench = Bench::online(HostConfig { rebirth_requests: false, ..config() });
    bench.ndata(5, 1.0);
    bench.expect(&["E stale: a message came before the birth"]);
    bench.pass(Duration::from_secs(300));
    bench.expect(&[]);
    bench.request(HostRequest::Rebirth { node: e() });
    bench.expect(&[ASK, "E asked: the application asked for it"]);
    bench.pass(Duration::from_secs(300));
    bench.expect(&[]);
}

#[test]
fn a_host_that_asks_no_node_takes_older_births_of_the_living_and_none_of_the_dead() {
    let mut bench = Bench::online(HostConfig { rebirth_requests: false, ..config() });
    bench.nbirth(1, 2000, vec![]);
    bench.outputs();
    bench.nbirth(2, 1000, vec![]);
    bench.expect(&["E born 2 at 1000 bdSeq=Int64(2)"]);
    bench.ndeath(2);
    bench.outputs();
    bench.nbirth(1, 500, vec![]);
    bench.expect(&[]);
    assert_eq!(bench.machine.liveness(&e()), Some(Liveness::Dead));
}

#[test]
fn births_that_were_too_large_are_forgotten_only_after_a_time_without_one() {
    let mut bench = Bench::online(HostConfig { message_bytes_max: 200, ..config() });
    let large = || vec![Metric::new("text", "x".repeat(300).as_str())];
    let is_last = |bench: &mut Bench| {
        let ends = |line: &String| line.ends_with("so the node is not asked for rebirth any more");
        bench.lines().iter().any(ends)
    };
    for timestamp in [1, 2] {
        bench.nbirth(0, timestamp, large());
    }
    assert!(!is_last(&mut bench));
    let wait = bench.machine.config.rebirth_interval.1 * 2;
    bench.pass(wait - Duration::from_secs(1));
    bench.nbirth(0, 10, vec![]);
    bench.nbirth(0, 11, large());
    assert!(is_last(&mut bench), "the first two count");
    bench.pass(wait);
    bench.nbirth(0, 20, vec![]);
    for timestamp in [21, 22, 23] {
        assert!(!is_last(&mut bench), "the first three count no more");
        bench.nbirth(0, timestamp, large());
    }
    assert!(is_last(&mut bench));
}

/// tck-id-operational-behavior-data-commands-ncmd-rebirth-verb, tck-id-operational-behavior-data-commands-ncmd-rebirth-name,
/// tck-id-operational-behavior-data-commands-ncmd-rebirth-value, tck-id-topics-ncmd-timestamp, tck-id-topics-ncmd-mqtt,
/// tck-id-payloads-ncmd-timestamp, tck-id-payloads-ncmd-seq, tck-id-payloads-ncmd-qos, tck-id-payloads-ncmd-retain
#[test]
fn a_rebirth_request_is_a_boolean_by_name() {
    let mut bench = Bench::online(config());
    bench.request(HostRequest::Rebirth { node: e() });
    let outputs = bench.outputs();
    let [HostOutput::Transport(TransportAction::Publish(p)), HostOutput::Event(_)] = &outputs[..] else {
        panic!("{outputs:?}")
    };
    let raw = payload::decode(&p.payload, &Limits::default()).expect("readable");
    assert_eq!((p.topic.as_str(), p.qos, p.retain), ("spBv1.0/G/NCMD/E", QoS::AtMostOnce, false));
    assert_eq!((raw.timestamp, raw.seq, raw.metrics.len()), (Some(WALL), None, 1));
    let metric = &raw.metrics[0];
    assert_eq!((metric.name.as_deref(), metric.alias), (Some("Node Control/Rebirth"), None));
    assert_eq!((metric.datatype, &metric.value), (Some(11), &Some(payload::WireValue::Boolean(true))));
}
