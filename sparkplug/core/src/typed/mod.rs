//! Rust structs as metrics: the birth, the data messages of what changed, and the struct again on the host's side.
//!
//! [`typed_metrics!`](crate::typed_metrics) says once which field is which metric; [`TypedMetrics`] then writes and reads.
//!
//! ```
//! use sparkplug::typed::{TypedMetrics, form};
//! use sparkplug::{DataType, Metric};
//!
//! /// What a press says about itself.
//! #[derive(Debug, Clone, PartialEq, Default)]
//! struct Press {
//!     serial: String,
//!     temperature: f64,
//!     order: Option<String>,
//!     since: u64,
//!     drive: Drive,
//! }
//!
//! #[derive(Debug, Clone, PartialEq, Default)]
//! struct Drive {
//!     speed: u32,
//! }
//!
//! sparkplug::typed_metrics! {
//!     Press {
//!         // A closure in parentheses writes a metric that no field is read from.
//!         (|_| "press".into()) => "Properties/Kind",
//!         serial => "Properties/Serial",
//!         /// Temperature of the upper die.
//!         #[properties("engUnit" = "°C", "engHigh" = 400.0)]
//!         temperature => "Process/Temperature",
//!         // None is null.
//!         #[writable]
//!         order => "Process/Order",
//!         since as form::DateTime => "Process/Since",
//!         // A birth without it is read too; the field keeps its default.
//!         #[optional]
//!         drive.speed => "Drive/Speed",
//!     }
//! }
//!
//! let before = Press { serial: "P-7".to_owned(), temperature: 20.5, ..Press::default() };
//! let birth = before.to_metrics();
//! let property = |key: &str| birth[2].properties.get(key);
//! assert_eq!(property("engUnit"), Some(&"°C".into()));
//! assert_eq!(property("documentation"), Some(&"Temperature of the upper die.".into()));
//! assert_eq!(property("readOnly"), Some(&true.into()));
//! assert_eq!((birth[3].value.clone(), birth[3].datatype), (None, DataType::String));
//!
//! let after = Press { order: Some("4711".to_owned()), ..before.clone() };
//! let changes = after.changes_since(&before);
//! assert_eq!(changes.len(), 1);
//! assert_eq!((&*changes[0].name, changes[0].as_str()), ("Process/Order", Some("4711")));
//!
//! let mut read = Press::from_metrics(&birth).unwrap();
//! assert_eq!(read, before);
//! read.merge(&changes).unwrap();
//! assert_eq!(read, after);
//!
//! let error = read.merge(&[Metric::new("Process/Temperature", "hot")]).unwrap_err();
//! assert_eq!(error.to_string(), "metric \"Process/Temperature\" must be a Double, but is String");
//! ```

pub mod form;
#[cfg(test)]
mod tests;

pub use form::{Form, MetricValue};

use crate::metric::{DataType, MetaData, Metric, Properties, Value};

/// A metric is missing, null, or not what its field needs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("metric {metric:?} {rule}")]
pub struct FieldError {
    /// Name of the metric.
    pub metric: String,
    /// The rule that it breaks.
    pub rule: String,
}

impl FieldError {
    /// An error about the metric of that name; `rule` is to be read behind it: "must be a UUID".
    #[must_use]
    pub fn new(metric: &str, rule: impl Into<String>) -> Self {
        Self { metric: metric.to_owned(), rule: rule.into() }
    }
}

/// One metric of a struct `S`. Made by [`typed_metrics!`](crate::typed_metrics).
#[derive(Debug)]
pub struct Field<S: 'static> {
    name: &'static str,
    /// None: that of the value, which is never null.
    datatype: Option<DataType>,
    write: fn(&S) -> Option<Value>,
    /// None: it is only written.
    read: Option<Read<S>>,
    /// Reads and writes the field that holds its capture time.
    at: Option<Moment<S>>,
    only_if: Option<fn(&S) -> bool>,
    optional: bool,
    omit_null: bool,
    properties: Option<fn() -> Properties>,
    metadata: Option<fn() -> MetaData>,
}

type Moment<S> = (fn(&S) -> u64, fn(&mut S, u64));
type Read<S> = fn(&mut S, Option<&Value>) -> Result<(), String>;

impl<S> Clone for Field<S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for Field<S> {}

impl<S> Field<S> {
    /// A metric that a field is written to and read from.
    #[must_use]
    pub const fn new(
        name: &'static str,
        datatype: DataType,
        write: fn(&S) -> Option<Value>,
        read: fn(&mut S, Option<&Value>) -> Result<(), String>,
    ) -> Self {
        Self { datatype: Some(datatype), read: Some(read), optional: false, ..Self::written(name, write) }
    }

    /// A metric that is made of the struct and read into nothing. Where `write` gives None, no message has it.
    #[must_use]
    pub const fn written(name: &'static str, write: fn(&S) -> Option<Value>) -> Self {
        Self {
            name,
            datatype: None,
            write,
            read: None,
            at: None,
            only_if: None,
            optional: true,
            omit_null: false,
            properties: None,
            metadata: None,
        }
    }

    /// Name of the metric.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// A birth may lack it; the field then has its default.
    #[must_use]
    pub const fn optional(mut self) -> Self {
        self.optional = true;
        self
    }

    /// While it is null, or a DataSet without rows, births leave it out, and a birth without it is read as null.
    #[must_use]
    pub const fn omit_null(mut self) -> Self {
        self.optional = true;
        self.omit_null = true;
        self
    }

    /// While this is false, messages leave it out.
    #[must_use]
    pub const fn only_if(mut self, holds: fn(&S) -> bool) -> Self {
        self.only_if = Some(holds);
        self
    }

    /// Its capture time is kept in a field, UTC ms.
    #[must_use]
    pub const fn at(mut self, get: fn(&S) -> u64, set: fn(&mut S, u64)) -> Self {
        self.at = Some((get, set));
        self
    }

    /// Properties that its births carry: engineering unit, range and the like.
    #[must_use]
    pub const fn properties(mut self, properties: fn() -> Properties) -> Self {
        self.properties = Some(properties);
        self
    }

    /// The description that its births carry.
    #[must_use]
    pub const fn metadata(mut self, metadata: fn() -> MetaData) -> Self {
        self.metadata = Some(metadata);
        self
    }

    /// None: it is null, or messages leave it out at present.
    fn value(&self, of: &S) -> Option<Value> {
        if self.only_if.is_some_and(|holds| !holds(of)) { None } else { (self.write)(of) }
    }

    /// None: messages leave it out at present.
    fn metric(&self, of: &S, value: Option<Value>, is_birth: bool) -> Option<Metric> {
        let is_empty = |value: &Value| matches!(value, Value::DataSet(table) if table.rows.is_empty());
        let mut metric = match (value, self.datatype) {
            (Some(value), _) if is_birth && self.omit_null && is_empty(&value) => return None,
            (Some(value), _) => Metric::new(self.name, value),
            (None, Some(datatype)) if !(is_birth && self.omit_null) => Metric::null(self.name, datatype),
            (None, _) => return None,
        };
        metric.timestamp = self.at.map(|(get, _)| get(of));
        if let Some(properties) = self.properties {
            metric.properties = properties();
        }
        metric.metadata = self.metadata.map(|metadata| Box::new(metadata()));
        Some(metric)
    }

    fn read(&self, into: &mut S, metric: &Metric) -> Result<(), FieldError> {
        let Some(read) = self.read else { return Ok(()) };
        read(into, metric.value.as_ref()).map_err(|rule| FieldError::new(self.name, rule))?;
        if let (Some((_, set)), Some(at)) = (self.at, metric.timestamp) {
            set(into, at);
        }
        Ok(())
    }
}

/// A struct that stands on the wire as metrics. Implemented by [`typed_metrics!`](crate::typed_metrics).
///
/// For every `a` and `b` in which a capture time differs only where its value does: `a`'s birth, then `b`'s changes since `a`, make `b`.
pub trait TypedMetrics: Clone + 'static {
    /// Its metrics, in the order of the birth; names are unique.
    const FIELDS: &'static [Field<Self>];

    /// All metrics, as a birth has them.
    #[must_use]
    fn to_metrics(&self) -> Vec<Metric> {
        Self::FIELDS.iter().filter_map(|field| field.metric(self, field.value(self), true)).collect()
    }

    /// The metrics whose value is another than in `earlier`: the smallest data message that brings a reader up to date.
    #[must_use]
    fn changes_since(&self, earlier: &Self) -> Vec<Metric> {
        let changed = |field: &Field<Self>| {
            let (before, now) = (field.value(earlier), field.value(self));
            let same = match (&before, &now) {
                (Some(before), Some(now)) => before.is_identical(now),
                (None, None) => true,
                _ => false,
            };
            if same { None } else { field.metric(self, now, false) }
        };
        Self::FIELDS.iter().filter_map(changed).collect()
    }

    /// From the metrics of a birth. Metrics of other names and historical values are passed over.
    ///
    /// # Errors
    /// A metric is missing, or is not what its field needs.
    fn from_metrics<'a>(metrics: impl IntoIterator<Item = &'a Metric>) -> Result<Self, FieldError>
    where
        Self: Default,
    {
        Self::default().born(metrics)
    }

    /// Like [`TypedMetrics::from_metrics`]; what the birth may lack and lacks is as in `self`.
    ///
    /// # Errors
    /// A metric is missing, or is not what its field needs.
    fn born<'a>(mut self, metrics: impl IntoIterator<Item = &'a Metric>) -> Result<Self, FieldError> {
        let mut seen = vec![false; Self::FIELDS.len()];
        read_all(&mut self, metrics, |index| seen[index] = true)?;
        match Self::FIELDS.iter().zip(seen).find(|(field, seen)| !field.optional && !seen) {
            Some((field, _)) => Err(FieldError::new(field.name, "is missing in the birth")),
            None => Ok(self),
        }
    }

    /// Takes the metrics of a data message over. Metrics of other names and historical values are passed over.
    ///
    /// # Errors
    /// A metric is not what its field needs; nothing is changed then.
    fn merge<'a>(&mut self, metrics: impl IntoIterator<Item = &'a Metric>) -> Result<(), FieldError> {
        let mut next = self.clone();
        read_all(&mut next, metrics, |_| {})?;
        *self = next;
        Ok(())
    }
}

/// Births have the order of the fields, so each metric is looked for behind the one before it first.
fn read_all<'a, S: TypedMetrics>(
    into: &mut S,
    metrics: impl IntoIterator<Item = &'a Metric>,
    mut seen: impl FnMut(usize),
) -> Result<(), FieldError> {
    let mut expected = 0;
    for metric in metrics.into_iter().filter(|metric| !metric.is_historical) {
        let (before, behind) = S::FIELDS.split_at(expected);
        let named = |field: &Field<S>| field.name == &*metric.name;
        let found = behind.iter().position(named).map(|at| expected + at).or_else(|| before.iter().position(named));
        if let Some(index) = found {
            S::FIELDS[index].read(into, metric)?;
            seen(index);
            expected = index + 1;
        }
    }
    Ok(())
}

/// Datatype of the form of a field.
#[doc(hidden)]
#[must_use]
pub const fn datatype_of<S, T, F: Form<T>>(_field: fn(&S) -> &T) -> DataType {
    F::DATATYPE
}

/// Whether no name occurs twice.
#[doc(hidden)]
#[must_use]
pub const fn names_differ<S>(fields: &[Field<S>]) -> bool {
    let mut i = 0;
    while i < fields.len() {
        let mut j = 0;
        while j < i {
            if same_text(fields[i].name.as_bytes(), fields[j].name.as_bytes()) {
                return false;
            }
            j += 1;
        }
        i += 1;
    }
    true
}

const fn same_text(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let mut i = 0;
    while i < a.len() {
        if a[i] != b[i] {
            return false;
        }
        i += 1;
    }
    true
}

/// Implements [`TypedMetrics`](crate::typed::TypedMetrics) for a struct: which field is which metric, in the order of the birth.
///
/// An entry is `field => "Name"` for a [`MetricValue`](crate::typed::MetricValue), `field as form => "Name"` for another
/// [`Form`](crate::typed::Form), or `(|this| value) => "Name"` for what is only written, where the closure gives a
/// [`Value`](crate::Value). A field may be one of a nested struct (`drive.speed`). A doc comment before an entry is the property
/// `documentation` of its births; they have `readOnly`, too: false where the entry is `#[writable]`, otherwise true. Attributes before an entry:
///
/// | attribute | meaning |
/// |---|---|
/// | `#[optional]` | a birth may lack it; the field then keeps its default |
/// | `#[omit_null]` | while it is null, or a DataSet without rows, births leave it out |
/// | `#[only_if(\|this\| ...)]` | of a written one: messages leave it out while this is false |
/// | `#[at(since)]` | its capture time is kept in that field, UTC ms |
/// | `#[writable]` | hosts may write it by command: `readOnly` is false |
/// | `#[properties("engUnit" = "°C")]` | further properties of its births |
/// | `#[metadata(MetaData { ... })]` | description in its births |
///
/// A name that stands twice does not compile:
///
/// ```compile_fail
/// #[derive(Clone, Default)]
/// struct Twice { a: bool, b: bool }
/// sparkplug::typed_metrics! { Twice { a => "Name", b => "Name" } }
/// ```
#[macro_export]
macro_rules! typed_metrics {
    ($type:ty { $($entries:tt)* }) => {
        impl $crate::typed::TypedMetrics for $type {
            const FIELDS: &'static [$crate::typed::Field<Self>] = $crate::typed_metrics!(@entries $type, [] $($entries)*);
        }
        const _: () = assert!(
            $crate::typed::names_differ(<$type as $crate::typed::TypedMetrics>::FIELDS),
            "a name of a metric stands twice"
        );
    };

    (@entries $type:ty, [$($done:expr,)*]) => { &[$($done),*] };
    (@entries $type:ty, [$($done:expr,)*]
        $(#[$($attribute:tt)*])* ($write:expr) => $name:expr $(, $($rest:tt)*)?
    ) => {
        $crate::typed_metrics!(@entries $type, [$($done,)* {
            let field: $crate::typed::Field<$type> = $crate::typed::Field::written($name, {
                fn write(of: &$type) -> Option<$crate::Value> {
                    fn give(of: &$type, value: impl FnOnce(&$type) -> $crate::Value) -> $crate::Value {
                        value(of)
                    }
                    Some(give(of, $write))
                }
                write
            });
            $(let field = $crate::typed_metrics!(@attribute $type, field, $($attribute)*);)*
            $crate::typed_metrics!(@describe field, [] [true] [] $(#[$($attribute)*])*)
        },] $($($rest)*)?)
    };
    (@entries $type:ty, [$($done:expr,)*]
        $(#[$($attribute:tt)*])* $($path:ident).+ => $name:expr $(, $($rest:tt)*)?
    ) => {
        $crate::typed_metrics!(@entries $type, [$($done,)*]
            $(#[$($attribute)*])* $($path).+ as $crate::typed::form::Plain => $name $(, $($rest)*)?)
    };
    (@entries $type:ty, [$($done:expr,)*]
        $(#[$($attribute:tt)*])* $($path:ident).+ as $form:ty => $name:expr $(, $($rest:tt)*)?
    ) => {
        $crate::typed_metrics!(@entries $type, [$($done,)* {
            let field: $crate::typed::Field<$type> = $crate::typed::Field::new(
                $name,
                $crate::typed::datatype_of::<_, _, $form>(|this: &$type| &this.$($path).+),
                |this| <$form as $crate::typed::Form<_>>::write(&this.$($path).+),
                |this, value| {
                    this.$($path).+ = <$form as $crate::typed::Form<_>>::read(value)?;
                    Ok(())
                },
            );
            $(let field = $crate::typed_metrics!(@attribute $type, field, $($attribute)*);)*
            $crate::typed_metrics!(@describe field, [] [true] [] $(#[$($attribute)*])*)
        },] $($($rest)*)?)
    };

    // Gathers the lines of documentation, whether hosts may write it, and properties of its own.
    (@describe $field:ident, [$($line:literal)*] [$read_only:literal] [$($own:tt)*]) => {
        $field.properties({
            fn properties() -> $crate::Properties {
                static ALL: std::sync::LazyLock<$crate::Properties> = std::sync::LazyLock::new(|| {
                    $crate::Properties::described(&[$($line),*], $read_only)$($own)*
                });
                ALL.clone()
            }
            properties
        })
    };
    (@describe $field:ident, [$($line:literal)*] [$read_only:literal] [$($own:tt)*] #[doc = $text:literal] $($rest:tt)*) => {
        $crate::typed_metrics!(@describe $field, [$($line)* $text] [$read_only] [$($own)*] $($rest)*)
    };
    (@describe $field:ident, [$($line:literal)*] [$read_only:literal] [$($own:tt)*] #[writable] $($rest:tt)*) => {
        $crate::typed_metrics!(@describe $field, [$($line)*] [false] [$($own)*] $($rest)*)
    };
    (@describe $field:ident, [$($line:literal)*] [$read_only:literal] [$($own:tt)*]
        #[properties($($key:literal = $value:expr),+ $(,)?)] $($rest:tt)*
    ) => {
        $crate::typed_metrics!(@describe $field, [$($line)*] [$read_only] [$($own)* $(.with($key, $value))+] $($rest)*)
    };
    (@describe $field:ident, [$($line:literal)*] [$read_only:literal] [$($own:tt)*] #[$($other:tt)*] $($rest:tt)*) => {
        $crate::typed_metrics!(@describe $field, [$($line)*] [$read_only] [$($own)*] $($rest)*)
    };

    (@attribute $type:ty, $field:ident, doc = $text:literal) => { $field };
    (@attribute $type:ty, $field:ident, writable) => { $field };
    (@attribute $type:ty, $field:ident, properties($($pairs:tt)*)) => { $field };
    (@attribute $type:ty, $field:ident, optional) => { $field.optional() };
    (@attribute $type:ty, $field:ident, omit_null) => { $field.omit_null() };
    (@attribute $type:ty, $field:ident, only_if($condition:expr)) => {
        $field.only_if({
            fn holds(of: &$type) -> bool {
                fn give(of: &$type, condition: impl FnOnce(&$type) -> bool) -> bool {
                    condition(of)
                }
                give(of, $condition)
            }
            holds
        })
    };
    (@attribute $type:ty, $field:ident, at($($path:ident).+)) => {
        $field.at(|this| this.$($path).+, |this, at| this.$($path).+ = at)
    };
    (@attribute $type:ty, $field:ident, metadata($metadata:expr)) => { $field.metadata(|| $metadata) };
}
