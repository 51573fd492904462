//! A host that shows every Edge Node and device of a server: `cargo run --example fleet -- mqtt://127.0.0.1:1883`.
#![allow(clippy::print_stdout, reason = "what it prints is what it is for")]

use sparkplug::host::{HostConfig, HostEvent};
use sparkplug_mqtt::{Clock, MqttConfig, spawn_host};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = std::env::args().nth(1).unwrap_or_else(|| "mqtt://127.0.0.1:1883".to_owned());
    let mqtt = MqttConfig { servers: vec![server], ..MqttConfig::default() };
    let mut host = spawn_host(HostConfig::new(None), &mqtt, Clock::new())?;
    while let Some(event) = host.recv().await {
        match event {
            HostEvent::Online => println!("listening"),
            HostEvent::NodeBirth { node, metrics, .. } => println!("{node} is born with {} metrics", metrics.len()),
            HostEvent::DeviceBirth { node, device, .. } => println!("{node}/{device} is born"),
            HostEvent::NodeData { metrics, .. } | HostEvent::DeviceData { metrics, .. } => {
                metrics.iter().for_each(|metric| println!("{} = {:?}", metric.name, metric.value));
            }
            HostEvent::NodeDeath { node, .. } => println!("{node} is dead"),
            _ => {}
        }
    }
    Ok(())
}
