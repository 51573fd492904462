//! Metrics that borrow from a message -> metrics with a name, a datatype and a value of it.

use std::sync::Arc;

use super::basic_value::BasicValue;
use super::borrowed::{DataSetRef, MetricRef, TemplateRef, ValueRef};
use super::value::{self, MetricError, ValueField, basic};
use super::{nested, owned};
use crate::metric::{DataType, Metric, Properties, Value};

impl MetricRef<'_> {
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
        value::own_datatype(self.datatype, self.value.as_ref().map(ValueRef::value_field))
    }

    /// The metric that this is, given its name and datatype. `current`: the value that the receiver holds; it gives the types of template members that the message leaves out.
    ///
    /// # Errors
    /// [`MetricError`] when the value is none of that datatype.
    pub fn resolve(&self, name: Arc<str>, datatype: DataType, current: Option<&Value>) -> Result<Metric, MetricError> {
        Ok(Metric {
            name,
            datatype,
            value: match &self.value {
                Some(value) => Some(value.resolve(datatype, current)?),
                None => None,
            },
            timestamp: self.timestamp,
            properties: self.properties.map_or_else(Properties::new, |properties| properties.decode()),
            metadata: self.metadata.map(|metadata| Box::new(metadata.decode())),
            is_historical: self.is_historical,
            is_transient: self.is_transient,
        })
    }
}

impl ValueRef<'_> {
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

    /// The value that this is in a metric of `datatype`; `current` as in [`MetricRef::resolve`].
    ///
    /// # Errors
    /// [`MetricError`] when the field does not carry that datatype, or its content is malformed.
    pub fn resolve(&self, datatype: DataType, current: Option<&Value>) -> Result<Value, MetricError> {
        let value = match *self {
            Self::Int(n) => basic(datatype, BasicValue::<&str>::Int(n)),
            Self::Long(n) => basic(datatype, BasicValue::<&str>::Long(n)),
            Self::Float(x) => basic(datatype, BasicValue::<&str>::Float(x)),
            Self::Double(x) => basic(datatype, BasicValue::<&str>::Double(x)),
            Self::Boolean(b) => basic(datatype, BasicValue::<&str>::Boolean(b)),
            Self::String(s) if datatype == DataType::Uuid => Some(Value::Uuid(s.into())),
            Self::String(s) => basic(datatype, BasicValue::String(s)),
            Self::Bytes(bytes) => value::of_bytes(datatype, bytes)?,
            Self::DataSet(DataSetRef(bytes)) if datatype == DataType::DataSet => {
                Some(Value::DataSet(Arc::new(nested::dataset(bytes)?)))
            }
            Self::Template(TemplateRef(bytes)) if datatype == DataType::Template => {
                Some(Value::Template(Arc::new(owned::template(bytes).resolve(current)?)))
            }
            Self::DataSet(_) | Self::Template(_) | Self::Extension => None,
        };
        value.ok_or_else(|| MetricError::ValueField { datatype, field: self.field() })
    }
}
