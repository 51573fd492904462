//! Compressed payloads, a convention of Eclipse Tahu that the standard does not know.
//! The payload `uuid` is [`COMPRESSED`], and `body` is the compressed bytes of the whole payload that is meant.
//! A String metric `algorithm` says how; without it the algorithm is DEFLATE (with the header of zlib, RFC 1950).
//!
//! Senders differ in what else they write: Tahu's Java repeats `seq` outside, its JavaScript neither `seq` nor `timestamp`. So `seq` and
//! `timestamp` are taken from outside if they stand there, else from inside; everything else is taken from inside, and other metrics outside are ignored.
//!
//! Inflating stops at [`Limits::inflated_bytes_max`], so that a few bytes cannot ask for gigabytes. Knows nothing of sessions: whether to compress is for
//! the sender to say.

use bytes::Bytes;

use super::borrowed::{PayloadRef, ValueRef};
use super::flate::{deflate, error, gunzip, gzip, inflate};
use super::limits::{DecodeError, Limits};
use super::read::read;
use super::{Dialect, Encoder, Form};
use crate::metric::Metric;

/// The payload `uuid` that marks a compressed payload.
pub const COMPRESSED: &str = "SPBV1.0_COMPRESSED";
/// The metric that names the algorithm.
const ALGORITHM: &str = "algorithm";

/// How the body of a payload is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompressionAlgorithm {
    /// `DEFLATE`: zlib, RFC 1950.
    Deflate,
    /// `GZIP`: RFC 1952.
    Gzip,
}

impl CompressionAlgorithm {
    /// As the metric `algorithm` names it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Deflate => "DEFLATE",
            Self::Gzip => "GZIP",
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        [Self::Deflate, Self::Gzip].into_iter().find(|a| a.name().eq_ignore_ascii_case(name))
    }
}

/// When and how a sender compresses. Receivers must know the convention, which is none of the standard's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compression {
    /// How.
    pub algorithm: CompressionAlgorithm,
    /// Payloads of fewer bytes go out as they are, and so do those that compression does not make smaller.
    pub bytes_min: usize,
}

impl Compression {
    /// The payload that carries `inner` compressed, with the `timestamp` and `seq` of it outside, too. None if it is too small or would not shrink, and without
    /// the feature `compression`.
    #[must_use]
    pub fn apply(&self, inner: &[u8], timestamp: u64, seq: Option<u64>) -> Option<Bytes> {
        if inner.len() < self.bytes_min {
            return None;
        }
        let body = match self.algorithm {
            CompressionAlgorithm::Deflate => deflate(inner),
            CompressionAlgorithm::Gzip => gzip(inner),
        }?;
        let mut outer = Encoder::new(Form::Birth, Dialect::Strict, Some(timestamp));
        outer.metric(&Metric::string(ALGORITHM, Some(self.algorithm.name())).at(timestamp), None, false);
        let outer = outer.finish(seq, Some(&COMPRESSED.into()), Some(&body.into()));
        (outer.len() < inner.len()).then_some(outer)
    }
}

/// The payload that `outer` carries, which says of itself that it is compressed; what comes out is kept in `inflated`.
pub(super) fn unwrap<'a>(
    outer: &PayloadRef<'_>,
    limits: &Limits,
    inflated: &'a mut Vec<u8>,
) -> Result<PayloadRef<'a>, DecodeError> {
    let algorithm = algorithm(outer)?;
    let body = outer.body.ok_or_else(|| error("it has no body"))?;
    let max = limits.inflated_bytes_max;
    *inflated = match algorithm {
        CompressionAlgorithm::Deflate => inflate(body, max)?,
        CompressionAlgorithm::Gzip => gunzip(body, max)?,
    };
    let inner = read(inflated, &Limits { bytes_max: max, ..*limits })?;
    if inner.uuid == Some(COMPRESSED) {
        return Err(error("what it carries is compressed again"));
    }
    Ok(PayloadRef { timestamp: outer.timestamp.or(inner.timestamp), seq: outer.seq.or(inner.seq), ..inner })
}

fn algorithm(outer: &PayloadRef<'_>) -> Result<CompressionAlgorithm, DecodeError> {
    let Some(metric) = outer.metrics.iter().find(|m| m.name == Some(ALGORITHM)) else {
        return Ok(CompressionAlgorithm::Deflate);
    };
    let Some(ValueRef::String(name)) = metric.value else {
        return Err(error("its metric `algorithm` has no text"));
    };
    CompressionAlgorithm::from_name(name)
        .ok_or_else(|| error(format!("algorithm {:?} is neither DEFLATE nor GZIP", shortened(name))))
}

/// Names come from outside and end in messages for people.
fn shortened(name: &str) -> String {
    name.chars().take(40).collect()
}
