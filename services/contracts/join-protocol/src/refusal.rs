//! Why a host gets no ticket. The numbers are stable: a host of another release, a dashboard and a runbook rely on them.

use proto::join as wire;

use crate::fields::{Fields, WireError};
use crate::limits::DETAIL_BYTES_MAX;
use crate::terms::numbered;

numbered! {
    /// The reason of a refusal.
    RefusalCode {
        /// The hello is of a version of the protocol that the issuer does not speak.
        VersionUnsupported = 1, "version-unsupported";
        /// The host offers no suite that the policy allows.
        SuiteUnsupported = 2, "suite-unsupported";
        /// The host offers no attestation variant that the policy allows.
        VariantUnsupported = 3, "variant-unsupported";
        /// This issuer does not answer requests of this kind.
        KindUnsupported = 4, "kind-unsupported";
        /// A field of the hello breaks a rule.
        HelloInvalid = 5, "hello-invalid";
        /// The endorsement or attestation key is not a key of the variant, or has attributes that it must not have.
        KeyInvalid = 6, "key-invalid";
        /// The challenge that the evidence answers is over.
        ChallengeExpired = 7, "challenge-expired";
        /// Too many requests.
        Busy = 8, "busy";
        /// A field of the body breaks a rule.
        BodyInvalid = 20, "body-invalid";
        /// No quote.
        QuoteMissing = 21, "quote-missing";
        /// The endorsement key is neither enrolled nor of an accepted manufacturer.
        EndorsementUnknown = 22, "endorsement-unknown";
        /// The endorsement key was accepted once and is not any longer.
        EndorsementRevoked = 23, "endorsement-revoked";
        /// The certificates of the endorsement key do not lead to an accepted manufacturer.
        EndorsementCertificate = 24, "endorsement-certificate";
        /// The attestation key lacks an attribute that it must have.
        AttestationKey = 25, "attestation-key";
        /// The quote is malformed.
        QuoteMalformed = 26, "quote-malformed";
        /// The quote is not signed by the attestation key.
        QuoteSignature = 27, "quote-signature";
        /// The quote is about something else: an older challenge, other keys, another body or another issuer.
        QuoteQualifyingData = 28, "quote-qualifying-data";
        /// The quote covers other PCRs or another bank than the policy asks for.
        QuoteSelection = 29, "quote-selection";
        /// The TPM's clock is not safe, or its PCRs were not written by this boot.
        QuoteClock = 30, "quote-clock";
        /// A PCR has another value than the policy has; the detail names the PCRs.
        Measurement = 31, "measurement";
        /// The lock PCR is not as it must be: the host is locked to a cluster already, or not yet.
        Lock = 32, "lock";
        /// Every PCR is zero: nothing was measured.
        NothingMeasured = 33, "nothing-measured";
        /// The TPM's counters went back: it was cleared, or another machine has the same key.
        CountersBackwards = 34, "counters-backwards";
        /// The host may not have this role.
        RoleNotAllowed = 40, "role-not-allowed";
        /// The host may not have this name.
        NameNotAllowed = 41, "name-not-allowed";
        /// The disk belongs to another host.
        DiskNotOwned = 42, "disk-not-owned";
        /// Another attempt of the same host took its place.
        Superseded = 43, "superseded";
        /// Another control plane is joining.
        ControlPlaneBusy = 44, "control-plane-busy";
        /// A person has to approve it: a known host with a new disk.
        ApprovalPending = 45, "approval-pending";
        /// Verified, but what goes into the ticket could not be made.
        IssuingFailed = 46, "issuing-failed";
        /// The issuer has no valid policy: it admits no host.
        PolicyInvalid = 47, "policy-invalid";
    }
}

/// What a refused host does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalClass {
    /// Try again soon with a new attempt.
    Retry,
    /// An operator has to change something; try again seldom.
    WaitForChange,
    /// Nothing of this will change by trying again in this boot.
    Fatal,
}

impl RefusalCode {
    /// What a host does about it.
    #[must_use]
    pub const fn class(self) -> RefusalClass {
        match self {
            Self::ChallengeExpired | Self::Busy | Self::Superseded | Self::ControlPlaneBusy | Self::IssuingFailed => {
                RefusalClass::Retry
            }
            Self::Lock => RefusalClass::Fatal,
            _ => RefusalClass::WaitForChange,
        }
    }

    /// True for reasons that reveal only what the hello shows in clear. All others are sent only to a host that has shown that it owns its TPM.
    #[must_use]
    pub const fn may_be_clear(self) -> bool {
        self.to_wire() < 20
    }
}

/// Text for people as it may be sent: cut between two characters, without control characters.
pub(crate) fn detail_that_fits(detail: &str) -> String {
    let mut text = String::new();
    for character in detail.chars().map(|c| if c.is_control() { ' ' } else { c }) {
        if text.len() + character.len_utf8() > DETAIL_BYTES_MAX {
            break;
        }
        text.push(character);
    }
    text
}

/// A refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The reason.
    pub code: RefusalCode,
    /// For people; no secret. At most [`DETAIL_BYTES_MAX`] bytes.
    pub detail: String,
    /// Wait at least so long before another attempt, ms; 0: no advice.
    pub retry_after_ms: u64,
}

impl Refusal {
    /// A refusal whose detail is cut to what may be sent and freed of control characters.
    #[must_use]
    pub fn new(code: RefusalCode, detail: impl AsRef<str>) -> Self {
        Self { code, detail: detail_that_fits(detail.as_ref()), retry_after_ms: 0 }
    }

    /// With advice when to try again.
    #[must_use]
    pub const fn retry_after_ms(mut self, retry_after_ms: u64) -> Self {
        self.retry_after_ms = retry_after_ms;
        self
    }

    pub(crate) fn to_wire(&self) -> wire::Refusal {
        wire::Refusal { code: self.code.to_wire(), detail: self.detail.clone(), retry_after_ms: self.retry_after_ms }
    }

    pub(crate) fn from_wire(refusal: wire::Refusal) -> Result<Self, WireError> {
        let fields = Fields("refusal");
        let code = RefusalCode::from_wire(refusal.code).ok_or_else(|| fields.error("code", "is not known"))?;
        fields.text("detail", &refusal.detail, DETAIL_BYTES_MAX)?;
        Ok(Self { code, detail: refusal.detail, retry_after_ms: refusal.retry_after_ms })
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.code, self.detail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_keep_their_numbers() {
        let numbers: Vec<_> = RefusalCode::ALL.iter().map(|code| (code.to_wire(), code.name())).collect();
        assert_eq!(numbers.first(), Some(&(1, "version-unsupported")));
        assert_eq!(numbers.last(), Some(&(47, "policy-invalid")));
        assert!(numbers.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert!(RefusalCode::Busy.may_be_clear() && !RefusalCode::EndorsementUnknown.may_be_clear());
    }

    #[test]
    fn a_detail_is_cut_between_characters_and_has_no_control_characters() {
        let refusal = Refusal::new(RefusalCode::Measurement, format!("a\n{}", "ü".repeat(400)));
        assert!(refusal.detail.starts_with("a ü") && refusal.detail.len() <= DETAIL_BYTES_MAX);
        assert_eq!(Refusal::from_wire(refusal.to_wire()), Ok(refusal));
    }
}
