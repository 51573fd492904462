//! One simulated edge cluster, with hosts and a Kubernetes API by the simulator. On it run the real edge sync, edge monitor and join service. They start when the
//! simulated Flux installs the chart `edge-cluster` from the cluster's repository. Everything that the edge knows it has read from there.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use configdb_schema::address;
use service_runtime::health::Health;
use service_runtime::shutdown::Shutdown;
use simulator::cluster::{ClusterSpec, HostSpec, SimulatedCluster};
use simulator::edge_agent::{AgentChart, Agents};
use simulator::flux::chart::{ChartError, Charts, HookChart, Release};
use sparkplug_mqtt::MqttConfig;
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::host::Home;
use crate::joining::{Joining, RunningMachines};

/// The address of the API in tickets; no client connects to it.
const SIMULATED_SERVER: &str = "https://127.0.0.1:6443";

/// What a simulated edge cluster is made from: what a person carries to the edge when bootstrapping a real one.
#[derive(Debug, Clone)]
pub struct EdgeSpec {
    /// Name of the cluster.
    pub name: String,
    /// Namespace of the edge services.
    pub namespace: String,
    /// Manifests that make Flux follow the cluster's repository.
    pub self_link: String,
    /// Password of the repository; its user is the cluster's name.
    pub git_password: String,
    /// Number of hosts, the first of which is the control plane.
    pub hosts: u16,
    /// Where the edge services keep their bdSeq.
    pub state_dir: PathBuf,
    /// Organisation.
    pub organisation: String,
    /// How the edge reaches the broker.
    pub mqtt: MqttConfig,
    /// How hosts that are to join reach the broker, by their disks.
    pub host_logins: BTreeMap<Uuid, MqttConfig>,
    /// How hosts join; None: all are there from the start.
    pub joining: Option<Joining>,
}

/// A running simulated edge cluster.
#[derive(Debug)]
pub struct SimulatedEdge {
    cluster: Option<SimulatedCluster>,
    services: Arc<Mutex<Option<Services>>>,
    agents: Agents,
    machines: Option<RunningMachines>,
    spec: EdgeSpec,
    shutdown: Shutdown,
}

/// Edge sync, edge monitor and join service of one cluster.
#[derive(Debug)]
struct Services {
    shutdown: Shutdown,
    tasks: JoinSet<()>,
}

impl Services {
    async fn stop(mut self) {
        self.shutdown.trigger();
        while self.tasks.join_next().await.is_some() {}
    }
}

/// Names of the hosts of a simulated cluster: `paint-shop-1`, `paint-shop-2`, ...
#[must_use]
pub fn host_names(cluster: &str, hosts: u16) -> Vec<String> {
    (1..=hosts).map(|n| format!("{}-{n}", address::k8s_name(&[cluster]))).collect()
}

impl SimulatedEdge {
    /// Starts the cluster and bootstraps it: credentials, then the manifests that make Flux follow its repository.
    ///
    /// # Errors
    /// No port for the simulated API, or manifests that cannot be applied.
    pub async fn start(spec: EdgeSpec, shutdown: &Shutdown) -> anyhow::Result<Self> {
        let names = host_names(&spec.name, spec.hosts);
        // Where hosts join, only the first is there before there is someone to join.
        let there = if spec.joining.is_some() { 1 } else { names.len() };
        let hosts = names
            .iter()
            .take(there)
            .enumerate()
            .map(|(i, name)| if i == 0 { HostSpec::control_plane(name) } else { HostSpec::worker(name) });
        let cluster_spec =
            ClusterSpec { namespace: spec.namespace.clone(), hosts: hosts.collect(), ..ClusterSpec::new(&spec.name) };
        let services: Arc<Mutex<Option<Services>>> = Arc::default();
        let agents = AgentChart::new(&spec.organisation, &spec.name, spec.mqtt.clone());
        let running_agents = agents.agents();
        let charts = charts(&spec, agents, &services, shutdown);
        let cluster =
            SimulatedCluster::start(cluster_spec, charts).await.context("cannot start the simulated Kubernetes API")?;
        let edge = Self {
            cluster: Some(cluster),
            services,
            agents: running_agents,
            machines: None,
            spec,
            shutdown: shutdown.child(),
        };
        let running = edge.cluster.as_ref().context("a cluster that was just started runs")?;
        running
            .set_git_credentials(&edge.spec.name, &edge.spec.git_password)
            .context("cannot store the credentials of the repository")?;
        running
            .apply_manifests(&edge.spec.self_link)
            .context("cannot apply the manifests that follow the repository")?;
        Ok(edge)
    }

    /// Address of its Kubernetes API.
    #[must_use]
    pub fn kubernetes_url(&self) -> Option<String> {
        self.cluster.as_ref().map(SimulatedCluster::url)
    }

    /// Whether there are machines that were not switched on yet.
    #[must_use]
    pub const fn has_machines_off(&self) -> bool {
        self.spec.joining.is_some() && self.machines.is_none()
    }

    /// Switches the machines on that join. To be called when the join service judges: one that is asked before refuses, and a host that is refused rests.
    pub fn switch_on(&mut self, cluster: Uuid) {
        let (Some(joining), Some(running), None) = (&self.spec.joining, &self.cluster, &self.machines) else { return };
        let home = Home {
            organisation: self.spec.organisation.clone(),
            cluster: self.spec.name.clone(),
            uuid: cluster,
            root: joining.root.clone(),
            mqtt: self.spec.mqtt.clone(),
        };
        let stop = self.shutdown.child();
        self.machines =
            Some(RunningMachines::start(&joining.machines, &home, &self.spec.host_logins, running.kubernetes(), stop));
    }

    /// Stops machines, services and cluster; the nodes say goodbye.
    pub async fn stop(mut self) {
        if let Some(machines) = self.machines.take() {
            machines.stop().await;
        }
        if let Some(cluster) = self.cluster.take() {
            cluster.stop().await;
        }
        self.agents.stop_all().await;
        if let Some(services) = self.services.lock().await.take() {
            services.stop().await;
        }
    }
}

fn charts(spec: &EdgeSpec, agents: AgentChart, services: &Arc<Mutex<Option<Services>>>, shutdown: &Shutdown) -> Charts {
    let (spec, shutdown) = (Arc::new(spec.clone()), shutdown.child());
    let (to_install, to_remove) = (Arc::clone(services), Arc::clone(services));
    let install = move |release: Release| {
        let (spec, services, shutdown) = (Arc::clone(&spec), Arc::clone(&to_install), shutdown.child());
        let installed: futures::future::BoxFuture<'static, Result<(), ChartError>> = Box::pin(async move {
            let mut running = services.lock().await;
            if running.is_none() {
                *running =
                    Some(start_services(&spec, &release, shutdown).map_err(|error| ChartError(format!("{error:#}")))?);
            }
            let deployment = release.deployment("sparkfleet-edge");
            release.apply(vec![deployment])?;
            release.set_available("sparkfleet-edge")
        });
        installed
    };
    let uninstall = move |release: Release| {
        let services = Arc::clone(&to_remove);
        let removed: futures::future::BoxFuture<'static, Result<(), ChartError>> = Box::pin(async move {
            if let Some(running) = services.lock().await.take() {
                running.stop().await;
            }
            release.remove()
        });
        removed
    };
    Charts::new().with("edge-cluster", HookChart::new(install, uninstall)).with("edge-agent", agents)
}

/// Starts what the pod of the chart `edge-cluster` runs, configured from the release's values.
fn start_services(spec: &EdgeSpec, release: &Release, shutdown: Shutdown) -> anyhow::Result<Services> {
    let text = |pointer: &str| release.values.pointer(pointer).and_then(serde_json::Value::as_str);
    let name = text("/cluster/name").context("the release has no value cluster.name")?.to_owned();
    let uuid: Uuid =
        text("/cluster/uuid").context("the release has no value cluster.uuid")?.parse().context("cluster.uuid")?;
    let url = Some(release.kubernetes.url().context("the simulated API does not listen")?);
    let kubernetes = edge_sync::config::KubernetesConfig { namespace: release.namespace.clone(), url };
    let sync = edge_sync::Config {
        organisation: spec.organisation.clone(),
        state_dir: spec.state_dir.join("sync").into(),
        simulated: true,
        cluster: edge_sync::config::ClusterConfig { name: name.clone(), uuid: Some(uuid) },
        kubernetes: kubernetes.clone(),
        mqtt: spec.mqtt.clone(),
        ..edge_sync::Config::default()
    };
    let monitor = edge_monitor::Config {
        organisation: spec.organisation.clone(),
        state_dir: spec.state_dir.join("monitor").into(),
        simulated: true,
        cluster: edge_monitor::config::ClusterConfig { name: name.clone(), uuid: Some(uuid) },
        kubernetes: kubernetes.clone(),
        mqtt: spec.mqtt.clone(),
        ..edge_monitor::Config::default()
    };
    let mut tasks = JoinSet::new();
    let (for_sync, for_monitor, cluster) = (shutdown.clone(), shutdown.clone(), spec.name.clone());
    tasks.spawn(async move {
        if let Err(error) = edge_sync::run(sync, for_sync, Health::new()).await {
            tracing::error!(cluster, error = format!("{error:#}"), "edge sync has failed");
        }
    });
    let cluster = spec.name.clone();
    tasks.spawn(async move {
        if let Err(error) = edge_monitor::run(monitor, for_monitor, Health::new()).await {
            tracing::error!(cluster, error = format!("{error:#}"), "edge monitor has failed");
        }
    });
    if let Some(joining) = &spec.joining {
        let config = join_config(spec, joining, (name, uuid), &kubernetes);
        let (for_join, cluster) = (shutdown.clone(), spec.name.clone());
        tasks.spawn(async move {
            if let Err(error) = join_service::run(config, for_join, Health::new()).await {
                tracing::error!(cluster, error = format!("{error:#}"), "the join service has failed");
            }
        });
    }
    Ok(Services { shutdown, tasks })
}

fn join_config(
    spec: &EdgeSpec,
    joining: &Joining,
    (name, uuid): (String, Uuid),
    kubernetes: &edge_sync::config::KubernetesConfig,
) -> join_service::Config {
    let default = join_service::Config::default();
    join_service::Config {
        organisation: spec.organisation.clone(),
        state_dir: spec.state_dir.join("join").into(),
        simulated: true,
        cluster: join_service::config::ClusterConfig { name, uuid: Some(uuid) },
        kubernetes: join_service::config::KubernetesConfig {
            namespace: kubernetes.namespace.clone(),
            url: kubernetes.url.clone(),
        },
        trust: join_service::config::TrustConfig { directory: Some(joining.trust.clone()), ..default.trust },
        join: join_service::config::JoinConfig {
            distribution: join_service::config::Distribution::K3s,
            servers: vec![SIMULATED_SERVER.to_owned()],
            kubernetes_version: simulator::kubernetes::discovery::GIT_VERSION.to_owned(),
            networks: vec![crate::host::NETWORK.to_owned()],
            ..default.join
        },
        mqtt: spec.mqtt.clone(),
        ..join_service::Config::default()
    }
}
