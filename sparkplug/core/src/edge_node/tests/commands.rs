//! NCMD and DCMD: rebirth, types, and what is refused.

use super::*;

fn rebirth() -> Metric {
    Metric::new("Node Control/Rebirth", true)
}

/// tck-id-operational-behavior-data-commands-rebirth-action-1, tck-id-operational-behavior-data-commands-rebirth-action-2,
/// tck-id-operational-behavior-data-commands-rebirth-action-3, tck-id-payloads-nbirth-bdseq-repeat
#[test]
fn rebirth_sends_all_births_again_with_the_same_bd_seq() {
    let mut bench = Bench::born(config());
    bench.birth("D", vec![Metric::new("x", 1u8)]);
    bench.outputs();
    bench.pass(Duration::from_secs(1));
    bench.command("spBv1.0/G/NCMD/E", vec![rebirth()]);
    bench.expect(&[
        "NBIRTH E 0 bdSeq=Int64(0) Node Control/Rebirth=Boolean(false) Temperature=Double(20.0)",
        "DBIRTH E/D 1 x=UInt8(1)",
        "born 0 true",
    ]);
}

#[test]
fn rebirth_requests_within_the_interval_are_answered_once_at_its_end() {
    let mut bench = Bench::born(config());
    bench.pass(Duration::from_millis(400));
    for _ in 0..5 {
        bench.command("spBv1.0/G/NCMD/E", vec![rebirth()]);
        bench.update(NodeUpdate::Rebirth);
    }
    bench.expect(&[]);
    bench.pass(Duration::from_millis(600));
    assert_eq!(bench.lines().len(), 2);
    bench.pass(Duration::from_secs(10));
    bench.expect(&[]);
}

#[test]
fn a_rebirth_request_during_births_is_answered_after_them() {
    let mut bench =
        Bench::new(EdgeNodeConfig { birth_burst: 1, rebirth_interval_min: Duration::ZERO, ..config() }, vec![]);
    for id in ["A", "B"] {
        bench.birth(id, vec![]);
    }
    bench.go_online();
    bench.outputs();
    bench.command("spBv1.0/G/NCMD/E", vec![rebirth()]);
    bench.expect(&[]);
    bench.pass(Duration::from_secs(1));
    bench.expect(&[
        "DBIRTH E/B 2",
        "born 0 false",
        "NBIRTH E 0 bdSeq=Int64(0) Node Control/Rebirth=Boolean(false)",
        "DBIRTH E/A 1",
        "DBIRTH E/B 2",
        "born 0 true",
    ]);
}

#[test]
fn rebirth_among_other_metrics_is_answered_and_left_out_of_the_command() {
    let mut bench = Bench::born(EdgeNodeConfig { rebirth_interval_min: Duration::ZERO, ..config() });
    bench.command("spBv1.0/G/NCMD/E", vec![Metric::new("Temperature", 1.0f64), rebirth(), Metric::new("other", 5u32)]);
    bench.expect(&[
        "command - Temperature=Double(1.0) other=UInt32(5) at Some(7)",
        "NBIRTH E 0 bdSeq=Int64(0) Node Control/Rebirth=Boolean(false) Temperature=Double(20.0)",
        "born 0 true",
    ]);
}

#[test]
fn rebirth_false_does_nothing() {
    let mut bench = Bench::born(EdgeNodeConfig { rebirth_interval_min: Duration::ZERO, ..config() });
    bench.command("spBv1.0/G/NCMD/E", vec![Metric::new("Node Control/Rebirth", false)]);
    bench.expect(&[]);
}

/// tck-id-payloads-name-cmd-requirement
#[test]
fn rebirth_without_type_and_timestamps_is_understood() {
    let mut bench = Bench::born(EdgeNodeConfig { rebirth_interval_min: Duration::ZERO, ..config() });
    let payload = Payload { metrics: vec![rebirth()], ..Payload::default() };
    bench.receive("spBv1.0/G/NCMD/E", encode(&payload, &EncodeOptions::new(Form::Data)));
    assert_eq!(bench.lines().len(), 2);
}

/// tck-id-operational-behavior-data-commands-ncmd-metric-name, tck-id-operational-behavior-data-commands-dcmd-metric-name,
/// tck-id-operational-behavior-data-commands-ncmd-metric-value, tck-id-operational-behavior-data-commands-dcmd-metric-value
#[test]
fn commands_are_typed_by_birth_by_message_or_by_value() {
    let mut bench = Bench::born(EdgeNodeConfig { aliases: true, ..config() });
    bench.birth("D", vec![Metric::new("x", 1u16)]);
    bench.outputs();
    let untyped = |metrics| encode(&Payload { metrics, ..Payload::default() }, &EncodeOptions::new(Form::Data));
    bench.receive("spBv1.0/G/DCMD/E/D", untyped(vec![Metric::new("x", 5u16), Metric::new("free", 6u16)]));
    bench.expect(&["command D x=UInt16(5) free=Int32(6) at None"]);
    let by_alias = EncodeOptions { aliases: Some(&|_| Some(2)), ..EncodeOptions::new(Form::Data) };
    let payload = Payload { metrics: vec![Metric::new("x", 7u16)], ..Payload::default() };
    bench.receive("spBv1.0/G/DCMD/E/D", encode(&payload, &by_alias));
    bench.expect(&["command D x=UInt16(7) at None"]);
    bench.receive(
        "spBv1.0/G/DCMD/E/D",
        untyped(vec![Metric::null("x", DataType::UInt16), Metric::null("y", DataType::Int8)]),
    );
    bench.expect(&["command D x=null:Some(UInt16) y=null:Some(String) at None"]);
}

#[test]
fn a_device_need_not_exist_to_be_addressed() {
    let mut bench = Bench::born(config());
    bench.command("spBv1.0/G/DCMD/E/new", vec![Metric::new("x", 1u8)]);
    bench.expect(&["command new x=UInt8(1) at Some(7)"]);
}

#[test]
fn a_command_is_taken_whole_or_not_at_all() {
    let mut bench = Bench::born(config());
    bench.command("spBv1.0/G/NCMD/E", vec![Metric::new("a", 1u8), Metric::new("Temperature", "warm")]);
    bench.expect(&[
        "rejected spBv1.0/G/NCMD/E: metric \"Temperature\": a value of datatype Double cannot be read from string_value",
    ]);
    bench.receive("spBv1.0/G/NCMD/E", vec![0xff, 0xff]);
    bench.expect(&[
        "rejected spBv1.0/G/NCMD/E: payload is not a Sparkplug B protobuf message: it ends in the middle of a field",
    ]);
}

#[test]
fn what_is_retained_or_not_addressed_to_it_is_rejected() {
    let mut bench = Bench::born(config());
    let payload =
        encode(&Payload { metrics: vec![rebirth()], ..Payload::default() }, &EncodeOptions::new(Form::Command));
    bench.on(TransportEvent::Message {
        topic: "spBv1.0/G/NCMD/E".to_owned(),
        payload: payload.clone(),
        qos: QoS::AtMostOnce,
        retain: true,
    });
    bench.receive("spBv1.0/G/NCMD/F", payload.clone());
    bench.receive("nonsense", payload);
    bench.expect(&[
        "rejected spBv1.0/G/NCMD/E: a retained command is as old as it may be; commands are not retained",
        "rejected spBv1.0/G/NCMD/F: it is not addressed to this edge node",
        "rejected nonsense: topic \"nonsense\" is not in the namespace spBv1.0",
    ]);
}

#[test]
fn what_is_addressed_to_another_edge_node_is_refused_whatever_it_is() {
    let mut bench = Bench::born(config());
    bench.birth("D", vec![Metric::new("x", 1u8)]);
    bench.outputs();
    let payload = encode(
        &Payload { metrics: vec![rebirth(), Metric::new("bdSeq", 0_i64)], seq: Some(0), ..Payload::default() },
        &EncodeOptions::new(Form::Birth),
    );
    for topic in ["G/DCMD/F/D", "G/DCMD/E2/D", "X/DCMD/E/D", "G/NBIRTH/F", "G/NDEATH/F", "X/NDEATH/E"] {
        let topic = format!("spBv1.0/{topic}");
        bench.receive(&topic, payload.clone());
        bench.expect(&[&format!("rejected {topic}: it is not addressed to this edge node")]);
    }
}

#[test]
fn device_rebirth_sends_the_values_of_the_device_again() {
    let mut bench = Bench::born(config());
    bench.birth("D", vec![Metric::new("x", 1u8)]);
    bench.birth("O", vec![Metric::new("Device Control/Rebirth", false)]);
    bench.outputs();
    let rebirth = || vec![Metric::new("Device Control/Rebirth", true)];
    bench.command("spBv1.0/G/DCMD/E/D", rebirth());
    bench.expect(&["DDATA E/D 3 x=Int32(1)"]);
    // Again, but not faster than rebirths.
    bench.command("spBv1.0/G/DCMD/E/D", rebirth());
    bench.command("spBv1.0/G/DCMD/E/D", rebirth());
    bench.expect(&[]);
    bench.pass(Duration::from_secs(1));
    bench.expect(&["DDATA E/D 4 x=Int32(1)"]);
    // The application asks for the same.
    bench.pass(Duration::from_secs(1));
    bench.update(NodeUpdate::Resend { device: device("D") });
    bench.update(NodeUpdate::Resend { device: device("none") });
    bench.expect(&["DDATA E/D 5 x=Int32(1)"]);
    // An entity that has such a metric gets it as well.
    bench.command("spBv1.0/G/DCMD/E/O", rebirth());
    bench.expect(&[
        "command O Device Control/Rebirth=Boolean(true) at Some(7)",
        "DDATA E/O 6 Device Control/Rebirth=Boolean(false)",
    ]);
}

#[test]
fn commands_may_be_as_large_as_the_own_messages() {
    let text = "x".repeat(2 << 20);
    let send = |bench: &mut Bench| bench.command("spBv1.0/G/NCMD/E", vec![Metric::new("text", text.as_str())]);
    let mut bench = Bench::born(EdgeNodeConfig { message_bytes_max: 4 << 20, ..config() });
    send(&mut bench);
    assert!(bench.lines()[0].starts_with("command - text=String("));
    let mut bench = Bench::born(config());
    send(&mut bench);
    assert!(bench.lines()[0].starts_with("rejected spBv1.0/G/NCMD/E: payload has 2097"));
}

#[test]
fn each_metric_of_a_command_goes_to_its_own_function_and_what_that_reports_becomes_data() {
    let mut bench = Bench::born(config());
    bench.birth("D", vec![Metric::new("Setpoint", 1u16), Metric::new("Name", "a")]);
    bench.outputs();
    let mut calls = 0;
    let mut callbacks = CommandCallbacks::new()
        .of_node("Temperature", |wanted| Some(wanted.clone()))
        .of_node("Setpoint", |_| panic!("that of the device is meant"))
        .of_device(device("D"), "Setpoint", |_| panic!("another function takes its place"))
        .of_device(device("D"), "Setpoint", move |wanted| {
            calls += 1;
            wanted.as_u64().filter(|speed| *speed <= 9).map(|_| Metric::new("Setpoint", 100u16 + calls))
        });
    let mut commanded = |bench: &mut Bench, topic: &str, metrics: Vec<Metric>| {
        bench.command(topic, metrics);
        let mut rests = Vec::new();
        for output in bench.outputs() {
            let NodeOutput::Event(event) = output else { panic!("{output:?}") };
            let CallbackOutcome { update, rest } = callbacks.take(event);
            update.into_iter().for_each(|update| bench.update(update));
            rests.extend(rest.map(|rest| line(&NodeOutput::Event(rest))));
        }
        rests
    };
    let none: [&str; 0] = [];
    assert_eq!(commanded(&mut bench, "spBv1.0/G/NCMD/E", vec![Metric::new("Temperature", 30.0)]), none);
    bench.expect(&["NDATA E 2 Temperature=Double(30.0)"]);
    let both = vec![Metric::new("Setpoint", 5u16), Metric::new("Name", "b")];
    let rests = commanded(&mut bench, "spBv1.0/G/DCMD/E/D", both);
    assert_eq!(rests, ["command D Name=String(\"b\") at Some(7)"]);
    bench.expect(&["DDATA E/D 3 Setpoint=Int32(101)"]);
    // It is refused: nothing is reported.
    assert_eq!(commanded(&mut bench, "spBv1.0/G/DCMD/E/D", vec![Metric::new("Setpoint", 10u16)]), none);
    bench.expect(&[]);
    // The same metric twice in a command, in its order.
    let twice = vec![Metric::new("Setpoint", 1u16), Metric::new("Setpoint", 2u16)];
    let event = NodeEvent::Command { device: Some(device("D")), metrics: twice, timestamp: None };
    let Some(NodeUpdate::Set { metrics, .. }) = callbacks.take(event).update else { panic!("no update") };
    let values: Vec<_> = metrics.iter().map(Metric::as_u64).collect();
    assert_eq!(values, [Some(103), Some(104)]);
    // What is not a command is left as it is.
    assert_eq!(callbacks.take(NodeEvent::Stopped), CallbackOutcome { update: None, rest: Some(NodeEvent::Stopped) });
}
