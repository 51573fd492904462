//! The configuration file's keys, their defaults and what they mean; and one validated value made of them.

use std::time::Duration;

use configdb_schema::{ClusterName, Organisation};
use edge_monitor_contract::identity;
pub use kubernetes_client::KubernetesConfig;
use serde::{Deserialize, Serialize};
use service_runtime::config::{ConfigTable as _, RangeError};
use service_runtime::config_table;
use service_runtime::health::HttpConfig;
use service_runtime::service::ServiceConfig;
use service_runtime::state_dir::StateDir;
use sparkplug::GroupId;
use sparkplug_mqtt::MqttConfig;
use uuid::Uuid;

use crate::config_freshness::ReloadPolicy;
use crate::state::{Scope, Settings};

config_table! {
    /// Configuration of an edge monitor, as in its file.
    pub struct Config {
        /// First part of every Sparkplug group.
        organisation: String = "ACME".to_owned();
        /// Edge: the nodes of one cluster; central: the monitors of all clusters.
        mode: Mode = Mode::Edge;
        /// Directory that keeps the bdSeq between two runs.
        state_dir: StateDir = StateDir::from(".");
        /// Own Instance_UUID; absent: derived from cluster.uuid, or from organisation for the central monitor.
        instance: Option<Uuid>;
        /// What is watched is a simulation.
        simulated: bool;
        /// How long a node may be silent before it is asked for its birth; three times that is an alert.
        interval_ms: u64 = 180_000, in 1_000..=86_400_000;
    }
    tables {
        /// The cluster; edge only.
        cluster: ClusterConfig;
        /// Where the resources are; edge only.
        kubernetes: KubernetesConfig;
        /// When to ask edge agents to reload.
        reload: ReloadConfig;
        /// The broker.
        mqtt: MqttConfig;
        /// Health and metrics.
        http: HttpConfig;
    }
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

config_table! {
    /// The cluster that an edge monitor is on.
    pub struct ClusterConfig {
        /// Name of the cluster (edge).
        name: String;
        /// UUID of the cluster's object in ConfigDB (edge).
        uuid: Option<Uuid>;
    }
}

config_table! {
    /// When to ask edge agents to reload, and when to raise the alert.
    pub struct ReloadConfig {
        /// Random delay of the first reload request, at most.
        jitter_ms: u64 = 2_000;
        /// First pause between two reload requests for the same; it doubles.
        pause_ms_min: u64 = 30_000, in 1_000..=u64::MAX;
        /// Longest pause between two reload requests for the same.
        pause_ms_max: u64 = 3_600_000;
        /// Shortest pause between two reload requests, whatever they are for.
        rest_ms: u64 = 5_000;
        /// Unheeded reload requests that raise the alert Will_Not_Reload.
        attempts_max: u32 = 3, in 1..=u32::MAX;
        /// Time since the first unheeded reload request that raises the alert.
        deadline_ms: u64 = 300_000;
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
    Organisation(configdb_schema::NameRule),
    /// `cluster.name`
    #[error("cluster.name (needed with mode = \"edge\"): {0}")]
    ClusterName(configdb_schema::NameRule),
    /// `cluster.uuid`
    #[error("cluster.uuid is missing; with mode = \"edge\" it must be the UUID of the cluster's object in ConfigDB")]
    ClusterUuid,
    /// A number that is out of range.
    #[error(transparent)]
    Range(#[from] RangeError),
    /// `reload.pause_ms_max`
    #[error("reload.pause_ms_max is below reload.pause_ms_min")]
    ReloadPause,
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
        self.check_ranges()?;
        let interval_default = Duration::from_millis(self.interval_ms);
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
        if self.pause_ms_max < self.pause_ms_min {
            return Err(ConfigError::ReloadPause);
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
    use crate::spec::{INTERVAL_MAX, INTERVAL_MIN};

    #[test]
    fn the_range_of_the_interval_is_that_of_a_resource() {
        for (ms, is_allowed) in [(999, false), (1_000, true), (86_400_000, true), (86_400_001, false)] {
            let interval = Duration::from_millis(ms);
            assert_eq!((INTERVAL_MIN..=INTERVAL_MAX).contains(&interval), is_allowed);
            assert_eq!(Config { interval_ms: ms, ..edge() }.validate(1).is_ok(), is_allowed);
        }
    }

    fn edge() -> Config {
        let cluster = ClusterConfig { name: "Paint".into(), uuid: Some(Uuid::from_u128(5)) };
        Config { cluster, ..Config::default() }
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
