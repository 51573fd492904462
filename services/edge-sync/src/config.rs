//! The configuration file's keys, their defaults and what they mean; and one validated value made of them.

use std::path::PathBuf;
use std::time::Duration;

use configdb_schema::{ClusterName, Organisation};
use edge_sync_contract::names::sync_node;
pub use kubernetes_client::KubernetesConfig;
use serde::{Deserialize, Serialize};
use service_runtime::health::HttpConfig;
use service_runtime::keys::ConfigKey;
use service_runtime::service::ServiceConfig;
use service_runtime::state_dir::StateDir;
use sparkplug::{EdgeNodeDescriptor, GroupId};
use sparkplug_mqtt::{MqttConfig, Password};
use uuid::Uuid;

use crate::adapters::identity::Renewal;
use crate::object::{Kind, KindError};
use crate::state::Settings;
use crate::state::prune::PruneLimits;

/// Kinds that a Factory+ cluster manager renders.
const KINDS: [&str; 3] =
    ["helm.toolkit.fluxcd.io/v2/HelmRelease", "source.toolkit.fluxcd.io/v1/GitRepository", "v1/ConfigMap"];

/// Configuration of edge sync, as in its file.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// First part of the group.
    pub organisation: String,
    /// Where the bdSeq is kept.
    pub state_dir: StateDir,
    /// The cluster is a simulation.
    pub simulated: bool,
    /// The cluster.
    pub cluster: ClusterConfig,
    /// Its API.
    pub kubernetes: KubernetesConfig,
    /// What is applied, and how fast.
    pub sync: SyncConfig,
    /// The sealed secrets controller.
    pub sealing: SealingConfig,
    /// The cluster's certificate.
    pub identity: IdentityConfig,
    /// The broker.
    pub mqtt: MqttConfig,
    /// Health and metrics.
    pub http: HttpConfig,
}

/// The cluster that is followed.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClusterConfig {
    /// Its name.
    pub name: String,
    /// Its object in ConfigDB.
    pub uuid: Option<Uuid>,
}

/// What is applied, and how fast.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SyncConfig {
    /// Kinds that may be applied, as `<api version>/<Kind>`.
    pub kinds: Vec<String>,
    /// Deployments that are applied at the same time.
    pub applies_max: usize,
    /// First wait before a failed deployment is tried again.
    pub retry_ms_min: u64,
    /// Longest wait.
    pub retry_ms_max: u64,
    /// Objects deleted in one pass.
    pub prune_max_per_pass: u32,
    /// Time from one pass to the next.
    pub prune_interval_ms: u64,
    /// Share of the deployments that one index may take away without a delay.
    pub prune_max_percent: u32,
    /// The delay.
    pub prune_guard_ms: u64,
}

/// The sealed secrets controller.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SealingConfig {
    /// There is one.
    pub enabled: bool,
    /// Namespace of its Service.
    pub namespace: String,
    /// Name of its Service.
    pub service: String,
    /// How often the certificate is read.
    pub refresh_ms: u64,
}

/// The cluster's certificate, and the credentials of a cluster that has none.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct IdentityConfig {
    /// Renew the certificate in Secret `sparkfleet-identity`.
    pub renew: bool,
    /// User of the quarantine group.
    pub username: Option<String>,
    /// Its password.
    pub password: Password,
    /// PEM file with a certificate of the quarantine group.
    pub cert_file: Option<PathBuf>,
    /// PEM file with its private key.
    pub key_file: Option<PathBuf>,
}

impl Default for IdentityConfig {
    fn default() -> Self {
        Self { renew: true, username: None, password: Password::default(), cert_file: None, key_file: None }
    }
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
            cluster: ClusterConfig::default(),
            kubernetes: KubernetesConfig::default(),
            sync: SyncConfig::default(),
            sealing: SealingConfig::default(),
            identity: IdentityConfig::default(),
            mqtt: MqttConfig::default(),
            http: HttpConfig::default(),
        }
    }
}

impl Default for SyncConfig {
    fn default() -> Self {
        Self {
            kinds: KINDS.map(str::to_owned).to_vec(),
            applies_max: 4,
            retry_ms_min: 1_000,
            retry_ms_max: 300_000,
            prune_max_per_pass: 20,
            prune_interval_ms: 10_000,
            prune_max_percent: 50,
            prune_guard_ms: 60_000,
        }
    }
}

impl Default for SealingConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            namespace: "sealed-secrets".to_owned(),
            service: "sealed-secrets".to_owned(),
            refresh_ms: 3_600_000,
        }
    }
}

/// Every key but those of `[mqtt]` and `[http]`, which their owners document.
pub const KEYS: &[ConfigKey] = &[
    ConfigKey { key: "organisation", default: "ACME", help: "first part of the Sparkplug group" },
    ConfigKey { key: "state_dir", default: ".", help: "directory that keeps the bdSeq between two runs" },
    ConfigKey { key: "simulated", default: "false", help: "the cluster is a simulation" },
    ConfigKey { key: "cluster.name", default: "", help: "name of the cluster" },
    ConfigKey { key: "cluster.uuid", default: "", help: "UUID of the cluster's object in ConfigDB" },
    ConfigKey {
        key: "kubernetes.namespace",
        default: "fplus-edge",
        help: "the only namespace in which deployments are applied",
    },
    ConfigKey {
        key: "kubernetes.url",
        default: "",
        help: "plain HTTP of an API server without authentication, for simulators; absent: service account or kubeconfig",
    },
    ConfigKey {
        key: "sync.kinds",
        default: "helm.toolkit.fluxcd.io/v2/HelmRelease,source.toolkit.fluxcd.io/v1/GitRepository,v1/ConfigMap",
        help: "kinds that deployments may consist of, as <api version>/<Kind>",
    },
    ConfigKey { key: "sync.applies_max", default: "4", help: "deployments that are applied at the same time" },
    ConfigKey {
        key: "sync.retry_ms_min",
        default: "1000",
        help: "first wait before a failed deployment is tried again; it doubles",
    },
    ConfigKey {
        key: "sync.retry_ms_max",
        default: "300000",
        help: "longest wait before a failed deployment is tried again",
    },
    ConfigKey { key: "sync.prune_max_per_pass", default: "20", help: "objects that are deleted in one pass, at most" },
    ConfigKey {
        key: "sync.prune_interval_ms",
        default: "10000",
        help: "time from the beginning of a pass to the next",
    },
    ConfigKey {
        key: "sync.prune_max_percent",
        default: "50",
        help: "an index that takes away more than this share of the deployments, and more than five, is carried out after a delay",
    },
    ConfigKey { key: "sync.prune_guard_ms", default: "60000", help: "that delay; Desired/Error tells of it" },
    ConfigKey { key: "sealing.enabled", default: "true", help: "there is a Sealed Secrets controller" },
    ConfigKey { key: "sealing.namespace", default: "sealed-secrets", help: "namespace of the controller's Service" },
    ConfigKey { key: "sealing.service", default: "sealed-secrets", help: "name of the controller's Service" },
    ConfigKey {
        key: "identity.renew",
        default: "true",
        help: "renew the certificate in Secret sparkfleet-identity, if there is one, when two thirds of its life are over",
    },
    ConfigKey {
        key: "identity.username",
        default: "",
        help: "user by whom a cluster asks whose certificate has expired: one that may only enrol",
    },
    ConfigKey { key: "identity.password", default: "", help: "its password; better given as identity.password_file" },
    ConfigKey {
        key: "identity.cert_file",
        default: "",
        help: "PEM file of the certificate by which a cluster asks whose own has expired: one that may only enrol",
    },
    ConfigKey { key: "identity.key_file", default: "", help: "PEM file of the private key of identity.cert_file" },
    ConfigKey { key: "sealing.refresh_ms", default: "3600000", help: "how often the sealing certificate is read" },
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
    /// `sync.kinds`
    #[error("sync.kinds: {0}")]
    Kind(#[from] KindError),
    /// Another key.
    #[error("{key} {rule}")]
    Key {
        /// Which key.
        key: &'static str,
        /// The rule that it breaks.
        rule: &'static str,
    },
    /// `identity.*`, in the words of the `[mqtt]` table whose place it takes.
    #[error("identity (instead of mqtt)")]
    Quarantine(#[source] sparkplug_mqtt::MqttConfigError),
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
    /// For the renewal of the cluster's certificate; None: it is not renewed.
    pub renewal: Option<Renewal>,
}

impl Config {
    /// Checks everything. `seed` is a random number.
    ///
    /// # Errors
    /// The first key at fault.
    pub fn validate(&self, seed: u64) -> Result<Checked, ConfigError> {
        let organisation = Organisation::new(&*self.organisation).map_err(ConfigError::Organisation)?;
        let name = ClusterName::new(&*self.cluster.name).map_err(ConfigError::ClusterName)?;
        let cluster_uuid = self.cluster.uuid.filter(|uuid| !uuid.is_nil()).ok_or(ConfigError::ClusterUuid)?;
        self.mqtt.validate()?;
        self.check_rest()?;
        let quarantine = self.quarantine();
        if let Some(quarantine) = &quarantine {
            quarantine.validate().map_err(ConfigError::Quarantine)?;
        }
        let group = GroupId::new(organisation.cluster_group(&name))
            .expect("organisation and cluster names hold only characters that are allowed in a group id");
        let sync = &self.sync;
        let ms = Duration::from_millis;
        let settings = Settings {
            cluster_uuid,
            cluster_name: name.as_str().to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            simulated: self.simulated,
            namespace: self.kubernetes.namespace.clone(),
            kinds: sync.kinds.iter().map(|kind| kind.parse()).collect::<Result<Vec<Kind>, _>>()?,
            applies_max: sync.applies_max,
            retry: (ms(sync.retry_ms_min), ms(sync.retry_ms_max)),
            prune: PruneLimits {
                max_per_pass: sync.prune_max_per_pass,
                interval: ms(sync.prune_interval_ms),
                max_percent: sync.prune_max_percent,
                guard_delay: ms(sync.prune_guard_ms),
            },
            sealing: self.sealing.enabled,
            sealing_refresh: ms(self.sealing.refresh_ms),
            sealing_retry: (Duration::from_secs(5), Duration::from_secs(3600)),
            seed,
        };
        let renewal = Renewal { organisation, cluster: cluster_uuid, name, mqtt: self.mqtt.clone(), quarantine };
        Ok(Checked { node: sync_node(group), settings, renewal: self.identity.renew.then_some(renewal) })
    }

    /// How a cluster without a certificate reaches the broker; None: it has no credentials for that.
    fn quarantine(&self) -> Option<MqttConfig> {
        let IdentityConfig { username, password, cert_file, key_file, .. } = self.identity.clone();
        let is_set = username.is_some() || cert_file.is_some() || key_file.is_some();
        is_set.then(|| MqttConfig { username, password, cert_file, key_file, ..self.mqtt.clone() })
    }

    fn check_rest(&self) -> Result<(), ConfigError> {
        let sync = &self.sync;
        let rules = [
            (!self.kubernetes.namespace.is_empty(), "kubernetes.namespace", "must not be empty"),
            (!sync.kinds.is_empty(), "sync.kinds", "must name at least one kind"),
            ((1..=64).contains(&sync.applies_max), "sync.applies_max", "must lie between 1 and 64"),
            (sync.retry_ms_min >= 100, "sync.retry_ms_min", "must be at least 100 (0.1 s)"),
            (sync.retry_ms_max >= sync.retry_ms_min, "sync.retry_ms_max", "must be at least sync.retry_ms_min"),
            ((1..=1000).contains(&sync.prune_max_per_pass), "sync.prune_max_per_pass", "must lie between 1 and 1000"),
            (sync.prune_interval_ms >= 100, "sync.prune_interval_ms", "must be at least 100 (0.1 s)"),
            (sync.prune_max_percent <= 100, "sync.prune_max_percent", "must lie between 0 and 100"),
            (self.sealing.refresh_ms >= 1000, "sealing.refresh_ms", "must be at least 1000 (1 s)"),
            (
                !self.sealing.enabled || !(self.sealing.namespace.is_empty() || self.sealing.service.is_empty()),
                "sealing.service",
                "and sealing.namespace must not be empty; without a controller set sealing.enabled = false",
            ),
        ];
        match rules.into_iter().find(|(is_met, _, _)| !is_met) {
            Some((_, key, rule)) => Err(ConfigError::Key { key, rule }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Config {
        let cluster = ClusterConfig { name: "Paint".to_owned(), uuid: Some(Uuid::from_u128(5)) };
        Config { cluster, ..Config::default() }
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
    fn the_node_is_sync_in_the_clusters_group() {
        let checked = good().validate(1).unwrap();
        assert_eq!(checked.node.to_string(), "ACME-Paint/Sync");
        assert_eq!(checked.settings.kinds.len(), 3);
    }

    #[test]
    fn a_wrong_value_is_refused_by_the_name_of_its_key() {
        let sync = |change: fn(&mut SyncConfig)| {
            let mut config = good();
            change(&mut config.sync);
            config
        };
        let table = [
            (Config { organisation: "A-B".to_owned(), ..good() }, "organisation: "),
            (Config::default(), "cluster.name: "),
            (Config { cluster: ClusterConfig { uuid: None, ..good().cluster }, ..good() }, "cluster.uuid is missing"),
            (sync(|sync| sync.kinds = vec!["ConfigMap".to_owned()]), "sync.kinds: kind \"ConfigMap\" must be written"),
            (sync(|sync| sync.kinds.clear()), "sync.kinds must name"),
            (sync(|sync| sync.applies_max = 0), "sync.applies_max must"),
            (sync(|sync| sync.retry_ms_max = 1), "sync.retry_ms_max must"),
            (sync(|sync| sync.prune_max_percent = 101), "sync.prune_max_percent must"),
        ];
        for (config, message) in table {
            let error = config.validate(1).unwrap_err().to_string();
            assert!(error.starts_with(message), "{error}");
        }
    }
}
