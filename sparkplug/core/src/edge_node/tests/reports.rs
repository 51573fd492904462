//! What an update sends: births, data by exception, deaths, history.

use super::*;

/// tck-id-principles-rbe-recommended, tck-id-topics-ndata-topic, tck-id-topics-ndata-mqtt, tck-id-topics-ndata-timestamp,
/// tck-id-topics-ndata-payload, tck-id-payloads-ndata-timestamp, tck-id-payloads-ndata-seq, tck-id-payloads-ndata-qos, tck-id-payloads-ndata-retain,
/// tck-id-operational-behavior-data-publish-nbirth-change, tck-id-payloads-metric-datatype-not-req
#[test]
fn only_changes_are_sent() {
    let mut bench = Bench::born(config());
    bench.set(None, vec![Metric::new("Temperature", 20.0f64).at(5)]);
    bench.expect(&[]);
    bench.set(None, vec![Metric::new("Temperature", 21.0f64)]);
    bench.expect(&["NDATA E 1 Temperature=Double(21.0)"]);
    bench.set(None, vec![Metric::null("Temperature", DataType::Double)]);
    bench.expect(&["NDATA E 2 Temperature=null:None"]);
    bench.set(None, vec![Metric::new("Temperature", f64::NAN)]);
    bench.set(None, vec![Metric::new("Temperature", f64::NAN)]);
    bench.expect(&["NDATA E 3 Temperature=Double(NaN)"]);
}

/// tck-id-topics-ddata-topic, tck-id-topics-ddata-mqtt, tck-id-topics-ddata-seq-num, tck-id-topics-ddata-timestamp, tck-id-topics-ddata-payload,
/// tck-id-payloads-ddata-timestamp, tck-id-payloads-ddata-seq, tck-id-payloads-ddata-seq-inc, tck-id-payloads-ddata-qos, tck-id-payloads-ddata-retain,
/// tck-id-operational-behavior-data-publish-dbirth-change, tck-id-operational-behavior-device-ddeath, tck-id-topics-ddeath-topic,
/// tck-id-topics-ddeath-mqtt, tck-id-topics-ddeath-seq-num, tck-id-payloads-ddeath-seq,
/// tck-id-payloads-ddeath-seq-inc, tck-id-payloads-ddeath-seq-number
#[test]
fn a_device_is_born_changes_and_dies() {
    let mut bench = Bench::born(config());
    bench.birth("D", vec![Metric::new("x", 1u8), Metric::new("y", 2u8)]);
    bench.set(Some("D"), vec![Metric::new("x", 1u8), Metric::new("y", 3u8)]);
    bench.death("D");
    bench.expect(&["DBIRTH E/D 1 x=UInt8(1) y=UInt8(2)", "DDATA E/D 2 y=Int32(3)", "DDEATH E/D 3"]);
    let unknown = Err(UpdateError::UnknownDevice { device: device("D") });
    assert_eq!(bench.machine.update(NodeUpdate::DeviceDeath { device: device("D") }, bench.now), unknown);
    assert_eq!(
        bench.machine.update(NodeUpdate::Set { device: Some(device("D")), metrics: vec![] }, bench.now),
        unknown
    );
    bench.expect(&[]);
}

#[test]
fn properties_travel_when_they_change_and_when_they_are_removed() {
    let properties = Properties::new().with("ETag", "a");
    let mut bench = Bench::born(config());
    bench.birth("D", vec![Metric::new("x", 1u8).with_properties(properties.clone()), Metric::new("y", 1u8)]);
    bench.set(Some("D"), vec![Metric::new("x", 2u8).with_properties(properties)]);
    bench.set(Some("D"), vec![Metric::new("x", 2u8).with_properties(Properties::new().with("ETag", "b"))]);
    bench.expect(&[
        "DBIRTH E/D 1 x=UInt8(1){ETag} y=UInt8(1)",
        "DDATA E/D 2 x=Int32(2)",
        "DDATA E/D 3 x=Int32(2){ETag}",
    ]);
    let bare = vec![Metric::new("x", 2u8)];
    bench.update(NodeUpdate::Replace { device: Some(device("D")), metrics: bare });
    let outputs = bench.outputs();
    let [NodeOutput::Transport(TransportAction::Publish(p))] = &outputs[..] else { panic!("{outputs:?}") };
    let raw = crate::payload::decode(&p.payload, &Limits::default()).expect("readable");
    assert_eq!(raw.metrics[0].properties, Some(Properties::new()));
}

#[test]
fn without_descriptions_units_and_what_may_be_written_stay_and_nothing_else_differs() {
    let described = |value: f64, what: &str| {
        Metric::new("x", value).with_properties(Properties::described(&[what], true).with("engUnit", "K"))
    };
    for (descriptions, properties) in [(true, "documentation,readOnly,engUnit"), (false, "readOnly,engUnit")] {
        let mut bench = Bench::born(EdgeNodeConfig { descriptions, ..config() });
        bench.birth("D", vec![described(1.0, "A temperature.")]);
        // The same description again changes nothing, whether births carry it or not.
        bench.birth("D", vec![described(1.0, "A temperature.")]);
        bench.set(Some("D"), vec![described(2.0, "A temperature.")]);
        bench.expect(&[&*format!("DBIRTH E/D 1 x=Double(1.0){{{properties}}}"), "DDATA E/D 2 x=Double(2.0)"]);
        let births = |bench: &Bench| bench.machine.device_birth_bytes(&[described(1.0, "A temperature.")]);
        let text = "documentation".len() + "A temperature.".len();
        let all = births(&Bench::born(config()));
        assert_eq!(all - births(&bench) >= text, !descriptions);
    }
}

#[test]
fn a_value_without_properties_and_metadata_leaves_those_of_the_birth_as_they_are() {
    let described = |value: f64| {
        let unit = Properties::new().with("engUnit", "°C").with("readOnly", true);
        let metadata = MetaData { description: Some("at the inlet".to_owned()), ..MetaData::default() };
        Metric { metadata: Some(Box::new(metadata)), ..Metric::new("x", value).with_properties(unit).at(5) }
    };
    let mut bench = Bench::born(EdgeNodeConfig { rebirth_interval_min: Duration::ZERO, ..config() });
    bench.birth("D", vec![described(1.0)]);
    bench.set(Some("D"), vec![Metric::new("x", 2.0)]);
    // Only a property that is named changes.
    bench.set(Some("D"), vec![Metric::new("x", 2.0).with_properties(Properties::new().with("engUnit", "K"))]);
    bench.set(Some("D"), vec![Metric::new("x", 3.0).at(5)]);
    bench.expect(&[
        "DBIRTH E/D 1 x=Double(1.0){engUnit,readOnly}",
        "DDATA E/D 2 x=Double(2.0)",
        "DDATA E/D 3 x=Double(2.0){engUnit,readOnly}",
        "DDATA E/D 4 x=Double(3.0)",
    ]);
    bench.update(NodeUpdate::Rebirth);
    let born = bench.outputs();
    let of_device = |output: &NodeOutput| match output {
        NodeOutput::Transport(TransportAction::Publish(p)) if p.topic.contains("/DBIRTH/") => Some(p.payload.clone()),
        _ => None,
    };
    let birth = born.iter().find_map(of_device).expect("the device is reborn");
    let raw = crate::payload::decode(&birth, &Limits::default()).expect("readable").metrics.remove(0);
    let mut expected = described(3.0);
    expected.properties.set("engUnit", crate::PropertyValue::Value("K".into()));
    assert_eq!(raw.resolve("x".into(), DataType::Double, None), Ok(expected));
}

/// tck-id-payloads-alias-birth-requirement
#[test]
fn in_the_dialect_of_tahu_every_data_message_can_be_read_without_its_birth() {
    let dialect = EdgeNodeConfig { dialect: Dialect::Tahu, aliases: true, ..config() };
    let mut bench = Bench::born(EdgeNodeConfig { heartbeat: Some(Duration::from_secs(30)), ..dialect });
    bench.birth("D", vec![Metric::new("small", -1_i8), Metric::new("count", 1_u32)]);
    bench.set(Some("D"), vec![Metric::new("small", -2_i8), Metric::new("count", 2_u32)]);
    bench.pass(Duration::from_secs(30));
    bench.expect(&[
        "DBIRTH E/D 1 small#2=Int32(-1) count#3=UInt32(1)",
        "DDATA E/D 2 small#2=Int32(-2) count#3=UInt32(2)",
        "NDATA E 3 Node Control/Rebirth=Boolean(false){birthTimestamp}",
    ]);
}

#[test]
fn a_device_declared_again_sends_only_differences() {
    let mut bench = Bench::born(config());
    bench.birth("D", vec![Metric::new("x", 1u8), Metric::new("y", 2u8)]);
    bench.outputs();
    bench.birth("D", vec![Metric::new("y", 2u8), Metric::new("x", 9u8)]);
    bench.expect(&["DDATA E/D 2 x=Int32(9)"]);
    // Another datatype, a missing name: a device of another shape.
    bench.birth("D", vec![Metric::new("x", 9u16), Metric::new("y", 2u8)]);
    bench.birth("D", vec![Metric::new("x", 9u16)]);
    bench.expect(&["DDEATH E/D 3", "DBIRTH E/D 4 x=UInt16(9) y=UInt8(2)", "DDEATH E/D 5", "DBIRTH E/D 6 x=UInt16(9)"]);
}

/// tck-id-topics-nbirth-metric-reqs, tck-id-topics-dbirth-metric-reqs
#[test]
fn a_name_that_no_birth_holds_is_born_before_it_has_data() {
    let mut bench = Bench::born(config());
    bench.birth("D", vec![Metric::new("x", 1u8)]);
    bench.outputs();
    bench.set(Some("D"), vec![Metric::new("z", 1u8)]);
    bench.expect(&["DDEATH E/D 2", "DBIRTH E/D 3 x=UInt8(1) z=UInt8(1)"]);
    // A node is reborn for it, but not more often than its interval allows.
    bench.set(None, vec![Metric::new("Pressure", 1u8), Metric::new("Temperature", 5.0f64)]);
    bench.set(None, vec![Metric::new("Pressure", 2u8)]);
    bench.expect(&["NDATA E 4 Temperature=Double(5.0)"]);
    bench.pass(Duration::from_millis(999));
    bench.expect(&[]);
    bench.pass(Duration::from_millis(1));
    bench.expect(&[
        "NBIRTH E 0 bdSeq=Int64(0) Node Control/Rebirth=Boolean(false) Temperature=Double(5.0) Pressure=UInt8(2)",
        "DBIRTH E/D 1 x=UInt8(1) z=UInt8(1)",
        "born 0 true",
    ]);
    bench.pass(Duration::from_secs(5));
    bench.expect(&[]);
}

/// tck-id-payloads-alias-uniqueness, tck-id-payloads-alias-birth-requirement, tck-id-payloads-alias-data-cmd-requirement,
/// tck-id-operational-behavior-data-commands-rebirth-name-aliases, tck-id-payloads-name-requirement
#[test]
fn aliases_are_unique_over_the_node_and_kept() {
    let mut bench = Bench::new(EdgeNodeConfig { aliases: true, ..config() }, node_metrics());
    bench.birth("D", vec![Metric::new("Temperature", 1u8)]);
    bench.go_online();
    bench.set(Some("D"), vec![Metric::new("Temperature", 2u8)]);
    bench.birth("D", vec![Metric::new("Temperature", 2u8), Metric::new("x", 2u8)]);
    bench.set(None, vec![Metric::string("Name", Some("n"))]);
    assert_eq!(
        &bench.lines()[2..],
        [
            "NBIRTH E 0 bdSeq=Int64(0) Node Control/Rebirth=Boolean(false) Temperature#1=Double(20.0) Name#2=null:Some(String)",
            "DBIRTH E/D 1 Temperature#3=UInt8(1)",
            "born 0 false",
            "DDATA E/D 2 #3=Int32(2)",
            "DDEATH E/D 3",
            "DBIRTH E/D 4 Temperature#3=UInt8(2) x#4=UInt8(2)",
            "NDATA E 5 #2=String(\"n\")",
        ]
    );
}

#[test]
fn historical_values_pass_by_the_current_ones() {
    let mut bench = Bench::born(config());
    let sample = |v: f64, at| Metric::new("Temperature", v).at(at);
    bench.update(NodeUpdate::Historical { device: None, metrics: vec![sample(1.0, 1), sample(2.0, 2)] });
    bench.expect(&["NDATA E 1 ~Temperature=Double(1.0) ~Temperature=Double(2.0)"]);
    assert_eq!(bench.machine.metrics(None).expect("node")[0].value, Some(Value::Double(20.0)));
}

#[test]
fn historical_values_survive_a_session_and_follow_the_births() {
    let mut bench = Bench::born(config());
    bench.lose(true);
    bench.update(NodeUpdate::Historical { device: None, metrics: vec![Metric::new("Temperature", 1.0f64).at(1)] });
    bench.outputs();
    bench.pass(Duration::from_secs(1));
    bench.go_online();
    assert_eq!(
        &bench.lines()[2..],
        [
            "NBIRTH E 0 bdSeq=Int64(1) Node Control/Rebirth=Boolean(false) Temperature=Double(20.0)",
            "born 1 false",
            "NDATA E 1 ~Temperature=Double(1.0)"
        ]
    );
}

#[test]
fn historical_values_of_a_device_follow_its_birth() {
    let mut bench = Bench::born(config());
    bench.birth("D", vec![Metric::new("x", 1u8)]);
    bench.lose(true);
    let metrics = vec![Metric::new("x", 2u8).at(1)];
    bench.update(NodeUpdate::Historical { device: Some(device("D")), metrics });
    bench.pass(Duration::from_secs(1));
    bench.go_online();
    bench.pass(Duration::from_secs(1));
    let lines = bench.lines();
    let place = |what: &str| lines.iter().position(|line| line.contains(what));
    assert!(place("DBIRTH E/D 1 ") < place("DDATA E/D 2 ~x="), "{lines:?}");
    assert!(place("rejected").is_none(), "{lines:?}");
}

#[test]
fn what_waited_for_births_goes_out_in_bursts() {
    let mut bench = Bench::new(EdgeNodeConfig { birth_burst: 1, ..config() }, vec![Metric::new("n", 0u8)]);
    for id in ["A", "B"] {
        bench.birth(id, vec![Metric::new("x", 1u8)]);
    }
    bench.go_online();
    bench.set(Some("A"), vec![Metric::new("x", 2u8)]);
    bench.set(None, vec![Metric::new("n", 1u8)]);
    bench.outputs();
    bench.pass(Duration::from_millis(20));
    bench.expect(&["DBIRTH E/B 2 x=UInt8(1)", "born 0 false"]);
    bench.pass(Duration::from_millis(20));
    bench.expect(&["DDATA E/A 3 x=Int32(2)"]);
    bench.pass(Duration::from_millis(19));
    bench.expect(&[]);
    bench.pass(Duration::from_millis(1));
    bench.expect(&["NDATA E 4 n=Int32(1)"]);
}

#[test]
fn historical_values_of_a_new_name_follow_the_rebirth_that_announces_it() {
    let mut bench = Bench::born(config());
    let historical = |name: &str| {
        let metrics = vec![Metric::new(name, 0.5f64).at(1)];
        NodeUpdate::Historical { device: None, metrics }
    };
    bench.set(None, vec![Metric::new("New", 1.0f64)]);
    bench.update(historical("Temperature"));
    bench.expect(&["NDATA E 1 ~Temperature=Double(0.5)"]);
    bench.update(historical("New"));
    bench.expect(&[]);
    bench.pass(Duration::from_secs(1));
    bench.expect(&[
        "NBIRTH E 0 bdSeq=Int64(0) Node Control/Rebirth=Boolean(false) Temperature=Double(20.0) New=Double(1.0)",
        "born 0 true",
        "NDATA E 1 ~New=Double(0.5)",
    ]);
}

#[test]
fn historical_values_are_split_into_messages_and_the_oldest_are_dropped_when_too_many_wait() {
    let mut bench = Bench::new(
        EdgeNodeConfig { message_bytes_max: 400, data_waiting_max: 2, ..config() },
        vec![Metric::string("t", None)],
    );
    bench.outputs();
    let text = "x".repeat(150);
    let metrics: Vec<Metric> = (0..6).map(|i| Metric::string("t", Some(&text)).at(i)).collect();
    bench.update(NodeUpdate::Historical { device: None, metrics });
    bench.expect(&["rejected spBv1.0/G/NDATA/E: more historical messages wait than are kept; the oldest is dropped"]);
    bench.go_online();
    let outputs = bench.outputs();
    let sizes: Vec<(usize, Option<u64>)> = outputs
        .iter()
        .filter_map(|o| match o {
            NodeOutput::Transport(TransportAction::Publish(p)) if p.topic.contains("NDATA") => {
                Some((p.payload.len(), read(p).metrics[0].timestamp))
            }
            _ => None,
        })
        .collect();
    assert_eq!(sizes.iter().map(|s| s.1).collect::<Vec<_>>(), [Some(2), Some(4)]);
    assert!(sizes.iter().all(|s| s.0 <= 400), "{sizes:?}");
    let huge = Metric::string("t", Some(&"x".repeat(500)));
    let refused = bench.machine.update(NodeUpdate::Historical { device: None, metrics: vec![huge] }, bench.now);
    assert!(matches!(refused, Err(UpdateError::TooLarge { .. })));
}

/// tck-id-operational-behavior-data-publish-nbirth-order, tck-id-operational-behavior-data-publish-dbirth-order: whatever waits for births, current values go out in the order of their
/// times, the birth's among them, and what is older is marked.
#[test]
fn current_values_of_a_metric_go_out_in_the_order_of_their_times() {
    let config = EdgeNodeConfig { birth_burst: 1, rebirth_interval_min: Duration::ZERO, ..config() };
    let pause = config.birth_pause;
    let mut bench = Bench::new(config, vec![Metric::new("Temperature", 1.0).at(1)]);
    bench.birth("A", vec![Metric::new("x", 1.0).at(1)]);
    bench.birth("B", vec![Metric::new("x", 1.0).at(1)]);
    bench.go_online();
    let mut time = 1;
    let mut values = |bench: &mut Bench| {
        for _ in 0..5 {
            time += 1;
            let value = f64::from(u32::try_from(time).expect("small"));
            bench.set(None, vec![Metric::new("Temperature", value).at(time)]);
            bench.set(Some("A"), vec![Metric::new("x", value).at(time)]);
        }
    };
    // While births go out; while what waited for them goes out, one message at a time; in order; and while births of a rebirth go out, with history between them.
    values(&mut bench);
    for _ in 0..2 {
        bench.pass(pause);
        values(&mut bench);
    }
    bench.pass(Duration::from_secs(5));
    values(&mut bench);
    bench.update(NodeUpdate::Rebirth);
    values(&mut bench);
    bench.update(NodeUpdate::Historical { device: None, metrics: vec![Metric::new("Temperature", 0.5).at(1)] });
    values(&mut bench);
    bench.pass(Duration::from_secs(1));
    let mut sent: BTreeMap<(String, String), Vec<u64>> = BTreeMap::new();
    let mut history = Vec::new();
    for output in bench.outputs() {
        let NodeOutput::Transport(TransportAction::Publish(p)) = output else { continue };
        let place = p.topic.split_once("/E").expect("a topic of E").1.to_owned();
        for metric in read(&p).metrics.into_iter().filter(|m| matches!(m.name.as_deref(), Some("Temperature" | "x"))) {
            let stamp = metric.timestamp.expect("always");
            if metric.is_historical {
                history.push(stamp);
            } else {
                sent.entry((place.clone(), metric.name.expect("no aliases").to_string())).or_default().push(stamp);
            }
        }
    }
    assert_eq!(history, [1]);
    assert_eq!(sent.len(), 3, "{sent:?}");
    for ((place, name), stamps) in &sent {
        assert!(stamps.is_sorted(), "{place} {name}: {stamps:?}");
        assert!(place == "/B" || stamps.len() > 10 && stamps.last() == Some(&31), "{place} {name}: {stamps:?}");
    }
}

/// tck-id-payloads-ddeath-timestamp: that of its sending, also if it had to wait.
#[test]
fn a_device_death_is_stamped_when_it_is_sent() {
    let mut bench = Bench::born(EdgeNodeConfig { birth_burst: 1, rebirth_interval_min: Duration::ZERO, ..config() });
    bench.birth("D", vec![Metric::new("x", 1u8)]);
    bench.birth("F", vec![Metric::new("x", 1u8)]);
    bench.pass(Duration::from_secs(7));
    bench.outputs();
    let stamps = |bench: &mut Bench| {
        let stamp = |output: NodeOutput| match output {
            NodeOutput::Transport(TransportAction::Publish(p)) if p.topic.contains("/DDEATH/") => read(&p).timestamp,
            _ => None,
        };
        bench.outputs().into_iter().filter_map(stamp).collect::<Vec<_>>()
    };
    bench.death("D");
    let sent_at = bench.now.wall;
    assert_eq!(stamps(&mut bench), [sent_at]);
    // Births are going out, so it waits.
    bench.birth("D", vec![Metric::new("x", 1u8)]);
    bench.update(NodeUpdate::Rebirth);
    bench.death("D");
    let asked_at = bench.now.wall;
    bench.pass(Duration::from_secs(1));
    let late = stamps(&mut bench);
    assert!(matches!(late[..], [stamp] if stamp > asked_at && stamp <= bench.now.wall), "{late:?} after {asked_at}");
}

#[test]
fn what_cannot_be_sent_is_refused_and_changes_nothing() {
    let mut bench = Bench::born(EdgeNodeConfig { message_bytes_max: 1000, ..config() });
    bench.birth("D", vec![Metric::string("t", None)]);
    bench.outputs();
    let before = bench.machine.metrics(None);
    let long = "x".repeat(1000);
    let mut refuse = |update: NodeUpdate| bench.machine.update(update, bench.now).expect_err("refused");
    let set = |of: Option<&str>, metrics| NodeUpdate::Set { device: of.map(device), metrics };
    assert!(
        matches!(refuse(set(None, vec![Metric::new("t", &*long)])), UpdateError::TooLarge { what, .. } if what == "NBIRTH")
    );
    assert!(
        matches!(refuse(set(Some("D"), vec![Metric::string("t", Some(&long))])), UpdateError::TooLarge { what, .. } if what == "DBIRTH of D")
    );
    let huge = NodeUpdate::DeviceBirth { device: device("Z"), metrics: vec![Metric::string("t", Some(&long))] };
    assert!(matches!(refuse(huge), UpdateError::TooLarge { .. }));
    assert!(matches!(refuse(set(None, vec![Metric::new("Temperature", 1u8)])), UpdateError::Datatype { .. }));
    for metrics in [
        vec![Metric::new("", 1u8)],
        vec![Metric::new("bdSeq", 1i64)],
        vec![Metric::new("Node Control/Rebirth", true)],
        vec![Metric::new("a", 1u8), Metric::new("a", 1u8)],
        vec![Metric::new("a", 1u8).historical()],
        vec![Metric { datatype: DataType::Int8, ..Metric::new("a", 1u8) }],
    ] {
        assert!(matches!(refuse(set(None, metrics)), UpdateError::Name { .. }));
    }
    assert_eq!(bench.machine.metrics(None), before);
    assert_eq!(bench.machine.metrics(Some(&device("D"))), Some(vec![Metric::string("t", None).at(WALL)]));
    assert_eq!(bench.machine.metrics(Some(&device("Z"))), None);
    bench.expect(&[]);
}

fn template(of: Option<&str>, members: Vec<Metric>) -> Value {
    let template_ref = of.map(Into::into);
    Value::Template(Arc::new(Template {
        is_definition: of.is_none(),
        template_ref,
        metrics: members,
        ..Template::default()
    }))
}

/// tck-id-topics-nbirth-templates, tck-id-payloads-template-definition-nbirth-only, tck-id-payloads-template-definition-nbirth,
/// tck-id-payloads-template-definition-members, tck-id-payloads-template-instance-members, tck-id-payloads-template-instance-members-birth
#[test]
fn templates_are_defined_in_the_nbirth_and_instances_are_complete() {
    let mut bench = Bench::born(EdgeNodeConfig { rebirth_interval_min: Duration::ZERO, ..config() });
    let of_t = |metrics| NodeUpdate::DeviceBirth {
        device: device("D"),
        metrics: vec![Metric::new("i", template(Some("T"), metrics))],
    };
    let x = |n: u8| Metric::new("x", n);
    let mut refused = |update| matches!(bench.machine.update(update, bench.now), Err(UpdateError::Name { .. }));
    assert!(refused(of_t(vec![x(1)])), "there is no definition");
    let definition = vec![Metric::new("T", template(None, vec![x(0)]))];
    assert!(refused(NodeUpdate::DeviceBirth { device: device("D"), metrics: definition.clone() }), "not in a device");
    bench.set(None, definition);
    let names = |lines: Vec<String>| {
        lines.iter().map(|l| l.split(' ').take(3).collect::<Vec<_>>().join(" ")).collect::<Vec<_>>()
    };
    assert_eq!(names(bench.lines()), ["NBIRTH E 0", "born 0 true"]);
    let mut refused = |update| matches!(bench.machine.update(update, bench.now), Err(UpdateError::Name { .. }));
    assert!(refused(of_t(vec![])), "a member is missing");
    assert!(refused(of_t(vec![x(1), Metric::new("y", 1u8)])), "a member is not defined");
    assert!(refused(of_t(vec![Metric::new("x", 1u16)])), "a member has another type");
    bench.update(of_t(vec![x(1)]));
    bench.update(of_t(vec![x(2)]));
    // Births publish another definition, data do not.
    bench.set(None, vec![Metric::new("T", template(None, vec![x(9)]))]);
    assert_eq!(names(bench.lines()), ["DBIRTH E/D 1", "DDATA E/D 2", "NBIRTH E 0", "DBIRTH E/D 1", "born 0 true"]);
}

/// The builder makes what the machine takes: a definition, and instances with all its members and none of its parameters but their own.
#[test]
fn templates_are_built_and_reach_the_births() {
    let speed = Metric::new("Speed", 0.0).with_properties(Properties::new().with("engUnit", "1/min"));
    let motor = Template::definition([speed, Metric::null("Fault", DataType::String)])
        .with_version("1.2")
        .with_parameter("Rated_Power", 1.0)
        .with_parameter("Rated_Power", 5.5)
        .with_parameter("Poles", 4_u8);
    let drive = motor.instance_of("Types/Motor").with_value("Speed", 1_480.0).with_parameter("Rated_Power", 7.5);
    assert_eq!((drive.is_definition, drive.template_ref.as_deref()), (false, Some("Types/Motor")));
    assert_eq!(drive.version.as_deref(), Some("1.2"));
    assert_eq!(drive.parameters, [(Arc::from("Rated_Power"), DataType::Double, Some(Value::Double(7.5)))]);
    let names: Vec<_> = drive.metrics.iter().map(|member| &*member.name).collect();
    assert_eq!(names, ["Speed", "Fault"], "a value takes the place of the member's");
    let set = drive.member("Speed").unwrap();
    assert_eq!((set.value.clone(), set.properties.iter().count()), (Some(Value::Double(1_480.0)), 1), "its unit stays");
    assert_eq!(motor.parameters[0].2, Some(Value::Double(5.5)), "the last one counts");
    assert_eq!(motor.parameters.len(), 2);
    let faulty = drive.clone().with_member(Metric::new("Fault", "F3"));
    assert_eq!(faulty.member("Fault").and_then(Metric::as_str), Some("F3"));

    let metrics =
        |instance: &Template| vec![Metric::new("Types/Motor", motor.clone()), Metric::new("Drive", instance.clone())];
    let mut bench = Bench::new(config(), metrics(&drive));
    bench.go_online();
    let published = |output| match output {
        NodeOutput::Transport(TransportAction::Publish(publish)) => Some(read(&publish)),
        _ => None,
    };
    let births: Vec<_> = bench.outputs().into_iter().filter_map(published).collect();
    let read: Vec<_> = births[0].metrics.iter().filter_map(|metric| metric.value.clone()).collect();
    assert!(read.contains(&motor.clone().into()) && read.contains(&drive.clone().into()), "{read:?}");
    for wrong in [drive.clone().with_value("Torque", 1.0), drive.with_value("Speed", 1_u8)] {
        let refused = EdgeNode::new(config(), metrics(&wrong), Now::default());
        assert!(matches!(refused, Err(UpdateError::Name { .. })), "{refused:?}");
    }
}

/// tck-id-payloads-template-definition-parameters
#[test]
fn template_instances_have_no_parameters_beyond_the_defined() {
    let with = |of: Option<&str>, name: &str| {
        let parameters = vec![(Arc::from(name), DataType::UInt8, Some(Value::UInt8(1)))];
        let template_ref = of.map(Into::into);
        Value::Template(Arc::new(Template {
            is_definition: of.is_none(),
            template_ref,
            parameters,
            ..Template::default()
        }))
    };
    let metrics = |name| vec![Metric::new("T", with(None, "p")), Metric::new("i", with(Some("T"), name))];
    let now = Now::default();
    assert!(EdgeNode::new(config(), metrics("p"), now).is_ok());
    assert!(matches!(EdgeNode::new(config(), metrics("q"), now), Err(UpdateError::Name { .. })));
}

#[test]
fn the_announced_size_of_a_birth_is_its_size() {
    let config = EdgeNodeConfig { payload_uuid: Some("11ad7b32-1d32-4c4a-b0c9-fa049208939a".into()), ..config() };
    let mut bench = Bench::born(config);
    let metrics: Vec<Metric> = (0..50).map(|i| Metric::string(format!("metric {i}"), Some("some text"))).collect();
    let announced = bench.machine.device_birth_bytes(&metrics);
    bench.birth("D", metrics);
    let outputs = bench.outputs();
    let [NodeOutput::Transport(TransportAction::Publish(p))] = &outputs[..] else { panic!("{outputs:?}") };
    assert!(p.payload.len() <= announced && p.payload.len() + 30 > announced, "{} of {announced}", p.payload.len());
    assert_eq!(read(p).uuid.as_deref(), Some("11ad7b32-1d32-4c4a-b0c9-fa049208939a"));
}

#[test]
fn a_device_that_dies_and_returns_during_births_is_born_after_its_death() {
    let mut bench = Bench::new(EdgeNodeConfig { birth_burst: 1, ..config() }, vec![]);
    for id in ["A", "B"] {
        bench.birth(id, vec![Metric::new("x", 1u8)]);
    }
    bench.go_online();
    bench.outputs();
    bench.death("A");
    bench.birth("A", vec![Metric::new("x", 2u8)]);
    bench.set(Some("A"), vec![Metric::new("x", 3u8)]);
    bench.expect(&[]);
    bench.pass(Duration::from_secs(1));
    bench.expect(&["DBIRTH E/B 2 x=UInt8(1)", "born 0 false", "DDEATH E/A 3", "DBIRTH E/A 4 x=UInt8(3)"]);
}

#[test]
fn a_device_with_two_turns_in_the_births_is_born_once_and_not_before_a_death_that_waits() {
    let x = |n: u8| vec![Metric::new("x", n)];
    let begun = || {
        let mut bench = Bench::new(EdgeNodeConfig { birth_burst: 1, ..config() }, vec![]);
        bench.birth("A", x(1));
        bench.birth("B", x(1));
        bench.go_online();
        bench.outputs();
        // B is not born yet, so its death is not published, and its return is another turn.
        bench.death("B");
        bench.birth("B", x(2));
        bench.pass(Duration::from_millis(20));
        bench.expect(&["DBIRTH E/B 2 x=UInt8(2)"]);
        bench
    };
    let mut bench = begun();
    bench.pass(Duration::from_secs(1));
    bench.expect(&["born 0 false"]);
    let mut bench = begun();
    bench.death("B");
    bench.birth("B", x(3));
    bench.pass(Duration::from_secs(1));
    bench.expect(&["born 0 false", "DDEATH E/B 3", "DBIRTH E/B 4 x=UInt8(3)"]);
}

#[test]
fn as_many_changes_as_may_wait_follow_the_births_as_data() {
    let mut bench = Bench::new(EdgeNodeConfig { birth_burst: 1, data_waiting_max: 3, ..config() }, vec![]);
    bench.birth("A", vec![Metric::new("x", 0u8)]);
    bench.birth("B", vec![Metric::new("x", 0u8)]);
    bench.go_online();
    bench.outputs();
    for n in 1..=3u8 {
        bench.set(Some("A"), vec![Metric::new("x", n)]);
    }
    bench.pass(Duration::from_secs(1));
    let data = (1..=3).map(|n| format!("DDATA E/A {} x=Int32({n})", n + 2));
    let expected: Vec<String> =
        ["DBIRTH E/B 2 x=UInt8(0)", "born 0 false"].map(str::to_owned).into_iter().chain(data).collect();
    assert_eq!(bench.lines(), expected);
}

#[test]
fn more_changes_than_may_wait_become_one_further_rebirth() {
    let mut bench =
        Bench::new(EdgeNodeConfig { birth_burst: 1, data_waiting_max: 3, ..config() }, vec![Metric::new("n", 0u8)]);
    for id in ["A", "B"] {
        bench.birth(id, vec![Metric::new("x", 0u8)]);
    }
    bench.go_online();
    bench.outputs();
    for n in 1..=5u8 {
        bench.set(Some("A"), vec![Metric::new("x", n)]);
    }
    bench.set(None, vec![Metric::new("n", 1u8)]);
    bench.expect(&[]);
    bench.pass(Duration::from_secs(1));
    bench.expect(&[
        "DBIRTH E/B 2 x=UInt8(0)",
        "born 0 false",
        "NBIRTH E 0 bdSeq=Int64(0) Node Control/Rebirth=Boolean(false) n=UInt8(1)",
        "DBIRTH E/A 1 x=UInt8(5)",
        "DBIRTH E/B 2 x=UInt8(0)",
        "born 0 true",
    ]);
}
