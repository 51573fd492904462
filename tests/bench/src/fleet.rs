//! Many light edges in this process.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::Context as _;
use service_runtime::shutdown::Shutdown;
use sparkplug_mqtt::MqttConfig;
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::light_edge::{self, Applied};
use crate::operator::Plant;

/// Running edges.
#[derive(Debug)]
pub struct Fleet {
    edges: JoinSet<anyhow::Result<()>>,
    shutdown: Shutdown,
    applied: UnboundedReceiver<Applied>,
}

impl Fleet {
    /// Starts an edge for each of `plants`.
    #[must_use]
    pub fn start(plants: &[Plant], mqtt: &MqttConfig) -> Self {
        let shutdown = Shutdown::new();
        // One entry for each application, read after each change: it cannot grow.
        let (sender, applied) = mpsc::unbounded_channel();
        let mut edges = JoinSet::new();
        for plant in plants {
            let identity = (plant.cluster, plant.name.clone());
            edges.spawn(light_edge::run(identity, plant.sync.clone(), mqtt.clone(), sender.clone(), shutdown.child()));
        }
        Self { edges, shutdown, applied }
    }

    /// The last application of each deployment since this was asked last.
    pub fn applied(&mut self) -> BTreeMap<Uuid, Instant> {
        std::iter::from_fn(|| self.applied.try_recv().ok()).map(|applied| (applied.deployment, applied.at)).collect()
    }

    /// Stops all.
    ///
    /// # Errors
    /// One of them had failed.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        self.shutdown.trigger();
        while let Some(ended) = self.edges.join_next().await {
            ended.context("an edge panicked")?.context("an edge")?;
        }
        Ok(())
    }
}
