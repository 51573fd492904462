//! A policy is believed as it was signed, for the cluster that it was signed for, by a key that may sign, and in no other case.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use configdb_schema::document::{AttestationPolicy, PolicySignature};
use join_attestation::signed::{Claims, SERIAL_JUMP_MAX, SignatureError, follows, sign, verify};
use join_protocol::certificate::{ChainError, IssuerCertificate, SigningKey, TrustAnchor};
use join_protocol::secret::Secret;
use join_protocol::terms::{HostClock, Purpose};
use proptest::prelude::*;
use serde_json::{Value, json};
use uuid::Uuid;

const CLUSTER: Uuid = Uuid::from_u128(0xC1);
const NOW: u64 = 1_800_000_000_000;
const CLAIMS: Claims = Claims { cluster: CLUSTER, serial: 3, not_after_ms: NOW };

fn key(byte: u8) -> SigningKey {
    SigningKey::from_seed(&Secret::new([byte; 32])).unwrap()
}

fn anchor() -> TrustAnchor {
    TrustAnchor { root: key(1).public_key(), cluster: CLUSTER, epoch_min: 2 }
}

fn certificate(of: u8, by: u8, change: impl FnOnce(&mut IssuerCertificate)) -> Vec<u8> {
    let mut certificate = IssuerCertificate {
        public_key: key(of).public_key(),
        purpose: Purpose::PolicySigner,
        cluster: CLUSTER,
        not_before_ms: 0,
        not_after_ms: NOW + 1,
        epoch: 2,
    };
    change(&mut certificate);
    certificate.sign(&key(by))
}

fn policy(hosts: &[String]) -> AttestationPolicy {
    let enrolled: Vec<Value> = hosts.iter().map(|host| json!({"ek": "ab".repeat(32), "host": host})).collect();
    serde_json::from_value(
        json!({"bank": "sha256", "pcrs": {"4": {"expected": ["00".repeat(32)]}, "11": {"expected": ["11".repeat(32)]}},
        "lock": {"pcr": 15}, "endorsement": {"require": "either", "enrolled": enrolled}}),
    )
    .unwrap()
}

fn signed(claims: &Claims) -> AttestationPolicy {
    sign(&policy(&["a".to_owned()]), claims, &key(2), &[certificate(2, 1, |_| {})])
}

fn judged(policy: &AttestationPolicy) -> Result<Claims, SignatureError> {
    verify(policy, &anchor(), HostClock::Trusted(NOW))
}

fn with(change: impl FnOnce(&mut PolicySignature)) -> Result<Claims, SignatureError> {
    let mut policy = signed(&CLAIMS);
    change(policy.signature.as_mut().unwrap());
    judged(&policy)
}

#[test]
fn what_is_signed_is_believed_until_its_end_and_what_was_taken_over_for_ever() {
    assert_eq!(judged(&signed(&CLAIMS)), Ok(CLAIMS));
    let ended = signed(&Claims { not_after_ms: NOW - 1, ..CLAIMS });
    assert_eq!(judged(&ended), Err(SignatureError::Ended));
    assert!(verify(&ended, &anchor(), HostClock::Unset).is_ok());
    assert_eq!(judged(&policy(&[])), Err(SignatureError::Missing));
}

#[test]
fn a_signer_without_authority_is_not_believed() {
    let by = |of: u8, chain: &[Vec<u8>]| judged(&sign(&policy(&[]), &CLAIMS, &key(of), chain));
    let refused = |change: fn(&mut IssuerCertificate)| by(2, &[certificate(2, 1, change)]).unwrap_err();
    assert_eq!(by(2, &[]), Err(SignatureError::Signer(ChainError::Empty)));
    assert_eq!(by(2, &[certificate(2, 9, |_| {})]), Err(SignatureError::Signer(ChainError::Signature)));
    assert_eq!(by(3, &[certificate(2, 1, |_| {})]), Err(SignatureError::Value));
    // The key of a join service, which lies in its cluster, and that of an administrator are for something else.
    for purpose in [Purpose::JoinIssuer, Purpose::ClusterAdmin, Purpose::Authority] {
        let chain = [certificate(2, 1, |certificate| certificate.purpose = purpose)];
        let wanted = ChainError::Purpose { found: purpose, wanted: Purpose::PolicySigner };
        assert_eq!(by(2, &chain), Err(SignatureError::Signer(wanted)));
    }
    assert!(matches!(refused(|c| c.cluster = Uuid::nil()), SignatureError::Signer(ChainError::Cluster { .. })));
    assert!(matches!(refused(|c| c.epoch = 1), SignatureError::Signer(ChainError::Epoch { .. })));
    assert_eq!(refused(|c| c.not_after_ms = NOW - 1), SignatureError::Signer(ChainError::Time));
}

#[test]
fn no_part_of_the_signature_can_be_changed() {
    assert_eq!(with(|s| s.serial = 4), Err(SignatureError::Value));
    assert_eq!(with(|s| s.not_after_ms += 1), Err(SignatureError::Value));
    assert!(matches!(with(|s| s.cluster = Uuid::nil()), Err(SignatureError::Cluster { .. })));
    assert!(matches!(with(|s| s.serial = 0), Err(SignatureError::Malformed { field: "serial", .. })));
    assert!(matches!(with(|s| s.value.push('0')), Err(SignatureError::Malformed { field: "value", .. })));
    let error = with(|s| s.certificates[0].push('x')).unwrap_err();
    assert!(error.to_string().starts_with("signature.certificates must"), "{error}");
}

/// The text with members in another order, blanks, and letters written otherwise.
fn written_otherwise(value: &Value, seed: u64) -> String {
    match value {
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            let at = usize::try_from(seed).unwrap() % members.len().max(1);
            members.rotate_left(at);
            let inner: Vec<_> = members
                .into_iter()
                .map(|(name, value)| format!(" \"{name}\" : {}", written_otherwise(value, seed)))
                .collect();
            format!("{{{}\n}}", inner.join(","))
        }
        Value::Array(items) => {
            let inner: Vec<_> = items.iter().map(|item| written_otherwise(item, seed)).collect();
            format!("[{} ]", inner.join(" , "))
        }
        Value::String(text) => {
            format!("\"{}\"", text.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect::<String>())
        }
        other => other.to_string(),
    }
}

proptest! {
    #[test]
    fn however_it_is_written_down_it_is_the_same_policy(hosts in proptest::collection::vec("\\PC{0,12}", 0..5), seed in 0_u64..100) {
        let signed = sign(&policy(&hosts), &CLAIMS, &key(2), &[certificate(2, 1, |_| {})]);
        let text = written_otherwise(&serde_json::to_value(&signed).unwrap(), seed);
        let read: AttestationPolicy = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(judged(&read), Ok(CLAIMS));
    }

    #[test]
    fn every_other_policy_is_refused(hosts in proptest::collection::vec("[a-c]{0,2}", 0..4), others in proptest::collection::vec("[a-c]{0,2}", 0..4)) {
        let signed = sign(&policy(&hosts), &CLAIMS, &key(2), &[certificate(2, 1, |_| {})]);
        let forged = AttestationPolicy { signature: signed.signature, ..policy(&others) };
        prop_assert_eq!(judged(&forged), if hosts == others { Ok(CLAIMS) } else { Err(SignatureError::Value) });
    }

    #[test]
    fn a_changed_bit_is_noticed(byte in 0_usize..64, bit in 0_u8..8) {
        let refused = with(|signature| {
            let mut value = hex::decode(&signature.value).unwrap();
            value[byte] ^= 1 << bit;
            signature.value = hex::encode(value);
        });
        prop_assert_eq!(refused, Err(SignatureError::Value));
    }

    #[test]
    fn serial_numbers_grow_by_a_bounded_step(last in any::<u64>(), found in any::<u64>()) {
        let follows = follows(found, last).is_ok();
        prop_assert_eq!(follows, found > last && found - last <= SERIAL_JUMP_MAX);
    }

    #[test]
    fn no_policy_that_is_taken_over_locks_the_next_one_out(last in 0..u64::MAX - SERIAL_JUMP_MAX, step in 1..=SERIAL_JUMP_MAX) {
        prop_assert!(follows(last + step, last).is_ok());
        prop_assert!(last + step == u64::MAX || follows(last + step + 1, last + step).is_ok());
    }
}
