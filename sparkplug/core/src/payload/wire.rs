//! Protobuf's encoding, as far as reading Sparkplug takes: keys, numbers, slices. Knows no message of the schema and allocates nothing.

use super::decode::DecodeError;

/// The content of a field.
#[derive(Debug, Clone, Copy)]
pub(super) enum Field<'a> {
    Varint(u64),
    Fixed64(u64),
    Slice(&'a [u8]),
    Fixed32(u32),
}

/// Reads the fields of one message.
#[derive(Debug)]
pub(super) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The next field with its number; None at the end of the message.
    pub(super) fn next(&mut self) -> Result<Option<(u64, Field<'a>)>, DecodeError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let key = self.varint()?;
        let number = key >> 3;
        if number == 0 || key > u64::from(u32::MAX) {
            return Err(DecodeError::protobuf("a field has a number that no field can have"));
        }
        let field = match key & 7 {
            0 => Field::Varint(self.varint()?),
            1 => Field::Fixed64(u64::from_le_bytes(self.array()?)),
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| DecodeError::cut_off())?;
                let (slice, rest) = self.rest.split_at_checked(length).ok_or_else(DecodeError::cut_off)?;
                self.rest = rest;
                Field::Slice(slice)
            }
            5 => Field::Fixed32(u32::from_le_bytes(self.array()?)),
            // Groups do not occur in the schema, and skipping unknown ones would cost what their nesting costs.
            _ => return Err(DecodeError::protobuf("a group or an unknown wire type")),
        };
        Ok(Some((number, field)))
    }

    /// A number without a key, as in packed fields; None at the end.
    pub(super) fn next_packed(&mut self) -> Result<Option<u64>, DecodeError> {
        if self.rest.is_empty() { Ok(None) } else { self.varint().map(Some) }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (array, rest) = self.rest.split_first_chunk::<N>().ok_or_else(DecodeError::cut_off)?;
        self.rest = rest;
        Ok(*array)
    }

    fn varint(&mut self) -> Result<u64, DecodeError> {
        let mut value = 0;
        for (index, &byte) in self.rest.iter().take(10).enumerate() {
            if index == 9 && byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7f) << (7 * index);
            if byte & 0x80 == 0 {
                self.rest = &self.rest[index + 1..];
                return Ok(value);
            }
        }
        Err(if self.rest.len() < 10 {
            DecodeError::cut_off()
        } else {
            DecodeError::protobuf("a number of more than 64 bits")
        })
    }
}

impl<'a> Field<'a> {
    pub(super) fn long(self) -> Result<u64, DecodeError> {
        match self {
            Self::Varint(n) => Ok(n),
            _ => Err(self.unfit("a number")),
        }
    }

    /// Higher bits are cut, as protobuf has it.
    #[expect(clippy::cast_possible_truncation, reason = "the rule of protobuf")]
    pub(super) fn int(self) -> Result<u32, DecodeError> {
        self.long().map(|n| n as u32)
    }

    pub(super) fn boolean(self) -> Result<bool, DecodeError> {
        self.long().map(|n| n != 0)
    }

    pub(super) fn float(self) -> Result<f32, DecodeError> {
        match self {
            Self::Fixed32(bits) => Ok(f32::from_bits(bits)),
            _ => Err(self.unfit("a float")),
        }
    }

    pub(super) fn double(self) -> Result<f64, DecodeError> {
        match self {
            Self::Fixed64(bits) => Ok(f64::from_bits(bits)),
            _ => Err(self.unfit("a double")),
        }
    }

    pub(super) fn slice(self) -> Result<&'a [u8], DecodeError> {
        match self {
            Self::Slice(slice) => Ok(slice),
            _ => Err(self.unfit("bytes")),
        }
    }

    pub(super) fn text(self) -> Result<&'a str, DecodeError> {
        std::str::from_utf8(self.slice()?).map_err(|_| DecodeError::protobuf("a text is not UTF-8"))
    }

    fn unfit(self, wanted: &str) -> DecodeError {
        let is = match self {
            Self::Varint(_) => "a varint",
            Self::Fixed64(_) => "64 bits",
            Self::Slice(_) => "bytes",
            Self::Fixed32(_) => "32 bits",
        };
        DecodeError::protobuf(format!("a field that should be {wanted} is {is}"))
    }
}
