//! Messages that are larger than what is taken: skipped where the protocol does not keep the server from sending them.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::support;

use bytes::Bytes;
use sparkplug::session::QoS;
use sparkplug_mqtt::{Clock, ListenerEvent, MqttConfig, Protocol, spawn_listener};
use support::mosquitto::Mosquitto;
use support::soon;

#[tokio::test]
async fn in_mqtt_3_1_1_a_message_that_is_too_large_is_skipped_and_the_session_continues() {
    let server = Mosquitto::start();
    let mqtt = |packet_bytes_max| MqttConfig {
        servers: vec![server.url()],
        protocol: Protocol::V311,
        packet_bytes_max,
        ..MqttConfig::default()
    };
    let filters = |filter: &str| vec![(filter.to_owned(), QoS::AtMostOnce)];
    let mut reader = spawn_listener(filters("spBv1.0/#"), &mqtt(64 * 1024), Clock::new()).unwrap();
    let mut writer = spawn_listener(filters("other"), &mqtt(1024 * 1024), Clock::new()).unwrap();
    assert_eq!(soon("the reader", reader.recv()).await, Some(ListenerEvent::Online));
    assert_eq!(soon("the writer", writer.recv()).await, Some(ListenerEvent::Online));
    for (topic, bytes) in [("spBv1.0/large", 200 * 1024), ("spBv1.0/small", 10)] {
        writer.publish(topic.to_owned(), Bytes::from(vec![0; bytes])).await.unwrap();
    }
    let lost = soon("word of the large one", reader.recv()).await;
    assert_eq!(lost, Some(ListenerEvent::Lost { topic: "spBv1.0/large".to_owned() }));
    let next = soon("the small one", reader.recv()).await;
    assert!(matches!(next, Some(ListenerEvent::Message { ref topic, .. }) if topic == "spBv1.0/small"), "{next:?}");
    writer.stop().await;
    reader.stop().await;
}
