//! Payloads that own what they say, as they stand on the wire: for readers that keep messages, and for tools.

use std::sync::Arc;

use bytes::Bytes;

use super::basic_value::BasicValue;
use super::borrowed::{DataSetRef, MetricRef, PayloadRef, TemplateRef, ValueRef};
use super::check::Budget;
use super::limits::Limits;
use super::nested::{self, basic_value, next, skip, slice, text};
use super::read::metric;
use super::value::{self, MetricError, ValueField, basic};
use super::wire::{Fields, SLICE, VARINT, key};
use crate::metric::{DataSet, DataType, MetaData, Metric, Properties, Template, Value};

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
    /// Name, unless an alias replaces it.
    pub name: Option<Arc<str>>,
    /// Alias.
    pub alias: Option<u64>,
    /// UTC ms.
    pub timestamp: Option<u64>,
    /// Datatype number, if the message has it.
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
    /// Holds its own types, so it is complete, or known to be broken.
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

impl From<&PayloadRef<'_>> for RawPayload {
    fn from(payload: &PayloadRef<'_>) -> Self {
        Self {
            timestamp: payload.timestamp,
            seq: payload.seq,
            uuid: payload.uuid.map(Arc::from),
            body: payload.body.map(Bytes::copy_from_slice),
            metrics: payload.metrics.iter().map(RawMetric::from).collect(),
        }
    }
}

impl From<&MetricRef<'_>> for RawMetric {
    fn from(metric: &MetricRef<'_>) -> Self {
        Self {
            name: metric.name.map(Arc::from),
            alias: metric.alias,
            timestamp: metric.timestamp,
            datatype: metric.datatype,
            value: metric.value.as_ref().map(WireValue::from),
            properties: metric.properties.map(|properties| properties.decode()),
            metadata: metric.metadata.map(|metadata| Box::new(metadata.decode())),
            is_historical: metric.is_historical,
            is_transient: metric.is_transient,
        }
    }
}

impl From<&ValueRef<'_>> for WireValue {
    fn from(value: &ValueRef<'_>) -> Self {
        match *value {
            ValueRef::Int(n) => Self::Int(n),
            ValueRef::Long(n) => Self::Long(n),
            ValueRef::Float(x) => Self::Float(x),
            ValueRef::Double(x) => Self::Double(x),
            ValueRef::Boolean(b) => Self::Boolean(b),
            ValueRef::String(s) => Self::String(s.into()),
            ValueRef::Bytes(b) => Self::Bytes(b.into()),
            ValueRef::DataSet(DataSetRef(bytes)) => Self::DataSet(nested::dataset(bytes).map(Arc::new)),
            ValueRef::Template(TemplateRef(bytes)) => Self::Template(Box::new(template(bytes))),
            ValueRef::Extension => Self::Extension,
        }
    }
}

impl RawMetric {
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
        value::own_datatype(self.datatype, self.value.as_ref().map(WireValue::value_field))
    }

    /// The metric that this is, given its name and datatype. `current`: the value that the receiver holds; it gives the types of template members that the message leaves out.
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

    /// The value that this is in a metric of `datatype`.
    ///
    /// # Errors
    /// [`MetricError`] when the field does not carry that datatype, or its content is malformed.
    pub fn resolve(self, datatype: DataType, current: Option<&Value>) -> Result<Value, MetricError> {
        let field = self.field();
        let value = match self {
            Self::Int(n) => basic(datatype, BasicValue::<&str>::Int(n)),
            Self::Long(n) => basic(datatype, BasicValue::<&str>::Long(n)),
            Self::Float(x) => basic(datatype, BasicValue::<&str>::Float(x)),
            Self::Double(x) => basic(datatype, BasicValue::<&str>::Double(x)),
            Self::Boolean(b) => basic(datatype, BasicValue::<&str>::Boolean(b)),
            Self::String(s) if datatype == DataType::Uuid => Some(Value::Uuid(s)),
            Self::String(s) => basic(datatype, BasicValue::String(s)),
            Self::Bytes(bytes) => value::of_bytes(datatype, bytes)?,
            Self::DataSet(table) if datatype == DataType::DataSet => Some(Value::DataSet(table?)),
            Self::Template(raw) if datatype == DataType::Template => {
                Some(Value::Template(Arc::new(raw.resolve(current)?)))
            }
            Self::DataSet(_) | Self::Template(_) | Self::Extension => None,
        };
        value.ok_or(MetricError::ValueField { datatype, field })
    }
}

impl RawTemplate {
    pub(super) fn resolve(self, current: Option<&Value>) -> Result<Template, MetricError> {
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

pub(super) fn template(bytes: &[u8]) -> RawTemplate {
    const VERSION: u32 = key(1, SLICE);
    const METRIC: u32 = key(2, SLICE);
    const PARAMETER: u32 = key(3, SLICE);
    const REFERENCE: u32 = key(4, SLICE);
    const IS_DEFINITION: u32 = key(5, VARINT);
    let mut template = RawTemplate::default();
    let mut unused = Budget::new(&Limits::default());
    let mut fields = Fields::new(bytes);
    while let Some(field) = next(&mut fields) {
        match field {
            VERSION => template.version = Some(text(&mut fields).into()),
            METRIC => {
                let member = metric::<false>(slice(&mut fields), &mut unused, 0);
                template.metrics.extend(member.ok().as_ref().map(RawMetric::from));
            }
            PARAMETER => template.parameters.extend(parameter(slice(&mut fields))),
            REFERENCE => template.template_ref = Some(text(&mut fields).into()),
            IS_DEFINITION => template.is_definition = fields.boolean().ok(),
            _ => skip(&mut fields, field),
        }
    }
    template
}

type Parameter = (Arc<str>, DataType, Option<Value>);

/// None: without a name, or of an unknown type.
fn parameter(bytes: &[u8]) -> Option<Parameter> {
    const NAME: u32 = key(1, SLICE);
    const DATATYPE: u32 = key(2, VARINT);
    const EXTENSION: u32 = key(9, SLICE);
    let (mut name, mut declared, mut value) = (None, None, None);
    let mut fields = Fields::new(bytes);
    while let Some(field) = next(&mut fields) {
        match field {
            NAME => name = Some(text(&mut fields)),
            DATATYPE => declared = fields.int().ok(),
            EXTENSION => {
                slice(&mut fields);
                value = None;
            }
            _ => match basic_value(&mut fields, field, 3) {
                Some(basic_value) => value = Some(basic_value),
                None => skip(&mut fields, field),
            },
        }
    }
    let datatype = match declared {
        Some(number) => DataType::from_wire(number)?,
        None => value.as_ref()?.suggested_datatype(),
    };
    // tck-id-payloads-template-parameter-name-required
    let name = name.filter(|name| !name.is_empty())?;
    Some((name.into(), datatype, value.and_then(|basic_value| basic(datatype, basic_value))))
}
