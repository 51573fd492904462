//! The edge agent that is shipped: an Edge Node that publishes load, memory, disk, temperature and uptime of the host that it runs on, as the Device `host`. It shows that a cluster can deploy and be received, and
//! what its hosts do; agents that speak to machines are charts of the site.
//!
//! ```text
//!   /proc, /sys, disk ──> reading.rs ──> state.rs ──> <group>/<name>: NBIRTH, DBIRTH and DDATA of `host`, NDEATH
//! ```
//!
//! A container sees `/proc/loadavg`, `/proc/meminfo`, `/proc/uptime` and `/sys/class/thermal` of its host, and its `state_dir` is on the disk of the host's kubelet, so no directory of it is mounted.
//!
//! Of the usual rooms there is no `reconcile.rs`, because nothing is desired: what was read is published when it has changed.
#![warn(unreachable_pub)]

mod adapters;
mod config;
mod event;
mod reading;
mod state;
mod status;

use std::time::Duration;

use adapters::{Io, MQTT};
use anyhow::Context as _;
use config::Checked;
pub use config::Config;
use configdb_schema::known::schema;
use reading::described;
use service_runtime::exit;
use service_runtime::health::Health;
use service_runtime::service::serve;
use service_runtime::shutdown::Shutdown;
use sparkplug::edge_node::{EdgeNodeConfig, NodeUpdate};
use sparkplug::{Metric, Value};
use sparkplug_mqtt::{BdSeqStore, Clock};
use state::Agent;
use uuid::Uuid;

/// Reads, publishes, and returns at the stop signal; NDEATH is out then.
///
/// # Errors
/// The configuration is not usable, the host cannot be read at the start, or the stored bdSeq cannot be read.
pub async fn run(config: Config, shutdown: Shutdown, health: Health) -> anyhow::Result<()> {
    let Checked { node, device } = config.validate().map_err(|error| exit::with_code(exit::CONFIG, error))?;
    health.component(MQTT, false, "connecting");
    let state_dir = &config.state_dir;
    state_dir.create().with_context(|| format!("state_dir {} cannot be made", state_dir.display()))?;
    let first = adapters::read(&config).context("the host cannot be read")?;
    let clock = Clock::new();
    let mut agent = Agent::new(Duration::from_millis(config.interval_ms), clock.now());
    let store = BdSeqStore::in_directory(state_dir, &node);
    let about = EdgeNodeConfig::for_any_reader(node);
    let node = sparkplug_mqtt::spawn_edge_node(about, metrics_of_node(&config), &config.mqtt, store, clock)?;
    let metrics = [agent.status_metrics(), first].concat();
    node.update(NodeUpdate::DeviceBirth { device: device.clone(), metrics }).await?;
    let mut io = Io { config, node, device, health, read: None };
    serve(&mut agent, &mut io, clock, &shutdown).await?;
    io.node.stop().await;
    Ok(())
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
    use crate::reading::HostReading;
    use crate::status::Status;
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
