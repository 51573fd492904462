//! Secrets in a cluster's repository: listed, put and deleted. A value is sealed here, and read only once it is decided that its sender may put it.

use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, Query};
use axum::http::{HeaderMap, StatusCode, header};
use futures::StreamExt as _;
use sealed_secrets::{Plain, SESSION_KEY_BYTES, Scope, SealingCertificate, sealed_secret};
use serde::Deserialize;
use uuid::Uuid;
use zeroize::Zeroizing;

use super::request::{AuthenticatedCaller, Fault, RequestContext, random, unexpected, uuid};
use super::shapes;
use crate::api::{Question, Refusal, Reply};
use crate::secrets::SecretKey;

/// Most bytes of a value: what a Secret holds.
pub const VALUE_BYTES_MAX: usize = 1024 * 1024;

/// What a client may take to send a value.
const BODY_MAX: Duration = Duration::from_secs(30);

/// Of a certificate that the state has.
pub(super) fn fingerprint(pem: &str) -> Result<String, Fault> {
    sealed_secrets::fingerprint(pem).ok_or_else(unexpected)
}

/// Names of the secrets.
pub(super) async fn list(asker: RequestContext, Path(cluster): Path<String>) -> Result<Json<shapes::Secrets>, Fault> {
    let question = Question::Secrets { cluster: uuid(&cluster)? };
    match asker.ask(question).await? {
        Reply::Secrets(stored, fingerprint) => Ok(Json(shapes::Secrets::new(stored, fingerprint))),
        _ => Err(unexpected()),
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct PutQuery {
    /// Present: do everything but keep it. The word is that of Factory+.
    dryrun: Option<String>,
    scope: Option<String>,
    #[serde(rename = "type")]
    secret_type: Option<String>,
    /// Of the certificate that a sealed value is sealed for.
    pub(super) fingerprint: Option<String>,
}

/// A key that a user wants to write, and may.
pub(super) struct Wanted {
    caller: AuthenticatedCaller,
    cluster: Uuid,
    key: SecretKey,
    scope: Scope,
    query: PutQuery,
    /// The certificate that the cluster has.
    pub(super) pem: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct DeleteQuery {
    dryrun: Option<String>,
}

pub(super) type Place = Path<(String, String, String, String)>;

impl Wanted {
    /// Whether they may is decided before a value is read.
    pub(super) async fn read(
        asker: RequestContext,
        Path((cluster, namespace, name, key)): Place,
        query: PutQuery,
    ) -> Result<Self, Fault> {
        let bad = |reason: String| Fault::Request(StatusCode::BAD_REQUEST, reason);
        let cluster = uuid(&cluster)?;
        let key = SecretKey::new(&namespace, &name, &key).map_err(|error| bad(error.to_string()))?;
        let scope = query.scope.as_deref().unwrap_or("strict");
        let scope =
            Scope::of_name(scope).ok_or_else(|| bad("scope is strict, namespace-wide or cluster-wide".to_owned()))?;
        let caller = asker.caller().await?;
        let question = Question::Certificate { cluster, key: key.clone() };
        let Reply::Certificate(pem) = caller.ask(question).await? else { return Err(unexpected()) };
        Ok(Self { caller, cluster, key, scope, query, pem })
    }

    /// The certificate, as far as it is good at present.
    pub(super) fn certificate(&self) -> Result<SealingCertificate, Fault> {
        let now = Duration::from_millis(self.caller.server.clock.now().wall);
        let unusable = |error: sealed_secrets::CertificateError| Fault::from(Refusal::NotAtPresent(error.to_string()));
        SealingCertificate::from_pem(&self.pem, now).map_err(unusable)
    }

    /// What is to be sealed.
    pub(super) fn request(&self) -> sealed_secrets::Request<'_> {
        let secret_type = self.query.secret_type.as_deref().unwrap_or("Opaque");
        let (namespace, name) = (self.key.namespace(), self.key.name());
        sealed_secrets::Request { namespace, name, scope: self.scope, secret_type }
    }

    /// Which key of it.
    pub(super) fn key(&self) -> &str {
        self.key.key()
    }

    /// Writes the SealedSecret of it.
    pub(super) async fn write(self, sealed: serde_json::Value) -> Result<StatusCode, Fault> {
        let fingerprint = fingerprint(&self.pem)?;
        let Self { caller, cluster, key, query, .. } = self;
        let (sealed, dry_run) = (Box::new(sealed), query.dryrun.is_some());
        caller.ask(Question::PutSecret { cluster, key, sealed, fingerprint, dry_run }).await?;
        Ok(StatusCode::NO_CONTENT)
    }
}

/// Seals a value and puts it.
pub(super) async fn put(
    asker: RequestContext,
    place: Place,
    Query(query): Query<PutQuery>,
    headers: HeaderMap,
    body: Body,
) -> Result<StatusCode, Fault> {
    let wanted = Wanted::read(asker, place, query).await?;
    let value = read(body, &headers, VALUE_BYTES_MAX).await?;
    let sealed = seal(&wanted.certificate()?, wanted.request(), wanted.key(), value)?;
    wanted.write(sealed).await
}

/// Deletes a key of a secret.
pub(super) async fn remove(
    asker: RequestContext,
    Path((cluster, namespace, name, key)): Place,
    Query(query): Query<DeleteQuery>,
) -> Result<StatusCode, Fault> {
    let key = SecretKey::new(&namespace, &name, &key)
        .map_err(|error| Fault::Request(StatusCode::BAD_REQUEST, error.to_string()))?;
    let question = Question::DeleteSecret { cluster: uuid(&cluster)?, key, dry_run: query.dryrun.is_some() };
    asker.ask(question).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Reads a value of at most `bytes_max` bytes into memory that is overwritten afterwards.
pub(super) async fn read(body: Body, headers: &HeaderMap, bytes_max: usize) -> Result<Zeroizing<Vec<u8>>, Fault> {
    let value = tokio::time::timeout(BODY_MAX, read_at_leisure(body, headers, bytes_max)).await;
    value.map_err(|_| Fault::Request(StatusCode::REQUEST_TIMEOUT, "the value took too long".to_owned()))?
}

async fn read_at_leisure(body: Body, headers: &HeaderMap, bytes_max: usize) -> Result<Zeroizing<Vec<u8>>, Fault> {
    let too_large = || {
        let reason = format!("the value is larger than {bytes_max} bytes, which a Secret does not hold");
        Fault::Request(StatusCode::PAYLOAD_TOO_LARGE, reason)
    };
    let announced = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    let room = announced.unwrap_or(bytes_max);
    if room > bytes_max {
        return Err(too_large());
    }
    // All the room at once: a buffer that grows leaves copies of the value behind.
    let mut value = Zeroizing::new(Vec::with_capacity(room));
    let mut frames = body.into_data_stream();
    while let Some(frame) = frames.next().await {
        let cut_short = |_| Fault::Request(StatusCode::BAD_REQUEST, "the value was cut short".to_owned());
        let frame = frame.map_err(cut_short)?;
        if value.len() + frame.len() > bytes_max {
            return Err(too_large());
        }
        value.extend_from_slice(&frame);
    }
    Ok(value)
}

fn seal(
    certificate: &SealingCertificate,
    request: sealed_secrets::Request<'_>,
    key: &str,
    value: Zeroizing<Vec<u8>>,
) -> Result<serde_json::Value, Fault> {
    let plain = Plain { key: key.to_owned(), value, session_key: random::<SESSION_KEY_BYTES>()? };
    sealed_secret(certificate, request, &[plain])
        .map_err(|error| Fault::Request(StatusCode::BAD_REQUEST, error.to_string()))
}
