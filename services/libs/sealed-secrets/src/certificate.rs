//! The controller's certificate: X.509 with an RSA key.

use core::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::rsa::{OaepPublicEncryptingKey, PublicEncryptingKey};
use der::{Decode as _, Encode as _};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use x509_cert::Certificate;

/// Most bytes of a certificate.
const BYTES_MAX: usize = 64 * 1024;

/// A certificate that values can be sealed for.
#[derive(Debug)]
pub struct SealingCertificate {
    pub(crate) key: OaepPublicEncryptingKey,
}

/// Why nothing can be sealed for a certificate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CertificateError {
    /// It is too large.
    #[error("the sealing certificate has {bytes} bytes; at most {BYTES_MAX} are allowed")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// It is not a certificate.
    #[error("the sealing certificate is not an X.509 certificate in PEM")]
    Form,
    /// The controller has another key by now, or will have.
    #[error("the sealing certificate {rule}; fetch the controller's current one")]
    Time {
        /// `has expired` or `is not valid yet`.
        rule: &'static str,
    },
    /// Its key is not one that the controller uses.
    #[error("the sealing certificate has no RSA key of 2048 to 8192 bits")]
    Key,
}

impl SealingCertificate {
    /// Reads a PEM certificate (the first, if there are several). `now`: UTC, since the epoch.
    ///
    /// # Errors
    /// The [`CertificateError`] that prevents it.
    pub fn from_pem(pem: &str, now: Duration) -> Result<Self, CertificateError> {
        if pem.len() > BYTES_MAX {
            return Err(CertificateError::TooLarge { bytes: pem.len() });
        }
        let bytes = CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|_| CertificateError::Form)?;
        let certificate = Certificate::from_der(&bytes).map_err(|_| CertificateError::Form)?;
        let certificate = certificate.tbs_certificate();
        let validity = certificate.validity();
        if now > validity.not_after.to_unix_duration() {
            return Err(CertificateError::Time { rule: "has expired" });
        }
        if now < validity.not_before.to_unix_duration() {
            return Err(CertificateError::Time { rule: "is not valid yet" });
        }
        let key = certificate.subject_public_key_info().to_der().map_err(|_| CertificateError::Form)?;
        let key = PublicEncryptingKey::from_der(&key).map_err(|_| CertificateError::Key)?;
        Ok(Self { key: OaepPublicEncryptingKey::new(key).map_err(|_| CertificateError::Key)? })
    }
}

/// Whether a text is one PEM certificate and nothing else, whatever it is for and whenever it is valid.
#[must_use]
pub fn is_certificate(pem: &str) -> bool {
    let pem = pem.trim();
    let is_alone = pem.starts_with("-----BEGIN CERTIFICATE-----")
        && pem.ends_with("-----END CERTIFICATE-----")
        && pem.matches("-----BEGIN").count() == 1;
    let bytes = || CertificateDer::from_pem_slice(pem.as_bytes()).ok();
    pem.len() <= BYTES_MAX && is_alone && bytes().is_some_and(|bytes| Certificate::from_der(&bytes).is_ok())
}

/// SHA-256 of a PEM certificate (the first, if there are several), hexadecimal in lower case: by it two certificates are distinguished. None: it is not a certificate.
#[must_use]
pub fn fingerprint(pem: &str) -> Option<String> {
    let bytes = CertificateDer::from_pem_slice(pem.get(..pem.len().min(BYTES_MAX))?.as_bytes()).ok()?;
    let hash = digest(&SHA256, &bytes);
    Some(hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect())
}
