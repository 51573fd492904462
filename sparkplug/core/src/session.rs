//! What a machine asks of an MQTT session, and what the driver reports of it. One session is one CONNECT: after
//! [`TransportEvent::Disconnected`] nothing of it survives, queued messages included.

use bytes::Bytes;

use crate::seq::BdSeq;

/// Why a birth, data or a death is not taken.
pub(crate) const RETAINED: &str = "it is retained, so it may be of any age; only STATE is retained";

/// MQTT quality of service, as far as Sparkplug uses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum QoS {
    /// At most once: births, data, commands.
    AtMostOnce,
    /// At least once: wills, STATE, command subscriptions.
    AtLeastOnce,
}

/// A message to publish, or the will of a CONNECT.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Publish {
    /// Topic text.
    pub topic: String,
    /// Encoded payload.
    pub payload: Bytes,
    /// Quality of service.
    pub qos: QoS,
    /// Retain flag.
    pub retain: bool,
}

/// A CONNECT, always with clean session / clean start and session expiry 0
/// (tck-id-principles-persistence-clean-session-311, -50).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connect {
    /// Index into the configured list of servers.
    pub server: usize,
    /// The will: NDEATH of an Edge Node, STATE offline of a Host Application. None for a session that only listens.
    pub will: Option<Publish>,
    /// Edge Nodes only: the bdSeq of the will. The driver stores [`BdSeq::next`] of it durably before it connects.
    pub bd_seq: Option<BdSeq>,
}

/// What the driver of a machine must do, in the order given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TransportAction {
    /// Open a session. Answer with [`TransportEvent::Connected`] or [`TransportEvent::Disconnected`].
    Connect(Connect),
    /// Subscribe to all filters. Answer with [`TransportEvent::Subscribed`] when the server has acknowledged them.
    Subscribe(Vec<(String, QoS)>),
    /// Publish, in order with every other publish of this session.
    Publish(Publish),
    /// Send what was queued, then DISCONNECT (MQTT 5: reason 0x04 or just close). Answer with [`TransportEvent::Disconnected`].
    Disconnect,
}

/// What the driver reports to a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TransportEvent {
    /// CONNACK arrived.
    Connected,
    /// SUBACK for the last [`TransportAction::Subscribe`] arrived.
    Subscribed,
    /// A message arrived.
    Message {
        /// Topic text as received.
        topic: String,
        /// Payload as received.
        payload: Bytes,
        /// As the server delivers it: the lower one of the publish and the subscription.
        qos: QoS,
        /// Retain flag as received.
        retain: bool,
    },
    /// Messages arrived and were dropped unread, because the application did not keep up. A Host Application treats the edge node of the topic
    /// as after an unreadable message (stale, rebirth request). An Edge Node has nothing to do, because the sender of a command repeats it.
    Lost {
        /// Topic of one of the messages; one such event a node.
        topic: String,
    },
    /// A message arrived that is larger than the driver hands on; its payload was skipped.
    Oversized {
        /// Topic text as received.
        topic: String,
        /// Of its payload.
        bytes: usize,
        /// The driver's limit, of a whole packet.
        max: usize,
        /// Retain flag as received.
        retain: bool,
    },
    /// The server has taken the first `publishes` of this session's publishes for certain: it has answered to something that was sent after them. Needed by an Edge Node
    /// with store and forward only.
    Received {
        /// How many.
        publishes: u64,
    },
    /// The session continues, but the certificates that it was opened with were renewed. The machine disconnects and opens another one on the same server.
    Outdated,
    /// The session is over, or could not be opened. `reason` is for people.
    Disconnected {
        /// What happened, without secrets.
        reason: String,
        /// The CONNECT reached the server's MQTT layer (CONNACK, even a refusing one): the bdSeq counts as used.
        reached: bool,
    },
}

/// Why a message was skipped, for people.
pub(crate) fn oversized(bytes: usize, max: usize) -> String {
    format!("its payload of {bytes} bytes is too large: packets of at most {max} bytes are taken")
}
