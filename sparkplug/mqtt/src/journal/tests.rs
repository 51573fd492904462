//! What is written is found again, whatever happened in between.

use super::*;

fn append(number: u64, record: &'static [u8]) -> StoreAction {
    StoreAction::Append { number, record: Bytes::from_static(record) }
}

fn opened(directory: &Path) -> (Journal, Vec<u64>) {
    let (journal, records) = Journal::open(directory).unwrap();
    (journal, records.into_iter().map(|(number, _)| number).collect())
}

fn segments(directory: &Path) -> usize {
    segment_files(directory).unwrap().len()
}

#[test]
fn what_was_appended_and_not_forgotten_is_there_after_every_restart() {
    let directory = tempfile::tempdir().unwrap();
    let (mut journal, records) = Journal::open(directory.path()).unwrap();
    assert!(records.is_empty());
    journal.apply(&[append(0, b"a"), append(1, b""), append(2, b"c")]).unwrap();
    journal.apply(&[StoreAction::Forget { below: 1 }, append(3, b"d")]).unwrap();
    for _ in 0..3 {
        let (_, records) = Journal::open(directory.path()).unwrap();
        let expected: [(u64, &[u8]); 3] = [(1, b""), (2, b"c"), (3, b"d")];
        assert_eq!(records, expected.map(|(number, record)| (number, Bytes::from_static(record))));
    }
    let (mut journal, _) = opened(directory.path());
    journal.apply(&[append(4, b"e"), StoreAction::Forget { below: 5 }]).unwrap();
    assert_eq!(segments(directory.path()), 1, "what is not needed is deleted");
    // Numbers begin again, and are not taken for forgotten ones.
    let (mut journal, records) = opened(directory.path());
    assert!(records.is_empty());
    journal.apply(&[append(0, b"f")]).unwrap();
    assert_eq!(opened(directory.path()).1, [0]);
}

#[test]
fn a_torn_end_is_dropped_at_whatever_byte_it_was_torn() {
    let directory = tempfile::tempdir().unwrap();
    let (mut journal, _) = Journal::open(directory.path()).unwrap();
    journal.apply(&[append(0, b"first"), append(1, b"second")]).unwrap();
    let path = journal.segments.back().unwrap().path.clone();
    let whole = fs::read(&path).unwrap();
    let first = HEAD_BYTES + BODY_BYTES_MIN + 5;
    for length in 0..=whole.len() {
        fs::write(&path, &whole[..length]).unwrap();
        let mut contents = Contents::default();
        contents.read(&path).unwrap();
        let expected = usize::from(length >= first) + usize::from(length == whole.len());
        assert_eq!(contents.records.len(), expected, "{length} bytes");
    }
    // A flipped bit is noticed as well.
    for at in 0..whole.len() {
        let mut bent = whole.clone();
        bent[at] ^= 1;
        fs::write(&path, &bent).unwrap();
        let mut contents = Contents::default();
        contents.read(&path).unwrap();
        assert_eq!(contents.records.len(), usize::from(at >= first), "byte {at}");
    }
    // After a torn end a new process writes on in a segment of its own.
    fs::write(&path, &whole[..whole.len() - 1]).unwrap();
    let (mut journal, records) = opened(directory.path());
    assert_eq!(records, [0]);
    journal.apply(&[append(1, b"again")]).unwrap();
    assert_eq!(opened(directory.path()).1, [0, 1]);
}

#[test]
fn full_segments_are_followed_by_others_and_deleted_when_they_are_not_needed() {
    static RECORD: [u8; 300_000] = [7; 300_000];
    let directory = tempfile::tempdir().unwrap();
    let (mut journal, _) = Journal::open(directory.path()).unwrap();
    for number in 0..20 {
        journal.apply(&[append(number, &RECORD)]).unwrap();
    }
    assert_eq!(segments(directory.path()), 6);
    journal.apply(&[StoreAction::Forget { below: 9 }]).unwrap();
    assert_eq!(segments(directory.path()), 4);
    assert_eq!(opened(directory.path()).1, (9..20).collect::<Vec<_>>());
}

#[test]
fn a_directory_that_cannot_be_written_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    let error = Journal::open(&file.join("store")).unwrap_err().to_string();
    assert_eq!(error, format!("mqtt.store_directory: cannot create {}", file.join("store").display()));
}
