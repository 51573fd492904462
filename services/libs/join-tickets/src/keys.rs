//! Keys and secrets that follow from a cluster's master secret by HKDF-SHA-256 (RFC 5869), so that none has to be kept.
//!
//! | purpose | input | salt | info |
//! |---|---|---|---|
//! | state disk key | master secret | master salt | `key-`, the disk's UUID in lower case, and, if it has one, `/` and its generation |
//! | measurement secret | master secret | master salt | `key-measurementSecret` |
//! | measurement salt | master secret | master salt | `key-measurementSalt` |
//! | seed of the key that signs for the second key of a disk | master secret | master salt | `key-local-unlock/`, the disk's UUID, `/`, its generation, if it has one, `/` and the id of the second key |
//! | seed of the SSH authority | master secret | master salt | `key-ca_emergency_ssh` |
//! | node password (k3s) | master secret | master salt | `key-node-password/` and the endorsement key's hash |
//! | join token | master secret | master salt | `key-join-token/`, request and evidence hash; 64 bytes: `/1` and `/2` behind it |
//! | keys of join issuers | master secret | master salt | `key-join-issuer/` and the number of the epoch |
//! | cluster id | measurement secret | measurement salt | `key-clusterID` |
//!
//! All others are 32 bytes. No caller chooses an info freely: a UUID and a hash in their one written form are not another purpose's name.

use std::fmt;

use aws_lc_rs::hmac;
use uuid::Uuid;
use zeroize::Zeroizing;

/// The fewest bytes of a master secret.
pub const MASTER_SECRET_BYTES_MIN: usize = 16;
/// The fewest bytes of its salt.
pub const MASTER_SALT_BYTES_MIN: usize = 32;

/// 32 bytes that must not be shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Zeroizing<[u8; 32]>);

impl Secret {
    /// From bytes.
    #[must_use]
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// The bytes, to be put into a sealed ticket or handed to a disk.
    #[must_use]
    pub fn expose(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Why bytes are not a master secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MasterSecretError {
    /// The secret is too short.
    #[error("master secret has {0} bytes, and at least {MASTER_SECRET_BYTES_MIN} are needed")]
    Secret(usize),
    /// The salt is too short.
    #[error("master salt has {0} bytes, and at least {MASTER_SALT_BYTES_MIN} are needed")]
    Salt(usize),
}

/// The master secret of a cluster with its salt. It never leaves the join service.
#[derive(Clone)]
pub struct MasterSecret {
    secret: Zeroizing<Vec<u8>>,
    salt: Vec<u8>,
}

impl fmt::Debug for MasterSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MasterSecret(..)")
    }
}

impl MasterSecret {
    /// From bytes.
    ///
    /// # Errors
    /// Too few bytes.
    pub fn new(secret: Vec<u8>, salt: Vec<u8>) -> Result<Self, MasterSecretError> {
        let secret = Zeroizing::new(secret);
        if secret.len() < MASTER_SECRET_BYTES_MIN {
            return Err(MasterSecretError::Secret(secret.len()));
        }
        if salt.len() < MASTER_SALT_BYTES_MIN {
            return Err(MasterSecretError::Salt(salt.len()));
        }
        Ok(Self { secret, salt })
    }

    /// Opens the state disk with that LUKS UUID. `generation`: what was drawn when the disk was formatted, so that a disk that is formatted again has another key; None: a disk that was formatted without one.
    #[must_use]
    pub fn state_disk_key(&self, disk: Uuid, generation: Option<&[u8; 16]>) -> Secret {
        match generation {
            None => self.derive(&format!("key-{}", disk.hyphenated())),
            Some(generation) => self.derive(&format!("key-{}/{}", disk.hyphenated(), hex::encode(generation))),
        }
    }

    /// Seed of the P-256 key that signs values of PCRs for one second key of a disk ([`crate::unlock`] says how).
    #[must_use]
    pub fn local_unlock_seed(&self, disk: Uuid, generation: Option<&[u8; 16]>, id: &[u8; 16]) -> Secret {
        let generation = generation.map(hex::encode).unwrap_or_default();
        self.derive(&format!("key-local-unlock/{}/{generation}/{}", disk.hyphenated(), hex::encode(id)))
    }

    /// With the salt it makes the cluster's id, which a host extends its lock PCR with.
    #[must_use]
    pub fn measurement_secret(&self) -> Secret {
        self.derive("key-measurementSecret")
    }

    /// Salt of the cluster's id. No secret, but of no use to others.
    #[must_use]
    pub fn measurement_salt(&self) -> [u8; 32] {
        *self.derive("key-measurementSalt").expose()
    }

    /// Seed of the Ed25519 key that certifies hosts' SSH keys: the master secret suffices to derive it again.
    #[must_use]
    pub fn ssh_authority_seed(&self) -> Secret {
        self.derive("key-ca_emergency_ssh")
    }

    /// The password by which a k3s server knows a host again, also after its disk was wiped. `ek_hash` is the hash of the host's endorsement key.
    #[must_use]
    pub fn node_password(&self, ek_hash: &[u8; 32]) -> Secret {
        self.derive(&format!("key-node-password/{}", hex::encode(ek_hash)))
    }

    /// What the join token of one request is made of. A replica that takes a request over makes the same token again, and no second one.
    #[must_use]
    pub fn join_token(&self, request: &[u8; 16], evidence_hash: &[u8; 32]) -> Zeroizing<[u8; 64]> {
        let info = format!("key-join-token/{}/{}", hex::encode(request), hex::encode(evidence_hash));
        let mut bytes = Zeroizing::new([0; 64]);
        bytes[..32].copy_from_slice(self.derive(&format!("{info}/1")).expose());
        bytes[32..].copy_from_slice(self.derive(&format!("{info}/2")).expose());
        bytes
    }

    /// Secret of the keys that all replicas of the join service share in one epoch.
    #[must_use]
    pub fn issuer_epoch(&self, epoch: u32) -> Secret {
        self.derive(&format!("key-join-issuer/{epoch}"))
    }

    fn derive(&self, info: &str) -> Secret {
        derive(&self.secret, &self.salt, info)
    }
}

/// The id of a cluster: what a host extends its lock PCR with.
#[must_use]
pub fn cluster_id(measurement_secret: &Secret, measurement_salt: &[u8]) -> [u8; 32] {
    *derive(measurement_secret.expose(), measurement_salt, "key-clusterID").expose()
}

/// HKDF for exactly one block of output, which cannot fail: extract, then the first step of expand.
fn derive(input: &[u8], salt: &[u8], info: &str) -> Secret {
    let key = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, salt), input);
    let block = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key.as_ref()), &[info.as_bytes(), &[1]].concat());
    let mut output = Zeroizing::new([0; 32]);
    output.copy_from_slice(block.as_ref());
    Secret(output)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn master(secret: &[u8], salt: &[u8]) -> MasterSecret {
        MasterSecret::new(secret.to_vec(), salt.to_vec()).unwrap()
    }

    fn ascending(from: u8) -> Vec<u8> {
        (from..from + 32).collect()
    }

    #[test]
    fn keys_are_those_of_published_vectors() {
        let text = |secret: Secret| hex::encode(secret.expose());
        let ascending_master = master(&ascending(0x40), &ascending(0x60));
        assert_eq!(
            text(ascending_master.measurement_secret()),
            "4790578891f3fe6cc22cb661ecdc1b7e33121b1287546a52ba33a9136719c213"
        );
        assert_eq!(
            text(ascending_master.ssh_authority_seed()),
            "fa46e4673f1b438bf3dae6f29e7fe02000665d09622a10a0578b4f831663f382"
        );
        assert_eq!(
            text(master(&[0; 32], &[0; 32]).state_disk_key(Uuid::nil(), None)),
            "2b5c829f691bfd4232f8aac464bccc07e605c7c8e82cbca09837e86d0b6d0665"
        );
        assert_eq!(
            text(master(&[0xff; 32], &[0xff; 32]).state_disk_key(Uuid::max(), None)),
            "1484aa39d3415e906e07940ff215d8b1eee705d3027dba93306af4abff4f70be"
        );
        let secret = Secret::new(ascending(0).try_into().unwrap());
        assert_eq!(
            hex::encode(cluster_id(&secret, &ascending(0x20))),
            "128c164378fe8767f998fbdfe4b4d6463ec5ae1b664ea5999bc27417607ae9b6"
        );
    }

    #[test]
    fn every_purpose_has_a_key_of_its_own() {
        let master = master(&[1; 16], &[2; 32]);
        let keys = [
            master.measurement_secret(),
            Secret::new(master.measurement_salt()),
            master.ssh_authority_seed(),
            master.state_disk_key(Uuid::nil(), None),
            master.state_disk_key(Uuid::max(), None),
            master.state_disk_key(Uuid::max(), Some(&[0; 16])),
            master.state_disk_key(Uuid::max(), Some(&[1; 16])),
            master.state_disk_key(Uuid::nil(), Some(&[1; 16])),
            master.local_unlock_seed(Uuid::nil(), None, &[1; 16]),
            master.local_unlock_seed(Uuid::max(), None, &[1; 16]),
            master.local_unlock_seed(Uuid::nil(), None, &[2; 16]),
            master.local_unlock_seed(Uuid::nil(), Some(&[1; 16]), &[1; 16]),
            master.node_password(&[0; 32]),
            master.node_password(&[1; 32]),
            master.issuer_epoch(1),
            master.issuer_epoch(2),
            Secret::new(master.join_token(&[0; 16], &[0; 32])[..32].try_into().unwrap()),
            Secret::new(master.join_token(&[0; 16], &[0; 32])[32..].try_into().unwrap()),
            Secret::new(master.join_token(&[0; 16], &[1; 32])[..32].try_into().unwrap()),
            Secret::new(master.join_token(&[1; 16], &[0; 32])[..32].try_into().unwrap()),
        ];
        for (at, key) in keys.iter().enumerate() {
            assert!(keys[..at].iter().all(|other| other != key), "{at}");
        }
    }

    #[test]
    fn short_secrets_are_refused_and_none_is_shown() {
        let error = |secret, salt| MasterSecret::new(vec![7; secret], vec![7; salt]).unwrap_err().to_string();
        assert_eq!(error(15, 32), "master secret has 15 bytes, and at least 16 are needed");
        assert_eq!(error(16, 31), "master salt has 31 bytes, and at least 32 are needed");
        assert_eq!(
            format!("{:?} {:?}", master(&[7; 16], &[7; 32]), Secret::new([7; 32])),
            "MasterSecret(..) Secret(..)"
        );
    }
}
