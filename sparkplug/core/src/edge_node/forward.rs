//! Store and forward: what goes into the store, and when it goes out.
//!
//! The standard says of historical values only that they are marked (`is_historical`) and keep their own timestamps; its rule that values stay in time order excepts them
//! (tck-id-operational-behavior-data-publish-nbirth-order, tck-id-operational-behavior-data-publish-dbirth-order). So history follows after all births
//! (tck-id-payloads-ndata-order, tck-id-payloads-ddata-order), oldest first, in bursts beside live data, which never wait for it.

use super::birth::{Entity, Sample};
use super::history::{History, StoreAction, StoreStatus};
use super::queue::Item;
use super::{EdgeNode, NodeEvent, Phase};
use crate::metric::Metric;
use crate::name::DeviceId;
use crate::time::Now;

use std::time::Duration;

use bytes::Bytes;

impl EdgeNode {
    /// Gives back the records that a mirror kept for an earlier process: number and content as they were appended, oldest first. To be called before anything
    /// else; without [`super::EdgeNodeConfig::store`] it does nothing. Records that belong to no known device or metric ten seconds after the births are dropped.
    pub fn restore(&mut self, records: impl IntoIterator<Item = (u64, Bytes)>) {
        if let Some(history) = &mut self.history {
            history.restore(records);
        }
    }

    /// The next thing that a mirror of the store has to do, in order; nothing unless [`super::StoreConfig::mirrored`].
    pub fn poll_store(&mut self) -> Option<StoreAction> {
        self.history.as_mut()?.next_action()
    }

    /// How full the store is; None without one.
    #[must_use]
    pub fn store_status(&self) -> Option<StoreStatus> {
        self.history.as_ref().map(History::status)
    }

    pub(super) fn keep_samples(&mut self, device: Option<&DeviceId>, samples: &[Sample]) {
        if let Some(history) = &mut self.history {
            history.keep_samples(device, samples);
        }
    }

    /// Live data, kept at hand until the server has them.
    pub(super) fn send_live(&mut self, device: Option<&DeviceId>, samples: &[Sample], now: Now) {
        self.outputs.data(device, samples, now.wall);
        if let Some(history) = &mut self.history {
            history.sent_live(device, samples, self.outputs.published(), now.mono);
        }
    }

    pub(super) fn received(&mut self, publishes: u64, now: Now) {
        if let Some(history) = &mut self.history {
            history.received(publishes, self.config.primary_host.is_some(), now.mono);
        }
    }

    /// The session is over: what may not have arrived comes first, then what waited for a turn.
    pub(super) fn keep_what_was_under_way(&mut self) {
        let Some(history) = &mut self.history else { return };
        history.session_ended();
        while let Some(item) = self.waiting.pop() {
            match item {
                Item::Data { device, samples } => history.keep_samples(device.as_ref(), &samples),
                Item::Historical { device, metrics } => history.keep(device.as_ref(), &metrics),
                Item::Death { .. } | Item::Birth { .. } => {}
            }
        }
    }

    /// Drops what births make superfluous, except that its values become history. Yields the devices whose death does not go out.
    pub(super) fn drop_waiting_state(&mut self) -> Vec<DeviceId> {
        let history = &mut self.history;
        self.waiting.drop_state(|device, samples| {
            if let Some(history) = history {
                history.keep_samples(device.as_ref(), &samples);
            }
        })
    }

    /// Nothing that is live waits, so history may go out.
    fn may_forward(&self) -> bool {
        matches!(self.phase, Phase::Born) && !self.folded && self.waiting.is_empty() && !self.rebirth.is_requested()
    }

    pub(super) fn history_due(&self) -> Option<Duration> {
        let history = self.history.as_ref().filter(|history| history.has_unsent() && self.may_forward())?;
        let patience = history.patience_ends().filter(|_| self.first_record_is_strange());
        Some(self.history_pause_until.max(patience.unwrap_or_default()))
    }

    /// Nothing that is known belongs to the first record.
    fn first_record_is_strange(&self) -> bool {
        let first = self.history.as_ref().and_then(History::first_unsent);
        first.is_some_and(|(device, metrics)| self.sayable(device.as_ref(), metrics).is_empty())
    }

    /// The samples that a data message of now can carry.
    pub(super) fn sayable(&self, device: Option<&DeviceId>, metrics: Vec<Metric>) -> Vec<Sample> {
        let entity: Option<&Entity> = match device {
            None => Some(&self.node),
            Some(id) => self.devices.get(id).filter(|known| known.born).map(|known| &known.entity),
        };
        let Some(entity) = entity else { return Vec::new() };
        let sample = |metric: Metric| {
            let slot = entity.get(&metric.name).filter(|s| s.announced && s.metric.datatype == metric.datatype)?;
            let properties = !metric.properties.is_empty();
            Some(Sample { metric, alias: slot.alias, properties })
        };
        metrics.into_iter().filter_map(sample).collect()
    }

    /// Sends a burst of history, if its time has come.
    pub(super) fn forward_history(&mut self, now: Now) {
        if now.mono < self.history_pause_until || !self.may_forward() {
            return;
        }
        for _ in 0..self.config.birth_burst.max(1) {
            let Some((device, metrics)) = self.history.as_ref().and_then(History::first_unsent) else { return };
            let samples = self.sayable(device.as_ref(), metrics);
            if samples.is_empty() {
                let patience = self.history.as_ref().and_then(History::patience_ends);
                if patience.is_some_and(|end| now.mono < end) {
                    return;
                }
                if let Some(history) = &mut self.history {
                    history.skip();
                }
                continue;
            }
            for part in self.parts(samples) {
                self.outputs.data(device.as_ref(), &part, now.wall);
            }
            if let Some(history) = &mut self.history {
                history.mark_sent(self.outputs.published());
            }
        }
        self.history_pause_until = now.mono + self.config.birth_pause;
    }

    /// A record is as large as a message may be, or a little larger, because its metrics are marked.
    fn parts(&self, samples: Vec<Sample>) -> Vec<Vec<Sample>> {
        let room = self.config.message_bytes_max.saturating_sub(self.sizing.device_overhead());
        let mut parts: Vec<Vec<Sample>> = Vec::new();
        let mut left = 0;
        for sample in samples {
            let bytes = self.sizing.metric(&sample.metric);
            match parts.last_mut() {
                Some(part) if bytes <= left => {
                    part.push(sample);
                    left -= bytes;
                }
                _ => {
                    parts.push(vec![sample]);
                    left = room.saturating_sub(bytes);
                }
            }
        }
        parts
    }

    /// Reports when records begin to be dropped, and when the store is empty again.
    pub(super) fn report_history(&mut self) {
        let Some(history) = &mut self.history else { return };
        let begins_to_drop = history.begins_to_drop();
        let emptied = history.take_tally();
        if begins_to_drop {
            self.reject_history(
                None,
                "stored values are dropped: the store is full, or nothing that is known has their names",
            );
        }
        if let Some(tally) = emptied {
            self.outputs.event(NodeEvent::Forwarded { sent: tally.sent, dropped: tally.dropped });
        }
    }
}
