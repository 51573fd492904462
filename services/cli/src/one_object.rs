//! One object of ConfigDB, asked for alone. A listener receives its Device and ConfigDB's answers, and asks for the values of that Device: no other object is published again, and no
//! replica gets out of step. Knows the driver, as [`crate::client`] does.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use configdb_contract::command::{Sender, device_id};
use configdb_contract::{HistoryEntry, ObjectReplica, ReplayRequest, RequestResult, configdb_node, entry, names};
use configdb_schema::APPLICATIONS;
use configdb_schema::address::Organisation;
use service_runtime::exit;
use sparkplug::payload::{EncodeOptions, Form, Limits, Payload, decode, encode};
use sparkplug::session::QoS;
use sparkplug::{DataType, EdgeNodeDescriptor, MessageKind, Metric, Topic};
use sparkplug_mqtt::{Clock, ListenerEvent, ListenerHandle, spawn_listener};
use tokio::time::Instant;
use uuid::Uuid;

use crate::client::{mqtt_config, not_reached, refusal, request_id, unreachable, user};
use crate::options::Options;

/// Commands are QoS 0: how long an answer is waited for before the question is repeated.
const REPEAT: Duration = Duration::from_secs(2);
/// Changes asked for in one go when a history is read.
const HISTORY_PAGE: u64 = 200;

/// An object, and the applications that it could have entries under.
#[derive(Debug, Default)]
pub(crate) struct Values {
    /// The object.
    pub object: ObjectReplica,
    /// Slugs and UUIDs: of those that every ConfigDB has, and of the object's entries.
    pub applications: BTreeMap<String, Uuid>,
}

/// A session about one object.
#[derive(Debug)]
pub(crate) struct OneObject {
    listener: ListenerHandle,
    node: EdgeNodeDescriptor,
    object: Uuid,
    sender: Sender,
    clock: Clock,
    deadline: Instant,
    timeout: Duration,
    broker: String,
}

/// What came until a request was answered.
#[derive(Debug, Default)]
struct Received {
    result: Option<RequestResult>,
    values: Option<Values>,
    history: Vec<HistoryEntry>,
}

impl OneObject {
    /// A session that is not connected yet.
    ///
    /// # Errors
    /// With [`exit::CONFIG`] for unusable options.
    pub(crate) fn open(options: &Options, object: Uuid) -> anyhow::Result<Self> {
        let wrong = |error: anyhow::Error| exit::with_code(exit::CONFIG, error);
        let connection = &options.connection;
        let organisation =
            Organisation::new(connection.organisation.clone()).context("--organisation").map_err(wrong)?;
        let (node, device) = (configdb_node(&organisation), device_id(object));
        let sender = Sender::new(&organisation, &user(connection)?);
        let topic = |kind, device| Topic::of(node.clone(), kind, device).to_string();
        let filters = [
            topic(MessageKind::NData, None),
            topic(MessageKind::DData, Some(device.clone())),
            topic(MessageKind::DBirth, Some(device)),
        ];
        let filters = filters.into_iter().map(|filter| (filter, QoS::AtLeastOnce)).collect();
        let clock = Clock::new();
        let listener = spawn_listener(filters, &mqtt_config(connection)?, clock)
            .map_err(|error| wrong(anyhow::Error::new(error).context("connection options")))?;
        let timeout = options.presentation.timeout;
        let (deadline, broker) = (Instant::now() + timeout, connection.broker.clone());
        Ok(Self { listener, node, object, sender, clock, deadline, timeout, broker })
    }

    /// The object as it is; None: there is none.
    ///
    /// # Errors
    /// With [`exit::UNAVAILABLE`] if the broker is not reached, [`exit::TIMEOUT`] if ConfigDB does not answer.
    pub(crate) async fn read(&mut self) -> anyhow::Result<Option<Values>> {
        // The answer to a question about no change says whether there is an object at all.
        let all = ReplayRequest::new(request_id(), self.object, u64::MAX);
        // Only the Device of the object itself has a rebirth; ConfigDB takes the other for both.
        let nothing = ReplayRequest { limit: 1, values: self.sender.is_user(), ..all };
        let mut metrics = nothing.to_metrics();
        metrics.push(Metric::new("Device Control/Rebirth", true));
        let received = self.ask(&nothing.id, metrics, true).await?;
        Ok(received.values.filter(|_| received.result.is_some_and(|result| result.is_applied())))
    }

    /// The recorded changes of the object from a revision on, the oldest first.
    ///
    /// # Errors
    /// As [`OneObject::read`]; with [`exit::REFUSED`] and the reason when ConfigDB refuses.
    pub(crate) async fn history(&mut self, slug: Option<String>, since: u64) -> anyhow::Result<Vec<HistoryEntry>> {
        let mut history: Vec<HistoryEntry> = Vec::new();
        let mut from = since;
        loop {
            let request = ReplayRequest {
                slug: slug.clone(),
                limit: HISTORY_PAGE,
                ..ReplayRequest::new(request_id(), self.object, from)
            };
            let received = self.ask(&request.id, request.to_metrics(), false).await?;
            if let Some(refused) = received.result.filter(RequestResult::is_refused) {
                let is_gone = matches!(refused.field.as_deref(), Some("device id" | names::HISTORY_APPLICATION));
                let code = if is_gone { exit::NOT_FOUND } else { exit::REFUSED };
                return Err(exit::with_code(code, anyhow!("{}", refusal(&refused))));
            }
            let page = received.history.into_iter().filter(|entry| entry.revision >= from);
            let page: Vec<HistoryEntry> = page.collect();
            let Some(last) = page.iter().map(|entry| entry.revision).max() else { break };
            from = last + 1;
            history.extend(page);
        }
        history.sort_by(|a, b| (a.revision, &a.slug).cmp(&(b.revision, &b.slug)));
        // A repeated request is answered with the same changes again.
        history.dedup();
        Ok(history)
    }

    /// Asks until the request of that id is answered, and (`values`) the object was published.
    async fn ask(&mut self, id: &str, metrics: Vec<Metric>, values: bool) -> anyhow::Result<Received> {
        let mut received = Received::default();
        self.send(&metrics).await?;
        let mut repeat = Instant::now() + REPEAT;
        loop {
            let is_answered = received
                .result
                .as_ref()
                .is_some_and(|result| result.is_refused() || !values || received.values.is_some());
            if is_answered {
                return Ok(received);
            }
            match tokio::time::timeout_at(repeat.min(self.deadline), self.listener.recv()).await {
                Ok(Some(ListenerEvent::Online)) => {
                    self.send(&metrics).await?;
                    repeat = Instant::now() + REPEAT;
                }
                Ok(Some(ListenerEvent::Offline { reason })) => return Err(self.unreachable(&reason)),
                Ok(Some(ListenerEvent::Message { topic, payload, .. })) => {
                    self.take(id, &topic, &payload, &mut received);
                }
                Ok(Some(ListenerEvent::Lost { .. })) => {}
                Ok(Some(ListenerEvent::Stopped) | None) => return Err(self.unreachable("the session has ended")),
                Err(_) if Instant::now() >= self.deadline => {
                    let error = not_reached(self.timeout, "ConfigDB to answer");
                    return Err(exit::with_code(exit::TIMEOUT, error));
                }
                Err(_) => {
                    self.send(&metrics).await?;
                    repeat = Instant::now() + REPEAT;
                }
            }
        }
    }

    /// What is sent before there is a session is dropped.
    async fn send(&self, metrics: &[Metric]) -> anyhow::Result<()> {
        let (device, metrics) = self.sender.address(self.object, metrics.to_vec());
        let payload = Payload { timestamp: Some(self.clock.now().wall), metrics, ..Payload::default() };
        let topic = Topic::of(self.node.clone(), MessageKind::DCmd, Some(device));
        let payload = encode(&payload, &EncodeOptions::for_any_reader(Form::Command));
        Ok(self.listener.publish(topic.to_string(), payload).await?)
    }

    fn take(&self, id: &str, topic: &str, payload: &[u8], received: &mut Received) {
        let Some(metrics) = metrics_of(payload) else { return };
        match Topic::parse(topic) {
            Ok(Topic::Node { .. }) => {
                let results = metrics.iter().filter_map(|metric| RequestResult::from_metric(metric).ok().flatten());
                received.result = results.into_iter().find(|result| result.id == id).or(received.result.take());
            }
            Ok(Topic::Device { .. }) => {
                let past = metrics.iter().filter(|metric| metric.is_historical);
                received.history.extend(past.filter_map(|metric| HistoryEntry::from_metric(self.object, metric).ok()));
                if let Some(object) = ObjectReplica::from_message(&metrics) {
                    let named = |metric: &Metric| Some((metric.name.to_string(), entry::application_of(metric)?));
                    let known = APPLICATIONS.iter().map(|application| (application.slug.to_owned(), application.uuid));
                    let applications = known.chain(metrics.iter().filter_map(named)).collect();
                    received.values = Some(Values { object, applications });
                }
            }
            _ => {}
        }
    }

    fn unreachable(&self, reason: &str) -> anyhow::Error {
        unreachable(&self.broker, reason)
    }

    /// Disconnects.
    pub(crate) async fn close(self) {
        self.listener.stop().await;
    }
}

/// The metrics of a message of ConfigDB, which uses no aliases and whose Devices have Strings only; None: it cannot be read.
fn metrics_of(payload: &[u8]) -> Option<Vec<Metric>> {
    let payload = decode(payload, &Limits { bytes_max: usize::MAX, ..Limits::default() }).ok()?;
    let metrics = payload.metrics.into_iter().filter_map(|raw| {
        let name = raw.name.clone()?;
        let datatype = raw.own_datatype().unwrap_or(DataType::String);
        raw.resolve(name, datatype, None).ok()
    });
    Some(metrics.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_lacks_something_is_not_an_object() {
        let result = Metric::new(names::REQUEST_RESULT, "{}");
        assert!(ObjectReplica::from_message(&[result]).is_none());
    }
}
