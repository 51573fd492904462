//! An Edge Node that publishes a temperature every second: `cargo run --example publish -- mqtt://127.0.0.1:1883`.

use std::time::Duration;

use sparkplug::edge_node::EdgeNodeConfig;
use sparkplug::{EdgeNodeDescriptor, Metric};
use sparkplug_mqtt::{BdSeqStore, Clock, MqttConfig, spawn_edge_node};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = std::env::args().nth(1).unwrap_or_else(|| "mqtt://127.0.0.1:1883".to_owned());
    let mqtt = MqttConfig { servers: vec![server], ..MqttConfig::default() };
    let config = EdgeNodeConfig::new(EdgeNodeDescriptor::parse("Plant", "Press")?);
    let metrics = vec![Metric::new("Process/Temperature", 20.0)];
    let node = spawn_edge_node(config, metrics, &mqtt, BdSeqStore::Memory, Clock::new())?;
    for second in 1_u32.. {
        tokio::time::sleep(Duration::from_secs(1)).await;
        node.set("Process/Temperature", 20.0 + f64::from(second % 10)).await?;
    }
    Ok(())
}
