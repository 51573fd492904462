//! How often a client may ask: a token bucket for each, in bounded memory.
//!
//! A bucket is one number: the time at which it will be full again (the "theoretical arrival time" of the generic cell rate algorithm, ITU-T I.371). One that
//! is full again says nothing more than none, and is dropped.

use std::collections::BTreeMap;
use std::time::Duration;

/// How often.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Requests a minute in the long run; at least 1.
    pub per_minute: u32,
    /// Requests at once after a pause; at least 1.
    pub burst: u32,
}

impl Rate {
    /// So many a minute, a fifth of them at once.
    #[must_use]
    pub const fn per_minute(per_minute: u32) -> Self {
        Self { per_minute, burst: per_minute.div_ceil(5) }
    }

    fn interval(self) -> Duration {
        Duration::from_secs(60) / self.per_minute.max(1)
    }
}

/// The buckets of all clients that asked lately.
#[derive(Debug, Clone)]
pub struct Limiter<K> {
    rate: Rate,
    buckets_max: usize,
    /// When each is full again.
    full_at: BTreeMap<K, Duration>,
    swept_at: Duration,
}

/// Too often; what the caller has to wait at least.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too many requests; try again in {} s", seconds(*wait))]
pub struct TooOften {
    /// At least.
    pub wait: Duration,
}

/// Whole seconds, rounded up, as `Retry-After` has them.
#[must_use]
pub const fn seconds(wait: Duration) -> u64 {
    wait.as_secs() + (wait.subsec_nanos() > 0) as u64
}

impl<K: Ord> Limiter<K> {
    /// No client has asked yet. At most `buckets_max` are remembered.
    #[must_use]
    pub const fn new(rate: Rate, buckets_max: usize) -> Self {
        Self { rate, buckets_max, full_at: BTreeMap::new(), swept_at: Duration::ZERO }
    }

    /// Counts one request of `who`. When too many others ask at the same time, a newcomer is refused: forgetting them would free them of their limit.
    ///
    /// # Errors
    /// It is one too many.
    pub fn take(&mut self, who: K, now: Duration) -> Result<(), TooOften> {
        self.take_many(who, 1, now)
    }

    /// As [`Self::take`], for one that counts as `count` requests: at least one, and at most as many as may come at once.
    ///
    /// # Errors
    /// It is too many.
    pub fn take_many(&mut self, who: K, count: u32, now: Duration) -> Result<(), TooOften> {
        let interval = self.rate.interval();
        if self.full_at.len() >= self.buckets_max && !self.full_at.contains_key(&who) {
            // At most once an interval: a flood of newcomers does not make every request look at all buckets.
            if now >= self.swept_at + interval || self.swept_at == Duration::ZERO {
                self.full_at.retain(|_, full| *full > now);
                self.swept_at = now;
            }
            if self.full_at.len() >= self.buckets_max {
                return Err(TooOften { wait: interval });
            }
        }
        let full = self.full_at.get(&who).map_or(now, |full| (*full).max(now));
        let burst = self.rate.burst.max(1);
        let count = count.clamp(1, burst);
        let room = interval * (burst - count);
        if full > now + room {
            return Err(TooOften { wait: full - now - room });
        }
        self.full_at.insert(who, full + interval * count);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate { per_minute: 60, burst: 3 };

    fn at(ms: u64) -> Duration {
        Duration::from_millis(100_000 + ms)
    }

    #[test]
    fn a_burst_is_taken_then_one_an_interval() {
        let mut limiter = Limiter::new(RATE, 10);
        for _ in 0..3 {
            assert_eq!(limiter.take("a", at(0)), Ok(()));
        }
        assert_eq!(limiter.take("a", at(0)), Err(TooOften { wait: Duration::from_secs(1) }));
        assert_eq!(limiter.take("b", at(0)), Ok(()), "others are not held up");
        assert_eq!(limiter.take("a", at(999)), Err(TooOften { wait: Duration::from_millis(1) }));
        assert_eq!(limiter.take("a", at(1000)), Ok(()));
        assert!(limiter.take("a", at(1000)).is_err());
        for _ in 0..3 {
            assert_eq!(limiter.take("a", at(60_000)), Ok(()), "full again, and not fuller");
        }
        assert!(limiter.take("a", at(60_000)).is_err());
    }

    #[test]
    fn a_request_that_counts_as_many_waits_until_they_all_fit() {
        let mut limiter = Limiter::new(RATE, 10);
        assert_eq!(limiter.take_many("a", 2, at(0)), Ok(()));
        assert_eq!(limiter.take_many("a", 2, at(0)), Err(TooOften { wait: Duration::from_secs(1) }));
        assert_eq!(limiter.take("a", at(0)), Ok(()));
        assert_eq!(limiter.take_many("a", 1000, at(2_999)), Err(TooOften { wait: Duration::from_millis(1) }));
        assert_eq!(limiter.take_many("a", 1000, at(3_000)), Ok(()), "more than ever fit at once are as many as do");
        assert_eq!(limiter.take_many("a", 0, at(4_000)), Ok(()));
        assert!(limiter.take("a", at(4_000)).is_err(), "none counts as one");
    }

    #[test]
    fn memory_is_bounded_and_no_client_is_freed_of_a_limit_by_others() {
        let mut limiter = Limiter::new(RATE, 100);
        for _ in 0..3 {
            limiter.take(0, at(0)).unwrap();
        }
        for other in 1..10_000 {
            let _ = limiter.take(other, at(1));
            assert!(limiter.full_at.len() <= 100);
        }
        assert!(limiter.take(0, at(1)).is_err());
        assert!(limiter.take(10_000, at(1)).is_err());
        assert_eq!(limiter.take(10_000, at(2_000)), Ok(()), "who has paused is forgotten");
    }

    #[test]
    fn a_wait_is_given_in_whole_seconds() {
        assert_eq!(seconds(Duration::from_millis(1)), 1);
    }
}
