//! What is in a message, in no implementation's own types: by this they are compared before they are measured.

use sparkplug::DataType;

/// A message.
#[derive(Debug, Clone, PartialEq)]
pub struct Content {
    pub timestamp: Option<u64>,
    pub seq: Option<u64>,
    pub metrics: Vec<Metric>,
}

/// A metric as it stands on the wire.
#[derive(Debug, Clone, PartialEq)]
pub struct Metric {
    pub name: Option<String>,
    pub alias: Option<u64>,
    pub timestamp: Option<u64>,
    pub datatype: Option<u32>,
    pub value: BasicValue,
    /// Key, datatype, value.
    pub properties: Vec<(String, u32, BasicValue)>,
}

/// The protobuf field of a value, with its content.
#[derive(Debug, Clone, PartialEq)]
pub enum BasicValue {
    Int(u32),
    Long(u64),
    Float(f32),
    Double(f64),
    Boolean(bool),
    String(String),
}

/// A message to measure with.
pub struct Case {
    pub name: &'static str,
    pub content: Content,
    /// NBIRTH or DBIRTH: with datatypes. Otherwise NDATA: the alias stands for name and datatype.
    pub is_birth: bool,
}

const TIMESTAMP: u64 = 1_700_000_000_000;
const DATATYPES: [DataType; 10] = [
    DataType::Int8,
    DataType::Int16,
    DataType::Int32,
    DataType::Int64,
    DataType::UInt32,
    DataType::UInt64,
    DataType::Float,
    DataType::Double,
    DataType::Boolean,
    DataType::String,
];

/// NBIRTH of 500 metrics, NDATA of 10, DBIRTH of one JSON text.
pub fn cases() -> [Case; 3] {
    let message = |seq, metrics| Content { timestamp: Some(TIMESTAMP), seq: Some(seq), metrics };
    [
        Case { name: "NBIRTH, 500 metrics", content: message(0, (0..500).map(birth_metric).collect()), is_birth: true },
        Case {
            name: "NDATA, 10 metrics by alias",
            content: message(17, (0..10).map(data_metric).collect()),
            is_birth: false,
        },
        Case { name: "DBIRTH, 2 KiB of JSON", content: message(1, vec![json_metric()]), is_birth: true },
    ]
}

/// Name of 40 bytes, alias, timestamp, one of ten datatypes, three properties on every fourth.
fn birth_metric(number: u64) -> Metric {
    let datatype = DATATYPES[number as usize % DATATYPES.len()];
    let text = |text: &str| (DataType::String.to_wire(), BasicValue::String(text.to_owned()));
    let mut properties = Vec::new();
    if number.is_multiple_of(4) {
        let (string, unit) = text("mm/s");
        properties = vec![
            ("engUnit".to_owned(), string, unit),
            ("Quality".to_owned(), DataType::Int32.to_wire(), BasicValue::Int(192)),
            ("engHigh".to_owned(), DataType::Double.to_wire(), BasicValue::Double(1500.0)),
        ];
    }
    Metric {
        name: Some(format!("Line 4/Press {:03}/Drive {:03}/Velocity/{number:06}", number / 25, number % 25)),
        alias: Some(number + 1),
        timestamp: Some(TIMESTAMP - number),
        datatype: Some(datatype.to_wire()),
        value: carrier(datatype, number),
        properties,
    }
}

/// The metrics of the birth with other values, named by their aliases alone.
fn data_metric(number: u64) -> Metric {
    Metric {
        name: None,
        timestamp: Some(TIMESTAMP + number),
        datatype: None,
        value: carrier(DATATYPES[number as usize % DATATYPES.len()], number + 100),
        properties: Vec::new(),
        ..birth_metric(number)
    }
}

fn json_metric() -> Metric {
    let mut json = String::from("{\"deployments\":[");
    while json.len() < 2048 - 2 - 40 {
        json.push_str("{\"chart\":\"edge-agent\",\"ready\":true},");
    }
    json.push_str(&" ".repeat(2048 - 2 - json.len()));
    json.push_str("]}");
    assert_eq!(json.len(), 2048);
    Metric {
        name: Some("Report/Deployments".to_owned()),
        alias: None,
        timestamp: Some(TIMESTAMP),
        datatype: Some(DataType::String.to_wire()),
        value: BasicValue::String(json),
        properties: Vec::new(),
    }
}

/// As the standard carries it: small integers in 32 bits, negative ones as two's complement.
fn carrier(datatype: DataType, number: u64) -> BasicValue {
    let negative = -(number as i64 % 100);
    match datatype {
        DataType::Int8 | DataType::Int16 | DataType::Int32 => BasicValue::Int(negative as u32),
        DataType::Int64 => BasicValue::Long(negative as u64),
        DataType::UInt32 => BasicValue::Int(1_000_000 + number as u32),
        DataType::UInt64 => BasicValue::Long(10_000_000_000 + number),
        DataType::Float => BasicValue::Float(number as f32 * 0.25),
        DataType::Double => BasicValue::Double(number as f64 * 0.1),
        DataType::Boolean => BasicValue::Boolean(number.is_multiple_of(2)),
        _ => BasicValue::String(format!("state {number}")),
    }
}
