//! Where keys come from. A provider gives the keys of one cluster and nothing else; the caller decides which host gets which.

use std::fmt;

use join_attestation::EkHash;
use join_protocol::secret::Secret;
use join_protocol::terms::RequestId;
use join_protocol::transcript::Hash;
use join_tickets::keys::MasterSecret;
use join_tickets::kubeadm::BootstrapToken;
use join_tickets::ssh::{SshAuthority, SshError};
use uuid::Uuid;

use crate::unlock_key::{UnlockError, UnlockKey};

/// Makes the keys of a cluster. The same question always has the same answer, on every replica.
///
/// An implementation has to keep purposes apart: no answer to one question may be an answer to another.
pub trait KeyProvider: fmt::Debug + Send + Sync {
    /// Opens the state disk with that UUID and generation.
    fn state_disk_key(&self, disk: Uuid, generation: Option<&[u8; 16]>) -> Secret;
    /// Signs values of PCRs for the second key of that disk with that id.
    ///
    /// # Errors
    /// It cannot be made.
    fn unlock_key(&self, disk: Uuid, generation: Option<&[u8; 16]>, id: &[u8; 16]) -> Result<UnlockKey, UnlockError>;
    /// What the cluster id follows from, and its salt.
    fn measurement(&self) -> (Secret, Secret);
    /// Password by which a k3s server knows a host again.
    fn node_password(&self, ek: &EkHash) -> Secret;
    /// The join token of a request. None is rarer than one in 10^40.
    fn join_token(&self, request: RequestId, evidence_hash: &Hash) -> Option<BootstrapToken>;
    /// Secret of the keys that all replicas share in an epoch.
    fn issuer_epoch(&self, epoch: u32) -> Secret;
    /// Certifies SSH keys of hosts.
    ///
    /// # Errors
    /// It cannot be made.
    fn ssh_authority(&self) -> Result<SshAuthority, SshError>;
}

/// Derives every key from a master secret by HKDF.
#[derive(Debug, Clone)]
pub struct DerivedKeys(MasterSecret);

impl DerivedKeys {
    /// From the master secret.
    #[must_use]
    pub const fn new(master: MasterSecret) -> Self {
        Self(master)
    }
}

fn secret(secret: &join_tickets::keys::Secret) -> Secret {
    Secret::new(*secret.expose())
}

impl KeyProvider for DerivedKeys {
    fn state_disk_key(&self, disk: Uuid, generation: Option<&[u8; 16]>) -> Secret {
        secret(&self.0.state_disk_key(disk, generation))
    }

    fn unlock_key(&self, disk: Uuid, generation: Option<&[u8; 16]>, id: &[u8; 16]) -> Result<UnlockKey, UnlockError> {
        UnlockKey::from_seed(&self.0.local_unlock_seed(disk, generation, id))
    }

    fn measurement(&self) -> (Secret, Secret) {
        (secret(&self.0.measurement_secret()), Secret::new(self.0.measurement_salt()))
    }

    fn node_password(&self, ek: &EkHash) -> Secret {
        secret(&self.0.node_password(ek))
    }

    fn join_token(&self, request: RequestId, evidence_hash: &Hash) -> Option<BootstrapToken> {
        BootstrapToken::from_random(&self.0.join_token(&request.0, evidence_hash))
    }

    fn issuer_epoch(&self, epoch: u32) -> Secret {
        secret(&self.0.issuer_epoch(epoch))
    }

    fn ssh_authority(&self) -> Result<SshAuthority, SshError> {
        SshAuthority::from_seed(&self.0.ssh_authority_seed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_of_a_request_are_the_same_on_every_replica_and_others_for_other_requests() {
        let keys = || DerivedKeys::new(MasterSecret::new(vec![7; 32], vec![8; 32]).unwrap());
        let token = |request: u8, evidence: u8| keys().join_token(RequestId([request; 16]), &[evidence; 32]).unwrap();
        assert_eq!(token(1, 1), token(1, 1));
        assert!(token(1, 1) != token(2, 1) && token(1, 1) != token(1, 2));
        assert_ne!(keys().state_disk_key(Uuid::from_u128(1), None), keys().state_disk_key(Uuid::from_u128(2), None));
        assert_eq!(format!("{:?}", keys()), "DerivedKeys(MasterSecret(..))");
    }
}
