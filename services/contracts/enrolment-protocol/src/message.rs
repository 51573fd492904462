//! Bytes and messages: limits, canonical encoding, fields.

use prost::Message;
use zeroize::Zeroizing;

use crate::VERSION;

/// Largest request and largest answer, in bytes: chains of certificates and post-quantum keys fit, and little else.
pub(crate) const BYTES_MAX: usize = 32 * 1024;

/// Bytes are not the message that they should be. It names the message, the field and the rule, and holds nothing of the bytes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// Not even looked at.
    #[error("{0} has more than {BYTES_MAX} bytes")]
    TooLarge(&'static str),
    /// No protobuf of this message, or not in its canonical encoding.
    #[error("{0} is malformed")]
    Malformed(&'static str),
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
        rule: &'static str,
    },
    /// It is sealed to another key, or was changed.
    #[error("{0} cannot be opened: it is sealed to another key, or was changed")]
    Sealed(&'static str),
    /// It belongs to another exchange.
    #[error("{0} belongs to another request")]
    Foreign(&'static str),
}

/// Measures, decodes and checks the encoding.
pub(crate) fn decode<M: Message + Default>(message: &'static str, bytes: &[u8]) -> Result<M, MessageError> {
    if bytes.len() > BYTES_MAX {
        return Err(MessageError::TooLarge(message));
    }
    let decoded = M::decode(bytes).map_err(|_| MessageError::Malformed(message))?;
    // The copy may hold secrets when the message does.
    let again = Zeroizing::new(decoded.encode_to_vec());
    if *again == bytes { Ok(decoded) } else { Err(MessageError::Malformed(message)) }
}

/// Only this version.
pub(crate) const fn check_version(message: &'static str, version: u32) -> Result<(), MessageError> {
    if version == VERSION { Ok(()) } else { Err(MessageError::Version { message, version }) }
}

/// A field of exactly that many bytes.
pub(crate) fn array<const N: usize>(
    message: &'static str,
    field: &'static str,
    bytes: &[u8],
) -> Result<[u8; N], MessageError> {
    bytes.try_into().map_err(|_| MessageError::Field { message, field, rule: "has not the length that it must have" })
}
