//! The configuration file's keys, their defaults and what they mean; and one validated value made of them.

use std::net::SocketAddr;
use std::path::PathBuf;

use access::claims::ClaimRules;
use configdb_schema::Organisation;
use configdb_schema::address::{CONSOLE_NODE, host_id};
use identity_provider::issuer;
use service_runtime::config::{ConfigTable as _, RangeError, Secret};
use service_runtime::config_table;
use service_runtime::health::HttpConfig;
use service_runtime::service::ServiceConfig;
use service_runtime::state_dir::StateDir;
use sha2::{Digest as _, Sha256};
use sparkplug::{EdgeNodeDescriptor, HostId};
use sparkplug_mqtt::MqttConfig;

use crate::record::Retention;

config_table! {
    /// Configuration of a console, as in its file.
    pub struct Config {
        /// First part of every Sparkplug group.
        organisation: String = "ACME".to_owned();
        /// Directory that keeps the bdSeq and the history between two runs.
        state_dir: StateDir = StateDir::from(".");
        /// Days for which the past of the fleet is kept; 0: it is not recorded.
        history_days: usize = 30, in 0..=36_500;
        /// Bytes that the past may take on the disk; the oldest goes first.
        history_bytes_max: usize = 1024 * 1024 * 1024, in 1024 * 1024..=usize::MAX;
    }
    tables {
        /// What is served, and where.
        web: WebConfig;
        /// Where alerts are passed on to.
        alertmanager: AlertmanagerConfig;
        /// Who signs in because an identity provider vouches for them.
        oidc: OidcConfig;
        /// The broker.
        mqtt: MqttConfig;
        /// Health and metrics.
        http: HttpConfig;
    }
}

config_table! {
    /// What is served, and where.
    pub struct WebConfig {
        /// Address of the page and the API; beyond loopback with web.private or behind a proxy that has a login, because who reaches it reads the fleet.
        listen: SocketAddr = SocketAddr::from(([127, 0, 0, 1], 8482));
        /// PEM file of the certificate chain of the page and the API; absent: they are served without TLS; a changed file is read again.
        cert_file: Option<PathBuf>;
        /// PEM file of the private key to it.
        key_file: Option<PathBuf>;
        /// Names by which the console may be called beside localhost and loopback addresses, without port, as in the Host field of requests.
        allowed_hosts: Vec<String>;
        /// No user can act here, whatever their token allows: for a console whose user at the broker has no right to write.
        read_only: bool;
        /// Reads, too, are for people who have signed in; without it who reaches the console reads, and only who acts signs in.
        private: bool;
        /// A proxy in front of the console ends TLS: people may sign in although the console itself has none; loopback needs neither.
        behind_tls: bool;
        /// Directory whose files are served in place of the built-in page, for its development.
        assets_dir: Option<PathBuf>;
    }
}

config_table! {
    /// An Alertmanager, which groups alerts and notifies people.
    pub struct AlertmanagerConfig {
        /// Address (https://..., or http://... without a password) of the Alertmanager that gets the alerts; absent: none does.
        url: Option<String>;
        /// PEM file of the certificate authorities for HTTPS to the Alertmanager; absent: the system's.
        ca_file: Option<PathBuf>;
        /// As whom the Alertmanager knows the console; empty: it wants no password.
        user: String;
        /// Password of that user.
        password: Secret;
        /// Address of the console as people open it (https://...), for the link in a notification; absent: there is none.
        link: Option<String>;
    }
}

impl AlertmanagerConfig {
    fn check(&self) -> Result<(), ConfigError> {
        // The rule for addresses that are believed, but that alerts alone may go without TLS.
        let is_address = |text: &str| issuer::is_issuer(&text.replacen("http://", "https://", 1));
        match (&self.url, &self.link) {
            (Some(url), _) if !is_address(url) => Err(ConfigError::AlertmanagerUrl),
            (Some(url), _) if !self.user.is_empty() && !issuer::is_issuer(url) => {
                Err(ConfigError::AlertmanagerPassword)
            }
            (_, Some(link)) if !is_address(link) => Err(ConfigError::AlertmanagerLink),
            _ => Ok(()),
        }
    }
}

config_table! {
    /// An OpenID Connect provider, to which people are sent to sign in.
    pub struct OidcConfig {
        /// Issuer identifier (https://...) of the OpenID Connect provider at which people sign in; absent: with tokens only.
        issuer: Option<String>;
        /// As whom the provider knows the console.
        client_id: String = "sparkfleet-console".to_owned();
        /// Secret that the provider gave the console; empty: a public client, protected by PKCE alone.
        client_secret: Secret;
        /// What is asked for beside openid, so that the claim is in the identity.
        scopes: Vec<String> = vec!["profile".to_owned()];
        /// PEM file of the certificate authorities for HTTPS to the provider; absent: the system's.
        ca_file: Option<PathBuf>;
        /// Claim, a text or a list of texts, by which the lists below give a scope.
        claim: String = "groups".to_owned();
        /// Values of the claim that make a viewer.
        viewers: Vec<String>;
        /// Values of the claim that make an operator.
        operators: Vec<String>;
        /// Values of the claim that make an administrator.
        administrators: Vec<String>;
        /// VALUE=UUID: this value of the claim counts on that cluster only; several lines name several. Others count on all.
        clusters: Vec<String>;
    }
}

impl OidcConfig {
    /// What the provider's claims come to.
    ///
    /// # Errors
    /// `clusters` does not name values and clusters.
    pub fn rules(&self) -> Result<ClaimRules, ConfigError> {
        let scopes = [&*self.viewers, &*self.operators, &*self.administrators];
        ClaimRules::new(&self.claim, scopes, &self.clusters).map_err(ConfigError::OidcClusters)
    }

    /// A text that is another one when who signs in would be someone else, or may other things.
    fn fingerprint(&self) -> String {
        let Self { issuer, client_id, claim, viewers, operators, administrators, clusters, .. } = self;
        let rules = format!("{:?}", (issuer, client_id, claim, viewers, operators, administrators, clusters));
        hex::encode(Sha256::digest(rules))
    }

    fn check(&self) -> Result<(), ConfigError> {
        match &self.issuer {
            Some(issuer) if !issuer::is_issuer(issuer) => Err(ConfigError::OidcIssuer),
            Some(_) if self.client_id.is_empty() => Err(ConfigError::OidcClientId),
            _ => self.rules().map(drop),
        }
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
    /// `organisation`, of which ids are made.
    #[error("organisation makes no Sparkplug id: {0}")]
    Id(#[from] sparkplug::NameError),
    /// A number that is out of range.
    #[error(transparent)]
    Range(#[from] RangeError),
    /// `web.allowed_hosts`
    #[error("web.allowed_hosts has {0:?}; it must be a name or address without port, in lower case")]
    AllowedHost(String),
    /// `web.cert_file` and `web.key_file`
    #[error("web.cert_file and web.key_file go together; give both or none")]
    HalfOfTls,
    /// `alertmanager.url`
    #[error("alertmanager.url must be http(s)://HOST without user, query and fragment")]
    AlertmanagerUrl,
    /// `alertmanager.user`
    #[error("alertmanager.user is set, so alertmanager.url {}", issuer::RULE)]
    AlertmanagerPassword,
    /// `alertmanager.link`
    #[error("alertmanager.link must be http(s)://HOST without user, query and fragment")]
    AlertmanagerLink,
    /// `oidc.issuer`
    #[error("oidc.issuer {}", issuer::RULE)]
    OidcIssuer,
    /// `oidc.client_id`
    #[error("oidc.client_id is empty; then identities for any client would be taken")]
    OidcClientId,
    /// `oidc.clusters`
    #[error("oidc.clusters {0}")]
    OidcClusters(&'static str),
    /// `mqtt.*`
    #[error(transparent)]
    Mqtt(#[from] sparkplug_mqtt::MqttConfigError),
}

/// What the process is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The console of a fleet: one node of it.
    Console,
    /// A look at any broker: no Edge Node, no STATE.
    Explorer {
        /// Ask nodes whose birth was not received for a rebirth; otherwise nothing is published.
        rebirths: bool,
    },
    /// A fleet as a console has recorded it: no broker, nothing but the lines of an export.
    Replay,
}

/// What the state and the sessions are made with.
#[derive(Debug, Clone)]
pub struct Settings {
    /// What the process is for.
    pub role: Role,
    /// Whose fleet it is.
    pub organisation: Organisation,
    /// Own address as Edge Node.
    pub node: EdgeNodeDescriptor,
    /// Own id as Host Application.
    pub host_id: HostId,
    /// The broker, for people.
    pub broker: String,
    /// Version of the program.
    pub version: String,
    /// Why no user can act here; None: they can.
    pub read_only: Option<&'static str>,
    /// How long the past is kept; None: it is not recorded.
    pub history: Option<Retention>,
    /// Alerts are passed on.
    pub notifies: bool,
    /// Address of the console as people open it; None: it is not known.
    pub link: Option<String>,
    /// By what the identity provider's claims count: other rules have another text.
    pub rules: String,
    /// First revision of tables: later than any of an earlier process.
    pub rev: u64,
}

/// Revisions of one millisecond: those of a process begin above those of one that started before it, and JavaScript reads them exactly.
const REVISIONS_PER_MS: u64 = 1_000;

impl Config {
    /// Checks everything. `wall`: UTC ms.
    ///
    /// # Errors
    /// The first key at fault.
    pub fn validate(&self, wall: u64) -> Result<Settings, ConfigError> {
        let organisation = Organisation::new(&*self.organisation).map_err(ConfigError::Organisation)?;
        self.mqtt.validate()?;
        let group = organisation.central_group();
        let node = EdgeNodeDescriptor::parse(&group, CONSOLE_NODE)?;
        let host_id = HostId::new(host_id(&group, CONSOLE_NODE))?;
        let is_plain = |host: &&String| {
            !host.is_empty() && host.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c))
        };
        if let Some(host) = self.web.allowed_hosts.iter().find(|host| !is_plain(host)) {
            return Err(ConfigError::AllowedHost(host.clone()));
        }
        self.oidc.check()?;
        self.alertmanager.check()?;
        self.check_ranges()?;
        let keep = Retention { days: self.history_days as u64, bytes: self.history_bytes_max as u64 };
        if self.web.cert_file.is_some() != self.web.key_file.is_some() {
            return Err(ConfigError::HalfOfTls);
        }
        Ok(Settings {
            role: Role::Console,
            organisation,
            node,
            host_id,
            broker: self.mqtt.servers.join(", "),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            read_only: self.web.read_only.then_some("this console is read-only: web.read_only is set"),
            history: (keep.days > 0).then_some(keep),
            notifies: self.alertmanager.url.is_some(),
            link: self.alertmanager.link.clone(),
            rules: self.oidc.fingerprint(),
            rev: wall.saturating_mul(REVISIONS_PER_MS),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_value_is_refused_by_the_name_of_its_key() {
        let web = |web| Config { web, ..Config::default() };
        let host = |host: &str| WebConfig { allowed_hosts: vec![host.to_owned()], ..WebConfig::default() };
        let table = [
            (Config { organisation: "A-B".into(), ..Config::default() }, "organisation: "),
            (web(host("console.example:8482")), "web.allowed_hosts "),
            (web(host("")), "web.allowed_hosts "),
            (Config { history_days: 36_501, ..Config::default() }, "history_days "),
            (Config { history_bytes_max: 1_000, ..Config::default() }, "history_bytes_max "),
            (web(WebConfig { cert_file: Some("tls.crt".into()), ..WebConfig::default() }), "web.cert_file "),
        ];
        let oidc = |oidc| Config { oidc, ..Config::default() };
        let issuer = |issuer: &str| OidcConfig { issuer: Some(issuer.to_owned()), ..OidcConfig::default() };
        let of_cluster = OidcConfig { clusters: vec!["night=x".to_owned()], ..issuer("https://login.example") };
        let wrong = [
            (oidc(issuer("http://login.example")), "oidc.issuer "),
            (oidc(issuer("http://127.0.0.1.example")), "oidc.issuer "),
            (oidc(OidcConfig { client_id: String::new(), ..issuer("https://login.example") }), "oidc.client_id "),
            (oidc(of_cluster), "oidc.clusters "),
        ];
        assert!(oidc(issuer("http://127.0.0.1:9000")).validate(1).is_ok());
        let alertmanager = |url: &str, user: &str, link: Option<&str>| Config {
            alertmanager: AlertmanagerConfig {
                url: Some(url.to_owned()),
                user: user.to_owned(),
                link: link.map(str::to_owned),
                ..AlertmanagerConfig::default()
            },
            ..Config::default()
        };
        let notifying = [
            (alertmanager("alerts.example:9093", "", None), "alertmanager.url "),
            (alertmanager("http://ada:secret@alerts.example", "", None), "alertmanager.url "),
            (alertmanager("http://alerts.example:9093", "ada", None), "alertmanager.user is set, so alertmanager.url "),
            (alertmanager("http://alerts.example", "", Some("console")), "alertmanager.link "),
        ];
        for good in [
            alertmanager("http://alertmanager.monitoring.svc:9093", "", Some("https://console.example")),
            alertmanager("https://alerts.example/am", "ada", None),
            alertmanager("http://127.0.0.1:9093", "ada", None),
        ] {
            assert!(good.validate(1).is_ok(), "{good:?}");
        }
        for (config, start) in table.into_iter().chain(wrong).chain(notifying) {
            let error = config.validate(1).unwrap_err().to_string();
            assert!(error.starts_with(start), "{error:?} should start with {start:?}");
        }
        assert!(web(host("console.example")).validate(1).is_ok());
    }

    #[test]
    fn without_days_there_is_no_history() {
        let none = Config { history_days: 0, ..Config::default() };
        assert_eq!(none.validate(1).unwrap().history, None);
        assert_eq!(Config::default().validate(1).unwrap().history, Some(Retention { days: 30, bytes: 1 << 30 }));
    }

    #[test]
    fn revisions_are_read_exactly_by_javascript() {
        let year_2200 = 7_258_118_400_000;
        assert!(Config::default().validate(year_2200).unwrap().rev < 1 << 53);
    }
}
