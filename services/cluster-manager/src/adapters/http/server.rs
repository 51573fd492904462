//! Connections: how many, how they begin (TLS), how long they may keep quiet, how they end. What is served over them is a router's.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use service_runtime::shutdown::Shutdown;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use super::tls::Tls;

/// Connections at the same time: each takes some 100 KiB at most. More wait in the system's queue.
const CONNECTIONS_MAX: usize = 1024;

/// What a TLS handshake may take.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);

/// What a client may take to say what it wants, counted from the connection or the last answer.
const HEADER_MAX: Duration = Duration::from_secs(30);

/// Most bytes of a request's line and header fields.
const HEADER_BYTES_MAX: usize = 64 * 1024;

/// What to wait after the system refused to accept a connection, which it does when it is out of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until `shutdown`; requests under way may end.
///
/// # Errors
/// None today: a listener that fails for the moment is tried again.
pub async fn serve(listener: TcpListener, router: Router, tls: Option<Tls>, shutdown: Shutdown) -> io::Result<()> {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let connections = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            () = shutdown.wait() => break,
            accepted = async {
                let place = Arc::clone(&places).acquire_owned().await;
                (place, listener.accept().await)
            } => accepted,
        };
        let (place, accepted) = accepted;
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::debug!(error = %error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let (router, tls, shutdown) = (router.clone(), tls.clone(), shutdown.clone());
        connections.spawn(async move {
            begin(stream, peer, router, tls, shutdown).await;
            drop(place);
        });
    }
    connections.close();
    connections.wait().await;
    Ok(())
}

async fn begin(stream: TcpStream, peer: SocketAddr, router: Router, tls: Option<Tls>, shutdown: Shutdown) {
    // Answers are small and written whole.
    let _ = stream.set_nodelay(true);
    let Some(tls) = tls else { return speak(stream, peer, router, shutdown).await };
    match tokio::time::timeout(HANDSHAKE_MAX, tls.acceptor().await.accept(stream)).await {
        Ok(Ok(stream)) => speak(stream, peer, router, shutdown).await,
        Ok(Err(error)) => tracing::debug!(error = %error, "a TLS handshake failed"),
        Err(_) => tracing::debug!("a TLS handshake took too long"),
    }
}

async fn speak<S>(stream: S, peer: SocketAddr, router: Router, shutdown: Shutdown)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let inner = TowerToHyperService::new(router);
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(ConnectInfo(peer));
        inner.call(request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_MAX)
        .max_buf_size(HEADER_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let mut stopping = false;
    let ended = loop {
        tokio::select! {
            ended = connection.as_mut() => break ended,
            () = shutdown.wait(), if !stopping => {
                stopping = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(error = %error, "a connection ended early");
    }
}
