//! When the host is read, and what is published of it. Pure.

use std::time::Duration;

use service_runtime::service_core;
use sparkplug::{Metric, Now};

use crate::event::{Effect, Event};
use crate::reading::ReadError;
use crate::status::Status;

/// The core of the agent.
#[derive(Debug)]
pub(crate) struct Agent {
    interval: Duration,
    /// `Now::mono` of the next reading.
    read_at: Option<Duration>,
    status: Status,
    effects: Vec<Effect>,
}

service_core!(Agent, Event, Effect);

impl Agent {
    /// An agent that has read its host just now, and reads it every `interval`.
    pub(crate) const fn new(interval: Duration, now: Now) -> Self {
        let read_at = now.mono.checked_add(interval);
        Self { interval, read_at, status: Status::measured(now.wall), effects: Vec::new() }
    }

    /// The metrics of the Device's status.
    pub(crate) fn status_metrics(&self) -> Vec<Metric> {
        self.status.metrics()
    }

    /// Takes an event.
    pub(crate) fn on_event(&mut self, event: Event, now: Now) {
        match event {
            Event::Node(_) => {}
            Event::DeadlineReached => {
                if self.read_at.is_some_and(|at| at <= now.mono) {
                    self.read_at = now.mono.checked_add(self.interval);
                    self.effects.push(Effect::Read);
                }
            }
            Event::Read(read) => self.publish(read, now),
        }
    }

    fn publish(&mut self, read: Result<Vec<Metric>, ReadError>, now: Now) {
        let reason = read.as_ref().err().map(ToString::to_string);
        if let Some(reason) = reason.as_deref().filter(|reason| Some(*reason) != self.status.reason()) {
            tracing::warn!(reason, "the host cannot be read");
        }
        self.status = self.status.after(reason, now.wall);
        self.effects.push(Effect::Publish([self.status.metrics(), read.unwrap_or_default()].concat()));
    }

    /// What is to be done, in order.
    pub(crate) fn poll_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// `Now::mono` at which the host is to be read.
    pub(crate) const fn next_deadline(&self) -> Option<Duration> {
        self.read_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(10);

    fn at(seconds: u64) -> Now {
        Now { mono: Duration::from_secs(seconds), wall: 1_000 * seconds }
    }

    fn published(agent: &mut Agent, read: Result<Vec<Metric>, ReadError>, now: Now) -> Vec<Metric> {
        agent.on_event(Event::Read(read), now);
        let [Effect::Publish(metrics)] = &agent.poll_effects()[..] else { panic!("one message") };
        metrics.clone()
    }

    #[test]
    fn the_host_is_read_once_an_interval_however_late_the_deadline_is_noticed() {
        let mut agent = Agent::new(INTERVAL, at(1));
        assert_eq!((agent.next_deadline(), agent.poll_effects()), (Some(at(11).mono), vec![]));
        agent.on_event(Event::DeadlineReached, at(10));
        assert_eq!(agent.poll_effects(), [], "too early");
        agent.on_event(Event::DeadlineReached, at(45));
        assert_eq!((agent.poll_effects(), agent.next_deadline()), (vec![Effect::Read], Some(at(55).mono)));
        assert_eq!(Agent::new(Duration::MAX, at(1)).next_deadline(), None, "never, instead of an overflow");
    }

    #[test]
    fn what_was_read_is_published_with_the_status_and_what_could_not_be_read_with_its_reason() {
        let mut agent = Agent::new(INTERVAL, at(1));
        let load = Metric::new("Load/1", 0.5);
        let metrics = published(&mut agent, Ok(vec![load.clone()]), at(2));
        assert_eq!(metrics[3..], [load]);
        let failed = ReadError::Content { file: "loadavg", what: "three averages" };
        let metrics = published(&mut agent, Err(failed), at(3));
        let texts: Vec<_> = metrics.iter().map(Metric::as_str).collect();
        assert_eq!(texts, [Some("not-measured"), Some("loadavg has no three averages"), None]);
    }
}
