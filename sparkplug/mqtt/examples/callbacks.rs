//! An Edge Node with a function for each metric that may be commanded: `cargo run --example callbacks -- mqtt://127.0.0.1:1883`.
#![allow(clippy::print_stdout, reason = "what it prints is what it is for")]

use sparkplug::edge_node::{CommandCallbacks, EdgeNodeConfig, NodeUpdate};
use sparkplug::{DeviceId, EdgeNodeDescriptor, Metric};
use sparkplug_mqtt::{BdSeqStore, Clock, MqttConfig, spawn_edge_node};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = std::env::args().nth(1).unwrap_or_else(|| "mqtt://127.0.0.1:1883".to_owned());
    let mqtt = MqttConfig { servers: vec![server], ..MqttConfig::default() };
    let config = EdgeNodeConfig::new(EdgeNodeDescriptor::parse("Plant", "Line")?);
    let mut node = spawn_edge_node(config, Vec::new(), &mqtt, BdSeqStore::Memory, Clock::new())?;
    let motor = DeviceId::new("Motor")?;
    node.update(NodeUpdate::DeviceBirth { device: motor.clone(), metrics: vec![Metric::new("Setpoint", 0_u32)] })
        .await?;
    let mut callbacks = CommandCallbacks::new().of_device(motor, "Setpoint", |wanted| {
        println!("the motor turns with {:?}", wanted.value);
        Some(wanted.clone())
    });
    while let Some(event) = node.recv_with(&mut callbacks).await? {
        println!("{event:?}");
    }
    Ok(())
}
