//! What the standard says about tables, properties and templates, checked on the bytes as another implementation sees them.

use proto::sparkplug_b as wire;

use super::*;
use crate::metric::{DataSet, Properties, PropertyValue, Quality};

/// The one metric of a payload, as protobuf.
fn on_the_wire(metric: Metric, form: Form) -> wire::Metric {
    metric.check().expect("valid");
    let bytes = encode(&Payload { metrics: vec![metric], ..Payload::default() }, &EncodeOptions::new(form));
    let payload: wire::Payload = prost::Message::decode(&bytes[..]).expect("readable");
    payload.metrics.into_iter().next().expect("one metric")
}

fn table() -> DataSet {
    let columns = vec![
        (Arc::from("i"), DataType::Int8),
        (Arc::from("l"), DataType::UInt64),
        (Arc::from("f"), DataType::Float),
        (Arc::from("d"), DataType::Double),
        (Arc::from("b"), DataType::Boolean),
        (Arc::from("s"), DataType::Text),
    ];
    let row = vec![
        Some(Value::Int8(-1)),
        Some(Value::UInt64(2)),
        Some(Value::Float(0.5)),
        Some(Value::Double(0.25)),
        Some(Value::Boolean(true)),
        Some(Value::Text("t".into())),
    ];
    DataSet { columns, rows: vec![row, vec![None; 6]] }
}

/// tck-id-payloads-dataset-column-size, tck-id-payloads-dataset-column-num-headers, tck-id-payloads-dataset-types-def,
/// tck-id-payloads-dataset-types-num, tck-id-payloads-dataset-types-type, tck-id-payloads-dataset-types-value,
/// tck-id-payloads-dataset-parameter-type-req, tck-id-payloads-template-dataset-value
#[test]
fn a_table_has_its_columns_and_types_in_every_message() {
    use wire::data_set_value::Value as V;
    for form in [Form::Birth, Form::Data] {
        let metric = on_the_wire(Metric::new("t", Value::DataSet(Arc::new(table()))), form);
        let Some(wire::metric::Value::DataSet(table)) = metric.value else { panic!("no table") };
        assert_eq!(table.num_of_columns, Some(6));
        assert_eq!(table.columns, ["i", "l", "f", "d", "b", "s"]);
        assert_eq!(table.types, [1, 8, 9, 10, 11, 14]);
        let cells: Vec<Option<V>> = table.rows[0].elements.iter().map(|e| e.value.clone()).collect();
        let expected =
            [V::Int(u32::MAX), V::Long(2), V::Float(0.5), V::Double(0.25), V::Boolean(true), V::String("t".into())];
        assert_eq!(cells, expected.map(Some));
        assert!(table.rows[1].elements.len() == 6 && table.rows[1].elements.iter().all(|e| e.value.is_none()));
    }
}

/// tck-id-payloads-dataset-types-value
#[test]
fn a_table_of_other_types_or_ragged_rows_is_not_a_valid_metric() {
    let with = |change: fn(&mut DataSet)| {
        let mut table = table();
        change(&mut table);
        Metric::new("t", Value::DataSet(Arc::new(table))).check()
    };
    assert!(with(|_| {}).is_ok());
    assert!(with(|t| t.columns[0].1 = DataType::Uuid).is_err());
    assert!(with(|t| t.columns[0].1 = DataType::Int16).is_err());
    assert!(with(|t| t.rows[0].truncate(5)).is_err());
}

/// tck-id-payloads-propertyset-keys-array-size, tck-id-payloads-propertyset-values-array-size,
/// tck-id-payloads-metric-propertyvalue-type-type, tck-id-payloads-metric-propertyvalue-type-value,
/// tck-id-payloads-metric-propertyvalue-type-req
#[test]
fn properties_have_a_value_and_a_type_for_each_key() {
    let mut properties = Properties::new().with("int", 5i32).with("text", "t");
    properties.set("null", PropertyValue::Null(DataType::Double));
    properties.set("set", PropertyValue::Set(Properties::new().with("inner", true)));
    properties.set("list", PropertyValue::List(vec![Properties::new()]));
    for form in [Form::Birth, Form::Data] {
        let set = on_the_wire(Metric::new("m", 1u8).with_properties(properties.clone()), form)
            .properties
            .expect("properties");
        assert_eq!(set.keys, ["int", "text", "null", "set", "list"]);
        assert_eq!(set.values.iter().map(|v| v.datatype).collect::<Vec<_>>(), [3, 12, 10, 20, 21].map(Some));
        assert_eq!((set.values[2].is_null, &set.values[2].value), (Some(true), &None));
    }
    let uuid = Properties::new().with("id", Value::Uuid("x".into()));
    assert!(Metric::new("m", 1u8).with_properties(uuid).check().is_err());
}

/// tck-id-payloads-propertyset-quality-value-type, tck-id-payloads-propertyset-quality-value-value
#[test]
fn quality_is_an_int32_of_the_three_codes() {
    for (quality, code) in [(Quality::Bad, 0), (Quality::Good, 192), (Quality::Stale, 500)] {
        let properties = Properties::new().with(Quality::KEY, quality);
        let set =
            on_the_wire(Metric::new("m", 1u8).with_properties(properties), Form::Data).properties.expect("properties");
        assert_eq!((set.keys.as_slice(), set.values[0].datatype), (&["Quality".to_owned()][..], Some(3)));
        assert_eq!(set.values[0].value, Some(wire::property_value::Value::Int(code)));
    }
}

fn definition() -> Template {
    Template {
        version: Some("1".into()),
        template_ref: None,
        is_definition: true,
        metrics: vec![Metric::new("a", 1u8), Metric::null("b", DataType::String)],
        parameters: vec![
            (Arc::from("p"), DataType::Int32, Some(Value::Int32(7))),
            (Arc::from("q"), DataType::String, None),
        ],
    }
}

/// tck-id-payloads-template-definition-is-definition, tck-id-payloads-template-definition-ref,
/// tck-id-payloads-template-ref-definition, tck-id-payloads-template-is-definition, tck-id-payloads-template-is-definition-definition,
/// tck-id-payloads-template-version, tck-id-payloads-template-parameter-name-type,
/// tck-id-payloads-template-parameter-value-type, tck-id-payloads-template-parameter-type-value,
/// tck-id-payloads-template-parameter-type-req, tck-id-payloads-template-parameter-value,
/// tck-id-payloads-template-definition-parameters-default
#[test]
fn a_template_definition_says_so_and_types_its_parameters() {
    let metric = on_the_wire(Metric::new("T", Value::Template(Arc::new(definition()))), Form::Birth);
    let Some(wire::metric::Value::Template(template)) = metric.value else { panic!("no template") };
    assert_eq!(
        (template.is_definition, template.template_ref, template.version.as_deref()),
        (Some(true), None, Some("1"))
    );
    let parameters: Vec<_> = template.parameters.into_iter().map(|p| (p.name, p.datatype, p.value)).collect();
    let seven = wire::parameter::Value::Int(7);
    assert_eq!(parameters, [(Some("p".to_owned()), Some(3), Some(seven)), (Some("q".to_owned()), Some(12), None)]);
    assert_eq!(template.metrics.iter().map(|m| m.datatype).collect::<Vec<_>>(), [Some(5), Some(12)]);
}

/// tck-id-payloads-template-instance-is-definition, tck-id-payloads-template-instance-ref, tck-id-payloads-template-ref-instance,
/// tck-id-payloads-template-is-definition-instance, tck-id-payloads-template-instance-parameters
#[test]
fn a_template_instance_names_its_definition() {
    let parameters = vec![(Arc::from("p"), DataType::Int32, Some(Value::Int32(8)))];
    let instance = Template { is_definition: false, template_ref: Some("T".into()), parameters, ..definition() };
    let metric = on_the_wire(Metric::new("i", Value::Template(Arc::new(instance))), Form::Data);
    let Some(wire::metric::Value::Template(template)) = metric.value else { panic!("no template") };
    assert_eq!((template.is_definition, template.template_ref.as_deref()), (Some(false), Some("T")));
    assert_eq!(template.parameters[0].value, Some(wire::parameter::Value::Int(8)));
}

/// tck-id-payloads-template-parameter-name-required: none without one is written, none without one is taken.
#[test]
fn a_template_parameter_has_a_name() {
    let named = |name: &str| {
        let parameters = vec![(Arc::from(name), DataType::Int32, Some(Value::Int32(7)))];
        Metric::new("T", Value::Template(Arc::new(Template { parameters, ..definition() })))
    };
    assert_eq!(named("p").check(), Ok(()));
    assert_eq!(named("").check(), Err("a parameter of the template has no name"));
    let nameless = |name: Option<&str>| {
        let mut metric = on_the_wire(named("p"), Form::Birth);
        let Some(wire::metric::Value::Template(template)) = &mut metric.value else { panic!("no template") };
        template.parameters[0].name = name.map(str::to_owned);
        let bytes = prost::Message::encode_to_vec(&wire::Payload { metrics: vec![metric], ..Default::default() });
        let raw = decode(&bytes, &Limits::default()).expect("readable").metrics.remove(0);
        let Some(Value::Template(template)) =
            raw.resolve("T".into(), DataType::Template, None).expect("readable").value
        else {
            panic!("no template")
        };
        template.parameters.len()
    };
    assert_eq!([nameless(Some("p")), nameless(Some("")), nameless(None)], [1, 0, 0]);
}

/// tck-id-payloads-template-definition-ref, tck-id-payloads-template-instance-ref, tck-id-payloads-template-parameter-type-value
#[test]
fn a_template_that_contradicts_itself_is_not_a_valid_metric() {
    let check = |template: Template| Metric::new("t", Value::Template(Arc::new(template))).check();
    assert!(check(definition()).is_ok());
    assert!(check(Template { template_ref: Some("T".into()), ..definition() }).is_err());
    assert!(check(Template { is_definition: false, ..definition() }).is_err());
    assert!(check(Template { parameters: vec![(Arc::from("p"), DataType::Uuid, None)], ..definition() }).is_err());
}

/// tck-id-payloads-template-instance-members-data
#[test]
fn members_without_types_are_read_with_those_of_the_known_instance() {
    let known =
        Value::Template(Arc::new(Template { is_definition: false, template_ref: Some("T".into()), ..definition() }));
    let member =
        wire::Metric { name: Some("a".into()), value: Some(wire::metric::Value::Int(9)), ..Default::default() };
    let template = wire::Template {
        metrics: vec![member],
        template_ref: Some("T".into()),
        is_definition: Some(false),
        ..Default::default()
    };
    let metric = wire::Metric {
        name: Some("i".into()),
        value: Some(wire::metric::Value::Template(template)),
        ..Default::default()
    };
    let bytes = prost::Message::encode_to_vec(&wire::Payload { metrics: vec![metric], ..Default::default() });
    let raw = decode(&bytes, &Limits::default()).expect("readable").metrics.remove(0);
    let read = raw.resolve("i".into(), DataType::Template, Some(&known)).expect("readable");
    let Some(Value::Template(template)) = read.value else { panic!("no template") };
    assert_eq!(template.metrics, [Metric::new("a", 9u8)]);
}
