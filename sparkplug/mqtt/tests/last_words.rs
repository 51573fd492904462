//! What a server sends right before it closes the connection is received.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::support;

use sparkplug::session::QoS;
use sparkplug_mqtt::{Clock, ListenerEvent, MqttConfig, Protocol, spawn_listener};
use support::soon;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// The first byte of a packet and what follows its length, which takes a byte.
async fn packet(stream: &mut TcpStream) -> (u8, Vec<u8>) {
    let [first, length] = [stream.read_u8().await.unwrap(), stream.read_u8().await.unwrap()];
    assert!(length < 128, "a longer packet was not expected");
    let mut rest = vec![0; length.into()];
    stream.read_exact(&mut rest).await.unwrap();
    (first, rest)
}

fn framed(first: u8, rest: &[u8]) -> Vec<u8> {
    [&[first, u8::try_from(rest.len()).unwrap()], rest].concat()
}

/// A server that accepts one client and its subscription, sends these topics in one write, and closes.
async fn serve_and_close(listener: TcpListener, topics: &[&str], protocol: Protocol) {
    let no_properties: &[u8] = if protocol == Protocol::V5 { &[0] } else { &[] };
    let (mut stream, _) = listener.accept().await.unwrap();
    assert_eq!(packet(&mut stream).await.0, 0x10);
    stream.write_all(&framed(0x20, &[&[0, 0], no_properties].concat())).await.unwrap();
    let (first, subscribe) = packet(&mut stream).await;
    assert_eq!(first, 0x82);
    let publish = |topic: &&str| {
        let length = u16::try_from(topic.len()).unwrap().to_be_bytes();
        framed(0x30, &[&length, topic.as_bytes(), no_properties, b"payload"].concat())
    };
    stream.write_all(&framed(0x90, &[&subscribe[..2], no_properties, &[0]].concat())).await.unwrap();
    // In one piece, so that the client reads it with the end of the stream behind it.
    let last: Vec<u8> = topics.iter().flat_map(publish).collect();
    stream.write_all(&last).await.unwrap();
    stream.shutdown().await.unwrap();
    // It has read all of it when it closes its side.
    let _ = stream.read(&mut [0]).await;
}

async fn nothing_is_lost(protocol: Protocol) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let servers = vec![format!("mqtt://{}", listener.local_addr().unwrap())];
    let topics = ["spBv1.0/G/NBIRTH/E", "spBv1.0/G/NDATA/E", "spBv1.0/G/NDEATH/E"];
    let server = tokio::spawn(async move { serve_and_close(listener, &topics, protocol).await });
    let mqtt = MqttConfig { servers, protocol, ..MqttConfig::default() };
    let mut reader = spawn_listener(vec![("spBv1.0/#".to_owned(), QoS::AtMostOnce)], &mqtt, Clock::new()).unwrap();
    let mut received = Vec::new();
    loop {
        match soon("the end of the session", reader.recv()).await.expect("it runs") {
            ListenerEvent::Message { topic, .. } => received.push(topic),
            ListenerEvent::Offline { .. } => break,
            _ => {}
        }
    }
    assert_eq!(received, topics);
    reader.stop().await;
    server.await.unwrap();
}

#[tokio::test]
async fn what_comes_right_before_the_end_of_a_connection_is_received_in_mqtt_3_1_1() {
    nothing_is_lost(Protocol::V311).await;
}

#[tokio::test]
async fn what_comes_right_before_the_end_of_a_connection_is_received_in_mqtt_5() {
    nothing_is_lost(Protocol::V5).await;
}
