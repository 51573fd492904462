//! What can be wrong with the bytes of a message, and the rules of its fields.

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
