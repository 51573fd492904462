//! Compressed messages of an edge node.

use super::*;
use crate::edge_node::{EdgeNode, EdgeNodeConfig, NodeOutput, NodeUpdate};
use crate::payload::{COMPRESSED, Compression, CompressionAlgorithm};

fn compressed(kind: &str, seq: u64, metrics: Vec<Metric>) -> Bytes {
    let inner = message(kind, Some(seq), 2000, metrics, None);
    let compression = Compression { algorithm: CompressionAlgorithm::Gzip, bytes_min: 0 };
    compression.apply(&inner, 2000, Some(seq)).expect("it shrinks")
}

fn text(length: usize) -> Metric {
    Metric::new("S", "x".repeat(length))
}

#[test]
fn compressed_births_and_data_are_births_and_data() {
    let mut bench = Bench::online(config());
    bench.receive("spBv1.0/G/NBIRTH/E", compressed("NBIRTH", 0, vec![Metric::new("bdSeq", 3i64), text(300)]));
    // Early: it is held as it came, and read when its turn comes.
    bench.receive("spBv1.0/G/NDATA/E", compressed("NDATA", 2, vec![text(200)]));
    bench.receive("spBv1.0/G/NDATA/E", compressed("NDATA", 1, vec![text(201)]));
    let value = |length: usize| format!("S=String({:?})", "x".repeat(length));
    bench.expect(&[
        &format!("E born 3 at 2000 bdSeq=Int64(3) {}", value(300)),
        &format!("E data at 2000 {}", value(201)),
        &format!("E data at 2000 {}", value(200)),
    ]);
}

#[test]
fn what_cannot_be_inflated_is_rejected_with_the_reason_and_the_node_is_stale() {
    let shell = |algorithm: &str, body: &'static [u8]| {
        let metrics = vec![Metric::string("algorithm", Some(algorithm))];
        let (uuid, body) = (Some(COMPRESSED.into()), Some(Bytes::from_static(body)));
        let payload = Payload { timestamp: Some(2000), seq: Some(2), uuid, body, metrics };
        payload::encode(&payload, &EncodeOptions::new(Form::Birth))
    };
    let cases = [
        (
            shell("BROTLI", b"x"),
            "payload is marked as compressed, but algorithm \"BROTLI\" is neither DEFLATE nor GZIP",
        ),
        (
            shell("DEFLATE", b"\x78\x9c\x01"),
            "payload is marked as compressed, but its body ends in the middle of the DEFLATE stream",
        ),
    ];
    for (bytes, reason) in cases {
        let mut bench = Bench::with_node(config());
        bench.receive("spBv1.0/G/NDATA/E", bytes);
        bench.expect(&[
            &format!("rejected spBv1.0/G/NDATA/E: {reason}"),
            "E stale: a message could not be read",
            ASK,
            "E asked: a message could not be read",
        ]);
        assert_eq!(bench.machine.liveness(&e()), Some(Liveness::Stale));
    }
}

#[test]
fn a_bomb_is_rejected_once_and_makes_the_node_stale() {
    let mut bench = Bench::with_node(HostConfig { message_bytes_max: 10_000, ..config() });
    let bomb = compressed("NDATA", 2, vec![text(10_000_000)]);
    let small = compressed("NDATA", 2, vec![text(10_001)]);
    assert!(small.len() < 1_000);
    bench.receive("spBv1.0/G/NDATA/E", small);
    bench.expect(&[
        "rejected spBv1.0/G/NDATA/E: payload has more than 10000 bytes when inflated",
        "E stale: a message exceeds the limits",
        ASK,
        "E asked: a message exceeds the limits",
    ]);
    bench.receive("spBv1.0/G/NBIRTH/E", bomb);
    bench.expect(&[]);
}

/// The two machines with each other.
#[test]
fn an_edge_node_that_compresses_is_understood() {
    for algorithm in [CompressionAlgorithm::Deflate, CompressionAlgorithm::Gzip] {
        let compression = Some(Compression { algorithm, bytes_min: 100 });
        let mut host = Bench::online(config());
        let node = EdgeNodeConfig { compression, ..EdgeNodeConfig::new(e()) };
        let mut node = EdgeNode::new(node, vec![text(500)], host.now).expect("valid");
        node.on_transport(TransportEvent::Connected, host.now);
        node.on_transport(TransportEvent::Subscribed, host.now);
        for length in [5, 600] {
            let update = NodeUpdate::Set { device: None, metrics: vec![text(length)] };
            node.update(update, host.now).expect("accepted");
        }
        let mut sizes = Vec::new();
        while let Some(output) = node.poll_output() {
            if let NodeOutput::Transport(TransportAction::Publish(p)) = output {
                sizes.push(p.payload.len());
                host.receive(&p.topic, p.payload);
            }
        }
        assert_eq!(sizes.len(), 3);
        assert!(sizes.iter().all(|bytes| *bytes < 250), "{sizes:?}");
        let value = |length: usize| format!("S=String({:?})", "x".repeat(length));
        host.expect(&[
            &format!("E born 0 at {WALL} bdSeq=Int64(0) Node Control/Rebirth=Boolean(false) {}", value(500)),
            &format!("E data at {WALL} {}", value(5)),
            &format!("E data at {WALL} {}", value(600)),
        ]);
    }
}
