//! What the application says: each [`NodeUpdate`](super::NodeUpdate) is checked, taken into the birth state, and its consequences are handed on to be sent.

use super::birth::{self, Change, Entity};
use super::queue::Item;
use super::session::Leave;
use super::{Device, EdgeNode, NodeEvent, Phase, UpdateError};
use crate::metric::{DOCUMENTATION, Metric};
use crate::name::DeviceId;
use crate::time::Now;

impl EdgeNode {
    pub(super) fn set(
        &mut self,
        device: Option<DeviceId>,
        mut metrics: Vec<Metric>,
        now: Now,
    ) -> Result<(), UpdateError> {
        let known = match &device {
            None => Some(&self.node),
            Some(device) => self.devices.get(device).map(|known| &known.entity),
        };
        if let Some(known) = known {
            known.describe(&mut metrics);
        }
        self.replace(device, metrics, now)
    }

    pub(super) fn replace(
        &mut self,
        device: Option<DeviceId>,
        mut metrics: Vec<Metric>,
        now: Now,
    ) -> Result<(), UpdateError> {
        birth::admit_current(&metrics)?;
        birth::admit(&mut metrics, device.is_none(), now.wall)?;
        birth::admit_templates(&self.node, &metrics, device.is_none())?;
        self.leave_out_descriptions(&mut metrics);
        let (aliases, alias_next) = (self.config.aliases, &mut self.alias_next);
        let alias = |_: &str| next_alias(aliases, alias_next);
        let Some(device) = device else {
            let change =
                self.node.compare(metrics, || "NBIRTH".to_owned(), self.sizing.node_overhead(), &self.sizing)?;
            let needs_birth = change.needs_birth();
            if let Some(history) = &mut self.history {
                self.node.unsayable(&change).iter().for_each(|metrics| history.keep(None, metrics));
            }
            let samples = self.node.apply(change, alias);
            self.send_data(None, samples, now);
            // tck-id-topics-nbirth-metric-reqs: a name that no birth holds needs a birth first.
            if needs_birth {
                self.request_rebirth();
            }
            return Ok(());
        };
        let Some(known) = self.devices.get_mut(&device) else {
            return Err(UpdateError::UnknownDevice { device });
        };
        let change = known.entity.compare(
            metrics,
            || format!("DBIRTH of {device}"),
            self.sizing.device_overhead(),
            &self.sizing,
        )?;
        let needs_birth = change.needs_birth();
        if let Some(history) = &mut self.history {
            known.entity.unsayable(&change).iter().for_each(|metrics| history.keep(Some(&device), metrics));
        }
        let samples = known.entity.apply(change, alias);
        if needs_birth {
            self.renew_device(&device, now);
        } else if known.born {
            self.send_data(Some(device), samples, now);
        }
        Ok(())
    }

    pub(super) fn device_birth(
        &mut self,
        device: DeviceId,
        mut metrics: Vec<Metric>,
        now: Now,
    ) -> Result<(), UpdateError> {
        if self.devices.get(&device).is_some_and(|known| known.entity.has_shape_of(&metrics)) {
            return self.replace(Some(device), metrics, now);
        }
        let change = self.birth_of(&device, &mut metrics, now)?;
        self.install(&device, change);
        self.renew_device(&device, now);
        Ok(())
    }

    /// What a device with exactly these metrics is born with.
    fn birth_of(&self, device: &DeviceId, metrics: &mut Vec<Metric>, now: Now) -> Result<Change, UpdateError> {
        birth::admit_current(metrics)?;
        birth::admit(metrics, false, now.wall)?;
        birth::admit_templates(&self.node, metrics, false)?;
        self.leave_out_descriptions(metrics);
        let what = || format!("DBIRTH of {device}");
        Entity::default().compare(std::mem::take(metrics), what, self.sizing.device_overhead(), &self.sizing)
    }

    /// Takes from metrics what births shall not carry.
    pub(super) fn leave_out_descriptions(&self, metrics: &mut [Metric]) {
        if self.config.descriptions {
            return;
        }
        for metric in metrics {
            metric.properties.remove(DOCUMENTATION);
        }
    }

    /// Gives a device a birth of that shape; nothing is sent.
    fn install(&mut self, device: &DeviceId, change: Change) {
        let mut entity = Entity::default();
        let (aliases, alias_next) = (self.config.aliases, &mut self.alias_next);
        let old = self.devices.get(device);
        // A name keeps its alias.
        let kept = |name: &str| old.and_then(|old| old.entity.get(name)).and_then(|slot| slot.alias);
        entity.apply(change, |name| kept(name).or_else(|| next_alias(aliases, alias_next)));
        match self.devices.get_mut(device) {
            Some(known) => known.entity = entity,
            None => {
                self.devices.insert(device.clone(), Device { entity, born: false, queued: false, resent: None });
            }
        }
    }

    /// The birth of a device has changed, or it has none yet.
    pub(super) fn renew_device(&mut self, device: &DeviceId, now: Now) {
        let Some(known) = self.devices.get_mut(device) else { return };
        if known.born {
            known.born = false;
            known.entity.set_announced(false);
            self.send_death(device, now);
        } else if known.queued {
            return;
        }
        let death_waits = self.waiting.has_death_of(device);
        if self.phase == Phase::Born && !self.must_wait() {
            self.send_device_birth(device, now);
        } else if matches!(self.phase, Phase::Birthing | Phase::Born) {
            if let Some(known) = self.devices.get_mut(device) {
                known.queued = true;
            }
            if self.folded {
                // The rebirth to come bears all.
            } else if self.phase == Phase::Birthing && !death_waits {
                self.births.queue.push_back(device.clone());
            } else {
                self.wait(Item::Birth { device: device.clone() });
            }
        }
    }

    pub(super) fn device_death(&mut self, device: &DeviceId, now: Now) -> Result<(), UpdateError> {
        let Some(known) = self.devices.remove(device) else {
            return Err(UpdateError::UnknownDevice { device: device.clone() });
        };
        self.resend.remove(device);
        if known.born {
            self.send_death(device, now);
        }
        Ok(())
    }

    pub(super) fn historical(
        &mut self,
        device: Option<DeviceId>,
        mut metrics: Vec<Metric>,
        now: Now,
    ) -> Result<(), UpdateError> {
        let (entity, what) = match &device {
            None => (&self.node, "NDATA".to_owned()),
            Some(id) => match self.devices.get(id) {
                Some(known) => (&known.entity, format!("DDATA of {id}")),
                None => return Err(UpdateError::UnknownDevice { device: id.clone() }),
            },
        };
        let overhead = self.sizing.device_overhead();
        let mut messages: Vec<Vec<Metric>> = Vec::new();
        let mut room = 0;
        for metric in &mut metrics {
            metric.is_historical = true;
            metric.timestamp.get_or_insert(now.wall);
            let refuse = |rule| Err(UpdateError::Name { name: metric.name.to_string(), rule });
            let Some(slot) = entity.get(&metric.name) else {
                return refuse("the birth does not hold it");
            };
            if slot.metric.datatype != metric.datatype {
                return Err(UpdateError::Datatype {
                    name: metric.name.to_string(),
                    is: slot.metric.datatype,
                    got: metric.datatype,
                });
            }
            if let Err(rule) = metric.check() {
                return refuse(rule);
            }
            let bytes = self.sizing.metric(metric);
            if overhead + bytes > self.config.message_bytes_max {
                return Err(UpdateError::TooLarge {
                    what,
                    bytes: overhead + bytes,
                    max: self.config.message_bytes_max,
                });
            }
            match messages.last_mut() {
                Some(message) if bytes <= room => {
                    message.push(metric.clone());
                    room -= bytes;
                }
                _ => {
                    messages.push(vec![metric.clone()]);
                    room = self.config.message_bytes_max - overhead - bytes;
                }
            }
        }
        let is_live = matches!(self.phase, Phase::Birthing | Phase::Born);
        for metrics in messages {
            match &mut self.history {
                Some(history) if !is_live => history.keep(device.as_ref(), &metrics),
                _ => self.waiting.push(Item::Historical { device: device.clone(), metrics }),
            }
        }
        while self.waiting.historical_items() > self.config.data_waiting_max.max(1) {
            if let Some(Item::Historical { device, .. }) = self.waiting.drop_oldest_historical() {
                self.reject_history(device, "more historical messages wait than are kept; the oldest is dropped");
            }
        }
        Ok(())
    }

    pub(super) fn stop(&mut self, now: Now) {
        self.stopping = true;
        match self.phase {
            Phase::Away { .. } => {
                self.phase = Phase::Stopped;
                self.outputs.event(NodeEvent::Stopped);
            }
            Phase::Leaving | Phase::Stopped => {}
            _ => self.leave(Leave::Away("stopped"), now),
        }
    }
}

fn next_alias(aliases: bool, next: &mut u64) -> Option<u64> {
    // tck-id-payloads-alias-uniqueness: one counter for the node and all its devices
    aliases.then(|| {
        let alias = *next;
        *next += 1;
        alias
    })
}
