//! A command that is sent again, with growing pauses, until it is answered.

use std::time::Duration;

use service_runtime::backoff::Backoff;
use sparkplug::Now;

/// A command that was sent and is not answered yet; `T` is the version and the digest of what was sent.
#[derive(Debug, Clone)]
pub struct Repeat<T> {
    /// What was sent.
    pub what: T,
    backoff: Backoff,
    /// `Now::mono` at which it is sent again.
    pub next: Duration,
}

impl<T: PartialEq> Repeat<T> {
    /// Just sent.
    pub fn first(what: T, retry: (Duration, Duration), seed: u64, now: Now) -> Self {
        let mut backoff = Backoff::new(retry.0, retry.1, seed);
        let next = now.mono + backoff.next_delay();
        Self { what, backoff, next }
    }

    /// True once it is time; counts an attempt then.
    pub fn is_due(&mut self, now: Now) -> bool {
        let due = self.next <= now.mono;
        if due {
            self.next = now.mono + self.backoff.next_delay();
        }
        due
    }

    /// Whether it has to be sent at this time: at once if it is another than what was sent last.
    pub fn send(slot: &mut Option<Self>, what: T, retry: (Duration, Duration), seed: u64, now: Now) -> bool {
        match slot.as_mut().filter(|repeat| repeat.what == what) {
            Some(repeat) => repeat.is_due(now),
            None => {
                *slot = Some(Self::first(what, retry, seed, now));
                true
            }
        }
    }

    /// How often it was sent.
    pub fn attempt(&self) -> u32 {
        self.backoff.attempt()
    }
}
