//! Connections: how many, how they begin (TLS), how long they may keep quiet, how they end. What is served over them is a router's.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
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
use crate::access::rate;

/// Connections at the same time: each takes some 100 KiB at most. More wait in the system's queue.
const CONNECTIONS_MAX: usize = 1024;

/// Of them from one address: one who opens them all leaves room for everybody else. A proxy is one address, and needs one for each request that is under way.
const ADDRESS_CONNECTIONS_MAX: usize = 128;

/// What a TLS handshake may take.
const HANDSHAKE_MAX: Duration = Duration::from_secs(5);

/// What a client may take for the line and header fields of its first request.
const FIRST_HEADER_MAX: Duration = Duration::from_secs(5);

/// The same for each further request, counted from the last answer.
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
    let addresses = Addresses::default();
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
        let Some(own) = addresses.enter(peer.ip()) else {
            tracing::debug!(%peer, "an address has too many connections");
            continue;
        };
        let (router, tls, shutdown) = (router.clone(), tls.clone(), shutdown.clone());
        connections.spawn(async move {
            begin(stream, peer, router, tls, shutdown).await;
            drop((place, own));
        });
    }
    connections.close();
    connections.wait().await;
    Ok(())
}

/// How many connections each address has. Clones are the same.
#[derive(Debug, Clone, Default)]
struct Addresses(Arc<Mutex<HashMap<IpAddr, usize>>>);

/// One of them; dropping it gives it back.
#[derive(Debug)]
struct Entered {
    addresses: Addresses,
    network: IpAddr,
}

impl Addresses {
    /// None: the address has all that it may have.
    fn enter(&self, address: IpAddr) -> Option<Entered> {
        let network = rate::peer(address);
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(network).or_default();
        if *count >= ADDRESS_CONNECTIONS_MAX {
            return None;
        }
        *count += 1;
        Some(Entered { addresses: self.clone(), network })
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut counts = self.addresses.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.network) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.network);
            }
        }
    }
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
    let asked = Arc::new(AtomicBool::new(false));
    let asks = Arc::clone(&asked);
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        asks.store(true, Ordering::Relaxed);
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
    let first = tokio::time::sleep(FIRST_HEADER_MAX);
    tokio::pin!(first);
    let mut begins = true;
    let ended = loop {
        tokio::select! {
            ended = connection.as_mut() => break ended,
            () = shutdown.wait(), if !stopping => {
                stopping = true;
                connection.as_mut().graceful_shutdown();
            }
            () = first.as_mut(), if begins => {
                begins = false;
                if !asked.load(Ordering::Relaxed) {
                    tracing::debug!(%peer, "a connection asked nothing");
                    return;
                }
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(error = %error, "a connection ended early");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::routing::get;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    #[test]
    fn an_address_has_so_many_connections_and_no_more() {
        let addresses = Addresses::default();
        let address = "192.0.2.1".parse().unwrap();
        let mut held: Vec<_> = (0..ADDRESS_CONNECTIONS_MAX).map(|_| addresses.enter(address).unwrap()).collect();
        assert!(addresses.enter(address).is_none());
        assert!(addresses.enter("192.0.2.2".parse().unwrap()).is_some());
        held.pop();
        assert!(addresses.enter(address).is_some());
        held.clear();
        assert!(addresses.0.lock().unwrap().is_empty());
    }

    async fn started() -> (SocketAddr, Shutdown) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, stop) = (listener.local_addr().unwrap(), Shutdown::new());
        let router = Router::new().route("/", get(|| std::future::ready("yes")));
        tokio::spawn(serve(listener, router, None, stop.clone()));
        (address, stop)
    }

    async fn connect_from(last: u8, to: SocketAddr) -> TcpStream {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from(([127, 0, 0, last], 0))).unwrap();
        socket.connect(to).await.unwrap()
    }

    #[tokio::test]
    async fn a_thousand_idle_connections_delay_nobody() {
        let (address, stop) = started().await;
        let mut idle = Vec::new();
        for n in 0..1_000_u16 {
            idle.push(connect_from(10 + u8::try_from(n / 125).unwrap(), address).await);
        }
        let mut client = connect_from(1, address).await;
        let mut answer = Vec::new();
        client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
        client.read_to_end(&mut answer).await.unwrap();
        assert!(answer.ends_with(b"yes"));
        // It was answered while the others still wait, and not because their time was over.
        let open = idle.iter().filter(|stream| stream.try_read(&mut [0; 1]).is_err()).count();
        assert!(open > 0);
        stop.trigger();
    }

    #[tokio::test]
    async fn idle_connections_of_one_address_are_bounded_and_end() {
        let (address, stop) = started().await;
        let mut idle = Vec::new();
        for _ in 0..ADDRESS_CONNECTIONS_MAX {
            idle.push(TcpStream::connect(address).await.unwrap());
        }
        let mut read = [0; 1];
        let mut beyond = TcpStream::connect(address).await.unwrap();
        assert!(matches!(beyond.read(&mut read).await, Ok(0) | Err(_)), "it is closed at once");
        assert_eq!(idle[0].read(&mut read).await.unwrap(), 0, "who asks nothing is not waited for");
        drop(idle);
        // Places come back one after the other.
        let answered = loop {
            let mut client = TcpStream::connect(address).await.unwrap();
            let mut answer = Vec::new();
            let request = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
            if client.write_all(request).await.is_ok() && client.read_to_end(&mut answer).await.is_ok_and(|n| n > 0) {
                break answer;
            }
        };
        assert!(answered.ends_with(b"yes"));
        stop.trigger();
    }
}
