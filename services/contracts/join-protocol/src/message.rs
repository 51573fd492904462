//! The messages, typed: from and to their bytes. A message that does not keep its limits or is not in its canonical encoding is refused as a whole.
//!
//! The encoding is protobuf (package `proto`). Canonical means: encoding what was read gives the same bytes again. So there is one encoding of each message,
//! and unknown fields, repeated scalars and padded numbers cannot hide differences.

pub mod acknowledgement;
pub mod challenge;
pub mod evidence;
pub mod grant;
pub mod hello;
pub mod local_unlock;
pub mod renewal;
pub mod ticket;

use prost::Message;

pub(crate) use crate::fields::Fields;
pub use crate::fields::WireError;
use crate::limits::VERSION;

/// Measures, decodes and checks the encoding.
pub(crate) fn decode<M: Message + Default>(message: &'static str, bytes: &[u8], max: usize) -> Result<M, WireError> {
    measure(message, bytes, max)?;
    let decoded = M::decode(bytes).map_err(|_| WireError::Malformed { message })?;
    check_canonical(message, &decoded, bytes)?;
    Ok(decoded)
}

/// As [`decode`], of messages that begin with a version: another version is an error of its own, whatever else it changed.
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
