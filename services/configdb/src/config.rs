//! The configuration of this service.

use configdb_schema::Organisation;
use service_runtime::config::{ConfigTable as _, RangeError};
use service_runtime::config_table;
use service_runtime::health::HttpConfig;
use service_runtime::service::ServiceConfig;
use service_runtime::state_dir::StateDir;
use sparkplug_mqtt::MqttConfig;

use crate::model::Limits;
use crate::store::Retention;

config_table! {
    /// What the file and the environment say.
    pub struct Config {
        /// Prefix of every group id.
        organisation: String = "ACME".to_owned();
        /// Directory of the database, the record of writes (audit.jsonl) and the bdSeq; it is made if it does not exist.
        state_dir: StateDir = StateDir::from("/var/lib/sparkfleet/configdb");
        /// Size of the largest MQTT message in bytes; what an object holds must fit into one.
        message_bytes_max: usize = Limits::default().message_bytes_max, in 16 * 1024..=16 * 1024 * 1024;
        /// Objects that may exist at the same time.
        objects_max: usize = Limits::default().objects_max, in 200..=1_000_000;
        /// Days for which the history of entries is kept.
        history_days: usize = Retention::DAYS, in 1..=36_500;
        /// Bytes of history that are kept; the oldest goes first.
        history_bytes_max: usize = Retention::BYTES, in 1024 * 1024..=usize::MAX;
        /// The MQTT server lets each operator write only in their own name, as the access rules of `sparkfleet acl generate --operator` do. The history and the record of writes then name who wrote. Without it every name is a claim.
        operators_named: bool = false;
    }
    tables {
        /// Where health and metrics are served.
        http: HttpConfig;
        /// The MQTT servers.
        mqtt: MqttConfig;
    }
    arguments {
        /// An empty database is begun although there was one; not a key, but an argument.
        new_store: bool;
    }
}

impl ServiceConfig for Config {
    fn http(&self) -> &HttpConfig {
        &self.http
    }
}

/// A key has a value that is not allowed.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// See [`configdb_schema::NameRule`].
    #[error("organisation: {0}")]
    Organisation(#[from] configdb_schema::NameRule),
    /// A number that is out of range.
    #[error(transparent)]
    Range(#[from] RangeError),
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
        self.check_ranges()?;
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
    use super::*;

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
