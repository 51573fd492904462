//! Payloads for people and tools that have seen no birth: everything the message itself holds, nothing refused that can be shown.

use std::sync::Arc;

use bytes::Bytes;

use super::decode::decode;
use super::limits::{DecodeError, Limits};
use crate::metric::{DataType, Properties, Value};

/// A payload as far as it explains itself.
#[derive(Debug, Clone, PartialEq)]
pub struct DisplayPayload {
    /// UTC ms.
    pub timestamp: Option<u64>,
    /// `seq` as on the wire.
    pub seq: Option<u64>,
    /// Free for applications.
    pub uuid: Option<Arc<str>>,
    /// Free for applications.
    pub body: Option<Bytes>,
    /// Metrics.
    pub metrics: Vec<DisplayMetric>,
}

/// A metric as far as it explains itself.
#[derive(Debug, Clone, PartialEq)]
pub struct DisplayMetric {
    /// Name, if the message has it.
    pub name: Option<Arc<str>>,
    /// Alias, if the message has it.
    pub alias: Option<u64>,
    /// Datatype that the message declares, if it is one of the standard's; else the one that the field of the value suggests.
    pub datatype: Option<DataType>,
    /// The value; None when it is null or could not be read, see `problem`.
    pub value: Option<Value>,
    /// UTC ms.
    pub timestamp: Option<u64>,
    /// Properties.
    pub properties: Properties,
    /// Not the current value.
    pub is_historical: bool,
    /// Not for historians.
    pub is_transient: bool,
    /// Why the value could not be read.
    pub problem: Option<String>,
}

/// Reads a payload without any knowledge of births. Metrics that the message does not type get the type that the field of their value suggests.
///
/// # Errors
/// [`DecodeError`] when the bytes are not a payload or exceed `limits`.
pub fn decode_for_display(bytes: &[u8], limits: &Limits) -> Result<DisplayPayload, DecodeError> {
    let payload = decode(bytes, limits)?;
    let metrics = payload.metrics.into_iter().map(|mut raw| {
        let (datatype, problem) = match raw.own_datatype() {
            Ok(datatype) => (Some(datatype), None),
            // A null of unknown type is not a problem.
            Err(_) if raw.value.is_none() && raw.datatype.is_none() => (None, None),
            Err(error) => (raw.suggested_datatype(), Some(error.to_string())),
        };
        let (value, problem) = match (raw.value.take(), datatype) {
            (Some(wire), Some(datatype)) => match wire.resolve(datatype, None) {
                Ok(value) => (Some(value), problem),
                Err(error) => (None, Some(error.to_string())),
            },
            _ => (None, problem),
        };
        DisplayMetric {
            name: raw.name,
            alias: raw.alias,
            datatype,
            value,
            timestamp: raw.timestamp,
            properties: raw.properties.unwrap_or_default(),
            is_historical: raw.is_historical,
            is_transient: raw.is_transient,
            problem,
        }
    });
    Ok(DisplayPayload {
        metrics: metrics.collect(),
        timestamp: payload.timestamp,
        seq: payload.seq,
        uuid: payload.uuid,
        body: payload.body,
    })
}
