//! Raw file and environment -> one checked configuration. Errors name the key.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;

use configdb_schema::document::JsonObject;
use configdb_schema::{NameRule, Organisation};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use service_runtime::health::HttpConfig;
use service_runtime::keys::ConfigKey;
use service_runtime::service::ServiceConfig;
use service_runtime::state_dir::StateDir;
use sparkplug_mqtt::MqttConfig;
use uuid::Uuid;

use crate::access::claims::ClaimRules;

/// The configuration of the cluster manager.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Prefix of all Sparkplug groups.
    pub organisation: String,
    /// Where repositories, their passwords, the bdSeq and the record of writes are kept.
    pub state_dir: StateDir,
    /// The MQTT server.
    pub mqtt: MqttConfig,
    /// Health and metrics.
    pub http: HttpConfig,
    /// The git server.
    pub git: GitConfig,
    /// The API for people.
    pub api: ApiConfig,
    /// What the clusters are told.
    pub edge: EdgeConfig,
    /// The script that bootstraps a cluster.
    pub bootstrap: BootstrapConfig,
    /// Who clusters are known by.
    pub identity: IdentityConfig,
    /// Waiting times.
    pub timing: TimingConfig,
}

/// Who may read without logging in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Anonymous {
    /// Nobody.
    #[default]
    None,
    /// Clients on this machine. Behind a proxy on this machine that is everybody.
    Loopback,
}

/// The API for people, on the address of the git server.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ApiConfig {
    /// Requests a minute of one credential; a fifth of it at once.
    pub requests_per_minute: u32,
    /// Requests a minute from one address, whoever asks; a fifth of it at once.
    pub address_requests_per_minute: u32,
    /// Who is let in because an identity provider vouches for them.
    pub oidc: OidcConfig,
}

/// An OpenID Connect provider.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OidcConfig {
    /// Its issuer identifier. None: only tokens of ConfigDB let in.
    pub issuer: Option<String>,
    /// Audience that its tokens are to be for.
    pub audience: String,
    /// PEM file of the authorities for HTTPS to it. None: the system's.
    pub ca_file: Option<PathBuf>,
    /// The claim that the lists below are about.
    pub claim: String,
    /// Values of the claim that make a viewer.
    pub viewers: Vec<String>,
    /// Values of the claim that make an operator.
    pub operators: Vec<String>,
    /// Values of the claim that make an administrator.
    pub administrators: Vec<String>,
    /// `VALUE=CLUSTER`: the value counts on that cluster (its UUID) only. A value may stand here several times.
    pub clusters: Vec<String>,
}

/// The git server.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GitConfig {
    /// Address to serve on; port 0 takes any free one.
    pub listen: SocketAddr,
    /// PEM file of the server's certificate with its chain. None: HTTP without TLS.
    pub cert_file: Option<PathBuf>,
    /// PEM file of the private key to it.
    pub key_file: Option<PathBuf>,
    /// Base URL under which clusters reach it. None: `http://` and the address it serves on.
    pub public_url: Option<String>,
    /// Who may read without logging in: `none` or `loopback`.
    pub anonymous: Anonymous,
    /// Clones and fetches at the same time; more wait.
    pub children_max: usize,
    /// Seconds that one clone or fetch may take.
    pub request_timeout_s: u64,
    /// Directory with charts for the shared repository `shared/helm`. None: the repository is made once, and its content is the operator's.
    pub charts_dir: Option<PathBuf>,
    /// Directory of the files that `auth.secretRef` of a `GitConfig` entry names.
    pub credentials_dir: Option<PathBuf>,
    /// PEM file of the authorities for HTTPS to other git servers. None: the system's.
    pub ca_file: Option<PathBuf>,
    /// Seconds that one fetch from another git server may take.
    pub pull_timeout_s: u64,
    /// The git server of the site, where clusters follow their repositories instead.
    pub external: ExternalConfig,
}

/// A git server that is not ours.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ExternalConfig {
    /// URL of a repository there, with `{name}` for its name. None: clusters follow ours.
    pub url: Option<String>,
    /// File with the credentials of who may push: JSON `{username, password}`, or `user:password`.
    pub credentials_file: Option<PathBuf>,
    /// The same for clusters, which only read.
    pub cluster_credentials_file: Option<PathBuf>,
}

/// What the clusters are told.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EdgeConfig {
    /// MQTT servers for the clusters' own services, as they see them. Empty: their chart's default.
    pub mqtt_servers: Vec<String>,
    /// Kubernetes Secret on the clusters with the credentials for them.
    pub mqtt_secret: Option<String>,
    /// Value `realm` of every deployment.
    pub realm: Option<String>,
    /// Value `directory_url` of every deployment.
    pub directory_url: Option<String>,
    /// Largest manifests of one deployment, in bytes of JSON. The MQTT server must take messages a little larger.
    pub manifests_bytes_max: usize,
}

/// The script that bootstraps a cluster.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BootstrapConfig {
    /// Manifests of Flux, as `flux install --export` writes them: an address that the clusters reach, or a file on this host that travels in the script.
    pub flux: String,
    /// Image with the program `sparkfleet`, by which a cluster enrols. None: the script brings the credentials of its repository.
    pub image: Option<String>,
    /// PEM file of the authorities by which an enrolling cluster trusts the MQTT servers; it travels in the script.
    pub mqtt_ca_file: Option<PathBuf>,
    /// PEM file of the certificate that an enrolling cluster shows to them; it travels in the script.
    pub mqtt_cert_file: Option<PathBuf>,
    /// PEM file of the private key to it.
    pub mqtt_key_file: Option<PathBuf>,
    /// User as which an enrolling cluster logs in to them.
    pub mqtt_username: Option<String>,
    /// File with that user's password; it travels in the script.
    pub mqtt_password_file: Option<PathBuf>,
}

/// Who clusters are known by.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct IdentityConfig {
    /// PEM file with the certificate of an authority that the site made, and those that lead to its root. None: the manager makes its own.
    pub authority_cert_file: Option<PathBuf>,
    /// PEM file with the private key of that authority.
    pub authority_key_file: Option<PathBuf>,
    /// Seconds that a certificate lives.
    pub lifetime_s: u64,
    /// The site's KDC.
    pub kerberos: KerberosConfig,
}

impl Default for IdentityConfig {
    fn default() -> Self {
        Self {
            authority_cert_file: None,
            authority_key_file: None,
            lifetime_s: 30 * 24 * 3600,
            kerberos: KerberosConfig::default(),
        }
    }
}

/// The site's KDC, in which the clusters' accounts have principals.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct KerberosConfig {
    /// Its realm. None: there is no KDC.
    pub realm: Option<String>,
    /// Principal that may administer those of the clusters.
    pub admin_principal: Option<String>,
    /// Its keytab.
    pub keytab_file: Option<PathBuf>,
    /// Configuration of the Kerberos library. None: the system's.
    pub krb5_conf: Option<PathBuf>,
    /// Longest time that one call may take, s.
    pub timeout_s: u64,
}

impl Default for KerberosConfig {
    fn default() -> Self {
        Self { realm: None, admin_principal: None, keytab_file: None, krb5_conf: None, timeout_s: 30 }
    }
}

/// Waiting times.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TimingConfig {
    /// First wait before something unanswered is sent again, or something failed is tried again, in ms.
    pub retry_first_ms: u64,
    /// Longest such wait, in ms.
    pub retry_max_ms: u64,
    /// Seconds that an edge must be away before the tear-down of its cluster goes on without it.
    pub away_s: u64,
    /// Seconds that neither Sync nor Flux of a cluster must be heard before no other repository waits for it.
    pub flux_away_s: u64,
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
            state_dir: StateDir::from("/var/lib/sparkfleet/cluster-manager"),
            mqtt: MqttConfig::default(),
            http: HttpConfig::default(),
            git: GitConfig::default(),
            api: ApiConfig::default(),
            edge: EdgeConfig::default(),
            bootstrap: BootstrapConfig::default(),
            identity: IdentityConfig::default(),
            timing: TimingConfig::default(),
        }
    }
}

impl Default for GitConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            cert_file: None,
            key_file: None,
            public_url: None,
            anonymous: Anonymous::None,
            children_max: 16,
            request_timeout_s: 600,
            charts_dir: None,
            credentials_dir: None,
            ca_file: None,
            external: ExternalConfig::default(),
            pull_timeout_s: 600,
        }
    }
}

impl Default for ApiConfig {
    fn default() -> Self {
        Self { requests_per_minute: 300, address_requests_per_minute: 600, oidc: OidcConfig::default() }
    }
}

impl Default for OidcConfig {
    fn default() -> Self {
        Self {
            issuer: None,
            audience: "sparkfleet".to_owned(),
            ca_file: None,
            claim: "groups".to_owned(),
            viewers: Vec::new(),
            operators: Vec::new(),
            administrators: Vec::new(),
            clusters: Vec::new(),
        }
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

impl OidcConfig {
    /// What the provider's claims come to.
    ///
    /// # Errors
    /// `clusters` does not name values and clusters.
    pub fn rules(&self) -> Result<ClaimRules, ConfigError> {
        let broken = |rule| ConfigError::Key { key: "api.oidc.clusters", rule };
        let set = |values: &[String]| values.iter().cloned().collect::<BTreeSet<_>>();
        let (viewers, operators, administrators) =
            (set(&self.viewers), set(&self.operators), set(&self.administrators));
        let mut clusters = BTreeMap::<String, BTreeSet<Uuid>>::new();
        for line in &self.clusters {
            let (value, cluster) = line.rsplit_once('=').ok_or_else(|| broken("must be VALUE=UUID"))?;
            let cluster = Uuid::try_parse(cluster).map_err(|_| broken("must end with the UUID of a cluster"))?;
            if ![&viewers, &operators, &administrators].iter().any(|values| values.contains(value)) {
                return Err(broken(
                    "names a value that makes nobody anything; put it into viewers, operators or administrators",
                ));
            }
            clusters.entry(value.to_owned()).or_default().insert(cluster);
        }
        Ok(ClaimRules { claim: self.claim.clone(), viewers, operators, administrators, clusters })
    }
}

impl Default for EdgeConfig {
    fn default() -> Self {
        Self {
            mqtt_servers: Vec::new(),
            mqtt_secret: None,
            realm: None,
            directory_url: None,
            manifests_bytes_max: 240 * 1024,
        }
    }
}

impl Default for BootstrapConfig {
    fn default() -> Self {
        Self {
            flux: "https://github.com/fluxcd/flux2/releases/download/v2.7.5/install.yaml".to_owned(),
            image: None,
            mqtt_ca_file: None,
            mqtt_cert_file: None,
            mqtt_key_file: None,
            mqtt_username: None,
            mqtt_password_file: None,
        }
    }
}

impl Default for TimingConfig {
    fn default() -> Self {
        Self { retry_first_ms: 1_000, retry_max_ms: 60_000, away_s: 30, flux_away_s: 600 }
    }
}

/// The keys of this service itself; those of `http` and `mqtt` are their packages'.
pub const KEYS: &[ConfigKey] = &[
    ConfigKey { key: "organisation", default: "ACME", help: "prefix of every group id" },
    ConfigKey {
        key: "state_dir",
        default: "/var/lib/sparkfleet/cluster-manager",
        help: "directory of repositories, their passwords, the bdSeq and the record of writes (audit.jsonl); it is made if it does not exist",
    },
    ConfigKey {
        key: "git.listen",
        default: "127.0.0.1:0",
        help: "address of the git server; port 0 takes any free one, and without git.public_url every start with another port rewrites every repository",
    },
    ConfigKey {
        key: "git.cert_file",
        default: "",
        help: "PEM file of the server's certificate and its chain, for git and the API; it is read again when it has changed; absent: HTTP without TLS",
    },
    ConfigKey { key: "git.key_file", default: "", help: "PEM file of the private key to it" },
    ConfigKey {
        key: "git.public_url",
        default: "",
        help: "base URL under which clusters reach the git server; absent: http:// (with git.cert_file https://) and the address it serves on",
    },
    ConfigKey {
        key: "git.anonymous",
        default: "none",
        help: "who may clone without a password: none, or loopback (clients on this machine; with a proxy here that is everybody)",
    },
    ConfigKey { key: "git.children_max", default: "16", help: "clones and fetches at the same time; more wait" },
    ConfigKey { key: "git.request_timeout_s", default: "600", help: "seconds that one clone or fetch may take" },
    ConfigKey {
        key: "git.charts_dir",
        default: "",
        help: "directory of charts that the repository shared/helm follows; absent: that repository is the operator's",
    },
    ConfigKey {
        key: "git.credentials_dir",
        default: "",
        help: "directory of the files that auth.secretRef of a GitConfig entry names: JSON {\"username\", \"password\"} or user:password",
    },
    ConfigKey {
        key: "git.ca_file",
        default: "",
        help: "PEM file of the certificate authorities for HTTPS to other git servers; absent: the system's",
    },
    ConfigKey {
        key: "git.pull_timeout_s",
        default: "600",
        help: "seconds that one fetch from another git server may take",
    },
    ConfigKey {
        key: "git.external.url",
        default: "",
        help: "URL of a repository on the site's own git server, with {name} for its name (https://gitea.example/factory/{name}.git): clusters follow theirs and shared/helm there, no other shared ones; absent: here",
    },
    ConfigKey {
        key: "git.external.credentials_file",
        default: "",
        help: "file with the credentials that push there: JSON {username, password}, or user:password",
    },
    ConfigKey {
        key: "git.external.cluster_credentials_file",
        default: "",
        help: "file with the credentials that clusters read there with, in the same form; they need no right to write",
    },
    ConfigKey {
        key: "api.requests_per_minute",
        default: "300",
        help: "requests a minute that one credential may make to the API; a fifth of them at once",
    },
    ConfigKey {
        key: "api.address_requests_per_minute",
        default: "600",
        help: "requests a minute that one address may make to the API, whoever asks; a fifth of them at once",
    },
    ConfigKey {
        key: "api.oidc.issuer",
        default: "",
        help: "issuer identifier (https://...) of the OpenID Connect provider whose identities are let in; absent: only tokens are",
    },
    ConfigKey {
        key: "api.oidc.audience",
        default: "sparkfleet",
        help: "audience that the provider's tokens must be for",
    },
    ConfigKey {
        key: "api.oidc.ca_file",
        default: "",
        help: "PEM file of the certificate authorities for HTTPS to the provider; absent: the system's",
    },
    ConfigKey {
        key: "api.oidc.claim",
        default: "groups",
        help: "claim, a text or a list of texts, by which the lists below give a scope",
    },
    ConfigKey { key: "api.oidc.viewers", default: "", help: "values of the claim that make a viewer" },
    ConfigKey { key: "api.oidc.operators", default: "", help: "values of the claim that make an operator" },
    ConfigKey { key: "api.oidc.administrators", default: "", help: "values of the claim that make an administrator" },
    ConfigKey {
        key: "api.oidc.clusters",
        default: "",
        help: "VALUE=UUID: this value of the claim counts on that cluster only; several lines name several. Others count on all",
    },
    ConfigKey {
        key: "edge.mqtt_servers",
        default: "",
        help: "MQTT servers for the clusters' own services, as the clusters see them; absent: their chart's default",
    },
    ConfigKey {
        key: "edge.mqtt_secret",
        default: "",
        help: "Kubernetes Secret on the clusters with the credentials for these servers",
    },
    ConfigKey { key: "edge.realm", default: "", help: "value realm of every deployment" },
    ConfigKey { key: "edge.directory_url", default: "", help: "value directory_url of every deployment" },
    ConfigKey {
        key: "edge.manifests_bytes_max",
        default: "245760",
        help: "size of the largest manifests of one deployment in bytes of JSON; the MQTT server must take messages a little larger",
    },
    ConfigKey {
        key: "bootstrap.flux",
        default: "https://github.com/fluxcd/flux2/releases/download/v2.7.5/install.yaml",
        help: "where the bootstrap script takes Flux from if a cluster has none: an address that clusters reach, such as a mirror, or a file on this host that travels in the script",
    },
    ConfigKey {
        key: "bootstrap.image",
        default: "",
        help: "image with the program sparkfleet, by which a cluster enrols; absent: the script brings the credentials of its repository",
    },
    ConfigKey {
        key: "bootstrap.mqtt_ca_file",
        default: "",
        help: "PEM file of the authorities by which an enrolling cluster trusts edge.mqtt_servers; it travels in the script",
    },
    ConfigKey {
        key: "bootstrap.mqtt_cert_file",
        default: "",
        help: "PEM file of the certificate that an enrolling cluster shows to them, of user ORG-Enrol; it travels in the script",
    },
    ConfigKey { key: "bootstrap.mqtt_key_file", default: "", help: "PEM file of the private key to it" },
    ConfigKey {
        key: "bootstrap.mqtt_username",
        default: "",
        help: "user as which an enrolling cluster logs in to them, where they ask for passwords: ORG-Enrol",
    },
    ConfigKey {
        key: "bootstrap.mqtt_password_file",
        default: "",
        help: "file with that user's password; it travels in the script",
    },
    ConfigKey {
        key: "identity.authority_cert_file",
        default: "",
        help: "PEM file with the certificate of the authority that signs the clusters' certificates, and those that lead to its root; absent: the manager makes its own",
    },
    ConfigKey {
        key: "identity.authority_key_file",
        default: "",
        help: "PEM file with that authority's private key; given together with its certificate",
    },
    ConfigKey { key: "identity.lifetime_s", default: "2592000", help: "seconds that a cluster's certificate lives" },
    ConfigKey {
        key: "identity.kerberos.realm",
        default: "",
        help: "realm of the site's KDC, in which the clusters' accounts get principals (feature kerberos); absent: none do",
    },
    ConfigKey {
        key: "identity.kerberos.admin_principal",
        default: "",
        help: "principal that may make and disable op1flux/... and op1krbkeys/...; needed with the realm",
    },
    ConfigKey {
        key: "identity.kerberos.keytab_file",
        default: "",
        help: "keytab of that principal; needed with the realm",
    },
    ConfigKey {
        key: "identity.kerberos.krb5_conf",
        default: "",
        help: "configuration of the Kerberos library; absent: the system's",
    },
    ConfigKey { key: "identity.kerberos.timeout_s", default: "30", help: "seconds that one call of the KDC may take" },
    ConfigKey {
        key: "timing.retry_first_ms",
        default: "1000",
        help: "milliseconds before something unanswered is sent again for the first time",
    },
    ConfigKey { key: "timing.retry_max_ms", default: "60000", help: "longest such wait in milliseconds" },
    ConfigKey {
        key: "timing.away_s",
        default: "30",
        help: "seconds that an edge must be away before the tear-down of its cluster goes on without it",
    },
    ConfigKey {
        key: "timing.flux_away_s",
        default: "600",
        help: "seconds that neither edge sync nor Flux of a cluster must be heard before the repositories of later waves do not wait for it; more than the interval at which Flux asks",
    },
];

/// What is wrong with a configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// `organisation`.
    #[error("organisation: {0}")]
    Organisation(#[from] NameRule),
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
                true => fault("identity.kerberos.realm", "is missing; admin_principal and keytab_file need it"),
                false => Ok(()),
            };
        };
        let is_word = realm.starts_with(|c: char| c.is_ascii_alphanumeric())
            && realm.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_'));
        if !is_word {
            return fault("identity.kerberos.realm", "must consist of letters, digits, `.`, `-` and `_`");
        }
        if self.admin_principal.is_none() || self.keytab_file.is_none() {
            return fault(
                "identity.kerberos.admin_principal",
                "and identity.kerberos.keytab_file are needed with the realm",
            );
        }
        if !cfg!(feature = "kerberos") {
            return fault("identity.kerberos.realm", "needs a program that is built with the cargo feature kerberos");
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
        if let Some(url) = &self.git.public_url
            && !(url.starts_with("http://") || url.starts_with("https://"))
        {
            return fault("git.public_url", "must begin with http:// or https://");
        }
        if self.git.public_url.as_ref().is_some_and(|url| url.contains('@')) {
            return fault("git.public_url", "must not hold a user or password: it is written into manifests");
        }
        self.validate_bootstrap()?;
        if self.git.children_max == 0 {
            return fault("git.children_max", "is 0; then nobody could clone");
        }
        if self.git.request_timeout_s == 0 {
            return fault("git.request_timeout_s", "is 0; then nobody could clone");
        }
        if self.git.pull_timeout_s == 0 {
            return fault("git.pull_timeout_s", "is 0; then nothing could be pulled");
        }
        if self.git.cert_file.is_some() != self.git.key_file.is_some() {
            return fault("git.cert_file", "and git.key_file go together; give both or none");
        }
        self.git.external.validate()?;
        if self.api.requests_per_minute == 0 {
            return fault("api.requests_per_minute", "is 0; then nobody could ask anything");
        }
        if self.api.address_requests_per_minute == 0 {
            return fault("api.address_requests_per_minute", "is 0; then nobody could ask anything");
        }
        let loopback = ["http://127.0.0.1:", "http://localhost:"];
        if let Some(issuer) = &self.api.oidc.issuer
            && !(issuer.starts_with("https://") || loopback.iter().any(|start| issuer.starts_with(start)))
        {
            return fault("api.oidc.issuer", "must begin with https://, or be on this machine");
        }
        if self.api.oidc.issuer.is_some() && self.api.oidc.audience.is_empty() {
            return fault("api.oidc.audience", "is empty; then tokens for anybody would be taken");
        }
        self.api.oidc.rules()?;
        if self.edge.manifests_bytes_max < 1024 {
            return fault("edge.manifests_bytes_max", "is below 1024; nothing would fit");
        }
        if self.identity.authority_cert_file.is_some() != self.identity.authority_key_file.is_some() {
            return fault("identity.authority_cert_file", "and identity.authority_key_file must be given together");
        }
        if self.identity.lifetime_s < 60 || self.identity.lifetime_s > 366 * 24 * 3600 {
            return fault("identity.lifetime_s", "must be 60 to 31622400: a minute to a year");
        }
        self.identity.kerberos.validate()?;
        if self.timing.retry_first_ms == 0 || self.timing.retry_max_ms < self.timing.retry_first_ms {
            return fault("timing.retry_first_ms", "must be at least 1 and at most timing.retry_max_ms");
        }
        Ok(organisation)
    }

    /// Realm of the site's KDC, if it has one.
    #[must_use]
    pub fn realm(&self) -> Option<&str> {
        self.identity.kerberos.realm.as_deref()
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
    use service_runtime::keys::{self, KeysError};

    #[test]
    fn the_defaults_are_valid() {
        assert_eq!(Config::default().validate().unwrap().as_str(), "ACME");
    }

    #[test]
    fn every_own_key_is_documented_with_its_default() {
        let Err(KeysError::Differ(differences)) = keys::check::<Config>(KEYS) else {
            panic!("the keys of http and mqtt are documented elsewhere")
        };
        let own: Vec<_> =
            differences.iter().filter(|text| !text.contains("mqtt.") && !text.contains("http.")).collect();
        assert!(own.is_empty(), "{own:?}");
    }

    #[test]
    fn a_bad_value_is_named_by_its_key() {
        type Change = fn(&mut Config);
        fn enrolling(config: &mut Config, server: &str) {
            config.bootstrap.image = Some("sparkfleet:1".to_owned());
            config.edge.mqtt_servers = vec![server.to_owned()];
        }
        let cases: [(&str, Change); 26] = [
            ("api.oidc.clusters", |c| c.api.oidc.clusters = vec!["night-shift=Paint_Shop".to_owned()]),
            ("api.oidc.clusters", |c| c.api.oidc.clusters = vec![format!("nobody={}", Uuid::nil())]),
            ("git.pull_timeout_s", |c| c.git.pull_timeout_s = 0),
            ("git.external.url", |c| c.git.external.credentials_file = Some("push".into())),
            ("git.external.url", |c| c.git.external.url = Some("ssh://git.acme.example/{name}".to_owned())),
            ("git.external.url", |c| c.git.external.url = Some("https://bot:pw@git.acme.example/{name}".to_owned())),
            ("git.external.cluster_credentials_file", |c| {
                c.git.external.url = Some("https://git.acme.example/f/{name}.git".to_owned());
            }),
            ("api.oidc.issuer", |c| c.api.oidc.issuer = Some("http://login.acme.example".to_owned())),
            ("git.cert_file", |c| c.git.cert_file = Some("tls.crt".into())),
            ("api.requests_per_minute", |c| c.api.requests_per_minute = 0),
            ("api.address_requests_per_minute", |c| c.api.address_requests_per_minute = 0),
            ("organisation", |c| c.organisation = "A-B".to_owned()),
            ("git.public_url", |c| c.git.public_url = Some("git.acme.example".to_owned())),
            ("git.public_url", |c| c.git.public_url = Some("https://u:p@git.acme.example".to_owned())),
            ("git.children_max", |c| c.git.children_max = 0),
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
            ("identity.authority_cert_file", |c| c.identity.authority_key_file = Some("ca.key".into())),
            ("identity.lifetime_s", |c| c.identity.lifetime_s = 5),
            ("timing.retry_first_ms", |c| c.timing.retry_first_ms = 100_000),
        ];
        for (key, change) in cases {
            let mut config = Config::default();
            change(&mut config);
            assert!(config.validate().unwrap_err().to_string().starts_with(key), "{key}");
        }
    }
}
