//! Values of metrics as JSON.

use serde_json::{Map, Value as Json, json};
use sparkplug::metric::{Properties, PropertyValue};
use sparkplug::{Metric, Quality, Value};

/// Elements of an array and rows of a DataSet that are shown.
const ELEMENTS_MAX: usize = 256;

/// Levels of templates and properties that are shown.
const DEPTH_MAX: usize = 8;

/// Largest whole number that JavaScript reads exactly; larger ones are shown as text.
const EXACT_MAX: u64 = 1 << 53;

/// A value as JSON. Numbers that JavaScript would round are texts, bytes are hexadecimal and cut, arrays are cut.
#[must_use]
pub fn to_json(value: &Value) -> Json {
    at_depth(value, 0)
}

fn at_depth(value: &Value, depth: usize) -> Json {
    match value {
        Value::Int8(n) => json!(n),
        Value::Int16(n) => json!(n),
        Value::Int32(n) => json!(n),
        Value::Int64(n) => signed(*n),
        Value::UInt8(n) => json!(n),
        Value::UInt16(n) => json!(n),
        Value::UInt32(n) => json!(n),
        Value::UInt64(n) | Value::DateTime(n) => unsigned(*n),
        Value::Float(n) => float(f64::from(*n)),
        Value::Double(n) => float(*n),
        Value::Boolean(is) => json!(is),
        Value::String(text) | Value::Text(text) | Value::Uuid(text) => json!(&**text),
        Value::Bytes(bytes) | Value::File(bytes) => {
            let shown: String = bytes.iter().take(ELEMENTS_MAX).map(|byte| format!("{byte:02x}")).collect();
            let more = if bytes.len() > ELEMENTS_MAX { "…" } else { "" };
            json!(format!("{shown}{more} ({} bytes)", bytes.len()))
        }
        Value::DataSet(set) => {
            let columns: Vec<&str> = set.columns.iter().take(ELEMENTS_MAX).map(|(name, _)| &**name).collect();
            let cell = |cell: &Option<Value>| cell.as_ref().map(|value| at_depth(value, depth + 1));
            let rows: Vec<Vec<Option<Json>>> = set
                .rows
                .iter()
                .take(ELEMENTS_MAX)
                .map(|row| row.iter().take(ELEMENTS_MAX).map(cell).collect())
                .collect();
            json!({ "columns": columns, "rows": rows, "rows_total": set.rows.len() })
        }
        Value::Template(template) if depth < DEPTH_MAX => {
            let member = |metric: &Metric| {
                (metric.name.to_string(), metric.value.as_ref().map_or(Json::Null, |value| at_depth(value, depth + 1)))
            };
            let members: Map<String, Json> = template.metrics.iter().take(ELEMENTS_MAX).map(member).collect();
            json!({ "template": template.template_ref.as_deref(), "definition": template.is_definition, "members": members })
        }
        Value::Template(_) => json!("…"),
        Value::Int8Array(all) => array(all, |n| json!(n)),
        Value::Int16Array(all) => array(all, |n| json!(n)),
        Value::Int32Array(all) => array(all, |n| json!(n)),
        Value::Int64Array(all) => array(all, |n| signed(*n)),
        Value::UInt8Array(all) => array(all, |n| json!(n)),
        Value::UInt16Array(all) => array(all, |n| json!(n)),
        Value::UInt32Array(all) => array(all, |n| json!(n)),
        Value::UInt64Array(all) | Value::DateTimeArray(all) => array(all, |n| unsigned(*n)),
        Value::FloatArray(all) => array(all, |n| float(f64::from(*n))),
        Value::DoubleArray(all) => array(all, |n| float(*n)),
        Value::BooleanArray(all) => array(all, |is| json!(is)),
        Value::StringArray(all) => array(all, |text| json!(&**text)),
    }
}

fn array<T>(all: &[T], one: impl Fn(&T) -> Json) -> Json {
    Json::Array(all.iter().take(ELEMENTS_MAX).map(one).collect())
}

fn signed(number: i64) -> Json {
    if number.unsigned_abs() <= EXACT_MAX { json!(number) } else { json!(number.to_string()) }
}

/// A number, or a text where JavaScript would round it.
pub(super) fn unsigned(number: u64) -> Json {
    if number <= EXACT_MAX { json!(number) } else { json!(number.to_string()) }
}

fn float(number: f64) -> Json {
    if number.is_finite() { json!(number) } else { json!(number.to_string()) }
}

/// The value as a number, of those that have a trend.
pub(super) fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Boolean(is) => Some(f64::from(u8::from(*is))),
        Value::DateTime(_) => None,
        value => at_depth(value, 0).as_f64(),
    }
}

/// The metric's own quality, else that of whether it is current.
pub(super) fn quality(metric: &Metric, current: bool) -> i32 {
    match metric.properties.get(Quality::KEY) {
        _ if !current => Quality::Stale as i32,
        Some(Value::Int32(quality)) => *quality,
        _ => Quality::Good as i32,
    }
}

/// Properties as JSON; null when there are none.
pub(super) fn properties(properties: &Properties) -> Json {
    if properties.is_empty() { Json::Null } else { set(properties, 0) }
}

fn set(properties: &Properties, depth: usize) -> Json {
    let of = |value: &PropertyValue| match value {
        PropertyValue::Value(value) => at_depth(value, depth + 1),
        PropertyValue::Null(_) => Json::Null,
        PropertyValue::Set(nested) if depth < DEPTH_MAX => set(nested, depth + 1),
        PropertyValue::List(nested) if depth < DEPTH_MAX => array(nested, |nested| set(nested, depth + 1)),
        PropertyValue::Set(_) | PropertyValue::List(_) => json!("…"),
    };
    Json::Object(properties.iter().take(ELEMENTS_MAX).map(|(key, value)| (key.to_owned(), of(value))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_javascript_would_round_is_text() {
        assert_eq!(to_json(&Value::UInt64(EXACT_MAX)), json!(9_007_199_254_740_992_u64));
        assert_eq!(to_json(&Value::UInt64(u64::MAX)), json!("18446744073709551615"));
        assert_eq!(to_json(&Value::Int64(i64::MIN)), json!("-9223372036854775808"));
        assert_eq!(to_json(&Value::Double(f64::NAN)), json!("NaN"));
    }

    #[test]
    fn long_values_are_cut() {
        assert_eq!(to_json(&Value::Int32Array(vec![1; 1000].into())).as_array().unwrap().len(), ELEMENTS_MAX);
        let bytes = to_json(&Value::Bytes(vec![0xAB; 1000].into()));
        assert!(bytes.as_str().unwrap().ends_with("… (1000 bytes)"));
    }
}
