//! Protobuf's encoding, as far as writing Sparkplug takes. What writes a message writes it into a [`Sink`]: into bytes, or into a count of bytes. So the code that writes a message
//! also gives its size, before memory is taken for it.

use super::wire::{FIXED32, FIXED64, SLICE, VARINT, key};

/// Takes fields. Keys are `number << 3 | wire type`.
pub(super) trait Sink: Sized {
    /// A field of wire type varint.
    fn number(&mut self, number: u32, value: u64);
    /// A field of four bytes.
    fn fixed32(&mut self, number: u32, value: [u8; 4]);
    /// A field of eight bytes.
    fn fixed64(&mut self, number: u32, value: [u8; 8]);
    /// A field of bytes or text.
    fn slice(&mut self, number: u32, bytes: &[u8]);
    /// A field of `length` bytes that `fill` appends.
    fn filled(&mut self, number: u32, length: usize, fill: impl FnOnce(&mut Vec<u8>));
    /// A message within the message. `least`: bytes that it has at least; the better it is known, the less is moved to make room for its length.
    fn message(&mut self, number: u32, least: usize, write: impl FnOnce(&mut Self));

    #[inline]
    fn flag(&mut self, number: u32, value: bool) {
        self.number(number, value.into());
    }
}

/// Bytes that a number takes.
#[inline]
pub(super) const fn varint_len(value: u64) -> usize {
    // A byte for every seven bits, one for none.
    (((value | 1).ilog2() * 9 + 73) / 64) as usize
}

/// Counts bytes.
#[derive(Debug, Default)]
pub(super) struct Count(pub(super) usize);

impl Count {
    #[inline]
    fn key(number: u32) -> usize {
        varint_len(key(number, SLICE).into())
    }
}

impl Sink for Count {
    #[inline]
    fn number(&mut self, number: u32, value: u64) {
        self.0 += Self::key(number) + varint_len(value);
    }

    #[inline]
    fn fixed32(&mut self, number: u32, _value: [u8; 4]) {
        self.0 += Self::key(number) + 4;
    }

    #[inline]
    fn fixed64(&mut self, number: u32, _value: [u8; 8]) {
        self.0 += Self::key(number) + 8;
    }

    #[inline]
    fn slice(&mut self, number: u32, bytes: &[u8]) {
        self.0 += Self::key(number) + varint_len(bytes.len() as u64) + bytes.len();
    }

    #[inline]
    fn filled(&mut self, number: u32, length: usize, _fill: impl FnOnce(&mut Vec<u8>)) {
        self.0 += Self::key(number) + varint_len(length as u64) + length;
    }

    #[inline]
    fn message(&mut self, number: u32, _least: usize, write: impl FnOnce(&mut Self)) {
        let before = self.0;
        write(self);
        self.0 += Self::key(number) + varint_len((self.0 - before) as u64);
    }
}

/// Seven bits a byte, each byte but the last with its highest bit set; and how many bytes that are. For numbers of up to 56 bits.
#[inline]
const fn spread(value: u64) -> (u64, usize) {
    let x = value & 0x0fff_ffff | (value & 0x00ff_ffff_f000_0000) << 4;
    let x = x & 0x0000_3fff_0000_3fff | (x & 0x0fff_c000_0fff_c000) << 2;
    let x = x & 0x007f_007f_007f_007f | (x & 0x3f80_3f80_3f80_3f80) << 1;
    let length = varint_len(value);
    (x | 0x8080_8080_8080_8080 & !(u64::MAX << (8 * (length - 1))), length)
}

/// The lowest `length` bytes of `word`. Eight are written at once, of which some are taken back. Words that go straight into the message are faster than pieces that are put
/// together elsewhere. A processor waits when it reads what it has just written in smaller parts.
#[inline]
fn put_word(out: &mut Vec<u8>, word: u64, length: usize) {
    let end = out.len() + length;
    out.extend_from_slice(&word.to_le_bytes());
    out.truncate(end);
}

/// A key and a number.
#[inline]
fn put(out: &mut Vec<u8>, key: u32, value: u64) {
    // At the end of a buffer that has the right size there is no room for whole words.
    let has_room = out.capacity() - out.len() >= 8;
    if has_room && key < 0x80 && value < 0x80 {
        put_word(out, u64::from(key) | value << 8, 2);
    } else if has_room && key < 0x80 && value < 1 << 49 {
        let (word, length) = spread(value);
        put_word(out, u64::from(key) | word << 8, 1 + length);
    } else {
        put_stepwise(out, key.into());
        put_stepwise(out, value);
    }
}

#[inline(never)]
#[expect(clippy::cast_possible_truncation, reason = "seven bits at a time")]
fn put_stepwise(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

impl Sink for Vec<u8> {
    #[inline]
    fn number(&mut self, number: u32, value: u64) {
        put(self, key(number, VARINT), value);
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "only numbers below 16 carry floats")]
    fn fixed32(&mut self, number: u32, [a, b, c, d]: [u8; 4]) {
        self.extend_from_slice(&[key(number, FIXED32) as u8, a, b, c, d]);
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "only numbers below 16 carry doubles")]
    fn fixed64(&mut self, number: u32, [a, b, c, d, e, f, g, h]: [u8; 8]) {
        self.extend_from_slice(&[key(number, FIXED64) as u8, a, b, c, d, e, f, g, h]);
    }

    #[inline]
    fn slice(&mut self, number: u32, bytes: &[u8]) {
        put(self, key(number, SLICE), bytes.len() as u64);
        self.extend_from_slice(bytes);
    }

    #[inline]
    fn filled(&mut self, number: u32, length: usize, fill: impl FnOnce(&mut Vec<u8>)) {
        put(self, key(number, SLICE), length as u64);
        fill(self);
    }

    #[inline]
    fn message(&mut self, number: u32, least: usize, write: impl FnOnce(&mut Self)) {
        let key = key(number, SLICE);
        let start = self.len() + varint_len(key.into());
        put(self, key, least as u64);
        let from = self.len();
        write(self);
        let length = self.len() - from;
        match self.get_mut(start) {
            Some(first) if length < 0x80 && from == start + 1 => {
                #[expect(clippy::cast_possible_truncation, reason = "seven bits")]
                let short = length as u8;
                *first = short;
            }
            _ => put_length(self, start, from, length),
        }
    }
}

/// Puts the length of a message where it belongs, between `start` and `from`, and moves the message if that place has another size.
#[inline(never)]
fn put_length(out: &mut Vec<u8>, start: usize, from: usize, length: usize) {
    let width = varint_len(length as u64);
    let to = start + width;
    if to > from {
        out.extend_from_slice(&[0; 10][..to - from]);
    }
    if to != from {
        out.copy_within(from..from + length, to);
        out.truncate(to + length);
    }
    let mut rest = length;
    for byte in &mut out[start..to] {
        *byte = (rest & 0x7f) as u8 | 0x80;
        rest >>= 7;
    }
    out[to - 1] &= 0x7f;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prost(value: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        prost::encoding::encode_varint(value, &mut bytes);
        bytes
    }

    #[test]
    fn numbers_are_written_as_prost_writes_them_with_and_without_room() {
        for shift in 0..64 {
            for value in [1u64 << shift, (1 << shift) - 1, u64::MAX >> shift] {
                let expected = prost(value);
                assert_eq!(varint_len(value), expected.len(), "{value:#x}");
                for room in [expected.len(), 64] {
                    let mut bytes = Vec::with_capacity(room + 1);
                    Sink::number(&mut bytes, 2, value);
                    assert_eq!((bytes[0], &bytes[1..]), (0x10, &expected[..]), "{value:#x}");
                    assert!(bytes.capacity() <= room.max(8) + 1, "{value:#x} took {} bytes", bytes.capacity());
                }
            }
        }
    }

    #[test]
    fn a_message_is_written_the_same_however_well_its_size_is_known() {
        for length in [0, 1, 127, 128, 300, 16_383, 16_384, 70_000] {
            let mut expected = vec![0x12];
            expected.extend(prost(length as u64));
            expected.extend([7].repeat(length));
            for least in [0, length.min(100), length, length * 2, 1 << 22] {
                let mut bytes = Vec::new();
                Sink::message(&mut bytes, 2, least, |out: &mut Vec<u8>| out.extend([7].repeat(length)));
                assert!(bytes == expected, "{length} bytes, {least} expected");
            }
            let mut count = Count::default();
            count.message(2, 0, |count| count.0 += length);
            assert_eq!(count.0, expected.len());
        }
    }
}
