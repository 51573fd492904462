//! The server's certificate. Its files are looked at with every connection, and read again when they have changed; files that cannot be used leave the last good ones in place.

use std::fs::Metadata;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

/// TLS of the listener. Clones are the same.
#[derive(Clone)]
pub struct Tls {
    keys: Keys,
    cert_file: PathBuf,
    key_file: PathBuf,
    current: Arc<Mutex<Current>>,
}

struct Current {
    seen: [Option<Stamp>; 2],
    config: Arc<ServerConfig>,
}

/// The configuration keys that name the files.
#[derive(Debug, Clone, Copy)]
struct Keys {
    cert_file: &'static str,
    key_file: &'static str,
}

/// By what a changed file is known.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Stamp {
    modified: Option<SystemTime>,
    bytes: u64,
}

/// The certificate cannot be served. Names a file and never its content.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read as PEM.
    #[error("{key}: cannot read {}: {reason}", path.display())]
    File {
        /// The configuration key.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// Certificate and key do not go together, or are of no use for TLS.
    #[error("{cert_file} and {key_file} cannot be used for TLS")]
    Unusable {
        /// The certificate's configuration key.
        cert_file: &'static str,
        /// The private key's.
        key_file: &'static str,
        /// Why.
        #[source]
        source: rustls::Error,
    },
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls").field("cert_file", &self.cert_file).finish_non_exhaustive()
    }
}

impl Tls {
    /// Reads both files. Blocks. `keys`: the configuration keys that name the certificate and its private key.
    ///
    /// # Errors
    /// [`TlsError`] names the key.
    pub fn load(keys: [&'static str; 2], cert_file: &Path, key_file: &Path) -> Result<Self, TlsError> {
        let keys = Keys { cert_file: keys[0], key_file: keys[1] };
        let seen = [stamp(cert_file), stamp(key_file)];
        let config = read(keys, cert_file, key_file)?;
        let current = Arc::new(Mutex::new(Current { seen, config }));
        Ok(Self { keys, cert_file: cert_file.to_owned(), key_file: key_file.to_owned(), current })
    }

    /// What accepts a connection, with the certificate as it is on the disk.
    pub async fn acceptor(&self) -> TlsAcceptor {
        let this = self.clone();
        let config = tokio::task::spawn_blocking(move || this.config()).await;
        let last = || Arc::clone(&self.current.lock().unwrap_or_else(PoisonError::into_inner).config);
        TlsAcceptor::from(config.unwrap_or_else(|_| last()))
    }

    fn config(&self) -> Arc<ServerConfig> {
        let seen = [stamp(&self.cert_file), stamp(&self.key_file)];
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.seen != seen {
            match read(self.keys, &self.cert_file, &self.key_file) {
                Ok(config) => {
                    tracing::info!(path = %self.cert_file.display(), "the server's certificate was read again");
                    current.config = config;
                }
                Err(error) => tracing::warn!(error = %error, "the last certificate that could be used is kept"),
            }
            current.seen = seen;
        }
        Arc::clone(&current.config)
    }
}

fn stamp(path: &Path) -> Option<Stamp> {
    let about: Metadata = std::fs::metadata(path).ok()?;
    Some(Stamp { modified: about.modified().ok(), bytes: about.len() })
}

fn read(keys: Keys, cert_file: &Path, key_file: &Path) -> Result<Arc<ServerConfig>, TlsError> {
    let unreadable = |key, path: &Path, reason: String| TlsError::File { key, path: path.to_owned(), reason };
    let bytes =
        |key, path: &Path| std::fs::read(path).map_err(|error: io::Error| unreadable(key, path, error.to_string()));
    let text = bytes(keys.cert_file, cert_file)?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let chain = chain.map_err(|error| unreadable(keys.cert_file, cert_file, error.to_string()))?;
    if chain.is_empty() {
        return Err(unreadable(keys.cert_file, cert_file, "it holds no certificate in PEM".to_owned()));
    }
    let text = zeroize::Zeroizing::new(bytes(keys.key_file, key_file)?);
    // What the parser says may show what it found.
    let no_key = |_| unreadable(keys.key_file, key_file, "it holds no private key in PEM".to_owned());
    let key = PrivateKeyDer::from_pem_slice(&text).map_err(no_key)?;
    let unusable = |source| TlsError::Unusable { cert_file: keys.cert_file, key_file: keys.key_file, source };
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(unusable)?.with_no_client_auth();
    let mut config = builder.with_single_cert(chain, key).map_err(unusable)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
