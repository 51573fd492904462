//! Simulated edge agents: what the chart `edge-agent` starts. Each is a real Edge Node on this project's own library, named like its deployment, whose devices are
//! simulated machines; its configuration is the ConfigMap `edge-agent-config-<uuid>` of its cluster.
//!
//! ```text
//!   HelmRelease ──> AgentChart ──> SparkplugNode, Deployment
//!                       └──> Agents ──> agent.rs (task) ── link.rs ──> MQTT server
//!                                         ├ config.rs: what to publish
//!                                         └ machine.rs: what it measures
//! ```
//!
//! Tokens for secrets in a configuration are not replaced: there is no device to log in to.

mod agent;
pub mod config;
pub mod link;
pub mod metrics;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use configdb_schema::address::k8s_name;
use futures::future::BoxFuture;
use sparkplug::{EdgeNodeDescriptor, NameError};
use sparkplug_mqtt::{BdSeqStore, MqttConfig, SpawnError};
use tempfile::TempDir;
use tokio::sync::{Mutex, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::flux::chart::{Chart, ChartError, Release};
use crate::kubernetes::Kubernetes;
use agent::{Agent, AgentSpec};
use link::{Link, LinkMode};

/// How an agent behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Behaviour {
    #[default]
    Normal,
    /// Ignores the command to reload its configuration.
    NeverReloads,
    /// Publishes no data. Rebirth requests are still answered, because every Edge Node does; an agent that hangs is made with [`LinkMode::Mute`].
    Silent,
}

/// Settings of all agents of a cluster.
#[derive(Debug, Clone)]
pub struct AgentsOptions {
    pub group_id: String,
    /// How to reach the broker.
    pub mqtt: MqttConfig,
    /// Seed of all machines.
    pub seed: u64,
    /// How often an agent without configuration looks for one.
    pub config_retry: Duration,
}

/// Why an agent cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// Its name cannot be a Sparkplug id.
    #[error("the deployment's name is not an Edge Node id")]
    Name(#[from] NameError),
    #[error("cannot listen on the loopback interface, or write to the temporary directory")]
    Io(#[from] io::Error),
    #[error("the edge node cannot be started")]
    Spawn(#[from] SpawnError),
}

/// The agents of one cluster; clones share them.
#[derive(Debug, Clone)]
pub struct Agents {
    options: Arc<AgentsOptions>,
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    running: BTreeMap<Uuid, RunningAgent>,
    /// Where bdSeq is kept, so that an agent that is reinstalled continues counting.
    directory: Option<TempDir>,
}

#[derive(Debug)]
struct RunningAgent {
    name: String,
    behaviour: watch::Sender<Behaviour>,
    ignored: watch::Receiver<u64>,
    link: Option<Link>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl RunningAgent {
    async fn stop(self) {
        self.stop.cancel();
        // A panic of the agent has been reported by the panic hook.
        let _ = self.task.await;
    }
}

impl Agents {
    pub fn new(options: AgentsOptions) -> Self {
        Self { options: Arc::new(options), inner: Arc::default() }
    }

    /// Starts an agent, unless it runs already under this name.
    pub async fn start(
        &self,
        uuid: Uuid,
        name: &str,
        kubernetes: &Kubernetes,
        namespace: &str,
    ) -> Result<(), AgentError> {
        let mut inner = self.inner.lock().await;
        if inner.running.get(&uuid).is_some_and(|agent| agent.name == name && !agent.task.is_finished()) {
            return Ok(());
        }
        let node = EdgeNodeDescriptor::parse(&self.options.group_id, name)?;
        if let Some(earlier) = inner.running.remove(&uuid) {
            earlier.stop().await;
        }
        let directory = match &inner.directory {
            Some(directory) => directory.path().to_owned(),
            None => inner
                .directory
                .insert(tempfile::Builder::new().prefix("sparkfleet-agents-").tempdir()?)
                .path()
                .to_owned(),
        };
        let (mqtt, link) = self.cable().await?;
        let spec = AgentSpec {
            uuid,
            bd_seq: BdSeqStore::in_directory(&directory, &node),
            node,
            kubernetes: kubernetes.clone(),
            namespace: namespace.to_owned(),
            mqtt,
            seed: agent::seed_of_agent(self.options.seed, uuid),
            config_retry: self.options.config_retry,
        };
        let (behaviour, receiver) = watch::channel(Behaviour::Normal);
        let (counter, ignored) = watch::channel(0);
        let stop = CancellationToken::new();
        let task = tokio::spawn(Agent::start(spec, receiver, counter)?.run(stop.clone()));
        inner.running.insert(uuid, RunningAgent { name: name.to_owned(), behaviour, ignored, link, stop, task });
        Ok(())
    }

    /// The connection's settings, through a cable where the servers are reached by plain TCP.
    async fn cable(&self) -> io::Result<(MqttConfig, Option<Link>)> {
        let mut mqtt = self.options.mqtt.clone();
        let address = |server: &String| {
            let rest = server.strip_prefix("mqtt://")?.trim_end_matches('/').to_owned();
            let has_port = rest.rsplit(':').next().is_some_and(|port| port.parse::<u16>().is_ok());
            Some(if has_port { rest } else { format!("{rest}:1883") })
        };
        let Some(servers) =
            mqtt.servers.iter().map(address).collect::<Option<Vec<String>>>().filter(|list| !list.is_empty())
        else {
            return Ok((mqtt, None));
        };
        let link = Link::lay(servers).await?;
        mqtt.servers = vec![format!("mqtt://{}", link.address())];
        Ok((mqtt, Some(link)))
    }

    /// Stops an agent: NDEATH is out when this returns.
    pub async fn stop(&self, uuid: Uuid) {
        let agent = self.inner.lock().await.running.remove(&uuid);
        if let Some(agent) = agent {
            agent.stop().await;
        }
    }

    pub async fn stop_all(&self) {
        let running = std::mem::take(&mut self.inner.lock().await.running);
        futures::future::join_all(running.into_values().map(RunningAgent::stop)).await;
    }

    /// Lets an agent misbehave, or behave again. False if it does not run.
    pub async fn set_behaviour(&self, uuid: Uuid, behaviour: Behaviour) -> bool {
        let inner = self.inner.lock().await;
        inner.running.get(&uuid).is_some_and(|agent| agent.behaviour.send(behaviour).is_ok())
    }

    /// How many reload commands an agent has ignored so far, and to wait for more. None if it does not run.
    pub async fn reloads_ignored(&self, uuid: Uuid) -> Option<watch::Receiver<u64>> {
        self.inner.lock().await.running.get(&uuid).map(|agent| agent.ignored.clone())
    }

    /// Mutes, pulls or restores an agent's cable. False if it does not run, or has no cable because its server is reached by TLS.
    pub async fn set_link(&self, uuid: Uuid, mode: LinkMode) -> bool {
        let inner = self.inner.lock().await;
        let link = inner.running.get(&uuid).and_then(|agent| agent.link.as_ref());
        link.is_some_and(|link| {
            link.set(mode);
            true
        })
    }

    /// The agents that run, by UUID.
    pub async fn running(&self) -> BTreeMap<Uuid, String> {
        let inner = self.inner.lock().await;
        inner.running.iter().map(|(uuid, agent)| (*uuid, agent.name.clone())).collect()
    }
}

/// The chart `edge-agent`.
#[derive(Debug, Clone)]
pub struct AgentChart {
    agents: Agents,
}

impl AgentChart {
    /// A chart whose agents speak in the cluster's group.
    pub fn new(organisation: impl AsRef<str>, cluster: impl AsRef<str>, mqtt: MqttConfig) -> Self {
        let group_id = format!("{}-{}", organisation.as_ref(), cluster.as_ref());
        Self::with(AgentsOptions { group_id, mqtt, seed: 0, config_retry: Duration::from_secs(2) })
    }

    /// A chart with these settings.
    pub fn with(options: AgentsOptions) -> Self {
        Self { agents: Agents::new(options) }
    }

    /// Its agents, for tests and demonstrations.
    pub fn agents(&self) -> Agents {
        self.agents.clone()
    }
}

fn uuid_of(release: &Release) -> Result<Uuid, ChartError> {
    let text = release.values["uuid"].as_str().unwrap_or_default();
    text.parse().map_err(|_| ChartError(format!("values.uuid: {text:?} is not a UUID")))
}

impl Chart for AgentChart {
    fn install<'a>(&'a self, release: &'a Release) -> BoxFuture<'a, Result<(), ChartError>> {
        Box::pin(async move {
            let uuid = uuid_of(release)?;
            let name = k8s_name(&[release.display_name()]);
            let deployment = format!("edge-agent-{name}");
            release
                .apply(vec![agent::spark_node(uuid, &format!("edge-agent.{name}")), release.deployment(&deployment)])?;
            if !release.has_host(&deployment) {
                self.agents.stop(uuid).await;
                return release.set_available(&deployment);
            }
            let started =
                self.agents.start(uuid, release.display_name(), &release.kubernetes, &release.namespace).await;
            started.map_err(|error| ChartError(format!("values.name {:?}: {error}", release.display_name())))?;
            release.set_available(&deployment)
        })
    }

    fn uninstall<'a>(&'a self, release: &'a Release) -> BoxFuture<'a, Result<(), ChartError>> {
        Box::pin(async move {
            // Without a UUID it was never installed.
            if let Ok(uuid) = uuid_of(release) {
                self.agents.stop(uuid).await;
            }
            release.remove()
        })
    }

    fn shutdown(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.agents.stop_all())
    }
}
