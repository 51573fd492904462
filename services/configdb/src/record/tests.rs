//! The record on a real disk, of a store that is killed, set back and replaced.

use std::sync::Arc;

use service_runtime::record::chain;
use sparkplug::replication::Timelines;
use uuid::Uuid;

use super::*;
use crate::store::{Commit, HistoryRow, MemoryStore, SqliteStore};

const OBJECT: Uuid = Uuid::from_u128(0xab);

/// A store, and the record of it that follows when it is asked to.
struct Bench {
    directory: tempfile::TempDir,
    store: MemoryStore,
    recorder: Recorder,
}

impl Bench {
    async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let recorder = Recorder::new(directory.path());
        let mut bench = Self { directory, store: MemoryStore::new(Uuid::from_u128(5)), recorder };
        bench.start().await;
        bench
    }

    /// A process begins; what another one remembered is forgotten.
    async fn start(&mut self) {
        self.recorder = Recorder::new(self.directory.path());
        let (timelines, revision) = self.stored();
        self.recorder.begin(Stored { timelines: &timelines, revision }, 9).await;
        self.follow().await;
    }

    fn stored(&self) -> (Timelines, u64) {
        let snapshot = self.store.load_now();
        (snapshot.timelines, snapshot.revision)
    }

    async fn follow(&mut self) {
        let (timelines, revision) = self.stored();
        self.recorder.follow(&mut self.store, Stored { timelines: &timelines, revision }, 9).await;
    }

    /// Commits one write, and records it as the running service does.
    async fn write_and_add(&mut self, slug: &str, json: Option<&str>) {
        let transaction = self.write(1, "ada", slug, json);
        let (timelines, revision) = self.stored();
        let stored = Stored { timelines: &timelines, revision };
        self.recorder.add(&mut self.store, stored, &[transaction], 9).await;
    }

    /// Commits one write of the session `timeline`.
    fn write(&self, timeline: u64, writer: &str, slug: &str, json: Option<&str>) -> Transaction {
        let (mut timelines, before) = self.stored();
        if timelines.last_of(timeline, before).is_none() {
            timelines.begin(timeline, before);
        }
        let row = HistoryRow { object: OBJECT, slug: slug.into(), old: None, new: json.map(Arc::from), etag: None };
        let transaction = Transaction {
            revision: before + 1,
            time: 7,
            writer: writer.into(),
            request: "r".into(),
            object: None,
            entries: Vec::new(),
            application: None,
            history: vec![row],
        };
        self.store.commit_now(&Commit {
            transactions: vec![transaction.clone()],
            timelines: Some(timelines),
            ..Commit::default()
        });
        transaction
    }

    /// Operation, writer and target of each line; the chain holds.
    fn lines(&self) -> Vec<String> {
        let bytes = std::fs::read(record::path(self.directory.path())).unwrap_or_default();
        chain::verify(&bytes).unwrap();
        let line = |line: &str| {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            let text = |name: &str| line[name].as_str().unwrap().to_owned();
            format!("{} {} {}", text("operation"), text("who"), text("target"))
        };
        String::from_utf8(bytes).unwrap().lines().map(line).collect()
    }
}

#[tokio::test]
async fn what_was_stored_while_no_record_was_kept_is_recorded_at_the_next_start_and_nothing_twice() {
    let mut bench = Bench::new().await;
    bench.write(1, "user:ACME-Central-Operator-ada", "Info", Some("{}"));
    bench.follow().await;
    // The process is killed between commit and record, and again after it.
    bench.write(1, "bob", "Info", None);
    bench.write(1, "ACME", "EdgeClusterStatus", Some("{}"));
    bench.write(
        1,
        "bob",
        "ApiToken",
        Some(r#"{"name":"ci","hash":"","scope":"viewer","issued":"","expires":"","by":"x"}"#),
    );
    bench.start().await;
    bench.start().await;
    let expected = [
        &*format!("put-entry user:ACME-Central-Operator-ada {OBJECT}/Info revision 1"),
        &*format!("delete-entry claimed:bob {OBJECT}/Info revision 2"),
        "create-token claimed:bob ci",
    ];
    assert_eq!(bench.lines(), expected);
}

#[tokio::test]
async fn what_was_not_recorded_before_a_write_is_recorded_before_it() {
    let mut bench = Bench::new().await;
    bench.write_and_add("Info", Some("1")).await;
    bench.write(1, "ada", "Info", Some("2"));
    bench.write_and_add("EdgeClusterStatus", Some("{}")).await;
    bench.write_and_add("Info", None).await;
    bench.write_and_add("Info", Some("5")).await;
    let expected = [("put", 1), ("put", 2), ("delete", 4), ("put", 5)]
        .map(|(what, at)| format!("{what}-entry claimed:ada {OBJECT}/Info revision {at}"));
    assert_eq!(bench.lines(), expected);
    let recorded = bench.lines();
    bench.start().await;
    assert_eq!(bench.lines(), recorded, "nothing is recorded again");
}

#[tokio::test]
async fn a_transaction_gives_the_lines_that_the_database_gives_of_it() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = SqliteStore::open(&directory.path().join("store")).await.unwrap();
    let row = |slug: &str, old: Option<&str>, new: Option<&str>| HistoryRow {
        object: OBJECT,
        slug: slug.into(),
        old: old.map(Arc::from),
        new: new.map(Arc::from),
        etag: None,
    };
    let of = |revision, history| Transaction {
        revision,
        time: 7 + revision,
        writer: "ada".into(),
        request: format!("r{revision}").into(),
        object: None,
        entries: Vec::new(),
        application: None,
        history,
    };
    let transactions = vec![
        of(
            1,
            vec![
                row("Registration", None, Some("{}")),
                row("EdgeClusterSetup", None, Some("{}")),
                row("Info", None, Some("1")),
            ],
        ),
        of(2, vec![row("ApiToken", None, Some("{\"name\":\"ci\"}")), row("Info", Some("1"), None)]),
        of(3, vec![row("EdgeClusterStatus", None, Some("{}"))]),
        of(4, vec![row("ApiToken", Some("{\"name\":\"ci\"}"), None)]),
    ];
    store.commit(&Commit { transactions: transactions.clone(), ..Commit::default() }).await.unwrap();
    let of_transactions: Vec<WriteRow> = transactions.iter().flat_map(Transaction::writes).collect();
    assert_eq!(of_transactions.len(), 5);
    assert_eq!(store.writes((0, END), 100).await.unwrap(), of_transactions);
}

#[tokio::test]
async fn what_could_not_be_kept_is_recorded_when_there_is_room_again() {
    let mut bench = Bench::new().await;
    bench.write(1, "ada", "Info", Some("1"));
    bench.follow().await;
    // A directory in its place: nothing can be appended, as on a full disk.
    let (path, aside) = (record::path(bench.directory.path()), bench.directory.path().join("aside"));
    std::fs::rename(&path, &aside).unwrap();
    std::fs::create_dir(&path).unwrap();
    bench.write(1, "ada", "Info", Some("2"));
    bench.follow().await;
    assert!(bench.recorder.is_failing());
    std::fs::remove_dir(&path).unwrap();
    std::fs::rename(&aside, &path).unwrap();
    bench.follow().await;
    assert!(!bench.recorder.is_failing());
    assert_eq!(
        bench.lines(),
        [1, 2].map(|revision| format!("put-entry claimed:ada {OBJECT}/Info revision {revision}"))
    );
}

#[tokio::test]
async fn what_a_power_cut_takes_of_the_file_is_recorded_again() {
    let mut bench = Bench::new().await;
    let path = record::path(bench.directory.path());
    bench.write(1, "ada", "Info", Some("1"));
    bench.follow().await;
    bench.recorder.keep_mark().await;
    let synced = std::fs::read(&path).unwrap();
    for json in ["2", "3"] {
        bench.write(1, "ada", "Info", Some(json));
        bench.follow().await;
    }
    let lost = bench.lines();
    // Of the line behind the last mark a part, and nothing of the next.
    std::fs::write(&path, [&synced[..], b"{\"at\":7,\"wh"].concat()).unwrap();
    bench.start().await;
    assert_eq!((bench.lines(), lost.len()), (lost, 3));
}

#[tokio::test]
async fn the_record_continues_where_it_was_after_its_file_was_moved_away() {
    let mut bench = Bench::new().await;
    bench.write(1, "ada", "Info", Some("1"));
    bench.follow().await;
    bench.recorder.keep_mark().await;
    let path = record::path(bench.directory.path());
    std::fs::rename(&path, bench.directory.path().join("audit.1")).unwrap();
    bench.write(1, "ada", "Info", Some("2"));
    bench.start().await;
    assert_eq!(bench.lines(), [format!("put-entry claimed:ada {OBJECT}/Info revision 2")]);
}

#[tokio::test]
async fn a_store_that_was_set_back_or_is_another_one_is_a_line_of_its_own() {
    let mut bench = Bench::new().await;
    bench.write(1, "ada", "Info", Some("1"));
    let backup = bench.store.copy(Uuid::from_u128(5));
    bench.write(1, "ada", "Info", Some("2"));
    bench.follow().await;
    bench.store = backup;
    bench.start().await;
    bench.write(2, "bob", "Info", Some("3"));
    bench.start().await;
    let state = Point { timeline: 1, revision: 2 };
    let of = |writer: &str, revision| format!("put-entry claimed:{writer} {OBJECT}/Info revision {revision}");
    let set_back = |revision: u64, recorded: Point| {
        format!(
            "replace-store configdb the store is at revision {revision}; recorded was state {recorded}, which it does not contain"
        )
    };
    let expected = vec![of("ada", 1), of("ada", 2), set_back(1, state), of("bob", 2)];
    assert_eq!(bench.lines(), expected);
    // A new store: all of it is recorded.
    bench.store = MemoryStore::new(Uuid::from_u128(6));
    bench.start().await;
    bench.write(3, "ada", "Info", Some("4"));
    bench.start().await;
    let expected = [expected, vec![set_back(0, Point { timeline: 2, revision: 2 }), of("ada", 1)]].concat();
    assert_eq!(bench.lines(), expected);
}

#[tokio::test]
async fn a_store_from_before_the_record_says_where_it_begins() {
    let mut bench = Bench::new().await;
    bench.write(1, "ada", "Info", Some("1"));
    bench.start().await;
    bench.write(1, "ada", "Info", Some("2"));
    bench.start().await;
    let begin = "begin-record configdb the writes before are in the history, to revision 1";
    assert_eq!(bench.lines(), [begin, &*format!("put-entry claimed:ada {OBJECT}/Info revision 2")]);
}
