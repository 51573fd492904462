//! `sparkfleet write`: a command (NCMD or DCMD) that writes one metric of any Edge Node, with the datatype that its birth gives.

use std::sync::Arc;

use anyhow::{anyhow, bail};
use bytes::Bytes;
use fleet_view::explorer::{self, from_text};
use service_runtime::exit;
use service_runtime::shutdown::Shutdown;
use sparkplug::payload::{EncodeOptions, Form, Limits, Payload, RawMetric, decode, encode};
use sparkplug::session::QoS;
use sparkplug::topic::filter;
use sparkplug::{DeviceId, EdgeNodeDescriptor, MessageKind, Metric, Topic};
use sparkplug_mqtt::{Clock, ListenerEvent, ListenerHandle, spawn_listener};

use crate::arguments::replay::WriteArguments;
use crate::client::unreachable;
use crate::output::remark;
use crate::usage_error::not_found;
use crate::watch::rebirth_command;
use fleet_view::explorer::births::Births;

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
        let read_only = metric.properties.as_ref().is_some_and(explorer::is_read_only);
        if read_only && !self.arguments.force {
            let error =
                anyhow!("{name} is read-only, says the birth (property readOnly); --force writes it all the same");
            return Err(exit::with_code(exit::REFUSED, error));
        }
        let datatype = metric.own_datatype()?;
        let value = from_text(datatype, &self.arguments.value).map_err(|error| exit::with_code(exit::USAGE, error))?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_has_two_or_three_levels() {
        assert!(place("G/E").unwrap().1.is_none());
        assert_eq!(place("G/E/D").unwrap().1.unwrap().as_str(), "D");
        for wrong in ["G", "G/E/D/X", "", "G//D", "G/+"] {
            assert!(place(wrong).is_err(), "{wrong}");
        }
    }
}
