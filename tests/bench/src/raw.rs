//! What the MQTT server and the machine allow: bytes there and back with a plain client, nothing else.

use std::time::{Duration, Instant};

use anyhow::bail;
use rumqttc::{AsyncClient, Event, EventLoop, MqttOptions, NetworkOptions, Packet, QoS};

use crate::figures::Distribution;

const THERE: &str = "bench/there";
const BACK: &str = "bench/back";

/// Times of `count` round trips (client, server, second client, server, client) of `bytes` at QoS 0, one after another.
///
/// # Errors
/// The server is not reached.
pub async fn round_trips(address: std::net::SocketAddr, bytes: usize, count: usize) -> anyhow::Result<Distribution> {
    let (echo, mut echo_loop) = connect(address, "bench-echo", THERE).await?;
    let echo = tokio::spawn(async move {
        while let Ok(event) = echo_loop.poll().await {
            if let Event::Incoming(Packet::Publish(publish)) = event
                && echo.publish(BACK, QoS::AtMostOnce, false, publish.payload).await.is_err()
            {
                break;
            }
        }
    });
    let (client, mut events) = connect(address, "bench-ping", BACK).await?;
    let mut times = Distribution::default();
    for _ in 0..count {
        let start = Instant::now();
        client.publish(THERE, QoS::AtMostOnce, false, vec![0x5a; bytes]).await?;
        while !matches!(events.poll().await?, Event::Incoming(Packet::Publish(_))) {}
        times.push(start.elapsed());
    }
    echo.abort();
    Ok(times)
}

/// A client that has subscribed to `topic`.
///
/// # Errors
/// The server is not reached, or refuses.
pub async fn connect(address: std::net::SocketAddr, id: &str, topic: &str) -> anyhow::Result<(AsyncClient, EventLoop)> {
    let mut options = MqttOptions::new(id, address.ip().to_string(), address.port());
    options.set_max_packet_size(16 * 1024 * 1024, 16 * 1024 * 1024);
    options.set_keep_alive(Duration::from_secs(60));
    let (client, mut events) = AsyncClient::new(options, 16);
    let mut network = NetworkOptions::new();
    network.set_tcp_nodelay(true);
    events.set_network_options(network);
    client.subscribe(topic, QoS::AtMostOnce).await?;
    loop {
        match events.poll().await? {
            Event::Incoming(Packet::SubAck(_)) => return Ok((client, events)),
            Event::Incoming(Packet::Disconnect) => bail!("the server refuses {id}"),
            _ => {}
        }
    }
}
