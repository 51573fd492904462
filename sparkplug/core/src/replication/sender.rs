//! The sender of a desired state: which version it gives to what it wants, when it sends, and when it sends again.
//!
//! Nothing here must survive a restart: what the receiver reports says where a new process has to go on.

use std::time::Duration;

use super::desired::{Origin, Point};
use crate::backoff::Backoff;
use crate::time::Now;

/// First and longest wait before something that is not agreed is sent again, and the seed of the jitter. Between the two the wait doubles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// First wait.
    pub first: Duration,
    /// Longest wait.
    pub longest: Duration,
    /// Different for each sender, so that many of them do not send at the same moment.
    pub seed: u64,
}

/// Something that was sent and is sent again, with growing pauses, until it is answered. `T` distinguishes one thing that is sent from the next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repetition<T> {
    what: T,
    backoff: Backoff,
    next: Duration,
}

impl<T: PartialEq> Repetition<T> {
    /// It is sent now.
    #[must_use]
    pub fn first(what: T, pace: Pace, now: Now) -> Self {
        let mut backoff = Backoff::new((pace.first, pace.longest), pace.seed);
        let next = now.mono + backoff.next_delay();
        Self { what, backoff, next }
    }

    /// Whether it has to be sent at this time: at once if it is another than what was sent last. Counts an attempt then.
    pub fn send(slot: &mut Option<Self>, what: T, pace: Pace, now: Now) -> bool {
        match slot.as_mut().filter(|repetition| repetition.what == what) {
            Some(repetition) => repetition.is_due(now),
            None => {
                *slot = Some(Self::first(what, pace, now));
                true
            }
        }
    }

    /// True once it is time; counts an attempt then.
    pub fn is_due(&mut self, now: Now) -> bool {
        let is_due = self.next <= now.mono;
        if is_due {
            self.next = now.mono + self.backoff.next_delay();
        }
        is_due
    }

    /// What was sent.
    #[must_use]
    pub const fn what(&self) -> &T {
        &self.what
    }

    /// `Now::mono` at which it is sent again.
    #[must_use]
    pub const fn next(&self) -> Duration {
        self.next
    }

    /// How often it was sent.
    #[must_use]
    pub const fn attempts(&self) -> u32 {
        self.backoff.attempts()
    }
}

/// What a receiver reports of the desired state that it accepted last; `D` is the digest of the value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report<D> {
    /// Its version; 0: none was accepted.
    pub version: u64,
    /// Its digest.
    pub digest: Option<D>,
    /// Where it came from.
    pub origin: Option<Origin>,
    /// The receiver holds what it is sent since; None: it does not judge where that comes from.
    pub held: Option<bool>,
}

impl<D> Report<D> {
    /// Whether it was accepted from this store and epoch, and nothing is held. A receiver that does not judge follows every store.
    #[must_use]
    pub fn follows(&self, ours: Option<Origin>) -> bool {
        let is_ours = || ours.is_none_or(|ours| self.origin.is_some_and(|accepted| accepted.is_of(ours)));
        self.held.is_none_or(|held| !held && is_ours())
    }
}

/// What a receiver shall have; `D` is the digest of the value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Desired<D> {
    /// Of the value.
    pub digest: D,
    /// Where it comes from; None: that is not known.
    pub origin: Option<Origin>,
    /// The last state, in the sender's store, of the timeline that the receiver reported.
    pub follows: Option<Point>,
    /// The store will forget the timeline that the receiver reported ([`super::Timelines::is_ageing`]), so the same is sent as a new version.
    pub is_ageing: bool,
    /// Of the store. New versions are not smaller.
    pub revision: u64,
}

/// What comparing a desired state with a report has come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Comparison<D> {
    /// The version of the desired state.
    pub version: u64,
    /// What is to be sent; None: the receiver reports it, and accepted it from where it comes from.
    pending: Option<Sent<D>>,
}

impl<D> Comparison<D> {
    /// The receiver reports the desired state, and accepted it from where it comes from.
    #[must_use]
    pub const fn is_agreed(&self) -> bool {
        self.pending.is_none()
    }
}

/// What is judged by the receiver, without the revision of the store, which moves with every write to it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Sent<D> {
    version: u64,
    digest: D,
    /// Store and epoch.
    from: Option<(uuid::Uuid, u64)>,
    /// The store contains what the receiver accepted.
    contains: bool,
}

/// A sender: the version that it gave last in this process, and what is not agreed yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DesiredSender<D> {
    assigned: Option<(u64, D)>,
    repetition: Option<Repetition<Sent<D>>>,
}

impl<D> Default for DesiredSender<D> {
    fn default() -> Self {
        Self { assigned: None, repetition: None }
    }
}

impl<D: PartialEq + Clone> DesiredSender<D> {
    /// Compares. The version is that of the report if it reports the same. Otherwise it is the one that was given to the state already, or one that the receiver has not
    /// seen. So versions never fall.
    pub fn compare(&mut self, desired: &Desired<D>, report: &Report<D>) -> Comparison<D> {
        let has_it = report.digest.as_ref() == Some(&desired.digest) && !desired.is_ageing;
        let version = match &self.assigned {
            _ if has_it => report.version,
            Some((version, known)) if *known == desired.digest && *version > report.version => *version,
            before => {
                let seen = report.version.max(before.as_ref().map_or(0, |(version, _)| *version));
                desired.revision.max(seen.saturating_add(1))
            }
        };
        self.assigned = Some((version, desired.digest.clone()));
        let is_agreed = has_it && report.follows(desired.origin);
        let accepted = desired.follows.zip(report.origin);
        let pending = (!is_agreed).then(|| Sent {
            version,
            digest: desired.digest.clone(),
            from: desired.origin.map(|origin| (origin.store, origin.epoch)),
            contains: accepted.is_some_and(|(end, accepted)| end.revision >= accepted.point.revision),
        });
        Comparison { version, pending }
    }

    /// Whether the desired state has to be sent at this time. Counts an attempt then.
    pub fn send(&mut self, comparison: Comparison<D>, pace: Pace, now: Now) -> bool {
        match comparison.pending {
            Some(sent) => Repetition::send(&mut self.repetition, sent, pace, now),
            None => {
                self.repetition = None;
                false
            }
        }
    }

    /// Whether this version was given to that value: who reports the version has accepted the value, though it is not applied yet.
    #[must_use]
    pub fn has_assigned(&self, version: u64, digest: &D) -> bool {
        self.assigned.as_ref().is_some_and(|(given, to)| *given == version && to == digest)
    }

    /// Nothing is sent again by itself; what is sent next is sent at once. The receiver is away, has accepted it, or an operator wants it tried again.
    pub fn pause(&mut self) {
        self.repetition = None;
    }

    /// `Now::mono` at which there is something to send again.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Duration> {
        self.repetition.as_ref().map(Repetition::next)
    }
}

#[cfg(test)]
mod tests;
