//! Values that fit into 64 bits, as a replica keeps them: Booleans, integers, floats and DateTime. Their datatype stands elsewhere.

use super::basic_value::BasicValue;
use crate::metric::{DataType, Value};

/// The number that is kept of a value on the wire; None: that datatype is not carried by that field, or is not a number.
///
/// Integers are cut to the declared width: senders write negative numbers sign-extended or in their own width.
#[inline]
pub(crate) fn of_basic_value<S>(datatype: DataType, basic_value: &BasicValue<S>) -> Option<u64> {
    use DataType as T;
    Some(match (datatype, basic_value) {
        (T::Double, BasicValue::Double(x)) => x.to_bits(),
        // An Int64 in the narrow field keeps its sign as a 32-bit number.
        (T::Int64, BasicValue::Int(n)) => i64::from(n.cast_signed()).cast_unsigned(),
        (_, BasicValue::Int(n)) => return cut(datatype, u64::from(*n)),
        (_, BasicValue::Long(n)) => return cut(datatype, *n),
        (T::Float, BasicValue::Float(x)) => x.to_bits().into(),
        (T::Double, BasicValue::Float(x)) => f64::from(*x).to_bits(),
        (T::Boolean, BasicValue::Boolean(b)) => (*b).into(),
        _ => return None,
    })
}

#[inline]
const fn cut(datatype: DataType, n: u64) -> Option<u64> {
    use DataType as T;
    Some(match datatype {
        T::Int8 | T::UInt8 => n & 0xff,
        T::Int16 | T::UInt16 => n & 0xffff,
        T::Int32 | T::UInt32 => n & 0xffff_ffff,
        T::Int64 | T::UInt64 | T::DateTime => n,
        _ => return None,
    })
}

/// Whether values of that datatype are numbers.
#[inline]
pub(crate) const fn is_number(datatype: DataType) -> bool {
    (datatype as u8) <= DataType::Boolean as u8 || matches!(datatype, DataType::DateTime)
}

/// The value of a number; None if that datatype is none.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "what is kept of a narrow number is narrow")]
pub(crate) const fn to_value(datatype: DataType, number: u64) -> Option<Value> {
    use DataType as T;
    Some(match datatype {
        T::Double => Value::Double(f64::from_bits(number)),
        T::Int8 => Value::Int8((number as u8).cast_signed()),
        T::Int16 => Value::Int16((number as u16).cast_signed()),
        T::Int32 => Value::Int32((number as u32).cast_signed()),
        T::Int64 => Value::Int64(number.cast_signed()),
        T::UInt8 => Value::UInt8(number as u8),
        T::UInt16 => Value::UInt16(number as u16),
        T::UInt32 => Value::UInt32(number as u32),
        T::UInt64 => Value::UInt64(number),
        T::Float => Value::Float(f32::from_bits(number as u32)),
        T::Boolean => Value::Boolean(number != 0),
        T::DateTime => Value::DateTime(number),
        _ => return None,
    })
}

/// The number that is kept of a value; None if it is none.
pub(crate) fn of_value(value: &Value) -> Option<u64> {
    Some(match *value {
        Value::Double(x) => x.to_bits(),
        Value::Int8(n) => n.cast_unsigned().into(),
        Value::Int16(n) => n.cast_unsigned().into(),
        Value::Int32(n) => n.cast_unsigned().into(),
        Value::Int64(n) => n.cast_unsigned(),
        Value::UInt8(n) => n.into(),
        Value::UInt16(n) => n.into(),
        Value::UInt32(n) => n.into(),
        Value::UInt64(n) | Value::DateTime(n) => n,
        Value::Float(x) => x.to_bits().into(),
        Value::Boolean(b) => b.into(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_comes_back_and_nothing_else_is_one() {
        for datatype in (1..=34).filter_map(DataType::from_wire) {
            for number in [0, 1, 0x7f, 0x80, 0xff, 0x8000, 0xffff, 0x8000_0000, 0xffff_ffff, 1 << 63, u64::MAX] {
                let basic_value = match datatype {
                    DataType::Float => BasicValue::Float(f32::from_bits(0x7fc0_0000 | (number as u32 & 0xf))),
                    DataType::Double => BasicValue::Double(f64::from_bits(number)),
                    DataType::Boolean => BasicValue::Boolean(number != 0),
                    _ => BasicValue::<&str>::Long(number),
                };
                let kept = of_basic_value(datatype, &basic_value);
                assert_eq!(kept.is_some(), is_number(datatype), "{datatype:?}");
                let value = kept.and_then(|kept| to_value(datatype, kept));
                assert_eq!(value.as_ref().map(Value::datatype), kept.map(|_| datatype));
                assert_eq!(value.as_ref().and_then(of_value), kept, "{value:?}");
            }
        }
    }

    #[test]
    fn a_narrow_field_keeps_the_sign_of_a_wide_type_only_where_it_has_one() {
        let minus_one = BasicValue::<&str>::Int(u32::MAX);
        let value = |datatype| of_basic_value(datatype, &minus_one).and_then(|number| to_value(datatype, number));
        assert_eq!(value(DataType::Int64), Some(Value::Int64(-1)));
        assert_eq!(value(DataType::UInt64), Some(Value::UInt64(0xffff_ffff)));
        assert_eq!(value(DataType::Int16), Some(Value::Int16(-1)));
        assert_eq!(value(DataType::Float), None);
    }
}
