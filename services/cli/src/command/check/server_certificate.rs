//! The certificate that a server shows. Whether it is to be trusted says the session that is opened beside this.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{self, CryptoProvider};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Longest wait.
const PATIENCE: Duration = Duration::from_secs(10);

/// Notes the certificate. Nothing is sent over the connection.
#[derive(Debug)]
struct Recorder {
    provider: Arc<CryptoProvider>,
    seen: Mutex<Option<CertificateDer<'static>>>,
}

impl ServerCertVerifier for Recorder {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(end_entity.clone().into_owned());
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        crypto::verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        crypto::verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// The certificate of the server at an address, DER.
///
/// # Errors
/// It is not reached, or shows none.
pub(super) async fn fetch(host: &str, port: u16) -> anyhow::Result<Vec<u8>> {
    let provider = Arc::new(crypto::aws_lc_rs::default_provider());
    let recorder = Arc::new(Recorder { provider: Arc::clone(&provider), seen: Mutex::new(None) });
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let verifier: Arc<dyn ServerCertVerifier> = Arc::<Recorder>::clone(&recorder);
    let config = builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth();
    let name = ServerName::try_from(host.to_owned()).context("the name of the server")?;
    let connected = async {
        let stream = TcpStream::connect((host, port)).await?;
        TlsConnector::from(Arc::new(config)).connect(name, stream).await.map(drop)
    };
    let ended = tokio::time::timeout(PATIENCE, connected).await;
    // A server that asks for a certificate of the client ends the handshake, after it has shown its own.
    let seen = recorder.seen.lock().unwrap_or_else(PoisonError::into_inner).take();
    match (seen, ended) {
        (Some(seen), _) => Ok(seen.to_vec()),
        (None, Ok(Err(error))) => Err(error.into()),
        (None, Ok(Ok(()))) => Err(anyhow!("it has shown no certificate")),
        (None, Err(_)) => Err(anyhow!("no answer within {} s", PATIENCE.as_secs())),
    }
}
