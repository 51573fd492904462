//! Exchanges as they should go: every kind, role and suite, repeats, and what is remembered.

use crate::support;

use join_protocol::issuer::{Claim, GrantError, MemberError, Phase, claim};
use join_protocol::limits::{
    CHALLENGE_BYTES_MAX, EVIDENCE_BYTES_MAX, HELLO_BYTES_MAX, QUOTE_BYTES_MAX, TICKET_BYTES_MAX,
};
use join_protocol::message::acknowledgement::Stage;
use join_protocol::refusal::{Refusal, RefusalCode};
use join_protocol::result::ResultKey;
use join_protocol::secret::{SecretBytes, cluster_id};
use join_protocol::simulated::SimulatedVerifier;
use join_protocol::terms::{Kind, Role, Suite, Variant};
use support::*;

#[test]
fn a_host_joins_with_each_suite_and_role() {
    for (suite, role) in
        [(Suite::X25519, Role::Worker), (Suite::XWing, Role::Worker), (Suite::XWing, Role::ControlPlane)]
    {
        let (issuer, mut host) = (replica(1), host(1));
        host.settings.suites = vec![suite];
        host.settings.role = role;
        let evidence = host.evidence(&issuer);
        let (verified, answer) = ticket(&issuer, &host, &evidence);
        assert_eq!((verified.recipient().hello().role, verified.body()), (role, &host.settings.body));
        let record = verified.record().granted(&answer);
        let opened = opened(evidence, &answer.message);
        let grant = opened.grant().clone();
        assert_eq!(grant, grant_for(Kind::Join, "edge-1"), "{suite} {role}");
        let progress = opened.progress(1, Stage::Opened, "");
        let committed = host.commit(opened, None);
        let address = &host.settings.address;
        let id = cluster_id(&grant.measurement_secret, &grant.measurement_salt);
        let verifier = SimulatedVerifier::default();
        let acknowledged = issuer.on_acknowledgement(&record, address, committed.acknowledgement(), &id, &verifier);
        assert_eq!(acknowledged.unwrap().sealed_result, None);
        assert_eq!(issuer.on_progress(&record, address, &progress).unwrap().stage, Stage::Opened);
        let done = record.acknowledged();
        assert!(matches!(done.phase, Phase::Acknowledged { .. }));
        let again = issuer.on_acknowledgement(&done, address, committed.acknowledgement(), &id, &verifier);
        assert!(again.is_ok(), "a repeated acknowledgement is taken like the first");
    }
}

#[test]
fn a_rejoin_and_a_recovery_hand_out_the_disk_key_alone() {
    for (issuer, kind) in [(replica(1), Kind::Rejoin), (admin(), Kind::Recover)] {
        let mut host = host(2);
        host.settings.kind = kind;
        let evidence = host.evidence(&issuer);
        let (verified, answer) = ticket(&issuer, &host, &evidence);
        let wrong = issuer.grant(&verified, grant_for(Kind::Join, "edge-2"), entropy(5));
        assert!(matches!(wrong, Err(GrantError::NotFor(_))), "{kind}: {wrong:?}");
        assert_eq!(opened(evidence, &answer.message).grant().membership, None);
    }
}

#[test]
fn an_init_sends_its_result_back_under_seal() {
    let (issuer, mut host) = (admin(), host(3));
    host.settings.kind = Kind::Init;
    host.settings.role = Role::ControlPlane;
    let result_key = ResultKey::generate(Suite::X25519, entropy(77));
    let evidence = host.evidence(&issuer);
    let verified = verified(&issuer, &host, &evidence);
    let grant = with_setup(grant_for(Kind::Init, ""), result_key.public());
    let id = cluster_id(&grant.measurement_secret, &grant.measurement_salt);
    let answer = issuer.grant(&verified, grant, entropy(5)).unwrap();
    let record = verified.record().granted(&answer);
    let opened = opened(evidence, &answer.message);
    let committed = host.commit(opened, Some(b"kubeconfig"));
    let (address, request) = (&host.settings.address, answer.request);
    let verifier = SimulatedVerifier::default();
    let acknowledged =
        issuer.on_acknowledgement(&record, address, committed.acknowledgement(), &id, &verifier).unwrap();
    let (encapsulated_key, ciphertext) = acknowledged.sealed_result.unwrap();
    let sealed = (encapsulated_key.as_slice(), ciphertext.as_slice());
    let result = result_key.open(address, request, &answer.th4, sealed);
    assert_eq!(result.unwrap().as_slice(), b"kubeconfig");
    let other = ResultKey::generate(Suite::X25519, entropy(78));
    assert!(other.open(address, request, &answer.th4, sealed).is_err());
    assert!(result_key.open(address, request, &[0; 32], sealed).is_err(), "of another ticket");
}

#[test]
fn any_replica_continues_where_another_began() {
    let (first, second, third, host) = (replica(1), replica(2), replica(3), host(1));
    let evidence = host.evidence(&first);
    // The second judges what the first challenged; the third repeats what the second sealed.
    let (verified, answer) = ticket(&second, &host, &evidence);
    let record = verified.record().granted(&answer);
    assert_eq!(record.answer_to(evidence.message()), Some(answer.message.as_slice()));
    assert_eq!(
        claim(Some(&record), &support::verified(&third, &host, &evidence), "third", NOW_MS, 5_000),
        Claim::Resend(answer.message.clone())
    );
    assert_eq!(opened(evidence, &answer.message).grant().membership.as_ref().unwrap().node_name, "edge-1");
}

#[test]
fn a_request_is_claimed_by_one_replica_and_taken_over_after_its_lease() {
    let (issuer, host) = (replica(1), host(1));
    let evidence = host.evidence(&issuer);
    let verified = verified(&issuer, &host, &evidence);
    let Claim::Create(record) = claim(None, &verified, "a", NOW_MS, 5_000) else { panic!("the first creates") };
    assert_eq!(claim(Some(&record), &verified, "b", NOW_MS + 5_000, 5_000), Claim::Wait { until_ms: NOW_MS + 5_000 });
    assert!(matches!(claim(Some(&record), &verified, "b", NOW_MS + 5_001, 5_000), Claim::TakeOver(_)));
    assert!(
        matches!(claim(Some(&record), &verified, "a", NOW_MS + 1, 5_000), Claim::TakeOver(_)),
        "it crashed and is back"
    );
    let answer = issuer.grant(&verified, grant_for(Kind::Join, "edge-1"), entropy(5)).unwrap();
    let granted = record.clone().granted(&answer);
    assert_eq!(claim(Some(&granted), &verified, "b", NOW_MS, 5_000), Claim::Resend(answer.message.clone()));
    assert_eq!(claim(Some(&granted.acknowledged()), &verified, "b", NOW_MS, 5_000), Claim::Over);
    let other = host.evidence_with(&issuer, |tpm, data| tpm.quote(data));
    let other = support::verified(&issuer, &host, &other);
    let foreign = join_protocol::issuer::Record { evidence_hash: [0; 32], ..record };
    assert_eq!(claim(Some(&foreign), &other, "b", NOW_MS, 5_000), Claim::Conflict);
}

#[test]
fn a_refusal_looks_like_a_ticket_and_is_the_same_bytes_every_time() {
    for role in [Role::Worker, Role::ControlPlane] {
        let (issuer, mut host) = (replica(1), host(1));
        host.settings.role = role;
        let evidence = host.evidence(&issuer);
        let (verified, answer) = ticket(&issuer, &host, &evidence);
        let short = issuer.refuse(verified.recipient(), Refusal::new(RefusalCode::NameNotAllowed, "")).unwrap();
        let long = Refusal::new(RefusalCode::Measurement, "x".repeat(600));
        let long = issuer.refuse(verified.recipient(), long).unwrap();
        assert_eq!(answer.message.len(), short.message.len());
        assert_eq!(answer.message.len(), long.message.len());
        assert!(answer.message.len() < TICKET_BYTES_MAX);
        let again = issuer.refuse(verified.recipient(), Refusal::new(RefusalCode::NameNotAllowed, "")).unwrap();
        assert_eq!(again, short);
        assert_eq!(refused(evidence, &short.message).code, RefusalCode::NameNotAllowed);
    }
}

#[test]
fn a_grant_that_does_not_fit_is_refused_and_not_cut() {
    let (issuer, host) = (replica(1), host(1));
    let evidence = host.evidence(&issuer);
    let verified = verified(&issuer, &host, &evidence);
    let mut grant = grant_for(Kind::Join, "edge-1");
    grant.membership.as_mut().unwrap().token = SecretBytes::new(vec![b'x'; 9_000]);
    let error = issuer.grant(&verified, grant, entropy(5)).unwrap_err().to_string();
    assert!(error.starts_with("the content of a ticket for a worker has 9"), "{error}");
}

#[test]
fn messages_have_the_sizes_that_the_documentation_gives() {
    let sizes = |suite, role, certificates| {
        let (issuer, mut host) = (replica(1), host(1));
        host.settings.suites = vec![suite];
        host.settings.role = role;
        host.settings.endorsement_certificates = certificates;
        let hello = host.hello(1).message().to_vec();
        let challenge = challenge(&issuer, &host, &hello);
        let evidence = host.evidence(&issuer);
        let evidence_bytes = evidence.message().len();
        let (_, answer) = ticket(&issuer, &host, &evidence);
        let acknowledgement = host.commit(opened(evidence, &answer.message), None).acknowledgement().len();
        [hello.len(), challenge.len(), evidence_bytes, answer.message.len(), acknowledgement]
    };
    assert_eq!(sizes(Suite::X25519, Role::Worker, Vec::new()), [158, 496, 1862, 8477, 1081]);
    assert_eq!(sizes(Suite::XWing, Role::Worker, Vec::new()), [158, 1681, 5321, 9566, 1081]);
    assert_eq!(sizes(Suite::XWing, Role::ControlPlane, Vec::new()), [158, 1681, 5321, 34144, 1081]);
    assert_eq!(sizes(Suite::X25519, Role::ControlPlane, Vec::new())[3], 33_055);
    // With the certificates of a real TPM's endorsement key, and as much quote and event log as is allowed, all stay below their limits.
    let [hello, challenge, evidence, ticket, _] = sizes(Suite::XWing, Role::ControlPlane, vec![vec![1; 4_096]; 4]);
    assert!(hello < HELLO_BYTES_MAX && challenge < CHALLENGE_BYTES_MAX && ticket < TICKET_BYTES_MAX);
    assert!(evidence + QUOTE_BYTES_MAX < EVIDENCE_BYTES_MAX);
}

#[test]
fn progress_counts_up_and_only_the_opener_of_the_ticket_can_make_it() {
    let (issuer, mut host) = (replica(1), host(1));
    let evidence = host.evidence(&issuer);
    let (verified, answer) = ticket(&issuer, &host, &evidence);
    let record = verified.record().granted(&answer);
    let address = &host.settings.address.clone();
    let opened = opened(evidence, &answer.message);
    let (first, second) = (opened.progress(1, Stage::Opened, ""), opened.progress(2, Stage::Failed, "no\ndisk"));
    let read = issuer.on_progress(&record, address, &second).unwrap();
    assert_eq!((read.sequence, read.stage, read.detail.as_str()), (2, Stage::Failed, "no disk"));
    let later = join_protocol::issuer::Record { sequence: 2, ..record.clone() };
    assert_eq!(issuer.on_progress(&later, address, &first), Err(MemberError::Old { sequence: 1, last: 2 }));
    let other = support::host(2).settings.address;
    assert_eq!(issuer.on_progress(&record, &other, &first), Err(MemberError::NotOfRequest));
    let mut forged = first.clone();
    *forged.last_mut().unwrap() ^= 1;
    assert_eq!(issuer.on_progress(&record, address, &forged), Err(MemberError::Mac));
    assert_eq!(issuer.on_progress(&verified.record(), address, &first), Err(MemberError::NoTicket));
    // An acknowledgement is not progress, though both are under the same key.
    let committed = host.commit(opened, None);
    assert!(issuer.on_progress(&record, address, committed.acknowledgement()).is_err());
}

#[test]
fn keys_of_the_previous_epoch_still_answer_and_older_ones_do_not() {
    let (mut issuer, host) = (replica(1), host(1));
    let evidence = host.evidence(&issuer);
    issuer.set_keys(join_protocol::issuer::IssuerKeys::new((5, &secret(0x45)), Some((4, &secret(0x44)))));
    let (verified, answer) = ticket(&issuer, &host, &evidence);
    issuer.set_keys(join_protocol::issuer::IssuerKeys::new((6, &secret(0x46)), Some((5, &secret(0x45)))));
    let gone = issuer.grant(&verified, grant_for(Kind::Join, "edge-1"), entropy(5));
    assert_eq!(gone, Err(GrantError::KeysGone));
    let record = verified.record().granted(&answer);
    let progress = opened(evidence, &answer.message).progress(1, Stage::Opened, "");
    assert_eq!(issuer.on_progress(&record, &host.settings.address, &progress), Err(MemberError::KeysGone));
}

#[test]
fn what_is_logged_shows_no_secret() {
    let (issuer, host) = (replica(1), host(1));
    let evidence = host.evidence(&issuer);
    let (verified, answer) = ticket(&issuer, &host, &evidence);
    let shown = format!("{issuer:?} {verified:?} {evidence:?}");
    let opened = opened(evidence, &answer.message);
    let shown = format!("{shown} {opened:?} {:?}", opened.grant());
    // 0x44 is the secret of the epoch, 0xD1 and on are the secrets of the grant; both as Debug shows byte arrays.
    for secret in ["68, 68, 68", "209, 209", "210, 210", "211, 211", "join-token"] {
        assert!(!shown.contains(secret), "{secret} in {shown}");
    }
    assert!(shown.contains("Secret(..)"));
    assert_eq!(verified.recipient().hello().variants, [Variant::Simulated]);
}
