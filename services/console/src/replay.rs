//! An export that is shown again: the words between the adapter, which reads its lines in their time, and the state, which shows them.

use fleet_view::history::export::{Header, Line};

/// What comes of an export.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// It begins, or begins again.
    Began(Header),
    /// Its next lines.
    Lines(Vec<Line>),
    /// It is over: what was there last stays.
    Ended,
}

/// How far a replay is, for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// The time that is shown, UTC ms; 0: none yet.
    pub at: u64,
    /// Changes until then.
    pub changes: u64,
    /// How often it has ended.
    pub ended: u64,
}
