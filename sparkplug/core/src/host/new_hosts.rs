//! Births for hosts that may not ask for them: a host without the right to command knows a node after its next birth. So a host that may command asks every node once when
//! such a host comes online.

use std::collections::BTreeMap;
use std::time::Duration;

use super::node_table::NodeIndex;
use super::{HostApplication, HostEvent, Liveness, Phase};
use crate::name::{EdgeNodeDescriptor, HostId};
use crate::state::HostState;
use crate::time::Now;

/// Hosts whose STATE is remembered. Those beyond count as new each time that they come online.
const HOSTS_MAX: usize = 1_000;

/// Which nodes are asked for rebirth when another Host Application comes online.
#[derive(Debug, Clone)]
pub struct RebirthsForHosts {
    /// Hosts with an id that begins with one of these ask for themselves.
    pub except: Vec<String>,
    /// Whether a node is asked.
    pub nodes: fn(&EdgeNodeDescriptor) -> bool,
    /// From one round to the next it takes so long: hosts that come in between share the next one.
    pub interval_min: Duration,
}

impl RebirthsForHosts {
    /// Every node, and one round a minute at most.
    #[must_use]
    pub fn but_for(except: Vec<String>) -> Self {
        Self { except, nodes: |_| true, interval_min: Duration::from_secs(60) }
    }

    fn covers(&self, host: &HostId) -> bool {
        !self.except.iter().any(|prefix| host.as_str().starts_with(prefix.as_str()))
    }
}

/// Hosts that are online, and for whom a round is due.
#[derive(Debug, Default)]
pub(super) struct NewHosts {
    /// With the timestamp of their STATE.
    online: BTreeMap<HostId, u64>,
    /// Who came last, and when.
    waiting: Option<(HostId, Duration)>,
    last_round: Option<Duration>,
}

impl HostApplication {
    /// The retained STATE of a host whose STATE arrived before is not new.
    pub(super) fn heed_host(&mut self, host: &HostId, state: HostState, now: Now) {
        let is_covered = self.config.rebirths_for_hosts.as_ref().is_some_and(|rule| rule.covers(host));
        if !is_covered || self.config.host_id.as_ref() == Some(host) {
            return;
        }
        let hosts = &mut self.new_hosts;
        if !state.online {
            hosts.online.remove(host);
            return;
        }
        let is_known = hosts.online.get(host) == Some(&state.timestamp);
        if is_known {
            return;
        }
        if hosts.online.contains_key(host) || hosts.online.len() < HOSTS_MAX {
            hosts.online.insert(host.clone(), state.timestamp);
        }
        hosts.waiting = Some((host.clone(), now.mono));
    }

    pub(super) fn round_due(&self) -> Option<Duration> {
        let rule = self.config.rebirths_for_hosts.as_ref()?;
        let (_, since) = self.new_hosts.waiting.as_ref()?;
        Some(self.new_hosts.last_round.map_or(*since, |last| last + rule.interval_min))
    }

    /// Asks every living node that was not born since the host came; one that does not live is asked for its birth anyway.
    pub(super) fn ask_for_hosts(&mut self, now: Now) {
        if self.phase != Phase::Online || self.round_due().is_none_or(|due| due > now.mono) {
            return;
        }
        let Some((host, since)) = self.new_hosts.waiting.take() else { return };
        self.new_hosts.last_round = Some(now.mono);
        let Some(rule) = &self.config.rebirths_for_hosts else { return };
        let is_asked = rule.nodes;
        let of_before: Vec<NodeIndex> = self
            .nodes
            .iter_mut()
            .filter(|(_, known)| known.liveness == Liveness::Alive)
            .filter(|(_, known)| known.birth.as_ref().is_some_and(|birth| birth.received <= since))
            .map(|(at, _)| at)
            .collect();
        let reason = format!("host {host} came online");
        for at in of_before {
            if self.nodes.entry_mut(at).is_some_and(|(node, _)| is_asked(node)) {
                self.want_rebirth(at, &reason, now);
            }
        }
        self.event(HostEvent::HostServed { host });
    }
}
