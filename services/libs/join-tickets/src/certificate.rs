//! Issues certificates of kubelets with the cluster's authority (RFC 5280).

use core::net::IpAddr;
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use der::Sequence;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use x509_cert::certificate::{CertificateInner, Raw, Version};
use x509_cert::der::asn1::{Any, BitString, Ia5String, ObjectIdentifier, OctetString};
use x509_cert::der::oid::AssociatedOid;
use x509_cert::der::{DateTime, Decode, Encode};
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::ext::pkix::{
    AuthorityKeyIdentifier, BasicConstraints, ExtendedKeyUsage, KeyUsage, KeyUsages, SubjectAltName,
    SubjectKeyIdentifier,
};
use x509_cert::ext::{Extension, Extensions};
use x509_cert::name::Name;
use x509_cert::serial_number::SerialNumber;
use x509_cert::spki::{AlgorithmIdentifier, SubjectPublicKeyInfo};
use x509_cert::time::{Time, Validity};

use crate::request::KubeletRequest;
use crate::signer::{AuthorityKey, KeyError};

/// How long before now a certificate begins to be valid: hosts' clocks are not alike.
pub const BACKDATED: Duration = Duration::from_secs(2 * 3600);

/// The longest validity of a certificate.
pub const LIFETIME_MAX: Duration = Duration::from_secs(366 * 24 * 3600);

const SERVER_AUTH: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.1");
const CLIENT_AUTH: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.2");

/// What a certificate is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// The kubelet's own API. Its client certificate comes by its bootstrap token.
    Serving,
    /// Also to be known by the API server as this node.
    ServingAndClient,
}

/// Why no certificate is issued.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IssueError {
    /// The authority's certificate is not a certificate.
    #[error("certificate of the cluster's authority: {0}")]
    Authority(String),
    /// The authority's key is not a key, or cannot sign.
    #[error("key of the cluster's authority: {0}")]
    Key(#[from] KeyError),
    /// Certificate and key of the authority do not belong together.
    #[error("certificate and key of the cluster's authority do not belong together")]
    Mismatch,
    /// A certificate cannot hold the time.
    #[error("no certificate can be valid from then until then")]
    Time,
    /// What is asked for cannot be encoded.
    #[error("the certificate cannot be encoded: {0}")]
    Encode(String),
}

fn encode(error: x509_cert::der::Error) -> IssueError {
    IssueError::Encode(error.to_string())
}

/// The cluster's authority, as `/etc/kubernetes/pki/ca.crt` and `ca.key` hold it.
#[derive(Debug)]
pub struct Authority {
    key: AuthorityKey,
    subject: Name,
    key_identifier: Option<OctetString>,
    not_after: Duration,
}

/// `TBSCertificate` with what is issued here: the library has the type, but keeps its fields to itself.
#[derive(Sequence)]
struct ToBeSigned {
    #[asn1(context_specific = "0", tag_mode = "EXPLICIT")]
    version: Version,
    serial_number: SerialNumber,
    signature: AlgorithmIdentifier<Any>,
    issuer: Name,
    validity: Validity,
    subject: Name,
    public_key: SubjectPublicKeyInfo<Any, BitString>,
    #[asn1(context_specific = "3", tag_mode = "EXPLICIT")]
    extensions: Extensions,
}

#[derive(Sequence)]
struct Signed {
    certificate: Any,
    algorithm: AlgorithmIdentifier<Any>,
    signature: BitString,
}

impl Authority {
    /// From PEM: the first certificate of the bundle, and its key.
    ///
    /// # Errors
    /// What is not an authority, and a key of another one.
    pub fn from_pem(certificate: &[u8], key: &[u8]) -> Result<Self, IssueError> {
        let authority = |text: &str| IssueError::Authority(text.to_owned());
        let der =
            CertificateDer::from_pem_slice(certificate).map_err(|_| authority("is not PEM with a certificate"))?;
        let unreadable = |error: x509_cert::der::Error| IssueError::Authority(error.to_string());
        let certificate = CertificateInner::<Raw>::from_der(&der).map_err(unreadable)?;
        let certificate = certificate.tbs_certificate();
        let constraints = certificate.get_extension::<BasicConstraints>().map_err(unreadable)?;
        if !constraints.is_some_and(|(_, constraints)| constraints.ca) {
            return Err(authority("is not that of an authority"));
        }
        let key = AuthorityKey::from_pem(key)?;
        let public_key = certificate.subject_public_key_info().to_der().map_err(unreadable)?;
        if key.subject_public_key_info()? != public_key {
            return Err(IssueError::Mismatch);
        }
        let identifier = certificate.get_extension::<SubjectKeyIdentifier>().map_err(unreadable)?;
        Ok(Self {
            key,
            subject: certificate.subject().clone(),
            key_identifier: identifier.map(|(_, identifier)| identifier.0),
            not_after: certificate.validity().not_after.to_unix_duration(),
        })
    }

    /// Issues a certificate: DER. `serial`: random, 16 bytes. `now`: since the Unix epoch. It ends after `lifetime`, [`LIFETIME_MAX`], or with the authority's own, whichever is first.
    ///
    /// # Errors
    /// Times that a certificate cannot hold, and an authority that has expired or cannot sign.
    pub fn issue(
        &self,
        request: &KubeletRequest,
        purpose: Purpose,
        serial: [u8; 16],
        now: Duration,
        lifetime: Duration,
    ) -> Result<Vec<u8>, IssueError> {
        let not_after = now.checked_add(lifetime.min(LIFETIME_MAX)).ok_or(IssueError::Time)?.min(self.not_after);
        if not_after <= now {
            return Err(IssueError::Time);
        }
        // A serial number is positive and no longer than 20 bytes: the first bit is cleared, the second set.
        let mut serial = serial;
        serial[0] = serial[0] & 0x7f | 0x40;
        let to_be_signed = ToBeSigned {
            version: Version::V3,
            serial_number: SerialNumber::new(&serial).map_err(encode)?,
            signature: self.key.algorithm(),
            issuer: self.subject.clone(),
            validity: Validity::new(time(now.saturating_sub(BACKDATED))?, time(not_after)?),
            subject: subject(&request.node_name)?,
            public_key: SubjectPublicKeyInfo::from_der(&request.public_key).map_err(encode)?,
            extensions: self.extensions(request, purpose)?,
        };
        let to_be_signed = to_be_signed.to_der().map_err(encode)?;
        let signature = BitString::from_bytes(&self.key.sign(&to_be_signed)?).map_err(encode)?;
        let certificate = Any::from_der(&to_be_signed).map_err(encode)?;
        Signed { certificate, algorithm: self.key.algorithm(), signature }.to_der().map_err(encode)
    }

    fn extensions(&self, request: &KubeletRequest, purpose: Purpose) -> Result<Extensions, IssueError> {
        let usages = match purpose {
            Purpose::Serving => vec![SERVER_AUTH],
            Purpose::ServingAndClient => vec![SERVER_AUTH, CLIENT_AUTH],
        };
        // RFC 7093, method 1.
        let identifier = OctetString::new(&digest(&SHA256, &request.public_key).as_ref()[..20]).map_err(encode)?;
        let mut extensions = vec![
            extension(true, &KeyUsage(KeyUsages::DigitalSignature.into()))?,
            extension(true, &BasicConstraints { ca: false, path_len_constraint: None })?,
            extension(false, &ExtendedKeyUsage(usages))?,
            extension(false, &SubjectKeyIdentifier(identifier))?,
        ];
        if let Some(authority) = &self.key_identifier {
            let identifier = AuthorityKeyIdentifier {
                key_identifier: Some(authority.clone()),
                authority_cert_issuer: None,
                authority_cert_serial_number: None,
            };
            extensions.push(extension(false, &identifier)?);
        }
        let mut names = Vec::new();
        if request.named {
            names.push(GeneralName::DnsName(Ia5String::new(&request.node_name).map_err(encode)?));
        }
        for address in &request.addresses {
            let octets = match address {
                IpAddr::V4(address) => address.octets().to_vec(),
                IpAddr::V6(address) => address.octets().to_vec(),
            };
            names.push(GeneralName::IpAddress(OctetString::new(octets).map_err(encode)?));
        }
        if !names.is_empty() {
            extensions.push(extension(false, &SubjectAltName(names))?);
        }
        Ok(extensions)
    }
}

fn extension<T: AssociatedOid + Encode>(critical: bool, value: &T) -> Result<Extension, IssueError> {
    let extn_value = OctetString::new(value.to_der().map_err(encode)?).map_err(encode)?;
    Ok(Extension { extn_id: T::OID, critical, extn_value })
}

fn subject(node_name: &str) -> Result<Name, IssueError> {
    format!("CN=system:node:{node_name},O=system:nodes").parse().map_err(encode)
}

/// Years up to 2049 are written in the short form (RFC 5280, 4.1.2.5).
fn time(since_epoch: Duration) -> Result<Time, IssueError> {
    let whole =
        DateTime::from_unix_duration(Duration::from_secs(since_epoch.as_secs())).map_err(|_| IssueError::Time)?;
    Ok(Time::from(whole))
}

/// A certificate as PEM, as kubelets read it.
#[must_use]
pub fn to_pem(der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let lines: Vec<&str> = text.as_bytes().chunks(64).filter_map(|line| std::str::from_utf8(line).ok()).collect();
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
}
