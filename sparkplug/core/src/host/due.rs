//! What time brings: gaps that stay open too long, rebirth requests that are due.

use std::time::Duration;

use super::{HostApplication, HostEvent, Liveness, NODE_REBIRTH, Phase, UNANSWERED_MAX};
use crate::metric::Metric;
use crate::name::EdgeNodeDescriptor;
use crate::time::Now;

impl HostApplication {
    /// tck-id-operational-behavior-host-reordering-param, tck-id-operational-behavior-host-reordering-start
    pub(super) fn open_gap(&mut self, node: &EdgeNodeDescriptor, since: Duration) {
        if let Some(known) = self.nodes.get_mut(node)
            && known.gap_due.is_none()
        {
            let due = since + self.config.reorder_timeout;
            known.gap_due = Some(due);
            self.gaps.insert((due, node.clone()));
        }
    }

    pub(super) fn stop_gap_timer(&mut self, node: &EdgeNodeDescriptor) {
        if let Some(due) = self.nodes.get_mut(node).and_then(|known| known.gap_due.take()) {
            self.gaps.remove(&(due, node.clone()));
        }
    }

    /// Ends the wait for a missing message, and drops what waited for it.
    pub(super) fn close_gap(&mut self, node: &EdgeNodeDescriptor) {
        self.stop_gap_timer(node);
        if let Some(birth) = self.nodes.get_mut(node).and_then(|known| known.birth.as_mut()) {
            self.held_bytes -= birth.order.held().1;
            birth.order.clear();
        }
    }

    /// An automatic request, where the configuration allows it.
    pub(super) fn wish_rebirth(&mut self, node: &EdgeNodeDescriptor, reason: &str, now: Now) {
        if self.config.rebirth_requests {
            self.schedule_rebirth(node, reason, now);
        }
    }

    pub(super) fn schedule_rebirth(&mut self, node: &EdgeNodeDescriptor, reason: &str, now: Now) {
        if self.phase == Phase::Online
            && let Some(known) = self.nodes.get_mut(node)
        {
            self.rebirths.schedule(node, &mut known.asking, reason, now.mono);
        }
    }

    pub(super) fn run_due(&mut self, now: Now) {
        if !matches!(self.phase, Phase::Subscribing | Phase::Online) {
            return;
        }
        while let Some((_, node)) = self.gaps.first().filter(|(due, _)| *due <= now.mono).cloned() {
            // tck-id-operational-behavior-host-reordering-rebirth
            let missing =
                self.nodes.get(&node).and_then(|known| known.birth.as_ref()).map(|birth| birth.order.missing());
            let reason = missing.map_or_else(
                || "a message is missing".to_owned(),
                |seq| format!("the message with seq {seq} is missing"),
            );
            self.lose_track(&node, &reason, now);
        }
        while self.phase == Phase::Online
            && let Some(node) = self.rebirths.next_due(now.mono).cloned()
        {
            self.ask_rebirth(node, now);
        }
    }

    /// (tck-id-operational-behavior-data-commands-ncmd-rebirth-verb, tck-id-operational-behavior-data-commands-ncmd-rebirth-name,
    /// tck-id-operational-behavior-data-commands-ncmd-rebirth-value)
    pub(super) fn ask_rebirth(&mut self, node: EdgeNodeDescriptor, now: Now) {
        let Some(known) = self.nodes.get_mut(&node) else { return };
        let reason = self.rebirths.asked(&node, &mut known.asking, now.mono);
        let unborn = known.birth.is_none() && known.liveness != Liveness::Alive;
        let again = if known.expected {
            known.liveness == Liveness::Stale || unborn
        } else {
            known.liveness == Liveness::Stale
        };
        let patient = known.expected || known.asking.attempts() < UNANSWERED_MAX;
        self.command(node.clone(), None, vec![Metric::new(NODE_REBIRTH, true).at(now.wall)], now);
        if again && patient {
            self.wish_rebirth(&node, &reason, now);
        }
        self.event(HostEvent::RebirthRequested { node, reason });
    }
}
