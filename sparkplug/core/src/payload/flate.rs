//! DEFLATE and GZIP, if the feature `compression` is on; without it nothing is compressed, and what others have compressed is refused.

use super::limits::DecodeError;

#[cfg(feature = "compression")]
pub(super) use with_flate2::{deflate, gunzip, gzip, inflate};
#[cfg(not(feature = "compression"))]
pub(super) use without::{deflate, gunzip, gzip, inflate};

pub(super) fn error(reason: impl Into<String>) -> DecodeError {
    DecodeError::Compressed { reason: reason.into() }
}

#[cfg(feature = "compression")]
mod with_flate2 {
    use std::io::{Read, Write};

    use flate2::write::{GzEncoder, ZlibEncoder};
    use flate2::{Compression as Level, Decompress, FlushDecompress, Status};

    use super::{DecodeError, error};

    /// What the first piece of memory for inflated bytes holds at most; more follows as it fills.
    const PIECE_BYTES: usize = 16 * 1024;

    pub(in super::super) fn deflate(bytes: &[u8]) -> Option<Vec<u8>> {
        let mut encoder = ZlibEncoder::new(Vec::new(), Level::default());
        encoder.write_all(bytes).and_then(|()| encoder.finish()).ok()
    }

    pub(in super::super) fn gzip(bytes: &[u8]) -> Option<Vec<u8>> {
        let mut encoder = GzEncoder::new(Vec::new(), Level::default());
        encoder.write_all(bytes).and_then(|()| encoder.finish()).ok()
    }

    /// By hand, because flate2's readers take a stream that is cut off for one that ends.
    pub(in super::super) fn inflate(body: &[u8], max: usize) -> Result<Vec<u8>, DecodeError> {
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

    pub(in super::super) fn gunzip(body: &[u8], max: usize) -> Result<Vec<u8>, DecodeError> {
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
}

#[cfg(not(feature = "compression"))]
mod without {
    use super::{DecodeError, error};

    pub(in super::super) const fn deflate(_: &[u8]) -> Option<Vec<u8>> {
        None
    }

    pub(in super::super) const fn gzip(_: &[u8]) -> Option<Vec<u8>> {
        None
    }

    pub(in super::super) fn inflate(_: &[u8], _: usize) -> Result<Vec<u8>, DecodeError> {
        Err(error("this program was built without the feature `compression`"))
    }

    pub(in super::super) fn gunzip(body: &[u8], max: usize) -> Result<Vec<u8>, DecodeError> {
        inflate(body, max)
    }
}
