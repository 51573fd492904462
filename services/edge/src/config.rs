//! One file for both services: what they share stands once, at the top; what only one of them has stands in its own section.

use edge_monitor::config::ReloadConfig;
use edge_sync::config::{ClusterConfig, IdentityConfig, KubernetesConfig, SealingConfig, SyncConfig};
use serde::{Deserialize, Serialize};
use service_runtime::health::HttpConfig;
use service_runtime::keys::ConfigKey;
use service_runtime::logging::LogSection;
use service_runtime::service::ServiceConfig;
use service_runtime::state_dir::StateDir;
use sparkplug_mqtt::MqttConfig;
use uuid::Uuid;

/// Configuration of the edge process, as in its file.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// First part of the group.
    pub organisation: String,
    /// Where the bdSeq of both nodes is kept.
    pub state_dir: StateDir,
    /// The cluster is a simulation.
    pub simulated: bool,
    /// The cluster.
    pub cluster: ClusterConfig,
    /// Its API.
    pub kubernetes: KubernetesConfig,
    /// Edge sync: what is applied, and how fast.
    pub sync: SyncConfig,
    /// Edge sync: the sealed secrets controller.
    pub sealing: SealingConfig,
    /// The cluster's certificate.
    pub identity: IdentityConfig,
    /// Edge monitor.
    pub monitor: MonitorSection,
    /// The broker.
    pub mqtt: MqttConfig,
    /// Health and metrics of both.
    pub http: HttpConfig,
    /// The log.
    pub log: LogSection,
}

/// What only the monitor has.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MonitorSection {
    /// Own identity.
    pub instance: Option<Uuid>,
    /// How long a node may be silent.
    pub interval_ms: u64,
    /// When to ask edge agents to reload.
    pub reload: ReloadConfig,
}

impl ServiceConfig for Config {
    fn http(&self) -> &HttpConfig {
        &self.http
    }
}

impl Default for Config {
    fn default() -> Self {
        let edge_sync::Config {
            organisation,
            state_dir,
            simulated,
            cluster,
            kubernetes,
            sync,
            sealing,
            identity,
            mqtt,
            http,
        } = edge_sync::Config::default();
        let (monitor, log) = (MonitorSection::default(), LogSection::default());
        Self {
            organisation,
            state_dir,
            simulated,
            cluster,
            kubernetes,
            sync,
            sealing,
            identity,
            monitor,
            mqtt,
            http,
            log,
        }
    }
}

impl Default for MonitorSection {
    fn default() -> Self {
        let edge_monitor::Config { instance, interval_ms, reload, .. } = edge_monitor::Config::default();
        Self { instance, interval_ms, reload }
    }
}

const MONITOR_KEYS: &[ConfigKey] = &[
    ConfigKey {
        key: "monitor.instance",
        default: "",
        help: "Instance_UUID of the monitor; absent: derived from cluster.uuid",
    },
    ConfigKey {
        key: "monitor.interval_ms",
        default: "180000",
        help: "how long a node may be silent before it is asked for its birth; three times that is an alert",
    },
    ConfigKey {
        key: "monitor.reload.jitter_ms",
        default: "2000",
        help: "random delay of the first reload request, at most",
    },
    ConfigKey {
        key: "monitor.reload.pause_ms_min",
        default: "30000",
        help: "first pause between two reload requests for the same; it doubles",
    },
    ConfigKey {
        key: "monitor.reload.pause_ms_max",
        default: "3600000",
        help: "longest pause between two reload requests for the same",
    },
    ConfigKey {
        key: "monitor.reload.rest_ms",
        default: "5000",
        help: "shortest pause between two reload requests, whatever they are for",
    },
    ConfigKey {
        key: "monitor.reload.attempts_max",
        default: "3",
        help: "unheeded reload requests that raise the alert Will_Not_Reload",
    },
    ConfigKey {
        key: "monitor.reload.deadline_ms",
        default: "300000",
        help: "time since the first unheeded reload request that raises the alert",
    },
];

const PROCESS_KEYS: &[ConfigKey] = &[
    ConfigKey {
        key: "http.listen",
        default: "",
        help: "address for /livez, /readyz and /metrics; absent: they are not served",
    },
    ConfigKey { key: "log.format", default: "human", help: "human or json" },
    ConfigKey { key: "log.filter", default: "info", help: "what is logged, such as info,edge_sync=debug" },
];

/// Every key.
pub fn keys() -> Vec<ConfigKey> {
    let mqtt = MqttConfig::KEYS.iter().map(|key| ConfigKey { key: key.key, default: key.default, help: key.help });
    edge_sync::config::KEYS
        .iter()
        .chain(MONITOR_KEYS)
        .copied()
        .chain(mqtt)
        .chain(PROCESS_KEYS.iter().copied())
        .collect()
}

impl Config {
    /// The configuration of each service. Health is served by the process, not by them.
    pub fn split(self) -> (edge_sync::Config, edge_monitor::Config) {
        let monitor = edge_monitor::Config {
            organisation: self.organisation.clone(),
            state_dir: self.state_dir.clone(),
            instance: self.monitor.instance,
            simulated: self.simulated,
            cluster: edge_monitor::config::ClusterConfig { name: self.cluster.name.clone(), uuid: self.cluster.uuid },
            kubernetes: self.kubernetes.clone(),
            interval_ms: self.monitor.interval_ms,
            reload: self.monitor.reload,
            mqtt: self.mqtt.clone(),
            ..edge_monitor::Config::default()
        };
        let sync = edge_sync::Config {
            organisation: self.organisation,
            state_dir: self.state_dir,
            simulated: self.simulated,
            cluster: self.cluster,
            kubernetes: self.kubernetes,
            sync: self.sync,
            sealing: self.sealing,
            identity: self.identity,
            mqtt: self.mqtt,
            http: HttpConfig::default(),
        };
        (sync, monitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use edge_monitor::config::Mode;

    #[test]
    fn every_key_is_documented_with_its_default() {
        service_runtime::keys::check::<Config>(&keys()).unwrap();
    }

    #[test]
    fn the_file_of_the_edge_cluster_chart_configures_both() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("edge.toml");
        let password = directory.path().join("password");
        std::fs::write(&password, "hunter2\n").unwrap();
        let text = format!(
            r#"
            organisation = "WORKS"
            state_dir = "/var/lib/sparkfleet"

            [cluster]
            name = "Paint_Shop"
            uuid = "6f6ee2b1-5f6c-4f0e-9b5c-0f2a4e7d9c11"

            [kubernetes]
            namespace = "edge"

            [mqtt]
            servers = ["mqtt://broker:1883"]
            username = "paint"
            password_file = "{}"

            [sealing]
            enabled = true
            namespace = "seals"
            service = "controller"

            [http]
            listen = "0.0.0.0:8080"
            "#,
            password.display()
        );
        std::fs::write(&file, text).unwrap();
        let config: Config = service_runtime::config::load_with("edge", Some(&file), []).unwrap();
        let (sync, monitor) = config.split();
        let checked = sync.validate(1).unwrap();
        assert_eq!(checked.node.to_string(), "WORKS-Paint_Shop/Sync");
        assert_eq!((&*checked.settings.namespace, &*sync.sealing.service), ("edge", "controller"));
        assert!(sync.http.listen.is_none() && monitor.http.listen.is_none(), "the process serves health once");
        monitor.validate(1).unwrap();
        assert_eq!((monitor.mode, &*monitor.kubernetes.namespace), (Mode::Edge, "edge"));
        for mqtt in [&sync.mqtt, &monitor.mqtt] {
            assert_eq!((&*mqtt.servers[0], mqtt.username.as_deref()), ("mqtt://broker:1883", Some("paint")));
            assert!(mqtt.password.is_set());
        }
    }

    #[test]
    fn an_unknown_key_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("edge.toml");
        std::fs::write(&file, "[sync]\nprune_max = 3\n").unwrap();
        let error = service_runtime::config::load_with::<Config, _>("edge", Some(&file), []).unwrap_err();
        assert!(error.to_string().contains("sync.prune_max"), "{error}");
    }
}
