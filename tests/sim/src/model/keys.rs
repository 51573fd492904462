//! Kerberos keys of a cluster: a KDC, and the Secrets and resources of its namespace.
//!
//! krb-keys itself is real ([`crate::fleet::keys`]).
//! What it looks at and does is carried out on this model, later, and perhaps after the process that asked is gone ([`crate::steps::keys`]).
//! A key is a number: two places have the same key if they have the same number.
//!
//! krb-keys runs once, as its Deployment says (`Recreate`), so there is no second instance of it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kerberos_client::{Presence, Principal};
use krb_keys::event::{Effect, Event, KeyError, ObservationRequest, Resource};
use krb_keys::reconcile::{Material, Meta, Observed, SecretSeen, Validity};
use krb_keys::spec::{KeyType, ResourceId, SecretKey, Spec};

/// Which life of which process asks.
pub(crate) type ProcessLife = (u32, u64);

/// A principal in the KDC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownPrincipal {
    /// It gets tickets.
    pub is_enabled: bool,
    /// Its key.
    pub key: u64,
}

/// What a place in a Secret holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// A keytab.
    Keys(BTreeMap<Principal, u64>),
    /// A password, or a value that no KDC knows.
    Text(u64),
    /// Neither.
    Garbage,
}

/// What of a cluster belongs to keys.
#[derive(Debug, Default)]
pub struct KeySite {
    /// Principals.
    pub kdc: BTreeMap<Principal, KnownPrincipal>,
    /// Secrets that krb-keys has written, by their places.
    pub secrets: BTreeMap<SecretKey, Content>,
    /// KerberosKeys and LocalSecrets.
    pub resources: BTreeMap<ResourceId, Resource>,
    /// Until then the KDC does not answer.
    pub kdc_away_until: Option<Duration>,
    pub(crate) backup: BTreeMap<Principal, KnownPrincipal>,
    /// Keys that the KDC has and no Secret yet, in the memory of a process.
    pub(crate) unwritten: BTreeMap<(ProcessLife, SecretKey), BTreeMap<Principal, u64>>,
    /// Requests for another key that a process has fulfilled: only their mark is still there.
    pub(crate) fulfilled: BTreeSet<(ProcessLife, ResourceId)>,
    /// Watches are in order.
    pub(crate) events_at: Duration,
    last: u64,
}

/// What krb-keys asked for.
#[derive(Debug)]
pub enum KeyWork {
    /// As it asked.
    Asked(Effect),
    /// The second half of making keys: the KDC has them, and they go into a Secret.
    Write {
        /// Resource.
        id: ResourceId,
        /// Place.
        place: SecretKey,
        /// Keys.
        keys: BTreeMap<Principal, u64>,
    },
}

pub(crate) fn away() -> KeyError {
    KeyError::Kubernetes("the API server does not answer".to_owned())
}

impl KeySite {
    pub(crate) fn fresh(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    pub(crate) fn key(&self, principal: &Principal) -> Option<u64> {
        self.kdc.get(principal).map(|known| known.key)
    }

    /// Whether what a place holds is the key that the KDC has.
    #[must_use]
    pub fn is_right(&self, spec: &Spec, content: Option<&Content>) -> bool {
        match (spec.key_type, content) {
            (KeyType::Random, Some(Content::Keys(keys))) => {
                spec.principals.iter().all(|principal| keys.get(principal).copied() == self.key(principal))
            }
            (KeyType::Password, Some(Content::Text(text))) => {
                spec.principals.first().and_then(|principal| self.key(principal)) == Some(*text)
            }
            (KeyType::Local, Some(_)) | (KeyType::Disabled, _) => true,
            _ => false,
        }
    }

    pub(crate) fn look(&self, request: &ObservationRequest, is_up: bool) -> Result<Observed, KeyError> {
        let mut observed = Observed::default();
        for principal in &request.principals {
            let presence = match self.kdc.get(principal) {
                None => Presence::Absent,
                Some(known) if known.is_enabled => Presence::Enabled,
                Some(_) => Presence::Disabled,
            };
            observed.principals.insert(principal.clone(), presence);
        }
        if !is_up && (request.spec.is_some() || !request.stale.is_empty()) {
            return Err(away());
        }
        if let Some((spec, place)) = request.spec.as_ref().and_then(|spec| Some((spec, spec.secret.as_ref()?))) {
            let is_enabled = |principal| observed.principals.get(principal) == Some(&Presence::Enabled);
            let may_ask = spec.principals.iter().all(is_enabled);
            let content = self.secrets.get(place);
            let validity = match spec.key_type {
                KeyType::Local => Validity::Valid,
                KeyType::Disabled => Validity::Unchecked,
                _ if !may_ask => Validity::Unchecked,
                _ if self.is_right(spec, content) => Validity::Valid,
                _ => Validity::Invalid,
            };
            // What is not a text is not a password.
            let is_nothing = spec.key_type == KeyType::Password && !matches!(content, Some(Content::Text(_)));
            let material = content.filter(|_| !is_nothing).map(|_| Material { validity, entries: Vec::new() });
            observed.secret = Some(SecretSeen { is_writable: true, material, obstacle: None });
        }
        observed.stale.extend(request.stale.iter().filter(|place| self.secrets.contains_key(place)).cloned());
        Ok(observed)
    }

    /// Whether there is a reason for another key: there is none in its place, the KDC has another one, or someone wants one.
    pub(crate) fn is_proven(&mut self, life: ProcessLife, id: &ResourceId, place: &SecretKey, has_value: bool) -> bool {
        let key_spec = self.resources.get(id).map(|resource| &resource.key_spec);
        let is_forced = key_spec.is_some_and(|key_spec| key_spec.meta.force_rekey);
        let is_wrong = match (key_spec.and_then(|key_spec| key_spec.spec.as_ref().ok()), self.secrets.get(place)) {
            (_, None) => true,
            // A value that is there is kept, and given to the KDC again.
            (_, Some(Content::Text(_))) if has_value => false,
            (Some(spec), content) => !self.is_right(spec, content),
            // It was deleted while it was looked at.
            (None, Some(_)) => true,
        };
        is_wrong || (is_forced && self.fulfilled.insert((life, id.clone())))
    }

    pub(crate) fn mark(
        &mut self,
        id: &ResourceId,
        uid: &str,
        meta: &Meta,
        fulfilled: bool,
    ) -> Result<Option<Event>, KeyError> {
        let conflict = || KeyError::Conflict(id.to_string());
        let resource = self.resources.get_mut(id).filter(|resource| resource.uid == uid).ok_or_else(conflict)?;
        let force_rekey = resource.key_spec.meta.force_rekey && !fulfilled;
        resource.key_spec.meta = Meta { force_rekey, ..meta.clone() };
        let (is_gone, resource) = (resource.key_spec.deleting && !meta.finalizer, resource.clone());
        if fulfilled {
            self.fulfilled.retain(|(_, of)| of != id);
        }
        if is_gone {
            self.resources.remove(id);
            return Ok(Some(Event::Deleted(id.clone())));
        }
        Ok(Some(Event::Applied(id.clone(), resource)))
    }
}
