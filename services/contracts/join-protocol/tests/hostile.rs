//! What an attacker tries: between host and issuer, as a host, as an issuer. Each case names the exact answer. docs/join-protocol.md has the table.

#![allow(clippy::unwrap_used, reason = "the lint exempts test functions, not their helpers")]

use crate::support;

use join_protocol::attestation::Claims;
use join_protocol::certificate::{ChainError, TrustAnchor};
use join_protocol::host::attempt::{ChallengeError, TicketError};
use join_protocol::issuer::{EvidenceAnswer, HelloAnswer, Ignored, Issuer, IssuerPolicy, MemberError};
use join_protocol::limits::{CHALLENGE_LIFETIME_MS, EVIDENCE_BYTES_MAX};
use join_protocol::message::WireError;
use join_protocol::message::challenge::{Challenge, ChallengeBody, ClearRefusal};
use join_protocol::message::evidence::Evidence;
use join_protocol::message::hello::Hello;
use join_protocol::message::ticket::{Ticket, TicketBody};
use join_protocol::refusal::{Refusal, RefusalCode};
use join_protocol::selection::{Bank, Selection, SelectionError};
use join_protocol::simulated::{BANK, LOCK_PCR, SimulatedTpm, SimulatedVerifier};
use join_protocol::terms::{Address, HostClock, Kind, Purpose, Role, Suite, Variant};
use join_protocol::transcript;
use support::*;
use uuid::Uuid;

/// The refusal under seal that the evidence gets, and that the host reads out of it.
fn refusal_of(
    issuer: &Issuer,
    host: &Host,
    quote: impl FnOnce(&SimulatedTpm, &[u8; 32]) -> Vec<u8>,
    verifier: &SimulatedVerifier,
) -> Refusal {
    let evidence = host.evidence_with(issuer, quote);
    let EvidenceAnswer::Rejected(rejected) = judge(issuer, host, evidence.message(), verifier) else {
        panic!("not rejected");
    };
    let answer = issuer.refuse(rejected.recipient(), rejected.refusal.clone()).unwrap();
    assert_eq!(refused(evidence, &answer.message), rejected.refusal, "the host reads what the issuer decided");
    rejected.refusal
}

fn ignored(answer: EvidenceAnswer) -> Ignored {
    match answer {
        EvidenceAnswer::Ignored(ignored) => ignored,
        other => panic!("not ignored: {other:?}"),
    }
}

fn accepting() -> SimulatedVerifier {
    SimulatedVerifier::default()
}

// ---- The host, or an attacker in its place

#[test]
fn no_quote() {
    let refusal = refusal_of(&replica(1), &host(1), |_, _| Vec::new(), &accepting());
    assert_eq!(refusal.to_string(), "quote-missing: there is no quote");
}

#[test]
fn quote_about_an_older_challenge() {
    let refusal = refusal_of(&replica(1), &host(1), |tpm, _| tpm.quote(&[7; 32]), &accepting());
    assert_eq!(refusal.to_string(), "quote-qualifying-data: the quote is about something else than this request");
}

#[test]
fn quote_of_another_tpm() {
    let other = SimulatedTpm::new(&secret(99)).unwrap();
    let refusal = refusal_of(&replica(1), &host(1), |_, data| other.quote(data), &accepting());
    assert_eq!(refusal.to_string(), "quote-signature: the quote is not signed by the attestation key");
}

#[test]
fn right_endorsement_key_but_attestation_key_of_another_tpm() {
    // The hello names an attestation key that the TPM of the endorsement key does not hold: the credential does not open.
    let (issuer, mut host) = (replica(1), host(1));
    host.settings.attestation_key = SimulatedTpm::new(&secret(99)).unwrap().attestation_key();
    let hello = host.hello(1);
    let message = challenge(&issuer, &host, hello.message());
    let challenged = hello.on_challenge(&message, CLOCK).unwrap();
    assert!(host.tpm.activate_credential(challenged.credential()).is_none());
    // A host that continues without the secret is not answered.
    let quoting = challenged.on_credential_activated(secret(0), &entropy(2));
    let quote = host.tpm.quote(&quoting.qualifying_data());
    let evidence = quoting.on_quoted(quote, &entropy(3)).unwrap();
    assert_eq!(ignored(judge(&issuer, &host, evidence.message(), &accepting())), Ignored::Proof);
}

#[test]
fn another_hosts_endorsement_key() {
    // A stolen hello of an enrolled host: only its TPM opens the credential.
    let (issuer, victim, mut thief) = (replica(1), host(1), host(2));
    thief.settings = victim.settings.clone();
    let challenge = challenge(&issuer, &thief, victim.hello(1).message());
    let challenged = victim.hello(1).on_challenge(&challenge, CLOCK).unwrap();
    assert!(thief.tpm.activate_credential(challenged.credential()).is_none());
    assert!(victim.tpm.activate_credential(challenged.credential()).is_some());
}

#[test]
fn one_pcr_and_many_differ_and_the_answer_names_them() {
    let reference_values = [(4, [0; 32]), (9, [0; 32]), (11, [0; 32])].into();
    let verifier = SimulatedVerifier { reference_values, ..accepting() };
    for (changed, named) in [(vec![9], "PCRs 9 have"), (vec![4, 11], "PCRs 4, 11 have")] {
        let mut host = host(1);
        changed.iter().for_each(|index| host.tpm.extend(*index, &[1; 32]));
        let refusal = refusal_of(&replica(1), &host, |tpm, data| tpm.quote(data), &verifier);
        assert_eq!(refusal.code, RefusalCode::Measurement);
        assert!(refusal.detail.starts_with(named), "{refusal}");
    }
    let judged = judge(&replica(1), &host(1), host(1).evidence(&replica(1)).message(), &verifier);
    assert!(matches!(judged, EvidenceAnswer::Verified(_)), "the unchanged host passes");
}

#[test]
fn sha_1_bank_only() {
    let refusal =
        refusal_of(&replica(1), &host(1), |tpm, data| tpm.quote_of_bank(data, "sha1", &[4, 15]), &accepting());
    assert_eq!(refusal.to_string(), format!("quote-selection: the quote is of bank \"sha1\", not of {BANK}"));
}

#[test]
fn a_member_that_is_locked_already_wants_another_ticket() {
    let mut host = host(1);
    host.tpm.lock(&[1; 32]);
    let refusal = refusal_of(&replica(1), &host, |tpm, data| tpm.quote(data), &accepting());
    assert_eq!(refusal.to_string(), format!("lock: the lock PCR {LOCK_PCR} is not as it must be"));
    host.tpm.reboot();
    assert!(matches!(
        judge(&replica(1), &host, host.evidence(&replica(1)).message(), &accepting()),
        EvidenceAnswer::Verified(_)
    ));
}

#[test]
fn revoked_unknown_and_not_a_control_plane() {
    let mut host = host(1);
    let id = transcript::endorsement_key_id(&host.settings.endorsement_key);
    let quote = |tpm: &SimulatedTpm, data: &[u8; 32]| tpm.quote(data);
    let revoked = SimulatedVerifier { revoked: [id].into(), ..accepting() };
    let refusal = refusal_of(&replica(1), &host, quote, &revoked);
    assert_eq!(refusal.to_string(), "endorsement-revoked: the endorsement key is revoked");
    let unknown = SimulatedVerifier { enrolled: Some([[1; 32]].into()), ..accepting() };
    let refusal = refusal_of(&replica(1), &host, quote, &unknown);
    assert_eq!(refusal.to_string(), "endorsement-unknown: the endorsement key is not enrolled");
    let worker = SimulatedVerifier { enrolled: Some([id].into()), control_planes: Some([].into()), ..accepting() };
    host.settings.role = Role::ControlPlane;
    let refusal = refusal_of(&replica(1), &host, quote, &worker);
    assert_eq!(refusal.to_string(), "role-not-allowed: the host is not enrolled as a control plane");
}

#[test]
fn a_cleared_tpm_is_another_host_and_a_new_attestation_key_is_not() {
    let before = host(1);
    let id = transcript::endorsement_key_id(&before.settings.endorsement_key);
    let verifier = SimulatedVerifier { enrolled: Some([id].into()), ..accepting() };
    let mut cleared = host(2);
    cleared.settings.body = before.settings.body.clone();
    let refusal = refusal_of(&replica(1), &cleared, |tpm, data| tpm.quote(data), &verifier);
    assert_eq!(refusal.code, RefusalCode::EndorsementUnknown);
    let tpm = SimulatedTpm::new(&secret(1)).unwrap().with_attestation_key_of(SimulatedTpm::new(&secret(3)).unwrap());
    let mut renewed = host(1);
    renewed.settings.attestation_key = tpm.attestation_key();
    renewed.tpm = tpm;
    let judged = judge(&replica(1), &renewed, renewed.evidence(&replica(1)).message(), &verifier);
    assert!(matches!(judged, EvidenceAnswer::Verified(_)));
}

#[test]
fn request_for_a_certificate_swapped_after_the_quote() {
    // The host itself swaps what it asks for after its TPM quoted: the proof is fine, the quote is about the other body.
    let (issuer, host) = (replica(1), host(1));
    let hello = host.hello(1);
    let challenge = challenge(&issuer, &host, hello.message());
    let honest = host.quoting(hello.on_challenge(&challenge, CLOCK).unwrap());
    let quote = host.tpm.quote(&honest.qualifying_data());
    let mut swapped = support::host(1);
    swapped.settings.body.certificate_request = b"key of another host".to_vec();
    let quoting = swapped.quoting(swapped.hello(1).on_challenge(&challenge, CLOCK).unwrap());
    let evidence = quoting.on_quoted(quote, &entropy(3)).unwrap();
    let EvidenceAnswer::Rejected(rejected) = judge(&issuer, &host, evidence.message(), &accepting()) else { panic!() };
    assert_eq!(rejected.refusal.code, RefusalCode::QuoteQualifyingData);
}

#[test]
fn a_name_that_is_none_never_leaves_the_host_and_a_good_one_travels_sealed() {
    let (issuer, host) = (replica(1), host(1));
    let evidence = host.evidence(&issuer);
    assert!(!evidence.message().windows(6).any(|bytes| bytes == b"edge-1"));
    let mut bad = support::host(1);
    bad.settings.body.node_name = "../etcd".to_owned();
    let error = join_protocol::host::HelloSent::new(std::sync::Arc::new(bad.settings), &entropy(1)).unwrap_err();
    assert!(error.to_string().starts_with("evidence body.node_name is not an RFC 1123 subdomain"), "{error}");
}

#[test]
fn a_malformed_quote() {
    for quote in [vec![1], vec![0xFF; 5_000], b"\xffTCG".to_vec()] {
        let refusal = refusal_of(&replica(1), &host(1), |_, _| quote, &accepting());
        assert_eq!(refusal.code, RefusalCode::QuoteMalformed, "{refusal}");
    }
}

#[test]
fn ten_megabytes_of_evidence() {
    let (issuer, host) = (replica(1), host(1));
    let answer = ignored(judge(&issuer, &host, &vec![0x0A; 10_000_000], &accepting()));
    let wanted = WireError::TooLarge { message: "evidence", bytes: 10_000_000, max: EVIDENCE_BYTES_MAX };
    assert_eq!(answer, Ignored::Wire(wanted));
    let hello = issuer.on_hello(&host.settings.address, &vec![0; 100_000], NOW_MS, entropy(9), &accepting());
    assert!(matches!(hello, HelloAnswer::Ignored(Ignored::Wire(WireError::TooLarge { message: "hello", .. }))));
}

#[test]
fn a_quote_that_is_too_large_never_leaves_the_host() {
    let (issuer, host) = (replica(1), host(1));
    let hello = host.hello(1);
    let challenge = challenge(&issuer, &host, hello.message());
    let quoting = host.quoting(hello.on_challenge(&challenge, CLOCK).unwrap());
    let error = quoting.on_quoted(vec![0; 200_000], &entropy(3)).unwrap_err();
    assert_eq!(error.to_string(), "evidence.quote has 200000 bytes; at most 98304 are allowed");
}

#[test]
fn a_simulated_host_where_the_policy_does_not_name_the_variant() {
    let key = signing_key(0x81);
    let chain = vec![certificate(&key, Purpose::JoinIssuer, CLUSTER)];
    let issuer = Issuer::new(IssuerPolicy { variants: vec![Variant::Tpm2], ..policy() }, keys(), key, chain);
    let host = host(1);
    let hello = host.hello(1);
    let answer = issuer.on_hello(&host.settings.address, hello.message(), NOW_MS, entropy(9), &accepting());
    let HelloAnswer::Refused(refused) = answer else { panic!("{answer:?}") };
    assert_eq!(refused.refusal.code, RefusalCode::VariantUnsupported);
    assert_eq!(hello.on_clear_refusal(&refused.message, CLOCK), Ok(refused.refusal));
}

#[test]
fn a_recovery_asked_of_a_join_service() {
    let mut host = host(1);
    host.settings.kind = Kind::Recover;
    let hello = host.hello(1);
    let answer = replica(1).on_hello(&host.settings.address, hello.message(), NOW_MS, entropy(9), &accepting());
    let HelloAnswer::Refused(refused) = answer else { panic!("{answer:?}") };
    assert_eq!(refused.refusal.code, RefusalCode::KindUnsupported);
    // The host waits for an administrator: the refusal of a join service does not count.
    let wanted = ChainError::Purpose { found: Purpose::JoinIssuer, wanted: Purpose::ClusterAdmin };
    assert_eq!(hello.on_clear_refusal(&refused.message, CLOCK), Err(ChallengeError::Chain(wanted)));
}

// ---- The broker, or an attacker who controls it

#[test]
fn a_replayed_transcript_gets_nothing_but_the_same_ticket() {
    let (issuer, host) = (replica(1), host(1));
    let evidence = host.evidence(&issuer);
    let (verified, answer) = ticket(&issuer, &host, &evidence);
    let record = verified.record().granted(&answer);
    assert_eq!(record.answer_to(evidence.message()), Some(answer.message.as_slice()));
    let other = support::host(2).evidence(&issuer);
    assert_eq!(record.answer_to(other.message()), None);
    // A day later, without the record: the challenge is over.
    let late = issuer.on_evidence(&host.settings.address, evidence.message(), NOW_MS + 86_400_000, &accepting());
    let EvidenceAnswer::Refused(refused) = late else { panic!("{late:?}") };
    assert_eq!(refused.refusal.to_string(), "challenge-expired: the challenge is over");
    // No other host can read the ticket: another attempt of the same host has other keys.
    let again = host.hello(50);
    let challenge = challenge(&issuer, &host, again.message());
    let quoting = host.quoting(again.on_challenge(&challenge, CLOCK).unwrap());
    let quote = host.tpm.quote(&quoting.qualifying_data());
    let again = quoting.on_quoted(quote, &entropy(3)).unwrap();
    assert_eq!(again.on_ticket(&answer.message, CLOCK).unwrap_err().error, TicketError::Request);
}

#[test]
fn evidence_after_its_challenge_ended_by_the_issuers_clock() {
    let (issuer, host) = (replica(1), host(1));
    let evidence = host.evidence(&issuer);
    let at = |now_ms| issuer.on_evidence(&host.settings.address, evidence.message(), now_ms, &accepting());
    assert!(matches!(at(NOW_MS + CHALLENGE_LIFETIME_MS), EvidenceAnswer::Verified(_)));
    let EvidenceAnswer::Refused(refused) = at(NOW_MS + CHALLENGE_LIFETIME_MS + 1) else { panic!("expired") };
    assert_eq!(refused.refusal.code, RefusalCode::ChallengeExpired);
    assert_eq!(evidence.on_clear_refusal(&refused.message, CLOCK), Ok(refused.refusal));
}

#[test]
fn a_host_whose_clock_is_wrong_by_ten_years_joins_if_it_does_not_believe_its_clock() {
    let (issuer, host) = (replica(1), host(1));
    let hello = host.hello(1);
    let challenge = challenge(&issuer, &host, hello.message());
    for years in [-10_i64, 10] {
        let wrong = HostClock::Trusted(NOW_MS.saturating_add_signed(years * 31_536_000_000));
        let error = host.hello(1).on_challenge(&challenge, wrong).unwrap_err().error;
        assert_eq!(error, ChallengeError::Clock);
        // An attacker with only the certificates, which are public, cannot say that the clock is wrong.
        let mut forged = challenge.clone();
        *forged.last_mut().unwrap() ^= 1;
        let error = host.hello(1).on_challenge(&forged, wrong).unwrap_err().error;
        assert_ne!(error, ChallengeError::Clock);
    }
    assert!(hello.on_challenge(&challenge, HostClock::Unset).is_ok());
}

#[test]
fn a_message_of_another_host_or_group() {
    let (issuer, host) = (replica(1), host(1));
    let evidence = host.evidence(&issuer);
    let elsewhere = [
        support::host(2).settings.address,
        Address { group: "ACME-Other-Join".to_owned(), ..host.settings.address.clone() },
        Address { node: host.settings.address.node.to_uppercase() + "A", ..host.settings.address.clone() },
    ];
    for address in elsewhere {
        let hello = issuer.on_hello(&address, host.hello(1).message(), NOW_MS, entropy(9), &accepting());
        assert_eq!(hello, HelloAnswer::Ignored(Ignored::Address), "{address:?}");
        let judged = issuer.on_evidence(&address, evidence.message(), NOW_MS, &accepting());
        assert_eq!(ignored(judged), Ignored::Address, "{address:?}");
    }
}

#[test]
fn every_changed_byte_of_a_challenge_is_found_before_the_tpm_is_asked() {
    let (issuer, host) = (replica(1), host(1));
    let message = challenge(&issuer, &host, host.hello(1).message());
    for at in 0..message.len() {
        let mut changed = message.clone();
        changed[at] ^= 1;
        assert!(host.hello(1).on_challenge(&changed, CLOCK).is_err(), "byte {at}");
    }
}

#[test]
fn every_changed_byte_of_evidence_is_found() {
    let (issuer, host) = (replica(1), host(1));
    let evidence = host.evidence(&issuer);
    for at in (0..evidence.message().len()).step_by(5) {
        let mut changed = evidence.message().to_vec();
        changed[at] ^= 1;
        let answer = judge(&issuer, &host, &changed, &accepting());
        assert!(matches!(answer, EvidenceAnswer::Ignored(_)), "byte {at}: {answer:?}");
    }
}

#[test]
fn every_changed_byte_of_a_ticket_is_found() {
    let (issuer, host) = (replica(1), host(1));
    let mut evidence = host.evidence(&issuer);
    let (_, answer) = ticket(&issuer, &host, &evidence);
    for at in (0..answer.message.len()).step_by(29) {
        let mut changed = answer.message.clone();
        changed[at] ^= 1;
        evidence = evidence.on_ticket(&changed, CLOCK).expect_err("a changed ticket").state;
    }
    assert!(evidence.on_ticket(&answer.message, CLOCK).is_ok(), "the attempt survived them all");
}

#[test]
fn a_challenge_for_another_hello() {
    let (issuer, host) = (replica(1), host(1));
    let other = host.hello(2);
    let challenge = challenge(&issuer, &host, other.message());
    assert_eq!(host.hello(1).on_challenge(&challenge, CLOCK).unwrap_err().error, ChallengeError::Request);
    // The same request id over a hello that was changed on the way: its offers were cut.
    let mut hello = Hello::decode(host.hello(1).message()).unwrap();
    hello.host_nonce = [0; 32];
    let for_changed = support::challenge(&issuer, &host, &hello.encode());
    assert_eq!(host.hello(1).on_challenge(&for_changed, CLOCK).unwrap_err().error, ChallengeError::Signature);
}

#[test]
fn a_downgrade_of_the_suite() {
    let (issuer, mut host) = (replica(1), host(1));
    host.settings.suites = vec![Suite::XWing, Suite::X25519];
    let hello = host.hello(1);
    // The broker cuts the offer to the weaker suite; the issuer cannot know, but the host signs what it offered.
    let cut = Hello { suites: vec![Suite::X25519], ..Hello::decode(hello.message()).unwrap() };
    let message = challenge(&issuer, &host, &cut.encode());
    assert_eq!(hello.on_challenge(&message, CLOCK).unwrap_err().error, ChallengeError::Signature);
    // An issuer that chooses what was not offered is not believed either.
    let mut narrow = support::host(1);
    narrow.settings.suites = vec![Suite::XWing];
    let hello = narrow.hello(1);
    let wide = Hello { suites: vec![Suite::X25519], ..Hello::decode(hello.message()).unwrap() };
    let th1 = transcript::after_hello(hello.message());
    let chosen = Challenge::decode(&challenge(&issuer, &narrow, &wide.encode())).unwrap();
    let signature = signing_key(0x81).sign(&transcript::challenge_signed(&th1, &chosen.body, &chosen.cookie));
    let forced = Challenge { signature, ..chosen }.encode();
    assert_eq!(hello.on_challenge(&forced, CLOCK).unwrap_err().error, ChallengeError::NotOffered);
}

#[test]
fn a_challenge_that_the_host_changed_for_itself() {
    // A host puts a challenge of its own taste into its evidence: a variant that proves nothing, an earlier policy, a later end.
    let (issuer, host) = (replica(1), host(1));
    let evidence = Evidence::decode(host.evidence(&issuer).message()).unwrap();
    let challenge = Challenge::decode(&evidence.challenge).unwrap();
    let body = ChallengeBody::decode(&challenge.body).unwrap();
    let changes = [
        ChallengeBody { expires_ms: u64::MAX, ..body.clone() },
        ChallengeBody { policy_epoch: 1, ..body.clone() },
        ChallengeBody { variant: Variant::Tpm2, ..body.clone() },
        ChallengeBody { key_epoch: 3, ..body.clone() },
        ChallengeBody { selection: selection(&[15]), ..body.clone() },
        ChallengeBody { key_epoch: 77, ..body },
    ];
    for changed in changes {
        let challenge = Challenge { body: changed.encode(), ..challenge.clone() }.encode();
        let message = Evidence { challenge, ..evidence.clone() }.encode();
        assert_eq!(ignored(judge(&issuer, &host, &message, &accepting())), Ignored::Cookie, "{changed:?}");
    }
}

#[test]
fn evidence_for_a_policy_that_is_no_more() {
    let host = host(1);
    let changes = [
        IssuerPolicy { policy_epoch: 6, ..policy() },
        IssuerPolicy { variants: vec![Variant::Tpm2], ..policy() },
        IssuerPolicy { suites: vec![Suite::XWing], ..policy() },
    ];
    for changed in changes {
        let mut issuer = replica(1);
        let evidence = host.evidence(&issuer);
        issuer.set_policy(changed.clone());
        let answer = judge(&issuer, &host, evidence.message(), &accepting());
        let EvidenceAnswer::Refused(refused) = answer else { panic!("{changed:?}: {answer:?}") };
        assert_eq!(refused.refusal.code, RefusalCode::ChallengeExpired);
        assert!(refused.refusal.detail.starts_with("the policy"), "{}", refused.refusal);
        assert_eq!(evidence.on_clear_refusal(&refused.message, CLOCK), Ok(refused.refusal));
    }
}

#[test]
fn evidence_put_together_from_two_requests() {
    let (issuer, host) = (replica(1), host(1));
    let first = Evidence::decode(host.evidence(&issuer).message()).unwrap();
    let other = host.hello(60);
    let hello = other.message().to_vec();
    let mixed = Evidence { hello: hello.clone(), ..first.clone() }.encode();
    assert_eq!(ignored(judge(&issuer, &host, &mixed, &accepting())), Ignored::Request);
    let challenge = challenge(&issuer, &host, &hello);
    let mixed = Evidence { hello, challenge, request: other.request(), ..first }.encode();
    assert_eq!(ignored(judge(&issuer, &host, &mixed, &accepting())), Ignored::Seal);
}

#[test]
fn evidence_without_the_secret_of_the_credential() {
    let (issuer, host) = (replica(1), host(1));
    let hello = host.hello(1);
    let challenged = hello.on_challenge(&challenge(&issuer, &host, host.hello(1).message()), CLOCK).unwrap();
    let quoting = challenged.on_credential_activated(secret(0), &entropy(2));
    let quote = host.tpm.quote(&quoting.qualifying_data());
    let evidence = quoting.on_quoted(quote, &entropy(3)).unwrap();
    assert_eq!(ignored(judge(&issuer, &host, evidence.message(), &accepting())), Ignored::Proof);
}

#[test]
fn a_ticket_for_other_evidence_or_another_host() {
    let (issuer, host) = (replica(1), host(1));
    let mine = host.evidence(&issuer);
    // The same request, sealed once more from another quote: only one of the two evidences was sent.
    let other =
        host.evidence_with(&issuer, |tpm, data| tpm.quote_of_bank(data, BANK, Selection::all(Bank::Sha256).pcrs()));
    assert_eq!(mine.message(), other.message(), "the same steps give the same bytes");
    let theirs = support::host(2);
    let (_, answer) = ticket(&issuer, &theirs, &theirs.evidence(&issuer));
    // Both hosts drew the same request id (same entropy), so that only the seals and signatures distinguish them.
    assert_eq!(mine.on_ticket(&answer.message, CLOCK).unwrap_err().error, TicketError::Signature);
}

#[test]
fn a_ticket_that_an_issuer_seals_to_the_key_alone() {
    // An attacker who stole the ephemeral key still lacks the secret from the TPM, and the other way round: an issuer without the secret cannot make a ticket.
    let (issuer, host) = (replica(1), host(1));
    let evidence = host.evidence(&issuer);
    let (_, answer) = ticket(&issuer, &host, &evidence);
    let ticket = Ticket::decode(&answer.message).unwrap();
    let body = TicketBody::decode(&ticket.body).unwrap();
    let th3 = verified(&issuer, &host, &evidence).record().th3;
    let mut swapped = body;
    swapped.ciphertext.reverse();
    let body = swapped.encode();
    let signature = signing_key(0x81).sign(&transcript::after_ticket(&th3, &body));
    let forged = Ticket { body, signature }.encode();
    assert_eq!(evidence.on_ticket(&forged, CLOCK).unwrap_err().error, TicketError::Seal);
}

// ---- An attacker in the place of an issuer

#[test]
fn an_issuer_of_another_cluster_or_root_or_purpose() {
    let host = host(1);
    let foreign_cluster = Uuid::from_u128(0xC2);
    let key = signing_key(0x81);
    let foreign = vec![certificate(&key, Purpose::JoinIssuer, foreign_cluster)];
    let issuer = Issuer::new(IssuerPolicy { cluster: foreign_cluster, ..policy() }, keys(), key, foreign);
    let message = challenge(&issuer, &host, host.hello(1).message());
    let error = host.hello(1).on_challenge(&message, CLOCK).unwrap_err().error;
    assert_eq!(error, ChallengeError::Chain(ChainError::Cluster { found: foreign_cluster, wanted: CLUSTER }));

    let mut elsewhere = support::host(1);
    elsewhere.settings.anchor = TrustAnchor { root: signing_key(0x71).public_key(), ..anchor() };
    let message = challenge(&replica(1), &host, host.hello(1).message());
    let error = elsewhere.hello(1).on_challenge(&message, CLOCK).unwrap_err().error;
    assert_eq!(error, ChallengeError::Chain(ChainError::Signature));

    let key = signing_key(0xA0);
    let chain = vec![certificate(&key, Purpose::ClusterAdmin, CLUSTER)];
    let issuer = Issuer::new(policy(), keys(), key, chain);
    let message = challenge(&issuer, &host, host.hello(1).message());
    let error = host.hello(1).on_challenge(&message, CLOCK).unwrap_err().error;
    assert!(matches!(error, ChallengeError::Chain(ChainError::Purpose { .. })), "{error}");
}

#[test]
fn an_issuer_that_is_certified_for_this_cluster_but_speaks_for_another() {
    let (host, key) = (host(1), signing_key(0x81));
    let chain = vec![certificate(&key, Purpose::JoinIssuer, CLUSTER)];
    let issuer = Issuer::new(IssuerPolicy { cluster: Uuid::from_u128(0xC2), ..policy() }, keys(), key, chain);
    let message = challenge(&issuer, &host, host.hello(1).message());
    assert_eq!(host.hello(1).on_challenge(&message, CLOCK).unwrap_err().error, ChallengeError::Cluster);
}

#[test]
fn an_issuer_whose_key_is_none_of_the_suite_is_found_before_the_tpm_is_asked() {
    let (issuer, host) = (replica(1), host(1));
    let hello = host.hello(1);
    let honest = Challenge::decode(&challenge(&issuer, &host, hello.message())).unwrap();
    for issuer_key in [vec![1; 31], vec![1; 33], vec![1; 1_216]] {
        let body = ChallengeBody { issuer_key, ..ChallengeBody::decode(&honest.body).unwrap() }.encode();
        let th1 = transcript::after_hello(hello.message());
        let signature = signing_key(0x81).sign(&transcript::challenge_signed(&th1, &body, &honest.cookie));
        let message = Challenge { body, cookie: honest.cookie, signature }.encode();
        let error = host.hello(1).on_challenge(&message, CLOCK).unwrap_err().error.to_string();
        assert_eq!(error, "challenge body.issuer_key is not a public key of the suite");
    }
}

fn selection(pcrs: &[u8]) -> Selection {
    Selection::new(Bank::Sha256, pcrs.iter().copied()).unwrap()
}

#[test]
fn a_selection_of_pcrs_that_shows_nothing_is_refused_before_the_tpm_is_asked() {
    let (issuer, host) = (replica(1), host(1));
    let hello = host.hello(1);
    let honest = Challenge::decode(&challenge(&issuer, &host, hello.message())).unwrap();
    let signed = |pcrs: &[u8]| {
        let body = ChallengeBody { selection: selection(pcrs), ..ChallengeBody::decode(&honest.body).unwrap() };
        let body = body.encode();
        let th1 = transcript::after_hello(hello.message());
        let signature = signing_key(0x81).sign(&transcript::challenge_signed(&th1, &body, &honest.cookie));
        Challenge { body, cookie: honest.cookie, signature }.encode()
    };
    for (pcrs, error) in [(&[4, 7][..], SelectionError::NoLock(15)), (&[15], SelectionError::NothingMeasured)] {
        let found = host.hello(1).on_challenge(&signed(pcrs), CLOCK).unwrap_err().error;
        assert_eq!(found, ChallengeError::Selection(error));
    }
    let challenged = host.hello(1).on_challenge(&signed(&[4, 15]), CLOCK).unwrap();
    assert_eq!(host.quoting(challenged).selection().pcrs(), [4, 15], "it is the issuer who says what is quoted");
}

#[test]
fn a_quote_of_fewer_pcrs_than_the_policy_asks_for() {
    let verifier = SimulatedVerifier { reference_values: [(4, [0; 32]), (7, [0; 32])].into(), ..accepting() };
    let refusal = refusal_of(&replica(1), &host(1), |tpm, data| tpm.quote_of(data, &selection(&[4, 15])), &verifier);
    assert_eq!(refusal.code, RefusalCode::QuoteSelection);
    assert!(refusal.detail.ends_with("lacks the PCRs 7"), "{refusal}");
}

#[test]
fn evidence_carried_on_to_another_issuer() {
    // A relay takes evidence for one cluster to the issuer of another: other keys, so it is not even opened.
    let host = host(1);
    let evidence = host.evidence(&replica(1));
    let key = signing_key(0x90);
    let other_cluster = Uuid::from_u128(0xC2);
    let chain = vec![certificate(&key, Purpose::JoinIssuer, other_cluster)];
    let shared = join_protocol::issuer::IssuerKeys::new((4, &secret(0x66)), None);
    let other = Issuer::new(IssuerPolicy { cluster: other_cluster, ..policy() }, shared, key, chain);
    assert_eq!(ignored(judge(&other, &host, evidence.message(), &accepting())), Ignored::Cookie);
    // Even one that was given the same keys by mistake does not take it.
    let key = signing_key(0x90);
    let chain = vec![certificate(&key, Purpose::JoinIssuer, other_cluster)];
    let other = Issuer::new(IssuerPolicy { cluster: other_cluster, ..policy() }, keys(), key, chain);
    let answer = judge(&other, &host, evidence.message(), &accepting());
    assert!(
        matches!(answer, EvidenceAnswer::Refused(ref refused) if refused.refusal.code == RefusalCode::ChallengeExpired)
    );
}

#[test]
fn an_invented_refusal() {
    let (issuer, host) = (replica(1), host(1));
    let hello = host.hello(1);
    let refused = issuer.refuse_busy(hello.message(), 1_000).unwrap();
    assert_eq!(hello.on_clear_refusal(&refused.message, CLOCK).unwrap().retry_after_ms, 1_000);
    let read = ClearRefusal::decode(&refused.message).unwrap();
    let forged = ClearRefusal { signature: [1; 64], ..read.clone() }.encode();
    assert_eq!(hello.on_clear_refusal(&forged, CLOCK), Err(ChallengeError::Signature));
    let other = host.hello(2);
    assert_eq!(other.on_clear_refusal(&refused.message, CLOCK), Err(ChallengeError::Request));
    // A reason that is sent only under seal is not believed in clear, even with a good signature.
    let secret_reason = join_protocol::message::challenge::ClearRefusalBody {
        request: hello.request(),
        issuer_certificates: vec![certificate(&signing_key(0x81), Purpose::JoinIssuer, CLUSTER)],
        refusal: Refusal::new(RefusalCode::EndorsementRevoked, ""),
    };
    let body = secret_reason.encode();
    let th1 = transcript::after_hello(hello.message());
    let signature = signing_key(0x81).sign(&transcript::clear_refusal_signed(&th1, &body));
    let error = hello.on_clear_refusal(&ClearRefusal { body, signature }.encode(), CLOCK).unwrap_err();
    assert_eq!(error.to_string(), "clear refusal body.refusal has a code that is sent only under seal");
}

// ---- After the ticket

#[test]
fn an_acknowledgement_without_the_lock_or_of_another_tpm() {
    let (issuer, mut host) = (replica(1), host(1));
    let evidence = host.evidence(&issuer);
    let (verified, answer) = ticket(&issuer, &host, &evidence);
    let record = verified.record().granted(&answer);
    let opened = opened(evidence, &answer.message);
    let id = opened.cluster_id();
    let acknowledge = |tpm: &SimulatedTpm, opened: join_protocol::host::Opened, data: [u8; 32]| {
        let committed = opened.on_locked(tpm.quote(&data), None, &entropy(4)).unwrap();
        issuer.on_acknowledgement(&record, &host.settings.address, committed.acknowledgement(), &id, &accepting())
    };
    let again = || support::opened(host.evidence(&issuer), &answer.message);
    let code =
        |result: Result<_, MemberError>| match result.map(|_: join_protocol::issuer::Acknowledged| Claims::default()) {
            Err(MemberError::Quote(refusal)) => refusal.code,
            other => panic!("{other:?}"),
        };
    let data = opened.qualifying_data();
    let mut other = SimulatedTpm::new(&secret(99)).unwrap();
    other.lock(&id);
    assert_eq!(code(acknowledge(&host.tpm, opened, data)), RefusalCode::Lock, "not locked");
    assert_eq!(code(acknowledge(&other, again(), data)), RefusalCode::QuoteSignature, "another TPM");
    assert_eq!(code(acknowledge(&host.tpm, again(), [0; 32])), RefusalCode::QuoteQualifyingData, "an old quote");
    let mut locked = SimulatedTpm::new(&secret(1)).unwrap();
    locked.lock(&[9; 32]);
    assert_eq!(code(acknowledge(&locked, again(), data)), RefusalCode::Lock, "locked to another cluster");
    let opened = again();
    let committed = host.commit(opened, None);
    let acknowledged =
        issuer.on_acknowledgement(&record, &host.settings.address, committed.acknowledgement(), &id, &accepting());
    assert!(acknowledged.is_ok());
}

// ---- Many

#[test]
fn a_flood_of_hellos_leaves_nothing_behind() {
    // An issuer answers through a shared reference: a hello cannot make it remember anything.
    let (issuer, host) = (replica(1), host(1));
    let before = format!("{issuer:?}");
    for number in 0..200 {
        let answer = issuer.on_hello(
            &host.settings.address,
            host.hello(number).message(),
            NOW_MS,
            entropy(number),
            &accepting(),
        );
        assert!(matches!(answer, HelloAnswer::Challenge { .. }));
    }
    assert_eq!(format!("{issuer:?}"), before);
}

#[test]
fn another_version_and_a_broken_rule_are_refused_in_clear_and_noise_is_not_answered() {
    let (issuer, host) = (replica(1), host(1));
    let hello = host.hello(1);
    let answer = |message: &[u8]| issuer.on_hello(&host.settings.address, message, NOW_MS, entropy(9), &accepting());
    let mut other_version = hello.message().to_vec();
    assert_eq!(&other_version[..2], &[8, 1], "version 1 comes first");
    other_version[1] = 2;
    let HelloAnswer::Refused(refused) = answer(&other_version) else { panic!("not refused") };
    assert_eq!(refused.refusal.to_string(), "version-unsupported: hello is of version 2; only version 1 is spoken");
    let broken = Hello { attestation_key: Vec::new(), ..Hello::decode(hello.message()).unwrap() }.encode();
    let HelloAnswer::Refused(refused) = answer(&broken) else { panic!("not refused") };
    assert_eq!(refused.refusal.to_string(), "hello-invalid: hello.attestation_key is missing");
    let mut padded = hello.message().to_vec();
    padded.extend([0xF8, 0x01, 0x01]);
    assert_eq!(answer(&padded), HelloAnswer::Ignored(Ignored::Wire(WireError::NotCanonical { message: "hello" })));
    assert!(matches!(answer(&[0xFF; 100]), HelloAnswer::Ignored(Ignored::Wire(WireError::Malformed { .. }))));
}
