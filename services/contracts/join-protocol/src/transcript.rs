//! Every hash of the protocol. Each is SHA-256 over a label and fields, each with its length (4 bytes, big endian) before it; no two uses have the same label.
//!
//! Messages are hashed byte by byte as they travelled, never as they would be encoded again.

use aws_lc_rs::digest::{Context, SHA256};

use crate::limits::HASH_BYTES;
use crate::terms::{Address, Kind, RequestId, Role};

/// A SHA-256 hash.
pub type Hash = [u8; HASH_BYTES];

/// SHA-256 over the label and the fields, each with its length before it.
#[must_use]
pub fn hash(label: &str, fields: &[&[u8]]) -> Hash {
    let mut context = Context::new(&SHA256);
    for field in [label.as_bytes()].iter().chain(fields) {
        // A field is a part of a message, which is measured before: 4 bytes always hold its length.
        let length = u32::try_from(field.len()).unwrap_or(u32::MAX);
        context.update(&length.to_be_bytes());
        context.update(field);
    }
    let mut hash = [0; HASH_BYTES];
    hash.copy_from_slice(context.finish().as_ref());
    hash
}

/// Transcript after the hello.
#[must_use]
pub fn after_hello(hello: &[u8]) -> Hash {
    hash("ajp1/1", &[hello])
}

/// What the cookie of a challenge authenticates.
#[must_use]
pub fn cookie_input(th1: &Hash, challenge_body: &[u8]) -> Hash {
    hash("ajp1/2c", &[th1, challenge_body])
}

/// What the signature of a challenge signs.
#[must_use]
pub fn challenge_signed(th1: &Hash, challenge_body: &[u8], cookie: &[u8]) -> Hash {
    hash("ajp1/2", &[th1, challenge_body, cookie])
}

/// Transcript after the challenge.
#[must_use]
pub fn after_challenge(th1: &Hash, challenge: &[u8]) -> Hash {
    hash("ajp1/2t", &[th1, challenge])
}

/// What the secret of a credential is derived over.
#[must_use]
pub fn credential_input(th1: &Hash, issuer_nonce: &[u8]) -> Hash {
    hash("ajp1/2s", &[th1, issuer_nonce])
}

/// What the randomness of a credential's wrapping is derived over.
#[must_use]
pub fn credential_wrapping_input(th1: &Hash, issuer_nonce: &[u8]) -> Hash {
    hash("ajp1/2w", &[th1, issuer_nonce])
}

/// HPKE info of the evidence.
#[must_use]
pub fn evidence_info(th2: &Hash) -> Hash {
    hash("ajp1/3", &[th2])
}

/// HPKE additional data of evidence, ticket and result: who speaks about which request.
#[must_use]
pub fn additional_data(address: &Address, request: RequestId) -> Hash {
    hash("ajp1/a", &[address.group.as_bytes(), address.node.as_bytes(), &request.0])
}

/// What the proof under the activated credential authenticates.
#[must_use]
pub fn proof_input(th2: &Hash, host_key: &[u8], body: &[u8], quote: &[u8]) -> Hash {
    hash("ajp1/3p", &[th2, host_key, body, quote])
}

/// Qualifying data of the first quote.
#[must_use]
pub fn qualifying_data(
    th2: &Hash,
    host_key: &[u8],
    body: &[u8],
    issuer_public_key: &[u8],
    role: Role,
    kind: Kind,
) -> Hash {
    let (role, kind) = (role.to_wire().to_be_bytes(), kind.to_wire().to_be_bytes());
    hash("ajp1/q", &[th2, host_key, body, issuer_public_key, &role, &kind])
}

/// Transcript after the evidence.
#[must_use]
pub fn after_evidence(th2: &Hash, evidence: &[u8]) -> Hash {
    hash("ajp1/3t", &[th2, evidence])
}

/// HPKE info of the ticket.
#[must_use]
pub fn ticket_info(th3: &Hash) -> Hash {
    hash("ajp1/4", &[th3])
}

/// What the acknowledgement key is derived over.
#[must_use]
pub fn acknowledgement_key_input(th3: &Hash) -> Hash {
    hash("ajp1/4k", &[th3])
}

/// Transcript after the ticket, which its signature signs.
#[must_use]
pub fn after_ticket(th3: &Hash, ticket_body: &[u8]) -> Hash {
    hash("ajp1/4t", &[th3, ticket_body])
}

/// What the signature of a clear refusal signs.
#[must_use]
pub fn clear_refusal_signed(th1: &Hash, body: &[u8]) -> Hash {
    hash("ajp1/r", &[th1, body])
}

/// Qualifying data of the second quote, which shows the lock.
#[must_use]
pub fn second_qualifying_data(th4: &Hash) -> Hash {
    hash("ajp1/q2", &[th4])
}

/// What the code of a progress authenticates.
#[must_use]
pub fn progress_input(th4: &Hash, body: &[u8]) -> Hash {
    hash("ajp1/5p", &[th4, body])
}

/// What the code of an acknowledgement authenticates.
#[must_use]
pub fn acknowledgement_input(th4: &Hash, body: &[u8]) -> Hash {
    hash("ajp1/5a", &[th4, body])
}

/// HPKE info of the result of an init.
#[must_use]
pub fn result_info(th4: &Hash) -> Hash {
    hash("ajp1/6", &[th4])
}

/// What the signature of an issuer certificate signs.
#[must_use]
pub fn certificate_signed(body: &[u8]) -> Hash {
    hash("ajp1/c", &[body])
}

/// Id of an endorsement key, as bytes of its variant: records distinguish hosts by it. Each variant decides what its enrolment lists hold.
#[must_use]
pub fn endorsement_key_id(endorsement_key: &[u8]) -> Hash {
    hash("ajp1/ek", &[endorsement_key])
}
