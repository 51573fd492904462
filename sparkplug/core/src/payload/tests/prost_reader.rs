//! The same reading through prost's generated code: the oracle of the hand-written reader.

use std::sync::Arc;

use prost::Message;
use proto::sparkplug_b as wire;

use crate::metric::{DataSet, DataType, MetaData, Properties, PropertyValue};
use crate::payload::value::basic;
use crate::payload::{MetricError, RawMetric, RawPayload, RawTemplate, WireValue};

type BasicValue = super::basic_value::BasicValue<Arc<str>>;

/// Reads a payload without limits.
pub(super) fn decode(bytes: &[u8]) -> Result<RawPayload, prost::DecodeError> {
    let payload = wire::Payload::decode(bytes)?;
    Ok(RawPayload {
        timestamp: payload.timestamp,
        seq: payload.seq,
        uuid: payload.uuid.map(Into::into),
        body: payload.body.map(Into::into),
        metrics: payload.metrics.into_iter().map(raw_metric).collect(),
    })
}

fn raw_metric(metric: wire::Metric) -> RawMetric {
    use wire::metric::Value as W;
    let value = metric.value.map(|value| match value {
        W::Int(n) => WireValue::Int(n),
        W::Long(n) => WireValue::Long(n),
        W::Float(x) => WireValue::Float(x),
        W::Double(x) => WireValue::Double(x),
        W::Boolean(b) => WireValue::Boolean(b),
        W::String(s) => WireValue::String(s.into()),
        W::Bytes(b) => WireValue::Bytes(b.into()),
        W::DataSet(table) => WireValue::DataSet(dataset(table).map(Arc::new)),
        W::Template(template) => WireValue::Template(Box::new(raw_template(template))),
        W::Extension(_) => WireValue::Extension,
    });
    RawMetric {
        name: metric.name.map(Into::into),
        alias: metric.alias,
        timestamp: metric.timestamp,
        datatype: metric.datatype,
        value: value.filter(|_| metric.is_null != Some(true)),
        properties: metric.properties.map(properties),
        metadata: metric.metadata.map(|m| Box::new(metadata(*m))),
        is_historical: metric.is_historical.unwrap_or(false),
        is_transient: metric.is_transient.unwrap_or(false),
    }
}

fn raw_template(template: wire::Template) -> RawTemplate {
    use wire::parameter::Value as W;
    let parameters = template.parameters.into_iter().filter_map(|p| {
        let basic_value = p.value.and_then(|value| match value {
            W::Int(n) => Some(BasicValue::Int(n)),
            W::Long(n) => Some(BasicValue::Long(n)),
            W::Float(x) => Some(BasicValue::Float(x)),
            W::Double(x) => Some(BasicValue::Double(x)),
            W::Boolean(b) => Some(BasicValue::Boolean(b)),
            W::String(s) => Some(BasicValue::String(s.into())),
            W::Extension(_) => None,
        });
        let datatype = match p.datatype {
            Some(number) => DataType::from_wire(number)?,
            None => basic_value.as_ref()?.suggested_datatype(),
        };
        Some((p.name?.into(), datatype, basic_value.and_then(|c| basic(datatype, c))))
    });
    RawTemplate {
        version: template.version.map(Into::into),
        template_ref: template.template_ref.map(Into::into),
        is_definition: template.is_definition,
        parameters: parameters.collect(),
        metrics: template.metrics.into_iter().map(raw_metric).collect(),
    }
}

fn properties(set: wire::PropertySet) -> Properties {
    let pairs = set.keys.into_iter().zip(set.values).filter_map(|(key, value)| Some((key, property(value)?)));
    let pairs: Vec<(String, PropertyValue)> = pairs.collect();
    let mut properties = Properties::new();
    for (i, (key, value)) in pairs.iter().enumerate() {
        if pairs[i + 1..].iter().all(|(later, _)| later != key) {
            properties.set(key.as_str(), value.clone());
        }
    }
    properties
}

fn property(value: wire::PropertyValue) -> Option<PropertyValue> {
    use wire::property_value::Value as W;
    let declared = value.datatype.map(|number| DataType::from_wire(number).ok_or(())).transpose().ok()?;
    if value.is_null == Some(true) || value.value.is_none() {
        return Some(PropertyValue::Null(declared.unwrap_or(DataType::String)));
    }
    let basic_value = match value.value? {
        W::Set(set) => return Some(PropertyValue::Set(properties(set))),
        W::List(list) => return Some(PropertyValue::List(list.sets.into_iter().map(properties).collect())),
        W::Int(n) => BasicValue::Int(n),
        W::Long(n) => BasicValue::Long(n),
        W::Float(x) => BasicValue::Float(x),
        W::Double(x) => BasicValue::Double(x),
        W::Boolean(b) => BasicValue::Boolean(b),
        W::String(s) => BasicValue::String(s.into()),
        W::Extension(_) => return None,
    };
    let datatype = declared.unwrap_or(basic_value.suggested_datatype());
    basic(datatype, basic_value).map(PropertyValue::Value)
}

fn dataset(table: wire::DataSet) -> Result<DataSet, MetricError> {
    use wire::data_set_value::Value as W;
    let malformed = |rule| MetricError::Malformed { datatype: DataType::DataSet, rule };
    let width = table.columns.len();
    if table.types.len() != width || table.num_of_columns.is_some_and(|n| n != width as u64) {
        return Err(malformed("columns, types and num_of_columns do not agree"));
    }
    let types = table
        .types
        .iter()
        .map(|&number| {
            DataType::from_wire(number).filter(|t| t.is_basic()).ok_or_else(|| malformed("a column has no basic type"))
        })
        .collect::<Result<Vec<_>, _>>()?;
    let cell = |(value, &datatype): (wire::DataSetValue, &DataType)| {
        let basic_value = match value.value {
            None => return Ok(None),
            Some(W::Int(n)) => BasicValue::Int(n),
            Some(W::Long(n)) => BasicValue::Long(n),
            Some(W::Float(x)) => BasicValue::Float(x),
            Some(W::Double(x)) => BasicValue::Double(x),
            Some(W::Boolean(b)) => BasicValue::Boolean(b),
            Some(W::String(s)) => BasicValue::String(s.into()),
            Some(W::Extension(_)) => return Err(malformed("a cell has an extension value")),
        };
        basic(datatype, basic_value).map(Some).ok_or_else(|| malformed("a cell does not have the type of its column"))
    };
    let row = |row: wire::Row| {
        if row.elements.len() != width {
            return Err(malformed("a row has not as many cells as there are columns"));
        }
        row.elements.into_iter().zip(&types).map(cell).collect()
    };
    let rows = table.rows.into_iter().map(row).collect::<Result<_, _>>()?;
    let columns = table.columns.into_iter().map(Into::into).zip(types.iter().copied()).collect();
    Ok(DataSet { columns, rows })
}

fn metadata(m: wire::MetaData) -> MetaData {
    MetaData {
        is_multi_part: m.is_multi_part,
        content_type: m.content_type,
        size: m.size,
        seq: m.seq,
        file_name: m.file_name,
        file_type: m.file_type,
        md5: m.md5,
        description: m.description,
    }
}
