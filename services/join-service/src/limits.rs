//! How much may come in: token buckets for the whole and for each host, so that one that floods takes nothing from the others.

use std::collections::BTreeMap;
use std::time::Duration;

/// Messages that one host may send in one second, and at once.
const HOST_PER_SECOND: u32 = 2;
const HOST_BURST: u32 = 20;
/// Hosts whose rate is remembered. Beyond it the buckets that are full again are let go, and then nobody else is heard for a moment.
const HOSTS_MAX: usize = 10_000;
/// How long a host that is told "busy" waits at least, ms.
pub const BUSY_RETRY_MS: u64 = 10_000;

/// A bucket of permits that fills again.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    /// Thousandths of a permit.
    level: u64,
    at: Duration,
}

impl Bucket {
    const fn full(burst: u32, now: Duration) -> Self {
        Self { level: burst as u64 * 1_000, at: now }
    }

    fn refill(&mut self, per_second: u32, burst: u32, now: Duration) {
        let passed = u64::try_from(now.saturating_sub(self.at).as_millis()).unwrap_or(u64::MAX);
        self.level = self.level.saturating_add(passed.saturating_mul(per_second.into())).min(u64::from(burst) * 1_000);
        self.at = now;
    }

    fn take(&mut self, per_second: u32, burst: u32, now: Duration) -> bool {
        self.refill(per_second, burst, now);
        let is_there = self.level >= 1_000;
        if is_there {
            self.level -= 1_000;
        }
        is_there
    }
}

/// What to do with a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permit {
    /// Work on it.
    Granted,
    /// Tell the host that there is too much to do.
    Busy,
    /// Nothing.
    Drop,
}

/// All buckets.
#[derive(Debug)]
pub struct Limits {
    hellos: (u32, Bucket),
    busy: (u32, Bucket),
    evidence: (u32, Bucket),
    hosts: BTreeMap<String, Bucket>,
}

impl Limits {
    /// So many in one second; twice as many at once.
    #[must_use]
    pub const fn new(hellos_per_second: u32, evidence_per_second: u32, now: Duration) -> Self {
        Self {
            hellos: (hellos_per_second, Bucket::full(2 * hellos_per_second, now)),
            busy: (hellos_per_second, Bucket::full(2 * hellos_per_second, now)),
            evidence: (evidence_per_second, Bucket::full(2 * evidence_per_second, now)),
            hosts: BTreeMap::new(),
        }
    }

    /// A message of that host, of any kind.
    pub fn host(&mut self, host: &str, now: Duration) -> bool {
        if !self.hosts.contains_key(host) {
            if self.hosts.len() >= HOSTS_MAX {
                self.hosts.retain(|_, bucket| {
                    bucket.refill(HOST_PER_SECOND, HOST_BURST, now);
                    bucket.level < u64::from(HOST_BURST) * 1_000
                });
            }
            if self.hosts.len() >= HOSTS_MAX {
                return false;
            }
        }
        let bucket = self.hosts.entry(host.to_owned()).or_insert_with(|| Bucket::full(HOST_BURST, now));
        bucket.take(HOST_PER_SECOND, HOST_BURST, now)
    }

    /// A hello.
    pub fn hello(&mut self, now: Duration) -> Permit {
        let take = |(rate, bucket): &mut (u32, Bucket)| bucket.take(*rate, 2 * *rate, now);
        if take(&mut self.hellos) {
            Permit::Granted
        } else if take(&mut self.busy) {
            Permit::Busy
        } else {
            Permit::Drop
        }
    }

    /// Evidence that has no answer yet.
    pub fn evidence(&mut self, now: Duration) -> bool {
        let (rate, bucket) = &mut self.evidence;
        bucket.take(*rate, 2 * *rate, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    #[test]
    fn a_flood_is_told_busy_then_nothing_and_later_heard_again() {
        let mut limits = Limits::new(2, 1, Duration::ZERO);
        let hellos: Vec<Permit> = (0..10).map(|_| limits.hello(Duration::ZERO)).collect();
        assert_eq!(hellos.iter().filter(|permit| **permit == Permit::Granted).count(), 4);
        assert_eq!(hellos.iter().filter(|permit| **permit == Permit::Busy).count(), 4);
        assert_eq!(hellos[9], Permit::Drop);
        assert_eq!(limits.hello(S), Permit::Granted);
        assert!(limits.evidence(S) && limits.evidence(S) && !limits.evidence(S));
    }

    #[test]
    fn one_host_takes_nothing_from_another_and_memory_is_bounded() {
        let mut limits = Limits::new(1, 1, Duration::ZERO);
        assert_eq!((0..100).filter(|_| limits.host("a", Duration::ZERO)).count(), 20);
        assert!(limits.host("b", Duration::ZERO) && limits.host("a", S));
        for number in 0..20_000 {
            limits.host(&number.to_string(), 2 * S);
        }
        assert_eq!(limits.hosts.len(), HOSTS_MAX);
        assert!(!limits.host("late", 2 * S) && limits.host("late", 20 * S));
    }
}
