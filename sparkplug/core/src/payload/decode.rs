//! Bytes -> payloads, compressed or not.

use super::borrowed::{Inflated, PayloadRef};
use super::compression::{self, COMPRESSED};
use super::limits::{DecodeError, Limits};
use super::owned::RawPayload;
use super::read::read;

/// Reads a payload without copying it; of a compressed one, what it carries: `seq` and `timestamp` from outside if they stand there, all else from inside.
///
/// ```
/// use sparkplug::payload::{Inflated, Limits, ValueRef, decode_ref};
///
/// let bytes = [0x18, 7, 0x12, 4, 0x10, 3, 0x50, 42];
/// let mut inflated = Inflated::default();
/// let payload = decode_ref(&bytes, &Limits::default(), &mut inflated)?;
/// assert_eq!((payload.seq, payload.metrics[0].alias), (Some(7), Some(3)));
/// assert_eq!(payload.metrics[0].value, Some(ValueRef::Int(42)));
/// # Ok::<(), sparkplug::payload::DecodeError>(())
/// ```
///
/// # Errors
/// [`DecodeError`] when the bytes are not a payload or exceed `limits`.
pub fn decode_ref<'a>(
    bytes: &'a [u8],
    limits: &Limits,
    inflated: &'a mut Inflated,
) -> Result<PayloadRef<'a>, DecodeError> {
    let payload = read(bytes, limits)?;
    if payload.uuid == Some(COMPRESSED) {
        return compression::unwrap(&payload, limits, &mut inflated.0);
    }
    Ok(payload)
}

/// Reads a payload; of a compressed one, what it carries: `seq` and `timestamp` from outside if they stand there, all else from inside.
///
/// # Errors
/// [`DecodeError`] when the bytes are not a payload or exceed `limits`.
pub fn decode(bytes: &[u8], limits: &Limits) -> Result<RawPayload, DecodeError> {
    decode_ref(bytes, limits, &mut Inflated::default()).map(|payload| RawPayload::from(&payload))
}
