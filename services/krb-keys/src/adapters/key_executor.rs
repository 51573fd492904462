//! Looks and acts: what the state asks for, done to KDC and Kubernetes. The only place where keys and passwords are held, and that only for a moment.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use kerberos_client::{Kdc, KdcError, KeyInfo, Presence, Principal};
use kube::Client;
use zeroize::Zeroizing;

use super::material::{fresh_trust, random_text, stamp};
use super::resources;
use super::sealing::Sealing;
use super::secrets::{Found, Secrets};
use crate::event::{KeyError, ObservationRequest, Status};
use crate::keytab::Keytab;
use crate::reconcile::{Action, Delivery, Material, Observed, SealedKey, SecretSeen, Validity};
use crate::spec::{KeyType, ResourceId, SecretKey, Spec};
use crate::trust::TrustKey;

/// Keys that the KDC has and no Secret yet.
struct Unwritten {
    principals: Vec<Principal>,
    keytab: Zeroizing<Vec<u8>>,
}

#[derive(Clone)]
pub(crate) struct KeyExecutor {
    client: Client,
    namespace: String,
    secrets: Secrets,
    sealing: Sealing,
    kdc: Kdc,
    /// So that an outage of Kubernetes does not make one key after another.
    unwritten: Arc<Mutex<BTreeMap<SecretKey, Unwritten>>>,
}

impl std::fmt::Debug for KeyExecutor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyExecutor").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

impl KeyExecutor {
    /// On resources and Secrets of `namespace`.
    #[must_use]
    pub(crate) fn new(client: Client, namespace: &str, kdc: Kdc) -> Self {
        let secrets = Secrets::new(client.clone(), namespace);
        let sealing = Sealing::new(client.clone(), namespace, kdc.clone());
        Self { client, namespace: namespace.to_owned(), secrets, sealing, kdc, unwritten: Arc::default() }
    }

    /// Looks.
    ///
    /// # Errors
    /// [`KeyError`]: what is asked for is not known.
    pub(crate) async fn look(&self, request: ObservationRequest) -> Result<Observed, KeyError> {
        let mut observed = Observed::default();
        for principal in request.principals {
            let presence = self.kdc.presence(&principal).await?;
            observed.principals.insert(principal, presence);
        }
        if let Some(spec) = &request.spec {
            let is_enabled = |principal| observed.principals.get(principal) == Some(&Presence::Enabled);
            let may_ask = spec.principals.iter().all(is_enabled);
            (observed.secret, observed.delivery) = self.wanted(spec, may_ask).await?;
        }
        for place in request.stale {
            let found = self.secrets.read(&place).await?;
            if found.is_writable && found.value.is_some() {
                observed.stale.insert(place);
            }
        }
        for place in request.stale_sealed {
            if self.sealing.holds(&place).await? {
                observed.stale_sealed.insert(place);
            }
        }
        Ok(observed)
    }

    /// What there is of the wanted key; and what would be recorded of a delivery, if it cannot be asked about.
    async fn wanted(&self, spec: &Spec, may_ask: bool) -> Result<(Option<SecretSeen>, Option<Delivery>), KeyError> {
        if let Some(key) = SealedKey::of(spec) {
            let (seen, delivery) = self.sealing.look(&key, may_ask).await?;
            return Ok((Some(seen), delivery));
        }
        let Some(place) = spec.secret.as_ref().filter(|_| spec.seal_with.is_none()) else { return Ok((None, None)) };
        let found = self.secrets.read(place).await?;
        let (material, delivery) = match &found.value {
            Some(_) if spec.key_type.is_trust() => self.trust(spec, place, &found, may_ask).await?,
            Some(value) => (self.material(spec, place, value, may_ask).await?, None),
            None => (None, None),
        };
        Ok((Some(SecretSeen { is_writable: found.is_writable, material, obstacle: None }), delivery))
    }

    /// What a value is; None: nothing that could be used.
    async fn material(
        &self,
        spec: &Spec,
        place: &SecretKey,
        value: &[u8],
        may_ask: bool,
    ) -> Result<Option<Material>, KeyError> {
        let (validity, entries) = match spec.key_type {
            KeyType::Local => (Validity::Valid, Vec::new()),
            KeyType::Disabled | KeyType::Trust | KeyType::PresetTrust => (Validity::Unchecked, Vec::new()),
            KeyType::Random => match Keytab::parse(value) {
                Ok(keytab) => {
                    let entries = keytab.entries().cloned().collect();
                    let validity =
                        if may_ask { self.are_keys_valid(&spec.principals, value).await? } else { Validity::Unchecked };
                    (validity, entries)
                }
                Err(_) => (Validity::Invalid, Vec::new()),
            },
            KeyType::Password | KeyType::PresetPassword => {
                let Some(principal) = spec.principals.first().filter(|_| may_ask) else {
                    return Ok(Some(Material { validity: Validity::Unchecked, entries: Vec::new() }));
                };
                match self.kdc.is_password_valid(principal, value).await {
                    Ok(is_valid) => (validity(is_valid), Vec::new()),
                    Err(KdcError::Password(_)) if spec.key_type == KeyType::Password => return Ok(None),
                    Err(KdcError::Password(rule)) => {
                        return Err(KeyError::Content(place.clone(), format!("the password {rule}")));
                    }
                    Err(error) => return Err(error.into()),
                }
            }
        };
        Ok(Some(Material { validity, entries }))
    }

    /// What the key of a trust is; and what would be recorded if it was given to the KDC at this moment, if that cannot be asked about it.
    async fn trust(
        &self,
        spec: &Spec,
        place: &SecretKey,
        found: &Found,
        may_ask: bool,
    ) -> Result<(Option<Material>, Option<Delivery>), KeyError> {
        let is = |validity| Some(Material { validity, entries: Vec::new() });
        let key = match TrustKey::parse(found.value.as_ref().map_or(&[], |value| value.as_slice())) {
            Ok(key) => key,
            // What is ours and cannot be used is made again.
            Err(_) if !spec.key_type.is_preset() => return Ok((None, None)),
            Err(rule) => return Err(KeyError::Content(place.clone(), rule.to_string())),
        };
        let Some(principal) = spec.principals.first().filter(|_| may_ask) else {
            return Ok((is(Validity::Unchecked), None));
        };
        let info = self.kdc.key_info(principal).await?;
        let is_known = info.is_exactly(u32::from(key.version), &key.types);
        if !self.kdc.is_home(principal) {
            let validity = if is_known { Validity::Recorded } else { Validity::Invalid };
            return Ok((is(validity), Some(delivery(principal, &info, found))));
        }
        if !is_known {
            return Ok((is(Validity::Invalid), None));
        }
        Ok((is(validity(self.kdc.is_password_valid(principal, key.password.as_bytes()).await?)), None))
    }

    async fn make_trust(&self, principal: &Principal, place: &SecretKey) -> Result<(), KeyError> {
        let value = fresh_trust(&self.kdc, principal).await?.to_bytes();
        self.secrets.change(place, |_| Ok(Some(value.clone()))).await
    }

    async fn set_trust(&self, principal: &Principal, place: &SecretKey) -> Result<Option<Delivery>, KeyError> {
        let found = self.secrets.read(place).await?;
        let value = found.value.as_ref().ok_or_else(|| gone(place))?;
        let key = TrustKey::parse(value).map_err(|rule| KeyError::Content(place.clone(), rule.to_string()))?;
        let (password, version) = (key.password.as_bytes(), u32::from(key.version));
        let info = self.kdc.set_keys(principal, password, version, &key.types).await?;
        Ok((!self.kdc.is_home(principal)).then(|| delivery(principal, &info, &found)))
    }

    async fn are_keys_valid(&self, principals: &[Principal], keytab: &[u8]) -> Result<Validity, KdcError> {
        for principal in principals {
            if !self.kdc.is_keytab_valid(principal, keytab).await? {
                return Ok(Validity::Invalid);
            }
        }
        Ok(Validity::Valid)
    }

    /// Does one step for the object with that uid.
    ///
    /// # Errors
    /// [`KeyError`]: it may be done, or not.
    pub(crate) async fn act(&self, id: &ResourceId, uid: &str, action: Action) -> Result<Option<Delivery>, KeyError> {
        match action {
            Action::SetTrust(principal, secret) => return self.set_trust(&principal, &secret).await,
            Action::MakeSealed(key) => return self.sealing.make(key).await.map(Some),
            Action::Mark { meta, fulfilled } => {
                resources::mark(&self.client, &self.namespace, (id, uid), &meta, fulfilled).await?;
            }
            Action::Create(principal) => self.kdc.create(&principal).await?,
            Action::Allow(principal, allowed) => self.kdc.allow(&principal, allowed).await?,
            Action::MakeKeys { principals, secret, keep_old } => self.make_keys(principals, &secret, keep_old).await?,
            Action::MakeValue(secret) => {
                let value = random_text()?;
                self.secrets.change(&secret, |_| Ok(Some(Zeroizing::new(value.as_bytes().to_vec())))).await?;
            }
            Action::MakeTrust(principal, secret) => self.make_trust(&principal, &secret).await?,
            Action::SetPassword(principal, secret) => {
                let found = self.secrets.read(&secret).await?;
                self.kdc.set_password(&principal, &found.value.ok_or_else(|| gone(&secret))?).await?;
            }
            Action::Trim(secret, keys) => {
                let trim = |value: Option<&[u8]>| {
                    let keytab = value.map(Keytab::parse).transpose().map_err(|error| error.to_string())?;
                    Ok(keytab.map(|keytab| keytab.without(&keys).to_bytes()))
                };
                self.secrets.change(&secret, trim).await?;
            }
            Action::Clear(secret) => self.secrets.change(&secret, |_| Ok(None)).await?,
            Action::ClearSealed(secret) => self.sealing.clear(&secret).await?,
        }
        Ok(None)
    }

    async fn make_keys(&self, principals: Vec<Principal>, place: &SecretKey, keep_old: bool) -> Result<(), KeyError> {
        let unwritten = self.unwritten.lock().unwrap_or_else(PoisonError::into_inner).remove(place);
        let keytab = match unwritten.filter(|unwritten| unwritten.principals == principals) {
            Some(Unwritten { keytab, .. }) => {
                let validity = self.are_keys_valid(&principals, &keytab).await;
                match validity {
                    Ok(Validity::Valid) => keytab,
                    Ok(_) => self.kdc.new_keys(&principals).await?,
                    Err(error) => {
                        self.keep(place, principals, keytab);
                        return Err(error.into());
                    }
                }
            }
            None => self.kdc.new_keys(&principals).await?,
        };
        let newer = Keytab::parse(&keytab).map_err(|error| KeyError::Content(place.clone(), error.to_string()))?;
        let written = self
            .secrets
            .change(place, |value| {
                // What was there and is not a keytab is not a key that anyone could use.
                let before = value.filter(|_| keep_old).and_then(|value| Keytab::parse(value).ok()).unwrap_or_default();
                let names: BTreeSet<&str> = principals.iter().map(Principal::as_str).collect();
                Ok(Some(before.followed_by(newer.clone(), &names).to_bytes()))
            })
            .await;
        if written.is_err() {
            self.keep(place, principals, keytab);
        }
        written
    }

    fn keep(&self, place: &SecretKey, principals: Vec<Principal>, keytab: Zeroizing<Vec<u8>>) {
        let mut unwritten = self.unwritten.lock().unwrap_or_else(PoisonError::into_inner);
        unwritten.insert(place.clone(), Unwritten { principals, keytab });
    }

    /// Writes the status of a resource. False: it could not be written, and the log says why.
    pub(crate) async fn write_status(&self, id: &ResourceId, status: &Status) -> bool {
        let written = resources::write_status(&self.client, &self.namespace, id, status).await;
        if let Err(error) = &written {
            tracing::warn!(resource = %id, %error, "the status cannot be written; it is tried again");
        }
        written.is_ok()
    }
}

fn validity(is_valid: bool) -> Validity {
    if is_valid { Validity::Valid } else { Validity::Invalid }
}

fn gone(place: &SecretKey) -> KeyError {
    KeyError::Content(place.clone(), "it is gone".to_owned())
}

fn delivery(principal: &Principal, info: &KeyInfo, found: &Found) -> Delivery {
    Delivery { of: found.version.clone(), keys: [(principal.clone(), stamp(info))].into() }
}
