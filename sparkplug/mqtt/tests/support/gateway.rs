//! A gateway from MQTT over WebSocket, plain or with TLS, to a TCP server.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use async_tungstenite::tokio::accept_hdr_async;
use async_tungstenite::tungstenite::handshake::server::{Request, Response};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use ws_stream_tungstenite::WsStream;

pub struct Gateway(SocketAddr);

impl Gateway {
    pub async fn plain(target: SocketAddr) -> Self {
        Self::start(target, None).await
    }

    /// With `server.pem` and `server.key` of the directory.
    pub async fn tls(target: SocketAddr, directory: &Path) -> Self {
        let chain = CertificateDer::pem_file_iter(directory.join("server.pem")).unwrap().map(Result::unwrap).collect();
        let key = PrivateKeyDer::from_pem_file(directory.join("server.key")).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        Self::start(target, Some(TlsAcceptor::from(Arc::new(config)))).await
    }

    async fn start(target: SocketAddr, tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let tls = tls.clone();
                tokio::spawn(async move {
                    match tls {
                        None => serve(client, target).await,
                        Some(tls) => {
                            if let Ok(client) = tls.accept(client).await {
                                serve(client, target).await;
                            }
                        }
                    }
                });
            }
        });
        Self(address)
    }

    pub fn address(&self) -> SocketAddr {
        self.0
    }
}

async fn serve(client: impl AsyncRead + AsyncWrite + Send + Unpin + 'static, target: SocketAddr) {
    #[allow(clippy::result_large_err, reason = "the type is the library's")]
    let choose = |request: &Request, mut response: Response| {
        assert_eq!(request.headers()["Sec-WebSocket-Protocol"], "mqtt");
        response.headers_mut().insert("Sec-WebSocket-Protocol", "mqtt".parse().unwrap());
        Ok(response)
    };
    let Ok(client) = accept_hdr_async(client, choose).await else { return };
    let Ok(mut server) = TcpStream::connect(target).await else { return };
    let _ = copy_bidirectional(&mut WsStream::new(client), &mut server).await;
}
