//! `sparkfleet write`: a command (NCMD or DCMD) that writes one metric of any Edge Node, with the datatype that its birth gives.

use std::sync::Arc;

use anyhow::{anyhow, bail};
use bytes::Bytes;
use configdb_schema::timestamp::from_text;
use serde_json::Value as Json;
use service_runtime::exit;
use service_runtime::shutdown::Shutdown;
use sparkplug::payload::{EncodeOptions, Form, Limits, Payload, RawMetric, decode, encode};
use sparkplug::session::QoS;
use sparkplug::topic::filter;
use sparkplug::{DataType, DeviceId, EdgeNodeDescriptor, MessageKind, Metric, PropertyValue, Topic, Value};
use sparkplug_mqtt::{Clock, ListenerEvent, ListenerHandle, spawn_listener};

use crate::arguments::replay::WriteArguments;
use crate::client::unreachable;
use crate::output::remark;
use crate::usage_error::not_found;
use crate::watch::births::Births;
use crate::watch::rebirth_command;

/// Asks the node for its births, writes, and waits until the node reports the value.
///
/// # Errors
/// With [`exit::USAGE`]: no such place can be, or the value is not of the metric's datatype. With [`exit::NOT_FOUND`]: the birth has no such metric. With
/// [`exit::REFUSED`]: it is read-only. With [`exit::TIMEOUT`]: the node is not born, or does not report the value. With [`exit::UNAVAILABLE`]: no broker.
pub async fn run(arguments: WriteArguments) -> anyhow::Result<()> {
    let (node, device) = place(&arguments.place).map_err(|error| exit::with_code(exit::USAGE, error))?;
    let mqtt = crate::client::mqtt_config(&arguments.connection)?;
    let clock = Clock::new();
    let listener = spawn_listener(vec![(filter::node(&node), QoS::AtMostOnce)], &mqtt, clock)
        .map_err(|error| exit::with_code(exit::CONFIG, anyhow::Error::new(error)))?;
    let shutdown = Shutdown::on_signals()?;
    let timeout = arguments.timeout;
    let mut write =
        Write { arguments, node, device, clock, listener, births: Births::default(), sent: None, reported: None };
    let ended = tokio::select! {
        ended = write.run() => ended,
        () = tokio::time::sleep(timeout) => Err(exit::with_code(exit::TIMEOUT, write.missed())),
        () = shutdown.wait() => Err(exit::with_code(exit::INTERRUPTED, anyhow!("interrupted"))),
    };
    write.listener.stop().await;
    ended
}

fn place(text: &str) -> anyhow::Result<(EdgeNodeDescriptor, Option<DeviceId>)> {
    let levels: Vec<&str> = text.split('/').collect();
    match levels[..] {
        [group, node] => Ok((EdgeNodeDescriptor::parse(group, node)?, None)),
        [group, node, device] => Ok((EdgeNodeDescriptor::parse(group, node)?, Some(DeviceId::new(device)?))),
        _ => bail!("{text:?} is not GROUP/NODE or GROUP/NODE/DEVICE"),
    }
}

struct Write {
    arguments: WriteArguments,
    node: EdgeNodeDescriptor,
    device: Option<DeviceId>,
    clock: Clock,
    listener: ListenerHandle,
    births: Births,
    /// The value that was sent.
    sent: Option<Metric>,
    /// What the node reported since.
    reported: Option<String>,
}

impl Write {
    async fn run(&mut self) -> anyhow::Result<()> {
        loop {
            match self.listener.recv().await {
                Some(ListenerEvent::Online) => {
                    let (topic, payload) = rebirth_command(&self.node, self.clock.now().wall);
                    self.listener.publish(topic, payload).await?;
                }
                Some(ListenerEvent::Offline { reason }) => {
                    return Err(unreachable(&self.arguments.connection.broker, &reason));
                }
                Some(ListenerEvent::Message { topic, payload, .. }) => {
                    if self.on_message(&topic, &payload).await? {
                        return Ok(());
                    }
                }
                Some(ListenerEvent::Lost { .. }) => {}
                Some(ListenerEvent::Stopped) | None => bail!("the session ended"),
            }
        }
    }

    /// True when it is done.
    async fn on_message(&mut self, topic: &str, payload: &Bytes) -> anyhow::Result<bool> {
        let (kind, device) = match Topic::parse(topic) {
            Ok(Topic::Node { kind, .. }) => (kind, None),
            Ok(Topic::Device { kind, device, .. }) => (kind, Some(device)),
            _ => return Ok(false),
        };
        let Ok(payload) = decode(payload, &Limits { bytes_max: usize::MAX, ..Limits::default() }) else {
            return Ok(false);
        };
        self.births.learn(&self.node, kind, device.as_ref(), &payload);
        if device != self.device {
            return Ok(false);
        }
        match (kind, &self.sent) {
            (MessageKind::NBirth | MessageKind::DBirth, None) => {
                let is_reported = self.send(&payload.metrics).await?;
                Ok(is_reported || self.arguments.no_wait)
            }
            (MessageKind::NBirth | MessageKind::DBirth | MessageKind::NData | MessageKind::DData, Some(_)) => {
                Ok(self.receive(payload.metrics))
            }
            _ => Ok(false),
        }
    }

    /// Writes, by the birth. True when the birth has the value already: a node that reports by exception says nothing more of it.
    async fn send(&mut self, birth: &[RawMetric]) -> anyhow::Result<bool> {
        let name = &self.arguments.name;
        let names = || birth.iter().filter_map(|metric| metric.name.as_deref());
        let Some(metric) = birth.iter().find(|metric| metric.name.as_deref() == Some(name)) else {
            return Err(not_found("metric", name, names()));
        };
        let read_only = metric.properties.as_ref().is_some_and(|properties| {
            properties
                .iter()
                .any(|(key, value)| key == "readOnly" && *value == PropertyValue::Value(Value::Boolean(true)))
        });
        if read_only && !self.arguments.force {
            let error =
                anyhow!("{name} is read-only, says the birth (property readOnly); --force writes it all the same");
            return Err(exit::with_code(exit::REFUSED, error));
        }
        let datatype = metric.own_datatype()?;
        let value = parse(datatype, &self.arguments.value).map_err(|error| exit::with_code(exit::USAGE, error))?;
        let name: Arc<str> = name.as_str().into();
        let is_reported = metric.clone().resolve(name.clone(), datatype, None).is_ok_and(|born| born.value == value);
        let metric = Metric { value, ..Metric::null(name.clone(), datatype) };
        let payload =
            Payload { timestamp: Some(self.clock.now().wall), metrics: vec![metric.clone()], ..Payload::default() };
        let kind = if self.device.is_some() { MessageKind::DCmd } else { MessageKind::NCmd };
        let topic = Topic::of(self.node.clone(), kind, self.device.clone());
        let options = EncodeOptions { dialect: self.arguments.dialect, ..EncodeOptions::new(Form::Command) };
        self.listener.publish(topic.to_string(), encode(&payload, &options)).await?;
        let place = &self.arguments.place;
        if is_reported {
            remark(&format!("{place} {name} is written as {datatype:?}; the node reports this value already"));
        } else if !self.arguments.no_wait {
            remark(&format!("{place} {name} is written as {datatype:?}; waiting for the node's report"));
        }
        self.sent = Some(metric);
        Ok(is_reported)
    }

    /// True when the node reports what was sent.
    fn receive(&mut self, metrics: Vec<RawMetric>) -> bool {
        let Some(sent) = &self.sent else { return false };
        for raw in metrics {
            let (name, _) = self.births.name_and_type(&self.node, self.device.as_ref(), &raw);
            if name.as_deref() != Some(&*sent.name) {
                continue;
            }
            let Ok(metric) = raw.resolve(sent.name.clone(), sent.datatype, None) else { continue };
            if metric.value == sent.value {
                return true;
            }
            self.reported = Some(metric.value.map_or_else(|| "null".to_owned(), |value| format!("{value:?}")));
        }
        false
    }

    /// What did not happen in time.
    fn missed(&self) -> anyhow::Error {
        let (place, name) = (&self.arguments.place, &self.arguments.name);
        match (&self.sent, &self.reported) {
            (None, _) => {
                anyhow!("no birth of {place} was received: is it alive, and does it obey Node Control/Rebirth?")
            }
            (Some(_), None) => anyhow!("{name} was written; {place} reported nothing of it"),
            (Some(_), Some(value)) => anyhow!("{name} was written; {place} reports {value}"),
        }
    }
}

/// A value as a person types it; None: null.
fn parse(datatype: DataType, text: &str) -> anyhow::Result<Option<Value>> {
    use DataType as T;
    if text == "null" {
        return Ok(None);
    }
    let value = match datatype {
        T::String => Some(Value::String(text.into())),
        T::Text => Some(Value::Text(text.into())),
        T::Uuid => uuid::Uuid::parse_str(text).ok().map(|uuid| Value::Uuid(uuid.to_string().into())),
        T::Bytes => hex::decode(text).ok().map(|bytes| Value::Bytes(bytes.into())),
        T::File => hex::decode(text).ok().map(|bytes| Value::File(bytes.into())),
        T::Int8 => text.parse().ok().map(Value::Int8),
        T::Int16 => text.parse().ok().map(Value::Int16),
        T::Int32 => text.parse().ok().map(Value::Int32),
        T::Int64 => text.parse().ok().map(Value::Int64),
        T::UInt8 => text.parse().ok().map(Value::UInt8),
        T::UInt16 => text.parse().ok().map(Value::UInt16),
        T::UInt32 => text.parse().ok().map(Value::UInt32),
        T::UInt64 => text.parse().ok().map(Value::UInt64),
        T::Float => text.parse().ok().map(Value::Float),
        T::Double => text.parse().ok().map(Value::Double),
        T::Boolean => text.parse().ok().map(Value::Boolean),
        T::DateTime => time(text).map(Value::DateTime),
        T::DataSet | T::Template => bail!("a {datatype:?} cannot be written from the command line"),
        _ => serde_json::from_str(text).ok().and_then(|items: Vec<Json>| array(datatype, &items)),
    };
    value.map(Some).ok_or_else(|| anyhow!("{text:?} is not a value of datatype {datatype:?}, which the birth gives"))
}

/// Milliseconds since 1970, or RFC 3339.
fn time(text: &str) -> Option<u64> {
    text.parse().ok().or_else(|| from_text(text))
}

fn array(datatype: DataType, items: &[Json]) -> Option<Value> {
    use DataType as T;
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

/// Numbers from their digits, so that each width has its own limits.
fn numbers<T: std::str::FromStr>(items: &[Json]) -> Option<Arc<[T]>> {
    items.iter().map(|item| item.as_number()?.to_string().parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_by_the_datatype_of_the_birth() {
        let of = |datatype, text| parse(datatype, text).unwrap();
        assert_eq!(of(DataType::Int8, "-128"), Some(Value::Int8(-128)));
        assert_eq!(of(DataType::Float, "21.5"), Some(Value::Float(21.5)));
        assert_eq!(of(DataType::String, "21.5"), Some(Value::String("21.5".into())));
        assert_eq!(of(DataType::Boolean, "null"), None);
        assert_eq!(of(DataType::DateTime, "1970-01-01T00:00:01Z"), Some(Value::DateTime(1_000)));
        assert_eq!(of(DataType::Bytes, "c0ffee"), Some(Value::Bytes(vec![0xc0, 0xff, 0xee].into())));
        assert_eq!(of(DataType::UInt8Array, "[1,255]"), Some(Value::UInt8Array(vec![1, 255].into())));
        for (datatype, text) in [
            (DataType::Int8, "128"),
            (DataType::UInt64, "-1"),
            (DataType::Boolean, "yes"),
            (DataType::UInt8Array, "[256]"),
            (DataType::UInt8Array, "1,2"),
            (DataType::Uuid, "x"),
        ] {
            let refusal = parse(datatype, text).unwrap_err().to_string();
            assert!(refusal.contains(&format!("{datatype:?}")) && refusal.contains(text), "{refusal}");
        }
        assert!(parse(DataType::DataSet, "{}").is_err());
    }

    #[test]
    fn a_place_has_two_or_three_levels() {
        assert!(place("G/E").unwrap().1.is_none());
        assert_eq!(place("G/E/D").unwrap().1.unwrap().as_str(), "D");
        for wrong in ["G", "G/E/D/X", "", "G//D", "G/+"] {
            assert!(place(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn every_scalar_and_array_is_read_within_its_limits() {
        use DataType as T;
        let largest = |datatype| match datatype {
            T::Int8 => "127",
            T::Int16 => "32767",
            T::Int32 => "2147483647",
            T::Int64 => "9223372036854775807",
            T::UInt8 => "255",
            T::UInt16 => "65535",
            T::UInt32 => "4294967295",
            _ => "18446744073709551615",
        };
        let pairs = [
            (T::Int8, T::Int8Array),
            (T::Int16, T::Int16Array),
            (T::Int32, T::Int32Array),
            (T::Int64, T::Int64Array),
            (T::UInt8, T::UInt8Array),
            (T::UInt16, T::UInt16Array),
            (T::UInt32, T::UInt32Array),
            (T::UInt64, T::UInt64Array),
        ];
        for (scalar, list) in pairs {
            let text = largest(scalar);
            let one_more = (text.parse::<u128>().unwrap() + 1).to_string();
            assert!(parse(scalar, text).unwrap().is_some(), "{scalar:?}");
            assert!(parse(scalar, &one_more).is_err() && parse(scalar, "").is_err(), "{scalar:?}");
            assert!(parse(list, &format!("[0,{text}]")).unwrap().is_some(), "{list:?}");
            assert!(parse(list, &format!("[0,{one_more}]")).is_err(), "{list:?}");
            assert!(parse(list, "[null]").is_err() && parse(list, "[\"1\"]").is_err(), "{list:?}");
        }
        for (datatype, text) in [
            (T::BooleanArray, "[true,false]"),
            (T::StringArray, r#"["a",""]"#),
            (T::FloatArray, "[1.5]"),
            (T::DoubleArray, "[]"),
            (T::DateTimeArray, "[5]"),
            (T::Uuid, "00000000-0000-0000-0000-000000000001"),
            (T::File, ""),
        ] {
            assert!(parse(datatype, text).unwrap().is_some(), "{datatype:?}");
        }
        for (datatype, text) in
            [(T::BooleanArray, "[1]"), (T::StringArray, "[1]"), (T::Bytes, "abc"), (T::DateTime, "yesterday")]
        {
            assert!(parse(datatype, text).is_err(), "{datatype:?}");
        }
    }
}
