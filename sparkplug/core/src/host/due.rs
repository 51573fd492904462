//! What time brings: gaps that stay open too long, rebirth requests that are due.

use std::time::Duration;

use super::node_table::NodeIndex;
use super::{EXCESSES_MAX, HostApplication, HostEvent, Liveness, Phase, UNANSWERED_MAX};
use crate::heartbeat::NODE_REBIRTH;
use crate::metric::Metric;
use crate::time::Now;

impl HostApplication {
    /// tck-id-operational-behavior-host-reordering-param, tck-id-operational-behavior-host-reordering-start
    pub(super) fn open_gap(&mut self, at: NodeIndex, since: Duration) {
        if let Some(known) = self.nodes.get_mut(at)
            && known.gap_due.is_none()
        {
            let due = since + self.config.reorder_timeout;
            known.gap_due = Some(due);
            self.gaps.insert((due, at));
        }
    }

    pub(super) fn stop_gap_timer(&mut self, at: NodeIndex) {
        if let Some(due) = self.nodes.get_mut(at).and_then(|known| known.gap_due.take()) {
            self.gaps.remove(&(due, at));
        }
    }

    /// Ends the wait for a missing message, and drops what waited for it.
    pub(super) fn close_gap(&mut self, at: NodeIndex) {
        self.stop_gap_timer(at);
        if let Some(known) = self.nodes.get_mut(at)
            && let Some(birth) = known.birth.as_mut()
        {
            self.groups.held(known.group, birth.order.held().1, 0);
            birth.order.clear();
        }
    }

    /// An automatic request, where the configuration allows it, and an answer could be taken.
    pub(super) fn want_rebirth(&mut self, at: NodeIndex, reason: &str, now: Now) {
        let is_too_large = self.nodes.get(at).is_some_and(|known| known.excesses >= EXCESSES_MAX);
        if self.config.rebirth_requests && !is_too_large {
            self.schedule_rebirth(at, reason, now);
        }
    }

    pub(super) fn schedule_rebirth(&mut self, at: NodeIndex, reason: &str, now: Now) {
        if self.phase == Phase::Online
            && let Some(known) = self.nodes.get_mut(at)
        {
            self.rebirths.schedule((at, known), reason, now.mono);
        }
    }

    pub(super) fn run_due(&mut self, now: Now) {
        if !matches!(self.phase, Phase::Subscribing | Phase::Online) {
            return;
        }
        while let Some((_, at)) = self.gaps.first().filter(|(due, _)| *due <= now.mono).copied() {
            // tck-id-operational-behavior-host-reordering-rebirth
            let missing = self.nodes.get(at).and_then(|known| known.birth.as_ref()).map(|birth| birth.order.missing());
            let reason = missing.map_or_else(
                || "a message is missing".to_owned(),
                |seq| format!("the message with seq {seq} is missing"),
            );
            self.mark_stale(at, &reason, now);
        }
        self.expire(now);
        self.ask_for_hosts(now);
        while self.phase == Phase::Online
            && let Some(at) = self.rebirths.next_due(now.mono)
        {
            self.ask_rebirth(at, now);
        }
    }

    /// (tck-id-operational-behavior-data-commands-ncmd-rebirth-verb, tck-id-operational-behavior-data-commands-ncmd-rebirth-name,
    /// tck-id-operational-behavior-data-commands-ncmd-rebirth-value)
    pub(super) fn ask_rebirth(&mut self, at: NodeIndex, now: Now) {
        let Some((node, known)) = self.nodes.entry_mut(at) else { return };
        let node = node.clone();
        let reason = self.rebirths.asked(at, known, now.mono);
        let unborn = known.birth.is_none() && known.liveness != Liveness::Alive;
        let again = if known.expected {
            known.liveness == Liveness::Stale || unborn
        } else {
            known.liveness == Liveness::Stale
        };
        let patient = known.expected || known.asking.attempts() < UNANSWERED_MAX;
        self.command(node.clone(), None, vec![Metric::new(NODE_REBIRTH, true).at(now.wall)], now);
        if again && patient {
            self.want_rebirth(at, &reason, now);
        }
        self.event(HostEvent::RebirthRequested { node, reason });
    }
}
