//! The configuration file's keys, their defaults and what they mean; and one validated value made of them.

use core::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use configdb_schema::{ClusterName, Organisation};
use join_protocol::message::grant::Component;
use join_service_contract::join_node;
pub use kubernetes_client::KubernetesConfig;
use serde::{Deserialize, Serialize};
use service_runtime::health::HttpConfig;
use service_runtime::keys::ConfigKey;
use service_runtime::service::ServiceConfig;
use service_runtime::state_dir::StateDir;
use sparkplug::{EdgeNodeDescriptor, GroupId};
use sparkplug_mqtt::MqttConfig;
use uuid::Uuid;

use crate::settings::{Network, Settings};

/// Configuration of the join service, as in its file.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// First part of the groups.
    pub organisation: String,
    /// Where the bdSeq is kept.
    pub state_dir: StateDir,
    /// The cluster is a simulation.
    pub simulated: bool,
    /// Name of this replica; empty: a random one.
    pub replica: String,
    /// The cluster.
    pub cluster: ClusterConfig,
    /// Its API.
    pub kubernetes: KubernetesConfig,
    /// Where keys come from.
    pub trust: TrustConfig,
    /// What a ticket holds, and how many are given.
    pub join: JoinConfig,
    /// The broker.
    pub mqtt: MqttConfig,
    /// Health and metrics.
    pub http: HttpConfig,
}

/// The cluster that hosts join.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClusterConfig {
    /// Its name.
    pub name: String,
    /// Its object in ConfigDB.
    pub uuid: Option<Uuid>,
}

/// Where keys come from: one of both.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TrustConfig {
    /// Directory with files that only the service's user may read.
    pub directory: Option<PathBuf>,
    /// Kubernetes Secret in `kubernetes.namespace` whose keys are the names of these files.
    pub secret: Option<String>,
}

/// What runs the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Distribution {
    /// kubeadm.
    #[default]
    Kubeadm,
    /// k3s.
    K3s,
}

/// What a ticket holds, and how many are given.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct JoinConfig {
    /// What runs the cluster.
    pub distribution: Distribution,
    /// URLs of the API servers that hosts join by.
    pub servers: Vec<String>,
    /// Version of Kubernetes that hosts install.
    pub kubernetes_version: String,
    /// What hosts install: `<sha256> <absolute path> <url>` each.
    pub components: Vec<String>,
    /// Labels of nodes, `key=value`.
    pub labels: Vec<String>,
    /// Taints of nodes, `key=value:effect`.
    pub taints: Vec<String>,
    /// Networks in which hosts may have addresses certified, as `10.1.0.0/16`.
    pub networks: Vec<String>,
    /// How long a join token is valid.
    pub token_minutes: u64,
    /// How long one host may take to join the control plane.
    pub control_plane_minutes: u64,
    /// How long certificates of kubelets and SSH host keys are valid.
    pub certificate_days: u64,
    /// Hosts that are remembered.
    pub hosts_max: usize,
    /// Hellos that are answered in one second.
    pub hellos_per_second_max: u32,
    /// Evidence that is judged in one second.
    pub evidence_per_second_max: u32,
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
            state_dir: StateDir::from("."),
            simulated: false,
            replica: String::new(),
            cluster: ClusterConfig::default(),
            kubernetes: KubernetesConfig::default(),
            trust: TrustConfig::default(),
            join: JoinConfig::default(),
            mqtt: MqttConfig::default(),
            http: HttpConfig::default(),
        }
    }
}

impl Default for JoinConfig {
    fn default() -> Self {
        Self {
            distribution: Distribution::Kubeadm,
            servers: Vec::new(),
            kubernetes_version: String::new(),
            components: Vec::new(),
            labels: Vec::new(),
            taints: Vec::new(),
            networks: Vec::new(),
            token_minutes: 15,
            control_plane_minutes: 10,
            certificate_days: 90,
            hosts_max: 2_000,
            hellos_per_second_max: 50,
            evidence_per_second_max: 20,
        }
    }
}

const fn key(key: &'static str, default: &'static str, help: &'static str) -> ConfigKey {
    ConfigKey { key, default, help }
}

/// Every key but those of `[mqtt]` and `[http]`, which their owners document.
pub const KEYS: &[ConfigKey] = &[
    key("organisation", "ACME", "first part of the Sparkplug groups"),
    key("state_dir", ".", "directory that keeps the bdSeq between two runs"),
    key("simulated", "false", "the cluster is a simulation"),
    key("replica", "", "name of this replica, unlike that of any other; absent: a random one"),
    key("cluster.name", "", "name of the cluster"),
    key("cluster.uuid", "", "UUID of the cluster's object in ConfigDB"),
    key("kubernetes.namespace", "fplus-edge", "namespace in which requests, hosts and leases are kept"),
    key(
        "kubernetes.url",
        "",
        "plain HTTP of an API server without authentication, for simulators; absent: service account or kubeconfig",
    ),
    key(
        "trust.directory",
        "",
        "directory with issuer.key, issuer.certificates, root.pub, master.key and, where needed, master.salt, ca.crt, ca.key, sa.key, sa.pub, front-proxy-ca.key, front-proxy-ca.crt, etcd-ca.key, etcd-ca.crt, k3s-server-token; readable by nobody else",
    ),
    key("trust.secret", "", "instead: a Kubernetes Secret in kubernetes.namespace with these keys"),
    key("join.distribution", "kubeadm", "kubeadm or k3s"),
    key("join.servers", "", "URLs of the API servers that hosts join by"),
    key("join.kubernetes_version", "", "version of Kubernetes that hosts install"),
    key("join.components", "", "what hosts install, each as `<sha256> <absolute path> <url>`"),
    key("join.labels", "", "labels of nodes, each as `key=value`"),
    key("join.taints", "", "taints of nodes, each as `key=value:effect`"),
    key(
        "join.networks",
        "",
        "networks in which hosts may have addresses certified, as 10.1.0.0/16; absent: only the node's name is certified",
    ),
    key(
        "join.token_minutes",
        "15",
        "how long a join token is valid; it is revoked earlier, when the host is a member or failed",
    ),
    key("join.control_plane_minutes", "10", "how long one host may take to join the control plane before another may"),
    key("join.certificate_days", "90", "how long certificates of kubelets and SSH host keys are valid"),
    key("join.hosts_max", "2000", "hosts that are remembered; more are refused"),
    key(
        "join.hellos_per_second_max",
        "50",
        "hellos that are answered in one second, those of known hosts first; more are told that the service is busy",
    ),
    key(
        "join.evidence_per_second_max",
        "20",
        "evidence that is judged in one second, that of known hosts first; hosts repeat theirs",
    ),
];

/// What is wrong with a [`Config`]. Messages name the key.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// `organisation`
    #[error("organisation: {0}")]
    Organisation(configdb_schema::NameRule),
    /// `cluster.name`
    #[error("cluster.name: {0}")]
    ClusterName(configdb_schema::NameRule),
    /// `cluster.uuid`
    #[error("cluster.uuid is missing; it must be the UUID of the cluster's object in ConfigDB")]
    ClusterUuid,
    /// Another key.
    #[error("{key} {rule}")]
    Key {
        /// Which key.
        key: &'static str,
        /// The rule that it breaks.
        rule: String,
    },
    /// `mqtt.*`
    #[error(transparent)]
    Mqtt(#[from] sparkplug_mqtt::MqttConfigError),
}

/// A configuration that has been checked.
#[derive(Debug, Clone)]
pub struct Checked {
    /// The own address.
    pub node: EdgeNodeDescriptor,
    /// For the state.
    pub settings: Settings,
}

fn fault<T>(key: &'static str, rule: impl Into<String>) -> Result<T, ConfigError> {
    Err(ConfigError::Key { key, rule: rule.into() })
}

impl Config {
    /// Checks everything. `name` is what the replica is called if it is not named.
    ///
    /// # Errors
    /// The first key at fault.
    pub fn validate(&self, name: &str) -> Result<Checked, ConfigError> {
        let organisation = Organisation::new(&*self.organisation).map_err(ConfigError::Organisation)?;
        let cluster = ClusterName::new(&*self.cluster.name).map_err(ConfigError::ClusterName)?;
        let cluster_uuid = self.cluster.uuid.filter(|uuid| !uuid.is_nil()).ok_or(ConfigError::ClusterUuid)?;
        self.mqtt.validate()?;
        self.check_rest()?;
        let group = GroupId::new(organisation.cluster_group(&cluster))
            .expect("organisation and cluster names hold only characters that are allowed in a group id");
        let join = &self.join;
        let networks = join.networks.iter().map(|text| network(text)).collect::<Result<_, _>>()?;
        let components = join.components.iter().map(|text| component(text)).collect::<Result<_, _>>()?;
        let minutes = |minutes: u64| Duration::from_secs(minutes * 60);
        let settings = Settings {
            cluster_uuid,
            cluster_name: cluster.as_str().to_owned(),
            join_group: organisation.join_group(&cluster),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            simulated: self.simulated,
            replica: if self.replica.is_empty() { name.to_owned() } else { self.replica.clone() },
            distribution: join.distribution,
            servers: join.servers.clone(),
            kubernetes_version: join.kubernetes_version.clone(),
            components,
            labels: join.labels.clone(),
            taints: join.taints.clone(),
            networks,
            token_lifetime: minutes(join.token_minutes),
            control_plane_lifetime: minutes(join.control_plane_minutes),
            certificate_lifetime: Duration::from_secs(join.certificate_days * 86_400),
            hosts_max: join.hosts_max,
            hellos_per_second_max: join.hellos_per_second_max,
            evidence_per_second_max: join.evidence_per_second_max,
        };
        Ok(Checked { node: join_node(group), settings })
    }

    fn check_rest(&self) -> Result<(), ConfigError> {
        let join = &self.join;
        let text = |text: &String| !text.is_empty() && text.len() <= 253 && !text.chars().any(char::is_control);
        let rules = [
            (!self.kubernetes.namespace.is_empty(), "kubernetes.namespace", "must not be empty"),
            (
                self.trust.directory.is_some() != self.trust.secret.is_some(),
                "trust.directory",
                "or trust.secret must be given, and not both: keys come from there",
            ),
            ((1..=16).contains(&join.servers.len()), "join.servers", "must name 1 to 16 API servers"),
            (join.servers.iter().all(|url| url.starts_with("https://")), "join.servers", "must begin with https://"),
            (join.labels.len() <= 64 && join.labels.iter().all(text), "join.labels", "must be at most 64 short texts"),
            (join.taints.len() <= 64 && join.taints.iter().all(text), "join.taints", "must be at most 64 short texts"),
            (join.components.len() <= 64, "join.components", "must be at most 64"),
            (join.kubernetes_version.len() <= 64, "join.kubernetes_version", "must have at most 64 characters"),
            ((1..=15).contains(&join.token_minutes), "join.token_minutes", "must lie between 1 and 15"),
            ((1..=60).contains(&join.control_plane_minutes), "join.control_plane_minutes", "must lie between 1 and 60"),
            ((1..=366).contains(&join.certificate_days), "join.certificate_days", "must lie between 1 and 366"),
            ((1..=10_000).contains(&join.hosts_max), "join.hosts_max", "must lie between 1 and 10000"),
            (join.hellos_per_second_max > 0, "join.hellos_per_second_max", "must be at least 1"),
            (join.evidence_per_second_max > 0, "join.evidence_per_second_max", "must be at least 1"),
            (self.replica.len() <= 63, "replica", "must have at most 63 characters"),
        ];
        match rules.into_iter().find(|(is_met, _, _)| !is_met) {
            Some((_, key, rule)) => fault(key, rule),
            None => Ok(()),
        }
    }
}

fn network(text: &str) -> Result<Network, ConfigError> {
    let read = || {
        let (address, prefix) = text.split_once('/')?;
        Network::new(address.parse::<IpAddr>().ok()?, prefix.parse().ok()?)
    };
    match read() {
        Some(network) => Ok(network),
        None => fault("join.networks", format!("holds {text:?}; write a network as 10.1.0.0/16")),
    }
}

fn component(text: &str) -> Result<Component, ConfigError> {
    let mut parts = text.split_whitespace();
    let (Some(hash), Some(path), Some(url), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
        return fault("join.components", format!("holds {text:?}; write `<sha256> <absolute path> <url>`"));
    };
    let sha256 = hex::decode(hash).ok().and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
    match sha256 {
        Some(sha256) if path.starts_with('/') && !path.contains("..") => {
            Ok(Component { url: url.to_owned(), sha256, path: path.to_owned() })
        }
        Some(_) => fault("join.components", format!("holds {text:?}, whose path is not absolute")),
        // Without a hash anybody could put anything there.
        None => fault("join.components", format!("holds {text:?}, which does not begin with a SHA-256")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Config {
        let cluster = ClusterConfig { name: "Paint".to_owned(), uuid: Some(Uuid::from_u128(5)) };
        let join = JoinConfig { servers: vec!["https://10.1.0.1:6443".to_owned()], ..JoinConfig::default() };
        let trust = TrustConfig { secret: Some("join-service".to_owned()), directory: None };
        Config { cluster, join, trust, ..Config::default() }
    }

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
    fn the_node_is_join_in_the_clusters_group() {
        let mut config = good();
        config.join.networks = vec!["10.1.0.0/16".to_owned(), "fd00::/8".to_owned()];
        config.join.components = vec![format!("{} /opt/bin/kubelet https://x/kubelet", "ab".repeat(32))];
        let checked = config.validate("join-1").unwrap();
        assert_eq!(checked.node.to_string(), "ACME-Paint/Join");
        assert_eq!(checked.settings.join_group, "ACME-Paint-Join");
        assert_eq!(checked.settings.replica, "join-1");
        assert!(checked.settings.networks[0].contains("10.1.2.3".parse().unwrap()));
        assert!(!checked.settings.networks[0].contains("10.2.2.3".parse().unwrap()));
        assert!(checked.settings.networks[1].contains("fd12::1".parse().unwrap()));
        assert_eq!(checked.settings.components[0].path, "/opt/bin/kubelet");
    }

    #[test]
    fn a_wrong_value_is_refused_by_the_name_of_its_key() {
        let join = |change: fn(&mut JoinConfig)| {
            let mut config = good();
            change(&mut config.join);
            config
        };
        let table = [
            (Config { organisation: "A-B".to_owned(), ..good() }, "organisation: "),
            (Config::default(), "cluster.name: "),
            (Config { trust: TrustConfig::default(), ..good() }, "trust.directory or trust.secret"),
            (join(|join| join.servers.clear()), "join.servers must name"),
            (join(|join| join.servers = vec!["http://x".to_owned()]), "join.servers must begin"),
            (join(|join| join.networks = vec!["10.1.0.0/33".to_owned()]), "join.networks holds \"10.1.0.0/33\""),
            (join(|join| join.components = vec!["/x https://x".to_owned()]), "join.components holds"),
            (join(|join| join.components = vec!["sha256:ab /x https://x".to_owned()]), "join.components holds"),
            (join(|join| join.token_minutes = 16), "join.token_minutes must"),
        ];
        for (config, message) in table {
            let error = config.validate("x").unwrap_err().to_string();
            assert!(error.starts_with(message), "{error}");
        }
    }
}
