//! An Edge Node whose device carries out commands: `cargo run --example obey -- mqtt://127.0.0.1:1883`.
#![allow(clippy::print_stdout, reason = "what it prints is what it is for")]

use sparkplug::edge_node::{EdgeNodeConfig, NodeEvent, NodeUpdate};
use sparkplug::{DeviceId, EdgeNodeDescriptor, Metric};
use sparkplug_mqtt::{BdSeqStore, Clock, MqttConfig, spawn_edge_node};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = std::env::args().nth(1).unwrap_or_else(|| "mqtt://127.0.0.1:1883".to_owned());
    let mqtt = MqttConfig { servers: vec![server], ..MqttConfig::default() };
    let config = EdgeNodeConfig::new(EdgeNodeDescriptor::parse("Plant", "Line")?);
    let mut node = spawn_edge_node(config, Vec::new(), &mqtt, BdSeqStore::Memory, Clock::new())?;
    let metrics = vec![Metric::new("Setpoint", 1_500_u32), Metric::new("Name", "main drive")];
    node.update(NodeUpdate::DeviceBirth { device: DeviceId::new("Motor")?, metrics }).await?;
    while let Some(event) = node.recv().await {
        if let NodeEvent::Command { device: Some(device), metrics, .. } = event {
            metrics.iter().for_each(|metric| println!("commanded: {} = {:?}", metric.name, metric.value));
            node.update(NodeUpdate::Set { device: Some(device), metrics }).await?;
        }
    }
    Ok(())
}
