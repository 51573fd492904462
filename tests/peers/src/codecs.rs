//! The implementations, all behind one trait: bytes -> what the implementation hands its user, and back.

use std::sync::Arc;

use sparkplug::payload::{
    Dialect, Encoder, Form, Inflated, Limits, MetricRef, PayloadRef, RawPayload, ValueRef, WireValue, decode,
    decode_ref, frame_bytes, payload_room,
};
use sparkplug::{DataType, Properties, PropertyValue, Value};

use crate::content::{BasicValue, Case, Content, Metric};

/// An implementation. Made for one case, so that it can hold what it needs to know of the birth.
pub trait Codec {
    /// What it reads bytes into.
    type Read<'a>;
    /// What it writes bytes from.
    type Write;
    fn decode<'a>(&self, bytes: &'a [u8], room: &'a mut Room) -> Self::Read<'a>;
    /// Whether this is what the message says.
    fn agrees(&self, read: &Self::Read<'_>, case: &Case) -> bool;
    fn write(&self, case: &Case) -> Self::Write;
    fn encode(&self, message: &Self::Write) -> impl AsRef<[u8]>;
}

/// What readers that borrow may need beside the message. Nothing is put into it here: no message is compressed.
pub type Room = Inflated;

/// Two structs and two enums that all protobuf generators make of the schema, only with other names.
macro_rules! carriers {
    ($value:ident, $property:ident, $int:ident $long:ident $float:ident $double:ident $boolean:ident $string:ident) => {
        fn value(carrier: &BasicValue) -> $value {
            match carrier {
                BasicValue::Int(n) => $value::$int(*n),
                BasicValue::Long(n) => $value::$long(*n),
                BasicValue::Float(x) => $value::$float(*x),
                BasicValue::Double(x) => $value::$double(*x),
                BasicValue::Boolean(b) => $value::$boolean(*b),
                BasicValue::String(s) => $value::$string(s.clone()),
            }
        }

        fn property(carrier: &BasicValue) -> $property {
            match carrier {
                BasicValue::Int(n) => $property::$int(*n),
                BasicValue::Long(n) => $property::$long(*n),
                BasicValue::Float(x) => $property::$float(*x),
                BasicValue::Double(x) => $property::$double(*x),
                BasicValue::Boolean(b) => $property::$boolean(*b),
                BasicValue::String(s) => $property::$string(s.clone()),
            }
        }
    };
}

/// The structs of `proto`, written and read by prost alone.
pub mod plain {
    use prost::Message;
    use proto::sparkplug_b::metric::Value as V;
    use proto::sparkplug_b::property_value::Value as P;
    use proto::sparkplug_b::{Metric as Wire, Payload, PropertySet, PropertyValue};

    use super::{BasicValue, Case, Codec, Metric, Room};

    carriers!(V, P, Int Long Float Double Boolean String);

    pub struct Prost;

    impl Codec for Prost {
        type Read<'a> = Payload;
        type Write = Payload;

        fn decode<'a>(&self, bytes: &'a [u8], _room: &'a mut Room) -> Payload {
            Payload::decode(bytes).expect("the message is well-formed")
        }

        fn agrees(&self, read: &Payload, case: &Case) -> bool {
            *read == self.write(case)
        }

        fn write(&self, case: &Case) -> Payload {
            let content = &case.content;
            let metrics = content.metrics.iter().map(metric).collect();
            Payload { timestamp: content.timestamp, seq: content.seq, metrics, ..Payload::default() }
        }

        fn encode(&self, message: &Payload) -> impl AsRef<[u8]> {
            message.encode_to_vec()
        }
    }

    fn metric(metric: &Metric) -> Wire {
        let of = |(_, datatype, carrier): &(_, u32, BasicValue)| PropertyValue {
            datatype: Some(*datatype),
            is_null: None,
            value: Some(property(carrier)),
        };
        let set = || PropertySet {
            keys: metric.properties.iter().map(|(key, ..)| key.clone()).collect(),
            values: metric.properties.iter().map(of).collect(),
        };
        Wire {
            name: metric.name.clone(),
            alias: metric.alias,
            timestamp: metric.timestamp,
            datatype: metric.datatype,
            value: Some(value(&metric.value)),
            properties: (!metric.properties.is_empty()).then(set),
            ..Wire::default()
        }
    }
}

/// `srad-types`: structs generated for prost 0.13.
pub mod srad {
    use srad_types::payload::metric::Value as V;
    use srad_types::payload::property_value::Value as P;
    use srad_types::payload::{Message, Metric as Wire, Payload, PropertySet, PropertyValue};

    use super::{BasicValue, Case, Codec, Metric, Room};

    carriers!(V, P, IntValue LongValue FloatValue DoubleValue BooleanValue StringValue);

    pub struct Srad;

    impl Codec for Srad {
        type Read<'a> = Payload;
        type Write = Payload;

        fn decode<'a>(&self, bytes: &'a [u8], _room: &'a mut Room) -> Payload {
            Payload::decode(bytes).expect("the message is well-formed")
        }

        fn agrees(&self, read: &Payload, case: &Case) -> bool {
            *read == self.write(case)
        }

        fn write(&self, case: &Case) -> Payload {
            let content = &case.content;
            let metrics = content.metrics.iter().map(metric).collect();
            Payload { timestamp: content.timestamp, seq: content.seq, metrics, ..Payload::default() }
        }

        fn encode(&self, message: &Payload) -> impl AsRef<[u8]> {
            message.encode_to_vec()
        }
    }

    fn metric(metric: &Metric) -> Wire {
        let of = |(_, datatype, carrier): &(_, u32, BasicValue)| PropertyValue {
            r#type: Some(*datatype),
            is_null: None,
            value: Some(property(carrier)),
        };
        let set = || PropertySet {
            keys: metric.properties.iter().map(|(key, ..)| key.clone()).collect(),
            values: metric.properties.iter().map(of).collect(),
        };
        Wire {
            name: metric.name.clone(),
            alias: metric.alias,
            timestamp: metric.timestamp,
            datatype: metric.datatype,
            value: Some(value(&metric.value)),
            properties: (!metric.properties.is_empty()).then(set),
            ..Wire::default()
        }
    }
}

/// `sparkplug-rs`: structs generated for rust-protobuf 3.
pub mod sparkplug_rs_crate {
    use sparkplug_rs::Payload;
    use sparkplug_rs::payload::metric::Value as V;
    use sparkplug_rs::payload::property_value::Value as P;
    use sparkplug_rs::payload::{Metric as Wire, PropertySet, PropertyValue};
    use sparkplug_rs::protobuf::{Message, MessageField};

    use super::{BasicValue, Case, Codec, Metric, Room};

    carriers!(V, P, IntValue LongValue FloatValue DoubleValue BooleanValue StringValue);

    pub struct SparkplugRs;

    impl Codec for SparkplugRs {
        type Read<'a> = Payload;
        type Write = Payload;

        fn decode<'a>(&self, bytes: &'a [u8], _room: &'a mut Room) -> Payload {
            Payload::parse_from_bytes(bytes).expect("the message is well-formed")
        }

        fn agrees(&self, read: &Payload, case: &Case) -> bool {
            *read == self.write(case)
        }

        fn write(&self, case: &Case) -> Payload {
            let content = &case.content;
            let metrics = content.metrics.iter().map(metric).collect();
            Payload { timestamp: content.timestamp, seq: content.seq, metrics, ..Payload::default() }
        }

        fn encode(&self, message: &Payload) -> impl AsRef<[u8]> {
            message.write_to_bytes().expect("the message can be written")
        }
    }

    fn metric(metric: &Metric) -> Wire {
        let of = |(_, datatype, carrier): &(_, u32, BasicValue)| PropertyValue {
            type_: Some(*datatype),
            value: Some(property(carrier)),
            ..PropertyValue::default()
        };
        let set = || PropertySet {
            keys: metric.properties.iter().map(|(key, ..)| key.clone()).collect(),
            values: metric.properties.iter().map(of).collect(),
            ..PropertySet::default()
        };
        Wire {
            name: metric.name.clone(),
            alias: metric.alias,
            timestamp: metric.timestamp,
            datatype: metric.datatype,
            value: Some(value(&metric.value)),
            properties: (!metric.properties.is_empty()).then(set).map_or_else(MessageField::none, MessageField::some),
            ..Wire::default()
        }
    }
}

/// Ours, borrowed from the bytes, as far as the message explains itself.
pub struct Borrowed(pub Resolved);

/// Ours, with a copy of everything: what the peers hand out.
pub struct Owned(pub Resolved);

/// Ours, resolved with the names and datatypes of the birth: typed values under their names, as an application gets them.
#[derive(Clone)]
pub struct Resolved {
    /// Name and datatype of every alias, in the order of the aliases.
    born: Vec<(u64, Arc<str>, DataType)>,
}

impl Resolved {
    /// `birth`: the message that says what aliases stand for.
    pub fn knowing(birth: &Content) -> Self {
        let slot = |metric: &Metric| {
            let datatype = metric.datatype.and_then(DataType::from_wire).expect("a birth has datatypes");
            let name = Arc::from(metric.name.as_deref().expect("a birth has names"));
            Some((metric.alias?, name, datatype))
        };
        let mut born: Vec<_> = birth.metrics.iter().filter_map(slot).collect();
        born.sort_unstable_by_key(|(alias, ..)| *alias);
        Self { born }
    }

    fn of_alias(&self, alias: Option<u64>) -> (Arc<str>, DataType) {
        let alias = alias.expect("data without a name has an alias");
        let at = self.born.binary_search_by_key(&alias, |(alias, ..)| *alias).expect("every alias is in the birth");
        (self.born[at].1.clone(), self.born[at].2)
    }

    fn typed(&self, metric: &Metric) -> sparkplug::Metric {
        let (name, datatype) = match (&metric.name, metric.datatype.and_then(DataType::from_wire)) {
            (Some(name), Some(datatype)) => (Arc::from(name.as_str()), datatype),
            _ => self.of_alias(metric.alias),
        };
        let mut properties = Properties::new();
        for (key, datatype, carrier) in &metric.properties {
            let datatype = DataType::from_wire(*datatype).expect("a property has a datatype");
            properties.set(key.as_str(), PropertyValue::Value(typed(datatype, carrier)));
        }
        sparkplug::Metric {
            timestamp: metric.timestamp,
            ..sparkplug::Metric::new(name, typed(datatype, &metric.value)).with_properties(properties)
        }
    }

    fn resolve(&self, raw: &MetricRef<'_>) -> sparkplug::Metric {
        let (name, datatype) = match raw.name {
            Some(name) => (Arc::from(name), raw.own_datatype().expect("a birth has datatypes")),
            None => self.of_alias(raw.alias),
        };
        raw.resolve(name, datatype, None).expect("the value has the datatype of the birth")
    }
}

fn typed(datatype: DataType, carrier: &BasicValue) -> Value {
    wire(carrier).resolve(datatype, None).expect("the value has its datatype")
}

fn wire(carrier: &BasicValue) -> WireValue {
    match carrier {
        BasicValue::Int(n) => WireValue::Int(*n),
        BasicValue::Long(n) => WireValue::Long(*n),
        BasicValue::Float(x) => WireValue::Float(*x),
        BasicValue::Double(x) => WireValue::Double(*x),
        BasicValue::Boolean(b) => WireValue::Boolean(*b),
        BasicValue::String(s) => WireValue::String(s.as_str().into()),
    }
}

fn borrowed(carrier: &BasicValue) -> ValueRef<'_> {
    match carrier {
        BasicValue::Int(n) => ValueRef::Int(*n),
        BasicValue::Long(n) => ValueRef::Long(*n),
        BasicValue::Float(x) => ValueRef::Float(*x),
        BasicValue::Double(x) => ValueRef::Double(*x),
        BasicValue::Boolean(b) => ValueRef::Boolean(*b),
        BasicValue::String(s) => ValueRef::String(s),
    }
}

/// What ours writes from: typed metrics, each with its alias, and what else the machines say.
pub struct Written {
    form: Form,
    timestamp: Option<u64>,
    seq: Option<u64>,
    metrics: Vec<(sparkplug::Metric, Option<u64>)>,
}

impl Codec for Borrowed {
    type Read<'a> = PayloadRef<'a>;
    type Write = Written;

    fn decode<'a>(&self, bytes: &'a [u8], room: &'a mut Room) -> PayloadRef<'a> {
        decode_ref(bytes, &Limits::default(), room).expect("the message is well-formed")
    }

    fn agrees(&self, read: &PayloadRef<'_>, case: &Case) -> bool {
        let same = |(read, metric): (&MetricRef<'_>, &Metric)| {
            let properties = read.properties.map(|properties| properties.decode());
            let expected = MetricRef {
                name: metric.name.as_deref(),
                alias: metric.alias,
                timestamp: metric.timestamp,
                datatype: metric.datatype,
                value: Some(borrowed(&metric.value)),
                properties: read.properties,
                ..MetricRef::default()
            };
            *read == expected && properties.unwrap_or_default() == self.0.typed(metric).properties
        };
        let content = &case.content;
        (read.timestamp, read.seq, read.metrics.len()) == (content.timestamp, content.seq, content.metrics.len())
            && read.metrics.iter().zip(&content.metrics).all(same)
    }

    fn write(&self, case: &Case) -> Written {
        self.0.write(case)
    }

    fn encode(&self, message: &Written) -> impl AsRef<[u8]> {
        self.0.encode(message)
    }
}

impl Codec for Owned {
    type Read<'a> = RawPayload;
    type Write = Written;

    fn decode<'a>(&self, bytes: &'a [u8], _room: &'a mut Room) -> RawPayload {
        decode(bytes, &Limits::default()).expect("the message is well-formed")
    }

    fn agrees(&self, read: &RawPayload, case: &Case) -> bool {
        let metric = |metric: &Metric| sparkplug::payload::RawMetric {
            name: metric.name.as_deref().map(Arc::from),
            alias: metric.alias,
            timestamp: metric.timestamp,
            datatype: metric.datatype,
            value: Some(wire(&metric.value)),
            properties: (!metric.properties.is_empty()).then(|| self.0.typed(metric).properties),
            ..Default::default()
        };
        let content = &case.content;
        let metrics = content.metrics.iter().map(metric).collect();
        *read == RawPayload { timestamp: content.timestamp, seq: content.seq, metrics, ..RawPayload::default() }
    }

    fn write(&self, case: &Case) -> Written {
        self.0.write(case)
    }

    fn encode(&self, message: &Written) -> impl AsRef<[u8]> {
        self.0.encode(message)
    }
}

impl Codec for Resolved {
    type Read<'a> = (Option<u64>, Option<u64>, Vec<sparkplug::Metric>);
    type Write = Written;

    fn decode<'a>(&self, bytes: &'a [u8], room: &'a mut Room) -> Self::Read<'a> {
        let payload = decode_ref(bytes, &Limits::default(), room).expect("the message is well-formed");
        let metrics = payload.metrics.iter().map(|raw| self.resolve(raw)).collect();
        (payload.timestamp, payload.seq, metrics)
    }

    fn agrees(&self, (timestamp, seq, metrics): &Self::Read<'_>, case: &Case) -> bool {
        let content = &case.content;
        let expected = content.metrics.iter().map(|metric| self.typed(metric));
        (*timestamp, *seq) == (content.timestamp, content.seq) && metrics.iter().cloned().eq(expected)
    }

    fn write(&self, case: &Case) -> Written {
        let content = &case.content;
        Written {
            form: if case.is_birth { Form::Birth } else { Form::Data },
            timestamp: content.timestamp,
            seq: content.seq,
            metrics: content.metrics.iter().map(|metric| (self.typed(metric), metric.alias)).collect(),
        }
    }

    fn encode(&self, message: &Written) -> impl AsRef<[u8]> {
        let frame = frame_bytes(message.timestamp, message.seq, None, None);
        let metrics = message.metrics.iter().map(|(metric, alias)| (metric, *alias));
        let bytes = payload_room(frame, metrics, message.form, Dialect::Strict);
        let mut encoder = Encoder::with_capacity(message.form, Dialect::Strict, message.timestamp, bytes);
        for (metric, alias) in &message.metrics {
            encoder.metric(metric, *alias, !metric.properties.is_empty());
        }
        encoder.finish(message.seq, None, None)
    }
}
