//! Metrics, their typed values and properties: the vocabulary of applications. Strings and arrays are shared, so that
//! keeping a value in a birth, a data message and a replica costs one copy.

use std::fmt;
use std::sync::Arc;

/// Metric datatypes with their numbers on the wire (Sparkplug 3.0, 6.4.16).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
#[expect(missing_docs, reason = "the standard's own names")]
pub enum DataType {
    Int8 = 1,
    Int16 = 2,
    Int32 = 3,
    Int64 = 4,
    UInt8 = 5,
    UInt16 = 6,
    UInt32 = 7,
    UInt64 = 8,
    Float = 9,
    Double = 10,
    Boolean = 11,
    String = 12,
    DateTime = 13,
    Text = 14,
    Uuid = 15,
    DataSet = 16,
    Bytes = 17,
    File = 18,
    Template = 19,
    PropertySet = 20,
    PropertySetList = 21,
    Int8Array = 22,
    Int16Array = 23,
    Int32Array = 24,
    Int64Array = 25,
    UInt8Array = 26,
    UInt16Array = 27,
    UInt32Array = 28,
    UInt64Array = 29,
    FloatArray = 30,
    DoubleArray = 31,
    BooleanArray = 32,
    StringArray = 33,
    DateTimeArray = 34,
}

/// A typed value. Its variant is its datatype.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "one variant a datatype, named like it")]
pub enum Value {
    Int8(i8),
    Int16(i16),
    Int32(i32),
    Int64(i64),
    UInt8(u8),
    UInt16(u16),
    UInt32(u32),
    UInt64(u64),
    Float(f32),
    Double(f64),
    Boolean(bool),
    String(Arc<str>),
    /// UTC, ms since the epoch.
    DateTime(u64),
    Text(Arc<str>),
    /// Text form, as the standard has it.
    Uuid(Arc<str>),
    DataSet(Arc<DataSet>),
    Bytes(Arc<[u8]>),
    File(Arc<[u8]>),
    Template(Arc<Template>),
    Int8Array(Arc<[i8]>),
    Int16Array(Arc<[i16]>),
    Int32Array(Arc<[i32]>),
    Int64Array(Arc<[i64]>),
    UInt8Array(Arc<[u8]>),
    UInt16Array(Arc<[u16]>),
    UInt32Array(Arc<[u32]>),
    UInt64Array(Arc<[u64]>),
    FloatArray(Arc<[f32]>),
    DoubleArray(Arc<[f64]>),
    BooleanArray(Arc<[bool]>),
    StringArray(Arc<[Arc<str>]>),
    DateTimeArray(Arc<[u64]>),
}

/// A table (Sparkplug 3.0, 6.4.10). Every row has as many cells as there are columns; None is a null cell.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DataSet {
    /// Column names and basic types.
    pub columns: Vec<(Arc<str>, DataType)>,
    /// Rows of cells.
    pub rows: Vec<Vec<Option<Value>>>,
}

/// A Template definition or instance (Sparkplug 3.0, 6.4.13).
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Template {
    /// Version of the definition.
    pub version: Option<Arc<str>>,
    /// Of an instance: name of the metric that carries the definition. None in a definition.
    pub template_ref: Option<Arc<str>>,
    /// Definition (true) or instance (false).
    pub is_definition: bool,
    /// Members.
    pub metrics: Vec<Metric>,
    /// Parameters: name, basic type, value.
    pub parameters: Vec<(Arc<str>, DataType, Option<Value>)>,
}

/// Value of a property: a basic value, null of a type, or nested sets.
#[derive(Debug, Clone, PartialEq)]
pub enum PropertyValue {
    /// A basic value.
    Value(Value),
    /// Null of that datatype.
    Null(DataType),
    /// Datatype PropertySet.
    Set(Properties),
    /// Datatype PropertySetList.
    List(Vec<Properties>),
}

/// Properties of a metric, in the order given; keys are unique. Shared like values: a copy costs nothing until it is changed.
#[derive(Clone, Default)]
pub struct Properties(Option<Arc<Pairs>>);

impl PartialEq for Properties {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            // Most are compared with a copy of their own.
            (Some(a), Some(b)) => Arc::ptr_eq(a, b) || a == b,
            (a, b) => a.is_none() && b.is_none(),
        }
    }
}

/// Never empty: no properties are None.
type Pairs = Vec<(Arc<str>, PropertyValue)>;

/// The property that says what a metric means.
pub(crate) const DOCUMENTATION: &str = "documentation";

impl Properties {
    /// No properties.
    #[must_use]
    pub const fn new() -> Self {
        Self(None)
    }

    /// `documentation` (String) of these lines, if there are any, and `readOnly` (Boolean): what Host Applications show beside a tag, and whether they offer to write it.
    ///
    /// ```
    /// use sparkplug::{Metric, Properties};
    ///
    /// let load = Metric::new("Load/1_min", 0.5).with_properties(Properties::described(&["Running processes."], true));
    /// assert_eq!(load.properties.get("documentation"), Some(&"Running processes.".into()));
    /// ```
    #[must_use]
    pub fn described(lines: &[&str], read_only: bool) -> Self {
        let lines: Vec<&str> = lines.iter().map(|line| line.trim()).collect();
        let described = if lines.is_empty() { Self::new() } else { Self::new().with(DOCUMENTATION, lines.join(" ")) };
        described.with("readOnly", read_only)
    }

    /// Sets `key`; an earlier value of it is replaced.
    #[must_use]
    pub fn with(mut self, key: impl Into<Arc<str>>, value: impl Into<Value>) -> Self {
        self.set(key, PropertyValue::Value(value.into()));
        self
    }

    /// Sets `key`; an earlier value of it is replaced.
    pub fn set(&mut self, key: impl Into<Arc<str>>, value: PropertyValue) {
        let key = key.into();
        let pairs = Arc::make_mut(self.0.get_or_insert_default());
        match pairs.iter_mut().find(|(k, _)| *k == key) {
            Some(slot) => slot.1 = value,
            None => pairs.push((key, value)),
        }
    }

    /// Removes `key`, if it is there.
    pub(crate) fn remove(&mut self, key: &str) {
        if self.pairs().iter().any(|(k, _)| &**k == key) {
            *self = Self::of_distinct(self.pairs().iter().filter(|(k, _)| &**k != key).cloned().collect());
        }
    }

    /// The plain value of `key`, if it has one.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.iter().find_map(|(k, v)| match v {
            PropertyValue::Value(value) if k == key => Some(value),
            _ => None,
        })
    }

    /// All, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &PropertyValue)> {
        self.pairs().iter().map(|(k, v)| (&**k, v))
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// These, with what `changes` say.
    pub(crate) fn overlaid(&self, changes: &Self) -> Self {
        if self.is_empty() {
            return changes.clone();
        }
        let mut all = self.clone();
        for (key, value) in changes.pairs() {
            all.set(key.clone(), value.clone());
        }
        all
    }

    /// Properties whose keys are known to differ.
    pub(crate) fn of_distinct(pairs: Pairs) -> Self {
        Self((!pairs.is_empty()).then(|| Arc::new(pairs)))
    }

    fn pairs(&self) -> &[(Arc<str>, PropertyValue)] {
        self.0.as_deref().map_or(&[], Vec::as_slice)
    }

    fn check(&self) -> Result<(), &'static str> {
        self.pairs().iter().try_for_each(|(_, value)| match value {
            PropertyValue::Value(value) if !value.datatype().is_basic() => Err("a property has no basic type"),
            PropertyValue::Null(datatype) if !datatype.is_property() => {
                Err("a null property has no type that a property can have")
            }
            PropertyValue::Set(set) => set.check(),
            PropertyValue::List(sets) => sets.iter().try_for_each(Self::check),
            PropertyValue::Value(_) | PropertyValue::Null(_) => Ok(()),
        })
    }
}

impl fmt::Debug for Properties {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Properties").field(&self.pairs()).finish()
    }
}

/// Value of the property [`Quality::KEY`]; needed only where it is not good
/// (tck-id-payloads-propertyset-quality-value-type, tck-id-payloads-propertyset-quality-value-value).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quality {
    /// The value is not to be relied on.
    Bad = 0,
    /// The value is good.
    Good = 192,
    /// The value may be old.
    Stale = 500,
}

impl Quality {
    /// Key of the property.
    pub const KEY: &'static str = "Quality";
}

impl From<Quality> for Value {
    fn from(quality: Quality) -> Self {
        Self::Int32(quality as i32)
    }
}

/// Description of a file or of a part of a larger value (Sparkplug 3.0, 6.4.7). All optional.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[expect(missing_docs, reason = "the standard's own names")]
pub struct MetaData {
    pub is_multi_part: Option<bool>,
    pub content_type: Option<String>,
    pub size: Option<u64>,
    pub seq: Option<u64>,
    pub file_name: Option<String>,
    pub file_type: Option<String>,
    pub md5: Option<String>,
    pub description: Option<String>,
}

/// A metric with its name and its type known: what applications give to the machines and get from them. On the wire a name may be
/// replaced by an alias and the type left out; the machines see to that.
#[derive(Debug, Clone, PartialEq)]
pub struct Metric {
    /// Name; `/` separates folders.
    pub name: Arc<str>,
    /// Datatype, known also when the value is null.
    pub datatype: DataType,
    /// None is null.
    pub value: Option<Value>,
    /// Capture time, UTC ms. None: the machine stamps it with the time at which it gets it.
    pub timestamp: Option<u64>,
    /// Properties; sent with births, and with data when they changed.
    pub properties: Properties,
    /// File and multi-part description.
    pub metadata: Option<Box<MetaData>>,
    /// A historical value: does not become the current one.
    pub is_historical: bool,
    /// A transient value: not for historians.
    pub is_transient: bool,
}

impl Metric {
    /// A metric with a value.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>, value: impl Into<Value>) -> Self {
        let value = value.into();
        Self { datatype: value.datatype(), value: Some(value), ..Self::null(name, DataType::Boolean) }
    }

    /// A metric whose value is null.
    #[must_use]
    pub fn null(name: impl Into<Arc<str>>, datatype: DataType) -> Self {
        Self {
            name: name.into(),
            datatype,
            value: None,
            timestamp: None,
            properties: Properties::new(),
            metadata: None,
            is_historical: false,
            is_transient: false,
        }
    }

    /// A String metric, null when there is no text.
    #[must_use]
    pub fn string(name: impl Into<Arc<str>>, text: Option<&str>) -> Self {
        match text {
            Some(text) => Self::new(name, text),
            None => Self::null(name, DataType::String),
        }
    }

    /// A DateTime metric: milliseconds since 1970 in UTC.
    #[must_use]
    pub fn date_time(name: impl Into<Arc<str>>, ms: u64) -> Self {
        Self::new(name, Value::DateTime(ms))
    }

    /// The same with a capture time.
    #[must_use]
    pub const fn at(mut self, timestamp: u64) -> Self {
        self.timestamp = Some(timestamp);
        self
    }

    /// The same with these properties.
    #[must_use]
    pub fn with_properties(mut self, properties: Properties) -> Self {
        self.properties = properties;
        self
    }

    /// The same, marked historical.
    #[must_use]
    pub const fn historical(mut self) -> Self {
        self.is_historical = true;
        self
    }

    /// Whether the metric can be sent as it is: value, datatype and properties agree, tables and templates are complete.
    ///
    /// # Errors
    /// The rule that it breaks.
    pub fn check(&self) -> Result<(), &'static str> {
        if matches!(self.datatype, DataType::PropertySet | DataType::PropertySetList) {
            return Err("PropertySet and PropertySetList are datatypes of properties, not of metrics");
        }
        self.properties.check()?;
        match &self.value {
            None => Ok(()),
            Some(value) if value.datatype() != self.datatype => Err("value and datatype do not agree"),
            Some(Value::DataSet(table)) => table.check(),
            Some(Value::Template(template)) => template.check(),
            Some(Value::StringArray(strings)) if strings.iter().any(|s| s.contains('\0')) => {
                Err("a string of an array cannot contain U+0000")
            }
            Some(_) => Ok(()),
        }
    }

    /// Whether both say the same about the world, whenever they were captured.
    pub(crate) fn says_the_same_as(&self, other: &Self) -> bool {
        let same_value = match (&self.value, &other.value) {
            (Some(a), Some(b)) => a.is_identical(b),
            (None, None) => true,
            _ => false,
        };
        same_value
            && self.properties == other.properties
            && self.metadata == other.metadata
            && self.is_transient == other.is_transient
    }

    /// Text of a String, Text or UUID value.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        self.value.as_ref().and_then(Value::as_str)
    }

    /// The value as an unsigned number, if it is an integer or DateTime that fits.
    #[must_use]
    pub fn as_u64(&self) -> Option<u64> {
        self.value.as_ref().and_then(Value::as_u64)
    }

    /// The value of a Boolean.
    #[must_use]
    pub fn as_bool(&self) -> Option<bool> {
        match self.value {
            Some(Value::Boolean(b)) => Some(b),
            _ => None,
        }
    }
}

impl DataType {
    /// From the wire.
    #[must_use]
    pub const fn from_wire(n: u32) -> Option<Self> {
        use DataType as T;
        Some(match n {
            1 => T::Int8,
            2 => T::Int16,
            3 => T::Int32,
            4 => T::Int64,
            5 => T::UInt8,
            6 => T::UInt16,
            7 => T::UInt32,
            8 => T::UInt64,
            9 => T::Float,
            10 => T::Double,
            11 => T::Boolean,
            12 => T::String,
            13 => T::DateTime,
            14 => T::Text,
            15 => T::Uuid,
            16 => T::DataSet,
            17 => T::Bytes,
            18 => T::File,
            19 => T::Template,
            20 => T::PropertySet,
            21 => T::PropertySetList,
            22 => T::Int8Array,
            23 => T::Int16Array,
            24 => T::Int32Array,
            25 => T::Int64Array,
            26 => T::UInt8Array,
            27 => T::UInt16Array,
            28 => T::UInt32Array,
            29 => T::UInt64Array,
            30 => T::FloatArray,
            31 => T::DoubleArray,
            32 => T::BooleanArray,
            33 => T::StringArray,
            34 => T::DateTimeArray,
            _ => return None,
        })
    }

    /// As on the wire.
    #[must_use]
    pub const fn to_wire(self) -> u32 {
        self as u32
    }

    /// Types 1 to 14: those of table columns and template parameters (tck-id-payloads-dataset-types-value,
    /// tck-id-payloads-template-parameter-type-value).
    #[must_use]
    pub const fn is_basic(self) -> bool {
        (self as u32) <= Self::Text as u32
    }

    /// Basic types, PropertySet and PropertySetList (tck-id-payloads-metric-propertyvalue-type-value).
    #[must_use]
    pub const fn is_property(self) -> bool {
        self.is_basic() || matches!(self, Self::PropertySet | Self::PropertySetList)
    }
}

impl DataSet {
    /// A table with these columns and no rows.
    ///
    /// ```
    /// use sparkplug::metric::DataSet;
    /// use sparkplug::{DataType, Metric, Value};
    ///
    /// let table = DataSet::new([("Tool", DataType::String), ("Cycles", DataType::UInt32)])
    ///     .with_row([Some("drill".into()), Some(17_u32.into())])
    ///     .with_row([Some("mill".into()), None]);
    /// assert!(Metric::new("Tools", Value::from(table)).check().is_ok());
    /// ```
    #[must_use]
    pub fn new<N: Into<Arc<str>>>(columns: impl IntoIterator<Item = (N, DataType)>) -> Self {
        Self {
            columns: columns.into_iter().map(|(name, datatype)| (name.into(), datatype)).collect(),
            rows: Vec::new(),
        }
    }

    /// The same with another row; None is null. A row that does not fit the columns is refused by [`Metric::check`].
    #[must_use]
    pub fn with_row(mut self, cells: impl IntoIterator<Item = Option<Value>>) -> Self {
        self.rows.push(cells.into_iter().collect());
        self
    }

    fn check(&self) -> Result<(), &'static str> {
        if self.columns.iter().any(|(_, datatype)| !datatype.is_basic()) {
            return Err("a column of the table has no basic type");
        }
        for row in &self.rows {
            if row.len() != self.columns.len() {
                return Err("a row of the table has not as many cells as there are columns");
            }
            if row.iter().zip(&self.columns).any(|(cell, (_, t))| cell.as_ref().is_some_and(|c| c.datatype() != *t)) {
                return Err("a cell of the table does not have the type of its column");
            }
        }
        Ok(())
    }
}

impl Template {
    /// A definition (a user-defined type) with these members, whose values are those that instances start with. It is a metric of the node, never of a device.
    ///
    /// ```
    /// use sparkplug::metric::Template;
    /// use sparkplug::{DataType, Metric};
    ///
    /// let motor = Template::definition([Metric::new("Speed", 0.0), Metric::null("Fault", DataType::String)])
    ///     .with_version("1.2")
    ///     .with_parameter("Rated_Power", 5.5);
    /// let drive = motor.instance_of("Types/Motor").with_value("Speed", 1_480.0).with_parameter("Rated_Power", 7.5);
    /// let metrics = [Metric::new("Types/Motor", motor), Metric::new("Drive", drive)];
    /// assert!(metrics.iter().all(|metric| metric.check().is_ok()));
    /// ```
    #[must_use]
    pub fn definition(members: impl IntoIterator<Item = Metric>) -> Self {
        Self { is_definition: true, metrics: members.into_iter().collect(), ..Self::default() }
    }

    /// An instance of this definition, which the metric `definition` of the node carries. It has all members with the values of the definition, and its version. It has no
    /// parameters, so that the defaults of the definition hold.
    #[must_use]
    pub fn instance_of(&self, definition: impl Into<Arc<str>>) -> Self {
        Self { template_ref: Some(definition.into()), is_definition: false, parameters: Vec::new(), ..self.clone() }
    }

    /// The same with this version.
    #[must_use]
    pub fn with_version(mut self, version: impl Into<Arc<str>>) -> Self {
        self.version = Some(version.into());
        self
    }

    /// The same with this value of a member; its properties stay. A member that is not there yet is added. An Edge Node refuses an instance with members or datatypes that its definition
    /// does not have.
    #[must_use]
    pub fn with_value(self, member: impl Into<Arc<str>>, value: impl Into<Value>) -> Self {
        let set = Metric::new(member, value);
        let properties = self.member(&set.name).map(|known| known.properties.clone()).unwrap_or_default();
        self.with_member(set.with_properties(properties))
    }

    /// The same with this member in place of the one of its name; one that is not there yet is added.
    #[must_use]
    pub fn with_member(mut self, member: Metric) -> Self {
        match self.metrics.iter_mut().find(|known| known.name == member.name) {
            Some(known) => *known = member,
            None => self.metrics.push(member),
        }
        self
    }

    /// The same with this value of a parameter: of a definition the default, of an instance its own.
    #[must_use]
    pub fn with_parameter(mut self, name: impl Into<Arc<str>>, value: impl Into<Value>) -> Self {
        let (name, value) = (name.into(), value.into());
        let parameter = (name, value.datatype(), Some(value));
        match self.parameters.iter_mut().find(|(known, ..)| *known == parameter.0) {
            Some(known) => *known = parameter,
            None => self.parameters.push(parameter),
        }
        self
    }

    /// The member of that name.
    #[must_use]
    pub fn member(&self, name: &str) -> Option<&Metric> {
        self.metrics.iter().find(|member| &*member.name == name)
    }

    fn check(&self) -> Result<(), &'static str> {
        // tck-id-payloads-template-definition-ref, tck-id-payloads-template-instance-ref
        if self.is_definition == self.template_ref.is_some() {
            return Err("a template instance names its definition, a definition names none");
        }
        if self
            .parameters
            .iter()
            .any(|(_, t, value)| !t.is_basic() || value.as_ref().is_some_and(|v| v.datatype() != *t))
        {
            return Err("a parameter of the template has no basic type, or not the type of its value");
        }
        // tck-id-payloads-template-parameter-name-required
        if self.parameters.iter().any(|(name, ..)| name.is_empty()) {
            return Err("a parameter of the template has no name");
        }
        self.metrics.iter().try_for_each(Metric::check)
    }
}

impl Value {
    /// Equal, and not a number equal to itself: the same bytes on the wire.
    pub(crate) fn is_identical(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Float(a), Self::Float(b)) => a.to_bits() == b.to_bits(),
            (Self::Double(a), Self::Double(b)) => a.to_bits() == b.to_bits(),
            (Self::FloatArray(a), Self::FloatArray(b)) => {
                a.iter().map(|x| x.to_bits()).eq(b.iter().map(|x| x.to_bits()))
            }
            (Self::DoubleArray(a), Self::DoubleArray(b)) => {
                a.iter().map(|x| x.to_bits()).eq(b.iter().map(|x| x.to_bits()))
            }
            _ => self == other,
        }
    }

    /// The datatype that the variant stands for.
    #[must_use]
    pub const fn datatype(&self) -> DataType {
        use DataType as T;
        match self {
            Self::Int8(_) => T::Int8,
            Self::Int16(_) => T::Int16,
            Self::Int32(_) => T::Int32,
            Self::Int64(_) => T::Int64,
            Self::UInt8(_) => T::UInt8,
            Self::UInt16(_) => T::UInt16,
            Self::UInt32(_) => T::UInt32,
            Self::UInt64(_) => T::UInt64,
            Self::Float(_) => T::Float,
            Self::Double(_) => T::Double,
            Self::Boolean(_) => T::Boolean,
            Self::String(_) => T::String,
            Self::DateTime(_) => T::DateTime,
            Self::Text(_) => T::Text,
            Self::Uuid(_) => T::Uuid,
            Self::DataSet(_) => T::DataSet,
            Self::Bytes(_) => T::Bytes,
            Self::File(_) => T::File,
            Self::Template(_) => T::Template,
            Self::Int8Array(_) => T::Int8Array,
            Self::Int16Array(_) => T::Int16Array,
            Self::Int32Array(_) => T::Int32Array,
            Self::Int64Array(_) => T::Int64Array,
            Self::UInt8Array(_) => T::UInt8Array,
            Self::UInt16Array(_) => T::UInt16Array,
            Self::UInt32Array(_) => T::UInt32Array,
            Self::UInt64Array(_) => T::UInt64Array,
            Self::FloatArray(_) => T::FloatArray,
            Self::DoubleArray(_) => T::DoubleArray,
            Self::BooleanArray(_) => T::BooleanArray,
            Self::StringArray(_) => T::StringArray,
            Self::DateTimeArray(_) => T::DateTimeArray,
        }
    }

    /// Text of a String, Text or UUID.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(s) | Self::Text(s) | Self::Uuid(s) => Some(s),
            _ => None,
        }
    }

    /// The number of an integer or DateTime, if it fits.
    #[must_use]
    pub fn as_u64(&self) -> Option<u64> {
        match *self {
            Self::UInt8(n) => Some(n.into()),
            Self::UInt16(n) => Some(n.into()),
            Self::UInt32(n) => Some(n.into()),
            Self::UInt64(n) | Self::DateTime(n) => Some(n),
            Self::Int8(n) => n.try_into().ok(),
            Self::Int16(n) => n.try_into().ok(),
            Self::Int32(n) => n.try_into().ok(),
            Self::Int64(n) => n.try_into().ok(),
            _ => None,
        }
    }
}

macro_rules! from {
    ($($type:ty => $variant:ident),*) => {
        $(impl From<$type> for Value {
            fn from(value: $type) -> Self {
                Self::$variant(value.into())
            }
        })*
    };
}
from!(i8 => Int8, i16 => Int16, i32 => Int32, i64 => Int64, u8 => UInt8, u16 => UInt16, u32 => UInt32, u64 => UInt64,
      f32 => Float, f64 => Double, bool => Boolean, &str => String, String => String, Arc<str> => String);

/// Arrays from what holds their elements. There is none of `Vec<u8>`, which might be [`Value::Bytes`] as well.
macro_rules! from_vec {
    ($($type:ty => $variant:ident),*) => {
        $(impl From<Vec<$type>> for Value {
            fn from(elements: Vec<$type>) -> Self {
                Self::$variant(elements.into())
            }
        })*
    };
}
from_vec!(i8 => Int8Array, i16 => Int16Array, i32 => Int32Array, i64 => Int64Array, u16 => UInt16Array, u32 => UInt32Array,
          u64 => UInt64Array, f32 => FloatArray, f64 => DoubleArray, bool => BooleanArray, Arc<str> => StringArray);

impl From<DataSet> for Value {
    fn from(table: DataSet) -> Self {
        Self::DataSet(Arc::new(table))
    }
}

impl From<Template> for Value {
    fn from(template: Template) -> Self {
        Self::Template(Arc::new(template))
    }
}
