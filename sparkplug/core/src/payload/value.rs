//! Content of a protobuf field and a datatype -> [`Value`].
//!
//! Lenient where senders are known to differ: integers are taken from `int_value` and `long_value` alike and cut to the declared width.

use std::sync::Arc;

use super::basic_value::BasicValue;
use super::{array, number};
use crate::metric::{DataType, Value};

/// Why a metric of a payload cannot be given a meaning.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MetricError {
    /// The datatype is none of the standard's.
    #[error("datatype {number} is unknown")]
    UnknownDatatype {
        /// As on the wire.
        number: u32,
    },
    /// Neither birth nor message nor value give the datatype.
    #[error("it has neither a datatype nor a value that implies one")]
    NoDatatype,
    /// The value is in a field that this datatype does not use.
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

/// The protobuf field in which the value of a metric stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ValueField {
    Int,
    Long,
    Float,
    Double,
    Boolean,
    String,
    Bytes,
    DataSet,
    Template,
    Extension,
}

impl ValueField {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Int => "int_value",
            Self::Long => "long_value",
            Self::Float => "float_value",
            Self::Double => "double_value",
            Self::Boolean => "boolean_value",
            Self::String => "string_value",
            Self::Bytes => "bytes_value",
            Self::DataSet => "dataset_value",
            Self::Template => "template_value",
            Self::Extension => "extension_value",
        }
    }

    /// See [`super::RawMetric::suggested_datatype`].
    pub(super) const fn suggested_datatype(self) -> Option<DataType> {
        Some(match self {
            Self::Int => DataType::Int32,
            Self::Long => DataType::Int64,
            Self::Float => DataType::Float,
            Self::Double => DataType::Double,
            Self::Boolean => DataType::Boolean,
            Self::String => DataType::String,
            Self::Bytes => DataType::Bytes,
            Self::DataSet => DataType::DataSet,
            Self::Template => DataType::Template,
            Self::Extension => return None,
        })
    }
}

/// A basic value (datatypes 1 to 14).
#[inline]
pub(super) fn basic<S: Into<Arc<str>>>(datatype: DataType, basic_value: BasicValue<S>) -> Option<Value> {
    match (datatype, basic_value) {
        (DataType::String, BasicValue::String(s)) => Some(Value::String(s.into())),
        (DataType::Text, BasicValue::String(s)) => Some(Value::Text(s.into())),
        (datatype, basic_value) => number::to_value(datatype, number::of_basic_value(datatype, &basic_value)?),
    }
}

/// A value from `bytes_value`; None: the datatype does not use that field.
pub(super) fn of_bytes<B: AsRef<[u8]> + Into<Arc<[u8]>>>(
    datatype: DataType,
    bytes: B,
) -> Result<Option<Value>, MetricError> {
    use DataType as T;
    let array = match datatype {
        T::Bytes => return Ok(Some(Value::Bytes(bytes.into()))),
        T::File => return Ok(Some(Value::File(bytes.into()))),
        _ => array_value(datatype, bytes.as_ref()),
    };
    array.map_err(|rule| MetricError::Malformed { datatype, rule })
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

/// The datatype that the message declares, else the one that the field of the value suggests.
pub(super) fn own_datatype(declared: Option<u32>, field: Option<ValueField>) -> Result<DataType, MetricError> {
    match self::declared(declared)? {
        Some(datatype) => Ok(datatype),
        None => field.and_then(ValueField::suggested_datatype).ok_or(MetricError::NoDatatype),
    }
}

/// Declared datatype of a metric.
pub(super) fn declared(number: Option<u32>) -> Result<Option<DataType>, MetricError> {
    match number {
        None => Ok(None),
        Some(number) => match DataType::from_wire(number) {
            None => Err(MetricError::UnknownDatatype { number }),
            known => Ok(known),
        },
    }
}
