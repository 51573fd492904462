//! What a configuration of the connection is refused with.

use crate::pem::PemError;

/// What is wrong with an [`MqttConfig`](crate::MqttConfig). Messages name the key.
#[derive(Debug, thiserror::Error)]
pub enum MqttConfigError {
    /// `mqtt.servers` is empty.
    #[error("mqtt.servers is empty; name at least one, such as \"mqtt://127.0.0.1:1883\"")]
    NoServer,
    /// An entry of `mqtt.servers` is not a server address.
    #[error("mqtt.servers: {server:?} {rule}; write it as mqtt://host:1883 or mqtts://host:8883")]
    Server {
        /// The entry.
        server: String,
        /// The rule that it breaks.
        rule: &'static str,
    },
    /// Another key has a value that is not allowed.
    #[error("mqtt.{key} {rule}")]
    Key {
        /// The key, without `mqtt.`.
        key: &'static str,
        /// The rule that is broken, and what to do.
        rule: &'static str,
    },
    /// A certificate or key file is of no use.
    #[error(transparent)]
    Pem(#[from] PemError),
    /// Certificate and key do not make a TLS client.
    #[error("mqtt.cert_file and mqtt.key_file cannot be used together")]
    ClientCertificate(#[source] rustls::Error),
}
