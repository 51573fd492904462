//! Random delays from a seed that comes in as an argument: many monitors and many nodes must not act in one moment.

use std::time::Duration;

/// A sequence of random delays; the same seed gives the same ones. Not for secrets.
#[derive(Debug, Clone)]
pub struct Jitter(u64);

impl Jitter {
    /// Begins with `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next delay, from zero to `max`.
    pub fn up_to(&mut self, max: Duration) -> Duration {
        let parts = u32::try_from(self.next() % 1001).expect("a remainder of 1001 fits into 32 bits");
        max.saturating_mul(parts) / 1000
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_stay_within_their_maximum_and_differ() {
        let mut jitter = Jitter::new(1);
        let max = Duration::from_secs(10);
        let delays: Vec<Duration> = (0..100).map(|_| jitter.up_to(max)).collect();
        assert!(delays.iter().all(|delay| *delay <= max));
        assert!(delays.iter().any(|delay| *delay < max / 4) && delays.iter().any(|delay| *delay > max * 3 / 4));
    }
}
