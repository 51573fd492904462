//! Reads TPM 2.0 structures: big-endian integers and sized buffers, with a bound on every size and the name of the field in every error. Firmware writes its event log in
//! little-endian integers.
//!
//! Part 1 and part 2 of the TPM 2.0 Library Specification define the structures; their names are those of the specification.

use std::fmt;

/// Why bytes are not the TPM structure that they should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {rule}")]
pub struct Malformed {
    /// The field, by the specification's name.
    pub field: &'static str,
    /// What it breaks.
    pub rule: Rule,
}

/// What a field breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// The bytes end before the field does.
    Short {
        /// Bytes that the field needs.
        wanted: usize,
        /// Bytes that are left.
        left: usize,
    },
    /// The field is larger than it can be.
    Long {
        /// The most that is allowed: bytes, or elements of a list.
        max: usize,
        /// What it says of itself.
        found: usize,
    },
    /// Bytes follow the structure.
    Trailing {
        /// How many.
        left: usize,
    },
    /// A value that is not one of those that are known here.
    Unknown {
        /// The value.
        found: u64,
    },
    /// Not the size that goes with the other fields.
    Size {
        /// The size that goes with them.
        wanted: usize,
        /// The size that it has.
        found: usize,
    },
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short { wanted, left } => write!(f, "needs {wanted} bytes, {left} are left"),
            Self::Long { max, found } => write!(f, "{found} is more than {max}"),
            Self::Trailing { left } => write!(f, "{left} bytes follow its end"),
            Self::Unknown { found } => write!(f, "{found:#x} is not known"),
            Self::Size { wanted, found } => write!(f, "has size {found}, and {wanted} is wanted"),
        }
    }
}

impl Malformed {
    /// An unknown value of a field.
    pub(crate) fn unknown(field: &'static str, found: impl Into<u64>) -> Self {
        Self { field, rule: Rule::Unknown { found: found.into() } }
    }

    /// A wrong size of a field.
    pub(crate) const fn size(field: &'static str, wanted: usize, found: usize) -> Self {
        Self { field, rule: Rule::Size { wanted, found } }
    }

    /// Too much of something.
    pub(crate) const fn long(field: &'static str, max: usize, found: usize) -> Self {
        Self { field, rule: Rule::Long { max, found } }
    }
}

/// Bytes that are read from the front.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'a> {
    left: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { left: bytes }
    }

    /// What has not been read.
    pub(crate) const fn left(&self) -> &'a [u8] {
        self.left
    }

    /// The next `wanted` bytes.
    pub(crate) fn take(&mut self, field: &'static str, wanted: usize) -> Result<&'a [u8], Malformed> {
        let Some((taken, left)) = self.left.split_at_checked(wanted) else {
            return Err(Malformed { field, rule: Rule::Short { wanted, left: self.left.len() } });
        };
        self.left = left;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], Malformed> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(field, N)?);
        Ok(array)
    }

    pub(crate) fn u8(&mut self, field: &'static str) -> Result<u8, Malformed> {
        self.array(field).map(u8::from_be_bytes)
    }

    pub(crate) fn u16(&mut self, field: &'static str) -> Result<u16, Malformed> {
        self.array(field).map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self, field: &'static str) -> Result<u32, Malformed> {
        self.array(field).map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self, field: &'static str) -> Result<u64, Malformed> {
        self.array(field).map(u64::from_be_bytes)
    }

    /// Two bytes in the order of firmware, least significant first.
    pub(crate) fn u16_le(&mut self, field: &'static str) -> Result<u16, Malformed> {
        self.array(field).map(u16::from_le_bytes)
    }

    /// Four bytes in the order of firmware.
    pub(crate) fn u32_le(&mut self, field: &'static str) -> Result<u32, Malformed> {
        self.array(field).map(u32::from_le_bytes)
    }

    /// Eight bytes in the order of firmware.
    pub(crate) fn u64_le(&mut self, field: &'static str) -> Result<u64, Malformed> {
        self.array(field).map(u64::from_le_bytes)
    }

    /// A sized buffer (`TPM2B_...`): two bytes of size, then at most `max` bytes.
    pub(crate) fn sized(&mut self, field: &'static str, max: usize) -> Result<&'a [u8], Malformed> {
        let size = usize::from(self.u16(field)?);
        if size > max {
            return Err(Malformed::long(field, max, size));
        }
        self.take(field, size)
    }

    /// The number of elements of a list (`TPML_...`).
    pub(crate) fn count(&mut self, field: &'static str, max: usize) -> Result<usize, Malformed> {
        let count = self.u32(field)? as usize;
        if count > max { Err(Malformed::long(field, max, count)) } else { Ok(count) }
    }

    /// Everything has been read.
    pub(crate) const fn finish(&self, field: &'static str) -> Result<(), Malformed> {
        match self.left.len() {
            0 => Ok(()),
            left => Err(Malformed { field, rule: Rule::Trailing { left } }),
        }
    }
}

/// A sized buffer, to be sent to a TPM. Everything that is written here is far below the 65,535 bytes that a size can say.
pub(crate) fn sized(bytes: &[u8]) -> Vec<u8> {
    let size = u16::try_from(bytes.len()).unwrap_or(u16::MAX).to_be_bytes();
    [&size, bytes].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_field_and_the_rule() {
        let text = |error: Malformed| error.to_string();
        assert_eq!(text(Reader::new(&[1]).u16("type").unwrap_err()), "type: needs 2 bytes, 1 are left");
        assert_eq!(text(Reader::new(&[0, 9, 1]).sized("x", 8).unwrap_err()), "x: 9 is more than 8");
        assert_eq!(text(Reader::new(&[0, 9, 1]).sized("x", 9).unwrap_err()), "x: needs 9 bytes, 1 are left");
        assert_eq!(text(Reader::new(&[0, 0, 0, 3]).count("list", 2).unwrap_err()), "list: 3 is more than 2");
        assert_eq!(text(Reader::new(&[0]).finish("all").unwrap_err()), "all: 1 bytes follow its end");
        assert_eq!(text(Malformed::unknown("curveID", 0x10_u16)), "curveID: 0x10 is not known");
        assert_eq!(text(Malformed::size("x", 32, 20)), "x: has size 20, and 32 is wanted");
    }

    #[test]
    fn a_sized_buffer_is_read_as_it_was_written() {
        let bytes = sized(b"abc");
        let mut reader = Reader::new(&bytes);
        assert_eq!(reader.sized("x", 3), Ok(&b"abc"[..]));
        assert_eq!(reader.finish("x"), Ok(()));
    }
}
