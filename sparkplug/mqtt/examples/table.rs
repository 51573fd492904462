//! An Edge Node with a table and an array: `cargo run --example table -- mqtt://127.0.0.1:1883`.

use sparkplug::edge_node::EdgeNodeConfig;
use sparkplug::metric::DataSet;
use sparkplug::{DataType, EdgeNodeDescriptor, Metric, Properties};
use sparkplug_mqtt::{BdSeqStore, Clock, MqttConfig, spawn_edge_node};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = std::env::args().nth(1).unwrap_or_else(|| "mqtt://127.0.0.1:1883".to_owned());
    let mqtt = MqttConfig { servers: vec![server], ..MqttConfig::default() };
    let tools = DataSet::new([("Tool", DataType::String), ("Cycles", DataType::UInt32)])
        .with_row([Some("drill".into()), Some(17_u32.into())])
        .with_row([Some("mill".into()), None]);
    let unit = Properties::new().with("engUnit", "mm");
    let metrics = vec![
        Metric::new("Tools", tools),
        Metric::new("Profile", vec![0.1, 0.4, 0.2]).with_properties(unit),
        Metric::date_time("Serviced", 1_700_000_000_000),
    ];
    let config = EdgeNodeConfig::new(EdgeNodeDescriptor::parse("Plant", "Mill")?);
    let mut node = spawn_edge_node(config, metrics, &mqtt, BdSeqStore::Memory, Clock::new())?;
    while node.recv().await.is_some() {}
    Ok(())
}
