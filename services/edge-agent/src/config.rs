//! The configuration file's keys, their defaults and what they mean; and one validated value made of them.

use std::path::PathBuf;

use configdb_schema::{ClusterName, NameRule, Organisation};
use service_runtime::config::{ConfigTable as _, RangeError};
use service_runtime::config_table;
use service_runtime::health::HttpConfig;
use service_runtime::logging::LogSection;
use service_runtime::service::ServiceConfig;
use service_runtime::state_dir::StateDir;
use sparkplug::{DeviceId, EdgeNodeDescriptor, NameError};
use sparkplug_mqtt::MqttConfig;
use uuid::Uuid;

config_table! {
    /// Configuration of the edge agent, as in its file.
    pub struct Config {
        /// First part of the Sparkplug group.
        organisation: String = "ACME".to_owned();
        /// Name of the cluster, the second part.
        cluster: String;
        /// Edge node id.
        name: String;
        /// Instance_UUID of the node.
        uuid: Option<Uuid>;
        /// Name of the host, published as a metric.
        hostname: Option<String>;
        /// How often the host is read.
        interval_ms: u64 = 10_000, in 100..=u64::MAX;
        /// Where Linux says how the host is.
        proc_dir: PathBuf = PathBuf::from("/proc");
        /// Where Linux says what its thermal sensors measure.
        sys_dir: PathBuf = PathBuf::from("/sys");
        /// Directory that keeps the bdSeq between two runs.
        state_dir: StateDir = PathBuf::from(".").into();
    }
    tables {
        /// The broker.
        mqtt: MqttConfig;
        /// Health.
        http: HttpConfig;
        /// The log.
        log: LogSection;
    }
}

impl ServiceConfig for Config {
    fn http(&self) -> &HttpConfig {
        &self.http
    }
}

/// What is wrong with a [`Config`]. Messages name the key.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// `organisation`
    #[error("organisation: {0}")]
    Organisation(NameRule),
    /// `cluster`
    #[error("cluster: {0}")]
    Cluster(NameRule),
    /// `name`
    #[error("name: {0}")]
    Name(#[from] NameError),
    /// A number that is out of range.
    #[error(transparent)]
    Range(#[from] RangeError),
    /// `mqtt.*`
    #[error(transparent)]
    Mqtt(#[from] sparkplug_mqtt::MqttConfigError),
}

/// A configuration that has been checked.
#[derive(Debug, Clone)]
pub struct Checked {
    /// The own address.
    pub node: EdgeNodeDescriptor,
    /// The host.
    pub device: DeviceId,
}

impl Config {
    /// Checks everything.
    ///
    /// # Errors
    /// The first key at fault.
    pub fn validate(&self) -> Result<Checked, ConfigError> {
        let organisation = Organisation::new(&*self.organisation).map_err(ConfigError::Organisation)?;
        let cluster = ClusterName::new(&*self.cluster).map_err(ConfigError::Cluster)?;
        self.mqtt.validate()?;
        self.check_ranges()?;
        let node = EdgeNodeDescriptor::parse(&organisation.cluster_group(&cluster), &self.name)?;
        Ok(Checked { node, device: DeviceId::new("host")? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_node_is_the_deployment_in_the_clusters_group() {
        let good = Config { cluster: "Paint".to_owned(), name: "Oven_1".to_owned(), ..Config::default() };
        let checked = good.validate().unwrap();
        assert_eq!((checked.node.to_string().as_str(), checked.device.as_str()), ("ACME-Paint/Oven_1", "host"));
        for (bad, key) in [
            (Config { cluster: "a b".to_owned(), ..good.clone() }, "cluster: "),
            (Config { organisation: String::new(), ..good.clone() }, "organisation: "),
            (Config { name: "a/b".to_owned(), ..good.clone() }, "name: "),
            (Config { interval_ms: 5, ..good }, "interval_ms "),
        ] {
            let error = bad.validate().unwrap_err().to_string();
            assert!(error.starts_with(key), "{error}");
        }
    }
}
