//! Messages as a browser gets them: decoded, in bounds, and with what is odd about them. Payloads are made by the library.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value as Json, json};
use sparkplug::host::HostEvent;
use sparkplug::payload::{AliasOf, EncodeOptions, Form, Payload, encode};
use sparkplug::session::QoS;
use sparkplug::{BdSeq, DeviceId, EdgeNodeDescriptor, MessageKind, Metric, Value};

use super::super::Explorer;
use super::*;

fn node() -> EdgeNodeDescriptor {
    EdgeNodeDescriptor::parse("Foreign", "Press_7").unwrap()
}

fn bytes(seq: Option<u64>, metrics: Vec<Metric>, aliases: Option<AliasOf<'_>>) -> Bytes {
    let payload = Payload { timestamp: Some(1_000), seq, metrics, ..Payload::default() };
    let form = if aliases.is_some() { Form::Data } else { Form::Birth };
    encode(&payload, &EncodeOptions { aliases, ..EncodeOptions::new(form) })
}

struct Bench(Explorer);

impl Bench {
    fn followed() -> Self {
        let mut explorer = Explorer::default();
        assert!(explorer.follow(&node()));
        Self(explorer)
    }

    fn receive(&mut self, kind: MessageKind, device: Option<&str>, payload: impl Into<Bytes>, at: u64) {
        let device = device.map(|device| DeviceId::new(device).unwrap());
        let event = HostEvent::Message {
            node: node(),
            device,
            kind,
            qos: QoS::AtMostOnce,
            retain: false,
            payload: payload.into(),
        };
        self.0.on_event(&event, at);
    }

    fn birth(&mut self, bd_seq: u64, at: u64) {
        let metrics = vec![Metric::new("bdSeq", i64::try_from(bd_seq).unwrap())];
        self.receive(MessageKind::NBirth, None, bytes(Some(0), metrics, None), at);
    }

    fn last(&self) -> Json {
        self.0.messages(&node()).into_values().next_back().unwrap()
    }

    fn note(&self) -> String {
        self.last()["note"].as_str().unwrap().to_owned()
    }
}

#[test]
fn a_message_is_decoded_by_what_it_says_and_by_the_birth() {
    let mut bench = Bench::followed();
    let born: Arc<[Metric]> = vec![Metric::new("Temperature", -4_i16)].into();
    let event = HostEvent::NodeBirth { node: node(), bd_seq: BdSeq::ZERO, timestamp: 5, uuid: None, metrics: born };
    bench.0.on_event(&event, 1);
    let aliases = vec![("Temperature".into(), 7)];
    bench.0.on_event(&HostEvent::Aliases { node: node(), device: None, aliases }, 1);
    let alias_of = |name: &str| match name {
        "Temperature" => Some(7),
        "Ghost" => Some(9),
        _ => None,
    };
    let metrics = vec![Metric::new("Temperature", -5_i16), Metric::new("Ghost", 1.5_f64)];
    let payload = bytes(Some(3), metrics, Some(&alias_of));
    let size = payload.len();
    bench.receive(MessageKind::NData, None, payload, 99);
    let row = bench.last();
    assert_eq!(
        (&row["kind"], &row["at"], &row["seq"], &row["timestamp"]),
        (&json!("NDATA"), &json!(99), &json!(3), &json!(1_000))
    );
    assert_eq!((&row["bytes"], &row["metrics_total"], &row["retained"]), (&json!(size), &json!(2), &json!(false)));
    let [known, unknown] = [&row["metrics"][0], &row["metrics"][1]];
    assert_eq!(
        (&known["name"], &known["alias"], &known["datatype"], &known["value"], &known["problem"]),
        (&json!("Temperature"), &json!(7), &json!("Int16"), &json!(-5), &json!(null))
    );
    assert_eq!(
        (&unknown["name"], &unknown["alias"], &unknown["datatype"], &unknown["value"]),
        (&json!(null), &json!(9), &json!("Double"), &json!(1.5)),
        "the field of its value suggests the datatype"
    );
    // A device has other names by the same alias, here none.
    bench.receive(
        MessageKind::DData,
        Some("Motor"),
        bytes(Some(4), vec![Metric::new("Temperature", 1_i16)], Some(&alias_of)),
        100,
    );
    assert_eq!((&bench.last()["device"], &bench.last()["metrics"][0]["name"]), (&json!("Motor"), &json!(null)));
}

#[test]
fn what_is_odd_about_the_order_is_said() {
    let mut bench = Bench::followed();
    bench.receive(MessageKind::NData, None, bytes(Some(200), vec![], None), 1);
    assert_eq!(bench.note(), "", "what came before is not known");
    bench.birth(3, 10);
    assert_eq!((bench.note().as_str(), &bench.last()["bd_seq"]), ("", &json!(3)));
    for (kind, seq, note) in [
        (MessageKind::NData, Some(1), ""),
        (MessageKind::NCmd, None, ""),
        (MessageKind::NData, Some(4), "seq 4, expected 2"),
        (MessageKind::NData, Some(5), ""),
        (MessageKind::NData, None, "has no seq"),
        (MessageKind::NData, Some(255), ""),
        (MessageKind::NData, Some(0), ""),
    ] {
        bench.receive(kind, None, bytes(seq, vec![], None), 20);
        assert_eq!(bench.note(), note, "{kind} {seq:?}");
    }
    let death = |bd_seq: i64| bytes(None, vec![Metric::new("bdSeq", bd_seq)], None);
    bench.receive(MessageKind::NDeath, None, death(2), 30);
    assert!(bench.note().starts_with("of an earlier session"), "{}", bench.note());
    // A node that starts again dies before its next birth; two programs do not.
    bench.birth(9, 40);
    assert!(bench.note().starts_with("bdSeq 9 30 ms after bdSeq 3, without an NDEATH between"), "{}", bench.note());
    bench.birth(9, 41);
    assert_eq!(bench.note(), "", "a rebirth");
    bench.receive(MessageKind::NDeath, None, death(9), 42);
    bench.birth(10, 43);
    assert_eq!(bench.note(), "");
    bench.birth(11, 43 + RESTART_MS);
    assert_eq!(bench.note(), "");
}

#[test]
fn what_cannot_be_read_and_what_a_server_kept_is_shown_as_such() {
    let mut bench = Bench::followed();
    bench.birth(0, 1);
    bench.receive(MessageKind::NData, None, &[0xff; 3][..], 2);
    assert!(bench.note().starts_with("cannot be read: "), "{}", bench.note());
    assert_eq!(bench.last()["bytes"], 3);
    let kept = HostEvent::Message {
        node: node(),
        device: None,
        kind: MessageKind::NBirth,
        qos: QoS::AtLeastOnce,
        retain: true,
        payload: bytes(Some(0), vec![Metric::new("bdSeq", 8_i64)], None),
    };
    bench.0.on_event(&kept, 3);
    assert_eq!((bench.note().starts_with("retained: "), &bench.last()["bd_seq"]), (true, &json!(8)));
    assert_eq!((&bench.last()["qos"], &bench.last()["retained"]), (&json!(1), &json!(true)));
    bench.receive(MessageKind::NData, None, bytes(Some(1), vec![], None), 4);
    assert_eq!(bench.note(), "", "the kept birth is not part of the session");
}

#[test]
fn as_much_is_kept_as_a_browser_takes() {
    let mut bench = Bench::followed();
    let large = "µ".repeat(4_000);
    let metrics: Vec<Metric> = (0..60).map(|n| Metric::new(format!("{n}/{large}"), &*large)).collect();
    bench.receive(MessageKind::NData, None, bytes(Some(1), metrics, None), 1);
    let row = bench.last();
    assert_eq!((row["metrics"].as_array().unwrap().len(), &row["metrics_total"]), (METRICS_MAX, &json!(60)));
    assert!(row["metrics"][0]["value"].as_str().unwrap().len() < VALUE_BYTES_MAX + 10);
    let of = Value::BooleanArray([true; 200].as_slice().into());
    bench.receive(MessageKind::NData, None, bytes(Some(2), vec![Metric::new("Array", of)], None), 2);
    assert!(bench.last()["metrics"][0]["value"].as_str().unwrap().ends_with('…'));
    for seq in 3..(3 + 2 * MESSAGES_MAX as u64) {
        bench.receive(MessageKind::NData, None, bytes(Some(seq % 256), vec![], None), seq);
    }
    let table = bench.0.messages(&node());
    assert_eq!(table.len(), MESSAGES_MAX);
    assert!(table.values().map(|row| row.to_string().len()).sum::<usize>() <= BYTES_MAX);
    assert_eq!(table.values().map(|row| row["note"].as_str().unwrap()).collect::<String>(), "");
    let names = Metric::new("n".repeat(9_000), 1_u32);
    for _ in 0..2 * MESSAGES_MAX {
        bench.receive(MessageKind::NCmd, None, bytes(None, vec![names.clone(); 50], None), 9);
    }
    let table = bench.0.messages(&node());
    let size: usize = table.values().map(|row| row.to_string().len()).sum();
    assert!(
        !table.is_empty() && table.len() < 10 && size <= BYTES_MAX + table.len() * 64,
        "{} rows, {size}",
        table.len()
    );
}

#[test]
fn messages_are_kept_while_someone_looks() {
    let mut bench = Bench::followed();
    bench.birth(0, 1);
    assert!(!bench.0.follow(&node()), "asked for already");
    assert!(!bench.0.unfollow(&node()));
    assert_eq!(bench.0.messages(&node()).len(), 1);
    assert!(bench.0.unfollow(&node()));
    assert!(!bench.0.unfollow(&node()));
    bench.birth(0, 2);
    assert!(bench.0.messages(&node()).is_empty());
}

#[test]
fn many_nodes_share_the_memory_of_all() {
    let mut explorer = Explorer::default();
    let node = |n: usize| EdgeNodeDescriptor::parse("Foreign", &format!("Press_{n}")).unwrap();
    let count = 2_000;
    let fill = |explorer: &mut Explorer, n: usize| {
        let payload = bytes(None, vec![Metric::new("Text", &*"t".repeat(300)); 50], None);
        for _ in 0..4 {
            let payload = payload.clone();
            let event = HostEvent::Message {
                node: node(n),
                device: None,
                kind: MessageKind::NCmd,
                qos: QoS::AtMostOnce,
                retain: false,
                payload,
            };
            explorer.on_event(&event, 1);
        }
    };
    for n in 0..count {
        explorer.follow(&node(n));
        fill(&mut explorer, n);
    }
    let size = |table: Table| table.values().map(|row| row.to_string().len()).sum::<usize>();
    let all: usize = (0..count).map(|n| size(explorer.messages(&node(n)))).sum();
    assert!(all <= ALL_BYTES_MAX + ALL_BYTES_MAX / 8, "{all}");
    (1..count).for_each(|n| assert!(explorer.unfollow(&node(n))));
    fill(&mut explorer, 0);
    assert_eq!(explorer.messages(&node(0)).len(), 4);
}
