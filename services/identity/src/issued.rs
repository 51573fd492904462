//! What Identity itself remembers of what it has issued, beside ConfigDB.
//!
//! ConfigDB has the record that people see. A ConfigDB that was restored from a backup has an older one: a token would be unused again, a revoked certificate valid, and a serial number
//! would be given twice. So what was once recorded is merged into what ConfigDB has, and never taken back.

use configdb_contract::ConfigReplica;
use configdb_schema::document::{CertificateState, EdgeClusterIdentity, IssuedCertificate, UsedToken};
use configdb_schema::timestamp;
use serde::{Deserialize, Serialize};
use sparkplug::replication::Origin;

/// How long after its use a token is remembered whose certificates have all ended: longer than any token can be presented.
const TOKEN_REMEMBERED_MS: u64 = 32 * 24 * 3600 * 1000;

/// What was issued to one cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Issued {
    /// State of the store that had this record, as [`Origin`]; None: the store did not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// Tokens that were used.
    #[serde(default)]
    pub tokens: Vec<UsedToken>,
    /// Certificates, the oldest first.
    #[serde(default)]
    pub certificates: Vec<IssuedCertificate>,
}

const fn rank(state: CertificateState) -> u8 {
    match state {
        CertificateState::Valid => 0,
        CertificateState::Renewed => 1,
        CertificateState::Revoked => 2,
    }
}

impl Issued {
    /// As an entry of that state of the store records it.
    #[must_use]
    pub fn of(identity: &EdgeClusterIdentity, origin: Option<Origin>) -> Self {
        let origin = origin.map(|origin| origin.to_string());
        Self { origin, tokens: identity.tokens.clone(), certificates: identity.certificates.clone() }
    }

    /// Whether an entry records the same.
    #[must_use]
    pub fn is_as(&self, identity: &EdgeClusterIdentity) -> bool {
        self.tokens == identity.tokens && self.certificates == identity.certificates
    }

    /// Adds to an entry what it does not know any more; a state never goes back.
    pub fn merge_into(&self, identity: &mut EdgeClusterIdentity) {
        for token in &self.tokens {
            match identity.tokens.iter_mut().find(|known| known.hash == token.hash) {
                // The first user is the one that counts.
                Some(known) => known.clone_from(token),
                None => identity.tokens.push(token.clone()),
            }
        }
        let mut is_longer = false;
        for certificate in &self.certificates {
            match identity.certificates.iter_mut().find(|known| known.serial == certificate.serial) {
                Some(known) if rank(known.state) < rank(certificate.state) => known.state = certificate.state,
                Some(_) => {}
                None => {
                    identity.certificates.push(certificate.clone());
                    is_longer = true;
                }
            }
        }
        if is_longer {
            identity.certificates.sort_by(|a, b| a.issued.cmp(&b.issued));
        }
    }

    /// A certificate counts until it expires.
    #[must_use]
    pub fn has_valid(&self) -> bool {
        self.certificates.iter().any(|one| one.state != CertificateState::Revoked)
    }

    /// Revokes everything.
    pub fn revoke_all(&mut self) {
        self.certificates.iter_mut().for_each(|one| one.state = CertificateState::Revoked);
    }

    /// Revoked certificates: serial number, and when it ends.
    pub fn revoked(&self) -> impl Iterator<Item = (&str, &str)> {
        let revoked = self.certificates.iter().filter(|one| one.state == CertificateState::Revoked);
        revoked.map(|one| (&*one.serial, &*one.expires))
    }

    /// Nothing of it matters any longer.
    #[must_use]
    pub fn is_over(&self, now_ms: u64) -> bool {
        let is_past = |text: &str, after: u64| {
            timestamp::from_text(text).is_some_and(|time| time.saturating_add(after) <= now_ms)
        };
        self.certificates.iter().all(|one| is_past(&one.expires, 0))
            && self.tokens.iter().all(|one| is_past(&one.used, TOKEN_REMEMBERED_MS))
    }

    /// Whether this store has had the record, so that what is absent in it was deleted, and is not merely unknown to an older state.
    #[must_use]
    pub fn is_contained_in(&self, config: &ConfigReplica) -> bool {
        let Some(origin) = self.origin.as_ref().and_then(|text| text.parse::<Origin>().ok()) else { return false };
        config.follows(origin).is_some_and(|point| point.revision >= origin.point.revision)
    }
}
