//! The identity of a host: whether a host that has proven its TPM may have the disk, the name, the role and the addresses that it asks for. They come from its enrolment, or are those of its
//! first join; no other host gets them.

use core::net::IpAddr;

use join_attestation::{EkHash, Policy, check_clock, ek_hash};
use join_protocol::attestation::Counters;
use join_protocol::issuer::Verified;
use join_protocol::refusal::{Refusal, RefusalCode};
use join_protocol::terms::{Kind, Role};
use uuid::Uuid;

use crate::cache::Cache;
use crate::document::{HostRecord, NAME_CHARACTERS_MAX};
use crate::settings::Settings;

/// What a host may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Admission {
    /// Its endorsement key.
    pub ek: EkHash,
    /// Its state disk.
    pub disk: Uuid,
    /// Its name.
    pub name: String,
    /// Addresses that may be certified.
    pub addresses: Vec<IpAddr>,
    /// The cluster began with it: it has no record of a join, and the policy vouches for it.
    pub is_first_member: bool,
}

/// Decides about a verified host.
///
/// # Errors
/// 30, 34, 40, 41, 42 or 45; 46 if there are too many hosts.
pub(crate) fn admit(
    verified: &Verified,
    policy: &Policy,
    cache: &Cache,
    settings: &Settings,
) -> Result<Admission, Refusal> {
    let hello = verified.recipient().hello();
    let ek = ek_hash(&verified.recipient().keys())?;
    let known = cache.host(&ek).map(|entry| &entry.is);
    let enrolled = policy.enrolment(&ek).and_then(|enrolment| enrolment.disk);
    let first_member = first_member(policy, known, &ek, hello.disk).filter(|_| hello.kind != Kind::Join);
    let earlier = known.and_then(|known| last_counters((known.disk, known.counters), enrolled, hello.disk));
    // The policy vouches for a first member, so it is a known host, whose TPM begins to count here.
    check_clock(verified.claims(), earlier.or_else(|| first_member.map(|_| COUNTERS_ZERO)))?;
    let asked = JoinRequest { ek, policy, cache, known, is_first_member: first_member.is_some() };
    asked.check_disk(hello.disk, hello.kind)?;
    asked.check_role(hello.role)?;
    if hello.kind == Kind::Renew {
        asked.check_member(hello.role)?;
    }
    let is_certified = matches!(hello.kind, Kind::Join | Kind::Renew);
    let name = match (is_certified, first_member) {
        (true, _) => asked.name(&verified.body().node_name, hello.disk)?,
        (false, Some(name)) => asked.name(name, hello.disk)?,
        (false, None) => known.map(|known| known.name.clone()).unwrap_or_default(),
    };
    let addresses = match is_certified {
        true => asked.addresses(&verified.body().principals, settings)?,
        false => Vec::new(),
    };
    if known.is_none() && cache.hosts().len() >= settings.hosts_max {
        let detail = format!("{} hosts are remembered, as many as join.hosts_max allows", settings.hosts_max);
        return Err(Refusal::new(RefusalCode::IssuingFailed, detail));
    }
    Ok(Admission { ek, disk: hello.disk, name, addresses, is_first_member: first_member.is_some() })
}

/// What a TPM has counted at least.
const COUNTERS_ZERO: Counters = Counters { resets: 0, restarts: 0, powered_ms: 0 };

/// The name of a host that may be the first member of the cluster. An administrator made it, so this service knows nothing of it. Only a host counts that the signed policy enrols with
/// its name, with this disk, and as a control plane. `known`: what is known of it; one that has shown a lock is a member by that.
fn first_member<'a>(policy: &'a Policy, known: Option<&HostRecord>, ek: &EkHash, disk: Uuid) -> Option<&'a str> {
    let enrolment = policy.enrolment(ek).filter(|enrolment| enrolment.control_plane && enrolment.disk == Some(disk))?;
    let is_open = known.is_none_or(|known| !known.bound && known.disk == disk);
    enrolment.host.as_deref().filter(|_| is_open)
}

/// Counters of the last ticket, below which a TPM must not count. They may start from zero, because the TPM was cleared or the firmware was exchanged, where the machine was enrolled with a state disk
/// that is new, too. `known`: disk and counters of the last ticket.
fn last_counters(known: (Uuid, Option<(u32, u32, u64)>), enrolled: Option<Uuid>, disk: Uuid) -> Option<Counters> {
    let (known_disk, counters) = known;
    let starts_from_zero = known_disk != disk && enrolled == Some(disk);
    let (resets, restarts, powered_ms) = counters.filter(|_| !starts_from_zero)?;
    Some(Counters { resets, restarts, powered_ms })
}

/// A request: what is asked, the host that asks, and what is known.
struct JoinRequest<'a> {
    ek: EkHash,
    policy: &'a Policy,
    cache: &'a Cache,
    known: Option<&'a HostRecord>,
    is_first_member: bool,
}

impl JoinRequest<'_> {
    fn check_disk(&self, disk: Uuid, kind: Kind) -> Result<(), Refusal> {
        let refused = |code, detail: String| Err(Refusal::new(code, detail));
        let enrolled = self.policy.enrolment(&self.ek).and_then(|enrolment| enrolment.disk);
        if let Some(enrolled) = enrolled
            && enrolled != disk
        {
            return refused(RefusalCode::DiskNotOwned, format!("the host is enrolled with the disk {enrolled}"));
        }
        let others = [self.policy.enrolled_as("", disk).1.copied(), self.cache.disk_owner(disk)];
        if others.into_iter().flatten().any(|owner| owner != self.ek) {
            return refused(RefusalCode::DiskNotOwned, "the disk belongs to another host".to_owned());
        }
        match self.known {
            None if kind != Kind::Join && !self.is_first_member => {
                let detail = "no host with this TPM has joined with any disk; a first member of the cluster is enrolled with host, disk and controlPlane";
                refused(RefusalCode::DiskNotOwned, detail.to_owned())
            }
            Some(known) if known.disk != disk && kind != Kind::Join => {
                refused(RefusalCode::DiskNotOwned, "the host has joined with another disk".to_owned())
            }
            Some(known) if known.disk != disk && known.bound && enrolled != Some(disk) => {
                let detail = format!("the host has joined with the disk {}; enrol it with the new one", known.disk);
                refused(RefusalCode::ApprovalPending, detail)
            }
            _ => Ok(()),
        }
    }

    /// A control plane has been enrolled for it, which the verifier has checked. Here a role does not change by itself.
    fn check_role(&self, role: Role) -> Result<(), Refusal> {
        let enrolled = self.policy.enrolment(&self.ek).is_some_and(|enrolment| enrolment.control_plane);
        match self.known {
            Some(known) if known.bound && known.role != role.name() && !enrolled => {
                let detail = format!("the host has joined as {}", known.role);
                Err(Refusal::new(RefusalCode::RoleNotAllowed, detail))
            }
            _ => Ok(()),
        }
    }

    /// Certificates are renewed for a host that has become a member, and for what it is.
    fn check_member(&self, role: Role) -> Result<(), Refusal> {
        match self.known {
            // Its quote shows the lock.
            _ if self.is_first_member => Ok(()),
            Some(known) if known.bound && known.role == role.name() => Ok(()),
            Some(known) if known.bound => {
                let detail = format!("the host is a {}", known.role);
                Err(Refusal::new(RefusalCode::RoleNotAllowed, detail))
            }
            _ => Err(Refusal::new(RefusalCode::DiskNotOwned, "the host has not become a member with this disk")),
        }
    }

    fn name(&self, asked: &str, disk: Uuid) -> Result<String, Refusal> {
        let refused = |detail: String| Err(Refusal::new(RefusalCode::NameNotAllowed, detail));
        let enrolled = self.policy.enrolment(&self.ek).and_then(|enrolment| enrolment.host.clone());
        let bound = self.known.filter(|known| known.bound).map(|known| known.name.clone());
        let name = match (enrolled.or(bound), asked) {
            (Some(given), "") => given,
            (Some(given), asked) if given == asked => given,
            (Some(given), asked) => {
                return refused(format!("the host asks for the name {asked:?} and is known as {given:?}"));
            }
            (None, "") => format!("host-{}", &disk.simple().to_string()[..12]),
            (None, asked) => asked.to_owned(),
        };
        if name.len() > NAME_CHARACTERS_MAX {
            return refused(format!("a name may have {NAME_CHARACTERS_MAX} characters"));
        }
        let others = [self.policy.enrolled_as(&name, Uuid::nil()).0.copied(), self.cache.name_owner(&name)];
        if others.into_iter().flatten().any(|owner| owner != self.ek) {
            return refused(format!("the name {name:?} belongs to another host"));
        }
        // A node that did not come by this service, such as the first control plane, keeps its name.
        if !self.is_first_member && self.cache.name_owner(&name).is_none() && self.cache.is_node(&name) {
            return refused(format!("a node {name:?} exists already, and did not join with this TPM"));
        }
        Ok(name)
    }

    /// The addresses among the principals that may be certified: those of the allowed networks that no other host has. Its other principals are ignored: its name is
    /// in every certificate, and no other principal than these addresses is.
    fn addresses(&self, principals: &[String], settings: &Settings) -> Result<Vec<IpAddr>, Refusal> {
        let mut addresses = Vec::new();
        let asked = principals.iter().filter_map(|principal| principal.parse::<IpAddr>().ok());
        for address in asked.filter(|address| settings.networks.iter().any(|network| network.contains(*address))) {
            let mut others = self.cache.hosts().iter().filter(|(ek, _)| **ek != self.ek);
            if others.any(|(_, other)| other.is.addresses.contains(&address)) {
                let detail = format!("the address {address} belongs to another host");
                return Err(Refusal::new(RefusalCode::NameNotAllowed, detail));
            }
            addresses.push(address);
        }
        Ok(addresses)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tpm_starts_from_zero_only_where_it_was_enrolled_with_a_new_disk() {
        let (old, new) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let counters = Some(Counters { resets: 1, restarts: 0, powered_ms: 5 });
        let cleared = join_protocol::attestation::Claims { counters, ..Default::default() };
        let known = (old, Some((9, 0, 5_000)));
        for (enrolled, disk) in [(None, old), (None, new), (Some(old), old), (Some(old), new)] {
            let refusal = check_clock(&cleared, last_counters(known, enrolled, disk)).unwrap_err();
            assert_eq!(refusal.code, RefusalCode::CountersBackwards, "{enrolled:?} {disk}");
        }
        assert_eq!(check_clock(&cleared, last_counters(known, Some(new), new)), Ok(()));
        // What comes after counts from there.
        assert!(check_clock(&cleared, last_counters((new, Some((2, 0, 9))), Some(new), new)).is_err());
        assert_eq!(check_clock(&cleared, last_counters((old, None), None, old)), Ok(()));
    }
}
