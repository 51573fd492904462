//! A client for HTTPS, and for HTTP where an address says so.
#![warn(unreachable_pub)]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use hyper::body::Body;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};

/// Where Debian and others keep the authorities of the system.
const SYSTEM_AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// Sends bodies of one type.
pub type HttpsClient<B> = Client<HttpsConnector<HttpConnector>, B>;

/// There is no client.
#[derive(Debug, thiserror::Error)]
pub enum HttpsError {
    /// The authorities.
    #[error("cannot read {}", path.display())]
    Authorities {
        /// The file.
        path: PathBuf,
    },
    /// TLS cannot be set up.
    #[error("TLS cannot be set up")]
    Tls(#[source] rustls::Error),
}

/// A client that trusts the authorities in `ca_file`, those of the system if None. Blocks.
///
/// # Errors
/// [`HttpsError`]
pub fn client<B: Body<Data: Send> + Send>(ca_file: Option<&Path>) -> Result<HttpsClient<B>, HttpsError> {
    let mut roots = RootCertStore::empty();
    let authorities = ca_file.unwrap_or(Path::new(SYSTEM_AUTHORITIES));
    match CertificateDer::pem_file_iter(authorities) {
        Ok(certificates) => {
            roots.add_parsable_certificates(certificates.filter_map(Result::ok));
        }
        Err(_) if ca_file.is_some() => return Err(HttpsError::Authorities { path: authorities.to_owned() }),
        // Without any authority only HTTP works, and HTTPS says so.
        Err(_) => {}
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let tls = builder.map_err(HttpsError::Tls)?.with_root_certificates(roots).with_no_client_auth();
    let connector = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1().build();
    Ok(Client::builder(TokioExecutor::new()).build(connector))
}
