//! What a host is to quote: the issuer's policy says it in the challenge, and the host decides whether that makes sense.

use crate::fields::{Fields, WireError};

/// PCRs of a platform.
pub const PCRS_MAX: usize = 24;

/// A bank of PCRs. SHA-1 is not among them: no issuer has to ask for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Bank {
    /// SHA-256.
    Sha256,
    /// SHA-384.
    Sha384,
}

impl Bank {
    /// Its name on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "sha256",
            Self::Sha384 => "sha384",
        }
    }

    /// Bytes of a PCR.
    #[must_use]
    pub const fn digest_bytes(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha384 => 48,
        }
    }

    /// From its name on the wire.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Sha256, Self::Sha384].into_iter().find(|bank| bank.name() == name)
    }
}

/// PCRs of one bank: 1 to [`PCRS_MAX`], each below that, each greater than the one before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    bank: Bank,
    pcrs: Vec<u8>,
}

/// Why a host does not quote what it is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SelectionError {
    /// The quote would not show whether the host is locked.
    #[error(
        "it asks for a quote without PCR {0}, which this host locks itself with (attestation.lock_pcr, lock.pcr of the policy)"
    )]
    NoLock(u8),
    /// The quote would show nothing that was measured.
    #[error("it asks for a quote of the lock PCR alone, which says nothing about what was booted")]
    NothingMeasured,
}

impl Selection {
    /// Every PCR of the bank: what is asked for as long as no policy says more.
    #[must_use]
    pub fn all(bank: Bank) -> Self {
        Self { bank, pcrs: (0..PCRS_MAX as u8).collect() }
    }

    /// These PCRs, in any order. None: there is none, or one that no platform has.
    #[must_use]
    pub fn new(bank: Bank, pcrs: impl IntoIterator<Item = u8>) -> Option<Self> {
        let mut pcrs: Vec<u8> = pcrs.into_iter().collect();
        pcrs.sort_unstable();
        pcrs.dedup();
        let is_good = !pcrs.is_empty() && pcrs.iter().all(|pcr| usize::from(*pcr) < PCRS_MAX);
        is_good.then_some(Self { bank, pcrs })
    }

    /// As it travelled.
    ///
    /// # Errors
    /// The [`WireError`] names the field and the rule.
    pub(crate) fn from_wire(fields: &Fields, bank: &str, pcrs: &[u32]) -> Result<Self, WireError> {
        let bank = Bank::from_name(bank).ok_or_else(|| fields.error("bank", "is not known"))?;
        let is_rising = pcrs.windows(2).all(|pair| pair[0] < pair[1]);
        let read: Option<Vec<u8>> = pcrs.iter().map(|pcr| u8::try_from(*pcr).ok()).collect();
        let selection = read.filter(|_| is_rising).and_then(|pcrs| Self::new(bank, pcrs));
        selection.ok_or_else(|| {
            fields.error("pcrs", "must be 1 to 24 of the PCRs 0 to 23, each greater than the one before")
        })
    }

    /// The bank.
    #[must_use]
    pub const fn bank(&self) -> Bank {
        self.bank
    }

    /// The PCRs, each greater than the one before.
    #[must_use]
    pub fn pcrs(&self) -> &[u8] {
        &self.pcrs
    }

    /// Whether a host that locks itself with this PCR quotes that: its lock and something that was measured.
    ///
    /// # Errors
    /// The [`SelectionError`] says what is missing.
    pub fn check_for(&self, lock_pcr: u8) -> Result<(), SelectionError> {
        if !self.pcrs.contains(&lock_pcr) {
            return Err(SelectionError::NoLock(lock_pcr));
        }
        if self.pcrs.len() == 1 { Err(SelectionError::NothingMeasured) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selection_is_read_as_it_was_written_and_nothing_else_is() {
        let read = |bank: &str, pcrs: &[u32]| Selection::from_wire(&Fields("challenge body"), bank, pcrs);
        let selection = read("sha384", &[4, 15]).unwrap();
        assert_eq!((selection.bank(), selection.pcrs()), (Bank::Sha384, &[4, 15][..]));
        assert_eq!(Selection::new(Bank::Sha384, [15, 4, 15]), Some(selection));
        for silly in [&[][..], &[4, 4], &[15, 4], &[24], &[4, 256]] {
            let error = read("sha256", silly).unwrap_err().to_string();
            assert!(error.contains("pcrs must be 1 to 24"), "{silly:?}: {error}");
        }
        for bank in ["sha1", "", "SHA256"] {
            assert!(read(bank, &[4]).unwrap_err().to_string().contains("bank is not known"));
        }
        assert_eq!(Selection::all(Bank::Sha256).pcrs().len(), PCRS_MAX);
    }

    #[test]
    fn a_host_quotes_its_lock_and_something_that_was_measured_or_nothing() {
        let of = |pcrs: &[u8]| Selection::new(Bank::Sha256, pcrs.iter().copied()).unwrap();
        assert_eq!(of(&[4, 15]).check_for(15), Ok(()));
        assert_eq!(of(&[4, 15]).check_for(12), Err(SelectionError::NoLock(12)));
        assert_eq!(of(&[15]).check_for(15), Err(SelectionError::NothingMeasured));
    }
}
