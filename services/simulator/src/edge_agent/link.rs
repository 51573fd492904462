//! A cable between one simulated agent and its MQTT server that can be muted or pulled. It is a TCP relay on the loopback interface. It knows where an MQTT packet
//! ends, and which packets are PUBLISH. Plain TCP only.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

/// State of a cable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkMode {
    /// As if it were not there.
    Pass,
    /// The connection stays up, but no PUBLISH passes in either direction: the agent hangs, deaf and mute, and its server does not notice.
    Mute,
    /// Pulled: connections break without a DISCONNECT, and none can be made.
    Down,
}

/// A cable; dropping it pulls it.
#[derive(Debug)]
pub struct Link {
    address: SocketAddr,
    mode: watch::Sender<LinkMode>,
    _stop: DropGuard,
}

/// A packet larger than this breaks the cable; the servers' own limits are far below.
const PACKET_BYTES_MAX: usize = 64 * 1024 * 1024;

impl Link {
    /// Lays a cable to the first of these servers (`host:port`) that answers.
    pub async fn lay(servers: Vec<String>) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let (mode, receiver) = watch::channel(LinkMode::Pass);
        let stop = CancellationToken::new();
        let accepting = stop.clone();
        tokio::spawn(async move {
            loop {
                let accepted = tokio::select! {
                    () = accepting.cancelled() => return,
                    accepted = listener.accept() => accepted,
                };
                match accepted {
                    Ok((client, _)) if *receiver.borrow() != LinkMode::Down => {
                        tokio::spawn(connect(client, servers.clone(), receiver.clone(), accepting.clone()));
                    }
                    // Pulled: the connection is dropped at once.
                    Ok(_) => {}
                    Err(error) => {
                        tracing::warn!(%error, "simulated cable cannot accept");
                        return;
                    }
                }
            }
        });
        Ok(Self { address, mode, _stop: stop.drop_guard() })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Mutes, pulls or restores the cable.
    pub fn set(&self, mode: LinkMode) {
        self.mode.send_replace(mode);
    }
}

async fn connect(
    client: TcpStream,
    servers: Vec<String>,
    mut mode: watch::Receiver<LinkMode>,
    stop: CancellationToken,
) {
    for server in servers {
        if let Ok(upstream) = TcpStream::connect(&server).await {
            let (client_read, client_write) = client.into_split();
            let (server_read, server_write) = upstream.into_split();
            let pulled = mode.clone();
            tokio::select! {
                () = stop.cancelled() => {}
                _ = mode.wait_for(|mode| *mode == LinkMode::Down) => {}
                _ = relay(client_read, server_write, pulled.clone()) => {}
                _ = relay(server_read, client_write, pulled) => {}
            }
            return;
        }
    }
}

async fn relay<R, W>(mut from: R, mut to: W, mode: watch::Receiver<LinkMode>) -> io::Result<()>
where
    R: AsyncReadExt + Unpin,
    W: AsyncWriteExt + Unpin,
{
    let mut buffer = BytesMut::new();
    loop {
        while let Some(length) = packet_length(&buffer)? {
            let is_publish = buffer[0] >> 4 == 3;
            if is_publish && *mode.borrow() == LinkMode::Mute {
                buffer.advance(length);
            } else {
                to.write_all(&buffer.split_to(length)).await?;
            }
        }
        if from.read_buf(&mut buffer).await? == 0 {
            return to.shutdown().await;
        }
    }
}

/// Length of the packet at the beginning of the buffer, once it is whole.
fn packet_length(buffer: &[u8]) -> io::Result<Option<usize>> {
    let mut remaining = 0_usize;
    for position in 0..4 {
        let Some(byte) = buffer.get(1 + position) else { return Ok(None) };
        remaining |= usize::from(byte & 0x7f) << (7 * position);
        if byte & 0x80 == 0 {
            let length = 2 + position + remaining;
            if length > PACKET_BYTES_MAX {
                return Err(io::Error::other("MQTT packet is too large for the simulated cable"));
            }
            return Ok((buffer.len() >= length).then_some(length));
        }
    }
    Err(io::Error::other("no MQTT packet"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_end_where_their_header_says() {
        assert_eq!(packet_length(&[]).unwrap(), None);
        assert_eq!(packet_length(&[0xc0]).unwrap(), None);
        assert_eq!(packet_length(&[0xc0, 0]).unwrap(), Some(2));
        assert_eq!(packet_length(&[0x30, 2, 1]).unwrap(), None);
        assert_eq!(packet_length(&[0x30, 2, 1, 1, 9]).unwrap(), Some(4));
        let mut large = vec![0x30, 0x80, 0x01];
        large.resize(131, 0);
        assert_eq!(packet_length(&large).unwrap(), Some(131));
        assert!(packet_length(&[0x30, 0xff, 0xff, 0xff, 0xff]).is_err());
    }

    #[tokio::test]
    async fn a_muted_cable_lets_pings_through_and_a_pulled_one_nothing() {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let link = Link::lay(vec![server.local_addr().unwrap().to_string()]).await.unwrap();
        let mut client = TcpStream::connect(link.address()).await.unwrap();
        let (mut far, _) = server.accept().await.unwrap();
        let mut buffer = [0; 8];

        client.write_all(&[0x30, 1, 7]).await.unwrap();
        far.read_exact(&mut buffer[..3]).await.unwrap();
        assert_eq!(buffer[..3], [0x30, 1, 7]);

        link.set(LinkMode::Mute);
        client.write_all(&[0x30, 1, 8, 0xc0, 0]).await.unwrap();
        far.read_exact(&mut buffer[..2]).await.unwrap();
        assert_eq!(buffer[..2], [0xc0, 0], "only the ping passed");

        link.set(LinkMode::Down);
        assert_eq!(far.read(&mut buffer).await.unwrap_or(0), 0);
        let mut refused = TcpStream::connect(link.address()).await.unwrap();
        assert_eq!(refused.read(&mut buffer).await.unwrap_or(0), 0);
    }
}
