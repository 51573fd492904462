//! Store and forward: data that could not be delivered wait here, within bounds, and follow the next births as historical values.
//!
//! A record is one update, kept as a Sparkplug payload with names and datatypes, so that it means the same in a later session or process. The driver of the machine may
//! mirror the records on disk: [`StoreAction`]s say what to do, [`EdgeNode::restore`](super::EdgeNode::restore) takes the records back. The store
//! itself knows neither disk nor session.
//!
//! MQTT acknowledges nothing of QoS 0. So a record is forgotten only after [`Received`](crate::session::TransportEvent::Received): the server has answered to something that was
//! sent behind it. What was sent live stays at hand as long, and becomes a record if the session ends before. Therefore a value may be sent twice, with the same timestamp, but is not lost.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::birth::Sample;
use crate::metric::Metric;
use crate::name::DeviceId;
use crate::payload::{self, Dialect, Encoder, Form, Limits};

/// What is dropped when the store is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WhenFull {
    /// The oldest records: what happened last is known best.
    #[default]
    DropOldest,
    /// What comes in: how it began is known best.
    DropNewest,
}

/// Store and forward of an Edge Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreConfig {
    /// Bytes that records may take; as much again is used for what was sent and may yet be lost.
    pub bytes_max: usize,
    /// What is dropped beyond that.
    pub when_full: WhenFull,
    /// Yield [`StoreAction`]s, for a driver that mirrors the store on disk.
    pub mirrored: bool,
    /// With a Primary Host: what was sent so shortly before it was known to be offline is sent again. A host is gone for a while before the server publishes its will. The
    /// value should be at least one and a half times the keep-alive time of the host.
    pub hindsight: Duration,
}

impl Default for StoreConfig {
    /// 16 MiB, the oldest is dropped, not mirrored, 30 s.
    fn default() -> Self {
        Self {
            bytes_max: 16 * 1024 * 1024,
            when_full: WhenFull::DropOldest,
            mirrored: false,
            hindsight: Duration::from_secs(30),
        }
    }
}

/// What a mirror of the store does, in the order given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreAction {
    /// A record comes last.
    Append {
        /// One more than that of the record before it.
        number: u64,
        /// To be given back to [`EdgeNode::restore`](super::EdgeNode::restore) as it is.
        record: Bytes,
    },
    /// Records below this number are not needed any more.
    Forget {
        /// Number of the first one that is.
        below: u64,
    },
}

/// How full the store is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StoreStatus {
    /// Records.
    pub records: usize,
    /// What they take of [`StoreConfig::bytes_max`].
    pub bytes: usize,
    /// Records dropped since the machine was made, because the store was full or because nothing is known any more that they belong to.
    pub dropped: u64,
}

/// What a record takes besides its payload.
const RECORD_BYTES: usize = 64;
/// So long after its births a node waits for the devices that stored records belong to: after a restart the application may declare them later.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug)]
struct Record {
    number: u64,
    payload: Bytes,
}

#[derive(Debug)]
struct Live {
    /// Which publish of the session.
    publish: u64,
    at: Duration,
    payload: Bytes,
}

/// What happened since the last report to the application.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Tally {
    pub sent: u64,
    pub dropped: u64,
}

#[derive(Debug)]
pub(super) struct History {
    config: StoreConfig,
    records: VecDeque<Record>,
    bytes: usize,
    next_number: u64,
    /// The publishes of this session that carry the first records; None for one that belongs to nothing that is known.
    sent: VecDeque<Option<u64>>,
    live: VecDeque<Live>,
    live_bytes: usize,
    dropped: u64,
    tally: Tally,
    reported_full: bool,
    /// Records below it come from an earlier process.
    restored_below: u64,
    patience_until: Option<Duration>,
    actions: VecDeque<StoreAction>,
}

impl History {
    pub(super) const fn new(config: StoreConfig) -> Self {
        Self {
            config,
            records: VecDeque::new(),
            bytes: 0,
            next_number: 0,
            sent: VecDeque::new(),
            live: VecDeque::new(),
            live_bytes: 0,
            dropped: 0,
            tally: Tally { sent: 0, dropped: 0 },
            reported_full: false,
            restored_below: 0,
            patience_until: None,
            actions: VecDeque::new(),
        }
    }

    pub(super) fn status(&self) -> StoreStatus {
        StoreStatus { records: self.records.len(), bytes: self.bytes, dropped: self.dropped }
    }

    pub(super) fn next_action(&mut self) -> Option<StoreAction> {
        self.actions.pop_front()
    }

    /// Records of an earlier process, oldest first.
    pub(super) fn restore(&mut self, records: impl IntoIterator<Item = (u64, Bytes)>) {
        for (number, payload) in records {
            // A number that is out of order means a mirror that was tampered with; the rest would be misplaced.
            if number < self.next_number {
                continue;
            }
            self.next_number = number + 1;
            self.bytes += payload.len() + RECORD_BYTES;
            self.records.push_back(Record { number, payload });
        }
        self.restored_below = self.next_number;
        self.drop_oldest();
    }

    /// Keeps samples that did not go out.
    pub(super) fn keep_samples(&mut self, device: Option<&DeviceId>, samples: &[Sample]) {
        if let Some(payload) = encode(device, described(samples)) {
            self.push(payload);
        }
    }

    /// Keeps a record; what is transient is not for history.
    pub(super) fn keep<'a>(&mut self, device: Option<&DeviceId>, metrics: impl IntoIterator<Item = &'a Metric>) {
        let with_properties = metrics.into_iter().map(|metric| (metric, !metric.properties.is_empty()));
        if let Some(payload) = encode(device, with_properties) {
            self.push(payload);
        }
    }

    fn push(&mut self, payload: Bytes) {
        let bytes = payload.len() + RECORD_BYTES;
        let is_full = self.bytes + bytes > self.config.bytes_max;
        if bytes > self.config.bytes_max || (is_full && self.config.when_full == WhenFull::DropNewest) {
            self.count_dropped();
            return;
        }
        let number = self.next_number;
        self.next_number += 1;
        self.bytes += bytes;
        if self.config.mirrored {
            self.actions.push_back(StoreAction::Append { number, record: payload.clone() });
        }
        self.records.push_back(Record { number, payload });
        self.drop_oldest();
    }

    fn drop_oldest(&mut self) {
        while self.bytes > self.config.bytes_max {
            // What went out already is not a loss.
            if self.sent.is_empty() {
                self.count_dropped();
            }
            if !self.forget_first() {
                return;
            }
        }
    }

    const fn count_dropped(&mut self) {
        self.dropped += 1;
        self.tally.dropped += 1;
    }

    fn forget_first(&mut self) -> bool {
        let Some(record) = self.records.pop_front() else { return false };
        self.bytes -= record.payload.len() + RECORD_BYTES;
        self.sent.pop_front();
        if self.config.mirrored {
            let below = record.number + 1;
            match self.actions.back_mut() {
                Some(StoreAction::Forget { below: last }) => *last = below,
                _ => self.actions.push_back(StoreAction::Forget { below }),
            }
        }
        true
    }

    /// Live data went out.
    pub(super) fn sent_live(&mut self, device: Option<&DeviceId>, samples: &[Sample], publish: u64, mono: Duration) {
        let Some(payload) = encode(device, described(samples)) else { return };
        self.live_bytes += payload.len() + RECORD_BYTES;
        self.live.push_back(Live { publish, at: mono, payload });
        while self.live_bytes > self.config.bytes_max {
            let Some(live) = self.live.pop_front() else { break };
            self.live_bytes -= live.payload.len() + RECORD_BYTES;
        }
    }

    /// The server has so many publishes of this session. `has_primary_host`: what is live is kept for the hindsight as well.
    pub(super) fn received(&mut self, publishes: u64, has_primary_host: bool, mono: Duration) {
        while self.sent.front().is_some_and(|publish| publish.is_none_or(|publish| publish <= publishes)) {
            self.forget_sent();
        }
        let hindsight = if has_primary_host { self.config.hindsight } else { Duration::ZERO };
        while let Some(live) = self.live.front().filter(|l| l.publish <= publishes && l.at + hindsight <= mono) {
            self.live_bytes -= live.payload.len() + RECORD_BYTES;
            self.live.pop_front();
        }
    }

    /// What was on its way is sent again.
    pub(super) fn session_ended(&mut self) {
        self.sent.clear();
        self.patience_until = None;
        self.take_back_live();
    }

    /// What was sent live and may not have arrived becomes history.
    pub(super) fn take_back_live(&mut self) {
        self.live_bytes = 0;
        for live in std::mem::take(&mut self.live) {
            self.push(live.payload);
        }
    }

    /// The births are out.
    pub(super) fn born(&mut self, mono: Duration) {
        self.patience_until.get_or_insert(mono + PATIENCE);
    }

    /// The first record that was not sent in this session.
    pub(super) fn first_unsent(&self) -> Option<(Option<DeviceId>, Vec<Metric>)> {
        self.records.get(self.sent.len()).map(|record| decode(&record.payload).unwrap_or_default())
    }

    pub(super) fn has_unsent(&self) -> bool {
        self.records.len() > self.sent.len()
    }

    /// Until when the application may still declare what the first unsent record belongs to.
    pub(super) fn patience_ends(&self) -> Option<Duration> {
        self.records.get(self.sent.len()).filter(|record| record.number < self.restored_below).and(self.patience_until)
    }

    /// The first unsent record is out, with that publish.
    pub(super) fn mark_sent(&mut self, publish: u64) {
        self.sent.push_back(Some(publish));
    }

    /// The first unsent record belongs to nothing that is known; it goes with the ones before it.
    pub(super) fn skip(&mut self) {
        self.sent.push_back(None);
        while self.sent.front().is_some_and(Option::is_none) {
            self.forget_sent();
        }
    }

    fn forget_sent(&mut self) {
        match self.sent.front() {
            Some(Some(_)) => self.tally.sent += 1,
            _ => self.count_dropped(),
        }
        self.forget_first();
    }

    /// True once, when records begin to be dropped after a time in which none were.
    pub(super) const fn begins_to_drop(&mut self) -> bool {
        let begins = self.tally.dropped > 0 && !self.reported_full;
        self.reported_full |= begins;
        begins
    }

    /// What happened since the store was empty before, when it is empty again.
    pub(super) fn take_tally(&mut self) -> Option<Tally> {
        if !self.records.is_empty() || self.tally == Tally::default() {
            return None;
        }
        self.reported_full = false;
        Some(std::mem::take(&mut self.tally))
    }
}

/// The id of the device stands where payloads have their `uuid`, behind these characters, so that no id can be taken for the mark of compression.
const DEVICE: &str = "device ";

/// Properties that no data would carry are in no record either.
fn described(samples: &[Sample]) -> impl Iterator<Item = (&Metric, bool)> {
    samples.iter().map(|sample| (&sample.metric, sample.properties))
}

fn encode<'a>(device: Option<&DeviceId>, metrics: impl Iterator<Item = (&'a Metric, bool)>) -> Option<Bytes> {
    let mut encoder = Encoder::new(Form::Birth, Dialect::Strict, None);
    let mut is_empty = true;
    for (metric, properties) in metrics.filter(|(metric, _)| !metric.is_transient) {
        is_empty = false;
        encoder.metric(metric, None, properties);
    }
    let device = device.map(|device| Arc::from(format!("{DEVICE}{device}")));
    (!is_empty).then(|| encoder.finish(None, device.as_ref(), None))
}

/// None: of another version, or tampered with.
fn decode(record: &Bytes) -> Option<(Option<DeviceId>, Vec<Metric>)> {
    let limits = Limits { bytes_max: record.len(), ..Limits::default() };
    let payload = payload::decode(record, &limits).ok()?;
    let device = match payload.uuid.as_deref() {
        Some(uuid) => Some(DeviceId::new(uuid.strip_prefix(DEVICE)?).ok()?),
        None => None,
    };
    let metrics = payload.metrics.into_iter().map(|raw| {
        let (name, datatype) = (raw.name.clone()?, raw.own_datatype().ok()?);
        let metric = raw.resolve(name, datatype, None).ok()?;
        Some(Metric { is_historical: true, ..metric })
    });
    Some((device, metrics.collect::<Option<Vec<_>>>()?))
}
