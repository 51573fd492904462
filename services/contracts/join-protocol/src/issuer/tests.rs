//! What only a host that is not ours would send: evidence with a good proof around a body that breaks a rule.

use std::sync::Arc;

use super::*;
use crate::attestation::Verifier;
use crate::certificate::{IssuerCertificate, SigningKey, TrustAnchor};
use crate::host::{HelloSent, HostSettings};
use crate::message::challenge::{Challenge, ChallengeBody};
use crate::message::evidence::{Evidence, EvidenceBody, EvidenceContent};
use crate::message::grant::Grant;
use crate::message::ticket::TicketPayload;
use crate::refusal::RefusalCode;
use crate::seal::{Binding, KeyPair, seal};
use crate::secret::{Entropy, Secret};
use crate::simulated::{SimulatedTpm, SimulatedVerifier};
use crate::terms::{Address, HostClock, Purpose, Role};
use crate::transcript;

const CLUSTER: Uuid = Uuid::from_u128(1);

fn issuer() -> (Issuer, TrustAnchor) {
    let (root, key) = (SigningKey::from_seed(&Secret::new([1; 32])).unwrap(), Secret::new([2; 32]));
    let key = SigningKey::from_seed(&key).unwrap();
    let (public_key, purpose, cluster) = (key.public_key(), Purpose::JoinIssuer, CLUSTER);
    let certificate =
        IssuerCertificate { public_key, purpose, cluster, not_before_ms: 0, not_after_ms: u64::MAX, epoch: 0 };
    let chain = vec![certificate.sign(&root)];
    let policy = IssuerPolicy {
        locked_to: None,
        cluster: CLUSTER,
        group: "G".to_owned(),
        kinds: vec![Kind::Join],
        suites: vec![Suite::X25519],
        variants: vec![Variant::Simulated],
        policy_epoch: 1,
    };
    let keys = IssuerKeys::new((1, &Secret::new([3; 32])), None);
    (Issuer::new(policy, keys, key, chain), TrustAnchor { root: root.public_key(), cluster: CLUSTER, epoch_min: 0 })
}

fn settings(tpm: &SimulatedTpm, anchor: TrustAnchor) -> HostSettings {
    let disk = Uuid::from_u128(9);
    HostSettings {
        address: Address::of_disk("G", disk),
        disk,
        kind: Kind::Join,
        role: Role::Worker,
        suites: vec![Suite::X25519],
        variant: Variant::Simulated,
        attestation_key: tpm.attestation_key(),
        endorsement_key: tpm.endorsement_key(),
        endorsement_certificates: Vec::new(),
        lock_pcr: 15,
        body: EvidenceBody::default(),
        anchor,
    }
}

fn judge_body(body: Vec<u8>, quote: Vec<u8>, verifier: &dyn Verifier) -> EvidenceAnswer {
    let (issuer, anchor) = issuer();
    let tpm = SimulatedTpm::new(&Secret::new([4; 32])).unwrap();
    let settings = settings(&tpm, anchor);
    let address = settings.address.clone();
    let hello = HelloSent::new(Arc::new(settings), &Entropy::new([5; 32])).unwrap();
    let answer = issuer.on_hello(&address, hello.message(), 1_000, Entropy::new([6; 32]), verifier);
    let HelloAnswer::Challenge { request, message: challenge } = answer else { panic!("{answer:?}") };
    let (hello_message, th1) = (hello.message().to_vec(), transcript::after_hello(hello.message()));
    let challenged = hello.on_challenge(&challenge, HostClock::Unset).unwrap();
    let secret = tpm.activate_credential(challenged.credential()).unwrap();
    let th2 = transcript::after_challenge(&th1, &challenge);
    let challenge_body = ChallengeBody::decode(&Challenge::decode(&challenge).unwrap().body).unwrap();
    let host_key = KeyPair::derive(Suite::X25519, &Secret::new([7; 32])).public;
    let proof = secret.mac(&transcript::proof_input(&th2, &host_key, &body, &quote));
    let content = EvidenceContent { host_key, body, quote, proof }.encode();
    let additional_data = transcript::additional_data(&address, request);
    let binding = Binding { info: transcript::evidence_info(&th2), additional_data, psk: None };
    let sealed = seal(Suite::X25519, &challenge_body.issuer_key, &content, &binding, Secret::new([8; 32])).unwrap();
    let (encapsulated_key, ciphertext) = (sealed.encapsulated_key, sealed.ciphertext);
    let evidence = Evidence { request, hello: hello_message, challenge, encapsulated_key, ciphertext };
    issuer.on_evidence(&address, &evidence.encode(), 2_000, verifier)
}

fn rejected(answer: EvidenceAnswer) -> Refusal {
    match answer {
        EvidenceAnswer::Rejected(rejected) => rejected.refusal,
        other => panic!("not rejected: {other:?}"),
    }
}

#[test]
fn a_body_that_breaks_a_rule_is_refused_under_seal_before_anything_else_is_looked_at() {
    let verifier = SimulatedVerifier { enrolled: Some([].into()), ..Default::default() };
    let bad = EvidenceBody { node_name: "../etcd".to_owned(), ..Default::default() };
    let refusal = rejected(judge_body(bad.encode(), Vec::new(), &verifier));
    assert_eq!(refusal.code, RefusalCode::BodyInvalid);
    assert!(refusal.detail.starts_with("evidence body.node_name is not an RFC 1123 subdomain"), "{refusal}");
    assert_eq!(rejected(judge_body(vec![0xFF], Vec::new(), &verifier)).detail, "evidence body is malformed");
}

#[test]
fn the_first_check_that_fails_decides_and_the_dearest_come_last() {
    let good = EvidenceBody::default().encode();
    let unknown = SimulatedVerifier { enrolled: Some([].into()), ..Default::default() };
    let code = |body: &[u8], quote: &[u8], verifier| rejected(judge_body(body.to_vec(), quote.to_vec(), verifier)).code;
    assert_eq!(code(&[0xFF], b"", &unknown), RefusalCode::BodyInvalid);
    assert_eq!(code(&good, b"", &unknown), RefusalCode::QuoteMissing);
    assert_eq!(code(&good, b"quote", &unknown), RefusalCode::EndorsementUnknown);
    assert_eq!(code(&good, b"quote", &SimulatedVerifier::default()), RefusalCode::QuoteMalformed);
}

#[test]
fn a_host_takes_no_ticket_of_another_kind_even_from_its_issuer() {
    let (issuer, anchor) = issuer();
    let tpm = SimulatedTpm::new(&Secret::new([4; 32])).unwrap();
    let settings = settings(&tpm, anchor);
    let (address, verifier) = (settings.address.clone(), SimulatedVerifier::default());
    let hello = HelloSent::new(Arc::new(settings), &Entropy::new([5; 32])).unwrap();
    let answer = issuer.on_hello(&address, hello.message(), 1_000, Entropy::new([6; 32]), &verifier);
    let HelloAnswer::Challenge { message, .. } = answer else { panic!("{answer:?}") };
    let challenged = hello.on_challenge(&message, HostClock::Unset).unwrap();
    let secret = tpm.activate_credential(challenged.credential()).unwrap();
    let quoting = challenged.on_credential_activated(secret, &Entropy::new([7; 32]));
    let quote = tpm.quote(&quoting.qualifying_data());
    let evidence = quoting.on_quoted(quote, &Entropy::new([8; 32])).unwrap();
    let answer = issuer.on_evidence(&address, evidence.message(), 2_000, &verifier);
    let EvidenceAnswer::Verified(verified) = answer else { panic!("{answer:?}") };
    let secret = |byte| Secret::new([byte; 32]);
    let (disk_key, measurement_secret, measurement_salt) = (secret(1), secret(2), secret(3));
    let rejoin =
        Grant { disk_key, measurement_secret, measurement_salt, membership: None, setup: None, local_unlock: None };
    assert!(issuer.grant(&verified, rejoin.clone(), Entropy::new([9; 32])).is_err());
    let forced = issuer
        .seal_answer(verified.recipient(), Ok(TicketPayload::Grant(Box::new(rejoin))), Some(Entropy::new([9; 32])))
        .unwrap();
    let error = evidence.on_ticket(&forced.message, HostClock::Unset).unwrap_err().error;
    assert_eq!(error.to_string(), "grant.membership is missing for join");
}
