//! A factory: a broker, issuers that answer over it, and hosts that run in this process.

use std::collections::BTreeMap;
use std::path::Path;

use bootstrapper::adapters::supervisor::Supervisor;
use bootstrapper::config::{ClusterConfig, Config, TimeoutsConfig, TrustConfig};
use bootstrapper::{Ending, Platform};
use bootstrapper_contract::{HostNode, names};
use join_protocol::terms::Address;
use service_runtime::shutdown::Shutdown;
use sparkplug::host::{HostConfig, HostEvent, HostRequest};
use sparkplug::{EdgeNodeDescriptor, EdgeNodeId, GroupId, Metric, TypedMetrics as _};
use sparkplug_mqtt::{Clock, HostHandle};
use tokio::task::JoinHandle;
use uuid::Uuid;

use super::issuer::{CLUSTER, GROUP, TestIssuer, anchor};
use super::mosquitto::Mosquitto;
use super::{PATIENCE, in_time};

/// Configuration of a host that believes the test's root.
pub fn config(broker: &Mosquitto, directory: &Path, name: &str) -> Config {
    Config {
        state_dir: directory.join("bdseq").into(),
        node_name: Some(name.to_owned()),
        addresses: vec!["10.0.0.7".to_owned()],
        suites: vec!["x25519".to_owned()],
        cluster: ClusterConfig { name: "Cell".to_owned(), uuid: Some(CLUSTER) },
        trust: TrustConfig { root: Some(hex::encode(anchor().root)), ..TrustConfig::default() },
        timeouts: TimeoutsConfig { retry_ms: 100, reboot_ms: 100, linger_ms: 600_000, ..TimeoutsConfig::default() },
        mqtt: broker.config(),
        ..Config::default()
    }
}

/// A running bootstrapper.
pub struct Running {
    shutdown: Shutdown,
    pub task: JoinHandle<anyhow::Result<Ending>>,
}

impl Running {
    pub fn start(config: Config, platform: Platform) -> Self {
        Self::supervised(config, platform, Supervisor::none())
    }

    pub fn supervised(config: Config, platform: Platform, supervisor: Supervisor) -> Self {
        config.state_dir.create().unwrap();
        let shutdown = Shutdown::new();
        let task = tokio::spawn(bootstrapper::run(config, platform, supervisor, shutdown.clone()));
        Self { shutdown, task }
    }

    pub async fn end(self) -> Ending {
        in_time("the end of a bootstrapper", self.task).await.unwrap().unwrap()
    }

    pub async fn stop(self) -> Ending {
        self.shutdown.trigger();
        self.end().await
    }

    /// Killed: no death, no farewell.
    pub async fn kill(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}

/// The broker's other end: issuers, and a replica of what hosts say.
pub struct Site {
    host: HostHandle,
    pub issuers: Vec<TestIssuer>,
    pub nodes: BTreeMap<String, HostNode>,
    pub alive: BTreeMap<String, bool>,
    /// Every received metric, as text: no secret may be in it.
    pub received: String,
}

impl Site {
    pub fn start(broker: &Mosquitto, issuers: Vec<TestIssuer>) -> Self {
        let config =
            HostConfig { rebirth_jitter: std::time::Duration::from_millis(10), ..HostConfig::of_contracts(None) };
        let host = sparkplug_mqtt::spawn_host(config, &broker.config(), Clock::new()).unwrap();
        Self { host, issuers, nodes: BTreeMap::new(), alive: BTreeMap::new(), received: String::new() }
    }

    /// Answers hosts until the condition holds.
    pub async fn until(&mut self, what: &str, condition: impl Fn(&Self) -> bool) {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while !condition(self) {
            let event = tokio::time::timeout_at(deadline, self.host.recv()).await;
            match event {
                Ok(event) => self.on_event(event.unwrap()).await,
                Err(_) => panic!("waited too long for {what}: {:#?} {:#?}", self.nodes, self.errors()),
            }
        }
    }

    pub fn errors(&self) -> Vec<&String> {
        self.issuers.iter().flat_map(|issuer| &issuer.errors).collect()
    }

    async fn on_event(&mut self, event: HostEvent) {
        match &event {
            HostEvent::NodeBirth { node, metrics, .. } => {
                let born = HostNode::from_metrics(metrics.iter()).unwrap();
                self.nodes.insert(node.edge_node.to_string(), born);
                self.alive.insert(node.edge_node.to_string(), true);
                self.answer(node, metrics).await;
            }
            HostEvent::NodeData { node, metrics, .. } => {
                if let Some(known) = self.nodes.get_mut(node.edge_node.as_str()) {
                    known.merge(metrics).unwrap();
                }
                self.answer(node, metrics).await;
            }
            HostEvent::NodeDeath { node, .. } => {
                self.alive.insert(node.edge_node.to_string(), false);
            }
            _ => {}
        }
    }

    async fn answer(&mut self, node: &EdgeNodeDescriptor, metrics: &[Metric]) {
        let address = Address { group: node.group.to_string(), node: node.edge_node.to_string() };
        let now_ms = Clock::new().now().wall;
        for metric in metrics {
            self.received.push_str(&format!("{metric:?}\n"));
            let answers: Vec<_> =
                self.issuers.iter_mut().filter_map(|issuer| issuer.on_metric(&address, metric, now_ms)).collect();
            for answer in answers {
                self.command(node.clone(), answer).await;
            }
        }
    }

    async fn command(&self, node: EdgeNodeDescriptor, metric: Metric) {
        self.host.request(HostRequest::Command { node, device: None, metrics: vec![metric] }).await.unwrap();
    }

    /// An administrator asks this host to ask him.
    pub async fn ask_for_administrator(&self, disk: Uuid) {
        let edge_node = EdgeNodeId::new(disk.hyphenated().to_string()).unwrap();
        let node = EdgeNodeDescriptor { group: GroupId::new(GROUP).unwrap(), edge_node };
        self.command(node, Metric::new(names::ADMINISTRATOR, true)).await;
    }

    pub fn node(&self, disk: Uuid) -> Option<&HostNode> {
        self.nodes.get(&disk.hyphenated().to_string())
    }

    pub fn state(&self, disk: Uuid) -> &str {
        self.node(disk).map_or("", |node| &node.state)
    }
}
