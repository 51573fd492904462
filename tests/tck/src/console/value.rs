//! Values as a user types and reads them: JSON, except that texts need no quotes and bytes are hexadecimal digits.
//!
//! | datatype | form |
//! |---|---|
//! | integers, DateTime (ms since 1970), Float, Double, Boolean | `-5`, `1700000000000`, `20.5`, `NaN`, `true` |
//! | String, Text, UUID | the rest of the line, or a JSON string |
//! | Bytes, File | `c0ffee` |
//! | arrays | `[1,2,3]`, `["a","b"]` |
//! | DataSet | `{"columns":[["Time","DateTime"],["Name","String"]],"rows":[[0,"a"],[1,null]]}` |
//! | Template | `{"definition":true,"members":[["Speed","Double",0]],"parameters":[["Unit","String","rpm"]]}`, or `"ref":"NAME"` for an instance |
//! | null of any datatype | `null` |

use std::sync::Arc;

use serde_json::{Value as Json, json};
use sparkplug::metric::{DataSet, Template};
use sparkplug::{DataType, Metric, Properties, PropertyValue, Value};

type Result<T> = std::result::Result<T, String>;

/// A datatype by its name; letters may be small or large.
///
/// # Errors
/// What is wrong with the text.
pub fn datatype(name: &str) -> Result<DataType> {
    (1..=34)
        .filter_map(DataType::from_wire)
        .find(|datatype| format!("{datatype:?}").eq_ignore_ascii_case(name))
        .ok_or_else(|| format!("{name:?} is not a datatype; write Int32, Double, String, DataSet ..."))
}

/// A value, or null.
///
/// # Errors
/// What is wrong with the text.
pub fn parse(datatype: DataType, text: &str) -> Result<Option<Value>> {
    use DataType as T;
    let unquoted = matches!(datatype, T::String | T::Text | T::Uuid | T::Bytes | T::File);
    let json = if unquoted && text != "null" && !text.starts_with('"') {
        Json::from(text)
    } else {
        serde_json::from_str(text).unwrap_or_else(|_| Json::from(text))
    };
    from_json(datatype, &json)
}

fn from_json(datatype: DataType, json: &Json) -> Result<Option<Value>> {
    if json.is_null() {
        return Ok(None);
    }
    let value = basic(datatype, json).or_else(|| array(datatype, json)).or_else(|| match datatype {
        DataType::Uuid => json.as_str().map(|text| Value::Uuid(text.into())),
        DataType::Bytes => hexadecimal(json).map(Value::Bytes),
        DataType::File => hexadecimal(json).map(Value::File),
        _ => None,
    });
    if let Some(value) = value {
        return Ok(Some(value));
    }
    match datatype {
        DataType::DataSet => dataset(json).map(|table| Some(Value::DataSet(Arc::new(table)))),
        DataType::Template => template(json).map(|template| Some(Value::Template(Arc::new(template)))),
        _ => Err(format!("{json} is not a value of {datatype:?}")),
    }
}

fn basic(datatype: DataType, json: &Json) -> Option<Value> {
    use DataType as T;
    Some(match datatype {
        T::Int8 => Value::Int8(number(json)?),
        T::Int16 => Value::Int16(number(json)?),
        T::Int32 => Value::Int32(number(json)?),
        T::Int64 => Value::Int64(number(json)?),
        T::UInt8 => Value::UInt8(number(json)?),
        T::UInt16 => Value::UInt16(number(json)?),
        T::UInt32 => Value::UInt32(number(json)?),
        T::UInt64 => Value::UInt64(number(json)?),
        T::DateTime => Value::DateTime(number(json)?),
        T::Float => Value::Float(number(json)?),
        T::Double => Value::Double(number(json)?),
        T::Boolean => Value::Boolean(json.as_bool()?),
        T::String => Value::String(json.as_str()?.into()),
        T::Text => Value::Text(json.as_str()?.into()),
        _ => return None,
    })
}

fn array(datatype: DataType, json: &Json) -> Option<Value> {
    use DataType as T;
    let items = json.as_array()?;
    Some(match datatype {
        T::Int8Array => Value::Int8Array(numbers(items)?),
        T::Int16Array => Value::Int16Array(numbers(items)?),
        T::Int32Array => Value::Int32Array(numbers(items)?),
        T::Int64Array => Value::Int64Array(numbers(items)?),
        T::UInt8Array => Value::UInt8Array(numbers(items)?),
        T::UInt16Array => Value::UInt16Array(numbers(items)?),
        T::UInt32Array => Value::UInt32Array(numbers(items)?),
        T::UInt64Array => Value::UInt64Array(numbers(items)?),
        T::DateTimeArray => Value::DateTimeArray(numbers(items)?),
        T::FloatArray => Value::FloatArray(numbers(items)?),
        T::DoubleArray => Value::DoubleArray(numbers(items)?),
        T::BooleanArray => Value::BooleanArray(items.iter().map(Json::as_bool).collect::<Option<_>>()?),
        T::StringArray => {
            Value::StringArray(items.iter().map(|item| item.as_str().map(Arc::from)).collect::<Option<_>>()?)
        }
        _ => return None,
    })
}

/// A number from its digits, so that each width has its own limits. Not-a-number and the infinities are texts in JSON.
fn number<T: std::str::FromStr>(json: &Json) -> Option<T> {
    match json {
        Json::Number(digits) => digits.to_string().parse().ok(),
        Json::String(name) => name.parse().ok(),
        _ => None,
    }
}

fn numbers<T: std::str::FromStr>(items: &[Json]) -> Option<Arc<[T]>> {
    items.iter().map(number).collect()
}

fn hexadecimal(json: &Json) -> Option<Arc<[u8]>> {
    let digits = json.as_str()?.as_bytes();
    let byte = |pair: &[u8]| {
        let pair = std::str::from_utf8(pair).ok().filter(|pair| pair.len() == 2)?;
        u8::from_str_radix(pair, 16).ok()
    };
    digits.chunks(2).map(byte).collect()
}

fn dataset(json: &Json) -> Result<DataSet> {
    let columns = list(json, "columns")?.iter().map(|column| match column.as_array().map(Vec::as_slice) {
        Some([Json::String(name), Json::String(datatype_name)]) => Ok((name.as_str().into(), datatype(datatype_name)?)),
        _ => Err(format!("{column} is not a column; write [\"NAME\",\"TYPE\"]")),
    });
    let columns: Vec<(Arc<str>, DataType)> = columns.collect::<Result<_>>()?;
    let row = |row: &Json| {
        let cells = row.as_array().filter(|cells| cells.len() == columns.len());
        let cells = cells.ok_or_else(|| format!("{row} has not as many cells as there are columns"))?;
        cells.iter().zip(&columns).map(|(cell, (_, datatype))| from_json(*datatype, cell)).collect()
    };
    let rows = list(json, "rows")?.iter().map(row).collect::<Result<_>>()?;
    Ok(DataSet { columns, rows })
}

fn template(json: &Json) -> Result<Template> {
    let typed = |entry: &Json| match entry.as_array().map(Vec::as_slice) {
        Some([Json::String(name), Json::String(datatype_name), value]) => {
            let datatype = datatype(datatype_name)?;
            Ok((Arc::<str>::from(name.as_str()), datatype, from_json(datatype, value)?))
        }
        _ => Err(format!("{entry} is not a member; write [\"NAME\",\"TYPE\",VALUE]")),
    };
    let member =
        |entry: &Json| typed(entry).map(|(name, datatype, value)| Metric { value, ..Metric::null(name, datatype) });
    let text = |key: &str| json.get(key).and_then(Json::as_str).map(Arc::from);
    Ok(Template {
        version: text("version"),
        template_ref: text("ref"),
        is_definition: json.get("definition").and_then(Json::as_bool).unwrap_or(false),
        metrics: list(json, "members")?.iter().map(member).collect::<Result<_>>()?,
        parameters: list(json, "parameters")?.iter().map(typed).collect::<Result<_>>()?,
    })
}

/// The list at `key`; none is an empty one.
fn list<'a>(json: &'a Json, key: &str) -> Result<&'a [Json]> {
    let object = json.as_object().ok_or_else(|| format!("{json} is not a JSON object"))?;
    match object.get(key) {
        None => Ok(&[]),
        Some(Json::Array(items)) => Ok(items),
        Some(other) => Err(format!("{key}: {other} is not a list")),
    }
}

/// The form that [`parse`] reads; texts are in quotes.
#[must_use]
pub fn to_json(value: &Value) -> Json {
    match value {
        Value::Int8(n) => json!(n),
        Value::Int16(n) => json!(n),
        Value::Int32(n) => json!(n),
        Value::Int64(n) => json!(n),
        Value::UInt8(n) => json!(n),
        Value::UInt16(n) => json!(n),
        Value::UInt32(n) => json!(n),
        Value::UInt64(n) | Value::DateTime(n) => json!(n),
        Value::Float(x) => float(x),
        Value::Double(x) => float(x),
        Value::Boolean(b) => json!(b),
        Value::String(s) | Value::Text(s) | Value::Uuid(s) => json!(**s),
        Value::Bytes(bytes) | Value::File(bytes) => {
            Json::from(bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
        }
        Value::Int8Array(a) => json!(**a),
        Value::Int16Array(a) => json!(**a),
        Value::Int32Array(a) => json!(**a),
        Value::Int64Array(a) => json!(**a),
        Value::UInt8Array(a) => json!(**a),
        Value::UInt16Array(a) => json!(**a),
        Value::UInt32Array(a) => json!(**a),
        Value::UInt64Array(a) | Value::DateTimeArray(a) => json!(**a),
        Value::FloatArray(a) => a.iter().map(float).collect(),
        Value::DoubleArray(a) => a.iter().map(float).collect(),
        Value::BooleanArray(a) => json!(**a),
        Value::StringArray(a) => a.iter().map(|text| json!(**text)).collect(),
        Value::DataSet(table) => {
            let columns = table.columns.iter().map(|(name, datatype)| json!([**name, format!("{datatype:?}")]));
            let rows = table.rows.iter().map(|row| row.iter().map(nullable).collect::<Json>());
            json!({"columns": columns.collect::<Json>(), "rows": rows.collect::<Json>()})
        }
        Value::Template(template) => template_to_json(template),
    }
}

fn template_to_json(template: &Template) -> Json {
    let mut object = serde_json::Map::new();
    if template.is_definition {
        object.insert("definition".to_owned(), true.into());
    }
    for (key, text) in [("ref", &template.template_ref), ("version", &template.version)] {
        if let Some(text) = text {
            object.insert(key.to_owned(), json!(**text));
        }
    }
    let typed = |name: &str, datatype: DataType, value| json!([name, format!("{datatype:?}"), nullable(value)]);
    let members = template.metrics.iter().map(|member| typed(&member.name, member.datatype, &member.value));
    object.insert("members".to_owned(), members.collect());
    let parameters = template.parameters.iter().map(|(name, datatype, value)| typed(name, *datatype, value));
    object.insert("parameters".to_owned(), parameters.collect());
    object.into()
}

fn nullable(value: &Option<Value>) -> Json {
    value.as_ref().map_or(Json::Null, to_json)
}

/// With the digits that its own width needs, and no more.
fn float(x: &(impl ToString + Copy)) -> Json {
    let digits = x.to_string();
    let number = digits.parse().ok().and_then(serde_json::Number::from_f64);
    number.map_or_else(|| Json::from(digits), Json::from)
}

/// A property for people.
#[must_use]
pub fn property_to_json(property: &PropertyValue) -> Json {
    let set = |set: &Properties| -> Json {
        Json::Object(set.iter().map(|(key, value)| (key.to_owned(), property_to_json(value))).collect())
    };
    match property {
        PropertyValue::Value(value) => to_json(value),
        PropertyValue::Null(_) => Json::Null,
        PropertyValue::Set(properties) => set(properties),
        PropertyValue::List(sets) => sets.iter().map(set).collect(),
    }
}
