//! Compressed payloads: both algorithms, what is refused, and bytes that another implementation compressed.

use super::*;

/// Made with Python 3.11: `body = zlib.compress(inner, 9)`, and in the payload only `uuid` and `body`, as Tahu's JavaScript does without options.
/// `inner`, put together field by field: timestamp 1700000000123, `Temperature/Bearing` Int32 42, `Temperature/Gearbox` String `hot` five times, both at that timestamp,
/// seq 7, uuid `inner`.
const PYTHON_DEFLATE: &str = "221253504256312e305f434f4d505245535345442a4b78dae3f87d61eaff3d86420a5cc221a9b905a9458925a545a9fa4ea989459979e912105905e6002d21635415ee401549f91530153c55c219f9250a6858825d8935332f2fb508005cbf2777";
/// The same `inner`, with `gzip.compress(inner, 9, mtime=0)`, the metric `algorithm` and timestamp 1700000000999, seq 9 outside.
const PYTHON_GZIP: &str = "08e7d795ffbc3112130a09616c676f726974686d200c7a04475a49501809221253504256312e305f434f4d505245535345442a571f8b0800000000000203e3f87d61eaff3d86420a5cc221a9b905a9458925a545a9fa4ea989459979e912105905e6002d21635415ee401549f91530153c55c219f9250a6858825d8935332f2fb508003f0a276c67000000";

const BOTH: [CompressionAlgorithm; 2] = [CompressionAlgorithm::Deflate, CompressionAlgorithm::Gzip];

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).expect("hex")).collect()
}

fn read(bytes: &[u8]) -> Result<RawPayload, DecodeError> {
    decode(bytes, &Limits::default())
}

/// A payload of `size` bytes or a little more, the same all over.
fn dull(size: usize) -> Bytes {
    let metrics = vec![Metric::new("zeros", Value::Bytes(vec![0; size].into()))];
    let payload = Payload { timestamp: Some(5), seq: Some(6), uuid: Some("u".into()), body: None, metrics };
    encode(&payload, &EncodeOptions::new(Form::Data))
}

fn compressed(algorithm: CompressionAlgorithm, inner: &[u8]) -> Bytes {
    Compression { algorithm, bytes_min: 0 }.apply(inner, 5, Some(6)).expect("it shrinks")
}

/// A payload with this `algorithm` and `body`.
fn marked(algorithm: Option<Metric>, body: Option<&[u8]>) -> Bytes {
    let metrics = algorithm.into_iter().collect();
    let body = body.map(Bytes::copy_from_slice);
    let payload = Payload { uuid: Some(COMPRESSED.into()), body, metrics, ..Payload::default() };
    encode(&payload, &EncodeOptions::new(Form::Birth))
}

fn named(name: &str) -> Option<Metric> {
    Some(Metric::string("algorithm", Some(name)))
}

/// The `body` of a compressed payload, with the name of its algorithm.
fn body_of(algorithm: CompressionAlgorithm, inner: &[u8]) -> (Option<Metric>, Vec<u8>) {
    let bytes = compressed(algorithm, inner);
    let outer = read::read(&bytes, &Limits::default()).expect("readable");
    (named(algorithm.name()), outer.body.expect("it has one").to_vec())
}

#[track_caller]
fn expect_refused(bytes: &[u8], reason: &str) {
    let error = read(bytes).expect_err("refused");
    assert!(matches!(error, DecodeError::Compressed { .. }), "{error:?}");
    assert_eq!(error.to_string(), format!("payload is marked as compressed, but {reason}"));
}

#[test]
fn bytes_that_python_compressed_are_read() {
    for (hex, timestamp, seq) in [(PYTHON_DEFLATE, 1_700_000_000_123, 7), (PYTHON_GZIP, 1_700_000_000_999, 9)] {
        let raw = read(&bytes(hex)).expect("readable");
        assert_eq!(
            (raw.timestamp, raw.seq),
            (Some(timestamp), Some(seq)),
            "from outside if it stands there, else from inside"
        );
        assert_eq!((raw.uuid.as_deref(), &raw.body), (Some("inner"), &None));
        let [bearing, gearbox] = &raw.metrics[..] else { panic!("{raw:?}") };
        assert_eq!((bearing.name.as_deref(), &bearing.value), (Some("Temperature/Bearing"), &Some(WireValue::Int(42))));
        assert_eq!(bearing.timestamp, Some(1_700_000_000_123));
        let hot = WireValue::String("hot hot hot hot hot".into());
        assert_eq!((gearbox.name.as_deref(), &gearbox.value), (Some("Temperature/Gearbox"), &Some(hot)));
    }
}

#[test]
fn what_is_compressed_says_so_repeats_time_and_seq_and_comes_back() {
    let inner = dull(1_000);
    for algorithm in BOTH {
        let outer = compressed(algorithm, &inner);
        assert!(outer.len() < 200);
        let shell = read::read(&outer, &Limits::default()).expect("readable");
        assert_eq!((shell.timestamp, shell.seq, shell.uuid), (Some(5), Some(6), Some(COMPRESSED)));
        let [metric] = &shell.metrics[..] else { panic!("{shell:?}") };
        assert_eq!(metric.name, Some("algorithm"));
        assert_eq!(metric.value, Some(ValueRef::String(algorithm.name())));
        assert_eq!((metric.datatype, metric.timestamp), (Some(DataType::String.to_wire()), Some(5)));
        assert_eq!(read(&outer), read(&inner));
    }
}

#[test]
fn what_is_small_or_does_not_shrink_stays_as_it_is() {
    let inner = dull(1_000);
    for algorithm in BOTH {
        let from = |bytes_min| Compression { algorithm, bytes_min }.apply(&inner, 5, Some(6)).is_some();
        assert!(from(inner.len()) && !from(inner.len() + 1));
        assert_eq!(Compression { algorithm, bytes_min: 0 }.apply(&dull(3), 5, None), None);
    }
}

#[test]
fn names_of_algorithms_are_taken_in_any_case_and_deflate_is_the_default() {
    let inner = dull(1_000);
    let (_, deflated) = body_of(CompressionAlgorithm::Deflate, &inner);
    let (_, zipped) = body_of(CompressionAlgorithm::Gzip, &inner);
    assert_eq!(read(&marked(None, Some(&deflated))), read(&inner));
    assert_eq!(read(&marked(named("Deflate"), Some(&deflated))), read(&inner));
    assert_eq!(read(&marked(named("gzip"), Some(&zipped))), read(&inner));
}

#[test]
fn inflating_stops_at_the_limit() {
    // Sixteen megabytes in sixteen kilobytes.
    let bomb = dull(16 << 20);
    for algorithm in BOTH {
        let outer = compressed(algorithm, &bomb);
        assert!(outer.len() < 20_000, "{}", outer.len());
        assert_eq!(read(&outer), Err(DecodeError::InflatedTooLarge { max: 1 << 20 }));
    }
    // The limit itself is allowed, at any size of the pieces in which memory is taken.
    for size in [0, 100, 16_300, 40_000, 300_000] {
        let inner = dull(size.max(100));
        for algorithm in BOTH {
            let outer = compressed(algorithm, &inner);
            let within = |max| decode(&outer, &Limits { inflated_bytes_max: max, ..Limits::default() });
            assert_eq!(within(inner.len()), read(&inner));
            let max = inner.len() - 1;
            assert_eq!(within(max), Err(DecodeError::InflatedTooLarge { max }));
        }
    }
    // What comes out is a payload like any other.
    let outer = compressed(CompressionAlgorithm::Deflate, &dull(1_000));
    let limits = Limits { metrics_max: 0, ..Limits::default() };
    assert!(decode(&outer, &limits).is_err());
}

#[test]
fn a_body_that_is_cut_off_anywhere_is_refused() {
    let inner = encode(
        &Payload {
            metrics: (0..50u32).map(|i| Metric::new(format!("m{i}"), i.wrapping_mul(2_654_435_761))).collect(),
            ..Payload::default()
        },
        &EncodeOptions::new(Form::Birth),
    );
    for algorithm in BOTH {
        let (name, body) = body_of(algorithm, &inner);
        for end in 0..body.len() {
            let error = read(&marked(name.clone(), Some(&body[..end]))).expect_err("cut off");
            assert!(
                error.to_string().contains(&format!("in the middle of the {} stream", algorithm.name())),
                "{end}: {error}"
            );
        }
        let more: Vec<u8> = body.iter().copied().chain([0]).collect();
        expect_refused(
            &marked(name, Some(&more)),
            &format!("something follows the {} stream in its body", algorithm.name()),
        );
    }
}

#[test]
fn a_damaged_body_is_refused() {
    let (name, mut body) = body_of(CompressionAlgorithm::Deflate, &dull(1_000));
    *body.last_mut().expect("not empty") ^= 1;
    expect_refused(
        &marked(name, Some(&body)),
        "its body is not a DEFLATE stream with the header of zlib, or is damaged",
    );
    let (name, mut body) = body_of(CompressionAlgorithm::Gzip, &dull(1_000));
    *body.last_mut().expect("not empty") ^= 1;
    expect_refused(&marked(name, Some(&body)), "its body is not a GZIP stream, or is damaged");
}

#[test]
fn what_cannot_be_had_is_refused_with_the_reason() {
    let (_, body) = body_of(CompressionAlgorithm::Deflate, &dull(1_000));
    expect_refused(&marked(named("LZ4"), Some(&body)), "algorithm \"LZ4\" is neither DEFLATE nor GZIP");
    let long = "x".repeat(10_000);
    assert!(read(&marked(named(&long), Some(&body))).expect_err("refused").to_string().len() < 200);
    expect_refused(&marked(Some(Metric::string("algorithm", None)), Some(&body)), "its metric `algorithm` has no text");
    expect_refused(&marked(Some(Metric::new("algorithm", 1u8)), Some(&body)), "its metric `algorithm` has no text");
    expect_refused(&marked(None, None), "it has no body");
    let twice = compressed(CompressionAlgorithm::Gzip, &dull(1_000_000));
    let twice = Compression { algorithm: CompressionAlgorithm::Gzip, bytes_min: 0 }.apply(&twice, 1, None);
    expect_refused(&twice.expect("zeros shrink twice"), "what it carries is compressed again");
    let garbage = compressed(CompressionAlgorithm::Deflate, &[0xFF; 1_000]);
    assert!(matches!(read(&garbage), Err(DecodeError::Protobuf { .. })));
}
