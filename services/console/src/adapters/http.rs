//! HTTP: the page, the reads, the stream, and what people do. A read cannot cause a message.

mod acting;
mod audit;
mod export;
mod guard;
mod history;
mod host_names;
mod login;
mod openapi;
mod reading;
mod simulation;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, Path, RawQuery, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::middleware;
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use serde_json::{Value, json};
use service_runtime::http::server::{self, Limits};
use service_runtime::http::tls::Tls;
use service_runtime::shutdown::Shutdown;
use sparkplug_mqtt::Clock;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use super::assets::Assets;
use super::history::Reader;
use super::hub::Hub;
use super::stream::{self, Narrowed};
use crate::config::{Config, Role, Settings};
use crate::event_marks::EventMarks;
use crate::published::TableName;
use crate::sight::Sight;
use acting::RequestContext;

/// Streams at the same time.
const STREAMS_MAX: usize = 200;

/// Seconds after which a client that found no room should come again.
const STREAMS_RETRY_S: &str = "10";

/// Tables of one stream.
const TABLES_MAX: usize = 32;

/// Connections of one address: a proxy in front of the console is one, and brings all streams and as many reads.
const ADDRESS_CONNECTIONS_MAX: usize = 2 * STREAMS_MAX;

/// What an answer of the API depends on beside its address: another user of the same browser is not shown it.
const VARY: &str = "authorization, cookie";

/// Where the page shows every Edge Node.
pub const EXPLORER: &str = "/explorer";

/// What the handlers know.
#[derive(Debug, Clone)]
pub struct Site {
    /// Empty for an explorer.
    organisation: String,
    role: Role,
    version: String,
    allowed_hosts: Arc<[String]>,
    read_only: Option<&'static str>,
    /// Reads are for who has signed in.
    private: bool,
    /// The console itself has TLS.
    with_tls: bool,
    /// A proxy in front of it has.
    behind_tls: bool,
    assets: Assets,
    hub: Hub,
    history: Reader,
    clock: Clock,
    marks: EventMarks,
    /// The file of the record of actions.
    audit: PathBuf,
    streams: Arc<Semaphore>,
    exports: Arc<Semaphore>,
    /// None: people sign in with tokens only.
    logins: Option<Arc<login::Logins>>,
    /// How long a client of a stream may read nothing.
    slow_max: Duration,
    shutdown: Shutdown,
}

impl Site {
    /// A site.
    ///
    /// # Errors
    /// `web.assets_dir` is not a directory, `oidc.ca_file` cannot be read, or the system yields no random numbers.
    pub fn new(config: &Config, settings: &Settings, hub: Hub, history: Reader, clock: Clock) -> anyhow::Result<Self> {
        if let Some(directory) = config.web.assets_dir.as_ref().filter(|directory| !directory.is_dir()) {
            let error = anyhow::anyhow!("web.assets_dir: {} is not a directory", directory.display());
            return Err(service_runtime::exit::with_code(service_runtime::exit::CONFIG, error));
        }
        Ok(Self {
            organisation: match settings.role {
                Role::Console | Role::Replay => settings.organisation.to_string(),
                Role::Explorer { .. } => String::new(),
            },
            role: settings.role,
            version: settings.version.clone(),
            read_only: settings.read_only,
            private: config.web.private && settings.role == Role::Console,
            with_tls: config.web.cert_file.is_some(),
            behind_tls: config.web.behind_tls,
            allowed_hosts: config.web.allowed_hosts.clone().into(),
            assets: Assets::new(config.web.assets_dir.clone()).context("the page cannot be compressed")?,
            hub,
            history,
            clock,
            marks: EventMarks::new(acting::random().context("the system yields no random numbers")?),
            audit: service_runtime::record::path(&config.state_dir),
            streams: Arc::new(Semaphore::new(STREAMS_MAX)),
            exports: Arc::new(Semaphore::new(export::EXPORTS_MAX)),
            logins: match settings.role {
                Role::Console => login::Logins::new(&config.oidc)?.map(Arc::new),
                Role::Explorer { .. } | Role::Replay => None,
            },
            slow_max: stream::SLOW_MAX,
            shutdown: Shutdown::new(),
        })
    }
}

/// Serves until `shutdown`; streams end then.
///
/// # Errors
/// The listener fails.
pub async fn serve(listener: TcpListener, site: Site, tls: Option<Tls>, shutdown: Shutdown) -> io::Result<()> {
    let site = Site { shutdown: shutdown.clone(), ..site };
    let limits = Limits { of_one_address: ADDRESS_CONNECTIONS_MAX, stalled: site.slow_max, ..Limits::default() };
    server::serve_within(limits, listener, router(site), tls, shutdown).await
}

fn router(site: Site) -> Router {
    Router::new()
        .route("/api/v1/session", get(acting::session).post(acting::sign_in).delete(acting::sign_out))
        .route("/api/v1/session/oidc", get(login::begin))
        .route("/api/v1/session/oidc/callback", get(login::end))
        .route("/api/v1/actions/{name}", post(acting::act))
        .route("/api/v1/actions/{name}/plan", post(acting::plan))
        .route("/api/v1/policies/{cluster}/simulation", post(simulation::simulate))
        .route("/api/v1/stream", get(follow))
        .route("/api/v1/events", get(history::events))
        .route("/api/v1/export", get(export::export))
        .route("/api/v1/audit", get(audit::audit))
        .route("/api/v1/openapi.json", get(openapi::get))
        .route("/api/v1/{table}", get(table))
        .route("/api/v1/{table}/{node}", get(table_of_node))
        .route("/api/{*rest}", get(nothing))
        .fallback_service(get(page).with_state(site.clone()))
        .layer(DefaultBodyLimit::max(acting::BODY_BYTES_MAX))
        .layer(middleware::from_fn_with_state(site.clone(), guard::check))
        .with_state(site)
}

async fn table(
    State(site): State<Site>,
    Path(name): Path<String>,
    caller: RequestContext,
    query: RawQuery,
    headers: HeaderMap,
) -> Response {
    let name: TableName = match name.parse() {
        Ok(name) => name,
        Err(error) => return refused(StatusCode::NOT_FOUND, "table", error),
    };
    let sight = match reading::sight(&site, &caller).await {
        Ok(sight) => sight,
        Err(response) => return response,
    };
    if let Some(at) = parameter(&query, "at") {
        return history::at(&site, &name, &at, sight, &headers).await;
    }
    if let Some(sight) = sight {
        let Ok(rows) = reading::table(&site, &sight, &name).await else {
            return refused(StatusCode::SERVICE_UNAVAILABLE, "table", "the console is stopping");
        };
        let rows: Vec<&Value> = rows.values().collect();
        let tag = reading::tag(&name.to_string(), &rows);
        return answer_unless_known(&headers, tag, || json!({ "rev": null, "at": null, "rows": rows }));
    }
    let Ok(table) = site.hub.read(name).await else {
        return refused(StatusCode::SERVICE_UNAVAILABLE, "table", "the console is stopping");
    };
    let rows: Vec<&Value> = table.rows.values().collect();
    // What no client follows has no revision of its own.
    let tag = match table.name.is_of_one() {
        true => reading::tag(&table.name.to_string(), &rows),
        false => format!("\"{}-{}\"", table.name, table.rev),
    };
    answer_unless_known(&headers, tag, || json!({ "rev": table.rev, "at": null, "rows": rows }))
}

/// `metrics:GROUP/NODE` as people write it, with the slash as it is.
async fn table_of_node(
    site: State<Site>,
    Path((group, node)): Path<(String, String)>,
    caller: RequestContext,
    query: RawQuery,
    headers: HeaderMap,
) -> Response {
    table(site, Path(format!("{group}/{node}")), caller, query, headers).await
}

async fn follow(State(site): State<Site>, caller: RequestContext, query: RawQuery, headers: HeaderMap) -> Response {
    let Some(wanted) = parameter(&query, "tables") else {
        return refused(StatusCode::BAD_REQUEST, "tables", "must name the tables to follow, joined by commas");
    };
    let mut tables: Vec<TableName> = Vec::new();
    for name in wanted.split(',').map(percent_decoded) {
        match name.parse::<TableName>() {
            Ok(name) if !tables.contains(&name) => tables.push(name),
            Ok(_) => {}
            Err(error) => return refused(StatusCode::BAD_REQUEST, "tables", error),
        }
    }
    if tables.len() > TABLES_MAX {
        return refused(StatusCode::BAD_REQUEST, "tables", format!("must name {TABLES_MAX} tables at most"));
    }
    let Ok(place) = Arc::clone(&site.streams).try_acquire_owned() else {
        let reason = format!("there are {STREAMS_MAX} streams already; close a page of the console, or try again");
        let response = refused(StatusCode::SERVICE_UNAVAILABLE, "stream", reason);
        return ([(header::RETRY_AFTER, STREAMS_RETRY_S)], response).into_response();
    };
    let sight = match reading::sight(&site, &caller).await {
        Ok(sight) => sight,
        Err(response) => return response,
    };
    let shown = tables.len();
    if sight.is_some() {
        let needed = tables.clone();
        for needed in needed.iter().flat_map(Sight::needs) {
            if !tables.contains(needed) {
                tables.push(needed.clone());
            }
        }
    }
    // Revisions of a stream of some clusters are its own.
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse().ok()).filter(|_| sight.is_none());
    let Ok(watching) = site.hub.watch(tables).await else {
        return refused(StatusCode::SERVICE_UNAVAILABLE, "stream", "the console is stopping");
    };
    let (hub, slow_max, shutdown) = (site.hub.clone(), site.slow_max, site.shutdown.child());
    let held = (place, reading::Guard::start(site, caller, shutdown.clone()));
    let narrowed = sight.map(|sight| Narrowed::new(sight, shown));
    let body = stream::start(stream::Stream { hub, watching, narrowed, last, held, slow_max, shutdown });
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store"),
        // Proxies of the nginx kind would hold frames back.
        (header::HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    (headers, Body::new(body)).into_response()
}

async fn page(State(site): State<Site>, uri: Uri, headers: HeaderMap) -> Response {
    // What else the page shows is of a fleet.
    if uri.path() == "/" && matches!(site.role, Role::Explorer { .. }) {
        return Redirect::temporary(EXPLORER).into_response();
    }
    let asset = match site.assets.get(uri.path(), takes_gzip(&headers)).await {
        Ok(asset) => asset,
        Err(error) => return refused(StatusCode::NOT_FOUND, "assets_dir", error),
    };
    let is_known = is_known(&headers, &asset.tag);
    let headers =
        [(header::CACHE_CONTROL, "no-cache"), (header::VARY, "accept-encoding"), (header::ETAG, asset.tag.as_str())];
    if is_known {
        return (headers, StatusCode::NOT_MODIFIED).into_response();
    }
    let mut response = (headers, [(header::CONTENT_TYPE, asset.content_type)], asset.body).into_response();
    if let Some(encoding) = asset.encoding {
        response.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static(encoding));
    }
    response
}

/// Whether a client takes gzip: `gzip` or `*` in `Accept-Encoding` with a weight above 0.
fn takes_gzip(headers: &HeaderMap) -> bool {
    let fields = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|field| field.to_str().ok());
    let codings: Vec<&str> = fields.flat_map(|field| field.split(',')).collect();
    let weight_of = |wanted: &str| {
        codings.iter().find_map(|coding| {
            let (name, weight) = coding.split_once(';').unwrap_or((coding, "q=1"));
            let weight = weight.trim().strip_prefix("q=").and_then(|weight| weight.trim().parse::<f32>().ok());
            name.trim().eq_ignore_ascii_case(wanted).then(|| weight.unwrap_or(0.0))
        })
    };
    weight_of("gzip").or_else(|| weight_of("*")).is_some_and(|weight| weight > 0.0)
}

async fn nothing() -> Response {
    refused(StatusCode::NOT_FOUND, "path", "there is no such resource; /api/v1/openapi.json lists all")
}

fn answer(value: &Value, tag: Option<String>) -> Response {
    let mut response = axum::Json(value).into_response();
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response.headers_mut().insert(header::VARY, HeaderValue::from_static(VARY));
    if let Some(tag) = tag.and_then(|tag| HeaderValue::from_str(&tag).ok()) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    response
}

/// The answer, or that the client has it already.
fn answer_unless_known(headers: &HeaderMap, tag: String, value: impl FnOnce() -> Value) -> Response {
    if is_known(headers, &tag) {
        return ([(header::ETAG, tag)], StatusCode::NOT_MODIFIED).into_response();
    }
    answer(&value(), Some(tag))
}

fn refused(status: StatusCode, field: &str, error: impl ToString) -> Response {
    (status, axum::Json(json!({ "error": error.to_string(), "field": field }))).into_response()
}

fn is_known(headers: &HeaderMap, tag: &str) -> bool {
    let known = headers.get(header::IF_NONE_MATCH).and_then(|known| known.to_str().ok());
    known.is_some_and(|known| known.split(',').any(|known| known.trim().trim_start_matches("W/") == tag))
}

/// A parameter of the query, decoded once.
fn parameter(query: &RawQuery, name: &str) -> Option<String> {
    let pairs = query.0.as_deref()?.split('&').filter_map(|pair| pair.split_once('='));
    pairs.into_iter().find(|(key, _)| *key == name).map(|(_, value)| percent_decoded(&value.replace('+', " ")))
}

/// `%XX` undone; what is no such sequence stays as it is.
fn percent_decoded(text: &str) -> String {
    percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests;
