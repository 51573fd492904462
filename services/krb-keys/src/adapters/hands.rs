//! Looks and acts: what the state asks for, done to KDC and Kubernetes. The only place where keys and passwords are held, and that only for a moment.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use kerberos_client::{Kdc, KdcError, Presence, Principal};
use kube::Client;
use zeroize::Zeroizing;

use super::resources;
use super::secrets::Secrets;
use crate::event::{Question, Status, Trouble};
use crate::keytab::Keytab;
use crate::reconcile::{Action, Material, Observed, SecretSeen, Validity};
use crate::spec::{KeyType, ResourceId, SecretKey, Spec};

/// Random bytes of a made value; as text it has 43 characters.
const VALUE_BYTES: usize = 32;

/// Keys that the KDC has and no Secret yet.
struct Unwritten {
    principals: Vec<Principal>,
    keytab: Zeroizing<Vec<u8>>,
}

/// See the module.
#[derive(Clone)]
pub struct Hands {
    client: Client,
    namespace: String,
    secrets: Secrets,
    kdc: Kdc,
    /// So that an outage of Kubernetes does not make one key after another.
    unwritten: Arc<Mutex<BTreeMap<SecretKey, Unwritten>>>,
}

impl std::fmt::Debug for Hands {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hands").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

impl Hands {
    /// On resources and Secrets of `namespace`.
    #[must_use]
    pub fn new(client: Client, namespace: &str, kdc: Kdc) -> Self {
        let secrets = Secrets::new(client.clone(), namespace);
        Self { client, namespace: namespace.to_owned(), secrets, kdc, unwritten: Arc::default() }
    }

    /// Looks.
    ///
    /// # Errors
    /// [`Trouble`]: what is asked for is not known.
    pub async fn look(&self, question: Question) -> Result<Observed, Trouble> {
        let mut observed = Observed::default();
        for principal in question.principals {
            let presence = self.kdc.presence(&principal).await?;
            observed.principals.insert(principal, presence);
        }
        if let Some((spec, place)) = question.spec.as_ref().and_then(|spec| Some((spec, spec.secret.as_ref()?))) {
            let found = self.secrets.read(place).await?;
            let is_enabled = |principal| observed.principals.get(principal) == Some(&Presence::Enabled);
            let may_ask = spec.principals.iter().all(is_enabled);
            let material = match &found.value {
                Some(value) => self.material(spec, place, value, may_ask).await?,
                None => None,
            };
            observed.secret = Some(SecretSeen { is_writable: found.is_writable, material });
        }
        for place in question.stale {
            let found = self.secrets.read(&place).await?;
            if found.is_writable && found.value.is_some() {
                observed.stale.insert(place);
            }
        }
        Ok(observed)
    }

    /// What a value is; None: nothing that could be used.
    async fn material(
        &self,
        spec: &Spec,
        place: &SecretKey,
        value: &[u8],
        may_ask: bool,
    ) -> Result<Option<Material>, Trouble> {
        let (validity, entries) = match spec.key_type {
            KeyType::Local => (Validity::Valid, Vec::new()),
            KeyType::Disabled => (Validity::Unchecked, Vec::new()),
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
                        return Err(Trouble::Content(place.clone(), format!("the password {rule}")));
                    }
                    Err(error) => return Err(error.into()),
                }
            }
        };
        Ok(Some(Material { validity, entries }))
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
    /// [`Trouble`]: it may be done, or not.
    pub async fn act(&self, id: &ResourceId, uid: &str, action: Action) -> Result<(), Trouble> {
        match action {
            Action::Mark { meta, fulfilled } => {
                resources::mark(&self.client, &self.namespace, (id, uid), &meta, fulfilled).await
            }
            Action::Create(principal) => Ok(self.kdc.create(&principal).await?),
            Action::Allow(principal, allowed) => Ok(self.kdc.allow(&principal, allowed).await?),
            Action::MakeKeys { principals, secret, keep_old } => self.make_keys(principals, &secret, keep_old).await,
            Action::MakeValue(secret) => {
                let value = random_text()?;
                self.secrets.change(&secret, |_| Ok(Some(value.clone()))).await
            }
            Action::SetPassword(principal, secret) => {
                let found = self.secrets.read(&secret).await?;
                let gone = || Trouble::Content(secret.clone(), "it is gone".to_owned());
                Ok(self.kdc.set_password(&principal, &found.value.ok_or_else(gone)?).await?)
            }
            Action::Trim(secret, keys) => {
                let trim = |value: Option<&[u8]>| {
                    let keytab = value.map(Keytab::parse).transpose().map_err(|error| error.to_string())?;
                    Ok(keytab.map(|keytab| keytab.without(&keys).to_bytes()))
                };
                self.secrets.change(&secret, trim).await
            }
            Action::Clear(secret) => self.secrets.change(&secret, |_| Ok(None)).await,
        }
    }

    async fn make_keys(&self, principals: Vec<Principal>, place: &SecretKey, keep_old: bool) -> Result<(), Trouble> {
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
        let newer = Keytab::parse(&keytab).map_err(|error| Trouble::Content(place.clone(), error.to_string()))?;
        let written = self
            .secrets
            .change(place, |value| {
                // What was there and is no keytab is no key that anybody could use.
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

    /// Says how a resource stands. Failing is no harm: it is said again when it changes.
    pub async fn tell(&self, id: &ResourceId, status: &Status) {
        if let Err(error) = resources::tell_status(&self.client, &self.namespace, id, status).await {
            tracing::warn!(resource = %id, %error, "the status cannot be written");
        }
    }
}

fn validity(is_valid: bool) -> Validity {
    if is_valid { Validity::Valid } else { Validity::Invalid }
}

fn random_text() -> Result<Zeroizing<Vec<u8>>, Trouble> {
    let mut bytes = Zeroizing::new([0; VALUE_BYTES]);
    let filled = SystemRandom::new().fill(bytes.as_mut());
    filled.map_err(|_| KdcError::Local("the operating system gives no random numbers".to_owned()))?;
    Ok(Zeroizing::new(URL_SAFE_NO_PAD.encode(bytes.as_ref()).into_bytes()))
}
