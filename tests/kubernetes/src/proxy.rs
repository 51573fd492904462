//! A Kubernetes API without TLS and credentials, for services that are configured for a simulated one: every request is forwarded with the account of a client.
//!
//! Other than `kubectl proxy`, which says 500, it answers 503 for an API server that is away, as what stands before API servers does.

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use kube::Client;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// Far above what a service sends.
const BODY_BYTES_MAX: usize = 16 << 20;

/// It ends when it is dropped.
#[derive(Debug)]
pub struct Proxy {
    url: String,
    _task: JoinSet<()>,
}

impl Proxy {
    /// Starts it on a free port.
    ///
    /// # Panics
    /// No port can be had.
    pub async fn start(client: Client) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port can be had");
        let url = format!("http://{}", listener.local_addr().expect("it is bound"));
        let router = Router::new().fallback(pass_on).with_state(client);
        let mut task = JoinSet::new();
        task.spawn(async move { axum::serve(listener, router).await.expect("the listener stays") });
        Self { url, _task: task }
    }

    /// Where it is.
    #[must_use]
    pub fn url(&self) -> String {
        self.url.clone()
    }
}

async fn pass_on(State(client): State<Client>, request: Request) -> Response {
    let (mut parts, body) = request.into_parts();
    let Ok(body) = to_bytes(body, BODY_BYTES_MAX).await else { return StatusCode::BAD_REQUEST.into_response() };
    parts.headers.remove(header::HOST);
    match client.send(Request::from_parts(parts, body.to_vec().into())).await {
        Ok(answer) => answer.map(Body::new),
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, error.to_string()).into_response(),
    }
}
