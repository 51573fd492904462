//! Secrets of the own namespace: one key of one Secret is read, written or taken out. Only Secrets with our label are written.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::{Api, Client, ResourceExt};
use zeroize::Zeroizing;

use super::resources::key_error;
use crate::event::KeyError;
use crate::spec::SecretKey;
use crate::{MANAGED_BY_LABEL, MANAGER};

/// How often a write is tried that others are faster with: several resources may have one Secret.
pub(super) const TRIES: u32 = 10;

/// What a Secret has in one place.
pub(crate) struct Found {
    /// There is no such Secret, or it has our label.
    pub is_writable: bool,
    /// The value; None: there is none.
    pub value: Option<Zeroizing<Vec<u8>>>,
    /// Which object it is, and which version of it; empty: there is none.
    pub version: String,
}

impl std::fmt::Debug for Found {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Found").field("is_writable", &self.is_writable).finish_non_exhaustive()
    }
}

/// Secrets of one namespace.
#[derive(Debug, Clone)]
pub(crate) struct Secrets(Api<Secret>);

impl Secrets {
    /// Of `namespace`.
    #[must_use]
    pub(crate) fn new(client: Client, namespace: &str) -> Self {
        Self(Api::namespaced(client, namespace))
    }

    /// Reads one value.
    ///
    /// # Errors
    /// Kubernetes.
    pub(crate) async fn read(&self, place: &SecretKey) -> Result<Found, KeyError> {
        let secret = self.0.get_opt(&place.secret).await.map_err(|error| key_error(&error))?;
        let is_writable = secret.as_ref().is_none_or(is_ours);
        let version =
            secret.as_ref().and_then(|secret| Some(format!("{}/{}", secret.uid()?, secret.resource_version()?)));
        let value = secret.and_then(|secret| secret.data?.remove(&place.key)).map(|value| Zeroizing::new(value.0));
        Ok(Found { is_writable, value, version: version.unwrap_or_default() })
    }

    /// Writes what `change` makes of the value that is there; None takes it out, and an empty Secret goes.
    ///
    /// # Errors
    /// Kubernetes; the Secret is not ours; what `change` says.
    pub(crate) async fn change<F>(&self, place: &SecretKey, mut change: F) -> Result<(), KeyError>
    where
        F: FnMut(Option<&[u8]>) -> Result<Option<Zeroizing<Vec<u8>>>, String> + Send,
    {
        for _ in 0..TRIES {
            let found = self.0.get_opt(&place.secret).await.map_err(|error| key_error(&error))?;
            if found.as_ref().is_some_and(|secret| !is_ours(secret)) {
                let rule = format!("the Secret lacks the label {MANAGED_BY_LABEL}={MANAGER}");
                return Err(KeyError::Content(place.clone(), rule));
            }
            let is_there = found.is_some();
            let mut secret = found.unwrap_or_else(|| fresh(&place.secret));
            let before = secret.data.as_ref().and_then(|data| data.get(&place.key)).map(|value| value.0.as_slice());
            let after = change(before).map_err(|rule| KeyError::Content(place.clone(), rule))?;
            let data = secret.data.get_or_insert_with(BTreeMap::new);
            match after {
                Some(value) => data.insert(place.key.clone(), ByteString(value.to_vec())),
                None => data.remove(&place.key),
            };
            let is_empty = data.is_empty();
            let written = match (is_there, is_empty) {
                (false, true) => return Ok(()),
                (false, false) => self.0.create(&PostParams::default(), &secret).await.map(|_| ()),
                (true, true) => self.0.delete(&place.secret, &unchanged(&secret)).await.map(|_| ()),
                (true, false) => self.0.replace(&place.secret, &PostParams::default(), &secret).await.map(|_| ()),
            };
            match written.map_err(|error| key_error(&error)) {
                Err(KeyError::Conflict(_)) => {}
                other => return other,
            }
        }
        Err(KeyError::Conflict(format!("Secret {}", place.secret)))
    }
}

/// Whether an object has our label.
pub(super) fn is_ours(object: &impl ResourceExt) -> bool {
    object.labels().get(MANAGED_BY_LABEL).is_some_and(|manager| manager == MANAGER)
}

fn fresh(name: &str) -> Secret {
    let mut secret = Secret::default();
    secret.metadata.name = Some(name.to_owned());
    secret.metadata.labels = Some([(MANAGED_BY_LABEL.to_owned(), MANAGER.to_owned())].into());
    secret
}

/// Deletes an object only as it was read.
pub(super) fn unchanged(object: &impl ResourceExt) -> DeleteParams {
    let preconditions = Preconditions { uid: object.uid(), resource_version: object.resource_version() };
    DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() }
}
