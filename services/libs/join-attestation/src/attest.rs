//! What a TPM says when it quotes (`TPMS_ATTEST`), and the signature over it (`TPMT_SIGNATURE`).

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey,
};

use crate::hash::Hash;
use crate::pcr::{Selection, selections};
use crate::public::{Curve, Key, padded};
use crate::wire::{Malformed, Reader};

/// The most bytes that a quote may have; that of one bank has some 150.
pub const ATTEST_BYTES_MAX: usize = 1024;

/// The most bytes that a signature may have; that of an RSA key of 4096 bits has 518.
pub const SIGNATURE_BYTES_MAX: usize = 1024;

/// `TPM_GENERATED_VALUE`: only a TPM puts it before what a restricted key signs.
const GENERATED: u32 = 0xff54_4347;
/// `TPM_ST_ATTEST_QUOTE`.
const QUOTE: u16 = 0x8018;
/// `TPM_ST_ATTEST_CERTIFY`.
const CERTIFY: u16 = 0x8017;
/// Longest qualified name: an identifier and a SHA-512 digest.
const NAME_BYTES_MAX: usize = 66;

/// A quote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quote {
    /// Qualified name of the key that signed.
    pub qualified_signer: Vec<u8>,
    /// The data that the verifier asked for.
    pub extra_data: Vec<u8>,
    /// Counters and clock of the TPM.
    pub clock: ClockInfo,
    /// Version of the TPM's firmware, as its maker counts.
    pub firmware_version: u64,
    /// What was quoted.
    pub selections: Vec<Selection>,
    /// Digest over the values of the selected PCRs.
    pub pcr_digest: Vec<u8>,
}

/// Counters and clock of a TPM (`TPMS_CLOCK_INFO`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockInfo {
    /// Milliseconds that the TPM has been powered since it was cleared.
    pub clock: u64,
    /// Resets (boots) since it was cleared.
    pub reset_count: u32,
    /// Resumes and restarts since the last reset.
    pub restart_count: u32,
    /// True if no higher value of the clock can ever have been reported.
    pub safe: bool,
}

/// What a key says of another that the same TPM holds (`TPM2_Certify`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certification {
    /// Qualified name of the key that signed.
    pub qualified_signer: Vec<u8>,
    /// Name of the other key: the hash of its whole public area.
    pub name: Vec<u8>,
}

/// Why bytes are not a statement of the wanted kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AttestError {
    /// No TPM has made this.
    #[error("magic is {0:#010x}, not that of what a TPM makes")]
    NotGenerated(u32),
    /// Another kind of attestation.
    #[error("type is {0:#06x}, not that of a quote")]
    NotQuote(u16),
    /// Another kind of attestation.
    #[error("type is {0:#06x}, not that of a certified key")]
    NotCertification(u16),
    /// Anything else.
    #[error(transparent)]
    Malformed(#[from] Malformed),
}

impl Quote {
    /// From `TPMS_ATTEST`, with nothing behind it.
    ///
    /// # Errors
    /// What is too long, cut off, of another type, not made by a TPM, or has unknown identifiers.
    pub fn parse(bytes: &[u8]) -> Result<Self, AttestError> {
        let (mut reader, kind) = statement(bytes)?;
        if kind != QUOTE {
            return Err(AttestError::NotQuote(kind));
        }
        let quote = Self {
            qualified_signer: reader.sized("qualifiedSigner", NAME_BYTES_MAX)?.to_vec(),
            extra_data: reader.sized("extraData", NAME_BYTES_MAX)?.to_vec(),
            clock: clock(&mut reader)?,
            firmware_version: reader.u64("firmwareVersion")?,
            selections: selections(&mut reader)?,
            pcr_digest: reader.sized("pcrDigest", Hash::Sha512.size())?.to_vec(),
        };
        reader.finish("TPMS_ATTEST")?;
        Ok(quote)
    }
}

impl Certification {
    /// From `TPMS_ATTEST`, with nothing behind it.
    ///
    /// # Errors
    /// As [`Quote::parse`].
    pub fn parse(bytes: &[u8]) -> Result<Self, AttestError> {
        let (mut reader, kind) = statement(bytes)?;
        if kind != CERTIFY {
            return Err(AttestError::NotCertification(kind));
        }
        let qualified_signer = reader.sized("qualifiedSigner", NAME_BYTES_MAX)?.to_vec();
        reader.sized("extraData", NAME_BYTES_MAX)?;
        clock(&mut reader)?;
        reader.u64("firmwareVersion")?;
        let name = reader.sized("name", NAME_BYTES_MAX)?.to_vec();
        reader.sized("qualifiedName", NAME_BYTES_MAX)?;
        reader.finish("TPMS_ATTEST")?;
        Ok(Self { qualified_signer, name })
    }
}

/// The kind of a statement that a TPM made, and what follows it.
fn statement(bytes: &[u8]) -> Result<(Reader<'_>, u16), AttestError> {
    if bytes.len() > ATTEST_BYTES_MAX {
        return Err(Malformed::long("TPMS_ATTEST", ATTEST_BYTES_MAX, bytes.len()).into());
    }
    let mut reader = Reader::new(bytes);
    match reader.u32("magic")? {
        GENERATED => {}
        other => return Err(AttestError::NotGenerated(other)),
    }
    let kind = reader.u16("type")?;
    Ok((reader, kind))
}

fn clock(reader: &mut Reader<'_>) -> Result<ClockInfo, Malformed> {
    Ok(ClockInfo {
        clock: reader.u64("clock")?,
        reset_count: reader.u32("resetCount")?,
        restart_count: reader.u32("restartCount")?,
        safe: match reader.u8("safe")? {
            0 => false,
            1 => true,
            other => return Err(Malformed::unknown("safe", other)),
        },
    })
}

/// A signature of a TPM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Signature {
    /// ECDSA: the numbers r and s, big-endian.
    Ecdsa {
        /// Hash of what is signed.
        hash: Hash,
        /// First number.
        r: Vec<u8>,
        /// Second number.
        s: Vec<u8>,
    },
    /// RSASSA-PKCS1-v1_5.
    RsaSsa {
        /// Hash of what is signed.
        hash: Hash,
        /// The signature.
        signature: Vec<u8>,
    },
}

impl Signature {
    /// From `TPMT_SIGNATURE`, with nothing behind it.
    ///
    /// # Errors
    /// What is cut off, too long, or neither ECDSA nor RSASSA.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        if bytes.len() > SIGNATURE_BYTES_MAX {
            return Err(Malformed::long("TPMT_SIGNATURE", SIGNATURE_BYTES_MAX, bytes.len()));
        }
        let mut reader = Reader::new(bytes);
        let signature = Self::read(&mut reader)?;
        reader.finish("TPMT_SIGNATURE")?;
        Ok(signature)
    }

    /// The next signature.
    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let algorithm = reader.u16("sigAlg")?;
        if algorithm != 0x0018 && algorithm != 0x0014 {
            return Err(Malformed::unknown("sigAlg", algorithm));
        }
        let hash = Hash::from_id("signature.hash", reader.u16("signature.hash")?)?;
        if algorithm == 0x0018 {
            let r = reader.sized("signatureR", Curve::P384.size())?.to_vec();
            Ok(Self::Ecdsa { hash, r, s: reader.sized("signatureS", Curve::P384.size())?.to_vec() })
        } else {
            Ok(Self::RsaSsa { hash, signature: reader.sized("sig", 512)?.to_vec() })
        }
    }

    /// Whether it is `key`'s signature with SHA-256 of `message`. Other hashes and P-384 are never signatures here: attestation keys with them are refused before.
    #[must_use]
    pub fn verifies(&self, key: &Key, message: &[u8]) -> bool {
        match (self, key) {
            (Self::Ecdsa { hash: Hash::Sha256, r, s }, Key::Ecc { curve: Curve::P256, .. }) => {
                let size = Curve::P256.size();
                let numbers = [padded(r, size), padded(s, size)].concat();
                let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, key.point().unwrap_or_default());
                key.verify(message, &numbers).is_ok()
            }
            (Self::RsaSsa { hash: Hash::Sha256, signature }, Key::Rsa { modulus, exponent }) => {
                let exponent = exponent.to_be_bytes();
                let zeros = exponent.iter().take_while(|byte| **byte == 0).count();
                let key = RsaPublicKeyComponents { n: modulus.as_slice(), e: &exponent[zeros..] };
                key.verify(&RSA_PKCS1_2048_8192_SHA256, message, signature).is_ok()
            }
            _ => false,
        }
    }
}
