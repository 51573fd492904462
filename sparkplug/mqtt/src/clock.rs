//! The clocks that machines are driven with.
//!
//! Monotonic time is tokio's, so that a test can pause it; wall time is the system's.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sparkplug::Now;
use tokio::time::Instant;

/// The clocks of a process. Make one and hand copies of it to every machine: copies agree, so their [`Now`]s can be compared.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    /// A clock whose monotonic time begins at zero. Inside a tokio runtime with paused time it follows that time.
    #[must_use]
    pub fn new() -> Self {
        Self { start: Instant::now() }
    }

    /// Both times. A wall clock before 1970 reads as 0.
    #[must_use]
    pub fn now(&self) -> Now {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Now::new(self.start.elapsed(), u64::try_from(wall.as_millis()).unwrap_or(u64::MAX))
    }

    /// Waits for the monotonic time `deadline`: not at all if it has passed, for ever if there is none.
    pub async fn sleep_until(&self, deadline: Option<Duration>) {
        match deadline.and_then(|deadline| self.start.checked_add(deadline)) {
            Some(instant) => tokio::time::sleep_until(instant).await,
            None => std::future::pending().await,
        }
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}
