//! The event log that firmware and boot loader write while they measure: what was extended into each PCR, in order, and what it was about.
//!
//! The format is the crypto-agile log of the TCG PC Client Platform Firmware Profile (section 10). A log proves nothing by itself. It counts only where its replay gives the
//! PCRs of a quote, and then only for digests and their order. The type of an event is not measured. Data counts only where its digest is that of the event.

use std::collections::BTreeMap;

use join_protocol::limits::EVENT_LOG_BYTES_MAX;

use crate::hash::Hash;
use crate::pcr::{PCR_COUNT, extended};
use crate::wire::{Malformed, Reader};

/// Events of a log.
const EVENTS_MAX: usize = 1024;
/// Algorithms that a log may have digests of.
const ALGORITHMS_MAX: usize = 8;
/// Bytes of a digest of an algorithm that is not known here.
const DIGEST_BYTES_MAX: usize = 128;

/// Of nothing that was extended: the header, and notes of firmware.
const EV_NO_ACTION: u32 = 0x3;

/// Begins the header.
const SPEC_ID: &[u8; 16] = b"Spec ID Event03\0";
/// Begins the note that says from which locality the TPM was started.
const STARTUP_LOCALITY: &[u8; 16] = b"StartupLocality\0";

/// One measurement (`TCG_PCR_EVENT2`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event<'a> {
    /// The PCR that was extended.
    pub pcr: u8,
    /// The type (`EV_...`) as the log has it. The TPM does not vouch for it.
    pub kind: u32,
    /// What the event is about. The TPM vouches for it only where [`Event::is_of_data`].
    pub data: &'a [u8],
    digests: Vec<(u16, &'a [u8])>,
}

impl Event<'_> {
    /// What the PCR of this bank was extended with; None: the log has no digest of this bank.
    #[must_use]
    pub fn digest(&self, bank: Hash) -> Option<&[u8]> {
        self.digests.iter().find(|(id, _)| *id == bank.id()).map(|(_, digest)| *digest)
    }

    /// The digest is that of the data, so a quote of the PCR vouches for the data.
    #[must_use]
    pub fn is_of_data(&self, bank: Hash) -> bool {
        self.digest(bank) == Some(bank.digest(&[self.data]).as_slice())
    }
}

/// An event log that was read. Its content is not verified yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventLog<'a> {
    events: Vec<Event<'a>>,
    /// PCR 0 begins with it.
    locality: u8,
}

/// A bank of which an event has no digest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("event {event} has no digest of the bank {bank}")]
pub struct BankMissing {
    /// Number of the event, from 1.
    pub event: usize,
    /// Name of the bank.
    pub bank: &'static str,
}

impl<'a> EventLog<'a> {
    /// Reads a log. Types of events and algorithms that are not known are kept or passed over; a size that does not fit is an error.
    ///
    /// # Errors
    /// Another form than the crypto-agile one, what is cut off, and more than [`EVENT_LOG_BYTES_MAX`] bytes or 1024 events.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        if bytes.len() > EVENT_LOG_BYTES_MAX {
            return Err(Malformed::long("event log", EVENT_LOG_BYTES_MAX, bytes.len()));
        }
        let mut reader = Reader::new(bytes);
        let sizes = header(&mut reader)?;
        let mut log = Self { events: Vec::new(), locality: 0 };
        let mut count = 0;
        while !reader.left().is_empty() {
            count += 1;
            if count > EVENTS_MAX {
                return Err(Malformed::long("events", EVENTS_MAX, count));
            }
            log.take(&mut reader, &sizes)?;
        }
        Ok(log)
    }

    fn take(&mut self, reader: &mut Reader<'a>, sizes: &[(u16, usize)]) -> Result<(), Malformed> {
        let pcr = reader.u32_le("pcrIndex")?;
        let kind = reader.u32_le("eventType")?;
        let count = reader.u32_le("digests.count")? as usize;
        if count > sizes.len() {
            return Err(Malformed::long("digests.count", sizes.len(), count));
        }
        let mut digests = Vec::with_capacity(count);
        for _ in 0..count {
            let id = reader.u16_le("digests.algorithmId")?;
            let size = sizes.iter().find(|(known, _)| *known == id).map(|(_, size)| *size);
            let size = size.ok_or_else(|| Malformed::unknown("digests.algorithmId", id))?;
            digests.push((id, reader.take("digests.digest", size)?));
        }
        let size = reader.u32_le("eventSize")? as usize;
        let data = reader.take("event", size)?;
        if kind == EV_NO_ACTION {
            if let Some([locality]) = data.strip_prefix(STARTUP_LOCALITY) {
                self.locality = *locality;
            }
            return Ok(());
        }
        let number = u8::try_from(pcr).ok().filter(|number| usize::from(*number) < PCR_COUNT);
        let pcr = number.ok_or_else(|| Malformed::unknown("pcrIndex", pcr))?;
        self.events.push(Event { pcr, kind, data, digests });
        Ok(())
    }

    /// The measurements, in the order in which they were made.
    #[must_use]
    pub fn events(&self) -> &[Event<'a>] {
        &self.events
    }

    /// The measurements of one PCR.
    pub fn of_pcr(&self, pcr: u8) -> impl Iterator<Item = &Event<'a>> {
        self.events.iter().filter(move |event| event.pcr == pcr)
    }

    /// The values of all PCRs of a bank after these measurements.
    ///
    /// # Errors
    /// An event has no digest of this bank.
    pub fn replay(&self, bank: Hash) -> Result<BTreeMap<u8, Vec<u8>>, BankMissing> {
        let mut pcrs: BTreeMap<u8, Vec<u8>> = (0..PCR_COUNT as u8).map(|index| (index, vec![0; bank.size()])).collect();
        if let Some(last) = pcrs.get_mut(&0).and_then(|value| value.last_mut()) {
            *last = self.locality;
        }
        for (at, event) in self.events.iter().enumerate() {
            let digest = event.digest(bank).ok_or(BankMissing { event: at + 1, bank: bank.name() })?;
            if let Some(value) = pcrs.get_mut(&event.pcr) {
                *value = extended(bank, value, digest);
            }
        }
        Ok(pcrs)
    }
}

/// The first event, in the older form, names the algorithms and the sizes of their digests (`TCG_EfiSpecIDEvent`).
fn header(reader: &mut Reader<'_>) -> Result<Vec<(u16, usize)>, Malformed> {
    let pcr = reader.u32_le("header.pcrIndex")?;
    let kind = reader.u32_le("header.eventType")?;
    if (pcr, kind) != (0, EV_NO_ACTION) {
        return Err(Malformed::unknown("header.eventType", kind));
    }
    reader.take("header.digest", Hash::Sha1.size())?;
    let size = reader.u32_le("header.eventSize")? as usize;
    let mut event = Reader::new(reader.take("header.event", size)?);
    let signature = event.take("signature", SPEC_ID.len())?;
    if signature != SPEC_ID {
        return Err(Malformed::unknown("signature", signature[0]));
    }
    // platformClass, the version of the specification in three bytes, uintnSize.
    event.take("platformClass", 8)?;
    let count = event.u32_le("numberOfAlgorithms")? as usize;
    if count > ALGORITHMS_MAX {
        return Err(Malformed::long("numberOfAlgorithms", ALGORITHMS_MAX, count));
    }
    let mut sizes = Vec::with_capacity(count);
    for _ in 0..count {
        let (id, size) = (event.u16_le("algorithmId")?, usize::from(event.u16_le("digestSize")?));
        match Hash::from_id("algorithmId", id) {
            Ok(known) if known.size() != size => return Err(Malformed::size("digestSize", known.size(), size)),
            Err(_) if size > DIGEST_BYTES_MAX => return Err(Malformed::long("digestSize", DIGEST_BYTES_MAX, size)),
            Ok(_) | Err(_) => sizes.push((id, size)),
        }
    }
    let vendor = usize::from(event.take("vendorInfoSize", 1)?[0]);
    event.take("vendorInfo", vendor)?;
    event.finish("header.event")?;
    Ok(sizes)
}
