//! The configuration file's keys, their defaults and what they mean; and one validated value made of them.

use std::path::PathBuf;

use configdb_schema::{ClusterName, NameRule, Organisation};
use serde::{Deserialize, Serialize};
use service_runtime::health::HttpConfig;
use service_runtime::keys::ConfigKey;
use service_runtime::logging::LogSection;
use service_runtime::state_dir::StateDir;
use sparkplug::{DeviceId, EdgeNodeDescriptor, NameError};
use sparkplug_mqtt::MqttConfig;
use uuid::Uuid;

/// Configuration of the edge agent, as in its file.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// First part of the group.
    pub organisation: String,
    /// Name of the cluster, the second part.
    pub cluster: String,
    /// Edge node id.
    pub name: String,
    /// `Instance_UUID`.
    pub uuid: Option<Uuid>,
    /// Name of the host, as a metric.
    pub hostname: Option<String>,
    /// How often the host is read.
    pub interval_ms: u64,
    /// What Linux says of the host.
    pub proc_dir: PathBuf,
    /// What Linux says of its sensors.
    pub sys_dir: PathBuf,
    /// Where the bdSeq is kept.
    pub state_dir: StateDir,
    /// The broker.
    pub mqtt: MqttConfig,
    /// Health.
    pub http: HttpConfig,
    /// The log.
    pub log: LogSection,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            organisation: "ACME".to_owned(),
            cluster: String::new(),
            name: String::new(),
            uuid: None,
            hostname: None,
            interval_ms: 10_000,
            proc_dir: PathBuf::from("/proc"),
            sys_dir: PathBuf::from("/sys"),
            state_dir: PathBuf::from(".").into(),
            mqtt: MqttConfig::default(),
            http: HttpConfig::default(),
            log: LogSection::default(),
        }
    }
}

/// Every key but those of `[mqtt]` and `[http]`, which their owners document.
pub const KEYS: &[ConfigKey] = &[
    ConfigKey { key: "organisation", default: "ACME", help: "first part of the Sparkplug group" },
    ConfigKey { key: "cluster", default: "", help: "name of the cluster, the second part" },
    ConfigKey { key: "name", default: "", help: "edge node id" },
    ConfigKey { key: "uuid", default: "", help: "Instance_UUID of the node" },
    ConfigKey { key: "hostname", default: "", help: "name of the host, published as a metric" },
    ConfigKey { key: "interval_ms", default: "10000", help: "how often the host is read" },
    ConfigKey { key: "proc_dir", default: "/proc", help: "where Linux says how the host is" },
    ConfigKey { key: "sys_dir", default: "/sys", help: "where Linux says what its thermal sensors measure" },
    ConfigKey { key: "state_dir", default: ".", help: "directory that keeps the bdSeq between two runs" },
    ConfigKey { key: "log.format", default: "human", help: "human or json" },
    ConfigKey { key: "log.filter", default: "info", help: "what is logged, in the syntax of RUST_LOG" },
];

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
    /// `interval_ms`
    #[error("interval_ms must be at least 100 (0.1 s)")]
    Interval,
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
        if self.interval_ms < 100 {
            return Err(ConfigError::Interval);
        }
        let node = EdgeNodeDescriptor::parse(&organisation.cluster_group(&cluster), &self.name)?;
        Ok(Checked { node, device: DeviceId::new("host")? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_documented_with_its_default() {
        #[derive(Serialize)]
        struct Own(serde_json::Map<String, serde_json::Value>);
        impl Default for Own {
            fn default() -> Self {
                let mut all = serde_json::to_value(Config::default()).unwrap().as_object().unwrap().clone();
                all.retain(|key, _| key != "mqtt" && key != "http");
                Self(all)
            }
        }
        service_runtime::keys::check::<Own>(KEYS).unwrap();
    }

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
