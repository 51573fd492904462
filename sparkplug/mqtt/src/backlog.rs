//! Events that wait for the application, and what follows from their number for the reading of the socket. Pure.
//!
//! ```text
//! waiting:   0 ............ limit ................ 2 x limit ............ 3 x limit
//!            read           pause at most `patience`,  drop messages,     give the
//!                           then read on (pings!)      note their node    session up
//! ```
//! A pause lets TCP slow the server down, which helps against a burst. A longer overload must not let the link die, so reading continues, first into the room between
//! one and two limits; after that, messages are dropped. Whose messages were dropped is noted, and reported to the machine as [`TransportEvent::Lost`] once there is room.
//! So the replica turns stale and asks for rebirth. STATE messages are dropped last, because nothing would repeat them.
//!
//! [`TransportEvent::Lost`]: sparkplug::session::TransportEvent::Lost

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Nodes whose loss is noted one by one; beyond it the session is given up, which makes every replica stale.
const LOST_NODES_MAX: usize = 10_000;

/// See the module.
#[derive(Debug)]
pub(crate) struct Backlog<E> {
    waiting: VecDeque<(E, usize)>,
    bytes: usize,
    events_max: usize,
    bytes_max: usize,
    patience: Duration,
    full_since: Option<Duration>,
    /// `<group>/<edge node>` -> topic of the first message dropped.
    lost: BTreeMap<String, String>,
    lost_messages: u64,
}

/// Whether to read the socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadState {
    On,
    PausedUntil(Duration),
}

/// What to do with a message that arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admission {
    Feed,
    Drop,
    GiveUp,
}

impl<E> Backlog<E> {
    pub(crate) fn new(events_max: usize, bytes_max: usize, patience: Duration) -> Self {
        Self {
            waiting: VecDeque::new(),
            bytes: 0,
            events_max,
            bytes_max,
            patience,
            full_since: None,
            lost: BTreeMap::new(),
            lost_messages: 0,
        }
    }

    /// `bytes`: of the payload that led to the event.
    pub(crate) fn push(&mut self, event: E, bytes: usize) {
        self.waiting.push_back((event, bytes));
        self.bytes += bytes;
    }

    /// The oldest events, so many at most.
    pub(crate) fn take(&mut self, max: usize) -> Vec<E> {
        let mut bytes_taken = 0;
        let oldest = self.waiting.drain(..max.min(self.waiting.len()));
        let events = oldest.map(|(event, bytes)| {
            bytes_taken += bytes;
            event
        });
        let events = events.collect();
        self.bytes -= bytes_taken;
        if self.limits_reached() == 0 {
            self.full_since = None;
        }
        events
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// A limit is reached.
    pub(crate) fn is_full(&self) -> bool {
        self.limits_reached() > 0
    }

    /// The application takes no events any more.
    pub(crate) fn clear(&mut self) {
        self.waiting.clear();
        self.bytes = 0;
        self.full_since = None;
    }

    /// A new session knows nothing of the messages that an old one lost: every replica is stale anyway.
    pub(crate) fn forget_lost(&mut self) {
        self.lost.clear();
        self.lost_messages = 0;
    }

    /// To be asked after every change, because a pause begins when it is first asked for.
    pub(crate) fn reading(&mut self, mono: Duration) -> ReadState {
        if self.limits_reached() == 0 {
            return ReadState::On;
        }
        let until = *self.full_since.get_or_insert(mono) + self.patience;
        if mono < until { ReadState::PausedUntil(until) } else { ReadState::On }
    }

    pub(crate) fn admit(&mut self, topic: &str) -> Admission {
        let limits_reached = self.limits_reached();
        if limits_reached < 2 {
            return Admission::Feed;
        }
        let mut levels = topic.split('/');
        let (group, kind, edge_node) = (levels.nth(1), levels.next(), levels.next());
        let is_state = group == Some("STATE");
        if is_state && limits_reached < 3 {
            return Admission::Feed;
        }
        if is_state || (self.lost.len() >= LOST_NODES_MAX) {
            return Admission::GiveUp;
        }
        self.lost_messages += 1;
        if let (Some(group), Some(_), Some(edge_node)) = (group, kind, edge_node) {
            self.lost.entry(format!("{group}/{edge_node}")).or_insert_with(|| topic.to_owned());
        }
        Admission::Drop
    }

    /// Topics to report to the machine, with the number of messages dropped, once there is room again.
    pub(crate) fn take_lost(&mut self) -> Option<(u64, Vec<String>)> {
        if self.lost_messages == 0 || self.limits_reached() > 0 {
            return None;
        }
        let messages = std::mem::take(&mut self.lost_messages);
        Some((messages, std::mem::take(&mut self.lost).into_values().collect()))
    }

    fn limits_reached(&self) -> usize {
        if self.waiting.len() < self.events_max && self.bytes < self.bytes_max {
            return 0;
        }
        (self.waiting.len() / self.events_max).max(self.bytes / self.bytes_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(2);

    fn backlog(waiting: usize) -> Backlog<usize> {
        let mut backlog = Backlog::new(10, 1000, PATIENCE);
        for event in 0..waiting {
            backlog.push(event, 0);
        }
        backlog
    }

    #[test]
    fn a_full_backlog_pauses_reading_but_not_longer_than_patience() {
        let at = Duration::from_secs;
        assert_eq!(backlog(9).reading(at(1)), ReadState::On);
        let mut full = backlog(10);
        assert_eq!(full.reading(at(1)), ReadState::PausedUntil(at(3)));
        // Further events do not prolong the pause; room ends it, and the next time it begins again.
        full.push(10, 0);
        assert_eq!(full.reading(at(2)), ReadState::PausedUntil(at(3)));
        assert_eq!(full.reading(at(3)), ReadState::On);
        assert_eq!(full.take(2), [0, 1]);
        assert_eq!(full.reading(at(4)), ReadState::On);
        full.push(11, 0);
        assert_eq!(full.reading(at(7)), ReadState::PausedUntil(at(9)));
        assert_eq!(full.take(20).len(), 10, "there are no more");
        assert!(full.is_empty());
    }

    #[test]
    fn bytes_count_like_events() {
        let mut heavy = Backlog::new(10, 1000, PATIENCE);
        heavy.push("a", 999);
        assert_eq!(heavy.reading(Duration::ZERO), ReadState::On);
        heavy.push("b", 1);
        assert_eq!(heavy.reading(Duration::ZERO), ReadState::PausedUntil(PATIENCE));
        heavy.push("c", 1000);
        assert_eq!(heavy.admit("spBv1.0/G/NDATA/E"), Admission::Drop);
        heavy.clear();
        assert_eq!(heavy.admit("spBv1.0/G/NDATA/E"), Admission::Feed);
    }

    #[test]
    fn beyond_two_limits_messages_are_dropped_and_each_node_is_reported_once_when_there_is_room() {
        assert_eq!(backlog(19).admit("spBv1.0/G/DDATA/E/D"), Admission::Feed);
        let mut full = backlog(20);
        for topic in ["spBv1.0/G/DDATA/E/D1", "spBv1.0/G/NDATA/E", "spBv1.0/G/NBIRTH/F"] {
            assert_eq!(full.admit(topic), Admission::Drop);
        }
        assert_eq!(full.take_lost(), None);
        full.take(11);
        let topics = vec!["spBv1.0/G/DDATA/E/D1".to_owned(), "spBv1.0/G/NBIRTH/F".to_owned()];
        assert_eq!(full.take_lost(), Some((3, topics)));
        assert_eq!(full.take_lost(), None);
    }

    #[test]
    fn state_is_dropped_last_and_then_only_with_the_session() {
        assert_eq!(backlog(29).admit("spBv1.0/STATE/H"), Admission::Feed);
        assert_eq!(backlog(30).admit("spBv1.0/STATE/H"), Admission::GiveUp);
    }

    #[test]
    fn too_many_nodes_to_note_end_the_session() {
        let mut full = backlog(20);
        for node in 0..LOST_NODES_MAX {
            assert_eq!(full.admit(&format!("spBv1.0/G/NDATA/{node}")), Admission::Drop);
        }
        assert_eq!(full.admit("spBv1.0/G/NDATA/one-more"), Admission::GiveUp);
        full.forget_lost();
        assert_eq!(full.lost_messages, 0);
    }
}
