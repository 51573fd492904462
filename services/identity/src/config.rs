//! Raw file and environment -> one checked configuration. Errors name the key.

use std::path::PathBuf;

use configdb_schema::{NameRule, Organisation};
use service_runtime::config::{ConfigTable as _, RangeError};
use service_runtime::config_table;
use service_runtime::health::HttpConfig;
use service_runtime::service::ServiceConfig;
use service_runtime::state_dir::StateDir;
use sparkplug_mqtt::MqttConfig;

config_table! {
    /// The configuration of Identity.
    pub struct Config {
        /// Prefix of every group id.
        organisation: String = "ACME".to_owned();
        /// Directory of the keys (identity/, which the cluster manager had before), of what was issued, and of the bdSeq; it is made if it does not exist.
        state_dir: StateDir = StateDir::from("/var/lib/sparkfleet/identity");
        /// PEM file with the certificate of the authority that signs the clusters' certificates, and those that lead to its root; absent: Identity makes its own.
        authority_cert_file: Option<PathBuf>;
        /// PEM file with that authority's private key; given together with its certificate.
        authority_key_file: Option<PathBuf>;
        /// Seconds that a cluster's certificate lives.
        lifetime_s: u64 = 30 * 24 * 3600, in 60..=31_622_400;
        /// PEM files of revocation lists that MQTT servers read, such as the one of `sparkfleet acl crl`; an alert is active when one is past half of its validity. Identity's own list is watched without it.
        crl_files: Vec<PathBuf>;
        /// ConfigDB's entries get the enrolment key that is here, although they name another one: for keys that are lost. Clusters that have the other one in a bootstrap script have to be bootstrapped again.
        replace_keys: bool;
        /// Milliseconds before a refused write to ConfigDB is tried again for the first time.
        retry_first_ms: u64 = 1_000, in 1..=u64::MAX;
        /// Longest such wait in milliseconds.
        retry_max_ms: u64 = 60_000;
    }
    tables {
        /// The MQTT server.
        mqtt: MqttConfig;
        /// Health and metrics.
        http: HttpConfig;
    }
}

impl ServiceConfig for Config {
    fn http(&self) -> &HttpConfig {
        &self.http
    }
}

/// What is wrong with a configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// `organisation`.
    #[error("organisation: {0}")]
    Organisation(#[from] NameRule),
    /// A number that is out of range.
    #[error(transparent)]
    Range(#[from] RangeError),
    /// Another key.
    #[error("{key} {rule}")]
    Key {
        /// Which.
        key: &'static str,
        /// The rule that it breaks, and what to do.
        rule: &'static str,
    },
}

impl Config {
    /// Checks everything but `mqtt`, whose owner checks it.
    ///
    /// # Errors
    /// [`ConfigError`] names the first key at fault.
    pub fn validate(&self) -> Result<Organisation, ConfigError> {
        let fault = |key, rule| Err(ConfigError::Key { key, rule });
        let organisation = Organisation::new(&*self.organisation)?;
        if self.state_dir.as_os_str().is_empty() {
            return fault("state_dir", "is empty; name a directory");
        }
        self.check_ranges()?;
        if self.authority_cert_file.is_some() != self.authority_key_file.is_some() {
            return fault("authority_cert_file", "and authority_key_file must be given together");
        }
        if self.retry_max_ms < self.retry_first_ms {
            return fault("retry_first_ms", "must be at most retry_max_ms");
        }
        Ok(organisation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_value_is_named_by_its_key() {
        type Change = fn(&mut Config);
        assert_eq!(Config::default().validate().unwrap().as_str(), "ACME");
        let cases: [(&str, Change); 5] = [
            ("organisation", |c| c.organisation = "A-B".to_owned()),
            ("state_dir", |c| c.state_dir = StateDir::from("")),
            ("authority_cert_file", |c| c.authority_key_file = Some("ca.key".into())),
            ("lifetime_s", |c| c.lifetime_s = 5),
            ("retry_first_ms", |c| c.retry_first_ms = 100_000),
        ];
        for (key, change) in cases {
            let mut config = Config::default();
            change(&mut config);
            assert!(config.validate().unwrap_err().to_string().starts_with(key), "{key}");
        }
    }
}
