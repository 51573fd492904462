//! Hosts that were refused rest for a minute. When the policy changes, they are asked to try again, one after another. So their evidence comes no faster than half of what is
//! judged in a second, and nothing else waits for it.

use std::collections::VecDeque;
use std::time::Duration;

use join_attestation::EkHash;
use join_protocol::metrics::IssuerMessage;
use join_protocol::refusal::RefusalClass;
use join_protocol::terms::Address;
use sparkplug::Now;

use super::State;

/// Hosts that are still to be asked.
#[derive(Debug, Default)]
pub(super) struct Recalls {
    hosts: VecDeque<EkHash>,
    next_at: Duration,
}

impl Recalls {
    /// When the next host is asked; None: none is left.
    pub(super) fn next_deadline(&self) -> Option<Duration> {
        (!self.hosts.is_empty()).then_some(self.next_at)
    }

    pub(super) fn clear(&mut self) {
        self.hosts.clear();
    }
}

impl State {
    /// The policy changed: refused hosts that wait for that are asked again, first the enrolled ones, and then the others, the last seen first.
    pub(super) fn begin_recall(&mut self) {
        if !self.is_speaking {
            return;
        }
        let policy = self.policy.verifier().policy();
        let mut waiting: Vec<_> =
            self.seen.iter().filter(|(_, seen)| seen.verdict.class() == RefusalClass::WaitForChange).collect();
        waiting.sort_by_key(|(ek, seen)| (policy.enrolment(ek).is_none(), std::cmp::Reverse(seen.last_seen)));
        self.recalls.hosts = waiting.into_iter().map(|(ek, _)| *ek).collect();
    }

    /// Asks the hosts whose turn it is.
    pub(super) fn recall(&mut self, now: Now) {
        let interval = Duration::from_secs(1) / (self.settings.evidence_per_second_max / 2).max(1);
        while self.recalls.next_deadline().is_some_and(|at| at <= now.mono) {
            let Some(ek) = self.recalls.hosts.pop_front() else { break };
            // One that has its ticket by now is not seen any more.
            let Some(disk) = self.seen.get(&ek).map(|seen| seen.disk) else { continue };
            self.recalls.next_at = now.mono + interval;
            self.send(&Address::of_disk(&*self.settings.join_group, disk), &IssuerMessage::AskAgain);
        }
    }
}
