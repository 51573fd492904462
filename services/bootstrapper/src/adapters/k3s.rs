//! Kubernetes by k3s: writes `config.yaml`, token and node password, starts the service, and waits until it has what only a member has.
//!
//! k3s tries to join by itself for as long as it runs, so a try spoils nothing. Its service wants the token at each start: the file stays (mode 0600); a join token is over after some
//! minutes anyway.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bootstrapper_contract::{InitParameters, Manifests};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use join_protocol::message::grant::{Component, Membership};
use join_protocol::secret::SecretBytes;
use join_protocol::terms::Role;
use serde_json::{Map, Value, json};
use service_runtime::atomic_file::OWNER_ONLY;
use zeroize::Zeroizing;

use super::audit;
use super::components::Components;
use super::files::{below, make_folder, remove, write};
use super::kubeadm::{is_control_plane, read_secret};
use super::systemctl::Systemctl;
use crate::config::Config;
use crate::platform::{Activity, Installer, JoinPlan, Outcome, PlatformError};

const CONFIG: &str = "/etc/rancher/k3s/config.yaml";
const TOKEN: &str = "/etc/rancher/k3s/token";
const NODE_PASSWORD: &str = "/etc/rancher/node/password";
const KUBECONFIG: &str = "/etc/rancher/k3s/k3s.yaml";
const KUBECONFIG_BYTES_MAX: u64 = 64 * 1024;
/// The supervisor gives it to a node that it has accepted.
const AGENT_PROOF: &str = "/var/lib/rancher/k3s/agent/kubelet.kubeconfig";
/// What a server keeps. k3s makes it for root alone, where it does not find it.
const SERVER_DATA: &str = "/var/lib/rancher/k3s/server";
/// What the API server of a server writes down.
const AUDIT_POLICY_FILE: &str = "/var/lib/rancher/k3s/server/audit.yaml";
/// Where it does.
const AUDIT_LOGS: &str = "/var/lib/rancher/k3s/server/logs";
const SERVER: &str = "k3s.service";
const AGENT: &str = "k3s-agent.service";
/// A server that takes longer is passed over.
const SERVER_ANSWERS_WITHIN: Duration = Duration::from_secs(2);
/// How often a file that is waited for is looked for.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// How long a member that is started is waited for, before it is said that it does not run yet.
const RUNS_WITHIN: Duration = Duration::from_secs(60);
/// It runs if it does at so many looks in a row: one that ends at once is started again by systemd.
const STEADY_LOOKS: u32 = 5;

/// See the module.
#[derive(Debug)]
pub struct K3s {
    root: PathBuf,
    systemctl: Systemctl,
    timeout: Duration,
    components: Components,
    address: Option<std::net::IpAddr>,
    role: Role,
    /// Why what was started does not run yet.
    fault: Option<String>,
}

impl K3s {
    /// The installer of this configuration; `addresses`: of the host.
    #[must_use]
    pub fn new(config: &Config, root: &Path, addresses: &[std::net::IpAddr], role: Role) -> Self {
        let kubernetes = &config.kubernetes;
        Self {
            root: root.to_owned(),
            systemctl: Systemctl::new(kubernetes, root, Duration::from_millis(config.timeouts.member_ms)),
            timeout: Duration::from_millis(config.timeouts.member_ms),
            components: Components::new(root.to_owned(), kubernetes.component_bytes_max, kubernetes.ca_file.clone()),
            address: addresses.first().copied(),
            role,
            fault: None,
        }
    }

    fn at(&self, path: &str) -> PathBuf {
        below(&self.root, Path::new(path))
    }

    fn write_secret(&self, path: &str, content: &[u8]) -> Outcome<()> {
        write(&self.at(path), content, OWNER_ONLY)
    }

    /// What only a server needs before it is started.
    fn prepare_server(&self) -> Outcome<()> {
        for folder in [SERVER_DATA, AUDIT_LOGS] {
            make_folder(&self.at(folder), 0o700)?;
        }
        write(&self.at(AUDIT_POLICY_FILE), audit::POLICY.as_bytes(), OWNER_ONLY)
    }

    /// Starts a service; it may do so for ever, which is bounded by the waiting that follows. It is not enabled: after a reboot the host is attested first.
    async fn start(&self, service: &str) -> Outcome<()> {
        self.systemctl.release()?;
        self.systemctl.run(&["restart", "--no-block", service]).await
    }

    /// Waits until a file is there. k3s reports it in no other way.
    async fn wait_for(&self, path: &str) -> Outcome<()> {
        let path = self.at(path);
        let wait = async {
            while !path.exists() {
                tokio::time::sleep(LOOK_INTERVAL).await;
            }
        };
        let late = |_| PlatformError(format!("{} did not appear within {} s", path.display(), self.timeout.as_secs()));
        tokio::time::timeout(self.timeout, wait).await.map_err(late)
    }

    async fn join_once(&self, plan: &JoinPlan, activity: &Activity) -> Outcome<()> {
        let membership = &plan.membership;
        self.write_secret(TOKEN, secure_token(membership)?.as_bytes())?;
        if !membership.node_password.expose().is_empty() {
            self.write_secret(NODE_PASSWORD, membership.node_password.expose())?;
        }
        let server = first_that_answers(&membership.servers).await;
        let is_server = is_control_plane(plan.role);
        if is_server {
            self.prepare_server()?;
        }
        self.write_secret(CONFIG, &render_join(membership, server, self.address, is_server)?)?;
        let service = if is_server { SERVER } else { AGENT };
        remove(&self.at(AGENT_PROOF))?;
        activity.say(format!("starting {service}"));
        self.start(service).await?;
        activity.say("waiting for the cluster to accept the node");
        self.wait_for(AGENT_PROOF).await
    }

    async fn make(&self, parameters: &InitParameters, activity: &Activity) -> Outcome<SecretBytes> {
        if matches!(parameters.manifests, Manifests::Files(_)) {
            let text = "manifests: k3s applies what lies in /var/lib/rancher/k3s/server/manifests; bring it there as components";
            return Err(PlatformError(text.to_owned()));
        }
        self.prepare_server()?;
        self.write_secret(CONFIG, &render_init(parameters, self.address)?)?;
        for path in [KUBECONFIG, AGENT_PROOF] {
            remove(&self.at(path))?;
        }
        activity.say(format!("starting {SERVER}"));
        self.start(SERVER).await?;
        activity.say("waiting for the API");
        self.wait_for(KUBECONFIG).await?;
        self.wait_for(AGENT_PROOF).await?;
        let kubeconfig = read_secret(&self.at(KUBECONFIG), KUBECONFIG_BYTES_MAX)?;
        Ok(with_endpoint(&kubeconfig, &parameters.endpoint))
    }

    /// Waits until a service runs; else why it does not. The member does not fail by that: a server waits for the others of its cluster, and a reboot would begin again.
    async fn hindrance(&self, service: &str) -> Option<String> {
        let (mut state, mut looks) = (String::new(), 0);
        // Long before the whole start has taken too long.
        let within = RUNS_WITHIN.min(self.timeout / 3);
        let wait = async {
            while looks < STEADY_LOOKS {
                tokio::time::sleep(LOOK_INTERVAL).await;
                state = self.systemctl.state(service).await.unwrap_or_else(|error| error.0);
                looks = if state == "active" { looks + 1 } else { 0 };
            }
        };
        let late = tokio::time::timeout(within, wait).await.is_err();
        late.then(|| format!("{service} does not run {} s after its start: its state is {state}", within.as_secs()))
    }

    async fn resume(&mut self, activity: &Activity) -> Outcome<()> {
        // A server's configuration says where the cluster began, or the role of the host what it is.
        let path = self.at(CONFIG);
        let unusable = |error: &dyn std::fmt::Display| {
            PlatformError::new(
                path.display(),
                format_args!("{error}; this member cannot be started, reset the host to join again"),
            )
        };
        let config = fs::read(&path).map_err(|error| unusable(&error))?;
        let config: Value = serde_json::from_slice(&config).map_err(|error| unusable(&error))?;
        let is_server = config["cluster-init"] == true || is_control_plane(self.role);
        let service = if is_server { SERVER } else { AGENT };
        activity.say(format!("starting {service}"));
        self.systemctl.release()?;
        self.systemctl.run(&["start", "--no-block", service]).await?;
        self.fault = self.hindrance(service).await;
        if let Some(fault) = &self.fault {
            tracing::warn!(fault, "the member does not run yet");
        }
        Ok(())
    }
}

/// The token in the form that pins the cluster's authority: without it any machine could pose as the server.
fn secure_token(membership: &Membership) -> Outcome<Zeroizing<String>> {
    let token = Zeroizing::new(String::from_utf8_lossy(membership.token.expose()).into_owned());
    if token.starts_with("K10") {
        return Ok(token);
    }
    let pin = membership.authority_pin.strip_prefix("sha256:").filter(|pin| pin.len() == 64);
    match pin {
        Some(pin) => Ok(Zeroizing::new(format!("K10{pin}::{}", token.as_str()))),
        None => Err(PlatformError("the token pins no authority, and the ticket has no pin".to_owned())),
    }
}

/// The first server that takes a connection, or the first of all: k3s asks that one until it answers. Once it has joined, it knows the others by itself.
async fn first_that_answers(servers: &[String]) -> Option<&str> {
    for server in servers {
        let address = server.strip_prefix("https://").unwrap_or(server).trim_end_matches('/');
        let connecting = tokio::net::TcpStream::connect(address);
        if let Ok(Ok(_)) = tokio::time::timeout(SERVER_ANSWERS_WITHIN, connecting).await {
            return Some(server);
        }
    }
    servers.first().map(String::as_str)
}

/// `config.yaml` of a node that joins. The token has a file of its own. `is_server`: it is a control plane.
///
/// # Errors
/// There is no server.
pub fn render_join(
    membership: &Membership,
    server: Option<&str>,
    address: Option<std::net::IpAddr>,
    is_server: bool,
) -> Outcome<Vec<u8>> {
    let server = server.ok_or_else(|| PlatformError("the ticket names no server".to_owned()))?;
    let mut config = node(&membership.node_name, &membership.labels, &membership.taints, address);
    config.insert("server".to_owned(), json!(server));
    config.insert("token-file".to_owned(), json!(TOKEN));
    if is_server {
        config.insert("kube-apiserver-arg".to_owned(), audit_arguments());
    }
    to_bytes(&config)
}

/// `config.yaml` of the first server.
///
/// # Errors
/// None that is known.
pub fn render_init(parameters: &InitParameters, address: Option<std::net::IpAddr>) -> Outcome<Vec<u8>> {
    let mut config = node(&parameters.node_name, &parameters.labels, &parameters.taints, address);
    config.insert("cluster-init".to_owned(), json!(true));
    config.insert("kube-apiserver-arg".to_owned(), audit_arguments());
    config.insert("write-kubeconfig-mode".to_owned(), json!("0600"));
    let mut names = parameters.certificate_names.clone();
    let host = parameters.endpoint.rsplit_once(':').map_or(parameters.endpoint.as_str(), |(host, _)| host);
    if !host.is_empty() && !names.iter().any(|name| name == host) {
        names.push(host.to_owned());
    }
    let given = [
        ("tls-san", json!(names), names.is_empty()),
        ("cluster-cidr", json!(parameters.pod_subnet), parameters.pod_subnet.is_empty()),
        ("service-cidr", json!(parameters.service_subnet), parameters.service_subnet.is_empty()),
    ];
    config.extend(given.into_iter().filter(|(_, _, empty)| !empty).map(|(key, value, _)| (key.to_owned(), value)));
    to_bytes(&config)
}

/// What the API server writes down, and where. <https://docs.k3s.io/security/hardening-guide>
fn audit_arguments() -> Value {
    let files = [format!("audit-log-path={AUDIT_LOGS}/audit.log"), format!("audit-policy-file={AUDIT_POLICY_FILE}")];
    let limits = audit::LIMITS.map(|(name, limit)| format!("{name}={limit}"));
    files.into_iter().chain(limits).collect()
}

fn node(name: &str, labels: &[String], taints: &[String], address: Option<std::net::IpAddr>) -> Map<String, Value> {
    let mut config = Map::new();
    config.insert("node-name".to_owned(), json!(name));
    if let Some(address) = address {
        config.insert("node-ip".to_owned(), json!(address.to_string()));
    }
    for (key, items) in [("node-label", labels), ("node-taint", taints)] {
        if !items.is_empty() {
            config.insert(key.to_owned(), json!(items));
        }
    }
    config
}

fn to_bytes(config: &Map<String, Value>) -> Outcome<Vec<u8>> {
    serde_json::to_vec_pretty(config).map_err(|error| PlatformError::new("k3s configuration", error))
}

/// The kubeconfig as others can use it.
fn with_endpoint(kubeconfig: &SecretBytes, endpoint: &str) -> SecretBytes {
    if endpoint.is_empty() {
        return kubeconfig.clone();
    }
    let text = Zeroizing::new(String::from_utf8_lossy(kubeconfig.expose()).into_owned());
    SecretBytes::new(text.replace("127.0.0.1:6443", endpoint).into_bytes())
}

impl Installer for K3s {
    fn install<'a>(&'a mut self, components: &'a [Component], activity: Activity) -> BoxFuture<'a, Outcome<()>> {
        async move { self.components.install(components, &activity).await }.boxed()
    }

    fn join<'a>(&'a mut self, plan: &'a JoinPlan, activity: Activity) -> BoxFuture<'a, Outcome<()>> {
        async move { self.join_once(plan, &activity).await }.boxed()
    }

    fn init<'a>(
        &'a mut self,
        parameters: &'a InitParameters,
        activity: Activity,
    ) -> BoxFuture<'a, Outcome<SecretBytes>> {
        async move { self.make(parameters, &activity).await }.boxed()
    }

    fn resume(&mut self, activity: Activity) -> BoxFuture<'_, Outcome<()>> {
        async move { K3s::resume(self, &activity).await }.boxed()
    }

    fn fault(&self) -> Option<String> {
        self.fault.clone()
    }

    fn stop(&mut self) -> BoxFuture<'_, Outcome<()>> {
        async move { self.systemctl.stop(&[SERVER, AGENT]).await }.boxed()
    }

    fn renewed(&mut self, activity: Activity) -> BoxFuture<'_, ()> {
        async move { self.systemctl.renewed(&[], &activity).await }.boxed()
    }
}
