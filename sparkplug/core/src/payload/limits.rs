//! What is read at most, and why bytes are not a payload.

use super::wire::{self, Fault, Wanted};

/// What is read at most; beyond it a payload is refused before anything is allocated for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the payload.
    pub bytes_max: usize,
    /// Bytes of what a compressed payload carries; inflating stops there.
    pub inflated_bytes_max: usize,
    /// Metrics of the payload.
    pub metrics_max: usize,
    /// Metrics, members, properties, rows and cells together.
    pub elements_max: usize,
    /// Messages within messages.
    pub depth_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            bytes_max: 1024 * 1024,
            inflated_bytes_max: 1024 * 1024,
            metrics_max: 100_000,
            elements_max: 250_000,
            depth_max: 24,
        }
    }
}

/// Why bytes are not a payload.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Larger than [`Limits::bytes_max`].
    #[error("payload has {bytes} bytes; at most {max} are read")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// It is compressed, and larger than [`Limits::inflated_bytes_max`] when inflated.
    #[error("payload has more than {max} bytes when inflated")]
    InflatedTooLarge {
        /// The limit.
        max: usize,
    },
    /// It is marked as compressed, but what it carries cannot be had.
    #[error("payload is marked as compressed, but {reason}")]
    Compressed {
        /// The rule that it breaks.
        reason: String,
    },
    /// More metrics than [`Limits::metrics_max`].
    #[error("payload has more than {max} metrics")]
    TooManyMetrics {
        /// The limit.
        max: usize,
    },
    /// More elements than [`Limits::elements_max`].
    #[error("payload has more than {max} metrics, members, properties, rows and cells")]
    TooManyElements {
        /// The limit.
        max: usize,
    },
    /// Nested deeper than [`Limits::depth_max`].
    #[error("payload is nested deeper than {max} messages")]
    TooDeep {
        /// The limit.
        max: usize,
    },
    /// Not the protobuf message it should be.
    #[error("payload is not a Sparkplug B protobuf message: {reason}")]
    Protobuf {
        /// What the reader stumbled on.
        reason: String,
    },
}

impl DecodeError {
    /// For people, with the limit that a payload exceeds.
    #[cold]
    pub(super) fn of(fault: Fault, limits: &Limits) -> Self {
        let reason = match fault {
            Fault::Metrics => return Self::TooManyMetrics { max: limits.metrics_max },
            Fault::Elements => return Self::TooManyElements { max: limits.elements_max },
            Fault::Depth => return Self::TooDeep { max: limits.depth_max },
            Fault::CutOff => "it ends in the middle of a field".to_owned(),
            Fault::LongNumber => "a number of more than 64 bits".to_owned(),
            Fault::FieldNumber => "a field has a number that no field can have".to_owned(),
            Fault::WireType => "a group or an unknown wire type".to_owned(),
            Fault::NotUtf8 => "a text is not UTF-8".to_owned(),
            Fault::Unfit(wanted, wire_type) => {
                let wanted = match wanted {
                    Wanted::Number => "a number",
                    Wanted::Float => "a float",
                    Wanted::Double => "a double",
                    Wanted::Bytes => "bytes",
                };
                let is = match wire_type {
                    wire::VARINT => "a varint",
                    wire::FIXED64 => "64 bits",
                    wire::SLICE => "bytes",
                    _ => "32 bits",
                };
                format!("a field that should be {wanted} is {is}")
            }
        };
        Self::Protobuf { reason }
    }
}
