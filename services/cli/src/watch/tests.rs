//! What is printed of a stream of messages, counted, asked for and recorded.

use sparkplug::DataType;

use super::*;

fn watch(line: &str) -> Watch {
    let words = ["sparkfleet", "watch"].into_iter().chain(line.split(' ').filter(|word| !word.is_empty()));
    match crate::arguments::parsed(words).unwrap() {
        crate::Command::Watch(arguments) => Watch::new(arguments, None),
        other => panic!("{other:?}"),
    }
}

fn message(topic: &str, form: Form, metrics: Vec<Metric>) -> Recorded {
    let payload = Payload { timestamp: Some(1), seq: Some(0), metrics, ..Payload::default() };
    let payload = encode(&payload, &EncodeOptions::new(form));
    Recorded { time: 5, topic: topic.to_owned(), retain: false, payload }
}

fn metric(name: &str) -> Metric {
    Metric::new(name, 7_u64)
}

fn birth(node: &str) -> Recorded {
    let bd_seq = Metric::new("bdSeq", 0_u64);
    message(&format!("spBv1.0/Plant/NBIRTH/{node}"), Form::Birth, vec![bd_seq, metric("Speed")])
}

fn data(node: &str) -> Recorded {
    message(&format!("spBv1.0/Plant/NDATA/{node}"), Form::Data, vec![metric("Speed")])
}

#[test]
fn only_messages_that_are_shown_count() {
    let mut watch = watch("--node Press --kind NDATA --count 2");
    assert!(!watch.on_message(birth("Press")).unwrap().is_last, "a birth is not asked for");
    assert!(!watch.on_message(data("Oven")).unwrap().is_last, "another node");
    assert!(!watch.on_message(data("Press")).unwrap().is_last);
    assert!(watch.on_message(data("Press")).unwrap().is_last);
    assert_eq!(watch.printed, 2);
}

#[test]
fn a_message_without_a_metric_that_is_wanted_is_not_shown() {
    let mut watch = watch("--metric Temperature --count 1");
    assert!(!watch.on_message(birth("Press")).unwrap().is_last);
    let warm = message("spBv1.0/Plant/NDATA/Press", Form::Data, vec![metric("Speed"), metric("Temperature/1")]);
    assert!(watch.on_message(warm).unwrap().is_last);
}

#[test]
fn a_node_that_was_not_born_is_named_until_it_is_and_only_if_it_is_wanted() {
    let mut watch = watch("--node Press");
    let unborn = |watch: &mut Watch, message| watch.on_message(message).unwrap().unborn.map(|node| node.to_string());
    assert_eq!(unborn(&mut watch, data("Press")).as_deref(), Some("Plant/Press"));
    let command = message("spBv1.0/Plant/NCMD/Press", Form::Command, vec![metric("Speed")]);
    assert_eq!(unborn(&mut watch, command), None, "a command is not the node's own word");
    assert_eq!(unborn(&mut watch, data("Oven")), None);
    assert_eq!(unborn(&mut watch, birth("Press")), None);
    assert_eq!(unborn(&mut watch, data("Press")), None);
}

#[test]
fn what_is_not_sparkplug_is_shown_as_it_is_and_ends_nothing() {
    for topic in ["spBv1.0/Plant/NBIRTH", "spBv1.0/Plant/WHAT/Press", "plant/press", "spBv1.0/Pl+nt/NDATA/x/y/z", ""] {
        let mut watch = watch("");
        let strange =
            Recorded { time: 1, topic: topic.to_owned(), retain: true, payload: Bytes::from_static(b"\x1b[2J") };
        assert!(!watch.on_message(strange).unwrap().is_last, "{topic}");
        assert_eq!(watch.printed, 1, "{topic}");
    }
    let mut watch = watch("");
    for payload in [&b"\xff\xff\xff\xff"[..], b"{}"] {
        let broken = Recorded { payload: Bytes::from_static(payload), ..birth("Press") };
        watch.on_message(broken).unwrap();
    }
    let state = Recorded { topic: "spBv1.0/STATE/host".to_owned(), ..birth("Press") };
    watch.on_message(state).unwrap();
    assert_eq!(watch.printed, 3);
    assert!(!watch.births.is_born(&EdgeNodeDescriptor::parse("Plant", "Press").unwrap()), "no birth could be read");
}

#[test]
fn everything_that_arrives_is_recorded_also_what_is_not_shown() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("recording");
    let mut first = watch("--node Oven");
    first.recorder = Some(Recorder::open(&file).unwrap());
    for message in [birth("Press"), data("Press"), data("Oven")] {
        first.on_message(message).unwrap();
    }
    assert_eq!(first.printed, 1);
    let mut recording = Recording::open(&file).unwrap();
    let messages: Vec<Recorded> = std::iter::from_fn(|| recording.next_message()).map(Result::unwrap).collect();
    assert_eq!(messages, [birth("Press"), data("Press"), data("Oven")]);
    // And it is watched again as it was.
    watch("--kind NBIRTH --output json").read(Recording::open(&file).unwrap()).unwrap();
}

#[test]
fn the_tree_and_programs_get_what_they_ask_for() {
    for output in ["text", "json", "tree"] {
        let mut watch = watch(&format!("--output {output} --full"));
        watch.on_message(birth("Press")).unwrap();
        watch.on_message(data("Press")).unwrap();
        assert_eq!(watch.printed, 2, "{output}");
        watch.end(9).unwrap();
    }
}

#[test]
fn a_rebirth_is_asked_for_as_the_specification_says() {
    let node = EdgeNodeDescriptor::parse("Plant", "Press").unwrap();
    let (topic, payload) = rebirth_command(&node, 5);
    assert_eq!(topic, "spBv1.0/Plant/NCMD/Press");
    let payload = decode(&payload, &Limits::default()).unwrap();
    let metric = &payload.metrics[0];
    assert_eq!((metric.name.as_deref(), payload.metrics.len()), (Some("Node Control/Rebirth"), 1));
    assert_eq!(metric.own_datatype().unwrap(), DataType::Boolean);
    assert_eq!((payload.timestamp, payload.seq), (Some(5), None), "a command has no seq");
}
