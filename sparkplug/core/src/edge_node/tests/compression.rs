//! Compressed births and data, and compressed commands.

use super::*;
use crate::payload::{Compression, CompressionAlgorithm, RawPayload};

/// What stands on the wire: whether it is compressed is not to be seen after decoding.
fn is_compressed(p: &Publish) -> bool {
    let marker = crate::payload::COMPRESSED.as_bytes();
    p.payload.windows(marker.len()).any(|w| w == marker)
}

fn publishes(bench: &mut Bench) -> Vec<Publish> {
    let publish = |output| match output {
        NodeOutput::Transport(TransportAction::Publish(p)) => Some(p),
        _ => None,
    };
    bench.outputs().into_iter().filter_map(publish).collect()
}

#[test]
fn births_and_data_from_a_size_on_are_compressed_deaths_and_small_messages_are_not() {
    let compression = Some(Compression { algorithm: CompressionAlgorithm::Deflate, bytes_min: 300 });
    let mut bench =
        Bench::new(EdgeNodeConfig { compression, payload_uuid: Some("marker".into()), ..config() }, node_metrics());
    let outputs = bench.outputs();
    let [NodeOutput::Transport(TransportAction::Connect(connect))] = &outputs[..] else { panic!("{outputs:?}") };
    assert!(!is_compressed(connect.will.as_ref().expect("a will")));
    let long = || vec![Metric::new("x", "ab".repeat(500))];
    bench.birth("D", long());
    bench.go_online();
    bench.set(Some("D"), vec![Metric::new("x", "short")]);
    bench.set(Some("D"), long());
    bench.update(NodeUpdate::Stop);
    let publishes = publishes(&mut bench);
    let lines: Vec<String> = publishes
        .iter()
        .map(|p| {
            let RawPayload { seq, uuid, timestamp, .. } =
                crate::payload::decode(&p.payload, &Limits::default()).expect("readable");
            assert_eq!((uuid.as_deref(), timestamp), (Some("marker"), Some(WALL)));
            format!("{} {seq:?} {}", p.topic, is_compressed(p))
        })
        .collect();
    assert_eq!(
        lines,
        [
            "spBv1.0/G/NBIRTH/E Some(0) false",
            "spBv1.0/G/DBIRTH/E/D Some(1) true",
            "spBv1.0/G/DDATA/E/D Some(2) false",
            "spBv1.0/G/DDATA/E/D Some(3) true",
            "spBv1.0/G/NDEATH/E None false",
        ]
    );
    assert_eq!(publish_line(&publishes[3]), format!("DDATA E/D 3 x=String({:?})", "ab".repeat(500)));
}

#[test]
fn nothing_is_compressed_without_being_asked_to() {
    let mut bench = Bench::new(config(), vec![Metric::new("x", "a".repeat(10_000))]);
    bench.go_online();
    let publishes = publishes(&mut bench);
    assert_eq!(publishes.len(), 1);
    assert!(!is_compressed(&publishes[0]));
}

#[test]
fn compressed_commands_are_read_and_bombs_are_rejected() {
    let mut bench = Bench::born(EdgeNodeConfig { rebirth_interval_min: Duration::ZERO, ..config() });
    let send = |bench: &mut Bench, algorithm, text: usize| {
        let metrics = vec![Metric::new("Temperature", 25.0f64), Metric::new("text", "a".repeat(text))];
        let payload = Payload { timestamp: Some(7), metrics, ..Payload::default() };
        let inner = encode(&payload, &EncodeOptions::new(Form::Command));
        let outer = Compression { algorithm, bytes_min: 0 }.apply(&inner, 7, None).expect("it shrinks");
        bench.receive("spBv1.0/G/NCMD/E", outer);
    };
    for algorithm in [CompressionAlgorithm::Deflate, CompressionAlgorithm::Gzip] {
        send(&mut bench, algorithm, 200);
        let text = "a".repeat(200);
        bench.expect(&[&format!("command - Temperature=Double(25.0) text=String({text:?}) at Some(7)")]);
        send(&mut bench, algorithm, 2 << 20);
        bench.expect(&["rejected spBv1.0/G/NCMD/E: payload has more than 1048576 bytes when inflated"]);
    }
    let mut roomy = Bench::born(EdgeNodeConfig { message_bytes_max: 4 << 20, ..config() });
    send(&mut roomy, CompressionAlgorithm::Deflate, 2 << 20);
    assert!(
        roomy.lines()[0].starts_with("command - Temperature=Double(25.0) text="),
        "its own messages may be as large"
    );
}
