//! The own STATE: will and birth of a session carry the same timestamp, and on a server timestamps only grow, whatever the clock does.

use crate::name::HostId;
use crate::session::{Publish, QoS};
use crate::state::HostState;
use crate::topic::Topic;

#[derive(Debug)]
pub(super) struct OwnState {
    host: HostId,
    /// By server (tck-id-operational-behavior-host-application-multi-server-timestamp).
    timestamps: Vec<u64>,
    server: usize,
    /// An own offline was answered, and the answer has not come back from the server.
    is_answering: bool,
}

impl OwnState {
    pub(super) fn new(host: HostId, servers: usize) -> Self {
        Self { host, timestamps: vec![0; servers.max(1)], server: 0, is_answering: false }
    }

    pub(super) const fn host(&self) -> &HostId {
        &self.host
    }

    /// A CONNECT begins: fixes the timestamp of the session and yields the will (tck-id-host-topic-phid-death-required,
    /// tck-id-host-topic-phid-death-payload-timestamp-connect). It is later than that of every earlier session, so that an earlier will which is
    /// delivered late does not pass for a new one.
    pub(super) fn will(&mut self, server: usize, wall: u64) -> Publish {
        self.server = server.min(self.timestamps.len() - 1);
        self.is_answering = false;
        let timestamp = wall.max(self.timestamps[self.server].saturating_add(1));
        self.timestamps[self.server] = timestamp;
        self.publish(false, timestamp)
    }

    /// tck-id-host-topic-phid-birth-payload-timestamp, tck-id-payloads-state-birth-payload: the timestamp of the will
    pub(super) fn birth(&self) -> Publish {
        self.publish(true, self.timestamps[self.server])
    }

    /// An own STATE arrived; yields the birth if it asks for an answer. A server delivers what is published on a topic in its order. So what arrives before an answer has come back
    /// came to the server before that answer. The answer is therefore for it, too. A server that delivers once for each filter that fits has one answer.
    pub(super) fn received(&mut self, state: HostState) -> Option<Publish> {
        if state.online {
            self.is_answering &= state.timestamp != self.timestamps[self.server];
            return None;
        }
        let is_answered = std::mem::replace(&mut self.is_answering, true);
        (!is_answered).then(|| self.birth())
    }

    /// tck-id-host-topic-phid-death-payload-timestamp-disconnect-clean: the present time, not that of the will
    pub(super) fn death(&self, wall: u64) -> Publish {
        self.publish(false, wall.max(self.timestamps[self.server]))
    }

    /// tck-id-host-topic-phid-birth-topic, tck-id-host-topic-phid-birth-qos, tck-id-host-topic-phid-birth-retain, tck-id-host-topic-phid-death-topic,
    /// tck-id-host-topic-phid-death-qos, tck-id-host-topic-phid-death-retain
    fn publish(&self, online: bool, timestamp: u64) -> Publish {
        Publish {
            topic: Topic::State { host: self.host.clone() }.to_string(),
            payload: HostState { online, timestamp }.encode(),
            qos: QoS::AtLeastOnce,
            retain: true,
        }
    }
}
