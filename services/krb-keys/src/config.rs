//! The configuration file's keys, their defaults and what they mean; and the checked settings made of them.

use std::time::Duration;

use configdb_schema::address::{KEYS_NODE, v5};
use configdb_schema::{ClusterName, Organisation};
pub use kerberos_client::KerberosConfig;
pub use kubernetes_client::KubernetesConfig;
use serde::{Deserialize, Serialize};
use service_runtime::health::HttpConfig;
use service_runtime::keys::ConfigKey;
use service_runtime::service::ServiceConfig;
use service_runtime::state_dir::StateDir;
use sparkplug::EdgeNodeDescriptor;
use sparkplug_mqtt::MqttConfig;
use uuid::Uuid;

use crate::state::Settings;

/// Configuration of krb-keys, as in its file.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// First part of every group.
    pub organisation: String,
    /// Where the bdSeq is kept, and for a moment keys.
    pub state_dir: StateDir,
    /// Own identity; None: the cluster's krbkeys account.
    pub instance: Option<Uuid>,
    /// The cluster.
    pub cluster: ClusterConfig,
    /// Where the resources are.
    pub kubernetes: KubernetesConfig,
    /// The KDC.
    pub kerberos: KerberosConfig,
    /// How long a key stays in a keytab after another has followed it, s.
    pub expire_old_keys_s: u64,
    /// How often a key that is in step is verified, s.
    pub verify_s: u64,
    /// First pause before something is tried again, ms.
    pub retry_first_ms: u64,
    /// Longest such pause, ms.
    pub retry_max_ms: u64,
    /// The broker.
    pub mqtt: MqttConfig,
    /// Health and metrics.
    pub http: HttpConfig,
}

/// The cluster.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClusterConfig {
    /// Its name.
    pub name: String,
    /// Its object in ConfigDB.
    pub uuid: Option<Uuid>,
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
            instance: None,
            cluster: ClusterConfig::default(),
            kubernetes: KubernetesConfig::default(),
            kerberos: KerberosConfig::default(),
            expire_old_keys_s: 86_400,
            verify_s: 3_600,
            retry_first_ms: 1_000,
            retry_max_ms: 300_000,
            mqtt: MqttConfig::default(),
            http: HttpConfig::default(),
        }
    }
}

/// Every key but those of `[mqtt]` and `[http]`, which their owners document.
pub const KEYS: &[ConfigKey] = &[
    ConfigKey { key: "organisation", default: "ACME", help: "first part of every Sparkplug group" },
    ConfigKey {
        key: "state_dir",
        default: ".",
        help: "directory that keeps the bdSeq between two runs, and in its directory keys for a moment what goes between KDC and Secret",
    },
    ConfigKey {
        key: "instance",
        default: "",
        help: "own Instance_UUID; absent: that of the cluster's krbkeys account, derived from cluster.uuid",
    },
    ConfigKey { key: "cluster.name", default: "", help: "name of the cluster" },
    ConfigKey { key: "cluster.uuid", default: "", help: "UUID of the cluster's object in ConfigDB" },
    ConfigKey {
        key: "kubernetes.namespace",
        default: "fplus-edge",
        help: "namespace of the KerberosKey and LocalSecret resources and their Secrets",
    },
    ConfigKey {
        key: "kubernetes.url",
        default: "",
        help: "plain HTTP of an API server without authentication, for simulators; absent: service account or kubeconfig",
    },
    ConfigKey {
        key: "kerberos.admin_principal",
        default: "",
        help: "principal that administers those of the cluster, such as op1krbkeys/Paint@ACME.EXAMPLE",
    },
    ConfigKey { key: "kerberos.keytab_file", default: "", help: "keytab of kerberos.admin_principal" },
    ConfigKey {
        key: "kerberos.krb5_conf",
        default: "",
        help: "configuration of the Kerberos library; absent: the system's",
    },
    ConfigKey { key: "kerberos.timeout_s", default: "30", help: "longest time that one call of the KDC may take" },
    ConfigKey {
        key: "expire_old_keys_s",
        default: "86400",
        help: "how long a key stays in a keytab after another has followed it (keepOldKeys)",
    },
    ConfigKey { key: "verify_s", default: "3600", help: "how often a key that is in step is verified against the KDC" },
    ConfigKey {
        key: "retry_first_ms",
        default: "1000",
        help: "first pause before something is tried again; it doubles",
    },
    ConfigKey { key: "retry_max_ms", default: "300000", help: "longest such pause" },
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
    /// `kerberos.*`
    #[error("kerberos.{0}")]
    Kerberos(#[from] kerberos_client::KerberosConfigError),
    /// A number.
    #[error("{key} is {value}; {rule}")]
    Number {
        /// Which key.
        key: &'static str,
        /// As given.
        value: u64,
        /// The rule that it breaks.
        rule: &'static str,
    },
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
        let number =
            |key, value, is_good, rule| if is_good { Ok(()) } else { Err(ConfigError::Number { key, value, rule }) };
        number("verify_s", self.verify_s, self.verify_s >= 1, "it must be at least 1")?;
        number("retry_first_ms", self.retry_first_ms, self.retry_first_ms >= 10, "it must be at least 10")?;
        let grows = self.retry_max_ms >= self.retry_first_ms;
        number("retry_max_ms", self.retry_max_ms, grows, "it must not be below retry_first_ms")?;
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
