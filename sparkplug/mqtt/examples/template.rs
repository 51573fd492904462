//! An Edge Node with a user-defined type and two instances of it: `cargo run --example template -- mqtt://127.0.0.1:1883`.

use sparkplug::edge_node::EdgeNodeConfig;
use sparkplug::metric::Template;
use sparkplug::{DataType, EdgeNodeDescriptor, Metric};
use sparkplug_mqtt::{BdSeqStore, Clock, MqttConfig, spawn_edge_node};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = std::env::args().nth(1).unwrap_or_else(|| "mqtt://127.0.0.1:1883".to_owned());
    let mqtt = MqttConfig { servers: vec![server], ..MqttConfig::default() };
    let motor = Template::definition([Metric::new("Speed", 0.0), Metric::null("Fault", DataType::String)])
        .with_version("1.2")
        .with_parameter("Rated_Power", 5.5);
    let metrics = vec![
        Metric::new("Drive", motor.instance_of("Types/Motor").with_value("Speed", 1_480.0)),
        Metric::new("Pump", motor.instance_of("Types/Motor").with_parameter("Rated_Power", 0.75)),
        Metric::new("Types/Motor", motor),
    ];
    let config = EdgeNodeConfig::new(EdgeNodeDescriptor::parse("Plant", "Robot")?);
    let mut node = spawn_edge_node(config, metrics, &mqtt, BdSeqStore::Memory, Clock::new())?;
    while node.recv().await.is_some() {}
    Ok(())
}
