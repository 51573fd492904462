//! HTTP: the page, the reads and the stream. Reads only: nothing here can cause a message.

mod guard;
mod history;
mod openapi;

use std::io;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::{Value, json};
use service_runtime::shutdown::Shutdown;
use sparkplug_mqtt::Clock;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use super::assets::Assets;
use super::history::Reader;
use super::hub::Hub;
use super::stream;
use crate::config::{Config, Settings};
use crate::published::TableName;

/// Streams at the same time.
const STREAMS_MAX: usize = 200;

/// Tables of one stream.
const TABLES_MAX: usize = 32;

/// What the handlers know.
#[derive(Debug, Clone)]
pub struct Site {
    organisation: String,
    version: String,
    allowed_hosts: Arc<[String]>,
    assets: Assets,
    hub: Hub,
    history: Reader,
    clock: Clock,
    streams: Arc<Semaphore>,
    shutdown: Shutdown,
}

impl Site {
    /// A site.
    ///
    /// # Errors
    /// `web.assets_dir` is not a directory.
    pub fn new(config: &Config, settings: &Settings, hub: Hub, history: Reader, clock: Clock) -> anyhow::Result<Self> {
        if let Some(directory) = config.web.assets_dir.as_ref().filter(|directory| !directory.is_dir()) {
            let error = anyhow::anyhow!("web.assets_dir: {} is not a directory", directory.display());
            return Err(service_runtime::exit::with_code(service_runtime::exit::CONFIG, error));
        }
        Ok(Self {
            organisation: settings.organisation.to_string(),
            version: settings.version.clone(),
            allowed_hosts: config.web.allowed_hosts.clone().into(),
            assets: Assets::new(config.web.assets_dir.clone()),
            hub,
            history,
            clock,
            streams: Arc::new(Semaphore::new(STREAMS_MAX)),
            shutdown: Shutdown::new(),
        })
    }
}

/// Serves until `shutdown`; streams end then.
///
/// # Errors
/// The listener fails.
pub async fn serve(listener: TcpListener, site: Site, shutdown: Shutdown) -> io::Result<()> {
    let site = Site { shutdown: shutdown.clone(), ..site };
    let stop = async move { shutdown.wait().await };
    axum::serve(listener, router(site)).with_graceful_shutdown(stop).await
}

fn router(site: Site) -> Router {
    Router::new()
        .route("/api/v1/session", get(session))
        .route("/api/v1/stream", get(follow))
        .route("/api/v1/events", get(history::events))
        .route("/api/v1/openapi.json", get(openapi::get))
        .route("/api/v1/{table}", get(table))
        .route("/api/{*rest}", get(nothing))
        .fallback_service(get(page).with_state(site.clone()))
        .layer(middleware::from_fn_with_state(site.clone(), guard::check))
        .with_state(site)
}

async fn session(State(site): State<Site>) -> Response {
    let session = json!({
        "organisation": site.organisation, "user": null, "role": "viewer", "version": site.version,
        "actions": false, "now": site.clock.now().wall,
    });
    answer(&session, None)
}

async fn table(State(site): State<Site>, Path(name): Path<String>, query: RawQuery, headers: HeaderMap) -> Response {
    let name: TableName = match name.parse() {
        Ok(name) => name,
        Err(error) => return refused(StatusCode::NOT_FOUND, "table", error),
    };
    if let Some(at) = parameter(&query, "at") {
        return history::at(&site, &name, &at, &headers).await;
    }
    let Ok(table) = site.hub.read(name).await else {
        return refused(StatusCode::SERVICE_UNAVAILABLE, "table", "the console is stopping");
    };
    // Metrics that nobody follows have no revision of their own.
    let tag = (!matches!(table.name, TableName::Metrics(_))).then(|| format!("\"{}-{}\"", table.name, table.rev));
    if let Some(tag) = tag.as_deref().filter(|tag| is_known(&headers, tag)) {
        return ([(header::ETAG, tag)], StatusCode::NOT_MODIFIED).into_response();
    }
    let rows: Vec<&Value> = table.rows.values().collect();
    answer(&json!({ "rev": table.rev, "at": null, "rows": rows }), tag)
}

async fn follow(State(site): State<Site>, query: RawQuery, headers: HeaderMap) -> Response {
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
        return refused(StatusCode::SERVICE_UNAVAILABLE, "stream", format!("there are {STREAMS_MAX} streams already"));
    };
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse().ok());
    let Ok(watching) = site.hub.watch(tables).await else {
        return refused(StatusCode::SERVICE_UNAVAILABLE, "stream", "the console is stopping");
    };
    let body = stream::start(site.hub.clone(), watching, last, place, site.shutdown.clone());
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store"),
        // Proxies of the nginx kind would hold frames back.
        (header::HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    (headers, Body::new(body)).into_response()
}

async fn page(State(site): State<Site>, uri: Uri, headers: HeaderMap) -> Response {
    match site.assets.get(uri.path()).await {
        Ok(asset) if is_known(&headers, &asset.tag) => {
            ([(header::ETAG, asset.tag)], StatusCode::NOT_MODIFIED).into_response()
        }
        Ok(asset) => {
            let headers = [
                (header::CONTENT_TYPE, asset.content_type.to_owned()),
                (header::CACHE_CONTROL, "no-cache".to_owned()),
                (header::ETAG, asset.tag),
            ];
            (headers, asset.body).into_response()
        }
        Err(error) => refused(StatusCode::NOT_FOUND, "assets_dir", error),
    }
}

async fn nothing() -> Response {
    refused(StatusCode::NOT_FOUND, "path", "there is no such resource; /api/v1/openapi.json lists all")
}

fn answer(value: &Value, tag: Option<String>) -> Response {
    let mut response = axum::Json(value).into_response();
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    if let Some(tag) = tag.and_then(|tag| HeaderValue::from_str(&tag).ok()) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    response
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
mod tests {
    use super::*;

    #[test]
    fn names_of_tables_are_decoded_twice_and_split_in_between() {
        let query = RawQuery(Some("x=1&tables=clusters,metrics%3AG%2FA%252CB".to_owned()));
        let tables = parameter(&query, "tables").unwrap();
        assert_eq!(tables.split(',').map(percent_decoded).collect::<Vec<_>>(), ["clusters", "metrics:G/A,B"]);
        assert_eq!(percent_decoded("100%"), "100%");
        assert_eq!(percent_decoded("%zz%C3%A4"), "%zzä");
    }
}
