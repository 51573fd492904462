//! A subscriber that decodes nothing.

use rumqttc::{AsyncClient, Event, MqttOptions, Packet, QoS};

use super::Tally;

pub async fn run(port: u16, mut tally: Tally) {
    let mut options = MqttOptions::new("raw", "127.0.0.1", port);
    options.set_max_packet_size(16 << 20, 16 << 20);
    let (client, mut events) = AsyncClient::new(options, 10);
    client.subscribe("spBv1.0/#", QoS::AtMostOnce).await.expect("the queue has room");
    let mut born = 0;
    let births = tally.births;
    loop {
        if let Event::Incoming(Packet::Publish(publish)) = events.poll().await.expect("a session") {
            std::hint::black_box(&publish.payload);
            if born < births {
                born += 1;
                tally.birth();
            } else {
                tally.data(0);
            }
        }
    }
}
