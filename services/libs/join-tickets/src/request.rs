//! Certificate signing requests of kubelets (PKCS#10): what a request must be before a certificate is issued for it.
//!
//! A host asks for itself only. The name is the one that its attested identity may have, and the key has an accepted kind and size. The addresses are those that the join service
//! knows to be the host's. Nothing else is asked for and nothing is copied unseen.

use std::collections::BTreeSet;
// An address is a value here: it is written in a certificate, and nothing is opened.
use core::net::IpAddr;

use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1, ECDSA_P384_SHA384_ASN1, UnparsedPublicKey, VerificationAlgorithm};
use x509_cert::attr::AttributeTypeAndValue;
use x509_cert::der::asn1::{PrintableStringRef, Utf8StringRef};
use x509_cert::der::oid::ObjectIdentifier;
use x509_cert::der::{Decode, Encode, Tag, Tagged};
use x509_cert::ext::Extension;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::name::Name;
use x509_cert::request::{CertReq, ExtensionReq};

/// The most bytes that a request may have.
pub const REQUEST_BYTES_MAX: usize = 4 * 1024;

/// The most alternative names that a request may have.
pub const NAMES_MAX: usize = 16;

const ORGANIZATION: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.10");
const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");
const SUBJECT_ALT_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.17");
const EXTENSION_REQUEST: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.9.14");
const EC_PUBLIC_KEY: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");
const P256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.3.1.7");
const P384: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.132.0.34");
const ECDSA_SHA256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.4.3.2");
const ECDSA_SHA384: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.4.3.3");

/// The group of Kubernetes nodes, and the prefix of a node's user name.
const NODES: &str = "system:nodes";
const NODE_PREFIX: &str = "system:node:";

/// What the host that asks may ask for.
#[derive(Debug, Clone, Copy)]
pub struct Allowed<'a> {
    /// Its name in Kubernetes.
    pub node_name: &'a str,
    /// Its addresses.
    pub addresses: &'a BTreeSet<IpAddr>,
}

/// Why no certificate is issued for a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// It is larger than it can honestly be.
    #[error("certificate request: has {0} bytes, and {REQUEST_BYTES_MAX} are allowed")]
    TooLarge(usize),
    /// It is not a PKCS#10 request.
    #[error("certificate request: {0}")]
    Malformed(String),
    /// The key is not accepted.
    #[error("certificate request: key and signature must be ECDSA on P-256 with SHA-256 or on P-384 with SHA-384")]
    Key,
    /// The signature is not of the key.
    #[error("certificate request: is not signed with its own key")]
    Signature,
    /// The subject is not this node.
    #[error("certificate request: subject: {0}")]
    Subject(String),
    /// An attribute or extension that no kubelet needs.
    #[error("certificate request: {0} is not allowed")]
    Extension(String),
    /// An alternative name that is not the host's.
    #[error("certificate request: alternative name {0} is not this host's")]
    AlternativeName(String),
}

/// A request that passed: a certificate may be issued for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubeletRequest {
    /// Name of the node.
    pub(crate) node_name: String,
    /// DER `SubjectPublicKeyInfo`.
    pub(crate) public_key: Vec<u8>,
    /// Addresses.
    pub(crate) addresses: BTreeSet<IpAddr>,
    /// The node's name is an alternative name, too.
    pub(crate) named: bool,
}

impl KubeletRequest {
    /// Reads and checks a DER request of the host that may ask for `allowed`.
    ///
    /// # Errors
    /// Everything that is not exactly a kubelet's request for itself.
    pub fn check(der: &[u8], allowed: &Allowed<'_>) -> Result<Self, RequestError> {
        if der.len() > REQUEST_BYTES_MAX {
            return Err(RequestError::TooLarge(der.len()));
        }
        let malformed = |error: x509_cert::der::Error| RequestError::Malformed(error.to_string());
        let request = CertReq::from_der(der).map_err(malformed)?;
        check_signature(&request)?;
        check_subject(&request.info.subject, allowed.node_name)?;
        let names = alternative_names(&request)?;
        let (addresses, named) = check_names(&names, allowed)?;
        let public_key = request.info.public_key.to_der().map_err(malformed)?;
        Ok(Self { node_name: allowed.node_name.to_owned(), public_key, addresses, named })
    }

    /// DER `SubjectPublicKeyInfo` of the key that is to be certified.
    #[must_use]
    pub fn public_key(&self) -> &[u8] {
        &self.public_key
    }
}

fn check_signature(request: &CertReq) -> Result<(), RequestError> {
    let key = &request.info.public_key;
    let curve = key.algorithm.parameters.as_ref().and_then(|curve| curve.decode_as::<ObjectIdentifier>().ok());
    let point = key.subject_public_key.as_bytes().ok_or(RequestError::Key)?;
    let algorithm: &dyn VerificationAlgorithm = match (curve, request.algorithm.oid) {
        (Some(P256), ECDSA_SHA256) if point.len() == 65 => &ECDSA_P256_SHA256_ASN1,
        (Some(P384), ECDSA_SHA384) if point.len() == 97 => &ECDSA_P384_SHA384_ASN1,
        _ => return Err(RequestError::Key),
    };
    if key.algorithm.oid != EC_PUBLIC_KEY || request.algorithm.parameters.is_some() {
        return Err(RequestError::Key);
    }
    let signed = request.info.to_der().map_err(|error| RequestError::Malformed(error.to_string()))?;
    let signature = request.signature.as_bytes().ok_or(RequestError::Signature)?;
    let key = UnparsedPublicKey::new(algorithm, point);
    key.verify(&signed, signature).map_err(|_| RequestError::Signature)
}

/// Exactly one organisation, `system:nodes`, and exactly one common name, that of the node.
fn check_subject(subject: &Name, node_name: &str) -> Result<(), RequestError> {
    let error = |text: &str| Err(RequestError::Subject(text.to_owned()));
    let wanted = format!("{NODE_PREFIX}{node_name}");
    let (mut organizations, mut names) = (0, 0);
    for attribute in subject.iter() {
        match attribute.oid {
            ORGANIZATION if text_of(attribute) == Some(NODES) => organizations += 1,
            ORGANIZATION => return error("the organisation must be system:nodes"),
            COMMON_NAME if text_of(attribute) == Some(wanted.as_str()) => names += 1,
            COMMON_NAME => return Err(RequestError::Subject(format!("the common name must be {wanted}"))),
            other => return Err(RequestError::Subject(format!("attribute {other} is not allowed"))),
        }
    }
    match (organizations, names) {
        (1, 1) => Ok(()),
        (1, _) => error("must have exactly one common name"),
        _ => error("must have exactly one organisation"),
    }
}

fn text_of(attribute: &AttributeTypeAndValue) -> Option<&str> {
    match attribute.value.tag() {
        Tag::PrintableString => attribute.value.decode_as::<PrintableStringRef<'_>>().ok().map(|text| text.as_str()),
        Tag::Utf8String => attribute.value.decode_as::<Utf8StringRef<'_>>().ok().map(|text| text.as_str()),
        _ => None,
    }
}

/// The alternative names of the one extension that may be asked for.
fn alternative_names(request: &CertReq) -> Result<Vec<GeneralName>, RequestError> {
    let malformed = |error: x509_cert::der::Error| RequestError::Malformed(error.to_string());
    let mut extensions: Vec<Extension> = Vec::new();
    for attribute in request.info.attributes.iter() {
        if attribute.oid != EXTENSION_REQUEST {
            return Err(RequestError::Extension(format!("attribute {}", attribute.oid)));
        }
        for value in attribute.values.iter() {
            extensions.extend(value.decode_as::<ExtensionReq>().map_err(malformed)?.0);
        }
    }
    let mut names = Vec::new();
    for (at, extension) in extensions.iter().enumerate() {
        if extension.extn_id != SUBJECT_ALT_NAME {
            return Err(RequestError::Extension(format!("extension {}", extension.extn_id)));
        }
        if at > 0 {
            return Err(RequestError::Extension("a second list of alternative names".to_owned()));
        }
        names = SubjectAltName::from_der(extension.extn_value.as_bytes()).map_err(malformed)?.0;
    }
    if names.len() > NAMES_MAX {
        return Err(RequestError::Extension(format!("a list of more than {NAMES_MAX} alternative names")));
    }
    Ok(names)
}

/// The addresses, and whether the node's own name is among the names.
fn check_names(names: &[GeneralName], allowed: &Allowed<'_>) -> Result<(BTreeSet<IpAddr>, bool), RequestError> {
    let (mut addresses, mut named) = (BTreeSet::new(), false);
    for name in names {
        match name {
            GeneralName::DnsName(name) if name.as_str() == allowed.node_name => named = true,
            GeneralName::DnsName(name) => return Err(RequestError::AlternativeName(name.as_str().to_owned())),
            GeneralName::IpAddress(octets) => {
                let address = address(octets.as_bytes())
                    .ok_or_else(|| RequestError::AlternativeName("that is not an address".to_owned()))?;
                if !allowed.addresses.contains(&address) {
                    return Err(RequestError::AlternativeName(address.to_string()));
                }
                addresses.insert(address);
            }
            _ => return Err(RequestError::AlternativeName("that is neither a name nor an address".to_owned())),
        }
    }
    Ok((addresses, named))
}

fn address(octets: &[u8]) -> Option<IpAddr> {
    let four: Result<[u8; 4], _> = octets.try_into();
    let sixteen: Result<[u8; 16], _> = octets.try_into();
    four.map(IpAddr::from).or_else(|_| sixteen.map(IpAddr::from)).ok()
}
