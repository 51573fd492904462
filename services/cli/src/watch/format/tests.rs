//! Text and JSON of every kind of message, hostile ones included.

use proptest::prelude::*;
use sparkplug::payload::WireValue;

use super::*;

const NOON: u64 = 1_789_000_000_123;

fn shown(body: Body) -> Shown {
    Shown {
        time: NOON,
        topic: "spBv1.0/G/NDATA/E".to_owned(),
        kind: "NDATA",
        ids: vec![("group", "G".to_owned()), ("node", "E".to_owned())],
        retained: false,
        notes: Vec::new(),
        body,
    }
}

fn payload(metrics: Vec<ShownMetric>) -> Body {
    Body::Payload { seq: Some(3), bd_seq: None, timestamp: Some(NOON), uuid: None, body_bytes: None, metrics }
}

fn metric(name: Option<&str>, datatype: Option<DataType>, value: Option<WireValue>) -> ShownMetric {
    let raw = RawMetric { alias: Some(17), value, ..RawMetric::default() };
    ShownMetric::new(raw, name.map(Arc::from), datatype)
}

fn value(value: Value) -> String {
    value_json(&value).to_string()
}

#[test]
fn a_message_is_a_headline_and_a_line_for_each_metric() {
    let message = shown(payload(vec![
        metric(Some("Temperature"), Some(DataType::Float), Some(WireValue::Float(21.5))),
        metric(Some("Mode"), Some(DataType::String), None),
        metric(None, Some(DataType::Int32), Some(WireValue::Int(5))),
    ]));
    assert_eq!(
        text(&message, false),
        "2026-09-10T00:26:40.123Z  spBv1.0/G/NDATA/E  seq=3\n    \
         Temperature  Float     21.5\n    \
         Mode         String    null\n    \
         alias 17     Int32     5"
    );
}

#[test]
fn marks_notes_and_properties_stand_where_they_belong() {
    let raw = RawMetric {
        value: Some(WireValue::Boolean(true)),
        timestamp: Some(0),
        is_historical: true,
        is_transient: true,
        properties: Some(Properties::new().with("ETag", "e1")),
        ..RawMetric::default()
    };
    let historical = ShownMetric::new(raw, Some(Arc::from("a")), Some(DataType::Boolean));
    let mut message = shown(payload(vec![historical]));
    message.retained = true;
    message.notes = vec!["stale: seq 3 where 2 was due".to_owned()];
    assert_eq!(
        text(&message, false),
        "2026-09-10T00:26:40.123Z  spBv1.0/G/NDATA/E  seq=3  [retained]  [stale: seq 3 where 2 was due]\n    \
         a  Boolean   true  [historical]  [transient]  at 1970-01-01T00:00:00.000Z  {\"ETag\":\"e1\"}"
    );
    let json: Json = serde_json::from_str(&json(&message)).unwrap();
    assert_eq!(
        json,
        json!({
            "time": "2026-09-10T00:26:40.123Z", "topic": "spBv1.0/G/NDATA/E", "kind": "NDATA", "group": "G", "node": "E",
            "retained": true, "seq": 3, "timestamp": NOON, "notes": ["stale: seq 3 where 2 was due"],
            "metrics": [{
                "name": "a", "type": "Boolean", "value": true, "timestamp": 0, "historical": true, "transient": true,
                "properties": { "ETag": "e1" }
            }]
        })
    );
}

#[test]
fn what_cannot_be_decoded_says_why_and_shows_its_bytes() {
    let message = shown(Body::Undecodable { reason: "no protobuf".to_owned(), payload: vec![0xff; 70].into() });
    let line = text(&message, false);
    let expected = format!("UNDECODABLE: no protobuf; 70 bytes: {}...", "ff".repeat(64));
    assert!(line.ends_with(&expected), "{line}");
    let json: Json = serde_json::from_str(&json(&message)).unwrap();
    assert_eq!((&json["undecodable"], &json["payload"]), (&"no protobuf".into(), &"ff".repeat(70).into()));
}

#[test]
fn an_unreadable_value_is_marked_and_its_neighbours_are_shown() {
    let message = shown(payload(vec![
        metric(Some("a"), Some(DataType::Boolean), Some(WireValue::String(Arc::from("x")))),
        metric(Some("b"), None, Some(WireValue::Extension)),
        metric(Some("c"), Some(DataType::Int8), Some(WireValue::Int(1))),
    ]));
    let lines = text(&message, false);
    let lines: Vec<_> = lines.lines().skip(1).map(str::trim).collect();
    assert!(lines[0].starts_with("a  Boolean   UNREADABLE: ") && lines[0].contains("Boolean"), "{lines:?}");
    assert_eq!(lines[1], "b  ?         UNREADABLE: its type is not known");
    assert_eq!(lines[2], "c  Int8      1");
}

#[test]
fn state_is_said_in_words() {
    let mut message = shown(Body::State(HostState { online: true, timestamp: 0 }));
    message.topic = "spBv1.0/STATE/H".to_owned();
    assert!(text(&message, false).ends_with("spBv1.0/STATE/H  online since 1970-01-01T00:00:00.000Z"));
    let json: Json = serde_json::from_str(&json(&message)).unwrap();
    assert_eq!(json["online"], true);
}

#[test]
fn a_terminal_never_gets_control_characters_from_the_wire() {
    let evil = "\u{1b}[2J\r\n\u{9b}x\u{202e}";
    let mut message =
        shown(payload(vec![metric(Some(evil), Some(DataType::String), Some(WireValue::String(Arc::from(evil))))]));
    message.topic = evil.to_owned();
    message.notes = vec![evil.to_owned()];
    for full in [false, true] {
        let shown = text(&message, full);
        let lines: Vec<_> = shown.split('\n').collect();
        assert_eq!(lines.len(), 2, "{shown:?}");
        assert!(lines.iter().all(|line| line.chars().all(|c| !c.is_control() && c != '\u{202e}')), "{shown:?}");
    }
    assert!(!json(&message).contains(['\u{1b}', '\n', '\r']));
}

#[test]
fn long_values_are_cut_for_people_only() {
    let long = "x".repeat(1000);
    let message =
        shown(payload(vec![metric(Some("a"), Some(DataType::Text), Some(WireValue::String(Arc::from(&*long))))]));
    assert!(text(&message, false).ends_with("... (1002 characters)"));
    assert!(text(&message, true).contains(&long));
    assert!(json(&message).contains(&long));
}

#[test]
fn every_shape_of_value_has_its_json() {
    assert_eq!(value(Value::Int8(-1)), "-1");
    assert_eq!(value(Value::UInt64(u64::MAX)), "18446744073709551615");
    assert_eq!(value(Value::Float(0.1)), "0.1");
    assert_eq!(value(Value::Double(f64::NAN)), "\"NaN\"");
    assert_eq!(value(Value::Float(f32::NEG_INFINITY)), "\"-inf\"");
    assert_eq!(value(Value::Bytes(Arc::from([0, 255]))), "\"00ff\"");
    assert_eq!(value(Value::BooleanArray(Arc::from([true, false]))), "[true,false]");
    assert_eq!(value(Value::StringArray(Arc::from([Arc::from("a")]))), "[\"a\"]");
    let table = DataSet {
        columns: vec![(Arc::from("c"), DataType::Int32)],
        rows: vec![vec![Some(Value::Int32(1))], vec![None]],
    };
    assert_eq!(
        value(Value::DataSet(Arc::new(table))),
        r#"{"columns":[{"name":"c","type":"Int32"}],"rows":[[1],[null]]}"#
    );
    let template = Template { is_definition: true, metrics: vec![Metric::new("m", 1_i32)], ..Template::default() };
    assert_eq!(
        value(Value::Template(Arc::new(template))),
        r#"{"version":null,"templateRef":null,"isDefinition":true,"metrics":[{"name":"m","type":"Int32","value":1}],"parameters":[]}"#
    );
}

/// Any value of a kind that holds others' text, or a number at its limits.
fn any_value() -> impl Strategy<Value = (DataType, WireValue)> {
    prop_oneof![
        any::<String>().prop_map(|text| (DataType::String, WireValue::String(Arc::from(text)))),
        any::<f64>().prop_map(|number| (DataType::Double, WireValue::Double(number))),
        any::<f32>().prop_map(|number| (DataType::Float, WireValue::Float(number))),
        any::<u32>().prop_map(|number| (DataType::UInt32, WireValue::Int(number))),
        any::<u64>().prop_map(|number| (DataType::DateTime, WireValue::Long(number))),
        any::<bool>().prop_map(|truth| (DataType::Boolean, WireValue::Boolean(truth))),
    ]
}

proptest! {
    #[test]
    fn whatever_passes_is_a_line_each_and_programs_read_what_was_said(
        topic in any::<String>(),
        note in any::<String>(),
        metrics in proptest::collection::vec((any::<String>(), any_value()), 0..4),
    ) {
        let shown_metrics = metrics.iter().map(|(name, (datatype, value))| metric(Some(name), Some(*datatype), Some(value.clone())));
        let mut message = shown(payload(shown_metrics.collect()));
        (message.topic, message.notes) = (topic.clone(), vec![note]);
        for full in [false, true] {
            let text = text(&message, full);
            prop_assert_eq!(text.split('\n').count(), metrics.len() + 1, "{}", text);
            prop_assert!(!text.contains(|c: char| c != '\n' && c.is_control()), "{:?}", text);
        }
        let line = json(&message);
        prop_assert!(!line.contains(char::is_control), "{:?}", line);
        let read: Json = serde_json::from_str(&line).unwrap();
        prop_assert_eq!(&read["topic"], topic.as_str());
        for ((name, (datatype, value)), read) in metrics.iter().zip(read["metrics"].as_array().unwrap()) {
            prop_assert_eq!(&read["name"], name.as_str());
            let kind = format!("{datatype:?}");
            prop_assert_eq!(&read["type"], kind.as_str());
            match value {
                WireValue::String(text) => prop_assert_eq!(&read["value"], &**text),
                WireValue::Double(number) if number.is_finite() => {
                    let read = read["value"].as_f64().unwrap();
                    // This reader of JSON may be off by one in the last place.
                    prop_assert!((read - number).abs() <= number.abs() * 1e-15, "{read} {number}");
                }
                // The shortest decimal that is the number again.
                WireValue::Float(number) if number.is_finite() => {
                    prop_assert_eq!(read["value"].as_f64().map(|read| read as f32), Some(*number));
                }
                WireValue::Int(number) => prop_assert_eq!(read["value"].as_u64(), Some(u64::from(*number))),
                WireValue::Long(number) => prop_assert_eq!(read["value"].as_u64(), Some(*number)),
                WireValue::Boolean(truth) => prop_assert_eq!(read["value"].as_bool(), Some(*truth)),
                _ => prop_assert!(read["value"].is_string(), "NaN and infinity are text: {}", read),
            }
        }
    }
}
