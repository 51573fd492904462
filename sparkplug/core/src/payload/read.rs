//! The pass over a payload that checks everything: it counts what decoding could cost later, and keeps, for each metric, its numbers and where its texts are.
//!
//! Of a field that may occur once and occurs more often, the last one counts.

use super::borrowed::{DataSetRef, MetaDataRef, MetricRef, PayloadRef, PropertiesRef, TemplateRef, ValueRef};
use super::check::{self, Budget};
use super::limits::{DecodeError, Limits};
use super::wire::{FIXED32, FIXED64, Fault, Fields, SLICE, VARINT, Wanted, key, short_key};

/// Reads a payload as it stands there, compressed or not.
pub(super) fn read<'a>(bytes: &'a [u8], limits: &Limits) -> Result<PayloadRef<'a>, DecodeError> {
    if bytes.len() > limits.bytes_max {
        return Err(DecodeError::TooLarge { bytes: bytes.len(), max: limits.bytes_max });
    }
    payload(bytes, limits).map_err(|fault| DecodeError::of(fault, limits))
}

fn payload<'a>(bytes: &'a [u8], limits: &Limits) -> Result<PayloadRef<'a>, Fault> {
    const TIMESTAMP: u32 = key(1, VARINT);
    const METRIC: u32 = key(2, SLICE);
    const SEQ: u32 = key(3, VARINT);
    const UUID: u32 = key(4, SLICE);
    const BODY: u32 = key(5, SLICE);
    const KNOWN: [Wanted; 5] = [Wanted::Number, Wanted::Bytes, Wanted::Number, Wanted::Bytes, Wanted::Bytes];
    let count = count_metrics(bytes, limits)?;
    let mut budget = Budget::new(limits);
    let mut payload = PayloadRef { metrics: Vec::with_capacity(count), ..PayloadRef::default() };
    let mut fields = Fields::new(bytes);
    while let Some(field) = fields.next_key()? {
        match field {
            METRIC => {
                let bytes = fields.slice()?;
                payload.metrics.push(MetricRef::default());
                if let Some(metric) = payload.metrics.last_mut() {
                    read_metric::<true>(metric, bytes, &mut budget, 1)?;
                }
            }
            TIMESTAMP => payload.timestamp = Some(fields.long()?),
            SEQ => payload.seq = Some(fields.long()?),
            UUID => payload.uuid = Some(fields.text()?),
            BODY => payload.body = Some(fields.slice()?),
            _ => fields.skip(field, &KNOWN)?,
        }
    }
    Ok(payload)
}

/// Hops from field to field, so that the list of metrics is allocated once, and only if there are not too many.
fn count_metrics(bytes: &[u8], limits: &Limits) -> Result<usize, Fault> {
    const METRIC: u32 = key(2, SLICE);
    let mut count = 0;
    let mut fields = Fields::new(bytes);
    while let Some(field) = fields.next_key()? {
        if field == METRIC {
            fields.slice()?;
            count += 1;
            if count > limits.metrics_max.min(limits.elements_max) {
                return Err(if count > limits.metrics_max { Fault::Metrics } else { Fault::Elements });
            }
        } else {
            fields.skip(field, &[])?;
        }
    }
    Ok(count)
}

/// Reads a metric. `CHECKED`: counts it, and checks its parts; otherwise that was done before.
pub(super) fn metric<'a, const CHECKED: bool>(
    bytes: &'a [u8],
    budget: &mut Budget,
    depth: usize,
) -> Result<MetricRef<'a>, Fault> {
    let mut metric = MetricRef::default();
    read_metric::<CHECKED>(&mut metric, bytes, budget, depth)?;
    Ok(metric)
}

/// Reads a metric into its place, which holds the default.
#[inline]
fn read_metric<'a, const CHECKED: bool>(
    metric: &mut MetricRef<'a>,
    bytes: &'a [u8],
    budget: &mut Budget,
    depth: usize,
) -> Result<(), Fault> {
    const NAME: u8 = short_key(1, SLICE);
    const ALIAS: u8 = short_key(2, VARINT);
    const TIMESTAMP: u8 = short_key(3, VARINT);
    const DATATYPE: u8 = short_key(4, VARINT);
    const INT: u8 = short_key(10, VARINT);
    const LONG: u8 = short_key(11, VARINT);
    const FLOAT: u8 = short_key(12, FIXED32);
    const DOUBLE: u8 = short_key(13, FIXED64);
    const BOOLEAN: u8 = short_key(14, VARINT);
    const STRING: u8 = short_key(15, SLICE);
    if CHECKED {
        budget.message(depth)?;
    }
    let mut is_null = false;
    let mut fields = Fields::new(bytes);
    loop {
        let before = fields.clone();
        match fields.short_key() {
            NAME => metric.name = Some(fields.text()?),
            ALIAS => metric.alias = Some(fields.long()?),
            TIMESTAMP => metric.timestamp = Some(fields.long()?),
            DATATYPE => metric.datatype = Some(fields.int()?),
            INT => metric.value = Some(ValueRef::Int(fields.int()?)),
            LONG => metric.value = Some(ValueRef::Long(fields.long()?)),
            FLOAT => metric.value = Some(ValueRef::Float(fields.float()?)),
            DOUBLE => metric.value = Some(ValueRef::Double(fields.double()?)),
            BOOLEAN => metric.value = Some(ValueRef::Boolean(fields.boolean()?)),
            STRING => metric.value = Some(ValueRef::String(fields.text()?)),
            _ => {
                fields = before;
                let Some(field) = fields.next_key()? else { break };
                is_null = rare::<CHECKED>(metric, &mut fields, field, budget, depth)?.unwrap_or(is_null);
            }
        }
    }
    if is_null {
        metric.value = None;
    }
    Ok(())
}

/// The fields that most metrics do not have. Yields `is_null` if that is the field.
#[inline(never)]
fn rare<'a, const CHECKED: bool>(
    metric: &mut MetricRef<'a>,
    fields: &mut Fields<'a>,
    field: u32,
    budget: &mut Budget,
    depth: usize,
) -> Result<Option<bool>, Fault> {
    const IS_HISTORICAL: u32 = key(5, VARINT);
    const IS_TRANSIENT: u32 = key(6, VARINT);
    const IS_NULL: u32 = key(7, VARINT);
    const METADATA: u32 = key(8, SLICE);
    const PROPERTIES: u32 = key(9, SLICE);
    const BYTES: u32 = key(16, SLICE);
    const DATASET: u32 = key(17, SLICE);
    const TEMPLATE: u32 = key(18, SLICE);
    const EXTENSION: u32 = key(19, SLICE);
    const KNOWN: [Wanted; 19] = {
        let mut known = [Wanted::Number; 19];
        let slices = [1, 8, 9, 15, 16, 17, 18, 19];
        let mut i = 0;
        while i < slices.len() {
            known[slices[i] - 1] = Wanted::Bytes;
            i += 1;
        }
        known[11] = Wanted::Float;
        known[12] = Wanted::Double;
        known
    };
    let mut part = |check: fn(&[u8], &mut Budget, usize) -> Result<(), Fault>| {
        let bytes = fields.slice()?;
        if CHECKED {
            check(bytes, budget, depth + 1)?;
        }
        Ok(bytes)
    };
    match field {
        PROPERTIES => metric.properties = Some(PropertiesRef(part(check::properties)?)),
        METADATA => metric.metadata = Some(MetaDataRef(part(check::metadata)?)),
        DATASET => metric.value = Some(ValueRef::DataSet(DataSetRef(part(check::dataset)?))),
        TEMPLATE => metric.value = Some(ValueRef::Template(TemplateRef(part(template)?))),
        IS_NULL => return fields.boolean().map(Some),
        IS_HISTORICAL => metric.is_historical = fields.boolean()?,
        IS_TRANSIENT => metric.is_transient = fields.boolean()?,
        BYTES => metric.value = Some(ValueRef::Bytes(fields.slice()?)),
        EXTENSION => {
            check::extension(fields.slice()?)?;
            metric.value = Some(ValueRef::Extension);
        }
        _ => fields.skip(field, &KNOWN)?,
    }
    Ok(None)
}

fn template(bytes: &[u8], budget: &mut Budget, depth: usize) -> Result<(), Fault> {
    const VERSION: u32 = key(1, SLICE);
    const METRIC: u32 = key(2, SLICE);
    const PARAMETER: u32 = key(3, SLICE);
    const REFERENCE: u32 = key(4, SLICE);
    const IS_DEFINITION: u32 = key(5, VARINT);
    const KNOWN: [Wanted; 5] = [Wanted::Bytes, Wanted::Bytes, Wanted::Bytes, Wanted::Bytes, Wanted::Number];
    budget.message(depth)?;
    let mut fields = Fields::new(bytes);
    while let Some(field) = fields.next_key()? {
        match field {
            VERSION | REFERENCE => fields.text().map(drop)?,
            METRIC => metric::<true>(fields.slice()?, budget, depth + 1).map(drop)?,
            PARAMETER => parameter(fields.slice()?, budget, depth + 1)?,
            IS_DEFINITION => fields.long().map(drop)?,
            _ => fields.skip(field, &KNOWN)?,
        }
    }
    Ok(())
}

fn parameter(bytes: &[u8], budget: &mut Budget, depth: usize) -> Result<(), Fault> {
    const NAME: u32 = key(1, SLICE);
    const DATATYPE: u32 = key(2, VARINT);
    const EXTENSION: u32 = key(9, SLICE);
    budget.message(depth)?;
    let mut fields = Fields::new(bytes);
    while let Some(field) = fields.next_key()? {
        match field {
            NAME => fields.text().map(drop)?,
            DATATYPE => fields.long().map(drop)?,
            EXTENSION => check::extension(fields.slice()?)?,
            _ => {
                if !check::basic_value(&mut fields, field, 3)? {
                    let [a, b, c, d, e, f] = check::CARRIERS;
                    fields.skip(field, &[Wanted::Bytes, Wanted::Number, a, b, c, d, e, f, Wanted::Bytes])?;
                }
            }
        }
    }
    Ok(())
}
