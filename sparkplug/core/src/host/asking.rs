//! What is asked of one node: when, why, and how often already. Knows nothing of the order among nodes.

use std::time::Duration;

/// Within a group, nodes on which the application counts come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    Expected,
    Known,
}

/// What is asked of one node.
#[derive(Debug, Default)]
pub(super) struct Asking {
    /// And its rank within its group.
    pub(super) due: Option<(Rank, Duration)>,
    pub(super) reason: String,
    /// Requests in a row; forgotten after a quiet time.
    pub(super) attempts: u32,
    pub(super) last: Option<Duration>,
}

impl Asking {
    /// When it was asked last.
    pub(super) const fn last(&self) -> Option<Duration> {
        self.last
    }

    pub(super) const fn attempts(&self) -> u32 {
        self.attempts
    }

    /// It was answered: the next request waits for no more than the shortest interval after the last.
    pub(super) fn answered(&mut self) {
        self.attempts = self.attempts.min(1);
    }
}
