//! What arrives: a message finds its node, its place in the order of `seq`, and its meaning for the replica.

use std::slice;

use bytes::Bytes;

use super::node_table::{Birth, BirthVerdict, NodeIndex};
use super::replica::{Replica, Unknown};
use super::resequencer::{self, BufferedMessage, Resequencer, SequencePosition};
use super::{EXCESSES_MAX, HostApplication, HostEvent, HostOutput, Liveness, Phase, TOO_MANY_HELD, interest};
use crate::heartbeat::Heartbeat;
use crate::metric::{DataType, Metric};
use crate::name::{DeviceId, HostId};
use crate::payload::{self, DecodeError, Inflated, MetricRef, PayloadRef};
use crate::seq::{BdSeq, Seq};
use crate::session::RETAINED;
use crate::state::HostState;
use crate::time::Now;
use crate::topic::{Levels, MessageKind, Topic};

impl HostApplication {
    /// Messages count in this phase.
    pub(super) const fn receives(&self) -> bool {
        matches!(self.phase, Phase::Subscribing | Phase::Online)
    }

    pub(super) fn message(&mut self, text: &str, bytes: &Bytes, retain: bool, now: Now) {
        if !self.receives() {
            return;
        }
        if !self.config.messages.is_empty() && !retain {
            self.messages_of(text, bytes);
        }
        if let Some((at, kind, device)) = self.known(text) {
            return self.of_node(at, kind, device, text, bytes, retain, now);
        }
        let topic = match Topic::parse(text) {
            Ok(topic) => topic,
            Err(error) => return self.reject(text, error.to_string()),
        };
        let (node, kind, device) = match topic {
            Topic::State { host } => return self.state_of(host, text, bytes, now),
            Topic::Node { node, kind } => (node, kind, None),
            Topic::Device { node, kind, device } => (node, kind, Some(device)),
        };
        let is_command = matches!(kind, MessageKind::NCmd | MessageKind::DCmd);
        let at = match self.nodes.find(&node) {
            Some(at) => at,
            // None of these makes a node known.
            None if is_command || kind == MessageKind::NDeath => return,
            None if retain => return self.reject(text, RETAINED),
            None => match self.admit(&node, text, false, now) {
                Some(at) => at,
                None => return,
            },
        };
        self.of_node(at, kind, device, text, bytes, retain, now);
    }

    /// The way of almost every message: its node and its device are known, so nothing of the topic has to be checked or copied.
    fn known(&self, topic: &str) -> Option<(NodeIndex, MessageKind, Option<DeviceId>)> {
        let Levels { group, kind, edge_node, device } = Levels::of(topic)?;
        let at = self.nodes.find_levels(group, edge_node)?;
        let Some(device) = device else { return Some((at, kind, None)) };
        let (device, _) = self.nodes.get(at)?.devices.get_key_value(device)?;
        Some((at, kind, Some(device.clone())))
    }

    #[expect(clippy::too_many_arguments, reason = "a message, taken apart")]
    fn of_node(
        &mut self,
        at: NodeIndex,
        kind: MessageKind,
        device: Option<DeviceId>,
        topic: &str,
        bytes: &Bytes,
        retain: bool,
        now: Now,
    ) {
        if matches!(kind, MessageKind::NCmd | MessageKind::DCmd) {
            // A wide subscription shows the commands of every host, the own ones included.
            return;
        }
        if retain {
            return self.reject(topic, RETAINED);
        }
        match kind {
            MessageKind::NBirth => self.node_birth(at, topic, bytes, now),
            MessageKind::NDeath => self.node_death(at, topic, bytes, now),
            _ => self.sequenced(at, kind, device, topic, bytes, now),
        }
    }

    /// Reports the messages in a node's birth or data, in whatever condition the node is. One that cannot be read is left out; the replica of the node reports why.
    fn messages_of(&mut self, topic: &str, bytes: &Bytes) {
        let Ok(Topic::Node { node, kind: MessageKind::NBirth | MessageKind::NData }) = Topic::parse(topic) else {
            return;
        };
        let mut inflated = Inflated::default();
        let Ok(payload) = payload::decode_ref(bytes, &self.limits, &mut inflated) else { return };
        let read = |raw: &MetricRef<'_>| {
            let name = raw.name.filter(|name| self.config.messages.contains(name))?;
            let datatype = raw.own_datatype().unwrap_or(DataType::Bytes);
            let value = raw.value.as_ref()?.resolve(datatype, None).ok()?;
            Some(Metric { value: Some(value), timestamp: raw.timestamp, ..Metric::null(name, datatype) })
        };
        let metrics: Vec<Metric> = payload.metrics.iter().filter_map(read).collect();
        if !metrics.is_empty() {
            self.event(HostEvent::NodeMessages { node, metrics });
        }
    }

    pub(super) fn state_of(&mut self, host: HostId, topic: &str, bytes: &[u8], now: Now) {
        let state = match HostState::decode(bytes) {
            Ok(state) => state,
            Err(error) => return self.reject(topic, error.to_string()),
        };
        let is_online = self.phase == Phase::Online;
        let own = self.own_state.as_mut().filter(|own| is_online && *own.host() == host);
        let answer = own.and_then(|own| own.received(state));
        self.heed_host(&host, state, now);
        self.event(HostEvent::HostState { host, state });
        // tck-id-message-flow-hid-sparkplug-state-message-delivered. Before the own birth that is the end of the last session, during a stop the own death. Most servers deliver
        // the retained end of the last session behind their SUBACK, when the own birth is on its way already. It is answered with the same birth once more. The standard exempts no
        // delivery after the birth. The retain flag does not distinguish an old offline from a present one: a will that a bridge or another server of a cluster passes on may come
        // with it. A birth too many changes nothing, one too few leaves the host offline for everyone: only while an answer is on its way is there no other.
        if let Some(birth) = answer {
            self.publish(birth);
        }
    }

    pub(super) fn lost(&mut self, topic: &str, now: Now) {
        if let Ok(Topic::Node { node, .. } | Topic::Device { node, .. }) = Topic::parse(topic)
            && let Some(at) = self.admit(&node, topic, false, now)
        {
            self.mark_stale(at, "messages were dropped because the application did not keep up", now);
        }
    }

    pub(super) fn oversized(&mut self, topic: &str, reason: String, retain: bool, now: Now) {
        match Topic::parse(topic) {
            // What is retained is not taken anyway.
            Ok(Topic::Node { node, .. } | Topic::Device { node, .. }) if !retain => {
                if let Some(at) = self.admit(&node, topic, false, now) {
                    self.exceeds(at, topic, reason, now);
                }
            }
            _ => self.reject(topic, reason),
        }
    }

    /// A message of the node is larger than what is taken. Births that are too large stay so: the first is reported, and the one after which no other is asked for.
    fn exceeds(&mut self, at: NodeIndex, topic: &str, reason: String, now: Now) {
        let Some(known) = self.nodes.get_mut(at) else { return };
        known.excesses = known.excesses.saturating_add(1);
        known.exceeded_at = now.mono;
        if known.excesses >= EXCESSES_MAX {
            self.rebirths.cancel(at, known);
        }
        match known.excesses {
            1 => self.reject(topic, reason),
            EXCESSES_MAX => self.reject(
                topic,
                format!("{reason}; that happened {EXCESSES_MAX} times, so the node is not asked for rebirth any more"),
            ),
            _ => {}
        }
        // What is known of it must not be forgotten, or it would be asked again.
        self.keep(at);
        self.mark_stale(at, "a message exceeds the limits", now);
    }

    pub(super) fn node_birth(&mut self, at: NodeIndex, topic: &str, bytes: &Bytes, now: Now) {
        let mut inflated = Inflated::default();
        let Some(payload) = self.readable(at, topic, bytes, &mut inflated, now) else { return };
        let (bd_seq, seq) = match (BdSeq::of(&payload), seq_of(&payload)) {
            (Ok(bd_seq), Ok(seq)) => (bd_seq, seq),
            (Err(reason), _) | (_, Err(reason)) => return self.unreadable(at, topic, reason, now),
        };
        let digest = resequencer::digest(MessageKind::NBirth, None, bytes);
        let Some(known) = self.nodes.get_mut(at) else { return };
        match known.judge_birth(bd_seq, payload.timestamp, digest) {
            BirthVerdict::Duplicate => return,
            // Who does not ask takes what it gets, as long as that does not raise the dead.
            BirthVerdict::Doubt if !self.config.rebirth_requests && known.liveness != Liveness::Dead => {}
            BirthVerdict::Doubt => return self.mark_stale(at, "an NBIRTH is older than the one before it", now),
            BirthVerdict::Take => {}
        }
        self.stop_gap_timer(at);
        self.keep(at);
        let Some((node, known)) = self.nodes.entry_mut(at) else { return };
        let node = node.clone();
        self.rebirths.cancel(at, known);
        let timestamp = payload.timestamp.unwrap_or(now.wall);
        let mut problems = Vec::new();
        let replica = Replica::from_birth(&payload.metrics, timestamp, &mut self.shapes, &mut problems);
        let metrics = replica.metrics().collect();
        let aliases = self.config.aliases_of(&replica, &node, None);
        let mut order = Resequencer::after_birth(seq, digest);
        let earlier = known.birth.take().map(|birth| birth.order);
        let held_before = earlier.as_ref().map_or(0, |order| order.held().1);
        if let Some(earlier) = earlier {
            order.inherit(earlier, timestamp);
        }
        self.groups.held(known.group, held_before, order.held().1);
        self.groups.replica(known.group, known.replica_bytes, replica.bytes());
        known.replica_bytes = replica.bytes();
        known.birth = Some(Birth { bd_seq, timestamp, digest, received: now.mono, replica, order });
        known.liveness = Liveness::Alive;
        known.is_seen = true;
        known.stale_at = None;
        known.devices.clear();
        known.devices_refused = false;
        // A device of the same birth may exceed the limits again at once.
        if now.mono >= known.exceeded_at + self.config.rebirth_interval.1 * 2 {
            known.excesses = 0;
        }
        let uuid = payload.uuid.map(Into::into);
        self.event(HostEvent::NodeBirth { node, bd_seq, timestamp, uuid, metrics });
        self.outputs.extend(aliases.map(HostOutput::Event));
        self.report(topic, &problems);
        if self.weigh(at, topic, now) {
            self.drain(at, now);
        }
    }

    pub(super) fn node_death(&mut self, at: NodeIndex, topic: &str, bytes: &Bytes, now: Now) {
        let Some(known) = self.nodes.get(at).filter(|known| known.is_seen) else { return };
        if known.liveness == Liveness::Dead {
            return;
        }
        let mut inflated = Inflated::default();
        let Some(payload) = self.readable(at, topic, bytes, &mut inflated, now) else { return };
        let bd_seq = match BdSeq::of(&payload) {
            Ok(bd_seq) => bd_seq,
            Err(reason) => return self.unreadable(at, topic, reason, now),
        };
        let Some((node, known)) = self.nodes.entry_mut(at) else { return };
        let node = node.clone();
        if known.birth.as_ref().map(|birth| birth.bd_seq) != Some(bd_seq) {
            // The will of a session that has been followed by another.
            return;
        }
        // tck-id-operational-behavior-edge-node-termination-host-action-ndeath-node-offline and its siblings: stamped with the own clock
        known.liveness = Liveness::Dead;
        known.stale_at = Some(now.wall);
        for replica in known.devices.values_mut() {
            replica.dead_at.get_or_insert(now.wall);
        }
        self.rebirths.cancel(at, known);
        self.close_gap(at);
        self.event(HostEvent::NodeDeath { node, timestamp: now.wall });
    }

    /// DBIRTH, NDATA, DDATA, DDEATH: what has a place in the order of `seq`.
    pub(super) fn sequenced(
        &mut self,
        at: NodeIndex,
        kind: MessageKind,
        device: Option<DeviceId>,
        topic: &str,
        bytes: &Bytes,
        now: Now,
    ) {
        match self.nodes.get(at).map(|known| (known.liveness, known.is_seen)) {
            Some((Liveness::Alive, _)) => {}
            Some((Liveness::Dead, true)) => return self.want_rebirth(at, "a message came after the death", now),
            Some((Liveness::Stale, _)) => {
                return self.want_rebirth(at, "a message came while the replica is stale", now);
            }
            _ => return self.mark_stale(at, "a message came before the birth", now),
        }
        if self.plain_data(at, kind, device.as_ref(), bytes, now).is_some() {
            return;
        }
        let mut inflated = Inflated::default();
        let Some(payload) = self.readable(at, topic, bytes, &mut inflated, now) else { return };
        let seq = match seq_of(&payload) {
            Ok(seq) => seq,
            Err(reason) => return self.unreadable(at, topic, reason, now),
        };
        let digest = resequencer::digest(kind, device.as_ref(), bytes);
        let Some(known) = self.nodes.get_mut(at) else { return };
        let group = known.group;
        let Some(birth) = known.birth.as_mut() else { return };
        match birth.order.place(seq, digest) {
            SequencePosition::Duplicate => {}
            SequencePosition::Next => {
                birth.order.advance(digest);
                self.process(at, kind, device, &payload, topic, now);
                self.drain(at, now);
            }
            SequencePosition::Early => {
                // What was sent before the birth does not belong to its order; but a clock that was set back looks the same, so the gap counts.
                if payload.timestamp.is_none_or(|t| t >= birth.timestamp) {
                    let before = birth.order.held();
                    let held = BufferedMessage {
                        kind,
                        device,
                        payload: Bytes::copy_from_slice(bytes),
                        timestamp: payload.timestamp,
                        received: now.mono,
                    };
                    if birth.order.hold(seq, held).is_err() {
                        return self.mark_stale(at, "two messages have the same seq", now);
                    }
                    let after = birth.order.held();
                    self.groups.held(group, before.1, after.1);
                    if after.0 > self.config.reorder_messages_max {
                        return self.mark_stale(at, TOO_MANY_HELD, now);
                    }
                }
                self.open_gap(at, now.mono);
                self.relieve_held(now);
            }
        }
    }

    /// The way of almost every message: data of numbers that is the next in order, with nothing waiting for it. None, and nothing is done, if it is anything else.
    fn plain_data(
        &mut self,
        at: NodeIndex,
        kind: MessageKind,
        device: Option<&DeviceId>,
        bytes: &[u8],
        now: Now,
    ) -> Option<()> {
        let (node, known) = self.nodes.entry_mut(at)?;
        let birth = known.birth.as_mut()?;
        if known.gap_due.is_some() || birth.order.held().0 > 0 {
            return None;
        }
        let replica = match (kind, device) {
            (MessageKind::NData, None) => &mut birth.replica,
            (MessageKind::DData, Some(device)) => {
                known.devices.get_mut(device).filter(|replica| replica.dead_at.is_none())?
            }
            _ => return None,
        };
        let head = replica.find_plain(bytes, &self.limits, &mut self.changes)?;
        let seq = Seq::from_wire(head.seq?).ok()?;
        let digest = resequencer::digest(kind, device, bytes);
        if birth.order.place(seq, digest) != SequencePosition::Next {
            return None;
        }
        birth.order.advance(digest);
        let timestamp = head.timestamp.unwrap_or(now.wall);
        let (node, metrics) = (node.clone(), replica.apply_plain(&self.changes, timestamp));
        self.event(match device {
            None => HostEvent::NodeData { node, timestamp, metrics },
            Some(device) => HostEvent::DeviceData { node, device: device.clone(), timestamp, metrics },
        });
        Some(())
    }

    /// Processes what was held and has its turn now. What still waits may do so for the reorder timeout since it arrived.
    pub(super) fn drain(&mut self, at: NodeIndex, now: Now) {
        loop {
            let alive = self.nodes.entry_mut(at).filter(|(_, known)| known.liveness == Liveness::Alive);
            let Some((node, known)) = alive else { return };
            if known.gap_due.is_none() && known.birth.as_ref().is_none_or(|birth| birth.order.held().0 == 0) {
                return;
            }
            let Some(birth) = known.birth.as_mut() else { return };
            let Some(held) = birth.order.take_next() else { break };
            birth.order.advance(resequencer::digest(held.kind, held.device.as_ref(), &held.payload));
            self.groups.held(known.group, held.payload.len(), 0);
            let topic = Topic::of(node.clone(), held.kind, held.device.clone()).to_string();
            // It was readable when it arrived.
            let mut inflated = Inflated::default();
            if let Ok(payload) = payload::decode_ref(&held.payload, &self.limits, &mut inflated) {
                self.process(at, held.kind, held.device, &payload, &topic, now);
            }
        }
        // tck-id-operational-behavior-host-reordering-success
        self.stop_gap_timer(at);
        if let Some(since) =
            self.nodes.get(at).and_then(|known| known.birth.as_ref()).and_then(|birth| birth.order.waiting_since())
        {
            self.open_gap(at, since);
        }
    }

    // long: one arm for each kind of message, with what it changes in the memory that is counted
    pub(super) fn process(
        &mut self,
        at: NodeIndex,
        kind: MessageKind,
        device: Option<DeviceId>,
        payload: &PayloadRef<'_>,
        topic: &str,
        now: Now,
    ) {
        let Some((node, known)) = self.nodes.entry_mut(at) else { return };
        let timestamp = payload.timestamp.unwrap_or(now.wall);
        let mut problems = Vec::new();
        let mut bytes = known.replica_bytes;
        let mut aliases = None;
        let event = match (kind, device) {
            (MessageKind::DBirth, Some(device)) => {
                if !interest::keeps_device(&self.config.interests, node, &device) {
                    return;
                }
                if !known.devices.contains_key(&device) && known.devices.len() >= self.config.devices_max {
                    known.devices.retain(|_, replica| {
                        let is_alive = replica.dead_at.is_none();
                        bytes -= if is_alive { 0 } else { replica.bytes() };
                        is_alive
                    });
                    if known.devices.len() >= self.config.devices_max {
                        self.groups.replica(known.group, std::mem::replace(&mut known.replica_bytes, bytes), bytes);
                        if !known.devices_refused {
                            known.devices_refused = true;
                            self.reject(
                                topic,
                                format!("more than {} devices; further ones are not kept", self.config.devices_max),
                            );
                        }
                        return;
                    }
                }
                let replica = Replica::from_birth(&payload.metrics, timestamp, &mut self.shapes, &mut problems);
                let metrics = replica.metrics().collect();
                aliases = self.config.aliases_of(&replica, node, Some(&device));
                bytes += replica.bytes();
                bytes -= known.devices.insert(device.clone(), replica).map_or(0, |earlier| earlier.bytes());
                Ok(HostEvent::DeviceBirth { node: node.clone(), device, timestamp, metrics })
            }
            (MessageKind::DDeath, Some(device)) => match known.devices.get_mut(&device).filter(|d| d.dead_at.is_none())
            {
                Some(replica) => {
                    // tck-id-operational-behavior-edge-node-termination-host-action-ddeath-devices-offline,
                    // tck-id-operational-behavior-edge-node-termination-host-action-ddeath-devices-tags-stale
                    replica.dead_at = Some(timestamp);
                    Ok(HostEvent::DeviceDeath { node: node.clone(), device, timestamp })
                }
                // The death of a device that is dead or was never born changes nothing.
                None => return,
            },
            (MessageKind::NData, None) => match &mut known.birth {
                Some(birth) => {
                    let heartbeat = Heartbeat::of(payload);
                    let metrics = match &heartbeat {
                        Some(heartbeat) if heartbeat.birth_timestamp != birth.timestamp => {
                            return self.mark_stale(at, "a birth was missed", now);
                        }
                        Some(heartbeat) => slice::from_ref(&heartbeat.metric),
                        None => payload.metrics.as_slice(),
                    };
                    bytes -= birth.replica.bytes();
                    let changed = birth.replica.apply(metrics, timestamp, &mut self.found, &mut problems);
                    bytes += birth.replica.bytes();
                    changed.map(|metrics| HostEvent::NodeData { node: node.clone(), timestamp, metrics })
                }
                None => return,
            },
            (MessageKind::DData, Some(device)) => {
                match known.devices.get_mut(&device).filter(|d| d.dead_at.is_none()) {
                    Some(replica) => {
                        bytes -= replica.bytes();
                        let changed = replica.apply(&payload.metrics, timestamp, &mut self.found, &mut problems);
                        bytes += replica.bytes();
                        changed.map(|metrics| HostEvent::DeviceData { node: node.clone(), device, timestamp, metrics })
                    }
                    None if known.devices_refused || !interest::keeps_device(&self.config.interests, node, &device) => {
                        return;
                    }
                    None => Err(Unknown(format!("device {device} has data but is not born"))),
                }
            }
            _ => return,
        };
        self.groups.replica(known.group, std::mem::replace(&mut known.replica_bytes, bytes), bytes);
        match event {
            Ok(event) => self.outputs.extend([event].into_iter().chain(aliases).map(HostOutput::Event)),
            Err(Unknown(reason)) => self.mark_stale(at, &reason, now),
        }
        self.report(topic, &problems);
        self.weigh(at, topic, now);
    }

    /// Metrics that could not be read, in one event.
    pub(super) fn report(&mut self, topic: &str, problems: &[String]) {
        match problems {
            [] => {}
            [one] => self.reject(topic, one.clone()),
            [first, others @ ..] => self.reject(topic, format!("{first}; and {} more problems", others.len())),
        }
    }

    pub(super) fn readable<'a>(
        &mut self,
        at: NodeIndex,
        topic: &str,
        bytes: &'a [u8],
        inflated: &'a mut Inflated,
        now: Now,
    ) -> Option<PayloadRef<'a>> {
        match payload::decode_ref(bytes, &self.limits, inflated) {
            Ok(payload) => return Some(payload),
            Err(
                error @ (DecodeError::TooManyMetrics { .. }
                | DecodeError::TooLarge { .. }
                | DecodeError::InflatedTooLarge { .. }
                | DecodeError::TooManyElements { .. }),
            ) => self.exceeds(at, topic, error.to_string(), now),
            Err(error) => self.unreadable(at, topic, error.to_string(), now),
        }
        None
    }

    pub(super) fn unreadable(&mut self, at: NodeIndex, topic: &str, reason: String, now: Now) {
        self.reject(topic, reason);
        self.mark_stale(at, "a message could not be read", now);
    }

    /// The replica is not what the node says any more, or never was.
    pub(super) fn mark_stale(&mut self, at: NodeIndex, reason: &str, now: Now) {
        self.close_gap(at);
        let Some((node, known)) = self.nodes.entry_mut(at) else { return };
        if known.liveness == Liveness::Alive || !known.is_seen {
            known.is_seen = true;
            known.liveness = Liveness::Stale;
            known.stale_at = Some(now.wall);
            let node = node.clone();
            self.event(HostEvent::NodeStale { node, reason: reason.to_owned() });
        }
        self.want_rebirth(at, reason, now);
    }
}

/// (tck-id-payloads-sequence-num-always-included, tck-id-payloads-sequence-num-req-nbirth)
fn seq_of(payload: &PayloadRef<'_>) -> Result<Seq, String> {
    let number = payload.seq.ok_or("it has no seq")?;
    Seq::from_wire(number).map_err(|n| format!("its seq {n} is not within 0..=255"))
}
