//! Sparkplug B payloads: proto2, package `org.eclipse.tahu.protobuf` (Sparkplug 3.0, 6.4).
//!
//! Field numbers stand at the fields. Scalars are `optional` in the schema, hence `Option`: a `seq` of 0 is present, not absent. Every message but
//! the oneof holders leaves the numbers after its own to extensions; fields with unknown numbers are skipped when reading.
//!
//! ```text
//! Payload      1 timestamp  2 metrics*  3 seq  4 uuid  5 body
//! Metric       1 name  2 alias  3 timestamp  4 datatype  5 is_historical  6 is_transient  7 is_null  8 metadata  9 properties
//!              one of: 10 int  11 long  12 float  13 double  14 boolean  15 string  16 bytes  17 dataset  18 template  19 extension
//! MetaData     1 is_multi_part  2 content_type  3 size  4 seq  5 file_name  6 file_type  7 md5  8 description
//! PropertySet  1 keys*  2 values*            PropertySetList  1 propertyset*
//! PropertyValue 1 type  2 is_null            one of: 3 int  4 long  5 float  6 double  7 boolean  8 string  9 set  10 list  11 extension
//! DataSet      1 num_of_columns  2 columns*  3 types*  4 rows*            Row  1 elements*
//! DataSetValue                               one of: 1 int  2 long  3 float  4 double  5 boolean  6 string  7 extension
//! Template     1 version  2 metrics*  3 parameters*  4 template_ref  5 is_definition
//! Parameter    1 name  2 type                one of: 3 int  4 long  5 float  6 double  7 boolean  8 string  9 extension
//! ```

use prost::{Message, Oneof};

/// The payload of every message but STATE.
#[derive(Clone, PartialEq, Message)]
pub struct Payload {
    /// UTC ms at which the message is sent.
    #[prost(uint64, optional, tag = "1")]
    pub timestamp: Option<u64>,
    /// Metrics.
    #[prost(message, repeated, tag = "2")]
    pub metrics: Vec<Metric>,
    /// Sequence number.
    #[prost(uint64, optional, tag = "3")]
    pub seq: Option<u64>,
    /// Free for applications.
    #[prost(string, optional, tag = "4")]
    pub uuid: Option<String>,
    /// Free for applications.
    #[prost(bytes = "vec", optional, tag = "5")]
    pub body: Option<Vec<u8>>,
}

/// `Payload.Metric`.
#[derive(Clone, PartialEq, Message)]
pub struct Metric {
    /// Name, unless the alias stands in for it.
    #[prost(string, optional, tag = "1")]
    pub name: Option<String>,
    /// Alias.
    #[prost(uint64, optional, tag = "2")]
    pub alias: Option<u64>,
    /// UTC ms at which the value was captured.
    #[prost(uint64, optional, tag = "3")]
    pub timestamp: Option<u64>,
    /// Number of the datatype.
    #[prost(uint32, optional, tag = "4")]
    pub datatype: Option<u32>,
    /// Not the current value.
    #[prost(bool, optional, tag = "5")]
    pub is_historical: Option<bool>,
    /// Not for historians.
    #[prost(bool, optional, tag = "6")]
    pub is_transient: Option<bool>,
    /// Has no value.
    #[prost(bool, optional, tag = "7")]
    pub is_null: Option<bool>,
    /// Description of a file or a part.
    #[prost(message, optional, boxed, tag = "8")]
    pub metadata: Option<Box<MetaData>>,
    /// Properties.
    #[prost(message, optional, tag = "9")]
    pub properties: Option<PropertySet>,
    /// Value.
    #[prost(oneof = "metric::Value", tags = "10, 11, 12, 13, 14, 15, 16, 17, 18, 19")]
    pub value: Option<metric::Value>,
}

/// Oneof of [`Metric`].
pub mod metric {
    use super::{DataSet, Extension, Oneof, Template};

    /// `Payload.Metric.value`.
    #[derive(Clone, PartialEq, Oneof)]
    pub enum Value {
        /// `int_value`
        #[prost(uint32, tag = "10")]
        Int(u32),
        /// `long_value`
        #[prost(uint64, tag = "11")]
        Long(u64),
        /// `float_value`
        #[prost(float, tag = "12")]
        Float(f32),
        /// `double_value`
        #[prost(double, tag = "13")]
        Double(f64),
        /// `boolean_value`
        #[prost(bool, tag = "14")]
        Boolean(bool),
        /// `string_value`
        #[prost(string, tag = "15")]
        String(String),
        /// `bytes_value`
        #[prost(bytes, tag = "16")]
        Bytes(Vec<u8>),
        /// `dataset_value`
        #[prost(message, tag = "17")]
        DataSet(DataSet),
        /// `template_value`
        #[prost(message, tag = "18")]
        Template(Template),
        /// `extension_value`
        #[prost(message, tag = "19")]
        Extension(Extension),
    }
}

/// `Payload.MetaData`.
#[derive(Clone, PartialEq, Message)]
pub struct MetaData {
    /// Whether the metric is a part of a larger value.
    #[prost(bool, optional, tag = "1")]
    pub is_multi_part: Option<bool>,
    /// Media type.
    #[prost(string, optional, tag = "2")]
    pub content_type: Option<String>,
    /// Size in bytes.
    #[prost(uint64, optional, tag = "3")]
    pub size: Option<u64>,
    /// Number of the part.
    #[prost(uint64, optional, tag = "4")]
    pub seq: Option<u64>,
    /// File name.
    #[prost(string, optional, tag = "5")]
    pub file_name: Option<String>,
    /// File type.
    #[prost(string, optional, tag = "6")]
    pub file_type: Option<String>,
    /// MD5 of the content.
    #[prost(string, optional, tag = "7")]
    pub md5: Option<String>,
    /// Free text.
    #[prost(string, optional, tag = "8")]
    pub description: Option<String>,
}

/// `Payload.PropertySet`: as many keys as values.
#[derive(Clone, PartialEq, Message)]
pub struct PropertySet {
    /// Keys.
    #[prost(string, repeated, tag = "1")]
    pub keys: Vec<String>,
    /// Values.
    #[prost(message, repeated, tag = "2")]
    pub values: Vec<PropertyValue>,
}

/// `Payload.PropertyValue`.
#[derive(Clone, PartialEq, Message)]
pub struct PropertyValue {
    /// Number of the datatype (field `type`).
    #[prost(uint32, optional, tag = "1")]
    pub datatype: Option<u32>,
    /// Has no value.
    #[prost(bool, optional, tag = "2")]
    pub is_null: Option<bool>,
    /// Value.
    #[prost(oneof = "property_value::Value", tags = "3, 4, 5, 6, 7, 8, 9, 10, 11")]
    pub value: Option<property_value::Value>,
}

/// Oneof of [`PropertyValue`].
pub mod property_value {
    use super::{Extension, Oneof, PropertySet, PropertySetList};

    /// `Payload.PropertyValue.value`.
    #[derive(Clone, PartialEq, Oneof)]
    pub enum Value {
        /// `int_value`
        #[prost(uint32, tag = "3")]
        Int(u32),
        /// `long_value`
        #[prost(uint64, tag = "4")]
        Long(u64),
        /// `float_value`
        #[prost(float, tag = "5")]
        Float(f32),
        /// `double_value`
        #[prost(double, tag = "6")]
        Double(f64),
        /// `boolean_value`
        #[prost(bool, tag = "7")]
        Boolean(bool),
        /// `string_value`
        #[prost(string, tag = "8")]
        String(String),
        /// `propertyset_value`
        #[prost(message, tag = "9")]
        Set(PropertySet),
        /// `propertysets_value`
        #[prost(message, tag = "10")]
        List(PropertySetList),
        /// `extension_value`
        #[prost(message, tag = "11")]
        Extension(Extension),
    }
}

/// `Payload.PropertySetList`.
#[derive(Clone, PartialEq, Message)]
pub struct PropertySetList {
    /// Sets.
    #[prost(message, repeated, tag = "1")]
    pub sets: Vec<PropertySet>,
}

/// `Payload.DataSet`: `num_of_columns` columns and types.
#[derive(Clone, PartialEq, Message)]
pub struct DataSet {
    /// Number of columns.
    #[prost(uint64, optional, tag = "1")]
    pub num_of_columns: Option<u64>,
    /// Column names.
    #[prost(string, repeated, tag = "2")]
    pub columns: Vec<String>,
    /// Numbers of the columns' datatypes.
    #[prost(uint32, repeated, packed = "false", tag = "3")]
    pub types: Vec<u32>,
    /// Rows.
    #[prost(message, repeated, tag = "4")]
    pub rows: Vec<Row>,
}

/// `Payload.DataSet.Row`.
#[derive(Clone, PartialEq, Message)]
pub struct Row {
    /// Cells.
    #[prost(message, repeated, tag = "1")]
    pub elements: Vec<DataSetValue>,
}

/// `Payload.DataSet.DataSetValue`; an empty one is a null cell.
#[derive(Clone, PartialEq, Message)]
pub struct DataSetValue {
    /// Value.
    #[prost(oneof = "data_set_value::Value", tags = "1, 2, 3, 4, 5, 6, 7")]
    pub value: Option<data_set_value::Value>,
}

/// Oneof of [`DataSetValue`].
pub mod data_set_value {
    use super::{Extension, Oneof};

    /// `Payload.DataSet.DataSetValue.value`.
    #[derive(Clone, PartialEq, Oneof)]
    pub enum Value {
        /// `int_value`
        #[prost(uint32, tag = "1")]
        Int(u32),
        /// `long_value`
        #[prost(uint64, tag = "2")]
        Long(u64),
        /// `float_value`
        #[prost(float, tag = "3")]
        Float(f32),
        /// `double_value`
        #[prost(double, tag = "4")]
        Double(f64),
        /// `boolean_value`
        #[prost(bool, tag = "5")]
        Boolean(bool),
        /// `string_value`
        #[prost(string, tag = "6")]
        String(String),
        /// `extension_value`
        #[prost(message, tag = "7")]
        Extension(Extension),
    }
}

/// `Payload.Template`: a definition or an instance.
#[derive(Clone, PartialEq, Message)]
pub struct Template {
    /// Version of the definition.
    #[prost(string, optional, tag = "1")]
    pub version: Option<String>,
    /// Members.
    #[prost(message, repeated, tag = "2")]
    pub metrics: Vec<Metric>,
    /// Parameters.
    #[prost(message, repeated, tag = "3")]
    pub parameters: Vec<Parameter>,
    /// Name of the metric that carries the definition; only in instances.
    #[prost(string, optional, tag = "4")]
    pub template_ref: Option<String>,
    /// Definition or instance.
    #[prost(bool, optional, tag = "5")]
    pub is_definition: Option<bool>,
}

/// `Payload.Template.Parameter`.
#[derive(Clone, PartialEq, Message)]
pub struct Parameter {
    /// Name.
    #[prost(string, optional, tag = "1")]
    pub name: Option<String>,
    /// Number of the datatype (field `type`).
    #[prost(uint32, optional, tag = "2")]
    pub datatype: Option<u32>,
    /// Value.
    #[prost(oneof = "parameter::Value", tags = "3, 4, 5, 6, 7, 8, 9")]
    pub value: Option<parameter::Value>,
}

/// Oneof of [`Parameter`].
pub mod parameter {
    use super::{Extension, Oneof};

    /// `Payload.Template.Parameter.value`.
    #[derive(Clone, PartialEq, Oneof)]
    pub enum Value {
        /// `int_value`
        #[prost(uint32, tag = "3")]
        Int(u32),
        /// `long_value`
        #[prost(uint64, tag = "4")]
        Long(u64),
        /// `float_value`
        #[prost(float, tag = "5")]
        Float(f32),
        /// `double_value`
        #[prost(double, tag = "6")]
        Double(f64),
        /// `boolean_value`
        #[prost(bool, tag = "7")]
        Boolean(bool),
        /// `string_value`
        #[prost(string, tag = "8")]
        String(String),
        /// `extension_value`
        #[prost(message, tag = "9")]
        Extension(Extension),
    }
}

/// Holder of extensions (`MetricValueExtension` and its siblings); its content is skipped.
#[derive(Clone, PartialEq, Message)]
pub struct Extension {}
