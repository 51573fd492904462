//! The exchange with Identity: an Edge Node that is born with a request, says again and again that it asks, and receives the answer as a command.

use std::time::Duration;

use enrolment_protocol::cluster::{Grant, Request};
use enrolment_protocol::metrics::{self, ANSWER, ATTEMPT, REQUEST, STATE};
use enrolment_protocol::refusal::Refusal;
use sparkplug::backoff::Backoff;
use sparkplug::edge_node::{EdgeNodeConfig, NodeEvent, NodeUpdate};
use sparkplug::{EdgeNodeDescriptor, Metric};
use sparkplug_mqtt::{BdSeqStore, Clock, EdgeNodeHandle, MqttConfig, SpawnError};
use tokio::time::Instant;

/// First and longest pause before the request is made again.
const REPEAT: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(30));

/// A request on its way.
#[derive(Debug)]
pub struct Exchange {
    request: Request,
    session: EdgeNodeHandle,
    pauses: Backoff,
    attempt: u32,
    next: Instant,
    last_error: String,
}

/// The session ended although no one had ended it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the MQTT session ended by itself")]
pub struct SessionEnded;

impl Exchange {
    /// Begins to ask, as that Edge Node.
    ///
    /// # Errors
    /// The MQTT configuration.
    pub fn start(request: Request, node: EdgeNodeDescriptor, mqtt: &MqttConfig) -> Result<Self, SpawnError> {
        let birth =
            vec![metrics::metric(REQUEST, &request.bytes), Metric::new(ATTEMPT, 1_u64), Metric::new(STATE, "asking")];
        let config = EdgeNodeConfig::for_any_reader(node);
        let session = sparkplug_mqtt::spawn_edge_node(config, birth, mqtt, BdSeqStore::Memory, Clock::new())?;
        let mut pauses = Backoff::new(REPEAT, 0);
        let next = Instant::now() + pauses.next_delay();
        let last_error = "the MQTT server was not reached".to_owned();
        Ok(Self { request, session, pauses, attempt: 1, next, last_error })
    }

    /// The next answer that is meant for it. After a refusal it asks on. Cancel-safe.
    ///
    /// # Errors
    /// [`SessionEnded`]
    pub async fn answer(&mut self) -> Result<Result<Grant, Refusal>, SessionEnded> {
        loop {
            tokio::select! {
                event = self.session.recv() => match event {
                    Some(NodeEvent::Command { device: None, metrics, .. }) => {
                        let Some(answer) = metrics::bytes_of(&metrics, ANSWER) else { continue };
                        match self.request.open(&answer) {
                            Ok(answer) => return Ok(answer),
                            Err(error) => tracing::warn!(error = %error, "an answer is not believed"),
                        }
                    }
                    Some(NodeEvent::Born { .. }) => {
                        "Identity does not answer: does it know this cluster, is it ready, and is the pinned key its own?"
                            .clone_into(&mut self.last_error);
                    }
                    Some(NodeEvent::Offline { reason }) => {
                        tracing::warn!(reason, "the MQTT server is away");
                        self.last_error = format!("the MQTT server is away: {reason}");
                    }
                    Some(_) => {}
                    None => return Err(SessionEnded),
                },
                () = tokio::time::sleep_until(self.next) => {
                    self.attempt = self.attempt.saturating_add(1);
                    self.next = Instant::now() + self.pauses.next_delay();
                    let again = vec![Metric::new(ATTEMPT, self.attempt)];
                    // A full inbox empties itself; the next attempt says the same.
                    let _ = self.session.try_update(NodeUpdate::Set { device: None, metrics: again });
                }
            }
        }
    }

    /// Why there is no answer so far, for people.
    #[must_use]
    pub fn last_error(&self) -> &str {
        &self.last_error
    }

    /// Ends it: `enrolled` or `refused`, for observers.
    pub async fn end(self, state: &'static str) {
        let update = NodeUpdate::Set { device: None, metrics: vec![Metric::new(STATE, state)] };
        // What was written counts, not what is published.
        let _ = self.session.update(update).await;
        self.session.stop().await;
    }
}
