//! Content of the protobuf fields that carry basic values.

use crate::metric::DataType;

/// Content of the protobuf fields that carry basic values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum BasicValue<S> {
    Int(u32),
    Long(u64),
    Float(f32),
    Double(f64),
    Boolean(bool),
    String(S),
}

impl<S> BasicValue<S> {
    /// See [`super::RawMetric::suggested_datatype`].
    pub(super) const fn suggested_datatype(&self) -> DataType {
        match self {
            Self::Int(_) => DataType::Int32,
            Self::Long(_) => DataType::Int64,
            Self::Float(_) => DataType::Float,
            Self::Double(_) => DataType::Double,
            Self::Boolean(_) => DataType::Boolean,
            Self::String(_) => DataType::String,
        }
    }
}
