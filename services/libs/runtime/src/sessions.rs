//! The two Sparkplug sessions that most services have: one as Edge Node, one as Host Application.

use std::path::Path;

use sparkplug::Metric;
use sparkplug::edge_node::{EdgeNodeConfig, NodeUpdate, UpdateError};
use sparkplug::host::{HostConfig, HostRequest};
use sparkplug_mqtt::{BdSeqStore, Clock, EdgeNodeHandle, HostHandle, MqttConfig, SpawnError, Stopped};

/// Both sessions.
#[derive(Debug)]
pub struct Sessions {
    /// As Edge Node.
    pub node: EdgeNodeHandle,
    /// As Host Application.
    pub host: HostHandle,
}

impl Sessions {
    /// Starts both. `metrics`: those of the Edge Node's first birth; `state_dir`: where its bdSeq is stored.
    ///
    /// # Errors
    /// The MQTT configuration, a certificate file, or the stored bdSeq cannot be used; nothing runs then.
    pub fn start(
        (node, host): (EdgeNodeConfig, HostConfig),
        metrics: Vec<Metric>,
        mqtt: &MqttConfig,
        state_dir: &Path,
        clock: Clock,
    ) -> Result<Self, SpawnError> {
        let bd_seq = BdSeqStore::in_directory(state_dir, &node.descriptor);
        let node = sparkplug_mqtt::spawn_edge_node(node, metrics, mqtt, bd_seq, clock)?;
        let host = sparkplug_mqtt::spawn_host(host, mqtt, clock)?;
        Ok(Self { node, host })
    }

    /// Passes a request of the Host Application on.
    ///
    /// # Errors
    /// The session has ended.
    pub async fn request(&self, request: HostRequest) -> Result<(), Stopped> {
        self.host.request(request).await
    }

    /// Says that the Edge Node dies, and ends both sessions.
    pub async fn stop(self) {
        tokio::join!(self.node.stop(), self.host.stop());
    }
}

/// Brings an Edge Node up to date. An update that the node refuses is logged: a report is made to fit before.
pub async fn update(node: &EdgeNodeHandle, update: NodeUpdate) {
    match node.update(update).await {
        // That the session has ended is its next event.
        Ok(()) | Err(UpdateError::Stopped) => {}
        Err(error) => tracing::warn!(error = %error, "the own metrics could not be brought up to date"),
    }
}
