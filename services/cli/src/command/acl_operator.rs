//! `sparkfleet acl operator`: the key and the certificate of an operator's own user, in whose name they write to ConfigDB. They are made where the authority's key is, which never leaves this machine.

use std::path::Path;

use anyhow::{Context as _, anyhow};
use configdb_schema::address::{OperatorName, Organisation};
use jiff::civil::Date;
use jiff::{Span, Timestamp, tz::TimeZone};
use rcgen::{
    CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, date_time_ymd,
};
use service_runtime::atomic_file::{self, OWNER_ONLY};
use service_runtime::exit;
use x509_parser::pem::parse_x509_pem;
use zeroize::Zeroizing;

use crate::arguments::AclOperatorArguments;
use crate::output;
use crate::usage_error::usage;

/// Carries out the command.
///
/// # Errors
/// With [`exit::USAGE`] for a name that is not valid, and with [`exit::REFUSED`] if the operator has files already. With [`exit::CONFIG`] if the authority's files cannot be used or the new ones cannot be written.
pub(super) fn run(arguments: &AclOperatorArguments) -> anyhow::Result<()> {
    let organisation = Organisation::new(&*arguments.organisation).context("--organisation").map_err(usage)?;
    let name = OperatorName::new(&*arguments.name).map_err(|error| usage(error.into()))?;
    let user = organisation.operator_user(&name);
    let [certificate_file, key_file] = ["pem", "key"].map(|kind| arguments.directory.join(format!("{user}.{kind}")));
    let wrong = |error: anyhow::Error| exit::with_code(exit::CONFIG, error);
    if let Some(taken) = [&certificate_file, &key_file].into_iter().find(|file| file.exists()) {
        let error =
            anyhow!("{} is there; move it away, and revoke its certificate, before another is made", taken.display());
        return Err(exit::with_code(exit::REFUSED, error));
    }
    let issuer = issuer(&arguments.ca, &arguments.ca_key).map_err(wrong)?;
    let today = Timestamp::now().to_zoned(TimeZone::UTC).date();
    let (certificate, key) = issue(&user, today, arguments.days, &issuer).map_err(wrong)?;
    std::fs::create_dir_all(&arguments.directory)
        .with_context(|| format!("cannot make the directory {}", arguments.directory.display()))
        .map_err(wrong)?;
    atomic_file::create(&key_file, key.as_bytes(), Some(OWNER_ONLY)).map_err(|error| wrong(error.into()))?;
    atomic_file::create(&certificate_file, certificate.as_bytes(), None).map_err(|error| wrong(error.into()))?;
    output::print_text(&format!("{}\n{}", certificate_file.display(), key_file.display()))
}

/// The authority, of its certificate and its key.
fn issuer(certificate: &Path, key: &Path) -> anyhow::Result<Issuer<'static, KeyPair>> {
    let read = |file: &Path| std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()));
    let pair = KeyPair::from_pem(&Zeroizing::new(read(key)?))
        .map_err(|_| anyhow!("{} must hold a private key in PEM", key.display()))?;
    let pem = read(certificate)?;
    let not_one = |rule: &str| anyhow!("{} {rule}", certificate.display());
    let (_, block) = parse_x509_pem(pem.as_bytes()).map_err(|_| not_one("must hold a certificate in PEM"))?;
    let parsed = block.parse_x509().map_err(|_| not_one("must hold a certificate in PEM"))?;
    if !parsed.is_ca() {
        return Err(not_one("must be the certificate of an authority"));
    }
    if parsed.public_key().raw != rcgen::PublicKeyData::subject_public_key_info(&pair) {
        return Err(not_one("must be the certificate of the key in --ca-key"));
    }
    Issuer::from_ca_cert_pem(&pem, pair).map_err(|_| not_one("cannot be used to sign"))
}

/// Certificate and private key, PEM. The certificate counts from the day before `today`, because clocks are not alike.
fn issue(
    user: &str,
    today: Date,
    days: u16,
    issuer: &Issuer<'_, KeyPair>,
) -> anyhow::Result<(String, Zeroizing<String>)> {
    let pair = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).context("a key cannot be made")?;
    let mut params = CertificateParams::default();
    let moment =
        |date: Date| date_time_ymd(i32::from(date.year()), date.month().unsigned_abs(), date.day().unsigned_abs());
    params.not_before = moment(today.checked_sub(Span::new().days(1))?);
    params.not_after = moment(today.checked_add(Span::new().days(i64::from(days)))?);
    params.distinguished_name.remove(DnType::CommonName);
    params.distinguished_name.push(DnType::CommonName, user);
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params.use_authority_key_identifier_extension = true;
    let certificate = params.signed_by(&pair, issuer).context("a certificate cannot be made")?;
    Ok((certificate.pem(), Zeroizing::new(pair.serialize_pem())))
}
