//! The configuration of this service.

use configdb_schema::Organisation;
use serde::{Deserialize, Serialize};
use service_runtime::health::HttpConfig;
use service_runtime::keys::ConfigKey;
use service_runtime::service::ServiceConfig;
use service_runtime::state_dir::StateDir;
use sparkplug_mqtt::MqttConfig;

use crate::model::Limits;
use crate::store::Retention;

/// What the file and the environment say.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Prefix of every group id.
    pub organisation: String,
    /// Directory of the database and of the bdSeq.
    pub state_dir: StateDir,
    /// An empty database is begun although there was one; not a key, but an argument.
    #[serde(skip)]
    pub new_store: bool,
    /// No message is larger; no object can hold more.
    pub message_bytes_max: usize,
    /// Objects that are not deleted.
    pub objects_max: usize,
    /// How long history is kept.
    pub history_days: usize,
    /// How much of it.
    pub history_bytes_max: usize,
    /// Where health and metrics are served.
    pub http: HttpConfig,
    /// The MQTT servers.
    pub mqtt: MqttConfig,
}

impl ServiceConfig for Config {
    fn http(&self) -> &HttpConfig {
        &self.http
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            organisation: "ACME".to_owned(),
            state_dir: StateDir::from("/var/lib/sparkfleet/configdb"),
            new_store: false,
            message_bytes_max: Limits::default().message_bytes_max,
            objects_max: Limits::default().objects_max,
            history_days: Retention::DAYS,
            history_bytes_max: Retention::BYTES,
            http: HttpConfig::default(),
            mqtt: MqttConfig::default(),
        }
    }
}

/// The keys of this service itself; those of `http` and `mqtt` are their packages'.
pub const KEYS: &[ConfigKey] = &[
    ConfigKey { key: "organisation", default: "ACME", help: "prefix of every group id" },
    ConfigKey {
        key: "state_dir",
        default: "/var/lib/sparkfleet/configdb",
        help: "directory of the database and of the bdSeq; it is made if it does not exist",
    },
    ConfigKey {
        key: "message_bytes_max",
        default: "262144",
        help: "size of the largest MQTT message in bytes, 16384 to 16777216; what an object holds must fit into one",
    },
    ConfigKey { key: "objects_max", default: "100000", help: "objects that may exist at the same time" },
    ConfigKey {
        key: "history_days",
        default: "365",
        help: "days for which the history of entries is kept, 1 to 36500",
    },
    ConfigKey {
        key: "history_bytes_max",
        default: "1073741824",
        help: "bytes of history that are kept, 1048576 or more; the oldest goes first",
    },
];

/// A key has a value that is not allowed.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// See [`configdb_schema::NameRule`].
    #[error("organisation: {0}")]
    Organisation(#[from] configdb_schema::NameRule),
    /// Out of range.
    #[error("{key} is {value}; it must be between {min} and {max}")]
    Range {
        /// The key.
        key: &'static str,
        /// Its value.
        value: usize,
        /// Smallest allowed.
        min: usize,
        /// Largest allowed.
        max: usize,
    },
    /// See [`sparkplug_mqtt::MqttConfigError`].
    #[error(transparent)]
    Mqtt(#[from] sparkplug_mqtt::MqttConfigError),
}

impl Config {
    /// Checks every key.
    ///
    /// # Errors
    /// [`ConfigError`] names the first key at fault.
    pub fn validate(&self) -> Result<(Organisation, Limits), ConfigError> {
        let range = |key, value, min, max| {
            if (min..=max).contains(&value) { Ok(()) } else { Err(ConfigError::Range { key, value, min, max }) }
        };
        range("message_bytes_max", self.message_bytes_max, 16 * 1024, 16 * 1024 * 1024)?;
        range("objects_max", self.objects_max, 200, 1_000_000)?;
        range("history_days", self.history_days, 1, 36_500)?;
        range("history_bytes_max", self.history_bytes_max, 1024 * 1024, usize::MAX)?;
        self.mqtt.validate()?;
        let history = Retention::new(self.history_days, self.history_bytes_max);
        let limits = Limits {
            message_bytes_max: self.message_bytes_max,
            objects_max: self.objects_max,
            history,
            ..Limits::default()
        };
        Ok((Organisation::new(self.organisation.clone())?, limits))
    }
}

#[cfg(test)]
mod tests {
    use service_runtime::keys;

    use super::*;

    #[test]
    fn the_documented_keys_are_the_real_ones() {
        let Err(keys::KeysError::Differ(differences)) = keys::check::<Config>(KEYS) else {
            panic!("the keys of http and mqtt are documented elsewhere")
        };
        let own: Vec<_> = differences.iter().filter(|d| !d.starts_with("mqtt.") && !d.starts_with("http.")).collect();
        assert_eq!(own, Vec::<&String>::new());
    }

    #[test]
    fn the_defaults_are_valid_and_what_is_out_of_range_is_named() {
        assert_eq!(Config::default().validate().unwrap().1, Limits::default());
        let small = Config { message_bytes_max: 1, ..Config::default() };
        assert_eq!(
            small.validate().unwrap_err().to_string(),
            "message_bytes_max is 1; it must be between 16384 and 16777216"
        );
        let name = Config { organisation: "A-B".to_owned(), ..Config::default() };
        assert!(name.validate().unwrap_err().to_string().starts_with("organisation: "));
    }
}
