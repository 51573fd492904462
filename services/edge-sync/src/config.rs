//! The configuration file's keys, their defaults and what they mean; and one validated value made of them.

use std::path::PathBuf;
use std::time::Duration;

use configdb_schema::{ClusterName, Organisation};
use edge_sync_contract::names::sync_node;
pub use kubernetes_client::KubernetesConfig;
use service_runtime::config::{ConfigTable as _, RangeError};
use service_runtime::config_table;
use service_runtime::health::HttpConfig;
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

config_table! {
    /// Configuration of edge sync, as in its file.
    pub struct Config {
        /// First part of the Sparkplug group.
        organisation: String = "ACME".to_owned();
        /// Directory that keeps the bdSeq between two runs.
        state_dir: StateDir = StateDir::from(".");
        /// The cluster is a simulation.
        simulated: bool;
    }
    tables {
        /// The cluster.
        cluster: ClusterConfig;
        /// Its API.
        kubernetes: KubernetesConfig;
        /// What is applied, and how fast.
        sync: SyncConfig;
        /// The sealed secrets controller.
        sealing: SealingConfig;
        /// The cluster's certificate.
        identity: IdentityConfig;
        /// The broker.
        mqtt: MqttConfig;
        /// Health and metrics.
        http: HttpConfig;
    }
}

config_table! {
    /// The cluster that is followed.
    pub struct ClusterConfig {
        /// Name of the cluster.
        name: String;
        /// UUID of the cluster's object in ConfigDB.
        uuid: Option<Uuid>;
    }
}

config_table! {
    /// What is applied, and how fast.
    pub struct SyncConfig {
        /// Kinds that deployments may consist of, as <api version>/<Kind>.
        kinds: Vec<String> = KINDS.map(str::to_owned).to_vec();
        /// Deployments that are applied at the same time.
        applies_max: usize = 4, in 1..=64;
        /// First wait before a failed deployment is tried again; it doubles.
        retry_ms_min: u64 = 1_000, in 100..=u64::MAX;
        /// Longest wait before a failed deployment is tried again.
        retry_ms_max: u64 = 300_000;
        /// Objects that are deleted in one pass, at most.
        prune_max_per_pass: u32 = 20, in 1..=1_000;
        /// Time from the beginning of a pass to the next.
        prune_interval_ms: u64 = 10_000, in 100..=u64::MAX;
        /// An index that takes away more than this share of the deployments, and more than five, is carried out after a delay.
        prune_max_percent: u32 = 50, in 0..=100;
        /// That delay; Desired/Reason reports it.
        prune_guard_ms: u64 = 60_000;
    }
}

config_table! {
    /// The sealed secrets controller.
    pub struct SealingConfig {
        /// There is a Sealed Secrets controller.
        enabled: bool = true;
        /// Namespace of the controller's Service.
        namespace: String = "sealed-secrets".to_owned();
        /// Name of the controller's Service.
        service: String = "sealed-secrets".to_owned();
        /// How often the sealing certificate is read.
        refresh_ms: u64 = 3_600_000, in 1_000..=u64::MAX;
    }
}

config_table! {
    /// The cluster's certificate, and the credentials of a cluster that has none.
    pub struct IdentityConfig {
        /// Renew the certificate in Secret sparkfleet-identity, if there is one, when two thirds of its validity period are over.
        renew: bool = true;
        /// User with whom a cluster asks for renewal after its certificate has expired: one that may only enrol.
        username: Option<String>;
        /// Its password; better given as identity.password_file.
        password: Password;
        /// PEM file of the certificate by which a cluster asks whose own has expired: one that may only enrol.
        cert_file: Option<PathBuf>;
        /// PEM file of the private key of identity.cert_file.
        key_file: Option<PathBuf>;
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
    /// `sync.kinds`
    #[error("sync.kinds: {0}")]
    Kind(#[from] KindError),
    /// A number that is out of range.
    #[error(transparent)]
    Range(#[from] RangeError),
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
        self.check_ranges()?;
        let sync = &self.sync;
        let rules = [
            (!self.kubernetes.namespace.is_empty(), "kubernetes.namespace", "must not be empty"),
            (!sync.kinds.is_empty(), "sync.kinds", "must name at least one kind"),
            (sync.retry_ms_max >= sync.retry_ms_min, "sync.retry_ms_max", "must be at least sync.retry_ms_min"),
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
            (sync(|sync| sync.applies_max = 0), "sync.applies_max is 0; it must be between 1 and 64"),
            (sync(|sync| sync.retry_ms_max = 1), "sync.retry_ms_max must"),
            (sync(|sync| sync.prune_max_percent = 101), "sync.prune_max_percent is 101; it must be at most 100"),
        ];
        for (config, message) in table {
            let error = config.validate(1).unwrap_err().to_string();
            assert!(error.starts_with(message), "{error}");
        }
    }
}
