//! The API under `/v1`: a request becomes a question for the state, its answer a response.
//!
//! A value is sealed here, in memory, before anything is told the state: so no plain value is ever in the core, on the disk, in git or on the broker. Whoever may not write a
//! secret does not get as far as sending its value.

use std::net::{IpAddr, SocketAddr};
use std::path::Path as FilePath;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::extract::rejection::ExtensionRejection;
use axum::extract::{ConnectInfo, FromRequestParts, Path, Query, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post, put};
use axum::{Json, Router};
use enrolment_protocol::token::{RANDOM_BYTES, Token};
use futures::StreamExt as _;
use git_hosting::http::bearer;
use sealed_secrets::{Plain, SESSION_KEY_BYTES, Scope, SealingCertificate, sealed_secret};
use serde::Deserialize;
use service_runtime::http::server;
use sparkplug_mqtt::Clock;
use uuid::Uuid;
use zeroize::Zeroizing;

use super::identities::{self, Identities, IdentityFault};
use super::state_client::StateClient;
use super::{administration, openapi, sealed, shapes};
use crate::api::{Credential, Question, Refusal, Reply};
use crate::secrets::{SecretFault, SecretKey};
use access::rate::{self, Limiter, Rate};
use enrolment_protocol::bootstrap;

/// Most bytes of a value: what a Secret holds.
pub const VALUE_BYTES_MAX: usize = 1024 * 1024;

/// What a client may take to send a value.
const BODY_MAX: Duration = Duration::from_secs(30);

/// After what a client may try again, when nothing says how long it takes.
const TRY_AGAIN: Duration = Duration::from_secs(5);

/// Most addresses whose rate is remembered at the same time: some 100 bytes each.
const PEERS_MAX: usize = 16_384;

/// On every response. Nothing of the API is to be shown, framed or kept by a browser.
const HEADERS: [(HeaderName, &str); 4] = [
    (header::CACHE_CONTROL, "no-store"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
    (header::REFERRER_POLICY, "no-referrer"),
];

/// How long a browser is to insist on TLS, where there is TLS.
const STRICT_TRANSPORT: &str = "max-age=31536000";

/// What the routes share.
#[derive(Debug, Clone)]
pub(super) struct Server {
    desk: StateClient,
    peers: Arc<Mutex<Limiter<IpAddr>>>,
    pub(super) clock: Clock,
    with_tls: bool,
    identities: Option<Identities>,
    /// The record of writes.
    pub(super) audit: Arc<FilePath>,
}

/// The API. `rate`: of each address that asks; `audit`: the record of writes.
pub fn router(
    desk: StateClient,
    rate: Rate,
    with_tls: bool,
    identities: Option<Identities>,
    audit: &FilePath,
    clock: Clock,
) -> Router {
    let peers = Arc::new(Mutex::new(Limiter::new(rate, PEERS_MAX)));
    let server = Server { desk, peers, clock, with_tls, identities, audit: audit.into() };
    Router::new()
        .route("/v1/openapi.json", get(document))
        .route("/v1/clusters", get(clusters))
        .route("/v1/cluster/{cluster}/status", get(status))
        .route("/v1/cluster/{cluster}/secrets", get(secrets))
        .route("/v1/cluster/{cluster}/bootstrap-url", post(bootstrap_url))
        .route("/v1/cluster/{cluster}/secret/{namespace}/{name}/{key}", put(put_secret).delete(delete_secret))
        .route("/v1/cluster/{cluster}/sealing-certificate", get(sealed::certificate))
        .route("/v1/cluster/{cluster}/sealed-secret/{namespace}/{name}/{key}", put(sealed::put))
        .route("/v1/tokens", get(administration::tokens).post(administration::create_token))
        .route("/v1/token/{name}", delete(administration::revoke_token))
        .route("/v1/audit", get(administration::audit))
        .layer(middleware::from_fn_with_state(server.clone(), guard))
        .with_state(server)
}

/// Limits who asks too often, before anything else is done for them; completes the response.
async fn guard(
    State(server): State<Server>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    request: Request,
    next: Next,
) -> Response {
    let now = server.clock.now().mono;
    let taken = server.peers.lock().unwrap_or_else(PoisonError::into_inner).take(server::peer(peer.ip()), now);
    let mut response = match taken {
        Ok(()) => next.run(request).await,
        Err(too_often) => Fault::Refused(too_often.into()).into_response(),
    };
    metrics::counter!("sparkfleet_http_responses_total", "status" => response.status().as_u16().to_string())
        .increment(1);
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if server.with_tls {
        headers.insert(header::STRICT_TRANSPORT_SECURITY, HeaderValue::from_static(STRICT_TRANSPORT));
    }
    response
}

/// Why a request is not carried out.
#[derive(Debug)]
pub(super) enum Fault {
    Refused(Refusal),
    /// The request itself is at fault.
    Request(StatusCode, String),
}

impl From<Refusal> for Fault {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl IntoResponse for Fault {
    fn into_response(self) -> Response {
        let (status, error) = match &self {
            Self::Request(status, reason) => (*status, reason.clone()),
            Self::Refused(Refusal::Secret(SecretFault::Repository(reason))) => {
                tracing::warn!(error = reason, "work on the secrets of a repository failed");
                let error = "the repository cannot be used; see the log of the cluster manager";
                (StatusCode::INTERNAL_SERVER_ERROR, error.to_owned())
            }
            Self::Refused(refusal) => (status_of(refusal), refusal.to_string()),
        };
        let mut response = (status, Json(shapes::Problem { error })).into_response();
        let wait = match &self {
            Self::Refused(Refusal::TooOften(too_often)) => Some(rate::seconds(too_often.wait)),
            Self::Refused(Refusal::NotAtPresent(_)) => Some(TRY_AGAIN.as_secs()),
            _ => None,
        };
        if let Some(wait) = wait {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(wait));
        }
        if status == StatusCode::UNAUTHORIZED {
            let challenge = HeaderValue::from_static("Bearer realm=\"Sparkfleet\"");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
        }
        response
    }
}

const fn status_of(refusal: &Refusal) -> StatusCode {
    match refusal {
        Refusal::Unauthenticated(_) => StatusCode::UNAUTHORIZED,
        Refusal::Forbidden(_) => StatusCode::FORBIDDEN,
        Refusal::TooOften(_) => StatusCode::TOO_MANY_REQUESTS,
        Refusal::Invalid(_) => StatusCode::BAD_REQUEST,
        Refusal::NameTaken => StatusCode::CONFLICT,
        Refusal::NoCluster | Refusal::NoToken | Refusal::Secret(SecretFault::Missing(_)) => StatusCode::NOT_FOUND,
        Refusal::NotAtPresent(_) => StatusCode::SERVICE_UNAVAILABLE,
        Refusal::Secret(SecretFault::Differs { .. } | SecretFault::Foreign { .. }) => StatusCode::CONFLICT,
        Refusal::Secret(SecretFault::TooLarge { .. }) => StatusCode::PAYLOAD_TOO_LARGE,
        Refusal::Secret(SecretFault::Repository(_)) => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// A request, as far as it says who asks.
pub(super) struct RequestContext {
    server: Server,
    from: IpAddr,
    headers: HeaderMap,
}

impl FromRequestParts<Server> for RequestContext {
    type Rejection = ExtensionRejection;

    async fn from_request_parts(parts: &mut Parts, server: &Server) -> Result<Self, ExtensionRejection> {
        let ConnectInfo(peer) = ConnectInfo::<SocketAddr>::from_request_parts(parts, server).await?;
        Ok(Self { server: server.clone(), from: peer.ip().to_canonical(), headers: parts.headers.clone() })
    }
}

impl RequestContext {
    async fn caller(self) -> Result<AuthenticatedCaller, Fault> {
        let credential = self.credential().await?;
        Ok(AuthenticatedCaller { server: self.server, from: self.from, credential })
    }

    async fn credential(&self) -> Result<Credential, Fault> {
        let Some(shown) = bearer(&self.headers) else { return Ok(Credential::None) };
        identities::credential(self.server.identities.as_ref(), shown).await.map_err(|fault| match fault {
            IdentityFault::Refused(refusal) => refusal.into(),
            IdentityFault::NoScope(reason) => Fault::Request(StatusCode::FORBIDDEN, reason),
        })
    }

    /// Asks the state as who this is.
    pub(super) async fn ask(self, question: Question) -> Result<Reply, Fault> {
        self.caller().await?.ask(question).await
    }
}

/// Who asks, and from where.
struct AuthenticatedCaller {
    server: Server,
    from: IpAddr,
    credential: Credential,
}

impl AuthenticatedCaller {
    async fn ask(&self, question: Question) -> Result<Reply, Fault> {
        Ok(self.server.desk.ask(self.from, self.credential.clone(), question).await?)
    }
}

/// The state answered something that was not asked; nobody is told more than that.
pub(super) fn unexpected() -> Fault {
    Fault::Request(StatusCode::INTERNAL_SERVER_ERROR, "the answer is not to the question".to_owned())
}

/// Of a certificate that the state has.
pub(super) fn fingerprint(pem: &str) -> Result<String, Fault> {
    sealed_secrets::fingerprint(pem).ok_or_else(unexpected)
}

/// Bytes that nobody can guess.
pub(super) fn random<const N: usize>() -> Result<Zeroizing<[u8; N]>, Fault> {
    let mut random = Zeroizing::new([0; N]);
    let no_random = |_| Fault::from(Refusal::NotAtPresent("the system yields no random numbers".to_owned()));
    aws_lc_rs::rand::fill(&mut random[..]).map_err(no_random)?;
    Ok(random)
}

async fn document() -> Response {
    Json(openapi::document()).into_response()
}

async fn clusters(asker: RequestContext) -> Result<Json<Vec<shapes::Cluster>>, Fault> {
    match asker.ask(Question::Clusters).await? {
        Reply::Clusters(devices) => {
            Ok(Json(devices.into_iter().map(|(uuid, device)| shapes::Cluster::new(uuid, device)).collect()))
        }
        _ => Err(unexpected()),
    }
}

async fn status(asker: RequestContext, Path(cluster): Path<String>) -> Result<Json<shapes::Cluster>, Fault> {
    let question = Question::Status { cluster: uuid(&cluster)? };
    match asker.ask(question).await? {
        Reply::Status(uuid, device) => Ok(Json(shapes::Cluster::new(uuid, *device))),
        _ => Err(unexpected()),
    }
}

async fn secrets(asker: RequestContext, Path(cluster): Path<String>) -> Result<Json<shapes::Secrets>, Fault> {
    let question = Question::Secrets { cluster: uuid(&cluster)? };
    match asker.ask(question).await? {
        Reply::Secrets(stored, fingerprint) => Ok(Json(shapes::Secrets::new(stored, fingerprint))),
        _ => Err(unexpected()),
    }
}

#[derive(Debug, Deserialize)]
struct LineQuery {
    /// Seconds that its token lives.
    expires_s: Option<u64>,
}

/// The token is made here: nothing but its hash goes further, and who asked has it alone.
async fn bootstrap_url(
    asker: RequestContext,
    Path(cluster): Path<String>,
    Query(query): Query<LineQuery>,
) -> Result<Json<shapes::BootstrapLine>, Fault> {
    let cluster = uuid(&cluster)?;
    let lifetime = query.expires_s.map_or(bootstrap::LIFETIME, Duration::from_secs);
    if !(bootstrap::LIFETIME_MIN..=bootstrap::LIFETIME_MAX).contains(&lifetime) {
        let (min, max) = (bootstrap::LIFETIME_MIN.as_secs(), bootstrap::LIFETIME_MAX.as_secs());
        let reason = format!("expires_s must be from {min} to {max}");
        return Err(Fault::Request(StatusCode::BAD_REQUEST, reason));
    }
    let token = Token::new(*random::<RANDOM_BYTES>()?);
    let question = Question::BootstrapLine { cluster, hash: token.hash().as_str().to_owned(), lifetime };
    match asker.ask(question).await? {
        Reply::Offered { url, expires } => {
            let line = bootstrap::command_for(&url, &token);
            Ok(Json(shapes::BootstrapLine { line, url, expires }))
        }
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

/// A key that somebody wants to write, and may.
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
struct DeleteQuery {
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

async fn put_secret(
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

async fn delete_secret(
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

pub(super) fn uuid(text: &str) -> Result<Uuid, Fault> {
    Uuid::try_parse(text).map_err(|_| Fault::Request(StatusCode::BAD_REQUEST, "the cluster is no UUID".to_owned()))
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
