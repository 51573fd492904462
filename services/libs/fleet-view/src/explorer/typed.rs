//! Values of metrics as people type them, by the datatype that the birth gives.

use std::sync::Arc;

use configdb_schema::timestamp;
use serde_json::Value as Json;
use sparkplug::{DataType, Value};

/// A text that does not fit the datatype that a birth gives.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// Values of this datatype have no form as text.
    #[error("a {0:?} cannot be written as text")]
    NoText(DataType),
    /// An integer beyond the limits of the datatype.
    #[error("{text} does not fit into datatype {datatype:?}, which the birth gives: it takes {least} to {largest}")]
    Limits {
        /// Of the birth.
        datatype: DataType,
        /// What was typed.
        text: String,
        /// Least value of the datatype.
        least: i128,
        /// Largest value of the datatype.
        largest: i128,
    },
    /// NaN, an infinity, or a number that is too large for the datatype.
    #[error(
        "{text:?} is not a finite number of datatype {datatype:?}, which the birth gives; NaN and infinity are not written, because readers cannot compare or show them (null says that there is no value)"
    )]
    NotFinite {
        /// Of the birth.
        datatype: DataType,
        /// What was typed.
        text: String,
    },
    /// The text is not in the form of the datatype.
    #[error("{text:?} is not a value of datatype {datatype:?}, which the birth gives")]
    Other {
        /// Of the birth.
        datatype: DataType,
        /// What was typed.
        text: String,
    },
}

/// A value as a person types it; None: null. Bytes are hexadecimal, arrays are JSON, times are RFC 3339 or milliseconds since 1970.
///
/// # Errors
/// [`ValueError`]
pub fn from_text(datatype: DataType, text: &str) -> Result<Option<Value>, ValueError> {
    use DataType as T;
    if text == "null" {
        return Ok(None);
    }
    let value = match datatype {
        T::String => Some(Value::String(text.into())),
        T::Text => Some(Value::Text(text.into())),
        T::Uuid => uuid::Uuid::parse_str(text).ok().map(|uuid| Value::Uuid(uuid.to_string().into())),
        T::Bytes => hex::decode(text).ok().map(|bytes| Value::Bytes(bytes.into())),
        T::File => hex::decode(text).ok().map(|bytes| Value::File(bytes.into())),
        T::Int8 => text.parse().ok().map(Value::Int8),
        T::Int16 => text.parse().ok().map(Value::Int16),
        T::Int32 => text.parse().ok().map(Value::Int32),
        T::Int64 => text.parse().ok().map(Value::Int64),
        T::UInt8 => text.parse().ok().map(Value::UInt8),
        T::UInt16 => text.parse().ok().map(Value::UInt16),
        T::UInt32 => text.parse().ok().map(Value::UInt32),
        T::UInt64 => text.parse().ok().map(Value::UInt64),
        T::Float => text.parse().ok().map(Value::Float),
        T::Double => text.parse().ok().map(Value::Double),
        T::Boolean => text.parse().ok().map(Value::Boolean),
        T::DateTime => time(text).map(Value::DateTime),
        T::DataSet | T::Template => return Err(ValueError::NoText(datatype)),
        _ => serde_json::from_str(text).ok().and_then(|items: Vec<Json>| array(datatype, &items)),
    };
    match value {
        Some(value) if is_finite(&value) => Ok(Some(value)),
        Some(_) => Err(ValueError::NotFinite { datatype, text: text.to_owned() }),
        None => Err(refusal(datatype, text)),
    }
}

fn is_finite(value: &Value) -> bool {
    match value {
        Value::Float(x) => x.is_finite(),
        Value::Double(x) => x.is_finite(),
        Value::FloatArray(numbers) => numbers.iter().all(|x| x.is_finite()),
        Value::DoubleArray(numbers) => numbers.iter().all(|x| x.is_finite()),
        _ => true,
    }
}

/// Why a text is not a value: an integer that is too large has another reason than what is not an integer.
fn refusal(datatype: DataType, text: &str) -> ValueError {
    use DataType as T;
    let limits: Option<(i128, i128)> = match datatype {
        T::Int8 => Some((i8::MIN.into(), i8::MAX.into())),
        T::Int16 => Some((i16::MIN.into(), i16::MAX.into())),
        T::Int32 => Some((i32::MIN.into(), i32::MAX.into())),
        T::Int64 => Some((i64::MIN.into(), i64::MAX.into())),
        T::UInt8 => Some((0, u8::MAX.into())),
        T::UInt16 => Some((0, u16::MAX.into())),
        T::UInt32 => Some((0, u32::MAX.into())),
        T::UInt64 | T::DateTime => Some((0, u64::MAX.into())),
        _ => None,
    };
    let is_integer = text.parse::<i128>().is_ok();
    match limits.filter(|_| is_integer) {
        Some((least, largest)) => ValueError::Limits { datatype, text: text.to_owned(), least, largest },
        None => ValueError::Other { datatype, text: text.to_owned() },
    }
}

/// Milliseconds since 1970, or RFC 3339.
fn time(text: &str) -> Option<u64> {
    text.parse().ok().or_else(|| timestamp::from_text(text))
}

fn array(datatype: DataType, items: &[Json]) -> Option<Value> {
    use DataType as T;
    Some(match datatype {
        T::Int8Array => Value::Int8Array(numbers(items)?),
        T::Int16Array => Value::Int16Array(numbers(items)?),
        T::Int32Array => Value::Int32Array(numbers(items)?),
        T::Int64Array => Value::Int64Array(numbers(items)?),
        T::UInt8Array => Value::UInt8Array(numbers(items)?),
        T::UInt16Array => Value::UInt16Array(numbers(items)?),
        T::UInt32Array => Value::UInt32Array(numbers(items)?),
        T::UInt64Array => Value::UInt64Array(numbers(items)?),
        T::DateTimeArray => Value::DateTimeArray(numbers(items)?),
        T::FloatArray => Value::FloatArray(numbers(items)?),
        T::DoubleArray => Value::DoubleArray(numbers(items)?),
        T::BooleanArray => Value::BooleanArray(items.iter().map(Json::as_bool).collect::<Option<_>>()?),
        T::StringArray => {
            Value::StringArray(items.iter().map(|item| item.as_str().map(Arc::from)).collect::<Option<_>>()?)
        }
        _ => return None,
    })
}

/// Numbers from their digits, so that each width has its own limits.
fn numbers<T: std::str::FromStr>(items: &[Json]) -> Option<Arc<[T]>> {
    items.iter().map(|item| item.as_number()?.to_string().parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_finite_or_does_not_fit_has_its_own_reason() {
        use DataType as T;
        let refused = |datatype, text: &str| from_text(datatype, text).unwrap_err().to_string();
        for (datatype, text) in [
            (T::Double, "NaN"),
            (T::Double, "inf"),
            (T::Double, "-infinity"),
            (T::Double, "1e999"),
            (T::Float, "nan"),
            (T::Float, "1e39"),
            (T::FloatArray, "[1.5,1e39]"),
        ] {
            let refusal = refused(datatype, text);
            assert!(refusal.contains("is not a finite number") && refusal.contains(text), "{refusal}");
        }
        let limits = "256 does not fit into datatype UInt8, which the birth gives: it takes 0 to 255";
        assert_eq!(refused(T::UInt8, "256"), limits);
        for (datatype, text, range) in [
            (T::Int8, "-129", "-128 to 127"),
            (T::UInt64, "-1", "0 to 18446744073709551615"),
            (T::Int64, "9223372036854775808", "-9223372036854775808 to 9223372036854775807"),
            (T::DateTime, "-5", "0 to 18446744073709551615"),
        ] {
            assert!(refused(datatype, text).ends_with(&format!("it takes {range}")), "{datatype:?} {text}");
        }
        assert_eq!(refused(T::UInt8, "1.5"), "\"1.5\" is not a value of datatype UInt8, which the birth gives");
    }

    #[test]
    fn values_are_read_by_the_datatype_of_the_birth() {
        let of = |datatype, text| from_text(datatype, text).unwrap();
        assert_eq!(of(DataType::Int8, "-128"), Some(Value::Int8(-128)));
        assert_eq!(of(DataType::Float, "21.5"), Some(Value::Float(21.5)));
        assert_eq!(of(DataType::String, "21.5"), Some(Value::String("21.5".into())));
        assert_eq!(of(DataType::Boolean, "null"), None);
        assert_eq!(of(DataType::DateTime, "1970-01-01T00:00:01Z"), Some(Value::DateTime(1_000)));
        assert_eq!(of(DataType::Bytes, "c0ffee"), Some(Value::Bytes(vec![0xc0, 0xff, 0xee].into())));
        assert_eq!(of(DataType::UInt8Array, "[1,255]"), Some(Value::UInt8Array(vec![1, 255].into())));
        for (datatype, text) in [
            (DataType::Int8, "128"),
            (DataType::UInt64, "-1"),
            (DataType::Boolean, "yes"),
            (DataType::UInt8Array, "[256]"),
            (DataType::UInt8Array, "1,2"),
            (DataType::Uuid, "x"),
        ] {
            let refusal = from_text(datatype, text).unwrap_err().to_string();
            assert!(refusal.contains(&format!("{datatype:?}")) && refusal.contains(text), "{refusal}");
        }
        assert!(from_text(DataType::DataSet, "{}").is_err());
    }

    #[test]
    fn every_scalar_and_array_is_read_within_its_limits() {
        use DataType as T;
        let largest = |datatype| match datatype {
            T::Int8 => "127",
            T::Int16 => "32767",
            T::Int32 => "2147483647",
            T::Int64 => "9223372036854775807",
            T::UInt8 => "255",
            T::UInt16 => "65535",
            T::UInt32 => "4294967295",
            _ => "18446744073709551615",
        };
        let pairs = [
            (T::Int8, T::Int8Array),
            (T::Int16, T::Int16Array),
            (T::Int32, T::Int32Array),
            (T::Int64, T::Int64Array),
            (T::UInt8, T::UInt8Array),
            (T::UInt16, T::UInt16Array),
            (T::UInt32, T::UInt32Array),
            (T::UInt64, T::UInt64Array),
        ];
        for (scalar, list) in pairs {
            let text = largest(scalar);
            let one_more = (text.parse::<u128>().unwrap() + 1).to_string();
            assert!(from_text(scalar, text).unwrap().is_some(), "{scalar:?}");
            assert!(from_text(scalar, &one_more).is_err() && from_text(scalar, "").is_err(), "{scalar:?}");
            assert!(from_text(list, &format!("[0,{text}]")).unwrap().is_some(), "{list:?}");
            assert!(from_text(list, &format!("[0,{one_more}]")).is_err(), "{list:?}");
            assert!(from_text(list, "[null]").is_err() && from_text(list, "[\"1\"]").is_err(), "{list:?}");
        }
        for (datatype, text) in [
            (T::BooleanArray, "[true,false]"),
            (T::StringArray, r#"["a",""]"#),
            (T::FloatArray, "[1.5]"),
            (T::DoubleArray, "[]"),
            (T::DateTimeArray, "[5]"),
            (T::Uuid, "00000000-0000-0000-0000-000000000001"),
            (T::File, ""),
        ] {
            assert!(from_text(datatype, text).unwrap().is_some(), "{datatype:?}");
        }
        for (datatype, text) in
            [(T::BooleanArray, "[1]"), (T::StringArray, "[1]"), (T::Bytes, "abc"), (T::DateTime, "yesterday")]
        {
            assert!(from_text(datatype, text).is_err(), "{datatype:?}");
        }
    }
}
