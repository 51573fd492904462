//! Connections: how many, how they begin (TLS), how long they may keep quiet, how they end.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::Sleep;
use tokio_util::task::TaskTracker;

use super::tls::Tls;
use crate::shutdown::Shutdown;

/// What connections may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Connections at the same time: each takes some 100 KiB at most, beside what the router makes. More wait in the system's queue.
    pub connections: usize,
    /// Of them from one address: a client that opens them all leaves room for all others. A proxy is one address, and needs one for each request that is under way.
    pub of_one_address: usize,
    /// How long a client may read nothing of an answer that waits for it.
    pub stalled: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { connections: 1024, of_one_address: 128, stalled: Duration::from_secs(60) }
    }
}

/// What a TLS handshake may take.
const HANDSHAKE_MAX: Duration = Duration::from_secs(5);

/// What a client may take for the line and header fields of its first request.
const FIRST_HEADER_MAX: Duration = Duration::from_secs(5);

/// The same for each further request, counted from the last answer.
const HEADER_MAX: Duration = Duration::from_secs(30);

/// Most bytes of a request's line and header fields. An answer is not made faster than the client reads: so much of it waits, and the part that was made last.
const HEADER_BYTES_MAX: usize = 64 * 1024;

/// What to wait after the system refused to accept a connection, which it does when it is out of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until `shutdown`; requests under way may end. [`Limits`] are the default ones.
///
/// # Errors
/// None today: a listener that fails for the moment is tried again.
pub async fn serve(listener: TcpListener, router: Router, tls: Option<Tls>, shutdown: Shutdown) -> io::Result<()> {
    serve_within(Limits::default(), listener, router, tls, shutdown).await
}

/// The same with other limits.
///
/// # Errors
/// As [`serve`].
pub async fn serve_within(
    limits: Limits,
    listener: TcpListener,
    router: Router,
    tls: Option<Tls>,
    shutdown: Shutdown,
) -> io::Result<()> {
    let places = Arc::new(Semaphore::new(limits.connections));
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
        let Some(own) = addresses.enter(peer.ip(), limits.of_one_address) else {
            tracing::debug!(%peer, "an address has too many connections");
            continue;
        };
        let (router, tls, shutdown) = (router.clone(), tls.clone(), shutdown.clone());
        connections.spawn(async move {
            begin(stream, peer, router, tls, limits.stalled, shutdown).await;
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
    fn enter(&self, address: IpAddr, max: usize) -> Option<Entered> {
        let network = peer(address);
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(network).or_default();
        if *count >= max {
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

/// The address that a limit is counted on: of IPv6 the network that one customer gets, because each has more addresses than fit into any memory.
#[must_use]
pub fn peer(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => {
            let [a, b, c, d, ..] = v6.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        v4 => v4,
    }
}

/// A connection that ends when its client reads nothing for too long: otherwise what waits for it would be kept for ever.
#[derive(Debug)]
struct Draining<S> {
    stream: S,
    max: Duration,
    /// Runs while a write waits.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<S> Draining<S> {
    fn judge<T>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let max = self.max;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(max)));
        ready!(stalled.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Draining<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Draining<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.judge(context, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.judge(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let ended = Pin::new(&mut self.stream).poll_shutdown(context);
        self.judge(context, ended)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.judge(context, written)
    }
}

async fn begin(
    stream: TcpStream,
    peer: SocketAddr,
    router: Router,
    tls: Option<Tls>,
    stalled: Duration,
    shutdown: Shutdown,
) {
    // Answers are small and written whole.
    let _ = stream.set_nodelay(true);
    let stream = Draining { stream, max: stalled, stalled: None };
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
    fn addresses_of_one_network_count_as_one() {
        let address = |text: &str| peer(text.parse().unwrap());
        assert_eq!(address("2001:db8:1:2::1"), address("2001:db8:1:2:ffff::9"));
        assert_ne!(address("2001:db8:1:2::1"), address("2001:db8:1:3::1"));
        assert_eq!(address("::ffff:192.0.2.1"), address("192.0.2.1"));
        assert_ne!(address("192.0.2.1"), address("192.0.2.2"));
    }

    #[test]
    fn an_address_has_so_many_connections_and_no_more() {
        let addresses = Addresses::default();
        let address = "192.0.2.1".parse().unwrap();
        let mut held: Vec<_> = (0..128).map(|_| addresses.enter(address, 128).unwrap()).collect();
        assert!(addresses.enter(address, 128).is_none());
        assert!(addresses.enter("192.0.2.2".parse().unwrap(), 128).is_some());
        held.pop();
        assert!(addresses.enter(address, 128).is_some());
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
    async fn a_thousand_idle_connections_delay_no_one() {
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
        for _ in 0..Limits::default().of_one_address {
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

    #[tokio::test]
    async fn a_client_that_reads_nothing_is_not_waited_for_also_at_the_end() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, stop) = (listener.local_addr().unwrap(), Shutdown::new());
        let large = || std::future::ready(vec![0_u8; 64 * 1024 * 1024]);
        let limits = Limits { stalled: Duration::from_millis(200), ..Limits::default() };
        let router = Router::new().route("/", get(large));
        let serving = tokio::spawn(serve_within(limits, listener, router, None, stop.clone()));
        let mut clients = Vec::new();
        for _ in 0..2 {
            let mut client = TcpStream::connect(address).await.unwrap();
            client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
            client.readable().await.unwrap();
            clients.push(client);
        }
        stop.trigger();
        // The answer is larger than what the system keeps for a client, so it waits until the server gives up.
        serving.await.unwrap().unwrap();
        let mut got = Vec::new();
        let _ = clients.remove(0).read_to_end(&mut got).await;
        assert!(got.len() < 64 * 1024 * 1024, "it has not got all");
    }
}
