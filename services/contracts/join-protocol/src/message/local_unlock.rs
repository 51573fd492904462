//! What a host seals a second key of its disk to: values of PCRs, each signed by the issuer (`TPM2_PolicyAuthorize`). A ticket has them, and a renewal has those of a newer policy.

use std::collections::BTreeMap;

use proto::join as wire;

use super::{Fields, WireError};
use crate::limits::{SIGNATURE_BYTES, UNLOCK_VALUES_MAX};
use crate::selection::{Bank, PCRS_MAX};

/// Bytes of a public key of P-256: x and y.
pub const UNLOCK_KEY_BYTES: usize = 64;

/// A value of a PCR, and the signature by which a TPM takes it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnlockValue {
    /// As long as a digest of the bank.
    pub value: Vec<u8>,
    /// ECDSA with P-256 over SHA-256, r and s.
    pub signature: [u8; SIGNATURE_BYTES],
}

/// Under which values of PCRs a TPM may give out the second key of a disk: each PCR has to have one of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalUnlock {
    /// Bank of the PCRs.
    pub bank: Bank,
    /// Key that the signatures are verified with. Another one for each second key.
    pub key: [u8; UNLOCK_KEY_BYTES],
    /// PCRs by their index, the lock PCR with its value before a lock among them. In a renewal a PCR may have no value: the host keeps those that it has.
    pub pcrs: BTreeMap<u8, Vec<UnlockValue>>,
}

impl LocalUnlock {
    const NAME: &'static str = "local unlock";

    /// The values of each PCR, each once, in an order that does not depend on that of a list.
    #[must_use]
    pub fn values(&self) -> BTreeMap<u8, Vec<&[u8]>> {
        fn sorted(values: &[UnlockValue]) -> Vec<&[u8]> {
            let mut values: Vec<&[u8]> = values.iter().map(|one| one.value.as_slice()).collect();
            values.sort_unstable();
            values
        }
        self.pcrs.iter().map(|(pcr, values)| (*pcr, sorted(values))).collect()
    }

    /// Adds what a renewal has of values for the same key and PCRs; at most [`UNLOCK_VALUES_MAX`] together. False: it is about another key or other PCRs.
    pub fn add(&mut self, renewed: Self) -> bool {
        let is_same = (self.bank, self.key) == (renewed.bank, renewed.key);
        if !is_same || !self.pcrs.keys().eq(renewed.pcrs.keys()) {
            return false;
        }
        let mut count: usize = self.pcrs.values().map(Vec::len).sum();
        for (pcr, values) in renewed.pcrs {
            let known = self.pcrs.entry(pcr).or_default();
            for one in values {
                if count < UNLOCK_VALUES_MAX && !known.iter().any(|known| known.value == one.value) {
                    known.push(one);
                    count += 1;
                }
            }
        }
        true
    }

    pub(crate) fn to_wire(&self) -> wire::LocalUnlock {
        let value = |one: &UnlockValue| wire::UnlockValue { value: one.value.clone(), signature: one.signature.into() };
        let pcr = |(pcr, values): (&u8, &Vec<UnlockValue>)| wire::UnlockPcr {
            pcr: u32::from(*pcr),
            values: values.iter().map(value).collect(),
        };
        wire::LocalUnlock {
            bank: self.bank.name().to_owned(),
            key: self.key.into(),
            pcrs: self.pcrs.iter().map(pcr).collect(),
        }
    }

    /// `is_whole`: every PCR must have a value.
    pub(crate) fn from_wire(wire: &wire::LocalUnlock, is_whole: bool) -> Result<Self, WireError> {
        let fields = Fields(Self::NAME);
        let bank = Bank::from_name(&wire.bank).ok_or_else(|| fields.error("bank", "is not known"))?;
        let key = fields.array("key", &wire.key)?;
        let is_rising = wire.pcrs.windows(2).all(|pair| pair[0].pcr < pair[1].pcr);
        if wire.pcrs.is_empty() || !is_rising {
            return Err(fields.error("pcrs", "must be there, each greater than the one before"));
        }
        let count = wire.pcrs.iter().map(|pcr| pcr.values.len()).sum();
        fields.count("values", count, UNLOCK_VALUES_MAX)?;
        let mut pcrs = BTreeMap::new();
        for pcr in &wire.pcrs {
            let index = u8::try_from(pcr.pcr).ok().filter(|index| usize::from(*index) < PCRS_MAX);
            let index = index.ok_or_else(|| fields.error("pcrs", "must be 0 to 23"))?;
            if is_whole && pcr.values.is_empty() {
                return Err(fields.error("values", "are missing"));
            }
            let mut values: Vec<UnlockValue> = Vec::new();
            for one in &pcr.values {
                if one.value.len() != bank.digest_bytes() {
                    return Err(fields.error("value", "is not as long as a digest of the bank"));
                }
                if values.iter().any(|known| known.value == one.value) {
                    return Err(fields.error("values", "holds one twice"));
                }
                values.push(UnlockValue {
                    value: one.value.clone(),
                    signature: fields.array("signature", &one.signature)?,
                });
            }
            pcrs.insert(index, values);
        }
        Ok(Self { bank, key, pcrs })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(byte: u8) -> UnlockValue {
        UnlockValue { value: vec![byte; 48], signature: [byte; 64] }
    }

    fn unlock(pcrs: &[(u8, &[u8])]) -> LocalUnlock {
        let pcrs = pcrs.iter().map(|(index, values)| (*index, values.iter().copied().map(value).collect()));
        LocalUnlock { bank: Bank::Sha384, key: [7; 64], pcrs: pcrs.collect() }
    }

    #[test]
    fn signed_values_go_both_ways_and_name_the_field_at_fault() {
        let whole = unlock(&[(4, &[1, 2]), (15, &[0])]);
        assert_eq!(LocalUnlock::from_wire(&whole.to_wire(), true), Ok(whole.clone()));
        let part = unlock(&[(4, &[]), (15, &[0])]);
        assert_eq!(LocalUnlock::from_wire(&part.to_wire(), false), Ok(part.clone()));
        let error = |wire: &wire::LocalUnlock| LocalUnlock::from_wire(wire, true).unwrap_err().to_string();
        assert_eq!(error(&part.to_wire()), "local unlock.values are missing");
        type Change = fn(&mut wire::LocalUnlock);
        let cases: [(Change, &str); 9] = [
            (|wire| wire.bank = "sha1".to_owned(), "local unlock.bank is not known"),
            (|wire| wire.key.truncate(63), "local unlock.key has 63 bytes; it must have 64"),
            (|wire| wire.pcrs.clear(), "local unlock.pcrs must be there, each greater than the one before"),
            (|wire| wire.pcrs.reverse(), "local unlock.pcrs must be there, each greater than the one before"),
            (|wire| wire.pcrs[1].pcr = 24, "local unlock.pcrs must be 0 to 23"),
            (
                |wire| wire.pcrs[0].values[0].value = vec![1; 32],
                "local unlock.value is not as long as a digest of the bank",
            ),
            (|wire| wire.pcrs[0].values[1] = wire.pcrs[0].values[0].clone(), "local unlock.values holds one twice"),
            (
                |wire| wire.pcrs[0].values[0].signature = vec![1; 65],
                "local unlock.signature has 65 bytes; it must have 64",
            ),
            (
                |wire| wire.pcrs[0].values = vec![Default::default(); 32],
                "local unlock.values has 33 items; at most 32 are allowed",
            ),
        ];
        for (change, message) in cases {
            let mut wire = whole.to_wire();
            change(&mut wire);
            assert_eq!(error(&wire), message);
        }
    }

    #[test]
    fn a_renewal_adds_values_of_the_same_key_and_pcrs_up_to_the_bound() {
        let mut known = unlock(&[(4, &[1]), (11, &[5]), (15, &[0])]);
        assert!(known.add(unlock(&[(4, &[1, 2]), (11, &[]), (15, &[0])])));
        assert_eq!(known, unlock(&[(4, &[1, 2]), (11, &[5]), (15, &[0])]));
        let (before, mut other) = (known.clone(), unlock(&[(4, &[3]), (11, &[]), (15, &[])]));
        other.key[0] = 0;
        assert!(!known.add(other) && !known.add(unlock(&[(4, &[3]), (15, &[])])));
        assert_eq!(known, before);
        let many: Vec<u8> = (10..60).collect();
        assert!(known.add(unlock(&[(4, &many), (11, &[]), (15, &[])])));
        assert_eq!(known.pcrs.values().map(Vec::len).sum::<usize>(), UNLOCK_VALUES_MAX);
        assert_eq!(known.values()[&15], [&[0; 48][..]]);
    }
}
