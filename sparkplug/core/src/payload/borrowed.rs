//! Payloads that borrow from their bytes: the way from the wire to a replica. One pass over the bytes checks everything, counts everything that decoding could cost
//! later, and keeps, for each metric, its numbers and where its texts are; the list of metrics is the only memory that it takes. What most metrics do not have (properties, tables,
//! templates, descriptions) stays as a range of bytes that is known to be sound, and is decoded when somebody asks for it.
//!
//! Of a field that may occur once and occurs more often, the last one counts.

use std::sync::Arc;

use super::check::{self, Budget};
use super::compression::{self, COMPRESSED};
use super::limits::{DecodeError, Limits};
use super::nested;
use super::value::{self, Carrier, MetricError, ValueField, basic};
use super::wire::{FIXED32, FIXED64, Fault, Fields, SLICE, VARINT, Wanted, key, short_key};
use crate::metric::{DataType, MetaData, Metric, Properties, Value};

/// A payload as it stands on the wire.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PayloadRef<'a> {
    /// UTC ms.
    pub timestamp: Option<u64>,
    /// `seq`, not yet checked for its range.
    pub seq: Option<u64>,
    /// Free for applications.
    pub uuid: Option<&'a str>,
    /// Free for applications.
    pub body: Option<&'a [u8]>,
    /// Metrics.
    pub metrics: Vec<MetricRef<'a>>,
}

/// A metric as it stands on the wire: names, types and values may be missing.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct MetricRef<'a> {
    /// Name, unless an alias stands in for it.
    pub name: Option<&'a str>,
    /// Alias.
    pub alias: Option<u64>,
    /// UTC ms.
    pub timestamp: Option<u64>,
    /// The value; None when the metric is null.
    pub value: Option<ValueRef<'a>>,
    /// None: not in the message, so unchanged; empty: there is none any more.
    pub properties: Option<PropertiesRef<'a>>,
    /// File and multi-part description.
    pub metadata: Option<MetaDataRef<'a>>,
    /// Datatype number, if the message tells it.
    pub datatype: Option<u32>,
    /// Not the current value.
    pub is_historical: bool,
    /// Not for historians.
    pub is_transient: bool,
}

/// The protobuf field of a value, with its content.
#[derive(Debug, Clone, Copy, PartialEq)]
#[expect(missing_docs, reason = "one variant a field of the oneof, named like it")]
pub enum ValueRef<'a> {
    Int(u32),
    Long(u64),
    Float(f32),
    Double(f64),
    Boolean(bool),
    String(&'a str),
    Bytes(&'a [u8]),
    DataSet(DataSetRef<'a>),
    Template(TemplateRef<'a>),
    Extension,
}

macro_rules! range {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq)]
        pub struct $name<'a>(pub(super) &'a [u8]);
    };
}
range!(
    /// Sound bytes of a `PropertySet`.
    PropertiesRef
);
range!(
    /// Sound bytes of a `MetaData`.
    MetaDataRef
);
range!(
    /// Sound bytes of a `DataSet`.
    DataSetRef
);
range!(
    /// Sound bytes of a `Template`.
    TemplateRef
);

impl PropertiesRef<'_> {
    /// The properties. Those of an unknown type are left out, and keys without a value; of a key that occurs more than once the last value counts.
    #[must_use]
    pub fn decode(&self) -> Properties {
        nested::properties(self.0)
    }
}

impl MetaDataRef<'_> {
    /// The description.
    #[must_use]
    pub fn decode(&self) -> MetaData {
        nested::metadata(self.0)
    }
}

/// Where the content of a compressed payload is while it is read. Empty, and without memory, for all others.
#[derive(Debug, Default)]
pub struct Inflated(pub(super) Vec<u8>);

/// Reads a payload without copying it; of a compressed one, what it carries: `seq` and `timestamp` from outside if they stand there, all else from inside.
///
/// ```
/// use sparkplug::payload::{Inflated, Limits, ValueRef, decode_ref};
///
/// let bytes = [0x18, 7, 0x12, 4, 0x10, 3, 0x50, 42];
/// let mut inflated = Inflated::default();
/// let payload = decode_ref(&bytes, &Limits::default(), &mut inflated)?;
/// assert_eq!((payload.seq, payload.metrics[0].alias), (Some(7), Some(3)));
/// assert_eq!(payload.metrics[0].value, Some(ValueRef::Int(42)));
/// # Ok::<(), sparkplug::payload::DecodeError>(())
/// ```
///
/// # Errors
/// [`DecodeError`] when the bytes are no payload or exceed `limits`.
pub fn decode_ref<'a>(
    bytes: &'a [u8],
    limits: &Limits,
    inflated: &'a mut Inflated,
) -> Result<PayloadRef<'a>, DecodeError> {
    let payload = read(bytes, limits)?;
    if payload.uuid == Some(COMPRESSED) {
        return compression::unwrap(&payload, limits, &mut inflated.0);
    }
    Ok(payload)
}

/// Reads a payload as it stands there, compressed or not.
pub(super) fn read<'a>(bytes: &'a [u8], limits: &Limits) -> Result<PayloadRef<'a>, DecodeError> {
    if bytes.len() > limits.bytes_max {
        return Err(DecodeError::TooLarge { bytes: bytes.len(), max: limits.bytes_max });
    }
    payload(bytes, limits).map_err(|fault| DecodeError::of(fault, limits))
}

fn payload<'a>(bytes: &'a [u8], limits: &Limits) -> Result<PayloadRef<'a>, Fault> {
    const TIMESTAMP: u32 = key(1, VARINT);
    const METRIC: u32 = key(2, SLICE);
    const SEQ: u32 = key(3, VARINT);
    const UUID: u32 = key(4, SLICE);
    const BODY: u32 = key(5, SLICE);
    const KNOWN: [Wanted; 5] = [Wanted::Number, Wanted::Bytes, Wanted::Number, Wanted::Bytes, Wanted::Bytes];
    let count = count_metrics(bytes, limits)?;
    let mut budget = Budget::new(limits);
    let mut payload = PayloadRef { metrics: Vec::with_capacity(count), ..PayloadRef::default() };
    let mut fields = Fields::new(bytes);
    while let Some(field) = fields.next_key()? {
        match field {
            METRIC => {
                let bytes = fields.slice()?;
                payload.metrics.push(MetricRef::default());
                if let Some(metric) = payload.metrics.last_mut() {
                    read_metric::<true>(metric, bytes, &mut budget, 1)?;
                }
            }
            TIMESTAMP => payload.timestamp = Some(fields.long()?),
            SEQ => payload.seq = Some(fields.long()?),
            UUID => payload.uuid = Some(fields.text()?),
            BODY => payload.body = Some(fields.slice()?),
            _ => fields.skip(field, &KNOWN)?,
        }
    }
    Ok(payload)
}

/// Hops from field to field, so that the list of metrics is allocated once, and only if there are not too many.
fn count_metrics(bytes: &[u8], limits: &Limits) -> Result<usize, Fault> {
    const METRIC: u32 = key(2, SLICE);
    let mut count = 0;
    let mut fields = Fields::new(bytes);
    while let Some(field) = fields.next_key()? {
        if field == METRIC {
            fields.slice()?;
            count += 1;
            if count > limits.metrics_max.min(limits.elements_max) {
                return Err(if count > limits.metrics_max { Fault::Metrics } else { Fault::Elements });
            }
        } else {
            fields.skip(field, &[])?;
        }
    }
    Ok(count)
}

/// Reads a metric. `CHECKED`: counts it, and checks its parts; otherwise that was done before.
pub(super) fn metric<'a, const CHECKED: bool>(
    bytes: &'a [u8],
    budget: &mut Budget,
    depth: usize,
) -> Result<MetricRef<'a>, Fault> {
    let mut metric = MetricRef::default();
    read_metric::<CHECKED>(&mut metric, bytes, budget, depth)?;
    Ok(metric)
}

/// Reads a metric into its place, which holds the default.
#[inline]
fn read_metric<'a, const CHECKED: bool>(
    metric: &mut MetricRef<'a>,
    bytes: &'a [u8],
    budget: &mut Budget,
    depth: usize,
) -> Result<(), Fault> {
    const NAME: u8 = short_key(1, SLICE);
    const ALIAS: u8 = short_key(2, VARINT);
    const TIMESTAMP: u8 = short_key(3, VARINT);
    const DATATYPE: u8 = short_key(4, VARINT);
    const INT: u8 = short_key(10, VARINT);
    const LONG: u8 = short_key(11, VARINT);
    const FLOAT: u8 = short_key(12, FIXED32);
    const DOUBLE: u8 = short_key(13, FIXED64);
    const BOOLEAN: u8 = short_key(14, VARINT);
    const STRING: u8 = short_key(15, SLICE);
    if CHECKED {
        budget.message(depth)?;
    }
    let mut is_null = false;
    let mut fields = Fields::new(bytes);
    loop {
        let before = fields.clone();
        match fields.short_key() {
            NAME => metric.name = Some(fields.text()?),
            ALIAS => metric.alias = Some(fields.long()?),
            TIMESTAMP => metric.timestamp = Some(fields.long()?),
            DATATYPE => metric.datatype = Some(fields.int()?),
            INT => metric.value = Some(ValueRef::Int(fields.int()?)),
            LONG => metric.value = Some(ValueRef::Long(fields.long()?)),
            FLOAT => metric.value = Some(ValueRef::Float(fields.float()?)),
            DOUBLE => metric.value = Some(ValueRef::Double(fields.double()?)),
            BOOLEAN => metric.value = Some(ValueRef::Boolean(fields.boolean()?)),
            STRING => metric.value = Some(ValueRef::String(fields.text()?)),
            _ => {
                fields = before;
                let Some(field) = fields.next_key()? else { break };
                is_null = rare::<CHECKED>(metric, &mut fields, field, budget, depth)?.unwrap_or(is_null);
            }
        }
    }
    if is_null {
        metric.value = None;
    }
    Ok(())
}

/// The fields that most metrics do not have. Yields `is_null` if that is the field.
#[inline(never)]
fn rare<'a, const CHECKED: bool>(
    metric: &mut MetricRef<'a>,
    fields: &mut Fields<'a>,
    field: u32,
    budget: &mut Budget,
    depth: usize,
) -> Result<Option<bool>, Fault> {
    const IS_HISTORICAL: u32 = key(5, VARINT);
    const IS_TRANSIENT: u32 = key(6, VARINT);
    const IS_NULL: u32 = key(7, VARINT);
    const METADATA: u32 = key(8, SLICE);
    const PROPERTIES: u32 = key(9, SLICE);
    const BYTES: u32 = key(16, SLICE);
    const DATASET: u32 = key(17, SLICE);
    const TEMPLATE: u32 = key(18, SLICE);
    const EXTENSION: u32 = key(19, SLICE);
    const KNOWN: [Wanted; 19] = {
        let mut known = [Wanted::Number; 19];
        let slices = [1, 8, 9, 15, 16, 17, 18, 19];
        let mut i = 0;
        while i < slices.len() {
            known[slices[i] - 1] = Wanted::Bytes;
            i += 1;
        }
        known[11] = Wanted::Float;
        known[12] = Wanted::Double;
        known
    };
    let mut part = |check: fn(&[u8], &mut Budget, usize) -> Result<(), Fault>| {
        let bytes = fields.slice()?;
        if CHECKED {
            check(bytes, budget, depth + 1)?;
        }
        Ok(bytes)
    };
    match field {
        PROPERTIES => metric.properties = Some(PropertiesRef(part(check::properties)?)),
        METADATA => metric.metadata = Some(MetaDataRef(part(check::metadata)?)),
        DATASET => metric.value = Some(ValueRef::DataSet(DataSetRef(part(check::dataset)?))),
        TEMPLATE => metric.value = Some(ValueRef::Template(TemplateRef(part(check::template)?))),
        IS_NULL => return fields.boolean().map(Some),
        IS_HISTORICAL => metric.is_historical = fields.boolean()?,
        IS_TRANSIENT => metric.is_transient = fields.boolean()?,
        BYTES => metric.value = Some(ValueRef::Bytes(fields.slice()?)),
        EXTENSION => {
            check::extension(fields.slice()?)?;
            metric.value = Some(ValueRef::Extension);
        }
        _ => fields.skip(field, &KNOWN)?,
    }
    Ok(None)
}

impl MetricRef<'_> {
    /// The datatype that the message declares.
    ///
    /// # Errors
    /// [`MetricError::UnknownDatatype`].
    pub fn declared_datatype(&self) -> Result<Option<DataType>, MetricError> {
        value::declared(self.datatype)
    }

    /// The datatype that the field of the value suggests, for names that no birth knows: Int32 for `int_value`, Int64 for `long_value`,
    /// String for `string_value`.
    #[must_use]
    pub const fn suggested_datatype(&self) -> Option<DataType> {
        match &self.value {
            Some(value) => value.value_field().suggested_datatype(),
            None => None,
        }
    }

    /// Declared, else suggested datatype.
    ///
    /// # Errors
    /// [`MetricError::UnknownDatatype`], [`MetricError::NoDatatype`].
    pub fn own_datatype(&self) -> Result<DataType, MetricError> {
        value::own_datatype(self.datatype, self.value.as_ref().map(ValueRef::value_field))
    }

    /// The metric that this is, given its name and datatype. `current`: the value that the receiver holds; it tells the types of template members that the message leaves out.
    ///
    /// # Errors
    /// [`MetricError`] when the value is none of that datatype.
    pub fn resolve(&self, name: Arc<str>, datatype: DataType, current: Option<&Value>) -> Result<Metric, MetricError> {
        Ok(Metric {
            name,
            datatype,
            value: match &self.value {
                Some(value) => Some(value.resolve(datatype, current)?),
                None => None,
            },
            timestamp: self.timestamp,
            properties: self.properties.map_or_else(Properties::new, |properties| properties.decode()),
            metadata: self.metadata.map(|metadata| Box::new(metadata.decode())),
            is_historical: self.is_historical,
            is_transient: self.is_transient,
        })
    }
}

impl ValueRef<'_> {
    /// Name of the protobuf field.
    #[must_use]
    pub const fn field(&self) -> &'static str {
        self.value_field().name()
    }

    const fn value_field(&self) -> ValueField {
        match self {
            Self::Int(_) => ValueField::Int,
            Self::Long(_) => ValueField::Long,
            Self::Float(_) => ValueField::Float,
            Self::Double(_) => ValueField::Double,
            Self::Boolean(_) => ValueField::Boolean,
            Self::String(_) => ValueField::String,
            Self::Bytes(_) => ValueField::Bytes,
            Self::DataSet(_) => ValueField::DataSet,
            Self::Template(_) => ValueField::Template,
            Self::Extension => ValueField::Extension,
        }
    }

    /// The value that this is in a metric of `datatype`; `current` as in [`MetricRef::resolve`].
    ///
    /// # Errors
    /// [`MetricError`] when the field does not carry that datatype, or its content is malformed.
    pub fn resolve(&self, datatype: DataType, current: Option<&Value>) -> Result<Value, MetricError> {
        let value = match *self {
            Self::Int(n) => basic(datatype, Carrier::<&str>::Int(n)),
            Self::Long(n) => basic(datatype, Carrier::<&str>::Long(n)),
            Self::Float(x) => basic(datatype, Carrier::<&str>::Float(x)),
            Self::Double(x) => basic(datatype, Carrier::<&str>::Double(x)),
            Self::Boolean(b) => basic(datatype, Carrier::<&str>::Boolean(b)),
            Self::String(s) if datatype == DataType::Uuid => Some(Value::Uuid(s.into())),
            Self::String(s) => basic(datatype, Carrier::String(s)),
            Self::Bytes(bytes) => value::of_bytes(datatype, bytes)?,
            Self::DataSet(DataSetRef(bytes)) if datatype == DataType::DataSet => {
                Some(Value::DataSet(Arc::new(nested::dataset(bytes)?)))
            }
            Self::Template(TemplateRef(bytes)) if datatype == DataType::Template => {
                Some(Value::Template(Arc::new(nested::template(bytes).resolve(current)?)))
            }
            Self::DataSet(_) | Self::Template(_) | Self::Extension => None,
        };
        value.ok_or_else(|| MetricError::ValueField { datatype, field: self.field() })
    }
}
