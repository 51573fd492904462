//! How a field of a struct stands on the wire: its datatype, its value, and the way back.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::marker::PhantomData;
use std::str::FromStr;
use std::sync::Arc;

use crate::metric::{DataSet, DataType, Value};

/// The forms of fields. A form is a type of its own, because one Rust type may stand on the wire in several ways: a `u64` as UInt64 or as DateTime.
pub trait Form<T> {
    /// Of the metric, whatever its value.
    const DATATYPE: DataType;

    /// What stands on the wire; None is null.
    fn write(field: &T) -> Option<Value>;

    /// What the field is then; `value` None is null.
    ///
    /// # Errors
    /// The rule that the value breaks, to be read behind the name of the metric: "must be a Boolean, but is UInt64".
    fn read(value: Option<&Value>) -> Result<T, String>;
}

/// A Rust type with one obvious form: the integers, floats, Booleans and texts of the standard, and `Option` of each for a metric that may be null.
pub trait MetricValue: Sized {
    /// Of the metric, whatever its value.
    const DATATYPE: DataType;

    /// What stands on the wire; None is null.
    fn to_value(&self) -> Option<Value>;

    /// From a value that is not null.
    ///
    /// # Errors
    /// The rule that the value breaks.
    fn from_value(value: &Value) -> Result<Self, String>;

    /// What null means, if it may be null.
    #[must_use]
    fn of_null() -> Option<Self> {
        None
    }
}

/// The form of a [`MetricValue`]: what a field has when nothing else is said.
#[derive(Debug)]
pub struct Plain;

impl<T: MetricValue> Form<T> for Plain {
    const DATATYPE: DataType = T::DATATYPE;

    fn write(field: &T) -> Option<Value> {
        field.to_value()
    }

    fn read(value: Option<&Value>) -> Result<T, String> {
        match value {
            Some(value) => T::from_value(value),
            None => T::of_null().ok_or_else(|| NOT_NULL.to_owned()),
        }
    }
}

/// `Option<T>` for a metric of form `F` that may be null.
#[derive(Debug)]
pub struct Nullable<F>(PhantomData<F>);

impl<T, F: Form<T>> Form<Option<T>> for Nullable<F> {
    const DATATYPE: DataType = F::DATATYPE;

    fn write(field: &Option<T>) -> Option<Value> {
        field.as_ref().and_then(F::write)
    }

    fn read(value: Option<&Value>) -> Result<Option<T>, String> {
        value.map(|value| F::read(Some(value))).transpose()
    }
}

/// A `u64` of UTC ms as a DateTime.
#[derive(Debug)]
pub struct DateTime;

impl Form<u64> for DateTime {
    const DATATYPE: DataType = DataType::DateTime;

    fn write(field: &u64) -> Option<Value> {
        Some(Value::DateTime(*field))
    }

    fn read(value: Option<&Value>) -> Result<u64, String> {
        let value = value.ok_or(NOT_NULL)?;
        value.as_u64().ok_or_else(|| wrong(value, "a DateTime"))
    }
}

/// A count as a UInt64, whatever its width: clients differ in what they make of narrower numbers. Other widths are read, too.
#[derive(Debug)]
pub struct Count;

impl<T: Copy + Into<u64> + TryFrom<u64>> Form<T> for Count {
    const DATATYPE: DataType = DataType::UInt64;

    fn write(field: &T) -> Option<Value> {
        Some(Value::UInt64((*field).into()))
    }

    fn read(value: Option<&Value>) -> Result<T, String> {
        let number = u64::from_value(value.ok_or(NOT_NULL)?)?;
        T::try_from(number).map_err(|_| format!("must fit into {} bits, but is {number}", 8 * size_of::<T>()))
    }
}

/// A type that can be printed and parsed, as a String. The error of its `FromStr` is the rule: "must be pending or applied".
#[derive(Debug)]
pub struct Parsed;

impl<T: Display + FromStr<Err: Display>> Form<T> for Parsed {
    const DATATYPE: DataType = DataType::String;

    fn write(field: &T) -> Option<Value> {
        Some(Value::String(field.to_string().into()))
    }

    fn read(value: Option<&Value>) -> Result<T, String> {
        text(value)?.parse().map_err(|rule: T::Err| rule.to_string())
    }
}

/// A type that prints and parses as a UUID, as a UUID.
#[derive(Debug)]
pub struct Uuid;

impl<T: Display + FromStr> Form<T> for Uuid {
    const DATATYPE: DataType = DataType::Uuid;

    fn write(field: &T) -> Option<Value> {
        Some(Value::Uuid(field.to_string().into()))
    }

    fn read(value: Option<&Value>) -> Result<T, String> {
        text(value)?.parse().map_err(|_| "must be a UUID".to_owned())
    }
}

/// The same as a String, for metrics that other software expects so.
#[derive(Debug)]
pub struct UuidString;

impl<T: Display + FromStr> Form<T> for UuidString {
    const DATATYPE: DataType = DataType::String;

    fn write(field: &T) -> Option<Value> {
        Some(Value::String(field.to_string().into()))
    }

    fn read(value: Option<&Value>) -> Result<T, String> {
        <Uuid as Form<T>>::read(value)
    }
}

/// The columns of a [`Table`].
pub trait Columns {
    /// Name of the first one, whose cells differ.
    const KEY: &'static str;
    /// Name of the second one.
    const VALUE: &'static str;
}

/// A map as a DataSet with two columns of Strings, a row an entry. Further columns are passed over by a reader.
///
/// Some clients read no message that has a DataSet, others none that has a null one: keep an empty one out of births (`#[omit_null]`).
///
/// ```
/// use std::collections::BTreeMap;
///
/// use sparkplug::typed::form::{Columns, Form as _, Table};
///
/// /// Why what cannot be watched cannot.
/// struct Problems;
///
/// impl Columns for Problems {
///     const KEY: &'static str = "Name";
///     const VALUE: &'static str = "Reason";
/// }
///
/// let problems = BTreeMap::from([("press".to_owned(), "has no address".to_owned())]);
/// assert_eq!(Table::<Problems>::read(Table::<Problems>::write(&problems).as_ref()), Ok(problems));
/// ```
#[derive(Debug)]
pub struct Table<C>(PhantomData<C>);

impl<C: Columns, K, V> Form<BTreeMap<K, V>> for Table<C>
where
    K: Display + FromStr<Err: Display> + Ord,
    V: Display + FromStr<Err: Display>,
{
    const DATATYPE: DataType = DataType::DataSet;

    fn write(field: &BTreeMap<K, V>) -> Option<Value> {
        let mut table = DataSet::new([(C::KEY, DataType::String), (C::VALUE, DataType::String)]);
        for (key, value) in field {
            table = table.with_row([Some(key.to_string().into()), Some(value.to_string().into())]);
        }
        Some(table.into())
    }

    fn read(value: Option<&Value>) -> Result<BTreeMap<K, V>, String> {
        let table = match value {
            None => return Ok(BTreeMap::new()),
            Some(Value::DataSet(table)) => table,
            Some(other) => return Err(wrong(other, "a DataSet")),
        };
        let column = |name: &str| {
            let found = table.columns.iter().position(|(column, _)| &**column == name);
            found.ok_or_else(|| format!("has no column {name}"))
        };
        let (key, value) = (column(C::KEY)?, column(C::VALUE)?);
        let row = |cells: &Vec<Option<Value>>| Ok((cell(cells, key, C::KEY)?, cell(cells, value, C::VALUE)?));
        table.rows.iter().map(row).collect()
    }
}

fn cell<T: FromStr<Err: Display>>(cells: &[Option<Value>], at: usize, column: &str) -> Result<T, String> {
    let broken = |rule: String| format!("column {column} {rule}");
    let cell = text(cells.get(at).and_then(Option::as_ref)).map_err(broken)?;
    cell.parse().map_err(|rule: T::Err| broken(rule.to_string()))
}

const NOT_NULL: &str = "must not be null";

fn wrong(value: &Value, wanted: &str) -> String {
    format!("must be {wanted}, but is {:?}", value.datatype())
}

fn text(value: Option<&Value>) -> Result<&str, String> {
    let value = value.ok_or(NOT_NULL)?;
    value.as_str().ok_or_else(|| wrong(value, "a String"))
}

impl<T: MetricValue> MetricValue for Option<T> {
    const DATATYPE: DataType = T::DATATYPE;

    fn to_value(&self) -> Option<Value> {
        self.as_ref().and_then(T::to_value)
    }

    fn from_value(value: &Value) -> Result<Self, String> {
        T::from_value(value).map(Some)
    }

    fn of_null() -> Option<Self> {
        Some(None)
    }
}

/// Integers of other widths are read too, as long as the number fits: senders differ in what they write.
macro_rules! integers {
    ($($type:ty => $variant:ident $article:literal),*) => {
        $(impl MetricValue for $type {
            const DATATYPE: DataType = DataType::$variant;

            fn to_value(&self) -> Option<Value> {
                Some(Value::$variant(*self))
            }

            fn from_value(value: &Value) -> Result<Self, String> {
                const WANTED: &str = concat!($article, " ", stringify!($variant));
                let number = integer(value).ok_or_else(|| wrong(value, WANTED))?;
                Self::try_from(number).map_err(|_| format!("must fit into {WANTED}, but is {number}"))
            }
        })*
    };
}
integers!(i8 => Int8 "an", i16 => Int16 "an", i32 => Int32 "an", i64 => Int64 "an",
          u8 => UInt8 "a", u16 => UInt16 "a", u32 => UInt32 "a", u64 => UInt64 "a");

fn integer(value: &Value) -> Option<i128> {
    Some(match *value {
        Value::Int8(n) => n.into(),
        Value::Int16(n) => n.into(),
        Value::Int32(n) => n.into(),
        Value::Int64(n) => n.into(),
        Value::UInt8(n) => n.into(),
        Value::UInt16(n) => n.into(),
        Value::UInt32(n) => n.into(),
        Value::UInt64(n) | Value::DateTime(n) => n.into(),
        _ => return None,
    })
}

impl MetricValue for f32 {
    const DATATYPE: DataType = DataType::Float;

    fn to_value(&self) -> Option<Value> {
        Some(Value::Float(*self))
    }

    fn from_value(value: &Value) -> Result<Self, String> {
        match value {
            Value::Float(x) => Ok(*x),
            other => Err(wrong(other, "a Float")),
        }
    }
}

impl MetricValue for f64 {
    const DATATYPE: DataType = DataType::Double;

    fn to_value(&self) -> Option<Value> {
        Some(Value::Double(*self))
    }

    fn from_value(value: &Value) -> Result<Self, String> {
        match value {
            Value::Double(x) => Ok(*x),
            Value::Float(x) => Ok((*x).into()),
            other => Err(wrong(other, "a Double")),
        }
    }
}

impl MetricValue for bool {
    const DATATYPE: DataType = DataType::Boolean;

    fn to_value(&self) -> Option<Value> {
        Some(Value::Boolean(*self))
    }

    fn from_value(value: &Value) -> Result<Self, String> {
        match value {
            Value::Boolean(b) => Ok(*b),
            other => Err(wrong(other, "a Boolean")),
        }
    }
}

impl MetricValue for String {
    const DATATYPE: DataType = DataType::String;

    fn to_value(&self) -> Option<Value> {
        Some(Value::from(self.as_str()))
    }

    fn from_value(value: &Value) -> Result<Self, String> {
        text(Some(value)).map(str::to_owned)
    }
}

impl MetricValue for Arc<str> {
    const DATATYPE: DataType = DataType::String;

    fn to_value(&self) -> Option<Value> {
        Some(Value::String(self.clone()))
    }

    fn from_value(value: &Value) -> Result<Self, String> {
        match value {
            Value::String(s) | Value::Text(s) | Value::Uuid(s) => Ok(s.clone()),
            other => Err(wrong(other, "a String")),
        }
    }
}
