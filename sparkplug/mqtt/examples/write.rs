//! A host that writes one metric of a device, and ends when the device reports it: `cargo run --example write -- mqtt://127.0.0.1:1883`.
#![allow(clippy::print_stdout, reason = "what it prints is what it is for")]

use sparkplug::host::{HostConfig, HostEvent, HostRequest};
use sparkplug::{EdgeNodeDescriptor, HostId, Metric, Value};
use sparkplug_mqtt::{Clock, MqttConfig, spawn_host};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = std::env::args().nth(1).unwrap_or_else(|| "mqtt://127.0.0.1:1883".to_owned());
    let mqtt = MqttConfig { servers: vec![server], ..MqttConfig::default() };
    let line = EdgeNodeDescriptor::parse("Plant", "Line")?;
    let mut host = spawn_host(HostConfig::new(Some(HostId::new("Office")?)), &mqtt, Clock::new())?;
    host.request(HostRequest::Expect { node: line }).await?;
    while let Some(event) = host.recv().await {
        match event {
            HostEvent::DeviceBirth { node, device, .. } => {
                let metrics = vec![Metric::new("Setpoint", 900_u32)];
                host.request(HostRequest::Command { node, device: Some(device), metrics }).await?;
            }
            HostEvent::DeviceData { metrics, .. } if metrics[0].value == Some(Value::UInt32(900)) => break,
            _ => {}
        }
    }
    println!("done");
    host.stop().await;
    Ok(())
}
