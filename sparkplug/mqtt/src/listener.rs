//! A machine that only looks: it subscribes, hands over every message as it is, and keeps no replica. For tools that show or record traffic.
//!
//! It has no will and no STATE, so no other client notices it; what it may publish are commands.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use sparkplug::Now;
use sparkplug::session::{Connect, Publish, QoS, TransportAction, TransportEvent};

use crate::machine::{Machine, Output};

/// Waits between two attempts to connect: the first, and the longest; between them it doubles.
const RECONNECT: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(10));

/// What a listener receives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListenerEvent {
    /// Connected and subscribed.
    Online,
    /// The session ended or could not be opened; it is tried again.
    Offline {
        /// For people.
        reason: String,
    },
    /// A message.
    Message {
        /// Its topic.
        topic: String,
        /// Its payload.
        payload: Bytes,
        /// Its retain flag: true for what the server had stored.
        retain: bool,
    },
    /// Messages were dropped because the application did not take them fast enough, or one because it is larger than `mqtt.packet_bytes_max`.
    Lost {
        /// Topic of one of them; one such event a node.
        topic: String,
    },
    /// The end.
    Stopped,
}

/// What a listener can be asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ListenerRequest {
    /// Publish at QoS 0, not retained; dropped while offline.
    Publish {
        topic: String,
        payload: Bytes,
    },
    Stop,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Listener {
    filters: Vec<(String, QoS)>,
    servers: usize,
    server: usize,
    phase: Phase,
    wait: Duration,
    outputs: VecDeque<Output<ListenerEvent>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Waiting {
        until: Duration,
    },
    Connecting,
    Online,
    /// Leaves the session for another one.
    Leaving,
    Stopping,
    Stopped,
}

impl Listener {
    pub(crate) fn new(filters: Vec<(String, QoS)>, servers: usize) -> Self {
        let mut listener =
            Self { filters, servers, server: 0, phase: Phase::Connecting, wait: RECONNECT.0, outputs: VecDeque::new() };
        listener.connect();
        listener
    }

    fn connect(&mut self) {
        self.phase = Phase::Connecting;
        self.act(TransportAction::Connect(Connect { server: self.server, will: None, bd_seq: None }));
    }

    fn act(&mut self, action: TransportAction) {
        self.outputs.push_back(Output::Transport(action));
    }

    fn report(&mut self, event: ListenerEvent) {
        self.outputs.push_back(Output::Event(event));
    }

    fn stop(&mut self) {
        match self.phase {
            Phase::Connecting | Phase::Online => {
                self.phase = Phase::Stopping;
                self.act(TransportAction::Disconnect);
            }
            Phase::Waiting { .. } => {
                self.phase = Phase::Stopped;
                self.report(ListenerEvent::Stopped);
            }
            Phase::Leaving => self.phase = Phase::Stopping,
            Phase::Stopping | Phase::Stopped => {}
        }
    }
}

impl Machine for Listener {
    type Input = ListenerRequest;
    type Refusal = Infallible;
    type Event = ListenerEvent;
    const CONCLUDES_FROM_SILENCE: bool = false;

    fn input(&mut self, input: ListenerRequest, _: Now) -> Result<(), Infallible> {
        match input {
            ListenerRequest::Publish { topic, payload } => {
                if self.phase == Phase::Online {
                    self.act(TransportAction::Publish(Publish { topic, payload, qos: QoS::AtMostOnce, retain: false }));
                }
            }
            ListenerRequest::Stop => self.stop(),
        }
        Ok(())
    }

    fn on_transport(&mut self, event: TransportEvent, now: Now) {
        match event {
            TransportEvent::Connected => self.act(TransportAction::Subscribe(self.filters.clone())),
            TransportEvent::Subscribed => {
                self.phase = Phase::Online;
                self.wait = RECONNECT.0;
                self.report(ListenerEvent::Online);
            }
            TransportEvent::Message { topic, payload, retain, .. } => {
                self.report(ListenerEvent::Message { topic, payload, retain });
            }
            TransportEvent::Lost { topic } | TransportEvent::Oversized { topic, .. } => {
                self.report(ListenerEvent::Lost { topic });
            }
            TransportEvent::Received { .. } => {}
            TransportEvent::Outdated => {
                if self.phase == Phase::Online {
                    self.phase = Phase::Leaving;
                    self.act(TransportAction::Disconnect);
                }
            }
            TransportEvent::Disconnected { .. } if self.phase == Phase::Stopping => {
                self.phase = Phase::Stopped;
                self.report(ListenerEvent::Stopped);
            }
            TransportEvent::Disconnected { reason, .. } if self.phase == Phase::Leaving => {
                self.phase = Phase::Waiting { until: now.mono };
                self.report(ListenerEvent::Offline { reason });
            }
            TransportEvent::Disconnected { reason, .. } => {
                self.phase = Phase::Waiting { until: now.mono + self.wait };
                self.wait = (self.wait * 2).min(RECONNECT.1);
                self.server = (self.server + 1) % self.servers.max(1);
                self.report(ListenerEvent::Offline { reason });
            }
        }
    }

    fn handle_timeout(&mut self, now: Now) {
        if matches!(self.phase, Phase::Waiting { until } if until <= now.mono) {
            self.connect();
        }
    }

    fn next_deadline(&self) -> Option<Duration> {
        match self.phase {
            Phase::Waiting { until } => Some(until),
            Phase::Connecting | Phase::Online | Phase::Leaving | Phase::Stopping | Phase::Stopped => None,
        }
    }

    fn poll_output(&mut self) -> Option<Output<ListenerEvent>> {
        self.outputs.pop_front()
    }

    fn stop() -> ListenerRequest {
        ListenerRequest::Stop
    }

    fn is_stop(input: &ListenerRequest) -> bool {
        matches!(input, ListenerRequest::Stop)
    }

    fn is_stopped(event: &ListenerEvent) -> bool {
        matches!(event, ListenerEvent::Stopped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn actions(listener: &mut Listener) -> Vec<String> {
        std::iter::from_fn(|| listener.poll_output()).map(|output| format!("{output:?}")).collect()
    }

    fn at(ms: u64) -> Now {
        Now::new(Duration::from_millis(ms), 0)
    }

    fn lost(listener: &mut Listener, ms: u64) -> Vec<String> {
        listener.on_transport(TransportEvent::Disconnected { reason: "gone".into(), reached: true }, at(ms));
        actions(listener)
    }

    #[test]
    fn it_connects_without_will_subscribes_and_tries_the_next_server_with_growing_waits() {
        let mut listener = Listener::new(vec![("spBv1.0/#".into(), QoS::AtMostOnce)], 2);
        assert_eq!(actions(&mut listener), ["Transport(Connect(Connect { server: 0, will: None, bd_seq: None }))"]);
        assert_eq!(lost(&mut listener, 0), ["Event(Offline { reason: \"gone\" })"]);
        assert_eq!(listener.next_deadline(), Some(Duration::from_millis(500)));
        listener.handle_timeout(at(499));
        assert!(actions(&mut listener).is_empty());
        listener.handle_timeout(at(500));
        assert_eq!(actions(&mut listener), ["Transport(Connect(Connect { server: 1, will: None, bd_seq: None }))"]);
        lost(&mut listener, 500);
        assert_eq!(listener.next_deadline(), Some(Duration::from_millis(1_500)));
        listener.handle_timeout(at(1_500));
        actions(&mut listener);
        listener.on_transport(TransportEvent::Connected, at(1_500));
        assert_eq!(actions(&mut listener), ["Transport(Subscribe([(\"spBv1.0/#\", AtMostOnce)]))"]);
        listener.on_transport(TransportEvent::Subscribed, at(1_500));
        assert_eq!(actions(&mut listener), ["Event(Online)"]);
        lost(&mut listener, 2_000);
        assert_eq!(listener.next_deadline(), Some(Duration::from_millis(2_500)), "the wait begins small again");
    }

    #[test]
    fn an_outdated_session_is_left_and_followed_by_another_on_the_same_server() {
        let mut listener = Listener::new(Vec::new(), 2);
        listener.on_transport(TransportEvent::Outdated, at(0));
        assert_eq!(actions(&mut listener).len(), 1, "one that is being opened is up to date");
        listener.on_transport(TransportEvent::Subscribed, at(0));
        listener.on_transport(TransportEvent::Outdated, at(0));
        listener.on_transport(TransportEvent::Outdated, at(0));
        assert_eq!(actions(&mut listener), ["Event(Online)", "Transport(Disconnect)"]);
        lost(&mut listener, 7);
        listener.handle_timeout(listener.next_deadline().map(|due| Now::new(due, 0)).unwrap());
        assert_eq!(actions(&mut listener), ["Transport(Connect(Connect { server: 0, will: None, bd_seq: None }))"]);
    }

    #[test]
    fn it_publishes_only_while_online_and_stops_in_every_phase() {
        let mut listener = Listener::new(Vec::new(), 1);
        actions(&mut listener);
        let publish = || ListenerRequest::Publish { topic: "t".into(), payload: Bytes::new() };
        listener.input(publish(), at(0)).unwrap();
        assert!(actions(&mut listener).is_empty());
        listener.on_transport(TransportEvent::Subscribed, at(0));
        listener.input(publish(), at(0)).unwrap();
        assert_eq!(actions(&mut listener).len(), 2);
        listener.input(ListenerRequest::Stop, at(0)).unwrap();
        assert_eq!(actions(&mut listener), ["Transport(Disconnect)"]);
        assert_eq!(lost(&mut listener, 0), ["Event(Stopped)"]);

        let mut listener = Listener::new(Vec::new(), 1);
        lost(&mut listener, 0);
        listener.input(ListenerRequest::Stop, at(0)).unwrap();
        assert_eq!(actions(&mut listener), ["Event(Stopped)"]);
        assert_eq!(listener.next_deadline(), None);
    }
}
