//! The codec by example; generated payloads in `round_trips`, the rules of the standard about tables, properties and templates in `rules`.

use std::sync::Arc;

use super::*;
use crate::metric::{DataType, Template, Value};

#[cfg(feature = "compression")]
mod compressed;
mod prost_reader;
mod round_trips;
mod rules;

fn round_trip(payload: &Payload) -> Payload {
    let bytes = encode(payload, &EncodeOptions::new(Form::Birth));
    let raw = decode(&bytes, &Limits::default()).expect("own bytes are readable");
    let metrics = raw.metrics.into_iter().map(|raw| {
        let name = raw.name.clone().expect("births have names");
        let datatype = raw.declared_datatype().expect("births have known types").expect("births have types");
        raw.resolve(name, datatype, None).expect("own values are readable")
    });
    Payload { metrics: metrics.collect(), timestamp: raw.timestamp, seq: raw.seq, uuid: raw.uuid, body: raw.body }
}

fn bytes_of(value: Value) -> Vec<u8> {
    let payload = Payload { metrics: vec![Metric::new("m", value)], ..Payload::default() };
    let raw = decode(&encode(&payload, &EncodeOptions::new(Form::Birth)), &Limits::default()).expect("readable");
    match &raw.metrics[0].value {
        Some(WireValue::Bytes(bytes)) => bytes.to_vec(),
        other => panic!("not bytes: {other:?}"),
    }
}

mod arrays {
    use super::*;

    /// The examples of the standard, 6.4.17, with the corrections of its branch 3.x.
    #[test]
    fn are_packed_as_in_the_corrected_examples_of_the_standard() {
        let examples: Vec<(Value, &[u8])> = vec![
            (Value::Int8Array([-23, 123].into()), &[0xE9, 0x7B]),
            (Value::Int16Array([-30000, 30000].into()), &[0xD0, 0x8A, 0x30, 0x75]),
            (Value::Int32Array([-1, 315_338_746].into()), &[0xFF, 0xFF, 0xFF, 0xFF, 0xFA, 0xAF, 0xCB, 0x12]),
            (
                Value::Int64Array([-4_270_929_666_821_191_986, -3_601_064_768_563_266_876].into()),
                &[0xCE, 0x06, 0x72, 0xAC, 0x18, 0x9C, 0xBA, 0xC4, 0xC4, 0xBA, 0x9C, 0x18, 0xAC, 0x72, 0x06, 0xCE],
            ),
            (Value::UInt8Array([23, 250].into()), &[0x17, 0xFA]),
            (Value::UInt16Array([30, 52360].into()), &[0x1E, 0x00, 0x88, 0xCC]),
            (Value::UInt32Array([52, 3_293_969_225].into()), &[0x34, 0x00, 0x00, 0x00, 0x49, 0xFB, 0x55, 0xC4]),
            (Value::FloatArray([1.23, 89.341].into()), &[0xA4, 0x70, 0x9D, 0x3F, 0x98, 0xAE, 0xB2, 0x42]),
            (
                Value::DoubleArray([12.354213, 1022.9123213].into()),
                &[0xD7, 0xA2, 0x05, 0x68, 0x5B, 0xB5, 0x28, 0x40, 0x8E, 0x17, 0x1C, 0x6F, 0x4C, 0xF7, 0x8F, 0x40],
            ),
            (
                Value::BooleanArray(
                    [false, false, true, true, false, true, false, false, true, true, false, true].into(),
                ),
                &[0x0C, 0x00, 0x00, 0x00, 0x34, 0xD0],
            ),
            (
                Value::StringArray([Arc::from("ABC"), Arc::from("hello")].into()),
                &[0x41, 0x42, 0x43, 0x00, 0x68, 0x65, 0x6C, 0x6C, 0x6F, 0x00],
            ),
            (
                Value::DateTimeArray([1_256_102_875_335, 1_656_107_875_000].into()),
                &[0xC7, 0xD0, 0x90, 0x75, 0x24, 0x01, 0x00, 0x00, 0xB8, 0xBA, 0xB8, 0x97, 0x81, 0x01, 0x00, 0x00],
            ),
        ];
        for (value, bytes) in examples {
            assert_eq!(bytes_of(value.clone()), bytes, "{value:?}");
            let read = WireValue::Bytes(bytes.into()).resolve(value.datatype(), None).expect("readable");
            assert_eq!(read, value);
        }
    }

    #[test]
    fn of_eight_and_sixteen_booleans_keep_their_last_byte() {
        for count in [0, 1, 7, 8, 9, 16, 17] {
            let value = Value::BooleanArray((0..count).map(|i| i % 3 == 0).collect());
            let bytes = bytes_of(value.clone());
            assert_eq!(WireValue::Bytes(bytes.into()).resolve(DataType::BooleanArray, None), Ok(value));
        }
    }

    #[test]
    fn that_are_cut_off_are_refused() {
        for (datatype, bytes) in [
            (DataType::Int16Array, &[1u8, 2, 3][..]),
            (DataType::BooleanArray, &[1, 0, 0]),
            (DataType::BooleanArray, &[9, 0, 0, 0, 0xFF]),
            (DataType::StringArray, b"ABC"),
            (DataType::StringArray, &[0xFF, 0]),
        ] {
            let read = WireValue::Bytes(bytes.into()).resolve(datatype, None);
            assert!(matches!(read, Err(MetricError::Malformed { .. })), "{datatype:?}: {read:?}");
        }
    }
}

mod integers {
    use super::*;

    #[test]
    fn are_read_from_both_fields_and_in_both_signed_forms() {
        let minus_one = [
            (DataType::Int8, WireValue::Int(255), Value::Int8(-1)),
            (DataType::Int8, WireValue::Int(u32::MAX), Value::Int8(-1)),
            (DataType::Int16, WireValue::Int(65_535), Value::Int16(-1)),
            (DataType::Int16, WireValue::Long(u64::MAX), Value::Int16(-1)),
            (DataType::Int32, WireValue::Int(u32::MAX), Value::Int32(-1)),
            (DataType::Int64, WireValue::Long(u64::MAX), Value::Int64(-1)),
            (DataType::Int64, WireValue::Int(u32::MAX), Value::Int64(-1)),
            (DataType::UInt32, WireValue::Int(u32::MAX), Value::UInt32(u32::MAX)),
            (DataType::UInt32, WireValue::Long(u32::MAX.into()), Value::UInt32(u32::MAX)),
        ];
        for (datatype, wire, value) in minus_one {
            assert_eq!(wire.resolve(datatype, None), Ok(value));
        }
    }

    #[test]
    fn in_a_string_field_are_refused() {
        let read = WireValue::String("7".into()).resolve(DataType::Int32, None);
        assert_eq!(read, Err(MetricError::ValueField { datatype: DataType::Int32, field: "string_value" }));
    }
}

mod forms {
    use super::*;

    fn one(form: Form, alias: Option<u64>) -> RawMetric {
        let payload = Payload { metrics: vec![Metric::new("Temperature", 21.5f64).at(5)], ..Payload::default() };
        let lookup = move |_: &str| alias;
        let options = EncodeOptions { form, aliases: Some(&lookup), dialect: Dialect::Strict };
        let mut raw = decode(&encode(&payload, &options), &Limits::default()).expect("readable");
        assert_eq!(raw.metrics.len(), 1);
        raw.metrics.remove(0)
    }

    /// tck-id-payloads-alias-birth-requirement, tck-id-payloads-metric-datatype-req, tck-id-payloads-metric-datatype-value-type,
    /// tck-id-payloads-metric-datatype-value
    #[test]
    fn a_birth_carries_name_alias_and_datatype() {
        let metric = one(Form::Birth, Some(3));
        assert_eq!((metric.name.as_deref(), metric.alias, metric.datatype), (Some("Temperature"), Some(3), Some(10)));
    }

    /// tck-id-payloads-alias-data-cmd-requirement, tck-id-payloads-metric-datatype-not-req
    #[test]
    fn data_carries_the_alias_alone() {
        let metric = one(Form::Data, Some(3));
        assert_eq!((metric.name, metric.alias, metric.datatype), (None, Some(3), None));
    }

    /// tck-id-payloads-name-requirement
    #[test]
    fn without_an_alias_the_name_is_there() {
        let metric = one(Form::Data, None);
        assert_eq!((metric.name.as_deref(), metric.alias, metric.datatype), (Some("Temperature"), None, None));
        let metric = one(Form::Command, None);
        assert_eq!((metric.name.as_deref(), metric.alias, metric.datatype), (Some("Temperature"), None, Some(10)));
    }

    /// tck-id-payloads-sequence-num-always-included
    #[test]
    fn a_seq_of_zero_is_present() {
        let payload = Payload { seq: Some(0), timestamp: Some(0), ..Payload::default() };
        let bytes = encode(&payload, &EncodeOptions::new(Form::Data));
        assert_eq!(&bytes[..], &[0x08, 0, 0x18, 0]);
    }

    /// tck-id-operational-behavior-data-publish-nbirth-values, tck-id-operational-behavior-data-publish-dbirth-values
    #[test]
    fn null_is_marked_and_has_no_value() {
        let payload = Payload { metrics: vec![Metric::null("m", DataType::String)], ..Payload::default() };
        let bytes = encode(&payload, &EncodeOptions::new(Form::Birth));
        let wire = <proto::sparkplug_b::Payload as prost::Message>::decode(&bytes[..]).expect("readable");
        assert_eq!((wire.metrics[0].is_null, &wire.metrics[0].value), (Some(true), &None));
        assert_eq!(round_trip(&payload), payload);
    }
}

mod dialects {
    use super::*;
    use crate::metric::{DataSet, Properties};

    fn written(metric: Metric, form: Form, dialect: Dialect) -> proto::sparkplug_b::Metric {
        let payload = Payload { metrics: vec![metric], ..Payload::default() };
        let bytes =
            encode(&payload, &EncodeOptions { aliases: Some(&|_| Some(3)), dialect, ..EncodeOptions::new(form) });
        let mut wire = <proto::sparkplug_b::Payload as prost::Message>::decode(&bytes[..]).expect("readable");
        wire.metrics.remove(0)
    }

    #[test]
    fn in_that_of_tahu_data_say_name_and_datatype_beside_the_alias() {
        let metric = written(Metric::new("Temperature", 21.5), Form::Data, Dialect::Tahu);
        assert_eq!((metric.name.as_deref(), metric.alias, metric.datatype), (Some("Temperature"), Some(3), Some(10)));
    }

    #[test]
    fn uint32_is_in_the_wide_field_in_that_of_tahu_and_in_the_narrow_one_in_the_strict_one() {
        use proto::sparkplug_b::{data_set_value, metric, property_value};
        let table = DataSet { columns: vec![("n".into(), DataType::UInt32)], rows: vec![vec![Some(7_u32.into())]] };
        let unit = || Properties::new().with("unit", 7_u32);
        for form in [Form::Birth, Form::Data, Form::Command] {
            for (dialect, is_wide) in [(Dialect::Strict, false), (Dialect::Tahu, true)] {
                let number = written(Metric::new("m", 7_u32).with_properties(unit()), form, dialect);
                let value = if is_wide { metric::Value::Long(7) } else { metric::Value::Int(7) };
                assert_eq!(number.value, Some(value), "{form:?} {dialect}");
                let property = number.properties.expect("it has one").values.remove(0);
                let value = if is_wide { property_value::Value::Long(7) } else { property_value::Value::Int(7) };
                assert_eq!(property.value, Some(value), "{form:?} {dialect}");
                let table = written(Metric::new("t", Value::DataSet(Arc::new(table.clone()))), form, dialect);
                let Some(metric::Value::DataSet(table)) = table.value else { panic!("{table:?}") };
                let value = if is_wide { data_set_value::Value::Long(7) } else { data_set_value::Value::Int(7) };
                assert_eq!(table.rows[0].elements[0].value, Some(value), "{form:?} {dialect}");
            }
        }
    }

    #[test]
    fn narrow_signed_numbers_are_published_as_int32_in_that_of_tahu_but_commanded_as_what_they_are() {
        let minus_five = proto::sparkplug_b::metric::Value::Int((-5_i32).cast_unsigned());
        for (value, own) in [(Value::Int8(-5), 1), (Value::Int16(-5), 2)] {
            for (form, dialect, datatype) in [
                (Form::Birth, Dialect::Strict, Some(own)),
                (Form::Data, Dialect::Strict, None),
                (Form::Birth, Dialect::Tahu, Some(3)),
                (Form::Data, Dialect::Tahu, Some(3)),
                (Form::Command, Dialect::Tahu, Some(own)),
            ] {
                let metric = written(Metric::new("m", value.clone()), form, dialect);
                assert_eq!(
                    (metric.datatype, metric.value.as_ref()),
                    (datatype, Some(&minus_five)),
                    "{form:?} {dialect}"
                );
            }
        }
    }

    #[test]
    fn names_of_dialects_are_read_as_they_are_written() {
        for dialect in [Dialect::Strict, Dialect::Tahu] {
            assert_eq!(dialect.to_string().parse(), Ok(dialect));
        }
        let error = "java".parse::<Dialect>().expect_err("no dialect").to_string();
        assert_eq!(error, "\"java\" is not a dialect; write strict or tahu");
    }
}

mod tolerance {
    use super::*;

    #[test]
    fn unknown_fields_are_skipped() {
        let mut bytes =
            encode(&Payload { seq: Some(3), ..Payload::default() }, &EncodeOptions::new(Form::Data)).to_vec();
        bytes.extend_from_slice(&[0x9a, 0x06, 3, b'a', b'b', b'c', 0x98, 0x06, 7]);
        let raw = decode(&bytes, &Limits::default()).expect("readable");
        assert_eq!(raw, RawPayload { seq: Some(3), ..RawPayload::default() });
    }

    #[test]
    fn an_unknown_datatype_concerns_one_metric() {
        let mut wire = proto::sparkplug_b::Payload::default();
        for datatype in [99, 3] {
            wire.metrics.push(proto::sparkplug_b::Metric {
                name: Some(format!("m{datatype}")),
                datatype: Some(datatype),
                value: Some(proto::sparkplug_b::metric::Value::Int(5)),
                ..Default::default()
            });
        }
        let raw = decode(&prost::Message::encode_to_vec(&wire), &Limits::default()).expect("readable");
        assert_eq!(raw.metrics[0].declared_datatype(), Err(MetricError::UnknownDatatype { number: 99 }));
        assert_eq!(raw.metrics[1].declared_datatype(), Ok(Some(DataType::Int32)));
    }

    #[test]
    fn a_table_whose_lengths_differ_is_refused_alone() {
        use proto::sparkplug_b as wire;
        let table = wire::DataSet { num_of_columns: Some(2), columns: vec!["a".into()], types: vec![3], rows: vec![] };
        let metric = wire::Metric {
            name: Some("t".into()),
            value: Some(wire::metric::Value::DataSet(table)),
            ..Default::default()
        };
        let payload = wire::Payload { metrics: vec![metric], ..Default::default() };
        let raw = decode(&prost::Message::encode_to_vec(&payload), &Limits::default()).expect("readable");
        let metric = raw.metrics.into_iter().next().expect("one metric");
        assert!(matches!(metric.resolve("t".into(), DataType::DataSet, None), Err(MetricError::Malformed { .. })));
    }

    #[test]
    fn display_shows_what_the_message_holds() {
        let payload = Payload { seq: Some(1), metrics: vec![Metric::new("m", 5u16)], ..Payload::default() };
        let lookup = |_: &str| Some(9);
        let options = EncodeOptions { form: Form::Data, aliases: Some(&lookup), dialect: Dialect::Strict };
        let shown = decode_for_display(&encode(&payload, &options), &Limits::default()).expect("readable");
        assert_eq!((shown.seq, shown.metrics.len()), (Some(1), 1));
        let metric = &shown.metrics[0];
        assert_eq!((metric.name.as_deref(), metric.alias, &metric.value), (None, Some(9), &Some(Value::Int32(5))));
        assert_eq!(metric.problem, None);
    }
}

mod limits {
    use super::*;

    #[test]
    fn empty_metrics_are_counted_before_they_cost_memory() {
        let bytes = [0x12, 0x00].repeat(11);
        let limits = Limits { metrics_max: 10, ..Limits::default() };
        assert_eq!(decode(&bytes, &limits), Err(DecodeError::TooManyMetrics { max: 10 }));
        assert_eq!(decode(&bytes[..20], &limits).map(|p| p.metrics.len()), Ok(10));
    }

    #[test]
    fn nested_elements_are_counted_too() {
        let cells = [0x0a, 0x00].repeat(100);
        let row = [&[0x22, 200, 1][..], &cells].concat();
        let table = [&[0x8a, 0x01, 203, 1][..], &row].concat();
        let payload = [&[0x12, 207, 1][..], &table].concat();
        let limits = Limits { elements_max: 50, ..Limits::default() };
        assert_eq!(decode(&payload, &limits), Err(DecodeError::TooManyElements { max: 50 }));
        assert!(decode(&payload, &Limits::default()).is_ok());
    }

    #[test]
    fn nesting_is_bounded() {
        let mut template = Template { is_definition: true, ..Template::default() };
        for _ in 0..20 {
            let metrics = vec![Metric::new("t", Value::Template(Arc::new(template)))];
            template = Template { is_definition: true, metrics, ..Template::default() };
        }
        let payload =
            Payload { metrics: vec![Metric::new("t", Value::Template(Arc::new(template)))], ..Payload::default() };
        let bytes = encode(&payload, &EncodeOptions::new(Form::Birth));
        assert_eq!(decode(&bytes, &Limits::default()), Err(DecodeError::TooDeep { max: 24 }));
    }

    #[test]
    fn size_is_bounded() {
        let limits = Limits { bytes_max: 3, ..Limits::default() };
        assert_eq!(decode(&[0; 4], &limits), Err(DecodeError::TooLarge { bytes: 4, max: 3 }));
    }
}
