//! A client that sends bytes over one connection and reads all that comes back, and what of a server's threads has panicked. Included by the targets that feed servers.

use std::net::SocketAddr;
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Longest wait for the end of an answer. Only a server that hangs takes so long.
const PATIENCE: Duration = Duration::from_secs(60);
/// After so long without a byte the client says that it sends nothing more.
const QUIET: Duration = Duration::from_millis(150);
/// After the input the client asks for an end of the connection, so that a complete input need not wait for it.
const END: &[u8] = b"GET /end HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
/// Threads of the servers.
const THREAD: &str = "fuzzed-server";

static PANICS: AtomicUsize = AtomicUsize::new(0);

/// Runs a server and its client to their end.
///
/// # Panics
/// They do, or a task of the server has panicked, which the server itself survives.
pub fn run(client: impl Future<Output = ()>) {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if std::thread::current().name() == Some(THREAD) {
                PANICS.fetch_add(1, Ordering::SeqCst);
            }
            before(panic);
        }));
    });
    let panics = PANICS.load(Ordering::SeqCst);
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(1).thread_name(THREAD).enable_all().build();
    runtime.expect("a runtime").block_on(client);
    assert_eq!(PANICS.load(Ordering::SeqCst), panics, "a task of the server has panicked");
}

/// All that a client receives that sends `bytes` and waits.
///
/// # Panics
/// The server does not listen, or neither answers nor ends the connection.
pub async fn exchange(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let stream = TcpStream::connect(address).await.expect("the server listens");
    let (mut reader, mut writer) = stream.into_split();
    let sent = async {
        let _ = writer.write_all(bytes).await;
        let _ = writer.write_all(END).await;
        writer
    };
    let received = async {
        let mut answers = Vec::new();
        let mut part = [0; 4096];
        loop {
            match timeout(QUIET, reader.read(&mut part)).await {
                Ok(Ok(0) | Err(_)) => return (answers, true),
                Ok(Ok(read)) => answers.extend_from_slice(&part[..read]),
                Err(_) => return (answers, false),
            }
        }
    };
    // A server that does not read must not stop the client from reading.
    let (writer, (mut answers, is_over)) = tokio::join!(sent, received);
    // A stream of events lasts as long as its client reads.
    if !is_over && !contains(&answers, b"text/event-stream") {
        drop(writer);
        let rest = timeout(PATIENCE, reader.read_to_end(&mut answers)).await;
        assert!(rest.is_ok(), "the server neither answers nor ends the connection");
    }
    answers
}

/// Whether `part` is in `bytes`.
pub fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}
