//! A simulated edge cluster in the test's process: Kubernetes API, Flux, hosts, edge agents. Its Flux starts edge sync and edge monitor as processes of their own when it installs
//! the chart `edge-cluster`, configured from the release's values. So they can be killed while their Kubernetes lives on.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use configdb_schema::address;
use futures::future::BoxFuture;
use simulator::cluster::{ClusterSpec, HostSpec, SimulatedCluster};
use simulator::edge_agent::{AgentChart, Agents};
use simulator::flux::chart::{ChartError, Charts, HookChart, Release};
use simulator::jobs::{Hook, program};
use sparkplug_mqtt::MqttConfig;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::central_services::{ORGANISATION, free_port, service_process_with};
use crate::process::Processes;

/// Names of the services of an edge, as the program calls them.
pub const SERVICES: [&str; 2] = ["edge-sync", "edge-monitor"];

/// Below its directory: what the programs of its Jobs have printed.
const JOB_LOG: &str = "jobs.log";

/// Below its directory: the Secret that its services have mounted.
const MOUNTED: &str = "mqtt";

/// Pause between two probes of readiness.
const PROBE: Duration = Duration::from_millis(100);

/// A running edge cluster.
#[derive(Debug)]
pub struct Edge {
    /// Its Kubernetes.
    pub cluster: SimulatedCluster,
    /// Its edge agents.
    pub agents: Agents,
    /// Its services, named as in [`SERVICES`]; none before Flux has installed their chart.
    pub processes: Processes,
    // Dropped last, so that the logs are there when the processes end.
    directory: TempDir,
}

impl Edge {
    /// Starts a cluster with `hosts` hosts and bootstraps it, as an operator would: credentials, then the manifests that make Flux follow its repository.
    ///
    /// # Panics
    /// The simulated API cannot be started, or refuses the manifests.
    pub async fn start(name: &str, hosts: u16, self_link: &str, git_password: &str, broker: SocketAddr) -> Self {
        Self::start_with(name, hosts, self_link, git_password, broker, Processes::default()).await
    }

    /// The same, with a set that its services will be put into; so others can hold it before they are there.
    ///
    /// # Panics
    /// As [`Edge::start`].
    pub async fn start_with(
        name: &str,
        hosts: u16,
        self_link: &str,
        git_password: &str,
        broker: SocketAddr,
        processes: Processes,
    ) -> Self {
        let edge = Self::start_as(name, hosts, broker, processes, |spec| spec).await;
        edge.cluster.set_git_credentials(name, git_password).expect("credentials can be stored");
        edge.cluster.apply_manifests(self_link).expect("the manifests can be applied");
        edge
    }

    /// Starts a cluster as it is before its bootstrap: no Flux, no namespace. Jobs are done by `jobs`.
    ///
    /// # Panics
    /// The simulated API cannot be started.
    pub async fn bare(name: &str, broker: SocketAddr, jobs: Option<Hook>) -> Self {
        let to_install = |spec| ClusterSpec { flux_to_install: true, sealed_secrets: false, jobs, ..spec };
        Self::start_as(name, 1, broker, Processes::default(), to_install).await
    }

    /// The same at an MQTT server that asks for client certificates: its services and agents have those of the Secret that the chart's value `mqtt.secretName` names, at the server
    /// `url`. Jobs are done by the program `sparkfleet`, as a container would do them; their log is [`Edge::job_log`].
    ///
    /// # Panics
    /// As [`Edge::bare`].
    pub async fn with_certificates(name: &str, url: &str, broker: SocketAddr) -> Self {
        let directory = tempfile::tempdir().expect("the temporary directory can be written");
        let jobs = simulator::jobs::program::hook(crate::program::sparkfleet(), directory.path().join(JOB_LOG));
        let file = |key: &str| Some(directory.path().join(MOUNTED).join(key));
        let mqtt = MqttConfig {
            servers: vec![url.to_owned()],
            ca_file: file("ca.crt"),
            cert_file: file("tls.crt"),
            key_file: file("tls.key"),
            ..MqttConfig::default()
        };
        let to_install = |spec| ClusterSpec { flux_to_install: true, jobs: Some(jobs), ..spec };
        Self::start_in(directory, (name, 1), (broker, mqtt), Processes::default(), to_install).await
    }

    async fn start_as(
        name: &str,
        hosts: u16,
        broker: SocketAddr,
        processes: Processes,
        change: impl FnOnce(ClusterSpec) -> ClusterSpec,
    ) -> Self {
        let directory = tempfile::tempdir().expect("the temporary directory can be written");
        let mqtt = MqttConfig { servers: vec![format!("mqtt://{broker}")], ..MqttConfig::default() };
        Self::start_in(directory, (name, hosts), (broker, mqtt), processes, change).await
    }

    async fn start_in(
        directory: TempDir,
        (name, hosts): (&str, u16),
        (broker, mqtt): (SocketAddr, MqttConfig),
        processes: Processes,
        change: impl FnOnce(ClusterSpec) -> ClusterSpec,
    ) -> Self {
        let names = (1..=hosts).map(|n| format!("{}-{n}", address::k8s_name(&[name])));
        let hosts = names
            .enumerate()
            .map(|(i, name)| if i == 0 { HostSpec::control_plane(&name) } else { HostSpec::worker(&name) });
        let spec = change(ClusterSpec { hosts: hosts.collect(), ..ClusterSpec::new(name) });
        let agent_chart = AgentChart::new(ORGANISATION, name, mqtt);
        let agents = agent_chart.agents();
        let chart = edge_chart(processes.clone(), broker, directory.path().to_owned());
        let charts = Charts::new().with("edge-cluster", chart).with("edge-agent", agent_chart);
        let cluster = SimulatedCluster::start(spec, charts).await.expect("the simulated API can be started");
        Self { directory, cluster, agents, processes }
    }

    /// Where its services keep their state and logs.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// What the programs of its Jobs have printed.
    #[must_use]
    pub fn job_log(&self) -> String {
        fs::read_to_string(self.directory.path().join(JOB_LOG)).unwrap_or_default()
    }

    /// SIGINT to its services, and their ends; then the cluster is taken down.
    ///
    /// # Panics
    /// A service does not end with exit code 0.
    pub async fn stop(self) {
        self.processes.stop().await;
        self.cluster.stop().await;
        self.agents.stop_all().await;
    }
}

/// The chart that the edge's own services come with.
fn edge_chart(processes: Processes, broker: SocketAddr, directory: PathBuf) -> HookChart {
    let to_remove = processes.clone();
    let install = move |release: Release| {
        let (processes, directory) = (processes.clone(), directory.clone());
        let installed: BoxFuture<'static, Result<(), ChartError>> = Box::pin(async move {
            release.apply(vec![release.deployment("sparkfleet-edge")])?;
            if !processes.has(SERVICES[0]) {
                let health = start_services(&processes, &release, broker, &directory)?;
                tokio::spawn(follow_readiness(release, health));
            }
            Ok(())
        });
        installed
    };
    let uninstall = move |release: Release| {
        let processes = to_remove.clone();
        let removed: BoxFuture<'static, Result<(), ChartError>> = Box::pin(async move {
            processes.clear();
            release.remove()
        });
        removed
    };
    HookChart::new(install, uninstall)
}

fn start_services(
    processes: &Processes,
    release: &Release,
    broker: SocketAddr,
    directory: &Path,
) -> Result<[SocketAddr; 2], ChartError> {
    let value = |pointer: &str| {
        let value = release.values.pointer(pointer).and_then(serde_json::Value::as_str);
        value.ok_or_else(|| ChartError(format!("the release has no value {pointer}")))
    };
    let (name, uuid) = (value("/cluster/name")?, value("/cluster/uuid")?);
    let url = release.kubernetes.url().ok_or_else(|| ChartError("the simulated API does not listen".to_owned()))?;
    let tables = format!(
        "[cluster]\nname = \"{name}\"\nuuid = \"{uuid}\"\n[kubernetes]\nnamespace = \"{}\"\nurl = \"{url}\"\n",
        release.namespace
    );
    let environment = mounted(release, directory)?;
    let environment: Vec<(&str, &str)> = environment.iter().map(|(key, value)| (&**key, &**value)).collect();
    let health = SERVICES.map(|_| free_port());
    for (service, health) in SERVICES.into_iter().zip(health) {
        let tables = format!("{tables}[http]\nlisten = \"{health}\"\n");
        let head = "simulated = true\n";
        processes.insert(service_process_with(service, head, &tables, broker, directory, &environment));
    }
    Ok(health)
}

/// The Secret with the credentials for the MQTT server, laid out as the chart mounts it, and what leads the services there; nothing without one.
fn mounted(release: &Release, directory: &Path) -> Result<Vec<(String, String)>, ChartError> {
    let Some(name) = release.values.pointer("/mqtt/secretName").and_then(serde_json::Value::as_str) else {
        return Ok(Vec::new());
    };
    let (kubernetes, namespace, name) = (release.kubernetes.clone(), release.namespace.clone(), name.to_owned());
    let mount = directory.join(MOUNTED);
    let lay_out = move || {
        let secret = kubernetes.get("v1", "Secret", &namespace, &name).map_err(|error| error.message)?;
        program::lay_out(&secret, &mount).map_err(|error| error.to_string())
    };
    lay_out().map_err(ChartError)?;
    let (kubernetes, mount) = (release.kubernetes.clone(), directory.join(MOUNTED));
    // As the kubelet does: when the Secret changes, so do the files.
    tokio::spawn(async move {
        let mut changes = kubernetes.changes();
        while changes.changed().await.is_ok() && mount.is_dir() {
            // The Secret may be gone.
            let _ = lay_out();
        }
    });
    let servers = release.values.pointer("/mqtt/servers/0").and_then(serde_json::Value::as_str).unwrap_or_default();
    let file = |key: &str| directory.join(MOUNTED).join(key).display().to_string();
    let variables = [
        ("SERVERS", servers.to_owned()),
        ("CA_FILE", file("ca.crt")),
        ("CERT_FILE", file("tls.crt")),
        ("KEY_FILE", file("tls.key")),
    ];
    Ok(variables.map(|(key, value)| (format!("SPARKFLEET__MQTT__{key}"), value)).into())
}

/// What the kubelet's readiness probe does: the Deployment is available when both services say that they are ready, which is when they are born.
async fn follow_readiness(release: Release, health: [SocketAddr; 2]) {
    for address in health {
        while !is_ready(address).await {
            tokio::time::sleep(PROBE).await;
        }
    }
    // The cluster may be gone by then.
    let _ = release.set_available("sparkfleet-edge");
}

/// Whether the health page at that address says that its services are ready.
pub async fn is_ready(address: SocketAddr) -> bool {
    let Ok(mut stream) = TcpStream::connect(address).await else { return false };
    let mut answer = [0; 12];
    let request = format!("GET /readyz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.is_ok()
        && stream.read_exact(&mut answer).await.is_ok()
        && answer.ends_with(b" 200")
}
