//! Identities of an OpenID Connect provider: JSON Web Tokens that it signed (RFC 7519), checked with the keys that it publishes (OpenID Connect Discovery 1.0, RFC 7517).
//!
//! Keys are fetched when the first token comes, and again when they are old or a token names one that is not known, but not more often than [`Limits::again`]. Tokens with
//! made-up key ids must not make this service ask its provider all the time. When the provider is away, the keys that are known remain valid. While it is asked, no user waits for it
//! whose key is known.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{Request, StatusCode};
use jsonwebtoken::jwk::{Jwk, JwkSet, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::sync::watch;
use tokio::time::Instant;

use https_client::{HttpsClient, HttpsError};

/// Signatures by a public key alone: with a shared secret (`HS...`) each holder of it could also sign.
const ALGORITHMS: [Algorithm; 9] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
    Algorithm::ES256,
    Algorithm::ES384,
    Algorithm::EdDSA,
];

/// Longest token.
const TOKEN_BYTES_MAX: usize = 16 * 1024;
/// Largest document of a provider.
const DOCUMENT_BYTES_MAX: usize = 256 * 1024;
/// What a provider may take to answer.
const FETCH_MAX: Duration = Duration::from_secs(10);
/// How far clocks may be apart, in seconds.
const LEEWAY_S: u64 = 60;

/// How long keys count.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// After this they are fetched again.
    pub old: Duration,
    /// But not before this is over.
    pub again: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { old: Duration::from_secs(3600), again: Duration::from_secs(60) }
    }
}

/// The provider. Clones are the same.
#[derive(Debug, Clone)]
pub struct Provider {
    issuer: String,
    audience: String,
    limits: Limits,
    client: HttpsClient<Full<Bytes>>,
    known: Arc<Mutex<Known>>,
}

#[derive(Debug, Default)]
struct Known {
    keys: JwkSet,
    endpoints: Option<Endpoints>,
    fetched: Option<Instant>,
    tried: Option<Instant>,
    /// Closed when the fetch that is under way has ended.
    fetching: Option<watch::Receiver<()>>,
}

/// Where people are sent, and where codes are redeemed.
#[derive(Debug, Clone)]
pub(crate) struct Endpoints {
    pub authorization: String,
    pub token: String,
}

/// The provider cannot be asked at all, because of the file of authorities or of this machine.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ProviderError(#[source] HttpsError);

/// Why a token is not taken. Says nothing of what is in it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// It is not one that can be checked, or is not good.
    #[error("the identity is not accepted: {0}")]
    Refused(&'static str),
    /// The keys to check it with are not known.
    #[error("the identity provider cannot be asked for its keys at present")]
    Away,
}

#[derive(Deserialize)]
struct Discovery {
    issuer: String,
    jwks_uri: String,
    /// A provider that only issues tokens may have none.
    authorization_endpoint: Option<String>,
    token_endpoint: Option<String>,
}

impl Provider {
    /// The provider that calls itself `issuer`; its tokens are to be for `audience`. `ca_file`: authorities for HTTPS, those of the system if None. Blocks.
    ///
    /// # Errors
    /// [`ProviderError`]
    pub fn new(issuer: &str, audience: &str, ca_file: Option<&Path>, limits: Limits) -> Result<Self, ProviderError> {
        let client = https_client::client(ca_file).map_err(ProviderError)?;
        Ok(Self { issuer: issuer.to_owned(), audience: audience.to_owned(), limits, client, known: Arc::default() })
    }

    /// The claims of a token, if this provider signed it, for this audience, and it is in time.
    ///
    /// # Errors
    /// [`IdentityError`].
    pub async fn verify(&self, token: &str) -> Result<Map<String, Value>, IdentityError> {
        let refused = IdentityError::Refused;
        if token.len() > TOKEN_BYTES_MAX {
            return Err(refused("it is too long"));
        }
        let header = jsonwebtoken::decode_header(token).map_err(|_| refused("it is not a JSON Web Token"))?;
        if !ALGORITHMS.contains(&header.alg) {
            return Err(refused("it is not signed by an asymmetric key"));
        }
        let id = header.kid.as_deref().ok_or(refused("it names no key"))?;
        let key = self.key(id, header.alg).await?;
        let mut validation = Validation::new(header.alg);
        validation.leeway = LEEWAY_S;
        validation.validate_nbf = true;
        validation.set_audience(&[&self.audience]);
        validation.set_issuer(&[&self.issuer]);
        validation.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
        let token = jsonwebtoken::decode::<Map<String, Value>>(token, &key, &validation);
        token.map(|token| token.claims).map_err(|error| refused(reason(error.kind())))
    }

    /// The key of that id. One that is not known waits for a fetch, the same as all others that come meanwhile; one that is old is fetched again behind the caller.
    async fn key(&self, id: &str, algorithm: Algorithm) -> Result<DecodingKey, IdentityError> {
        if let Some(mut fetching) = self.look(id) {
            // An error says that the fetch has ended, whatever came of it.
            while fetching.changed().await.is_ok() {}
        }
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.fetched.is_none() {
            return Err(IdentityError::Away);
        }
        let unknown = IdentityError::Refused("its key is not one of the identity provider's");
        let jwk = known.keys.find(id).filter(|jwk| is_for(jwk, algorithm)).ok_or(unknown.clone())?;
        DecodingKey::from_jwk(jwk).map_err(|_| unknown)
    }

    /// Begins a fetch if one is due. What to wait for if the key is not known.
    fn look(&self, id: &str) -> Option<watch::Receiver<()>> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let is_old = known.fetched.is_none_or(|at| at.elapsed() >= self.limits.old);
        let may_ask = known.tried.is_none_or(|at| at.elapsed() >= self.limits.again);
        let is_known = known.keys.find(id).is_some();
        if (is_old || !is_known) && may_ask && known.fetching.is_none() {
            let (ended, fetching) = watch::channel(());
            known.fetching = Some(fetching);
            let provider = self.clone();
            tokio::spawn(async move {
                provider.refresh().await;
                drop(ended);
            });
        }
        known.fetching.clone().filter(|_| !is_known)
    }

    async fn refresh(&self) {
        let fetched = self.fetch().await;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        match fetched {
            Ok((keys, endpoints)) => {
                tracing::debug!(keys = keys.keys.len(), "keys of the identity provider");
                (known.keys, known.endpoints) = (keys, endpoints);
                known.fetched = Some(Instant::now());
            }
            Err(error) => tracing::warn!(reason = error, "the identity provider cannot be asked for its keys"),
        }
        known.tried = Some(Instant::now());
        known.fetching = None;
    }

    /// Where its endpoints are; it is asked if it was not yet.
    pub(crate) async fn endpoints(&self) -> Result<Endpoints, String> {
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner).endpoints.clone();
        if let Some(endpoints) = known() {
            return Ok(endpoints);
        }
        // No key has this id, so that this waits for the fetch.
        if let Some(mut fetching) = self.look("") {
            while fetching.changed().await.is_ok() {}
        }
        known().ok_or_else(|| "it does not say where people sign in, or is away".to_owned())
    }

    async fn fetch(&self) -> Result<(JwkSet, Option<Endpoints>), String> {
        let discovery = format!("{}/.well-known/openid-configuration", self.issuer.trim_end_matches('/'));
        let discovery: Discovery = self.get(&discovery).await?;
        if discovery.issuer != self.issuer {
            return Err("it calls itself otherwise than the issuer that is configured".to_owned());
        }
        let endpoints = discovery.authorization_endpoint.zip(discovery.token_endpoint);
        let endpoints = endpoints.map(|(authorization, token)| Endpoints { authorization, token });
        let is_encrypted = |address: &String| address.starts_with("https://");
        let are_encrypted = endpoints
            .as_ref()
            .is_none_or(|Endpoints { authorization, token }| is_encrypted(authorization) && is_encrypted(token));
        if is_encrypted(&self.issuer) && !(are_encrypted && is_encrypted(&discovery.jwks_uri)) {
            return Err("an address of it is not https".to_owned());
        }
        Ok((self.get(&discovery.jwks_uri).await?, endpoints))
    }

    async fn get<T: serde::de::DeserializeOwned>(&self, url: &str) -> Result<T, String> {
        let request = Request::get(url).body(Full::default()).map_err(|_| "an address of it is none".to_owned())?;
        let (status, bytes) = self.send(request).await?;
        if !status.is_success() {
            return Err(format!("it answered {status}"));
        }
        serde_json::from_slice(&bytes).map_err(|error| error.to_string())
    }

    /// The answer to a request, within the bounds of time and size.
    pub(crate) async fn send(&self, request: Request<Full<Bytes>>) -> Result<(StatusCode, Bytes), String> {
        let fetched = tokio::time::timeout(FETCH_MAX, async {
            let response = self.client.request(request).await.map_err(|error| error.to_string())?;
            let status = response.status();
            let body = Limited::new(response.into_body(), DOCUMENT_BYTES_MAX).collect().await;
            Ok((status, body.map_err(|error| error.to_string())?.to_bytes()))
        });
        fetched.await.map_err(|_| "it took too long".to_owned())?
    }
}

/// The key is one to check signatures of that kind with.
fn is_for(jwk: &Jwk, algorithm: Algorithm) -> bool {
    let signs = jwk.common.public_key_use.as_ref().is_none_or(|purpose| *purpose == PublicKeyUse::Signature);
    signs && jwk.common.key_algorithm.is_none_or(|stated| stated == algorithm.into())
}

const fn reason(kind: &jsonwebtoken::errors::ErrorKind) -> &'static str {
    use jsonwebtoken::errors::ErrorKind;
    match kind {
        ErrorKind::ExpiredSignature => "it has expired",
        ErrorKind::ImmatureSignature => "it is not valid yet",
        ErrorKind::InvalidAudience => "it is for another audience",
        ErrorKind::InvalidIssuer => "it is of another issuer",
        ErrorKind::InvalidSignature => "its signature is wrong",
        ErrorKind::MissingRequiredClaim(_) => "it lacks a claim: exp, iss, aud or sub",
        _ => "it cannot be checked",
    }
}
