//! Protobuf's encoding, as far as reading Sparkplug takes: keys, numbers, slices. Knows no message of the schema and allocates nothing.
//!
//! A key is taken whole, number and wire type together, so that a message is read with one comparison a field. All keys below 16 are one byte,
//! and so are most lengths and small numbers: they take the short way.

/// What keeps bytes from being a message. Small, so that it costs nothing where all is well; [`super::decode::DecodeError`] explains it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// The bytes end within a field.
    CutOff,
    /// A number of more than 64 bits.
    LongNumber,
    /// Number 0, or one above 2^29.
    FieldNumber,
    /// A group, or a wire type that there is not.
    WireType,
    /// A field of the schema with another wire type than the schema's: what it should be, what it is.
    Unfit(Wanted, u32),
    /// A text that is not UTF-8.
    NotUtf8,
    /// More metrics than are read.
    Metrics,
    /// More elements than are read.
    Elements,
    /// Nested deeper than is read.
    Depth,
}

/// What the schema says of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    Number,
    Float,
    Double,
    Bytes,
}

/// Wire types.
pub(super) const VARINT: u32 = 0;
pub(super) const FIXED64: u32 = 1;
pub(super) const SLICE: u32 = 2;
pub(super) const FIXED32: u32 = 5;

/// The key of a field.
pub(super) const fn key(number: u32, wire_type: u32) -> u32 {
    number << 3 | wire_type
}

/// The key of a field, if it is one byte.
#[expect(
    clippy::cast_possible_truncation,
    reason = "only numbers below 16 are asked for, which the assertion checks when it is compiled"
)]
pub(super) const fn short_key(number: u32, wire_type: u32) -> u8 {
    assert!(number < 16);
    key(number, wire_type) as u8
}

/// Reads the fields of one message.
#[derive(Debug, Clone)]
pub(super) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    #[inline]
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The key of the next field; None at the end of the message. Its content has to be taken or skipped before the next call.
    #[inline]
    pub(super) fn next_key(&mut self) -> Result<Option<u32>, Fault> {
        match *self.rest {
            [] => Ok(None),
            [byte @ 8..=0x7f, ref rest @ ..] => {
                self.rest = rest;
                Ok(Some(byte.into()))
            }
            _ => self.long_key().map(Some),
        }
    }

    /// The key of the next field if it is one byte; otherwise, and at the end, what is not a key. A caller that does not know it calls [`Self::next_key`] on a reader
    /// that stands before it.
    #[inline]
    pub(super) fn short_key(&mut self) -> u8 {
        match *self.rest {
            [byte, ref rest @ ..] => {
                self.rest = rest;
                byte
            }
            [] => 0,
        }
    }

    #[inline]
    pub(super) const fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    fn long_key(&mut self) -> Result<u32, Fault> {
        let key = u32::try_from(self.long()?).map_err(|_| Fault::FieldNumber)?;
        if key < 8 { Err(Fault::FieldNumber) } else { Ok(key) }
    }

    /// A number.
    #[inline]
    pub(super) fn long(&mut self) -> Result<u64, Fault> {
        match *self.rest {
            [byte @ ..=0x7f, ref rest @ ..] => {
                self.rest = rest;
                Ok(byte.into())
            }
            [low, high @ ..=0x7f, ref rest @ ..] => {
                self.rest = rest;
                Ok(u64::from(low & 0x7f) | u64::from(high) << 7)
            }
            _ => match long_varint(self.rest) {
                Some((value, length)) => {
                    self.rest = self.rest.get(length..).unwrap_or_default();
                    Ok(value)
                }
                None => Err(self.number_fault()),
            },
        }
    }

    #[cold]
    fn number_fault(&self) -> Fault {
        if self.rest.len() < 10 { Fault::CutOff } else { Fault::LongNumber }
    }

    /// A number of 32 bits. Higher bits are cut, as protobuf has it.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the rule of protobuf")]
    pub(super) fn int(&mut self) -> Result<u32, Fault> {
        self.long().map(|n| n as u32)
    }

    #[inline]
    pub(super) fn boolean(&mut self) -> Result<bool, Fault> {
        self.long().map(|n| n != 0)
    }

    #[inline]
    pub(super) fn float(&mut self) -> Result<f32, Fault> {
        self.array().map(f32::from_le_bytes)
    }

    #[inline]
    pub(super) fn double(&mut self) -> Result<f64, Fault> {
        self.array().map(f64::from_le_bytes)
    }

    #[inline]
    pub(super) fn slice(&mut self) -> Result<&'a [u8], Fault> {
        let length = usize::try_from(self.long()?).map_err(|_| Fault::CutOff)?;
        let (slice, rest) = self.rest.split_at_checked(length).ok_or(Fault::CutOff)?;
        self.rest = rest;
        Ok(slice)
    }

    #[inline]
    pub(super) fn text(&mut self) -> Result<&'a str, Fault> {
        std::str::from_utf8(self.slice()?).map_err(|_| Fault::NotUtf8)
    }

    /// Passes over the content of a field that means nothing here. `known`: fields up to this number mean something, but with another wire type.
    pub(super) fn skip(&mut self, key: u32, known: &[Wanted]) -> Result<(), Fault> {
        let wire_type = key & 7;
        match wire_type {
            VARINT => self.long().map(drop)?,
            FIXED64 => self.array::<8>().map(drop)?,
            SLICE => self.slice().map(drop)?,
            FIXED32 => self.array::<4>().map(drop)?,
            // Groups do not occur in the schema, and skipping unknown ones would cost what their nesting costs.
            _ => return Err(Fault::WireType),
        }
        match known.get((key >> 3) as usize - 1) {
            Some(wanted) => Err(Fault::Unfit(*wanted, wire_type)),
            None => Ok(()),
        }
    }

    /// A number without a key, as in packed fields; None at the end.
    pub(super) fn next_packed(&mut self) -> Result<Option<u32>, Fault> {
        if self.rest.is_empty() { Ok(None) } else { self.int().map(Some) }
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let (array, rest) = self.rest.split_first_chunk::<N>().ok_or(Fault::CutOff)?;
        self.rest = rest;
        Ok(*array)
    }
}

/// A number of any length, and its length.
#[inline]
fn long_varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let Some(chunk) = bytes.first_chunk::<8>() else { return stepwise(bytes) };
    let word = u64::from_le_bytes(*chunk);
    let stops = !word & 0x8080_8080_8080_8080;
    if stops == 0 {
        return stepwise(bytes);
    }
    let bits = stops.trailing_zeros() + 1;
    // Seven bits of each byte, closed up in pairs, fours and eights.
    let x = word & (u64::MAX >> (64 - bits)) & 0x7f7f_7f7f_7f7f_7f7f;
    let x = x & 0x007f_007f_007f_007f | (x & 0x7f00_7f00_7f00_7f00) >> 1;
    let x = x & 0x0000_3fff_0000_3fff | (x & 0x3fff_0000_3fff_0000) >> 2;
    let x = x & 0x0000_0000_0fff_ffff | (x & 0x0fff_ffff_0000_0000) >> 4;
    Some((x, bits as usize / 8))
}

fn stepwise(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0;
    for (index, &byte) in bytes.iter().take(10).enumerate() {
        if index == 9 && byte > 1 {
            return None;
        }
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Some((value, index + 1));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_every_length_are_read_at_the_end_and_before_more() {
        for shift in 0..64 {
            for value in [1u64 << shift, (1 << shift) - 1, u64::MAX >> shift] {
                let mut bytes = Vec::new();
                prost::encoding::encode_varint(value, &mut bytes);
                for padding in [0, 1, 7, 12] {
                    let padded: Vec<u8> = bytes.iter().copied().chain([0xff].repeat(padding)).collect();
                    let mut fields = Fields::new(&padded);
                    assert_eq!((fields.long(), fields.rest.len()), (Ok(value), padding), "{value:#x}");
                }
                for end in 0..bytes.len() {
                    assert_eq!(Fields::new(&bytes[..end]).long(), Err(Fault::CutOff), "{value:#x}");
                }
            }
        }
    }

    #[test]
    fn numbers_longer_than_they_need_be_are_read_and_too_long_ones_refused() {
        let mut padded = [0x80u8; 12];
        padded[0] = 0x85;
        for end in 1..10 {
            let mut bytes = padded;
            bytes[end] = 0;
            assert_eq!(Fields::new(&bytes).long(), Ok(5), "{end}");
            assert_eq!(Fields::new(&bytes[..=end]).long(), Ok(5), "{end}");
        }
        assert_eq!(Fields::new(&padded).long(), Err(Fault::LongNumber));
        let mut high = [0xffu8; 10];
        high[9] = 1;
        assert_eq!(Fields::new(&high).long(), Ok(u64::MAX));
        high[9] = 2;
        assert_eq!(Fields::new(&high).long(), Err(Fault::LongNumber));
    }

    #[test]
    fn keys_without_a_number_or_beyond_the_last_are_refused() {
        assert_eq!(Fields::new(&[]).next_key(), Ok(None));
        assert_eq!(Fields::new(&[0x0a, 0]).next_key(), Ok(Some(key(1, SLICE))));
        assert_eq!(Fields::new(&[0x8a, 0x00, 0]).next_key(), Ok(Some(key(1, SLICE))));
        for bytes in [&[0u8][..], &[7], &[0x82, 0], &[0xff, 0xff, 0xff, 0xff, 0x10]] {
            assert_eq!(Fields::new(bytes).next_key(), Err(Fault::FieldNumber), "{bytes:x?}");
        }
    }
}
