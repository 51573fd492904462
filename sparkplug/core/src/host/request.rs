//! What the application asks for: commands, nodes it expects or forgets, the end.

use super::{HostApplication, HostEvent, Liveness, Phase};
use crate::metric::Metric;
use crate::name::{DeviceId, EdgeNodeDescriptor};
use crate::payload::{self, EncodeOptions, Form, Payload};
use crate::session::{Publish, QoS, TransportAction};
use crate::time::Now;
use crate::topic::{MessageKind, Topic};

impl HostApplication {
    /// (tck-id-topics-ncmd-topic, tck-id-topics-ncmd-mqtt, tck-id-topics-ncmd-timestamp, tck-id-topics-ncmd-payload, tck-id-topics-dcmd-topic,
    /// tck-id-topics-dcmd-mqtt, tck-id-topics-dcmd-timestamp, tck-id-topics-dcmd-payload, tck-id-payloads-ncmd-seq, tck-id-payloads-dcmd-seq)
    pub(super) fn command(
        &mut self,
        node: EdgeNodeDescriptor,
        device: Option<DeviceId>,
        metrics: Vec<Metric>,
        now: Now,
    ) {
        if let Some(reason) = self.refusal(&node, device.as_ref(), &metrics) {
            let topic = Topic::of(node, MessageKind::NCmd, device).to_string();
            return self.event(HostEvent::Rejected { topic, reason });
        }
        let payload = Payload { timestamp: Some(now.wall), seq: None, uuid: None, body: None, metrics };
        self.publish(Publish {
            topic: Topic::of(node, MessageKind::NCmd, device).to_string(),
            payload: payload::encode(
                &payload,
                &EncodeOptions { dialect: self.config.dialect, ..EncodeOptions::new(Form::Command) },
            ),
            qos: QoS::AtMostOnce,
            retain: false,
        });
    }

    /// What a living node was not born with cannot be commanded. What a node that is not alive is about to be born with is unknown.
    ///
    /// (tck-id-operational-behavior-data-commands-ncmd-metric-name, tck-id-operational-behavior-data-commands-ncmd-metric-value,
    /// tck-id-operational-behavior-data-commands-dcmd-metric-name, tck-id-operational-behavior-data-commands-dcmd-metric-value)
    fn refusal(&self, node: &EdgeNodeDescriptor, device: Option<&DeviceId>, metrics: &[Metric]) -> Option<String> {
        let unfit = |metric: &Metric| metric.check().err().map(|rule| format!("metric {:?}: {rule}", metric.name));
        if let Some(reason) = metrics.iter().find_map(unfit) {
            return Some(reason);
        }
        if !self.config.messages.is_empty() {
            return None;
        }
        let known = self.seen(node).filter(|known| known.liveness == Liveness::Alive)?;
        let replica = match device {
            None => known.birth.as_ref().map(|birth| &birth.replica),
            Some(device) => known.devices.get(device).filter(|replica| replica.dead_at.is_none()),
        };
        let is_bound = !self.config.commands_beyond_births;
        let Some(replica) = replica else {
            return device.filter(|_| is_bound).map(|device| format!("device {device} is not born"));
        };
        metrics.iter().find_map(|metric| match replica.datatype(&metric.name) {
            Some(datatype) if datatype == metric.datatype => None,
            Some(datatype) => Some(format!(
                "metric {:?} is {datatype:?} in the birth, but {:?} in the command",
                metric.name, metric.datatype
            )),
            None => is_bound.then(|| format!("metric {:?} is not in the birth", metric.name)),
        })
    }

    pub(super) fn expect(&mut self, node: &EdgeNodeDescriptor, now: Now) {
        let Some(at) = self.admit(node, "expected node", true, now) else { return };
        if let Some(known) = self.nodes.get_mut(at) {
            if !known.is_named() {
                self.groups.name(known.group);
            }
            known.expected = true;
            self.rebirths.rank(at, known);
            let is_alive = known.liveness == Liveness::Alive;
            self.keep(at);
            if !is_alive {
                self.want_rebirth(at, "expected", now);
            }
        }
    }

    pub(super) fn allow(&mut self, node: &EdgeNodeDescriptor, now: Now) {
        let Some(at) = self.admit(node, "allowed node", true, now) else { return };
        if let Some(known) = self.nodes.get_mut(at) {
            if !known.is_named() {
                self.groups.name(known.group);
            }
            known.allowed = true;
            let is_alive = known.liveness == Liveness::Alive;
            self.keep(at);
            if !is_alive {
                self.want_rebirth(at, "allowed", now);
            }
        }
    }

    pub(super) fn forget(&mut self, node: &EdgeNodeDescriptor) {
        if let Some(at) = self.nodes.find(node) {
            self.drop_node(at);
        }
    }

    pub(super) fn stop(&mut self, now: Now) {
        self.stopping = true;
        match self.phase {
            Phase::Away { .. } => {
                self.phase = Phase::Stopped;
                self.event(HostEvent::Stopped);
            }
            Phase::Leaving | Phase::Stopped => {}
            Phase::Connecting | Phase::Subscribing | Phase::Online => self.leave(now),
        }
    }

    /// The session is replaced by another one.
    pub(super) fn outdated(&mut self, now: Now) {
        if matches!(self.phase, Phase::Subscribing | Phase::Online) {
            self.leave(now);
        }
    }

    /// (tck-id-operational-behavior-host-application-termination, tck-id-operational-behavior-host-application-death-payload)
    fn leave(&mut self, now: Now) {
        if self.phase == Phase::Online
            && let Some(own) = &self.own_state
        {
            let death = own.death(now.wall);
            self.publish(death);
        }
        self.action(TransportAction::Disconnect);
        self.phase = Phase::Leaving;
    }
}
