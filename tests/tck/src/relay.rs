//! A relay between a program and its MQTT server. It passes everything on, but can keep the program's DISCONNECT back and close the connection instead. This is a farewell without
//! that packet. The standard allows it, and no client of ours would send it.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

/// Port of MQTT without TLS.
const PORT: u16 = 1883;
/// Type of a DISCONNECT packet, in the upper half of its first byte (MQTT 3.1.1 and 5, 3.14).
const DISCONNECT: u8 = 14;

/// A running relay, for as many connections as come.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    withholds: Arc<AtomicBool>,
}

impl Relay {
    /// A relay to this server, `mqtt://HOST` or `mqtt://HOST:PORT`.
    ///
    /// # Errors
    /// Another kind of address: what is encrypted cannot be looked into. Or no port is free.
    pub async fn start(url: &str) -> io::Result<Self> {
        let Some(server) = url.strip_prefix("mqtt://").filter(|server| !server.contains('/')) else {
            let why = format!("--relay: {url} is not mqtt://HOST or mqtt://HOST:PORT");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        };
        let server = if server.contains(':') { server.to_owned() } else { format!("{server}:{PORT}") };
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let relay = Self { address: listener.local_addr()?, withholds: Arc::default() };
        let withholds = Arc::clone(&relay.withholds);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(connection(client, server.clone(), Arc::clone(&withholds)));
            }
        });
        Ok(relay)
    }

    /// The address for the program.
    #[must_use]
    pub fn url(&self) -> String {
        format!("mqtt://{}", self.address)
    }

    /// From now on a DISCONNECT is not forwarded, and its connection is closed.
    pub fn withhold_disconnect(&self) {
        self.withholds.store(true, Ordering::Relaxed);
    }
}

/// Ends when one side does; then both are closed.
async fn connection(client: TcpStream, server: String, withholds: Arc<AtomicBool>) {
    let Ok(server) = TcpStream::connect(server).await else { return };
    let (from_client, mut to_client) = client.into_split();
    let (mut from_server, to_server) = server.into_split();
    tokio::select! {
        _ = packets(from_client, to_server, &withholds) => {}
        _ = copy(&mut from_server, &mut to_client) => {}
    }
}

/// Passes packets on, each whole.
async fn packets(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, withholds: &AtomicBool) -> io::Result<()> {
    loop {
        let mut packet = vec![from.read_u8().await?];
        let mut length = 0;
        for place in 0..4 {
            let byte = from.read_u8().await?;
            packet.push(byte);
            length |= usize::from(byte & 0x7f) << (7 * place);
            if byte & 0x80 == 0 {
                break;
            }
        }
        let head = packet.len();
        packet.resize(head + length, 0);
        from.read_exact(&mut packet[head..]).await?;
        if packet[0] >> 4 == DISCONNECT && withholds.load(Ordering::Relaxed) {
            return Ok(());
        }
        to.write_all(&packet).await?;
    }
}
