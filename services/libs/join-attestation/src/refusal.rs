//! Why a host is not admitted: a closed list of codes that stay the same, and a text for people.

use std::fmt;

/// The codes. What to do about each is in `docs/attestation.md`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RefusalCode {
    /// The policy is missing, empty or invalid: it admits no host.
    PolicyInvalid,
    /// A part of the evidence is larger than it can honestly be.
    EvidenceTooLarge,
    /// A part of the evidence is not a TPM structure.
    EvidenceMalformed,
    /// The endorsement key is of a kind that is not accepted.
    EkUnsuitable,
    /// The endorsement key is revoked.
    EkRevoked,
    /// The endorsement key is not enrolled.
    EkNotEnrolled,
    /// There is no endorsement certificate.
    EkCertificateMissing,
    /// The endorsement certificate cannot be read.
    EkCertificateMalformed,
    /// The endorsement certificate is of another key.
    EkCertificateKey,
    /// The endorsement certificate is not valid at this time.
    EkCertificateTime,
    /// The endorsement certificate is not made for endorsement keys.
    EkCertificateUsage,
    /// The endorsement certificate leads to no configured manufacturer.
    EkCertificateUntrusted,
    /// The attestation key is of a kind that is not accepted.
    AkUnsuitable,
    /// The attestation key lies in another hierarchy than the endorsement key.
    AkHierarchy,
    /// The initial attestation key is missing, or of a kind that is not accepted.
    IakUnsuitable,
    /// The initial attestation key does not say that its TPM holds the attestation key.
    IakStatement,
    /// The certificate of the initial attestation key is missing, not valid, or leads to no maker of machines.
    IakCertificate,
    /// The host is enrolled with another initial attestation key.
    IakOther,
    /// There is no quote.
    QuoteMissing,
    /// The quote was not made by a TPM.
    QuoteNotGenerated,
    /// It is another kind of attestation.
    QuoteType,
    /// The attestation key did not sign the quote.
    QuoteSignature,
    /// The quote is about something else: another challenge, other keys, another request.
    QuoteExtraData,
    /// The quote is of a SHA-1 bank.
    QuoteSha1,
    /// The quote is not of the policy's bank.
    QuoteBank,
    /// The quote is not of exactly the policy's PCRs.
    QuoteSelection,
    /// The values are not those that were quoted.
    QuoteDigest,
    /// The TPM does not vouch for its clock.
    ClockUnsafe,
    /// Every PCR is zero: nothing was measured.
    PcrAllZero,
    /// PCRs differ from the policy.
    PcrMismatch,
    /// The policy judges by the event log, and the host sent none.
    EventLogMissing,
    /// The event log cannot be read, or its data is not what was measured.
    EventLogMalformed,
    /// The event log does not lead to the PCRs that were quoted.
    EventLogReplay,
    /// Secure Boot was off.
    SecureBootOff,
    /// Something was loaded because of a signer that the policy does not list.
    SignerNotListed,
    /// An image was executed that the policy does not list.
    ImageNotListed,
    /// A driver was loaded that the policy does not list.
    DriverNotListed,
    /// The kernel was started with a command line that the policy does not list.
    CommandLineNotListed,
    /// The kernel was started with an initrd that the policy does not list.
    InitrdNotListed,
    /// The lock PCR is not in the state that this step needs.
    LockMismatch,
    /// The TPM's counters went back: it was cleared, or another machine answers with the same key.
    CountersBackwards,
    /// The enrolled host has another name.
    HostName,
    /// The host may not have this role.
    HostRole,
}

impl RefusalCode {
    /// Every code.
    pub const ALL: [Self; 43] = [
        Self::PolicyInvalid,
        Self::EvidenceTooLarge,
        Self::EvidenceMalformed,
        Self::EkUnsuitable,
        Self::EkRevoked,
        Self::EkNotEnrolled,
        Self::EkCertificateMissing,
        Self::EkCertificateMalformed,
        Self::EkCertificateKey,
        Self::EkCertificateTime,
        Self::EkCertificateUsage,
        Self::EkCertificateUntrusted,
        Self::AkUnsuitable,
        Self::AkHierarchy,
        Self::IakUnsuitable,
        Self::IakStatement,
        Self::IakCertificate,
        Self::IakOther,
        Self::QuoteMissing,
        Self::QuoteNotGenerated,
        Self::QuoteType,
        Self::QuoteSignature,
        Self::QuoteExtraData,
        Self::QuoteSha1,
        Self::QuoteBank,
        Self::QuoteSelection,
        Self::QuoteDigest,
        Self::ClockUnsafe,
        Self::PcrAllZero,
        Self::PcrMismatch,
        Self::EventLogMissing,
        Self::EventLogMalformed,
        Self::EventLogReplay,
        Self::SecureBootOff,
        Self::SignerNotListed,
        Self::ImageNotListed,
        Self::DriverNotListed,
        Self::CommandLineNotListed,
        Self::InitrdNotListed,
        Self::LockMismatch,
        Self::CountersBackwards,
        Self::HostName,
        Self::HostRole,
    ];

    /// The code as text, for metrics, messages and documentation.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PolicyInvalid => "policy-invalid",
            Self::EvidenceTooLarge => "evidence-too-large",
            Self::EvidenceMalformed => "evidence-malformed",
            Self::EkUnsuitable => "ek-unsuitable",
            Self::EkRevoked => "ek-revoked",
            Self::EkNotEnrolled => "ek-not-enrolled",
            Self::EkCertificateMissing => "ek-certificate-missing",
            Self::EkCertificateMalformed => "ek-certificate-malformed",
            Self::EkCertificateKey => "ek-certificate-key",
            Self::EkCertificateTime => "ek-certificate-time",
            Self::EkCertificateUsage => "ek-certificate-usage",
            Self::EkCertificateUntrusted => "ek-certificate-untrusted",
            Self::AkUnsuitable => "ak-unsuitable",
            Self::AkHierarchy => "ak-hierarchy",
            Self::IakUnsuitable => "iak-unsuitable",
            Self::IakStatement => "iak-statement",
            Self::IakCertificate => "iak-certificate",
            Self::IakOther => "iak-other",
            Self::QuoteMissing => "quote-missing",
            Self::QuoteNotGenerated => "quote-not-generated",
            Self::QuoteType => "quote-type",
            Self::QuoteSignature => "quote-signature",
            Self::QuoteExtraData => "quote-extra-data",
            Self::QuoteSha1 => "quote-sha1",
            Self::QuoteBank => "quote-bank",
            Self::QuoteSelection => "quote-selection",
            Self::QuoteDigest => "quote-digest",
            Self::ClockUnsafe => "clock-unsafe",
            Self::PcrAllZero => "pcr-all-zero",
            Self::PcrMismatch => "pcr-mismatch",
            Self::EventLogMissing => "event-log-missing",
            Self::EventLogMalformed => "event-log-malformed",
            Self::EventLogReplay => "event-log-replay",
            Self::SecureBootOff => "secure-boot-off",
            Self::SignerNotListed => "signer-not-listed",
            Self::ImageNotListed => "image-not-listed",
            Self::DriverNotListed => "driver-not-listed",
            Self::CommandLineNotListed => "command-line-not-listed",
            Self::InitrdNotListed => "initrd-not-listed",
            Self::LockMismatch => "lock-mismatch",
            Self::CountersBackwards => "counters-backwards",
            Self::HostName => "host-name",
            Self::HostRole => "host-role",
        }
    }
}

impl fmt::Display for RefusalCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A PCR that is not as the policy wants it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PcrDifference {
    /// Index of the PCR.
    pub index: u8,
    /// The values that the policy allows.
    pub wanted: Vec<Vec<u8>>,
    /// The value that was quoted.
    pub found: Vec<u8>,
}

impl fmt::Display for PcrDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wanted: Vec<String> = self.wanted.iter().map(hex::encode).collect();
        write!(f, "PCR {}: wanted {}, found {}", self.index, wanted.join(" or "), hex::encode(&self.found))
    }
}

/// Why a host is not admitted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {text}")]
pub struct Refusal {
    /// What kind of reason.
    pub code: RefusalCode,
    /// The exact reason, for people. Holds no secret.
    pub text: String,
    /// The PCRs that differ, where that is the reason.
    pub differences: Vec<PcrDifference>,
}

impl Refusal {
    /// A refusal that is not about the values of PCRs.
    #[must_use]
    pub fn new(code: RefusalCode, text: impl Into<String>) -> Self {
        Self { code, text: text.into(), differences: Vec::new() }
    }

    /// A refusal because of these PCRs.
    #[must_use]
    pub fn differences(code: RefusalCode, differences: Vec<PcrDifference>) -> Self {
        let texts: Vec<String> = differences.iter().map(ToString::to_string).collect();
        Self { code, text: texts.join("; "), differences }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_code_has_a_text_of_its_own() {
        let texts: BTreeSet<&str> = RefusalCode::ALL.iter().map(|code| code.as_str()).collect();
        assert_eq!(texts.len(), RefusalCode::ALL.len());
        for (position, code) in RefusalCode::ALL.iter().enumerate() {
            assert_eq!(*code as usize, position, "ALL is in the order of the variants and complete");
        }
    }

    #[test]
    fn a_difference_names_index_wanted_and_found() {
        let refusal = Refusal::differences(
            RefusalCode::PcrMismatch,
            vec![PcrDifference { index: 4, wanted: vec![vec![1], vec![2]], found: vec![3] }],
        );
        assert_eq!(refusal.to_string(), "pcr-mismatch: PCR 4: wanted 01 or 02, found 03");
    }
}
