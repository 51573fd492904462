//! Raw file and environment -> one checked configuration. Errors name the key.

use std::net::SocketAddr;
use std::path::PathBuf;

use configdb_schema::document::JsonObject;
use configdb_schema::{NameRule, Organisation};
use identity_provider::{OidcConfig, OidcError};
use serde_json::Value;
use service_runtime::config::{ConfigTable as _, RangeError};
use service_runtime::config_table;
use service_runtime::health::HttpConfig;
use service_runtime::service::ServiceConfig;
use service_runtime::state_dir::StateDir;
use sparkplug_mqtt::MqttConfig;

config_table! {
    /// The configuration of the cluster manager.
    pub struct Config {
        /// Prefix of every group id.
        organisation: String = "ACME".to_owned();
        /// Directory of repositories, their passwords, the bdSeq and the record of pushes (audit.jsonl); it is made if it does not exist.
        state_dir: StateDir = StateDir::from("/var/lib/sparkfleet/cluster-manager");
    }
    tables {
        /// The MQTT server.
        mqtt: MqttConfig;
        /// Health and metrics.
        http: HttpConfig;
        /// Repositories.
        git: GitConfig;
        /// What the clusters get.
        edge: EdgeConfig;
        /// The script that bootstraps a cluster.
        bootstrap: BootstrapConfig;
        /// The site's KDC.
        kerberos: KerberosConfig;
        /// Waiting times.
        timing: TimingConfig;
    }
}

config_table! {
    /// Repositories.
    pub struct GitConfig {
        /// Base URL under which clusters reach the git server (sparkfleet git-server); absent: as that server reports it, and each start of it with another port rewrites every repository.
        public_url: Option<String>;
        /// Directory of charts that the repository shared/helm follows; absent: that repository is the operator's.
        charts_dir: Option<PathBuf>;
        /// Directory of the files that auth.secretRef of a GitConfig entry names: JSON {"username", "password"} or user:password.
        credentials_dir: Option<PathBuf>;
        /// PEM file of the certificate authorities for HTTPS to other git servers; absent: the system's.
        ca_file: Option<PathBuf>;
        /// Seconds that one fetch from another git server may take.
        pull_timeout_s: u64 = 600, in 1..=u64::MAX;
        /// Requests a minute that one user who pushes may make; a fifth of them at once.
        requests_per_minute: u32 = 300, in 1..=u32::MAX;
    }
    tables {
        /// Users who may push because an identity provider vouches for them.
        oidc: OidcConfig;
        /// The git server of the site, where clusters follow their repositories instead.
        external: ExternalConfig;
    }
}

config_table! {
    /// A git server that is not ours.
    pub struct ExternalConfig {
        /// URL of a repository on the site's own git server, with {name} for its name (https://gitea.example/factory/{name}.git): clusters follow theirs and shared/helm there, no other shared ones; absent: here.
        url: Option<String>;
        /// File with the credentials that push there: JSON {username, password}, or user:password.
        credentials_file: Option<PathBuf>;
        /// File with the credentials that clusters read there with, in the same form; they need no right to write.
        cluster_credentials_file: Option<PathBuf>;
    }
}

config_table! {
    /// What the clusters get.
    pub struct EdgeConfig {
        /// MQTT servers for the clusters' own services, as the clusters see them; absent: their chart's default.
        mqtt_servers: Vec<String>;
        /// Name of the Kubernetes Secret on the clusters with the credentials for these servers.
        mqtt_secret: Option<String>;
        /// Value realm of every deployment.
        realm: Option<String>;
        /// Value directory_url of every deployment.
        directory_url: Option<String>;
        /// Size of the largest manifests of one deployment in bytes of JSON; the MQTT server must take messages a little larger.
        manifests_bytes_max: usize = 240 * 1024, in 1_024..=usize::MAX;
    }
}

config_table! {
    /// The script that bootstraps a cluster.
    pub struct BootstrapConfig {
        /// Address of the bootstrap scripts; port 0 takes any free one.
        listen: SocketAddr = SocketAddr::from(([127, 0, 0, 1], 0));
        /// PEM file of the server's certificate and its chain; it is read again when it has changed; absent: HTTP without TLS.
        cert_file: Option<PathBuf>;
        /// PEM file of the private key to it.
        key_file: Option<PathBuf>;
        /// Base URL under which clusters fetch them; absent: http:// (with bootstrap.cert_file https://) and the address that they are served on.
        public_url: Option<String>;
        /// Where the bootstrap script takes Flux from if a cluster has none. This is an address that clusters reach, such as a mirror, or a file on this host that travels in the script.
        flux: String = "https://github.com/fluxcd/flux2/releases/download/v2.7.5/install.yaml".to_owned();
        /// Image with the program sparkfleet, by which a cluster enrols; absent: the script brings the credentials of its repository.
        image: Option<String>;
        /// PEM file of the authorities by which an enrolling cluster trusts edge.mqtt_servers; it travels in the script.
        mqtt_ca_file: Option<PathBuf>;
        /// PEM file of the certificate that an enrolling cluster shows to them, of user ORG-Enrol; it travels in the script.
        mqtt_cert_file: Option<PathBuf>;
        /// PEM file of the private key to it.
        mqtt_key_file: Option<PathBuf>;
        /// User as which an enrolling cluster logs in to them, where they ask for passwords: ORG-Enrol.
        mqtt_username: Option<String>;
        /// File with that user's password; it travels in the script.
        mqtt_password_file: Option<PathBuf>;
    }
}

config_table! {
    /// The site's KDC, in which the clusters' accounts have principals.
    pub struct KerberosConfig {
        /// Realm of the site's KDC, in which the clusters' accounts get principals (feature kerberos); absent: none do.
        realm: Option<String>;
        /// Principal that may make and disable op1flux/... and op1krbkeys/...; needed with the realm.
        admin_principal: Option<String>;
        /// Keytab of that principal; needed with the realm.
        keytab_file: Option<PathBuf>;
        /// Configuration of the Kerberos library; absent: the system's.
        krb5_conf: Option<PathBuf>;
        /// Seconds that one call of the KDC may take.
        timeout_s: u64 = 30;
    }
}

config_table! {
    /// Waiting times.
    pub struct TimingConfig {
        /// Milliseconds before something unanswered is sent again for the first time.
        retry_first_ms: u64 = 1_000, in 1..=u64::MAX;
        /// Longest such wait in milliseconds.
        retry_max_ms: u64 = 60_000;
        /// Seconds that an edge must be away before the tear-down of its cluster continues without it.
        away_s: u64 = 30;
        /// Seconds without contact from a cluster's edge sync and Flux, after which the repositories of later waves do not wait for it. It should be more than the interval at which Flux asks.
        flux_away_s: u64 = 600;
    }
}

impl ServiceConfig for Config {
    fn http(&self) -> &HttpConfig {
        &self.http
    }
}

impl ExternalConfig {
    fn validate(&self) -> Result<(), ConfigError> {
        let fault = |key, rule| Err(ConfigError::Key { key, rule });
        let Some(url) = &self.url else {
            if self.credentials_file.is_some() || self.cluster_credentials_file.is_some() {
                return fault("git.external.url", "is missing; credentials alone are of no use");
            }
            return Ok(());
        };
        let rest = ["https://", "http://"].iter().find_map(|scheme| url.strip_prefix(scheme));
        let Some(rest) = rest.filter(|rest| !rest.is_empty()) else {
            return fault("git.external.url", "must begin with https:// or http://");
        };
        if rest.split('/').next().is_some_and(|host| host.contains('@')) {
            return fault("git.external.url", "must not hold a user; use git.external.credentials_file");
        }
        if rest.matches("{name}").count() != 1
            || rest.contains(['?', '#', ' ', '\\'])
            || rest.chars().any(char::is_control)
        {
            return fault("git.external.url", "must hold {name} once, and no query");
        }
        if self.cluster_credentials_file.is_none() {
            return fault(
                "git.external.cluster_credentials_file",
                "is missing; clusters need credentials to read there",
            );
        }
        Ok(())
    }
}

/// Where a key is that the cluster manager had when it was the certificate authority, served git, or had an HTTP API; None: it had no such key. `key`: dotted.
#[must_use]
pub fn moved(key: &str) -> Option<String> {
    let of_git = |rest: &str| format!("{key} is now {rest} of the git server (sparkfleet git-server --config FILE)");
    match key {
        "git.anonymous" => return Some(of_git("anonymous")),
        "git.children_max" => return Some(of_git("children_max")),
        "git.request_timeout_s" => return Some(of_git("request_timeout_s")),
        "git.listen" | "git.cert_file" | "git.key_file" => {
            let name = key.trim_start_matches("git.");
            return Some(format!("{} and, for the bootstrap scripts, bootstrap.{name}", of_git(name)));
        }
        "api.listen" | "api.cert_file" | "api.key_file" => {
            let name = key.trim_start_matches("api.");
            let without_api = "the HTTP API is that of the web console (sparkfleet console --config FILE)";
            return Some(format!("{key} is now bootstrap.{name}, for the bootstrap scripts; {without_api}"));
        }
        "api.address_requests_per_minute" => {
            return Some(format!("{key} is gone: the HTTP API is that of the web console (sparkfleet console)"));
        }
        _ => {}
    }
    if let Some(rest) =
        key.strip_prefix("api.").filter(|rest| rest.starts_with("oidc.") || *rest == "requests_per_minute")
    {
        return Some(format!("{key} is now git.{rest}, for users who push"));
    }
    let rest = key.strip_prefix("identity.")?;
    Some(match rest.strip_prefix("kerberos.") {
        Some(rest) => format!("{key} is now kerberos.{rest}"),
        None => format!("{key} is now {rest} of the service Identity (sparkfleet identity --config FILE)"),
    })
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
    /// A key of `git.oidc`.
    #[error("git.oidc.{0}")]
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

impl KerberosConfig {
    fn validate(&self) -> Result<(), ConfigError> {
        let fault = |key, rule| Err(ConfigError::Key { key, rule });
        let Some(realm) = &self.realm else {
            return match self.admin_principal.is_some() || self.keytab_file.is_some() {
                true => fault("kerberos.realm", "is missing; admin_principal and keytab_file need it"),
                false => Ok(()),
            };
        };
        let is_word = realm.starts_with(|c: char| c.is_ascii_alphanumeric())
            && realm.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_'));
        if !is_word {
            return fault("kerberos.realm", "must consist of letters, digits, `.`, `-` and `_`");
        }
        if self.admin_principal.is_none() || self.keytab_file.is_none() {
            return fault("kerberos.admin_principal", "and kerberos.keytab_file are needed with the realm");
        }
        if !cfg!(feature = "kerberos") {
            return fault("kerberos.realm", "needs a program that is built with the cargo feature kerberos");
        }
        Ok(())
    }
}

impl Config {
    fn validate_bootstrap(&self) -> Result<(), ConfigError> {
        let fault = |key, rule| Err(ConfigError::Key { key, rule });
        let own = &self.bootstrap;
        if own.flux.is_empty() {
            return fault("bootstrap.flux", "is empty; name an address or a file");
        }
        let logs_in = own.mqtt_ca_file.is_some() || own.mqtt_cert_file.is_some() || own.mqtt_username.is_some();
        if own.image.is_none() && logs_in {
            return fault("bootstrap.image", "is missing: bootstrap.mqtt_... is for enrolling with it");
        }
        if own.image.is_some() && self.edge.mqtt_servers.is_empty() {
            return fault("bootstrap.image", "needs edge.mqtt_servers: a cluster enrols over them");
        }
        let with_tls = |server: &String| server.starts_with("mqtts:") || server.starts_with("wss:");
        let over_tls = self.edge.mqtt_servers.iter().any(with_tls);
        if own.image.is_some() && over_tls && own.mqtt_ca_file.is_none() {
            return fault("bootstrap.mqtt_ca_file", "is missing: by it an enrolling cluster trusts edge.mqtt_servers");
        }
        if !over_tls && (own.mqtt_ca_file.is_some() || own.mqtt_cert_file.is_some()) {
            return fault("bootstrap.mqtt_ca_file", "needs a server with TLS (mqtts://) in edge.mqtt_servers");
        }
        if own.mqtt_cert_file.is_some() != own.mqtt_key_file.is_some() {
            return fault("bootstrap.mqtt_key_file", "and bootstrap.mqtt_cert_file are given together");
        }
        if own.mqtt_username.is_some() != own.mqtt_password_file.is_some() {
            return fault("bootstrap.mqtt_password_file", "and bootstrap.mqtt_username are given together");
        }
        Ok(())
    }

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
        let urls = [("git.public_url", &self.git.public_url), ("bootstrap.public_url", &self.bootstrap.public_url)];
        for (key, url) in urls.into_iter().filter_map(|(key, url)| Some((key, url.as_ref()?))) {
            if !(url.starts_with("http://") || url.starts_with("https://")) {
                return fault(key, "must begin with http:// or https://");
            }
            if url.contains('@') {
                return fault(key, "must not hold a user or password: it is written into manifests and scripts");
            }
        }
        self.validate_bootstrap()?;
        self.check_ranges()?;
        if self.bootstrap.cert_file.is_some() != self.bootstrap.key_file.is_some() {
            return fault("bootstrap.cert_file", "and bootstrap.key_file go together; give both or none");
        }
        self.git.external.validate()?;
        self.git.oidc.check()?;
        self.kerberos.validate()?;
        if self.timing.retry_max_ms < self.timing.retry_first_ms {
            return fault("timing.retry_first_ms", "must be at most timing.retry_max_ms");
        }
        Ok(organisation)
    }

    /// Realm of the site's KDC, if it has one.
    #[must_use]
    pub fn realm(&self) -> Option<&str> {
        self.kerberos.realm.as_deref()
    }

    /// First layer of every deployment's values.
    #[must_use]
    pub fn base_values(&self) -> JsonObject {
        let texts = [("realm", &self.edge.realm), ("directory_url", &self.edge.directory_url)];
        let present = texts.into_iter().filter_map(|(key, value)| Some((key.to_owned(), Value::from(value.clone()?))));
        let mut values: JsonObject = present.collect();
        values.insert("organisation".to_owned(), Value::from(self.organisation.as_str()));
        let mut mqtt = JsonObject::new();
        if !self.edge.mqtt_servers.is_empty() {
            mqtt.insert("servers".to_owned(), Value::from(self.edge.mqtt_servers.clone()));
        }
        if let Some(secret) = &self.edge.mqtt_secret {
            mqtt.insert("secretName".to_owned(), Value::from(secret.as_str()));
        }
        if !mqtt.is_empty() {
            values.insert("mqtt".to_owned(), Value::Object(mqtt));
        }
        values
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn the_defaults_are_valid() {
        assert_eq!(Config::default().validate().unwrap().as_str(), "ACME");
    }

    #[test]
    fn a_key_that_is_elsewhere_now_says_where() {
        assert_eq!(moved("identity.kerberos.realm").as_deref(), Some("identity.kerberos.realm is now kerberos.realm"));
        assert!(
            moved("identity.lifetime_s")
                .unwrap()
                .starts_with("identity.lifetime_s is now lifetime_s of the service Identity")
        );
        let listen = moved("git.listen").unwrap();
        assert!(
            listen.starts_with("git.listen is now listen of the git server") && listen.ends_with("bootstrap.listen")
        );
        assert!(
            moved("api.listen").unwrap().starts_with("api.listen is now bootstrap.listen, for the bootstrap scripts")
        );
        assert!(moved("api.oidc.issuer").unwrap().starts_with("api.oidc.issuer is now git.oidc.issuer"));
        assert!(moved("api.address_requests_per_minute").unwrap().contains("web console"));
        assert!(moved("git.children_max").unwrap().contains("children_max of the git server"));
        assert_eq!(moved("git.public_url"), None);
    }

    #[test]
    fn a_bad_value_is_named_by_its_key() {
        type Change = fn(&mut Config);
        fn enrolling(config: &mut Config, server: &str) {
            config.bootstrap.image = Some("sparkfleet:1".to_owned());
            config.edge.mqtt_servers = vec![server.to_owned()];
        }
        let cases: [(&str, Change); 23] = [
            ("git.oidc.clusters", |c| c.git.oidc.clusters = vec!["night-shift=Paint_Shop".to_owned()]),
            ("git.oidc.clusters", |c| c.git.oidc.clusters = vec![format!("no-cluster={}", Uuid::nil())]),
            ("git.pull_timeout_s", |c| c.git.pull_timeout_s = 0),
            ("git.external.url", |c| c.git.external.credentials_file = Some("push".into())),
            ("git.external.url", |c| c.git.external.url = Some("ssh://git.acme.example/{name}".to_owned())),
            ("git.external.url", |c| c.git.external.url = Some("https://bot:pw@git.acme.example/{name}".to_owned())),
            ("git.external.cluster_credentials_file", |c| {
                c.git.external.url = Some("https://git.acme.example/f/{name}.git".to_owned());
            }),
            ("git.oidc.issuer", |c| c.git.oidc.issuer = Some("http://login.acme.example".to_owned())),
            ("bootstrap.cert_file", |c| c.bootstrap.cert_file = Some("tls.crt".into())),
            ("git.requests_per_minute", |c| c.git.requests_per_minute = 0),
            ("organisation", |c| c.organisation = "A-B".to_owned()),
            ("git.public_url", |c| c.git.public_url = Some("git.acme.example".to_owned())),
            ("git.public_url", |c| c.git.public_url = Some("https://u:p@git.acme.example".to_owned())),
            ("bootstrap.public_url", |c| c.bootstrap.public_url = Some("scripts.acme.example".to_owned())),
            ("bootstrap.flux", |c| c.bootstrap.flux.clear()),
            ("bootstrap.image", |c| c.bootstrap.image = Some("sparkfleet:1".to_owned())),
            ("bootstrap.image", |c| c.bootstrap.mqtt_ca_file = Some("ca.pem".into())),
            ("bootstrap.mqtt_ca_file", |c| enrolling(c, "mqtts://broker:8883")),
            ("bootstrap.mqtt_ca_file", |c| {
                enrolling(c, "mqtt://broker:1883");
                c.bootstrap.mqtt_ca_file = Some("ca.pem".into());
            }),
            ("bootstrap.mqtt_key_file", |c| {
                enrolling(c, "mqtts://broker:8883");
                c.bootstrap.mqtt_ca_file = Some("ca.pem".into());
                c.bootstrap.mqtt_cert_file = Some("enrol.pem".into());
            }),
            ("bootstrap.mqtt_password_file", |c| {
                enrolling(c, "mqtt://broker:1883");
                c.bootstrap.mqtt_username = Some("ACME-Enrol".to_owned());
            }),
            ("edge.manifests_bytes_max", |c| c.edge.manifests_bytes_max = 0),
            ("timing.retry_first_ms", |c| c.timing.retry_first_ms = 100_000),
        ];
        for (key, change) in cases {
            let mut config = Config::default();
            change(&mut config);
            assert!(config.validate().unwrap_err().to_string().starts_with(key), "{key}");
        }
    }
}
