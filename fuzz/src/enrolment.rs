//! Enrolment of clusters: no bytes make Identity or the cluster panic, none of them opens what was not sealed for it, and a token is read back as itself.
//!
//! Apart from the other targets, because a test of `enrolment-protocol` includes this file by its path.

use enrolment_protocol::cluster::{Draft, Request, Seed};
use enrolment_protocol::identity::IdentityKeyPair;
use enrolment_protocol::token::Token;
use uuid::Uuid;

/// A fuzz target: its name, which is that of its folder of seeds, too, and what it does with bytes.
pub type Target = (&'static str, fn(&[u8]));

/// All of them.
pub const TARGETS: [Target; 1] = [("enrolment", enrolment)];

const CLUSTER: Uuid = Uuid::from_u128(0xc1);

/// A request to Identity whose signature is `signature`, and Identity.
fn exchange(signature: [u8; 64]) -> (IdentityKeyPair, Request) {
    let identity = IdentityKeyPair::new([9; 32]);
    let (token, seed, key) = (Token::new([1; 32]), Seed::new([2; 32]), identity.public());
    // A point of P-256 need not be one before its signature is verified.
    let draft = Draft::new(CLUSTER, &token, [4; 65], &key, &seed);
    let request = draft.seal(signature).expect("a good key of Identity");
    (identity, request)
}

/// Bytes as a request, as an answer, as a change of a good request, as what is sealed in one, and as a token.
pub fn enrolment(bytes: &[u8]) {
    let signature = std::array::from_fn(|n| bytes.get(n).copied().unwrap_or_default());
    let (identity, request) = exchange(signature);
    assert!(identity.open(CLUSTER, &request.bytes).is_err(), "its key did not sign it");
    assert!(identity.open(CLUSTER, bytes).is_err());
    assert!(request.open(bytes).is_err(), "only Identity makes answers");
    let mut changed = request.bytes.clone();
    for pair in bytes.chunks_exact(3) {
        let position = usize::from(u16::from_be_bytes([pair[0], pair[1]])) % changed.len();
        changed[position] ^= pair[2];
    }
    assert!(identity.open(CLUSTER, &changed).is_err());
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Ok(token) = Token::parse(text)
    {
        assert!(Token::exact(token.expose()).is_ok_and(|again| again.expose() == token.expose()));
    }
}
