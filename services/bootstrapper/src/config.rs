//! The configuration file, its defaults, and one validated value made of it. What each key means is in `config/keys.rs`.

mod keys;

use std::net::IpAddr;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use configdb_schema::{ClusterName, Organisation};
use join_protocol::certificate::TrustAnchor;
use join_protocol::message::evidence::is_node_name;
use join_protocol::terms::{Role, Suite};
use serde::{Deserialize, Serialize};
use service_runtime::health::HttpConfig;
use service_runtime::logging::LogFormat;
use service_runtime::state_dir::StateDir;
use sparkplug::GroupId;
use sparkplug_mqtt::MqttConfig;
use uuid::Uuid;

use crate::state::Settings;
pub use keys::{KEYS, keys};

/// Where etcd, kubelet, k3s and containerd keep what must not be readable on a disk that somebody took away: keys, Secrets, images, logs.
const DIRECTORIES: [&str; 9] = [
    "/etc/kubernetes",
    "/etc/rancher",
    "/var/lib/cni",
    "/var/lib/containerd",
    "/var/lib/etcd",
    "/var/lib/kubelet",
    "/var/lib/rancher",
    "/var/log/kubernetes",
    "/var/log/pods",
];

/// Configuration of a host, as in its file.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// First part of the group.
    pub organisation: String,
    /// Where the bdSeq is kept.
    pub state_dir: StateDir,
    /// What the host wants to be.
    pub role: RoleChoice,
    /// Name that it asks for.
    pub node_name: Option<String>,
    /// Addresses that it is reached by.
    pub addresses: Vec<String>,
    /// Suites of the join protocol, the preferred first.
    pub suites: Vec<String>,
    /// The cluster.
    pub cluster: ClusterConfig,
    /// Whom it believes.
    pub trust: TrustConfig,
    /// Its TPM.
    pub attestation: AttestationConfig,
    /// Its state disk.
    pub disk: DiskConfig,
    /// Its Kubernetes.
    pub kubernetes: KubernetesConfig,
    /// Where files are.
    pub paths: PathsConfig,
    /// How long things may take.
    pub timeouts: TimeoutsConfig,
    /// Certificates of a member.
    pub renewal: RenewalConfig,
    /// The broker.
    pub mqtt: MqttConfig,
    /// Health and metrics.
    pub http: HttpConfig,
    /// The log.
    pub log: LogConfig,
}

/// What a host wants to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RoleChoice {
    /// A worker.
    #[default]
    Worker,
    /// A control plane.
    ControlPlane,
}

/// The Kubernetes distribution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Distribution {
    /// kubeadm and a kubelet of its own.
    Kubeadm,
    /// k3s.
    #[default]
    K3s,
}

impl Distribution {
    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kubeadm => "kubeadm",
            Self::K3s => "k3s",
        }
    }
}

/// The only cluster that the host may join.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClusterConfig {
    /// Its name.
    pub name: String,
    /// Its object in ConfigDB.
    pub uuid: Option<Uuid>,
}

/// Whom the host believes.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TrustConfig {
    /// Public key of the organisation's root, Ed25519, hexadecimal.
    pub root: Option<String>,
    /// Lowest epoch of certificates.
    pub epoch_min: u32,
    /// The wall clock is believed.
    pub clock: bool,
}

/// The TPM.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AttestationConfig {
    /// How it is reached.
    pub tcti: String,
    /// Bank in which the lock register is looked at.
    pub bank: String,
    /// Register that the lock extends.
    pub lock_register: u8,
    /// Its value before, hexadecimal.
    pub lock_before: Option<String>,
    /// Certificates between that of the endorsement key and its manufacturer, PEM.
    pub intermediates: Option<String>,
    /// The event log of firmware.
    pub event_log: PathBuf,
}

/// The state disk.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DiskConfig {
    /// The block device.
    pub device: PathBuf,
    /// Name of its mapping.
    pub mapping: String,
    /// A blank disk, and one that nobody needs, is made anew.
    pub format: bool,
    /// The UUID that it has, and that a blank one gets. None: whichever it has, and a random one.
    pub uuid: Option<Uuid>,
    /// Sectors are authenticated as well.
    pub integrity: bool,
    /// Directories of the host that lie on it.
    pub directories: Vec<PathBuf>,
    /// The cryptsetup program.
    pub cryptsetup: PathBuf,
    /// The program that makes its file system.
    pub mkfs: PathBuf,
    /// The program that mounts it.
    pub mount: PathBuf,
    /// The program that unmounts it.
    pub umount: PathBuf,
}

/// Kubernetes.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct KubernetesConfig {
    /// The distribution.
    pub distribution: Distribution,
    /// The program of the distribution.
    pub program: Option<PathBuf>,
    /// The systemctl program.
    pub systemctl: PathBuf,
    /// Socket of the container runtime, for kubeadm.
    pub container_runtime: String,
    /// Unit of the container runtime, for kubeadm; empty: somebody else starts it.
    pub container_runtime_unit: String,
    /// How often a join is tried.
    pub attempts_max: u32,
    /// Bytes of one component.
    pub component_bytes_max: u64,
    /// Authorities for HTTPS downloads.
    pub ca_file: Option<PathBuf>,
}

/// Where files are; all but programs and the host's own configuration lie below `root`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PathsConfig {
    /// Root directory of the host.
    pub root: PathBuf,
    /// Where the state disk is mounted.
    pub state: PathBuf,
    /// What is gone after a reboot: the temporary passphrase, configurations with tokens.
    pub run: PathBuf,
    /// Public SSH host key.
    pub ssh_host_key: PathBuf,
}

/// How long things may take, ms.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TimeoutsConfig {
    /// Rest after a failure before the lock.
    pub retry_ms: u64,
    /// From a ticket to the lock.
    pub lock_ms: u64,
    /// From the lock to being a member.
    pub member_ms: u64,
    /// How long a failure can be read before the reboot.
    pub reboot_ms: u64,
    /// How long a member goes on answering.
    pub linger_ms: u64,
    /// How long an administrator is asked after a command.
    pub administrator_ms: u64,
    /// One command on the host.
    pub command_ms: u64,
}

/// When certificates of a member are renewed.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RenewalConfig {
    /// How much of their life is over then, per cent.
    pub at_percent: u8,
}

/// How and what is logged.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogConfig {
    /// For people or as JSON.
    pub format: LogFormat,
    /// In the syntax of `RUST_LOG`.
    pub filter: String,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            organisation: "ACME".to_owned(),
            state_dir: StateDir::from("/var/lib/sparkfleet"),
            role: RoleChoice::default(),
            node_name: None,
            addresses: Vec::new(),
            suites: [Suite::XWing, Suite::X25519].map(|suite| suite.name().to_owned()).to_vec(),
            cluster: ClusterConfig::default(),
            trust: TrustConfig::default(),
            attestation: AttestationConfig::default(),
            disk: DiskConfig::default(),
            kubernetes: KubernetesConfig::default(),
            paths: PathsConfig::default(),
            timeouts: TimeoutsConfig::default(),
            renewal: RenewalConfig::default(),
            mqtt: MqttConfig::default(),
            http: HttpConfig::default(),
            log: LogConfig::default(),
        }
    }
}

impl Default for TrustConfig {
    fn default() -> Self {
        Self { root: None, epoch_min: 1, clock: true }
    }
}

impl Default for AttestationConfig {
    fn default() -> Self {
        Self {
            tcti: "device:/dev/tpmrm0".to_owned(),
            bank: "sha256".to_owned(),
            lock_register: 15,
            lock_before: None,
            intermediates: None,
            event_log: "/sys/kernel/security/tpm0/binary_bios_measurements".into(),
        }
    }
}

impl Default for DiskConfig {
    fn default() -> Self {
        Self {
            device: PathBuf::from("/dev/disk/by-partlabel/sparkfleet-state"),
            mapping: "state".to_owned(),
            format: false,
            uuid: None,
            integrity: true,
            directories: DIRECTORIES.map(PathBuf::from).to_vec(),
            cryptsetup: PathBuf::from("/usr/sbin/cryptsetup"),
            mkfs: PathBuf::from("/usr/sbin/mkfs.ext4"),
            mount: PathBuf::from("/usr/bin/mount"),
            umount: PathBuf::from("/usr/bin/umount"),
        }
    }
}

impl Default for KubernetesConfig {
    fn default() -> Self {
        Self {
            distribution: Distribution::default(),
            program: None,
            systemctl: PathBuf::from("/usr/bin/systemctl"),
            container_runtime: "unix:///run/containerd/containerd.sock".to_owned(),
            container_runtime_unit: "containerd.service".to_owned(),
            attempts_max: 3,
            component_bytes_max: 512 * 1024 * 1024,
            ca_file: None,
        }
    }
}

impl Default for PathsConfig {
    fn default() -> Self {
        Self {
            root: PathBuf::from("/"),
            state: PathBuf::from("/run/state"),
            run: PathBuf::from("/run/sparkfleet"),
            ssh_host_key: PathBuf::from("/etc/ssh/ssh_host_ed25519_key.pub"),
        }
    }
}

impl Default for TimeoutsConfig {
    fn default() -> Self {
        Self {
            retry_ms: 30_000,
            lock_ms: 120_000,
            member_ms: 900_000,
            reboot_ms: 60_000,
            linger_ms: 900_000,
            administrator_ms: 600_000,
            command_ms: 300_000,
        }
    }
}

impl Default for RenewalConfig {
    fn default() -> Self {
        Self { at_percent: 66 }
    }
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { format: LogFormat::Human, filter: "info".to_owned() }
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

fn fault<T>(key: &'static str, rule: impl Into<String>) -> Result<T, ConfigError> {
    Err(ConfigError::Key { key, rule: rule.into() })
}

/// A configuration that has been checked.
#[derive(Debug, Clone)]
pub struct Checked {
    /// The quarantine group.
    pub group: GroupId,
    /// For the state.
    pub settings: Settings,
    /// Addresses that the host is reached by.
    pub addresses: Vec<IpAddr>,
    /// Value of the lock register before a lock; None: zeros.
    pub lock_before: Option<Vec<u8>>,
}

impl Config {
    /// Checks everything.
    ///
    /// # Errors
    /// The first key at fault.
    pub fn validate(&self) -> Result<Checked, ConfigError> {
        let organisation = Organisation::new(&*self.organisation).map_err(ConfigError::Organisation)?;
        let name = ClusterName::new(&*self.cluster.name).map_err(ConfigError::ClusterName)?;
        self.mqtt.validate()?;
        let anchor = self.anchor()?;
        let lock_before = self.check_attestation()?;
        let addresses = self.check_rest()?;
        let group = organisation.join_group(&name);
        let ms = Duration::from_millis;
        let timeouts = &self.timeouts;
        let settings = Settings {
            group: group.clone(),
            anchor,
            clock_believed: self.trust.clock,
            role: match self.role {
                RoleChoice::Worker => Role::Worker,
                RoleChoice::ControlPlane => Role::ControlPlane,
            },
            suites: self.suites()?,
            distribution: self.kubernetes.distribution.name(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            retry: ms(timeouts.retry_ms),
            lock_within: ms(timeouts.lock_ms),
            member_within: ms(timeouts.member_ms),
            renew_percent: self.renewal.at_percent,
            reboot_after: ms(timeouts.reboot_ms),
            linger: ms(timeouts.linger_ms),
            administrator_for: ms(timeouts.administrator_ms),
        };
        let group = GroupId::new(group)
            .expect("organisation and cluster names hold only characters that are allowed in a group id");
        Ok(Checked { group, settings, addresses, lock_before })
    }

    fn anchor(&self) -> Result<TrustAnchor, ConfigError> {
        let Some(cluster) = self.cluster.uuid.filter(|uuid| !uuid.is_nil()) else {
            return fault("cluster.uuid", "is missing; it must be the UUID of the cluster's object in ConfigDB");
        };
        let Some(text) = &self.trust.root else {
            return fault("trust.root", "is missing; a host believes nobody without it");
        };
        let mut root = [0; 32];
        match hex::decode_to_slice(text.trim(), &mut root) {
            Ok(()) => Ok(TrustAnchor { root, cluster, epoch_min: self.trust.epoch_min }),
            Err(_) => fault("trust.root", "must have 64 hexadecimal digits"),
        }
    }

    fn suites(&self) -> Result<Vec<Suite>, ConfigError> {
        let suite = |name: &String| match Suite::ALL.iter().find(|suite| suite.name() == name) {
            Some(suite) => Ok(*suite),
            None => fault("suites", format!("holds {name:?}; write x-wing or x25519")),
        };
        match self.suites.iter().map(suite).collect::<Result<Vec<_>, _>>()? {
            suites if suites.is_empty() => fault("suites", "must name at least one"),
            suites => Ok(suites),
        }
    }

    fn check_attestation(&self) -> Result<Option<Vec<u8>>, ConfigError> {
        let attestation = &self.attestation;
        let bytes = match &*attestation.bank {
            "sha256" => 32,
            "sha384" => 48,
            _ => return fault("attestation.bank", "must be sha256 or sha384"),
        };
        if attestation.lock_register > 15 {
            return fault("attestation.lock_register", "must lie between 0 and 15: others can be reset");
        }
        let Some(text) = &attestation.lock_before else { return Ok(None) };
        match hex::decode(text) {
            Ok(value) if value.len() == bytes => Ok(Some(value)),
            _ => fault("attestation.lock_before", format!("must have {} hexadecimal digits", bytes * 2)),
        }
    }

    /// The state disk that the user of the broker is named by, if it is.
    fn user(&self) -> Option<Uuid> {
        self.mqtt.username.as_deref().and_then(|user| Uuid::parse_str(user).ok())
    }

    fn check_rest(&self) -> Result<Vec<IpAddr>, ConfigError> {
        if let Some(name) = self.node_name.as_deref().filter(|name| !is_node_name(name)) {
            let rule = format!("{name:?} is no RFC 1123 subdomain: a-z, 0-9, - and . between letters or digits");
            return fault("node_name", rule);
        }
        let timeouts = &self.timeouts;
        let rules = [
            (self.disk.device.is_absolute(), "disk.device", "must be an absolute path"),
            (
                !self.disk.mapping.is_empty()
                    && self.disk.mapping.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-'),
                "disk.mapping",
                "must be letters, digits and -",
            ),
            (self.disk.uuid.is_none_or(|uuid| !uuid.is_nil()), "disk.uuid", "must not be zero"),
            (
                self.user().zip(self.disk.uuid).is_none_or(|(user, disk)| user == disk),
                "mqtt.username",
                "is another UUID than disk.uuid: a user that is named by a state disk speaks for no other host",
            ),
            (
                self.disk.directories.iter().all(|path| is_plain(path)),
                "disk.directories",
                "must hold absolute paths of letters, digits, /, -, _ and ., without ..",
            ),
            (
                are_apart(&self.disk.directories),
                "disk.directories",
                "holds one directory within another, or twice; name the outer one",
            ),
            (self.paths.root.is_absolute(), "paths.root", "must be an absolute path"),
            (self.paths.state.is_absolute(), "paths.state", "must be an absolute path"),
            (self.paths.run.is_absolute(), "paths.run", "must be an absolute path"),
            ((1..=10).contains(&self.kubernetes.attempts_max), "kubernetes.attempts_max", "must lie between 1 and 10"),
            (self.kubernetes.component_bytes_max > 0, "kubernetes.component_bytes_max", "must be at least 1"),
            (timeouts.lock_ms >= 1_000, "timeouts.lock_ms", "must be at least 1000 (1 s)"),
            (self.renewal.at_percent <= 90, "renewal.at_percent", "must be at most 90"),
            (timeouts.member_ms >= 1_000, "timeouts.member_ms", "must be at least 1000 (1 s)"),
            (timeouts.command_ms >= 1_000, "timeouts.command_ms", "must be at least 1000 (1 s)"),
        ];
        if let Some((_, key, rule)) = rules.into_iter().find(|(is_met, _, _)| !is_met) {
            return fault(key, rule);
        }
        let address = |text: &String| match text.parse() {
            Ok(address) => Ok(address),
            Err(_) => fault("addresses", format!("holds {text:?}, which is no IP address")),
        };
        self.addresses.iter().map(address).collect()
    }
}

/// Absolute, and nothing that a shell, systemd or the kernel's list of mounts writes otherwise.
fn is_plain(path: &Path) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-_.".contains(&byte);
    let parts = path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    path.is_absolute()
        && path != Path::new("/")
        && parts
        && path.as_os_str().as_encoded_bytes().iter().all(|byte| is_plain(*byte))
}

/// None within another.
fn are_apart(paths: &[PathBuf]) -> bool {
    let within = |(at, path): (usize, &PathBuf)| {
        paths.iter().enumerate().any(|(other, outer)| at != other && path.starts_with(outer))
    };
    !paths.iter().enumerate().any(within)
}

#[cfg(test)]
mod tests;
