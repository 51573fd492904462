//! Sparkplug: the two sessions of the replica that speaks. As Edge Node it is `<group>/Join`; as Host Application it listens to the quarantine group and answers there.

use std::path::PathBuf;

use configdb_schema::address::host_id;
use join_protocol::limits::EVIDENCE_BYTES_MAX;
use join_protocol::metrics::HostMessage;
use service_runtime::sessions;
use sparkplug::edge_node::{EdgeNodeConfig, NodeUpdate, Speaker};
use sparkplug::host::{HostConfig, HostRequest};
use sparkplug::session::QoS;
use sparkplug::{EdgeNodeDescriptor, HostId, Metric};
use sparkplug_mqtt::{BdSeqStore, Clock, EdgeNodeHandle, HostHandle, MqttConfig, SpawnError, Stopped};

use crate::event::Event;
use crate::settings::Settings;

/// Hosts of the quarantine group whose births are kept. Their metrics are messages of the protocol; what is beyond is refused.
const NODES_MAX: usize = 4_000;
/// Metrics of one host: the messages of the protocol, those that every Edge Node has, and what a bootstrapper reports of itself.
const METRICS_MAX: usize = 64;

/// Both sessions, before and after their start.
#[derive(Debug)]
pub struct Sessions {
    descriptor: EdgeNodeDescriptor,
    join_group: String,
    mqtt: MqttConfig,
    state_dir: PathBuf,
    clock: Clock,
    running: Option<(EdgeNodeHandle, HostHandle)>,
}

/// A session ended, which it does only when it is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the task of a session ended by itself")]
pub struct SessionEnded;

impl Sessions {
    /// Sessions that wait for their start.
    #[must_use]
    pub fn new(
        descriptor: EdgeNodeDescriptor,
        settings: &Settings,
        mqtt: MqttConfig,
        state_dir: PathBuf,
        clock: Clock,
    ) -> Self {
        Self { descriptor, join_group: settings.join_group.clone(), mqtt, state_dir, clock, running: None }
    }

    /// Starts both: the Edge Node with its own metrics.
    ///
    /// # Errors
    /// The stored bdSeq or a certificate file cannot be read.
    pub fn start(&mut self, metrics: Vec<Metric>) -> Result<(), SpawnError> {
        let store = BdSeqStore::in_directory(&self.state_dir, &self.descriptor);
        let config = node_config(self.descriptor.clone());
        let node = sessions::spawn_node(config, metrics, &self.mqtt, store, self.clock)?;
        let host = sparkplug_mqtt::spawn_host(host_config(&self.descriptor, &self.join_group), &self.mqtt, self.clock)?;
        self.running = Some((node, host));
        Ok(())
    }

    /// Brings the Edge Node up to date, if it was started.
    pub async fn update(&self, update: NodeUpdate) {
        if let Some((node, _)) = &self.running {
            sessions::update(node, update).await;
        }
    }

    /// Passes a request of the Host Application on.
    ///
    /// # Errors
    /// The session has ended.
    pub async fn request(&self, request: HostRequest) -> Result<(), Stopped> {
        match &self.running {
            Some((_, host)) => host.request(request).await,
            None => Ok(()),
        }
    }

    /// The next event of either; waits for ever before the start. Cancel-safe.
    ///
    /// # Errors
    /// A session has ended.
    pub async fn recv(&mut self) -> Result<Event, SessionEnded> {
        let Some((node, host)) = &mut self.running else { return std::future::pending().await };
        tokio::select! {
            event = node.recv() => event.map(Event::Node).ok_or(SessionEnded),
            event = host.recv() => event.map(Event::Host).ok_or(SessionEnded),
        }
    }

    /// Says that the node dies, and ends both sessions.
    pub async fn stop(&mut self) {
        if let Some((node, host)) = self.running.take() {
            tokio::join!(node.stop(), host.stop());
        }
    }
}

/// The Edge Node of the replica that speaks.
#[must_use]
pub fn node_config(descriptor: EdgeNodeDescriptor) -> EdgeNodeConfig {
    // The lease decides which replica speaks: its holder displaces a replica that has not noticed yet that it lost the lease.
    let speaker = Some(Speaker { takes_over: true, ..Speaker::default() });
    EdgeNodeConfig { speaker, ..EdgeNodeConfig::for_any_reader(descriptor) }
}

/// The Host Application of the replica that speaks: it listens to the quarantine group.
#[must_use]
pub fn host_config(node: &EdgeNodeDescriptor, join_group: &str) -> HostConfig {
    let host_id = HostId::new(host_id(node.group.as_str(), node.edge_node.as_str())).ok();
    HostConfig {
        // A will is published at QoS 1; births and data stay at QoS 0.
        filters: vec![(format!("spBv1.0/{join_group}/#"), QoS::AtLeastOnce)],
        nodes_max: NODES_MAX,
        devices_max: 0,
        metrics_max: METRICS_MAX,
        message_bytes_max: 2 * EVIDENCE_BYTES_MAX,
        messages: HostMessage::NAMES.into(),
        ..HostConfig::of_contracts(host_id)
    }
}
