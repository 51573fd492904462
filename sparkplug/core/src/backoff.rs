//! Waits between attempts: they double up to a longest one, with jitter from a seed, so that a fleet which fails together does not return together.

use std::time::Duration;

/// SplitMix64 (Steele, Lea, Flood 2014): all that jitter needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SplitMix64(u64);

impl SplitMix64 {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A duration in `0..=max`, in whole microseconds.
    pub(crate) fn up_to(&mut self, max: Duration) -> Duration {
        let micros = u64::try_from(max.as_micros()).unwrap_or(u64::MAX - 1).min(u64::MAX - 1);
        Duration::from_micros(self.next() % (micros + 1))
    }
}

/// The `attempt`-th wait (from 0) of a range, without jitter.
pub(crate) fn doubled((first, longest): (Duration, Duration), attempt: u32) -> Duration {
    first.saturating_mul(2u32.saturating_pow(attempt.min(31))).min(longest.max(first))
}

/// No wait is shorter, whatever is configured: retrying is never a busy loop.
const WAIT_MIN: Duration = Duration::from_millis(10);

/// The next waits of one thing that is tried again: a new CONNECT, or a message. Each is between half and all of the doubled one. The seed is an argument; the same seed gives the same
/// waits.
///
/// ```
/// use sparkplug::backoff::Backoff;
/// use std::time::Duration;
///
/// let mut backoff = Backoff::new((Duration::from_secs(1), Duration::from_secs(60)), 42);
/// let first = backoff.next_delay();
/// assert!(first >= Duration::from_millis(500) && first <= Duration::from_secs(1));
/// backoff.reset();
/// assert_eq!(backoff.attempts(), 0);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backoff {
    range: (Duration, Duration),
    attempt: u32,
    random: SplitMix64,
}

impl Backoff {
    /// Waits from the first of `range`, doubling up to the longest; where that is shorter, the first is used throughout.
    #[must_use]
    pub const fn new(range: (Duration, Duration), seed: u64) -> Self {
        Self { range, attempt: 0, random: SplitMix64::new(seed) }
    }

    /// How long to wait before the next attempt; counts one.
    pub fn next_delay(&mut self) -> Duration {
        let full = doubled(self.range, self.attempt).max(WAIT_MIN);
        self.attempt = self.attempt.saturating_add(1);
        full / 2 + self.random.up_to(full / 2)
    }

    /// Attempts since the first wait.
    #[must_use]
    pub const fn attempts(&self) -> u32 {
        self.attempt
    }

    /// The attempt has come to its goal: the next wait is a first one again.
    pub const fn reset(&mut self) {
        self.attempt = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest_and_begin_again_after_reset() {
        let (first, longest) = (Duration::from_millis(500), Duration::from_secs(30));
        let mut backoff = Backoff::new((first, longest), 7);
        let mut full = first;
        for _ in 0..40 {
            let wait = backoff.next_delay();
            assert!(wait >= full / 2 && wait <= full, "{wait:?} of {full:?}");
            full = (full * 2).min(longest);
        }
        backoff.reset();
        assert!(backoff.next_delay() <= first);
    }

    #[test]
    fn a_range_of_zero_still_waits() {
        let mut backoff = Backoff::new((Duration::ZERO, Duration::ZERO), 0);
        assert!((0..100).all(|_| backoff.next_delay() >= WAIT_MIN / 2));
    }

    #[test]
    fn the_same_seed_gives_the_same_waits_and_another_seed_others() {
        let waits = |seed| {
            let mut backoff = Backoff::new((Duration::from_secs(1), Duration::from_secs(30)), seed);
            (0..100).map(|_| backoff.next_delay()).collect::<Vec<_>>()
        };
        assert_eq!(waits(1), waits(1));
        assert_ne!(waits(1), waits(2));
    }

    #[test]
    fn a_longest_wait_below_the_first_one_is_raised_to_it() {
        let mut backoff = Backoff::new((Duration::from_secs(1), Duration::ZERO), 3);
        assert!(backoff.next_delay() >= Duration::from_millis(500));
    }
}
