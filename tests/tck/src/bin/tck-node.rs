//! An Edge Node on the command line, to be driven by users, by scripts and by the official compliance kit.
//!
//! ```text
//! cargo run -p tck --bin tck-node -- --group Plant --node Press --device Motor
//! ```
//!
//! It reads from standard input what to publish, prints the commands that it receives, and obeys those for metrics that it has. The end of standard input is a
//! `stop`. A word with spaces is written in double quotes; `src/console/value.rs` describes how values are written.
//!
//! | line | |
//! |---|---|
//! | `set NAME TYPE VALUE` | this metric of the node has this value; a name that is not in the birth leads to a rebirth |
//! | `dset DEVICE NAME TYPE VALUE` | the same of a device |
//! | `property NAME KEY TYPE VALUE` | the metric has this property |
//! | `dproperty DEVICE NAME KEY TYPE VALUE` | the same of a device |
//! | `device death DEVICE`, `device birth DEVICE` | DDEATH; DBIRTH with the metrics it had, or of an unheard-of device with `Counter Int32 0` |
//! | `rebirth` | all births again |
//! | `stop` | NDEATH, DISCONNECT, end |
//! | `close` | NDEATH, end of the connection without a DISCONNECT, end; needs `--relay` |
//! | `drop` | end as if killed: the server publishes the will |
#![allow(clippy::print_stdout, reason = "a program on the command line")]

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Parser;
use sparkplug::edge_node::{EdgeNodeConfig, NodeEvent, NodeUpdate};
use sparkplug::payload::Dialect;
use sparkplug::{DeviceId, EdgeNodeDescriptor, EdgeNodeId, GroupId, HostId, Metric, PropertyValue};
use sparkplug_mqtt::{BdSeqStore, Clock, MqttConfig, NodeUpdates, Store, StoreWhenFull, spawn_edge_node};
use tck::console::{self, Words};

/// A Sparkplug Edge Node that publishes what standard input says
#[derive(Debug, Parser)]
struct Args {
    /// Group id
    #[arg(long, default_value = "Plant")]
    group: GroupId,
    /// Edge node id
    #[arg(long, default_value = "Press")]
    node: EdgeNodeId,
    /// Device id; may be given more than once
    #[arg(long = "device", value_name = "DEVICE")]
    devices: Vec<DeviceId>,
    /// First metric of the node, `NAME TYPE VALUE`; may be given more than once
    #[arg(long = "metric", value_name = "METRIC", default_value = "Temperature Double 20.5")]
    metrics: Vec<String>,
    /// First metric of every device; may be given more than once
    #[arg(long = "device-metric", value_name = "METRIC", default_value = "Counter Int32 0")]
    device_metrics: Vec<String>,
    /// Property of a first metric of the node, `NAME KEY TYPE VALUE`; may be given more than once
    #[arg(long = "property", value_name = "PROPERTY")]
    properties: Vec<String>,
    /// The same of every device
    #[arg(long = "device-property", value_name = "PROPERTY")]
    device_properties: Vec<String>,
    /// Be born only while this Host Application is online
    #[arg(long, value_name = "HOST")]
    primary_host: Option<HostId>,
    /// Use aliases
    #[arg(long)]
    aliases: bool,
    /// How metrics are written: strict, or tahu for readers that keep no births
    #[arg(long, default_value = "strict")]
    dialect: Dialect,
    /// Directory that keeps the bdSeq over restarts; without it the node begins at 0
    #[arg(long, value_name = "DIRECTORY")]
    state_dir: Option<PathBuf>,
    /// Where data are kept while they cannot be delivered, to be sent as history: off, memory or disk
    #[arg(long, value_name = "PLACE", default_value = "off")]
    store: Store,
    /// Directory of a store on disk
    #[arg(long, value_name = "DIRECTORY")]
    store_dir: Option<PathBuf>,
    /// Bytes that the store may take
    #[arg(long, value_name = "BYTES", default_value_t = 16 * 1024 * 1024)]
    store_bytes: usize,
    /// What a full store drops: oldest or newest
    #[arg(long, value_name = "WHICH", default_value = "oldest")]
    store_when_full: StoreWhenFull,
    #[command(flatten)]
    server: console::Server,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let mut args = Args::parse();
    let relays = args.server.relayed().await?;
    let descriptor = EdgeNodeDescriptor::new(args.group, args.node);
    let metrics = |lines: &[String]| lines.iter().map(|line| Words::of(line).metric()).collect::<Result<Vec<_>, _>>();
    let first = |lines: &[String], properties: &[String]| {
        let mut first = metrics(lines)?;
        properties.iter().try_for_each(|line| with_property(&mut first, Words::of(line)).map(|_| ()))?;
        Ok(first)
    };
    let own = first(&args.metrics, &args.properties).map_err(anyhow::Error::msg::<String>)?;
    let of_device = first(&args.device_metrics, &args.device_properties).map_err(anyhow::Error::msg)?;
    let bd_seq = match &args.state_dir {
        Some(directory) => BdSeqStore::in_directory(directory, &descriptor),
        None => BdSeqStore::Memory,
    };
    let config = EdgeNodeConfig {
        primary_host: args.primary_host,
        aliases: args.aliases,
        dialect: args.dialect,
        reconnect: args.server.backoff(),
        ..EdgeNodeConfig::new(descriptor)
    };
    let mqtt = MqttConfig {
        store: args.store,
        store_directory: args.store_dir,
        store_bytes_max: args.store_bytes,
        store_when_full: args.store_when_full,
        ..args.server.config()
    };
    let mut node = spawn_edge_node(config, own.clone(), &mqtt, bd_seq, Clock::new())?;
    let mut plant = Plant { updates: node.updates(), metrics: BTreeMap::from([(None, own)]), of_device };
    for device in args.devices {
        plant.device_birth(device).await.map_err(anyhow::Error::msg)?;
    }
    let mut lines = console::lines();
    loop {
        tokio::select! {
            event = node.recv() => match event {
                Some(event) => plant.event(event).await,
                None => return Ok(()),
            },
            line = lines.recv() => match line.as_deref().map(str::trim) {
                None | Some("stop") => break,
                Some("close") => match relays.withhold_disconnect() {
                    Ok(()) => break,
                    Err(error) => eprintln!("close: {error}"),
                },
                // The process ends at once, without a DISCONNECT.
                Some("drop") => std::process::exit(0),
                Some("") => {}
                Some(line) => if let Err(error) = plant.order(line).await {
                    eprintln!("{line}: {error}");
                },
            },
            interrupted = tokio::signal::ctrl_c() => {
                interrupted?;
                break;
            }
        }
    }
    node.stop().await;
    println!("stopped");
    Ok(())
}

/// What is true in the plant that the node stands for.
struct Plant {
    updates: NodeUpdates,
    /// Of the node (None) and of every device that there ever was.
    metrics: BTreeMap<Option<DeviceId>, Vec<Metric>>,
    of_device: Vec<Metric>,
}

impl Plant {
    async fn event(&mut self, event: NodeEvent) {
        match event {
            NodeEvent::Born { bd_seq, rebirth } => println!("born bdSeq={} rebirth={rebirth}", bd_seq.get()),
            NodeEvent::Offline { reason } => println!("offline: {reason}"),
            NodeEvent::Command { device, metrics, .. } => {
                match &device {
                    None => println!("NCMD"),
                    Some(device) => println!("DCMD {}", console::word(device.as_str())),
                }
                console::print_metrics(&metrics);
                for metric in metrics {
                    if let Err(error) = self.obey(device.clone(), metric).await {
                        println!("refused: {error}");
                    }
                }
            }
            NodeEvent::Rejected { topic, reason } => println!("rejected {topic}: {reason}"),
            NodeEvent::Forwarded { sent, dropped } => println!("forwarded sent={sent} dropped={dropped}"),
            NodeEvent::Displaced(other) | NodeEvent::Contested(other) => println!("{other}"),
            NodeEvent::BirthNotReceived(unheard) => println!("{unheard}"),
            NodeEvent::BirthReceived => println!("received"),
            NodeEvent::Stopped => {}
        }
    }

    async fn order(&mut self, line: &str) -> Result<(), String> {
        let mut words = Words::of(line);
        match &*words.next("the order")? {
            "set" => self.set(None, words.metric()?).await,
            "dset" => self.set(Some(device(&mut words)?), words.metric()?).await,
            "property" => self.property(None, words).await,
            "dproperty" => self.property(Some(device(&mut words)?), words).await,
            "rebirth" => self.update(NodeUpdate::Rebirth).await,
            "device" => match &*words.next("birth or death")? {
                "birth" => self.device_birth(device(&mut words)?).await,
                "death" => self.update(NodeUpdate::DeviceDeath { device: device(&mut words)? }).await,
                other => Err(format!("{other:?} is neither birth nor death")),
            },
            _ => Err("is none of set, dset, property, dproperty, device, rebirth, stop, close, drop".to_owned()),
        }
    }

    /// A metric that was not declared cannot be written.
    async fn obey(&mut self, device: Option<DeviceId>, metric: Metric) -> Result<(), String> {
        let known =
            self.metrics.get(&device).and_then(|metrics| metrics.iter().find(|known| known.name == metric.name));
        let properties = known.ok_or_else(|| format!("there is no metric {:?}", metric.name))?.properties.clone();
        self.set(device, Metric { timestamp: None, ..metric.with_properties(properties) }).await
    }

    async fn property(&mut self, device: Option<DeviceId>, words: Words<'_>) -> Result<(), String> {
        let mut metrics = self.metrics.get(&device).cloned().unwrap_or_default();
        let metric = with_property(&mut metrics, words)?.clone();
        self.set(device, metric).await
    }

    async fn set(&mut self, device: Option<DeviceId>, metric: Metric) -> Result<(), String> {
        self.update(NodeUpdate::Set { device: device.clone(), metrics: vec![metric.clone()] }).await?;
        let metrics = self.metrics.entry(device).or_default();
        match metrics.iter_mut().find(|known| known.name == metric.name) {
            Some(known) => *known = metric,
            None => metrics.push(metric),
        }
        Ok(())
    }

    async fn device_birth(&mut self, device: DeviceId) -> Result<(), String> {
        let metrics = self.metrics.entry(Some(device.clone())).or_insert_with(|| self.of_device.clone()).clone();
        self.update(NodeUpdate::DeviceBirth { device, metrics }).await
    }

    async fn update(&self, update: NodeUpdate) -> Result<(), String> {
        self.updates.update(update).await.map_err(|error| error.to_string())
    }
}

/// Gives one of the metrics a property, `NAME KEY TYPE VALUE`; yields it.
fn with_property<'a>(metrics: &'a mut [Metric], mut words: Words<'_>) -> Result<&'a Metric, String> {
    let name = words.next("the name of the metric")?;
    let metric = metrics.iter_mut().find(|known| *known.name == *name);
    let metric = metric.ok_or_else(|| format!("there is no metric {name:?}"))?;
    let key = words.next("the key")?.into_owned();
    let (datatype, value) = words.value()?;
    metric.properties.set(key, value.map_or(PropertyValue::Null(datatype), PropertyValue::Value));
    metric.check().map_err(str::to_owned)?;
    Ok(metric)
}

fn device(words: &mut Words<'_>) -> Result<DeviceId, String> {
    DeviceId::new(words.next("the device")?).map_err(|error| error.to_string())
}
