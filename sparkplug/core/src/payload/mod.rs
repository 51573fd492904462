//! Bytes <-> payloads: the only module that knows protobuf (Sparkplug 3.0, chapter 6). Read and written by hand. A reader that counts before it allocates
//! cannot be made to spend a hundred bytes for two. A writer that knows its metrics needs no messages of another kind between them and the bytes.
//!
//! Writing goes from [`Metric`]s, whose names and types are known, through [`encode()`] or piece by piece through an [`Encoder`]. [`payload_room`]
//! says how much memory to take for it at once.
//!
//! Reading has two steps, because only births say everything about a metric. The first is one of these; all of them check the whole payload and keep the [`Limits`]:
//!
//! | reader | yields | memory | for |
//! |---|---|---|---|
//! | [`decode_ref`] | [`PayloadRef`] of [`MetricRef`]s: names, texts and bytes are slices of the message; properties, tables, templates and descriptions are decoded on request | one list | readers that are done with a message when they return: replicas |
//! | [`decode()`] | [`RawPayload`] of [`RawMetric`]s | a copy of every text | readers that keep messages as they are: tools, tests |
//! | [`decode_for_display`] | [`DisplayPayload`] | as [`decode()`] | tools that have seen no birth |
//!
//! For the second, a reader that knows the birth turns each metric into a [`Metric`] with [`MetricRef::resolve`] or [`RawMetric::resolve`]. The name that it is given is shared, so
//! that the metrics of a replica keep the names of their birth and data copies none.
//!
//! All readers take compressed payloads as if they were not compressed; [`Compression::apply`] makes them.
//!
//! Nothing here knows topics, sequence rules or sessions.

mod array;
mod basic_value;
mod borrowed;
mod check;
mod compression;
mod decode;
mod dialect;
mod display;
mod encode;
mod flate;
mod limits;
mod nested;
pub(crate) mod number;
mod owned;
pub(crate) mod plain;
mod read;
mod resolve;
mod sink;
#[cfg(test)]
mod tests;
mod value;
mod wire;
mod write;

use std::sync::Arc;

use bytes::Bytes;

use crate::metric::Metric;

pub use borrowed::{DataSetRef, Inflated, MetaDataRef, MetricRef, PayloadRef, PropertiesRef, TemplateRef, ValueRef};
pub use compression::{COMPRESSED, Compression, CompressionAlgorithm};
pub use decode::{decode, decode_ref};
pub use dialect::{Dialect, UnknownDialect};
pub use display::{DisplayMetric, DisplayPayload, decode_for_display};
pub use encode::{AliasOf, EncodeOptions, Encoder, Form, encode, frame_bytes, metric_bytes, payload_room};
pub use limits::{DecodeError, Limits};
pub use owned::{RawMetric, RawPayload, RawTemplate, WireValue};
pub use value::MetricError;

/// A payload as applications and machines see it. In messages other than births a metric may arrive with an alias for a name and without
/// a type; the readers leave those to a resolver.
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
