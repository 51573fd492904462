//! The messages of the schema, read straight into what [`super::decode()`] yields. Everything that costs memory is counted before it is made: two bytes on
//! the wire can ask for a hundred in memory, and nesting for stack.
//!
//! Of a field that may occur once and occurs more often, the last one counts.

use std::sync::Arc;

use super::decode::{Carrier, DecodeError, Limits, MetricError, RawMetric, RawPayload, RawTemplate, WireValue, basic};
use super::wire::{Field, Fields};
use crate::metric::{DataSet, DataType, MetaData, Properties, PropertyValue, Value};

pub(super) fn payload(bytes: &[u8], limits: &Limits) -> Result<RawPayload, DecodeError> {
    if bytes.len() > limits.bytes_max {
        return Err(DecodeError::TooLarge { bytes: bytes.len(), max: limits.bytes_max });
    }
    let mut budget = Budget { limits, elements: 0 };
    let mut payload = RawPayload::default();
    let mut fields = Fields::new(bytes);
    while let Some((number, field)) = fields.next()? {
        match number {
            1 => payload.timestamp = Some(field.long()?),
            2 => {
                if payload.metrics.len() >= limits.metrics_max {
                    return Err(DecodeError::TooManyMetrics { max: limits.metrics_max });
                }
                payload.metrics.push(metric(field.slice()?, &mut budget, 1)?);
            }
            3 => payload.seq = Some(field.long()?),
            4 => payload.uuid = Some(field.text()?.into()),
            5 => payload.body = Some(bytes::Bytes::copy_from_slice(field.slice()?)),
            _ => {}
        }
    }
    Ok(payload)
}

/// What may still be allocated.
struct Budget<'a> {
    limits: &'a Limits,
    elements: usize,
}

impl Budget<'_> {
    fn element(&mut self) -> Result<(), DecodeError> {
        self.elements += 1;
        if self.elements > self.limits.elements_max {
            return Err(DecodeError::TooManyElements { max: self.limits.elements_max });
        }
        Ok(())
    }

    /// One more message, at this depth.
    fn message(&mut self, depth: usize) -> Result<(), DecodeError> {
        if depth > self.limits.depth_max {
            return Err(DecodeError::TooDeep { max: self.limits.depth_max });
        }
        self.element()
    }
}

fn metric(bytes: &[u8], budget: &mut Budget<'_>, depth: usize) -> Result<RawMetric, DecodeError> {
    budget.message(depth)?;
    let mut metric = RawMetric::default();
    let mut is_null = false;
    let mut fields = Fields::new(bytes);
    while let Some((number, field)) = fields.next()? {
        match number {
            1 => metric.name = Some(field.text()?.into()),
            2 => metric.alias = Some(field.long()?),
            3 => metric.timestamp = Some(field.long()?),
            4 => metric.datatype = Some(field.int()?),
            5 => metric.is_historical = field.boolean()?,
            6 => metric.is_transient = field.boolean()?,
            7 => is_null = field.boolean()?,
            8 => metric.metadata = Some(Box::new(metadata(field.slice()?, budget, depth + 1)?)),
            9 => metric.properties = Some(properties(field.slice()?, budget, depth + 1)?),
            16 => metric.value = Some(WireValue::Bytes(field.slice()?.into())),
            17 => metric.value = Some(WireValue::DataSet(dataset(field.slice()?, budget, depth + 1)?.map(Arc::new))),
            18 => metric.value = Some(WireValue::Template(Box::new(template(field.slice()?, budget, depth + 1)?))),
            19 => metric.value = extension(field, || WireValue::Extension)?,
            10..=15 => {
                metric.value = Some(match carrier(number - 10, field)? {
                    Carrier::Int(n) => WireValue::Int(n),
                    Carrier::Long(n) => WireValue::Long(n),
                    Carrier::Float(x) => WireValue::Float(x),
                    Carrier::Double(x) => WireValue::Double(x),
                    Carrier::Boolean(b) => WireValue::Boolean(b),
                    Carrier::String(s) => WireValue::String(s),
                });
            }
            _ => {}
        }
    }
    if is_null {
        metric.value = None;
    }
    Ok(metric)
}

/// The six fields that carry basic values stand in the same order in every oneof; `position` counts from the first of them.
fn carrier(position: u64, field: Field<'_>) -> Result<Carrier, DecodeError> {
    Ok(match position {
        0 => Carrier::Int(field.int()?),
        1 => Carrier::Long(field.long()?),
        2 => Carrier::Float(field.float()?),
        3 => Carrier::Double(field.double()?),
        4 => Carrier::Boolean(field.boolean()?),
        _ => Carrier::String(field.text()?.into()),
    })
}

fn extension<T>(field: Field<'_>, value: impl FnOnce() -> T) -> Result<Option<T>, DecodeError> {
    field.slice().map(|_| Some(value()))
}

fn metadata(bytes: &[u8], budget: &mut Budget<'_>, depth: usize) -> Result<MetaData, DecodeError> {
    budget.message(depth)?;
    let mut metadata = MetaData::default();
    let mut fields = Fields::new(bytes);
    while let Some((number, field)) = fields.next()? {
        let text = || field.text().map(|t| Some(t.to_owned()));
        match number {
            1 => metadata.is_multi_part = Some(field.boolean()?),
            2 => metadata.content_type = text()?,
            3 => metadata.size = Some(field.long()?),
            4 => metadata.seq = Some(field.long()?),
            5 => metadata.file_name = text()?,
            6 => metadata.file_type = text()?,
            7 => metadata.md5 = text()?,
            8 => metadata.description = text()?,
            _ => {}
        }
    }
    Ok(metadata)
}

/// Keys and values belong together by position; what has no partner is left out.
fn properties(bytes: &[u8], budget: &mut Budget<'_>, depth: usize) -> Result<Properties, DecodeError> {
    budget.message(depth)?;
    let (mut keys, mut values) = (Vec::new(), Vec::new());
    let mut fields = Fields::new(bytes);
    while let Some((number, field)) = fields.next()? {
        match number {
            1 => {
                budget.element()?;
                keys.push(field.text()?);
            }
            2 => values.push(property(field.slice()?, budget, depth + 1)?),
            _ => {}
        }
    }
    let pairs = keys.into_iter().zip(values).filter_map(|(key, value)| Some((key.into(), value?)));
    Ok(Properties::from_wire(pairs.collect()))
}

/// None: of a type that properties do not have.
fn property(bytes: &[u8], budget: &mut Budget<'_>, depth: usize) -> Result<Option<PropertyValue>, DecodeError> {
    enum Content {
        Basic(Carrier),
        Nested(PropertyValue),
        Extension,
    }
    budget.message(depth)?;
    let (mut declared, mut is_null, mut content) = (None, false, None);
    let mut fields = Fields::new(bytes);
    while let Some((number, field)) = fields.next()? {
        match number {
            1 => declared = Some(field.int()?),
            2 => is_null = field.boolean()?,
            9 => content = Some(Content::Nested(PropertyValue::Set(properties(field.slice()?, budget, depth + 1)?))),
            10 => {
                let sets = property_sets(field.slice()?, budget, depth + 1)?;
                content = Some(Content::Nested(PropertyValue::List(sets)));
            }
            11 => content = extension(field, || Content::Extension)?,
            3..=8 => content = Some(Content::Basic(carrier(number - 3, field)?)),
            _ => {}
        }
    }
    let declared = match declared.map(DataType::from_wire) {
        Some(None) => return Ok(None),
        Some(known) => known,
        None => None,
    };
    Ok(match content.filter(|_| !is_null) {
        None => Some(PropertyValue::Null(declared.unwrap_or(DataType::String))),
        Some(Content::Nested(value)) => Some(value),
        Some(Content::Extension) => None,
        Some(Content::Basic(carrier)) => {
            let datatype = declared.unwrap_or(carrier.suggested_datatype());
            basic(datatype, carrier).map(PropertyValue::Value)
        }
    })
}

fn property_sets(bytes: &[u8], budget: &mut Budget<'_>, depth: usize) -> Result<Vec<Properties>, DecodeError> {
    budget.message(depth)?;
    let mut sets = Vec::new();
    let mut fields = Fields::new(bytes);
    while let Some((number, field)) = fields.next()? {
        if number == 1 {
            sets.push(properties(field.slice()?, budget, depth + 1)?);
        }
    }
    Ok(sets)
}

/// The inner error concerns this table alone, the outer one the payload.
fn dataset(bytes: &[u8], budget: &mut Budget<'_>, depth: usize) -> Result<Result<DataSet, MetricError>, DecodeError> {
    budget.message(depth)?;
    let (mut width, mut names, mut types, mut rows) = (None, Vec::new(), Vec::new(), Vec::new());
    let mut fields = Fields::new(bytes);
    while let Some((number, field)) = fields.next()? {
        match (number, field) {
            (1, _) => width = Some(field.long()?),
            (2, _) => {
                budget.element()?;
                names.push(Arc::<str>::from(field.text()?));
            }
            (3, Field::Slice(packed)) => {
                let mut numbers = Fields::new(packed);
                while let Some(number) = numbers.next_packed()? {
                    budget.element()?;
                    types.push(Field::Varint(number).int()?);
                }
            }
            (3, _) => {
                budget.element()?;
                types.push(field.int()?);
            }
            (4, _) => rows.push(row(field.slice()?, budget, depth + 1)?),
            _ => {}
        }
    }
    Ok(table(width, names, &types, rows))
}

/// Cell of a table: null, a basic value, or an extension.
type Cell = Option<Result<Carrier, ()>>;

fn row(bytes: &[u8], budget: &mut Budget<'_>, depth: usize) -> Result<Vec<Cell>, DecodeError> {
    budget.message(depth)?;
    let mut cells = Vec::new();
    let mut fields = Fields::new(bytes);
    while let Some((number, field)) = fields.next()? {
        if number == 1 {
            budget.message(depth + 1)?;
            cells.push(cell(field.slice()?)?);
        }
    }
    Ok(cells)
}

fn cell(bytes: &[u8]) -> Result<Cell, DecodeError> {
    let mut cell = None;
    let mut fields = Fields::new(bytes);
    while let Some((number, field)) = fields.next()? {
        match number {
            1..=6 => cell = Some(Ok(carrier(number - 1, field)?)),
            7 => cell = extension(field, || Err(()))?,
            _ => {}
        }
    }
    Ok(cell)
}

fn table(
    width: Option<u64>,
    names: Vec<Arc<str>>,
    types: &[u32],
    rows: Vec<Vec<Cell>>,
) -> Result<DataSet, MetricError> {
    let malformed = |rule| MetricError::Malformed { datatype: DataType::DataSet, rule };
    if types.len() != names.len() || width.is_some_and(|n| n != names.len() as u64) {
        return Err(malformed("columns, types and num_of_columns do not agree"));
    }
    let basic_type = |number: &u32| {
        DataType::from_wire(*number).filter(|t| t.is_basic()).ok_or_else(|| malformed("a column has no basic type"))
    };
    let types = types.iter().map(basic_type).collect::<Result<Vec<_>, _>>()?;
    let typed = |(cell, &datatype): (Cell, &DataType)| match cell {
        None => Ok(None),
        Some(Err(())) => Err(malformed("a cell has an extension value")),
        Some(Ok(carrier)) => {
            basic(datatype, carrier).map(Some).ok_or_else(|| malformed("a cell does not have the type of its column"))
        }
    };
    let row = |cells: Vec<Cell>| {
        if cells.len() != types.len() {
            return Err(malformed("a row has not as many cells as there are columns"));
        }
        cells.into_iter().zip(&types).map(typed).collect::<Result<Vec<Option<Value>>, _>>()
    };
    let rows = rows.into_iter().map(row).collect::<Result<_, _>>()?;
    Ok(DataSet { columns: names.into_iter().zip(types.iter().copied()).collect(), rows })
}

fn template(bytes: &[u8], budget: &mut Budget<'_>, depth: usize) -> Result<RawTemplate, DecodeError> {
    budget.message(depth)?;
    let mut template = RawTemplate::default();
    let mut fields = Fields::new(bytes);
    while let Some((number, field)) = fields.next()? {
        match number {
            1 => template.version = Some(field.text()?.into()),
            2 => template.metrics.push(metric(field.slice()?, budget, depth + 1)?),
            3 => template.parameters.extend(parameter(field.slice()?, budget, depth + 1)?),
            4 => template.template_ref = Some(field.text()?.into()),
            5 => template.is_definition = Some(field.boolean()?),
            _ => {}
        }
    }
    Ok(template)
}

type Parameter = (Arc<str>, DataType, Option<Value>);

/// None: without a name, or of an unknown type.
fn parameter(bytes: &[u8], budget: &mut Budget<'_>, depth: usize) -> Result<Option<Parameter>, DecodeError> {
    budget.message(depth)?;
    let (mut name, mut declared, mut value) = (None, None, None);
    let mut fields = Fields::new(bytes);
    while let Some((number, field)) = fields.next()? {
        match number {
            1 => name = Some(field.text()?),
            2 => declared = Some(field.int()?),
            3..=8 => value = Some(carrier(number - 3, field)?),
            9 => value = field.slice().map(|_| None)?,
            _ => {}
        }
    }
    let datatype = match declared {
        Some(number) => DataType::from_wire(number),
        None => value.as_ref().map(Carrier::suggested_datatype),
    };
    let named = name.zip(datatype);
    Ok(named.map(|(name, datatype)| (name.into(), datatype, value.and_then(|carrier| basic(datatype, carrier)))))
}
