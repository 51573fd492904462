//! Keys of authorities, read from PEM: what `kubeadm`, `k3s` and `openssl` write.
//!
//! Signatures of ECDSA keys differ each time; where it matters which bytes come out, an authority has an RSA or Ed25519 key.

use std::fmt;

use aws_lc_rs::digest::{SHA256, SHA384, digest};
use aws_lc_rs::encoding::{AsDer, PublicKeyX509Der};
use aws_lc_rs::error::KeyRejected;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P384_SHA384_ASN1_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair,
    RSA_PKCS1_SHA256, RsaKeyPair,
};
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject;
use x509_cert::der::asn1::{Any, Null};
use x509_cert::der::oid::ObjectIdentifier;
use x509_cert::spki::AlgorithmIdentifier;

/// Why text is not a key of an authority. Holds nothing of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// It is not PEM with a private key.
    #[error("is not PEM with a private key")]
    Pem,
    /// It is a key of another kind.
    #[error("is not an RSA (2048 bits or more), ECDSA (P-256, P-384) or Ed25519 key")]
    Kind,
    /// It does not sign.
    #[error("cannot sign")]
    Sign,
}

enum Key {
    P256(EcdsaKeyPair),
    P384(EcdsaKeyPair),
    Rsa(RsaKeyPair),
    Ed25519(Ed25519KeyPair),
}

/// The private key of an authority.
pub struct AuthorityKey(Key);

impl fmt::Debug for AuthorityKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AuthorityKey(..)")
    }
}

impl AuthorityKey {
    /// From PEM: PKCS#8, or the older forms of EC and RSA keys.
    ///
    /// # Errors
    /// What is no such key.
    pub fn from_pem(pem: &[u8]) -> Result<Self, KeyError> {
        let der = PrivateKeyDer::from_pem_slice(pem).map_err(|_| KeyError::Pem)?;
        let bytes = der.secret_der();
        // The library reads keys of one kind only; so each kind is tried.
        let ecdsa = |algorithm| EcdsaKeyPair::from_private_key_der(algorithm, bytes);
        let key = ecdsa(&ECDSA_P256_SHA256_ASN1_SIGNING)
            .map(Key::P256)
            .or_else(|_| ecdsa(&ECDSA_P384_SHA384_ASN1_SIGNING).map(Key::P384))
            .or_else(|_| rsa(&der).map(Key::Rsa))
            .or_else(|_| Ed25519KeyPair::from_pkcs8_maybe_unchecked(bytes).map(Key::Ed25519));
        key.map(Self).map_err(|_| KeyError::Kind)
    }

    /// DER `SubjectPublicKeyInfo` of its public key.
    ///
    /// # Errors
    /// None for a key that was read; the library's encoder has an error type.
    pub fn subject_public_key_info(&self) -> Result<Vec<u8>, KeyError> {
        let encoded: Result<PublicKeyX509Der<'_>, _> = match &self.0 {
            Key::P256(key) | Key::P384(key) => key.public_key().as_der(),
            Key::Rsa(key) => key.public_key().as_der(),
            Key::Ed25519(key) => key.public_key().as_der(),
        };
        encoded.map(|der| der.as_ref().to_vec()).map_err(|_| KeyError::Kind)
    }

    /// The signature algorithm, as a certificate names it (RFC 5758, RFC 4055, RFC 8410).
    pub(crate) fn algorithm(&self) -> AlgorithmIdentifier<Any> {
        let (oid, parameters) = match &self.0 {
            Key::P256(_) => ("1.2.840.10045.4.3.2", None),
            Key::P384(_) => ("1.2.840.10045.4.3.3", None),
            Key::Rsa(_) => ("1.2.840.113549.1.1.11", Some(Any::from(Null))),
            Key::Ed25519(_) => ("1.3.101.112", None),
        };
        AlgorithmIdentifier { oid: ObjectIdentifier::new_unwrap(oid), parameters }
    }

    /// Signs.
    pub(crate) fn sign(&self, message: &[u8]) -> Result<Vec<u8>, KeyError> {
        match &self.0 {
            Key::P256(key) => key.sign_digest(&digest(&SHA256, message)).map(|signature| signature.as_ref().to_vec()),
            Key::P384(key) => key.sign_digest(&digest(&SHA384, message)).map(|signature| signature.as_ref().to_vec()),
            Key::Rsa(key) => {
                let mut signature = vec![0; key.public_modulus_len()];
                key.sign_digest(&RSA_PKCS1_SHA256, &digest(&SHA256, message), &mut signature).map(|()| signature)
            }
            Key::Ed25519(key) => Ok(key.sign(message).as_ref().to_vec()),
        }
        .map_err(|_| KeyError::Sign)
    }
}

fn rsa(der: &PrivateKeyDer<'_>) -> Result<RsaKeyPair, KeyRejected> {
    match der {
        PrivateKeyDer::Pkcs1(key) => RsaKeyPair::from_der(key.secret_pkcs1_der()),
        other => RsaKeyPair::from_pkcs8(other.secret_der()),
    }
}
