//! A message as a text for people or as a line of JSON for programs. Pure.
//!
//! Whatever came over the wire is data: control characters never reach the terminal as such.

use std::fmt::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use configdb_schema::timestamp;
use serde_json::{Map, Value as Json, json};
use sparkplug::metric::{DataSet, Template};
use sparkplug::payload::{DecodeError, RawMetric};
use sparkplug::state::HostState;
use sparkplug::{DataType, Metric, Properties, PropertyValue, Value};

use crate::output::{escaped, visible};

/// Characters of a value that a line for people shows, unless the whole is asked for.
const TEXT_CHARACTERS_MAX: usize = 160;

/// Bytes of an undecodable payload that are shown.
const UNDECODABLE_BYTES_MAX: usize = 64;

/// A message, ready to be shown.
#[derive(Debug)]
pub(super) struct Shown {
    /// When it arrived, UTC ms.
    pub time: u64,
    /// Topic.
    pub topic: String,
    /// Third level of the topic, or STATE; empty if it is not a Sparkplug topic.
    pub kind: &'static str,
    /// Group, edge node, device; or host.
    pub ids: Vec<(&'static str, String)>,
    /// Stored by the server, not sent just now.
    pub retained: bool,
    /// What does not fit the session: gaps, data before birth, rebirths.
    pub notes: Vec<String>,
    /// The rest.
    pub body: Body,
}

impl Shown {
    /// Whether it has metrics of which only the alias is known.
    #[must_use]
    pub(super) fn has_nameless_metrics(&self) -> bool {
        matches!(&self.body, Body::Payload { metrics, .. } if metrics.iter().any(|metric| metric.name.is_none()))
    }
}

/// What a message carries.
#[derive(Debug)]
pub(super) enum Body {
    /// A Sparkplug payload.
    Payload {
        /// `seq`.
        seq: Option<u64>,
        /// The metric `bdSeq`.
        bd_seq: Option<u64>,
        /// Payload timestamp, UTC ms.
        timestamp: Option<u64>,
        /// Payload `uuid`.
        uuid: Option<Arc<str>>,
        /// Bytes of the payload's `body`.
        body_bytes: Option<usize>,
        /// Those that are to be shown.
        metrics: Vec<ShownMetric>,
    },
    /// A STATE message.
    State(HostState),
    /// Bytes that are not what the topic promises.
    Undecodable {
        /// Why.
        reason: String,
        /// The bytes.
        payload: Bytes,
    },
}

/// A metric, ready to be shown.
#[derive(Debug)]
pub(super) struct ShownMetric {
    name: Option<Arc<str>>,
    alias: Option<u64>,
    datatype: Option<DataType>,
    timestamp: Option<u64>,
    historical: bool,
    transient: bool,
    properties: Properties,
    /// None: null.
    value: Result<Option<Value>, String>,
}

impl ShownMetric {
    /// A metric of which `name` and `datatype` are known as far as they can be.
    #[must_use]
    pub(super) fn new(raw: RawMetric, name: Option<Arc<str>>, datatype: Option<DataType>) -> Self {
        let (alias, timestamp) = (raw.alias, raw.timestamp);
        let (historical, transient) = (raw.is_historical, raw.is_transient);
        let properties = raw.properties.clone().unwrap_or_default();
        let undeclared = raw.declared_datatype().err();
        let value = match (datatype, raw.value.is_some()) {
            (_, false) => Ok(None),
            (Some(datatype), true) => {
                raw.resolve(Arc::from(""), datatype, None).map(|metric| metric.value).map_err(|error| error.to_string())
            }
            (None, true) => {
                Err(undeclared.map_or_else(|| "its type is not known".to_owned(), |error| error.to_string()))
            }
        };
        Self { name, alias, datatype, timestamp, historical, transient, properties, value }
    }

    /// The name; `alias 17` where no birth says it.
    #[must_use]
    pub(super) fn label(&self) -> String {
        match (&self.name, self.alias) {
            (Some(name), _) => visible(name),
            (None, Some(alias)) => format!("alias {alias}"),
            (None, None) => "(no name)".to_owned(),
        }
    }
}

/// The reason why a payload cannot be shown.
#[must_use]
pub(super) fn undecodable(error: &DecodeError, payload: Bytes) -> Body {
    Body::Undecodable { reason: error.to_string(), payload }
}

/// For people: a headline, then a line for each metric.
#[must_use]
pub(super) fn text(message: &Shown, full: bool) -> String {
    let mut text = format!("{}  {}", instant(message.time), visible(&message.topic));
    match &message.body {
        Body::Payload { seq, bd_seq, uuid, body_bytes, .. } => {
            for (label, number) in [("seq", seq), ("bdSeq", bd_seq)] {
                if let Some(number) = number {
                    let _ = write!(text, "  {label}={number}");
                }
            }
            if let Some(uuid) = uuid {
                let _ = write!(text, "  uuid={}", visible(uuid));
            }
            if let Some(bytes) = body_bytes {
                let _ = write!(text, "  body={bytes} bytes");
            }
        }
        Body::State(state) => {
            let word = if state.online { "online" } else { "offline" };
            let _ = write!(text, "  {word} since {}", instant(state.timestamp));
        }
        Body::Undecodable { reason, payload } => {
            let shown: String = payload.iter().take(UNDECODABLE_BYTES_MAX).map(|byte| format!("{byte:02x}")).collect();
            let more = if payload.len() > UNDECODABLE_BYTES_MAX { "..." } else { "" };
            let (bytes, reason) = (payload.len(), visible(reason));
            let _ = write!(text, "  UNDECODABLE: {reason}; {bytes} bytes: {shown}{more}");
        }
    }
    if message.retained {
        text.push_str("  [retained]");
    }
    for note in &message.notes {
        let _ = write!(text, "  [{}]", visible(note));
    }
    if let Body::Payload { metrics, .. } = &message.body {
        let labels: Vec<String> = metrics.iter().map(|metric| label_text(metric, full)).collect();
        let width = labels.iter().map(|label| label.chars().count()).max().unwrap_or(0).min(60);
        for (metric, label) in metrics.iter().zip(labels) {
            let datatype = metric.datatype.map_or_else(|| "?".to_owned(), |datatype| format!("{datatype:?}"));
            let _ = write!(text, "\n    {:width$}  {datatype:<8}  {}", label, value_text(metric, full));
            for (is, mark) in [(metric.historical, "historical"), (metric.transient, "transient")] {
                if is {
                    let _ = write!(text, "  [{mark}]");
                }
            }
            if metric.historical
                && let Some(timestamp) = metric.timestamp
            {
                let _ = write!(text, "  at {}", instant(timestamp));
            }
            if !metric.properties.is_empty() {
                let _ = write!(text, "  {}", shortened(&properties_json(&metric.properties).to_string(), full));
            }
        }
    }
    text
}

fn label_text(metric: &ShownMetric, full: bool) -> String {
    metric.name.as_deref().map_or_else(|| metric.label(), |name| shortened(name, full))
}

fn value_text(metric: &ShownMetric, full: bool) -> String {
    match &metric.value {
        Ok(None) => "null".to_owned(),
        Ok(Some(Value::DateTime(ms))) => instant(*ms),
        Ok(Some(value)) => shortened(&value_json(value).to_string(), full),
        Err(problem) => format!("UNREADABLE: {}", visible(problem)),
    }
}

fn shortened(text: &str, full: bool) -> String {
    let characters = text.chars().count();
    if full || characters <= TEXT_CHARACTERS_MAX {
        return visible(text);
    }
    let shown: String = text.chars().take(TEXT_CHARACTERS_MAX).collect();
    format!("{}... ({characters} characters)", visible(&shown))
}

/// For programs: one object in one line.
#[must_use]
pub(super) fn json(message: &Shown) -> String {
    let mut object = Map::new();
    object.insert("time".into(), instant(message.time).into());
    object.insert("topic".into(), message.topic.as_str().into());
    object.insert("kind".into(), message.kind.into());
    for (key, id) in &message.ids {
        object.insert((*key).into(), id.as_str().into());
    }
    object.insert("retained".into(), message.retained.into());
    match &message.body {
        Body::Payload { seq, bd_seq, timestamp, uuid, body_bytes, metrics } => {
            for (key, number) in [("seq", seq), ("bdSeq", bd_seq), ("timestamp", timestamp)] {
                if let Some(number) = number {
                    object.insert(key.into(), (*number).into());
                }
            }
            if let Some(uuid) = uuid {
                object.insert("uuid".into(), (**uuid).into());
            }
            if let Some(bytes) = body_bytes {
                object.insert("bodyBytes".into(), (*bytes).into());
            }
            object.insert("metrics".into(), metrics.iter().map(metric_json).collect());
        }
        Body::State(state) => {
            object.insert("online".into(), state.online.into());
            object.insert("timestamp".into(), state.timestamp.into());
        }
        Body::Undecodable { reason, payload } => {
            object.insert("undecodable".into(), reason.as_str().into());
            object.insert("payload".into(), hex(payload).into());
        }
    }
    if !message.notes.is_empty() {
        object.insert("notes".into(), message.notes.iter().map(String::as_str).collect());
    }
    escaped(Json::Object(object).to_string())
}

fn metric_json(metric: &ShownMetric) -> Json {
    let mut object = Map::new();
    if let Some(name) = &metric.name {
        object.insert("name".into(), (**name).into());
    }
    if let Some(alias) = metric.alias {
        object.insert("alias".into(), alias.into());
    }
    if let Some(datatype) = metric.datatype {
        object.insert("type".into(), format!("{datatype:?}").into());
    }
    match &metric.value {
        Ok(value) => object.insert("value".into(), value.as_ref().map_or(Json::Null, value_json)),
        Err(problem) => object.insert("unreadable".into(), problem.as_str().into()),
    };
    if let Some(timestamp) = metric.timestamp {
        object.insert("timestamp".into(), timestamp.into());
    }
    for (is, mark) in [(metric.historical, "historical"), (metric.transient, "transient")] {
        if is {
            object.insert(mark.into(), true.into());
        }
    }
    if !metric.properties.is_empty() {
        object.insert("properties".into(), properties_json(&metric.properties));
    }
    Json::Object(object)
}

fn value_json(value: &Value) -> Json {
    match value {
        Value::Int8(n) => (*n).into(),
        Value::Int16(n) => (*n).into(),
        Value::Int32(n) => (*n).into(),
        Value::Int64(n) => (*n).into(),
        Value::UInt8(n) => (*n).into(),
        Value::UInt16(n) => (*n).into(),
        Value::UInt32(n) => (*n).into(),
        Value::UInt64(n) | Value::DateTime(n) => (*n).into(),
        Value::Float(x) => number(f64::from(*x), x),
        Value::Double(x) => number(*x, x),
        Value::Boolean(b) => (*b).into(),
        Value::String(s) | Value::Text(s) | Value::Uuid(s) => (**s).into(),
        Value::Bytes(bytes) | Value::File(bytes) => hex(bytes).into(),
        Value::DataSet(table) => data_set_json(table),
        Value::Template(template) => template_json(template),
        Value::Int8Array(a) => a.iter().copied().collect(),
        Value::Int16Array(a) => a.iter().copied().collect(),
        Value::Int32Array(a) => a.iter().copied().collect(),
        Value::Int64Array(a) => a.iter().copied().collect(),
        Value::UInt8Array(a) => a.iter().copied().collect(),
        Value::UInt16Array(a) => a.iter().copied().collect(),
        Value::UInt32Array(a) => a.iter().copied().collect(),
        Value::UInt64Array(a) | Value::DateTimeArray(a) => a.iter().copied().collect(),
        Value::FloatArray(a) => a.iter().map(|x| number(f64::from(*x), x)).collect(),
        Value::DoubleArray(a) => a.iter().map(|x| number(*x, x)).collect(),
        Value::BooleanArray(a) => a.iter().copied().collect(),
        Value::StringArray(a) => a.iter().map(|s| Json::from(&**s)).collect(),
    }
}

/// The shortest text that is the number again: 0.1 as Float is 0.1, not 0.10000000149011612. JSON has no NaN and no infinity; they become text.
fn number(x: f64, shortest: &impl ToString) -> Json {
    let text = shortest.to_string();
    if x.is_finite() { text.parse::<f64>().map_or(Json::Null, Json::from) } else { text.into() }
}

fn data_set_json(table: &DataSet) -> Json {
    let columns: Vec<Json> = table
        .columns
        .iter()
        .map(|(name, datatype)| json!({ "name": **name, "type": format!("{datatype:?}") }))
        .collect();
    let cell = |cell: &Option<Value>| cell.as_ref().map_or(Json::Null, value_json);
    let rows: Vec<Json> = table.rows.iter().map(|row| row.iter().map(cell).collect()).collect();
    json!({ "columns": columns, "rows": rows })
}

fn template_json(template: &Template) -> Json {
    let member = |metric: &Metric| {
        let value = metric.value.as_ref().map_or(Json::Null, value_json);
        json!({ "name": *metric.name, "type": format!("{:?}", metric.datatype), "value": value })
    };
    let parameter = |(name, datatype, value): &(Arc<str>, DataType, Option<Value>)| json!({ "name": **name, "type": format!("{datatype:?}"), "value": value.as_ref().map_or(Json::Null, value_json) });
    json!({
        "version": template.version.as_deref(),
        "templateRef": template.template_ref.as_deref(),
        "isDefinition": template.is_definition,
        "metrics": template.metrics.iter().map(member).collect::<Vec<_>>(),
        "parameters": template.parameters.iter().map(parameter).collect::<Vec<_>>(),
    })
}

fn properties_json(properties: &Properties) -> Json {
    let value = |value: &PropertyValue| match value {
        PropertyValue::Value(value) => value_json(value),
        PropertyValue::Null(_) => Json::Null,
        PropertyValue::Set(set) => properties_json(set),
        PropertyValue::List(list) => list.iter().map(properties_json).collect(),
    };
    Json::Object(properties.iter().map(|(key, property)| (key.to_owned(), value(property))).collect())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// RFC 3339 in UTC with milliseconds; a number that is not a time of ours stays a number.
fn instant(ms: u64) -> String {
    timestamp::at(ms).map_or_else(|| format!("{ms} ms"), |instant| format!("{instant:.3}"))
}

#[cfg(test)]
mod tests;
