//! Simulated hosts: the real bootstrapper on a machine that is not there. A host has a directory that stands for the machine: the seed of its TPM lasts as long as that, its disk until the
//! machine is installed again.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bootstrapper::adapters::simulated::SimulatedHost;
use bootstrapper::adapters::supervisor::Supervisor;
use bootstrapper::config::{ClusterConfig, RoleChoice, TrustConfig};
use bootstrapper::platform::{Activity, Installer, JoinPlan, Outcome, PlatformError};
use bootstrapper::{Ending, Platform};
use bootstrapper_contract::InitParameters;
use configdb_schema::address;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use join_protocol::message::grant::Component;
use join_protocol::secret::{Secret, SecretBytes};
use join_protocol::transcript::{Hash, endorsement_key_id, hash};
use service_runtime::shutdown::Shutdown;
use simulator::cluster::{HostSpec, add_host};
use simulator::kubernetes::Kubernetes;
use sparkplug_mqtt::MqttConfig;
use uuid::Uuid;

use join_trust::files as trust;

/// Where the addresses of simulated hosts lie.
pub const NETWORK: &str = "10.0.0.0/8";

/// What the firmware and the boot loader of an ordinary simulated machine measure, by PCR.
const BOOT_CHAIN: &[(u32, &str)] = &[(4, "boot loader"), (7, "secure boot"), (11, "kernel image")];

/// How long a machine takes to boot, and how long one that cannot run waits.
const BOOT: Duration = Duration::from_secs(3);

/// How often a member looks after its certificates: as the timer of a machine does.
const LOOK: Duration = Duration::from_secs(24 * 3600);

/// How long a machine that renews again and again continues answering in between, ms. For so long an acknowledgement that was missed is repeated. A host that is not known as a
/// member cannot renew.
const RENEW_LINGER_MS: u64 = 10_000;

/// Where the public SSH host key of a machine stands.
const SSH_HOST_KEY: &str = "root/etc/ssh/ssh_host_ed25519_key.pub";

/// How long a failed machine shows why before it reboots, ms.
const REBOOT_AFTER_MS: u64 = 5_000;

/// A simulated machine.
#[derive(Debug, Clone)]
pub struct Machine {
    /// Name that it asks for.
    pub hostname: String,
    /// UUID of its state disk.
    pub disk: Uuid,
    directory: PathBuf,
    host: SimulatedHost,
}

/// To which cluster a machine will join, and whom it believes.
#[derive(Debug, Clone)]
pub struct Home {
    /// Organisation.
    pub organisation: String,
    /// Name of the cluster.
    pub cluster: String,
    /// UUID of the cluster.
    pub uuid: Uuid,
    /// Public key of the organisation's root, hexadecimal.
    pub root: String,
    /// The broker.
    pub mqtt: MqttConfig,
}

/// What an ordinary simulated machine measures; `more` is measured after that.
#[must_use]
pub fn boot_chain(more: &[(u32, String)]) -> Vec<(u32, Hash)> {
    let ordinary = BOOT_CHAIN.iter().map(|(pcr, what)| (*pcr, *what));
    let more = more.iter().map(|(pcr, what)| (*pcr, what.as_str()));
    ordinary.chain(more).map(|(pcr, what)| (pcr, hash("simulated boot", &[what.as_bytes()]))).collect()
}

impl Machine {
    /// The machine of a directory, which is made if there is none. The TPM is that of the directory, the state disk that of cluster and name.
    ///
    /// # Errors
    /// The directory cannot be used.
    pub fn new(directory: &Path, cluster: Uuid, hostname: &str, measured: Vec<(u32, Hash)>) -> anyhow::Result<Self> {
        fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
        let seed: Secret = trust::secret_or_new(&directory.join("tpm.seed"))?;
        let disk = address::v5(&["SimulatedHost", &cluster.to_string(), hostname]);
        let host = SimulatedHost::new(&directory.join("root"), disk, seed).map_err(|error| anyhow!(error))?;
        host.set_boot_chain(measured);
        Ok(Self { hostname: hostname.to_owned(), disk, directory: directory.to_owned(), host })
    }

    /// Wipes its disks, as who installs it again does.
    ///
    /// # Errors
    /// They cannot be removed.
    pub fn wipe(&self) -> anyhow::Result<()> {
        let root = self.directory.join("root");
        match fs::remove_dir_all(&root) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).with_context(|| root.display().to_string())
            }
            _ => fs::create_dir_all(&root).with_context(|| root.display().to_string()),
        }
    }

    /// Its endorsement key as a policy lists it.
    #[must_use]
    pub fn endorsement_key(&self) -> String {
        hex::encode(endorsement_key_id(&self.host.endorsement_key()))
    }

    /// Runs the machine until `stop`. It reboots as often as it has to, and looks after its certificates as often as a machine with the timer does; `renew_every`: so often, and renews
    /// them each time.
    pub async fn run(
        self,
        home: Home,
        role: RoleChoice,
        kubernetes: Option<Kubernetes>,
        renew_every: Option<Duration>,
        stop: Shutdown,
    ) {
        let mut config = self.config(&home, role);
        if renew_every.is_some() {
            (config.renewal.at_percent, config.timeouts.linger_ms) = (0, RENEW_LINGER_MS);
        }
        let looks_every = renew_every.unwrap_or(LOOK);
        if let Err(error) = self.write_ssh_host_key() {
            tracing::warn!(host = self.hostname, error = format!("{error:#}"), "a simulated host has no SSH host key");
        }
        loop {
            let installer = SimulatedKubernetes { host: self.spec(role), api: kubernetes.clone() };
            let platform = Platform { installer: Box::new(installer), ..self.host.platform() };
            let (cluster, host) = (home.cluster.as_str(), self.hostname.as_str());
            match bootstrapper::run(config.clone(), platform, Supervisor::none(), stop.child()).await {
                Ok(Ending::Reboot(reason)) => {
                    tracing::info!(cluster, host, reason, "a simulated host reboots");
                    self.host.reboot();
                }
                Ok(Ending::Blocked(reason)) => {
                    tracing::warn!(cluster, host, reason, "a simulated host cannot join as it is");
                    return;
                }
                Ok(Ending::Stopped) => return,
                // As the timer of a machine does.
                Ok(Ending::Member) => {
                    tokio::select! {
                        () = stop.wait() => return,
                        () = tokio::time::sleep(looks_every) => continue,
                    }
                }
                Err(error) => {
                    tracing::warn!(cluster, host, error = format!("{error:#}"), "a simulated host does not run");
                }
            }
            tokio::select! {
                () = stop.wait() => return,
                () = tokio::time::sleep(BOOT) => {}
            }
        }
    }

    /// A public key that no one has the private half of: enough to be certified.
    fn write_ssh_host_key(&self) -> anyhow::Result<()> {
        let key = hash("simulated SSH host key", &[self.disk.as_bytes()]);
        let blob = [&11_u32.to_be_bytes()[..], b"ssh-ed25519", &32_u32.to_be_bytes(), &key].concat();
        let path = self.directory.join(SSH_HOST_KEY);
        fs::create_dir_all(path.parent().unwrap_or(&self.directory)).with_context(|| path.display().to_string())?;
        fs::write(&path, format!("ssh-ed25519 {} {}\n", STANDARD.encode(blob), self.hostname))
            .with_context(|| path.display().to_string())
    }

    /// An address of its own below 10.0.0.0/8: two hosts cannot have one address, and the machine that runs them has but one.
    fn address(&self) -> Ipv4Addr {
        let bytes = self.disk.as_bytes();
        Ipv4Addr::new(10, bytes[0], bytes[1], bytes[2])
    }

    fn spec(&self, role: RoleChoice) -> HostSpec {
        match role {
            RoleChoice::Worker => HostSpec::worker(&self.hostname),
            RoleChoice::ControlPlane => HostSpec::control_plane(&self.hostname),
        }
    }

    fn config(&self, home: &Home, role: RoleChoice) -> bootstrapper::Config {
        let default = bootstrapper::Config::default();
        bootstrapper::Config {
            organisation: home.organisation.clone(),
            state_dir: self.directory.join("session").into(),
            role,
            node_name: Some(self.hostname.clone()),
            addresses: vec![self.address().to_string()],
            cluster: ClusterConfig { name: home.cluster.clone(), uuid: Some(home.uuid) },
            trust: TrustConfig { root: Some(home.root.clone()), ..TrustConfig::default() },
            disk: bootstrapper::config::DiskConfig { format: true, ..default.disk },
            timeouts: bootstrapper::config::TimeoutsConfig { reboot_ms: REBOOT_AFTER_MS, ..default.timeouts },
            mqtt: home.mqtt.clone(),
            ..bootstrapper::Config::default()
        }
    }
}

/// Kubernetes of a simulated host: a member is a Node of the simulated API, if there is one.
#[derive(Debug)]
struct SimulatedKubernetes {
    host: HostSpec,
    api: Option<Kubernetes>,
}

impl SimulatedKubernetes {
    fn appear(&self, activity: &Activity) -> Outcome<()> {
        activity.say(format!("the simulated kubelet of {} registers its Node", self.host.hostname));
        let Some(api) = &self.api else { return Ok(()) };
        add_host(api, &self.host).map_err(|error| PlatformError::new("the simulated API refuses the Node", error))
    }
}

impl Installer for SimulatedKubernetes {
    fn install<'a>(&'a mut self, components: &'a [Component], activity: Activity) -> BoxFuture<'a, Outcome<()>> {
        activity.say(format!("simulating the installation of {} components", components.len()));
        std::future::ready(Ok(())).boxed()
    }

    fn join<'a>(&'a mut self, _: &'a JoinPlan, activity: Activity) -> BoxFuture<'a, Outcome<()>> {
        std::future::ready(self.appear(&activity)).boxed()
    }

    fn init<'a>(
        &'a mut self,
        parameters: &'a InitParameters,
        activity: Activity,
    ) -> BoxFuture<'a, Outcome<SecretBytes>> {
        let kubeconfig = format!("# The kubeconfig of a simulated cluster: {}\n", parameters.cluster_name);
        std::future::ready(self.appear(&activity).map(|()| kubeconfig.as_str().into())).boxed()
    }

    fn resume(&mut self, activity: Activity) -> BoxFuture<'_, Outcome<()>> {
        std::future::ready(self.appear(&activity)).boxed()
    }
}
