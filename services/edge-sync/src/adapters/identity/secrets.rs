//! The Secrets that say who the cluster is, in its namespace.
//!
//! | Secret | holds |
//! |---|---|
//! | `sparkfleet-enrolment-keys` | key and seed, kept before anything is asked |
//! | `flux-secrets` | user and password of the git server |
//! | `sparkfleet-identity` | certificate, key, authorities and Identity's key; written last, in one piece |
//!
//! An annotation says by which token the cluster is in, and for what the kept keys ask: a new token or another certificate begins again, a repeated one does not.

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
/// Hash of the token that let the cluster in.
const TOKEN: &str = "sparkfleet.io/enrolment-token";
/// Serial number of the certificate that the kept keys renew.
const RENEWAL: &str = "sparkfleet.io/renewal-of";
/// Who owns the fields.
/// Key of the Secret below which Identity's public enrolment key is. It is the name of clusters that are enrolled already: without it they could not renew.
const ENROLMENT_KEY: &str = "manager.key";
const MANAGER: &str = "sparkfleet-enrol";

/// What keys are kept for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyPurpose {
    /// To enrol with that token.
    Token(TokenHash),
    /// To renew the certificate of that serial number, hexadecimal.
    Renewal(String),
}

impl KeyPurpose {
    fn annotation(&self) -> (&'static str, &str) {
        match self {
            Self::Token(hash) => (TOKEN, hash.as_str()),
            Self::Renewal(serial) => (RENEWAL, serial),
        }
    }
}

/// What the cluster's services are known by. Its texts are PEM.
#[derive(Clone)]
pub struct Identity {
    /// The certificate, and those that lead to the root.
    pub certificates: String,
    pub key: Zeroizing<String>,
    pub authorities: String,
    /// Identity's public enrolment key, base64url; None: written before there was need of it.
    pub enrolment_key: Option<String>,
    /// Hash of the token that let the cluster in.
    pub token: Option<String>,
    /// Version of the Secret that it was read from: another one is not overwritten.
    pub version: Option<String>,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identity").field("token", &self.token).field("version", &self.version).finish_non_exhaustive()
    }
}

/// The Secrets of one namespace.
#[derive(Clone)]
pub struct Secrets {
    api: Api<DynamicObject>,
    namespace: String,
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Secrets").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

impl Secrets {
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
        let is_of = |secret: DynamicObject| annotation(&secret, TOKEN).is_some_and(|hash| token.is(hash));
        Ok(identity.is_some_and(is_of) && self.get(GIT).await?.is_some())
    }

    /// The keys for that purpose: those that are kept, or fresh ones, kept.
    ///
    /// # Errors
    /// Kubernetes does not answer, or does not keep them.
    pub async fn keys(&self, purpose: &KeyPurpose) -> anyhow::Result<Keys> {
        let (name, value) = purpose.annotation();
        if let Some(secret) = self.get(KEYS).await?.filter(|secret| annotation(secret, name) == Some(value)) {
            let [key, seed] = ["key", "seed"].map(|name| decoded(&secret, name));
            return Keys::read(&key?, &seed?).with_context(|| format!("Secret {KEYS}; delete it to start again"));
        }
        let keys = Keys::generate()?;
        let data = json!({ "key": encoded(keys.pkcs8()), "seed": encoded(keys.seed()) });
        self.apply(KEYS, json!({ "annotations": { name: value } }), &data, "Opaque").await?;
        Ok(keys)
    }

    /// What the cluster's services are known by; None: the cluster is not enrolled.
    ///
    /// # Errors
    /// Kubernetes does not answer, or the Secret holds something else.
    pub async fn identity(&self) -> anyhow::Result<Option<Identity>> {
        let Some(secret) = self.get(IDENTITY).await? else { return Ok(None) };
        let text = |name: &str| {
            let text = decoded(&secret, name).ok().and_then(|bytes| String::from_utf8(bytes.to_vec()).ok());
            text.with_context(|| format!("Secret {IDENTITY} has no usable {name}"))
        };
        Ok(Some(Identity {
            certificates: text("tls.crt")?,
            key: Zeroizing::new(text("tls.key")?),
            authorities: text("ca.crt")?,
            enrolment_key: text(ENROLMENT_KEY).ok(),
            token: annotation(&secret, TOKEN).map(str::to_owned),
            version: secret.metadata.resource_version.clone(),
        }))
    }

    /// What Flux logs in to the git server with.
    ///
    /// # Errors
    /// Kubernetes does not take it.
    pub async fn write_git(&self, username: &str, password: &[u8]) -> anyhow::Result<()> {
        let data = json!({ "username": encoded(username.as_bytes()), "password": encoded(password) });
        self.apply(GIT, json!({}), &data, "Opaque").await
    }

    /// Writes what the cluster's services are known by.
    ///
    /// # Errors
    /// Kubernetes does not take it, or someone else has written it meanwhile.
    pub async fn write_identity(&self, identity: &Identity) -> anyhow::Result<()> {
        let text = |text: &str| Value::from(encoded(text.as_bytes()));
        let mut data = json!({ "tls.crt": text(&identity.certificates), "tls.key": text(&identity.key), "ca.crt": text(&identity.authorities) });
        if let Some(key) = &identity.enrolment_key {
            data[ENROLMENT_KEY] = text(key);
        }
        let mut metadata = json!({});
        if let Some(token) = &identity.token {
            metadata["annotations"] = json!({ TOKEN: token });
        }
        if let Some(version) = &identity.version {
            metadata["resourceVersion"] = Value::from(version.as_str());
        }
        self.apply(IDENTITY, metadata, &data, "kubernetes.io/tls").await
    }

    async fn get(&self, name: &str) -> anyhow::Result<Option<DynamicObject>> {
        self.api.get_opt(name).await.with_context(|| format!("cannot read Secret {}/{name}", self.namespace))
    }

    async fn apply(&self, name: &str, mut metadata: Value, data: &Value, kind: &str) -> anyhow::Result<()> {
        metadata["name"] = Value::from(name);
        metadata["namespace"] = Value::from(self.namespace.as_str());
        let body = json!({ "apiVersion": "v1", "kind": "Secret", "type": kind, "data": data, "metadata": metadata });
        let params = PatchParams::apply(MANAGER).force();
        let written = self.api.patch(name, &params, &Patch::Apply(&body)).await;
        written.map(|_| ()).with_context(|| format!("cannot write Secret {}/{name}", self.namespace))
    }
}

fn annotation<'a>(secret: &'a DynamicObject, name: &str) -> Option<&'a str> {
    secret.metadata.annotations.as_ref()?.get(name).map(String::as_str)
}

fn encoded(bytes: &[u8]) -> String {
    BASE64_STANDARD.encode(bytes)
}

/// A value of a Secret.
fn decoded(secret: &DynamicObject, name: &str) -> anyhow::Result<Zeroizing<Vec<u8>>> {
    let text = secret.data.get("data").and_then(|data| data.get(name)).and_then(Value::as_str);
    let bytes = text.and_then(|text| BASE64_STANDARD.decode(text).ok());
    bytes.map(Zeroizing::new).ok_or_else(|| anyhow!("Secret {KEYS} has no usable {name}; delete it to start again"))
}
