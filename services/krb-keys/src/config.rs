//! The configuration file's keys, their defaults and what they mean; and the checked settings made of them.

use std::time::Duration;

use configdb_schema::address::{KEYS_NODE, v5};
use configdb_schema::{ClusterName, Organisation};
pub use kerberos_client::KerberosConfig;
pub use kubernetes_client::KubernetesConfig;
use service_runtime::config::{ConfigTable as _, RangeError};
use service_runtime::config_table;
use service_runtime::health::HttpConfig;
use service_runtime::service::ServiceConfig;
use service_runtime::state_dir::StateDir;
use sparkplug::EdgeNodeDescriptor;
use sparkplug_mqtt::MqttConfig;
use uuid::Uuid;

use crate::state::Settings;

config_table! {
    /// Configuration of krb-keys, as in its file.
    pub struct Config {
        /// First part of every Sparkplug group.
        organisation: String = "ACME".to_owned();
        /// Directory that keeps the bdSeq between two runs, and in its directory keys for a moment what goes between KDC and Secret.
        state_dir: StateDir = StateDir::from(".");
        /// Own Instance_UUID; absent: that of the cluster's krbkeys account, derived from cluster.uuid.
        instance: Option<Uuid>;
        /// How long a key stays in a keytab after another has followed it (keepOldKeys).
        expire_old_keys_s: u64 = 86_400;
        /// How often a key that is in step is verified against the KDC.
        verify_s: u64 = 3_600, in 1..=u64::MAX;
        /// First pause before something is tried again; it doubles.
        retry_first_ms: u64 = 1_000, in 10..=u64::MAX;
        /// Longest such pause.
        retry_max_ms: u64 = 300_000;
    }
    tables {
        /// The cluster.
        cluster: ClusterConfig;
        /// Where the resources are.
        kubernetes: KubernetesConfig;
        /// The KDC.
        kerberos: KerberosConfig;
        /// The broker.
        mqtt: MqttConfig;
        /// Health and metrics.
        http: HttpConfig;
    }
}

config_table! {
    /// The cluster.
    pub struct ClusterConfig {
        /// Name of the cluster.
        name: String;
        /// UUID of the cluster's object in ConfigDB.
        uuid: Option<Uuid>;
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
    /// `kerberos.*`
    #[error("kerberos.{0}")]
    Kerberos(#[from] kerberos_client::KerberosConfigError),
    /// A number that is out of range.
    #[error(transparent)]
    Range(#[from] RangeError),
    /// `retry_max_ms`
    #[error("retry_max_ms is {0}; it must not be below retry_first_ms")]
    RetryMax(u64),
    /// The address.
    #[error("organisation and cluster.name do not make Sparkplug ids: {0}")]
    Address(#[from] sparkplug::NameError),
    /// `mqtt.*`
    #[error(transparent)]
    Mqtt(#[from] sparkplug_mqtt::MqttConfigError),
}

impl Config {
    /// Checks everything: the own address and the settings of the state are what comes out.
    ///
    /// # Errors
    /// The first key at fault.
    pub fn validate(&self) -> Result<(EdgeNodeDescriptor, Settings), ConfigError> {
        let organisation = Organisation::new(&*self.organisation).map_err(ConfigError::Organisation)?;
        let name = ClusterName::new(&*self.cluster.name).map_err(ConfigError::ClusterName)?;
        let cluster = self.cluster.uuid.filter(|uuid| !uuid.is_nil()).ok_or(ConfigError::ClusterUuid)?;
        let principal = self.kerberos.validate()?;
        self.mqtt.validate()?;
        self.check_ranges()?;
        if self.retry_max_ms < self.retry_first_ms {
            return Err(ConfigError::RetryMax(self.retry_max_ms));
        }
        let descriptor = EdgeNodeDescriptor::parse(&organisation.cluster_group(&name), KEYS_NODE)?;
        let settings = Settings {
            instance: self.instance.unwrap_or_else(|| v5(&["Account", &cluster.to_string(), "krbkeys"])),
            cluster,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            principal: principal.to_string(),
            retry: (Duration::from_millis(self.retry_first_ms), Duration::from_millis(self.retry_max_ms)),
            verify: Duration::from_secs(self.verify_s),
            expire_old: Duration::from_secs(self.expire_old_keys_s),
        };
        Ok((descriptor, settings))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Config {
        Config {
            cluster: ClusterConfig { name: "Paint".to_owned(), uuid: Some(Uuid::from_u128(7)) },
            kerberos: KerberosConfig {
                admin_principal: "op1krbkeys/Paint@ACME.EXAMPLE".to_owned(),
                keytab_file: "client".into(),
                ..KerberosConfig::default()
            },
            ..Config::default()
        }
    }

    #[test]
    fn the_node_is_keys_in_the_group_of_the_cluster() {
        let (descriptor, settings) = good().validate().unwrap();
        assert_eq!(descriptor.to_string(), "ACME-Paint/Keys");
        assert_eq!(settings.instance, v5(&["Account", &Uuid::from_u128(7).to_string(), "krbkeys"]));
    }

    #[test]
    fn a_key_at_fault_is_named() {
        let table = [
            (Config { organisation: "-".to_owned(), ..good() }, "organisation"),
            (Config { cluster: ClusterConfig::default(), ..good() }, "cluster.name"),
            (Config { kerberos: KerberosConfig::default(), ..good() }, "kerberos.admin_principal"),
            (Config { verify_s: 0, ..good() }, "verify_s is 0"),
            (Config { retry_max_ms: 1, ..good() }, "retry_max_ms is 1"),
        ];
        for (config, part) in table {
            let error = config.validate().unwrap_err().to_string();
            assert!(error.starts_with(part), "{error}");
        }
    }
}
