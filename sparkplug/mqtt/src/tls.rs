//! The TLS side of the connection: rustls with the aws-lc-rs provider, named here so that no other part of the process can change or miss it.

use std::sync::Arc;

use rustls::{ClientConfig, RootCertStore};

use crate::config::{MqttConfig, MqttConfigError};
use crate::pem::{self, PemError};

/// Reads the certificate files. Done anew for every session, so that renewed certificates are taken up without a restart.
pub(crate) fn client_config(config: &MqttConfig) -> Result<Arc<ClientConfig>, MqttConfigError> {
    let Some(ca_file) = &config.ca_file else {
        return Err(MqttConfigError::Key {
            key: "ca_file",
            rule: "is missing; mqtts:// needs the authorities to trust",
        });
    };
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(pem::certificates("mqtt.ca_file", ca_file)?);
    if added == 0 {
        let (path, needed) = (ca_file.clone(), "certificate that can be read as an authority's");
        return Err(PemError::Missing { key: "mqtt.ca_file", path, needed }.into());
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the aws-lc-rs provider has cipher suites for the default protocol versions")
        .with_root_certificates(roots);
    let client = match (&config.cert_file, &config.key_file) {
        (Some(cert_file), Some(key_file)) => {
            let chain = pem::certificates("mqtt.cert_file", cert_file)?;
            let key = pem::private_key("mqtt.key_file", key_file)?;
            builder.with_client_auth_cert(chain, key).map_err(MqttConfigError::ClientCertificate)?
        }
        _ => builder.with_no_client_auth(),
    };
    Ok(Arc::new(client))
}
