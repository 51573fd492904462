//! Raw file and environment -> one checked configuration. Errors name the key.

use std::net::SocketAddr;
use std::path::PathBuf;

use configdb_schema::{NameRule, Organisation};
pub use git_hosting::http::Anonymous;
use identity_provider::{OidcConfig, OidcError};
use service_runtime::config::{ConfigTable as _, RangeError};
use service_runtime::config_table;
use service_runtime::health::HttpConfig;
use service_runtime::service::ServiceConfig;
use service_runtime::state_dir::StateDir;
use sparkplug_mqtt::MqttConfig;

config_table! {
    /// The configuration of the git server.
    pub struct Config {
        /// Prefix of every group id.
        organisation: String = "ACME".to_owned();
        /// Directory of the copies of repositories, of what they shall be, and of the bdSeq; it is made if it does not exist. What is lost in it is sent again.
        state_dir: StateDir = StateDir::from("/var/lib/sparkfleet/git-server");
        /// Address at which repositories are served; port 0 takes any free one.
        listen: SocketAddr = SocketAddr::from(([127, 0, 0, 1], 0));
        /// PEM file of the server's certificate and its chain; it is read again when it has changed; absent: HTTP without TLS.
        cert_file: Option<PathBuf>;
        /// PEM file of the private key to it.
        key_file: Option<PathBuf>;
        /// Who may clone without a password: none, or loopback (clients on this machine; behind a proxy on this machine that is every client).
        anonymous: Anonymous = Anonymous::None;
        /// Clones and fetches at the same time; more wait.
        children_max: usize = 16, in 1..=usize::MAX;
        /// Seconds that one clone, fetch or push may take.
        request_timeout_s: u64 = 600, in 1..=u64::MAX;
        /// Milliseconds before work on a copy that failed is tried again for the first time.
        retry_first_ms: u64 = 1_000, in 1..=u64::MAX;
        /// Longest such wait in milliseconds.
        retry_max_ms: u64 = 60_000;
    }
    tables {
        /// The MQTT server.
        mqtt: MqttConfig;
        /// Health and metrics.
        http: HttpConfig;
        /// Users who read and push.
        users: UsersConfig;
    }
}

config_table! {
    /// Users who read and push.
    pub struct UsersConfig {
        /// Requests a minute that one credential may make; a fifth of them at once.
        requests_per_minute: u32 = 300, in 1..=u32::MAX;
    }
    tables {
        /// Users who are admitted because an identity provider vouches for them.
        oidc: OidcConfig;
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
    /// A key of `users.oidc`.
    #[error("users.oidc.{0}")]
    Oidc(#[from] OidcError),
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
        if self.cert_file.is_some() != self.key_file.is_some() {
            return fault("cert_file", "and key_file must be given together");
        }
        if self.retry_max_ms < self.retry_first_ms {
            return fault("retry_first_ms", "must be at most retry_max_ms");
        }
        self.users.oidc.check()?;
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
        let cases: [(&str, Change); 8] = [
            ("organisation", |c| c.organisation = "A-B".to_owned()),
            ("state_dir", |c| c.state_dir = StateDir::from("")),
            ("cert_file", |c| c.key_file = Some("git.key".into())),
            ("children_max", |c| c.children_max = 0),
            ("retry_first_ms", |c| c.retry_first_ms = 100_000),
            ("users.requests_per_minute", |c| c.users.requests_per_minute = 0),
            ("users.oidc.issuer", |c| c.users.oidc.issuer = Some("http://login.example".to_owned())),
            ("users.oidc.clusters", |c| c.users.oidc.clusters = vec!["x".to_owned()]),
        ];
        for (key, change) in cases {
            let mut config = Config::default();
            change(&mut config);
            let error = config.validate().unwrap_err().to_string();
            assert!(error.starts_with(key), "{key}: {error}");
        }
    }
}
