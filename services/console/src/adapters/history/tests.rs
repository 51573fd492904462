//! The store on a real file: what is read is what was there, after kills, full disks, damage and forgetting.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;

use fleet_view::deltas::Table;
use fleet_view::history::export::Gap;
use fleet_view::history::{View, transitions};
use serde_json::json;
use tempfile::TempDir;

use super::*;
use crate::record::{Known, StoredEvent, Tables};

const DAY: u64 = 24 * 3_600 * 1_000;

/// States of the table of clusters, one after another.
struct Fleet {
    tables: Tables,
    number: u64,
}

impl Fleet {
    fn new() -> Self {
        Self { tables: View::ALL.map(|view| (view, Arc::new(Table::new()))).into(), number: 0 }
    }

    fn clusters(&self) -> &Table {
        &self.tables[&View::Clusters]
    }

    /// The record of the next change: one of `many` clusters comes, goes or changes.
    fn next(&mut self, at: u64, many: u64, with_snapshot: bool) -> Record {
        self.number += 1;
        let old = Arc::clone(&self.tables[&View::Clusters]);
        let mut new = Table::clone(&old);
        let key = format!("{:04}", self.number * 7 % many);
        if self.number.is_multiple_of(5) {
            new.remove(&key);
        } else {
            let row = json!({ "key": key, "name": key, "setup": format!("step {}", self.number), "padding": "x".repeat(200) });
            new.insert(key, row);
        }
        let transitions = transitions(View::Clusters, &old, &new);
        self.tables.insert(View::Clusters, Arc::new(new));
        let snapshot = with_snapshot.then(|| self.tables.clone());
        Record { transitions, snapshot, ends_gap: self.number == 1, ..Record::of_time(at) }
    }
}

async fn open(directory: &TempDir) -> (Store, Known) {
    Store::open(directory.path(), "away").await.unwrap()
}

fn reader(directory: &TempDir) -> Reader {
    // The sender may go: what it said last stays.
    Reader::new(store::file(directory.path()), watch::Sender::new(HistoryStatus::Open).subscribe())
}

fn all() -> EventQuery {
    EventQuery { since: 0, until: u64::MAX, clusters: None, subject: None, before: None, limit: 1_000 }
}

/// The law, on the disk: the table at any time is the one that was shown then.
#[tokio::test]
async fn the_table_at_any_time_is_the_one_that_was_there() {
    let directory = tempfile::tempdir().unwrap();
    let (mut store, known) = open(&directory).await;
    assert_eq!(known, Known::default());
    let (mut fleet, mut shown) = (Fleet::new(), BTreeMap::new());
    for n in 1..=400 {
        // Three records of the same millisecond: the last one counts.
        let at = 1_000 + n / 3 * 10;
        store.write(&fleet.next(at, 20, n % 50 == 1)).await.unwrap();
        shown.insert(at, fleet.clusters().clone());
    }
    let reader = reader(&directory);
    for (at, table) in &shown {
        for at in [*at, at + 9] {
            let past = reader.at(View::Clusters, at).await.unwrap();
            assert_eq!(past.rows, *table, "{at}");
            assert_eq!(past.is_final, at < 2_330, "{at}");
        }
    }
    assert!(matches!(reader.at(View::Clusters, 999).await, Err(ReadError::Before(1_000))));
    assert!(reader.at(View::Hosts, 2_000).await.unwrap().rows.is_empty());
}

#[tokio::test]
async fn events_are_read_page_by_page_and_by_cluster() {
    let directory = tempfile::tempdir().unwrap();
    let (mut store, _) = open(&directory).await;
    let mut fleet = Fleet::new();
    for n in 1..=300 {
        store.write(&fleet.next(n, 10, n % 40 == 1)).await.unwrap();
    }
    let reader = reader(&directory);
    let whole = reader.events(&all()).await.unwrap();
    assert!(whole.next.is_none() && whole.events.len() > 200, "{}", whole.events.len());
    let (mut paged, mut before) = (Vec::new(), None);
    loop {
        let page = reader.events(&EventQuery { before, limit: 7, ..all() }).await.unwrap();
        assert!(page.events.len() <= 7);
        paged.extend(page.events);
        before = page.next;
        if before.is_none() {
            break;
        }
    }
    assert_eq!(paged, whole.events);
    let some = reader
        .events(&EventQuery { since: 100, until: 199, clusters: Some(vec!["0003".to_owned()]), ..all() })
        .await
        .unwrap();
    let expected: Vec<_> = whole
        .events
        .iter()
        .filter(|one| (100..=199).contains(&one.at) && one.event.cluster.as_deref() == Some("0003"))
        .cloned()
        .collect();
    assert!(expected.len() > 5);
    assert_eq!(some.events, expected);
    let subject = Some(expected[0].event.subject.clone());
    for clusters in [None, Some(vec!["0003".to_owned()]), Some(vec!["0003".to_owned(), "0004".to_owned()])] {
        let found =
            reader.events(&EventQuery { clusters: clusters.clone(), subject: subject.clone(), ..all() }).await.unwrap();
        let is_wanted = |one: &&StoredEvent| {
            let is_of = |names: &Vec<String>| one.event.cluster.as_ref().is_some_and(|name| names.contains(name));
            Some(&one.event.subject) == subject.as_ref() && clusters.as_ref().is_none_or(is_of)
        };
        let wanted: Vec<_> = whole.events.iter().filter(is_wanted).cloned().collect();
        assert!(!wanted.is_empty() && wanted.len() < whole.events.len());
        assert_eq!(found.events, wanted);
    }
}

/// A kill at any moment: what was committed is there although no answer was sent, and from then on there is a gap.
#[tokio::test]
async fn what_was_committed_before_a_kill_is_there_and_the_rest_is_a_gap() {
    let directory = tempfile::tempdir().unwrap();
    let (mut store, _) = open(&directory).await;
    let mut fleet = Fleet::new();
    store.write(&fleet.next(10, 5, true)).await.unwrap();
    store.write(&fleet.next(20, 5, false)).await.unwrap();
    // The process dies before it answers: the files are as they are now.
    let after = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(directory.path()).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, after.path().join(path.file_name().unwrap())).unwrap();
    }
    let (mut again, known) = open(&after).await;
    assert_eq!((known.at, known.since_snapshot, known.snapshot_at), (20, 1, Some(10)));
    assert_eq!(known.tables[&View::Clusters], *fleet.clusters());
    let reader = reader(&after);
    let gap = reader.at(View::Clusters, 25).await.unwrap().gap.unwrap();
    assert_eq!(gap, Gap { since: 20, until: None, reason: "away".to_owned() });
    let first = again.write(&Record { ends_gap: true, ..fleet.next(30, 5, false) }).await.unwrap();
    assert_eq!(first, 3, "numbers go on");
    let page = reader.events(&all()).await.unwrap();
    assert_eq!(page.gaps, [Gap { since: 20, until: Some(30), reason: "away".to_owned() }]);
    assert_eq!((page.events.len(), page.begins), (3, Some(10)));
    assert_eq!(reader.at(View::Clusters, 30).await.unwrap().gap, None);
}

#[tokio::test]
async fn what_is_too_old_or_too_much_goes_with_its_snapshots_and_the_rest_stays_whole() {
    let directory = tempfile::tempdir().unwrap();
    let (mut store, _) = open(&directory).await;
    let (mut fleet, mut shown) = (Fleet::new(), BTreeMap::new());
    for n in 1..=200 {
        store.write(&fleet.next(n * DAY, 20, n % 10 == 1)).await.unwrap();
        shown.insert(n * DAY, fleet.clusters().clone());
    }
    let keep = Retention { days: 30, bytes: u64::MAX };
    while !store.forget(&keep, 200 * DAY).await.unwrap() {}
    let reader = reader(&directory);
    let begins = reader.events(&all()).await.unwrap().begins.unwrap();
    assert_eq!(begins, 161 * DAY, "the last snapshot that is 30 days old");
    for (at, table) in shown.range(begins..) {
        assert_eq!(reader.at(View::Clusters, *at).await.unwrap().rows, *table);
    }
    assert!(matches!(reader.at(View::Clusters, 160 * DAY).await, Err(ReadError::Before(at)) if at == begins));
    let events = reader.events(&all()).await.unwrap().events;
    assert!(events.iter().all(|event| event.at > begins), "what was before the first snapshot is gone");
    // By size: as much as can go goes, and the last snapshot stays.
    while !store.forget(&Retention { days: 30, bytes: 1 }, 200 * DAY).await.unwrap() {}
    let begins = reader.events(&all()).await.unwrap().begins.unwrap();
    assert_eq!(begins, 191 * DAY);
    assert_eq!(reader.at(View::Clusters, 200 * DAY).await.unwrap().rows, *fleet.clusters());
    store.close().await;
    let (_, known) = open(&directory).await;
    assert_eq!(known.tables[&View::Clusters], *fleet.clusters());
}

#[tokio::test]
async fn a_full_disk_refuses_the_record_and_keeps_what_was_there() {
    let directory = tempfile::tempdir().unwrap();
    let (mut store, _) = open(&directory).await;
    let mut fleet = Fleet::new();
    store.write(&fleet.next(1, 50, true)).await.unwrap();
    store.limit_pages().await;
    let mut before = fleet.clusters().clone();
    let (error, at) = loop {
        let at = 1 + fleet.number;
        match store.write(&fleet.next(at, 50, true)).await {
            Ok(_) => before = fleet.clusters().clone(),
            Err(error) => break (error, at),
        }
    };
    assert_eq!(error.to_string(), "the disk is full");
    assert!(!error.is_damaged());
    store.close().await;
    let (mut again, known) = open(&directory).await;
    assert_eq!((known.at, &known.tables[&View::Clusters]), (at - 1, &before));
    again.write(&fleet.next(at + 5, 50, true)).await.unwrap();
}

#[tokio::test]
async fn a_directory_that_cannot_be_used_is_said_and_tried_again() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("history"), "in the way").unwrap();
    let keep = Some(Retention { days: 1, bytes: 1 << 20 });
    let mut history = History::retrying(directory.path(), keep, Clock::new(), Duration::from_millis(10));
    let StoreEvent::Failed { reason } = history.recv().await else { panic!("it is a file") };
    assert!(reason.starts_with("the directory of the history cannot be used: "), "{reason}");
    let error = history.reader().at(View::Clusters, 1).await.unwrap_err().to_string();
    assert!(error.starts_with("this console keeps no history: the directory"), "{error}");
    std::fs::remove_file(directory.path().join("history")).unwrap();
    // It may have been tried while the file was there.
    while history.recv().await != StoreEvent::Opened(Box::default()) {}
    history.stop().await;
}

#[tokio::test]
async fn a_damaged_file_is_set_aside_and_a_new_history_begins() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("history");
    std::fs::create_dir(&path).unwrap();
    std::fs::write(store::file(&path), "this is not a database, and it is long enough to be taken for one".repeat(100))
        .unwrap();
    let mut history = History::start(root.path(), Some(Retention { days: 1, bytes: 1 << 20 }), Clock::new());
    assert_eq!(history.recv().await, StoreEvent::Opened(Box::default()));
    assert!(path.join("damaged-history.sqlite").exists());
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
    let mut fleet = Fleet::new();
    history.record(Arc::new(fleet.next(5, 5, true)));
    assert_eq!(history.recv().await, StoreEvent::Stored { first: 1 });
    assert_eq!(history.reader().at(View::Clusters, 6).await.unwrap().rows, *fleet.clusters());
    history.record(Arc::new(Record { begins_gap: Some("stopped".to_owned()), ..Record::of_time(7) }));
    history.stop().await;
    let (_, known) = Store::open(&path, "away").await.unwrap();
    assert_eq!(
        (known.at, &known.tables[&View::Clusters]),
        (7, fleet.clusters()),
        "what was sent before the end is stored"
    );
}

#[tokio::test]
async fn rows_that_no_store_wrote_are_damage() {
    let directory = tempfile::tempdir().unwrap();
    let (mut store, _) = open(&directory).await;
    store.write(&Fleet::new().next(1, 5, true)).await.unwrap();
    store.spoil().await;
    store.close().await;
    assert!(Store::open(directory.path(), "away").await.unwrap_err().is_damaged());
}
