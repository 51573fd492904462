//! Metrics -> bytes, without anything between them.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use super::sink::{Count, Sink};
use super::{Dialect, Payload, write};
use crate::metric::Metric;

/// Which message a metric is written for; it decides what a metric carries besides timestamp and value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// NBIRTH, DBIRTH, NDEATH: name, alias if it has one, datatype, properties
    /// (tck-id-payloads-alias-birth-requirement, tck-id-payloads-metric-datatype-req).
    Birth,
    /// NDATA, DDATA: the alias if it has one, else the name; no datatype
    /// (tck-id-payloads-alias-data-cmd-requirement, tck-id-payloads-metric-datatype-not-req). [`Dialect::Tahu`] writes name and datatype, too.
    Data,
    /// NCMD, DCMD: the alias if it has one, else the name; datatype, because receivers may not know the name.
    Command,
}

/// Alias of a name, if it has one.
pub type AliasOf<'a> = &'a dyn Fn(&str) -> Option<u64>;

/// How to write a payload.
#[derive(Clone, Copy)]
pub struct EncodeOptions<'a> {
    /// For which message.
    pub form: Form,
    /// Alias of a name. None: there are no aliases.
    pub aliases: Option<AliasOf<'a>>,
    /// For which readers.
    pub dialect: Dialect,
}

impl EncodeOptions<'_> {
    /// No aliases, as the standard says.
    #[must_use]
    pub const fn new(form: Form) -> Self {
        Self { form, aliases: None, dialect: Dialect::Strict }
    }

    /// No aliases, for readers that are not known: [`Dialect::Tahu`].
    #[must_use]
    pub const fn for_any_reader(form: Form) -> Self {
        Self { form, aliases: None, dialect: Dialect::Tahu }
    }
}

impl fmt::Debug for EncodeOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EncodeOptions")
            .field("form", &self.form)
            .field("aliases", &self.aliases.is_some())
            .field("dialect", &self.dialect)
            .finish()
    }
}

/// Writes a whole payload. Properties that are empty are left out.
#[must_use]
pub fn encode(payload: &Payload, options: &EncodeOptions<'_>) -> Bytes {
    let alias = |metric: &Metric| options.aliases.and_then(|alias| alias(&metric.name));
    let frame = frame_bytes(payload.timestamp, payload.seq, payload.uuid.as_deref(), payload.body.as_deref());
    let metrics = payload.metrics.iter().map(|metric| (metric, alias(metric)));
    let bytes = payload_room(frame, metrics, options.form, options.dialect);
    let mut encoder = Encoder::with_capacity(options.form, options.dialect, payload.timestamp, bytes);
    for metric in &payload.metrics {
        encoder.metric(metric, alias(metric), !metric.properties.is_empty());
    }
    encoder.finish(payload.seq, payload.uuid.as_ref(), payload.body.as_ref())
}

/// Writes a payload metric by metric.
#[derive(Debug)]
pub struct Encoder {
    form: Form,
    dialect: Dialect,
    timestamp: Option<u64>,
    buffer: Vec<u8>,
}

impl Encoder {
    /// Begins a payload; `timestamp` is UTC ms.
    #[must_use]
    pub fn new(form: Form, dialect: Dialect, timestamp: Option<u64>) -> Self {
        Self::with_capacity(form, dialect, timestamp, 0)
    }

    /// Begins a payload for which that many bytes of memory are taken at once; [`payload_room`] says how many.
    #[must_use]
    pub fn with_capacity(form: Form, dialect: Dialect, timestamp: Option<u64>, bytes: usize) -> Self {
        let mut buffer = Vec::with_capacity(bytes);
        if let Some(timestamp) = timestamp {
            buffer.number(1, timestamp);
        }
        Self { form, dialect, timestamp, buffer }
    }

    /// Adds a metric. `properties`: write them, also when there is none any more.
    pub fn metric(&mut self, metric: &Metric, alias: Option<u64>, properties: bool) {
        let style = write::Style { form: self.form, dialect: self.dialect };
        write::metric(&mut self.buffer, metric, alias, properties, style);
    }

    /// The timestamp that it began with.
    #[must_use]
    pub const fn timestamp(&self) -> Option<u64> {
        self.timestamp
    }

    /// Bytes so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.buffer.len()
    }

    /// Whether nothing is written yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// Ends the payload. A `seq` of 0 is written like any other (tck-id-payloads-sequence-num-always-included).
    #[must_use]
    pub fn finish(mut self, seq: Option<u64>, uuid: Option<&Arc<str>>, body: Option<&Bytes>) -> Bytes {
        end(&mut self.buffer, seq, uuid.map(|uuid| &**uuid), body.map(|body| &**body));
        self.buffer.into()
    }
}

/// What stands behind the metrics of a payload.
fn end(sink: &mut impl Sink, seq: Option<u64>, uuid: Option<&str>, body: Option<&[u8]>) {
    if let Some(seq) = seq {
        sink.number(3, seq);
    }
    if let Some(uuid) = uuid {
        sink.slice(4, uuid.as_bytes());
    }
    if let Some(body) = body {
        sink.slice(5, body);
    }
}

/// Bytes that everything but the metrics takes in a payload.
#[must_use]
pub fn frame_bytes(timestamp: Option<u64>, seq: Option<u64>, uuid: Option<&str>, body: Option<&[u8]>) -> usize {
    let mut count = Count::default();
    if let Some(timestamp) = timestamp {
        count.number(1, timestamp);
    }
    end(&mut count, seq, uuid, body);
    count.0
}

/// Up to so many metrics are counted exactly.
const FEW: usize = 3;

/// Memory for a payload of these metrics with their aliases, for [`Encoder::with_capacity`]; `frame` is what [`frame_bytes`] yields. Of few metrics it is what the payload
/// takes, because memory that stays over costs more than counting. Of many it is what the payload takes at most, which is known faster.
#[must_use]
pub fn payload_room<'m>(
    frame: usize,
    metrics: impl ExactSizeIterator<Item = (&'m Metric, Option<u64>)>,
    form: Form,
    dialect: Dialect,
) -> usize {
    let exactly = metrics.len() <= FEW;
    let room = |(metric, alias)| {
        let at_most = if exactly { None } else { write::plain_room(metric) };
        at_most.unwrap_or_else(|| metric_bytes(metric, form, alias, dialect))
    };
    frame + metrics.map(room).sum::<usize>()
}

/// Bytes that a metric takes in a payload of this form, key and length included; its properties with it, if it has any.
#[must_use]
pub fn metric_bytes(metric: &Metric, form: Form, alias: Option<u64>, dialect: Dialect) -> usize {
    let mut count = Count::default();
    write::metric(&mut count, metric, alias, !metric.properties.is_empty(), write::Style { form, dialect });
    count.0
}
