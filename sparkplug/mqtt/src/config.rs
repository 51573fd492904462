//! The `[mqtt]` table of every service's configuration, and its validation. It does not know what the connection is used for.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::pem::PemError;
use crate::tls;

/// How to reach the MQTT server, and the limits of the connection. MQTT 3.1.1, always with a clean session.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MqttConfig {
    /// Servers, tried in turn: `mqtt://host:1883` (plain TCP) or `mqtts://host:8883` (TLS). The port may be left out. Default `mqtt://127.0.0.1:1883`.
    pub servers: Vec<String>,
    /// First part of every MQTT client id; the rest is made of the Sparkplug ids. Change it where two systems share one server. Default `sparkfleet`.
    pub client_id_prefix: String,
    /// User name for the server; not set: anonymous, or by client certificate alone.
    pub username: Option<String>,
    /// Password for the server. Never written to logs. Better given as `password_file`, which the service's configuration loader reads.
    pub password: Password,
    /// PEM file with the certificates of the authorities that sign server certificates; required for `mqtts://`.
    pub ca_file: Option<PathBuf>,
    /// PEM file with the client certificate and its chain, for servers that ask for one; needs `key_file`.
    pub cert_file: Option<PathBuf>,
    /// PEM file with the private key of `cert_file`.
    pub key_file: Option<PathBuf>,
    /// Seconds between pings, 1 to 3600. A dead link is noticed after twice this time by us, after 1.5 times by the server. Default 10.
    pub keep_alive_s: u64,
    /// Seconds that opening a connection may take, name resolution and TLS included; also the longest time a write may be stuck. Default 5.
    pub connect_timeout_s: u64,
    /// Largest MQTT packet that is sent or taken. A larger one that arrives ends the session, because MQTT has no way to skip it: give the server a limit
    /// below it. Default 16 MiB.
    pub packet_bytes_max: usize,
    /// Events that may wait for the application before the socket is read more slowly; see the crate's section on back-pressure. Default 10,000.
    pub waiting_events_max: usize,
    /// The same in bytes of payload. Default 64 MiB.
    pub waiting_bytes_max: usize,
}

impl Default for MqttConfig {
    fn default() -> Self {
        Self {
            servers: vec!["mqtt://127.0.0.1:1883".to_owned()],
            client_id_prefix: "sparkfleet".to_owned(),
            username: None,
            password: Password::default(),
            ca_file: None,
            cert_file: None,
            key_file: None,
            keep_alive_s: 10,
            connect_timeout_s: 5,
            packet_bytes_max: 16 * 1024 * 1024,
            waiting_events_max: 10_000,
            waiting_bytes_max: 64 * 1024 * 1024,
        }
    }
}

/// One key of the table as it is explained to a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MqttConfigKey {
    /// Dotted, as in a service's file: `mqtt.servers`.
    pub key: &'static str,
    /// The default as it would be written in the environment; empty if there is none.
    pub default: &'static str,
    /// One sentence: what it does, with its unit.
    pub help: &'static str,
}

impl MqttConfig {
    /// Every key, for a service's `--help` and reference; a test compares it with the fields.
    pub const KEYS: &'static [MqttConfigKey] = &[
        key(
            "mqtt.servers",
            "mqtt://127.0.0.1:1883",
            "MQTT servers, tried in turn: mqtt://host:1883 or, with TLS, mqtts://host:8883",
        ),
        key("mqtt.client_id_prefix", "sparkfleet", "first part of every MQTT client id; letters, digits, - and _"),
        key("mqtt.username", "", "user name; absent: anonymous, or by client certificate alone"),
        key("mqtt.password", "", "password; better given as mqtt.password_file"),
        key("mqtt.ca_file", "", "PEM file of the authorities that sign server certificates; required for mqtts://"),
        key("mqtt.cert_file", "", "PEM file of the client certificate and its chain"),
        key("mqtt.key_file", "", "PEM file of the private key of mqtt.cert_file"),
        key("mqtt.keep_alive_s", "10", "seconds between pings, 1 to 3600"),
        key("mqtt.connect_timeout_s", "5", "seconds that opening a connection may take, 1 to 300"),
        key(
            "mqtt.packet_bytes_max",
            "16777216",
            "largest MQTT packet sent or taken, in bytes; a larger one ends the session",
        ),
        key(
            "mqtt.waiting_events_max",
            "10000",
            "events that may wait for the service before the socket is read more slowly",
        ),
        key("mqtt.waiting_bytes_max", "67108864", "the same in bytes of payload"),
    ];
}

const fn key(key: &'static str, default: &'static str, help: &'static str) -> MqttConfigKey {
    MqttConfigKey { key, default, help }
}

/// What is wrong with an [`MqttConfig`]. Messages name the key.
#[derive(Debug, thiserror::Error)]
pub enum MqttConfigError {
    /// `mqtt.servers` is empty.
    #[error("mqtt.servers is empty; name at least one, such as \"mqtt://127.0.0.1:1883\"")]
    NoServer,
    /// An entry of `mqtt.servers` is no server address.
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

impl MqttConfig {
    /// Checks every key and reads the certificate files once.
    ///
    /// # Errors
    /// [`MqttConfigError`] names the first key at fault.
    pub fn validate(&self) -> Result<(), MqttConfigError> {
        self.addresses()?;
        self.check_texts()?;
        self.check_numbers()?;
        if self.uses_tls() {
            tls::client_config(self)?;
        }
        Ok(())
    }

    /// The servers as addresses; in the order given.
    pub(crate) fn addresses(&self) -> Result<Vec<ServerAddress>, MqttConfigError> {
        if self.servers.is_empty() {
            return Err(MqttConfigError::NoServer);
        }
        self.servers.iter().map(|server| ServerAddress::parse(server)).collect()
    }

    pub(crate) const fn keep_alive(&self) -> Duration {
        Duration::from_secs(self.keep_alive_s)
    }

    fn uses_tls(&self) -> bool {
        self.servers.iter().any(|server| server.starts_with("mqtts://"))
    }

    fn check_texts(&self) -> Result<(), MqttConfigError> {
        let fault = |key, rule| Err(MqttConfigError::Key { key, rule });
        let prefix = &self.client_id_prefix;
        if prefix.is_empty() || prefix.len() > 64 {
            return fault("client_id_prefix", "must have 1 to 64 characters");
        }
        if !prefix.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')) {
            return fault(
                "client_id_prefix",
                "may hold letters, digits, `-` and `_` only; servers refuse `/` and others",
            );
        }
        if self.username.as_deref() == Some("") {
            return fault("username", "is empty; leave it out to connect without a user name");
        }
        if self.password.is_set() && self.username.is_none() {
            return fault(
                "password",
                "is set without mqtt.username; MQTT 3.1.1 allows no password without a user name",
            );
        }
        match (&self.cert_file, &self.key_file) {
            (Some(_), None) => return fault("key_file", "is missing; mqtt.cert_file needs its private key"),
            (None, Some(_)) => return fault("cert_file", "is missing; mqtt.key_file needs its certificate"),
            (Some(_), Some(_)) | (None, None) => {}
        }
        if self.uses_tls() && self.ca_file.is_none() {
            return fault(
                "ca_file",
                "is missing; mqtts:// needs the authorities to trust (those of the system are usually in /etc/ssl/certs/ca-certificates.crt)",
            );
        }
        if !self.uses_tls() && (self.ca_file.is_some() || self.cert_file.is_some()) {
            return fault(
                "servers",
                "has no mqtts:// server, but certificate files are set; without TLS they protect nothing",
            );
        }
        Ok(())
    }

    fn check_numbers(&self) -> Result<(), MqttConfigError> {
        let fault = |key, rule| Err(MqttConfigError::Key { key, rule });
        if !(1..=3600).contains(&self.keep_alive_s) {
            return fault("keep_alive_s", "must be between 1 and 3600");
        }
        if !(1..=300).contains(&self.connect_timeout_s) {
            return fault("connect_timeout_s", "must be between 1 and 300");
        }
        // 256 MiB is the largest packet that MQTT can express.
        if !(64 * 1024..=256 * 1024 * 1024).contains(&self.packet_bytes_max) {
            return fault("packet_bytes_max", "must be between 65536 (64 KiB) and 268435456 (256 MiB)");
        }
        if self.waiting_events_max == 0 {
            return fault("waiting_events_max", "must be at least 1");
        }
        if self.waiting_bytes_max < self.packet_bytes_max {
            return fault(
                "waiting_bytes_max",
                "must be at least mqtt.packet_bytes_max, or one message could never wait",
            );
        }
        Ok(())
    }
}

/// One entry of `mqtt.servers`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerAddress {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) tls: bool,
}

impl ServerAddress {
    fn parse(text: &str) -> Result<Self, MqttConfigError> {
        let fault = |rule| MqttConfigError::Server { server: text.to_owned(), rule };
        let (tls, rest) = match text.split_once("://") {
            Some(("mqtt", rest)) => (false, rest),
            Some(("mqtts", rest)) => (true, rest),
            _ => return Err(fault("does not begin with mqtt:// or mqtts://")),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if rest.contains('@') {
            // The text stays out of the message: it may hold a password.
            return Err(MqttConfigError::Key {
                key: "servers",
                rule: "holds user information (an `@`); use mqtt.username and mqtt.password",
            });
        }
        if rest.contains(['/', '?', '#', ' ']) {
            return Err(fault("has something after the port"));
        }
        let default_port = if tls { 8883 } else { 1883 };
        let is_bare_ipv6 = rest.starts_with('[') && rest.ends_with(']');
        let (host, port) = match rest.rsplit_once(':') {
            Some((host, port)) if !is_bare_ipv6 => {
                (host, port.parse().ok().filter(|port| *port != 0).ok_or_else(|| fault("has no port from 1 to 65535"))?)
            }
            _ => (rest, default_port),
        };
        if host.is_empty() {
            return Err(fault("has no host"));
        }
        if host.contains(':') && !(host.starts_with('[') && host.ends_with(']')) {
            return Err(fault("has an IPv6 address without brackets"));
        }
        if tls && host.starts_with('[') {
            return Err(fault("uses TLS with an IPv6 address; give the server a name"));
        }
        Ok(Self { host: host.to_owned(), port, tls })
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}:{}", if self.tls { "mqtts" } else { "mqtt" }, self.host, self.port)
    }
}

/// A password that is never shown: `[redacted]` in `Debug` and when serialised, empty means not set.
#[derive(Clone, Default)]
pub struct Password(SecretString);

/// What a password looks like wherever it is printed or serialised; the configuration loader of the services knows secrets by it.
const REDACTED: &str = "[redacted]";

impl Password {
    /// Whether there is one.
    #[must_use]
    pub fn is_set(&self) -> bool {
        !self.0.expose_secret().is_empty()
    }

    pub(crate) fn expose(&self) -> &str {
        self.0.expose_secret()
    }
}

impl From<&str> for Password {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl From<String> for Password {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_set() { "Password([redacted])" } else { "Password(not set)" })
    }
}

impl Serialize for Password {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(REDACTED)
    }
}

impl<'de> Deserialize<'de> for Password {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = SecretString::deserialize(deserializer)?;
        if text.expose_secret() == REDACTED {
            return Err(serde::de::Error::custom("is the placeholder [redacted]: set the password itself"));
        }
        Ok(Self(text))
    }
}

#[cfg(test)]
mod tests;
