//! An Edge Node on a real Mosquitto, judged by what a plain subscriber sees on the wire.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::support;

use std::time::Duration;

use sparkplug::edge_node::{EdgeNodeConfig, NodeEvent, NodeUpdate};
use sparkplug::{BdSeq, DeviceId, EdgeNodeDescriptor, Metric};
use sparkplug_mqtt::{BdSeqStore, Clock, EdgeNodeHandle, MqttConfig, spawn_edge_node};
use support::mosquitto::{Mosquitto, Settings};
use support::proxy::Proxy;
use support::tap::Tap;
use support::{SOON, mqtt, soon};

fn config() -> EdgeNodeConfig {
    let descriptor = EdgeNodeDescriptor::parse("ACME-Plant", "Sync").unwrap();
    EdgeNodeConfig {
        reconnect: (Duration::from_millis(200), Duration::from_secs(1)),
        ..EdgeNodeConfig::new(descriptor)
    }
}

fn started(mqtt: &MqttConfig, store: BdSeqStore) -> EdgeNodeHandle {
    spawn_edge_node(config(), vec![Metric::new("Temperature", 20_i32)], mqtt, store, Clock::new()).unwrap()
}

fn temperature(value: i32) -> NodeUpdate {
    NodeUpdate::Set { device: None, metrics: vec![Metric::new("Temperature", value)] }
}

/// Waits until it is born, and returns the bdSeq.
async fn born(node: &mut EdgeNodeHandle) -> BdSeq {
    loop {
        match soon("a birth", node.recv()).await.expect("the node runs") {
            NodeEvent::Born { bd_seq, .. } => return bd_seq,
            NodeEvent::Offline { .. } => {}
            other => panic!("{other:?}"),
        }
    }
}

async fn offline(node: &mut EdgeNodeHandle) -> String {
    match soon("an event", node.recv()).await {
        Some(NodeEvent::Offline { reason }) => reason,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn births_come_before_data_and_seq_has_no_gap() {
    let server = Mosquitto::start();
    let mut tap = Tap::start(server.address().port()).await;
    // Said before there is a session: part of the birth, not data.
    let mut node = started(&mqtt(&server.url()), BdSeqStore::Memory);
    let device = DeviceId::new("host.a").unwrap();
    let metrics = vec![Metric::new("Ready", true)];
    node.update(NodeUpdate::DeviceBirth { device: device.clone(), metrics }).await.unwrap();
    assert_eq!(born(&mut node).await, BdSeq::ZERO);
    for value in 21..31 {
        node.update(temperature(value)).await.unwrap();
    }
    node.update(NodeUpdate::Set { device: Some(device), metrics: vec![Metric::new("Ready", false)] }).await.unwrap();
    let mut seen = Vec::new();
    for number in 0..13 {
        let message = tap.next().await;
        assert_eq!(message.seq(), number, "{message:?}");
        assert!(!message.retain);
        seen.push(message.kind().to_owned());
    }
    let mut expected = vec!["NBIRTH", "DBIRTH"];
    expected.extend(["NDATA"; 10]);
    expected.push("DDATA");
    assert_eq!(seen, expected);
    node.stop().await;
}

#[tokio::test]
async fn a_cut_connection_brings_the_will_and_then_births_with_the_next_bd_seq() {
    let server = Mosquitto::start();
    let proxy = Proxy::start(server.address()).await;
    let mut tap = Tap::start(server.address().port()).await;
    let mut node = started(&mqtt(&proxy.url()), BdSeqStore::Memory);
    for session in 0..3 {
        assert_eq!(born(&mut node).await.get(), session);
        let birth = tap.expect("NBIRTH").await;
        assert_eq!((birth.bd_seq(), birth.seq()), (session as u64, 0));
        proxy.cut();
        let death = tap.expect("NDEATH").await;
        assert_eq!(death.bd_seq(), session as u64);
        assert_eq!(death.sparkplug().seq, None);
        // Said while there is no session: in the next birth, never as data before it.
        node.update(temperature(100 + session as i32)).await.unwrap();
    }
    born(&mut node).await;
    let birth = tap.expect("NBIRTH").await.sparkplug();
    let value =
        birth.metrics.iter().find(|metric| metric.name.as_deref() == Some("Temperature")).unwrap().value.clone();
    assert_eq!(value, Some(sparkplug::Value::Int32(102)));
    tap.nothing_waits();
    node.stop().await;
}

#[tokio::test]
async fn stop_publishes_ndeath_before_it_disconnects_and_the_will_stays_silent() {
    let server = Mosquitto::start();
    let mut tap = Tap::start(server.address().port()).await;
    let mut node = started(&mqtt(&server.url()), BdSeqStore::Memory);
    born(&mut node).await;
    assert_eq!(tap.expect("NBIRTH").await.bd_seq(), 0);
    // Data just before the end is not lost.
    node.update(temperature(99)).await.unwrap();
    soon("the stop", node.stop()).await;
    tap.expect("NDATA").await;
    assert_eq!(tap.expect("NDEATH").await.bd_seq(), 0);
    // A marker sent afterwards comes next: no second NDEATH was triggered by the closed socket.
    tap.publish("marker/x/MARKER", vec![]).await;
    tap.expect("MARKER").await;
}

#[tokio::test]
async fn what_is_submitted_is_published_in_its_order_and_before_the_end_and_what_is_refused_holds_nothing_up() {
    const UPDATES: i32 = 300;
    let server = Mosquitto::start();
    let mut tap = Tap::start(server.address().port()).await;
    let mut node = started(&mqtt(&server.url()), BdSeqStore::Memory);
    born(&mut node).await;
    tap.expect("NBIRTH").await;
    for value in 0..UPDATES {
        node.submit(temperature(value)).await.unwrap();
        let other_type = Metric::new("Temperature", "warm");
        node.submit(NodeUpdate::Set { device: None, metrics: vec![other_type] }).await.unwrap();
    }
    soon("the stop", node.stop()).await;
    for value in 0..UPDATES {
        let data = tap.expect("NDATA").await.sparkplug();
        assert_eq!(data.metrics[0].value, Some(sparkplug::Value::Int32(value)));
    }
    tap.expect("NDEATH").await;
}

#[tokio::test]
async fn the_bd_seq_continues_to_count_after_restarts_of_the_process() {
    let server = Mosquitto::start();
    let mut tap = Tap::start(server.address().port()).await;
    let directory = tempfile::tempdir().unwrap();
    let store = || BdSeqStore::in_directory(directory.path(), &config().descriptor);
    for session in 0..2 {
        let mut node = started(&mqtt(&server.url()), store());
        assert_eq!(born(&mut node).await.get(), session);
        node.stop().await;
        assert_eq!(tap.expect("NBIRTH").await.bd_seq(), session as u64);
        assert_eq!(tap.expect("NDEATH").await.bd_seq(), session as u64);
    }
    // A crash: the task ends without a farewell, as in a killed process.
    let crashing = tokio::runtime::Runtime::new().unwrap();
    let (url, crash_store) = (server.url(), store());
    let node = crashing.spawn(async move {
        let mut node = started(&mqtt(&url), crash_store);
        born(&mut node).await;
        node
    });
    let node = node.await.unwrap();
    crashing.shutdown_background();
    assert_eq!(tap.expect("NBIRTH").await.bd_seq(), 2);
    assert_eq!(tap.expect("NDEATH").await.bd_seq(), 2);
    drop(node);
    let mut node = started(&mqtt(&server.url()), store());
    assert_eq!(born(&mut node).await.get(), 3);
    assert_eq!(tap.expect("NBIRTH").await.bd_seq(), 3);
    node.stop().await;
}

#[tokio::test]
async fn a_killed_server_that_comes_back_gets_births_first_and_nothing_stale() {
    let mut server = Mosquitto::start();
    let mut tap = Tap::start(server.address().port()).await;
    let mut node = started(&mqtt(&server.url()), BdSeqStore::Memory);
    born(&mut node).await;
    tap.expect("NBIRTH").await;
    // Data all the time, before, while and after the server is away.
    let updates = node.updates();
    let chatter = tokio::spawn(async move {
        for value in 0.. {
            updates.update(temperature(value)).await.unwrap();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    tap.until("NDATA").await;
    server.kill();
    let reason = offline(&mut node).await;
    assert!(!reason.is_empty());
    server.restart();
    assert_ne!(born(&mut node).await, BdSeq::ZERO);
    // Up to the end of the old session only data was seen; what comes after it begins with the birth. The tap may come back later than the node,
    // so it may have missed the beginning: then there is nothing that could be stale either.
    let mut seq = None;
    let mut rebirth_seen = false;
    let deadline = tokio::time::Instant::now() + SOON;
    while !rebirth_seen && tokio::time::Instant::now() < deadline {
        let message = tap.next().await;
        match message.kind() {
            "NDATA" => {
                if let Some(seq) = seq {
                    assert_eq!(message.seq(), (seq + 1) % 256, "the old session continues, or the tap was late");
                }
                seq = Some(message.seq());
            }
            "NBIRTH" => {
                assert_eq!(message.seq(), 0);
                rebirth_seen = true;
            }
            other => panic!("{other}"),
        }
    }
    assert!(rebirth_seen);
    chatter.abort();
    node.stop().await;
}

#[tokio::test]
async fn refused_credentials_are_reported_and_tried_again() {
    let server = Mosquitto::with(Settings {
        lines: &["allow_anonymous false", "password_file {dir}/passwords"],
        tls: false,
        prepare: &|directory| {
            let file = directory.join("passwords");
            let made = std::process::Command::new("mosquitto_passwd")
                .args(["-b", "-c"])
                .arg(file)
                .args(["sync", "right"])
                .status()
                .unwrap();
            assert!(made.success());
        },
    });
    let with = |password: &str| MqttConfig {
        username: Some("sync".to_owned()),
        password: password.into(),
        ..mqtt(&server.url())
    };
    let mut node = started(&with("wrong"), BdSeqStore::Memory);
    for _ in 0..2 {
        let reason = offline(&mut node).await;
        assert!(reason.contains("refuses the credentials") && reason.contains(&server.url()), "{reason}");
        assert!(!reason.contains("wrong"), "{reason}");
    }
    node.stop().await;
    let mut node = started(&with("right"), BdSeqStore::Memory);
    born(&mut node).await;
    node.stop().await;
}

#[tokio::test]
async fn an_oversized_message_ends_the_session_with_the_key_that_limits_it() {
    let server = Mosquitto::start();
    let tap = Tap::start(server.address().port()).await;
    let small = MqttConfig { packet_bytes_max: 64 * 1024, ..mqtt(&server.url()) };
    let mut node = started(&small, BdSeqStore::Memory);
    born(&mut node).await;
    // Read and dropped, for a server of 3.1.1 does not know what is too large.
    tap.publish("spBv1.0/ACME-Plant/NCMD/Sync", vec![0; 100_000]).await;
    let refused = soon("the refusal", node.recv()).await;
    assert!(
        matches!(refused, Some(NodeEvent::Rejected { ref reason, .. }) if reason.contains("100000") && reason.contains("65536")),
        "{refused:?}"
    );
    tap.publish("spBv1.0/ACME-Plant/NCMD/Sync", vec![0; 300_000]).await;
    let reason = offline(&mut node).await;
    assert!(reason.contains("mqtt.packet_bytes_max") && reason.contains("65536"), "{reason}");
    // It was not retained, so the next session is a good one.
    assert_eq!(born(&mut node).await.get(), 1);
    node.stop().await;
}

#[tokio::test]
async fn an_application_that_takes_no_events_keeps_its_session() {
    let server = Mosquitto::start();
    let mut tap = Tap::start(server.address().port()).await;
    let limited = MqttConfig { keep_alive_s: 1, waiting_events_max: 20, ..mqtt(&server.url()) };
    let mut node = started(&limited, BdSeqStore::Memory);
    born(&mut node).await;
    tap.expect("NBIRTH").await;
    let command = sparkplug::payload::encode(
        &sparkplug::payload::Payload {
            timestamp: Some(1),
            metrics: vec![Metric::new("Temperature", 5_i32)],
            ..Default::default()
        },
        &sparkplug::payload::EncodeOptions::new(sparkplug::payload::Form::Command),
    );
    for _ in 0..500 {
        tap.publish("spBv1.0/ACME-Plant/NCMD/Sync", command.to_vec()).await;
    }
    // More than twice what the server grants a silent client.
    tokio::time::sleep(Duration::from_secs(4)).await;
    node.update(temperature(77)).await.unwrap();
    tap.until("NDATA").await;
    let mut commands = 0;
    while let Ok(event) = node.events().try_recv() {
        assert!(matches!(event, NodeEvent::Command { .. }), "{event:?}");
        commands += 1;
        tokio::task::yield_now().await;
    }
    assert!((40..500).contains(&commands), "{commands}");
    node.stop().await;
    assert_eq!(tap.until("NDEATH").await.bd_seq(), 0, "still the first session");
}
