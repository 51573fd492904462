//! Pure, jittered exponential back-off: no clock, no source of randomness of its own.
//!
//! The delays double from `first` to `max`. Each is then shortened by a random part of at most half. So many clients that
//! lost the same broker do not return in one moment. The seed is an argument; the same seed gives the same delays.

use std::time::Duration;

/// The next delays of one retried thing.
///
/// ```
/// use service_runtime::backoff::Backoff;
/// use std::time::Duration;
///
/// let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60), 42);
/// let first = backoff.next_delay();
/// assert!(first >= Duration::from_millis(500) && first <= Duration::from_secs(1));
/// backoff.reset();
/// assert_eq!(backoff.attempt(), 0);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
    max: Duration,
    attempt: u32,
    random: u64,
}

impl Backoff {
    /// Delays from `first`, doubling up to `max` (if that is smaller than `first`, `first` is used throughout).
    #[must_use]
    pub fn new(first: Duration, max: Duration, seed: u64) -> Self {
        Self { first, max: max.max(first), attempt: 0, random: seed }
    }

    /// How long to wait before the next try; counts an attempt.
    pub fn next_delay(&mut self) -> Duration {
        let factor = 1_u32.checked_shl(self.attempt).unwrap_or(u32::MAX);
        let full = self.first.saturating_mul(factor).min(self.max);
        self.attempt = self.attempt.saturating_add(1);
        let parts = u32::try_from(self.next_random() % 1001).expect("a remainder of 1001 fits into 32 bits");
        full - (full / 2).saturating_mul(parts) / 1000
    }

    /// Attempts since the last success.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// To be called after a success: the next delay is a first one again, the jitter continues.
    pub fn reset(&mut self) {
        self.attempt = 0;
    }

    /// SplitMix64: three lines, no state beyond one number, good enough to spread delays (not for secrets).
    fn next_random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.random ^ (self.random >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Duration = Duration::from_secs(1);
    const MAX: Duration = Duration::from_secs(30);

    fn delays(seed: u64) -> Vec<Duration> {
        let mut backoff = Backoff::new(FIRST, MAX, seed);
        (0..100).map(|_| backoff.next_delay()).collect()
    }

    #[test]
    fn each_delay_lies_between_half_and_the_whole_of_its_step() {
        for seed in 0..200 {
            for (attempt, delay) in delays(seed).into_iter().enumerate() {
                let full = Duration::from_secs(1 << attempt.min(5)).min(MAX);
                assert!(delay >= full / 2 && delay <= full, "seed {seed} attempt {attempt}: {delay:?}");
            }
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_delays_and_another_seed_others() {
        assert_eq!(delays(1), delays(1));
        assert_ne!(delays(1), delays(2));
    }

    #[test]
    fn a_reset_begins_with_the_first_step_again() {
        let mut backoff = Backoff::new(FIRST, MAX, 3);
        for _ in 0..5 {
            backoff.next_delay();
        }
        backoff.reset();
        assert!(backoff.next_delay() <= FIRST);
        assert_eq!(backoff.attempt(), 1);
    }

    #[test]
    fn a_maximum_below_the_first_delay_is_raised_to_it() {
        let mut backoff = Backoff::new(FIRST, Duration::ZERO, 3);
        assert!(backoff.next_delay() >= FIRST / 2);
    }
}
