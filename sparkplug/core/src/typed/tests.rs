//! A struct with every kind of entry: what is written is read, changes are smallest, and errors name metric and rule.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{Form, TypedMetrics, form};
use crate::metric::{DataSet, DataType, MetaData, Metric, Properties, Quality, Value};

#[derive(Debug, Clone, PartialEq, Default)]
struct Machine {
    name: String,
    load: i16,
    pressure: Option<f64>,
    door: Door,
    shift: Option<u32>,
    since: u64,
    ended: Option<u64>,
    id: u128,
}

#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Door {
    open: bool,
    moved: u64,
}

crate::typed_metrics! {
    Machine {
        (|_| "machine".into()) => "Properties/Kind",
        /// What it is called,
        /// by people.
        #[writable]
        name => "Name",
        #[properties("engUnit" = "%", "Quality" = Quality::Good)]
        load => "Load",
        #[metadata(MetaData { description: Some("at the inlet".to_owned()), ..MetaData::default() })]
        pressure => "Pressure/Inlet",
        #[at(door.moved)]
        door.open => "Door/Open",
        #[omit_null]
        shift => "Shift",
        #[only_if(|machine| machine.shift.is_some())]
        (|machine| Value::from(machine.load > 100)) => "Shift/Overload",
        since as form::DateTime => "Since",
        #[optional]
        ended as form::Nullable<form::DateTime> => "Ended",
        #[optional]
        id as form::UuidString => "Id",
    }
}

fn machine() -> impl Strategy<Value = Machine> {
    let door = any::<bool>().prop_map(|open| Door { open, moved: u64::from(open) + 7 });
    let fields = (".{0,4}", any::<i16>(), any::<Option<f64>>(), door, any::<Option<u32>>(), 0..3_u64);
    (fields, any::<Option<u64>>(), any::<u128>()).prop_map(|((name, load, pressure, door, shift, since), ended, id)| {
        Machine { name, load, pressure, door, shift, since, ended, id }
    })
}

proptest! {
    #[test]
    fn a_birth_and_the_changes_since_make_the_same_struct(a in machine(), b in machine()) {
        let mut read = Machine::from_metrics(&a.to_metrics()).unwrap();
        prop_assert_eq!(&read, &a);
        let changes = b.changes_since(&a);
        read.merge(&changes).unwrap();
        prop_assert_eq!(&read, &b);
        prop_assert_eq!(b.changes_since(&read), vec![]);
    }

    #[test]
    fn changes_are_the_metrics_of_the_birth_that_differ(a in machine(), b in machine()) {
        let (before, after) = (a.to_metrics(), b.to_metrics());
        // As text, because 0.0 and -0.0 are equal, but not the same on the wire.
        let value =
            |metrics: &[Metric], name: &str| metrics.iter().find(|m| &*m.name == name).map(|m| format!("{:?}", m.value));
        let differing: Vec<&Metric> =
            after.iter().filter(|m| value(&before, &m.name) != Some(format!("{:?}", m.value))).collect();
        let changes = b.changes_since(&a);
        let of_birth: Vec<&Metric> = changes.iter().filter(|m| value(&after, &m.name).is_some()).collect();
        prop_assert_eq!(of_birth, differing);
    }

    #[test]
    fn no_metrics_panic(names in prop::collection::vec(0..12_usize, 0..12), values in prop::collection::vec(any::<u8>(), 12)) {
        let value = |n: u8| match n % 5 {
            0 => None,
            1 => Some(Value::from(n > 99)),
            2 => Some(Value::from("text")),
            3 => Some(Value::from(i64::from(n) - 128)),
            _ => Some(Value::from(f64::from(n))),
        };
        let name = |at: usize| Machine::FIELDS.get(at).map_or("Other", super::Field::name);
        let metrics: Vec<Metric> = names
            .iter()
            .zip(values)
            .map(|(at, n)| Metric { value: value(n), ..Metric::null(name(*at), DataType::String) })
            .collect();
        if let Err(error) = Machine::from_metrics(&metrics) {
            prop_assert!(Machine::FIELDS.iter().any(|field| field.name() == error.metric));
        }
    }
}

#[test]
fn a_birth_has_names_types_properties_and_times() {
    let machine = Machine { door: Door { open: true, moved: 9 }, ..Machine::default() };
    let metrics = machine.to_metrics();
    let listed: Vec<String> = metrics.iter().map(|m| format!("{} {:?}", m.name, m.datatype)).collect();
    let expected = [
        "Properties/Kind String",
        "Name String",
        "Load Int16",
        "Pressure/Inlet Double",
        "Door/Open Boolean",
        "Since DateTime",
        "Ended DateTime",
        "Id String",
    ];
    assert_eq!(listed, expected);
    assert_eq!(
        metrics[2].properties,
        Properties::described(&[], true).with("engUnit", "%").with("Quality", Quality::Good)
    );
    assert_eq!(metrics[1].properties, Properties::described(&["What it is called, by people."], false));
    assert_eq!(metrics[3].metadata.as_ref().and_then(|m| m.description.as_deref()), Some("at the inlet"));
    assert_eq!((metrics[3].value.clone(), metrics[4].timestamp), (None, Some(9)));
    assert!(metrics.iter().all(|metric| metric.check().is_ok()));
}

#[test]
fn errors_name_the_metric_and_the_rule_and_change_nothing() {
    let mut machine = Machine { name: "a".to_owned(), ..Machine::default() };
    let before = machine.clone();
    for (metric, message) in [
        (Metric::new("Name", 1_u64), "metric \"Name\" must be a String, but is UInt64"),
        (Metric::null("Name", DataType::String), "metric \"Name\" must not be null"),
        (Metric::new("Load", 40_000_u32), "metric \"Load\" must fit into an Int16, but is 40000"),
        (Metric::new("Load", 1.5), "metric \"Load\" must be an Int16, but is Double"),
        (Metric::new("Since", "now"), "metric \"Since\" must be a DateTime, but is String"),
        (Metric::new("Id", "x"), "metric \"Id\" must be a UUID"),
    ] {
        let error = machine.merge(&[Metric::new("Name", "b"), metric]).unwrap_err();
        assert_eq!(error.to_string(), message);
        assert_eq!(machine, before);
    }
    let mut birth = machine.to_metrics();
    birth.retain(|metric| &*metric.name != "Load");
    assert_eq!(Machine::from_metrics(&birth).unwrap_err().to_string(), "metric \"Load\" is missing in the birth");
}

#[test]
fn a_count_is_a_uint64_of_any_width() {
    let read = |value: Value| <form::Count as Form<u8>>::read(Some(&value));
    assert_eq!(<form::Count as Form<u8>>::write(&7), Some(Value::UInt64(7)));
    assert_eq!((read(Value::UInt64(7)), read(Value::Int16(7))), (Ok(7), Ok(7)));
    assert_eq!(read(Value::UInt64(256)), Err("must fit into 8 bits, but is 256".to_owned()));
    assert_eq!(read("7".into()), Err("must be a UInt64, but is String".to_owned()));
}

struct Reasons;

impl form::Columns for Reasons {
    const KEY: &'static str = "Line";
    const VALUE: &'static str = "Reason";
}

#[test]
fn a_map_is_a_table_and_a_table_that_is_not_a_map_is_refused_by_its_column() {
    type Map = BTreeMap<u32, String>;
    let read = |value: Value| <form::Table<Reasons> as Form<Map>>::read(Some(&value));
    let map = Map::from([(1, "stopped".to_owned()), (2, String::new())]);
    let value = <form::Table<Reasons> as Form<Map>>::write(&map).unwrap();
    assert!(Metric::new("Lines", value.clone()).check().is_ok());
    assert_eq!(read(value), Ok(map));
    assert_eq!(<form::Table<Reasons> as Form<Map>>::write(&Map::new()).map(read), Some(Ok(Map::new())));
    assert_eq!(<form::Table<Reasons> as Form<Map>>::read(None), Ok(Map::new()));

    let columns = [("Reason", DataType::String), ("Since", DataType::DateTime), ("Line", DataType::String)];
    let row = |line: &str| DataSet::new(columns).with_row([Some("x".into()), None, Some(line.into())]);
    assert_eq!(read(row("7").into()), Ok(Map::from([(7, "x".to_owned())])));
    assert_eq!(read(row("a").into()), Err("column Line invalid digit found in string".to_owned()));
    let empty = DataSet::new(columns).with_row([None, None, Some("1".into())]);
    assert_eq!(read(empty.into()), Err("column Reason must not be null".to_owned()));
    assert_eq!(read(DataSet::new([("Line", DataType::String)]).into()), Err("has no column Reason".to_owned()));
    assert_eq!(read("{}".into()), Err("must be a DataSet, but is String".to_owned()));
}

#[test]
fn what_a_birth_may_lack_keeps_its_default_and_other_metrics_are_passed_over() {
    let full = Machine { name: "a".to_owned(), ended: Some(3), shift: Some(1), ..Machine::default() };
    let mut birth = full.to_metrics();
    birth.retain(|metric| !["Ended", "Shift"].contains(&&*metric.name));
    birth.push(Metric::new("Name", "old").historical());
    birth.push(Metric::new("Later", true));
    assert_eq!(Machine::from_metrics(&birth), Ok(Machine { ended: None, shift: None, ..full.clone() }));
    let other = Machine { ended: Some(5), ..Machine::default() };
    assert_eq!(other.born(&birth).map(|read| read.ended), Ok(Some(5)));
}

#[test]
fn other_widths_are_read_if_the_number_fits() {
    let mut machine = Machine::default();
    machine.merge(&[Metric::new("Load", -3_i64), Metric::new("Pressure/Inlet", 0.5_f32)]).unwrap();
    assert_eq!((machine.load, machine.pressure), (-3, Some(0.5)));
}
