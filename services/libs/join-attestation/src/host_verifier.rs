//! Judges hosts of every variant that a policy names, by that policy. It also identifies a host: by the hash of its endorsement key, by which policies enrol and revoke it.
//!
//! | variant | hash of the endorsement key | PCRs, revocation, enrolment |
//! |---|---|---|
//! | `tpm2`, `tpm2-event-log` | SHA-256 of its DER SubjectPublicKeyInfo | see [`crate::verdict`] |
//! | `simulated` | the id that the join protocol gives it | the same rules; it has no certificate, and its lock PCR is [`join_protocol::simulated::LOCK_PCR`] |

use std::collections::BTreeMap;

use configdb_schema::document::{EndorsementProof, EvidenceVariant};
use join_protocol::attestation::{Claims, Counters, Expected, HostKeys, KeyError, Verifier};
use join_protocol::refusal::{Refusal, RefusalCode};
use join_protocol::secret::Secret;
use join_protocol::selection::{Bank, Selection};
use join_protocol::simulated::{LOCK_PCR, SimulatedVerifier};
use join_protocol::terms::{Kind, Role, Variant};

use crate::hash::Hash;
use crate::policy::{EkHash, Policy, Rules};
use crate::unlock::admitted;
use crate::verdict::parse;
use crate::verifier::{TpmVerifier, translated};

/// A verifier for one revision of a policy.
#[derive(Debug, Clone)]
pub struct HostVerifier {
    tpm: TpmVerifier,
    simulated: SimulatedVerifier,
}

impl HostVerifier {
    /// A verifier for this policy.
    #[must_use]
    pub fn new(policy: Policy) -> Self {
        Self { tpm: TpmVerifier::new(policy), simulated: SimulatedVerifier::default() }
    }

    /// The policy.
    #[must_use]
    pub const fn policy(&self) -> &Policy {
        self.tpm.policy()
    }

    /// The protocol's variants that the policy names, the preferred first.
    #[must_use]
    pub fn variants(&self) -> Vec<Variant> {
        let variants = |variant: &EvidenceVariant| -> &[Variant] {
            match variant {
                // A host that cannot send its log is refused under seal.
                EvidenceVariant::Tpm2 if self.policy().judges_events() => &[Variant::Tpm2EventLog, Variant::Tpm2],
                EvidenceVariant::Tpm2 => &[Variant::Tpm2],
                EvidenceVariant::Simulated => &[Variant::Simulated],
            }
        };
        self.policy().variants().iter().flat_map(variants).copied().collect()
    }

    fn rules(&self) -> Result<&Rules, Refusal> {
        let refused = |error| Refusal::new(RefusalCode::PolicyInvalid, format!("the policy admits no host: {error}"));
        self.policy().rules().map_err(refused)
    }

    /// A simulated host has no certificate; only an enrolment can vouch for it.
    fn check_simulated(&self, keys: &HostKeys<'_>, role: Role) -> Result<(), Refusal> {
        let rules = self.rules()?;
        let ek = ek_hash(keys)?;
        let text = |what: &str| format!("endorsement key {} {what}", hex::encode(ek));
        if rules.endorsement.revoked.contains(&ek) {
            return Err(Refusal::new(RefusalCode::EndorsementRevoked, text("is revoked")));
        }
        let enrolment = rules.endorsement.enrolled.get(&ek);
        match (rules.endorsement.require, enrolment) {
            (EndorsementProof::Certificate | EndorsementProof::Both, _) => {
                let detail = "a simulated endorsement key has no certificate, and the policy requires one";
                return Err(Refusal::new(RefusalCode::EndorsementCertificate, detail));
            }
            (EndorsementProof::Enrolment | EndorsementProof::Either, None) => {
                return Err(Refusal::new(RefusalCode::EndorsementUnknown, text("is not enrolled")));
            }
            (EndorsementProof::Enrolment | EndorsementProof::Either, Some(_)) => {}
        }
        if role == Role::ControlPlane && !enrolment.is_some_and(|enrolment| enrolment.control_plane) {
            let detail = "the host asks to join the control plane and is not enrolled for it";
            return Err(Refusal::new(RefusalCode::RoleNotAllowed, detail));
        }
        Ok(())
    }

    fn judge_simulated(&self, mut claims: Claims, expected: &Expected) -> Result<Claims, Refusal> {
        let rules = self.rules()?;
        let found = claims.pcrs.iter().filter_map(|(at, value)| Some((u8::try_from(*at).ok()?, value.to_vec())));
        let found: BTreeMap<u8, Vec<u8>> = found.collect();
        let (mut refused, mut warned) = (Vec::new(), Vec::new());
        for (index, pcr) in &rules.pcrs {
            let value = found.get(index).map_or(&[][..], Vec::as_slice);
            if let Some(difference) = pcr.difference(*index, value) {
                if pcr.enforced { &mut refused } else { &mut warned }.push(difference.to_string());
            }
        }
        if !refused.is_empty() {
            return Err(Refusal::new(RefusalCode::Measurement, format!("pcr-mismatch: {}", refused.join("; "))));
        }
        claims.warnings.extend(warned);
        claims.local_unlock = admitted(rules, &found, None, expected);
        Ok(claims)
    }
}

/// The hash of an endorsement key, as policies write it. It does not say that the key is good.
///
/// # Errors
/// `key-invalid`.
pub fn ek_hash(keys: &HostKeys<'_>) -> Result<EkHash, Refusal> {
    match keys.variant {
        Variant::Simulated => Ok(keys.endorsement_key_id()),
        Variant::Tpm2 | Variant::Tpm2EventLog => {
            let invalid = |text: String| Refusal::new(RefusalCode::KeyInvalid, text);
            let key = parse(keys.endorsement_key, "endorsement key").map_err(|refusal| invalid(refusal.to_string()))?;
            let spki = key.key.subject_public_key_info().map_err(|error| invalid(error.to_string()))?;
            let mut hash = EkHash::default();
            hash.copy_from_slice(&Hash::Sha256.digest(&[&spki]));
            Ok(hash)
        }
    }
}

/// By how much the clock of a TPM may be behind after a power cut: it stores it at least so often, ms (TPM 2.0 Library Part 1, 36.3.1).
const CLOCK_STORED_MS: u64 = 1 << 22;

/// Checks that a TPM only went forward since `earlier`; if it went back, it was cleared, or another machine answers with the same key. A clock for which the TPM does not vouch may be behind by
/// what it had not stored, if the TPM was reset since. Without an earlier clock of the host such a clock is refused.
///
/// # Errors
/// `counters-backwards`, `quote-clock`.
pub fn check_clock(claims: &Claims, earlier: Option<Counters>) -> Result<(), Refusal> {
    let Some(now) = claims.counters else { return Ok(()) };
    let Some(earlier) = earlier else {
        let text = "the TPM was switched off without warning and does not vouch for its clock yet";
        let refusal = || translated(&crate::Refusal::new(crate::RefusalCode::ClockUnsafe, text));
        return if claims.clock_unsafe { Err(refusal()) } else { Ok(()) };
    };
    let was_cut = claims.clock_unsafe && now.resets > earlier.resets;
    let clock_min = if was_cut { earlier.powered_ms.saturating_sub(CLOCK_STORED_MS) } else { earlier.powered_ms };
    if now < earlier || now.powered_ms < clock_min {
        let text = format!(
            "the TPM said {} resets and clock {} before, and says {} and {}: it was cleared, or another machine has the same key",
            earlier.resets, earlier.powered_ms, now.resets, now.powered_ms
        );
        return Err(Refusal::new(RefusalCode::CountersBackwards, text));
    }
    Ok(())
}

impl Verifier for HostVerifier {
    fn make_credential(&self, keys: &HostKeys<'_>, secret: &Secret, randomness: &Secret) -> Result<Vec<u8>, KeyError> {
        match keys.variant {
            Variant::Tpm2 | Variant::Tpm2EventLog => self.tpm.make_credential(keys, secret, randomness),
            Variant::Simulated => self.simulated.make_credential(keys, secret, randomness),
        }
    }

    fn selection(&self, variant: Variant) -> Selection {
        let asked = self.policy().asked();
        match (variant, self.rules()) {
            // Its lock PCR is its own, whatever the policy's is.
            (Variant::Simulated, Ok(rules)) => {
                let pcrs = rules.pcrs.keys().copied().chain(u8::try_from(LOCK_PCR));
                Selection::new(Bank::Sha256, pcrs).unwrap_or(asked)
            }
            _ => asked,
        }
    }

    fn check_endorsement(&self, keys: &HostKeys<'_>, kind: Kind, role: Role, now_ms: u64) -> Result<(), Refusal> {
        match keys.variant {
            Variant::Tpm2 | Variant::Tpm2EventLog => self.tpm.check_endorsement(keys, kind, role, now_ms),
            Variant::Simulated => self.check_simulated(keys, role),
        }
    }

    fn check_attestation_key(&self, keys: &HostKeys<'_>) -> Result<(), Refusal> {
        match keys.variant {
            Variant::Tpm2 | Variant::Tpm2EventLog => self.tpm.check_attestation_key(keys),
            Variant::Simulated => self.simulated.check_attestation_key(keys),
        }
    }

    fn check_quote(&self, keys: &HostKeys<'_>, quote: &[u8], expected: &Expected) -> Result<Claims, Refusal> {
        match keys.variant {
            Variant::Tpm2 | Variant::Tpm2EventLog => self.tpm.check_quote(keys, quote, expected),
            Variant::Simulated => self.judge_simulated(self.simulated.check_quote(keys, quote, expected)?, expected),
        }
    }

    fn read_pcrs(&self, keys: &HostKeys<'_>, quote: &[u8], qualifying_data: &[u8; 32]) -> Option<Vec<(u32, [u8; 32])>> {
        match keys.variant {
            Variant::Tpm2 | Variant::Tpm2EventLog => self.tpm.read_pcrs(keys, quote, qualifying_data),
            Variant::Simulated => self.simulated.read_pcrs(keys, quote, qualifying_data),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use configdb_schema::document::AttestationPolicy;
    use join_protocol::attestation::{Lock, Step};
    use join_protocol::simulated::SimulatedTpm;
    use serde_json::{Value, json};

    fn tpm() -> SimulatedTpm {
        let mut tpm = SimulatedTpm::new(&Secret::new([4; 32])).unwrap();
        tpm.extend(4, &[7; 32]);
        tpm
    }

    #[test]
    fn a_clock_may_be_behind_by_what_a_power_cut_took_and_by_no_more() {
        let check = |(resets, powered_ms, clock_unsafe): (u32, u64, bool), earlier: Option<(u32, u64)>| {
            let counters = |resets, powered_ms| Counters { resets, restarts: 0, powered_ms };
            let claims = Claims { counters: Some(counters(resets, powered_ms)), clock_unsafe, ..Claims::default() };
            let checked = check_clock(&claims, earlier.map(|(resets, powered_ms)| counters(resets, powered_ms)));
            checked.map_err(|refusal| refusal.code)
        };
        let (cleared, cut) = (Err(RefusalCode::CountersBackwards), CLOCK_STORED_MS);
        assert_eq!(check((1, 5, true), None), Err(RefusalCode::QuoteClock), "nothing is known of the host");
        assert_eq!(check((1, 5, false), None), Ok(()));
        let known = Some((4, cut + 100));
        assert_eq!(check((5, 100, true), known), Ok(()), "power was cut, and the TPM stored its clock seldom");
        assert_eq!(check((5, 99, true), known), cleared);
        assert_eq!(check((5, 100, false), known), cleared, "a clock for which the TPM vouches is not behind");
        assert_eq!(check((4, 100, true), known), cleared, "power was not cut since");
        assert_eq!(check((3, cut + 200, true), known), cleared);
        assert_eq!(check((4, cut + 101, true), known), Ok(()), "the same boot, a moment later");
    }

    struct Host {
        tpm: SimulatedTpm,
        attestation: Vec<u8>,
        endorsement: Vec<u8>,
    }

    impl Host {
        fn new() -> Self {
            let tpm = tpm();
            Self { attestation: tpm.attestation_key(), endorsement: tpm.endorsement_key(), tpm }
        }

        fn keys(&self) -> HostKeys<'_> {
            HostKeys {
                variant: Variant::Simulated,
                attestation_key: &self.attestation,
                endorsement_key: &self.endorsement,
                endorsement_certificates: &[],
            }
        }

        fn pcrs(&self) -> Vec<(u32, [u8; 32])> {
            let quote = self.tpm.quote(&[1; 32]);
            SimulatedVerifier::default().read_pcrs(&self.keys(), &quote, &[1; 32]).unwrap()
        }
    }

    fn verifier(host: &Host, change: impl FnOnce(&mut Value)) -> HostVerifier {
        let pcr = hex::encode(host.pcrs()[4].1);
        let ek = hex::encode(host.keys().endorsement_key_id());
        let mut entry = json!({"variants": ["tpm2", "simulated"], "bank": "sha256", "pcrs": {"4": {"expected": [pcr]}},
            "lock": {"pcr": 15}, "endorsement": {"require": "enrolment", "enrolled": [{"ek": ek, "controlPlane": true}]}});
        change(&mut entry);
        let entry: AttestationPolicy = serde_json::from_value(entry).unwrap();
        HostVerifier::new(Policy::new(&entry, 3))
    }

    #[test]
    fn a_simulated_host_is_judged_by_the_same_policy() {
        let host = Host::new();
        let good = verifier(&host, |_| {});
        assert_eq!(good.variants(), [Variant::Tpm2, Variant::Simulated]);
        assert_eq!(good.check_endorsement(&host.keys(), Kind::Join, Role::ControlPlane, 0), Ok(()));
        let expected = Expected { qualifying_data: [1; 32], lock: Lock::Open, step: Step::Evidence };
        let quote = host.tpm.quote(&[1; 32]);
        assert!(good.check_quote(&host.keys(), &quote, &expected).unwrap().warnings.is_empty());

        let endorsement = |change: fn(&mut Value), role| {
            let judged = verifier(&host, change).check_endorsement(&host.keys(), Kind::Join, role, 0);
            judged.unwrap_err().code
        };
        let worker = Role::Worker;
        let other = "0f1e2d3c4b5a69788796a5b4c3d2e1f00112233445566778899aabbccddeeff0";
        assert_ne!(hex::encode(host.keys().endorsement_key_id()), other);
        let unknown = |entry: &mut Value| {
            entry["endorsement"]["enrolled"][0]["ek"] =
                json!("0f1e2d3c4b5a69788796a5b4c3d2e1f00112233445566778899aabbccddeeff0");
        };
        assert_eq!(endorsement(unknown, worker), RefusalCode::EndorsementUnknown);
        let no_control = |entry: &mut Value| entry["endorsement"]["enrolled"][0]["controlPlane"] = json!(false);
        assert_eq!(endorsement(no_control, Role::ControlPlane), RefusalCode::RoleNotAllowed);
        let revoked = |entry: &mut Value| {
            entry["endorsement"]["revoked"] = json!([entry["endorsement"]["enrolled"][0]["ek"]]);
        };
        assert_eq!(endorsement(revoked, worker), RefusalCode::EndorsementRevoked);
        let none = |entry: &mut Value| entry["pcrs"] = json!({});
        assert_eq!(endorsement(none, worker), RefusalCode::PolicyInvalid);
        assert!(verifier(&host, none).variants().is_empty());
    }

    #[test]
    fn a_host_is_asked_for_the_pcrs_of_the_policy_and_for_all_where_there_is_none() {
        let host = Host::new();
        let asked = |verifier: &HostVerifier, variant| {
            let selection = verifier.selection(variant);
            (selection.bank().name(), selection.pcrs().to_vec())
        };
        let other_lock = verifier(&host, |entry| entry["lock"]["pcr"] = json!(12));
        assert_eq!(asked(&other_lock, Variant::Tpm2), ("sha256", vec![4, 12]));
        assert_eq!(asked(&other_lock, Variant::Simulated), ("sha256", vec![4, 15]), "its lock PCR is its own");
        let long = json!({"bank": "sha384", "pcrs": {"11": {"expected": [hex::encode(Hash::Sha384.digest(&[b"x"]))]}},
            "lock": {"pcr": 15}, "endorsement": {"require": "enrolment", "enrolled": [{"ek": hex::encode(host.keys().endorsement_key_id())}]}});
        let long = HostVerifier::new(Policy::new(&serde_json::from_value(long).unwrap(), 1));
        assert_eq!(asked(&long, Variant::Tpm2), ("sha384", vec![11, 15]));
        let missing = HostVerifier::new(Policy::missing());
        assert_eq!(asked(&missing, Variant::Tpm2), ("sha256", (0..24).collect()));
    }

    #[test]
    fn pcrs_of_a_simulated_host_are_enforced_or_warned_of_and_can_be_read_either_way() {
        let host = Host::new();
        let other = hex::encode(Hash::Sha256.digest(&[b"other"]));
        let quote = host.tpm.quote(&[1; 32]);
        let expected = Expected { qualifying_data: [1; 32], lock: Lock::Open, step: Step::Evidence };
        let refusing = verifier(&host, |entry| entry["pcrs"]["4"]["expected"] = json!([other]));
        let refusal = refusing.check_quote(&host.keys(), &quote, &expected).unwrap_err();
        assert_eq!(refusal.code, RefusalCode::Measurement);
        assert!(refusal.detail.starts_with("pcr-mismatch: PCR 4: wanted "), "{refusal}");
        assert_eq!(refusing.read_pcrs(&host.keys(), &quote, &[1; 32]), Some(host.pcrs()));
        assert_eq!(refusing.read_pcrs(&host.keys(), &quote, &[2; 32]), None, "about something else");
        let warning = verifier(&host, |entry| entry["pcrs"]["9"] = json!({"expected": [other], "warnOnly": true}));
        assert_eq!(warning.check_quote(&host.keys(), &quote, &expected).unwrap().warnings.len(), 1);
    }

    #[test]
    fn counters_only_go_forward() {
        let counters = |resets, restarts, powered_ms| Counters { resets, restarts, powered_ms };
        let check = |now| check_clock(&Claims { counters: Some(now), ..Claims::default() }, Some(counters(1, 5, 10)));
        assert_eq!(check(counters(2, 0, 11)), Ok(()));
        for now in [counters(0, 9, 11), counters(1, 4, 11), counters(2, 0, 9)] {
            assert_eq!(check(now).unwrap_err().code, RefusalCode::CountersBackwards);
        }
    }
}
