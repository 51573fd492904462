//! By which passwords clusters read, as digests: the server compares them, and holds none.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use aws_lc_rs::constant_time;
use aws_lc_rs::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use uuid::Uuid;

/// SHA-256 of a password. It keeps a password secret that has the randomness of a key (32 bytes), and no password that people choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PasswordDigest([u8; SHA256_OUTPUT_LEN]);

impl PasswordDigest {
    /// The digest of a password.
    #[must_use]
    pub fn of(password: &str) -> Self {
        let mut bytes = [0; SHA256_OUTPUT_LEN];
        bytes.copy_from_slice(digest(&SHA256, password.as_bytes()).as_ref());
        Self(bytes)
    }

    /// A digest that was made elsewhere.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; SHA256_OUTPUT_LEN]) -> Self {
        Self(bytes)
    }

    fn is_of(&self, password: &str) -> bool {
        constant_time::verify_slices_are_equal(&self.0, &Self::of(password).0).is_ok()
    }
}

/// The digest of each cluster that may read. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct PasswordDigests(Arc<RwLock<BTreeMap<Uuid, PasswordDigest>>>);

impl PasswordDigests {
    /// The cluster reads by the password of that digest, and by no other.
    pub fn insert(&self, cluster: Uuid, digest: PasswordDigest) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(cluster, digest);
    }

    /// The cluster reads no more.
    pub fn remove(&self, cluster: Uuid) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(&cluster);
    }

    /// Whether that is the password of a cluster. The time that this takes does not depend on the password that is right.
    #[must_use]
    pub fn is_password(&self, cluster: Uuid, password: &str) -> bool {
        let expected = self.0.read().unwrap_or_else(PoisonError::into_inner).get(&cluster).copied();
        expected.is_some_and(|digest| digest.is_of(password))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Uuid = Uuid::from_u128(0xA);
    const B: Uuid = Uuid::from_u128(0xB);

    #[test]
    fn a_cluster_reads_by_its_last_password_alone_until_it_is_removed() {
        let digests = PasswordDigests::default();
        assert!(!digests.is_password(A, ""), "no cluster reads before it has a password");
        digests.insert(A, PasswordDigest::of("geheim"));
        let of_server = digests.clone();
        assert!(of_server.is_password(A, "geheim"));
        for (cluster, password) in [(A, "Geheim"), (A, "geheim "), (A, "gehei"), (A, ""), (B, "geheim"), (B, "")] {
            assert!(!of_server.is_password(cluster, password), "{cluster} {password:?}");
        }
        digests.insert(A, PasswordDigest::of("other"));
        assert!(of_server.is_password(A, "other") && !of_server.is_password(A, "geheim"));
        digests.remove(A);
        assert!(!of_server.is_password(A, "other"));
    }

    #[test]
    fn no_password_is_in_what_is_held() {
        let digests = PasswordDigests::default();
        digests.insert(A, PasswordDigest::of("abc"));
        // FIPS 180-4, the first example.
        let expected = hex_of(&PasswordDigest::of("abc"));
        assert_eq!(expected, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert!(!format!("{digests:?}").contains("abc"));
    }

    fn hex_of(digest: &PasswordDigest) -> String {
        digest.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}
