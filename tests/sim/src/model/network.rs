//! Connections between processes and the broker, and what is on them.
//!
//! A connection is TCP: in order and without gaps until it breaks; then what was under way is lost.
//! A partition delays what is under way until it ends, or until one side gives the connection up after its keep-alive time; both sides do that for themselves.
//! Loss, duplication and reordering are what brokers do with messages of QoS 0.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::model::broker::{SessionId, ToBroker, ToClient};
use crate::model::endpoint::Side;
use crate::model::ids::ProcessId;

/// Something on a connection.
#[derive(Debug)]
pub enum Packet {
    /// To the broker.
    Up(ToBroker),
    /// To the client.
    Down(ToClient),
    /// The client's side was refused, timed out, or was closed by itself.
    ClientOver {
        /// For people.
        reason: &'static str,
        /// The CONNECT may have reached the server.
        reached: bool,
        /// Only if the process is still cut off then.
        if_partitioned: bool,
    },
    /// The client waits no longer for CONNACK.
    ConnectTimeout,
    /// The server's keep-alive time is over; it matters if the process is still cut off then, or gone.
    ServerTimeout,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Wire {
    pub(crate) process: ProcessId,
    pub(crate) side: Side,
    /// The client's socket is open.
    pub(crate) is_open: bool,
    /// Arrival of the last packet in each direction: later ones do not overtake it.
    pub(crate) up_at: Duration,
    pub(crate) down_at: Duration,
    /// What is under way to the broker is lost.
    pub(crate) drops_up: bool,
}

/// What brokers and networks do to messages, of a thousand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Weather {
    /// Messages of QoS 0 that are lost.
    pub loss: u64,
    /// Messages that come twice.
    pub duplication: u64,
    /// Data that are overtaken by what the same node sent later.
    pub reordering: u64,
    /// Delay of each packet, at most.
    pub delay_max: Duration,
}

/// All connections.
#[derive(Debug, Default)]
pub struct Network {
    pub(crate) wires: BTreeMap<SessionId, Wire>,
    pub(crate) next_session: u64,
    /// The present weather.
    pub weather: Weather,
    /// The broker is down until then.
    pub broker_down_until: Option<Duration>,
}
