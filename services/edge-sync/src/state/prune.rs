//! How fast objects may be deleted, and when a removal is so large that people get time to stop it.
//!
//! A pass deletes a limited number of objects; the next one begins an interval later. If one index takes away more than a share of the
//! deployments, the removal begins only after a delay. Both only slow down: what a complete index does not list goes in the end.

use std::time::Duration;

/// So few deployments are never too many.
const FEW: usize = 5;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PruneLimits {
    /// Objects deleted in one pass.
    pub max_per_pass: u32,
    /// From the beginning of a pass to that of the next.
    pub interval: Duration,
    /// If an index takes away more than this share of the deployments (and more than five), the removal is delayed.
    pub max_percent: u32,
    pub guard_delay: Duration,
}

#[derive(Debug, PartialEq, Eq)]
struct Guard {
    since: Duration,
    version: u64,
    going: usize,
    present: usize,
}

#[derive(Debug)]
pub struct Pruner {
    limits: PruneLimits,
    pass_began: Option<Duration>,
    left: u32,
    assessed: u64,
    guard: Option<Guard>,
}

impl Pruner {
    pub fn new(limits: PruneLimits) -> Self {
        Self { limits, pass_began: None, left: 0, assessed: 0, guard: None }
    }

    /// Looks at what the index of that version takes away: `going` of `present` deployments that have objects.
    pub fn assess(&mut self, version: u64, going: usize, present: usize, now: Duration) {
        if going == 0 {
            self.guard = None;
        } else if version != self.assessed {
            let too_many = going > FEW && going * 100 > present * self.limits.max_percent as usize;
            // A later index that takes as much away does not begin the delay again: it could be put off for ever.
            let since = self.guard.as_ref().map_or(now, |guard| guard.since);
            self.guard = too_many.then_some(Guard { since, version, going, present });
        }
        self.assessed = version;
    }

    /// True if deployments may be removed.
    pub fn may_remove(&self, now: Duration) -> bool {
        self.guard_ends().is_none_or(|end| end <= now)
    }

    /// Takes one deletion from the present pass. False: wait for the next.
    pub fn take(&mut self, now: Duration) -> bool {
        if self.pass_end().is_none_or(|end| end <= now) {
            self.pass_began = Some(now);
            self.left = self.limits.max_per_pass.max(1);
        }
        let may = self.left > 0;
        self.left = self.left.saturating_sub(1);
        may
    }

    /// For `Desired/Reason`.
    pub fn error(&self, now: Duration) -> Option<String> {
        let Guard { version, going, present, .. } = self.guard.as_ref()?;
        let PruneLimits { max_percent, max_per_pass, guard_delay, interval } = self.limits;
        let what =
            format!("index version {version} takes away {going} of {present} deployments, more than {max_percent} %");
        Some(if self.may_remove(now) {
            format!("{what}: they are being removed, at most {max_per_pass} objects each {} s", interval.as_secs())
        } else {
            let delay = guard_delay.as_secs();
            format!("{what}: they are removed {delay} s after it came; send an index that lists them to keep them")
        })
    }

    /// When a pass that is used up ends.
    pub fn pass_ends(&self) -> Option<Duration> {
        self.pass_end().filter(|_| self.left == 0)
    }

    /// When a large removal may begin.
    pub fn guard_ends(&self) -> Option<Duration> {
        self.guard.as_ref().map(|guard| guard.since + self.limits.guard_delay)
    }

    fn pass_end(&self) -> Option<Duration> {
        self.pass_began.map(|began| began + self.limits.interval)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn pruner() -> Pruner {
        Pruner::new(PruneLimits { max_per_pass: 2, interval: 10 * SECOND, max_percent: 50, guard_delay: 60 * SECOND })
    }

    #[test]
    fn a_pass_deletes_its_share_and_the_next_begins_an_interval_later() {
        let mut pruner = pruner();
        assert_eq!([(); 3].map(|()| pruner.take(SECOND)), [true, true, false]);
        assert_eq!(pruner.pass_ends(), Some(11 * SECOND));
        assert!(!pruner.take(10 * SECOND));
        assert!(pruner.take(11 * SECOND));
    }

    #[test]
    fn a_large_removal_waits_visibly_and_then_continues() {
        let mut pruner = pruner();
        pruner.assess(7, 6, 11, SECOND);
        assert!(!pruner.may_remove(60 * SECOND) && pruner.may_remove(61 * SECOND));
        assert_eq!(pruner.guard_ends(), Some(61 * SECOND));
        let before = "index version 7 takes away 6 of 11 deployments, more than 50 %: they are removed 60 s after it came; send an index that lists them to keep them";
        assert_eq!(pruner.error(SECOND).as_deref(), Some(before));
        let after = "index version 7 takes away 6 of 11 deployments, more than 50 %: they are being removed, at most 2 objects each 10 s";
        assert_eq!(pruner.error(61 * SECOND).as_deref(), Some(after));
        pruner.assess(7, 3, 8, 70 * SECOND);
        assert_eq!(pruner.error(70 * SECOND).as_deref(), Some(after), "the text does not move with the work");
        pruner.assess(7, 0, 5, 80 * SECOND);
        assert_eq!((pruner.error(80 * SECOND), pruner.guard_ends()), (None, None));
    }

    #[test]
    fn few_deployments_and_small_shares_go_at_once() {
        for (going, present) in [(5, 5), (6, 12)] {
            let mut pruner = pruner();
            pruner.assess(1, going, present, SECOND);
            assert!(pruner.may_remove(SECOND) && pruner.error(SECOND).is_none());
        }
    }

    #[test]
    fn a_later_index_that_takes_as_much_away_does_not_begin_the_delay_again() {
        let mut pruner = pruner();
        pruner.assess(1, 10, 10, SECOND);
        pruner.assess(2, 10, 10, 50 * SECOND);
        assert!(pruner.may_remove(61 * SECOND));
        // One that lists them again ends it; a further removal is a matter of its own.
        pruner.assess(3, 0, 10, 62 * SECOND);
        pruner.assess(4, 10, 10, 63 * SECOND);
        assert!(!pruner.may_remove(64 * SECOND));
    }
}
