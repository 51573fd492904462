//! The configuration file's keys, their defaults and what they mean; and one validated value made of them.

use core::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use configdb_schema::{ClusterName, Organisation};
use join_protocol::message::grant::Component;
use join_service_contract::join_node;
pub use kubernetes_client::KubernetesConfig;
use service_runtime::config::{ConfigTable as _, RangeError};
use service_runtime::config_table;
use service_runtime::health::HttpConfig;
use service_runtime::service::ServiceConfig;
use service_runtime::state_dir::StateDir;
use sparkplug::{EdgeNodeDescriptor, GroupId};
use sparkplug_mqtt::MqttConfig;
use uuid::Uuid;

pub use crate::settings::Distribution;
use crate::settings::{Network, Settings};

config_table! {
    /// Configuration of the join service, as in its file.
    pub struct Config {
        /// First part of the Sparkplug groups.
        organisation: String = "ACME".to_owned();
        /// Directory that keeps the bdSeq between two runs.
        state_dir: StateDir = StateDir::from(".");
        /// The cluster is a simulation.
        simulated: bool;
        /// Name of this replica, unlike that of any other; absent: a random one.
        replica: String;
    }
    tables {
        /// The cluster.
        cluster: ClusterConfig;
        /// Its API.
        kubernetes: KubernetesConfig;
        /// Where keys come from.
        trust: TrustConfig;
        /// What a ticket holds, and how many are given.
        join: JoinConfig;
        /// The broker.
        mqtt: MqttConfig;
        /// Health and metrics.
        http: HttpConfig;
    }
}

config_table! {
    /// The cluster that hosts join.
    pub struct ClusterConfig {
        /// Name of the cluster.
        name: String;
        /// UUID of the cluster's object in ConfigDB.
        uuid: Option<Uuid>;
    }
}

config_table! {
    /// Where keys come from: one of both.
    pub struct TrustConfig {
        /// Directory with issuer.key, issuer.certificates, root.pub, master.key and, where needed, master.salt, ca.crt, ca.key, sa.key, sa.pub, front-proxy-ca.key, front-proxy-ca.crt, etcd-ca.key, etcd-ca.crt, k3s-server-token; readable by no other user.
        directory: Option<PathBuf>;
        /// Instead: a Kubernetes Secret in kubernetes.namespace with these keys.
        secret: Option<String>;
    }
}

config_table! {
    /// What a ticket holds, and how many are given.
    pub struct JoinConfig {
        /// `kubeadm` or `k3s`.
        distribution: Distribution = Distribution::Kubeadm;
        /// URLs of the API servers that hosts join by.
        servers: Vec<String>;
        /// Version of Kubernetes that hosts install.
        kubernetes_version: String;
        /// What hosts install, each as `<sha256> <absolute path> <url>`.
        components: Vec<String>;
        /// Labels of nodes, each as `key=value`.
        labels: Vec<String>;
        /// Taints of nodes, each as `key=value:effect`.
        taints: Vec<String>;
        /// Networks in which hosts may have addresses certified, as 10.1.0.0/16; absent: only the node's name is certified.
        networks: Vec<String>;
        /// How long a join token is valid; it is revoked earlier, when the host is a member or failed.
        token_minutes: u64 = 15, in 1..=15;
        /// How long one host may take to join the control plane before another may.
        control_plane_minutes: u64 = 10, in 1..=60;
        /// How long certificates of kubelets and SSH host keys are valid.
        certificate_days: u64 = 90, in 1..=366;
        /// Hosts that are remembered; more are refused.
        hosts_max: usize = 2_000, in 1..=10_000;
        /// Hellos that are answered in one second, those of known hosts first; more are answered that the service is busy.
        hellos_per_second_max: u32 = 50, in 1..=u32::MAX;
        /// Evidence that is judged in one second, that of known hosts first; hosts repeat theirs.
        evidence_per_second_max: u32 = 20, in 1..=u32::MAX;
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
    #[error("cluster.name: {0}")]
    ClusterName(configdb_schema::NameRule),
    /// `cluster.uuid`
    #[error("cluster.uuid is missing; it must be the UUID of the cluster's object in ConfigDB")]
    ClusterUuid,
    /// A number that is out of range.
    #[error(transparent)]
    Range(#[from] RangeError),
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
        self.check_ranges()?;
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
        // Without a hash any server on the path could change the content.
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
            (join(|join| join.token_minutes = 16), "join.token_minutes is 16; it must be between 1 and 15"),
        ];
        for (config, message) in table {
            let error = config.validate("x").unwrap_err().to_string();
            assert!(error.starts_with(message), "{error}");
        }
    }
}
