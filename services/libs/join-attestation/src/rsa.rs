//! RSA-OAEP (RFC 8017) with a seed that is given. The workspace's cryptography library chooses the seed itself, and then no second replica could make the same bytes.

use crypto_bigint::modular::{FixedMontyForm, FixedMontyParams};
use crypto_bigint::{Odd, U2048, Uint};
use zeroize::Zeroizing;

use crate::hash::Hash;
use crate::kdf::mgf1;

/// Bytes of the modulus of the one key size that is supported: 2048 bits, which every TPM has.
pub(crate) const MODULUS_BYTES: usize = 256;

/// Encrypts `message` under label `label`. None if the modulus is not odd or not of that size, or if message and padding do not fit.
pub(crate) fn oaep_encrypt(
    modulus: &[u8],
    exponent: u32,
    hash: Hash,
    label: &[u8],
    message: &[u8],
    seed: &[u8],
) -> Option<Vec<u8>> {
    let size = hash.size();
    if modulus.len() != MODULUS_BYTES || seed.len() != size || message.len() + 2 * size + 2 > MODULUS_BYTES {
        return None;
    }
    let zeros = MODULUS_BYTES - message.len() - 2 * size - 2;
    let label_hash = hash.digest(&[label]);
    let mut block = Zeroizing::new([&label_hash, vec![0; zeros].as_slice(), &[1], message].concat());
    xor(&mut block, &mgf1(hash, seed, MODULUS_BYTES - size - 1));
    let mut masked_seed = Zeroizing::new(seed.to_vec());
    xor(&mut masked_seed, &mgf1(hash, &block, size));
    let padded = Zeroizing::new([&[0], masked_seed.as_slice(), &block].concat());
    power(modulus, exponent, &padded)
}

/// `message ^ exponent mod modulus`, in a time that does not depend on the message.
fn power(modulus: &[u8], exponent: u32, message: &[u8]) -> Option<Vec<u8>> {
    let modulus = Odd::new(U2048::from_be_slice(modulus)).into_option()?;
    let params = FixedMontyParams::new_vartime(modulus);
    let base = FixedMontyForm::new(&U2048::from_be_slice(message), &params);
    let result = base.pow_bounded_exp(&Uint::<1>::from_u32(exponent), u32::BITS).retrieve();
    Some(result.to_be_bytes().as_ref().to_vec())
}

fn xor(bytes: &mut [u8], mask: &[u8]) {
    bytes.iter_mut().zip(mask).for_each(|(byte, mask)| *byte ^= mask);
}

#[cfg(test)]
mod tests {
    use super::*;
    use aws_lc_rs::encoding::AsDer;
    use aws_lc_rs::rsa::{KeySize, OAEP_SHA256_MGF1SHA256, OaepPrivateDecryptingKey, PrivateDecryptingKey};
    use x509_cert::der::asn1::Uint;
    use x509_cert::der::{Decode, Encode};
    use x509_cert::spki::SubjectPublicKeyInfoOwned;

    #[test]
    fn what_is_encrypted_here_is_decrypted_by_another_implementation() {
        let key = PrivateDecryptingKey::generate(KeySize::Rsa2048).unwrap();
        let spki: Vec<u8> =
            AsDer::<aws_lc_rs::encoding::PublicKeyX509Der<'_>>::as_der(&key.public_key()).unwrap().as_ref().to_vec();
        let spki = SubjectPublicKeyInfoOwned::from_der(&spki).unwrap();
        let numbers = Vec::<Uint>::from_der(spki.subject_public_key.raw_bytes()).unwrap();
        assert_eq!(numbers[1].to_der().unwrap(), [2, 3, 1, 0, 1]);
        let modulus = numbers[0].as_bytes();
        let encrypt = |seed: &[u8]| oaep_encrypt(modulus, 65537, Hash::Sha256, b"IDENTITY\0", b"secret", seed).unwrap();
        let decrypting = OaepPrivateDecryptingKey::new(key).unwrap();
        for seed in [[0; 32], [0xa5; 32]] {
            let ciphertext = encrypt(&seed);
            assert_eq!(ciphertext, encrypt(&seed), "the seed decides");
            let mut plain = vec![0; 256];
            let plain =
                decrypting.decrypt(&OAEP_SHA256_MGF1SHA256, &ciphertext, &mut plain, Some(b"IDENTITY\0")).unwrap();
            assert_eq!(plain, b"secret");
        }
        assert_ne!(encrypt(&[1; 32]), encrypt(&[2; 32]));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let even = [0xfe; 256];
        assert_eq!(oaep_encrypt(&even, 65537, Hash::Sha256, b"", b"m", &[0; 32]), None);
        let odd = [0xff; 256];
        assert!(oaep_encrypt(&odd, 65537, Hash::Sha256, b"", &[0; 190], &[0; 32]).is_some());
        assert_eq!(oaep_encrypt(&odd, 65537, Hash::Sha256, b"", &[0; 191], &[0; 32]), None);
        assert_eq!(oaep_encrypt(&odd, 65537, Hash::Sha256, b"", b"m", &[0; 31]), None);
        assert_eq!(oaep_encrypt(&odd[1..], 65537, Hash::Sha256, b"", b"m", &[0; 32]), None);
    }
}
