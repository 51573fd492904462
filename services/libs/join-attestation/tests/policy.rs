//! A policy that could not keep any host out keeps every host out.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::collections::BTreeSet;

use configdb_schema::document::{AttestationPolicy, EvidenceVariant};
use join_attestation::{Hash, Policy, RefusalCode};
use serde_json::{Value, json};

const ROOT: &str = include_str!("recorded/root.pem");

fn digest(text: &str) -> String {
    hex::encode(Hash::Sha256.digest(&[text.as_bytes()]))
}

fn good() -> Value {
    json!({"bank": "sha256", "pcrs": {"4": {"expected": [digest("kernel")]}, "14": {"expected": [digest("x")], "warnOnly": true}},
        "lock": {"pcr": 15}, "endorsement": {"require": "both", "manufacturers": [ROOT],
            "enrolled": [{"ek": digest("ek 1"), "host": "a"}, {"ek": digest("ek 2")}], "revoked": [digest("ek 3")]}})
}

/// The error of the good policy with one place changed.
#[track_caller]
fn error(pointer: &str, value: Value) -> String {
    let mut entry = good();
    match entry.pointer_mut(pointer) {
        Some(place) => *place = value,
        None => {
            let (parent, key) = pointer.rsplit_once('/').unwrap();
            entry.pointer_mut(parent).unwrap()[key] = value;
        }
    }
    let entry: AttestationPolicy = serde_json::from_value(entry).unwrap();
    Policy::new(&entry, 1).error().unwrap().to_string()
}

#[test]
fn a_good_policy_says_what_has_to_be_quoted() {
    let entry: AttestationPolicy = serde_json::from_value(good()).unwrap();
    let policy = Policy::new(&entry, 17);
    assert_eq!((policy.error(), policy.revision()), (None, 17));
    assert_eq!(policy.selection(), Some((Hash::Sha256, &BTreeSet::from([4, 14, 15]))));
    assert_eq!(policy.variants(), [EvidenceVariant::Tpm2]);
    assert_eq!(error("/variants", json!([])), "variants: names none: no host could bring evidence");
    let ek: [u8; 32] = hex::decode(digest("ek 1")).unwrap().try_into().unwrap();
    assert_eq!(policy.enrolment(&ek).unwrap().host.as_deref(), Some("a"));
    assert_eq!(policy.enrolled_as("a", uuid::Uuid::nil()), (Some(&ek), None));
    assert!(!policy.is_revoked(&ek) && Policy::missing().variants().is_empty());
    assert_eq!(Policy::missing().selection(), None);
    assert_eq!(Policy::missing().error().unwrap().to_string(), "AttestationPolicy: the cluster has no such entry");
}

#[test]
fn what_a_second_key_is_sealed_to_beside_what_is_judged_is_quoted() {
    let unlocking = |entry: Value| {
        let policy = Policy::new(&serde_json::from_value(entry).unwrap(), 1);
        assert_eq!(policy.error(), None);
        policy.selection().map(|(_, indices)| indices.iter().copied().collect::<Vec<u8>>()).unwrap()
    };
    assert_eq!(unlocking(good()), [4, 14, 15]);
    let mut entry = good();
    entry["localUnlock"] = json!({});
    assert_eq!(unlocking(entry.clone()), [4, 14, 15]);
    entry["localUnlock"] = json!({"pcrs": [0, 4]});
    assert_eq!(unlocking(entry.clone()), [0, 4, 14, 15]);
    entry["boot"] = json!({"images": [digest("image")], "commandLines": [digest("quiet")]});
    entry["localUnlock"] = json!({"pcrs": [12]});
    assert_eq!(unlocking(entry), [0, 1, 2, 3, 4, 5, 6, 7, 9, 11, 12, 14, 15]);
    let of = |pcr: u8| error("/localUnlock", json!({"pcrs": [pcr]}));
    assert_eq!(of(15), "localUnlock.pcrs[0]: is the lock PCR, to which the key is sealed anyway");
    assert_eq!(of(16), "localUnlock.pcrs[0]: 16 is above 15: it can be cleared without a reset");
    let mut first = good();
    first["pcrs"] = json!({"4": {"warnOnly": true}});
    first["endorsement"] = json!({"require": "enrolment"});
    first["localUnlock"] = json!({});
    let policy = Policy::new(&serde_json::from_value(first).unwrap(), 1);
    assert!(policy.error().unwrap().to_string().starts_with("localUnlock: no PCR is enforced yet"));
}

#[test]
fn a_policy_that_judges_by_events_names_what_may_be_loaded() {
    let boot = |boot: Value| {
        let mut entry = good();
        entry["pcrs"] = json!({});
        entry["boot"] = boot;
        entry
    };
    let policy = |entry: Value| Policy::new(&serde_json::from_value(entry).unwrap(), 1);
    let listed = json!({"images": [digest("image")], "commandLines": [digest("quiet")]});
    let judging = policy(boot(listed.clone()));
    assert_eq!((judging.error(), judging.judges_events()), (None, true));
    let quoted = BTreeSet::from([0, 1, 2, 3, 4, 5, 6, 7, 9, 11, 15]);
    assert_eq!(judging.selection(), Some((Hash::Sha256, &quoted)));
    assert!(!policy(good()).judges_events());
    let error = |entry: Value| policy(entry).error().unwrap().to_string();
    let nothing = "boot: names neither images nor, with secureBoot, signers: it would admit any software";
    for rules in [json!({}), json!({"secureBoot": true}), json!({"secureBoot": true, "commandLines": [digest("x")]})] {
        assert_eq!(error(boot(rules)), nothing);
    }
    let unchecked = "boot.signers: says nothing without secureBoot: firmware then checks no signature";
    let release = |key: &str, values: Value| {
        let mut release = json!({"images": [digest("image")], "commandLines": [digest("quiet")]});
        release[key] = values;
        let mut rules = listed.clone();
        rules["releases"] = json!([release]);
        boot(rules)
    };
    assert_eq!(policy(release("initrds", json!([]))).error(), None);
    let of = |key: &str, list: &str| format!("boot.releases[0].{key}[0]: is not listed in boot.{list}");
    for key in ["images", "commandLines", "initrds"] {
        assert_eq!(error(release(key, json!([digest("another")]))), of(key, key));
    }
    let unnamed = "boot.releases[0].images: names none: a release is known by its image";
    assert_eq!(error(release("images", json!([]))), unnamed);
    assert_eq!(error(boot(json!({"signers": [digest("x")], "images": [digest("image")]}))), unchecked);
    let initrds = "boot.initrds: needs commandLines: both are measured into PCR 9";
    assert_eq!(error(boot(json!({"initrds": [digest("x")], "images": [digest("image")]}))), initrds);
    let placeholder = "boot.images[1]: repeats the same bytes: a placeholder, not a measurement";
    assert_eq!(error(boot(json!({"images": [digest("image"), "00".repeat(32)]}))), placeholder);
    let any = "boot.commandLines: names none, and `pcrs` does not enforce PCR 9: any command line and any initrd would do; \
        list what `sparkfleet policy from-image` prints";
    let signed = json!({"secureBoot": true, "signers": [digest("certificate")]});
    for rules in [json!({"images": [digest("image")]}), signed.clone()] {
        let mut pinned = boot(rules);
        assert_eq!(error(pinned.clone()), any);
        // Neither what is only observed nor another PCR is enough.
        pinned["pcrs"] = json!({"9": {"expected": [digest("x")], "warnOnly": true}, "11": {"expected": [digest("x")]}});
        assert_eq!(error(pinned.clone()), any);
        pinned["pcrs"] = json!({"9": {"expected": [digest("x")]}});
        assert_eq!(policy(pinned).error(), None);
    }
    let mut listed_lines = signed;
    listed_lines["commandLines"] = json!([digest("quiet")]);
    assert_eq!(policy(boot(listed_lines)).error(), None);
    let long = "boot.commandLines[0]: has 48 bytes, and a digest of sha256 has 32";
    assert_eq!(error(boot(json!({"images": [digest("image")], "commandLines": ["5a".repeat(48)]}))), long);
    let many: Vec<String> = (0..65).map(|at| digest(&at.to_string())).collect();
    assert_eq!(error(boot(json!({"images": many}))), "boot.images: holds 65, more than 64 values");
    let mut explained = boot(listed.clone());
    explained["lock"]["pcr"] = json!(11);
    assert_eq!(error(explained), "lock.pcr: 11 is one that the event log has to explain: choose another");
    let mut simulated = boot(listed);
    simulated["variants"] = json!(["tpm2", "simulated"]);
    assert!(error(simulated).starts_with("boot: cannot be fulfilled by a simulated host"));
    assert!(serde_json::from_value::<AttestationPolicy>(boot(json!({"dbx": []}))).is_err(), "an unknown key");
}

#[test]
fn pcrs() {
    let nothing = "pcrs: no PCR is enforced: such a policy would admit any software";
    assert_eq!(error("/pcrs", json!({})), nothing);
    assert_eq!(error("/pcrs/4/warnOnly", json!(true)), nothing);
    let without = "pcrs.4.expected: holds no value: a PCR without one can only be observed (warnOnly)";
    assert_eq!(error("/pcrs/4/expected", json!([])), without);
    assert_eq!(error("/pcrs/4", json!({})), without);
    let many = vec![digest("x"); 65];
    assert_eq!(error("/pcrs/4/expected", json!(many)), "pcrs.4.expected: holds 65, more than 64 values");
    assert_eq!(error("/pcrs/24", json!({"expected": [digest("x")]})), "pcrs.24: is not a PCR: 0 to 23");
    assert_eq!(error("/pcrs/04", json!({"expected": [digest("x")]})), "pcrs.04: is not a PCR: 0 to 23");
    let lock = "pcrs.15: is the lock PCR: its values are in `lock`";
    assert_eq!(error("/pcrs/15", json!({"expected": [digest("x")]})), lock);
    assert_eq!(error("/pcrs/4/expected/0", json!("no")), "pcrs.4.expected[0]: is not hexadecimal");
    let short = "pcrs.4.expected[0]: has 2 bytes, and a digest of sha256 has 32";
    assert_eq!(error("/pcrs/4/expected/0", json!("1234")), short);
    assert!(error("/bank", json!("sha384")).ends_with("has 32 bytes, and a digest of sha384 has 48"));
}

#[test]
fn a_pcr_that_is_only_observed_is_quoted_and_enforces_nothing() {
    let mut entry = good();
    entry["pcrs"]["9"] = json!({"warnOnly": true});
    let policy = Policy::new(&serde_json::from_value(entry.clone()).unwrap(), 1);
    assert_eq!(policy.error(), None);
    assert_eq!(policy.selection(), Some((Hash::Sha256, &BTreeSet::from([4, 9, 14, 15]))));
    // Alone it is not a policy, however many there are, as soon as any key could be admitted.
    entry["pcrs"] = json!({"4": {"warnOnly": true}, "9": {"warnOnly": true}});
    let policy = Policy::new(&serde_json::from_value(entry).unwrap(), 1);
    let nothing = "pcrs: no PCR is enforced: such a policy would admit any software";
    assert_eq!(policy.error().unwrap().to_string(), nothing);
    assert_eq!((policy.selection(), policy.variants()), (None, &[][..]));
}

#[test]
fn placeholders_are_not_measurements() {
    for placeholder in
        ["00".repeat(32), "ff".repeat(32), "1234".repeat(16), "deadbeef".repeat(8), "0102030405060708".repeat(4)]
    {
        let rule = "repeats the same bytes: a placeholder, not a measurement";
        assert_eq!(error("/pcrs/4/expected/0", json!(placeholder)), format!("pcrs.4.expected[0]: {rule}"));
        assert_eq!(error("/pcrs/14/expected/0", json!(placeholder)), format!("pcrs.14.expected[0]: {rule}"));
        assert_eq!(error("/lock/after", json!(placeholder)), format!("lock.after: {rule}"));
        assert_eq!(
            error("/endorsement/enrolled/1/ek", json!(placeholder)),
            format!("endorsement.enrolled[1].ek: {rule}")
        );
    }
    assert!(error("/lock/before", json!("ff".repeat(32))).starts_with("lock.before: repeats"));
}

#[test]
fn the_lock() {
    assert_eq!(error("/lock/pcr", json!(16)), "lock.pcr: 16 is above 15: it can be cleared without a reset");
    assert_eq!(error("/lock/before", json!("00")), "lock.before: has 1 bytes, and a digest of sha256 has 32");
    let same = json!({"pcr": 15, "before": digest("x"), "after": digest("x")});
    assert!(error("/lock", same).starts_with("lock.after: is the same as before"));
}

#[test]
fn endorsement() {
    let twice = json!([{"ek": digest("a")}, {"ek": digest("a")}]);
    assert_eq!(error("/endorsement/enrolled", twice), "endorsement.enrolled[1].ek: is enrolled twice");
    let named_twice = json!([{"ek": digest("a"), "host": "h"}, {"ek": digest("b"), "host": "h"}]);
    let text = "endorsement.enrolled[1].host: is the name of two endorsement keys";
    assert_eq!(error("/endorsement/enrolled", named_twice), text);
    let disk = "6c1de0b4-5d0e-4a7b-9a55-3f0f8f2f9a10";
    let disk_twice = json!([{"ek": digest("a"), "disk": disk}, {"ek": digest("b"), "disk": disk}]);
    let text = "endorsement.enrolled[1].disk: is the disk of two endorsement keys";
    assert_eq!(error("/endorsement/enrolled", disk_twice), text);
    let without = "endorsement.require: no host can fulfil it: manufacturers must not be empty";
    assert_eq!(error("/endorsement/manufacturers", json!([])), without);
    assert_eq!(error("/endorsement", json!({"require": "certificate", "enrolled": [{"ek": digest("a")}]})), without);
    assert_eq!(error("/endorsement/manufacturers/0", json!("")), "endorsement.manufacturers[0]: holds no certificate");
    let cut = &ROOT[..200];
    assert_eq!(error("/endorsement/manufacturers/0", json!(cut)), "endorsement.manufacturers[0]: is not PEM");
    let no_certificate = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let text = error("/endorsement/manufacturers/0", json!(no_certificate));
    assert!(text.starts_with("endorsement.manufacturers[0]: is not a certificate of an authority"), "{text}");
}

#[test]
fn no_host_needs_to_be_enrolled_and_a_first_policy_may_only_observe() {
    let of = |pcrs: Value, endorsement: Value| {
        let mut entry = good();
        (entry["pcrs"], entry["endorsement"]) = (pcrs, endorsement);
        Policy::new(&serde_json::from_value(entry).unwrap(), 1)
    };
    let observed = json!({"4": {"warnOnly": true}});
    for endorsement in [json!({"require": "enrolment"}), json!({"require": "either", "revoked": [digest("a")]})] {
        let first = of(observed.clone(), endorsement.clone());
        assert_eq!(first.error(), None, "{endorsement}");
        assert_eq!(first.selection(), Some((Hash::Sha256, &BTreeSet::from([4, 15]))));
        assert_eq!(of(good()["pcrs"].clone(), endorsement.clone()).error(), None);
        assert!(of(json!({}), endorsement).error().unwrap().to_string().starts_with("pcrs: no PCR is enforced"));
    }
    // From the first key on a PCR has to be enforced.
    for endorsement in [
        json!({"require": "enrolment", "enrolled": [{"ek": digest("a")}]}),
        json!({"require": "either", "manufacturers": [ROOT]}),
        json!({"require": "both", "manufacturers": [ROOT]}),
    ] {
        let error = of(observed.clone(), endorsement).error().unwrap().to_string();
        assert_eq!(error, "pcrs: no PCR is enforced: such a policy would admit any software");
    }
}

#[test]
fn every_code_of_a_refusal_is_documented() {
    let documentation = include_str!("../../../../docs/attestation.md");
    for code in RefusalCode::ALL {
        assert!(documentation.contains(&format!("| `{code}` |")), "{code} is not in docs/attestation.md");
    }
}
