//! Time as an argument.

use std::time::Duration;

/// The two clocks of a turn, read once by the driver of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Now {
    /// Time since some fixed start; never steps back. Deadlines are made of it.
    pub mono: Duration,
    /// UTC, milliseconds since the epoch; may jump. Timestamps are made of it.
    pub wall: u64,
}

impl Now {
    /// A time at which both clocks are given.
    #[must_use]
    pub const fn new(mono: Duration, wall: u64) -> Self {
        Self { mono, wall }
    }
}
