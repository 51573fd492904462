//! The configuration file's keys, their defaults and what they mean; and one validated value made of them.

use std::time::Duration;

use configdb_schema::{ClusterName, Organisation};
use edge_monitor_contract::identity;
pub use kubernetes_client::KubernetesConfig;
use serde::{Deserialize, Serialize};
use service_runtime::health::HttpConfig;
use service_runtime::keys::ConfigKey;
use service_runtime::service::ServiceConfig;
use service_runtime::state_dir::StateDir;
use sparkplug::GroupId;
use sparkplug_mqtt::MqttConfig;
use uuid::Uuid;

use crate::config_freshness::ReloadPolicy;
use crate::spec::{INTERVAL_MAX, INTERVAL_MIN};
use crate::state::{Scope, Settings};

/// Configuration of an edge monitor, as in its file.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// First part of every group.
    pub organisation: String,
    /// Whom to watch.
    pub mode: Mode,
    /// Where the bdSeq is kept.
    pub state_dir: StateDir,
    /// Own identity; None: derived from the cluster's, or from the organisation's name at the centre.
    pub instance: Option<Uuid>,
    /// What is watched is a simulation.
    pub simulated: bool,
    /// The cluster; edge only.
    pub cluster: ClusterConfig,
    /// Where the resources are; edge only.
    pub kubernetes: KubernetesConfig,
    /// How long a node may be silent, ms, where its resource does not say so.
    pub interval_ms: u64,
    /// When to ask edge agents to reload.
    pub reload: ReloadConfig,
    /// The broker.
    pub mqtt: MqttConfig,
    /// Health and metrics.
    pub http: HttpConfig,
}

/// Whom a monitor watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// The nodes of one cluster.
    #[default]
    Edge,
    /// The monitors of all clusters.
    Central,
}

/// The cluster that an edge monitor is on.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClusterConfig {
    /// Its name.
    pub name: String,
    /// Its object in ConfigDB.
    pub uuid: Option<Uuid>,
}

/// When to ask edge agents to reload, and when to raise the alert.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ReloadConfig {
    /// Random delay of the first request, at most.
    pub jitter_ms: u64,
    /// First pause between two requests for the same.
    pub pause_ms_min: u64,
    /// Longest pause between two requests for the same.
    pub pause_ms_max: u64,
    /// Shortest pause between two requests, whatever for.
    pub rest_ms: u64,
    /// Unheeded requests that raise the alert.
    pub attempts_max: u32,
    /// Time since the first unheeded request that raises the alert.
    pub deadline_ms: u64,
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
            mode: Mode::Edge,
            state_dir: StateDir::from("."),
            instance: None,
            simulated: false,
            cluster: ClusterConfig::default(),
            kubernetes: KubernetesConfig::default(),
            interval_ms: 180_000,
            reload: ReloadConfig::default(),
            mqtt: MqttConfig::default(),
            http: HttpConfig::default(),
        }
    }
}

impl Default for ReloadConfig {
    fn default() -> Self {
        Self {
            jitter_ms: 2_000,
            pause_ms_min: 30_000,
            pause_ms_max: 3_600_000,
            rest_ms: 5_000,
            attempts_max: 3,
            deadline_ms: 300_000,
        }
    }
}

/// Every key but those of `[mqtt]` and `[http]`, which their owners document.
pub const KEYS: &[ConfigKey] = &[
    ConfigKey { key: "organisation", default: "ACME", help: "first part of every Sparkplug group" },
    ConfigKey {
        key: "mode",
        default: "edge",
        help: "edge: the nodes of one cluster; central: the monitors of all clusters",
    },
    ConfigKey { key: "state_dir", default: ".", help: "directory that keeps the bdSeq between two runs" },
    ConfigKey {
        key: "instance",
        default: "",
        help: "own Instance_UUID; absent: derived from cluster.uuid, or from organisation at the centre",
    },
    ConfigKey { key: "simulated", default: "false", help: "what is watched is a simulation" },
    ConfigKey { key: "cluster.name", default: "", help: "name of the cluster (edge)" },
    ConfigKey { key: "cluster.uuid", default: "", help: "UUID of the cluster's object in ConfigDB (edge)" },
    ConfigKey { key: "kubernetes.namespace", default: "fplus-edge", help: "namespace of the watched resources (edge)" },
    ConfigKey {
        key: "kubernetes.url",
        default: "",
        help: "plain HTTP of an API server without authentication, for simulators; absent: service account or kubeconfig (edge)",
    },
    ConfigKey {
        key: "interval_ms",
        default: "180000",
        help: "how long a node may be silent before it is asked for its birth; three times that is an alert",
    },
    ConfigKey { key: "reload.jitter_ms", default: "2000", help: "random delay of the first reload request, at most" },
    ConfigKey {
        key: "reload.pause_ms_min",
        default: "30000",
        help: "first pause between two reload requests for the same; it doubles",
    },
    ConfigKey {
        key: "reload.pause_ms_max",
        default: "3600000",
        help: "longest pause between two reload requests for the same",
    },
    ConfigKey {
        key: "reload.rest_ms",
        default: "5000",
        help: "shortest pause between two reload requests, whatever they are for",
    },
    ConfigKey {
        key: "reload.attempts_max",
        default: "3",
        help: "unheeded reload requests that raise the alert Will_Not_Reload",
    },
    ConfigKey {
        key: "reload.deadline_ms",
        default: "300000",
        help: "time since the first unheeded reload request that raises the alert",
    },
];

/// What is wrong with a [`Config`]. Messages name the key.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// `organisation`
    #[error("organisation: {0}")]
    Organisation(configdb_schema::NameRule),
    /// `cluster.name`
    #[error("cluster.name (needed with mode = \"edge\"): {0}")]
    ClusterName(configdb_schema::NameRule),
    /// `cluster.uuid`
    #[error("cluster.uuid is missing; with mode = \"edge\" it must be the UUID of the cluster's object in ConfigDB")]
    ClusterUuid,
    /// `interval_ms`
    #[error("interval_ms is {0}; it must lie between 1000 (1 s) and 86400000 (24 h)")]
    Interval(u64),
    /// `reload.*`
    #[error("reload.{key} {rule}")]
    Reload {
        /// Which key.
        key: &'static str,
        /// The rule that it breaks.
        rule: &'static str,
    },
    /// `mqtt.*`
    #[error(transparent)]
    Mqtt(#[from] sparkplug_mqtt::MqttConfigError),
}

impl Config {
    /// Checks everything; the settings of the state are what comes out. `seed` is a random number.
    ///
    /// # Errors
    /// The first key at fault.
    pub fn validate(&self, seed: u64) -> Result<Settings, ConfigError> {
        let organisation = Organisation::new(&*self.organisation).map_err(ConfigError::Organisation)?;
        self.mqtt.validate()?;
        let interval_default = Duration::from_millis(self.interval_ms);
        if !(INTERVAL_MIN..=INTERVAL_MAX).contains(&interval_default) {
            return Err(ConfigError::Interval(self.interval_ms));
        }
        let reload = self.reload.policy()?;
        let (scope, derived) = match self.mode {
            Mode::Edge => {
                let name = ClusterName::new(&*self.cluster.name).map_err(ConfigError::ClusterName)?;
                let cluster = self.cluster.uuid.filter(|uuid| !uuid.is_nil()).ok_or(ConfigError::ClusterUuid)?;
                let group = GroupId::new(organisation.cluster_group(&name));
                let group =
                    group.expect("organisation and cluster names hold only characters that are allowed in a group id");
                (Scope::Edge { group, cluster }, identity::monitor_of_cluster(cluster))
            }
            Mode::Central => {
                let derived = configdb_schema::address::v5(&["Account", &organisation.central_group(), "monitor"]);
                (Scope::Central { organisation }, derived)
            }
        };
        Ok(Settings {
            scope,
            instance: self.instance.unwrap_or(derived),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            is_simulated: self.simulated,
            interval_default,
            reload,
            seed,
        })
    }
}

impl ReloadConfig {
    fn policy(&self) -> Result<ReloadPolicy, ConfigError> {
        let broken = |key, rule| Err(ConfigError::Reload { key, rule });
        if self.attempts_max == 0 {
            return broken("attempts_max", "is 0; it must be at least 1");
        }
        if self.pause_ms_min < 1_000 {
            return broken("pause_ms_min", "is below 1000 (1 s); a reload restarts an agent, give it time");
        }
        if self.pause_ms_max < self.pause_ms_min {
            return broken("pause_ms_max", "is below reload.pause_ms_min");
        }
        Ok(ReloadPolicy {
            jitter: Duration::from_millis(self.jitter_ms),
            pause: (Duration::from_millis(self.pause_ms_min), Duration::from_millis(self.pause_ms_max)),
            rest: Duration::from_millis(self.rest_ms),
            attempts_max: self.attempts_max,
            deadline: Duration::from_millis(self.deadline_ms),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edge() -> Config {
        let cluster = ClusterConfig { name: "Paint".into(), uuid: Some(Uuid::from_u128(5)) };
        Config { cluster, ..Config::default() }
    }

    #[test]
    fn every_key_is_documented_with_its_default() {
        #[derive(Default, Serialize)]
        struct Own {
            #[serde(flatten)]
            config: OwnKeys,
        }
        #[derive(Serialize)]
        struct OwnKeys(serde_json::Map<String, serde_json::Value>);
        impl Default for OwnKeys {
            fn default() -> Self {
                let all = serde_json::to_value(Config::default()).unwrap();
                let mut all = all.as_object().unwrap().clone();
                all.retain(|key, _| key != "mqtt" && key != "http");
                Self(all)
            }
        }
        service_runtime::keys::check::<Own>(KEYS).unwrap();
    }

    #[test]
    fn an_edge_monitor_is_known_by_its_cluster() {
        let settings = edge().validate(1).unwrap();
        assert_eq!(settings.instance, identity::monitor_of_cluster(Uuid::from_u128(5)));
        assert!(matches!(settings.scope, Scope::Edge { group, .. } if group.as_str() == "ACME-Paint"));
    }

    #[test]
    fn the_central_monitor_needs_no_cluster() {
        let settings = Config { mode: Mode::Central, ..Config::default() }.validate(1).unwrap();
        assert!(matches!(settings.scope, Scope::Central { .. }));
    }

    #[test]
    fn a_wrong_value_is_refused_by_the_name_of_its_key() {
        let reload = |reload| Config { reload, ..edge() };
        let table = [
            (Config { organisation: "A-B".into(), ..edge() }, "organisation: "),
            (Config::default(), "cluster.name "),
            (Config { cluster: ClusterConfig { uuid: None, ..edge().cluster }, ..edge() }, "cluster.uuid "),
            (Config { interval_ms: 5, ..edge() }, "interval_ms "),
            (reload(ReloadConfig { attempts_max: 0, ..ReloadConfig::default() }), "reload.attempts_max "),
            (reload(ReloadConfig { pause_ms_min: 5, ..ReloadConfig::default() }), "reload.pause_ms_min "),
            (reload(ReloadConfig { pause_ms_max: 5, ..ReloadConfig::default() }), "reload.pause_ms_max "),
        ];
        for (config, start) in table {
            let error = config.validate(1).unwrap_err().to_string();
            assert!(error.starts_with(start), "{error:?} should start with {start:?}");
        }
    }
}
