//! Trust in the maker of a machine: an initial attestation key (IAK), which the maker made in the TPM and certified (TCG, "TPM 2.0 Keys for Device Identity and Attestation").
//!
//! An IAK signs what its TPM made, and so it says of the attestation key that the same TPM holds it (`TPM2_Certify`). A host sends that behind its attestation key:
//!
//! | part | form |
//! |---|---|
//! | attestation key, IAK | `TPM2B_PUBLIC` each |
//! | statement of the IAK about the attestation key | `TPM2B_ATTEST`, `TPMT_SIGNATURE` |
//!
//! The statement is true for as long as the TPM is not cleared, so it need not be fresh. An old one about the same attestation key says the same. It is the quote that is about
//! this request. The IDevID, which the same makers certify, signs whatever it is given. It proves nothing about a TPM, and its certificate is refused here.

use std::time::Duration;

use rustls_pki_types::{CertificateDer, TrustAnchor, UnixTime};
use webpki::{EndEntityCert, KeyUsage};
use x509_cert::certificate::{CertificateInner, Raw};
use x509_cert::der::Decode;
use x509_cert::der::oid::ObjectIdentifier;
use x509_cert::ext::pkix::{CertificatePolicies, ExtendedKeyUsage};

use crate::attest::{ATTEST_BYTES_MAX, Certification, Signature};
use crate::endorsement::{check_sizes, reason};
use crate::hash::Hash;
use crate::keys::{check_attestation_key, is_primary_of_endorsement};
use crate::policy::IakHash;
use crate::public::{PUBLIC_BYTES_MAX, Public};
use crate::quote::malformed;
use crate::refusal::{Refusal, RefusalCode};
use crate::wire::{Malformed, Reader};

/// `tcg-cap-verifiedTPMRestricted`: the authority has verified that the key is fixedTPM and restricted.
const VERIFIED_RESTRICTED: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.23.133.11.1.3");
/// `tcg-kp-AIKCertificate`: a certificate of an attestation key.
const ATTESTATION_CERTIFICATE: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.23.133.8.3");
/// The same as the content of a DER OBJECT IDENTIFIER.
const ATTESTATION_CERTIFICATE_DER: &[u8] = &[0x67, 0x81, 0x05, 0x08, 0x03];

/// What an IAK says of the attestation key of a host. Nothing of it is judged yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceStatement {
    iak: Public,
    attest: Vec<u8>,
    signature: Signature,
}

/// An attestation key, and what an IAK says of it if something follows the key.
///
/// # Errors
/// `evidence-malformed`, `evidence-too-large`.
pub fn attestation_of(bytes: &[u8]) -> Result<(Public, Option<DeviceStatement>), Refusal> {
    if bytes.len() > PUBLIC_BYTES_MAX + 2 {
        return Err(malformed("attestation key", &Malformed::long("TPM2B_PUBLIC", PUBLIC_BYTES_MAX, bytes.len())));
    }
    let mut reader = Reader::new(bytes);
    let attestation = Public::read(&mut reader).map_err(|error| malformed("attestation key", &error))?;
    if reader.left().is_empty() {
        return Ok((attestation, None));
    }
    let statement = read_statement(&mut reader);
    Ok((attestation, Some(statement.map_err(|error| malformed("initial attestation key", &error))?)))
}

fn read_statement(reader: &mut Reader<'_>) -> Result<DeviceStatement, Malformed> {
    let iak = Public::read(reader)?;
    let attest = reader.sized("TPM2B_ATTEST", ATTEST_BYTES_MAX)?.to_vec();
    let signature = Signature::read(reader)?;
    reader.finish("TPMT_SIGNATURE")?;
    Ok(DeviceStatement { iak, attest, signature })
}

/// Checks that the IAK which the host is enrolled with vouches for its attestation key.
///
/// # Errors
/// `iak-unsuitable`, `iak-statement`, `iak-other`.
pub fn check_pinned(attestation: &Public, statement: Option<&DeviceStatement>, pinned: IakHash) -> Result<(), Refusal> {
    let Some(statement) = statement else {
        let text = "the host is enrolled with an initial attestation key, and sent none";
        return Err(Refusal::new(RefusalCode::IakUnsuitable, text));
    };
    let hash = Hash::Sha256.digest(&[&check_statement(attestation, statement)?]);
    if hash != pinned {
        let (found, wanted) = (hex::encode(hash), hex::encode(pinned));
        let text = format!("the initial attestation key is {found}, and the host is enrolled with {wanted}");
        return Err(Refusal::new(RefusalCode::IakOther, text));
    }
    Ok(())
}

/// Checks that the maker of a machine vouches for its attestation key: by the certificate of the IAK, which is one of `certificates`, at time `now`.
///
/// # Errors
/// `iak-unsuitable`, `iak-statement`, `iak-certificate`, `evidence-too-large`.
pub fn check_device(
    attestation: &Public,
    statement: &DeviceStatement,
    certificates: &[&[u8]],
    makers: &[TrustAnchor<'_>],
    now: Duration,
) -> Result<(), Refusal> {
    let spki = check_statement(attestation, statement)?;
    check_sizes(&[], certificates)?;
    check_certificate(&spki, certificates, makers, now).map_err(|text| {
        Refusal::new(RefusalCode::IakCertificate, format!("certificate of the initial attestation key: {text}"))
    })
}

/// That this IAK is one, and says that its TPM holds the attestation key. Gives its `SubjectPublicKeyInfo`.
fn check_statement(attestation: &Public, statement: &DeviceStatement) -> Result<Vec<u8>, Refusal> {
    let DeviceStatement { iak, attest, signature } = statement;
    check_attestation_key(iak).map_err(|refusal| {
        Refusal::new(RefusalCode::IakUnsuitable, refusal.text.replace("attestation key", "initial attestation key"))
    })?;
    let refused = |text: &str| Refusal::new(RefusalCode::IakStatement, format!("initial attestation key: {text}"));
    let said = Certification::parse(attest).map_err(|error| refused(&error.to_string()))?;
    if !signature.verifies(&iak.key, attest) {
        return Err(refused("it did not sign what it is to have said"));
    }
    // A key of another hierarchy is gone when its owner clears it, and is none that a maker certifies.
    if !is_primary_of_endorsement(iak, &said.qualified_signer) {
        return Err(refused("it lies elsewhere than at the top of the endorsement hierarchy"));
    }
    if said.name != attestation.name() {
        return Err(refused("what it said is about another attestation key"));
    }
    let encoded = iak.key.subject_public_key_info();
    encoded.map_err(|error| refused(&format!("it cannot be encoded ({error})")))
}

fn check_certificate(
    spki: &[u8],
    certificates: &[&[u8]],
    makers: &[TrustAnchor<'_>],
    now: Duration,
) -> Result<(), String> {
    let ders: Vec<CertificateDer<'_>> = certificates.iter().map(|der| CertificateDer::from(*der)).collect();
    // The others lead to a maker, or are of the endorsement key.
    let is_of_key = |der: &&CertificateDer<'_>| {
        EndEntityCert::try_from(*der).is_ok_and(|one| *one.subject_public_key_info() == *spki)
    };
    let der = ders.iter().find(is_of_key).ok_or("there is none of this key")?;
    check_usage(der)?;
    let certificate = EndEntityCert::try_from(der).map_err(|error| format!("{error:?}"))?;
    let usage = KeyUsage::required_if_present(ATTESTATION_CERTIFICATE_DER);
    let time = UnixTime::since_unix_epoch(now);
    let verified = certificate.verify_for_usage(webpki::ALL_VERIFICATION_ALGS, makers, &ders, time, usage, None, None);
    verified.map(|_| ()).map_err(|error| reason(&error).1)
}

/// The certificate says that the key is an attestation key. One of an IDevID does not, and is of a key that signs whatever it is given.
fn check_usage(der: &[u8]) -> Result<(), String> {
    let certificate = CertificateInner::<Raw>::from_der(der).map_err(|error| error.to_string())?;
    let certificate = certificate.tbs_certificate();
    let policies = certificate.get_extension::<CertificatePolicies>().map_err(|error| error.to_string())?;
    let usage = certificate.get_extension::<ExtendedKeyUsage>().map_err(|error| error.to_string())?;
    let is_restricted = policies
        .is_some_and(|(_, policies)| policies.0.iter().any(|policy| policy.policy_identifier == VERIFIED_RESTRICTED));
    if is_restricted || usage.is_some_and(|(_, usage)| usage.0.contains(&ATTESTATION_CERTIFICATE)) {
        return Ok(());
    }
    Err(format!(
        "has neither the certificate policy {VERIFIED_RESTRICTED} nor the extended key usage {ATTESTATION_CERTIFICATE}"
    ))
}
