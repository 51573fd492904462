//! One simulated edge agent: an Edge Node whose devices are machines, configured by a ConfigMap of its cluster.

use std::collections::BTreeMap;
use std::time::Duration;

use configdb_schema::known::special;
use serde_json::Value as Json;
use sparkplug::edge_node::{EdgeNodeConfig, NodeEvent, NodeUpdate};
use sparkplug::{DeviceId, EdgeNodeDescriptor};
use sparkplug_mqtt::{BdSeqStore, Clock, EdgeNodeHandle, MqttConfig, SpawnError};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::Behaviour;
use super::config::{self, AgentConfig, DeviceConfig};
use super::metrics::{self, ConfigState, Status};
use crate::kubernetes::Kubernetes;
use crate::machine::Machine;

/// Annotation with the revision of a configuration.
const REVISION: &str = "factoryplus.app.amrc.co.uk/config-revision";

/// What an agent is made from.
#[derive(Debug, Clone)]
pub(super) struct AgentSpec {
    pub(super) uuid: Uuid,
    pub(super) node: EdgeNodeDescriptor,
    pub(super) kubernetes: Kubernetes,
    pub(super) namespace: String,
    pub(super) mqtt: MqttConfig,
    pub(super) bd_seq: BdSeqStore,
    pub(super) seed: u64,
    pub(super) config_retry: Duration,
}

/// A configuration as it was found.
#[derive(Debug, Clone, PartialEq)]
struct Loaded {
    config: AgentConfig,
    revision: Option<String>,
    state: ConfigState,
}

struct Running {
    device: DeviceConfig,
    machine: Machine,
    status: Status,
    read_at: Instant,
}

pub(super) struct Agent {
    spec: AgentSpec,
    handle: EdgeNodeHandle,
    clock: Clock,
    loaded: Loaded,
    devices: BTreeMap<String, Running>,
    behaviour: watch::Receiver<Behaviour>,
    /// Counts the reload commands that were not obeyed.
    ignored: watch::Sender<u64>,
}

impl AgentSpec {
    /// Reads the agent's configuration from the cluster.
    fn load(&self) -> Loaded {
        let name = format!("edge-agent-config-{}", self.uuid);
        let Ok(object) = self.kubernetes.get("v1", "ConfigMap", &self.namespace, &name) else {
            return Loaded { config: AgentConfig::default(), revision: None, state: ConfigState::Unavailable };
        };
        let revision = object["metadata"]["annotations"][REVISION].as_str().map(str::to_owned);
        let text = object["data"]["config.json"].as_str().unwrap_or_default();
        match config::parse(text) {
            Ok(config) => Loaded { config, revision, state: ConfigState::Loaded },
            Err(error) => {
                tracing::debug!(edge_node_id = %self.node.edge_node, %error, "simulated edge agent does not understand its configuration");
                Loaded { config: AgentConfig::default(), revision, state: ConfigState::Invalid }
            }
        }
    }
}

impl Agent {
    /// Connects the agent; it is born as soon as the server lets it.
    pub(super) fn start(
        spec: AgentSpec,
        behaviour: watch::Receiver<Behaviour>,
        ignored: watch::Sender<u64>,
    ) -> Result<Self, SpawnError> {
        let loaded = spec.load();
        let node = EdgeNodeConfig {
            payload_uuid: Some(special::FACTORY_PLUS.to_string().into()),
            seed: spec.seed,
            ..EdgeNodeConfig::for_any_reader(spec.node.clone())
        };
        let metrics = metrics::node(spec.uuid, loaded.revision.as_deref(), loaded.state);
        let clock = Clock::new();
        let handle = sparkplug_mqtt::spawn_edge_node(node, metrics, &spec.mqtt, spec.bd_seq.clone(), clock)?;
        Ok(Self { spec, handle, clock, loaded, devices: BTreeMap::new(), behaviour, ignored })
    }

    /// Runs until the stop signal; NDEATH is out when this returns.
    pub(super) async fn run(mut self, stop: CancellationToken) {
        self.bear_devices().await;
        loop {
            let is_silent = *self.behaviour.borrow() == Behaviour::Silent;
            let due = self.devices.values().map(|d| d.read_at + d.device.interval).min();
            let due = due.unwrap_or_else(|| Instant::now() + Duration::from_secs(3600));
            let is_waiting = self.loaded.state == ConfigState::Unavailable;
            tokio::select! {
                () = stop.cancelled() => break,
                event = self.handle.recv() => match event {
                    Some(NodeEvent::Command { device: None, metrics, .. }) => {
                        let is_reload = metrics.iter().any(|m| &*m.name == metrics::RELOAD && m.as_bool() == Some(true));
                        let obeys = *self.behaviour.borrow() != Behaviour::NeverReloads;
                        if is_reload && obeys {
                            self.reload().await;
                        } else if is_reload {
                            self.ignored.send_modify(|count| *count += 1);
                        }
                    }
                    Some(NodeEvent::Stopped) | None => return,
                    Some(_) => {}
                },
                changed = self.behaviour.changed() => if changed.is_err() { break },
                () = tokio::time::sleep_until(due), if !is_silent => self.read_devices().await,
                () = tokio::time::sleep(self.spec.config_retry), if is_waiting => {
                    if self.spec.load().state != ConfigState::Unavailable {
                        self.reload().await;
                    }
                }
            }
        }
        self.handle.stop().await;
    }

    async fn update(&self, update: NodeUpdate) {
        if let Err(error) = self.handle.update(update).await {
            tracing::warn!(edge_node_id = %self.spec.node.edge_node, %error, "simulated edge agent could not publish");
        }
    }

    /// A real agent restarts its whole application here: devices are born again and the node is, too.
    async fn reload(&mut self) {
        self.loaded = self.spec.load();
        tracing::info!(
            group_id = %self.spec.node.group,
            edge_node_id = %self.spec.node.edge_node,
            revision = self.loaded.revision,
            devices = self.loaded.config.devices.len(),
            "simulated edge agent has loaded its configuration"
        );
        let is_wanted = |id: &str| self.loaded.config.devices.iter().any(|d| d.id.as_str() == id);
        let gone: Vec<DeviceId> =
            self.devices.values().map(|d| d.device.id.clone()).filter(|id| !is_wanted(id.as_str())).collect();
        for device in gone {
            self.devices.remove(device.as_str());
            self.update(NodeUpdate::DeviceDeath { device }).await;
        }
        let metrics = metrics::changing(self.loaded.revision.as_deref(), self.loaded.state).into();
        self.update(NodeUpdate::Set { device: None, metrics }).await;
        self.bear_devices().await;
        self.update(NodeUpdate::Rebirth).await;
    }

    /// Declares every configured device; a machine that runs already continues running.
    async fn bear_devices(&mut self) {
        for device in self.loaded.config.devices.clone() {
            let seed = seed_of(self.spec.seed, &device.id);
            let running = self.devices.remove(device.id.as_str());
            let (machine, status) = running.map_or_else(
                || {
                    let machine = Machine::new(seed);
                    let status = Status::of(&machine, self.clock.now().wall);
                    (machine, status)
                },
                |running| (running.machine, running.status),
            );
            let metrics = metrics::device(self.spec.uuid, &device, &machine, status);
            self.update(NodeUpdate::DeviceBirth { device: device.id.clone(), metrics }).await;
            let read_at = Instant::now();
            self.devices.insert(device.id.as_str().to_owned(), Running { device, machine, status, read_at });
        }
    }

    async fn read_devices(&mut self) {
        let now = Instant::now();
        let mut updates = Vec::new();
        for running in self.devices.values_mut().filter(|d| d.read_at + d.device.interval <= now) {
            running.machine.step(now - running.read_at);
            running.read_at = now;
            running.status = running.status.after(&running.machine, self.clock.now().wall);
            let metrics = metrics::values(&running.device, &running.machine, running.status);
            updates.push(NodeUpdate::Set { device: Some(running.device.id.clone()), metrics });
        }
        for update in updates {
            self.update(update).await;
        }
    }
}

/// Machines of one agent differ, and are the same after a restart (FNV-1a of the id).
fn seed_of(seed: u64, device: &DeviceId) -> u64 {
    device
        .as_str()
        .bytes()
        .fold(seed ^ 0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The seed of an agent: its own, and the same after a restart.
pub(super) fn seed_of_agent(seed: u64, uuid: Uuid) -> u64 {
    let bits = uuid.as_u128();
    // Folding 128 bits into 64; zero would ask for a random seed.
    (seed ^ (bits as u64) ^ ((bits >> 64) as u64)).max(1)
}

/// The resource by which the edge monitor knows an agent.
pub(super) fn spark_node(uuid: Uuid, name: &str) -> Json {
    serde_json::json!({
        "apiVersion": "factoryplus.app.amrc.co.uk/v1", "kind": "SparkplugNode", "metadata": { "name": name },
        "spec": { "uuid": uuid.to_string(), "edgeAgent": true, "secrets": [format!("edge-agent-sensitive-information-{uuid}")] }
    })
}
