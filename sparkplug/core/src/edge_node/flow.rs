//! What goes out, and when: births in bursts, what has to wait for them, rebirths, history.

use std::collections::BTreeSet;

use super::birth::{self, Sample};
use super::queue::Item;
use super::{BirthRun, EdgeNode, NodeEvent, Phase};
use crate::metric::Metric;
use crate::name::DeviceId;
use crate::time::Now;
use crate::topic::{MessageKind, Topic};

impl EdgeNode {
    /// Does whatever the present time allows.
    pub(super) fn advance(&mut self, now: Now) {
        if self.phase == Phase::Birthing {
            self.continue_births(now);
        }
        self.look_for_echo(now);
        if self.phase == Phase::Born && (self.folded || self.rebirth.is_due(now.mono)) {
            self.start_births(true, now);
        }
        if self.phase == Phase::Born {
            self.drain_waiting(now);
            self.resend_due(now);
            self.forward_history(now);
        }
        self.release_commands(now);
        self.beat(now);
        self.report_history();
    }

    /// Sends a heartbeat when nothing has been sent for so long; every other message begins the quiet time again.
    fn beat(&mut self, now: Now) {
        let Some(interval) = self.config.heartbeat.filter(|_| self.phase == Phase::Born) else {
            self.heartbeat = None;
            return;
        };
        let sent = self.outputs.sent();
        match self.heartbeat.filter(|(then, _)| *then == sent) {
            Some((_, due)) if due > now.mono => return,
            Some(_) => self.outputs.heartbeat(now.wall),
            None => {}
        }
        self.heartbeat = Some((self.outputs.sent(), now.mono + interval));
    }

    pub(super) fn request_rebirth(&mut self) {
        // Before its first birth of a session a node is about to be born anyway.
        if matches!(self.phase, Phase::Birthing | Phase::Born) {
            self.rebirth.request();
        }
    }

    /// NBIRTH at once; DBIRTHs follow in bursts. Nothing else leaves in between
    /// (tck-id-payloads-dbirth-order, tck-id-payloads-ndata-order, tck-id-payloads-ddata-order).
    pub(super) fn start_births(&mut self, rebirth: bool, now: Now) {
        self.rebirth.started(now.mono);
        drop(self.drop_waiting_state());
        self.folded = false;
        self.resend.clear();
        for device in self.devices.values_mut() {
            device.born = false;
            device.queued = true;
            device.entity.set_announced(false);
        }
        self.node.set_announced(true);
        // tck-id-operational-behavior-data-commands-rebirth-action-3: the bdSeq of the session
        let speaker = self.speaker.as_mut().map(|own| own.metrics(now)).unwrap_or_default();
        self.outputs.nbirth(self.bd_seq, &speaker, &self.node, now.wall);
        self.births = BirthRun { queue: self.devices.keys().cloned().collect(), rebirth, lingering: BTreeSet::new() };
        self.phase = Phase::Birthing;
        self.pause_until = now.mono;
        self.continue_births(now);
    }

    pub(super) fn continue_births(&mut self, now: Now) {
        if now.mono < self.pause_until {
            return;
        }
        let mut room = self.config.birth_burst.max(1);
        while room > 0 {
            let Some(device) = self.births.queue.pop_front() else { break };
            // A device that died and came back during these births is born after its death.
            let may_be_born = !self.waiting.has_death_of(&device) && !self.births.lingering.contains(&device);
            if may_be_born && self.devices.get(&device).is_some_and(|known| !known.born) {
                self.send_device_birth(&device, now);
                room -= 1;
            }
        }
        if !self.births.queue.is_empty() {
            self.pause_until = now.mono + self.config.birth_pause;
            return;
        }
        if room < self.config.birth_burst.max(1) && !self.waiting.is_empty() {
            self.pause_until = now.mono + self.config.birth_pause;
        }
        self.phase = Phase::Born;
        self.backoff.reset();
        if let Some(history) = &mut self.history {
            history.born(now.mono);
        }
        self.outputs.event(NodeEvent::Born { bd_seq: self.bd_seq, rebirth: self.births.rebirth });
    }

    pub(super) fn send_device_birth(&mut self, device: &DeviceId, now: Now) {
        if let Some(known) = self.devices.get_mut(device) {
            known.born = true;
            known.queued = false;
            known.entity.set_announced(true);
            self.outputs.dbirth(device, &known.entity, now.wall);
        }
    }

    pub(super) fn send_death(&mut self, device: &DeviceId, now: Now) {
        if self.must_wait() {
            self.wait(Item::Death { device: device.clone() });
        } else if self.phase == Phase::Born {
            // tck-id-operational-behavior-device-ddeath
            self.outputs.ddeath(device, now.wall);
        }
    }

    pub(super) fn send_data(&mut self, device: Option<DeviceId>, samples: Vec<Sample>, now: Now) {
        if samples.is_empty() {
            return;
        }
        if self.must_wait() {
            self.wait(Item::Data { device, samples });
        } else if self.phase == Phase::Born {
            self.send_live(device.as_ref(), &samples, now);
        } else {
            self.keep_samples(device.as_ref(), &samples);
        }
    }

    /// Whether messages of what is born have to queue up: births are going out, or others wait already.
    pub(super) fn must_wait(&self) -> bool {
        match self.phase {
            Phase::Birthing => true,
            Phase::Born => self.folded || !self.waiting.is_empty(),
            _ => false,
        }
    }

    pub(super) fn wait(&mut self, item: Item) {
        if !self.folded {
            self.waiting.push(item);
            if self.waiting.state_items() > self.config.data_waiting_max {
                self.fold_waiting();
            }
            return;
        }
        match item {
            Item::Death { device } => {
                self.births.lingering.insert(device);
            }
            Item::Data { device, samples } => self.keep_samples(device.as_ref(), &samples),
            Item::Birth { .. } | Item::Historical { .. } => {}
        }
    }

    /// What waits becomes part of one further rebirth.
    fn fold_waiting(&mut self) {
        let devices = self.drop_waiting_state();
        self.births.lingering.extend(devices);
        self.folded = true;
    }

    /// The first item holds a metric that only the rebirth to come announces.
    pub(super) fn waiting_is_blocked(&self) -> bool {
        match self.waiting.front() {
            None => true,
            Some(Item::Historical { device: None, metrics }) if self.rebirth.is_requested() => {
                metrics.iter().any(|m| self.node.get(&m.name).is_some_and(|slot| !slot.announced))
            }
            Some(_) => false,
        }
    }

    pub(super) fn drain_waiting(&mut self, now: Now) {
        if now.mono < self.pause_until {
            return;
        }
        for _ in 0..self.config.birth_burst.max(1) {
            if self.waiting_is_blocked() {
                return;
            }
            match self.waiting.pop() {
                Some(Item::Data { device, samples }) => self.send_live(device.as_ref(), &samples, now),
                Some(Item::Death { device }) => self.outputs.ddeath(&device, now.wall),
                Some(Item::Birth { device }) => {
                    if self.devices.get(&device).is_some_and(|known| !known.born) {
                        self.send_device_birth(&device, now);
                    }
                }
                Some(Item::Historical { device, metrics }) => self.send_historical(device, metrics, now),
                None => return,
            }
        }
        self.pause_until = now.mono + self.config.birth_pause;
    }

    pub(super) fn send_historical(&mut self, device: Option<DeviceId>, metrics: Vec<Metric>, now: Now) {
        if device.as_ref().is_some_and(|id| !self.devices.get(id).is_some_and(|known| known.born)) {
            return self.reject_history(device, "its device is gone; historical values of it are dropped");
        }
        let samples = self.sayable(device.as_ref(), metrics);
        if samples.is_empty() {
            return self.reject_history(device, "its metrics are gone; historical values of them are dropped");
        }
        self.outputs.data(device.as_ref(), &samples, now.wall);
    }

    pub(super) fn reject_history(&mut self, device: Option<DeviceId>, reason: &str) {
        let topic = Topic::of(self.config.descriptor.clone(), MessageKind::NData, device).to_string();
        self.outputs.event(NodeEvent::Rejected { topic, reason: reason.to_owned() });
    }

    /// `Device Control/Rebirth`: the values of the device again, at most once in the interval of rebirths.
    pub(super) fn request_resend(&mut self, device: &DeviceId, now: Now) {
        if let (Phase::Born, Some(known)) = (self.phase, self.devices.get(device).filter(|known| known.born)) {
            let due = known.resent.map_or(now.mono, |at| at + self.config.rebirth_interval_min);
            self.resend.entry(device.clone()).or_insert(due.max(now.mono));
        }
    }

    pub(super) fn resend_due(&mut self, now: Now) {
        let due: Vec<DeviceId> =
            self.resend.iter().filter(|(_, at)| **at <= now.mono).map(|(device, _)| device.clone()).collect();
        for device in due {
            self.resend.remove(&device);
            let Some(known) = self.devices.get_mut(&device).filter(|known| known.born) else { continue };
            known.resent = Some(now.mono);
            let sample =
                |slot: &birth::Slot| Sample { metric: slot.metric.clone(), alias: slot.alias, properties: true };
            let samples = known.entity.slots.iter().map(sample).collect();
            self.send_data(Some(device), samples, now);
        }
    }
}
