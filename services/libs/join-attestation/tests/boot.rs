//! Policies that judge by events: hosts that were booted as released are admitted, and hosts with a changed boot or log are refused by name.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::collections::BTreeMap;
use std::time::Duration;

use join_attestation::{EventLog, Hash, HostVerifier, KeyEvidence, Phase, QuoteEvidence, RefusalCode, judge, pcr};
use join_protocol::attestation::{Expected, HostKeys, Lock, Step, Verifier as _};
use join_protocol::refusal as protocol;
use join_protocol::terms::Variant;
use serde_json::{Value, json};

use crate::forge::{Machine, SHA256, in_force};
use crate::logs::{OTHER_COMMAND_LINE, PLAIN, SECURE_BOOT, measured};

const NONCE: &[u8] = b"challenge, keys and body of this request";
const NOW: Duration = Duration::from_secs(1_800_000_000);
/// The PCRs that a policy about events has quoted: those that a log explains, and the lock.
const INDICES: [u8; 11] = [0, 1, 2, 3, 4, 5, 6, 7, 9, 11, 15];
const PHASES: [&str; 2] = ["sysinit", "ready"];

const APPLICATION: u32 = 0x8000_0003;
const ACTION: u32 = 0x8000_0007;
const AUTHORITY: u32 = 0x8000_00e0;

/// A measurement that can be changed.
#[derive(Debug, Clone)]
struct Entry {
    pcr: u8,
    kind: u32,
    digest: Vec<u8>,
    data: Vec<u8>,
}

impl Entry {
    /// One whose digest is that of its data.
    fn of(pcr: u8, kind: u32, data: &[u8]) -> Self {
        Self { pcr, kind, digest: Hash::Sha256.digest(&[data]), data: data.to_vec() }
    }

    fn of_digest(pcr: u8, kind: u32, digest: &str) -> Self {
        Self { pcr, kind, digest: hex::decode(digest).unwrap(), data: b"a device path".to_vec() }
    }
}

/// The content of a log, and of the machine that wrote it.
#[derive(Debug, Clone)]
struct Boot(Vec<Entry>);

impl Boot {
    fn of(log: &[u8]) -> Self {
        let log = EventLog::parse(log).unwrap();
        let entries = log.events().iter().map(|event| {
            let digest = event.digest(Hash::Sha256).unwrap().to_vec();
            Entry { pcr: event.pcr, kind: event.kind, digest, data: event.data.to_vec() }
        });
        Self(entries.collect())
    }

    fn log(&self) -> Vec<u8> {
        let events = self.0.iter().flat_map(|event| measured(event.pcr.into(), event.kind, &event.digest, &event.data));
        PLAIN[..65].iter().copied().chain(events).collect()
    }

    /// What the TPM holds after this boot and these phases.
    fn pcrs(&self, phases: &[&str]) -> Vec<Vec<u8>> {
        let value = |index: &u8| {
            let events = self.0.iter().filter(|event| event.pcr == *index);
            let value = events.fold(vec![0; 32], |value, event| pcr::extended(Hash::Sha256, &value, &event.digest));
            let phases = phases.iter().filter(|_| *index == 11);
            phases.fold(value, |value, phase| pcr::after_event(Hash::Sha256, &value, phase.as_bytes()))
        };
        INDICES.iter().map(value).collect()
    }

    fn digests(&self, pcr: u8, kind: u32) -> Vec<String> {
        let events = self.0.iter().filter(|event| (event.pcr, event.kind) == (pcr, kind));
        events.map(|event| hex::encode(&event.digest)).collect()
    }

    /// Behind the last measurement of a PCR.
    fn append(&mut self, event: Entry) {
        self.0.push(event);
    }

    fn position(&self, pcr: u8, kind: u32) -> usize {
        self.0.iter().position(|event| (event.pcr, event.kind) == (pcr, kind)).unwrap()
    }
}

/// The certificate that vouches for the image in the log with Secure Boot, behind the GUID of its owner in the last part of the event.
fn signer() -> String {
    let event = &Boot::of(SECURE_BOOT).0;
    let authority = event.iter().find(|event| event.kind == AUTHORITY).unwrap();
    // GUID, two lengths, "db" in UTF-16, GUID of the owner.
    hex::encode(Hash::Sha256.digest(&[&authority.data[16 + 16 + 4 + 16..]]))
}

/// The rules that fit a log.
fn rules(log: &[u8]) -> Value {
    let boot = Boot::of(log);
    let tagged = boot.digests(9, 6);
    json!({"images": boot.digests(4, APPLICATION), "commandLines": tagged[..1], "initrds": tagged[1..]})
}

fn with(mut rules: Value, key: &str, value: Value) -> Value {
    rules[key] = value;
    rules
}

fn secure_rules() -> Value {
    with(with(rules(SECURE_BOOT), "secureBoot", json!(true)), "signers", json!([signer()]))
}

/// Without a list of images.
fn by_signer() -> Value {
    let mut rules = secure_rules();
    rules.as_object_mut().unwrap().remove("images");
    rules
}

fn policy(machine: &Machine, rules: &Value) -> Value {
    let mut policy = machine.policy();
    policy["pcrs"] = json!({});
    policy["boot"] = rules.clone();
    policy
}

/// Judges a host that shows `boot` and sends `log`.
fn judged_by(
    policy: impl Fn(&Machine) -> Value,
    boot: &Boot,
    log: Option<&[u8]>,
    phases: &[&str],
) -> Result<(), (RefusalCode, String)> {
    let machine = Machine::new();
    let mut statement = machine.statement(NONCE);
    statement.selections = vec![(SHA256, INDICES.to_vec())];
    statement.values = boot.pcrs(phases);
    let (attest, values) = (statement.bytes(), statement.value_bytes());
    let (endorsement, attestation) = (machine.endorsement().bytes(), machine.attestation().bytes());
    let keys =
        KeyEvidence { endorsement: &endorsement, certificate: None, intermediates: &[], attestation: &attestation };
    let quote =
        QuoteEvidence { attest: &attest, signature: &machine.sign(&attest), pcr_values: &values, event_log: log };
    let verdict = judge(&in_force(&policy(&machine)), &keys, Some(&quote), NONCE, Phase::Joining, NOW);
    verdict.outcome.map(|_| ()).map_err(|refusal| (refusal.code, refusal.text))
}

fn judged(rules: &Value, boot: &Boot) -> Result<(), (RefusalCode, String)> {
    judged_by(|machine| policy(machine, rules), boot, Some(&boot.log()), &PHASES)
}

#[track_caller]
fn refused(rules: &Value, boot: &Boot, code: RefusalCode, text: &str) {
    let (found, because) = judged(rules, boot).unwrap_err();
    assert_eq!(found, code, "{because}");
    assert!(because.contains(text), "{because}");
}

#[test]
fn hosts_that_were_booted_as_released_are_admitted_at_any_phase_of_the_boot() {
    for (log, rules) in [(PLAIN, rules(PLAIN)), (SECURE_BOOT, secure_rules())] {
        let boot = Boot::of(log);
        assert_eq!(boot.log(), log, "what is changed below is nothing but what is meant");
        for phases in [
            &[][..],
            &["sysinit"],
            &PHASES,
            &["enter-initrd"],
            &["enter-initrd", "leave-initrd", "sysinit"],
            &["enter-initrd", "leave-initrd", "sysinit", "ready"],
        ] {
            assert_eq!(judged_by(|machine| policy(machine, &rules), &boot, Some(log), phases), Ok(()), "{phases:?}");
        }
        for phases in [&["ready"][..], &["sysinit", "ready", "shutdown"], &["enter-initrd", "sysinit"]] {
            let refusal = judged_by(|machine| policy(machine, &rules), &boot, Some(log), phases).unwrap_err();
            assert_eq!(refusal.0, RefusalCode::EventLogReplay, "{phases:?}");
            assert!(
                refusal.1.starts_with("the event log does not lead to the quoted PCRs: PCR 11: wanted "),
                "{}",
                refusal.1
            );
        }
    }
}

#[test]
fn both_releases_are_admitted_where_both_are_listed_and_a_signer_alone_may_do() {
    let mut both = rules(PLAIN);
    for (key, more) in [
        ("images", Boot::of(OTHER_COMMAND_LINE).digests(4, APPLICATION)),
        ("commandLines", Boot::of(OTHER_COMMAND_LINE).digests(9, 6)),
    ] {
        both[key].as_array_mut().unwrap().extend(more.into_iter().take(1).map(Value::from));
    }
    for log in [PLAIN, OTHER_COMMAND_LINE] {
        assert_eq!(judged(&both, &Boot::of(log)), Ok(()));
    }
    let by_signer = by_signer();
    assert_eq!(judged(&by_signer, &Boot::of(SECURE_BOOT)), Ok(()));
    // Any image of the signer, and no other command line or initrd.
    for key in ["commandLines", "initrds"] {
        let code = if key == "initrds" { RefusalCode::InitrdNotListed } else { RefusalCode::CommandLineNotListed };
        let other = with(by_signer.clone(), key, json!([hex::encode(Hash::Sha256.digest(&[b"other"]))]));
        refused(&other, &Boot::of(SECURE_BOOT), code, "PCR 9");
    }
    assert_eq!(judged(&with(rules(SECURE_BOOT), "secureBoot", json!(true)), &Boot::of(SECURE_BOOT)), Ok(()));
}

#[test]
fn another_image_and_another_command_line() {
    let other = Boot::of(OTHER_COMMAND_LINE);
    let found = &other.digests(4, APPLICATION)[0];
    refused(
        &rules(PLAIN),
        &other,
        RefusalCode::ImageNotListed,
        &format!("PCR 4: image: wanted {} or ", rules(PLAIN)["images"][1].as_str().unwrap()),
    );
    refused(&rules(PLAIN), &other, RefusalCode::ImageNotListed, &format!("found {found}"));
    let mut image = rules(OTHER_COMMAND_LINE);
    image["commandLines"] = rules(PLAIN)["commandLines"].clone();
    let text =
        format!("PCR 9: command line: wanted {}, found 537b9138", rules(PLAIN)["commandLines"][0].as_str().unwrap());
    refused(&image, &other, RefusalCode::CommandLineNotListed, &text);
    // No command line is measured.
    let mut none = Boot::of(PLAIN);
    none.0.retain(|event| event.pcr != 9 || event.kind != 6 || !event.data.ends_with(b"LoadOptions\0"));
    refused(&rules(PLAIN), &none, RefusalCode::CommandLineNotListed, "found none");
}

#[test]
fn an_image_that_is_not_listed_is_refused_whatever_the_log_calls_it() {
    let evil = "6d9f4cb26dc1a5d5e0a5b3c2d1e0f00112233445566778899aabbccddeeff001";
    for kind in [APPLICATION, ACTION, 4, 0x8000_00ff] {
        let mut boot = Boot::of(PLAIN);
        boot.append(Entry::of_digest(4, kind, evil));
        refused(&rules(PLAIN), &boot, RefusalCode::ImageNotListed, evil);
        // With the data of something harmless.
        boot.0.last_mut().unwrap().data = b"Calling EFI Application from Boot Option".to_vec();
        refused(&rules(PLAIN), &boot, RefusalCode::ImageNotListed, evil);
    }
    let mut boot = Boot::of(PLAIN);
    boot.append(Entry::of_digest(5, APPLICATION, evil));
    refused(&rules(PLAIN), &boot, RefusalCode::ImageNotListed, "PCR 5");
    let mut boot = Boot::of(PLAIN);
    boot.append(Entry::of(4, ACTION, b"Returning from EFI Application from Boot Option"));
    assert_eq!(judged(&rules(PLAIN), &boot), Ok(()));
    boot.append(Entry::of(4, 4, &[1, 0, 0, 0]));
    refused(&rules(PLAIN), &boot, RefusalCode::ImageNotListed, "PCR 4");
}

#[test]
fn drivers_of_devices_are_listed_or_their_pcr_is_pinned() {
    let driver = "97c8a19f319397c8a19f319397c8a19f319397c8a19f319397c8a19f31930001";
    let mut boot = Boot::of(PLAIN);
    boot.0.insert(4, Entry::of_digest(2, 0x8000_0004, driver));
    refused(&rules(PLAIN), &boot, RefusalCode::DriverNotListed, &format!("PCR 2: driver: wanted none, found {driver}"));
    let mut listed = rules(PLAIN);
    listed["drivers"] = json!([driver]);
    assert_eq!(judged(&listed, &boot), Ok(()));
    let pinned = |machine: &Machine| {
        let mut policy = policy(machine, &rules(PLAIN));
        policy["pcrs"] = json!({"2": {"expected": [hex::encode(&boot.pcrs(&[])[2])]}});
        policy
    };
    assert_eq!(judged_by(pinned, &boot, Some(&boot.log()), &PHASES), Ok(()));
    let (code, _) = judged_by(pinned, &Boot::of(PLAIN), Some(PLAIN), &PHASES).unwrap_err();
    assert_eq!(code, RefusalCode::PcrMismatch, "both are judged");
}

#[test]
fn another_initrd() {
    let extra = "f421d0e8003df421d0e8003df421d0e8003df421d0e8003df421d0e8003d0001";
    let mut boot = Boot::of(PLAIN);
    let at = boot.0.iter().position(|event| event.pcr == 9 && event.data.ends_with(b"initrd\0")).unwrap();
    let embedded = hex::encode(&boot.0[at].digest);
    boot.0[at].digest = hex::decode(extra).unwrap();
    refused(
        &rules(PLAIN),
        &boot,
        RefusalCode::InitrdNotListed,
        &format!("PCR 9: initrd: wanted {embedded}, found {extra}"),
    );
    let mut listed = rules(PLAIN);
    listed["initrds"] = json!([extra]);
    assert_eq!(judged(&listed, &boot), Ok(()));
    listed["initrds"] = json!([]);
    refused(&listed, &boot, RefusalCode::InitrdNotListed, "wanted none");
    // A program that runs afterwards claims that it was in the image.
    let mut claimed = boot.clone();
    claimed.append(Entry::of(11, 0xd, b".initrd\0"));
    claimed.append(Entry::of_digest(11, 0xd, extra));
    refused(&rules(PLAIN), &claimed, RefusalCode::InitrdNotListed, extra);
    // Whatever the log calls it.
    boot.0[at].data = b"\xed\"\x3b\x8f\x1a\0\0\0LOADED_IMAGE::LoadOptions\0".to_vec();
    refused(&rules(PLAIN), &boot, RefusalCode::CommandLineNotListed, extra);
}

#[test]
fn secure_boot_is_on_from_the_first_measurement_and_by_a_signer_that_is_listed() {
    refused(
        &with(rules(PLAIN), "secureBoot", json!(true)),
        &Boot::of(PLAIN),
        RefusalCode::SecureBootOff,
        "PCR 7: wanted SecureBoot 01, found 00",
    );

    // Off; an attacker who has the machine afterwards measures what it is like where it is on.
    let good = Boot::of(SECURE_BOOT);
    let mut late = Boot::of(PLAIN);
    good.0.iter().filter(|event| event.pcr == 7).for_each(|event| late.append(event.clone()));
    let only = by_signer();
    refused(&only, &late, RefusalCode::SecureBootOff, "found 00");
    // The same, with data that does not belong to the digest.
    let first = late.position(7, 0x8000_0001);
    late.0[first].data = good.0[good.position(7, 0x8000_0001)].data.clone();
    refused(&only, &late, RefusalCode::EventLogMalformed, "the data of event");

    let mut debug = good.clone();
    debug.0.insert(3, Entry::of(7, ACTION, b"UEFI Debug Mode"));
    refused(&secure_rules(), &debug, RefusalCode::SecureBootOff, "found \"UEFI Debug Mode\"");
    let mut none = good.clone();
    none.0.retain(|event| event.pcr != 7);
    refused(&secure_rules(), &none, RefusalCode::SecureBootOff, "found no such variable");

    let other = "0f1e2d3c4b5a69788796a5b4c3d2e1f00112233445566778899aabbccddeeff0";
    let mut signed_by_other = secure_rules();
    signed_by_other["signers"] = json!([other]);
    refused(
        &signed_by_other,
        &good,
        RefusalCode::SignerNotListed,
        &format!("PCR 7: signer: wanted {other}, found {} (db)", signer()),
    );
    let mut unvouched = good.clone();
    unvouched.0.retain(|event| event.kind != AUTHORITY);
    refused(&secure_rules(), &unvouched, RefusalCode::SignerNotListed, "found none");
    // Whatever the log calls it, and before the end of firmware's measurements too: a second `db` vouches for something.
    for place in [8, good.0.len()] {
        let mut second = good.clone();
        let mut authority = good.0[good.position(7, AUTHORITY)].clone();
        *authority.data.last_mut().unwrap() ^= 1;
        second.0.insert(place, Entry::of(7, 0x8000_0001, &authority.data));
        refused(&secure_rules(), &second, RefusalCode::SignerNotListed, "(db)");
    }
    // What is not a certificate is listed by the digest of the event.
    let mut shim = good.clone();
    shim.append(Entry::of(7, AUTHORITY, b"sbat,1,2023012900"));
    refused(&secure_rules(), &shim, RefusalCode::SignerNotListed, "(an event)");
    let mut listed = secure_rules();
    listed["signers"].as_array_mut().unwrap().push(json!(hex::encode(Hash::Sha256.digest(&[b"sbat,1,2023012900"]))));
    assert_eq!(judged(&listed, &shim), Ok(()));
}

#[test]
fn a_log_that_is_missing_malformed_or_of_another_boot() {
    let boot = Boot::of(PLAIN);
    let by = |log: Option<&[u8]>| judged_by(|machine| policy(machine, &rules(PLAIN)), &boot, log, &PHASES).unwrap_err();
    let missing = "the policy judges by the event log, and the host";
    for log in [None, Some(&[][..])] {
        let (code, text) = by(log);
        assert_eq!(code, RefusalCode::EventLogMissing);
        assert!(text.starts_with(missing), "{text}");
    }
    let (code, text) = by(Some(&PLAIN[..PLAIN.len() - 1]));
    assert_eq!((code, &*text), (RefusalCode::EventLogMalformed, "event log: event: needs 40 bytes, 39 are left"));
    let (code, text) = by(Some(OTHER_COMMAND_LINE));
    assert_eq!(code, RefusalCode::EventLogReplay);
    for pcr in ["PCR 4: wanted 4d659bcb", "PCR 9: wanted 8801d73a", "PCR 11: wanted bda33637"] {
        assert!(text.contains(pcr), "{text}");
    }
    // Without the measurement of what it executed.
    let mut hidden = boot.clone();
    hidden.0.remove(boot.position(4, APPLICATION));
    assert_eq!(by(Some(&hidden.log())).0, RefusalCode::EventLogReplay);
}

#[test]
fn every_byte_of_a_log_that_is_changed_admits_no_host_with_another_boot() {
    let wanted = EventLog::parse(SECURE_BOOT).unwrap();
    let rules = secure_rules();
    let boot = Boot::of(SECURE_BOOT);
    let machine = Machine::new();
    let mut statement = machine.statement(NONCE);
    statement.selections = vec![(SHA256, INDICES.to_vec())];
    statement.values = boot.pcrs(&PHASES);
    let (attest, values) = (statement.bytes(), statement.value_bytes());
    let (endorsement, attestation) = (machine.endorsement().bytes(), machine.attestation().bytes());
    let keys =
        KeyEvidence { endorsement: &endorsement, certificate: None, intermediates: &[], attestation: &attestation };
    let signature = machine.sign(&attest);
    let policy = in_force(&policy(&machine, &rules));
    for at in (0..SECURE_BOOT.len()).step_by(7) {
        let mut log = SECURE_BOOT.to_vec();
        log[at] ^= 0x41;
        let quote =
            QuoteEvidence { attest: &attest, signature: &signature, pcr_values: &values, event_log: Some(&log) };
        if judge(&policy, &keys, Some(&quote), NONCE, Phase::Joining, NOW).outcome.is_ok() {
            let read = EventLog::parse(&log).unwrap();
            let same = |(one, two): (&join_attestation::event_log::Event<'_>, _)| one.digest(Hash::Sha256) == Some(two);
            let digests = wanted.events().iter().map(|event| event.digest(Hash::Sha256).unwrap());
            assert!(read.events().iter().zip(digests).all(same), "byte {at}");
        }
    }
}

#[test]
fn the_log_travels_before_the_quote_of_evidence_and_not_in_an_acknowledgement() {
    let machine = Machine::new();
    let verifier = HostVerifier::new(in_force(&policy(&machine, &rules(PLAIN))));
    assert_eq!(verifier.variants(), [Variant::Tpm2EventLog, Variant::Tpm2]);
    assert_eq!(HostVerifier::new(in_force(&machine.policy())).variants(), [Variant::Tpm2]);
    let pcrs: Vec<u8> = verifier.selection(Variant::Tpm2EventLog).pcrs().to_vec();
    assert_eq!(pcrs, INDICES);

    let (endorsement_key, attestation_key) = (machine.endorsement().bytes(), machine.attestation().bytes());
    let keys = HostKeys {
        variant: Variant::Tpm2EventLog,
        attestation_key: &attestation_key,
        endorsement_key: &endorsement_key,
        endorsement_certificates: &[],
    };
    let (about, cluster_id) = ([7; 32], [0xc1; 32]);
    let mut statement = machine.statement(&about);
    statement.selections = vec![(SHA256, INDICES.to_vec())];
    statement.values = Boot::of(PLAIN).pcrs(&PHASES);
    let quote = |statement: &crate::forge::Statement, event_log| {
        let (attest, values) = (statement.bytes(), statement.value_bytes());
        let signature = machine.sign(&attest);
        QuoteEvidence { attest: &attest, signature: &signature, pcr_values: &values, event_log }.to_bytes()
    };
    let evidence = Expected { qualifying_data: about, lock: Lock::Open, step: Step::Evidence };
    let with_log = quote(&statement, Some(PLAIN));
    assert_eq!(QuoteEvidence::parse_with_event_log(&with_log).unwrap().to_bytes(), with_log);
    assert!(verifier.check_quote(&keys, &with_log, &evidence).is_ok());
    assert_eq!(verifier.read_pcrs(&keys, &with_log, &about).unwrap().len(), INDICES.len());
    let code = |keys: &HostKeys<'_>, quote: &[u8], expected: &Expected| {
        let refusal = verifier.check_quote(keys, quote, expected).unwrap_err();
        (refusal.code, refusal.detail.split(':').next().unwrap().to_owned())
    };
    // A host whose software does not know logs, and one without a log.
    let old = HostKeys { variant: Variant::Tpm2, ..keys };
    let missing = (protocol::RefusalCode::QuoteMissing, "event-log-missing".to_owned());
    assert_eq!(code(&old, &quote(&statement, None), &evidence), missing);
    assert_eq!(code(&keys, &quote(&statement, Some(&[])), &evidence), missing);
    let other = code(&keys, &quote(&statement, Some(OTHER_COMMAND_LINE)), &evidence);
    assert_eq!(other, (protocol::RefusalCode::Measurement, "event-log-replay".to_owned()));
    for end in (0..with_log.len()).step_by(11) {
        assert_eq!(code(&keys, &with_log[..end], &evidence).0, protocol::RefusalCode::QuoteMalformed, "{end}");
    }

    // Locked: an acknowledgement has the quote alone, a renewal has the log again.
    *statement.values.last_mut().unwrap() = pcr::after_event(Hash::Sha256, &[0; 32], &cluster_id);
    let locked = Expected { qualifying_data: about, lock: Lock::Extended(cluster_id), step: Step::Acknowledgement };
    assert!(verifier.check_quote(&keys, &quote(&statement, None), &locked).is_ok());
    let renewal = Expected { step: Step::Evidence, ..locked };
    assert!(verifier.check_quote(&keys, &quote(&statement, Some(PLAIN)), &renewal).is_ok());
    assert_eq!(code(&keys, &quote(&statement, Some(&[])), &renewal), missing);
}

/// What one image measures, as the log of a boot with it shows.
fn release(log: &[u8]) -> Value {
    let rules = rules(log);
    json!({"images": rules["images"], "commandLines": rules["commandLines"], "initrds": rules["initrds"]})
}

/// What a host that was booted so may be sealed to, by a policy with these releases.
fn admitted(releases: &[Value], log: &[u8], lock: Lock) -> BTreeMap<u8, Vec<Vec<u8>>> {
    let machine = Machine::new();
    let all = |key: &str| -> Vec<Value> {
        releases.iter().flat_map(|release| release[key].as_array().unwrap().clone()).collect()
    };
    let lists = ["images", "commandLines", "initrds"].map(all);
    let rules = json!({"images": lists[0], "commandLines": lists[1], "initrds": lists[2], "releases": releases});
    let mut policy = policy(&machine, &rules);
    policy["localUnlock"] = json!({});
    let verifier = HostVerifier::new(in_force(&policy));
    let (endorsement_key, attestation_key) = (machine.endorsement().bytes(), machine.attestation().bytes());
    let keys = HostKeys {
        variant: Variant::Tpm2EventLog,
        attestation_key: &attestation_key,
        endorsement_key: &endorsement_key,
        endorsement_certificates: &[],
    };
    let mut statement = machine.statement(&[7; 32]);
    statement.selections = vec![(SHA256, INDICES.to_vec())];
    statement.values = Boot::of(log).pcrs(&PHASES);
    if let Lock::Extended(id) = &lock {
        *statement.values.last_mut().unwrap() = pcr::after_event(Hash::Sha256, &[0; 32], id);
    }
    let (attest, pcr_values) = (statement.bytes(), statement.value_bytes());
    let signature = machine.sign(&attest);
    let quote = QuoteEvidence { attest: &attest, signature: &signature, pcr_values: &pcr_values, event_log: Some(log) };
    let expected = Expected { qualifying_data: [7; 32], lock, step: Step::Evidence };
    let claims = verifier.check_quote(&keys, &quote.to_bytes(), &expected).unwrap();
    claims.local_unlock.unwrap().pcrs
}

#[test]
fn a_host_may_be_sealed_to_what_its_machine_will_measure_with_another_release() {
    let value = |log: &[u8], index: u8| {
        let at = INDICES.iter().position(|one| *one == index).unwrap();
        Boot::of(log).pcrs(&PHASES)[at].clone()
    };
    let (old, new) = (release(PLAIN), release(OTHER_COMMAND_LINE));
    assert_ne!(value(PLAIN, 4), value(OTHER_COMMAND_LINE, 4));
    for (booted, other) in [(PLAIN, OTHER_COMMAND_LINE), (OTHER_COMMAND_LINE, PLAIN)] {
        let pcrs = admitted(&[old.clone(), new.clone()], booted, Lock::Open);
        for index in [4, 9] {
            assert_eq!(pcrs[&index], [value(booted, index), value(other, index)], "as the other boot measured");
        }
        assert_eq!(pcrs[&7], [value(booted, 7)]);
        assert_eq!(pcrs[&15], [vec![0; 32]]);
        assert_eq!(pcrs.keys().copied().collect::<Vec<_>>(), [4, 7, 9, 15], "the image's digest covers 11");
    }
    // Without the new release only this boot; behind the lock only what does not depend on the time.
    let alone = admitted(std::slice::from_ref(&old), PLAIN, Lock::Open);
    assert_eq!(alone[&4], [value(PLAIN, 4)]);
    let locked = admitted(&[old.clone(), new.clone()], PLAIN, Lock::Extended([0xc1; 32]));
    assert_eq!((&locked[&4], locked[&7].len()), (&admitted(&[old.clone(), new], PLAIN, Lock::Open)[&4], 0));
    assert_eq!(locked[&15], [vec![0; 32]], "as it is before a lock");
    // A release that has nothing in the place of the kernel is not computed.
    let mut short = release(OTHER_COMMAND_LINE);
    short["images"].as_array_mut().unwrap().truncate(1);
    short["commandLines"] = json!([]);
    assert_eq!(admitted(&[old, short], PLAIN, Lock::Open)[&4], [value(PLAIN, 4)]);
}
