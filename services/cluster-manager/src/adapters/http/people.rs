//! The API under `/v1`: a request becomes a question for the state, its answer a response.
//!
//! A value is sealed here, in memory, before anything is sent to the state: so no plain value is ever in the core, on the disk, in git or on the broker. A user who may not write a
//! secret does not get as far as sending its value.

use std::net::SocketAddr;
use std::path::Path as FilePath;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use access::rate::{Limiter, Rate};
use axum::extract::{ConnectInfo, Path, Query, Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post, put};
use axum::{Json, Router};
use enrolment_protocol::bootstrap;
use enrolment_protocol::token::{RANDOM_BYTES, Token};
use identity_provider::Identities;
use serde::Deserialize;
use service_runtime::http::server;
use sparkplug_mqtt::Clock;

use super::request::{Fault, RequestContext, Server, random, unexpected, uuid};
use super::state_client::StateClient;
use super::{administration, openapi, sealed, secrets, shapes};
use crate::api::{Question, Reply};

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
        .route("/v1/cluster/{cluster}/secrets", get(secrets::list))
        .route("/v1/cluster/{cluster}/bootstrap-url", post(bootstrap_url))
        .route("/v1/cluster/{cluster}/secret/{namespace}/{name}/{key}", put(secrets::put).delete(secrets::remove))
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
