//! One value.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::rsa::OAEP_SHA256_MGF1SHA256;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use configdb_schema::document::SealingScope;
use zeroize::Zeroizing;

use crate::SealingCertificate;

/// Bytes of a session key.
pub const SESSION_KEY_BYTES: usize = 32;

/// Bytes that say how long the wrapped session key is.
const LENGTH_BYTES: usize = 2;

/// The cryptography library refused; it has no memory or no randomness.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the value cannot be sealed: the cryptography library refused")]
pub struct SealError;

/// Why a text is not a value that is sealed for a certificate. Only the controller's key shows whether the controller can open it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SealedError {
    /// Its encoding.
    #[error("it is not base64 on one line")]
    Encoding,
    /// It is sealed for a key of another size, or is something else.
    #[error("it is not sealed for the key of that certificate")]
    Form,
    /// More than a Secret holds.
    #[error("its value is larger than a Secret holds")]
    TooLarge,
}

/// The annotation by which the controller knows a scope; none for the strict one.
#[must_use]
pub const fn annotation(scope: SealingScope) -> Option<&'static str> {
    match scope {
        SealingScope::Strict => None,
        SealingScope::NamespaceWide => Some("sealedsecrets.bitnami.com/namespace-wide"),
        SealingScope::ClusterWide => Some("sealedsecrets.bitnami.com/cluster-wide"),
    }
}

/// What a value is bound to, as its session key is: elsewhere the controller refuses to open it.
fn label(scope: SealingScope, namespace: &str, name: &str) -> String {
    match scope {
        SealingScope::Strict => format!("{namespace}/{name}"),
        SealingScope::NamespaceWide => namespace.to_owned(),
        SealingScope::ClusterWide => String::new(),
    }
}

/// Looks whether a text can be what [`seal`] has made for that certificate, of a value of at most `bytes_max` bytes.
pub(crate) fn check_sealed(certificate: &SealingCertificate, text: &str, bytes_max: usize) -> Result<(), SealedError> {
    // Longer than any that passes: it is not worth decoding.
    if text.len() > 2 * (bytes_max + LENGTH_BYTES + certificate.key.ciphertext_size() + AES_256_GCM.tag_len()) {
        return Err(SealedError::TooLarge);
    }
    let sealed = STANDARD.decode(text).map_err(|_| SealedError::Encoding)?;
    let wrapped = certificate.key.ciphertext_size();
    let (length, rest) = sealed.split_first_chunk::<LENGTH_BYTES>().ok_or(SealedError::Form)?;
    let value = rest.len().checked_sub(wrapped + AES_256_GCM.tag_len()).ok_or(SealedError::Form)?;
    if usize::from(u16::from_be_bytes(*length)) != wrapped {
        return Err(SealedError::Form);
    }
    if value > bytes_max { Err(SealedError::TooLarge) } else { Ok(()) }
}

/// Seals a value under a session key of its own; the result is base64.
pub(crate) fn seal(
    certificate: &SealingCertificate,
    session_key: &Zeroizing<[u8; SESSION_KEY_BYTES]>,
    plain: &[u8],
    (scope, namespace, name): (SealingScope, &str, &str),
) -> Result<String, SealError> {
    let label = label(scope, namespace, name);
    let mut wrapped = vec![0; certificate.key.ciphertext_size()];
    let wrapped = certificate
        .key
        .encrypt(&OAEP_SHA256_MGF1SHA256, &session_key[..], &mut wrapped, Some(label.as_bytes()))
        .map_err(|_| SealError)?;
    let length = u16::try_from(wrapped.len()).map_err(|_| SealError)?;
    let cipher = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &session_key[..]).map_err(|_| SealError)?);
    // Room for the tag as well, so that the plain bytes are not left behind by a reallocation.
    let mut value = Zeroizing::new(Vec::with_capacity(plain.len() + AES_256_GCM.tag_len()));
    value.extend_from_slice(plain);
    let nonce = Nonce::assume_unique_for_key([0; 12]);
    cipher.seal_in_place_append_tag(nonce, Aad::empty(), &mut *value).map_err(|_| SealError)?;
    Ok(STANDARD.encode([&length.to_be_bytes()[..], wrapped, &value].concat()))
}
