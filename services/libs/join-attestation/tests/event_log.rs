//! Event logs that real firmware (OVMF) and a unified kernel image wrote, against the PCRs of the TPM of the same boot; and logs that are malformed.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use join_attestation::{EventLog, Hash, pcr};
use join_protocol::limits::EVENT_LOG_BYTES_MAX;
use proptest::prelude::*;

use crate::logs::{OTHER_COMMAND_LINE, PLAIN, SECURE_BOOT, measured};

/// Bytes of the header of these logs.
const HEADER: usize = 65;

fn replayed(log: &[u8]) -> Vec<String> {
    EventLog::parse(log).unwrap().replay(Hash::Sha256).unwrap().values().map(hex::encode).collect()
}

/// PCR 11 as a host in operation shows it: systemd has measured two phases of the boot, which no log has.
fn in_operation(pcr: &str) -> String {
    let value = hex::decode(pcr).unwrap();
    let phases = ["sysinit", "ready"].iter();
    hex::encode(phases.fold(value, |value, phase| pcr::after_event(Hash::Sha256, &value, phase.as_bytes())))
}

#[test]
fn the_replay_of_a_log_is_what_the_tpm_of_that_boot_held() {
    let (plain, other, secure) = (replayed(PLAIN), replayed(OTHER_COMMAND_LINE), replayed(SECURE_BOOT));
    // (PCR, plain, another command line, Secure Boot): what `tpm2_pcrread` gave.
    let held = [
        (0, "177e29c4", "177e29c4", "fb776953"),
        (1, "38986971", "38986971", "38986971"),
        (2, "3d458cfe", "3d458cfe", "3d458cfe"),
        (3, "3d458cfe", "3d458cfe", "3d458cfe"),
        (4, "8f496638", "4d659bcb", "cd7f8f75"),
        (5, "3581b139", "3581b139", "3581b139"),
        (6, "3d458cfe", "3d458cfe", "3d458cfe"),
        (7, "65caf8dd", "65caf8dd", "02a4f904"),
        (8, "00000000", "00000000", "00000000"),
        (9, "6071e80f", "8801d73a", "6071e80f"),
    ];
    for (pcr, one, two, three) in held {
        for (log, wanted) in [(&plain, one), (&other, two), (&secure, three)] {
            assert!(log[pcr].starts_with(wanted), "PCR {pcr}: {}", log[pcr]);
        }
    }
    for (log, wanted) in [(&plain, "310cbe17"), (&other, "f0c3072f"), (&secure, "310cbe17")] {
        assert!(in_operation(&log[11]).starts_with(wanted));
    }
}

#[test]
fn two_boots_with_another_command_line_differ_in_three_measurements() {
    let (one, two) = (EventLog::parse(PLAIN).unwrap(), EventLog::parse(OTHER_COMMAND_LINE).unwrap());
    let pairs = one.events().iter().zip(two.events());
    let differ: Vec<u8> = pairs
        .filter(|(one, two)| one.digest(Hash::Sha256) != two.digest(Hash::Sha256))
        .map(|(one, _)| one.pcr)
        .collect();
    assert_eq!(differ, [4, 11, 9]);
    assert_eq!(one.events().len(), 36);
}

#[test]
fn pcr_0_begins_with_the_locality_from_which_the_tpm_was_started() {
    let note = measured(0, 3, &[0; 32], b"StartupLocality\0\x03");
    let log = [&PLAIN[..HEADER], &note, &PLAIN[HEADER..]].concat();
    let other = EventLog::parse(&log).unwrap();
    assert_eq!(other.events().len(), 36, "it is not a measurement");
    let pcrs = other.replay(Hash::Sha256).unwrap();
    let wanted = other.of_pcr(0).fold([vec![0; 31], vec![3]].concat(), |value, event| {
        pcr::extended(Hash::Sha256, &value, event.digest(Hash::Sha256).unwrap())
    });
    assert_eq!(pcrs[&0], wanted);
    assert_ne!(hex::encode(&pcrs[&0]), replayed(PLAIN)[0]);
}

#[test]
fn the_data_of_an_event_counts_where_its_digest_is_measured() {
    let log = EventLog::parse(SECURE_BOOT).unwrap();
    let bound: Vec<bool> = log.of_pcr(7).map(|event| event.is_of_data(Hash::Sha256)).collect();
    assert_eq!(bound, [true; 7]);
    assert!(log.of_pcr(9).all(|event| !event.is_of_data(Hash::Sha256)), "a digest of what was loaded");
    assert!(!log.events()[0].is_of_data(Hash::Sha384), "the log has no such bank");
    assert_eq!(log.replay(Hash::Sha384).unwrap_err().to_string(), "event 1 has no digest of the bank sha384");
}

#[test]
fn unknown_types_and_algorithms_are_tolerated_and_sizes_are_not() {
    let unknown = [PLAIN, &measured(5, 0x8000_00ff, &[7; 32], b"of a later specification")].concat();
    assert_eq!(EventLog::parse(&unknown).unwrap().events().len(), 37);
    let seed = include_bytes!("../../../../fuzz/seeds/join_event_log/two_banks");
    assert_eq!(EventLog::parse(seed).unwrap().events().len(), 1, "SM3 beside SHA-256");

    let error = |bytes: &[u8]| EventLog::parse(bytes).unwrap_err().to_string();
    assert_eq!(error(&[0; EVENT_LOG_BYTES_MAX + 1]), "event log: 65537 is more than 65536");
    assert_eq!(error(&[]), "header.pcrIndex: needs 4 bytes, 0 are left");
    assert_eq!(error(&PLAIN[..PLAIN.len() - 1]), "event: needs 40 bytes, 39 are left");
    assert_eq!(error(&[PLAIN, &measured(24, 1, &[7; 32], b"")].concat()), "pcrIndex: 0x18 is not known");
    assert_eq!(
        error(&[PLAIN, &measured(4, 1, &[7; 32], b"")[..20]].concat()),
        "digests.digest: needs 32 bytes, 6 are left"
    );
    let many = [&PLAIN[..HEADER], &measured(4, 1, &[7; 32], b"").repeat(1025)].concat();
    assert_eq!(error(&many), "events: 1025 is more than 1024");
    let changed = |at: usize, byte: u8| {
        let mut bytes = PLAIN.to_vec();
        bytes[at] = byte;
        error(&bytes)
    };
    assert_eq!(changed(4, 8), "header.eventType: 0x8 is not known");
    assert_eq!(changed(32, b'X'), "signature: 0x58 is not known");
    assert_eq!(changed(56, 9), "numberOfAlgorithms: 9 is more than 8");
    assert_eq!(changed(62, 31), "digestSize: has size 31, and 32 is wanted");
    assert_eq!(changed(HEADER + 8, 2), "digests.count: 2 is more than 1");
    assert_eq!(changed(HEADER + 12, 12), "digests.algorithmId: 0xc is not known");
}

proptest! {
    #[test]
    fn arbitrary_bytes_are_a_log_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(log) = EventLog::parse(&bytes) {
            let _ = log.replay(Hash::Sha256);
        }
        let after_header = [&PLAIN[..HEADER], &bytes].concat();
        if let Ok(log) = EventLog::parse(&after_header) {
            let _ = log.replay(Hash::Sha256);
        }
    }

    #[test]
    fn a_changed_digest_or_pcr_changes_the_replay(at in 0_usize..3276, bit in 0_u8..8) {
        let mut bytes = PLAIN.to_vec();
        bytes[at] ^= 1 << bit;
        if let (Ok(log), Ok(whole)) = (EventLog::parse(&bytes), EventLog::parse(PLAIN)) {
            let measured = |log: &EventLog<'_>| -> Vec<(u8, Vec<u8>)> {
                log.events().iter().filter_map(|event| Some((event.pcr, event.digest(Hash::Sha256)?.to_vec()))).collect()
            };
            let same = measured(&log) == measured(&whole);
            // PCR 0 begins with the locality from which the TPM was started, which a note says that is not measured.
            let replayed = |log: &EventLog<'_>| log.replay(Hash::Sha256).map(|mut pcrs| {
                if same {
                    pcrs.remove(&0);
                }
                pcrs
            });
            prop_assert_eq!(same, replayed(&log) == replayed(&whole));
        }
    }
}
