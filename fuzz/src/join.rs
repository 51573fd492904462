//! Decoders of the join protocol: no bytes make them panic, and what they take is written back as the same bytes. Also what an issuer and a host do with any bytes.
//!
//! Apart from the other targets, because a test of `join-protocol` includes this file by its path.

use join_protocol::message::acknowledgement::{Acknowledgement, Authenticated, Progress};
use join_protocol::message::challenge::{Challenge, ChallengeBody, ClearRefusal, ClearRefusalBody};
use join_protocol::message::evidence::{Evidence, EvidenceBody, EvidenceContent};
use join_protocol::message::hello::Hello;
use join_protocol::message::ticket::{Ticket, TicketBody, TicketContent};
use join_protocol::terms::Role;

/// A fuzz target: its name, which is that of its folder of seeds, too, and what it does with bytes.
pub type Target = (&'static str, fn(&[u8]));

/// All of them.
pub const TARGETS: [Target; 6] = [
    ("join_challenge", challenge),
    ("join_evidence", evidence),
    ("join_hello", hello),
    ("join_member", member),
    ("join_refusal", refusal),
    ("join_ticket", ticket),
];

/// A hello. Offers that are not known are left out when it is read, so only those without any are written back.
pub fn hello(bytes: &[u8]) {
    if let Ok(hello) = Hello::decode(bytes) {
        let again = hello.encode();
        assert!(again.len() <= bytes.len());
        assert_eq!(Hello::decode(&again), Ok(hello));
    }
    let _ = Hello::request_of(bytes);
}

/// A challenge and its body.
pub fn challenge(bytes: &[u8]) {
    if let Ok(challenge) = Challenge::decode(bytes) {
        assert_eq!(challenge.encode(), bytes);
        let _ = ChallengeBody::decode(&challenge.body);
    }
    if let Ok(body) = ChallengeBody::decode(bytes) {
        assert_eq!(body.encode(), bytes);
    }
}

/// A refusal in clear and its body.
pub fn refusal(bytes: &[u8]) {
    if let Ok(refusal) = ClearRefusal::decode(bytes) {
        assert_eq!(refusal.encode(), bytes);
        let _ = ClearRefusalBody::decode(&refusal.body);
    }
    if let Ok(body) = ClearRefusalBody::decode(bytes) {
        assert_eq!(body.encode(), bytes);
    }
}

/// Evidence, what is sealed in it, and its body.
pub fn evidence(bytes: &[u8]) {
    if let Ok(evidence) = Evidence::decode(bytes) {
        assert_eq!(evidence.encode(), bytes);
    }
    if let Ok(content) = EvidenceContent::decode(bytes) {
        assert_eq!(content.encode(), bytes);
    }
    if let Ok(body) = EvidenceBody::decode(bytes) {
        assert_eq!(body.encode(), bytes);
    }
}

/// A ticket, its body, and what is sealed in it.
pub fn ticket(bytes: &[u8]) {
    if let Ok(ticket) = Ticket::decode(bytes) {
        assert_eq!(ticket.encode(), bytes);
        let _ = TicketBody::decode(&ticket.body);
    }
    if let Ok(body) = TicketBody::decode(bytes) {
        assert_eq!(body.encode(), bytes);
    }
    // As it would stand under the seal: length, content, padding.
    let mut padded = u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes().to_vec();
    padded.extend_from_slice(bytes);
    padded.resize(join_protocol::limits::WORKER_CONTENT_BYTES, 0);
    if let Ok(content) = TicketContent::decode_padded(&padded, Role::Worker) {
        assert_eq!(content.encode_padded(Role::Worker).map(|again| again.to_vec()), Ok(padded));
    }
}

/// Progress and acknowledgement.
pub fn member(bytes: &[u8]) {
    if let Ok(authenticated) = Authenticated::decode_progress(bytes) {
        assert_eq!(authenticated.encode(), bytes);
        let _ = Progress::decode(&authenticated.body);
    }
    if let Ok(authenticated) = Authenticated::decode_acknowledgement(bytes) {
        let _ = Acknowledgement::decode(&authenticated.body);
    }
    if let Ok(progress) = Progress::decode(bytes) {
        assert_eq!(progress.encode(), bytes);
    }
    if let Ok(acknowledgement) = Acknowledgement::decode(bytes) {
        assert_eq!(acknowledgement.encode(), bytes);
    }
}
