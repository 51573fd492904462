//! The variants `tpm2` and `tpm2-event-log` of the join protocol: keys, credentials and quotes in the TPM's own structures.
//!
//! | what travels | form |
//! |---|---|
//! | endorsement key, attestation key | `TPM2B_PUBLIC`; the attestation key may be followed by what an initial attestation key says of it ([`crate::device`]) |
//! | certificates | DER, that of the endorsement key first; that of an initial attestation key among the others |
//! | credential | `TPM2B_ID_OBJECT`, `TPM2B_ENCRYPTED_SECRET` |
//! | quote | `TPM2B_ATTEST`, `TPMT_SIGNATURE`, `TPML_DIGEST` with the values, as often as needed; the quote's `extraData` is the qualifying data |
//! | the same in evidence of `tpm2-event-log` | before it the host's event log, and before that its size (`UINT32`); no bytes if the host has none |
//!
//! A host locks itself with `TPM2_PCR_Event` of the cluster's id on the policy's lock PCR.

use std::time::Duration;

use join_protocol::attestation::{Claims, Counters, Expected, HostKeys, KeyError, Lock, Step, Verifier};
use join_protocol::refusal as protocol;
use join_protocol::secret::Secret;
use join_protocol::selection::Selection;
use join_protocol::terms::{Kind, Role, Variant};

use crate::attest::ClockInfo;
use crate::credential::{Seed, make_credential};
use crate::device::attestation_of;
use crate::keys::{check_attestation_key, check_endorsement_key, check_hierarchy};
use crate::policy::Policy;
use crate::public::Public;
use crate::quote::{Expected as QuoteExpected, QuoteEvidence, malformed, verify_quote};
use crate::refusal::{PcrDifference, Refusal, RefusalCode};
use crate::unlock::admitted;
use crate::verdict::{KeyEvidence, Keys, Phase, QuoteKeys, check_quote, judge_keys, parse, valid};
use crate::wire::Malformed;

/// Judges hosts of the variant `tpm2` by a policy. Another revision of the policy is another verifier.
#[derive(Debug, Clone)]
pub struct TpmVerifier {
    policy: Policy,
}

impl TpmVerifier {
    /// A verifier for this policy.
    #[must_use]
    pub const fn new(policy: Policy) -> Self {
        Self { policy }
    }

    /// The policy.
    #[must_use]
    pub const fn policy(&self) -> &Policy {
        &self.policy
    }

    /// What is known of a host by its keys: its enrolment, by which its name is checked ([`Keys::check_host`]), and the hash of its endorsement key.
    ///
    /// # Errors
    /// As [`judge_keys`].
    pub fn judge_keys(&self, keys: &HostKeys<'_>, now_ms: u64) -> Result<Keys, Refusal> {
        let mut certificates = keys.endorsement_certificates.iter().map(Vec::as_slice);
        let certificate = certificates.next();
        let intermediates: Vec<&[u8]> = certificates.collect();
        let evidence = KeyEvidence {
            endorsement: keys.endorsement_key,
            certificate,
            intermediates: &intermediates,
            attestation: keys.attestation_key,
        };
        judge_keys(&self.policy, &evidence, Duration::from_millis(now_ms))
    }

    fn judge_quote(&self, keys: &HostKeys<'_>, quote: &[u8], expected: &Expected) -> Result<Claims, Refusal> {
        let rules = valid(&self.policy)?;
        let (endorsement, attestation) = both_keys(keys)?;
        let quote = quote_of(keys, expected.step, quote).map_err(|error| malformed("quote", &error))?;
        let phase = match (&expected.lock, expected.step) {
            (Lock::Open, _) => Phase::Joining,
            (Lock::Extended(cluster_id), Step::Evidence) => Phase::Renewing { cluster_id },
            (Lock::Extended(cluster_id), Step::Acknowledgement) => Phase::Locked { cluster_id },
        };
        let keys = QuoteKeys { endorsement: &endorsement, attestation: &attestation };
        let mut warnings = Vec::new();
        let verified = check_quote(rules, keys, &quote, &expected.qualifying_data, phase, &mut warnings)?;
        // Values of a bank with longer digests have no place in the protocol's claims; the quote has been judged by them.
        let pcrs = verified
            .pcrs
            .iter()
            .filter_map(|(index, value)| Some((u32::from(*index), value.as_slice().try_into().ok()?)));
        let power_cut =
            (!verified.clock.safe).then(|| "power was cut, and the TPM does not vouch for its clock yet".to_owned());
        Ok(Claims {
            pcrs: pcrs.collect(),
            counters: Some(counters(verified.clock)),
            clock_unsafe: !verified.clock.safe,
            warnings: warnings.iter().map(PcrDifference::to_string).chain(power_cut).collect(),
            local_unlock: admitted(rules, &verified.pcrs, quote.event_log, expected),
        })
    }
}

/// A quote in the form of the host's variant. An event log is only in evidence.
fn quote_of<'a>(keys: &HostKeys<'_>, step: Step, quote: &'a [u8]) -> Result<QuoteEvidence<'a>, Malformed> {
    match (keys.variant, step) {
        (Variant::Tpm2EventLog, Step::Evidence) => QuoteEvidence::parse_with_event_log(quote),
        _ => QuoteEvidence::parse(quote),
    }
}

/// Both keys, which have to be of the kinds that are accepted.
fn both_keys(keys: &HostKeys<'_>) -> Result<(Public, Public), Refusal> {
    if keys.variant == Variant::Simulated {
        let text = format!("the variant is {}, not {}", keys.variant, Variant::Tpm2);
        return Err(Refusal::new(RefusalCode::EvidenceMalformed, text));
    }
    let endorsement = parse(keys.endorsement_key, "endorsement key")?;
    check_endorsement_key(&endorsement)?;
    let (attestation, _) = attestation_of(keys.attestation_key)?;
    check_attestation_key(&attestation)?;
    Ok((endorsement, attestation))
}

fn counters(clock: ClockInfo) -> Counters {
    Counters { resets: clock.reset_count, restarts: clock.restart_count, powered_ms: clock.clock }
}

impl Verifier for TpmVerifier {
    fn make_credential(&self, keys: &HostKeys<'_>, secret: &Secret, randomness: &Secret) -> Result<Vec<u8>, KeyError> {
        let (endorsement, attestation) = both_keys(keys).map_err(|refusal| KeyError(refusal.to_string()))?;
        let seed = Seed::new(*randomness.expose());
        let credential = make_credential(&endorsement, &attestation.name(), secret.expose(), &seed);
        credential.map(|credential| credential.to_bytes()).map_err(|error| KeyError(error.to_string()))
    }

    fn selection(&self, _: Variant) -> Selection {
        self.policy.asked()
    }

    fn check_endorsement(
        &self,
        keys: &HostKeys<'_>,
        _: Kind,
        role: Role,
        now_ms: u64,
    ) -> Result<(), protocol::Refusal> {
        let judged = self.judge_keys(keys, now_ms);
        judged.and_then(|keys| keys.check_role(role == Role::ControlPlane)).map_err(|refusal| translated(&refusal))
    }

    fn check_attestation_key(&self, keys: &HostKeys<'_>) -> Result<(), protocol::Refusal> {
        both_keys(keys).map(|_| ()).map_err(|refusal| translated(&refusal))
    }

    fn check_quote(&self, keys: &HostKeys<'_>, quote: &[u8], expected: &Expected) -> Result<Claims, protocol::Refusal> {
        self.judge_quote(keys, quote, expected).map_err(|refusal| translated(&refusal))
    }

    fn read_pcrs(&self, keys: &HostKeys<'_>, quote: &[u8], qualifying_data: &[u8; 32]) -> Option<Vec<(u32, [u8; 32])>> {
        let rules = valid(&self.policy).ok()?;
        let (endorsement, attestation) = both_keys(keys).ok()?;
        let quote = quote_of(keys, Step::Evidence, quote).ok()?;
        let expected = QuoteExpected { bank: rules.bank, indices: &rules.indices, extra_data: qualifying_data };
        let verified = verify_quote(&quote, &attestation, &expected).ok()?;
        check_hierarchy(&endorsement, &attestation, &verified.qualified_signer).ok()?;
        let pcr = |(index, value): (&u8, &Vec<u8>)| Some((u32::from(*index), value.as_slice().try_into().ok()?));
        Some(verified.pcrs.iter().filter_map(pcr).collect())
    }
}

/// A refusal in the protocol's codes; the detail begins with the code that is used here.
#[must_use]
pub fn translated(refusal: &Refusal) -> protocol::Refusal {
    use protocol::RefusalCode as Code;
    let code = match refusal.code {
        RefusalCode::PolicyInvalid => Code::PolicyInvalid,
        RefusalCode::EkUnsuitable => Code::KeyInvalid,
        RefusalCode::EkRevoked => Code::EndorsementRevoked,
        RefusalCode::EkNotEnrolled => Code::EndorsementUnknown,
        RefusalCode::EkCertificateMissing
        | RefusalCode::EkCertificateMalformed
        | RefusalCode::EkCertificateKey
        | RefusalCode::EkCertificateTime
        | RefusalCode::EkCertificateUsage
        | RefusalCode::EkCertificateUntrusted
        | RefusalCode::IakCertificate => Code::EndorsementCertificate,
        RefusalCode::AkUnsuitable
        | RefusalCode::AkHierarchy
        | RefusalCode::IakUnsuitable
        | RefusalCode::IakStatement
        | RefusalCode::IakOther => Code::AttestationKey,
        RefusalCode::QuoteMissing | RefusalCode::EventLogMissing => Code::QuoteMissing,
        RefusalCode::EvidenceTooLarge
        | RefusalCode::EvidenceMalformed
        | RefusalCode::QuoteNotGenerated
        | RefusalCode::QuoteType
        | RefusalCode::EventLogMalformed
        | RefusalCode::QuoteDigest => Code::QuoteMalformed,
        RefusalCode::QuoteSignature => Code::QuoteSignature,
        RefusalCode::QuoteExtraData => Code::QuoteQualifyingData,
        RefusalCode::QuoteSha1 | RefusalCode::QuoteBank | RefusalCode::QuoteSelection => Code::QuoteSelection,
        RefusalCode::ClockUnsafe => Code::QuoteClock,
        RefusalCode::PcrAllZero => Code::NothingMeasured,
        RefusalCode::PcrMismatch
        | RefusalCode::EventLogReplay
        | RefusalCode::SecureBootOff
        | RefusalCode::SignerNotListed
        | RefusalCode::ImageNotListed
        | RefusalCode::DriverNotListed
        | RefusalCode::CommandLineNotListed
        | RefusalCode::InitrdNotListed => Code::Measurement,
        RefusalCode::LockMismatch => Code::Lock,
        RefusalCode::CountersBackwards => Code::CountersBackwards,
        RefusalCode::HostName => Code::NameNotAllowed,
        RefusalCode::HostRole => Code::RoleNotAllowed,
    };
    protocol::Refusal::new(code, refusal.to_string())
}
