//! The only source of chance in a run: everything follows from its seed.

use std::ops::Range;
use std::time::Duration;

/// SplitMix64.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Begins with `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed ^ 0x5851_F42D_4C95_7F2D)
    }

    /// Any number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `bound`, 0 if that is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.number() % bound }
    }

    /// An index below `bound`.
    pub fn index(&mut self, bound: usize) -> usize {
        usize::try_from(self.below(bound as u64)).expect("it is below a usize")
    }

    /// True `per_mille` times of a thousand.
    pub fn chance(&mut self, per_mille: u64) -> bool {
        per_mille > 0 && self.below(1_000) < per_mille
    }

    /// A time between two.
    pub fn between(&mut self, range: Range<Duration>) -> Duration {
        let span = range.end.saturating_sub(range.start).as_micros();
        range.start + Duration::from_micros(self.below(u64::try_from(span).unwrap_or(u64::MAX)))
    }

    /// Milliseconds between two.
    pub fn millis(&mut self, range: Range<u64>) -> Duration {
        self.between(Duration::from_millis(range.start)..Duration::from_millis(range.end))
    }

    /// One of several; None of none.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        if of.is_empty() { None } else { of.get(self.index(of.len())) }
    }

    /// 128 random bits, for UUIDs and the like.
    pub fn wide(&mut self) -> u128 {
        (u128::from(self.number()) << 64) | u128::from(self.number())
    }
}
