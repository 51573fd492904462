//! Trust in an endorsement key: a certificate of a manufacturer, an enrolled hash, or both.

use std::time::Duration;

use rustls_pki_types::{CertificateDer, TrustAnchor, UnixTime};
use webpki::{EndEntityCert, Error, KeyUsage};
use x509_cert::certificate::{CertificateInner, Raw};
use x509_cert::der::Decode;
use x509_cert::der::oid::ObjectIdentifier;
use x509_cert::ext::pkix::ExtendedKeyUsage;

use crate::refusal::{Refusal, RefusalCode};

/// The most bytes that a certificate may have.
pub const CERTIFICATE_BYTES_MAX: usize = 8 * 1024;

/// The most certificates between the endorsement key's and a manufacturer's.
pub const INTERMEDIATES_MAX: usize = 5;

/// `tcg-kp-EKCertificate` (TCG EK Credential Profile).
const EK_CERTIFICATE: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.23.133.8.1");
/// The same as the content of a DER OBJECT IDENTIFIER.
const EK_CERTIFICATE_DER: &[u8] = &[0x67, 0x81, 0x05, 0x08, 0x01];

/// Checks the certificate of an endorsement key: that it is of this key, that it is made for endorsement keys, and that it leads to a manufacturer at time `now`.
///
/// The subject alternative name, which is critical in these certificates and names the TPM's model and not a host, is read as any other.
///
/// # Errors
/// An `ek-certificate-...` code, or `evidence-too-large`.
pub fn check_certificate(
    subject_public_key_info: &[u8],
    certificate: &[u8],
    intermediates: &[&[u8]],
    manufacturers: &[TrustAnchor<'_>],
    now: Duration,
) -> Result<(), Refusal> {
    check_sizes(certificate, intermediates)?;
    check_usage(certificate)?;
    let der = CertificateDer::from(certificate);
    let certificate = EndEntityCert::try_from(&der).map_err(|error| {
        Refusal::new(RefusalCode::EkCertificateMalformed, format!("endorsement certificate: {error:?}"))
    })?;
    if certificate.subject_public_key_info().as_ref() != subject_public_key_info {
        let text = "the endorsement certificate is of another key than the endorsement key";
        return Err(Refusal::new(RefusalCode::EkCertificateKey, text));
    }
    let intermediates: Vec<CertificateDer<'_>> = intermediates.iter().map(|der| CertificateDer::from(*der)).collect();
    let verified = certificate.verify_for_usage(
        webpki::ALL_VERIFICATION_ALGS,
        manufacturers,
        &intermediates,
        UnixTime::since_unix_epoch(now),
        // Authorities above need not say it; the endorsement certificate has to, see above.
        KeyUsage::required_if_present(EK_CERTIFICATE_DER),
        None,
        None,
    );
    verified.map(|_| ()).map_err(|error| {
        let (code, text) = reason(&error);
        Refusal::new(code, format!("endorsement certificate: {text}"))
    })
}

/// Refuses more, or larger, certificates than a host honestly has.
pub(crate) fn check_sizes(certificate: &[u8], intermediates: &[&[u8]]) -> Result<(), Refusal> {
    let too_large =
        [certificate].into_iter().chain(intermediates.iter().copied()).find(|der| der.len() > CERTIFICATE_BYTES_MAX);
    if let Some(der) = too_large {
        let text = format!("a certificate has {} bytes, and {CERTIFICATE_BYTES_MAX} are allowed", der.len());
        return Err(Refusal::new(RefusalCode::EvidenceTooLarge, text));
    }
    if intermediates.len() > INTERMEDIATES_MAX {
        let text = format!("{} intermediate certificates, and {INTERMEDIATES_MAX} are allowed", intermediates.len());
        return Err(Refusal::new(RefusalCode::EvidenceTooLarge, text));
    }
    Ok(())
}

/// The certificate says that it is one of an endorsement key. Serial numbers and times are read as they are: manufacturers are not strict with them.
fn check_usage(der: &[u8]) -> Result<(), Refusal> {
    let usage = CertificateInner::<Raw>::from_der(der)
        .and_then(|certificate| certificate.tbs_certificate().get_extension::<ExtendedKeyUsage>());
    match usage {
        Ok(Some((_, usage))) if usage.0.contains(&EK_CERTIFICATE) => Ok(()),
        Ok(_) => {
            let text = format!("endorsement certificate: has no extended key usage {EK_CERTIFICATE}");
            Err(Refusal::new(RefusalCode::EkCertificateUsage, text))
        }
        Err(error) => {
            Err(Refusal::new(RefusalCode::EkCertificateMalformed, format!("endorsement certificate: {error}")))
        }
    }
}

/// Why a chain of certificates leads nowhere.
pub(crate) fn reason(error: &Error) -> (RefusalCode, String) {
    match error {
        Error::CertExpired { time, not_after } => (
            RefusalCode::EkCertificateTime,
            format!("expired: valid until {} s, and it is {} s (Unix time)", not_after.as_secs(), time.as_secs()),
        ),
        Error::CertNotValidYet { time, not_before } => (
            RefusalCode::EkCertificateTime,
            format!("not valid yet: from {} s, and it is {} s (Unix time)", not_before.as_secs(), time.as_secs()),
        ),
        Error::InvalidCertValidity => (RefusalCode::EkCertificateTime, "ends before it begins".to_owned()),
        Error::RequiredEkuNotFoundContext(_) => (
            RefusalCode::EkCertificateUsage,
            "an authority may not issue certificates with this extended key usage".to_owned(),
        ),
        Error::BadDer | Error::BadDerTime => {
            (RefusalCode::EkCertificateMalformed, "a certificate of the chain cannot be read".to_owned())
        }
        other => (RefusalCode::EkCertificateUntrusted, format!("leads to no manufacturer of the policy ({other:?})")),
    }
}
