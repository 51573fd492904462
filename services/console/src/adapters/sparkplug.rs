//! Sparkplug: the two sessions of the console. As Edge Node it is `ORG-Central/Console`; as Host Application it receives every Edge Node of the broker. An explorer has the second one only.

use std::path::Path;

use service_runtime::sessions;
use sparkplug::NameError;
use sparkplug::edge_node::{EdgeNodeConfig, NodeEvent, NodeUpdate};
use sparkplug::host::{HostConfig, HostEvent, HostRequest};
use sparkplug_mqtt::{BdSeqStore, Clock, EdgeNodeHandle, HostHandle, MqttConfig, SpawnError, Stopped};

use crate::config::{Role, Settings};
use crate::state::State;

/// Both sessions.
#[derive(Debug)]
pub struct Sessions {
    /// As `ORG-Central/Console`; an explorer is not a node.
    pub node: Option<EdgeNodeHandle>,
    /// As Host Application; a replay has no broker.
    pub host: Option<HostHandle>,
}

/// Why a session could not be started.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The ids.
    #[error("the organisation does not make Sparkplug ids")]
    Name(#[from] NameError),
    /// The MQTT configuration or the stored bdSeq.
    #[error(transparent)]
    Spawn(#[from] SpawnError),
}

/// The next event of the own Edge Node; never, if there is none.
pub async fn node_event(node: &mut Option<EdgeNodeHandle>) -> Option<NodeEvent> {
    match node {
        Some(node) => node.recv().await,
        None => std::future::pending().await,
    }
}

/// The next event of the own Host Application; never, if there is none.
pub async fn host_event(host: &mut Option<HostHandle>) -> Option<HostEvent> {
    match host {
        Some(host) => host.recv().await,
        None => std::future::pending().await,
    }
}

impl Sessions {
    /// Starts those that the role has.
    ///
    /// # Errors
    /// [`SessionError`]; nothing runs then.
    pub fn start(settings: &Settings, mqtt: &MqttConfig, state_dir: &Path, clock: Clock) -> Result<Self, SessionError> {
        let (node, config) = match settings.role {
            Role::Console => {
                let bd_seq = BdSeqStore::in_directory(state_dir, &settings.node);
                let config = EdgeNodeConfig::for_one_speaker(settings.node.clone());
                let metrics = State::first_metrics(settings);
                let node = sessions::spawn_node(config, metrics, mqtt, bd_seq, clock)?;
                (Some(node), HostConfig::of_contracts(Some(settings.host_id.clone())))
            }
            Role::Explorer { rebirths } => (None, HostConfig { rebirth_requests: rebirths, ..HostConfig::new(None) }),
            Role::Replay => return Ok(Self { node: None, host: None }),
        };
        let config = HostConfig { report_aliases: true, ..config };
        let host = sparkplug_mqtt::spawn_host(config, mqtt, clock).map_err(SpawnError::from)?;
        Ok(Self { node, host: Some(host) })
    }

    /// Changes what the console says of itself.
    pub async fn update(&self, update: NodeUpdate) {
        if let Some(node) = &self.node {
            sessions::update(node, update).await;
        }
    }

    /// Sends to other nodes.
    ///
    /// # Errors
    /// The session has ended.
    pub async fn request(&self, request: HostRequest) -> Result<(), Stopped> {
        match &self.host {
            Some(host) => host.request(request).await,
            None => Ok(()),
        }
    }

    /// Says that the console dies, and ends both sessions.
    pub async fn stop(self) {
        let node = async {
            if let Some(node) = self.node {
                node.stop().await;
            }
        };
        let host = async {
            if let Some(host) = self.host {
                host.stop().await;
            }
        };
        tokio::join!(node, host);
    }
}
