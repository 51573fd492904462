//! Judges a host: its keys when it says hello, its whole evidence when it has answered the challenge.

use std::collections::BTreeMap;
use std::time::Duration;

use configdb_schema::document::EndorsementProof;

use crate::attest::ClockInfo;
use crate::credential::{Credential, CredentialError, Seed, make_credential};
use crate::device::{attestation_of, check_device, check_pinned};
use crate::endorsement::check_certificate;
use crate::hash::Hash;
use crate::keys::{check_attestation_key, check_endorsement_key, check_hierarchy};
use crate::policy::{EkHash, Enrolment, Policy, Rules};
use crate::public::{PUBLIC_BYTES_MAX, Public};
use crate::quote::{Expected, QuoteEvidence, QuoteFacts, malformed, verify_quote};
use crate::refusal::{PcrDifference, Refusal, RefusalCode};
use crate::wire::Malformed;

/// The keys of a host, as it sends them.
#[derive(Debug, Clone, Copy)]
pub struct KeyEvidence<'a> {
    /// `TPM2B_PUBLIC` of the endorsement key.
    pub endorsement: &'a [u8],
    /// DER certificate of the endorsement key, if the host has one.
    pub certificate: Option<&'a [u8]>,
    /// DER certificates between it and a manufacturer's, and those of an initial attestation key.
    pub intermediates: &'a [&'a [u8]],
    /// `TPM2B_PUBLIC` of the attestation key, and behind it what an initial attestation key says of it, if there is one ([`crate::device`]).
    pub attestation: &'a [u8],
}

/// What has to be so in the step that is judged.
#[derive(Debug, Clone, Copy)]
pub enum Phase<'a> {
    /// The host wants a ticket: the lock PCR is as it was.
    Joining,
    /// The host says that it has locked itself to the cluster with this id. Its events were judged before it got its ticket, and no log is sent again.
    Locked {
        /// The cluster's id.
        cluster_id: &'a [u8],
    },
    /// A member wants other certificates: it is locked to the cluster with this id, and its events are judged again.
    Renewing {
        /// The cluster's id.
        cluster_id: &'a [u8],
    },
}

/// The keys of a host that the policy accepts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keys {
    /// The endorsement key.
    pub endorsement: Public,
    /// Its hash, by which a host is enrolled.
    pub ek_hash: EkHash,
    /// A certificate of a manufacturer, or of the maker of the machine, vouches for it.
    pub certified: bool,
    /// Its enrolment, if it is enrolled.
    pub enrolment: Option<Enrolment>,
    /// The attestation key. That it is in the same TPM is only known once a credential came back.
    pub attestation: Public,
}

impl Keys {
    /// The credential that only the TPM which holds both keys can open.
    ///
    /// # Errors
    /// A secret that is too long for the endorsement key.
    pub fn credential(&self, secret: &[u8], seed: &Seed) -> Result<Credential, CredentialError> {
        make_credential(&self.endorsement, &self.attestation.name(), secret, seed)
    }

    /// Whether a host with these keys may have that name and role.
    ///
    /// # Errors
    /// `host-name`, `host-role`.
    pub fn check_host(&self, name: &str, control_plane: bool) -> Result<(), Refusal> {
        self.check_name(name)?;
        self.check_role(control_plane)
    }

    fn check_name(&self, name: &str) -> Result<(), Refusal> {
        if let Some(enrolled) = self.enrolment.as_ref().and_then(|enrolment| enrolment.host.as_ref())
            && enrolled != name
        {
            let text = format!("the host asks for the name {name:?} and is enrolled as {enrolled:?}");
            return Err(Refusal::new(RefusalCode::HostName, text));
        }
        Ok(())
    }

    /// Whether a host with these keys may have that role. Without an enrolment it may only be a worker.
    ///
    /// # Errors
    /// `host-role`.
    pub fn check_role(&self, control_plane: bool) -> Result<(), Refusal> {
        let may_control = self.enrolment.as_ref().is_some_and(|enrolment| enrolment.control_plane);
        if control_plane && !may_control {
            let text = "the host asks to join the control plane and is not enrolled for it";
            return Err(Refusal::new(RefusalCode::HostRole, text));
        }
        Ok(())
    }
}

/// What is known of a host that is admitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdmittedHost {
    /// Its keys.
    pub keys: Keys,
    /// The values of its PCRs, by index.
    pub pcrs: BTreeMap<u8, Vec<u8>>,
    /// Counters and clock of its TPM.
    pub clock: ClockInfo,
    /// Version of its TPM's firmware, as its maker counts.
    pub firmware_version: u64,
}

impl AdmittedHost {
    /// Checks that the TPM only went forward since `earlier`. If it went back, it was cleared, or another machine answers with the same endorsement key.
    ///
    /// # Errors
    /// `counters-backwards`.
    pub fn check_after(&self, earlier: ClockInfo) -> Result<(), Refusal> {
        let now = self.clock;
        let state = |clock: ClockInfo| (clock.reset_count, clock.restart_count, clock.clock);
        if state(now) < state(earlier) || now.clock < earlier.clock {
            let text = format!(
                "the TPM said {} resets and clock {} before, and says {} and {}: it was cleared, or another machine has the same key",
                earlier.reset_count, earlier.clock, now.reset_count, now.clock
            );
            return Err(Refusal::new(RefusalCode::CountersBackwards, text));
        }
        Ok(())
    }
}

/// The judgement of one piece of evidence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Revision of the policy by which was judged.
    pub policy_revision: u64,
    /// What is known of the host, or why it is refused.
    pub outcome: Result<AdmittedHost, Refusal>,
    /// PCRs that differ where the policy only warns.
    pub warnings: Vec<PcrDifference>,
}

/// Judges the keys alone, before a challenge is made of them. `now` is the time since the Unix epoch.
///
/// # Errors
/// `policy-invalid`, an `ek-...` or `ak-...` code, `evidence-malformed`, `evidence-too-large`.
pub fn judge_keys(policy: &Policy, evidence: &KeyEvidence<'_>, now: Duration) -> Result<Keys, Refusal> {
    keys(valid(policy)?, evidence, now)
}

/// Judges the whole evidence. `extra_data` is what ties the quote to this request; `now` is the time since the Unix epoch.
#[must_use]
pub fn judge(
    policy: &Policy,
    evidence: &KeyEvidence<'_>,
    quote: Option<&QuoteEvidence<'_>>,
    extra_data: &[u8],
    phase: Phase<'_>,
    now: Duration,
) -> Verdict {
    let mut warnings = Vec::new();
    let outcome = valid(policy).and_then(|rules| {
        let keys = keys(rules, evidence, now)?;
        let quote = quote.ok_or_else(|| Refusal::new(RefusalCode::QuoteMissing, "there is no quote"))?;
        let keys_of_quote = QuoteKeys { endorsement: &keys.endorsement, attestation: &keys.attestation };
        let quoted = check_quote(rules, keys_of_quote, quote, extra_data, phase, &mut warnings)?;
        let QuoteFacts { pcrs, clock, firmware_version, .. } = quoted;
        Ok(AdmittedHost { keys, pcrs, clock, firmware_version })
    });
    Verdict { policy_revision: policy.revision(), outcome, warnings }
}

/// The keys that a quote is judged with. Both have passed their rules.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QuoteKeys<'a> {
    pub(crate) endorsement: &'a Public,
    pub(crate) attestation: &'a Public,
}

/// Judges a quote alone; PCRs that differ where the policy only warns go into `warnings`.
pub(crate) fn check_quote(
    rules: &Rules,
    keys: QuoteKeys<'_>,
    quote: &QuoteEvidence<'_>,
    extra_data: &[u8],
    phase: Phase<'_>,
    warnings: &mut Vec<PcrDifference>,
) -> Result<QuoteFacts, Refusal> {
    let expected = Expected { bank: rules.bank, indices: &rules.indices, extra_data };
    let quoted = verify_quote(quote, keys.attestation, &expected)?;
    check_hierarchy(keys.endorsement, keys.attestation, &quoted.qualified_signer)?;
    check_pcrs(rules, &quoted, phase, warnings)?;
    if let (Some(boot), Phase::Joining | Phase::Renewing { .. }) = (&rules.boot, phase) {
        boot.judge(quote.event_log, &quoted.pcrs, rules.bank)?;
    }
    Ok(quoted)
}

pub(crate) fn valid(policy: &Policy) -> Result<&Rules, Refusal> {
    let refused = |error| Refusal::new(RefusalCode::PolicyInvalid, format!("the policy admits no host: {error}"));
    policy.rules().map_err(refused)
}

fn keys(rules: &Rules, evidence: &KeyEvidence<'_>, now: Duration) -> Result<Keys, Refusal> {
    let endorsement = parse(evidence.endorsement, "endorsement key")?;
    check_endorsement_key(&endorsement)?;
    let (attestation, statement) = attestation_of(evidence.attestation)?;
    check_attestation_key(&attestation)?;
    let spki = endorsement.key.subject_public_key_info().map_err(|error| {
        Refusal::new(RefusalCode::EvidenceMalformed, format!("endorsement key: cannot be encoded ({error})"))
    })?;
    let mut ek_hash = EkHash::default();
    ek_hash.copy_from_slice(&Hash::Sha256.digest(&[&spki]));
    let trust = &rules.endorsement;
    if trust.revoked.contains(&ek_hash) {
        let text = format!("endorsement key {} is revoked", hex::encode(ek_hash));
        return Err(Refusal::new(RefusalCode::EkRevoked, text));
    }
    let enrolment = trust.enrolled.get(&ek_hash);
    let enrolled = enrolment.ok_or_else(|| {
        let text = format!("endorsement key {} is not enrolled", hex::encode(ek_hash));
        Refusal::new(RefusalCode::EkNotEnrolled, text)
    });
    let certified = match evidence.certificate {
        Some(der) => check_certificate(&spki, der, evidence.intermediates, &trust.manufacturers, now),
        None => Err(Refusal::new(RefusalCode::EkCertificateMissing, "there is no certificate of the endorsement key")),
    };
    if let Some(pinned) = enrolment.and_then(|enrolment| enrolment.iak) {
        check_pinned(&attestation, statement.as_ref(), pinned)?;
    }
    // A manufacturer of TPMs, or else the maker of the machine. What an initial attestation key cannot say is whose endorsement key it is beside: that is known of enrolled hosts alone.
    let vouched = || match &statement {
        Some(statement) if certified.is_err() && !trust.device_manufacturers.is_empty() => {
            let certificates: Vec<&[u8]> =
                evidence.certificate.into_iter().chain(evidence.intermediates.iter().copied()).collect();
            check_device(&attestation, statement, &certificates, &trust.device_manufacturers, now)
        }
        _ => certified.clone(),
    };
    let is_certified = match trust.require {
        EndorsementProof::Certificate => certified.clone().map(|()| true)?,
        EndorsementProof::Enrolment => enrolled.map(|_| certified.is_ok())?,
        EndorsementProof::Both => enrolled.and_then(|_| vouched()).map(|()| true)?,
        EndorsementProof::Either => enrolled.map(|_| ()).or_else(|_| certified.clone()).map(|()| certified.is_ok())?,
    };
    Ok(Keys { endorsement, ek_hash, certified: is_certified, enrolment: enrolment.cloned(), attestation })
}

pub(crate) fn parse(bytes: &[u8], what: &str) -> Result<Public, Refusal> {
    if bytes.len() > PUBLIC_BYTES_MAX + 2 {
        let error = Malformed::long("TPM2B_PUBLIC", PUBLIC_BYTES_MAX, bytes.len());
        return Err(malformed(what, &error));
    }
    Public::parse(bytes).map_err(|error| malformed(what, &error))
}

/// Refuses PCRs that differ where the policy enforces; puts those where it only warns into `warnings`.
fn check_pcrs(
    rules: &Rules,
    quoted: &QuoteFacts,
    phase: Phase<'_>,
    warnings: &mut Vec<PcrDifference>,
) -> Result<(), Refusal> {
    let mut measuring = rules.indices.iter().filter(|index| **index != rules.lock.index);
    let nothing_measured = measuring.all(|index| quoted.pcrs[index].iter().all(|byte| *byte == 0));
    if nothing_measured {
        let text = format!("every quoted PCR of bank {} is zero: firmware measured nothing", rules.bank.name());
        return Err(Refusal::new(RefusalCode::PcrAllZero, text));
    }
    let mut refused = Vec::new();
    for (index, pcr) in &rules.pcrs {
        if let Some(difference) = pcr.difference(*index, &quoted.pcrs[index]) {
            if pcr.enforced { refused.push(difference) } else { warnings.push(difference) }
        }
    }
    if !refused.is_empty() {
        return Err(Refusal::differences(RefusalCode::PcrMismatch, refused));
    }
    let lock = &rules.lock;
    let wanted = match phase {
        Phase::Joining => lock.before.clone(),
        Phase::Locked { cluster_id } | Phase::Renewing { cluster_id } => lock.after(rules.bank, cluster_id),
    };
    let found = quoted.pcrs[&lock.index].clone();
    if found != wanted {
        let difference = PcrDifference { index: lock.index, wanted: vec![wanted], found };
        return Err(Refusal::differences(RefusalCode::LockMismatch, vec![difference]));
    }
    Ok(())
}
