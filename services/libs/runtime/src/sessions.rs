//! The two Sparkplug sessions that most services have: one as Edge Node, one as Host Application.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sparkplug::Metric;
use sparkplug::edge_node::{EdgeNodeConfig, NodeUpdate, UpdateError};
use sparkplug::host::{HostConfig, HostRequest};
use sparkplug_mqtt::{BdSeqStore, Clock, EdgeNodeHandle, HostHandle, MqttConfig, SpawnError, Stopped, WeakNodeUpdates};

use crate::disk::{DiskReport, Room};

/// How often a service looks at the disk of its state directory. What fills a gibibyte in less is seen by the writes that fail.
const DISK_LOOK: Duration = Duration::from_secs(10);

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
        let node = spawn_node(node, metrics, mqtt, bd_seq, clock)?;
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

/// Starts the Edge Node of a service, which also says how much room the disk has where its bdSeq is stored: that of the state directory.
///
/// # Errors
/// As [`Sessions::start`].
pub fn spawn_node(
    node: EdgeNodeConfig,
    mut metrics: Vec<Metric>,
    mqtt: &MqttConfig,
    bd_seq: BdSeqStore,
    clock: Clock,
) -> Result<EdgeNodeHandle, SpawnError> {
    let directory = match &bd_seq {
        BdSeqStore::File(file) => file.parent().map(Path::to_owned),
        BdSeqStore::Memory => None,
    };
    let mut disk = directory.map(|directory| WatchedDisk {
        node: node.descriptor.to_string(),
        directory,
        report: DiskReport::default(),
    });
    metrics.extend(disk.iter_mut().flat_map(|disk| disk.look(Room::at(&disk.directory), clock)));
    let node = sparkplug_mqtt::spawn_edge_node(node, metrics, mqtt, bd_seq, clock)?;
    if let Some(disk) = disk {
        tokio::spawn(disk.watch(node.updates().downgrade(), clock));
    }
    Ok(node)
}

#[derive(Debug)]
struct WatchedDisk {
    node: String,
    directory: PathBuf,
    report: DiskReport,
}

impl WatchedDisk {
    /// Ends with the Edge Node.
    async fn watch(mut self, node: WeakNodeUpdates, clock: Clock) {
        loop {
            tokio::time::sleep(DISK_LOOK).await;
            let directory = self.directory.clone();
            // A file system of another machine may not answer for long.
            let room = tokio::task::spawn_blocking(move || Room::at(&directory)).await.ok().flatten();
            let Some(node) = node.upgrade() else { return };
            let metrics = self.look(room, clock);
            if metrics.is_empty() {
                continue;
            }
            match node.update(NodeUpdate::Set { device: None, metrics }).await {
                Ok(()) => {}
                Err(UpdateError::Stopped) => return,
                Err(error) => tracing::warn!(%error, "the room of the disk could not be published"),
            }
        }
    }

    /// What is to be published; nothing while the system does not say how much room there is.
    fn look(&mut self, room: Option<Room>, clock: Clock) -> Vec<Metric> {
        let Some(room) = room else { return Vec::new() };
        let name = "sparkfleet_disk_available_bytes";
        metrics::describe_gauge!(name, "Room on the disk that has the state directory, bytes");
        #[expect(clippy::cast_precision_loss, reason = "a gauge is a float; bytes stay exact up to 2^53")]
        metrics::gauge!(name, "node" => self.node.clone()).set(room.available as f64);
        let before = self.report.alert();
        let metrics = self.report.update(room, clock.now().wall);
        match (&before, self.report.alert()) {
            (before, Some(alert)) if before.as_ref() != Some(&alert) => {
                tracing::warn!(directory = %self.directory.display(), available_bytes = room.available, alert, "there is little room");
            }
            (Some(_), None) => tracing::info!(directory = %self.directory.display(), "there is room again"),
            _ => {}
        }
        metrics
    }
}

/// Brings an Edge Node up to date. An update that the node refuses is logged: a report is made to fit before.
pub async fn update(node: &EdgeNodeHandle, update: NodeUpdate) {
    // That the node has stopped is its next event.
    let _ = node.submit(update).await;
}
