//! When which edge node is asked for rebirth: one request at a time to a node, after a jitter, with growing intervals while it does not answer, and so many a second
//! over all nodes. Groups with nodes to be asked take turns, so that no number of nodes of one group delays the nodes of another.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::node_table::NodeIndex;
use super::shares::GroupIndex;
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

/// The nodes of a group that are to be asked.
#[derive(Debug)]
struct Turn {
    /// By the time at which they are.
    due: BTreeSet<(Duration, NodeIndex)>,
    /// The request at which the group had its last turn, or came.
    last: u64,
}

/// A node with its group.
pub(super) type Member = (GroupIndex, NodeIndex);

#[derive(Debug)]
pub(super) struct RebirthQueue {
    /// The nodes of each group that are to be asked.
    groups: BTreeMap<GroupIndex, Turn>,
    /// Groups by the time at which the first of their nodes is to be asked.
    heads: BTreeSet<(Duration, GroupIndex)>,
    /// Requests so far.
    turn: u64,
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
        Self {
            groups: BTreeMap::new(),
            heads: BTreeSet::new(),
            turn: 0,
            slot: Duration::ZERO,
            spacing,
            interval,
            jitter,
            random: SplitMix64::new(seed),
        }
    }

    /// The node shall be asked; if it is to be asked already, that stays.
    pub(super) fn schedule(&mut self, member: Member, asking: &mut Asking, reason: &str, mono: Duration) {
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
        self.change(member.0, |nodes| nodes.insert((due, member.1)));
    }

    /// The node was born, or nobody wants to know any more.
    pub(super) fn cancel(&mut self, member: Member, asking: &mut Asking) {
        if let Some(due) = asking.due.take() {
            self.change(member.0, |nodes| nodes.remove(&(due, member.1)));
        }
    }

    /// Changes the nodes of a group, and its place among the groups with them.
    fn change(&mut self, group: GroupIndex, change: impl FnOnce(&mut BTreeSet<(Duration, NodeIndex)>) -> bool) {
        // Who comes has its turn after all that wait already, also if it has just had one and comes again.
        let turn = self.groups.entry(group).or_insert_with(|| Turn { due: BTreeSet::new(), last: self.turn });
        let before = turn.due.first().map(|(due, _)| *due);
        change(&mut turn.due);
        let after = turn.due.first().map(|(due, _)| *due);
        if before != after {
            self.heads.extend(after.map(|due| (due, group)));
            if let Some(due) = before {
                self.heads.remove(&(due, group));
            }
        }
        if after.is_none() {
            self.groups.remove(&group);
        }
    }

    /// A node to be asked now: of the group that has waited for its turn longest.
    pub(super) fn next_due(&self, mono: Duration) -> Option<NodeIndex> {
        self.spacing?;
        if self.slot > mono {
            return None;
        }
        let waiting = self.heads.iter().take_while(|(due, _)| *due <= mono);
        let turns = waiting.filter_map(|(due, group)| Some((self.groups.get(group)?, due)));
        let (turn, _) = turns.min_by_key(|(turn, due)| (turn.last, **due))?;
        turn.due.first().map(|(_, node)| *node)
    }

    /// The node is being asked; yields the reason.
    pub(super) fn asked(&mut self, member: Member, asking: &mut Asking, mono: Duration) -> String {
        self.turn += 1;
        if let Some(turn) = self.groups.get_mut(&member.0) {
            turn.last = self.turn;
        }
        self.cancel(member, asking);
        asking.last = Some(mono);
        asking.attempts = asking.attempts.saturating_add(1);
        self.slot = self.slot.max(mono) + self.spacing.unwrap_or_default();
        std::mem::take(&mut asking.reason)
    }

    pub(super) fn next_deadline(&self) -> Option<Duration> {
        self.spacing?;
        self.heads.first().map(|(due, _)| (*due).max(self.slot))
    }
}
