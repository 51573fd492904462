//! Compressed payloads, a convention of Eclipse Tahu that the standard does not know: the payload `uuid` is [`COMPRESSED`], `body` is the compressed bytes of the
//! whole payload that is meant, and a String metric `algorithm` says how; without it the algorithm is DEFLATE (with the header of zlib, RFC 1950).
//!
//! Senders differ in what else they write: Tahu's Java repeats `seq` outside, its JavaScript neither `seq` nor `timestamp`. So `seq` and
//! `timestamp` are taken from outside if they stand there, else from inside; everything else is taken from inside, and other metrics outside are ignored.
//!
//! Inflating stops at [`Limits::inflated_bytes_max`], so that a few bytes cannot ask for gigabytes. Knows nothing of sessions: whether to compress is for
//! the sender to say.

use std::io::{Read, Write};

use bytes::Bytes;
use flate2::write::{GzEncoder, ZlibEncoder};
use flate2::{Compression as Level, Decompress, FlushDecompress, Status};

use super::borrowed::{PayloadRef, ValueRef};
use super::limits::{DecodeError, Limits};
use super::read::read;
use super::{Dialect, Encoder, Form};
use crate::metric::Metric;

/// The payload `uuid` that marks a compressed payload.
pub const COMPRESSED: &str = "SPBV1.0_COMPRESSED";
/// The metric that names the algorithm.
const ALGORITHM: &str = "algorithm";
/// What the first piece of memory for inflated bytes holds at most; more follows as it fills.
const PIECE_BYTES: usize = 16 * 1024;

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
    /// The payload that carries `inner` compressed, with the `timestamp` and `seq` of it outside, too. None if it is too small or would not shrink.
    #[must_use]
    pub fn apply(&self, inner: &[u8], timestamp: u64, seq: Option<u64>) -> Option<Bytes> {
        if inner.len() < self.bytes_min {
            return None;
        }
        let body = match self.algorithm {
            CompressionAlgorithm::Deflate => {
                let mut encoder = ZlibEncoder::new(Vec::new(), Level::default());
                encoder.write_all(inner).and_then(|()| encoder.finish())
            }
            CompressionAlgorithm::Gzip => {
                let mut encoder = GzEncoder::new(Vec::new(), Level::default());
                encoder.write_all(inner).and_then(|()| encoder.finish())
            }
        };
        let mut outer = Encoder::new(Form::Birth, Dialect::Strict, Some(timestamp));
        outer.metric(&Metric::string(ALGORITHM, Some(self.algorithm.name())).at(timestamp), None, false);
        let outer = outer.finish(seq, Some(&COMPRESSED.into()), Some(&body.ok()?.into()));
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

fn error(reason: impl Into<String>) -> DecodeError {
    DecodeError::Compressed { reason: reason.into() }
}

/// By hand, because flate2's readers take a stream that is cut off for one that ends.
fn inflate(body: &[u8], max: usize) -> Result<Vec<u8>, DecodeError> {
    let mut stream = Decompress::new(true);
    let mut out = Vec::new();
    loop {
        if out.len() == out.capacity() {
            // One byte beyond the limit is room enough to see that there is more.
            let room = max.saturating_add(1).saturating_sub(out.len());
            if room == 0 {
                return Err(DecodeError::InflatedTooLarge { max });
            }
            out.reserve_exact(out.len().max(PIECE_BYTES).min(room));
        }
        let (read, written) = (stream.total_in(), out.len());
        let rest = usize::try_from(read).ok().and_then(|read| body.get(read..)).unwrap_or_default();
        let status = stream
            .decompress_vec(rest, &mut out, FlushDecompress::None)
            .map_err(|_| error("its body is not a DEFLATE stream with the header of zlib, or is damaged"))?;
        if out.len() > max {
            return Err(DecodeError::InflatedTooLarge { max });
        }
        if status == Status::StreamEnd {
            break;
        }
        if stream.total_in() == read && out.len() == written && out.len() < out.capacity() {
            return Err(error("its body ends in the middle of the DEFLATE stream"));
        }
    }
    if stream.total_in() != body.len() as u64 {
        return Err(error("something follows the DEFLATE stream in its body"));
    }
    Ok(out)
}

fn gunzip(body: &[u8], max: usize) -> Result<Vec<u8>, DecodeError> {
    let mut stream = flate2::bufread::GzDecoder::new(body);
    let mut out = Vec::new();
    let room = u64::try_from(max).unwrap_or(u64::MAX).saturating_add(1);
    stream.by_ref().take(room).read_to_end(&mut out).map_err(|e| {
        if e.kind() == std::io::ErrorKind::UnexpectedEof {
            error("its body ends in the middle of the GZIP stream")
        } else {
            error("its body is not a GZIP stream, or is damaged")
        }
    })?;
    if out.len() > max {
        return Err(DecodeError::InflatedTooLarge { max });
    }
    if !stream.into_inner().is_empty() {
        return Err(error("something follows the GZIP stream in its body"));
    }
    Ok(out)
}
