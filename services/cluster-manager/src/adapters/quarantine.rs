//! What an enrolling cluster connects to the MQTT server with: files of the site that travel in the bootstrap script. They are read for each script, so that renewed ones need no
//! restart.
//!
//! A person who has the bootstrap command can read these files. So they must belong to the one user that may do nothing but enrol; those of any other user are refused.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use configdb_schema::Organisation;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use service_runtime::config::{ExposeSecret as _, Secret};
use zeroize::Zeroizing;

use crate::bootstrap::QuarantineLogin;
use crate::config::BootstrapConfig;

/// Largest of these files: some authorities, or a certificate with its chain.
const FILE_BYTES_MAX: u64 = 256 * 1024;

/// A file cannot be used. Holds nothing secret.
#[derive(Debug, thiserror::Error)]
pub enum QuarantineError {
    /// It cannot be read.
    #[error("{key}: cannot read {}", path.display())]
    Read {
        /// Key of the configuration.
        key: &'static str,
        /// Which.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// It holds something else.
    #[error("{key} {rule}")]
    Content {
        /// Key of the configuration.
        key: &'static str,
        /// The rule that it breaks.
        rule: String,
    },
}

/// Where it lies.
#[derive(Debug, Clone, Default)]
pub struct QuarantineFiles {
    user: String,
    ca_file: Option<PathBuf>,
    certificate: Option<(PathBuf, PathBuf)>,
    password: Option<(String, PathBuf)>,
}

impl QuarantineFiles {
    /// As configured.
    #[must_use]
    pub fn new(organisation: &Organisation, config: &BootstrapConfig) -> Self {
        Self {
            user: organisation.enrol_group(),
            ca_file: config.mqtt_ca_file.clone(),
            certificate: config.mqtt_cert_file.clone().zip(config.mqtt_key_file.clone()),
            password: config.mqtt_username.clone().zip(config.mqtt_password_file.clone()),
        }
    }

    /// Reads all of it. Blocks.
    ///
    /// # Errors
    /// [`QuarantineError`] names the key at fault.
    pub fn read(&self) -> Result<QuarantineLogin, QuarantineError> {
        let authorities = self.ca_file.as_deref().map(|path| {
            let text = read("bootstrap.mqtt_ca_file", path)?;
            certificate("bootstrap.mqtt_ca_file", &text)?;
            Ok(text.as_str().to_owned())
        });
        let certificate = self.certificate.as_ref().map(|(path, key_path)| {
            let text = read("bootstrap.mqtt_cert_file", path)?;
            let name = common_name(&certificate("bootstrap.mqtt_cert_file", &text)?);
            self.may_only_enrol("bootstrap.mqtt_cert_file", name.as_deref())?;
            let key = read("bootstrap.mqtt_key_file", key_path)?;
            let rule = || "holds no private key in PEM format".to_owned();
            PrivateKeyDer::from_pem_slice(key.as_bytes())
                .map_err(|_| QuarantineError::Content { key: "bootstrap.mqtt_key_file", rule: rule() })?;
            Ok((text.as_str().to_owned(), Arc::new(Secret::from(key.as_str()))))
        });
        let password = self.password.as_ref().map(|(user, path)| {
            self.may_only_enrol("bootstrap.mqtt_username", Some(user))?;
            let text = read("bootstrap.mqtt_password_file", path)?;
            let password = Secret::from(text.trim_end_matches(['\r', '\n']));
            if password.expose_secret().is_empty() {
                let rule = "is empty".to_owned();
                return Err(QuarantineError::Content { key: "bootstrap.mqtt_password_file", rule });
            }
            Ok((user.clone(), Arc::new(password)))
        });
        Ok(QuarantineLogin {
            authorities: authorities.transpose()?,
            certificate: certificate.transpose()?,
            password: password.transpose()?,
        })
    }

    fn may_only_enrol(&self, key: &'static str, user: Option<&str>) -> Result<(), QuarantineError> {
        if user == Some(self.user.as_str()) {
            return Ok(());
        }
        let user =
            user.map_or_else(|| "no one: its certificate has no common name".to_owned(), |user| format!("{user:?}"));
        let rule = format!(
            "is of {user}; it must be of {:?}, who may do nothing but enrol, because every operator who bootstraps a cluster gets it",
            self.user
        );
        Err(QuarantineError::Content { key, rule })
    }
}

fn read(key: &'static str, path: &Path) -> Result<Zeroizing<String>, QuarantineError> {
    let failed = |source| QuarantineError::Read { key, path: path.to_owned(), source };
    let mut text = Zeroizing::new(String::new());
    let length =
        File::open(path).and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)).map_err(failed)?;
    if length as u64 > FILE_BYTES_MAX {
        let rule = format!("has more than {FILE_BYTES_MAX} bytes");
        return Err(QuarantineError::Content { key, rule });
    }
    Ok(text)
}

/// The first certificate of a PEM file.
fn certificate(key: &'static str, text: &str) -> Result<CertificateDer<'static>, QuarantineError> {
    let rule = "holds no certificate in PEM format".to_owned();
    CertificateDer::from_pem_slice(text.as_bytes()).map_err(|_| QuarantineError::Content { key, rule })
}

fn common_name(certificate: &CertificateDer<'_>) -> Option<String> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
    let mut names = parsed.subject().iter_common_name();
    let name = names.next()?.as_str().ok()?.to_owned();
    names.next().is_none().then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DnType, KeyPair};

    fn write(directory: &Path, name: &str, text: &str) -> Option<PathBuf> {
        let path = directory.join(name);
        std::fs::write(&path, text).unwrap();
        Some(path)
    }

    fn files(change: impl Fn(&mut BootstrapConfig, &Path)) -> Result<QuarantineLogin, String> {
        let directory = tempfile::tempdir().unwrap();
        let own = directory.path();
        let issue = |name: &str| {
            let key = KeyPair::generate().unwrap();
            let mut params = CertificateParams::default();
            params.distinguished_name.push(DnType::CommonName, name);
            let signed = params.self_signed(&key).unwrap();
            write(own, &format!("{name}.pem"), &signed.pem());
            write(own, &format!("{name}.key"), &key.serialize_pem());
        };
        issue("ACME-Enrol");
        issue("ACME-Central");
        let mut config = BootstrapConfig {
            mqtt_ca_file: Some(own.join("ACME-Enrol.pem")),
            mqtt_cert_file: Some(own.join("ACME-Enrol.pem")),
            mqtt_key_file: Some(own.join("ACME-Enrol.key")),
            mqtt_username: Some("ACME-Enrol".to_owned()),
            mqtt_password_file: write(own, "password", "open sesame\n"),
            ..BootstrapConfig::default()
        };
        change(&mut config, own);
        let files = QuarantineFiles::new(&Organisation::new("ACME").unwrap(), &config);
        files.read().map_err(|error| error.to_string())
    }

    #[test]
    fn what_lets_a_cluster_into_the_quarantine_is_read_and_not_shown() {
        let login = files(|_, _| {}).unwrap();
        assert_eq!(login.password.as_ref().unwrap().1.expose_secret(), "open sesame");
        let shown = format!("{login:?}");
        assert!(!shown.contains("sesame") && !shown.contains("PRIVATE"), "{shown}");
    }

    #[test]
    fn what_could_do_more_than_enrol_or_is_not_a_credential_is_refused_by_its_key() {
        type Change = fn(&mut BootstrapConfig, &Path);
        let cases: [(&str, Change); 7] = [
            ("bootstrap.mqtt_cert_file is of \"ACME-Central\"; it must be of \"ACME-Enrol\"", |config, own| {
                config.mqtt_cert_file = Some(own.join("ACME-Central.pem"));
            }),
            ("bootstrap.mqtt_username is of \"admin\"", |config, _| config.mqtt_username = Some("admin".to_owned())),
            ("bootstrap.mqtt_ca_file holds no certificate", |config, own| {
                config.mqtt_ca_file = write(own, "ca", "none");
            }),
            ("bootstrap.mqtt_key_file holds no private key", |config, own| {
                config.mqtt_key_file = config.mqtt_cert_file.clone().filter(|_| own.is_dir());
            }),
            ("bootstrap.mqtt_password_file is empty", |config, own| {
                config.mqtt_password_file = write(own, "empty", "\n");
            }),
            ("bootstrap.mqtt_ca_file has more than", |config, own| {
                config.mqtt_ca_file = write(own, "large", &"a".repeat(300_000));
            }),
            ("bootstrap.mqtt_ca_file: cannot read", |config, own| config.mqtt_ca_file = Some(own.join("absent"))),
        ];
        for (message, change) in cases {
            let error = files(change).unwrap_err();
            assert!(error.starts_with(message), "{error}");
        }
    }
}
