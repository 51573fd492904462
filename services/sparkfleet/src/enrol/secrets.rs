//! The Secrets of the enrolment in the cluster's namespace.
//!
//! | Secret | holds |
//! |---|---|
//! | `sparkfleet-enrolment-keys` | key and seed, kept before anything is asked |
//! | `flux-secrets` | user and password of the git server |
//! | `sparkfleet-identity` | certificate, key and authorities; written last |
//!
//! The annotation says by which token, so that a new token begins anew and a repeated one does not.

use anyhow::{Context as _, anyhow};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use enrolment_protocol::token::TokenHash;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::keys::Keys;

const KEYS: &str = "sparkfleet-enrolment-keys";
const GIT: &str = "flux-secrets";
const IDENTITY: &str = "sparkfleet-identity";
/// Hash of the token.
const ANNOTATION: &str = "sparkfleet.io/enrolment-token";
/// Who owns the fields.
const MANAGER: &str = "sparkfleet-enrol";

/// The Secrets of one namespace.
pub struct Secrets {
    api: Api<DynamicObject>,
    namespace: String,
}

impl Secrets {
    /// In that namespace.
    pub fn new(client: Client, namespace: &str) -> Self {
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Secret"));
        Self { api: Api::namespaced_with(client, namespace, &kind), namespace: namespace.to_owned() }
    }

    /// Whether everything was written by that token.
    ///
    /// # Errors
    /// Kubernetes does not answer.
    pub async fn is_enrolled(&self, token: &TokenHash) -> anyhow::Result<bool> {
        let identity = self.get(IDENTITY).await?;
        Ok(identity.is_some_and(|secret| is_of(&secret, token)) && self.get(GIT).await?.is_some())
    }

    /// The keys that ask with that token: those that are kept, or fresh ones, kept.
    ///
    /// # Errors
    /// Kubernetes does not answer, or does not keep them.
    pub async fn keys(&self, token: &TokenHash) -> anyhow::Result<Keys> {
        if let Some(secret) = self.get(KEYS).await?.filter(|secret| is_of(secret, token)) {
            let [key, seed] = ["key", "seed"].map(|name| decoded(&secret, name));
            return Keys::read(&key?, &seed?).with_context(|| format!("Secret {KEYS}; delete it to begin anew"));
        }
        let keys = Keys::generate()?;
        let data = json!({ "key": encoded(keys.pkcs8()), "seed": encoded(keys.seed()) });
        self.apply(KEYS, Some(token), &data, "Opaque").await?;
        Ok(keys)
    }

    /// What Flux logs in to the git server with.
    ///
    /// # Errors
    /// Kubernetes does not take it.
    pub async fn write_git(&self, username: &str, password: &[u8]) -> anyhow::Result<()> {
        let data = json!({ "username": encoded(username.as_bytes()), "password": encoded(password) });
        self.apply(GIT, None, &data, "Opaque").await
    }

    /// What the cluster's services are known by.
    ///
    /// # Errors
    /// Kubernetes does not take it.
    pub async fn write_identity(
        &self,
        token: &TokenHash,
        certificates: &str,
        key: &str,
        authorities: &str,
    ) -> anyhow::Result<()> {
        let [certificates, key, authorities] = [certificates, key, authorities].map(|text| encoded(text.as_bytes()));
        let data = json!({ "tls.crt": certificates, "tls.key": key, "ca.crt": authorities });
        self.apply(IDENTITY, Some(token), &data, "kubernetes.io/tls").await
    }

    async fn get(&self, name: &str) -> anyhow::Result<Option<DynamicObject>> {
        self.api.get_opt(name).await.with_context(|| format!("cannot read Secret {}/{name}", self.namespace))
    }

    async fn apply(&self, name: &str, token: Option<&TokenHash>, data: &Value, kind: &str) -> anyhow::Result<()> {
        let annotations = token.map(|token| json!({ ANNOTATION: token.as_str() })).unwrap_or_default();
        let body = json!({ "apiVersion": "v1", "kind": "Secret", "type": kind, "data": data,
            "metadata": { "name": name, "namespace": self.namespace, "annotations": annotations } });
        let params = PatchParams::apply(MANAGER).force();
        let written = self.api.patch(name, &params, &Patch::Apply(&body)).await;
        written.map(|_| ()).with_context(|| format!("cannot write Secret {}/{name}", self.namespace))
    }
}

fn is_of(secret: &DynamicObject, token: &TokenHash) -> bool {
    let annotations = secret.metadata.annotations.as_ref();
    annotations.and_then(|all| all.get(ANNOTATION)).is_some_and(|hash| token.is(hash))
}

fn encoded(bytes: &[u8]) -> String {
    BASE64_STANDARD.encode(bytes)
}

fn decoded(secret: &DynamicObject, name: &str) -> anyhow::Result<Zeroizing<Vec<u8>>> {
    let text = secret.data.get("data").and_then(|data| data.get(name)).and_then(Value::as_str);
    let bytes = text.and_then(|text| BASE64_STANDARD.decode(text).ok());
    bytes.map(Zeroizing::new).ok_or_else(|| anyhow!("Secret {KEYS} has no usable {name}; delete it to begin anew"))
}
