//! Decoders of everything that arrives: no bytes make them panic or ask for memory without bound, and what they take is written back as the same.

use sparkplug::metric::Metric;
use sparkplug::payload::{
    COMPRESSED, Compression, CompressionAlgorithm, DecodeError, EncodeOptions, Form, Limits, Payload, decode,
    decode_for_display, encode,
};
use sparkplug::state::HostState;
use sparkplug::topic::Topic;

/// A payload as it stands on the wire.
pub fn payload(bytes: &[u8]) {
    let limits = Limits::default();
    let Ok(payload) = decode(bytes, &limits) else {
        return;
    };
    for metric in payload.metrics {
        if let Ok(datatype) = metric.own_datatype() {
            let _ = metric.resolve("Temperature".into(), datatype, None);
        }
    }
    assert!(decode_for_display(bytes, &limits).is_ok(), "what can be decoded can be displayed");
}

/// The text of a topic.
pub fn topic(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Ok(topic) = Topic::parse(text)
    {
        assert_eq!(topic.to_string(), text);
    }
}

/// A STATE message.
pub fn state(bytes: &[u8]) {
    if let Ok(state) = HostState::decode(bytes) {
        assert_eq!(HostState::decode(&state.encode()), Ok(state));
    }
}

/// The first byte chooses the algorithm; the rest is the body of a compressed payload, and then what such a body carries.
pub fn compressed(bytes: &[u8]) {
    let Some((choice, rest)) = bytes.split_first() else {
        return;
    };
    let algorithm = if choice % 2 == 0 { CompressionAlgorithm::Deflate } else { CompressionAlgorithm::Gzip };
    // Small, so that a bomb is found by what it takes and not by the memory of this machine.
    let limits = Limits { inflated_bytes_max: 64 * 1024, ..Limits::default() };
    let outer = Payload {
        uuid: Some(COMPRESSED.into()),
        body: Some(rest.to_vec().into()),
        metrics: vec![Metric::string("algorithm", Some(algorithm.name()))],
        ..Payload::default()
    };
    let _ = decode_for_display(&encode(&outer, &EncodeOptions::new(Form::Birth)), &limits);

    if let Some(outer) = (Compression { algorithm, bytes_min: 0 }).apply(rest, 1, None) {
        let (wrapped, plain) = (decode(&outer, &limits), decode(rest, &limits));
        match plain {
            Ok(plain) if plain.timestamp.is_none() && rest.len() <= limits.inflated_bytes_max => {
                let wrapped =
                    wrapped.map(|wrapped| format!("{:?}", (wrapped.seq, wrapped.uuid, wrapped.body, wrapped.metrics)));
                let plain = format!("{:?}", (plain.seq, plain.uuid, plain.body, plain.metrics));
                // What is compressed already is refused when it is compressed again.
                assert!(wrapped == Ok(plain) || matches!(wrapped, Err(DecodeError::Compressed { .. })));
            }
            Ok(_) => {}
            Err(_) => assert!(wrapped.is_err(), "compression makes nothing readable"),
        }
    }
}
