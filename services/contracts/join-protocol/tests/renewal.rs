//! Certificates of a member: renewed for a host that is locked to this cluster, and nothing else is given for it.
#![allow(clippy::unwrap_used, reason = "the lint exempts test functions, not their helpers")]

use crate::support;

use join_protocol::host::{Condition, Effect, Event, Machine, TicketOutcome};
use join_protocol::issuer::{EvidenceAnswer, GrantError, HelloAnswer, Issuer, IssuerPolicy};
use join_protocol::message::acknowledgement::Stage;
use join_protocol::message::evidence::Evidence;
use join_protocol::message::hello::Hello;
use join_protocol::message::renewal::Renewal;
use join_protocol::metrics::HostMessage;
use join_protocol::refusal::{Refusal, RefusalCode};
use join_protocol::secret::cluster_id;
use join_protocol::simulated::SimulatedVerifier;
use join_protocol::terms::{Kind, Purpose, Role};
use support::*;

/// A host that is locked to this cluster and wants other certificates.
fn member() -> Host {
    let mut host = host(1);
    host.settings.kind = Kind::Renew;
    host.tpm.lock(&cluster_id(&secret(0xD2), &secret(0xD3)));
    host
}

fn renewal() -> Renewal {
    Renewal {
        node_name: "edge-1".to_owned(),
        kubelet_certificate: vec![0x30, 0],
        ssh_authority: "ssh-ed25519 AAAA".to_owned(),
        ssh_host_certificate: "ssh-ed25519-cert-v01@openssh.com AAAA edge-1".to_owned(),
        local_unlock: Some(support::local_unlock()),
    }
}

/// The refusal under seal that the evidence of a host gets.
fn refusal_of(issuer: &Issuer, host: &Host) -> Refusal {
    let evidence = host.evidence(issuer);
    let EvidenceAnswer::Rejected(rejected) = judge(issuer, host, evidence.message(), &SimulatedVerifier::default())
    else {
        panic!("not rejected");
    };
    let answer = issuer.refuse(rejected.recipient(), rejected.refusal.clone()).unwrap();
    assert_eq!(refused(evidence, &answer.message), rejected.refusal);
    rejected.refusal
}

#[test]
fn a_member_gets_certificates_and_says_when_they_are_in_place() {
    let (issuer, host) = (replica(1), member());
    let (mono, address) = (ms(0), host.settings.address.clone());
    let mut machine = Machine::new(host.settings.clone());
    let mut feed = |event: Event<'_>, number| machine.on_event(event, mono, CLOCK, entropy(number));
    let effects = feed(Event::Start, 1);
    let [Effect::Publish(HostMessage::Hello(hello))] = &effects[..] else { panic!("{effects:?}") };
    let challenge = challenge(&issuer, &host, hello);
    let effects = feed(Event::Challenge(&challenge), 2);
    let [Effect::ActivateCredential { request, credential }] = &effects[..] else { panic!("{effects:?}") };
    let secret = host.tpm.activate_credential(credential).unwrap();
    let effects = feed(Event::CredentialActivated(*request, secret), 3);
    let [Effect::Quote { request, qualifying_data, selection, .. }] = &effects[..] else { panic!("{effects:?}") };
    let effects = feed(Event::Quoted(*request, host.tpm.quote_of(qualifying_data, selection)), 4);
    let [Effect::Publish(HostMessage::Evidence(evidence))] = &effects[..] else { panic!("{effects:?}") };
    let verified = match judge(&issuer, &host, evidence, &SimulatedVerifier::default()) {
        EvidenceAnswer::Verified(verified) => verified,
        other => panic!("{other:?}"),
    };
    let answer = issuer.renew(&verified, renewal(), entropy(5)).unwrap();
    let record = verified.record().granted(&answer);
    let effects = feed(Event::Ticket(&answer.message), 6);
    assert!(matches!(&effects[..], [Effect::Renew { .. }, Effect::Publish(HostMessage::Progress(_))]), "{effects:?}");
    let effects = feed(Event::Stage(Stage::Member, String::new()), 7);
    let [Effect::Publish(HostMessage::Progress(progress))] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!(issuer.on_progress(&record, &address, progress).unwrap().stage, Stage::Member);
    assert_eq!(
        (machine.renewal(), machine.grant(), machine.condition()),
        (Some(&renewal()), None, Condition::Committed)
    );
    assert!(machine.next_deadline().is_none(), "nothing is repeated; the birth says it");
}

#[test]
fn a_host_that_is_not_locked_or_to_another_cluster_asks_to_renew() {
    let mut open = host(1);
    open.settings.kind = Kind::Renew;
    assert_eq!(refusal_of(&replica(1), &open).code, RefusalCode::Lock);
    let mut other = host(1);
    other.settings.kind = Kind::Renew;
    other.tpm.lock(&[9; 32]);
    assert_eq!(refusal_of(&replica(1), &other).code, RefusalCode::Lock);
    // Locked twice is locked to nothing.
    let mut twice = member();
    twice.tpm.lock(&cluster_id(&secret(0xD2), &secret(0xD3)));
    assert_eq!(refusal_of(&replica(1), &twice).code, RefusalCode::Lock);
}

#[test]
fn a_renewal_used_to_get_keys() {
    let (issuer, host) = (replica(1), member());
    let evidence = host.evidence(&issuer);
    let verified = verified(&issuer, &host, &evidence);
    for kind in [Kind::Join, Kind::Rejoin] {
        let wrong = issuer.grant(&verified, grant_for(kind, "edge-1"), entropy(5));
        assert!(matches!(wrong, Err(GrantError::NotFor(_))), "{wrong:?}");
    }
    // The same evidence under a hello that asks for the disk: the cookie is of another hello.
    let mut changed = Evidence::decode(evidence.message()).unwrap();
    changed.hello = Hello { kind: Kind::Rejoin, ..Hello::decode(&changed.hello).unwrap() }.encode();
    let answer = judge(&issuer, &host, &changed.encode(), &SimulatedVerifier::default());
    assert!(matches!(answer, EvidenceAnswer::Ignored(join_protocol::issuer::Ignored::Cookie)), "{answer:?}");
    // A member that is locked gets no keys by asking for them.
    for kind in [Kind::Join, Kind::Rejoin] {
        let mut member = member();
        member.settings.kind = kind;
        assert_eq!(refusal_of(&issuer, &member).code, RefusalCode::Lock, "{kind}");
    }
}

#[test]
fn certificates_for_who_asked_for_something_else() {
    let (issuer, host) = (replica(1), host(1));
    let evidence = host.evidence(&issuer);
    let verified = verified(&issuer, &host, &evidence);
    let wrong = issuer.renew(&verified, renewal(), entropy(5)).unwrap_err().to_string();
    assert_eq!(wrong, "renewal.node_name does not belong to join");
    assert!(!matches!(
        evidence
            .on_ticket(&issuer.grant(&verified, grant_for(Kind::Join, "edge-1"), entropy(5)).unwrap().message, CLOCK),
        Ok(TicketOutcome::Renewed(_))
    ));
}

#[test]
fn an_issuer_that_renews_no_certificate() {
    let key = signing_key(0x81);
    let chain = vec![certificate(&key, Purpose::JoinIssuer, CLUSTER)];
    let unknowing = Issuer::new(IssuerPolicy { locked_to: None, ..policy() }, keys(), key, chain);
    let refusal = refusal_of(&unknowing, &member());
    assert_eq!(refusal.to_string(), "lock: this issuer does not know what its members are locked to");
    // An administrator renews no certificates.
    let host = member();
    let hello = host.hello(1);
    let answer =
        admin().on_hello(&host.settings.address, hello.message(), NOW_MS, entropy(9), &SimulatedVerifier::default());
    let HelloAnswer::Refused(refused) = answer else { panic!("{answer:?}") };
    assert_eq!(refused.refusal.code, RefusalCode::KindUnsupported);
}

#[test]
fn a_renewal_looks_like_any_ticket() {
    for role in [Role::Worker, Role::ControlPlane] {
        let size = |mut host: Host| {
            host.settings.role = role;
            let evidence = host.evidence(&replica(1));
            let verified = verified(&replica(1), &host, &evidence);
            let answer = match host.settings.kind {
                Kind::Renew => replica(1).renew(&verified, renewal(), entropy(5)),
                kind => replica(1).grant(&verified, grant_for(kind, "edge-1"), entropy(5)),
            };
            answer.unwrap().message.len()
        };
        assert_eq!(size(member()), size(host(1)));
    }
}
