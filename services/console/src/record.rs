//! What the history is given, and what it answers: the words between the recorder, which decides, and the store, which keeps.

use std::collections::BTreeMap;
use std::sync::Arc;

use fleet_view::deltas::Table;
use fleet_view::history::{Event, Transition, View};
use serde_json::{Value, json};

/// The recorded tables at one time.
pub type Tables = BTreeMap<View, Arc<Table>>;

/// How long the past is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// In days.
    pub days: u64,
    /// Bytes of the file.
    pub bytes: u64,
}

/// What is stored at once, or not at all.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// UTC ms; never earlier than that of the record before.
    pub at: u64,
    /// A gap ends here: the transitions are what changed in it.
    pub ends_gap: bool,
    /// What changed.
    pub transitions: Vec<Transition>,
    /// The tables after the transitions, when it is time for a snapshot.
    pub snapshot: Option<Tables>,
    /// A gap begins here, for this reason.
    pub begins_gap: Option<String>,
}

impl Record {
    /// One that says only that nothing was missed until `at`.
    #[must_use]
    pub const fn of_time(at: u64) -> Self {
        Self { at, ends_gap: false, transitions: Vec::new(), snapshot: None, begins_gap: None }
    }
}

/// What a store holds when it is opened.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Known {
    /// Time of the last record, UTC ms; 0: there is none.
    pub at: u64,
    /// The tables as they were recorded last.
    pub tables: BTreeMap<View, Table>,
    /// Transitions after the last snapshot.
    pub since_snapshot: u64,
    /// Time of the last snapshot, UTC ms; None: there is none.
    pub snapshot_at: Option<u64>,
    /// The latest events, the oldest first.
    pub events: Vec<StoredEvent>,
}

/// An event as it is stored and served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredEvent {
    /// Its number: a later event has a higher one.
    pub number: u64,
    /// When it was received, UTC ms.
    pub at: u64,
    /// What happened.
    pub event: Event,
}

impl StoredEvent {
    /// The row of table `events`, of which its number is the key.
    #[must_use]
    pub fn to_row(&self) -> Value {
        let Event { cluster, kind, subject, old, new, text, request, who } = &self.event;
        json!({
            "key": self.number.to_string(), "at": self.at, "cluster": cluster, "kind": kind, "subject": subject, "old": old,
            "new": new, "text": text, "who": who, "request": request,
        })
    }
}

/// What the store says.
#[derive(Debug, Clone, PartialEq)]
pub enum StoreEvent {
    /// It can be written.
    Opened(Box<Known>),
    /// The last record is stored; its transitions have numbers from this one on.
    Stored {
        /// Number of the first.
        first: u64,
    },
    /// It cannot be opened or written, and the last record is lost, if there was one. It is tried again.
    Failed {
        /// Why, for people.
        reason: String,
    },
}

/// Whether the past is recorded, for people.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum HistoryStatus {
    /// It is being opened.
    #[default]
    Opening,
    /// It can be read and written.
    Open,
    /// The configuration wants none.
    Off,
    /// It cannot, for this reason.
    Failed(String),
}

impl HistoryStatus {
    /// Why there is no history; None: there is one.
    #[must_use]
    pub fn reason(&self) -> Option<String> {
        match self {
            Self::Open => None,
            Self::Opening => Some("the history is being opened".to_owned()),
            Self::Off => Some("this console keeps no history: history_days is 0".to_owned()),
            Self::Failed(reason) => Some(format!("this console keeps no history: {reason}")),
        }
    }
}
