//! `seq` and `bdSeq`: the only module with wrapping arithmetic.

use crate::payload::{PayloadRef, ValueRef};

/// Sequence number of a message of an edge node: 0..=255, one counter for node and devices together
/// (tck-id-payloads-sequence-num-always-included, tck-id-payloads-sequence-num-incrementing).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Seq(u8);

impl Seq {
    /// The `seq` of every NBIRTH.
    pub const ZERO: Self = Self(0);

    /// From the wire.
    ///
    /// # Errors
    /// The number itself, when it is above 255.
    pub fn from_wire(n: u64) -> Result<Self, u64> {
        u8::try_from(n).map(Self).map_err(|_| n)
    }

    /// The number that follows; 0 follows 255.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }

    /// How many steps `self` lies after `earlier`, 0..=255.
    #[must_use]
    pub const fn steps_after(self, earlier: Self) -> u8 {
        self.0.wrapping_sub(earlier.0)
    }

    /// As on the wire.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0 as u64
    }
}

/// Birth/death sequence number of a session: the same in the will of a CONNECT and in all its NBIRTHs, one more at each CONNECT,
/// 0 follows 255 (tck-id-payloads-nbirth-bdseq, tck-id-payloads-nbirth-bdseq-repeat).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct BdSeq(u8);

/// The metric of births and deaths of a node that carries it.
pub(crate) const BD_SEQ: &str = "bdSeq";

impl BdSeq {
    /// Of a birth or a death.
    pub(crate) fn of(payload: &PayloadRef<'_>) -> Result<Self, String> {
        let metric = payload.metrics.iter().find(|m| m.name == Some(BD_SEQ)).ok_or("it has no metric bdSeq")?;
        let number = match metric.value {
            Some(ValueRef::Long(n)) => n,
            Some(ValueRef::Int(n)) => n.into(),
            _ => return Err("its bdSeq is not a number".to_owned()),
        };
        let number = i64::try_from(number).map_err(|_| "its bdSeq is not within 0..=255".to_owned())?;
        Self::from_wire(number).map_err(|n| format!("its bdSeq {n} is not within 0..=255"))
    }

    /// The first ever.
    pub const ZERO: Self = Self(0);

    /// From the wire or from storage.
    ///
    /// # Errors
    /// The number itself, when it is not 0..=255.
    pub fn from_wire(n: i64) -> Result<Self, i64> {
        u8::try_from(n).map(Self).map_err(|_| n)
    }

    /// The number of the next session; 0 follows 255.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }

    /// As on the wire.
    #[must_use]
    pub const fn get(self) -> i64 {
        self.0 as i64
    }
}
