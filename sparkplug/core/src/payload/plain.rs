//! The short way through data messages: a payload that holds nothing but `timestamp`, `seq` and metrics which say no more than a number and its time. Almost all data are so.
//! Whatever is different, or at fault, is left to [`super::decode_ref`], which says what it is.

use super::basic_value::BasicValue;
use super::limits::Limits;
use super::wire::{FIXED32, FIXED64, Fields, SLICE, VARINT, short_key};

/// A metric that says no more than a number and its time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct PlainMetric<'a> {
    pub name: Option<&'a str>,
    pub alias: Option<u64>,
    pub timestamp: Option<u64>,
    pub value: BasicValue<&'a str>,
}

/// The rest of such a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PlainHead {
    pub timestamp: Option<u64>,
    pub seq: Option<u64>,
}

/// Hands every metric to `take`, in order. None if the payload is not of that kind, exceeds `limits`, or `take` says no; what was handed over means nothing then.
#[inline]
pub(crate) fn walk<'a>(
    bytes: &'a [u8],
    limits: &Limits,
    mut take: impl FnMut(PlainMetric<'a>) -> Option<()>,
) -> Option<PlainHead> {
    const TIMESTAMP: u8 = short_key(1, VARINT);
    const METRIC: u8 = short_key(2, SLICE);
    const SEQ: u8 = short_key(3, VARINT);
    if bytes.len() > limits.bytes_max {
        return None;
    }
    // Each metric is one element.
    let mut room = limits.metrics_max.min(limits.elements_max);
    let mut head = PlainHead { timestamp: None, seq: None };
    let mut fields = Fields::new(bytes);
    while !fields.is_at_end() {
        match fields.short_key() {
            METRIC => {
                room = room.checked_sub(1)?;
                take(metric(fields.slice().ok()?)?)?;
            }
            TIMESTAMP => head.timestamp = Some(fields.long().ok()?),
            SEQ => head.seq = Some(fields.long().ok()?),
            _ => return None,
        }
    }
    Some(head)
}

#[inline]
fn metric(bytes: &[u8]) -> Option<PlainMetric<'_>> {
    const NAME: u8 = short_key(1, SLICE);
    const ALIAS: u8 = short_key(2, VARINT);
    const TIMESTAMP: u8 = short_key(3, VARINT);
    const DATATYPE: u8 = short_key(4, VARINT);
    const INT: u8 = short_key(10, VARINT);
    const LONG: u8 = short_key(11, VARINT);
    const FLOAT: u8 = short_key(12, FIXED32);
    const DOUBLE: u8 = short_key(13, FIXED64);
    const BOOLEAN: u8 = short_key(14, VARINT);
    let (mut name, mut alias, mut timestamp, mut value) = (None, None, None, None);
    let mut fields = Fields::new(bytes);
    while !fields.is_at_end() {
        match fields.short_key() {
            ALIAS => alias = Some(fields.long().ok()?),
            TIMESTAMP => timestamp = Some(fields.long().ok()?),
            DOUBLE => value = Some(BasicValue::Double(fields.double().ok()?)),
            INT => value = Some(BasicValue::Int(fields.int().ok()?)),
            LONG => value = Some(BasicValue::Long(fields.long().ok()?)),
            FLOAT => value = Some(BasicValue::Float(fields.float().ok()?)),
            BOOLEAN => value = Some(BasicValue::Boolean(fields.boolean().ok()?)),
            NAME => name = Some(fields.text().ok()?),
            // The birth has it.
            DATATYPE => drop(fields.int().ok()?),
            _ => return None,
        }
    }
    Some(PlainMetric { name, alias, timestamp, value: value? })
}
