//! Waiting for a state, with a bound and a diagnosis. Nothing waits for time to pass.

use std::time::{Duration, Instant};

/// Longest wait for anything in a test. Far above what it takes, because the machine may be busy; what it takes is the business of the benchmarks.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// How often a state that sends no events is polled.
pub const LOOK: Duration = Duration::from_millis(20);

/// Waits until `found` yields something.
///
/// # Panics
/// It does not within [`PATIENCE`]; the message holds `what` and the diagnosis.
pub async fn until<T>(what: &str, mut found: impl FnMut() -> Option<T>, diagnosis: impl FnOnce() -> String) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited {PATIENCE:?} for {what}\n{}", diagnosis());
        tokio::time::sleep(LOOK).await;
    }
}
