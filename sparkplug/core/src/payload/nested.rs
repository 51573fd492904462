//! Decodes the parts of a metric that [`super::check`] has walked over, but for templates, which hold metrics: what it found sound is read here without counting again. Should bytes come here that are
//! not, what can be read of them counts.

use std::collections::HashMap;
use std::sync::Arc;

use super::basic_value::BasicValue;
use super::value::{MetricError, basic};
use super::wire::{FIXED32, FIXED64, Fields, SLICE, VARINT, key};
use crate::metric::{DataSet, DataType, MetaData, Properties, PropertyValue, Value};

/// The next key; None at the end, and where nothing sound follows.
pub(super) fn next(fields: &mut Fields<'_>) -> Option<u32> {
    fields.next_key().ok().flatten()
}

pub(super) fn skip(fields: &mut Fields<'_>, field: u32) {
    // What cannot be skipped is the end, which the next key shows.
    let _ = fields.skip(field, &[]);
}

pub(super) fn text<'a>(fields: &mut Fields<'a>) -> &'a str {
    fields.text().unwrap_or_default()
}

pub(super) fn slice<'a>(fields: &mut Fields<'a>) -> &'a [u8] {
    fields.slice().unwrap_or_default()
}

/// One of the six fields that carry basic values; they have the same order in every oneof, and `first` is the number of the first of them.
#[inline]
pub(super) fn basic_value<'a>(fields: &mut Fields<'a>, field: u32, first: u32) -> Option<BasicValue<&'a str>> {
    let position = (field >> 3).wrapping_sub(first);
    Some(match (position, field & 7) {
        (0, VARINT) => BasicValue::Int(fields.int().ok()?),
        (1, VARINT) => BasicValue::Long(fields.long().ok()?),
        (2, FIXED32) => BasicValue::Float(fields.float().ok()?),
        (3, FIXED64) => BasicValue::Double(fields.double().ok()?),
        (4, VARINT) => BasicValue::Boolean(fields.boolean().ok()?),
        (5, SLICE) => BasicValue::String(fields.text().ok()?),
        _ => return None,
    })
}

pub(super) fn metadata(bytes: &[u8]) -> MetaData {
    let mut metadata = MetaData::default();
    let mut fields = Fields::new(bytes);
    while let Some(field) = next(&mut fields) {
        match (field >> 3, field & 7) {
            (1, VARINT) => metadata.is_multi_part = fields.boolean().ok(),
            (2, SLICE) => metadata.content_type = Some(text(&mut fields).to_owned()),
            (3, VARINT) => metadata.size = fields.long().ok(),
            (4, VARINT) => metadata.seq = fields.long().ok(),
            (5, SLICE) => metadata.file_name = Some(text(&mut fields).to_owned()),
            (6, SLICE) => metadata.file_type = Some(text(&mut fields).to_owned()),
            (7, SLICE) => metadata.md5 = Some(text(&mut fields).to_owned()),
            (8, SLICE) => metadata.description = Some(text(&mut fields).to_owned()),
            _ => skip(&mut fields, field),
        }
    }
    metadata
}

/// Keys and values belong together by position; what has no partner is left out.
pub(super) fn properties(bytes: &[u8]) -> Properties {
    const KEY: u32 = key(1, SLICE);
    const VALUE: u32 = key(2, SLICE);
    let mut pairs = Vec::new();
    let mut values = Fields::new(bytes);
    let mut keys = Fields::new(bytes);
    // Two readers over the same bytes: senders write all keys before all values, so neither has a list of its own.
    let next_value = |values: &mut Fields<'_>| loop {
        match next(values) {
            Some(VALUE) => return Some(property(slice(values))),
            Some(other) => skip(values, other),
            None => return None,
        }
    };
    while let Some(field) = next(&mut keys) {
        if field == KEY {
            let key = text(&mut keys);
            match next_value(&mut values) {
                Some(Some(value)) => pairs.push((key, value)),
                // Of a type that properties do not have.
                Some(None) => {}
                None => break,
            }
        } else {
            skip(&mut keys, field);
        }
    }
    distinct(pairs)
}

/// Beyond this many, keys are compared by their hash.
const FEW: usize = 8;

/// Of a key that occurs more than once the last value counts.
fn distinct(pairs: Vec<(&str, PropertyValue)>) -> Properties {
    let share = |(key, value): (&str, PropertyValue)| (Arc::from(key), value);
    let repeats = pairs.len() > FEW || (1..pairs.len()).any(|i| pairs[..i].iter().any(|(key, _)| *key == pairs[i].0));
    if !repeats {
        return Properties::of_distinct(pairs.into_iter().map(share).collect());
    }
    let last: HashMap<&str, usize> = pairs.iter().enumerate().map(|(i, (key, _))| (*key, i)).collect();
    let kept = pairs.into_iter().enumerate().filter(|(i, (key, _))| last.get(key) == Some(i));
    Properties::of_distinct(kept.map(|(_, pair)| share(pair)).collect())
}

/// None: of a type that properties do not have.
fn property(bytes: &[u8]) -> Option<PropertyValue> {
    const DATATYPE: u32 = key(1, VARINT);
    const IS_NULL: u32 = key(2, VARINT);
    const SET: u32 = key(9, SLICE);
    const LIST: u32 = key(10, SLICE);
    const EXTENSION: u32 = key(11, SLICE);
    enum Content<'a> {
        Basic(BasicValue<&'a str>),
        Set(&'a [u8]),
        List(&'a [u8]),
        Extension,
    }
    let (mut declared, mut is_null, mut content) = (None, false, None);
    let mut fields = Fields::new(bytes);
    while let Some(field) = next(&mut fields) {
        match field {
            DATATYPE => declared = fields.int().ok(),
            IS_NULL => is_null = fields.boolean().unwrap_or_default(),
            SET => content = Some(Content::Set(slice(&mut fields))),
            LIST => content = Some(Content::List(slice(&mut fields))),
            EXTENSION => {
                slice(&mut fields);
                content = Some(Content::Extension);
            }
            _ => match basic_value(&mut fields, field, 3) {
                Some(basic_value) => content = Some(Content::Basic(basic_value)),
                None => skip(&mut fields, field),
            },
        }
    }
    let declared = match declared.map(DataType::from_wire) {
        Some(None) => return None,
        Some(known) => known,
        None => None,
    };
    match content.filter(|_| !is_null) {
        None => Some(PropertyValue::Null(declared.unwrap_or(DataType::String))),
        Some(Content::Set(bytes)) => Some(PropertyValue::Set(properties(bytes))),
        Some(Content::List(bytes)) => Some(PropertyValue::List(property_sets(bytes))),
        Some(Content::Extension) => None,
        Some(Content::Basic(basic_value)) => {
            let datatype = declared.unwrap_or(basic_value.suggested_datatype());
            basic(datatype, basic_value).map(PropertyValue::Value)
        }
    }
}

fn property_sets(bytes: &[u8]) -> Vec<Properties> {
    const SET: u32 = key(1, SLICE);
    let mut sets = Vec::new();
    let mut fields = Fields::new(bytes);
    while let Some(field) = next(&mut fields) {
        match field {
            SET => sets.push(properties(slice(&mut fields))),
            _ => skip(&mut fields, field),
        }
    }
    sets
}

/// Columns first and rows after, whatever their order on the wire: cells are made with the type of their column.
pub(super) fn dataset(bytes: &[u8]) -> Result<DataSet, MetricError> {
    const WIDTH: u32 = key(1, VARINT);
    const COLUMN: u32 = key(2, SLICE);
    const TYPE: u32 = key(3, VARINT);
    const TYPES: u32 = key(3, SLICE);
    const ROW: u32 = key(4, SLICE);
    let (mut width, mut names, mut types, mut rows) = (None, Vec::new(), Vec::new(), Vec::new());
    let mut fields = Fields::new(bytes);
    while let Some(field) = next(&mut fields) {
        match field {
            WIDTH => width = fields.long().ok(),
            COLUMN => names.push(text(&mut fields)),
            TYPE => types.extend(fields.int().ok()),
            TYPES => {
                let mut numbers = Fields::new(slice(&mut fields));
                while let Ok(Some(number)) = numbers.next_packed() {
                    types.push(number);
                }
            }
            ROW => rows.push(slice(&mut fields)),
            _ => skip(&mut fields, field),
        }
    }
    if types.len() != names.len() || width.is_some_and(|n| n != names.len() as u64) {
        return Err(malformed("columns, types and num_of_columns do not agree"));
    }
    let basic_type = |number: &u32| {
        DataType::from_wire(*number).filter(|t| t.is_basic()).ok_or_else(|| malformed("a column has no basic type"))
    };
    let types = types.iter().map(basic_type).collect::<Result<Vec<_>, _>>()?;
    let rows = rows.into_iter().map(|bytes| row(bytes, &types)).collect::<Result<_, _>>()?;
    Ok(DataSet { columns: names.into_iter().map(Arc::from).zip(types).collect(), rows })
}

const fn malformed(rule: &'static str) -> MetricError {
    MetricError::Malformed { datatype: DataType::DataSet, rule }
}

fn row(bytes: &[u8], types: &[DataType]) -> Result<Vec<Option<Value>>, MetricError> {
    const CELL: u32 = key(1, SLICE);
    let mut cells = Vec::with_capacity(types.len());
    let mut fields = Fields::new(bytes);
    while let Some(field) = next(&mut fields) {
        match field {
            CELL => match types.get(cells.len()) {
                Some(datatype) => cells.push(cell(slice(&mut fields), *datatype)?),
                None => return Err(malformed("a row has not as many cells as there are columns")),
            },
            _ => skip(&mut fields, field),
        }
    }
    if cells.len() != types.len() {
        return Err(malformed("a row has not as many cells as there are columns"));
    }
    Ok(cells)
}

fn cell(bytes: &[u8], datatype: DataType) -> Result<Option<Value>, MetricError> {
    const EXTENSION: u32 = key(7, SLICE);
    let (mut content, mut is_extension) = (None, false);
    let mut fields = Fields::new(bytes);
    while let Some(field) = next(&mut fields) {
        if field == EXTENSION {
            slice(&mut fields);
            is_extension = true;
        } else if let Some(basic_value) = basic_value(&mut fields, field, 1) {
            content = Some(basic_value);
            is_extension = false;
        } else {
            skip(&mut fields, field);
        }
    }
    match content {
        _ if is_extension => Err(malformed("a cell has an extension value")),
        None => Ok(None),
        Some(basic_value) => basic(datatype, basic_value)
            .map(Some)
            .ok_or_else(|| malformed("a cell does not have the type of its column")),
    }
}
