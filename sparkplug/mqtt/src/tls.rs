//! The TLS side of the connection: rustls with the aws-lc-rs provider, named here so that no other part of the process can change or miss it.
//!
//! The certificate files are read again for every session, and looked at again while it lasts. When they have changed, another session takes up what they hold, without a restart.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::PathBuf;
use std::sync::Arc;

use rustls::{ClientConfig, RootCertStore};

use crate::config_error::MqttConfigError;
use crate::pem::{self, PemError};

/// Where the certificate files are, as they are configured.
#[derive(Debug, Clone)]
pub(crate) struct Paths {
    pub(crate) ca: Option<PathBuf>,
    pub(crate) certificate: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
}

/// A file and what it held when it was read.
struct File {
    path: PathBuf,
    text: Vec<u8>,
}

/// The certificate files as they were at one time.
pub(crate) struct Files {
    ca: File,
    /// Certificate and key.
    client: Option<(File, File)>,
}

/// What the files are compared by. Not a secret, and not meant against an attacker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fingerprint(u64);

/// What has become of the files.
#[derive(Debug)]
pub(crate) enum FileChange {
    /// They hold what they held.
    Same,
    /// They hold something else that a session can be opened with.
    Renewed,
    /// They hold something else, or nothing, that no session can be opened with.
    Unusable {
        /// Of what they hold; None: they cannot be read.
        fingerprint: Option<Fingerprint>,
        /// Why; names the key and the file.
        error: MqttConfigError,
    },
}

impl Files {
    /// Reads them. Blocks.
    pub(crate) fn read(paths: &Paths) -> Result<Self, MqttConfigError> {
        let file = |key, path: &PathBuf| pem::read(key, path).map(|text| File { path: path.clone(), text });
        let Some(ca_file) = &paths.ca else {
            return Err(MqttConfigError::Key {
                key: "ca_file",
                rule: "is missing; mqtts:// needs the authorities to trust",
            });
        };
        let client = match (&paths.certificate, &paths.key) {
            (Some(cert_file), Some(key_file)) => {
                Some((file("mqtt.cert_file", cert_file)?, file("mqtt.key_file", key_file)?))
            }
            _ => None,
        };
        Ok(Self { ca: file("mqtt.ca_file", ca_file)?, client })
    }

    pub(crate) fn fingerprint(&self) -> Fingerprint {
        let mut hasher = DefaultHasher::new();
        self.ca.text.hash(&mut hasher);
        if let Some((certificate, key)) = &self.client {
            (&certificate.text, &key.text).hash(&mut hasher);
        }
        Fingerprint(hasher.finish())
    }

    /// The TLS client that they make: certificate and key belong together.
    pub(crate) fn client_config(&self) -> Result<Arc<ClientConfig>, MqttConfigError> {
        let mut roots = RootCertStore::empty();
        let (added, _) =
            roots.add_parsable_certificates(pem::certificates("mqtt.ca_file", &self.ca.path, &self.ca.text)?);
        if added == 0 {
            let (path, needed) = (self.ca.path.clone(), "certificate that can be read as an authority's");
            return Err(PemError::Missing { key: "mqtt.ca_file", path, needed }.into());
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the aws-lc-rs provider has cipher suites for the default protocol versions")
            .with_root_certificates(roots);
        let client = match &self.client {
            Some((certificate, key)) => {
                let chain = pem::certificates("mqtt.cert_file", &certificate.path, &certificate.text)?;
                let key = pem::private_key("mqtt.key_file", &key.path, &key.text)?;
                builder.with_client_auth_cert(chain, key).map_err(MqttConfigError::ClientCertificate)?
            }
            None => builder.with_no_client_auth(),
        };
        Ok(Arc::new(client))
    }
}

/// Compares the files with what a session was opened with. Blocks.
pub(crate) fn look(paths: &Paths, used: Fingerprint) -> FileChange {
    let files = match Files::read(paths) {
        Ok(files) => files,
        Err(error) => return FileChange::Unusable { fingerprint: None, error },
    };
    let fingerprint = files.fingerprint();
    if fingerprint == used {
        return FileChange::Same;
    }
    match files.client_config() {
        Ok(_) => FileChange::Renewed,
        Err(error) => FileChange::Unusable { fingerprint: Some(fingerprint), error },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair};
    use std::fs;

    #[test]
    fn files_count_as_renewed_only_when_they_belong_together() {
        let directory = tempfile::tempdir().unwrap();
        let issue = || {
            let key = KeyPair::generate().unwrap();
            (CertificateParams::default().self_signed(&key).unwrap().pem(), key.serialize_pem())
        };
        let at = |name: &str| directory.path().join(name);
        let write = |name: &str, text: &str| fs::write(at(name), text).unwrap();
        let paths = Paths { ca: Some(at("ca")), certificate: Some(at("certificate")), key: Some(at("key")) };
        let (first, second) = (issue(), issue());
        write("ca", &first.0);
        write("certificate", &first.0);
        write("key", &first.1);
        let used = Files::read(&paths).unwrap().fingerprint();
        assert!(matches!(look(&paths, used), FileChange::Same));
        // The key of the other certificate, half of it, none; then both.
        write("key", &second.1);
        let FileChange::Unusable { fingerprint: Some(mixed), error } = look(&paths, used) else { panic!("mixed up") };
        assert!(matches!(error, MqttConfigError::ClientCertificate(_)), "{error}");
        write("key", &second.1[..second.1.len() / 2]);
        let FileChange::Unusable { fingerprint: Some(half), .. } = look(&paths, used) else { panic!("half a key") };
        assert_ne!(half, mixed);
        fs::remove_file(at("key")).unwrap();
        assert!(matches!(look(&paths, used), FileChange::Unusable { fingerprint: None, .. }));
        write("key", &second.1);
        write("certificate", &second.0);
        assert!(matches!(look(&paths, used), FileChange::Renewed));
    }
}
