//! TLS with certificates of both sides on a real Mosquitto, in both versions of MQTT, and what an operator reads when a certificate is wrong.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::support;

use std::path::Path;
use std::time::Duration;

use sparkplug::edge_node::{EdgeNodeConfig, NodeEvent};
use sparkplug::{EdgeNodeDescriptor, Metric};
use sparkplug_mqtt::{BdSeqStore, Clock, EdgeNodeHandle, MqttConfig, Protocol, spawn_edge_node};
use support::mosquitto::{Mosquitto, Settings};
use support::{certificates, mqtt, soon};

const PROTOCOLS: [Protocol; 2] = [Protocol::V311, Protocol::V5];

fn server(prepare: &dyn Fn(&Path)) -> Mosquitto {
    Mosquitto::with(Settings {
        lines: &[
            "allow_anonymous true",
            "cafile {dir}/ca.pem",
            "certfile {dir}/server.pem",
            "keyfile {dir}/server.key",
            "require_certificate true",
        ],
        tls: true,
        prepare,
    })
}

fn with_client_certificate(server: &Mosquitto, protocol: Protocol) -> MqttConfig {
    let directory = server.directory();
    MqttConfig {
        protocol,
        keep_alive_s: 5,
        ca_file: Some(directory.join("ca.pem")),
        cert_file: Some(directory.join("client.pem")),
        key_file: Some(directory.join("client.key")),
        ..mqtt(&server.url())
    }
}

fn started(mqtt: &MqttConfig) -> EdgeNodeHandle {
    let reconnect = (Duration::from_millis(200), Duration::from_secs(1));
    let config =
        EdgeNodeConfig { reconnect, ..EdgeNodeConfig::new(EdgeNodeDescriptor::parse("Plant", "Press").unwrap()) };
    let metrics = vec![Metric::new("Temperature", 20_i32)];
    spawn_edge_node(config, metrics, mqtt, BdSeqStore::Memory, Clock::new()).unwrap()
}

/// The first thing that the node says is why it is offline.
async fn refusal(mqtt: &MqttConfig) -> String {
    let mut node = started(mqtt);
    let event = soon("an event", node.recv()).await.unwrap();
    node.stop().await;
    match event {
        NodeEvent::Offline { reason } => reason,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_client_certificate_opens_the_door_and_without_one_it_stays_shut() {
    let server = server(&certificates::write);
    for protocol in PROTOCOLS {
        let complete = with_client_certificate(&server, protocol);
        let mut node = started(&complete);
        let event = soon("a birth", node.recv()).await;
        assert!(matches!(event, Some(NodeEvent::Born { .. })), "{event:?}");
        node.stop().await;
        let without = MqttConfig { cert_file: None, key_file: None, ..complete };
        let reason = refusal(&without).await;
        assert!(reason.contains("CertificateRequired") && reason.contains("mqtt.cert_file"), "{reason}");
    }
}

#[tokio::test]
async fn each_fault_of_the_server_s_certificate_is_reported_in_a_way_of_its_own() {
    let trusted = server(&certificates::write);
    let expired = server(&|directory| certificates::write_with(directory, "localhost", -1));
    let other_name = server(&|directory| certificates::write_with(directory, "broker.example.com", 2));
    for protocol in PROTOCOLS {
        let unknown = MqttConfig {
            ca_file: Some(expired.directory().join("ca.pem")),
            ..with_client_certificate(&trusted, protocol)
        };
        for (mqtt, advice) in [
            (unknown, "the authority that signed the server's certificate is not in mqtt.ca_file"),
            (
                with_client_certificate(&expired, protocol),
                "the server's certificate has expired, or the clock of this machine is wrong",
            ),
            (
                with_client_certificate(&other_name, protocol),
                "the server's certificate is for another name than the one in mqtt.servers",
            ),
        ] {
            let reason = refusal(&mqtt).await;
            let server = &mqtt.servers[0];
            assert!(reason.starts_with(&format!("TLS with {server} failed: ")), "{reason}");
            assert!(reason.ends_with(&format!("; {advice}")), "{reason}");
        }
    }
}

#[tokio::test]
async fn a_renewed_certificate_is_taken_up_by_another_session() {
    let server = server(&certificates::write);
    let directory = server.directory();
    for protocol in PROTOCOLS {
        let mut node = started(&with_client_certificate(&server, protocol));
        let event = soon("a birth", node.recv()).await;
        let Some(NodeEvent::Born { bd_seq: first, .. }) = event else { panic!("{event:?}") };
        // Certificate and key change one after the other; what does not belong together is not taken up.
        certificates::write_client(&directory, "client");
        let event = soon("the end of the session", node.recv()).await;
        let Some(NodeEvent::Offline { reason }) = event else { panic!("{event:?}") };
        assert_eq!(reason, "the certificates were renewed");
        let event = soon("a birth with the other certificate", node.recv()).await;
        let Some(NodeEvent::Born { bd_seq, .. }) = event else { panic!("{event:?}") };
        assert_eq!(bd_seq, first.next(), "one session followed");
        node.stop().await;
    }
}

#[tokio::test]
async fn another_valid_certificate_cannot_end_a_session_by_what_it_knows_of_the_client_id() {
    let server = server(&|directory| {
        certificates::write(directory);
        certificates::write_client(directory, "other");
    });
    let directory = server.directory();
    let mut node = started(&with_client_certificate(&server, Protocol::V311));
    let event = soon("a birth", node.recv()).await;
    let Some(NodeEvent::Born { bd_seq: first, .. }) = event else { panic!("{event:?}") };
    let (host, port) = (server.address().ip().to_string(), server.address().port().to_string());
    let publish = |id: &str, topic: &str, file: &Path| {
        let mut command = std::process::Command::new("mosquitto_pub");
        command.args(["-h", &host, "-p", &port, "--insecure", "-i", id, "-t", topic, "-f"]).arg(file);
        for (option, file) in [("--cafile", "ca.pem"), ("--cert", "other.pem"), ("--key", "other.key")] {
            command.arg(option).arg(directory.join(file));
        }
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    let rebirth = directory.join("rebirth");
    let metric = [b"\x0a\x14Node Control/Rebirth".as_slice(), b"\x20\x0b\x70\x01"].concat();
    std::fs::write(&rebirth, [&[0x12, u8::try_from(metric.len()).unwrap()], metric.as_slice()].concat()).unwrap();
    for id in ["sparkfleet.Plant.Press", "sparkfleet.Plant.Press.", "sparkfleet.host.Press"] {
        publish(id, "other", &rebirth);
    }
    // The server has worked on them before this.
    publish("asks", "spBv1.0/Plant/NCMD/Press", &rebirth);
    let event = soon("the answer", node.recv()).await;
    let Some(NodeEvent::Born { bd_seq, rebirth: true }) = event else { panic!("{event:?}") };
    assert_eq!(bd_seq, first, "it is the same session");
    node.stop().await;
}
