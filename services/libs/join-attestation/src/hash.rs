//! Hash algorithms of the TPM: identifiers, sizes, digests and keyed digests.

use aws_lc_rs::{digest, hmac};

use crate::wire::Malformed;

/// A hash algorithm (`TPMI_ALG_HASH`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hash {
    /// SHA-1: known, so that it can be refused by name.
    Sha1,
    /// SHA-256.
    Sha256,
    /// SHA-384.
    Sha384,
    /// SHA-512.
    Sha512,
}

impl Hash {
    /// From the identifier (`TPM_ALG_ID`).
    ///
    /// # Errors
    /// An identifier that does not name a supported hash.
    pub fn from_id(field: &'static str, id: u16) -> Result<Self, Malformed> {
        match id {
            0x0004 => Ok(Self::Sha1),
            0x000b => Ok(Self::Sha256),
            0x000c => Ok(Self::Sha384),
            0x000d => Ok(Self::Sha512),
            _ => Err(Malformed::unknown(field, id)),
        }
    }

    /// The identifier (`TPM_ALG_ID`).
    #[must_use]
    pub const fn id(self) -> u16 {
        match self {
            Self::Sha1 => 0x0004,
            Self::Sha256 => 0x000b,
            Self::Sha384 => 0x000c,
            Self::Sha512 => 0x000d,
        }
    }

    /// The name, as tools of the TPM write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sha1 => "sha1",
            Self::Sha256 => "sha256",
            Self::Sha384 => "sha384",
            Self::Sha512 => "sha512",
        }
    }

    /// Bytes of a digest.
    #[must_use]
    pub const fn size(self) -> usize {
        match self {
            Self::Sha1 => 20,
            Self::Sha256 => 32,
            Self::Sha384 => 48,
            Self::Sha512 => 64,
        }
    }

    /// The digest of the concatenation of `parts`.
    #[must_use]
    pub fn digest(self, parts: &[&[u8]]) -> Vec<u8> {
        let algorithm = match self {
            Self::Sha1 => &digest::SHA1_FOR_LEGACY_USE_ONLY,
            Self::Sha256 => &digest::SHA256,
            Self::Sha384 => &digest::SHA384,
            Self::Sha512 => &digest::SHA512,
        };
        let mut context = digest::Context::new(algorithm);
        parts.iter().for_each(|part| context.update(part));
        context.finish().as_ref().to_vec()
    }

    /// The keyed digest (HMAC) of the concatenation of `parts`.
    #[must_use]
    pub fn hmac(self, key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
        let algorithm = match self {
            Self::Sha1 => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
            Self::Sha256 => hmac::HMAC_SHA256,
            Self::Sha384 => hmac::HMAC_SHA384,
            Self::Sha512 => hmac::HMAC_SHA512,
        };
        let mut context = hmac::Context::with_key(&hmac::Key::new(algorithm, key));
        parts.iter().for_each(|part| context.update(part));
        context.sign().as_ref().to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_and_sizes_go_together() {
        for hash in [Hash::Sha1, Hash::Sha256, Hash::Sha384, Hash::Sha512] {
            assert_eq!(Hash::from_id("x", hash.id()), Ok(hash));
            assert_eq!(hash.digest(&[b"a", b"b"]).len(), hash.size());
            assert_eq!(hash.digest(&[b"a", b"b"]), hash.digest(&[b"ab"]));
            assert_eq!(hash.hmac(b"k", &[b"a", b"b"]), hash.hmac(b"k", &[b"ab"]));
        }
        assert_eq!(Hash::from_id("hashAlg", 0x27).unwrap_err().to_string(), "hashAlg: 0x27 is not known");
        // FIPS 180-4, "abc".
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(hex::encode(Hash::Sha256.digest(&[b"abc"])), abc);
    }
}
