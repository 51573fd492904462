//! The embedded broker under the load of a large ConfigDB.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "../../../sparkplug/mqtt/tests/support/replication.rs"]
mod replication;

use std::future::Future;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
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

/// A client that speaks bytes: CONNECT with a will on `will`, and the CONNACK.
fn raw_client(broker: SocketAddr, version: u8, client_id: &str, user: Option<&str>) -> TcpStream {
    let text = |text: &str| [&u16::try_from(text.len()).unwrap().to_be_bytes()[..], text.as_bytes()].concat();
    let properties = if version == 5 { vec![0] } else { vec![] };
    let mut flags = 0b0000_0110;
    let mut content = [text(client_id), properties.clone(), text("will"), text("gone")].concat();
    if let Some(user) = user {
        flags |= 0b1100_0000;
        content.extend([text(user), text("any")].concat());
    }
    let head = [text("MQTT"), vec![version, flags, 0, 0], properties].concat();
    let length = u8::try_from(head.len() + content.len()).unwrap();
    let mut socket = TcpStream::connect(broker).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    socket.write_all(&[vec![0x10, length], head, content].concat()).unwrap();
    let mut connack = [0; 2];
    socket.read_exact(&mut connack).unwrap();
    let mut rest = vec![0; connack[1].into()];
    socket.read_exact(&mut rest).unwrap();
    assert_eq!((connack[0], rest[1]), (0x20, 0), "the connection is accepted");
    socket
}

#[tokio::test(flavor = "multi_thread")]
async fn who_shows_a_name_is_let_in_where_nobody_guards_the_door() {
    let broker = started().await;
    let address = broker.local_addr();
    for version in [4, 5] {
        tokio::task::spawn_blocking(move || raw_client(address, version, "node-red", Some("somebody"))).await.unwrap();
    }
    broker.stop().await;
}

/// The standard gives MQTT 5 a DISCONNECT with a reason for it, and 3.1.1 nothing but the end of the connection; in both the will is published.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_is_taken_over_hears_what_its_version_of_mqtt_has_for_it() {
    let broker = started().await;
    let address = broker.local_addr();
    let mut reader =
        spawn_listener(vec![("will".to_owned(), QoS::AtMostOnce)], &mqtt(&broker.url()), Clock::new()).unwrap();
    assert_eq!(soon("reader", reader.recv()).await, Some(ListenerEvent::Online));
    for (first, second, heard) in [(4, 4, 0), (4, 5, 0), (5, 4, 0xe0), (4, 4, 0)] {
        let (said, last) = tokio::task::spawn_blocking(move || {
            let mut old = raw_client(address, first, "same", None);
            let new = raw_client(address, second, "same", None);
            let mut said = Vec::new();
            old.read_to_end(&mut said).unwrap();
            (said, new)
        })
        .await
        .unwrap();
        assert_eq!(said.first().copied().unwrap_or_default(), heard, "{first} taken over by {second}: {said:?}");
        let will = soon("the will", reader.recv()).await;
        assert!(matches!(will, Some(ListenerEvent::Message { ref topic, .. }) if topic == "will"), "{will:?}");
        drop(last);
        let will = soon("the will of the other", reader.recv()).await;
        assert!(matches!(will, Some(ListenerEvent::Message { ref topic, .. }) if topic == "will"), "{will:?}");
    }
    broker.stop().await;
}
