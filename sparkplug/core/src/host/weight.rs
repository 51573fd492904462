//! How many bytes of memory a replica takes, about: enough to see which group holds much. No allocator is asked.

use super::shape::Details;
use crate::metric::{Properties, PropertyValue, Value};

/// Of a metric without its name and what is not a number: its place in the tables of shape and replica.
const METRIC: usize = 80;

/// Of a metric of a birth.
pub(super) fn of_metric(name: &str, value: Option<&Value>, details: &Details) -> usize {
    METRIC + name.len() + of_value(value) + of_details(details)
}

/// Beyond the place that every value has.
pub(super) fn of_value(value: Option<&Value>) -> usize {
    let Some(value) = value else { return 0 };
    match value {
        Value::Int8(_)
        | Value::Int16(_)
        | Value::Int32(_)
        | Value::Int64(_)
        | Value::UInt8(_)
        | Value::UInt16(_)
        | Value::UInt32(_)
        | Value::UInt64(_)
        | Value::Float(_)
        | Value::Double(_)
        | Value::Boolean(_)
        | Value::DateTime(_) => 0,
        Value::String(text) | Value::Text(text) | Value::Uuid(text) => text.len(),
        Value::Bytes(bytes) | Value::File(bytes) => bytes.len(),
        Value::Int8Array(all) => size_of_val(&**all),
        Value::Int16Array(all) => size_of_val(&**all),
        Value::Int32Array(all) => size_of_val(&**all),
        Value::Int64Array(all) => size_of_val(&**all),
        Value::UInt8Array(all) => size_of_val(&**all),
        Value::UInt16Array(all) => size_of_val(&**all),
        Value::UInt32Array(all) => size_of_val(&**all),
        Value::UInt64Array(all) | Value::DateTimeArray(all) => size_of_val(&**all),
        Value::FloatArray(all) => size_of_val(&**all),
        Value::DoubleArray(all) => size_of_val(&**all),
        Value::BooleanArray(all) => size_of_val(&**all),
        Value::StringArray(all) => all.iter().map(|text| size_of_val(text) + text.len()).sum(),
        Value::DataSet(table) => {
            let columns: usize = table.columns.iter().map(|column| size_of_val(column) + column.0.len()).sum();
            let cells = table.rows.iter().flatten().map(|cell| size_of_val(cell) + of_value(cell.as_ref()));
            columns + table.rows.len() * size_of::<Vec<Option<Value>>>() + cells.sum::<usize>()
        }
        Value::Template(template) => {
            let members = template.metrics.iter().map(|metric| {
                size_of_val(metric)
                    + metric.name.len()
                    + of_value(metric.value.as_ref())
                    + of_properties(&metric.properties)
            });
            let parameters = template
                .parameters
                .iter()
                .map(|parameter| size_of_val(parameter) + parameter.0.len() + of_value(parameter.2.as_ref()));
            members.sum::<usize>() + parameters.sum::<usize>()
        }
    }
}

/// Properties and metadata.
pub(super) fn of_details(details: &Details) -> usize {
    let metadata = details.metadata.as_deref().map_or(0, |data| {
        let texts = [&data.content_type, &data.file_name, &data.file_type, &data.md5, &data.description];
        size_of_val(data) + texts.into_iter().flatten().map(String::len).sum::<usize>()
    });
    metadata + of_properties(&details.properties)
}

fn of_properties(properties: &Properties) -> usize {
    let all = properties.iter().map(|(key, value)| {
        let own = match value {
            PropertyValue::Value(value) => of_value(Some(value)),
            PropertyValue::Null(_) => 0,
            PropertyValue::Set(set) => of_properties(set),
            PropertyValue::List(sets) => sets.iter().map(|set| size_of_val(set) + of_properties(set)).sum(),
        };
        size_of::<PropertyValue>() + key.len() + own
    });
    all.sum()
}
