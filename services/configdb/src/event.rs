//! Everything that can come in and go out.

use configdb_contract::{HistoryEntry, ReplayRequest};
use sparkplug::edge_node::{NodeEvent, NodeUpdate};

/// What can come in.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The store is loaded: see that what comes with the program is in it, and declare every object.
    Start {
        /// Random: what this run of the process is distinguished by from every other one on a copy of the same store.
        timeline: u64,
    },
    /// The session of the edge node is over. A machine that was set back with its memory begins here again: it may have written more since, which it does not know of.
    SessionEnded {
        /// Random, as that of the start.
        timeline: u64,
    },
    /// From the edge node: commands, and that it is born or offline.
    Node(NodeEvent),
    /// The history that was asked for.
    History {
        request: ReplayRequest,
        /// Oldest first; or why it could not be read, for people.
        history: Result<Vec<HistoryEntry>, String>,
    },
}

/// What can go out.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// For the edge node.
    Node(NodeUpdate),
    /// The turn's transactions are added to the record of writes, before what follows.
    Record,
    /// For the store; the answer is [`Event::History`].
    ReadHistory(ReplayRequest),
}
