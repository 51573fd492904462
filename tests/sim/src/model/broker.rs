//! An MQTT 3.1.1 server, as far as Sparkplug uses one: clean sessions, wills, retained messages, take-over, one queue in order for each subscriber. It knows no time: how long
//! messages travel, which are lost and which come twice, is the network's business.

use std::collections::BTreeMap;

use bytes::Bytes;
use sparkplug::session::{Publish, QoS};

/// One CONNECT and what follows from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SessionId(pub u64);

/// From a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToBroker {
    /// CONNECT with a clean session.
    Connect {
        /// Client id; a second session of one id ends the first.
        client_id: String,
        /// Published when the session ends without DISCONNECT.
        will: Option<Publish>,
    },
    /// SUBSCRIBE.
    Subscribe(Vec<(String, QoS)>),
    /// PUBLISH.
    Publish(Publish),
    /// DISCONNECT: the will is forgotten.
    Disconnect,
    /// The socket is gone.
    Gone,
}

/// To a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToClient {
    /// CONNACK.
    ConnAck,
    /// SUBACK.
    SubAck,
    /// PUBLISH.
    Message {
        /// Topic.
        topic: String,
        /// Payload.
        payload: Bytes,
        /// Sent because it was kept, not because it was just published.
        retain: bool,
        /// Lower of the two levels.
        qos: QoS,
        /// Who published it: the order of messages is kept for each of them.
        publisher: SessionId,
    },
    /// The server closes the connection.
    Closed,
}

#[derive(Debug)]
struct Session {
    client_id: String,
    will: Option<Publish>,
    filters: Vec<(String, QoS)>,
}

/// The server.
#[derive(Debug, Default)]
pub struct Broker {
    sessions: BTreeMap<SessionId, Session>,
    holders: BTreeMap<String, SessionId>,
    retained: BTreeMap<String, Publish>,
    outputs: Vec<(SessionId, ToClient)>,
    /// Messages of these kinds vanish: a broken server, for tests of the checks.
    pub(crate) swallows: Option<&'static str>,
}

impl Broker {
    /// Takes what a client sent.
    pub fn on_packet(&mut self, session: SessionId, packet: ToBroker) {
        match packet {
            ToBroker::Connect { client_id, will } => self.connect(session, client_id, will),
            ToBroker::Gone => self.lose(session),
            _ if !self.sessions.contains_key(&session) => {}
            ToBroker::Subscribe(filters) => self.subscribe(session, filters),
            ToBroker::Publish(publish) => self.publish(session, &publish),
            ToBroker::Disconnect => {
                self.remove(session);
                self.outputs.push((session, ToClient::Closed));
            }
        }
    }

    /// The server noticed that a client is away: its will is published.
    pub fn lose(&mut self, session: SessionId) {
        if let Some(Session { will: Some(will), .. }) = self.remove(session) {
            self.publish(session, &will);
        }
    }

    /// The server crashes: every session is gone, no will is published; retained messages survive or not.
    pub fn crash(&mut self, keep_retained: bool) -> Vec<SessionId> {
        self.holders.clear();
        if !keep_retained {
            self.retained.clear();
        }
        std::mem::take(&mut self.sessions).into_keys().collect()
    }

    /// What goes out, in order.
    pub fn take_outputs(&mut self) -> Vec<(SessionId, ToClient)> {
        std::mem::take(&mut self.outputs)
    }

    /// Whether the session exists.
    #[must_use]
    pub fn has(&self, session: SessionId) -> bool {
        self.sessions.contains_key(&session)
    }

    fn connect(&mut self, session: SessionId, client_id: String, will: Option<Publish>) {
        if let Some(old) = self.holders.get(&client_id).copied() {
            self.lose(old);
            self.outputs.push((old, ToClient::Closed));
        }
        self.holders.insert(client_id.clone(), session);
        self.sessions.insert(session, Session { client_id, will, filters: Vec::new() });
        self.outputs.push((session, ToClient::ConnAck));
    }

    fn subscribe(&mut self, session: SessionId, filters: Vec<(String, QoS)>) {
        let Some(subscriber) = self.sessions.get_mut(&session) else { return };
        let retained = self.retained.iter().filter_map(|(topic, kept)| {
            let level = filters.iter().filter(|(filter, _)| matches(filter, topic)).map(|(_, level)| *level).max()?;
            Some((session, message(kept, true, level, session)))
        });
        let retained: Vec<_> = retained.collect();
        subscriber.filters.extend(filters);
        self.outputs.push((session, ToClient::SubAck));
        self.outputs.extend(retained);
    }

    fn publish(&mut self, publisher: SessionId, publish: &Publish) {
        if self.swallows.is_some_and(|kind| publish.topic.split('/').nth(2) == Some(kind)) {
            return;
        }
        if publish.retain {
            if publish.payload.is_empty() {
                self.retained.remove(&publish.topic);
            } else {
                self.retained.insert(publish.topic.clone(), publish.clone());
            }
        }
        for (session, subscriber) in &self.sessions {
            let levels = subscriber.filters.iter().filter(|(filter, _)| matches(filter, &publish.topic));
            if let Some(level) = levels.map(|(_, level)| *level).max() {
                self.outputs.push((*session, message(publish, false, level, publisher)));
            }
        }
    }

    fn remove(&mut self, session: SessionId) -> Option<Session> {
        let removed = self.sessions.remove(&session)?;
        if self.holders.get(&removed.client_id) == Some(&session) {
            self.holders.remove(&removed.client_id);
        }
        Some(removed)
    }
}

fn message(publish: &Publish, retain: bool, level: QoS, publisher: SessionId) -> ToClient {
    let Publish { topic, payload, qos, .. } = publish.clone();
    ToClient::Message { topic, payload, retain, qos: qos.min(level), publisher }
}

/// Whether a topic matches a filter (MQTT 3.1.1, 4.7).
#[must_use]
pub fn matches(filter: &str, topic: &str) -> bool {
    let mut levels = topic.split('/');
    for wanted in filter.split('/') {
        match (wanted, levels.next()) {
            ("#", _) => return true,
            ("+", Some(_)) => {}
            (wanted, Some(level)) if wanted == level => {}
            _ => return false,
        }
    }
    levels.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: SessionId = SessionId(1);
    const B: SessionId = SessionId(2);

    fn publish(topic: &str, retain: bool) -> Publish {
        Publish { topic: topic.to_owned(), payload: Bytes::from_static(b"x"), qos: QoS::AtLeastOnce, retain }
    }

    fn connect(client_id: &str, will: Option<&str>) -> ToBroker {
        ToBroker::Connect { client_id: client_id.to_owned(), will: will.map(|topic| publish(topic, false)) }
    }

    fn subscribed(broker: &mut Broker, session: SessionId, filter: &str) {
        broker.on_packet(session, connect(&format!("{session:?}"), None));
        broker.on_packet(session, ToBroker::Subscribe(vec![(filter.to_owned(), QoS::AtMostOnce)]));
        broker.take_outputs();
    }

    fn topics(broker: &mut Broker, of: SessionId) -> Vec<String> {
        let outputs = broker.take_outputs().into_iter().filter(|(session, _)| *session == of);
        outputs
            .map(|(_, output)| match output {
                ToClient::Message { topic, retain, .. } => format!("{topic}{}", if retain { " kept" } else { "" }),
                other => format!("{other:?}"),
            })
            .collect()
    }

    #[test]
    fn filters_match_levels() {
        for (filter, topic, expected) in [
            ("a/#", "a", true),
            ("a/#", "a/b/c", true),
            ("a/+/c", "a/b/c", true),
            ("a/+", "a/b/c", false),
            ("a/b/c", "a/b", false),
            ("#", "a/b", true),
            ("s/+/+/Monitor/#", "s/G/NBIRTH/Monitor", true),
        ] {
            assert_eq!(matches(filter, topic), expected, "{filter} {topic}");
        }
    }

    #[test]
    fn a_lost_session_publishes_its_will_and_a_disconnected_one_does_not() {
        let mut broker = Broker::default();
        subscribed(&mut broker, A, "#");
        broker.on_packet(B, connect("b", Some("death")));
        broker.on_packet(B, ToBroker::Gone);
        assert_eq!(topics(&mut broker, A), ["death"]);
        broker.on_packet(B, connect("b", Some("death")));
        broker.on_packet(B, ToBroker::Disconnect);
        assert_eq!(topics(&mut broker, A), Vec::<String>::new());
    }

    #[test]
    fn a_second_session_of_one_client_id_ends_the_first_with_its_will() {
        let mut broker = Broker::default();
        subscribed(&mut broker, A, "#");
        broker.on_packet(B, connect("b", Some("death")));
        broker.on_packet(SessionId(3), connect("b", None));
        assert_eq!(topics(&mut broker, A), ["death"]);
        assert!(broker.has(SessionId(3)) && !broker.has(B));
    }

    #[test]
    fn retained_messages_come_with_the_subscription() {
        let mut broker = Broker::default();
        broker.on_packet(B, connect("b", None));
        broker.on_packet(B, ToBroker::Publish(publish("state/x", true)));
        broker.on_packet(A, connect("a", None));
        broker.on_packet(A, ToBroker::Subscribe(vec![("state/+".to_owned(), QoS::AtLeastOnce)]));
        assert_eq!(topics(&mut broker, A), ["ConnAck", "SubAck", "state/x kept"]);
    }

    #[test]
    fn overlapping_filters_deliver_once() {
        let mut broker = Broker::default();
        subscribed(&mut broker, A, "#");
        broker.on_packet(A, ToBroker::Subscribe(vec![("a/+".to_owned(), QoS::AtMostOnce)]));
        broker.take_outputs();
        broker.on_packet(B, connect("b", None));
        broker.on_packet(B, ToBroker::Publish(publish("a/b", false)));
        assert_eq!(topics(&mut broker, A), ["a/b"]);
    }
}
