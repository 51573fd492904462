//! The edge agent that is shipped: an Edge Node that publishes load, memory, disk, temperature and uptime of the host that it runs on, as the Device `host`. It shows that a cluster can deploy and be received, and
//! what its hosts do; agents that speak to machines are charts of the site.
//!
//! ```text
//!   /proc, /sys, disk ──> reading.rs ──> run ──> <group>/<name>: NBIRTH, DBIRTH and DDATA of `host`, NDEATH
//! ```
//!
//! A container sees `/proc/loadavg`, `/proc/meminfo`, `/proc/uptime` and `/sys/class/thermal` of its host, and its `state_dir` is on the disk of the host's kubelet, so no directory of it is mounted.
//!
//! Of the usual rooms there is `config.rs`. There is no `event.rs`, `state.rs` or `reconcile.rs`, because nothing is decided. What was read is published when it has changed, and
//! the Edge Node does the rest.
#![warn(unreachable_pub)]

mod config;
mod reading;
mod status;

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use config::Checked;
pub use config::Config;
use configdb_schema::known::schema;
use reading::{HostReading, ReadError, described};
use service_runtime::disk::Room;
use service_runtime::health::{self, Health};
use service_runtime::shutdown::Shutdown;
use sparkplug::edge_node::{EdgeNodeConfig, NodeUpdate};
use sparkplug::{DeviceId, Metric, Value};
use sparkplug_mqtt::{BdSeqStore, Clock, EdgeNodeHandle};
use status::Status;
use uuid::Uuid;

const MQTT: &str = "mqtt";

/// Reads, publishes, and returns at the stop signal; NDEATH is out then.
///
/// # Errors
/// The configuration is not usable, the host cannot be read at the start, or the stored bdSeq cannot be read.
pub async fn run(config: Config, shutdown: Shutdown, health: Health) -> anyhow::Result<()> {
    let Checked { node, device } =
        config.validate().map_err(|error| service_runtime::exit::with_code(service_runtime::exit::CONFIG, error))?;
    health.component(MQTT, false, "connecting");
    if let Some(addr) = config.http.listen {
        health::serve(addr, health.clone(), shutdown.child()).await?;
    }
    let state_dir = &config.state_dir;
    state_dir.create().with_context(|| format!("state_dir {} cannot be made", state_dir.display()))?;
    let first = read(&config).context("the host cannot be read")?;
    let clock = Clock::new();
    let mut status = Status::measured(clock.now().wall);
    let store = BdSeqStore::in_directory(state_dir, &node);
    let about = EdgeNodeConfig::for_any_reader(node);
    let mut handle = sparkplug_mqtt::spawn_edge_node(about, metrics_of_node(&config), &config.mqtt, store, clock)?;
    let metrics = [status.metrics(), first].concat();
    handle.update(NodeUpdate::DeviceBirth { device: device.clone(), metrics }).await?;
    let mut ticks = tokio::time::interval(Duration::from_millis(config.interval_ms));
    loop {
        tokio::select! {
            () = shutdown.wait() => break,
            event = handle.recv() => {
                service_runtime::service::report_node(&health, MQTT, &event.context("the edge node has ended")?);
            }
            _ = ticks.tick() => status = publish(&handle, &config, &device, status, clock.now().wall).await?,
        }
    }
    handle.stop().await;
    Ok(())
}

/// What has not changed is left out by the Edge Node. The status after this attempt to read the host.
async fn publish(
    handle: &EdgeNodeHandle,
    config: &Config,
    device: &DeviceId,
    before: Status,
    now: u64,
) -> anyhow::Result<Status> {
    let read = read(config);
    let status = before.after(read.as_ref().err().map(ToString::to_string), now);
    if let Some(reason) = status.reason().filter(|reason| Some(*reason) != before.reason()) {
        tracing::warn!(reason, "the host cannot be read");
    }
    let metrics = [status.metrics(), read.unwrap_or_default()].concat();
    handle.update(NodeUpdate::Set { device: Some(device.clone()), metrics }).await?;
    Ok(status)
}

fn read(config: &Config) -> Result<Vec<Metric>, ReadError> {
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

fn metrics_of_node(config: &Config) -> Vec<Metric> {
    let uuid = |uuid: Uuid| Value::Uuid(uuid.to_string().into());
    let mut metrics = vec![
        described("Schema_UUID", uuid(schema::EDGE_AGENT), "Schema of an edge agent, as Factory+ knows it."),
        described("Node Properties/Type", "Host agent", "Kind of edge agent."),
        described("Node Properties/Version", env!("CARGO_PKG_VERSION"), "Version of the software."),
    ];
    let own = config.uuid.map(|own| described("Instance_UUID", uuid(own), "Object of the deployment in ConfigDB."));
    let host = config.hostname.as_deref();
    metrics.extend(own);
    metrics.extend(host.map(|host| described("Node Properties/Host", host, "Host that the deployment is set to.")));
    metrics
}

#[cfg(test)]
mod tests {
    use super::*;
    use service_runtime::disk::Room;

    #[test]
    fn the_page_of_metrics_has_these_metrics_and_no_other() {
        let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md")).unwrap();
        let config = Config { uuid: Some(Uuid::nil()), hostname: Some("a".to_owned()), ..Config::default() };
        let mut reading = HostReading::of("0.5 1.0 1.5", "MemTotal: 2 kB\nMemAvailable: 1 kB\n", "1.0").unwrap();
        reading.disk = Some(Room { total: 2, available: 1 });
        reading.temperature = Some(20.0);
        let device = [Status::measured(0).metrics(), reading.metrics()].concat();
        for (title, metrics) in [
            ("`ORG-<cluster>/<deployment>`: the edge agent that", metrics_of_node(&config)),
            ("Device `host` of that edge agent", device),
        ] {
            let section = page.split("\n## ").find(|section| section.starts_with(title)).unwrap();
            let written: Vec<&str> = section.lines().filter(|line| line.starts_with("| `")).collect();
            let row = |metric: &Metric| {
                let property = |key| metric.properties.get(key).and_then(Value::as_str).unwrap_or_default();
                let (unit, meaning) = (property("engUnit"), property("documentation"));
                format!("| `{}` | {:?} | {unit} | {meaning} |", metric.name, metric.datatype)
            };
            assert_eq!(metrics.iter().map(row).collect::<Vec<_>>(), written, "{title}");
        }
    }
}
