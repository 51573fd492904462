//! What leaves the machine, in order, and what waits. `seq` is given where a message enters the one queue, so the order of the queue is the order of `seq`.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::birth::{Entity, Sample};
use super::{EdgeNodeConfig, NodeEvent, NodeOutput};
use crate::heartbeat::{self, NODE_REBIRTH};
use crate::metric::Metric;
use crate::name::{DeviceId, EdgeNodeDescriptor};
use crate::payload::{self, Compression, Dialect, Encoder, Form};
use crate::seq::{BD_SEQ, BdSeq, Seq};
use crate::session::{Publish, QoS, TransportAction};
use crate::topic::{MessageKind, Topic};

/// Memory for bdSeq and Rebirth in a birth.
const MACHINE_METRICS_BYTES: usize = 64;

/// The one queue.
#[derive(Debug)]
pub(super) struct OutputQueue {
    descriptor: EdgeNodeDescriptor,
    payload_uuid: Option<Arc<str>>,
    dialect: Dialect,
    compression: Option<Compression>,
    /// `seq` of the next message.
    seq: Seq,
    /// Payload timestamps of the last message and of the last NBIRTH.
    last_timestamp: u64,
    birth_timestamp: u64,
    /// Messages with a `seq` so far.
    sent: u64,
    /// Publishes of this session.
    published: u64,
    outputs: VecDeque<NodeOutput>,
}

impl OutputQueue {
    pub(super) fn new(config: &EdgeNodeConfig) -> Self {
        Self {
            descriptor: config.descriptor.clone(),
            payload_uuid: config.payload_uuid.clone(),
            dialect: config.dialect,
            compression: config.compression,
            seq: Seq::ZERO,
            last_timestamp: 0,
            birth_timestamp: 0,
            sent: 0,
            published: 0,
            outputs: VecDeque::new(),
        }
    }

    pub(super) fn pop(&mut self) -> Option<NodeOutput> {
        self.outputs.pop_front()
    }

    /// Messages with a `seq` so far, over all sessions.
    pub(super) const fn sent(&self) -> u64 {
        self.sent
    }

    /// Publishes of this session so far.
    pub(super) const fn published(&self) -> u64 {
        self.published
    }

    pub(super) fn event(&mut self, event: NodeEvent) {
        self.outputs.push_back(NodeOutput::Event(event));
    }

    pub(super) fn action(&mut self, action: TransportAction) {
        match &action {
            TransportAction::Connect(_) => self.published = 0,
            TransportAction::Publish(_) => self.published += 1,
            TransportAction::Subscribe(_) | TransportAction::Disconnect => {}
        }
        self.outputs.push_back(NodeOutput::Transport(action));
    }

    /// The session is over: what was still to be sent in it must not reach the next one.
    pub(super) fn end_session(&mut self) {
        self.outputs.retain(|output| matches!(output, NodeOutput::Event(_)));
    }

    /// NBIRTH: `seq` 0, `bdSeq` of the will, Rebirth = false, what is said of the process, then the application's metrics.
    /// (tck-id-topics-nbirth-seq-num, tck-id-topics-nbirth-bdseq-included, tck-id-topics-nbirth-rebirth-metric, tck-id-topics-nbirth-mqtt)
    pub(super) fn nbirth(&mut self, bd_seq: BdSeq, speaker: &[Metric], node: &Entity, wall: u64) {
        self.seq = Seq::ZERO;
        self.birth_timestamp = not_before(self.last_timestamp.saturating_add(1), wall);
        let metrics = node.slots.iter().map(|slot| (&slot.metric, slot.alias));
        let mut encoder = self.encoder(Form::Birth, self.birth_timestamp, metrics);
        encoder.metric(&bd_seq_metric(bd_seq, wall), None, false);
        // tck-id-operational-behavior-data-commands-rebirth-name-aliases: without an alias
        encoder.metric(&Metric::new(NODE_REBIRTH, false).at(wall), None, false);
        for metric in speaker {
            encoder.metric(metric, None, false);
        }
        add_birth(&mut encoder, node);
        self.publish(MessageKind::NBirth, None, encoder);
    }

    /// DBIRTH (tck-id-topics-dbirth-seq, tck-id-topics-dbirth-timestamp, tck-id-topics-dbirth-mqtt).
    pub(super) fn dbirth(&mut self, device: &DeviceId, entity: &Entity, wall: u64) {
        let metrics = entity.slots.iter().map(|slot| (&slot.metric, slot.alias));
        let mut encoder = self.encoder(Form::Birth, not_before(self.birth_timestamp, wall), metrics);
        add_birth(&mut encoder, entity);
        self.publish(MessageKind::DBirth, Some(device), encoder);
    }

    /// NDATA or DDATA (tck-id-topics-ndata-seq-num, tck-id-topics-ddata-seq-num).
    pub(super) fn data(&mut self, device: Option<&DeviceId>, samples: &[Sample], wall: u64) {
        let metrics = samples.iter().map(|sample| (&sample.metric, sample.alias));
        let mut encoder = self.encoder(Form::Data, not_before(self.birth_timestamp, wall), metrics);
        for sample in samples {
            encoder.metric(&sample.metric, sample.alias, sample.properties);
        }
        let kind = if device.is_some() { MessageKind::DData } else { MessageKind::NData };
        self.publish(kind, device, encoder);
    }

    /// NDATA that says nothing new: its `seq` is what matters, and the birth that it names.
    pub(super) fn heartbeat(&mut self, wall: u64) {
        let metric = heartbeat::metric(self.birth_timestamp, wall);
        let timestamp = not_before(self.birth_timestamp, wall);
        let mut encoder = self.encoder(Form::Data, timestamp, [(&metric, None)].into_iter());
        encoder.metric(&metric, None, true);
        self.publish(MessageKind::NData, None, encoder);
    }

    /// DDEATH (tck-id-topics-ddeath-seq-num, tck-id-payloads-ddeath-timestamp, tck-id-topics-ddeath-mqtt).
    pub(super) fn ddeath(&mut self, device: &DeviceId, wall: u64) {
        let encoder = self.encoder(Form::Birth, not_before(self.birth_timestamp, wall), [].into_iter());
        self.publish(MessageKind::DDeath, Some(device), encoder);
    }

    /// NDEATH, as a will and as a message: one metric, no `seq`, QoS 1, not retained
    /// (tck-id-topics-ndeath-payload, tck-id-topics-ndeath-seq, tck-id-payloads-ndeath-will-message-qos,
    /// tck-id-payloads-ndeath-will-message-retain).
    pub(super) fn ndeath(&self, bd_seq: BdSeq, wall: u64) -> Publish {
        let mut encoder = self.encoder(Form::Birth, wall, [].into_iter());
        encoder.metric(&bd_seq_metric(bd_seq, wall), None, false);
        Publish {
            topic: Topic::of(self.descriptor.clone(), MessageKind::NDeath, None).to_string(),
            payload: encoder.finish(None, self.payload_uuid.as_ref(), None),
            qos: QoS::AtLeastOnce,
            retain: false,
        }
    }

    /// tck-id-payloads-timestamp-in-UTC: the payload carries the time at which it is sent.
    /// With memory for `metrics` with their aliases; those of the machine find theirs when they come.
    fn encoder<'m>(
        &self,
        form: Form,
        timestamp: u64,
        metrics: impl ExactSizeIterator<Item = (&'m Metric, Option<u64>)>,
    ) -> Encoder {
        let frame = payload::frame_bytes(Some(timestamp), Some(self.seq.get()), self.payload_uuid.as_deref(), None);
        let own = if form == Form::Birth { MACHINE_METRICS_BYTES } else { 0 };
        let bytes = payload::payload_room(frame + own, metrics, form, self.dialect);
        Encoder::with_capacity(form, self.dialect, Some(timestamp), bytes)
    }

    /// tck-id-payloads-sequence-num-always-included, tck-id-payloads-sequence-num-incrementing
    fn publish(&mut self, kind: MessageKind, device: Option<&DeviceId>, encoder: Encoder) {
        let seq = self.seq;
        self.seq = seq.next();
        self.sent += 1;
        self.last_timestamp = encoder.timestamp().unwrap_or_default();
        let payload = encoder.finish(Some(seq.get()), self.payload_uuid.as_ref(), None);
        let compressed = self.compression.and_then(|c| c.apply(&payload, self.last_timestamp, Some(seq.get())));
        self.action(TransportAction::Publish(Publish {
            topic: Topic::of(self.descriptor.clone(), kind, device.cloned()).to_string(),
            payload: compressed.unwrap_or(payload),
            qos: QoS::AtMostOnce,
            retain: false,
        }));
    }
}

/// An NBIRTH is stamped later than every message before it and not later than those after it, even within one millisecond. So a host knows on which side of the
/// birth a reordered message lies. A clock that was set back is followed.
const fn not_before(floor: u64, wall: u64) -> u64 {
    if wall < floor && floor - wall <= 1000 { floor } else { wall }
}

/// tck-id-message-flow-edge-node-birth-publish-nbirth-payload-bdSeq: Int64, never an alias.
fn bd_seq_metric(bd_seq: BdSeq, wall: u64) -> Metric {
    Metric::new(BD_SEQ, bd_seq.get()).at(wall)
}

fn add_birth(encoder: &mut Encoder, entity: &Entity) {
    for slot in &entity.slots {
        encoder.metric(&slot.metric, slot.alias, !slot.metric.properties.is_empty());
    }
}

/// A message that waits for the births to be out.
#[derive(Debug)]
pub(super) enum Item {
    /// Changed values.
    Data { device: Option<DeviceId>, samples: Vec<Sample> },
    /// Death of a device that was born in this session.
    Death { device: DeviceId },
    /// Birth of a device whose death waits before it.
    Birth { device: DeviceId },
    /// Historical values; the only item that outlives a session.
    Historical { device: Option<DeviceId>, metrics: Vec<Metric> },
}

/// Messages that wait, in order.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    items: VecDeque<Item>,
    /// How many deaths of a device wait.
    deaths: BTreeMap<DeviceId, usize>,
    historical: usize,
}

impl Waiting {
    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Items that a birth would make superfluous.
    pub(super) fn state_items(&self) -> usize {
        self.items.len() - self.historical
    }

    pub(super) const fn historical_items(&self) -> usize {
        self.historical
    }

    pub(super) fn has_death_of(&self, device: &DeviceId) -> bool {
        self.deaths.contains_key(device)
    }

    pub(super) fn push(&mut self, item: Item) {
        match &item {
            Item::Death { device } => {
                *self.deaths.entry(device.clone()).or_default() += 1;
            }
            Item::Historical { .. } => self.historical += 1,
            Item::Data { .. } | Item::Birth { .. } => {}
        }
        self.items.push_back(item);
    }

    pub(super) fn front(&self) -> Option<&Item> {
        self.items.front()
    }

    pub(super) fn pop(&mut self) -> Option<Item> {
        let item = self.items.pop_front()?;
        match &item {
            Item::Death { device } => {
                if let Some(count) = self.deaths.get_mut(device) {
                    *count -= 1;
                    if *count == 0 {
                        self.deaths.remove(device);
                    }
                }
            }
            Item::Historical { .. } => self.historical -= 1,
            Item::Data { .. } | Item::Birth { .. } => {}
        }
        Some(item)
    }

    /// Births say it all: only history stays. Yields the devices whose death does not go out; `data` gets the values that do not.
    pub(super) fn drop_state(&mut self, mut data: impl FnMut(Option<DeviceId>, Vec<Sample>)) -> Vec<DeviceId> {
        for item in std::mem::take(&mut self.items) {
            match item {
                Item::Historical { .. } => self.items.push_back(item),
                Item::Data { device, samples } => data(device, samples),
                Item::Death { .. } | Item::Birth { .. } => {}
            }
        }
        std::mem::take(&mut self.deaths).into_keys().collect()
    }

    /// Drops the oldest historical item.
    pub(super) fn drop_oldest_historical(&mut self) -> Option<Item> {
        let at = self.items.iter().position(|item| matches!(item, Item::Historical { .. }))?;
        self.historical -= 1;
        self.items.remove(at)
    }
}
