//! Reading one metric as the type that the contract gives it; the error names the metric.

use sparkplug::{Metric, Value};

/// A metric is missing or has not the type that the contract gives it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("metric {field:?} {rule}")]
pub struct FieldError {
    /// Name of the metric.
    pub field: String,
    /// The rule that it breaks.
    pub rule: String,
}

impl FieldError {
    pub(crate) fn new(field: &str, rule: impl Into<String>) -> Self {
        Self { field: field.to_owned(), rule: rule.into() }
    }
}

fn wrong(metric: &Metric, wanted: &str) -> FieldError {
    FieldError::new(&metric.name, format!("must be {wanted}, but is {:?}", metric.datatype))
}

fn null(metric: &Metric) -> FieldError {
    FieldError::new(&metric.name, "must not be null")
}

pub(crate) fn text_or_null(metric: &Metric) -> Result<Option<String>, FieldError> {
    match &metric.value {
        None => Ok(None),
        Some(value) => value.as_str().map(|text| Some(text.to_owned())).ok_or_else(|| wrong(metric, "a String")),
    }
}

pub(crate) fn text(metric: &Metric) -> Result<String, FieldError> {
    text_or_null(metric)?.ok_or_else(|| null(metric))
}

pub(crate) fn flag_or_null(metric: &Metric) -> Result<Option<bool>, FieldError> {
    match metric.value {
        None => Ok(None),
        Some(Value::Boolean(flag)) => Ok(Some(flag)),
        Some(_) => Err(wrong(metric, "a Boolean")),
    }
}

pub(crate) fn flag(metric: &Metric) -> Result<bool, FieldError> {
    flag_or_null(metric)?.ok_or_else(|| null(metric))
}

pub(crate) fn number_or_null(metric: &Metric) -> Result<Option<u64>, FieldError> {
    match &metric.value {
        None => Ok(None),
        Some(value) => value.as_u64().map(Some).ok_or_else(|| wrong(metric, "an unsigned number")),
    }
}

pub(crate) fn number(metric: &Metric) -> Result<u64, FieldError> {
    number_or_null(metric)?.ok_or_else(|| null(metric))
}

pub(crate) fn count(metric: &Metric) -> Result<u32, FieldError> {
    u32::try_from(number(metric)?).map_err(|_| FieldError::new(&metric.name, "must fit into 32 bits"))
}

/// Every name must be among the metrics of a birth.
pub(crate) fn require(metrics: &[Metric], names: &[&str]) -> Result<(), FieldError> {
    match names.iter().find(|name| !metrics.iter().any(|metric| *metric.name == ***name)) {
        Some(missing) => Err(FieldError::new(missing, "is missing in the birth")),
        None => Ok(()),
    }
}
