//! Array values inside `bytes_value` (Sparkplug 3.0, 6.4.17): elements packed little-endian; booleans as a count and bits, most significant first;
//! strings each followed by a zero byte.

use std::sync::Arc;

/// Fixed-width numbers <-> little-endian bytes.
pub(super) trait Packed: Sized + Copy {
    /// Width in bytes.
    const WIDTH: usize;
    fn put(self, out: &mut Vec<u8>);
    fn take(bytes: &[u8]) -> Option<Self>;
}

macro_rules! packed {
    ($($type:ty),*) => {
        $(impl Packed for $type {
            const WIDTH: usize = size_of::<$type>();
            fn put(self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
            fn take(bytes: &[u8]) -> Option<Self> {
                bytes.try_into().ok().map(Self::from_le_bytes)
            }
        })*
    };
}
packed!(i8, i16, i32, i64, u8, u16, u32, u64, f32, f64);

pub(super) fn pack<T: Packed>(elements: &[T], out: &mut Vec<u8>) {
    out.reserve(elements.len() * T::WIDTH);
    for &element in elements {
        element.put(out);
    }
}

pub(super) fn unpack<T: Packed>(bytes: &[u8]) -> Result<Arc<[T]>, &'static str> {
    if !bytes.len().is_multiple_of(T::WIDTH) {
        return Err("number of bytes is not a multiple of the element width");
    }
    bytes.chunks_exact(T::WIDTH).map(|chunk| T::take(chunk).ok_or("element does not fit its width")).collect()
}

/// Those that can be counted.
fn countable(elements: &[bool]) -> (u32, &[bool]) {
    let count = u32::try_from(elements.len()).unwrap_or(u32::MAX);
    (count, &elements[..count as usize])
}

pub(super) fn packed_booleans_len(elements: &[bool]) -> usize {
    4 + countable(elements).1.len().div_ceil(8)
}

pub(super) fn pack_booleans(elements: &[bool], out: &mut Vec<u8>) {
    let (count, elements) = countable(elements);
    count.put(out);
    for chunk in elements.chunks(8) {
        out.push(chunk.iter().enumerate().fold(0, |byte, (i, &bit)| byte | (u8::from(bit) << (7 - i))));
    }
}

pub(super) fn unpack_booleans(bytes: &[u8]) -> Result<Arc<[bool]>, &'static str> {
    let (count, bits) = bytes.split_first_chunk::<4>().ok_or("boolean array is shorter than its count")?;
    let count = u32::from_le_bytes(*count) as usize;
    if bits.len() < count.div_ceil(8) {
        return Err("boolean array has fewer bits than its count says");
    }
    Ok((0..count).map(|i| bits[i / 8] & (0x80 >> (i % 8)) != 0).collect())
}

pub(super) fn packed_strings_len(elements: &[Arc<str>]) -> usize {
    elements.iter().map(|s| s.len() + 1).sum()
}

pub(super) fn pack_strings(elements: &[Arc<str>], out: &mut Vec<u8>) {
    for element in elements {
        out.extend_from_slice(element.as_bytes());
        out.push(0);
    }
}

pub(super) fn unpack_strings(bytes: &[u8]) -> Result<Arc<[Arc<str>]>, &'static str> {
    let Some((&last, body)) = bytes.split_last() else {
        return Ok(Arc::from([]));
    };
    if last != 0 {
        return Err("last string is not terminated by a zero byte");
    }
    body.split(|&b| b == 0).map(|s| std::str::from_utf8(s).map(Arc::from).map_err(|_| "string is not UTF-8")).collect()
}
