//! Public areas of TPM objects (`TPM2B_PUBLIC`, `TPMT_PUBLIC`): RSA and elliptic-curve keys, their attributes and names.

use std::fmt;

use x509_cert::der::asn1::{Any, BitString, Null, ObjectIdentifier, Uint};
use x509_cert::der::{Encode, Error as DerError};
use x509_cert::spki::{AlgorithmIdentifier, SubjectPublicKeyInfo};

use crate::hash::Hash;
use crate::wire::{Malformed, Reader};

/// The most bytes that a public area may have: that of an RSA key of 4096 bits has some 600.
pub const PUBLIC_BYTES_MAX: usize = 1024;

const TYPE_RSA: u16 = 0x0001;
const TYPE_ECC: u16 = 0x0023;
const ALG_NULL: u16 = 0x0010;
const ALG_AES: u16 = 0x0006;
const MODE_CFB: u16 = 0x0043;

/// Attributes of a TPM object (`TPMA_OBJECT`).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Attributes(u32);

impl Attributes {
    /// The hierarchy that the key is in can never change.
    pub const FIXED_TPM: Self = Self(1 << 1);
    /// The parent of the key can never change.
    pub const FIXED_PARENT: Self = Self(1 << 4);
    /// The TPM made the secret part itself.
    pub const SENSITIVE_DATA_ORIGIN: Self = Self(1 << 5);
    /// The key only works on what the TPM made.
    pub const RESTRICTED: Self = Self(1 << 16);
    /// The key decrypts.
    pub const DECRYPT: Self = Self(1 << 17);
    /// The key signs.
    pub const SIGN: Self = Self(1 << 18);

    /// Every bit that the specification gives a meaning (revisions up to 1.83).
    const KNOWN: u32 = 0b1111_0000_1111_1111_0110;

    /// Whether every attribute of `wanted` is set.
    #[must_use]
    pub const fn has(self, wanted: Self) -> bool {
        self.0 & wanted.0 == wanted.0
    }
}

impl fmt::Debug for Attributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Attributes({:#x})", self.0)
    }
}

/// An elliptic curve (`TPM_ECC_CURVE`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Curve {
    /// NIST P-256.
    P256,
    /// NIST P-384.
    P384,
}

impl Curve {
    fn from_id(id: u16) -> Result<Self, Malformed> {
        match id {
            0x0003 => Ok(Self::P256),
            0x0004 => Ok(Self::P384),
            _ => Err(Malformed::unknown("curveID", id)),
        }
    }

    /// Bytes of a coordinate.
    #[must_use]
    pub const fn size(self) -> usize {
        match self {
            Self::P256 => 32,
            Self::P384 => 48,
        }
    }

    const fn oid(self) -> ObjectIdentifier {
        match self {
            Self::P256 => ObjectIdentifier::new_unwrap("1.2.840.10045.3.1.7"),
            Self::P384 => ObjectIdentifier::new_unwrap("1.3.132.0.34"),
        }
    }
}

/// The public key itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Key {
    /// RSA.
    Rsa {
        /// The modulus, big-endian, as long as the key.
        modulus: Vec<u8>,
        /// The exponent; 0 in the structure stands for 65537.
        exponent: u32,
    },
    /// Elliptic curve.
    Ecc {
        /// The curve.
        curve: Curve,
        /// First coordinate, big-endian, as long as the field.
        x: Vec<u8>,
        /// Second coordinate, likewise.
        y: Vec<u8>,
    },
}

impl Key {
    /// The uncompressed point (SEC 1) of an elliptic-curve key; None for RSA.
    #[must_use]
    pub fn point(&self) -> Option<Vec<u8>> {
        match self {
            Self::Ecc { x, y, .. } => Some([&[4], x.as_slice(), y].concat()),
            Self::Rsa { .. } => None,
        }
    }

    /// For people: kind and size.
    #[must_use]
    pub fn kind(&self) -> String {
        match self {
            Self::Rsa { modulus, .. } => format!("RSA-{}", modulus.len() * 8),
            Self::Ecc { curve, .. } => format!("ECC-{curve:?}"),
        }
    }

    /// DER `SubjectPublicKeyInfo` (RFC 5280), which other tools read and hash.
    ///
    /// # Errors
    /// None for a key that was parsed; the encoder has an error type of its own.
    pub fn subject_public_key_info(&self) -> Result<Vec<u8>, DerError> {
        let (oid, parameters, key) = match self {
            Self::Rsa { modulus, exponent } => {
                let numbers = vec![Uint::new(modulus)?, Uint::new(&exponent.to_be_bytes())?];
                (ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.1"), Any::encode_from(&Null)?, numbers.to_der()?)
            }
            Self::Ecc { curve, .. } => {
                let point = self.point().unwrap_or_default();
                (ObjectIdentifier::new_unwrap("1.2.840.10045.2.1"), Any::encode_from(&curve.oid())?, point)
            }
        };
        let algorithm = AlgorithmIdentifier { oid, parameters: Some(parameters) };
        SubjectPublicKeyInfo { algorithm, subject_public_key: BitString::from_bytes(&key)? }.to_der()
    }
}

/// How a signing key signs (`TPMT_ASYM_SCHEME`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// ECDSA with this hash.
    Ecdsa(Hash),
    /// RSASSA-PKCS1-v1_5 with this hash.
    RsaSsa(Hash),
    /// Another one, by its identifier.
    Other(u16),
}

/// A public area.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Public {
    /// `TPMT_PUBLIC`, as it was received.
    area: Vec<u8>,
    /// Hash of the name.
    pub name_hash: Hash,
    /// Attributes.
    pub attributes: Attributes,
    /// Bits of the AES-CFB key that protects what is below a storage key; None for other keys.
    pub symmetric_bits: Option<u16>,
    /// How it signs; None if it is free or does not sign.
    pub scheme: Option<Scheme>,
    /// The key.
    pub key: Key,
}

impl Public {
    /// From `TPM2B_PUBLIC`, with nothing behind it.
    ///
    /// # Errors
    /// What is neither an RSA key nor a key on a known curve, is cut off, too long, or has unknown identifiers.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        let public = Self::read(&mut reader)?;
        reader.finish("TPM2B_PUBLIC")?;
        Ok(public)
    }

    /// The next `TPM2B_PUBLIC`.
    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Self::parse_area(reader.sized("TPM2B_PUBLIC", PUBLIC_BYTES_MAX)?)
    }

    fn parse_area(area: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(area);
        let kind = reader.u16("type")?;
        if kind != TYPE_RSA && kind != TYPE_ECC {
            return Err(Malformed::unknown("type", kind));
        }
        let name_hash = Hash::from_id("nameAlg", reader.u16("nameAlg")?)?;
        let attributes = reader.u32("objectAttributes")?;
        if attributes & !Attributes::KNOWN != 0 {
            return Err(Malformed::unknown("objectAttributes", attributes));
        }
        reader.sized("authPolicy", Hash::Sha512.size())?;
        let symmetric_bits = symmetric(&mut reader)?;
        let scheme = scheme(&mut reader)?;
        let key = if kind == TYPE_RSA { rsa(&mut reader)? } else { ecc(&mut reader)? };
        reader.finish("TPMT_PUBLIC")?;
        Ok(Self { area: area.to_vec(), name_hash, attributes: Attributes(attributes), symmetric_bits, scheme, key })
    }

    /// `TPM2B_PUBLIC` again.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        crate::wire::sized(&self.area)
    }

    /// The name: `nameAlg`, then the hash of the public area.
    #[must_use]
    pub fn name(&self) -> Vec<u8> {
        [&self.name_hash.id().to_be_bytes(), self.name_hash.digest(&[&self.area]).as_slice()].concat()
    }

    /// The qualified name below a parent with that qualified name; that of a primary key is below the handle of its hierarchy.
    #[must_use]
    pub fn qualified_name(&self, parent: &[u8]) -> Vec<u8> {
        [&self.name_hash.id().to_be_bytes(), self.name_hash.digest(&[parent, &self.name()]).as_slice()].concat()
    }
}

/// `TPMT_SYM_DEF_OBJECT`: none, or AES in CFB mode.
fn symmetric(reader: &mut Reader<'_>) -> Result<Option<u16>, Malformed> {
    match reader.u16("symmetric")? {
        ALG_NULL => Ok(None),
        ALG_AES => {
            let bits = reader.u16("symmetric.keyBits")?;
            let mode = reader.u16("symmetric.mode")?;
            match (bits, mode) {
                (128 | 256, MODE_CFB) => Ok(Some(bits)),
                (128 | 256, mode) => Err(Malformed::unknown("symmetric.mode", mode)),
                (bits, _) => Err(Malformed::unknown("symmetric.keyBits", bits)),
            }
        }
        other => Err(Malformed::unknown("symmetric", other)),
    }
}

fn scheme(reader: &mut Reader<'_>) -> Result<Option<Scheme>, Malformed> {
    let id = reader.u16("scheme")?;
    match id {
        ALG_NULL => Ok(None),
        // RSASSA, RSAPSS, OAEP, ECDSA, ECDH, SM2, ECSchnorr: each with a hash.
        0x0014 | 0x0016..=0x0019 | 0x001b | 0x001c => {
            let hash = Hash::from_id("scheme.hashAlg", reader.u16("scheme.hashAlg")?)?;
            Ok(Some(match id {
                0x0014 => Scheme::RsaSsa(hash),
                0x0018 => Scheme::Ecdsa(hash),
                other => Scheme::Other(other),
            }))
        }
        other => Err(Malformed::unknown("scheme", other)),
    }
}

fn rsa(reader: &mut Reader<'_>) -> Result<Key, Malformed> {
    let bits = reader.u16("keyBits")?;
    if !matches!(bits, 2048 | 3072 | 4096) {
        return Err(Malformed::unknown("keyBits", bits));
    }
    let exponent = match reader.u32("exponent")? {
        0 => 65537,
        exponent => exponent,
    };
    let size = usize::from(bits) / 8;
    let modulus = reader.sized("unique.rsa", size)?;
    // A shorter number, or one with a leading zero, is not of the size that was announced.
    if modulus.len() != size || modulus[0] < 0x80 {
        return Err(Malformed::size("unique.rsa", size, modulus.len()));
    }
    Ok(Key::Rsa { modulus: modulus.to_vec(), exponent })
}

fn ecc(reader: &mut Reader<'_>) -> Result<Key, Malformed> {
    let curve = Curve::from_id(reader.u16("curveID")?)?;
    let kdf = reader.u16("kdf")?;
    if kdf != ALG_NULL {
        return Err(Malformed::unknown("kdf", kdf));
    }
    let x = reader.sized("unique.ecc.x", curve.size())?;
    let y = reader.sized("unique.ecc.y", curve.size())?;
    Ok(Key::Ecc { curve, x: padded(x, curve.size()), y: padded(y, curve.size()) })
}

/// Some TPMs leave the leading zeros of a number away.
pub(crate) fn padded(number: &[u8], size: usize) -> Vec<u8> {
    let mut full = vec![0; size.saturating_sub(number.len())];
    full.extend_from_slice(number);
    full
}
