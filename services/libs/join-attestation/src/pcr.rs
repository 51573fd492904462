//! Platform configuration registers: selections (`TPML_PCR_SELECTION`), values (`TPML_DIGEST`), and how a PCR is extended.

use std::collections::BTreeSet;

use crate::hash::Hash;
use crate::wire::{Malformed, Reader};

/// PCRs that a bank can have here: those of a PC client, 0 to 23.
pub const PCR_COUNT: usize = 24;

/// The most banks that a selection may list.
const BANKS_MAX: usize = 16;

/// PCRs of one bank (`TPMS_PCR_SELECTION`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    /// The bank.
    pub bank: Hash,
    /// The PCRs.
    pub indices: BTreeSet<u8>,
}

/// Reads a list of selections.
pub(crate) fn selections(reader: &mut Reader<'_>) -> Result<Vec<Selection>, Malformed> {
    let count = reader.count("pcrSelections.count", BANKS_MAX)?;
    (0..count).map(|_| selection(reader)).collect()
}

fn selection(reader: &mut Reader<'_>) -> Result<Selection, Malformed> {
    let bank = Hash::from_id("pcrSelections.hash", reader.u16("pcrSelections.hash")?)?;
    let size = usize::from(reader.u8("sizeofSelect")?);
    if size > PCR_COUNT / 8 {
        return Err(Malformed::long("sizeofSelect", PCR_COUNT / 8, size));
    }
    let octets = reader.take("pcrSelect", size)?;
    let selected = |index: &u8| octets.get(usize::from(index / 8)).is_some_and(|octet| octet >> (index % 8) & 1 == 1);
    Ok(Selection { bank, indices: (0..PCR_COUNT as u8).filter(selected).collect() })
}

/// The values of PCRs, as `TPM2_PCR_Read` gives them: one `TPML_DIGEST` after another, since a TPM gives at most eight a call.
///
/// # Errors
/// A list that is cut off, digests longer than SHA-512's, and more digests than there are PCRs.
pub fn parse_digests(bytes: &[u8]) -> Result<Vec<Vec<u8>>, Malformed> {
    let mut reader = Reader::new(bytes);
    let mut digests = Vec::new();
    while !reader.left().is_empty() {
        let count = reader.count("TPML_DIGEST.count", 8)?;
        if digests.len() + count > PCR_COUNT {
            return Err(Malformed::long("TPML_DIGEST", PCR_COUNT, digests.len() + count));
        }
        // An empty list makes no progress that could be worth its bytes.
        if count == 0 {
            return Err(Malformed::unknown("TPML_DIGEST.count", 0_u8));
        }
        for _ in 0..count {
            digests.push(reader.sized("TPML_DIGEST.digests", Hash::Sha512.size())?.to_vec());
        }
    }
    Ok(digests)
}

/// The value of a PCR after `TPM2_PCR_Extend` with `digest`.
#[must_use]
pub fn extended(bank: Hash, value: &[u8], digest: &[u8]) -> Vec<u8> {
    bank.digest(&[value, digest])
}

/// The value of a PCR after `TPM2_PCR_Event` with `event`: the TPM hashes the event itself.
#[must_use]
pub fn after_event(bank: Hash, value: &[u8], event: &[u8]) -> Vec<u8> {
    extended(bank, value, &bank.digest(&[event]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selection_names_the_pcrs_whose_bits_are_set() {
        let bytes = [0, 0, 0, 1, 0, 0x0b, 3, 0b1000_0001, 0, 0b1000_0000];
        let mut reader = Reader::new(&bytes);
        let list = selections(&mut reader).unwrap();
        assert_eq!(list, [Selection { bank: Hash::Sha256, indices: BTreeSet::from([0, 7, 23]) }]);
        assert!(reader.left().is_empty());
    }

    #[test]
    fn selections_are_bounded() {
        let parse = |bytes: &[u8]| selections(&mut Reader::new(bytes)).unwrap_err().to_string();
        assert_eq!(parse(&[0, 0, 0, 17]), "pcrSelections.count: 17 is more than 16");
        assert_eq!(parse(&[0, 0, 0, 1, 0, 0x0b, 4, 0, 0, 0, 0]), "sizeofSelect: 4 is more than 3");
        assert_eq!(parse(&[0, 0, 0, 1, 0, 0x99, 3]), "pcrSelections.hash: 0x99 is not known");
        assert_eq!(parse(&[0, 0, 0, 1, 0, 0x0b, 3, 0]), "pcrSelect: needs 3 bytes, 1 are left");
    }

    #[test]
    fn several_lists_of_digests_are_one_and_bounded() {
        let list = |count: u32, digests: usize| [count.to_be_bytes().to_vec(), [0, 1, 7].repeat(digests)].concat();
        assert_eq!(parse_digests(&[list(8, 8), list(2, 2)].concat()).unwrap(), vec![vec![7]; 10]);
        assert_eq!(parse_digests(&[]), Ok(Vec::new()));
        let error = |bytes: &[u8]| parse_digests(bytes).unwrap_err().to_string();
        assert_eq!(error(&list(9, 9)), "TPML_DIGEST.count: 9 is more than 8");
        assert_eq!(error(&list(8, 8).repeat(4)), "TPML_DIGEST: 32 is more than 24");
        assert_eq!(error(&[0, 0, 0, 0]), "TPML_DIGEST.count: 0x0 is not known");
        assert_eq!(error(&list(2, 1)), "TPML_DIGEST.digests: needs 2 bytes, 0 are left");
        assert_eq!(error(&[0, 0, 0, 1, 0, 65]), "TPML_DIGEST.digests: 65 is more than 64");
    }

    #[test]
    fn an_event_extends_with_its_digest() {
        let (zero, cluster) = ([0; 32], [7; 32]);
        let inner = Hash::Sha256.digest(&[&cluster]);
        assert_eq!(after_event(Hash::Sha256, &zero, &cluster), Hash::Sha256.digest(&[&zero, &inner]));
        assert_eq!(after_event(Hash::Sha384, &[0; 48], &cluster).len(), 48);
    }
}
