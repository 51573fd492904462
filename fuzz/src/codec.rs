//! Decoders of everything that arrives: no bytes make them panic or ask for memory without bound, and what they take is written back as the same.

use sparkplug::metric::Metric;
use sparkplug::payload::{
    COMPRESSED, Compression, CompressionAlgorithm, DecodeError, EncodeOptions, Form, Inflated, Limits, Payload, decode,
    decode_for_display, decode_ref, encode,
};
use sparkplug::state::HostState;
use sparkplug::topic::Topic;

/// A payload as it stands on the wire.
pub fn payload(bytes: &[u8]) {
    let limits = Limits::default();
    let mut inflated = Inflated::default();
    let Ok(payload) = decode_ref(bytes, &limits, &mut inflated) else {
        assert!(decode(bytes, &limits).is_err(), "both readers refuse the same");
        return;
    };
    let owned = decode(bytes, &limits).expect("both readers take the same");
    assert_eq!(payload.metrics.len(), owned.metrics.len());
    let mut metrics = Vec::new();
    for (borrowed, owned) in payload.metrics.iter().zip(owned.metrics) {
        let Ok(datatype) = borrowed.own_datatype() else { continue };
        let resolved = borrowed.resolve("Temperature".into(), datatype, None);
        let same = owned.resolve("Temperature".into(), datatype, None);
        assert_eq!(format!("{resolved:?}"), format!("{same:?}"), "both readers mean the same");
        // A template may be definition and instance at once on the wire; it is not written so.
        metrics.extend(resolved.ok().filter(|metric| metric.check().is_ok()));
    }
    // Written again, it says the same once more.
    let written = encode(&Payload { metrics: metrics.clone(), ..Payload::default() }, &EncodeOptions::new(Form::Birth));
    if let Ok(again) = decode(&written, &limits) {
        let again = again.metrics.into_iter().zip(&metrics).map(|(raw, metric)| {
            raw.resolve(metric.name.clone(), metric.datatype, None).expect("what was resolved can be resolved")
        });
        assert!(again.zip(&metrics).all(|(again, metric)| format!("{again:?}") == format!("{metric:?}")));
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
