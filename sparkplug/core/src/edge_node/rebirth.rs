//! When births are sent again: requests closer together than an interval are answered once, at its end; none is lost.

use std::time::Duration;

#[derive(Debug)]
pub(super) struct RebirthPacer {
    interval_min: Duration,
    last_start: Option<Duration>,
    requested: bool,
}

impl RebirthPacer {
    pub(super) const fn new(interval_min: Duration) -> Self {
        Self { interval_min, last_start: None, requested: false }
    }

    pub(super) const fn request(&mut self) {
        self.requested = true;
    }

    pub(super) const fn is_requested(&self) -> bool {
        self.requested
    }

    /// Births begin: they answer everything asked for until now.
    pub(super) const fn started(&mut self, mono: Duration) {
        self.requested = false;
        self.last_start = Some(mono);
    }

    pub(super) fn due(&self) -> Option<Duration> {
        self.requested.then(|| self.last_start.map_or(Duration::ZERO, |last| last + self.interval_min))
    }

    pub(super) fn is_due(&self, mono: Duration) -> bool {
        self.due().is_some_and(|due| mono >= due)
    }
}
