//! The attestation policy of a cluster, as commands read, change, sign and write it.

use anyhow::anyhow;
use configdb_contract::{Entry, RequestResult, WriteRequest};
use configdb_schema::Document as _;
use configdb_schema::document::{AttestationPolicy, EnrolledHost};
use fleet_view::{Fleet, JoiningHostRow};
use join_attestation::policy::Policy;
use service_runtime::exit;
use uuid::Uuid;

use super::signer::Signer;
use crate::arguments::joining::SignerArguments;
use crate::client::{Client, request_id, writer};
use crate::look_up;

/// The attestation policy of a cluster as ConfigDB has it.
///
/// # Errors
/// The entry cannot be read, which ConfigDB does not let happen.
pub fn current(fleet: &Fleet, cluster: Uuid) -> anyhow::Result<Option<(AttestationPolicy, Entry)>> {
    let entry = fleet.config.entry(cluster, AttestationPolicy::slug());
    entry.map(|entry| Ok((entry.parse()?, entry.clone()))).transpose()
}

/// Signs and writes a policy, if no other was written since `before`.
///
/// # Errors
/// With [`exit::REFUSED`]: it would admit no host, or ConfigDB refuses it.
pub async fn write(
    client: &mut Client,
    cluster: Uuid,
    policy: &AttestationPolicy,
    before: Option<Uuid>,
    signer: &Signer,
) -> anyhow::Result<RequestResult> {
    check(policy)?;
    let stands = current(&client.fleet, cluster)?.map(|(policy, _)| policy);
    let policy = &signer.sign(policy, stands.as_ref())?;
    let request = WriteRequest::put(request_id(), cluster)
        .by(writer())
        .document(policy)?
        .if_match(AttestationPolicy::slug(), before);
    client.write(request).await
}

/// A policy that would admit no host is refused before it is written: the join service would only say so later.
///
/// # Errors
/// With [`exit::REFUSED`]
pub fn check(policy: &AttestationPolicy) -> anyhow::Result<()> {
    match Policy::new(policy, 0).error() {
        None => Ok(()),
        Some(error) => {
            let error = anyhow!("{error}").context("refused: the join service would admit no host by such a policy");
            Err(exit::with_code(exit::REFUSED, error))
        }
    }
}

/// How a policy knows an endorsement key.
pub(super) fn listed<'a>(policy: &'a AttestationPolicy, key: &str) -> (Option<&'a EnrolledHost>, bool) {
    let rules = &policy.endorsement;
    let enrolled = rules.enrolled.iter().find(|host| host.ek.eq_ignore_ascii_case(key));
    (enrolled, rules.revoked.iter().any(|revoked| revoked.eq_ignore_ascii_case(key)))
}

/// The policy of the cluster of a host: cluster, policy, ETag.
///
/// # Errors
/// With [`exit::REFUSED`] if there is none.
pub fn policy_of(fleet: &Fleet, row: &JoiningHostRow) -> anyhow::Result<(Uuid, AttestationPolicy, Uuid)> {
    let (uuid, cluster) = look_up::cluster_entry(fleet, &row.cluster)?;
    match current(fleet, uuid)? {
        Some((policy, entry)) => Ok((uuid, policy, entry.etag)),
        None => {
            let error = anyhow!("{} has no attestation policy; write one with `sparkfleet policy set`", cluster.name);
            Err(exit::with_code(exit::REFUSED, error))
        }
    }
}

/// The policy of the cluster of a host, to be changed and signed again: cluster, policy, ETag, and who signs it.
///
/// # Errors
/// As [`policy_of`], [`Signer::open`] and [`Signer::checked`].
pub fn to_sign(
    fleet: &Fleet,
    row: &JoiningHostRow,
    arguments: &SignerArguments,
) -> anyhow::Result<(Uuid, AttestationPolicy, Uuid, Signer)> {
    let (uuid, policy, etag) = policy_of(fleet, row)?;
    let signer = Signer::open(arguments, uuid)?;
    Ok((uuid, signer.checked(policy)?, etag, signer))
}

/// Enrols a host in a policy. A host that was enrolled with an initial attestation key keeps it unless another one is given. False: it is enrolled so already.
pub(super) fn enrol(policy: &mut AttestationPolicy, host: EnrolledHost) -> bool {
    let enrolled = &mut policy.endorsement.enrolled;
    let known = enrolled.iter_mut().find(|known| known.ek.eq_ignore_ascii_case(&host.ek));
    let pinned = known.as_ref().and_then(|known| known.iak.clone());
    let host = EnrolledHost { iak: host.iak.or(pinned), ..host };
    match known {
        Some(known) if *known == host => false,
        Some(known) => {
            *known = host;
            true
        }
        None => {
            enrolled.push(host);
            true
        }
    }
}

/// Revokes an endorsement key. Its enrolment goes, so that another machine can have its name. False: it is revoked already.
pub(super) fn revoke_key(policy: &mut AttestationPolicy, key: &str) -> bool {
    let rules = &mut policy.endorsement;
    rules.enrolled.retain(|host| !host.ek.eq_ignore_ascii_case(key));
    let is_new = !rules.revoked.iter().any(|revoked| revoked.eq_ignore_ascii_case(key));
    if is_new {
        rules.revoked.push(key.to_owned());
    }
    is_new
}

#[cfg(test)]
mod tests {
    use super::*;
    use configdb_schema::document::{EndorsementProof, EndorsementRules, PcrBank, PcrLock};

    fn policy() -> AttestationPolicy {
        AttestationPolicy {
            variants: Vec::new(),
            bank: PcrBank::Sha256,
            pcrs: std::collections::BTreeMap::new(),
            boot: None,
            lock: PcrLock { pcr: 15, before: None, after: None },
            local_unlock: None,
            endorsement: EndorsementRules {
                require: EndorsementProof::Enrolment,
                manufacturers: Vec::new(),
                device_manufacturers: Vec::new(),
                enrolled: Vec::new(),
                revoked: Vec::new(),
            },
            signature: None,
        }
    }

    fn host(ek: &str, name: &str) -> EnrolledHost {
        EnrolledHost { ek: ek.to_owned(), host: Some(name.to_owned()), disk: None, iak: None, control_plane: false }
    }

    #[test]
    fn a_host_is_enrolled_once_and_what_it_may_is_replaced() {
        let mut policy = policy();
        assert!(enrol(&mut policy, host("aa", "one")));
        assert!(!enrol(&mut policy, host("aa", "one")));
        assert!(enrol(&mut policy, EnrolledHost { control_plane: true, ..host("aa", "one") }));
        assert_eq!(policy.endorsement.enrolled.len(), 1);
        assert_eq!(listed(&policy, "AA"), (Some(&EnrolledHost { control_plane: true, ..host("aa", "one") }), false));
        let pinned = EnrolledHost { iak: Some("cc".to_owned()), ..host("aa", "one") };
        assert!(enrol(&mut policy, pinned.clone()));
        assert!(!enrol(&mut policy, host("aa", "one")), "an approval does not take the pin away");
        assert_eq!(listed(&policy, "aa").0, Some(&pinned));
    }

    #[test]
    fn a_revoked_key_leaves_the_enrolled_also_as_the_last_one() {
        let mut policy = policy();
        enrol(&mut policy, host("aa", "one"));
        enrol(&mut policy, host("bb", "two"));
        assert!(revoke_key(&mut policy, "aa"));
        assert!(!revoke_key(&mut policy, "aa"));
        assert_eq!(policy.endorsement.enrolled, [host("bb", "two")]);
        assert!(revoke_key(&mut policy, "bb"));
        assert_eq!(policy.endorsement.enrolled, []);
        assert_eq!(policy.endorsement.revoked, ["aa", "bb"]);
        assert!(listed(&policy, "bb").1);
    }
}
