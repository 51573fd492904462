//! `/livez`, `/readyz` and `/metrics`: what Kubernetes and Prometheus ask a service.
//!
//! *Live* means that the process should not be restarted. *Ready* means that every component reported itself ready; a
//! service of which no component has reported yet is not ready, so that no one takes "just started" for "works".
//! The Prometheus recorder is one per process, the first caller installs it. This module must not know any component.

use crate::config_table;
use crate::shutdown::Shutdown;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tokio::net::TcpListener;

/// How often histogram samples are folded into buckets, so that their memory is bounded also when Prometheus does not scrape.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(5);

config_table! {
    /// The part of a service's configuration that says where [`serve`] listens.
    #[derive(PartialEq, Eq)]
    pub struct HttpConfig {
        /// Address for /livez, /readyz and /metrics; absent: not served.
        listen: Option<SocketAddr>;
    }
}

/// A cheap handle on the health of one service; clones are the same health.
#[derive(Debug, Clone, Default)]
pub struct Health {
    inner: Arc<Mutex<Report>>,
}

/// What `/readyz` answers.
#[derive(Debug, Clone, Serialize)]
struct Report {
    live: bool,
    ready: bool,
    /// At most one a name; the names are constants of the service, so the map is bounded.
    components: BTreeMap<String, Component>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Component {
    ready: bool,
    reason: String,
}

impl Default for Report {
    fn default() -> Self {
        Self { live: true, ready: false, components: BTreeMap::new() }
    }
}

impl Health {
    /// Live, and not ready before the first component is.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Says whether the process is worth keeping. False asks the supervisor for a restart.
    pub fn live(&self, live: bool) {
        let mut report = self.lock();
        report.live = live;
        report.settle();
    }

    /// Says whether a part is ready, and why (not). `name` is a constant of the service such as `mqtt`.
    pub fn component(&self, name: &str, ready: bool, reason: impl Into<String>) {
        let component = Component { ready, reason: reason.into() };
        let mut report = self.lock();
        let changed = report.components.get(name) != Some(&component);
        if changed {
            tracing::debug!(component = name, ready, reason = component.reason, "component reported");
            report.components.insert(name.to_owned(), component);
            report.settle();
        }
    }

    /// True if the process is worth keeping.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.lock().live
    }

    /// True if it is live, and at least one component reported, and all that did are ready.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.lock().ready
    }

    /// Each component that is not ready, with its reason.
    #[must_use]
    pub fn not_ready(&self) -> Vec<(String, String)> {
        let report = self.lock();
        let waiting = report.components.iter().filter(|(_, component)| !component.ready);
        waiting.map(|(name, component)| (name.clone(), component.reason.clone())).collect()
    }

    fn report(&self) -> Report {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Report> {
        // Every write leaves the report whole, so a panic elsewhere does not spoil it.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Report {
    fn settle(&mut self) {
        self.ready = self.live && !self.components.is_empty() && self.components.values().all(|part| part.ready);
    }
}

/// The health server could not be started.
#[derive(Debug, thiserror::Error)]
pub enum HealthError {
    /// The address is taken, not ours, or needs privileges.
    #[error("cannot listen on {addr} for health and metrics: choose another address or port")]
    Listen {
        /// The address asked for.
        addr: SocketAddr,
        /// The operating system's reason.
        #[source]
        source: io::Error,
    },
}

/// Installs the process's Prometheus recorder, once; later calls return the same handle.
///
/// Call it before the first metric is described or counted: what is counted before it is lost. [`serve`] calls it.
pub fn install_metrics() -> PrometheusHandle {
    static HANDLE: OnceLock<PrometheusHandle> = OnceLock::new();
    let install = || {
        let recorder = PrometheusBuilder::new().build_recorder();
        let handle = recorder.handle();
        if metrics::set_global_recorder(recorder).is_err() {
            tracing::warn!("another metrics recorder is installed, /metrics stays empty");
        }
        handle
    };
    HANDLE.get_or_init(install).clone()
}

/// Serves `/livez`, `/readyz` and `/metrics` on `addr` (port 0 chooses one) until `shutdown`, and returns the bound address.
///
/// # Errors
/// Nothing can listen on `addr`.
pub async fn serve(addr: SocketAddr, health: Health, shutdown: Shutdown) -> Result<SocketAddr, HealthError> {
    let listener = TcpListener::bind(addr).await.map_err(|source| HealthError::Listen { addr, source })?;
    let bound = listener.local_addr().map_err(|source| HealthError::Listen { addr, source })?;
    let handle = install_metrics();
    tokio::spawn(upkeep(handle.clone(), shutdown.clone()));
    let router = router(health, handle);
    tokio::spawn(async move {
        let stop = async move { shutdown.wait().await };
        if let Err(error) = axum::serve(listener, router).with_graceful_shutdown(stop).await {
            tracing::warn!(%error, "health server ended");
        }
    });
    tracing::info!(addr = %bound, "serving health and metrics");
    Ok(bound)
}

/// The three routes, for a service that has an HTTP server of its own.
pub fn router(health: Health, handle: PrometheusHandle) -> Router {
    Router::new()
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .with_state(health)
        .route("/metrics", get(move || std::future::ready(metrics_page(&handle))))
}

async fn upkeep(handle: PrometheusHandle, shutdown: Shutdown) {
    let mut ticks = tokio::time::interval(UPKEEP_INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = shutdown.wait() => return,
            _ = ticks.tick() => handle.run_upkeep(),
        }
    }
}

async fn livez(State(health): State<Health>) -> Response {
    if health.is_live() {
        (StatusCode::OK, "live\n").into_response()
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not live\n").into_response()
    }
}

async fn readyz(State(health): State<Health>) -> Response {
    let report = health.report();
    let status = if report.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(report)).into_response()
}

fn metrics_page(handle: &PrometheusHandle) -> Response {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], handle.render()).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    async fn fetch(addr: SocketAddr, path: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(addr).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
        let body = answer.split_once("\r\n\r\n").unwrap().1.to_owned();
        (status, body)
    }

    async fn served() -> (SocketAddr, Health, Shutdown) {
        let (health, shutdown) = (Health::new(), Shutdown::new());
        let addr = serve("127.0.0.1:0".parse().unwrap(), health.clone(), shutdown.clone()).await.unwrap();
        (addr, health, shutdown)
    }

    #[tokio::test]
    async fn readiness_lists_every_component_with_its_reason() {
        let (addr, health, _shutdown) = served().await;
        assert_eq!(fetch(addr, "/readyz").await.0, 503, "no component has reported");
        health.component("mqtt", true, "connected");
        health.component("store", false, "migrating");
        assert_eq!(health.not_ready(), [("store".to_owned(), "migrating".to_owned())]);
        let (status, body) = fetch(addr, "/readyz").await;
        assert_eq!(status, 503);
        assert_eq!(
            body,
            r#"{"live":true,"ready":false,"components":{"mqtt":{"ready":true,"reason":"connected"},"store":{"ready":false,"reason":"migrating"}}}"#
        );
        health.component("store", true, "");
        assert_eq!(fetch(addr, "/readyz").await.0, 200);
    }

    #[tokio::test]
    async fn a_service_that_is_not_live_is_not_ready_either() {
        let (addr, health, _shutdown) = served().await;
        health.component("mqtt", true, "");
        assert_eq!(fetch(addr, "/livez").await, (200, "live\n".to_owned()));
        health.live(false);
        assert_eq!(fetch(addr, "/livez").await, (503, "not live\n".to_owned()));
        assert_eq!(fetch(addr, "/readyz").await.0, 503);
        assert_eq!(fetch(addr, "/other").await.0, 404);
    }

    #[tokio::test]
    async fn counted_metrics_are_rendered_for_prometheus() {
        let (addr, _health, _shutdown) = served().await;
        metrics::counter!("health_test_packets_total", "kind" => "NBIRTH").increment(3);
        let (status, body) = fetch(addr, "/metrics").await;
        assert_eq!(status, 200);
        assert!(body.contains("health_test_packets_total{kind=\"NBIRTH\"} 3"), "{body}");
    }

    #[tokio::test]
    async fn a_taken_port_is_an_error_that_names_the_address() {
        let (addr, health, shutdown) = served().await;
        let error = serve(addr, health, shutdown).await.unwrap_err();
        assert!(error.to_string().starts_with(&format!("cannot listen on {addr}")), "{error}");
    }

    #[tokio::test]
    async fn after_shutdown_the_port_is_free_again() {
        let (addr, health, shutdown) = served().await;
        shutdown.trigger();
        // Bounded by the test runner: without the shutdown the port would never be free.
        while TcpListener::bind(addr).await.is_err() {
            tokio::task::yield_now().await;
        }
        assert!(!health.is_ready());
    }
}
