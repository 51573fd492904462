//! The outside of the agent: the host that it reads, and its Edge Node.

use std::path::Path;

use anyhow::Context as _;
use service_runtime::disk::Room;
use service_runtime::health::Health;
use service_runtime::service::{ServiceIo, report_node};
use sparkplug::edge_node::NodeUpdate;
use sparkplug::{DeviceId, Metric};
use sparkplug_mqtt::EdgeNodeHandle;

use crate::config::Config;
use crate::event::{Effect, Event};
use crate::reading::{HostReading, ReadError};
use crate::state::Agent;

/// Component of health.
pub(crate) const MQTT: &str = "mqtt";

/// Everything outside of the core.
pub(crate) struct Io {
    pub config: Config,
    pub node: EdgeNodeHandle,
    pub device: DeviceId,
    pub health: Health,
    /// The host was read, and the core is not yet informed.
    pub read: Option<Result<Vec<Metric>, ReadError>>,
}

impl ServiceIo for Io {
    type Core = Agent;

    async fn recv(&mut self) -> anyhow::Result<Event> {
        match self.read.take() {
            Some(read) => Ok(Event::Read(read)),
            None => Ok(Event::Node(self.node.recv().await.context("the edge node has ended")?)),
        }
    }

    async fn execute(&mut self, effect: Effect) -> anyhow::Result<()> {
        match effect {
            Effect::Read => self.read = Some(read(&self.config)),
            Effect::Publish(metrics) => {
                self.node.update(NodeUpdate::Set { device: Some(self.device.clone()), metrics }).await?;
            }
        }
        Ok(())
    }

    fn report(&mut self, event: &Event) {
        if let Event::Node(event) = event {
            report_node(&self.health, MQTT, event);
        }
    }
}

/// Reads the host.
///
/// # Errors
/// A file of `/proc` cannot be read, or is not as Linux writes it.
pub(crate) fn read(config: &Config) -> Result<Vec<Metric>, ReadError> {
    let text = |file: &'static str| {
        std::fs::read_to_string(config.proc_dir.join(file)).map_err(|source| ReadError::File { file, source })
    };
    let mut reading = HostReading::of(&text("loadavg")?, &text("meminfo")?, &text("uptime")?)?;
    reading.disk = Room::at(&config.state_dir);
    reading.temperature = HostReading::hottest(zones(&config.sys_dir).iter().map(String::as_str));
    Ok(reading.metrics())
}

/// The texts of all thermal sensors; a host need not have any.
fn zones(sys_dir: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(sys_dir.join("class/thermal")) else { return Vec::new() };
    let directories = entries.filter_map(|entry| Some(entry.ok()?.path()));
    directories.filter_map(|directory| std::fs::read_to_string(directory.join("temp")).ok()).collect()
}
