//! A walk over every field of a message that checks texts for UTF-8, counts what it saw, and builds nothing. Written for this schema and for nothing else; no reader that hands something
//! out can be much faster.

use std::hint::black_box;

/// Sums that depend on every field.
#[derive(Debug, Default, PartialEq)]
pub struct Seen {
    pub metrics: u64,
    pub properties: u64,
    pub text_bytes: u64,
    pub numbers: u64,
}

struct Walk<'a> {
    rest: &'a [u8],
}

impl<'a> Walk<'a> {
    #[inline]
    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for (i, &byte) in self.rest.iter().enumerate().take(10) {
            value |= u64::from(byte & 0x7f) << (7 * i);
            if byte < 0x80 {
                self.rest = &self.rest[i + 1..];
                return Some(value);
            }
        }
        None
    }

    #[inline]
    fn slice(&mut self) -> Option<&'a [u8]> {
        let length = self.varint()? as usize;
        let (slice, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(slice)
    }

    #[inline]
    fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.slice()?).ok()
    }

    #[inline]
    fn fixed<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (fixed, rest) = self.rest.split_first_chunk::<N>()?;
        self.rest = rest;
        Some(*fixed)
    }
}

/// Walks over a whole message; None: it is not well-formed.
pub fn payload(bytes: &[u8], seen: &mut Seen) -> Option<()> {
    let mut walk = Walk { rest: bytes };
    while !walk.rest.is_empty() {
        match walk.varint()? {
            0x12 => metric(walk.slice()?, seen)?,
            0x08 | 0x18 => seen.numbers += walk.varint()?,
            _ => return None,
        }
    }
    Some(())
}

fn metric(bytes: &[u8], seen: &mut Seen) -> Option<()> {
    seen.metrics += 1;
    let mut walk = Walk { rest: bytes };
    while !walk.rest.is_empty() {
        match walk.varint()? {
            0x0a | 0x7a => seen.text_bytes += black_box(walk.text()?).len() as u64,
            0x10 | 0x18 | 0x20 | 0x50 | 0x58 | 0x70 => seen.numbers = seen.numbers.wrapping_add(walk.varint()?),
            0x65 => seen.numbers = seen.numbers.wrapping_add(u32::from_le_bytes(walk.fixed()?).into()),
            0x69 => seen.numbers = seen.numbers.wrapping_add(u64::from_le_bytes(walk.fixed()?)),
            0x4a => properties(walk.slice()?, seen)?,
            _ => return None,
        }
    }
    Some(())
}

fn properties(bytes: &[u8], seen: &mut Seen) -> Option<()> {
    let mut walk = Walk { rest: bytes };
    while !walk.rest.is_empty() {
        match walk.varint()? {
            0x0a => seen.text_bytes += black_box(walk.text()?).len() as u64,
            0x12 => property(walk.slice()?, seen)?,
            _ => return None,
        }
    }
    Some(())
}

fn property(bytes: &[u8], seen: &mut Seen) -> Option<()> {
    seen.properties += 1;
    let mut walk = Walk { rest: bytes };
    while !walk.rest.is_empty() {
        match walk.varint()? {
            0x08 | 0x18 | 0x20 => seen.numbers = seen.numbers.wrapping_add(walk.varint()?),
            0x31 => seen.numbers = seen.numbers.wrapping_add(u64::from_le_bytes(walk.fixed()?)),
            0x42 => seen.text_bytes += black_box(walk.text()?).len() as u64,
            _ => return None,
        }
    }
    Some(())
}
