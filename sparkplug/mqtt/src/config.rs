//! The `[mqtt]` table of every service's configuration, and its validation. It does not know what the connection is used for.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize};

use sparkplug::payload::Dialect;

use crate::config_error::MqttConfigError;
use crate::password::Password;
use crate::server_address::ServerAddress;
use crate::tls;

/// How to reach the MQTT server, and the limits of the connection. Always with a clean session (MQTT 5: Clean Start, Session Expiry Interval 0).
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MqttConfig {
    /// Servers, tried in turn: `mqtt://host:1883` (plain TCP), `mqtts://host:8883` (TLS), and with the crate's feature `websocket` `ws://host:80/path` or
    /// `wss://host:443/path`. The port may be left out. Default `mqtt://127.0.0.1:1883`.
    pub servers: Vec<String>,
    /// Host Applications: a session on every server of the list at once, for servers that know nothing of each other. Off: one session, on one server after the other, for
    /// several addresses of one server or cluster. Edge Nodes always have one session. Default off.
    pub all_servers: bool,
    /// Version of MQTT. Default `auto`.
    pub protocol: Protocol,
    /// First part of every MQTT client id; then come the Sparkplug ids and 128 random bits. Change it where two systems share one server. Default `sparkfleet`.
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
    /// Seconds between pings, 1 to 3600, in MQTT 5 at least 5. A dead link is noticed after twice this time by us, after 1.5 times by the server. Default 10.
    pub keep_alive_s: u64,
    /// Seconds that opening a connection may take, name resolution and TLS included; also the longest time a write may be stuck. Default 5.
    pub connect_timeout_s: u64,
    /// Largest MQTT packet that is sent or taken. In MQTT 5 the server knows it. In 3.1.1 a larger message is read and dropped up to four times that size. Beyond that the session
    /// ends, so give the server a limit below it. Default 16 MiB.
    pub packet_bytes_max: usize,
    /// Events that may wait for the application before the socket is read more slowly; see the crate's section on back-pressure. Default 10,000.
    pub waiting_events_max: usize,
    /// The same in bytes of payload. Default 64 MiB.
    pub waiting_bytes_max: usize,
    /// For which readers Edge Nodes write births and data, and Host Applications commands: `strict` or `tahu`. Not set: what the `EdgeNodeConfig` or `HostConfig` says.
    #[serde(with = "dialect")]
    pub dialect: Option<Dialect>,
    /// Edge Nodes: births say what each metric means (property `documentation`). Default on.
    pub descriptions: bool,
    /// Edge Nodes: where data are kept while they cannot be delivered. Default off: births have the last values, and an application that needs no history should not pay for it.
    pub store: Store,
    /// Directory of a store on disk; each Edge Node has a directory of its own in it.
    pub store_directory: Option<PathBuf>,
    /// Bytes that the store of an Edge Node may take, in memory also if it is mirrored on disk. Default 16 MiB.
    pub store_bytes_max: usize,
    /// What is dropped when the store is full. Default the oldest.
    pub store_when_full: StoreWhenFull,
    /// Edge Nodes with a [`sparkplug::edge_node::Speaker`]: displace a process that speaks for the node already, once.
    pub take_over: bool,
}

/// The MQTT 5 client of rumqttc takes no less, in seconds.
pub(crate) const KEEP_ALIVE_MIN_V5: u64 = 5;

/// Version of MQTT: `auto`, `3.1.1` or `5`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub enum Protocol {
    /// MQTT 5 where the server speaks it, else 3.1.1. A server says that it does not by its answer to the CONNECT, or by closing the connection; the other version follows at once.
    /// With [`MqttConfig::keep_alive_s`] below 5 it is 3.1.1.
    #[default]
    #[serde(rename = "auto")]
    Auto,
    /// MQTT 3.1.1.
    #[serde(rename = "3.1.1")]
    V311,
    /// MQTT 5.0.
    #[serde(rename = "5")]
    V5,
}

impl<'de> Deserialize<'de> for Protocol {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        /// In YAML and TOML a lone 5 is a number.
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Text(String),
            Number(f64),
        }
        let text = match Written::deserialize(deserializer)? {
            Written::Text(text) => text,
            Written::Number(number) => number.to_string(),
        };
        // What is written there may be a secret that belongs elsewhere, so the error does not repeat it.
        text.parse().map_err(|_| serde::de::Error::custom("expected auto, 3.1.1 or 5"))
    }
}

impl FromStr for Protocol {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "3.1.1" => Ok(Self::V311),
            "5" | "5.0" => Ok(Self::V5),
            other => Err(format!("{other:?} is not a version of MQTT that is spoken here; write auto, 3.1.1 or 5")),
        }
    }
}

/// Where an Edge Node keeps data while they cannot be delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Store {
    /// Nowhere.
    #[default]
    Off,
    /// In memory: gone with the process.
    Memory,
    /// In memory, and mirrored in a directory: survives a kill of the process.
    Disk,
}

impl FromStr for Store {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(Self::Off),
            "memory" => Ok(Self::Memory),
            "disk" => Ok(Self::Disk),
            other => Err(format!("{other:?} is not a place for a store; write off, memory or disk")),
        }
    }
}

/// What is dropped when the store is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StoreWhenFull {
    /// What was kept first.
    #[default]
    Oldest,
    /// What comes in.
    Newest,
}

impl Default for MqttConfig {
    fn default() -> Self {
        Self {
            servers: vec!["mqtt://127.0.0.1:1883".to_owned()],
            all_servers: false,
            protocol: Protocol::Auto,
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
            dialect: None,
            descriptions: true,
            store: Store::Off,
            store_directory: None,
            store_bytes_max: 16 * 1024 * 1024,
            store_when_full: StoreWhenFull::Oldest,
            take_over: false,
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
            "MQTT servers, tried in turn: mqtt://host:1883 or, with TLS, mqtts://host:8883; WebSocket: ws://host/path or wss://host/path",
        ),
        key(
            "mqtt.all_servers",
            "false",
            "Host Applications: a session on every server at once, for servers that know nothing of each other",
        ),
        key("mqtt.protocol", "auto", "version of MQTT: 3.1.1, 5, or auto: 5 where the server speaks it, else 3.1.1"),
        key(
            "mqtt.client_id_prefix",
            "sparkfleet",
            "first part of every MQTT client id, which ends with random digits; letters, digits, - and _",
        ),
        key("mqtt.username", "", "user name; absent: anonymous, or by client certificate alone"),
        key("mqtt.password", "", "password; better given as mqtt.password_file"),
        key("mqtt.ca_file", "", "PEM file of the authorities that sign server certificates; required for mqtts://"),
        key("mqtt.cert_file", "", "PEM file of the client certificate and its chain"),
        key("mqtt.key_file", "", "PEM file of the private key of mqtt.cert_file"),
        key(
            "mqtt.keep_alive_s",
            "10",
            "seconds between pings, 1 to 3600; in MQTT 5 at least 5, and with less auto is 3.1.1",
        ),
        key("mqtt.connect_timeout_s", "5", "seconds that opening a connection may take, 1 to 300"),
        key(
            "mqtt.packet_bytes_max",
            "16777216",
            "largest MQTT packet sent or taken, in bytes; a larger message is skipped",
        ),
        key(
            "mqtt.waiting_events_max",
            "10000",
            "events that may wait for the service before the socket is read more slowly",
        ),
        key("mqtt.waiting_bytes_max", "67108864", "the same in bytes of payload"),
        key(
            "mqtt.dialect",
            "",
            "how metrics are written: strict, as the standard says, or tahu, with the datatype in data, for clients that keep no births; absent: tahu",
        ),
        key(
            "mqtt.descriptions",
            "true",
            "births say what each metric means (property documentation), which is half of the bytes of most births; false leaves it out",
        ),
        key(
            "mqtt.store",
            "off",
            "where data are kept while they cannot be delivered, to be sent as history: off, memory or disk",
        ),
        key("mqtt.store_directory", "", "directory of a store on disk"),
        key("mqtt.store_bytes_max", "16777216", "bytes that the store of an edge node may take, 65536 or more"),
        key("mqtt.store_when_full", "oldest", "what a full store drops: oldest or newest"),
        key(
            "mqtt.take_over",
            "false",
            "displace a process that runs as the same edge node, instead of ending with code 5 when there is one",
        ),
    ];
}

const fn key(key: &'static str, default: &'static str, help: &'static str) -> MqttConfigKey {
    MqttConfigKey { key, default, help }
}

impl MqttConfig {
    /// Checks every key and reads the certificate files once.
    ///
    /// # Errors
    /// [`MqttConfigError`] names the first key at fault.
    pub fn validate(&self) -> Result<(), MqttConfigError> {
        let addresses = self.addresses()?;
        let is_twice = |(index, address)| addresses[..index].contains(address);
        if self.all_servers && addresses.iter().enumerate().any(is_twice) {
            return Err(MqttConfigError::Key {
                key: "servers",
                rule: "names a server twice; with mqtt.all_servers the two sessions would end each other",
            });
        }
        self.check_texts()?;
        self.check_numbers()?;
        if self.uses_tls() {
            tls::Files::read(&self.certificate_files())?.client_config()?;
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

    /// Where the certificate files are.
    pub(crate) fn certificate_files(&self) -> tls::Paths {
        tls::Paths { ca: self.ca_file.clone(), certificate: self.cert_file.clone(), key: self.key_file.clone() }
    }

    pub(crate) const fn keep_alive(&self) -> Duration {
        Duration::from_secs(self.keep_alive_s)
    }

    fn uses_tls(&self) -> bool {
        self.servers.iter().any(|server| server.starts_with("mqtts://") || server.starts_with("wss://"))
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
                "is set without mqtt.username; MQTT 3.1.1 allows no password without a user name, and servers know users by it",
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
                "is missing; TLS needs the authorities to trust (those of the system are usually in /etc/ssl/certs/ca-certificates.crt)",
            );
        }
        if !self.uses_tls() && (self.ca_file.is_some() || self.cert_file.is_some()) {
            return fault(
                "servers",
                "has no mqtts:// or wss:// server, but certificate files are set; without TLS they protect nothing",
            );
        }
        Ok(())
    }

    fn check_numbers(&self) -> Result<(), MqttConfigError> {
        let fault = |key, rule| Err(MqttConfigError::Key { key, rule });
        if !(1..=3600).contains(&self.keep_alive_s) {
            return fault("keep_alive_s", "must be between 1 and 3600");
        }
        if self.protocol == Protocol::V5 && self.keep_alive_s < KEEP_ALIVE_MIN_V5 {
            return fault("keep_alive_s", "must be at least 5 with mqtt.protocol = \"5\"");
        }
        if !(1..=300).contains(&self.connect_timeout_s) {
            return fault("connect_timeout_s", "must be between 1 and 300");
        }
        // 256 MiB is the largest packet that MQTT can express.
        if !(64 * 1024..=256 * 1024 * 1024).contains(&self.packet_bytes_max) {
            return fault("packet_bytes_max", "must be between 65536 (64 KiB) and 268435456 (256 MiB)");
        }
        // Less would not hold one message.
        if !(64 * 1024..=1024 * 1024 * 1024).contains(&self.store_bytes_max) {
            return fault("store_bytes_max", "must be between 65536 (64 KiB) and 1073741824 (1 GiB)");
        }
        if self.store == Store::Disk && self.store_directory.is_none() {
            return fault("store_directory", "is missing; mqtt.store = \"disk\" needs a directory to write to");
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

/// A dialect as its name.
mod dialect {
    use serde::{Deserialize as _, Deserializer, Serializer, de};
    use sparkplug::payload::Dialect;

    #[expect(clippy::ref_option, reason = "serde hands it over so")]
    pub(super) fn serialize<S: Serializer>(dialect: &Option<Dialect>, serializer: S) -> Result<S::Ok, S::Error> {
        match dialect {
            Some(dialect) => serializer.collect_str(dialect),
            None => serializer.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Dialect>, D::Error> {
        let name = Option::<String>::deserialize(deserializer)?;
        let unknown = |_| de::Error::custom("expected strict or tahu");
        name.map(|name| name.parse().map_err(unknown)).transpose()
    }
}

impl FromStr for StoreWhenFull {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "oldest" => Ok(Self::Oldest),
            "newest" => Ok(Self::Newest),
            other => Err(format!("{other:?} cannot be dropped; write oldest or newest")),
        }
    }
}

#[cfg(test)]
mod tests;
