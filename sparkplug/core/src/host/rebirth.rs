//! When which edge node is asked for rebirth: one request at a time to a node, after a jitter, with growing intervals while it does not answer, and so many a second
//! over all nodes.

use std::collections::BTreeSet;
use std::time::Duration;

use super::node_table::NodeIndex;
use crate::backoff::{SplitMix64, doubled};

/// No interval is shorter, whatever is configured: asking is never a busy loop.
const INTERVAL_MIN: Duration = Duration::from_millis(10);

/// What is asked of one node.
#[derive(Debug, Default)]
pub(super) struct Asking {
    due: Option<Duration>,
    reason: String,
    /// Requests in a row; forgotten after a quiet time.
    attempts: u32,
    last: Option<Duration>,
}

impl Asking {
    /// When it was asked last.
    pub(super) const fn last(&self) -> Option<Duration> {
        self.last
    }

    pub(super) const fn attempts(&self) -> u32 {
        self.attempts
    }

    /// It was answered: the next request waits for no more than the shortest interval after the last.
    pub(super) fn answered(&mut self) {
        self.attempts = self.attempts.min(1);
    }
}

#[derive(Debug)]
pub(super) struct RebirthQueue {
    /// Nodes by the time at which they are to be asked.
    due: BTreeSet<(Duration, NodeIndex)>,
    /// Before this time nobody is asked.
    slot: Duration,
    /// Distance of two requests, whoever they go to. None: nobody is ever asked.
    spacing: Option<Duration>,
    interval: (Duration, Duration),
    jitter: Duration,
    random: SplitMix64,
}

impl RebirthQueue {
    pub(super) fn new(per_second_max: u32, interval: (Duration, Duration), jitter: Duration, seed: u64) -> Self {
        let spacing = (per_second_max > 0).then(|| Duration::from_secs(1) / per_second_max);
        let interval = (interval.0.max(INTERVAL_MIN), interval.1.max(INTERVAL_MIN));
        Self { due: BTreeSet::new(), slot: Duration::ZERO, spacing, interval, jitter, random: SplitMix64::new(seed) }
    }

    /// The node shall be asked; if it is to be asked already, that stays.
    pub(super) fn schedule(&mut self, node: NodeIndex, asking: &mut Asking, reason: &str, mono: Duration) {
        if asking.due.is_some() {
            return;
        }
        let quiet = self.interval.1 * 2;
        if asking.last.is_some_and(|last| mono >= last + quiet) {
            asking.attempts = 0;
        }
        let earliest = match (asking.last, asking.attempts.checked_sub(1)) {
            (Some(last), Some(earlier)) => last + doubled(self.interval, earlier),
            _ => mono,
        };
        let due = earliest.max(mono) + self.random.up_to(self.jitter);
        asking.due = Some(due);
        reason.clone_into(&mut asking.reason);
        self.due.insert((due, node));
    }

    /// The node was born, or nobody wants to know any more.
    pub(super) fn cancel(&mut self, node: NodeIndex, asking: &mut Asking) {
        if let Some(due) = asking.due.take() {
            self.due.remove(&(due, node));
        }
    }

    /// A node to be asked now.
    pub(super) fn next_due(&self, mono: Duration) -> Option<NodeIndex> {
        self.spacing?;
        self.due.first().filter(|(due, _)| *due <= mono && self.slot <= mono).map(|(_, node)| *node)
    }

    /// The node is being asked; yields the reason.
    pub(super) fn asked(&mut self, node: NodeIndex, asking: &mut Asking, mono: Duration) -> String {
        self.cancel(node, asking);
        asking.last = Some(mono);
        asking.attempts = asking.attempts.saturating_add(1);
        self.slot = self.slot.max(mono) + self.spacing.unwrap_or_default();
        std::mem::take(&mut asking.reason)
    }

    pub(super) fn next_deadline(&self) -> Option<Duration> {
        self.spacing?;
        self.due.first().map(|(due, _)| (*due).max(self.slot))
    }
}
