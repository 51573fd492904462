//! Reporting: the Edge Node `<group>/Sync`. It begins when everything is known, not when the process does.

use std::path::PathBuf;

use service_runtime::sessions;
use sparkplug::edge_node::{EdgeNodeConfig, NodeEvent, NodeUpdate};
use sparkplug::{EdgeNodeDescriptor, Metric};
use sparkplug_mqtt::{BdSeqStore, Clock, EdgeNodeHandle, MqttConfig, SpawnError};

/// The Edge Node, before and after its start.
#[derive(Debug)]
pub struct Session {
    descriptor: EdgeNodeDescriptor,
    mqtt: MqttConfig,
    state_dir: PathBuf,
    clock: Clock,
    node: Option<EdgeNodeHandle>,
}

/// The task of the Edge Node ended, which it does only when it is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the task of the edge node ended by itself")]
pub struct SessionEnded;

impl Session {
    /// A session that waits for its start.
    #[must_use]
    pub fn new(descriptor: EdgeNodeDescriptor, mqtt: MqttConfig, state_dir: PathBuf, clock: Clock) -> Self {
        Self { descriptor, mqtt, state_dir, clock, node: None }
    }

    /// Starts the Edge Node with its own metrics.
    ///
    /// # Errors
    /// The stored bdSeq or a certificate file cannot be read.
    pub fn start(&mut self, metrics: Vec<Metric>) -> Result<(), SpawnError> {
        let store = BdSeqStore::in_directory(&self.state_dir, &self.descriptor);
        let config = EdgeNodeConfig::for_one_speaker(self.descriptor.clone());
        self.node = Some(sessions::spawn_node(config, metrics, &self.mqtt, store, self.clock)?);
        Ok(())
    }

    /// Brings the Edge Node up to date, if it was started, or ends it.
    pub async fn update(&mut self, update: NodeUpdate) {
        if update == NodeUpdate::Stop {
            if let Some(node) = self.node.take() {
                node.stop().await;
            }
        } else if let Some(node) = &self.node {
            sessions::update(node, update).await;
        }
    }

    /// The next event; waits for ever before the start. Cancel-safe.
    ///
    /// # Errors
    /// The session has ended.
    pub async fn recv(&mut self) -> Result<NodeEvent, SessionEnded> {
        match &mut self.node {
            Some(node) => node.recv().await.ok_or(SessionEnded),
            None => std::future::pending().await,
        }
    }
}
