//! Bytes -> metrics as they stand on the wire, and from there, with the knowledge of a birth, to [`Metric`]s.
//!
//! Lenient where senders are known to differ: integers are taken from `int_value` and `long_value` alike and cut to the declared width; a missing datatype, an unknown
//! datatype or an unreadable value concerns one metric, not its neighbours.

use std::sync::Arc;

use bytes::Bytes;

use super::{array, compression, read};
use crate::metric::{DataSet, DataType, MetaData, Metric, Properties, Template, Value};

/// What is read at most; beyond it a payload is refused before anything is allocated for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the payload.
    pub bytes_max: usize,
    /// Bytes of what a compressed payload carries; inflating stops there.
    pub inflated_bytes_max: usize,
    /// Metrics of the payload.
    pub metrics_max: usize,
    /// Metrics, members, properties, rows and cells together.
    pub elements_max: usize,
    /// Messages within messages.
    pub depth_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            bytes_max: 1024 * 1024,
            inflated_bytes_max: 1024 * 1024,
            metrics_max: 100_000,
            elements_max: 250_000,
            depth_max: 24,
        }
    }
}

/// Why bytes are no payload.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Larger than [`Limits::bytes_max`].
    #[error("payload has {bytes} bytes; at most {max} are read")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// It is compressed, and larger than [`Limits::inflated_bytes_max`] when inflated.
    #[error("payload has more than {max} bytes when inflated")]
    InflatedTooLarge {
        /// The limit.
        max: usize,
    },
    /// It is marked as compressed, but what it carries cannot be had.
    #[error("payload is marked as compressed, but {reason}")]
    Compressed {
        /// The rule that it breaks.
        reason: String,
    },
    /// More metrics than [`Limits::metrics_max`].
    #[error("payload has more than {max} metrics")]
    TooManyMetrics {
        /// The limit.
        max: usize,
    },
    /// More elements than [`Limits::elements_max`].
    #[error("payload has more than {max} metrics, members, properties, rows and cells")]
    TooManyElements {
        /// The limit.
        max: usize,
    },
    /// Nested deeper than [`Limits::depth_max`].
    #[error("payload is nested deeper than {max} messages")]
    TooDeep {
        /// The limit.
        max: usize,
    },
    /// Not the protobuf message it should be.
    #[error("payload is not a Sparkplug B protobuf message: {reason}")]
    Protobuf {
        /// What the reader stumbled on.
        reason: String,
    },
}

impl DecodeError {
    pub(super) fn protobuf(reason: impl Into<String>) -> Self {
        Self::Protobuf { reason: reason.into() }
    }

    pub(super) fn cut_off() -> Self {
        Self::protobuf("it ends in the middle of a field")
    }
}

/// Why a metric of a payload cannot be given a meaning.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MetricError {
    /// The datatype is none of the standard's.
    #[error("datatype {number} is unknown")]
    UnknownDatatype {
        /// As on the wire.
        number: u32,
    },
    /// Neither birth nor message nor value tell the datatype.
    #[error("it has neither a datatype nor a value that tells one")]
    NoDatatype,
    /// The value stands in a field that this datatype does not use.
    #[error("a value of datatype {datatype:?} cannot be read from {field}")]
    ValueField {
        /// The datatype.
        datatype: DataType,
        /// The field of the protobuf oneof.
        field: &'static str,
    },
    /// The value breaks a rule of its datatype.
    #[error("value of datatype {datatype:?}: {rule}")]
    Malformed {
        /// The datatype.
        datatype: DataType,
        /// The rule.
        rule: &'static str,
    },
}

/// A payload as it stands on the wire.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RawPayload {
    /// UTC ms.
    pub timestamp: Option<u64>,
    /// `seq`, not yet checked for its range.
    pub seq: Option<u64>,
    /// Free for applications.
    pub uuid: Option<Arc<str>>,
    /// Free for applications.
    pub body: Option<Bytes>,
    /// Metrics.
    pub metrics: Vec<RawMetric>,
}

/// A metric as it stands on the wire: names, types and values may be missing.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RawMetric {
    /// Name, unless an alias stands in for it.
    pub name: Option<Arc<str>>,
    /// Alias.
    pub alias: Option<u64>,
    /// UTC ms.
    pub timestamp: Option<u64>,
    /// Datatype number, if the message tells it.
    pub datatype: Option<u32>,
    /// The value; None when the metric is null.
    pub value: Option<WireValue>,
    /// None: not in the message, so unchanged; empty: there is none any more. Properties of an unknown type are left out.
    pub properties: Option<Properties>,
    /// File and multi-part description.
    pub metadata: Option<Box<MetaData>>,
    /// Not the current value.
    pub is_historical: bool,
    /// Not for historians.
    pub is_transient: bool,
}

/// The protobuf field of a value, with its content.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "one variant a field of the oneof, named like it")]
pub enum WireValue {
    Int(u32),
    Long(u64),
    Float(f32),
    Double(f64),
    Boolean(bool),
    String(Arc<str>),
    Bytes(Arc<[u8]>),
    /// Tells its own types, so it is complete, or known to be broken.
    DataSet(Result<Arc<DataSet>, MetricError>),
    Template(Box<RawTemplate>),
    Extension,
}

/// A template as it stands on the wire.
#[derive(Debug, Clone, PartialEq, Default)]
#[expect(missing_docs, reason = "as in the resolved template")]
pub struct RawTemplate {
    pub version: Option<Arc<str>>,
    pub template_ref: Option<Arc<str>>,
    pub is_definition: Option<bool>,
    pub metrics: Vec<RawMetric>,
    pub parameters: Vec<(Arc<str>, DataType, Option<Value>)>,
}

/// Reads a payload; of a compressed one, what it carries: `seq` and `timestamp` from outside if they stand there, all else from inside.
///
/// # Errors
/// [`DecodeError`] when the bytes are no payload or exceed `limits`.
pub fn decode(bytes: &[u8], limits: &Limits) -> Result<RawPayload, DecodeError> {
    compression::unwrap(read::payload(bytes, limits)?, limits)
}

impl RawMetric {
    /// The datatype that the message declares.
    ///
    /// # Errors
    /// [`MetricError::UnknownDatatype`].
    pub fn declared_datatype(&self) -> Result<Option<DataType>, MetricError> {
        self.datatype
            .map(|number| DataType::from_wire(number).ok_or(MetricError::UnknownDatatype { number }))
            .transpose()
    }

    /// The datatype that the field of the value suggests, for names that no birth knows: Int32 for `int_value`, Int64 for `long_value`,
    /// String for `string_value`.
    #[must_use]
    pub const fn suggested_datatype(&self) -> Option<DataType> {
        Some(match self.value {
            Some(WireValue::Int(_)) => DataType::Int32,
            Some(WireValue::Long(_)) => DataType::Int64,
            Some(WireValue::Float(_)) => DataType::Float,
            Some(WireValue::Double(_)) => DataType::Double,
            Some(WireValue::Boolean(_)) => DataType::Boolean,
            Some(WireValue::String(_)) => DataType::String,
            Some(WireValue::Bytes(_)) => DataType::Bytes,
            Some(WireValue::DataSet(_)) => DataType::DataSet,
            Some(WireValue::Template(_)) => DataType::Template,
            Some(WireValue::Extension) | None => return None,
        })
    }

    /// Declared, else suggested datatype.
    ///
    /// # Errors
    /// [`MetricError::UnknownDatatype`], [`MetricError::NoDatatype`].
    pub fn own_datatype(&self) -> Result<DataType, MetricError> {
        match self.declared_datatype()? {
            Some(datatype) => Ok(datatype),
            None => self.suggested_datatype().ok_or(MetricError::NoDatatype),
        }
    }

    /// The metric that this is, given its name and datatype. `current`: the value that the receiver holds; it tells the types of template members that the message leaves out.
    ///
    /// # Errors
    /// [`MetricError`] when the value is none of that datatype.
    pub fn resolve(self, name: Arc<str>, datatype: DataType, current: Option<&Value>) -> Result<Metric, MetricError> {
        let value = self.value.map(|value| value.resolve(datatype, current)).transpose()?;
        Ok(Metric {
            name,
            datatype,
            value,
            timestamp: self.timestamp,
            properties: self.properties.unwrap_or_default(),
            metadata: self.metadata,
            is_historical: self.is_historical,
            is_transient: self.is_transient,
        })
    }
}

impl WireValue {
    /// Name of the protobuf field.
    #[must_use]
    pub const fn field(&self) -> &'static str {
        match self {
            Self::Int(_) => "int_value",
            Self::Long(_) => "long_value",
            Self::Float(_) => "float_value",
            Self::Double(_) => "double_value",
            Self::Boolean(_) => "boolean_value",
            Self::String(_) => "string_value",
            Self::Bytes(_) => "bytes_value",
            Self::DataSet(_) => "dataset_value",
            Self::Template(_) => "template_value",
            Self::Extension => "extension_value",
        }
    }

    /// The value that this is in a metric of `datatype`.
    ///
    /// # Errors
    /// [`MetricError`] when the field does not carry that datatype, or its content is malformed.
    pub fn resolve(self, datatype: DataType, current: Option<&Value>) -> Result<Value, MetricError> {
        use DataType as T;
        let field = self.field();
        let malformed = |rule| MetricError::Malformed { datatype, rule };
        let value = match (datatype, self) {
            (T::DataSet, Self::DataSet(table)) => Some(Value::DataSet(table?)),
            (T::Template, Self::Template(raw)) => Some(Value::Template(Arc::new(raw.resolve(current)?))),
            (T::Bytes, Self::Bytes(b)) => Some(Value::Bytes(b)),
            (T::File, Self::Bytes(b)) => Some(Value::File(b)),
            (_, Self::Bytes(b)) => array_value(datatype, &b).map_err(malformed)?,
            (T::Uuid, Self::String(s)) => Some(Value::Uuid(s)),
            (_, Self::Int(n)) => basic(datatype, Carrier::Int(n)),
            (_, Self::Long(n)) => basic(datatype, Carrier::Long(n)),
            (_, Self::Float(x)) => basic(datatype, Carrier::Float(x)),
            (_, Self::Double(x)) => basic(datatype, Carrier::Double(x)),
            (_, Self::Boolean(b)) => basic(datatype, Carrier::Boolean(b)),
            (_, Self::String(s)) => basic(datatype, Carrier::String(s)),
            (_, Self::DataSet(_) | Self::Template(_) | Self::Extension) => None,
        };
        value.ok_or(MetricError::ValueField { datatype, field })
    }
}

impl RawTemplate {
    fn resolve(self, current: Option<&Value>) -> Result<Template, MetricError> {
        let known = match current {
            Some(Value::Template(template)) => template.metrics.as_slice(),
            _ => &[],
        };
        let unnamed = MetricError::Malformed { datatype: DataType::Template, rule: "a member has no name" };
        let member = |raw: RawMetric| {
            let name = raw.name.clone().ok_or_else(|| unnamed.clone())?;
            let current = known.iter().find(|m| m.name == name);
            let datatype = match (raw.declared_datatype()?, current) {
                (Some(datatype), _) => datatype,
                (None, Some(known)) => known.datatype,
                (None, None) => raw.own_datatype()?,
            };
            raw.resolve(name, datatype, current.and_then(|m| m.value.as_ref()))
        };
        Ok(Template {
            version: self.version,
            is_definition: self.is_definition.unwrap_or(self.template_ref.is_none()),
            template_ref: self.template_ref,
            metrics: self.metrics.into_iter().map(member).collect::<Result<_, _>>()?,
            parameters: self.parameters,
        })
    }
}

/// Content of the protobuf fields that carry basic values.
pub(super) enum Carrier {
    Int(u32),
    Long(u64),
    Float(f32),
    Double(f64),
    Boolean(bool),
    String(Arc<str>),
}

impl Carrier {
    /// See [`RawMetric::suggested_datatype`].
    pub(super) const fn suggested_datatype(&self) -> DataType {
        match self {
            Self::Int(_) => DataType::Int32,
            Self::Long(_) => DataType::Int64,
            Self::Float(_) => DataType::Float,
            Self::Double(_) => DataType::Double,
            Self::Boolean(_) => DataType::Boolean,
            Self::String(_) => DataType::String,
        }
    }
}

/// A basic value (datatypes 1 to 14). Integers are cut to the declared width and then read as signed where the datatype says so: senders write
/// negative numbers sign-extended or in their own width.
#[expect(clippy::cast_possible_truncation, reason = "the rule is to cut")]
pub(super) fn basic(datatype: DataType, carrier: Carrier) -> Option<Value> {
    use DataType as T;
    let integer = match carrier {
        Carrier::Int(n) => Some(u64::from(n)),
        Carrier::Long(n) => Some(n),
        _ => None,
    };
    Some(match (datatype, integer, carrier) {
        (T::Int8, Some(n), _) => Value::Int8((n as u8).cast_signed()),
        (T::Int16, Some(n), _) => Value::Int16((n as u16).cast_signed()),
        (T::Int32, Some(n), _) => Value::Int32((n as u32).cast_signed()),
        // An Int64 in the narrow field keeps its sign as a 32-bit number.
        (T::Int64, _, Carrier::Int(n)) => Value::Int64(n.cast_signed().into()),
        (T::Int64, Some(n), _) => Value::Int64(n.cast_signed()),
        (T::UInt8, Some(n), _) => Value::UInt8(n as u8),
        (T::UInt16, Some(n), _) => Value::UInt16(n as u16),
        (T::UInt32, Some(n), _) => Value::UInt32(n as u32),
        (T::UInt64, Some(n), _) => Value::UInt64(n),
        (T::DateTime, Some(n), _) => Value::DateTime(n),
        (T::Float, _, Carrier::Float(x)) => Value::Float(x),
        (T::Double, _, Carrier::Double(x)) => Value::Double(x),
        (T::Double, _, Carrier::Float(x)) => Value::Double(x.into()),
        (T::Boolean, _, Carrier::Boolean(b)) => Value::Boolean(b),
        (T::String, _, Carrier::String(s)) => Value::String(s),
        (T::Text, _, Carrier::String(s)) => Value::Text(s),
        _ => return None,
    })
}

fn array_value(datatype: DataType, bytes: &[u8]) -> Result<Option<Value>, &'static str> {
    use DataType as T;
    Ok(Some(match datatype {
        T::Int8Array => Value::Int8Array(array::unpack(bytes)?),
        T::Int16Array => Value::Int16Array(array::unpack(bytes)?),
        T::Int32Array => Value::Int32Array(array::unpack(bytes)?),
        T::Int64Array => Value::Int64Array(array::unpack(bytes)?),
        T::UInt8Array => Value::UInt8Array(array::unpack(bytes)?),
        T::UInt16Array => Value::UInt16Array(array::unpack(bytes)?),
        T::UInt32Array => Value::UInt32Array(array::unpack(bytes)?),
        T::UInt64Array => Value::UInt64Array(array::unpack(bytes)?),
        T::FloatArray => Value::FloatArray(array::unpack(bytes)?),
        T::DoubleArray => Value::DoubleArray(array::unpack(bytes)?),
        T::BooleanArray => Value::BooleanArray(array::unpack_booleans(bytes)?),
        T::StringArray => Value::StringArray(array::unpack_strings(bytes)?),
        T::DateTimeArray => Value::DateTimeArray(array::unpack(bytes)?),
        _ => return Ok(None),
    }))
}
