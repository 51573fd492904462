//! Subscribers with nothing but the client that we use, too.

use std::hint::black_box;

use rumqttc::{AsyncClient, Event, EventLoop, MqttOptions, Packet, QoS};

use super::Tally;
use crate::walk::{Seen, payload};

async fn subscribed(port: u16) -> (AsyncClient, EventLoop) {
    let mut options = MqttOptions::new("raw", "127.0.0.1", port);
    options.set_max_packet_size(16 << 20, 16 << 20);
    let (client, events) = AsyncClient::new(options, 10);
    client.subscribe("spBv1.0/#", QoS::AtMostOnce).await.expect("the queue has room");
    (client, events)
}

/// Asks for each packet, as rumqttc's documentation does, and decodes nothing.
pub async fn run(port: u16, mut tally: Tally) {
    let (_client, mut events) = subscribed(port).await;
    let mut born = 0;
    let births = tally.births;
    loop {
        if let Event::Incoming(Packet::Publish(publish)) = events.poll().await.expect("a session") {
            black_box(&publish.payload);
            if born < births {
                born += 1;
                tally.birth();
            } else {
                tally.data(0);
            }
        }
    }
}

/// Takes what was read in one go, walks over every field of it, and builds and keeps nothing.
pub async fn run_with_visitor(port: u16, mut tally: Tally) {
    let (_client, mut events) = subscribed(port).await;
    let mut born = 0;
    let births = tally.births;
    loop {
        let first = events.poll().await.expect("a session");
        for event in std::iter::once(first).chain(events.state.events.drain(..)) {
            let Event::Incoming(Packet::Publish(publish)) = event else { continue };
            black_box(&publish.topic);
            let mut seen = Seen::default();
            payload(&publish.payload, &mut seen).expect("the message is well-formed");
            let metrics = black_box(seen).metrics as usize;
            if born < births {
                born += 1;
                tally.birth();
            } else {
                tally.data(metrics);
            }
        }
    }
}
