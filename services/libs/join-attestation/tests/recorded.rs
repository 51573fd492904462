//! Evidence of one host that a real TPM made (see `real_tpm.rs`), and what became of it when bytes were changed. No bytes whatever make the parsers panic.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::time::Duration;

use configdb_schema::document::AttestationPolicy;
use join_attestation::attest::{Quote, Signature};
use join_attestation::{KeyEvidence, Phase, Policy, Public, QuoteEvidence, Seed, Verdict, judge, judge_keys, pcr};
use proptest::prelude::*;
use serde_json::json;

macro_rules! recorded {
    ($($name:ident $file:literal;)*) => {
        $(const $name: &[u8] = include_bytes!(concat!("recorded/", $file));)*
    };
}
recorded! {
    ENDORSEMENT "endorsement.public";
    CERTIFICATE "endorsement.der";
    ISSUER "issuer.der";
    ATTESTATION "attestation.public";
    ATTEST "quote.attest";
    SIGNATURE "quote.signature";
    VALUES "quote.values";
    ID_OBJECT "credential.id_object";
    ENCRYPTED_SECRET "credential.encrypted_secret";
}
const ROOT: &str = include_str!("recorded/root.pem");

/// Some time after the certificates were made, which is part of the record.
const NOW: Duration = Duration::from_secs(1_800_000_000);
const INDICES: [u8; 9] = [0, 2, 4, 7, 8, 9, 11, 14, 15];

fn policy() -> Policy {
    let values = pcr::parse_digests(VALUES).unwrap();
    let pcrs = INDICES.iter().zip(values).filter(|(index, _)| **index < 15);
    let pcrs: serde_json::Map<String, serde_json::Value> =
        pcrs.map(|(index, value)| (index.to_string(), json!({"expected": [hex::encode(value)]}))).collect();
    let entry = json!({"bank": "sha256", "pcrs": pcrs, "lock": {"pcr": 15},
        "endorsement": {"require": "certificate", "manufacturers": [ROOT]}});
    let entry: AttestationPolicy = serde_json::from_value(entry).unwrap();
    Policy::new(&entry, 3)
}

#[derive(Clone, Copy)]
struct Evidence<'a> {
    endorsement: &'a [u8],
    certificate: &'a [u8],
    issuer: &'a [u8],
    attestation: &'a [u8],
    attest: &'a [u8],
    signature: &'a [u8],
    values: &'a [u8],
}

const RECORDED: Evidence<'static> = Evidence {
    endorsement: ENDORSEMENT,
    certificate: CERTIFICATE,
    issuer: ISSUER,
    attestation: ATTESTATION,
    attest: ATTEST,
    signature: SIGNATURE,
    values: VALUES,
};

fn verdict(evidence: Evidence<'_>) -> Verdict {
    let keys = KeyEvidence {
        endorsement: evidence.endorsement,
        certificate: Some(evidence.certificate),
        intermediates: &[evidence.issuer],
        attestation: evidence.attestation,
    };
    let quote = QuoteEvidence {
        attest: evidence.attest,
        signature: evidence.signature,
        pcr_values: evidence.values,
        event_log: None,
    };
    judge(&policy(), &keys, Some(&quote), b"recorded", Phase::Joining, NOW)
}

#[test]
fn the_recorded_host_is_admitted() {
    let verified = verdict(RECORDED).outcome.unwrap();
    assert!(verified.keys.certified);
    assert_eq!(verified.pcrs.len(), INDICES.len());
    assert_eq!(Public::parse(ENDORSEMENT).unwrap().to_bytes(), ENDORSEMENT);
}

#[test]
fn credentials_for_the_recorded_keys_are_the_same_for_ever() {
    let keys = KeyEvidence {
        endorsement: ENDORSEMENT,
        certificate: Some(CERTIFICATE),
        intermediates: &[ISSUER],
        attestation: ATTESTATION,
    };
    let keys = judge_keys(&policy(), &keys, NOW).unwrap();
    let credential = keys.credential(&[7; 32], &Seed::new([1; 32])).unwrap();
    // A replica of another version has to make the same bytes: these were opened by the TPM that the keys are of.
    assert_eq!(credential.id_object, ID_OBJECT);
    assert_eq!(credential.encrypted_secret, ENCRYPTED_SECRET);
    let other = keys.credential(&[7; 32], &Seed::new([2; 32])).unwrap();
    assert_ne!(other, credential);
    assert!(keys.credential(&[], &Seed::new([1; 32])).is_err());
    let error = keys.credential(&[7; 33], &Seed::new([1; 32])).unwrap_err();
    assert_eq!(error.to_string(), "secret has 33 bytes, and 1 to 32 are allowed");
    assert_eq!(format!("{:?}", Seed::new([1; 32])), "Seed(..)");
}

#[test]
fn no_changed_byte_of_quote_signature_or_values_is_admitted() {
    for at in 0..ATTEST.len().max(SIGNATURE.len()).max(VALUES.len()) {
        for bit in [1, 0x80] {
            let change = |bytes: &[u8]| {
                let mut changed = bytes.to_vec();
                let place = at % bytes.len();
                changed[place] ^= bit;
                changed
            };
            assert!(verdict(Evidence { attest: &change(ATTEST), ..RECORDED }).outcome.is_err(), "attest {at}");
            assert!(verdict(Evidence { signature: &change(SIGNATURE), ..RECORDED }).outcome.is_err(), "signature {at}");
            assert!(verdict(Evidence { values: &change(VALUES), ..RECORDED }).outcome.is_err(), "values {at}");
            assert!(verdict(Evidence { attestation: &change(ATTESTATION), ..RECORDED }).outcome.is_err(), "ak {at}");
            assert!(verdict(Evidence { endorsement: &change(ENDORSEMENT), ..RECORDED }).outcome.is_err(), "ek {at}");
        }
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..1200)) {
        let _ = Public::parse(&bytes);
        let _ = Quote::parse(&bytes);
        let _ = Signature::parse(&bytes);
        let _ = pcr::parse_digests(&bytes);
        for evidence in [
            Evidence { endorsement: &bytes, ..RECORDED },
            Evidence { certificate: &bytes, ..RECORDED },
            Evidence { attestation: &bytes, ..RECORDED },
            Evidence { attest: &bytes, ..RECORDED },
            Evidence { signature: &bytes, ..RECORDED },
            Evidence { values: &bytes, ..RECORDED },
        ] {
            prop_assert!(verdict(evidence).outcome.is_err());
        }
        // The issuer alone may be nonsense where no certificate needs it; here one does.
        let judged = verdict(Evidence { issuer: &bytes, ..RECORDED });
        prop_assert!(judged.outcome.is_err());
    }

    #[test]
    fn bytes_spliced_into_true_evidence_never_panic_and_admit_no_host(
        field in 0_usize..6,
        at in any::<proptest::sample::Index>(),
        spliced in proptest::collection::vec(any::<u8>(), 1..40),
        removed in 0_usize..40,
    ) {
        let fields = [ENDORSEMENT, CERTIFICATE, ATTESTATION, ATTEST, SIGNATURE, VALUES];
        let original = fields[field];
        let start = at.index(original.len());
        let end = (start + removed).min(original.len());
        let changed = [&original[..start], &spliced, &original[end..]].concat();
        prop_assume!(changed != original);
        let mut evidence = RECORDED;
        match field {
            0 => evidence.endorsement = &changed,
            1 => evidence.certificate = &changed,
            2 => evidence.attestation = &changed,
            3 => evidence.attest = &changed,
            4 => evidence.signature = &changed,
            _ => evidence.values = &changed,
        }
        prop_assert!(verdict(evidence).outcome.is_err());
    }
}
