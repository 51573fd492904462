//! Hosts that were refused last: what people need to decide about them. Kept in memory only, and only so many; a host that still wants in is seen again within a minute.

use std::collections::{BTreeMap, BTreeSet};

use join_attestation::EkHash;
use join_protocol::refusal::{RefusalClass, RefusalCode};
use join_protocol::terms::Kind;
use join_service_contract::{HostState, names};
use uuid::Uuid;

/// The most hosts that are kept; beyond it the one that was not seen for longest is forgotten.
const SEEN_MAX: usize = 500;

/// A refusal, and whose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seen {
    /// State disk.
    pub disk: Uuid,
    /// The name that it asks for.
    pub name: String,
    /// The role that it asks for.
    pub role: &'static str,
    /// Form of its keys.
    pub variant: &'static str,
    /// What it asks for.
    pub kind: Kind,
    /// Why it was refused.
    pub verdict: RefusalCode,
    /// Why.
    pub detail: String,
    /// PCRs, JSON.
    pub pcrs: Option<String>,
    /// Revision of the policy.
    pub policy_revision: u64,
    /// UTC ms.
    pub first_seen: u64,
    /// UTC ms.
    pub last_seen: u64,
}

impl Seen {
    /// Pending, refused or revoked.
    #[must_use]
    pub(super) const fn state(&self) -> HostState {
        match self.verdict {
            RefusalCode::ApprovalPending => HostState::Pending,
            RefusalCode::EndorsementRevoked => HostState::Revoked,
            _ => HostState::Refused,
        }
    }

    /// True if a member that was refused so has no keys: it asked for more than new certificates, and the same request will not be granted soon.
    #[must_use]
    pub(super) fn locks_out(&self) -> bool {
        self.kind != Kind::Renew && self.verdict.class() != RefusalClass::Retry
    }
}

/// The last refusal of each host.
#[derive(Debug, Default)]
pub(super) struct SeenHosts {
    hosts: BTreeMap<EkHash, Seen>,
    by_disk: BTreeMap<Uuid, BTreeSet<EkHash>>,
    by_id: BTreeMap<Uuid, EkHash>,
    changed_disks: BTreeSet<Uuid>,
    changed_ids: BTreeSet<Uuid>,
}

impl SeenHosts {
    /// A host was refused.
    pub(super) fn note(&mut self, ek: EkHash, mut seen: Seen) {
        if let Some(known) = self.hosts.get(&ek) {
            seen.first_seen = known.first_seen;
        } else if self.hosts.len() >= SEEN_MAX
            && let Some(oldest) = self.hosts.iter().min_by_key(|(_, seen)| seen.last_seen).map(|(ek, _)| *ek)
        {
            self.forget(&oldest);
        }
        self.forget(&ek);
        self.changed_disks.insert(seen.disk);
        self.by_disk.entry(seen.disk).or_default().insert(ek);
        self.by_id.insert(names::keyed_host(&ek), ek);
        self.hosts.insert(ek, seen);
    }

    /// A host got its ticket.
    pub(super) fn forget(&mut self, ek: &EkHash) {
        let Some(disk) = self.hosts.remove(ek).map(|seen| seen.disk) else { return };
        self.changed_disks.insert(disk);
        let id = names::keyed_host(ek);
        self.by_id.remove(&id);
        self.changed_ids.insert(id);
        if let Some(keys) = self.by_disk.get_mut(&disk) {
            keys.remove(ek);
            if keys.is_empty() {
                self.by_disk.remove(&disk);
            }
        }
    }

    /// The last refusal of a host.
    #[must_use]
    pub(super) fn get(&self, ek: &EkHash) -> Option<&Seen> {
        self.hosts.get(ek)
    }

    /// Hosts that named this disk.
    pub(super) fn of_disk(&self, disk: Uuid) -> impl Iterator<Item = (&EkHash, &Seen)> {
        let keys = self.by_disk.get(&disk).into_iter().flatten();
        keys.filter_map(|ek| self.hosts.get_key_value(ek))
    }

    /// The host that has no disk of its own and this id.
    #[must_use]
    pub(super) fn of_id(&self, id: Uuid) -> Option<(&EkHash, &Seen)> {
        self.hosts.get_key_value(self.by_id.get(&id)?)
    }

    /// Disks of which something changed since this was asked last.
    pub(super) fn take_changed_disks(&mut self) -> BTreeSet<Uuid> {
        std::mem::take(&mut self.changed_disks)
    }

    /// Ids of hosts that are not seen any more, or were seen with another disk, since this was asked last.
    pub(super) fn take_changed_ids(&mut self) -> BTreeSet<Uuid> {
        std::mem::take(&mut self.changed_ids)
    }

    /// All of them.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&EkHash, &Seen)> {
        self.hosts.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_bounded_and_the_oldest_goes_first() {
        let seen = |at: u64| Seen {
            disk: Uuid::from_u128(at.into()),
            name: String::new(),
            role: "worker",
            variant: "tpm2",
            kind: Kind::Join,
            verdict: RefusalCode::Lock,
            detail: String::new(),
            pcrs: None,
            policy_revision: 0,
            first_seen: at,
            last_seen: at,
        };
        let ek = |number: u64| {
            let mut ek = [0; 32];
            ek[..8].copy_from_slice(&number.to_be_bytes());
            ek
        };
        let mut hosts = SeenHosts::default();
        for number in 0..600 {
            hosts.note(ek(number), seen(number));
        }
        hosts.note(ek(599), seen(900));
        assert_eq!((hosts.iter().count(), hosts.get(&ek(99)), hosts.get(&ek(100)).is_some()), (500, None, true));
        assert_eq!((hosts.get(&ek(599)).unwrap().first_seen, hosts.get(&ek(599)).unwrap().last_seen), (599, 900));
    }
}
