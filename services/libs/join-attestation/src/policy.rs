//! The policy in force: an [`AttestationPolicy`] entry that was checked, with its revision in ConfigDB.
//!
//! It fails closed: an entry that is missing, names no PCR, or holds a value that was never measured makes a policy that admits no host and says why. A policy that has no host
//! enrolled yet is valid: hosts that ask are shown, with their PCRs, and wait for an approval.

use std::collections::{BTreeMap, BTreeSet};

use configdb_schema::document::{
    AttestationPolicy, EndorsementProof, EndorsementRules, EvidenceVariant, LocalUnlock, PcrBank, PcrLock, PcrRule,
};
use join_protocol::selection::{Bank, Selection};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, TrustAnchor};
use uuid::Uuid;

use crate::boot::{self, Boot};
pub use crate::field::PolicyError;
use crate::field::{VALUES_MAX, digest, error, measured};
use crate::hash::Hash;
use crate::pcr::{PCR_COUNT, after_event};
use crate::refusal::PcrDifference;

/// SHA-256 of an endorsement key's DER `SubjectPublicKeyInfo`.
pub type EkHash = [u8; 32];

/// SHA-256 of an initial attestation key's DER `SubjectPublicKeyInfo`.
pub type IakHash = [u8; 32];

/// The most authorities of manufacturers.
const MANUFACTURERS_MAX: usize = 256;
/// The most enrolled hosts, and the most revoked keys.
const HOSTS_MAX: usize = 10_000;
/// The last PCR that may be the lock: those above can be cleared without a reset of the machine.
const LOCK_INDEX_MAX: u8 = 15;

/// A host that is known by its endorsement key, and what it may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Enrolment {
    /// The name that it has to join with; None: that of its first join.
    pub host: Option<String>,
    /// The state disk that it has to join with; None: that of its first join.
    pub disk: Option<Uuid>,
    /// The initial attestation key that has to vouch for it; None: any or none.
    pub iak: Option<IakHash>,
    /// It may join the control plane.
    pub control_plane: bool,
}

/// What one PCR is to hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pcr {
    /// Empty: it is only observed. That is never so where it is enforced.
    pub(crate) expected: Vec<Vec<u8>>,
    pub(crate) enforced: bool,
}

impl Pcr {
    /// How a value deviates from what is expected; of a PCR that is only observed none does.
    pub(crate) fn difference(&self, index: u8, found: &[u8]) -> Option<PcrDifference> {
        let deviates =
            !self.expected.iter().any(|expected| expected == found) && (self.enforced || !self.expected.is_empty());
        deviates.then(|| PcrDifference { index, wanted: self.expected.clone(), found: found.to_vec() })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lock {
    pub(crate) index: u8,
    pub(crate) before: Vec<u8>,
    after: Option<Vec<u8>>,
}

impl Lock {
    /// Its value once a host has joined the cluster with that id.
    pub(crate) fn after(&self, bank: Hash, cluster_id: &[u8]) -> Vec<u8> {
        self.after.clone().unwrap_or_else(|| after_event(bank, &self.before, cluster_id))
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Endorsement {
    pub(crate) require: EndorsementProof,
    pub(crate) manufacturers: Vec<TrustAnchor<'static>>,
    /// Makers of machines, who vouch for initial attestation keys.
    pub(crate) device_manufacturers: Vec<TrustAnchor<'static>>,
    pub(crate) enrolled: BTreeMap<EkHash, Enrolment>,
    pub(crate) revoked: BTreeSet<EkHash>,
}

/// The rules of a valid policy.
#[derive(Debug, Clone)]
pub(crate) struct Rules {
    pub(crate) variants: Vec<EvidenceVariant>,
    pub(crate) bank: Hash,
    pub(crate) pcrs: BTreeMap<u8, Pcr>,
    /// None: events are not judged, and a log is not asked for.
    pub(crate) boot: Option<Boot>,
    pub(crate) lock: Lock,
    /// PCRs that the second key of a member's disk is sealed to, beside the lock PCR; None: there is to be no such key.
    pub(crate) local_unlock: Option<BTreeSet<u8>>,
    /// Every index that has to be quoted: the PCRs, those that a log has to explain, those that a second key is sealed to, and the lock.
    pub(crate) indices: BTreeSet<u8>,
    pub(crate) endorsement: Endorsement,
}

/// The policy in force.
#[derive(Debug, Clone)]
pub struct Policy {
    revision: u64,
    rules: Result<Rules, PolicyError>,
}

impl Policy {
    /// The policy of an entry at a revision of ConfigDB. An entry that breaks a rule makes a policy that admits no host: see [`Policy::error`].
    #[must_use]
    pub fn new(entry: &AttestationPolicy, revision: u64) -> Self {
        Self { revision, rules: rules(entry) }
    }

    /// The policy of a cluster that has no entry: it admits no host.
    #[must_use]
    pub fn missing() -> Self {
        Self { revision: 0, rules: error("AttestationPolicy", "the cluster has no such entry") }
    }

    /// Revision of the entry; 0 if there is none. Each verdict carries it.
    #[must_use]
    pub const fn revision(&self) -> u64 {
        self.revision
    }

    /// Why it admits no host; None: it can admit hosts.
    #[must_use]
    pub fn error(&self) -> Option<&PolicyError> {
        self.rules.as_ref().err()
    }

    /// Bank and PCRs that a host has to quote; None if no host is admitted anyway.
    #[must_use]
    pub fn selection(&self) -> Option<(Hash, &BTreeSet<u8>)> {
        self.rules.as_ref().ok().map(|rules| (rules.bank, &rules.indices))
    }

    /// The same as it travels in a challenge. Without a policy a host quotes all PCRs, and is sent under seal why no host is admitted.
    #[must_use]
    pub fn asked(&self) -> Selection {
        let asked = self.selection().and_then(|(hash, indices)| Selection::new(bank_of(hash), indices.iter().copied()));
        asked.unwrap_or_else(|| Selection::all(Bank::Sha256))
    }

    /// The forms of evidence that are accepted, the preferred first; empty if no host is admitted anyway.
    #[must_use]
    pub fn variants(&self) -> &[EvidenceVariant] {
        self.rules.as_ref().map_or(&[], |rules| &rules.variants)
    }

    /// Events are judged, so a host has to send its event log.
    #[must_use]
    pub fn judges_events(&self) -> bool {
        self.rules.as_ref().is_ok_and(|rules| rules.boot.is_some())
    }

    /// The host that is enrolled with this endorsement key.
    #[must_use]
    pub fn enrolment(&self, ek: &EkHash) -> Option<&Enrolment> {
        self.rules.as_ref().ok()?.endorsement.enrolled.get(ek)
    }

    /// The endorsement key that is enrolled with this name, and the one that is enrolled with this state disk.
    #[must_use]
    pub fn enrolled_as(&self, host: &str, disk: Uuid) -> (Option<&EkHash>, Option<&EkHash>) {
        let Ok(rules) = &self.rules else { return (None, None) };
        let find = |is: &dyn Fn(&Enrolment) -> bool| {
            rules.endorsement.enrolled.iter().find(|(_, enrolment)| is(enrolment)).map(|(ek, _)| ek)
        };
        (find(&|enrolment| enrolment.host.as_deref() == Some(host)), find(&|enrolment| enrolment.disk == Some(disk)))
    }

    /// The endorsement key is revoked.
    #[must_use]
    pub fn is_revoked(&self, ek: &EkHash) -> bool {
        self.rules.as_ref().is_ok_and(|rules| rules.endorsement.revoked.contains(ek))
    }

    pub(crate) const fn rules(&self) -> Result<&Rules, &PolicyError> {
        self.rules.as_ref()
    }
}

pub(crate) const fn bank_of(hash: Hash) -> Bank {
    match hash {
        Hash::Sha384 => Bank::Sha384,
        _ => Bank::Sha256,
    }
}

fn rules(entry: &AttestationPolicy) -> Result<Rules, PolicyError> {
    let bank = match entry.bank {
        PcrBank::Sha256 => Hash::Sha256,
        PcrBank::Sha384 => Hash::Sha384,
    };
    let lock = lock(&entry.lock, bank)?;
    let pcrs: BTreeMap<u8, Pcr> =
        entry.pcrs.iter().map(|(index, rule)| pcr(index, rule, bank, lock.index)).collect::<Result<_, _>>()?;
    let enforced = |index: u8| pcrs.get(&index).is_some_and(|pcr| pcr.enforced);
    let boot = entry.boot.as_ref().map(|boot| Boot::new(boot, bank, lock.index, enforced));
    let boot = boot.transpose()?;
    let endorsement = endorsement(&entry.endorsement)?;
    let enforces = boot.is_some() || pcrs.values().any(|pcr| pcr.enforced);
    // A first policy only looks: its PCRs are quoted and shown, and there is no key that it could admit.
    let observes = !pcrs.is_empty() && endorsement.manufacturers.is_empty() && endorsement.enrolled.is_empty();
    if !enforces && !observes {
        return error("pcrs", "no PCR is enforced: such a policy would admit any software");
    }
    if entry.variants.is_empty() {
        return error("variants", "names none: no host could bring evidence");
    }
    if boot.is_some() && entry.variants.contains(&EvidenceVariant::Simulated) {
        return error("boot", "cannot be fulfilled by a simulated host, which `variants` names: it has no event log");
    }
    let explained = boot.iter().flat_map(|_| boot::PCRS);
    let judged = || {
        let pinned = pcrs.iter().filter(|(_, pcr)| pcr.enforced).map(|(index, _)| *index);
        pinned.chain(boot.iter().flat_map(Boot::deciding).copied()).collect()
    };
    let local_unlock =
        entry.local_unlock.as_ref().map(|entry| local_unlock(entry, lock.index, judged())).transpose()?;
    let sealed_to = local_unlock.iter().flatten().copied();
    let indices = pcrs.keys().copied().chain(explained).chain(sealed_to).chain([lock.index]).collect();
    Ok(Rules { variants: entry.variants.clone(), bank, pcrs, boot, lock, local_unlock, indices, endorsement })
}

/// `judged`: what keeps another image from being admitted keeps it from the second key, too.
fn local_unlock(entry: &LocalUnlock, lock: u8, mut judged: BTreeSet<u8>) -> Result<BTreeSet<u8>, PolicyError> {
    if judged.is_empty() {
        return error("localUnlock", "no PCR is enforced yet: any software would be given the key of the disk");
    }
    for (at, index) in entry.pcrs.iter().enumerate() {
        let field = format!("localUnlock.pcrs[{at}]");
        if *index > LOCK_INDEX_MAX {
            return error(field, format!("{index} is above {LOCK_INDEX_MAX}: it can be cleared without a reset"));
        }
        if *index == lock {
            return error(field, "is the lock PCR, to which the key is sealed anyway");
        }
        judged.insert(*index);
    }
    Ok(judged)
}

fn lock(entry: &PcrLock, bank: Hash) -> Result<Lock, PolicyError> {
    if entry.pcr > LOCK_INDEX_MAX {
        return error(
            "lock.pcr",
            format!("{} is above {LOCK_INDEX_MAX}: it can be cleared without a reset", entry.pcr),
        );
    }
    let before = match &entry.before {
        // The one PCR whose value may be zero: nothing has been measured into it yet.
        Some(text) if text.bytes().all(|digit| digit == b'0') => digest("lock.before", text, bank)?,
        Some(text) => measured("lock.before", text, bank)?,
        None => vec![0; bank.size()],
    };
    let after = entry.after.as_ref().map(|text| measured("lock.after", text, bank)).transpose()?;
    if after.as_ref() == Some(&before) {
        return error("lock.after", "is the same as before: it would not show whether a host has joined");
    }
    Ok(Lock { index: entry.pcr, before, after })
}

fn pcr(index: &str, rule: &PcrRule, bank: Hash, lock: u8) -> Result<(u8, Pcr), PolicyError> {
    let field = format!("pcrs.{index}");
    let number =
        index.parse().ok().filter(|number: &u8| usize::from(*number) < PCR_COUNT && number.to_string() == index);
    let Some(number) = number else {
        return error(field, format!("is not a PCR: 0 to {}", PCR_COUNT - 1));
    };
    if number == lock {
        return error(field, "is the lock PCR: its values are in `lock`");
    }
    if rule.expected.is_empty() && !rule.warn_only {
        return error(format!("{field}.expected"), "holds no value: a PCR without one can only be observed (warnOnly)");
    }
    if rule.expected.len() > VALUES_MAX {
        return error(
            format!("{field}.expected"),
            format!("holds {}, more than {VALUES_MAX} values", rule.expected.len()),
        );
    }
    let values = rule.expected.iter().enumerate();
    let expected: Result<_, _> =
        values.map(|(at, text)| measured(&format!("{field}.expected[{at}]"), text, bank)).collect();
    Ok((number, Pcr { expected: expected?, enforced: !rule.warn_only }))
}

fn endorsement(entry: &EndorsementRules) -> Result<Endorsement, PolicyError> {
    let device_manufacturers = authorities("endorsement.deviceManufacturers", &entry.device_manufacturers)?;
    let manufacturers = authorities("endorsement.manufacturers", &entry.manufacturers)?;
    if entry.enrolled.len() > HOSTS_MAX || entry.revoked.len() > HOSTS_MAX {
        return error("endorsement", format!("lists more than {HOSTS_MAX} keys"));
    }
    let mut enrolled = BTreeMap::new();
    let (mut names, mut disks, mut iaks) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for (at, host) in entry.enrolled.iter().enumerate() {
        let field = format!("endorsement.enrolled[{at}]");
        let iak = host.iak.as_ref().map(|iak| key_hash(&format!("{field}.iak"), iak)).transpose()?;
        let enrolment = Enrolment { host: host.host.clone(), disk: host.disk, iak, control_plane: host.control_plane };
        if enrolled.insert(key_hash(&format!("{field}.ek"), &host.ek)?, enrolment).is_some() {
            return error(format!("{field}.ek"), "is enrolled twice");
        }
        if let Some(name) = &host.host
            && !names.insert(name)
        {
            return error(format!("{field}.host"), "is the name of two endorsement keys");
        }
        if let Some(disk) = host.disk
            && !disks.insert(disk)
        {
            return error(format!("{field}.disk"), "is the disk of two endorsement keys");
        }
        if let Some(iak) = iak
            && !iaks.insert(iak)
        {
            return error(format!("{field}.iak"), "is the initial attestation key of two endorsement keys");
        }
    }
    let revoked = entry.revoked.iter().enumerate();
    let revoked: Result<_, _> =
        revoked.map(|(at, text)| key_hash(&format!("endorsement.revoked[{at}]"), text)).collect();
    // No host may be enrolled yet; no approval of a host makes up for a manufacturer.
    let can_be_fulfilled = match entry.require {
        EndorsementProof::Certificate => !manufacturers.is_empty(),
        EndorsementProof::Both => !manufacturers.is_empty() || !device_manufacturers.is_empty(),
        EndorsementProof::Enrolment | EndorsementProof::Either => true,
    };
    if !can_be_fulfilled {
        return error("endorsement.require", "no host can fulfil it: manufacturers must not be empty");
    }
    Ok(Endorsement { require: entry.require, manufacturers, device_manufacturers, enrolled, revoked: revoked? })
}

fn key_hash(field: &str, text: &str) -> Result<[u8; 32], PolicyError> {
    let value = measured(field, text, Hash::Sha256)?;
    value.try_into().or_else(|_| error(field, "is not a SHA-256"))
}

fn authorities(list: &str, texts: &[String]) -> Result<Vec<TrustAnchor<'static>>, PolicyError> {
    let mut anchors = Vec::new();
    for (at, text) in texts.iter().enumerate() {
        let field = format!("{list}[{at}]");
        let before = anchors.len();
        for certificate in CertificateDer::pem_slice_iter(text.as_bytes()) {
            let Ok(certificate) = certificate else {
                return error(field, "is not PEM");
            };
            match webpki::anchor_from_trusted_cert(&certificate) {
                Ok(anchor) => anchors.push(anchor.to_owned()),
                Err(reason) => return error(field, format!("is not a certificate of an authority ({reason:?})")),
            }
        }
        if anchors.len() == before {
            return error(field, "holds no certificate");
        }
    }
    if anchors.len() > MANUFACTURERS_MAX {
        return error(list, format!("holds more than {MANUFACTURERS_MAX} certificates"));
    }
    Ok(anchors)
}
