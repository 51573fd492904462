//! Known answers: the hashes of the protocol, computed with another implementation (Python's hashlib). The bytes of whole messages are pinned by the seeds of the fuzz targets (`decode.rs`).

use crate::support;

use std::collections::BTreeSet;

use join_protocol::terms::{Address, Kind, RequestId, Role};
use join_protocol::transcript::*;
use support::*;
use uuid::Uuid;

const H1: Hash = [1; 32];
const H2: Hash = [2; 32];
const H3: Hash = [3; 32];
const H4: Hash = [4; 32];

#[test]
fn every_hash_is_that_of_another_implementation() {
    let address = Address::of_disk("ACME-Cell-Join", Uuid::from_u128(7));
    let known = [
        (after_hello(b"hello"), "47827be187455a1e7099595eaeea848ecaefe9cf406b8012a454d2a97089baa1"),
        (cookie_input(&H1, b"body"), "be744e993083698d33315f0e26d863fb16cf44248736d32d86c02e004681364b"),
        (challenge_signed(&H1, b"body", &H2), "869ed1eb537969a96d149c78c990f3e510f1a60259238fc0758c96b735efb975"),
        (after_challenge(&H1, b"challenge"), "17bd2234dd2303632ac40d5f80b369dc6cf73b339b6e9fc4c91dfa3441da3cef"),
        (credential_input(&H1, &H2), "4119045f3d8a6fc290ff39fed992af4f9549f9ffd019653bb95852a5421a5554"),
        (credential_wrapping_input(&H1, &H2), "3fd48a7d900a70b4d1c61b34580e3a52397ec2bb95f0316a7c789f0780f065cf"),
        (evidence_info(&H2), "27ffd31ee6f999fe061fcfcf10b4c41baeea8e8bb8cbbb6f624a4419c8ad2e60"),
        (
            additional_data(&address, RequestId([9; 16])),
            "25152e0daa8f50450f0857a5ba7b5c6ec0babdb8d9098baf175ed3014a89ee33",
        ),
        (
            proof_input(&H2, b"key", b"body", b"quote"),
            "92d44dbc2a77118190d187f83d765966174014b666e93028bcbe2845e6d7a62b",
        ),
        (
            qualifying_data(&H2, b"key", b"body", &H4, Role::ControlPlane, Kind::Rejoin),
            "9ace8792ba95f1935157520e38572afbf0ea1e242d2bac9023688dfdf974e924",
        ),
        (after_evidence(&H2, b"evidence"), "ce76a643c4d550f01cb8ed74397319edd6319cd82ae8c40db55bc3aff6c6ae9e"),
        (ticket_info(&H3), "f152343f4aaca3a14495f5006743776347982271a571535e50bdcd27362a08b9"),
        (acknowledgement_key_input(&H3), "5883bed0f9d012548cb24fa8751f126ab4edbb3e4fedccaa441b085e38337549"),
        (after_ticket(&H3, b"body"), "47b5b56ead2ff63d67a01c70a20968bf75047500b5392f045a9b5077d3042649"),
        (clear_refusal_signed(&H1, b"body"), "ed5368ab16f7d11206eb54c3234f9ed54f87add4304a51ef6ff6258bd7ced8dd"),
        (second_qualifying_data(&H4), "c60a7f6639e18bf7d25c91a56c9f1999e2b894ccc0805098d8c575cc7ddee608"),
        (progress_input(&H4, b"body"), "91af014118fed9f9c3aadb7005616983e50d9ba1fcbe4df4d01c7f4342f453d7"),
        (acknowledgement_input(&H4, b"body"), "04fa45f32517a843b1dc2ecaae2c0441b7c6bb9e80b75f9d4bd013e5771f0699"),
        (result_info(&H4), "9dde3094ce4200967379d7f7dee5e4ef76bfd4542cffb409b9135703769d358e"),
        (certificate_signed(b"body"), "3feda44eed5980db7aaab2d8111a80832f96617e4818b1d9b855c7867b35c8ab"),
        (endorsement_key_id(b"key"), "4acbebe28770b07ff9f4cd2b08580d38be74867e38d6a7bcc026f1272d391371"),
    ];
    for (at, (hash, known)) in known.iter().enumerate() {
        assert_eq!(hex::encode(hash), *known, "row {at}");
    }
    let different: BTreeSet<_> = known.iter().map(|(hash, _)| hash).collect();
    assert_eq!(different.len(), known.len(), "no two uses share a hash");
}

#[test]
fn fields_cannot_be_moved_across_their_borders() {
    let hashes = [
        hash("l", &[b"ab", b"c"]),
        hash("l", &[b"a", b"bc"]),
        hash("l", &[b"abc"]),
        hash("l", &[b"abc", b""]),
        hash("la", &[b"bc"]),
    ];
    assert_eq!(hashes.iter().collect::<BTreeSet<_>>().len(), hashes.len());
}

#[test]
fn what_a_host_draws_for_one_attempt_is_repeatable_and_differs_between_attempts() {
    assert_eq!(host(1).hello(1).message(), host(1).hello(1).message(), "time and randomness are arguments");
    assert_ne!(host(1).hello(1).request(), host(1).hello(2).request());
}
