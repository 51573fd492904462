//! Every hostile join that its evidence shows is refused, each with its own code. The structures are made in software and signed, so that nothing but the one thing is wrong.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by it")]

use crate::forge;

use std::time::Duration;

use forge::{Area, INDICES, Machine, SHA1, SHA256, Statement, in_force, key, measured};
use join_attestation::pcr::after_event;
use join_attestation::{
    AdmittedHost, Hash, KeyEvidence, Phase, Policy, QuoteEvidence, Refusal, RefusalCode, TpmVerifier, Verdict, judge,
    judge_keys,
};
use join_protocol::attestation::{Expected, HostKeys, Lock, Step, Verifier};
use join_protocol::refusal as protocol;
use join_protocol::secret::Secret;
use join_protocol::terms::{Kind, Role, Variant};
use serde_json::json;

const NONCE: &[u8] = b"challenge, keys and body of this request";
const NOW: Duration = Duration::from_secs(1_800_000_000);

/// Judges a statement of `machine`, signed by it.
fn verdict(policy: &Policy, machine: &Machine, statement: &Statement, phase: Phase<'_>) -> Verdict {
    let (attest, values) = (statement.bytes(), statement.value_bytes());
    let quote =
        QuoteEvidence { attest: &attest, signature: &machine.sign(&attest), pcr_values: &values, event_log: None };
    with_quote(policy, machine, Some(&quote), phase)
}

fn with_quote(policy: &Policy, machine: &Machine, quote: Option<&QuoteEvidence<'_>>, phase: Phase<'_>) -> Verdict {
    let (endorsement, attestation) = (machine.endorsement().bytes(), machine.attestation().bytes());
    let keys =
        KeyEvidence { endorsement: &endorsement, certificate: None, intermediates: &[], attestation: &attestation };
    judge(policy, &keys, quote, NONCE, phase, NOW)
}

fn admitted(machine: &Machine, statement: &Statement) -> AdmittedHost {
    verdict(&in_force(&machine.policy()), machine, statement, Phase::Joining).outcome.unwrap()
}

#[track_caller]
fn refused(machine: &Machine, statement: &Statement) -> Refusal {
    verdict(&in_force(&machine.policy()), machine, statement, Phase::Joining).outcome.unwrap_err()
}

/// Changes a good statement and gives the code of the refusal.
#[track_caller]
fn changed(change: impl FnOnce(&mut Statement)) -> RefusalCode {
    let machine = Machine::new();
    let mut statement = machine.statement(NONCE);
    change(&mut statement);
    refused(&machine, &statement).code
}

#[test]
fn an_honest_host_is_admitted_under_the_revision_of_the_policy() {
    let machine = Machine::new();
    let verdict = verdict(&in_force(&machine.policy()), &machine, &machine.statement(NONCE), Phase::Joining);
    assert_eq!((verdict.policy_revision, verdict.warnings.len()), (41, 0));
    let verified = verdict.outcome.unwrap();
    assert_eq!(verified.pcrs.keys().copied().collect::<Vec<_>>(), INDICES);
    assert_eq!((verified.clock.reset_count, verified.firmware_version), (12, 0x2020_0312_0000_0001));
    assert_eq!(verified.keys.enrolment.as_ref().unwrap().host.as_deref(), Some("press-shop-2"));
}

#[test]
fn no_quote() {
    let machine = Machine::new();
    let verdict = with_quote(&in_force(&machine.policy()), &machine, None, Phase::Joining);
    assert_eq!(verdict.outcome.unwrap_err().code, RefusalCode::QuoteMissing);
}

#[test]
fn quote_with_an_old_nonce_or_of_a_replayed_transcript() {
    let machine = Machine::new();
    let refusal = refused(&machine, &machine.statement(b"the challenge of yesterday"));
    assert_eq!(refusal.code, RefusalCode::QuoteExtraData);
    assert!(refusal.text.contains(&hex::encode(b"the challenge of yesterday")), "{refusal}");
    assert_eq!(changed(|statement| statement.extra_data.clear()), RefusalCode::QuoteExtraData);
}

#[test]
fn csr_key_swapped_after_attestation() {
    // What is expected is computed from the request as it arrived; the quote was made over the request as it was.
    assert_eq!(changed(|statement| statement.extra_data[9] ^= 1), RefusalCode::QuoteExtraData);
}

#[test]
fn quote_from_another_tpm() {
    let (machine, stranger) = (Machine::new(), Machine::new());
    let statement = machine.statement(NONCE);
    let (attest, values) = (statement.bytes(), statement.value_bytes());
    let quote =
        QuoteEvidence { attest: &attest, signature: &stranger.sign(&attest), pcr_values: &values, event_log: None };
    let verdict = with_quote(&in_force(&machine.policy()), &machine, Some(&quote), Phase::Joining);
    assert_eq!(verdict.outcome.unwrap_err().code, RefusalCode::QuoteSignature);
    // With keys of its own it is an unknown host.
    let policy = in_force(&machine.policy());
    let own = verdict_of(&policy, &stranger);
    assert_eq!(own.code, RefusalCode::EkNotEnrolled);
    assert!(own.text.contains(&stranger.ek_hash()), "{own}");
}

fn verdict_of(policy: &Policy, machine: &Machine) -> Refusal {
    verdict(policy, machine, &machine.statement(NONCE), Phase::Joining).outcome.unwrap_err()
}

#[test]
fn right_endorsement_key_but_attestation_key_of_another_tpm() {
    let mut machine = Machine::new();
    let policy = in_force(&machine.policy());
    let honest = machine.statement(NONCE);
    machine.attestation_key = key();
    // The TPM that made the statement named the key that signed; it is not this one.
    let refusal = verdict(&policy, &machine, &honest, Phase::Joining).outcome.unwrap_err();
    assert_eq!(refusal.code, RefusalCode::AkHierarchy);
}

#[test]
fn attestation_keys_that_can_sign_anything_or_leave_their_tpm() {
    let machine = Machine::new();
    let good = machine.attestation();
    let missing = |bit: u32| Area { attributes: good.attributes & !bit, ..good.clone() };
    for (area, rule) in [
        (missing(1 << 1), "not fixedTPM"),
        (missing(1 << 4), "not fixedParent"),
        (missing(1 << 5), "not sensitiveDataOrigin"),
        (missing(1 << 16), "not restricted"),
        (missing(1 << 18), "does not sign"),
        (Area { attributes: good.attributes | 1 << 17, ..good.clone() }, "it decrypts"),
        (Area { scheme: vec![0x0010], ..good.clone() }, "scheme is not ECDSA or RSASSA with SHA-256"),
        (Area { scheme: vec![0x0018, SHA1], ..good.clone() }, "scheme is not ECDSA or RSASSA with SHA-256"),
        (Area { scheme: vec![0x0014, SHA256], ..good.clone() }, "scheme is not ECDSA or RSASSA with SHA-256"),
        (Area { name_hash: SHA1, ..good.clone() }, "name algorithm is not SHA-256"),
        (Area { symmetric: vec![6, 128, 0x43], ..good.clone() }, "has a symmetric algorithm"),
        (Area { curve: 4, ..good.clone() }, "neither RSA with exponent 65537 nor P-256"),
    ] {
        let refusal = keys(&machine, &machine.endorsement(), &area);
        assert_eq!(refusal.code, RefusalCode::AkUnsuitable, "{refusal}");
        assert!(refusal.text.contains(rule), "{refusal} and not {rule}");
    }
}

#[test]
fn endorsement_keys_that_are_none() {
    let machine = Machine::new();
    let good = machine.endorsement();
    let missing = |bit: u32| Area { attributes: good.attributes & !bit, ..good.clone() };
    for area in [
        missing(1 << 1),
        missing(1 << 4),
        missing(1 << 5),
        missing(1 << 16),
        missing(1 << 17),
        Area { attributes: good.attributes | 1 << 18, ..good.clone() },
        Area { symmetric: vec![0x0010], ..good.clone() },
        Area { name_hash: SHA1, ..good.clone() },
    ] {
        assert_eq!(keys(&machine, &area, &machine.attestation()).code, RefusalCode::EkUnsuitable, "{area:?}");
    }
}

fn keys(machine: &Machine, endorsement: &Area, attestation: &Area) -> Refusal {
    let (endorsement, attestation) = (endorsement.bytes(), attestation.bytes());
    let evidence =
        KeyEvidence { endorsement: &endorsement, certificate: None, intermediates: &[], attestation: &attestation };
    judge_keys(&in_force(&machine.policy()), &evidence, NOW).unwrap_err()
}

#[test]
fn one_pcr_differs() {
    let machine = Machine::new();
    let mut statement = machine.statement(NONCE);
    statement.values[0] = measured(99);
    let refusal = refused(&machine, &statement);
    assert_eq!((refusal.code, refusal.differences.len()), (RefusalCode::PcrMismatch, 1));
    let difference = &refusal.differences[0];
    assert_eq!((difference.index, &difference.found, &difference.wanted), (4, &measured(99), &vec![measured(4)]));
    let text = format!("PCR 4: wanted {}, found {}", hex::encode(measured(4)), hex::encode(measured(99)));
    assert_eq!(refusal.text, text);
}

#[test]
fn many_pcrs_differ_and_all_are_named() {
    let machine = Machine::new();
    let mut statement = machine.statement(NONCE);
    for value in &mut statement.values[..4] {
        *value = measured(99);
    }
    let verdict = verdict(&in_force(&machine.policy()), &machine, &statement, Phase::Joining);
    let refusal = verdict.outcome.unwrap_err();
    assert_eq!(refusal.differences.iter().map(|difference| difference.index).collect::<Vec<_>>(), [4, 9, 11]);
    assert_eq!(refusal.differences[2].wanted, [measured(200), measured(11)]);
    assert_eq!(verdict.warnings.iter().map(|difference| difference.index).collect::<Vec<_>>(), [7]);
}

#[test]
fn a_pcr_that_only_warns_is_reported_and_does_not_refuse() {
    let machine = Machine::new();
    let mut statement = machine.statement(NONCE);
    statement.values[1] = measured(99);
    let verdict = verdict(&in_force(&machine.policy()), &machine, &statement, Phase::Joining);
    assert!(verdict.outcome.is_ok());
    assert_eq!((verdict.warnings[0].index, &verdict.warnings[0].found), (7, &measured(99)));
}

#[test]
fn a_pcr_that_is_only_observed_is_shown_and_neither_warns_nor_refuses_nor_admits() {
    let machine = Machine::new();
    let mut entry = machine.policy();
    entry["pcrs"]["7"] = json!({"warnOnly": true});
    let mut statement = machine.statement(NONCE);
    statement.values[1] = measured(99);
    let observed = verdict(&in_force(&entry), &machine, &statement, Phase::Joining);
    assert_eq!((observed.outcome.unwrap().pcrs[&7].clone(), observed.warnings.len()), (measured(99), 0));
    statement.values[0] = measured(98);
    let other = verdict(&in_force(&entry), &machine, &statement, Phase::Joining);
    assert_eq!(other.outcome.unwrap_err().code, RefusalCode::PcrMismatch);
    entry["pcrs"] = json!({"7": {"warnOnly": true}});
    let alone = Policy::new(&serde_json::from_value(entry).unwrap(), 1);
    let alone = verdict(&alone, &machine, &statement, Phase::Joining);
    assert_eq!(alone.outcome.unwrap_err().code, RefusalCode::PolicyInvalid);
}

#[test]
fn one_of_several_allowed_values_is_enough() {
    let machine = Machine::new();
    let mut statement = machine.statement(NONCE);
    statement.values[3] = measured(200);
    admitted(&machine, &statement);
}

#[test]
fn all_pcrs_are_zero() {
    assert_eq!(
        changed(|statement| statement.values.iter_mut().for_each(|value| value.fill(0))),
        RefusalCode::PcrAllZero
    );
}

#[test]
fn sha1_bank_only() {
    assert_eq!(changed(|statement| statement.selections[0].0 = SHA1), RefusalCode::QuoteSha1);
}

#[test]
fn quotes_of_other_banks_and_pcrs() {
    assert_eq!(changed(|statement| statement.selections[0].0 = 0x000c), RefusalCode::QuoteBank);
    assert_eq!(changed(|statement| statement.selections.push((SHA1, vec![0]))), RefusalCode::QuoteBank);
    assert_eq!(changed(|statement| statement.selections.push((SHA256, vec![0]))), RefusalCode::QuoteBank);
    assert_eq!(changed(|statement| statement.selections.clear()), RefusalCode::QuoteSelection);
    let without_lock = |statement: &mut Statement| statement.selections[0].1 = vec![4, 7, 9, 11];
    assert_eq!(changed(without_lock), RefusalCode::QuoteSelection);
    assert_eq!(changed(|statement| statement.selections[0].1.push(0)), RefusalCode::QuoteSelection);
    // A bank of which nothing is selected is not another bank.
    let machine = Machine::new();
    let mut statement = machine.statement(NONCE);
    statement.selections.insert(0, (SHA1, vec![]));
    admitted(&machine, &statement);
}

#[test]
fn values_that_were_not_quoted() {
    let quoted = Hash::Sha256.digest(&[b"other values"]);
    assert_eq!(changed(|statement| statement.digest = Some(quoted)), RefusalCode::QuoteDigest);
    let all: Vec<Vec<u8>> = Machine::new().statement(NONCE).values;
    let digest = |values: &[Vec<u8>]| Some(Hash::Sha256.digest(&values.iter().map(Vec::as_slice).collect::<Vec<_>>()));
    // The same bytes, cut into other values.
    let joined =
        vec![[all[0].clone(), all[1].clone()].concat(), all[2].clone(), all[3].clone(), all[4].clone(), vec![]];
    assert_eq!(
        changed(|statement| (statement.values, statement.digest) = (joined, digest(&all))),
        RefusalCode::QuoteDigest
    );
    assert_eq!(changed(|statement| drop(statement.values.pop())), RefusalCode::QuoteDigest);
}

#[test]
fn statements_that_no_tpm_made_and_other_statements() {
    assert_eq!(changed(|statement| statement.magic = 0x4142_4344), RefusalCode::QuoteNotGenerated);
    // TPM_ST_ATTEST_CERTIFY.
    assert_eq!(changed(|statement| statement.kind = 0x8017), RefusalCode::QuoteType);
}

#[test]
fn a_clock_that_is_not_safe() {
    // Whether that matters depends on the host's last clock.
    let machine = Machine::new();
    let mut statement = machine.statement(NONCE);
    statement.safe = 0;
    let verdict = verdict(&in_force(&machine.policy()), &machine, &statement, Phase::Joining);
    assert!(!verdict.outcome.unwrap().clock.safe);
    assert_eq!(changed(|statement| statement.safe = 2), RefusalCode::EvidenceMalformed);
}

#[test]
fn a_member_asks_again_and_a_stranger_claims_to_be_locked() {
    let machine = Machine::new();
    let policy = in_force(&machine.policy());
    let cluster_id = [0xc1; 32];
    let mut locked = machine.statement(NONCE);
    locked.values[4] = after_event(Hash::Sha256, &[0; 32], &cluster_id);
    let refusal = verdict(&policy, &machine, &locked, Phase::Joining).outcome.unwrap_err();
    assert_eq!((refusal.code, refusal.differences[0].index), (RefusalCode::LockMismatch, 15));
    let phase = Phase::Locked { cluster_id: &cluster_id };
    assert!(verdict(&policy, &machine, &locked, phase).outcome.is_ok());
    let unlocked = verdict(&policy, &machine, &machine.statement(NONCE), phase).outcome.unwrap_err();
    assert_eq!(unlocked.code, RefusalCode::LockMismatch);
}

#[test]
fn a_site_whose_lock_pcr_is_not_zero_before() {
    let machine = Machine::new();
    let mut entry = machine.policy();
    let (before, after) = (measured(1), measured(2));
    entry["lock"] = json!({"pcr": 15, "before": hex::encode(&before), "after": hex::encode(&after)});
    let policy = in_force(&entry);
    let zero = verdict(&policy, &machine, &machine.statement(NONCE), Phase::Joining).outcome.unwrap_err();
    assert_eq!(zero.code, RefusalCode::LockMismatch);
    let mut statement = machine.statement(NONCE);
    statement.values[4] = before;
    assert!(verdict(&policy, &machine, &statement, Phase::Joining).outcome.is_ok());
    statement.values[4] = after;
    assert!(verdict(&policy, &machine, &statement, Phase::Locked { cluster_id: b"any" }).outcome.is_ok());
}

#[test]
fn a_second_machine_with_the_same_endorsement_key() {
    // Both are honest in all else; only that one of them is behind the other shows it.
    let machine = Machine::new();
    let first = admitted(&machine, &machine.statement(NONCE));
    let mut behind = machine.statement(NONCE);
    behind.reset_count = 3;
    let second = admitted(&machine, &behind);
    assert_eq!(second.check_after(first.clock).unwrap_err().code, RefusalCode::CountersBackwards);
    let mut slower = machine.statement(NONCE);
    (slower.reset_count, slower.clock) = (13, 999_999);
    assert_eq!(admitted(&machine, &slower).check_after(first.clock).unwrap_err().code, RefusalCode::CountersBackwards);
}

#[test]
fn a_host_that_was_imaged_again_and_one_whose_tpm_was_cleared() {
    let mut machine = Machine::new();
    let policy = in_force(&machine.policy());
    let before = admitted(&machine, &machine.statement(NONCE));
    // Imaged again: another attestation key, counters go on.
    machine.attestation_key = key();
    let mut imaged = machine.statement(NONCE);
    (imaged.reset_count, imaged.clock) = (14, 1_000_001);
    let verified = verdict(&policy, &machine, &imaged, Phase::Joining).outcome.unwrap();
    assert_eq!(verified.check_after(before.clock), Ok(()));
    assert_ne!(verified.keys.attestation, before.keys.attestation);
    // Cleared: another attestation key, counters begin again.
    let mut cleared = machine.statement(NONCE);
    (cleared.reset_count, cleared.clock) = (0, 17);
    let verified = verdict(&policy, &machine, &cleared, Phase::Joining).outcome.unwrap();
    assert_eq!(verified.check_after(before.clock).unwrap_err().code, RefusalCode::CountersBackwards);
}

#[test]
fn join_while_revoked() {
    let machine = Machine::new();
    let mut entry = machine.policy();
    entry["endorsement"]["revoked"] = json!([machine.ek_hash()]);
    assert_eq!(verdict_of(&in_force(&entry), &machine).code, RefusalCode::EkRevoked);
}

#[test]
fn names_and_roles_that_the_host_is_not_enrolled_for() {
    let machine = Machine::new();
    let keys = admitted(&machine, &machine.statement(NONCE)).keys;
    assert_eq!(keys.check_host("press-shop-2", false), Ok(()));
    assert_eq!(keys.check_host("press-shop-3", false).unwrap_err().code, RefusalCode::HostName);
    assert_eq!(keys.check_host("press-shop-2", true).unwrap_err().code, RefusalCode::HostRole);
    let mut entry = machine.policy();
    entry["endorsement"]["enrolled"] = json!([{"ek": machine.ek_hash(), "controlPlane": true}]);
    let verdict = verdict(&in_force(&entry), &machine, &machine.statement(NONCE), Phase::Joining);
    assert_eq!(verdict.outcome.unwrap().keys.check_host("any-name", true), Ok(()));
}

#[test]
fn ten_megabytes_of_evidence() {
    let machine = Machine::new();
    let policy = in_force(&machine.policy());
    let huge = vec![0xff; 10 << 20];
    let statement = machine.statement(NONCE);
    let (attest, values) = (statement.bytes(), statement.value_bytes());
    let signature = machine.sign(&attest);
    let quote = QuoteEvidence { attest: &attest, signature: &signature, pcr_values: &values, event_log: None };
    for quote in [
        QuoteEvidence { attest: &huge, ..quote },
        QuoteEvidence { signature: &huge, ..quote },
        QuoteEvidence { pcr_values: &huge, ..quote },
    ] {
        let refusal = with_quote(&policy, &machine, Some(&quote), Phase::Joining).outcome.unwrap_err();
        assert_eq!(refusal.code, RefusalCode::EvidenceTooLarge, "{refusal}");
    }
    let (endorsement, attestation) = (machine.endorsement().bytes(), machine.attestation().bytes());
    let keys =
        KeyEvidence { endorsement: &endorsement, certificate: None, intermediates: &[], attestation: &attestation };
    let mut entry = machine.policy();
    entry["endorsement"]["require"] = json!("certificate");
    entry["endorsement"]["manufacturers"] = json!([ROOT]);
    let policy = in_force(&entry);
    assert_eq!(policy.error(), None);
    let many: Vec<&[u8]> = vec![b"x"; 6];
    for keys in [
        KeyEvidence { endorsement: &huge, ..keys },
        KeyEvidence { attestation: &huge, ..keys },
        KeyEvidence { certificate: Some(&huge), ..keys },
        KeyEvidence { certificate: Some(b"x"), intermediates: &[&huge], ..keys },
        KeyEvidence { certificate: Some(b"x"), intermediates: &many, ..keys },
    ] {
        assert_eq!(judge_keys(&policy, &keys, NOW).unwrap_err().code, RefusalCode::EvidenceTooLarge);
    }
}

/// A certificate of an authority that has nothing to do with these machines.
const ROOT: &str = include_str!("recorded/root.pem");

#[test]
fn malformed_quotes_at_every_length() {
    let machine = Machine::new();
    let policy = in_force(&machine.policy());
    let statement = machine.statement(NONCE);
    let (attest, values) = (statement.bytes(), statement.value_bytes());
    let signature = machine.sign(&attest);
    let longer = |bytes: &[u8]| [bytes, &[0]].concat();
    let judged = |attest: &[u8], signature: &[u8], pcr_values: &[u8]| {
        let quote = QuoteEvidence { attest, signature, pcr_values, event_log: None };
        with_quote(&policy, &machine, Some(&quote), Phase::Joining).outcome.unwrap_err().code
    };
    for end in 0..attest.len() {
        assert_eq!(judged(&attest[..end], &signature, &values), RefusalCode::EvidenceMalformed, "attest, {end}");
    }
    for end in 0..signature.len() {
        assert_eq!(judged(&attest, &signature[..end], &values), RefusalCode::EvidenceMalformed, "signature, {end}");
    }
    for end in 1..values.len() {
        assert_eq!(judged(&attest, &signature, &values[..end]), RefusalCode::EvidenceMalformed, "values, {end}");
    }
    assert_eq!(judged(&longer(&attest), &signature, &values), RefusalCode::EvidenceMalformed);
    assert_eq!(judged(&attest, &longer(&signature), &values), RefusalCode::EvidenceMalformed);
    assert_eq!(judged(&attest, &signature, &longer(&values)), RefusalCode::EvidenceMalformed);
    assert_eq!(judged(&attest, &signature, &[]), RefusalCode::QuoteDigest);
}

#[test]
fn malformed_public_areas_at_every_length_and_in_every_field() {
    let machine = Machine::new();
    let (good, endorsement) = (machine.attestation(), machine.endorsement());
    let policy = in_force(&machine.policy());
    let judged = |attestation: &[u8]| {
        let endorsement = endorsement.bytes();
        let keys = KeyEvidence { endorsement: &endorsement, certificate: None, intermediates: &[], attestation };
        judge_keys(&policy, &keys, NOW).unwrap_err()
    };
    let bytes = good.bytes();
    for end in 0..bytes.len() {
        assert_eq!(judged(&bytes[..end]).code, RefusalCode::EvidenceMalformed, "{end}");
    }
    assert_eq!(judged(&[bytes.as_slice(), &[0]].concat()).code, RefusalCode::EvidenceMalformed);
    for (area, field) in [
        (Area { trailing: vec![0], ..good.clone() }, "TPMT_PUBLIC: 1 bytes follow its end"),
        (Area { kind: 0x0008, ..good.clone() }, "type: 0x8 is not known"),
        (Area { name_hash: 0x0010, ..good.clone() }, "nameAlg: 0x10 is not known"),
        (Area { attributes: good.attributes | 1, ..good.clone() }, "objectAttributes: 0x50073 is not known"),
        (Area { symmetric: vec![6, 192, 0x43], ..good.clone() }, "symmetric.keyBits: 0xc0 is not known"),
        (Area { symmetric: vec![6, 128, 0x42], ..good.clone() }, "symmetric.mode: 0x42 is not known"),
        (Area { symmetric: vec![0x26], ..good.clone() }, "symmetric: 0x26 is not known"),
        (Area { scheme: vec![0x1a, SHA256], ..good.clone() }, "scheme: 0x1a is not known"),
        (Area { curve: 0x20, ..good.clone() }, "curveID: 0x20 is not known"),
        (Area { kdf: 0x20, ..good.clone() }, "kdf: 0x20 is not known"),
    ] {
        let refusal = judged(&area.bytes());
        assert_eq!(refusal.code, RefusalCode::EvidenceMalformed);
        assert_eq!(refusal.text, format!("attestation key: {field}"));
    }
    let refusal = judged(&Area { point: vec![1; 66], ..good }.bytes());
    assert_eq!(refusal.to_string(), "evidence-too-large: attestation key: unique.ecc.x: 33 is more than 32");
}

#[test]
fn a_point_that_is_not_on_the_curve_signs_nothing() {
    let machine = Machine::new();
    let policy = in_force(&machine.policy());
    let (statement, endorsement) = (machine.statement(NONCE), machine.endorsement().bytes());
    let attestation = Area { point: vec![1; 64], ..machine.attestation() }.bytes();
    let keys =
        KeyEvidence { endorsement: &endorsement, certificate: None, intermediates: &[], attestation: &attestation };
    let attest = statement.bytes();
    let quote = QuoteEvidence {
        attest: &attest,
        signature: &machine.sign(&attest),
        pcr_values: &statement.value_bytes(),
        event_log: None,
    };
    let verdict = judge(&policy, &keys, Some(&quote), NONCE, Phase::Joining, NOW);
    assert_eq!(verdict.outcome.unwrap_err().code, RefusalCode::QuoteSignature);
}

#[test]
fn the_join_protocol_gets_the_same() {
    let machine = Machine::new();
    let verifier = TpmVerifier::new(in_force(&machine.policy()));
    let (endorsement, attestation) = (machine.endorsement().bytes(), machine.attestation().bytes());
    let keys = HostKeys {
        variant: Variant::Tpm2,
        attestation_key: &attestation,
        endorsement_key: &endorsement,
        endorsement_certificates: &[],
    };
    let now_ms = NOW.as_millis() as u64;
    assert_eq!(verifier.check_endorsement(&keys, Kind::Join, Role::Worker, now_ms), Ok(()));
    let refusal = verifier.check_endorsement(&keys, Kind::Join, Role::ControlPlane, now_ms).unwrap_err();
    assert_eq!(refusal.code, protocol::RefusalCode::RoleNotAllowed);
    assert_eq!(verifier.check_attestation_key(&keys), Ok(()));
    let (secret, randomness) = (Secret::new([1; 32]), Secret::new([2; 32]));
    let credential = verifier.make_credential(&keys, &secret, &randomness).unwrap();
    assert_eq!(verifier.make_credential(&keys, &secret, &randomness).unwrap(), credential);
    let simulated = HostKeys { variant: Variant::Simulated, ..keys };
    assert!(verifier.make_credential(&simulated, &secret, &randomness).is_err());

    let about = [7; 32];
    let mut statement = machine.statement(&about);
    statement.values[1] = measured(99);
    let quote = |statement: &Statement| {
        let (attest, values) = (statement.bytes(), statement.value_bytes());
        let signature = machine.sign(&attest);
        let evidence = QuoteEvidence { attest: &attest, signature: &signature, pcr_values: &values, event_log: None };
        assert_eq!(QuoteEvidence::parse(&evidence.to_bytes()).unwrap().to_bytes(), evidence.to_bytes());
        evidence.to_bytes()
    };
    let open = Expected { qualifying_data: about, lock: Lock::Open, step: Step::Evidence };
    let claims = verifier.check_quote(&keys, &quote(&statement), &open).unwrap();
    assert_eq!((claims.pcrs.len(), claims.counters.unwrap().resets), (5, 12));
    assert!(claims.warnings[0].starts_with("PCR 7: wanted "), "{:?}", claims.warnings);
    assert!(claims.warnings.len() == 1 && !claims.clock_unsafe);
    let cut = Statement { safe: 0, ..machine.statement(&about) };
    let claims = verifier.check_quote(&keys, &quote(&cut), &open).unwrap();
    let warned = ["power was cut, and the TPM does not vouch for its clock yet"];
    assert_eq!((claims.clock_unsafe, claims.warnings.as_slice()), (true, warned.map(String::from).as_slice()));
    statement.values[0] = measured(99);
    let refusal = verifier.check_quote(&keys, &quote(&statement), &open).unwrap_err();
    assert_eq!(refusal.code, protocol::RefusalCode::Measurement);
    assert!(refusal.detail.starts_with("pcr-mismatch: PCR 4: wanted "), "{refusal}");
    let cluster_id = [0xc1; 32];
    let mut locked = machine.statement(&about);
    locked.values[4] = after_event(Hash::Sha256, &[0; 32], &cluster_id);
    let locked = quote(&locked);
    let extended = Expected { lock: Lock::Extended(cluster_id), step: Step::Acknowledgement, ..open };
    assert!(verifier.check_quote(&keys, &locked, &extended).is_ok());
    assert_eq!(verifier.check_quote(&keys, &locked, &open).unwrap_err().code, protocol::RefusalCode::Lock);
    let old = Expected { qualifying_data: [8; 32], ..extended };
    assert_eq!(
        verifier.check_quote(&keys, &locked, &old).unwrap_err().code,
        protocol::RefusalCode::QuoteQualifyingData
    );
    for end in 0..locked.len() {
        let refusal = verifier.check_quote(&keys, &locked[..end], &extended).unwrap_err();
        assert_eq!(refusal.code, protocol::RefusalCode::QuoteMalformed, "{end}: {refusal}");
    }
}

#[test]
fn without_a_valid_policy_no_host_is_admitted() {
    let machine = Machine::new();
    let refusal = verdict_of(&Policy::missing(), &machine);
    assert_eq!(refusal.code, RefusalCode::PolicyInvalid);
    let mut entry = machine.policy();
    entry["pcrs"] = json!({});
    let refusal = verdict_of(&in_force(&entry), &machine);
    assert_eq!(refusal.code, RefusalCode::PolicyInvalid);
    assert!(refusal.text.contains("no PCR is enforced"), "{refusal}");
}
