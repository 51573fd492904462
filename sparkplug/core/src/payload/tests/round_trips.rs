//! Generated payloads of every type: they come back, an independent implementation reads and writes the same, and damage never panics.

use proptest::prelude::*;
use protobuf::Message as _;
use sparkplug_rs::protobuf;

use super::*;
use crate::metric::{DataSet, MetaData, Properties, PropertyValue};

fn text() -> impl Strategy<Value = Arc<str>> {
    "[a-zA-Zäß/ ]{0,12}".prop_map(Arc::from)
}

fn basic_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<i8>().prop_map(Value::Int8),
        any::<i16>().prop_map(Value::Int16),
        any::<i32>().prop_map(Value::Int32),
        any::<i64>().prop_map(Value::Int64),
        any::<u8>().prop_map(Value::UInt8),
        any::<u16>().prop_map(Value::UInt16),
        any::<u32>().prop_map(Value::UInt32),
        any::<u64>().prop_map(Value::UInt64),
        any::<f32>().prop_map(Value::Float),
        any::<f64>().prop_map(Value::Double),
        any::<bool>().prop_map(Value::Boolean),
        text().prop_map(Value::String),
        any::<u64>().prop_map(Value::DateTime),
        text().prop_map(Value::Text),
    ]
}

fn array_value() -> impl Strategy<Value = Value> {
    fn some<T: std::fmt::Debug + Clone + 'static>(s: impl Strategy<Value = T> + 'static) -> BoxedStrategy<Arc<[T]>> {
        proptest::collection::vec(s, 0..20).prop_map(Arc::from).boxed()
    }
    prop_oneof![
        some(any::<i8>()).prop_map(Value::Int8Array),
        some(any::<i16>()).prop_map(Value::Int16Array),
        some(any::<i32>()).prop_map(Value::Int32Array),
        some(any::<i64>()).prop_map(Value::Int64Array),
        some(any::<u8>()).prop_map(Value::UInt8Array),
        some(any::<u16>()).prop_map(Value::UInt16Array),
        some(any::<u32>()).prop_map(Value::UInt32Array),
        some(any::<u64>()).prop_map(Value::UInt64Array),
        some(any::<f32>()).prop_map(Value::FloatArray),
        some(any::<f64>()).prop_map(Value::DoubleArray),
        some(any::<bool>()).prop_map(Value::BooleanArray),
        some(text()).prop_map(Value::StringArray),
        some(any::<u64>()).prop_map(Value::DateTimeArray),
        some(any::<u8>()).prop_map(Value::Bytes),
        some(any::<u8>()).prop_map(Value::File),
        text().prop_map(Value::Uuid),
    ]
}

fn table() -> impl Strategy<Value = Value> {
    let columns = proptest::collection::vec((text(), basic_value()), 0..4);
    (columns, 0usize..4, any::<u8>()).prop_map(|(columns, rows, nulls)| {
        let row: Vec<_> =
            columns.iter().enumerate().map(|(i, (_, v))| (nulls >> i & 1 == 0).then(|| v.clone())).collect();
        let columns = columns.iter().map(|(name, v)| (name.clone(), v.datatype())).collect();
        Value::DataSet(Arc::new(DataSet { columns, rows: vec![row; rows] }))
    })
}

fn properties() -> impl Strategy<Value = Properties> {
    let leaf = proptest::collection::vec((text(), basic_value(), any::<bool>()), 0..4).prop_map(|pairs| {
        let mut properties = Properties::new();
        for (key, value, null) in pairs {
            let value = if null { PropertyValue::Null(value.datatype()) } else { PropertyValue::Value(value) };
            properties.set(key, value);
        }
        properties
    });
    leaf.prop_recursive(2, 8, 2, |inner| {
        (inner.clone(), inner.clone(), inner).prop_map(|(mut outer, a, b)| {
            outer.set("set", PropertyValue::Set(a.clone()));
            outer.set("list", PropertyValue::List(vec![a, b]));
            outer
        })
    })
}

fn metadata() -> impl Strategy<Value = Option<Box<MetaData>>> {
    proptest::option::of((any::<Option<bool>>(), any::<Option<u64>>(), proptest::option::of("[a-z.]{0,9}")).prop_map(
        |(is_multi_part, size, name)| {
            Box::new(MetaData {
                is_multi_part,
                content_type: name.clone(),
                size,
                seq: size,
                file_name: name.clone(),
                file_type: name.clone(),
                md5: name.clone(),
                description: name,
            })
        },
    ))
}

fn metric_of(value: impl Strategy<Value = Value>) -> impl Strategy<Value = Metric> {
    (text(), value, any::<bool>(), any::<Option<u64>>(), properties(), metadata(), any::<(bool, bool)>()).prop_map(
        |(name, value, null, timestamp, properties, metadata, (is_historical, is_transient))| Metric {
            name,
            datatype: value.datatype(),
            value: (!null).then_some(value),
            timestamp,
            properties,
            metadata,
            is_historical,
            is_transient,
        },
    )
}

fn template() -> impl Strategy<Value = Value> {
    let member = metric_of(prop_oneof![basic_value(), table()]);
    (
        proptest::collection::vec(member, 0..4),
        // A parameter without a name is neither written nor taken.
        proptest::collection::vec((text().prop_map(|name| Arc::<str>::from(format!("p{name}"))), basic_value()), 0..3),
        any::<bool>(),
        text(),
    )
        .prop_map(|(metrics, parameters, is_definition, name)| {
            Value::Template(Arc::new(Template {
                version: Some(name.clone()),
                template_ref: (!is_definition).then_some(name),
                is_definition,
                metrics,
                parameters: parameters.into_iter().map(|(n, v)| (n, v.datatype(), Some(v))).collect(),
            }))
        })
}

fn payload() -> impl Strategy<Value = Payload> {
    let metric = metric_of(prop_oneof![4 => basic_value(), 3 => array_value(), 1 => table(), 1 => template()]);
    let uuid = proptest::option::of(text());
    let body = proptest::option::of(proptest::collection::vec(any::<u8>(), 0..9).prop_map(Bytes::from));
    (any::<Option<u64>>(), any::<Option<u64>>(), uuid, body, proptest::collection::vec(metric, 0..6))
        .prop_map(|(timestamp, seq, uuid, body, metrics)| Payload { timestamp, seq, uuid, body, metrics })
}

/// NaN is equal to itself here.
fn shown(payload: &Payload) -> String {
    format!("{payload:?}")
}

proptest! {
    #[test]
    fn every_payload_comes_back(payload in payload()) {
        prop_assert_eq!(shown(&round_trip(&payload)), shown(&payload));
    }

    /// Compressed or not, the reader says the same. The zeros make it shrink, whatever else there is.
    #[cfg(feature = "compression")]
    #[test]
    fn every_payload_comes_back_from_compression(payload in payload(), gzip in any::<bool>()) {
        let mut payload = payload;
        payload.metrics.push(Metric::new("zeros", Value::Bytes(vec![0; 2_000].into())));
        let algorithm = if gzip { CompressionAlgorithm::Gzip } else { CompressionAlgorithm::Deflate };
        let plain = encode(&payload, &EncodeOptions::new(Form::Birth));
        let outer = Compression { algorithm, bytes_min: 0 }.apply(&plain, 1, None).expect("it shrinks");
        let mut expected = decode(&plain, &Limits::default()).expect("readable");
        expected.timestamp = Some(1);
        prop_assert_eq!(format!("{:?}", decode(&outer, &Limits::default()).expect("readable")), format!("{expected:?}"));
    }

    /// Damage to compressed bytes never panics.
    #[cfg(feature = "compression")]
    #[test]
    fn damaged_compressed_payloads_never_panic(at in any::<proptest::sample::Index>(), byte in any::<u8>(), gzip in any::<bool>()) {
        let metrics = vec![Metric::new("zeros", Value::Bytes(vec![0; 2_000].into()))];
        let algorithm = if gzip { CompressionAlgorithm::Gzip } else { CompressionAlgorithm::Deflate };
        let plain = encode(&Payload { metrics, ..Payload::default() }, &EncodeOptions::new(Form::Birth));
        let mut outer = Compression { algorithm, bytes_min: 0 }.apply(&plain, 1, None).expect("it shrinks").to_vec();
        let i = at.index(outer.len());
        outer[i] = byte;
        let _ = decode(&outer, &Limits::default());
    }

    /// An independent implementation reads our bytes and writes them again; nothing gets lost on the way.
    #[test]
    fn another_implementation_reads_and_writes_the_same(payload in payload()) {
        let ours = encode(&payload, &EncodeOptions::new(Form::Birth));
        let theirs = sparkplug_rs::Payload::parse_from_bytes(&ours).expect("their reader takes our bytes");
        prop_assert_eq!(theirs.timestamp, payload.timestamp);
        prop_assert_eq!(theirs.seq, payload.seq);
        prop_assert_eq!(theirs.metrics.len(), payload.metrics.len());
        for (theirs, ours) in theirs.metrics.iter().zip(&payload.metrics) {
            prop_assert_eq!(theirs.name(), &*ours.name);
            prop_assert_eq!(theirs.datatype(), ours.datatype.to_wire());
            prop_assert_eq!(theirs.is_null(), ours.value.is_none());
            prop_assert!(theirs.special_fields.unknown_fields().iter().next().is_none());
        }
        let again = theirs.write_to_bytes().expect("their writer");
        let raw = decode(&again, &Limits::default()).expect("we read their bytes");
        prop_assert_eq!(format!("{raw:?}"), format!("{:?}", decode(&ours, &Limits::default()).expect("we read our bytes")));
    }

    /// Byte for byte, in every form, with aliases and without.
    #[test]
    fn the_writer_writes_what_generated_code_writes(payload in payload(), aliased in any::<Option<u64>>(), is_tahu in any::<bool>()) {
        let dialect = if is_tahu { Dialect::Tahu } else { Dialect::Strict };
        let alias = |_: &str| aliased;
        for form in [Form::Birth, Form::Data, Form::Command] {
            let ours = encode(&payload, &EncodeOptions { form, aliases: Some(&alias), dialect });
            let read: proto::sparkplug_b::Payload = prost::Message::decode(&ours[..]).expect("readable");
            prop_assert_eq!(prost::Message::encode_to_vec(&read), ours.to_vec());
            let theirs = sparkplug_rs::Payload::parse_from_bytes(&ours).expect("their reader takes our bytes");
            prop_assert_eq!(theirs.write_to_bytes().expect("their writer").len(), ours.len());
        }
    }

    #[test]
    fn memory_for_a_payload_is_taken_once(payload in payload(), alias in any::<Option<u64>>()) {
        for (form, dialect) in [Form::Birth, Form::Data].into_iter().flat_map(|f| [(f, Dialect::Strict), (f, Dialect::Tahu)]) {
            let frame = frame_bytes(payload.timestamp, payload.seq, payload.uuid.as_deref(), payload.body.as_deref());
            let metrics = payload.metrics.iter().map(|metric| (metric, alias));
            let room = payload_room(frame, metrics, form, dialect);
            let written = encode(&payload, &EncodeOptions { form, aliases: Some(&|_| alias), dialect });
            prop_assert!(written.len() <= room, "{} bytes, room for {room}", written.len());
            prop_assert!(payload.metrics.len() > 3 || written.len() == room, "{} bytes, room for {room}", written.len());
        }
    }

    /// What borrows means what owns.
    #[test]
    fn both_readers_resolve_the_same(payload in payload(), as_datatype in 1u32..35) {
        let bytes = encode(&payload, &EncodeOptions::new(Form::Birth));
        let mut inflated = Inflated::default();
        let borrowed = decode_ref(&bytes, &Limits::default(), &mut inflated).expect("readable");
        let owned = decode(&bytes, &Limits::default()).expect("readable");
        let datatype = DataType::from_wire(as_datatype).expect("a datatype");
        for (borrowed, owned) in borrowed.metrics.iter().zip(owned.metrics) {
            prop_assert_eq!(borrowed.own_datatype(), owned.own_datatype());
            for datatype in owned.own_datatype().into_iter().chain([datatype]) {
                let resolved = borrowed.resolve("m".into(), datatype, None);
                prop_assert_eq!(format!("{resolved:?}"), format!("{:?}", owned.clone().resolve("m".into(), datatype, None)));
            }
        }
    }

    #[test]
    fn the_size_of_a_metric_is_known_before_it_is_written(payload in payload()) {
        let mut encoder = Encoder::new(Form::Birth, Dialect::Strict, None);
        for metric in &payload.metrics {
            let before = encoder.len();
            encoder.metric(metric, Some(7), !metric.properties.is_empty());
            prop_assert_eq!(encoder.len() - before, metric_bytes(metric, Form::Birth, Some(7), Dialect::Strict));
        }
    }

    /// What prost's generated code makes of the same bytes.
    #[test]
    fn the_reader_agrees_with_generated_code(payload in payload()) {
        let bytes = encode(&payload, &EncodeOptions::new(Form::Birth));
        let ours = decode(&bytes, &Limits::default()).expect("readable");
        prop_assert_eq!(format!("{ours:?}"), format!("{:?}", prost_reader::decode(&bytes).expect("readable")));
    }

    /// Damaged bytes that we take are read as generated code reads them, with one exception. Of a message that occurs twice where the schema has it once, protobuf merges
    /// the two and we take the last. (It also skips groups, which we refuse.)
    #[test]
    fn the_reader_agrees_with_generated_code_on_damaged_bytes(payload in payload(), damage in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..3)) {
        let mut bytes = encode(&payload, &EncodeOptions::new(Form::Birth)).to_vec();
        for (at, byte) in damage {
            if !bytes.is_empty() {
                let i = at.index(bytes.len());
                bytes[i] = byte;
            }
        }
        let theirs = prost_reader::decode(&bytes);
        match decode(&bytes, &Limits::default()) {
            Ok(ours) => {
                let theirs = theirs.expect("what we take is protobuf");
                prop_assert_eq!((ours.timestamp, ours.seq, &ours.uuid, &ours.body), (theirs.timestamp, theirs.seq, &theirs.uuid, &theirs.body));
                prop_assert_eq!(ours.metrics.len(), theirs.metrics.len());
                for (ours, theirs) in ours.metrics.iter().zip(&theirs.metrics) {
                    prop_assert_eq!((&ours.name, ours.alias, ours.timestamp, ours.datatype), (&theirs.name, theirs.alias, theirs.timestamp, theirs.datatype));
                }
            }
            Err(DecodeError::Protobuf { reason }) if reason.contains("group") => {}
            Err(error) => prop_assert!(theirs.is_err(), "refused without need: {error}"),
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = decode_for_display(&bytes, &Limits::default());
    }

    #[test]
    fn damaged_payloads_never_panic(payload in payload(), at in any::<proptest::sample::Index>(), byte in any::<u8>(), cut in any::<proptest::sample::Index>()) {
        let mut bytes = encode(&payload, &EncodeOptions::new(Form::Birth)).to_vec();
        if !bytes.is_empty() {
            let i = at.index(bytes.len());
            bytes[i] = byte;
            bytes.truncate(cut.index(bytes.len() + 1));
        }
        if let Ok(raw) = decode(&bytes, &Limits::default()) {
            for metric in raw.metrics {
                for n in 0..40 {
                    if let Some(datatype) = DataType::from_wire(n) {
                        let _ = metric.clone().resolve("m".into(), datatype, None);
                    }
                }
            }
        }
    }
}
