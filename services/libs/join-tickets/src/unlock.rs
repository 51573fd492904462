//! What is signed so that a TPM gives out the second key of a disk: `TPM2_PolicyAuthorize` (TPM 2.0 Library, part 3, 23.16).
//!
//! The policy of the second key is a chain with a link for each PCR, by rising index. A link is `TPM2_PolicyPCR` of one PCR, and then `TPM2_PolicyAuthorize` with the signing
//! key, whose reference is the index of the PCR and all PCRs of the chain. So each PCR has values of its own, a value costs one signature, and a value can be signed after
//! the key was sealed. A link begins with the one before, and names the chain, so none can be left out. The hash of the policy is SHA-256, whatever the bank.
//!
//! Each second key of a disk has its own signing key. What was signed for one opens no other.

use aws_lc_rs::digest::{SHA256, digest};

/// A hash, SHA-256.
pub type Hash = [u8; 32];
/// A public key of P-256: x and y.
pub type PublicKey = [u8; 64];
/// A signature: r and s.
pub type Signature = [u8; 64];

/// PCRs, a bit each.
pub type Selected = [u8; SELECTION_BYTES];

/// What every policy begins with.
pub const NOTHING: Hash = [0; 32];

const TPM_ALG_SHA256: u16 = 0x000B;
const TPM_ALG_NULL: u16 = 0x0010;
const TPM_ALG_ECDSA: u16 = 0x0018;
const TPM_ALG_ECC: u16 = 0x0023;
const TPM_ECC_NIST_P256: u16 = 0x0003;
const TPM_CC_POLICY_AUTHORIZE: u32 = 0x0000_016A;
const TPM_CC_POLICY_PCR: u32 = 0x0000_017F;
/// userWithAuth, sign: a key that lies outside of a TPM.
const ATTRIBUTES: u32 = 0x0004_0040;
/// Bytes of a selection of PCRs: 24, a bit each.
const SELECTION_BYTES: usize = 3;

/// What is signed: the approved policy and the reference. A TPM verifies the signature over their SHA-256.
#[must_use]
pub fn to_sign(approved: &Hash, pcr: u8, chain: Selected) -> Vec<u8> {
    [&approved[..], &reference(pcr, chain)].concat()
}

/// `policyRef`: the index of the PCR, and all PCRs of the chain.
#[must_use]
pub const fn reference(pcr: u8, [low, middle, high]: Selected) -> [u8; 4] {
    [pcr, low, middle, high]
}

/// PCRs as a selection has them.
#[must_use]
pub fn selected(pcrs: impl IntoIterator<Item = u8>) -> Selected {
    let mut bits = Selected::default();
    for pcr in pcrs {
        if let Some(octet) = bits.get_mut(usize::from(pcr / 8)) {
            *octet |= 1 << (pcr % 8);
        }
    }
    bits
}

/// A policy after `TPM2_PolicyPCR` of one PCR with that value. `previous`: what [`authorized`] gives for the PCR before, of the first one [`NOTHING`]. `bank`: `TPM_ALG_ID`.
#[must_use]
pub fn approved(previous: &Hash, bank: u16, pcr: u8, value: &[u8]) -> Hash {
    let size = [SELECTION_BYTES as u8];
    let selection = [&1_u32.to_be_bytes()[..], &bank.to_be_bytes(), &size, &selected([pcr])].concat();
    hash(&[previous, &TPM_CC_POLICY_PCR.to_be_bytes(), &selection, &hash(&[value])])
}

/// A policy after `TPM2_PolicyAuthorize` with this key for that PCR of the chain. After the last PCR, it is the policy of the second key.
#[must_use]
pub fn authorized(key: &PublicKey, pcr: u8, chain: Selected) -> Hash {
    let first = hash(&[&NOTHING, &TPM_CC_POLICY_AUTHORIZE.to_be_bytes(), &name(key)]);
    hash(&[&first, &reference(pcr, chain)])
}

/// The name by which a TPM knows the key.
#[must_use]
pub fn name(key: &PublicKey) -> Vec<u8> {
    [&TPM_ALG_SHA256.to_be_bytes()[..], &hash(&[&public_area(key)])].concat()
}

/// The key as a `TPMT_PUBLIC`, which a TPM loads to verify its signatures.
#[must_use]
pub fn public_area(key: &PublicKey) -> Vec<u8> {
    let numbers = |numbers: &[u16]| numbers.iter().flat_map(|number| number.to_be_bytes()).collect::<Vec<u8>>();
    let (x, y) = key.split_at(key.len() / 2);
    // Without a policy of its own, without symmetric algorithm and key derivation.
    let head = numbers(&[TPM_ALG_ECC, TPM_ALG_SHA256]);
    let scheme = numbers(&[0, TPM_ALG_NULL, TPM_ALG_ECDSA, TPM_ALG_SHA256, TPM_ECC_NIST_P256, TPM_ALG_NULL]);
    let size = numbers(&[x.len() as u16]);
    [&head[..], &ATTRIBUTES.to_be_bytes(), &scheme, &size, x, &size, y].concat()
}

fn hash(parts: &[&[u8]]) -> Hash {
    let mut output = [0; 32];
    output.copy_from_slice(digest(&SHA256, &parts.concat()).as_ref());
    output
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_signed_is_of_one_value_pcr_place_and_chain() {
        let (key, chain) = ([7; 64], selected([4, 9, 15]));
        assert_eq!(chain, [0b0001_0000, 0b1000_0010, 0]);
        let signed = |previous: &Hash, bank, pcr, value: u8, chain| {
            to_sign(&approved(previous, bank, pcr, &[value; 32]), pcr, chain)
        };
        let previous = authorized(&key, 4, chain);
        let wanted = signed(&previous, TPM_ALG_SHA256, 9, 7, chain);
        let others = [
            signed(&NOTHING, TPM_ALG_SHA256, 9, 7, chain),
            signed(&previous, 0x000C, 9, 7, chain),
            signed(&previous, TPM_ALG_SHA256, 11, 7, chain),
            signed(&previous, TPM_ALG_SHA256, 9, 8, chain),
            signed(&previous, TPM_ALG_SHA256, 9, 7, selected([9, 15])),
            signed(&authorized(&key, 4, selected([4, 15])), TPM_ALG_SHA256, 9, 7, chain),
            signed(&authorized(&[8; 64], 4, chain), TPM_ALG_SHA256, 9, 7, chain),
        ];
        assert!(!others.contains(&wanted));
    }
}
