//! The messages, typed: from and to their bytes. A message that does not keep its limits or is not in its canonical encoding is refused as a whole.
//!
//! The encoding is protobuf (package `proto`). Canonical means: encoding what was read gives the same bytes again. So there is one encoding of each message,
//! and unknown fields, repeated scalars and padded numbers are no place to hide differences in.

pub mod acknowledgement;
pub mod challenge;
pub mod evidence;
pub mod grant;
pub mod hello;
pub mod renewal;
pub mod ticket;

use prost::Message;
use uuid::Uuid;

use crate::limits::{HASH_BYTES, ID_BYTES, ISSUER_CERTIFICATE_BYTES_MAX, ISSUER_CERTIFICATES_MAX, VERSION};
use crate::terms::RequestId;

/// Bytes are not the message that they should be. It names the message, the field and the rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// Not even looked at.
    #[error("{message} has {bytes} bytes; at most {max} are allowed")]
    TooLarge {
        /// Which message.
        message: &'static str,
        /// Its size.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// No protobuf of this message.
    #[error("{message} is malformed")]
    Malformed {
        /// Which message.
        message: &'static str,
    },
    /// Another encoding than the canonical one.
    #[error("{message} is not in its canonical encoding")]
    NotCanonical {
        /// Which message.
        message: &'static str,
    },
    /// Another version of the protocol.
    #[error("{message} is of version {version}; only version {VERSION} is spoken")]
    Version {
        /// Which message.
        message: &'static str,
        /// Its version.
        version: u32,
    },
    /// A field breaks a rule.
    #[error("{message}.{field} {rule}")]
    Field {
        /// Which message.
        message: &'static str,
        /// Which field.
        field: &'static str,
        /// Which rule.
        rule: String,
    },
}

/// Measures, decodes and checks the encoding.
pub(crate) fn decode<M: Message + Default>(message: &'static str, bytes: &[u8], max: usize) -> Result<M, WireError> {
    measure(message, bytes, max)?;
    let decoded = M::decode(bytes).map_err(|_| WireError::Malformed { message })?;
    check_canonical(message, &decoded, bytes)?;
    Ok(decoded)
}

/// As [`decode`], of messages that begin with a version: another version is told as such, whatever else it changed.
pub(crate) fn decode_versioned<M: Message + Default>(
    message: &'static str,
    bytes: &[u8],
    max: usize,
    version: fn(&M) -> u32,
) -> Result<M, WireError> {
    measure(message, bytes, max)?;
    let decoded = M::decode(bytes).map_err(|_| WireError::Malformed { message })?;
    if version(&decoded) != VERSION {
        return Err(WireError::Version { message, version: version(&decoded) });
    }
    check_canonical(message, &decoded, bytes)?;
    Ok(decoded)
}

fn measure(message: &'static str, bytes: &[u8], max: usize) -> Result<(), WireError> {
    if bytes.len() > max { Err(WireError::TooLarge { message, bytes: bytes.len(), max }) } else { Ok(()) }
}

fn check_canonical<M: Message>(message: &'static str, decoded: &M, bytes: &[u8]) -> Result<(), WireError> {
    // The copy may hold secrets when the message does.
    let again = zeroize::Zeroizing::new(decoded.encode_to_vec());
    if *again == bytes { Ok(()) } else { Err(WireError::NotCanonical { message }) }
}

/// The name of a message, for its fields.
#[derive(Clone, Copy)]
pub(crate) struct Fields(pub(crate) &'static str);

impl Fields {
    pub(crate) fn error(self, field: &'static str, rule: impl Into<String>) -> WireError {
        WireError::Field { message: self.0, field, rule: rule.into() }
    }

    pub(crate) fn array<const N: usize>(self, field: &'static str, bytes: &[u8]) -> Result<[u8; N], WireError> {
        bytes.try_into().map_err(|_| self.error(field, format!("has {} bytes; it must have {N}", bytes.len())))
    }

    pub(crate) fn hash(self, field: &'static str, bytes: &[u8]) -> Result<[u8; HASH_BYTES], WireError> {
        self.array(field, bytes)
    }

    pub(crate) fn request(self, bytes: &[u8]) -> Result<RequestId, WireError> {
        self.array::<ID_BYTES>("request", bytes).map(RequestId)
    }

    pub(crate) fn uuid(self, field: &'static str, bytes: &[u8]) -> Result<Uuid, WireError> {
        self.array(field, bytes).map(Uuid::from_bytes)
    }

    pub(crate) fn at_most(self, field: &'static str, bytes: &[u8], max: usize) -> Result<(), WireError> {
        if bytes.len() > max {
            return Err(self.error(field, format!("has {} bytes; at most {max} are allowed", bytes.len())));
        }
        Ok(())
    }

    /// From 1 to `max` bytes.
    pub(crate) fn some(self, field: &'static str, bytes: &[u8], max: usize) -> Result<(), WireError> {
        if bytes.is_empty() {
            return Err(self.error(field, "is missing"));
        }
        self.at_most(field, bytes, max)
    }

    pub(crate) fn count(self, field: &'static str, count: usize, max: usize) -> Result<(), WireError> {
        if count > max {
            return Err(self.error(field, format!("has {count} items; at most {max} are allowed")));
        }
        Ok(())
    }

    pub(crate) fn issuer_certificates(self, certificates: &[Vec<u8>]) -> Result<(), WireError> {
        self.count("issuer_certificates", certificates.len(), ISSUER_CERTIFICATES_MAX)?;
        certificates.iter().try_for_each(|one| self.some("issuer_certificates", one, ISSUER_CERTIFICATE_BYTES_MAX))
    }

    /// Text that people and logs can take: no control characters.
    pub(crate) fn text(self, field: &'static str, text: &str, max: usize) -> Result<(), WireError> {
        self.at_most(field, text.as_bytes(), max)?;
        if text.chars().any(char::is_control) {
            return Err(self.error(field, "holds control characters"));
        }
        Ok(())
    }
}
