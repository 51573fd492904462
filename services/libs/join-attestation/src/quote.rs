//! Verifies a quote: that a TPM made it, with this key, for this purpose, over exactly these PCRs, and that the values are those.

use std::collections::{BTreeMap, BTreeSet};

use join_protocol::limits::EVENT_LOG_BYTES_MAX;

use crate::attest::{ATTEST_BYTES_MAX, AttestError, ClockInfo, Quote, Signature};
use crate::hash::Hash;
use crate::pcr::{Selection, parse_digests};
use crate::public::Public;
use crate::refusal::{Refusal, RefusalCode};
use crate::wire::{Malformed, Reader, Rule, sized};

/// A quote as a host sends it.
#[derive(Debug, Clone, Copy)]
pub struct QuoteEvidence<'a> {
    /// `TPMS_ATTEST`: the bytes that were signed.
    pub attest: &'a [u8],
    /// `TPMT_SIGNATURE` over them.
    pub signature: &'a [u8],
    /// The values of the quoted PCRs in the order of their indices: `TPML_DIGEST`, one after another.
    pub pcr_values: &'a [u8],
    /// The event log of firmware, where the host was asked for it; empty if it has none.
    pub event_log: Option<&'a [u8]>,
}

impl<'a> QuoteEvidence<'a> {
    /// From one string of bytes, as it travels: `TPM2B_ATTEST`, `TPMT_SIGNATURE`, and the `TPML_DIGEST`s up to the end.
    ///
    /// # Errors
    /// What is cut off or too long. What the parts say is checked when the quote is verified.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        let attest = reader.sized("TPM2B_ATTEST", ATTEST_BYTES_MAX)?;
        let from_signature = reader.left();
        Signature::read(&mut reader)?;
        let pcr_values = reader.left();
        let signature = &from_signature[..from_signature.len() - pcr_values.len()];
        Ok(Self { attest, signature, pcr_values, event_log: None })
    }

    /// As [`QuoteEvidence::parse`], where an event log precedes it: its size in four bytes, then the log.
    ///
    /// # Errors
    /// As there. What the log says is read when it is judged.
    pub fn parse_with_event_log(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        let size = reader.count("event log", EVENT_LOG_BYTES_MAX)?;
        let log = reader.take("event log", size)?;
        Ok(Self { event_log: Some(log), ..Self::parse(reader.left())? })
    }

    /// The same form again.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let quote = [sized(self.attest).as_slice(), self.signature, self.pcr_values].concat();
        match self.event_log {
            Some(log) => [&u32::try_from(log.len()).unwrap_or(u32::MAX).to_be_bytes(), log, &quote].concat(),
            None => quote,
        }
    }
}

/// What a verified quote says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuoteFacts {
    /// The values of the PCRs.
    pub pcrs: BTreeMap<u8, Vec<u8>>,
    /// Counters and clock of the TPM.
    pub clock: ClockInfo,
    /// Version of the TPM's firmware, as its maker counts.
    pub firmware_version: u64,
    /// Qualified name of the key that signed.
    pub qualified_signer: Vec<u8>,
}

/// What a quote has to be about.
#[derive(Debug, Clone, Copy)]
pub struct Expected<'a> {
    /// The bank.
    pub bank: Hash,
    /// The PCRs.
    pub indices: &'a BTreeSet<u8>,
    /// `extraData`: what ties the quote to one request.
    pub extra_data: &'a [u8],
}

/// The refusal of bytes that are not a structure.
pub(crate) fn malformed(what: &str, error: &Malformed) -> Refusal {
    let code = match error.rule {
        Rule::Long { .. } => RefusalCode::EvidenceTooLarge,
        _ => RefusalCode::EvidenceMalformed,
    };
    Refusal::new(code, format!("{what}: {error}"))
}

/// Verifies a quote that `key` is to have signed; `key` must have passed [`crate::check_attestation_key`]. The caller, which knows the host's last clock, checks the clock: [`crate::check_clock`].
///
/// # Errors
/// A `quote-...` code, `evidence-malformed` or `evidence-too-large`.
pub fn verify_quote(
    evidence: &QuoteEvidence<'_>,
    key: &Public,
    expected: &Expected<'_>,
) -> Result<QuoteFacts, Refusal> {
    let quote = Quote::parse(evidence.attest).map_err(|error| match error {
        AttestError::NotGenerated(_) => Refusal::new(RefusalCode::QuoteNotGenerated, format!("quote: {error}")),
        AttestError::NotQuote(_) | AttestError::NotCertification(_) => {
            Refusal::new(RefusalCode::QuoteType, format!("quote: {error}"))
        }
        AttestError::Malformed(error) => malformed("quote", &error),
    })?;
    let signature =
        Signature::parse(evidence.signature).map_err(|error| malformed("signature of the quote", &error))?;
    if !signature.verifies(&key.key, evidence.attest) {
        let text = "the quote is not signed by the attestation key of this request";
        return Err(Refusal::new(RefusalCode::QuoteSignature, text));
    }
    if quote.extra_data != expected.extra_data {
        let text = format!(
            "the quote is about {}, and this request needs {}: another challenge, or keys or body were changed",
            hex::encode(&quote.extra_data),
            hex::encode(expected.extra_data)
        );
        return Err(Refusal::new(RefusalCode::QuoteExtraData, text));
    }
    check_selection(&quote.selections, expected)?;
    let values = parse_digests(evidence.pcr_values).map_err(|error| malformed("values of PCRs", &error))?;
    let pcrs = assigned(values, expected)?;
    let values: Vec<&[u8]> = pcrs.values().map(Vec::as_slice).collect();
    // The signing scheme's hash is SHA-256 (checked of the key), and so is that of the digest.
    if Hash::Sha256.digest(&values) != quote.pcr_digest {
        let text = "the values of the PCRs are not those that were quoted";
        return Err(Refusal::new(RefusalCode::QuoteDigest, text));
    }
    Ok(QuoteFacts {
        pcrs,
        clock: quote.clock,
        firmware_version: quote.firmware_version,
        qualified_signer: quote.qualified_signer,
    })
}

fn check_selection(selections: &[Selection], expected: &Expected<'_>) -> Result<(), Refusal> {
    // A selection of nothing says nothing.
    let chosen: Vec<&Selection> = selections.iter().filter(|selection| !selection.indices.is_empty()).collect();
    let of_bank = |bank| chosen.iter().any(|selection| selection.bank == bank);
    if !of_bank(expected.bank) && of_bank(Hash::Sha1) {
        let text = format!("the quote is of the sha1 bank only, and {} is needed", expected.bank.name());
        return Err(Refusal::new(RefusalCode::QuoteSha1, text));
    }
    match chosen.as_slice() {
        [] => Err(Refusal::new(RefusalCode::QuoteSelection, "the quote is of no PCR")),
        [one] if one.bank == expected.bank && one.indices == *expected.indices => Ok(()),
        [one] if one.bank == expected.bank => {
            let text = format!("the quote is of PCRs {:?}, and {:?} are needed", one.indices, expected.indices);
            Err(Refusal::new(RefusalCode::QuoteSelection, text))
        }
        _ => {
            let banks: Vec<&str> = chosen.iter().map(|selection| selection.bank.name()).collect();
            let text = format!("the quote is of {}, and {} alone is needed", banks.join(", "), expected.bank.name());
            Err(Refusal::new(RefusalCode::QuoteBank, text))
        }
    }
}

fn assigned(values: Vec<Vec<u8>>, expected: &Expected<'_>) -> Result<BTreeMap<u8, Vec<u8>>, Refusal> {
    let (found, wanted) = (values.len(), expected.indices.len());
    if found != wanted {
        let text = format!("{found} values of PCRs, and {wanted} were quoted");
        return Err(Refusal::new(RefusalCode::QuoteDigest, text));
    }
    let pcrs: BTreeMap<u8, Vec<u8>> = expected.indices.iter().copied().zip(values).collect();
    match pcrs.iter().find(|(_, value)| value.len() != expected.bank.size()) {
        Some((index, value)) => {
            let text = format!("the value of PCR {index} has {} bytes, not {}", value.len(), expected.bank.size());
            Err(Refusal::new(RefusalCode::QuoteDigest, text))
        }
        None => Ok(pcrs),
    }
}
