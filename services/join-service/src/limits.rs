//! How much may come in: token buckets for the whole and for each host, so that one that floods takes nothing from the others.
//!
//! A host is its endorsement key: any client can use a node's name in the quarantine group. Half of what may come in at once is kept for hosts that are known, so strangers take nothing from them.

use std::collections::BTreeMap;
use std::time::Duration;

use join_attestation::EkHash;

/// Messages that one host may send in one second, and at once.
const HOST_PER_SECOND: u32 = 2;
const HOST_BURST: u32 = 20;
/// Hosts whose rate is remembered. Beyond it the buckets that are full again are dropped, and then no other stranger is answered for a moment.
const HOSTS_MAX: usize = 10_000;
/// How long a host that gets the answer "busy" waits at least, ms.
pub(crate) const BUSY_RETRY_MS: u64 = 10_000;

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

    /// Takes a permit, and leaves `kept` others.
    fn take(&mut self, per_second: u32, burst: u32, kept: u32, now: Duration) -> bool {
        self.refill(per_second, burst, now);
        let is_there = self.level >= 1_000 * (1 + u64::from(kept));
        if is_there {
            self.level -= 1_000;
        }
        is_there
    }
}

/// The kind of the host that a message names. The message has not proven its sender yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HostClass {
    /// A host that is enrolled, or was admitted before.
    Known,
    /// Any other host.
    Stranger,
}

/// Senders that have a bucket of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Source {
    /// What cannot be read, all of it together.
    Unreadable,
    /// Hellos and evidence in the name of an endorsement key.
    Named(EkHash),
    /// What shows that it is of the host with this key.
    Member(EkHash),
}

/// What to do with a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Permit {
    /// Work on it.
    Granted,
    /// Answer the host that there is too much to do.
    Busy,
    /// Nothing.
    Drop,
}

/// All buckets.
#[derive(Debug)]
pub(crate) struct Limits {
    hellos: (u32, Bucket),
    busy: (u32, Bucket),
    evidence: (u32, Bucket),
    hosts: BTreeMap<Source, Bucket>,
}

impl Limits {
    /// So many in one second; twice as many at once.
    #[must_use]
    pub(crate) const fn new(hellos_per_second: u32, evidence_per_second: u32, now: Duration) -> Self {
        Self {
            hellos: (hellos_per_second, Bucket::full(2 * hellos_per_second, now)),
            busy: (hellos_per_second, Bucket::full(2 * hellos_per_second, now)),
            evidence: (evidence_per_second, Bucket::full(2 * evidence_per_second, now)),
            hosts: BTreeMap::new(),
        }
    }

    /// A message of that source.
    pub(crate) fn host(&mut self, source: Source, class: HostClass, now: Duration) -> bool {
        if !self.hosts.contains_key(&source) {
            if self.hosts.len() >= HOSTS_MAX {
                self.hosts.retain(|_, bucket| {
                    bucket.refill(HOST_PER_SECOND, HOST_BURST, now);
                    bucket.level < u64::from(HOST_BURST) * 1_000
                });
            }
            // Known hosts are few enough.
            if self.hosts.len() >= HOSTS_MAX && class == HostClass::Stranger {
                return false;
            }
        }
        let bucket = self.hosts.entry(source).or_insert_with(|| Bucket::full(HOST_BURST, now));
        bucket.take(HOST_PER_SECOND, HOST_BURST, 0, now)
    }

    /// A hello.
    pub(crate) fn hello(&mut self, class: HostClass, now: Duration) -> Permit {
        if take_share(&mut self.hellos, class, now) {
            Permit::Granted
        } else if take_share(&mut self.busy, class, now) {
            Permit::Busy
        } else {
            Permit::Drop
        }
    }

    /// Evidence that has no answer yet.
    pub(crate) fn evidence(&mut self, class: HostClass, now: Duration) -> bool {
        take_share(&mut self.evidence, class, now)
    }
}

/// Takes a permit. Strangers leave as many as come in one second: as long as they ask for more than there is, every permit that a known host needs is there.
fn take_share((rate, bucket): &mut (u32, Bucket), class: HostClass, now: Duration) -> bool {
    let kept = if class == HostClass::Stranger { *rate } else { 0 };
    bucket.take(*rate, 2 * *rate, kept, now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use HostClass::{Known, Stranger};

    const S: Duration = Duration::from_secs(1);

    const fn named(number: u8) -> Source {
        Source::Named([number; 32])
    }

    #[test]
    fn a_flood_is_answered_busy_then_not_and_later_again() {
        let mut limits = Limits::new(2, 1, Duration::ZERO);
        let hellos: Vec<Permit> = (0..10).map(|_| limits.hello(Known, Duration::ZERO)).collect();
        assert_eq!(hellos.iter().filter(|permit| **permit == Permit::Granted).count(), 4);
        assert_eq!(hellos.iter().filter(|permit| **permit == Permit::Busy).count(), 4);
        assert_eq!(hellos[9], Permit::Drop);
        assert_eq!(limits.hello(Known, S), Permit::Granted);
        assert!(limits.evidence(Known, S) && limits.evidence(Known, S) && !limits.evidence(Known, S));
    }

    #[test]
    fn strangers_who_ask_for_everything_leave_known_hosts_the_whole_rate() {
        let mut limits = Limits::new(10, 4, Duration::ZERO);
        let (mut known, mut strangers, mut evidence) = (0, 0, 0);
        // 500 hellos and 200 pieces of evidence a second of strangers for a minute; known hosts say a hello every fifth of a second.
        for step in 0..60 * 100 {
            let now = step * Duration::from_millis(10);
            for _ in 0..5 {
                strangers += u32::from(limits.hello(Stranger, now) == Permit::Granted);
            }
            let _ = (limits.evidence(Stranger, now), limits.evidence(Stranger, now));
            if step % 20 == 0 {
                known += u32::from(limits.hello(Known, now) == Permit::Granted);
                evidence += u32::from(step % 40 == 0 && limits.evidence(Known, now));
            }
        }
        assert_eq!((known, evidence), (300, 150), "every one of them is answered");
        assert!((200..=330).contains(&strangers), "what known hosts do not use is for all: {strangers}");
    }

    #[test]
    fn one_host_takes_nothing_from_another_and_memory_is_bounded() {
        let mut limits = Limits::new(1, 1, Duration::ZERO);
        let zero = Duration::ZERO;
        assert_eq!((0..100).filter(|_| limits.host(named(1), Stranger, zero)).count(), 20);
        assert!(limits.host(named(2), Stranger, zero) && limits.host(named(1), Stranger, S));
        assert!(
            limits.host(Source::Member([1; 32]), Known, zero),
            "what is shown to be of a host has a bucket of its own"
        );
        for number in 0..u32::try_from(HOSTS_MAX).unwrap() + 50 {
            let mut key = [0; 32];
            key[..4].copy_from_slice(&number.to_be_bytes());
            limits.host(Source::Named(key), Stranger, 2 * S);
        }
        assert_eq!(limits.hosts.len(), HOSTS_MAX);
        assert!(!limits.host(named(7), Stranger, 2 * S) && limits.host(named(8), Known, 2 * S));
        assert!(limits.host(named(7), Stranger, 20 * S));
    }
}
