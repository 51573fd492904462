//! The session: CONNECT with the will, subscriptions, STATE, and the end.

use super::node_table::NodeIndex;
use super::{HostApplication, HostEvent, HostOutput, Liveness, Phase};
use crate::session::{Connect, Publish, QoS, TransportAction};
use crate::time::Now;
use crate::topic::filter;

impl HostApplication {
    pub(super) fn connect(&mut self, now: Now) {
        // tck-id-operational-behavior-host-application-connect-will, tck-id-payloads-state-will-message
        let will = self.own_state.as_mut().map(|own| own.will(self.server, now.wall));
        self.action(TransportAction::Connect(Connect { server: self.server, will, bd_seq: None }));
        self.open = false;
        self.phase = Phase::Connecting;
    }

    pub(super) fn connected(&mut self) {
        self.open = true;
        if self.phase != Phase::Connecting {
            return;
        }
        // tck-id-host-topic-phid-birth-sub-required, tck-id-message-flow-phid-sparkplug-subscription, tck-id-payloads-state-subscribe
        let own = self.own_state.as_ref().map(|own| (filter::host_state(own.host()), QoS::AtLeastOnce));
        let others = self.config.rebirths_for_hosts.as_ref().map(|_| (filter::host_states(), QoS::AtLeastOnce));
        let filters = own.into_iter().chain(others).chain(self.config.filters.iter().cloned()).collect();
        self.action(TransportAction::Subscribe(filters));
        self.phase = Phase::Subscribing;
    }

    pub(super) fn subscribed(&mut self, now: Now) {
        if self.phase != Phase::Subscribing {
            return;
        }
        self.phase = Phase::Online;
        self.backoff.reset();
        // tck-id-host-topic-phid-birth-message, tck-id-host-topic-phid-birth-required, tck-id-message-flow-phid-sparkplug-state-publish
        self.publish_birth();
        self.event(HostEvent::Online);
        let absent: Vec<NodeIndex> = self
            .nodes
            .iter_mut()
            .filter(|(_, known)| known.liveness != Liveness::Alive && (known.is_seen || known.is_named()))
            .map(|(at, _)| at)
            .collect();
        for at in absent {
            self.want_rebirth(at, "the host came online", now);
        }
    }

    pub(super) fn publish_birth(&mut self) {
        if let Some(own) = &self.own_state {
            let birth = own.birth();
            self.publish(birth);
        }
    }

    pub(super) fn disconnected(&mut self, reason: String, now: Now) {
        if matches!(self.phase, Phase::Away { .. } | Phase::Stopped) {
            return;
        }
        self.outputs.retain(|output| matches!(output, HostOutput::Event(_)));
        self.gaps.clear();
        self.groups.release_held();
        self.nodes_refused = false;
        // The statement of chapter 5 that has no id: a host that loses a server marks everything that came from it stale.
        for (at, known) in self.nodes.iter_mut() {
            self.rebirths.cancel(at, known);
            known.gap_due = None;
            if let Some(birth) = &mut known.birth {
                birth.order.clear();
            }
            if known.liveness == Liveness::Alive {
                known.liveness = Liveness::Stale;
                known.stale_at = Some(now.wall);
                // That the server is lost again and again is not a reason to ask the node later each time.
                known.asking.answered();
            }
        }
        if self.stopping {
            self.phase = Phase::Stopped;
            self.event(HostEvent::Stopped);
            return;
        }
        if !self.open {
            self.server = (self.server + 1) % self.config.servers.max(1);
        }
        self.event(HostEvent::Offline { reason });
        self.phase = Phase::Away { until: now.mono + self.backoff.next_delay() };
    }

    pub(super) fn action(&mut self, action: TransportAction) {
        self.outputs.push_back(HostOutput::Transport(action));
    }

    pub(super) fn publish(&mut self, publish: Publish) {
        self.action(TransportAction::Publish(publish));
    }

    pub(super) fn event(&mut self, event: HostEvent) {
        self.outputs.push_back(HostOutput::Event(event));
    }

    pub(super) fn reject(&mut self, topic: &str, reason: impl Into<String>) {
        self.event(HostEvent::Rejected { topic: topic.to_owned(), reason: reason.into() });
    }
}
