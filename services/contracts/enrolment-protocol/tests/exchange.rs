//! Both sides with each other, and with an attacker between them who changes, swaps and repeats messages.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use enrolment_protocol::MessageError;
use enrolment_protocol::cluster::{Draft, Grant, Predecessor, RenewalDraft, Request, Seed};
use enrolment_protocol::identity::{IdentityKey, IdentityKeyPair, ProofKind};
use enrolment_protocol::refusal::{Refusal, RefusalCode};
use enrolment_protocol::token::Token;
use join_protocol::secret::SecretBytes;
use uuid::Uuid;

const CLUSTER: Uuid = Uuid::from_u128(0xc1);

fn key() -> EcdsaKeyPair {
    EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap()
}

fn ask(key: &EcdsaKeyPair, signer: &EcdsaKeyPair, identity: &IdentityKey, seed: u8) -> Request {
    let (token, seed) = (Token::new([1; 32]), Seed::new([seed; 32]));
    let draft = Draft::new(CLUSTER, &token, key.public_key().as_ref().try_into().unwrap(), identity, &seed);
    let signature = signer.sign(&SystemRandom::new(), &draft.to_sign()).unwrap();
    draft.seal(signature.as_ref().try_into().unwrap()).unwrap()
}

fn grant() -> Grant {
    Grant {
        certificate: vec![1, 2],
        authorities: vec![vec![3], vec![4]],
        git_username: CLUSTER.to_string(),
        git_password: SecretBytes::from("hush"),
    }
}

#[test]
fn a_granted_request_ends_with_the_grant_and_a_refused_one_with_the_reason() {
    let (identity, key) = (IdentityKeyPair::new([9; 32]), key());
    let request = ask(&key, &key, &identity.public(), 2);
    let opened = identity.open(CLUSTER, &request.bytes).unwrap();
    assert_eq!((opened.cluster, &opened.public_key[..]), (CLUSTER, key.public_key().as_ref()));
    assert_eq!(opened.by, ProofKind::Token(Token::new([1; 32]).hash()));
    let refusal = Refusal { code: RefusalCode::TokenExpired, text: "ask for another".to_owned() };
    for answer in [Ok(grant()), Err(refusal)] {
        let bytes = identity.answer(&opened, &answer).unwrap();
        assert_eq!(identity.answer(&opened, &answer).unwrap(), bytes, "the same answer to the same request");
        assert_eq!(request.open(&bytes).unwrap(), answer);
    }
    assert!(!format!("{opened:?} {request:?} {identity:?} {:?}", grant()).contains("hush"));
}

#[test]
fn a_long_reason_is_cut_between_characters() {
    let (identity, key) = (IdentityKeyPair::new([9; 32]), key());
    let request = ask(&key, &key, &identity.public(), 2);
    let opened = identity.open(CLUSTER, &request.bytes).unwrap();
    let long = Refusal { code: RefusalCode::Other(77), text: format!("x{}", "é".repeat(2_000)) };
    let received = request.open(&identity.answer(&opened, &Err(long)).unwrap()).unwrap().unwrap_err();
    assert_eq!((received.code, received.text.len()), (RefusalCode::Other(77), 1023));
}

#[test]
fn only_the_pinned_identity_opens_a_request_and_only_for_its_cluster() {
    let (identity, other, key) = (IdentityKeyPair::new([9; 32]), IdentityKeyPair::new([8; 32]), key());
    let request = ask(&key, &key, &identity.public(), 2);
    assert_eq!(other.open(CLUSTER, &request.bytes).unwrap_err(), MessageError::Sealed("request"));
    // Published by the node of another cluster.
    assert_eq!(identity.open(Uuid::from_u128(0xc2), &request.bytes).unwrap_err(), MessageError::Sealed("request"));
    for at in (0..request.bytes.len()).step_by(61) {
        let mut changed = request.bytes.clone();
        changed[at] ^= 1;
        assert!(identity.open(CLUSTER, &changed).is_err(), "{at}");
    }
    assert!(identity.open(CLUSTER, &[]).is_err() && identity.open(CLUSTER, &[0; 40_000]).is_err());
}

#[test]
fn a_key_that_did_not_sign_is_not_certified() {
    let identity = IdentityKeyPair::new([9; 32]);
    let request = ask(&key(), &key(), &identity.public(), 2);
    let error = identity.open(CLUSTER, &request.bytes).unwrap_err();
    assert!(matches!(error, MessageError::Field { field: "signature", .. }), "{error}");
}

#[test]
fn an_answer_is_believed_only_to_its_request_and_unchanged() {
    let (identity, key) = (IdentityKeyPair::new([9; 32]), key());
    let (first, second) = (ask(&key, &key, &identity.public(), 2), ask(&key, &key, &identity.public(), 3));
    let opened = identity.open(CLUSTER, &first.bytes).unwrap();
    let bytes = identity.answer(&opened, &Ok(grant())).unwrap();
    assert_eq!(second.open(&bytes).unwrap_err(), MessageError::Foreign("answer"));
    for at in (0..bytes.len()).step_by(61) {
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        assert!(first.open(&changed).is_err(), "{at}");
    }
}

#[test]
fn identitys_key_is_read_as_it_is_written() {
    let key = IdentityKeyPair::new([9; 32]).public();
    assert_eq!(key.to_string().parse(), Ok(key.clone()));
    for bad in ["", "AAAA", &key.to_string()[1..]] {
        assert!(bad.parse::<IdentityKey>().is_err(), "{bad}");
    }
}

#[test]
fn serial_numbers_follow_from_what_they_are_for() {
    let identity = IdentityKeyPair::new([9; 32]);
    let one = identity.serial(CLUSTER, "ab", 0, 0);
    assert_eq!(identity.serial(CLUSTER, "ab", 0, 0), one);
    let others = [
        identity.serial(CLUSTER, "ab", 1, 0),
        identity.serial(CLUSTER, "ab", 0, 1),
        identity.serial(CLUSTER, "cd", 0, 0),
    ];
    assert!(others.iter().all(|other| *other != one) && one[0] & 0xc0 == 0x40);
}

fn point(key: &EcdsaKeyPair) -> [u8; 65] {
    key.public_key().as_ref().try_into().unwrap()
}

fn sign(key: &EcdsaKeyPair, bytes: &[u8]) -> [u8; 64] {
    key.sign(&SystemRandom::new(), bytes).unwrap().as_ref().try_into().unwrap()
}

/// A renewal from `old` to `new`, the former's part signed by `signer`.
fn renew(old: &EcdsaKeyPair, new: &EcdsaKeyPair, signer: &EcdsaKeyPair, identity: &IdentityKey) -> Request {
    let (seed, predecessor) = (Seed::new([7; 32]), Predecessor { serial: vec![0x4a, 1], public_key: point(old) });
    let draft = RenewalDraft::new(CLUSTER, &predecessor, point(new), identity, &seed);
    let hash = draft.to_sign();
    draft.seal(sign(new, &hash), sign(signer, &hash)).unwrap()
}

#[test]
fn a_renewal_is_asked_by_the_key_of_the_certificate_and_answered_like_an_enrolment() {
    let (identity, old, new) = (IdentityKeyPair::new([9; 32]), key(), key());
    let request = renew(&old, &new, &old, &identity.public());
    let opened = identity.open(CLUSTER, &request.bytes).unwrap();
    assert_eq!(opened.public_key, point(&new));
    let ProofKind::Certificate { serial, key } = &opened.by else { panic!("{opened:?}") };
    assert_eq!((serial.as_str(), key.len()), ("4a01", 64));
    assert_ne!(*key, opened.key_hash());
    let bytes = identity.answer(&opened, &Ok(grant())).unwrap();
    assert_eq!(request.open(&bytes).unwrap(), Ok(grant()));
}

#[test]
fn only_the_key_of_the_certificate_renews_it_and_only_into_another_key() {
    let (identity, old, new, thief) = (IdentityKeyPair::new([9; 32]), key(), key(), key());
    let refused = |request: Request, refused: &str| {
        let error = identity.open(CLUSTER, &request.bytes).unwrap_err();
        assert!(matches!(error, MessageError::Field { field, .. } if field == refused), "{error}");
    };
    refused(renew(&old, &new, &thief, &identity.public()), "signature");
    refused(renew(&old, &new, &new, &identity.public()), "signature");
    refused(renew(&old, &old, &old, &identity.public()), "public_key");
    // To another Identity, and by the node of another cluster.
    let request = renew(&old, &new, &old, &IdentityKeyPair::new([8; 32]).public());
    assert_eq!(identity.open(CLUSTER, &request.bytes).unwrap_err(), MessageError::Sealed("request"));
    let request = renew(&old, &new, &old, &identity.public());
    assert_eq!(identity.open(Uuid::from_u128(0xc2), &request.bytes).unwrap_err(), MessageError::Sealed("request"));
}

#[test]
fn what_was_signed_for_one_renewal_is_of_no_use_in_another() {
    let (identity, old, new, other) = (IdentityKeyPair::new([9; 32]), key(), key(), key());
    let predecessor = Predecessor { serial: vec![0x4a, 1], public_key: point(&old) };
    let (seed, public) = (Seed::new([7; 32]), identity.public());
    let hash = RenewalDraft::new(CLUSTER, &predecessor, point(&new), &public, &seed).to_sign();
    let theirs = sign(&old, &hash);
    // Another key, another serial number, another seed, another Identity: each with the signature that was overheard.
    let serial = Predecessor { serial: vec![0x4a, 2], ..predecessor.clone() };
    let (second, apart) = (Seed::new([6; 32]), IdentityKeyPair::new([8; 32]));
    let elsewhere = apart.public();
    for (identity, public, predecessor, key, seed) in [
        (&identity, &public, &predecessor, &other, &seed),
        (&identity, &public, &serial, &new, &seed),
        (&identity, &public, &predecessor, &new, &second),
        (&apart, &elsewhere, &predecessor, &new, &seed),
    ] {
        let draft = RenewalDraft::new(CLUSTER, predecessor, point(key), public, seed);
        let own = sign(key, &draft.to_sign());
        let error = identity.open(CLUSTER, &draft.seal(own, theirs).unwrap().bytes).unwrap_err();
        assert!(matches!(error, MessageError::Field { message: "renewal", field: "signature", .. }), "{error}");
    }
}
