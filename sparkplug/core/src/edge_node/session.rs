//! The session: CONNECT with the will, subscriptions, the wait for the Primary Host, what arrives, and the end.

use std::time::Duration;

use super::primary_host::Verdict;
use super::{BirthRun, EdgeNode, NodeEvent, Phase, command};
use crate::name::DeviceId;
use crate::payload::Limits;
use crate::session::{Connect, QoS, TransportAction};
use crate::state::HostState;
use crate::time::Now;
use crate::topic::{MessageKind, Topic, filter};

/// Why this node ends a session itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leave {
    /// To go on elsewhere, or not at all; for this reason.
    Away(&'static str),
    /// To open another one on the same server, because the certificates were renewed.
    Renewed,
}

impl Leave {
    const fn reason(self) -> &'static str {
        match self {
            Self::Away(reason) => reason,
            Self::Renewed => "the certificates were renewed",
        }
    }
}

impl EdgeNode {
    pub(super) fn connect(&mut self, now: Now) {
        self.primary_host.begin_session();
        // tck-id-payloads-ndeath-will-message, tck-id-payloads-ndeath-bdseq, tck-id-message-flow-edge-node-birth-publish-will-message
        let will = self.outputs.ndeath(self.bd_seq, now.wall);
        self.outputs.action(TransportAction::Connect(Connect {
            server: self.server,
            will: Some(will),
            bd_seq: Some(self.bd_seq),
        }));
        self.open = false;
        self.phase = Phase::Connecting;
    }

    pub(super) fn connected(&mut self) {
        self.open = true;
        if self.phase != Phase::Connecting {
            return;
        }
        let node = &self.config.descriptor;
        // tck-id-message-flow-edge-node-ncmd-subscribe, tck-id-message-flow-device-dcmd-subscribe
        let mut filters =
            vec![(filter::node_commands(node), QoS::AtLeastOnce), (filter::device_commands(node), QoS::AtLeastOnce)];
        // tck-id-operational-behavior-primary-application-state-with-multiple-servers-state-subs
        if let Some(host) = &self.config.primary_host {
            filters.push((filter::host_state(host), QoS::AtLeastOnce));
        }
        if self.speaker.is_some() {
            let of_own = |kind| Topic::of(node.clone(), kind, None).to_string();
            filters.push((of_own(MessageKind::NBirth), QoS::AtLeastOnce));
            filters.push((of_own(MessageKind::NDeath), QoS::AtLeastOnce));
        }
        self.outputs.action(TransportAction::Subscribe(filters));
        self.phase = Phase::Subscribing;
    }

    pub(super) fn subscribed(&mut self, now: Now) {
        if self.phase != Phase::Subscribing {
            return;
        }
        // tck-id-message-flow-edge-node-birth-publish-phid-wait
        if self.config.primary_host.is_some() && !self.primary_host.is_online() {
            self.phase = Phase::AwaitingPrimaryHost { since: now.mono };
        } else {
            self.start_births(false, now);
        }
    }

    pub(super) fn disconnected(&mut self, reason: String, reached: bool, now: Now) {
        if matches!(self.phase, Phase::Away { .. } | Phase::Stopped) {
            return;
        }
        // tck-id-topics-nbirth-bdseq-increment: one more for each CONNECT that a server has seen, and only for those.
        if reached || self.open {
            self.bd_seq = self.bd_seq.next();
        }
        self.outputs.end_session();
        self.keep_what_was_under_way();
        drop(self.drop_waiting_state());
        self.folded = false;
        self.births = BirthRun::default();
        if let Some(own) = &mut self.speaker {
            own.session_ended(now.mono);
        }
        self.drop_commands();
        self.resend.clear();
        self.node.set_announced(false);
        for device in self.devices.values_mut() {
            device.born = false;
            device.queued = false;
            device.resent = None;
            device.entity.set_announced(false);
        }
        if self.stopping {
            self.phase = Phase::Stopped;
            self.outputs.event(NodeEvent::Stopped);
            return;
        }
        // tck-id-operational-behavior-edge-node-termination-host-offline-reconnect,
        // tck-id-operational-behavior-primary-application-state-with-multiple-servers-walk
        if !self.open || matches!(self.leave_reason, Some(Leave::Away(_))) {
            self.server = (self.server + 1) % self.config.servers.max(1);
        }
        let reason = self.leave_reason.take().map_or(reason, |own| own.reason().to_owned());
        self.outputs.event(NodeEvent::Offline { reason });
        self.phase = Phase::Away { until: now.mono + self.backoff.next_delay() };
    }

    /// Ends the session: NDEATH, then DISCONNECT
    /// (tck-id-operational-behavior-edge-node-intentional-disconnect-ndeath, tck-id-payloads-ndeath-will-message-publisher,
    /// tck-id-payloads-ndeath-will-message-publisher-disconnect-mqtt311). The standard excepts no session, so one without births has its NDEATH too: hosts
    /// pass it over, because no birth has its bdSeq.
    pub(super) fn leave(&mut self, why: Leave, now: Now) {
        let ndeath = self.outputs.ndeath(self.bd_seq, now.wall);
        self.outputs.action(TransportAction::Publish(ndeath));
        self.outputs.action(TransportAction::Disconnect);
        // Whatever is said from here on comes after it. A farewell for good waits for the server's answer, which shows what arrived.
        if let Some(history) = self.history.as_mut().filter(|_| !self.stopping) {
            history.take_back_live();
        }
        self.leave_reason = Some(why);
        self.phase = Phase::Leaving;
    }

    /// The session is replaced by another one (tck-id-operational-behavior-edge-node-intentional-disconnect-ndeath).
    pub(super) fn outdated(&mut self, now: Now) {
        match self.phase {
            Phase::Subscribing | Phase::AwaitingPrimaryHost { .. } | Phase::Birthing | Phase::Born => {
                self.leave(Leave::Renewed, now);
            }
            // A session that is still being opened, or is at its end, is followed by one that is up to date.
            Phase::Away { .. } | Phase::Connecting | Phase::Leaving | Phase::Stopped => {}
        }
    }

    pub(super) fn message(&mut self, topic: String, bytes: &[u8], retain: bool, now: Now) {
        if matches!(self.phase, Phase::Away { .. } | Phase::Connecting | Phase::Leaving | Phase::Stopped) {
            return;
        }
        let outcome = match Topic::parse(&topic) {
            Ok(Topic::State { host }) if Some(&host) == self.config.primary_host.as_ref() => {
                self.state_of_primary_host(bytes, now)
            }
            Ok(Topic::Node { node, kind: MessageKind::NCmd }) if node == self.config.descriptor => {
                self.command(None, bytes, retain, now)
            }
            Ok(Topic::Device { node, kind: MessageKind::DCmd, device }) if node == self.config.descriptor => {
                self.command(Some(device), bytes, retain, now)
            }
            Ok(Topic::Node { node, kind: MessageKind::NBirth }) if node == self.config.descriptor => {
                self.own_birth(bytes, retain, now)
            }
            Ok(Topic::Node { node, kind: MessageKind::NDeath }) if node == self.config.descriptor => {
                self.own_death(bytes, retain)
            }
            Ok(_) => Err("it is not addressed to this edge node".to_owned()),
            Err(error) => Err(error.to_string()),
        };
        if let Err(reason) = outcome {
            self.outputs.event(NodeEvent::Rejected { topic, reason });
        }
    }

    pub(super) fn state_of_primary_host(&mut self, bytes: &[u8], now: Now) -> Result<(), String> {
        let state = HostState::decode(bytes).map_err(|e| e.to_string())?;
        match (self.primary_host.on_state(self.server, state), self.phase) {
            (Verdict::Online, Phase::AwaitingPrimaryHost { .. }) => self.start_births(false, now),
            // tck-id-message-flow-edge-node-birth-publish-phid-offline, tck-id-operational-behavior-edge-node-termination-host-offline
            (Verdict::Offline, Phase::Birthing | Phase::Born) => {
                self.leave(Leave::Away("primary host went offline"), now)
            }
            (Verdict::Offline, Phase::AwaitingPrimaryHost { .. } | Phase::Subscribing) if self.config.servers > 1 => {
                self.leave(Leave::Away("primary host is offline on this server"), now);
            }
            _ => {}
        }
        Ok(())
    }

    /// With several servers the wait for the Primary Host on one of them ends; it may be on another.
    pub(super) fn patience_ends(&self, since: Duration) -> Option<Duration> {
        (self.config.servers > 1).then(|| since + self.config.reconnect.1)
    }

    /// Of what is received.
    pub(super) fn limits(&self) -> Limits {
        let bytes_max = self.config.message_bytes_max.max(Limits::default().bytes_max);
        Limits { bytes_max, inflated_bytes_max: bytes_max, ..Limits::default() }
    }

    pub(super) fn command(
        &mut self,
        device: Option<DeviceId>,
        bytes: &[u8],
        retain: bool,
        now: Now,
    ) -> Result<(), String> {
        if retain {
            return Err("a retained command is as old as it may be; commands are not retained".to_owned());
        }
        let entity = match &device {
            None => Some(&self.node),
            Some(device) => self.devices.get(device).map(|known| &known.entity),
        };
        let command = command::read(entity, device.is_some(), bytes, &self.limits())?;
        if command.rebirth {
            match &device {
                // tck-id-operational-behavior-data-commands-rebirth-action-1, tck-id-operational-behavior-data-commands-rebirth-action-2
                None => self.request_rebirth(),
                Some(device) => self.request_resend(device, now),
            }
        }
        match command.metrics? {
            metrics if metrics.is_empty() && command.rebirth_named => {}
            metrics => {
                let command = NodeEvent::Command { device, metrics, timestamp: command.timestamp };
                self.take_command(command, bytes.len(), now)?;
            }
        }
        Ok(())
    }
}
