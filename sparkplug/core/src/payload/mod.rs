//! Bytes <-> payloads: the only module that knows protobuf (Sparkplug 3.0, chapter 6). Written with `prost`; read by hand, because a reader that
//! counts before it allocates cannot be made to spend a hundred bytes for two.
//!
//! Writing goes from [`Metric`]s, whose names and types are known, through [`encode()`] or piece by piece through an [`Encoder`]. Reading has two steps, because
//! only births say everything about a metric: [`decode()`] gives [`RawMetric`]s as they stand on the wire, and whoever knows the birth turns each into a [`Metric`]
//! with [`RawMetric::resolve`]. Tools that have seen no birth use [`decode_for_display`]. Both read compressed payloads as if they were not compressed;
//! [`Compression::apply`] makes them.
//!
//! Nothing here knows topics, sequence rules or sessions.

mod array;
mod compression;
mod decode;
mod display;
mod encode;
mod read;
#[cfg(test)]
mod tests;
mod wire;

use std::sync::Arc;

use bytes::Bytes;

use crate::metric::Metric;

pub use compression::{COMPRESSED, Compression, CompressionAlgorithm};
pub use decode::{DecodeError, Limits, MetricError, RawMetric, RawPayload, RawTemplate, WireValue, decode};
pub use display::{DisplayMetric, DisplayPayload, decode_for_display};
pub use encode::{AliasOf, EncodeOptions, Encoder, Form, encode, metric_bytes};

/// A payload as applications and machines see it. In messages other than births a metric may arrive with an alias for a name and without
/// a type; [`decode()`] leaves those to a resolver.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Payload {
    /// UTC ms.
    pub timestamp: Option<u64>,
    /// `seq`, absent in NDEATH and commands.
    pub seq: Option<u64>,
    /// Free for the application; Factory+ puts a marker UUID here.
    pub uuid: Option<Arc<str>>,
    /// Free for the application.
    pub body: Option<Bytes>,
    /// Metrics.
    pub metrics: Vec<Metric>,
}
