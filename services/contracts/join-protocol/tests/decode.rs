//! No bytes make a decoder panic, and what a decoder takes it writes back as the same bytes. The seeds of the fuzz targets go through the same functions.

use std::fs;

use join_protocol::message::challenge::{Challenge, ClearRefusal};
use join_protocol::message::evidence::EvidenceContent;
use join_protocol::message::local_unlock::LocalUnlock;
use join_protocol::message::renewal::Renewal;
use join_protocol::message::ticket::{Ticket, TicketContent, TicketPayload};
use join_protocol::terms::{Kind, Role};
use proptest::prelude::*;

#[path = "../../../../fuzz/src/join.rs"]
mod fuzz;
#[path = "../../../../fuzz/src/seeds.rs"]
mod seeds;
use crate::support;

use support::*;

#[test]
fn every_seed_of_every_fuzz_target_holds() {
    for (name, target) in fuzz::TARGETS {
        seeds::hold(name, target, 2);
    }
}

/// One message of each kind, from an exchange with fixed randomness, and what is inside.
fn messages() -> Vec<(&'static str, Vec<u8>)> {
    let (issuer, mut host) = (replica(1), host(1));
    let hello = host.hello(1).message().to_vec();
    let challenge = challenge(&issuer, &host, &hello);
    let refusal = issuer.refuse_busy(&hello, 5).expect("a good hello").message;
    let evidence = host.evidence(&issuer);
    let evidence_message = evidence.message().to_vec();
    let (_, answer) = ticket(&issuer, &host, &evidence);
    let ticket_body = Ticket::decode(&answer.message).expect("a good ticket").body;
    let content = TicketContent {
        acknowledgement_key: secret(1),
        verdict: Ok(TicketPayload::Grant(Box::new(with_setup(grant_for(Kind::Join, "edge-1"), &[1; 32])))),
    };
    let padded = content.encode_padded(Role::Worker).expect("it fits");
    let length = usize::from(u16::from_be_bytes([padded[2], padded[3]]));
    let content = padded[4..4 + length].to_vec();
    let inner =
        EvidenceContent { host_key: vec![1; 32], body: host.settings.body.encode(), quote: vec![2], proof: [3; 32] };
    let opened = opened(evidence, &answer.message);
    let progress = opened.progress(1, join_protocol::message::acknowledgement::Stage::Opened, "");
    let acknowledgement = host.commit(opened, None).acknowledgement().to_vec();
    vec![
        ("join_hello", hello),
        ("join_challenge", Challenge::decode(&challenge).expect("a good challenge").body),
        ("join_challenge", challenge),
        ("join_refusal", ClearRefusal::decode(&refusal).expect("a good refusal").body),
        ("join_refusal", refusal),
        ("join_evidence", inner.encode()),
        ("join_evidence", inner.body),
        ("join_evidence", evidence_message),
        ("join_ticket", content),
        ("join_ticket", ticket_body),
        ("join_ticket", answer.message),
        ("join_member", progress),
        ("join_member", acknowledgement),
        ("join_ticket", renewal(None)),
        ("join_ticket", renewal(Some(support::local_unlock()))),
    ]
}

/// What is sealed in the ticket of a renewal.
fn renewal(local_unlock: Option<LocalUnlock>) -> Vec<u8> {
    let renewal = Renewal {
        node_name: "edge-1".to_owned(),
        kubelet_certificate: vec![0x30, 0],
        ssh_authority: "ssh-ed25519 AAAA".to_owned(),
        ssh_host_certificate: "ssh-ed25519-cert-v01@openssh.com AAAA edge-1".to_owned(),
        local_unlock,
    };
    let content = TicketContent { acknowledgement_key: secret(1), verdict: Ok(TicketPayload::Renewal(renewal)) };
    let padded = content.encode_padded(Role::Worker).expect("it fits");
    let length = usize::from(u16::from_be_bytes([padded[2], padded[3]]));
    padded[4..4 + length].to_vec()
}

#[test]
fn the_seeds_are_a_whole_exchange_which_stays_the_same_byte_by_byte() {
    // SPARKFLEET_WRITE_SEEDS=1 writes them. They may only change with the version of the protocol.
    let folder = seeds::folder();
    let mut counts = std::collections::BTreeMap::new();
    for (name, message) in messages() {
        let count = counts.entry(name).or_insert(0);
        *count += 1;
        let path = folder.join(name).join(format!("exchange_{count}"));
        if std::env::var_os("SPARKFLEET_WRITE_SEEDS").is_some() {
            fs::create_dir_all(folder.join(name)).expect("writable");
            fs::write(&path, &message).expect("writable");
            fs::write(folder.join(name).join("cut_off"), &message[..message.len() / 2]).expect("writable");
        }
        assert_eq!(fs::read(&path).expect("the seed is there"), message, "{}", path.display());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_taken_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        for (_, target) in fuzz::TARGETS {
            target(&bytes);
        }
    }

    #[test]
    fn changed_messages_are_taken_or_refused(
        which in 0_usize..15,
        cut in any::<prop::sample::Index>(),
        at in any::<prop::sample::Index>(),
        by in any::<u8>(),
        inserted in prop::collection::vec(any::<u8>(), 0..8),
    ) {
        thread_local!(static MESSAGES: Vec<(&'static str, Vec<u8>)> = messages());
        let mut message = MESSAGES.with(|messages| messages[which].1.clone());
        let position = at.index(message.len());
        message[position] ^= by;
        message.splice(position..position, inserted);
        message.truncate(cut.index(message.len() + 1));
        for (_, target) in fuzz::TARGETS {
            target(&message);
        }
    }
}
