//! Metrics -> bytes.

use std::fmt;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use proto::sparkplug_b as wire;

use super::{Payload, array};
use crate::metric::{DataSet, DataType, MetaData, Metric, Properties, PropertyValue, Template, Value};

/// Which message a metric is written for; it decides what a metric carries besides timestamp and value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// NBIRTH, DBIRTH, NDEATH: name, alias if it has one, datatype, properties
    /// (tck-id-payloads-alias-birth-requirement, tck-id-payloads-metric-datatype-req).
    Birth,
    /// NDATA, DDATA: the alias if it has one, else the name; no datatype
    /// (tck-id-payloads-alias-data-cmd-requirement, tck-id-payloads-metric-datatype-not-req).
    Data,
    /// NCMD, DCMD: the alias if it has one, else the name; datatype, because receivers may not know the name.
    Command,
}

/// Alias of a name, if it has one.
pub type AliasOf<'a> = &'a dyn Fn(&str) -> Option<u64>;

/// How to write a payload.
#[derive(Clone, Copy)]
pub struct EncodeOptions<'a> {
    /// For which message.
    pub form: Form,
    /// Alias of a name. None: there are no aliases.
    pub aliases: Option<AliasOf<'a>>,
    /// Write UInt32 values into the protobuf field `long_value`, as Tahu's Java, C and JavaScript do, and not into `int_value`, as the standard says.
    /// Reading accepts both.
    pub uint32_as_long: bool,
}

impl EncodeOptions<'_> {
    /// No aliases, UInt32 as the standard says.
    #[must_use]
    pub const fn new(form: Form) -> Self {
        Self { form, aliases: None, uint32_as_long: false }
    }
}

impl fmt::Debug for EncodeOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EncodeOptions")
            .field("form", &self.form)
            .field("aliases", &self.aliases.is_some())
            .field("uint32_as_long", &self.uint32_as_long)
            .finish()
    }
}

/// Writes a whole payload. Properties that are empty are left out.
#[must_use]
pub fn encode(payload: &Payload, options: &EncodeOptions<'_>) -> Bytes {
    let mut encoder = Encoder::new(options.form, options.uint32_as_long, payload.timestamp);
    for metric in &payload.metrics {
        let alias = options.aliases.and_then(|alias| alias(&metric.name));
        encoder.metric(metric, alias, !metric.properties.is_empty());
    }
    encoder.finish(payload.seq, payload.uuid.as_ref(), payload.body.as_ref())
}

/// Writes a payload metric by metric.
#[derive(Debug)]
pub struct Encoder {
    form: Form,
    uint32_as_long: bool,
    timestamp: Option<u64>,
    buffer: BytesMut,
}

impl Encoder {
    /// Begins a payload; `timestamp` is UTC ms.
    #[must_use]
    pub fn new(form: Form, uint32_as_long: bool, timestamp: Option<u64>) -> Self {
        let mut buffer = BytesMut::new();
        if let Some(timestamp) = timestamp {
            prost::encoding::uint64::encode(1, &timestamp, &mut buffer);
        }
        Self { form, uint32_as_long, timestamp, buffer }
    }

    /// Adds a metric. `properties`: write them, also when there is none any more.
    pub fn metric(&mut self, metric: &Metric, alias: Option<u64>, properties: bool) {
        let metric = wire_metric(metric, self.form, alias, properties, self.uint32_as_long);
        prost::encoding::message::encode(2, &metric, &mut self.buffer);
    }

    /// The timestamp that it began with.
    #[must_use]
    pub const fn timestamp(&self) -> Option<u64> {
        self.timestamp
    }

    /// Bytes so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.buffer.len()
    }

    /// Whether nothing is written yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// Ends the payload. A `seq` of 0 is written like any other (tck-id-payloads-sequence-num-always-included).
    #[must_use]
    pub fn finish(mut self, seq: Option<u64>, uuid: Option<&Arc<str>>, body: Option<&Bytes>) -> Bytes {
        if let Some(seq) = seq {
            prost::encoding::uint64::encode(3, &seq, &mut self.buffer);
        }
        for (tag, field) in [(4, uuid.map(|u| u.as_bytes())), (5, body.map(|b| &b[..]))] {
            if let Some(field) = field {
                prost::encoding::encode_key(tag, prost::encoding::WireType::LengthDelimited, &mut self.buffer);
                prost::encoding::encode_varint(field.len() as u64, &mut self.buffer);
                self.buffer.put_slice(field);
            }
        }
        self.buffer.freeze()
    }
}

/// Bytes that a metric takes in a payload of this form, key and length included.
#[must_use]
pub fn metric_bytes(metric: &Metric, form: Form, alias: Option<u64>, uint32_as_long: bool) -> usize {
    let properties = !metric.properties.is_empty();
    prost::encoding::message::encoded_len(2, &wire_metric(metric, form, alias, properties, uint32_as_long))
}

fn wire_metric(
    metric: &Metric,
    form: Form,
    alias: Option<u64>,
    properties: bool,
    uint32_as_long: bool,
) -> wire::Metric {
    // tck-id-payloads-name-requirement: without an alias the name is always there.
    let named = form == Form::Birth || alias.is_none();
    wire::Metric {
        name: named.then(|| metric.name.to_string()),
        alias,
        timestamp: metric.timestamp,
        datatype: (form != Form::Data).then(|| metric.datatype.to_wire()),
        is_historical: metric.is_historical.then_some(true),
        is_transient: metric.is_transient.then_some(true),
        // tck-id-operational-behavior-data-publish-nbirth-values, tck-id-operational-behavior-data-publish-dbirth-values
        is_null: metric.value.is_none().then_some(true),
        metadata: metric.metadata.as_deref().map(|m| Box::new(wire_metadata(m))),
        properties: properties.then(|| wire_properties(&metric.properties)),
        value: metric.value.as_ref().map(|v| wire_value(v, uint32_as_long)),
    }
}

fn wire_value(value: &Value, uint32_as_long: bool) -> wire::metric::Value {
    use wire::metric::Value as W;
    match value {
        Value::DataSet(table) => W::DataSet(wire_dataset(table, uint32_as_long)),
        Value::Bytes(bytes) | Value::File(bytes) => W::Bytes(bytes.to_vec()),
        Value::Template(template) => W::Template(wire_template(template, uint32_as_long)),
        Value::Int8Array(a) => W::Bytes(array::pack(a)),
        Value::Int16Array(a) => W::Bytes(array::pack(a)),
        Value::Int32Array(a) => W::Bytes(array::pack(a)),
        Value::Int64Array(a) => W::Bytes(array::pack(a)),
        Value::UInt8Array(a) => W::Bytes(array::pack(a)),
        Value::UInt16Array(a) => W::Bytes(array::pack(a)),
        Value::UInt32Array(a) => W::Bytes(array::pack(a)),
        Value::UInt64Array(a) | Value::DateTimeArray(a) => W::Bytes(array::pack(a)),
        Value::FloatArray(a) => W::Bytes(array::pack(a)),
        Value::DoubleArray(a) => W::Bytes(array::pack(a)),
        Value::BooleanArray(a) => W::Bytes(array::pack_booleans(a)),
        Value::StringArray(a) => W::Bytes(array::pack_strings(a)),
        basic => match carrier(basic, uint32_as_long) {
            Some(Carrier::Int(n)) => W::Int(n),
            Some(Carrier::Long(n)) => W::Long(n),
            Some(Carrier::Float(x)) => W::Float(x),
            Some(Carrier::Double(x)) => W::Double(x),
            Some(Carrier::Boolean(b)) => W::Boolean(b),
            Some(Carrier::String(s)) => W::String(s.to_string()),
            None => W::Extension(wire::Extension {}),
        },
    }
}

/// The protobuf field that carries a basic value.
enum Carrier<'a> {
    Int(u32),
    Long(u64),
    Float(f32),
    Double(f64),
    Boolean(bool),
    String(&'a str),
}

/// Carriers are unsigned: negative numbers travel as two's complement, sign-extended to the width of the carrier.
fn carrier(value: &Value, uint32_as_long: bool) -> Option<Carrier<'_>> {
    Some(match *value {
        Value::Int8(n) => Carrier::Int(i32::from(n).cast_unsigned()),
        Value::Int16(n) => Carrier::Int(i32::from(n).cast_unsigned()),
        Value::Int32(n) => Carrier::Int(n.cast_unsigned()),
        Value::Int64(n) => Carrier::Long(n.cast_unsigned()),
        Value::UInt8(n) => Carrier::Int(n.into()),
        Value::UInt16(n) => Carrier::Int(n.into()),
        Value::UInt32(n) if uint32_as_long => Carrier::Long(n.into()),
        Value::UInt32(n) => Carrier::Int(n),
        Value::UInt64(n) | Value::DateTime(n) => Carrier::Long(n),
        Value::Float(x) => Carrier::Float(x),
        Value::Double(x) => Carrier::Double(x),
        Value::Boolean(b) => Carrier::Boolean(b),
        Value::String(ref s) | Value::Text(ref s) | Value::Uuid(ref s) => Carrier::String(s),
        _ => return None,
    })
}

fn wire_metadata(m: &MetaData) -> wire::MetaData {
    wire::MetaData {
        is_multi_part: m.is_multi_part,
        content_type: m.content_type.clone(),
        size: m.size,
        seq: m.seq,
        file_name: m.file_name.clone(),
        file_type: m.file_type.clone(),
        md5: m.md5.clone(),
        description: m.description.clone(),
    }
}

/// As many keys as values (tck-id-payloads-propertyset-keys-array-size, tck-id-payloads-propertyset-values-array-size), each with its type.
fn wire_properties(properties: &Properties) -> wire::PropertySet {
    let (keys, values) = properties.iter().map(|(key, value)| (key.to_owned(), wire_property(value))).unzip();
    wire::PropertySet { keys, values }
}

fn wire_property(value: &PropertyValue) -> wire::PropertyValue {
    use wire::property_value::Value as W;
    let (datatype, is_null, value) = match value {
        PropertyValue::Null(datatype) => (*datatype, Some(true), None),
        PropertyValue::Set(set) => (DataType::PropertySet, None, Some(W::Set(wire_properties(set)))),
        PropertyValue::List(sets) => {
            let sets = sets.iter().map(wire_properties).collect();
            (DataType::PropertySetList, None, Some(W::List(wire::PropertySetList { sets })))
        }
        PropertyValue::Value(value) => {
            let wired = carrier(value, false).map(|c| match c {
                Carrier::Int(n) => W::Int(n),
                Carrier::Long(n) => W::Long(n),
                Carrier::Float(x) => W::Float(x),
                Carrier::Double(x) => W::Double(x),
                Carrier::Boolean(b) => W::Boolean(b),
                Carrier::String(s) => W::String(s.to_owned()),
            });
            (value.datatype(), wired.is_none().then_some(true), wired)
        }
    };
    wire::PropertyValue { datatype: Some(datatype.to_wire()), is_null, value }
}

/// Columns, types and their number agree by construction (tck-id-payloads-dataset-column-num-headers, tck-id-payloads-dataset-types-num,
/// tck-id-payloads-dataset-column-size).
fn wire_dataset(table: &DataSet, uint32_as_long: bool) -> wire::DataSet {
    use wire::data_set_value::Value as W;
    let cell = |cell: &Option<Value>| wire::DataSetValue {
        value: cell.as_ref().and_then(|v| carrier(v, uint32_as_long)).map(|c| match c {
            Carrier::Int(n) => W::Int(n),
            Carrier::Long(n) => W::Long(n),
            Carrier::Float(x) => W::Float(x),
            Carrier::Double(x) => W::Double(x),
            Carrier::Boolean(b) => W::Boolean(b),
            Carrier::String(s) => W::String(s.to_owned()),
        }),
    };
    wire::DataSet {
        num_of_columns: Some(table.columns.len() as u64),
        columns: table.columns.iter().map(|(name, _)| name.to_string()).collect(),
        types: table.columns.iter().map(|(_, datatype)| datatype.to_wire()).collect(),
        rows: table.rows.iter().map(|row| wire::Row { elements: row.iter().map(cell).collect() }).collect(),
    }
}

/// Members always have names and types, never aliases, whose meaning inside a template the standard leaves open.
fn wire_template(template: &Template, uint32_as_long: bool) -> wire::Template {
    use wire::parameter::Value as W;
    let parameter = |(name, datatype, value): &(Arc<str>, DataType, Option<Value>)| wire::Parameter {
        name: Some(name.to_string()),
        datatype: Some(datatype.to_wire()),
        value: value.as_ref().and_then(|v| carrier(v, uint32_as_long)).map(|c| match c {
            Carrier::Int(n) => W::Int(n),
            Carrier::Long(n) => W::Long(n),
            Carrier::Float(x) => W::Float(x),
            Carrier::Double(x) => W::Double(x),
            Carrier::Boolean(b) => W::Boolean(b),
            Carrier::String(s) => W::String(s.to_owned()),
        }),
    };
    let member = |m: &Metric| wire_metric(m, Form::Birth, None, !m.properties.is_empty(), uint32_as_long);
    wire::Template {
        version: template.version.as_deref().map(str::to_owned),
        metrics: template.metrics.iter().map(member).collect(),
        parameters: template.parameters.iter().map(parameter).collect(),
        // tck-id-payloads-template-ref-definition, tck-id-payloads-template-definition-ref
        template_ref: template.template_ref.as_deref().filter(|_| !template.is_definition).map(str::to_owned),
        // tck-id-payloads-template-is-definition: present in both cases
        is_definition: Some(template.is_definition),
    }
}
