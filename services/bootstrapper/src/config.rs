//! The configuration file, its defaults, and one validated value made of it.

use std::net::IpAddr;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use configdb_schema::{ClusterName, Organisation};
use join_protocol::certificate::TrustAnchor;
use join_protocol::message::evidence::is_node_name;
use join_protocol::terms::{Role, Suite};
use serde::{Deserialize, Serialize};
use service_runtime::config::{ConfigTable as _, RangeError};
use service_runtime::config_table;
use service_runtime::health::HttpConfig;
use service_runtime::logging::LogSection;
use service_runtime::state_dir::StateDir;
use sparkplug::GroupId;
use sparkplug_mqtt::MqttConfig;
use uuid::Uuid;

use crate::settings::Settings;

/// Where etcd, kubelet, k3s and containerd keep what must not be readable on a stolen disk: keys, Secrets, images, logs.
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

/// A container runtime that keeps its state elsewhere: its unit, and where.
const CRI_O: (&str, &str) = ("crio.service", "/var/lib/containers");

config_table! {
    /// Configuration of a host, as in its file.
    pub struct Config {
        /// First part of the Sparkplug group.
        organisation: String = "ACME".to_owned();
        /// Directory that keeps the bdSeq between two runs.
        state_dir: StateDir = StateDir::from("/var/lib/sparkfleet");
        /// Worker or control-plane; the cluster's policy decides whether the host may be it.
        role: RoleChoice;
        /// Name that the host asks for; absent: its host name.
        node_name: Option<String>;
        /// Addresses by which the host is reached, for its certificates; the first is its node address; empty: none but, for SSH, that by which it reaches the broker.
        addresses: Vec<String>;
        /// Suites of the join protocol, the preferred first.
        suites: Vec<String> = [Suite::XWing, Suite::X25519].map(|suite| suite.name().to_owned()).to_vec();
    }
    tables {
        /// The cluster.
        cluster: ClusterConfig;
        /// Whom it believes.
        trust: TrustConfig;
        /// Its TPM.
        attestation: AttestationConfig;
        /// Its state disk.
        disk: DiskConfig;
        /// Its Kubernetes.
        kubernetes: KubernetesConfig;
        /// Where files are.
        paths: PathsConfig;
        /// How long things may take.
        timeouts: TimeoutsConfig;
        /// Certificates of a member.
        renewal: RenewalConfig;
        /// The broker.
        mqtt: MqttConfig;
        /// Health and metrics.
        http: HttpConfig;
        /// The log.
        log: LogSection;
    }
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

config_table! {
    /// The only cluster that the host may join.
    pub struct ClusterConfig {
        /// Name of the only cluster that the host may join.
        name: String;
        /// UUID of the cluster's object in ConfigDB.
        uuid: Option<Uuid>;
    }
}

config_table! {
    /// Whom the host believes.
    pub struct TrustConfig {
        /// Public key of the organisation's root (Ed25519), 64 hexadecimal digits.
        root: Option<String>;
        /// Issuer certificates of a lower epoch are revoked.
        epoch_min: u32 = 1;
        /// The clock is believed once it says 2025 or later; false: times of certificates are not looked at.
        clock: bool = true;
    }
}

config_table! {
    /// The TPM.
    pub struct AttestationConfig {
        /// How the TPM is reached, in the words of tpm2-tss.
        tcti: String = "device:/dev/tpmrm0".to_owned();
        /// Bank in which the lock PCR is looked at, sha256 or sha384; what is quoted is the policy's to say.
        bank: String = "sha256".to_owned();
        /// PCR that is extended when the host takes its ticket, others can be reset; as in the policy (lock.pcr).
        lock_pcr: u8 = 15, in 0..=15;
        /// Value of that PCR before, hexadecimal; absent: zeros; as in the policy (lock.before).
        lock_before: Option<String>;
        /// Certificates between that of the endorsement key and its manufacturer, PEM, if the TPM does not hold them; at most three are sent; better given as attestation.intermediates_file.
        intermediates: Option<String>;
        /// The initial attestation key (IAK) that the machine's maker has put into the TPM vouches for the host, beside the endorsement key; its certificates are read from the TPM.
        iak: bool;
        /// Event log of firmware, which is sent where the policy judges by events (boot).
        event_log: PathBuf = "/sys/kernel/security/tpm0/binary_bios_measurements".into();
    }
}

config_table! {
    /// The state disk.
    pub struct DiskConfig {
        /// Block device of the state disk.
        device: PathBuf = PathBuf::from("/dev/disk/by-partlabel/sparkfleet-state");
        /// Name of its mapping below /dev/mapper.
        mapping: String = "state".to_owned();
        /// Format a blank disk, and again one that no member needs; a disk that cannot be read is never touched.
        format: bool;
        /// UUID of the state disk; absent: a random one. A blank disk gets it, and a disk with another one is not used. It is the host's name at the broker if the host has credentials of its own.
        uuid: Option<Uuid>;
        /// New disks authenticate their sectors as well (dm-integrity).
        integrity: bool = true;
        /// Whether a member's disk has a second key, sealed to the TPM, where the policy allows it. By this key the host comes back when no issuer answers. If false, there is
        /// never one, and an existing one is taken away.
        local_unlock: bool = true;
        /// Directories of the host that lie on the state disk, as bind mounts, before anything of Kubernetes is started.
        directories: Vec<PathBuf> = DIRECTORIES.map(PathBuf::from).to_vec();
        /// The cryptsetup program.
        cryptsetup: PathBuf = PathBuf::from("/usr/sbin/cryptsetup");
        /// The program that makes its file system.
        mkfs: PathBuf = PathBuf::from("/usr/sbin/mkfs.ext4");
        /// The program that mounts it.
        mount: PathBuf = PathBuf::from("/usr/bin/mount");
        /// The program that unmounts it.
        umount: PathBuf = PathBuf::from("/usr/bin/umount");
    }
}

config_table! {
    /// Kubernetes.
    pub struct KubernetesConfig {
        /// `k3s` or `kubeadm`.
        distribution: Distribution;
        /// Program of the distribution; absent: /usr/local/bin/k3s or /opt/bin/kubeadm.
        program: Option<PathBuf>;
        /// The kubectl program, for kubeadm: applies the manifests of an init, such as the network of pods.
        kubectl: PathBuf = PathBuf::from("/opt/bin/kubectl");
        /// The systemctl program.
        systemctl: PathBuf = PathBuf::from("/usr/bin/systemctl");
        /// Socket of the container runtime, for kubeadm.
        container_runtime: String = "unix:///run/containerd/containerd.sock".to_owned();
        /// Unit of systemd of the container runtime, for kubeadm: started before it, once its directory lies on the state disk; empty: it is started otherwise.
        container_runtime_unit: String = "containerd.service".to_owned();
        /// How often a join is tried; between two tries it is reset.
        attempts_max: u32 = 3, in 1..=10;
        /// Bytes that a downloaded component may have.
        component_bytes_max: u64 = 512 * 1024 * 1024, in 1..=u64::MAX;
        /// PEM file of the authorities for HTTPS downloads; absent: those of the system.
        ca_file: Option<PathBuf>;
    }
}

config_table! {
    /// Where files are; all but programs and the host's own configuration lie below `root`.
    pub struct PathsConfig {
        /// Root directory of the host: devices, files and components lie below it; programs that are started here, and what this configuration reads, do not.
        root: PathBuf = PathBuf::from("/");
        /// Where the state disk is mounted.
        state: PathBuf = PathBuf::from("/run/state");
        /// Directory of what must be gone after a reboot: the temporary passphrase, configurations with tokens.
        run: PathBuf = PathBuf::from("/run/sparkfleet");
        /// Public SSH host key that is certified, if there is one.
        ssh_host_key: PathBuf = PathBuf::from("/etc/ssh/ssh_host_ed25519_key.pub");
    }
}

config_table! {
    /// How long things may take, ms.
    pub struct TimeoutsConfig {
        /// Rest after a failure before the lock.
        retry_ms: u64 = 30_000;
        /// How long a member asks for the key of its disk before it takes the one that is sealed to its TPM.
        local_unlock_ms: u64 = 60_000;
        /// Longest time from a ticket to the lock.
        lock_ms: u64 = 120_000, in 1_000..=u64::MAX;
        /// Longest time from the lock until the host is a member; kubeadm waits a third of it for each thing that it has started.
        member_ms: u64 = 900_000, in 1_000..=u64::MAX;
        /// How long a failure after the lock can be read before the host reboots.
        reboot_ms: u64 = 60_000;
        /// How long a member keeps answering on the broker.
        linger_ms: u64 = 900_000;
        /// How long an administrator is asked, too, after each command.
        administrator_ms: u64 = 600_000;
        /// Longest time of one command on the host.
        command_ms: u64 = 300_000, in 1_000..=u64::MAX;
    }
}

config_table! {
    /// When certificates of a member are renewed.
    pub struct RenewalConfig {
        /// Share of the validity of a member's certificates after which they are renewed; checked when the program is started on a member; 0: at each start.
        at_percent: u8 = 66, in 0..=90;
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
    /// A number that is out of range.
    #[error(transparent)]
    Range(#[from] RangeError),
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
    /// Value of the lock PCR before a lock; None: zeros.
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
        self.check_ranges()?;
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
            local_unlock_after: self.disk.local_unlock.then(|| ms(timeouts.local_unlock_ms)),
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
            return fault("trust.root", "is missing; a host believes no issuer without it");
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

    /// Whether a directory of the host lies on the state disk.
    fn has_directory(&self, path: &str) -> bool {
        self.disk.directories.iter().any(|directory| Path::new(path).starts_with(directory))
    }

    fn check_rest(&self) -> Result<Vec<IpAddr>, ConfigError> {
        if let Some(name) = self.node_name.as_deref().filter(|name| !is_node_name(name)) {
            let rule = format!("{name:?} is not an RFC 1123 subdomain: a-z, 0-9, - and . between letters or digits");
            return fault("node_name", rule);
        }
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
            (
                self.kubernetes.container_runtime_unit != CRI_O.0 || self.has_directory(CRI_O.1),
                "disk.directories",
                "must hold /var/lib/containers: kubernetes.container_runtime_unit is crio.service, which keeps images and containers there",
            ),
            (self.paths.root.is_absolute(), "paths.root", "must be an absolute path"),
            (self.paths.state.is_absolute(), "paths.state", "must be an absolute path"),
            (self.paths.run.is_absolute(), "paths.run", "must be an absolute path"),
        ];
        if let Some((_, key, rule)) = rules.into_iter().find(|(is_met, _, _)| !is_met) {
            return fault(key, rule);
        }
        let address = |text: &String| match text.parse() {
            Ok(address) => Ok(address),
            Err(_) => fault("addresses", format!("holds {text:?}, which is not an IP address")),
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
