//! When which edge node is asked for rebirth. A node gets one request at a time, after a jitter, with growing intervals while it does not answer. Over all nodes
//! there are only so many requests a second. Groups take turns: however many nodes of one group are due, another group that has one waits for no more than one request to each other group.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::time::Duration;

use super::asking::Rank;
use super::groups::GroupIndex;
use super::node_table::{Node, NodeIndex};
use crate::backoff::{SplitMix64, doubled};

/// No interval is shorter, whatever is configured: asking is never a busy loop.
const INTERVAL_MIN: Duration = Duration::from_millis(10);

/// A request that is so much late does not delay the next one. Timers wake a program up to some milliseconds late, which would halve a rate of a thousand a second.
const LATE_MAX: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(super) struct RebirthQueue {
    /// Nodes by the time at which they are to be asked.
    due: BTreeSet<(Duration, NodeIndex)>,
    /// The same nodes, in the order in which each group has them asked.
    by_group: BTreeMap<GroupIndex, BTreeSet<(Rank, Duration, NodeIndex)>>,
    /// Whose turn was last.
    turn: Option<GroupIndex>,
    /// Before this time no node is asked.
    slot: Duration,
    /// Distance of two requests, whichever nodes they go to. None: no node is ever asked.
    spacing: Option<Duration>,
    interval: (Duration, Duration),
    jitter: Duration,
    random: SplitMix64,
}

impl RebirthQueue {
    pub(super) fn new(per_second_max: u32, interval: (Duration, Duration), jitter: Duration, seed: u64) -> Self {
        let spacing = (per_second_max > 0).then(|| Duration::from_secs(1) / per_second_max);
        let interval = (interval.0.max(INTERVAL_MIN), interval.1.max(INTERVAL_MIN));
        Self {
            due: BTreeSet::new(),
            by_group: BTreeMap::new(),
            turn: None,
            slot: Duration::ZERO,
            spacing,
            interval,
            jitter,
            random: SplitMix64::new(seed),
        }
    }

    /// The node shall be asked; if it is to be asked already, that stays.
    pub(super) fn schedule(&mut self, (at, node): (NodeIndex, &mut Node), reason: &str, mono: Duration) {
        let asking = &mut node.asking;
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
        reason.clone_into(&mut asking.reason);
        self.enqueue(at, node, due);
    }

    fn enqueue(&mut self, at: NodeIndex, node: &mut Node, due: Duration) {
        let rank = if node.expected { Rank::Expected } else { Rank::Known };
        node.asking.due = Some((rank, due));
        self.due.insert((due, at));
        self.by_group.entry(node.group).or_default().insert((rank, due, at));
    }

    /// Whether the application counts on the node is not what it was.
    pub(super) fn rank(&mut self, at: NodeIndex, node: &mut Node) {
        if let Some((_, due)) = node.asking.due {
            self.cancel(at, node);
            self.enqueue(at, node, due);
        }
    }

    /// The node was born, or the application does not need it any more.
    pub(super) fn cancel(&mut self, at: NodeIndex, node: &mut Node) {
        let Some((rank, due)) = node.asking.due.take() else { return };
        self.due.remove(&(due, at));
        if let Some(waiting) = self.by_group.get_mut(&node.group) {
            waiting.remove(&(rank, due, at));
            if waiting.is_empty() {
                self.by_group.remove(&node.group);
            }
        }
    }

    /// A node to be asked now: of the next group in turn that has one.
    pub(super) fn next_due(&self, mono: Duration) -> Option<NodeIndex> {
        self.spacing?;
        // Asked for every message: what is not due yet costs no look at the groups.
        self.due.first().filter(|(due, _)| *due <= mono && self.slot <= mono)?;
        let first_of = |waiting: &BTreeSet<(Rank, Duration, NodeIndex)>| {
            let of = |rank| {
                waiting.range((rank, Duration::ZERO, NodeIndex::FIRST)..).next().filter(|(_, due, _)| *due <= mono)
            };
            of(Rank::Expected).or_else(|| of(Rank::Known)).map(|(_, _, at)| *at)
        };
        let after = self.turn.map_or(Bound::Unbounded, Bound::Excluded);
        let groups = self.by_group.range((after, Bound::Unbounded)).chain(&self.by_group);
        groups.into_iter().find_map(|(_, waiting)| first_of(waiting))
    }

    /// The node is being asked; yields the reason.
    pub(super) fn asked(&mut self, at: NodeIndex, node: &mut Node, mono: Duration) -> String {
        self.cancel(at, node);
        self.turn = Some(node.group);
        node.asking.last = Some(mono);
        node.asking.attempts = node.asking.attempts.saturating_add(1);
        let slot = if mono <= self.slot + LATE_MAX { self.slot } else { mono };
        self.slot = slot + self.spacing.unwrap_or_default();
        std::mem::take(&mut node.asking.reason)
    }

    pub(super) fn next_deadline(&self) -> Option<Duration> {
        self.spacing?;
        self.due.first().map(|(due, _)| (*due).max(self.slot))
    }
}
