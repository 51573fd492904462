//! The short way of data and the long one.

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::payload::{AliasOf, EncodeOptions, Form, Inflated, Payload, decode_ref, encode};

const NAMES: [&str; 8] = ["Boolean", "Int8", "Int64", "UInt32", "Float", "Double", "DateTime", "Text"];
const BORN: u64 = 1_700_000_000_000;

#[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "any number will do")]
fn metric(column: usize, number: Option<u64>) -> Metric {
    let n = number.unwrap_or_default();
    let value = match column {
        0 => Value::Boolean(n & 1 == 1),
        1 => Value::Int8((n as u8).cast_signed()),
        2 => Value::Int64(n.cast_signed()),
        3 => Value::UInt32(n as u32),
        4 => Value::Float(n as f32),
        5 => Value::Double(n as f64),
        6 => Value::DateTime(n),
        _ => Value::Text(n.to_string().into()),
    };
    let metric = Metric::new(NAMES[column], value);
    if number.is_some() { metric } else { Metric { value: None, ..metric } }
}

fn message(form: Form, metrics: Vec<Metric>, by_alias: bool, timestamp: Option<u64>) -> Bytes {
    // Every other metric has one; one of them lies far from the rest.
    let alias = |name: &str| match NAMES.iter().position(|known| *known == name)? {
        column @ (1 | 3 | 5) => Some(column as u64),
        6 => Some(1 << 40),
        _ => None,
    };
    let aliases: Option<AliasOf<'_>> = if by_alias { Some(&alias) } else { None };
    let payload = Payload { timestamp, seq: Some(3), metrics, ..Payload::default() };
    encode(&payload, &EncodeOptions { aliases, ..EncodeOptions::new(form) })
}

fn replica(birth: &Bytes) -> Replica {
    let mut inflated = Inflated::default();
    let payload = decode_ref(birth, &Limits::default(), &mut inflated).expect("a payload");
    Replica::from_birth(&payload.metrics, BORN, &mut Shapes::new(0), &mut Vec::new())
}

/// What becomes of a message on the long way.
fn long_way(replica: &mut Replica, bytes: &Bytes, received: u64) -> Result<Vec<Metric>, Unknown> {
    let mut inflated = Inflated::default();
    let payload = decode_ref(bytes, &Limits::default(), &mut inflated).expect("a payload");
    let timestamp = payload.timestamp.unwrap_or(received);
    replica.apply(&payload.metrics, timestamp, &mut Vec::new(), &mut Vec::new())
}

fn short_way(replica: &mut Replica, bytes: &Bytes, received: u64) -> Option<Vec<Metric>> {
    let mut changes = Vec::new();
    let head = replica.find_plain(bytes, &Limits::default(), &mut changes)?;
    assert_eq!(head.seq, Some(3));
    Some(replica.apply_plain(&changes, head.timestamp.unwrap_or(received)))
}

/// Metrics, whether they go by alias, and the timestamp of the payload.
type Data = (Vec<Metric>, bool, Option<u64>);

fn data() -> impl Strategy<Value = Data> {
    let one = (0..NAMES.len(), prop::option::weighted(0.9, any::<u64>()), prop::option::of(any::<u64>()), 0..20_u8);
    let metric = one.prop_map(|(column, number, timestamp, kind)| {
        let metric = Metric { timestamp, ..metric(column, number) };
        match kind {
            0 => metric.historical(),
            1 => Metric { is_transient: true, ..metric },
            2 => Metric { name: "Unknown".into(), ..metric },
            _ => metric,
        }
    });
    (prop::collection::vec(metric, 0..5), any::<bool>(), prop::option::of(any::<u64>()))
}

proptest! {
    #[test]
    fn the_short_way_leads_where_the_long_one_does(messages in prop::collection::vec(data(), 1..8)) {
        let metrics = (0..NAMES.len()).map(|column| metric(column, (column != 2).then_some(7))).collect();
        let birth = message(Form::Birth, metrics, true, Some(BORN));
        let (mut with, mut without) = (replica(&birth), replica(&birth));
        for (metrics, by_alias, timestamp) in messages {
            let says_more =
                metrics.iter().any(|m| m.is_historical || m.is_transient || m.value.is_none() || m.as_str().is_some());
            let bytes = message(Form::Data, metrics, by_alias, timestamp);
            let expected = long_way(&mut without, &bytes, BORN + 1);
            match short_way(&mut with, &bytes, BORN + 1) {
                Some(changed) => {
                    prop_assert!(!says_more);
                    prop_assert_eq!(Ok(changed), expected);
                }
                None => prop_assert_eq!(long_way(&mut with, &bytes, BORN + 1), expected),
            }
            prop_assert!(with.metrics().eq(without.metrics()));
        }
    }
}

#[test]
fn data_of_numbers_go_the_short_way_and_a_null_comes_back_to_life_on_it() {
    let born = vec![metric(5, None), metric(3, Some(1))];
    let mut replica = replica(&message(Form::Birth, born, true, Some(BORN)));
    assert_eq!(replica.get("Double").expect("born").value, None);
    for by_alias in [true, false] {
        let data = message(Form::Data, vec![metric(3, Some(u64::MAX)), metric(5, Some(2))], by_alias, None);
        let changed = short_way(&mut replica, &data, BORN + 5).expect("numbers");
        assert_eq!(changed[0], metric(3, Some(u64::MAX)).at(BORN + 5));
        assert_eq!(replica.get("Double"), Some(metric(5, Some(2)).at(BORN + 5)));
    }
}
