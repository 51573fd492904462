//! The embedded broker under the load of a large ConfigDB.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "../../../sparkplug/mqtt/tests/support/replication.rs"]
mod replication;

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use sparkfleet::broker::{Broker, BrokerConfig};
use sparkplug::session::QoS;
use sparkplug_mqtt::{Clock, ListenerEvent, MqttConfig, spawn_listener};

/// Waits for it, and fails with `what` when it does not come; a machine under load is slow.
async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(Duration::from_secs(120), future).await {
        Ok(value) => value,
        Err(_) => panic!("not in time: {what}"),
    }
}

fn mqtt(url: &str) -> MqttConfig {
    MqttConfig { servers: vec![url.to_owned()], ..MqttConfig::default() }
}

async fn started() -> Broker {
    Broker::start(BrokerConfig { listen: "127.0.0.1:0".parse().unwrap(), ..BrokerConfig::default() }).await.unwrap()
}

/// As many as the births of a large ConfigDB, to a subscriber that begins to read when all are sent.
#[tokio::test(flavor = "multi_thread")]
async fn a_burst_of_ten_thousand_messages_arrives_whole_and_in_order() {
    const MESSAGES: usize = 10_000;
    let broker = started().await;
    let filters = || vec![("spBv1.0/#".to_owned(), QoS::AtMostOnce)];
    let mut reader = spawn_listener(filters(), &mqtt(&broker.url()), Clock::new()).unwrap();
    let mut writer =
        spawn_listener(vec![("other".to_owned(), QoS::AtMostOnce)], &mqtt(&broker.url()), Clock::new()).unwrap();
    assert_eq!(soon("reader", reader.recv()).await, Some(ListenerEvent::Online));
    assert_eq!(soon("writer", writer.recv()).await, Some(ListenerEvent::Online));
    let began = std::time::Instant::now();
    for number in 0..MESSAGES {
        writer.publish(format!("spBv1.0/G/DBIRTH/E/{number}"), Bytes::from(vec![0; 300])).await.unwrap();
    }
    writer.stop().await;
    let sent = began.elapsed();
    for number in 0..MESSAGES {
        let Some(ListenerEvent::Message { topic, .. }) = soon("a message", reader.recv()).await else {
            panic!("message {number} of {MESSAGES} is missing");
        };
        assert_eq!(topic, format!("spBv1.0/G/DBIRTH/E/{number}"));
    }
    eprintln!("sent in {sent:?}, received after {:?}", began.elapsed());
    reader.stop().await;
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_devices_are_born_and_replicated_through_the_embedded_broker() {
    let broker = started().await;
    replication::ten_thousand_devices(&mqtt(&broker.url())).await;
    broker.stop().await;
}
