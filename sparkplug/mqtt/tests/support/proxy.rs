//! A TCP proxy that stands between a client and a server, and can break the link in the ways that networks do.

use std::net::SocketAddr;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

pub struct Proxy {
    address: SocketAddr,
    cuts: watch::Sender<u32>,
    stalled: watch::Sender<bool>,
}

impl Proxy {
    pub async fn start(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (cuts, cut) = watch::channel(0);
        let (stalled, stall) = watch::channel(false);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let mut cut = cut.clone();
                cut.mark_unchanged();
                let stall = stall.clone();
                tokio::spawn(async move {
                    let Ok(server) = TcpStream::connect(target).await else { return };
                    let ((client_in, client_out), (server_in, server_out)) = (client.into_split(), server.into_split());
                    tokio::select! {
                        () = pass_on(client_in, server_out, stall.clone()) => {}
                        () = pass_on(server_in, client_out, stall) => {}
                        _ = cut.changed() => {}
                    }
                });
            }
        });
        Self { address, cuts, stalled }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn url(&self) -> String {
        format!("mqtt://{}", self.address)
    }

    /// Closes every connection; the next one is let through again.
    pub fn cut(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// Connections stay open, but nothing is read from them any more.
    pub fn stall(&self) {
        self.stalled.send_replace(true);
    }

    /// What was stalled continues.
    pub fn resume(&self) {
        self.stalled.send_replace(false);
    }
}

async fn pass_on(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, mut stall: watch::Receiver<bool>) {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        if stall.wait_for(|stalled| !stalled).await.is_err() {
            return;
        }
        let bytes = tokio::select! {
            bytes = from.read(&mut buffer) => bytes,
            // What comes from here on is not to be read.
            _ = stall.wait_for(|stalled| *stalled) => continue,
        };
        match bytes {
            Ok(bytes) if bytes > 0 => {
                if to.write_all(&buffer[..bytes]).await.is_err() {
                    return;
                }
            }
            _ => return,
        }
    }
}
