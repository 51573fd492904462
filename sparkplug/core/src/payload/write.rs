//! The messages of the schema, written straight from metrics, in the order of their fields' numbers.

use std::sync::Arc;

use super::array;
use super::sink::Sink;
use super::{Dialect, Form};
use crate::metric::{DataSet, DataType, MetaData, Metric, Properties, PropertyValue, Template, Value};

/// How metrics are written.
#[derive(Debug, Clone, Copy)]
pub(super) struct Style {
    pub form: Form,
    pub dialect: Dialect,
}

impl Style {
    const fn is_tahu(self) -> bool {
        matches!(self.dialect, Dialect::Tahu)
    }

    /// What a metric is declared as. The field holds the same number for all signed integers of up to 32 bits.
    fn number_of(self, datatype: DataType) -> u64 {
        let written = match datatype {
            // The receiver of a command knows its own types.
            DataType::Int8 | DataType::Int16 if self.is_tahu() && self.form != Form::Command => DataType::Int32,
            other => other,
        };
        written.to_wire().into()
    }
}

/// A metric as field 2 of a payload or a template. `properties`: write them, also when there is none.
#[inline]
pub(super) fn metric<S: Sink>(sink: &mut S, metric: &Metric, alias: Option<u64>, properties: bool, style: Style) {
    // tck-id-payloads-name-requirement: without an alias the name is always there.
    let name = (style.form == Form::Birth || alias.is_none() || style.is_tahu()).then_some(&*metric.name);
    let text = match &metric.value {
        Some(Value::String(text)) => text.len(),
        Some(Value::Bytes(bytes)) => bytes.len(),
        _ => 0,
    };
    sink.message(2, name.map_or(0, str::len) + text, |sink| {
        if let Some(name) = name {
            sink.slice(1, name.as_bytes());
        }
        if let Some(alias) = alias {
            sink.number(2, alias);
        }
        if let Some(timestamp) = metric.timestamp {
            sink.number(3, timestamp);
        }
        if style.form != Form::Data || style.is_tahu() {
            sink.number(4, style.number_of(metric.datatype));
        }
        if metric.is_historical {
            sink.flag(5, true);
        }
        if metric.is_transient {
            sink.flag(6, true);
        }
        if metric.value.is_none() {
            // tck-id-operational-behavior-data-publish-nbirth-values, tck-id-operational-behavior-data-publish-dbirth-values
            sink.flag(7, true);
        }
        if let Some(description) = &metric.metadata {
            sink.message(8, 0, |sink| metadata(sink, description));
        }
        if properties {
            sink.message(9, 0, |sink| property_set(sink, &metric.properties, style));
        }
        if let Some(content) = &metric.value {
            value(sink, content, style);
        }
    });
}

/// Bytes that a metric takes at most, if its value and its properties are basic and it has no description.
#[inline]
pub(super) fn plain_room(metric: &Metric) -> Option<usize> {
    /// Keys, numbers and lengths of a metric: two lengths of five bytes, three numbers of ten, flags, keys.
    const METRIC: usize = 56;
    /// Keys and lengths of a property, and a number.
    const PROPERTY: usize = 36;
    let text = |value: &Value| match value {
        Value::String(s) | Value::Text(s) | Value::Uuid(s) => Some(s.len()),
        other => other.datatype().is_basic().then_some(0),
    };
    let mut room = METRIC + metric.name.len();
    if let Some(value) = &metric.value {
        room += text(value)?;
    }
    if metric.metadata.is_some() {
        return None;
    }
    for (key, value) in metric.properties.iter() {
        room += PROPERTY + key.len();
        match value {
            PropertyValue::Value(value) => room += text(value)?,
            PropertyValue::Null(_) => {}
            PropertyValue::Set(_) | PropertyValue::List(_) => return None,
        }
    }
    Some(room)
}

#[inline]
fn value<S: Sink>(sink: &mut S, value: &Value, style: Style) {
    if !basic_value::<S, 10>(sink, value, style) {
        other_value(sink, value, style);
    }
}

#[inline(never)]
fn other_value<S: Sink>(sink: &mut S, value: &Value, style: Style) {
    fn packed<S: Sink, T: array::Packed>(sink: &mut S, elements: &[T]) {
        sink.filled(16, elements.len() * T::WIDTH, |out| array::pack(elements, out));
    }
    match value {
        Value::DataSet(table) => sink.message(17, 0, |sink| dataset(sink, table, style)),
        Value::Bytes(bytes) | Value::File(bytes) => sink.slice(16, bytes),
        Value::Template(content) => sink.message(18, 0, |sink| template(sink, content, style)),
        Value::Int8Array(a) => packed(sink, a),
        Value::Int16Array(a) => packed(sink, a),
        Value::Int32Array(a) => packed(sink, a),
        Value::Int64Array(a) => packed(sink, a),
        Value::UInt8Array(a) => sink.slice(16, a),
        Value::UInt16Array(a) => packed(sink, a),
        Value::UInt32Array(a) => packed(sink, a),
        Value::UInt64Array(a) | Value::DateTimeArray(a) => packed(sink, a),
        Value::FloatArray(a) => packed(sink, a),
        Value::DoubleArray(a) => packed(sink, a),
        Value::BooleanArray(a) => sink.filled(16, array::packed_booleans_len(a), |out| array::pack_booleans(a, out)),
        Value::StringArray(a) => sink.filled(16, array::packed_strings_len(a), |out| array::pack_strings(a, out)),
        // Those of basic values; see `basic_value`.
        _ => {}
    }
}

/// The field that carries a basic value, or a UUID; `FIRST` is the number of the first of the six, which have the same order in every oneof. False if the
/// value is none of those.
///
/// Integers travel unsigned: negative numbers travel as two's complement, sign-extended to the width of the field.
#[inline(always)]
fn basic_value<S: Sink, const FIRST: u32>(sink: &mut S, value: &Value, style: Style) -> bool {
    let mut int = |n: u32| sink.number(FIRST, n.into());
    match *value {
        Value::Int8(n) => int(i32::from(n).cast_unsigned()),
        Value::Int16(n) => int(i32::from(n).cast_unsigned()),
        Value::Int32(n) => int(n.cast_unsigned()),
        Value::UInt8(n) => int(n.into()),
        Value::UInt16(n) => int(n.into()),
        Value::UInt32(n) => sink.number(if style.is_tahu() { FIRST + 1 } else { FIRST }, n.into()),
        Value::Int64(n) => sink.number(FIRST + 1, n.cast_unsigned()),
        Value::UInt64(n) | Value::DateTime(n) => sink.number(FIRST + 1, n),
        Value::Float(x) => sink.fixed32(FIRST + 2, x.to_le_bytes()),
        Value::Double(x) => sink.fixed64(FIRST + 3, x.to_le_bytes()),
        Value::Boolean(b) => sink.flag(FIRST + 4, b),
        Value::String(ref s) | Value::Text(ref s) | Value::Uuid(ref s) => sink.slice(FIRST + 5, s.as_bytes()),
        _ => return false,
    }
    true
}

fn metadata<S: Sink>(sink: &mut S, metadata: &MetaData) {
    if let Some(is_multi_part) = metadata.is_multi_part {
        sink.flag(1, is_multi_part);
    }
    let text = |sink: &mut S, number, text: &Option<String>| {
        if let Some(text) = text {
            sink.slice(number, text.as_bytes());
        }
    };
    text(sink, 2, &metadata.content_type);
    if let Some(size) = metadata.size {
        sink.number(3, size);
    }
    if let Some(seq) = metadata.seq {
        sink.number(4, seq);
    }
    text(sink, 5, &metadata.file_name);
    text(sink, 6, &metadata.file_type);
    text(sink, 7, &metadata.md5);
    text(sink, 8, &metadata.description);
}

/// As many keys as values (tck-id-payloads-propertyset-keys-array-size, tck-id-payloads-propertyset-values-array-size), each with its type.
fn property_set<S: Sink>(sink: &mut S, properties: &Properties, style: Style) {
    for (key, _) in properties.iter() {
        sink.slice(1, key.as_bytes());
    }
    for (_, value) in properties.iter() {
        sink.message(2, 0, |sink| property(sink, value, style));
    }
}

#[inline]
fn property<S: Sink>(sink: &mut S, value: &PropertyValue, style: Style) {
    let datatype = match value {
        PropertyValue::Null(datatype) => *datatype,
        PropertyValue::Set(_) => DataType::PropertySet,
        PropertyValue::List(_) => DataType::PropertySetList,
        PropertyValue::Value(value) => value.datatype(),
    };
    sink.number(1, style.number_of(datatype));
    match value {
        PropertyValue::Null(_) => sink.flag(2, true),
        PropertyValue::Set(set) => sink.message(9, 0, |sink| property_set(sink, set, style)),
        PropertyValue::List(sets) => sink.message(10, 0, |sink| {
            for set in sets {
                sink.message(1, 0, |sink| property_set(sink, set, style));
            }
        }),
        PropertyValue::Value(value) => {
            if !basic_value::<S, 3>(sink, value, style) {
                sink.flag(2, true);
            }
        }
    }
}

/// Columns, types and their number agree by construction (tck-id-payloads-dataset-column-num-headers, tck-id-payloads-dataset-types-num,
/// tck-id-payloads-dataset-column-size).
fn dataset<S: Sink>(sink: &mut S, table: &DataSet, style: Style) {
    sink.number(1, table.columns.len() as u64);
    for (name, _) in &table.columns {
        sink.slice(2, name.as_bytes());
    }
    for (_, datatype) in &table.columns {
        sink.number(3, style.number_of(*datatype));
    }
    for row in &table.rows {
        sink.message(4, 0, |sink| {
            for cell in row {
                sink.message(1, 0, |sink| {
                    if let Some(value) = cell {
                        basic_value::<S, 1>(sink, value, style);
                    }
                });
            }
        });
    }
}

/// Members always have names and types, never aliases, whose meaning inside a template the standard leaves open.
fn template<S: Sink>(sink: &mut S, template: &Template, style: Style) {
    if let Some(version) = &template.version {
        sink.slice(1, version.as_bytes());
    }
    for member in &template.metrics {
        let style = Style { form: Form::Birth, ..style };
        metric(sink, member, None, !member.properties.is_empty(), style);
    }
    for parameter in &template.parameters {
        sink.message(3, 0, |sink| template_parameter(sink, parameter, style));
    }
    // tck-id-payloads-template-ref-definition, tck-id-payloads-template-definition-ref
    if let Some(reference) = template.template_ref.as_deref().filter(|_| !template.is_definition) {
        sink.slice(4, reference.as_bytes());
    }
    // tck-id-payloads-template-is-definition: present in both cases
    sink.flag(5, template.is_definition);
}

fn template_parameter<S: Sink>(
    sink: &mut S,
    (name, datatype, value): &(Arc<str>, DataType, Option<Value>),
    style: Style,
) {
    sink.slice(1, name.as_bytes());
    sink.number(2, style.number_of(*datatype));
    if let Some(value) = value {
        basic_value::<S, 3>(sink, value, style);
    }
}
