//! One file for both services: what they share is written once, at the top; what only one of them has is in its own section.

use edge_monitor::config::ReloadConfig;
use edge_sync::config::{ClusterConfig, IdentityConfig, KubernetesConfig, SealingConfig, SyncConfig};
use service_runtime::config_table;
use service_runtime::health::HttpConfig;
use service_runtime::logging::LogSection;
use service_runtime::service::ServiceConfig;
use service_runtime::state_dir::StateDir;
use sparkplug_mqtt::MqttConfig;
use uuid::Uuid;

config_table! {
    /// Configuration of the edge process, as in its file.
    pub struct Config {
        /// First part of the Sparkplug group.
        organisation: String = "ACME".to_owned();
        /// Directory that keeps the bdSeq of both nodes between two runs.
        state_dir: StateDir = StateDir::from(".");
        /// The cluster is a simulation.
        simulated: bool;
    }
    tables {
        /// The cluster.
        cluster: ClusterConfig;
        /// Its API.
        kubernetes: KubernetesConfig;
        /// Edge sync: what is applied, and how fast.
        sync: SyncConfig;
        /// Edge sync: the sealed secrets controller.
        sealing: SealingConfig;
        /// The cluster's certificate.
        identity: IdentityConfig;
        /// Edge monitor.
        monitor: MonitorSection;
        /// The broker.
        mqtt: MqttConfig;
        /// Health and metrics of both.
        http: HttpConfig;
        /// The log.
        log: LogSection;
    }
}

config_table! {
    /// What only the monitor has.
    pub struct MonitorSection {
        /// Instance_UUID of the monitor; absent: derived from cluster.uuid.
        instance: Option<Uuid>;
        /// How long a node may be silent before it is asked for its birth; three times that is an alert.
        interval_ms: u64 = 180_000, in 1_000..=86_400_000;
    }
    tables {
        /// When to ask edge agents to reload.
        reload: ReloadConfig;
    }
}

impl ServiceConfig for Config {
    fn http(&self) -> &HttpConfig {
        &self.http
    }
}

impl Config {
    /// The configuration of each service. Health is served by the process, not by them.
    pub(crate) fn split(self) -> (edge_sync::Config, edge_monitor::Config) {
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
        let config: Config = service_runtime::config::load_with("edge", &[], Some(&file), []).unwrap();
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
    fn the_monitor_is_configured_as_it_is_on_its_own() {
        let (of_edge, own) = (Config::default().split().1, edge_monitor::Config::default());
        assert_eq!((of_edge.instance, of_edge.interval_ms), (own.instance, own.interval_ms));
    }

    #[test]
    fn an_unknown_key_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("edge.toml");
        std::fs::write(&file, "[sync]\nprune_max = 3\n").unwrap();
        let error = service_runtime::config::load_with::<Config, _>("edge", &[], Some(&file), []).unwrap_err();
        assert!(error.to_string().contains("sync.prune_max"), "{error}");
    }
}
