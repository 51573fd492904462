//! How births and data are written where the standard and what other implementations read differ.

use std::fmt;
use std::str::FromStr;

/// For which readers a payload is written. Readers of this library take every dialect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Dialect {
    /// As the standard says.
    #[default]
    Strict,
    /// As every client reads it that follows Eclipse Tahu, also one that keeps no births. In data a metric has its name and its datatype (beside its alias, if
    /// it has one). UInt32 is written in `long_value`. Int8 and Int16 are written as Int32, because clients do not agree on how wide a negative one is. Only the
    /// datatype in data is against the standard, which says that it should not be there; with aliases the name in data is, too.
    Tahu,
}

/// A text that names no dialect.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a dialect; write strict or tahu")]
pub struct UnknownDialect(String);

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Strict => "strict",
            Self::Tahu => "tahu",
        })
    }
}

impl FromStr for Dialect {
    type Err = UnknownDialect;

    fn from_str(text: &str) -> Result<Self, UnknownDialect> {
        match text {
            "strict" => Ok(Self::Strict),
            "tahu" => Ok(Self::Tahu),
            other => Err(UnknownDialect(other.to_owned())),
        }
    }
}
