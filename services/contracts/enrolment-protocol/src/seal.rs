//! Sealing and every hash. HPKE (RFC 9180) in the join protocol's suite with X-Wing: what a later quantum computer opens is not a secret, and a git password is among it.

use join_protocol::seal::Binding;
pub(crate) use join_protocol::seal::{KeyPair, SealError, Sealed};
use join_protocol::secret::Secret;
use join_protocol::terms::Suite;
use join_protocol::transcript::{Hash, hash};
use uuid::Uuid;
use zeroize::Zeroizing;

const SUITE: Suite = Suite::XWing;
const PSK_ID: &[u8] = b"enrol1 answer";

fn binding<'a>(info: &Hash, psk: Option<&'a Secret>) -> Binding<'a> {
    Binding { info: *info, additional_data: *info, psk: psk.map(|psk| (psk, PSK_ID)) }
}

/// A key pair to receive sealed messages with, derived from `seed` alone.
pub(crate) fn key_pair(seed: &Secret) -> KeyPair {
    KeyPair::derive(SUITE, seed)
}

/// Opens what was sealed to this pair with the same info, and with the same secret where there is one.
pub(crate) fn open(
    pair: &KeyPair,
    encapsulated_key: &[u8],
    ciphertext: &[u8],
    info: &Hash,
    psk: Option<&Secret>,
) -> Result<Zeroizing<Vec<u8>>, SealError> {
    pair.open(encapsulated_key, ciphertext, &binding(info, psk))
}

/// True if the bytes can be a public key.
pub(crate) fn is_public_key(bytes: &[u8]) -> bool {
    join_protocol::seal::is_public_key(SUITE, bytes)
}

/// Seals to a public key. The randomness is that of the secret and of all that goes in, so that different texts never share a key.
pub(crate) fn seal(
    public: &[u8],
    plaintext: &[u8],
    info: &Hash,
    psk: Option<&Secret>,
    secret: &Secret,
) -> Result<Sealed, SealError> {
    let randomness = secret.derive("enrol1 seal", &hash("enrol1/s", &[public, info, plaintext]));
    join_protocol::seal::seal(SUITE, public, plaintext, &binding(info, psk), randomness)
}

/// HPKE info of a request: which cluster asks, and which key it pins.
pub(crate) fn request_info(cluster: Uuid, identity_key: &[u8]) -> Hash {
    hash("enrol1/1", &[cluster.as_bytes(), identity_key])
}

/// What the key that shall be certified signs.
pub(crate) fn proof(cluster: Uuid, token: &str, public_key: &[u8], answer_key: &[u8], answer_secret: &[u8]) -> Hash {
    hash("enrol1/p", &[cluster.as_bytes(), token.as_bytes(), public_key, answer_key, answer_secret])
}

/// What a cluster proves to be by the certificate that it has.
pub(crate) struct Predecessor<'a> {
    /// Its serial number.
    pub serial: &'a [u8],
    /// Its key.
    pub public_key: &'a [u8],
}

/// What the key that shall be certified and that of the certificate before it both sign. `identity_key`: the recipient.
pub(crate) fn renewal_proof(
    cluster: Uuid,
    identity_key: &[u8],
    predecessor: &Predecessor<'_>,
    public_key: &[u8],
    answer_key: &[u8],
    answer_secret: &[u8],
) -> Hash {
    let Predecessor { serial, public_key: old } = predecessor;
    hash("enrol1/n", &[cluster.as_bytes(), identity_key, serial, old, public_key, answer_key, answer_secret])
}

/// HPKE info of the login of a cluster's repository. `identity_key`: the recipient.
pub(crate) fn login_info(cluster: Uuid, identity_key: &[u8]) -> Hash {
    hash("enrol1/l", &[cluster.as_bytes(), identity_key])
}

/// Id of a request: the hash of its bytes.
pub(crate) fn request_id(request: &[u8]) -> Hash {
    hash("enrol1/r", &[request])
}

/// HPKE info of an answer: the request that it answers.
pub(crate) fn answer_info(request: &Hash) -> Hash {
    hash("enrol1/2", &[request])
}
