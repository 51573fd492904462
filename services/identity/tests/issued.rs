//! The ledger on a real disk: what it takes over is there after a kill, and a damaged one is not overwritten.

use std::collections::BTreeMap;
use std::fs;

use configdb_schema::document::{CertificateKind, CertificateState, IssuedCertificate};
use identity::adapters::ledger::Ledger;
use identity::issued::Issued;
use uuid::Uuid;

const NOW: u64 = 1_800_000_000_000;

fn issued(serial: &str, expires: &str) -> Issued {
    let certificate = IssuedCertificate {
        serial: serial.to_owned(),
        node: "cluster".to_owned(),
        kind: CertificateKind::Mqtt,
        key: "aa".to_owned(),
        issued: "2027-01-01T00:00:00Z".to_owned(),
        expires: expires.to_owned(),
        fence: 0,
        state: CertificateState::Valid,
    };
    Issued { certificates: vec![certificate], ..Issued::default() }
}

fn cluster(number: u128) -> Uuid {
    Uuid::from_u128(number)
}

#[test]
fn what_was_written_is_read_after_a_kill_and_the_last_line_of_a_cluster_counts() {
    let directory = tempfile::tempdir().unwrap();
    let (mut ledger, all) = Ledger::load(directory.path(), NOW).unwrap();
    assert!(all.is_empty());
    let later = "2027-06-01T00:00:00Z";
    for serial in ["4a01", "4a02"] {
        ledger.remember([(cluster(1), issued(serial, later))].into());
        ledger.write().unwrap();
    }
    ledger.remember([(cluster(2), issued("4a03", "2027-01-02T00:00:00Z"))].into());
    ledger.write().unwrap();
    // Killed while it appended.
    let file = directory.path().join("issued.jsonl");
    let half = fs::read_to_string(&file).unwrap() + "{\"cluster\": \"00";
    fs::write(&file, half).unwrap();
    let (_, all) = Ledger::load(directory.path(), NOW).unwrap();
    assert_eq!(all, BTreeMap::from([(cluster(1), issued("4a02", later))]), "what has ended is left out");
    assert_eq!(fs::read_to_string(&file).unwrap().lines().count(), 1, "it is compacted");
}

#[test]
fn a_damaged_line_is_named_and_nothing_is_overwritten() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("issued.jsonl");
    let damaged = "{\"cluster\"\n{}\n";
    fs::write(&file, damaged).unwrap();
    let error = Ledger::load(directory.path(), NOW).unwrap_err().to_string();
    assert!(error.contains("issued.jsonl, line 1, is damaged"), "{error}");
    assert_eq!(fs::read_to_string(&file).unwrap(), damaged);
}

#[test]
fn what_cannot_be_written_is_kept_for_the_next_try() {
    let directory = tempfile::tempdir().unwrap();
    let (mut ledger, _) = Ledger::load(directory.path(), NOW).unwrap();
    let file = directory.path().join("issued.jsonl");
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    ledger.remember([(cluster(1), issued("4a01", "2027-06-01T00:00:00Z"))].into());
    assert!(ledger.write().unwrap_err().to_string().contains("cannot append to"));
    fs::remove_dir(&file).unwrap();
    ledger.write().unwrap();
    assert_eq!(Ledger::load(directory.path(), NOW).unwrap().1.len(), 1);
}
