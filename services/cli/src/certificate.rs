//! Whose a certificate is.

use std::path::Path;

use anyhow::anyhow;
use service_runtime::exit;
use x509_parser::pem::parse_x509_pem;

/// The common name in the certificate of a PEM file, which an MQTT server takes for the user.
///
/// # Errors
/// With [`exit::CONFIG`] if it does not hold a certificate.
pub(crate) fn subject(file: &Path) -> anyhow::Result<String> {
    let wrong = |error: anyhow::Error| exit::with_code(exit::CONFIG, error.context(file.display().to_string()));
    let pem = std::fs::read(file).map_err(|error| wrong(error.into()))?;
    let (_, pem) = parse_x509_pem(&pem).map_err(|_| wrong(anyhow!("is not PEM")))?;
    let certificate = pem.parse_x509().map_err(|_| wrong(anyhow!("is not a certificate")))?;
    let name = certificate.subject().iter_common_name().next().and_then(|name| name.as_str().ok());
    Ok(name.unwrap_or_default().to_owned())
}
