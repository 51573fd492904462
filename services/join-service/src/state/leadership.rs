//! Which replica speaks. It renews a lease; a replica that does not see it renewed for long enough takes it. Only intervals are compared, so the replicas' clocks need not agree.
//!
//! Two replicas may both believe that they lead for a moment. That costs repeats; what they write is compare-and-swap.

use std::time::Duration;

use crate::cache::Entry;
use crate::document::{Key, Leader, to_text};
use crate::event::{ErrorClass, Operation, Version};

/// How often the lease is renewed.
const RENEW: Duration = Duration::from_secs(5);
/// How long after the beginning of its last renewal a replica leads.
const HOLD: Duration = Duration::from_secs(10);
/// How long a lease has to stay unchanged before another replica takes it.
const LEASE: Duration = Duration::from_secs(15);
/// When a failed write is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// The lease as this replica knows it.
#[derive(Debug)]
pub(super) struct Leadership {
    name: String,
    beat: u64,
    /// The version that was seen last, and since when.
    seen: Option<(String, Duration)>,
    until: Option<Duration>,
    started: Option<Duration>,
    next: Duration,
}

impl Leadership {
    /// Of the replica of that name.
    #[must_use]
    pub(super) const fn new(name: String) -> Self {
        Self { name, beat: 0, seen: None, until: None, started: None, next: Duration::ZERO }
    }

    /// This replica leads.
    #[must_use]
    pub(super) fn leads(&self, now: Duration) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    /// What has to be written at present, with what is known of the lease.
    pub(super) fn due(&mut self, lease: Option<&Entry<Leader>>, now: Duration) -> Option<Operation> {
        match (lease, &self.seen) {
            (Some(lease), Some((version, _))) if *version == lease.version => {}
            (Some(lease), _) => self.seen = Some((lease.version.clone(), now)),
            (None, _) => self.seen = None,
        }
        if self.started.is_some() || now < self.next {
            return None;
        }
        let is_free = |since: Duration| now >= since + LEASE;
        let is_ours = |lease: &Entry<Leader>| lease.is.holder == self.name;
        let operation = match (lease, &self.seen) {
            (Some(lease), Some((version, since))) if is_ours(lease) || is_free(*since) => {
                Operation::Replace { key: Key::Leader, text: self.text(), version: Version::Known(version.clone()) }
            }
            (Some(_), _) => return None,
            (None, _) => Operation::Create { key: Key::Leader, text: self.text() },
        };
        self.beat += 1;
        self.started = Some(now);
        Some(operation)
    }

    fn text(&self) -> String {
        to_text(&Leader { holder: self.name.clone(), beat: self.beat })
    }

    /// The lease was written. One whose time was over before that was known gives nothing: it would be due for ever.
    pub(super) fn on_written(&mut self, now: Duration) {
        let started = self.started.take().unwrap_or(now);
        self.until = Some(started + HOLD).filter(|until| now < *until);
        self.next = started + RENEW;
    }

    /// The lease was not written.
    pub(super) fn on_failed(&mut self, class: ErrorClass, now: Duration) {
        self.started = None;
        self.next = now + RETRY;
        if class == ErrorClass::Conflict {
            // Another replica has it.
            self.until = None;
        }
    }

    /// When something is due.
    #[must_use]
    pub(super) fn next_deadline(&self, has_lease: bool) -> Option<Duration> {
        let takes_at = match &self.seen {
            Some((_, since)) if self.until.is_none() && has_lease => Some(*since + LEASE),
            _ => None,
        };
        let writes_at = self.started.is_none().then_some(takes_at.map_or(self.next, |at| at.max(self.next)));
        [writes_at, self.until].into_iter().flatten().min()
    }

    /// It has ended: this replica does not lead.
    pub(super) fn end(&mut self) {
        self.until = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    fn lease(version: &str, holder: &str) -> Entry<Leader> {
        Entry { version: version.to_owned(), is: Leader { holder: holder.to_owned(), beat: 1 } }
    }

    #[test]
    fn a_lease_that_stands_still_is_taken_and_one_that_is_renewed_is_not() {
        let mut standby = Leadership::new("b".to_owned());
        for second in 0..60_u32 {
            let renewed = lease(&(second / 5).to_string(), "a");
            assert_eq!(standby.due(Some(&renewed), second * S), None);
        }
        let stands = lease("11", "a");
        assert_eq!(standby.due(Some(&stands), 69 * S), None);
        assert_eq!(standby.next_deadline(true), Some(70 * S));
        assert!(matches!(standby.due(Some(&stands), 70 * S), Some(Operation::Replace { .. })));
        assert_eq!(standby.due(Some(&stands), 71 * S), None, "one write at a time");
        standby.on_written(72 * S);
        assert!(standby.leads(79 * S) && !standby.leads(80 * S), "from the beginning of the write");
    }

    #[test]
    fn who_cannot_renew_steps_down_before_another_may_take_over() {
        let mut leader = Leadership::new("a".to_owned());
        assert!(matches!(leader.due(None, Duration::ZERO), Some(Operation::Create { .. })));
        leader.on_written(S);
        let own = lease("1", "a");
        assert_eq!(leader.due(Some(&own), 4 * S), None);
        assert!(leader.due(Some(&own), 5 * S).is_some());
        leader.on_failed(ErrorClass::Unreachable, 6 * S);
        assert!(leader.leads(9 * S) && !leader.leads(10 * S) && 10 * S < LEASE);
        assert!(leader.due(Some(&own), 7 * S).is_some());
        leader.on_failed(ErrorClass::Conflict, 8 * S);
        assert!(!leader.leads(8 * S));
    }

    #[test]
    fn a_lease_that_was_over_before_its_writing_was_known_is_not_due_again_and_again() {
        let mut leadership = Leadership::new("a".to_owned());
        assert!(leadership.due(None, S).is_some());
        // The process was frozen, or the API did not answer.
        leadership.on_written(20 * S);
        assert!(!leadership.leads(20 * S));
        let own = lease("1", "a");
        assert!(leadership.due(Some(&own), 20 * S).is_some(), "it is renewed at once");
        assert_eq!(leadership.next_deadline(true), None, "until the answer nothing is due");
        leadership.on_written(21 * S);
        assert!(leadership.leads(21 * S));
        assert_eq!(leadership.next_deadline(true), Some(25 * S));
    }
}
