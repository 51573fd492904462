//! The TPM's two key derivation functions (TPM 2.0 Library Specification, part 1, "Key Derivation Function").

use zeroize::Zeroizing;

use crate::hash::Hash;

/// `KDFa`: counter mode of SP 800-108 with HMAC. `bits` is a multiple of 8.
pub(crate) fn kdfa(
    hash: Hash,
    key: &[u8],
    label: &[u8],
    context_u: &[u8],
    context_v: &[u8],
    bits: u32,
) -> Zeroizing<Vec<u8>> {
    counted(bits, |counter| hash.hmac(key, &[counter, label, &[0], context_u, context_v, &bits.to_be_bytes()]))
}

/// `KDFe`: concatenation mode of SP 800-56A over a shared secret. `bits` is a multiple of 8.
pub(crate) fn kdfe(
    hash: Hash,
    z: &[u8],
    label: &[u8],
    party_u: &[u8],
    party_v: &[u8],
    bits: u32,
) -> Zeroizing<Vec<u8>> {
    counted(bits, |counter| hash.digest(&[counter, z, label, &[0], party_u, party_v]))
}

/// MGF1 of RFC 8017, the mask generation of OAEP: the same idea with the counter behind and from zero.
pub(crate) fn mgf1(hash: Hash, seed: &[u8], size: usize) -> Zeroizing<Vec<u8>> {
    let mut mask = Zeroizing::new(Vec::with_capacity(size + hash.size()));
    for counter in 0_u32.. {
        if mask.len() >= size {
            break;
        }
        mask.extend_from_slice(&Zeroizing::new(hash.digest(&[seed, &counter.to_be_bytes()])));
    }
    mask.truncate(size);
    mask
}

fn counted(bits: u32, block: impl Fn(&[u8]) -> Vec<u8>) -> Zeroizing<Vec<u8>> {
    let size = (bits / 8) as usize;
    let mut derived = Zeroizing::new(Vec::with_capacity(size + 64));
    for counter in 1_u32.. {
        if derived.len() >= size {
            break;
        }
        derived.extend_from_slice(&Zeroizing::new(block(&counter.to_be_bytes())));
    }
    derived.truncate(size);
    derived
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn derived_keys_are_as_long_as_asked_for_and_depend_on_every_input() {
        let derive =
            |key: &[u8], label: &[u8], u: &[u8], v: &[u8], bits| kdfa(Hash::Sha256, key, label, u, v, bits).to_vec();
        let first = derive(b"k", b"STORAGE", b"u", b"v", 128);
        assert_eq!(first.len(), 16);
        for other in [
            derive(b"K", b"STORAGE", b"u", b"v", 128),
            derive(b"k", b"INTEGRITY", b"u", b"v", 128),
            derive(b"k", b"STORAGE", b"U", b"v", 128),
            derive(b"k", b"STORAGE", b"u", b"V", 128),
            derive(b"k", b"STORAGE", b"u", b"v", 256)[..16].to_vec(),
        ] {
            assert_ne!(other, first);
        }
        assert_eq!(kdfe(Hash::Sha256, b"z", b"IDENTITY", b"u", b"v", 384).len(), 48);
        assert_eq!(mgf1(Hash::Sha256, b"seed", 100).len(), 100);
    }

    #[test]
    fn the_mask_generation_agrees_with_a_published_vector() {
        // hashlib of Python, MGF1 as in RFC 8017 appendix B.2.1: seed "bar", SHA-256, 50 bytes.
        let mask =
            "382576a7841021cc28fc4c0948753fb8312090cea942ea4c4e735d10dc724b155f9f6069f289d61daca0cb814502ef04eae1";
        assert_eq!(hex::encode(mgf1(Hash::Sha256, b"bar", 50)), mask);
    }
}
