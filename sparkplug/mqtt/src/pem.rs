//! Certificates and keys out of PEM files: the only module that reads that format.

use std::fs;
use std::path::{Path, PathBuf};

use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Why a PEM file is of no use.
#[derive(Debug, thiserror::Error)]
pub enum PemError {
    /// The file cannot be read.
    #[error("{key}: cannot read {}", path.display())]
    Unreadable {
        /// Configuration key that names the file.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The file is not PEM, or its base64 is broken.
    #[error("{key}: {} is not a well-formed PEM file", path.display())]
    Malformed {
        /// Configuration key that names the file.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The file holds other things than what is needed.
    #[error("{key}: {} holds no {needed} in PEM format", path.display())]
    Missing {
        /// Configuration key that names the file.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// `certificate` or `private key (PKCS#8, PKCS#1 or SEC1)`.
        needed: &'static str,
    },
}

/// All certificates of the text of the file, at least one.
pub(crate) fn certificates(
    key: &'static str,
    path: &Path,
    text: &[u8],
) -> Result<Vec<CertificateDer<'static>>, PemError> {
    let certificates = rustls_pemfile::certs(&mut &*text)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|source| PemError::Malformed { key, path: path.to_owned(), source })?;
    if certificates.is_empty() {
        return Err(PemError::Missing { key, path: path.to_owned(), needed: "certificate" });
    }
    Ok(certificates)
}

/// The first private key of the text of the file.
pub(crate) fn private_key(key: &'static str, path: &Path, text: &[u8]) -> Result<PrivateKeyDer<'static>, PemError> {
    rustls_pemfile::private_key(&mut &*text)
        .map_err(|source| PemError::Malformed { key, path: path.to_owned(), source })?
        .ok_or_else(|| PemError::Missing { key, path: path.to_owned(), needed: "private key (PKCS#8, PKCS#1 or SEC1)" })
}

/// The text of a file.
pub(crate) fn read(key: &'static str, path: &Path) -> Result<Vec<u8>, PemError> {
    fs::read(path).map_err(|source| PemError::Unreadable { key, path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_useless_file_is_distinguished_and_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.pem");
        let refusals = |text: &str| {
            (
                certificates("mqtt.ca_file", &path, text.as_bytes()).unwrap_err().to_string(),
                private_key("mqtt.key_file", &path, text.as_bytes()).unwrap_err().to_string(),
            )
        };
        let at = path.display();
        assert_eq!(
            refusals("no PEM at all"),
            (
                format!("mqtt.ca_file: {at} holds no certificate in PEM format"),
                format!("mqtt.key_file: {at} holds no private key (PKCS#8, PKCS#1 or SEC1) in PEM format"),
            )
        );
        let broken = "-----BEGIN CERTIFICATE-----\n%%%%\n-----END CERTIFICATE-----\n";
        assert_eq!(refusals(broken).0, format!("mqtt.ca_file: {at} is not a well-formed PEM file"));
        let missing = read("mqtt.ca_file", &path).unwrap_err().to_string();
        assert_eq!(missing, format!("mqtt.ca_file: cannot read {at}"));
    }
}
