//! The key that signs attestation policies, on the operator's machine: ConfigDB, cluster manager and broker only carry what it signed.

use anyhow::{Context as _, anyhow};
use configdb_schema::document::AttestationPolicy;
use join_attestation::signed::{self, Claims, SignatureError};
use join_protocol::certificate::{IssuerCertificate, PublicKey, SigningKey, TrustAnchor};
use join_protocol::terms::{HostClock, Purpose};
use service_runtime::exit;
use std::path::{Path, PathBuf};
use uuid::Uuid;

use crate::arguments::joining::SignerArguments;
use join_trust::files as trust;

/// Where `sparkfleet up` keeps its own, with its default data directory.
const UP_TRUST: &str = ".sparkfleet/trust";
const DAY_MS: u64 = 86_400_000;

/// Signs the policies of one cluster.
#[derive(Debug)]
pub struct Signer {
    key: SigningKey,
    certificates: Vec<Vec<u8>>,
    anchor: TrustAnchor,
    not_after_ms: u64,
    serial: Option<u64>,
}

impl Signer {
    /// Reads the key of the cluster's signer.
    ///
    /// # Errors
    /// With [`exit::CONFIG`] if a file is missing or wrong, or the key is not certified for this cluster at present.
    pub fn open(arguments: &SignerArguments, cluster: Uuid) -> anyhow::Result<Self> {
        let directory = directory(arguments.trust_root.as_deref(), cluster);
        Self::of_directory(&directory, cluster, arguments.valid_days, arguments.serial)
    }

    /// The same with the files of a directory of the cluster; `serial`: of what is signed, the next one by default.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn of_directory(directory: &Path, cluster: Uuid, valid_days: u32, serial: Option<u64>) -> anyhow::Result<Self> {
        let wrong = |error: anyhow::Error| exit::with_code(exit::CONFIG, error);
        let file = directory.join(trust::SIGNER_KEY);
        let key = trust::signing_key(&file).with_context(|| {
            format!(
                "a policy is signed, and {} cannot be used; make it with `sparkfleet trust issue {cluster} --purpose policy-signer`, or say with --trust-root where it is",
                file.display()
            )
        });
        let key = key.map_err(wrong)?;
        let certificates = trust::certificates(&directory.join(trust::SIGNER_CERTIFICATES))?;
        let anchor = anchor(directory, cluster, &certificates)?;
        let now_ms = trust::now_ms();
        let certified = anchor.check(&certificates, Purpose::PolicySigner, HostClock::Trusted(now_ms));
        let certified = certified.with_context(|| directory.display().to_string()).map_err(wrong)?;
        if certified != key.public_key() {
            return Err(wrong(anyhow!("{} is not the key that is certified", file.display())));
        }
        let not_after_ms = now_ms.saturating_add(u64::from(valid_days) * DAY_MS);
        Ok(Self { key, certificates, anchor, not_after_ms, serial })
    }

    /// The policy, if this cluster's signer signed it: what is changed and signed again must have been.
    ///
    /// # Errors
    /// With [`exit::REFUSED`]
    pub fn checked(&self, policy: AttestationPolicy) -> anyhow::Result<AttestationPolicy> {
        signed::verify(&policy, &self.anchor, HostClock::Unset)
            .context("the policy in ConfigDB is not believed; write it again with `sparkfleet policy set`")
            .map_err(|error| exit::with_code(exit::REFUSED, error))?;
        Ok(policy)
    }

    /// The policy, signed, with the serial number that follows that of the one in ConfigDB.
    ///
    /// # Errors
    /// With [`exit::REFUSED`] if that one is not believed and no number was given.
    pub fn sign(
        &self,
        policy: &AttestationPolicy,
        before: Option<&AttestationPolicy>,
    ) -> anyhow::Result<AttestationPolicy> {
        let last = match before.map(|before| signed::verify(before, &self.anchor, HostClock::Unset)) {
            None | Some(Err(SignatureError::Missing)) => Ok(0),
            Some(Ok(claims)) => Ok(claims.serial),
            Some(Err(error)) => Err(error),
        };
        let serial = match (self.serial, last) {
            (Some(serial), _) => serial,
            (None, Ok(last)) => last.saturating_add(1),
            (None, Err(error)) => {
                let error = anyhow!(error)
                    .context("the policy in ConfigDB is not believed; give the serial number with --serial");
                return Err(exit::with_code(exit::REFUSED, error));
            }
        };
        let claims = Claims { cluster: self.anchor.cluster, serial, not_after_ms: self.not_after_ms };
        Ok(signed::sign(policy, &claims, &self.key, &self.certificates))
    }
}

/// Where the files of a cluster are.
fn directory(root: Option<&Path>, cluster: Uuid) -> PathBuf {
    let of = |root: &Path| root.join(cluster.to_string());
    match root {
        Some(root) => of(root),
        None => {
            let places = ["trust", UP_TRUST].map(|root| of(Path::new(root)));
            let found = places.iter().find(|place| place.join(trust::SIGNER_KEY).exists());
            found.unwrap_or(&places[0]).clone()
        }
    }
}

/// Whose signature counts, by the files of a directory of trust. Keys below the epoch of `own` are no longer valid.
///
/// # Errors
/// With [`exit::CONFIG`] if a file is missing or wrong.
pub fn anchor(directory: &Path, cluster: Uuid, own: &[Vec<u8>]) -> anyhow::Result<TrustAnchor> {
    let wrong = |error: anyhow::Error| exit::with_code(exit::CONFIG, error);
    let root: PublicKey = *trust::secret(&directory.join(trust::ROOT_PUBLIC))?.expose();
    let first = own.first().with_context(|| format!("{} holds no certificate", directory.display())).map_err(wrong)?;
    let first = IssuerCertificate::read_unverified(first).map_err(|error| wrong(error.into()))?;
    Ok(TrustAnchor { root, cluster, epoch_min: first.epoch })
}

#[cfg(test)]
mod tests {
    use super::*;
    use join_trust::files::{Present, Wanted};
    use serde_json::json;

    const CLUSTER: Uuid = Uuid::from_u128(7);

    fn policy() -> AttestationPolicy {
        serde_json::from_value(
            json!({"bank": "sha256", "pcrs": {"4": {"expected": ["ab".repeat(32)]}}, "lock": {"pcr": 15},
            "endorsement": {"require": "enrolment", "enrolled": [{"ek": "cd".repeat(32)}]}}),
        )
        .unwrap()
    }

    fn arguments(root: &Path) -> SignerArguments {
        trust::init(root, false).unwrap();
        let wanted =
            Wanted { cluster: CLUSTER, purpose: Purpose::PolicySigner, days: 10, epoch: 1, present: Present::Refuse };
        trust::issue(root, &root.join(CLUSTER.to_string()), &wanted, trust::now_ms()).unwrap();
        SignerArguments { trust_root: Some(root.to_owned()), valid_days: 366, serial: None }
    }

    #[test]
    fn serial_numbers_follow_the_policy_that_stands_and_a_foreign_one_is_not_built_upon() {
        let directory = tempfile::tempdir().unwrap();
        let arguments = arguments(directory.path());
        let signer = Signer::open(&arguments, CLUSTER).unwrap();
        let first = signer.sign(&policy(), None).unwrap();
        let second = signer.sign(&policy(), Some(&first)).unwrap();
        let serial = |policy: &AttestationPolicy| policy.signature.as_ref().unwrap().serial;
        assert_eq!((serial(&first), serial(&second)), (1, 2));
        assert_eq!(serial(&signer.sign(&policy(), Some(&policy())).unwrap()), 1, "one that was never signed");
        assert_eq!(signer.checked(second.clone()).unwrap(), second);
        let mut foreign = second;
        foreign.endorsement.enrolled[0].control_plane = true;
        assert_eq!(exit::code_of(&signer.checked(foreign.clone()).unwrap_err()), exit::REFUSED);
        let error = signer.sign(&policy(), Some(&foreign)).unwrap_err();
        assert!(error.to_string().contains("--serial"), "{error}");
        let chosen = Signer { serial: Some(9), ..signer };
        assert_eq!(serial(&chosen.sign(&policy(), Some(&foreign)).unwrap()), 9);
    }

    #[test]
    fn without_its_key_it_says_how_to_make_one() {
        let directory = tempfile::tempdir().unwrap();
        let arguments = arguments(directory.path());
        let error = Signer::open(&arguments, Uuid::nil()).unwrap_err();
        assert!(error.to_string().contains("--purpose policy-signer"), "{error}");
        assert_eq!(exit::code_of(&error), exit::CONFIG);
    }
}
