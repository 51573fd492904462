//! One resource: what is, compared with what shall be -> the next step.
//!
//! Level-triggered: after each step everything is looked at again, so a service that is killed between any two steps continues where it was. What a resource has made is recorded on it
//! before it is made; that is how the end of a resource, or a change of it, finds everything. This module must not know how a step is carried out, and sees no secret.
//!
//! ```text
//! record and finalizer -> principals exist and get tickets (or none) -> the key verifies, or another is made -> what is no longer wanted goes -> record, label
//! ```

use std::collections::{BTreeMap, BTreeSet};

use kerberos_client::{Presence, Principal};
use serde::{Deserialize, Serialize};

use uuid::Uuid;

use crate::account::{AccountState, RecordedAccount};
use crate::keytab::{KeyEntry, OldKey, old_keys};
use crate::spec::{ConfigMapKey, KeyType, SecretKey, Spec};

/// What a resource has made, or is about to make. An annotation of it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Record {
    /// Principals that it has in the KDC.
    #[serde(default)]
    pub principals: BTreeSet<Principal>,
    /// What it has written into Secrets.
    #[serde(default)]
    pub secrets: BTreeSet<SecretKey>,
    /// What it has written into SealedSecrets.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub sealed: BTreeSet<SecretKey>,
    /// The last delivery, of a key that no one can be asked about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery: Option<Delivery>,
    /// The account that it wants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<Box<RecordedAccount>>,
}

/// A key was delivered to where no one can be asked whether it is valid. It is, as long as all of this is as it was.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Delivery {
    /// What was delivered: the version of the Secret that the key is in; of a sealed key its type, certificate and form.
    pub of: String,
    /// The keys that the KDC had then.
    pub keys: BTreeMap<Principal, KeyStamp>,
}

/// What distinguishes the keys of a principal from those before and after.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyStamp {
    /// Version of the newest.
    pub version: u32,
    /// When they were last changed, seconds since 1970 by the KDC's clock.
    pub changed_s: u64,
}

impl Record {
    /// What `spec` makes, but for the account: that depends on what is known of it.
    #[must_use]
    pub fn of(spec: &Spec) -> Self {
        // What someone else wrote is not ours to remove.
        let places = spec.secret.clone().filter(|_| !spec.key_type.is_preset()).into_iter().collect();
        let (secrets, sealed) =
            if spec.seal_with.is_some() { (BTreeSet::new(), places) } else { (places, BTreeSet::new()) };
        Self { principals: spec.principals.iter().cloned().collect(), secrets, sealed, delivery: None, account: None }
    }

    fn with(&self, other: &Self) -> Self {
        Self {
            principals: self.principals.union(&other.principals).cloned().collect(),
            secrets: self.secrets.union(&other.secrets).cloned().collect(),
            sealed: self.sealed.union(&other.sealed).cloned().collect(),
            delivery: self.delivery.clone(),
            account: other.account.clone().or_else(|| self.account.clone()),
        }
    }
}

/// The part of a resource's metadata that is ours.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Meta {
    /// The resource stays until its end is carried out.
    pub finalizer: bool,
    pub record: Record,
    /// Someone wants another key, whatever this one is.
    pub force_rekey: bool,
    /// Label: there are keys to be trimmed.
    pub has_old_keys: bool,
}

/// A resource, as far as a decision needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeySpec {
    pub meta: Meta,
    /// It is being deleted.
    pub deleting: bool,
    /// Someone wants nothing to be done.
    pub suspended: bool,
    /// What shall be; Err: the rule that it breaks.
    pub spec: Result<Spec, String>,
}

/// Whether a key is that of the KDC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Validity {
    /// No one has asked, because a principal is not there.
    Unchecked,
    /// The KDC took it.
    Valid,
    /// The KDC said that it is not.
    Invalid,
    /// No one can be asked: what is recorded of its delivery counts.
    Recorded,
}

/// What a Secret has in the wanted place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Material {
    /// Whether it is that of the KDC.
    pub validity: Validity,
    /// Entries of a keytab; none for a password.
    pub entries: Vec<KeyEntry>,
}

/// The wanted Secret, or SealedSecret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretSeen {
    /// There is none, or it has our label.
    pub is_writable: bool,
    /// None: it has no such key.
    pub material: Option<Material>,
    /// Why nothing can be sealed.
    pub obstacle: Option<String>,
}

/// A key that is sealed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedKey {
    pub key_type: KeyType,
    pub principals: Vec<Principal>,
    /// Where it goes: a key of a SealedSecret.
    pub place: SecretKey,
    /// The place of the certificate.
    pub seal_with: ConfigMapKey,
}

impl SealedKey {
    /// The one that `spec` asks for. None: it asks for none.
    #[must_use]
    pub fn of(spec: &Spec) -> Option<Self> {
        if spec.key_type == KeyType::Disabled {
            return None;
        }
        let (place, seal_with) = (spec.secret.clone()?, spec.seal_with.clone()?);
        Some(Self { key_type: spec.key_type, principals: spec.principals.clone(), place, seal_with })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Observed {
    /// Of the wanted and the recorded principals.
    pub principals: BTreeMap<Principal, Presence>,
    /// The wanted Secret, if one is wanted.
    pub secret: Option<SecretSeen>,
    /// Recorded and not wanted places that still hold something, in Secrets of ours.
    pub stale: BTreeSet<SecretKey>,
    /// The same of SealedSecrets.
    pub stale_sealed: BTreeSet<SecretKey>,
    /// What would be recorded of a delivery at this moment. None: the key can be asked about.
    pub delivery: Option<Delivery>,
    /// What was answered to the account that is recorded.
    pub account: Option<Result<Uuid, String>>,
}

/// What other resources have.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OtherClaims {
    /// What belongs to them: to the resource that has it recorded, or else to the first.
    pub owned: Record,
    /// What they want or have recorded.
    pub wanted: Record,
}

#[derive(Debug, Clone)]
pub struct Rules {
    /// How long a key stays after another has followed it, s.
    pub expire_old_s: u64,
    /// Now, seconds since 1970.
    pub now_s: u64,
    /// The request for another key was fulfilled; only its annotation is still there.
    pub forced_done: bool,
    /// A delivery that is not recorded yet.
    pub delivery: Option<Delivery>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    Mark {
        /// What shall be there.
        meta: Meta,
        /// The request for another key is fulfilled: its annotation goes. Otherwise it stays as it is, whatever is known of it.
        fulfilled: bool,
    },
    Create(Principal),
    /// Let a principal get tickets, or not.
    Allow(Principal, bool),
    /// New random keys, into a Secret.
    MakeKeys {
        principals: Vec<Principal>,
        secret: SecretKey,
        keep_old: bool,
    },
    /// A random value, into a Secret.
    MakeValue(SecretKey),
    /// A key for both realms of a trust, into a Secret.
    MakeTrust(Principal, SecretKey),
    /// A key into the KDC, and sealed into a SealedSecret.
    MakeSealed(SealedKey),
    /// The password in a Secret, into the KDC.
    SetPassword(Principal, SecretKey),
    /// The key of a trust in a Secret, into the KDC.
    SetTrust(Principal, SecretKey),
    /// Take keys out of a keytab.
    Trim(SecretKey, Vec<OldKey>),
    /// Take something out of a Secret.
    Clear(SecretKey),
    /// Take something out of a SealedSecret.
    ClearSealed(SecretKey),
}

impl Action {
    /// Whether it fulfils the request for another key.
    #[must_use]
    pub fn is_another_key(&self, key_spec: &KeySpec) -> bool {
        let is_preset = key_spec.spec.as_ref().is_ok_and(|spec| spec.key_type.is_preset());
        match self {
            Self::MakeKeys { .. } | Self::MakeValue(_) | Self::MakeTrust(..) | Self::MakeSealed(_) => true,
            Self::SetPassword(..) | Self::SetTrust(..) => is_preset,
            _ => false,
        }
    }
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// This, and then look again.
    Do(Action),
    Done {
        /// When a key must be trimmed, seconds since 1970.
        trim_at_s: Option<u64>,
        /// The state of the account.
        account: AccountState,
    },
    /// Nothing can be done, for this reason.
    Refused(String),
    /// Someone wants nothing to be done.
    Suspended,
    /// The resource may go.
    Released,
}

#[must_use]
pub fn decide(key_spec: &KeySpec, observed: &Observed, others: &OtherClaims, rules: &Rules) -> Decision {
    if key_spec.deleting {
        return end(key_spec, observed, others);
    }
    if key_spec.suspended {
        return Decision::Suspended;
    }
    let spec = match &key_spec.spec {
        Ok(spec) => spec,
        Err(reason) => return Decision::Refused(reason.clone()),
    };
    if let Some(reason) = taken(spec, others) {
        return Decision::Refused(reason);
    }
    let answer = observed.account.as_ref();
    let recorded = key_spec.meta.record.account.as_deref();
    let account = spec.account.as_ref().map(|account| Box::new(RecordedAccount::of(account, recorded, answer)));
    let wanted = Record { account, ..Record::of(spec) };
    let claimed = Meta { finalizer: true, record: key_spec.meta.record.with(&wanted), ..key_spec.meta.clone() };
    if claimed != key_spec.meta {
        return Decision::Do(Action::Mark { meta: claimed, fulfilled: false });
    }
    let steps = [
        principals(spec, observed),
        in_the_way(spec, observed, others),
        key(spec, key_spec, observed, rules),
        leftovers(&wanted, spec.secret.as_ref().filter(|_| spec.seal_with.is_none()), key_spec, observed, others),
    ];
    if let Some(decision) = steps.into_iter().flatten().next() {
        return decision;
    }
    let entries =
        observed.secret.as_ref().and_then(|secret| secret.material.as_ref()).map(|material| &material.entries);
    let old = entries.map(|entries| old_keys(entries)).unwrap_or_default();
    let is_over = |old: &OldKey| u64::from(old.followed_s) + rules.expire_old_s <= rules.now_s;
    let is_writable = observed.secret.as_ref().is_some_and(|secret| secret.is_writable);
    if let Some(secret) = spec.secret.clone().filter(|_| is_writable && old.iter().any(is_over)) {
        return Decision::Do(Action::Trim(secret, old.into_iter().filter(is_over).collect()));
    }
    // A resource that comes here has delivered what is there.
    let record = Record { delivery: observed.delivery.clone(), ..wanted };
    let last = Meta { finalizer: true, record, force_rekey: false, has_old_keys: !old.is_empty() };
    if last != key_spec.meta {
        return Decision::Do(Action::Mark { meta: last, fulfilled: key_spec.meta.force_rekey });
    }
    let trim_at_s = old.iter().map(|old| u64::from(old.followed_s) + rules.expire_old_s).min();
    let account = AccountState::of(recorded, answer);
    Decision::Done { trim_at_s: trim_at_s.filter(|_| is_writable), account }
}

/// Two resources with one principal or one place would take each other's keys away for ever.
fn taken(spec: &Spec, others: &OtherClaims) -> Option<String> {
    if let Some(principal) = spec.principals.iter().find(|principal| others.owned.principals.contains(principal)) {
        return Some(format!("principal {principal} belongs to another resource; each needs its own"));
    }
    let place = spec.secret.as_ref()?;
    if others.owned.secrets.contains(place) || others.owned.sealed.contains(place) {
        return Some(format!("{place} is written by another resource; each needs its own"));
    }
    // The Sealed Secrets controller writes a whole Secret, and none that it has not made.
    let unlike = if spec.seal_with.is_some() { &others.owned.secrets } else { &others.owned.sealed };
    unlike.iter().any(|other| other.secret == place.secret).then(|| {
        let name = &place.secret;
        format!("Secret {name} has keys of other resources; a Secret holds either sealed keys or such that are not")
    })
}

/// A Secret cannot be written while it is still made of a SealedSecret, and the Sealed Secrets controller makes none where one is.
fn in_the_way(spec: &Spec, observed: &Observed, others: &OtherClaims) -> Option<Decision> {
    let (place, seen) = (spec.secret.as_ref()?, observed.secret.as_ref()?);
    let is_same = |other: &&SecretKey| other.secret == place.secret;
    if spec.seal_with.is_none() {
        let sealed = observed.stale_sealed.iter().filter(is_same);
        let mut sealed = sealed.filter(|sealed| !others.wanted.sealed.contains(*sealed));
        return Some(Decision::Do(Action::ClearSealed(sealed.next()?.clone())));
    }
    // Not before another one can be made.
    let may_make = seen.is_writable && seen.obstacle.is_none();
    let plain = observed.stale.iter().filter(is_same).find(|_| may_make)?;
    Some(Decision::Do(Action::Clear(plain.clone())))
}

/// The principals exist and get tickets, or get none.
fn principals(spec: &Spec, observed: &Observed) -> Option<Decision> {
    let is_disabled = spec.key_type == KeyType::Disabled;
    let step = |principal: &Principal| match (observed.principals.get(principal), is_disabled) {
        (Some(Presence::Absent) | None, false) => Some(Action::Create(principal.clone())),
        (Some(Presence::Disabled), false) => Some(Action::Allow(principal.clone(), true)),
        (Some(Presence::Enabled), true) => Some(Action::Allow(principal.clone(), false)),
        _ => None,
    };
    spec.principals.iter().find_map(step).map(Decision::Do)
}

/// The key verifies, or another is made.
fn key(spec: &Spec, key_spec: &KeySpec, observed: &Observed, rules: &Rules) -> Option<Decision> {
    let (Some(place), Some(seen)) = (&spec.secret, &observed.secret) else { return None };
    let is_forced = key_spec.meta.force_rekey && !rules.forced_done;
    let delivered = rules.delivery.as_ref().or(key_spec.meta.record.delivery.as_ref());
    let validity = seen.material.as_ref().map(|material| match material.validity {
        Validity::Recorded if delivered.is_some() && delivered == observed.delivery.as_ref() => Validity::Valid,
        Validity::Recorded => Validity::Invalid,
        known => known,
    });
    let make = |action| {
        if let Some(obstacle) = &seen.obstacle {
            return Some(Decision::Refused(obstacle.clone()));
        }
        if seen.is_writable {
            return Some(Decision::Do(action));
        }
        let name = &place.secret;
        let kind = if spec.seal_with.is_some() { "SealedSecret" } else { "Secret" };
        Some(Decision::Refused(format!(
            "{kind} {name} is not written: it lacks the label {}={}; delete it, or give it the label",
            crate::MANAGED_BY_LABEL,
            crate::MANAGER
        )))
    };
    // It is given to the KDC and sealed in one step: no one could read it back between the two. Whatever is killed there, the delivery is not recorded, and another key is made.
    if let Some(sealed) = SealedKey::of(spec) {
        let is_delivered = validity == Some(Validity::Valid) && !is_forced;
        return if is_delivered { None } else { make(Action::MakeSealed(sealed)) };
    }
    let first = spec.principals.first();
    let make_value = || match first.filter(|_| spec.key_type.is_trust()) {
        Some(principal) => make(Action::MakeTrust(principal.clone(), place.clone())),
        None => make(Action::MakeValue(place.clone())),
    };
    let set = || {
        let action = if spec.key_type.is_trust() { Action::SetTrust } else { Action::SetPassword };
        Some(Decision::Do(action(first?.clone(), place.clone())))
    };
    match (spec.key_type, validity) {
        (KeyType::Disabled, _) => None,
        (KeyType::Local, Some(_)) => None,
        (KeyType::Local, None) => make_value(),
        (KeyType::Random | KeyType::PresetPassword | KeyType::PresetTrust, Some(Validity::Valid)) if !is_forced => None,
        (KeyType::Random, _) => make(Action::MakeKeys {
            principals: spec.principals.clone(),
            secret: place.clone(),
            keep_old: spec.keep_old_keys,
        }),
        // A password is written first and given to the KDC then: whatever is killed between the two, no one has lost it.
        (KeyType::Password | KeyType::Trust, Some(_)) if is_forced => make_value(),
        (KeyType::Password | KeyType::Trust, None) => make_value(),
        (KeyType::Password | KeyType::Trust, Some(Validity::Valid)) => None,
        (KeyType::Password | KeyType::Trust, Some(_)) if seen.is_writable => set(),
        (KeyType::Password | KeyType::Trust, Some(_)) => make_value(),
        (KeyType::PresetPassword | KeyType::PresetTrust, Some(_)) => set(),
        (KeyType::PresetPassword, None) => {
            Some(Decision::Refused(format!("{place} is missing: the password must be written there first")))
        }
        (KeyType::PresetTrust, None) => Some(Decision::Refused(format!(
            "{place} is missing: the key that the other realm has must be written there first"
        ))),
    }
}

/// What the resource made and no longer wants.
fn leftovers(
    wanted: &Record,
    kept: Option<&SecretKey>,
    key_spec: &KeySpec,
    observed: &Observed,
    others: &OtherClaims,
) -> Option<Decision> {
    let is_over = |secret: &&SecretKey| {
        !wanted.secrets.contains(secret) && !others.wanted.secrets.contains(secret) && kept != Some(secret)
    };
    if let Some(secret) = observed.stale.iter().find(is_over) {
        return Some(Decision::Do(Action::Clear(secret.clone())));
    }
    let is_over = |sealed: &&SecretKey| !wanted.sealed.contains(sealed) && !others.wanted.sealed.contains(sealed);
    if let Some(sealed) = observed.stale_sealed.iter().find(is_over) {
        return Some(Decision::Do(Action::ClearSealed(sealed.clone())));
    }
    let is_left = |principal: &&Principal| {
        !wanted.principals.contains(principal)
            && !others.wanted.principals.contains(principal)
            && observed.principals.get(principal) == Some(&Presence::Enabled)
    };
    let principal = key_spec.meta.record.principals.iter().find(is_left)?;
    Some(Decision::Do(Action::Allow(principal.clone(), false)))
}

/// The end of a resource: its principals get no tickets, its keys go, then it goes.
fn end(key_spec: &KeySpec, observed: &Observed, others: &OtherClaims) -> Decision {
    if !key_spec.meta.finalizer {
        return Decision::Released;
    }
    let nothing = Record::default();
    if let Some(decision) = leftovers(&nothing, None, key_spec, observed, others).filter(|_| !key_spec.suspended) {
        return decision;
    }
    Decision::Do(Action::Mark { meta: Meta { finalizer: false, ..key_spec.meta.clone() }, fulfilled: false })
}

#[cfg(test)]
mod tests;
