//! Kubernetes by kubeadm: writes its configuration, runs it, and removes the configuration again. `kubeadm join` is not idempotent: what a failed try left is reset before the next.
//!
//! The units of the kubelet and of the container runtime are never enabled: after a reboot the host is attested first, and its state disk opened.

mod etcd;
mod network;
pub mod render;
mod serving;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bootstrapper_contract::InitParameters;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use join_protocol::message::grant::{Component, Membership};
use join_protocol::secret::SecretBytes;
use join_protocol::terms::Role;
use service_runtime::atomic_file::OWNER_ONLY;
use uuid::Uuid;

use super::audit;
use super::command::Command;
use super::components::Components;
use super::cryptsetup::Removed;
use super::files::{Files, below, remove_folder, write};
use super::systemctl::Systemctl;
use crate::config::Config;
use crate::platform::{Activity, Installer, JoinPlan, Outcome, PlatformError};
use etcd::{CLIENT_PORT, Etcd};
use network::PodNetwork;
use render::Host;

/// Where kubeadm is, unless the configuration says otherwise.
const PROGRAM: &str = "/opt/bin/kubeadm";
/// Static pods; what lies there from before is not ours.
const MANIFESTS: &str = "/etc/kubernetes/manifests";
/// Where kubeadm leaves the administrator's kubeconfig.
const ADMIN_CONFIG: &str = "/etc/kubernetes/admin.conf";
const ADMIN_CONFIG_BYTES_MAX: u64 = 64 * 1024;
/// What the API server writes down about requests.
const AUDIT_POLICY: &str = "/etc/kubernetes/audit-policy.yaml";
const KUBELET: &str = "kubelet.service";
/// What a kubelet cannot start without; a join or an init leaves them.
const KUBELET_FILES: [&str; 2] = ["/etc/kubernetes/kubelet.conf", "/var/lib/kubelet/config.yaml"];
/// What `protectKernelDefaults` wants (`setupKernelTunables` of the kubelet), and a network of pods. Gone with each boot.
const KERNEL_PARAMETERS: [(&str, &str); 7] = [
    ("vm/overcommit_memory", "1"),
    ("vm/panic_on_oom", "0"),
    ("kernel/panic", "10"),
    ("kernel/panic_on_oops", "1"),
    ("kernel/keys/root_maxkeys", "1000000"),
    ("kernel/keys/root_maxbytes", "25000000"),
    ("net/ipv4/ip_forward", "1"),
];
/// Wait after a failed try; it doubles.
const RETRY_AFTER: Duration = Duration::from_secs(2);

/// See the module.
#[derive(Debug)]
pub struct Kubeadm {
    root: PathBuf,
    run: PathBuf,
    program: PathBuf,
    kubectl: PathBuf,
    systemctl: Systemctl,
    /// Unit of the container runtime, if it is started here.
    runtime: Option<String>,
    socket: String,
    attempts_max: u32,
    timeout: Duration,
    files: Files,
    components: Components,
    host: Host,
    /// Wait after a failed try.
    pub retry_after: Duration,
    /// Port on which members of etcd answer clients.
    pub etcd_port: u16,
}

impl Kubeadm {
    /// The installer of this configuration; `addresses`: of the host.
    #[must_use]
    pub fn new(config: &Config, root: &Path, addresses: &[std::net::IpAddr]) -> Self {
        let kubernetes = &config.kubernetes;
        Self {
            root: root.to_owned(),
            run: below(root, &config.paths.run),
            program: kubernetes.program.clone().unwrap_or_else(|| PROGRAM.into()),
            kubectl: kubernetes.kubectl.clone(),
            systemctl: Systemctl::new(kubernetes, root, Duration::from_millis(config.timeouts.member_ms)),
            runtime: Some(kubernetes.container_runtime_unit.clone()).filter(|unit| !unit.is_empty()),
            socket: kubernetes.container_runtime.clone(),
            attempts_max: kubernetes.attempts_max,
            timeout: Duration::from_millis(config.timeouts.member_ms),
            files: Files::new(root, &config.paths),
            components: Components::new(root.to_owned(), kubernetes.component_bytes_max, kubernetes.ca_file.clone()),
            host: Host {
                addresses: addresses.to_vec(),
                socket: kubernetes.container_runtime.clone(),
                state: config.paths.state.clone(),
                member_within: Duration::from_millis(config.timeouts.member_ms),
            },
            retry_after: RETRY_AFTER,
            etcd_port: CLIENT_PORT,
        }
    }

    fn kubeadm(&self) -> Command {
        Command::new(&self.program, self.timeout)
    }

    /// Without a version kubeadm asks the Internet for the newest one, whose images are not those of this host.
    async fn installed_version(&self) -> Outcome<String> {
        let output = self.kubeadm().arguments(["version", "--output", "short"]).succeed().await?;
        let text = String::from_utf8_lossy(&output).trim().to_owned();
        let is_version =
            text.strip_prefix('v').is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()));
        if is_version {
            return Ok(text);
        }
        let program = self.program.display();
        Err(PlatformError(format!("{program} version printed {text:?}, not a version; name it in kubernetesVersion")))
    }

    /// A configuration for kubeadm, gone when it is dropped.
    fn configuration(&self, text: &[u8]) -> Outcome<Removed> {
        let file = Removed(self.run.join(format!("kubeadm-{}.yaml", Uuid::new_v4().simple())));
        write(&file.0, text, OWNER_ONLY)?;
        Ok(file)
    }

    fn empty_manifests(&self) -> Outcome<()> {
        let folder = below(&self.root, Path::new(MANIFESTS));
        remove_folder(&folder)?;
        fs::create_dir_all(&folder).map_err(|error| PlatformError::new(folder.display(), error))
    }

    async fn reset(&self, plan: &JoinPlan) -> Outcome<()> {
        let reset = self.kubeadm().arguments(["reset", "--force", "--cri-socket"]).arguments([&self.socket]);
        without_secrets(reset, &plan.membership).succeed().await.map(drop)
    }

    /// Gives the kernel what a kubelet wants of it.
    fn set_kernel_parameters(&self) -> Outcome<()> {
        for (name, value) in KERNEL_PARAMETERS {
            let path = below(&self.root, Path::new("/proc/sys")).join(name);
            // One that is right is not written: not every root may.
            if fs::read_to_string(&path).is_ok_and(|found| found.trim() == value) {
                continue;
            }
            fs::write(&path, value)
                .map_err(|error| PlatformError::new(format_args!("cannot set {} to {value}", path.display()), error))?;
        }
        Ok(())
    }

    /// Everything that runs below a kubelet.
    async fn prepare_host(&self, activity: &Activity) -> Outcome<()> {
        self.set_kernel_parameters()?;
        self.systemctl.release()?;
        if let Some(runtime) = &self.runtime {
            activity.say(format!("starting {runtime}"));
            // One that was running has the directory that is covered now.
            self.systemctl.run(&["restart", runtime]).await?;
        }
        Ok(())
    }

    fn write_audit_policy(&self) -> Outcome<()> {
        write(&below(&self.root, Path::new(AUDIT_POLICY)), audit::POLICY.as_bytes(), 0o644)
    }

    async fn leave_etcd(&self, plan: &JoinPlan, activity: &Activity) -> Outcome<()> {
        let (root, port) = (self.root.as_path(), self.etcd_port);
        let (node_name, servers) = (plan.membership.node_name.as_str(), plan.membership.servers.as_slice());
        let etcd = Etcd { root, node_name, addresses: &self.host.addresses, servers, port };
        for member in etcd.remove_own().await? {
            tracing::warn!(member, "what this host was in etcd before it lost its disk was removed");
            activity.say(format!("etcd no longer counts {member}, which this host was before"));
        }
        Ok(())
    }

    async fn try_join(&self, plan: &JoinPlan, server: Option<&str>, activity: &Activity) -> Outcome<()> {
        self.empty_manifests()?;
        if is_control_plane(plan.role) {
            self.write_audit_policy()?;
            self.leave_etcd(plan, activity).await?;
        }
        let text = render::join(plan, server, &self.host)?;
        let file = self.configuration(&text)?;
        let join = self.kubeadm().arguments(["join", "--config"]).arguments([&file.0]);
        without_secrets(join, &plan.membership).succeed().await.map(drop)
    }

    async fn join_with_retries(&self, plan: &JoinPlan, activity: &Activity) -> Outcome<()> {
        self.prepare_host(activity).await?;
        let mut wait = self.retry_after;
        // Another server each time: the first may be the one that is down.
        let mut servers = plan.membership.servers.iter().cycle();
        let mut attempt = 1;
        loop {
            activity.say(format!("kubeadm join, try {attempt} of {}", self.attempts_max));
            let Err(error) = self.try_join(plan, servers.next().map(String::as_str), activity).await else {
                return Ok(());
            };
            tracing::warn!(%error, attempt, "kubeadm join failed, and is reset");
            activity.say(format!("kubeadm reset after try {attempt}"));
            // After the last one too: it takes a control plane out of etcd again, which would count it for its quorum.
            if let Err(error) = self.reset(plan).await {
                tracing::warn!(%error, "kubeadm reset failed");
            }
            if attempt == self.attempts_max {
                return Err(error);
            }
            // A reset takes the keys of a control plane away, too.
            self.files.write_membership(&plan.membership, None)?;
            tokio::time::sleep(wait).await;
            wait *= 2;
            attempt += 1;
        }
    }

    async fn apply(&self, network: &PodNetwork, activity: &Activity) -> Outcome<()> {
        let config = below(&self.root, Path::new(ADMIN_CONFIG));
        let rendered = network.rendered.as_ref().map(|text| self.configuration(text.as_bytes())).transpose()?;
        let rendered = rendered.as_ref().map(|file| &file.0);
        for manifest in network.files.iter().chain(rendered) {
            activity.say(format!("applying {}", manifest.display()));
            let apply = Command::new(&self.kubectl, self.timeout).arguments(["apply", "--server-side", "--kubeconfig"]);
            apply.arguments([&config]).arguments(["--filename"]).arguments([manifest]).succeed().await?;
        }
        Ok(())
    }

    async fn make(&self, parameters: &InitParameters, activity: &Activity) -> Outcome<SecretBytes> {
        // Before anything is made: what is missing is named while the host can still be given it.
        let network = PodNetwork::of(parameters, &self.root)?;
        let kubernetes_version = match parameters.kubernetes_version.as_str() {
            "" => self.installed_version().await?,
            given => given.to_owned(),
        };
        let pod_subnet = network.subnet.clone();
        let parameters = &InitParameters { kubernetes_version, pod_subnet, ..parameters.clone() };
        self.prepare_host(activity).await?;
        self.empty_manifests()?;
        self.write_audit_policy()?;
        let file = self.configuration(&render::init(parameters, &self.host)?)?;
        activity.say("kubeadm init: the cluster's authority");
        self.kubeadm().arguments(["init", "phase", "certs", "ca", "--config"]).arguments([&file.0]).succeed().await?;
        serving::issue(&self.root, &self.files, &parameters.node_name, &self.host.addresses)?;
        activity.say("kubeadm init");
        self.kubeadm().arguments(["init", "--skip-token-print", "--config"]).arguments([&file.0]).succeed().await?;
        self.apply(&network, activity).await?;
        read_secret(&below(&self.root, Path::new(ADMIN_CONFIG)), ADMIN_CONFIG_BYTES_MAX)
    }

    async fn start(&self, activity: &Activity) -> Outcome<()> {
        for path in KUBELET_FILES.map(|path| below(&self.root, Path::new(path))) {
            if !path.exists() {
                let text = format!("{} is missing: this member cannot be started", path.display());
                return Err(PlatformError(format!("{text}, reset the host to join again")));
            }
        }
        self.prepare_host(activity).await?;
        activity.say("starting the kubelet");
        self.systemctl.run(&["start", KUBELET]).await
    }
}

/// Secrets of a ticket are not reported, whatever the program prints.
fn without_secrets(command: Command, membership: &Membership) -> Command {
    let files = membership.files.iter().map(|(_, content)| content);
    let secrets = [&membership.token, &membership.node_password].into_iter().chain(files);
    secrets.fold(command, |command, secret| command.secret(secret.expose()))
}

/// A small file that no other user may read.
pub(super) fn read_secret(path: &Path, bytes_max: u64) -> Outcome<SecretBytes> {
    let unreadable = |error: &dyn std::fmt::Display| PlatformError::new(path.display(), error);
    let length = fs::metadata(path).map_err(|error| unreadable(&error))?.len();
    if length > bytes_max {
        return Err(unreadable(&format_args!("has {length} bytes; at most {bytes_max} are allowed")));
    }
    fs::read(path).map(SecretBytes::new).map_err(|error| unreadable(&error))
}

impl Installer for Kubeadm {
    fn install<'a>(&'a mut self, components: &'a [Component], activity: Activity) -> BoxFuture<'a, Outcome<()>> {
        async move { self.components.install(components, &activity).await }.boxed()
    }

    fn join<'a>(&'a mut self, plan: &'a JoinPlan, activity: Activity) -> BoxFuture<'a, Outcome<()>> {
        async move { self.join_with_retries(plan, &activity).await }.boxed()
    }

    fn init<'a>(
        &'a mut self,
        parameters: &'a InitParameters,
        activity: Activity,
    ) -> BoxFuture<'a, Outcome<SecretBytes>> {
        async move { self.make(parameters, &activity).await }.boxed()
    }

    fn resume(&mut self, activity: Activity) -> BoxFuture<'_, Outcome<()>> {
        async move { self.start(&activity).await }.boxed()
    }

    fn stop(&mut self) -> BoxFuture<'_, Outcome<()>> {
        async move {
            let units: Vec<&str> = [KUBELET].into_iter().chain(self.runtime.as_deref()).collect();
            self.systemctl.stop(&units).await
        }
        .boxed()
    }

    fn renewed(&mut self, activity: Activity) -> BoxFuture<'_, ()> {
        async move { self.systemctl.renewed(&[KUBELET], &activity).await }.boxed()
    }
}

/// True for the role that has files of its own.
pub(super) const fn is_control_plane(role: Role) -> bool {
    matches!(role, Role::ControlPlane)
}
