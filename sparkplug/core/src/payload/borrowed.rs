//! Payloads that borrow from their bytes: the way from the wire to a replica. [`super::read`] makes them in one pass; the list of metrics is the only memory that they take. What most
//! metrics do not have (properties, tables, templates, descriptions) stays as a range of bytes that is known to be sound, and is decoded on request.

use super::nested;
use crate::metric::{MetaData, Properties};

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
    /// Name, unless an alias replaces it.
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
    /// Datatype number, if the message has it.
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
