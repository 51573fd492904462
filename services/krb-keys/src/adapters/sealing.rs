//! Keys that are sealed: made, given to the KDC, sealed for a certificate and written into SealedSecrets of the own namespace. No one can read them back, so each time it is said what was
//! delivered. Only SealedSecrets with our label are written.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::digest::{SHA256, digest};
use configdb_schema::document::SealingScope;
use k8s_openapi::api::core::v1::ConfigMap;
use kerberos_client::{Kdc, Principal};
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, PostParams};
use kube::{Api, Client};
use sealed_secrets::{Plain, Request, SESSION_KEY_BYTES, SealingCertificate, fingerprint, sealed_secret};
use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::material::{fresh_trust, random, random_text, stamps};
use super::resources::key_error;
use super::secrets::{TRIES, is_ours, unchanged};
use crate::event::KeyError;
use crate::reconcile::{Delivery, KeyStamp, Material, SealedKey, SecretSeen, Validity};
use crate::spec::{ConfigMapKey, KeyType, SecretKey};
use crate::{MANAGED_BY_LABEL, MANAGER};

/// Why no SealedSecret can be written where there is no such kind.
const NO_KIND: &str = "there is no kind SealedSecret; install the Sealed Secrets controller";

/// A key that the KDC has and no SealedSecret yet.
struct Unwritten {
    of: SealedKey,
    value: Zeroizing<Vec<u8>>,
    stamps: BTreeMap<Principal, KeyStamp>,
}

#[derive(Clone)]
pub(crate) struct Sealing {
    namespace: String,
    config_maps: Api<ConfigMap>,
    sealed: Api<DynamicObject>,
    kdc: Kdc,
    /// So that an outage of Kubernetes does not make one key after another.
    unwritten: Arc<Mutex<BTreeMap<SecretKey, Unwritten>>>,
}

impl std::fmt::Debug for Sealing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sealing").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

impl Sealing {
    /// In `namespace`, of keys that `kdc` gets.
    #[must_use]
    pub(crate) fn new(client: Client, namespace: &str, kdc: Kdc) -> Self {
        let kind = GroupVersionKind::gvk("bitnami.com", "v1alpha1", "SealedSecret");
        let kind = ApiResource::from_gvk_with_plural(&kind, "sealedsecrets");
        Self {
            namespace: namespace.to_owned(),
            config_maps: Api::namespaced(client.clone(), namespace),
            sealed: Api::namespaced_with(client, namespace, &kind),
            kdc,
            unwritten: Arc::default(),
        }
    }

    /// Looks at the place of a key; and what would be recorded if what is there was delivered at this moment. `may_ask`: all principals get tickets.
    ///
    /// # Errors
    /// Kubernetes, the KDC.
    pub(crate) async fn look(
        &self,
        key: &SealedKey,
        may_ask: bool,
    ) -> Result<(SecretSeen, Option<Delivery>), KeyError> {
        let found = self.get(&key.place).await?;
        let value = found.as_ref().and_then(|object| value(object, &key.place));
        let certificate = self.certificate(&key.seal_with).await?;
        let obstacle = certificate.as_ref().map_or_else(|reason| Some(reason.clone()), |pem| usable(pem).err());
        let delivery = match (value, &certificate) {
            (Some(value), Ok(pem)) if may_ask => {
                Some(Delivery { of: of(key, pem, value), keys: stamps(&self.kdc, &key.principals).await? })
            }
            _ => None,
        };
        let validity = if may_ask { Validity::Recorded } else { Validity::Unchecked };
        let material = value.map(|_| Material { validity, entries: Vec::new() });
        Ok((SecretSeen { is_writable: found.as_ref().is_none_or(is_ours), material, obstacle }, delivery))
    }

    /// Whether a place holds something of ours.
    ///
    /// # Errors
    /// Kubernetes.
    pub(crate) async fn holds(&self, place: &SecretKey) -> Result<bool, KeyError> {
        Ok(self.get(place).await?.is_some_and(|object| is_ours(&object) && value(&object, place).is_some()))
    }

    /// Takes a value out; an empty SealedSecret goes.
    ///
    /// # Errors
    /// Kubernetes; the SealedSecret is not ours.
    pub(crate) async fn clear(&self, place: &SecretKey) -> Result<(), KeyError> {
        self.change(place, None).await
    }

    /// Makes a key, gives it to the KDC and delivers it. One that was made and could not be delivered is used, if it is still the KDC's.
    ///
    /// # Errors
    /// [`KeyError`]; the KDC may have another key then.
    pub(crate) async fn make(&self, key: SealedKey) -> Result<Delivery, KeyError> {
        let content = |reason| KeyError::Content(key.place.clone(), reason);
        let pem = self.certificate(&key.seal_with).await?.map_err(content)?;
        let certificate = usable(&pem).map_err(content)?;
        let unwritten = self.unwritten.lock().unwrap_or_else(PoisonError::into_inner).remove(&key.place);
        let made = match unwritten.filter(|unwritten| unwritten.of == key) {
            Some(made) => match stamps(&self.kdc, &key.principals).await {
                Ok(now) if now == made.stamps => made,
                Ok(_) => self.fresh(key).await?,
                Err(error) => {
                    self.keep(made);
                    return Err(error.into());
                }
            },
            None => self.fresh(key).await?,
        };
        let written = self.deliver(&certificate, &pem, &made).await;
        if written.is_err() {
            self.keep(made);
        }
        written
    }

    fn keep(&self, made: Unwritten) {
        self.unwritten.lock().unwrap_or_else(PoisonError::into_inner).insert(made.of.place.clone(), made);
    }

    async fn fresh(&self, key: SealedKey) -> Result<Unwritten, KeyError> {
        let first = key.principals.first();
        let value = match (key.key_type, first) {
            (KeyType::Random, _) => self.kdc.new_keys(&key.principals).await?,
            (KeyType::Password, Some(principal)) => {
                let text = random_text()?;
                self.kdc.set_password(principal, text.as_bytes()).await?;
                Zeroizing::new(text.as_bytes().to_vec())
            }
            (KeyType::Trust, Some(principal)) => {
                let trust = fresh_trust(&self.kdc, principal).await?;
                let (password, version) = (trust.password.as_bytes(), u32::from(trust.version));
                self.kdc.set_keys(principal, password, version, &trust.types).await?;
                trust.to_bytes()
            }
            // Such a resource is refused before.
            _ => return Err(KeyError::Content(key.place, "keys of this type are not sealed".to_owned())),
        };
        let stamps = stamps(&self.kdc, &key.principals).await?;
        Ok(Unwritten { of: key, value, stamps })
    }

    async fn deliver(
        &self,
        certificate: &SealingCertificate,
        pem: &str,
        made: &Unwritten,
    ) -> Result<Delivery, KeyError> {
        let place = &made.of.place;
        let session_key = random::<SESSION_KEY_BYTES>()?;
        let plain = Plain { key: place.key.clone(), value: made.value.clone(), session_key };
        let (namespace, name) = (self.namespace.as_str(), place.secret.as_str());
        let request = Request { namespace, name, scope: SealingScope::Strict, secret_type: "Opaque" };
        let object = sealed_secret(certificate, request, &[plain])
            .map_err(|error| KeyError::Content(place.clone(), error.to_string()))?;
        self.change(place, Some(&object)).await?;
        let value = object["spec"]["encryptedData"][&place.key].as_str().unwrap_or_default();
        Ok(Delivery { of: of(&made.of, pem, value), keys: made.stamps.clone() })
    }

    async fn get(&self, place: &SecretKey) -> Result<Option<DynamicObject>, KeyError> {
        self.sealed.get_opt(&place.secret).await.map_err(|error| key_error(&error))
    }

    /// Err: why there is none.
    async fn certificate(&self, at: &ConfigMapKey) -> Result<Result<String, String>, KeyError> {
        let found = self.config_maps.get_opt(&at.config_map).await.map_err(|error| key_error(&error))?;
        let pem = found.and_then(|found| found.data?.remove(&at.key));
        Ok(pem.ok_or_else(|| format!("spec.sealWith: ConfigMap {} has no key {}", at.config_map, at.key)))
    }

    /// Writes the value in `sealed`, an object with nothing else; None takes what is there out.
    async fn change(&self, place: &SecretKey, sealed: Option<&Value>) -> Result<(), KeyError> {
        for _ in 0..TRIES {
            let found = self.get(place).await?;
            if found.as_ref().is_some_and(|object| !is_ours(object)) {
                let rule = format!("the SealedSecret lacks the label {MANAGED_BY_LABEL}={MANAGER}");
                return Err(KeyError::Content(place.clone(), rule));
            }
            let written = match (found, sealed) {
                (None, None) => return Ok(()),
                (None, Some(sealed)) => {
                    let mut object = sealed.clone();
                    object["metadata"]["labels"] = json!({ MANAGED_BY_LABEL: MANAGER });
                    let object = serde_json::from_value(object)
                        .map_err(|error| KeyError::Kubernetes(format!("a SealedSecret cannot be written: {error}")))?;
                    self.sealed.create(&PostParams::default(), &object).await.map(|_| ())
                }
                (Some(mut object), sealed) => {
                    let data = object.data.pointer_mut("/spec/encryptedData").and_then(Value::as_object_mut);
                    let no_form =
                        || KeyError::Content(place.clone(), "the SealedSecret has no encryptedData".to_owned());
                    let data = data.ok_or_else(no_form)?;
                    match sealed {
                        Some(sealed) => {
                            data.insert(place.key.clone(), sealed["spec"]["encryptedData"][&place.key].clone())
                        }
                        None => data.remove(&place.key),
                    };
                    let is_empty = data.is_empty();
                    if is_empty {
                        self.sealed.delete(&place.secret, &unchanged(&object)).await.map(|_| ())
                    } else {
                        self.sealed.replace(&place.secret, &PostParams::default(), &object).await.map(|_| ())
                    }
                }
            };
            match written {
                Err(kube::Error::Api(status)) if status.code == 404 && sealed.is_some() => {
                    return Err(KeyError::Kubernetes(NO_KIND.to_owned()));
                }
                other => match other.map_err(|error| key_error(&error)) {
                    Err(KeyError::Conflict(_)) => {}
                    other => return other,
                },
            }
        }
        Err(KeyError::Conflict(format!("SealedSecret {}", place.secret)))
    }
}

fn value<'a>(object: &'a DynamicObject, place: &SecretKey) -> Option<&'a str> {
    object.data.get("spec")?.get("encryptedData")?.get(&place.key)?.as_str()
}

/// Err: why nothing can be sealed for it.
fn usable(pem: &str) -> Result<SealingCertificate, String> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    SealingCertificate::from_pem(pem, now).map_err(|error| format!("spec.sealWith: {error}"))
}

/// What was delivered: of which type, for which certificate, and the sealed value itself by its digest, so that one of before that comes back is noticed.
fn of(key: &SealedKey, pem: &str, value: &str) -> String {
    let digest = digest(&SHA256, value.as_bytes());
    let digest: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{:?} {} {} {digest}", key.key_type, key.place, fingerprint(pem).unwrap_or_default())
}
