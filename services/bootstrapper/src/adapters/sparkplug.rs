//! The Edge Node of the host: `<group>/<disk uuid>`. It begins when the disk is known.

use std::path::PathBuf;

use sparkplug::edge_node::{EdgeNodeConfig, NodeEvent, NodeUpdate, UpdateError};
use sparkplug::{EdgeNodeDescriptor, EdgeNodeId, GroupId, Metric};
use sparkplug_mqtt::{BdSeqStore, Clock, EdgeNodeHandle, MqttConfig, SpawnError};
use uuid::Uuid;

/// The Edge Node, before and after its start.
#[derive(Debug)]
pub struct Session {
    group: GroupId,
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
    pub const fn new(group: GroupId, mqtt: MqttConfig, state_dir: PathBuf, clock: Clock) -> Self {
        Self { group, mqtt, state_dir, clock, node: None }
    }

    /// Starts the Edge Node of this disk.
    ///
    /// # Errors
    /// The stored bdSeq or a certificate file cannot be read.
    pub fn start(&mut self, disk: Uuid, metrics: Vec<Metric>) -> Result<(), SpawnError> {
        let edge_node = EdgeNodeId::new(disk.hyphenated().to_string())
            .expect("a UUID holds only characters that are allowed in an edge node id");
        let descriptor = EdgeNodeDescriptor { group: self.group.clone(), edge_node };
        let store = BdSeqStore::in_directory(&self.state_dir, &descriptor);
        let config = EdgeNodeConfig::for_any_reader(descriptor);
        self.node = Some(sparkplug_mqtt::spawn_edge_node(config, metrics, &self.mqtt, store, self.clock)?);
        Ok(())
    }

    /// Passes an update on. An update that the node refuses is logged.
    ///
    /// # Errors
    /// The session has ended.
    pub async fn update(&mut self, update: NodeUpdate) -> Result<(), SessionEnded> {
        let Some(node) = &self.node else { return Ok(()) };
        match node.update(update).await {
            Ok(()) => Ok(()),
            Err(UpdateError::Stopped) => Err(SessionEnded),
            Err(error) => {
                tracing::warn!(%error, "report refused by the edge node");
                Ok(())
            }
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

    /// Publishes the death and disconnects.
    pub async fn stop(&mut self) {
        if let Some(node) = self.node.take() {
            node.stop().await;
        }
    }
}
