//! Why a cluster is not enrolled.

use std::fmt;

/// Most bytes of the text of a refusal.
pub const TEXT_BYTES_MAX: usize = 1024;

/// Why a cluster is not enrolled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalCode {
    /// No such token for this cluster: a wrong one, another cluster's, or a revoked one.
    UnknownToken,
    /// The token has expired.
    TokenExpired,
    /// The token was used, with another key.
    TokenUsed,
    /// What the token gave was revoked or fenced off.
    Revoked,
    /// No such certificate of this cluster: another one's, or forgotten.
    UnknownCertificate,
    /// The certificate has expired, and no operator has approved its renewal yet.
    ApprovalNeeded,
    /// The certificate was renewed before, with another key.
    AlreadyRenewed,
    /// Less than half of the validity of the certificate is over.
    TooEarly,
    /// One that this version does not know.
    Other(u32),
}

impl RefusalCode {
    pub(crate) const fn to_wire(self) -> u32 {
        match self {
            Self::UnknownToken => 1,
            Self::TokenExpired => 2,
            Self::TokenUsed => 3,
            Self::Revoked => 4,
            Self::UnknownCertificate => 5,
            Self::ApprovalNeeded => 6,
            Self::AlreadyRenewed => 7,
            Self::TooEarly => 8,
            Self::Other(code) => code,
        }
    }

    pub(crate) const fn from_wire(code: u32) -> Self {
        match code {
            1 => Self::UnknownToken,
            2 => Self::TokenExpired,
            3 => Self::TokenUsed,
            4 => Self::Revoked,
            5 => Self::UnknownCertificate,
            6 => Self::ApprovalNeeded,
            7 => Self::AlreadyRenewed,
            8 => Self::TooEarly,
            other => Self::Other(other),
        }
    }
}

impl fmt::Display for RefusalCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownToken => f.write_str("unknown-token"),
            Self::TokenExpired => f.write_str("token-expired"),
            Self::TokenUsed => f.write_str("token-used"),
            Self::Revoked => f.write_str("revoked"),
            Self::UnknownCertificate => f.write_str("unknown-certificate"),
            Self::ApprovalNeeded => f.write_str("approval-needed"),
            Self::AlreadyRenewed => f.write_str("already-renewed"),
            Self::TooEarly => f.write_str("too-early"),
            Self::Other(code) => write!(f, "code-{code}"),
        }
    }
}

/// A cluster is not enrolled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {text}")]
pub struct Refusal {
    /// For programs.
    pub code: RefusalCode,
    /// For people: what to do. At most [`TEXT_BYTES_MAX`] bytes.
    pub text: String,
}
