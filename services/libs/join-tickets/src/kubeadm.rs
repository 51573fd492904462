//! What `kubeadm join` needs: a bootstrap token, the pins of the cluster's authority, and the files of a further control plane.

use std::fmt;

use jiff::Timestamp;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use serde_json::{Value, json};
use x509_cert::certificate::{CertificateInner, Raw};
use x509_cert::der::{Decode, Encode};
use zeroize::Zeroizing;

/// The longest validity of a token, in seconds: it is used in the minute after it was made.
pub const TOKEN_SECONDS_MAX: i64 = 15 * 60;

/// The most certificates that a bundle may hold.
const BUNDLE_MAX: usize = 16;

const ID_LENGTH: usize = 6;
const SECRET_LENGTH: usize = 16;
const ALPHABET: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";

/// Files of a control plane, below `/etc/kubernetes/pki`. A host writes these and no others, whatever a ticket names.
pub const CONTROL_PLANE_FILES: [&str; 8] =
    ["ca.key", "sa.key", "front-proxy-ca.key", "etcd/ca.key", "ca.crt", "sa.pub", "front-proxy-ca.crt", "etcd/ca.crt"];

/// A bootstrap token, `[a-z0-9]{6}.[a-z0-9]{16}`. Its first part is not a secret.
#[derive(Clone, PartialEq, Eq)]
pub struct BootstrapToken {
    id: String,
    secret: Zeroizing<String>,
}

impl fmt::Debug for BootstrapToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BootstrapToken({}...)", self.id)
    }
}

/// Why text is not a bootstrap token. Holds nothing of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a bootstrap token is six and sixteen of a to z and 0 to 9, with a dot between")]
pub struct TokenError;

impl BootstrapToken {
    /// From random bytes. None if too few of them can be used without making some tokens likelier than others; that is rarer than one in 10^40.
    #[must_use]
    pub fn from_random(bytes: &Zeroizing<[u8; 64]>) -> Option<Self> {
        // 252 is the largest multiple of 36 in a byte.
        let letters = bytes.iter().filter(|byte| **byte < 252).map(|byte| char::from(ALPHABET[usize::from(byte % 36)]));
        let text: Zeroizing<String> = Zeroizing::new(letters.take(ID_LENGTH + SECRET_LENGTH).collect());
        let (id, secret) = text.split_at_checked(ID_LENGTH)?;
        let complete = secret.len() == SECRET_LENGTH;
        complete.then(|| Self { id: id.to_owned(), secret: Zeroizing::new(secret.to_owned()) })
    }

    /// From its text.
    ///
    /// # Errors
    /// Anything else.
    pub fn parse(text: &str) -> Result<Self, TokenError> {
        let is = |part: &str, length| part.len() == length && part.bytes().all(|byte| ALPHABET.contains(&byte));
        match text.split_once('.') {
            Some((id, secret)) if is(id, ID_LENGTH) && is(secret, SECRET_LENGTH) => {
                Ok(Self { id: id.to_owned(), secret: Zeroizing::new(secret.to_owned()) })
            }
            _ => Err(TokenError),
        }
    }

    /// Its first part, which names it.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The whole token, for the ticket.
    #[must_use]
    pub fn expose(&self) -> Zeroizing<String> {
        Zeroizing::new(format!("{}.{}", self.id, self.secret.as_str()))
    }

    /// The Kubernetes Secret that makes it valid for `seconds` from `now` (seconds since the Unix epoch); at most [`TOKEN_SECONDS_MAX`]. None if that is not a time.
    /// Made with "create", so that a token which exists is not made valid for longer.
    #[must_use]
    pub fn manifest(&self, now: i64, seconds: i64) -> Option<Value> {
        let lifetime = seconds.clamp(1, TOKEN_SECONDS_MAX);
        let expiration = Timestamp::from_second(now.checked_add(lifetime)?).ok()?.to_string();
        Some(json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "bootstrap.kubernetes.io/token",
            "metadata": {"name": format!("bootstrap-token-{}", self.id), "namespace": "kube-system"},
            "stringData": {
                "token-id": self.id,
                "token-secret": self.secret.as_str(),
                "expiration": expiration,
                "usage-bootstrap-signing": "true",
                "usage-bootstrap-authentication": "true",
                "auth-extra-groups": "system:bootstrappers:kubeadm:default-node-token",
                "description": "Made by the join service for one host",
            },
        }))
    }
}

/// Why certificates have no pins.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PinError {
    /// It is not PEM, or holds no certificate.
    #[error("the cluster's authority is not PEM with at least one certificate")]
    Pem,
    /// There are too many.
    #[error("the cluster's authority holds more than {BUNDLE_MAX} certificates")]
    Many,
    /// A certificate cannot be read.
    #[error("certificate {at} of the cluster's authority: {reason}")]
    Certificate {
        /// Which one, from 0.
        at: usize,
        /// Why.
        reason: String,
    },
}

/// The pins of the certificates in a PEM bundle: `sha256:` and the SHA-256 of the DER SubjectPublicKeyInfo.
///
/// # Errors
/// What is not a bundle of certificates.
pub fn discovery_pins(bundle: &[u8]) -> Result<Vec<String>, PinError> {
    let mut pins = Vec::new();
    for (at, certificate) in CertificateDer::pem_slice_iter(bundle).enumerate() {
        if at == BUNDLE_MAX {
            return Err(PinError::Many);
        }
        let certificate = certificate.map_err(|_| PinError::Pem)?;
        let spki = CertificateInner::<Raw>::from_der(&certificate)
            .and_then(|certificate| certificate.tbs_certificate().subject_public_key_info().to_der());
        let spki = spki.map_err(|error| PinError::Certificate { at, reason: error.to_string() })?;
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &spki);
        pins.push(format!("sha256:{}", hex::encode(digest)));
    }
    if pins.is_empty() { Err(PinError::Pem) } else { Ok(pins) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(fill: impl Fn(usize) -> u8) -> Zeroizing<[u8; 64]> {
        Zeroizing::new(std::array::from_fn(fill))
    }

    #[test]
    fn tokens_come_from_random_bytes_without_preferring_any() {
        let token = BootstrapToken::from_random(&bytes(|at| at as u8)).unwrap();
        assert_eq!(token.expose().as_str(), "abcdef.ghijklmnopqrstuv");
        // 252 to 255 would make a, b, c and d likelier.
        let skipping = BootstrapToken::from_random(&bytes(|at| if at % 2 == 0 { 252 + (at % 4) as u8 } else { 35 }));
        assert_eq!(skipping.unwrap().expose().as_str(), "999999.9999999999999999");
        assert_eq!(BootstrapToken::from_random(&bytes(|at| if at < 21 { 0 } else { 255 })), None);
    }

    #[test]
    fn a_token_is_parsed_as_it_is_written_and_shows_only_its_id() {
        let token = BootstrapToken::parse("abc123.0123456789abcdef").unwrap();
        assert_eq!(token.expose().as_str(), "abc123.0123456789abcdef");
        assert_eq!(format!("{token:?}"), "BootstrapToken(abc123...)");
        for bad in [
            "",
            "abc123",
            "abc12.0123456789abcdef",
            "abc123.0123456789abcdeF",
            "abc123.0123456789abcdef0",
            "ABC123.0123456789abcdef",
        ] {
            assert_eq!(BootstrapToken::parse(bad), Err(TokenError), "{bad}");
        }
    }

    #[test]
    fn the_secret_of_a_token_expires() {
        let token = BootstrapToken::parse("abc123.0123456789abcdef").unwrap();
        let manifest = token.manifest(1_800_000_000, 60).unwrap();
        assert_eq!(manifest["metadata"]["name"], "bootstrap-token-abc123");
        assert_eq!(manifest["stringData"]["expiration"], "2027-01-15T08:01:00Z");
        let longest = token.manifest(1_800_000_000, 1_000_000).unwrap();
        assert_eq!(longest["stringData"]["expiration"], "2027-01-15T08:15:00Z");
        assert_eq!(token.manifest(i64::MAX, 60), None);
    }

    #[test]
    fn what_is_not_a_bundle_has_no_pins() {
        assert_eq!(discovery_pins(b""), Err(PinError::Pem));
        assert_eq!(discovery_pins(b"-----BEGIN CERTIFICATE-----\n"), Err(PinError::Pem));
        let wrong = b"-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n";
        assert!(matches!(discovery_pins(wrong), Err(PinError::Certificate { at: 0, .. })));
        assert_eq!(discovery_pins(&wrong.repeat(17)).map_err(|_| ()), Err(()));
    }
}
